"""A question with its price → a plan; a plan on a source → a table of noisy numbers.

``plan_question`` looks at public facts only. ``answer`` has the rows counted, looks at how much units contribute, chooses bounds, selects
keys that are private, adds the noise, and computes the outputs from the noisy numbers. Noise comes from mechanisms of ``dither.noise``
alone, and every event of the answer is theirs.

Guarantee:
    Sequential composition of: the look (discrete Laplace on counts of units, each in one bin of a histogram), the rounds of key
    selection, and one mechanism for each measure, whose sensitivity is what bounding enforced. ``QueryPlan.event`` is the most that this
    costs, whatever the data; ``Answer.event`` what was run. Which groups appear follows from public keys and the selection, their order
    from the keys, names and types of columns from the question.
Edge cases:
    No rows: noise alone. No keys selected: an answer without rows. Quantiles always lie in their range.
Reference:
    Bounding: ``bounding.scaled``; selection: docs/proofs/weighted.md; quantiles: ``tree``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dither.core import checks, events
from dither.core.encoding import digest
from dither.core.errors import InputError
from dither.core.events import Event
from dither.core.rng import Rng
from dither.core.units import PrivacyUnit
from dither.query.bounding import ROW, Bounded, Bounding, Goal, Measure, bounding, look_plan, reserve
from dither.query.duck import Cells, Counted, Source
from dither.query.expr import Expr, columns_of
from dither.query.facts import Value
from dither.query.question import Aggregate, Question
from dither.query.result import Answer, Lost, ResultColumn
from dither.query.semantics import evaluate
from dither.query.tree import FAN, Tree, consistent, quantiles, tree_of, with_nodes

Key: TypeAlias = tuple[Value, ...]
Floats: TypeAlias = NDArray[np.float64]

CONFIDENCE: Final = 0.95
_REACH_BITS: Final = 20
_RANGE_MAX: Final = 1e290
_GROUPS_GUESS: Final = 1000
_CHUNK: Final = 1 << 22
_PRESENT: Final = Counted(measure=Measure(name="keys", kind="units"))
"""What cells are made for where nothing but their keys is asked of them."""


# ------------------------------------------------------------------------------------------------ what is measured


@dataclass(frozen=True, slots=True)
class Slot:
    """One measure of the plan, and the numbers that are read off it: for each aggregate, a weight for each of its columns."""

    counted: Counted
    reads: tuple[tuple[int, tuple[float, ...]], ...]


def slots_of(aggregates: Sequence[Aggregate]) -> tuple[Slot, ...]:
    """The measures for counts and sums. A sum and the count of the same values are one pair: two numbers for the price of one."""
    made: list[Slot] = []
    counts = {n for n, a in enumerate(aggregates) if a.kind in ("rows", "count")}
    for n, a in enumerate(aggregates):
        if a.kind != "sum":
            continue
        counted = _sum(f"a{n}", a)
        low, high = counted.measure.low, counted.measure.high
        partner = next((k for k in sorted(counts) if _same_rows(aggregates[k], a)), None)
        if partner is None:
            made.append(Slot(counted, ((n, (counted.step,)),)))
            continue
        counts.discard(partner)
        measure = Measure(name=f"a{n}+a{partner}", kind="pair", low=low, high=high)
        width = high - low
        total = (counted.step * high / width, counted.step * low / width)
        made.append(Slot(Counted(measure=measure, arg=a.arg, step=counted.step), ((n, total), (partner, (1 / width, 1 / width)))))
    made += [Slot(Counted(measure=Measure(name=f"a{n}", kind="rows"), arg=aggregates[n].arg), ((n, (1 / ROW,)),)) for n in sorted(counts)]
    units = [n for n, a in enumerate(aggregates) if a.kind == "units"]
    made += [Slot(Counted(measure=Measure(name=f"a{n}", kind="units")), ((n, (1 / ROW,)),)) for n in units]
    return tuple(sorted(made, key=lambda s: min(n for n, _ in s.reads)))


def _ends(aggregate: Aggregate) -> tuple[Expr, float, float]:
    """What is added up or sorted, and its range."""
    arg, low, high = aggregate.arg, aggregate.low, aggregate.high
    if arg is None or low is None or high is None or not low < high:
        raise InputError("An aggregate has no range: expected a value with a low and a high end.")
    if max(abs(low), abs(high)) > _RANGE_MAX or high - low < 1 / _RANGE_MAX:
        raise InputError(
            f"The range {low:g} to {high:g} is not allowed: expected ends of at most {_RANGE_MAX:g}, apart by at least {1 / _RANGE_MAX:g}."
        )
    return arg, low, high


def _sum(name: str, aggregate: Aggregate) -> Counted:
    """A sum on a grid whose step is a power of two, such that the larger end of the range has about a million steps."""
    arg, low, high = _ends(aggregate)
    step = math.ldexp(1.0, math.frexp(max(abs(low), abs(high)))[1] - _REACH_BITS)
    measure = Measure(name=name, kind="sum", low=math.floor(low / step), high=math.ceil(high / step))
    return Counted(measure=measure, arg=arg, step=step)


def _same_rows(count: Aggregate, total: Aggregate) -> bool:
    """Whether a count counts just the rows that a sum adds up."""
    assert total.arg is not None
    if count.arg is None:
        return not total.arg.nullable
    return _core(count.arg) == _core(total.arg)


def _core(expr: Expr) -> Expr:
    """What an expression is NULL with: inside of a clamp, and of a literal added or taken away."""
    while expr.op in ("clamp", "add", "sub", "neg", "cast_float") and not any(a.nullable for a in expr.args[1:]):
        expr = expr.args[0]
    return expr


# ------------------------------------------------------------------------------------------------ the plan


@dataclass(frozen=True)
class QueryPlan:
    """What will be measured, within which price: made from the question and public facts, before any row is read."""

    question: Question
    epsilon: float
    delta: float
    slots: tuple[Slot, ...]
    goal: Goal | None
    """Of counts and sums, and of the selection of keys; None where there are quantiles only."""
    trees: tuple[tuple[int, Counted, Goal], ...]

    @property
    def unit(self) -> PrivacyUnit:
        """What is hidden."""
        return self.question.unit

    @cached_property
    def event(self) -> Event:
        """The most that the answer costs."""
        parts = [reserve(g) for g in self.goals]
        return parts[0] if len(parts) == 1 else events.Sequence(tuple(parts))

    @property
    def goals(self) -> tuple[Goal, ...]:
        """All parts of the budget."""
        return (*(() if self.goal is None else (self.goal,)), *(g for _, _, g in self.trees))

    @cached_property
    def digest(self) -> str:
        """Of everything that decides the answer but the rows and the noise."""
        return digest({"question": repr(self.question), "goals": [repr(g) for g in self.goals]})

    def explain(self) -> str:
        """Plain words."""
        q = self.question
        keys = [f"{g.name} ({'keys selected privately' if g.keys is None else f'{len(g.keys)} public keys'})" for g in q.groups]
        told = [f"Grouped by {', '.join(keys)}." if keys else "One row for all."]
        told.append(f"Measured with noise: {', '.join(described(a) for a in q.aggregates)}.")
        looks = [look for g in self.goals if (look := look_plan(g)) is not None]
        if looks:
            told.append(
                f"ε = {sum(look.epsilon for look in looks):.3g} of it is for a look at how much units contribute, which chooses the bounds."
            )
        return " ".join([*told, f"The whole costs at most ε = {self.epsilon:g}" + (f", δ = {self.delta:g}." if self.delta else ".")])


def described(aggregate: Aggregate) -> str:
    """An aggregate in words of SQL.

    >>> described(Aggregate(kind="rows"))
    'COUNT(*)'
    """
    match aggregate.kind:
        case "rows":
            return "COUNT(*)"
        case "units":
            return "COUNT(DISTINCT unit)"
        case "count":
            return f"COUNT({aggregate.arg})"
        case "sum":
            return f"SUM({aggregate.arg})"
        case "quantiles":
            return f"QUANTILES({aggregate.arg})"


def plan_question(
    question: Question,
    *,
    epsilon: float,
    delta: float = 0.0,
    rows_max: int | None = None,
    groups_max: int | None = None,
    rows_per_group_max: int | None = None,
) -> QueryPlan:
    """How a question is answered within (ε, δ). The maxima of what one unit has, where they are known, save the look: they are enforced.

    >>> from dither.query.facts import Table
    >>> from dither.query.question import Scan
    >>> unit = PrivacyUnit(dataset="events", key="user_id")
    >>> events = Table(name="events", columns=(), unit=unit)
    >>> asked = Question(rows=Scan(table=events, alias="events"), unit=unit, groups=(), aggregates=(Aggregate(kind="rows"),), outputs=())
    >>> plan_question(asked, epsilon=1, rows_max=20).event
    ApproxDp(epsilon=1.0, delta=0.0)
    """
    epsilon, delta = checks.epsilon(epsilon, zero=False), checks.delta(delta)
    slots = slots_of(question.aggregates)
    private = any(g.keys is None for g in question.groups)
    groups = None if private else max(1, math.prod(len(set(g.keys or ())) for g in question.groups))
    known = {"rows_max": rows_max, "groups_max": groups_max, "rows_per_group_max": rows_per_group_max}
    if question.unit.key is None:
        known = dict.fromkeys(known, 1)
    measured = [(n, a) for n, a in enumerate(question.aggregates) if a.kind == "quantiles"]
    parts = len(slots) + private + len(measured)
    if not parts:
        raise InputError("Nothing is measured: expected an aggregate, or groups whose keys are private.")

    def goal(measures: tuple[Measure, ...], share: int, groups: int | None, known: Mapping[str, int | None]) -> Goal:
        mine = (epsilon, delta) if share == parts else (epsilon * share / parts * (1 - 2**-50), delta * share / parts * (1 - 2**-50))
        return Goal(measures=measures, epsilon=mine[0], delta=mine[1], neighbors=question.unit.neighbors, groups=groups, **known)

    first = goal(tuple(s.counted.measure for s in slots), len(slots) + private, groups, known) if slots or private else None
    trees = []
    for n, a in measured:
        arg, low, high = _ends(a)
        tree = tree_of(low, high, arg.type)
        measure = Measure(name=f"a{n}", kind="sum", low=0, high=ROW * tree.levels)
        nodes = (_GROUPS_GUESS if groups is None else max(groups, 1)) * FAN
        limits = {"rows_max": known["rows_max"]} if known["rows_max"] else {}
        trees.append((n, Counted(measure=measure, arg=arg, tree=tree), goal((measure,), 1, nodes, limits)))
    return QueryPlan(question, epsilon, delta, slots, first, tuple(trees))


# ------------------------------------------------------------------------------------------------ the answer


@dataclass(slots=True)
class _Run:
    """What an answer is made of, as it comes."""

    plan: QueryPlan
    source: Source
    rng: Rng | None
    spent: list[Event]

    def bounds(self, cells: Cells, goal: Goal, counted: Mapping[str, Counted]) -> Bounding:
        """The bounds that a look chooses."""
        look = look_plan(goal)
        if look is None:
            return bounding(goal)
        exact = cells.look([(counted[i.measure.name], i) for i in look.items])
        found = []
        for counts in exact:
            told, event = look.mechanism.measure(list(counts), self.rng)
            self.spent.append(event)
            found.append(tuple(int(c) for c in told.tolist()))
        return bounding(goal, look.profiles(tuple(found)))

    def keys(self, cells: Cells | None, chosen: Bounding | None) -> list[Key]:
        """The groups of the answer, sorted: public keys, each with each, and with the private ones that the selection shows."""
        groups = self.plan.question.groups
        private = [n for n, g in enumerate(groups) if g.keys is None]
        shown: list[Key] = [()]
        if private:
            assert cells is not None
            assert chosen is not None
            told: dict[Key, int] = {}
            for selection in chosen.selection:
                first = chosen.selection[0]
                sure = first.threshold + math.ceil(9 * first.std)
                weights, event = selection.measure(cells.weights(private, selection.keys_max, told, sure), self.rng)
                told |= weights
                self.spent.append(event)
            shown = list(told)
        public = [tuple(dict.fromkeys(g.keys)) for g in groups if g.keys is not None]
        found = []
        for values in product(shown, *public):
            mine, others = iter(cast("Key", values[0])), iter(values[1:])
            found.append(tuple(next(mine) if g.keys is None else cast("Value", next(others)) for g in groups))
        return sorted(found, key=_rank)

    def noisy(self, bounded: Bounded, exact: NDArray[np.int64]) -> Floats:
        """The totals with their noise, in steps."""
        made = np.empty(exact.shape)
        event = bounded.event
        rows = max(1, _CHUNK // max(1, math.prod(exact.shape[1:])))
        for start in range(0, max(len(exact), 1), rows):  # one vector, in pieces: its coordinates have independent noise
            told, event = bounded.mechanism.measure_integers(exact[start : start + rows], self.rng)
            made[start : start + rows] = told
        self.spent.append(event)
        return made


def answer(plan: QueryPlan, source: Source, rng: Rng | None = None) -> Answer:
    """The answer to a planned question. From the first row that is read the price is spent, whatever happens."""
    q = plan.question
    run = _Run(plan, source, rng, [])
    numbers = _Numbers(q)
    lost: dict[int, float | None] = {}
    with source.lock:
        cells, chosen = None, None
        if plan.goal is not None:
            counted = [s.counted for s in plan.slots] or [_PRESENT]
            cells = source.cells(q.rows, q.unit, q.groups, counted)
            chosen = run.bounds(cells, plan.goal, {c.measure.name: c for c in counted})
        keys = run.keys(cells, chosen)
        if cells is not None and chosen is not None and keys:
            chosen = chosen.for_groups(len(keys)) if plan.goal is not None and plan.goal.groups is None else chosen
            looked = {p.measure for p in chosen.profiles}
            for slot, bounded in zip(plan.slots, chosen.measures, strict=True):
                totals = cells.totals(slot.counted, bounded.norm, bounded.limit)
                told = run.noisy(bounded, _placed(cells.groups(), keys, totals))
                numbers.read(slot, told, bounded.half_width)
                share = bounded.lost if bounded.measure.name in looked else 0.0 if q.unit.key is None else None
                lost |= {n: share for n, _ in slot.reads}
        for n, counted_tree, goal in plan.trees:
            _quantiles(run, numbers, n, counted_tree, goal, keys)
        columns = _outputs(q, source, keys, numbers)
    return Answer(
        columns=columns,
        event=_together(run.spent),
        confidence=CONFIDENCE,
        lost=tuple(Lost(aggregate=described(q.aggregates[n])[:200], share=s) for n, s in sorted(lost.items())),
        price=(plan.epsilon, plan.delta),
        notes=_notes(q),
    )


def _together(spent: Sequence[Event]) -> Event:
    """What was run; where no group can be, it may be nothing."""
    if not spent:
        return events.ApproxDp(0.0, 0.0)
    return spent[0] if len(spent) == 1 else events.Sequence(tuple(spent))


def _notes(question: Question) -> tuple[str, ...]:
    if any(g.keys is None for g in question.groups):
        return ("Groups of too few units are left out.",)
    return ()


def _quantiles(run: _Run, numbers: _Numbers, n: int, counted: Counted, goal: Goal, keys: Sequence[Key]) -> None:
    """Quantiles of one value, from the tree of its counts."""
    q, tree = run.plan.question, cast("Tree", counted.tree)
    cells = run.source.cells(q.rows, q.unit, q.groups, [counted])
    chosen = run.bounds(cells, goal, {counted.measure.name: counted})
    bounded = chosen.for_groups(max(len(keys), 1) * FAN).measures[0]
    (totals,) = cells.totals(counted, bounded.norm, bounded.limit)
    place = {key: i for i, key in enumerate(keys)}
    exact = np.zeros((len(keys), tree.sizes[-1]), dtype=np.int64)
    for row, total in zip(cells.groups(), totals.tolist(), strict=True):
        at = place.get(row[:-1])
        if at is not None:
            exact[at, cast("int", row[-1])] = total
    found = [np.empty((0, len(q.aggregates[n].levels)))] * 2
    if keys:
        leaves = consistent(run.noisy(bounded, with_nodes(exact, tree)), tree)
        found = list(quantiles(leaves, tree, q.aggregates[n].levels, bounded.noise_std))
    for k, name in enumerate(q.aggregates[n].names(n)):
        numbers.add(name, found[0][:, k], found[1][:, k])


def _placed(groups: Sequence[Key], keys: Sequence[Key], totals: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Totals at the places of the keys that are told, 0 where there are none: one row for each key."""
    place = {key: i for i, key in enumerate(keys)}
    made = np.zeros((len(keys), len(totals)), dtype=np.int64)
    there = [(i, place[g]) for i, g in enumerate(groups) if g in place]
    if there:
        source, target = np.array(there).T
        for column, values in enumerate(totals):
            made[target, column] = values[source]
    return made


