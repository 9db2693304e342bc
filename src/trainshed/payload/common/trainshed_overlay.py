"""Lays a patch over a module of a framework once the program has imported it.

Standard library only: the job's own Python imports it.
"""

from __future__ import annotations

import importlib.abc
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


class Finder(importlib.abc.MetaPathFinder):
    """Lets the usual finders find a module, and lays its patch over it once it is loaded."""

    def __init__(self, patches: Mapping[str, Callable[[Any], None]]) -> None:
        self._patches = patches

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        patch = self._patches.get(name)
        if patch is None:
            return None
        # Whoever comes after this one on the list, so that several patches of one module are all laid over it.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, patch)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: Any, patch: Callable[[Any], None]) -> None:
        self._inner, self._patch = inner, patch

    def create_module(self, spec: Any) -> Any:
        return self._inner.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._inner.exec_module(module)
        try:
            self._patch(module)
        except AttributeError as error:
            say(f"{module.__name__} is an unknown version ({error}) and is not patched")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def say(text: str) -> None:
    """One line in the log. Straight to the file: a program may have taken sys.stderr."""
    os.write(2, f"trainshed: {text}\n".encode("utf-8", "replace"))
