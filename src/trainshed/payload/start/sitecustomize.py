"""Python imports this before a program starts, when its folder is on PYTHONPATH: what is laid over frameworks.

TRAINSHED_START names the modules to install; frameworks are imported by the program alone. A sitecustomize
further down the path (the user's, the system's) is run afterwards, as if this one were not there.
"""

import os
import sys


def _run_next() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs every start of Python
    folders = [os.path.abspath(entry or ".") for entry in sys.path]  # noqa: PTH100
    rest = sys.path[folders.index(folder) + 1 :] if folder in folders else []
    # Also past a second mention of this folder: running itself again would never end.
    spec = PathFinder.find_spec("sitecustomize", [p for p in rest if os.path.abspath(p or ".") != folder])  # noqa: PTH100
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


for _name in os.environ.get("TRAINSHED_START", "").split():
    __import__(_name).install()
_run_next()
