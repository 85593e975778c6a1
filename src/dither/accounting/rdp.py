"""Rényi accounting: a curve of upper bounds for every event, its best (ε, δ), and exact rational ε and ρ for ledgers.

>>> from dither import events as ev
>>> step = ev.Subsample(ev.Gaussian(1.1), ev.Poisson(256 / 60_000))
>>> found = renyi_epsilon(ev.Repeat(step, 4_700), 1e-5)
>>> round(found.value, 3), 10 < found.order < 14
(1.461, True)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import betainc

from dither.accounting import _divergence as dv
from dither.accounting import _exact
from dither.accounting._bounds import SWAP, SWAP_OF_PRESENCE, Move, mean_runs, moved, pure_epsilon, rho, uses
from dither.accounting._moments import mixture_gaussian, replaced_gaussian, sampled_gaussian
from dither.accounting._pair import Array
from dither.core import checks
from dither.core import events as ev
from dither.core.errors import InputError, NotPriceableError
from dither.core.units import Neighbors
from dither.core.units import neighbors as as_neighbors

ORDER_MAX = 1e9
GROUP_MAX = 10**6
_COPIES_MAX = 16
_SPREAD_MAX = 16
_WITHIN_MAX = 3
_DECADE = 96
_ORDERS = 1 + np.geomspace(1e-4, 1e6, 61)


class Converted(NamedTuple):
    """An ε or a δ read off a curve, and the order it was read at."""

    value: float
    order: float


def default_orders() -> Array:
    """61 orders from 1.0001 to a million, evenly in log(order − 1).

    >>> default_orders()[[0, -1]].tolist()
    [1.0001, 1000001.0]
    """
    return _ORDERS.copy()


def curve(event: ev.Event, orders: Iterable[float], *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> Array:
    """Upper bounds on the Rényi divergence of each order (> 1), whichever neighbour comes first; ∞ where there is none.

    >>> from dither import events as ev
    >>> curve(ev.Repeat(ev.Gaussian(2.0), 4), [2.0, 10.0]).round(9)
    array([1., 5.])
    """
    if not ev.is_event(event):
        raise checks.refuse("event", event, "an event, such as events.Gaussian(noise_multiplier=1.1)")
    asked = _asked(orders)
    return _curve(event, _move(neighbors, group), asked)


def _asked(orders: Iterable[float]) -> Array:
    if isinstance(orders, str | bytes) or not isinstance(orders, Iterable):
        raise checks.refuse("orders", orders, "a list of numbers above 1")
    found = [checks.between("orders", a, 1.0, ORDER_MAX) for a in orders]
    if not found or min(found) <= 1:
        raise checks.refuse("orders", min(found, default=()), f"at least one order, each above 1 and at most {ORDER_MAX:g}")
    return np.array(found)


def _move(neighbors: Neighbors | str, group: int) -> Move:
    return Move(replace=as_neighbors(neighbors) is Neighbors.REPLACE, group=checks.count("group", group, high=GROUP_MAX))


def _curve(event: ev.Event, move: Move, orders: Array) -> Array:
    """D of a larger order bounds D of a smaller one, so the curve is made nondecreasing from above."""
    up, back = np.unique(orders, return_inverse=True)
    found = _divergence(event, move, up, {})
    return np.asarray(np.minimum.accumulate(found[::-1])[::-1][back])


# ------------------------------------------------------------------------------------------------ the union of events

_Memo = dict[tuple[ev.Event, Move], Array]


def _divergence(event: ev.Event, move: Move, orders: Array, memo: _Memo) -> Array:
    """Composition happens here alone: counts multiply, sequences add (Mironov 2017, Proposition 1, adaptive too)."""
    match event:
        case ev.Repeat(event=ev.Subsample(event=inner, sampler=ev.Shuffled() as sampler), count=batches):
            return uses(sampler, batches) * _spread(inner, move, orders, memo)
        case ev.Repeat(event=inner, count=count):
            return count * _divergence(inner, move, orders, memo)
        case ev.Sequence(events=members):
            counts: dict[ev.Event, int] = {}
            for member in members:
                counts[member] = counts.get(member, 0) + 1
            plain = [n / m.noise_multiplier**2 for m, n in counts.items() if isinstance(m, ev.Gaussian)]
            total = 0.5 * math.fsum(plain) * move.scale**2 * orders
            for member, n in counts.items():
                if not isinstance(member, ev.Gaussian):
                    total = total + n * _divergence(member, move, orders, memo)
            return total * (1 + (len(counts) + 8) * 2.0**-53)
        case _:
            key = (event, move)
            if key not in memo:
                memo[key] = _single(event, move, orders, memo)
            return memo[key]


def _single(event: ev.Event, move: Move, orders: Array, memo: _Memo) -> Array:
    """One leaf or composite; never sees a count. Whatever its shape, its largest loss and its ρ bound it too."""
    found = _leaf(event, move, orders) if _is_leaf(event) else _composite(event, move, orders, memo)
    pure, each = pure_epsilon(event, move), rho(event, move)
    if math.isfinite(pure):
        found = np.minimum(found, dv.response(orders, pure * (1 + 1e-12), 2))
    return np.minimum(found, each * (1 + 1e-12) * orders) if math.isfinite(each) else found


def _is_leaf(event: ev.Event) -> bool:
    return not ev.children(event)


def _leaf(event: ev.Event, move: Move, orders: Array) -> Array:
    k = move.scale
    match event:
        case ev.Gaussian(noise_multiplier=sigma):
            return dv.gaussian(orders, sigma / k)
        case ev.TreeGaussian() | ev.MatrixGaussian():
            return dv.gaussian(orders, event.noise_multiplier / moved(event, move))
        case ev.DiscreteGaussian(noise_std=std, sensitivity=shift):  # Canonne, Kamath & Steinke 2020
            return dv.gaussian(orders, std / (shift * k))
        case ev.Laplace(noise_multiplier=scale):
            return dv.laplace(orders, k / scale)
        case ev.DiscreteLaplace(noise_scale=scale, sensitivity=shift):
            return dv.discrete_laplace(orders, scale, shift * k)
        case ev.RandomizedResponse(epsilon=epsilon, values=values) if move.group == 1:
            return dv.response(orders, epsilon, values)
        case ev.RandomizedResponse(epsilon=epsilon):
            return dv.response(orders, epsilon * move.group, 2)
        case ev.PureDp(epsilon=epsilon):
            return dv.response(orders, epsilon * k, 2)
        case ev.ApproxDp(epsilon=epsilon, delta=delta) if delta == 0:
            return dv.response(orders, epsilon * k, 2)
        case ev.Zcdp(rho=each):
            return each * k * k * orders
        case ev.ExponentialMechanism(epsilon=epsilon):
            return dv.bounded_range(orders, epsilon * k)
        case _:  # ApproxDp with δ > 0 and NonPrivate: no Rényi divergence is finite
            return np.full_like(orders, np.inf)


def _composite(event: ev.Event, move: Move, orders: Array, memo: _Memo) -> Array:
    match event:
        case ev.Subsample(sampler=ev.Shuffled()):
            return _spread(event.event, move, orders, memo)
        case ev.Subsample():
            return _subsample(event, replace(move, steps=1), orders, memo)
        case ev.Parallel():
            return _parallel(event, move, orders, memo)
        case ev.SelectBest():
            return _select(event, move, orders)
        case ev.ShuffledReports(event=inner):  # shuffling is post-processing; each of the group sends its own report
            return move.group * _divergence(inner, SWAP, orders, memo)
        case _:
            raise AssertionError(event)


# ------------------------------------------------------------------------------------------------ groups and parts


def _spread(inner: ev.Event, move: Move, orders: Array, memo: _Memo) -> Array:
    """One pass over shuffled batches: the group may share a batch or fall on several, whichever costs most."""
    if move.group == 1 or _gaussian_noise(inner, move) is not None:  # shifts of Σ kᵢ ≤ k are never longer than k in one batch
        return _divergence(inner, move, orders, memo)
    chain = _group_chain(inner, move, orders)
    return np.minimum(_most([inner] * move.group, move, orders, memo), chain) if move.group <= _SPREAD_MAX else chain


def _most(members: list[ev.Event], move: Move, orders: Array, memo: _Memo) -> Array:
    """Greatest Σᵢ Dᵢ(kᵢ) over k₁ + k₂ + … ≤ group: every way for a group to fall on parts with disjoint units."""
    k = move.group
    if k > _SPREAD_MAX:
        whole = [_divergence(m, move, orders, memo) for m in dict.fromkeys(members)]
        return np.asarray(min(k, len(members)) * np.maximum.reduce(whole))
    best = [np.zeros_like(orders) for _ in range(k + 1)]
    copies: dict[ev.Event, int] = {}
    for member in members:
        copies[member] = min(copies.get(member, 0) + 1, k)
    for member, count in copies.items():
        own = [_divergence(member, replace(move, group=j), orders, memo) for j in range(1, k + 1)]
        for _ in range(count):
            for total in range(k, 0, -1):
                for j in range(1, total + 1):
                    best[total] = np.maximum(best[total], best[total - j] + own[j - 1])
    return best[k]


def _parallel(event: ev.Parallel, move: Move, orders: Array, memo: _Memo) -> Array:
    """Present or absent, a unit touches one part. Replaced, it stays in one, or leaves one and enters another."""
    members = list(event.events)
    if not move.replace:
        return _most(members, replace(move, steps=1), orders, memo)
    if move.group > 1:
        return _group_chain(event, move, orders)
    stays = np.maximum.reduce([_divergence(m, move, orders, memo) for m in dict.fromkeys(members)])
    apart = np.sort([_divergence(m, Move(), orders, memo) for m in members], axis=0)[-2:].sum(axis=0)
    return np.maximum(stays, apart) if len(members) > 1 else np.asarray(stays)


def _knots(top: float) -> Array:
    """Orders up to at least ``top``, the same whatever is asked, so that what was computed at them is found again."""
    return np.asarray(1 + 10.0 ** (np.arange(-3 * _DECADE, math.ceil(_DECADE * math.log10(top)) + 2) / _DECADE))


def _chord(knots: Array, moments: Array, at: Array) -> Array:
    """K is convex and 0 at order 1, so it lies below its chords; ∞ beyond the last."""
    return np.asarray(np.interp(at, np.append(1.0, knots), np.append(0.0, moments), right=np.inf))


def _rising(knots: Array, moments: Array) -> Array:
    """K with D = K/(α − 1) made nondecreasing from above."""
    return np.asarray((knots - 1) * np.minimum.accumulate((moments / (knots - 1))[::-1])[::-1])


def _group_chain(event: ev.Event, move: Move, orders: Array) -> Array:
    """A group of k as k moves in a row: K of a + b moves is at most ½K_a(2α) + ½K_b(2α − 1) (Mironov 2017, Proposition 11, p = 2)."""
    knots = _knots(float(orders.max()) * 2.1 ** ((move.group - 1).bit_length() + 1))
    moments = {1: (knots - 1) * _curve(event, replace(move, group=1), knots)}

    def moves(k: int) -> Array:
        if k not in moments:
            left, right = moves(k // 2), moves(k - k // 2)
            moments[k] = _rising(knots, 0.5 * _chord(knots, left, 2 * knots) + 0.5 * _chord(knots, right, 2 * knots - 1))
        return moments[k]

    return _chord(knots, moves(move.group), orders) / (orders - 1) * (1 + 1e-12)


# ------------------------------------------------------------------------------------------------ samplers


def _gaussian_noise(event: ev.Event, move: Move) -> float | None:
    """The noise multiplier of the one Gaussian that an event amounts to, or None."""
    precision = _precision(event, move)
    return 1 / math.sqrt(precision) * (1 - 1e-14) if precision else None


def _precision(event: ev.Event, move: Move) -> float | None:
    match event:
        case ev.Gaussian(noise_multiplier=sigma):
            return (move.scale / sigma) ** 2
        case ev.TreeGaussian() | ev.MatrixGaussian():
            return (moved(event, move) / event.noise_multiplier) ** 2
        case ev.Repeat(event=inner, count=count):
            each = _precision(inner, move)
            return None if each is None else count * each
        case ev.Sequence(events=members):
            found = [_precision(m, move) for m in members]
            return None if None in found else math.fsum(x for x in found if x is not None)
        case _:
            return None


def _inner(event: ev.Event, move: Move) -> dv.DivergenceCurve:
    return lambda orders: _curve(event, move, orders)


def _one_sided(event: ev.Event, move: Move, q: float, orders: Array) -> tuple[Array, Array]:
    """K both ways of (1−q)Q + qP and Q, where P and Q are ``event`` under ``move``."""
    sigma = _gaussian_noise(event, move)
    if sigma is None:
        return dv.present(_inner(event, move), q, orders)
    found = np.array([sampled_gaussian(sigma, q, a) for a in orders.tolist()])
    return found, found


def _two_sided(event: ev.Event, move: Move, q: float, orders: Array) -> Array:
    """K of two overlapping mixtures: share 1 − q in common, the rest within ``event`` under ``move`` of it and each other."""
    sigma = _gaussian_noise(event, move)
    if sigma is not None:
        return np.array([replaced_gaussian(sigma, q, a) for a in orders.tolist()])
    return dv.replaced(_inner(event, move), pure_epsilon(event, move) * (1 + 1e-12), q, orders)


@lru_cache(maxsize=4096)
def _sampled(event: ev.Event) -> int:
    """How many samplers lie within one another."""
    own = 1 if isinstance(event, ev.Subsample) else 0
    return own + max((_sampled(inner) for inner in ev.children(event)), default=0)


def _any_batch(event: ev.Subsample, move: Move, orders: Array, memo: _Memo) -> Array:
    """No more than its worst two batches (Rényi divergence is quasi-convex): nothing is gained by sampling, and little computed."""
    k = move.group
    match event.sampler:
        case ev.FixedSize():
            moves = [replace(SWAP, group=k)]
        case ev.WithReplacement(size=size):
            moves = [replace(SWAP, group=size)]
        case ev.Poisson() if not move.replace:
            moves = [Move(group=k)]
        case _:
            moves = [Move(group=k), replace(SWAP_OF_PRESENCE, group=k)]
    return np.asarray(np.maximum.reduce([_divergence(event.event, each, orders, memo) for each in moves]))


def _subsample(event: ev.Subsample, move: Move, orders: Array, memo: _Memo) -> Array:
    sampler = event.sampler
    inside = _sampled(event.event)
    if inside >= _WITHIN_MAX or (inside and (move.group > 1 or isinstance(sampler, ev.WithReplacement))):
        return _any_batch(event, move, orders, memo)
    if move.group > 1:
        if isinstance(sampler, ev.Poisson) and not move.replace:
            return _poisson_group(event.event, sampler.probability, move.group, orders)
        return _group_chain(event, move, orders)
    match sampler:
        case ev.Poisson(probability=q):
            moments = _replaced_poisson(event.event, q, orders) if move.replace else np.maximum(*_one_sided(event.event, Move(), q, orders))
        case ev.FixedSize(size=size, population=population):
            q = size / population
            moments = _two_sided(event.event, SWAP, q, orders) if move.replace else np.maximum(*_one_sided(event.event, SWAP, q, orders))
        case ev.WithReplacement():
            moments = _with_replacement(event.event, sampler, move, orders)
        case ev.TruncatedPoisson():
            moments = _truncated(event.event, sampler, move, orders)
        case _:
            raise AssertionError(sampler)
    return moments / (orders - 1) * (1 + 4e-16)


def _replaced_poisson(inner: ev.Event, q: float, orders: Array) -> Array:
    """K when a unit's data are replaced: through the dataset without it, or as overlapping mixtures."""
    knots = _knots(5 * float(orders.max()))
    half = _rising(knots, np.maximum(*_one_sided(inner, Move(), q, knots)))
    hops = dv.two_hops(lambda at: _chord(knots, half, at), orders)
    sigma = _gaussian_noise(inner, SWAP_OF_PRESENCE)
    if sigma is not None:  # it dominates presence against absence too
        return np.minimum(hops, [replaced_gaussian(sigma, q, a) for a in orders.tolist()])

    def widest(a: Array) -> Array:
        return np.maximum(_curve(inner, Move(), a), _curve(inner, SWAP_OF_PRESENCE, a))

    pure = max(pure_epsilon(inner), pure_epsilon(inner, SWAP_OF_PRESENCE)) * (1 + 1e-12)
    return np.minimum(hops, dv.replaced(widest, pure, q, orders))


