"""Published ais-bench packages: what their own scripts find on their path.

Such a package has the `common/train_modelarts.py` of the public repository. It imports the `modelarts` SDK,
`obs`, `moxing`, `easydict` and `ais_utils`; all of them are laid before it, and no file of it is replaced.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from trainshed.access import StoreAccess
from trainshed.aisbench import moving
from trainshed.aisbench.config import Package, read_modelarts, read_settings
from trainshed.bench.measure.ingest import Ingested
from trainshed.errors import UsageError
from trainshed.home import trainshed_home

_PAYLOAD = Path(__file__).parents[1] / "payload"
_LAID = ("aisbench", "modelarts", "common")
_OWN = b"trainshed.cli.stubs"
_TRY_SECONDS = 30
REPORTED = "reported"


def is_published(package: Package) -> bool:
    """Whether the package has a train_modelarts.py that is not Trainshed's."""
    path = package.code / "common" / "train_modelarts.py"
    return path.is_file() and _OWN not in path.read_bytes()


def environment(package: Package, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for the scripts of a package; those of a published one find everything that they import."""
    variables = {"AIS_BENCH_PYTHON": sys.executable, "AIS_BENCH_ROOT": str(package.root)}
    if not is_published(package):
        return variables
    settings = read_settings(package, environ)
    access, _ = read_modelarts(package, settings.MODELARTS_VERSION)
    before = environ.get("PYTHONPATH", "")
    store = StoreAccess.from_environment(
        moving.with_store(access, environ), trainshed_home(environ)
    ).credentials("obs")
    keys = store.environment() | {"OBS_ENDPOINT": store.endpoint}
    laid = {
        "PYTHONPATH": os.pathsep.join([*(str(_PAYLOAD / n) for n in _LAID), *([before] if before else [])])
    }
    laid |= {"RESULT_PATH": str(package.root / "tmp" / REPORTED)}
    # What the caller's own variables hold stays for Trainshed's process too.
    added = sorted({"PYTHONPATH", *(name for name in keys if name not in environ)})
    return variables | keys | laid | {"AIS_BENCH_LAID": ",".join(added), "AIS_BENCH_PYTHONPATH": before}


def check_python(package: Package, environ: Mapping[str, str]) -> str:
    """PYTHON_COMMAND of config.sh, tried: a name on the path may still start nothing."""
    command = read_settings(package, environ).PYTHON_COMMAND
    search = environ.get("PATH")
    found = shutil.which(command, path=search)
    if found and _starts(found):
        return found
    others = [
        name for name in ("python3", "python") if (path := shutil.which(name, path=search)) and _starts(path)
    ]
    text = (
        f"PYTHON_COMMAND={command} was not found" if not found else f"PYTHON_COMMAND={command} does not start"
    )
    instead = f"write `export PYTHON_COMMAND={others[0]}`" if others else "install a Python 3 and name it"
    raise UsageError(text, f"{instead} in {package.code / 'config' / 'config.sh'}")


def _starts(python: str) -> bool:
    try:
        return (
            subprocess.run(
                [python, "-c", ""], capture_output=True, timeout=_TRY_SECONDS, check=False
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def clear_reported(package: Package) -> None:
    """What `set_result` of an earlier run wrote is not this run's."""
    shutil.rmtree(package.root / "tmp" / REPORTED, ignore_errors=True)


def disagreements(package: Package, found: Ingested, single: bool) -> list[str]:
    """Where the numbers that the package's own script set differ from those of the result files."""
    path = package.root / "tmp" / REPORTED / "result_rank_0.json"
    try:
        stated = json.loads(path.read_text("utf-8"))["training"]
    except (OSError, ValueError, KeyError):
        return ["the package's own script set no result: the numbers are those of the result files"]
    rates = (
        [sum(ranks.values()) for ranks in found.servers.values()]
        if single
        else [sum(found.throughputs.values())]
    )
    ours = {"throughput_ratio": fmean(rates) if rates else None, "accuracy": found.quality}
    said = []
    for name, value in ours.items():
        theirs = stated.get(name, [None])[-1]
        if (
            value is None
            or not isinstance(theirs, int | float)
            or not math.isclose(theirs, value, rel_tol=1e-6)
        ):
            said.append(f"the package's own script set {name} {theirs}, the result files say {value}")
    return said
