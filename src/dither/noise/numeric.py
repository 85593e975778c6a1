"""Noise on numbers: Laplace and Gaussian on a grid, discrete Laplace and discrete Gaussian on the integers.

Each takes one number or an array of any shape (``_values`` says which types, and how NaN, ±∞ and huge numbers are read
without an error that would tell on them). A float and its noise live on one power-of-two grid, so the output is the
continuous mechanism's output, rounded: the event is exact. Moving a value to the grid can move two neighbours further
apart; the noise is enlarged by just that, so that the stated ``noise_multiplier`` holds: by a part of itself of about
noise_multiplier·2⁻⁴⁰, times the number of coordinates (Laplace) or its root (Gaussian).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, Self, TypeAlias, cast, overload

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError, RefusedError
from dither.core.events import DiscreteGaussian, DiscreteLaplace, Event, Gaussian, Laplace, Repeat
from dither.core.plans import Accuracy
from dither.core.rng import Rng
from dither.noise import samplers
from dither.noise._analytic import discrete_gaussian_noise_std, gaussian_noise_multiplier, normal_quantile
from dither.noise._rounding import down, exactly, up
from dither.noise._values import INTEGER_MAX, VALUE_MAX, Floats, Integers, integers, numbers
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import array_rng

SENSITIVITY_MIN, SENSITIVITY_MAX = 2.0**-800, 2.0**900
_EXACT = 2.0**53
_SNAPPED_MAX = 2.0**52
_SUMMED_MAX = 1e4
_CLOSE = 1e-13
_CHUNK = 1 << 14  # what is worked on at a time, to stay in the cache

Many: TypeAlias = Sequence[Any] | NDArray[Any]
Law: TypeAlias = Literal["laplace", "gaussian"]


# ------------------------------------------------------------------------------------------------ what all share


def _sensitivity(value: object) -> float:
    """A sensitivity as a float that is not below what was given."""
    checks.between("sensitivity", value, SENSITIVITY_MIN, SENSITIVITY_MAX)
    return up(exactly(value))


def _bounds(value: object) -> tuple[float, float] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise checks.refuse("bounds", value, "a pair (lower, upper), or None")
    lower, upper = (checks.between("bounds", v, -(2.0**900), 2.0**900) for v in value)
    if not lower <= upper:
        raise checks.refuse("bounds", value, "lower <= upper")
    return lower, upper


def _ratio_down(noise: object, name: str, sensitivity: float) -> float:
    """noise/sensitivity as a noise multiplier that is not above it."""
    return down(Fraction(checks.positive(name, noise)) / Fraction(sensitivity))


@lru_cache(maxsize=1024)
def grid_noise(law: Law, noise_multiplier: float, sensitivity: float, dimension: int = 1) -> tuple[float, float]:
    """(scale, step) of the noise that runs: ``noise_multiplier`` × the sensitivity after values moved to the grid, rounded up.

    >>> scale, step = grid_noise("gaussian", 1.0, 1.0)
    >>> 1.0 < scale < 1.000000001, step == 2.0**-40
    (True, True)
    """
    norm = 1 if law == "laplace" else 2
    wanted = scale = up(Fraction(noise_multiplier) * Fraction(sensitivity))
    while scale <= 2 * wanted:
        step = samplers.grid_step(scale)
        enlarged = up(Fraction(noise_multiplier) * Fraction(samplers.snapped_sensitivity(sensitivity, step, max(dimension, 1), norm)))
        if samplers.grid_step(enlarged) == step:
            return enlarged, step
        scale = enlarged
    raise InputError(
        f"{dimension} coordinates with noise_multiplier={noise_multiplier!r} are too many for {law} noise on floats: moving each to the "
        "grid would cost as much as the noise itself. Measure them in parts, or as integers."
    )


def _measured(law: Law, noise_multiplier: float, sensitivity: float, bounds: tuple[float, float] | None, value: object, rng: Rng) -> Any:  # noqa: ANN401 - float or array, as the public overloads say
    if isinstance(value, float | np.float32 | np.float16):  # the same without arrays, by the same rules
        scale, step = grid_noise(law, noise_multiplier, sensitivity)
        held = float(value)
        held = 0.0 if math.isnan(held) else max(-VALUE_MAX, min(VALUE_MAX, held))
        if bounds is not None:
            held = max(bounds[0], min(bounds[1], held))
        units = held / step
        snapped = round(units) * step if abs(units) < _SNAPPED_MAX else held
        return snapped + (samplers.laplace if law == "laplace" else samplers.gaussian)(scale, rng=rng)
    if isinstance(value, int | np.int64 | np.int32) and bounds is None:
        return _on_one_integer(law, *grid_noise(law, noise_multiplier, sensitivity), max(-INTEGER_MAX, min(INTEGER_MAX, int(value))), rng)
    found, single = numbers(value)
    scale, step = grid_noise(law, noise_multiplier, sensitivity, found.size)
    if bounds is not None:
        found = _clamped(found, bounds)
    run = _on_floats if found.dtype.kind == "f" else _on_integers
    made = cast("Any", run)(law, scale, step, found, rng)
    return float(made) if single else made


def _clamped(found: Floats | Integers, bounds: tuple[float, float]) -> Floats | Integers:
    """Within the bounds. Integers become floats only where every integer inside is a float too."""
    if found.dtype.kind == "f" or max(-bounds[0], bounds[1]) <= _EXACT:
        return np.asarray(np.clip(found.astype(np.float64), *bounds), dtype=np.float64)
    return np.asarray(np.clip(found, *_whole_bounds(bounds)), dtype=np.int64)


def _whole_bounds(bounds: tuple[float, float]) -> tuple[int, int]:
    """The least and the largest integer within the bounds."""
    low, high = (max(-INTEGER_MAX, min(INTEGER_MAX, b)) for b in (math.ceil(bounds[0]), math.floor(bounds[1])))
    if low > high:
        raise checks.refuse("bounds", bounds, "bounds with a whole number between them, for whole numbers")
    return low, high


def _on_floats(law: Law, scale: float, step: float, found: Floats, rng: Rng) -> Floats:
    made = (samplers.laplace if law == "laplace" else samplers.gaussian)(scale, size=found.size, rng=rng)
    values = found.reshape(-1)
    for start in range(0, made.size, _CHUNK):  # one grid for both: a sum is rounded once, as a function of the exact sum
        made[start : start + _CHUNK] += samplers.snap(values[start : start + _CHUNK], step)
    return made.reshape(found.shape)


def _on_integers(law: Law, scale: float, step: float, found: Integers, rng: Rng) -> Floats:
    """Integers are not moved to floats first, which would round large ones apart: the sum is exact, then a function of it is taken."""
    draw = samplers.rounded_laplace if law == "laplace" else samplers.rounded_gaussian
    noise = draw(scale / step, size=found.size, rng=rng).reshape(found.shape)
    exponent = math.frexp(step)[1] - 1
    if exponent > 0:  # a step above 1: the nearest multiple, upwards from the middle
        half = 1 << (exponent - 1)
        snapped = (found + half) >> exponent if exponent <= 62 else np.zeros_like(found)
        return np.asarray((snapped + noise).astype(np.float64) * step, dtype=np.float64)
    if exponent < -53:  # |noise| < 2**53 steps < ½, so the sum tells both summands and any function of them is one of it
        return np.asarray(found.astype(np.float64) + noise.astype(np.float64) * step, dtype=np.float64)
    whole = noise >> -exponent
    fraction = (noise - (whole << -exponent)).astype(np.float64) * step
    return np.asarray((found + whole).astype(np.float64) + fraction, dtype=np.float64)


def _on_one_integer(law: Law, scale: float, step: float, value: int, rng: Rng) -> float:
    """What ``_on_integers`` does, step by step, for one Python int."""
    noise = (samplers.rounded_laplace if law == "laplace" else samplers.rounded_gaussian)(scale / step, rng=rng)
    exponent = math.frexp(step)[1] - 1
    if exponent > 0:
        return float(((value + (1 << (exponent - 1))) >> exponent) + noise) * step
    if exponent < -53:
        return float(value) + float(noise) * step
    whole = noise >> -exponent
    return float(value + whole) + float(noise - (whole << -exponent)) * step


def _whole(law: Law, noise_multiplier: float, sensitivity: float, bounds: tuple[float, float] | None, value: object, rng: Rng) -> Any:  # noqa: ANN401 - int or array, as the public overloads say
    found, single = integers(value)
    if bounds is not None:
        found = np.clip(found, *_whole_bounds(bounds))
    draw = samplers.rounded_laplace if law == "laplace" else samplers.rounded_gaussian
    made = found + draw(Fraction(noise_multiplier) * Fraction(sensitivity), size=found.size, rng=rng).reshape(found.shape)
    return int(made) if single else made


def tail_of(confidence: object, *, dimension: int = 1, joint: bool = False) -> float:
    """The probability with which one coordinate may be outside, so that each one (or all of them) is inside with ``confidence``.

    >>> round(tail_of(0.95, dimension=10, joint=True), 6)
    0.005116
    """
    level = checks.real("confidence", confidence, "a number > 0 and < 1, such as 0.95")
    if not 0 < level < 1:
        raise checks.refuse("confidence", confidence, "a number > 0 and < 1, such as 0.95")
    count = checks.count("dimension", dimension)
    checks.instance("joint", joint, bool, "True or False")
    return -math.expm1(math.log(level) / count) * (1 - _CLOSE) if joint else down(1 - Fraction(level))


def _grid_interval(reach: float, step: float, confidence: float) -> Accuracy:
    """Half a step for moving the value, and as many whole steps of noise as reach over the quantile of the continuous law."""
    steps = max(math.ceil(Fraction(reach) / Fraction(step) - Fraction(1, 2)), 0)
    return Accuracy(half_width=up((steps + Fraction(1, 2)) * Fraction(step)), confidence=confidence)


# ------------------------------------------------------------------------------------------------ on floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceMechanism:
    """Laplace noise on a number or array whose L1 distance between neighbours is at most ``sensitivity``.

    Guarantee:
        For every two inputs of one shape whose coordinates differ by at most ``sensitivity`` in sum, the outputs are
        as close as the event ``Laplace(noise_multiplier)`` says, hence (1/noise_multiplier, 0)-DP. The relation of
        neighbours is whatever ``sensitivity`` was computed for. ``bounds`` clamp each coordinate first, which moves no two
        values apart (``measure_integers``: to the whole numbers between them).
    Edge cases:
        NaN counts as 0, ±∞ and larger numbers as ±2⁹⁶⁰, integers are held within ±2⁶², all before ``bounds`` apply: no error
        depends on a private value. Types and shapes are public and refused when wrong. An empty array stays empty (and is
        charged). Zero sensitivity is refused. Sums beyond 53 bits are rounded once, as a function of the exact sum.
    Reference:
        Dwork, McSherry, Nissim & Smith 2006, Proposition 1; floating point: Mironov 2012.

    >>> mechanism = LaplaceMechanism.calibrated(epsilon=0.5, sensitivity=3)
    >>> mechanism.event, type(mechanism.measure(17.0).value)
    (Laplace(noise_multiplier=2.0), <class 'float'>)
    """

    noise_multiplier: float
    sensitivity: float = 1.0
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", checks.noise_multiplier(self.noise_multiplier))
        object.__setattr__(self, "sensitivity", _sensitivity(self.sensitivity))
        object.__setattr__(self, "bounds", _bounds(self.bounds))

    @classmethod
    def calibrated(cls, *, epsilon: float, sensitivity: float = 1.0, bounds: tuple[float, float] | None = None) -> Self:
        """The least noise that is (ε, 0)-DP."""
        multiplier = up(1 / Fraction(checks.epsilon(epsilon, zero=False)))
        return cls(noise_multiplier=max(multiplier, checks.NOISE_MIN), sensitivity=sensitivity, bounds=bounds)

    @classmethod
    def from_noise_scale(cls, noise_scale: float, *, sensitivity: float = 1.0, bounds: tuple[float, float] | None = None) -> Self:
        """By absolute noise: P(noise > t) = exp(−t/noise_scale)/2."""
        held = _sensitivity(sensitivity)
        return cls(noise_multiplier=_ratio_down(noise_scale, "noise_scale", held), sensitivity=held, bounds=bounds)

    @property
    def event(self) -> Event:
        """What one measurement costs."""
        return Laplace(self.noise_multiplier)

    @property
    def noise_scale(self) -> float:
        """The absolute scale of the noise on one number, as it runs."""
        return grid_noise("laplace", self.noise_multiplier, self.sensitivity)[0]

    @property
    def step(self) -> float:
        """The grid on which the noisy number lies."""
        return grid_noise("laplace", self.noise_multiplier, self.sensitivity)[1]

    @overload
    def measure(self, value: float, rng: Rng | None = None) -> Noisy[float]: ...
    @overload
    def measure(self, value: Many, rng: Rng | None = None) -> Noisy[Floats]: ...
    def measure(self, value: float | Many, rng: Rng | None = None) -> Noisy[float] | Noisy[Floats]:
        """The value with independent noise on each coordinate: a float for a number, else a float64 array of the same shape."""
        source = array_rng(rng)
        return noisy(_measured("laplace", self.noise_multiplier, self.sensitivity, self.bounds, value, source), self.event, source)

    @overload
    def measure_integers(self, value: int, rng: Rng | None = None) -> Noisy[int]: ...
    @overload
    def measure_integers(self, value: Many, rng: Rng | None = None) -> Noisy[Integers]: ...
    def measure_integers(self, value: int | Many, rng: Rng | None = None) -> Noisy[int] | Noisy[Integers]:
        """Whole numbers with rounded noise: whole numbers again, nothing moved to a grid."""
        source = array_rng(rng)
        return noisy(_whole("laplace", self.noise_multiplier, self.sensitivity, self.bounds, value, source), self.event, source)

    def interval(self, confidence: float, *, dimension: int = 1, joint: bool = False) -> Accuracy:
        """How far a coordinate (with ``joint``: any of ``dimension``) may be off, for the noise and grid that run."""
        scale, step = grid_noise("laplace", self.noise_multiplier, self.sensitivity, checks.count("dimension", dimension))
        reach = -scale * math.log(tail_of(confidence, dimension=dimension, joint=joint)) * (1 + _CLOSE)
        return _grid_interval(reach, step, confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMechanism:
    """Gaussian noise on a number or array whose L2 distance between neighbours is at most ``sensitivity``.

    Guarantee:
        For every two inputs of one shape whose Euclidean distance is at most ``sensitivity``, the outputs are as close as
        the event ``Gaussian(noise_multiplier)`` says. The relation of neighbours is whatever ``sensitivity`` was computed
        for. ``bounds`` clamp each coordinate first, which moves no two values apart.
    Edge cases:
        As ``LaplaceMechanism``: NaN counts as 0, ±∞ and larger numbers as ±2⁹⁶⁰, integers are held within ±2⁶², before ``bounds``
        apply; types and shapes are public and refused when wrong. δ = 0 is refused: no Gaussian noise meets it.
    Reference:
        Balle & Wang 2018, Theorem 8 and Algorithm 1 (calibration); Dwork & Roth 2014, Theorem A.1.

    >>> mechanism = GaussianMechanism.calibrated(epsilon=1.0, delta=1e-5, sensitivity=2.0)
    >>> round(mechanism.noise_std, 4), mechanism.measure([1.0, 2.0]).value.shape
    (7.4613, (2,))
    """

    noise_multiplier: float
    sensitivity: float = 1.0
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", checks.noise_multiplier(self.noise_multiplier))
        object.__setattr__(self, "sensitivity", _sensitivity(self.sensitivity))
        object.__setattr__(self, "bounds", _bounds(self.bounds))

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: float = 1.0, bounds: tuple[float, float] | None = None) -> Self:
        """The least noise that is (ε, δ)-DP, exactly."""
        return cls(noise_multiplier=gaussian_noise_multiplier(epsilon, delta), sensitivity=sensitivity, bounds=bounds)

    @classmethod
    def from_noise_std(cls, noise_std: float, *, sensitivity: float = 1.0, bounds: tuple[float, float] | None = None) -> Self:
        """By absolute noise."""
        held = _sensitivity(sensitivity)
        return cls(noise_multiplier=_ratio_down(noise_std, "noise_std", held), sensitivity=held, bounds=bounds)

    @property
    def event(self) -> Event:
        """What one measurement costs."""
        return Gaussian(self.noise_multiplier)

    @property
    def noise_std(self) -> float:
        """The absolute standard deviation of the noise on one number, as it runs."""
        return grid_noise("gaussian", self.noise_multiplier, self.sensitivity)[0]

    @property
    def step(self) -> float:
        """The grid on which the noisy number lies."""
        return grid_noise("gaussian", self.noise_multiplier, self.sensitivity)[1]

    @overload
    def measure(self, value: float, rng: Rng | None = None) -> Noisy[float]: ...
    @overload
    def measure(self, value: Many, rng: Rng | None = None) -> Noisy[Floats]: ...
    def measure(self, value: float | Many, rng: Rng | None = None) -> Noisy[float] | Noisy[Floats]:
        """The value with independent noise on each coordinate: a float for a number, else a float64 array of the same shape."""
        source = array_rng(rng)
        return noisy(_measured("gaussian", self.noise_multiplier, self.sensitivity, self.bounds, value, source), self.event, source)

    @overload
    def measure_integers(self, value: int, rng: Rng | None = None) -> Noisy[int]: ...
    @overload
    def measure_integers(self, value: Many, rng: Rng | None = None) -> Noisy[Integers]: ...
    def measure_integers(self, value: int | Many, rng: Rng | None = None) -> Noisy[int] | Noisy[Integers]:
        """Whole numbers with rounded noise: whole numbers again, and the Gaussian event exactly, for any L2 sensitivity."""
        source = array_rng(rng)
        return noisy(_whole("gaussian", self.noise_multiplier, self.sensitivity, self.bounds, value, source), self.event, source)

    def interval(self, confidence: float, *, dimension: int = 1, joint: bool = False) -> Accuracy:
        """How far a coordinate (with ``joint``: any of ``dimension``) may be off, for the noise and grid that run."""
        scale, step = grid_noise("gaussian", self.noise_multiplier, self.sensitivity, checks.count("dimension", dimension))
        reach = scale * normal_quantile(tail_of(confidence, dimension=dimension, joint=joint))
        return _grid_interval(reach, step, confidence)


# ------------------------------------------------------------------------------------------------ on integers


def _repeated(event: Event, changes: int) -> Event:
    return event if changes == 1 else Repeat(event, changes, spread=True)


def _noisy_integers(value: object, draw: Any, noise: float, rng: Rng) -> Any:  # noqa: ANN401 - a sampler; int or array, as the public overloads say
    if isinstance(value, int | np.int64 | np.int32):
        return max(-INTEGER_MAX, min(INTEGER_MAX, int(value))) + draw(noise, rng=rng)
    found, single = integers(value)
    if single:
        return int(found) + int(draw(noise, rng=rng))
    return found + draw(noise, size=found.size, rng=rng).reshape(found.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteLaplaceMechanism:
    """Discrete Laplace noise, P(k) ∝ exp(−|k|/noise_scale), on integers.

    Guarantee:
        For every two integer inputs of one shape whose changed coordinates can be put into at most ``changes`` groups, the
        |changes| of each adding up to at most ``sensitivity``, the outputs are as close as the event says:
        ``DiscreteLaplace(noise_scale, sensitivity)``, ``changes`` times (``spread``). So ``changes = 1`` is the L1 view; and where at
        most l0 coordinates change by at most l∞ each, ``changes = l0`` and ``sensitivity = l∞`` is tighter.
    Edge cases:
        Floats are refused by type. Integers are held within ±2⁶² so that no sum overflows. An empty array stays empty.
    Reference:
        Ghosh, Roughgarden & Sundararajan 2012, Definition 2.1; groups: docs/proofs/numeric.md.

    >>> mechanism = DiscreteLaplaceMechanism.calibrated(epsilon=0.5)
    >>> mechanism.event, type(mechanism.measure(17).value)
    (DiscreteLaplace(noise_scale=2.0, sensitivity=1), <class 'int'>)
    """

    noise_scale: float
    sensitivity: int = 1
    changes: int = 1

    def __post_init__(self) -> None:
        checked = DiscreteLaplace(self.noise_scale, self.sensitivity)
        object.__setattr__(self, "noise_scale", checked.noise_scale)
        object.__setattr__(self, "sensitivity", checked.sensitivity)
        object.__setattr__(self, "changes", checks.count("changes", self.changes))

    @classmethod
    def calibrated(cls, *, epsilon: float, sensitivity: int = 1, changes: int = 1) -> Self:
        """The least noise that is (ε, 0)-DP."""
        whole = checks.count("sensitivity", sensitivity) * checks.count("changes", changes)
        scale = up(whole / Fraction(checks.epsilon(epsilon, zero=False)))
        return cls(noise_scale=max(scale, up(Fraction(checks.NOISE_MIN) * sensitivity)), sensitivity=sensitivity, changes=changes)

    @classmethod
    def from_noise_multiplier(cls, noise_multiplier: float, *, sensitivity: int = 1, changes: int = 1) -> Self:
        """By noise_scale / sensitivity."""
        whole = checks.count("sensitivity", sensitivity)
        return cls(noise_scale=up(Fraction(checks.noise_multiplier(noise_multiplier)) * whole), sensitivity=whole, changes=changes)

    @property
    def event(self) -> Event:
        """What one measurement costs."""
        return _repeated(DiscreteLaplace(self.noise_scale, self.sensitivity), self.changes)

    @overload
    def measure(self, value: int, rng: Rng | None = None) -> Noisy[int]: ...
    @overload
    def measure(self, value: Many, rng: Rng | None = None) -> Noisy[Integers]: ...
    def measure(self, value: int | Many, rng: Rng | None = None) -> Noisy[int] | Noisy[Integers]:
        """The value with independent noise on each coordinate: an int for an int, else an int64 array of the same shape."""
        source = array_rng(rng)
        return noisy(_noisy_integers(value, samplers.discrete_laplace, self.noise_scale, source), self.event, source)

    def interval(self, confidence: float, *, dimension: int = 1, joint: bool = False) -> Accuracy:
        """How far a coordinate (with ``joint``: any of ``dimension``) may be off; P(|noise| > k) = 2q^(k+1)/(1 + q), q = exp(−1/scale)."""
        tail = tail_of(confidence, dimension=dimension, joint=joint)
        reach = self.noise_scale * (math.log(2) - math.log1p(math.exp(-1 / self.noise_scale)) - math.log(tail))
        return Accuracy(half_width=float(max(math.ceil(reach * (1 + _CLOSE)) - 1, 0)), confidence=confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussianMechanism:
    """Discrete Gaussian noise, P(k) ∝ exp(−k²/2noise_std²), on integers.

    Guarantee:
        For every two integer inputs of one shape whose changed coordinates can be put into at most ``changes`` groups, the
        |changes| of each adding up to at most ``sensitivity``, the outputs are as close as the event says:
        ``DiscreteGaussian(noise_std, sensitivity)``, ``changes`` times (``spread``). Where only an L2 bound is known use
        ``GaussianMechanism.measure_integers``, which is exact for it.
    Edge cases:
        Floats are refused by type. Integers are held within ±2⁶² so that no sum overflows. An empty array stays empty.
        δ = 0 is refused.
    Reference:
        Canonne, Kamath & Steinke 2020, Theorem 7; groups: docs/proofs/numeric.md.

    >>> mechanism = DiscreteGaussianMechanism.calibrated(epsilon=1.0, delta=1e-5)
    >>> round(mechanism.noise_std, 3), type(mechanism.measure(17).value)
    (3.74, <class 'int'>)
    """

    noise_std: float
    sensitivity: int = 1
    changes: int = 1

    def __post_init__(self) -> None:
        checked = DiscreteGaussian(self.noise_std, self.sensitivity)
        object.__setattr__(self, "noise_std", checked.noise_std)
        object.__setattr__(self, "sensitivity", checked.sensitivity)
        object.__setattr__(self, "changes", checks.count("changes", self.changes))

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: int = 1, changes: int = 1) -> Self:
        """A noise std (the least to 1 part in 10⁵) that is (ε, δ)-DP for one group of changes."""
        if checks.count("changes", changes) != 1:
            raise RefusedError(
                f"changes={changes} cannot be calibrated here: several discrete Gaussians have no closed form together. "
                "Use dither.calibrate(lambda s: Repeat(DiscreteGaussian(s, sensitivity), changes), epsilon=…, delta=…)."
            )
        return cls(noise_std=discrete_gaussian_noise_std(epsilon, delta, sensitivity), sensitivity=sensitivity)

    @classmethod
    def from_noise_multiplier(cls, noise_multiplier: float, *, sensitivity: int = 1, changes: int = 1) -> Self:
        """By noise_std / sensitivity."""
        whole = checks.count("sensitivity", sensitivity)
        return cls(noise_std=up(Fraction(checks.noise_multiplier(noise_multiplier)) * whole), sensitivity=whole, changes=changes)

    @property
    def event(self) -> Event:
        """What one measurement costs."""
        return _repeated(DiscreteGaussian(self.noise_std, self.sensitivity), self.changes)

    @overload
    def measure(self, value: int, rng: Rng | None = None) -> Noisy[int]: ...
    @overload
    def measure(self, value: Many, rng: Rng | None = None) -> Noisy[Integers]: ...
    def measure(self, value: int | Many, rng: Rng | None = None) -> Noisy[int] | Noisy[Integers]:
        """The value with independent noise on each coordinate: an int for an int, else an int64 array of the same shape."""
        source = array_rng(rng)
        return noisy(_noisy_integers(value, samplers.discrete_gaussian, self.noise_std, source), self.event, source)

    def interval(self, confidence: float, *, dimension: int = 1, joint: bool = False) -> Accuracy:
        """How far a coordinate (with ``joint``: any of ``dimension``) may be off: exact up to noise_std 10⁴, one too wide beyond."""
        tail, std = tail_of(confidence, dimension=dimension, joint=joint), self.noise_std
        most = math.ceil(std * normal_quantile(tail))
        if std > _SUMMED_MAX:
            return Accuracy(half_width=float(most), confidence=confidence)
        weights = np.exp(-0.5 * (np.arange(most + math.ceil(40 * std) + 40, dtype=np.float64) / std) ** 2)
        beyond = np.cumsum(weights[::-1])[::-1]  # beyond[k] = Σ over j ≥ k
        outside = 2 * beyond[1:] / (2 * beyond[0] - 1)
        return Accuracy(half_width=float(np.argmax(outside <= tail * (1 - _CLOSE))), confidence=confidence)
