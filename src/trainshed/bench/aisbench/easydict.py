"""EasyDict as old configuration files use it, for machines without the package `easydict`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class EasyDict(dict[str, Any]):
    """A dict whose keys are attributes too; dicts in it, also in lists, become the same."""

    def __init__(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        super().__init__()
        self.update(values or {}, **more)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _eased(value))

    def update(self, *values: Any, **more: Any) -> None:
        for name, value in dict(*values, **more).items():
            self[name] = value


def provide() -> None:
    """Make `from easydict import EasyDict` work, with the real package where there is one."""
    if "easydict" in sys.modules or find_spec("easydict") is not None:
        return
    module = ModuleType("easydict")
    module.EasyDict = EasyDict  # type: ignore[attr-defined]
    sys.modules["easydict"] = module


def _eased(value: Any) -> Any:
    if isinstance(value, Mapping) and not isinstance(value, EasyDict):
        return EasyDict(value)
    return type(value)(_eased(item) for item in value) if isinstance(value, list | tuple) else value
