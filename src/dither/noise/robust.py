"""Noise fitted to the data at hand: smooth sensitivity, propose-test-release, sample-and-aggregate.

A median or a user's own function can have a huge sensitivity that hardly any dataset shows. These mechanisms add little
noise on the data that allow it, and prove that the *amount* of noise betrays nothing. Rows are first moved, one by one, to
whole steps of a public grid between public bounds, so that everything after is exact. Proofs: docs/proofs/robust.md.

Neighbours, throughout: one row added, removed or replaced (both relations of the house at once). A dataset of n rows is
read as an endless row of ``lower``, the n sorted values, and an endless row of ``upper``; its median is value number
⌊n/2⌋ + 1. Adding or removing a row then replaces one value of the endless row, just as replacing a row does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError
from dither.core.events import ApproxDp, Event, Laplace, PureDp
from dither.core.plans import Accuracy
from dither.core.rng import Rng
from dither.noise import samplers
from dither.noise._isolated import answer, isolated_answer, quietly
from dither.noise._lazy import LazyExponential
from dither.noise._rounding import up
from dither.noise._values import numbers
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import array_rng

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

__all__ = ["ProposeTestRelease", "SampleAndAggregate", "SmoothSensitivityMedian", "Statistic", "median_statistic", "spread_statistic"]

EPSILON_MIN = 1e-3
_RANGE_BITS = 44  # steps between lower and upper: 2⁴³ to 2⁴⁴
_MEAN_BITS = 32
_SLACK = 2.0**-30
"""Taken off every ε and δ before anything is derived from it in floats; their errors are a thousand times smaller."""


# ------------------------------------------------------------------------------------------------ rows on a grid


def checked_rows(rows: object) -> Floats | Integers:
    """Rows that are numbers. That they are, and in one list, is public; which they are never raises.

    >>> checked_rows([1, float("nan")])
    array([1., 0.])
    """
    found, single = numbers(rows)
    if single or found.ndim != 1:
        raise InputError(f"Rows of {found.ndim} dimensions are not allowed: expected a list of numbers, one for each row.")
    return found


@dataclass(frozen=True, slots=True)
class _Grid:
    """Whole steps 0 … ``top`` between two public bounds."""

    lower: float
    upper: float
    bits: int = _RANGE_BITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", checks.between("lower", self.lower, -1e100, 1e100))
        object.__setattr__(self, "upper", checks.between("upper", self.upper, -1e100, 1e100))
        if not self.upper - self.lower >= 1e-12 * max(abs(self.lower), abs(self.upper), 1e-88):
            raise checks.refuse("upper", self.upper, f"a number well above lower={self.lower!r}")

    @property
    def step(self) -> float:
        """A power of two."""
        return math.ldexp(1.0, math.frexp(self.upper - self.lower)[1] - self.bits)

    @property
    def top(self) -> int:
        """How many steps lie between the bounds."""
        return math.ceil((self.upper - self.lower) / self.step)

    @np.errstate(under="ignore")  # what underflows is far below half a step, and is not told of
    def steps(self, values: Floats | Integers) -> Integers:
        """Every value as its own whole number of steps, held within the bounds. NaN is as ``numbers`` leaves it: 0."""
        held = np.clip(values.astype(np.float64), self.lower, self.upper)
        return np.clip(np.rint((held - self.lower) / self.step), 0, self.top).astype(np.int64)

    def sorted(self, rows: object) -> Integers:
        """The steps of all rows, sorted."""
        return np.sort(self.steps(checked_rows(rows)))

    def value(self, steps: int) -> float:
        """The number that so many steps stand for, within the bounds."""
        return min(self.upper, max(self.lower, self.lower + max(0, min(self.top, steps)) * self.step))

    def around(self, values: Integers, first: int, last: int) -> Integers:
        """Values number ``first`` … ``last`` (from 1) of the endless row."""
        low, high = max(first, 1), min(last, len(values))
        before = np.zeros(max(0, min(last, 0) - first + 1), np.int64)
        after = np.full(max(0, last - max(first, len(values) + 1) + 1), self.top, np.int64)
        return np.concatenate((before, values[low - 1 : max(high, low - 1)], after))


def _middle(values: Integers) -> int:
    return len(values) // 2 + 1


# ------------------------------------------------------------------------------------------------ smooth sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothSensitivityMedian:
    """The median, with noise fitted to how closely the middle values lie together.

    δ = 0 adds Student noise with 2 degrees of freedom (heavy tails, no δ at all); δ > 0 adds Laplace noise.
    ``smoothing`` is the share of ε that hides the amount of noise; the rest hides the median.

    >>> from dither.noise.rng import UnsafeSeededRng
    >>> mechanism = SmoothSensitivityMedian(epsilon=1.0, lower=0.0, upper=100.0)
    >>> mechanism.event
    PureDp(epsilon=1.0)
    >>> rows = [50 + i / 1000 for i in range(-500, 500)]
    >>> abs(mechanism.measure(rows, UnsafeSeededRng(1)).value - 50) < 1
    True

    Guarantee:
        Neighbours: one row added, removed or replaced. Event: ``PureDp(epsilon)`` if δ = 0, else
        ``ApproxDp(epsilon, delta)``. No precondition on the rows: they are held within the public bounds.

    Edge cases:
        No rows: ``upper`` plus noise of the whole range. NaN counts as 0, ±∞ as a bound. An even number of rows: the
        upper one of the two middle values. Ties are values like others. Answers are held within the bounds. The time
        it takes depends on the rows (and on the noise): do not let those who see a release time its making.

    Reference:
        Nissim, Raskhodnikova & Smith (2007), Definition 2.1, Lemma 2.5, Section 3.1 (the median); Bun & Steinke (2019),
        "Average-case averages", Section 3 (Student noise). The δ here is proved anew, without their factor 1 + e^(ε/2).
    """

    epsilon: float
    lower: float
    upper: float
    delta: float = 0.0
    smoothing: float = 0.5

    def __post_init__(self) -> None:
        grid = _Grid(self.lower, self.upper)
        object.__setattr__(self, "lower", grid.lower)
        object.__setattr__(self, "upper", grid.upper)
        object.__setattr__(self, "epsilon", checks.between("epsilon", self.epsilon, EPSILON_MIN, checks.EPSILON_MAX))
        object.__setattr__(self, "delta", _some_delta(self.delta, zero=True))
        object.__setattr__(self, "smoothing", checks.between("smoothing", self.smoothing, 0.01, 0.99))

    @property
    def event(self) -> Event:
        """The price of one answer."""
        return ApproxDp(self.epsilon, self.delta) if self.delta else PureDp(self.epsilon)

    @property
    def shift(self) -> float:
        """How far (in units of the noise scale) the median may move: the α of the reference."""
        whole = self.epsilon * (1 - self.smoothing) * (1 - _SLACK)
        return whole if self.delta else whole * math.sqrt(8) / 3

    @property
    def decay(self) -> float:
        """How fast (in logarithms, for each row) the noise scale may change: the β of the reference."""
        whole = self.epsilon * self.smoothing * (1 - _SLACK)
        return _laplace_decay(whole, self.delta) if self.delta else whole / 2

    def measure(self, rows: object, rng: Rng | None = None) -> Noisy[float]:
        """One noisy median of ``rows``, a list or array of numbers."""
        grid = _Grid(self.lower, self.upper)
        source = array_rng(rng)
        values = grid.sorted(rows)
        middle = int(grid.around(values, _middle(values), _middle(values))[0])
        scale = Fraction(self._smooth(values, grid)) / Fraction(self.shift)
        noise = _rounded_laplace(scale, source) if self.delta else _rounded_student(scale, source)
        return noisy(grid.value(middle + noise), self.event, source)

    def _smooth(self, values: Integers, grid: _Grid) -> float:
        """Max over k of e^(−βk) · (how far the median can move after k changes), in steps, at least 1; rounded up.

        Moved ranges beyond the k-th are cut short where even the whole range could not win any more.
        """
        decay = self.decay - 2.0**-38
        reach = min(len(values) + 1, math.ceil(math.log(grid.top) / decay))
        near = grid.around(values, _middle(values) - reach - 1, _middle(values) + reach + 1)
        at, best, k = reach + 1, 1.0, 0
        while k <= reach and grid.top * math.exp(-decay * k) > best:
            # the pairs x[m+t] − x[m+t−k−1], t = 0 … k+1
            widest = int((near[at : at + k + 2] - near[at - k - 1 : at + 1]).max())
            best = max(best, widest * math.exp(-decay * k))
            k += 1
        return best * (1 + 2.0**-40)


def _laplace_decay(share: float, delta: float) -> float:
    """The largest β ≤ share with e^(−z)(1 − e^(−β)) ≤ δ, z = (share + β)/(e^β − 1): Laplace noise stretched by e^β."""

    def log_tail(decay: float) -> float:
        return math.log(-math.expm1(-decay)) - (share + decay) / math.expm1(min(decay, 700.0))  # beyond, the quotient is nothing

    goal = math.log(delta) - 1e-9
    if log_tail(share) <= goal:
        return share
    low, high = 0.0, share
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and log_tail(middle) <= goal else (low, middle)
    return low


def _rounded_laplace(scale: Fraction, rng: Rng) -> int:
    """Draw scale · Laplace(1), rounded to a whole number: exact for any scale, and no table is kept of a private one."""
    lazy = LazyExponential(rng.bits(64), 64, rng)
    bits = 64
    while True:
        low, high = lazy.bounds(bits)
        near = (2 * low * scale.numerator + (scale.denominator << bits)) // (scale.denominator << (bits + 1))
        far = (2 * high * scale.numerator + (scale.denominator << bits)) // (scale.denominator << (bits + 1))
        if near == far:
            return -near if rng.bits(1) else near
        bits *= 2


def _rounded_student(scale: Fraction, rng: Rng) -> int:
    """Draw scale · T, T of Student's law with 2 degrees of freedom, rounded to a whole number: exact, in whole numbers only.

    |T| = √(2v²/(1 − v²)) for v uniform in (0, 1), and ⌊√y + ½⌋ = ⌊(⌊√⌊4y⌋⌋ + 1)/2⌋: draw bits of v until both ends agree.
    """
    word, bits = rng.bits(64), 64
    top, bottom = 8 * scale.numerator**2, scale.denominator**2

    def rounded(v: int) -> int:
        return (math.isqrt(top * v * v // (bottom * ((1 << 2 * bits) - v * v))) + 1) // 2

    while True:
        if word + 1 < 1 << bits and (near := rounded(word)) == rounded(word + 1):
            return -near if rng.bits(1) else near
        word, bits = word << 64 | rng.bits(64), bits + 64


def _some_delta(value: object, *, zero: bool) -> float:
    """A δ of at least 1e-30 (or 0)."""
    delta = checks.delta(value, zero=zero)
    if 0 < delta < 1e-30:
        raise checks.refuse("delta", delta, "0 or a number from 1e-30 to below 1" if zero else "a number from 1e-30 to below 1")
    return delta


# ------------------------------------------------------------------------------------------------ propose, test, release


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """What ``ProposeTestRelease`` releases: a whole number of ``step`` above ``offset``, and how far the data are from trouble.

    ``value(rows)`` is that whole number. ``distance(rows, bound)`` is the least number of rows to add, remove or replace
    after which a neighbour's value can differ by more than ``bound`` (a whole number of steps); 0 if one already can.
    It may be too small, but never too large, and must move by at most 1 between neighbours. ``numeric`` says that rows are
    a list of numbers, which is then checked (and refused aloud) before either function sees them.

    >>> median = median_statistic(0.0, 8.0)
    >>> median.offset + median.step * median.value([3.0, 4.0, 5.0])
    4.0
    >>> median.distance([3.0, 4.0, 5.0], round(2.0 / median.step))
    1
    """

    value: Callable[[Any], int]
    distance: Callable[[Any, int], int]
    step: float
    offset: float = 0.0
    numeric: bool = False

    def __post_init__(self) -> None:
        for name in ("value", "distance"):
            if not callable(getattr(self, name)):
                raise checks.refuse(name, getattr(self, name), "a function of the rows")
        object.__setattr__(self, "step", checks.positive("step", self.step))
        object.__setattr__(self, "offset", checks.real("offset", self.offset))


def median_statistic(lower: float, upper: float) -> Statistic:
    """The median of rows held within the bounds, and its exact distance to instability, in O(n log n).

    >>> steady = [5.0] * 41
    >>> median_statistic(0.0, 10.0).distance(steady, 0)
    20
    """
    grid = _Grid(lower, upper)

    def value(rows: object) -> int:
        values = grid.sorted(rows)
        return int(grid.around(values, _middle(values), _middle(values))[0])

    def distance(rows: object, bound: int) -> int:
        """Least j − i − 1 over i ≤ m ≤ j with x[j] − x[i] > bound: so many changes bring x[i] and x[j] together."""
        values = grid.sorted(rows)
        if bound >= grid.top:
            return len(values) + 1  # no dataset is unstable
        first, middle = 0, _middle(values)
        row = grid.around(values, first, len(values) + 1)
        left = np.arange(first, middle + 1)
        right = np.maximum(np.searchsorted(row, row[: middle + 1] + bound, side="right"), np.maximum(middle, left + 1))
        found = right <= len(values) + 1
        return int((right[found] - left[found] - 1).min())

    return Statistic(value=value, distance=distance, step=grid.step, offset=grid.lower, numeric=True)


def spread_statistic(lower: float, upper: float, *, half: bool = False) -> Statistic:
    """The scale of the data, as Dwork & Lei's: which factor-two bin the interquartile range is in, and how firmly.

    The quartiles are values number ⌈n/4⌉ and ⌈3n/4⌉ + 1 of the endless row. The answer b says that their difference lies
    in [2^b, 2^(b+1)) times the grid step of the bounds (√2 times that with ``half``, for data near the edge of a bin);
    b = −1 for a difference of 0. Use it with ``bound=0``: the bin itself is released when the test passes.

    >>> spread = spread_statistic(0.0, 8.0)
    >>> rows = [2.0] * 50 + [4.5] * 50
    >>> 2.0 ** spread.value(rows) * 2.0**-40, spread.distance(rows, 0)
    (2.0, 24)
    """
    grid = _Grid(lower, upper)

    def edge(index: int) -> int:
        """The least difference in bin ``index`` or above."""
        if index < 0:
            return 0
        return math.isqrt((2 << 2 * index) - 1) + 1 if half else 1 << index

    def bin_of(difference: int) -> int:
        index = difference.bit_length() - 1
        return index - 1 if difference and difference < edge(index) else index

    def reachable(values: Integers, k: int) -> tuple[int, int]:
        """The least and the largest interquartile range after k changes."""
        first, third = (len(values) + 3) // 4, (3 * len(values) + 3) // 4 + 1
        row = grid.around(values, first - k, third + k)
        widest = int((row[third - first + k :] - row[: k + 1]).max())
        narrowest = int((row[third - first : third - first + k + 1] - row[k : 2 * k + 1]).min()) if k < third - first else 0
        return narrowest, widest

    def value(rows: object) -> int:
        return bin_of(reachable(grid.sorted(rows), 0)[1])

    def distance(rows: object, bound: int) -> int:
        """One less than the number of changes that lead out of the bin, or to fewer than 4 rows, where a quartile is a bound.

        Any other bound than 0 gets 0, which is never too large.
        """
        values = grid.sorted(rows)
        if bound != 0 or len(values) <= 4:
            return 0
        index = bin_of(reachable(values, 0)[1])
        low, high = 0, len(values) + 1  # after n + 1 changes any range can be had, and it has at least two bins
        while low + 1 < high:
            k = (low + high) // 2
            narrowest, widest = reachable(values, k)
            low, high = (low, k) if narrowest < edge(index) or widest >= edge(index + 1) else (k, high)
        return min(high - 1, len(values) - 4)

    return Statistic(value=value, distance=distance, step=1.0, numeric=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeTestRelease:
    """A statistic with noise for a *proposed* sensitivity, if a private test finds the data far from any that break it.

    The value is None where the test says no. ``bound`` is the proposed local sensitivity, in the statistic's own units;
    with ``bound=0`` (a statistic that does not change at all nearby) the exact value is released. ``test_share`` is the
    share of ε that the test gets (all of it if bound = 0).

    >>> from dither.noise.rng import UnsafeSeededRng
    >>> mechanism = ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=median_statistic(0, 100), bound=0.01)
    >>> mechanism.event
    ApproxDp(epsilon=1.0, delta=1e-06)
    >>> mechanism.measure([50 + i / 10_000 for i in range(-500, 500)], UnsafeSeededRng(1)).value
    50.00635475654417
    >>> mechanism.measure([0, 100] * 500, UnsafeSeededRng(1)).value is None
    True

    Guarantee:
        Neighbours: those of the statistic (for the ones here: one row added, removed or replaced). Event:
        ``ApproxDp(epsilon, delta)``. Precondition for a statistic of your own: as its class says; those here meet it.

    Edge cases:
        No rows: the statistics here are unstable there, so the test fails but with probability δ. NaN counts as 0, ±∞ as
        a bound. An exception or nonsense from a statistic of your own counts as value 0 at distance 0. A bound of the whole
        range or more never fails by instability. Ties and overflow: whole numbers, exact.

    Reference:
        Dwork & Lei (2009), Section 4 and Theorem 5; Vadhan (2017), "The complexity of differential privacy",
        Proposition 3.2; Thakurta & Smith (2013), Section 3 (bound = 0).
    """

    epsilon: float
    delta: float
    statistic: Statistic
    bound: float = 0.0
    test_share: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.between("epsilon", self.epsilon, EPSILON_MIN, checks.EPSILON_MAX))
        object.__setattr__(self, "delta", _some_delta(self.delta, zero=False))
        checks.instance("statistic", self.statistic, Statistic, "a Statistic, such as median_statistic(0, 100)")
        object.__setattr__(self, "bound", checks.between("bound", self.bound, 0.0, 2.0**53 * self.statistic.step))
        object.__setattr__(self, "test_share", checks.between("test_share", self.test_share, 0.01, 0.99))
        if self._steps and not self._steps <= samplers.SCALE_MAX * Fraction(self._shares[1]):
            raise checks.refuse("bound", self.bound, "a smaller one: its noise would not fit 64-bit integers")

    @property
    def event(self) -> Event:
        """The price of one answer, whether the test passes or not."""
        return ApproxDp(self.epsilon, self.delta)

    @property
    def _steps(self) -> int:
        """The proposed sensitivity in whole steps."""
        return math.ceil(self.bound / self.statistic.step)

    @property
    def _shares(self) -> tuple[float, float]:
        """ε of the test, ε of the release."""
        whole = self.epsilon * (1 - _SLACK)
        return (whole * self.test_share, whole * (1 - self.test_share)) if self._steps else (whole, 0.0)

    @property
    def threshold(self) -> int:
        """The test passes above this: the least T with P(discrete Laplace > T) = e^(−ε(T+1))/(1 + e^(−ε)) ≤ δ."""
        share = self._shares[0]
        needed = -(math.log(self.delta) + math.log1p(math.exp(-share)) - 1e-9) / share - 1
        return max(0, math.ceil(needed))

    def measure(self, rows: object, rng: Rng | None = None) -> Noisy[float | None]:
        """The noisy statistic of ``rows``, or None where the test says no."""
        source = array_rng(rng)
        test, release = self._shares
        if self.statistic.numeric:
            checked_rows(rows)
        value, distance = _whole_or_none(self.statistic.value, rows), _whole_or_none(self.statistic.distance, rows, self._steps)
        if value is None or distance is None:
            value, distance = 0, 0
        passed = max(0, min(distance, 1 << 40)) + samplers.discrete_laplace(1 / Fraction(test), rng=source) > self.threshold
        if not passed:
            return noisy(None, self.event, source)
        noise = samplers.rounded_laplace(self._steps / Fraction(release), rng=source) if self._steps else 0
        return noisy(self.statistic.offset + (value + noise) * self.statistic.step, self.event, source)

    def interval(self, confidence: float = 0.95) -> Accuracy:
        """How far an answer that is not None may be from the statistic (on its grid)."""
        miss = 1 - checks.between("confidence", confidence, 1e-9, 1 - 1e-12)
        if not self._steps:
            return Accuracy(half_width=0.0, confidence=confidence)
        return Accuracy(half_width=(self._steps / self._shares[1] * -math.log(miss) + 1) * self.statistic.step, confidence=confidence)


def _whole_or_none(function: Callable[..., Any], *given: object) -> int | None:
    """What ``function`` makes of the rows if that is a whole number below 2⁶², else None; it never raises."""
    made = quietly(function, *given)
    return int(made) if isinstance(made, int | np.integer) and abs(int(made)) < 1 << 62 else None


# ------------------------------------------------------------------------------------------------ sample and aggregate


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleAndAggregate:
    """Any function of the rows, made private: run on disjoint random blocks, its answers averaged with noise.

    ``function`` takes a list (or array) of rows and gives a number, or ``dimension`` numbers. ``aggregate`` is ``"mean"``
    (Laplace noise for one block's whole range) or ``"median"`` (``SmoothSensitivityMedian`` of the blocks' answers; one
    number only). With ``timeout`` (seconds) each block runs in a process of its own, killed when its time is up;
    with ``steady`` too, each takes exactly that long, so that even the total time says nothing.

    >>> from dither.noise.rng import UnsafeSeededRng
    >>> def slope(rows):
    ...     return sum(x * y for x, y in rows) / sum(x * x for x, _ in rows)
    >>> mechanism = SampleAndAggregate(function=slope, blocks=100, lower=0.0, upper=10.0, epsilon=1.0)
    >>> mechanism.event
    Laplace(noise_multiplier=1.0)
    >>> rows = [(i % 10, 3 * (i % 10)) for i in range(5000)]
    >>> 2 < mechanism.measure(rows, UnsafeSeededRng(1)).value < 4
    True

    Guarantee:
        Neighbours: one row added, removed or replaced (a row may be all that one unit has: pass one element for each
        unit). Event: ``Laplace(1/ε)`` for the mean, that of ``SmoothSensitivityMedian`` for the median. Precondition:
        the answer for a block depends on the rows of that block alone. So the function must not hold other private data
        (a global, a closure), and must keep no state; the latter ``timeout`` enforces, as no process sees what another did.

    Edge cases:
        An exception, NaN, ±∞, a wrong shape, a hang (with ``timeout``), an exit: that block's answer is ``default``, the
        middle of the range unless given. So is whatever the function makes of an empty block if it fails there. Answers
        are held within [lower, upper]. No rows: as many empty blocks. Warnings of the function are swallowed.

    Reference:
        Nissim, Raskhodnikova & Smith (2007), Section 4; Smith (2011), "Privacy-preserving statistical estimation with
        optimal convergence rates"; Mohan et al. (2012), GUPT (time-outs and state as channels).
    """

    function: Callable[[Any], Any]
    blocks: int
    lower: float
    upper: float
    epsilon: float
    delta: float = 0.0
    aggregate: str = "mean"
    dimension: int | None = None
    default: float | None = None
    timeout: float | None = None
    steady: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise checks.refuse("function", self.function, "a function of a list of rows")
        if checks.text("aggregate", self.aggregate) not in ("mean", "median"):
            raise UnknownNameError("aggregate", self.aggregate, ("mean", "median"))
        grid = _Grid(self.lower, self.upper)
        default = (grid.lower + grid.upper) / 2 if self.default is None else self.default
        fixed: dict[str, object] = {
            "lower": grid.lower,
            "upper": grid.upper,
            "blocks": checks.count("blocks", self.blocks, high=1_000_000),
            "epsilon": checks.between("epsilon", self.epsilon, EPSILON_MIN, checks.EPSILON_MAX),
            "delta": _some_delta(self.delta, zero=True),
            "default": checks.between("default", default, grid.lower, grid.upper),
            "dimension": None if self.dimension is None else checks.count("dimension", self.dimension, high=1000),
            "steady": checks.instance("steady", self.steady, bool, "True or False"),
            "timeout": None if self.timeout is None else checks.positive("timeout", self.timeout, high=1e6),
        }
        for name, value in fixed.items():
            object.__setattr__(self, name, value)
        if self.aggregate == "mean" and self.delta:
            raise checks.refuse("delta", self.delta, "0 for the mean, whose Laplace noise has no δ")
        if self.aggregate == "median" and self.dimension is not None:
            raise checks.refuse("dimension", self.dimension, "None for the median, which is of one number")
        if self.steady and self.timeout is None:
            raise checks.refuse("steady", self.steady, "False unless a timeout is given")

    @property
    def event(self) -> Event:
        """The price of one answer."""
        return self._median.event if self.aggregate == "median" else Laplace(up(1 / Fraction(self.epsilon)))

    @property
    def _median(self) -> SmoothSensitivityMedian:
        return SmoothSensitivityMedian(epsilon=self.epsilon, delta=self.delta, lower=self.lower, upper=self.upper)

    @property
    def _grid(self) -> _Grid:
        return _Grid(self.lower, self.upper, _MEAN_BITS)

    @property
    def _noise_steps(self) -> Fraction:
        """Laplace scale of the *sum* of the blocks' answers, in grid steps: one block can move each coordinate by ``top``."""
        return self._grid.top * (self.dimension or 1) * Fraction(up(1 / Fraction(self.epsilon)))

    def measure(self, rows: Sequence[Any] | NDArray[Any], rng: Rng | None = None) -> Noisy[Any]:
        """One noisy answer: a number, or an array of ``dimension`` of them."""
        source = array_rng(rng)
        answers = [self._answer(block) for block in self._blocks(rows, source)]
        if self.aggregate == "median":
            return noisy(self._median.measure([float(a[0]) for a in answers], source).value, self.event, source)
        grid = self._grid
        totals = [sum(column) for column in zip(*(grid.steps(a).tolist() for a in answers), strict=True)]
        noise = samplers.rounded_laplace(self._noise_steps, len(totals), source).tolist()
        means = [grid.lower + (t + z) / self.blocks * grid.step for t, z in zip(totals, noise, strict=True)]
        return noisy(means[0] if self.dimension is None else np.array(means), self.event, source)

    def interval(self, confidence: float = 0.95) -> Accuracy | None:
        """How far the noisy mean (each coordinate) may be from the mean of the blocks' answers; None for the median."""
        miss = 1 - checks.between("confidence", confidence, 1e-9, 1 - 1e-12)
        if self.aggregate == "median":
            return None
        reach = float(self._noise_steps) * -math.log(miss) + 1 + self.blocks
        return Accuracy(half_width=reach / self.blocks * self._grid.step, confidence=confidence)

    def _blocks(self, rows: Sequence[Any] | NDArray[Any], rng: Rng) -> list[Any]:
        """Every row in one block, each row's block uniform and independent of all else."""
        if not isinstance(rows, list | tuple | np.ndarray) or (isinstance(rows, np.ndarray) and not rows.ndim):
            raise checks.refuse("rows", type(rows), "a list, tuple or array, one element for each row")
        where = samplers.uniform_below(self.blocks, len(rows), rng)
        order = np.argsort(where, kind="stable")
        parts = np.split(order, np.searchsorted(where[order], np.arange(1, self.blocks)))
        return [rows[part] if isinstance(rows, np.ndarray) else [rows[i] for i in part.tolist()] for part in parts]

    def _answer(self, block: object) -> Floats:
        size = self.dimension or 1
        if self.timeout is None:
            made = answer(self.function, block, size)
        else:
            made = isolated_answer(self.function, block, size, timeout=self.timeout, steady=self.steady)
        return np.full(size, self.default, np.float64) if made is None else made
