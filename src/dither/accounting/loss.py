"""The price of an event: ε at a δ, δ at an ε, the trade-off curve, Rényi and zero-concentrated figures, with both sides.

>>> from dither import events as ev
>>> loss(ev.Repeat(ev.PureDp(0.1), 10)).epsilon(0.0).upper
1.0
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from dither.accounting._bounds import Move, pure_epsilon, rho
from dither.accounting._compose import Composition
from dither.accounting._pair import Array, Pair
from dither.accounting._pairs import GaussianPair
from dither.accounting._price import Parts, parts
from dither.accounting._samplers import is_smooth
from dither.core import checks
from dither.core import events as ev
from dither.core.errors import InputError
from dither.core.units import Bound, Neighbors
from dither.core.units import neighbors as as_neighbors

GROUP_MAX = 10**6
EPSILON_ASKED_MAX = 1e9
_NOTED_DELTA = 1e-5
_KNOTS = 32


class TradeOff(NamedTuple):
    """At each false positive rate, the least miss rate any test of membership can have: proven, and not more than."""

    lower: Array
    upper: Array


class _Side(NamedTuple):
    """One direction: what bounds from above, and what is met (None where that is the same)."""

    above: Composition
    below: Composition | None


@dataclass(frozen=True, eq=False)
class Loss:
    """The privacy loss of an event under a neighbouring relation, for ``group`` units that are present or absent together.

    Guarantee: ``upper`` sides hold for every mechanism the event describes and every two neighbours; ``lower`` sides are
        what its worst case is proven to cost, 0 where nothing is proven (``tight`` False, ``notes`` say why).
    Edge cases: δ = 0 is refused where the loss has no bound; ``NonPrivate`` costs ε = ∞, δ = 1.

    >>> from dither import events as ev
    >>> price = loss(ev.Gaussian(1.0))
    >>> round(price.epsilon(1e-5).upper, 5), price.tight
    (4.37718, True)
    """

    event: ev.Event
    neighbors: Neighbors
    group: int

    @cached_property
    def _parts(self) -> Parts:
        return parts(self.event, self._move)

    @property
    def _move(self) -> Move:
        return Move(replace=self.neighbors is Neighbors.REPLACE, group=self.group)

    @cached_property
    def _sides(self) -> tuple[_Side, ...]:
        found = self._parts
        made = []
        for d in range(found.directions):
            above = Composition([(price.at(d), count) for price, count in found.prices])
            below = None
            if not found.tight:
                met: list[tuple[Pair | None, int]] = [(price.met(d), count) for price, count in found.prices] if found.exact else []
                below = Composition([(pair, count) for pair, count in met if pair is not None])
            made.append(_Side(above, below))
        return tuple(made)

    @cached_property
    def pure_epsilon(self) -> float:
        """The least ε known at δ = 0: ∞ where the loss has no bound."""
        return pure_epsilon(self.event, self._move)

    @cached_property
    def tight(self) -> bool:
        """Whether the price is met: some mechanism and neighbours that the event describes cost this much."""
        return self._parts.tight

    @cached_property
    def _hopeless(self) -> bool:
        """Whether all is told for sure."""
        return any(price.at(d).masses(np.zeros(1)).p_inf >= 1 for price, _ in self._parts.prices for d in (0, 1))

    @cached_property
    def _far(self) -> float:
        """A bound on the total variation distance, rounding included: those of the parts add, so with a δ above it ε is 0."""
        cells = [[(price.at(d).masses(np.zeros(1)), count) for price, count in self._parts.prices] for d in (0, 1)]
        return max(
            math.fsum(count * (max(0.0, float(m.p[1] - m.q[1])) + m.p_inf + 1e-14 * float(m.p[1])) for m, count in side) for side in cells
        )

    @cached_property
    def _smooth(self) -> bool:
        """Whether the pairs from above are worth bounding from both sides, which refines the grid; finite laws are not."""
        return all(is_smooth(pair) for own, _ in self._parts.prices for pair in own.upper)

    @cached_property
    def _told(self) -> tuple[float, float]:
        """With what probability all is told, whatever ε: what is met, and the bound."""
        if self._hopeless:
            return (1.0 if self.tight else 0.0), 1.0
        found, zero, none = self._parts, np.zeros(1), 0.0
        sides = []
        for side in ("met", "at"):
            directions = range(found.directions) if side == "at" or found.exact else range(0)
            kept = [
                math.fsum(count * math.log1p(-pair.masses(zero).p_inf) for own, count in found.prices if (pair := getattr(own, side)(d)))
                for d in directions
            ]
            sides.append(max((-math.expm1(logs) for logs in kept), default=none))
        return min(sides), sides[1]

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What is to be known beside the figures: why they may be loose, and what they do not claim."""
        found = list(self._parts.notes)
        claim = self.poisson_claim
        if claim is not None:
            ours, theirs = self.epsilon_upper(_NOTED_DELTA), claim.epsilon_upper(_NOTED_DELTA)
            found.append(
                f"At δ = {_NOTED_DELTA:g} these shuffled batches are priced at ε = {ours:.4g}. Poisson sampling at that rate would claim "
                f"ε = {theirs:.4g}; for shuffled batches that claim would be false (Chua et al. 2024)."
            )
        return tuple(found)

    @cached_property
    def poisson_claim(self) -> Loss | None:
        """What Poisson sampling with q = batch/population would cost, where batches are shuffled: not a price of this event."""
        if not any(isinstance(e, ev.Subsample) and isinstance(e.sampler, ev.Shuffled) for e in ev.walk(self.event)):
            return None
        return loss(_as_poisson(self.event), neighbors=self.neighbors, group=self.group)

    def epsilon(self, delta: float) -> Bound:
        """ε at that δ, from below and above.

        >>> from dither import events as ev
        >>> loss(ev.ApproxDp(1.0, 1e-6)).epsilon(1e-7).lower
        inf
        """
        share = checks.delta(delta)
        if self._hopeless:
            return Bound(math.inf if self.tight else 0.0, math.inf)
        pure = self.pure_epsilon
        if share == 0:
            if math.isinf(pure):
                raise InputError(
                    "delta=0 is not allowed for this event: its privacy loss has no bound, so it has no finite ε there. "
                    "Expected a delta > 0, well below 1/population."
                )
            return Bound(pure if self.tight else 0.0, pure)
        if self._far <= share:
            return Bound(0.0, 0.0)
        lower, upper = 0.0, 0.0
        for above, below in self._sides:
            bound = above.epsilon(share) if below is None or self._smooth else Bound(0.0, above.epsilon_upper(share))
            upper = max(upper, bound.upper)
            lower = max(lower, bound.lower if below is None else below.epsilon(share).lower)
        upper = min(upper, pure)
        return Bound(min(lower, upper), upper)

    def epsilon_upper(self, delta: float) -> float:
        """An ε that is enough at that δ, without the work for the other side; ∞ at δ = 0 where the loss has no bound.

        >>> from dither import events as ev
        >>> loss(ev.Gaussian(1.0)).epsilon_upper(0.0)
        inf
        """
        share = checks.delta(delta)
        if self._hopeless:
            return math.inf
        if share == 0:
            return self.pure_epsilon
        if self._far <= share:
            return 0.0
        return min(max((above.epsilon_upper(share) for above, _ in self._sides), default=0.0), self.pure_epsilon)

    def delta(self, epsilon: float) -> Bound:
        """δ at that ε, from below and above.

        >>> from dither import events as ev
        >>> loss(ev.PureDp(1.0)).delta(1.0)
        Bound(lower=0.0, upper=0.0)
        """
        asked = _asked(epsilon)
        if self._hopeless:
            return Bound(self._told[0], 1.0)
        if asked >= self.pure_epsilon:
            return Bound(0.0, 0.0)
        lower, upper = 0.0, 0.0
        for above, below in self._sides:
            bound = above.delta(asked) if below is None or self._smooth else Bound(0.0, above.delta_upper(asked))
            upper = max(upper, bound.upper)
            lower = max(lower, bound.lower if below is None else below.delta(asked).lower)
        upper = min(upper, 1.0)
        return Bound(min(lower, upper), upper)

    def delta_upper(self, epsilon: float) -> float:
        """A δ that is enough at that ε, without the work for the other side.

        >>> from dither import events as ev
        >>> loss(ev.PureDp(1.0)).delta_upper(2.0)
        0.0
        """
        asked = _asked(epsilon)
        if self._hopeless:
            return 1.0
        if asked >= self.pure_epsilon:
            return 0.0
        return min(1.0, max((above.delta_upper(asked) for above, _ in self._sides), default=0.0))

    @cached_property
    def _knots(self) -> tuple[Array, Array, Array]:
        """ε, and δ there from below and above: from δ(0) to nearly nothing, evenly in δ and in log δ."""
        if self._hopeless:
            return np.zeros(1), np.full(1, self._told[0]), np.ones(1)
        least = max(self._told[1], 1e-9)
        most = min(self.pure_epsilon, self.epsilon_upper(min(2 * least, 0.5)))
        top = most if math.isfinite(most) else self.epsilon_upper(0.5 * (1 + least))
        at = min(top, 700.0) * np.linspace(0.0, 1.0, _KNOTS if top > 0 else 1) ** 1.5
        bounds = [self.delta(float(e)) for e in at]
        return at, np.array([b.lower for b in bounds]), np.array([b.upper for b in bounds])

    def trade_off(self, false_positive_rates: Iterable[float]) -> TradeOff:
        """The f-DP curve: for every test between neighbours with these false positive rates, how often it must miss.

        ``lower`` is guaranteed. The worst test misses no more often than ``upper`` where the price is tight.

        >>> from dither import events as ev
        >>> curve = loss(ev.PureDp(1.0)).trade_off([0.0, 0.5, 1.0])
        >>> bool(abs(curve.lower[1] - 0.5 / math.e) < 1e-9)
        True
        """
        rates = np.array([checks.between("false_positive_rates", x, 0.0, 1.0) for x in false_positive_rates])
        at, low, high = self._knots
        slopes = np.exp(at)
        lower = _miss_rates(slopes, high, rates)
        upper = _miss_rates(*_below_convex(slopes, low, high, self._told[0]), rates)
        chance = np.maximum(1 - rates, 0.0)
        return TradeOff(np.minimum(lower, chance), np.minimum(np.maximum(upper, lower), chance))

    def rdp(self, orders: Iterable[float]) -> Array:
        """Upper bounds on the Rényi divergences of these orders, whichever neighbour comes first.

        >>> from dither import events as ev
        >>> loss(ev.Gaussian(1.0)).rdp([2.0, 8.0]).round(9)
        array([1., 4.])
        """
        from dither.accounting import rdp  # noqa: PLC0415 - a separate accountant, loaded when asked for

        asked = np.array([checks.between("orders", a, 1.0, 1e9) for a in orders])
        return np.asarray(rdp.curve(self.event, asked, neighbors=self.neighbors, group=self.group))

    def zcdp(self) -> Bound:
        """The ρ of zero-concentrated privacy: the largest divergence/order, over all orders; ∞ where there is none.

        >>> from dither import events as ev
        >>> round(loss(ev.Gaussian(1.0)).zcdp().upper, 9)
        0.5
        """
        least = rho(self.event, self._move)
        met = self.tight and all(isinstance(pair, GaussianPair) for own, _ in self._parts.prices for pair in own.upper)
        return Bound(least * (1 - 1e-12) if met else 0.0, least)


