"""Where trials run: their own Trainshed home, image and Slurm, and what a run may leave in them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_cluster import Cluster

from chaos import trials, victims
from chaos.trials import Trial
from support import busybox_image, processes_of, until
from trainshed import Client
from trainshed.api.run import Run
from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.summary import is_alive

_WORK = f"""
sleep 300 &
(sleep 301 &)
echo up $CHAOS_SECRET
count=0
while [ $count -lt $CHAOS_TICKS ]; do sleep 0.2; count=$((count + 1)); done
count=0
while [ $count -lt {trials.FILES} ]; do : > "$TRAINSHED_OUTPUT_DIR/$TRAINSHED_RANK-$count"; count=$((count + 1)); done
echo finished
"""
_LONG, _SHORT = "3000", "10"


class Yard:
    """One campaign's own home."""

    def __init__(self, folder: Path, engines: tuple[str, ...]) -> None:
        self.home, self._code = folder / "home", folder / "code"
        self.home.mkdir(parents=True)
        self._code.mkdir()
        (self._code / "work.sh").write_text(_WORK)
        (self._code / "before.sh").write_text("sleep 0.3\n")
        self._image = busybox_image() if "podman" in engines else ""
        self.cluster = Cluster(folder / "slurm", nodes=4, cpus=32) if "slurm" in engines else None
        if self.cluster:
            self.cluster.start()
        own = {
            "TRAINSHED_HOME": str(self.home),
            "TRAINSHED_CPU_SLOTS": "4096",
            "CHAOS_SECRET": "not-to-be-seen",
        }
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINSHED_", "SLURM_"))}
        self.environ: Mapping[str, str] = clean | own | (self.cluster.env if self.cluster else {})
        os.environ |= self.cluster.env if self.cluster else {}
        self.client = Client.from_environment(self.environ, self.home)

    def close(self) -> None:
        if self.cluster:
            self.cluster.stop()

    def job(self, trial: Trial) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "name": f"chaos-{trial.number}",
            "code": str(self._code),
            "entry": "work.sh",
            "pre_start": "before.sh",
            "resources": "2x1",
            "outputs": [{"name": "out"}],
            "env": {"CHAOS_TICKS": _SHORT if trial.is_short else _LONG},
            "timeout": trials.TIMEOUT,
            "grace": trials.GRACE,
        }
        if trial.engine == "podman":
            fields["image"] = self._image
        if trial.has_secret:
            fields["secrets"] = {"CHAOS_SECRET": {"env": "CHAOS_SECRET"}}
        return fields

    def submit(self, trial: Trial) -> tuple[Run, subprocess.Popen[bytes] | None]:
        """The run, and the command that waits for it if there is one."""
        engine = "slurm" if trial.engine == "slurm" else "local"
        options = {"isolation": trial.engine} if trial.engine in ("sandbox", "plain") else {}
        if trial.engine == "slurm":
            options = {"requeue": "no"}
        if not trial.is_foreground:
            return self.client.submit(self.job(trial), engine=engine, options=options), None
        path = self._code / f"job-{trial.number}.json"
        path.write_text(json.dumps(self.job(trial)))
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        said = path.with_suffix(".log")
        with said.open("wb") as log:
            command = subprocess.Popen(
                [sys.executable, "-m", "trainshed.cli.main", "run", str(path), *words],
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        begin = f"chaos-{trial.number}-"
        runs = Runs.of(self.home)

        def made() -> str:
            ended = command.poll() is not None
            found = next((r.id for r in runs.each() if r.id.startswith(begin) and _is_submitted(r)), "")
            assert found or not ended, f"the command ended: {said.read_text()[-500:]}"
            return found

        return self.client.get(until(made, 240, f"the run of {trial}")), command

    def processes(self, run: Run) -> dict[str, list[int]]:
        if self.cluster is None:
            return victims.processes(run.id)
        return victims.processes(run.id, self.cluster.folder, self._slurm_job(run))

    def leftovers(self, run: Run) -> list[str]:
        """What is still there of a run that has ended."""
        found = [f"process {pid}: {line:.100}" for pid, line in processes_of(run.id).items()]
        for kind in ("conmon", "stepd"):
            found += [f"{kind} {pid}" for pid in self.processes(run).get(kind, ())]
        if is_alive(run.directory):
            found.append("a held lock")
        found += [f"mount {line:.200}" for line in _lines("/proc/self/mountinfo") if run.id in line]
        found += [f"socket {line[-80:]}" for line in _lines("/proc/net/unix") if run.id in line]
        if self._image:
            found += [f"container {name}" for name in self._containers(run)]
        if self.cluster and (job := self._slurm_job(run)):
            state = self.cluster.look("squeue", "-h", "-j", job, "-o", "%T")
            if state and not any(
                word in state for word in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
            ):
                found.append(f"Slurm job {job}: {state}")
        return found

    def _containers(self, run: Run) -> list[str]:
        done = subprocess.run(
            ["podman", "ps", "-a", "--format", "{{.Names}} {{.Labels}}"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        return [line.split()[0] for line in done.stdout.splitlines() if f"trainshed:{run.id}/" in line]

    def clear(self, run: Run) -> None:
        """After a violation: what is left of this run, and of nothing else, is ended."""
        for name in self._containers(run) if self._image else ():
            subprocess.run(["podman", "rm", "-f", name], capture_output=True, timeout=60)
        for pid in [*processes_of(run.id), *self.processes(run).get("conmon", ())]:
            strike(pid, 9)
        if self.cluster and (job := self._slurm_job(run)):
            self.cluster.look("scancel", "--signal=KILL", "--full", job)
            self.cluster.look("scancel", job)

    def _slurm_job(self, run: Run) -> str:
        return run.directory.reference() if run.directory.submission().engine == "slurm" else ""


def _is_submitted(run: RunDirectory) -> bool:
    with contextlib.suppress(TrainshedError):  # its first event is just being written
        return bool(run.submission())
    return False


def strike(pid: int, number: int) -> bool:
    """Signal just that process; False if it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _lines(path: str) -> list[str]:
    return Path(path).read_text(errors="replace").splitlines()
