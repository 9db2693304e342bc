"""Usage errors of the option parser in the form of all other errors: one sentence and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from typer._click import exceptions as parser
from typer.exceptions import TyperException

from trainshed.errors import TrainshedError, UsageError
from trainshed.spec.near import did_you_mean


def requested_help(error: TyperException) -> str:
    """The help text, if the mistake was to name no command of a group; empty for every other mistake."""
    return error.format_message() if isinstance(error, parser.NoArgsIsHelpError) else ""


def to_usage_error(error: TyperException, command: str) -> TrainshedError:
    """What was wrong with a command line; `command` is what was called, such as `trainshed run`."""
    context: Any = getattr(error, "ctx", None)
    path = str(context.command_path) if context else command
    usage = f"see `{path} --help`"
    if isinstance(error, parser.NoSuchOption):
        known = [flag for item in context.command.params for flag in item.opts] if context else []
        near = did_you_mean(error.option_name, known)
        return UsageError(f"{path}: no such option: {error.option_name}", near or usage)
    if isinstance(error, parser.MissingParameter):
        return UsageError(
            f"{path}: {_name(error)} is missing", _help_of(error) or context.get_usage().strip()
        )
    if isinstance(error, parser.BadParameter):
        return UsageError(f"{path}: {_name(error)}: {_plain(error.message)}", _help_of(error) or usage)
    if unknown := re.match(r"No such command '(.*?)'\.", error.message):
        commands: Iterable[str] = getattr(context.command, "commands", ()) if context else ()
        near = did_you_mean(unknown[1], commands)
        return UsageError(f"{path}: no such command: {unknown[1]!r}", near or f"`{path} --help` lists them")
    return UsageError(f"{path}: {_plain(error.format_message())}", usage)


def _name(error: parser.BadParameter) -> str:
    """An option by its longest flag, an argument by the name that the help shows."""
    if error.param is None:
        return "value"
    flags = [flag for flag in error.param.opts if flag.startswith("-")]
    return max(flags, key=len) if flags else str(error.param.human_readable_name)


def _help_of(error: parser.BadParameter) -> str:
    text = getattr(error.param, "help", None)
    return f"{_name(error)} is: {text}" if text else ""


def _plain(text: str) -> str:
    """The parser's message as the rest of a sentence; what the user wrote stays as it is."""
    text = text.strip().removesuffix(".")
    for begin in ("Option", "Got", "Missing", "Invalid"):
        if text.startswith(f"{begin} "):
            text = begin.lower() + text[len(begin) :]
    swaps = {
        "a valid int range": "a whole number",
        "a valid int": "a whole number",
        "a valid float": "a number",
    }
    for old, new in swaps.items():
        text = text.removesuffix(old) + new if text.endswith(old) else text
    return re.sub(r"is not in the range x>=(\S+)", r"is less than \1", text)
