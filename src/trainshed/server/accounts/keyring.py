"""What proves who somebody is, and what they keep here: sessions, tokens, keys, secrets.

What is shown once is kept as a digest, which suffices to compare it. Random
values of 256 bits need no slow hash. Only SKs and secrets can be read back, and
these are encrypted with a key outside the database.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets as random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from trainshed.errors import NotFoundError, UsageError
from trainshed.server.accounts import audit
from trainshed.server.accounts.identity import Door, Identity, UnknownCallerError
from trainshed.server.accounts.limits import AttemptLimits
from trainshed.server.accounts.passwords import is_password
from trainshed.server.accounts.people import ConflictError, load_identity
from trainshed.server.accounts.vault import Vault
from trainshed.server.database import Database
from trainshed.server.database.schema import access_keys, secrets, sessions, ssh_keys, tokens, users

SESSION = 12 * 3600.0
MOST = 100
"""Tokens, keys or secrets that one user may have of each."""
_SECRET = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_SSH_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


@dataclass(frozen=True)
class Keyring:
    """All credentials of one server."""

    database: Database
    vault: Vault
    limits: AttemptLimits = field(default_factory=AttemptLimits)

    def log_in(self, name: str, password: str, address: str) -> tuple[str, float]:
        """A new session's id and its end; wrong name and wrong password are answered alike."""
        self.limits.check(name, address)
        with self.database.read() as connection:
            row = connection.execute(
                select(users.c.id, users.c.password).where(
                    users.c.name == audit.printable(name, 64), users.c.is_active
                )
            ).first()
        if not is_password(row.password if row else "", password) or row is None:
            self.limits.failed(name, address)
            raise UnknownCallerError
        self.limits.succeeded(name)
        session, now = f"tss_{random.token_urlsafe(32)}", time.time()
        with self.database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.expires < now))
            connection.execute(
                insert(sessions).values(
                    digest=_digest(session),
                    user_id=row.id,
                    created=now,
                    expires=now + SESSION,
                    address=address[:64],
                )
            )
            who = load_identity(connection, row.id, Door.API, address)
            if who is None:
                raise UnknownCallerError
            audit.record(connection, who, "session.create", who.name)
        return session, now + SESSION

    def identify(self, credential: str, address: str, door: Door = Door.API) -> Identity:
        """Whose session or token this is; UnknownCallerError for any that is not valid now."""
        table = sessions if credential.startswith("tss_") else tokens
        with self.database.read() as connection:
            row = connection.execute(
                select(table.c.user_id, table.c.expires).where(table.c.digest == _digest(credential))
            ).first()
            found = row and (row.expires is None or row.expires > time.time())
            who = load_identity(connection, row.user_id, door, address) if row and found else None
        if who is None:
            raise UnknownCallerError
        return who

    def log_out(self, credential: str) -> None:
        with self.database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.digest == _digest(credential)))

    def add_token(self, who: Identity, name: str, seconds: float | None = None) -> tuple[str, str]:
        """The id and the token itself, which is shown this once."""
        token, number = f"tst_{random.token_urlsafe(32)}", random.token_hex(8)
        row = {
            "id": number,
            "user_id": who.id,
            "name": audit.printable(name, 64),
            "digest": _digest(token),
            "created": time.time(),
            "expires": None if seconds is None else time.time() + seconds,
        }
        with self._adding(who, tokens, "token.create", number) as connection:
            connection.execute(insert(tokens).values(row))
        return number, token

    def tokens(self, who: Identity) -> list[dict[str, Any]]:
        return self._list(who, tokens, "id", "name", "created", "expires")

    def remove_token(self, who: Identity, number: str) -> None:
        self._remove(who, tokens, "id", number, "token")

    def add_access_key(self, who: Identity) -> tuple[str, str]:
        """AK and SK; the SK is shown this once."""
        key = "TS" + base64.b32encode(random.token_bytes(11)).decode().rstrip("=")
        secret = random.token_urlsafe(30)
        row = {
            "id": key,
            "user_id": who.id,
            "created": time.time(),
            "secret": self.vault.encrypt(secret, f"ak:{key}"),
        }
        with self._adding(who, access_keys, "access-key.create", key) as connection:
            connection.execute(insert(access_keys).values(row))
        return key, secret

    def access_keys(self, who: Identity) -> list[dict[str, Any]]:
        return self._list(who, access_keys, "id", "created")

    def remove_access_key(self, who: Identity, key: str) -> None:
        self._remove(who, access_keys, "id", key, "access key")

    def secret_key(self, key: str) -> str:
        """The SK of an AK, for checking signatures; never shown."""
        with self.database.read() as connection:
            row = connection.execute(
                select(access_keys.c.secret)
                .select_from(access_keys.join(users, users.c.id == access_keys.c.user_id))
                .where(access_keys.c.id == audit.printable(key, 32), users.c.is_active)
            ).first()
        if row is None:
            raise UnknownCallerError
        return self.vault.decrypt(row.secret, f"ak:{key}")

    def add_ssh_key(self, who: Identity, name: str, key: str) -> str:
        """The fingerprint of a public key, as `ssh-keygen -l` prints it."""
        fingerprint, clean = _ssh_key(key)
        row = {
            "fingerprint": fingerprint,
            "user_id": who.id,
            "name": audit.printable(name, 64),
            "key": clean,
            "created": time.time(),
        }
        with self._adding(who, ssh_keys, "ssh-key.create", fingerprint) as connection:
            connection.execute(insert(ssh_keys).values(row))
        return fingerprint

    def ssh_keys(self, who: Identity) -> list[dict[str, Any]]:
        return self._list(who, ssh_keys, "fingerprint", "name", "key", "created")

    def remove_ssh_key(self, who: Identity, fingerprint: str) -> None:
        self._remove(who, ssh_keys, "fingerprint", fingerprint, "SSH key")

    def set_secret(self, who: Identity, name: str, value: str) -> None:
        """Store a secret for jobs; nobody can read it back but a job of its owner."""
        if not _SECRET.match(name):
            raise UsageError(f"secret: invalid name: {name!r:.80}", "use letters, digits and _")
        if not 0 < len(value) <= 65536 or "\0" in value:
            raise UsageError(
                f"secret {name}: its value has {len(value)} characters, or a NUL", "use 1 to 65536 characters"
            )
        data = self.vault.encrypt(value, f"secret:{who.id}:{name}")
        with self.database.write() as connection:
            same = (secrets.c.user_id == who.id) & (secrets.c.name == name)
            changed = connection.execute(update(secrets).where(same).values(value=data, changed=time.time()))
            if not changed.rowcount:
                _check_room(connection, secrets, who)
                row = {"user_id": who.id, "name": name, "value": data, "changed": time.time()}
                connection.execute(insert(secrets).values(row))
            audit.record(connection, who, "secret.set", name)

    def secrets(self, who: Identity) -> list[dict[str, Any]]:
        return self._list(who, secrets, "name", "changed")

    def remove_secret(self, who: Identity, name: str) -> None:
        self._remove(who, secrets, "name", name, "secret")

    def secret_values(self, owner: str, names: Iterable[str]) -> dict[str, str]:
        """The values of a user's secrets, for a job of theirs; NotFoundError names what is not stored."""
        wanted = sorted(set(names))
        query = (
            select(secrets.c.name, secrets.c.value, users.c.id)
            .select_from(secrets.join(users, users.c.id == secrets.c.user_id))
            .where(users.c.name == owner, secrets.c.name.in_(wanted))
        )
        with self.database.read() as connection:
            rows = connection.execute(query).all()
        values = {row.name: self.vault.decrypt(row.value, f"secret:{row.id}:{row.name}") for row in rows}
        if missing := [name for name in wanted if name not in values]:
            raise NotFoundError(
                f"secrets: {', '.join(missing)} not stored on the server", "store them, or correct the names"
            )
        return values

    @contextmanager
    def _adding(self, who: Identity, table: Any, action: str, subject: str) -> Iterator[Connection]:
        try:
            with self.database.write() as connection:
                _check_room(connection, table, who)
                yield connection
                audit.record(connection, who, action, subject)
        except IntegrityError as error:
            raise ConflictError(f"{subject} is there already", "remove it first") from error

    def _list(self, who: Identity, table: Any, *columns: str) -> list[dict[str, Any]]:
        query = select(*(table.c[name] for name in columns)).where(table.c.user_id == who.id)
        with self.database.read() as connection:
            return [dict(row) for row in connection.execute(query.order_by(table.c[columns[0]])).mappings()]

    def _remove(self, who: Identity, table: Any, column: str, value: str, what: str) -> None:
        clean = audit.printable(value, 128)
        with self.database.write() as connection:
            gone = connection.execute(
                delete(table).where(table.c.user_id == who.id, table.c[column] == clean)
            )
            if not gone.rowcount:
                raise NotFoundError(f"no such {what}: {value!r:.80}", "list them first")
            audit.record(connection, who, f"{what.lower().replace(' ', '-')}.remove", value)


def _digest(credential: str) -> str:
    return hashlib.sha256(credential.encode("utf-8", "replace")).hexdigest()


def _check_room(connection: Connection, table: Any, who: Identity) -> None:
    count = connection.scalar(select(func.count()).select_from(table).where(table.c.user_id == who.id))
    if count is not None and count >= MOST:
        raise UsageError(f"{table.name}: there are {count} already, and {MOST} at most", "remove some first")


def _ssh_key(text: str) -> tuple[str, str]:
    """Fingerprint and line of a public key; UsageError for anything else."""
    words = text.split()
    wrong = UsageError("invalid SSH public key", "paste one line of a file such as ~/.ssh/id_ed25519.pub")
    if len(words) < 2 or words[0] not in _SSH_KINDS or len(text) > 8192:
        raise wrong
    try:
        data = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError) as error:
        raise wrong from error
    size = int.from_bytes(data[:4], "big")
    if data[4 : 4 + size] != words[0].encode() or len(data) < 36:
        raise wrong
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"SHA256:{digest}", f"{words[0]} {words[1]}"