def _poisson_group(inner: ev.Event, q: float, k: int, orders: Array) -> Array:
    """Of k units, Bin(k, q) are in the batch: given that some are, a mixture over how many."""
    share = -math.expm1(k * math.log1p(-q)) if q < 1 else 1.0
    sizes = _blocks(k)
    log_weights = _log_bin(k, q, sizes)
    moments = [np.maximum(*_one_sided(inner, Move(group=j), share, orders)) for j in sizes]
    loose = dv.mixed(log_weights - math.log(share), moments)
    sigma = _gaussian_noise(inner, Move())
    if sigma is None or k > _COPIES_MAX or q >= 1:
        return loose / (orders - 1)
    return np.minimum(loose, _as_mixture(sigma, log_weights, orders)) / (orders - 1)


def _as_mixture(sigma: float, log_weights: Array, orders: Array) -> Array:
    """K of Σ P(j records) N(j, σ²) and N(0, σ²), the larger way: moved all one way, records are worst (Ganesh 2024)."""
    present = np.exp(log_weights)
    law = (1 - float(present.sum()), *present.tolist())
    return np.array([max(mixture_gaussian(sigma, law, a)) for a in orders.tolist()])


def _blocks(most: int) -> list[int]:
    """1 … 16 and then the upper ends of blocks that double, up to ``most``."""
    ends = list(range(1, min(most, _COPIES_MAX) + 1))
    while ends[-1] < most:
        ends.append(min(2 * ends[-1], most))
    return ends


