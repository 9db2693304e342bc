"""Lies: results changed by somebody who then made a new manifest. Each with the rule that must name it.

None of them breaks a file: every file is well-formed and could be that of a
run, but it contradicts another.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import made
import yaml
from spoils import METER, all_ranks, change, change_json, remove, set_event

Records = list[dict[str, Any]]
Spoil = Callable[[Path], None]


def event(run: int, writer: str, edit: Callable[[Records], Any]) -> Spoil:
    return change(f"runs/{run}/events/{writer}.jsonl", lambda r: edit(r) and None)


def plan(run: int, edit: Callable[[dict[str, Any]], Any]) -> Spoil:
    return change_json(f"runs/{run}/plan.json", edit)


def job(run: int, edit: Callable[[dict[str, Any]], Any]) -> Spoil:
    def spoil(folder: Path) -> None:
        path = folder / f"runs/{run}/job.yaml"
        fields = yaml.safe_load(path.read_text())
        edit(fields)
        path.write_text(yaml.safe_dump(fields))

    return spoil


def metrics(run: int, edit: Callable[[Records], Any], node: int = 0) -> Spoil:
    return change(f"runs/{run}/node-{node}/metrics.jsonl", lambda r: edit(r) and None)


def several(*spoils: Spoil) -> Spoil:
    def spoil(folder: Path) -> None:
        for each in spoils:
            each(folder)

    return spoil


def in_turn(*edits: Callable[[Records], None]) -> Callable[[Records], None]:
    def edit(records: Records) -> None:
        for each in edits:
            each(records)

    return edit


def moved(records: Records, seconds: float, mono: bool = True) -> None:
    """All times of a meter later by so much."""
    for record in records:
        record["wall"] += seconds
        if mono:
            record["mono"] += seconds
            record["at"] = [t + seconds for t in record.get("at", ())] or record.get("at")
            if record["at"] is None:
                del record["at"]


def faster(records: Records, factor: float = 2.0, wall: bool = True) -> None:
    """All times pressed together towards the first, both clocks alike."""
    mono, first = records[0]["mono"], records[0]["wall"]
    for record in records:
        record["mono"] = mono + (record["mono"] - mono) / factor
        if wall:
            record["wall"] = first + (record["wall"] - first) / factor
        if "at" in record:
            record["at"] = [round(mono + (t - mono) / factor, 6) for t in record["at"]]


def slower(records: Records) -> None:
    faster(records, 0.5)


def steps(records: Records, edit: Callable[[list[float]], list[float]]) -> None:
    """Other times for the steps, each epoch's first and last step left alone."""
    for record in records:
        if record["event"] == "steps":
            at = record["at"]
            record["at"] = [at[0], *edit(at)[1:-1], at[-1]]


def evenly(at: list[float]) -> list[float]:
    return [round(at[0] + k * (at[-1] - at[0]) / (len(at) - 1), 6) for k in range(len(at))]


def rounded(at: list[float]) -> list[float]:
    return [round(t, 3) for t in at]


def many_samples(records: Records, factor: int = 2, batch: bool = False) -> None:
    for record in records:
        if record["event"] == "steps":
            record["samples"] = [s * factor for s in record["samples"]]
        if batch and record["event"] == "setting":
            record["value"] *= factor
    records[-1]["samples"] *= factor


def longer_epoch(records: Records) -> None:
    """The first epoch's evaluation and the epoch marks between are taken out: one epoch of all steps."""
    gone = {"epoch_stop", "eval_start", "eval_stop", "quality"}
    kept = [r for r in records if not (r["event"] in gone and r["epoch"] == 1)]
    kept = [r for r in kept if not (r["event"] == "epoch_start" and r["epoch"] == 2)]
    for r in kept:
        if "epoch" in r:
            r["epoch"] = 1
    renumbered(records, kept)


def renumbered(records: Records, kept: Records) -> None:
    records[:] = [r | {"seq": i} for i, r in enumerate(kept)]


