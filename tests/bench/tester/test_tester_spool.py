"""The participant's spool keeps a result until the Tester has acknowledged it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from served import Served, serving

from trainshed.bench.tester.client import RefusedByTester, UnreachableError
from trainshed.bench.tester.deliver import verdict_of
from trainshed.bench.tester.spool import Spool, find_token, save_token, token_place
from trainshed.errors import RefusedError, UsageError

pytestmark = [pytest.mark.benchmark]


def test_a_result_waits_while_nobody_answers_and_goes_out_later(
    home: Path, tmp_path: Path, result: Path
) -> None:
    save_token("t1", "x" * 43)
    spool = Spool()
    entry = spool.keep(result, "http://127.0.0.1:9", "t1")
    with pytest.raises(UnreachableError) as error:
        spool.send(entry, seconds=0.5)
    assert "resend" in error.value.hint
    assert spool.waiting() == [entry] and "does not answer" in spool.problem(entry)

    with serving(tmp_path / "tester") as served:
        save_token("t1", served.add("t1"))
        place = spool.root / entry.name / "entry.json"
        place.write_text(json.dumps(json.loads(place.read_text()) | {"url": served.url}))
        (entry,) = spool.waiting()
        receipt = spool.send(entry)
        assert verdict_of(entry, 30)["state"] == "valid"
    assert spool.waiting() == []
    assert spool.receipt(entry)["receipt"]["upload"] == receipt["upload"]
    assert not list(spool.root.rglob("result.json"))


def test_sending_again_after_a_lost_acknowledgement_makes_no_second_result(
    home: Path, served: Served, result: Path
) -> None:
    save_token("t1", served.add("t1"))
    spool = Spool()
    entry = spool.keep(result, served.url, "t1")
    first = spool.send(entry)
    (spool.root / "sent" / f"{entry.name}.json").unlink()
    again = spool.send(spool.keep(result, served.url, "t1"))
    assert first["received"] == again["received"]
    assert len(served.tester.ledger.results("t1")) == 1


def test_the_token_is_nowhere_in_the_spool(home: Path, served: Served, result: Path) -> None:
    token = served.add("t1")
    save_token("t1", token)
    spool = Spool()
    spool.keep(result, served.url, "t1")
    assert all(token.encode() not in p.read_bytes() for p in spool.root.rglob("*") if p.is_file())


def test_a_refusal_is_final_and_keeps_the_result(home: Path, served: Served, result: Path) -> None:
    served.add("t1")
    save_token("t1", "wrong" * 8)
    spool = Spool()
    entry = spool.keep(result, served.url, "t1")
    with pytest.raises(RefusedByTester, match="token does not belong"):
        spool.send(entry)
    assert spool.waiting() == [entry]


def test_a_result_that_is_not_whole_is_not_taken(home: Path, result: Path) -> None:
    (result / "result.json").write_text("{}")
    with pytest.raises(RefusedError, match=r"result\.json was changed"):
        Spool().keep(result, "http://127.0.0.1:9", "t1")


def test_the_same_result_kept_twice_at_once_is_one_entry(home: Path, result: Path) -> None:
    spool = Spool()
    threads = [
        threading.Thread(target=spool.keep, args=(result, "http://127.0.0.1:9", "t1")) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spool.waiting()) == 1


def test_a_token_file_that_others_can_read_is_refused(home: Path) -> None:
    save_token("t1", "secret")
    assert find_token("t1") == "secret" and oct(token_place("t1").stat().st_mode)[-3:] == "600"
    token_place("t1").chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600") as error:
        find_token("t1")
    assert "secret" not in str(error.value)


def test_a_missing_token_says_how_to_give_it(home: Path) -> None:
    with pytest.raises(UsageError, match="trainshed tester token t1"):
        find_token("t1")


def test_the_token_may_come_from_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_TESTER_TOKEN", "from-env")
    assert find_token("t1") == "from-env" and "TRAINSHED_TESTER_TOKEN" in os.environ
