"""The whole of an ais-bench test: package, unpack, edit three files, run, with real MindSpore and a real store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packages import unpacked

from trainshed.bench.judge.check import check
from trainshed.store import list_tree
from trainshed.store.seaweed import embedded

pytestmark = [pytest.mark.benchmark, pytest.mark.real]


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[str]:
    """A bucket of an embedded store, with handwritten digits as data and stale code of an earlier test."""
    import numpy
    from sklearn.datasets import load_digits

    from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
    from trainshed.store import copy

    home = tmp_path / "home"
    credentials = embedded.ensure_running(home).credentials
    client = S3Client(credentials)
    client.create_bucket("aisbench")
    digits = load_digits()
    images = (digits.data / 16).astype("float32")
    for name, part in (("train", slice(0, 1437)), ("val", slice(1437, None))):
        folder = tmp_path / "digits" / name
        folder.mkdir(parents=True)
        numpy.save(folder / "images.npy", images[part])
        numpy.save(folder / "labels.npy", digits.target[part].astype("int32"))
    copy(f"{tmp_path}/digits/", "obs://aisbench/data/", credentials=credentials)
    client.put("aisbench", "code/run/stale.run", b"of an earlier version")
    client.close()
    yield "aisbench"
    embedded.stop(home)


def test_two_servers_train_alone_with_mindspore_through_the_store(tmp_path: Path, bucket: str) -> None:
    source = (Path(__file__).parent / "mindspore_train.py").read_text()
    package = unpacked(tmp_path, source, "mindspore", devices=1)
    hook = package.root / "code" / "code" / "ma-pre-start.sh"
    hook.write_text("export GLOG_v=3\necho the hook ran\n")
    package.edit("config.sh", SINGLESERVER_MODE="True", TRAINSHED_EMULATE="1")
    package.edit(
        "modelarts_config.py",
        inputs=f"'obs://{bucket}/data/'",
        code_dir=f"'/{bucket}/code/'",
        boot_file=f"'/{bucket}/code/start_modelarts.py'",
        out_base_url=f"'obs://{bucket}/output/'",
        train_instance_count="2",
    )
    (package.root / "code" / "config.json").unlink()

    done = package.stubs("test", timeout=280)
    assert done.returncode == 0, done.stdout

    log = {path.name for path in (package.root / "log").iterdir()}
    synced = sorted(name for name in log if name.startswith("job"))
    assert {"stub.log", "benchmark.log"} <= log and len(synced) == 2
    assert all(
        re.fullmatch(rf"job[0-9a-f]{{8}}-job-aisbench-debug-{i}\.log", n) for i, n in enumerate(synced)
    )
    assert all("accuracy=" in (package.root / "log" / name).read_text() for name in synced)

    rates = numbers(done.stdout, "throughput_list")
    accuracies = numbers(done.stdout, "accuracy_list")
    assert len(rates) == len(accuracies) == 2
    average = float(re.search(r"throughput_list:\[.*\] average:(\S+)", done.stdout)[1])  # type: ignore[index]
    assert average == pytest.approx(sum(rates) / 2) and min(rates) > 0 and min(accuracies) > 0.5
    assert re.search(r"-Ais-Bench-Stubs- INFO run_eval\(.*\) - run_eval called", done.stdout)

    stub = (package.root / "log" / "stub.log").read_text()
    order = ["get ConfigInfo", "ais bench stubs begin run", "go testcase.", "Benchmanager::Init() enter",
             "Transmit_server start listen", "train_result_info: {", "Transmit_server resource is released!",
             "BenchManager stop done"]  # fmt: skip
    places = [stub.index(words) for words in order]
    assert places == sorted(places)
    block = re.search(r"train_result_info: (\{.*?\n\})\n", stub, re.S)
    assert block and len(json.loads(block[1])) == 15
    info = json.loads(block[1])
    assert float(info["accuracy"]) == pytest.approx(sum(accuracies) / 2)
    assert float(info["throughput_ratio"]) == pytest.approx(average, rel=1e-4), (
        "the files and the meter agree"
    )
    assert '   "efficientcy" : ' in block[1] and info["dataload_start_time"] <= info["total_end_time"]

    result = package.root / "result" / "aisbench-debug-V1"
    assert check(result).findings == []
    assert json.loads((package.root / "result" / "result.log").read_text())["accuracy"] == info["accuracy"]

    keys = {entry.name for entry in listed(tmp_path, f"obs://{bucket}/")}
    assert "code/run/stale.run" not in keys and "code/start_modelarts.py" in keys
    assert {"output/V1/0/throughput_0.json", "output/V1/accuracy_1.json"} <= keys
    assert f"output/V1/log/{synced[0]}" in keys


def numbers(text: str, name: str) -> list[float]:
    found = re.search(rf"report >> {name}:(\[.*?\])", text)
    assert found, text
    return list(json.loads(found[1]))


def listed(tmp_path: Path, url: str) -> list:
    return list_tree(url, credentials=embedded.ensure_running(tmp_path / "home").credentials)
