"""Passwords: argon2, a few at a time, since each takes memory on purpose."""

from __future__ import annotations

import threading

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from trainshed.errors import UsageError

SHORTEST, LONGEST = 10, 200
_HASHER = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)
_NOBODY = _HASHER.hash("nobody has this password")
_AT_ONCE = threading.BoundedSemaphore(4)


def hash_password(password: str) -> str:
    if not SHORTEST <= len(password) <= LONGEST:
        raise UsageError(
            f"password: has {len(password)} characters", f"use {SHORTEST} to {LONGEST} characters"
        )
    with _AT_ONCE:
        return _HASHER.hash(password)


def is_password(stored: str, password: str) -> bool:
    """Takes as long for an account that does not exist (`stored` is empty) as for one that does."""
    with _AT_ONCE:
        try:
            return _HASHER.verify(stored or _NOBODY, password[: LONGEST + 1]) and bool(stored)
        except (VerificationError, InvalidHashError):
            return False
