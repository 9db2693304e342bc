"""The tables. What is here of runs is an index that can be made again from the run directories.

Migrations change the database; this file is what the code reads and writes, and a
test compares the two. Times are seconds since 1970. Secrets are digests (of what
is shown once and only compared) or encrypted with a key that lies outside.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _of_user(primary_key: bool = False) -> Column[int]:
    reference = ForeignKey("users.id", ondelete="CASCADE")
    return Column("user_id", Integer, reference, nullable=False, primary_key=primary_key)


def _of_team(primary_key: bool = False) -> Column[int]:
    reference = ForeignKey("teams.id", ondelete="CASCADE")
    return Column("team_id", Integer, reference, nullable=False, primary_key=primary_key)


users = Table(
    "users",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("password", String(200), nullable=False),  # argon2; empty: cannot log in by password
    Column("is_admin", Boolean, nullable=False),
    Column("is_active", Boolean, nullable=False),
    Column("created", Float, nullable=False),
)
teams = Table(
    "teams",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("created", Float, nullable=False),
)
memberships = Table(
    "memberships",
    metadata,
    _of_user(primary_key=True),
    _of_team(primary_key=True),
    Column("role", String(16), nullable=False),
    Index(None, "team_id"),
)
quotas = Table(
    "quotas",
    metadata,
    _of_team(primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("devices", Integer, nullable=False),
)
sessions = Table(
    "sessions",
    metadata,
    Column("digest", String(64), primary_key=True),
    _of_user(),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("address", String(64), nullable=False),
    Index(None, "user_id"),
)
tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    _of_user(),
    Column("name", String(64), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Index(None, "user_id"),
)
access_keys = Table(
    "access_keys",
    metadata,
    Column("id", String(32), primary_key=True),
    _of_user(),
    Column("secret", LargeBinary, nullable=False),  # encrypted
    Column("created", Float, nullable=False),
    Index(None, "user_id"),
)
ssh_keys = Table(
    "ssh_keys",
    metadata,
    Column("fingerprint", String(64), primary_key=True),
    _of_user(primary_key=True),
    Column("name", String(64), nullable=False),
    Column("key", Text, nullable=False),
    Column("created", Float, nullable=False),
    Index(None, "user_id"),
)
secrets = Table(
    "secrets",
    metadata,
    _of_user(primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),  # encrypted
    Column("changed", Float, nullable=False),
)
audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", Float, nullable=False),
    Column("user", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("door", String(16), nullable=False),
    Column("action", String(64), nullable=False),
    Column("subject", String(200), nullable=False),
    Column("detail", Text, nullable=False),
    Column("address", String(64), nullable=False),
    Index(None, "user", "id"),
)
runs = Table(
    "runs",
    metadata,
    Column("id", String(128), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("name", String(64), nullable=False),
    Column("engine", String(32), nullable=False),
    Column("shape", String(32), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("devices", Integer, nullable=False),
    Column("emulated", Boolean, nullable=False),
    Column("labels", Text, nullable=False),  # JSON
    Column("search", Text, nullable=False),  # lower case: id, name, owner, labels
    Column("attempt", Integer, nullable=False),
    Column("exit_code", Integer),
    Column("submitted", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Column("is_final", Boolean, nullable=False),
    Column("is_queued", Boolean, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("preemptible", Boolean, nullable=False),
    Index(None, "submitted", "id"),
    Index(None, "team", "submitted", "id"),
    Index(None, "team", "state", "submitted", "id"),
    Index(None, "owner", "submitted", "id"),
    Index(None, "is_final", "submitted"),
)
run_labels = Table(
    "run_labels",
    metadata,
    Column("run_id", String(128), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("value", String(256), nullable=False),
    Index(None, "name", "value"),
)
idempotency = Table(
    "idempotency",
    metadata,
    _of_user(primary_key=True),
    Column("key", String(128), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("run_id", String(128), nullable=False),
    Column("created", Float, nullable=False),
    Index(None, "created"),
)
templates = Table(
    "templates",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_team(),
    Column("owner", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("job", Text, nullable=False),
    Column("created", Float, nullable=False),
    UniqueConstraint("team_id", "name"),
)
webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_team(),
    Column("url", Text, nullable=False),
    Column("secret", LargeBinary, nullable=False),  # encrypted
    Column("events", Text, nullable=False),
    Column("created", Float, nullable=False),
    Index(None, "team_id"),
)
