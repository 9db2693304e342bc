"""The Tester's web pages: made on the server, without scripts, every text escaped.

They show the ledger and change nothing. Evidence files are not served: they stay on the organiser's disk. The
report of a result that holds is served, as this Tester made it; the participant's own is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainshed.bench.report.text import figure
from trainshed.tester.ledger import Ledger
from trainshed.tester.listing import Cell, ListView, listing, table
from trainshed.tester.model import Stored, Test, is_test_id, is_upload
from trainshed.tester.ranking import Ranking, rank

_HTML = "text/html; charset=utf-8"
_MOST_RESULTS = 500
_STATES = {"received": "being checked", "valid": "valid", "unstable": "unstable", "failed": "failed"}


def _no_report(_test: str, _upload: str) -> bool:
    return False


@dataclass(frozen=True)
class Page:
    status: int
    kind: str
    body: str


def page(
    ledger: Ledger, path: str, query: str = "", reports: Callable[[str, str], bool] = _no_report
) -> Page:
    """The page at an address; `reports` says whether there is a report of a result."""
    view = ListView.of(query)
    match path.strip("/").split("/"):
        case [""]:
            return _ranking_page(ledger)
        case ["style.css"]:
            return Page(200, "text/css; charset=utf-8", _style())
        case ["tests"]:
            return _tests_page(ledger, view)
        case ["results"]:
            return _results_page(ledger, view)
        case ["tests", test] if is_test_id(test):
            return _test_page(ledger, test, view)
        case ["results", test, upload] if is_test_id(test) and is_upload(upload):
            return _result_page(ledger, test, upload, reports(test, upload))
    return _missing()


def _ranking_page(ledger: Ledger) -> Page:
    tables = rank(ledger.tests(), ledger.results())
    body = "".join(f"<h2>{escape(one.title)}</h2>{_ranking(one)}" for one in tables)
    empty = "<section><p>No result has passed the check yet.</p></section>"
    note = '<p class="soft">Only results that passed the check of this Tester, the newest of each test.</p>'
    return _whole("Ranking", note + (body or empty), "ranking")


def _ranking(ranking: Ranking) -> str:
    higher = ranking.metric == "throughput"
    score = f"Throughput, {ranking.unit}" if higher else f"Time to target, {ranking.unit}"
    heads = [
        "#Place",
        "Test",
        "Participant",
        "System",
        "Nodes × devices",
        f"#{score}",
        "#Per device",
        "#Spread",
        "#Quality",
        "Warnings",
    ]
    rows = [
        [
            str(place.place),
            _link(f"/results/{place.test.id}/{place.result.upload}", place.test.id),
            escape(place.test.participant),
            escape(_system(place.result)),
            _shape(place.result),
            _number(place.score),
            _number(place.per_device),
            _share(place.result.summary.get("spread")),
            _number(place.result.summary.get("quality"), 4),
            _warnings(place.result),
        ]
        for place in ranking.places
    ]
    return _table(heads, rows, {i for i, place in enumerate(ranking.places) if place.place == 1})


def _tests_page(ledger: Ledger, view: ListView) -> Page:
    results = ledger.results()
    rows: list[list[Cell]] = []
    for test in ledger.tests():
        of_test = [item for item in results if item.test == test.id]
        valid = sum(item.state == "valid" for item in of_test)
        texts = (test.participant, test.model, test.mode, test.division, test.scenario, test.object)
        rows.append(
            [
                Cell(_link(f"/tests/{test.id}", test.id)),
                *(Cell(escape(text)) for text in texts),
                Cell(f"{valid} valid of {len(of_test)}", valid),
                Cell("closed" if test.closed else "open"),
            ]
        )
    heads = ["Test", "Participant", "Model", "Mode", "Division", "Scenario", "Object", "Results", "State"]
    none = "<section><p>No test is registered yet.</p></section>"
    return _whole("Tests", listing(heads, rows, view, "/tests") if rows else none, "tests")


def _results_page(ledger: Ledger, view: ListView) -> Page:
    found = ledger.results()
    body = _results(found[:_MOST_RESULTS], view, "/results", with_test=True)
    if len(found) > _MOST_RESULTS:
        body += f"<p>The newest {_MOST_RESULTS} of {len(found)}; an export holds all.</p>"
    exports = "".join(f' <a href="/export/{name}">{name}</a>' for name in ("results.csv", "results.json",
                      "ranking.csv", "ranking.json"))  # fmt: skip
    return _whole("Results", f"{body}<p>Export:{exports}</p>", "results")


def _test_page(ledger: Ledger, name: str, view: ListView) -> Page:
    test = next((item for item in ledger.tests() if item.id == name), None)
    if test is None:
        return _missing()
    facts = [(field.capitalize(), escape(str(getattr(test, field)))) for field in
             ("participant", "model", "mode", "division", "scenario", "object")]  # fmt: skip
    facts += [
        ("Rules", escape(_rules(test))),
        ("Registered", _clock(test.created)),
        ("State", "closed" if test.closed else f"open, takes up to {test.max_results} results"),
    ]
    results = _results(ledger.results(name), view, quote(f"/tests/{name}"))
    return _whole(f"Test {name}", f"{_facts(facts)}<h2>Results</h2>{results}", "tests")


def _rules(test: Test) -> str:
    """Which rules results of a test are held to."""
    if test.rules:
        return "exactly those of the organiser"
    named = test.public()["workload"]
    return f"those of workload {named['name']} version {named['version']}" if named else "none are named"


def _result_page(ledger: Ledger, test: str, upload: str, has_report: bool) -> Page:
    found = ledger.result(test, upload)
    if found is None:
        return _missing()
    summary = found.summary
    facts = [
        ("Test", _link(f"/tests/{test}", test)),
        ("State", _state(found)),
        ("Score", _score(found)),
        ("Quality", _number(summary.get("quality"), 4) or "not measured"),
        ("Report", _link(f"/results/{test}/{upload}/report", "plots, runs and system") if has_report else ""),
        ("Runs", escape(str(summary.get("runs", "")))),
        ("Spread of runs", _share(summary.get("spread"))),
        ("95% interval", _interval(summary)),
        ("Workload", escape(" ".join(str(summary.get(key, "")) for key in ("workload", "version", "scale")))),
        ("Framework", escape(str(summary.get("framework", "")))),
        ("Nodes × devices", _shape(found)),
        ("System", escape(_system(found))),
        ("Attestation", escape(str(summary.get("attestation", "")))),
        ("Result", f"<code>{escape(str(summary.get('id', '')))}</code>"),
        ("Received", f"{_clock(found.received)}, {found.files} files, {found.bytes:,} bytes"),
        ("Manifest SHA-256", f"<code>{escape(found.upload)}</code>"),
        ("Signature", f"<code>{escape(found.signature)}</code>"),
    ]
    rows = [[f"<code>{escape(item['code'])}</code>", escape(item["message"])] for item in found.findings]
    none = {
        "valid": "No problems found.",
        "unstable": "No problems found, but the runs differ by more than the rules allow: it is not ranked.",
        "received": "The check has not ended yet.",
    }
    findings = (
        _table(["Finding", "Why"], rows) if rows else f"<section><p>{none.get(found.state, '')}</p></section>"
    )
    listed = [
        [f"<code>{escape(str(w.get('code', '')))}</code>", escape(str(w.get("message", "")))]
        for w in summary.get("warnings", ())
    ]
    warnings = f"<h2>Warnings</h2>{_table(['Warning', 'What'], listed)}" if listed else ""
    body = f"{_facts(facts)}<h2>What the check found</h2>{findings}{warnings}{_runs(summary)}"
    return _whole(f"Result of {test}", body, "results")


def _runs(summary: dict[str, Any]) -> str:
    """The runs that a result rests on."""
    runs = summary.get("runs_of", ())
    if not runs:
        return ""
    unit = escape(str(summary.get("unit", "")))
    heads = ["#Run", "State", "#Seed", "#Throughput", "#Quality", "#Time to target", "#Step, median", "Why"]
    rows = [
        [
            str(run["index"]),
            f'<span class="state {escape(run["status"])}">{escape(run["status"])}</span>',
            "" if run["seed"] is None else str(run["seed"]),
            _with_unit(run["throughput"], unit if summary.get("metric") == "throughput" else ""),
            _number(run["quality"], 4),
            _with_unit(run["time_to_target"], "s"),
            _with_unit(run["step_time_median"], "s"),
            escape(run["why"]),
        ]
        for run in runs
    ]
    return f"<h2>Runs</h2>{_table(heads, rows)}"


def _with_unit(value: Any, unit: str) -> str:
    text = "" if value is None else figure(float(value))
    return f"{text} {unit}".strip() if text else ""


def _warnings(stored: Stored) -> str:
    return escape(", ".join(sorted({str(w.get("code", "")) for w in stored.summary.get("warnings", ())})))


def _results(results: Sequence[Stored], view: ListView, base: str, with_test: bool = False) -> str:
    if not results:
        return "<section><p>No result has arrived yet.</p></section>"
    rows: list[list[Cell]] = []
    for item in results:
        first = [Cell(_link(f"/tests/{item.test}", item.test))] if with_test else []
        score, spread = item.summary.get("score"), item.summary.get("spread")
        rows.append(
            [
                *first,
                Cell(_link(f"/results/{item.test}/{item.upload}", item.upload[:12])),
                Cell(_clock(item.received), item.received),
                Cell(_state(item)),
                Cell(_score(item), score),
                Cell(_share(spread), spread),
                Cell(_shape(item), item.summary.get("ranks")),
                Cell(escape(", ".join(sorted({finding["code"] for finding in item.findings})))),
                Cell(_warnings(item)),
            ]
        )
    heads = [
        *(["Test"] if with_test else []),
        "Result",
        "Received",
        "State",
        "#Score",
        "#Spread",
        "Nodes × devices",
        "Findings",
        "Warnings",
    ]
    return listing(heads, rows, view, base)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], marked: set[int] | None = None) -> str:
    """Cells are HTML already; a head that begins with # is a column of numbers."""
    return table(heads, [[Cell(cell) for cell in row] for row in rows], marked)


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    return f"<section><dl>{''.join(f'<dt>{k}</dt><dd>{v}</dd>' for k, v in facts if v)}</dl></section>"


