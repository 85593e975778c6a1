"""How far one unit may move an answer, with which noise, and how the budget is divided: chosen by predicted error.

A *measure* is a whole number (or two) for each cell of (unit, group), in steps of a grid. A unit whose vector of cells has a norm above
the bound is scaled down to it as a whole; no row is dropped, no group preferred. A small bound loses much of the truth, a large one
needs much noise: ``bounding`` looks for the best of it, in both norms, from what a private look told of the units' norms or from
declared facts. Arithmetic on public or noisy numbers only: no data, no randomness, no files.

``look_plan`` → (the engine measures it) → ``bounding`` → (selection, if keys are private) → ``Bounding.for_groups`` → the measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.accounting import loss
from dither.core import checks
from dither.core.errors import InputError, UnknownNameError
from dither.core.events import ApproxDp, Event, Gaussian, Laplace, Sequence
from dither.core.units import Neighbors
from dither.core.units import neighbors as as_neighbors
from dither.noise import DiscreteLaplaceMechanism, GaussianMechanism, LaplaceMechanism, gaussian_noise_multiplier, samplers
from dither.noise._rounding import down, sqrt_up, up
from dither.noise.weighted import WeightedSelection
from dither.query.spread import spreads

Norm: TypeAlias = Literal["l1", "l2"]
Law: TypeAlias = Literal["laplace", "gaussian"]
MeasureKind: TypeAlias = Literal["rows", "units", "sum", "pair"]

ROW = 1 << 10
"""One row of a count, or one unit of a count of units, in grid steps: fine enough that scaling loses nothing by rounding."""
REACH = 1 << 20
"""The larger end of a sum's range in grid steps, as an engine should choose its grid (``value / step``, rounded to nearest)."""
_TOP = 48  # the look tells units of up to 2²⁴ rows apart
_FINE = 24  # sums: values down to 2⁻¹² of the range's larger end
_TYPICAL = 0.7  # the median group's share of the mean group, where groups are of uneven size
_CONFIDENCE = 0.95
_BLIND = 8  # rows, where the look shows nothing


