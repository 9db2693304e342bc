"""A wrong job gives every mistake at once, each with its field, value and remedy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support import Shed
from trainshed.access import StoreAccess
from trainshed.engines.base import Context, Request, resolve_secrets
from trainshed.errors import UsageError
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import DeviceKind, Mode
from trainshed.spec.load import SpecError, dump_job, load_job

pytestmark = [pytest.mark.foundation, pytest.mark.core]


def write(folder: Path, text: str) -> Path:
    (folder / "train.py").write_text("print(1)\n")
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_job(write(folder, text))
    assert caught.value.exit_code == 64
    return [str(mistake) for mistake in caught.value.mistakes]


def test_a_small_job_file_gets_sensible_defaults(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, "name: a\ncode: .\nentry: train.py\nresources: 2x8:ascend\n"))
    assert (job.resources.nodes, job.resources.devices, job.resources.kind) == (2, 8, DeviceKind.ASCEND)
    assert (job.launcher, job.contract, job.mode) == ("command", "plain", Mode.DISTRIBUTED)
    assert job.code == str(tmp_path)


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    text = """
name: "no spaces allowed"
lancher: pytorch
launcher: pytroch
code: nowhere
entry: ../outside.py
resources: {nodes: -1, devices: 2, king: cpu}
timeout: soon
"""
    found = mistakes(tmp_path, text)
    assert any(m.startswith("lancher: did you mean launcher?") for m in found)
    assert any("launcher is 'pytroch': no such launcher; choose one of" in m for m in found)
    assert any(m.startswith("resources.nodes is -1: write at least 1") for m in found)
    assert any(m == "resources.king: did you mean kind?" for m in found)
    assert any(m.startswith("timeout is 'soon': write a duration such as 90s") for m in found)
    assert any(m.startswith("code is 'nowhere': no such folder") for m in found)
    assert any(m.startswith("entry is '../outside.py': is outside the code folder") for m in found)
    assert any(m.startswith("name is 'no spaces allowed'") for m in found)
    assert len(found) == 8


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("entry: train.py", "name"),
        ("name: a", "job"),
        ("name: a\ncode: .\nentry: train.py\ncommand: ls", "job"),
        ("name: a\ncode: .\nentry: gone.py", "entry"),
        ("name: a\nentry: train.py", "code"),
        ("name: a\ncommand: ls\ninputs: [{name: x}]", "inputs.0.source"),
        ("name: a\ncommand: ls\ninputs: [{name: x, source: gone}]", "inputs.0.source"),
        ("name: a\ncommand: ls\ninputs: [{name: x, sauce: .}]", "inputs.0.sauce"),
        ("name: a\ncommand: ls\nresources: two", "resources"),
        ("name: a\ncommand: ls\nresources: {memory: lots}", "resources.memory"),
        ("name: a\ncommand: ls\nenv: {1X: a}", "env"),
        ("name: a\ncommand: ls\nsecrets: {KEY: {}}", "secrets.KEY"),
        ("name: a\ncommand: ls\nretries: 1000", "retries"),
    ],
)
def test_each_mistake_names_its_field(tmp_path: Path, text: str, field: str) -> None:
    assert any(m.startswith((f"{field}:", f"{field} is ")) for m in mistakes(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("inputs: [{name: b, source: .}, {name: a, source: .}, {name: a, source: .}]", "a"),
        (
            "inputs: [{name: x, source: .}, {name: data, source: .}]\noutputs: [{name: y}, {name: data}]",
            "data",
        ),
        ("outputs: [{name: b}, {name: a}, {name: c}, {name: b}, {name: a}]", "a, b"),
    ],
)
def test_a_channel_named_twice_is_the_one_in_the_error(tmp_path: Path, text: str, twice: str) -> None:
    (found,) = mistakes(tmp_path, f"name: j\ncommand: ls\n{text}\n")
    assert found.endswith(f"a name is used twice: {twice}")


def test_a_secret_value_is_refused_and_not_repeated(tmp_path: Path) -> None:
    for text in (
        "name: a\ncommand: ls\nsecrets: {API_KEY: hunter2hunter2}",
        "name: a\ncommand: ls\nenv: {DB_PASSWORD: hunter2hunter2}",
        "name: a\ncommand: ls\nenv: {URL: 'http://me:hunter2hunter2@host/'}",
    ):
        found = " ".join(mistakes(tmp_path, text))
        assert "hunter2" not in found and "{env:" in found


def test_an_entry_that_leads_out_of_the_code_by_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    assert "points outside the code folder" in mistakes(tmp_path, "name: a\ncode: .\nentry: link.py")[0]


@pytest.mark.parametrize(
    "text",
    ["- a\n- b\n", "name: [", "just words", "name: 2024-13-45", f"priority: {'9' * 5000}", "[" * 5000],
    ids=["list", "open", "words", "date", "digits", "deep"],
)
def test_a_file_that_is_no_job_is_one_clear_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_job(write(tmp_path, text))
    assert str(tmp_path) in caught.value.message and caught.value.hint


def test_overrides_are_laid_over_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, "name: a\ncode: .\nentry: train.py\nresources: 1x1:ascend\nparameters: {a: 1, b: 2}\n"
    )
    job = load_job(path, {"resources": "2x4", "parameters": {"b": 3}})
    assert (job.resources.shape, job.resources.kind) == ("2x4", DeviceKind.ASCEND)
    assert job.parameters == {"a": 1, "b": 3}


def test_a_dumped_job_is_the_same_job(tmp_path: Path) -> None:
    text = "name: a\ncode: .\nentry: train.py\nresources: 2x2\nenv: {A: 1, B: yes}\nsecrets: {T: {env: T}}\ngrace: 2m\n"
    job = load_job(write(tmp_path, text))
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_job(job))
    assert load_job(copy) == job
    assert isinstance(job, JobSpec) and job.env == {"A": "1", "B": "true"}


BAD = {
    "misspelt key": ({"entri": "t.py", "command": "ls"}, "did you mean entry?"),
    "negative nodes": ({"command": "ls", "resources": {"nodes": -2}}, "resources.nodes is -2"),
    "missing code": ({"entry": "t.py", "code": "gone"}, "code is 'gone': no such folder"),
    "entry outside": ({"entry": "../t.py"}, "is outside the code folder"),
    "10,000 devices": (
        {"command": "ls", "resources": "10x1000"},
        "asks for 10000 cpu devices, and this machine has",
    ),
    "ascend without NPUs": ({"command": "ls", "resources": "1x8:ascend"}, "--emulate"),
    "missing secret": (
        {"command": "ls", "secrets": {"A": {"env": "NOT_SET_ANYWHERE"}}},
        "NOT_SET_ANYWHERE is not set",
    ),
    "missing environment": ({"command": "ls", "environment": "mindsproe"}, "mindsproe"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_jobs_end_with_2_and_leave_nothing_behind(shed: Shed, name: str) -> None:
    fields, words = BAD[name]
    job = shed.job(files={"t.py": ""}, **fields)
    for command in ("run", "submit"):
        done: subprocess.CompletedProcess[str] = shed.cli(command, job)
        assert done.returncode == 64, done.stderr
        assert words in done.stderr and "Traceback" not in done.stderr
    assert not [path for path in shed.home.rglob("*") if path.is_file()]
    assert not list((shed.home / "runs").glob("*")) if (shed.home / "runs").exists() else True


@pytest.mark.parametrize("field", ["code", "log_url"])
def test_a_path_below_nobodys_home_is_one_clear_error(tmp_path: Path, field: str) -> None:
    with pytest.raises(UsageError, match="invalid path: '~nosuchuser/x'"):
        load_job(write(tmp_path, f"name: a\ncommand: ls\n{field}: ~nosuchuser/x"))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (f"timeout: {'9' * 400}", "timeout"),
        (f"timeout: -{'9' * 400}", "timeout"),
        (f"resources: {{memory: {'9' * 400}}}", "resources.memory"),
        (f"resources: {{memory: {'9' * 400}T}}", "resources.memory"),
    ],
)
def test_numbers_beyond_measure_are_mistakes_like_any_other(tmp_path: Path, text: str, field: str) -> None:
    assert mistakes(tmp_path, f"name: a\ncommand: ls\n{text}")[0].startswith(f"{field} is ")


@pytest.mark.parametrize("name", ["~nosuchuser/key", "raw"])
def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "raw").write_bytes(b"\xff\xfe\x00")
    path = name if name.startswith("~") else tmp_path / name
    job = load_job({"name": "a", "command": "ls", "secrets": {"KEY": {"file": str(path)}}})
    with pytest.raises(UsageError, match=r"secrets\.KEY"):
        resolve_secrets(Request(job, Context(tmp_path, "somebody", StoreAccess(tmp_path))))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (r'{name: a, command: "echo \0"}', "command"),
        (r'{name: a, command: x, env: {A: "b\0"}}', "env"),
        (r'{name: a, entry: x.py, args: ["\0"]}', "args"),
        (r'{name: a, command: x, parameters: {lr: ["\0"]}}', "parameters"),
        (r'{name: a, command: x, inputs: [{name: d, source: "s3://b/\0"}]}', "inputs.0.source"),
    ],
)
def test_a_nul_is_a_mistake_of_its_field(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as refused:
        load_job(path)
    assert any(m.field == field and "NUL" in str(m) for m in refused.value.mistakes), refused.value
