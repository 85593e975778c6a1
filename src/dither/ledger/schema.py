"""The tables of the book, what may never happen to their rows, and the numbered migrations that make them.

``entries`` is the book: one line each, append-only by trigger. ``charges``, ``balances`` and ``releases`` are read off it
in the same transaction, so that a charge is decided without reading the book again; what they say follows from the lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import BigInteger, Column, Connection, Index, Integer, MetaData, Table, Text, inspect, text

from dither.core.errors import LedgerError

VERSION: Final = "0001"
"""The newest migration."""
KNOWN: Final = ("0001",)
"""Every migration there is, oldest first."""
FOLDER: Final = Path(__file__).with_name("migrations")

_Number = BigInteger().with_variant(Integer(), "sqlite")  # INTEGER PRIMARY KEY is SQLite's own row number

metadata = MetaData()

entries = Table(
    "entries",
    metadata,
    Column("n", _Number, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("charge", Text),
    Column("at", Text, nullable=False),
    Column("terms", _Number, nullable=False),  # the newest entry, up to this one, that changed what was agreed
    Column("hash", Text, nullable=False),
    Column("line", Text, nullable=False),
)
Index("entries_terms", entries.c.n, sqlite_where=entries.c.n == entries.c.terms, postgresql_where=entries.c.n == entries.c.terms)
_NEWS = entries.c.kind.in_(("alert", "refusal"))
Index("entries_news", entries.c.n, sqlite_where=_NEWS, postgresql_where=_NEWS)
charges = Table(
    "charges",
    metadata,
    Column("id", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reserve_n", _Number, nullable=False),
    Column("settle_n", _Number),
    Column("account", Text, nullable=False),
    Column("dataset", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("told", Text, nullable=False),  # what the receipt said was spent and remains, so that a retry reads the same
    sqlite_with_rowid=False,
)
Index("charges_open", charges.c.reserve_n, sqlite_where=charges.c.settle_n.is_(None), postgresql_where=charges.c.settle_n.is_(None))
balances = Table(
    "balances",
    metadata,
    Column("limit_id", Text, primary_key=True),
    Column("block", Text, primary_key=True),  # "" for a limit over the whole dataset
    Column("spent", Text, nullable=False),  # whole numbers of 1/UNITS, in hex
    Column("events", _Number, nullable=False),
    Column("alerted", Integer, nullable=False),  # how many thresholds were told of
    sqlite_with_rowid=False,
)
releases = Table("releases", metadata, Column("charge", Text, primary_key=True), Column("body", Text, nullable=False))
deliveries = Table(
    "deliveries",
    metadata,
    Column("entry", _Number, primary_key=True, autoincrement=False),
    Column("channel", Text, primary_key=True),
    Column("at", Text, nullable=False),
)
turn = Table("turn", metadata, Column("of", Integer, primary_key=True, autoincrement=False))
"""Empty for ever: PostgreSQL's writers queue for its lock, which no reader and no vacuum wants."""


def version(connection: Connection) -> str | None:
    """The migration the database is at; None for an empty one, LedgerError for a newer or foreign one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = [row[0] for row in connection.execute(text("SELECT version_num FROM alembic_version"))]
    if len(found) != 1 or found[0] not in KNOWN:
        told = ", ".join(map(str, found)) or "nothing"
        raise LedgerError(f"The book has schema {told}, which this version of dither does not know: expected {VERSION}. Update dither.")
    return str(found[0])


def upgrade(connection: Connection, target: str = "head") -> None:
    """Run the migrations that are missing, inside the transaction that is open on this connection."""
    from alembic import command  # noqa: PLC0415 - a tenth of a second to load, needed once in the life of a book
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, target)
