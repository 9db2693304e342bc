"""Compiles the wheel a registry does not have, from its source package."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
from pathlib import Path

from trainshed.environments.commands import Maker, pip
from trainshed.environments.recipes import SourceBuild
from trainshed.environments.wheelhouse import staging, store, wheelhouse
from trainshed.errors import RefusedError, TrainshedError


def require_tools(build: SourceBuild) -> None:
    """Before anything is downloaded: can this machine compile at all?"""
    missing = [tool for tool in build.tools if shutil.which(tool) is None]
    if missing:
        raise RefusedError(
            f"{build.package} must be compiled here, and this machine lacks: {', '.join(missing)}",
            "install a C++ compiler and cmake, e.g. apt-get install -y cmake g++ make",
        )


def has_wheel(build: SourceBuild) -> bool:
    return bool(_kept_wheels(build))


def built_wheel(build: SourceBuild, prefix: Path, maker: Maker) -> Path:
    """The wheel, compiled against the packages in `prefix` unless it was compiled before."""
    if ready := _kept_wheels(build):
        return ready[0]
    folder = staging(f"{maker.name}-build")
    source = _unpack(_source_package(build, prefix, maker), folder)
    for file, text, replacement in build.edits:
        _edit(source / file, text, replacement)
    jobs = str(os.cpu_count() or 1)
    maker.run(
        "build",
        pip(
            "wheel",
            "--no-cache-dir",
            "--no-deps",
            "--no-build-isolation",
            "--verbose",
            f"--wheel-dir={folder}",
            str(source),
            prefix=prefix,
        ),
        variables={
            **dict(build.variables),
            "HOROVOD_LOCAL_VERSION": build.local_version,
            "MAKEFLAGS": f"-j{jobs}",
            "PATH": f"{prefix / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "TMPDIR": str(folder),
        },
        detail=_compile_step,
    )
    (wheel,) = store(list(folder.glob("*.whl")))
    shutil.rmtree(folder)
    return wheel


def _source_package(build: SourceBuild, prefix: Path, maker: Maker) -> Path:
    kept = wheelhouse() / f"{build.package}-{build.version}.tar.gz"
    if kept.exists() and _sha256(kept) == build.sha256:
        return kept
    folder = staging(f"{maker.name}-source")
    maker.run(
        "download",
        pip(
            "download",
            "--no-cache-dir",
            "--progress-bar=off",
            "--no-deps",
            "--no-binary=:all:",
            "--no-build-isolation",  # its metadata step would fetch build tools the environment has
            f"--dest={folder}",
            f"{build.package}=={build.version}",
            prefix=prefix,
        ),
        detail=lambda _: kept.name,
    )
    if (found := _sha256(folder / kept.name)) != build.sha256:
        raise TrainshedError(
            f"environment '{maker.name}' could not be created: {kept.name} has sha256 {found}, "
            f"its recipe says {build.sha256}",
            "it is not the file that was tested: check the registry or mirror it comes from",
            code="wrong-hash",
        )
    store([folder / kept.name])
    shutil.rmtree(folder)
    return kept


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def _edit(file: Path, text: str, replacement: str) -> None:
    content = file.read_text(encoding="utf-8")
    if content.count(text) != 1:
        raise TrainshedError(
            f"{file.name} of the source package holds '{text}' {content.count(text)} times, not once",
            "the source package is not the version this recipe was written for",
            code="environment",
        )
    file.write_text(content.replace(text, replacement), encoding="utf-8")


def _compile_step(tail: str) -> str:
    """The compiler's latest "[ 42%] Building …" as "42%"."""
    steps = [line.split("%]")[0].strip(" [") for line in tail.splitlines() if "%] Building" in line]
    return f"{steps[-1].rsplit('[', 1)[-1].strip()}%" if steps else "preparing"


def _kept_wheels(build: SourceBuild) -> list[Path]:
    interpreter = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return sorted(wheelhouse().glob(f"{build.wheel_prefix}{interpreter}-*.whl"))
