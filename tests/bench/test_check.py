"""Every way to spoil a result is caught by `check` and named by its code."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import made
import pytest
from spoils import (
    METER,
    all_ranks,
    backwards,
    change,
    change_json,
    drop_last,
    early,
    fewer_steps,
    jump,
    link,
    lose_steps,
    more_samples,
    remove,
    rename,
    restarted,
    set_event,
    slow_clock,
    step_in_evaluation,
    text_edit,
    truncate,
    twice,
    unmade,
)

from trainshed.bench import manifest
from trainshed.bench.folder import derived_files, load_result
from trainshed.bench.judge.check import check
from trainshed.bench.result import Measured, to_json

pytestmark = [pytest.mark.benchmark]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.made_result(tmp_path_factory.mktemp("good"))


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
    (
        "a part of the data set",
        all_ranks(1, lambda r: set_event(r, "dataset", train_samples=800)),
        "dataset-wrong",
        True,
    ),
    (
        "evaluated on less",
        change(METER, lambda r: set_event(r, "dataset", eval_samples=40)),
        "dataset-wrong",
        True,
    ),
    (
        "data of another name",
        all_ranks(1, lambda r: set_event(r, "dataset", name="other")),
        "dataset-wrong",
        True,
    ),
    (
        "samples not counted",
        change(METER, lambda r: set_event(r, "dataset", train_samples=None)),
        "dataset-unknown",
        True,
    ),
    ("no data set named", all_ranks(1, lambda r: rename(r, "dataset")), "dataset-unknown", True),
    ("training stopped early", all_ranks(3, early), "early-stop", True),
    ("a rank was killed", change(METER, drop_last), "rank-killed", True),
    ("a rank aborted", change(METER, lambda r: set_event(r, "stop", status="aborted")), "run-aborted", True),
    ("a rank was started twice", restarted, "rank-restarted", True),
    (
        "the run failed",
        change("runs/1/events/end.jsonl", lambda r: r[-1].update(state="failed")),
        "run-failed",
        True,
    ),
    (
        "the run never ended",
        change("runs/1/events/end.jsonl", lambda r: r.pop() and None),
        "run-failed",
        True,
    ),
    ("a run without its events", remove("runs/1/events"), "file-missing", True),
    (
        "a run whose events say nothing",
        lambda f: [p.write_text("") for p in f.glob("runs/1/events/*")] and None,
        "run-failed",
        True,
    ),
    ("a run without its plan", remove("runs/1/plan.json"), "file-missing", True),
    ("a step during evaluation", change(METER, step_in_evaluation), "step-in-evaluation", True),
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
        "job-differs",
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
    ("no MLLOG files", remove("mllog"), "file-missing", True),
    ("another status in report.md", text_edit("report.md", ": valid", ": failed"), "derived-differs", True),
    (
        "another throughput in report.csv",
        text_edit("report.csv", ",images/s,", ",x/s,"),
        "derived-differs",
        True,
    ),
    ("no report.csv", remove("report.csv"), "file-missing", True),
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
    found = [f for f in check(good, expected=lambda brought: asked).findings if f.code == "rules-differ"]
    assert len(found) == 1 and "min_steps is 100, expected is 200" in found[0].message


def test_another_machines_last_digit_is_forgiven_in_the_files_that_show_it_too(
    good: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "result"))
    stated = load_result(folder)
    low = stated.score.confidence_low
    assert isinstance(low, Measured)
    last = low.model_copy(update={"value": math.nextafter(low.value, math.inf)})
    stated = stated.model_copy(update={"score": stated.score.model_copy(update={"confidence_low": last})})
    (folder / "result.json").write_text(to_json(stated))
    for name, text in derived_files(stated, {}).items():
        (folder / name).write_text(text)
    manifest.write(folder)
    assert check(folder).findings == []


def test_check_changes_nothing(good: Path) -> None:
    before = manifest.build(good)
    check(good)
    assert manifest.build(good) == before
