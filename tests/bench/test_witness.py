"""Heads reach the witness while a run goes on, through a network that comes and goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from test_runner import MakingClient

from support import until
from trainshed.api import Run
from trainshed.bench.run import runner, template, workload
from trainshed.bench.run import witness as module
from trainshed.bench.run.witness import Forwarder, WitnessAway
from trainshed.engines.base import Request
from trainshed.errors import TrainshedError
from trainshed.runs import chain
from trainshed.runs.chain import NONCE_LABEL, ChainWriter

pytestmark = [pytest.mark.benchmark, pytest.mark.hardening]


class Book:
    """A witness that can be away."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, str, bool]] = []
        self.problem: TrainshedError | None = None
        self.tries = self.given = 0

    def nonce(self) -> str:
        if self.problem:
            raise self.problem
        self.given += 1
        return f"{self.given:032x}"

    def tell(self, nonce: str, seq: int, digest: str, closed: bool) -> None:
        self.tries += 1
        if self.problem:
            raise self.problem
        self.heads.append((seq, digest, closed))


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PERIOD", 0.01)
    monkeypatch.setattr(module, "_LONGEST_PERIOD", 0.02)


def digests(path: Path) -> list[str]:
    return [record.digest for record in chain.read(path.read_bytes()).records]


def test_the_newest_head_is_sent_and_the_last_one_at_the_end(tmp_path: Path) -> None:
    path, book, said = tmp_path / "chain", Book(), list[str]()
    with Forwarder(book, "0" * 32, lambda: path, said.append):
        writer = ChainWriter(path, "run", "0" * 32, 1.0)
        until(lambda: len(book.heads) == 1)
        writer.append({}, 2.0)
        until(lambda: len(book.heads) == 2)
        book.problem = WitnessAway("the network is away")
        for number in range(3):
            writer.append({}, 3.0 + number)
        before = book.tries
        until(lambda: book.tries > before + 2)
        book.problem = None
        until(lambda: len(book.heads) == 3)
        writer.close({}, 9.0)
    known = digests(path)
    assert [(seq, closed) for seq, _, closed in book.heads] == [(0, False), (1, False), (4, False), (5, True)]
    assert all(known[seq] == digest for seq, digest, _ in book.heads)
    assert said == ["heads of the chain are delayed: the network is away"], "it is said once"


def test_half_a_line_is_not_sent(tmp_path: Path) -> None:
    path, book = tmp_path / "chain", Book()
    ChainWriter(path, "run", "", 1.0).append({}, 2.0)
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    with Forwarder(book, "0" * 32, lambda: path, print):
        until(lambda: book.heads)
        assert [seq for seq, *_ in book.heads] == [0]
        path.write_bytes(data)
    assert [seq for seq, *_ in book.heads] == [0, 1]


def test_a_witness_that_refuses_is_not_asked_again(tmp_path: Path) -> None:
    path, book, said = tmp_path / "chain", Book(), list[str]()
    book.problem = TrainshedError("no such nonce")
    ChainWriter(path, "run", "", 1.0)
    with Forwarder(book, "0" * 32, lambda: path, said.append):
        until(lambda: said)
    assert book.tries == 1 and "will not be attested" in said[0]


def test_a_witness_that_stays_away_does_not_hold_the_result_up(tmp_path: Path) -> None:
    path, book = tmp_path / "chain", Book()
    book.problem = WitnessAway("nobody answers")
    ChainWriter(path, "run", "", 1.0)
    with Forwarder(book, "0" * 32, lambda: path, print, last_seconds=0.05):
        until(lambda: book.tries)
    assert book.heads == []


class NotingClient(MakingClient):
    """Notes the nonce of each run."""

    nonces: tuple[str, ...] = ()

    def start(self, request: Request, engine: str = "local", ids: Sequence[str] = ()) -> list[Run]:
        self.nonces += (request.labels[NONCE_LABEL],)
        return super().start(request, engine, ids)


def test_each_run_begins_with_a_nonce_of_its_own(tmp_path: Path) -> None:
    template.make(tmp_path / "my-model", "command")
    bench = workload.choose(tmp_path / "my-model", shape="2x2", runs=3, home=tmp_path / "home")
    client = NotingClient(tmp_path / "home", tmp_path / "result")
    runner.run(client, bench, client.target, print, witness=Book())
    assert client.nonces == tuple(f"{number:032x}" for number in (1, 2, 3))


def test_a_witness_that_gives_no_nonce_leaves_nothing_behind(tmp_path: Path) -> None:
    template.make(tmp_path / "my-model", "command")
    bench = workload.choose(tmp_path / "my-model", shape="2x2", runs=3, home=tmp_path / "home")
    client, book = NotingClient(tmp_path / "home", tmp_path / "result"), Book()
    book.problem = TrainshedError("a Tester of another release")
    with pytest.raises(TrainshedError, match="another release"):
        runner.run(client, bench, client.target, print, witness=book)
    assert client.nonces == () and not client.target.exists()
