"""Turns the arguments of old `python -m paddle.distributed.launch` into those of today's launcher.

Paddle up to 2.0 took --cluster_node_ips, --node_ip, --started_port and --selected_gpus. Today's
launcher drops them with only a warning and starts one process. Pure and of the standard library
alone: it is imported by the job's own Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

RENAMED = {"--cluster_node_ips": "--ips", "--node_ip": "--host", "--started_port": "--start_port"}
GPUS = "--selected_gpus"
DROPPED = ("--use_paddlecloud", "--print_config")
_OLD = (*RENAMED, GPUS, *DROPPED)
_DEVICE_OPTIONS = ("--devices", "--gpus", "--npus", "--xpus", "--nproc_per_node")


class ArgumentsError(ValueError):
    """Old arguments that cannot be translated; starting anyway would start the wrong ranks."""


class Translation(NamedTuple):
    arguments: list[str]
    message: str
    warnings: list[str]


def translate(
    arguments: Sequence[str],
    devices: int | None,
    on_gpu: bool,
) -> Translation | None:
    """Today's arguments, or None when there is nothing old among them.

    `devices` is the number of devices the job has on this node, None when unknown. On GPUs the
    devices keep their numbers (--devices); elsewhere only their count matters (--nproc_per_node).
    """
    options, script = _split(arguments)
    old = {name: value for name, value in options if name in _OLD}
    if not old:
        return None
    today = {name for name, _ in options if name not in _OLD}
    kept: list[str] = []
    for name, value in options:
        if name not in _OLD:
            kept += [name] if value is None else [f"{name}={value}"]
    warnings: list[str] = []
    new = [*_addresses(old, today, warnings), *_processes(old, today, devices, on_gpu, warnings)]
    message = (
        f"paddle.distributed.launch of today does not know {', '.join(old)}; "
        f"starting it with: {' '.join([*new, *kept]) or 'no options'}"
    )
    return Translation([*new, *kept, *script], message, warnings)


def _split(arguments: Sequence[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
    """The launcher's options (each takes a value) and, from the script on, everything else."""
    options: list[tuple[str, str | None]] = []
    i = 0
    while i < len(arguments) and arguments[i].startswith("-"):
        name, equals, value = arguments[i].partition("=")
        i += 1
        if equals:
            options.append((name, value))
        elif name == "--use_paddlecloud" or i == len(arguments) or arguments[i].startswith("--"):
            options.append((name, None))
        else:
            options.append((name, arguments[i]))
            i += 1
    return options, list(arguments[i:])


def _addresses(
    old: dict[str, str | None],
    today: set[str],
    warnings: list[str],
) -> list[str]:
    values = {name: old.get(name) or "" for name in RENAMED}
    # BATCH_CUSTOM<i>_HOSTS, from which scripts build the list, is host:port on some platforms.
    hosts = [part.strip().split(":")[0] for part in values["--cluster_node_ips"].split(",") if part.strip()]
    address = values["--node_ip"].split(":")[0]
    if len(set(hosts)) != len(hosts):
        raise ArgumentsError(f"--cluster_node_ips names a node twice: {','.join(hosts)}; name each node once")
    if hosts and not address and len(hosts) > 1:
        raise ArgumentsError("--cluster_node_ips without --node_ip: give each node its own address")
    if hosts and address and address not in hosts:
        raise ArgumentsError(
            f"--node_ip={address} is not in --cluster_node_ips={','.join(hosts)}: every node would take ranks "
            "from 0; give the node the address the list has"
        )
    port = values["--started_port"]
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        raise ArgumentsError(f"--started_port={port} is not a port; give a number from 1 to 65535")
    wanted = {"--ips": ",".join(hosts), "--host": address, "--start_port": port}
    for name in sorted(today & {option for option, value in wanted.items() if value}):
        warnings.append(f"{name} is given in its old and in its new form; the new one counts")
    return [f"{name}={value}" for name, value in wanted.items() if value and name not in today]


def _processes(
    old: dict[str, str | None],
    today: set[str],
    devices: int | None,
    on_gpu: bool,
    warnings: list[str],
) -> list[str]:
    if today.intersection(_DEVICE_OPTIONS):
        if GPUS in old:
            warnings.append(f"{GPUS} is ignored: devices are also given in the new form")
        return []
    selected = _numbers(old.get(GPUS) or "")
    if not selected:
        return [] if devices is None or on_gpu else [f"--nproc_per_node={devices}"]
    if devices is not None and len(selected) > devices:
        warnings.append(
            f"{GPUS} names {len(selected)} devices, the job has {devices} on this node: "
            f"starting {devices} processes"
        )
        selected = [number for number in selected if number < devices] or list(range(devices))
        selected = selected[:devices]
    if on_gpu:
        return [f"--devices={','.join(map(str, selected))}"]
    return [f"--nproc_per_node={len(selected)}"]


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise ArgumentsError(f"{GPUS}={text} is not a list of device numbers; write 0,1,2")
    if len(set(parts)) != len(parts):
        raise ArgumentsError(f"{GPUS}={text} names a device twice; name each once")
    return [int(part) for part in parts]
