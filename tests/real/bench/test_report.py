"""The report opened in a real browser: light and dark, phone and desktop, no network, no script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import pytest

from trainshed.bench import folder as folders
from trainshed.bench.history import entry_of
from trainshed.bench.report.page import write_reports

pytestmark = [pytest.mark.benchmark, pytest.mark.real]
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
PLOTS = [
    "Throughput over time, run 1", "Throughput over time, run 2", "Throughput over time, run 3", "Accuracy",
    "Device use, run 3", "Power, run 3", "Phases, run 3", "Runs", "Scaling",
]  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [
        made.MadeRun(
            seed=i,
            steps=600,
            epochs=6,
            jitter=0.03,
            train_samples=13_000,
            watts=180.0,
            accuracies=(0.4, 0.5, 0.6, 0.7, 0.76, 0.8),
        )
        for i in (1, 2, 3)
    ]
    folder = made.made_result(
        tmp_path_factory.mktemp("report"), made.made_rules(dataset=None), runs, seal=False
    )
    entry = entry_of(folders.load_result(folder), folder)
    others = [replace(entry, id=f"other-{n}", ranks=n, score=320.0 * n) for n in (1, 2)]
    return write_reports(folder, others)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield chromium
        chromium.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_fits_and_needs_nothing_else(report: Path, browser: Any, scheme: str, width: int) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=True
    )
    page = context.new_page()
    asked: list[str] = []
    problems: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.on("console", lambda m: problems.append(m.text))
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.goto(report.as_uri())
    assert asked == [report.as_uri()] and problems == []
    assert page.locator("script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("figcaption").all_inner_texts() == PLOTS
    assert page.locator("svg").count() == len(PLOTS)
    assert "NaN" not in page.content()
    # No text of a plot leaves its figure, and none is too small to read.
    outside = page.evaluate(
        """() => [...document.querySelectorAll('svg')].flatMap(svg => { const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()])
        .filter(([, b]) => b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1
          || b.bottom > box.bottom + 1 || b.height < 8).map(([t]) => t) })"""
    )
    assert outside == []
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(c) for c in dark[4:-1].split(",")) < 200) is (scheme == "dark")
    context.close()


def test_the_report_prints_in_a_few_pages_with_its_tables(report: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    data = page.pdf(format="A4")
    assert data.startswith(b"%PDF") and 1 <= data.count(b"/Type /Page\n") <= 5
    page.close()


@pytest.mark.field
def test_what_is_not_plotted_is_one_line_and_logs_are_linked(browser: Any, tmp_path: Path) -> None:
    folder = made.made_result(tmp_path, made.made_rules(dataset=None), seal=False)
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(write_reports(folder).as_uri())
    (line,) = page.locator("p.absent").all_inner_texts()
    assert line.startswith("Not plotted: ") and "Scaling (history holds no valid result" in line
    assert page.locator("figure").count() == page.locator("figure svg").count()
    links = page.locator(".logs a").evaluate_all("links => links.map(link => link.href)")
    assert len(links) == 12 and all(Path(link.removeprefix("file://")).is_file() for link in links)
    assert page.locator(".swipe").first.inner_text() == "The table scrolls sideways →"
    page.set_viewport_size({"width": 1280, "height": 900})
    assert not page.locator(".swipe").first.is_visible()


@pytest.mark.field
def test_the_time_before_the_start_mark_is_marked_and_explained(report: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(report.as_uri())
    use = page.locator("figure", has_text="Device use")
    assert use.locator("line.start").count() == 1
    assert "before it (negative) nodes were prepared" in use.locator(".hint").inner_text()


@pytest.mark.field
def test_no_number_of_a_bar_lies_on_the_line_of_the_score(report: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(report.as_uri())
    runs = page.locator("figure", has=page.locator("figcaption", has_text="Runs"))
    line = runs.locator("line.level").bounding_box()["y"]
    boxes = [text.bounding_box() for text in runs.locator("text.inside").all()]
    assert len(boxes) == 3 and all(line < box["y"] or line > box["y"] + box["height"] for box in boxes)
