"""A result folder: what was promised, the evidence of every run, what was measured, and the manifest.

    rules.json  session.json  system.json  result.json  train_result_info.txt  manifest.json
    runs/<i>/…            the evidence of run i, as its run directory had it
    mllog/result_<i>.txt  the same run as MLLOG
    report.html  report.md  report.csv

`collect` may be called again at any time, also after a crash: it reads what is
there, measures again and writes the manifest last. It starts no run.
"""

from __future__ import annotations

import re
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from trainshed.bench import manifest
from trainshed.bench.judge.cross.runs import Promise, RunFacts, attestation, examine_runs, facts_of
from trainshed.bench.judge.required import missing_files
from trainshed.bench.judge.rules import MAX_RUNS, BenchModel, Rules
from trainshed.bench.judge.score import instability, scaling_efficiency, score_runs
from trainshed.bench.measure import reading, system
from trainshed.bench.measure.evidence import final_state, read_run
from trainshed.bench.measure.measure import measure_run
from trainshed.bench.report import mllog
from trainshed.bench.report.text import csv_text, markdown
from trainshed.bench.result import Quantity, Reason, Result, RunResult, Shape, to_json
from trainshed.errors import NotFoundError, TrainshedError, UsageError
from trainshed.files import write_atomic
from trainshed.spec.mistakes import summary_of
from trainshed.version import VERSION

# Only these files of a run are evidence, and its events; checkpoints and data stay where they are.
EVIDENCE = re.compile(
    r"^(job\.yaml|plan\.json|metrics\.jsonl|power\.jsonl|agent\.log|(rank|launcher|scheduler)[\w-]*\.log"
    r"|meter-rank-\d+\.jsonl|chain-\d+\.jsonl|result_rank_\d+\.json|throughput_\d+\.json|throughput_rank_\d+|accuracy(_\d+)?\.json"
    r"|ranksize\.json|eval_acc\.log|result\.log)$"
)
LABEL = "trainshed/bench-run"
"""A label of each run of a result, so that it is found again after a crash."""
RUN_NUMBER = re.compile(r"[1-9][0-9]{0,3}\Z")
MAX_EVIDENCE_BYTES = 256 << 20

M = TypeVar("M", bound=BenchModel)


class Session(BenchModel):
    """What `collect` needs to know of a benchmark that was begun."""

    id: str = Field(max_length=300)
    created: str = Field(max_length=40)
    runs: list[str] = Field(default_factory=list, max_length=10 * MAX_RUNS)
    """Run directories in order, as paths; empty where a run was begun and its directory is not known yet."""
    one_device: Quantity | None = None

    def run_label(self, number: int) -> str:
        """The label of a run's job, by which its directory is found."""
        return f"{self.id}-run-{number:03d}"


