"""Site profiles: what is the same for all jobs of a site, so that job files need not say it.

A profile is a YAML file, $TRAINSHED_HOME/profiles/NAME.yaml. SlurmSettings are a
profile with this submission's options laid over it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from trainshed.engines.base import Context
from trainshed.errors import NotFoundError, UsageError
from trainshed.files import read_regular, write_atomic
from trainshed.runs.site import check_login
from trainshed.spec.job import check_variables
from trainshed.spec.kinds import DeviceKind
from trainshed.spec.mistakes import summary_of
from trainshed.spec.values import parse_duration

DEFAULT = "slurm"
"""The profile that is used when none is named, if it exists."""

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_WORD = r"^[A-Za-z0-9_.,:@/+=*%\[\]-]+$"
_GRES = {DeviceKind.NVIDIA: "gpu", DeviceKind.ASCEND: "npu", DeviceKind.CPU: "cpu"}
_DEPENDENCY = r"^[A-Za-z0-9_.:,?+-]+$"
_SLURM_TIME = re.compile(r"^(?:(\d{1,9})-)?(\d{1,9}):(\d{1,9})(?::(\d{1,9}))?$")


def _time_limit(value: object) -> object:
    """Seconds of `90m`, `2h`, or of Slurm's own `1-12:00:00` and `12:00:00`."""
    found = _SLURM_TIME.match(value) if isinstance(value, str) else None
    if not found:
        return parse_duration(value)
    days, first, second, third = (int(part or 0) for part in found.groups())
    if found[4] is None and found[1] is None:
        return float(first * 60 + second)
    return float(((days * 24 + first) * 60 + second) * 60 + third)


class Profile(BaseModel):
    """A site, as its administrator would describe it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    login: Annotated[str, AfterValidator(check_login)] | None = Field(
        None, description="user@host[:port]: reach Slurm over SSH"
    )
    ssh: tuple[str, ...] = Field((), description="further options for ssh, as written")
    python: str | None = Field(
        None, description="a Python with Trainshed, as nodes (and the login node) see it"
    )
    home: str | None = Field(None, description="Trainshed's folder there, on the shared file system")
    runs: str | None = Field(
        None,
        pattern=r"^(s3|obs)://[A-Za-z0-9._/-]+[A-Za-z0-9]$",
        description="where runs are in an object store (s3://bucket/runs), if nodes share no file system",
    )
    slurm_conf: str | None = Field(None, description="SLURM_CONF, where it is not the usual one")
    partition: str | None = Field(None, pattern=_WORD, description="partition for jobs")
    account: str | None = Field(None, pattern=_WORD, description="account that is charged")
    qos: str | None = Field(None, pattern=_WORD, description="quality of service")
    constraint: str | None = Field(
        None, pattern=r"^[A-Za-z0-9_&|*\[\](),-]+$", description="features nodes must have"
    )
    nodelist: str | None = Field(None, pattern=_WORD, description="only these nodes")
    time: Annotated[float, BeforeValidator(_time_limit)] | None = Field(
        None, description="time limit: 90m, 2h, 1-12:00:00"
    )
    exclusive: bool = Field(False, description="whole nodes, shared with no other job")
    preemptible_qos: str | None = Field(
        None, pattern=_WORD, description="quality of service of jobs that may be preempted"
    )
    requeue: bool = Field(True, description="start again after preemption or a node's failure")
    gres: dict[DeviceKind, Annotated[str, Field(pattern=_WORD)]] = Field(
        default_factory=dict, description="what the site calls each kind of device, if not gpu and npu"
    )
    cpus_per_device: int = Field(1, ge=1, le=1024, description="cores requested per device")
    interface: str | None = Field(
        None, pattern=r"^[A-Za-z0-9_.:-]+$", description="network interface of the ranks, e.g. ib0"
    )
    modules: tuple[str, ...] = Field((), description="environment modules to load on the nodes")
    setup: tuple[str, ...] = Field((), description="shell lines before anything starts")
    env: dict[str, str] = Field(default_factory=dict, description="variables for the nodes")
    environments: str | None = Field(None, description="folder of framework environments there")
    scratch: str | None = Field(None, description="folder on each node's own disk")
    container: Literal["podman", "apptainer", "pyxis", "enroot"] | None = Field(
        None, description="how a job's image is run"
    )
    isolation: Literal["auto", "sandbox", "plain"] = Field("auto", description="sandbox, plain, or auto")
    sbatch: tuple[str, ...] = Field((), description="further options for sbatch, as written")
    srun: tuple[str, ...] = Field((), description="further options for srun, as written")

    def gres_name(self, kind: DeviceKind) -> str:
        return self.gres.get(kind) or _GRES[kind]

    @field_validator("modules", "setup", "sbatch", "srun", "ssh", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("python", "home", "slurm_conf", "environments", "scratch")
    @classmethod
    def _is_path(cls, value: str | None) -> str | None:
        if value is not None and (not value.isprintable() or value.startswith("-")):
            raise ValueError("write a path, on one line")
        return value

    @field_validator("sbatch", "srun", "modules", "ssh", "setup")
    @classmethod
    def _one_line(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not item.replace("\t", " ").isprintable() for item in value):
            raise ValueError("write each line as its own item")
        return value

    @field_validator("setup")
    @classmethod
    def _no_option(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(item.lstrip().startswith("#SBATCH") for item in value):
            raise ValueError("options for sbatch belong into `sbatch`")
        return value


OPTIONS = {
    "profile": "the site profile to use",
    "array": "N runs of the job as one array, or N%M with at most M at once",
    "dependency": "run ids that must succeed first (or afterany:JOB, … as sbatch has it)",
} | {
    name: Profile.model_fields[name].description or ""
    for name in (
        "partition", "account", "qos", "constraint", "nodelist", "time", "exclusive", "requeue",
        "cpus_per_device", "interface", "container", "isolation",
    )
}  # fmt: skip
_OWN = ("profile", "array", "dependency")


class SlurmSettings(BaseModel):
    """What one submission asks of Slurm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Profile = Profile()  # type: ignore[call-arg]
    profile_name: str = ""
    array: int | None = None
    at_once: int | None = None
    dependency: str | None = Field(None, pattern=_DEPENDENCY)


