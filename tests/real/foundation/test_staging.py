"""Code, inputs and outputs by URL, on the embedded object store: fetched once, saved whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import Shed, until

pytestmark = [pytest.mark.store, pytest.mark.real]


@pytest.fixture
def stored(shed: Shed) -> Iterator[Shed]:
    """A Trainshed with its object store up and a bucket in it."""
    done = shed.cli("store", "up")
    assert done.returncode == 0, done.stderr
    yield shed
    shed.cli("store", "down")


def put(shed: Shed, folder: Path, url: str, *more: str) -> None:
    done = shed.cli("cp", folder, url, *more)
    assert done.returncode == 0, done.stderr


TRAIN = """
import os, sys
data = sorted(os.listdir(sys.argv[1].split("=", 1)[1]))
print("data", *data)
out = os.environ["TRAINSHED_OUTPUT_DIR"]
open(f"{out}/from-{os.environ['TRAINSHED_RANK']}", "w").write("x" * 1000)
if "LEAVE_WITH" in os.environ: sys.exit(int(os.environ["LEAVE_WITH"]))
"""


def prepare(shed: Shed, tmp_path: Path, **fields: object) -> Path:
    code, data = tmp_path / "code", tmp_path / "data"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    (data / "deep").mkdir(parents=True)
    for index in range(20):
        (data / f"part-{index}").write_bytes(os.urandom(10_000))
    put(shed, code, "s3://job/code/")
    put(shed, data, "s3://job/data/")
    folder = tmp_path / "job"
    folder.mkdir()
    spec = {
        "name": "staged",
        "code": "s3://job/code/",
        "entry": "train.py",
        "resources": "2x2",
        "inputs": [{"name": "data", "source": "s3://job/data/"}],
        "outputs": [{"name": "out", "target": "obs://job/out/", "every": 1}],
    } | fields
    (folder / "job.yaml").write_text(json.dumps(spec))
    return folder / "job.yaml"


def names(shed: Shed, url: str) -> list[str]:
    done = shed.cli("ls", url, "--json")
    return sorted(entry["name"] for entry in json.loads(done.stdout)) if done.returncode == 0 else []


def test_a_job_takes_code_and_data_from_the_store_and_leaves_its_outputs_there(
    stored: Shed, tmp_path: Path
) -> None:
    job = prepare(stored, tmp_path)
    done = stored.cli("run", job)
    assert done.returncode == 0, done.stderr
    assert all(f"[rank-{rank}]  data deep part-0" in done.stdout for rank in range(4))
    assert {f"from-{rank}" for rank in range(4)} <= set(names(stored, "obs://job/out/"))
    run = stored.show("last")["id"]
    cached = list((stored.home / "cache" / "inputs").glob("*/manifest.json"))
    assert len(cached) == 1, "one slot, however many nodes"
    fetched = (cached[0].parent / "tree" / "part-1").stat().st_ino

    stored.cli("rm", run)
    again = stored.cli("run", job)
    assert again.returncode == 0, again.stderr
    slot = cached[0].parent
    assert list((stored.home / "cache" / "inputs").glob("*/manifest.json")) == cached
    assert (slot / "tree" / "part-1").stat().st_ino == fetched, "not fetched again"
    (slot / "tree" / "part-0").write_text("spoilt")
    assert stored.cli("run", job).returncode == 0
    assert (slot / "tree" / "part-0").stat().st_size == 10_000, "a changed slot is fetched again"


def test_outputs_reach_the_store_while_the_job_runs_and_after_it_failed(stored: Shed, tmp_path: Path) -> None:
    job = prepare(stored, tmp_path, env={"LEAVE_WITH": "3"})
    assert stored.cli("run", job).returncode == 3
    failed = stored.show("last")["failure"]["process"].removeprefix("rank-")
    assert f"from-{failed}" in names(stored, "obs://job/out/")
    text = (tmp_path / "code" / "train.py").read_text() + "\nimport time; time.sleep(600)"
    (tmp_path / "code" / "train.py").write_text(text.replace("from-", "early-"))
    put(stored, tmp_path / "code", "s3://job/code/")
    slow = tmp_path / "job" / "slow.yaml"
    slow.write_text(json.dumps(json.loads(job.read_text()) | {"env": {}}))
    run = stored.submit(slow)
    until(lambda: "early-0" in names(stored, "obs://job/out/"), 40, "an upload during the run")
    stored.cli("stop", run)


def test_a_lost_store_is_reported_with_where_the_outputs_lie(stored: Shed, tmp_path: Path) -> None:
    job = prepare(stored, tmp_path, resources="1x1")
    text = (tmp_path / "code" / "train.py").read_text()
    go = tmp_path / "go"
    text += f"\nimport time\nprint('written', flush=True)\nwhile not os.path.exists({str(go)!r} + '/now'): time.sleep(0.1)\n"
    go.mkdir()
    (tmp_path / "code" / "train.py").write_text(text)
    put(stored, tmp_path / "code", "s3://job/code/")
    spec = json.loads(job.read_text())
    spec["inputs"].append({"name": "go", "source": str(go)})
    spec["outputs"][0]["every"] = 0
    job.write_text(json.dumps(spec))
    run = stored.submit(job)
    until(lambda: "written" in "".join(p.read_text() for p in stored.path(run).glob("node-0/rank-0.log")), 40)
    assert stored.cli("store", "down").returncode == 0
    (go / "now").touch()
    done = stored.cli("wait", run, "--json", timeout=240)
    summary = json.loads(done.stdout)
    assert summary["state"] == "failed" and "cannot save output out to obs://job/out/" in summary["reason"]
    rest = stored.home / "scratch" / run / "node-0" / "job" / "outputs" / "out" / "from-0"
    assert rest.stat().st_size == 1000, "nothing that was written disappears"
    events = "".join(path.read_text() for path in (stored.path(run) / "events").glob("driver-*.jsonl"))
    assert f"outputs that could not be saved are in {stored.home / 'scratch' / run}" in events


def test_a_full_disk_is_one_clear_error(stored: Shed, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    job = prepare(stored, tmp_path, resources="1x1")
    (tmp_path / "data" / "large").write_bytes(os.urandom(20 << 20))
    put(stored, tmp_path / "data", "s3://job/data/")
    small = stored.home / "scratch"
    small.mkdir(exist_ok=True)
    cache = stored.home / "cache"
    cache.mkdir(exist_ok=True)
    for folder in (small, cache):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    try:
        done = stored.cli("run", job, timeout=240)
    finally:
        for folder in (small, cache):
            subprocess.run(["umount", "-l", str(folder)], check=True)
    assert done.returncode == 1
    assert "cannot fetch data from s3://job/data/" in done.stderr and "space" in done.stderr.lower()
