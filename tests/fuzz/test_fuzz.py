"""Documents of others, whatever they hold: one error of ours at most, no hang, no memory without end."""

from __future__ import annotations

import copy
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from targets import TARGETS

from support import ROOT

pytestmark = pytest.mark.hardening

EXAMPLES = 150
CPU = 10.0
"""Seconds of the processor that one document may take, however busy the machine is."""
MEMORY = 500 << 10
"""Kilobytes by which this process may grow."""


@pytest.mark.parametrize("name", TARGETS)
def test_no_document_brings_more_than_an_error_of_ours(name: str) -> None:
    target = TARGETS[name]
    target.feed(target.encode(target.honest))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=target.inputs())
    def feed(data: bytes) -> None:
        began = time.process_time()
        target.feed(data)
        assert time.process_time() - began < CPU, "it takes too long"

    feed()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY


@pytest.mark.parametrize("name", TARGETS)
def test_an_honest_document_is_read(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = TARGETS[name]
    target.read(target.encode(target.honest), tmp_path_factory.mktemp(name))


def _short_coordinator(plan: dict[str, Any]) -> None:
    plan["nodes"][0]["coordinator"] = [10241]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plan", _short_coordinator),
        ("manifest", lambda manifest: manifest["files"].update({"1" * 20_000: {}})),
        ("jobs", lambda job: job.update(code="a" * 300)),
        ("jobs", lambda job: job.update(code=".", entry="a" * 300)),
        ("jobs", lambda job: job.update(inputs=[{"name": "data", "source": "a" * 300}])),
    ],
)
def test_what_was_found_before_is_one_error_of_ours(
    name: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    target = TARGETS[name]
    document = copy.deepcopy(target.honest)
    change(document)
    target.feed(target.encode(document))


def test_the_script_feeds_the_same_targets() -> None:
    """`make fuzz`, for a moment: it has its own search path, which the tests do not use."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/fuzz.py", "0.001", "manifest"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"manifest: [1-9]\d* documents", done.stdout), done.stdout
