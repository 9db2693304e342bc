"""The report as Markdown and as CSV, and the texts that all renderings share."""

from __future__ import annotations

import csv
import io
import re

from trainshed.bench.result import Measured, Quantity, Result, RunResult, number
from trainshed.plural import counted

_MARKUP = re.compile(r"([\\`*_\[\]|!])")
THIN = "\u202f"
"""A narrow space between thousands, at which no line is broken."""
METRICS = {"throughput": "Throughput", "time_to_target": "Time to target"}


def show(quantity: Quantity, digits: int = 4) -> str:
    """`1234 images/s`, or `not measured: why`."""
    if not isinstance(quantity, Measured):
        return f"not measured: {quantity.not_measured}"
    unit = "" if quantity.unit == "1" else f" {quantity.unit}"
    return f"{figure(quantity.value, digits)}{unit}"


def figure(value: float, digits: int = 4) -> str:
    """A number with about four digits that mean something, thousands grouped by thin spaces."""
    if value == int(value) and abs(value) < 1e15:
        text = f"{int(value):,}"
    elif abs(value) >= min(1000, 10 ** (digits - 1)):
        text = f"{value:,.{max(0, digits - len(str(int(abs(value)))))}f}"
    else:
        text = f"{value:.{digits}g}"
    return text.replace(",", THIN)


def describe_shape(nodes: int, ranks: int) -> str:
    """`1 node, 2 ranks`."""
    return f"{counted(nodes, 'node')}, {counted(ranks, 'rank')}"


def run_row(run: RunResult) -> list[str]:
    return [
        str(run.index), run.status, "" if run.seed is None else str(run.seed), show(run.throughput),
        show(run.quality), show(run.time_to_target), show(run.step_time_median), show(run.step_time_p99),
    ]  # fmt: skip


RUN_COLUMNS = [
    "Run",
    "Status",
    "Seed",
    "Throughput",
    "Quality",
    "Time to target",
    "Step, median",
    "Step, 99%",
]


def summary_rows(result: Result) -> list[tuple[str, str]]:
    score = result.score
    return [
        (METRICS[score.metric], show(score.value)),
        ("95% interval", interval(result)),
        ("Spread", percent(score.spread)),
        ("Quality", show(score.quality)),
        ("Scaling efficiency", percent(result.scaling_efficiency)),
        ("Energy of the last run", show(result.runs[-1].power.energy) if result.runs else "no run"),
        ("Device use of the last run", show(result.runs[-1].device_use) if result.runs else "no run"),
    ]


def percent(quantity: Quantity) -> str:
    value = number(quantity)
    return show(quantity) if value is None else f"{value * 100:.3g}%"


def interval(result: Result) -> str:
    low, high = result.score.confidence_low, result.score.confidence_high
    if isinstance(low, Measured) and isinstance(high, Measured):
        return f"{figure(low.value)} … {figure(high.value)} {low.unit}"
    return show(low)


def markdown(result: Result) -> str:
    shape = describe_shape(result.shape.nodes, result.shape.ranks)
    lines = [
        f"# {_plain(result.workload)} ({_plain(result.scale)}): {result.status}",
        "",
        f"{_plain(result.id)}, {_plain(result.created)}, {_plain(result.framework) or 'framework not stated'}, {shape}.",
        "",
        f"Attestation: {_plain(result.attestation)}.",
        "",
    ]
    for title, reasons in (("Why it failed", result.reasons), ("Warnings", result.warnings)):
        if reasons:
            lines += [f"## {title}", "", *(f"- {_plain(r.code)}: {_plain(r.message)}" for r in reasons), ""]
    for run in result.runs:
        if run.failure is not None:
            lines += [f"## Run {run.index}: {_plain(run.failure.reason)}", ""]
            lines += [*(f"- {_plain(line)}" for line in run.failure.last_lines), ""]
    lines += ["| | |", "|---|---|", *(f"| {k} | {_plain(v)} |" for k, v in summary_rows(result)), ""]
    lines += ["| " + " | ".join(RUN_COLUMNS) + " |", "|" + "---|" * len(RUN_COLUMNS)]
    lines += ["| " + " | ".join(_plain(c) for c in run_row(run)) + " |" for run in result.runs]
    return "\n".join(lines) + "\n"


def csv_text(result: Result) -> str:
    """One line a quantity: result, run, name, value, unit, source or reason."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["result", "run", "rank", "quantity", "value", "unit", "source", "not_measured"])
    for name in (
        "value",
        "mean",
        "standard_deviation",
        "spread",
        "confidence_low",
        "confidence_high",
        "quality",
    ):
        writer.writerow([result.id, "", "", f"score.{name}", *_columns(getattr(result.score, name))])
    writer.writerow([result.id, "", "", "scaling_efficiency", *_columns(result.scaling_efficiency)])
    for run in result.runs:
        for name in ("throughput", "throughput_sum_of_ranks", "quality", "time_to_target", "epochs_to_target",
                     "step_time_median", "step_time_p99", "lost_steps", "device_use", "cpu_use"):  # fmt: skip
            writer.writerow([result.id, run.index, "", name, *_columns(getattr(run, name))])
        for name in ("average", "maximum", "energy"):
            writer.writerow([result.id, run.index, "", f"power.{name}", *_columns(getattr(run.power, name))])
        for rank in run.ranks:
            writer.writerow([result.id, run.index, rank.rank, "throughput", *_columns(rank.throughput)])
    return out.getvalue()


def _columns(quantity: Quantity) -> list[str]:
    if isinstance(quantity, Measured):
        return [repr(quantity.value), quantity.unit, quantity.source, ""]
    return ["", "", "", quantity.not_measured]


def _plain(text: str) -> str:
    """A text on one line in which nothing is markup, neither of Markdown nor of HTML."""
    line = "".join(letter if letter.isprintable() or letter == THIN else " " for letter in text)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\1", line)
