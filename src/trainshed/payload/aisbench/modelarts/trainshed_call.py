"""Asks the Trainshed that runs this package: one process a call, JSON in and out."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
import json
import os
import subprocess


class ModelArtsError(Exception):
    """What the platform's own SDK raises when a request fails."""


def call(verb, **fields):
    """Do `verb` and give its answer; what went wrong is one sentence."""
    python = os.environ.get("AIS_BENCH_PYTHON")
    if not python:
        raise ModelArtsError(
            "AIS_BENCH_PYTHON is not set: start this script with `./ais-bench-stubs python SCRIPT`"
        )
    done = subprocess.run(
        [python, "-m", "trainshed.cli.stubs", "sdk", verb],
        input=json.dumps(fields, default=str),
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ModelArtsError(done.stderr.strip() or f"{verb} ended with {done.returncode}")
    return json.loads(done.stdout)


def _environment():
    """Without what was laid before this script: Trainshed's own Python must not find it."""
    laid = set(os.environ.get("AIS_BENCH_LAID", "").split(","))
    env = {name: value for name, value in os.environ.items() if name not in laid}
    if os.environ.get("AIS_BENCH_PYTHONPATH"):
        env["PYTHONPATH"] = os.environ["AIS_BENCH_PYTHONPATH"]
    return env