def _rank(key: Key) -> tuple[tuple[bool, object], ...]:
    """Keys in the order of their values, NULL last."""
    return tuple((v is None, 0 if v is None else v) for v in key)


# ------------------------------------------------------------------------------------------------ numbers and outputs


class _Numbers:
    """The noisy numbers: independent columns with half widths, and what each aggregate's number is in them."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.columns: list[Floats] = []
        self.widths: list[Floats] = []
        self.weights: dict[str, dict[int, float]] = {}
        self.whole: set[str] = set()

    def read(self, slot: Slot, told: Floats, half_width: float) -> None:
        """The numbers that are read off one measure."""
        first = len(self.columns)
        for column in told.T:
            self.columns.append(column)
            self.widths.append(np.full(len(column), half_width))
        for n, weights in slot.reads:
            a = self.question.aggregates[n]
            name = a.names(n)[0]
            self.weights[name] = {first + k: w for k, w in enumerate(weights)}
            if a.kind != "sum":
                self.whole.add(name)

    def add(self, name: str, values: Floats, widths: Floats) -> None:
        """A number of its own."""
        self.weights[name] = {len(self.columns): 1.0}
        self.columns.append(values)
        self.widths.append(widths)

    def values(self, name: str, moved: int | None = None, sign: int = 0) -> list[Value]:
        """A number for each group; with column ``moved`` off by its half width."""
        made: Floats = np.zeros(0)
        for k, w in self.weights[name].items():
            part = w * (self.columns[k] + (sign * self.widths[k] if k == moved else 0.0))
            made = made + part if made.size else part
        return [int(v) for v in np.rint(made).tolist()] if name in self.whole else cast("list[Value]", made.tolist())

    def half_widths(self, name: str) -> tuple[float, ...]:
        """How far a number may be off: independent parts add up as squares."""
        parts = [(w * self.widths[k]) ** 2 for k, w in self.weights[name].items()]
        return tuple(np.sqrt(np.sum(parts, axis=0)).tolist())


def _outputs(question: Question, source: Source, keys: Sequence[Key], numbers: _Numbers) -> tuple[ResultColumn, ...]:
    """The columns of the answer: computed, filtered, sorted, cut. All of it is arithmetic on what is already noisy."""
    exprs = [o.expr for o in question.outputs]
    extra = [*((question.having,) if question.having is not None else ()), *(o.expr for o in question.order)]
    if not keys:
        return tuple(
            ResultColumn(name=o.name, type=o.expr.type, values=(), half_widths=None if _plain(o.expr, numbers) else ())
            for o in question.outputs
        )
    names = {g.name: [key[n] for key in keys] for n, g in enumerate(question.groups)}
    found, widths = _computed([*exprs, *extra], len(exprs), names, numbers, source, len(keys))
    rows = list(range(len(keys)))
    if question.having is not None:
        rows = [r for r in rows if found[len(exprs)][r] is True]
    for order, values in reversed(list(zip(question.order, found[len(found) - len(question.order) :], strict=True))):
        there = sorted((r for r in rows if values[r] is not None), key=_by(values), reverse=order.descending)
        missing = [r for r in rows if values[r] is None]
        rows = [*missing, *there] if order.nulls_first else [*there, *missing]
    rows = rows[: question.limit] if question.limit is not None else rows
    return tuple(
        ResultColumn(
            name=o.name,
            type=o.expr.type,
            values=tuple(values[r] for r in rows),
            half_widths=None if width is None else tuple(width[r] for r in rows),
        )
        for o, values, width in zip(question.outputs, found, widths, strict=False)
    )


def _by(values: Sequence[Value]) -> Callable[[int], float]:
    return lambda r: cast("float", values[r])


def _plain(expr: Expr, numbers: _Numbers) -> bool:
    """Whether there is no noise in an expression."""
    return not columns_of(expr) & set(numbers.weights)


def _computed(
    exprs: Sequence[Expr], told: int, groups: Mapping[str, list[Value]], numbers: _Numbers, source: Source, count: int
) -> tuple[list[list[Value]], list[tuple[float | None, ...] | None]]:
    """The values of expressions, and half widths for the first ``told``: a name by itself is looked up, the rest computed by the engine.

    How far an expression may be off is found by moving each noisy number by its half width, up and down, all others as they are; the
    larger effects add up as squares.
    """
    found: list[list[Value]] = []
    widths: list[tuple[float | None, ...] | None] = []
    for n, expr in enumerate(exprs):
        name = str(expr.value) if expr.op == "col" else ""
        if name in groups:
            found.append(groups[name])
            width: tuple[float | None, ...] | None = None
        elif name in numbers.weights:
            found.append(numbers.values(name))
            width = numbers.half_widths(name) if n < told else None
        else:
            used = sorted(columns_of(expr))
            moving = sorted({k for c in used if c in numbers.weights for k in numbers.weights[c]}) if n < told else []
            tried = [(None, 0), *((k, s) for k in moving for s in (1, -1))]
            told_columns = {c: [v for k, s in tried for v in (groups[c] if c in groups else numbers.values(c, k, s))] for c in used}
            inner = _unclamped(expr) if moving else expr
            values = source.compute(list(dict.fromkeys((expr, inner))), told_columns) if used else [[evaluate(expr, {})] * count]
            found.append(values[0][:count])
            width = _spread(values[-1], count, len(moving)) if moving and expr.type in ("int", "float") else None
        widths.append(width)
    return found, widths


def _unclamped(expr: Expr) -> Expr:
    """What stands in a clamp: a number that was moved to the end of its range is off by as much as it was before."""
    while expr.op == "clamp":
        expr = expr.args[0]
    return expr


def _spread(values: Sequence[Value], count: int, moved: int) -> tuple[float | None, ...]:
    """Half widths from values as they are, and with each number moved up and down."""
    made: list[float | None] = []
    for row in range(count):
        base = values[row]
        if base is None:
            made.append(None)
            continue
        total = 0.0
        for k in range(moved):
            ends = [values[count * (1 + 2 * k + side) + row] for side in (0, 1)]
            total += max((abs(cast("float", e) - cast("float", base)) for e in ends if e is not None), default=0.0) ** 2
        made.append(math.sqrt(total) if math.isfinite(total) else None)
    return tuple(made)
