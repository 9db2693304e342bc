"""Plans are pure and printable: golden files say what each rank sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed import registry
from trainshed.errors import UsageError
from trainshed.plan.model import Plan
from trainshed.plan.planner import plan
from trainshed.plan.render import render
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.spec.job import JobSpec
from trainshed.spec.kinds import DeviceKind

pytestmark = [pytest.mark.foundation, pytest.mark.core]
GOLDEN = Path(__file__).parent / "golden"
LISTING = ("paddle", "tensorflow")
"""Launchers whose frameworks want all ranks in one variable, which the kernel limits to 128 KiB."""
SITE = Site(python="/env/bin/python", search_path="/usr/bin:/bin", scratch="/scratch/run", library="/library")


def topology(nodes: int, devices: int, kind: DeviceKind = DeviceKind.CPU) -> Topology:
    hosts = (
        Host(
            f"worker-{i}",
            f"127.64.{i // 250}.{i % 250 + 1}",
            tuple(Device(d) for d in range(devices)),
            20000 + 10 * i,
        )
        for i in range(nodes)
    )
    return Topology.of(kind, hosts)


def job(**fields: object) -> JobSpec:
    program = {} if "command" in fields else {"code": "/code", "entry": "train.py"}
    return JobSpec.model_validate({"name": "job", **program, **fields})


CASES = {
    "pytorch-2x2": (
        job(launcher="pytorch", parameters={"lr": 0.1, "flag": None, "layer": [1, 2]}),
        2,
        2,
        SITE,
    ),
    "mindspore-2x2": (
        job(launcher="mindspore", inputs=[{"name": "data", "source": "/d"}], outputs=[{"name": "out"}]),
        2,
        2,
        SITE,
    ),
    "mindspore-1x1": (job(launcher="mindspore"), 1, 1, SITE),
    "mindspore-single-server": (job(launcher="mindspore", mode="single_server"), 2, 2, SITE),
    "command-per-node": (job(command="make train", parameters={"a": "b c"}, env={"A": "1"}), 2, 4, SITE),
    "pytorch-arguments": (
        job(launcher="pytorch", args=["train", 10, "a b", "--deep"], parameters={"lr": 0.1}),
        1,
        2,
        SITE,
    ),
    "command-arguments": (job(command="make", args=["all", "a b"], parameters={"a": 1}), 1, 2, SITE),
    "pytorch-plain-nodes": (
        job(launcher="pytorch", pre_start="hook.sh"),
        2,
        1,
        Site(
            python="/env/bin/python",
            search_path="/bin",
            scratch="/scratch/run",
            library="/library",
            isolated=False,
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_as_its_golden_file_says(name: str) -> None:
    spec, nodes, devices, site = CASES[name]
    text = render(plan(spec, topology(nodes, devices), site, "run-1"))
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"UPDATE_GOLDEN=1 rewrites {path.name} if the change is meant"


@pytest.mark.parametrize("name", CASES)
def test_a_plan_survives_json(name: str) -> None:
    spec, nodes, devices, site = CASES[name]
    made = plan(spec, topology(nodes, devices), site, "run-1")
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_global_ranks_are_unique_and_in_order() -> None:
    made = plan(job(launcher="pytorch"), topology(3, 4), SITE, "run-1")
    ranks = [p.env["RANK"] for node in made.nodes for p in node.processes]
    assert ranks == [str(i) for i in range(12)]


def test_in_single_server_mode_every_node_is_a_world_of_its_own() -> None:
    made = plan(job(launcher="pytorch", mode="single_server"), topology(2, 2), SITE, "run-1")
    for node in made.nodes:
        assert [p.env["RANK"] for p in node.processes] == ["0", "1"]
        assert node.env["MASTER_ADDR"] == node.address
    assert [p.name for n in made.nodes for p in n.processes] == ["rank-0", "rank-1", "rank-2", "rank-3"]


def test_the_jobs_own_variables_win() -> None:
    made = plan(
        job(launcher="pytorch", env={"OMP_NUM_THREADS": "7", "RANK": "5"}), topology(1, 1), SITE, "run-1"
    )
    assert made.nodes[0].env["OMP_NUM_THREADS"] == "7"
    assert made.nodes[0].processes[0].env["RANK"] == "5"


def test_variables_of_trainshed_itself_are_refused() -> None:
    with pytest.raises(UsageError, match="TRAINSHED_RANK"):
        plan(job(env={"TRAINSHED_RANK": "1"}), topology(1, 1), SITE, "run-1")


def test_devices_are_shown_to_the_ranks_by_their_kind() -> None:
    nvidia = plan(
        job(launcher="pytorch", resources="1x2:nvidia"), topology(1, 2, DeviceKind.NVIDIA), SITE, "r"
    )
    assert nvidia.nodes[0].env["CUDA_VISIBLE_DEVICES"] == "0,1"
    ascend = plan(
        job(launcher="mindspore", resources="1x2:ascend"), topology(1, 2, DeviceKind.ASCEND), SITE, "r"
    )
    assert ascend.nodes[0].env["ASCEND_VISIBLE_DEVICES"] == "0,1"
    assert [p.env["DEVICE_ID"] for p in ascend.nodes[0].processes if p.rank is not None] == ["0", "1"]


@pytest.mark.parametrize("launcher", registry.members("launcher"))
def test_a_plan_grows_linearly_up_to_4096_nodes(launcher: str) -> None:
    spec = job(launcher=launcher)
    most = 512 if launcher in LISTING else 4096
    small, large = topology(most // 8, 8), topology(most, 8)
    few = plan(spec, small, SITE, "r")
    many = plan(spec, large, SITE, "r")
    assert len(json.dumps(many.to_json())) < 8.5 * len(json.dumps(few.to_json()))


@pytest.mark.parametrize("launcher", LISTING)
def test_a_list_of_ranks_that_no_variable_holds_is_refused(launcher: str) -> None:
    with pytest.raises(UsageError, match=r"resources: .* KiB long, and the kernel's limit for a variable is"):
        plan(job(launcher=launcher, resources="4096x2"), topology(4096, 2), SITE, "r")


def test_a_jobs_own_variable_that_no_kernel_takes_is_refused() -> None:
    with pytest.raises(UsageError, match=r"env\.LONG is 195 KiB long"):
        plan(job(env={"LONG": "x" * 200_000}), topology(1, 1), SITE, "r")


def test_the_memory_of_a_large_plan_stays_in_proportion() -> None:
    code = (
        "import sys;sys.path.insert(0, sys.argv[1]);import test_plan as t;"
        "t.plan(t.job(launcher='pytorch'), t.topology(4096, 8), t.SITE, 'r');"
        # Not ru_maxrss: that one remembers the process which started this.
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400 * 1024, "KiB for 32,768 ranks"


def test_a_service_that_is_not_started_is_said() -> None:
    made = plan(job(services=["jupyter", "ssh"]), topology(1, 1), SITE, "r")
    assert "services: jupyter requested, but this engine does not start it" in made.notes
