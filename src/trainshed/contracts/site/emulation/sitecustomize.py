"""Python imports this before a program starts, when its folder is on PYTHONPATH: devices that are not there.

Acts only where TRAINSHED_EMULATED is 1. Nothing is imported by itself: when the
program imports MindSpore, a small module is laid over it. A sitecustomize
further down the path is run afterwards, as if this one were not there.
"""

import os
import sys


def _run_next() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs every start of Python
    places = [os.path.abspath(entry or ".") for entry in sys.path]  # noqa: PTH100
    rest = sys.path[places.index(here) + 1 :] if here in places else []
    # Also past a second mention of this folder: running itself again would never end.
    spec = PathFinder.find_spec("sitecustomize", [p for p in rest if os.path.abspath(p or ".") != here])  # noqa: PTH100
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if os.environ.get("TRAINSHED_EMULATED") == "1":
    import trainshed_emulation  # type: ignore[import-not-found,unused-ignore]

    trainshed_emulation.install()
_run_next()
