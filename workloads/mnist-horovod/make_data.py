"""Writes handwritten digits as MNIST's own files, for the tiny scale: python make_data.py FOLDER

The four files of MNIST (idx format, 28 × 28 bytes a picture) with 1,437
pictures to train on and 360 to test on. Needs only Python; the same bytes come
out everywhere. Source: examples/data/digits.bin.xz, see the README beside it.
"""

import lzma
import random
import struct
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "examples/data/digits.bin.xz"
TEST_IMAGES = 360


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    raw = lzma.decompress(SOURCE.read_bytes())
    images = [(raw[at], raw[at + 1 : at + 65]) for at in range(0, len(raw), 65)]
    images = random.Random(20).sample(images, len(images))
    for name, part in (("train", images[TEST_IMAGES:]), ("t10k", images[:TEST_IMAGES])):
        pictures = b"".join(enlarged(greys) for _, greys in part)
        head = struct.pack(">IIII", 2051, len(part), 28, 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + pictures)
        labels = bytes(label for label, _ in part)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, len(part)) + labels)


def enlarged(greys: bytes) -> bytes:
    """8 × 8 grey values from 0 to 16 as 24 × 24 bytes in the middle of 28 × 28."""
    rows = []
    for at in range(0, 64, 8):
        row = b"\0\0" + b"".join(bytes([g * 255 // 16]) * 3 for g in greys[at : at + 8]) + b"\0\0"
        rows += [row] * 3
    empty = [bytes(28)] * 2
    return b"".join(empty + rows + empty)


if __name__ == "__main__":
    main()
