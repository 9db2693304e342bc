"""Reads untrusted YAML, for all of Trainshed: bounded, one error each.

Only plain values are made, never objects. Anchors and aliases may be used, but not to
make a short text into a huge document, nor one that holds itself.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from trainshed.errors import UsageError

MOST = 100_000
"""Values of a document, those repeated by aliases counted each time."""
DEEPEST = 50
"""Levels of a document."""
LONGEST = 1 << 20
"""Characters of a document."""


class InvalidYamlError(UsageError):
    """Text that is not YAML, or YAML that is refused; the message says why and, where it can, in which line."""

    code = "bad-yaml"


def parse(text: str | bytes, origin: str, remedy: str = "fix the line named") -> Any:
    """The value of a YAML document. `origin` is what the error calls it: a path, or an option."""
    import yaml

    if len(text) > LONGEST:
        raise InvalidYamlError(f"{origin}: is larger than 1 MiB", "write a short YAML file")
    try:
        loader = _loader()(text.decode("utf-8") if isinstance(text, bytes) else text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _size(node, {}) > MOST:
                raise InvalidYamlError(
                    f"{origin}: has more than {MOST} values, counted with its aliases", "write fewer"
                )
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise InvalidYamlError(f"{origin}: is not valid YAML: {reason:.500}", remedy) from error
    except RecursionError as error:
        raise InvalidYamlError(f"{origin}: is nested too deeply, or holds itself", "write it flat") from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        # What the constructors of numbers, times and the like say of values that are none.
        raise InvalidYamlError(
            f"{origin}: invalid value: {error!s:.300}", "fix it, or put it in quotes"
        ) from error


@cache
def _loader() -> type[Any]:
    """PyYAML's own, which takes time and stack for depth, with an end to it."""
    from yaml import SafeLoader
    from yaml.composer import ComposerError

    class BoundedLoader(SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > DEEPEST:
                raise ComposerError(None, None, f"nested more than {DEEPEST} deep", None)
            try:
                return super().compose_node(parent, index)
            finally:
                self.depth -= 1

    return BoundedLoader


def _size(node: Any, known: dict[int, int]) -> int:
    """How many values a node stands for; RecursionError for one that holds itself."""
    from yaml import MappingNode, ScalarNode

    if isinstance(node, ScalarNode):
        return 1
    found = known.get(id(node))
    if found is None:
        known[id(node)] = MOST + 1  # met again below itself, it is refused
        parts = (
            [part for pair in node.value for part in pair] if isinstance(node, MappingNode) else node.value
        )
        found = known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return min(found, MOST + 1)
