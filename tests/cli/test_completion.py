"""Completion: one script for each shell, which speaks for `trainshed` alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import Shed
from trainshed.cli.completion import collect
from trainshed.cli.main import COMMANDS

pytestmark = [pytest.mark.foundation, pytest.mark.field]
_COMPLETE = """
COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _trainshed; printf '%%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "bash"
    made = subprocess.run(
        [sys.executable, "-m", "trainshed.cli.main", "completion", "bash"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    path.write_text(made.stdout)
    return path


def complete(script: Path, line: str, home: Path = Path("/nonexistent"), path: str = "") -> set[str]:
    """What bash offers for a line. Without a search path no program can be started, so none is needed."""
    command = f"source {script}\n{_COMPLETE % line}"
    variables = {"PATH": path, "TRAINSHED_HOME": str(home)}
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, env=variables)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands_subcommands_and_options_are_offered(script: Path) -> None:
    assert complete(script, "trainshed ''") == set(COMMANDS)
    assert complete(script, "trainshed e") == {"env", "example"}
    assert complete(script, "trainshed env ''") == {"create", "add", "list", "show", "rm"}
    assert complete(script, "trainshed store user ''") >= {"add", "list"}
    assert {"--shape", "--dry-run", "--yes"} <= complete(script, "trainshed run job.yaml --s --")
    assert complete(script, "trainshed env create mind") == {"mindspore"}
    assert complete(script, "trainshed run train.py -- --") == set()


def test_run_ids_are_offered_where_a_run_is_named(script: Path, tmp_path: Path) -> None:
    (tmp_path / "runs/digits-1").mkdir(parents=True)
    assert complete(script, "trainshed show ''", tmp_path, "/usr/bin:/bin") == {"last", "digits-1"}


def test_only_the_command_trainshed_is_registered(script: Path) -> None:
    listed = subprocess.run(
        ["/bin/bash", "--norc", "-c", f"source {script}; complete -p"], capture_output=True, text=True
    )
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["trainshed"]


def test_no_group_of_commands_has_a_completion_of_its_own() -> None:
    for entry in collect():
        assert not [option for option in entry.options if "completion" in option], entry


def test_the_script_is_made_without_heavy_modules() -> None:
    code = (
        "import sys; from trainshed.cli.main import _main; _main(['completion', 'bash']);"
        "heavy = {'rich', 'pydantic', 'yaml', 'psutil', 'asyncio', 'jinja2'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_complete_as_well(shed: Shed, tmp_path: Path, shell: str) -> None:
    tool = shutil.which(shell)
    if tool is None:
        pytest.skip(f"apt-get install {shell}")
    path = tmp_path / "script"
    path.write_text(shed.cli("completion", shell).stdout)
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "TERM": "dumb"}
    if shell == "fish":
        command = f"source {path}; complete -C 'trainshed env cre'"
    else:
        # zsh completes only at a prompt; here the function is called as its bashcompinit does.
        call = 'COMP_WORDS=(trainshed env cre); COMP_CWORD=2; _trainshed; print -r -- "${COMPREPLY[@]}"'
        command = f"autoload -U compinit; compinit -u -D; source {path}; emulate ksh -c '{call}'"
    flags = ["-f"] if shell == "zsh" else []
    done = subprocess.run([tool, *flags, "-c", command], capture_output=True, text=True, env=env)
    assert done.stdout.split()[:1] == ["create"], done.stderr
