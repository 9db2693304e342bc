"""The embedded store's life: one start for many callers, watched, restarted, private, and bounded."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from storekit import until

from trainshed.payload.modelarts.trainshed_store.s3.client import S3Client
from trainshed.payload.modelarts.trainshed_store.s3.signing import Signer
from trainshed.payload.modelarts.trainshed_store.s3.wire import Address, Connection
from trainshed.store import AccessDeniedError, copy, list_tree, read_bytes, write_bytes
from trainshed.store.seaweed import embedded, identities

pytestmark = [pytest.mark.store, pytest.mark.real]


def test_ten_callers_at_once_start_one_store_and_stop_ends_it(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from trainshed.store.seaweed import embedded; print(embedded.ensure_running(Path(sys.argv[1])).pid)"
    callers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(10)
    ]
    pids = {caller.communicate(timeout=120)[0].strip() for caller in callers}
    endpoint = embedded.ensure_running(tmp_path)
    assert pids == {str(endpoint.pid)} and not any(caller.returncode for caller in callers)
    store_pid = embedded.status(tmp_path).store_pid
    write_bytes("s3://first/x", b"kept", credentials=endpoint.credentials)
    assert embedded.stop(tmp_path)
    assert not psutil.pid_exists(store_pid)
    assert not embedded.status(tmp_path).running
    assert not embedded.stop(tmp_path)
    again = embedded.ensure_running(tmp_path)
    try:
        assert again.url == endpoint.url
        assert read_bytes("s3://first/x", credentials=again.credentials) == b"kept"
    finally:
        embedded.stop(tmp_path)


def test_a_killed_watcher_takes_the_store_along_and_is_replaced(tmp_path: Path) -> None:
    first = embedded.ensure_running(tmp_path)
    store_pid = embedded.status(tmp_path).store_pid
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(store_pid) or psutil.Process(store_pid).status() == "zombie", 20)
    until(lambda: not embedded.status(tmp_path).running, 5)  # the last of its threads may end a moment later
    second = embedded.ensure_running(tmp_path)
    try:
        assert second.pid != first.pid
    finally:
        embedded.stop(tmp_path)


def test_only_loopback_is_served(endpoint: embedded.Endpoint) -> None:
    state = embedded.status(endpoint.home)
    every = [c for pid in (state.pid, state.store_pid) for c in psutil.Process(pid).net_connections("inet")]
    listening = [c.laddr.ip for c in every if c.status == psutil.CONN_LISTEN]
    assert len(listening) >= 5
    assert set(listening) == {"127.0.0.1"}
    assert [c for c in every if c.raddr and not c.raddr.ip.startswith("127.")] == []


def test_secrets_are_private_and_not_on_the_command_line(endpoint: embedded.Endpoint) -> None:
    folder = embedded.folder(endpoint.home)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("identities.json", "s3.json", "internal.key", "internal.pem"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    status = embedded.status(endpoint.home)
    lines = [" ".join(psutil.Process(pid).cmdline()) for pid in (status.pid, status.store_pid)]
    assert not any(endpoint.credentials.secret_key in line for line in lines)


def test_users_reach_their_own_and_their_teams_buckets_only(endpoint: embedded.Endpoint) -> None:
    folder = embedded.folder(endpoint.home)
    identities.add_user(folder, "alice", ["vision"], [])
    identities.add_user(folder, "bob", [], ["bobs-data"])
    identities.add_team_bucket(folder, "vision", "vision-data")
    embedded.reload_identities(endpoint.home)
    until(lambda: _answers(endpoint, "alice", "alice") == {True}, 20, "alice's key is known")
    reach = {
        (user, bucket)
        for user in ("alice", "bob")
        for bucket in ("alice", "bob", "bobs-data", "vision", "vision-data")
        if _allowed(endpoint, user, bucket)
    }
    assert reach == {
        ("alice", "alice"),
        ("alice", "vision"),
        ("alice", "vision-data"),
        ("bob", "bob"),
        ("bob", "bobs-data"),
    }
    bob = endpoint.for_user("bob")
    identities.remove_user(folder, "bob")
    embedded.reload_identities(endpoint.home)

    def is_shut_out() -> bool:
        try:
            list_tree("s3://bob", credentials=bob)
        except AccessDeniedError:
            return True
        return False

    until(is_shut_out, 20, "bob's key is forgotten")


def _allowed(endpoint: embedded.Endpoint, user: str, bucket: str) -> bool:
    results = _answers(endpoint, user, bucket)
    assert len(results) == 1, f"{user} may do one thing in {bucket} and not another"
    return results.pop()


def _answers(endpoint: embedded.Endpoint, user: str, bucket: str) -> set[bool]:
    who = endpoint.for_user(user)
    results = set()
    for action in (
        lambda: write_bytes(f"s3://{bucket}/probe", b"1", credentials=who),
        lambda: list_tree(f"s3://{bucket}", credentials=who),
    ):
        try:
            action()
            results.add(True)
        except AccessDeniedError:
            results.add(False)
    return results


def test_sixty_buckets_fit_and_memory_stays_bounded(endpoint: embedded.Endpoint, tmp_path: Path) -> None:
    client = S3Client(endpoint.credentials)
    for number in range(60):
        client.create_bucket(f"many-{number}")
        client.put(f"many-{number}", "x", b"1")
    (tmp_path / "big").write_bytes(os.urandom(64 << 20))
    copy(str(tmp_path / "big"), "s3://many-0/big", credentials=endpoint.credentials)
    memory = embedded.status(endpoint.home).memory_bytes
    assert memory is not None and memory < 1200 << 20


def test_a_bucket_may_be_part_of_the_host_name(endpoint: embedded.Endpoint) -> None:
    write_bytes("s3://hosted/a/x", b"by its host", credentials=endpoint.credentials)
    port = int(endpoint.url.rsplit(":", 1)[1])
    host = f"hosted.localhost:{port}"
    lines = Signer(endpoint.credentials).headers("GET", host, "/a/x", "")
    # Not every machine resolves such a name, so the request is sent by hand.
    connection = Connection(Address("127.0.0.1", port, secure=False), 5.0, 5.0)
    connection.send(f"GET /a/x HTTP/1.1\r\n{lines}\r\n".encode())
    answer = connection.receive("GET")
    connection.close()
    assert (answer.status, answer.body) == (200, b"by its host")


def test_without_weed_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Exception, match="weed") as caught:
        embedded.ensure_running(tmp_path)
    assert "pip install" in str(caught.value)


def test_a_busy_port_of_the_last_run_is_not_fatal(tmp_path: Path) -> None:
    first = embedded.ensure_running(tmp_path)
    embedded.stop(tmp_path)
    with socket.create_server(("127.0.0.1", int(first.url.rpartition(":")[2]))):
        second = embedded.ensure_running(tmp_path)
        try:
            assert second.url != first.url
        finally:
            embedded.stop(tmp_path)
