"""Lets MindSpore code that was written for Ascend run on the CPU back end, and says so in the log.

Standard library only: the job's own Python imports it. It changes what a
program asks for (device, backend, workers), never what is computed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import trainshed_overlay  # type: ignore[import-not-found,unused-ignore]

_said: set[str] = set()


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
            say("init() does nothing: this job has one device")
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
    return os.environ.get("MS_WORKER_NUM", "1") == "1"


def _join() -> None:
    """Processes a script has started itself meet by rank table on Ascend; the CPU needs MindSpore's cluster.

    The ranks are those the script gave. Rank 0 also starts the scheduler, which ends when the last rank
    has taken leave: ranks crash whose scheduler goes before them.
    """
    env = os.environ
    size = env.get("RANK_SIZE", "1")
    if "MS_ROLE" in env or not size.isdigit():
        return
    if size == "1":
        env["MS_WORKER_NUM"] = "1"
        return
    if "MS_SCHED_HOST" not in env:
        raise RuntimeError("init() of several ranks is emulated for jobs with `launcher: mindspore`")
    _check_rank()
    env["MS_WORKER_NUM"], env["MS_NODE_ID"] = size, env["RANK_ID"]
    if env["RANK_ID"] == "0":
        import subprocess

        say(f"the ranks of the script meet in a cluster of {size} on the CPU")
        program = "from mindspore.communication import init; init()"
        subprocess.Popen([sys.executable, "-c", program], env={**env, "MS_ROLE": "MS_SCHED"})
    env["MS_ROLE"] = "MS_WORKER"


def _check_rank() -> None:
    """A rank that the table gives to another device would make all ranks wait for ever: say so and stop."""
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
        return super().find_spec(name, path, target)


def install() -> None:
    sys.meta_path.insert(0, _Finder(_PATCHES))
