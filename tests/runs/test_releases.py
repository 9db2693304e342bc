"""What another release wrote is refused in one clear sentence, by whoever reads it; fields do not change unnoticed.

Whoever changes the fields of a document gives it the next VERSION and adds the fields of that version to
`tests/data/formats.json`. A new kind of document with a version belongs into the table below.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import ROOT, Shed, made_run
from trainshed import files
from trainshed.agent import handover
from trainshed.agent.handover import Handover
from trainshed.api import Client
from trainshed.engines.cluster import order
from trainshed.engines.cluster.order import Facts, Order, Question
from trainshed.engines.local import task
from trainshed.engines.local.task import Task
from trainshed.errors import TrainshedError
from trainshed.plan import model
from trainshed.plan.model import FilePlan, NodePlan, Plan, ProcessPlan, Transfer
from trainshed.runs import chain, events, locations
from trainshed.runs.events import Finished, Note
from trainshed.runs.locations import RunLocation
from trainshed.runs.outcome import Failure, Outcome
from trainshed.runs.states import Cause, RunState

pytestmark = [pytest.mark.core, pytest.mark.hardening]
FORMATS = json.loads((ROOT / "tests/data/formats.json").read_text())
TASK = Task("00", {}, False, 1, "plain", "/s", "/c", (), ())
QUESTION = Question("cpu", 1, addresses=("127.0.0.1",))
ORDER = Order(1, "plain", "/s", (), (), "")
FACTS = Facts(0, "a", "127.0.0.1", 1, (), 1)


def read_location(folder: Path, text: str) -> None:
    run = made_run(folder)
    (run.path / locations.FILE).write_text(text)
    locations.location_of(run)


def read_plan(folder: Path, text: str) -> None:
    run = made_run(folder)
    run.write("plan.json", text)
    run.plan_json()


@dataclass(frozen=True)
class Document:
    """A kind of document: its version, its fields' owners, one as it is written, and who reads it."""

    module: Any
    classes: tuple[type[Any], ...]
    written: str
    read: Callable[[Path, str], object]
    key: str = "version"


DOCUMENTS = {
    "plan": Document(
        model, (Plan, NodePlan, ProcessPlan, FilePlan, Transfer), f'{{"version": {model.VERSION}}}', read_plan
    ),
    "handover": Document(
        handover, (Handover,), Handover("00").to_line().decode(), lambda _, text: Handover.from_line(text)
    ),
    "task": Document(task, (Task,), TASK.to_line().decode(), lambda _, text: Task.from_line(text.encode())),
    "place": Document(
        locations, (RunLocation,), json.dumps(dataclasses.asdict(RunLocation(url="s3://b/r"))), read_location
    ),
    "order": Document(
        order,
        (Facts, Question, Order),
        ORDER.to_line().decode(),
        lambda _, text: Order.from_line(text.encode()),
    ),
    "event": Document(
        events,
        (*events._BODIES.values(), Failure, Outcome),
        events.to_line(Note("x"), 1.0).decode(),
        lambda _, text: events.from_line(text.encode(), "driver-1"),
        key="v",
    ),
    "chain": Document(
        chain, (chain.Record, chain.Head), "", lambda _, text: chain.read(text.encode()), key="v"
    ),
}
"""Also of the order: what starters are asked and answer."""
MORE: dict[str, tuple[str, Callable[[str], object]]] = {
    "question": (QUESTION.to_line().decode(), lambda text: Question.from_line(text.encode())),
    "facts": (FACTS.to_line(), Facts.from_line),
}


def written(name: str, folder: Path) -> str:
    if name != "chain":
        return DOCUMENTS[name].written
    path = folder / "chain-1.jsonl"
    chain.ChainWriter(path, "run", "", 1.0).close({}, 2.0)
    return path.read_text()


def of_version(text: str, key: str, version: int, other: object) -> str:
    assert f'"{key}": {version}' in text or f'"{key}":{version}' in text
    return text.replace(f'"{key}": {version}', f'"{key}": {other}').replace(
        f'"{key}":{version}', f'"{key}":{other}'
    )


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_another_version_is_refused_in_one_sentence(tmp_path: Path, name: str, by: int) -> None:
    document = DOCUMENTS[name]
    text, version = written(name, tmp_path), document.module.VERSION
    document.read(tmp_path, text)
    with pytest.raises((TrainshedError, chain.ChainError)) as caught:
        document.read(tmp_path, of_version(text, document.key, version, version + by))
    message = getattr(caught.value, "message", str(caught.value))
    assert f"format {version + by}, this " in message and message.count("\n") == 0


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("name", MORE)
def test_another_version_of_what_starters_hear_and_say_is_refused(name: str, by: int) -> None:
    text, read = MORE[name]
    assert read(text)
    with pytest.raises(TrainshedError, match=f"format {order.VERSION + by}, this release reads"):
        read(of_version(text, "version", order.VERSION, order.VERSION + by))


