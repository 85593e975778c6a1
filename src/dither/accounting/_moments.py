"""Log-moments of a Gaussian run on a random batch: upper bounds with a proved error, from q = 1e-12 to 1.

K(α) = log E_{x∼N(0,σ²)}[(1 + u)^α], u = q(e^w − 1), w = (2x − 1)/2σ²; the Rényi divergence of order α is K/(α − 1).
Since E[u] = 0, K = log(1 + E[φ(u)]) with φ(u) = (1 + u)^α − 1 − αu ≥ 0: nothing cancels, however small K is.
Proofs: docs/proofs/rdp.md, "Subsampled Gaussian".
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr

from dither.accounting._pair import Array

_SERIES = 16
_POINTS_MAX = 8_000
_REACH = 14.0
_ROUNDING = 1e-11
"""Relative allowance for rounding in sums of up to 10^5 positive terms, each good to 10^-13."""


def log1p_exp(log_value: Array | float) -> Array:
    """log(1 + e^x), and e^x itself where that is all there is."""
    return np.logaddexp(0.0, np.asarray(log_value, dtype=np.float64))


@lru_cache(maxsize=65536)
def sampled_gaussian(noise_multiplier: float, probability: float, order: float) -> float:
    """Upper bound on K(order), the larger of both directions (Mironov, Talwar & Zhang 2019, Theorem 5).

    >>> round(sampled_gaussian(1.0, 1.0, 3.0), 9)
    3.0
    """
    plain = 0.5 * order * (order - 1) / noise_multiplier / noise_multiplier * (1 + 4e-16)
    if probability >= 1:
        return plain
    step, points = _step(noise_multiplier, order)
    if points <= _POINTS_MAX:
        found = _trapezoid(noise_multiplier, probability, order, step)
    else:
        found = _pieces(noise_multiplier, probability, order)
    return min(found, plain)


def _step(s: float, order: float) -> tuple[float, float]:
    strip = min(0.5 * math.pi * s * s, 10.0 * s)
    step = 2 * math.pi * strip / (0.5 * (strip / s) ** 2 + _digits(s))
    return step, (max(order, 2.0) + 2 * _REACH * s) / step


def _digits(s: float) -> float:
    """−log of the relative size of the trapezoid rule's error, before the factor ~σ² that the proof leaves."""
    return 60.0 + 2.0 * math.log1p(s)


def _trapezoid(s: float, q: float, order: float, step: float) -> float:
    """The trapezoid rule on the whole line, with the error of a rule for functions analytic in a strip."""
    low, high = -_REACH * s, max(order, 2.0) + _REACH * s
    x: Array = np.arange(math.floor(low / step), math.ceil(high / step) + 1.0) * step
    w = (x - 0.5) / s / s
    log_density = -0.5 * (x / s) ** 2 - math.log(s * math.sqrt(2 * math.pi) / step)
    log_psi = _log_psi(w, q, order)
    with np.errstate(divide="ignore"):
        near = np.log(np.abs(np.expm1(np.minimum(w, 30.0))))
    log_u = math.log(q) + np.where(w < 30.0, near, w)
    log_sum = float(logsumexp(log_density + log_psi + 2 * log_u))
    wide = float(logsumexp(log_density + log_psi + np.logaddexp(2 * w, 0.0))) + 2 * math.log(q)
    # 2·√2·e^{y²/2σ²}/(e^{2πy/h} − 1) relative to ``wide``; the tails left out on either side.
    error = 1.5 - _digits(s) + wide
    share = math.log(0.5 * order * (order - 1)) + 2 * math.log(q)
    left = min(share - min(order - 2, 0.0) * -math.log1p(-q), math.log(order - 1)) if q < 0.5 else math.log(order - 1)
    left += float(log_ndtr(low / s + step / s))
    top, c = max(order, 2.0), q + (1 - q) * math.exp(-max((high - 0.5) / s / s, 0.0))
    right = share + (top - 2) * math.log(c) + 0.5 * top * (top - 1) / s / s + float(log_ndtr((top - high + step) / s))
    right = min(right, order * math.log(c) + 0.5 * order * (order - 1) / s / s + float(log_ndtr((order - high + step) / s)))
    total = float(logsumexp([log_sum + _ROUNDING, error, left + 1.0, right + 1.0]))
    return float(log1p_exp(total)) * (1 + 1e-15)


