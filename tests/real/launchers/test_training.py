"""Every launcher really trains on two nodes, by our own start of ranks and by the framework's own launcher."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support import processes_of, until

pytestmark = [pytest.mark.contracts, pytest.mark.real]

FRAMEWORKS = ["pytorch", "paddle", "horovod", "tensorflow", "mindspore"]

# Paddle's launcher shows only the first worker's log, and msrun shows all through a `tail` that it kills:
# what workers wrote is read afterwards.
_AND_SHOW = "; code=$?; cat log/worker*; exit $code"
COMMANDS = {
    "torchrun": ("pytorch", "torchrun train_pytorch.py {}"),
    "paddle.distributed.launch": (
        "paddle",
        "python -m paddle.distributed.launch train_paddle.py {}" + _AND_SHOW,
    ),
    "msrun": ("mindspore", "msrun --log_dir=log train_mindspore.py {}" + _AND_SHOW),
    "horovodrun": ("horovod", "horovodrun -np 4 -hostfile $TRAINSHED_HOSTFILE python train_horovod.py {}"),
}

BOUND = 60
"""Seconds: far above what the end takes on a busy machine, far below the hangs of frameworks left alone."""


def _all_four_trained_on_two_nodes(run) -> None:
    assert run.code == 0, run.said + run.text[-3000:]
    assert run.trained == {rank: (4, f"worker-{rank // 2}", "6") for rank in range(4)}, run.text[-3000:]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ranks_started_one_by_one_train_together(framework: str, train: Callable) -> None:
    run = train(framework, launcher=framework, entry=f"train_{framework}.py")
    _all_four_trained_on_two_nodes(run)
    until(lambda: not processes_of(run.id), 20, "the end of all processes")


# horovodrun on two nodes is shown by the command line of a guide, below.
@pytest.mark.parametrize("program", sorted(COMMANDS.keys() - {"horovodrun"}))
def test_the_frameworks_own_launcher_works_inside_a_command(program: str, train: Callable) -> None:
    framework, command = COMMANDS[program]
    run = train(framework, launcher=framework, command=command.format(""))
    _all_four_trained_on_two_nodes(run)
    until(lambda: not processes_of(run.id), 20, "the end of all processes")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_killed_rank_ends_the_run_within_seconds(framework: str, train: Callable) -> None:
    run = train(
        framework, shape="2x1", launcher=framework, entry=f"train_{framework}.py", parameters={"die": None}
    )
    failure = run.outcome["failure"]
    assert failure["process"] == "rank-1" and "SIGKILL" in failure["reason"], failure
    assert run.seconds_after_death < BOUND, run.seconds_after_death
    until(lambda: not processes_of(run.id), 20, "the end of all processes")


@pytest.mark.parametrize("program", COMMANDS)
def test_a_worker_killed_under_the_frameworks_own_launcher_ends_the_run_within_seconds(
    program: str, train: Callable
) -> None:
    framework, command = COMMANDS[program]
    run = train(
        framework, shape="2x1", launcher=framework, command=command.replace("-np 4", "-np 2").format("--die")
    )
    assert run.code != 0
    assert run.seconds_after_death < BOUND, run.seconds_after_death
    until(lambda: not processes_of(run.id), 20, "the end of all processes")


def test_the_command_line_of_the_apulis_guide_runs_as_it_stands(train: Callable) -> None:
    line = (
        "cd ~ && mkdir -p ~/checkpoints && horovodrun -np 4 -hostfile /home/${DLWS_USER_NAME}/ib_config "
        "-p $DLWS_SD_worker0_SSH_PORT --network-interface ib0 python /job/code/train_horovod.py"
    )
    run = train("horovod", launcher="horovod", contract="apulis", command=line)
    _all_four_trained_on_two_nodes(run)
    assert "horovodrun --network-interface ib0: this node has no such interface; using lo" in run.text


def test_horovodrun_gives_ranks_their_own_nodes_variables_and_shows_no_secret(
    train: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THIS_TEST", "hidden-value-4711")
    command = "horovodrun -np 2 -hostfile $TRAINSHED_HOSTFILE python look.py"
    secrets = {"TOKEN": {"env": "A_SECRET_OF_THIS_TEST"}}
    run = train("horovod", shape="2x1", launcher="horovod", command=command, secrets=secrets)
    assert run.code == 0, run.said + run.text[-3000:]
    for rank in (0, 1):
        assert f"RANK {rank} node {rank} secret unseen" in run.text, run.text


def test_horovodrun_works_on_one_node(train: Callable) -> None:
    command = "horovodrun -np 2 -hostfile $TRAINSHED_HOSTFILE python train_horovod.py"
    run = train("horovod", shape="1x2", launcher="horovod", command=command)
    assert run.code == 0, run.said + run.text[-3000:]
    assert run.trained == {0: (2, "worker-0", "1"), 1: (2, "worker-0", "1")}
