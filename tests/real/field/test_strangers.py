"""Scripts that know nothing of Trainshed train to their end on virtual nodes of this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stranger_jobs import SCRIPTS, STRANGERS, cases, check

from support import ENVIRONMENTS, Shed

pytestmark = [pytest.mark.contracts, pytest.mark.real, pytest.mark.field, pytest.mark.timeout(600)]

# A world of one is its own case in every framework. Whether two ranks share a node matters where a node has
# a helper or a port for each rank, which 2x2 shows as well.
FEW = {
    "ddp": ("1x1", "2x2"),
    "torchrun": ("1x2",),
    "accelerate": ("2x2",),
    "lightning": ("1x2",),
    "deepspeed": ("1x2",),
    "mindspore": ("1x1", "2x2"),
    "paddle": ("1x1", "2x2"),
    "horovod": ("1x1", "2x2"),
    "keras": ("1x1", "2x2"),
    "parameter-servers": ("4x1",),
}


def test_the_scripts_know_nothing_of_trainshed() -> None:
    texts = {path.name: path.read_text() for path in SCRIPTS.iterdir() if path.is_file()}
    assert len(texts) > 8
    assert not [name for name, text in texts.items() if "trainshed" in text.lower()]


@pytest.mark.parametrize(("name", "shape"), cases(FEW))
def test_it_trains_to_its_end(name: str, shape: str, shed: Shed, tmp_path: Path) -> None:
    stranger = STRANGERS[name]
    if not (ENVIRONMENTS / stranger.environment / "bin" / "python").exists():
        pytest.skip(f"trainshed env create {stranger.environment}")
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(stranger.job(name, shape)))
    done = shed.cli("run", path, timeout=500)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    check(name, shape, done.stdout)
