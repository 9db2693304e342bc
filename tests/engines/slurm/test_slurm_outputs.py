"""What Slurm's commands print, recorded from 22.05, as values; and every state and reason in words."""

from __future__ import annotations

import resource
import shutil
from typing import Any

import pytest

from trainshed.engines.cluster import enter
from trainshed.engines.cluster.order import Facts, Order, Question
from trainshed.engines.slurm.states import (
    JobState,
    QueueEntry,
    describe_reason,
    failure_of,
    parse_devices,
    parse_fields,
    parse_notice,
    parse_squeue,
    state_of,
    waiting_reason,
)
from trainshed.errors import TrainshedError
from trainshed.runs.outcome import Outcome
from trainshed.runs.states import Cause, RunState

pytestmark = [pytest.mark.slurm, pytest.mark.core]

SQUEUE = """\
7|7|N/A|PENDING|Resources|2026-11-15T21:48:11|N/A||trainshed:train-1
6|6|N/A|COMPLETING|None|2026-11-15T21:35:08|2026-11-15T21:35:09|node[1-3]|trainshed:a|b
9_1|9|1|RUNNING|None|2026-11-15T21:48:17|N/A|node4|trainshed:bench-2
half a line
"""
RECORD = (
    "JobId=1 JobName=b.sh UserId=root(0) GroupId=root(0) JobState=RUNNING Reason=None Dependency=(null) "
    "Requeue=1 Restarts=0 ExitCode=0:0 RunTime=00:00:02 TimeLimit=365-00:00:00 "
    "StartTime=2026-11-15T21:15:36 EndTime=2027-11-15T21:15:36 ReqB:S:C:T=0:0:*:* CPUs/Task=2 "
    "JOB_GRES=npu:4 Nodes=node[1-2] CPU_IDs=6-7 Mem=0 GRES=npu:2(IDX:2-3) "
    "Nodes=node3 CPU_IDs=6-7 Mem=0 GRES=gpu:a100:2(IDX:0,3),npu(CNT:1) Comment=two words StdIn=/dev/null"
)


def test_lines_of_squeue_become_entries_and_broken_ones_are_passed_over() -> None:
    waiting, ending, task = parse_squeue(SQUEUE)
    assert (waiting.state, waiting.reason, waiting.task) == (JobState.PENDING, "Resources", None)
    assert (ending.state, ending.comment) == (JobState.COMPLETING, "trainshed:a|b")
    assert (task.job, task.array, task.task) == ("9_1", "9", 1)


def test_a_record_of_scontrol_becomes_fields_and_devices() -> None:
    fields = parse_fields(RECORD)
    assert (fields["JobState"], fields["Restarts"], fields["Comment"]) == ("RUNNING", "0", "two words")
    assert parse_devices(RECORD, "npu") == {"node[1-2]": (2, 3), "node3": (0,)}
    assert parse_devices(RECORD, "gpu") == {"node3": (0, 3)}
    assert parse_devices("", "gpu") == {}


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("*** JOB 1 ON node1 CANCELLED AT 2026-11-15T21:35:09 ***", JobState.CANCELLED),
        ("*** JOB 2 ON node1 CANCELLED AT 2026-11-15T21:35:14 DUE TO PREEMPTION ***", JobState.PREEMPTED),
        ("*** JOB 2 ON node1 CANCELLED AT 2026-11-15T21:35:14 DUE TO TIME LIMIT ***", JobState.TIMEOUT),
        (
            "*** JOB 6 ON node1 CANCELLED AT 2026-11-15T21:40:55 DUE TO NODE FAILURE, SEE SLURMCTLD LOG "
            "FOR DETAILS ***",
            JobState.NODE_FAIL,
        ),
        ("*** STEP 6.0 ON node1 CANCELLED AT 2026-11-15T21:40:55 ***", None),
        ("nothing", None),
    ],
)
def test_slurms_own_line_in_the_log_tells_why_it_ends_a_job(line: str, state: JobState | None) -> None:
    assert parse_notice(f"slurmstepd-node1: error: {line}\n") is state


@pytest.mark.parametrize("state", JobState)
def test_every_state_is_over_waiting_or_at_work_and_has_an_end(state: JobState) -> None:
    assert not (state.is_over and state.is_waiting)
    failure = failure_of(state.value)
    assert failure.reason and Outcome.of(failure).state.is_final
    assert failure_of(state.value, "I asked").cause is Cause.STOP


def test_states_are_understood_with_what_slurm_puts_behind_them() -> None:
    assert state_of("CANCELLED by 1000") is JobState.CANCELLED
    assert state_of("CANCELLED+") is JobState.CANCELLED
    assert state_of("") is state_of("SOMETHING_NEW") is JobState.UNKNOWN
    assert "user 1000" in failure_of("CANCELLED by 1000").reason
    assert Outcome.of(failure_of("TIMEOUT")).exit_code == 124
    assert Outcome.of(failure_of("CANCELLED")).state is RunState.STOPPED


