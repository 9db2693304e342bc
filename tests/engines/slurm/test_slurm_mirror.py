"""The mirror of a run on a laptop: all of it arrives, in any number of answers, and nothing is mixed."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed.engines._asking import state_of
from trainshed.engines.base import Request, Status
from trainshed.engines.slurm import login, remote
from trainshed.engines.slurm.profile import Profile, Settings
from trainshed.errors import UsageError
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import Kind
from trainshed.runs.outcome import Outcome
from trainshed.runs.states import RunState
from trainshed.spec.job import JobSpec
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.slurm]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run at the site, whose Slurm no longer knows it; the login node answers within this process."""
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "laptop"))
    site = tmp_path / "site"
    run = RunDirectory(site / "runs/job-1")
    run.node(0).mkdir(parents=True)
    run.append(Kind.SUBMITTED, name="job", engine="slurm", shape="1x1")

    def call(_profile: Profile, words: dict[str, Any], upload: object = None) -> tuple[dict[str, Any], bytes]:
        with pytest.MonkeyPatch.context() as inside:
            inside.setenv("TRAINSHED_HOME", str(site))
            answer, data = login._answer(json.loads(json.dumps(words)))
        return json.loads(json.dumps(answer)), data

    def status(asked: RunDirectory) -> Status:
        return remote.status(asked) if remote.is_mirror(asked) else Status(alive=False)

    monkeypatch.setattr(login.ENGINE, "status", status)
    monkeypatch.setattr(remote, "_call", call)
    monkeypatch.setattr(remote, "_FRESH", 0.0)
    return run


def _mirror(there: RunDirectory) -> RunDirectory:
    here = RunDirectory(Runs.default().root / there.id)
    here.path.mkdir(parents=True)
    mark = {"path": str(there.path), "upload": "", "profile": {"login": "me@site"}}
    here.write("remote.json", json.dumps(mark))
    here.append(Kind.SUBMITTED, name="job", engine="slurm", shape="1x1")
    return here


def test_a_run_with_more_than_one_answer_holds_is_not_lost(
    there: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "_MOST", 1000)
    (there.path / "outputs").mkdir()
    content = {name: os.urandom(size) for name, size in {"a": 2500, "b": 10, "c": 700, "empty": 0}.items()}
    for name, data in content.items():
        (there.path / "outputs" / name).write_bytes(data)
    there.append(Kind.FINISHED, **Outcome.of(None).to_json())
    here = _mirror(there)
    states = [state_of(here).state for _ in range(5)]
    assert states == [RunState.PENDING] * 3 + [RunState.SUCCEEDED] * 2
    assert {p.name: p.read_bytes() for p in (here.path / "outputs").iterdir()} == content


def test_the_log_of_a_later_attempt_does_not_go_on_where_the_first_ended(there: RunDirectory) -> None:
    here, log = _mirror(there), there.node(0) / "rank-0.log"
    log.write_text("first try\n")
    remote.pull(here)
    log.rename(log.with_name("rank-0.attempt-1.log"))
    log.write_text("a second try that says more\n")
    remote.pull(here)
    with log.open("a") as stream:
        stream.write("and more\n")
    remote.pull(here)
    assert (here.node(0) / log.name).read_text() == "a second try that says more\nand more\n"
    assert (here.node(0) / "rank-0.attempt-1.log").read_text() == "first try\n"


def test_what_has_not_changed_is_not_sent_again(there: RunDirectory) -> None:
    here = _mirror(there)
    (there.path / "plan.json").write_text("{}")
    asked: list[list[Any]] = []
    call = remote._call

    def counted(*args: Any) -> tuple[dict[str, Any], bytes]:
        answer, data = call(*args)
        asked.append([name for name, *_ in answer["files"]])
        return answer, data

    remote._call = counted
    remote.pull(here)
    remote.pull(here)
    there.write("plan.json", "[]")
    remote.pull(here)
    assert asked == [["events.jsonl", "plan.json"], [], ["plan.json"]]
    assert (here.path / "plan.json").read_text() == "[]"


