"""The command line answers at once, and every error is one sentence with a remedy."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from support import ROOT, Shed
from trainshed.cli.main import COMMANDS

pytestmark = [pytest.mark.foundation, pytest.mark.core]


@pytest.mark.field
def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from trainshed.cli.main import _main; _main(['--help']);"
        "heavy = {'typer', 'click', 'rich', 'pydantic', 'yaml', 'psutil', 'asyncio'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(re.search(rf"^  {name}\s", done.stdout, re.M) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(shed: Shed, name: str) -> None:
    done = shed.cli(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: trainshed" in done.stdout and "Traceback" not in done.stderr


def test_a_mistyped_command_gets_a_suggestion(shed: Shed) -> None:
    done = shed.cli("sumbit", "job.yaml")
    assert done.returncode == 64 and "did you mean submit?" in done.stderr


def test_errors_are_json_where_json_was_asked_for(shed: Shed) -> None:
    done = shed.cli("show", "nothing", "--json")
    assert done.returncode == 64
    assert json.loads(done.stdout)["error"] == {
        "code": "not-found",
        "message": "no such run: 'nothing'",
        "hint": "`trainshed ps -a` lists the runs",
    }


def test_a_dry_run_prints_the_plan_and_leaves_nothing(shed: Shed) -> None:
    job = shed.job(files={"t.py": ""}, entry="t.py", launcher="pytorch", resources="2x2")
    done = shed.cli("run", job, "--dry-run")
    assert done.returncode == 0 and "rank-3: cd /job/code" in done.stdout
    # Which address it is depends on what else runs on this machine.
    assert re.search(r"MASTER_ADDR=127\.6\d\.\d+\.1\b", done.stdout)
    whole = json.loads(shed.cli("run", job, "--dry-run", "--json").stdout)
    assert len(whole["nodes"]) == 2 and whole["size"] == 4
    assert not list(shed.home.iterdir())


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_pairs_that_are_none_are_refused(shed: Shed, text: str) -> None:
    job = shed.job(command="true")
    for flag in ("--param", "--env", "--option", "--set", "--label"):
        done = shed.cli("run", job, flag, text)
        assert done.returncode == 64 and "is not NAME=VALUE" in done.stderr


def test_an_unknown_engine_option_lists_those_that_exist(shed: Shed) -> None:
    done = shed.cli("run", shed.job(command="true"), "-o", "isolaton=plain")
    assert done.returncode == 64 and "isolation: sandbox, plain, or auto" in done.stderr


def test_an_unknown_engine_lists_those_that_exist(shed: Shed) -> None:
    done = shed.cli("run", shed.job(command="true"), "--engine", "cloud")
    assert done.returncode == 64 and "choose one of" in done.stderr and "local" in done.stderr


def test_a_home_that_cannot_be_written_is_one_line(shed: Shed) -> None:
    (shed.home / "runs").write_text("")
    job = shed.job(command="true")
    done = shed.cli("submit", job)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.fullmatch(
        r"error: submit: \S+/runs/job-\S+: Not a directory\b.*check the path.*", done.stderr, re.S
    )
    told = json.loads(shed.cli("submit", job, "--json").stdout)["error"]
    assert told["message"].endswith("Not a directory")


def test_links_in_the_documents_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
