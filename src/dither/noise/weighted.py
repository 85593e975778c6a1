"""Which private keys may be shown, where each unit divides one weight over all of its keys.

A unit that has many keys gives each of them a little, a unit that has few gives each more: the squares of what one unit gives add up
to at most ``grid``². Whoever adds up the weights sees to that bound: ``unit_weight`` is what each of a unit's keys gets when all get
the same. Weights are whole numbers, so that sums of them do not depend on order. A key gets Gaussian noise and is shown if its noisy
weight reaches the threshold; a key that nobody gave weight to is never looked at. Several rounds find more: keys that were shown need
no weight in the next one, so rare keys get all of it. Neighbours: one unit more or less, or one replaced by another. What is shown is
sorted, so that the order tells nothing. Time and memory grow with the number of keys that are there.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError
from dither.core.events import ApproxDp, Event, Gaussian, Repeat, Sequence
from dither.core.rng import Rng
from dither.core.units import Neighbors
from dither.core.units import neighbors as as_neighbors
from dither.noise import samplers
from dither.noise._rounding import up
from dither.noise.noisy import Noisy, noisy
from dither.noise.partition import DELTA_MIN, ordered
from dither.noise.rng import array_rng

K = TypeVar("K", bound=Hashable)

GRID = 2**20
KEYS_MAX = 10**6
_GRID_MAX = 2**26
_WEIGHT_MAX = 2**61
_THRESHOLD_MAX = 10**17
_SLACK = 1 + 2.0**-36  # far above the error of a few libm calls whose arguments stay below 750
_PARTS = 256
_ROOT_TWO = math.sqrt(2)
_SLOPES = np.linspace(0.0, 1.25, 51)


def unit_weight(keys: int, grid: int = GRID) -> int:
    """The most that a unit of so many keys may give to each of them: the largest whole w with keys · w² ≤ grid².

    ``floor(grid / sqrt(keys))`` in double precision is the same number.

    >>> unit_weight(1), unit_weight(3)
    (1048576, 605395)
    """
    count = checks.count("keys", keys)
    return math.isqrt(checks.count("grid", grid, high=_GRID_MAX) ** 2 // count)


# ------------------------------------------------------------------------------------------------ how likely one unit's keys are shown


def _shown(std: float, at: int) -> float:
    """An upper bound on P(noise ≥ at), for continuous Gaussian noise of ``std`` rounded to whole numbers."""
    return min(1.0, max(math.erfc((at - 0.5) / (std * _ROOT_TWO)) / 2 * _SLACK, 1e-300))


@lru_cache(maxsize=4096)
def _any_shown(std: float, threshold: int, keys_max: int, grid: int) -> float:
    """At least the chance that any key of one unit alone is shown, however it divides its weight (docs/proofs/weighted.md)."""
    edges = [grid * k // _PARTS for k in range(_PARTS + 1)]
    chances = [_shown(std, threshold - e) for e in edges]
    if chances[-1] >= 1:
        return 1.0
    losses = np.array([-math.log1p(-c) for c in chances[1:]]) * _SLACK  # at the upper end of each part
    squares = (np.array(edges[:-1], dtype=np.float64) / grid) ** 2 * (2 - _SLACK)  # at the lower end
    slopes = _SLOPES * _even(losses, keys_max)
    worst = np.maximum((losses[:, None] - squares[:, None] * slopes).max(axis=0), 0.0)
    found = min(float(np.min(slopes + keys_max * worst)), keys_max * float(losses[-1]))
    return min(1.0, -math.expm1(-found * _SLACK) * _SLACK)


def _even(losses: NDArray[np.float64], keys_max: int) -> float:
    """About the largest total loss of a unit that gives every key the same weight."""
    parts = np.arange(1, _PARTS + 1) / _PARTS
    keys = np.clip(np.floor(parts**-2.0), 1, keys_max)
    return float(np.max(keys * losses))


# ------------------------------------------------------------------------------------------------ the mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSelection:
    """The keys whose weight reaches a threshold, noise and all, each with its noisy weight in steps of 1/``grid``.

    Noise is Gaussian of standard deviation ``noise_multiplier`` × ``grid`` steps, rounded to whole numbers. ``for_delta``
    finds the least threshold.

    Guarantee:
        For one unit more or less: ``Sequence((Gaussian(noise_multiplier), ApproxDp(0, delta, one_unit=True)))``, ``delta`` being at least
        the chance that any key is shown which that unit alone gives weight to. Under ``replace`` the weights of the one
        unit and of the other are both ≥ 0, so together they move by at most √2: the Gaussian twice, ``delta`` once. For
        *one* unit: groups of units are not covered, because k units of one new key show it with more than k · delta.
        Precondition: weights are sums over units; of one unit they are whole numbers ≥ 0, above 0 for at most ``keys_max``
        keys, and their squares add up to at most ``grid``². They may depend on that unit's rows, on public facts and on what
        was released before, not on other units' rows.

    Edge cases:
        No keys: nothing is shown. Weights of 0 or less are never shown. Very large weights are held at 2^61. A threshold so
        low that ``delta`` would be 1 is refused. Keys come back in the order that ``ordered`` gives them.

    Reference:
        Gopi, Gulhane, Kulkarni, Shen, Shokouhi & Yekhanin 2020, Section 4 (weighted Gaussian); Swanberg, Desfontaines &
        Haney 2023, Theorem 3.2 (rounds); Desfontaines, Voss, Gipson & Mandayam 2022 (why δ divides in two parts):
        docs/proofs/weighted.md.

    >>> WeightedSelection.for_delta(noise_multiplier=4.0, delta=1e-6).measure({"a": 900 * GRID, "b": 3 * GRID}).value.keys()
    dict_keys(['a'])
    """

    noise_multiplier: float
    threshold: int
    keys_max: int = 64
    grid: int = GRID
    neighbors: Neighbors = Neighbors.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", checks.noise_multiplier(self.noise_multiplier))
        object.__setattr__(self, "keys_max", checks.count("keys_max", self.keys_max, high=KEYS_MAX))
        object.__setattr__(self, "grid", checks.count("grid", self.grid, low=_PARTS, high=_GRID_MAX))
        object.__setattr__(self, "threshold", checks.count("threshold", self.threshold, high=_THRESHOLD_MAX))
        object.__setattr__(self, "neighbors", as_neighbors(self.neighbors))
        if not self._scale <= samplers.SCALE_MAX:
            raise checks.refuse(
                "noise_multiplier", self.noise_multiplier, f"at most {float(samplers.SCALE_MAX / self.grid):g} on this grid"
            )
        if not self.delta < 1:
            raise checks.refuse("threshold", self.threshold, f"a larger one: at keys_max={self.keys_max} its delta is 1")

    @classmethod
    def for_delta(
        cls,
        *,
        noise_multiplier: float,
        delta: float,
        keys_max: int = 64,
        grid: int = GRID,
        neighbors: Neighbors | str = Neighbors.ADD_REMOVE,
    ) -> Self:
        """The least threshold whose own share of δ is at most ``delta``; the noise's share is the accountant's to say.

        >>> WeightedSelection.for_delta(noise_multiplier=2.0, delta=1e-6, keys_max=1).threshold // GRID
        10
        """
        limit = checks.between("delta", delta, DELTA_MIN, 1 - 2.0**-53)
        given = cls(
            noise_multiplier=noise_multiplier, threshold=_THRESHOLD_MAX, keys_max=keys_max, grid=grid, neighbors=as_neighbors(neighbors)
        )
        low, high = 0, given.grid
        while _any_shown(given.std, high, given.keys_max, given.grid) > limit:
            low, high = high, 2 * high
            if low > _THRESHOLD_MAX:
                raise checks.refuse("noise_multiplier", noise_multiplier, "less noise: no threshold that can be told would meet delta")
        step = max(1, given.grid >> 12)  # a threshold finer than this is of no use to anyone
        while high - low > step:
            middle = (low + high) // 2
            low, high = (low, middle) if _any_shown(given.std, middle, given.keys_max, given.grid) <= limit else (middle, high)
        return cls(noise_multiplier=noise_multiplier, threshold=high, keys_max=keys_max, grid=grid, neighbors=given.neighbors)

    @property
    def _scale(self) -> Fraction:
        return Fraction(self.noise_multiplier) * self.grid

    @property
    def std(self) -> float:
        """The standard deviation of the noise in steps, rounded up."""
        return up(self._scale)

    @property
    def delta(self) -> float:
        """The probability, rounded up, that any key of a unit is shown to which no other unit gives weight."""
        return _any_shown(self.std, self.threshold, self.keys_max, self.grid)

    @property
    def event(self) -> Event:
        """What one selection costs."""
        noise: Event = Gaussian(self.noise_multiplier)
        return Sequence((noise if self.neighbors is Neighbors.ADD_REMOVE else Repeat(noise, 2), ApproxDp(0.0, self.delta, one_unit=True)))

    def measure(self, weights: Mapping[K, int], rng: Rng | None = None) -> Noisy[dict[K, int]]:
        """The keys to show, in order, each with its noisy weight."""
        source = array_rng(rng)
        if not isinstance(weights, Mapping):
            raise checks.refuse("weights", type(weights).__name__, "a map from key to the weight that units gave it")
        keys = list(weights)
        held = np.fromiter((_whole(w) for w in weights.values()), np.int64, len(keys))
        given = np.flatnonzero(held > 0)
        told = held[given] + samplers.rounded_gaussian(self._scale, rng=source, size=given.size)
        shown = {keys[given[i]]: int(told[i]) for i in np.flatnonzero(told >= self.threshold).tolist()}
        return noisy({k: shown[k] for k in ordered(list(shown))}, self.event, source)

    def keep_probability(self, weight: int) -> float:
        """How likely a key of that weight is shown.

        >>> selection = WeightedSelection.for_delta(noise_multiplier=4.0, delta=1e-6)
        >>> round(selection.keep_probability(selection.threshold), 4)
        0.5
        """
        held = checks.count("weight", weight, low=0, high=_WEIGHT_MAX)
        return _shown(self.std, self.threshold - held) if held else 0.0


def _whole(weight: object) -> int:
    if type(weight) is int or isinstance(weight, np.integer):
        return max(0, min(_WEIGHT_MAX, int(weight)))
    raise InputError(f"A weight of type {type(weight).__name__} is not allowed: expected whole numbers of grid steps.")
