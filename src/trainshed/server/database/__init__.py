"""The server's database: accounts, queue order, audit, and an index of run directories."""

from trainshed.server.database.connect import Database, DatabaseError

__all__ = ["Database", "DatabaseError"]
