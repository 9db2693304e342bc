"""A laptop without Slurm: the cluster is reached over a real SSH connection to a login node."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_site import Site

from support import until
from trainshed.engines.slurm.profile import save
from trainshed.errors import RefusedError, UsageError
from trainshed.runs import site as sites
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.slurm, pytest.mark.real]


@pytest.fixture
def laptop(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The same machine seen from elsewhere: another home, no Slurm, and a profile with a login node."""
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("apt-get install openssh-server")
    folder = site.folder / "ssh"
    folder.mkdir()
    for name in ("host", "me"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = [
        "StrictModes=no", "UsePAM=no", "ListenAddress=127.0.0.1", f"Port={port}", f"HostKey={folder}/host",
        f"AuthorizedKeysFile={folder}/me.pub", f"PidFile={folder}/pid",
    ]  # fmt: skip
    command = ["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen([*command, *(w for s in settings for w in ("-o", s))], stderr=log)
    try:
        until(lambda: _answers(port), 10, "sshd")
        home = site.folder / "laptop"
        home.mkdir()
        there = {"home": str(site.folder / "home"), "slurm_conf": os.environ["SLURM_CONF"]}
        options = [
            "-i",
            f"{folder}/me",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
        ]
        monkeypatch.setenv("TRAINSHED_HOME", str(home))
        monkeypatch.delenv("SLURM_CONF")
        user = os.environ.get("USER") or "root"
        login = f"{user}@127.0.0.1:{port}"
        save("slurm", {"login": login, "python": sys.executable, "ssh": options, **there}, home)
        yield site
        leave = [*sites._ssh(sites.RemoteSite(login))[:-2], "-O", "exit", f"{user}@127.0.0.1"]
        subprocess.run(leave, capture_output=True, check=False)
        monkeypatch.setenv("SLURM_CONF", there["slurm_conf"])
    finally:
        daemon.terminate()
        daemon.wait(10)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


SCRIPT = """
import os, sys, time
folder = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--data")][0]
print("found", open(folder + "/x").read(), len(os.environ["KEY"]), flush=True)
open(os.environ["TRAINSHED_OUTPUT_DIR"] + "/model", "w").write("weights")
while "wait" in os.environ.get("MODE", ""):
    time.sleep(0.1)
"""


def test_a_run_from_a_laptop_brings_its_files_there_and_its_results_back(
    laptop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "hush-hush-4412")
    (laptop.folder / "data").mkdir()
    (laptop.folder / "data/x").write_text("content")
    fields = {
        "inputs": [{"name": "data", "source": str(laptop.folder / "data")}],
        "outputs": [{"name": "out"}],
        "secrets": {"KEY": {"env": "MY_KEY"}},
    }
    found = {check.name: check.good for check in laptop.client.describe("slurm")}
    assert found["login"] and found["controller"]
    run = laptop.submit(laptop.job(SCRIPT, **fields))
    assert run.path.parent == laptop.folder / "laptop/runs"
    ended = laptop.wait(run)
    assert ended.state is RunState.SUCCEEDED, laptop.driver_log(run)
    assert "found content 14" in (run.node(1) / "rank-1.log").read_text()
    assert (run.path / "outputs/node-0/out/model").read_text() == "weights"
    written = [p for name in ("home", "laptop") for p in (laptop.folder / name).rglob("*") if p.is_file()]
    assert not any(b"hush-hush" in path.read_bytes() for path in written)
    laptop.remove(run)
    assert not list((laptop.folder / "home/uploads").iterdir()), "uploads go with the run"
    assert not list((laptop.folder / "home/runs").glob("job-*"))

    waiting = laptop.submit(laptop.job(SCRIPT, **fields, env={"MODE": "wait"}))
    laptop.wait_log(waiting, "found")
    laptop.stop(waiting, "seen enough")
    ended = laptop.wait(waiting, 60)
    assert (ended.state, ended.reason) == (RunState.STOPPED, "seen enough")


def test_what_the_login_node_refuses_is_told_here_and_leaves_nothing(laptop: Site) -> None:
    with pytest.raises(RefusedError, match=r"(?i)partition"):
        laptop.submit(laptop.job("print()"), partition="nowhere")
    assert not laptop.client.runs() and not list((laptop.folder / "home/uploads").iterdir())
    with pytest.raises(UsageError, match=r"outputs\.out\.target"):
        laptop.submit(laptop.job("print()", outputs=[{"name": "out", "target": "/somewhere"}]))
