"""Continual release: running sums of a stream, told after every step, priced once for the whole stream.

Two counters. ``TreeCounter`` adds noise to the nodes of a binary tree; ``MatrixCounter`` adds the correlated noise
C⁻¹z of a lower-triangular Toeplitz matrix C, with less error for the same price. Both keep to one rule: the only noisy
things are *whole numbers* on a public grid (node sums; entries of Cx + z), formed without any rounding, and every float
that is told is computed from those alone. So no rounding of a float can betray a step. Proofs: docs/proofs/stream.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError
from dither.core.events import DiscreteLaplace, Event, Laplace, MatrixGaussian, NonPrivate, PureDp, Repeat, TreeGaussian
from dither.core.plans import Accuracy
from dither.core.rng import Rng
from dither.noise import samplers
from dither.noise._toeplitz import banded_coefficients, growth, square_root_coefficients
from dither.noise._whole import (
    Buffer,
    Floats,
    Integers,
    Turn,
    all_steps,
    checked_sensitivity,
    fits,
    no_copy,
    one_step,
    power_below,
    split,
    told,
    value_step,
    whole,
)
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import array_rng

__all__ = ["NOISES", "MatrixCounter", "MatrixStream", "TreeCounter", "TreeStream", "banded_coefficients", "square_root_coefficients"]

NOISES = ("gaussian", "laplace", "discrete_laplace")
DIMENSION_MAX = 1 << 30
_COEFFICIENT_BITS = 16
_WEIGHT_MAX = 1 << 29  # the largest Σ|cᵢ| in units of their grid: keeps every sum of limbs below 2⁶³
_GROWTH_MAX = 1e6


def _upper_root(decreasing: Callable[[float], float], target: float) -> float:
    """A t > 0 with decreasing(t) ≤ target, close to the least one."""
    high = 1.0
    while not decreasing(high) <= target:
        high *= 2.0
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if decreasing(middle) <= target else (middle, high)
    return high


# ------------------------------------------------------------------------------------------------ the tree


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeCounter:
    """Running sums of a stream by the binary-tree mechanism, in O(log steps) memory.

    Node [a·2^l, (a+1)·2^l) holds the sum of those steps plus noise, drawn once. A running sum is read off at most
    log₂(steps) + 1 nodes; each node's estimate also uses the nodes below it (Honaker's weights, free post-processing:
    it halves the variance), and the last sum is completed with the nodes above it, which the event has paid for too.

    >>> from dither.noise.rng import UnsafeSeededRng
    >>> counter = TreeCounter(noise_multiplier=4.0, steps=8)
    >>> counter.event
    TreeGaussian(noise_multiplier=4.0, steps=8, participations=1, min_separation=1)
    >>> stream = counter.open(UnsafeSeededRng(1))
    >>> sums = [stream.push(x) for x in (1, 0, 1, 1, 0, 0, 1, 1)]
    >>> len(sums), stream.event
    (8, NonPrivate())

    Guarantee:
        Neighbours: streams that differ in at most ``participations`` steps, any two at least ``min_separation`` apart,
        each such step by a vector of norm at most ``sensitivity`` (L2 for Gaussian noise, L1 for Laplace); steps may be
        chosen after seeing earlier answers. Event: ``TreeGaussian``; for Laplace noise ``Repeat(Laplace, levels)`` with
        one participation, ``PureDp`` of the summed ε with several (a node may then move by several contributions).
        Charge ``event`` once, before the first push; all answers together cost that. Noise is that multiple of the
        sensitivity *after* rounding to the grid.

    Edge cases:
        0 is a value like others. No steps: refused. NaN counts as 0; ±∞ and values beyond 2⁶¹ grid steps are cut
        there, which moves no two values apart. Sums cannot overflow. Wrong types and shapes, which are public: refused;
        with ``discrete_laplace`` noise floats too (rounding could move 0.5 and 1.5 to 0 and 2). A step after the last, a
        copy, a pickle or a fork of a running stream: refused. An interrupt within a step ends the stream.

    Reference:
        Dwork, Naor, Pitassi & Rothblum (2010), Theorem 4.1; Chan, Shi & Song (2011), Theorem 3.5; Honaker (2015),
        "Efficient use of differentially private binary trees"; Denisov et al. (2022), Theorem 2.1 (adaptive streams);
        Kairouz et al. (2021), Appendix B (completion).
    """

    noise_multiplier: float
    steps: int
    sensitivity: float = 1.0
    dimension: int | None = None
    participations: int = 1
    min_separation: int = 1
    noise: str = "gaussian"

    def __post_init__(self) -> None:
        tree = TreeGaussian(self.noise_multiplier, self.steps, self.participations, self.min_separation)
        for name in ("noise_multiplier", "steps", "participations", "min_separation"):
            object.__setattr__(self, name, getattr(tree, name))
        object.__setattr__(self, "sensitivity", checked_sensitivity(self.sensitivity))
        if self.dimension is not None:
            object.__setattr__(self, "dimension", checks.count("dimension", self.dimension, high=DIMENSION_MAX))
        if checks.text("noise", self.noise) not in NOISES:
            raise UnknownNameError("noise", self.noise, NOISES)
        if self.noise == "discrete_laplace":
            if not self.sensitivity.is_integer() or self.sensitivity > 2**40:
                raise checks.refuse("sensitivity", self.sensitivity, "a whole number up to 2**40, for discrete_laplace noise")
            if self.dimension is not None:
                raise checks.refuse("dimension", self.dimension, "None: discrete_laplace noise is for one whole number a step")
        fits(self.noise_multiplier, self.noise_scale / self.grid_step)
        _ = self.event

    @property
    def levels(self) -> int:
        """How many nodes hold any one step."""
        return (self.steps - 1).bit_length() + 1

    @property
    def grid_step(self) -> float:
        """The public power of two that values and noise are whole multiples of."""
        if self.noise == "discrete_laplace":
            return 1.0
        size = self.dimension or 1
        return value_step(self.sensitivity, self.noise_multiplier, math.sqrt(size) if self.noise == "gaussian" else size, 1.0)

    @property
    def noise_scale(self) -> float:
        """Absolute noise of one node: the std of Gaussian, the scale of Laplace noise."""
        moved = self.sensitivity
        if self.noise != "discrete_laplace":
            norm = 2 if self.noise == "gaussian" else 1
            moved = samplers.snapped_sensitivity(self.sensitivity, self.grid_step, self.dimension or 1, norm)
        return math.nextafter(moved * self.noise_multiplier, math.inf)

    @property
    def event(self) -> Event:
        """The price of all answers together."""
        if self.noise == "gaussian":
            return TreeGaussian(self.noise_multiplier, self.steps, self.participations, self.min_separation)
        if self.participations > 1:
            return PureDp(math.nextafter(self.participations * self.levels / self.noise_multiplier, math.inf))
        if self.noise == "laplace":
            return Repeat(Laplace(self.noise_multiplier), self.levels)
        return Repeat(DiscreteLaplace(self.noise_scale, int(self.sensitivity)), self.levels)

    def open(self, rng: Rng | None = None) -> TreeStream:
        """A stream that takes one step at a time. Charge ``event`` first."""
        return TreeStream(self, rng)

    def measure(self, values: object, rng: Rng | None = None) -> Noisy[Floats]:
        """All running sums of a stream given whole; its last sum is completed, even when it is shorter than ``steps``."""
        given = all_steps(values, self.steps, self.dimension)
        source = array_rng(rng)
        stream = self.open(source)
        sums = [stream.push(x) for x in given]
        if len(given) < self.steps:
            sums[-1] = stream.finish()
        return noisy(np.array(sums), self.event, source)

    def noise_std(self, step: int) -> float:
        """Standard deviation of the noise in the sum told after ``step`` steps (the completed one after the last)."""
        at = checks.count("step", step, high=self.steps)
        weights = self._weights(at, ended=at == self.steps)
        return math.sqrt(sum(count * weight * weight for weight, count in weights)) * self._node_std

    @property
    def _node_std(self) -> float:
        if self.noise == "gaussian":
            return self.noise_scale
        if self.noise == "laplace":
            return math.sqrt(2) * self.noise_scale
        odds = math.exp(-1 / self.noise_scale)
        return math.sqrt(2 * odds) / -math.expm1(-1 / self.noise_scale)

    def _weights(self, at: int, *, ended: bool) -> list[tuple[float, int]]:
        """(weight, how many nodes have it) of the sum told after ``at`` steps, as a linear combination of node noises."""
        found: list[tuple[float, int]] = []
        if not ended:
            for level in range(self.levels):
                found += _block_weights(level) if at >> level & 1 else []
            return found
        variance = 0.0
        for level in range(self.levels - 1):
            if at >> level & 1:
                found += _block_weights(level)
                variance += _block_variance(level)
            if variance:
                share = variance / (variance + 1)
                found = [(w * (1 - share), n) for w, n in found] + [(share, 1)]
                variance = share
        return found or _block_weights(self.levels - 1)

    def interval(self, confidence: float = 0.95) -> Accuracy:
        """How far any one told sum (any one coordinate of it) may be from the true one, at the worst step."""
        worst = max(self._worst_steps(), key=self.noise_std)
        weights = self._weights(worst, ended=worst == self.steps)
        rounding = self.grid_step * (self.steps + 2 * self.levels) / 2
        miss = 1 - checks.between("confidence", confidence, 1e-9, 1 - 1e-12)
        if self.noise == "gaussian":
            reach = self.noise_std(worst) * -NormalDist().inv_cdf(miss / 2)
        else:
            reach = self.noise_scale * _upper_root(lambda t: _laplace_tail(t, weights), miss)
        return Accuracy(half_width=reach + rounding, confidence=confidence)

    def _worst_steps(self) -> list[int]:
        """Steps among which is one with the most noise: ``steps`` with one bit cleared and all lower ones set."""
        bits = [b for b in range(self.levels) if self.steps >> b & 1]
        return [self.steps] + [t for b in bits if (t := ((self.steps >> b) - 1 << b) | ((1 << b) - 1)) > 0]


def _block_variance(level: int) -> float:
    """Variance of the estimate of a node of 2^level steps, in units of one node's: 1, 2/3, 4/7 … → 1/2."""
    variance = 1.0
    for _ in range(level):
        variance = 2 * variance / (2 * variance + 1)
    return variance


