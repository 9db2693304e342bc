"""The configuration files of a package: config.json, config.sh, modelarts_config.py.

It reads them into models that name a wrong field; it starts nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainshed.aisbench import easydict
from trainshed.errors import NotFoundError, UsageError
from trainshed.spec.mistakes import summary_of

M = TypeVar("M", bound=BaseModel)
_SHELL_SECONDS = 20
_PLACEHOLDER = re.compile(r"^(x+|\*+|your.*|<.*>|none|null)?$", re.I)


@dataclass(frozen=True)
class Package:
    """An unpacked package."""

    root: Path

    @property
    def code(self) -> Path:
        return self.root / "code"

    @property
    def model_code(self) -> Path:
        return self.code / "code"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def result(self) -> Path:
        return self.root / "result"


class TestConfig(BaseModel):
    """config.json, under the names ais-bench gives its keys."""

    __test__ = False
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, populate_by_name=True)

    testid: str = ""
    Mode: str = "training"
    Model: str = ""
    Divsion: str = Field(default="close")
    Scenario: str = "generic"
    test_object_type: str = "single"
    tester_server_ip: str = "127.0.0.1"
    tester_server_port: int = 9527
    tester_scheme: Literal["http", "https"] = "http"
    tester_token_file: str = ""
    tester_ca_file: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.tester_server_ip}]" if ":" in self.tester_server_ip else self.tester_server_ip
        return f"{self.tester_scheme}://{host}:{self.tester_server_port}"

    def line(self) -> str:
        """What the log says of it."""
        return (
            f"get ConfigInfo testid:{self.testid}, Mode:{self.Mode}, Model:{self.Model}, "
            f"Divsion:{self.Divsion}, Scenario:{self.Scenario}, test_object_type:{self.test_object_type}, "
            f"tester_server_ip:{self.tester_server_ip}, tester_server_port:{self.tester_server_port}"
        )


class Settings(BaseModel):
    """config.sh: what of it concerns this side."""

    model_config = ConfigDict(extra="ignore")

    PYTHON_COMMAND: str = "python3"
    SINGLESERVER_MODE: str = ""
    MODELARTS_VERSION: Literal["V1", "V2"] = "V1"
    DEVICE_NUM: int | None = None
    TRAINSHED_ENGINE: str = "local"
    TRAINSHED_EMULATE: str = ""
    TRAINSHED_ENVIRONMENT: str = ""
    TRAINSHED_DEVICES: int | None = None
    TRAINSHED_TIMEOUT: str = "24h"
    TRAINSHED_POLL: float = Field(default=1.0, ge=0.05, le=600)

    @property
    def single_server(self) -> bool:
        return is_true(self.SINGLESERVER_MODE)

    @property
    def emulate(self) -> bool:
        return is_true(self.TRAINSHED_EMULATE)


class AccessConfig(BaseModel):
    """access_config."""

    model_config = ConfigDict(extra="ignore")

    access_key: str | None = ""
    secret_access_key: str | None = Field(default="", repr=False)
    server: str | None = ""
    region_name: str | None = ""
    project_id: str | None = ""
    iam_endpoint: str | None = ""
    obs_endpoint: str | None = ""
    modelarts_endpoint: str | None = ""

    @property
    def has_secrets(self) -> bool:
        return not is_placeholder(self.access_key) and not is_placeholder(self.secret_access_key)

    @property
    def store(self) -> str:
        """The object store's address: obs_endpoint counts only if all three endpoints are set."""
        every = (self.iam_endpoint, self.obs_endpoint, self.modelarts_endpoint)
        if all(every):
            return str(self.obs_endpoint)
        return "" if is_placeholder(self.server) else str(self.server)