def without(event_name: str, which: int | None = None) -> Callable[[Records], None]:
    """The marks of a name gone, or one of them, renumbered as if they had never been."""

    def edit(records: Records) -> None:
        places = [i for i, r in enumerate(records) if r["event"] == event_name]
        gone = set(places if which is None else places[which : which + 1 or None])
        renumbered(records, [r for i, r in enumerate(records) if i not in gone])

    return edit


def doubled(event_name: str) -> Callable[[Records], None]:
    def edit(records: Records) -> None:
        place = next(i for i, r in enumerate(records) if r["event"] == event_name)
        renumbered(records, [*records[: place + 1], dict(records[place]), *records[place + 1 :]])

    return edit


def start_late(records: Records) -> None:
    """The mark from which time to target counts, after the first half of the first epoch."""
    start = next(r for r in records if r["event"] == "start")
    later = next(r for r in records if r["event"] == "steps")
    records.remove(start)
    start |= {"mono": later["at"][-1], "wall": later["wall"]}
    records.insert(records.index(later) + 1, start)
    renumbered(records, list(records))


def shorter_evaluation(records: Records) -> None:
    for before, after in pairwise(records):
        if before["event"] == "eval_start":
            after["mono"], after["wall"] = before["mono"] + 1e-4, before["wall"] + 1e-4


def hide_time_in_evaluation(records: Records) -> None:
    """Evaluation grows by a long time, all that follows comes later."""
    late = 0.0
    for record in records:
        if record["event"] == "eval_stop" and record["epoch"] == 1:
            late = 3000.0
        if late:
            moved([record], late)


def early_quality(records: Records) -> None:
    """A quality at the target, recorded before the first step."""
    start = next(i for i, r in enumerate(records) if r["event"] == "start")
    mark = {"event": "quality", "name": "accuracy", "epoch": 1, "value": 0.8}
    clocks = {k: records[start][k] for k in ("mono", "wall")}
    renumbered(records, [*records[: start + 1], mark | clocks, *records[start + 1 :]])


def steps_before_meter(records: Records) -> None:
    record = next(r for r in records if r["event"] == "steps")
    record["at"][0] = records[0]["mono"] - 1


def reused_run(noise: float = 0.0, digits: int = 6, stretch: float = 1.0) -> Spoil:
    """Run 3 made from run 2: other ids, seed, clocks and processes, its step times with noise and rounding."""

    def spoil(folder: Path) -> None:
        source, target = folder / "runs/2", folder / "runs/3"
        for path in sorted(target.glob("node-*/meter-*.jsonl")):
            own = [json.loads(x) for x in path.read_text().splitlines()]
            other = [json.loads(x) for x in (source / path.relative_to(target)).read_text().splitlines()]
            chance = random.Random(path.name)
            for mine, copied in zip(own, other, strict=True):
                if mine["event"] == "steps":
                    first = mine["at"][0]
                    mine["at"] = [
                        round(first + (t - copied["at"][0]) * stretch + chance.uniform(-noise, noise), digits)
                        for t in copied["at"]
                    ]
                    mine["mono"] = mine["at"][-1]
                    mine["wall"] = mine["mono"] + made.BOOT
            made.save(path, own)

    return spoil


def same_rank(folder: Path) -> None:
    """Rank 1 is rank 0 under another number and process."""
    records = [json.loads(x) for x in (folder / "runs/1/node-0/meter-rank-0.jsonl").read_text().splitlines()]
    records[0] |= {"rank": 1, "pid": 15}
    made.save(folder / "runs/1/node-0/meter-rank-1.jsonl", records)


def no_meters(folder: Path) -> None:
    """Numbers that anybody can write instead of meters."""
    for path in folder.glob("runs/*/node-*/meter-rank-*.jsonl"):
        path.unlink()
    for run in (1, 2, 3):
        place = folder / f"runs/{run}/outputs"
        place.mkdir()
        for rank in range(4):
            (place / f"throughput_{rank}.json").write_text("9999.0")
        (place / "accuracy.json").write_text("0.99")


