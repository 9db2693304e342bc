"""Reading what another process of Trainshed wrote: only the same version is understood, all else is refused.

Each kind of document has a VERSION of its own, which grows with every change of
its fields. A higher or lower one is refused in one sentence, never guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from trainshed.errors import TrainshedError

_Document = TypeVar("_Document")


def parse(text: str | bytes, version: int, make: Callable[[Mapping[str, Any]], _Document]) -> _Document:
    """The document; ValueError says in one sentence why it is none of this version."""
    try:
        data = json.loads(text)
        found = data["version"]
        if found != version:
            raise ValueError(f"format {found!s:.40}, this release reads {version}")
        return make(data)
    except KeyError as error:
        raise ValueError(f"{error} is missing") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except TypeError as error:
        raise ValueError(str(error)) from error


def understand(
    text: str | bytes, version: int, make: Callable[[Mapping[str, Any]], _Document], what: str, remedy: str
) -> _Document:
    """The document that one process gave to another; TrainshedError names `what` and the `remedy`."""
    try:
        return parse(text, version, make)
    except ValueError as error:
        raise TrainshedError(f"{what} cannot be read: {error}", remedy, code="other-release") from error
