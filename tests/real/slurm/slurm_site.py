"""One test's home on the cluster: submitting, waiting for the end, and looking for leftovers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_cluster import Cluster

from support import processes_of, until
from trainshed import Client
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

    @property
    def client(self) -> Client:
        """With the variables as the test has set them by now."""
        return Client()

    def job(self, script: str, name: str = "job", **fields: Any) -> Any:
        code = self.folder / f"code-{name}"
        code.mkdir(exist_ok=True)
        (code / "main.py").write_text(script)
        return load_job({"name": name, "code": str(code), "entry": "main.py", "resources": "2x1"} | fields)

    def request(self, job: Any, **options: str) -> Request:
        return self.client.request(job, options=options)

    def submit(self, job: Any, **options: str) -> RunDirectory:
        return self.client.submit(job, engine="slurm", options=options).directory

    def state(self, run: RunDirectory) -> Summary:
        return self.client.get(run.id).refresh()

    def stop(self, run: RunDirectory, reason: str) -> None:
        self.client.get(run.id).stop(reason)

    def remove(self, run: RunDirectory) -> None:
        self.client.remove(self.client.get(run.id))

    def wait(self, run: RunDirectory, seconds: float = 90.0) -> Summary:
        """The end, and that nothing is left of the run: no process, no secret, no scratch."""
        until(
            lambda: self.state(run).state.is_final,
            seconds,
            lambda: f"the end of {run.id} ({self.driver_log(run)})",
        )
        until(lambda: not processes_of(run.id), 20.0, lambda: f"nothing left: {processes_of(run.id)}")
        until(lambda: not self._left(run), 20.0, lambda: f"no file left: {self._left(run)}")
        return self.state(run)

    def _left(self, run: RunDirectory) -> list[Path]:
        """Secrets handed over, and scratch folders of nodes."""
        scratch = Path(f"/tmp/trainshed-{os.getuid()}")
        return [*self.folder.glob(f"*/submissions/{run.id}.json"), *scratch.glob(f"{run.id}*")]

    def wait_log(self, run: RunDirectory, text: str, seconds: float = 60.0) -> None:
        def seen() -> bool:
            ended = self.state(run).state.is_final
            found = any(text in path.read_text() for path in run.path.glob("node-*/rank-*.log"))
            assert found or not ended, self.driver_log(run)
            return found

        until(seen, seconds, lambda: f"{text!r} in a log of {run.id} ({self.driver_log(run)})")

    def driver_log(self, run: RunDirectory) -> str:
        files = [*run.events_folder.glob("*.jsonl"), run.path / "driver.log", *run.path.glob("node-*/*.log")]
        return "\n".join(path.read_text()[-2000:] for path in files if path.exists())

    def number(self, run: RunDirectory) -> str:
        """The run's number in Slurm."""
        return run.reference()
