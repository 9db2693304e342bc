"""Health, readiness, Prometheus, and what engines and devices there are."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Annotated, Any

import psutil
from fastapi import APIRouter, Path, Response

from trainshed import registry
from trainshed.errors import NotFoundError, TrainshedError
from trainshed.server.api.callers import Caller, ThePlatform
from trainshed.server.api.errors import RESPONSES
from trainshed.version import VERSION

router = APIRouter(tags=["system"], responses=RESPONSES)
_LATE = 60.0
"""Seconds without a pass of the loop after which the server is not ready."""


@router.get("/healthz")
def health() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok", "version": VERSION}


@router.get("/readyz")
def ready(platform: ThePlatform) -> dict[str, str]:
    """The database answers and the loop turns."""
    platform.database.check()
    age = time.monotonic() - platform.loop.last_pass
    if age > _LATE:
        raise TrainshedError(
            f"the loop made no pass for {age:.0f} s", "the server's log says why", code="database"
        )
    return {"status": "ok"}


@router.get("/metrics", response_class=Response)
def prometheus(platform: ThePlatform) -> Response:
    """The server's own numbers, for Prometheus. No name of a user, team or run is in them."""
    counts = platform.index.counts()
    lines = ["# TYPE trainshed_runs gauge"]
    lines += [f'trainshed_runs{{state="{state}"}} {count}' for state, count in sorted(counts.items())]
    for name, kind, value in (
        ("trainshed_loop_passes_total", "counter", platform.loop.passes),
        ("trainshed_loop_seconds_total", "counter", round(platform.loop.seconds, 6)),
        ("process_resident_memory_bytes", "gauge", psutil.Process(os.getpid()).memory_info().rss),
    ):
        lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
    return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


@router.get("/api/v1/engines")
def engines(who: Caller) -> dict[str, Any]:
    """Where nodes come from here."""
    return {"engines": sorted(registry.members("engine"))}


@router.get("/api/v1/engines/{engine}")
def engine(
    engine: Annotated[str, Path(pattern=r"^[a-z0-9-]{1,32}$")], who: Caller, platform: ThePlatform
) -> dict[str, Any]:
    """What an engine has on this machine and what it lacks; devices among it."""
    if engine not in registry.members("engine"):
        raise NotFoundError(f"no such engine: {engine!r:.80}", "list the engines first")
    return {"checks": [asdict(check) for check in platform.contexts.operator().describe(engine)]}
