"""The examples' data: made by the real script, split without leaks, in the form readers expect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.foundation]

SCRIPT = Path(__file__).parents[3] / "examples/data/make_digits.py"
RECORD = 3073


def _make(folder: Path) -> str:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, check=True
    )
    return ran.stdout


def _records(file: Path) -> list[bytes]:
    raw = file.read_bytes()
    return [raw[at : at + RECORD] for at in range(0, len(raw), RECORD)]


def test_the_digits_are_whole_cifar_files_and_no_test_image_is_trained_on(tmp_path: Path) -> None:
    assert "1437 images to train on, 360 to test on" in _make(tmp_path)
    train = _records(tmp_path / "train/data_batch_1.bin")
    test = _records(tmp_path / "eval/test_batch.bin")

    assert len(train) == len(test) == 10_000
    assert len(set(test)) == 360 == len(set(test[:360]))
    assert not set(train) & set(test)
    assert {record[0] for record in train} == {record[0] for record in test[:360]} == set(range(10))


def test_a_damaged_file_is_made_anew_and_a_whole_one_is_kept(tmp_path: Path) -> None:
    _make(tmp_path)
    file = tmp_path / "eval/test_batch.bin"
    good = file.read_bytes()
    file.write_bytes(good[:1000])
    _make(tmp_path)
    assert file.read_bytes() == good
    assert "there already" in _make(tmp_path)


def test_scikit_learns_digits_are_the_shipped_ones() -> None:
    import lzma

    datasets = pytest.importorskip("sklearn.datasets")
    shipped = lzma.decompress(SCRIPT.with_name("digits.bin.xz").read_bytes())
    digits = datasets.load_digits()
    expected = b"".join(
        bytes([int(label), *map(int, greys)]) for label, greys in zip(digits.target, digits.data, strict=True)
    )
    assert shipped == expected
