"""Power of nodes read by existing tools while a benchmark runs: RAPL, or a command that asks a BMC.

`rapl` reads the energy counters of this machine's processors. Anything else is
a command run once a second whose output names watts, for example
`ipmitool -I lanplus -H bmc-3 -U monitor -E dcmi power reading` (the password in
IPMITOOL_PASSWORD, never on the command line), or a script that asks Redfish.
Readings go to `node-<i>/power.jsonl` of the run directory.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from trainshed.errors import UsageError

PERIOD_SECONDS = 1.0
COMMAND_SECONDS = 5.0
RAPL = Path("/sys/class/powercap")
# "Instantaneous power reading: 212 Watts", "PowerConsumedWatts": 212, "212.5 W", or just "212"
WATTS = (
    re.compile(r"instantaneous power reading:\s*(\d+(?:\.\d+)?)", re.I),
    re.compile(r'"PowerConsumedWatts"\s*:\s*(\d+(?:\.\d+)?)'),
    re.compile(r"(\d+(?:\.\d+)?)\s*(?:W|Watts)\b", re.I),
    re.compile(r"^\s*(\d+(?:\.\d+)?)\s*$"),
)

Reader = Callable[[], float | None]


class PowerWatch:
    """Samples every named node until stopped; a reading that fails is left out, never made up."""

    def __init__(self, sources: Mapping[int, str], run: Path) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._sample, args=(text, run / f"node-{node}"), daemon=True)
            for node, text in sources.items()
        ]

    def __enter__(self) -> PowerWatch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(COMMAND_SECONDS + 1)

    def _sample(self, text: str, folder: Path) -> None:
        read, source = reader(text)
        folder.mkdir(parents=True, exist_ok=True)
        due = time.monotonic()
        with (folder / "power.jsonl").open("a", buffering=1) as stream:
            while not self._over.wait(max(0.0, due - time.monotonic())):
                due += PERIOD_SECONDS
                watts = read()
                if watts is not None:
                    line = {"t": round(time.time(), 3), "watts": watts, "source": source}
                    stream.write(json.dumps(line) + "\n")


def parse_sources(items: list[str]) -> dict[int, str]:
    """`NODE=rapl` or `NODE=COMMAND`, several times."""
    found = {}
    for item in items:
        node, equals, text = item.partition("=")
        if not equals or not node.isdigit() or not text.strip():
            raise UsageError(f"--power {item}", "write NODE=rapl or NODE=COMMAND")
        try:
            shlex.split(text)
        except ValueError as error:
            raise UsageError(f"--power {item}: {error}", "close what was opened") from error
        found[int(node)] = text.strip()
    return found


def reader(text: str) -> tuple[Reader, str]:
    """How to read one node, and what to call the source."""
    if text == "rapl":
        return rapl_reader(RAPL), "RAPL"
    argv = shlex.split(text)

    def read() -> float | None:
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return watts_in(done.stdout) if done.returncode == 0 else None

    return read, f"command {Path(argv[0]).name}"


def watts_in(text: str) -> float | None:
    """The power that the output of a tool names, or None."""
    for pattern in WATTS:
        if match := pattern.search(text):
            return float(match.group(1))
    return None


def rapl_reader(root: Path) -> Reader:
    """Mean power of all packages since the last call; None at the first, and where there is no RAPL."""
    last: list[tuple[float, dict[str, int]]] = []

    def read() -> float | None:
        now, energy = time.monotonic(), {}
        for zone in root.glob("*-rapl:[0-9]*"):
            try:
                # Other zones (cores, psys) are parts of packages or contain them.
                if zone.name.count(":") == 1 and (zone / "name").read_text().startswith("package"):
                    energy[zone.name] = int((zone / "energy_uj").read_text())
            except (OSError, ValueError):
                continue
        before = last.pop() if last else None
        last.append((now, energy))
        if before is None or not energy or energy.keys() != before[1].keys():
            return None
        joules = 0.0
        for name, value in energy.items():
            spent = value - before[1][name]
            if spent < 0:  # the counter began again at zero
                spent += int((root / name / "max_energy_range_uj").read_text())
            joules += spent / 1e6
        return joules / (now - before[0])

    return read
