"""What the batch script becomes where nodes share no file system: Slurm brings the way to the store and the secrets."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from trainshed.engines.cluster import guard
from trainshed.engines.cluster.carried import carry
from trainshed.engines.slurm import driver, script, submission
from trainshed.runs.carrier import Carrier
from trainshed.runs.directory import RunDirectory


def main() -> int:
    guard.be_watched()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    runs, run = sys.argv[1], RunDirectory(Path(sys.argv[2]))
    brought = json.loads(os.environ.pop(submission.VARIABLE))

    def drive(carrier: Carrier) -> int:
        submission.keep(run, brought["secrets"])
        try:
            return driver.drive(run, carrier, brought["store"])
        finally:
            submission.forget(run)

    return carry(run, f"{runs}/{run.id}", brought["store"], script.carried_log(str(run.path)), drive)


if __name__ == "__main__":
    sys.exit(main())
