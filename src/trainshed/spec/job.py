"""JobSpec: what a person requested. Every entry point of Trainshed makes one, and nothing else.

It holds no decision about machines: which node runs what is the plan's work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from trainshed.registry import members
from trainshed.spec.kinds import DeviceKind, Mode, Service
from trainshed.spec.near import did_you_mean
from trainshed.spec.values import parse_duration, parse_shape, parse_size

Seconds = Annotated[float, BeforeValidator(parse_duration)]
Bytes = Annotated[int, BeforeValidator(parse_size)]
Scalar = str | int | float | bool

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET_NAME = re.compile(
    r"(^|_)(PASSWORD|PASSWD|SECRET|TOKEN|SECRET_KEY|ACCESS_KEY|PRIVATE_KEY|API_KEY|CREDENTIALS?)$", re.I
)
_LABEL = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}\Z")
_PASSWORD_IN_URL = re.compile(r"://[^/\s:@]+:[^/\s@]+@")


class Model(BaseModel):
    """Base of all parts: immutable, and a key that does not exist is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_nul(cls, value: Any) -> Any:
        if _holds_nul(value):
            raise ValueError("holds a NUL character, which no program can be given: remove it")
        return value


class Resources(Model):
    """How many nodes, how many devices on each, and of which kind."""

    nodes: int = Field(1, ge=1, le=65536)
    devices: int = Field(1, ge=1, le=1024)
    kind: DeviceKind = DeviceKind.CPU
    memory: Bytes | None = Field(None, description="limit for the processes of one node together")

    @model_validator(mode="before")
    @classmethod
    def _from_shape(cls, value: Any) -> Any:
        return parse_shape(value) if isinstance(value, str) else value

    @property
    def shape(self) -> str:
        return f"{self.nodes}x{self.devices}"


class Channel(Model):
    """A folder that comes in or goes out, by name: `--<name>=<folder on the node>`."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")
    source: str | None = None
    target: str | None = None
    maker: str | None = Field(
        None, description="Python script that makes the folder `source`, its argument, when it is missing"
    )
    access: str = Field("argument", pattern=r"^(argument|env|both)$")
    predownload: bool = False
    every: Seconds = Field(30.0, description="how often an output is uploaded while the job runs")


class SecretRef(Model):
    """Where a secret's value is found when the job starts; never the value itself."""

    env: str | None = None
    file: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _reference_only(cls, value: Any) -> Any:
        if not isinstance(value, (dict, SecretRef)):
            # The value itself must not be repeated by the error, so the input is dropped here.
            raise ValueError(
                "a secret is a reference: write {env: VARIABLE} or {file: PATH}, never the value"
            )
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> SecretRef:
        if (self.env is None) == (self.file is None):
            raise ValueError("write exactly one of env (a variable's name) and file (a path)")
        return self


