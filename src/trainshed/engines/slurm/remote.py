"""Slurm from a laptop: the login node does the work over SSH, and its run directory is mirrored here.

Each call is one SSH command (connections are shared) that runs `login` there,
with its request on standard input: no secret is put on a command line. The
mirror is a copy for readers; the run directory at the site stays the truth.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from trainshed.engines.base import Check, Request, Status
from trainshed.engines.slurm.profile import Profile, Settings
from trainshed.errors import RefusedError, TrainshedError, UsageError
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import Kind
from trainshed.spec.job import JobSpec

_MARK = "remote.json"
_PULLED = ".pulled.json"
"""Time and inode, at the site, of each file that the mirror has at least in part."""
_FRESH = 2.0
_LIMIT = 120.0
_asked: dict[Path, tuple[float, Status]] = {}


class LoginError(TrainshedError):
    """The login node could not be reached, or did not do what it was asked."""

    code = "login"


def is_mirror(run: RunDirectory) -> bool:
    return (run.path / _MARK).exists()


def submit(request: Request, chosen: Settings, values: dict[str, str]) -> list[RunDirectory]:
    """Upload the job's local folders, submit there, and begin a mirror of each run."""
    job = request.job
    sources = _local_sources(job)
    places = {name: _place(name, path) for name, path in sources.items()}
    words = {
        "action": "submit",
        "job": job.model_dump(mode="json", exclude_defaults=True),
        "settings": chosen.model_dump(mode="json", exclude_defaults=True),
        "emulate": request.emulate,
        "secrets": values,
        "places": places,
    }

    def upload(stream: IO[bytes]) -> None:
        with tarfile.open(fileobj=stream, mode="w|") as archive:
            for name, path in sources.items():
                archive.add(path, arcname=places[name])

    answer, _ = _call(chosen.profile, words, upload)
    runs = [RunDirectory(Runs.default().root / Path(path).name) for path in answer["runs"]]
    for run, path in zip(runs, answer["runs"], strict=True):
        run.path.mkdir(parents=True)
        mark = {
            "path": path,
            "upload": answer["upload"],
            "profile": chosen.profile.model_dump(mode="json", exclude_unset=True),
        }
        run.write(_MARK, json.dumps(mark))
        # It is there from now on, whether or not its files can be fetched yet.
        array = [other.id for other in runs] if len(runs) > 1 else []
        run.append(Kind.SUBMITTED, name=job.name, engine="slurm", shape=job.resources.shape, array=array)
    for run in runs:
        with contextlib.suppress(LoginError):
            pull(run)
    return runs


def status(run: RunDirectory) -> Status:
    """The site's word, with the mirror brought up to date."""
    stamp, known = _asked.get(run.path, (float("-inf"), Status()))
    if time.monotonic() - stamp < _FRESH:
        return known
    try:
        known = pull(run)
    except LoginError as error:
        # Not to be reached is not the same as gone.
        known = Status(alive=True, waiting=f"not known now: {error.message}")
    _asked[run.path] = (time.monotonic(), known)
    return known


def pull(run: RunDirectory) -> Status:
    """Fetch what has been written at the site since the last time."""
    path, profile = _mark(run)
    pulled = _pulled(run)
    known = {name: [(run.path / name).stat().st_size, *seen] for name, seen in pulled.items()}
    answer, data = _call(profile, {"action": "pull", "run": path, "known": known})
    view = memoryview(data)
    for name, offset, length, stamp, inode in answer["files"]:
        target = run.path / name
        if not target.resolve().is_relative_to(run.path.resolve()) or Path(name).name in (_MARK, _PULLED):
            raise LoginError(
                f"the login node sent a file outside the run: {name!r}", "do not trust this host"
            )
        piece, view = view[:length], view[length:]
        if offset and (not target.exists() or target.stat().st_size < offset):
            continue  # another reader has begun it anew meanwhile: the next time tells
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("r+b" if offset else "wb") as stream:
            stream.seek(offset)
            stream.write(piece)
            stream.truncate()
        os.utime(target, ns=(stamp, stamp))
        pulled[name] = [stamp, inode]
    if answer["files"]:
        run.write(_PULLED, json.dumps(pulled))
    if answer["left"] and not answer["alive"]:
        return Status(True, "what it has written is still being fetched")
    return Status(answer["alive"], answer["waiting"])


