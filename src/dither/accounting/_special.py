"""Pairs of single releases without a Gaussian form, and pairs made from a profile. Proofs: docs/proofs/special-events.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from dither.accounting._pair import FEEBLE, Array, Masses, Pair
from dither.accounting._pairs import AtomsPair, _normal_cells

_TABLE_MAX = 4096.0
_LOG_CUT = -115.0  # a profile is followed down to δ about 1e-50; what is beyond counts as loss ∞
_SQRT_TAU = math.sqrt(2 * math.pi)
_FAR = 690.0
_ROUNDING = 1e-14  # what a difference of two sums of masses may have lost, in shares of the sums


def randomized_response(epsilon: float, values: float) -> AtomsPair:
    """The true value with odds e^ε : 1 against each other one; losses ±ε and, with more than two values, 0.

    >>> randomized_response(1.0, 2).losses
    array([-1.,  1.])
    """
    least = math.exp(-epsilon) if epsilon < _FAR else 0.0  # where P has so little it may as well have none
    top = 1 / (1 + (values - 1) * least)
    if values == 2:
        return AtomsPair(np.array([-epsilon, epsilon]), np.array([least * top, top]), 0.0, epsilon)
    return AtomsPair(np.array([-epsilon, 0.0, epsilon]), np.array([least, (values - 2) * least, 1.0]) * top, 0.0, epsilon)


def approx_dp(epsilon: float, delta: float) -> AtomsPair:
    """The worst (ε, δ)-DP mechanism (Kairouz, Oh & Viswanath 2015): with probability δ all is told.

    >>> approx_dp(0.0, 0.25).p_inf
    0.25
    """
    if epsilon == 0:
        return AtomsPair(np.zeros(1), np.array([1 - delta]), delta)
    pair = randomized_response(epsilon, 2)
    return AtomsPair(pair.losses, pair.p * (1 - delta), delta, epsilon)


def everything() -> AtomsPair:
    """Nothing is hidden: the loss is ∞ for sure.

    >>> everything().p_inf
    1.0
    """
    return AtomsPair(np.zeros(0), np.zeros(0), 1.0)


@dataclass(frozen=True, slots=True)
class BoundedRangePair:
    """The largest profile of all ε-bounded-range mechanisms: δ(t) = (e^{ε/2} − e^{t/2})² / (e^ε − 1) for |t| ≤ ε.

    P(L > t) = (1 − e^{(t−ε)/2}) / (1 − e^{−ε}), Q(L > t) = e^{−t/2−ε/2}(1 − e^{(t−ε)/2}) / (1 − e^{−ε}) (Dong, Durfee & Rogers 2020).

    >>> BoundedRangePair(1.0).span(-80.0)
    (-1.0000000000000002, 1.0)
    """

    epsilon: float

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        e = self.epsilon
        cuts = np.clip(edges, -e, e)
        left, right = np.concatenate(([-e], cuts)), np.concatenate((cuts, [e]))
        width = -np.expm1(0.5 * (left - right)) / -math.expm1(-e)
        return Masses(np.exp(0.5 * (right - e)) * width, np.exp(-0.5 * (e + left)) * width, 0.0)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) ≤ exp(log_tail), and the loss is never above high."""
        e = self.epsilon
        low = e + 2 * (log_tail + math.log(-math.expm1(-e)))
        return (-math.nextafter(e, math.inf) if low <= -e else low), e

    def std(self) -> float:
        """About the standard deviation of the loss."""
        return min(self.epsilon / math.sqrt(3), 2.0)

    def lattice(self) -> float:
        """No atoms."""
        return 0.0


