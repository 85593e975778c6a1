"""What is asked, once SQL is understood: the rows of whom, grouped by what, which aggregates, and what becomes of them.

Everything here is public: a question is made from the text and the facts alone. ``Rows`` says which rows each unit has, and is built
so that the rows of a unit never depend on another unit's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from dither.core.units import PrivacyUnit
from dither.query.facts import Table, Value

if TYPE_CHECKING:
    from dither.query.expr import Expr

AggregateKind: TypeAlias = Literal["rows", "count", "sum", "units", "quantiles"]
PerUnitKind: TypeAlias = Literal["rows", "count", "sum", "min", "max", "avg"]


# ------------------------------------------------------------------------------------------------ rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The rows of one table, its columns under their own names (as the facts spell them), whatever ``alias`` is."""

    table: Table
    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The rows for which the condition is true (neither false nor NULL)."""

    rows: Rows
    condition: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend:
    """The rows with more columns, each computed from the same row."""

    rows: Rows
    columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPublic:
    """Each private row with the row of a public table whose ``key`` equals ``on``: a key is unique, so a row meets one at most.

    The public table's columns join the private ones under the names ``alias.column``; no two columns of ``rows`` have one name.
    """

    rows: Rows
    table: Table
    alias: str
    on: Expr
    key: str
    keep: bool
    """Whether rows that meet none are kept, with NULLs (LEFT JOIN)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerUnit:
    """One row for each unit (and each value of ``keys`` within it): exact aggregates over that unit's own rows, which is free."""

    rows: Rows
    keys: tuple[tuple[str, Expr], ...]
    columns: tuple[tuple[str, PerUnitKind, Expr | None], ...]
    ranges: tuple[tuple[float | None, float | None], ...] = ()


Rows: TypeAlias = Scan | Filter | Extend | JoinPublic | PerUnit


# ------------------------------------------------------------------------------------------------ the question


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What is grouped by: public ``keys`` (all appear, NULL among them only if listed), or None: keys are selected privately."""

    name: str
    expr: Expr
    keys: tuple[Value, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One number (or several quantiles) for each group, over the non-NULL values of ``arg``.

    A sum's and a quantile's ``arg`` has a range: values are clamped to it. ``rows`` and ``units`` have no ``arg``. The numbers are told
    in the outputs by ``names``.
    """

    kind: AggregateKind
    arg: Expr | None = None
    low: float | None = None
    high: float | None = None
    levels: tuple[float, ...] = ()

    def names(self, index: int) -> tuple[str, ...]:
        """What outputs call the numbers of aggregate ``index``: ``a3``, or ``a3_0``, ``a3_1``, … one for each level of quantiles.

        >>> Aggregate(kind="rows").names(0), Aggregate(kind="quantiles", levels=(0.5, 0.9)).names(3)
        (('a0',), ('a3_0', 'a3_1'))
        """
        return tuple(f"a{index}_{n}" for n in range(len(self.levels))) if self.kind == "quantiles" else (f"a{index}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A column of the answer: over groups (by name) and aggregates (by ``Aggregate.names``; no group has such a name)."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """By which output or expression the answer is sorted."""

    expr: Expr
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One SELECT over private rows. What follows the aggregates (having, order, limit, outputs) is free post-processing."""

    rows: Rows
    unit: PrivacyUnit
    groups: tuple[Group, ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[Output, ...]
    having: Expr | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    sql: str = ""
