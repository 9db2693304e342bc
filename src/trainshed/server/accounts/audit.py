"""The audit log: who did what, when, by which door. Only ever added to."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, insert, select

from trainshed.server.accounts.identity import Identity
from trainshed.server.database import Database
from trainshed.server.database.schema import audit

PAGE = 200


def record(
    connection: Connection, who: Identity, action: str, subject: str, detail: str = "", team: str = ""
) -> None:
    """In the transaction that does the thing: what is recorded happened, what happened is recorded."""
    connection.execute(
        insert(audit).values(
            time=time.time(),
            user=who.name,
            team=team,
            door=who.door.value,
            action=action,
            subject=printable(subject, 200),
            detail=printable(detail, 1000),
            address=who.address[:64],
        )
    )


def entries(
    database: Database, before: int | None = None, user: str = "", limit: int = PAGE
) -> list[dict[str, Any]]:
    """A page of the log, newest first; `before` is the last id of the page before."""
    query = select(audit).order_by(audit.c.id.desc()).limit(min(limit, PAGE))
    if before is not None:
        query = query.where(audit.c.id < before)
    if user:
        query = query.where(audit.c.user == user)
    with database.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def printable(text: str, most: int) -> str:
    """Text that every database takes and every terminal shows."""
    return "".join(c if c.isprintable() else " " for c in text[:most])
