"""The properties of the queue hold at every step of random simulations.

`make test` plays a few hundred of them; `TRAINSHED_QUEUE_SEEDS=4000` plays as many as you like, in ten tests that
share them (run it with `-n`)."""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from queue_properties import Properties
from queue_simulator import Scenario, Simulation, random_scenario

from trainshed.server.queue.rules import decide

pytestmark = pytest.mark.server
SEEDS = int(os.environ.get("TRAINSHED_QUEUE_SEEDS", "600"))
PARTS = 10


def play(scenario: Scenario) -> Properties:
    simulation = Simulation(scenario, decide, Properties)
    simulation.run()
    assert isinstance(simulation.checker, Properties)
    return simulation.checker


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_properties_hold_in_seeded_simulations(part: int) -> None:
    seen: set[str] = set()
    for seed in range(part, SEEDS, PARTS):
        try:
            seen |= play(random_scenario(Random(seed))).seen
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    # A simulation in which nothing happens proves nothing.
    assert SEEDS < 600 or seen >= {
        "start",
        "victim",
        "turn",
        "backfill",
        "promise",
        "QUOTA",
        "ROOM",
        "BEHIND",
        "SET_ASIDE",
    }


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.randoms(use_true_random=False))
def test_properties_hold_in_simulations_that_hypothesis_looks_for(random: Random) -> None:
    play(random_scenario(random))
