"""Reads what scripts wrote for other tools: ais-bench files, `set_result`, MLLOG lines, log patterns.

Used where a script has no meter, and to keep its settings. Files are found by
name anywhere in the run directory, because every tool has its own folder. A
file that cannot be read is a defect: it is never skipped in silence.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from trainshed.bench.judge.rules import Rules
from trainshed.bench.measure.evidence import Defect, RunEvidence
from trainshed.bench.measure.reading import parse, read_object

MOST_NAMED = 1000
"""Of missing ranks: a number in a file may be any."""
THROUGHPUT = re.compile(r"throughput_(\d+)\.json$")
THROUGHPUT_OFFLINE = re.compile(r"throughput_rank_(\d+)$")
ACCURACY_SERVER = re.compile(r"accuracy_(\d+)\.json$")
RESULT_RANK = re.compile(r"result_rank_(\d+)\.json$")
MLLOG = ":::MLLOG "
SERVER_FILES = "ais-bench accuracy_<server>.json"
MLLOG_QUALITY, PATTERN = "MLLOG eval_accuracy", "log pattern"
MAX_FILE_BYTES = 64 << 20
MAX_LINE = 2000
"""Bytes of a log line: a pattern is searched in no more at a time."""


@dataclass
class Ingested:
    """Numbers found outside the meter; `throughputs` is by global rank."""

    throughputs: dict[int, float] = field(default_factory=dict)
    servers: dict[int, dict[int, float]] = field(default_factory=dict)
    accuracies: dict[int, float] = field(default_factory=dict)
    quality: float | None = None
    quality_source: str = ""
    throughput_source: str = ""
    origin: str = ""
    rank_size: int | None = None
    settings: dict[str, object] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)

    def keep_speakers(self, rules: Rules) -> None:
        """Where the first rank speaks for all, the others' numbers do not count."""
        if rules.scope == "job":
            first = speakers(rules)
            self.throughputs = {
                rank: value
                for rank, value in self.throughputs.items()
                if rank in first or rank >= rules.ranks
            }
            self.servers = {n: {0: ranks[0]} for n, ranks in self.servers.items() if 0 in ranks}

    def throughput(self, rules: Rules) -> float:
        """Of all ranks; in single-server mode the mean over servers."""
        if rules.single_server and self.servers:
            return fmean(sum(ranks.values()) for ranks in self.servers.values())
        return sum(self.throughputs.values()) / (rules.nodes if rules.single_server else 1)

    def report_lines(self) -> list[str]:
        """The two lines that single-server mode prints."""
        rates = [sum(ranks.values()) for _, ranks in sorted(self.servers.items())]
        accuracies = [a for _, a in sorted(self.accuracies.items())]
        lines = []
        if rates:
            lines.append(f"report >> throughput_list:{rates} average:{fmean(rates)}")
        if accuracies:
            lines.append(f"report >> accuracy_list:{accuracies} average:{fmean(accuracies)}")
        return lines


def ingest(evidence: RunEvidence, rules: Rules) -> Ingested:
    """Everything found below the run directory, most trustworthy source first."""
    found = Ingested()
    if evidence.root.is_dir():
        read_ais_bench(evidence.root, found, rules.ranks_per_node)
        _read_set_result(evidence.root, found)
    speaking = speakers(rules)
    for rank, item in sorted(evidence.ranks.items()):
        if item.log is not None and rank in speaking:
            _read_log(item.log, rank, rules, found)
    found.keep_speakers(rules)
    return found


def speakers(rules: Rules) -> range:
    """The ranks whose numbers count: all, or the first of those that train together."""
    step = 1 if rules.scope == "rank" else rules.ranks_per_node if rules.single_server else rules.ranks
    return range(0, rules.ranks, step)


