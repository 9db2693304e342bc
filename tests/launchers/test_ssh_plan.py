"""When a job has SSH between its nodes, and what its plan says of it."""

from __future__ import annotations

import json

import pytest

from launchers.made import made
from trainshed import registry

pytestmark = [pytest.mark.contracts]


def test_a_job_without_need_for_it_has_no_ssh() -> None:
    planned = made("pytorch")
    assert planned.ssh == ()
    assert not [item for item in planned.nodes[0].files if item.path.endswith("/ssh")]
    assert "TRAINSHED_HOSTFILE" not in planned.nodes[0].env


def test_ssh_is_planned_when_asked_for_or_needed() -> None:
    assert made("command", services=["ssh"]).ssh == (11004, 11104)
    assert made("horovod", command="horovodrun -np 4 python train.py").ssh == (11004, 11104)
    assert made("horovod").ssh == (), "ranks started one by one meet without it"


def test_ssh_is_planned_under_a_contract_that_promises_it_to_more_than_one_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry.load("contract", "plain"), "promises_ssh", True, raising=False)
    assert made("command", command="true").ssh == (11004, 11104)
    assert made("command", nodes=1, command="true").ssh == ()


def test_nodes_of_a_job_with_ssh_have_names_a_host_file_and_programs() -> None:
    planned = made("horovod", command="horovodrun -np 4 python train.py")
    assert planned.hosts[1] == ("127.64.0.2", ("worker-1", "ib-worker-1"))
    files = {item.path: item for item in (*planned.files, *planned.nodes[1].files)}
    assert files["/job/hostfile"].content == "worker-0 slots=2\nworker-1 slots=2\n"
    tools = "/tmp/.trainshed/bin"
    assert {path for path in files if path.startswith(tools)} == {
        f"{tools}/{name}" for name in ("ssh", "scp", "sftp", "horovodrun")
    }
    assert all(files[path].mode == 0o755 for path in files if path.startswith(tools))
    assert planned.nodes[1].env["PATH"] == f"{tools}:/env/bin:/usr/bin:/bin"
    assert ("/job", "job") in planned.nodes[1].private


def test_what_differs_between_nodes_is_named_so_that_it_is_not_carried_over() -> None:
    secrets = {"TOKEN": {"env": "TOKEN"}}
    keys = ("AWS_SECRET_ACCESS_KEY", "OBS_SECURITY_TOKEN")
    planned = made(
        "horovod", command="horovodrun -np 4 python t.py", isolated=False, keys=keys, secrets=secrets
    )
    names = planned.env["TRAINSHED_NODE_VARIABLES"].split(",")
    own = {"TRAINSHED_NODE", "TRAINSHED_NODE_ADDRESS", "HOSTNAME", "TRAINSHED_METRICS_DIR", "TOKEN", *keys}
    assert own <= set(names)
    assert not {"PATH", "HOME", "TRAINSHED_RUN_ID"} & set(names)


def test_a_command_of_horovod_runs_on_the_first_node_only() -> None:
    planned = made("horovod", command="horovodrun -np 4 python train.py")
    assert [len(node.processes) for node in planned.nodes] == [1, 0]


def test_no_key_is_in_a_plan() -> None:
    text = json.dumps(made("command", services=["ssh"]).to_json())
    assert "PRIVATE KEY" not in text and "ssh-ed25519" not in text
