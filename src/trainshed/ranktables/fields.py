"""Reading fields out of a JSON document, with the JSON path in every error.

Numbers are accepted as numbers and as strings: the checker complains about
the former, a conversion repairs them.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainshed.ranktables.model import RankTableError

Json = Mapping[str, object]


def as_object(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise RankTableError(
            f"{path} is {kind(value)}, not an object", "compare the file with the form's example"
        )
    return value


def as_list(record: Json, key: str, path: str) -> list[object]:
    value = record.get(key)
    if not isinstance(value, list):
        raise RankTableError(
            f"{path}.{key} is {kind(value)}, not a list", "compare the file with the form's example"
        )
    return value


def as_text(record: Json, key: str, path: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise RankTableError(f"{path}.{key} is {kind(value)}, not a string", f'write "{key}": "..."')
    return value


def as_optional_text(record: Json, key: str, path: str) -> str | None:
    return as_text(record, key, path) or None if key in record else None


def as_integer(record: Json, key: str, path: str) -> int:
    number = integer_of(record.get(key))
    if number is None:
        raise RankTableError(
            f"{path}.{key} is {kind(record.get(key))}, not a whole number from 0", f'write "{key}": "0"'
        )
    return number


def integer_of(value: object) -> int | None:
    """The whole number a field holds, as a string ("7") or by mistake as a number (7)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def kind(value: object) -> str:
    """A short name of what was found, for messages."""
    if value is None:
        return "missing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
