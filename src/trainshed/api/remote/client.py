"""RemoteClient: submits, lists, follows and stops runs of a server, with the methods of a Client.

A job file is read here, with its mistakes told here; its code is sent file by file, only what the
server does not have. References to secrets name what their owner stored on the server.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainshed.api.client import Client, Job
from trainshed.api.remote.http import MissingUploadsError, ServerConnection
from trainshed.api.remote.run import RemoteRun, summary_of
from trainshed.codefiles import code_files
from trainshed.engines.base import Check, Request
from trainshed.errors import NotFoundError, UsageError
from trainshed.plan.model import Plan
from trainshed.runs.summary import Summary

_PAGE = 200


class RemoteClient:
    """The runs of a server that one user may see."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        team: str | None = None,
        labels: Mapping[str, str] | None = None,
        certificate: str | Path | None = None,
        fingerprint: str | None = None,
    ) -> None:
        """`certificate` is the server's own, or `fingerprint` its SHA-256; else the system's authorities decide."""
        self.connection = ServerConnection(
            url.rstrip("/"), token, str(certificate) if certificate else None, fingerprint
        )
        self.team = team
        self._local = Client(labels=labels)

    def submit(self, job: Job, *args: Any, engine: str = "local", **options: Any) -> RemoteRun:
        """As `Client.submit`; the code goes to the server, and the run waits for its turn there."""
        return self.start(self._local.request(job, *args, **options), engine)[0]

    def run(self, job: Job, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        """Submit a job and wait for it: its outcome; raises RunFailed."""
        return self.submit(job, *args, **options).result(timeout)

    def request(self, job: Job, *args: Any, **options: Any) -> Request:
        return self._local.request(job, *args, **options)

    def start(self, request: Request, engine: str = "local") -> list[RemoteRun]:
        """Submit, once: sent again after a lost answer, it makes no second run."""
        body, folder, names = self._body(request, engine)
        key = {"Idempotency-Key": secrets.token_hex(16)}
        for _ in range(3):
            try:
                answer = self.connection.call("POST", "/jobs", body, headers=key)
                return [RemoteRun(self, str(answer["id"]))]
            except MissingUploadsError as missing:
                self._upload(folder, names, missing.digests)
        raise UsageError("the server does not take the code", "files of it change while they are sent")

    def start_each(self, requests: Sequence[Request], engine: str = "local") -> Iterator[list[RemoteRun]]:
        for request in requests:
            yield self.start(request, engine)

    def plan(self, request: Request, engine: str = "local") -> Plan:
        """What `start` would do on the server, without doing any of it."""
        body, folder, names = self._body(request, engine)
        for _ in range(3):
            try:
                answer = self.connection.call("POST", "/jobs", body | {"dry_run": True})
                return Plan.from_json(answer["plan"])
            except MissingUploadsError as missing:
                self._upload(folder, names, missing.digests)
        raise UsageError("the server does not take the code", "files of it change while they are sent")

    def get(self, run: str) -> RemoteRun:
        """The run of that id, or the only one whose id begins so; `last` is your newest."""
        if run == "last":
            me = self.connection.call("GET", "/me")["name"]
            jobs = self.connection.call("GET", "/jobs", query={"owner": me, "limit": 1})["jobs"]
            if not jobs:
                raise NotFoundError("there is no run yet", "`trainshed run job.yaml` makes one")
            return RemoteRun(self, str(jobs[0]["id"]))
        query = {"search": run[:100], "limit": _PAGE}
        found = [str(j["id"]) for j in self.connection.call("GET", "/jobs", query=query)["jobs"]]
        found = [run] if run in found else [name for name in found if name.startswith(run)]
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} runs begin with {run!r}: {', '.join(found[:5])}", "write more of the id"
            )
        if not found:
            raise NotFoundError(f"no run is called {run!r}", "`trainshed ps -a` lists the runs")
        return RemoteRun(self, found[0])

    def runs(self, labels: Mapping[str, str] | None = None) -> list[RemoteRun]:
        """All runs that you may see, newest first; only those that carry all of `labels` if some are given."""
        return [RemoteRun(self, str(job["id"])) for job in self._jobs(labels)]

    def summaries(self) -> list[Summary]:
        """The state of every run that you may see, newest first."""
        return [summary_of(job) for job in self._jobs(None)]

    def stop(self, run: RemoteRun, reason: str) -> None:
        run.stop(reason)

    def remove(self, run: RemoteRun, force: bool = False) -> None:
        """Remove an ended run from the server."""
        run.remove(force)

    def describe(self, engine: str = "local") -> list[Check]:
        """What an engine has on the server's machine, and what it lacks."""
        found = self.connection.call("GET", f"/engines/{engine}")["checks"]
        return [Check(**check) for check in found]

    def _jobs(self, labels: Mapping[str, str] | None) -> Iterator[dict[str, Any]]:
        key = ""
        marks = [f"{name}={value}" for name, value in (labels or {}).items()]
        while True:
            page = self.connection.call(
                "GET", "/jobs", query={"label": marks or None, "limit": _PAGE, "after": key}
            )
            yield from page["jobs"]
            key = page["next"]
            if not key:
                return

    def _body(self, request: Request, engine: str) -> tuple[dict[str, Any], Path, dict[str, str]]:
        """The request as the server wants it, the code folder, and its files by their digest."""
        fields = request.job.model_dump(mode="json", exclude_unset=True)
        code = fields.pop("code", None)
        folder, names, files = Path(), {}, {}
        if code is not None and "://" not in code:
            folder = Path(code)
            for name in code_files(folder, request.job.inputs_in_code).names:
                data = folder / name
                digest = hashlib.sha256(data.read_bytes()).hexdigest()
                names[digest] = name
                files[name] = {"sha256": digest, "executable": bool(data.stat().st_mode & 0o100)}
        elif code is not None:
            fields["code"] = code
        body = {
            "job": fields,
            "files": files,
            "team": self.team,
            "engine": engine,
            "labels": dict(request.labels),
            "emulate": request.emulate,
            "options": dict(request.options),
        }
        return body, folder, names

    def _upload(self, folder: Path, names: Mapping[str, str], digests: Sequence[str]) -> None:
        for digest in digests:
            if digest in names:
                self.connection.call("PUT", f"/files/{digest}", (folder / names[digest]).read_bytes())
