"""What users read: their own names as they wrote them, what to write instead, and ids that are whole."""

from __future__ import annotations

import ast
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from support import ROOT, Shed
from trainshed.bench.run import workload
from trainshed.cli.main import _main
from trainshed.environments.recipes import recipe_for
from trainshed.errors import UsageError
from trainshed.plural import counted
from trainshed.spec.guess import job_of
from trainshed.spec.load import SpecError, load_job

pytestmark = [pytest.mark.foundation, pytest.mark.field]


def mistake(**fields: object) -> str:
    with pytest.raises(SpecError) as refused:
        load_job({"name": "a", "command": "ls"} | fields)
    return str(refused.value.mistakes[0])


def test_names_of_the_user_keep_their_letters() -> None:
    assert "API_KEY looks like a secret" in mistake(env={"API_KEY": "x"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"priority": "high"}, "priority is 'high': write a whole number"),
        ({"priority": 0}, "priority is 0: write at least 1"),
        ({"preemptible": "perhaps"}, "preemptible is 'perhaps': write true or false"),
        ({"parameters": [1]}, "parameters is [1]: write a mapping"),
        ({"inputs": "data"}, "inputs is 'data': write a list"),
        ({"code": 7}, "code is 7: write text"),
        ({"mode": "both"}, "mode is 'both': write 'distributed' or 'single_server'"),
        ({"resources": {"node": 2}}, "resources.node: did you mean nodes?"),
        ({"outputs": [{"name": "a", "targe": "x"}]}, "outputs.0.targe: did you mean target?"),
    ],
)
def test_mistakes_are_told_in_words_of_the_job_file(fields: dict[str, object], words: str) -> None:
    assert words in mistake(**fields)


@pytest.mark.parametrize(("entry", "meant"), [("trian.py", "train.py"), ("main.py", "src/main.py")])
def test_a_boot_file_that_is_not_there_brings_a_suggestion(tmp_path: Path, entry: str, meant: str) -> None:
    (tmp_path / "src").mkdir()
    for name in ("train.py", "src/main.py"):
        (tmp_path / name).write_text("")
    with pytest.raises(SpecError, match=f"did you mean {meant}"):
        load_job({"name": "a", "code": str(tmp_path), "entry": entry})


def test_paths_that_are_not_there_bring_a_suggestion(tmp_path: Path) -> None:
    for name in ("code", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "train.py").write_text("")
    job = tmp_path / "job.yaml"
    job.write_text("{name: a, code: cod, entry: t.py, inputs: [{name: d, source: dat}]}")
    with pytest.raises(SpecError) as refused:
        load_job(job)
    words = [str(mistake) for mistake in refused.value.mistakes]
    assert f"did you mean {tmp_path}/code?" in words[0] and f"did you mean {tmp_path}/data?" in words[1]
    with pytest.raises(UsageError, match=r"did you mean \S+/job\.yaml\?"):
        load_job(tmp_path / "jbo.yaml")
    with pytest.raises(UsageError, match=r"did you mean \S+/train\.py\?"):
        job_of(tmp_path / "trian.py")


def test_an_environment_that_is_not_known_brings_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"did you mean pytorch\?"):
        recipe_for("pytroch")


def test_mistakes_in_a_workload_are_told_in_its_words(tmp_path: Path) -> None:
    file = tmp_path / "workload.yaml"
    file.write_text("{name: x, model: Y, scales: {tiny: {runz: 1}}, implementations: 7}")
    with pytest.raises(UsageError) as refused:
        workload.load(tmp_path)
    text = refused.value.message
    assert "scales.tiny.runz: did you mean runs?" in text
    assert "implementations is 7: write a mapping" in text


def test_a_launcher_or_contract_that_is_not_known_brings_a_suggestion() -> None:
    assert "did you mean pytorch?" in mistake(launcher="pytroch")
    assert "did you mean modelarts-v2?" in mistake(contract="modelart-v2")


def test_only_whole_fields_are_set(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("{name: a, command: ls}")
    assert _main(["run", str(tmp_path), "--set", "resources.nodes=2"]) == 64
    told = capsys.readouterr().err
    assert "--set resources.nodes: only whole fields can be set" in told
    assert "--set 'resources={nodes: VALUE}'" in told


def test_no_hint_points_to_a_file_that_is_not_installed() -> None:
    """Documents are not part of the wheel; docstrings are for whoever has the source."""
    found = []
    for path in (ROOT / "src/trainshed").rglob("*.py"):
        tree = ast.parse(path.read_text())
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Expr | ast.Constant)]
        documents = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        found += [
            f"{path}:{node.lineno}"
            for node in nodes
            if isinstance(node, ast.Constant) and id(node) not in documents
            if isinstance(node.value, str) and re.search(r"\b(docs|scripts)/\w+\.\w+", node.value)
        ]
    assert not found


def test_one_is_not_many() -> None:
    assert [counted(1, "node"), counted(2, "node")] == ["1 node", "2 nodes"]


def on_terminal(shed: Shed, *words: str, columns: int = 80, **more: str) -> str:
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "trainshed.cli.main", *words],
        env={k: v for k, v in shed.env.items() if k not in ("COLUMNS", "NO_COLOR")}
        | {"TERM": "xterm"}
        | more,
        stdin=side,
        stdout=side,
        stderr=side,
    )
    os.close(side)
    said = b""
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:  # the other side has ended
            break
        said += data
    assert process.wait(60) == 0, said
    os.close(main)
    return said.decode()


@pytest.mark.real
def test_ids_are_whole_in_80_columns_and_no_color_is_heeded(shed: Shed) -> None:
    name = "a-rather-long-name-of-a-job-of-mine"
    job = shed.job(name, {"t.py": "print('hello')"}, entry="t.py")
    run = shed.submit(job)
    assert shed.cli("wait", run).returncode == 0
    listed = on_terminal(shed, "ps", "-a")
    assert run in listed and "succeeded" in listed and "\x1b[1m" in listed
    assert "\x1b" not in on_terminal(shed, "ps", "-a", NO_COLOR="1")
    assert "\x1b[3" in on_terminal(shed, "logs", run)
    assert "\x1b[3" not in on_terminal(shed, "logs", run, NO_COLOR="1")
