"""Every way to spoil a result is caught by `check` and named by its code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import pytest

from trainshed.bench import manifest
from trainshed.bench.check import check

pytestmark = [pytest.mark.benchmark]

METER = "runs/2/node-1/meter-rank-3.jsonl"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.made_result(tmp_path_factory.mktemp("good"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in path.read_text().splitlines()]


def save(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(x) + "\n" for x in records))


def change(name: str, edit: Callable[[list[dict[str, Any]]], None]) -> Callable[[Path], None]:
    """Edit the records of a JSON-lines file."""

    def spoil(folder: Path) -> None:
        records = lines(folder / name)
        edit(records)
        save(folder / name, records)

    return spoil


def change_json(name: str, edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        edit(value)
        (folder / name).write_text(json.dumps(value, indent=2))

    return spoil


def all_ranks(run: int, edit: Callable[[list[dict[str, Any]]], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for path in sorted(folder.glob(f"runs/{run}/node-*/meter-rank-*.jsonl")):
            change(str(path.relative_to(folder)), edit)(folder)

    return spoil


def remove(*names: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return spoil


def set_event(records: list[dict[str, Any]], event: str, **fields: Any) -> None:
    for record in records:
        if record["event"] == event:
            record.update(fields)


def rename(records: list[dict[str, Any]], event: str) -> None:
    for record in records:
        if record["event"] == event:
            record["event"] = "other"


def drop_last(records: list[dict[str, Any]]) -> None:
    del records[-2:]


def jump(records: list[dict[str, Any]]) -> None:
    for record in records[len(records) // 2 :]:
        record["wall"] += 30


def slow_clock(records: list[dict[str, Any]]) -> None:
    """Times pressed together to look twice as fast, wall clock left alone."""
    base = records[0]["mono"]
    for record in records:
        record["mono"] = base + (record["mono"] - base) / 2
        if "at" in record:
            record["at"] = [base + (t - base) / 2 for t in record["at"]]


def lose_steps(records: list[dict[str, Any]]) -> None:
    steps = next(r for r in records if r["event"] == "steps")
    for key in ("counts", "samples", "at"):
        del steps[key][-5:]


def fewer_steps(records: list[dict[str, Any]]) -> None:
    """A rank that did 5 steps less, its file consistent in itself."""
    last = [r for r in records if r["event"] == "steps"][-1]
    for key in ("counts", "samples", "at"):
        del last[key][-5:]
    end = records[-1]
    end["steps"], end["samples"] = end["steps"] - 5, end["samples"] - 5 * 32


def early(records: list[dict[str, Any]]) -> None:
    """All that came after the first epoch is gone, numbered and summed up as if it had been meant so."""
    stop = next(i for i, r in enumerate(records) if r["event"] == "epoch_start" and r["epoch"] == 2)
    tail = records[-2:]
    del records[stop:]
    records += tail
    records[-1]["steps"], records[-1]["samples"] = 50, 50 * 32
    for i, record in enumerate(records):
        record["seq"] = i
    set_event(records, "quality", value=0.9)


def more_samples(records: list[dict[str, Any]]) -> None:
    for record in records:
        if record["event"] == "steps":
            record["samples"] = [64] * len(record["samples"])
    records[-1]["samples"] *= 2


def backwards(records: list[dict[str, Any]]) -> None:
    steps = next(r for r in records if r["event"] == "steps")
    steps["at"][20], steps["at"][21] = steps["at"][21], steps["at"][20]


def truncate(name: str, keep: float) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * keep)])

    return spoil


def twice(folder: Path) -> None:
    """Run 3 replaced by a copy of run 2."""
    shutil.rmtree(folder / "runs/3")
    shutil.copytree(folder / "runs/2", folder / "runs/3")


def restarted(folder: Path) -> None:
    path = folder / METER
    path.write_text(path.read_text() * 2)


def unmade(folder: Path) -> None:
    """A run that never happened is noted as begun."""
    change_json("session.json", lambda s: s["runs"].append("run-4"))(folder)


def text_edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return spoil


def link(folder: Path) -> None:
    (folder / METER).unlink()
    (folder / METER).symlink_to("meter-rank-2.jsonl")


# (what, how, code that must be named, whether the spoiler made a new manifest to hide it)
SPOILS: list[tuple[str, Callable[[Path], None], str, bool]] = [
    ("a rank's meter file is missing", remove(METER), "rank-missing", True),
    ("a rank's meter file is missing from the manifest's files", remove(METER), "file-missing", False),
    ("a whole node is lost", remove("runs/2/node-1"), "node-missing", True),
    ("a whole run is missing", remove("runs/2"), "run-missing", True),
    ("the meter file ends in the middle of a line", truncate(METER, 0.6), "truncated", True),
    ("result.json is cut off", truncate("result.json", 0.5), "result-unreadable", True),
    ("the meter file is empty", lambda f: (f / METER).write_text("") and None, "meter-empty", True),
    (
        "the loss became NaN",
        change(METER, lambda r: set_event(r, "quality", value=None, not_finite="nan")),
        "not-finite",
        True,
    ),
    (
        "NaN in result.json",
        text_edit("result.json", '"value": 0.8', '"value": NaN'),
        "result-unreadable",
        True,
    ),
    ("the wall clock jumped", change(METER, jump), "clock-jump", True),
    ("times pressed together", all_ranks(2, slow_clock), "clock-jump", True),
    ("two runs with one seed", all_ranks(2, lambda r: set_event(r, "seed", value=1)), "seed-duplicate", True),
    ("a run without a seed", all_ranks(2, lambda r: set_event(r, "seed", value=None)), "seed-missing", True),
    (
        "an edited rank log",
        text_edit("runs/1/node-0/rank-0.log", "epoch 1", "epoch 9"),
        "file-changed",
        False,
    ),
    ("a file was added", lambda f: (f / "extra.txt").write_text("x") and None, "file-added", False),
    (
        "the wrong data set",
        all_ranks(1, lambda r: set_event(r, "dataset", checksum="sha256:00")),
        "dataset-wrong",
        True,
    ),
    (
        "one rank with other data",
        change(METER, lambda r: set_event(r, "dataset", checksum="sha256:00")),
        "dataset-differs",
        True,
    ),
    ("no data set named", all_ranks(1, lambda r: rename(r, "dataset")), "dataset-unknown", True),
    ("training stopped early", all_ranks(3, early), "early-stop", True),
    ("a rank was killed", change(METER, drop_last), "rank-killed", True),
    ("a rank aborted", change(METER, lambda r: set_event(r, "stop", status="aborted")), "run-aborted", True),
    ("a rank was started twice", restarted, "rank-restarted", True),
    (
        "the run failed",
        change("runs/1/events.jsonl", lambda r: r[-1].update(state="failed")),
        "run-failed",
        True,
    ),
    ("the run never ended", change("runs/1/events.jsonl", lambda r: r.pop() and None), "run-failed", True),
    ("steps cut out of the file", change(METER, lose_steps), "steps-lost", True),
    ("a rank did fewer steps", change(METER, fewer_steps), "steps-lost", True),
    ("a line cut out of the file", change(METER, lambda r: r.pop(5) and None), "meter-lines-lost", True),
    (
        "more samples than were counted",
        change(METER, lambda r: r[-1].update(samples=1)),
        "meter-totals",
        True,
    ),
    ("samples doubled everywhere", all_ranks(1, more_samples), "number-differs", True),
    ("steps out of order", change(METER, backwards), "time-backwards", True),
    (
        "the files of two ranks exchanged",
        lambda f: shutil.copy(f / "runs/2/node-1/meter-rank-2.jsonl", f / METER) and None,
        "rank-mixed-up",
        True,
    ),
    ("a smaller world", change(METER, lambda r: r[0].update(world=2)), "world-size", True),
    (
        "a better score written in",
        change_json("result.json", lambda r: r["score"]["value"].update(value=9999.0)),
        "number-differs",
        True,
    ),
    (
        "a failed result called valid",
        change_json("result.json", lambda r: r["runs"][0].update(status="failed")),
        "number-differs",
        True,
    ),
    (
        "a field renamed",
        change_json("result.json", lambda r: r.update(scores=r.pop("score"))),
        "unreadable",
        True,
    ),
    (
        "the rules asked for a higher target",
        change_json("rules.json", lambda r: r["target"].update(value=0.99)),
        "runs-not-converged",
        True,
    ),
    (
        "the rules ask for more runs",
        change_json("rules.json", lambda r: r.update(runs=5)),
        "runs-missing",
        True,
    ),
    ("a run counted twice", twice, "run-twice", True),
    ("a run begun and hidden", unmade, "run-missing", True),
    (
        "system.json lost a field",
        change_json("system.json", lambda s: s.pop("cooling") and None),
        "system-fields",
        True,
    ),
    (
        "another accuracy in train_result_info",
        text_edit("train_result_info.txt", '"0.8', '"0.9'),
        "derived-differs",
        True,
    ),
    (
        "the MLLOG file was edited",
        text_edit("mllog/result_0.txt", '"value": 0.7', '"value": 0.95'),
        "derived-differs",
        True,
    ),
    ("no manifest", remove("manifest.json"), "manifest-missing", False),
    ("a broken manifest", truncate("manifest.json", 0.5), "manifest-unreadable", False),
    ("a link instead of a file", link, "file-link", True),
]


def test_a_good_result_passes(good: Path) -> None:
    checked = check(good)
    assert checked.findings == []
    assert checked.result is not None and checked.result.status == "valid"


@pytest.mark.parametrize(("what", "spoil", "code", "resealed"), SPOILS, ids=[s[0] for s in SPOILS])
def test_spoiled(
    what: str, spoil: Callable[[Path], None], code: str, resealed: bool, good: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "result"
    shutil.copytree(good, folder)
    spoil(folder)
    if resealed:
        manifest.write(folder)
    codes = {f.code for f in check(folder).findings}
    assert code in codes, f"{what}: expected {code}, found {sorted(codes)}"


def test_every_spoil_without_a_new_manifest_is_also_caught_by_the_manifest(
    good: Path, tmp_path: Path
) -> None:
    for number, (what, spoil, _, _) in enumerate(SPOILS):
        folder = tmp_path / str(number)
        shutil.copytree(good, folder)
        spoil(folder)
        codes = {f.code.split("-")[0] for f in manifest.verify(folder)}
        assert codes & {"file", "manifest"}, what


def test_a_result_made_by_softer_rules_than_asked_for_is_refused(good: Path) -> None:
    asked = made.made_rules(min_steps=200)
    found = [f for f in check(good, expected=asked).findings if f.code == "rules-differ"]
    assert len(found) == 1 and "min_steps is 100, asked for is 200" in found[0].message


def test_check_changes_nothing(good: Path) -> None:
    before = manifest.build(good)
    check(good)
    assert manifest.build(good) == before
