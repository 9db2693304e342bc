"""One step of a cluster's launcher (srun): a starter on every node, reached through the launcher's own pipes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from trainshed import files
from trainshed.engines.cluster.order import Facts, Question
from trainshed.runs.outcome import Failure
from trainshed.runs.states import Cause

LOG = "driver.log"
"""What driver, launcher and starters print, in the run directory."""
ANSWER = 300.0
"""Seconds within which every node must have answered."""
_TAKEN = 60.0
"""Seconds for the launcher to take what nodes are told."""
_TICK = 0.25


class Failed(Exception):
    """The attempt ends before its agents could start."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class ClusterStep:
    """Starters, and later agents, on all nodes. Closing it ends them."""

    def __init__(self, command: Sequence[str], hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._launcher = command[0]
        # A session of its own: what is meant for the driver must not end the launcher, and with it the agents.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def say(self, data: bytes) -> None:
        """To all nodes; Failed if the launcher does not take it."""
        assert self._process.stdin is not None
        try:
            files.write_within(self._process.stdin.fileno(), data, _TAKEN)
        except BrokenPipeError:
            return  # it has ended, which is noticed
        except TimeoutError as error:
            reason = f"{self._launcher} does not pass on what nodes are told: {error.strerror}"
            raise Failed(Failure(Cause.NODE, reason, log=LOG)) from error

    def facts(self, question: Question, check: Callable[[], None]) -> list[Facts]:
        """The facts of each node; Failed names those that sent none. `check` may raise."""
        self.say(question.to_line())
        found: dict[int, Facts] = {}
        for line in self._lines(time.monotonic() + ANSWER, check):
            facts = Facts.from_line(line)
            if facts is None:
                continue
            if facts.problem:
                reason = f"node {facts.index} ({facts.name}) cannot be used: {facts.problem}"
                raise Failed(Failure(Cause.NODE, reason, facts.index))
            found[facts.index] = facts
            if len(found) == len(self._hosts):
                return [found[index] for index in range(len(self._hosts))]
        silent = [f"node {i} ({name})" for i, name in enumerate(self._hosts) if i not in found]
        shown = ", ".join(silent[:4]) + (f" and {len(silent) - 4} more" if len(silent) > 4 else "")
        how = (
            f"not within {ANSWER:.0f} s" if self._process.poll() is None else f"{self._launcher} ended first"
        )
        raise Failed(Failure(Cause.NODE, f"no sign of {shown}: {how}", log=LOG))

    def wait(self, seconds: float) -> int | None:
        """The exit code, once all have ended."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End it: agents notice the end of their pipe; the launcher gets SIGTERM, then SIGKILL."""
        with contextlib.suppress(BrokenPipeError, OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self.wait(10.0) is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                self._process.send_signal(number)
                if self.wait(15.0) is not None:
                    break
        # A launcher may have its own process that waits for it: frozen, it would stay.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _lines(self, deadline: float, check: Callable[[], None]) -> Iterator[str]:
        assert self._process.stdout is not None
        source, rest = self._process.stdout.fileno(), b""
        while time.monotonic() < deadline:
            check()
            if not select.select([source], [], [], _TICK)[0]:
                continue
            piece = os.read(source, 1 << 16)
            if not piece:
                self.wait(5.0)
                return
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")
