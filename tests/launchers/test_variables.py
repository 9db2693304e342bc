"""What each launcher tells the ranks and the framework's own launcher."""

from __future__ import annotations

import json

import pytest

from launchers.made import env_of, made, ranks
from trainshed import registry
from trainshed.errors import UsageError
from trainshed.plan.model import Plan

pytestmark = [pytest.mark.contracts]

LAUNCHERS = registry.members("launcher")
CONTRACTS = registry.members("contract")


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


@pytest.mark.parametrize("launcher", ["horovod", "mindspore"])
def test_a_server_of_the_ranks_does_not_keep_the_run_alive(launcher: str) -> None:
    [server] = [item for node in made(launcher).nodes for item in node.processes if item.rank is None]
    assert server.helper


def test_a_world_of_one_horovod_rank_needs_nobody_to_meet() -> None:
    planned = made("horovod", nodes=1, devices=1)
    assert len(planned.nodes[0].processes) == 1
    env = env_of(planned, planned.nodes[0].processes[0])
    assert not [name for name in env if name.startswith("HOROVOD_")]


@pytest.mark.field
@pytest.mark.parametrize("command", [None, "python train.py"])
def test_a_world_of_one_tensorflow_worker_has_its_config(command: str | None) -> None:
    planned = made("tensorflow", nodes=1, devices=1, **({"command": command} if command else {}))
    config = json.loads(env_of(planned, planned.nodes[0].processes[0])["TF_CONFIG"])
    (worker,) = config["cluster"]["worker"]
    assert worker.startswith("127.64.0.1:") and config["task"] == {"type": "worker", "index": 0}


@pytest.mark.field
def test_a_world_of_one_mindspore_rank_has_its_cluster() -> None:
    planned = made("mindspore", nodes=1, devices=1)
    scheduler, rank = planned.nodes[0].processes
    env = env_of(planned, rank)
    assert (env["MS_ROLE"], env["MS_WORKER_NUM"], env["MS_NODE_ID"]) == ("MS_WORKER", "1", "0")
    assert env_of(planned, scheduler)["MS_SCHED_PORT"] == env["MS_SCHED_PORT"]


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


@pytest.mark.field
@pytest.mark.parametrize("command", [None, "python train.py"])
def test_tensorflows_parameter_servers_are_the_last_tasks_and_the_chief_the_first(
    command: str | None,
) -> None:
    fields = {"command": command} if command else {}
    planned = made("tensorflow", nodes=4, devices=1, options={"ps": 1}, **fields)
    processes = [process for node in planned.nodes for process in node.processes]
    configs = [json.loads(env_of(planned, process)["TF_CONFIG"]) for process in processes]
    places = [(config["task"]["type"], config["task"]["index"]) for config in configs]
    assert places == [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
    for config, address in zip(configs, ("1", "2", "3", "4"), strict=True):
        task = config["task"]
        assert config["cluster"][task["type"]][task["index"]].startswith(f"127.64.0.{address}:")
        assert config["cluster"] == configs[0]["cluster"]
    # Only the chief's end is awaited: the others wait for orders and never end.
    assert [process.serves for process in processes] == [False, True, True, True]
    assert not any(process.serves for process in ranks(made("tensorflow")))


@pytest.mark.field
@pytest.mark.parametrize(
    ("nodes", "count", "words"),
    [(2, 1, "3 or more"), (4, 3, "5 or more"), (4, -1, "e.g. 1"), (4, "one", "e.g. 1"), (4, True, "e.g. 1")],
)
def test_a_number_of_parameter_servers_that_cannot_be_is_refused(
    nodes: int, count: object, words: str
) -> None:
    with pytest.raises(UsageError, match=r"options\.ps is") as refused:
        made("tensorflow", nodes=nodes, devices=1, options={"ps": count})
    assert words in refused.value.hint


@pytest.mark.field
def test_pytorch_ranks_have_the_world_that_torchrun_and_lightning_would_give_them() -> None:
    planned = made("pytorch", nodes=3, devices=2)
    for rank, item in enumerate(ranks(planned)):
        env = env_of(planned, item)
        assert env["RANK"] == env["ROLE_RANK"] == str(rank)
        assert env["WORLD_SIZE"] == env["ROLE_WORLD_SIZE"] == "6"
        assert env["GROUP_RANK"] == env["NODE_RANK"] == str(rank // 2)
        assert (env["GROUP_WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("3", "2")
        assert env["LOCAL_RANK"] == str(rank % 2)


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
