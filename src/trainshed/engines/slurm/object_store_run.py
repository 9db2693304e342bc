"""The driver's process where nodes share no file system; the store's keys and the secrets come through Slurm."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from trainshed.engines.cluster import guard
from trainshed.engines.cluster.object_store_run import run_in_object_store
from trainshed.engines.slurm import driver, script, submission
from trainshed.runs.directory import RunDirectory
from trainshed.runs.store_sync import StoreSync


def main() -> int:
    guard.be_watched()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    runs, run = sys.argv[1], RunDirectory(Path(sys.argv[2]))
    brought = json.loads(os.environ.pop(submission.VARIABLE))

    def drive(sync: StoreSync) -> int:
        submission.keep(run, brought["secrets"])
        try:
            return driver.drive(run, sync, brought["store"])
        finally:
            submission.forget(run)

    return run_in_object_store(
        run, f"{runs}/{run.id}", brought["store"], script.object_store_log(str(run.path)), drive
    )


if __name__ == "__main__":
    sys.exit(main())
