"""/api/v1/jobs/{run}/logs and /outputs: bytes by range, and logs as a stream of server-sent events.

Outputs are a job's own to write, so links in them are not followed: they could lead anywhere.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from trainshed.api import Run
from trainshed.errors import NotFoundError, UsageError
from trainshed.runs.logs import Line, LogReader, log_files
from trainshed.server.api.callers import Caller, ThePlatform
from trainshed.server.api.errors import RESPONSES
from trainshed.server.api.jobs import RunId

router = APIRouter(prefix="/api/v1", tags=["logs and outputs"], responses=RESPONSES)
LARGEST_RANGE = 1 << 20
_PIECE = 1 << 18
_MOST_FILES = 5000
_PAUSE, _HEARTBEAT = 0.2, 15.0
_BATCH = 500
_CURSOR = re.compile(r"(\d{1,6})/([A-Za-z0-9._-]{1,100}):(\d{1,6}):(\d{1,15})\Z")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z")


@router.get("/jobs/{run}/logs")
def list_logs(run: RunId, who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """The logs of a run's processes, with their sizes."""
    found = log_files(platform.jobs.handle(who, run).directory)
    return {
        "logs": [
            {"node": node, "process": path.stem, "size": path.stat().st_size}
            for node, path in islice(found, _MOST_FILES)
        ]
    }