def read_ais_bench(root: Path, found: Ingested, ranks_per_node: int) -> None:
    """The bare-number files of ais-bench, on ModelArts, in single-server mode and offline."""
    for path in _files(root):
        if match := THROUGHPUT.match(path.name):
            _throughput_file(path, int(match.group(1)), _server(path, root), found, ranks_per_node)
        elif match := THROUGHPUT_OFFLINE.match(path.name):
            _add(found, int(match.group(1)), _bare_number(path, found), "ais-bench throughput_rank_<r>", path)
        elif match := ACCURACY_SERVER.match(path.name):
            _accuracy_file(path, int(match.group(1)), found)
        elif path.name == "accuracy.json":
            _set_quality(found, _bare_number(path, found), "ais-bench accuracy.json")
        elif path.name == "ranksize.json":
            size = _bare_number(path, found)
            found.rank_size = int(size) if size is not None else None
        elif path.name == "eval_acc.log":
            _set_quality(found, _last_number(path, found), "ais-bench eval_acc.log")
        elif path.name == "result.log":
            _result_log(path, found)
    if found.accuracies:
        _set_quality(found, fmean(found.accuracies.values()), f"{SERVER_FILES}, mean over servers")
    if found.rank_size is not None and found.throughputs:
        missing = (rank for rank in range(found.rank_size) if rank not in found.throughputs)
        for rank in itertools.islice(missing, MOST_NAMED):
            text = f"ranksize.json says {found.rank_size} ranks, throughput_{rank}.json is missing"
            found.defects.append(Defect("rank-missing", str(root), text))


def mllog_line(text: str) -> dict[str, Any] | None:
    """The record of a `:::MLLOG` line, or None when the line has none or a broken one."""
    start = text.find(MLLOG)
    if start < 0:
        return None
    try:
        record = parse(text[start + len(MLLOG) :])
    except ValueError:
        return None
    return record if isinstance(record, dict) and "key" in record else None


def log_lines(path: Path) -> Iterator[str]:
    """The lines of a log, each only as far as a line is read by people and patterns."""
    with path.open("rb") as stream:
        while line := stream.readline(MAX_LINE):
            yield line.decode("utf-8", "replace")


def _throughput_file(path: Path, rank: int, server: int | None, found: Ingested, ranks_per_node: int) -> None:
    value = _bare_number(path, found)
    if value is None:
        return
    if server is None:
        _add(found, rank, value, "ais-bench throughput_<rank>.json", path)
    else:
        found.servers.setdefault(server, {})[rank] = value
        rank += server * ranks_per_node
        _add(found, rank, value, "ais-bench <server>/throughput_<n>.json", path)


def _server(path: Path, root: Path) -> int | None:
    """The server whose number the file's folder has; the run directory itself may be called by a number."""
    name = path.parent.relative_to(root).name
    return int(name) if name.isdecimal() else None


def _accuracy_file(path: Path, server: int, found: Ingested) -> None:
    value = _bare_number(path, found)
    if value is not None:
        earlier = found.accuracies.setdefault(server, value)
        if earlier != value:
            text = f"{path.name} was written twice, with {earlier:g} and {value:g}"
            found.defects.append(Defect("rank-twice", path.name, text))


def _read_set_result(root: Path, found: Ingested) -> None:
    """`result_rank_<r>.json`: throughput summed over ranks, start keys minimum, end keys maximum."""
    for path in _files(root):
        match = RESULT_RANK.match(path.name)
        if not match:
            continue
        try:
            modes = read_object(path)
            for mode, keys in modes.items():
                for key, values in keys.items():
                    _set_result_value(found, int(match.group(1)), mode, key, values, path)
        except (ValueError, AttributeError, TypeError, LookupError, OSError) as error:
            text = f"{path.name} is not a result file of set_result: {error}"
            found.defects.append(Defect("truncated", path.name, text))