# ------------------------------------------------------------------------------------------------ what is to be measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is added up in each cell of (unit, group), in whole grid steps.

    ``rows``: ``ROW`` for each row that counts (of COUNT(*), or of COUNT(x) where x is not NULL). ``units``: ``ROW`` in each cell that
    has any row. ``sum``: the value of each row, from ``low`` to ``high`` steps. ``pair``: two columns, value − ``low`` and
    ``high`` − value: together they are ``high − low`` for each row, so sum, count and mean of one expression are had for the price of
    a count. Both columns count towards one norm and are scaled by one factor.
    """

    name: str
    kind: MeasureKind
    low: int = 0
    high: int = ROW

    def __post_init__(self) -> None:
        checks.text("name", self.name, limit=200)
        if self.kind not in ("rows", "units", "sum", "pair"):
            raise UnknownNameError("kind of measure", self.kind, ("rows", "units", "sum", "pair"))
        reach = 2**40
        low = checks.count("low", self.low, low=-reach, high=reach)
        high = checks.count("high", self.high, low=low, high=reach)
        if self.kind in ("rows", "units") and (low, high) != (0, ROW):
            raise checks.refuse("high", high, f"low=0 and high={ROW} for {self.kind}")
        if low == high == 0 or (self.kind == "pair" and low == high):
            raise checks.refuse("high", high, "a range that is not empty", "What is always the same needs no noise.")

    @property
    def columns(self) -> int:
        """How many whole numbers a cell has."""
        return 2 if self.kind == "pair" else 1

    @property
    def row(self) -> int:
        """The largest norm (either one) of one row alone."""
        return self.high - self.low if self.kind == "pair" else max(abs(self.low), abs(self.high))

    @property
    def signed(self) -> bool:
        """Whether a cell can be positive for one unit and negative for another."""
        return self.kind == "sum" and self.low < 0 < self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is asked and what is publicly known: the measures, the budget, how many groups there are, what one unit can have at most.

    ``groups``: how many public groups (1 without GROUP BY), or None where keys are private. The declared maxima are not
    believed but enforced: a unit that has more is scaled down.
    """

    measures: tuple[Measure, ...]
    epsilon: float
    delta: float
    neighbors: Neighbors = Neighbors.ADD_REMOVE
    groups: int | None = 1
    rows_max: int | None = None
    groups_max: int | None = None
    rows_per_group_max: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.epsilon(self.epsilon, zero=False))
        object.__setattr__(self, "delta", checks.delta(self.delta))
        object.__setattr__(self, "neighbors", as_neighbors(self.neighbors))
        for name in ("groups", "rows_max", "groups_max", "rows_per_group_max"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else checks.count(name, value))
        names = [m.name for m in self.measures]
        if len(set(names)) < len(names):
            raise InputError("Two measures have one name: expected different names.")
        if self.groups is None and not self.delta:
            raise InputError("delta=0.0 is not allowed where keys are private: expected delta > 0, or keys that are declared.")
        if not names and self.groups is not None:
            raise InputError("Nothing is asked: expected a measure, or private keys to select.")

    @property
    def groups_each(self) -> int | None:
        """The most groups that one unit can count in, as far as is publicly known."""
        known = [g for g in (self.groups, self.groups_max, self.rows_max) if g is not None]
        return min(known, default=None)

    def most(self, measure: Measure, norm: Norm) -> int | None:
        """The largest norm of a unit that keeps to the declared facts, in whole steps; None where they do not say."""
        groups, each = self.groups_each, self.rows_per_group_max
        if measure.kind == "units":
            if groups is None:
                return None
            return measure.row * groups if norm == "l1" else _root(measure.row**2 * groups)
        by_group = None if groups is None or each is None else groups * each
        rows = min((r for r in (self.rows_max, by_group) if r is not None), default=None)
        if rows is None:
            return None
        if norm == "l1" or each is None:
            return measure.row * rows
        return _root(measure.row**2 * min(rows, each) * rows)  # Σn² ≤ max n · Σn

    def known(self, measure: Measure) -> bool:
        """Whether declared facts say enough to bound this measure without a look."""
        if measure.kind == "units":
            return self.groups_max is not None or self.rows_max is not None or self.groups == 1
        return self.most(measure, "l1") is not None

    def norms(self) -> tuple[Norm, ...]:
        """The norms worth thinking of: L2 where a unit can be in several groups, if Gaussian noise is allowed.

        Where keys are private it is L2 alone: the noise of the selection is Gaussian, and Gaussians share a budget better than others.
        """
        if not self.delta or self.groups_each == 1:
            return ("l1",)
        return ("l2",) if self.groups is None else ("l1", "l2")


def _root(square: int) -> int:
    """The smallest whole number whose square is at least this."""
    return math.isqrt(square - 1) + 1 if square > 0 else 0


# ------------------------------------------------------------------------------------------------ the meaning of a bound


def norms_of(cells: NDArray[np.object_], units: NDArray[np.int64], count: int, norm: Norm) -> list[int]:
    """Each unit's norm, rounded up to a whole number; ``cells`` holds whole numbers, all columns of a measure one after the other.

    >>> norms_of(np.array([3, -4, 5], dtype=object), np.array([0, 0, 1]), 2, "l1")
    [7, 5]
    >>> norms_of(np.array([3, -4, 5], dtype=object), np.array([0, 0, 1]), 2, "l2")
    [5, 5]
    """
    found = [0] * count
    for value, unit in zip(cells.tolist(), units.tolist(), strict=True):
        found[unit] += abs(value) if norm == "l1" else value * value
    return found if norm == "l1" else [_root(n) for n in found]


