"""A network test under the Tester's eyes: a nonce for the job, and the heads of its chain while it runs.

The stubs ask for the nonce and send the heads; benchmark.sh and its steps are
given the nonce in a variable, never the token. The job itself gets neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.aisbench.config import Package, TestConfig
from trainshed.aisbench.registry import Registry
from trainshed.aisbench.stublog import StubLog
from trainshed.api import Client
from trainshed.bench.run.witness import Forwarder
from trainshed.runs.chain import NONCE_LABEL, is_nonce, path_of

if TYPE_CHECKING:
    from trainshed.tester.spool import Participant
    from trainshed.tester.witness import TesterWitness

VARIABLE = "AIS_BENCH_NONCE"


def nonce_label(environ: Mapping[str, str]) -> dict[str, str]:
    """The label of a job that the stubs were given a nonce for."""
    nonce = environ.get(VARIABLE, "")
    return {NONCE_LABEL: nonce} if is_nonce(nonce) else {}


def ask_nonce(config: TestConfig, participant: Participant, log: StubLog) -> str:
    """A nonce of the Tester; empty when it does not answer, which the result will show."""
    from trainshed.tester.client import UnreachableError

    try:
        return _witness(config, participant).nonce(seconds=0.0)
    except UnreachableError as error:
        log.warning(f"{error.message}; the result will be kept and sent later, and it will not be attested")
        return ""


def watched(
    nonce: str, config: TestConfig, client: Client, participant: Participant, log: StubLog
) -> AbstractContextManager[object]:
    """Send the heads of the job that carries this nonce, as long as it lasts."""
    if not nonce:
        return nullcontext()
    return Forwarder(_witness(config, participant), nonce, lambda: _chain_of(client, nonce), log.warning)


def nonce_of(package: Package, client: Client) -> str:
    """The nonce of the newest job of a package, taken up after a crash."""
    version = Registry(client.home).newest_of_package(package.root)
    run = version.find_run(client) if version else None
    return run.directory.submission().labels.get(NONCE_LABEL, "") if run else ""


def _witness(config: TestConfig, participant: Participant) -> TesterWitness:
    from trainshed.tester.witness import TesterWitness

    token = participant.find_token(config.testid, config.tester_token_file)
    return TesterWitness(config.url, config.testid, token, config.tester_ca_file)


def _chain_of(client: Client, nonce: str) -> Path | None:
    found = client.runs({NONCE_LABEL: nonce})
    return found[0].path / path_of(1) if found else None
