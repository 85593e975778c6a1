"""Choosing which groups may be shown at all, when the set of groups is itself private.

Input is the number of *distinct units* in every group that has any; a unit is counted in at most ``groups_max`` groups
(whoever counts bounds that before). Neighbours: one unit more or less, so at most ``groups_max`` counts differ, by one
each, and some of them between 0, where nothing is ever shown, and 1; or one unit replaced by another, so at most as many
counts grow by one, and as many shrink. ``units_min`` hides every group of fewer units for certain, noise or no noise. What
is shown is sorted, so that the order tells nothing. Time and memory grow with the number of groups that are there: do not
let those who may not know it measure them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError
from dither.core.events import ApproxDp, DiscreteGaussian, Event, PureDp, Repeat, Sequence
from dither.core.plans import Accuracy
from dither.core.rng import Rng
from dither.core.units import Neighbors
from dither.core.units import neighbors as as_neighbors
from dither.noise import samplers
from dither.noise._fixed import exp_bounds
from dither.noise._lazy import BITS_MAX
from dither.noise._rounding import down, up
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import array_rng
from dither.noise.selection import checked_confidence

K = TypeVar("K", bound=Hashable)
NoiseLaw: TypeAlias = Literal["laplace", "gaussian"]
_LAWS = ("laplace", "gaussian")

GROUPS_MAX = 10**9
DELTA_MIN = 1e-100
_COUNT_MAX = 2**53
_SLACK = 1 + 2.0**-36  # far above the error of a few libm calls whose arguments stay below 750
_SUM_MAX = 200.0


# ------------------------------------------------------------------------------------------------ input and output


def _counted(counts: Mapping[K, int], low: int) -> tuple[list[K], NDArray[np.int64]]:
    """The groups of at least ``low`` units, and their counts."""
    if not isinstance(counts, Mapping):
        raise checks.refuse("counts", type(counts).__name__, "a map from group to its number of distinct units")
    held = np.fromiter((_whole(c) for c in counts.values()), np.int64, len(counts))
    keys = list(counts)
    large = np.flatnonzero(held >= low)
    return [keys[i] for i in large.tolist()], held[large]


def _whole(count: object) -> int:
    if type(count) is int or isinstance(count, np.integer):
        return max(0, min(_COUNT_MAX, int(count)))
    raise InputError(f"A count of type {type(count).__name__} is not allowed: expected whole numbers of distinct units.")


def ordered(keys: list[K]) -> list[K]:
    """The keys in an order that depends on nothing but the keys.

    >>> ordered(["b", 10, 9, "a"])
    [9, 10, 'a', 'b']
    """
    kinds = {type(k) for k in keys}
    if kinds <= {str} or kinds <= {int}:
        return sorted(keys)  # type: ignore[type-var]  # all of one type that has an order
    return sorted(keys, key=lambda k: (type(k).__qualname__, len(repr(k)) if type(k) is int else 0, repr(k)))


def _limits(owner: StableHistogram | OptimalPartitionSelection) -> None:
    object.__setattr__(owner, "groups_max", checks.count("groups_max", owner.groups_max, high=GROUPS_MAX))
    object.__setattr__(owner, "units_min", checks.count("units_min", owner.units_min, high=10**9))
    object.__setattr__(owner, "neighbors", as_neighbors(owner.neighbors))


def _touched(groups_max: int, relation: Neighbors) -> int:
    """How many counts one unit can move: a unit that is replaced leaves its groups, and the other one enters its own."""
    return groups_max * (2 if relation is Neighbors.REPLACE else 1)


def _times(event: Event, count: int) -> Event:
    return event if count == 1 else Repeat(event, count)


# ------------------------------------------------------------------------------------------------ tails of the noise


def tail(noise: NoiseLaw, scale: float, at: int) -> float:
    """An upper bound on P(noise ≥ at), right to 1e-10 (Gaussian of scale > 200: to 1e-2), for any integer ``at``.

    >>> round(tail("laplace", 1.0, 3), 6)  # e⁻³ / (1 + e⁻¹)
    0.036397
    """
    if at <= 0:
        wide = noise == "gaussian" and scale > _SUM_MAX
        below = math.erfc((1 - at) / (scale * math.sqrt(2))) / 2 if wide else _tail(noise, scale, 1 - at)
        return min(1.0, (1 - below / _SLACK**2) * _SLACK)  # the integral from 1 − at is less than the sum, by one term
    return min(1.0, max(_tail(noise, scale, at) * _SLACK, 1e-300))


def _tail(noise: NoiseLaw, scale: float, at: int) -> float:
    """P(noise ≥ at) for at ≥ 1: exactly but for rounding, or (wide Gaussians) a little too large."""
    if noise == "laplace":
        return math.exp(-at / scale) / (1 + math.exp(-1 / scale))
    if scale <= _SUM_MAX:
        return _gaussian_sum(scale, at) / (1 + 2 * _gaussian_sum(scale, 1))
    edge = at - 0.5  # each term of a convex function is at most its integral over the unit around it
    inside = math.erfc(edge / (scale * math.sqrt(2))) / 2 if edge >= scale else 0.0
    return inside or math.erfc(at / (scale * math.sqrt(2))) / 2 + math.exp(-(at * at) / (2 * scale * scale)) / (
        scale * math.sqrt(2 * math.pi)
    )


@lru_cache(maxsize=256)
def _gaussian_sum(scale: float, at: int) -> float:
    """Σ exp(−k²/2scale²) over k ≥ at."""
    terms: list[float] = []
    k = at
    while not terms or (terms[-1] > terms[0] * 2.0**-64 and terms[-1] > 0):
        terms.append(math.exp(-(k * k) / (2 * scale * scale)))
        k += 1
    return math.fsum(terms)


def _any_of(single: float, groups: int) -> float:
    """At least 1 − (1 − single)^groups."""
    if single >= 1:
        return 1.0
    return min(1.0, -math.expm1(groups * math.log1p(-single)) * _SLACK)


# ------------------------------------------------------------------------------------------------ noisy counts


@dataclass(frozen=True, slots=True, kw_only=True)
class StableHistogram:
    """Noisy counts of the groups whose noisy count reaches a threshold; the set of groups need not be known beforehand.

    Noise is integer: discrete Laplace or discrete Gaussian of scale ``noise_scale`` (scale, or standard deviation), per
    count. ``for_laplace`` and ``for_gaussian`` find the parameters from ε or σ, and δ.

    Guarantee:
        For one unit more or less, with δ₁ = P(noise ≥ threshold − units_min) the chance of a group that would not be
        there at all: for Laplace noise ``Repeat(ApproxDp(1/noise_scale, δ₁), groups_max)``, which is exactly as tight as
        its noise and holds for several units together, too, if each moves one count; for Gaussian noise a ``Sequence`` of
        ``Repeat(DiscreteGaussian(noise_scale), groups_max)`` and ``ApproxDp(0, delta, one_unit=True)``, with delta =
        1 − (1 − δ₁)^groups_max: k units in one new group show it with more than k·δ₁, so a price for k units is refused.
        It is refused as well where a unit moves several counts (``one_unit`` then marks the event): k units may share them out.
        Under ``replace`` twice as many counts move, half of them down: as many ``PureDp(1/noise_scale)``, resp. noises, more.
        Precondition: counts are of distinct units, each in at most ``groups_max`` groups.

    Edge cases:
        No groups: nothing is shown. Counts below ``units_min`` (0 and negative ones too) are never shown. A threshold at
        or below ``units_min`` gives away at least half of all new groups: refused. Very large counts are held at 2^53.
        Keys of one type str or int come back in their order, others in that of their type and text (repr), which must
        tell different keys apart.

    Reference:
        Korolova et al. 2009, Theorem 1; Bun, Nissim & Stemmer 2016, Section 3 (stability-based histograms); Wilson et
        al. 2020, Theorem 2 (several groups per unit, the exponent); Gaussian: the same argument, docs/proofs/partition.md.

    >>> StableHistogram.for_laplace(epsilon=1.0, delta=1e-6).threshold
    15
    """

    noise: NoiseLaw
    noise_scale: float
    threshold: int
    groups_max: int = 1
    units_min: int = 1
    neighbors: Neighbors = Neighbors.ADD_REMOVE

    def __post_init__(self) -> None:
        if self.noise not in _LAWS:
            raise UnknownNameError("noise", self.noise, _LAWS)
        object.__setattr__(self, "noise_scale", checks.noise_multiplier(self.noise_scale, "noise_scale"))
        _limits(self)
        object.__setattr__(self, "threshold", checks.count("threshold", self.threshold, low=self.units_min + 1, high=10**15))
        if not self.delta < 1:
            raise checks.refuse("threshold", self.threshold, f"a larger one: at groups_max={self.groups_max} its delta is 1")

    @classmethod
    def for_laplace(
        cls,
        *,
        epsilon: float,
        delta: float,
        groups_max: int = 1,
        units_min: int = 1,
        neighbors: Neighbors = Neighbors.ADD_REMOVE,
    ) -> Self:
        """The least noise and threshold for (epsilon, delta) in all, by basic composition over the groups."""
        groups, relation = checks.count("groups_max", groups_max, high=GROUPS_MAX), as_neighbors(neighbors)
        each = down(Fraction(checks.epsilon(epsilon, zero=False)) / _touched(groups, relation))
        return cls._thresholded("laplace", up(1 / Fraction(each)), delta, groups, units_min, relation)

    @classmethod
    def for_gaussian(
        cls,
        *,
        noise_std: float,
        delta: float,
        groups_max: int = 1,
        units_min: int = 1,
        neighbors: Neighbors = Neighbors.ADD_REMOVE,
    ) -> Self:
        """The least threshold whose own share of δ is at most ``delta``; the noise's share is the accountant's to say.

        >>> StableHistogram.for_gaussian(noise_std=2.0, delta=1e-6).event
        Sequence(events=(DiscreteGaussian(noise_std=2.0, sensitivity=1), ApproxDp(epsilon=0.0, delta=8.003846685025258e-07, one_unit=True)))
        """
        groups = checks.count("groups_max", groups_max, high=GROUPS_MAX)
        return cls._thresholded("gaussian", noise_std, delta, groups, units_min, as_neighbors(neighbors))

    @classmethod
    def _thresholded(cls, noise: NoiseLaw, noise_scale: float, delta: float, groups: int, units_min: int, relation: Neighbors) -> Self:
        limit = checks.between("delta", delta, DELTA_MIN, 1 - 2.0**-53)
        scale = checks.noise_multiplier(noise_scale, "noise_scale")
        least = checks.count("units_min", units_min, high=10**9)
        low, high = 0, 1  # the answer is in (low, high]
        while _any_of(tail(noise, scale, high), groups) > limit:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _any_of(tail(noise, scale, middle), groups) <= limit else (middle, high)
        return cls(noise=noise, noise_scale=scale, threshold=least + high, groups_max=groups, units_min=least, neighbors=relation)

    @property
    def delta_each(self) -> float:
        """The probability, rounded up, that a group of ``units_min`` units is shown."""
        return tail(self.noise, self.noise_scale, self.threshold - self.units_min)

    @property
    def delta(self) -> float:
        """The probability, rounded up, that any of ``groups_max`` groups of ``units_min`` units is shown."""
        return _any_of(self.delta_each, self.groups_max)

    @property
    def event(self) -> Event:
        """What the whole histogram costs."""
        touched = _touched(self.groups_max, self.neighbors)
        if self.noise == "gaussian":
            return Sequence((_times(DiscreteGaussian(self.noise_scale), touched), ApproxDp(0.0, self.delta, one_unit=True)))
        epsilon = up(1 / Fraction(self.noise_scale))
        entered = _times(ApproxDp(epsilon, self.delta_each, one_unit=touched > 1), self.groups_max)
        left = touched - self.groups_max
        return entered if not left else Sequence((entered, _times(PureDp(epsilon), left)))

    def measure(self, counts: Mapping[K, int], rng: Rng | None = None) -> Noisy[dict[K, int]]:
        """The groups to show, in order, each with its noisy count."""
        source = array_rng(rng)
        keys, held = _counted(counts, self.units_min)
        draw = samplers.discrete_laplace if self.noise == "laplace" else samplers.discrete_gaussian
        told = held + draw(self.noise_scale, rng=source, size=held.size)
        shown = {keys[i]: int(told[i]) for i in np.flatnonzero(told >= self.threshold).tolist()}
        return noisy({k: shown[k] for k in ordered(list(shown))}, self.event, source)

    def keep_probability(self, count: int) -> float:
        """How likely a group of ``count`` units is shown.

        >>> round(StableHistogram(noise="laplace", noise_scale=1.0, threshold=15).keep_probability(15), 3)
        0.731
        """
        units = checks.count("count", count, low=0, high=_COUNT_MAX)
        return tail(self.noise, self.noise_scale, self.threshold - units) if units >= self.units_min else 0.0

    def interval(self, confidence: float) -> Accuracy:
        """How far the noise takes one count; a group is shown *and* further off with at most 1 − confidence."""
        miss = 1 - checked_confidence(confidence)
        low, high = 0, 1
        while 2 * tail(self.noise, self.noise_scale, high + 1) > miss:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if 2 * tail(self.noise, self.noise_scale, middle + 1) <= miss else (middle, high)
        return Accuracy(half_width=float(high), confidence=confidence)


# ------------------------------------------------------------------------------------------------ keep or drop, optimally


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalPartitionSelection:
    """The groups to show, without counts: each kept with the largest probability that (ε, δ)-DP allows, for every count.

    ``epsilon_each`` and ``delta_each`` are what one group may cost; a unit in ``groups_max`` groups costs the composition
    of as many, and of twice as many where it is replaced by another. ``for_budget`` divides a total by basic composition;
    the event lets the accountant do better.

    Guarantee:
        For one unit more or less: ``Repeat(ApproxDp(epsilon_each, delta_each), groups_max)``; under ``replace`` twice as
        many. Precondition: counts are of distinct units, each in at most ``groups_max`` groups.

    Edge cases:
        No groups: nothing is shown. Counts below ``units_min`` are never shown. ``epsilon_each`` 0 is allowed (the
        probability grows by delta per unit); ``delta_each`` 0 is not: no group could ever be shown. Order as for
        ``StableHistogram``.

    Reference:
        Desfontaines, Voss, Gipson & Mandayam 2022, Theorem 1 (the optimal probabilities) and Theorem 2 (their closed
        form, derived again in docs/proofs/partition.md, with ``units_min``).

    >>> OptimalPartitionSelection.for_budget(epsilon=1.0, delta=1e-6).measure({"a": 1000, "b": 900}).value
    ('a', 'b')
    """

    epsilon_each: float
    delta_each: float
    groups_max: int = 1
    units_min: int = 1
    neighbors: Neighbors = Neighbors.ADD_REMOVE

    def __post_init__(self) -> None:
        epsilon = checks.epsilon(self.epsilon_each, "epsilon_each")
        if 0 < epsilon < 1e-12:
            raise checks.refuse("epsilon_each", self.epsilon_each, "0, or a number from 1e-12 to 1000")
        object.__setattr__(self, "epsilon_each", epsilon)
        object.__setattr__(self, "delta_each", checks.between("delta_each", self.delta_each, DELTA_MIN, 1 - 2.0**-53))
        _limits(self)

    @classmethod
    def for_budget(
        cls,
        *,
        epsilon: float,
        delta: float,
        groups_max: int = 1,
        units_min: int = 1,
        neighbors: Neighbors = Neighbors.ADD_REMOVE,
    ) -> Self:
        """An equal share of (epsilon, delta), rounded down, for each of the groups that one unit can move."""
        groups, relation = checks.count("groups_max", groups_max, high=GROUPS_MAX), as_neighbors(neighbors)
        touched = _touched(groups, relation)
        each = down(Fraction(checks.epsilon(epsilon)) / touched), down(Fraction(checks.delta(delta, zero=False)) / touched)
        return cls(epsilon_each=each[0], delta_each=each[1], groups_max=groups, units_min=units_min, neighbors=relation)

    @property
    def event(self) -> Event:
        """What the whole selection costs."""
        touched = _touched(self.groups_max, self.neighbors)
        return _times(ApproxDp(self.epsilon_each, self.delta_each, one_unit=touched > 1), touched)

    def measure(self, counts: Mapping[K, int], rng: Rng | None = None) -> Noisy[tuple[K, ...]]:
        """The groups to show, in order."""
        source = array_rng(rng)
        keys, held = _counted(counts, self.units_min)
        law = _law(self.epsilon_each, self.delta_each)
        kept = law.flip(held - (self.units_min - 1), source)
        return noisy(tuple(ordered([keys[i] for i in np.flatnonzero(kept).tolist()])), self.event, source)

    def keep_probability(self, count: int) -> float:
        """How likely a group of ``count`` units is shown.

        >>> OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-5).keep_probability(1)
        1e-05
        """
        units = checks.count("count", count, low=0, high=_COUNT_MAX) - (self.units_min - 1)
        return float(_law(self.epsilon_each, self.delta_each).near(np.array([max(units, 0)]))[0])


class _KeepLaw:
    """The keep probabilities π(n) of one (ε, δ): floats to 2^-40, and enclosures as tight as asked for.

    π(0) = 0 and π(n+1) = min(e^ε π(n) + δ, 1 − e^−ε (1 − π(n) − δ), 1). With D = δ/(e^ε − 1) that is δ(e^{nε} − 1)/(e^ε − 1)
    up to n = turn, the first n with π(n) > (1 − δ)/(e^ε + 1), and π(turn) + (1 − e^{−mε})(1 − π(turn) + D), at most 1,
    m steps after it.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = Fraction(epsilon), Fraction(delta)
        self.floats = epsilon, delta
        self.turn = self._turn() if epsilon else 0

    def near(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Floats within a relative 2^-40 of π, 1 where π is 1."""
        epsilon, delta = self.floats
        if not epsilon:
            return np.asarray(np.minimum(counts * delta, 1.0))
        spread = delta / math.expm1(epsilon) if epsilon < 700 else 0.0
        early = np.minimum(counts, self.turn).astype(np.float64)
        rising = delta * np.exp((early - 1) * epsilon) * (np.expm1(-early * epsilon) / math.expm1(-epsilon))
        falling = -np.expm1(-(counts - early) * epsilon)
        return np.minimum(np.where(counts == 0, 0.0, rising + falling * (1 - rising) + falling * spread), 1.0)

    def flip(self, counts: NDArray[np.int64], rng: Rng) -> NDArray[np.bool_]:
        """Independent coins of probability exactly π(count)."""
        words = np.frombuffer(rng.bytes(8 * counts.size), dtype="<u8")
        chances = self.near(counts)
        drawn = words.astype(np.float64) * 2.0**-64
        heads = np.asarray(drawn < chances)
        doubtful = np.flatnonzero(np.abs(drawn - chances) <= 2.0**-36 * chances + 2.0**-62)
        for i in doubtful[counts[doubtful] > 0].tolist():
            heads[i] = self._exact_flip(int(counts[i]), int(words[i]), rng)
        return heads & (counts > 0)

    def _exact_flip(self, count: int, known: int, rng: Rng) -> bool:
        """Whether a uniform number that starts with the 64 bits ``known`` is below π(count)."""
        drawn, bits = known, 64
        while bits <= BITS_MAX:
            low, high = self.bounds(count, bits + 32)
            if drawn + 1 <= low * 2**bits:
                return True
            if drawn >= high * 2**bits:
                return False
            drawn, bits = drawn << 64 | rng.bits(64), bits + 64
        return False

    def bounds(self, count: int, bits: int) -> tuple[Fraction, Fraction]:
        """π(count) lies between these, which are about 2^-bits apart (π above 1 stands for 1)."""
        if not self.epsilon:
            exact = min(Fraction(1), count * self.delta)
            return exact, exact
        early = min(count, self.turn)
        low, high = self._rising(early, bits)
        late = count - early
        if not late:
            return low, high
        step, after = _enclosed(self.epsilon, bits), _enclosed(late * self.epsilon, bits)
        spread = [self.delta * s / (1 - s) for s in step]
        return low + (1 - after[1]) * (1 - low + spread[0]), high + (1 - after[0]) * (1 - high + spread[1])

    def _rising(self, count: int, bits: int) -> tuple[Fraction, Fraction]:
        """δ(e^{nε} − 1)/(e^ε − 1) = δ·e^−ε·(1 − e^−nε)/(e^−nε·(1 − e^−ε))."""
        if count <= 1:
            return self.delta * count, self.delta * count
        step, power = _enclosed(self.epsilon, bits), _enclosed(count * self.epsilon, bits)
        low = self.delta * step[0] * (1 - power[1]) / (power[1] * (1 - step[0]))
        high = self.delta * step[1] * (1 - power[0]) / (power[0] * (1 - step[1]))
        return low, high

    def _turn(self) -> int:
        """The first n with δ(e^{nε} − 1)/(e^ε − 1) > (1 − δ)/(e^ε + 1)."""
        epsilon, delta = self.floats
        ratio = (1 - delta) / delta * math.tanh(epsilon / 2)
        turn = max(1, math.floor((math.log1p(ratio) if ratio < 1e300 else math.log(ratio)) / epsilon))
        while turn > 1 and self._past(turn - 1):
            turn -= 1
        while not self._past(turn):
            turn += 1
        return turn

    def _past(self, count: int) -> bool:
        bits = 128
        while True:
            low, high = self._rising(count, bits)
            step = _enclosed(self.epsilon, bits)
            bar = [(1 - self.delta) * s / (1 + s) for s in step]
            if low > bar[1] or high <= bar[0]:
                return low > bar[1]
            bits *= 2


def _enclosed(power: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """exp(−power) for power > 0, to a relative 2^-bits, so that it is never taken for 0 or for 1."""
    bits += math.ceil(power * 3 / 2) + 8 if power < BITS_MAX else 0
    bits += max(0, power.denominator.bit_length() - power.numerator.bit_length()) + 8
    low, high = exp_bounds(power, bits)
    return Fraction(low, 1 << bits), Fraction(high, 1 << bits)


@lru_cache(maxsize=128)
def _law(epsilon: float, delta: float) -> _KeepLaw:
    return _KeepLaw(epsilon, delta)
