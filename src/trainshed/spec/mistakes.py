"""Mistakes in files that users write, with the file's field names: the one formatter of validation errors.

Each names the field, the value found and what to write instead. The user's own
names stay as they are, and what may be a secret is not shown.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from trainshed.spec.near import did_you_mean

_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong with a file: where, what was written, and what to write instead."""

    field: str
    value: str
    remedy: str

    def __str__(self) -> str:
        shown = f" is {self.value}" if self.value else ""
        return f"{self.field}{shown}: {self.remedy}"


def mistakes_of(
    error: ValidationError, model: type[BaseModel], where: str = "", noun: str = "file"
) -> list[Mistake]:
    """All mistakes that validation against the model found, below a field `where` of the file.

    `noun` is what the file describes.
    """
    return [_mistake(item, model, where, noun) for item in error.errors(include_url=False)]


def summary_of(error: ValidationError, model: type[BaseModel], where: str = "") -> str:
    """The same on one line."""
    found = mistakes_of(error, model, where)
    more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return "; ".join(map(str, found[:_MOST_SHOWN])) + more


def _mistake(item: Any, root: type[BaseModel], above: str, noun: str) -> Mistake:
    kind = item["type"]
    where = [part for part in item["loc"] if not str(part).startswith(("tagged-union", "function-"))]
    field = ".".join([*([above] if above else []), *map(str, where)]) or noun
    if kind == "extra_forbidden":
        model = _model_at(root, where[:-1])
        allowed = sorted(model.model_fields) if model else []
        near = did_you_mean(str(where[-1]), allowed)
        return Mistake(field, "", near or f"no such key; the keys are {', '.join(allowed)}")
    if kind == "missing":
        return Mistake(field, "", f"is missing, and the {noun} needs it")
    return Mistake(field, "" if _is_hidden(field, where) else _shown(item.get("input")), _remedy(item))


def _is_hidden(field: str, where: Sequence[Any]) -> bool:
    sensitive = ("secret", "password", "token", "key")
    return "env" in where or not where or any(part in field.lower() for part in sensitive)


def _model_at(root: type[BaseModel], parts: Sequence[Any]) -> type[BaseModel] | None:
    """The model that describes what is at a place of the file."""
    kind: Any = root
    for part in parts:
        model = _plain(kind)
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(str(part))
            kind = field.annotation if field else None
        else:
            arguments = get_args(model)
            kind = (arguments[-1] if get_origin(model) is dict else arguments[0]) if arguments else None
    found = _plain(kind)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _plain(kind: Any) -> Any:
    """Of a union the member that has parts."""
    if get_origin(kind) in (Union, types.UnionType):
        members = get_args(kind)
        return next(
            (m for m in members if get_args(m) or (isinstance(m, type) and issubclass(m, BaseModel))),
            members[0],
        )
    return kind


_EXPECTED = {
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_from_float": "write a whole number",
    "float_type": "write a number",
    "float_parsing": "write a number",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "string_type": "write text, in quotes if it looks like a number",
    "dict_type": "write a mapping, such as {name: value}",
    "model_type": "write a mapping, such as {name: value}",
    "model_attributes_type": "write a mapping, such as {name: value}",
    "list_type": "write a list, such as [a, b]",
    "tuple_type": "write a list, such as [a, b]",
}
_BOUNDS = {
    "greater_than_equal": ("write at least", "ge"),
    "less_than_equal": ("write at most", "le"),
    "greater_than": ("write more than", "gt"),
    "less_than": ("write less than", "lt"),
}


def _remedy(item: Any) -> str:
    """What to write instead."""
    kind, context = item["type"], item.get("ctx", {})
    if kind == "value_error":
        return str(item["msg"]).removeprefix("Value error, ")
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind in ("enum", "literal_error"):
        return f"write {context['expected']}"
    if kind == "string_pattern_mismatch":
        return f"does not match {context['pattern']}"
    if kind in ("string_too_short", "too_short"):
        return "must not be empty"
    if kind.endswith("too_long"):
        return f"is longer than {context['max_length']}"
    if kind == "json_invalid":
        return f"is not JSON: {context['error']}"
    if kind in _BOUNDS:
        bound, key = _BOUNDS[kind]
        return f"{bound} {context[key]}"
    text = str(item["msg"])
    return text[:1].lower() + text[1:]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
