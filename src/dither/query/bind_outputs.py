"""Aggregates and what becomes of them: COUNT, SUM and quantiles are measured, all others are computed from those at no charge.

AVG, VARIANCE, STDDEV, COVAR and CORR are made of a count and of sums of x less the middle of its range, which needs half the noise of x.
Where such a sum is there anyway, SUM(x) is computed from it too. MIN and MAX are the quantiles at 0.005 and 0.995: the least and the
greatest value are one person's. A result is clamped to what it can be: a mean lies in the range, a variance is not negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from dither.core.errors import InputError
from dither.query.bind_asking import Asking, Node
from dither.query.bind_rows import Scope, resolver, unit_word
from dither.query.bind_values import KNOWN, Values, bare, holds_aggregate
from dither.query.bind_within import as_number
from dither.query.expr import Expr, call, col, columns_of, lit, substitute
from dither.query.question import Aggregate, AggregateKind

LOWEST, HIGHEST = 0.005, 0.995
"""The quantiles that MIN and MAX stand for."""
RANGE_MAX: Final = 1e100
"""A range that is wider comes from what a float can be at all, not from what anyone declared."""
_WHOLE: Final = 2.0**53
_QUANTILES: Final = (exp.Quantile, exp.ApproxQuantile, exp.PercentileCont, exp.PercentileDisc)
_SPREAD: Final[Mapping[type[Node], str]] = MappingProxyType(
    {
        exp.Variance: "var_samp",
        exp.VariancePop: "var_pop",
        exp.Stddev: "stddev_samp",
        exp.StddevSamp: "stddev_samp",
        exp.StddevPop: "stddev_pop",
    }
)
_PAIRS: Final[Mapping[type[Node], str]] = MappingProxyType({exp.CovarPop: "covar_pop", exp.CovarSamp: "covar_samp", exp.Corr: "corr"})


@dataclass(slots=True)
class Needs:
    """What the whole query asks of each argument, found in a first pass: its quantiles, and whether its middle is subtracted."""

    levels: dict[Expr, set[float]] = field(default_factory=dict)
    centred: set[Expr] = field(default_factory=set)


class Aggregates:
    """Collects the aggregates of a query; the same one asked twice is measured once."""

    def __init__(self, asking: Asking, scope: Scope, needs: Needs) -> None:
        self.asking, self.scope, self.needs = asking, scope, needs
        self.plain = Values(asking, resolver(asking, scope.sources), clause="an aggregate")
        self.made: dict[Aggregate, int] = {}
        self.words = {"unit": unit_word(scope.table), "table": scope.table.name}

    # -------------------------------------------------------------------------------------------- what is measured

    def measure(self, kind: AggregateKind, arg: Expr | None = None, low: float | None = None, high: float | None = None) -> Expr:
        """A count or a sum, as the column of its number."""
        found = Aggregate(kind=kind, arg=arg, low=low, high=high)
        index = self.made.setdefault(found, len(self.made))
        return col(found.names(index)[0], "float" if kind == "sum" else "int", nullable=False)

    def count(self, arg: Expr | None) -> Expr:
        """How many rows have a value; where every row has one, how many rows there are."""
        return self.measure("rows") if arg is None or not arg.nullable else self.measure("count", arg)

    def quantile(self, node: Node, arg: Expr, level: float) -> Expr:
        """One quantile of a value; all of one value are measured together."""
        low, high = self._range(node, arg)
        wanted = self.needs.levels.setdefault(arg, set())
        wanted.add(level)
        levels = tuple(sorted(wanted))
        found = Aggregate(kind="quantiles", arg=arg, low=low, high=high, levels=levels)
        index = self.made.setdefault(found, len(self.made))
        return col(found.names(index)[levels.index(level)], "float", low, high, nullable=False)

    def _range(self, node: Node, arg: Expr) -> tuple[float, float]:
        """The range of a value, without which nothing can be added up."""
        if arg.low is None or arg.high is None or max(-arg.low, arg.high) > RANGE_MAX or _loose(arg):
            raise self.asking.no("unbounded", bare(node))
        return arg.low, arg.high

    def _centre(self, node: Node, arg: Expr) -> tuple[Expr, float, float]:
        """The value, clamped, less the middle of its range; that middle; and how far from it the value can be."""
        low, high = self._range(node, arg)
        middle = low / 2 + high / 2
        if arg.type == "int":
            middle = float(math.floor(middle))
        reach = max(high - middle, middle - low)
        if not math.isfinite(reach * reach):
            raise self.asking.no("unbounded", bare(node))
        self.needs.centred.add(arg)
        if arg.type == "int":
            clamped = call("clamp", arg, lit(int(low)), lit(int(high)))
            return (call("sub", clamped, lit(int(middle))) if middle else clamped), middle, reach
        clamped = call("clamp", arg, lit(low), lit(high))
        return (call("sub", clamped, lit(middle)) if middle else clamped), middle, reach

    # -------------------------------------------------------------------------------------------- what is asked

    def bind(self, node: Node) -> Expr:
        """The number that an aggregate stands for, as an expression over what is measured."""
        told, condition = node, None
        if isinstance(node, exp.Filter):
            self.asking.only(node, "this", "expression")
            condition, node = self._condition(node.expression.this), node.this
        if isinstance(node, exp.WithinGroup):
            arg_node, level = self._ordered(node)
            return self._quantile(told, arg_node, level, condition)
        if isinstance(node, exp.Count | exp.CountIf | exp.ApproxDistinct):
            return self._count(node, condition)
        if isinstance(node, exp.Median):
            self.asking.only(node, "this", rule="modifier")
            return self._quantile(node, node.this, 0.5, condition)
        if isinstance(node, _QUANTILES):
            self.asking.only(node, "this", "expression", "quantile", rule="modifier")
            return self._quantile(node, node.this, self._level(node.args.get("quantile") or node.args.get("expression"), node), condition)
        if isinstance(node, exp.Min | exp.Max):
            self.asking.only(node, "this", rule="modifier")
            return self._quantile(node, node.this, LOWEST if isinstance(node, exp.Min) else HIGHEST, condition)
        if type(node) in _PAIRS:
            self.asking.only(node, "this", "expression", rule="modifier")
            return self._pair(node, _PAIRS[type(node)], condition)
        mean = isinstance(node, exp.Avg) or (isinstance(node, exp.Anonymous) and node.name.lower() == "mean" and len(node.expressions) == 1)
        if not (mean or isinstance(node, exp.Sum) or type(node) in _SPREAD):
            raise self.asking.no("function", node, known=KNOWN)
        inner = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        self.asking.only(node, "this", "expressions", rule="modifier")
        arg = self._arg(node, inner, condition)
        if isinstance(node, exp.Sum):
            return self._sum(inner, arg)
        return self._mean(inner, arg) if mean else self._spread(inner, arg, _SPREAD[type(node)])

    def _condition(self, node: Node) -> Expr:
        if holds_aggregate(node):
            raise self.asking.no("nested_aggregate", node, **self.words)
        return self.plain.condition(node)

    def _value(self, node: Node, inner: Node | None, condition: Expr | None) -> Expr:
        """An argument, NULL where FILTER does not hold."""
        if inner is None:
            raise self.asking.no("arguments", node, function=type(node).__name__.upper(), expected="a value", example="x")
        if isinstance(inner, exp.Distinct):
            told = inner.expressions[0] if inner.expressions else inner
            raise self.asking.no("distinct_aggregate", told, **self.words)
        if isinstance(inner, exp.Order):
            raise self.asking.no("modifier", inner, function=type(node).__name__.upper())
        if holds_aggregate(inner):
            raise self.asking.no("nested_aggregate", node, **self.words)
        arg = self.plain.bind(inner)
        if self.scope.calendar is not None:
            public = {str(f.expr.value) for s in self.scope.sources if s.public is not None for f in s.fields}
            if not columns_of(arg) - public:
                self._refuse_calendar(node)
        return arg if condition is None else self.plain.made(node, "case", condition, arg, lit(None))

    def _arg(self, node: Node, inner: Node | None, condition: Expr | None) -> Expr:
        found = self._value(node, inner, condition)
        return as_number(self.asking, node, found)

    def _refuse_calendar(self, node: Node) -> None:
        source = next(s for s in self.scope.sources if s.public is None)
        raise self.asking.no("calendar_count", node, column=f"{source.alias}.{source.fields[0].name if source.fields else 'column'}")

    def _count(self, node: Node, condition: Expr | None) -> Expr:
        inner = node.this
        if isinstance(inner, exp.Distinct) or isinstance(node, exp.ApproxDistinct):
            return self._units(node, inner, condition)
        self.asking.only(node, "this", rule="modifier")
        if isinstance(node, exp.CountIf):
            holds = self._condition(inner)
            both = holds if condition is None else call("and", holds, condition)
            return self.count(call("case", both, lit(1), lit(None)))
        if inner is None or isinstance(inner, exp.Star):
            if isinstance(inner, exp.Star):
                self.asking.only(inner)
            if self.scope.calendar is not None:
                self._refuse_calendar(node)
            return self.measure("rows") if condition is None else self.count(call("case", condition, lit(1), lit(None)))
        return self.count(self._value(node, inner, condition))

    def _units(self, node: Node, inner: Node, condition: Expr | None) -> Expr:
        """COUNT(DISTINCT the unit's key)."""
        self.asking.only(node, "this", rule="modifier")
        parts = inner.expressions if isinstance(inner, exp.Distinct) else [inner]
        if isinstance(inner, exp.Distinct):
            self.asking.only(inner, "expressions")
        if len(parts) == 1 and holds_aggregate(parts[0]):
            raise self.asking.no("nested_aggregate", node, **self.words)
        if len(parts) == 1 and isinstance(bare(parts[0]), exp.Column):
            arg = self.plain.bind(parts[0])
            if any(f.unit and f.expr == arg for f in self.scope.fields):
                if condition is not None:
                    raise self.asking.no("distinct_filter", node)
                return self.measure("units")
        raise self.asking.no("distinct_aggregate", parts[0] if parts else node, **self.words)

    def _level(self, node: Node | None, told: Node) -> float:
        """The level of a quantile."""
        inner = None if node is None else bare(node)
        if not isinstance(inner, exp.Literal) or inner.args.get("is_string"):
            raise self.asking.no("quantile_level", told)
        level = float(str(self.plain.bind(inner).value))
        if not 0 <= level <= 1:
            raise self.asking.no("quantile_level", told)
        return level

    def _ordered(self, node: exp.WithinGroup) -> tuple[Node, float]:
        """PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)."""
        self.asking.only(node, "this", "expression")
        inner, order = node.this, node.expression
        if (
            not isinstance(inner, exp.PercentileCont | exp.PercentileDisc)
            or not isinstance(order, exp.Order)
            or len(order.expressions) != 1
        ):
            raise self.asking.no("function", node, known=KNOWN)
        self.asking.only(inner, "this", rule="modifier")
        level = self._level(inner.this, inner)
        by = order.expressions[0]
        if isinstance(by, exp.Ordered):
            self.asking.only(by, "this", "desc", "nulls_first")
            level = 1 - level if by.args.get("desc") else level
            by = by.this
        return by, level

    # -------------------------------------------------------------------------------------------- what is computed

    def _quantile(self, node: Node, inner: Node, level: float, condition: Expr | None) -> Expr:
        arg = self._arg(node, inner, condition)
        return self.quantile(inner, arg, level)

    def _sum(self, node: Node, arg: Expr) -> Expr:
        low, high = self._range(node, arg)
        if low == high:
            return call("mul", self.count(arg), lit(low))
        if arg in self.needs.centred:
            centred, middle, reach = self._centre(node, arg)
            total = self.measure("sum", centred, -reach, reach)
            return call("add", total, call("mul", self.count(arg), lit(middle))) if middle else total
        return self.measure("sum", arg, low, high)

    def _moments(self, node: Node, arg: Expr) -> tuple[Expr, Expr, float, float]:
        """The count, at least 1; the mean of the centred value; the middle; and the reach."""
        centred, middle, reach = self._centre(node, arg)
        count = call("greatest", self.count(arg), lit(1))
        return count, call("div", self.measure("sum", centred, -reach, reach), count), middle, reach

    def _mean(self, node: Node, arg: Expr) -> Expr:
        low, high = self._range(node, arg)
        if low == high:
            return lit(low)
        _, mean, middle, _ = self._moments(node, arg)
        return call("clamp", call("add", mean, lit(middle)) if middle else mean, lit(low), lit(high))

    def _square(self, node: Node, arg: Expr) -> Expr:
        """The mean of the centred value's square."""
        centred, _, reach = self._centre(node, arg)
        count = call("greatest", self.count(arg), lit(1))
        return call("div", self.measure("sum", call("mul", centred, centred), 0.0, reach * reach), count)

    def _variance(self, node: Node, arg: Expr) -> Expr:
        _, mean, _, reach = self._moments(node, arg)
        return call("clamp", call("sub", self._square(node, arg), call("mul", mean, mean)), lit(0.0), lit(reach * reach))

    def _spread(self, node: Node, arg: Expr, kind: str) -> Expr:
        low, high = self._range(node, arg)
        if low == high:
            return lit(0.0)
        found = self._variance(node, arg)
        if kind.endswith("samp"):
            found = self._sampled(found, self.count(arg))
        return call("sqrt", found) if kind.startswith("stddev") else found

    def _sampled(self, value: Expr, count: Expr) -> Expr:
        """From the mean over n to the mean over n - 1."""
        return call("div", call("mul", value, call("greatest", count, lit(1))), call("greatest", call("sub", count, lit(1)), lit(1)))

    def _pair(self, node: Node, kind: str, condition: Expr | None) -> Expr:
        """Covariance and correlation, over rows where both values are there."""
        nodes = [node.this, node.expression]
        args = [self._arg(node, n, condition) for n in nodes]
        both = [a if not b.nullable else replace_null(self.plain, node, a, b) for a, b in zip(args, reversed(args), strict=True)]
        if any(low == high for low, high in (self._range(n, a) for n, a in zip(nodes, both, strict=True))):
            return lit(None, "float") if kind == "corr" else lit(0.0)
        (x, _, rx), (y, _, ry) = (self._centre(n, a) for n, a in zip(nodes, both, strict=True))
        count = call("greatest", self.count(both[0]), lit(1))
        means = [call("div", self.measure("sum", e, -r, r), count) for e, r in ((x, rx), (y, ry))]
        reach = rx * ry
        cross = call("div", self.measure("sum", call("mul", x, y), -reach, reach), count)
        covariance = call("clamp", call("sub", cross, call("mul", *means)), lit(-reach), lit(reach))
        if kind == "corr":
            spread = []
            for e, r, m in ((x, rx, means[0]), (y, ry, means[1])):
                square = call("div", self.measure("sum", call("mul", e, e), 0.0, r * r), count)
                spread.append(call("clamp", call("sub", square, call("mul", m, m)), lit(0.0), lit(r * r)))
            return call("clamp", call("div", covariance, call("sqrt", call("mul", *spread))), lit(-1.0), lit(1.0))
        return self._sampled(covariance, self.count(both[0])) if kind == "covar_samp" else covariance

    def hidden(self) -> None:
        """A query that asks for groups alone still measures something, by which they are selected."""
        if not self.made:
            self.measure("rows" if self.words["unit"] == "row" else "units")

    def all(self) -> tuple[Aggregate, ...]:
        """The aggregates, in the order of their numbers."""
        return tuple(self.made)


def _loose(arg: Expr) -> bool:
    """Whether a range comes only from what a whole number can be at all, which is a bound, and of no use to anyone."""
    free: dict[str, Expr] = {}
    stack = [arg]
    while stack:
        e = stack.pop()
        if e.op == "col" and e.type == "int" and (e.low is None or e.high is None):
            free[str(e.value)] = col(str(e.value), "float", e.low, e.high)
        stack.extend(e.args)
    if not free:
        return False
    try:
        found = substitute(arg, free)
    except InputError:  # an operator for whole numbers only: it may bound its values, as MOD does
        return max(abs(arg.low or 0.0), abs(arg.high or 0.0)) >= _WHOLE
    return found.low is None or found.high is None or max(-found.low, found.high) > RANGE_MAX


def replace_null(values: Values, node: Node, value: Expr, other: Expr) -> Expr:
    """The value, NULL where the other is."""
    return values.made(node, "case", call("is_null", other), lit(None), value)
