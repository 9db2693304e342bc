"""The participant's spool keeps a result until the Tester has acknowledged it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served import Served, free_port, serving

from trainshed.errors import RefusedError, UsageError
from trainshed.tester.client import RefusedByTester, TesterClient, UnreachableError
from trainshed.tester.deliver import verdict_of
from trainshed.tester.spool import Participant, Spool

pytestmark = [pytest.mark.benchmark]


def me() -> Participant:
    return Participant.from_environment(os.environ)


def test_a_result_waits_while_nobody_answers_and_goes_out_later(
    home: Path, tmp_path: Path, result: Path
) -> None:
    me().save_token("t1", "x" * 43)
    spool = Spool(me())
    port = free_port()
    entry = spool.keep(result, f"http://127.0.0.1:{port}/", "t1")
    with pytest.raises(UnreachableError) as error:
        spool.send(entry, seconds=0.5)
    assert "resend" in error.value.hint
    assert spool.waiting() == [entry] and "does not answer" in spool.problem(entry)

    with serving(tmp_path / "tester", port=port) as served:
        me().save_token("t1", served.add("t1"))
        receipt = spool.send(entry)
        assert verdict_of(entry, me(), 30)["state"] == "valid"
    assert spool.waiting() == []
    assert spool.receipt(entry)["receipt"]["upload"] == receipt["upload"]
    assert not list(spool.root.rglob("result.json"))


def test_sending_again_after_a_lost_acknowledgement_makes_no_second_result(
    home: Path, served: Served, result: Path
) -> None:
    me().save_token("t1", served.add("t1"))
    spool = Spool(me())
    entry = spool.keep(result, served.url, "t1")
    first = spool.send(entry)
    (spool.root / "sent" / f"{entry.name}.json").unlink()
    again = spool.send(spool.keep(result, served.url, "t1"))
    assert first["received"] == again["received"]
    assert len(served.tester.ledger.results("t1")) == 1


def test_the_token_is_nowhere_in_the_spool(home: Path, served: Served, result: Path) -> None:
    token = served.add("t1")
    me().save_token("t1", token)
    spool = Spool(me())
    spool.keep(result, served.url, "t1")
    assert all(token.encode() not in p.read_bytes() for p in spool.root.rglob("*") if p.is_file())


def test_a_refusal_is_final_and_keeps_the_result(home: Path, served: Served, result: Path) -> None:
    served.add("t1")
    me().save_token("t1", "wrong" * 8)
    spool = Spool(me())
    entry = spool.keep(result, served.url, "t1")
    with pytest.raises(RefusedByTester, match="token does not belong"):
        spool.send(entry)
    assert spool.waiting() == [entry]


def test_a_result_that_is_not_whole_is_not_taken(home: Path, result: Path) -> None:
    (result / "result.json").write_text("{}")
    with pytest.raises(RefusedError, match=r"result\.json was changed"):
        Spool(me()).keep(result, "http://127.0.0.1:9", "t1")


def test_the_same_result_kept_twice_at_once_is_one_entry(home: Path, result: Path) -> None:
    spool = Spool(me())
    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(lambda _: spool.keep(result, "http://127.0.0.1:9", "t1"), range(4)))
    assert len({entry.upload for entry in kept}) == 1 and len(spool.waiting()) == 1


def test_a_token_file_that_others_can_read_is_refused(home: Path) -> None:
    me().save_token("t1", "secret")
    assert me().find_token("t1") == "secret" and oct(me().token_place("t1").stat().st_mode)[-3:] == "600"
    me().token_place("t1").chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600") as error:
        me().find_token("t1")
    assert "secret" not in str(error.value)


def test_a_missing_token_says_how_to_give_it(home: Path) -> None:
    with pytest.raises(UsageError, match="trainshed tester token t1"):
        me().find_token("t1")


def test_the_token_may_come_from_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_TESTER_TOKEN", "from-env")
    assert me().find_token("t1") == "from-env" and "TRAINSHED_TESTER_TOKEN" in os.environ


@pytest.mark.parametrize("text", ["secret-one\nsecret-two\n", "secret one", "sécret", "\0secret", "s" * 201])
def test_a_token_that_is_not_one_word_is_refused_and_not_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="one token") as refused:
        me().find_token("t1", str(path))
    assert "cret" not in str(refused.value) and "sss" not in str(refused.value)
    with pytest.raises(UsageError):
        me().save_token("t1", text)
    if "\0" not in text:
        monkeypatch.setenv("TRAINSHED_TESTER_TOKEN", text)
        with pytest.raises(UsageError, match="TRAINSHED_TESTER_TOKEN") as refused:
            me().find_token("t1")
        assert "cret" not in str(refused.value)


def test_a_token_that_cannot_travel_is_in_no_message(home: Path) -> None:
    client = TesterClient("http://127.0.0.1:9", "t1", "secret-one\nsecret-two")
    with client, pytest.raises(UsageError) as refused:
        client.test()
    assert "secret" not in str(refused.value)


def test_a_result_acknowledged_by_one_tester_is_still_sent_to_another(
    home: Path, served: Served, tmp_path: Path, result: Path
) -> None:
    spool = Spool(me())
    with serving(tmp_path / "rehearsal") as rehearsal:
        me().save_token("t1", rehearsal.add("t1"))
        spool.send(spool.keep(result, rehearsal.url, "t1"))
    me().save_token("t1", served.add("t1"))
    spool.send(spool.keep(result, served.url, "t1"))
    assert len(served.tester.ledger.results("t1")) == 1


def test_a_result_that_waits_for_a_mistyped_address_can_be_sent_to_the_right_one(
    home: Path, served: Served, result: Path
) -> None:
    spool = Spool(me())
    wrong = spool.keep(result, "http://127.0.0.1:9", "t1")
    me().save_token("t1", served.add("t1"))
    spool.send(spool.keep(result, served.url, "t1"))
    assert spool.waiting() == [wrong] and len(served.tester.ledger.results("t1")) == 1


def test_sending_what_was_acknowledged_gives_the_receipt_again(
    home: Path, served: Served, result: Path
) -> None:
    me().save_token("t1", served.add("t1"))
    spool = Spool(me())
    entry = spool.keep(result, served.url, "t1")
    assert spool.send(entry) == spool.send(entry)


@pytest.mark.parametrize(
    ("url", "authority", "words"),
    [
        ("https://127.0.0.1:99999", "", "is not http"),
        ("https://[::1", "", "is not http"),
        ("http://a b", "", "is not http"),
        ("https://127.0.0.1:9", "nosuch.pem", "No such file"),
        ("https://127.0.0.1:9", "result/result.json", "cannot be used"),
    ],
)
def test_an_address_or_authority_that_cannot_be_used_is_named_before_anything_is_kept(
    home: Path,
    tmp_path: Path,
    result: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    authority: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        Spool(me()).keep(result, url, "t1", authority=authority)
    assert Spool(me()).waiting() == []


def test_what_waits_can_be_sent_from_any_folder(
    home: Path, tmp_path: Path, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    entry = Spool(me()).keep(result, "http://127.0.0.1:9", "t1", "~/token", "ca.pem")
    assert (entry.token_file, entry.authority) == (str(tmp_path / "token"), str(tmp_path / "ca.pem"))


def test_something_else_than_a_tester_is_named(
    home: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainshed.tester.server import Handler

    monkeypatch.setattr(Handler, "_get", lambda self: self._send(200, "text/html", b"<p>a proxy</p>"))
    with (
        TesterClient(served.url, "t1", "token") as client,
        pytest.raises(UnreachableError, match="as a Tester does"),
    ):
        client.test()
