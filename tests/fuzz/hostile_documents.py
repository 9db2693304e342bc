"""Hostile documents: values that no honest writer makes, and honest texts that were damaged."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

_TEXTS = (
    "", "\0", "\u2028", "\ud800", "²", "-1", "1e999", "NaN", "../../etc/passwd", "/dev/zero", "a" * 5000,
    "<script>", "$(TRAINSHED_NODE)", "{}", "\r\n", "1" * 5000, "(a+)+$", "!!python/object:os.system",
)  # fmt: skip
_NUMBERS = (
    0,
    -1,
    2**31,
    2**63,
    2**64,
    10**30,
    -(10**30),
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    float("inf"),
    True,
)
_YAML = (
    b"!!python/object/apply:os.system ['true']", b"&a [*a]", b"!!int ''", b"!!timestamp x", b"!!bool x", b"<<: 3",
    b"*nowhere", b"? [a]\n: b", b"!!binary \xff", b"1:1:1:1:1", b"0x", b"1" * 5000, b"---\n---", b"%YAML 9.9\n---\n",
    b"=", b"!!set {a}", b"2001-99-99", b"\xef\xbb\xbf", b"0o9", b"!!float x", b"\t- a", b"&a {b: &c {d: *a, e: *c}}",
)  # fmt: skip

scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(_TEXTS),
    st.sampled_from(_NUMBERS),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=15,
)


def _bomb(depth: int, width: int) -> bytes:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, depth)]
    return "\n".join(lines).encode()


def _nested(depth: int, opening: bytes, closing: bytes) -> bytes:
    return opening * depth + closing * depth


raw = st.one_of(
    st.binary(max_size=200),
    values.map(lambda value: json.dumps(value).encode("utf-8", "replace")),
    st.builds(
        _nested,
        st.sampled_from((10, 900, 5000, 100_000)),
        st.sampled_from((b"[", b'{"a":', b"- ")),
        st.sampled_from((b"]", b"}", b"")),
    ),
    st.builds(_bomb, st.integers(2, 40), st.integers(2, 12)),
    st.sampled_from(_YAML),
)
"""Texts that have nothing to do with an honest one."""


@st.composite
def damaged(draw: st.DrawFn, honest: bytes) -> bytes:
    """An honest text with bytes flipped, cut out, doubled, or replaced by something hostile."""
    data = bytearray(honest)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.integers(0, 30))
        match draw(st.sampled_from(("flip", "cut", "truncate", "double", "insert"))):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[at : at + length]
            case "truncate":
                del data[at:]
            case "double":
                data[at:at] = data[at : at + length] * draw(st.sampled_from((1, 2, 100)))
            case _:
                data[at:at] = draw(st.one_of(st.sampled_from(_YAML), st.binary(max_size=8)))
    return bytes(data)


@st.composite
def changed(draw: st.DrawFn, honest: Any) -> Any:
    """An honest document in which one or two values, or keys, are something else."""
    document = json.loads(json.dumps(honest))
    for _ in range(draw(st.integers(1, 2))):
        spot: Any = document
        while True:
            if not isinstance(spot, dict | list) or not spot:
                break
            key = draw(st.sampled_from(sorted(spot) if isinstance(spot, dict) else range(len(spot))))
            if isinstance(spot[key], dict | list) and spot[key] and draw(st.integers(0, 3)):
                spot = spot[key]
                continue
            match draw(st.sampled_from(("value", "value", "value", "remove", "add"))):
                case "remove":
                    del spot[key]
                case "add" if isinstance(spot, dict):
                    spot[draw(st.text(max_size=8))] = draw(values)
                case _:
                    spot[key] = draw(values)
            break
    return document
