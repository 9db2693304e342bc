"""A package with the layout of the public ais-bench repository, put together by a build script, runs as it is."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packages import Unpacked

from support import processes_of, until
from trainshed.aisbench.package import build_stubs
from trainshed.bench.judge.check import check
from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
from trainshed.store import list_tree
from trainshed.store.seaweed import embedded

pytestmark = [pytest.mark.benchmark, pytest.mark.field, pytest.mark.real]

PUBLIC = Path(__file__).parent / "public"


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Path]:
    """The bucket that the configuration as published names, with a little data."""
    home = tmp_path / "home"
    client = S3Client(embedded.ensure_running(home).credentials)
    client.create_bucket("aisbench")
    client.put("aisbench", "dataset/imagenet_small/train/a.txt", b"1\n")
    client.close()
    yield home
    embedded.stop(home)


def published(tmp_path: Path, home: Path, *, python: str = sys.executable, **environ: str) -> Unpacked:
    """Stubs of Trainshed, the rest as published but for PYTHON_COMMAND."""
    stubs = build_stubs("x86_64", tmp_path)
    done = subprocess.run(
        [PUBLIC / "build.sh", stubs, tmp_path / "output", "r1.9", "modelarts"],
        env={"PATH": "/usr/bin:/bin", **environ}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    archive = Path(done.stdout.strip())
    assert (
        archive.name
        == "train_huawei_train_mindspore_resnet-Ais-Benchmark-Stubs-x86_64-1.0-r1.9_modelarts.tar.gz"
    )
    with tarfile.open(archive) as stream:
        stream.extractall(tmp_path, filter="data")
    package = Unpacked(tmp_path / archive.name.removesuffix(".tar.gz"), home)
    if python:
        package.edit("config.sh", PYTHON_COMMAND=python)
    return package


def sums(package: Unpacked) -> dict[str, str]:
    files = (p for p in (package.root / "code").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files if p.name != "ma-pre-start.sh"}


def result(package: Unpacked, name: str) -> dict[str, str]:
    (folder,) = (package.root / "result").glob(name)
    assert check(folder).findings == []
    block = re.search(
        r"train_result_info: (\{.*?\n\})\n", (package.root / "log" / "stub.log").read_text(), re.S
    )
    assert block
    return json.loads(block[1])


OWN_PYTHON = {"TRAINSHED_EMULATE": "1", "TRAINSHED_ENVIRONMENT": sys.prefix, "TRAINSHED_POLL": "0.2"}


def test_v1_in_single_server_mode_with_two_servers_of_eight_cards(tmp_path: Path, bucket: Path) -> None:
    package = published(tmp_path, bucket, OLD_STUBS="1")
    package.edit("config.sh", SINGLESERVER_MODE="True")
    package.edit("modelarts_config.py", train_instance_count="2")
    before = sums(package)
    done = package.stubs("test", **OWN_PYTHON)
    assert done.returncode == 0, done.stdout
    assert sums(package) == before, "a file of the package was replaced"

    rates = json.loads(re.search(r"throughput_list:(\[.*?\]) average", done.stdout)[1])  # type: ignore[index]
    assert len(rates) == 2 and min(rates) > 0
    info = result(package, "aisbench-debug-V1")
    assert float(info["accuracy"]) == pytest.approx(0.765)
    assert float(info["throughput_ratio"]) == pytest.approx(sum(rates) / 2, rel=1e-4)
    logs = sorted(p.name for p in (package.root / "log").glob("job*-job-aisbench-debug-*.log"))
    assert len(logs) == 2 and "on server 1" in (package.root / "log" / logs[1]).read_text()
    keys = {
        e.name for e in list_tree("obs://aisbench/", credentials=embedded.ensure_running(bucket).credentials)
    }
    assert {"result/V1/1/throughput_7.json", "result/V1/accuracy_1.json", f"result/V1/{logs[0]}"} <= keys

    stopped = package.stubs("python", "code/common/train_modelarts.py", "--action", "stop")
    assert "jobname:aisbench-debug jobid:1 preversionid:1 jobstatus:JOBSTAT_COMPLETED" in stopped.stdout


def test_v1_and_then_v2_of_one_server(tmp_path: Path, bucket: Path) -> None:
    package = published(tmp_path, bucket)
    package.edit("modelarts_config.py", train_instance_type="'modelarts.kat1.2xlarge'")
    for version in ("V1", "V2"):
        package.edit("config.sh", MODELARTS_VERSION=version)
        done = package.stubs("test", **OWN_PYTHON)
        assert done.returncode == 0, done.stdout
        assert "set no result" not in done.stdout and "own script set" not in done.stdout
    assert float(result(package, "aisbench-debug-V1")["accuracy"]) == pytest.approx(0.76)
    result(package, "aisbench-debug2*-V1")
    assert list((package.root / "log").glob("modelarts-job-*-worker-0.log"))


def test_a_failing_rank_speaks_first(tmp_path: Path, bucket: Path) -> None:
    package = published(tmp_path, bucket)
    package.edit("modelarts_config.py", train_instance_type="'modelarts.kat1.xlarge'")
    script = package.root / "code" / "code" / "train.py"
    script.write_text("raise SystemExit('the data are of another year')\n")
    done = package.stubs("test", **OWN_PYTHON)
    assert done.returncode == 2, done.stdout
    assert "the data are of another year" in (package.root / "log" / "stub.log").read_text()


def test_ctrl_c_leaves_no_job_behind(tmp_path: Path, bucket: Path) -> None:
    package = published(tmp_path, bucket)
    package.edit("modelarts_config.py", train_instance_type="'modelarts.kat1.xlarge'")
    script = package.root / "code" / "code" / "train.py"
    script.write_text("import time\nprint('training has begun', flush=True)\ntime.sleep(600)\n")
    process = package.start("test", **OWN_PYTHON)
    begun = "training has begun"
    until(lambda: any(begun in p.read_text() for p in bucket.glob("runs/*/node-0/rank-0.log")), 120, begun)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    (run,) = (path.name for path in (bucket / "runs").iterdir())
    until(lambda: not processes_of(run), 30, "the end of the job")


def test_a_python_that_is_not_there_is_named_before_anything_starts(tmp_path: Path) -> None:
    package = published(tmp_path, tmp_path / "home", python="")
    done = package.stubs("test", PATH="/usr/bin:/bin")
    assert done.returncode == 1
    assert "PYTHON_COMMAND=python3.7 was not found" in done.stdout
    assert "export PYTHON_COMMAND=python3" in done.stdout and "run_train" not in done.stdout
