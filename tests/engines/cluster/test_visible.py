"""What a node sees of the machine beside the system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainshed.engines.cluster.nodes import visible
from trainshed.spec.job import JobSpec

pytestmark = [pytest.mark.core, pytest.mark.field]


def test_an_environment_behind_a_link_is_seen_where_the_link_leads(tmp_path: Path) -> None:
    real = tmp_path / "disk" / "env"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "python").symlink_to(sys.executable)
    (real / "pyvenv.cfg").write_text("")
    link = tmp_path / "envs" / "linked"
    link.parent.mkdir()
    link.symlink_to(real)
    job = JobSpec.model_validate({"name": "job", "command": "true", "environment": str(link)})
    found = visible(job, tmp_path / "home", {})
    assert {str(link), str(real)} <= set(found)
