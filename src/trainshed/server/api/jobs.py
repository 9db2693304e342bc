"""/api/v1/jobs: submit, list, show, stop, delete, clone, events, plan, metrics; and uploads of code."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from trainshed.errors import UsageError
from trainshed.runs.events import to_line
from trainshed.runs.states import RunState
from trainshed.runs.summary import summarise
from trainshed.server.api.callers import Caller, ThePlatform
from trainshed.server.api.errors import RESPONSES
from trainshed.server.index import RunFilter
from trainshed.server.jobs import SubmitRequest, public
from trainshed.server.uploads import LARGEST_FILE

router = APIRouter(prefix="/api/v1", tags=["jobs"], responses=RESPONSES)
RunId = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
_MOST_EVENTS = 1000
_MOST_SAMPLES = 2000


class CodeFile(BaseModel):
    """A file of the code, by its content."""

    model_config = ConfigDict(extra="forbid")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    executable: bool = False


class SubmitBody(BaseModel):
    """A job and how it is to run."""

    model_config = ConfigDict(extra="forbid")
    job: dict[str, Any] = Field(description="fields of a job file, without `code`")
    files: dict[str, CodeFile] = Field(default_factory=dict, description="the code: path → content")
    team: str | None = Field(None, description="needed by users of several teams")
    engine: str = Field("local", pattern=r"^[a-z0-9-]{1,32}$")
    shape: str | None = Field(None, max_length=64)
    labels: dict[str, str] = Field(default_factory=dict)
    emulate: bool = False
    options: dict[str, str] = Field(default_factory=dict, description="of the engine; administrators only")
    dry_run: bool = Field(False, description="answer with the plan, and start nothing")


class CloneBody(BaseModel):
    """What the new run has otherwise than the old one."""

    model_config = ConfigDict(extra="forbid")
    changes: dict[str, Any] = Field(default_factory=dict)
    team: str | None = None


class StopBody(BaseModel):
    """Why a run is stopped."""

    model_config = ConfigDict(extra="forbid")
    reason: str = Field(default="stopped through the server", max_length=500)


class JobView(BaseModel):
    """A run in lists."""

    id: str
    owner: str
    team: str
    state: RunState
    reason: str
    name: str
    engine: str
    shape: str
    kind: str
    devices: int
    emulated: bool
    labels: dict[str, str]
    attempt: int
    exit_code: int | None
    submitted: float
    started: float | None
    ended: float | None
    is_queued: bool
    priority: int
    preemptible: bool


class JobPage(BaseModel):
    """Some runs, newest first; `next` is the `after` of the next page."""

    jobs: list[JobView]
    next: str = ""


class Submitted202(BaseModel):
    """The new run, or of a dry run its plan."""

    id: str = ""
    plan: dict[str, Any] | None = None


@router.post("/jobs", status_code=202)
def submit(
    body: SubmitBody,
    who: Caller,
    platform: ThePlatform,
    idempotency_key: Annotated[str, Header(max_length=128)] = "",
) -> Submitted202:
    """Submit a job. With `Idempotency-Key` the same request makes one run, however often it is sent."""
    wanted = SubmitRequest(
        body.job,
        {name: (item.sha256, item.executable) for name, item in body.files.items()},
        body.team,
        body.engine,
        body.shape,
        body.labels,
        body.emulate,
        body.options,
    )
    if body.dry_run:
        return Submitted202(plan=platform.jobs.preview(who, wanted))
    return Submitted202(id=platform.jobs.submit(who, wanted, idempotency_key))


@router.get("/jobs")
def list_jobs(
    who: Caller,
    platform: ThePlatform,
    state: RunState | None = None,
    owner: Annotated[str, Query(max_length=64)] = "",
    team: Annotated[str, Query(max_length=64)] = "",
    name: Annotated[str, Query(max_length=64)] = "",
    search: Annotated[str, Query(max_length=100, description="part of id, name, owner or label")] = "",
    label: Annotated[list[str], Query(max_length=10, description="NAME=VALUE")] = [],  # noqa: B006
    after: Annotated[str, Query(max_length=512)] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> JobPage:
    """The runs of your teams, newest first."""
    labels = {}
    for item in label:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"label: {item!r:.80} is not NAME=VALUE", "write label=NAME=VALUE")
        labels[key] = value
    wanted = RunFilter(state, owner, team, name, search, labels)
    rows, key = platform.index.page(who, wanted, after, limit)
    return JobPage(jobs=[JobView(**public(row)) for row in rows], next=key)


@router.get("/jobs/{run}")
def show(run: RunId, who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """Everything known of a run: its record, its state now, its outputs and notes."""
    found = platform.jobs.handle(who, run)
    row = public(platform.jobs.get(who, run))
    summary = summarise(found.directory).to_json()
    if row["is_queued"]:
        summary["reason"] = row["reason"]
    return row | summary | {"notes": found.directory.notes()}


@router.post("/jobs/{run}/stop", status_code=202)
def stop(run: RunId, who: Caller, platform: ThePlatform, body: StopBody | None = None) -> JobView:
    """Ask for a run's end: SIGTERM, its grace, SIGKILL. One that waits ends at once."""
    platform.jobs.stop(who, run, (body or StopBody()).reason)
    return JobView(**public(platform.jobs.get(who, run)))


