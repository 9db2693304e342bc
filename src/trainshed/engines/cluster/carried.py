"""A run whose nodes share no file system: the driver fetches it, works on it, and carries it back to its store."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from trainshed.access import StoreAccess
from trainshed.engines.cluster.starter import own_folder
from trainshed.engines.cluster.step import LOG
from trainshed.errors import TrainshedError
from trainshed.runs.carrier import Carrier
from trainshed.runs.directory import RunDirectory

_log = logging.getLogger(__name__)


def carry(
    run: RunDirectory, url: str, environ: Mapping[str, str], log: Path, drive: Callable[[Carrier], int]
) -> int:
    """The exit code of the driver, once all that it wrote is in the store and nothing of it left here.

    `environ` leads to the store; `log` is what the cluster writes of the driver's output.
    """
    own_folder(run.path.parent.parent)
    access = StoreAccess.from_environment(environ, run.home).credentials(url.partition(":")[0])
    carrier = Carrier(run, url, access, None)
    _arrive(carrier, log)
    carrier.start()
    try:
        code = drive(carrier)
        carrier.finish()
    except (TrainshedError, OSError) as error:
        _log.error("the end of the run was not carried to %s: %s; it lies in %s", url, error, run.path)
        return 1
    shutil.rmtree(run.path, ignore_errors=True)
    log.unlink(missing_ok=True)
    return code


def _arrive(carrier: Carrier, log: Path) -> None:
    """The driver's part of the run, on this node's disk: from the store, with what an earlier start left."""
    run = carrier.run
    own_folder(run.path)
    carrier.fetch(lambda name: "/" not in name or name.startswith(("node-0/", "events/")))
    earlier = len(run.attempts())
    with contextlib.suppress(OSError):
        if earlier:
            (run.path / LOG).rename(run.path / f"driver.attempt-{earlier}.log")
        os.link(log, run.path / LOG)
