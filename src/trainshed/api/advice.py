"""What to do about a failure whose output names what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainshed.environments import lockfile, recipes
from trainshed.spec.guess import environment_of, package_of

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([A-Za-z0-9_]+)")


def missing_module(lines: Iterable[str], environment: str | None, python: str) -> str:
    """For a module that the job's Python lacks: which Python that is, and what to write. Empty for others."""
    found = next((match[1] for line in reversed(list(lines)) if (match := _MISSING.search(line))), "")
    if not found:
        return ""
    where = (
        f"environment {environment}"
        if environment
        else "Trainshed's own Python, since the job sets no environment"
    )
    context = f"the job ran in {python} ({where})" if python else f"the job ran in {where}"
    package = package_of(found)
    framework = environment_of(found)
    if framework and framework != environment:
        remedy = f"write `environment: {framework}` in the job file (trainshed env create {framework})"
    elif environment not in recipes.framework_names():
        remedy = "write `environment: NAME` in the job file (trainshed env list names them)"
        if environment:
            remedy = f"install {package} there"
        remedy += f", or list {package} in a file of the code and write `requirements: FILE`"
    elif package in lockfile.locked_versions(lockfile.FULL_LOCK):
        remedy = f"trainshed env create {environment} --full"
    else:
        remedy = (
            f"trainshed env add {environment} {package}, or list it in a file of the code "
            "and write `requirements: FILE` in the job file"
        )
    return f"{context}, which has no module {found}: {remedy}"
