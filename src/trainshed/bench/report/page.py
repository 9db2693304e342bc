"""The report as one HTML file that needs nothing else: no script, no font, no network.

The page itself is the template `report.html`, in which every text is escaped;
here is only what it shows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainshed.bench.folder import load_result, load_rules, write
from trainshed.bench.history import HistoryEntry
from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure import reading
from trainshed.bench.measure.evidence import RunEvidence, read_run
from trainshed.bench.report import series, svg
from trainshed.bench.report.text import (
    METRICS,
    RUN_COLUMNS,
    csv_text,
    describe_shape,
    figure,
    interval,
    markdown,
    percent,
    run_row,
    show,
)
from trainshed.bench.result import Measured, Result, RunResult, number

if TYPE_CHECKING:
    from jinja2 import Template

FOLDER = Path(__file__).parent
NOT_MEASURED = "not measured: "
RANK_COLUMNS = ["Rank", "Node", "Steps", "Samples", "Time", "Throughput"]
MOST_PLOTTED_RUNS, MOST_RANKS, MOST_LOGS = 6, 64, 64
SINCE_START = "seconds since the start mark"
BEFORE = "dotted: the start mark; before it (negative) nodes were prepared and the framework was loaded"


@dataclass(frozen=True)
class Figure:
    """A plot, or the reason why there is none."""

    title: str
    svg: str = ""
    why: str = ""


def write_reports(folder: Path, others: Sequence[HistoryEntry] = ()) -> Path:
    """Render all three reports into a result folder; gives the HTML file's path."""
    result, rules = load_result(folder), load_rules(folder)
    write(folder / "report.md", markdown(result))
    write(folder / "report.csv", csv_text(result))
    write(folder / "report.html", html(folder, result, rules, others))
    return folder / "report.html"


def html(
    folder: Path,
    result: Result,
    rules: Rules,
    others: Sequence[HistoryEntry] = (),
    base: str | None = "",
) -> str:
    """The page. `base` is the relative path from it to the result folder, for links to logs; None makes no links."""
    from markupsafe import Markup

    figures = [
        {"title": f.title, "svg": Markup(f.svg), "why": f.why}  # noqa: S704 (drawn by svg, which escapes)
        for f in _figures(folder, result, rules, others)
    ]
    facts = [
        result.model, result.framework, describe_shape(result.shape.nodes, result.shape.ranks),
        f"rules {result.version}", result.created.replace("T", " ").replace("Z", " UTC"),
        result.attestation,
    ]  # fmt: skip
    text = _template().render(
        result=result,
        style=Markup((FOLDER / "report.css").read_text("utf-8")),  # noqa: S704 (a file of ours)
        facts=[fact for fact in facts if fact],
        score=_score(result),
        no_score=show(result.score.value),
        cards=_cards(result),
        figures=[one for one in figures if one["svg"]],
        absent=[(one["title"], one["why"]) for one in figures if not one["svg"]],
        base=base,
        logs=[] if base is None else _logs(folder, result, base),
        run_columns=RUN_COLUMNS,
        run_rows=[run_row(run) for run in result.runs],
        rank_columns=RANK_COLUMNS,
        ranks=_ranks(result),
        system=_system(folder),
    )
    return text + "\n"


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html")


def _score(result: Result) -> dict[str, str] | None:
    score = result.score.value
    if not isinstance(score, Measured):
        return None
    value, _, unit = show(score).partition(" ")
    spread = f"; 95% interval {interval(result)}" if result.score.runs_counted[1:] else ""
    return {"value": value, "unit": unit, "how": f"{METRICS[result.score.metric]}, {score.source}{spread}"}


def _cards(result: Result) -> dict[str, list[tuple[str, str]]]:
    """What was measured, and, apart from it, what was not and why."""
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
    measured = [(name, value) for name, value in cards if not value.startswith(NOT_MEASURED)]
    missing = [(n, value.removeprefix(NOT_MEASURED)) for n, value in cards if value.startswith(NOT_MEASURED)]
    return {"measured": measured, "missing": missing}


def _figures(folder: Path, result: Result, rules: Rules, others: Sequence[HistoryEntry]) -> list[Figure]:
    figures: list[Figure] = []
    last: list[Figure] = []
    for index, run in enumerate(result.runs):
        final = index == len(result.runs) - 1
        if index < MOST_PLOTTED_RUNS or final:
            evidence = read_run(folder / run.folder)
            if index < MOST_PLOTTED_RUNS:
                figures.append(_throughput(run, evidence, rules, len(result.runs)))
            if final:
                last = _machines(run, evidence)
    target = rules.target
    name = target.name if target else "accuracy"
    lines = [s for s in series.quality(result.runs, name) if s.points]
    if lines:
        level = (f"target {target.value:g}", target.value) if target else None
        drawn = svg.lines(name.capitalize(), lines, SINCE_START, name, level=level, zero=False)
        figures.append(Figure(name.capitalize(), drawn))
    else:
        figures.append(Figure(name.capitalize(), why="no evaluation was recorded"))
    return [*figures, *last, *_comparison(result, rules, others)]