@dataclass(frozen=True, slots=True)
class DiscreteLaplacePair:
    """Integer noise P(k) ∝ e^{−|k|/b}, centred s apart: losses (2k − s)/b, k = 0 … s, each an atom.

    >>> cells = DiscreteLaplacePair(1.0, 1).masses(np.array([0.0]))
    >>> abs(float(cells.p[1] / cells.q[1]) - math.e) < 1e-12
    True
    """

    noise_scale: float
    shift: int

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        b, s = self.noise_scale, self.shift
        top = s / b
        cut = np.clip(np.floor(0.5 * (edges * b + s)), 0.0, s - 1.0)
        left, right = np.concatenate(([0.0], cut)), np.concatenate((cut, [s - 1.0]))
        base = 1 + math.exp(-1 / b)
        width = -np.expm1((left - right) / b) / base
        p, q = np.exp((right - s) / b) * width, np.exp(-(left + 1) / b) * width
        atom, near = math.exp(-top) / base, 1 / base
        low, high = np.searchsorted(edges, -top, "left"), np.searchsorted(edges, top, "left")
        p[low] += atom
        q[low] += near
        p[high] += near
        q[high] += atom
        return Masses(p, q, 0.0)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) ≤ exp(log_tail), and the loss is never above high."""
        top = self.shift / self.noise_scale
        low = top + 2 * log_tail
        return (-math.nextafter(top, math.inf) if low <= -top else low), top

    def std(self) -> float:
        """About the standard deviation of the loss."""
        return min(self.shift / self.noise_scale, 1.5)

    def lattice(self) -> float:
        """1/b or, for an even shift, 2/b; none for a shift so large that the atoms are many."""
        if self.shift > 64:
            return 0.0
        return (1 if self.shift % 2 else 2) / self.noise_scale


@lru_cache(maxsize=32)
def _discrete_normal(std: float) -> tuple[int, Array, Array]:
    """(reach, Pr[X ≤ j], Pr[X ≥ j]) for j = −reach … reach of the discrete Gaussian."""
    reach = math.ceil(39.0 * std) + 2
    j = np.arange(-reach, reach + 1, dtype=np.float64)
    pmf = np.exp(-0.5 * (j / std) ** 2)
    pmf /= math.fsum(pmf.tolist())
    return reach, np.cumsum(pmf), np.cumsum(pmf[::-1])[::-1]


def _integer_cells(std: float, cut: Array) -> Array:
    """Masses of the discrete Gaussian between whole cuts: (−∞, c₀], (c₀, c₁], …, (cₙ, ∞)."""
    if std <= _TABLE_MAX:
        reach, below, above = _discrete_normal(std)
        at = np.clip(cut, -reach - 1.0, float(reach)).astype(np.int64) + reach
        low = np.where(at < 0, 0.0, below[np.maximum(at, 0)])
        high = np.where(at >= 2 * reach, 0.0, above[np.minimum(at + 1, 2 * reach)])
        inner = np.where(cut[1:] < 0, low[1:] - low[:-1], high[:-1] - high[1:])
        return np.concatenate((low[:1], np.maximum(inner, 0.0), high[-1:]))
    z = np.clip((cut + 0.5) / std, -1e3, 1e3)
    density = np.exp(-0.5 * z * z) / _SQRT_TAU / (std * std)  # Euler and Maclaurin at the middles between integers
    mend = density * (z / 24 - 7 * (z**3 - 3 * z) / (5760 * std * std))
    cells = _normal_cells(z)
    cells[1:-1] += np.diff(mend)
    cells[0] = float(ndtr(z[0])) + mend[0]
    cells[-1] = float(ndtr(-z[-1])) - mend[-1]
    return np.maximum(cells, 0.0)


@dataclass(frozen=True, slots=True)
class DiscreteGaussianPair:
    """Integer noise P(k) ∝ e^{−k²/2σ²}, centred s apart: losses (s/σ²)(k − s/2) at the integers k, each an atom.

    >>> cells = DiscreteGaussianPair(2.0, 1).masses(np.array([0.0]))
    >>> abs(float(cells.p[0] - cells.q[1])) < 1e-15
    True
    """

    noise_std: float
    shift: int

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        s2, s = self.noise_std**2, float(self.shift)
        cut = np.clip(np.floor(edges * (s2 / s) + 0.5 * s), -4e15, 4e15)
        return Masses(_integer_cells(self.noise_std, cut - s), _integer_cells(self.noise_std, cut), 0.0)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(L > high) are each at most exp(log_tail), the noise being σ²-subgaussian."""
        s = float(self.shift)
        reach = self.noise_std * math.sqrt(-2 * min(log_tail, -1e-9)) + 1
        step = s / self.noise_std**2
        return step * (0.5 * s - reach), step * (0.5 * s + reach)

    def std(self) -> float:
        """About the standard deviation of the loss."""
        if self.noise_std > 0.5:
            return self.shift / self.noise_std
        return self.shift / self.noise_std**2 * math.sqrt(2 * math.exp(-0.5 / self.noise_std**2))

    def lattice(self) -> float:
        """s/σ², or half of it for an odd shift; none where the atoms lie close beside the spread of the loss."""
        if self.noise_std > 24:
            return 0.0
        return self.shift / self.noise_std**2 * (0.5 if self.shift % 2 else 1.0)


# ------------------------------------------------------------------------------------------------ pairs from profiles