def _log_bin(trials: int, q: float, ends: list[int]) -> Array:
    """Logs of P(previous end < Bin(trials, q) ≤ end), rounded up, for increasing ``ends`` ≥ 1."""
    found = []
    for before, end in pairwise((0, *ends)):
        if end - before > 1:
            found.append(_log_tail(trials, q, before + 1))
            continue
        choose = math.fsum(math.log(trials - i) for i in range(end)) - math.lgamma(end + 1)
        stay = (trials - end) * math.log1p(-q) if q < 1 else (0.0 if end == trials else -math.inf)
        found.append(choose + end * math.log(q) + stay * (1 - 1e-15))
    return np.array(found) + 1e-11


def _log_tail(trials: int, q: float, least: int) -> float:
    """Log of P(Bin(trials, q) ≥ least), rounded up: the incomplete beta function, or Chernoff's bound."""
    if least <= trials * q:
        return 0.0
    high = 0.0 if least >= trials else (1 - least / trials) * math.log((1 - least / trials) / (1 - q))
    chernoff = -trials * (least / trials * math.log(least / trials / q) + high)
    tail = float(betainc(least, trials - least + 1, q))
    return min(chernoff * (1 - 1e-12), math.log(tail) + 1e-6) if tail > 1e-200 else chernoff * (1 - 1e-12)


