"""Results and rankings as CSV and JSON. Cells that a spreadsheet would take for a formula are made text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from trainshed.tester.model import Stored, Test
from trainshed.tester.ranking import rank

_SUMMARY = (
    "id", "workload", "version", "scale", "model", "framework", "nodes", "ranks",
    "metric", "score", "unit", "quality", "runs", "spread", "confidence_low", "confidence_high", "system", "accelerator",
)  # fmt: skip
_TEST = ("mode", "model", "division", "scenario", "object", "participant")


def results_json(tests: Sequence[Test], results: Sequence[Stored]) -> str:
    known = {test.id: test.public() for test in tests}
    rows = [result.public() | {"asked": known.get(result.test)} for result in results]
    return json.dumps({"results": rows}, indent=1, allow_nan=False) + "\n"


def ranking_json(tests: Sequence[Test], results: Sequence[Stored]) -> str:
    rows = [
        {
            "ranking": table.title,
            "metric": table.metric,
            "unit": table.unit,
            "places": [
                {
                    "place": p.place,
                    "test": p.test.id,
                    "participant": p.test.participant,
                    "upload": p.result.upload,
                }
                | {"per_device": p.per_device}
                | {name: p.result.summary.get(name) for name in _SUMMARY}
                for p in table.places
            ],
        }
        for table in rank(tests, results)
    ]
    return json.dumps({"rankings": rows}, indent=1, allow_nan=False) + "\n"


def results_csv(tests: Sequence[Test], results: Sequence[Stored]) -> str:
    known = {test.id: test for test in tests}
    head = [
        "test",
        *(f"asked_{name}" for name in _TEST),
        "upload",
        "received",
        "state",
        "findings",
        *_SUMMARY,
    ]
    rows = []
    for result in results:
        of_test = [getattr(known.get(result.test), name, "") for name in _TEST]
        codes = " ".join(sorted({item["code"] for item in result.findings}))
        of_result = [result.upload, f"{result.received:.3f}", result.state, codes]
        rows.append([result.test, *of_test, *of_result, *(result.summary.get(name) for name in _SUMMARY)])
    return _csv(head, rows)


def ranking_csv(tests: Sequence[Test], results: Sequence[Stored]) -> str:
    head = ["ranking", "place", "test", "participant", "upload", "per_device", *_SUMMARY]
    rows = [
        [table.title, p.place, p.test.id, p.test.participant, p.result.upload, p.per_device]
        + [p.result.summary.get(name) for name in _SUMMARY]
        for table in rank(tests, results)
        for p in table.places
    ]
    return _csv(head, rows)


def _csv(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([[_cell(value) for value in row] for row in rows])
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return "'" + value
    return repr(value) if isinstance(value, float) else value
