"""`moxing` for scripts written for ModelArts: files of OBS and S3 as if they were local.

Given to jobs on their PYTHONPATH, never installed. Only `moxing.file` (and the names scripts reach it by)
exists; it is a thin layer on Trainshed's copy engine and imports nothing heavy.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import sys

from moxing import framework
from moxing.framework import file

sys.modules.setdefault("moxing.file", file)

__version__ = "2.0.0"
__all__ = ["cache", "file", "framework"]


def cache(*args, **kwargs):
    """Asks for local caching of checkpoints; files are always written locally first here."""
