"""Slurm's variables as ranks see them: the world they are in, not the one task of their node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import world_views

from trainshed import Client
from trainshed.engines.slurm.environment import job_env, process_env
from trainshed.plan.topology import Device, Host, Topology
from trainshed.spec.kinds import DeviceKind, Mode

pytestmark = [pytest.mark.slurm, pytest.mark.core, pytest.mark.field]

TASK = {
    "SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "SLURM_JOB_NAME": "train", "SLURM_JOB_NODELIST": "n[0-1]",
    "SLURM_JOB_NUM_NODES": "2", "SLURM_NODELIST": "n[0-1]", "SLURM_NTASKS": "2", "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0", "SLURM_STEPID": "0", "SLURM_TASK_PID": "99",
    "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_NUM_TASKS": "2", "SLURM_GTIDS": "1", "PMI_RANK": "1",
    "PMI_SIZE": "2", "PMIX_RANK": "1", "OMPI_MCA_plm": "slurm", "SLURM_MPI_TYPE": "pmi2", "HOME": "/root",
}  # fmt: skip
"""What Slurm sets for the one task of a node."""


def _topology(*devices: int) -> Topology:
    hosts = [Host(f"n{i}", f"10.0.0.{i}", tuple(map(Device, range(n))), 10241) for i, n in enumerate(devices)]
    return Topology.of(DeviceKind.CPU, hosts)


def _ranks(topology: Topology, mode: Mode = Mode.DISTRIBUTED) -> list[dict[str, str]]:
    made, worlds = process_env(3), topology.worlds(mode)
    return [
        job_env(TASK) | made(worlds[node.index if len(worlds) > 1 else 0], node, local)
        for node in topology.nodes
        for local in range(len(node.devices))
    ]


def test_lightning_sees_every_rank_where_it_is() -> None:
    seen = [world_views.lightning(env, devices=2, nodes=2) for env in _ranks(_topology(2, 2))]
    assert seen == [(0, 4, 0, 0, 2), (1, 4, 1, 0, 2), (2, 4, 0, 1, 2), (3, 4, 1, 1, 2)]
    assert {world_views.main_address(env) for env in _ranks(_topology(2, 2))} == {"n0"}


def test_tensorflow_finds_a_host_for_each_task_also_where_nodes_differ() -> None:
    ranks = _ranks(_topology(2, 2, 1))
    hosts = ["n0", "n0", "n1", "n1", "n2"]
    assert [world_views.tensorflow(env) for env in ranks] == [(rank, hosts) for rank in range(5)]
    assert ranks[0]["SLURM_STEP_TASKS_PER_NODE"] == "2(x2),1"
    assert "SLURM_NTASKS_PER_NODE" not in ranks[0], "there is no one number that is true"


def test_each_node_of_a_single_server_job_is_a_world_of_its_own() -> None:
    ranks = _ranks(_topology(2, 2), Mode.SINGLE_SERVER)
    seen = [world_views.lightning(env, devices=2, nodes=1) for env in ranks]
    assert seen == [(0, 2, 0, 0, 1), (1, 2, 1, 0, 1)] * 2
    assert [world_views.main_address(env) for env in ranks] == ["n0", "n0", "n1", "n1"]
    assert ranks[2]["SLURM_JOB_NODELIST"] == "n[0-1]" and ranks[2]["SLURM_JOB_NUM_NODES"] == "2"


def test_no_mpi_library_takes_the_nodes_one_task_for_its_world() -> None:
    assert not world_views.mpi_is_singleton(TASK)
    assert all(world_views.mpi_is_singleton(env) for env in _ranks(_topology(2, 2)))


def test_a_command_is_told_only_what_is_true_of_its_node() -> None:
    (world,) = _topology(2, 2).worlds(Mode.DISTRIBUTED)
    found = job_env(TASK) | process_env(1)(world, world.nodes[1], None)
    assert (found["SLURM_NNODES"], found["SLURM_NODEID"], found["SLURMD_NODENAME"]) == ("2", "1", "n1")
    ranks_own = (
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NTASKS",
        "SLURM_STEP",
        "SLURM_TASKS",
        "SLURM_NODELIST",
    )
    assert not [name for name in found if name.startswith(ranks_own)]
    assert world_views.mpi_is_singleton(found)


def test_the_planned_environment_of_a_rank_has_both_worlds_and_they_agree(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    job: dict[str, Any] = {
        "name": "train", "code": str(tmp_path), "entry": "train.py", "launcher": "pytorch", "resources": "2x2",
    }  # fmt: skip
    client = Client(tmp_path / "home")
    planned = client.plan(client.request(job), "slurm").plan
    for node in planned.nodes:
        for process in node.processes:
            env = {**planned.env, **node.env, **process.env, "SLURM_JOB_NAME": "train"}
            assert world_views.torchrun(env) == world_views.lightning(env, devices=2, nodes=2)
