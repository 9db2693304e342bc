"""Says where it runs, and whether a secret of the job can be seen on a command line of its node."""

import os
from pathlib import Path

lines = ""
for path in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        lines += path.read_text(errors="replace")
    except OSError:
        continue
seen = "seen" if os.environ["TOKEN"] in lines else "unseen"
print(f"RANK {os.environ['HOROVOD_RANK']} node {os.environ['TRAINSHED_NODE']} secret {seen}", flush=True)
