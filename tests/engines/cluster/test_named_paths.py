"""Which folders of the machine a node sees because its job names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.engines.cluster.nodes import named_paths
from trainshed.spec.load import load_job

pytestmark = [pytest.mark.foundation, pytest.mark.core]


def named(command: str, home: Path) -> list[str]:
    return named_paths(load_job({"name": "x", "command": command}), home, Path("/home/ann"))


def test_a_whole_path_is_shown(tmp_path: Path) -> None:
    assert named("cat /srv/x; ls /srv", tmp_path) == ["/srv"]


@pytest.mark.parametrize("rest", ["/${USER}/list", "/$USER", "/*/x", "/?", "/[ab]", "/{a,b}", "/\\ x"])
def test_a_path_that_a_shell_has_yet_to_complete_names_nothing(rest: str, tmp_path: Path) -> None:
    assert named(f"cat /srv{rest}", tmp_path) == []
