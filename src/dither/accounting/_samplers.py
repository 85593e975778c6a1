"""Operators on dominating pairs: what sampling, mixing and choice make of them. Proofs: docs/proofs/samplers-pricing.md.

Each works on the cells of the pair it is given: an edge of the new loss is carried back to an edge of the old one, so
nothing is put on a grid before ``_compose`` does it once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtri_exp

from dither.accounting._pair import Array, Masses, Pair
from dither.accounting._pairs import (
    AtomsPair,
    Direction,
    GaussianPair,
    LaplacePair,
    MixtureGaussianPair,
    SubsampledGaussianPair,
    _normal_cells,
)
from dither.accounting._shuffle import lower_tail, upper_tail

_FAR = 30.0
_CELLS = 512
_CUT = 1e-60
_SEEN = 4096


def thinned(pure: float, probability: float) -> float:
    """log(1 + q(e^x − 1)): the largest loss left of one of x by a sample that holds the unit with probability q.

    >>> thinned(1.0, 1.0)
    1.0
    """
    if probability >= 1 or math.isinf(pure):
        return pure
    if pure < _FAR:
        return math.log1p(probability * math.expm1(pure))
    return pure + math.log(probability) + math.log1p((1 - probability) / probability * math.exp(-pure))


def _carried_back(loss: Array, probability: float) -> Array:
    """The x with log(1 + q(e^x − 1)) = loss; −∞ where the loss is not above log(1 − q)."""
    q = probability
    with np.errstate(divide="ignore", over="ignore"):
        near = np.log1p(np.maximum(np.expm1(np.minimum(loss, _FAR)) / q, -1.0))
        far = loss + np.log1p((q - 1) * np.exp(-np.maximum(loss, _FAR))) - math.log(q)
    return np.where(loss < _FAR, near, far)


def _carried(loss: Array, probability: float) -> Array:
    with np.errstate(over="ignore"):
        near = np.log1p(probability * np.expm1(np.minimum(loss, _FAR)))
    far = np.logaddexp(math.log1p(-probability) if probability < 1 else -np.inf, math.log(probability) + loss)
    return np.where(loss < _FAR, near, far)


def _deviation(values: Array, p: Array) -> float:
    total = float(p.sum())
    if not total > 0:
        return 0.0
    mean = float(p @ values) / total
    return math.sqrt(float(p @ (values - mean) ** 2) / total)


@dataclass(frozen=True, slots=True)
class PoissonPair:
    """``remove``: (1−q)Q + qP against Q; ``add``: P against (1−q)P + qQ (Zhu, Dong & Wang 2022, Theorem 11).

    >>> pair = PoissonPair(LaplacePair(1.0), 0.5, "remove")
    >>> abs(pair.span(-60.0)[1] - math.log1p(0.5 * math.expm1(1.0))) < 1e-12
    True
    """

    inner: Pair
    probability: float
    direction: Direction

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        q = self.probability
        remove = self.direction == "remove"
        back = _carried_back(edges, q) if remove else -_carried_back(-edges[::-1], q)[::-1]
        held = np.isfinite(back)
        kept = back[held]
        inner = self.inner.masses(kept if len(kept) else np.zeros(1))
        if not len(kept):
            inner = Masses(inner.p.sum(keepdims=True), inner.q.sum(keepdims=True), inner.p_inf)
        p, q_cells = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
        place = slice(len(edges) - len(kept), None) if remove else slice(0, len(kept) + 1)
        p[place], q_cells[place] = inner.p, inner.q
        bound = math.log1p(-q) if q < 1 else -math.inf
        if remove:
            mixed, p_inf = (1 - q) * q_cells + q * p, q * inner.p_inf
            lost = max(0.0, 1.0 - float(q_cells.sum()))  # Q-mass where P has none: its loss is now log(1 − q)
            if lost and q < 1:
                at = int(np.searchsorted(edges, bound, "left"))
                mixed[at] += (1 - q) * lost
                q_cells[at] += lost
            return Masses(mixed, q_cells, p_inf)
        mixed, p_inf = (1 - q) * p + q * q_cells, inner.p_inf
        if p_inf and q < 1:
            at = int(np.searchsorted(edges, -bound, "left"))
            p[at] += p_inf
            mixed[at] += (1 - q) * p_inf
            p_inf = 0.0
        return Masses(p, mixed, p_inf)

    def _lowest(self, low: float, high: float, log_tail: float) -> float:
        """A loss of ``inner``, whose span is given, below which Q, too, has at most exp(log_tail)."""
        tail, reach, floor = math.exp(log_tail), max(high - low, 1e-3), -700.0 if self.probability < 1 else -1e9
        while low > floor and float(self.inner.masses(np.array([low])).q[0]) > tail:
            low, reach = low - reach, 2 * reach
        return low

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(high < L < ∞) are each at most exp(log_tail)."""
        q = self.probability
        low, high = self.inner.span(log_tail)
        if self.direction == "remove":
            at = self._lowest(low, high, log_tail)
            least = float(_carried(np.array([at]), q)[0])
            if q < 1 and (at <= -_FAR or 1.0 - float(self.inner.masses(np.array([at])).q.sum()) > 0.5 * math.exp(log_tail)):
                least = math.log1p(-q)
            return _below(least), max(float(_carried(np.array([max(high, 0.0)]), q)[0]), _below(least))
        least, most = (-float(_carried(np.array([-x]), q)[0]) for x in (low, high))
        if q < 1 and self.inner.masses(np.zeros(1)).p_inf > 0:
            most = -math.log1p(-q)
        return _below(least), most + abs(most) * 1e-15

    def std(self) -> float:
        """About the standard deviation of the loss."""
        low, high = self.inner.span(-25.0)
        edges = np.linspace(low, high, _CELLS)
        cells = self.inner.masses(edges)
        middle = np.concatenate((edges[:1], 0.5 * (edges[1:] + edges[:-1]), edges[-1:]))
        if self.direction == "remove":
            return _deviation(_carried(middle, self.probability), (1 - self.probability) * cells.q + self.probability * cells.p)
        return _deviation(-_carried(-middle, self.probability), cells.p)

    def lattice(self) -> float:
        """None worth keeping to."""
        return 0.0


