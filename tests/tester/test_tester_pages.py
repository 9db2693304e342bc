"""Ranking, pages and exports of the Tester."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from served import Served

from trainshed.bench import manifest
from trainshed.tester import export
from trainshed.tester.model import Stored, Test
from trainshed.tester.ranking import rank

pytestmark = [pytest.mark.benchmark]

EVIL = '<script>alert("x")</script>'


def stored(test: str, score: float | None, received: float = 1.0, **changes: Any) -> Stored:
    summary = {"workload": "made", "version": "1", "scale": "tiny", "model": "made", "framework": "made",
               "nodes": 2, "ranks": 4, "metric": "throughput", "score": score, "unit": "images/s",
               "quality": 0.8, "runs": 3, "system": "node", "accelerator": "N/A"}  # fmt: skip
    state = changes.pop("state", "valid")
    return Stored(test, f"{int(received * 1000):064x}", received, 3, 100, "s", state, (), summary | changes)


def test_the_best_is_first_and_equals_share_a_place() -> None:
    tests = [Test(name, model="made") for name in ("a", "b", "c", "d")]
    results = [stored("a", 10, 1), stored("b", 30, 2), stored("c", 30, 3), stored("d", 50, 4, state="failed")]
    (table,) = rank(tests, results)
    assert [(p.place, p.test.id) for p in table.places] == [(1, "b"), (1, "c"), (3, "a")]
    assert table.places[0].per_device == 7.5


def test_the_shortest_time_to_target_is_first() -> None:
    tests = [Test(name, model="made") for name in ("a", "b")]
    kind = {"metric": "time_to_target", "unit": "s"}
    (table,) = rank(tests, [stored("a", 10, 1, **kind), stored("b", 30, 2, **kind)])
    assert [p.test.id for p in table.places] == ["a", "b"]


def test_only_the_newest_valid_result_of_a_test_counts() -> None:
    results = [
        stored("a", 99, 1),
        stored("a", 20, 2),
        stored("a", 50, 3, state="failed"),
        stored("a", 90, 5, emulated=True),
        stored("a", None, 4),
    ]
    (table,) = rank([Test("a", model="made")], results)
    assert [p.score for p in table.places] == [20]


def test_results_of_other_kinds_are_not_compared() -> None:
    tests = [Test("a", model="made"), Test("b", model="made", division="open"), Test("c", model="made")]
    results = [stored("a", 1, 1), stored("b", 2, 2), stored("c", 3, 3, scale="full")]
    assert sorted(len(table.places) for table in rank(tests, results)) == [1, 1, 1]


def test_pages_escape_whatever_a_participant_wrote(served: Served) -> None:
    served.add("t1", participant=EVIL)
    ledger = served.tester.ledger
    bad = stored("t1", 5.0, system=EVIL, framework=EVIL, id=EVIL)
    ledger.add_result(bad)
    ledger.judge(bad, [])
    worse = stored("t1", 6.0, received=2.0, state="failed")
    ledger.add_result(worse)
    for path in ("/", "/tests", "/results", "/tests/t1", f"/results/t1/{bad.upload}"):
        status, _, text = served.ask("GET", path)
        assert status == 200 and "<script" not in text, path
    assert "&lt;script&gt;" in served.ask("GET", f"/results/t1/{bad.upload}")[2]


def test_unknown_addresses_answer_404_and_leak_nothing(served: Served) -> None:
    for path in (
        "/x",
        "/tests/none",
        "/results/a/b",
        "/../../etc/passwd",
        "/export/../tester.sqlite",
        "/%00",
        "/tests/%2e%2e",
    ):
        assert served.ask("GET", path)[0] == 404, path
    assert served.ask("DELETE", "/tests/t1")[0] == 501


def test_exports_hold_what_the_ledger_holds_and_no_formula(served: Served) -> None:
    served.add("t1", participant="=HYPERLINK(1)")
    item = stored("t1", 12.5)
    served.tester.ledger.add_result(item)
    rows = list(csv.DictReader(io.StringIO(served.ask("GET", "/export/results.csv")[2])))
    assert rows[0]["score"] == "12.5" and rows[0]["asked_participant"] == "'=HYPERLINK(1)"
    ranking = served.ask("GET", "/export/ranking.json")[1]
    assert ranking["rankings"][0]["places"][0]["test"] == "t1"
    assert served.ask("GET", "/export/results.json")[1]["results"][0]["asked"]["model"] == "made"
    assert export.ranking_csv(served.tester.ledger.tests(), [item]).count("\n") == 2


def test_pages_say_that_no_script_may_run(served: Served) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    connection.request("GET", "/")
    headers = connection.getresponse().headers
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    connection.close()


@pytest.mark.field
def test_results_can_be_searched_and_sorted_without_a_script(served: Served) -> None:
    ledger = served.tester.ledger
    for index, (name, score) in enumerate(
        [("lake-a", 30.0), ("lake-b", None), ("hill-c", 200.0), ("hill-d", 9.0)]
    ):
        served.add(name, participant=name.upper())
        ledger.add_result(stored(name, score, received=float(index + 1)))

    def shown(path: str) -> list[str]:
        status, _, text = served.ask("GET", path)
        assert status == 200
        return re.findall(r'data-label="Test"><a href="[^"]*">([^<]+)', text)

    assert shown("/results") == ["hill-d", "hill-c", "lake-b", "lake-a"], "the newest first"
    assert shown("/results?q=LAKE") == ["lake-b", "lake-a"]
    assert shown("/results?sort=Score") == ["hill-d", "lake-a", "hill-c", "lake-b"], (
        "numbers; unknown ones last"
    )
    assert shown("/results?sort=Score&order=desc") == ["hill-c", "lake-a", "hill-d", "lake-b"]
    assert shown("/results?sort=Nonsense&q=hill") == ["hill-d", "hill-c"]
    assert shown("/tests?q=hill+HILL-C") == ["hill-c"] and shown("/tests?sort=Test&order=desc")[0] == "lake-b"
    status, _, text = served.ask("GET", "/results?q=%3Cscript%3E&sort=%22%3E")
    assert status == 200 and "<script" not in text and "No rows match" in text
    assert 'href="/results?sort=Score&amp;order=asc"' in served.ask("GET", "/results")[2]


@pytest.mark.field
def test_a_result_that_holds_has_its_runs_and_a_report_of_the_testers_own(
    served: Served, result: Path
) -> None:
    (result / "report.html").write_text(EVIL)
    manifest.write(result)
    assert not served.findings("t1", result)
    (item,) = served.tester.ledger.results("t1")
    address = f"/results/t1/{item.upload}"
    _, _, text = served.ask("GET", address)
    assert len(re.findall(r'data-label="Run">', text)) == item.summary["runs"] > 1
    assert "Spread of runs" in text and f'href="{address}/report"' in text
    status, _, report = served.ask("GET", f"{address}/report")
    assert status == 200 and "Throughput over time" in report and "<script" not in report
    assert ".log" not in re.findall(r'href="([^"]*)"', report), (
        "evidence is not served, so nothing leads to it"
    )
    assert served.ask("GET", f"/results/t2/{item.upload}/report")[0] == 404
    assert served.ask("GET", f"/results/t1/{'0' * 64}/report")[0] == 404