def test_every_document_that_has_a_version_is_in_the_table() -> None:
    found = set()
    for path in (ROOT / "src/trainshed").rglob("*.py"):
        for item in ast.parse(path.read_text()).body:
            names = [target.id for target in getattr(item, "targets", ()) if isinstance(target, ast.Name)]
            value = getattr(item, "value", None)
            if "VERSION" in names and isinstance(value, ast.Constant) and isinstance(value.value, int):
                found.add(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    assert found == {document.module.__name__ for document in DOCUMENTS.values()}
    assert all(importlib.import_module(name).VERSION > 0 for name in found)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_fields_change_only_with_the_version(name: str) -> None:
    document = DOCUMENTS[name]
    fields = {
        found.__name__: [f"{item.name}: {item.type}" for item in dataclasses.fields(found)]
        for found in document.classes
    }
    recorded = FORMATS[name].get(str(document.module.VERSION))
    assert fields == recorded, (
        f"the fields of {name} changed: give {document.module.__name__} the next VERSION and record them in "
        f"tests/data/formats.json under that number: {json.dumps(fields)}"
    )


def older_plan() -> str:
    return json.dumps({"version": model.VERSION - 1, "nodes": []})


def test_show_and_logs_of_a_run_with_another_releases_plan(shed: Shed) -> None:
    run = made_run(shed.home)
    run.node(0).mkdir()
    (run.node(0) / "rank-0.log").write_text("a line\n")
    run.write("plan.json", older_plan())
    run.write("job.yaml", "name: job\ncommand: 'false'\n")
    run.record_end(Finished(Outcome.of(Failure(Cause.RANK, "it failed", last_lines=("No module named x",)))))
    sentence = f"the plan was made by another release of Trainshed: format {model.VERSION - 1}, this"
    shown = shed.cli("show", run.id)
    assert shown.returncode == 0 and shown.stdout.count(sentence) == 1 and not shown.stderr
    assert sentence in shed.show(run.id)["problem"]
    assert shed.cli("logs", run.id).stdout.count("a line") == 1
    with pytest.raises(TrainshedError, match=sentence):
        Client(shed.home).get(run.id).plan()


def test_show_and_logs_of_a_run_with_another_releases_events(shed: Shed) -> None:
    run = made_run(shed.home)
    line = events.to_line(Note("x"), 1.0).decode()
    run.writer("driver-1").append(Note("x"))
    (run.events_folder / "driver-1.jsonl").write_text(of_version(line, "v", 1, 2))
    sentence = "written by another release of Trainshed (format 2, this one reads 1)"
    shown = shed.show(run.id)
    assert shown["state"] == RunState.UNREADABLE.value and sentence in shown["reason"]
    logs = shed.cli("logs", run.id)
    assert logs.returncode and logs.stderr.count(sentence) == 1 and "Traceback" not in logs.stderr


def start(module: str, *argv: str, given: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *argv]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, **more)


def test_an_agent_says_it_in_one_line(tmp_path: Path) -> None:
    run = made_run(tmp_path)
    run.write("plan.json", older_plan())
    given = Handover("00").to_line().decode()
    other = of_version(given, "version", handover.VERSION, handover.VERSION + 1)
    for line, sentence in (
        (other, "the agent's handover cannot be"),
        (given, "the plan was made by another"),
    ):
        done = start("trainshed.agent.main", "--run", str(run.path), "--node", "0", given=line)
        assert done.returncode == 1 and done.stderr.startswith(f"trainshed agent: {sentence}")
        assert "this release reads" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("what", ["task", "plan"])
def test_a_driver_records_it_as_the_runs_end(tmp_path: Path, what: str) -> None:
    run = made_run(tmp_path)
    run.write("plan.json", older_plan())
    line = TASK.to_line().decode()
    line = of_version(line, "version", task.VERSION, task.VERSION + 1) if what == "task" else line
    alive = files.hold(run.alive_path)
    assert alive is not None
    done = start("trainshed.engines.local.driver", str(run.path), str(alive), given=line, pass_fds=[alive])
    assert done.returncode == 0
    found = Client(tmp_path).get(run.id).summary()
    assert found.state is RunState.FAILED and "this release reads" in found.reason
    assert "\n" not in found.reason


def test_a_starter_says_it_to_its_driver(tmp_path: Path) -> None:
    run = made_run(tmp_path)
    run.write("plan.json", older_plan())
    question, given = QUESTION.to_line().decode(), ORDER.to_line().decode()
    argv = [str(run.path), "INDEX", "NAME", "CPUS"]
    variables = {"INDEX": "0", "NAME": "a", "CPUS": "1", "PATH": "/usr/bin:/bin"}
    other = of_version(question, "version", order.VERSION, order.VERSION + 1)
    done = start("trainshed.engines.cluster.starter", *argv, given=other, env=variables)
    facts = Facts.from_line(done.stdout)
    assert facts and "this release reads" in facts.problem
    later = of_version(given, "version", order.VERSION, order.VERSION + 1)
    for line, sentence in ((later, "the driver's order cannot be"), (given, "the plan was made by another")):
        done = start("trainshed.engines.cluster.starter", *argv, given=question + line, env=variables)
        assert done.returncode == 1 and sentence in done.stderr and done.stderr.count("\n") == 1
