"""Old arguments of Paddle's launcher become today's, for that launcher alone."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import trainshed

pytestmark = [pytest.mark.contracts]

FOLDER = Path(trainshed.__file__).parent / "payload" / "paddle_launch"
START = FOLDER.parent / "start"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "paddle_arguments", FOLDER / "trainshed_paddle_arguments.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


arguments = load()
EIGHT = "--selected_gpus=0,1,2,3,4,5,6,7"
TWO_NODES = ["--cluster_node_ips=10.0.0.1,10.0.0.2", "--node_ip=10.0.0.2", "--started_port=6170", EIGHT]


def test_two_nodes_of_eight_as_the_paddle_guide_starts_them() -> None:
    got = arguments.translate([*TWO_NODES, "train_with_fleet.py"], devices=8, on_gpu=False)
    assert got.arguments == [
        "--ips=10.0.0.1,10.0.0.2",
        "--host=10.0.0.2",
        "--start_port=6170",
        "--nproc_per_node=8",
        "train_with_fleet.py",
    ]
    assert got.warnings == []
    assert "\n" not in got.message
    assert "--cluster_node_ips, --node_ip, --started_port, --selected_gpus" in got.message


def test_one_node_as_the_paddle_guide_starts_it() -> None:
    got = arguments.translate([EIGHT, "--log_dir", "mylog", "train.py"], devices=8, on_gpu=False)
    assert got.arguments == ["--nproc_per_node=8", "--log_dir=mylog", "train.py"]


def test_on_gpus_the_devices_keep_their_numbers() -> None:
    got = arguments.translate(["--selected_gpus", "2,5", "train.py"], devices=8, on_gpu=True)
    assert got.arguments == ["--devices=2,5", "train.py"]


@pytest.mark.parametrize(("on_gpu", "option"), [(False, "--nproc_per_node=2"), (True, "--devices=0,1")])
def test_a_job_with_fewer_devices_starts_fewer_processes_and_warns(on_gpu: bool, option: str) -> None:
    got = arguments.translate([EIGHT, "train.py"], devices=2, on_gpu=on_gpu)
    assert got.arguments == [option, "train.py"]
    assert got.warnings == [
        "--selected_gpus names 8 devices, the job has 2 on this node: starting 2 processes"
    ]


def test_an_unknown_number_of_devices_changes_nothing() -> None:
    got = arguments.translate([EIGHT, "train.py"], devices=None, on_gpu=False)
    assert (got.arguments[0], got.warnings) == ("--nproc_per_node=8", [])


def test_without_selected_gpus_all_devices_of_the_job_are_used() -> None:
    got = arguments.translate(["--node_ip=a", "t.py"], devices=4, on_gpu=False)
    assert got.arguments == ["--host=a", "--nproc_per_node=4", "t.py"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["train.py"],
        ["--nproc_per_node=2", "--ips=a,b", "train.py"],
        ["--log_dir", "x", "train.py", "--selected_gpus=0,1"],  # the script's own argument
        ["train.py", *TWO_NODES],
    ],
)
def test_what_is_not_old_stays_untouched(words: list[str]) -> None:
    assert arguments.translate(words, devices=2, on_gpu=False) is None


def test_the_scripts_arguments_are_kept_as_they_are() -> None:
    tail = ["train.py", "--node_ip=mine", "--lr", "0.1", "--selected_gpus", "9", ""]
    got = arguments.translate(["--selected_gpus=0", *tail], devices=1, on_gpu=False)
    assert got.arguments == ["--nproc_per_node=1", *tail]


def test_ports_in_the_list_of_nodes_are_dropped() -> None:
    got = arguments.translate(
        ["--cluster_node_ips=h0:6000,h1:6001", "--node_ip=h1", "t.py"], devices=1, on_gpu=False
    )
    assert got.arguments[:2] == ["--ips=h0,h1", "--host=h1"]


def test_switches_that_are_gone_are_left_out() -> None:
    words = ["--use_paddlecloud", "--print_config=True", "--selected_gpus=0", "t.py"]
    assert arguments.translate(words, 1, False).arguments == ["--nproc_per_node=1", "t.py"]


def test_the_new_form_counts_when_both_are_given() -> None:
    words = ["--ips=a", "--cluster_node_ips=b", "--node_ip=b", "--gpus=1", "--selected_gpus=0", "t.py"]
    got = arguments.translate(words, 1, True)
    assert got.arguments == ["--host=b", "--ips=a", "--gpus=1", "t.py"]
    assert len(got.warnings) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster_node_ips=a,b", "--node_ip=c"], "--node_ip=c is not in --cluster_node_ips=a,b"),
        (["--cluster_node_ips=a,b"], "without --node_ip"),
        (["--cluster_node_ips=a,a", "--node_ip=a"], "names a node twice"),
        (["--started_port=x"], "--started_port=x is not a port"),
        (["--started_port=70000"], "is not a port"),
        (["--selected_gpus=a,b"], "not a list of device numbers"),
        (["--selected_gpus=1,1"], "names a device twice"),
    ],
)
def test_what_would_start_the_wrong_ranks_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(arguments.ArgumentsError, match=message):
        arguments.translate([*words, "t.py"], 1, False)


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """Modules that print the arguments they get, in the places of Paddle's launcher and of others."""
    show = "import json, sys; print(json.dumps(sys.argv[1:]))\n"
    for name in ("paddle/distributed/launch", "paddle/distributed/other"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "__main__.py").write_text(show)
        (folder / "__init__.py").write_text("")
    (tmp_path / "launch.py").write_text(show)
    return tmp_path


