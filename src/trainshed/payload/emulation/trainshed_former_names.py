"""Names of older MindSpore releases that today's has under another one, for scripts written for Ascend then.

`vision.c_transforms` and its three sisters were joined in one module each; `ms_function` became `jit`; some
switches of the context went. Standard library only: the job's own Python imports it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
from collections.abc import Callable
from typing import Any

MODULES = {
    f"mindspore.dataset.{kind}.{which}_transforms": f"mindspore.dataset.{kind}"
    for kind in ("vision", "transforms")
    for which in ("c", "py")
}
NO_LONGER = {
    "enable_task_sink",
    "enable_loop_sink",
    "enable_mem_reuse",
    "enable_hccl",
    "enable_dynamic_memory",
    "enable_gpu_summary",
    "enable_dump",
    "save_dump_path",
    "grad_for_scalar",
}
"""Switches of set_context that today's MindSpore refuses: what they asked for is its rule, or is gone."""
RENAMED = {"mirror_mean": "gradients_mean", "cast_before_mirror": "gradient_fp32_sync"}
"""Switches of set_auto_parallel_context."""


class Loader(importlib.abc.Loader):
    """Makes the former module out of today's."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name, self._say = name, say

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        today = importlib.import_module(MODULES[self._name])
        public = {name: value for name, value in vars(today).items() if not name.startswith("_")}
        module.__dict__.update(public)
        if self._name == "mindspore.dataset.vision.py_transforms":
            module.__dict__.update(_of_pictures(today))
        if self._name == "mindspore.dataset.transforms.py_transforms":
            module.OneHotOp = today.OneHot
        self._say(f"{self._name} of older releases is today's {MODULES[self._name]}")


def find_spec(name: str, say: Callable[[str], None]) -> Any:
    """The former module of that name, for a release that no longer has it."""
    if name not in MODULES or importlib.machinery.PathFinder.find_spec(name, _path(name)) is not None:
        return None
    return importlib.machinery.ModuleSpec(name, Loader(name, say))


def _path(name: str) -> Any:
    import sys

    parent = sys.modules.get(name.rpartition(".")[0])
    return getattr(parent, "__path__", None)


def _of_pictures(vision: Any) -> dict[str, Any]:
    """Those that meant something else for PIL images: decoded to one, and normalized with channels first."""

    class Decode(vision.Decode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(to_pil=True)

    class Normalize(vision.Normalize):  # type: ignore[misc]
        def __init__(self, mean: Any, std: Any) -> None:
            super().__init__(mean, std, is_hwc=False)

    return {"Decode": Decode, "Normalize": Normalize}