@dataclass(frozen=True, slots=True, eq=False)
class PolylinePair:
    """A pair whose profile is a polyline with many corners: atoms so dense that they need not be kept apart.

    >>> PolylinePair(randomized_response(1.0, 2)).span(-50.0)[1]
    1.0
    """

    law: AtomsPair

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        return self.law.masses(edges)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(high < L < ∞) are each at most exp(log_tail)."""
        return self.law.span(log_tail)

    def std(self) -> float:
        """Standard deviation of the finite loss."""
        return self.law.std()

    def lattice(self) -> float:
        """None worth keeping to."""
        return 0.0


def from_profile(losses: Array, heights: Array) -> PolylinePair:
    """The pair whose profile is the greatest convex function below the points given.

    ``losses`` rise and hold 0. ``heights`` are upper bounds on δ(ε) where ε ≥ 0, and on δ(ε) − (1 − e^ε) where ε < 0:
    what is left when the part that every pair has is taken away, so that both tails keep all their digits.

    >>> pair = from_profile(np.array([-1.0, 0.0, 1.0]), np.array([0.0, 0.3, 0.0]))
    >>> abs(float(pair.law.p.sum()) - 1) < 1e-12
    True
    """
    apart = np.diff(losses, prepend=-np.inf) > 1e-13 * np.abs(losses)  # fewer points are as valid
    losses, heights = losses[apart], heights[apart]
    middle = int(np.searchsorted(losses, 0.0))
    right = np.minimum.accumulate(np.minimum(heights[middle:], 1.0))
    cap = np.append(np.exp(losses[:middle]), right[0])
    left = np.minimum.accumulate(np.minimum(np.append(heights[:middle], right[0]), cap)[::-1])[::-1]
    at = [*losses.tolist()]
    value = [*left[:-1].tolist(), *right.tolist()]
    kept: list[int] = []
    for new in range(len(at)):
        while kept and _corner(at, value, kept[-2] if len(kept) > 1 else None, kept[-1], new) < 0:
            kept.pop()
        kept.append(new)
    while len(kept) > 1 and _corner(at, value, kept[-2], kept[-1], None) < 0:
        kept.pop()
    ends: list[int | None] = [None, *kept, None]
    p = np.array([max(_corner(at, value, a, b, c), 0.0) for a, b, c in zip(ends, kept, ends[2:], strict=False)])
    where = np.array([at[i] for i in kept])
    p_inf = value[kept[-1]] if at[kept[-1]] >= 0 else 1 - math.exp(at[kept[-1]]) + value[kept[-1]]
    if p_inf >= 1:
        return PolylinePair(everything())
    share = (1 - p_inf) / float(p.sum()) if p_inf < 0.5 else 1.0  # beside a large p_inf the difference has fewer digits than the sum
    return PolylinePair(AtomsPair(where[p > 0], p[p > 0] * share, p_inf))


def _corner(at: list[float], value: list[float], before: int | None, here: int, after: int | None) -> float:
    """The P-mass of the corner ``here`` of the polyline through its neighbours: α times the change of slope.

    ``before`` None is the point α = 0, where the profile is 1; ``after`` None means constant from here on.
    """
    low = at[here] < 0
    if after is None:
        gone = 0.0 if not low else math.exp(at[here])
    elif low and at[after] >= 0:
        gap = at[after] - at[here]
        gone = (value[after] - 1 - value[here]) / _expm1(gap) + math.exp(at[here]) / -math.expm1(-gap)
    else:
        gone = (value[after] - value[here]) / _expm1(at[after] - at[here])
    if before is None:
        come = value[here] if low else value[here] - 1
    elif low:
        come = (value[here] - value[before]) / -math.expm1(at[before] - at[here])
    else:
        earlier = value[before] if at[before] >= 0 else 1 - math.exp(at[before]) + value[before]
        come = (value[here] - earlier) / -math.expm1(at[before] - at[here])
    return gone - come


def _expm1(gap: float) -> float:
    return math.expm1(gap) if gap < 700 else math.inf


def profile(pair: Pair, losses: Array) -> tuple[Array, Array]:
    """(δ at ε, δ of the reversed pair at −ε) for increasing ε, raised by what rounding may have taken.

    >>> above, below = profile(randomized_response(1.0, 2), np.array([0.0]))
    >>> bool(abs(above[0] - math.tanh(0.5)) < 1e-12 and abs(below[0] - above[0]) < 1e-12)
    True
    """
    cells = pair.masses(losses)
    p, q = cells.p, cells.q
    above_p, above_q = p[::-1].cumsum()[-2::-1] + cells.p_inf, q[::-1].cumsum()[-2::-1]
    below_p, below_q = p.cumsum()[:-1], q.cumsum()[:-1] + max(0.0, 1.0 - float(q.sum()))
    above_q, below_p = np.where(above_q < FEEBLE, 0.0, above_q), np.where(below_p < FEEBLE, 0.0, below_p)
    with np.errstate(divide="ignore"):
        high = above_p * (1 + _ROUNDING) - np.exp(np.minimum(losses + np.log(above_q), 1.0))
        low = below_q * (1 + _ROUNDING) - np.exp(np.minimum(np.log(below_p) - losses, 1.0))
    return np.maximum(high, 0.0), np.maximum(low, 0.0)


def rays(scale: float, top: float, *, dense: int = 64, growth: float = 1.004) -> Array:
    """0 and losses up to ``top``: evenly spaced over a dozen ``scale``, then ever wider.

    >>> float(rays(1.0, 2.0)[0]), bool(rays(1.0, 2.0)[-1] >= 2.0)
    (0.0, True)
    """
    step = max(scale, 1e-12) / dense
    near: Array = step * np.arange(min(12 * dense, math.ceil(top / step)) + 1.0)
    if near[-1] >= top:
        return near
    far: Array = float(near[-1]) * growth ** np.arange(1.0, math.ceil(math.log(top / near[-1]) / math.log(growth)) + 1.0)
    return np.concatenate((near, far))


def both_ways(losses: Array, upward: Array, downward: Array | None = None) -> PolylinePair:
    """The pair of a profile given at ``losses`` ≥ 0 (the first of them 0), and of its reverse (the same if not given).

    >>> both_ways(np.array([0.0, 1.0]), np.array([0.2, 0.0])).law.losses
    array([-1.,  0.,  1.])
    """
    back = upward if downward is None else downward
    with np.errstate(under="ignore"):
        left = back[:0:-1] * np.exp(-losses[:0:-1])
    return from_profile(np.concatenate((-losses[:0:-1], losses)), np.concatenate((left, upward)))


_SLOPES = 1 + np.sort(np.concatenate((np.geomspace(1e-3, 1e5, 241), np.arange(1.0, 41.0))))


def renyi_heights(curve: Callable[[Array], Array], losses: Array) -> Array:
    """δ at ``losses`` ≥ 0 from upper bounds on the divergence at orders > 1: Canonne, Kamath & Steinke 2020, Proposition 12.

    >>> float(renyi_heights(lambda orders: 0.5 * orders, np.array([4.0]))[0]) < 2e-3
    True
    """
    divergence = np.asarray(curve(_SLOPES), dtype=np.float64)
    log_height = np.zeros(len(losses))
    for order, d in zip(_SLOPES.tolist(), divergence.tolist(), strict=True):
        if math.isfinite(d):
            slack = order * math.log1p(-1 / order) - math.log(order - 1)
            np.minimum(log_height, (order - 1) * (d - losses) + slack, out=log_height)
    return np.exp(log_height)


def selected_pairs(
    pairs: tuple[Pair, ...], mean: float, lift: Callable[[Array, Array], Array], heights: Callable[[Array], Array]
) -> tuple[PolylinePair, ...]:
    """The best of K runs, each dominated by ``pairs`` (both ways, or one way each): δ(ε) ≤ E[K] δ₁(ε − l).

    l is the largest ``lift`` log φ′(1 − u)/φ′(1 − v), φ the generating function of K, over the chances u and v that one
    run does better than a given one on either dataset. ``heights`` bounds δ in another way; the lesser counts.

    >>> one = randomized_response(1.0, 2)
    >>> twice = selected_pairs((one,), 1.0, lambda u, v: np.zeros_like(u), np.ones_like)
    >>> twice[0].law.losses
    array([-1.,  1.])
    """
    lifts = [float(np.max(lift(*_chances(group_pair(pair, 1).law)))) * (1 + 1e-12) for pair in pairs]
    ends = [max(abs(x) for x in pair.span(_LOG_CUT)) + gap for pair, gap in zip(pairs, lifts, strict=True)]
    losses = np.unique(np.concatenate((rays(max(pair.std() for pair in pairs), max(ends)), ends)))
    beside = heights(losses)
    sides = [np.minimum(mean * profile(pair, losses - gap)[0], beside) for pair, gap in zip(pairs, lifts, strict=True)]
    return tuple(both_ways(losses, side, other) for side, other in zip(sides, reversed(sides), strict=True))


def _chances(law: AtomsPair) -> tuple[Array, Array]:
    """P- and Q-mass of all events {loss ≤ x}: the corners of the curve below which no event's chances lie."""
    q = np.exp(np.log(law.p) - law.losses)
    u = np.append(0.0, np.cumsum(law.p))
    return u, np.append(np.cumsum(np.append(max(0.0, 1 - float(q.sum())), q))[:-1], 1.0)


