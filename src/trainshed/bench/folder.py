"""A result folder: what was promised, the evidence of every run, what was measured, and the manifest.

    rules.json  session.json  system.json  result.json  train_result_info.txt  manifest.json
    runs/<i>/…            the evidence of run i, as its run directory had it
    mllog/result_<i>.txt  the same run as MLLOG
    report.html  report.md  report.csv

`collect` may be called again at any time, also after a crash: it reads what is
there, measures anew and writes the manifest last. It starts no run.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from trainshed import __version__
from trainshed.bench import manifest, mllog, system
from trainshed.bench.evidence import read_run
from trainshed.bench.measure import measure_run
from trainshed.bench.report.text import csv_text, markdown
from trainshed.bench.result import Quantity, Reason, Result, RunResult, Shape, to_json
from trainshed.bench.rules import Model, Rules
from trainshed.bench.score import scaling_efficiency, score_runs
from trainshed.errors import NotFoundError, TrainshedError, UsageError

# Only these files of a run are evidence; checkpoints and data stay where they are.
EVIDENCE = re.compile(
    r"^(job\.yaml|plan\.json|events\.jsonl|metrics\.jsonl|power\.jsonl|agent\.log|(rank|launcher|scheduler)[\w-]*\.log"
    r"|meter-rank-\d+\.jsonl|result_rank_\d+\.json|throughput_\d+\.json|throughput_rank_\d+|accuracy(_\d+)?\.json"
    r"|ranksize\.json|eval_acc\.log|result\.log)$"
)
MAX_EVIDENCE_BYTES = 256 << 20

M = TypeVar("M", bound=Model)


class Session(Model):
    """What `collect` needs to know of a benchmark that was begun."""

    id: str
    created: str
    runs: list[str] = Field(default_factory=list)
    """Run directories in order, as paths; empty where a run was begun and its directory is not known yet."""
    one_device: Quantity | None = None

    def mark(self, number: int) -> str:
        """What the job of a run carries, by which its directory is found."""
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
    return load_session(folder).mark(_add(folder, ""))


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
    result = measure_folder(folder)
    for name, text in derived_files(folder, result).items():
        write(folder / name, text)
    write(folder / "result.json", to_json(result))
    return result


def finish(folder: Path) -> None:
    """Seal the folder: the manifest is its last file."""
    manifest.write(folder)


def derived_files(folder: Path, result: Result) -> dict[str, str]:
    """The files that only show the result in other formats, by name."""
    rules = load_rules(folder)
    described = json.loads((folder / "system.json").read_text("utf-8"))
    found = {"report.md": markdown(result), "report.csv": csv_text(result)}
    for run in result.runs:
        text = mllog.mllog_text(read_run(folder / run.folder), run, rules, described)
        if text:
            found[f"mllog/result_{run.index - 1}.txt"] = text
    if result.runs:
        info = mllog.train_result_values(result.score.value, result.score.quality, result.runs)
        found["train_result_info.txt"] = mllog.train_result_info(info)
    return found


def measure_folder(folder: Path) -> Result:
    """Measure and score the evidence in a result folder. Writes nothing."""
    rules, session = load_rules(folder), load_session(folder)
    runs: list[RunResult] = []
    for index in run_numbers(folder, len(session.runs)):
        name = f"runs/{index}"
        runs.append(measure_run(read_run(folder / name), rules, index, name))
    score, reasons = score_runs(rules, runs)
    warnings = [Reason(code=w.code, message=f"run {r.index}: {w.message}") for r in runs for w in r.warnings]
    return Result(
        id=session.id,
        created=session.created,
        trainshed=__version__,
        workload=rules.workload,
        version=rules.version,
        scale=rules.scale,
        model=rules.model,
        framework=rules.framework,
        shape=Shape(nodes=rules.nodes, ranks=rules.ranks),
        status="failed" if reasons else "valid",
        reasons=reasons,
        warnings=warnings,
        score=score,
        scaling_efficiency=scaling_efficiency(rules, score, session.one_device),
        runs=runs,
    )


def run_numbers(folder: Path, begun: int) -> list[int]:
    """Every run that was begun, and every folder that is there, in order."""
    present = {int(p.name) for p in (folder / "runs").glob("*") if p.name.isdigit()}
    return sorted(present | set(range(1, begun + 1)))


def copy_evidence(source: Path, target: Path) -> None:
    """Copy the files that are evidence, each whole or not at all."""
    for path in sorted(source.rglob("*")):
        if not EVIDENCE.match(path.name) or path.is_symlink() or not path.is_file():
            continue
        place = target / path.relative_to(source)
        if path.stat().st_size > MAX_EVIDENCE_BYTES:
            text = f"{path} is larger than {MAX_EVIDENCE_BYTES >> 20} MiB"
            raise TrainshedError(text, "write fewer log lines; a benchmark result keeps its logs")
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(place.name + ".part")
        shutil.copyfile(path, part)
        part.replace(place)


def load_rules(folder: Path) -> Rules:
    return _load(folder / "rules.json", Rules)


def load_session(folder: Path) -> Session:
    return _load(folder / "session.json", Session)


def save_session(folder: Path, session: Session) -> None:
    write(folder / "session.json", session.model_dump_json(indent=2) + "\n")


def load_result(folder: Path) -> Result:
    return _load(folder / "result.json", Result)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def _add(folder: Path, run: str) -> int:
    session = load_session(folder)
    save_session(folder, session.model_copy(update={"runs": [*session.runs, run]}))
    return len(session.runs) + 1


def _load(path: Path, model: type[M]) -> M:
    try:
        return model.model_validate_json(path.read_text("utf-8"))
    except FileNotFoundError:
        text = f"{path.parent} is no result folder: {path.name} is missing"
        raise NotFoundError(text, "give a folder made by `trainshed bench run`") from None
    except ValidationError as error:
        first: Any = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        text = f"{path}: {where or 'file'}: {first['msg']}"
        raise UsageError(text, "the file was changed or is of another version", code="unreadable") from None
