"""The failing rank's last lines in the log of a command that ran a framework's launcher.

torchrun, deepspeed, paddle.distributed.launch, msrun, horovodrun and mpirun end with a report, often a traceback, of
their own, which does not say why the rank failed. Pure: lines in, lines out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_TORCHRUN = re.compile(r"torch/distributed/elastic/\S+\.py:\d+\] (Sending process|failed \()")
_TORCHRUN_RANK = re.compile(r"^  rank +: (\d+) ")
_DEEPSPEED = re.compile(r"\[launch\.py:\d+:sigkill_handler\] Killing subprocess")
_TRACEBACK_RANK = re.compile(r"^\[rank(\d+)\]: Traceback")
_PADDLE = re.compile(r"^LAUNCH \w+ .* -+ ERROR LOG DETAIL -+$")
_PADDLE_END = re.compile(r"^LAUNCH \w+ ")
_MSRUN = re.compile(r"mindspore/parallel/cluster/\S+\.py:\d+\] .*process \d+ exit with exception")
_HOROVODRUN = re.compile(r"^Process (\d+) exit with status code [1-9-]\d*\.$")
_MPIRUN = re.compile(
    r"^(Primary job +terminated normally, but|mpi(run|exec) (detected|noticed) that|MPI_ABORT was invoked on rank)"
)
_MPIRUN_RANK = re.compile(r"^ +Process name: \[\[\d+,\d+\],(\d+)\]")
_RULE = re.compile(r"^-{20,}$")


def last_lines(lines: Sequence[str], count: int = 20) -> tuple[str, ...]:
    """The last lines of the rank that failed first, if a launcher's report follows them; else of all."""
    for find in (_torchrun, _deepspeed, _paddle, _msrun, _horovodrun, _mpirun):
        found = find(lines)
        if found:
            return tuple(found[-count:])
    return tuple(lines[-count:])


def _torchrun(lines: Sequence[str]) -> Sequence[str]:
    before, report = _split(lines, _TORCHRUN)
    causes = [i for i, line in enumerate(report) if line.startswith("Root Cause")]
    rank = _first(report[causes[-1] :], _TORCHRUN_RANK) if causes else None
    return _of_rank(before, rank, lambda name: (f"[rank{name}]:", f"[default{name}]:"))


def _deepspeed(lines: Sequence[str]) -> Sequence[str]:
    """DeepSpeed names the rank that it started last, whichever failed; the first traceback is the cause."""
    before, _ = _split(lines, _DEEPSPEED)
    return _of_rank(before, _first(before, _TRACEBACK_RANK), lambda name: (f"[rank{name}]:",))


def _paddle(lines: Sequence[str]) -> Sequence[str]:
    """Paddle's launcher repeats the failed rank's log after a heading."""
    _, report = _split(lines, _PADDLE)
    ends = [i for i, line in enumerate(report) if i and _PADDLE_END.match(line)]
    return report[1 : ends[0]] if ends else report[1:]


def _msrun(lines: Sequence[str]) -> Sequence[str]:
    return _split(lines, _MSRUN)[0]


def _horovodrun(lines: Sequence[str]) -> Sequence[str]:
    before, _ = _split(lines, _HOROVODRUN)
    return _of_rank(
        before, _first(lines, _HOROVODRUN), lambda name: (f"[{name}]<stderr>:", f"[{name}]<stdout>:")
    )


def _mpirun(lines: Sequence[str]) -> Sequence[str]:
    before, report = _split(lines, _MPIRUN)
    if before and _RULE.match(before[-1]):
        before = before[:-1]
    return _of_rank(
        before, _first(report, _MPIRUN_RANK), lambda name: (f"[1,{name}]<stderr>", f"[1,{name}]<stdout>")
    )


def _split(lines: Sequence[str], label: re.Pattern[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The lines before the first line with the label, and those from it on; both empty without one."""
    for i, line in enumerate(lines):
        if label.search(line):
            return lines[:i], lines[i:]
    return (), ()


def _first(lines: Sequence[str], pattern: re.Pattern[str]) -> str | None:
    return next((found[1] for line in lines if (found := pattern.search(line))), None)


def _of_rank(
    lines: Sequence[str], rank: str | None, prefixes: Callable[[str], tuple[str, ...]]
) -> Sequence[str]:
    """That rank's lines where the launcher names the writer of each; else all of them."""
    mine = [line for line in lines if rank is not None and line.startswith(prefixes(rank))]
    return mine or lines
