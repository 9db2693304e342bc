"""What reads documents of others: each target takes bytes, and may raise TrainshedError and nothing else."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hostile_documents import changed, damaged, raw
from hypothesis import strategies as st

from support import ROOT
from trainshed.bench import folder as folders
from trainshed.bench import manifest
from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure import reading
from trainshed.bench.measure.meter_file import read_sessions
from trainshed.bench.run import workload
from trainshed.engines.slurm import profile
from trainshed.errors import TrainshedError
from trainshed.plan.model import Plan
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.ranktables import Form, check_text, read, write
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import (
    AttemptFinished,
    AttemptStarted,
    FailureSeen,
    Finished,
    PhaseFinished,
    ProcessExited,
    Submitted,
    to_line,
)
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause
from trainshed.runs.summary import summaries, summarise
from trainshed.spec.job import JobSpec
from trainshed.spec.load import load_job
from trainshed.store import credentials


@dataclass(frozen=True)
class Target:
    """Who reads, and what an honest writer writes: a document, or the lines of a file."""

    read: Callable[[bytes, Path], None]
    honest: Any
    encode: Callable[[Any], bytes] = lambda document: json.dumps(document).encode("utf-8", "replace")

    def inputs(self) -> st.SearchStrategy[bytes]:
        whole = self.encode(self.honest)
        return st.one_of(raw, damaged(whole), changed(self.honest).map(self.encode))

    def feed(self, data: bytes) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        try:
            with contextlib.suppress(TrainshedError):
                self.read(data, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _lines(documents: Any) -> bytes:
    items = documents if isinstance(documents, list) else [documents]
    return b"".join(json.dumps(item).encode("utf-8", "replace") + b"\n" for item in items)


def _yaml(document: Any) -> bytes:
    try:
        return yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "replace")
    except yaml.YAMLError:
        return json.dumps(document).encode("utf-8", "replace")


def _events(data: bytes, folder: Path) -> None:
    run = RunDirectory(folder / "runs" / "job-1")
    run.events_folder.mkdir(parents=True)
    for name in ("submit", "node-0-1", "coordinator-1"):
        (run.events_folder / f"{name}.jsonl").write_bytes(data)
    for summary in summaries(Runs.of(folder)):  # whatever is wrong with it, a list shows it
        json.dumps(summary.to_json())
    with contextlib.suppress(TrainshedError):
        run.notes()
    (run.events_folder / "end.jsonl").write_bytes(data.rstrip(b"\n").rpartition(b"\n")[2] + b"\n")
    json.dumps(summarise(run).to_json())


def _plan(data: bytes, folder: Path) -> None:
    (folder / "plan.json").write_bytes(data)
    Plan.from_json(RunDirectory(folder).plan_json())


def _meter(data: bytes, _folder: Path) -> None:
    defects: list[tuple[str, str]] = []
    for session in read_sessions(
        reading.lines(data), "meter", lambda code, text: defects.append((code, text))
    ):
        _ = session.clock_offset, session.clock_spread(), session.wall_of(1.0)
    assert all(len(text) < 2000 for _, text in defects), "a defect repeats a document"


def _rules(data: bytes, folder: Path) -> None:
    (folder / "rules.json").write_bytes(data)
    folders.load_rules(folder)


def _manifest(data: bytes, folder: Path) -> None:
    (folder / "result.json").write_text("{}")
    (folder / manifest.NAME).write_bytes(data)
    for reason in manifest.verify(folder):
        assert len(reason.message) < 10_000, "a finding repeats a document"


def _ranktables(data: bytes, _folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    check_text(text)
    table = read(text)
    for form in Form:
        with contextlib.suppress(TrainshedError):
            write(table, form)


def _jobs(data: bytes, folder: Path) -> None:
    (folder / "train.py").write_text("")
    (folder / "job.yaml").write_bytes(data)
    load_job(folder / "job.yaml")


def _workloads(data: bytes, folder: Path) -> None:
    (folder / "workload.yaml").write_bytes(data)
    workload.load(folder)


def _profiles(data: bytes, folder: Path) -> None:
    path = profile.path_of("site", folder)
    path.parent.mkdir()
    path.write_bytes(data)
    profile.load("site", folder)


def _credentials(data: bytes, folder: Path) -> None:
    path = folder / credentials.PROFILE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)
    credentials._from_profile(folder, "site", "s3")


def _honest_events() -> list[Any]:
    failed = Failure(Cause.RANK, "rank 0 exited with 3", 0, process="rank-0", exit_code=3, last_lines=("no",))
    bodies = [
        Submitted("job", "local", "1x1", labels={"a": "b"}, array=("job-1",), settings={"a": {"b": 1}}),
        AttemptStarted(1, "node[1-2]", "17"),
        PhaseFinished(1, "prepare", 0.1),
        ProcessExited(1, "rank-0", 3),
        FailureSeen(1, failed),
        AttemptFinished(1, Outcome.of(failed)),
        Finished(Outcome.of(failed), name="job", submitted=1.0, started=2.0),
    ]
    return [json.loads(to_line(body, 1.75e9)) for body in bodies]


def _honest_meter() -> list[Any]:
    begin = {
        "event": "meter",
        "format": 1,
        "rank": 0,
        "world": 1,
        "host": "a",
        "pid": 3,
        "seq": 0,
        "mono": 1.0,
        "wall": 1e9,
    }
    steps = {"event": "steps", "first": 0, "counts": [1, 1], "samples": [8, 8], "at": [1.1, 1.2]}
    quality = {"event": "quality", "name": "accuracy", "value": 0.5, "epoch": 1}
    end = {"event": "end", "steps": 2, "samples": 16, "dropped": 0}
    rest = [
        item | {"seq": i, "mono": 1.0 + i, "wall": 1e9 + i} for i, item in enumerate((steps, quality, end), 1)
    ]
    return [begin, *rest]


def _honest_rules() -> Any:
    rules = Rules.model_validate(
        {
            "workload": "digits",
            "target": {"value": 0.9, "name": "accuracy"},
            "dataset": {"name": "digits", "checksum": "sha256:00"},
            "reference_points": [{"batch_size": 8, "epochs": [1.0, 2.0, 3.0]}],
            "log_patterns": {"loss": r"loss=([0-9.]+)"},
            "mllog": {"benchmark": "resnet"},
        }
    )
    return rules.model_dump(mode="json")


_JOB = {
    "name": "job", "code": ".", "entry": "train.py", "args": ["a", 1], "parameters": {"lr": 0.1, "on": True, "l": [1]},
    "inputs": [{"name": "data", "source": "."}], "outputs": [{"name": "out"}], "env": {"A": "b"}, "timeout": "1h",
    "secrets": {"KEY": {"env": "KEY"}}, "resources": {"nodes": 2, "devices": 2, "memory": "1GiB"}, "grace": 3,
}  # fmt: skip
_SITE = {
    "partition": "gpu",
    "modules": ["cuda"],
    "env": {"A": "b"},
    "time": "1h",
    "sbatch": ["--hold"],
    "gres": {"nvidia": "gpu"},
}
_STORE = {"profiles": {"site": {"access_key": "a", "secret_key": "b", "endpoint": "http://127.0.0.1:1"}}}
_FILES = {"format": manifest.FORMAT, "files": {"result.json": {"sha256": "00", "bytes": 2}}}


def _honest_plan() -> Any:
    job = JobSpec.model_validate(
        {"name": "job", "command": "true", "outputs": [{"name": "out"}], "resources": "2x2"}
    )
    devices = (Device(0), Device(1))
    hosts = [Host(f"worker-{i}", f"127.64.0.{i + 1}", devices, 10241) for i in range(2)]
    site = Site(python="python3", search_path="/usr/bin", scratch="/scratch", library="/library")
    return plan(job, Topology.of(job.resources.kind, hosts), site, "job-1").to_json()


TARGETS = {
    "events": Target(_events, _honest_events(), _lines),
    "plan": Target(_plan, _honest_plan()),
    "meter": Target(_meter, _honest_meter(), _lines),
    "rules": Target(_rules, _honest_rules()),
    "manifest": Target(_manifest, _FILES),
    "ranktables": Target(
        _ranktables, json.loads((ROOT / "tests/data/ranktables/seed004_hccl.json").read_text())
    ),
    "jobs": Target(_jobs, _JOB, _yaml),
    "workloads": Target(
        _workloads, yaml.safe_load(next((ROOT / "workloads").glob("*/workload.yaml")).read_text()), _yaml
    ),
    "profiles": Target(_profiles, _SITE, _yaml),
    "credentials": Target(_credentials, _STORE, _yaml),
}
