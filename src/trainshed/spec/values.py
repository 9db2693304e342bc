"""The small value forms of a job file: shapes (`2x8`), durations (`90s`), sizes (`4GiB`)."""

from __future__ import annotations

import re

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB|K|M|G|T)?$")
_BYTES = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_BYTES |= {f"{k}iB": v for k, v in _BYTES.items() if k != "B"}
_BYTES |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SHAPE = re.compile(r"^(\d+)\s*[x*×]\s*(\d+)(?:\s*[: ]\s*([a-z]+))?$")


def parse_duration(value: object) -> float:
    """Seconds of `90`, `90s`, `1.5h`; ValueError says what is accepted."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("write a duration such as 90s, 30m, 2h or 1d")
    if isinstance(value, (int, float)):
        seconds = float(max(-1, min(value, 10**9)))  # a whole number may be too large for any float
    else:
        match = _DURATION.match(value.strip())
        if not match:
            raise ValueError("write a duration such as 90s, 30m, 2h or 1d")
        seconds = float(match[1]) * _SECONDS[match[2] or "s"]
    if not 0 <= seconds < 10**9:
        raise ValueError("a duration is between 0 and 30 years")
    return seconds


def parse_size(value: object) -> int:
    """Bytes of `512MiB`, `4G`, `1000000`; ValueError says what is accepted."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        size: float = value
    else:
        match = _SIZE.match(value.strip()) if isinstance(value, str) else None
        if not match:
            raise ValueError("write a size such as 512MiB or 4GiB")
        size = float(match[1]) * _BYTES[match[2] or "B"]
    if size >= 2**63:
        raise ValueError("a size is below 8 EiB")
    return int(size)


def parse_shape(text: str) -> dict[str, object]:
    """`2x8`, `2*8` or `2x8:ascend` as the fields of Resources."""
    match = _SHAPE.match(text.strip())
    if not match:
        raise ValueError("write nodes x devices per node, such as 2x8 or 2x8:ascend")
    fields: dict[str, object] = {"nodes": int(match[1]), "devices": int(match[2])}
    if match[3]:
        fields["kind"] = match[3]
    return fields
