"""Writes a small text corpus for masked-language-model pre-training: python make_data.py FOLDER

A made language of about 70 words with rules that a model can find out: every
animal has its own food and home, and numbers agree. FOLDER/vocab.txt holds the
words (the first five are special), FOLDER/train and FOLDER/val each hold
tokens.npy (N × 32 numbers of two bytes) and text.txt, the same to read. Needs
only Python; the same bytes come out everywhere.
"""

import random
import sys
from pathlib import Path

LENGTH = 32
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ANIMALS = ["cat", "dog", "horse", "mouse", "bird", "fish", "bee", "cow", "fox", "frog"]
FOODS = ["milk", "bones", "oats", "cheese", "seeds", "worms", "nectar", "grass", "berries", "flies"]
HOMES = ["house", "yard", "stable", "wall", "tree", "lake", "hive", "field", "den", "pond"]
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
SIZES = ["small", "old", "young", "brown", "quiet", "hungry"]
OTHER = ["the", "a", "eats", "eat", "in", "on", "and", "lives", "live", "near", "every", "."]


def main() -> None:
    folder = Path(sys.argv[1])
    words = SPECIAL + OTHER + ANIMALS + [a + "s" for a in ANIMALS] + FOODS + HOMES + DAYS + SIZES
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(w + "\n" for w in words))
    number = {word: i for i, word in enumerate(words)}
    chance = random.Random(4)
    for part, count in (("train", 4096), ("val", 512)):
        texts = [text(chance) for _ in range(count)]
        (folder / part).mkdir(exist_ok=True)
        (folder / part / "text.txt").write_text("".join(" ".join(t) + "\n" for t in texts))
        rows = (row([number[w] for w in t]) for t in texts)
        (folder / part / "tokens.npy").write_bytes(header((count, LENGTH)) + b"".join(rows))


def text(chance: random.Random) -> list[str]:
    """Sentences until the row is full."""
    words = ["[CLS]"]
    while True:
        more = sentence(chance)
        if len(words) + len(more) + 1 > LENGTH:
            return [*words, "[SEP]"]
        words += more


def sentence(chance: random.Random) -> list[str]:
    which, many = chance.randrange(len(ANIMALS)), chance.random() < 0.5
    animal = ANIMALS[which] + ("s" if many else "")
    subject = ["the", chance.choice(SIZES), animal]
    if chance.random() < 0.5:
        return [*subject, "eat" if many else "eats", FOODS[which], "on", chance.choice(DAYS), "."]
    return [*subject, "live" if many else "lives", "in", "the", HOMES[which], "."]


def row(tokens: list[int]) -> bytes:
    return b"".join(t.to_bytes(2, "little") for t in tokens + [0] * (LENGTH - len(tokens)))


def header(shape: tuple[int, ...]) -> bytes:
    """The head of a NumPy file of two-byte numbers, version 1.0, padded to 64."""
    words = repr({"descr": "<u2", "fortran_order": False, "shape": shape}).encode()
    words += b" " * (-(len(words) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words


if __name__ == "__main__":
    main()
