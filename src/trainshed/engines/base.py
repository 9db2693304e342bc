"""What an engine may say: where nodes come from. It knows no framework and no platform contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trainshed.errors import TrainshedError
from trainshed.plan.model import Plan
from trainshed.runs.directory import RunDirectory
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import DeviceKind


@dataclass(frozen=True)
class Request:
    """A job as handed to an engine, with what only this submission decides."""

    job: JobSpec
    emulate: bool = False
    attached: bool = False
    """Whether the run ends with the process that submitted it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings of the engine itself (partition, isolation, …), as text."""

    @property
    def emulated(self) -> bool:
        """Whether devices are really stood in for: there is nothing to emulate of a CPU."""
        return self.emulate and self.job.resources.kind is not DeviceKind.CPU


@dataclass(frozen=True)
class Preview:
    """A dry run: the plan, and the engine's own request (a batch script, a manifest) if it makes one."""

    plan: Plan
    request: str = ""


@dataclass(frozen=True)
class Status:
    """An engine's word on a run: `alive` None means that the run's own locks tell."""

    alive: bool | None = None
    waiting: str = ""
    """Why it waits for nodes, in plain words, with an estimate where there is one."""


@dataclass(frozen=True)
class Check:
    """One finding of `doctor`: good, or what is missing and how to get it."""

    name: str
    good: bool
    found: str
    remedy: str = ""


class Engine(ABC):
    """Five things every engine does."""

    name: str

    @abstractmethod
    def preview(self, request: Request) -> Preview:
        """What submit would do, without doing any of it."""

    @abstractmethod
    def submit(self, request: Request) -> RunDirectory:
        """Start the run, or refuse it and leave nothing behind."""

    def submit_many(self, request: Request, count: int) -> list[RunDirectory]:
        """`count` runs of the same job; an engine that has a better way than one by one uses it."""
        return [self.submit(request) for _ in range(count)]

    def submit_each(self, requests: Sequence[Request]) -> Iterator[RunDirectory]:
        """Start several jobs; the first that is refused ends it, by name, after those that were not."""
        for request in requests:
            with naming(request):
                yield self.submit(request)

    @abstractmethod
    def status(self, run: RunDirectory) -> Status:
        """What the engine knows of the run now."""

    @abstractmethod
    def stop(self, run: RunDirectory, reason: str) -> None:
        """Ask for the run's end; it stops within its grace."""

    @abstractmethod
    def describe(self) -> list[Check]:
        """What this engine has here, and what it lacks."""

    def forget(self, run: RunDirectory) -> None:
        """Remove what the engine keeps of an ended run outside its directory; by default nothing is."""
        return


@contextmanager
def naming(request: Request) -> Iterator[None]:
    """Errors say which of several jobs they are about."""
    try:
        yield
    except TrainshedError as error:
        error.message = f"job {request.job.name}: {error.message}"
        raise


def resolve_secrets(job: JobSpec) -> dict[str, str]:
    """The values of a job's secrets, from where they are kept; errors never show one."""
    import os
    from pathlib import Path

    from trainshed.errors import UsageError

    values: dict[str, str] = {}
    for name, reference in job.secrets.items():
        if reference.env is not None:
            if reference.env not in os.environ:
                raise UsageError(
                    f"secrets.{name}: variable {reference.env} is not set", "set it and try again"
                )
            values[name] = os.environ[reference.env]
        else:
            path = Path(reference.file or "")
            try:
                values[name] = path.expanduser().read_text(encoding="utf-8").rstrip("\n")
            except OSError as error:
                raise UsageError(
                    f"secrets.{name}: cannot read {path}: {error.strerror}", "mend the path"
                ) from None
            except UnicodeDecodeError:
                raise UsageError(
                    f"secrets.{name}: {path} is no UTF-8 text", "a secret becomes a variable: encode it"
                ) from None
            except (RuntimeError, ValueError) as error:
                raise UsageError(
                    f"secrets.{name}: {str(path)!r} is no path: {error}", "write the whole path"
                ) from None
    return values


def store_access(job: JobSpec, also: str = "") -> tuple[dict[str, str], dict[str, str]]:
    """Variables that lead a job to the object store its URLs name, and the keys, which are secrets.

    Nothing for a job that names no such URL (nor `also`, one that its engine needs). An embedded store is
    started if it is the one meant.
    """
    import re

    text = job.model_dump_json(
        include={"code", "command", "parameters", "inputs", "outputs", "log_url", "env"}
    )
    found = re.search(r"\b(obs|s3)://", f"{also} {text}")
    if found is None:
        return {}, {}
    from trainshed.store import resolve

    every = resolve(found[1]).environment()
    keys = {
        name: value for name, value in every.items() if name.endswith(("_KEY_ID", "_ACCESS_KEY", "_TOKEN"))
    }
    return {name: value for name, value in every.items() if name not in keys}, keys


def as_options(pairs: Mapping[str, Any], allowed: Mapping[str, str]) -> dict[str, str]:
    """Engine options checked against their names; a misspelt one lists all that exist."""
    from trainshed.errors import UsageError

    for key in pairs:
        if key not in allowed:
            listing = "; ".join(f"{name}: {text}" for name, text in allowed.items()) or "this engine has none"
            raise UsageError(f"option {key!r} is not known to this engine", listing)
    return {key: str(value) for key, value in pairs.items()}
