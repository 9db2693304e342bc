"""The mirror of a run on a laptop: all of it arrives, in any number of answers, and nothing is mixed."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainshed import Client, Run
from trainshed.api import site as server
from trainshed.engines.slurm import remote
from trainshed.engines.slurm.client import Slurm
from trainshed.engines.slurm.profile import save
from trainshed.errors import TrainshedError, UsageError
from trainshed.runs import locations, site
from trainshed.runs.directory import RunDirectory, finished
from trainshed.runs.events import Submitted
from trainshed.runs.locations import RunLocation
from trainshed.runs.outcome import Outcome
from trainshed.runs.site import RemoteSite, SiteError
from trainshed.runs.states import RunState
from trainshed.spec.job import JobSpec
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.slurm, pytest.mark.core]

SITE = RemoteSite("me@site", python=sys.executable)
FIRST = Submitted(name="job", engine="slurm", shape="1x1", settings={"settings": {}})
Answer = tuple[dict[str, Any], bytes]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run at the site, whose Slurm has not taken it yet; the login node answers within this process."""
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "laptop"))
    monkeypatch.setattr(Slurm, "jobs", lambda _self: [])
    run = RunDirectory(tmp_path / "site/runs/job-1")
    run.node(0).mkdir(parents=True)
    run.writer("submit").append(FIRST)

    def call(_site: RemoteSite, request: dict[str, Any], upload: object = None) -> Answer:
        with pytest.MonkeyPatch.context() as inside:
            inside.setenv("TRAINSHED_HOME", str(tmp_path / "site"))
            answer, data = server.SiteServer(os.environ).answer(json.loads(json.dumps(request)))
        return json.loads(json.dumps(answer)), data

    monkeypatch.setattr(site, "call", call)
    return run


def _mirror(there: RunDirectory) -> Run:
    client = Client()
    here = RunDirectory(client.home / "runs" / there.id)
    here.path.mkdir(parents=True)
    locations.make_mirror(here, RunLocation(path=str(there.path), site=SITE.to_json()))
    here.writer("submit").append(FIRST)
    return client.get(there.id)


def _end(run: RunDirectory) -> None:
    run.record_end(finished(run, Outcome.of(None), None, 1))


