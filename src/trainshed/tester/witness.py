"""A Tester as the witness of runs: nonces before them, heads of their chains while they go on."""

from __future__ import annotations

import time

from trainshed.bench.run.witness import WitnessAway
from trainshed.tester.client import TesterClient, UnreachableError, connection_to

_TIMEOUT = 10.0
_NONCE_SECONDS = 60.0
"""How long a Tester that does not answer is asked for a nonce."""


class TesterWitness:
    """One test of one Tester. The token stays in this process."""

    def __init__(self, url: str, test: str, token: str, authority: str = "") -> None:
        connection_to(url, authority)
        self._url, self._test, self._authority = url.rstrip("/"), test, authority
        self._token = token
        self._client: TesterClient | None = None

    def nonce(self, seconds: float = _NONCE_SECONDS) -> str:
        deadline = time.monotonic() + seconds
        while True:
            try:
                with self._connect() as client:
                    return client.nonce()
            except UnreachableError as error:
                if time.monotonic() > deadline:
                    hint = "start the Tester, or make the result without one: it will not be attested"
                    raise UnreachableError(error.message, hint) from error
                time.sleep(1.0)

    def tell(self, nonce: str, seq: int, digest: str, closed: bool) -> None:
        self._client = self._client or self._connect()
        try:
            self._client.head(nonce, seq, digest, closed)
        except UnreachableError as error:
            self._client = None
            raise WitnessAway(error.message) from error

    def _connect(self) -> TesterClient:
        return TesterClient(self._url, self._test, self._token, self._authority, _TIMEOUT)