def _block_weights(level: int) -> list[tuple[float, int]]:
    """(weight, how many nodes have it) in that estimate, by level from the top."""
    found, rest = [], 1.0
    for below in range(level, 0, -1):
        own = 2 * _block_variance(below - 1) / (2 * _block_variance(below - 1) + 1)
        found.append((rest * own, 1 << (level - below)))
        rest *= 1 - own
    return [*found, (rest, 1 << level)]


def _laplace_tail(reach: float, weights: list[tuple[float, int]]) -> float:
    """Chernoff bound on P(|Σ weight · Laplace(1)| > reach); valid for discrete Laplace too, whose tails are lighter."""
    top = max(w for w, _ in weights)

    def bound(slope: float) -> float:
        return -slope * reach - sum(n * math.log1p(-((slope * w) ** 2)) for w, n in weights)

    low, high = 0.0, (1 - 1e-12) / top
    for _ in range(80):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if bound(a) < bound(b) else (a, high)
    return min(1.0, 2 * math.exp(min(0.0, bound(low))))


class TreeStream:
    """A running ``TreeCounter``: one ``push`` for each step. Holds O(log steps) numbers for each coordinate.

    >>> from dither.noise.rng import UnsafeSeededRng
    >>> stream = TreeCounter(noise_multiplier=1e-3, steps=3).open(UnsafeSeededRng(1))
    >>> [round(stream.push(x)) for x in (1, 2, 3)]
    [1, 3, 6]
    """

    def __init__(self, counter: TreeCounter, rng: Rng | None = None) -> None:
        source = array_rng(rng)
        self.counter = counter
        self.event: Event = counter.event if source.private else NonPrivate()
        self._turn = Turn(counter.steps)
        self._step = counter.grid_step
        scale = counter.noise_scale / self._step
        laws: dict[str, Callable[[Rng, int], Integers]] = {
            "gaussian": lambda source, size: samplers.rounded_gaussian(scale, size, source),
            "laplace": lambda source, size: samplers.rounded_laplace(scale, size, source),
            "discrete_laplace": lambda source, size: samplers.discrete_laplace(scale, size, source),
        }
        self._noise = Buffer(laws[counter.noise], counter.dimension or 1, rng)
        self._left: list[tuple[Integers, Floats] | None] = [None] * counter.levels

    __reduce_ex__ = no_copy

    def push(self, value: object) -> Any:  # noqa: ANN401 - a float for a stream of numbers, an array for one of vectors
        """The running sum up to and with this step, noisy. The last step's sum is completed."""
        found = one_step(value, self.counter.dimension)
        if self.counter.noise == "discrete_laplace" and found.dtype.kind != "i":
            raise InputError("A step of a floating type is not allowed: expected whole numbers (int, bool), for discrete_laplace noise.")
        exact = split(whole(found, self._step))
        with self._turn:
            self._turn.taken += 1
            estimate = told(exact, self._noise.next())
            level = 0
            while (before := self._left[level]) is not None:
                self._left[level] = None
                exact = exact + before[0]
                share = 2 * _block_variance(level) / (2 * _block_variance(level) + 1)
                estimate = share * told(exact, self._noise.next()) + (1 - share) * (estimate + before[1])
                level += 1
            self._left[level] = (exact, estimate)
            if self._turn.taken == self._turn.steps:
                return self._finish()
            return self._shape(sum((held[1] for held in self._left if held is not None), np.zeros(exact.shape[1])))

    def finish(self) -> Any:  # noqa: ANN401 - as push
        """End the stream early: the last running sum again, completed with the nodes above it. Costs nothing more."""
        with self._turn:
            if not self._turn.taken:
                raise InputError("This stream has had no step: expected at least one before finish().")
            return self._finish()

    def _finish(self) -> Any:  # noqa: ANN401 - as push
        """Climb to the root: steps that never came are zeros that everyone knows, so they bring no noise."""
        self._turn.open = False
        held: tuple[Integers, Floats] | None = None
        variance = 0.0
        for level, left in enumerate(self._left[:-1]):
            if left is not None:
                held = left if held is None else (left[0] + held[0], left[1] + held[1])
                variance += _block_variance(level)
            if held is not None:  # the node above covers the same steps, and is released once, here
                share = variance / (variance + 1)
                held = (held[0], share * told(held[0], self._noise.next()) + (1 - share) * held[1])
                variance = share
        root = held or self._left[-1]
        assert root is not None
        self._left = [None] * len(self._left)
        return self._shape(root[1])

    def _shape(self, estimate: Floats) -> Any:  # noqa: ANN401 - as push
        told = estimate * self._step
        return float(told[0]) if self.counter.dimension is None else told


