"""The input cache makes room also while other nodes do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainshed.access import StoreAccess
from trainshed.agent.inputs import Cache
from trainshed.files import locked

pytestmark = [pytest.mark.foundation]


def test_a_slot_that_another_node_removes_meanwhile_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age, name in enumerate(("old", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps({"part": [60, 0]}))
        os.utime(tmp_path / name, (age, age))
    listed = [tmp_path / name for name in ("new", "gone", "old")]
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))
    monkeypatch.setattr(Path, "is_dir", lambda _: True)  # as it was a moment ago
    Cache(tmp_path, StoreAccess(tmp_path), limit=100)._make_room(40)
    assert not (tmp_path / "old").exists() and (tmp_path / "new").exists()


@pytest.mark.core
def test_a_slot_that_another_node_reads_stays(tmp_path: Path) -> None:
    for age, name in enumerate(("old", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps({"part": [60, 0]}))
        os.utime(tmp_path / name, (age, age))
    with locked(tmp_path / "old.lock", 5, "the slot"):  # as `provide` does while it links the files
        Cache(tmp_path, StoreAccess(tmp_path), limit=100)._make_room(40)
    assert (tmp_path / "old").exists() and not (tmp_path / "new").exists()
