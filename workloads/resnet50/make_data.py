"""Writes handwritten digits as packed arrays, for the tiny scale: python make_data.py FOLDER

FOLDER/train and FOLDER/val each hold images.npy (N × 3 × 16 × 16 bytes) and
labels.npy (N × 1 byte). 1,437 images to train on and 360 to test on; none is in
both. Needs only Python; the same bytes come out everywhere.

Source of the images: examples/data/digits.bin.xz, see the README beside it.
"""

import lzma
import random
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "examples/data/digits.bin.xz"
TEST_IMAGES = 360
SIDE = 16


def main() -> None:
    folder = Path(sys.argv[1])
    raw = lzma.decompress(SOURCE.read_bytes())
    images = [(raw[at], raw[at + 1 : at + 65]) for at in range(0, len(raw), 65)]
    images = random.Random(20).sample(images, len(images))
    write(folder / "train", images[TEST_IMAGES:])
    write(folder / "val", images[:TEST_IMAGES])


def write(folder: Path, images: list[tuple[int, bytes]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    planes = b"".join(enlarged(greys) * 3 for _, greys in images)
    (folder / "images.npy").write_bytes(header((len(images), 3, SIDE, SIDE)) + planes)
    (folder / "labels.npy").write_bytes(header((len(images),)) + bytes(label for label, _ in images))


def enlarged(greys: bytes) -> bytes:
    """8 × 8 grey values from 0 to 16 as 16 × 16 bytes."""
    rows = (b"".join(bytes([g * 255 // 16]) * 2 for g in greys[at : at + 8]) * 2 for at in range(0, 64, 8))
    return b"".join(rows)


def header(shape: tuple[int, ...]) -> bytes:
    """The head of a NumPy file of bytes, version 1.0, padded to 64."""
    words = repr({"descr": "|u1", "fortran_order": False, "shape": shape}).encode()
    words += b" " * (-(len(words) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words


if __name__ == "__main__":
    main()