def test_an_end_told_after_the_files_were_listed_waits_for_its_outputs(
    there: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, files = _mirror(there), login._files

    def late(run: RunDirectory, ended: bool) -> Any:
        found = list(files(run, ended))
        if not ended:
            (run.path / "outputs").mkdir()
            (run.path / "outputs/model").write_text("weights")
            run.append(Kind.FINISHED, **Outcome.of(None).to_json())
        return found

    monkeypatch.setattr(login, "_files", late)
    remote.pull(here)
    assert not any(event.kind is Kind.FINISHED for event in here.events())
    assert state_of(here).state is RunState.SUCCEEDED
    assert (here.path / "outputs/model").read_text() == "weights"


def _settings() -> Settings:
    return Settings(profile=Profile.model_validate({"login": "me@site", "python": sys.executable}))


def _job(folder: Path, **fields: Any) -> JobSpec:
    return load_job({"name": "job", "command": "true"} | fields)


def test_an_input_that_is_one_file_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("1,2")
    (tmp_path / "folder").mkdir()
    inputs = [
        {"name": "data", "source": str(tmp_path / "train.csv")},
        {"name": "more", "source": str(tmp_path / "folder")},
    ]
    job = _job(tmp_path, inputs=inputs)
    places = {name: remote._place(name, path) for name, path in remote._local_sources(job).items()}
    moved = login._moved(job.model_dump(mode="json"), places, Path("/up"))
    assert [channel.source for channel in moved.inputs] == ["/up/inputs/data/train.csv", "/up/inputs/more"]


def test_a_log_url_that_is_a_folder_here_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="log_url"):
        remote._local_sources(_job(tmp_path, log_url=str(tmp_path)))


def test_a_run_whose_first_files_cannot_be_fetched_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "laptop"))

    def call(_profile: Profile, words: dict[str, Any], *_rest: object) -> tuple[dict[str, Any], bytes]:
        if words["action"] == "submit":
            return {"runs": ["/there/runs/job-1.0", "/there/runs/job-1.1"], "upload": "/there/uploads/x"}, b""
        raise remote.LoginError("the line is cut", "")

    monkeypatch.setattr(remote, "_call", call)
    remote.submit(Request(_job(tmp_path)), _settings(), {})
    assert sorted(run.id for run in Runs.default().all()) == ["job-1.0", "job-1.1"]
    seen = state_of(Runs.default().find("job-1.0"))
    assert seen.state is RunState.PENDING and "the line is cut" in seen.reason
    assert Runs.default().find("job-1.1").array() == ["job-1.0", "job-1.1"]


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What stands for ssh: a shell on this machine."""
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "site"))
    monkeypatch.setattr(remote, "_ssh", lambda _profile: ["bash", "-c"])
    return lambda line: monkeypatch.setattr(remote, "_ssh", lambda _profile: ["bash", "-c", line])


def _link(stream: Any) -> None:
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        item = tarfile.TarInfo("code/link")
        item.type, item.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(item, io.BytesIO())


def test_what_the_login_node_cannot_unpack_is_said_with_its_own_remedy(near: Any, tmp_path: Path) -> None:
    words = {"action": "submit", "job": {"name": "a", "command": "true"}, "settings": {}, "places": {}}
    with pytest.raises(remote.LoginError, match="absolute path") as caught:
        remote._call(_settings().profile, words, _link)
    assert "links" in caught.value.hint
    assert not list((tmp_path / "site/uploads").iterdir())


def test_words_of_another_version_are_said_to_be_that(near: Any) -> None:
    words = {"action": "describe", "settings": {"nothing": 1}}
    with pytest.raises(remote.LoginError) as caught:
        remote._call(_settings().profile, words)
    assert "same version" in caught.value.hint


def test_a_login_node_that_reads_nothing_and_says_nothing_has_an_end(
    near: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_LIMIT", 0.2)
    near("exec 0<&-; sleep 60")

    def much(stream: Any) -> None:
        while True:
            stream.write(bytes(1 << 16))

    with pytest.raises(remote.LoginError, match="did not answer"):
        remote._call(_settings().profile, {"action": "submit"}, much)
