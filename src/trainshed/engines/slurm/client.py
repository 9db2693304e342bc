"""Slurm's own commands, run here, with an end to every wait. It decides nothing.

Commands get their own small environment: what the user's shell holds
(keys among it) would otherwise be kept by Slurm with the job.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from trainshed.engines.slurm.states import FORMAT, QueueEntry, parse_fields, parse_sacct, parse_squeue
from trainshed.errors import RefusedError, TrainshedError

_LIMIT = 60.0
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")


class SlurmError(TrainshedError):
    """Slurm did not do what it was asked; the message is its own."""

    code = "slurm"


class Slurm:
    """The commands of one cluster."""

    def __init__(self, conf: str | None = None) -> None:
        self._conf = conf

    def environment(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if k in _KEPT or k in ("SLURM_CONF", "SLURM_CLUSTERS")}
        return env | ({"SLURM_CONF": self._conf} if self._conf else {})

    def submit(self, script: str, brought: Mapping[str, str] | None = None) -> str:
        """The job's number; RefusedError with Slurm's message when Slurm rejects it.

        What the job will find when it starts must be there before. `brought` are variables that
        Slurm keeps with the job.
        """
        env = self.environment() | dict(brought or {})
        done = self._run(["sbatch", "--parsable", "--export=ALL"], script, env)
        if done.returncode != 0:
            raise RefusedError(
                f"Slurm refuses the job: {_last_error(done.stderr)}", _refusal_hint(done.stderr)
            )
        return done.stdout.strip().split(";")[0]

    def jobs(self) -> list[QueueEntry]:
        """All jobs of this user that Slurm still remembers, ended ones too."""
        command = ["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}"]
        return parse_squeue(self._ask([*command, f"--format={FORMAT}"]))

    def record(self, job: str) -> str:
        """What the controller says of one job, with the devices it has; empty when it knows it no more."""
        done = self._run(["scontrol", "--oneliner", "--details", "show", "job", job])
        if done.returncode != 0:
            if "Invalid job id" in done.stderr:
                return ""
            raise SlurmError(f"scontrol show job: {_last_error(done.stderr)}")
        return done.stdout

    def accounted(self, jobs: Sequence[str]) -> dict[str, str]:
        """The states of jobs in the accounting database; none where there is no database."""
        if not jobs or shutil.which("sacct", path=self.environment().get("PATH")) is None:
            return {}
        command = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State"]
        done = self._run([*command, f"--jobs={','.join(jobs)}"])
        return parse_sacct(done.stdout) if done.returncode == 0 else {}

    def cancel(self, job: str, *how: str) -> bool:
        done = self._run(["scancel", *how, job])
        return done.returncode == 0 and not done.stderr.strip()

    def hosts(self, nodelist: str) -> list[str]:
        return self._ask(["scontrol", "show", "hostnames", nodelist]).split()

    def nodes(self, nodelist: str) -> list[dict[str, str]]:
        text = self._ask(["scontrol", "--oneliner", "show", "node", nodelist])
        return [parse_fields(line) for line in text.splitlines() if line.strip()]

    def configuration(self) -> dict[str, str]:
        lines = self._ask(["scontrol", "show", "config"]).splitlines()
        pairs = (line.split("=", 1) for line in lines if "=" in line)
        return {name.strip(): value.strip() for name, value in pairs}

    def partitions(self) -> list[tuple[str, str, str, int, str]]:
        """(name, up or down, time limit, nodes, GRES) of each partition and kind of node."""
        rows = self._ask(["sinfo", "--noheader", "--format=%R|%a|%l|%D|%G"]).splitlines()
        cells = [row.split("|") for row in rows if row.count("|") == 4]
        return [(name, up, limit, int(count), gres) for name, up, limit, count, gres in cells]

    def _ask(self, command: Sequence[str]) -> str:
        done = self._run(command)
        if done.returncode != 0:
            raise SlurmError(
                f"{command[0]}: {_last_error(done.stderr)}", "run `trainshed doctor --engine slurm`"
            )
        return done.stdout

    def _run(
        self, command: Sequence[str], text: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                env=env or self.environment(),
                input=text,
                capture_output=True,
                text=True,
                timeout=_LIMIT,
            )
        except FileNotFoundError as error:
            raise _not_installed(command[0]) from error
        except subprocess.TimeoutExpired as error:
            raise _no_answer(command[0]) from error


def _not_installed(command: str) -> SlurmError:
    remedy = "run this on a login node, or reach one: trainshed profile add slurm login=user@host"
    return SlurmError(f"{command} is not installed here", remedy)


def _no_answer(command: str) -> SlurmError:
    return SlurmError(f"{command} did not answer within {_LIMIT:.0f} s", "is the controller up?")


def _last_error(text: str) -> str:
    """The last thing a command complained of, without its own name before it."""
    lines = [line.split("error:")[-1].strip() for line in text.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines[-3:])) or "no reason given"


def _refusal_hint(text: str) -> str:
    for part, hint in _REFUSALS.items():
        if part in text.lower():
            return hint
    return "`trainshed run --dry-run` shows the request"


_REFUSALS = {
    "partition name": "`sinfo` lists the partitions; choose one with -o partition=NAME",
    "generic resource": "`sinfo -o %G` lists them; map one with: trainshed profile add slurm gres.KIND=NAME",
    "account": "ask the administrator which account to use, then -o account=NAME",
    "qos": "ask the administrator which QOS to use, then -o qos=NAME",
    "node count": "ask for fewer nodes, or another partition",
    "node configuration": "no node of the partition is that large: ask for fewer devices per node",
    "time limit": "ask for less time with -o time=…",
    "contact slurm controller": "the controller does not answer: try again, or ask the administrator",
}
