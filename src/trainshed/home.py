"""Where Trainshed keeps its files by default: the only code that reads $TRAINSHED_HOME.

Only entry points use it (the command line, a Client without arguments, a script's moxing);
everything beneath is given its folder. Python 3.7 syntax, for old environments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def trainshed_home(environ: Mapping[str, str] | None = None) -> Path:
    """$TRAINSHED_HOME, or ~/.trainshed; absolute."""
    environ = os.environ if environ is None else environ
    return Path(environ.get("TRAINSHED_HOME") or "~/.trainshed").expanduser().absolute()
