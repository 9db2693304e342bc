"""What each launcher tells the ranks and the framework's own launcher."""

from __future__ import annotations

import json

import pytest

from launchers.made import env_of, made, ranks
from trainshed import axes
from trainshed.plan.model import Plan

pytestmark = [pytest.mark.contracts]

LAUNCHERS = axes.members("launcher")
CONTRACTS = axes.members("contract")


def test_all_launchers_of_the_design_exist() -> None:
    assert LAUNCHERS == ("command", "horovod", "mindspore", "paddle", "pytorch", "tensorflow")


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_plans_a_distinct_rank_for_every_device_under_every_contract(
    launcher: str, contract: str
) -> None:
    planned = made(launcher, contract=contract)
    assert [item.rank for item in ranks(planned)] == [0, 1, 2, 3]
    own = {tuple(sorted(item.env.items())) for item in ranks(planned)}
    assert len(own) == 4
    assert Plan.from_json(json.loads(json.dumps(planned.to_json()))) == planned


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_on_single_servers_every_node_counts_its_ranks_from_0(launcher: str) -> None:
    planned = made(launcher, mode="single_server")
    for node in planned.nodes:
        mine = [env_of(planned, item) for item in node.processes if item.rank is not None]
        assert [env["TRAINSHED_WORLD_RANK"] for env in mine] == ["0", "1"]
        other = "127.64.0.2" if node.index == 0 else "127.64.0.1"
        for env in mine:
            told = {k: v for k, v in env.items() if not k.startswith(("TRAINSHED_", "PATH"))}
            assert other not in json.dumps(told), "a node that trains alone was told of another"


def test_paddle_ranks_know_themselves_and_all_others() -> None:
    planned = made("paddle")
    ends = "127.64.0.1:11009,127.64.0.1:11010,127.64.0.2:11109,127.64.0.2:11110"
    for rank, item in enumerate(ranks(planned)):
        env = env_of(planned, item)
        assert env["PADDLE_TRAINER_ID"] == env["PADDLE_GLOBAL_RANK"] == str(rank)
        assert env["PADDLE_TRAINERS_NUM"] == env["PADDLE_GLOBAL_SIZE"] == "4"
        assert env["PADDLE_TRAINER_ENDPOINTS"] == ends
        assert env["PADDLE_CURRENT_ENDPOINT"] == ends.split(",")[rank]
        assert env["PADDLE_LOCAL_RANK"] == env["PADDLE_RANK_IN_NODE"] == str(rank % 2)
        assert env["PADDLE_MASTER"] == "127.64.0.1:11002"
        assert env["PADDLE_DISTRI_BACKEND"] == "gloo"


def test_paddles_list_of_endpoints_is_held_once_however_many_ranks() -> None:
    planned = made("paddle", nodes=40, devices=8)
    text = json.dumps(planned.to_json())
    assert text.count("PADDLE_TRAINER_ENDPOINTS") == 1


def test_paddles_own_launcher_finds_nodes_and_its_place_in_variables() -> None:
    planned = made("paddle", command="python -m paddle.distributed.launch train.py")
    env = planned.nodes[1].env
    told = {name: env[name] for name in ("POD_IP", "PADDLE_NNODES", "PADDLE_RANK", "PADDLE_NPROC_PER_NODE")}
    assert told == {
        "POD_IP": "127.64.0.2",
        "PADDLE_NNODES": "2",
        "PADDLE_RANK": "1",
        "PADDLE_NPROC_PER_NODE": "2",
    }


def test_gpus_of_a_paddle_rank_are_counted_on_its_node() -> None:
    planned = made("paddle", kind="nvidia")
    assert [env_of(planned, item)["FLAGS_selected_gpus"] for item in ranks(planned)] == ["0", "1", "0", "1"]
    assert "PADDLE_DISTRI_BACKEND" not in planned.nodes[0].env


def test_horovod_ranks_have_local_and_cross_places_and_meet_at_one_server() -> None:
    planned = made("horovod", nodes=2, devices=3)
    places = [
        tuple(int(env_of(planned, item)[f"HOROVOD_{name}"]) for name in ("RANK", "LOCAL_RANK", "CROSS_RANK"))
        for item in ranks(planned)
    ]
    assert places == [(0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 0, 1), (4, 1, 1), (5, 2, 1)]
    env = env_of(planned, ranks(planned)[4])
    assert (env["HOROVOD_SIZE"], env["HOROVOD_LOCAL_SIZE"], env["HOROVOD_CROSS_SIZE"]) == ("6", "3", "2")
    meeting = (env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], env["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    [server] = [item for node in planned.nodes for item in node.processes if item.rank is None]
    assert server in planned.nodes[0].processes
    assert server.argv[-3:] == (*meeting, "worker-0:3,worker-1:3")


def test_horovods_server_does_not_keep_the_run_alive_and_mindspores_scheduler_does() -> None:
    helpers = {
        name: [item.helper for item in made(name).nodes[0].processes if item.rank is None]
        for name in ("horovod", "mindspore")
    }
    assert helpers == {"horovod": [True], "mindspore": [False]}


@pytest.mark.parametrize("launcher", ["horovod", "mindspore", "tensorflow"])
def test_a_world_of_one_rank_needs_nobody_to_meet(launcher: str) -> None:
    planned = made(launcher, nodes=1, devices=1)
    assert len(planned.nodes[0].processes) == 1
    env = env_of(planned, planned.nodes[0].processes[0])
    assert not [name for name in env if name.startswith(("HOROVOD_", "TF_CONFIG", "MS_"))]


def test_tensorflow_workers_are_the_ranks_of_an_entry() -> None:
    planned = made("tensorflow")
    workers = ["127.64.0.1:11009", "127.64.0.1:11010", "127.64.0.2:11109", "127.64.0.2:11110"]
    for rank, item in enumerate(ranks(planned)):
        config = json.loads(env_of(planned, item)["TF_CONFIG"])
        assert config == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}


def test_tensorflow_workers_are_the_nodes_of_a_command() -> None:
    planned = made("tensorflow", command="python train.py")
    configs = [json.loads(env_of(planned, node.processes[0])["TF_CONFIG"]) for node in planned.nodes]
    assert [config["task"]["index"] for config in configs] == [0, 1]
    assert configs[0]["cluster"] == {"worker": ["127.64.0.1:11002", "127.64.0.2:11102"]}


def test_torchrun_finds_everything_in_variables() -> None:
    env = made("pytorch", command="torchrun train.py").nodes[1].env
    assert {name: value for name, value in env.items() if name.startswith("PET_")} == {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_MASTER_ADDR": "127.64.0.1",
        "PET_MASTER_PORT": "11002",
        "PET_LOCAL_ADDR": "127.64.0.2",
    }


def test_no_two_addresses_that_ranks_listen_on_are_the_same() -> None:
    planned = made("paddle", nodes=2, devices=8)
    ends = planned.env["PADDLE_TRAINER_ENDPOINTS"].split(",")
    taken = [*ends, planned.nodes[0].env["PADDLE_MASTER"]]
    taken += [f"{node.address}:{port}" for node, port in zip(planned.nodes, planned.ssh, strict=False)]
    assert len(set(taken)) == len(taken)


def test_a_jobs_own_variables_win_over_the_launchers() -> None:
    planned = made("paddle", env={"PADDLE_NNODES": "1"})
    assert {env_of(planned, item)["PADDLE_NNODES"] for item in ranks(planned)} == {"1"}