def test_reasons_are_plain_words_with_the_expected_start() -> None:
    entry = QueueEntry("1", "1", None, JobState.PENDING, "Resources", "2026-11-15T21:48:11", "N/A", "", "")
    assert waiting_reason(entry) == (
        "all nodes that fit it are busy (Resources); expected to start 2026-11-15 21:48:11"
    )
    assert "limit" in describe_reason("QOSMaxJobsPerUserLimit") and "limit" in describe_reason(
        "AssocGrpCpuLimit"
    )
    assert "node7" in describe_reason("(ReqNodeNotAvail, UnavailableNodes:node7)")
    assert describe_reason("BrandNew") == "Slurm says: BrandNew"


def test_what_nodes_and_driver_say_survives_the_pipe() -> None:
    facts = Facts(3, "n3", "10.0.0.3", 10241, ((2, "10.1.0.2"), (3, None)), 16, "no bubblewrap")
    assert Facts.from_line(facts.to_line()) == facts
    assert Facts.from_line("Welcome to the cluster!\n") is None
    order = Order(1, "sandbox", "/scratch", ("/a",), ("/b", "/c"), "127.0.0.1 localhost\n")
    assert Order.from_line(order.to_line()) == order
    question = Question("cpu", 2, "ib0", ("10.0.0.1",), ((0, 1),))
    assert Question.from_line(question.to_line()) == question


@pytest.mark.parametrize(
    ("message", "read"),
    [
        (Facts(3, "n3", "10.0.0.3", 10241, (), 16), lambda line: Facts.from_line(line)),
        (Question("cpu", 2), lambda line: Question.from_line(line.encode())),
        (Order(1, "plain", "/scratch", (), (), ""), lambda line: Order.from_line(line.encode())),
    ],
)
def test_a_line_of_another_release_is_refused_in_one_sentence(message: Any, read: Any) -> None:
    line = message.to_line()
    line = line if isinstance(line, str) else line.decode()
    head, _, body = line.partition("{")
    for spoilt in ('"version": 2', '"versoin": 1', '"version": 1, "colour": "red"', '"version": ['):
        with pytest.raises(TrainshedError, match="cannot be read") as caught:
            read(f"{head}{{{body}".replace('"version": 1', spoilt))
        assert caught.value.code == "other-release" and "same release" in caught.value.hint


WORDS = [
    "-w",
    "/job/code",
    "-e",
    "KEY",
    "-e",
    "RANK",
    "-e",
    "SLURM_PROCID",
    "lab/torch:2",
    "python",
    "train.py",
    "--epochs=3",
]
MOUNTS = [("/scratch/node-0/tmp", "/tmp"), ("/runs/r", "/runs/r")]


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (
            "podman",
            "podman run --rm --network=host --ipc=host --label trainshed=r/0 --ulimit=nofile=512:512 "
            "--ulimit=nproc=32768:32768 -v /scratch/node-0/tmp:/tmp -v /runs/r:/runs/r "
            "-w /job/code -e KEY -e RANK -e SLURM_PROCID lab/torch:2 python train.py --epochs=3",
        ),
        (
            "apptainer",
            "apptainer exec --no-home --bind=/scratch/node-0/tmp:/tmp,/runs/r:/runs/r --pwd=/job/code "
            "lab/torch:2 python train.py --epochs=3",
        ),
        (
            "enroot",
            "enroot start --rw --mount /scratch/node-0/tmp:/tmp --mount /runs/r:/runs/r --env KEY --env RANK "
            "--env SLURM_PROCID "
            'lab/torch:2 /bin/sh -c cd "$0" && exec "$@" /job/code python train.py --epochs=3',
        ),
        (
            "pyxis",
            "srun --overlap --nodes=1 --ntasks=1 --cpu-bind=none --mpi=none --export=ALL --jobid=7 --nodelist=n3 "
            "--container-image=lab/torch:2 --container-mounts=/scratch/node-0/tmp:/tmp,/runs/r:/runs/r "
            "--container-workdir=/job/code env -u SLURM_JOBID -u SLURM_STEPID -u SLURM_STEP_ID -u SLURM_GTIDS "
            "SLURM_PROCID=3 python train.py --epochs=3",
        ),
    ],
)
def test_each_container_tool_gets_its_own_command_line(
    tool: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {resource.RLIMIT_NOFILE: 512, resource.RLIMIT_NPROC: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], limits[kind]))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = enter.command(
        tool,
        "trainshed=r/0",
        MOUNTS,
        WORDS,
        {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n3", "SLURM_PROCID": "3"},
    )
    assert " ".join(found) == expected


def test_a_tool_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="lxc"):
        enter.command("lxc", "trainshed=r/0", MOUNTS, WORDS)
