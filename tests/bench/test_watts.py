"""Power by existing tools: what they print is understood, what fails is left out."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import made
import pytest

from trainshed.bench import watts
from trainshed.bench.evidence import read_run
from trainshed.bench.measure import measure_run
from trainshed.bench.result import Measured
from trainshed.errors import UsageError

pytestmark = [pytest.mark.benchmark]

DCMI = """
    Instantaneous power reading:                   212 Watts
    Minimum during sampling period:                  8 Watts
    Maximum during sampling period:                410 Watts
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [(DCMI, 212.0), ('{"PowerConsumedWatts": 87.5, "PowerCapacityWatts": 900}', 87.5), ("power 301.2 W", 301.2),
     ("55\n", 55.0), ("no reading", None), ("", None)],
)  # fmt: skip
def test_the_output_of_tools_is_understood(text: str, expected: float | None) -> None:
    assert watts.watts_in(text) == expected


def test_rapl_is_energy_over_time_and_survives_a_counter_that_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "intel-rapl:0"
    package.mkdir()
    (tmp_path / "intel-rapl:0:0").mkdir()
    (package / "max_energy_range_uj").write_text("100000000")
    clock = iter([10.0, 12.0, 13.0, 14.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    read = watts.rapl_reader(tmp_path)
    found = []
    for counter in (90_000_000, 99_000_000, 4_000_000):
        (package / "energy_uj").write_text(str(counter))
        found.append(read())
    assert found == [None, 4.5, 5.0]
    assert watts.rapl_reader(tmp_path / "absent")() is None


def test_a_command_is_sampled_into_the_run_directory_and_failures_are_left_out(tmp_path: Path) -> None:
    bad = f"{sys.executable} -c 'raise SystemExit(1)'"
    sources = watts.parse_sources(["0=echo 120 Watts", f"1={bad}"])
    with watts.Watch(sources, tmp_path):
        deadline = time.monotonic() + 20
        path = tmp_path / "node-0/power.jsonl"
        while time.monotonic() < deadline and not (path.exists() and path.read_text().count("\n") >= 2):
            time.sleep(0.05)
    lines = [json.loads(x) for x in path.read_text().splitlines()]
    assert len(lines) >= 2 and lines[0]["watts"] == 120.0 and lines[0]["source"] == "command echo"
    assert (tmp_path / "node-1/power.jsonl").read_text() == ""


def test_power_of_a_whole_node_wins_over_its_devices(tmp_path: Path) -> None:
    root = made.MadeRun(watts=100.0, steps=800).write(tmp_path / "run")
    for node in range(2):
        lines = [{"t": made.WALL + s, "watts": 500.0, "source": "RAPL"} for s in range(90)]
        (root / f"node-{node}/power.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    average = measure_run(read_run(root), made.made_rules()).power.average
    assert (
        isinstance(average, Measured)
        and average.value == 1000.0
        and average.source.startswith("RAPL; every 1 s")
    )


@pytest.mark.parametrize("text", ["rapl", "x=rapl", "0="])
def test_a_power_source_names_its_node(text: str) -> None:
    with pytest.raises(UsageError, match="--power"):
        watts.parse_sources([text])
