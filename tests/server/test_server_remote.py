"""The same client and the same commands against a server, also when it is killed in between."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import trainshed
from server_api import PASSWORD, Served
from support import Shed, until
from trainshed.errors import NotFoundError, TrainshedError, UsageError
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.server]


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    return str(served.api("ann", PASSWORD)("POST", "/tokens", {"name": "test"}).json["token"])


@pytest.fixture
def env(served: Served, token: str) -> dict[str, str]:
    return {
        "TRAINSHED_SERVER": served.info["https"],
        "TRAINSHED_TOKEN": token,
        "TRAINSHED_CERTIFICATE": served.info["certificate"],
    }


def uploads(served: Served) -> int:
    log = (served.home.parent / "server.log").read_text()
    return sum('"method": "PUT", "path": "/api/v1/files/' in line for line in log.splitlines())


def test_a_client_of_a_server_does_what_a_local_one_does(served: Served, token: str, shed: Shed) -> None:
    client = trainshed.Client(served.info["https"], token=token, fingerprint=served.info["fingerprint"])
    script = (
        "import sys\nopen('/job/outputs/model/out.txt', 'w').write('trained')\nprint('lr', sys.argv[1:])\n"
    )
    files = {"train.py": script, ".trainshedignore": "data.bin\n", "data.bin": "x" * 100}
    job = shed.job("digits", files, entry="train.py", outputs=[{"name": "model"}])
    run = client.submit(job, labels={"sweep": "9"}, parameters={"lr": 0.1})
    assert run.result(150).state is RunState.SUCCEEDED
    assert ["--lr=0.1" in line.text for line in run.logs() if line.text.startswith("lr")] == [True]
    assert run.labels == {"sweep": "9"} and run.plan().nodes and run.events()[0]["kind"] == "submitted"
    (output,) = run.outputs()
    assert run.read_output(output["path"]) == b"trained"
    assert client.get("last").id == client.get(run.id[:-2]).id == run.id
    assert [r.id for r in client.runs({"sweep": "9"})] == [run.id]
    assert run.id in [summary.id for summary in client.summaries()]
    sent = uploads(served)
    again = client.submit(job, parameters={"lr": 0.2})
    assert again.wait(150).state is RunState.SUCCEEDED
    assert uploads(served) == sent, "what the server has is not sent again"
    client.remove(again)
    with pytest.raises(NotFoundError):
        client.get(again.id)


def test_a_failed_run_raises_with_its_words(served: Served, token: str) -> None:
    client = trainshed.Client(served.info["http"], token=token)
    with pytest.raises(trainshed.RunFailed, match="no data in /data") as failed:
        client.run({"name": "broken", "command": "echo no data in /data; exit 3"}, timeout=150)
    assert failed.value.exit_code == 3


def test_who_is_not_trusted_is_not_talked_to(served: Served, token: str) -> None:
    with pytest.raises(UsageError, match="not trusted"):
        trainshed.Client(served.info["https"], token=token).summaries()
    with pytest.raises(UsageError, match="another certificate"):
        trainshed.Client(served.info["https"], token=token, fingerprint="00" * 32).summaries()
    with pytest.raises(UsageError, match="log in first"):
        trainshed.Client(served.info["http"], token="tst_wrong").summaries()
    with pytest.raises(TrainshedError, match="did not answer"):
        trainshed.Client("http://127.0.0.1:9", token=token).summaries()


def test_commands_work_against_a_server(shed: Shed, env: dict[str, str]) -> None:
    job = shed.job("cli", {"hello.sh": "echo from the script"}, command="sh hello.sh")
    done = shed.cli("run", job, env=env)
    assert done.returncode == 0 and "from the script" in done.stdout, done
    failed = shed.cli("run", shed.job("fails", command="exit 7"), env=env)
    assert failed.returncode == 7, failed
    run = shed.cli(
        "submit", shed.job("waits", command="echo on; sleep 300", timeout="300s"), env=env
    ).stdout.strip()
    assert run in shed.cli("ps", env=env).stdout
    assert json.loads(shed.cli("show", run, "--json", env=env).stdout)["owner"] == "ann"
    assert not (shed.home / "runs" / run).exists(), "the run is the server's"
    until(lambda: "on" in shed.cli("logs", run, env=env).stdout, 120, "its first line")
    stopped = shed.cli("stop", run, env=env)
    assert stopped.stdout == f"{run}: stopped\n", stopped
    assert shed.cli("wait", run, env=env).returncode == 130
    assert shed.cli("rm", run, env=env).returncode == 0
    missing = shed.cli("show", run, env=env)
    assert missing.returncode == 64 and "no run is called" in missing.stderr
    planned = shed.cli("run", job, "--dry-run", "--json", "-j", "2x1", env=env)
    assert len(json.loads(planned.stdout)["nodes"]) == 2, planned
    unknown = shed.cli("ps", env=env | {"TRAINSHED_TOKEN": ""})
    assert unknown.returncode == 64 and "TRAINSHED_TOKEN" in unknown.stderr


def test_ctrl_c_stops_the_run_on_the_server(shed: Shed, env: dict[str, str]) -> None:
    process = shed.start("run", shed.job("endless", command="echo on; sleep 300", timeout="300s"), env=env)
    assert process.stdout and "on" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=150)
    assert process.returncode == 130 and "stopped with Ctrl-C" in err


def test_a_followed_log_goes_on_when_the_server_is_killed_and_comes_back(shed: Shed, tmp_path: Path) -> None:
    served = Served(tmp_path / "server-home").start()
    ports = ["--port", str(urlsplit(served.info["http"]).port)]
    ports += ["--https-port", str(urlsplit(served.info["https"]).port)]
    token = served.api()("POST", "/tokens", {}).json["token"]
    env = {"TRAINSHED_SERVER": served.info["http"], "TRAINSHED_TOKEN": token}
    go = tmp_path / "go"
    os.mkfifo(go)
    command = f"for i in $(seq 100); do echo line $i; done; cat {go}; for i in $(seq 101 200); do echo line $i; done"
    job = shed.job("long", command=command, timeout="300s")
    run = shed.cli("submit", job, "-o", "isolation=plain", env=env).stdout.strip()
    try:
        follower = shed.start("logs", "-f", run, env=env)
        assert follower.stdout
        seen = [follower.stdout.readline() for _ in range(100)]
        served.kill()
        go.write_text("now\n")
        served.start(*ports)
        out, err = follower.communicate(timeout=200)
        lines = [line.split("line ")[1] for line in (*seen, *out.splitlines()) if "line " in line]
        assert [int(line) for line in lines] == list(range(1, 201)), err
        assert follower.returncode == 0
    finally:
        served.stop()
