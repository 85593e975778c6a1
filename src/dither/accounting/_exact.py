"""Prices as exact rationals for ledgers: ε, (ε, δ) and ρ that add without rounding; what is not rational is rounded up.

A price that an event states (ε, δ, ρ) is the decimal it is written as: ten times 0.1 is 1. A noise level is the float
the sampler runs with, exactly.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from dither.accounting._bounds import Move, pure_epsilon, uses
from dither.accounting._bounds import rho as float_rho
from dither.core import events as ev

UNITS = 10**60 * math.lcm(*range(1, 101)) ** 2
"""Amounts are whole multiples of 1/UNITS, so sums are exact in any order. Decimals of 60 places, 1/k and 1/2k² for
k ≤ 100 are such multiples; all else is rounded up to one, by less than 10^-140."""


def rounded_up(value: Fraction) -> Fraction:
    """The least multiple of 1/UNITS that is at least ``value``.

    >>> rounded_up(Fraction(1, 3)) == Fraction(1, 3), rounded_up(Fraction(1, 2**500)) * UNITS
    (True, Fraction(1, 1))
    """
    return Fraction(-(-value.numerator * UNITS // value.denominator), UNITS)


def written(number: float) -> Fraction:
    """The shortest decimal that names the float.

    >>> written(0.1)
    Fraction(1, 10)
    """
    return rounded_up(Fraction(repr(number)))


def above(number: float, relative: float = 1e-12) -> Fraction | None:
    """A rational above a computed float; None for ∞."""
    return rounded_up(Fraction(number) * (1 + Fraction(relative))) if math.isfinite(number) else None


def float_above(value: Fraction) -> float:
    """The float of a short decimal, or the least float found above the value.

    >>> float_above(Fraction(1, 10))
    0.1
    """
    near = float(value)
    return near if written(near) >= value else math.nextafter(near, math.inf)


def _every(parts: list[Fraction | None]) -> Fraction | None:
    known = [p for p in parts if p is not None]
    return sum(known, Fraction(0)) if len(known) == len(parts) else None


def _least(*found: Fraction | None) -> Fraction | None:
    return min((f for f in found if f is not None), default=None)


# ------------------------------------------------------------------------------------------------ pure and approximate


def pure(event: ev.Event, move: Move) -> Fraction | None:
    """The least ε known at δ = 0; None where there is none."""
    found = approximate(event, move)
    return found[0] if found is not None and found[1] == 0 else None


def approximate(event: ev.Event, move: Move) -> tuple[Fraction, Fraction] | None:
    """(ε, δ) by adding up what the parts state; None where a part has no (ε, δ) of its own."""
    match event:
        case ev.Laplace(noise_multiplier=scale):
            return rounded_up(Fraction(move.scale) / Fraction(scale)), Fraction(0)
        case ev.DiscreteLaplace(noise_scale=scale, sensitivity=shift):
            return rounded_up(Fraction(move.scale * shift) / Fraction(scale)), Fraction(0)
        case ev.RandomizedResponse(epsilon=epsilon):
            return written(epsilon) * move.group, Fraction(0)
        case ev.PureDp(epsilon=epsilon) | ev.ExponentialMechanism(epsilon=epsilon):
            return written(epsilon) * move.scale, Fraction(0)
        case ev.ApproxDp(one_unit=True) if move.scale > 1:
            return None
        case ev.ApproxDp(epsilon=epsilon, delta=delta):
            return _approx(epsilon, delta, move.scale)
        case ev.Zcdp(rho=rho) if rho == 0:
            return Fraction(0), Fraction(0)
        case ev.Repeat(event=ev.Subsample(event=inner, sampler=ev.Shuffled() as sampler), count=batches) if move.group == 1:
            return _times(approximate(inner, move), uses(sampler, batches))
        case ev.Repeat(event=ev.Subsample(sampler=ev.Shuffled())):
            return _computed(event, move)
        case ev.Repeat(event=inner, count=count):
            return _times(approximate(inner, move), count)
        case ev.Sequence(events=members):
            parts = [approximate(member, move) for member in members]
            known = [p for p in parts if p is not None]
            if len(known) < len(parts):
                return None
            return rounded_up(sum((p[0] for p in known), Fraction(0))), min(
                rounded_up(sum((p[1] for p in known), Fraction(0))), Fraction(1)
            )
        case ev.Parallel(events=members) if not move.replace and move.group == 1:
            inside = [approximate(member, move) for member in members]
            both = [p for p in inside if p is not None]
            return (max(p[0] for p in both), max(p[1] for p in both)) if len(both) == len(inside) else None
        case ev.ShuffledReports() | ev.Subsample() | ev.SelectBest() | ev.Parallel():
            return _computed(event, move)
        case _:
            return None


def _times(one: tuple[Fraction, Fraction] | None, count: int) -> tuple[Fraction, Fraction] | None:
    return None if one is None else (one[0] * count, min(one[1] * count, Fraction(1)))


def _computed(event: ev.Event, move: Move) -> tuple[Fraction, Fraction] | None:
    found = above(pure_epsilon(event, move))
    return None if found is None else (found, Fraction(0))


def _approx(epsilon: float, delta: float, k: int) -> tuple[Fraction, Fraction] | None:
    """A group of k: (kε, δ(1 + e^ε + … + e^{(k−1)ε}))."""
    if k == 1 or delta == 0:
        return written(epsilon) * k, written(delta)
    share = above(k if epsilon == 0 else math.expm1(min(k * epsilon, 700.0)) / math.expm1(epsilon))
    return (written(epsilon) * k, min(rounded_up(written(delta) * share), Fraction(1))) if share is not None else None


# ------------------------------------------------------------------------------------------------ zero-concentrated


def pure_to_rho(epsilon: Fraction) -> Fraction:
    """ε·tanh(ε/2): the least ρ for which every ε-DP mechanism is ρ-zCDP; ε²/2 where floats have no digits left for it."""
    half = epsilon * epsilon / 2
    if not Fraction(1, 10**9) < epsilon < 10**6:
        return rounded_up(min(half, epsilon))
    number = float(epsilon)
    return rounded_up(min(half, Fraction(number * math.tanh(0.5 * number)) * (1 + Fraction(1, 10**14))))


def _laplace_rho(epsilon: Fraction) -> Fraction:
    """ε + e^−ε − 1 (Harrison & Manurangsi 2026): the Kullback–Leibler divergence, which no order exceeds per order."""
    number = float(epsilon)
    if not 1e-3 < number < 1e6:
        return rounded_up(min(epsilon * epsilon / 2, epsilon))
    return rounded_up(Fraction(number + math.expm1(-number)) * (1 + Fraction(1, 10**11)))


def _range_rho(epsilon: Fraction) -> Fraction:
    """Bounded range: x − 1 − log x with x = ε/(e^ε − 1), and never above ε²/8 (Hoeffding's lemma)."""
    eighth = epsilon * epsilon / 8
    number = float(epsilon)
    if not 0.1 < number < 700:
        return rounded_up(min(eighth, epsilon))
    x = number / math.expm1(number)
    return rounded_up(min(eighth, Fraction(x - 1 - math.log(x)) * (1 + Fraction(1, 10**11))))


def rho(event: ev.Event, move: Move) -> Fraction | None:
    """A ρ for which the event is ρ-zCDP (D_α ≤ ρα for every order); None where none is known."""
    k = move.scale
    match event:
        case ev.Gaussian(noise_multiplier=sigma):
            return rounded_up(Fraction(k * k) / (2 * Fraction(sigma) ** 2))
        case ev.DiscreteGaussian(noise_std=std, sensitivity=shift):
            return rounded_up(Fraction((k * shift) ** 2) / (2 * Fraction(std) ** 2))
        case ev.Zcdp(rho=each):
            return written(each) * k * k
        case ev.ExponentialMechanism(epsilon=epsilon):
            return _range_rho(written(epsilon) * k)
        case ev.Laplace(noise_multiplier=scale):
            return _laplace_rho(Fraction(k) / Fraction(scale))
        case ev.Repeat(event=ev.Subsample(event=inner, sampler=ev.Shuffled() as sampler), count=batches) if move.group == 1:
            each_pass = rho(inner, move)
            return None if each_pass is None else each_pass * uses(sampler, batches)
        case ev.Repeat(event=ev.Subsample(sampler=ev.Shuffled())):
            return _computed_rho(event, move)
        case ev.Repeat(event=inner, count=count):
            each_run = rho(inner, move)
            return None if each_run is None else each_run * count
        case ev.Sequence(events=members):
            return _every([rho(member, move) for member in members])
        case ev.Parallel(events=members) if not move.replace and move.group == 1:
            parts = [rho(member, move) for member in members]
            known = [p for p in parts if p is not None]
            return max(known) if len(known) == len(parts) else None
        case ev.Subsample(event=inner, sampler=ev.Poisson()) if not move.replace and move.group == 1:
            return _least(rho(inner, Move()), _computed_rho(event, move))  # Rényi divergence is quasi-convex
        case ev.ShuffledReports(event=inner):
            one = rho(inner, replace(Move(), replace=True))
            return None if one is None else one * move.group
        case _:
            return _computed_rho(event, move)


def _computed_rho(event: ev.Event, move: Move) -> Fraction | None:
    epsilon = pure(event, move)
    return _least(None if epsilon is None else pure_to_rho(epsilon), above(float_rho(event, move)))


def without_delta(event: ev.Event, move: Move) -> tuple[ev.Event, Fraction]:
    """The event with its (ε, δ)-DP parts made (ε, 0)-DP, and the δ that this costs once for all.

    Parts inside a sampler, a choice or a shuffle keep their δ.
    """
    match event:
        case ev.ApproxDp(one_unit=True) if move.scale > 1:
            return event, Fraction(0)
        case ev.ApproxDp(epsilon=epsilon, delta=delta):
            found = _approx(epsilon, delta, move.scale)
            return (ev.PureDp(epsilon), found[1]) if found is not None else (event, Fraction(0))
        case ev.Repeat(event=inner, count=count):
            made, each = without_delta(inner, move)
            return (ev.Repeat(made, count), min(each * count, Fraction(1))) if each else (event, each)
        case ev.Sequence(events=members):
            parts = [without_delta(member, move) for member in members]
            total = min(sum((d for _, d in parts), Fraction(0)), Fraction(1))
            return (ev.Sequence(tuple(e for e, _ in parts)), total) if total else (event, total)
        case ev.Parallel(events=members) if not move.replace and move.group == 1:
            parts = [without_delta(member, move) for member in members]
            most = max(d for _, d in parts)
            return (ev.Parallel(tuple(e for e, _ in parts)), most) if most else (event, most)
        case _:
            return event, Fraction(0)
