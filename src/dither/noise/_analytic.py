"""Exact calibration of Gaussian noise: the smallest noise that meets (ε, δ), in closed form, rounded up.

δ(σ) = Φ(−x) − e^ε Φ(−x − μ) with μ = 1/σ and x = εσ − 1/2σ (Balle & Wang 2018, Theorem 8). The two terms agree in
most of their digits, so the difference is never taken: e^ε φ(x + μ) = φ(x), hence δ = φ(x)·(M(x) − M(x + μ)) with the
Mills ratio M(t) = Φ(−t)/φ(t), and for small μ that difference is the integral of −M′(t) = 1 − t·M(t) > 0. All of it in
logarithms, so that δ = 1e-300 is as good as δ = 0.1. The error of ``log_gaussian_delta`` is below ``SLACK``, which is
added before every comparison: the δ that was asked for is truly met.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError, RefusedError
from dither.noise._rounding import up

SLACK = 1e-12
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
_FAR = 5.0  # from here on the continued fraction converges to the last bit in _TERMS terms
_TERMS = 40
_BLOCKS = 1 << 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


# ------------------------------------------------------------------------------------------------ the normal tail


def _tail_fraction(x: float) -> float:
    """K = 1/(x + 2/(x + 3/(x + …))) for x ≥ 5, so that M(x) = 1/(x + K) (Laplace's continued fraction)."""
    value = 0.0
    for k in range(_TERMS, 0, -1):
        value = k / (x + value)
    return value


def mills(x: float) -> float:
    """Mills ratio Φ(−x)/φ(x), to a few ulps (x ≥ −37, below which it overflows).

    >>> mills(0.0)
    1.2533141373155001
    """
    if x < _FAR:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    return 1 / (x + _tail_fraction(x))


def _mills_slope(x: float) -> float:
    """−M′(x) = 1 − x·M(x) > 0 (x ≥ −5), without the cancellation."""
    if x < _FAR:
        return 1 - x * mills(x)
    fraction = _tail_fraction(x)
    return fraction / (x + fraction)


def log_ndtr(x: float) -> float:
    """Log Φ(x), to about 1e-15 of itself, for any x.

    >>> log_ndtr(-40.0)
    -804.6084420137538
    """
    if x > 0:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)
    if x > -_FAR:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return float(-(Fraction(x) ** 2) / 2) - _LOG_ROOT_2PI + math.log(mills(-x))


def normal_quantile(tail: float) -> float:
    """An x with P(|N(0, 1)| > x) ≤ ``tail``, above the least one by less than 1e-11 of it (0 < tail < 1).

    >>> round(normal_quantile(0.05), 6)
    1.959964
    """
    target = math.log(tail) - math.log(2)
    x = max(1e-12, -NormalDist().inv_cdf(max(tail / 2, 1e-300)))
    for _ in range(8):
        x += (log_ndtr(-x) - target) * mills(x)
        x = max(x, 1e-300)
    x *= 1 + 1e-12
    while log_ndtr(-x) + SLACK > target and tail < 1:
        x = x * (1 + 1e-12) + 1e-13
    return x


# ------------------------------------------------------------------------------------------------ Gaussian


def _parts(noise_multiplier: float, epsilon: float) -> tuple[float, float]:
    """(log δ, φ(x)/δ) of the Gaussian mechanism; x and x²/2 are exact before their one rounding."""
    sigma = Fraction(noise_multiplier)
    exact = Fraction(epsilon) * sigma - 1 / (2 * sigma)
    x, half_square, mu = float(exact), float(exact * exact / 2), 1 / noise_multiplier
    if x < -_FAR:
        density = math.exp(-half_square - _LOG_ROOT_2PI)
        missing = math.exp(log_ndtr(x)) + density * mills(x + mu)
        return math.log1p(-missing), density / (1 - missing)
    if mu > 0.5:
        gap = mills(x) - mills(x + mu)
    else:
        middle = x + mu / 2
        gap = mu / 2 * math.fsum(float(w) * _mills_slope(middle + mu / 2 * float(t)) for t, w in zip(_NODES, _WEIGHTS, strict=True))
    if gap == 0:
        return -math.inf, math.inf
    return -half_square - _LOG_ROOT_2PI + math.log(gap), 1 / gap


def log_gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """Log of the exact δ of Gaussian noise at ε; off by less than ``SLACK`` wherever it is above −800.

    >>> round(math.exp(log_gaussian_delta(3.730631634815, 1.0)), 12)
    1e-05
    """
    return _parts(noise_multiplier, epsilon)[0]


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """The least noise multiplier that makes one Gaussian release (ε, δ)-DP (Balle & Wang 2018), rounded up.

    >>> round(gaussian_noise_multiplier(1.0, 1e-5), 5)
    3.73063
    """
    epsilon = checks.epsilon(epsilon)
    target = math.log(checks.delta(delta, zero=False)) - SLACK
    low, high = math.log(checks.NOISE_MIN), math.log(checks.NOISE_MAX)
    if log_gaussian_delta(checks.NOISE_MIN, epsilon) <= target:
        return checks.NOISE_MIN
    if log_gaussian_delta(checks.NOISE_MAX, epsilon) > target:
        raise InputError(
            f"epsilon={epsilon!r} with delta={delta!r} is not allowed: it needs a noise multiplier above {checks.NOISE_MAX:g}. "
            "Ask for a larger epsilon or delta."
        )
    s = min(max(math.log(1 / max(epsilon, 1e-9)), low), high)
    for _ in range(200):  # Newton on log δ as a function of log σ, kept inside a bracket; a dozen rounds do
        value, ratio = _parts(math.exp(s), epsilon)
        low, high = (s, high) if value > target else (low, s)
        slope = -math.exp(-s) * ratio
        step = s - (value - target) / slope if slope and math.isfinite(value) else math.nan
        following = step if low < step < high else (low + high) / 2
        if abs(following - s) <= 4e-16 * max(1.0, abs(s)):
            break
        s = following
    found, nudge = math.exp(s), 1e-15
    while log_gaussian_delta(found, epsilon) > target:
        found, nudge = found * (1 + nudge), 2 * nudge
    return found


