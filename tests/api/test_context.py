"""A Client given its context reads none from the process: not home, user, keys, secrets, nor devices."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support import until
from trainshed.access import StoreAccess
from trainshed.api import Client
from trainshed.engines.local.engine import LocalEngine
from trainshed.errors import NotFoundError, UsageError
from trainshed.runs.states import RunState
from trainshed.store import Credentials

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
TOLD = ("API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "GLOO_SOCKET_IFNAME")
TWO = {
    "name": "two",
    "command": "; ".join(
        f'echo "{name}=$(printf %s "${name}" | sha256sum | cut -d" " -f1)"' for name in TOLD
    ),
    "env": {"WHERE": "s3://bucket/"},
    "secrets": {"API_KEY": {"env": "API_KEY"}},
}


@pytest.fixture
def misled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TRAINSHED_", "AWS_", "OBS_", "S3_")):
            monkeypatch.delenv(name)
    for name, value in MISLEADING.items():
        monkeypatch.setenv(name, value)


def given(home: Path) -> Client:
    return Client(
        home,
        user="ann",
        secrets={"API_KEY": "the-true-value"},
        environ={name: value for name, value in ENVIRON.items() if name not in ("API_KEY", "LOGNAME")},
    )


@pytest.mark.usefixtures("misled")
@pytest.mark.parametrize(
    "make", [given, partial(Client.from_environment, ENVIRON)], ids=["given", "variables"]
)
def test_a_run_sees_the_clients_context_and_nothing_of_the_process(
    make: Callable[[Path], Client], tmp_path: Path
) -> None:
    client = make(tmp_path / "home")
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
    client = Client.from_environment(ENVIRON, tmp_path / "home")
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
    client = Client.from_environment(ENVIRON | keys, tmp_path)
    given: list[dict[str, str]] = []
    monkeypatch.setattr(LocalEngine, "launch", lambda _self, prepared, *_: given.append(prepared.private[1]))
    run = client.submit({"name": "job", "command": "true"}, env={"WHERE": "s3://bucket/"}, options=PLAIN)
    assert given[0]["AWS_SECRET_ACCESS_KEY"] == "s3cr3t" and given[0]["AWS_ACCESS_KEY_ID"] == "k"
    text = (run.path / "plan.json").read_text()
    assert json.loads(text)["env"]["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9" and "nowhere" not in text


@pytest.mark.usefixtures("misled")
def test_what_the_process_has_and_the_client_has_not_is_missing(tmp_path: Path) -> None:
    client = Client.from_environment({}, tmp_path)
    with pytest.raises(UsageError, match="variable API_KEY is not set"):
        client.submit(SHOW, options=PLAIN)
    with pytest.raises(NotFoundError, match=str(tmp_path / "envs")):
        client.submit({"name": "job", "command": "true"}, environment="pytorch", options=PLAIN)
    assert client.context.user not in ("mallory", "") and client.home == tmp_path


@pytest.mark.usefixtures("misled")
def test_the_home_comes_from_the_variables_given(tmp_path: Path) -> None:
    client = Client.from_environment({"TRAINSHED_HOME": str(tmp_path / "given")})
    assert client.home == tmp_path / "given" and client.context.home == client.home
    assert client.context.environ["TRAINSHED_HOME"] == str(client.home)


def test_without_a_context_the_process_is_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("API_KEY", "one")
    client = Client()
    monkeypatch.setenv("API_KEY", "two")
    assert client.home == tmp_path / "home" and client.context.secrets["API_KEY"] == "one"
    assert "API_KEY" not in client.context.environ, "settings hold no secrets"


def test_two_clients_do_not_see_each_others_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalEngine, "launch", lambda *_: None)
    first, second = Client.from_environment({}, tmp_path / "a"), Client.from_environment({}, tmp_path / "b")
    run = first.submit({"name": "job", "command": "true"}, options=PLAIN)
    assert [item.id for item in first.runs()] == [run.id] and second.runs() == []
    with pytest.raises(NotFoundError):
        second.get(run.id)


@pytest.mark.parametrize(
    "wrong", [{"secrets": {}}, {"environ": {}}, {"store": StoreAccess(Path("/nowhere"))}]
)
def test_what_belongs_to_a_user_is_not_mixed_with_the_process(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="belong to a user"):
        Client(tmp_path, **wrong)
    with pytest.raises(UsageError, match="needs a home"):
        Client(user="ann", **wrong)


@pytest.mark.usefixtures("misled")
def test_a_users_client_without_keys_has_the_profiles_of_its_home(tmp_path: Path) -> None:
    profile = tmp_path / "store.yaml"
    profile.write_text(
        "profiles: {default: {access_key: k, secret_key: s3cr3t, endpoint: 'http://127.0.0.1:9'}}"
    )
    profile.chmod(0o600)
    client = Client(tmp_path, user="ann")
    assert client.context.store.credentials("s3").endpoint == "http://127.0.0.1:9"
    own = Credentials("mine", "secret", "http://127.0.0.1:10")
    assert Client(tmp_path, user="ann", store=own).context.store.credentials("obs") == own


@pytest.mark.usefixtures("misled")
def test_two_clients_side_by_side_do_not_mix(tmp_path: Path) -> None:
    """Real runs of two users at once: each has its own home, user, team, label, secret, store and settings."""

    def train(user: str) -> dict[str, str]:
        client = Client(
            tmp_path / user,
            user=user,
            team=f"team-of-{user}",
            secrets={"API_KEY": f"value-of-{user}"},
            store=Credentials(f"key-of-{user}", f"secret-of-{user}", f"http://127.0.0.1:9/{user}"),
            labels={"by": user},
            environ={"PATH": ENVIRON["PATH"], "GLOO_SOCKET_IFNAME": f"if-{user}"},
        )
        run = client.submit(TWO, options=PLAIN)
        assert run.wait(120).state is RunState.SUCCEEDED, run.directory.notes()
        submitted = run.directory.submission()
        assert (submitted.user, submitted.team, submitted.labels) == (user, f"team-of-{user}", {"by": user})
        assert [found.id for found in client.runs()] == [run.id]
        return dict(line.text.partition("=")[::2] for line in run.logs())

    users = [f"user{number}" for number in range(4)]
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(users, pool.map(train, users), strict=True))
    for user, lines in found.items():
        # Secrets are masked in logs, so the job prints their digests.
        assert lines["API_KEY"] == digest(f"value-of-{user}")
        assert lines["AWS_ACCESS_KEY_ID"] == digest(f"key-of-{user}")
        assert lines["AWS_SECRET_ACCESS_KEY"] == digest(f"secret-of-{user}")
        assert lines["AWS_ENDPOINT_URL"] == digest(f"http://127.0.0.1:9/{user}")
        assert lines["GLOO_SOCKET_IFNAME"] == digest(f"if-{user}")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