def python(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{START}:{FOLDER}:{folder}",
        "TRAINSHED_START": "trainshed_paddle_launch",
        "TRAINSHED_LOCAL_SIZE": "2",
    }
    return subprocess.run(
        [sys.executable, *words], env=environment | variables, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "start",
    [
        ["-m", "paddle.distributed.launch"],
        ["-u", "-mpaddle.distributed.launch"],
        ["-W", "ignore", "-Bmpaddle.distributed.launch"],
    ],
)
def test_the_hook_changes_what_the_launcher_sees_and_says_so(stand_in: Path, start: list[str]) -> None:
    done = python(stand_in, *start, *TWO_NODES, "train.py", "-m", "x")
    assert json.loads(done.stdout) == [
        "--ips=10.0.0.1,10.0.0.2",
        "--host=10.0.0.2",
        "--start_port=6170",
        "--nproc_per_node=2",
        "train.py",
        "-m",
        "x",
    ]
    first, second = done.stderr.splitlines()
    assert first.startswith("trainshed: paddle.distributed.launch of today does not know --cluster_node_ips")
    assert second.startswith("trainshed: warning: --selected_gpus names 8 devices, the job has 2")


def test_the_hook_leaves_every_other_program_alone(stand_in: Path) -> None:
    for start in (
        ["-m", "paddle.distributed.other"],
        [str(stand_in / "launch.py")],
        [str(stand_in / "launch.py"), "-m", "paddle.distributed.launch"],
        ["-m", "launch", "-m", "paddle.distributed.launch"],
        ["-c", "import json, sys; print(json.dumps(sys.argv[1:]))"],
    ):
        done = python(stand_in, *start, *TWO_NODES)
        assert json.loads(done.stdout)[-4:] == TWO_NODES
        assert done.stderr == ""


def test_the_hook_is_silent_when_nothing_is_old(stand_in: Path) -> None:
    done = python(stand_in, "-m", "paddle.distributed.launch", "--nproc_per_node=3", "t.py")
    assert (json.loads(done.stdout), done.stderr) == (["--nproc_per_node=3", "t.py"], "")


def test_a_start_with_wrong_ranks_ends_with_one_line(stand_in: Path) -> None:
    words = ["--cluster_node_ips=a,b", "--node_ip=c", "t.py"]
    done = python(stand_in, "-m", "paddle.distributed.launch", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("trainshed: cannot start paddle.distributed.launch: --node_ip=c is not in")
    assert len(done.stderr.splitlines()) == 1


def test_another_sitecustomize_still_runs(stand_in: Path) -> None:
    (stand_in / "sitecustomize.py").write_text("import sys; sys.stderr.write('theirs\\n')\n")
    done = python(stand_in, "-c", "pass", PYTHONPATH=f"{START}:{FOLDER}:{stand_in}:{START}")
    assert (done.returncode, done.stderr) == (0, "theirs\n")
