"""Runs a workload N times through an engine and turns the runs into a result folder.

Each run is noted in the folder before it starts and its job carries a mark, so
that `collect` finds it after a crash of this process. Ctrl-C stops the run
everywhere and keeps what there is. Knows engines only through their interface.
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trainshed import axes
from trainshed.bench import folder as folders
from trainshed.bench import system, workload
from trainshed.bench.history import Entry, History
from trainshed.bench.report.page import write_reports
from trainshed.bench.result import Measured, Quantity, Result
from trainshed.bench.watts import Watch
from trainshed.bench.workload import Bench
from trainshed.engines._asking import state_of
from trainshed.engines.base import Engine, Request
from trainshed.environments import catalog
from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory, Runs, home
from trainshed.runs.summary import Summary

POLL_SECONDS = 0.2
# Frameworks whose package has another name.
PACKAGES = {"pytorch": "torch", "paddle": "paddlepaddle"}
Say = Callable[[str], None]


def history() -> History:
    return History(home() / "bench.sqlite")


def default_folder(bench: Bench) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = f"{bench.workload.name}-{bench.framework}-{bench.scale_name}-{bench.shape}-{stamp}"
    return home() / "bench" / name


def run(
    bench: Bench,
    target: Path,
    say: Say,
    engine_name: str = "local",
    first_seed: int | None = None,
    emulate: bool = False,
    given: dict[str, str] | None = None,
    options: dict[str, str] | None = None,
    power: dict[int, str] | None = None,
) -> Result:
    """Prepare, run N times, collect, report, remember."""
    engine = axes.load("engine", engine_name)
    workload.prepare_data(bench)
    rules = workload.rules_of(bench)
    described = system.describe(nodes=rules.nodes, framework=framework_of(bench), given=given)
    folders.begin(target, rules, described, one_device(bench))
    seed = secrets.randbelow(1 << 30) if first_seed is None else first_seed
    for index in range(1, bench.runs + 1):
        mark = folders.begin_run(target)
        job = workload.job_of(bench, seed + index, mark)
        request = Request(job, emulate=emulate, attached=True, options=options or {})
        began = time.monotonic()
        with _stopping(engine, mark):
            started = engine.submit(request)
            folders.place_run(target, index, started.path)
            say(f"run {index} of {bench.runs}: {started.id}, seed {seed + index}")
            with Watch(power or {}, started.path):
                summary = _wait(started)
        say(f"run {index} of {bench.runs}: {summary.state.value} after {time.monotonic() - began:.1f} s")
        if summary.reason:
            say(f"  {summary.reason}")
    return collect(target)


def framework_of(bench: Bench) -> str:
    """The framework with its version, as the workload's environment has it."""
    if bench.implementation.environment is None:
        return bench.framework
    try:
        environment = catalog.resolve(bench.implementation.environment)
    except TrainshedError:
        return bench.framework  # the engine may have one where this machine has none
    package = PACKAGES.get(environment.framework, environment.framework)
    version = environment.versions.get(package, "")
    return f"{bench.framework} {version}".strip()


def collect(target: Path) -> Result:
    """Measure again what is there, write the reports, seal the folder, remember the result."""
    _place_begun(target)
    result = folders.collect(target)
    known = history()
    known.add(result, target)
    write_reports(target, sizes(known.list(result.workload, limit=500), result))
    folders.finish(target)
    return result


def sizes(entries: Sequence[Entry], result: Result) -> list[Entry]:
    """Results of the same work and framework, for the scaling plot."""
    return [e for e in entries if e.framework == result.framework and e.id != result.id]


def one_device(bench: Bench) -> Quantity | None:
    """The newest valid throughput of one rank, against which scaling is measured."""
    for entry in history().list(bench.workload.name, limit=500):
        same = (entry.scale, entry.framework, entry.version) == (
            bench.scale_name, bench.framework, bench.workload.version,
        )  # fmt: skip
        if (
            same
            and entry.ranks == 1
            and entry.status == "valid"
            and entry.score
            and entry.metric == "throughput"
        ):
            return Measured(value=entry.score, unit=entry.unit, source=f"result {entry.id}")
    return None


def find_run(mark: str) -> RunDirectory | None:
    """The run whose job carries the mark, if it was ever submitted and is still here."""
    for run in Runs.default().all():
        try:
            if mark in (run.path / "job.yaml").read_text("utf-8"):
                return run
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _place_begun(target: Path) -> None:
    """Find the runs that were begun when this process was killed before it knew where they are."""
    session = folders.load_session(target)
    for number, place in enumerate(session.runs, 1):
        if not place and (run := find_run(session.mark(number))) is not None:
            folders.place_run(target, number, run.path)


def _wait(run: RunDirectory) -> Summary:
    """Until the run has ended; the job's own timeout bounds it."""
    while not (summary := state_of(run)).state.is_final:
        time.sleep(POLL_SECONDS)
    return summary


@contextmanager
def _stopping(engine: Engine, mark: str) -> Iterator[None]:
    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    # Set here as well: a process started in the background has Ctrl-C ignored from the start.
    former = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        # Ctrl-C stops the run on all its nodes before this process goes.
        if (run := find_run(mark)) is not None:
            engine.stop(run, "stopped with Ctrl-C")
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not state_of(run).state.is_final:
                time.sleep(POLL_SECONDS)
        raise
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
