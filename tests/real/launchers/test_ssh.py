"""SSH between the nodes of a run, with a real sshd on each."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support import Shed, processes_of, until
from trainshed import registry
from trainshed.api import Client
from trainshed.plan.model import Plan
from trainshed.runs.states import RunState
from trainshed.spec.job import JobSpec

pytestmark = [
    pytest.mark.contracts,
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("sshd") is None, reason="apt-get install openssh-server"),
]

OTHER = "worker-$((1 - TRAINSHED_NODE))"


def test_nodes_reach_one_another_by_all_their_names_without_a_password(train: Callable) -> None:
    command = (
        f"for name in {OTHER} ib-{OTHER} worker-$TRAINSHED_NODE; do echo $name is $(ssh $name hostname); done"
    )
    run = train(launcher="command", services=["ssh"], command=command)
    assert run.code == 0, run.said
    for here, there in ((0, 1), (1, 0)):
        lines = (run.path / f"node-{here}" / f"node-{here}.log").read_text().splitlines()
        assert lines == [
            f"worker-{there} is worker-{there}",
            f"ib-worker-{there} is worker-{there}",
            f"worker-{here} is worker-{here}",
        ]


def test_what_is_started_through_ssh_has_the_environment_and_files_of_its_node(train: Callable) -> None:
    command = (
        f"echo node $TRAINSHED_NODE > /tmp/mine; sync; ssh {OTHER} "
        "'until [ -s /tmp/mine ]; do sleep 0.05; done; "
        'echo "$(cat /tmp/mine) is $TRAINSHED_NODE at $TRAINSHED_NODE_ADDRESS in $PWD: $WORDS; $TOKEN"\''
    )
    os.environ["A_SECRET_OF_THIS_TEST"] = "hidden-value-4711"
    try:
        run = train(
            launcher="command",
            services=["ssh"],
            command=command,
            env={"WORDS": 'it\'s "two" words'},
            secrets={"TOKEN": {"env": "A_SECRET_OF_THIS_TEST"}},
        )
    finally:
        del os.environ["A_SECRET_OF_THIS_TEST"]
    assert run.code == 0, run.said
    for here, there in ((0, 1), (1, 0)):
        text = (run.path / f"node-{here}" / f"node-{here}.log").read_text()
        assert text.startswith(f"node {there} is {there} at 127.64."), text
        assert 'in /home/trainshed: it\'s "two" words; ' in text
        assert text.endswith("; ***\n"), "the job's secret reaches the session, and the log only masked"


def test_nodes_without_a_file_system_of_their_own_reach_one_another_too(shed: Shed) -> None:
    command = f"ssh {OTHER} 'echo reached $TRAINSHED_NODE'; cat $TRAINSHED_HOSTFILE"
    job = shed.job("job", launcher="command", services=["ssh"], command=command, resources="2x1")
    run = json.loads(shed.cli("run", job, "-o", "isolation=plain", "--json").stdout)
    log = (Path(run["path"]) / "node-1" / "node-1.log").read_text()
    assert log.splitlines() == ["reached 0", "worker-0 slots=1", "worker-1 slots=1"]


def test_files_are_copied_with_scp_and_sessions_end_with_the_codes_of_their_commands(train: Callable) -> None:
    command = (
        f"echo from $TRAINSHED_NODE > file; scp -q file {OTHER}:/tmp/got && ssh {OTHER} cat /tmp/got; "
        f"ssh {OTHER} 'exit 7'; echo code $?"
    )
    run = train(launcher="command", services=["ssh"], command=command)
    assert run.code == 0, run.said
    assert (run.path / "node-0" / "node-0.log").read_text().splitlines() == ["from 0", "code 7"]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="apt-get install openmpi-bin")
def test_mpirun_starts_processes_on_both_nodes(train: Callable) -> None:
    command = (
        "mpirun -hostfile /job/hostfile bash -c 'echo MPI $OMPI_COMM_WORLD_RANK $(hostname) $TRAINSHED_NODE'"
    )
    run = train(launcher="horovod", command=command)
    assert run.code == 0, run.said + run.text
    found = sorted(line for line in run.text.splitlines() if line.startswith("MPI"))
    assert found == [f"MPI {rank} worker-{rank // 2} {rank // 2}" for rank in range(4)]


def test_private_keys_are_nowhere_in_the_run_and_nobody_else_is_let_in(shed: Shed) -> None:
    wait = "until [ -e $TRAINSHED_METRICS_DIR/go ]; do sleep 0.05; done"
    job = shed.job("job", launcher="command", services=["ssh"], command=wait, resources="2x1")
    run = shed.path(shed.submit(job))
    try:
        until(lambda: shed.show(run.name)["state"] == "running", 120, "the run's start")
        plan = Plan.from_json(json.loads((run / "plan.json").read_text()))
        scratch = shed.home / "scratch" / run.name
        keys = sorted(scratch.glob("node-*/home/trainshed/.ssh/id_ed25519"))
        assert len(keys) == 2 and keys[0].read_bytes() != keys[1].read_bytes()
        for folder in {key.parent for key in keys}:
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            loose = [f.name for f in folder.iterdir() if f.stat().st_mode & 0o077 and f.suffix != ".pub"]
            assert loose == []
        secret = "".join(keys[0].read_text().splitlines()[1:-1])[:60]
        for path in run.rglob("*"):
            if path.is_file():
                assert secret not in path.read_text(errors="replace").replace("\n", ""), path
        address, port = plan.nodes[1].address, plan.ssh[1]
        assert _login(address, port, keys[0]) == "in", "the run's own key must open its nodes"
        stranger = shed.home / "stranger"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
        assert _login(address, port, stranger) == "refused"
        assert _login("127.0.0.1", port, keys[0]) == "refused", "it must listen at the node's address only"
    finally:
        for node in (0, 1):
            (run / f"node-{node}" / "reports" / "go").touch()
    until(lambda: (run / "events" / "end.jsonl").exists(), 60, "the run's end")
    until(lambda: not processes_of(run.name), 20, "all processes' end")
    assert not scratch.exists(), "keys must not outlive the run"


def test_a_session_left_behind_dies_with_the_run(train: Callable) -> None:
    left = "nohup setsid sleep 987 > /dev/null 2>&1 & echo left $!"
    command = f"ssh {OTHER} '{left}'; [ $TRAINSHED_NODE = 1 ] || exit 3"
    run = train(launcher="command", services=["ssh"], command=command)
    assert run.code == 3
    assert (run.path / "node-0" / "node-0.log").read_text().startswith("left ")
    until(lambda: not processes_of(run.id), 20, "all processes' end")


@pytest.mark.timeout(420)
def test_32_jobs_with_ssh_and_different_contracts_run_at_once_and_never_meet(shed: Shed) -> None:
    client = Client(shed.home)
    count, contracts = 32, registry.members("contract")
    command = (
        f'set -e; mark="$TRAINSHED_RUN_ID $TRAINSHED_NODE"; echo "$mark" | ssh {OTHER} "cat > /tmp/mark"; '
        # Waiting with a read that nobody answers costs no process, as `sleep` would.
        "touch $TRAINSHED_METRICS_DIR/here; mkfifo /tmp/never; exec 9<>/tmp/never; i=0; "
        "until [ -e $TRAINSHED_METRICS_DIR/go ]; do i=$((i + 1)); [ $i -lt 600 ]; read -rt 0.5 -u 9 || true; done; "
        "echo got $(cat /tmp/mark); cut -d' ' -f2 $HOME/.ssh/*.pub | sed 's/^/key /'; "
        f"ssh {OTHER} 'echo saw $TRAINSHED_RUN_ID $TRAINSHED_NODE $(hostname)'"
    )
    runs = []
    try:
        for i in range(count):
            contract = contracts[i % len(contracts)]
            job = JobSpec(
                name=f"job{i}",
                contract=contract,
                services=("ssh",),
                command=command,
                resources="2x1",
            )
            runs.append(client.submit(job).path)
        marks = [run / f"node-{node}" / "reports" / "here" for run in runs for node in (0, 1)]
        until(lambda: all(mark.exists() for mark in marks), 200, "all 64 nodes at work at once")
    finally:
        for run in runs:
            for node in (0, 1):
                (run / f"node-{node}" / "reports").mkdir(parents=True, exist_ok=True)
                (run / f"node-{node}" / "reports" / "go").touch()
    until(lambda: all((run / "events" / "end.jsonl").exists() for run in runs), 120, "all runs' end")
    keys: list[str] = []
    places: list[tuple[str, int]] = []
    for run in runs:
        assert client.get(run.name).state is RunState.SUCCEEDED, run
        plan = Plan.from_json(json.loads((run / "plan.json").read_text()))
        places += [
            (node.address, port) for node in plan.nodes for port in {plan.ssh[0], plan.ssh[node.index]}
        ]
        for here, there in ((0, 1), (1, 0)):
            lines = Path(run / f"node-{here}" / f"node-{here}.log").read_text().splitlines()
            assert lines[0] == f"got {run.name} {there}"
            assert lines[-1].startswith(f"saw {run.name} {there} ")
            keys += [line for line in lines if line.startswith("key ")]
    assert len(keys) == len(set(keys)) == count * 4
    assert len(places) == len(set(places)) == count * 3


def _login(address: str, port: int, key: Path) -> str:
    settings = {
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "ConnectTimeout": "20",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        ["ssh", "-F", "/dev/null", "-i", key, "-p", str(port), *options, address, "echo in"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip() if done.returncode == 0 else "refused"
