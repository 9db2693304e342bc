"""What public frameworks conclude from a process' variables, rewritten from their documented behaviour.

Each function gives `View(rank, size, local, node, nodes)` or raises, as the framework would.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

Env = Mapping[str, str]


class View(NamedTuple):
    """Where a process believes to be."""

    rank: int
    size: int
    local: int
    node: int
    nodes: int


def torchrun(env: Env) -> View:
    """torch.distributed's `env://`, accelerate and DeepSpeed: RANK and its kin; the rendezvous must be named."""
    assert env["MASTER_ADDR"] and 0 < int(env["MASTER_PORT"]) < 65536
    size, each = int(env["WORLD_SIZE"]), int(env["LOCAL_WORLD_SIZE"])
    return View(int(env["RANK"]), size, int(env["LOCAL_RANK"]), int(env["GROUP_RANK"]), size // each)


def lightning(env: Env, devices: int, nodes: int) -> View:
    """Lightning's SLURMEnvironment.

    It is chosen when SLURM_NTASKS is there and the job is not interactive (named bash or interactive). It
    refuses a Trainer whose devices are not SLURM_NTASKS_PER_NODE, or whose nodes are not SLURM_NNODES. Without
    MASTER_ADDR the first name of SLURM_NODELIST is the main address.
    """
    assert "SLURM_NTASKS" in env and env["SLURM_JOB_NAME"] not in ("bash", "interactive")
    if "SLURM_NTASKS_PER_NODE" in env:
        assert int(env["SLURM_NTASKS_PER_NODE"]) == devices
    assert int(env["SLURM_NNODES"]) == nodes
    return View(
        int(env["SLURM_PROCID"]),
        int(env["SLURM_NTASKS"]),
        int(env["SLURM_LOCALID"]),
        int(env["SLURM_NODEID"]),
        nodes,
    )


def main_address(env: Env) -> str:
    """The first host of SLURM_NODELIST: of `n[3-5]` it is n3."""
    first = re.sub(r"\[(\d+)[^\]]*\]", r"\1", env["SLURM_NODELIST"])
    return first.split(",")[0]


def tensorflow(env: Env) -> tuple[int, list[str]]:
    """TensorFlow's SlurmClusterResolver: its own number, and the host of each task.

    It expands SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE (`2(x3),1`) and wants both to make up
    SLURM_STEP_NUM_TASKS.
    """
    counts: list[int] = []
    for part in env["SLURM_STEP_TASKS_PER_NODE"].split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        assert found, part
        counts += [int(found[1])] * int(found[2] or 1)
    hosts = env["SLURM_STEP_NODELIST"].split(",")
    assert len(hosts) == len(counts)
    tasks = [host for host, count in zip(hosts, counts, strict=True) for _ in range(count)]
    assert len(tasks) == int(env["SLURM_STEP_NUM_TASKS"])
    return int(env["SLURM_PROCID"]), tasks


def mpi_is_singleton(env: Env) -> bool:
    """Whether an MPI library, loaded in the process, makes its own world instead of asking srun for one.

    Open MPI takes SLURM_JOBID as an order to use Slurm and SLURM_STEP_ID (or SLURM_STEPID) as a sign that srun
    has started it; all of them take the variables of PMI, PMIx and of their own launcher as a world.
    """
    orders = ("SLURM_JOBID", "SLURM_STEPID", "SLURM_STEP_ID")
    worlds = ("PMI_", "PMIX_", "PMI2_", "OMPI_COMM_", "OMPI_MCA_orte", "MPIEXEC_", "MV2_COMM_", "SLURM_PMI")
    return not any(name in orders or name.startswith(worlds) for name in env)
