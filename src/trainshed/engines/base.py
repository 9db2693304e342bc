"""What an engine does: where nodes come from. It knows no framework and no platform contract.

`submit` is `prepare` + `launch`, once, in `trainshed.api`: what a dry run prints
is just what would be launched.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainshed.access import StoreAccess
from trainshed.agent.environment import clean
from trainshed.agent.masking import SHORTEST
from trainshed.errors import UsageError
from trainshed.plan.model import Plan
from trainshed.runs.directory import RunDirectory
from trainshed.runs.summary import EngineStatus
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import DeviceKind

DEFAULT_PRIORITY = 100


@dataclass(frozen=True)
class Context:
    """For whom a run is started and where: nothing of it is read from the process."""

    home: Path
    user: str
    store: StoreAccess
    team: str = "default"
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values that a job may name: `secrets: {API_KEY: {env: NAME}}` gets the one called NAME."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Settings of whoever submits, neither secrets nor keys: search path, proxies, TRAINSHED_ENVS and the like."""

    def process_variables(self) -> dict[str, str]:
        """Variables of a process that is started on this machine for the user: no secret, no key."""
        return {"PATH": self.search_path, **clean(self.environ)}

    @property
    def search_path(self) -> str:
        return self.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Request:
    """A job as submitted to an engine, with the settings of this submission."""

    job: JobSpec
    context: Context
    emulate: bool = False
    attached: bool = False
    """Whether the run ends with the process that submitted it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings of the engine itself (partition, isolation, …), as text."""
    labels: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    """How many runs of the job are wanted."""
    secrets: Mapping[str, str] | None = None
    """Values of the job's secrets, if they were resolved elsewhere."""
    settings: Mapping[str, Any] | None = None
    """The engine's own settings as another machine decided them; they replace the options."""

    @property
    def emulated(self) -> bool:
        """Whether devices are really stood in for: there is nothing to emulate of a CPU."""
        return self.emulate and self.job.resources.kind is not DeviceKind.CPU


@dataclass
class Prepared:
    """What `launch` will do. Closing it frees what was reserved for it."""

    request: Request
    plan: Plan
    text: str = ""
    """The engine's own request (a batch script, a manifest), if it makes one."""
    is_final: bool = True
    """Whether the plan holds as it is; an engine with a queue plans again once it has nodes."""
    isolation: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the engine will need to know of the run later; recorded with it."""
    private: Any = None
    """The engine's own."""
    release: Callable[[], None] = lambda: None

    def close(self) -> None:
        self.release()


@dataclass(frozen=True)
class Check:
    """One finding of `doctor`: good, or what is missing and how to get it."""

    name: str
    good: bool
    found: str
    remedy: str = ""
    required: bool = False
    """Whether the engine cannot work at all without it."""


class Engine(ABC):
    """Five things every engine does, and two that some need."""

    name: str
    at_once: int = 1
    """How many launches may be under way side by side."""

    def count(self, request: Request) -> int:
        """How many runs a request makes; an engine may have an option for it."""
        return request.count

    @abstractmethod
    def prepare(self, request: Request, runs: Sequence[RunDirectory]) -> Prepared:
        """What will happen, or a refusal; starts nothing and writes nothing. The runs need not exist."""

    @abstractmethod
    def launch(self, prepared: Prepared, runs: Sequence[RunDirectory], locks: Sequence[int]) -> None:
        """Start it: each run has its job and first event.

        `locks` hold each run's `alive.lock` until this returns; a process that inherits one holds it on.
        """

    @abstractmethod
    def poll(self, runs: Sequence[RunDirectory]) -> dict[str, EngineStatus]:
        """The status of runs that have not ended, by id, in as few questions as possible.

        It only looks: nothing is written, signalled or removed.
        """

    @abstractmethod
    def stop(self, run: RunDirectory, kill: bool) -> None:
        """Pass a requested stop on to the run; `kill` when an earlier one did not end it."""

    @abstractmethod
    def describe(self, context: Context, settings: Mapping[str, Any] | None = None) -> list[Check]:
        """What this engine has here, and what it lacks; `settings` as in a Request."""

    def clear_up(self, run: RunDirectory, status: EngineStatus) -> None:
        """End what hangs, and what a dead run left behind; by default there is nothing to do.

        Only the reconciler calls it, for a run that has no end yet, one process at a time.
        """
        return

    def forget(self, run: RunDirectory) -> None:
        """Remove what the engine keeps of an ended run outside its directory; by default nothing is."""
        return


def resolve_secrets(request: Request) -> dict[str, str]:
    """The values of a job's secrets, from where they are kept; errors never show one."""
    if request.secrets is not None:
        return dict(request.secrets)
    known = request.context.secrets
    values: dict[str, str] = {}
    for name, reference in request.job.secrets.items():
        if reference.env is not None:
            if reference.env not in known:
                raise UsageError(
                    f"secrets.{name}: variable {reference.env} is not set",
                    "set it and try again, or give its value in Client(secrets=…)",
                )
            values[name] = known[reference.env]
            continue
        path = Path(reference.file or "")
        try:
            values[name] = path.expanduser().read_text(encoding="utf-8").rstrip("\n")
        except OSError as error:
            raise UsageError(
                f"secrets.{name}: cannot read {path}: {error.strerror}", "fix the path"
            ) from error
        except UnicodeDecodeError as error:
            raise UsageError(
                f"secrets.{name}: {path} is not UTF-8 text", "a secret becomes a variable: encode it"
            ) from error
        except (RuntimeError, ValueError) as error:
            raise UsageError(
                f"secrets.{name}: invalid path {str(path)!r}: {error}", "write the full path"
            ) from error
    for name, value in values.items():
        if len(value) < SHORTEST:
            raise UsageError(
                f"secrets.{name} has {len(value)} characters, and fewer than {SHORTEST} cannot be kept from logs",
                "give it a longer value, or write it into env if everybody may see it",
            )
        if "\0" in value:
            raise UsageError(
                f"secrets.{name} holds a NUL, which no variable can", "encode it, for example in Base64"
            )
    return values


def store_access(request: Request, also: str = "") -> tuple[dict[str, str], dict[str, str]]:
    """Variables for the object store that a job's URLs name, and the keys, which are secrets.

    Nothing for a job that names no such URL (nor `also`, one that its engine needs). An embedded store is
    started if it is the one meant.
    """
    text = request.job.model_dump_json(
        include={"code", "command", "parameters", "inputs", "outputs", "log_url", "env"}
    )
    found = re.search(r"\b(obs|s3)://", f"{also} {text}")
    if found is None:
        return {}, {}
    every = request.context.store.credentials(found[1]).environment()
    keys = {
        name: value for name, value in every.items() if name.endswith(("_KEY_ID", "_ACCESS_KEY", "_TOKEN"))
    }
    return {name: value for name, value in every.items() if name not in keys}, keys


def check_options(options: Mapping[str, Any], allowed: Mapping[str, str]) -> dict[str, str]:
    """Engine options checked against their names; a misspelt one lists all that exist."""
    for key in options:
        if key not in allowed:
            listing = (
                "; ".join(f"{name}: {text}" for name, text in allowed.items()) or "this engine has no options"
            )
            raise UsageError(f"option {key!r} is not known to this engine", listing)
    return {key: str(value) for key, value in options.items()}
