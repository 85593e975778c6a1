"""Private quantiles: the exponential mechanism over a public grid of points, scored by rank.

The answer is one of the points lower + j·(upper − lower)/cells. Every row is first moved to the nearest of them, by a rule
that looks at that row alone, so what follows is arithmetic on integers. Points between the same two rows share a score;
such a run is drawn as one candidate with its number of points as multiplicity, then a point of it uniformly. Points that
rows sit on are candidates of their own, so ties help instead of vanishing.

Time and memory grow with the number of rows, and of different ones: do not let those who may not know them measure it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError
from dither.core.events import Event, ExponentialMechanism, Repeat
from dither.core.plans import Accuracy
from dither.core.rng import Rng
from dither.core.units import Neighbors, neighbors
from dither.noise._lazy import race
from dither.noise._rounding import down
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import array_rng
from dither.noise.selection import EPSILON_MIN, checked_confidence, checked_epsilon

CELLS = 1 << 20
CELLS_MAX = 1 << 30
QUANTILES_MAX = 10_000
_JITTER = 32
_ROW_MAX = 10**300


def _width(quantile: Fraction) -> Fraction:
    """How far apart the changes of two points' scores can be when one row comes or goes; 1 at the ends, else 2·max(q, 1 − q)."""
    return Fraction(1) if quantile in (0, 1) else 2 * max(quantile, 1 - quantile)


def _cells(rows: object, lower: float, upper: float, cells: int) -> NDArray[np.int64]:
    """The nearest grid point to each row, as its index; row by row, so that no row's place depends on another row."""
    if isinstance(rows, list | tuple):
        found = np.fromiter((_number(row) for row in rows), np.float64, len(rows))
    elif type(rows) is np.ndarray and rows.ndim == 1 and rows.dtype.kind in "biuf" and rows.dtype.itemsize <= 8:
        with np.errstate(invalid="ignore"):  # a signalling NaN would be told of
            found = rows.astype(np.float64)
    else:
        given = f"{type(rows).__name__}" + (f" of {rows.dtype}, {rows.ndim}-dimensional" if isinstance(rows, np.ndarray) else "")
        raise InputError(f"Rows given as {given} are not allowed: expected a list or a 1-dimensional array of int or float.")
    np.copyto(found, lower, where=np.isnan(found))
    places = np.clip(found, lower, upper)
    with np.errstate(under="ignore"):
        places -= lower
        places *= cells / (upper - lower)
    return np.rint(places).astype(np.int64)  # at most cells: three roundings are far less than half a cell of 2^30


def _number(row: object) -> float:
    """One row as a float, whatever stands beside it."""
    if isinstance(row, float | np.floating) and not isinstance(row, np.longdouble):
        return float(row)
    if isinstance(row, int | np.integer | np.bool_):
        return float(max(-_ROW_MAX, min(_ROW_MAX, int(row))))
    raise InputError(f"A row of type {type(row).__name__} is not allowed: expected int or float, one number for each.")


