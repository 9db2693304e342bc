"""An agent shows signs of life to whoever started it for as long as it lives, with or without a coordinator."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainshed.agent import watch
from trainshed.agent.handover import Handover
from trainshed.agent.watch import Watch
from trainshed.plan.planner import plan
from trainshed.plan.topology import Device, Host, Topology
from trainshed.plan.view import Site
from trainshed.runs.directory import RunDirectory
from trainshed.spec.kinds import DeviceKind
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.foundation, pytest.mark.hardening]


def test_signs_of_life_go_on_before_and_after_the_coordinator_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 0's agent stays while others save their outputs: it must not be taken for dead meanwhile."""
    hosts = [Host("n0", "127.0.0.1", (Device(0),), 10241)]
    job = load_job({"name": "job", "command": "true"})
    planned = plan(
        job, Topology.of(DeviceKind.CPU, hosts), Site("python3", "/bin", str(tmp_path), "/lib"), "r"
    )
    mine, its = socket.socketpair()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=its.fileno))
    monkeypatch.setattr(watch, "_SIGN", 0.0)
    agent = Watch(RunDirectory(tmp_path), planned, planned.nodes[0], Handover("ab" * 32, beats=True))
    assert agent._link is None
    agent._pump(0)
    mine.settimeout(5)
    assert mine.recv(10) == b"."
    mine.close()
    its.close()
