"""Builds an ais-bench package from a workload: the original's name and layout, the same bytes every time."""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from trainshed.bench.measure.system import FIELDS
from trainshed.bench.run import workload as workloads
from trainshed.bench.run.workload import Bench
from trainshed.errors import NotFoundError, UsageError
from trainshed.files import write_atomic
from trainshed.modelarts.catalogue import ENGINES

ARCHITECTURES = ("x86_64", "aarch64")
STUBS_NAME, STUBS_VERSION = "Ais-Benchmark-Stubs", "1.0"
_TEMPLATE = Path(__file__).parent / "template"
_SITE = Path(__file__).parents[1] / "payload" / "common"
_SKIPPED = {"__pycache__", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_WORD = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._]*\Z")
BOOT = "start_modelarts.py"


@dataclass(frozen=True)
class Item:
    """One file of the package."""

    name: str
    data: bytes
    mode: int = 0o644


def package_name(bench: Bench, arch: str, version: str, vendor: str = "huawei") -> str:
    target = f"train_{bench.framework}_{bench.workload.name.replace('-', '_')}"
    return f"train_{vendor}_{target}-{STUBS_NAME}-{arch}-{STUBS_VERSION}-{version}_modelarts.tar.gz"


def build_package(
    workload_dir: Path,
    arch: str,
    version: str,
    out: Path,
    framework: str = "",
    scale: str = "full",
    vendor: str = "huawei",
) -> Path:
    """Write the package into the folder `out`; gives its path."""
    if arch not in ARCHITECTURES:
        raise UsageError(f"architecture {arch!r} is not known", f"choose {' or '.join(ARCHITECTURES)}")
    for name, text in (("version", version), ("vendor", vendor)):
        if not _WORD.match(text):
            raise UsageError(
                f"{name} {text!r} is not allowed in a file name", "use letters, digits, '.' and '_'"
            )
    bench = workloads.choose(workload_dir, framework, scale, runs=1, home=out)
    target = out / package_name(bench, arch, version, vendor)
    out.mkdir(parents=True, exist_ok=True)
    _write(target, _packed(_items(bench, arch, version)))
    return target


def build_stubs(arch: str, out: Path) -> Path:
    """The stubs alone, as the public build script of ais-bench takes them to put a package together."""
    if arch not in ARCHITECTURES:
        raise UsageError(f"architecture {arch!r} is not known", f"choose {' or '.join(ARCHITECTURES)}")
    folder = f"{STUBS_NAME}-{arch}-{STUBS_VERSION}"
    items = [
        Item(f"{folder}/ais-bench-stubs", _template("ais-bench-stubs.sh", ARCH=arch), 0o755),
        Item(f"{folder}/code/config.json", _template("config.json", MODEL="")),
        Item(f"{folder}/code/system.json", _system()),
        Item(f"{folder}/code/ais_utils.py", (_SITE / "ais_utils.py").read_bytes()),
    ]
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{folder}.tar.gz"
    _write(target, _packed(items, f"{folder}/"))
    return target


def _system() -> bytes:
    return (json.dumps(dict.fromkeys(FIELDS, ""), indent=2) + "\n").encode()


def _write(target: Path, data: bytes) -> None:
    write_atomic(target, data)


def _items(bench: Bench, arch: str, version: str) -> list[Item]:
    source = Path(bench.folder, bench.implementation.code)
    if not (source / bench.implementation.entry).is_file():
        raise NotFoundError(
            f"{source / bench.implementation.entry} does not exist", "the workload is incomplete"
        )
    items = [
        Item("ais-bench-stubs", _template("ais-bench-stubs.sh", ARCH=arch), 0o755),
        Item("README.md", _template("README.md", NAME=bench.workload.name, FRAMEWORK=bench.framework)),
        Item("code/benchmark.sh", _template("benchmark.sh"), 0o755),
        Item("code/config.json", _template("config.json", MODEL=bench.workload.model)),
        Item("code/system.json", _system()),
        Item("code/rules.json", (workloads.rules_of(bench).model_dump_json(indent=2) + "\n").encode()),
        Item("code/ais_utils.py", (_SITE / "ais_utils.py").read_bytes()),
        Item("code/common/train_modelarts.py", _template("train_modelarts.py")),
        Item("code/config/config.sh", _template("config.sh")),
        Item("code/config/modelarts_config.py", _modelarts_config(bench)),
        Item("code/doc/version.txt", _version(Path(bench.folder), version)),
        Item(f"code/code/{BOOT}", _boot(bench)),
        Item("code/code/trainshed_meter.py", (_SITE / "trainshed_meter.py").read_bytes()),
        Item("code/code/ais_utils.py", (_SITE / "ais_utils.py").read_bytes()),
    ]
    taken = {item.name for item in items}
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        if path.is_file() and not path.is_symlink() and not _SKIPPED & set(inside.parts):
            name = f"code/code/{inside.as_posix()}"
            if name not in taken and inside.suffix != ".pyc":
                items.append(Item(name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644))
    return items


def _packed(items: list[Item], root: str = "") -> bytes:
    """Sorted, without times, owners or the machine's habits: the same input gives the same bytes."""
    plain = io.BytesIO()
    folders = {f"{root}{name}" for name in ("log", "result", "tmp")}
    for item in items:
        parts = item.name.split("/")[:-1]
        folders |= {"/".join(parts[: i + 1]) for i in range(len(parts))}
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(folders):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(info)
        for item in sorted(items, key=lambda item: item.name):
            info = tarfile.TarInfo(item.name)
            info.size, info.mode = len(item.data), item.mode
            archive.addfile(info, io.BytesIO(item.data))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as stream:
        stream.write(plain.getvalue())
    return packed.getvalue()


def _template(name: str, **values: str) -> bytes:
    path = _TEMPLATE / name
    # Python and Markdown with placeholders have another suffix, so that no tool checks them.
    text = (path if path.exists() else path.with_name(f"{name}.tmpl")).read_text("utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text.encode()


def _boot(bench: Bench) -> bytes:
    warmup = str(bench.scale.warmup_steps)
    passed, args = bench.implementation.passed, bench.implementation.args
    channels = {name: option for name, option in (("data", passed.data), ("out", passed.out)) if option}
    return _template(
        "start_modelarts.py",
        ENTRY=bench.implementation.entry,
        WARMUP=warmup,
        ARGS=repr([str(argument) for argument in args]),
        GIVEN=repr(channels),
    )


def _modelarts_config(bench: Bench) -> bytes:
    parameters = workloads.parameters_of(bench, seed=1)
    kind, version = ENGINES.get(bench.implementation.launcher, ("Ascend-Powered-Engine", ""))
    return _template(
        "modelarts_config.py",
        V1="".join(f"        {{'label': {k!r}, 'value': {str(v)!r}}},\n" for k, v in parameters.items()),
        V2="".join(f"        {{'name': {k!r}, 'value': {str(v)!r}}},\n" for k, v in parameters.items()),
        BOOT=BOOT,
        TYPE=kind,
        VERSION=version,
    )


def _version(folder: Path, version: str) -> bytes:
    """Where the code came from, as git knows it."""

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except OSError:
            return "unknown"
        return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else "unknown"

    lines = {
        "git_url": re.sub(r"://[^/@]*@", "://", git("config", "--get", "remote.origin.url")),
        "branch": git("rev-parse", "--abbrev-ref", "HEAD"),
        "commitid": git("rev-parse", "HEAD"),
        "patch_file_name": version,
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items()).encode()
