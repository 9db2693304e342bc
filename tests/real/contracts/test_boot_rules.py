"""What the contracts promise of a node really happens on one: hooks, packages, names, folders, logs, marks."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from support import Shed

pytestmark = [pytest.mark.contracts, pytest.mark.real]

LOOK = """
import json, os, pathlib, socket, sys
env = dict(os.environ)
table = env["RANK_TABLE_FILE"]
pathlib.Path(f"/tmp/seen-by-{env.get('TRAINSHED_RANK')}").touch()
found = {
    "argv": sys.argv, "cwd": os.getcwd(), "env": {k: v for k, v in env.items() if k not in ("LS_COLORS",)},
    "table": json.loads(pathlib.Path(table).read_text()) if os.path.isfile(table) else os.listdir(table),
    "hosts": {name: socket.gethostbyname(name) for name in env.get("VC_WORKER_HOSTS", "").split(",") if name},
    "tmp": sorted(os.listdir("/tmp")),
    "is_folder": {n: os.path.isdir(env[n]) for n in ("MA_JOB_DIR", "MA_LOG_DIR", "MA_HOME") if n in env},
}
print(json.dumps(found))
"""


def looked(shed: Shed, done_stdout: str) -> list[dict]:
    """What each rank saw, in the order of ranks."""
    run = json.loads(done_stdout)["id"]
    size = len(list(shed.path(run).glob("node-*/rank-*.log")))
    return [json.loads(shed.log(run, rank).splitlines()[-1]) for rank in range(size)]


def test_v2_nodes_find_hooks_names_folders_and_tables(shed: Shed, tmp_path: Path) -> None:
    job = shed.job(
        "v2",
        {
            "boot.py": LOOK,
            "ma-pre-start.sh": "export FROM_HOOK=$(pwd)\n",
            "ma-pre-start.py": "import os\nos.environ['FROM_PYTHON'] = 'yes'\n",
        },
        entry="boot.py",
        contract="modelarts-v2",
        launcher="mindspore",
        resources="2x2:ascend",
        log_url=str(tmp_path / "log"),
        outputs=[{"name": "train_url", "target": str(tmp_path / "out")}],
    )
    done = shed.cli("run", job, "--emulate", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    seen = looked(shed, done.stdout)
    assert len(seen) == 4
    for rank, found in enumerate(seen):
        env = found["env"]
        assert env["FROM_HOOK"] == "/home/ma-user/modelarts/user-job-dir" and env["FROM_PYTHON"] == "yes"
        assert found["cwd"] == f"/home/ma-user/modelarts/workspace/device{rank % 2}"
        assert found["is_folder"] == {"MA_JOB_DIR": True, "MA_LOG_DIR": True, "MA_HOME": True}
        servers = [server["server_id"] for server in found["table"]["server_list"]]
        assert list(found["hosts"].values()) == servers and len(set(servers)) == 2
        assert env["MA_CURRENT_IP"] == servers[rank // 2]
        others = {f"seen-by-{other}" for other in range(4) if other // 2 != rank // 2}
        assert f"seen-by-{rank}" in found["tmp"]
        assert not others.intersection(found["tmp"]), "/tmp is the node's own"
    summary = json.loads(done.stdout)
    logs = sorted(path.name for path in (tmp_path / "log").iterdir())
    job_id = seen[0]["env"]["MA_VJ_NAME"].removeprefix("ma-job-")
    assert logs == [f"modelarts-job-{job_id}-worker-{i}.log" for i in (0, 1)]
    joined = (tmp_path / "log" / logs[1]).read_text()
    assert "[rank-2] " in joined and "[rank-3] " in joined and "[rank-0] " not in joined
    assert summary["emulated"] is True
    assert summary["emulated"] is True
    assert "EMULATED" in shed.cli("show", "last").stdout


def test_v1_on_nodes_without_a_root_of_their_own(shed: Shed) -> None:
    job = shed.job(
        "plain", {"boot.py": LOOK}, entry="boot.py", contract="modelarts-v1", resources="1x1:ascend"
    )
    done = shed.cli("run", job, "--emulate", "--json", "-o", "isolation=plain")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = looked(shed, done.stdout)
    assert found["cwd"].startswith(str(shed.home)) and found["cwd"].endswith("/home/work/workspace/device0")
    assert len(found["table"]["server_list"]) == 1


def _wheel(folder: Path, requires: str = "") -> None:
    wheel = folder / "only_here-1-py3-none-any.whl"
    needed = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("only_here.py", "WORD = 'installed'\n")
        archive.writestr(
            "only_here-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: only-here\nVersion: 1\n{needed}"
        )
        archive.writestr(
            "only_here-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("only_here-1.dist-info/RECORD", "")


def test_packages_of_the_job_are_installed_for_its_node_alone(shed: Shed) -> None:
    job = shed.job(
        "packages",
        {
            "boot.py": "import only_here; print(only_here.WORD, only_here.__file__)",
            "pip-requirements.txt": "--no-index\n./only_here-1-py3-none-any.whl\n",
        },
        entry="boot.py",
        contract="modelarts-v1",
    )
    _wheel(job.parent)
    done = shed.cli("run", job, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    line = shed.log(json.loads(done.stdout)["id"], 0).strip()
    assert line == "installed /tmp/.trainshed/packages/only_here.py"


@pytest.mark.field
def test_packages_that_the_environment_has_are_not_installed_again(shed: Shed) -> None:
    """A small package that needs a framework of several GB does not bring that framework along."""
    script = (
        "import os, only_here, yaml; print(only_here.WORD, sorted(os.listdir('/tmp/.trainshed/packages')))"
    )
    job = shed.job(
        "needing",
        {"boot.py": script, "list.txt": "--no-index\nPyYAML\n./only_here-1-py3-none-any.whl\n"},
        entry="boot.py",
        requirements="list.txt",
    )
    _wheel(job.parent, "PyYAML>=5")
    done = shed.cli("run", job, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = shed.log(json.loads(done.stdout)["id"], 0).strip()
    assert found.startswith("installed [") and "only_here.py" in found and "yaml" not in found.lower()


def test_packages_that_cannot_be_installed_end_the_run_and_say_why(shed: Shed) -> None:
    job = shed.job(
        "missing",
        {"boot.py": "", "pip-requirements.txt": "--no-index\nno-such-package-anywhere\n"},
        entry="boot.py",
        contract="modelarts-v1",
    )
    done = shed.cli("run", job)
    assert done.returncode == 1
    assert "pip, installing pip-requirements.txt, exited with 1" in done.stderr
    assert "no-such-package-anywhere" in done.stderr


def test_a_log_that_cannot_be_left_does_not_cost_the_run(shed: Shed, tmp_path: Path) -> None:
    taken = tmp_path / "log" / "taken"
    job = shed.job(
        "unsaved",
        {"boot.py": "print('trained')"},
        entry="boot.py",
        contract="modelarts-v1",
        log_url=str(taken),
    )
    spec = json.loads(job.read_text())
    # A file stands where the node's log must go as a folder.
    name = "jobx-job-unsaved-0.log"
    (taken / name).mkdir(parents=True)
    job.write_text(json.dumps(spec | {"options": {"job_id": "jobx"}}))
    done = shed.cli("run", job, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    events = (shed.path(json.loads(done.stdout)["id"]) / "events" / "node-0-1.jsonl").read_text()
    assert f"cannot save the log {name}" in events


def test_single_server_nodes_train_alone(shed: Shed) -> None:
    job = shed.job(
        "alone",
        {"boot.py": LOOK},
        entry="boot.py",
        contract="modelarts-v1",
        launcher="mindspore",
        resources="2x2:ascend",
        mode="single_server",
    )
    done = shed.cli("run", job, "--emulate", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    seen = looked(shed, done.stdout)
    assert len(seen) == 4
    for rank, found in enumerate(seen):
        env = found["env"]
        assert (env["RANK_ID"], env["RANK_SIZE"], env["DLS_TASK_NUMBER"]) == (str(rank % 2), "2", "1")
        (server,) = found["table"]["server_list"]
        assert server["server_id"] == env["BATCH_CURRENT_HOST"]


def test_without_npus_a_job_for_them_is_refused_with_the_reason(shed: Shed) -> None:
    job = shed.job("npu", {"boot.py": ""}, entry="boot.py", resources="1x8:ascend")
    done = shed.cli("run", job)
    assert done.returncode != 0
    assert "8 ascend devices" in done.stderr and "--emulate" in done.stderr
    assert not list(shed.home.glob("runs/*"))


def test_apulis_workers_find_one_another(shed: Shed) -> None:
    look = (
        "set -e; getent hosts worker-1 ib-worker-1; cat $HOME/ib_config; ls $HOME/tensorboard/$DLWS_JOB_ID;"
        " test -f $MINDSPORE_HCCL_CONFIG_PATH; test -d /work; test -d /data; cat /job/hostfile; echo ok"
    )
    job = shed.job("apulis", command=look, contract="apulis", resources="2x2:ascend")
    done = shed.cli("run", job, "--emulate", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    run = shed.path(json.loads(done.stdout)["id"])
    for index in (0, 1):
        text = (run / f"node-{index}" / f"node-{index}.log").read_text()
        assert text.endswith("worker-0 slots=2\nworker-1 slots=2\nok\n")
        assert "ib-worker-0 slots=2\nib-worker-1 slots=2\nlogs\n" in text


def test_an_images_own_home_stays_and_the_code_is_put_into_it(shed: Shed, tmp_path: Path) -> None:
    tool, busybox = shutil.which("podman"), Path("/bin/busybox")
    if tool is None or not busybox.exists():
        pytest.skip("apt-get install podman busybox-static")
    root = tmp_path / "image"
    (root / "bin").mkdir(parents=True)
    shutil.copy(busybox, root / "bin")
    for name in ("sh", "bash", "cat", "ls"):
        (root / "bin" / name).symlink_to("busybox")
    # Its bash is another name of sh, which busybox takes by its first argument alone.
    (root / "bin" / "bash").unlink()
    (root / "bin" / "bash").write_text('#!/bin/busybox sh\nexec /bin/busybox sh "$@"\n')
    (root / "bin" / "bash").chmod(0o755)
    (root / "home" / "work").mkdir(parents=True)
    (root / "home" / "work" / "run_train.sh").write_text("echo wrapper of the image; exec $*\n")
    image = "localhost/trainshed-home:test"
    packed = subprocess.run(["tar", "-C", root, "-c", "."], capture_output=True, check=True).stdout
    subprocess.run([tool, "import", "-", image], input=packed, capture_output=True, check=True, timeout=120)
    try:
        job = shed.job(
            "image",
            {"run.sh": "echo code as $DLS_TASK_INDEX; cat $RANK_TABLE_FILE/jobstart_hccl.json"},
            command="sh /home/work/run_train.sh sh /home/work/user-job-dir/code-image/run.sh",
            contract="modelarts-v1",
            image=image,
            resources="1x1:ascend",
        )
        done = shed.cli("run", job, "--emulate")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "wrapper of the image" in done.stdout and "code as 0" in done.stdout
        assert '"pod_name": "job' in done.stdout
    finally:
        subprocess.run([tool, "rmi", "-f", image], capture_output=True, timeout=60)
