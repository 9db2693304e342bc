"""One odd run directory is shown as unreadable, with why, and hides no other run."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import Shed, made_run, tree
from trainshed import files
from trainshed.api import Client
from trainshed.cli.output import print_table
from trainshed.errors import UsageError
from trainshed.runs.directory import RunDirectory, Runs
from trainshed.runs.events import AttemptStarted, Finished, Note, UnreadableRunError, to_line
from trainshed.runs.logs import follow, log_files
from trainshed.runs.outcome import Outcome
from trainshed.runs.states import RunState
from trainshed.runs.summary import summaries

pytestmark = [pytest.mark.foundation, pytest.mark.core, pytest.mark.hardening]


def write(name: str, content: bytes) -> Callable[[RunDirectory], None]:
    def spoil(run: RunDirectory) -> None:
        (run.path / name).write_bytes(content)

    return spoil


def fifo(name: str) -> Callable[[RunDirectory], None]:
    def spoil(run: RunDirectory) -> None:
        (run.path / name).unlink(missing_ok=True)
        (run.path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(run.path / name)

    return spoil


def folder(name: str) -> Callable[[RunDirectory], None]:
    def spoil(run: RunDirectory) -> None:
        (run.path / name).unlink(missing_ok=True)
        (run.path / name).mkdir(parents=True)

    return spoil


def endless(name: str) -> Callable[[RunDirectory], None]:
    """A sparse file: it takes no room on the disk and more memory than there is."""

    def spoil(run: RunDirectory) -> None:
        (run.path / name).write_bytes(b"x\n")
        os.truncate(run.path / name, 1 << 42)

    return spoil


def events_are(kind: Callable[[str], Callable[[RunDirectory], None]]) -> Callable[[RunDirectory], None]:
    def spoil(run: RunDirectory) -> None:
        (run.events_folder / "submit.jsonl").unlink()
        run.events_folder.rmdir()
        kind("events")(run)

    return spoil


def line(**data: Any) -> bytes:
    return json.dumps({"v": 1, "time": 1.0} | data).encode() + b"\n"


UNREADABLE = {
    "newer version": (write("events/driver-1.jsonl", line(v=2, kind="attempt", attempt=1)), "format 2"),
    "no version": (write("events/driver-1.jsonl", b'{"kind": "running", "time": 1}\n'), "no version"),
    "unknown kind": (write("events/node-0-1.jsonl", line(kind="teleported")), "teleported"),
    "unknown state": (write("events/end.jsonl", line(kind="finished", state="gone", exit_code=0)), "gone"),
    "end of another kind": (write("events/end.jsonl", line(kind="note", text="x")), "its end is not as"),
    "damaged end": (write("events/end.jsonl", b'{"v": 1, "ti'), "its end is damaged"),
    "damaged submission": (write("events/submit.jsonl", b"\x00" * 100), "how it was submitted"),
    "no submission": (lambda run: (run.events_folder / "submit.jsonl").rename(
        run.events_folder / "stop-1.jsonl"), "how it was submitted"),
    "deep nesting": (write("events/node-0-1.jsonl", b'{"v": ' + b"[" * 200_000 + b"\n"), "nested too deeply"),
    "endless time": (write("events/node-0-1.jsonl", line(kind="running", attempt=1, time=1e400)), "time is inf"),
    "process named as a path": (write("events/node-0-1.jsonl", line(kind="started", attempt=1, process="../x", pid=1)),
        "process is '../x'"),
    "process that no file can be named as": (
        write("events/node-0-1.jsonl", line(kind="started", attempt=1, process="a\0b", pid=1)), "process is 'a"),
    "place of another release": (write("place.json", b'{"version": 9}'), "place.json cannot be read: format 9"),
    "place nested deeply": (write("place.json", b"[" * 200_000), "place.json cannot be read"),
    "fifo as place": (fifo("place.json"), "place.json cannot be read"),
    "fifo of events": (fifo("events/stop-1.jsonl"), "stop-1.jsonl cannot be read"),
    "fifo as end": (fifo("events/end.jsonl"), "end.jsonl cannot be read"),
    "fifo as submission": (fifo("events/submit.jsonl"), "submit.jsonl cannot be read"),
    "folder of events": (folder("events/node-0-1.jsonl"), "node-0-1.jsonl cannot be read"),
    "events are a file": (events_are(lambda name: write(name, b"")), "cannot be read"),
    "events are a fifo": (events_are(fifo), "cannot be read"),
}  # fmt: skip
HARMLESS = {
    "folder node-²": folder("node-²"),
    "folder node-007": folder("node-007"),
    "folder node-": folder("node-"),
    "file node-7": write("node-7", b""),
    "fifo node-8": fifo("node-8"),
    "events of node ²": write("events/node-²-1.jsonl", line(kind="started", attempt=1, process="x", pid=1)),
    "events of nobody": write("events/node-.jsonl", line(kind="started", attempt=1, process="x", pid=1)),
    "fifo as lock": fifo("alive.lock"),
    "fifo as lock of a node": fifo("node-0/alive.lock"),
    "fifo as log": fifo("node-0/rank-0.log"),
    "folder as log": folder("node-0/rank-1.log"),
    "fifo beside a log": lambda run: (
        folder("node-0")(run),
        fifo("node-0/rank-0.times")(run),
        write("node-0/rank-0.log", b"x\n")(run),
    )[0],
    "endless file beside a log": lambda run: (
        folder("node-0")(run),
        endless("node-0/rank-0.times")(run),
        write("node-0/rank-0.log", b"x\n")(run),
    )[0],
    "endless plan": endless("plan.json"),
    "log of rank ²": lambda run: (folder("node-0")(run), write("node-0/rank-².log", b"x\n")(run))[0],
    "fifo as plan": fifo("plan.json"),
    "fifo as job": fifo("job.yaml"),
    "fifo as reconciler's lock": fifo("reconcile.lock"),
    "not a text": lambda run: run.request_stop("one\u2028two \udc80 \x1b[31m"),
    "a foreign file of events": write("events/notes.txt", b"not ours"),
}


def bounded(call: Callable[[], Any]) -> Any:
    """The result of a call that must not wait for anything."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it waits for what will never come"
    return found[0]


