"""The Tester's web pages: made on the server, without scripts, every word escaped.

They show the ledger and change nothing. Evidence files are not served: they
stay on the organiser's disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainshed.bench.tester.ledger import Ledger
from trainshed.bench.tester.model import Stored, is_test_id, is_upload
from trainshed.bench.tester.ranking import Ranking, rank

_HTML = "text/html; charset=utf-8"
_STATES = {"received": "being checked", "valid": "valid", "failed": "failed"}


@dataclass(frozen=True)
class Page:
    status: int
    kind: str
    body: str


def page(ledger: Ledger, path: str) -> Page:
    """The page at an address."""
    match path.strip("/").split("/"):
        case [""]:
            return _ranking_page(ledger)
        case ["style.css"]:
            return Page(200, "text/css; charset=utf-8", _style())
        case ["tests"]:
            return _tests_page(ledger)
        case ["results"]:
            return _results_page(ledger)
        case ["tests", test] if is_test_id(test):
            return _test_page(ledger, test)
        case ["results", test, upload] if is_test_id(test) and is_upload(upload):
            return _result_page(ledger, test, upload)
    return _missing()


def _ranking_page(ledger: Ledger) -> Page:
    tables = rank(ledger.tests(), ledger.results())
    body = "".join(f"<h2>{escape(table.title)}</h2>{_ranking(table)}" for table in tables)
    empty = "<section><p>No result has passed the check yet.</p></section>"
    note = '<p class="soft">Only results that passed the check of this Tester, the newest of each test.</p>'
    return _whole("Ranking", note + (body or empty), "ranking")


def _ranking(table: Ranking) -> str:
    higher = table.metric == "throughput"
    words = f"Throughput, {table.unit}" if higher else f"Time to target, {table.unit}"
    heads = [
        "#Place",
        "Test",
        "Participant",
        "System",
        "Nodes × devices",
        f"#{words}",
        "#Per device",
        "#Quality",
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
            _number(place.result.summary.get("quality"), 4),
        ]
        for place in table.places
    ]
    return _table(heads, rows, {i for i, place in enumerate(table.places) if place.place == 1})


def _tests_page(ledger: Ledger) -> Page:
    results = ledger.results()
    rows = []
    for test in ledger.tests():
        own = [item for item in results if item.test == test.id]
        valid = sum(item.state == "valid" for item in own)
        rows.append(
            [
                _link(f"/tests/{test.id}", test.id),
                escape(test.participant),
                escape(test.model),
                escape(test.mode),
                escape(test.division),
                escape(test.scenario),
                escape(test.object),
                f"{valid} valid of {len(own)}",
                "closed" if test.closed else "open",
            ]
        )
    heads = ["Test", "Participant", "Model", "Mode", "Division", "Scenario", "Object", "Results", "State"]
    body = _table(heads, rows) if rows else "<section><p>No test is registered yet.</p></section>"
    return _whole("Tests", body, "tests")


def _results_page(ledger: Ledger) -> Page:
    body = _results(ledger.results()[:500], with_test=True)
    exports = "".join(f' <a href="/export/{name}">{name}</a>' for name in ("results.csv", "results.json",
                      "ranking.csv", "ranking.json"))  # fmt: skip
    return _whole("Results", f"{body}<p>Export:{exports}</p>", "results")


def _test_page(ledger: Ledger, name: str) -> Page:
    test = next((item for item in ledger.tests() if item.id == name), None)
    if test is None:
        return _missing()
    facts = [(word.capitalize(), escape(str(getattr(test, word)))) for word in
             ("participant", "model", "mode", "division", "scenario", "object")]  # fmt: skip
    facts += [
        ("Rules", "of the organiser" if test.rules else "of the result's workload"),
        ("Registered", _clock(test.created)),
        ("State", "closed" if test.closed else f"open, takes up to {test.max_results} results"),
    ]
    return _whole(
        f"Test {name}", _facts(facts) + "<h2>Results</h2>" + _results(ledger.results(name)), "tests"
    )


def _result_page(ledger: Ledger, test: str, upload: str) -> Page:
    found = ledger.result(test, upload)
    if found is None:
        return _missing()
    summary = found.summary
    facts = [
        ("Test", _link(f"/tests/{test}", test)),
        ("State", _state(found)),
        ("Score", _score(found)),
        ("Quality", _number(summary.get("quality"), 4) or "not measured"),
        ("Runs", escape(str(summary.get("runs", "")))),
        ("Workload", escape(" ".join(str(summary.get(key, "")) for key in ("workload", "version", "scale")))),
        ("Framework", escape(str(summary.get("framework", "")))),
        ("Nodes × devices", _shape(found)),
        ("System", escape(_system(found))),
        ("Result", f"<code>{escape(str(summary.get('id', '')))}</code>"),
        ("Received", f"{_clock(found.received)}, {found.files} files, {found.bytes:,} bytes"),
        ("Manifest SHA-256", f"<code>{escape(found.upload)}</code>"),
        ("Signature", f"<code>{escape(found.signature)}</code>"),
    ]
    rows = [[f"<code>{escape(item['code'])}</code>", escape(item["message"])] for item in found.findings]
    none = {"valid": "Nothing was found wrong.", "received": "The check has not ended yet."}
    findings = (
        _table(["Finding", "Why"], rows) if rows else f"<section><p>{none.get(found.state, '')}</p></section>"
    )
    return _whole(f"Result of {test}", _facts(facts) + "<h2>What the check found</h2>" + findings, "results")


def _results(results: Sequence[Stored], with_test: bool = False) -> str:
    if not results:
        return "<section><p>No result has arrived yet.</p></section>"
    rows = []
    for item in results:
        first = [_link(f"/tests/{item.test}", item.test)] if with_test else []
        rows.append(
            [
                *first,
                _link(f"/results/{item.test}/{item.upload}", item.upload[:12]),
                _clock(item.received),
                _state(item),
                _score(item),
                _shape(item),
                escape(", ".join(sorted({finding["code"] for finding in item.findings}))),
            ]
        )
    heads = [
        *(["Test"] if with_test else []),
        "Result",
        "Received",
        "State",
        "#Score",
        "Nodes × devices",
        "Findings",
    ]
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], marked: set[int] | None = None) -> str:
    """Cells are HTML already; a head that begins with # is a column of numbers."""
    kinds = [' class="number"' if head.startswith("#") else "" for head in heads]
    names = [escape(head.lstrip("#")) for head in heads]
    head = "".join(f"<th scope=col{kind}>{name}</th>" for kind, name in zip(kinds, names, strict=True))
    lines = []
    for index, row in enumerate(rows):
        mark = ' class="first"' if marked and index in marked else ""
        cells = "".join(
            f'<td{kind} data-label="{name}">{cell}</td>'
            for kind, name, cell in zip(kinds, names, row, strict=True)
        )
        lines.append(f"<tr{mark}>{cells}</tr>")
    return f"<section><table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></section>"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    return f"<section><dl>{''.join(f'<dt>{k}</dt><dd>{v}</dd>' for k, v in facts if v)}</dl></section>"


