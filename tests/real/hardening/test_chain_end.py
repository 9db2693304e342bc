"""The chain of a run covers its nodes' events to the last line, also of processes that are ended with the run."""

from __future__ import annotations

import hashlib

import pytest

from support import Shed
from trainshed.runs import chain

pytestmark = [pytest.mark.hardening, pytest.mark.real]


def test_the_end_of_a_helper_is_recorded_before_the_chain_is_closed(shed: Shed) -> None:
    """sshd, which this contract promises, is a helper: it is told to end when the command is done."""
    job = shed.job(contract="apulis", command="true", resources="2x1")
    for _ in range(3):
        run = shed.submit(job)
        assert shed.cli("wait", run).returncode == 0
        ended = {item["process"]: item["ended"] for item in shed.show(run)["processes"]}
        assert len(ended) > 2 and all(ended.values()), ended
        found = chain.read((shed.path(run) / chain.path_of(1)).read_bytes())
        last = {name: head for record in found.records for name, head in record.heads.items()}
        for node in (0, 1):
            name = f"events/node-{node}-1.jsonl"
            data = (shed.path(run) / name).read_bytes()
            assert last[name] == chain.Head(len(data), hashlib.sha256(data).hexdigest()), name
