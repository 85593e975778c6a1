"""The dominating pairs that have a closed form: Gaussian, subsampled and mixed Gaussians, Laplace, finite laws.

Every mass is computed as a mass: tails as tails, differences of the nearer tail, cells of a Laplace law by expm1. Where
P and Q are mixtures, both masses of a cell come from the *same* cuts in the space of outputs, so that the rounding of a
cut moves a little P and Q together and never lowers the price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, logsumexp, ndtr, ndtri_exp

from dither.accounting._pair import Array, Masses, Pair
from dither.core import checks
from dither.core.errors import InputError

Direction: TypeAlias = Literal["remove", "add"]
"""``remove``: P is the law with the unit's data in it; ``add``: Q is."""

_NARROW = 1e-3
_SQRT_TAU = math.sqrt(2 * math.pi)
_LOG_HALF = -math.log(2)
_COARSE = 512
_BLOCK = 1_000_000


def _normal_cells(z: Array) -> Array:
    """Masses of a standard normal between increasing cuts (±∞ allowed), each to a few ulps of itself."""
    below, above = ndtr(z), ndtr(-z)
    left, right = z[:-1], z[1:]
    inner = np.where(right < 0, below[1:] - below[:-1], above[:-1] - above[1:])
    with np.errstate(invalid="ignore"):
        width, middle = right - left, 0.5 * (left + right)
        narrow = width * (1 + np.abs(middle)) < _NARROW  # a difference would lose digits: the density at the middle keeps them
    if narrow.any():
        w, m = width[narrow], middle[narrow]
        inner[narrow] = np.exp(-0.5 * m * m) / _SQRT_TAU * w * (1 + w * w * (m * m - 1) / 24)
    return np.concatenate((below[:1], np.maximum(inner, 0.0), above[-1:]))


def _direction(value: object) -> None:
    if value not in ("remove", "add"):
        raise checks.refuse("direction", value, "'remove' (P holds the unit's data) or 'add' (Q does)")


@dataclass(frozen=True, slots=True)
class GaussianPair:
    """N(1, σ²) against N(0, σ²): the loss is N(μ²/2, μ²) with μ = 1/σ, both ways.

    >>> GaussianPair(2.0).std()
    0.5
    """

    noise_multiplier: float

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        mu = 1 / self.noise_multiplier
        z = edges / mu
        return Masses(_normal_cells(z - 0.5 * mu), _normal_cells(z + 0.5 * mu), 0.0)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(L > high) are each at most exp(log_tail)."""
        mu = 1 / self.noise_multiplier
        z = _quantile(log_tail)
        return mu * (0.5 * mu + z), mu * (0.5 * mu - z)

    def std(self) -> float:
        """Standard deviation of the loss."""
        return 1 / self.noise_multiplier

    def lattice(self) -> float:
        """No atoms."""
        return 0.0


def _quantile(log_probability: float) -> float:
    """The z with log Φ(z) ≤ log_probability, −∞ … 8."""
    if log_probability >= -1e-15:
        return 8.0
    return float(ndtri_exp(log_probability))


@dataclass(frozen=True, slots=True)
class SubsampledGaussianPair:
    """(1−q) N(0, σ²) + q N(1, σ²) against N(0, σ²) (``remove``), or the other way round (``add``).

    It dominates a Gaussian run on a Poisson batch (Zhu, Dong & Wang 2022, Theorem 11).

    >>> SubsampledGaussianPair(1.0, 0.5, "add").span(-10.0)[1] < math.log(2)
    True
    """

    noise_multiplier: float
    probability: float
    direction: Direction

    def __post_init__(self) -> None:
        _direction(self.direction)

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        s, q = self.noise_multiplier, self.probability
        remove = self.direction == "remove"
        x = self._output(edges if remove else -edges[::-1])
        absent, present = _normal_cells(x / s), _normal_cells((x - 1) / s)
        mixed = (1 - q) * absent + q * present
        if remove:
            return Masses(mixed, absent, 0.0)
        return Masses(absent[::-1], mixed[::-1], 0.0)

    def _output(self, loss: Array) -> Array:
        """The output x whose loss (mixture over plain) this is; −∞ where the loss is below log(1−q)."""
        s, q = self.noise_multiplier, self.probability
        if q == 1:
            return s * s * loss + 0.5
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            near = np.log(np.maximum((np.expm1(np.minimum(loss, 30.0)) + q) / q, 0.0))
            far = loss + np.log1p((q - 1) * np.exp(-np.maximum(loss, 30.0))) - math.log(q)
            return s * s * np.where(loss < 30.0, near, far) + 0.5

    def _loss(self, x: float) -> float:
        s, q = self.noise_multiplier, self.probability
        t = (x - 0.5) / (s * s)
        if q == 1:
            return t
        return math.log1p(q * math.expm1(t)) if t < 30.0 else float(np.logaddexp(math.log1p(-q), math.log(q) + t))

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(L > high) are each at most exp(log_tail)."""
        s, q = self.noise_multiplier, self.probability
        x_low = s * _quantile(log_tail)
        if self.direction == "add":
            return -self._loss(-x_low), -self._loss(x_low)
        each = log_tail + _LOG_HALF
        x_high = max(-s * _quantile(each), 1 - s * _quantile(each - math.log(q)))
        return self._loss(x_low), self._loss(x_high)

    def std(self) -> float:
        """About the standard deviation of the loss."""
        s, q = self.noise_multiplier, self.probability
        small = q * math.sqrt(math.expm1(min(1 / (s * s), 50.0)))
        return min(small, math.sqrt(q) * (1 / s + math.sqrt(1 - q) / (s * s)))

    def lattice(self) -> float:
        """No atoms."""
        return 0.0