def _whole(title: str, body: str, current: str, status: int = 200) -> Page:
    pages = (("/", "ranking", "Ranking"), ("/tests", "tests", "Tests"), ("/results", "results", "Results"))
    links = "".join(
        f'<a href="{url}"{" aria-current=page" if name == current else ""}>{text}</a>'
        for url, name, text in pages
    )
    return Page(
        status,
        _HTML,
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)} · Trainshed Tester</title><link rel="stylesheet" href="/style.css"></head>'
        f"<body><header><div><strong>Trainshed Tester</strong><nav>{links}</nav></div></header>"
        f"<main><h1>{escape(title)}</h1>{body}</main>"
        f"<footer>Times are UTC. Made {_clock(time.time())}.</footer></body></html>\n",
    )


def _missing() -> Page:
    return _whole("Not found", '<section><p><a href="/">Back to the ranking</a></p></section>', "", 404)


def _link(url: str, text: str) -> str:
    return f'<a href="{escape(quote(url))}">{escape(text)}</a>'


def _state(stored: Stored) -> str:
    return (
        f'<span class="state {escape(stored.state)}">{escape(_STATES.get(stored.state, stored.state))}</span>'
    )


def _score(stored: Stored) -> str:
    value = stored.summary.get("score")
    if value is None:
        return "" if stored.state == "received" else "not measured"
    text = f"{_number(value)} {escape(str(stored.summary.get('unit', '')))}"
    return f"{text} <small>stated, not accepted</small>" if stored.state == "failed" else text


def _shape(stored: Stored) -> str:
    nodes, ranks = stored.summary.get("nodes"), stored.summary.get("ranks")
    return (
        f"{nodes} × {ranks // nodes if ranks % nodes == 0 else f'{ranks} in all'}" if nodes and ranks else ""
    )


def _system(stored: Stored) -> str:
    texts = [str(stored.summary.get(key, "")) for key in ("system", "accelerator")]
    texts += ["emulated, not ranked"] if stored.summary.get("emulated") else []
    return ", ".join(text for text in texts if text and text not in ("unknown", "N/A"))


def _number(value: Any, digits: int = 6) -> str:
    return "" if value is None else figure(float(value), digits)


def _share(value: Any) -> str:
    return "" if value is None else f"{float(value) * 100:.3g}%"


def _interval(summary: dict[str, Any]) -> str:
    low, high = summary.get("confidence_low"), summary.get("confidence_high")
    if low is None or high is None:
        return ""
    return f"{_number(low)} … {_number(high)} {escape(str(summary.get('unit', '')))}"


def _clock(stamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(stamp))


@cache
def _style() -> str:
    return Path(__file__).with_name("style.css").read_text("utf-8")
