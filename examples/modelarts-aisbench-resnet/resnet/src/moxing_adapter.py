"""What model-zoo scripts do on ModelArts: one process of a node copies, the others wait for its lock file."""

import functools
import os
import time

from src.config import config

_count = 0
WAIT_SECONDS = 600


def sync_data(from_path, to_path):
    """Copy once per node, from the store to /cache or back. Every process of the node calls this."""
    import moxing as mox

    global _count
    lock = f"/tmp/copy_sync.lock{_count}"
    _count += 1
    if int(os.getenv("DEVICE_ID", "0")) == 0 and not os.path.exists(lock):
        mox.file.copy_parallel(from_path, to_path)
        print(f"copied {from_path} to {to_path}", flush=True)
        open(lock, "w").close()
    deadline = time.monotonic() + WAIT_SECONDS
    while not os.path.exists(lock):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {lock} within {WAIT_SECONDS} s")
        time.sleep(0.1)


def moxing_wrapper(run):
    """Data come before the script's main function runs, and its outputs are taken away afterwards."""

    @functools.wraps(run)
    def wrapped(*args, **kwargs):
        if config.enable_modelarts:
            sync_data(config.data_url, config.data_path)
            os.makedirs(config.output_path, exist_ok=True)
        run(*args, **kwargs)
        if config.enable_modelarts:
            import moxing as mox

            # Each rank has its own files, so each takes its own away.
            rank = int(os.getenv("RANK_ID", "0"))
            for name in sorted(os.listdir(config.output_path)):
                if name.endswith(f"_{rank}.json") or (rank == 0 and "_" not in name):
                    mox.file.copy(
                        os.path.join(config.output_path, name), os.path.join(config.train_url, name)
                    )

    return wrapped
