"""The Client: what it takes, what it refuses, and that a refusal leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trainshed
from support import processes_of, tree, until
from trainshed.api import Client, Run, RunFailed
from trainshed.engines.local.engine import ENGINE, LocalEngine
from trainshed.errors import NotFoundError, RefusedError, TrainshedError, UsageError
from trainshed.runs.events import Finished, UnreadableRunError
from trainshed.runs.outcome import Outcome
from trainshed.runs.states import Cause, RunState
from trainshed.spec.job import JobSpec
from trainshed.spec.load import SpecError, load_job

pytestmark = [pytest.mark.foundation, pytest.mark.core]
PLAIN = {"isolation": "plain"}
SAY = {"name": "say", "command": "echo $WORD"}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "home", user="ann", team="blue", labels={"by": "test"})


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are submitted and nothing is started."""
    monkeypatch.setattr(LocalEngine, "launch", lambda *_: None)


def add(left: int, right: int = 0, *, scale: float = 1.0) -> float:
    return (left + right) * scale


def job_file(folder: Path) -> Path:
    folder.mkdir()
    (folder / "job.yaml").write_text("name: say\ncommand: echo $WORD\nenv: {WORD: file}\n")
    return folder / "job.yaml"


def words(run: Run) -> list[str]:
    return [line.text for line in run.logs()]


def test_a_job_may_be_a_path_a_folder_a_mapping_or_a_spec(tmp_path: Path, client: Client) -> None:
    path = job_file(tmp_path / "job")
    given: list[Any] = [str(path), path, path.parent, SAY, load_job(SAY)]
    runs = [client.submit(job, env={"WORD": f"number {n}"}, options=PLAIN) for n, job in enumerate(given)]
    for number, run in enumerate(runs):
        assert run.result(60) == Outcome(RunState.SUCCEEDED, 0)
        assert words(run) == [f"number {number}"]


def test_a_job_may_be_a_function(client: Client) -> None:
    run = client.submit(add, 2, 3, kwargs={"scale": 1.5}, shape="1x2", options=PLAIN)
    assert run.result(60) == 7.5
    assert (run.directory.submission().name, run.directory.submission().shape) == ("add", "1x2")
    assert len(list((client.home / "functions").iterdir())) == 1
    client.remove(run)
    assert not list((client.home / "functions").iterdir())


def test_a_function_on_several_nodes_gives_rank_0s_value(client: Client) -> None:
    assert client.run(add, 2, 3, shape="2x1", options=PLAIN, timeout=60) == 5.0


def test_overrides_are_fields_of_the_job(client: Client, launched: None) -> None:
    run = client.submit(SAY, shape="2x3", options=PLAIN, env={"A": "1"}, retries=2, grace="7s")
    job = load_job(run.path / "job.yaml")
    assert (job.resources.shape, job.env, job.retries, job.grace) == ("2x3", {"A": "1"}, 2, 7.0)
    spec = load_job(SAY | {"env": {"A": "1"}, "parameters": {"x": 1, "y": 1}})
    again = client.request(spec, env={"B": "2"}, parameters={"y": 2}).job
    assert again.env == {"A": "1", "B": "2"} and again.parameters == {"x": 1, "y": 2}
    assert spec == load_job(SAY | {"env": {"A": "1"}, "parameters": {"x": 1, "y": 1}}), "it is left as it was"


def test_what_was_submitted_is_recorded(client: Client, launched: None) -> None:
    run = client.submit(SAY, options=PLAIN, labels={"sweep": "7"})
    body = run.directory.submission()
    assert (body.user, body.team, body.engine, body.isolation) == ("ann", "blue", "local", "plain")
    assert body.labels == {"by": "test", "sweep": "7"} == run.labels
    assert [found.id for found in client.runs({"sweep": "7"})] == [run.id]
    assert run.plan().run == run.id


