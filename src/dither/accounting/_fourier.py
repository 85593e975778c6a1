"""Powers and products of lattice laws by FFT, exponentially tilted, with everything that can go wrong added up.

Under the tilt λ a law p becomes p(s) e^{λs − K(λ)}, a probability law again, whose bulk lies where e^{λs} p(s) does. Sums
are followed on a circle; what the circle folds over is bounded by Chernoff, the rounding of the transforms by their
2-norms, and what earlier rounds left uncertain is carried as ``Law.garbage``. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from dither.accounting._grid import Law
from dither.accounting._pair import Array

Spectrum: TypeAlias = NDArray[np.complex128]

ULP = 2.0**-53
_KNOWN = 1e-13
_SKETCH = 512
_SLIGHT = 1e-300


def log_moments(law: Law, tilts: Array) -> Array:
    """Log E e^{t·loss} of the finite part, at each t; small exponents keep their digits.

    >>> law = Law(np.array([0, 1]), np.array([0.5, 0.5]), 0.0, 0.0, 1.0)
    >>> log_moments(law, np.array([0.0])).tolist()
    [0.0]
    """
    if not law.p.any():
        return np.full(len(tilts), -np.inf)
    losses = law.losses
    if float(np.abs(losses).max()) * float(np.abs(tilts).max()) < 1:
        return np.log1p(np.expm1(np.multiply.outer(tilts, losses)) @ law.p + (float(law.p.sum()) - 1))
    return log_sums(losses, law.p, tilts)


def log_sums(losses: Array, p: Array, tilts: Array) -> Array:
    """Log Σ p e^{t·loss} at each t, where e^{t·loss} alone may be far beyond floats.

    >>> log_sums(np.array([0.0, 5.0]), np.array([1.0, 1e-300]), np.array([200.0])).round(9).tolist()
    [309.224472102]
    """
    if not p.any():
        return np.full(len(tilts), -np.inf)
    losses, p = losses[p > 0], p[p > 0]
    exponents, logs = np.multiply.outer(tilts, losses), np.log(p)
    top = (exponents + logs).max(axis=1)
    exponents -= top[:, None]
    few = p < _SLIGHT
    if few.any():
        slight = np.exp(exponents[:, few] + logs[few]).sum(axis=1)
        return np.asarray(top + np.log(np.exp(exponents[:, ~few]) @ p[~few] + slight))
    return np.asarray(top + np.log(np.exp(exponents) @ p))


def tilted_weights(law: Law, tilt: float) -> Array:
    """The masses under the tilt, as shares of their sum; none is lost that is not below 1e-300 of the largest.

    >>> tilted_weights(Law(np.array([0, 1]), np.array([0.5, 0.5]), 0.0, 0.0, math.log(3)), 1.0).tolist()
    [0.25, 0.75]
    """
    exponents = tilt * (law.step * (law.index - law.index[0]).astype(np.float64))
    with np.errstate(divide="ignore"):
        logs = np.log(law.p)
    exponents -= float((exponents + logs).max())
    few = law.p < _SLIGHT
    weights = np.exp(exponents + logs)
    weights[~few] = law.p[~few] * np.exp(exponents[~few])
    return np.asarray(weights / weights.sum())


def log_rises(law: Law, tilt: float, by: Array) -> tuple[float, Array]:
    """(mean under the tilt, about K(tilt + t) − K(tilt) at each t): good enough to choose a window, which is then bounded exactly.

    >>> center, rises = log_rises(Law(np.array([0, 1]), np.array([0.5, 0.5]), 0.0, 0.0, 1.0), 0.0, np.array([0.0]))
    >>> center, rises.tolist()
    (0.5, [0.0])
    """
    weights = tilted_weights(law, tilt)
    losses = law.losses
    center = float(weights @ losses)
    places = losses - center
    if len(places) > _SKETCH:
        even = np.searchsorted(places, np.linspace(places[0], places[-1], _SKETCH), "left")
        likely = np.searchsorted(np.cumsum(weights), np.linspace(0.0, 1.0, _SKETCH), "left")
        starts = np.unique(np.concatenate(([0], even, likely)))
        starts = starts[starts < len(places)]
        mass = np.add.reduceat(weights, starts)
        some = mass > 0
        places, weights = np.add.reduceat(weights * places, starts)[some] / mass[some], mass[some]
    turned = np.multiply.outer(by, places)
    top = turned.max(axis=1)
    near = np.log1p(np.maximum(np.expm1(np.minimum(turned, 1.0)) @ weights, -0.5))
    far = top + np.log(np.maximum(np.exp(turned - top[:, None]) @ weights, 1e-300))
    return center, np.asarray(np.where(top < 1, near, far), dtype=np.float64)


class Window(NamedTuple):
    """Where the tilted sum is followed: [center − left, center + right], and the tilts that bound what is outside."""

    center: float
    left: float
    right: float
    t_left: float
    t_right: float


class Product(NamedTuple):
    """The tilted law of a sum: ``tilted[i]`` at losses[i], total mass 1 up to ``garbage`` (in the 1-norm).

    ``log_mass`` is K(λ), ``rounding`` bounds the 2-norm of the transforms' errors, ``left`` and ``right`` the tilted mass
    outside the window (folded into it by the circle), ``inherited`` the garbage of the factors.
    """

    first: int
    origin: float
    step: float
    tilted: Array
    tilt: float
    log_mass: float
    rounding: float
    left: float
    right: float
    inherited: float
    p_inf: float

    @property
    def losses(self) -> Array:
        """Where the masses sit."""
        return np.asarray((self.origin + self.step * self.first) + self.step * np.arange(len(self.tilted)), dtype=np.float64)

    @property
    def garbage(self) -> float:
        """A bound on the 1-norm of everything uncertain, under the tilt."""
        return min(2.0, self.inherited + self.left + self.right + self.rounding * math.sqrt(len(self.tilted)))


def product(laws: Sequence[Law], counts: Sequence[int], tilt: float, window: Window) -> Product:
    """The tilted law of the sum of each of ``laws`` so many times. All laws have one step."""
    step, total = laws[0].step, sum(counts)
    n = fft.next_fast_len(int((window.left + window.right) / step) + 8, real=True)
    tilts = np.array([tilt, tilt - window.t_left, tilt + window.t_right])
    spectrum: Spectrum | None = None
    base, origin, moments, fraction, inherited = 0, 0.0, np.zeros(3), 0.0, 0.0
    lowest = highest = 0
    for law, count in zip(laws, counts, strict=True):
        weights = tilted_weights(law, tilt)
        shift = int(law.index[0]) + round(float(weights @ (law.index - law.index[0])))
        own = _power(np.asarray(fft.rfft(np.bincount((law.index - shift) % n, weights, n))), count)
        spectrum = own if spectrum is None else spectrum * own
        base += count * shift
        lowest, highest = lowest + count * int(law.index[0]), highest + count * int(law.index[-1])
        origin += count * law.origin
        moments += count * log_moments(law, tilts)
        fraction += count * 0.5 ** min(count - 1, 1000)
        inherited += count * law.garbage
    assert spectrum is not None
    tilted = np.maximum(fft.irfft(spectrum, n), 0.0)
    first = round((window.center - window.left - origin) / step)
    tilted = np.roll(tilted, -((first - base) % n))
    low = origin + step * first
    high = low + step * (n - 1)
    eta = 8 * ULP * math.log2(n)
    rounding = eta * ((2 * total + 1) * math.sqrt(float(tilted @ tilted)) + fraction)
    left = _capped(float(moments[1] - moments[0]) + window.t_left * low) if first > lowest else 0.0
    right = _capped(float(moments[2] - moments[0]) - window.t_right * high) if first + n - 1 < highest else 0.0
    return Product(first, origin, step, tilted, tilt, float(moments[0]), rounding, left, right, inherited, together(laws, counts))


def _capped(log_value: float) -> float:
    return math.exp(min(0.0, log_value)) if log_value == log_value else 1.0  # noqa: PLR0124 - NaN: no bound


def together(laws: Sequence[Law], counts: Sequence[int]) -> float:
    """The probability that at least one loss is infinite.

    >>> together([Law(np.array([0]), np.array([0.5]), 0.5, 0.0, 1.0)], [2])
    0.75
    """
    if any(law.p_inf >= 1 for law in laws):
        return 1.0
    return -math.expm1(math.fsum(c * math.log1p(-law.p_inf) for law, c in zip(laws, counts, strict=True)))


def _power(values: Spectrum, count: int) -> Spectrum:
    """Values to a whole power by repeated squaring."""
    result: Spectrum | None = None
    while True:
        if count & 1:
            result = values if result is None else result * values
        count >>= 1
        if not count:
            assert result is not None
            return result
        values = values * values


def untilted(made: Product) -> Law:
    """The law of the sum itself, as precise under the tilt as the product is; the uncertainty goes along.

    The ends, where the mass is lost in the rounding, are cut off and counted as uncertain.
    """
    known = np.flatnonzero(made.tilted > _KNOWN * float(made.tilted.max()))
    first, last = int(known[0]), int(known[-1]) + 1
    cut = float(made.tilted[:first].sum() + made.tilted[last:].sum())
    used = first + np.flatnonzero(made.tilted[first:last] > 0)
    losses = made.losses[used]
    p = made.tilted[used] * np.exp(made.log_mass - made.tilt * losses)
    return Law(made.first + used, p, made.p_inf, made.origin, made.step, made.garbage + cut)


@dataclass(frozen=True, slots=True)
class Curve:
    """A bound on the profile near one place: δ(s_i) = p_inf + e^{log_scale} (gain_i ± error_i) on a lattice s_i."""

    losses: Array
    gain: Array
    slope: Array
    error: Array
    log_scale: float
    p_inf: float
    relative: float
    upper: bool

    def delta(self, epsilon: float) -> float:
        """The bound on δ at ε; left of the window 1 (from below that at its first place), right of it what is uncertain."""
        if epsilon < self.losses[0]:
            if self.upper:
                return 1.0
            epsilon = float(self.losses[0])
        i = int(np.searchsorted(self.losses, epsilon, "left"))
        inner, error = 0.0, float(self.error[max(min(i, len(self.losses)) - 1, 0)])
        if i < len(self.losses):
            inner = float(self.gain[i] + self.slope[i] * -math.expm1(min(epsilon - self.losses[i], 0.0)))
        inner = max(0.0, inner + error if self.upper else inner - error)
        if inner == 0:
            return self.p_inf
        value = math.exp(min(0.0, self.log_scale + math.log(inner)))
        return min(1.0, self.p_inf + value * (1 + self.relative)) if self.upper else self.p_inf + value * max(0.0, 1 - self.relative)

    def noise(self, epsilon: float) -> float:
        """What the uncertainty at ε adds to δ (or takes from it)."""
        i = int(np.searchsorted(self.losses, epsilon, "left"))
        return float(self.error[max(min(i, len(self.losses)) - 1, 0)]) * math.exp(min(self.log_scale, 700.0))

    def epsilon(self, delta: float) -> float:
        """The bound on ε at δ; from below −∞ and from above +∞ when the window does not hold it."""
        if delta <= self.p_inf:
            return math.inf
        log_target = math.log(delta - self.p_inf) - self.log_scale
        log_target += -math.log1p(self.relative) if self.upper else -math.log1p(-min(self.relative, 0.5))
        target = math.exp(min(log_target, 700.0))
        bound = self.gain + self.error if self.upper else self.gain - self.error
        over = np.flatnonzero(~(bound <= target))
        if not len(over):
            return float(self.losses[0]) if self.upper else -math.inf
        i = int(over[-1])
        if i + 1 == len(self.losses):
            return math.inf if self.upper else float(self.losses[i])
        aim = target - float(self.error[i]) if self.upper else target + float(self.error[i])
        ratio = (aim - float(self.gain[i + 1])) / float(self.slope[i + 1]) if self.slope[i + 1] > 0 else 0.0
        if ratio >= 1:
            return float(self.losses[i])
        return float(self.losses[i + 1]) + math.log1p(-max(ratio, 0.0))


def _discounted(p: Array, step: float) -> Array:
    """Σ_{j ≥ i} p_j e^{−step·(j − i)} for each i, from the right, in stretches over which e^{−step·j} is a float."""
    stretch = max(1, int(300 / step))
    made = np.empty_like(p)
    beyond = 0.0
    for end in range(len(p), 0, -stretch):
        own = p[max(0, end - stretch) : end]
        weights = np.exp(-step * np.arange(len(own) + 1.0))
        found = (np.cumsum((own * weights[:-1])[::-1])[::-1] + beyond * weights[-1]) / weights[:-1]
        made[max(0, end - stretch) : end] = found
        beyond = float(found[0])
    return made


def curve(made: Product, center: float, *, relative: float, p_inf: float, upper: bool) -> Curve:
    """δ(ε) = Σ_{s > ε} p(s) (1 − e^{ε−s}) around ``center``, every sum made of positive terms."""
    losses, tilt = made.losses, made.tilt
    y = losses - center
    keep = tilt * np.abs(y) < 600
    if not keep.any():
        keep = np.abs(y) <= float(np.abs(y).min())
    cut = float(made.tilted[~keep & (y > 0)].sum())  # too far to the right to be weighed: treated as uncertain
    losses, y, tilted = losses[keep], y[keep], made.tilted[keep]
    slope = _discounted(tilted * np.exp(-tilt * y), made.step)
    gain = np.concatenate((np.cumsum((-math.expm1(-made.step) * slope)[:0:-1])[::-1], [0.0]))
    fall = np.exp(-tilt * y)
    peak = math.exp(tilt * math.log(tilt / (1 + tilt)) - math.log1p(tilt)) if tilt > 0 else 1.0
    rounding = made.rounding * math.sqrt(min(len(made.tilted), 1 / -math.expm1(-2 * tilt * made.step)) if tilt > 0 else len(made.tilted))
    error = fall * (rounding + peak * made.inherited)
    error = error + (float(fall[-1]) * (made.right + cut) if upper else peak * fall * (made.left + made.right))
    log_scale = made.log_mass - tilt * center + (math.log1p(-p_inf) if p_inf < 1 else -math.inf)
    return Curve(losses, gain, slope, error, log_scale, p_inf + (1 - p_inf) * made.p_inf, relative + 8 * ULP * len(y), upper)