def _whole(title: str, body: str, current: str, status: int = 200) -> Page:
    places = (("/", "ranking", "Ranking"), ("/tests", "tests", "Tests"), ("/results", "results", "Results"))
    links = "".join(
        f'<a href="{url}"{" aria-current=page" if name == current else ""}>{word}</a>'
        for url, name, word in places
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
    return _whole("Nothing is here", '<section><p><a href="/">To the ranking</a></p></section>', "", 404)


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
    words = f"{_number(value)} {escape(str(stored.summary.get('unit', '')))}"
    return f"{words} <small>stated, not accepted</small>" if stored.state == "failed" else words


def _shape(stored: Stored) -> str:
    nodes, ranks = stored.summary.get("nodes"), stored.summary.get("ranks")
    return (
        f"{nodes} × {ranks // nodes if ranks % nodes == 0 else f'{ranks} in all'}" if nodes and ranks else ""
    )


def _system(stored: Stored) -> str:
    words = [str(stored.summary.get(key, "")) for key in ("system", "accelerator")]
    words += ["emulated, not ranked"] if stored.summary.get("emulated") else []
    return ", ".join(word for word in words if word and word not in ("unknown", "N/A"))


def _number(value: Any, digits: int = 2) -> str:
    return "" if value is None else f"{float(value):,.{digits}f}"


def _clock(stamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(stamp))


@cache
def _style() -> str:
    return Path(__file__).with_name("style.css").read_text("utf-8")
