"""A run whose nodes share no file system: the driver fetches it from its object store, runs it, and uploads it."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from trainshed.access import StoreAccess
from trainshed.engines.cluster.starter import make_private_folder
from trainshed.engines.cluster.step import LOG
from trainshed.errors import TrainshedError
from trainshed.runs.directory import RunDirectory
from trainshed.runs.store_sync import StoreSync

_log = logging.getLogger(__name__)


def run_in_object_store(
    run: RunDirectory, url: str, environ: Mapping[str, str], log: Path, drive: Callable[[StoreSync], int]
) -> int:
    """The exit code of the driver, once everything it wrote is in the store and removed from this node.

    `environ` holds the keys of the store; `log` is the cluster's log of the driver's output.
    """
    make_private_folder(run.path.parent.parent)
    access = StoreAccess.from_environment(environ, run.home).credentials(url.partition(":")[0])
    sync = StoreSync(run, url, access, None)
    _fetch_run(sync, log)
    sync.start()
    try:
        code = drive(sync)
        sync.finish()
    except (TrainshedError, OSError) as error:
        _log.error("the end of the run was not uploaded to %s: %s; its files are in %s", url, error, run.path)
        return 1
    shutil.rmtree(run.path, ignore_errors=True)
    log.unlink(missing_ok=True)
    return code


def _fetch_run(sync: StoreSync, log: Path) -> None:
    """Fetch the driver's part of the run to this node's disk, with what an earlier start left."""
    run = sync.run
    make_private_folder(run.path)
    sync.fetch(lambda name: "/" not in name or name.startswith(("node-0/", "events/")))
    earlier = len(run.attempts())
    with contextlib.suppress(OSError):
        if earlier:
            (run.path / LOG).rename(run.path / f"driver.attempt-{earlier}.log")
        os.link(log, run.path / LOG)
