"""Writes the handwritten digits as CIFAR-10 binary files, for the examples to train on.

    python examples/data/make_digits.py [FOLDER]        (default: digits, beside this file)

FOLDER/train/data_batch_1.bin and FOLDER/eval/test_batch.bin hold 10,000
records each, as readers of CIFAR-10 expect: a label byte, then 32x32 red,
green and blue planes. The 1,797 images are divided first, 1,437 to train on
and 360 to test on; no test image is ever in the training file. Training
records are copies moved by up to 3 pixels. The first 360 test records are the
360 images, each once; the rest repeats them to fill the file, so evaluate on
360. Needs only Python; the same bytes come out everywhere, and are checked.

Source of the images: digits.bin.xz, see README.md.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

RECORDS = 10_000
TEST_IMAGES = 360
LARGEST_SHIFT = 3
SOURCE = Path(__file__).with_name("digits.bin.xz")
EXPECTED = {
    "train/data_batch_1.bin": "773af14ba64342f25a142f1405c9abdb2464155e532ecb83c115e83d85414194",
    "eval/test_batch.bin": "089d4b5f2728b8694d885411bdf3fd59cb04be4262fde79ca9a359d4ab0920ae",
}

Image = tuple[int, bytes]
"""A label, and 64 grey values from 0 to 16."""


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("digits")
    if all(digest(folder / name) == expected for name, expected in EXPECTED.items()):
        print(f"{folder} is there already")
        return
    train, test = split(read_images())
    write(folder / "train/data_batch_1.bin", training_records(train))
    write(folder / "eval/test_batch.bin", (record(test[i % len(test)], 0, 0) for i in range(RECORDS)))
    for name, expected in EXPECTED.items():
        if digest(folder / name) != expected:
            sys.exit(f"{folder / name} has SHA-256 {digest(folder / name)}, not {expected}")
    print(f"wrote {folder}: {len(train)} images to train on, {len(test)} to test on")


def read_images() -> list[Image]:
    raw = lzma.decompress(SOURCE.read_bytes())
    return [(raw[at], raw[at + 1 : at + 65]) for at in range(0, len(raw), 65)]


def split(images: list[Image]) -> tuple[list[Image], list[Image]]:
    shuffled = random.Random(20).sample(images, len(images))
    return shuffled[TEST_IMAGES:], shuffled[:TEST_IMAGES]


def training_records(images: list[Image]) -> Iterator[bytes]:
    chance = random.Random(21)
    for index in range(RECORDS):
        right, down = (chance.randint(-LARGEST_SHIFT, LARGEST_SHIFT) for _ in range(2))
        yield record(images[index % len(images)], right, down)


def record(image: Image, right: int, down: int) -> bytes:
    """One CIFAR-10 record: every grey value becomes 4x4 pixels, moved right and down."""
    label, greys = image
    plane = b""
    for start in range(0, 64, 8):
        row = b"".join(bytes([grey * 255 // 16]) * 4 for grey in greys[start : start + 8])
        plane += moved(row, right, 1) * 4
    return bytes([label]) + moved(plane, down, 32) * 3


def moved(pixels: bytes, steps: int, width: int) -> bytes:
    gap = bytes(abs(steps) * width)
    return (gap + pixels)[: len(pixels)] if steps >= 0 else (pixels + gap)[-len(pixels) :]


def write(path: Path, records: Iterator[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pending = path.with_name(f"{path.name}.{os.getpid()}")
    with pending.open("wb") as file:
        file.writelines(records)
    pending.replace(path)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


if __name__ == "__main__":
    main()