def _below(loss: float) -> float:
    """A hair lower, so that an atom at ``loss`` is above it in spite of rounding."""
    return loss - 1e-13 * max(abs(loss), 1e-290)


def poisson(inner: Pair, probability: float, direction: Direction) -> Pair:
    """The pair of a Poisson batch; the closed form where ``inner`` is Gaussian.

    >>> poisson(GaussianPair(2.0), 0.1, "remove")
    SubsampledGaussianPair(noise_multiplier=2.0, probability=0.1, direction='remove')
    """
    if probability >= 1:
        return inner
    if isinstance(inner, GaussianPair):
        return SubsampledGaussianPair(inner.noise_multiplier, probability, direction)
    if isinstance(inner, AtomsPair):
        return _thinned_atoms(inner, probability, direction)
    return PoissonPair(inner, probability, direction)


def _thinned_atoms(inner: AtomsPair, q: float, direction: Direction) -> AtomsPair:
    """The same of a finite law: each atom moves to a loss of its own."""
    some = inner.p > 0
    losses, p = inner.losses[some], inner.p[some]
    with np.errstate(over="ignore", under="ignore"):
        seen = np.exp(np.log(p) - losses)  # the Q-masses
    lost = max(0.0, 1.0 - math.fsum(seen))
    if direction == "remove":
        losses, p, p_inf = _carried(losses, q), (1 - q) * seen + q * p, q * inner.p_inf
        bound = math.log1p(-q), (1 - q) * lost  # Q-mass where P has none
        if bound[1] > 1e-15 or not len(losses):
            losses, p = np.concatenate(([bound[0]], losses)), np.concatenate(([bound[1]], p))
    else:
        losses, p_inf = -_carried(-losses, q), 0.0
        if inner.p_inf > 0:
            losses, p = np.append(losses, -math.log1p(-q)), np.append(p, inner.p_inf)
    first = np.concatenate(([0], np.flatnonzero(np.diff(losses) > 0) + 1)) if len(losses) else np.zeros(0, dtype=np.int64)
    last = np.append(first[1:], len(losses)) - 1 if len(losses) else first
    return AtomsPair(losses[last], np.add.reduceat(p, first) if len(losses) else p, p_inf)