def scaled(cells: NDArray[np.object_], norms: NDArray[np.object_], limit: int) -> NDArray[np.object_]:
    """What a bound means: cells of units above it times limit/norm, cut toward zero, exactly. ``norms`` has one entry for each cell.

    Guarantee:
        For norms as ``norms_of`` gives them, the cells of each unit have a norm of at most ``limit``: |v·C/N| summed is at most C,
        and v²C²/N² summed is at most C², because N is not below the true norm; cutting toward zero only makes them smaller.

    >>> scaled(np.array([30, -45, 7], dtype=object), np.array([75, 75, 7], dtype=object), 50).tolist()
    [20, -30, 7]
    """
    made = [v if n <= limit else (abs(v) * limit // n) * (1 if v >= 0 else -1) for v, n in zip(cells.tolist(), norms.tolist(), strict=True)]
    return np.array(made, dtype=object)


# ------------------------------------------------------------------------------------------------ the look


@dataclass(frozen=True, slots=True, kw_only=True)
class LookItem:
    """One histogram of the look: how many units have a norm in each bin, every unit being in one.

    Bin k holds norms above edge k − 1 and up to edge k; the last one also what is above.
    """

    measure: Measure
    norm: Norm
    edges: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is asked about the distribution of contributions before bounds are chosen: histograms with discrete Laplace noise."""

    items: tuple[LookItem, ...]
    epsilon: float
    neighbors: Neighbors

    @property
    def mechanism(self) -> DiscreteLaplaceMechanism:
        """What is added to the counts of one histogram: call ``measure`` once for each item."""
        changes = 1 if self.neighbors is Neighbors.ADD_REMOVE else 2
        return DiscreteLaplaceMechanism.calibrated(epsilon=down(Fraction(self.epsilon) / len(self.items)), changes=changes)

    @property
    def event(self) -> Event:
        """What the whole look costs."""
        return Sequence((self.mechanism.event,) * len(self.items))

    def profiles(self, counts: tuple[tuple[int, ...], ...]) -> tuple[Profile, ...]:
        """The noisy counts, item by item, as ``bounding`` takes them."""
        scale = self.mechanism.noise_scale
        return tuple(
            Profile(measure=i.measure.name, norm=i.norm, edges=i.edges, counts=tuple(c), noise_scale=scale)
            for i, c in zip(self.items, counts, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Noisy numbers of units by norm, as a look found them (with ``noise_scale`` 0: as something public says)."""

    measure: str
    norm: Norm
    edges: tuple[int, ...]
    counts: tuple[int, ...]
    noise_scale: float = 0.0

    def __post_init__(self) -> None:
        if not self.edges or len(self.counts) != len(self.edges):
            raise checks.refuse("counts", f"{len(self.counts)} counts", f"{max(1, len(self.edges))} counts, one for each edge")


def look_edges(goal: Goal, measure: Measure, norm: Norm) -> tuple[int, ...]:
    """Half-powers of two of one row's norm, in whole steps, up to 2²⁴ rows or what is declared.

    >>> look_edges(Goal(measures=(), epsilon=1, delta=1e-6, groups=None), Measure(name="n", kind="rows"), "l1")[:4]
    (1024, 1449, 2048, 2897)
    """
    first = {"rows": 0, "units": 0, "pair": -1, "sum": -_FINE}[measure.kind]
    most = goal.most(measure, norm)
    found: list[int] = []
    for j in range(first, _TOP + 1):
        edge = _root(measure.row**2 * 2**j) if j >= 0 else _root(-(-(measure.row**2) // 2**-j))
        if not found or edge > found[-1]:
            found.append(edge)
        if most is not None and edge >= most:
            break
    return tuple(found)


def look_plan(goal: Goal) -> Look | None:
    """The look that a goal needs, or None where declared facts say enough.

    It spends more where there are few groups: then the answer's own noise is small, and few units decide which bound is best.

    >>> look = look_plan(Goal(measures=(Measure(name="n", kind="rows"),), epsilon=1, delta=1e-6, groups=100))
    >>> look.epsilon, [(i.norm, len(i.edges)) for i in look.items]
    (0.05, [('l1', 49), ('l2', 49)])
    """
    items = tuple(
        LookItem(measure=m, norm=n, edges=look_edges(goal, m, n)) for m in goal.measures if not goal.known(m) for n in goal.norms()
    )
    if not items:
        return None
    groups = goal.groups or 1000
    share = min(0.2, max(0.05, 0.25 / math.sqrt(groups)))
    return Look(items=items, epsilon=down(Fraction(goal.epsilon) * Fraction(share)), neighbors=goal.neighbors)


# ------------------------------------------------------------------------------------------------ the plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """How one measure is bounded and which noise its group totals get; all numbers in the measure's grid steps.

    Every unit's vector is brought to a norm of at most ``limit`` by ``scaled``; the totals of all groups and columns then go through
    ``mechanism.measure_integers``, which prices as ``event``.
    """

    measure: Measure
    norm: Norm
    limit: int
    noise_multiplier: float
    neighbors: Neighbors
    lost: float
    """The predicted share of the measure's total that bounding takes away."""
    lost_error: float
    """How far that share may be off at 95 %, because the look is noisy."""
    error: float | None
    """The predicted error of the typical group's total, relative to it: noise and share lost. None where nothing tells how large it is."""

    @property
    def law(self) -> Law:
        """L1 bounds go with Laplace noise, L2 bounds with Gaussian."""
        return "laplace" if self.norm == "l1" else "gaussian"

    @property
    def sensitivity(self) -> float:
        """How far one unit can move all totals together, in the norm: two vectors meet under ``replace``."""
        if self.neighbors is Neighbors.ADD_REMOVE:
            return up(self.limit)
        if self.norm == "l1" or self.measure.signed:
            return up(2 * self.limit)
        return sqrt_up(2 * self.limit**2)  # of two vectors without a sign, |a − b|² ≤ |a|² + |b|²

    @property
    def mechanism(self) -> LaplaceMechanism | GaussianMechanism:
        """What adds the noise."""
        kind = LaplaceMechanism if self.norm == "l1" else GaussianMechanism
        return kind(noise_multiplier=self.noise_multiplier, sensitivity=self.sensitivity)

    @property
    def event(self) -> Event:
        """What the noisy totals cost, whatever ``limit`` is."""
        return Laplace(self.noise_multiplier) if self.norm == "l1" else Gaussian(self.noise_multiplier)

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise on one total."""
        return self.noise_multiplier * self.sensitivity * (math.sqrt(2) if self.norm == "l1" else 1.0)

    @property
    def half_width(self) -> float:
        """How far the noise takes one total, at 95 %."""
        return self.mechanism.interval(_CONFIDENCE).half_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounding:
    """The plan of one question: the look that was had, the rounds of key selection, and how each measure is bounded.

    ``event`` is what all of it costs; ``reserve`` is what it can cost at most, and is known before the look: the law and the noise
    are chosen after it, within an (ε, δ) that is fixed.
    """

    goal: Goal
    look: Look | None
    profiles: tuple[Profile, ...]
    selection: tuple[WeightedSelection, ...]
    measures: tuple[Bounded, ...]

    @property
    def event(self) -> Event:
        """What was chosen."""
        parts: list[Event] = [] if self.look is None else [self.look.event]
        return Sequence((*parts, *(s.event for s in self.selection), *(m.event for m in self.measures)))

    @property
    def reserve(self) -> Event:
        """What any choice costs at most."""
        return reserve(self.goal)

    def for_groups(self, groups: int) -> Bounding:
        """The same noise and price, with bounds chosen anew for the number of keys that the selection released."""
        count = max(1, checks.count("groups", groups, low=0))
        made = tuple(_bounded(self.goal, m.measure, m.norm, m.noise_multiplier, self.profiles, count) for m in self.measures)
        return replace(self, measures=made)


def reserve(goal: Goal) -> Event:
    """What the whole of a question can cost at most, look and all, whatever the look tells.

    >>> reserve(Goal(measures=(Measure(name="n", kind="rows"),), epsilon=1, delta=1e-6, groups=100, rows_max=50))
    ApproxDp(epsilon=1.0, delta=1e-06)
    """
    look = look_plan(goal)
    if look is None:
        return ApproxDp(goal.epsilon, goal.delta)
    return Sequence((look.event, ApproxDp(_rest(goal, look), goal.delta)))


def _rest(goal: Goal, look: Look | None) -> float:
    """The ε that is left after the look."""
    return goal.epsilon if look is None else down(Fraction(goal.epsilon) - Fraction(look.epsilon))


# ------------------------------------------------------------------------------------------------ the best bound


def _largest(multiplier: float) -> int:
    """The largest bound whose noise can still be drawn on whole numbers of 64 bits."""
    found = int(Fraction(samplers.SCALE_MAX, 4) / Fraction(multiplier))
    if found < 1:
        raise InputError("epsilon is too small: its noise cannot be drawn. Ask for a larger epsilon or delta.")
    return found


def _bounded(goal: Goal, measure: Measure, norm: Norm, multiplier: float, profiles: tuple[Profile, ...], groups: int) -> Bounded:
    """The bound of one measure with the least predicted error for the typical of so many groups."""
    spread = spreads(measure, profiles).get(norm)
    most = min(goal.most(measure, norm) or _largest(multiplier), _largest(multiplier))

    def made(limit: int, lost: float = 0.0, lost_error: float = 0.0, error: float | None = None) -> Bounded:
        return Bounded(
            measure=measure,
            norm=norm,
            limit=max(1, min(limit, most)),
            noise_multiplier=multiplier,
            neighbors=goal.neighbors,
            lost=lost,
            lost_error=lost_error,
            error=error,
        )

    if spread is None:
        return made(most if goal.known(measure) else measure.row)
    total = float(spread.mass.sum())
    if not total:  # so few units that the look does not see them
        return made(_BLIND * measure.row, lost_error=1.0)
    typical = total / groups * (_TYPICAL if groups > 1 else 1.0) / measure.columns
    middle = (math.log(2) if norm == "l1" else 0.6745) * multiplier * made(most).sensitivity / made(most).limit / typical
    limits = sorted({max(1, min(most, math.ceil(n))) for e in _edges(profiles, measure, norm) for n in (e, e * 2**0.25)})
    errors = [math.hypot(spread.lost(c), middle * c) for c in limits]
    best = min(range(len(limits)), key=errors.__getitem__)
    limit = limits[best]
    return made(limit, spread.lost(limit), spread.doubt(limit), errors[best])


def _edges(profiles: tuple[Profile, ...], measure: Measure, norm: Norm) -> tuple[int, ...]:
    return next(p.edges for p in profiles if p.measure == measure.name and p.norm == norm)


# ------------------------------------------------------------------------------------------------ the division of the budget

_SELECTION = Fraction(1, 2)  # of what measures and selection have together
_ROUNDS = (Fraction(1, 20), Fraction(3, 20), Fraction(16, 20))
_KEYS_MAX = 32
_GUESS = 1000  # groups, where keys are private and the selection is still to come


@dataclass(slots=True)
class _Split:
    """Shares of one assignment of laws: ``pool`` of ε for all Gaussian noise; ``parts`` of ε (Laplace) or of the pool's 1/σ²."""

    norms: tuple[Norm, ...]
    pool: Fraction
    parts: list[Fraction]


def bounding(goal: Goal, profiles: tuple[Profile, ...] = ()) -> Bounding:
    """The plan with the least predicted error, within (ε, δ).

    >>> goal = Goal(measures=(Measure(name="n", kind="rows"),), epsilon=1, delta=1e-6, groups=100, rows_max=50)
    >>> chosen = bounding(goal).measures[0]
    >>> chosen.law, chosen.limit // ROW
    ('laplace', 50)
    """
    look = look_plan(goal)
    if look is not None and not profiles:
        raise InputError("The bounds of this question hang on a look that was not taken: expected its profiles.")
    rest = _rest(goal, look)
    groups = goal.groups if goal.groups is not None else _GUESS
    for slack in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):  # an accountant's upper bound may lie a hair above what was proved
        tried = [_divided(goal, norms, rest * (1 - slack), profiles, groups) for norms in _assignments(goal)]
        _, selection, measures = min(tried, key=lambda t: t[0])
        found = Bounding(goal=goal, look=look, profiles=profiles, selection=selection, measures=measures)
        if _within(found.event, goal.epsilon, goal.delta):
            return found
    raise InputError("This (epsilon, delta) cannot be met with certainty: ask for a larger epsilon or delta.")


@lru_cache(maxsize=1024)
def _within(event: Event, epsilon: float, delta: float) -> bool:
    """Whether the price is proved to be at most this."""
    return loss(event).epsilon_upper(delta) <= epsilon


def _assignments(goal: Goal) -> list[tuple[Norm, ...]]:
    """Which norm each measure may get: every way for few measures, else all alike."""
    norms = goal.norms()
    if len(goal.measures) <= 3:
        return list(product(norms, repeat=len(goal.measures)))
    return [(n,) * len(goal.measures) for n in norms]


def _divided(
    goal: Goal, norms: tuple[Norm, ...], rest: float, profiles: tuple[Profile, ...], groups: int
) -> tuple[float, tuple[WeightedSelection, ...], tuple[Bounded, ...]]:
    """The best division of the budget for one assignment of norms, and its predicted error."""
    split = _even_split(goal, norms)
    for _ in range(3 if len(norms) > 1 else 0):
        split = _better_split(goal, split, [_cost(m) for m in _run(goal, split, rest, profiles, groups)[1]])
    selection, measures = _run(goal, split, rest, profiles, groups)
    return math.hypot(*(_cost(m) for m in measures)), selection, measures


def _cost(measure: Bounded) -> float:
    """The predicted error; where nothing tells how large the total is, the noise in rows."""
    return measure.error if measure.error is not None else measure.noise_std / measure.measure.row


def _even_split(goal: Goal, norms: tuple[Norm, ...]) -> _Split:
    """Every measure the same, the selection half."""
    count, pooled = len(norms), norms.count("l2")
    taken = _SELECTION if goal.groups is None and norms else Fraction(goal.groups is None)
    pool = Fraction(1) if pooled == count else taken + (1 - taken) * Fraction(pooled, count)
    alone = count - pooled
    parts = [Fraction(1, pooled) * (1 - taken) if n == "l2" else (1 - pool) / alone for n in norms]
    return _Split(norms, pool, parts)


def _better_split(goal: Goal, split: _Split, costs: list[float]) -> _Split:
    """Shares nearer to those that make the sum of squared errors least: an error falls with ε, and with the root of 1/σ²."""
    if len(costs) < 2 or not all(math.isfinite(c) for c in costs):
        return split
    pooled = [k for k, n in enumerate(split.norms) if n == "l2"]
    alone = [k for k, n in enumerate(split.norms) if n == "l1"]
    parts, pool = list(split.parts), split.pool
    inside = sum((split.parts[k] for k in pooled), Fraction(0))
    for k, share in zip(pooled, _shares([costs[k] * math.sqrt(split.parts[k]) for k in pooled]), strict=True):
        parts[k] = share * inside
    slots = [(costs[k] * float(split.parts[k])) ** (2 / 3) for k in alone]
    movable = Fraction(1)
    if goal.groups is None or not pooled or not alone:  # the selection's share of the pool stays as it is
        movable -= pool
    else:
        slots.append((math.hypot(*(costs[k] for k in pooled)) * float(pool)) ** (2 / 3))
    shares = _shares(slots)
    for k, share in zip(alone, shares, strict=False):
        parts[k] = share * movable
    if len(shares) > len(alone):
        pool = shares[-1]
    return _Split(split.norms, pool, parts)


def _shares(weights: list[float]) -> list[Fraction]:
    """Fractions in proportion to the weights, each 5 % of an equal share at least, that add up to at most 1."""
    if not weights:
        return []
    total = sum(weights)
    found = [0.95 * (w / total if total else 1 / len(weights)) + 0.05 / len(weights) for w in weights]
    return [Fraction(math.floor(f * 10**6), 10**6) for f in found]


def _run(
    goal: Goal, split: _Split, rest: float, profiles: tuple[Profile, ...], groups: int
) -> tuple[tuple[WeightedSelection, ...], tuple[Bounded, ...]]:
    """What runs under one division of ε, and of δ: half for the keys of one unit alone, if keys are selected."""
    private = goal.groups is None
    tails = Fraction(goal.delta) / 2 if private else Fraction(0)
    multiplier = Fraction(0)
    if private or "l2" in split.norms:
        spent = down(Fraction(rest) * split.pool)
        multiplier = Fraction(gaussian_noise_multiplier(spent, down(Fraction(goal.delta) - tails)))
    selection: list[WeightedSelection] = []
    if private:
        taken = 1 - sum((p for p, n in zip(split.parts, split.norms, strict=True) if n == "l2"), Fraction(0))
        twice = 1 if goal.neighbors is Neighbors.ADD_REMOVE else 2
        selection = [
            WeightedSelection.for_delta(
                noise_multiplier=sqrt_up(multiplier**2 * twice / (taken * share)),
                delta=down(tails / len(_ROUNDS)),
                keys_max=min(_KEYS_MAX, goal.groups_each or _KEYS_MAX),
                neighbors=goal.neighbors,
            )
            for share in _ROUNDS
        ]
    measures = []
    for measure, norm, part in zip(goal.measures, split.norms, split.parts, strict=True):
        noise = up(1 / (Fraction(rest) * part)) if norm == "l1" else sqrt_up(multiplier**2 / part)
        measures.append(_bounded(goal, measure, norm, max(noise, checks.NOISE_MIN), profiles, groups))
    return tuple(selection), tuple(measures)
