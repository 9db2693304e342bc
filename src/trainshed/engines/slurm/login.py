"""The login node's side of `remote`: one request on standard input, one answer on standard output."""

from __future__ import annotations

import contextlib
import json
import os
import secrets as random
import shutil
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainshed.engines.base import Request
from trainshed.engines.slurm import doctor
from trainshed.engines.slurm.engine import ENGINE
from trainshed.engines.slurm.profile import Settings
from trainshed.errors import NotFoundError, TrainshedError
from trainshed.runs.directory import RunDirectory, Runs, home
from trainshed.runs.events import Kind
from trainshed.spec.job import JobSpec

_GROWING = (".log", ".jsonl")
_MOST = 64 << 20
"""Bytes sent in one answer; what is left comes with the next."""


def _submit(words: dict[str, Any]) -> dict[str, Any]:
    upload = home() / "uploads" / random.token_hex(8)
    upload.mkdir(mode=0o700, parents=True)
    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            archive.extractall(upload, filter="data")
        job = _moved(words["job"], words["places"], upload)
        chosen = Settings.model_validate(words["settings"])
        here = chosen.model_copy(update={"profile": chosen.profile.model_copy(update={"login": None})})
        runs = ENGINE.submit_here(Request(job, emulate=words["emulate"]), here, words["secrets"])
    except BaseException:
        shutil.rmtree(upload, ignore_errors=True)
        raise
    return {"runs": [str(run.path) for run in runs], "upload": str(upload)}


def _moved(fields: dict[str, Any], places: Mapping[str, str], upload: Path) -> JobSpec:
    """The job with its local folders and files where they were unpacked."""
    if "code" in places:
        fields["code"] = str(upload / places["code"])
    for channel in fields.get("inputs", ()):
        if place := places.get(f"inputs/{channel['name']}"):
            channel["source"] = str(upload / place)
    return JobSpec.model_validate(fields)


def _pull(words: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    run = _run(words["run"])
    status = ENGINE.status(run)
    # Events are sent as far as they are now: an end told later finds the outputs in the next answer.
    told = run.events_path.stat().st_size
    ended = any(event.kind is Kind.FINISHED for event in run.events())
    files, pieces, room, left = [], [], _MOST, False
    for path in _files(run, ended):
        name = str(path.relative_to(run.path))
        try:
            with path.open("rb") as stream:
                found = os.fstat(stream.fileno())
                size = told if path == run.events_path else found.st_size
                offset = _offset(name, found, size, words["known"].get(name, (0, 0, 0)))
                if offset is None:
                    continue
                stream.seek(offset)
                data = stream.read(min(room, size - offset))
        except FileNotFoundError:
            continue  # renamed since it was listed: the next answer has it
        left |= offset + len(data) < size
        if data or not size:
            files.append([name, offset, len(data), found.st_mtime_ns, found.st_ino])
            pieces.append(data)
            room -= len(data)
    return {"files": files, "left": left, "alive": status.alive, "waiting": status.waiting}, b"".join(pieces)


def _offset(name: str, found: os.stat_result, size: int, known: Sequence[int]) -> int | None:
    """Where to go on with a file of which the mirror knows size, time and inode; None if it has it whole."""
    there, stamp, inode = known
    if inode != found.st_ino or there > size:
        return 0
    if stamp == found.st_mtime_ns:
        return there if there < size else None
    return there if name.endswith(_GROWING) else 0


def _files(run: RunDirectory, ended: bool) -> Iterator[Path]:
    """What a reader needs. The events that end a run come last, so that all else is there by then."""
    found = [
        p for p in run.path.rglob("*") if p.is_file() and not p.name.startswith(".") and p.suffix != ".lock"
    ]
    inside = run.path / "outputs"
    kept = [p for p in found if ended or not p.is_relative_to(inside)]
    return iter(sorted(kept, key=lambda p: ((p == run.events_path) == ended, str(p))))


def _run(path: str) -> RunDirectory:
    """A run of this home, and no other folder."""
    run = RunDirectory(Path(path))
    if run.path.parent != Runs.default().root or not run.events_path.exists():
        raise NotFoundError(f"no run at {path}", "it was removed there")
    return run


def _forget(words: dict[str, Any]) -> None:
    upload, runs = Path(words["upload"]), Runs.default()
    others: list[str] = []
    with contextlib.suppress(NotFoundError):
        run = _run(words["run"])
        others = [name for name in run.array() if name != run.id and (runs.root / name).exists()]
        ENGINE.forget(run)
        runs.remove(run)
    if not others and upload.parent == home() / "uploads":
        shutil.rmtree(upload, ignore_errors=True)


def _answer(words: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    match words["action"]:
        case "submit":
            return _submit(words), b""
        case "pull":
            return _pull(words)
        case "stop":
            ENGINE.stop(_run(words["run"]), words["reason"])
        case "forget":
            _forget(words)
        case "describe":
            found = doctor.checks(Settings.model_validate(words["settings"]))
            return {"checks": [asdict(check) for check in found]}, b""
    return {}, b""


def main() -> None:
    words = json.loads(sys.stdin.buffer.readline())
    for variable, key in (("TRAINSHED_HOME", "home"), ("TRAINSHED_ENVS", "environments")):
        if words.get(key):
            os.environ[variable] = words[key]
    try:
        answer, data = _answer(words)
    except TrainshedError as error:
        told = {"code": error.code, "message": error.message, "hint": error.hint}
        answer, data = {"error": told}, b""
    except (tarfile.TarError, OSError, ValidationError) as error:
        told = {"code": "login", "message": " ".join(str(error).split()), "hint": _hint(error)}
        answer, data = {"error": told}, b""
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + data)


def _hint(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "its Trainshed does not understand this one's words: install the same version there"
    if isinstance(error, tarfile.TarError):
        return "links in code and inputs must not lead out of their folder"
    return "look at that path on the login node"


if __name__ == "__main__":
    main()
