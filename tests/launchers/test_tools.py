"""The programs that stand before horovodrun and msrun: what they change in a command line, and say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

import trainshed
from trainshed.plan import ssh

pytestmark = [pytest.mark.contracts]

FOLDER = Path(trainshed.__file__).parent / "payload" / "launch"
SEED = "-np 16 -hostfile /home/u/ib_config -p 11004 --network-interface ib0 python mnist.py ~/checkpoints/"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


horovodrun = _module("trainshed_horovodrun")
msrun = _module("trainshed_msrun")


def test_an_interface_the_node_lacks_becomes_the_one_it_has_and_the_log_says_so() -> None:
    arguments, said = horovodrun.translate(SEED.split(), ["lo", "eth0"], "lo")
    assert arguments == SEED.replace("ib0", "lo").split()
    assert said == ["--network-interface ib0: this node has no such interface; using lo"]


def test_an_interface_the_node_has_stays() -> None:
    arguments, said = horovodrun.translate(SEED.split(), ["lo", "ib0"], "ib0")
    assert (arguments, said) == (SEED.split(), [])


@pytest.mark.parametrize(
    "text", ["--network-interfaces=ib0,eth0 python t.py", "--network-interfaces ib0,eth0 python t.py"]
)
def test_both_forms_of_the_option_are_understood(text: str) -> None:
    arguments, _ = horovodrun.translate(text.split(), ["lo", "eth0"], "eth0")
    assert arguments == ["--network-interfaces", "eth0", "python", "t.py"]


def test_without_an_interface_the_one_with_the_nodes_addresses_is_named() -> None:
    arguments, said = horovodrun.translate(["-np", "4", "-H", "a:2,b:2", "python", "t.py"], ["lo"], "lo")
    assert arguments[:2] == ["--network-interfaces", "lo"] and len(said) == 1
    assert horovodrun.translate(["-np", "2", "python", "t.py"], ["lo"], "lo") == (
        ["-np", "2", "python", "t.py"],
        [],
    )


def test_the_scripts_own_arguments_are_left_alone() -> None:
    line = "-np 4 python t.py --network-interface ib0 -H x"
    assert horovodrun.translate(line.split(), ["lo"], "lo") == (line.split(), [])


def test_loopback_addresses_belong_to_the_loopback_interface() -> None:
    assert horovodrun.interface_of("127.64.3.2").startswith("lo")
    assert horovodrun.interface_of("203.0.113.77") == ""


def test_msrun_gets_what_the_job_knows() -> None:
    env = {
        "TRAINSHED_WORLD_SIZE": "4",
        "TRAINSHED_LOCAL_SIZE": "2",
        "MS_SCHED_HOST": "127.64.0.1",
        "MS_SCHED_PORT": "11002",
        "TRAINSHED_NODE": "1",
    }
    assert msrun.defaults(env) == {
        "--worker_num": "4",
        "--local_worker_num": "2",
        "--master_addr": "127.64.0.1",
        "--master_port": "11002",
        "--node_rank": "1",
        "--join": "True",
    }
    alone = msrun.defaults(env | {"TRAINSHED_WORLD_SIZE": "2"})
    assert (alone["--worker_num"], alone["--node_rank"]) == ("2", "0")


def test_msruns_options_end_where_the_script_begins() -> None:
    options, script = msrun.split(["--worker_num=4", "--log_dir", "out", "python", "t.py", "--join=False"])
    assert options == {"--worker_num": "4", "--log_dir": "out"}
    assert script == ["python", "t.py", "--join=False"]


@pytest.mark.parametrize(
    ("master", "own", "needed"),
    [
        ("127.64.0.1", "127.64.0.1", True),
        ("127.64.0.1", "127.64.0.2", False),
        ("10.0.0.1", "10.0.0.1", False),
        ("127.0.0.1", "127.0.0.1", False),
    ],
)
def test_the_scheduler_is_started_where_msrun_cannot_see_that_it_is_at_home(
    master: str, own: str, needed: bool
) -> None:
    assert msrun.needs_scheduler({"--master_addr": master}, {"TRAINSHED_NODE_ADDRESS": own}) is needed


def test_ssh_is_started_with_the_nodes_own_settings_by_the_program_before_it(tmp_path: Path) -> None:
    tools, system = tmp_path / "tools", tmp_path / "bin"
    for folder in (tools, system):
        folder.mkdir()
    (tools / "ssh").write_text(ssh.clients("/home/a b")["ssh"])
    (system / "ssh").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    for path in (tools / "ssh", system / "ssh"):
        path.chmod(0o755)
    env = os.environ | {"PATH": f"{tools}:{system}:/usr/bin:/bin"}
    done = subprocess.run(
        ["ssh", "worker-1", "echo x y"], env=env, capture_output=True, text=True, timeout=10
    )
    assert done.stdout == "-F|/home/a b/.ssh/config|worker-1|echo x y|"