def exchanged_runs(folder: Path) -> None:
    """Run 1 and run 3 change places."""
    (folder / "runs/1").rename(folder / "runs/x")
    (folder / "runs/3").rename(folder / "runs/1")
    (folder / "runs/x").rename(folder / "runs/3")


def own_end(folder: Path) -> None:
    """The job wrote its own final state."""
    path = folder / "runs/1/events/node-0-1.jsonl"
    end = json.loads((folder / "runs/1/events/end.jsonl").read_text())
    path.write_text(path.read_text() + json.dumps(end) + "\n")


def powered(edit: Callable[[int], float]) -> Spoil:
    """Readings of the node's power."""

    def spoil(folder: Path) -> None:
        lines = [{"t": made.WALL + s, "watts": edit(s), "source": "RAPL"} for s in range(15)]
        for node in (0, 1):
            made.save(folder / f"runs/1/node-{node}/power.jsonl", lines)

    return spoil


def flat(records: Records) -> None:
    for record in records:
        record |= {
            k: records[0][k]
            for k in ("node_cpu_percent", "memory_bytes", "net_sent_bytes", "net_received_bytes")
        }


def shift_run(run: int, seconds: float) -> Spoil:
    """A run moved in time by everything that was written on the wall, monotonic clocks left alone."""

    def spoil(folder: Path) -> None:
        root = folder / f"runs/{run}"
        for path in (*root.glob("events/*.jsonl"), *root.glob("node-*/*.jsonl")):
            records = [json.loads(x) for x in path.read_text().splitlines()]
            for record in records:
                for key in ("time", "wall", "t", "submitted", "started"):
                    if key in record:
                        record[key] += seconds
            made.save(path, records)

    return spoil


def label(records: Records, value: str) -> None:
    for record in records:
        record["labels"] = dict.fromkeys(record["labels"], value)


def update(**fields: Any) -> Callable[[Records], None]:
    return lambda records: records[0].update(fields)


def drop(kind: str) -> Callable[[Records], None]:
    def edit(records: Records) -> None:
        records[:] = [r for r in records if r["kind"] != kind]

    return edit


def of_kind(kind: str, **fields: Any) -> Callable[[Records], None]:
    def edit(records: Records) -> None:
        next(r for r in records if r["kind"] == kind).update(fields)

    return edit


def appended(run: int, writer: str, **fields: Any) -> Spoil:
    """One more event, at the time of the last one."""
    return event(run, writer, lambda r: r.append({"v": 1, "time": r[-1]["time"], **fields}))


FAILURE = {"kind": "failure", "attempt": 1, "cause": "rank", "reason": "rank-1 exited with 9", "node": 0}
EXITED = of_kind("exited", returncode=9)
OTHERS = "runs/1/node-1/meter-rank-2.jsonl"

