"""Where this process is, as the platform tells it."""

import os


def get_device_id():
    return int(os.getenv("DEVICE_ID", "0"))


def get_device_num():
    return int(os.getenv("RANK_SIZE", "1"))


def get_rank_id():
    return int(os.getenv("RANK_ID", "0"))
