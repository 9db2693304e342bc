"""Where Trainshed keeps its files when nobody says so: the one reader of $TRAINSHED_HOME.

Only doors ask (the command line, a Client without arguments), with the variables
that count for them; everything beneath is given its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def trainshed_home(environ: Mapping[str, str]) -> Path:
    """$TRAINSHED_HOME, or ~/.trainshed; absolute. `~` is $HOME of the same variables."""
    home = Path(environ.get("TRAINSHED_HOME") or "~/.trainshed")
    if home.parts[:1] == ("~",) and environ.get("HOME"):
        home = Path(environ["HOME"], *home.parts[1:])
    return home.expanduser().absolute()
