"""The book: entries, and the tables read off them. A migration never changes once it is released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TRIGGERS = {
    "sqlite": (
        "CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END",
        "CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END",
        # INSERT OR REPLACE deletes without asking the trigger above, so every new number must be the next one.
        (
            "CREATE TRIGGER entries_in_order BEFORE INSERT ON entries WHEN NEW.n <> (SELECT coalesce(max(n) + 1, 0) FROM entries) "
            "BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END"
        ),
        (
            "CREATE TRIGGER charges_once BEFORE UPDATE ON charges WHEN OLD.state <> 'reserved' OR OLD.id <> NEW.id "
            "BEGIN SELECT RAISE(ABORT, 'a charge is settled once'); END"
        ),
        "CREATE TRIGGER charges_no_delete BEFORE DELETE ON charges BEGIN SELECT RAISE(ABORT, 'charges are never deleted'); END",
    ),
    "postgresql": (
        (
            "CREATE FUNCTION dither_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        ),
        "CREATE TRIGGER entries_no_change BEFORE UPDATE OR DELETE ON entries FOR EACH ROW EXECUTE FUNCTION dither_append_only()",
        "CREATE TRIGGER entries_no_truncate BEFORE TRUNCATE ON entries FOR EACH STATEMENT EXECUTE FUNCTION dither_append_only()",
        (
            "CREATE TRIGGER charges_once BEFORE UPDATE ON charges FOR EACH ROW WHEN (OLD.state <> 'reserved' OR OLD.id <> NEW.id) "
            "EXECUTE FUNCTION dither_append_only()"
        ),
        "CREATE TRIGGER charges_no_delete BEFORE DELETE ON charges FOR EACH ROW EXECUTE FUNCTION dither_append_only()",
        "CREATE TRIGGER charges_no_truncate BEFORE TRUNCATE ON charges FOR EACH STATEMENT EXECUTE FUNCTION dither_append_only()",
    ),
}


def upgrade() -> None:
    """Forwards only: a book is never made older."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "entries",
        sa.Column("n", number, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("charge", sa.Text),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("terms", number, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("line", sa.Text, nullable=False),
    )
    changed = sa.text("n = terms")
    op.create_index("entries_terms", "entries", ["n"], sqlite_where=changed, postgresql_where=changed)
    news = sa.text("kind IN ('alert', 'refusal')")
    op.create_index("entries_news", "entries", ["n"], sqlite_where=news, postgresql_where=news)
    op.create_table(
        "charges",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reserve_n", number, nullable=False),
        sa.Column("settle_n", number),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("dataset", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("told", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    still_open = sa.text("settle_n IS NULL")
    op.create_index("charges_open", "charges", ["reserve_n"], sqlite_where=still_open, postgresql_where=still_open)
    op.create_table(
        "balances",
        sa.Column("limit_id", sa.Text, primary_key=True),
        sa.Column("block", sa.Text, primary_key=True),
        sa.Column("spent", sa.Text, nullable=False),
        sa.Column("events", number, nullable=False),
        sa.Column("alerted", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table("releases", sa.Column("charge", sa.Text, primary_key=True), sa.Column("body", sa.Text, nullable=False))
    op.create_table(
        "deliveries",
        sa.Column("entry", number, primary_key=True, autoincrement=False),
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("at", sa.Text, nullable=False),
    )
    op.create_table("turn", sa.Column("of", sa.Integer, primary_key=True, autoincrement=False))
    for statement in _TRIGGERS[op.get_bind().dialect.name]:
        op.execute(sa.text(statement))
