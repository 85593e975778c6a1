"""The best attack on an event: upper bounds on the true positive rate at given false positive rates.

Every (ε, δ) that holds bounds it twice, by δ + e^ε·α and by 1 − e^−ε·(1 − δ − α), so the least over many of them is a
bound too, and over all of them it is the trade-off curve itself (Dong, Roth & Su 2022, Proposition 2.12). As a
function of ε each bound first falls and then rises, so its least value is found by golden sections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dither.accounting.loss import Loss
from dither.core import checks

_GOLDEN = (math.sqrt(5) - 1) / 2
_SECTIONS = 6  # shrinks two knots' distance to 1/10 of one: 1e-3 of the rate, mostly far less


def true_positive_rates(priced: Loss, rates: Sequence[float], *, knots: int = 14, refine: bool = True) -> tuple[float, ...]:
    """At each false positive rate, a bound on the true positive rate of every test between neighbours."""
    deltas: dict[float, float] = {}

    def delta(epsilon: float) -> float:
        if epsilon not in deltas:
            deltas[epsilon] = priced.delta_upper(epsilon)
        return deltas[epsilon]

    least = 1e-3 * min((rate for rate in rates if rate > 0), default=1e-4)
    shares = [0.0, *(max(least, 10.0**power) for power in range(-9, 0))]
    top = next((e for e in map(priced.epsilon_upper, shares) if e < checks.EPSILON_MAX), 0.0)
    grid = [top * (i / knots) ** 1.5 for i in range(knots + 1)]
    found = []
    for rate in rates:
        best, bound = min(((min(b(e, delta(e), rate) for e in grid), b) for b in (_steep, _flat)), key=lambda pair: pair[0])
        if refine and 0 < rate < 1 and 0 < best < 1:
            best = min(best, _refined(bound, rate, grid, delta))
        found.append(min(1.0, max(best, rate)))
    return tuple(found)


def _steep(epsilon: float, delta: float, rate: float) -> float:
    return delta + math.exp(epsilon) * rate if epsilon < 700 else 1.0


def _flat(epsilon: float, delta: float, rate: float) -> float:
    return 1.0 - math.exp(-epsilon) * (1.0 - delta - rate)


def _refined(bound: Callable[[float, float, float], float], rate: float, grid: Sequence[float], delta: Callable[[float], float]) -> float:
    """The least value of one bound near its best knot."""

    def value(epsilon: float) -> float:
        return bound(epsilon, delta(epsilon), rate)

    at = min(range(len(grid)), key=lambda i: value(grid[i]))
    a, b = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    left, right = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    for _ in range(_SECTIONS):
        if value(left) <= value(right):
            b, right = right, left
            left = b - _GOLDEN * (b - a)
        else:
            a, left = left, right
            right = a + _GOLDEN * (b - a)
    return min(value(left), value(right))
