"""Attending a run: what it is busy with, when it is stopped, who hangs, and how it ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import Shed, until

pytestmark = [pytest.mark.real, pytest.mark.field]
RANK = "import os, sys, time\nrank = int(os.environ['TRAINSHED_RANK'])\n"


def test_a_hanging_rank_is_named_with_its_last_output(shed: Shed) -> None:
    program = RANK + "print('begun', flush=True)\nwhile rank == 1: time.sleep(1)\n"
    job = shed.job("hang", {"t.py": program}, entry="t.py", resources="1x2", timeout="10s", grace="1s")
    done = shed.cli("run", job)
    assert done.returncode == 124
    assert "longest without output: rank 1 on node 0, for" in done.stderr
    assert "still running on node 0" in done.stderr
    shown = shed.cli("show", "last").stdout
    assert "LAST WROTE" in shown and "rank 1" in shown


def test_show_says_when_a_rank_that_runs_last_wrote_and_where_outputs_lie(shed: Shed) -> None:
    program = (
        RANK
        + "print('begun', flush=True)\nwhile not os.path.exists('/job/outputs/out/go'): time.sleep(0.1)\n"
    )
    job = shed.job("live", {"t.py": program}, entry="t.py", outputs=[{"name": "out"}])
    run = shed.submit(job)
    try:
        until(lambda: "ago" in shed.cli("show", run).stdout, 60, "a rank that has written")
        (process,) = shed.show(run)["processes"]
        assert abs(time.time() - process["last_wrote"]) < 600 and process["ended"] == ""
    finally:
        shed.cli("stop", run)
    (output,) = shed.show(run)["outputs"]
    assert output == {"name": "out", "location": str(shed.path(run) / "outputs/node-0/out")}
    assert f"output out: {output['location']}" in shed.cli("show", run).stdout


def test_outputs_lie_in_the_same_place_for_any_number_of_nodes(shed: Shed) -> None:
    job = shed.job("o", command="echo made > /job/outputs/out/file", outputs=[{"name": "out"}])
    for nodes in (1, 2):
        done = shed.cli("run", job, "-j", f"{nodes}x1")
        assert done.returncode == 0, done.stderr
        outputs = shed.show("last")["outputs"]
        assert [Path(o["location"]).parent.name for o in outputs] == [f"node-{i}" for i in range(nodes)]
        assert all((Path(o["location"]) / "file").read_text() == "made\n" for o in outputs)


def test_what_is_fetched_and_saved_is_told_while_it_takes_its_time(shed: Shed) -> None:
    """The pre-start script holds the node up for as long as it takes until it was told."""
    script = "until [ -e /job/code/told ]; do sleep 0.1; done\n"
    job = shed.job("slow", {"first.sh": script}, command="echo begun", pre_start="first.sh")
    process = shed.start("run", job)
    assert process.stderr and process.stdout
    try:
        lines = iter(process.stderr.readline, "")
        words = next(line for line in lines if line.startswith("node 0: "))
        assert words.startswith("node 0: runs the pre-start script, for ")
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert "begun" not in out and "stopped" in err


def test_ctrl_c_is_answered_at_once(shed: Shed) -> None:
    program = RANK + (
        "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\n"
        "print('begun', flush=True)\n"
        "while not os.path.exists('/job/code/go'): time.sleep(0.1)\n"
    )
    job = shed.job("deaf", {"t.py": program}, entry="t.py", grace="3s")
    process = shed.start("run", job)
    assert process.stderr and process.stdout
    until(lambda: "begun" in (process.stdout.readline() if process.stdout else ""), 60)
    process.send_signal(signal.SIGINT)
    said = next(line for line in iter(process.stderr.readline, "") if "stopping" in line)
    assert "ranks get SIGTERM and 3 s to end, then outputs are saved" in said
    process.communicate(timeout=120)
    assert process.returncode == 130


def test_a_traceback_is_not_shown_twice_on_one_screen(shed: Shed) -> None:
    job = shed.job("bad", {"t.py": "raise ValueError('too small')"}, entry="t.py")
    command = [sys.executable, "-m", "trainshed.cli.main", "run", str(job)]
    done = subprocess.run(
        command, env=shed.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout.count("Traceback") == 1 and done.stdout.count("ValueError: too small") == 2
    apart = shed.cli("run", job)
    assert "Traceback" in apart.stdout and "Traceback" in apart.stderr, "who reads one does not see the other"


def test_logs_have_an_end_times_and_an_order(shed: Shed) -> None:
    program = "for step in range(3): print('step', step, flush=True)"
    job = shed.job("log", {"t.py": program}, entry="t.py", resources="1x2")
    done = shed.cli("run", job)
    assert done.returncode == 0, done.stderr
    assert shed.cli("logs", "last", "--rank", "1", "--tail", "1").stdout == "step 2\n"
    lines = shed.cli("logs", "last", "--timestamps").stdout.splitlines()
    assert len(lines) == 6
    stamps = [time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S")) for line in lines]
    assert stamps == sorted(stamps) and time.time() - 600 < stamps[0] <= time.time()
    assert next(shed.home.glob("runs/*/node-0/rank-0.times")).stat().st_size > 0
