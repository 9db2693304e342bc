"""Lies beyond those of lies.py: copied samples, other programs, other hosts, and the findings about files and numbers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
from lies import Records, Spoil, event, job, metrics, plan, several, update, without
from spoils import METER, all_ranks, change, change_json, lines, save, set_event


def every(make: Callable[[int], Spoil]) -> Spoil:
    """The same lie about all three runs, so that it shows in no difference between them."""
    return several(*(make(run) for run in (1, 2, 3)))


def samples_of(source: str, target: str) -> Spoil:
    """One node's samples in place of another's, moved to its time."""

    def spoil(folder: Path) -> None:
        copied, own = lines(folder / source), lines(folder / target)
        later = own[0]["t"] - copied[0]["t"]
        save(folder / target, [line | {"t": line["t"] + later} for line in copied][: len(own)])

    return spoil


def hosts(name: str) -> Spoil:
    def spoil(folder: Path) -> None:
        for path in folder.glob("runs/*/node-*/meter-*.jsonl"):
            records = lines(path)
            records[0] |= {"host": name, "pid": records[0]["pid"] + 10 * ("node-1" in str(path))}
            save(path, records)

    return spoil


def power_of_another_hour(folder: Path) -> None:
    readings = [{"t": made.WALL + 7200 + s, "watts": 200.0 + s, "source": "RAPL"} for s in range(20)]
    for node in (0, 1):
        made.save(folder / f"runs/1/node-{node}/power.jsonl", readings)


def starts(argv: Callable[[list[str]], list[str]], ranks: int | None = None) -> Callable[[int], Spoil]:
    """What the plan starts, of all ranks or of the first so many."""

    def edit(found: dict[str, Any]) -> None:
        processes = [process for node in found["nodes"] for process in node["processes"]]
        for process in processes[:ranks]:
            process["argv"] = argv(process["argv"])

    return lambda run: plan(run, edit)


def disk_falls(records: Records) -> None:
    for number, record in enumerate(records):
        record |= {"disk_read_bytes": 10_000 - number, "disk_write_bytes": 5}


def no_longer_good(records: Records) -> None:
    set_event(records, "quality", value=0.5)


def missed(*runs: int) -> Spoil:
    """Runs whose quality is below the target, in meters and logs."""

    def spoil(folder: Path) -> None:
        for run in runs:
            all_ranks(run, no_longer_good)(folder)
            for path in folder.glob(f"runs/{run}/node-*/rank-*.log"):
                path.write_text("epoch 1 accuracy=0.5000\nepoch 2 accuracy=0.5000\n")

    return spoil


def unrecorded(folder: Path) -> None:
    """Nothing of a quality in meters or logs."""
    every(lambda i: all_ranks(i, without("quality")))(folder)
    for path in folder.glob("runs/*/node-*/rank-*.log"):
        path.write_text("trained\n")


def rules(**changes: Any) -> Spoil:
    return change_json("rules.json", lambda found: found.update(changes))


def unmetered(*numbers: tuple[str, str]) -> Spoil:
    """A script's own files in place of meters, in a result that asks for none."""

    def spoil(folder: Path) -> None:
        rules(metered=False)(folder)
        for path in folder.glob("runs/*/node-*/meter-rank-*.jsonl"):
            path.unlink()
        for run in (1, 2, 3):
            for name, text in numbers:
                place = folder / f"runs/{run}" / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)

    return spoil


def deep(folder: Path) -> None:
    (folder / "/".join(["d"] * 20)).mkdir(parents=True)


def another_rank(folder: Path) -> None:
    shutil.copy(folder / METER, folder / "runs/2/node-1/meter-rank-9.jsonl")


def other_script(argv: list[str]) -> list[str]:
    return ["python", "fast.py", *argv[2:]]


SAMPLES = "runs/{}/node-{}/metrics.jsonl"
POINTS = [{"batch_size": 128, "epochs": [9.0, 9.1, 9.2, 9.1, 9.0, 9.2, 9.1, 9.0, 9.1, 9.2]}]

