"""Runs the steps on the connection that `Database.migrate` hands over, in its transaction."""

from alembic import context

from trainshed.server.database.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