# (what, how, the code that must be named)
LIES: list[tuple[str, Spoil, str]] = [
    # what happened
    ("a rank exited with 9", event(1, "node-0-1", EXITED), "exit-code"),
    ("the end has another exit code", event(1, "end", update(exit_code=3)), "exit-code"),
    ("the attempt has another exit code", event(1, "coordinator-1", of_kind("attempt-finished", exit_code=3)), "exit-code"),
    ("an agent saw a failure", appended(1, "node-1-1", **FAILURE), "failure-seen"),
    ("the coordinator stopped the run", appended(1, "coordinator-1", kind="stopping", attempt=1, reason="enough"), "failure-seen"),
    ("somebody asked for its end", appended(2, "driver-1", kind="stop-requested", reason="enough"), "failure-seen"),
    ("the end has a failure", event(1, "end", update(failure={"cause": "rank", "reason": "x"})), "failure-seen"),
    ("a second attempt", appended(1, "driver-1", kind="attempt", attempt=2), "attempt-repeated"),
    ("the end is of the third attempt", event(1, "end", update(attempt=3)), "attempt-repeated"),
    ("the ranks ran twice", event(1, "coordinator-1", lambda r: r.insert(1, dict(r[0]))), "attempt-repeated"),
    ("finished twice", event(1, "end", lambda r: r.append(dict(r[0]))), "finished-twice"),
    ("the job wrote its own end", own_end, "finished-twice"),
    ("the attempt failed, the run succeeded", event(1, "coordinator-1", of_kind("attempt-finished", state="failed")), "finished-twice"),
    ("the driver says the ranks ran", appended(1, "driver-1", kind="running", attempt=1), "writer-unknown"),
    ("the coordinator says a rank exited", appended(1, "coordinator-1", kind="exited", attempt=1, process="rank-0", returncode=0), "writer-unknown"),
    ("submitted after its end", event(1, "submit", lambda r: r[0].update(time=r[0]["time"] + 500)), "event-order"),
    ("an agent's events in the wrong order", event(1, "node-0-1", lambda r: r.reverse()), "event-order"),
    ("the end is early", event(1, "end", lambda r: r[0].update(time=r[0]["time"] - 12)), "event-order"),
    ("another engine at the end", event(1, "end", update(engine="slurm")), "summary-differs"),
    ("another submission time at the end", event(1, "end", lambda r: r[0].update(submitted=r[0]["submitted"] + 60)), "summary-differs"),
    ("another start at the end", event(1, "end", lambda r: r[0].update(started=r[0]["started"] + 60)), "summary-differs"),
    ("a rank never exited", event(1, "node-0-1", lambda r: r.remove(next(x for x in r if x["kind"] == "exited"))), "process-unrecorded"),
    ("a node started nothing", event(1, "node-1-1", drop("started")), "process-unrecorded"),
    ("a rank started twice", event(1, "node-0-1", lambda r: r.insert(4, dict(next(x for x in r if x["kind"] == "started")))), "process-unrecorded"),
    ("meters began before their processes", all_ranks(1, lambda r: moved(r, -8, mono=False)), "span-outside-process"),
    ("meters went on after their processes", all_ranks(1, lambda r: moved(r, 2)), "span-outside-process"),
    ("meters of another time", all_ranks(2, lambda r: moved(r, 3600)), "span-outside-run"),
    ("training stretched beyond the run", all_ranks(1, slower), "longer-than-run"),
    ("the agents' run was shorter", event(1, "node-0-1", lambda r: r[-1].update(seconds=3.0)), "longer-than-run"),
    ("the agents' run was longer", event(1, "node-0-1", lambda r: r[-1].update(seconds=40.0)), "phase-impossible"),
    ("a phase of negative length", event(1, "node-0-1", lambda r: r[0].update(seconds=-5.0)), "phase-impossible"),
    # what was promised
    ("another shape was submitted", event(1, "submit", update(shape="1x1")), "submission-differs"),
    ("another launcher was submitted", event(1, "submit", update(launcher="horovod")), "submission-differs"),
    ("another job was submitted", event(1, "submit", update(name="other")), "submission-differs"),
    ("submitted twice", event(1, "submit", lambda r: r.append(dict(r[0]))), "submission-differs"),
    ("an emulated run called real", plan(1, lambda p: p.update(emulated=True)), "emulation-hidden"),
    ("a plan of one node", plan(1, lambda p: p["nodes"].pop()), "plan-differs"),
    ("a plan without one rank", plan(1, lambda p: p["nodes"][0]["processes"].pop()), "plan-differs"),
    ("the plan of another run", plan(1, lambda p: p.update(run="run-9")), "plan-differs"),
    ("a job of another shape", job(1, lambda j: j["resources"].update(devices=1)), "job-differs"),
    ("a job with an easier target", job(1, lambda j: j["parameters"].update(target=0.5)), "job-differs"),
    ("ranks were given other parameters", job(1, lambda j: j["parameters"].update(epochs=9)), "job-differs"),
    ("a job for other devices", job(1, lambda j: j["resources"].update(kind="ascend")), "job-differs"),
    ("another seed than was given", all_ranks(2, lambda r: set_event(r, "seed", value=77)), "seed-differs"),
    ("a rank with another batch size", change(METER, lambda r: set_event(r, "setting", value=64)), "batch-differs"),
    ("two ranks were one process", change(METER, lambda r: r[0].update(pid=14)), "pid-twice"),
    ("a rank older than its process", change(METER, lambda r: r[0].update(pid=3)), "pid-twice"),
    ("ranks of a node on two hosts", change(METER, lambda r: r[0].update(host="elsewhere")), "host-differs"),
    ("system.json describes more nodes", change_json("system.json", lambda s: s.update(number_of_nodes="64")), "system-differs"),
    # work
    ("an epoch of more samples than there are", all_ranks(1, lambda r: many_samples(r, 6, batch=True)), "samples-per-epoch"),
    ("all steps in one epoch, five times the data", all_ranks(1, in_turn(longer_epoch, lambda r: many_samples(r, 3, True))), "samples-per-epoch"),
    ("twice the samples a step", all_ranks(1, many_samples), "samples-per-step"),
    ("twice the batch, the same samples", all_ranks(1, lambda r: set_event(r, "setting", value=256)), "samples-per-step"),
    ("started after the first epoch", all_ranks(1, start_late), "start-order"),
    ("started twice", all_ranks(1, doubled("start")), "start-order"),
    ("steps before the meter was open", change(METER, steps_before_meter), "step-outside-line"),
    ("an epoch twice", all_ranks(1, lambda r: set_event(r, "epoch_start", epoch=1)), "epoch-order"),
    ("a quality of a later epoch", all_ranks(1, lambda r: set_event(r, "quality", epoch=5)), "epoch-order"),
    ("epochs that were never begun", all_ranks(1, lambda r: set_event(r, "quality", epoch=40)), "epochs-skipped"),
    ("one rank twice as fast", change(METER, faster), "not-in-step"),
    ("one rank's steps in half the time", change(METER, faster), "pace-differs"),
    # quality
    ("an accuracy of 1.8", all_ranks(1, lambda r: set_event(r, "quality", value=1.8)), "quality-range"),
    ("an accuracy below zero", change(METER, lambda r: set_event(r, "quality", value=-0.1)), "quality-range"),
    ("a better accuracy than the log's", all_ranks(1, lambda r: set_event(r, "quality", value=0.93)), "quality-not-in-log"),
    ("a quality more than evaluations", all_ranks(1, doubled("quality")), "quality-unevaluated"),
    ("a quality without its evaluation", all_ranks(1, in_turn(without("eval_start", 1), without("eval_stop", 1))), "quality-unevaluated"),
    ("an evaluation that was not good enough", all_ranks(1, without("quality", 0)), "evaluation-unreported"),
    ("evaluated in no time", all_ranks(1, shorter_evaluation), "evaluation-too-short"),
    ("training hidden in evaluation", all_ranks(1, hide_time_in_evaluation), "evaluation-too-long"),
    ("the target reached before the first step", all_ranks(1, early_quality), "quality-before-steps"),
    # machines
    ("samples of another hour", metrics(1, lambda r: [x.update(t=x["t"] + 3600) for x in r]), "samples-outside-run"),
    ("samples in the wrong order", metrics(1, lambda r: r.reverse()), "samples-outside-run"),
    ("samples of the first seconds only", metrics(1, lambda r: r.__delitem__(slice(3, None))), "samples-gaps"),
    ("a processor used 250 %", metrics(1, lambda r: [x.update(cpu_percent=250.0) for x in r]), "sample-range"),
    ("negative memory", metrics(1, lambda r: r[3].update(memory_bytes=-1)), "sample-range"),
    ("processes that did nothing", metrics(1, lambda r: [x.update(node_cpu_percent=0.0) for x in r]), "cpu-idle"),
    ("nodes that never spoke", metrics(1, lambda r: [x.update(net_sent_bytes=1000 + i) for i, x in enumerate(r)]), "network-idle"),
    ("a counter that falls", metrics(1, lambda r: r[5].update(net_received_bytes=1)), "counter-backwards"),
    ("negative watts", powered(lambda s: -100.0 - s), "watts-implausible"),
    ("a megawatt", powered(lambda s: 1e6 + s), "watts-implausible"),
    ("ranks of a node with different clocks", change(METER, lambda r: moved(r, 1.0, mono=False)), "clocks-disagree"),
    # invented times
    ("steps that all take the same time", all_ranks(1, lambda r: steps(r, evenly)), "times-even"),
    ("one rank's steps are even", change(METER, lambda r: steps(r, evenly)), "times-even"),
    ("step times rounded to milliseconds", all_ranks(1, lambda r: steps(r, rounded)), "times-rounded"),
    ("a rank copied", same_rank, "ranks-identical"),
    ("a run copied", reused_run(), "runs-alike"),
    ("a run copied with noise", reused_run(noise=3e-5), "runs-alike"),
    ("a run copied and rounded", reused_run(noise=1e-5, digits=5), "runs-alike"),
    ("a run copied and made faster", reused_run(noise=1e-5, stretch=0.9), "runs-alike"),
    # runs together
    ("runs in another order", exchanged_runs, "runs-overlap"),
    ("runs from before the result was begun", change_json("session.json", lambda s: s.update(created="2026-01-01T00:00:00Z")), "runs-overlap"),
    ("a run of another result", several(event(2, "submit", lambda r: label(r, "x-run-002")), event(2, "end", lambda r: label(r, "x-run-002"))), "label-differs"),
    ("a run that was not started for it", several(event(2, "submit", lambda r: r[0].pop("labels")), event(2, "end", lambda r: r[0].pop("labels"))), "label-differs"),
    ("a run of another job", several(job(2, lambda j: j.update(entry="other.py"))), "jobs-differ"),
    ("a run with other parameters", job(3, lambda j: j["parameters"].update(rate=0.1)), "jobs-differ"),
    ("a run with another batch size", all_ranks(2, lambda r: set_event(r, "setting", value=127)), "batches-differ"),
    ("a run moved by ten minutes", shift_run(3, 600.0), "clocks-moved"),
    # absences
    ("numbers instead of meters", no_meters, "meter-missing"),
    ("a run without its job", remove("runs/1/job.yaml"), "file-missing"),
    ("a run without its end", remove("runs/1/events/end.jsonl"), "file-missing"),
    ("a run without its submission", remove("runs/1/events/submit.jsonl"), "file-missing"),
    ("a run without an agent's events", remove("runs/1/events/node-1-1.jsonl"), "file-missing"),
    ("a run without its coordinator's events", remove("runs/1/events/coordinator-1.jsonl"), "file-missing"),
    ("a run without a rank's log", remove("runs/1/node-0/rank-0.log"), "file-missing"),
    ("a run without its samples", remove("runs/1/node-0/metrics.jsonl"), "file-missing"),
    # formats
    ("events of another release", event(1, "end", update(v=9)), "events-unreadable"),
    ("an unknown event", event(1, "driver-1", update(kind="miracle")), "events-unreadable"),
    ("a meter of another format", change(METER, lambda r: r[0].update(format=7)), "meter-format"),
    ("lines that the meter could not write", change(METER, lambda r: r[-1].update(dropped=4)), "meter-lines-lost"),
    ("a job that cannot be read", lambda f: (f / "runs/1/job.yaml").write_text("- [x") and None, "job-unreadable"),
    ("marks out of order", change(METER, lambda r: r[6].update(mono=r[6]["mono"] - 1, wall=r[6]["wall"] - 1)), "time-backwards"),
]  # fmt: skip

# Lies about runs of a minute on accelerators, which have readings to contradict.
LONG_LIES: list[tuple[str, Spoil, str]] = [
    ("samples that never change", metrics(1, flat), "samples-even"),
    ("devices that did nothing", metrics(1, lambda r: [d.update(util_percent=0.0) for x in r for d in x["devices"]]), "device-idle"),
    ("a device that always takes the same power", metrics(1, lambda r: [d.update(power_watts=300.0) for x in r for d in x["devices"]]), "watts-even"),
    ("a device of four kilowatts", metrics(1, lambda r: r[9]["devices"][0].update(power_watts=4000.0)), "watts-implausible"),
]  # fmt: skip
