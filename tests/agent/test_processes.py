"""What an agent takes for itself its processes do not inherit."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.foundation, pytest.mark.core]

SCRIPT = """
import resource, subprocess, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
from trainshed.agent import processes
processes.allow_files(100)
assert processes.open_files() == 256, "enough is enough"
processes.allow_files(300)
assert processes.open_files() == hard
subprocess.run(["/bin/sh", "-c", "ulimit -n"], preexec_fn=processes._die_with_agent)
"""


def test_the_limit_of_open_files_is_raised_for_the_agent_alone() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "256\n"), done.stderr