# ------------------------------------------------------------------------------------------------ Toeplitz matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCounter:
    """Running sums with correlated noise: C·x + z is released, C lower-triangular Toeplitz; sums are read off through C⁻¹.

    Less error than the tree at the same price: with ``square_root_coefficients(steps)`` about
    (ln steps)/π instead of log₂-many node variances; with ``banded_coefficients(steps, bands)`` in
    O(bands) memory and, for units that return after ``bands`` steps or more, at √participations instead of
    participations the sensitivity.

    >>> from dither.noise.rng import UnsafeSeededRng
    >>> counter = MatrixCounter(noise_multiplier=2.0, steps=4, coefficients=square_root_coefficients(4))
    >>> counter.event.coefficients
    (1.0, 0.5, 0.375, 0.3125)
    >>> counter.measure([1, 0, 1, 1], UnsafeSeededRng(1)).value.shape
    (4,)

    Guarantee:
        Neighbours: streams that differ in at most ``participations`` steps, any two at least ``min_separation`` apart,
        each such step by a vector of L2 norm at most ``sensitivity``; steps may be chosen after seeing earlier answers.
        Event: ``MatrixGaussian`` with the very coefficients that run: they are rounded to multiples of a power of two
        at construction, so that C·x is a whole number of grid steps. ``noise_multiplier`` is the std of one entry of z
        over the sensitivity of one step after rounding to the grid. Charge ``event`` once, before the first push.

    Edge cases:
        0 is a value like others. NaN counts as 0; ±∞ and values beyond 2⁶¹ grid steps are cut there. Wrong types and
        shapes, which are public: refused. Coefficients: the first > 0; refused when their inverse grows so that noise
        would blow up, or when they are so large that whole-number sums could overflow. Copies, forks and steps after
        the last: refused. An interrupt within a step ends the stream.

    Reference:
        Fichtenberger, Henzinger & Upadhyay (2023), Theorem 1 (square root); Henzinger, Upadhyay & Upadhyay (2023);
        Denisov et al. (2022), Theorem 2.1 (adaptive streams); Choquette-Choo et al. (2023), "(Amplified)
        banded matrix factorization" (bands and several epochs); McKenna (2024), "Scaling up the banded matrix factorization mechanism".
    """

    noise_multiplier: float
    steps: int
    coefficients: tuple[float, ...]
    sensitivity: float = 1.0
    dimension: int | None = None
    participations: int = 1
    min_separation: int = 1

    def __post_init__(self) -> None:
        given = MatrixGaussian(self.noise_multiplier, self.coefficients, self.steps, self.participations, self.min_separation)
        first = checks.between("coefficients", given.coefficients[0], 1e-100, 1e6)
        unit = math.ldexp(power_below(first), -_COEFFICIENT_BITS)
        if round(first / unit) == 2 << _COEFFICIENT_BITS:  # rounded up to the next power of two, whose grid is the one that runs
            unit *= 2
        whole = [round(c / unit) for c in given.coefficients]
        while not whole[-1]:
            whole.pop()
        if sum(abs(c) for c in whole) > _WEIGHT_MAX:
            raise checks.refuse("coefficients", f"{len(whole)} numbers", "a sum of sizes at most 4096 times the first one")
        for name in ("noise_multiplier", "steps", "participations", "min_separation"):
            object.__setattr__(self, name, getattr(given, name))
        object.__setattr__(self, "coefficients", tuple(c * unit for c in whole))
        object.__setattr__(self, "sensitivity", checked_sensitivity(self.sensitivity))
        if self.dimension is not None:
            object.__setattr__(self, "dimension", checks.count("dimension", self.dimension, high=DIMENSION_MAX))
        if not growth(self.coefficients, self.steps)[-1] <= (_GROWTH_MAX * self.steps / self.coefficients[0]) ** 2:
            raise checks.refuse("coefficients", self.coefficients, "a matrix with a tame inverse", "Try square_root_coefficients(steps).")
        fits(self.noise_multiplier, self.noise_scale / self.grid_step / self._unit)

    @property
    def _unit(self) -> float:
        """The power of two that every coefficient is a whole multiple of."""
        return math.ldexp(power_below(self.coefficients[0]), -_COEFFICIENT_BITS)

    @property
    def grid_step(self) -> float:
        """The public power of two that one step's values are whole multiples of (that of C·x + z is finer)."""
        return value_step(self.sensitivity, self.noise_multiplier, math.sqrt(self.dimension or 1), self._unit)

    @property
    def noise_scale(self) -> float:
        """Absolute std of one entry of z."""
        moved = samplers.snapped_sensitivity(self.sensitivity, self.grid_step, self.dimension or 1, 2)
        return math.nextafter(moved * self.noise_multiplier, math.inf)

    @property
    def event(self) -> Event:
        """The price of all answers together."""
        return MatrixGaussian(self.noise_multiplier, self.coefficients, self.steps, self.participations, self.min_separation)

    def open(self, rng: Rng | None = None) -> MatrixStream:
        """A stream that takes one step at a time. Charge ``event`` first."""
        return MatrixStream(self, rng)

    def measure(self, values: object, rng: Rng | None = None) -> Noisy[Floats]:
        """All running sums of a stream given whole (it may be shorter than ``steps``)."""
        given = all_steps(values, self.steps, self.dimension)
        source = array_rng(rng)
        stream = self.open(source)
        return noisy(np.array([stream.push(x) for x in given]), self.event, source)

    def noise_std(self, step: int) -> float:
        """Standard deviation of the noise in the sum told after ``step`` steps: std of z · ‖first entries of A·C⁻¹‖."""
        at = checks.count("step", step, high=self.steps)
        return self.noise_scale * math.sqrt(float(growth(self.coefficients, self.steps)[at - 1]))

    def interval(self, confidence: float = 0.95) -> Accuracy:
        """How far any one told sum (any one coordinate of it) may be from the true one, at the last and worst step."""
        miss = 1 - checks.between("confidence", confidence, 1e-9, 1 - 1e-12)
        inverse = math.sqrt(float(growth(self.coefficients, self.steps)[-1]) * self.steps)
        rounding = self.grid_step * (self.steps + inverse * self._unit) / 2
        return Accuracy(half_width=self.noise_std(self.steps) * -NormalDist().inv_cdf(miss / 2) + rounding, confidence=confidence)