def _miss_rates(slopes: Array, deltas: Array, rates: Array) -> Array:
    """Largest of 1 − δ − αx and (1 − δ − x)/α over (α, δ): what each (log α, δ) guarantees both ways round (Wasserman & Zhou 2010)."""
    alpha, share = slopes[:, None], deltas[:, None]
    lines = np.maximum(1 - share - alpha * rates, (1 - share - rates) / alpha)
    return np.asarray(np.clip(lines.max(axis=0), 0.0, 1.0))


def _below_convex(slopes: Array, low: Array, high: Array, told: float) -> tuple[Array, Array]:
    """Corners of a polyline below every convex falling profile that lies between ``low`` and ``high`` at the knots.

    Between two knots the profile is above the chords of its neighbours, carried on; those meet in one more corner.
    """
    if len(slopes) < 3:
        return slopes, np.full(len(slopes), told)
    rise_left = np.append(low[0] - 1, (low[1:] - high[:-1]) / np.diff(slopes))[:-1]  # of the chord that ends at knot i
    rise_right = np.append((high[1:] - low[:-1]) / np.diff(slopes), 0.0)[1:]  # of the chord that starts at knot i + 1
    rise_right = np.minimum(rise_right, 0.0)
    start, end = slopes[:-1], slopes[1:]
    gap = np.where(rise_right > rise_left, rise_right - rise_left, np.inf)
    meet = np.clip((low[:-1] - low[1:] + rise_right * end - rise_left * start) / gap, start, end)
    height = np.maximum(low[:-1] + rise_left * (meet - start), low[1:] + rise_right * (meet - end))
    alone = np.isinf(gap)
    meet, height = np.where(alone, start, meet), np.where(alone, low[1:], height)
    return np.concatenate((slopes, meet, slopes[-1:])), np.concatenate((low, np.maximum(height, low[1:]), [min(told, float(low[-1]))]))