@pytest.mark.parametrize(
    "labels", [{"": "x"}, {"a b": "x"}, {"a": "x\ny"}, {"a": "x" * 257}, {"a": 7}, {"-a": "x"}]
)
def test_a_label_that_cannot_be_listed_is_refused(client: Client, labels: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="labels: "):
        client.submit(SAY, labels=labels)


REFUSED: dict[str, tuple[Any, dict[str, Any], type[TrainshedError]]] = {
    "no such file": ("nowhere.yaml", {}, UsageError),
    "a mistake": ({"name": "a", "commend": "x"}, {}, SpecError),
    "a wrong field": (SAY, {"lancher": "pytorch"}, SpecError),
    "too large": (SAY, {"shape": "900x900"}, RefusedError),
    "no devices": (SAY, {"shape": "1x1:ascend"}, RefusedError),
    "no such engine": (SAY, {"engine": "cloud"}, UsageError),
    "no such option": (SAY, {"options": {"partition": "gpu"}}, UsageError),
    "no such secret": (SAY, {"secrets": {"KEY": {"env": "NOT_SET_ANYWHERE"}}}, UsageError),
    "no such environment": (SAY, {"environment": "pytorhc"}, NotFoundError),
    "arguments of no function": (SAY, {"kwargs": {"a": 1}}, UsageError),
    "several runs": (SAY, {"count": 3}, UsageError),
    "function of another engine": (add, {"engine": "cloud"}, UsageError),
    "function too large": (add, {"shape": "900x900"}, RefusedError),
    "function with a mistake": (add, {"lancher": "pytorch"}, SpecError),
    "function with an entry": (add, {"entry": "x.py"}, UsageError),
    "function that cannot be sent": (lambda: None, {"kwargs": {"a": (n for n in "x")}}, UsageError),
    "nothing at all": (7, {}, UsageError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_submission_leaves_nothing_behind(client: Client, name: str) -> None:
    job, options, kind = REFUSED[name]
    with pytest.raises(kind):
        client.submit(job, **options)
    assert [
        path for path, (mode, *_) in tree(client.home.parent).items() if mode & 0o170000 != 0o040000
    ] == []
    assert list(client.summaries()) == [] == client.runs()
    assert not list((client.home / "runs").glob("*")) + list((client.home / "functions").glob("*"))


def test_a_launch_that_fails_leaves_nothing_behind(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trainshed.engines.local.engine.subprocess.Popen", fail)
    handles = len(os.listdir("/proc/self/fd"))
    for job in (SAY, add):
        with pytest.raises(OSError, match="No space left"):
            client.submit(job, 1, options=PLAIN) if callable(job) else client.submit(job, options=PLAIN)
    assert client.runs() == [] and not list((client.home / "functions").iterdir())
    assert len(os.listdir("/proc/self/fd")) == handles, "locks and leases are let go"


def test_a_preview_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    for job in (SAY, add):
        prepared = trainshed.plan(job, shape="2x2", options=PLAIN)
        assert len(prepared.plan.nodes) == 2 and prepared.plan.size == 4
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_a_preview_shows_is_what_is_launched(client: Client, launched: None) -> None:
    request = client.request(SAY, shape="2x2", options=PLAIN)
    shown = client.plan(request).plan
    (run,) = client.start(request)
    told = [(node.name, [p.argv for p in node.processes], sorted(node.env)) for node in shown.nodes]
    made = [(node.name, [p.argv for p in node.processes], sorted(node.env)) for node in run.plan().nodes]
    assert told == made and shown.env.keys() == run.plan().env.keys()


def test_a_failure_is_raised_with_the_first_failing_ranks_words(client: Client) -> None:
    run = client.submit({"name": "bad", "command": "echo the data are missing; exit 9"}, options=PLAIN)
    with pytest.raises(RunFailed) as caught:
        run.result(60)
    error = caught.value
    assert error.exit_code == 9 and error.summary.failure and error.summary.failure.cause is Cause.RANK
    assert "exited with 9" in error.message and "    the data are missing" in error.message
    assert str(run.path / "node-0" / "node-0.log") in error.hint


def test_waiting_has_an_end_and_a_stop_has_its_reason(client: Client) -> None:
    run = client.submit({"name": "long", "command": "sleep 300"}, options=PLAIN)
    with pytest.raises(TrainshedError, match=r"has not ended within 0.1 s") as caught:
        run.result(0.1)
    assert caught.value.code == "timeout"
    with pytest.raises(UsageError, match="has not ended"):
        client.remove(run)
    run.wait(60, until=lambda: run.summary().state is RunState.RUNNING)
    run.stop("seen enough")
    summary = run.wait(60)
    assert (summary.state, summary.reason) == (RunState.STOPPED, "seen enough")
    assert run.directory.stop_requests()[0].user == "ann"
    run.stop("again")
    assert len(run.directory.stop_requests()) == 1, "an ended run is left alone"
    until(lambda: not processes_of(run.id), 20, lambda: f"the end of {processes_of(run.id)}")
    client.remove(run)
    assert not run.path.exists() and client.runs() == []


def test_logs_and_metrics_are_there_while_it_runs(client: Client) -> None:
    run = client.submit({"name": "talk", "command": "echo one; echo two"}, shape="2x1", options=PLAIN)
    lines = [(line.node, line.text) for line in run.logs(follow=True)]
    assert sorted(lines) == [(0, "one"), (0, "two"), (1, "one"), (1, "two")]
    assert run.state is RunState.SUCCEEDED
    assert [line.text for line in run.logs(node=1)] == ["one", "two"]
    (run.directory.node(0) / "metrics.jsonl").write_text('{"t": 1, "cpu_percent": 5}\n7\n{"t": 2')
    assert run.metrics(0) == [{"node": 0, "t": 1, "cpu_percent": 5}]


def test_drivers_that_have_ended_are_reaped(client: Client) -> None:
    run = client.submit({"name": "short", "command": "true"}, options=PLAIN)
    (pid,) = (driver.pid for driver in ENGINE._drivers if str(run.path) in driver.args)  # type: ignore[operator]
    assert run.wait(60).state is RunState.SUCCEEDED

    def gone() -> bool:
        ENGINE.poll([])
        return not Path(f"/proc/{pid}").exists()

    until(gone, 20, "the end of the driver, which is not a zombie either")


def test_signal_handlers_of_the_caller_are_left_alone(client: Client) -> None:
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    client.submit({"name": "short", "command": "true"}, options=PLAIN).result(60)
    assert {number: signal.getsignal(number) for number in before} == before


def test_an_ended_run_whose_detail_is_damaged_is_removed_like_any_other(
    client: Client, launched: None
) -> None:
    run = client.submit(SAY, options=PLAIN)
    run.directory.record_end(Finished(Outcome.of(None)))
    (run.directory.events_folder / "node-0-1.jsonl").write_text('{"v": 9}\n')
    with pytest.raises(UnreadableRunError):
        run.events()
    assert run.state is RunState.SUCCEEDED
    client.remove(run)
    assert not run.path.exists()


def test_names_of_functions_stay_functions_when_their_packages_are_imported(tmp_path: Path) -> None:
    code = (
        "import trainshed\n"
        "job = {'name': 'job', 'command': 'true'}\n"
        "for _ in range(2):\n"
        "    assert trainshed.runs() == [] and trainshed.runs({'a': 'b'}) == []\n"
        "    assert trainshed.plan(job, shape='2x1').plan.size == 2\n"
        "import trainshed.runs.directory as directory\n"
        "from trainshed import plan, runs\n"
        "assert directory.Runs and runs() == [] and plan(job).plan.size == 1\n"
    )
    environ = os.environ | {"TRAINSHED_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_public_names_are_there() -> None:
    for name in trainshed.__all__:
        assert getattr(trainshed, name), name
    assert trainshed.JobSpec is JobSpec and trainshed.Client is Client
    with pytest.raises(AttributeError):
        trainshed.nothing  # noqa: B018
