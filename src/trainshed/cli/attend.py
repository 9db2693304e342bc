"""Attending a run in the foreground: its log, what it is busy with before and after, Ctrl-C, and its end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from trainshed.cli.output import prefix, print_json, printable_lines, since, size
from trainshed.runs.logs import Line, follow
from trainshed.runs.progress import NodeProgress, read_progress
from trainshed.runs.states import RunState

if TYPE_CHECKING:
    from trainshed.api import Run
    from trainshed.runs.summary import Summary

_REMEMBERED = 100
"""Lines at the end of what was shown, among which the failing rank's are not shown again."""
_LOOK = 0.5
"""Seconds between two looks at what a run without new output is busy with."""


def attend(started: Run, as_json: bool, began: float) -> int:
    """Show a run's log until it ends, pass Ctrl-C on to it, and say how it ended."""
    stops: list[float] = []

    def stop(_number: int, _frame: object) -> None:
        stops.append(time.monotonic())
        if len(stops) > 2:
            return
        if not as_json:
            # Not through the buffer, which the interrupted code may be writing to.
            os.write(2, f"\n{_stopping(started, len(stops))}\n".encode())
        started.stop("stopped with Ctrl-C")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    if not as_json:
        print(f"run {started.id}", file=sys.stderr)
        planned = (started.path / "plan.json").exists()  # a queue plans once it has nodes
        for note in started.plan().notes if planned else ():
            print(f"note: {note}", file=sys.stderr)
    shown: deque[Line] = deque(maxlen=_REMEMBERED if _is_one_screen() else 0)
    waiting = Waiting(started, enabled=not as_json)
    width = 7
    for line in follow(started.directory, waiting.is_ended):
        if not as_json:
            waiting.clear()
            width = max(width, len(line.process))
            sys.stdout.write(f"{prefix(line.process, width)}{line.text}\n")
            sys.stdout.flush()
            shown.append(line)
    waiting.clear()
    summary = started.summary()
    if as_json:
        print_json(summary.to_json() | {"path": str(started.path)})
    else:
        print(ending(started, summary, time.monotonic() - began, list(shown)), file=sys.stderr)
    return summary.exit_code


def _is_one_screen() -> bool:
    """Whether the summary and the log go to the same terminal, file or pipe."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):
        return False


def _stopping(run: Run, times: int) -> str:
    if times > 1:
        return "stopping: processes still running after the grace period are killed, and outputs are not waited for"
    try:
        grace = f"{run.plan().grace:g} s"
    except Exception:  # not planned yet, and a signal handler cannot report it
        grace = "the job's grace"
    return (
        f"stopping: ranks get SIGTERM and {grace} to end, then outputs are saved; "
        "Ctrl-C again does not wait for outputs"
    )


class Waiting:
    """Says on standard error what a run is busy with while its ranks do not run; one line, redrawn on a terminal."""

    def __init__(self, run: Run, enabled: bool) -> None:
        self._run, self._enabled = run, enabled
        self._terminal = sys.stderr.isatty()
        self._due = 0.0
        self._drawn = False
        self._said: set[str] = set()

    def is_ended(self) -> bool:
        """Whether the run has ended; between two questions, what it does is shown."""
        summary = self._run.refresh()
        if self._enabled and not summary.state.is_final and time.monotonic() >= self._due:
            self._due = time.monotonic() + _LOOK
            self._show(summary)
        return summary.state.is_final

    def clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False

    def _show(self, summary: Summary) -> None:
        if summary.state is RunState.PENDING and summary.reason:
            found = {"pending": f"waits for nodes: {summary.reason}"}
        else:
            directory = self._run.directory
            nodes = {index: read_progress(directory.node(index)) for index in directory.node_indexes()}
            found = {
                f"{index} {progress.phase}": f"node {index}: {describe(progress)}"
                for index, progress in nodes.items()
                if progress
            }
        if self._terminal:
            self.clear()
            if found:
                text = "; ".join(found.values())
                room = os.get_terminal_size(sys.stderr.fileno()).columns - 1
                sys.stderr.write(text if len(text) <= room else f"{text[: room - 1]}…")
                sys.stderr.flush()
                self._drawn = True
            return
        for key, text in found.items():  # elsewhere a line for each phase that takes its time
            if key not in self._said:
                self._said.add(key)
                print(text, file=sys.stderr, flush=True)


_PHASES = {
    "fetch code": "fetches the code",
    "fetch inputs": "fetches inputs",
    "upload": "saves outputs",
    "install requirements": "installs requirements",
    "pre-start": "runs the pre-start script",
    "prepare outputs": "prepares outputs",
}


def describe(progress: NodeProgress) -> str:
    """`fetches inputs, 3 of 10 files, 1.2 MiB of 4.0 MiB, for 12 s`."""
    parts = [_PHASES.get(progress.phase, progress.phase)]
    if progress.files_total:
        parts.append(f"{progress.files} of {progress.files_total} files")
        parts.append(f"{size(progress.bytes)} of {size(progress.bytes_total)}")
    return ", ".join([*parts, f"for {progress.seconds:.0f} s"])


def ending(run: Run, summary: Summary, seconds: float, shown: list[Line]) -> str:
    """The summary: the first failure comes first, with the failing rank's last lines unless they were just shown."""
    notes = [printable_lines(note) for note in run.directory.notes()]
    failure = summary.failure
    if failure is None:
        emulated = " (EMULATED on the CPU)" if summary.emulated else ""
        lines = [f"{summary.state.value}{emulated} in {seconds:.1f} s; logs and results: {run.path}"]
        return "\n".join(lines + [f"  note: {note}" for note in notes])
    lines = [f"{summary.state.value}: {printable_lines(failure.reason)}"]
    last = failure.last_lines
    if last and failure.process and _were_just_shown(last, failure.process, failure.node, shown):
        last = last[-1:]
    lines += [f"    {line}" for line in last]
    if failure.log:
        lines.append(f"  its log: {run.path / failure.log}")
    lines += [f"  hint: {hint}" for hint in run.advice()]
    lines += [f"  {note}" for note in notes if note != printable_lines(failure.reason)]
    lines.append(f"  ran {since(summary.submitted, summary.ended)}; all logs: {run.path}")
    return "\n".join(lines)


def _were_just_shown(last: tuple[str, ...], process: str, node: int | None, shown: list[Line]) -> bool:
    """Whether the screen ends with these lines: nothing of another process is between or after them."""
    lines = [line for line in shown if line.text.strip()]
    end = lines[-len(last) :]
    return [(line.process, line.node, line.text) for line in end] == [(process, node, w) for w in last]