@dataclass(frozen=True, slots=True)
class HalvesPair:
    """The profile of ``upper`` at losses above 0 and of ``lower`` below 0, joined by an atom at 0.

    Both must have the same total variation distance, as ((1−γ)Q + γP, Q) and (P, (1−γ)P + γQ) have.

    >>> pair = HalvesPair(poisson(GaussianPair(1.0), 0.5, "remove"), poisson(GaussianPair(1.0), 0.5, "add"))
    >>> abs(float(pair.masses(np.array([-1.0, 0.0, 1.0])).p.sum()) - 1) < 1e-12
    True
    """

    upper: Pair
    lower: Pair

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        positive, negative = edges[edges >= 0], edges[edges < 0]
        top = self.upper.masses(np.concatenate(([0.0], positive[positive > 0])))
        bottom = self.lower.masses(np.concatenate((negative, [-1e-300])))
        p, q = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
        k = len(negative)  # cell k is the one with 0 in it: (last negative edge, first edge ≥ 0]
        p[: k + 1], q[: k + 1] = bottom.p[:-1], bottom.q[:-1]
        shift = 1 if len(positive) and positive[0] == 0 else 0
        p[k + shift :] += top.p[1:]
        q[k + shift :] += top.q[1:]
        still = 1.0 - math.fsum(top.p[1:]) - top.p_inf - math.fsum(bottom.p[:-1])
        p[k] += max(still, 0.0)
        q[k] += max(still, 0.0)
        return Masses(p, q, top.p_inf)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(high < L < ∞) are each at most exp(log_tail)."""
        return min(self.lower.span(log_tail)[0], -1e-290), max(self.upper.span(log_tail)[1], 0.0)

    def std(self) -> float:
        """About the standard deviation of the loss."""
        return max(self.upper.std(), self.lower.std())

    def lattice(self) -> float:
        """None worth keeping to."""
        return 0.0


@dataclass(frozen=True, slots=True)
class MixPair:
    """One of several pairs, chosen by a coin that all may see; the weight missing to 1 is lost altogether (loss ∞).

    >>> MixPair((0.5, 0.5), (LaplacePair(1.0), LaplacePair(0.5))).span(-50.0)[1]
    2.0
    """

    weights: tuple[float, ...]
    pairs: tuple[Pair, ...]
    lost: float = 0.0

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        parts = [pair.masses(edges) for pair in self.pairs]
        p, q = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
        p_inf = self.lost
        for weight, part in zip(self.weights, parts, strict=True):
            p, q, p_inf = p + weight * part.p, q + weight * part.q, p_inf + weight * part.p_inf
        return Masses(p, q, p_inf)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(high < L < ∞) are each at most exp(log_tail)."""
        ends = [
            pair.span(min(log_tail - math.log(weight * len(self.pairs)), -1e-9))
            for weight, pair in zip(self.weights, self.pairs, strict=True)
            if weight * len(self.pairs) > math.exp(log_tail)
        ]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def std(self) -> float:
        """About the standard deviation of the loss."""
        return math.sqrt(sum(w * pair.std() ** 2 for w, pair in zip(self.weights, self.pairs, strict=True)))

    def lattice(self) -> float:
        """That of all, if they agree."""
        steps = {pair.lattice() for pair in self.pairs}
        return steps.pop() if len(steps) == 1 else 0.0