def begin(
    folder: Path, rules: Rules, described: dict[str, object], one_device: Quantity | None = None
) -> None:
    """Make a result folder and freeze what it promises."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "rules.json").exists():
        raise UsageError(
            f"{folder} already holds a result", "choose another folder, or use `trainshed bench collect`"
        )
    write(folder / "rules.json", rules.model_dump_json(indent=2) + "\n")
    write(folder / "system.json", system.to_json(described))
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    identity = f"{rules.workload}-{rules.scale}-{now}-{secrets.token_hex(2)}"
    save_session(folder, Session(id=identity, created=created, one_device=one_device))


def begin_run(folder: Path) -> str:
    """Note a run before it starts, so that nothing is lost when we are killed; gives the mark of its job."""
    return load_session(folder).run_label(_add(folder, ""))


def add_run(folder: Path, run_directory: Path) -> int:
    """Note a run that is there already; gives its number."""
    return _add(folder, str(run_directory))


def place_run(folder: Path, number: int, run_directory: Path) -> None:
    """Say where a run that was begun is."""
    session = load_session(folder)
    runs = [str(run_directory) if i == number else path for i, path in enumerate(session.runs, 1)]
    save_session(folder, session.model_copy(update={"runs": runs}))


def collect(folder: Path) -> Result:
    """Copy evidence, measure, score and write everything but the HTML report."""
    session = load_session(folder)
    for index, source in enumerate(session.runs, 1):
        if source and Path(source).is_dir():
            copy_evidence(Path(source), folder / "runs" / str(index))
    (folder / manifest.NAME).unlink(missing_ok=True)
    measured = measure_folder(folder)
    for name, text in derived_files(measured.result, measured.mllog).items():
        write(folder / name, text)
    write(folder / "result.json", to_json(measured.result))
    return measured.result


def finish(folder: Path) -> None:
    """Seal the folder: the manifest is its last file."""
    manifest.write(folder)


@dataclass(frozen=True)
class Measurement:
    """What the evidence of a result folder says."""

    result: Result
    mllog: dict[str, str]
    """MLLOG files by name."""
    states: dict[int, str]
    """How each run ended."""
    missing: dict[int, list[str]]
    """The files that each run should have left and did not."""
    facts: list[RunFacts]


def derived_files(result: Result, mllog_files: Mapping[str, str]) -> dict[str, str]:
    """The files that only show the result in other formats, by name."""
    found = {"report.md": markdown(result), "report.csv": csv_text(result), **mllog_files}
    if result.runs:
        info = mllog.train_result_values(result.score.value, result.score.quality, result.runs)
        found["train_result_info.txt"] = mllog.train_result_info(info)
    return found


def measure_folder(folder: Path, rules: Rules | None = None) -> Measurement:
    """Measure and score the evidence in a result folder, by its rules or by these. Writes nothing.

    Each run is read once and let go before the next, so memory is that of the largest run.
    """
    rules, session = rules or load_rules(folder), load_session(folder)
    described = _description(folder)
    runs: list[RunResult] = []
    facts: list[RunFacts] = []
    texts, states, missing = {}, {}, {}
    for index in run_numbers(folder, len(session.runs)):
        name = f"runs/{index}"
        evidence = read_run(folder / name)
        run = measure_run(evidence, rules, index, name)
        runs.append(run)
        facts.append(facts_of(evidence, index))
        states[index], missing[index] = final_state(evidence), list(missing_files(evidence, rules))
        if text := mllog.mllog_text(evidence, run, rules, described):
            texts[f"mllog/result_{index - 1}.txt"] = text
    score, reasons = score_runs(rules, runs)
    reasons += examine_runs(facts, Promise(session.id, session.created, LABEL, rules))
    unstable = instability(rules, score)
    warnings = [Reason(code=w.code, message=f"run {r.index}: {w.message}") for r in runs for w in r.warnings]
    result = Result(
        id=session.id,
        created=session.created,
        trainshed=VERSION,
        workload=rules.workload,
        version=rules.version,
        scale=rules.scale,
        model=rules.model,
        framework=rules.framework,
        shape=Shape(nodes=rules.nodes, ranks=rules.ranks),
        status="failed" if reasons else "unstable" if unstable else "valid",
        reasons=reasons,
        warnings=[*unstable, *warnings],
        attestation=attestation(facts),
        score=score,
        scaling_efficiency=scaling_efficiency(rules, score, session.one_device),
        runs=runs,
    )
    return Measurement(result, texts, states, missing, facts)


def _description(folder: Path) -> dict[str, Any]:
    """system.json, as far as it can be read; what is wrong with it is for `check` to say."""
    try:
        return reading.read_object(folder / "system.json", 1 << 20)
    except ValueError:
        return {}


def run_numbers(folder: Path, begun: int) -> list[int]:
    """Every run that was begun, and every folder that is there, in order."""
    present = {int(p.name) for p in (folder / "runs").glob("*") if RUN_NUMBER.match(p.name)}
    return sorted(present | set(range(1, begun + 1)))


def copy_evidence(source: Path, target: Path) -> None:
    """Copy the files that are evidence, each atomically."""
    for path in sorted(source.rglob("*")):
        is_event = (
            path.parent == source / "events" and path.suffix == ".jsonl" and not path.name.startswith(".")
        )
        if not (is_event or EVIDENCE.match(path.name)) or path.is_symlink() or not path.is_file():
            continue
        copy = target / path.relative_to(source)
        if path.stat().st_size > MAX_EVIDENCE_BYTES:
            text = f"{path} is larger than {MAX_EVIDENCE_BYTES >> 20} MiB"
            raise TrainshedError(text, "write fewer log lines; a benchmark result keeps its logs")
        copy.parent.mkdir(parents=True, exist_ok=True)
        part = copy.with_name(copy.name + ".part")
        shutil.copyfile(path, part)
        part.replace(copy)


def load_rules(folder: Path) -> Rules:
    return _load(folder / "rules.json", Rules)


def load_session(folder: Path) -> Session:
    return _load(folder / "session.json", Session)


def save_session(folder: Path, session: Session) -> None:
    write(folder / "session.json", session.model_dump_json(indent=2) + "\n")


def load_result(folder: Path) -> Result:
    return _load(folder / "result.json", Result)


def write(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text, durable=True)


def _add(folder: Path, run: str) -> int:
    session = load_session(folder)
    save_session(folder, session.model_copy(update={"runs": [*session.runs, run]}))
    return len(session.runs) + 1


def _load(path: Path, model: type[M]) -> M:
    remedy = "the file was changed or is of another version"
    if not path.exists():
        text = f"{path.parent} is not a result folder: {path.name} is missing"
        raise NotFoundError(text, "give a folder made by `trainshed bench run`")
    try:
        return model.model_validate_json(reading.read_bytes(path).decode("utf-8"))
    except ValidationError as error:
        raise UsageError(f"{path}: {summary_of(error, model)}", remedy, code="unreadable") from error
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}", remedy, code="unreadable") from error
