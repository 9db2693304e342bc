"""The report as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from trainshed.bench.evidence import RunEvidence, read_run
from trainshed.bench.folder import load_result, load_rules, write
from trainshed.bench.history import Entry
from trainshed.bench.report import series, svg
from trainshed.bench.report.text import (
    METRICS,
    RUN_COLUMNS,
    csv_text,
    interval,
    markdown,
    percent,
    run_row,
    show,
)
from trainshed.bench.result import Measured, Reason, Result, RunResult, number
from trainshed.bench.rules import Rules

STYLE = Path(__file__).with_name("report.css")


def write_reports(folder: Path, others: Sequence[Entry] = ()) -> Path:
    """Render all three reports into a result folder; gives the HTML file's path."""
    result, rules = load_result(folder), load_rules(folder)
    write(folder / "report.md", markdown(result))
    write(folder / "report.csv", csv_text(result))
    write(folder / "report.html", html(folder, result, rules, others))
    return folder / "report.html"


def html(folder: Path, result: Result, rules: Rules, others: Sequence[Entry] = ()) -> str:
    title = f"{result.workload} {result.scale}: {result.status}"
    body = [
        _header(result, rules),
        _reasons("Why it failed", "bad", result.reasons),
        _reasons("Worth knowing", "warn", result.warnings),
        _cards(result),
        _plots(folder, result, rules, others),
        _runs(result),
        _ranks(result),
        _system(folder),
        _footer(result),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{STYLE.read_text('utf-8')}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _header(result: Result, rules: Rules) -> str:
    score = result.score.value
    if isinstance(score, Measured):
        value, _, unit = show(score).partition(" ")
        spread = f"; 95 % interval {interval(result)}" if result.score.runs_counted[1:] else ""
        headline = (
            f'<p class="score"><b>{escape(value)}</b> {escape(unit)}</p>'
            f'<p class="sub">{METRICS[result.score.metric]}, {escape(score.source)}{escape(spread)}</p>'
        )
    else:
        headline = f'<p class="score none">no score</p><p class="sub">{escape(show(score))}</p>'
    facts = [
        result.model or "", result.framework, f"{result.shape.nodes} nodes × {rules.ranks_per_node} ranks",
        f"rules {result.version}", result.created.replace("T", " ").replace("Z", " UTC"),
    ]  # fmt: skip
    return (
        f"<header><div><h1>{escape(result.workload)} <small>{escape(result.scale)}</small> "
        f'<span class="badge {result.status}">{result.status}</span></h1>'
        f'<p class="facts">{" · ".join(escape(f) for f in facts if f)}</p></div>'
        f"<div>{headline}</div></header>"
    )


def _reasons(title: str, kind: str, reasons: list[Reason]) -> str:
    if not reasons:
        return ""
    items = "".join(f"<li><code>{escape(r.code)}</code> {escape(r.message)}</li>" for r in reasons)
    return f'<section class="note {kind}"><h2>{title}</h2><ul>{items}</ul></section>'


def _cards(result: Result) -> str:
    last = result.runs[-1] if result.runs else None
    cards = [("Quality", show(result.score.quality)), ("Spread of runs", percent(result.score.spread))]
    if last is not None:
        cards += [
            ("Time to target", show(last.time_to_target)),
            ("Step, median", show(last.step_time_median)),
            ("Scaling efficiency", percent(result.scaling_efficiency)),
            ("Average power", show(last.power.average)),
            ("Energy", show(last.power.energy)),
            ("Device use", show(last.device_use)),
        ]
    cells = []
    for name, value in cards:
        missing = value.startswith("not measured")
        shown = (
            f'<span class="none">not measured</span><small>{escape(value[14:])}</small>'
            if missing
            else escape(value)
        )
        cells.append(f"<div><dt>{name}</dt><dd>{shown}</dd></div>")
    return f'<dl class="cards">{"".join(cells)}</dl>'


def _plots(folder: Path, result: Result, rules: Rules, others: Sequence[Entry]) -> str:
    figures: list[str] = []
    evidences = [(run, read_run(folder / run.folder)) for run in result.runs]
    for run, evidence in evidences[:6]:
        figures += _throughput(run, evidence, rules, len(evidences))
    target = rules.target
    name = target.name if target else "accuracy"
    lines = [s for s in series.quality(result.runs, name) if s.points]
    if lines:
        level = (f"target {target.value:g}", target.value) if target else None
        figures.append(svg.lines(name.capitalize(), lines, "seconds", name, level=level, zero=False))
    else:
        figures.append(_absent(name.capitalize(), "no evaluation was recorded"))
    if evidences:
        figures += _machines(*evidences[-1])
    figures += _comparison(result, rules, others)
    return f'<section class="plots">{"".join(figures)}</section>'


def _throughput(run: RunResult, evidence: RunEvidence, rules: Rules, count: int) -> list[str]:
    zero = series.start_of(evidence)
    title = "Throughput over time" + (f", run {run.index}" if count > 1 else "")
    if zero is None:
        return [_absent(title, "the script has no meter")]
    lines, bands = series.throughput(evidence, zero)
    if not lines:
        return [_absent(title, "no step was recorded")]
    figure = svg.lines(title, lines, "seconds", rules.unit, bands=bands)
    if bands:
        figure = figure.replace("</figure>", '<p class="hint">shaded: evaluation</p></figure>')
    return [figure]


def _machines(run: RunResult, evidence: RunEvidence) -> list[str]:
    zero = series.start_of(evidence) or run.started or 0.0
    found = []
    use, name = series.use(evidence, zero)
    title = f"{name}, run {run.index}"
    found.append(svg.lines(title, use, "seconds", "%", top=100.0) if use else _absent(title, "no samples"))
    watts = series.watts(evidence, zero)
    if watts:
        found.append(svg.lines(f"Power, run {run.index}", watts, "seconds", "W"))
    else:
        found.append(_absent("Power", show(run.power.average).removeprefix("not measured: ")))
    bars = series.phases(evidence, run)
    title = f"Phases, run {run.index}"
    if bars:
        hint = '<p class="hint">phases too short to see are left out</p></figure>'
        found.append(svg.gantt(title, bars).replace("</figure>", hint))
    else:
        found.append(_absent(title, "no phase was recorded"))
    return found


def _comparison(result: Result, rules: Rules, others: Sequence[Entry]) -> list[str]:
    """Runs side by side, and throughput against the number of ranks where history has several."""
    found = []
    values = []
    for run in result.runs:
        value = number(run.throughput if result.score.metric == "throughput" else run.time_to_target)
        if value is not None:
            values.append((f"run {run.index}", value))
    score = number(result.score.value)
    if values and score is not None:
        unit = getattr(result.score.value, "unit", "")
        found.append(svg.bars("Runs", values, unit, level=(f"score {show(result.score.value)}", score)))
    points = scaling_points(result, others)
    if len(points) > 1:
        ideal = [(n, points[0][1] / points[0][0] * n) for n, _ in points]
        lines = [svg.Series("measured", points, dots=True), svg.Series("linear", ideal, dashed=True)]
        found.append(svg.lines("Scaling", lines, "ranks", rules.unit))
    else:
        found.append(_absent("Scaling", "history holds no valid result of another size"))
    return found


def scaling_points(result: Result, others: Sequence[Entry]) -> list[tuple[float, float]]:
    """(ranks, throughput): this result, and the newest valid one of every other size."""
    score = number(result.score.value)
    if result.score.metric != "throughput" or score is None:
        return []
    points = {result.shape.ranks: score}
    for entry in others:
        same = (entry.workload, entry.scale, entry.version) == (result.workload, result.scale, result.version)
        if same and entry.metric == "throughput" and entry.status == "valid" and entry.score is not None:
            points.setdefault(entry.ranks, entry.score)
    return [(float(n), v) for n, v in sorted(points.items())]


def _runs(result: Result) -> str:
    rows = [run_row(run) for run in result.runs]
    return _table("Runs", RUN_COLUMNS, rows) + "".join(
        _reasons(f"Run {run.index} failed", "bad", run.reasons) for run in result.runs if run.reasons
    )


def _ranks(result: Result) -> str:
    if not result.runs or not result.runs[-1].ranks:
        return ""
    run = result.runs[-1]
    rows = [
        [str(r.rank), str(r.node), str(r.steps), f"{r.samples:g}", f"{r.seconds:.3f} s", show(r.throughput)]
        for r in run.ranks[:64]
    ]
    left = len(run.ranks) - len(rows)
    more = f"<p>and {left} more ranks, in report.csv</p>" if left else ""
    columns = ["Rank", "Node", "Steps", "Samples", "Time", "Throughput"]
    return _table(f"Ranks of run {run.index}", columns, rows, closed=True) + more


def _system(folder: Path) -> str:
    try:
        described = json.loads((folder / "system.json").read_text("utf-8"))
    except (OSError, ValueError):
        return ""
    rows = [
        [k.replace("_", " "), str(v)]
        for k, v in described.items()
        if k != "sources" and v not in ("", "unknown", "N/A")
    ]
    return _table("System", ["", ""], rows, closed=True)


def _footer(result: Result) -> str:
    return (
        f"<footer><p>{escape(result.id)} · Trainshed {escape(result.trainshed)}. Throughput is samples over "
        "wall time from the end of warm-up to the end of the last step, without evaluation. Check it "
        "with <code>trainshed bench check</code>.</p></footer>"
    )


def _table(title: str, columns: list[str], rows: list[list[str]], closed: bool = False) -> str:
    head = "".join(f"<th>{escape(c)}</th>" for c in columns) if any(columns) else ""
    body = "".join("<tr>" + "".join(_cell(c) for c in row) + "</tr>" for row in rows)
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    if closed:
        return f"<details><summary>{escape(title)}</summary>{table}</details>"
    return f"<section><h2>{escape(title)}</h2>{table}</section>"


def _cell(text: str) -> str:
    if text.startswith("not measured"):
        return f'<td class="none" title="{escape(text)}">not measured</td>'
    return f"<td>{escape(text)}</td>"


def _absent(title: str, why: str) -> str:
    return (
        f'<figure class="absent"><figcaption>{escape(title)}</figcaption>'
        f"<p>not measured<br><small>{escape(why)}</small></p></figure>"
    )
