"""The emulation's first step: quiet where nothing is emulated, and in nobody's way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainshed

pytestmark = [pytest.mark.contracts]

SITE = Path(trainshed.__file__).parent / "payload"
HOOKED = "import sys; print(any(type(f).__module__ == 'trainshed_emulation' for f in sys.meta_path))"


def start(program: str, *folders: Path, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(map(str, (SITE / "start", SITE / "emulation", *folders, SITE / "common"))),
    }
    return subprocess.run(
        [sys.executable, "-c", program], env=kept | env, capture_output=True, text=True, timeout=30
    )


def test_without_emulation_nothing_is_changed() -> None:
    assert start(HOOKED).stdout == "False\n"


def test_with_emulation_only_a_hook_waits() -> None:
    done = start(HOOKED + "; print('mindspore' in sys.modules)", TRAINSHED_START="trainshed_emulation")
    assert (done.stdout, done.stderr) == ("True\nFalse\n", "")


def test_a_sitecustomize_of_the_users_own_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    assert start(HOOKED, tmp_path, TRAINSHED_START="trainshed_emulation").stdout == "mine\nTrue\n"


def test_several_modules_are_all_installed() -> None:
    several = "trainshed_leave trainshed_paddle_launch trainshed_emulation"
    done = start(HOOKED, SITE / "paddle_launch", TRAINSHED_START=several)
    assert (done.stdout, done.stderr) == ("True\n", "")


def ranked(tmp_path: Path, rank: str) -> subprocess.CompletedProcess[str]:
    """A process that says it is device 1 of the second of two servers, with a package named mindspore to import."""
    (tmp_path / "mindspore.py").write_text("print('imported')\n")
    table = {
        "server_list": [
            {
                "server_id": f"10.0.0.{k + 1}",
                "device": [{"device_id": str(i), "rank_id": str(2 * k + i)} for i in (0, 1)],
            }
            for k in (0, 1)
        ]
    }
    (tmp_path / "table.json").write_text(json.dumps(table))
    env = {
        "TRAINSHED_START": "trainshed_emulation",
        "TRAINSHED_NODE_ADDRESS": "10.0.0.2",
        "RANK_TABLE_FILE": str(tmp_path / "table.json"),
        "DEVICE_ID": "1",
        "RANK_ID": rank,
        "RANK_SIZE": "4",
    }
    kept = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{SITE / 'start'}:{SITE / 'emulation'}:{tmp_path}:{SITE / 'common'}",
    }
    return subprocess.run(
        ["bash", "-c", f"sleep 300 & echo $!; {sys.executable} -c 'import mindspore'; kill $!; echo went on"],
        env=kept | env,
        capture_output=True,
        text=True,
        timeout=30,
        start_new_session=True,
    )


def test_a_rank_that_agrees_with_the_table_goes_on(tmp_path: Path) -> None:
    done = ranked(tmp_path, "3")
    _, *said = done.stdout.splitlines()
    assert (done.returncode, said, done.stderr) == (0, ["imported", "went on"], "")


def test_a_rank_that_contradicts_the_table_is_told_and_ended_with_all_its_session(tmp_path: Path) -> None:
    done = ranked(tmp_path, "1")
    assert done.returncode != 0
    assert done.stdout.strip().isdigit(), "the script that started it did not go on"
    state = Path(f"/proc/{done.stdout.strip()}/stat")
    assert not state.exists() or state.read_text().rpartition(") ")[2].startswith("Z")
    assert "rank 1 of 10.0.0.2/device 1 belongs to 10.0.0.1/device 1" in done.stderr
    assert "gives this device rank 3: use RANK_ID=SERVER_INDEX*2+i" in done.stderr
