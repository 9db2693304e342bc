"""Fifty kills with SIGKILL, of the store or of the copier, at random moments: nothing acknowledged is lost."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from storekit import MIB, contents, fill, until

from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
from trainshed.store import Credentials, copy, list_tree, read_bytes
from trainshed.store.seaweed import embedded

pytestmark = [pytest.mark.store, pytest.mark.real]

TRIALS = 50
STORE_KILLS = 8


@pytest.mark.timeout(900)
def test_fifty_random_kills_lose_nothing_and_tear_nothing(
    tmp_path: Path, endpoint: embedded.Endpoint, store: Credentials, bucket: str, client: S3Client
) -> None:
    source = tmp_path / "source"
    for number in range(60):
        fill(source / f"f{number}", 5000 + number)
    fill(source / "large", 10 * MIB)
    expected = contents(source)
    copy(str(source), f"s3://{bucket}/base", credentials=store)
    dice = random.Random(20)
    victims = ["store"] * STORE_KILLS + ["copier"] * (TRIALS - STORE_KILLS)
    dice.shuffle(victims)
    log = tmp_path / "acknowledged"
    interrupted = 0
    for trial, victim in enumerate(victims):
        up = trial % 2 == 0
        remote, local = f"s3://{bucket}/t{trial}", tmp_path / f"down{trial}"
        ends = (str(source), remote) if up else (f"s3://{bucket}/base", str(local))
        argv = [store.access_key, store.secret_key, store.endpoint, *ends, bucket, str(log)]
        copier = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("killer.py")), *argv],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert copier.stdout and copier.stdout.readline() == "started\n"
        time.sleep(dice.uniform(0, 0.4))
        if victim == "copier":
            interrupted += copier.poll() is None
            copier.kill()
            copier.communicate()
        else:
            before = embedded.status(endpoint.home)
            os.kill(before.store_pid, signal.SIGKILL)
            out, _ = copier.communicate(timeout=120)
            assert out == "done\n", "the copier outlives a restart of the store"
            until(lambda pid=before.store_pid: embedded.status(endpoint.home).store_pid not in (0, pid), 60)
        if up:
            seen = {e.name: e.etag for e in list_tree_or_nothing(remote, store)}
            if "large" in seen:  # its ETag is not an MD5: only its bytes show it
                large = read_bytes(f"{remote}/large", credentials=store)
                seen["large"] = hashlib.md5(large).hexdigest()
            for name, digest in seen.items():
                assert digest == expected[name], f"torn object {name} in trial {trial}"
            assert copy(str(source), remote, credentials=store).complete
            now = list_tree(remote, credentials=store)
            assert {e.name: e.size for e in now} == {n: (source / n).stat().st_size for n in expected}
            assert all(e.etag == expected[e.name] for e in now if e.name != "large")
        else:
            visible = (
                {n: h for n, h in contents(local).items() if not n.startswith(".trainshed-")}
                if local.exists()
                else {}
            )
            assert all(expected[name] == digest for name, digest in visible.items()), (
                f"torn file in trial {trial}"
            )
            copy(f"s3://{bucket}/base", str(local), credentials=store)
            assert {n: h for n, h in contents(local).items() if not n.startswith(".trainshed-")} == expected
    assert interrupted > 10, "most kills must hit a copier at work"
    promised = log.read_text().split()
    assert len(promised) > 100
    there = {item.key: item.etag for item in client.listing(bucket, "ack/")}
    lost = [k for k in promised if there.get(k) != hashlib.md5(k.encode() * 20).hexdigest()]
    assert lost == []


def list_tree_or_nothing(url: str, store: Credentials) -> list:
    from trainshed.errors import NotFoundError

    try:
        return list_tree(url, credentials=store)
    except NotFoundError:
        return []