def stop(run: RunDirectory, reason: str) -> None:
    path, profile = _mark(run)
    _call(profile, {"action": "stop", "run": path, "reason": reason})
    _asked.pop(run.path, None)


def forget(run: RunDirectory) -> None:
    """Remove the run at the site as well, with what was uploaded for it."""
    path, profile = _mark(run)
    upload = json.loads((run.path / _MARK).read_text())["upload"]
    _call(profile, {"action": "forget", "run": path, "upload": upload})


def describe(chosen: Settings) -> list[Check]:
    try:
        answer, _ = _call(
            chosen.profile,
            {"action": "describe", "settings": chosen.model_dump(mode="json", exclude_defaults=True)},
        )
    except LoginError as error:
        return [Check("login", False, error.message, error.hint)]
    return [Check("login", True, str(chosen.profile.login)), *(Check(**item) for item in answer["checks"])]


def _call(
    profile: Profile, words: dict[str, Any], upload: Callable[[IO[bytes]], None] | None = None
) -> tuple[dict[str, Any], bytes]:
    """One request and its answer: a line of JSON, then bytes."""
    words |= {"home": profile.home, "environments": profile.environments}
    command = [*_ssh(profile), f"{profile.python or 'python3'} -m trainshed.engines.slurm.login"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # what it answers says why it reads no further
            process.stdin.write(json.dumps(words).encode() + b"\n")
            if upload:
                upload(process.stdin)
        out, err = process.communicate(timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        raise LoginError(
            f"{profile.login} did not answer within {_LIMIT:.0f} s", "try `ssh` by hand"
        ) from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    line, _, data = out.partition(b"\n")
    try:
        answer: dict[str, Any] = json.loads(line)
    except ValueError:
        said = err.decode("utf-8", "replace").strip().splitlines()
        hint = "it must have Trainshed: trainshed profile add NAME python=/path/to/its/python"
        raise LoginError(f"{profile.login}: {said[-1] if said else 'no answer'}", hint) from None
    if error := answer.get("error"):
        kind = RefusedError if error["code"] == "refused" else LoginError
        raise kind(f"{profile.login}: {error['message']}", error["hint"], code=error["code"])
    return answer, data


def _ssh(profile: Profile) -> list[str]:
    # A short path: the name of a Unix socket may have a hundred characters and no more.
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"trainshed-ssh-{os.getuid()}"  # noqa: S108
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise UsageError(f"{folder} belongs to somebody else", "remove it")
    host, _, port = str(profile.login).partition(":")
    command = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ControlMaster=auto"]
    command += ["-o", f"ControlPath={folder}/%C", "-o", "ControlPersist=60", *profile.ssh]
    # Of two values ssh takes the first: a site's own comes before.
    command += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
    return [*command, *(["-p", port] if port else []), host]


def _local_sources(job: JobSpec) -> dict[str, Path]:
    """What must be uploaded, by what it is of the job; outputs and logs can only come back with the run."""
    if job.log_url and "://" not in job.log_url:
        raise UsageError(f"log_url is {job.log_url!r}, a folder of this machine", "give a URL")
    for channel in job.outputs:
        if channel.target and "://" not in channel.target:
            raise UsageError(
                f"outputs.{channel.name}.target is {channel.target!r}, a folder of this machine",
                "leave target out: the output then comes back with the run; or give a URL",
            )
    sources = {"code": job.code, **{f"inputs/{c.name}": c.source for c in job.inputs}}
    return {name: Path(path) for name, path in sources.items() if path and "://" not in path}


def _place(name: str, path: Path) -> str:
    """Where it lies in the archive: a single file keeps its own name."""
    return name if path.is_dir() else f"{name}/{path.name}"


def _mark(run: RunDirectory) -> tuple[str, Profile]:
    data = json.loads((run.path / _MARK).read_text())
    return data["path"], Profile.model_validate(data["profile"])


def _pulled(run: RunDirectory) -> dict[str, list[int]]:
    try:
        found: dict[str, list[int]] = json.loads((run.path / _PULLED).read_text())
    except FileNotFoundError:
        return {}
    return {name: seen for name, seen in found.items() if (run.path / name).is_file()}
