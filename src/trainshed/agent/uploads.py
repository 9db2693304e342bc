"""Outputs of a node: saved from time to time while the job runs, and at its end whatever happened."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from trainshed.access import StoreAccess
from trainshed.agent import staging
from trainshed.agent.inputs import Tell
from trainshed.errors import TrainshedError
from trainshed.plan.model import Transfer
from trainshed.runs.directory import RunDirectory


class Uploads:
    """The outputs of one node. Outputs without a target go into the run directory, by node."""

    def __init__(
        self,
        outputs: tuple[Transfer, ...],
        run: RunDirectory,
        node: int,
        access: StoreAccess,
        tell: Tell | None = None,
    ) -> None:
        self._outputs, self._store, self._tell = outputs, access, tell
        self._base = run.outputs(node)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def prepare(self) -> None:
        """The targets can be written; the folders exist, filled with what is already at the target where the job asked for that."""
        for output in self._outputs:
            Path(output.source).mkdir(parents=True, exist_ok=True)
            if output.target:
                staging.check_target(output, self._store)
            if output.predownload and output.target:
                staging.fetch(Transfer(output.name, output.target, output.source), self._store)

    def start(self) -> None:
        periodic = [output for output in self._outputs if output.every and output.target]
        if periodic:
            self._thread = threading.Thread(target=self._repeat, args=(periodic,), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread:
            self._thread.join(60.0)

    def save_all(self) -> None:
        """All outputs, each tried even if an earlier one failed; then the first problem is raised."""
        problems: list[TrainshedError] = []
        for output in self._outputs:
            try:
                staging.save(output, self._base / output.name, self._store, self._tell)
            except TrainshedError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def _repeat(self, outputs: list[Transfer]) -> None:
        due = {output.name: time.monotonic() + output.every for output in outputs}
        while not self._over.wait(0.5):
            for output in outputs:
                if time.monotonic() >= due[output.name]:
                    due[output.name] = time.monotonic() + output.every
                    try:
                        staging.save(output, self._base / output.name, self._store)
                    except TrainshedError:
                        # The upload at the end is the one that counts, and says so if it fails.
                        continue