def test_a_run_with_more_than_one_answer_holds_is_not_lost(
    there: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST", 1000)
    (there.path / "outputs").mkdir()
    content = {name: os.urandom(size) for name, size in {"a": 2500, "b": 10, "c": 700, "empty": 0}.items()}
    for name, data in content.items():
        (there.path / "outputs" / name).write_bytes(data)
    _end(there)
    here = _mirror(there)
    states = [here.state for _ in range(6)]
    ended = states.index(RunState.SUCCEEDED)
    assert ended > 2 and states == [RunState.PENDING] * ended + [RunState.SUCCEEDED] * (6 - ended)
    assert {p.name: p.read_bytes() for p in (here.path / "outputs").iterdir()} == content


def test_the_log_of_a_later_attempt_does_not_go_on_where_the_first_ended(there: RunDirectory) -> None:
    here, log = _mirror(there), there.node(0) / "rank-0.log"
    log.write_text("first try\n")
    here.refresh()
    log.rename(log.with_name("rank-0.attempt-1.log"))
    log.write_text("a second try that says more\n")
    here.refresh()
    with log.open("a") as stream:
        stream.write("and more\n")
    here.refresh()
    folder = here.path / "node-0"
    assert (folder / log.name).read_text() == "a second try that says more\nand more\n"
    assert (folder / "rank-0.attempt-1.log").read_text() == "first try\n"


def test_what_has_not_changed_is_not_sent_again(there: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    here = _mirror(there)
    (there.path / "plan.json").write_text("{}")
    sent: list[list[Any]] = []
    call = site.call

    def counted(*args: Any) -> Answer:
        answer, data = call(*args)
        sent.append([name for name, *_ in answer["files"]])
        return answer, data

    monkeypatch.setattr(site, "call", counted)
    here.refresh()
    here.refresh()
    there.write("plan.json", "[]")
    here.refresh()
    assert sent == [["events/submit.jsonl", "plan.json"], [], ["plan.json"]]
    assert (here.path / "plan.json").read_text() == "[]"


def test_an_end_recorded_after_the_files_were_listed_waits_for_its_outputs(
    there: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, files = _mirror(there), server._files

    def late(run: RunDirectory, ended: bool) -> Any:
        found = list(files(run, ended))
        if not ended:
            (run.path / "outputs").mkdir()
            (run.path / "outputs/model").write_text("weights")
            _end(run)
        return found

    monkeypatch.setattr(server, "_files", late)
    here.refresh()
    assert here.directory.end() is None
    assert here.state is RunState.SUCCEEDED
    assert (here.path / "outputs/model").read_text() == "weights"


def test_a_run_removed_at_its_site_is_not_alive_and_can_be_removed(there: RunDirectory) -> None:
    here = _mirror(there)
    assert here.state is RunState.PENDING
    shutil.rmtree(there.path)
    seen = here.refresh()
    assert seen.state is RunState.FAILED
    assert seen.reason == f"it was removed from me@site:{there.path} before its end was fetched"
    Client().remove(here)
    assert not here.path.exists()


def test_a_site_out_of_reach_does_not_end_a_run(there: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    here = _mirror(there)

    def cut(*_rest: object) -> Answer:
        raise SiteError("the line is cut", "")

    monkeypatch.setattr(site, "call", cut)
    seen = here.refresh()
    assert seen.state is RunState.PENDING and "the line is cut" in seen.reason


def test_a_file_outside_the_run_is_not_written(there: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    here = _mirror(there)
    files = [["../../../stolen", 0, 3, 0, 0]]
    answer = {"files": files, "left": False, "alive": True, "waiting": "", "problem": ""}
    monkeypatch.setattr(site, "call", lambda *_rest: (answer, b"bad"))
    assert "outside the run" in here.refresh().reason
    assert not (here.path.parents[2] / "stolen").exists()


def _job(**fields: Any) -> JobSpec:
    return load_job({"name": "job", "command": "true"} | fields)


def test_an_input_that_is_one_file_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("1,2")
    (tmp_path / "folder").mkdir()
    inputs = [
        {"name": "data", "source": str(tmp_path / "train.csv")},
        {"name": "more", "source": str(tmp_path / "folder")},
    ]
    job = _job(inputs=inputs)
    sources = remote._local_sources(job)
    targets = {name: name if path.is_dir() else f"{name}/{path.name}" for name, path in sources.items()}
    moved = server._moved(job.model_dump(mode="json"), targets, Path("/up"))
    assert [channel.source for channel in moved.inputs] == ["/up/inputs/data/train.csv", "/up/inputs/more"]


def test_a_log_url_that_is_a_folder_here_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="log_url"):
        remote._local_sources(_job(log_url=str(tmp_path)))


def test_a_run_whose_first_files_cannot_be_fetched_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path / "laptop")
    save("slurm", {"login": "me@site"}, client.home)

    def call(_site: RemoteSite, request: dict[str, Any], *_rest: object) -> Answer:
        if request["action"] == "submit":
            return {"runs": [f"/there/runs/{name}" for name in request["ids"]], "upload": "/there/u/x"}, b""
        raise SiteError("the line is cut", "")

    monkeypatch.setattr(site, "call", call)
    first = client.submit(_job(), engine="slurm", options={"array": "2"})
    assert sorted(run.id for run in client.runs()) == first.array
    seen = first.refresh()
    assert seen.state is RunState.PENDING and "the line is cut" in seen.reason


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What stands for ssh: a shell on this machine."""
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "site"))
    monkeypatch.setattr(site, "_ssh", lambda _site: ["bash", "-c"])
    return lambda line: monkeypatch.setattr(site, "_ssh", lambda _site: ["bash", "-c", line])


def _link(stream: Any) -> None:
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        item = tarfile.TarInfo("code/link")
        item.type, item.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(item, io.BytesIO())


SUBMIT = {
    "action": "submit", "engine": "slurm", "ids": ["job-1"], "job": {"name": "a", "command": "true"},
    "settings": {}, "targets": {}, "labels": {}, "emulate": False, "secrets": {},
}  # fmt: skip


def test_what_the_login_node_cannot_unpack_is_told_with_its_own_remedy(near: Any, tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="absolute path") as caught:
        site.call(SITE, dict(SUBMIT), _link)
    assert "links" in caught.value.hint
    assert not list((tmp_path / "site/uploads").iterdir())


def test_settings_of_another_release_are_told_to_be_that(near: Any) -> None:
    request = {"action": "describe", "engine": "slurm", "settings": {"nothing": 1}}
    with pytest.raises(SiteError) as caught:
        site.call(SITE, request)
    assert "same release" in caught.value.hint


def test_another_release_is_refused_before_anything_is_read(
    near: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "VERSION", "0.0.1")
    with pytest.raises(TrainshedError, match=r"release .*, this one 0\.0\.1") as caught:
        site.call(SITE, {"action": "pull"})
    assert caught.value.code == "other-release"


def test_a_login_node_that_reads_nothing_and_says_nothing_has_an_end(
    near: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "_LIMIT", 0.2)
    near("exec 0<&-; sleep 60")

    def much(stream: Any) -> None:
        while True:
            stream.write(bytes(1 << 16))

    with pytest.raises(SiteError, match="did not answer"):
        site.call(SITE, {"action": "submit"}, much)


@pytest.mark.hardening
def test_a_python_with_blanks_and_signs_stays_one_word(
    near: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "my python; touch stolen"
    odd.symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SiteError):  # a Python that is not in its own environment has no Trainshed
        site.call(RemoteSite("me@site", python=str(odd)), {"action": "describe"})
    assert not (tmp_path / "stolen").exists()


@pytest.mark.hardening
@pytest.mark.parametrize("login", ["-Fx", "-oProxyCommand=touch@x", "me@-host", "a b", "me@host\n-Fx", ""])
def test_a_login_that_ssh_would_take_for_an_option_is_refused(tmp_path: Path, login: str) -> None:
    with pytest.raises(UsageError, match="login"):
        save("slurm", {"login": login}, tmp_path)
    with pytest.raises(UsageError, match="invalid login"):
        site._ssh(RemoteSite(login))