def _choice(rows: NDArray[np.int64], bounds: tuple[int, int], quantile: Fraction, rate: Fraction, rng: Rng) -> int:
    """An integer point of ``bounds``, with probability ∝ exp(−rate·(distance of quantile·n from the point's ranks)).

    The ranks of z are the numbers from #{rows < z} to #{rows ≤ z}; ``rows`` are sorted and within the bounds.
    """
    first, last = bounds
    opens = np.flatnonzero(rows[1:] != rows[:-1]) + 1 if rows.size else np.zeros(0, np.intp)
    ranks = np.concatenate((np.zeros(min(1, rows.size), np.intp), opens, np.full(1, rows.size, np.intp))).astype(np.int64)
    held = rows[ranks[:-1]]
    edges = np.concatenate((np.full(1, first - 1), held, np.full(1, last + 1)))
    gaps = edges[1:] - edges[:-1] - 1
    open_gaps = np.flatnonzero(gaps > 0)
    starts = np.concatenate((held, edges[:-1][open_gaps] + 1))
    sizes = np.concatenate((np.ones(held.size, np.int64), gaps[open_gaps]))
    below = np.concatenate((ranks[:-1], ranks[open_gaps]))
    upto = np.concatenate((ranks[1:], ranks[open_gaps]))
    target = quantile * rows.size
    whole = math.floor(target)
    part = float(target - whole)
    distance = np.maximum(np.maximum((below - whole) - part, part - (upto - whole)), 0.0)

    def exact(i: int) -> Fraction:
        return -rate * max(Fraction(0), int(below[i]) - target, target - int(upto[i]))

    with np.errstate(under="ignore"):
        chosen = race(distance * -float(rate), exact=exact, rng=rng, multiplicity=sizes)[0]
    return int(starts[chosen]) + rng.below(int(sizes[chosen]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """One quantile: a point z of the grid, drawn with probability ∝ exp(−rate · rank error of z).

    The rank error is the distance of quantile·n from the interval [#{rows < z}, #{rows ≤ z}].

    Guarantee:
        ε-bounded range for neighbours that differ by one row (``add_remove``: one more or less; ``replace``: one
        changed). Event: ``ExponentialMechanism(epsilon)``. The number of rows stays hidden under add/remove.
        A unit with several rows: use a row per unit, or price the event for a group.

    Edge cases:
        No rows: uniform over the grid. NaN and −∞ count as ``lower``, +∞ as ``upper``, and rows outside are clipped.
        Ties: the tied point has rank error 0 over all its ranks. ``quantile`` 0 and 1: minimum and maximum, at half the
        noise. The answer always lies in [lower, upper].

    Reference:
        Smith 2011, Algorithm 2 (exponential mechanism over intervals); rank scores whose sensitivity is
        max(q, 1 − q) under add/remove: docs/proofs/quantiles.md.

    >>> Quantile(quantile=0.5, lower=0, upper=100, epsilon=1.0, cells=100).measure([40] * 500).value
    40.0
    """

    quantile: float
    lower: float
    upper: float
    epsilon: float
    cells: int = CELLS
    neighbors: Neighbors = Neighbors.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantile", checks.between("quantile", self.quantile, 0.0, 1.0))
        _check(self)

    @property
    def event(self) -> Event:
        """What one quantile costs."""
        return ExponentialMechanism(self.epsilon)

    def measure(self, rows: object, rng: Rng | None = None) -> Noisy[float]:
        """The noisy quantile of private rows."""
        source = array_rng(rng)
        places = np.sort(_cells(rows, self.lower, self.upper, self.cells))
        point = _choice(places, (0, self.cells), Fraction(self.quantile), self._rate, source)
        return noisy(_value(self, point), self.event, source)

    def interval(self, confidence: float) -> Accuracy:
        """How many ranks the answer may be off (besides moving rows to the grid)."""
        sure = checked_confidence(confidence)
        return Accuracy(half_width=(math.log(self.cells) - math.log1p(-sure)) / float(self._rate), confidence=sure)

    @property
    def _rate(self) -> Fraction:
        quantile = Fraction(self.quantile)
        if self.neighbors is Neighbors.REPLACE:
            return Fraction(self.epsilon) / (1 if quantile in (0, 1) else 2)
        return Fraction(self.epsilon) / _width(quantile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Several quantiles at once: the middle one first, then those below it on the rows below it, and so on.

    A row takes part in one quantile per level, and there are ⌊log₂ m⌋ + 1 levels for m quantiles: the budget is shared
    by levels, not by quantiles. Rows are spread by random jitter inside their grid cell first, so that rows tied at a
    split are divided fairly.

    Guarantee:
        Adaptive composition of one (epsilon/levels)-bounded-range mechanism per level, for neighbours that differ by one
        row. Event: ``Repeat(ExponentialMechanism(epsilon/levels), levels)``.

    Edge cases:
        As for ``Quantile``. The quantiles must be strictly increasing; the answers are non-decreasing. No rows: random
        points of the grid.

    Reference:
        Kaplan, Schnapp & Stemmer 2022, Algorithm 1 and Lemma 3.1. Jitter and ties: docs/proofs/quantiles.md.

    >>> Quantiles(quantiles=(0.25, 0.5, 0.75), lower=0, upper=100, epsilon=30.0, cells=100).measure([40] * 500).value
    (40.0, 40.0, 40.0)
    """

    quantiles: tuple[float, ...]
    lower: float
    upper: float
    epsilon: float
    cells: int = CELLS
    neighbors: Neighbors = Neighbors.ADD_REMOVE

    def __post_init__(self) -> None:
        given = checks.sequence("quantiles", self.quantiles, f"a list of 1 to {QUANTILES_MAX} numbers from 0 to 1", limit=QUANTILES_MAX)
        found = tuple(checks.between("quantiles", q, 0.0, 1.0) for q in given)
        if any(a >= b for a, b in itertools.pairwise(found)):
            raise checks.refuse("quantiles", found, "strictly increasing numbers")
        object.__setattr__(self, "quantiles", found)
        _check(self)
        if self.epsilon_each < EPSILON_MIN:
            raise checks.refuse("epsilon", self.epsilon, f"at least {EPSILON_MIN:g} × levels={self.levels}")

    @property
    def levels(self) -> int:
        """How many quantiles one row can take part in."""
        return len(self.quantiles).bit_length()

    @property
    def epsilon_each(self) -> float:
        """ε of one level: epsilon/levels, rounded down."""
        return down(Fraction(self.epsilon) / self.levels)

    @property
    def event(self) -> Event:
        """What all of them cost together."""
        one = ExponentialMechanism(self.epsilon_each)
        return one if self.levels == 1 else Repeat(one, self.levels)

    def measure(self, rows: object, rng: Rng | None = None) -> Noisy[tuple[float, ...]]:
        """The noisy quantiles of private rows, in the order of ``quantiles``."""
        source = array_rng(rng)
        places = _cells(rows, self.lower, self.upper, self.cells) << _JITTER
        places |= (source.uint32(places.size) >> np.uint32(32 - _JITTER)).astype(np.int64)
        places.sort()
        found: dict[int, int] = {}
        whole = _Part(0, places.size, 0, (self.cells + 1 << _JITTER) - 1, Fraction(0), Fraction(1))
        waiting = [(0, len(self.quantiles), whole)]
        while waiting:
            start, end, part = waiting.pop()
            if start == end:
                continue
            middle = (start + end) // 2
            share = Fraction(self.quantiles[middle])
            quantile = (share - part.share_low) / (part.share_high - part.share_low)
            own = places[part.start : part.end]
            point = _choice(own, (part.first, part.last), quantile, self._rate(quantile), source)
            cut = part.start + int(np.searchsorted(own, point))
            found[middle] = point
            waiting.append((start, middle, _Part(part.start, cut, part.first, point, part.share_low, share)))
            waiting.append((middle + 1, end, _Part(cut, part.end, point, part.last, share, part.share_high)))
        answers = tuple(_value(self, found[i] >> _JITTER) for i in range(len(self.quantiles)))
        return noisy(answers, self.event, source)

    def interval(self, confidence: float) -> Accuracy:
        """How many ranks any of the answers may be off, all at once (besides moving rows to the grid).

        Each level adds its own error to that of the splits above it, and up to two rows that share a split point.
        """
        sure = checked_confidence(confidence)
        slowest = Fraction(self.epsilon_each) / (4 if self.neighbors is Neighbors.REPLACE else 2)
        log_points = math.log(self.cells + 1) + _JITTER * math.log(2)
        each = (log_points + math.log(len(self.quantiles)) - math.log1p(-sure)) / float(slowest)
        return Accuracy(half_width=self.levels * (each + 2), confidence=sure)

    def _rate(self, quantile: Fraction) -> Fraction:
        """A changed row may leave one part of a level and enter another, hence half for each under ``replace``."""
        return Fraction(self.epsilon_each) / _width(quantile) / (2 if self.neighbors is Neighbors.REPLACE else 1)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows [start, end) of the sorted rows, points first to last, and the shares of all rows that end at its two sides."""

    start: int
    end: int
    first: int
    last: int
    share_low: Fraction
    share_high: Fraction


def _value(mechanism: Quantile | Quantiles, point: int) -> float:
    low, high = Fraction(mechanism.lower), Fraction(mechanism.upper)
    return float(low + (high - low) * point / mechanism.cells)


def _check(mechanism: Quantile | Quantiles) -> None:
    low = checks.between("lower", mechanism.lower, -1e288, 1e288)
    high = checks.between("upper", mechanism.upper, -1e288, 1e288)
    if not high > low or high - low < 1e-280:
        raise checks.refuse(
            "upper", mechanism.upper, f"a number above lower={low:g}, by at least 1e-280", "A quantile needs public bounds."
        )
    object.__setattr__(mechanism, "lower", low)
    object.__setattr__(mechanism, "upper", high)
    object.__setattr__(mechanism, "epsilon", checked_epsilon(mechanism.epsilon))
    object.__setattr__(mechanism, "cells", checks.count("cells", mechanism.cells, high=CELLS_MAX))
    object.__setattr__(mechanism, "neighbors", neighbors(mechanism.neighbors))