class SessionConfig(BaseModel):
    """session_config or session_config_v2."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    hyperparameters: list[dict[str, Any]] = Field(default_factory=list)
    parameters: list[dict[str, Any]] = Field(default_factory=list)
    inputs: str
    code_dir: str
    boot_file: str
    job_name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    framework_type: str = "Ascend-Powered-Engine"
    framework_version: str = ""
    pool_id: str | None = None
    train_instance_type: str | None = None
    train_instance_count: int = Field(default=1, ge=1, le=65536)
    nas_type: str | None = None
    nas_share_addr: str | None = None
    nas_mount_path: str | None = None
    out_base_url: str
    job_description_prefix: str = ""
    input_name: str = "data_url"
    output_name: str = "train_url"

    def named_parameters(self) -> dict[str, str | None]:
        """Hyperparameters by name, in order; a later one of the same name wins."""
        found: dict[str, str | None] = {}
        for item in [*self.hyperparameters, *self.parameters]:
            name = item.get("label") or item.get("name")
            if not name:
                raise UsageError(f"hyperparameters: {item!r} has neither label nor name", "give it a label")
            value = item.get("value")
            found[str(name)] = None if value is None else str(value)
        return found


def read_test_config(package: Package, needed: bool) -> TestConfig:
    """config.json; a local test needs none."""
    path = package.code / "config.json"
    try:
        raw = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        if needed:
            raise NotFoundError(f"{path} is missing", "a network test needs it; `test` does not") from error
        return TestConfig()
    except (OSError, ValueError) as error:
        if needed:
            raise UsageError(f"{path} is not JSON: {error}", "correct it") from error
        return TestConfig()
    if isinstance(raw, dict) and "Division" in raw:
        raw.setdefault("Divsion", raw["Division"])
    config = _valid(TestConfig, raw, path)
    for name, value in (("testid", config.testid), ("Model", config.Model)) if needed else ():
        if not value:
            raise UsageError(f"{path}: {name} is empty", "copy it from the organiser's message")
    return config


def read_settings(package: Package, environ: Mapping[str, str]) -> Settings:
    """config.sh, as a shell with these variables understands it; what they say themselves wins."""
    path = package.code / "config" / "config.sh"
    values: dict[str, str] = {}
    if path.is_file():
        done = subprocess.run(
            ["/bin/bash", "-c", 'set -a; source "$1" >&2 </dev/null && env -0', "bash", str(path)],
            env=dict(environ),
            capture_output=True,
            timeout=_SHELL_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise UsageError(f"{path} cannot be sourced: {' '.join(lines)}", "correct the line named")
        for entry in done.stdout.decode("utf-8", "replace").split("\0"):
            name, _, value = entry.partition("=")
            values[name] = value
    known = {
        n: v
        for n, v in {**values, **_own_variables(environ)}.items()
        if n in Settings.model_fields and v != ""
    }
    return _valid(Settings, known, path)


def read_modelarts(package: Package, version: str) -> tuple[AccessConfig, SessionConfig]:
    """modelarts_config.py, run as Python like the original does."""
    path = package.code / "config" / "modelarts_config.py"
    easydict.provide()
    space: dict[str, Any] = {"__name__": "modelarts_config", "__file__": str(path)}
    try:
        exec(compile(path.read_text("utf-8"), str(path), "exec"), space)  # noqa: S102 (the user's own file)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} is missing", "unpack the package again") from error
    except Exception as error:
        # Never the text of the error: it may repeat a line with a key.
        line = getattr(error, "lineno", None) or "unknown"
        raise UsageError(f"{path}: {type(error).__name__} (line {line})", "correct the file") from error
    name = "session_config_v2" if version == "V2" else "session_config"
    if name not in space:
        raise UsageError(f"{path}: {name} is missing", f"MODELARTS_VERSION is {version}; fill in {name}")
    access = _valid(AccessConfig, dict(space.get("access_config") or {}), path, "access_config")
    return access, _valid(SessionConfig, dict(space[name]), path, name)


def is_true(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "yes", "on")


def is_placeholder(text: str | None) -> bool:
    return _PLACEHOLDER.match((text or "").strip()) is not None


def _own_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Arguments of train_modelarts.py and Trainshed's own settings come this way and win over the file."""
    own = ("MODELARTS_VERSION", "SINGLESERVER_MODE")
    return {name: value for name, value in environ.items() if name.startswith("TRAINSHED_") or name in own}


def _valid(model: type[M], raw: Any, path: Path, where: str = "") -> M:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise UsageError(f"{path}: {summary_of(error, model, where)}", "correct it") from error