@dataclass(frozen=True, slots=True)
class MaxPair:
    """The pair whose profile is, at every α, the largest of several: which of them is met is not known.

    >>> pair = MaxPair((LaplacePair(1.0), GaussianPair(2.0)))
    >>> abs(float(pair.masses(np.array([-1.0, 0.0, 1.0])).p.sum()) - 1) < 1e-12
    True
    """

    pairs: tuple[Pair, ...]

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        parts = [pair.masses(edges) for pair in self.pairs]
        p = np.array([part.p for part in parts])
        q = np.array([part.q for part in parts])
        p_inf = np.array([part.p_inf for part in parts])
        above_p = p[:, ::-1].cumsum(axis=1)[:, -2::-1] + p_inf[:, None]
        above_q = q[:, ::-1].cumsum(axis=1)[:, -2::-1]
        below_p, below_q = p.cumsum(axis=1)[:, :-1], q.cumsum(axis=1)[:, :-1]
        lost = np.maximum(0.0, 1.0 - q.sum(axis=1))
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.exp(np.minimum(edges, 700.0))
            height = np.where(edges >= 0, above_p - scale * above_q, scale * (below_q + lost[:, None]) - below_p)
        best = height.argmax(axis=0)
        columns = np.arange(len(edges))
        cells = np.arange(1, len(edges))
        same = best[1:] == best[:-1]
        made = []
        for mass, above, below in ((p, above_p, below_p), (q, above_q, below_q)):
            up, down = above[best, columns], below[best, columns]
            jump = np.where(edges[1:] <= 0, down[1:] - down[:-1], up[:-1] - up[1:])
            inner = np.where(same, mass[best[1:], cells], np.maximum(jump, 0.0))
            made.append(np.concatenate((mass[best[0], :1], inner, mass[best[-1], -1:])))
        return Masses(made[0], made[1], float(p_inf[best[-1]]))

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(high < L < ∞) are each at most exp(log_tail)."""
        ends = [pair.span(log_tail) for pair in self.pairs]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def std(self) -> float:
        """About the standard deviation of the loss."""
        return max(pair.std() for pair in self.pairs)

    def lattice(self) -> float:
        """That of all, if they agree."""
        steps = {pair.lattice() for pair in self.pairs}
        return steps.pop() if len(steps) == 1 else 0.0


@dataclass(frozen=True, slots=True)
class ReplacedGaussianPair:
    """(1−q) N(0, σ²) + q N(1, σ²) against (1−q) N(0, σ²) + q N(−1, σ²): a Poisson batch under replacement.

    With a = (1−q)/(q e^{−1/2σ²}) the loss e is met at x = σ²(e/2 + asinh(a sinh(e/2))), which rises with e.

    >>> pair = ReplacedGaussianPair(1.0, 0.5)
    >>> cells = pair.masses(np.array([0.0]))
    >>> abs(float(cells.p[0] - cells.q[1])) < 1e-15
    True
    """

    noise_multiplier: float
    probability: float

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        s, q = self.noise_multiplier, self.probability
        x = self._output(edges)
        absent, up, down = (_normal_cells((x - shift) / s) for shift in (0.0, 1.0, -1.0))
        return Masses((1 - q) * absent + q * up, (1 - q) * absent + q * down, 0.0)

    def _output(self, loss: Array) -> Array:
        s2, q = self.noise_multiplier**2, self.probability
        if q >= 1:
            return 0.5 * s2 * loss
        log_a = math.log1p(-q) - math.log(q) + 0.5 / s2
        half = 0.5 * np.abs(loss)
        with np.errstate(over="ignore", divide="ignore"):
            log_sinh = np.where(half < 1, np.log(np.sinh(np.minimum(half, 1.0))), half + np.log1p(-np.exp(-2 * half)) - math.log(2))
            t = log_a + log_sinh  # asinh(e^t)
            up = np.where(t < _FAR, np.arcsinh(np.exp(np.minimum(t, _FAR))), t + math.log(2))
        return s2 * np.sign(loss) * (half + up)

    def _loss(self, x: float) -> float:
        s2, q = self.noise_multiplier**2, self.probability
        stay = math.log1p(-q) if q < 1 else -math.inf
        up, down = math.log(q) + (x - 0.5) / s2, math.log(q) + (-x - 0.5) / s2
        return float(np.logaddexp(stay, up) - np.logaddexp(stay, down))

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(L > high) are each at most exp(log_tail)."""
        s, q = self.noise_multiplier, self.probability
        each = log_tail - math.log(2)
        low = s * float(ndtri_exp(each))
        high = max(-low, 1 - s * float(ndtri_exp(min(each - math.log(q), -1e-12))))
        ends = self._loss(low), self._loss(high)
        return ends[0] - 1e-15 * max(1.0, -ends[0]), ends[1] + 1e-15 * max(1.0, ends[1])  # the loss is good to an ulp of 1

    def std(self) -> float:
        """About the standard deviation of the loss."""
        s, q = self.noise_multiplier, self.probability
        return min(2 * q * math.sqrt(math.expm1(min(1 / (s * s), 50.0))), 2 * math.sqrt(q) * (1 / s + math.sqrt(1 - q) / (s * s)))

    def lattice(self) -> float:
        """No atoms."""
        return 0.0


def without_replacement(inner: Pair, share: float) -> Pair:
    """One unit's data replaced; a batch of fixed size holds it with probability ``share``."""
    if share >= 1:
        return inner
    return HalvesPair(poisson(inner, share, "remove"), poisson(inner, share, "add"))


@lru_cache(maxsize=256)
def times_drawn(size: int, population: int, bins: int = 64) -> tuple[float, tuple[tuple[int, float], ...], float]:
    """How often one of ``population`` units is drawn in ``size`` draws with replacement.

    (Pr[at least once], ((k, weight) …), lost): the law given at least once. Where there are more than ``bins`` counts,
    neighbours are counted as their largest; ``lost`` is the weight beyond the last.

    >>> share, law, lost = times_drawn(1, 10)
    >>> round(share, 12), law
    (0.1, ((1, 1.0),))
    """
    if population == 1:
        return 1.0, ((size, 1.0),), 0.0
    rate = 1.0 / population
    share = -math.expm1(size * math.log1p(-rate))
    mean = size * rate
    reach = 20.0 * math.sqrt(mean) + 130.0  # what is beyond weighs less than e^−140, by Chernoff
    low, top = max(1, math.floor(mean - reach)), min(size, math.ceil(mean + reach))
    seen = np.unique(np.floor(np.linspace(low, top, min(top - low + 1, _SEEN))))
    kept = int(np.count_nonzero(upper_tail(size, rate, seen) > _CUT * share))
    top = int(seen[kept - 1])
    ends = np.unique(np.floor(np.linspace(low, top, min(top - low + 1, bins))))
    starts = np.append(1.0, ends + 1)
    above, below = upper_tail(size, rate, starts), lower_tail(size, rate, starts)
    weights = np.maximum(np.where(ends <= mean, np.diff(below), -np.diff(above)), 0.0)
    lost = float(above[-1]) / share
    weights *= (1 - lost) / float(weights.sum())
    return share, tuple(zip(ends.astype(int).tolist(), weights.tolist(), strict=True)), lost