def _throughput(run: RunResult, evidence: RunEvidence, rules: Rules, count: int) -> Figure:
    zero = series.start_of(evidence)
    title = "Throughput over time" + (f", run {run.index}" if count > 1 else "")
    if zero is None:
        return Figure(title, why="the script has no meter")
    lines, bands = series.throughput(evidence, zero)
    if not lines:
        return Figure(title, why="no step was recorded")
    hint = "shaded: evaluation" if bands else ""
    return Figure(title, svg.lines(title, lines, SINCE_START, rules.unit, bands=bands, hint=hint))


def _machines(run: RunResult, evidence: RunEvidence) -> list[Figure]:
    zero = series.start_of(evidence) or run.started or 0.0
    use, name = series.use(evidence, zero)
    title = f"{name}, run {run.index}"
    found = [
        Figure(title, svg.lines(title, use, SINCE_START, "%", top=100.0, hint=_early(use)))
        if use
        else Figure(title, why="no samples")
    ]
    watts = series.watts(evidence, zero)
    if watts:
        title = f"Power, run {run.index}"
        found.append(Figure(title, svg.lines(title, watts, SINCE_START, "W", hint=_early(watts))))
    else:
        found.append(Figure("Power", why=show(run.power.average).removeprefix(NOT_MEASURED)))
    bars = series.phases(evidence, run)
    title = f"Phases, run {run.index}"
    if bars:
        found.append(Figure(title, svg.gantt(title, bars, hint="phases too short to see are left out")))
    else:
        found.append(Figure(title, why="no phase was recorded"))
    return found


def _early(lines: Sequence[svg.Series]) -> str:
    """What the part of a time axis before 0 is, where it has one."""
    return BEFORE if any(x < 0 for line in lines for x, _ in line.points) else ""


def _logs(folder: Path, result: Result, base: str) -> list[dict[str, Any]]:
    """For each run its logs, and how many are left out: (name, address as seen from the page)."""
    found = []
    for run in result.runs:
        paths = sorted(
            (path for path in (folder / run.folder).glob("node-*/*.log") if path.is_file()), key=_number_order
        )
        names = [path.relative_to(folder / run.folder).as_posix() for path in paths]
        links = [(name, quote(f"{base}{run.folder}/{name}")) for name in names[:MOST_LOGS]]
        if links:
            found.append({"run": run.index, "links": links, "left": len(names) - len(links)})
    return found


def _number_order(path: Path) -> list[tuple[int, str]]:
    """rank-10 after rank-2."""
    parts = re.findall(r"\d+|\D+", f"{path.parent.name}/{path.name}")
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _comparison(result: Result, rules: Rules, others: Sequence[HistoryEntry]) -> list[Figure]:
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
        drawn = svg.bars("Runs", values, unit, level=(f"score {show(result.score.value)}", score))
        found.append(Figure("Runs", drawn))
    points = scaling_points(result, others)
    if len(points) > 1:
        ideal = [(n, points[0][1] / points[0][0] * n) for n, _ in points]
        lines = [svg.Series("measured", points, dots=True), svg.Series("linear", ideal, dashed=True)]
        found.append(Figure("Scaling", svg.lines("Scaling", lines, "ranks", rules.unit)))
    else:
        found.append(Figure("Scaling", why="history holds no valid result of another size"))
    return found


def scaling_points(result: Result, others: Sequence[HistoryEntry]) -> list[tuple[float, float]]:
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


def _ranks(result: Result) -> dict[str, Any] | None:
    if not result.runs or not result.runs[-1].ranks:
        return None
    run = result.runs[-1]
    rows = [
        [
            str(r.rank),
            str(r.node),
            str(r.steps),
            figure(r.samples),
            f"{figure(r.seconds)} s",
            show(r.throughput),
        ]
        for r in run.ranks[:MOST_RANKS]
    ]
    return {"run": run.index, "rows": rows, "left": len(run.ranks) - len(rows)}


def _system(folder: Path) -> list[list[str]]:
    try:
        described = reading.read_object(folder / "system.json", 1 << 20)
    except ValueError:
        return []
    return [
        [k.replace("_", " "), str(v)]
        for k, v in described.items()
        if k != "sources" and v not in ("", "unknown", "N/A")
    ]
