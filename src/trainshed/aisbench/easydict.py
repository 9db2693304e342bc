"""Makes `from easydict import EasyDict` work on machines without the package `easydict`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from trainshed.payload.aisbench import easydict


def provide() -> None:
    """The real package where there is one, else ours."""
    if "easydict" in sys.modules or find_spec("easydict") is not None:
        return
    sys.modules["easydict"] = easydict
