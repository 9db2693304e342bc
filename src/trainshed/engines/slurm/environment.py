"""Slurm's own variables as every rank should see them.

The agent is the one task of its node, so what Slurm sets for it describes a
world of one process per node. Ranks get the world they are in instead, as if
srun had started each of them; a command that starts processes itself gets only
what is true of the node. Left out on purpose, because MPI libraries take them
as an order to start processes with srun, outside the node, or to ask srun's PMI
for a world that is not there: SLURM_JOBID, SLURM_STEP_ID, all of PMI and, for
commands, SLURM_NODELIST.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainshed.plan.topology import Node, World
from trainshed.plan.view import ProcessEnv

_JOB = (
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_ACCOUNT", "SLURM_JOB_USER",
    "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR",
    "SLURM_SUBMIT_HOST", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT", "SLURM_CONF",
)  # fmt: skip
"""What is true of the whole job, whoever reads it."""


def job_env(environ: Mapping[str, str]) -> dict[str, str]:
    """What all processes of the job may know of it."""
    return {name: environ[name] for name in _JOB if environ.get(name)}


def process_env(cpus_per_rank: int) -> ProcessEnv:
    """Variables of a process: of the rank with that number on its node, or of a node's own command."""

    def variables(world: World, node: Node, local: int | None) -> dict[str, str]:
        nodes = str(len(world.nodes))
        env = {
            "SLURM_NNODES": nodes,
            "SLURM_NODEID": str(world.position(node)),
            "SLURMD_NODENAME": node.name,
        }
        if local is None:
            return env
        each = [len(other.devices) for other in world.nodes]
        size, tasks = str(world.size), _counted(each)
        names = ",".join(other.name for other in world.nodes)
        env |= {
            "SLURM_NODELIST": names,
            "SLURM_NTASKS": size,
            "SLURM_NPROCS": size,
            "SLURM_STEP_NODELIST": names,
            "SLURM_STEP_NUM_TASKS": size,
            "SLURM_STEP_NUM_NODES": nodes,
            "SLURM_TASKS_PER_NODE": tasks,
            "SLURM_STEP_TASKS_PER_NODE": tasks,
            "SLURM_PROCID": str(world.rank(node, local)),
            "SLURM_LOCALID": str(local),
            "SLURM_CPUS_PER_TASK": str(cpus_per_rank),
        }
        if len(set(each)) == 1:
            env["SLURM_NTASKS_PER_NODE"] = str(each[0])
        return env

    return variables


def _counted(counts: list[int]) -> str:
    """`2(x3),1`: Slurm's form of a list with repetitions."""
    groups: list[list[int]] = []
    for count in counts:
        if groups and groups[-1][0] == count:
            groups[-1][1] += 1
        else:
            groups.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in groups)
