"""Runs the programs that make an environment, and says how far they are.

A command writes to a log file kept to find out why it failed.
It has a time limit, and nothing it started outlives it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.environments.progress import BuildProgress, ProgressCallback
from trainshed.errors import TrainshedError

LIMIT_SECONDS = 3600.0
POLL_SECONDS = 0.5
_TAIL_BYTES = 16_384
_CONFLICT = re.compile(r"The conflict is caused by:\n((?: +\S.*\n)+)")
_WRONG_HASH = re.compile(
    r"DO NOT MATCH THE HASHES.*?^ +(\S+)(?: from [^\n]*)?:\n.*?^ +Got +([0-9a-f]{64})",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Maker:
    """Whose environment is made, under which lock, where it is logged and who is notified."""

    name: str
    lock: int
    log: Path
    report: ProgressCallback
    started: float

    def tell(self, step: str, detail: str, megabytes: float | None = None) -> None:
        self.report(BuildProgress(self.name, step, detail, time.monotonic() - self.started, megabytes))

    def run(
        self,
        step: str,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        detail: Callable[[str], str] = lambda tail: "",
        measure: Callable[[], float | None] = lambda: None,
        cwd: Path | None = None,
    ) -> None:
        """Runs one command to its end, or raises with the last lines it wrote."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            begin = log.tell()
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_clean_variables(variables or {}),
                cwd=cwd,
                pass_fds=(self.lock,),
                start_new_session=True,
            )
            try:
                self._follow(child, step, begin, detail, measure)
            except BaseException:
                _end(child)
                raise
        if child.returncode != 0:
            tail = self._tail(begin)
            if refused := _WRONG_HASH.search(tail):
                raise TrainshedError(
                    f"environment '{self.name}' could not be created: {refused[1]} has sha256 {refused[2]}, "
                    "which its lock file does not list",
                    "it is not the file that was tested: check the registry or mirror it comes from, or delete "
                    f"the damaged copy in {self.log.parents[1]}; the full output is in {self.log}",
                    code="wrong-hash",
                )
            # What is added comes last: without it the environment is there as it was.
            outcome = "keeps what it had" if step == "add" else "could not be created"
            raise TrainshedError(
                f"environment '{self.name}' {outcome}: {step} failed: {_last_lines(tail)}",
                f"the full output is in {self.log}",
                code="environment",
            )

    def _follow(
        self,
        child: subprocess.Popen[bytes],
        step: str,
        begin: int,
        detail: Callable[[str], str],
        measure: Callable[[], float | None],
    ) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                child.wait(POLL_SECONDS)
                return
            except subprocess.TimeoutExpired:
                pass
            if time.monotonic() > deadline:
                raise TrainshedError(
                    f"environment '{self.name}' could not be created: {step} took over {LIMIT_SECONDS:.0f} s",
                    f"see {self.log}",
                    code="environment",
                )
            self.tell(step, detail(self._tail(begin)), measure())

    def _tail(self, begin: int) -> str:
        try:
            with self.log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(begin, end - _TAIL_BYTES))
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return "its log was deleted meanwhile"


def pip(*arguments: str, prefix: Path | None = None) -> list[str]:
    """Trainshed's own pip, working on another environment where a prefix is given."""
    target = ["--python", str(prefix / "bin" / "python")] if prefix else []
    return [sys.executable, "-m", "pip", *target, "--no-input", "--disable-pip-version-check", *arguments]


def folder_megabytes(folder: Path) -> float:
    """Room taken on disk. Files may come and go while it counts."""
    total = 0
    for root, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.lstat(os.path.join(root, file)).st_blocks * 512  # noqa: PTH118
            except FileNotFoundError:
                continue
    return total / 1e6


def _clean_variables(extra: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what would make Python find other packages or leave modules uncompiled."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if k not in dropped} | dict(extra)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _last_lines(text: str) -> str:
    if conflict := _CONFLICT.search(text):
        return "; ".join(line.strip() for line in conflict[1].splitlines())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return " | ".join((errors or lines)[-3:])[:600] or "no output"
