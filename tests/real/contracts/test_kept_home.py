"""A home that its contract keeps: shared by the nodes and jobs of a user, and found after the run."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest

from support import Shed

pytestmark = [pytest.mark.contracts, pytest.mark.field, pytest.mark.real]

# The beginning of the guide's own command line; each node adds to what it finds.
LINE = (
    "cd ~ && mkdir -p ~/checkpoints && touch ~/checkpoints/$DLWS_JOB_ID-$DLWS_ROLE_IDX && cat ~/ib_config && "
    "test -f ~/.ssh/config && ls ~/checkpoints"
)


def run(shed: Shed, name: str, *options: str, **fields: object) -> tuple[str, dict[str, object]]:
    job = shed.job(name, command=LINE, contract="apulis", resources="2x1", **fields)
    done = shed.cli("run", job, "--json", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["id"]
    shown = shed.cli("show", found, "--json")
    return found, json.loads(shown.stdout)


def test_checkpoints_of_two_jobs_and_all_their_nodes_are_there_afterwards(shed: Shed) -> None:
    first, _ = run(shed, "first")
    kept = shed.home / "homes" / getpass.getuser()
    # What a job leaves behind must not lead the next one's agent elsewhere.
    outside = shed.home / "outside"
    outside.mkdir()
    for name in (".ssh", ".npu"):
        (kept / name).rmdir()
        (kept / name).symlink_to(outside)
    (kept / "tensorboard" / first / "logs").rmdir()
    (kept / "tensorboard" / first).rmdir()
    (kept / "tensorboard").rmdir()
    (kept / "tensorboard").symlink_to(shed.path(first))
    before = sorted(p.name for p in shed.path(first).iterdir())
    second, shown = run(shed, "second")
    assert shown["homes"] == [str(kept)]
    names = {f"{job}-{node}" for job in (first, second) for node in (0, 1)}
    assert {path.name for path in (kept / "checkpoints").iterdir()} == names
    assert f"home {kept} (what the job left in ~)" in shed.cli("show", second).stdout
    assert list(outside.iterdir()) == [] and sorted(p.name for p in shed.path(first).iterdir()) == before
    assert list((kept / ".ssh").iterdir()) == [] == list((kept / ".npu").iterdir()), "keys are the nodes' own"
    seen = (shed.path(second) / "node-0" / "node-0.log").read_text()
    assert f"{first}-1" in seen and "ib-worker-1 slots=1" in seen


def test_a_private_home_ends_with_its_run(shed: Shed) -> None:
    _, shown = run(shed, "alone", options={"home": "private"})
    assert "homes" not in shown and not (shed.home / "homes").exists()


def test_without_isolation_each_nodes_home_is_kept_apart(shed: Shed) -> None:
    found, shown = run(shed, "plain", "-o", "isolation=plain")
    left = shed.home / "homes" / getpass.getuser() / "left"
    homes = [left / f"{found}-node-{node}" for node in (0, 1)]
    assert shown["homes"] == [str(home) for home in homes]
    for node, home in enumerate(homes):
        assert [path.relative_to(home) for path in sorted(home.rglob("*"))] == [
            Path("checkpoints"),
            Path(f"checkpoints/{found}-{node}"),
        ]
    notes = json.loads((shed.path(found) / "plan.json").read_text())["notes"]
    assert any(note.startswith("home is separate on each node") for note in notes)
