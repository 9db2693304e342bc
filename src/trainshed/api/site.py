"""This home, for a Client on another machine: one request on standard input, one answer on standard output.

Started over SSH by `trainshed.runs.site`, as the user who logged in.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets as random
import shutil
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainshed import registry
from trainshed.api.client import Client
from trainshed.api.run import Run
from trainshed.errors import NotFoundError, TrainshedError
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.spec.job import JobSpec
from trainshed.version import VERSION

_GROWING = (".log", ".jsonl")
_MOST = 64 << 20
"""Bytes sent in one answer; what is left comes with the next."""


class SiteServer:
    """Answers for one home."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._client = Client.from_environment(environ)
        self._uploads = self._client.home / "uploads"

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        match request["action"]:
            case "submit":
                return self._submit(request), b""
            case "pull":
                return self._pull(request)
            case "stop":
                self._run(request["run"]).stop(request["reason"])
            case "forget":
                self._forget(request)
            case "describe":
                engine = registry.load("engine", request["engine"])
                found = engine.describe(self._client.context, request["settings"])
                return {"checks": [asdict(check) for check in found]}, b""
            case other:
                raise TrainshedError(f"unknown action {other!r}", "install the same release on both sides")
        return {}, b""

    def _submit(self, request: dict[str, Any]) -> dict[str, Any]:
        upload = self._uploads / random.token_hex(8)
        upload.mkdir(mode=0o700, parents=True)
        try:
            with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
                archive.extractall(upload, filter="data")
            job = _moved(request["job"], request["targets"], upload)
            prepared = self._client.request(job, labels=request["labels"], emulate=request["emulate"])
            prepared = replace(prepared, secrets=request["secrets"], settings=request["settings"])
            runs = self._client.start(prepared, request["engine"], request["ids"])
        except BaseException:
            shutil.rmtree(upload, ignore_errors=True)
            raise
        return {"runs": [str(run.path) for run in runs], "upload": str(upload)}

    def _pull(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        run = self._run(request["run"])
        summary = run.refresh()
        # Decided before the files are listed: an end recorded later comes with the next answer.
        ended = summary.state.is_final
        known = request["known"]
        found, pieces, room, left = [], [], _MOST, False
        for path in _files(run.directory, ended):
            name = str(path.relative_to(run.path))
            try:
                with path.open("rb") as stream:
                    info = os.fstat(stream.fileno())
                    offset = _offset(name, info, known.get(name, (0, 0, 0)))
                    if offset is None:
                        continue
                    if path.name == "end.jsonl" and left:
                        continue  # it must be the last thing that arrives
                    stream.seek(offset)
                    data = stream.read(min(room, info.st_size - offset))
            except FileNotFoundError:
                continue  # renamed since it was listed: the next answer has it
            left |= offset + len(data) < info.st_size
            if data or not info.st_size:
                found.append([name, offset, len(data), info.st_mtime_ns, info.st_ino])
                pieces.append(data)
                room -= len(data)
        waiting = summary.reason if not ended else ""
        answer = {"files": found, "left": left, "alive": not ended, "waiting": waiting, "problem": ""}
        return answer, b"".join(pieces)

    def _forget(self, request: dict[str, Any]) -> None:
        upload, runs = Path(request["upload"]), Runs.of(self._client.home)
        others: list[str] = []
        with contextlib.suppress(NotFoundError):
            run = self._run(request["run"])
            others = [name for name in run.array if name != run.id and (runs.root / name).exists()]
            self._client.remove(run)
        if not others and upload.parent == self._uploads:
            shutil.rmtree(upload, ignore_errors=True)

    def _run(self, path: str) -> Run:
        """A run of this home, and no other folder."""
        directory = RunDirectory(Path(path))
        root = Runs.of(self._client.home).root
        if directory.path.parent != root or not directory.events_folder.is_dir():
            raise NotFoundError(f"no run at {path}", "it was removed there")
        return Run(self._client, directory)


def _moved(fields: dict[str, Any], targets: Mapping[str, str], upload: Path) -> JobSpec:
    """The job with its local folders and files where they were unpacked."""
    if "code" in targets:
        fields["code"] = str(upload / targets["code"])
    for channel in fields.get("inputs", ()):
        if target := targets.get(f"inputs/{channel['name']}"):
            channel["source"] = str(upload / target)
    return JobSpec.model_validate(fields)


def _offset(name: str, found: os.stat_result, known: Sequence[int]) -> int | None:
    """Where to go on with a file of which the mirror knows size, time and inode; None if it has it whole."""
    size, stamp, inode = known
    if inode != found.st_ino or size > found.st_size:
        return 0
    if stamp == found.st_mtime_ns:
        return size if size < found.st_size else None
    return size if name.endswith(_GROWING) else 0


def _files(run: RunDirectory, ended: bool) -> Iterator[Path]:
    """What a reader needs; the end of a run comes last, and outputs only with it."""
    found = [
        p for p in run.path.rglob("*") if p.is_file() and not p.name.startswith(".") and p.suffix != ".lock"
    ]
    outputs, end = run.path / "outputs", run.events_folder / "end.jsonl"
    kept = [p for p in found if ended or (p != end and not p.is_relative_to(outputs))]
    return iter(sorted(kept, key=lambda p: (p == end, str(p))))


def main() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    named = (("TRAINSHED_HOME", "home"), ("TRAINSHED_ENVS", "environments"))
    # This program is started by the one who logged in, for that user: its variables are the context.
    environ = os.environ | {variable: request[key] for variable, key in named if request.get(key)}
    try:
        if request.get("release") != VERSION:
            raise TrainshedError(
                f"its Trainshed is release {VERSION}, this one {request.get('release')}",
                "install the same release on both sides",
                code="other-release",
            )
        answer, data = SiteServer(environ).answer(request)
    except TrainshedError as error:
        answer, data = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}, b""
    except (tarfile.TarError, OSError, ValidationError) as error:
        message = " ".join(str(error).split())
        answer, data = {"error": {"code": "site", "message": message, "hint": _hint(error)}}, b""
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + data)


def _hint(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "its Trainshed cannot parse the request: install the same release on both sides"
    if isinstance(error, tarfile.TarError):
        return "links in code and inputs must not point outside their folder"
    return "look at that path on the login node"


if __name__ == "__main__":
    main()
