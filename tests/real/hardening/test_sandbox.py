"""The sandbox as a boundary: a job has its own files and nothing else, and cannot write its own record."""

from __future__ import annotations

import json
import os
import platform
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT, Shed, public_python

pytestmark = [pytest.mark.hardening, pytest.mark.foundation, pytest.mark.real]


def run(shed: Shed, script: str, *options: str, **fields: object) -> tuple[dict[str, object], str]:
    job = shed.job(files={"t.sh": script}, entry="t.sh", **fields)
    done = shed.cli("run", job, "--json", *options)
    summary = json.loads(done.stdout)
    return summary, shed.log(str(summary["id"]), 0)


def test_a_job_cannot_write_its_own_record(shed: Shed) -> None:
    line = json.dumps(
        {"v": 1, "time": 1.0, "kind": "finished", "state": "succeeded", "exit_code": 0, "name": "job"}
    )
    script = f"""
        run=$(dirname $(dirname $TRAINSHED_METRICS_DIR))
        echo found $(ls -A $run)
        for f in $run/events/end.jsonl $run/events/node-0-1.jsonl $run/plan.json; do
          mkdir -p $(dirname $f); echo '{line}' >> $f && echo WRITTEN $f
        done
        find / -name '*.jsonl' -path '*events*' 2>/dev/null
        exit 9
    """
    summary, log = run(shed, script)
    assert summary["state"] == "failed" and summary["exit_code"] == 9
    assert "WRITTEN" not in log and "found node-0" in log


def test_what_a_job_reports_never_takes_the_place_of_what_its_agent_wrote(shed: Shed) -> None:
    script = """
        cd $TRAINSHED_METRICS_DIR
        echo mine > meter-rank-0.jsonl
        echo forged > metrics.jsonl; echo forged > rank-1.log; ln -s /etc/passwd link; mkfifo pipe
        echo done
    """
    summary, _ = run(shed, script)
    node = shed.path(str(summary["id"])) / "node-0"
    assert (node / "meter-rank-0.jsonl").read_text() == "mine\n"
    assert not (node / "rank-1.log").exists() and not (node / "link").exists()
    assert "forged" not in (node / "metrics.jsonl").read_text() if (node / "metrics.jsonl").exists() else True
    notes = shed.cli("show", str(summary["id"])).stdout
    for name in ("metrics.jsonl", "rank-1.log", "link", "pipe"):
        assert f"reports/{name} was not collected" in notes


def test_a_job_has_no_capabilities_and_changes_nothing_of_the_system(shed: Shed) -> None:
    script = """
        grep -E '^Cap(Eff|Prm|Bnd|Inh|Amb)|NoNewPrivs' /proc/self/status
        mount -o remount,rw /usr 2>/dev/null && echo REMOUNTED
        touch /usr/x /etc/x /opt/x 2>/dev/null && echo TOUCHED
        cat /proc/sys/kernel/core_pattern > /tmp/p; cat /tmp/p > /proc/sys/kernel/core_pattern && echo SYSCTL
        grep -vE '^root:[*]:' /etc/shadow && echo SHADOW
        ls /dev/vda /dev/sda /dev/mem /dev/kmsg 2>/dev/null && echo DEVICE
        echo end
    """
    _, log = run(shed, script)
    values = dict(line.split(":") for line in log.splitlines() if line.startswith(("Cap", "NoNew")))
    assert {int(v, 16) for name, v in values.items() if name.startswith("Cap")} == {0}
    assert values["NoNewPrivs"].strip() == "1"
    for word in ("REMOUNTED", "TOUCHED", "SYSCTL", "SHADOW", "DEVICE"):
        assert word not in log.split("end")[0].replace("core_pattern", ""), log


def test_a_node_sees_neither_other_runs_nor_keys_nor_the_users_home(shed: Shed, tmp_path: Path) -> None:
    other = shed.submit(shed.job("other", {"t.sh": "echo theirs"}, entry="t.sh"))
    shed.cli("wait", other)
    (shed.home / "store").mkdir(exist_ok=True)
    (shed.home / "store" / "keys.json").write_text("key")
    beside = tmp_path / "beside"
    beside.write_text("private")
    script = f"""
        ls -A {shed.home} {shed.home}/runs
        cat {shed.home}/store/keys.json {beside} && echo READ
        ls -A {pwd.getpwuid(os.getuid()).pw_dir}
        touch {shed.home}/x {pwd.getpwuid(os.getuid()).pw_dir}/x 2>/dev/null && echo TOUCHED; echo end
    """
    summary, log = run(shed, script)
    assert "READ" not in log and other not in log and not (shed.home / "x").exists()
    assert ".ssh" not in log and ".bash" not in log
    assert summary["state"] == "succeeded"


def test_a_home_below_the_code_is_hidden_too(tmp_path: Path) -> None:
    project = tmp_path / "project"
    home = project / ".trainshed"
    home.mkdir(parents=True)
    (home / "secret").write_text("key")
    shed = Shed(home)
    (project / "t.sh").write_text(f"cat {home}/secret && echo READ; ls -A {home} {home}/runs; echo end")
    job = project / "job.yaml"
    job.write_text(json.dumps({"name": "inside", "code": ".", "entry": "t.sh"}))
    done = shed.cli("run", job, "--json")
    log = shed.log(json.loads(done.stdout)["id"], 0)
    assert "READ" not in log and "end" in log


