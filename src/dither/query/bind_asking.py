"""What every part of the binder carries along: the text, the facts, and how a refusal is told and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from dither.core.errors import DitherError
from dither.query.facts import Catalog
from dither.query.parse import place
from dither.query.refusals import refuse

Node: TypeAlias = exp.Expr

_FLAGS: Final = frozenset({"typed", "safe", "coalesce", "ignore_nulls", "big_int", "date_part_boundary", "input_type_boundary"})
"""Marks of the dialect on a node, which do not change what is asked."""


@dataclass(frozen=True, slots=True)
class Asking:
    """The text, its dialect and what is known: what every refusal is told with."""

    sql: str
    dialect: str
    catalog: Catalog
    bound: dict[int, Any] = field(default_factory=dict)
    """Sub-queries that are bound already, by their node: each is bound once, however often it is looked at."""

    def told(self, node: Node) -> str:
        """The fragment, as SQL."""
        try:
            told = node.sql(dialect=self.dialect, comments=False, unsupported_level=ErrorLevel.IGNORE)
            return told or type(node).__name__.upper()
        except (SqlglotError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
            start = _start(node)
            return self.sql[start : start + 200] if start is not None else "This query"

    def place(self, node: Node) -> str:
        """Where the fragment is, if the parser kept it."""
        start = _start(node)
        return "" if start is None else place(self.sql, start)

    def no(self, rule: str, node: Node, **words: object) -> DitherError:
        """The error for a fragment that breaks a rule."""
        return refuse(rule, self.told(node), self.place(node), **words)

    def only(self, node: Node, *names: str, rule: str = "clause") -> None:
        """Refuse a node that has any part besides these: nothing of a query is passed over in silence."""
        for name, part in node.args.items():
            if name in names or name in _FLAGS or part is None or part is False or part == []:
                continue
            told = part if isinstance(part, exp.Expr) else node
            if isinstance(part, list) and part and isinstance(part[0], exp.Expr):
                told = part[0]
            raise self.no(rule, told, function=type(node).__name__.upper())

    @property
    def private(self) -> str:
        """The names of tables that can be asked about."""
        return ", ".join(sorted(t.name for t in self.catalog.values() if not t.public)) or "(no tables)"


def _start(node: Node) -> int | None:
    """Where in the text a node begins: the first place that any of its parts remembers."""
    places = [p.meta["start"] for p in node.walk() if p._meta and isinstance(p._meta.get("start"), int)]  # noqa: SLF001 - no getter without making
    return min(places, default=None)
