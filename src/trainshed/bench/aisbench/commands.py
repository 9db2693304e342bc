"""`trainshed bench package`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def package(
    folder: Annotated[Path, typer.Argument(help="workload: a folder with workload.yaml")],
    framework: Annotated[
        str, typer.Option("-f", "--framework", help="implementation; the first by default")
    ] = "",
    scale: Annotated[str, typer.Option("-s", "--scale", help="tiny, full, or a scale of your own")] = "full",
    arch: Annotated[str, typer.Option(help="x86_64, aarch64, or both")] = "both",
    version: Annotated[str, typer.Option(help="version in the package's name, such as r1.3")] = "r1.0",
    vendor: Annotated[str, typer.Option(help="vendor in the package's name")] = "huawei",
    out: Annotated[Path, typer.Option(help="folder for the packages")] = Path("output"),
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output")] = False,
) -> None:
    """Build the ais-bench package of a workload."""
    import hashlib
    import json

    from trainshed.bench.aisbench.package import ARCHITECTURES, build_package

    wanted = ARCHITECTURES if arch == "both" else (arch,)
    made = [build_package(folder, each, version, out, framework, scale, vendor) for each in wanted]
    sums = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in made}
    if as_json:
        print(json.dumps([{"path": path, "sha256": value} for path, value in sums.items()], indent=2))
        return
    for path, value in sums.items():
        print(f"{value}  {path}")
