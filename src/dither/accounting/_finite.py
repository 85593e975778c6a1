"""Compositions of a few finite laws, outcome by outcome: no lattice, no transform, nothing rounded but the last digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from dither.accounting._pair import Array
from dither.accounting._pairs import AtomsPair

STATES_MAX = 60_000


def states(parts: Sequence[tuple[AtomsPair, int]]) -> int:
    """How many different outcomes the composition has, order aside (capped: a large number means too many)."""
    total = 1
    for pair, count in parts:
        kinds = int(np.count_nonzero(pair.p))
        if kinds > 8 or count > STATES_MAX:
            return STATES_MAX + 1
        total *= math.comb(count + kinds - 1, kinds - 1)
        if total > STATES_MAX:
            return STATES_MAX + 1
    return total


@dataclass(frozen=True, slots=True)
class Finite:
    """The exact law of a sum of losses: ``losses`` increasing, ``tail_p`` and ``slope`` the sums over all at or above."""

    losses: Array
    gain: Array
    slope: Array
    p_inf: float
    relative: float

    def delta(self, epsilon: float) -> tuple[float, float]:
        """δ(ε) from below and from above."""
        i = int(np.searchsorted(self.losses, epsilon, "right"))
        if i == len(self.losses):
            return self.p_inf, self.p_inf
        value = float(self.gain[i]) + float(self.slope[i]) * -math.expm1(epsilon - float(self.losses[i]))
        return self.p_inf + value * (1 - self.relative), min(1.0, self.p_inf + value * (1 + self.relative))

    def epsilon(self, delta: float) -> tuple[float, float]:
        """ε(δ) from below and from above, −∞ when every ε will do."""
        if delta < self.p_inf:
            return math.inf, math.inf
        ends = [self._epsilon((delta - self.p_inf) / (1 + sign * self.relative)) for sign in (-1, 1)]
        return ends[0] - abs(ends[0]) * 1e-14, min(ends[1] + abs(ends[1]) * 1e-14, float(self.losses[-1]))

    def _epsilon(self, target: float) -> float:
        over = np.flatnonzero(self.gain > target)
        i = int(over[-1]) + 1 if len(over) else 0
        ratio = (target - float(self.gain[i])) / float(self.slope[i])
        return float(self.losses[i]) + math.log1p(-ratio) if ratio < 1 else -math.inf


def finite(parts: Sequence[tuple[AtomsPair, int]], p_inf: float, keep: float) -> Finite:
    """The composition of finite laws; ``keep`` multiplies every mass, ``p_inf`` is the whole infinite mass.

    >>> coin = AtomsPair(np.array([-1.0, 1.0]), np.array([0.26894142136999512, 0.73105857863000488]))
    >>> finite([(coin, 2)], 0.0, 1.0).losses.tolist()
    [-2.0, 0.0, 2.0]
    """
    losses, log_p = np.zeros(1), np.array([math.log(keep)])
    for pair, count in parts:
        some = pair.p > 0
        own_losses, own_log_p = _multisets(pair.losses[some], np.log(pair.p[some]), count)
        losses = np.add.outer(losses, own_losses).ravel()
        log_p = np.add.outer(log_p, own_log_p).ravel()
    order = np.argsort(losses, kind="stable")
    losses, p = losses[order], np.exp(log_p[order])
    # Sums from the right, all of positive terms: slope_i = e^{s_i} Σ_{j≥i} p_j e^{−s_j}, gain_i = Σ_{j>i} p_j (1 − e^{s_i−s_j}).
    slope, gain = np.empty(len(p)), np.empty(len(p))
    fall = np.diff(losses, append=losses[-1])
    above, gained = 0.0, 0.0
    rows = zip(p[::-1].tolist(), fall[::-1].tolist(), strict=True)
    for i, (mass, drop) in enumerate(rows):
        gained += above * -math.expm1(-drop)
        above = above * math.exp(-drop) + mass
        gain[-1 - i], slope[-1 - i] = gained, above
    total = sum(count for _, count in parts)
    relative = 2.0**-50 * (total * 24 + 16 + float(np.abs(losses).max()))
    return Finite(losses, gain, slope, p_inf, relative)


def _multisets(losses: Array, log_p: Array, count: int) -> tuple[Array, Array]:
    """Loss and log-probability of every way to draw ``count`` times, order aside."""
    left = np.array([count])
    total, logs = np.zeros(1), np.array([float(gammaln(count + 1))])
    for i in range(len(losses) - 1):
        taken = np.concatenate([np.arange(n + 1) for n in left.tolist()])
        of = np.repeat(np.arange(len(left)), left + 1)
        total = total[of] + taken * losses[i]
        logs = logs[of] + taken * log_p[i] - gammaln(taken + 1)
        left = left[of] - taken
    return total + left * losses[-1], logs + left * log_p[-1] - gammaln(left + 1)
