"""Power by existing tools: what they print is understood, what fails is left out."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import made
import pytest

from trainshed.bench.measure import watts
from trainshed.bench.measure.evidence import read_run
from trainshed.bench.measure.measure import measure_run
from trainshed.bench.result import Measured, NotMeasured, RunResult
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
     ("55\n", 55.0), ("no reading", None), ("", None), ("... W", None)],
)  # fmt: skip
def test_the_output_of_tools_is_understood(text: str, expected: float | None) -> None:
    assert watts.watts_in(text) == expected


def test_rapl_is_energy_over_time_and_survives_a_counter_that_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "intel-rapl:0"
    for zone, name in (("0", "package-0\n"), ("0:0", "core\n"), ("1", "psys\n")):
        (tmp_path / f"intel-rapl:{zone}").mkdir()
        (tmp_path / f"intel-rapl:{zone}" / "name").write_text(name)
        (tmp_path / f"intel-rapl:{zone}" / "max_energy_range_uj").write_text("100000000")
    clock = iter([10.0, 12.0, 13.0, 14.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    read = watts.rapl_reader(tmp_path)
    found = []
    for counter in (90_000_000, 99_000_000, 4_000_000):
        (package / "energy_uj").write_text(str(counter))
        (tmp_path / "intel-rapl:1/energy_uj").write_text(str(2 * counter))
        found.append(read())
    assert found == [None, 4.5, 5.0], "psys contains the packages"
    assert watts.rapl_reader(tmp_path / "absent")() is None


def test_a_command_is_sampled_into_the_run_directory_and_failures_are_left_out(tmp_path: Path) -> None:
    bad = f"{sys.executable} -c 'raise SystemExit(1)'"
    sources = watts.parse_sources(["0=echo 120 Watts", f"1={bad}"])
    with watts.PowerWatch(sources, tmp_path):
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


def powered(tmp_path: Path, seconds: dict[int, list[float]]) -> RunResult:
    """A run of two nodes and 87 s, with a whole node's power of 500 W read at these seconds."""
    root = made.MadeRun(steps=800).write(tmp_path / "run")
    for node, times in seconds.items():
        lines = [{"t": made.WALL + s, "watts": 500.0, "source": "RAPL"} for s in times]
        (root / f"node-{node}/power.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return measure_run(read_run(root), made.made_rules())


WHOLE = [float(s) for s in range(88)]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (WHOLE[:70], "node 1: there is no power reading for 18 s"),
        (WHOLE[20:], "node 1: there is no power reading for 20 s"),
        (WHOLE[:30] + WHOLE[45:], "node 1: there is no power reading for 16 s"),
        ([s for s in WHOLE if s % 8 > 2] + [86.5, 87.0] * 5, "node 1: power readings cover"),
        ([s + 3600 for s in WHOLE], "node 1 gave no power reading"),
        ([], "node 1 gave no power reading"),
    ],
)
def test_readings_of_a_part_of_the_run_or_of_its_nodes_are_no_power(
    tmp_path: Path, seconds: list[float], words: str
) -> None:
    energy = powered(tmp_path, {0: WHOLE, 1: seconds}).power.energy
    assert isinstance(energy, NotMeasured) and energy.not_measured.startswith(words), energy


def test_a_few_lost_readings_are_stood_in_for_and_told(tmp_path: Path) -> None:
    lossy = [s for s in WHOLE if not 40 < s < 44]
    power = powered(tmp_path, {0: WHOLE, 1: lossy}).power
    assert isinstance(power.energy, Measured) and power.energy.value == pytest.approx(2 * 500 * 87)
    assert power.energy.source == "RAPL; every 1 s, coverage 99%"


def test_average_power_is_the_sum_of_the_nodes_own_averages(tmp_path: Path) -> None:
    average = powered(tmp_path, {0: WHOLE, 1: WHOLE[2:-1]}).power.average
    assert isinstance(average, Measured) and average.value == pytest.approx(1000.0)


def test_a_node_without_samples_is_named_where_a_figure_would_leave_it_out(tmp_path: Path) -> None:
    root = made.MadeRun(watts=100.0, steps=800).write(tmp_path / "run")
    (root / "node-1/metrics.jsonl").unlink()
    run = measure_run(read_run(root), made.made_rules())
    for quantity in (run.device_use, run.cpu_use, run.power.energy):
        assert isinstance(quantity, NotMeasured) and quantity.not_measured.startswith("node 1 "), quantity


def test_a_device_that_gives_no_power_is_not_left_out_of_its_nodes_sum(tmp_path: Path) -> None:
    root = made.MadeRun(watts=100.0, steps=800).write(tmp_path / "run")
    path = root / "node-1/metrics.jsonl"
    path.write_text(re.sub(r'("index": 1, .*?"power_watts": )[\d.]+', r"\1null", path.read_text()))
    energy = measure_run(read_run(root), made.made_rules()).power.energy
    assert isinstance(energy, NotMeasured) and energy.not_measured.startswith("node 1 gave no power reading")


@pytest.mark.parametrize("text", ["rapl", "x=rapl", "0=", "0=read 'it"])
def test_a_power_source_names_its_node(text: str) -> None:
    with pytest.raises(UsageError, match="--power"):
        watts.parse_sources([text])
