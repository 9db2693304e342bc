"""What the Tester itself holds against a result: its test, its evidence, and words nobody can show."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import made
import pytest
from served import WORKLOAD, Served

from trainshed.bench import manifest
from trainshed.errors import UsageError
from trainshed.tester.model import Stored, plain

pytestmark = [pytest.mark.benchmark]


def spoilt(folder: Path, spoil: Callable[[Path], object]) -> Path:
    spoil(folder)
    manifest.write(folder)
    return folder


def set_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("spoil", "code", "names"),
    [
        (lambda f: (f / "runs/2/events/submit.jsonl").unlink(), "file-missing", "runs/2/events/submit.jsonl"),
        (lambda f: (f / "runs/2/events/submit.jsonl").write_text("\n"), "submission-differs", "run 2"),
        (lambda f: (f / "runs/3/plan.json").unlink(), "file-missing", "runs/3/plan.json"),
        (lambda f: (f / "runs/3/plan.json").write_text(json.dumps({"size": 4})), "plan-unreadable", "run 3"),
    ],
)
def test_a_run_without_its_plan_or_submission_is_named(
    served: Served, result: Path, spoil: Callable[[Path], object], code: str, names: str
) -> None:
    assert names in served.findings("t1", spoilt(result, spoil))[code]


@pytest.mark.parametrize("how", ["plan", "event"])
def test_an_emulated_run_is_known_by_its_plan_and_by_its_events(
    served: Served, result: Path, how: str
) -> None:
    def emulate(folder: Path) -> None:
        if how == "plan":
            set_json(folder / "runs/2/plan.json", emulated=True)
        else:
            path = folder / "runs/2/events/submit.jsonl"
            path.write_text(path.read_text().replace('"engine"', '"\\u0065mulated": true, "engine"', 1))

    served.findings("t1", spoilt(result, emulate))
    assert served.tester.ledger.results("t1")[0].summary["emulated"] is True


def rewritten(folder: Path) -> None:
    """The same events in other bytes, with an empty line."""
    for path in folder.glob("runs/*/events/*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text(
            "\n".join(json.dumps(dict(reversed(r.items())), indent=None) for r in records) + "\n\n"
        )


def one_event_more(folder: Path) -> None:
    for path in folder.glob("runs/*/events/driver-1.jsonl"):
        last = json.loads(path.read_text().splitlines()[-1])
        path.write_text(
            path.read_text() + json.dumps({"v": 1, "kind": "note", "time": last["time"], "text": "x"}) + "\n"
        )


def renamed(folder: Path) -> None:
    """Metered by the same ranks at the same moments, under other names of the runs."""
    for path in folder.glob("runs/*/plan.json"):
        name = f"other-{path.parent.name}"
        set_json(path, run=name, env={"TRAINSHED_RUN_ID": name})
    text = (folder / "result.json").read_text()
    (folder / "result.json").write_text(text.replace('"run_id": "run-', '"run_id": "other-'))


@pytest.mark.parametrize("hide", [rewritten, one_event_more, renamed])
def test_runs_that_were_handed_in_for_another_test_are_recognised(
    served: Served, result: Path, good_result: Path, hide: Callable[[Path], None]
) -> None:
    assert served.findings("t1", good_result) == {}
    assert set(served.findings("t2", spoilt(result, hide))) == {"evidence-reused"}


def test_runs_without_meters_are_not_taken_for_one_another(tmp_path: Path) -> None:
    from trainshed.tester.examine import examine

    marks = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        made_ = made.made_result(folder, runs=[made.MadeRun(steps=100 + 2 * number, seed=number)])
        for path in made_.rglob("meter-rank-*.jsonl"):
            path.unlink()
        marks.append(set(examine(made_, "", WORKLOAD)["evidence"]))
    assert all(marks) and not marks[0] & marks[1]


def test_a_result_of_one_node_does_not_pass_a_test_of_a_cluster(served: Served, tmp_path: Path) -> None:
    runs = [made.MadeRun(nodes=1, seed=seed, step=0.1 + seed / 1000) for seed in (1, 2, 3)]
    folder = made.made_result(tmp_path / "one", made.made_rules(nodes=1, ranks=2), runs)
    assert "used 1 nodes" in served.findings("t1", folder)["object-differs"]
    served.add("t2", object="single")
    assert served.findings("t2", folder) == {}


def test_a_result_of_training_does_not_pass_a_test_of_inference(served: Served, result: Path) -> None:
    served.add("t1", mode="inference")
    declared = {"mode": "inference"}
    found = served.findings(
        "t1", spoilt(result, lambda f: (f / "submission.json").write_text(json.dumps(declared)))
    )
    assert set(found) == {"mode-differs"}


DECLARED = {"testid": "t1", "mode": "training", "model": "Made v1.5", "division": "Open", "scenario": "Generic",
            "object": "cluster"}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, ""),
        ({"scenario": ""}, ""),
        ({"testid": "t2"}, "test-differs"),
        ({"mode": "inference"}, "mode-differs"),
        ({"model": "bert"}, "model-differs"),
        ({"division": "close"}, "division-differs"),
        ({"scenario": "edge"}, "scenario-differs"),
        ({"object": "single"}, "object-differs"),
    ],
)
def test_what_a_submission_declares_is_what_the_test_asks_for(
    served: Served, result: Path, change: dict[str, str], code: str
) -> None:
    text = json.dumps(DECLARED | change)
    found = served.findings("t1", spoilt(result, lambda f: (f / "submission.json").write_text(text)))
    assert set(found) == ({code} if code else set())


@pytest.mark.parametrize(
    "change", [{"Mode": "inference"}, {"Model": "bert"}, {"Divsion": "close"}, {"Scenario": "edge"},
               {"test_object_type": "single"}],
)  # fmt: skip
def test_a_package_with_another_test_in_mind_is_told_before_it_trains(
    served: Served, home: Path, change: dict[str, str]
) -> None:
    from trainshed.aisbench.config import TestConfig
    from trainshed.cli.stubs import _greet
    from trainshed.tester.spool import Participant

    participant = Participant.from_environment(os.environ)
    participant.save_token("t1", served.add("t1"))
    asked = {"testid": "t1", "Model": "Made_v1.5", "Divsion": "open", "Scenario": "generic",
             "test_object_type": "cluster", "tester_server_port": served.port}  # fmt: skip
    _greet(TestConfig.model_validate(asked), participant)
    with pytest.raises(UsageError, match=next(iter(change))):
        _greet(TestConfig.model_validate(asked | change), participant)


@pytest.mark.parametrize("name", ["\ud800 system", "x" * 2001])
def test_a_system_with_a_name_that_cannot_be_shown_is_refused(
    served: Served, result: Path, name: str
) -> None:
    found = served.findings("t1", spoilt(result, lambda f: set_json(f / "system.json", system_name=name)))
    assert "system_name" in found["system-fields"]
    (stored,) = served.tester.ledger.results("t1")
    assert len(stored.summary["system"]) <= 100
    stored.summary["system"].encode()


def test_words_are_shown_on_one_line_without_what_is_invisible() -> None:
    assert plain("a\nb\u3000c\u202ed\ud800", 100) == "a b c\ufffdd\ufffd"
    assert plain("abc", 2) == "ab"


PAGES = ("/", "/results", "/tests/t1", f"/results/t1/{'0' * 64}", "/export/results.csv", "/export/ranking.csv",
         "/export/results.json", "/export/ranking.json")  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_pages_and_exports_show_whatever_the_ledger_holds(served: Served, path: str) -> None:
    served.add("t1")
    summary = {"workload": "made", "version": "1", "scale": "s", "metric": "throughput", "unit": "images/s",
               "score": 1.0, "system": "\ud800", "nodes": 1, "ranks": 1}  # fmt: skip
    finding = {"code": "x", "message": "\udfff"}
    served.tester.ledger.add_result(Stored("t1", "0" * 64, 1.0, 1, 1, "s", "valid", (finding,), summary))
    assert served.ask("GET", path)[0] == 200


def test_an_unexpected_error_is_answered_and_logged_once_without_its_text(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise ValueError("Bearer secret-of-somebody")

    monkeypatch.setattr(served.tester.ledger, "tests", fails)
    status, answer, text = served.ask("GET", "/tests")
    assert (status, answer["error"]) == (500, "internal") and "secret" not in text
    (logged,) = [line for line in served.log if "error: ValueError" in line]
    assert "in fails" in logged and "somebody" not in logged.replace(
        'raise ValueError("Bearer secret-of-somebody")', ""
    )
    monkeypatch.undo()
    assert served.ask("GET", "/tests")[0] == 200


@pytest.mark.parametrize("header", ["X-Trainshed-Signature", "Authorization"])
def test_headers_that_are_not_ascii_are_refused(served: Served, result: Path, header: str) -> None:
    from trainshed.tester.model import upload_of

    token = served.add("t1")
    raw = (result / "manifest.json").read_bytes()
    headers = {"Authorization": f"Bearer {token}"} | {header: "Bearer \xe9\xff"}
    status, answer, _ = served.ask("PUT", f"/api/v1/tests/t1/uploads/{upload_of(raw)}", raw, **headers)
    assert (status, answer["error"]) == (403, "signature" if "Sig" in header else "token")


def test_a_part_with_a_hash_that_is_not_ascii_is_damaged(served: Served) -> None:
    token, place = served.add("t1"), f"/api/v1/tests/t1/uploads/{'0' * 64}/files/a"
    sent = {"Content-Range": "bytes 0-0/1", "X-Trainshed-SHA256": "\xe9" * 64}
    assert served.ask("PATCH", place, b"x", token, **sent)[1]["error"] == "part-damaged"


@pytest.mark.parametrize("size", ["Infinity", "1e999", "NaN"])
def test_a_manifest_with_a_size_that_is_no_number_is_refused(served: Served, size: str) -> None:
    from trainshed.tester.model import sign, upload_of

    token = served.add("t1")
    raw = b'{"files": {"a": {"sha256": "%s", "bytes": %s}}}' % (b"0" * 64, size.encode())
    place = f"/api/v1/tests/t1/uploads/{upload_of(raw)}"
    status, answer, _ = served.ask("PUT", place, raw, token, X_Trainshed_Signature=sign(token, raw))
    assert (status, answer["error"]) == (400, "manifest")