def _asked(epsilon: float) -> float:
    return checks.between("epsilon", epsilon, 0.0, EPSILON_ASKED_MAX)


def _as_poisson(event: ev.Event) -> ev.Event:
    match event:
        case ev.Subsample(event=inner, sampler=ev.Shuffled(batch=batch, population=population)):
            return ev.Subsample(_as_poisson(inner), ev.Poisson(batch / population))
        case ev.Subsample(event=inner, sampler=sampler):
            return ev.Subsample(_as_poisson(inner), sampler)
        case ev.Repeat(event=inner, count=count):
            return event if event.spread else ev.Repeat(_as_poisson(inner), count)
        case ev.Sequence(events=members):
            return ev.Sequence(tuple(_as_poisson(member) for member in members))
        case ev.Parallel(events=members):
            return ev.Parallel(tuple(_as_poisson(member) for member in members))
        case ev.SelectBest(event=inner, runs=runs):
            return ev.SelectBest(_as_poisson(inner), runs)
        case ev.ShuffledReports(event=inner, reports=reports):
            return ev.ShuffledReports(_as_poisson(inner), reports)
        case _:
            return event


@lru_cache(maxsize=64)
def _loss(event: ev.Event, neighbors: Neighbors, group: int) -> Loss:
    made = Loss(event, neighbors, group)
    _ = made._parts  # noqa: SLF001 - what cannot be priced is refused here, not when a figure is asked for
    return made


def loss(event: ev.Event, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> Loss:
    """The privacy loss of an event.

    >>> from dither import events as ev
    >>> loss(ev.Laplace(1.0), group=3).epsilon(0.0)
    Bound(lower=3.0, upper=3.0)
    """
    if not ev.is_event(event):
        raise checks.refuse("event", event, "an event, such as events.Gaussian(noise_multiplier=1.1)")
    return _loss(event, as_neighbors(neighbors), checks.count("group", group, high=GROUP_MAX))


def epsilon(event: ev.Event, delta: float, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> Bound:
    """ε of an event at that δ.

    >>> from dither import events as ev
    >>> epsilon(ev.NonPrivate(), 1e-6)
    Bound(lower=inf, upper=inf)
    """
    return loss(event, neighbors=neighbors, group=group).epsilon(delta)


def delta(event: ev.Event, epsilon: float, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> Bound:
    """δ of an event at that ε.

    >>> from dither import events as ev
    >>> round(delta(ev.Gaussian(1.0), 1.0).upper, 9)
    0.126936738
    """
    return loss(event, neighbors=neighbors, group=group).delta(epsilon)