@router.delete("/jobs/{run}", status_code=204)
def remove(run: RunId, who: Caller, platform: ThePlatform) -> None:
    """Remove an ended run with its logs and outputs."""
    platform.jobs.delete(who, run)


@router.post("/jobs/{run}/clone", status_code=202)
def clone(run: RunId, who: Caller, platform: ThePlatform, body: CloneBody | None = None) -> Submitted202:
    """Submit the job of a run again, with the same code and other values for some fields."""
    changed = body or CloneBody()
    return Submitted202(id=platform.jobs.clone(who, run, changed.changes, changed.team))


@router.get("/jobs/{run}/events")
def events(
    run: RunId,
    who: Caller,
    platform: ThePlatform,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> dict[str, Any]:
    """What happened, in the order of its happening, a thousand at a time."""
    found = platform.jobs.handle(who, run).events()
    shown = found[offset : offset + _MOST_EVENTS]
    items = [json.loads(to_line(event.body, event.time)) | {"writer": event.writer} for event in shown]
    return {"events": items, "total": len(found)}


@router.get("/jobs/{run}/plan")
def plan(run: RunId, who: Caller, platform: ThePlatform) -> dict[str, Any]:
    """What every node was given; 404 until nodes are known."""
    return platform.jobs.handle(who, run).directory.plan_json()


@router.get("/jobs/{run}/metrics")
def metrics(
    run: RunId,
    who: Caller,
    platform: ThePlatform,
    node: Annotated[int | None, Query(ge=0, le=65536)] = None,
) -> dict[str, Any]:
    """The agents' latest samples, one per second and node."""
    samples = platform.jobs.handle(who, run).metrics(node)
    return {"samples": samples[-_MOST_SAMPLES:], "total": len(samples)}


@router.post("/files/missing")
def missing_files(digests: list[str], who: Caller, platform: ThePlatform) -> dict[str, list[str]]:
    """Which contents of these SHA-256 the server does not have from you yet."""
    return {"missing": platform.uploads.missing(who.name, digests[:20_000])}


@router.put("/files/{digest}", status_code=204, response_class=Response)
async def put_file(digest: Digest, request: Request, who: Caller, platform: ThePlatform) -> None:
    """Upload a file of the code, once for all jobs that use it."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST_FILE:
            raise UsageError(f"a file has more than {LARGEST_FILE} bytes", "leave it out of the code")
    await run_in_threadpool(platform.uploads.put, who.name, digest, bytes(data))
