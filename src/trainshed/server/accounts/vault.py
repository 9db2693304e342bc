"""Encryption of what the database must give back (SKs, stored secrets), with a key that lies outside it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from trainshed import files
from trainshed.errors import TrainshedError

_NONCE = 12
_KEY = 32


class VaultError(TrainshedError):
    """What was encrypted cannot be read with this key."""

    code = "vault"


class Vault:
    """AES-GCM with one key; `purpose` binds a value to its row, so that rows cannot be swapped."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    @classmethod
    def at(cls, path: Path) -> Vault:
        """The key of that file, which is made at first."""
        with contextlib.suppress(FileNotFoundError):
            key = path.read_bytes()
            if len(key) != _KEY:
                raise VaultError(
                    f"{path} is not a key: it has {len(key)} bytes, not {_KEY}", "restore it from a backup"
                )
            return cls(key)
        key = os.urandom(_KEY)
        files.write_atomic(path, key, mode=0o600, durable=True)
        return cls(key)

    def encrypt(self, text: str, purpose: str) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, text.encode(), purpose.encode())

    def decrypt(self, data: bytes, purpose: str) -> str:
        try:
            return self._cipher.decrypt(data[:_NONCE], data[_NONCE:], purpose.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise VaultError(
                "a stored secret cannot be decrypted: the key file is not the one it was stored with",
                "restore the key file from a backup, or store the secret again",
            ) from error