@pytest.fixture
def others(tmp_path: Path) -> set[str]:
    """Two runs whose record is good: one has ended, one has not."""
    ended, living = made_run(tmp_path / "home", "ended"), made_run(tmp_path / "home", "living")
    ended.record_end(Finished(Outcome.of(None), name="ended", engine="local"))
    living.writer("driver-1").append(AttemptStarted(1))
    return {ended.id, living.id}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_run_is_listed_with_why(tmp_path: Path, others: set[str], name: str) -> None:
    spoil, words = UNREADABLE[name]
    odd = made_run(tmp_path / "home", "odd")
    spoil(odd)
    before = tree(odd.path)
    client = Client.from_environment({}, tmp_path / "home")
    found = {summary.id: summary for summary in bounded(lambda: list(client.summaries()))}
    assert set(found) == others | {odd.id}
    assert found[odd.id].state is RunState.UNREADABLE and words in found[odd.id].reason
    assert {found[other].state for other in others} == {RunState.SUCCEEDED, RunState.LOST}
    assert tree(odd.path) == before, "what cannot be read is left as it is"
    assert bounded(client.runs)
    with pytest.raises(UnreadableRunError):
        client.remove(client.get(odd.id))
    bounded(lambda: client.remove(client.get(odd.id), force=True))
    assert not odd.path.exists()
    assert {summary.id for summary in client.summaries()} == others


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_nobodys_is_no_obstacle(tmp_path: Path, others: set[str], name: str) -> None:
    odd = made_run(tmp_path / "home", "odd")
    HARMLESS[name](odd)
    client = Client.from_environment({}, tmp_path / "home")
    found = {summary.id: summary for summary in bounded(lambda: list(client.summaries()))}
    assert set(found) == others | {odd.id}
    assert found[odd.id].state in (RunState.LOST, RunState.STOPPED, RunState.PENDING)
    assert odd.node_indexes() in ([], [0])
    run = client.get(odd.id)
    assert bounded(lambda: [entry.text for entry in run.logs()]) in ([], ["x"])
    assert all(path.is_file() for _, path in log_files(odd))
    bounded(lambda: client.remove(run)) if found[odd.id].state.is_final else None


def test_a_run_of_a_newer_release_that_lives_is_not_removed_by_force(tmp_path: Path) -> None:
    odd = made_run(tmp_path, "odd")
    UNREADABLE["newer version"][0](odd)
    held = files.hold(odd.alive_path)
    assert held is not None
    client = Client.from_environment({}, tmp_path)
    with pytest.raises(UsageError, match="its processes live"):
        client.remove(client.get(odd.id), force=True)
    os.close(held)
    client.remove(client.get(odd.id), force=True)
    assert not odd.path.exists()


def test_an_old_run_is_listed_and_found(tmp_path: Path) -> None:
    old = RunDirectory(tmp_path / "runs" / "old-1")
    old.path.mkdir(parents=True)
    (old.path / "events.jsonl").write_text('{"time": 1, "kind": "submitted"}\n')
    (summary,) = summaries(Runs.of(tmp_path))
    assert summary.state is RunState.UNREADABLE and "another release" in summary.reason
    assert Runs.of(tmp_path).find("old") == old


