"""Run: a handle on one run, as a Client gives it out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainshed.errors import TrainshedError, UsageError
from trainshed.plan.model import Plan
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Event
from trainshed.runs.logs import Line, follow
from trainshed.runs.outcome import Outcome
from trainshed.runs.states import RunState
from trainshed.runs.summary import Summary, summarise
from trainshed.spec.load import load_fields

if TYPE_CHECKING:
    from trainshed.api.client import Client

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class RunFailed(TrainshedError):
    """A run did not succeed: the message has the first failing rank's last lines and its log's path."""

    code = "run-failed"

    def __init__(self, summary: Summary, path: Path | str, advice: Sequence[str] = ()) -> None:
        """`path` is the run directory, or the run's URL on a server."""
        self.summary = summary
        failure = summary.failure
        lines = [f"run {summary.id} {summary.state.value}: {summary.reason or summary.state.meaning}"]
        lines += [f"    {line}" for line in (failure.last_lines if failure else ())]
        log = path / failure.log if isinstance(path, Path) and failure and failure.log else path
        super().__init__("\n".join(lines), "; ".join([*advice, f"its log: {log}"]))
        self.exit_code = summary.exit_code or 1


class Run:
    """One run: `id`, `state`, `wait()`, `logs()`, `metrics()`, `result()`, `stop()`."""

    def __init__(self, client: Client, directory: RunDirectory) -> None:
        self._client, self.directory = client, directory

    def __repr__(self) -> str:
        return f"<trainshed.Run {self.id}>"

    @property
    def id(self) -> str:
        return self.directory.id

    @property
    def path(self) -> Path:
        """The run directory: everything that is known of the run."""
        return self.directory.path

    @property
    def state(self) -> RunState:
        """The state now; asks the run's engine."""
        return self.refresh().state

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.directory.submission().labels)

    @property
    def array(self) -> list[str]:
        """The ids of all runs that were submitted together with this one; none if it was alone."""
        return list(self.directory.submission().array)

    def summary(self) -> Summary:
        """What the run's record says, without asking the engine."""
        return summarise(self.directory)

    def refresh(self) -> Summary:
        """Ask the engine, record what follows from its answer, and give the state."""
        return self._client.refresh([self])[0]

    def wait(self, timeout: float | None = None, *, until: Callable[[], bool] | None = None) -> Summary:
        """Until the run has ended, `timeout` seconds have passed, or `until` says so; the state then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_PAUSE
        while True:
            summary = self.refresh()
            left = float("inf") if deadline is None else deadline - time.monotonic()
            if summary.state.is_final or left <= 0 or (until is not None and until()):
                return summary
            time.sleep(min(pause, left))
            pause = min(pause * 1.2, _LONGEST_PAUSE)

    def logs(
        self,
        follow: bool = False,
        rank: int | None = None,
        node: int | None = None,
        last: int | None = None,
    ) -> Iterator[Line]:
        """The lines of the run's processes by their time; with `follow` until the run has ended.

        `last`: begin with the last N lines of each process.
        """
        return self._lines(follow, rank, node, last)

    def _lines(self, following: bool, rank: int | None, node: int | None, last: int | None) -> Iterator[Line]:
        if not following:
            self.refresh()
        ended = self.is_ended if following else (lambda: True)
        return follow(self.directory, ended, rank, node, last=last)

    def advice(self) -> list[str]:
        """What to do about the run's failure, where its output names what is missing."""
        from trainshed.api.advice import missing_module

        failure = self.summary().failure
        if failure is None or not failure.last_lines:
            return []
        argv = self._first_process()
        python = argv[0] if argv and "python" in argv[0] else ""
        environment = load_fields(self.path / "job.yaml").get("environment")
        hint = missing_module(failure.last_lines, environment, python)
        return [hint] if hint else []

    def _first_process(self) -> tuple[str, ...]:
        try:
            return next((p.argv for n in self.plan().nodes for p in n.processes if not p.helper), ())
        except TrainshedError:  # no plan yet, or another release's
            return ()

    def outputs(self) -> list[tuple[str, str]]:
        """(name, folder or URL) of each output: its target, or what nodes have saved in the run directory."""
        try:
            channels = load_fields(self.path / "job.yaml").get("outputs", ())
        except UsageError:
            return []  # no job file, or one that cannot be read: whatever else is known of the run stays so
        found = []
        for channel in channels:
            name, target = str(channel["name"]), channel.get("target")
            if target:
                found.append((name, str(target)))
                continue
            folders = (self.directory.outputs(index) / name for index in self.directory.node_indexes())
            found += [(name, str(folder)) for folder in folders if folder.is_dir()]
        return found

    def is_ended(self) -> bool:
        return self.refresh().state.is_final

    def events(self) -> list[Event]:
        """What happened, in the order of its happening."""
        return self.directory.events()

    def plan(self) -> Plan:
        """What every node was given; NotFoundError until nodes are known."""
        return Plan.from_json(self.directory.plan_json())

    def metrics(self, node: int | None = None) -> list[dict[str, Any]]:
        """The agents' samples, one a second and node: CPU, memory, disk, network, devices."""
        found = []
        for index in self.directory.node_indexes() if node is None else [node]:
            try:
                text = (self.directory.node(index) / "metrics.jsonl").read_bytes()
            except FileNotFoundError:
                continue
            for line in text.split(b"\n"):
                try:
                    sample = json.loads(line)
                except ValueError:
                    continue  # the line that is being written
                if isinstance(sample, dict):
                    found.append({"node": index, **sample})
        return found

    def stop(self, reason: str = "stopped") -> None:
        """Ask for the run's end: SIGTERM, the job's grace, SIGKILL. A second call does not wait for outputs."""
        self._client.stop(self, reason)

    def remove(self, force: bool = False) -> None:
        """Remove the run once it has ended; see Client.remove."""
        self._client.remove(self, force)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end. The outcome, or the return value of a function; raises RunFailed otherwise."""
        summary = self.wait(timeout)
        if not summary.state.is_final:
            raise TrainshedError(
                f"run {self.id} has not ended within {timeout:g} s: {summary.state.value}",
                "wait longer, or stop it",
                code="timeout",
            )
        if summary.state is not RunState.SUCCEEDED:
            raise RunFailed(summary, self.path, self.advice())
        from trainshed.api import functions

        if functions.is_function(self.directory):
            return functions.returned(self.directory)
        assert isinstance(summary.outcome, Outcome)
        return summary.outcome
