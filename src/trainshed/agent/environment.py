"""The environment of a node's processes: variables, files, and the kernel's memory counters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainshed.access import StoreAccess
from trainshed.agent.node_access import NodeAccess
from trainshed.plan.model import FilePlan, NodePlan, Plan

_INHERITED = ("TERM", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "http_proxy", "https_proxy", "no_proxy")
_INHERITED_PREFIXES = ("ASCEND_", "SSL_CERT_", "REQUESTS_CA_", "PIP_", "GLOO_", "NCCL_", "HCCL_")


_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "XDG_RUNTIME_DIR")
"""What drivers and agents need for themselves."""


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of drivers and agents: whatever else the submitter's shell holds stays there."""
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT
        or name in _INHERITED
        or name.startswith((*_INHERITED_PREFIXES, "TRAINSHED_HOME", "TRAINSHED_ENVS"))
    }


def base(plan: Plan, node: NodePlan, secrets: Mapping[str, str], reports: Path) -> dict[str, str]:
    """What every process of the node gets: a little of the agent's own, then the plan's, then the secrets.

    The agent's own variables are those that its driver passed on from the submission, see `clean`.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    env |= {"TRAINSHED_METRICS_DIR": str(reports)}
    return env | dict(plan.env) | dict(node.env) | dict(secrets)


def store_of(plan: Plan, secrets: Mapping[str, str], home: Path) -> StoreAccess:
    """The agent reaches the same object store as the job, with the same keys."""
    return StoreAccess.from_environment({**plan.env, **secrets}, home)


def write_files(files: tuple[FilePlan, ...], access: NodeAccess) -> None:
    """The files of the plan, whole and with their modes."""
    for item in files:
        path = Path(access.real(item.path))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(item.content, encoding="utf-8")
        path.chmod(item.mode)


def oom_kills() -> int:
    """How often the kernel has killed for want of memory since it started; 0 where it does not say."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def describe_memory(node: NodePlan, used: int, limit: int) -> str:
    return (
        f"node {node.index} ({node.name}) is out of memory: its processes use {used / 2**20:.0f} MiB "
        f"of the {limit / 2**20:.0f} MiB that resources.memory allows"
    )
