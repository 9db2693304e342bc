"""`trainshed bench package` and `trainshed bench stubs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def package(
    folder: Annotated[Path, typer.Argument(help="workload: a folder with workload.yaml")],
    framework: Annotated[
        str, typer.Option("-f", "--framework", help="implementation; the first by default")
    ] = "",
    scale: Annotated[str, typer.Option("-s", "--scale", help="tiny, full, or your own scale")] = "full",
    arch: Annotated[str, typer.Option(help="x86_64, aarch64, or both")] = "both",
    version: Annotated[str, typer.Option(help="version in the package's name, such as r1.3")] = "r1.0",
    vendor: Annotated[str, typer.Option(help="vendor in the package's name")] = "huawei",
    out: Annotated[Path, typer.Option(help="folder for the packages")] = Path("output"),
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output")] = False,
) -> None:
    """Build the ais-bench package of a workload."""
    from trainshed.aisbench.package import ARCHITECTURES, build_package

    wanted = ARCHITECTURES if arch == "both" else (arch,)
    _show([build_package(folder, each, version, out, framework, scale, vendor) for each in wanted], as_json)


def stubs(
    arch: Annotated[str, typer.Option(help="x86_64, aarch64, or both")] = "both",
    out: Annotated[Path, typer.Option(help="folder for the packages")] = Path("output"),
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output")] = False,
) -> None:
    """Build the stubs alone, for the public build script of ais-bench."""
    from trainshed.aisbench.package import ARCHITECTURES, build_stubs

    _show([build_stubs(each, out) for each in (ARCHITECTURES if arch == "both" else (arch,))], as_json)


def _show(made: list[Path], as_json: bool) -> None:
    import hashlib
    import json

    sums = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in made}
    if as_json:
        print(json.dumps([{"path": path, "sha256": value} for path, value in sums.items()], indent=2))
        return
    for path, value in sums.items():
        print(f"{value}  {path}")
