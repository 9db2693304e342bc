"""Runs in a Trainshed home on another machine, reached over SSH.

Each call is one SSH command (connections are shared) that runs
`trainshed.api.site` there, with its request on standard input: no secret is put
on a command line. The mirror here is a copy for readers; the run directory at
the site stays the truth.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from trainshed.errors import NotFoundError, RefusedError, TrainshedError, UsageError
from trainshed.files import write_atomic
from trainshed.runs.directory import RunDirectory
from trainshed.runs.locations import FILE, RunLocation
from trainshed.runs.summary import EngineStatus
from trainshed.version import VERSION

_PULLED = ".pulled.json"
"""Time and inode, at the site, of each file that the mirror has at least in part."""
_END = Path("events/end.jsonl")
_LIMIT = 120.0
_LOGIN = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?\Z")


@dataclass(frozen=True, slots=True)
class RemoteSite:
    """How another machine's Trainshed is reached."""

    login: str
    """user@host[:port]"""
    ssh: tuple[str, ...] = ()
    """Further options for ssh."""
    python: str = "python3"
    home: str = ""
    environments: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RemoteSite:
        return cls(**(data | {"ssh": tuple(data.get("ssh", ()))}))


def check_login(login: str) -> str:
    """The login, if it is one: ssh would take an argument that begins with `-` for its own option."""
    if not _LOGIN.match(login):
        raise ValueError(f"invalid login: {login!r}, write user@host[:port]")
    return login


class SiteError(TrainshedError):
    """The other machine could not be reached, or did not do what was asked."""

    code = "site"


def pull(run: RunDirectory, location: RunLocation) -> EngineStatus:
    """Fetch what has been written at the site since the last time; the status is the site's."""
    pulled = _pulled(run)
    known = {name: [(run.path / name).stat().st_size, *seen] for name, seen in pulled.items()}
    answer, data = call(
        RemoteSite.from_json(location.site), {"action": "pull", "run": location.path, "known": known}
    )
    view = memoryview(data)
    for name, offset, length, stamp, inode in answer["files"]:
        target = run.path / name
        if not target.resolve().is_relative_to(run.path.resolve()) or target.name in (FILE, _PULLED):
            raise SiteError(
                f"{location.site['login']} sent a file outside the run: {name!r}", "do not trust this host"
            )
        piece, view = view[:length], view[length:]
        if target == run.path / _END and not offset:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, bytes(piece))  # readers see all of it or nothing
            pulled[name] = [stamp, inode]
            continue
        if offset and (not target.exists() or target.stat().st_size < offset):
            continue  # the copy was replaced meanwhile: the next pull fetches it whole
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("r+b" if offset else "wb") as stream:
            stream.seek(offset)
            stream.write(piece)
            stream.truncate()
        os.utime(target, ns=(stamp, stamp))
        pulled[name] = [stamp, inode]
    if answer["files"]:
        run.write(_PULLED, json.dumps(pulled))
    if answer["left"] or not answer["alive"]:
        # What ends the run is recorded at the site, and comes with the last files.
        return EngineStatus(alive=True, waiting="its files are still being fetched")
    return EngineStatus(alive=True, waiting=answer["waiting"], problem=answer["problem"])


def stop(location: RunLocation, reason: str) -> None:
    call(RemoteSite.from_json(location.site), {"action": "stop", "run": location.path, "reason": reason})


def forget(location: RunLocation) -> None:
    """Remove the run at the site as well, with what was uploaded for it."""
    request = {"action": "forget", "run": location.path, "upload": location.upload}
    call(RemoteSite.from_json(location.site), request)


def call(
    site: RemoteSite, request: dict[str, Any], upload: Callable[[IO[bytes]], None] | None = None
) -> tuple[dict[str, Any], bytes]:
    """One request and its answer: a line of JSON, then bytes."""
    request |= {"release": VERSION, "home": site.home, "environments": site.environments}
    command = [*_ssh(site), f"{shlex.quote(site.python)} -m trainshed.api.site"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # its answer says why it reads no further
            process.stdin.write(json.dumps(request).encode() + b"\n")
            if upload:
                upload(process.stdin)
        out, err = process.communicate(timeout=_LIMIT)
    except subprocess.TimeoutExpired as error:
        raise SiteError(f"{site.login} did not answer within {_LIMIT:.0f} s", "try `ssh` by hand") from error
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    line, _, data = out.partition(b"\n")
    try:
        answer: dict[str, Any] = json.loads(line)
    except ValueError as error:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        hint = "it must have Trainshed: trainshed profile add NAME python=/path/to/its/python"
        raise SiteError(f"{site.login}: {lines[-1] if lines else 'no answer'}", hint) from error
    if problem := answer.get("error"):
        raise _error(problem, f"{site.login}: {problem['message']}")
    return answer, data


def _error(problem: dict[str, str], message: str) -> TrainshedError:
    """An error of the site under its own code."""
    kinds: dict[str, type[TrainshedError]] = {"refused": RefusedError, "not-found": NotFoundError}
    return kinds.get(problem["code"], SiteError)(message, problem["hint"], code=problem["code"])


def _ssh(site: RemoteSite) -> list[str]:
    # A short path: the name of a Unix socket may have a hundred characters and no more.
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"trainshed-ssh-{os.getuid()}"  # noqa: S108
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise UsageError(f"{folder} belongs to another user", "remove it")
    try:
        host, _, port = check_login(site.login).partition(":")
    except ValueError as error:
        raise UsageError(str(error), "fix the profile's login") from error
    command = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ControlMaster=auto"]
    command += ["-o", f"ControlPath={folder}/%C", "-o", "ControlPersist=60", *site.ssh]
    # Of two values ssh takes the first: a site's own comes before.
    command += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]
    return [*command, *(["-p", port] if port else []), "--", host]


def _pulled(run: RunDirectory) -> dict[str, list[int]]:
    try:
        found: dict[str, list[int]] = json.loads((run.path / _PULLED).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: seen for name, seen in found.items() if (run.path / name).is_file()}
