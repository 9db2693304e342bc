"""Two virtual nodes behave like two machines; real frameworks talk across them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import ENVIRONMENTS, ROOT, Shed, until

pytestmark = [pytest.mark.foundation, pytest.mark.real]

PROBE = """
import json, os, socket, sys, time
me = os.environ["TRAINSHED_NODE"]
for folder in ("/tmp", "/cache", os.environ["HOME"], "/dev/shm"):
    with open(f"{folder}/from-{me}", "w") as stream:
        stream.write(me)
time.sleep(1)
print(json.dumps({
    "host": socket.gethostname(),
    "own": socket.gethostbyname(socket.gethostname()),
    "peers": [socket.gethostbyname(f"worker-{i}") for i in range(2)],
    "files": {f: sorted(n for n in os.listdir(f) if n.startswith("from-")) for f in ("/tmp", "/cache", os.environ["HOME"], "/dev/shm")},
    "processes": sum(n.isdigit() for n in os.listdir("/proc")),
    "port": os.environ["MASTER_PORT"],
}))
"""


def test_each_node_has_its_own_files_names_addresses_and_processes(shed: Shed) -> None:
    job = shed.job(files={"t.py": PROBE}, entry="t.py", launcher="pytorch", resources="2x1")
    done = shed.cli("run", job)
    assert done.returncode == 0, done.stderr
    run = shed.show("last")["id"]
    seen = [json.loads(shed.log(run, rank)) for rank in range(2)]
    for index, node in enumerate(seen):
        assert node["host"] == f"worker-{index}"
        assert node["own"] == node["peers"][index]
        assert all(names == [f"from-{index}"] for names in node["files"].values()), node["files"]
        assert node["processes"] < 10, "it sees only its own"
    assert seen[0]["own"] != seen[1]["own"] and seen[0]["own"].startswith("127.")


def test_a_run_leaves_no_trace_in_the_machines_own_folders(shed: Shed) -> None:
    watched = [Path("/"), Path("/home"), Path("/tmp")]
    before = {path: set(os.listdir(path)) for path in watched}
    job = shed.job(
        files={"t.py": "import os; open('/tmp/x', 'w'); open('/cache/x', 'w')"}, entry="t.py", resources="2x1"
    )
    assert shed.cli("run", job).returncode == 0
    new = {str(path / name) for path in watched for name in set(os.listdir(path)) - before[path]}
    assert not new & {"/cache", "/job", "/home/trainshed", "/tmp/x"}


def test_plain_nodes_say_what_they_cannot_isolate_and_still_run(shed: Shed) -> None:
    code = (
        "import os\nopen(os.environ['TMPDIR'] + '/x', 'w')\nprint(os.environ['TMPDIR'], os.environ['HOME'])"
    )
    job = shed.job(files={"t.py": code}, entry="t.py", resources="2x1")
    done = shed.cli("run", job, "-o", "isolation=plain")
    assert done.returncode == 0, done.stderr
    assert "no isolation" in done.stderr and "nodes share /tmp" in done.stderr
    run = shed.show("last")["id"]
    first, second = (shed.log(run, rank).split() for rank in range(2))
    assert first[0] != second[0] and first[1] != second[1]
    assert not (shed.home / "scratch" / run).exists(), "what was private is gone with the run"


def test_what_a_sandbox_lacks_is_said_by_doctor(shed: Shed) -> None:
    env = {"PATH": str(Path(sys.executable).parent)}
    done = shed.cli("doctor", "--json", env=env)
    isolation = next(c for c in json.loads(done.stdout) if c["name"] == "isolation")
    assert not isolation["good"] and "apt-get install bubblewrap" in isolation["found"]
    assert "nodes share /tmp" in isolation["remedy"]


def test_metrics_are_taken_every_second_and_phases_are_timed(shed: Shed) -> None:
    job = shed.job(files={"t.py": "import time\nx = bytearray(50 << 20)\ntime.sleep(4.5)"}, entry="t.py")
    assert shed.cli("run", job).returncode == 0
    shown = shed.show("last")
    samples = [json.loads(line) for line in (Path(shown["path"]) / "node-0" / "metrics.jsonl").open()]
    assert len(samples) >= 3
    assert max(s["node_memory_bytes"] for s in samples) > 50 << 20
    assert all(s["t"] and s["cpu_percent"] >= 0 and s["net_sent_bytes"] >= 0 for s in samples)
    assert shown["phases"]["0"]["run"] > 3
    assert {"prepare", "fetch code", "barrier", "run", "upload"} <= shown["phases"]["0"].keys()


def test_outputs_are_saved_also_when_the_job_fails(shed: Shed) -> None:
    code = "import os, sys\nopen(os.environ['TRAINSHED_OUTPUT_DIR'] + '/kept', 'w').write('x')\nsys.exit(1)"
    target = shed.home.parent / "target"
    job = shed.job(files={"t.py": code}, entry="t.py", outputs=[{"name": "out", "target": str(target)}])
    assert shed.cli("run", job).returncode == 1
    assert (target / "kept").read_text() == "x"


def test_a_pre_start_hook_is_sourced_and_its_failure_is_the_runs(shed: Shed) -> None:
    files = {
        "hook.sh": "export FROM_HOOK='a b'\necho hooked",
        "t.py": "import os\nprint(os.environ['FROM_HOOK'])",
    }
    job = shed.job(files=files, entry="t.py", pre_start="hook.sh", resources="2x1")
    assert shed.cli("run", job).returncode == 0
    assert shed.log(shed.show("last")["id"], 1) == "a b\n"
    job = shed.job(
        files=files | {"hook.sh": "echo no cheese today\nfalse"}, entry="t.py", pre_start="hook.sh"
    )
    done = shed.cli("run", job)
    assert (
        done.returncode == 1 and "hook.sh exited with 1" in done.stderr and "no cheese today" in done.stderr
    )


def test_a_run_in_the_background_is_listed_followed_waited_for_and_removed(shed: Shed) -> None:
    go = shed.home.parent / "go"
    go.mkdir()
    code = f"import os, time\nprint('up', flush=True)\nwhile not os.path.exists({str(go / 'on')!r}): time.sleep(0.05)\nprint('on')"
    job = shed.job(files={"t.py": code}, entry="t.py", inputs=[{"name": "go", "source": str(go)}])
    run = shed.submit(job)
    until(lambda: shed.show(run)["state"] == "running", what="running")
    assert [r["id"] for r in json.loads(shed.cli("ps", "--json").stdout)] == [run]
    assert shed.cli("wait", run, "--timeout", "0.1").returncode == 75
    assert shed.cli("rm", run).returncode == 64, "it still runs"
    follower = shed.start("logs", "-f", run, "--rank", "0")
    assert follower.stdout and follower.stdout.readline() == "up\n"
    (go / "on").touch()
    assert shed.cli("wait", run).returncode == 0
    out, _ = follower.communicate(timeout=20)
    assert out == "on\n"
    assert json.loads(shed.cli("ps", "--json").stdout) == []
    assert shed.cli("rm", run).returncode == 0
    assert shed.cli("show", run).returncode == 64


def test_several_job_files_start_together_or_not_at_all(shed: Shed) -> None:
    good = [shed.job(n, {"t.py": f"print('{n}')"}, entry="t.py", resources="1x1") for n in ("one", "two")]
    wrong = shed.job("three", command="true", resourcs="1x1")
    refused = shed.cli("submit", *good, wrong)
    assert refused.returncode == 64 and "did you mean resources?" in refused.stderr
    assert not refused.stdout and not (shed.home / "runs").exists()
    told = [json.loads(line) for line in shed.cli("submit", *good, "--json").stdout.splitlines()]
    assert [shed.cli("wait", run["id"]).returncode for run in told] == [0, 0]
    assert [shed.log(run["id"], 0) for run in told] == ["one\n", "two\n"]


@pytest.mark.parametrize("shape", ["1x1", "1x2", "2x2"])
@pytest.mark.parametrize("framework", ["pytorch", "mindspore"])
def test_the_same_job_trains_in_every_shape_and_the_ranks_really_talk(
    shed: Shed, framework: str, shape: str
) -> None:
    assert (ENVIRONMENTS / framework).is_dir(), f"trainshed env create {framework}"
    subprocess.run([sys.executable, ROOT / "examples" / "data" / "make_digits.py"], check=True)
    epochs = 1 if shape == "1x1" else 3  # as many steps as on more ranks, more or less
    example = ROOT / "examples" / f"{framework}-digits"
    done = shed.cli("run", example, "-j", shape, "-p", f"epochs={epochs}", "-p", "target=0.9", timeout=280)
    assert done.returncode == 0, done.stderr
    nodes, devices = map(int, shape.split("x"))
    size = nodes * devices
    total = size * (size - 1) // 2
    for rank in range(size):
        assert f"rank {rank} of {size}: sum of ranks {total}, expected {total}" in done.stdout
    (result,) = (shed.home / "runs").glob("*/outputs/**/result.json")
    found = json.loads(result.read_text())
    assert found["accuracy"] >= found["target"] and found["ranks"] == size and found["throughput"] > 0


def test_a_job_with_an_image_runs_in_it(shed: Shed, image: str) -> None:
    files = {
        "t.sh": "hostname; cat /etc/hosts; ls /usr 2>&1; echo $MARK; echo made > $TRAINSHED_OUTPUT_DIR/file"
    }
    job = shed.job(
        files=files,
        entry="t.sh",
        image=image,
        resources="2x1",
        env={"MARK": "marked"},
        outputs=[{"name": "out"}],
    )
    done = shed.cli("run", job)
    assert done.returncode == 0, done.stderr + done.stdout
    run = shed.show("last")["id"]
    text = shed.log(run, 1)
    assert text.startswith("worker-1\n") and "worker-0" in text and "marked" in text
    assert (shed.path(run) / "outputs" / "node-1" / "out" / "file").read_text() == "made\n"


def test_nothing_of_an_image_job_is_left_when_it_is_stopped(shed: Shed, image: str) -> None:
    job = shed.job(command="echo up; sleep 300", image=image, grace="1s")
    run = shed.submit(job)
    until(
        lambda: "up" in "".join(p.read_text() for p in shed.path(run).glob("node-0/node-0.log")),
        40,
        "the container",
    )
    assert shed.cli("stop", run).returncode == 0
    assert shed.show(run)["state"] == "stopped"
    left = subprocess.run(
        ["podman", "ps", "-aq", "--filter", f"label=trainshed={run}/0"], capture_output=True, text=True
    )
    assert left.stdout.split() == []
