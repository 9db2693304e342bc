"""A copier to be killed: copies a tree up or down, and logs every object the store acknowledged."""

import os
import sys
import threading

from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
from trainshed.store import copy
from trainshed.store.credentials import make

access, secret, url, source, target, bucket, log = sys.argv[1:]
who = make(access, secret, url)


def acknowledged() -> None:
    client = S3Client(who)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(100_000):
        key = f"ack/{os.getpid()}-{number}"
        client.put(bucket, key, key.encode() * 20)
        os.write(fd, f"{key}\n".encode())


threading.Thread(target=acknowledged, daemon=True).start()
print("started", flush=True)
copy(source, target, credentials=who, force=True)
print("done", flush=True)