def _with_replacement(inner: ev.Event, sampler: ev.WithReplacement, move: Move, orders: Array) -> Array:
    """Drawn j times, the unit moves the batch by j of its records; K of the mixture over j ≥ 1."""
    m, n = sampler.size, sampler.population
    share = 1.0 if n == 1 else -math.expm1(m * math.log1p(-1 / n))
    ends = [m] if n == 1 else _blocks(m)
    log_weights = np.zeros(1) if n == 1 else _log_bin(m, 1 / n, ends) - math.log(share)
    moments = []
    for j in ends:
        swap = replace(SWAP, group=j)
        moments.append(_two_sided(inner, swap, share, orders) if move.replace else np.maximum(*_one_sided(inner, swap, share, orders)))
    loose = dv.mixed(log_weights, moments)
    sigma = _gaussian_noise(inner, SWAP)
    if sigma is None or m > _COPIES_MAX or n == 1 or move.replace:
        return loose
    return np.minimum(loose, _as_mixture(sigma, log_weights + math.log(share), orders))


def _truncated(inner: ev.Event, sampler: ev.TruncatedPoisson, move: Move, orders: Array) -> Array:
    """Given whether the others fill the batch: if not, Poisson; if so, the unit enters in place of another, or not at all."""
    q, cap = sampler.probability, sampler.cap
    plain = _replaced_poisson(inner, q, orders) if move.replace else np.maximum(*_one_sided(inner, Move(), q, orders))
    if cap >= sampler.population:
        return plain
    log_full = _log_tail(sampler.population - 1, q, cap)
    held = q * cap / (cap + 1)
    cut = (
        _two_sided(inner, SWAP_OF_PRESENCE, held, orders)
        if move.replace
        else np.maximum(*_one_sided(inner, SWAP_OF_PRESENCE, held, orders))
    )
    log_rest = math.log(-math.expm1(log_full)) if log_full < 0 else -math.inf
    return dv.mixed(np.array([log_rest, log_full]), [plain, np.maximum(cut, plain)])


