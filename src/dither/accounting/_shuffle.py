"""The shuffled reports of many users, one of whom changes: dominating pairs by hiding among clones.

Proofs: docs/proofs/special-events.md, "ShuffledReports".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc

from dither.accounting._pair import Array, Masses
from dither.accounting._special import PolylinePair, both_ways, profile, rays

_LOG_CUT = -140.0


@dataclass(frozen=True, slots=True, eq=False)
class ClonesPair:
    """``bits`` coins, one the victim's: with probability ``share`` randomised response at ε, else fair; the others fair.

    Only their sum a is seen, beside which of the rows (weight, bits, share) holds. Its loss is 2 artanh(κ(2a/bits − 1)) with
    κ = share · tanh(ε/2). ``lost`` is the weight of rows left out, counted as loss ∞.

    >>> one = np.ones(1)
    >>> pair = ClonesPair(1.0, one, one, one)
    >>> abs(float(pair.masses(np.zeros(1)).p[1]) - math.e / (1 + math.e)) < 1e-15
    True
    """

    epsilon: float
    weight: Array
    bits: Array
    share: Array
    lost: float = 0.0

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        kappa = (self.share * math.tanh(0.5 * self.epsilon))[:, None]
        bits, weight = self.bits[:, None], self.weight
        low = edges < 0
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.clip(np.tanh(0.5 * np.abs(edges)) / kappa, 0.0, 2.0)  # κ = 0: a loss of 0 for sure
        place = np.where(np.isnan(place), 0.0, place)
        # By symmetry P(L ≤ e) = Q(L ≥ −e): every tail is computed as an upper one, closed where e < 0.
        exact = 0.5 * bits * (1 + place)
        least = np.where(low, np.ceil(exact - 1e-12 * bits), np.floor(exact) + 1)
        with_victim, without = _upper(bits - 1, least - 1), _upper(bits - 1, least)
        more = weight @ (0.5 * (1 + kappa) * with_victim + 0.5 * (1 - kappa) * without)
        less = weight @ (0.5 * (1 - kappa) * with_victim + 0.5 * (1 + kappa) * without)
        return Masses(_cells(low, less, more, 1 - self.lost), _cells(low, more, less, 1 - self.lost), self.lost)

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high): P(L ≤ low) and P(high < L < ∞) are each at most exp(log_tail), by Hoeffding in every row."""
        reach = np.sqrt(0.5 * self.bits * -min(log_tail - 0.7, -1e-9)) + 1
        kappa = self.share * math.tanh(0.5 * self.epsilon)
        top = float(np.max(2 * np.arctanh(np.minimum(kappa * np.minimum(2 * reach / self.bits, 1.0), 1 - 1e-16))))
        top = min(top, self.epsilon) * (1 + 1e-9)
        return -top, top

    def std(self) -> float:
        """About the standard deviation of the loss."""
        kappa = self.share * math.tanh(0.5 * self.epsilon)
        each = np.minimum(4 * kappa**2 / self.bits, self.epsilon**2)
        return math.sqrt(float(self.weight @ each))

    def lattice(self) -> float:
        """None worth keeping to."""
        return 0.0


def _upper(trials: Array, least: Array) -> Array:
    """Pr[Bin(trials, 1/2) ≥ least]."""
    trials, least = np.broadcast_arrays(trials, least)
    inside = (least >= 1) & (least <= trials)
    made = np.where(least < 1, 1.0, 0.0)
    made[inside] = betainc(least[inside], trials[inside] - least[inside] + 1, 0.5)
    return made


def _cells(low: NDArray[np.bool_], below: Array, above: Array, total: float) -> Array:
    """Cells from lower tails at edges < 0 and upper tails at the others, each difference on its own side."""
    tails = np.where(low, below, above)
    k = int(np.count_nonzero(low))
    left, right = tails[:k], tails[k:]
    middle = total - (left[-1] if k else 0.0) - (right[0] if k < len(tails) else 0.0)
    cells = np.concatenate((np.diff(left, prepend=0.0), [middle], -np.diff(right, append=0.0)))
    return np.maximum(cells, 0.0)


def _binomial(trials: int, rate: float, cells: int) -> tuple[Array, Array, Array, float]:
    """(first, last, probability) of the blocks that hold Bin(trials, rate) but for a lower tail of that probability."""
    if rate >= 1:
        whole = np.array([float(trials)])
        return whole, whole, np.ones(1), 0.0
    mean, deviation = trials * rate, math.sqrt(trials * rate * (1 - rate))
    reach = math.sqrt(-2 * _LOG_CUT) * deviation - _LOG_CUT / 3 + 1  # Bernstein
    first, last = max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach))
    starts = np.unique(np.floor(np.linspace(first, last + 1, min(cells, last - first + 1) + 1)))
    below, above = lower_tail(trials, rate, starts), upper_tail(trials, rate, starts)
    weight = np.where(starts[1:] <= mean, np.diff(below), -np.diff(above))
    weight[-1] = above[-2]  # more than the last counts as the last block
    lost = float(below[0])
    return starts[:-1], np.append(starts[1:-1] - 1, trials), np.maximum(weight, 0.0), lost


