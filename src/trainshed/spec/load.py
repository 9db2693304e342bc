"""From a YAML file or a mapping to a JobSpec, or to every mistake in it at once.

Each mistake names its field, the value found and the remedy. Paths in a job
file are relative to the file's folder and leave here absolute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from trainshed.errors import UsageError
from trainshed.spec.job import Channel, JobSpec, Resources, SecretRef

_PARTS: dict[str, type[BaseModel]] = {
    "resources": Resources,
    "inputs": Channel,
    "outputs": Channel,
    "secrets": SecretRef,
}
_LONGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong with a job: where, what was written, and what to write instead."""

    field: str
    value: str
    remedy: str

    def __str__(self) -> str:
        shown = f" is {self.value}" if self.value else ""
        return f"{self.field}{shown}: {self.remedy}"


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
        mistakes += [_mistake(item) for item in error.errors(include_url=False)]
    mistakes += _missing_files(merged, base)
    if mistakes or spec is None:
        raise SpecError(origin, mistakes)
    return spec


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
        if path.stat().st_size > _LONGEST_FILE:
            raise UsageError(f"{path}: is larger than 1 MiB", "a job file is a short YAML file")
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{path}: no such job file", "give the path of a job.yaml or of its folder"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", "give a readable UTF-8 file") from None
    except yaml.YAMLError as error:
        raise UsageError(
            f"{path}: is not valid YAML: {' '.join(str(error).split())}", "mend the line named"
        ) from None
    except ValueError as error:
        raise UsageError(f"{path}: a value in it is none: {error}", "mend it, or put it in quotes") from None
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply", "a job file is a short YAML file") from None
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
    for side, field in (("inputs", "source"), ("outputs", "target")):
        if isinstance(raw.get(side), list):
            result[side] = [
                item | {field: _local(item[field], base)}
                if isinstance(item, dict) and isinstance(item.get(field), str)
                else item
                for item in raw[side]
            ]
    if isinstance(url := raw.get("log_url"), str):
        result["log_url"] = _local(url, base)
    if isinstance(name := raw.get("environment"), str) and "/" in name:
        result["environment"] = _local(name, base)
    return result


def _local(text: str, base: Path) -> str:
    text = text.removeprefix("file://")
    if "://" in text:
        return text
    try:
        return str((base / Path(text).expanduser()).resolve())
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"{text!r} is no path: {error}", "write the whole path") from None


def _mistake(item: Any) -> Mistake:
    where, kind = (
        [part for part in item["loc"] if not str(part).startswith(("tagged-union", "function-"))],
        item["type"],
    )
    field = ".".join(str(part) for part in where) or "job"
    if kind == "extra_forbidden":
        model = _PARTS.get(str(where[0]), JobSpec) if len(where) > 1 else JobSpec
        allowed = sorted(model.model_fields)
        near = get_close_matches(str(where[-1]), allowed, n=1, cutoff=0.6)
        remedy = f"did you mean {near[0]}?" if near else f"no such key; the keys are {', '.join(allowed)}"
        return Mistake(field, "", remedy)
    if kind == "missing":
        return Mistake(field, "", "is missing, and the job needs it")
    remedy = str(item["msg"]).removeprefix("Value error, ")
    hidden = "secret" in field or "env" in where or not where
    return Mistake(field, "" if hidden else _shown(item.get("input")), remedy[:1].lower() + remedy[1:])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _missing_files(raw: dict[str, Any], base: Path) -> list[Mistake]:
    """What only the file system can tell: code that is not there, an entry outside it, lost inputs."""
    mistakes = []
    code, folder = raw.get("code"), None
    if isinstance(code, str) and "://" not in code.removeprefix("file://"):
        folder = Path(_local(code, base))
        if not folder.is_dir():
            mistakes.append(
                Mistake("code", repr(code), "no such folder; give the folder that holds the code")
            )
            folder = None
    for field in ("entry", "pre_start"):
        name = raw.get(field)
        if not isinstance(name, str):
            continue
        if Path(name).is_absolute() or ".." in Path(name).parts:
            mistakes.append(Mistake(field, repr(name), "lies outside the code folder; name a file inside it"))
        elif code is None:
            mistakes.append(Mistake("code", "", f"is missing: {field} {name!r} is looked for in it"))
        elif folder is not None:
            target = (folder / name).resolve()
            if not target.is_relative_to(folder.resolve()):
                mistakes.append(
                    Mistake(field, repr(name), "leads outside the code folder; name a file inside it")
                )
            elif not target.is_file():
                mistakes.append(Mistake(field, repr(name), f"no such file in {folder}"))
    for index, channel in enumerate(raw.get("inputs") or () if isinstance(raw.get("inputs"), list) else ()):
        source = channel.get("source") if isinstance(channel, dict) else None
        if source is None:
            mistakes.append(
                Mistake(f"inputs.{index}.source", "", "is missing: an input comes from a folder or URL")
            )
        elif (
            isinstance(source, str)
            and "://" not in source.removeprefix("file://")
            and not Path(_local(source, base)).exists()
        ):
            mistakes.append(Mistake(f"inputs.{index}.source", repr(source), "no such file or folder"))
    return mistakes
