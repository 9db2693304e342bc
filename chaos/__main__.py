"""The campaign: trials side by side, a table, a JSON file, and 1 if a promise was broken."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/real/slurm")]

from chaos import trials  # noqa: E402
from chaos.carry import Result, carry_out, check_again  # noqa: E402
from chaos.yard import Yard  # noqa: E402


def main() -> int:
    options = _options()
    engines = tuple(options.on.split(","))
    if unknown := set(engines) - set(trials.ENGINES):
        print(f"--on: no engine {', '.join(sorted(unknown))}; there are {', '.join(trials.ENGINES)}")
        return 2
    numbers = (
        [options.trial]
        if options.trial is not None
        else list(range(options.first, options.first + options.trials))
    )
    until = time.monotonic() + options.minutes * 60
    results: list[Result] = []
    lock = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        yard = Yard(Path(folder), engines)

        def one(number: int) -> None:
            if time.monotonic() > until:
                return
            trial = trials.make(options.seed, number, engines, options.kills)
            try:
                result = carry_out(trial, yard, options.seed)
            except Exception as error:
                result = Result(trial, violations=[f"{type(error).__name__}: {error}"])
                traceback.print_exc()
            with lock:
                results.append(result)
                _say(result, options, len(results))
                _write(results, options)

        try:
            with ThreadPoolExecutor(options.at_once) as pool:
                list(pool.map(one, numbers))
            for result in results:  # long after the end of most
                if result.end:
                    check_again(result, yard.client.get(result.run))
        finally:
            yard.close()
    _write(results, options)
    print(table(results))
    broken = [result for result in results if result.violations]
    for result in broken:
        _say(result, options, len(results))
    print(f"seed {options.seed}: {len(results)} trials, {len(broken)} with a broken promise; {options.json}")
    return 1 if broken else 0


def table(results: list[Result]) -> str:
    """Per engine and strike: how often, how it ended, and the longest time to the end."""
    rows: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        strikes = " + ".join(sorted(map(str, result.struck))) if len(result.struck) < 2 else "pairs"
        rows.setdefault((result.trial.engine, strikes or "nothing left to strike"), []).append(result)
    lines = [
        "| engine | struck | trials | ended as | longest to the end | broken promises |",
        "|---|---|---|---|---|---|",
    ]
    for (engine, strike), group in sorted(rows.items()):
        states = ", ".join(f"{n} {state}" for state, n in sorted(Counter(r.state for r in group).items()))
        longest = max(result.seconds for result in group)
        broken = sum(1 for result in group if result.violations)
        lines.append(f"| {engine} | {strike} | {len(group)} | {states} | {longest:.0f} s | {broken} |")
    return "\n".join(lines)


def _say(result: Result, options: argparse.Namespace, count: int) -> None:
    struck = " + ".join(map(str, result.struck)) or "nothing"
    print(
        f"{count}: {result.trial}: struck {struck}: {result.state} after {result.seconds:.1f} s: {result.reason:.150}"
    )
    for text in result.violations:
        repeat = f"python -m chaos --seed {options.seed} --on {options.on} --trial {result.trial.number}"
        repeat += " --kills" if options.kills else ""
        print(f"  BROKEN PROMISE: {text}\n  repeat it with: {repeat}")
    sys.stdout.flush()


def _write(results: list[Result], options: argparse.Namespace) -> None:
    path = Path(options.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"seed": options.seed, "on": options.on, "trials": [result.to_json() for result in results]}
    path.write_text(json.dumps(data, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    parser.add_argument("--trial", type=int, help="only this one, to repeat it")
    parser.add_argument("--on", default=",".join(trials.ENGINES), help="engines, separated by commas")
    parser.add_argument(
        "--kills", action="store_true", help="SIGKILL and jobs that end soon only: a quick look"
    )
    parser.add_argument("--at-once", type=int, default=8, help="trials side by side")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no trial later than this")
    parser.add_argument(
        "--json", default=str(ROOT / "build/chaos.json"), help="where the results are written"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
