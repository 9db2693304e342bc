"""A sample of the campaign of `make chaos`: the same trials each time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT

pytestmark = [pytest.mark.hardening, pytest.mark.real]

TRIALS = 8


def test_a_sample_of_the_campaign_breaks_no_promise(tmp_path: Path) -> None:
    report = tmp_path / "chaos.json"
    options = ["--seed", "5", "--trials", str(TRIALS), "--kills", "--on", "sandbox,plain", "--at-once", "4"]
    done = subprocess.run(
        [sys.executable, "-m", "chaos", *options, "--json", str(report)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())["trials"]
    assert len(found) == TRIALS and sum(bool(trial["struck"]) for trial in found) > TRIALS / 2, done.stdout


def test_a_trial_is_repeated_by_its_seed_and_number() -> None:
    script = "from chaos import trials; print(trials.make(7, 12, ('sandbox', 'plain')))"
    first, again = (
        subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    )
    assert first.returncode == 0 and first.stdout == again.stdout and "trial 12 on sandbox" in first.stdout