def largest(pairs: tuple[Pair, ...]) -> Pair:
    """The pair of the largest profile; one of them where it is known to be above the others everywhere.

    >>> largest((GaussianPair(1.0), GaussianPair(2.0)))
    GaussianPair(noise_multiplier=1.0)
    """
    kept: list[Pair] = []
    for kind in (GaussianPair, LaplacePair):
        alike = [pair for pair in pairs if isinstance(pair, kind)]
        if alike:
            kept.append(min(alike, key=lambda pair: pair.noise_multiplier))
    for q, direction in dict.fromkeys((p.probability, p.direction) for p in pairs if isinstance(p, SubsampledGaussianPair)):
        same = [p for p in pairs if isinstance(p, SubsampledGaussianPair) and (p.probability, p.direction) == (q, direction)]
        kept.append(min(same, key=lambda pair: pair.noise_multiplier))
    finite = list(dict.fromkeys(p for p in pairs if isinstance(p, AtomsPair)))
    kept.extend(p for p in finite if not any(_above(other, p) for other in finite if other is not p))
    kept.extend(dict.fromkeys(p for p in pairs if not isinstance(p, GaussianPair | LaplacePair | SubsampledGaussianPair | AtomsPair)))
    return kept[0] if len(kept) == 1 else MaxPair(tuple(kept))


def _above(one: AtomsPair, other: AtomsPair) -> bool:
    """Whether the profile of one finite law is nowhere below the other's, which it is if it is above at every corner of both."""
    edges = np.union1d(one.losses, other.losses)
    own, theirs = _heights(one, edges), _heights(other, edges)
    return bool((own >= theirs).all() and (own > theirs).any()) and one.p_inf >= other.p_inf


def _heights(pair: AtomsPair, edges: Array) -> Array:
    """δ(ε) for the edges ε ≥ 0, and δ(ε) − (1 − e^ε) for those below, of positive terms on the near side."""
    made = pair.masses(edges)
    scale = np.exp(np.minimum(edges, 700.0))
    above_p, above_q = (m[::-1].cumsum()[::-1][1:] for m in (made.p, made.q))
    below_p, below_q = made.p.cumsum()[:-1], made.q.cumsum()[:-1]
    lost = 1.0 - float(made.q.sum())
    lost = lost if lost > 1e-14 else 0.0  # less is the rounding of a law that is whole: left of its first loss nothing is then left
    first = edges <= pair.losses[0]
    low = np.where(first, scale * lost, scale * (below_q + lost) - below_p)
    return np.where(edges >= 0, above_p + made.p_inf - scale * above_q, low)


def layers(pair: Pair) -> int:
    """How many times a law is asked for its cells when the pair is asked once: doubled by every sampler within a sampler.

    >>> layers(without_replacement(LaplacePair(1.0), 0.5))
    4
    """
    if isinstance(pair, PoissonPair):
        return 1 + layers(pair.inner)
    if isinstance(pair, HalvesPair):
        return layers(pair.upper) + layers(pair.lower)
    return sum(layers(member) for member in pair.pairs) if isinstance(pair, MixPair | MaxPair) else 1


def is_smooth(pair: Pair) -> bool:
    """Whether the pair is made of Gaussians and Laplaces alone, however sampled, mixed and chosen.

    >>> is_smooth(MaxPair((GaussianPair(1.0), poisson(LaplacePair(1.0), 0.1, "add"))))
    True
    """
    if isinstance(pair, MixPair | MaxPair):
        return all(is_smooth(member) for member in pair.pairs)
    if isinstance(pair, HalvesPair):
        return is_smooth(pair.upper) and is_smooth(pair.lower)
    if isinstance(pair, PoissonPair):
        return is_smooth(pair.inner)
    return isinstance(pair, GaussianPair | LaplacePair | SubsampledGaussianPair | MixtureGaussianPair | ReplacedGaussianPair)
