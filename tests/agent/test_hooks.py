"""What a hook exports reaches the ranks, and nothing of it is left lying about."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trainshed.agent import hooks
from trainshed.agent.masking import open_log
from trainshed.agent.node_access import NodeAccess

pytestmark = [pytest.mark.foundation]


class Here(NodeAccess):
    """The agent stands on the node itself."""

    def __init__(self) -> None:
        self._root, self._prefix, self._hidden = "", (), ()


def source(tmp_path: Path, text: str) -> dict[str, str]:
    script = tmp_path / "hook.sh"
    script.write_text(text)
    env = {"TMPDIR": str(tmp_path / "tmp"), "PATH": "/usr/bin:/bin", "TOKEN": "correct-horse"}
    log = open_log(tmp_path / "pre-start.log", ["correct-horse"])
    hooks.source(str(script), env, log, Here())
    return env


def test_exports_are_taken_over_from_a_file_for_the_owner_alone(tmp_path: Path) -> None:
    env = source(tmp_path, 'export MODE=$(stat -c %a "$TMPDIR"/.pre-start.env)\necho "$TOKEN"')
    assert env["MODE"] == "600"
    assert list((tmp_path / "tmp").iterdir()) == []
    assert (tmp_path / "pre-start.log").read_text() == "***\n"


def test_a_hook_that_fails_leaves_its_words_and_not_its_environment(tmp_path: Path) -> None:
    with pytest.raises(hooks.HookError, match=r"hook\.sh exited with 3"):
        source(tmp_path, "echo no cheese today; (exit 3)")
    assert (tmp_path / "pre-start.log").read_text() == "no cheese today\n"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_hook_that_exits_by_itself_changes_nothing(tmp_path: Path) -> None:
    assert "MORE" not in source(tmp_path, "export MORE=1\nexit 0")


def test_an_older_file_of_that_name_is_not_written_into(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    (tmp_path / "elsewhere").touch(mode=0o644)
    (folder / ".pre-start.env").symlink_to(tmp_path / "elsewhere")
    assert source(tmp_path, "export MORE=1")["MORE"] == "1"
    assert (tmp_path / "elsewhere").read_text() == ""
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o644
