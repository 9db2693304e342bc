"""The Tester's protocol: who may send what, in which order, and what happens the second time."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import sqlite3
import sys
from pathlib import Path

import pytest
from served import WORKLOAD, Served, serving, until

from trainshed.bench import manifest
from trainshed.tester.client import RefusedByTester, TesterClient
from trainshed.tester.model import sign, upload_of

pytestmark = [pytest.mark.benchmark]


def begin(served: Served, test: str, raw: bytes, token: str) -> tuple[int, dict]:
    status, answer, _ = served.ask(
        "PUT",
        f"/api/v1/tests/{test}/uploads/{upload_of(raw)}",
        raw,
        token,
        X_Trainshed_Signature=sign(token, raw),
    )
    return status, answer


def part(
    served: Served, place: str, data: bytes, start: int, total: int, token: str, digest: str = ""
) -> tuple:
    return served.ask(
        "PATCH",
        place,
        data,
        token,
        Content_Range=f"bytes {start}-{start + len(data) - 1}/{total}",
        X_Trainshed_SHA256=digest or hashlib.sha256(data).hexdigest(),
    )


def test_a_good_result_arrives_and_is_found_valid(served: Served, result: Path) -> None:
    token = served.add("t1")
    with TesterClient(served.url, "t1", token) as client:
        receipt = client.send(result)
        again = client.send(result)
    served.judged("t1")
    (stored,) = served.tester.ledger.results("t1")
    assert receipt["upload"] == again["upload"] == stored.upload
    assert (stored.state, stored.findings) == ("valid", ())
    assert stored.summary["score"] > 0 and stored.summary["unit"] == "images/s"
    kept = served.tester.inbox.folder("t1", stored.upload)
    assert manifest.verify(kept) == []
    assert {p.name for p in kept.iterdir()} == {p.name for p in result.iterdir()}


def test_the_token_is_kept_only_as_a_hash(served: Served, tmp_path: Path) -> None:
    token = served.add("t1")
    for path in (tmp_path / "tester").glob("tester.sqlite*"):
        assert token.encode() not in path.read_bytes()


def test_a_wrong_token_and_an_unknown_test_look_the_same(served: Served) -> None:
    served.add("t1")
    wrong = served.ask("GET", "/api/v1/tests/t1", token="x" * 43)
    unknown = served.ask("GET", "/api/v1/tests/nobody", token="x" * 43)
    assert wrong == unknown and wrong[0] == 403
    assert served.ask("GET", "/api/v1/tests/t1")[0] == 401


def test_a_new_token_ends_the_old_one(served: Served) -> None:
    old = served.add("t1")
    new = served.tester.ledger.new_token("t1")
    assert served.ask("GET", "/api/v1/tests/t1", token=old)[0] == 403
    assert served.ask("GET", "/api/v1/tests/t1", token=new)[1]["model"] == "made"


def test_a_manifest_signed_with_another_token_is_refused(served: Served, result: Path) -> None:
    token = served.add("t1")
    raw = (result / "manifest.json").read_bytes()
    status, answer, _ = served.ask(
        "PUT",
        f"/api/v1/tests/t1/uploads/{upload_of(raw)}",
        raw,
        token,
        X_Trainshed_Signature=sign("another", raw),
    )
    assert (status, answer["error"]) == (403, "signature")


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/x", "a/../../b", "", "a//b", "manifest.json", "a\\b", "x" * 300, "a\nb", "./a"]
)
def test_a_manifest_may_not_lead_out_of_its_folder(served: Served, tmp_path: Path, name: str) -> None:
    token = served.add("t1")
    entry = {"sha256": "0" * 64, "bytes": 1}
    raw = json.dumps({"format": manifest.FORMAT, "files": {name: entry}}).encode()
    status, answer = begin(served, "t1", raw, token)
    assert (status, answer["error"]) == (400, "manifest")
    assert not list((tmp_path / "tester" / "staging").rglob("*"))


def test_a_file_below_a_file_is_refused(served: Served) -> None:
    token = served.add("t1")
    entry = {"sha256": "0" * 64, "bytes": 1}
    raw = json.dumps({"format": manifest.FORMAT, "files": {"a": entry, "a/b": entry}}).encode()
    assert begin(served, "t1", raw, token)[0] == 400


def test_parts_are_taken_in_order_and_once(served: Served, tmp_path: Path) -> None:
    token = served.add("t1")
    data = bytes(range(256)) * 40
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    raw = json.dumps({"format": manifest.FORMAT, "files": {"a/b.bin": entry}}).encode()
    assert begin(served, "t1", raw, token)[1]["files"] == {"a/b.bin": 0}
    place = f"/api/v1/tests/t1/uploads/{upload_of(raw)}"
    file, total = f"{place}/files/a/b.bin", len(data)

    status, answer, _ = part(served, file, data[100:200], 100, total, token)
    assert (status, answer["error"], answer["offset"]) == (409, "offset", 0)
    assert part(served, file, data[:100], 0, total, token)[1] == {"offset": 100}
    assert part(served, file, data[:100], 0, total, token)[1] == {"offset": 100}
    assert part(served, file, data[50:150], 50, total, token)[1] == {"offset": 150}
    assert part(served, file, data[150:160], 150, total, token, digest="0" * 64)[0] == 422
    assert part(served, file, b"x" * 10, 150, total + 1, token)[0] == 400
    assert part(served, f"{place}/files/other", b"x", 0, 1, token)[0] == 404
    assert served.ask("GET", place, token=token)[1]["files"] == {"a/b.bin": 150}

    status, answer, _ = served.ask("POST", f"{place}/commit", b"{}", token)
    assert (status, answer["error"], answer["files"]) == (409, "incomplete", {"a/b.bin": 150})
    assert part(served, file, data[150:], 150, total, token)[1] == {"offset": total}
    first = served.ask("POST", f"{place}/commit", b"{}", token)
    second = served.ask("POST", f"{place}/commit", b"{}", token)
    assert first[0] == second[0] == 200
    assert first[1]["receipt"]["received"] == second[1]["receipt"]["received"]
    assert len(served.tester.ledger.results("t1")) == 1


def test_a_file_that_arrived_damaged_is_asked_for_again(served: Served, result: Path, tmp_path: Path) -> None:
    token = served.add("t1")
    raw = (result / "manifest.json").read_bytes()
    begin(served, "t1", raw, token)
    size = (result / "rules.json").stat().st_size
    staged = tmp_path / "tester" / "staging" / "t1" / upload_of(raw) / "files" / "rules.json"
    staged.write_bytes(b"\0" * size)
    with TesterClient(served.url, "t1", token) as client:
        client.send(result)
    served.judged("t1")
    assert served.tester.ledger.results("t1")[0].state == "valid"


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda f: (f / "result.json").write_text("{}"), "unreadable"),
        (lambda f: (f / "runs/2/node-1/meter-rank-3.jsonl").unlink(), "rank-missing"),
        (lambda f: shutil.rmtree(f / "runs/3"), "run-missing"),
    ],
)
def test_a_spoilt_result_is_caught_and_named_by_the_tester(
    served: Served, result: Path, spoil: object, code: str
) -> None:
    token = served.add("t1")
    spoil(result)  # type: ignore[operator]
    manifest.write(result)
    with TesterClient(served.url, "t1", token) as client:
        client.send(result)
    served.judged("t1")
    (stored,) = served.tester.ledger.results("t1")
    assert stored.state == "failed"
    assert code in {finding["code"] for finding in stored.findings}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"model": "bert"}, "model-differs"),
        ({"object": "single"}, "object-differs"),
    ],
)
def test_a_result_that_is_not_what_the_test_asks_for_fails(
    served: Served, result: Path, fields: dict, code: str
) -> None:
    token = served.add("t1", **fields)
    with TesterClient(served.url, "t1", token) as client:
        client.send(result)
    served.judged("t1")
    assert code in {f["code"] for f in served.tester.ledger.results("t1")[0].findings}


def test_rules_of_the_organiser_are_held_against_the_result(served: Served, result: Path) -> None:
    import made

    token = served.add("t1", rules=made.made_rules(runs=5).model_dump_json())
    with TesterClient(served.url, "t1", token) as client:
        client.send(result)
    served.judged("t1")
    findings = served.tester.ledger.results("t1")[0].findings
    assert any(f["code"] == "rules-differ" and "runs is 3" in f["message"] for f in findings)


def test_the_same_runs_cannot_be_handed_in_for_two_tests(served: Served, result: Path) -> None:
    for name in ("t1", "t2"):
        with TesterClient(served.url, name, served.add(name)) as client:
            client.send(result)
        served.judged(name)
    (second,) = served.tester.ledger.results("t2")
    assert [f["code"] for f in second.findings] == ["evidence-reused"]


def test_a_check_that_does_not_end_is_ended_and_is_a_finding(result: Path) -> None:
    from trainshed.tester.verify import HELPER, Checker

    checker = Checker(seconds=0.5, command=(sys.executable, "-c", "import time; time.sleep(600)"))
    try:
        assert checker.check(result, "", WORKLOAD)["findings"][0]["code"] == "check-failed"
        checker.seconds, checker.command = 60.0, HELPER
        assert checker.check(result, "", WORKLOAD)["findings"] == []
    finally:
        checker.close()


def test_a_helper_that_dies_is_replaced_and_the_result_is_judged(result: Path) -> None:
    from trainshed.tester.verify import Checker

    checker = Checker()
    try:
        assert checker.check(result, "", WORKLOAD)["findings"] == []
        assert checker._process is not None
        checker._process.kill()
        assert checker.check(result, "", WORKLOAD)["findings"] == []
    finally:
        checker.close()


def test_a_closed_test_and_a_full_one_take_no_more(served: Served, result: Path) -> None:
    token = served.add("t1", max_results=1)
    with TesterClient(served.url, "t1", token) as client:
        client.send(result)
        (result / "extra.txt").write_text("more")
        manifest.write(result)
        with pytest.raises(RefusedByTester) as refused:
            client.send(result)
        assert refused.value.code == "tester-enough"
        served.tester.ledger.close_test("t1")
        with pytest.raises(RefusedByTester) as refused:
            client.send(result)
        assert refused.value.code == "tester-closed"


def test_requests_are_bounded_in_size(tmp_path: Path, result: Path) -> None:
    with serving(tmp_path / "small", max_bytes=1000) as served:
        token = served.add("t1")
        status, answer = begin(served, "t1", (result / "manifest.json").read_bytes(), token)
        assert (status, answer["error"]) == (413, "too-large")
        address = f"/api/v1/tests/t1/uploads/{'0' * 64}"
        raw = f"PUT {address} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 99999999\r\n\r\n"
        with socket.create_connection(("127.0.0.1", served.port), 10) as plain:
            plain.sendall(raw.encode())
            assert plain.recv(100).startswith(b"HTTP/1.1 413")
        raw = f"PUT {address} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
        with socket.create_connection(("127.0.0.1", served.port), 10) as plain:
            plain.sendall(raw.encode())
            assert plain.recv(100).startswith(b"HTTP/1.1 411")


def test_a_second_server_on_the_same_folder_is_refused(served: Served, tmp_path: Path) -> None:
    from trainshed.errors import RefusedError
    from trainshed.tester.service import TesterService

    with pytest.raises(RefusedError):
        TesterService(tmp_path / "tester")


def test_a_result_moved_but_not_entered_is_taken_up_at_the_next_start(tmp_path: Path, result: Path) -> None:
    with serving(tmp_path / "t") as served:
        with TesterClient(served.url, "t1", served.add("t1")) as client:
            client.send(result)
        served.judged("t1")
        token = served.tokens["t1"]
    with sqlite3.connect(tmp_path / "t" / "tester.sqlite") as db:
        db.execute("DELETE FROM results")
    with serving(tmp_path / "t") as served:
        until(lambda: served.tester.ledger.results("t1")[0].state == "valid")
        with TesterClient(served.url, "t1", token) as client:
            client.send(result)
        assert len(served.tester.ledger.results("t1")) == 1
