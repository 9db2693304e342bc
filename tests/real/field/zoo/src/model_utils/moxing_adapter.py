"""Data to the node before, results to the store after: one process of each node copies, the others wait for a lock file."""

import functools
import os
import time

from mindspore import context

from .config import config
from .device_adapter import get_device_id, get_device_num, get_rank_id

_synced = 0


def sync_data(source, target):
    global _synced
    import moxing as mox

    lock = "/tmp/copy_sync.lock" + str(_synced)
    _synced += 1
    if get_device_id() % min(get_device_num(), 8) == 0 and not os.path.exists(lock):
        print("from path:", source, "to path:", target)
        mox.file.copy_parallel(source, target)
        try:
            os.mknod(lock)
        except OSError:
            pass
    while not os.path.exists(lock):
        time.sleep(0.2)
    print(f"Finish sync data from {source} to {target}.")


def moxing_wrapper(pre_process=None, post_process=None):
    def wrapper(run):
        @functools.wraps(run)
        def wrapped(*args, **kwargs):
            if config.enable_modelarts:
                sync_data(config.data_url, config.data_path)
                context.set_context(save_graphs_path=os.path.join(config.output_path, str(get_rank_id())))
                config.device_num = get_device_num()
                config.device_id = get_device_id()
                os.makedirs(config.output_path, exist_ok=True)
                if pre_process:
                    pre_process()
            result = run(*args, **kwargs)
            if config.enable_modelarts:
                if post_process:
                    post_process()
                sync_data(config.output_path, config.train_url)
            return result

        return wrapped

    return wrapper
