"""A real benchmark under the eyes of a real Tester: what was seen holds, what was changed since is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chained import PATH, rebuilt
from spoils import all_ranks, change

from support import until
from trainshed.bench import manifest
from trainshed.bench.folder import collect, load_session, save_session
from trainshed.bench.run import template
from trainshed.runs import chain
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import Finished
from trainshed.tester.client import TesterClient
from trainshed.tester.headbook import HeadBook
from trainshed.tester.ledger import Ledger

pytestmark = [pytest.mark.benchmark, pytest.mark.hardening, pytest.mark.real, pytest.mark.timeout(900)]
TRAINSHED = [sys.executable, "-m", "trainshed.cli.main"]
TEST = "t1"
Records = list[dict[str, Any]]
Lie = Callable[[Path, HeadBook], None]


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """`trainshed tester serve` in its own process."""
    command = [*TRAINSHED, "tester", "serve", "--folder", str(folder), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().split()[2].rstrip(",")
        finally:
            process.terminate()


def a_little_slower(records: Records) -> None:
    """All times a thousandth further apart: the same run, by a slower machine."""
    mono, wall = records[0]["mono"], records[0]["wall"]
    for record in records:
        record["mono"] = mono + (record["mono"] - mono) * 0.999
        record["wall"] = wall + (record["wall"] - wall) * 0.999
        if "at" in record:
            record["at"] = [round(mono + (t - mono) * 0.999, 6) for t in record["at"]]


def stretched(folder: Path, _: HeadBook) -> None:
    all_ranks(1, a_little_slower)(folder)


def sample_removed(folder: Path, _: HeadBook) -> None:
    change("runs/1/node-0/metrics.jsonl", lambda records: records.pop(1) and None)(folder)


def events_reordered(folder: Path, _: HeadBook) -> None:
    change("runs/1/events/node-0-1.jsonl", lambda records: records.insert(0, records.pop(1)))(folder)


def chain_of_the_other_run(folder: Path, _: HeadBook) -> None:
    shutil.copy(folder / f"runs/2/{PATH}", folder / f"runs/1/{PATH}")


def rewritten_with_its_chain(folder: Path, _: HeadBook) -> None:
    """The nonce is used again: files changed, and a chain made that fits them."""
    name = "node-0/rank-0.log"
    log = folder / "runs/1" / name
    log.write_bytes(log.read_bytes() + b"all is well\n")

    def forget(records: Records) -> None:
        for record in records:
            record["heads"].pop(name, None)

    rebuilt(1, forget)(folder)


def invented(folder: Path, book: HeadBook) -> None:
    """All of run 1 made again under a nonce for which nothing ever ran."""
    old, nonce = chain.read((folder / f"runs/1/{PATH}").read_bytes()).nonce, book.issue(TEST)

    def exchange(records: Records) -> None:
        records[0]["nonce"] = nonce
        for record in records:
            record["heads"].pop("events/submit.jsonl", None)

    for writer in ("submit", "end"):
        path = folder / f"runs/1/events/{writer}.jsonl"
        path.write_text(path.read_text().replace(old, nonce))
    rebuilt(1, exchange)(folder)


def without_a_witness(folder: Path, _: HeadBook) -> None:
    """The nonces and chains taken out, as if the result had been made offline."""
    for run in (1, 2):
        nonce = chain.read((folder / f"runs/{run}/{PATH}").read_bytes()).nonce
        (folder / f"runs/{run}/{PATH}").unlink()
        for writer in ("submit", "end"):
            path = folder / f"runs/{run}/events/{writer}.jsonl"
            path.write_text(path.read_text().replace(f', "{chain.NONCE_LABEL}": "{nonce}"', ""))


LIES: list[tuple[Lie, str]] = [
    (stretched, "chain-differs"),
    (sample_removed, "chain-differs"),
    (events_reordered, "chain-differs"),
    (chain_of_the_other_run, "chain-foreign"),
    (rewritten_with_its_chain, "head-differs"),
    (invented, "heads-missing"),
    (without_a_witness, "not-attested"),
]


def test_what_the_tester_saw_holds_and_what_was_changed_since_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path / "home"))
    template.make(tmp_path / "my-model", "command")
    workload = tmp_path / "my-model" / "workload.yaml"
    # The same training, shorter, and judged as on a machine that others use.
    text = workload.read_text().replace("epochs: 100", "epochs: 15").replace("runs: 3", "runs: 2")
    workload.write_text(text.replace("max_spread: 0.5 ", "max_interval: 50.0\n    max_spread: 5.0 "))
    folder, token, result = tmp_path / "tester", tmp_path / "token", tmp_path / "result"
    subprocess.run(
        [*TRAINSHED, "tester", "add", TEST, "--model", "small network", "--workload", str(workload.parent),
         "--folder", str(folder), "--token-file", str(token)],
        check=True,
    )  # fmt: skip
    ledger = Ledger(folder / "tester.sqlite")
    book = HeadBook(ledger)
    with serving(folder) as url:
        witness = ["--tester", url, "--test", TEST, "--token-file", str(token)]
        done = subprocess.run(
            [*TRAINSHED, "bench", "run", str(workload.parent), "--out", str(result), "--json", *witness],
            check=False, stdout=subprocess.PIPE,
        )  # fmt: skip
        answer = json.loads(done.stdout)
        assert answer["status"] == "valid", answer["reasons"]
        assert answer["attestation"].startswith("begun with nonces of a Tester")
        for run in load_session(result).runs:
            _saw_during(book, RunDirectory(Path(run)))
            assert token.read_text().strip() not in "".join(
                p.read_text(errors="replace") for p in Path(run).rglob("*") if p.is_file()
            )
        with TesterClient(url, TEST, token.read_text().strip()) as client:
            assert _judged(client, ledger, result) == ("valid", {})
            (stored,) = ledger.results(TEST)
            assert stored.summary["attestation"].startswith("attested: ")
            for number, (lie, code) in enumerate(LIES):
                changed = Path(shutil.copytree(result, tmp_path / f"lie-{number}"))
                lie(changed, book)
                _reseal(changed)
                state, found = _judged(client, ledger, changed)
                assert state == "failed" and code in found, (lie.__name__, found)


def _saw_during(book: HeadBook, run: RunDirectory) -> None:
    """The Tester was shown heads while the run went on, and at last the one that closed its chain."""
    found = chain.read((run.path / PATH).read_bytes())
    end = run.end()
    assert found.is_closed and end is not None and isinstance(end.body, Finished)
    seen = book.witnessed(TEST, found.nonce)
    assert seen is not None and len(seen.heads) >= 2
    assert seen.issued < run.submitted().time
    assert seen.heads[0].received < end.time, "no head came before the run had ended"
    assert seen.heads[-1].digest == found.records[-1].digest


def _reseal(folder: Path) -> None:
    """All that is calculated made to fit what the files say now, by whoever changed them."""
    session = load_session(folder)
    save_session(
        folder, session.model_copy(update={"runs": [f"gone/{i}" for i, _ in enumerate(session.runs)]})
    )
    collect(folder)
    manifest.write(folder)


def _judged(client: TesterClient, ledger: Ledger, folder: Path) -> tuple[str, dict[str, str]]:
    upload = client.send(folder)["upload"]

    def verdict() -> str:
        found = ledger.result(TEST, upload)
        return found.state if found else "received"

    until(lambda: verdict() != "received", 120, "the check ended")
    found = ledger.result(TEST, upload)
    assert found is not None
    return found.state, {f["code"]: f["message"] for f in found.findings}
