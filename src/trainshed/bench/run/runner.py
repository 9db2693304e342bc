"""Runs a workload N times through an engine and turns the runs into a result folder.

Each run is recorded in the folder before it starts and has a label, so that
`collect` finds it after a crash of this process. Ctrl-C stops the run everywhere
and keeps what there is. Knows runs only through a Client.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from trainshed.api import Client
from trainshed.bench import folder as folders
from trainshed.bench.folder import LABEL
from trainshed.bench.history import History, HistoryEntry
from trainshed.bench.measure import system
from trainshed.bench.measure.watts import PowerWatch
from trainshed.bench.report.page import write_reports
from trainshed.bench.result import Measured, Quantity, Result
from trainshed.bench.run import workload
from trainshed.bench.run.witness import Forwarder, Witness
from trainshed.bench.run.workload import Bench
from trainshed.environments import catalog
from trainshed.errors import NotFoundError, TrainshedError, UsageError
from trainshed.plural import counted
from trainshed.runs.chain import NONCE_LABEL, path_of
from trainshed.runs.states import RunState
from trainshed.runs.summary import Summary

_STOP_SECONDS = 60.0
# Frameworks whose package has another name.
PACKAGES = {"pytorch": "torch", "paddle": "paddlepaddle"}
Say = Callable[[str], None]


def history(client: Client) -> History:
    return History(client.home / "bench.sqlite")


def find_folder(client: Client, name: str) -> Path:
    """A result's folder, by its path or name, its id or the beginning of its id."""
    path = Path(name)
    if folder := folder_named(client, name):
        return folder
    if path.exists() or "/" in name:
        raise UsageError(
            f"{name}: no such result folder", "give a result folder, or its id in `trainshed bench history`"
        )
    found = Path(history(client).get(name).folder)
    if not found.is_dir():
        raise NotFoundError(
            f"result {name}: its folder {found} is gone", "only its numbers are kept in history"
        )
    return found


def folder_named(client: Client, name: str) -> Path | None:
    """The result folder at a path, or of that name where `bench run` makes them."""
    places = [Path(name)] if "/" in name else [Path(name), client.home / "bench" / name]
    return next((place for place in places if name and place.is_dir()), None)


def default_folder(client: Client, bench: Bench) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = f"{bench.workload.name}-{bench.framework}-{bench.scale_name}-{bench.shape}-{stamp}"
    return client.home / "bench" / name


def run(
    client: Client,
    bench: Bench,
    target: Path,
    say: Say,
    engine: str = "local",
    first_seed: int | None = None,
    emulate: bool = False,
    overrides: dict[str, str] | None = None,
    options: dict[str, str] | None = None,
    power: dict[int, str] | None = None,
    witness: Witness | None = None,
) -> Result:
    """Prepare, run N times, collect, report, remember. A witness sees the runs while they are made.

    A run that fails is the last one. KeyboardInterrupt stops the run on all its nodes.
    """
    workload.prepare_data(bench, client.context.process_variables())
    rules = workload.rules_of(bench)
    described = system.describe(
        nodes=rules.nodes, framework=framework_of(bench, client.context.environ), overrides=overrides
    )
    # Before anything is written: a Tester that refuses leaves nothing behind.
    nonce = witness.nonce() if witness else ""
    folders.begin(target, rules, described, one_device(client, bench))
    seed = secrets.randbelow(1 << 30) if first_seed is None else first_seed
    for index in range(1, bench.runs + 1):
        if witness and index > 1:
            nonce = witness.nonce()
        label = folders.begin_run(target)
        request = client.request(
            workload.job_of(bench, seed + index),
            labels={LABEL: label} | ({NONCE_LABEL: nonce} if nonce else {}),
            emulate=emulate,
            attached=True,
            options=options,
        )
        began = time.monotonic()
        try:
            (started,) = client.start(request, engine)
            folders.place_run(target, index, started.path)
            say(f"run {index} of {bench.runs}: {started.id}, seed {seed + index}")
            with _witnessed(witness, nonce, started.path, say), PowerWatch(power or {}, started.path):
                summary = started.wait()
        except KeyboardInterrupt:
            for found in client.runs({LABEL: label}):
                say(f"stopping {found.id} on all its nodes")
                found.stop("stopped with Ctrl-C")
                found.wait(_STOP_SECONDS)
            raise
        say(f"run {index} of {bench.runs}: {summary.state.value} after {time.monotonic() - began:.1f} s")
        if summary.state is not RunState.SUCCEEDED:
            _say_why(summary, started.path, say)
            if index < bench.runs:
                left = counted(bench.runs - index, "run")
                say(f"not started, because they would fail as well: {left}")
            break
    return collect(client, target)


def _witnessed(witness: Witness | None, nonce: str, run: Path, say: Say) -> AbstractContextManager[object]:
    if witness is None:
        return nullcontext()
    return Forwarder(witness, nonce, lambda: run / path_of(1), say)


def _say_why(summary: Summary, path: Path, say: Say) -> None:
    """The failing rank's last lines, and the path of its log."""
    failure = summary.failure
    say(f"  {summary.reason or summary.state.meaning}")
    for line in failure.last_lines if failure else ():
        say(f"    {line}")
    say(f"  its log: {path / failure.log if failure and failure.log else path}")


def framework_of(bench: Bench, environ: Mapping[str, str]) -> str:
    """The framework with its version, as the workload's environment among the submitter's has it."""
    if bench.implementation.environment is None:
        return bench.framework
    try:
        environment = catalog.resolve(bench.implementation.environment, environ)
    except TrainshedError:
        return bench.framework  # the engine may have one where this machine has none
    package = PACKAGES.get(environment.framework, environment.framework)
    version = environment.versions.get(package, "")
    return f"{bench.framework} {version}".strip()


def collect(client: Client, target: Path) -> Result:
    """Measure again what is there, write the reports, seal the folder, remember the result."""
    _record_begun(client, target)
    result = folders.collect(target)
    known = history(client)
    known.add(result, target)
    write_reports(target, sizes(known.list(result.workload, limit=500), result))
    folders.finish(target)
    return result


def sizes(entries: Sequence[HistoryEntry], result: Result) -> list[HistoryEntry]:
    """Results of the same work and framework, for the scaling plot."""
    return [e for e in entries if e.framework == result.framework and e.id != result.id]


def one_device(client: Client, bench: Bench) -> Quantity | None:
    """The newest valid throughput of one rank, against which scaling is measured."""
    for entry in history(client).list(bench.workload.name, limit=500):
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


def _record_begun(client: Client, target: Path) -> None:
    """Find the runs that were begun when this process was killed before it knew where they are."""
    session = folders.load_session(target)
    for number, path in enumerate(session.runs, 1):
        if not path and (found := client.runs({LABEL: session.run_label(number)})):
            folders.place_run(target, number, found[0].path)
