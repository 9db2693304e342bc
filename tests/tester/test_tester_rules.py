"""A result is held to the organiser's rules, whatever it brings; a slow check delays nobody else; reuse is seen."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import pytest
from served import CHECKER, WORKLOAD, Served, until

from trainshed.bench import folder as folders
from trainshed.bench import manifest
from trainshed.bench.report.page import write_reports
from trainshed.tester.client import TesterClient
from trainshed.tester.verify import Checker

pytestmark = [pytest.mark.benchmark, pytest.mark.hardening]


def again(folder: Path) -> Path:
    """Measure a changed result as its owner would, and seal it."""
    folders.collect(folder)
    write_reports(folder)
    folders.finish(folder)
    return folder


def unsourced(result: Path) -> Path:
    """A result whose runs are no longer where they were run: collecting keeps what was changed."""
    session = folders.load_session(result)
    folders.save_session(result, session.model_copy(update={"runs": [""] * len(session.runs)}))
    return result


@pytest.mark.parametrize(
    "softer",
    [{"min_steps": 1}, {"metered": False}, {"synchronous": False}, {"log_patterns": {}}, {"dataset": None},
     {"warmup_steps": 90}, {"max_prepare_seconds": 1e9}, {"version": "0"}, {"workload": "other"}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_softer_rules_that_a_result_brings_do_not_count(
    served: Served, tmp_path: Path, softer: dict[str, Any]
) -> None:
    folder = made.made_result(tmp_path / "softer", made.made_rules(**softer))
    assert "rules-differ" in served.findings("t1", folder)


def test_the_organisers_copy_of_the_workload_counts(served: Served, result: Path) -> None:
    served.add("t2", workload=made.made_workload(version="2").model_dump_json())
    assert "version is '1', expected is '2'" in served.findings("t2", result)["rules-differ"]


@pytest.mark.parametrize("choice", [{"framework": "jax"}, {"scale": "huge"}])
def test_what_the_workload_does_not_have_is_no_result_of_it(
    served: Served, tmp_path: Path, choice: dict[str, str]
) -> None:
    folder = made.made_result(tmp_path / "other", made.made_rules(**choice))
    (name, value), *_ = choice.items()
    assert f"no {name} {value!r}" in served.findings("t1", folder)["rules-differ"]


def test_more_runs_and_another_shape_are_the_participants_choice(served: Served, tmp_path: Path) -> None:
    runs = [made.MadeRun(nodes=3, per_node=1, seed=i, step=0.1 + i / 1000) for i in range(1, 6)]
    folder = made.made_result(tmp_path / "more", made.made_rules(nodes=3, ranks=3, runs=5), runs)
    assert served.findings("t1", folder) == {}


def test_a_test_that_names_neither_rules_nor_workload_passes_nothing(served: Served, result: Path) -> None:
    served.add("t1", workload="")
    assert "neither rules nor a workload" in served.findings("t1", result)["rules-differ"]


class Gate(Checker):
    """Checks of one test wait until the gate opens."""

    def __init__(self, test: str) -> None:
        super().__init__()
        self.test, self.opened = test, threading.Event()

    def check(self, folder: Path, rules: str, workload: str = "") -> dict[str, Any]:
        if folder.parent.name == self.test:
            assert self.opened.wait(60)
        return CHECKER.check(folder, rules, workload)

    def close(self) -> None:
        self.opened.set()


def test_a_slow_check_delays_only_its_own_test(served: Served, good_result: Path, tmp_path: Path) -> None:
    gate = Gate("slow")
    served.tester.checkers = [gate] * len(served.tester.checkers)
    for test in ("slow", "quick"):
        served.add(test)
    for number in range(3):
        folder = Path(shutil.copytree(good_result, tmp_path / f"slow-{number}"))
        (folder / "note.txt").write_text(str(number))
        manifest.write(folder)
        with TesterClient(served.url, "slow", served.tokens["slow"]) as client:
            client.send(folder)
    with TesterClient(served.url, "quick", served.tokens["quick"]) as client:
        upload = client.send(good_result)["upload"]
    until(lambda: served.tester.state("quick", upload)["state"] == "valid")
    assert all(r.state == "received" for r in served.tester.ledger.results("slow"))
    gate.opened.set()
    served.judged("slow", 3)


def noisy(noise: float, digits: int) -> Callable[[Path], None]:
    """Every step's time a little different, so that no hash is the same."""

    def change(folder: Path) -> None:
        chance = random.Random(7)
        for path in folder.glob("runs/*/node-*/meter-*.jsonl"):
            records = [json.loads(x) for x in path.read_text().splitlines()]
            for record in records:
                if record["event"] == "steps":
                    at = record["at"]
                    inner = [round(t + chance.uniform(-noise, noise), digits) for t in at[1:-1]]
                    record["at"] = [at[0], *inner, at[-1]]
            made.save(path, records)
        for path in folder.glob("runs/*/events/*.jsonl"):
            records = [json.loads(x) for x in path.read_text().splitlines()]
            made.save(path, [r | {"time": r["time"] + 0.01} for r in records])

    return change


@pytest.mark.parametrize(("noise", "digits"), [(1e-6, 6), (3e-5, 6), (1e-5, 5)])
def test_runs_of_another_test_are_known_again_after_noise_and_rounding(
    served: Served, good_result: Path, result: Path, noise: float, digits: int
) -> None:
    assert served.findings("t1", good_result) == {}
    noisy(noise, digits)(unsourced(result))
    found = served.findings("t2", again(result))
    assert set(found) == {"evidence-reused"} and "test t1" in found["evidence-reused"]


def test_an_old_ledger_learns_of_workloads(tmp_path: Path) -> None:
    import sqlite3

    from trainshed.tester.ledger import Ledger
    from trainshed.tester.model import Test

    path = tmp_path / "tester.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE tests (id TEXT PRIMARY KEY, mode TEXT, model TEXT, division TEXT, scenario TEXT, object TEXT,"
            " participant TEXT, rules TEXT, max_results INTEGER, created REAL, closed INTEGER, token_hash TEXT)"
        )
        db.execute("INSERT INTO tests VALUES ('old','training','m','open','g','single','','',20,1.0,0,'h')")
    ledger = Ledger(path)
    ledger.add_test(Test("new", model="made", workload=WORKLOAD))
    assert [test.public()["workload"] for test in ledger.tests()] == [None, {"name": "made", "version": "1"}]


def test_an_unstable_result_is_shown_with_its_warnings_and_not_ranked(served: Served, tmp_path: Path) -> None:
    runs = [made.MadeRun(seed=i, step=step) for i, step in enumerate((0.1, 0.2, 0.4), 1)]
    assert served.findings("t1", made.made_result(tmp_path / "unstable", runs=runs)) == {}
    (stored,) = served.tester.ledger.results("t1")
    assert stored.state == "unstable"
    assert [w["code"] for w in stored.summary["warnings"]][:2] == ["unstable", "unstable"]
    page = served.ask("GET", f"/results/t1/{stored.upload}")[2]
    assert "unstable" in page and "the rules allow 25%" in page and "95% interval" in page
    assert "t1" not in served.ask("GET", "/")[2].split("<main>")[1]