class MatrixStream:
    """A running ``MatrixCounter``: one ``push`` for each step. Holds O(bands) numbers for each coordinate.

    >>> from dither.noise.rng import UnsafeSeededRng
    >>> stream = MatrixCounter(noise_multiplier=1e-3, steps=3, coefficients=(1.0, 0.5)).open(UnsafeSeededRng(1))
    >>> [round(stream.push(x)) for x in (1, 2, 3)]
    [1, 3, 6]
    """

    def __init__(self, counter: MatrixCounter, rng: Rng | None = None) -> None:
        source = array_rng(rng)
        width, size = len(counter.coefficients), counter.dimension or 1
        self.counter = counter
        self.event: Event = counter.event if source.private else NonPrivate()
        self._turn = Turn(counter.steps)
        self._step = counter.grid_step
        self._fine = self._step * counter._unit  # noqa: SLF001 - the stream is the other half of its counter
        scale = counter.noise_scale / self._fine
        self._noise = Buffer(lambda r, n: samplers.rounded_gaussian(scale, n, r), size, rng)
        weights = np.array([round(c / counter._unit) for c in counter.coefficients], np.int64)  # noqa: SLF001 - as above
        self._first = float(weights[0])
        self._weights = np.concatenate((weights[::-1], weights[::-1]))
        decay = weights / weights[0]
        decay[0] = 0.0
        self._decay = np.concatenate((decay[::-1], decay[::-1]))
        self._past = np.zeros((width, 2 * size), np.int64)  # rings: row s % width is of step s
        self._noisy = np.zeros((width, size))
        self._last = np.zeros(size)
        self._sum = np.zeros(size)

    __reduce_ex__ = no_copy

    @property
    def last(self) -> Any:  # noqa: ANN401 - a float for a stream of numbers, an array for one of vectors
        """The last step's own noisy value, x + C⁻¹z: what a training step uses."""
        return self._shape(self._last)

    def push(self, value: object) -> Any:  # noqa: ANN401 - a float for a stream of numbers, an array for one of vectors
        """The running sum up to and with this step, noisy."""
        exact = split(whole(one_step(value, self.counter.dimension), self._step))
        with self._turn:
            width = len(self._past)
            row = self._turn.taken % width
            self._turn.taken += 1
            self._past[row] = exact.reshape(-1)
            at = slice(width - 1 - row, 2 * width - 1 - row)  # weight of row r is coefficient (row − r) mod width
            mixed = (self._weights[at] @ self._past).reshape(2, -1)
            noisy_mixed = told(mixed, self._noise.next())  # from here on everything is a function of what is noisy
            self._last = noisy_mixed / self._first - self._decay[at] @ self._noisy
            self._noisy[row] = self._last
            self._sum = self._sum + self._last
            return self._shape(self._sum)

    def _shape(self, estimate: Floats) -> Any:  # noqa: ANN401 - as push
        told = estimate * self._step
        return float(told[0]) if self.counter.dimension is None else told
