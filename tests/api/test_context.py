"""A Client given its context reads none from the process: not home, user, keys, secrets, nor devices."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from support import until
from trainshed.api import Client
from trainshed.engines.local.engine import LocalEngine
from trainshed.errors import NotFoundError, UsageError
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.foundation, pytest.mark.core]
PLAIN = {"isolation": "plain"}
MISLEADING = {
    "TRAINSHED_HOME": "/nowhere/home",
    "TRAINSHED_ENVS": "/nowhere/envs",
    "TRAINSHED_ENGINE": "slurm",
    "TRAINSHED_PROFILE": "nowhere",
    "TRAINSHED_CPU_SLOTS": "none",
    "TRAINSHED_EMULATED_DEVICES": "none",
    "TRAINSHED_STORE_PROFILE": "nowhere",
    "AWS_ENDPOINT_URL": "http://nowhere.example:1",
    "AWS_ACCESS_KEY_ID": "misleading-key",
    "AWS_SECRET_ACCESS_KEY": "misleading-secret",
    "LOGNAME": "mallory",
    "USER": "mallory",
    "HOME": "/nowhere/user",
    "PATH": "/nowhere/bin",
    "API_KEY": "misleading-value",
    "GLOO_SOCKET_IFNAME": "misleading0",
    "http_proxy": "http://misleading.example",
    "PIP_INDEX_URL": "http://misleading.example",
}
ENVIRON = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
    "API_KEY": "the-true-value",
    "LOGNAME": "ann",
    "GLOO_SOCKET_IFNAME": "lo",
}
SHOW = {
    "name": "show",
    "command": "env -0 | tr '\\0' '\\n' | sed -e 's/the-true-value/TRUE/' -e 's/misleading/MISLED/'",
    "secrets": {"API_KEY": {"env": "API_KEY"}},
}


@pytest.fixture
def misled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TRAINSHED_", "AWS_", "OBS_", "S3_")):
            monkeypatch.delenv(name)
    for name, value in MISLEADING.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("misled")
def test_a_run_sees_the_clients_context_and_nothing_of_the_process(tmp_path: Path) -> None:
    client = Client(tmp_path / "home", environ=ENVIRON)
    run = client.submit(SHOW, options=PLAIN)
    assert run.wait(60).state is RunState.SUCCEEDED
    lines = dict(line.text.partition("=")[::2] for line in run.logs())
    assert lines["API_KEY"] == "TRUE" and lines["GLOO_SOCKET_IFNAME"] == "lo"
    assert ENVIRON["PATH"] in lines["PATH"]
    assert not [name for name, value in lines.items() if "MISLED" in value or "/nowhere" in value]
    assert run.directory.submission().user == "ann"
    assert run.path.is_relative_to(tmp_path / "home")


@pytest.mark.usefixtures("misled")
def test_the_driver_has_the_clients_variables_and_nothing_of_the_process(tmp_path: Path) -> None:
    client = Client(tmp_path / "home", environ=ENVIRON)
    run = client.submit({"name": "wait", "command": "sleep 300"}, options=PLAIN)
    try:
        written = run.directory.alive_path.read_text
        driver, _guard = until(
            lambda: len(pids := written().split()) == 2 and pids, 60, "the driver's number"
        )
        found = Path(f"/proc/{driver}/environ").read_bytes().split(b"\0")
        variables = dict(entry.decode().partition("=")[::2] for entry in found if entry)
        wanted = ENVIRON | {"TRAINSHED_HOME": str(client.home)}
        assert variables == {name: value for name, value in wanted.items() if name != "API_KEY"}
    finally:
        run.stop()
        run.wait(60)


@pytest.mark.usefixtures("misled")
def test_store_keys_are_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s3cr3t",
    }
    client = Client(tmp_path, environ=ENVIRON | keys)
    given: list[dict[str, str]] = []
    monkeypatch.setattr(LocalEngine, "launch", lambda _self, prepared, *_: given.append(prepared.private[1]))
    run = client.submit({"name": "job", "command": "true"}, env={"WHERE": "s3://bucket/"}, options=PLAIN)
    assert given[0]["AWS_SECRET_ACCESS_KEY"] == "s3cr3t" and given[0]["AWS_ACCESS_KEY_ID"] == "k"
    text = (run.path / "plan.json").read_text()
    assert json.loads(text)["env"]["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9" and "nowhere" not in text


@pytest.mark.usefixtures("misled")
def test_what_the_process_has_and_the_client_has_not_is_missing(tmp_path: Path) -> None:
    client = Client(tmp_path, environ={})
    with pytest.raises(UsageError, match="variable API_KEY is not set"):
        client.submit(SHOW, options=PLAIN)
    with pytest.raises(NotFoundError, match=str(tmp_path / "envs")):
        client.submit({"name": "job", "command": "true"}, environment="pytorch", options=PLAIN)
    assert client.context.user not in ("mallory", "") and client.home == tmp_path


@pytest.mark.usefixtures("misled")
def test_the_home_comes_from_the_variables_given(tmp_path: Path) -> None:
    client = Client(environ={"TRAINSHED_HOME": str(tmp_path / "given")})
    assert client.home == tmp_path / "given" and client.context.home == client.home
    assert client.context.environ["TRAINSHED_HOME"] == str(client.home)


def test_without_a_context_the_process_is_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("API_KEY", "one")
    client = Client()
    monkeypatch.setenv("API_KEY", "two")
    assert client.home == tmp_path / "home" and client.context.environ["API_KEY"] == "one"


def test_two_clients_do_not_see_each_others_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalEngine, "launch", lambda *_: None)
    first, second = Client(tmp_path / "a", environ={}), Client(tmp_path / "b", environ={})
    run = first.submit({"name": "job", "command": "true"}, options=PLAIN)
    assert [item.id for item in first.runs()] == [run.id] and second.runs() == []
    with pytest.raises(NotFoundError):
        second.get(run.id)
