"""RemoteRun: a handle on a run of a server, with the methods of a Run on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from trainshed.api.remote.http import ServerUnreachableError
from trainshed.api.run import RunFailed
from trainshed.errors import NotFoundError, TrainshedError
from trainshed.plan.model import Plan
from trainshed.runs.logs import Line
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import RunState
from trainshed.runs.summary import Summary

if TYPE_CHECKING:
    from trainshed.api.remote.client import RemoteClient

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0
PATIENCE = 300.0
"""Seconds for a server that went away to come back, while a log is followed or an end waited for."""


class RemoteRun:
    """One run of a server: `id`, `state`, `wait()`, `logs()`, `metrics()`, `result()`, `stop()`."""

    def __init__(self, client: RemoteClient, run: str) -> None:
        self._client, self.id = client, run

    def __repr__(self) -> str:
        return f"<trainshed.RemoteRun {self.id} on {self._client.connection.url}>"

    @property
    def url(self) -> str:
        return f"{self._client.connection.url}/api/v1/jobs/{self.id}"

    @property
    def state(self) -> RunState:
        return self.refresh().state

    @property
    def labels(self) -> dict[str, str]:
        return self.refresh().labels

    def details(self) -> dict[str, Any]:
        """Everything that the server tells of the run."""
        found: dict[str, Any] = self._client.connection.call("GET", f"/jobs/{self.id}")
        return found

    def refresh(self) -> Summary:
        return summary_of(self.details())

    summary = refresh

    def wait(self, timeout: float | None = None, *, until: Callable[[], bool] | None = None) -> Summary:
        """Until the run has ended, `timeout` seconds have passed, or `until` says so; the state then."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        pause, heard = _FIRST_PAUSE, time.monotonic()
        while True:
            try:
                summary = self.refresh()
                heard = time.monotonic()
                if summary.state.is_final or heard >= deadline or (until is not None and until()):
                    return summary
            except ServerUnreachableError:
                if time.monotonic() > min(heard + PATIENCE, deadline):
                    raise
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(pause * 1.2, _LONGEST_PAUSE)

    def logs(
        self,
        follow: bool = False,
        rank: int | None = None,
        node: int | None = None,
        last: int | None = None,
    ) -> Iterator[Line]:
        """The lines of the run's processes; with `follow` until the run has ended, also over a server's restart.

        `last`: begin with the last so many lines of each process.
        """
        path = f"/jobs/{self.id}/logs/stream"
        query = {"rank": rank, "node": node, "tail": last, "follow": None if follow else "false"}
        heard, position = time.monotonic(), ""
        pending: list[Line] = []
        while True:
            try:
                for key, name, data in self._client.connection.events(path, query, position):
                    heard = time.monotonic()
                    if name == "end":
                        yield from pending
                        return
                    pending.append(Line(data["node"], data["process"], data["text"], data["time"]))
                    if key:
                        # Only with its position known is a line given: what comes after a cut begins there.
                        position = key
                        yield from pending
                        pending = []
            except ServerUnreachableError:
                if time.monotonic() > heard + PATIENCE:
                    raise
            pending = []
            if time.monotonic() > heard + PATIENCE:
                raise ServerUnreachableError(f"{self.url}: the log was cut off", "follow it again")
            time.sleep(_FIRST_PAUSE)

    def events(self) -> list[dict[str, Any]]:
        """What happened, in the order of its happening, as the server tells it."""
        found: list[dict[str, Any]] = []
        while True:
            page = self._client.connection.call(
                "GET", f"/jobs/{self.id}/events", query={"offset": len(found) or None}
            )
            found += page["events"]
            if len(found) >= page["total"] or not page["events"]:
                return found

    def plan(self) -> Plan:
        """What every node was given; NotFoundError until nodes are known."""
        return Plan.from_json(self._client.connection.call("GET", f"/jobs/{self.id}/plan"))

    def metrics(self, node: int | None = None) -> list[dict[str, Any]]:
        """The agents' latest samples."""
        answer = self._client.connection.call("GET", f"/jobs/{self.id}/metrics", query={"node": node})
        return list(answer["samples"])

    def outputs(self) -> list[dict[str, Any]]:
        """Path, size and time of each file that the run saved."""
        return list(self._client.connection.call("GET", f"/jobs/{self.id}/outputs")["files"])

    def read_output(self, path: str) -> bytes:
        """The content of a file that the run saved."""
        return self._client.connection.raw("GET", f"/jobs/{self.id}/outputs/{path}")

    def stop(self, reason: str = "stopped") -> None:
        self._client.connection.call("POST", f"/jobs/{self.id}/stop", {"reason": reason[:500]})

    def remove(self, force: bool = False) -> None:
        """Remove the run from the server once it has ended; `force` has no meaning there."""
        self._client.connection.call("DELETE", f"/jobs/{self.id}")

    def result(self, timeout: float | None = None) -> Outcome:
        """Wait for the end: the outcome; raises RunFailed if it is not a success."""
        summary = self.wait(timeout)
        if not summary.state.is_final:
            raise TrainshedError(
                f"run {self.id} has not ended within {timeout:g} s: {summary.state.value}",
                "wait longer, or stop it",
                code="timeout",
            )
        if summary.state is not RunState.SUCCEEDED:
            raise RunFailed(summary, self.url)
        assert isinstance(summary.outcome, Outcome)
        return summary.outcome


def summary_of(data: dict[str, Any]) -> Summary:
    """A summary from what the server tells of a run."""
    try:
        state = RunState(data["state"])
        outcome = None
        if state.is_final:
            failure = Failure.from_json(data["failure"]) if data.get("failure") else None
            outcome = Outcome(state, int(data["exit_code"]), failure)
        return Summary(
            id=str(data["id"]),
            state=state,
            name=str(data["name"]),
            engine=str(data["engine"]),
            shape=str(data["shape"]),
            user=str(data["owner"]),
            submitted=data["submitted"],
            started=data["started"],
            ended=data["ended"],
            attempt=int(data["attempt"]),
            emulated=bool(data["emulated"]),
            outcome=outcome,
            reason=str(data["reason"]),
            labels=dict(data["labels"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise NotFoundError(
            f"the server's answer is not as this release knows it: {error!r}", "use the server's release"
        ) from error
