"""Rényi divergences of single releases, and what sampling makes of a curve. Upper bounds; orders are finite and above 1.

D is the divergence of order α and K = (α − 1)·D the log-moment. Small losses are where digits are lost, so every
formula here is arranged as a sum or product of positive terms. Proofs: docs/proofs/rdp.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.special import gammaln, logsumexp

from dither.accounting._moments import log1p_exp
from dither.accounting._pair import Array

DivergenceCurve: TypeAlias = Callable[[Array], Array]
INTEGERS_MAX = 256
_ROUNDING = 1 + 1e-13


def log_expm1(x: Array) -> Array:
    """log(e^x − 1) for x ≥ 0."""
    with np.errstate(divide="ignore"):
        return np.where(x < 30.0, np.log(np.expm1(np.minimum(x, 30.0))), x + np.log1p(-np.exp(-np.maximum(x, 30.0))))


def _excess(x: Array) -> Array:
    """e^x − 1 − x for |x| ≤ 30, good to the last digits near 0."""
    y = np.where(np.abs(x) < 0.5, x, 0.0)
    series = np.ones_like(y)
    for j in range(20, 2, -1):
        series = 1 + y / j * series
    return np.where(np.abs(x) < 0.5, 0.5 * y * y * series, np.expm1(x) - x)


def gaussian(orders: Array, noise_multiplier: float) -> Array:
    """α/2σ²."""
    return 0.5 * orders / noise_multiplier / noise_multiplier * _ROUNDING


def laplace(orders: Array, epsilon: float) -> Array:
    """Mironov 2017, Proposition 6: log(α/(2α−1)·e^{(α−1)ε} + (α−1)/(2α−1)·e^{−αε})/(α−1), ε = 1/noise_multiplier."""
    a = orders
    up = (a - 1) * epsilon
    near = np.minimum(a * epsilon, 30.0)
    small = np.log1p((a * _excess(np.minimum(up, 30.0)) + (a - 1) * _excess(-near)) / (2 * a - 1))
    large = up + np.log(a / (2 * a - 1)) + np.log1p((a - 1) / a * np.exp(-np.minimum((2 * a - 1) * epsilon, 700.0)))
    return np.where(a * epsilon < 30.0, small, large) / (a - 1) * _ROUNDING


def response(orders: Array, epsilon: float, values: int) -> Array:
    """Randomised response: K = log(1 + (e^{(α−1)ε} − 1)(e^ε − e^{−(α−1)ε})/(e^ε + values − 1)); exact.

    With two values it is the most that any ε-DP mechanism can have.
    """
    if epsilon == 0:
        return np.zeros_like(orders)
    a = orders
    log_weight = epsilon + math.log1p((values - 1) * math.exp(-epsilon))
    product = log_expm1((a - 1) * epsilon) + log_expm1(a * epsilon) - (a - 1) * epsilon
    return np.minimum(log1p_exp(product - log_weight) / (a - 1) * _ROUNDING, epsilon)


def bounded_range(orders: Array, epsilon: float) -> Array:
    """The most that a loss within an interval of width ε can have: two atoms, the interval in its worst place.

    With y = e^t for the upper end t: E = (A·y^{α−1} − B·y^α)/(1 − e^{−ε}), A = 1 − e^{−αε}, B = e^{−ε} − e^{−αε},
    greatest at y = (α−1)A/(αB). Never above ε²α/8 (Hoeffding's lemma) nor above ε.
    """
    if epsilon == 0:
        return np.zeros_like(orders)
    a = orders
    log_a = np.log(-np.expm1(-a * epsilon))
    log_b = -epsilon + np.log(-np.expm1(-(a - 1) * epsilon))
    log_y = np.log1p(-1 / a) + log_a - log_b
    moment = (a - 1) * log_y + log_a - np.log(a) - math.log(-math.expm1(-epsilon))
    slack = 1e-14 * (2 + a * epsilon + np.log(a) + (1 + 0.2 * a) * abs(math.log(epsilon)))
    return np.minimum(np.maximum(moment + slack, 0.0) / (a - 1), np.minimum(0.125 * epsilon * epsilon * a, epsilon) * _ROUNDING)


def discrete_laplace(orders: Array, noise_scale: float, shift: int) -> Array:
    """Three geometric sums: below both centres, between them, above both."""
    a, rate = orders, 1 / noise_scale
    up = (a - 1) * rate * shift
    log_share = math.log(math.tanh(0.5 * rate))  # (1 − e^{−rate})/(1 + e^{−rate})
    log_end = -math.log(-math.expm1(-rate))
    fall = (2 * a - 1) * rate
    with np.errstate(divide="ignore"):
        between = up - fall + np.log(-np.expm1(-fall * (shift - 1))) - np.log(-np.expm1(-fall))
    moment = np.logaddexp(np.logaddexp(up + log_end, -a * rate * shift + log_end), between) + log_share
    slack = 1e-14 * (1 + up + abs(log_share))
    return np.minimum((np.maximum(moment, 0.0) + slack) / (a - 1), response(orders, rate * shift, 2))


# ------------------------------------------------------------------------------------------------ sampling a curve


def interpolated(orders: Array, whole: Array, moments: Array) -> Array:
    """K between whole orders by chords (a log-moment is convex in the order, and 0 at 1); ∞ above the last."""
    return np.asarray(np.interp(orders, np.append(1.0, whole), np.append(0.0, moments), right=np.inf))


def _integers(curve: DivergenceCurve, orders: Array) -> tuple[Array, Array, Array]:
    """(j = 2 … highest, K there, those of them between which to draw chords)."""
    highest = int(min(max(math.ceil(float(orders.max())), 2), INTEGERS_MAX))
    whole = np.arange(2.0, highest + 1.0)
    ends = np.unique(np.round(np.append(np.arange(2.0, 33.0), np.geomspace(33.0, INTEGERS_MAX, 60))))
    return whole, (whole - 1) * curve(whole), np.append(ends[ends < highest], highest)


def _log_sums(ends: Array, whole: Array, q: float, grown: Array, *, stay: bool = True) -> Array:
    """Log(1 + Σ_j C(n, j) q^j (1−q)^{n−j} e^grown) for every n of ``ends``; without the power of 1 − q unless ``stay``."""
    n, j = ends[:, None], whole[None, :]
    left = np.maximum(n - j, 0.0)
    terms = gammaln(n + 1) - gammaln(j + 1) - gammaln(left + 1) + j * math.log(q) + grown + 1e-12
    if stay and q < 1:
        terms = terms + left * math.log1p(-q)
    return log1p_exp(logsumexp(np.where((j == n) | (j < n) & (not stay or q < 1), terms, -math.inf), axis=1))


def _log_least(q: float, orders: Array) -> Array:
    """Log of (1−q)^{1−α} − 1 − (α−1)q."""
    away = -math.log1p(-q)
    near = (orders - 1) * away
    more = away - q if q > 0.1 else q * q * math.fsum(q**i / (i + 2) for i in range(18))
    beyond = _excess(np.minimum(near, 30.0)) + (orders - 1) * more
    return np.where(near < 30.0, np.log(beyond), near) + 1e-13


def present(curve: DivergenceCurve, q: float, orders: Array) -> tuple[Array, Array]:
    """(K of (1−q)Q + qP from Q, K of Q from it) for a P within ``curve`` of Q both ways.

    From Q: the binomial sum at integers (exact for the worst P), chords between, 1 + q(e^K − 1) above the last.
    To Q: the least of 1 + q(e^K − 1), a chord through the second moment, and Zhu & Wang 2019, Theorem 5.
    """
    own = (orders - 1) * curve(orders)
    convex = log1p_exp(math.log(q) + log_expm1(own))
    whole, moments, ends = _integers(curve, orders)
    grown = log_expm1(moments)
    threefold = np.where(whole >= 3, math.log(3.0) + moments + np.log1p(-np.exp(-moments) / 3), grown)
    chord = np.full_like(orders, np.inf)
    if q < 1:  # (1+u)^{1−α} − 1 + (α−1)u is at most u²·(its value at −q)/q² for every u ≥ −q
        chord = log1p_exp(_log_least(q, orders) + grown[0])
    away = np.minimum(convex, interpolated(orders, ends, _log_sums(ends, whole, q, grown)))
    both = interpolated(orders, ends, _log_sums(ends, whole, q, threefold))
    back = np.minimum(np.minimum(convex, chord), both)
    return np.minimum(away, own) * _ROUNDING, np.minimum(back, own) * _ROUNDING


def replaced(curve: DivergenceCurve, pure: float, q: float, orders: Array) -> Array:
    """K of (1−q)R + qP from (1−q)R + qP′, where R, P and P′ are within ``curve`` (and ``pure``) of one another.

    Wang, Balle & Kasiviswanathan 2019, Theorem 9, at integers; chords between; 1 + q(e^K − 1) above the last.
    """
    own = (orders - 1) * curve(orders)
    whole, moments, ends = _integers(curve, orders)
    log_pure = float(log_expm1(np.array(pure))) if pure < 700 else math.inf
    second = min(math.log(4.0) + float(log_expm1(moments[:1])[0]), float(moments[0]) + min(math.log(2.0), 2 * log_pure))
    terms = moments + np.minimum(math.log(2.0), whole * log_pure)
    terms[0] = second

    sums = _log_sums(ends, whole, q, terms, stay=False)
    convex = log1p_exp(math.log(q) + log_expm1(own))
    return np.minimum(np.minimum(convex, interpolated(orders, ends, sums)), own) * _ROUNDING


def mixed(log_weights: Array, moments: list[Array]) -> Array:
    """Log Σ wᵢ e^{Kᵢ}, weights summing to at most 1: e^K is jointly convex in the pair; accurate for small K."""
    grown = np.array([weight + log_expm1(k) for weight, k in zip(log_weights.tolist(), moments, strict=True) if weight > -math.inf])
    return log1p_exp(logsumexp(grown, axis=0)) * _ROUNDING


def two_hops(moment: DivergenceCurve, orders: Array) -> Array:
    """K of two moves, each of ``moment``: K(pα)/p + (1 − 1/p)K((pα − 1)/(p − 1)) for every p > 1 (Mironov 2017, Proposition 11)."""
    hops = [moment(p * orders) / p + (1 - 1 / p) * moment((p * orders - 1) / (p - 1)) for p in (1.25, 1.4, 1.6, 1.8, 2.0, 2.3, 2.7, 3.0)]
    return np.asarray(np.minimum.reduce(hops) * _ROUNDING)