def classic_gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """sqrt(2 ln(1.25/δ))/ε, for comparison only: no mechanism uses it. Refused above ε = 1, where it is not proved.

    >>> round(classic_gaussian_noise_multiplier(1.0, 1e-5) / gaussian_noise_multiplier(1.0, 1e-5), 3)
    1.299
    """
    epsilon = checks.epsilon(epsilon, zero=False)
    delta = checks.delta(delta, zero=False)
    if epsilon > 1:
        raise RefusedError(
            f"The classic Gaussian formula is refused at epsilon={epsilon!r}: it is proved for epsilon <= 1 only (Dwork & Roth 2014, "
            "Theorem A.1) and is unsafe from about 7 on. Use gaussian_noise_multiplier, which is exact for every epsilon."
        )
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


# ------------------------------------------------------------------------------------------------ discrete Gaussian


def log_discrete_gaussian_delta(noise_std: float, epsilon: float, sensitivity: int) -> float:
    """Log of an upper bound on the δ of discrete Gaussian noise at ε (Canonne, Kamath & Steinke 2020, Theorem 7).

    Exact (to 1e-10) while the sum has at most 65,536 terms; beyond that the terms are taken in blocks, each at its
    largest, which overstates δ by less than 1 part in 500.

    >>> round(log_discrete_gaussian_delta(10.0, 1.0, 1), 3)
    -57.318
    """
    sigma, shift = noise_std, sensitivity
    cut = Fraction(epsilon) * Fraction(sigma) ** 2 / shift - Fraction(shift, 2)  # terms t = y − shift whose loss is above ε: t > cut
    first = math.floor(cut) + 1
    last = math.ceil(math.sqrt(max(first, 0) ** 2 + 100 * sigma * sigma)) + 1
    first = max(first, -last)  # what lies below −last is less than the tail that is added at the end
    above = float(first - cut)  # exact before its one rounding: near an integer cut the first term hangs on its last digits
    width = -(-(last - first + 1) // _BLOCKS)
    offsets = width * np.arange(-(-(last - first + 1) // width), dtype=np.float64)
    starts = first + offsets
    ends = starts + (width - 1)
    peaks: NDArray[np.float64] = np.clip(0.0, starts, ends)  # where the weight is largest in each block
    exponents = -0.5 * (peaks / sigma) ** 2
    largest = float(exponents.max())
    gains = -np.expm1(-(offsets + (width - 1) + above) * (shift / sigma / sigma))
    total = width * float(np.sum(np.exp(exponents - largest) * gains))
    beyond = sigma * math.exp(_LOG_ROOT_2PI + math.log(2) + log_ndtr(-(last - 1) / sigma) - largest)
    return largest + math.log(total + beyond) - _log_normaliser(sigma) + 1e-10


def _log_normaliser(sigma: float) -> float:
    """Log Σ exp(−k²/2σ²) from below: the sum itself, or σ√(2π), which is less (Poisson summation) and equal from σ = 10 on."""
    if sigma >= 10:
        return math.log(sigma) + _LOG_ROOT_2PI
    return math.log(math.fsum(math.exp(-0.5 * (k / sigma) ** 2) for k in range(-400, 401)))


def discrete_gaussian_noise_std(epsilon: float, delta: float, sensitivity: int = 1) -> float:
    """A noise std that makes one discrete Gaussian release of sensitivity ``sensitivity`` (ε, δ)-DP, least to about 1e-5.

    >>> round(discrete_gaussian_noise_std(1.0, 1e-5), 3)
    3.74
    """
    epsilon = checks.epsilon(epsilon)
    sensitivity = checks.count("sensitivity", sensitivity)
    target = math.log(checks.delta(delta, zero=False))

    def met(sigma: float) -> bool:
        return log_discrete_gaussian_delta(sigma, epsilon, sensitivity) <= target

    smallest, largest = up(Fraction(checks.NOISE_MIN) * sensitivity), checks.NOISE_MAX
    high = max(gaussian_noise_multiplier(epsilon, delta) * sensitivity, smallest)
    while high <= largest and not met(high):
        high *= 1.02
    if high > largest:
        raise InputError(
            f"epsilon={epsilon!r} with delta={delta!r} needs a noise std above {largest:g}: ask for a larger epsilon or delta."
        )
    low = max(high / 1.05, smallest)
    while low > smallest and met(low):
        high, low = low, max(low / 1.2, smallest)
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (low, middle) if met(middle) else (middle, high)
    return high
