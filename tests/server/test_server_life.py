"""The server's life: first start, stop, kill, rebuild. Runs go on without it, and nothing starts twice."""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import shutil
import ssl
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from server_api import Served
from support import Shed, until

pytestmark = [pytest.mark.server]


def marking(folder: Path, name: str) -> dict[str, object]:
    """A submission whose job leaves a line each time it is started."""
    job = {"name": name, "command": f"echo ran >> {folder}/{name}; sleep 0.3"}
    return {"job": job, "options": {"isolation": "plain"}}


def test_a_first_start_makes_all_that_is_needed(tmp_path: Path) -> None:
    served = Served(tmp_path / "home").start()
    try:
        assert served.password
        admin = served.api()
        assert admin.get("/me") == {"name": "admin", "is_admin": True, "teams": {"default": "admin"}}
        assert admin.root("/healthz").json["status"] == admin.root("/readyz").json["status"] == "ok"
        assert b"trainshed_loop_passes_total" in admin.root("/metrics").body
        assert "/api/v1/jobs" in admin.root("/api/openapi.json").json["paths"]
        folder = served.home / "server"
        assert {path.name for path in folder.iterdir()} >= {"server.db", "key", "certificate.pem"}
        assert not folder.stat().st_mode & 0o077
        second = Shed(served.home).cli("serve", "--port", "0", "--https-port", "0")
        assert second.returncode == 1 and "works on" in second.stderr and "already" in second.stderr
        _check_certificate(served)
    finally:
        assert served.stop() == 0
    log = (tmp_path / "server.log").read_text()
    assert all(json.loads(line)["level"] for line in log.splitlines()), "every line of the log is JSON"
    assert served.password not in log
    again = Served(served.home, password=served.password).start()
    try:
        assert again.info["admin_password"] is None
        assert again.info["fingerprint"] == served.info["fingerprint"]
        again.api()
    finally:
        again.stop()


def _check_certificate(served: Served) -> None:
    """The printed certificate is the server's, good for its address, with the printed fingerprint."""
    trusted = ssl.create_default_context(cafile=served.info["certificate"])
    connection = http.client.HTTPSConnection(
        urlsplit(served.info["https"]).netloc, context=trusted, timeout=60
    )
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    seen = connection.sock.getpeercert(binary_form=True)  # type: ignore[union-attr]
    assert hashlib.sha256(seen).hexdigest() == served.info["fingerprint"]
    connection.close()


