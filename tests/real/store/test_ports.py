"""Every port and socket of the embedded store, tried without a key by another user and from inside a job."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support import public_python
from trainshed.store import read_bytes, write_bytes
from trainshed.store.seaweed import embedded

pytestmark = [pytest.mark.store, pytest.mark.real, pytest.mark.hardening]

INTRUDER = Path(__file__).with_name("intruder.py")
NOBODY = 65534


def addresses(endpoint: embedded.Endpoint) -> list[str]:
    """Where the store and its watcher listen, as the kernel knows it."""
    status = embedded.status(endpoint.home)
    found = set()
    for pid in (status.pid, status.store_pid):
        for one in psutil.Process(pid).net_connections("all"):
            if one.status == psutil.CONN_LISTEN:
                found.add(str(one.laddr.port))
            elif isinstance(one.laddr, str) and one.laddr:
                found.add(one.laddr)
    assert len([one for one in found if one.isdigit()]) >= 8, "HTTP and gRPC of four parts"
    return sorted(found)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that another user can write; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="trainshed-intruder-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def found(output: str) -> list[str]:
    line = next(line for line in output.splitlines() if "FOUND " in line)
    return list(json.loads(line.partition("FOUND ")[2]))


@pytest.fixture
def kept(endpoint: embedded.Endpoint) -> Iterator[None]:
    """An object that must outlive the attack."""
    write_bytes("s3://kept/x", b"untouched", credentials=endpoint.credentials)
    yield
    assert read_bytes("s3://kept/x", credentials=endpoint.credentials) == b"untouched"


@pytest.mark.usefixtures("kept")
def test_another_user_gets_nothing_at_any_port(endpoint: embedded.Endpoint, public_folder: Path) -> None:
    done = subprocess.run(
        [
            public_python(),
            "-I",
            "-c",
            INTRUDER.read_text(),
            embedded.find_weed(),
            str(public_folder),
            *addresses(endpoint),
        ],
        user=NOBODY if os.geteuid() == 0 else None,
        env={"PATH": os.environ["PATH"], "HOME": str(public_folder)},
        cwd=public_folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert found(done.stdout) == []


@pytest.mark.usefixtures("kept")
def test_a_job_gets_nothing_at_any_port(endpoint: embedded.Endpoint, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "intruder.py").write_text(INTRUDER.read_text())
    arguments = " ".join([embedded.find_weed(), ".", *addresses(endpoint)])
    job = {
        "name": "intruder",
        "code": str(tmp_path / "code"),
        "command": f"{sys.executable} intruder.py {arguments}",
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    done = subprocess.run(
        [Path(sys.executable).with_name("trainshed"), "run", str(tmp_path / "job.yaml")],
        env={**os.environ, "TRAINSHED_HOME": str(endpoint.home)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert found(done.stdout) == []
