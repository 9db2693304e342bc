"""The watcher's small decisions: volume sizes, ports, the log's length, and what the store is told."""

import socket
import stat
from pathlib import Path

import pytest

from trainshed.errors import RefusedError
from trainshed.store.seaweed import security, watch

pytestmark = [pytest.mark.store, pytest.mark.hardening]


@pytest.mark.parametrize(("free_gib", "megabytes"), [(1, 32), (50, 100), (500, 1000), (5000, 1024)])
def test_volumes_are_small_on_small_disks(free_gib: int, megabytes: int) -> None:
    assert watch.volume_megabytes(free_gib << 30) == megabytes


def test_ports_of_the_last_run_are_kept_if_free() -> None:
    chosen = watch.choose_ports({})
    assert set(chosen) == set(watch.PARTS)
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
    told = watch.environment(tmp_path)
    assert "secret" not in told.values()
    assert told["GOMEMLIMIT"] == "768MiB"


def test_certificate_and_keys_are_private_and_made_once(tmp_path: Path) -> None:
    first = security.ensure(tmp_path)
    assert security.ensure(tmp_path) == first
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert files == dict.fromkeys((security.CERTIFICATE, security.KEY, security.SIGNING_KEY), 0o600)


def test_without_openssl_the_store_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match="openssl"):
        security.ensure(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_port_whose_socket_somebody_else_made_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = watch.choose_ports({})
    path = Path(f"/tmp/seaweedfs-filer-grpc-{chosen['filer'] + 10000}.sock")
    path.touch()
    try:
        assert watch.choose_ports(chosen) == chosen, "left by an earlier run of ours"
        monkeypatch.setattr(watch.os, "geteuid", lambda: path.stat().st_uid + 1)
        assert watch.choose_ports(chosen) != chosen
    finally:
        path.unlink()
