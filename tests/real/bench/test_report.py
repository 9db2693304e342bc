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
            seed=i, steps=600, epochs=6, noise=0.3, watts=180.0, accuracies=(0.4, 0.5, 0.6, 0.7, 0.76, 0.8)
        )
        for i in (1, 2, 3)
    ]
    folder = made.made_result(tmp_path_factory.mktemp("report"), runs=runs, seal=False)
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
