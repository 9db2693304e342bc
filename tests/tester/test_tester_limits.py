"""How many results a test takes, whatever is open, closed, abandoned or begun at the same time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served import Served, until

from trainshed.bench import manifest
from trainshed.tester.client import TesterClient
from trainshed.tester.inbox import ABANDONED
from trainshed.tester.model import Refusal, sign, upload_of
from trainshed.tester.service import TesterService

pytestmark = [pytest.mark.benchmark]


def made_up(number: int) -> bytes:
    """The manifest of a result of one small file."""
    entry = {"sha256": hashlib.sha256(b"x").hexdigest(), "bytes": 1}
    return json.dumps({"format": manifest.FORMAT, "files": {f"a{number}": entry}}).encode()


def begin(served: Served, number: int) -> str:
    raw, token = made_up(number), served.tokens["t1"]
    served.tester.begin("t1", upload_of(raw), raw, sign(token, raw), token)
    return upload_of(raw)


def fill(served: Served, number: int) -> None:
    served.tester.take("t1", upload_of(made_up(number)), f"a{number}", 0, 1, b"x")


def age(served: Served, upload: str, seconds: float) -> None:
    """Make an upload look as if nobody had touched it for so long."""
    place = served.tester.inbox.root / "staging" / "t1" / upload
    for path in (place, *place.rglob("*")):
        os.utime(path, (time.time() - seconds,) * 2)


def refused(call: object, code: str) -> None:
    with pytest.raises(Refusal) as error:
        call()  # type: ignore[operator]
    assert error.value.code == code


def test_results_and_open_uploads_together_are_no_more_than_the_test_takes(served: Served) -> None:
    served.add("t1", max_results=3)
    first = begin(served, 0)
    fill(served, 0)
    served.tester.commit("t1", first)
    begin(served, 1)
    begin(served, 2)
    begin(served, 2)
    refused(lambda: begin(served, 3), "enough-open")


def test_uploads_begun_at_the_same_time_are_counted_one_after_another(served: Served) -> None:
    served.add("t1", max_results=2)

    def one(number: int) -> bool:
        try:
            begin(served, number)
            return True
        except Refusal:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(8))) == 2


def test_an_upload_begun_before_the_test_was_closed_is_not_entered(served: Served) -> None:
    served.add("t1")
    upload = begin(served, 0)
    fill(served, 0)
    served.tester.ledger.close_test("t1")
    refused(lambda: served.tester.commit("t1", upload), "closed")
    assert served.tester.ledger.results("t1") == []
    served.tester.ledger.close_test("t1", closed=False)
    assert served.tester.commit("t1", upload)["state"] == "received"


def test_a_full_test_enters_no_upload_that_is_still_open(served: Served) -> None:
    served.add("t1", max_results=2)
    uploads = [begin(served, number) for number in (0, 1)]
    for number in (0, 1):
        fill(served, number)
    served.tester.commit("t1", uploads[0])
    with sqlite3.connect(served.tester.ledger.path) as db:
        db.execute("UPDATE tests SET max_results = 1")
    refused(lambda: served.tester.commit("t1", uploads[1]), "enough")
    assert served.tester.commit("t1", uploads[0])["receipt"]["upload"] == uploads[0]


def test_an_abandoned_upload_gives_its_place_to_a_new_one(served: Served) -> None:
    served.add("t1", max_results=2)
    old, newer = begin(served, 0), begin(served, 1)
    fill(served, 0)
    age(served, newer, ABANDONED + 60)
    age(served, old, ABANDONED + 90)
    new = begin(served, 2)
    assert set(served.tester.inbox.open_beside("t1", "")) == {newer, new}
    refused(lambda: fill(served, 0), "no-such-upload")


def test_an_upload_that_is_gone_on_with_keeps_its_place(served: Served) -> None:
    served.add("t1", max_results=1)
    upload = begin(served, 0)
    age(served, upload, ABANDONED - 60)
    refused(lambda: begin(served, 1), "enough-open")
    age(served, upload, ABANDONED + 60)
    begin(served, 0)
    refused(lambda: begin(served, 1), "enough-open")


def test_uploads_that_nobody_goes_on_with_are_swept_while_the_tester_runs(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.add("t1")
    upload, other = begin(served, 0), begin(served, 1)
    age(served, upload, 31 * 86400)
    monkeypatch.setattr("trainshed.tester.service._SWEEP", -1.0)
    served.tester._wake()
    until(lambda: served.tester.inbox.open_beside("t1", "") == [other])


def test_a_result_that_was_moved_but_not_entered_is_entered_when_it_is_begun_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.add("t1", max_results=1)
    upload = begin(served, 0)
    fill(served, 0)

    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch, pytest.raises(sqlite3.OperationalError):
        patch.setattr(TesterService, "_enter", fails)
        served.tester.commit("t1", upload)
    begin(served, 0)
    assert [stored.upload for stored in served.tester.ledger.results("t1")] == [upload]


def test_a_sender_whose_upload_was_dropped_begins_again(
    served: Served, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, staging = served.add("t1"), served.tester.inbox.root / "staging" / "t1"
    complete, dropped = served.tester.inbox.complete, []

    def drop_once(test: str, upload: str) -> None:
        if not dropped:
            dropped.append(upload)
            shutil.rmtree(staging / upload)
        complete(test, upload)

    monkeypatch.setattr(served.tester.inbox, "complete", drop_once)
    with TesterClient(served.url, "t1", token) as client:
        assert [client.send(result)["upload"]] == dropped
