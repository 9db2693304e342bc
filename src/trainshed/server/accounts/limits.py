"""Limits on log-in attempts, per account and per address, in memory that does not grow."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from trainshed.errors import TrainshedError

PER_ACCOUNT, PER_ADDRESS = 10, 50
"""Failures within the window after which further attempts are refused."""
WINDOW = 900.0
_MOST = 20_000


class TooManyAttemptsError(TrainshedError):
    """Too many failed log-ins; the right password is refused as well, until the window has passed."""

    code = "too-many-attempts"

    def __init__(self, seconds: float) -> None:
        self.seconds = max(1, round(seconds))
        super().__init__("too many failed log-ins", f"try again in {self.seconds} s")


class AttemptLimits:
    """Counts failures; a success does not reset those of the address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._failures: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def check(self, account: str, address: str) -> None:
        """TooManyAttemptsError when this account or address has failed too often."""
        now = self._clock()
        with self._lock:
            for key, most in _keys(account, address):
                count, until = self._failures.get(key, (0, 0.0))
                if count >= most and until > now:
                    raise TooManyAttemptsError(until - now)

    def failed(self, account: str, address: str) -> None:
        now = self._clock()
        with self._lock:
            for key, _ in _keys(account, address):
                count, until = self._failures.pop(key, (0, 0.0))
                # Counted from the first failure: whoever goes on guessing does not lock its owner out for ever.
                self._failures[key] = (count + 1, until) if until > now else (1, now + WINDOW)
            while len(self._failures) > _MOST:
                self._failures.popitem(last=False)

    def succeeded(self, account: str) -> None:
        with self._lock:
            self._failures.pop(("account", account), None)


def _keys(account: str, address: str) -> tuple[tuple[tuple[str, str], int], ...]:
    return ((("account", account[:64]), PER_ACCOUNT), (("address", address[:64]), PER_ADDRESS))