def _set_result_value(found: Ingested, rank: int, mode: str, key: str, values: list[Any], path: Path) -> None:
    last = values[-1]
    if "throughput" in key:
        _add(found, rank, _finite(last, path, found), f"ais_utils.set_result {mode}/{key}", path)
    elif key == "accuracy":
        _set_quality(found, _finite(last, path, found), f"ais_utils.set_result {mode}/{key}")
    elif key.endswith(("start_time", "end_time")):
        earlier = found.settings.get(key)
        pick = min if key.endswith("start_time") else max
        found.settings[key] = str(last) if earlier is None else pick(str(earlier), str(last))
    else:
        found.settings[key] = last if isinstance(last, str | int | float | bool) else str(last)


def _read_log(path: Path, rank: int, rules: Rules, found: Ingested) -> None:
    patterns = {name: re.compile(text) for name, text in rules.log_patterns.items()}
    for line in log_lines(path):
        if MLLOG in line and (record := mllog_line(line)) is not None:
            value = record.get("value")
            if record["key"] == "eval_accuracy" and isinstance(value, int | float):
                _log_quality(found, _finite(value, path, found), MLLOG_QUALITY, over=PATTERN)
        for name, pattern in patterns.items():
            if (match := pattern.search(line)) and match.group(1) is not None:
                _log_value(name, match.group(1), rank, path, found)


def _log_value(name: str, text: str, rank: int, path: Path, found: Ingested) -> None:
    value = _finite(text, path, found)
    if name == "throughput" and value is not None:
        # The last line of a log counts: scripts print a running figure.
        if found.throughput_source in ("", PATTERN):
            found.throughputs[rank] = value
            found.throughput_source, found.origin = PATTERN, "its log"
    elif name == "quality":
        _log_quality(found, value, PATTERN)


def _result_log(path: Path, found: Ingested) -> None:
    try:
        record = read_object(path)
        _set_quality(found, _finite(record["accuracy"], path, found), "ais-bench result.log")
        if not found.throughputs:
            _add(found, 0, _finite(record["throughput_ratio"], path, found), "ais-bench result.log", path)
    except (ValueError, KeyError, TypeError, OSError) as error:
        found.defects.append(Defect("truncated", path.name, f"{path.name} cannot be read: {error!r}"))


def _add(found: Ingested, rank: int, value: float | None, source: str, path: Path) -> None:
    if value is None:
        return
    if found.throughput_source not in ("", source):
        # The first kind of file found wins; mixing kinds would count a rank twice.
        return
    earlier = found.throughputs.setdefault(rank, value)
    if earlier != value:
        text = f"rank {rank} wrote its throughput twice, {earlier:g} and, in {path.name}, {value:g}"
        found.defects.append(Defect("rank-twice", path.name, text))
    found.throughput_source, found.origin = source, path.parent.name or str(path.parent)


def _set_quality(found: Ingested, value: float | None, source: str) -> None:
    if value is not None and found.quality is None:
        found.quality, found.quality_source = value, source


def _log_quality(found: Ingested, value: float | None, source: str, over: str = "") -> None:
    """Of logs the last value counts, unless a more trustworthy source than `over` has set it already."""
    if value is not None and found.quality_source in ("", source, over):
        found.quality, found.quality_source = value, source


def _bare_number(path: Path, found: Ingested) -> float | None:
    try:
        text = path.read_text("utf-8").strip()
        if not text:
            raise ValueError("it is empty")
        return _finite(parse(text.replace("NaN", '"NaN"')), path, found)
    except (ValueError, OSError, UnicodeDecodeError) as error:
        found.defects.append(Defect("truncated", path.name, f"{path.name} does not hold one number: {error}"))
        return None


def _last_number(path: Path, found: Ingested) -> float | None:
    numbers = re.findall(r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?", path.read_text("utf-8", errors="replace"))
    if not numbers:
        found.defects.append(Defect("truncated", path.name, f"{path.name} holds no number"))
        return None
    return _finite(numbers[-1], path, found)


def _finite(value: object, path: Path, found: Ingested) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        found.defects.append(Defect("truncated", path.name, f"{path.name}: {value!r} is not a number"))
        return None
    if not math.isfinite(number):
        found.defects.append(Defect("not-finite", path.name, f"{path.name} holds {value}"))
        return None
    return number


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
            yield path
