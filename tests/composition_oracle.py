"""The slow truth: compositions of small finite mechanisms, every outcome enumerated, in exact rationals and 60 digits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import numpy as np

from dither.accounting._pairs import AtomsPair

mpmath.mp.dps = 60

Outcomes = Sequence[tuple[Fraction, Fraction]]


def composed(parts: Sequence[tuple[Outcomes, int]]) -> list[tuple[Fraction, Fraction]]:
    """(P, Q) of every multiset of outcomes of the whole composition, together with its multiplicity."""
    total: list[tuple[Fraction, Fraction]] = [(Fraction(1), Fraction(1))]
    for outcomes, count in parts:
        own = []
        for chosen in itertools.combinations_with_replacement(range(len(outcomes)), count):
            ways = math.factorial(count)
            for i in set(chosen):
                ways //= math.factorial(chosen.count(i))
            p = q = Fraction(ways)
            for i in chosen:
                p, q = p * outcomes[i][0], q * outcomes[i][1]
            own.append((p, q))
        total = [(p * a, q * b) for p, q in total for a, b in own]
    return total


def true_delta(total: Sequence[tuple[Fraction, Fraction]], epsilon: float) -> mpmath.mpf:
    """Σ (P − e^ε Q)₊."""
    factor = mpmath.exp(mpmath.mpf(epsilon))
    terms = (mpmath.mpf(p.numerator) / p.denominator - factor * mpmath.mpf(q.numerator) / q.denominator for p, q in total)
    return mpmath.fsum(t for t in terms if t > 0)


def atoms_of(outcomes: Outcomes, step: float = 0.0) -> AtomsPair:
    """The loss law of a finite mechanism."""
    p_inf = float(sum((p for p, q in outcomes if q == 0), Fraction(0)))
    found: dict[Fraction, Fraction] = {}
    for p, q in outcomes:
        if p > 0 and q > 0:
            found[p / q] = found.get(p / q, Fraction(0)) + p
    ratios = sorted(found)
    losses = [float(mpmath.log(mpmath.mpf(r.numerator) / r.denominator)) for r in ratios]
    return AtomsPair(np.array(losses), np.array([float(found[r]) for r in ratios]), p_inf, step)
