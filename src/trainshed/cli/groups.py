"""One form for every group of commands: plain help, our own errors, no completion of its own."""

from __future__ import annotations

import typer


def command_group(about: str) -> typer.Typer:
    """A group without commands; Typer's own completion would register itself for `env` and the like."""
    return typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=about,
    )
