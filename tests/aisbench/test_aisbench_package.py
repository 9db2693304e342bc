"""The package: the original's name and layout, and the same bytes every time."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from packages import workload

from trainshed.aisbench.package import build_package
from trainshed.errors import UsageError

pytestmark = [pytest.mark.benchmark]


def test_the_name_is_the_originals_for_both_architectures(tmp_path: Path) -> None:
    made = workload(tmp_path / "w", launcher="mindspore", name="resnet")
    names = [build_package(made, arch, "r1.3", tmp_path, scale="tiny").name for arch in ("aarch64", "x86_64")]
    assert names == [
        "train_huawei_train_mindspore_resnet-Ais-Benchmark-Stubs-aarch64-1.0-r1.3_modelarts.tar.gz",
        "train_huawei_train_mindspore_resnet-Ais-Benchmark-Stubs-x86_64-1.0-r1.3_modelarts.tar.gz",
    ]


def test_the_layout_is_the_originals(tmp_path: Path) -> None:
    archive = build_package(workload(tmp_path / "w"), "x86_64", "r1.3", tmp_path, scale="tiny")
    with tarfile.open(archive) as stream:
        members = {member.name: member for member in stream.getmembers()}
        text = stream.extractfile("code/doc/version.txt").read().decode()  # type: ignore[union-attr]
    top = {name.split("/")[0] for name in members}
    assert top == {"ais-bench-stubs", "README.md", "code", "log", "result", "tmp"}
    for name in ("benchmark.sh", "config.json", "system.json", "ais_utils.py", "common/train_modelarts.py",
                 "config/config.sh", "config/modelarts_config.py", "code/train.py"):  # fmt: skip
        assert f"code/{name}" in members, name
    assert members["ais-bench-stubs"].mode == 0o755
    assert [line.split(":")[0] for line in text.splitlines()] == [
        "git_url",
        "branch",
        "commitid",
        "patch_file_name",
    ]


def test_the_same_workload_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = workload(tmp_path / "a"), workload(tmp_path / "b")
    os.utime(second / "model" / "train.py", (1, 1))
    (second / "model" / "__pycache__").mkdir()
    (second / "model" / "__pycache__" / "x.pyc").write_bytes(b"left over")
    one = build_package(first, "aarch64", "r1.3", tmp_path / "1", scale="tiny").read_bytes()
    two = build_package(second, "aarch64", "r1.3", tmp_path / "2", scale="tiny").read_bytes()
    assert one == two


@pytest.mark.parametrize(("arch", "version"), [("sparc", "r1"), ("x86_64", "../r1"), ("x86_64", "")])
def test_what_cannot_stand_in_the_name_is_refused(tmp_path: Path, arch: str, version: str) -> None:
    with pytest.raises(UsageError):
        build_package(workload(tmp_path / "w"), arch, version, tmp_path, scale="tiny")


def test_the_command_says_paths_and_checksums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import hashlib
    import json

    from trainshed.cli.aisbench import package

    package(workload(tmp_path / "w"), scale="tiny", version="r2", out=tmp_path / "o", as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2
    assert all(hashlib.sha256(Path(r["path"]).read_bytes()).hexdigest() == r["sha256"] for r in rows)
