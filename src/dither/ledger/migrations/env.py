"""Alembic's environment: the migrations run on the connection, and in the transaction, that the ledger hands over."""

from alembic import context

from dither.ledger.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