def test_the_agents_memory_variables_and_view_are_its_own(shed: Shed) -> None:
    script = """
        cat /proc/1/environ 2>/dev/null | grep -q . && echo ENVIRON
        readlink /proc/1/root /proc/1/cwd /proc/1/exe /proc/1/fd/0 && echo VIEW
        head -c 1 /proc/1/mem 2>/dev/null && echo MEMORY
        kill -9 1; kill -STOP 1
        env | grep -q SUBMITTERS_OWN && echo LEAKED
        echo end
    """
    job = shed.job(files={"t.sh": script}, entry="t.sh")
    done = shed.cli("run", job, "--json", env={"SUBMITTERS_OWN": "value"})
    summary = json.loads(done.stdout)
    assert summary["state"] == "succeeded", "a job cannot end its agent"
    assert shed.log(summary["id"], 0).split() == ["end"]


KEYRING = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
add_key, _, keyctl = range(248, 251) if platform.machine() == "x86_64" else range(217, 220)
print("added", libc.syscall(add_key, b"user", b"trainshed-test-job", b"x", 1, -4) >= 0)
found = libc.syscall(keyctl, 10, -4, b"user", b"trainshed-test", 0)  # search the user's keyring
print("found", found >= 0, os.strerror(ctypes.get_errno()))
"""
FORGET = KEYRING + "libc.syscall(keyctl, 9, found, -4)\n"
"""And takes it out of the keyring again."""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="numbers of system calls")
def test_the_users_keyring_is_out_of_reach(shed: Shed, tmp_path: Path) -> None:
    """It belongs to the user, not to a namespace: tickets and keys of whoever submitted lie in it."""
    mine = KEYRING.replace("trainshed-test-job", "trainshed-test")
    outside = subprocess.run([sys.executable, "-c", mine], capture_output=True, text=True, check=True)
    if "found True" not in outside.stdout:
        pytest.skip(f"this kernel keeps no keys for us: {outside.stdout}")
    try:
        _, log = run(shed, f"{sys.executable} - <<'END'\n{KEYRING}END\n")
    finally:
        forget = FORGET.replace("trainshed-test-job", "trainshed-test")
        subprocess.run([sys.executable, "-c", forget], capture_output=True, check=True)
    assert log.splitlines() == ["added False", "found False Operation not permitted"], log


def test_files_that_a_job_names_are_there_read_only(shed: Shed, tmp_path: Path) -> None:
    folder = Path("/srv") / f"trainshed-test-{os.getpid()}"
    if os.geteuid() != 0:
        pytest.skip("a folder outside /tmp takes root")
    folder.mkdir(parents=True)
    try:
        (folder / "data").write_text("content")
        job = shed.job(command=f"cat {folder}/data && ! touch {folder}/x && ls /srv")
        done = shed.cli("run", job, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert not (folder / "x").exists()
        hidden = shed.job("hidden", command=f"find / -xdev -name {folder.name} 2>/dev/null | grep .")
        assert shed.cli("run", hidden).returncode != 0
        exposed = shed.cli("run", hidden, "-o", f"expose={folder}")
        assert exposed.returncode == 0, exposed.stderr
        wrong = shed.cli("run", hidden, "-o", "expose=nowhere")
        assert wrong.returncode == 64 and "expose='nowhere'" in wrong.stderr
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_an_ordinary_user_gets_the_same_boundary(tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(ROOT / "src" / "trainshed", package / "trainshed")
    home = tmp_path / "home"
    home.mkdir()
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == "root" and not path.stat().st_mode & 0o005:
            path.chmod(0o755)
    os.chown(home, 65534, 65534)
    job = tmp_path / "job.json"
    job.write_text(
        json.dumps(
            {
                "name": "ordinary",
                "command": "grep CapBnd /proc/self/status; ls $TRAINSHED_METRICS_DIR/..; "
                "touch $TRAINSHED_METRICS_DIR/../x || echo refused",
            }
        )
    )
    env = {"HOME": str(home), "TRAINSHED_HOME": str(home / "ts"), "PATH": "/usr/bin:/bin"}
    env["PYTHONPATH"] = f"{package}:{Path(sys.prefix) / 'lib' / 'python3.11' / 'site-packages'}"
    done = subprocess.run(
        [public_python(), "-m", "trainshed.cli.main", "run", str(job)],
        env=env,
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CapBnd:\t0000000000000000" in done.stdout and "refused" in done.stdout


def test_a_folder_that_the_job_names_does_not_hide_the_nodes_own(shed: Shed) -> None:
    """The home of this contract is below /home, which the command names as a whole."""
    job = shed.job(contract="apulis", command="ls /home >/dev/null; touch ~/written && ls ~/written")
    done = shed.cli("run", job)
    assert done.returncode == 0, done.stderr