MORE_LIES: list[tuple[str, Spoil, str]] = [
    # what was promised
    ("a sandbox that the plan does not have", every(lambda i: plan(i, lambda p: p.update(isolated=False))), "submission-differs"),
    ("a plain run planned in a sandbox", every(lambda i: event(i, "submit", update(isolation="plain"))), "submission-differs"),
    ("a job of another launcher", every(lambda i: job(i, lambda j: j.update(launcher="horovod"))), "job-differs"),
    ("a job of another contract", every(lambda i: job(i, lambda j: j.update(contract="apulis"))), "job-differs"),
    ("a job of another script", every(lambda i: job(i, lambda j: j.update(entry="other.py"))), "job-differs"),
    ("a job with a command that was not started", every(lambda i: job(i, lambda j: (j.pop("entry"), j.update(command="true")))), "job-differs"),
    ("ranks started another script", every(starts(other_script)), "job-differs"),
    ("one rank started another script", starts(other_script, 1)(1), "job-differs"),
    ("one rank was given no parameters", starts(lambda argv: argv[:2], 1)(1), "job-differs"),
    ("all ranks were on the first node", hosts("worker-0"), "host-differs"),
    ("all ranks were on another machine", hosts("big-machine"), "host-differs"),
    ("two ranks were started as one process", event(1, "node-0-1", lambda r: [x.update(pid=14) for x in r if x["kind"] == "started"]), "pid-twice"),
    ("a run on another engine", several(event(2, "submit", update(engine="slurm")), event(2, "end", update(engine="slurm"))), "jobs-differ"),
    ("a rank with a larger data set", change(METER, lambda r: set_event(r, "dataset", train_samples=10**6)), "dataset-differs"),
    # what happened
    ("ranks exited after the attempt had finished", event(1, "coordinator-1", lambda r: r[1].update(time=r[1]["time"] - 9)), "event-order"),
    # machines
    ("one node's samples are another's", samples_of(SAMPLES.format(1, 0), SAMPLES.format(1, 1)), "samples-copied"),
    ("one run's samples are another's", samples_of(SAMPLES.format(1, 0), SAMPLES.format(2, 0)), "samples-reused"),
    ("one run's samples with other memory", several(samples_of(SAMPLES.format(1, 0), SAMPLES.format(3, 0)),
        metrics(3, lambda r: [x.update(memory_bytes=x["memory_bytes"] + k) for k, x in enumerate(r)])), "samples-reused"),
    ("power of another hour", power_of_another_hour, "samples-outside-run"),
    ("processes that used ten thousand processors", metrics(1, lambda r: [x.update(node_cpu_percent=1e6 + k) for k, x in enumerate(r)]), "sample-range"),
    ("a counter of the disk that falls", metrics(1, disk_falls), "counter-backwards"),
    # files and numbers
    ("a meter without its header", change(METER, lambda r: r.pop(0) and None), "meter-header"),
    ("a record without its times", change(METER, lambda r: next(x for x in r if x["event"] == "steps").update(at="soon")), "meter-record"),
    ("a plan that is none", lambda f: (f / "runs/1/plan.json").write_text("[]") and None, "plan-unreadable"),
    ("a plan of other ranks", plan(1, lambda p: p.update(size=8)), "shape-differs"),
    ("a system that is none", lambda f: (f / "system.json").write_text("[") and None, "system-unreadable"),
    ("a rank too many", another_rank, "rank-unexpected"),
    ("two numbers of one rank", unmetered(("outputs/throughput_0.json", "1.0"), ("outputs/x/throughput_0.json", "2.0")), "rank-twice"),
    ("no number at all", unmetered(), "nothing-measured"),
    ("no quality recorded", unrecorded, "quality-missing"),
    ("two runs that missed the target", missed(1, 2), "runs-not-converged"),
    ("warm-up longer than the run", rules(warmup_steps=1000), "too-few-steps"),
    ("a long preparation off the clock", rules(max_prepare_seconds=0.5), "prepare-too-long"),
    ("converged faster than the reference can", rules(reference_points=POINTS), "converges-too-fast"),
    ("a reference, and no batch size to look for", several(rules(reference_points=POINTS),
        every(lambda i: all_ranks(i, without("setting")))), "convergence-unknown"),
    ("a pipe in place of a file", lambda f: os.mkfifo(f / "runs/1/pipe"), "file-kind"),
    ("folders without end", deep, "folder-limits"),
]  # fmt: skip

# Not a lie about the evidence, and therefore not sealed again.
UNSEALED = [
    ("a manifest of another format", change_json("manifest.json", lambda m: m.update(format="x")), "manifest-format")
]  # fmt: skip

MORE_LONG_LIES: list[tuple[str, Spoil, str]] = [
    ("devices with nothing in their memory", metrics(1, lambda r: [d.update(memory_bytes=0) for x in r for d in x["devices"]]), "device-idle"),
]  # fmt: skip

# Findings that need a Tester, an organiser or a limit, or are of a run that may count all the same: where their tests are.
ELSEWHERE = {
    "check-failed": "tests/bench/test_hostile.py",
    "target-not-reached": "tests/bench/test_measure.py",
    "rules-differ": "tests/bench/test_check.py",
    "not-attested": "tests/tester/test_tester_witness.py",
    "nonce-unknown": "tests/tester/test_tester_witness.py",
    "nonce-reused": "tests/tester/test_tester_witness.py",
    "heads-missing": "tests/tester/test_tester_witness.py",
    "head-differs": "tests/tester/test_tester_witness.py",
    "head-gap": "tests/tester/test_tester_witness.py",
    "head-time": "tests/tester/test_tester_witness.py",
}