def zcdp_pair(rho: float) -> PolylinePair:
    """The pair of any ρ-zCDP mechanism.

    >>> zcdp_pair(0.5).law.p_inf < 1e-40
    True
    """
    scale = math.sqrt(2 * rho)
    losses = rays(scale, rho + 2 * math.sqrt(-_LOG_CUT * rho))
    shift = np.linspace(-1.0, 1.5, 61)[:, None]
    best = 1 + np.maximum((losses + rho) / (2 * rho) - 1, 0.3 / scale)
    order = 1 + (best - 1) * np.exp(shift)
    for _ in range(2):
        height = _conversion(order, rho, losses)
        at = height.argmin(axis=0)
        centre = order[at, np.arange(len(losses))]
        shift = shift / 15
        order = 1 + (centre - 1) * np.exp(shift)
    return both_ways(losses, np.exp(np.minimum(_conversion(order, rho, losses).min(axis=0), 0.0)))


def _conversion(order: Array, rho: float, losses: Array) -> Array:
    value: Array = (order - 1) * (rho * order - losses) + order * np.log1p(-1 / order) - np.log(order - 1)
    return value


def group_pair(pair: Pair, size: int) -> PolylinePair:
    """``size`` moves, each of them dominated by ``pair``: δ_k(ε) ≤ δ(ε/k)(1 + e^{ε/k} + … + e^{(k−1)ε/k}), both ways.

    >>> float(group_pair(randomized_response(1.0, 2), 2).law.losses[-1])
    2.0
    """
    low, high = pair.span(_LOG_CUT)
    reach = max(abs(low), abs(high))
    scale = min(pair.std(), reach)
    losses = np.unique(np.concatenate((rays(scale, reach), [x for x in (abs(low), abs(high)) if x > 0])))
    upward, _ = profile(pair, losses)
    _, downward = profile(pair, -losses[::-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(losses > 0, np.expm1(-size * losses) / np.expm1(-losses), float(size))
        log_factor = (size - 1) * losses + np.log(ratio)
        sides = [np.exp(np.minimum(np.log(side) + log_factor, 0.0)) for side in (upward, downward[::-1])]
    return both_ways(size * losses, *sides)


def lesser(pairs: tuple[PolylinePair, ...]) -> PolylinePair:
    """What lies below several pairs, each of them a bound both ways.

    >>> lesser((both_ways(np.array([0.0, 1.0]), np.array([0.2, 0.1])), both_ways(np.array([0.0, 1.0]), np.array([0.3, 0.0])))).law.p_inf
    0.0
    """
    losses = np.unique(np.concatenate([[0.0], *(np.abs(pair.law.losses) for pair in pairs)]))
    return both_ways(losses, np.minimum.reduce([profile(pair, losses)[0] for pair in pairs]))


def replaced_sample_pair(one: Pair, two: Pair, probability: float) -> PolylinePair:
    """A Poisson batch under replacement: δ(log(1 + q(α − 1))) ≤ q[(1 − β)δ₁(α) + βδ₂(α)], β = (1 + q(α − 1))/α.

    δ₁ is the profile of presence against absence, δ₂ that of one unit's data against another's
    (advanced joint convexity; Balle, Barthe & Gaboardi 2018, Theorem 2).

    >>> two = randomized_response(2.0, 2)
    >>> pair = replaced_sample_pair(randomized_response(1.0, 2), two, 0.5)
    >>> abs(float(pair.law.losses[-1]) - math.log1p(0.5 * math.expm1(2.0))) < 1e-12
    True
    """
    ends = [abs(x) for pair in (one, two) for x in pair.span(_LOG_CUT)]
    losses = np.unique(np.concatenate((rays(two.std(), max(ends)), [x for x in ends if x > 0])))
    first, second = profile(one, losses)[0], profile(two, losses)[0]
    q = probability
    with np.errstate(over="ignore"):
        shrink = q - np.minimum(0.0, q - 1) * np.exp(-losses)  # β
        outer = losses + np.log(shrink)
    outer[0] = 0.0
    small = losses < 1
    outer[small] = np.log1p(q * np.expm1(losses[small]))
    keep = np.concatenate(([True], np.diff(outer) > 0))
    return both_ways(outer[keep], (q * ((1 - shrink) * first + shrink * second))[keep])
