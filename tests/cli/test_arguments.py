"""Positional arguments: in the job file, and after `--`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import Shed
from trainshed.spec.load import SpecError, load_job

pytestmark = [pytest.mark.foundation, pytest.mark.field]
SCRIPT = {"train.py": "import sys; print(sys.argv[1:])"}


def planned(shed: Shed, *words: str | Path) -> list[str]:
    done = shed.cli("run", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["nodes"][0]["processes"][0]["argv"][2:]


def test_arguments_of_the_job_file_reach_the_script_before_its_options(shed: Shed) -> None:
    job = shed.job("a", SCRIPT, entry="train.py", args=["train", 10, 0.5, True], parameters={"lr": 1})
    assert planned(shed, job, "--dry-run", "--json") == ["train", "10", "0.5", "true", "--lr=1"]


def test_what_follows_two_dashes_goes_to_the_script_as_it_is(shed: Shed) -> None:
    job = shed.job("a", SCRIPT, entry="train.py", args=["train", 10])
    words = ["eval", "--json", "-j", "9x9", "--", "a b"]
    assert planned(shed, job, "--dry-run", "--json", "--", *words) == words


def test_an_option_of_the_script_is_not_taken_for_one_of_trainshed(shed: Shed) -> None:
    done = shed.cli("run", "no-such-job.yaml", "--", "--json")
    assert done.returncode == 64 and done.stdout == ""
    assert "no such job file" in done.stderr


@pytest.mark.parametrize("args", ["train 10", {"a": 1}, [["a"]], [None]])
def test_arguments_that_are_no_list_of_words_are_refused(args: object) -> None:
    with pytest.raises(SpecError, match=r"args is .*: write a list of arguments, such as \[train, 10\]"):
        load_job({"name": "a", "command": "true", "args": args})


@pytest.mark.real
def test_a_run_gets_them_in_every_rank(shed: Shed) -> None:
    job = shed.job("a", SCRIPT, entry="train.py")
    done = shed.cli("run", job, "-j", "1x2", "--", "x", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("['x', '--epochs', '3']") == 2
