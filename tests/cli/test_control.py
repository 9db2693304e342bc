"""`rm`, `stop` and `doctor`: nothing is guessed, and exit codes tell the truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import Shed, made_run
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Finished
from trainshed.runs.outcome import Outcome

pytestmark = [pytest.mark.foundation, pytest.mark.core]


def ended_run(home: Path, name: str) -> RunDirectory:
    run = made_run(home, name)
    run.record_end(Finished(Outcome.of(None), name=name, engine="local"))
    return run


def test_rm_demands_the_beginning_of_one_run(shed: Shed) -> None:
    first, second = ended_run(shed.home, "train-a"), ended_run(shed.home, "train-b")
    done = shed.cli("rm", "train")
    assert done.returncode == 64 and "2 runs begin with 'train'" in done.stderr
    assert first.id in done.stderr and second.id in done.stderr
    assert first.path.exists() and second.path.exists()
    assert shed.cli("rm", "train-a").returncode == 0
    assert not first.path.exists() and second.path.exists()


def test_rm_removes_nothing_when_one_of_several_is_not_clear(shed: Shed) -> None:
    runs = [ended_run(shed.home, name) for name in ("one", "train-a", "train-b")]
    done = shed.cli("rm", "one", "train")
    assert done.returncode == 64 and all(run.path.exists() for run in runs)


def test_stop_demands_the_beginning_of_one_run(shed: Shed) -> None:
    runs = [made_run(shed.home, name) for name in ("train-a", "train-b")]
    done = shed.cli("stop", "train", "--no-wait")
    assert done.returncode == 64 and "2 runs begin with 'train'" in done.stderr
    assert not any(run.stop_requests() for run in runs)
    missing = json.loads(shed.cli("stop", "nothing", "--json").stdout)["error"]
    assert missing["code"] == "not-found"


def test_stop_of_an_ended_run_changes_nothing(shed: Shed) -> None:
    run = ended_run(shed.home, "job")
    done = shed.cli("stop", "job", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)[0]["state"] == "succeeded"
    assert not run.stop_requests()


def test_commands_take_last_for_the_newest(shed: Shed) -> None:
    ended_run(shed.home, "a-first")
    newest = ended_run(shed.home, "b-second")
    assert shed.show("last")["id"] == newest.id
    assert shed.cli("rm", "last").returncode == 0 and not newest.path.exists()


def test_wait_mirrors_the_end_and_has_one_itself(shed: Shed) -> None:
    ended_run(shed.home, "done")
    assert shed.cli("wait", "done").returncode == 0
    lost = made_run(shed.home, "lost")
    done = shed.cli("wait", lost.id)
    assert done.returncode == 70 and f"{lost.id}: lost" in done.stdout


def checks(shed: Shed, *args: str, **environ: str) -> tuple[int, dict[str, dict[str, object]]]:
    done = shed.cli("doctor", "--json", *args, env=environ)
    assert not done.stderr, done.stderr
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)}


def test_doctor_ends_with_0_when_what_is_required_is_there(shed: Shed) -> None:
    code, found = checks(shed)
    missing = [name for name, check in found.items() if check["required"] and not check["good"]]
    assert code == 0 and not missing
    assert found["home"]["good"] and found["cpu devices"]["good"]
    assert any(not check["good"] for check in found.values()), "NPUs and environments are not required"


def test_doctor_ends_with_1_when_something_required_is_missing(shed: Shed) -> None:
    code, found = checks(shed, TRAINSHED_CPU_SLOTS="0")
    assert code == 1 and not found["cpu devices"]["good"]
    text = shed.cli("doctor", env={"TRAINSHED_CPU_SLOTS": "0"})
    assert text.returncode == 1 and "MISSING  cpu devices: 0" in text.stdout


@pytest.mark.parametrize("below", ["", "/home", "/a/b/c"])
def test_doctor_says_when_the_home_cannot_be_made(shed: Shed, below: str) -> None:
    (shed.home / "file").write_text("")
    code, found = checks(shed, TRAINSHED_HOME=f"{shed.home}/file{below}")
    assert code == 1 and "cannot be written" in str(found["home"]["found"])
    assert "set TRAINSHED_HOME" in str(found["home"]["remedy"])
    code, found = checks(shed, TRAINSHED_HOME="/proc/home")
    assert code == 1 and "cannot be written" in str(found["home"]["found"]), "also for root"
    code, found = checks(shed, TRAINSHED_HOME=f"{shed.home}/not/yet/made")
    assert code == 0 and found["home"]["good"] and not (shed.home / "not").exists()