def _log_psi(w: Array, q: float, order: float) -> Array:
    """Log of ψ = φ(u)/u² = α(α−1)∫₀¹ (1−s)(1+su)^{α−2} ds, without cancellation."""
    far = w > 30.0
    u = q * np.expm1(np.where(far, 0.0, w))
    log_ratio = np.where(u < -0.5, np.log((1 - q) + q * np.exp(np.where(far, 0.0, w))), np.log1p(np.maximum(u, -0.5)))
    log_ratio = np.where(far, np.logaddexp(math.log1p(-q), math.log(q) + w), log_ratio)
    small = ~far & (np.abs(u) < 0.1) & (order * np.abs(u) < 0.3)
    v = np.where(small, u, 0.0)
    series = np.ones_like(v)
    for j in range(_SERIES, 2, -1):
        series = 1 + (order - j + 1) * v / j * series
    found = math.log(0.5 * order * (order - 1)) + np.log(series)
    log_u = math.log(q) + np.where(far, w, np.log(np.expm1(np.where(far | (w <= 0), 1.0, w))))
    big = (order - 1) * log_ratio > 40.0
    high = ~big & (log_ratio > 1.0)
    middle = ~small & ~big & ~high
    found[big] = order * log_ratio[big] - 2 * log_u[big]
    ahead = (1 + np.exp(-log_u[high])) * np.expm1((order - 1) * log_ratio[high]) - (order - 1)
    found[high] = np.log(ahead) - log_u[high]
    lr, um = log_ratio[middle], u[middle]
    found[middle] = np.log(np.exp(lr) * np.expm1((order - 1) * lr) - (order - 1) * um) - 2 * np.log(np.abs(um))
    return found


def _pieces(s: float, q: float, order: float) -> float:
    """E[R^α] cut into pieces, each the less of two bounds: R at its right end, or R = e^w·c with c at its left end.

    Used where σ is so small, or the order so large, that K is large and one line of bumps: exact to far below K.
    """
    turn = 0.5 + s * s * math.log((1 - q) / q)
    bump = np.linspace(-30.0, 30.0, 601) * s
    curl = turn + s * s * np.linspace(-40.0, 40.0, 1601)
    y = np.unique(np.concatenate((bump, order + bump, curl, np.linspace(0.0, order, 2001))))
    w = (y - 0.5) / s / s
    log_r = np.logaddexp(math.log1p(-q), math.log(q) + w)
    log_c = np.logaddexp(math.log(q), math.log1p(-q) - w)
    lead = 0.5 * order * (order - 1) / s / s
    by_right = order * np.append(log_r, np.inf) + _log_cells(y / s)
    by_left = order * np.append(np.inf, log_c) + lead + _log_cells((y - order) / s)
    return float(logsumexp(np.fmin(by_right, by_left))) * (1 + 1e-13) + 1e-12


def _log_cells(z: Array) -> Array:
    """Logs of the normal masses of (−∞, z₀], (z₀, z₁], …, (zₙ, ∞)."""
    mirrored = np.where(z > 0, -z, z)
    tail = log_ndtr(mirrored)
    left, right = z[:-1], z[1:]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        same = np.where(right <= 0, tail[1:] + np.log1p(-np.exp(tail[:-1] - tail[1:])), tail[:-1] + np.log1p(-np.exp(tail[1:] - tail[:-1])))
        across = np.log1p(-np.exp(tail[1:]) - np.exp(tail[:-1]))
    inner = np.where((left < 0) & (right > 0), across, same)
    inner = np.where(np.isfinite(inner), inner, np.maximum(tail[:-1], tail[1:]))
    first = log_ndtr(z[0])
    return np.concatenate(([first], inner + 1e-12, [log_ndtr(-z[-1])]))


@lru_cache(maxsize=65536)
def replaced_gaussian(noise_multiplier: float, probability: float, order: float) -> float:
    """Upper bound on log E[(P/Q)^α] when the profile of (P, Q) and of (Q, P) above ε = 0 is that of a Gaussian's sample.

    E = 1 + E_{x∼N(0,σ²)}[R^α + R^{1−α} − R − 1; R > 1]. The integrand is convex in x, so chords bound it.
    """
    s, q = noise_multiplier, probability
    plain = 0.5 * order * (order - 1) / s / s * (1 + 4e-16)
    both = math.log(2.0) + _log_expm1(sampled_gaussian(s, q, order))
    found = float(log1p_exp(both)) * (1 + 1e-15)
    step = min(0.05 * s, s * s / (8.0 * order))
    high = max(order, 2.0) + _REACH * s
    if (high - 0.5) / step > 4 * _POINTS_MAX or high > 1e12 * step:
        return min(found, plain)
    y = np.append(np.arange(0.5, high, step), high)
    w = (y - 0.5) / s / s
    log_r = np.where(
        w < 30.0, np.log1p(q * np.expm1(np.minimum(w, 30.0))), np.logaddexp(math.log1p(-q) if q < 1 else -np.inf, math.log(q) + w)
    )
    with np.errstate(divide="ignore"):
        value = np.log(-np.expm1(-(order - 1) * log_r)) + np.where(
            order * log_r < 30.0, np.log(np.expm1(np.minimum(order * log_r, 30.0))), order * log_r
        )
    # the density falls and the integrand rises, so a chord's mean over a cell is at most the mean of its two ends
    mass = _log_cells(y / s)[1:-1]
    chord = np.logaddexp(value[:-1], value[1:]) - math.log(2.0)
    tail = 0.5 * order * (order - 1) / s / s + order * math.log(q + (1 - q) * math.exp(-w[-1])) + float(log_ndtr((order - high) / s))
    total = float(logsumexp(np.append(mass + chord, tail))) + _ROUNDING
    return min(found, plain, float(log1p_exp(total)) * (1 + 1e-15))