def test_a_run_goes_on_while_the_server_is_stopped_and_its_log_too(tmp_path: Path) -> None:
    served = Served(tmp_path / "home").start()
    command = "echo before; until [ -e /tmp/go ] || [ -e $GO ]; do sleep 0.1; done; echo after"
    run = served.api().submit(command, fields={"env": {"GO": str(tmp_path / "go")}, "timeout": "300s"})
    admin = served.api()
    events = admin.events(f"/jobs/{run}/logs/stream")
    key, _, data = next(events)
    assert data["text"] == "before"
    assert served.stop() == 0, "a stream that is open does not hold the server"
    assert Shed(served.home).show(run)["state"] == "running"
    Shed(served.home).cli("stop", run, "--no-wait")
    served.start()
    try:
        admin = served.api()
        rest = list(admin.events(f"/jobs/{run}/logs/stream", Last_Event_ID=key))
        assert [data for _, name, data in rest if name == "line"] == []
        assert rest[-1][2] == {"state": "stopped"}
        admin.wait(run, "stopped")
    finally:
        served.stop()


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_killed_at_random_moments_nothing_is_lost_and_nothing_starts_twice(
    tmp_path: Path, database_url: str
) -> None:
    seed = random.randrange(10**6)
    choose = random.Random(seed)
    marks = tmp_path / "marks"
    marks.mkdir()
    served = Served(tmp_path / "home", ("--database", database_url)).start()
    wanted: dict[str, str] = {}
    for round_ in range(3):
        admin = served.api()
        for number in range(3):
            name = f"j{round_}-{number}"
            answer = admin("POST", "/jobs", marking(marks, name), Idempotency_Key=name)
            assert answer.status == 202, answer
            wanted[name] = answer.json["id"]
        # How far it came by then is left to chance: the property holds at every moment.
        seen = choose.randrange(0, 4)
        until(lambda seen=seen: len(list(marks.iterdir())) >= seen, 120, "some runs")
        served.kill()
        served.start()
        admin = served.api()
        for name, run in wanted.items():
            again = admin("POST", "/jobs", marking(marks, name), Idempotency_Key=name)
            assert again.json["id"] == run, "the key is remembered"
    try:
        admin = served.api()
        for run in wanted.values():
            assert admin.wait(run)["exit_code"] == 0, f"seed {seed}"
        assert {path.name: path.read_text() for path in marks.iterdir()} == dict.fromkeys(wanted, "ran\n")
        assert len(admin.get("/jobs?limit=200")["jobs"]) == len(wanted)
        started = [job["submitted"] for job in admin.get("/jobs?limit=200")["jobs"]]
        assert started == sorted(started, reverse=True)
    finally:
        served.stop()


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_the_index_is_made_again_from_the_directories(tmp_path: Path, database_url: str) -> None:
    shed = Shed(tmp_path / "home")
    shed.home.mkdir()
    run = shed.submit("-l", "sweep=7", shed.job("kept", command="true"))
    assert shed.cli("wait", run).returncode == 0
    served = Served(shed.home, ("--database", database_url)).start()
    try:
        before = served.api().wait(run)
    finally:
        served.stop()
    (shed.home / "runs" / "not-a-run").mkdir()
    gone = shed.submit(shed.job("gone", command="true"))
    shutil.rmtree(shed.home / "runs" / gone, ignore_errors=True)
    served.start("--rebuild")
    try:
        jobs = served.api().get("/jobs")["jobs"]
        assert [job["id"] for job in jobs if job["state"] == "succeeded"] == [run]
        assert served.api().get(f"/jobs/{run}")["labels"] == before["labels"] == {"sweep": "7"}
    finally:
        served.stop()


def test_a_systemd_unit_is_written(shed: Shed, tmp_path: Path) -> None:
    unit = tmp_path / "trainshed.service"
    done = shed.cli("serve", "--install-unit", unit, "--port", "9000")
    assert done.returncode == 0, done.stderr
    text = unit.read_text()
    assert "KillMode=process" in text and f"TRAINSHED_HOME={shed.home}" in text and "--port 9000" in text
    if shutil.which("systemd-analyze"):
        checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
        assert "trainshed.service" not in checked.stderr.replace(str(unit), ""), checked.stderr


def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    served = Served(tmp_path / "home").start()
    try:
        port = urlsplit(served.info["http"]).port
        other = tmp_path / "other"
        other.mkdir()
        done = Shed(other).cli("serve", "--port", str(port), "--https-port", "0")
        assert done.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in done.stderr
    finally:
        served.stop()


def test_admin_commands_do_what_the_api_does(tmp_path: Path) -> None:
    shed = Shed(tmp_path / "home")
    shed.home.mkdir()
    assert shed.cli("admin", "team", "add", "red").returncode == 0
    added = json.loads(shed.cli("admin", "user", "add", "ann", "--team", "red", "--json").stdout)
    served = Served(shed.home).start()
    try:
        assert served.info["admin_password"] is None, "there are users already"
        ann = served.api("ann", added["password"])
        assert ann.get("/me")["teams"] == {"red": "member"}
        assert shed.cli("admin", "team", "member", "red", "ann", "--role", "admin").returncode == 0
        assert ann.get("/me")["teams"] == {"red": "admin"}
        assert shed.cli("admin", "quota", "set", "red", "ascend", "8").returncode == 0
        assert ann.get("/teams")["teams"][0]["quotas"] == {"ascend": 8}
        assert json.loads(shed.cli("admin", "team", "list", "--json").stdout)[0]["members"] == {
            "ann": "admin"
        }
        assert "ann" in shed.cli("admin", "user", "list").stdout
        wrong = shed.cli("admin", "quota", "set", "red", "tpu", "8")
        assert wrong.returncode == 64 and "choose cpu" in wrong.stderr
        assert shed.cli("admin", "user", "disable", "ann").returncode == 0
        assert ann("GET", "/me").status == 401
    finally:
        served.stop()