def lower_tail(trials: int, rate: float, at: Array) -> Array:
    """Pr[Bin(trials, rate) < at], good to about 1e-9 of itself.

    >>> lower_tail(2, 0.5, np.array([1.0]))
    array([0.25])
    """
    k = np.clip(at, 0.0, trials + 1.0)
    inner = betaincc(np.maximum(k, 1.0), np.maximum(trials - k + 1, 1e-300), rate)
    return np.where(k < 1, 0.0, np.where(k > trials, 1.0, inner))


def upper_tail(trials: int, rate: float, at: Array) -> Array:
    """Pr[Bin(trials, rate) ≥ at], good to about 1e-9 of itself.

    >>> upper_tail(2, 0.5, np.array([2.0]))
    array([0.25])
    """
    k = np.clip(at, 0.0, trials + 1.0)
    inner = betainc(np.maximum(k, 1.0), np.maximum(trials - k + 1, 1e-300), rate)
    return np.where(k < 1, 1.0, np.where(k > trials, 0.0, inner))


def clones_of_any(epsilon: float, reports: int) -> ClonesPair:
    """The pair of any ε-DP report: every other report is one of the victim's two with probability at least e^{−ε}.

    >>> pair = clones_of_any(1.0, 10_000)
    >>> float(pair.masses(np.array([0.1])).p[1]) < 1e-3
    True
    """
    first, _, weight, lost = _binomial(reports - 1, math.exp(-epsilon), 512)
    return ClonesPair(epsilon, weight, first + 1, np.ones(len(first)), lost)


def clones_of_response(epsilon: float, values: int, reports: int) -> ClonesPair:
    """The pair of k-ary randomised response: every other report is uniform with probability k/(e^ε + k − 1).

    >>> pair = clones_of_response(1.0, 16, 10_000)
    >>> float(pair.masses(np.array([0.1])).p[1]) < 1e-2
    True
    """
    k, odds = float(values), math.exp(min(epsilon, 700.0))
    uniform = k / (odds + k - 1)
    if values == 2:
        first, _, weight, lost = _binomial(reports - 1, uniform, 512)
        return ClonesPair(epsilon, weight, first + 1, np.ones(len(first)), lost)
    rows = []
    first, _, outer, lost = _binomial(reports - 1, uniform, 16)
    for size, chance in zip((first + 1).astype(int).tolist(), outer.tolist(), strict=True):
        starts, ends, plain, missed = _binomial(size, 2 / k, 48)
        lifted, missed_lifted = _one_less(size, 2 / k, starts, ends)
        # Pr(c) is Bin(size, 2/k)(c) · k(size + (e^ε − 1)c/2) / ((e^ε + k − 1) size), and c·Bin(size)(c) is Bin(size − 1)(c − 1).
        weight = chance * (k * plain + (odds - 1) * lifted) / (odds + k - 1)
        lost += chance * (k * missed + (odds - 1) * missed_lifted) / (odds + k - 1)
        marked = 0.5 * (odds + 1) * ends
        rows.append(np.column_stack((weight, np.maximum(starts, 1.0), marked / np.maximum(marked + size - ends, 1e-300))))
    table = np.concatenate(rows)
    table = table[table[:, 0] > 0]
    return ClonesPair(epsilon, table[:, 0], table[:, 1], np.minimum(table[:, 2], 1.0), lost)


@lru_cache(maxsize=64)
def clones_as_atoms(pair: ClonesPair) -> PolylinePair:
    """The same pair, a little higher, as atoms: neighbouring rows become one of the fewer bits and the larger share.

    >>> clones_as_atoms(clones_of_any(1.0, 100)).law.p_inf < 1e-40
    True
    """
    order = np.lexsort((pair.bits, pair.share))
    blocks = np.array_split(order, min(128, len(order)))
    weight = np.array([pair.weight[b].sum() for b in blocks])
    bits, share = np.array([pair.bits[b].min() for b in blocks]), np.array([pair.share[b].max() for b in blocks])
    few = ClonesPair(pair.epsilon, weight, bits, share, pair.lost)
    losses = rays(few.std(), few.span(-120.0)[1], dense=48, growth=1.02)
    return both_ways(losses, profile(few, losses)[0])


def _one_less(trials: int, rate: float, starts: Array, ends: Array) -> tuple[Array, float]:
    """Pr[start ≤ Bin(trials − 1, rate) + 1 ≤ end] of every block, and Pr[Bin + 1 < the first start]."""
    if trials == 1:
        return np.where((starts <= 1) & (ends >= 1), 1.0, 0.0), float(starts[0] > 1)
    below = lower_tail(trials - 1, rate, ends) - lower_tail(trials - 1, rate, starts - 1)
    above = upper_tail(trials - 1, rate, starts - 1) - upper_tail(trials - 1, rate, ends)
    inside = np.maximum(np.where(starts <= trials * rate, below, above), 0.0)
    return inside, float(lower_tail(trials - 1, rate, starts[:1] - 1)[0])


def over(trials: int, rate: float, least: int) -> float:
    """Pr[Bin(trials, rate) ≥ least].

    >>> round(over(3, 0.5, 2), 12)
    0.5
    """
    if least > trials:
        return 0.0
    return 1.0 if rate >= 1 else float(upper_tail(trials, rate, np.array([float(least)]))[0])