@dataclass(frozen=True, slots=True)
class MixtureGaussianPair:
    """Σ_j w_j N(j, σ²), j = 0 … k, against N(0, σ²) (``remove``), or the other way round (``add``).

    With binomial weights it prices a group of k units under Poisson sampling. The loss rises with the output, and the
    output of a loss is found by Newton's method from the right of a convex function, where every step stays right.

    >>> pair = MixtureGaussianPair(1.0, (0.9, 0.1), "remove")
    >>> float(pair.masses(np.array([0.0])).p.sum())
    1.0
    """

    noise_multiplier: float
    weights: tuple[float, ...]
    direction: Direction
    _shifts: Array = field(init=False, repr=False, compare=False)
    _log_weights: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _direction(self.direction)
        given = np.asarray(self.weights, dtype=np.float64)
        total = math.fsum(given.tolist())
        if given.ndim != 1 or not len(given) > 1 or not (given >= 0).all() or not abs(total - 1) < 1e-9 or not given[1:].sum() > 0:
            raise checks.refuse("weights", self.weights, "at least two numbers >= 0 that add to 1, not all on shift 0")
        shifts = np.flatnonzero(given[1:]) + 1
        object.__setattr__(self, "_shifts", shifts.astype(np.float64))
        object.__setattr__(self, "_log_weights", np.log(given[shifts]))

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        s = self.noise_multiplier
        remove = self.direction == "remove"
        x = self._output(edges if remove else -edges[::-1])
        absent = _normal_cells(x / s)
        mixed = self.weights[0] * absent
        for shift, log_weight in zip(self._shifts, self._log_weights, strict=True):
            mixed = mixed + math.exp(log_weight) * _normal_cells((x - shift) / s)
        if remove:
            return Masses(mixed, absent, 0.0)
        return Masses(absent[::-1], mixed[::-1], 0.0)

    def _output(self, loss: Array) -> Array:
        """The output x of each loss: solves log Σ_{j≥1} w_j e^{(2jx − j²)/2σ²} = log(e^loss − w_0)."""
        w0 = self.weights[0]
        rest = math.exp(float(logsumexp(self._log_weights)))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            near = np.log(np.maximum(np.expm1(np.minimum(loss, 30.0)) + rest, 0.0))
            target = np.where(loss < 30.0, near, loss + np.log1p(-w0 * np.exp(-np.maximum(loss, 30.0))))
        output = np.full(len(loss), -np.inf)
        finite = np.flatnonzero(np.isfinite(target))
        goal = target[finite]
        few = goal[np.unique(np.linspace(0, len(goal) - 1, _COARSE).astype(np.int64))] if len(goal) else np.zeros(1)
        guess = np.interp(goal, few, self._root(few, None))  # x is concave in the goal, so chords between a few roots are close
        block = max(1, _BLOCK // len(self._shifts))
        for i in range(0, len(goal), block):
            output[finite[i : i + block]] = self._root(goal[i : i + block], guess[i : i + block])
        return output

    def _root(self, goal: Array, guess: Array | None) -> Array:
        """The x with log Σ_{j≥1} w_j e^{(2jx − j²)/2σ²} = goal, by Newton's method."""
        s2 = self.noise_multiplier**2
        slope = self._shifts / s2
        intercept = self._log_weights - self._shifts**2 / (2 * s2)
        x = np.min((goal[:, None] - intercept) / slope, axis=1) if guess is None else guess
        for _ in range(60):
            terms = intercept + slope * x[:, None]
            top = terms.max(axis=1, keepdims=True)
            np.exp(np.subtract(terms, top, out=terms), out=terms)
            total = terms.sum(axis=1)
            step = (top[:, 0] + np.log(total) - goal) * total / (terms @ slope)
            x = x - step
            if not (np.abs(step) > 1e-14 * (np.abs(x) + s2)).any():
                break
        return np.asarray(x)

    def _loss(self, x: float) -> float:
        s2, w0 = self.noise_multiplier**2, self.weights[0]
        t = (2 * self._shifts * x - self._shifts**2) / (2 * s2)
        if w0 > 0 and t.max() < 30.0:
            return math.log1p(math.fsum((np.exp(self._log_weights) * np.expm1(t)).tolist()))
        logs = np.append(self._log_weights + t, math.log(w0) if w0 > 0 else -np.inf)
        return float(logsumexp(logs))

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(L > high) are each at most exp(log_tail)."""
        s, w0 = self.noise_multiplier, self.weights[0]
        x_low = s * _quantile(log_tail)
        if self.direction == "add":
            return -self._loss(-x_low), -self._loss(x_low)
        each = log_tail - math.log(len(self._shifts) + 1)
        highs = [float(j - s * _quantile(each - lw)) for j, lw in zip(self._shifts, self._log_weights, strict=True)]
        if w0 > 0:
            highs.append(-s * _quantile(each - math.log(w0)))
        return self._loss(x_low), self._loss(max(highs))

    def std(self) -> float:
        """About the standard deviation of the loss."""
        s = self.noise_multiplier
        weights = np.exp(self._log_weights)
        spread = self._shifts / s
        small = float(weights @ np.sqrt(np.expm1(np.minimum(spread**2, 50.0))))
        return min(small, math.sqrt(float(weights @ (spread**2 + spread**4))))

    def lattice(self) -> float:
        """No atoms."""
        return 0.0


@dataclass(frozen=True, slots=True)
class LaplacePair:
    """Laplace(0, b) against Laplace(1, b): the loss runs from −1/b to 1/b, with an atom at either end.

    >>> LaplacePair(2.0).span(-50.0)[1]
    0.5
    """

    noise_multiplier: float

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        top = 1 / self.noise_multiplier
        cuts = np.clip(edges, -top, top)
        width = -0.5 * np.expm1(-0.5 * np.diff(cuts, prepend=-top, append=top))
        left = np.concatenate(([-top], cuts))
        right = np.concatenate((cuts, [top]))
        p = np.exp(0.5 * (right - top)) * width
        q = np.exp(-0.5 * (left + top)) * width
        atom = 0.5 * math.exp(-top)
        low, high = np.searchsorted(edges, -top, "left"), np.searchsorted(edges, top, "left")
        p[low] += atom
        q[low] += 0.5
        p[high] += 0.5
        q[high] += atom
        return Masses(p, q, 0.0)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) ≤ exp(log_tail), and the loss is never above high."""
        top = 1 / self.noise_multiplier
        low = top + 2 * (log_tail - _LOG_HALF)  # P(L ≤ l) = exp((l − top)/2)/2
        return (-math.nextafter(top, math.inf) if low < -top else min(low, top)), top

    def std(self) -> float:
        """About the standard deviation of the loss."""
        return 1 / self.noise_multiplier

    def lattice(self) -> float:
        """Both atoms are at ±1/noise_multiplier."""
        return 1 / self.noise_multiplier


@dataclass(frozen=True, slots=True, eq=False)
class AtomsPair:
    """A finite law of the loss: P(L = losses[i]) = p[i], P(L = ∞) = p_inf, Q(L = losses[i]) = p[i] e^−losses[i].

    ``step`` is a number of which every loss is a whole multiple, when there is one.

    >>> AtomsPair(np.array([-1.0, 1.0]), np.array([0.5, 0.5]))
    Traceback (most recent call last):
    ...
    dither.core.errors.InputError: The loss law is not one: its Q-masses p·e^(−loss) add to more than 1.
    """

    losses: Array
    p: Array
    p_inf: float = 0.0
    step: float = 0.0
    _q: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        losses, p = np.asarray(self.losses, dtype=np.float64), np.asarray(self.p, dtype=np.float64)
        if losses.ndim != 1 or losses.shape != p.shape or not np.isfinite(losses).all() or not (np.diff(losses) > 0).all():
            raise checks.refuse("losses", self.losses, "an increasing array of finite numbers, as long as p")
        total = float(p.sum()) + self.p_inf
        if not (p >= 0).all() or not self.p_inf >= 0 or not abs(total - 1) <= 1e-9:
            raise checks.refuse("p", self.p, "probabilities that add to 1 with p_inf")
        with np.errstate(divide="ignore", over="ignore"):
            q = np.exp(np.log(p) - losses)
        if not q.sum() <= 1 + 1e-9:
            raise InputError("The loss law is not one: its Q-masses p·e^(−loss) add to more than 1.")
        for name, value in (("losses", losses), ("p", p), ("_q", q)):
            object.__setattr__(self, name, value)

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        cell = np.searchsorted(edges, self.losses, "left")
        n = len(edges) + 1
        p, q = (np.asarray(np.bincount(cell, mass, n), dtype=np.float64) for mass in (self.p, self._q))
        return Masses(p, q, self.p_inf)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(high < L < ∞) are each at most exp(log_tail)."""
        if not len(self.losses):
            return 0.0, 0.0
        tail = math.exp(log_tail)
        low = int(np.searchsorted(np.cumsum(self.p), tail, "right"))
        high = len(self.p) - int(np.searchsorted(np.cumsum(self.p[::-1]), tail, "right"))
        low_loss = math.nextafter(float(self.losses[0]), -math.inf) if low == 0 else float(self.losses[min(low, len(self.p)) - 1])
        return low_loss, max(low_loss, float(self.losses[max(high, 1) - 1]))

    def std(self) -> float:
        """Standard deviation of the loss."""
        total = float(self.p.sum())
        if total == 0:
            return 0.0
        mean = float(self.p @ self.losses) / total
        return math.sqrt(float(self.p @ (self.losses - mean) ** 2) / total)

    def lattice(self) -> float:
        """The step given."""
        return self.step


@dataclass(frozen=True, slots=True)
class ReversedPair:
    """The same two laws with their roles exchanged: the loss is −L, seen under Q.

    ``q_inf`` is the Q-mass where P has none; it becomes the mass of infinite loss.

    >>> ReversedPair(GaussianPair(2.0)).masses(np.array([0.0])).q.sum()
    np.float64(1.0)
    """

    pair: Pair
    q_inf: float = 0.0

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        inner = self.pair.masses(np.nextafter(-edges[::-1], -np.inf))  # cells turn round: closed below, open above
        return Masses(inner.q[::-1], inner.p[::-1], self.q_inf)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(high < L < ∞) are each at most exp(log_tail)."""
        low, high = self.pair.span(log_tail)
        tail, reach = math.exp(log_tail), max(high - low, self.pair.std(), 1e-300)
        while float(self.pair.masses(np.array([low])).q[0]) > tail:  # Q(L ≤ low) can be far larger than P(L ≤ low)
            low, reach = low - reach, 2 * reach
        while float(self.pair.masses(np.array([high])).q[-1]) > tail:
            high, reach = high + reach, 2 * reach
        return -math.nextafter(high, math.inf), -low

    def std(self) -> float:
        """About the standard deviation of the loss."""
        return self.pair.std()

    def lattice(self) -> float:
        """That of the pair."""
        return self.pair.lattice()


WHOLE = (GaussianPair, SubsampledGaussianPair, MixtureGaussianPair, LaplacePair)
"""The pairs in which Q has no mass where P has none."""


# ------------------------------------------------------------------------------------------------ one Gaussian


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of N(μ, 1) against N(0, 1) (Balle & Wang 2018, Theorem 8), without cancellation.

    With a, b = ε/μ ∓ μ/2 it is Φ(−a) − e^ε Φ(−b) = φ(a) (M(a) − M(b)), M the Mills ratio.

    >>> round(gaussian_delta(1.0, 1.0), 12)
    0.126936737507
    """
    a, b = epsilon / mu - 0.5 * mu, epsilon / mu + 0.5 * mu
    if a < -10.0:
        return float(ndtr(-a) - math.exp(min(epsilon + float(log_ndtr(-b)), 0.0)))
    if mu > 0.5:
        gain = math.sqrt(math.pi / 2) * float(erfcx(a / math.sqrt(2)) - erfcx(b / math.sqrt(2)))
    else:
        x = 0.5 * (a + b) + 0.5 * mu * _NODES
        gain = 0.5 * mu * float(_WEIGHTS @ _mills_slope(x))
    return math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi) * gain


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def _mills_slope(x: Array) -> Array:
    """Minus the derivative of the Mills ratio: 1 − x M(x), by its continued fraction where that would cancel."""
    direct = 1 - x * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
    if (x < 8.0).all():
        return np.asarray(direct)
    inverse = 1 / np.maximum(x, 8.0) ** 2
    series, term = np.zeros_like(x), np.ones_like(x)
    for k in range(1, 28):
        term = -term * (2 * k - 1) * inverse
        series -= term
    return np.where(x < 8.0, direct, series)


def subsampled_delta(pair: SubsampledGaussianPair, epsilon: float) -> tuple[float, float]:
    """δ(ε), ε ≥ 0, of one release, from below and above, each to about 1e-12 of itself however small it is.

    The sets that tell a mixture from its first law best are those that tell the second from the first: see the proof.

    >>> low, high = subsampled_delta(SubsampledGaussianPair(1.0, 0.5, "remove"), 0.0)
    >>> low < 0.5 * gaussian_delta(1.0, 0.0) < high
    True
    """
    mu, q = 1 / pair.noise_multiplier, pair.probability
    bounds = []
    for off in (1 + 1e-15, 1 - 1e-15):  # of numbers right to a few ulps, moved to either side of the truth
        if pair.direction == "remove":
            over = math.log1p(math.expm1(epsilon) / q) if epsilon < 30 else epsilon - math.log(q) + math.log1p((q - 1) * math.exp(-epsilon))
            bounds.append(q * gaussian_delta(mu, over * off))
            continue
        spent = math.expm1(min(epsilon, 700.0)) * (1 - q) / q * off
        bounds.append(q * (1 - spent) * gaussian_delta(mu, (epsilon - math.log1p(-spent)) * off) if spent < 1 else 0.0)
    return bounds[0] * (1 - 2e-12), bounds[1] * (1 + 2e-12)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The ε ≥ 0 at which N(μ, 1) against N(0, 1) has that δ > 0.

    >>> round(gaussian_epsilon(1.0, 1e-5), 7)
    4.3771781
    """
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * (0.5 * mu + max(0.0, -float(ndtri_exp(math.log(delta)))))
    target = math.log(delta)

    def miss(epsilon: float) -> float:
        return math.log(max(gaussian_delta(mu, epsilon), 5e-324)) - target

    while miss(high) > 0:
        high *= 1.0 + 1e-9
    return float(brentq(miss, 0.0, high, xtol=high * 1e-15, rtol=1e-14))