class JobSpec(Model):
    """One training job, wherever it will run."""

    name: str = Field(pattern=_NAME)
    launcher: str = "command"
    contract: str = "plain"
    code: str | None = Field(None, description="folder or URL of the code")
    entry: str | None = Field(None, description="boot file in the code folder, started once per device")
    command: str | None = Field(None, description="shell command, started once per node")
    args: tuple[str, ...] = Field((), description="positional arguments, before all others")
    parameters: dict[str, Scalar | list[Scalar] | None] = Field(default_factory=dict)
    inputs: tuple[Channel, ...] = ()
    outputs: tuple[Channel, ...] = ()
    log_url: str | None = None
    resources: Resources = Field(default_factory=Resources)  # type: ignore[arg-type]
    image: str | None = None
    environment: str | None = Field(None, description="Python environment: a name or a path")
    env: dict[str, str] = Field(default_factory=dict)
    secrets: dict[str, SecretRef] = Field(default_factory=dict)
    pre_start: str | None = Field(
        None, description="script in the code folder, sourced before the ranks start"
    )
    requirements: str | None = Field(
        None, description="file in the code folder: packages that are installed for this job alone"
    )
    services: tuple[Service, ...] = ()
    mode: Mode = Mode.DISTRIBUTED
    options: dict[str, Scalar] = Field(
        default_factory=dict, description="switches of the chosen contract and launcher"
    )
    priority: int = Field(100, ge=1, le=1000)
    preemptible: bool = False
    retries: int = Field(0, ge=0, le=100)
    timeout: Seconds | None = None
    grace: Seconds = 5.0

    @property
    def inputs_in_code(self) -> tuple[str, ...]:
        """Inputs that are below a local code folder, relative to it: they need not be copied twice."""
        if not self.code or "://" in self.code:
            return ()
        below = f"{self.code.rstrip('/')}/"
        sources = (channel.source or "" for channel in self.inputs)
        return tuple(source.removeprefix(below) for source in sources if source.startswith(below))

    @field_validator("launcher")
    @classmethod
    def _launcher_exists(cls, value: str) -> str:
        return _member("launcher", value)

    @field_validator("contract")
    @classmethod
    def _contract_exists(cls, value: str) -> str:
        return _member("contract", value)

    @field_validator("args", mode="before")
    @classmethod
    def _args_are_text(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or any(
            isinstance(v, (dict, list)) or v is None for v in value
        ):
            raise ValueError("write a list of arguments, such as [train, 10]")
        return tuple(_env_text(v) for v in value)

    @field_validator("env", mode="before")
    @classmethod
    def _env_is_text(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: _env_text(v) for k, v in value.items()}

    @field_validator("env", "secrets")
    @classmethod
    def _names_of_variables(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_variables(value)
        return value

    @model_validator(mode="after")
    def _one_program(self) -> JobSpec:
        if (self.entry is None) == (self.command is None):
            raise ValueError("write exactly one of entry (a boot file) and command (a shell line)")
        counts = Counter(channel.name for channel in (*self.inputs, *self.outputs))
        if twice := sorted(name for name, count in counts.items() if count > 1):
            raise ValueError(f"inputs and outputs: a name is used twice: {', '.join(twice)}")
        return self


def check_labels(labels: Mapping[str, str]) -> None:
    """ValueError for a label that cannot be listed in a line or put into a filter."""
    for name, value in labels.items():
        if not _LABEL.match(name):
            raise ValueError(f"invalid name: {name!r}: use up to 63 letters, digits, dot, _, / and -")
        if not isinstance(value, str) or len(value) > 256 or not value.isprintable():
            raise ValueError(f"{name}: invalid value: {value!r:.80}: use up to 256 printable characters")


def check_variables(values: Mapping[str, Any]) -> None:
    """ValueError for an invalid variable name, and for a secret where values are recorded."""
    for name, content in values.items():
        if _holds_nul(content):
            raise ValueError(f"{name} holds a NUL character, which no variable can: remove it")
        if not _VARIABLE.match(name):
            raise ValueError(f"{name!r} is not a variable name: use letters, digits and _")
        if isinstance(content, str) and (_SECRET_NAME.search(name) or _PASSWORD_IN_URL.search(content)):
            # Only the name is repeated: the value may be a secret.
            raise ValueError(
                f"{name} looks like a secret, and env is recorded: write secrets: {{{name}: {{env: {name}}}}}"
            )


def _holds_nul(value: Any) -> bool:
    """Whether a text, or one in a list or mapping of texts, holds a NUL; parts with fields of their own do the same."""
    if isinstance(value, Mapping):
        return any(map(_holds_nul, value)) or any(map(_holds_nul, value.values()))
    if isinstance(value, list | tuple):
        return any(isinstance(item, str) and "\0" in item for item in value)
    return isinstance(value, str) and "\0" in value


def _member(axis: Any, value: str) -> str:
    names = members(axis)
    if value not in names:
        near = did_you_mean(value, names)
        raise ValueError(f"no such {axis}; choose one of {', '.join(names)}{'; ' if near else ''}{near}")
    return value


def _env_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value
