"""Events are typed and versioned: what this release did not write is refused, never guessed at."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from support import made_run
from trainshed.agent.handover import Handover
from trainshed.errors import TrainshedError
from trainshed.plan.model import Plan
from trainshed.runs import events, locations
from trainshed.runs.directory import RunDirectory
from trainshed.runs.events import (
    AttemptFinished,
    AttemptStarted,
    Body,
    FailureSeen,
    Finished,
    Kind,
    Launched,
    Note,
    PhaseFinished,
    ProcessExited,
    Queued,
    StopRequested,
    Submitted,
    UnreadableRunError,
    from_line,
    to_line,
)
from trainshed.runs.locations import RunLocation
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause, RunState

pytestmark = [pytest.mark.foundation, pytest.mark.core, pytest.mark.hardening]
FAILURE = Failure(Cause.RANK, "rank 3 exited with 7", 1, "rank-3", 7, "node-1/rank-3.log", ("oh", "no"))
BODIES: list[Body] = [
    Submitted("job", "local", "2x2", "pytorch", "plain", True, "sandbox", "ann", "team", {"a": "b"}, ("x", "y"), {"n": [1]}),
    Queued("waits for team red", {"isolation": "plain"}),
    Launched("sandbox", {"n": [1]}),
    AttemptStarted(2, "a,b", "17"),
    StopRequested("enough", "ann"),
    FailureSeen(1, FAILURE),
    AttemptFinished(1, Outcome.of(FAILURE)),
    AttemptFinished(1, Outcome.of(None)),
    Finished(Outcome.of(FAILURE), "job", "local", "2x2", "ann", True, 3, 1.5, 2.5, {"a": "b"}),
    Finished(Outcome.of(None)),
    PhaseFinished(1, "fetch code", 0.25),
    ProcessExited(1, "rank-0", -9),
    Note("line one\nline two\u2028still two"),
]  # fmt: skip
GOOD = {"v": 1, "time": 1.0, "kind": "attempt", "attempt": 1}


def line(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_body_of_its_own(kind: Kind) -> None:
    body = events._BODIES[kind]
    assert dataclasses.is_dataclass(body) and events._KINDS[body] is kind


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_an_event_is_read_as_it_was_written(body: Body) -> None:
    written = to_line(body, 1234.5678)
    event = from_line(written, "somebody")
    assert event and (event.body, event.time, event.writer) == (body, 1234.5678, "somebody")
    assert written.count(b"\n") == 1 and written.endswith(b"\n")


@pytest.mark.parametrize("text", [b"", b"{", b'{"v": 1, "ti', b"\x00\x00", b"\xff\xfe", b"9" * 5000])
def test_an_unfinished_line_is_no_event(text: bytes) -> None:
    assert from_line(text, "somebody") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (line(v=2), "another release of Trainshed (format 2, this one reads 1)"),
        (line(v="1"), "another release"),
        (b'{"time": 1, "kind": "running"}', "format no version"),
        (b"[]", "format list"),
        (b"null", "format NoneType"),
        (line(kind="from-the-future"), "from-the-future is not as this release knows it"),
        (line(kind=None), "None is not as this release knows it"),
        (line(kind=["attempt"]), "is not as this release knows it"),
        (b'{"v": 1, "time": 1, "kind": "attempt"}', "attempt is not as this release knows it"),
        (line(attempt="1"), "attempt is '1'"),
        (line(attempt=1e300), "attempt is 1e+300"),
        (line(time="now"), "time is 'now'"),
        (line(time=float("inf")), "time is inf"),
        (line(time=float("nan")), "time is nan"),
        (line(time=10**400), "time is 1000"),
        (line(kind="note", text={}), "text is {}"),
        (line(kind="finished", state="exploded", exit_code=0), "exploded"),
        (line(kind="finished", state="failed", exit_code=1, failure=7), "finished is not as"),
        (line(kind="finished", state="succeeded", exit_code=0, submitted=float("inf")), "submitted is inf"),
        (line(kind="failure", cause="magic", reason="x"), "magic"),
        (line(kind="failure", cause="rank", reason="x", node="0"), "invalid failure"),
        (line(kind="submitted", name="a", engine="b", shape="c", labels={"a": 1}), "labels is"),
        (line(kind="submitted", name="a", engine="b", shape="c", array=[1]), "array is [1]"),
        (b'{"v": 1, "kind": "note", "text": ' + b"[" * 200_000, "nested too deeply"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_this_release_does_not_know_is_refused_in_one_sentence(text: bytes, words: str) -> None:
    with pytest.raises(UnreadableRunError) as caught:
        from_line(text, "driver-1")
    assert words in caught.value.message and "driver-1" in caught.value.message
    assert "\n" not in caught.value.message and len(caught.value.message) < 300


def test_what_is_no_character_is_replaced_and_never_ends_a_writer_or_a_reader(tmp_path: Path) -> None:
    run = made_run(tmp_path)
    run.writer("driver-1").append(Note("file \udc80 is missing"))
    (run.events_folder / "node-0-1.jsonl").write_bytes(line(kind="note", text="half \ud800 a character"))
    assert [note.encode() for note in run.notes()] == [b"half ? a character", b"file ? is missing"]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r"])
def test_only_the_end_of_a_line_is_one(tmp_path: Path, mark: str) -> None:
    run = made_run(tmp_path)
    run.request_stop(f"one{mark}two")
    assert run.stop_reason() == f"one{mark}two"
    assert len(run.events()) == 2


def test_events_of_all_writers_are_merged_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made_run(tmp_path)
    for at, writer in ((2e9 + 3, "a"), (2e9 + 1, "b"), (2e9 + 2, "a2"), (2e9 + 4, "b")):
        monkeypatch.setattr("trainshed.runs.events.time.time", lambda at=at: at)
        run.writer(writer).append(Note(f"{writer} at {at - 2e9:g}"))
    assert run.notes() == ["b at 1", "a2 at 2", "a at 3", "b at 4"]
    assert [event.writer for event in run.events("a")] == ["a2", "a"]


def test_a_full_disk_is_told_to_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made_run(tmp_path)
    write = os.write
    monkeypatch.setattr("trainshed.runs.events.os.write", lambda handle, data: write(handle, data[:5]))
    with pytest.raises(OSError, match="No space left on device"):
        run.writer("driver-1").append(Note("half of it"))
    monkeypatch.undo()
    run.writer("driver-1").append(Note("later"))
    assert run.notes() == ["later"]


def test_the_first_end_stands(tmp_path: Path) -> None:
    run = made_run(tmp_path)
    assert run.end() is None
    assert run.record_end(Finished(Outcome.of(FAILURE)))
    first = (run.events_folder / "end.jsonl").read_bytes()
    assert not run.record_end(Finished(Outcome.of(None)))
    end = run.end()
    assert end and isinstance(end.body, Finished) and end.body.outcome.state is RunState.FAILED
    assert (run.events_folder / "end.jsonl").read_bytes() == first
    assert sorted(path.name for path in run.events_folder.iterdir()) == ["end.jsonl", "submit.jsonl"]


@pytest.mark.parametrize("content", [b"", b"\n", b'{"v": 1, "kin', b"\x00" * 64])
def test_a_damaged_end_is_not_taken_for_none(tmp_path: Path, content: bytes) -> None:
    run = made_run(tmp_path)
    (run.events_folder / "end.jsonl").write_bytes(content)
    with pytest.raises(UnreadableRunError, match="its end is damaged"):
        run.end()


def test_a_run_of_before_the_format_is_told_apart(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs" / "old-1")
    run.path.mkdir(parents=True)
    (run.path / "events.jsonl").write_text('{"time": 1, "kind": "submitted"}\n')
    for read in (run.events, run.submitted):
        with pytest.raises(UnreadableRunError, match=r"another release of Trainshed \(events\.jsonl"):
            read()


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b"{", b"[" * 200_000, b"\xff"])
def test_a_plan_that_is_none_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    run = made_run(tmp_path)
    (run.path / "plan.json").write_bytes(content)
    with pytest.raises(UnreadableRunError, match=r"plan\.json") as caught:
        run.plan_json()
    assert run.id in caught.value.message and "\n" not in caught.value.message


@pytest.mark.parametrize("data", [{}, {"version": 99}, {"version": None}, {"version": 2, "nodes": 7}])
def test_the_plan_of_another_release_is_refused_in_one_sentence(data: dict[str, Any]) -> None:
    with pytest.raises(TrainshedError) as caught:
        Plan.from_json(data)
    assert caught.value.code == "other-release" and "\n" not in caught.value.message
    assert caught.value.message.startswith("the plan was made by another release of Trainshed: ")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b'{"version": 2}', b'{"version": 1, "moon": 1}', b"[" * 200_000, b"\xff",
        b'{"version": 1, "url": 7}', b'{"version": 1, "site": "x"}',
    ],
    ids=lambda data: repr(data[:30]),
)  # fmt: skip
def test_the_place_of_another_release_is_refused_in_one_sentence(tmp_path: Path, data: bytes) -> None:
    run = made_run(tmp_path)
    (run.path / locations.FILE).write_bytes(data)
    with pytest.raises(UnreadableRunError, match=r"place\.json cannot be read") as caught:
        locations.location_of(run)
    assert run.id in caught.value.message and "\n" not in caught.value.message
    locations.make_mirror(run, RunLocation(url="s3://bucket/runs/x"))
    assert locations.location_of(run) == RunLocation(url="s3://bucket/runs/x")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 0}', '{"version": 2, "secret": "x", "moon": 1}']
)
def test_the_handover_of_another_release_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(TrainshedError, match="the agent's handover cannot be read") as caught:
        Handover.from_line(text)
    assert caught.value.code == "other-release" and "\n" not in caught.value.message
    given = Handover(secret="00", attempt=3, prefix=("podman",))
    assert Handover.from_line(given.to_line()) == given