def settings_of(options: Mapping[str, str], context: Context) -> SlurmSettings:
    """The profile named (or the default one) with options laid over it."""
    name = options.get("profile") or context.environ.get("TRAINSHED_PROFILE") or ""
    path = path_of(name or DEFAULT, context.home)
    try:
        stamp = path.stat().st_mtime_ns
    except FileNotFoundError:
        stamp = -1 if name else 0  # one that was named must be there; reading it says so
    return _settings(tuple(sorted(options.items())), name, path, stamp)


@lru_cache(maxsize=8)
def _settings(pairs: tuple[tuple[str, str], ...], name: str, path: Path, stamp: int) -> SlurmSettings:
    """Read once for as long as the file stays as it is: hundreds of jobs may be submitted in a row."""
    options = dict(pairs)
    base = _read(path).model_dump(exclude_unset=True) if stamp else {}
    base |= {key: value for key, value in options.items() if key not in _OWN}
    array, _, at_once = options.get("array", "").partition("%")
    for text in (array, at_once):
        if text and not (text.isascii() and text.isdigit() and 0 < int(text) <= 100_000):
            shown = options["array"]
            raise UsageError(f"option array={shown!r} is not a number of runs", "write N or N%M, e.g. 3%1")
    if (wanted := options.get("dependency")) and not re.fullmatch(_DEPENDENCY[1:-1], wanted):
        raise UsageError(
            f"option dependency={wanted!r} is neither runs nor jobs", "write RUN[,RUN], or afterany:JOB"
        )
    return SlurmSettings(
        profile=_checked(base, "options"),
        profile_name=name or (DEFAULT if stamp else ""),
        array=int(array) if array else None,
        at_once=int(at_once) if at_once else None,
        dependency=wanted or None,
    )


def names(home: Path) -> list[str]:
    folder = home / "profiles"
    return sorted(path.stem for path in folder.glob("*.yaml")) if folder.is_dir() else []


def path_of(name: str, home: Path) -> Path:
    if not _NAME.match(name):
        raise UsageError(f"invalid profile name: {name!r}", "use letters, digits, dot, _ and -")
    return home / "profiles" / f"{name}.yaml"


def load(name: str, home: Path) -> Profile:
    return _read(path_of(name or DEFAULT, home))


def _read(path: Path) -> Profile:
    from trainshed import yamlfile

    try:
        data = yamlfile.parse(read_regular(path, yamlfile.LONGEST), str(path)) or {}
    except FileNotFoundError as error:
        known = ", ".join(names(path.parent.parent)) or "none"
        hint = f"trainshed profile add {path.stem} KEY=VALUE …"
        raise NotFoundError(f"no profile is called {path.stem!r}; there are: {known}", hint) from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error}", "give a readable file") from error
    return _checked(data, str(path))


def save(name: str, values: Mapping[str, Any], home: Path) -> Profile:
    """Write a profile whole; what it says is checked first."""
    import yaml

    path = path_of(name, home)
    profile = _checked(dict(values), f"profile {name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    data = profile.model_dump(mode="json", exclude_unset=True)
    write_atomic(path, yaml.safe_dump(data, sort_keys=False))
    return profile


def remove(name: str, home: Path) -> None:
    load(name, home)
    path_of(name, home).unlink()


def _checked(data: Any, origin: str) -> Profile:
    try:
        profile = Profile.model_validate(data)
    except ValidationError as error:
        raise UsageError(
            f"{origin}: {summary_of(error, Profile)}", "`trainshed profile keys` explains each key"
        ) from error
    try:
        check_variables(profile.env)
    except ValueError as error:
        raise UsageError(f"{origin}: env: {error}", "secrets belong to the job, not to the site") from error
    return profile
