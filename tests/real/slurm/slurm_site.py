"""One test's home on the cluster: submitting, waiting for the end, and looking for leftovers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_cluster import Cluster

from support import processes_of, until
from trainshed.engines._asking import state_of
from trainshed.engines.base import Request
from trainshed.engines.slurm.engine import SlurmEngine
from trainshed.runs.directory import RunDirectory
from trainshed.runs.summary import Summary
from trainshed.spec.load import load_job


@dataclass
class Site:
    """One test's home on the cluster."""

    cluster: Cluster
    folder: Path
    engine: SlurmEngine

    def job(self, script: str, name: str = "job", **fields: Any) -> Any:
        code = self.folder / f"code-{name}"
        code.mkdir(exist_ok=True)
        (code / "main.py").write_text(script)
        return load_job({"name": name, "code": str(code), "entry": "main.py", "resources": "2x1"} | fields)

    def submit(self, job: Any, **options: str) -> RunDirectory:
        return self.engine.submit(Request(job, options=options))

    def state(self, run: RunDirectory) -> Summary:
        return state_of(run)

    def wait(self, run: RunDirectory, seconds: float = 90.0) -> Summary:
        """The end, and that nothing is left of the run: no process, no secret, no scratch."""
        until(lambda: state_of(run).state.is_final, seconds, f"the end of {run.id} ({self.words(run)})")
        try:
            until(lambda: not processes_of(run.id), 20.0)
        except AssertionError:
            raise AssertionError(f"left of {run.id}: {processes_of(run.id)}") from None
        return state_of(run)

    def wait_log(self, run: RunDirectory, text: str, seconds: float = 60.0) -> None:
        def seen() -> bool:
            assert not state_of(run).state.is_final, self.words(run)
            return any(text in path.read_text() for path in run.path.glob("node-*/rank-*.log"))

        until(seen, seconds, f"{text!r} in a log of {run.id} ({self.words(run)})")

    def words(self, run: RunDirectory) -> str:
        files = [run.events_path, run.path / "slurm.log", *run.path.glob("node-*/*.log")]
        return "\n".join(path.read_text()[-2000:] for path in files if path.exists())

    def number(self, run: RunDirectory) -> str:
        """The run's number in Slurm."""
        return next(str(e.data["slurm_job"]) for e in run.events() if e.data.get("slurm_job"))