def test_commands_show_the_odd_run_and_go_on(shed: Shed) -> None:
    ended = made_run(shed.home, "ended")
    ended.record_end(Finished(Outcome.of(None), name="ended", engine="local", submitted=1.0))
    odd = made_run(shed.home, "odd")
    UNREADABLE["unknown kind"][0](odd)
    listed = shed.cli("ps", "-a")
    rows = {row.split("\t")[0]: row.split("\t") for row in listed.stdout.splitlines()}
    assert listed.returncode == 0 and rows[ended.id][1] == "succeeded"
    assert rows[odd.id][1] == "unreadable" and "teleported" in rows[odd.id][-1]
    shown = shed.show(odd.id)
    assert shown["state"] == "unreadable" and "teleported" in shown["reason"] and shown["exit_code"] is None
    text = shed.cli("show", odd.id)
    assert text.returncode == 0 and f"{odd.id}: unreadable" in text.stdout and "teleported" in text.stdout
    refused = shed.cli("rm", odd.id)
    assert refused.returncode == 1 and "teleported" in refused.stderr and odd.path.exists()
    assert shed.cli("rm", "--ended").stdout == "removed 1 run\n" and not ended.path.exists()
    assert shed.cli("rm", "--force", odd.id).returncode == 0 and not odd.path.exists()


@pytest.mark.parametrize(
    "plan", ["null", '{"nodes": 7}', '{"nodes": [7]}', '{"nodes": [{"kept_home": "a\\u0000"}]}']
)
def test_a_plan_of_another_form_is_no_obstacle(shed: Shed, plan: str) -> None:
    run = made_run(shed.home)
    (run.path / "plan.json").write_text(plan)
    assert shed.show(run.id)["state"] == "lost"


def test_an_ended_run_with_a_damaged_detail_is_shown_with_its_end(shed: Shed) -> None:
    run = made_run(shed.home)
    run.record_end(Finished(Outcome.of(None), name="job", engine="local"))
    (run.events_folder / "node-0-1.jsonl").write_bytes(line(kind="teleported"))
    shown = shed.show(run.id)
    assert shown["state"] == "succeeded" and "teleported" in shown["problem"] and shown["processes"] == []


def test_nothing_that_a_run_says_steers_the_terminal(shed: Shed) -> None:
    run = made_run(shed.home)
    run.writer("driver-1").append(Note("one\x1b]0;title\x07\u202e\ntwo [/bold]"))
    run.request_stop("why\x1b[2J\tnot")
    for command in (("ps", "-a"), ("show", run.id), ("wait", run.id)):
        said = shed.cli(*command).stdout
        assert "\x1b" not in said and "\u202e" not in said and "why\\x1b[2J" in said, said
    assert "note: one\\x1b]0;title\\x07\\u202e\ntwo [/bold]" in shed.cli("show", run.id).stdout


def test_a_table_on_a_terminal_takes_text_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    print_table(["REASON"], [["[/bold] and [red]more"]])
    assert "[/bold] and [red]more" in capsys.readouterr().out


def test_the_last_lines_of_an_endless_log_are_found_at_once(tmp_path: Path) -> None:
    run = made_run(tmp_path, "odd")
    folder("node-0")(run)
    endless("node-0/rank-0.log")(run)
    with (run.path / "node-0/rank-0.log").open("ab") as stream:
        stream.write(b"\nlast\n")
    lines = bounded(lambda: [entry.text for entry in follow(run, lambda: True, last=2)])
    assert lines[-1] == "last" and len(lines) <= 4, len(lines)


def test_a_disk_that_is_full_for_one_run_hides_no_other(
    tmp_path: Path, others: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = made_run(tmp_path / "home", "full")
    record_end = RunDirectory.record_end

    def record(self: RunDirectory, body: Finished) -> bool:
        if self == full:
            raise OSError(28, "No space left on device", str(self.path))
        return record_end(self, body)

    monkeypatch.setattr(RunDirectory, "record_end", record)
    found = {s.id: s for s in Client.from_environment({}, tmp_path / "home").summaries()}
    assert set(found) == others | {full.id}
    assert not found[full.id].state.is_final and "No space left on device" in found[full.id].reason


def test_the_tests_own_lines_are_as_the_program_writes_them() -> None:
    assert json.loads(to_line(AttemptStarted(1), 1.0)) == json.loads(line(kind="attempt", attempt=1))
