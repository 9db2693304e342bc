"""Asking the Tester for its verdict on a result that was sent."""

from __future__ import annotations

import time
from typing import Any

from trainshed.tester.client import TesterClient, UnreachableError
from trainshed.tester.spool import Participant, SpooledResult


def verdict_of(
    entry: SpooledResult, participant: Participant, seconds: float, pause: float = 0.3
) -> dict[str, Any]:
    """The state and receipt of a sent result, as soon as it is checked or `seconds` are over."""
    deadline = time.monotonic() + seconds
    token = participant.find_token(entry.test, entry.token_file)
    with TesterClient(entry.url, entry.test, token, entry.authority) as client:
        while True:
            try:
                state = client.state(entry.upload)
                if state["state"] in ("valid", "unstable", "failed") or time.monotonic() > deadline:
                    return state
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(pause)
