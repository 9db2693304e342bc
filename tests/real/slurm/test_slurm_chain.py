"""The evidence of a run on a real Slurm is chained as anywhere else."""

from __future__ import annotations

import hashlib

import pytest
from slurm_site import Site

from support import until
from trainshed.runs import chain

pytestmark = [pytest.mark.slurm, pytest.mark.real, pytest.mark.hardening]


def test_a_run_on_slurm_leaves_a_closed_chain_of_all_its_nodes(site: Site) -> None:
    run = site.submit(site.job("from trainshed_meter import Meter\nMeter().close()\n"))
    until(lambda: site.state(run).state.is_final, 120, "the run ended")
    found = chain.read((run.path / chain.path_of(1)).read_bytes())
    assert found.run == run.id and found.is_closed
    last = {name: head for record in found.records for name, head in record.heads.items()}
    for node in (0, 1):
        names = (f"events/node-{node}-1.jsonl", f"node-{node}/meter-rank-{node}.jsonl")
        for name in (*names, "plan.json", "events/coordinator-1.jsonl"):
            data = (run.path / name).read_bytes()
            assert last[name] == chain.Head(len(data), hashlib.sha256(data).hexdigest()), name
