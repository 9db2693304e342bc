"""A network test under the Tester's eyes: a nonce for the job, and the heads of its chain while it runs.

The stubs ask for the nonce and send the heads; benchmark.sh and its steps are
given the nonce in a variable, never the token. The job itself gets neither.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from trainshed.aisbench.config import Package, TestConfig
from trainshed.aisbench.registry import Registry
from trainshed.aisbench.stublog import StubLog
from trainshed.api import Client
from trainshed.bench.run.witness import Forwarder
from trainshed.runs.chain import NONCE_LABEL, is_nonce, path_of

VARIABLE = "AIS_BENCH_NONCE"


def nonce_label() -> dict[str, str]:
    """The label of a job that the stubs were given a nonce for."""
    nonce = os.environ.get(VARIABLE, "")
    return {NONCE_LABEL: nonce} if is_nonce(nonce) else {}


def ask_nonce(config: TestConfig, log: StubLog) -> str:
    """A nonce of the Tester; empty when it does not answer, which the result will show."""
    from trainshed.tester.client import UnreachableError
    from trainshed.tester.witness import TesterWitness

    try:
        witness = TesterWitness(config.url, config.testid, config.tester_token_file, config.tester_ca_file)
        return witness.nonce(seconds=0.0)
    except UnreachableError as error:
        log.warning(f"{error.message}; the result will be kept and sent later, and it will not be attested")
        return ""


def watched(nonce: str, config: TestConfig, log: StubLog) -> AbstractContextManager[object]:
    """Send the heads of the job with this nonce while it runs."""
    from trainshed.tester.witness import TesterWitness

    if not nonce:
        return nullcontext()
    witness = TesterWitness(config.url, config.testid, config.tester_token_file, config.tester_ca_file)
    return Forwarder(witness, nonce, lambda: _chain_of(nonce), log.warning)


def nonce_of(package: Package) -> str:
    """The nonce of the newest job of a package, taken up after a crash."""
    client = Client()
    version = Registry(client.home).newest_of_package(package.root)
    run = version.find_run(client) if version else None
    return run.directory.submission().labels.get(NONCE_LABEL, "") if run else ""


def _chain_of(nonce: str) -> Path | None:
    found = Client().runs({NONCE_LABEL: nonce})
    return found[0].path / path_of(1) if found else None