@router.get("/jobs/{run}/logs/stream", response_class=StreamingResponse)
def stream_logs(
    run: RunId,
    who: Caller,
    platform: ThePlatform,
    request: Request,
    rank: Annotated[int | None, Query(ge=0, le=10**7)] = None,
    node: Annotated[int | None, Query(ge=0, le=65536)] = None,
    tail: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    follow: Annotated[bool, Query(description="false: only what is there now")] = True,
    last_event_id: Annotated[str, Header(max_length=65536)] = "",
) -> StreamingResponse:
    """Lines as they are written, until the run has ended: events `line`, then one event `end` with its state.

    The id of an event is where each log goes on: sent as `Last-Event-ID`, no line is missed or repeated.
    """
    found = platform.jobs.handle(who, run)
    follower = _Follower(found, rank, node, tail, _cursor(last_event_id), follow)
    return StreamingResponse(
        _stream(follower, request), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


@router.get("/jobs/{run}/logs/{node}/{process}", response_class=Response)
def read_log(
    run: RunId,
    node: int,
    process: str,
    who: Caller,
    platform: ThePlatform,
    offset: Annotated[int, Query(ge=0, le=1 << 50)] = 0,
    limit: Annotated[int, Query(ge=1, le=LARGEST_RANGE)] = 1 << 16,
) -> Response:
    """Bytes of one log, from `offset` on; `X-Size` is how long it is now."""
    directory = platform.jobs.handle(who, run).directory
    path = next((p for n, p in log_files(directory, node=node) if p.stem == process), None)
    if path is None:
        raise NotFoundError(f"run {run} has no such log: {node}/{process!r:.80}", "list its logs first")
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(min(offset, size))
        data = stream.read(limit)
    return Response(data, media_type="text/plain; charset=utf-8", headers={"X-Size": str(size)})


@router.get("/jobs/{run}/outputs")
def list_outputs(run: RunId, who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """The files that a run has saved, with their sizes; links are left out."""
    root = platform.jobs.handle(who, run).path / "outputs"
    files = list(islice(_files(root, ""), _MOST_FILES + 1))
    return {"files": files[:_MOST_FILES], "complete": len(files) <= _MOST_FILES}


@router.get("/jobs/{run}/outputs/{path:path}", response_class=StreamingResponse)
def read_output(
    run: RunId,
    path: str,
    who: Caller,
    platform: ThePlatform,
    range_: Annotated[str, Header(alias="Range", max_length=100)] = "",
) -> StreamingResponse:
    """A file, or with `Range: bytes=a-b` a part of it."""
    root = platform.jobs.handle(who, run).path / "outputs"
    handle = _open(root, path)
    size = os.fstat(handle).st_size
    try:
        start, end = _range(range_, size)
    except UsageError:
        os.close(handle)
        raise
    headers = {
        "Content-Length": str(max(0, end - start)),
        "Accept-Ranges": "bytes",
        # Written by a job: never shown as a page of this origin.
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
    }
    if range_:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return StreamingResponse(
        _pieces(handle, start, end), 206 if range_ else 200, headers, "application/octet-stream"
    )


class _Follower:
    """Reads all logs of a run on, and knows where each goes on."""

    def __init__(
        self,
        run: Run,
        rank: int | None,
        node: int | None,
        tail: int | None,
        cursor: dict[str, tuple[int, int]],
        follow: bool,
    ) -> None:
        self._run, self._rank, self._node, self._tail, self._cursor = run, rank, node, tail, cursor
        self._readers: dict[Path, LogReader] = {}
        self._first, self._state, self._follow = True, "", follow
        self._lines: Iterator[Line] | None = None

    def lines(self, final: bool) -> Iterator[Line]:
        for index, path in log_files(self._run.directory, self._rank, self._node):
            if path not in self._readers:
                start = self._cursor.get(f"{index}/{path.stem}")
                last = self._tail if self._first and not self._cursor else None
                self._readers[path] = LogReader(index, path, last, start)
        found = [reader.lines(final) for reader in self._readers.values()]
        first, self._first = self._first, False
        merged = (
            heapq.merge(*found, key=lambda line: line.time)
            if first
            else (x for lines in found for x in lines)
        )
        by_name = {(r.node, r.process): r for r in self._readers.values()}
        for line in merged:
            attempts = by_name[line.node, line.process].attempts
            self._cursor[f"{line.node}/{line.process}"] = (attempts, line.end)
            yield line

    def cursor(self) -> str:
        return ",".join(f"{name}:{attempts}:{end}" for name, (attempts, end) in self._cursor.items())

    def read(self) -> tuple[list[Line], str, bool]:
        """Some lines, the state (empty while there is more to follow), and whether these are all for now.

        The server's loop looks after the run meanwhile.
        """
        if self._lines is None:
            last = not self._follow or self._run.directory.end() is not None
            self._state = self._run.summary().state.value if last else ""
            self._lines = self.lines(last)
        batch = list(islice(self._lines, _BATCH))
        complete = len(batch) < _BATCH
        if complete:
            self._lines = None
        return batch, self._state, complete


async def _stream(follower: _Follower, request: Request) -> AsyncIterator[bytes]:
    quiet = 0.0
    while True:
        batch, state, complete = await run_in_threadpool(follower.read)
        if batch:
            quiet = 0.0
            *lines, last = batch
            events = [_event("line", _line(line)) for line in lines]
            yield b"".join([*events, _event("line", _line(last), follower.cursor())])
        if not complete:
            continue
        if state:
            yield _event("end", {"state": state}, follower.cursor())
            return
        if await request.is_disconnected():
            return
        quiet += _PAUSE
        if quiet >= _HEARTBEAT:
            quiet = 0.0
            yield b": still here\n\n"
        await asyncio.sleep(_PAUSE)


def _line(line: Line) -> dict[str, Any]:
    return {"node": line.node, "process": line.process, "text": line.text, "time": line.time}


def _event(name: str, data: dict[str, Any], cursor: str = "") -> bytes:
    head = f"id: {cursor}\n" if cursor else ""
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _cursor(text: str) -> dict[str, tuple[int, int]]:
    found = {}
    for item in filter(None, text.split(",")):
        match = _CURSOR.match(item)
        if match is None:
            raise UsageError("Last-Event-ID: invalid", "send the id of the last event, or none")
        found[f"{match[1]}/{match[2]}"] = (int(match[3]), int(match[4]))
    return found


def _files(folder: Path, prefix: str) -> Iterator[dict[str, Any]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _files(folder / entry.name, f"{name}/")
        elif entry.is_file(follow_symlinks=False):
            info = entry.stat(follow_symlinks=False)
            yield {"path": name, "size": info.st_size, "changed": info.st_mtime}


def _open(root: Path, path: str) -> int:
    """A regular file below the root, reached through no link; NotFoundError for anything else."""
    missing = NotFoundError(f"no such output: {path!r:.200}", "list the outputs first")
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise missing
    opened: list[int] = []
    try:
        where = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.append(where)
        for part in parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            where = os.open(part, flags, dir_fd=where)
            opened.append(where)
        handle = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=where)
    except (OSError, ValueError) as error:
        raise missing from error
    finally:
        for item in opened:
            os.close(item)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise missing
    return handle


def _range(text: str, size: int) -> tuple[int, int]:
    if not text:
        return 0, size
    match = _RANGE.match(text)
    if match and match[1]:
        start, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
    elif match and match[2]:
        start, end = max(0, size - int(match[2])), size
    else:
        start, end = 0, 0
    if start >= end:
        raise UsageError(f"Range: invalid for {size} bytes: {text!r}", "write bytes=FIRST-LAST")
    return start, end


def _pieces(handle: int, start: int, end: int) -> Iterator[bytes]:
    try:
        while start < end and (data := os.pread(handle, min(_PIECE, end - start), start)):
            start += len(data)
            yield data
    finally:
        os.close(handle)
