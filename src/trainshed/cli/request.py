"""From the arguments of `run` and `submit` to a request: a job file or a script, and what is laid over it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainshed.errors import MissingEnvironmentError, UsageError

if TYPE_CHECKING:
    from trainshed.api import Client
    from trainshed.api.remote import RemoteClient
    from trainshed.engines.base import Request

Result = TypeVar("Result")


@dataclass(frozen=True)
class Changes:
    """What the command line lays over a job."""

    arguments: list[str] | None
    """What follows `--`; None without it."""
    shape: str | None
    parameters: list[str] | None
    variables: list[str] | None
    settings: list[str] | None
    labels: list[str] | None
    options: list[str] | None
    launcher: str | None
    environment: str | None
    emulate: bool

    def request(self, client: Client | RemoteClient, job: Path, attached: bool) -> Request:
        source: Path | dict[str, Any] = job
        if job.suffix == ".py":
            source = self._of_script(job)
        return client.request(
            source,
            fields=self._fields(),
            shape=self.shape,
            options=_pairs("--option", self.options),
            labels=_pairs("--label", self.labels),
            emulate=self.emulate,
            attached=attached,
        )

    def _fields(self) -> dict[str, Any]:
        from trainshed import yamlfile

        settings = _pairs("--set", self.settings)
        for name in settings:
            _check_is_whole_field(name)
        fields: dict[str, Any] = {k: yamlfile.parse(v, f"--set {k}") for k, v in settings.items()}
        if self.arguments is not None:
            fields["args"] = self.arguments
        if self.parameters:
            fields["parameters"] = _pairs("--param", self.parameters)
        if self.variables:
            fields["env"] = _pairs("--env", self.variables)
        if self.launcher:
            fields["launcher"] = self.launcher
        if self.environment:
            fields["environment"] = self.environment
        return fields

    def _of_script(self, script: Path) -> dict[str, Any]:
        """A job for the script; what was guessed is printed."""
        from trainshed.spec.guess import guess, job_of

        fields = job_of(script)
        chosen = self._fields()
        guessed = [
            f"{key} {fields[key]}"
            for key in ("launcher", "environment")
            if key in fields and key not in chosen
        ]
        module = guess(script).module
        if guessed and module:
            print(
                f"note: {' and '.join(guessed)}, because {script.name} imports {module}; "
                "choose others with --launcher and --environment",
                file=sys.stderr,
            )
        elif guessed:
            python = "" if chosen.get("environment") else ", with Trainshed's own Python"
            print(
                f"note: {script.name} imports no known framework: its ranks are started without a launcher{python}; "
                "choose with --launcher and --environment",
                file=sys.stderr,
            )
        return fields


def with_environment(start: Callable[[], Result], yes: bool) -> Result:
    """Start a job; if its environment has not been made, offer to make it, or make it with `yes`."""
    try:
        return start()
    except MissingEnvironmentError as missing:
        if not yes and not _agreed(missing):
            missing.hint += ", or add --yes"
            raise
        from trainshed import environments
        from trainshed.cli.env import progress_printer

        environments.create(missing.name, progress_printer())
        return start()


def _agreed(missing: MissingEnvironmentError) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{missing.message}. Create it now? [Y/n] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _check_is_whole_field(name: str) -> None:
    field, dot, below = name.partition(".")
    if dot:
        raise UsageError(
            f"--set {name}: only whole fields can be set",
            f"write the field as in the job file: --set '{field}={{{below.split('.')[0]}: VALUE}}'",
        )


def _pairs(flag: str, items: list[str] | None) -> dict[str, str]:
    result = {}
    for item in items or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"{flag} {item!r} is not NAME=VALUE", f"write {flag} {name or 'NAME'}=VALUE")
        result[name] = value
    return result
