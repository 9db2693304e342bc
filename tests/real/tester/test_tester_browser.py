"""The Tester's pages in a real browser: light and dark, phone and desktop, without scripts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright import sync_api as playwright

from trainshed.tester.model import Stored, Test
from trainshed.tester.server import HttpServer
from trainshed.tester.service import TesterService

CHROMIUM = "/usr/bin/chromium"

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.real,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="chromium is not installed"),
]

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run"]  # fmt: skip
VIEWS = {"phone": (390, 844), "desktop": (1280, 900)}


def filled(tester: TesterService) -> str:
    """A ledger with several participants, valid and failed results; gives one result's address."""
    people = (("20210126-ljp0IY", "Blue Lake Computing Centre", 14151.18), ("20210127-aaa111", "North", 13202.5),
              ("20210128-bbb222", "A participant with a rather long name indeed", 15020.25))  # fmt: skip
    address = ""
    for index, (name, participant, score) in enumerate(people):
        tester.ledger.add_test(Test(name, model="resnet50_v1.5", object="cluster", participant=participant))
        summary = {
            "id": f"resnet50-full-{index}", "workload": "resnet50", "version": "1", "scale": "full",
            "model": "resnet50", "framework": "mindspore", "nodes": 2, "ranks": 16, "metric": "throughput",
            "score": score, "unit": "images/s", "quality": 0.7706, "runs": 5, "spread": 0.01,
            "system": f"cluster-{index}", "accelerator": "Ascend 910",
        }  # fmt: skip
        good = Stored(name, f"{index + 10:064x}", 1.79e9 + index, 40, 123456, "ab" * 32, "valid", (), summary)
        tester.ledger.add_result(good)
        address = f"/results/{name}/{good.upload}"
    finding = {
        "code": "rank-missing",
        "message": "run 2: rank 3 left no marks; a result without a rank is not one",
    }
    bad = Stored(people[0][0], "f" * 64, 1.79e9 + 9, 39, 120000, "cd" * 32, "failed", (finding,), summary)
    tester.ledger.add_result(bad)
    return address


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    tester = TesterService(tmp_path_factory.mktemp("tester"))
    address = filled(tester)
    server = HttpServer(tester, ("127.0.0.1", 0))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    pages = [
        "/",
        "/tests",
        "/results",
        "/tests/20210126-ljp0IY",
        f"/results/20210126-ljp0IY/{'f' * 64}",
        address,
    ]
    yield f"http://127.0.0.1:{server.server_address[1]}", pages
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", list(VIEWS))
def test_pages_fit_and_can_be_read(
    served: tuple[str, list[str]], tmp_path: Path, scheme: str, view: str
) -> None:
    url, pages = served
    width, height = VIEWS[view]
    keep = os.environ.get("TRAINSHED_SCREENSHOTS")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme=scheme, java_script_enabled=True
        )
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        for index, path in enumerate(pages):
            answer = page.goto(url + path)
            assert answer is not None and answer.status == 200
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is too wide"
            hidden = (
                "[...document.querySelectorAll('section')].filter(s => s.scrollWidth > s.clientWidth).length"
            )
            assert page.evaluate(hidden) == 0, f"{path}: a table is cut off"
            back, ink = page.evaluate(
                "(() => { const s = getComputedStyle(document.body); return [s.backgroundColor, s.color] })()"
            )
            assert contrast(back, ink) > 7, f"{path}: {ink} on {back}"
            assert (brightness(back) < 0.2) == (scheme == "dark")
            if keep:
                page.screenshot(path=f"{keep}/{view}-{scheme}-{index}.png", full_page=True)
        page.goto(url + "/")
        assert page.locator("tbody tr").first.inner_text().find("20210128-bbb222") >= 0
        page.get_by_role("link", name="Tests").click()
        page.get_by_role("link", name="20210126-ljp0IY").click()
        assert page.get_by_role("heading", level=1).inner_text() == "Test 20210126-ljp0IY"
        assert page.locator(".state.failed").count() == 1
        assert not [text for text in complaints if "favicon" not in text], complaints
        browser.close()


def brightness(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    high, low = sorted((brightness(first), brightness(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)
