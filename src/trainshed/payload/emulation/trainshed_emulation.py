"""Lets MindSpore code that was written for Ascend run on the CPU back end, and says so in the log.

Standard library only: the job's own Python imports it. It changes what a
program asks for (device, backend, workers, precision), never what is computed
with it.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import trainshed_former_names  # type: ignore[import-not-found,unused-ignore]
import trainshed_overlay  # type: ignore[import-not-found,unused-ignore]

_said: set[str] = set()
_LEVELS = ("O1", "O2", "O3", "auto")


def say(text: str) -> None:
    """One line in the log, once for each text."""
    if text not in _said:
        _said.add(text)
        trainshed_overlay.say(f"EMULATED: {text}")


def _context(module: Any) -> None:
    context = module._Context
    original = context.set_device_target

    def set_device_target(self: Any, target: str) -> None:
        original(self, _target(target))

    context.set_device_target = set_device_target
    if isinstance(getattr(context, "setters", None), dict):
        context.setters["device_target"] = set_device_target
    _switches(module)


def _switches(module: Any) -> None:
    set_context, set_parallel = module.set_context, module.set_auto_parallel_context

    @functools.wraps(set_context)
    def set_known(**named: Any) -> Any:
        for name in sorted(trainshed_former_names.NO_LONGER & set(named)):
            say(f"set_context({name}=…) of older releases is left out")
            del named[name]
        if named.get("enable_graph_kernel"):
            say("set_context(enable_graph_kernel=True) is left out: the CPU compiles no fused kernels")
            del named["enable_graph_kernel"]
        return set_context(**named) if named else None

    @functools.wraps(set_parallel)
    def set_known_parallel(**named: Any) -> Any:
        for name, today in trainshed_former_names.RENAMED.items():
            if name in named:
                say(f"set_auto_parallel_context({name}=…) is {today} today")
                named[today] = named.pop(name)
        return set_parallel(**named)

    module.set_context, module.set_auto_parallel_context = set_known, set_known_parallel


def _amp(module: Any) -> None:
    """Mixed precision: the CPU computes in float32, in which no loss needs a scale that is adapted to overflows."""
    build, auto, custom = (
        module.build_train_network,
        module.auto_mixed_precision,
        module.custom_mixed_precision,
    )

    @functools.wraps(build)
    def build_train_network(
        network: Any, optimizer: Any, loss_fn: Any = None, level: Any = "O0", *more: Any, **named: Any
    ) -> Any:
        if level in _LEVELS:
            say(f"amp_level={level!r} is computed in float32, without its default loss scaling")
            level = "O0"
            named.pop("cast_model_type", None)
        _leave_scaling_out(named)
        return build(network, optimizer, loss_fn, level, *more, **named)

    @functools.wraps(auto)
    def auto_mixed_precision(network: Any, amp_level: Any = "O0", *more: Any, **named: Any) -> Any:
        if amp_level not in _LEVELS:
            return auto(network, amp_level, *more, **named)
        say(f"auto_mixed_precision({amp_level!r}) is computed in float32")
        return network

    @functools.wraps(custom)
    def custom_mixed_precision(network: Any, **named: Any) -> Any:
        say("custom_mixed_precision() is computed in float32")
        return network

    module.build_train_network, module.auto_mixed_precision = build_train_network, auto_mixed_precision
    module.custom_mixed_precision = custom_mixed_precision


def _model(module: Any) -> None:
    original = module.Model.__init__

    @functools.wraps(original)
    def build(self: Any, *arguments: Any, **named: Any) -> None:
        _leave_scaling_out(named)
        original(self, *arguments, **named)

    module.Model.__init__ = build


def _leave_scaling_out(named: dict[str, Any]) -> None:
    """A loss scale that is adapted, or skips steps, when numbers overflow; the CPU back end refuses it."""
    manager = named.get("loss_scale_manager")
    if manager is not None and manager.get_update_cell() is not None:
        say(f"{type(manager).__name__} is left out: in float32 there is no overflow to skip")
        named["loss_scale_manager"] = None


def _cell(module: Any) -> None:
    original = module.Cell.to_float

    @functools.wraps(original)
    def to_float(self: Any, dst_type: Any) -> Any:
        if str(dst_type) in ("Float16", "BFloat16"):
            say(f"to_float({dst_type}) is computed in float32")
            dst_type = module.mstype.float32
        return original(self, dst_type)

    module.Cell.to_float = to_float


def _jit(module: Any) -> None:
    if hasattr(module, "jit") and not hasattr(module, "ms_function"):
        module.ms_function = module.jit


def _device_manager(module: Any) -> None:
    original = module.set_device

    def set_device(device_target: str, device_id: Any = None) -> None:
        target = _target(device_target)
        # The CPU is one device, whatever the number.
        original(target, device_id if target == device_target else None)

    module.set_device = set_device


def _management(module: Any) -> None:
    original, get_rank, get_group_size = module.init, module.get_rank, module.get_group_size

    def init(backend_name: Any = None) -> None:
        _join()
        if _alone():
            say("init() does nothing: this process is alone")
            return
        if backend_name == "hccl":
            say("init('hccl') is served by the CPU's collectives")
            backend_name = None
        original(backend_name)

    def rank(*arguments: Any, **named: Any) -> Any:
        return 0 if _alone() else get_rank(*arguments, **named)

    def group_size(*arguments: Any, **named: Any) -> Any:
        return 1 if _alone() else get_group_size(*arguments, **named)

    module.init, module.get_rank, module.get_group_size = init, rank, group_size


def _validators(module: Any) -> None:
    original = module.check_num_parallel_workers

    def check(value: Any) -> None:
        original(_workers(value, module.cpu_count()))

    module.check_num_parallel_workers = check


def _datasets(module: Any) -> None:
    original = module.Dataset.__init__

    def build(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.num_parallel_workers = _workers(self.num_parallel_workers, os.cpu_count() or 1)

    module.Dataset.__init__ = build


def _workers(wanted: Any, cores: int) -> Any:
    """MindSpore takes no more workers than there are cores, of which a server with NPUs has many."""
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted > cores:
        say(f"num_parallel_workers={wanted} becomes {cores}, the number of cores")
        return cores
    return wanted


def _target(wanted: str) -> str:
    if wanted in ("Ascend", "Davinci"):
        say(
            f"device_target={wanted!r} is served by the CPU back end; "
            "times and accuracy say nothing about real devices"
        )
        return "CPU"
    return wanted


def _alone() -> bool:
    return "MS_ROLE" not in os.environ


def _join() -> None:
    """Processes a script has started itself meet by rank table on Ascend; the CPU needs MindSpore's cluster.

    The ranks are those the script gave. Rank 0 also starts the scheduler, and stops it when all ranks are done.
    """
    env = os.environ
    size = env.get("RANK_SIZE", "1")
    if "MS_ROLE" in env or not size.isdigit() or size == "1":
        return
    if "MS_SCHED_HOST" not in env:
        raise RuntimeError("init() of several ranks is emulated for jobs with `launcher: mindspore`")
    _check_rank()
    env["MS_WORKER_NUM"], env["MS_NODE_ID"] = size, env["RANK_ID"]
    if env["RANK_ID"] == "0":
        import subprocess
        import tempfile

        say(f"the ranks of the script meet in a cluster of {size} on the CPU")
        program = [sys.executable, "-m", "trainshed_scheduler"]
        scheduler = subprocess.Popen(program, env={**env, "MS_ROLE": "MS_SCHED"}, cwd=tempfile.gettempdir())
        # Called after the ranks have met at their end, which is registered later.
        atexit.register(_end, scheduler)
    env["MS_ROLE"], env["TRAINSHED_SCHEDULER"] = "MS_WORKER", "1"


def _end(scheduler: Any) -> None:
    scheduler.kill()
    scheduler.wait()


def _check_rank() -> None:
    """A rank that the table gives to another device would make all ranks wait forever: say so and stop."""
    server, device, rank = (os.environ.get(n, "") for n in ("TRAINSHED_NODE_ADDRESS", "DEVICE_ID", "RANK_ID"))
    seats = _seats() if rank and device else {}
    wanted = seats.get((server, device))
    if wanted is None or wanted == rank:
        return
    owner = " and ".join(f"{s}/device {d}" for (s, d), r in seats.items() if r == rank) or "no device"
    devices = sum(1 for s, _ in seats if s == server)
    say(
        f"rank {rank} of {server}/device {device} belongs to {owner} in the rank table, "
        f"which gives this device rank {wanted}: use RANK_ID=SERVER_INDEX*{devices}+i"
    )
    import signal

    # The script may not look at how its processes end, so all that it started ends here.
    os.killpg(os.getsid(0), signal.SIGTERM)
    os._exit(1)


def _seats() -> dict[Any, str]:
    """(server, device) → rank, as the rank table of the process says; empty without a table."""
    import json

    path = os.environ.get("MINDSPORE_HCCL_CONFIG_PATH") or os.environ.get("RANK_TABLE_FILE") or ""
    try:
        with open(path, encoding="utf-8") as stream:
            table = json.load(stream)
        if "server_list" in table:
            return {
                (server["server_id"], device["device_id"]): device["rank_id"]
                for server in table["server_list"]
                for device in server["device"]
            }
        return {
            (item["server_id"], item["devices"][0]["device_id"]): item["rank_id"]
            for group in table["group_list"]
            for item in group["instance_list"]
        }
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return {}


_PATCHES: dict[str, Callable[[Any], None]] = {
    "mindspore": _jit,
    "mindspore.common.api": _jit,
    "mindspore.nn.cell": _cell,
    "mindspore.train.amp": _amp,
    "mindspore.train.model": _model,
    "mindspore.context": _context,
    "mindspore.device_manager": _device_manager,
    "mindspore.communication.management": _management,
    "mindspore.dataset.core.validator_helpers": _validators,
    "mindspore.dataset.engine.datasets": _datasets,
}


class _Finder(trainshed_overlay.Finder):  # type: ignore[misc,unused-ignore]
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name == "mindspore" and "MS_ROLE" not in os.environ:
            # Before the import, which takes seconds: a script that counts wrongly fails at once.
            _check_rank()
        found = trainshed_former_names.find_spec(name, say)
        return found if found is not None else super().find_spec(name, path, target)


def install() -> None:
    sys.meta_path.insert(0, _Finder(_PATCHES))
