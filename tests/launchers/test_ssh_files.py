"""The files of a node's SSH, made by its agent: keys, both ends' settings, the session's environment."""

from __future__ import annotations

import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from launchers.made import made
from trainshed.agent.handover import Handover
from trainshed.agent.node_access import NodeAccess
from trainshed.agent.ssh import Ssh, SshError
from trainshed.plan.model import Plan

pytestmark = [pytest.mark.contracts]
needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="apt-get install openssh-server")


def _node(folder: Path, index: int = 1, plan: Plan | None = None) -> Ssh:
    plan = plan or made("command", services=["ssh"])
    node = replace(plan.nodes[index], home=str(folder))
    return Ssh(plan, node, NodeAccess(node, Handover(secret=""), None))


def _configured(folder: Path) -> Path:
    ssh = _node(folder)
    ssh.make_keys()
    cards = [{"host": "ssh-ed25519 HOST0 node-0", "user": "ssh-ed25519 USER0 node-0"}, ssh.card]
    ssh.configure(cards, {"A": "two\nlines", "B": "", "not a name": "x"})
    return folder / ".ssh"


def test_a_machine_without_sshd_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(SshError, match="apt-get install openssh-server"):
        _node(tmp_path).make_keys()


@needs_ssh
def test_every_attempt_has_keys_of_its_own(tmp_path: Path) -> None:
    ssh = _node(tmp_path)
    ssh.make_keys()
    first = dict(ssh.card)
    ssh.make_keys()
    assert len({*first.values(), *ssh.card.values()}) == 4


@needs_ssh
def test_all_that_is_secret_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = _configured(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("host_key", "id_ed25519", "environment", "session", "config", "authorized_keys"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    assert (folder / "environment").read_bytes() == b"A=two\nlines\0B=\0"


@needs_ssh
def test_openssh_itself_reads_the_clients_settings_as_meant(tmp_path: Path) -> None:
    folder = _configured(tmp_path / "a home")
    for name in ("worker-0", "ib-worker-0", "127.64.0.1"):
        told = subprocess.run(
            ["ssh", "-G", "-F", folder / "config", name],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.splitlines()
        for line in (
            "hostname 127.64.0.1",
            "port 11004",
            "hostkeyalias worker-0",
            "stricthostkeychecking true",
            f"identityfile {folder}/id_ed25519",
            f"userknownhostsfile {folder}/known_hosts",
        ):
            assert line in told, (name, line)
    other = subprocess.run(
        ["ssh", "-G", "-F", folder / "config", "elsewhere.example"],
        capture_output=True,
        text=True,
        timeout=10,
    ).stdout
    assert str(folder) not in other, "hosts outside the job are none of our business"
    assert (folder / "known_hosts").read_text().startswith("worker-0 ssh-ed25519 HOST0")


@needs_ssh
def test_a_node_answers_at_its_own_address_on_its_own_and_the_first_nodes_port(tmp_path: Path) -> None:
    lines = (_configured(tmp_path) / "sshd_config").read_text().splitlines()
    listening = [line for line in lines if line.startswith("ListenAddress")]
    assert listening == ["ListenAddress 127.64.0.2:11104", "ListenAddress 127.64.0.2:11004"]


def test_nodes_that_share_an_address_keep_to_their_own_ports(tmp_path: Path) -> None:
    plan = made("command", services=["ssh"])
    shared = replace(plan, nodes=tuple(replace(node, address="10.0.0.1") for node in plan.nodes))
    assert _node(tmp_path, 1, shared)._ports == (11104,)
