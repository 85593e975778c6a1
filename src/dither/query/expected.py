"""How far the numbers of an answer may be off, told from its plan before any row is read and before anything is spent.

The noise is known beforehand where the bound is. Where a look is to choose the bound, it is told for a few bounds that it may choose.
The error that bounding itself makes hangs on the data: only the answer can tell it.

>>> from dither.core.units import PrivacyUnit
>>> from dither.query.answer import plan_question
>>> from dither.query.facts import Table
>>> from dither.query.question import Aggregate, Question, Scan
>>> unit = PrivacyUnit(dataset="events", key="user_id")
>>> events = Table(name="events", columns=(), unit=unit)
>>> asked = Question(rows=Scan(table=events, alias="events"), unit=unit, groups=(), aggregates=(Aggregate(kind="rows"),), outputs=())
>>> [told] = expected(plan_question(asked, epsilon=1, rows_max=10))
>>> told.what, told.law, [(e.rows, round(e.half_width, 1)) for e in told.errors]
('COUNT(*)', 'laplace', [(10.0, 30.0)])
>>> [(e.rows, round(e.half_width, 1)) for e in expected(plan_question(asked, epsilon=1))[0].errors]
[(1, 3.7), (10, 37.4), (100, 374.5)]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from dither.noise._rounding import down
from dither.noise.weighted import GRID
from dither.query.answer import QueryPlan, Slot
from dither.query.bounding import ROW, Bounded, Goal, Law, bounding, look_plan
from dither.query.expr import Expr
from dither.query.question import Aggregate
from dither.query.tree import deviation

TRIED: Final = (1, 10, 100)
"""Bounds that a look may choose, in rows of one unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """How far a number may be off at 95 %, where at most so many rows of one unit count in full."""

    rows: float
    half_width: float
    ranks: bool = False
    """Whether the half width is in ranks (rows), not in what is measured: so it is for quantiles, whose values lie where they lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is measured, with which noise, and how far it may be off."""

    what: str
    law: Law
    chosen: bool
    """Whether the bound is known beforehand; else a look chooses it, and there is an error for each of ``TRIED``."""
    errors: tuple[Error, ...]


def expected(plan: QueryPlan) -> tuple[Expected, ...]:
    """For each aggregate, in the order of the question, the error that noise makes."""
    made: dict[int, Expected] = {}
    if plan.goal is not None and plan.slots:
        tried = _tried(plan.goal)
        for position, slot in enumerate(plan.slots):
            measured = [(rows, found[position]) for rows, found in tried]
            for n, weights in slot.reads:
                errors = tuple(Error(rows=rows or _rows(b), half_width=_half_width(b, weights)) for rows, b in measured)
                made[n] = _made(plan, n, slot, measured[-1][1], errors, chosen=tried[0][0] is None)
    for n, counted, goal in plan.trees:
        assert counted.tree is not None
        levels, tried = counted.tree.levels, _tried(goal)
        worst = float(deviation(levels).max())
        errors = tuple(
            Error(rows=rows or _rows(found[0]), half_width=1.96 * found[0].noise_std * worst / ROW, ranks=True) for rows, found in tried
        )
        made[n] = _made(plan, n, None, tried[-1][1][0], errors, chosen=tried[0][0] is None)
    return tuple(made[n] for n in sorted(made))


def units_for_key(plan: QueryPlan) -> int | None:
    """About how many units, of this one group alone, show a private group with even chances; None where all groups are public."""
    if plan.goal is None or plan.goal.groups is not None:
        return None
    _, found = _goals(plan.goal)[0]
    return max(1, math.ceil(min(s.threshold for s in bounding(found).selection) / GRID))


def _made(plan: QueryPlan, n: int, slot: Slot | None, bounded: Bounded, errors: tuple[Error, ...], *, chosen: bool) -> Expected:
    aggregate = plan.question.aggregates[n]
    units = slot is not None and slot.counted.measure.kind == "units"
    one = plan.unit.key is None or (units and plan.goal is not None and plan.goal.groups == 1)  # a unit counts once at most
    return Expected(what=_said(aggregate), law=bounded.law, chosen=chosen or one, errors=errors[:1] if one else errors)


def _said(aggregate: Aggregate) -> str:
    """An aggregate as its query says it: without the clamps that the binder puts around what is summed."""
    name = {"rows": "COUNT", "count": "COUNT", "units": "COUNT", "sum": "SUM", "quantiles": "QUANTILES"}[aggregate.kind]
    inside = {"rows": "*", "units": "DISTINCT unit"}.get(aggregate.kind)
    return f"{name}({inside or (_bare(aggregate.arg) if aggregate.arg is not None else '')})"


def _bare(expr: Expr) -> str:
    while expr.op in ("clamp", "cast_float"):
        expr = expr.args[0]
    if expr.op in ("add", "sub") and expr.args[1].op == "lit" and isinstance(expr.args[1].value, int | float):
        return f"{_bare(expr.args[0])} {'+' if expr.op == 'add' else '-'} {expr.args[1].value:g}"
    return str(expr)


def _goals(goal: Goal) -> list[tuple[int | None, Goal]]:
    """The goal where facts say enough; else what is left of it after the look, for each bound tried."""
    look = look_plan(goal)
    if look is None:
        return [(None, goal)]
    rest = down(Fraction(goal.epsilon) - Fraction(look.epsilon))
    return [(rows, replace(goal, epsilon=rest, rows_max=rows)) for rows in TRIED]


def _tried(goal: Goal) -> list[tuple[int | None, tuple[Bounded, ...]]]:
    return [(rows, bounding(g).measures) for rows, g in _goals(goal)]


def _rows(bounded: Bounded) -> float:
    """A bound in rows, each at its largest."""
    return bounded.limit / bounded.measure.row


def _half_width(bounded: Bounded, weights: tuple[float, ...]) -> float:
    return math.hypot(*(w * bounded.half_width for w in weights))
