"""Runs side by side on one machine: each has devices of its own, for as long as its driver lives."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest

from support import processes_of, until
from trainshed.api import Client, Run
from trainshed.engines.cluster import leases
from trainshed.errors import RefusedError
from trainshed.runs.states import RunState

pytestmark = [pytest.mark.foundation, pytest.mark.core]
SHOW = {"name": "show", "command": "echo $ASCEND_VISIBLE_DEVICES; sleep 300"}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(leases, "_NAME", f"test-{uuid.uuid4().hex[:8]}")
    return Client.from_environment(dict(os.environ) | {"TRAINSHED_EMULATED_DEVICES": "8"}, tmp_path / "home")


def submit(client: Client, shape: str) -> Run:
    return client.submit(SHOW, shape=f"{shape}:ascend", emulate=True, options={"isolation": "plain"})


def test_two_jobs_get_different_devices_and_a_third_of_eight_is_refused(client: Client) -> None:
    runs = [submit(client, "1x1") for _ in range(2)]
    try:
        for number, run in enumerate(runs):
            until(lambda run=run: [line.text for line in run.logs()], 60, "the first line")
            assert [line.text for line in run.logs()] == [str(number)]
        with pytest.raises(RefusedError) as caught:
            submit(client, "1x8")
        assert all(f"{run.id} holds {number}" in caught.value.message for number, run in enumerate(runs))
        assert "6 of 8 are free" in caught.value.message and len(client.runs()) == 2
        runs[0].stop()
        assert runs[0].wait(60).state is RunState.STOPPED
        until(lambda: set(leases.holders("emulated-ascend")) == {1}, 20, "the lease of an ended run to end")
    finally:
        for run in runs:
            run.stop()
            run.wait(60)


def test_devices_are_free_again_when_the_driver_is_killed(client: Client) -> None:
    run = submit(client, "2x4")
    assert leases.holders("emulated-ascend") == dict.fromkeys(range(8), run.id)
    written = run.directory.alive_path
    pid, _ = until(
        lambda: len(found := written.read_text().split()) == 2 and found, 20, "the driver's number"
    )
    os.kill(int(pid), signal.SIGKILL)
    until(lambda: not leases.holders("emulated-ascend"), 20, "the end of the leases")
    assert run.wait(60).state.is_final
    until(lambda: not processes_of(run.id), 20, lambda: f"the end of {processes_of(run.id)}")
