"""How runs end: each kind of misbehaviour ends the run as it should, in time, and says why."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from support import Shed, processes_of, until

pytestmark = [pytest.mark.foundation, pytest.mark.real]


def finish(shed: Shed, *args: object) -> tuple[dict[str, object], str]:
    """Run a job in the foreground; its summary and everything it printed."""
    done = shed.cli("run", *args, "--json")
    assert done.stdout, done.stderr
    summary = json.loads(done.stdout)
    assert done.returncode == summary["exit_code"]
    assert not until_gone(summary["id"])
    return summary, done.stderr


def until_gone(run: str) -> dict[int, str]:
    deadline = time.monotonic() + 5
    while (left := processes_of(run)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def test_a_rank_that_exits_1_fails_the_run_with_its_own_words(shed: Shed) -> None:
    code = "import os, sys, time\nif os.environ['TRAINSHED_RANK'] == '2': sys.exit('the disk is made of cheese')\ntime.sleep(60)\nprint('slept')"
    job = shed.job(files={"t.py": code}, entry="t.py", resources="2x2")
    summary, _ = finish(shed, job)
    assert summary["state"] == "failed" and summary["exit_code"] == 1
    failure = summary["failure"]
    assert failure["process"] == "rank-2" and failure["node"] == 1
    assert failure["last_lines"] == ["the disk is made of cheese"]
    assert all(shed.log(summary["id"], rank) == "" for rank in (0, 1, 3)), "the others are not waited for"


def test_the_foreground_report_leads_with_the_first_failure(shed: Shed) -> None:
    job = shed.job(files={"t.py": "raise RuntimeError('cheese')"}, entry="t.py", resources="1x1")
    done = shed.cli("run", job)
    assert done.returncode == 1
    assert "failed: rank 0 on node 0 (worker-0) exited with 1" in done.stderr
    assert "RuntimeError: cheese" in done.stderr and "rank-0.log" in done.stderr


def test_exit_codes_are_mirrored(shed: Shed) -> None:
    job = shed.job(command="exit 42", resources="1x1")
    assert shed.cli("run", job).returncode == 42


def test_a_rank_that_hangs_is_ended_by_the_timeout_which_names_the_node(shed: Shed) -> None:
    code = "import os, time\nif os.environ['TRAINSHED_RANK'] == '1': time.sleep(600)"
    job = shed.job(files={"t.py": code}, entry="t.py", resources="2x1", timeout="3s")
    summary, _ = finish(shed, job)
    assert summary["state"] == "failed" and summary["exit_code"] == 124
    assert "timeout of 3 s" in summary["reason"] and "node 1 (worker-1)" in summary["reason"]


def test_a_node_over_its_memory_is_ended_and_says_so(shed: Shed) -> None:
    code = "import time\nkeep = bytearray(400 << 20)\ntime.sleep(60)"
    job = shed.job(
        files={"t.py": code}, entry="t.py", resources={"nodes": 1, "devices": 1, "memory": "200MiB"}
    )
    summary, _ = finish(shed, job)
    assert summary["state"] == "failed" and summary["failure"]["cause"] == "memory"
    assert "of the 200 MiB that resources.memory allows" in summary["reason"]


def test_a_rank_that_raises_memory_error_shows_it(shed: Shed) -> None:
    code = (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\nbytearray(1 << 30)"
    )
    job = shed.job(files={"t.py": code}, entry="t.py")
    summary, _ = finish(shed, job)
    assert summary["failure"]["last_lines"][-1] == "MemoryError"


def test_a_flood_of_a_million_lines_is_kept_whole(shed: Shed) -> None:
    code = "import sys\nfor i in range(1_000_000): sys.stdout.write(f'line {i}\\n')"
    job = shed.job(files={"t.py": code}, entry="t.py", env={"PYTHONUNBUFFERED": ""})
    summary, _ = finish(shed, job)
    assert summary["state"] == "succeeded"
    lines = shed.log(summary["id"], 0).splitlines()
    assert len(lines) == 1_000_000 and lines[-1] == "line 999999"
    shown = shed.cli("logs", summary["id"])
    assert shown.stdout.count("\n") == 1_000_000


def test_grandchildren_die_with_the_run_even_when_they_left_their_group(shed: Shed) -> None:
    code = "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '300'])\nsubprocess.Popen(['nohup', 'sleep', '300'])"
    job = shed.job(files={"t.py": code}, entry="t.py", resources="1x2")
    summary, _ = finish(shed, job)
    assert summary["state"] == "succeeded"


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(shed: Shed) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
    job = shed.job(files={"t.py": code}, entry="t.py", grace="1s")
    run = shed.submit(job)
    until(lambda: shed.path(run).glob("node-0/rank-0.log") and "up" in _text(shed, run), what="the rank")
    began = time.monotonic()
    done = shed.cli("stop", run, "--json")
    assert json.loads(done.stdout)[0]["state"] == "stopped"
    assert time.monotonic() - began > 0.9, "the grace is kept"
    (process,) = shed.show(run)["processes"]
    assert process["returncode"] == -signal.SIGKILL
    assert not until_gone(run)


def test_a_rank_may_save_its_work_within_the_grace(shed: Shed) -> None:
    code = (
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    open(os.environ['TRAINSHED_OUTPUT_DIR'] + '/saved', 'w').write('yes'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('up', flush=True)\ntime.sleep(600)"
    )
    job = shed.job(files={"t.py": code}, entry="t.py", outputs=[{"name": "out"}])
    run = shed.submit(job)
    until(lambda: "up" in _text(shed, run), what="the rank")
    shed.cli("stop", run)
    assert (shed.path(run) / "outputs" / "node-0" / "out" / "saved").read_text() == "yes"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_the_foreground_stops_everything(shed: Shed, number: int) -> None:
    job = shed.job(
        files={"t.py": "import time\nprint('up', flush=True)\ntime.sleep(600)"}, entry="t.py", resources="2x2"
    )
    process = shed.start("run", job)
    run = until(
        lambda: next(iter(os.listdir(shed.home / "runs")), None) if (shed.home / "runs").is_dir() else None
    )
    until(lambda: all("up" in _text(shed, run, r) for r in range(4)), what="all ranks")
    process.send_signal(number)
    assert process.wait(20) == 130
    assert shed.show(run)["state"] == "stopped"
    assert not until_gone(run)


def test_a_killed_foreground_command_ends_its_run(shed: Shed) -> None:
    job = shed.job(files={"t.py": "import time\ntime.sleep(600)"}, entry="t.py", resources="2x1")
    process = shed.start("run", job)
    run = until(
        lambda: next(iter(os.listdir(shed.home / "runs")), None) if (shed.home / "runs").is_dir() else None
    )
    until(lambda: shed.show(run)["state"] == "running", what="running")
    process.kill()
    process.wait()
    until(lambda: shed.show(run)["state"] == "stopped", 10, "stopped")
    assert not until_gone(run)


def test_a_failed_attempt_is_tried_again_and_its_logs_are_kept(shed: Shed) -> None:
    job = shed.job(
        files={
            "t.sh": 'f="$HOME/tried"\nif [ ! -e "$f" ]; then touch "$f"; echo first; exit 3; fi\necho second'
        },
        entry="t.sh",
        retries=2,
    )
    summary, _ = finish(shed, job)
    assert summary["state"] == "succeeded" and summary["attempt"] == 2
    assert shed.log(summary["id"], 0) == "second\n"
    assert (shed.path(summary["id"]) / "node-0" / "rank-0.attempt-1.log").read_text() == "first\n"


def test_secrets_reach_the_ranks_and_nothing_else(shed: Shed) -> None:
    value = "correct-horse-battery"
    code = "import os\nprint('token is', os.environ['MY_TOKEN'])\nassert len(os.environ['MY_TOKEN']) == 21"
    job = shed.job(
        files={"t.py": code}, entry="t.py", resources="2x1", secrets={"MY_TOKEN": {"env": "OUTER"}}
    )
    done = shed.cli("run", job, env={"OUTER": value})
    assert done.returncode == 0, done.stderr
    assert "token is ***" in done.stdout
    for path in shed.home.rglob("*"):
        if path.is_file():
            assert value.encode() not in path.read_bytes(), path


def _text(shed: Shed, run: str, rank: int = 0) -> str:
    paths = list(shed.path(run).glob(f"node-*/rank-{rank}.log"))
    return paths[0].read_text() if paths else ""
