"""Stands before `msrun` on a node's PATH: fills in what the job knows, and starts a missing scheduler.

- Options about nodes and ranks that are missing get the job's values, with a line in the log.
- msrun starts the scheduler where the master's address is an interface's own. That of a virtual node
  is not, so the first node's msrun would wait forever: the scheduler is started here, by the
  variables that MindSpore defines for it. It also ends as soon as msrun does: msrun itself would
  wait half a minute for it after a worker has died.

Of the standard library alone: it is run by the job's own Python.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType


def defaults(env: Mapping[str, str]) -> dict[str, str]:
    """Options that follow from the job, by name. `join`: without it msrun leaves its workers behind."""
    size, local_size = env.get("TRAINSHED_WORLD_SIZE"), env.get("TRAINSHED_LOCAL_SIZE")
    known = {
        "--worker_num": size,
        "--local_worker_num": local_size,
        "--master_addr": env.get("MS_SCHED_HOST"),
        "--master_port": env.get("MS_SCHED_PORT"),
        # A node that trains alone is the first of its world, whatever its number in the job.
        "--node_rank": "0" if size == local_size else env.get("TRAINSHED_NODE"),
        "--join": "True",
    }
    return {name: value for name, value in known.items() if value}


def split(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """msrun's options (each takes a value) and, from the script on, everything else."""
    options: dict[str, str] = {}
    i = 0
    while i < len(arguments) and arguments[i].startswith("-"):
        name, equals, value = arguments[i].partition("=")
        if not equals:
            i += 1
            value = arguments[i] if i < len(arguments) else ""
        options[name] = value
        i += 1
    return options, list(arguments[i:])


def needs_scheduler(options: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Whether this is the master's node and msrun cannot see that."""
    return _is_ours(options) and options["--master_addr"] == env.get("TRAINSHED_NODE_ADDRESS")


def _is_ours(options: Mapping[str, str]) -> bool:
    """Whether the job's scheduler is started here, by whichever node: all of 127/8 is local, one is listed."""
    master = options.get("--master_addr", "127.0.0.1")
    return master.startswith("127.") and master != "127.0.0.1"


def _scheduler(options: Mapping[str, str]) -> subprocess.Popen[bytes]:
    folder = options.get("--log_dir", "") or "."
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    size = options.get("--worker_num", "8")
    env = {
        **os.environ,
        "MS_ROLE": "MS_SCHED",
        "MS_SCHED_HOST": options["--master_addr"],
        "MS_SCHED_PORT": options.get("--master_port", "8118"),
        "MS_WORKER_NUM": size,
        "MS_TOPO_TIMEOUT": options.get("--cluster_time_out", "600"),
    }
    argv = [sys.executable, "-m", "trainshed_scheduler"]
    with open(os.path.join(folder, "scheduler.log"), "wb") as log:  # noqa: PTH118
        return subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _real(name: str, folders: Sequence[str]) -> str:
    """The program that the tool in front of it hides."""
    for folder in folders:
        path = os.path.join(folder, name)  # noqa: PTH118
        if folder and ".trainshed" not in folder and os.access(path, os.X_OK):
            return path
    return ""


def main() -> int:
    program = _real("msrun", os.environ.get("PATH", "").split(":"))
    if not program:
        sys.exit("trainshed: msrun is not installed in this job's environment; name one that has it")
    options, script = split(sys.argv[1:])
    if not script:
        os.execv(program, [program, *sys.argv[1:]])  # noqa: S606
    added = {name: value for name, value in defaults(os.environ).items() if name not in options}
    options.update(added)
    if added:
        shown = " ".join(f"{name}={value}" for name, value in added.items())
        print(f"trainshed: msrun {shown} added: that is this job's shape", file=sys.stderr, flush=True)
    started: list[subprocess.Popen[bytes]] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        for process in started:
            process.send_signal(number)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    env = dict(os.environ)
    if needs_scheduler(options, os.environ):
        started.append(_scheduler(options))
    if _is_ours(options):
        env["TRAINSHED_SCHEDULER"] = "1"
    launcher = subprocess.Popen([program, *(f"{n}={v}" for n, v in options.items()), *script], env=env)
    started.append(launcher)
    return _watch(launcher, started[0] if len(started) > 1 else None)


def _watch(launcher: subprocess.Popen[bytes], scheduler: subprocess.Popen[bytes] | None) -> int:
    """msrun's end counts; so does the scheduler's, if it fails first."""
    code = launcher.poll()
    while code is None:
        if scheduler and scheduler.poll() not in (None, 0):
            print("trainshed: msrun's scheduler ended: see scheduler.log", file=sys.stderr, flush=True)
            launcher.terminate()
            return 1
        time.sleep(0.1)
        code = launcher.poll()
    if scheduler is not None:
        scheduler.kill()
        scheduler.wait()
    return code


if __name__ == "__main__":
    sys.exit(main())
