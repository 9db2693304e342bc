"""From a YAML file or a mapping to a JobSpec, or to every mistake in it at once.

Each mistake names its field, the value found and the remedy. Paths in a job
file are relative to the file's folder and leave here absolute.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from trainshed import yamlfile
from trainshed.errors import UsageError
from trainshed.files import read_regular
from trainshed.spec.job import JobSpec, Resources
from trainshed.spec.mistakes import Mistake, mistakes_of
from trainshed.spec.near import near_file, near_path


class SpecError(UsageError):
    """A job specification that cannot be used, with all its mistakes."""

    code = "bad-job"

    def __init__(self, origin: str, mistakes: list[Mistake]) -> None:
        self.mistakes = mistakes
        lines = "".join(f"\n  - {mistake}" for mistake in mistakes)
        count = "one mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        super().__init__(f"{origin}: {count}{lines}")


def load_job(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> JobSpec:
    """The job of a YAML file (or mapping), with `overrides` laid over it.

    Overrides are whole top-level fields, except for `parameters`, `env` and
    `resources`, which are merged key by key.
    """
    origin, base, raw = _read(source)
    merged = _merge(raw, overrides or {})
    mistakes: list[Mistake] = []
    spec: JobSpec | None = None
    try:
        spec = JobSpec.model_validate(_absolute(merged, base))
    except ValidationError as error:
        mistakes += mistakes_of(error, JobSpec, noun="job")
    mistakes += _missing_files(merged, base)
    if mistakes or spec is None:
        raise SpecError(origin, mistakes)
    return spec


def load_fields(path: Path) -> dict[str, Any]:
    """The fields of a job file as they are written."""
    return _read(path)[2]


def dump_job(spec: JobSpec) -> str:
    """The job as YAML, without what was left at its default."""
    data = spec.model_dump(mode="json", exclude_defaults=True)
    # The C emitter where there is one: hundreds of jobs may be submitted in a row.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True))


def _read(source: str | Path | Mapping[str, Any]) -> tuple[str, Path, dict[str, Any]]:
    if isinstance(source, Mapping):
        return "job", Path.cwd(), dict(source)
    path = Path(source)
    if path.is_dir():
        path = path / "job.yaml"
    try:
        raw = yamlfile.parse(read_regular(path, yamlfile.LONGEST).decode("utf-8"), str(path))
    except FileNotFoundError as error:
        raise UsageError(
            f"{path}: no such job file{near_path(path)}", "give the path of a job.yaml or of its folder"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", "give a readable UTF-8 file") from error
    if not isinstance(raw, dict):
        raise UsageError(
            f"{path}: holds {type(raw).__name__}, not a job", "start with `name: …` and `entry: …`"
        )
    return str(path), path.resolve().parent, raw


def _merge(raw: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(raw)
    for key, value in overrides.items():
        old = merged.get(key)
        if key == "resources" and isinstance(value, str) and isinstance(old, dict):
            try:
                value = old | Resources.model_validate(value).model_dump(exclude_unset=True)
            except ValidationError:
                pass
        elif (
            key == "resources"
            and isinstance(value, str)
            and isinstance(old, str)
            and ":" in old
            and ":" not in value
        ):
            value = f"{value}:{old.split(':', 1)[1]}"
        elif key in ("parameters", "env") and isinstance(old, dict):
            value = old | dict(value)
        merged[key] = value
    return merged


def _absolute(raw: dict[str, Any], base: Path) -> dict[str, Any]:
    """Paths resolved against the job file's folder; anything malformed is left for validation."""
    result = dict(raw)
    if isinstance(code := raw.get("code"), str):
        result["code"] = _local(code, base)
    for side in ("inputs", "outputs"):
        if isinstance(raw.get(side), list):
            result[side] = [_absolute_channel(item, base) for item in raw[side]]
    if isinstance(url := raw.get("log_url"), str):
        result["log_url"] = _local(url, base)
    if isinstance(name := raw.get("environment"), str) and "/" in name:
        result["environment"] = _local(name, base)
    return result


def _absolute_channel(item: Any, base: Path) -> Any:
    if not isinstance(item, dict):
        return item
    named = {key: item[key] for key in ("source", "target", "maker") if isinstance(item.get(key), str)}
    return item | {key: _local(text, base) for key, text in named.items()}


def _local(text: str, base: Path) -> str:
    text = text.removeprefix("file://")
    if "://" in text:
        return text
    try:
        return str((base / Path(text).expanduser()).resolve())
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"invalid path: {text!r}: {error}", "write the full path") from error


def _mode(path: Path) -> int:
    """What lies there, or 0: also for a name that no file can have."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _missing_files(raw: dict[str, Any], base: Path) -> list[Mistake]:
    """What only the file system can show: missing code, an entry outside it, missing inputs."""
    mistakes = []
    code, folder = raw.get("code"), None
    if isinstance(code, str) and "://" not in code.removeprefix("file://"):
        folder = Path(_local(code, base))
        if not stat.S_ISDIR(_mode(folder)):
            mistakes.append(
                Mistake(
                    "code",
                    repr(code),
                    f"no such folder{near_path(folder)}; give the folder that holds the code",
                )
            )
            folder = None
    for field in ("entry", "pre_start", "requirements"):
        name = raw.get(field)
        if not isinstance(name, str):
            continue
        if Path(name).is_absolute() or ".." in Path(name).parts:
            mistakes.append(Mistake(field, repr(name), "is outside the code folder; name a file inside it"))
        elif code is None:
            mistakes.append(Mistake("code", "", f"is missing: {field} {name!r} is looked for in it"))
        elif folder is not None:
            target = (folder / name).resolve()
            if not target.is_relative_to(folder.resolve()):
                mistakes.append(
                    Mistake(field, repr(name), "points outside the code folder; name a file inside it")
                )
            elif not stat.S_ISREG(_mode(target)):
                mistakes.append(
                    Mistake(field, repr(name), f"no such file in {folder}{near_file(folder, name)}")
                )
    for index, channel in enumerate(raw.get("inputs") or () if isinstance(raw.get("inputs"), list) else ()):
        source = channel.get("source") if isinstance(channel, dict) else None
        if source is None:
            mistakes.append(
                Mistake(f"inputs.{index}.source", "", "is missing: an input comes from a folder or URL")
            )
        elif isinstance(source, str) and "://" not in source.removeprefix("file://"):
            maker = channel.get("maker")
            if isinstance(maker, str) and not stat.S_ISREG(_mode(Path(_local(maker, base)))):
                mistakes.append(Mistake(f"inputs.{index}.maker", repr(maker), "no such file"))
            elif maker is None and not _mode(Path(_local(source, base))):
                near = near_path(Path(_local(source, base)))
                mistakes.append(
                    Mistake(f"inputs.{index}.source", repr(source), f"no such file or folder{near}")
                )
    return mistakes
