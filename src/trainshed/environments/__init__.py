"""Framework environments: virtual environments in which ranks run.

An environment holds one framework at pinned versions and nothing of Trainshed,
so what a script imports is the framework's own. This package makes, finds and
removes environments; it knows nothing of jobs, launchers or nodes.
"""

from __future__ import annotations

from trainshed.environments.build import add, create
from trainshed.environments.catalog import (
    Environment,
    Listing,
    environments_directory,
    listing,
    remove,
    resolve,
)
from trainshed.environments.progress import BuildProgress, ProgressCallback
from trainshed.environments.recipes import framework_names

__all__ = [
    "BuildProgress",
    "Environment",
    "Listing",
    "ProgressCallback",
    "add",
    "create",
    "environments_directory",
    "framework_names",
    "listing",
    "remove",
    "resolve",
]
