"""What Trainshed promises of a run's end, held against what is there."""

from __future__ import annotations

import signal

from chaos.trials import FILES, Strike, Trial
from trainshed.api.run import Run
from trainshed.runs.events import AttemptFinished, ProcessExited
from trainshed.runs.states import Cause, RunState
from trainshed.runs.summary import Summary

_HARMLESS = {"grandchild", "guard"}
"""Processes whose death must not fail a job."""
_ABOVE = {"driver", "guard", "stepd", "srun", "foreground"}
"""Without one of whom struck, no run is lost."""
_STOPPERS = {"foreground", "stepd", "srun"}
"""Whose death somebody takes for a wish to stop."""


def false_end(
    trial: Trial, strikes: tuple[Strike, ...], run: Run, summary: Summary, stopped: bool
) -> list[str]:
    """Why the state of an ended run is not the truth; nothing if it is."""
    wrong = []
    events = [event.body for event in run.events()]
    logs = [path.read_text(errors="replace") for path in run.path.glob("node-*/rank-*.log")]
    finished = len(logs) == 2 and all("\nfinished\n" in text for text in logs)
    recorded = [body.outcome for body in events if isinstance(body, AttemptFinished)]
    exits = [body.returncode for body in events if isinstance(body, ProcessExited)]
    struck = {strike.target for strike in strikes}
    if summary.state is RunState.SUCCEEDED:
        if not finished or exits != [0, 0]:
            wrong.append(f"succeeded, although its ranks did not finish (exit codes {exits})")
        saved = sum(path.is_file() for path in (run.path / "outputs").rglob("*"))
        if saved != 2 * FILES:
            wrong.append(f"succeeded, although {saved} of {2 * FILES} outputs were saved")
    elif not summary.reason:
        wrong.append(f"{summary.state.value} without a reason")
    if recorded and recorded[-1].state is RunState.SUCCEEDED and summary.state is not RunState.SUCCEEDED:
        wrong.append(f"{summary.state.value}, although its coordinator recorded success")
    if summary.state is RunState.LOST and not struck & _ABOVE:
        wrong.append("lost, although its driver was let alone")
    if summary.state is RunState.STOPPED and not stopped and not struck & _STOPPERS:
        wrong.append("stopped, although nobody asked for it")
    is_late = summary.failure is not None and summary.failure.cause is Cause.TIMEOUT
    unhurt = struck <= _HARMLESS and all(strike.number == signal.SIGKILL for strike in strikes)
    if unhurt and trial.is_short and not stopped and not is_late and summary.state is not RunState.SUCCEEDED:
        wrong.append(f"{summary.state.value}, although nothing that it needs was struck")
    if trial.has_secret and any("not-to-be-seen" in text for text in logs):
        wrong.append("a secret is in a log")
    return wrong
