"""`ais_utils` as ais-bench scripts import or call it.

One file, standard library only, Python 3.7 or later. Results go to
`result_rank_<r>.json` as {mode: {key: [values]}} in $TRAINSHED_METRICS_DIR, or
else in $RESULT_PATH, or else in `result/` below the current folder. Writing is
atomic and locked: ranks and helpers of a rank may call it at the same time.

    python ais_utils.py set_result training throughput_ratio 1234.5
"""

# ruff: noqa: PTH103, PTH105, PTH109, PTH110, PTH118, UP031, B905, RUF007
# mypy: ignore-errors
# (must run on Python 3.7)
import fcntl
import json
import os
import sys
import time


def set_result(mode, key, value):
    """Keep `value` under `mode` ("training" or "inference") and `key`; all values of a key are kept."""
    folder = _folder()
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "result_rank_%d.json" % _rank())
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                results = json.load(stream)
        results.setdefault(str(mode), {}).setdefault(str(key), []).append(_plain(value))
        with open(path + ".part", "w", encoding="utf-8") as stream:
            json.dump(results, stream, indent=2, sort_keys=True)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(path + ".part", path)


def get_datatime():
    """The time now as ais-bench writes it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())


def calc_throughput_rate(n, start, end):
    """`n` samples between two times, each in seconds or as `get_datatime` writes it."""
    seconds = _seconds(end) - _seconds(start)
    if seconds <= 0:
        raise ValueError("end %r is not after start %r" % (end, start))
    return n / seconds


def calc_single_avg_power(readings):
    """The mean of power readings in watts; (time, watts) pairs are weighted by time."""
    pairs = _pairs(readings)
    if len(pairs) < 2 or pairs[-1][0] == pairs[0][0]:
        return pairs[0][1]
    joules = sum(a[1] * (b[0] - a[0]) for a, b in zip(pairs, pairs[1:]))
    return joules / (pairs[-1][0] - pairs[0][0])


def calc_single_max_power(readings):
    """The highest of power readings in watts."""
    return max(watts for _, watts in _pairs(readings))


def main(arguments):
    if len(arguments) == 4 and arguments[0] == "set_result":
        set_result(*arguments[1:])
        return 0
    sys.stderr.write("usage: python ais_utils.py set_result MODE KEY VALUE\n")
    return 2


def _folder():
    env = os.environ
    return env.get("TRAINSHED_METRICS_DIR") or env.get("RESULT_PATH") or os.path.join(os.getcwd(), "result")


def _rank():
    for name in ("TRAINSHED_RANK", "RANK_ID", "RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def _plain(value):
    """A JSON value: numbers stay numbers, texts that are numbers become numbers, NaN stays text."""
    if isinstance(value, bool) or value is None:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if number != number or number in (float("inf"), float("-inf")):
        return str(number)
    return int(value) if isinstance(value, int) else number


def _seconds(moment):
    if isinstance(moment, (int, float)):
        return float(moment)
    return time.mktime(time.strptime(str(moment), "%Y-%m-%d %H:%M:%S"))


def _pairs(readings):
    pairs = [r if isinstance(r, (list, tuple)) else (float(i), r) for i, r in enumerate(readings)]
    if not pairs:
        raise ValueError("there is no power reading")
    return [(float(t), float(watts)) for t, watts in pairs]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