# ------------------------------------------------------------------------------------------------ selection


def _select(event: ev.SelectBest, move: Move, orders: Array) -> Array:
    """Papernot & Steinke 2022: Theorem 2 (truncated negative binomial), Theorem 6 (Poisson)."""
    grid = np.union1d(orders, _ORDERS)
    own = _curve(event.event, move, grid)
    match event.runs:
        case ev.NegativeBinomialRuns(shape=shape, gamma=gamma):
            beside = float(np.min((1 - 1 / grid) * own - math.log(gamma) / grid))
            beside = min(beside, pure_epsilon(event.event, move), -math.log(gamma))
            found = own + (1 + shape) * beside + math.log(mean_runs(event.runs)) / (grid - 1)
        case ev.PoissonRuns(mean=mean):
            near = [_to_delta(grid, own, -math.log1p(-1 / a)).value for a in grid.tolist()]
            moment = (grid - 1) * (own + mean * np.array(near)) + math.log(mean)
            found = np.logaddexp(moment, -mean) / (grid - 1)  # no run at all: probability e^−mean, whatever the data
    found = np.minimum.accumulate((found * (1 + 1e-12))[::-1])[::-1]
    return np.asarray(found[np.searchsorted(grid, orders)])


# ------------------------------------------------------------------------------------------------ conversions