@lru_cache(maxsize=4096)
def mixture_gaussian(noise_multiplier: float, weights: tuple[float, ...], order: float) -> tuple[float, float]:
    """Upper bounds on K of Σ wⱼN(j, σ²) from N(0, σ²), and of it from the mixture; ∞ where that is too much work.

    Both are E[R^β] with β = α or 1 − α and R = Σ wⱼe^{(jx − j²/2)/σ²}; no term turns by more than π/4 in the strip.
    """
    s, k, a = noise_multiplier, len(weights) - 1, order
    strip = min(0.25 * math.pi * s * s / k, 10.0 * s)
    digits = 75.0 + 0.35 * a
    step = 2 * math.pi * strip / (0.5 * (strip / s) ** 2 + digits)
    low, high = -_REACH * s, max(a, 2.0) * k + _REACH * s
    if (high - low) / step * (k + 1) > 40 * _POINTS_MAX or weights[0] <= 0:
        return math.inf, math.inf
    x: Array = np.arange(math.floor(low / step), math.ceil(high / step) + 1.0) * step
    j = np.arange(k + 1.0)
    with np.errstate(divide="ignore"):
        log_w = np.log(np.array(weights))
    turned = (j * x[:, None] - 0.5 * j * j) / s / s
    log_ratio = np.asarray(logsumexp(log_w + turned, axis=1))
    excess = np.expm1(np.minimum(turned, 700.0)) @ np.array(weights)
    log_density = -0.5 * (x / s) ** 2 - math.log(s * math.sqrt(2 * math.pi) / step)
    ends = (low + step) / s, (high - step) / s
    grown = 0.5 * a * (a - 1) * (k / s) ** 2 + float(log_ndtr(a * k / s - ends[1]))  # (Σ wⱼeⱼ)^α ≤ Σ wⱼeⱼ^α beyond ``high``
    tails = (
        (math.log(a) + float(log_ndtr(ends[0])), grown),
        ((1 - a) * float(log_w[0]) + float(log_ndtr(ends[0])), math.log(a) + float(log_ndtr(k / s - ends[1]))),
    )
    found = []
    for power, tail in zip((a, 1 - a), tails, strict=True):
        log_sum = float(logsumexp(log_density + _log_convex(log_ratio, excess, power)))
        error = float(np.logaddexp(log_sum, math.log(2 + 2 * a))) + 1.5 - 75.0
        found.append(float(log1p_exp(logsumexp([log_sum + _ROUNDING, error, *(t + 1 for t in tail)]))) * (1 + 1e-15))
    return found[0], found[1]


def _log_convex(log_ratio: Array, excess: Array, power: float) -> Array:
    """Log of R^β − 1 − β(R − 1) ≥ 0 from log R and R − 1."""
    small = (np.abs(excess) < 0.1) & (abs(power) * np.abs(excess) < 0.3)
    v = np.where(small, excess, 0.0)
    series = np.ones_like(v)
    for j in range(_SERIES, 2, -1):
        series = 1 + (power - j + 1) * v / j * series
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        near = math.log(0.5 * power * (power - 1)) + np.log(series) + 2 * np.log(np.abs(v))
        steep = np.where(power > 0, power * log_ratio, log_ratio + math.log(abs(power)))  # the term that outgrows the others
        high = (power * log_ratio > 40.0) | (log_ratio > 300.0)
        lr = np.where(high, 0.0, np.where(np.abs(excess) < 0.5, np.log1p(np.clip(excess, -0.5, 0.5)), log_ratio))
        far = np.log(np.exp(lr) * np.expm1((power - 1) * lr) - (power - 1) * np.expm1(lr))
        return np.asarray(np.where(small, near, np.where(high, np.maximum(steep, power * log_ratio) + 1e-12, far)))


def _log_expm1(x: float) -> float:
    if x <= 0:
        return -math.inf
    return math.log(math.expm1(x)) if x < 700 else x


def normal_mass(low: float, high: float) -> float:
    """Mass of (low, high] under the standard normal law."""
    return float(ndtr(high) - ndtr(low)) if low < 0 else float(ndtr(-low) - ndtr(-high))
