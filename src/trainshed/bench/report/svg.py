"""Plots as inline SVG: lines, bars and Gantt bars, coloured by CSS variables so that they follow the page.

Knows numbers and labels, nothing of benchmarks. No script: names of points
show on hover through SVG's own <title>.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 400, 236
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 14, 38
COLOURS = 8
MAX_POINTS = 300


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Bar:
    """A stretch of time in row `row` of a Gantt plot; `colour` is a number of the palette."""

    row: str
    name: str
    start: float
    end: float


def lines(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    bands: Sequence[tuple[float, float]] = (),
    level: tuple[str, float] | None = None,
    zero: bool = True,
    top: float | None = None,
    hint: str = "",
) -> str:
    """Lines over a common x axis; `bands` are shaded stretches, `level` is a named horizontal line."""
    shown = [s for s in series if s.points]
    # Time and sizes start at zero; what came before the start mark stays visible.
    xs = [0.0] + [x for s in shown for x, _ in s.points]
    ys = [y for s in shown for _, y in s.points] + ([level[1]] if level else []) + ([0.0] if zero else [])
    scale = _Scale((min(xs), max(xs)), (min(ys), top if top is not None else max(ys)))
    parts = [_frame(scale, x_label, y_label)]
    for low, high in bands:
        x0, x1 = scale.x(max(low, scale.x_low)), scale.x(min(high, scale.x_high))
        if x1 > x0:
            parts.append(
                f'<rect class="band" x="{x0:.1f}" y="{TOP}" width="{x1 - x0:.1f}" height="{scale.height}"/>'
            )
    if level:
        y = scale.y(level[1])
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    if scale.x_low < 0:
        x = scale.x(0.0)
        parts.append(f'<line class="start" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    for number, one in enumerate(shown):
        # The first line is wider, so that lines that cover one another can be distinguished.
        parts.append(_line(one, number % COLOURS, scale, wide=number == 0 and len(shown) > 1))
    if level:
        # Written last, over the lines, above its own or below it where the plot ends.
        y = scale.y(level[1])
        label_y = y - 5 if y - 5 > TOP + 8 else y + 14
        parts.append(f'<text class="note" x="{LEFT + 4}" y="{label_y:.1f}">{escape(level[0])}</text>')
    return _figure(title, parts, [s.name for s in shown] if len(shown) > 1 else [], hint=hint)


def bars(
    title: str, values: Sequence[tuple[str, float]], y_label: str, *, level: tuple[str, float] | None = None
) -> str:
    """One bar a name, all from zero."""
    highest = max([v for _, v in values] + ([level[1]] if level else []))
    scale = _Scale((0, len(values)), (0, highest))
    parts = [_frame(scale, "", y_label, x_ticks=False)]
    width = min(46.0, scale.width / len(values) * 0.62)
    every = math.ceil(len(values) / 12)
    for i, (name, value) in enumerate(values):
        x, y = scale.x(i + 0.5), scale.y(value)
        text = f"{escape(name)}: {short(value)}"
        parts.append(
            f'<rect class="fill s0" x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{max(0.0, TOP + scale.height - y):.1f}" rx="2"><title>{text}</title></rect>'
        )
        if i % every == 0:
            parts.append(
                f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(name)}</text>'
            )
        if len(values) <= 6:
            # Within the bar, where no line of a level crosses it; above one that is too low for that.
            inside = TOP + scale.height - y > 22
            kind, label_y = ("inside", y + 16) if inside else ("value", y - 4)
            parts.append(
                f'<text class="{kind}" x="{x:.1f}" y="{label_y:.1f}" text-anchor="middle">{short(value)}</text>'
            )
    if level:
        y = scale.y(level[1])
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    return _figure(title, parts, [], note=level[0] if level else "")


def gantt(title: str, items: Sequence[Bar], hint: str = "") -> str:
    """Stretches of time, one row a machine, one colour a name."""
    rows = list(dict.fromkeys(b.row for b in items))
    names = list(dict.fromkeys(b.name for b in items))
    begin, end = min(b.start for b in items), max(b.end for b in items)
    left, row = 64, 26
    height = TOP + row * len(rows) + BOTTOM
    span = max(end - begin, 1e-9)
    width = WIDTH - RIGHT - left
    parts = []
    for tick in ticks(0, span):
        x = left + tick / span * width
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{height - BOTTOM + 15}" text-anchor="middle">{short(tick)}</text>'
        )
    parts.append(
        f'<text x="{left + width / 2}" y="{height - 5}" text-anchor="middle">seconds since the first phase</text>'
    )
    for i, name in enumerate(rows):
        y = TOP + i * row
        parts.append(f'<text x="{left - 8}" y="{y + row / 2 + 4}" text-anchor="end">{escape(name)}</text>')
        for bar in (b for b in items if b.row == name):
            x = left + (bar.start - begin) / span * width
            length = max(1.2, (bar.end - bar.start) / span * width)
            text = f"{escape(bar.name)}: {bar.end - bar.start:.2f} s"
            colour = names.index(bar.name) % COLOURS
            parts.append(
                f'<rect class="fill s{colour}" x="{x:.1f}" y="{y + 4}" width="{length:.1f}" '
                f'height="{row - 8}" rx="2"><title>{text}</title></rect>'
            )
    return _figure(title, parts, names, height=height, hint=hint)


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers between two values."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    rough = span / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round((first + i) * step, 12) for i in range(int((high - first * step) / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number a person can read at a glance."""
    if value == 0:
        return "0"
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.0f}" if size >= 1000 else f"{value:.3g}"


def thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most MAX_POINTS points, each a mean of neighbours: a spike is softened, not lost."""
    if len(points) <= MAX_POINTS:
        return list(points)
    size = len(points) / MAX_POINTS
    found = []
    for i in range(MAX_POINTS):
        part = points[round(i * size) : max(round((i + 1) * size), round(i * size) + 1)]
        found.append((sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)))
    return found


class _Scale:
    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.width, self.height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        self.x_low, self.x_high = x if x[1] > x[0] else (x[0] - 0.5, x[0] + 0.5)
        low, high = y
        if high <= low:
            high = low + (abs(low) or 1.0) * 0.1
        steps = ticks(low, high)
        step = steps[1] - steps[0] if len(steps) > 1 else high - low
        # The axis ends on a round number at or above the highest value.
        self.y_low = math.floor(low / step + 1e-9) * step
        self.y_high = math.ceil(high / step - 1e-9) * step

    def x(self, value: float) -> float:
        return LEFT + (value - self.x_low) / (self.x_high - self.x_low) * self.width

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return TOP + (1 - share) * self.height


def _frame(scale: _Scale, x_label: str, y_label: str, x_ticks: bool = True) -> str:
    parts = []
    for tick in ticks(scale.y_low, scale.y_high):
        y = scale.y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    if x_ticks:
        for tick in ticks(scale.x_low, scale.x_high):
            x, y = scale.x(tick), HEIGHT - BOTTOM + 16
            parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{short(tick)}</text>')
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    if x_label:
        centre = LEFT + scale.width / 2
        parts.append(f'<text x="{centre}" y="{HEIGHT - 5}" text-anchor="middle">{escape(x_label)}</text>')
    middle = TOP + scale.height / 2
    parts.append(
        f'<text transform="translate(11 {middle}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    )
    return "".join(parts)


def _line(series: Series, colour: int, scale: _Scale, wide: bool) -> str:
    points = thin(series.points)
    path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in points)
    names = f"line s{colour}" + (" dashed" if series.dashed else "") + (" wide" if wide else "")
    parts = [f'<polyline class="{names}" points="{path}"><title>{escape(series.name)}</title></polyline>']
    if series.dots or len(points) == 1:
        for x, y in points:
            text = f"{escape(series.name)}: {short(y)} at {short(x)}"
            parts.append(
                f'<circle class="fill s{colour}" cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="3">'
                f"<title>{text}</title></circle>"
            )
    return "".join(parts)


def _figure(
    title: str,
    parts: Sequence[str],
    names: Sequence[str],
    *,
    height: float = HEIGHT,
    note: str = "",
    hint: str = "",
) -> str:
    keys = "".join(f'<span><i class="s{i % COLOURS}"></i>{escape(n)}</span>' for i, n in enumerate(names))
    if note:
        keys += f'<span><i class="dash"></i>{escape(note)}</span>'
    legend = f'<div class="legend">{keys}</div>' if keys else ""
    below = f'<p class="hint">{escape(hint)}</p>' if hint else ""
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
        f"{legend}{below}</figure>"
    )
