"""The login node's side of `remote`: one request on standard input, one answer on standard output."""

from __future__ import annotations

import json
import os
import secrets as random
import shutil
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
        job = _moved(words["job"], set(words["folders"]), upload)
        chosen = Settings.model_validate(words["settings"])
        here = chosen.model_copy(update={"profile": chosen.profile.model_copy(update={"login": None})})
        runs = ENGINE.submit_here(Request(job, emulate=words["emulate"]), here, words["secrets"])
    except BaseException:
        shutil.rmtree(upload, ignore_errors=True)
        raise
    return {"runs": [str(run.path) for run in runs], "upload": str(upload)}


def _moved(fields: dict[str, Any], folders: set[str], upload: Path) -> JobSpec:
    """The job with its local folders where they were unpacked."""
    if "code" in folders:
        fields["code"] = str(upload / "code")
    for channel in fields.get("inputs", ()):
        if (name := f"inputs/{channel['name']}") in folders:
            channel["source"] = str(upload / name)
    return JobSpec.model_validate(fields)


def _pull(words: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    run = _run(words["run"])
    status = ENGINE.status(run)
    ended = any(event.kind is Kind.FINISHED for event in run.events())
    files, pieces, total = [], [], 0
    for path in _files(run, outputs=ended):
        name, found = str(path.relative_to(run.path)), path.stat()
        size, stamp = words["known"].get(name, (0, 0))
        if (found.st_size, found.st_mtime_ns) == (size, stamp) or total > _MOST:
            continue
        offset = size if name.endswith(_GROWING) and size <= found.st_size else 0
        with path.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(max(0, _MOST - total) + 1)
        whole = offset + len(data) >= found.st_size
        files.append([name, offset, len(data), found.st_mtime_ns if whole else 0])
        pieces.append(data)
        total += len(data)
    return {"files": files, "alive": status.alive, "waiting": status.waiting}, b"".join(pieces)


def _files(run: RunDirectory, outputs: bool) -> Iterator[Path]:
    """What a reader needs. The events that end a run come last, so that all else is there by then."""
    found = [
        p for p in run.path.rglob("*") if p.is_file() and not p.name.startswith(".") and p.suffix != ".lock"
    ]
    inside = run.path / "outputs"
    kept = [p for p in found if outputs or not p.is_relative_to(inside)]
    return iter(sorted(kept, key=lambda p: (p == run.events_path, str(p))))


def _run(path: str) -> RunDirectory:
    """A run of this home, and no other folder."""
    run = RunDirectory(Path(path))
    if run.path.parent != Runs.default().root or not run.events_path.exists():
        raise NotFoundError(f"no run at {path}", "it was removed there")
    return run


def _forget(words: dict[str, Any]) -> None:
    upload = Path(words["upload"])
    if upload.parent == home() / "uploads":
        shutil.rmtree(upload, ignore_errors=True)
    try:
        run = _run(words["run"])
    except NotFoundError:
        return
    ENGINE.forget(run)
    Runs.default().remove(run)


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
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + data)


if __name__ == "__main__":
    main()
