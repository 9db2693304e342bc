"""What a node must see and may write, and how an attempt ended: the same for every engine."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.files import is_full
from trainshed.runs.directory import RunDirectory, finished
from trainshed.runs.events import FailureSeen
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause
from trainshed.runs.summary import attempt_outcome, started_at

if TYPE_CHECKING:
    from trainshed.spec.job import JobSpec

PAYLOAD = Path(__file__).resolve().parents[2] / "payload"
"""Modules given to scripts."""


HOMES = "homes"
"""Below Trainshed's home: homes that contracts keep, one folder a user."""
_ABSOLUTE = re.compile(r"(?<![\w./:$}-])/[\w@%+=.,/-]++(?![${*?\[\\])")
"""A whole path in a text: one that goes on with a variable or a pattern names nothing yet."""
_NEVER = ("proc", "dev", "sys", "run", "tmp", "var", "cache", "bin", "sbin", "etc", "usr", "opt")
"""Folders that a node has for itself, or has already."""
_LONGEST = 4096


def python_of(job: JobSpec, environ: Mapping[str, str] | None = None) -> str:
    """The interpreter that starts an entry; `environ` leads to the environments, by default the process's."""
    if job.image:
        return "python3"
    if job.environment is None:
        return sys.executable
    from trainshed.environments import resolve

    return str(resolve(job.environment, environ).python)


def visible(job: JobSpec, home: Path, environ: Mapping[str, str] | None = None) -> list[str]:
    """What a node sees besides the system: Trainshed, interpreters and programs, the paths its job names."""
    paths = [str(PAYLOAD.parents[1]), sys.prefix, sys.base_prefix, sys.exec_prefix]
    paths += [str(Path(path).resolve()) for path in sys.path if path and Path(path).is_dir()]
    python = Path(python_of(job, environ))
    if python.is_absolute():
        prefix = python.parents[1]
        # Where links lead to as well: an environment may be one, in a folder that is there as it is.
        paths += [str(prefix), str(prefix.resolve()), str(python.resolve().parents[1])]
    for source in (job.code, *(channel.source for channel in job.inputs)):
        if source and "://" not in source:
            paths.append(source)
    paths += [
        folder
        for entry in ((os.environ if environ is None else environ).get("PATH") or "").split(":")
        if (folder := _installation(entry))
    ]
    return list(dict.fromkeys([*paths, *named_paths(job, home)]))


def named_paths(job: JobSpec, home: Path) -> list[str]:
    """Existing files and folders of this machine that the job names: it finds them, read only.

    Not the user's or Trainshed's home as a whole, nor anything in the latter: keys and other runs lie there.
    """
    texts = [job.command or "", *job.env.values(), *map(str, job.parameters.values())]
    found = {path.rstrip("/.,") for text in texts for path in _ABSOLUTE.findall(text)}
    return sorted(path for path in found if _is_shown(path, home))


def _is_shown(path: str, home: Path) -> bool:
    where = Path(path)
    apart = not any(kept.is_relative_to(where) for kept in (home, Path.home()))
    apart = apart and not where.is_relative_to(home)
    own = where.parts[1:2] and where.parts[1] not in _NEVER
    return bool(apart and own and len(path) < _LONGEST and where.exists())


def _installation(entry: str) -> str:
    """The folder whose programs are on the search path; of a user's home only the programs themselves."""
    path = Path(entry)
    if not path.is_absolute() or not path.is_dir() or len(path.parts) < 3:
        return ""
    return str(path if path.parent.is_relative_to(Path.home()) else path.parent)


def cache_folder(home: Path) -> Path:
    """Where inputs are kept between runs, for all nodes of this machine."""
    folder = home / "cache" / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def writable(job: JobSpec, run: RunDirectory, cache: Path) -> list[str]:
    """What a node writes outside its private folders: the run directory and the outputs' own."""
    targets = [c.target for c in job.outputs if c.target and "://" not in c.target]
    if job.log_url and "://" not in job.log_url:
        targets.append(job.log_url)
    for target in targets:
        Path(target).mkdir(parents=True, exist_ok=True)
    return [str(run.path), str(cache), *targets]


def recorded_outcome(run: RunDirectory, attempt: int) -> Outcome | None:
    """How an attempt ended, if its coordinator recorded it."""
    return attempt_outcome(run.events("coordinator-"), attempt)


def first_failure(run: RunDirectory, attempt: int) -> Failure | None:
    """The earliest failure that an agent recorded by itself."""
    for event in run.failures(attempt):
        assert isinstance(event.body, FailureSeen)
        return event.body.failure
    return None


def explained(run: RunDirectory, outcome: Outcome) -> Outcome:
    """The outcome, with a full disk as its reason where there is one: agents cannot record it themselves."""
    failure = outcome.failure
    if failure is None or failure.cause in (Cause.STOP, Cause.TIMEOUT) or not is_full(run.path):
        return outcome
    reason = f"the disk that holds the run is full ({run.path}): {failure.reason}"
    return replace(outcome, failure=replace(failure, reason=reason))


def record_end(run: RunDirectory, outcome: Outcome) -> bool:
    """The event that makes an outcome final; False if another was first."""
    attempt = max((item.attempt for item in run.attempts()), default=1)
    return run.record_end(finished(run, outcome, started_at(run.events("coordinator-")), attempt))