def zcdp(event: ev.Event, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> Fraction:
    """The ρ of zero-concentrated privacy as an exact rational, rounded up where it has to be; refused where none is finite.

    >>> from dither import events as ev
    >>> zcdp(ev.Repeat(ev.Gaussian(2.0), 10**12))
    Fraction(125000000000, 1)
    """
    if not ev.is_event(event):
        raise checks.refuse("event", event, "an event, such as events.Gaussian(noise_multiplier=1.1)")
    found = _exact.rho(event, _move(neighbors, group))
    if found is None:
        raise NotPriceableError(
            "This event has no finite ρ: expected Gaussian, pure or zCDP releases, composed or sampled. Price it with loss()."
        )
    return found


def _curve_given(orders: Iterable[float], values: Iterable[float]) -> tuple[Array, Array]:
    asked = _asked(orders)
    held = np.array([float(v) for v in values])
    if held.shape != asked.shape or np.isnan(held).any() or (held < 0).any():
        raise InputError("values is not allowed: expected one divergence for each order, each a number >= 0 or ∞.")
    return asked, held


def epsilon_from_curve(orders: Iterable[float], values: Iterable[float], delta: float) -> Converted:
    """The least ε at that δ that a Rényi curve gives, and the order it is found at.

    Canonne, Kamath & Steinke 2020, Proposition 12: ε = D + log(1 − 1/α) − (log δ + log α)/(α − 1). Where δ is at least
    the total variation distance (Bretagnolle–Huber, Pinsker), ε = 0.

    >>> found = epsilon_from_curve([2.0, 8.0], [1.0, 4.0], 1e-5)
    >>> round(found.value, 6), found.order
    (5.214109, 8.0)
    """
    asked, held = _curve_given(orders, values)
    return _to_epsilon(asked, held, checks.delta(delta))


def _to_epsilon(orders: Array, values: Array, delta: float) -> Converted:
    apart = np.minimum(np.sqrt(-np.expm1(-values)), np.sqrt(0.5 * values))
    if delta == 0:
        return Converted(0.0 if not values.any() else math.inf, float(orders[-1]))
    found = values + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    found = np.where(apart <= delta, 0.0, np.maximum(found, 0.0))
    best = int(np.argmin(found))
    return Converted(float(found[best]) * (1 + 1e-15), float(orders[best]))


def delta_from_curve(orders: Iterable[float], values: Iterable[float], epsilon: float) -> Converted:
    """The least δ at that ε that a Rényi curve gives, and the order it is found at.

    δ = e^{(α−1)(D−ε)}·(1 − 1/α)^{α−1}/α, or the total variation distance where that is less.

    >>> round(delta_from_curve([2.0, 8.0], [1.0, 4.0], 5.214109).value, 10)
    1e-05
    """
    asked, held = _curve_given(orders, values)
    return _to_delta(asked, held, checks.between("epsilon", epsilon, 0.0, 1e9))


def _to_delta(orders: Array, values: Array, epsilon: float) -> Converted:
    power = (orders - 1) * (values - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    apart = np.minimum(np.sqrt(-np.expm1(-values)), np.sqrt(0.5 * values))
    found = np.minimum(np.exp(np.minimum(power, 0.0)) * (1 + 1e-12), apart)
    best = int(np.argmin(found))
    return Converted(min(float(found[best]), 1.0), float(orders[best]))


def epsilon_of_zcdp(rho: float, delta: float) -> Converted:
    """The least ε at that δ that ρ-zCDP gives: the line D = ρα at its best order.

    >>> epsilon_of_zcdp(0.5, 1e-5).value < 0.5 + 2 * math.sqrt(0.5 * math.log(1e5))
    True
    """
    each = checks.between("rho", rho, 0.0, 1e300)
    share = checks.delta(delta)
    if each == 0 or share == 0:
        return Converted(0.0 if each == 0 else math.inf, 2.0)
    middle = min(math.sqrt(math.log(1 / share) / each), 1e150)  # its square is a float
    orders = 1 + np.geomspace(max(middle * 0.05, 1e-12), max(middle * 5, 1e-9), 4001)
    return _to_epsilon(orders, each * orders, share)


def without_delta(event: ev.Event, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> tuple[ev.Event, float]:
    """The event with its (ε, δ)-DP parts made (ε, 0)-DP, and the δ that this costs once for all.

    An (ε, δ)-DP part is (ε, 0)-DP but for an event of probability δ (Kairouz, Oh & Viswanath 2015). Parts inside a
    sampler, a choice or a shuffle keep their δ, and with it an infinite curve.

    >>> from dither import events as ev
    >>> without_delta(ev.Repeat(ev.ApproxDp(0.5, 1e-9), 3))[0]
    Repeat(event=PureDp(epsilon=0.5), count=3)
    """
    made, side = _exact.without_delta(event, _move(neighbors, group))
    return made, _exact.float_above(side)


def renyi_epsilon(event: ev.Event, delta: float, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> Converted:
    """ε of an event at that δ by Rényi accounting alone, orders refined around the best; never below the truth.

    >>> from dither import events as ev
    >>> renyi_epsilon(ev.NonPrivate(), 1e-6).value
    inf
    """
    if not ev.is_event(event):
        raise checks.refuse("event", event, "an event, such as events.Gaussian(noise_multiplier=1.1)")
    return _renyi_epsilon(event, checks.delta(delta), _move(neighbors, group))


@lru_cache(maxsize=256)
def _renyi_epsilon(event: ev.Event, delta: float, move: Move) -> Converted:
    made, share = _exact.without_delta(event, move)
    left = delta - _exact.float_above(share)
    pure = pure_epsilon(made, move) * (1 + 1e-12)
    if left < 0 or (left == 0 and math.isinf(pure)):
        return Converted(math.inf, math.inf)
    if left == 0:
        return Converted(pure, math.inf)
    orders = _ORDERS
    best = _to_epsilon(orders, _curve(made, move, orders), left)
    for _ in range(4):  # ε(order) has one valley: a convex log-moment over a line
        if not 0 < best.value < math.inf:
            break
        i = int(np.searchsorted(orders, best.order))
        low, high = orders[max(i - 1, 0)], orders[min(i + 1, orders.size - 1)]
        orders = 1 + np.geomspace(low - 1, high - 1, 9)
        best = min(best, _to_epsilon(orders, _curve(made, move, orders), left))
    return min(best, Converted(pure, math.inf))
