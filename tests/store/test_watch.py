"""The watcher's small decisions: volume sizes, ports, the log's length, and what the store is told."""

import socket
from pathlib import Path

import pytest

from trainshed.store import watch

pytestmark = [pytest.mark.store]


@pytest.mark.parametrize(("free_gib", "megabytes"), [(1, 32), (50, 100), (500, 1000), (5000, 1024)])
def test_volumes_are_small_on_small_disks(free_gib: int, megabytes: int) -> None:
    assert watch.volume_megabytes(free_gib << 30) == megabytes


def test_ports_of_the_last_run_are_kept_if_free() -> None:
    chosen = watch.choose_ports({})
    assert set(chosen) == set(watch.DOORS)
    assert watch.choose_ports(chosen) == chosen
    with socket.create_server(("127.0.0.1", chosen["filer"])):
        assert watch.choose_ports(chosen) != chosen


def test_a_long_log_is_cut_and_one_piece_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "weed.log"
    log.write_bytes(b"x" * 100)
    watch.trim(log)
    assert log.stat().st_size == 100
    monkeypatch.setattr(watch, "LOG_LIMIT", 50)
    watch.trim(log)
    assert log.stat().st_size == 0
    assert (tmp_path / "weed.log.1").stat().st_size == 100


def test_the_store_is_told_to_stay_at_home_and_inherits_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = watch.command("weed", tmp_path, {"master": 1, "volume": 2, "filer": 3, "s3": 4})
    assert {"-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-volume.max=0"} <= set(line)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    told = watch.environment("key")
    assert "secret" not in told.values()
    assert told["GOMEMLIMIT"] == "768MiB"
