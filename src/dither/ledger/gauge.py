"""The arithmetic of one limit: what an event costs under its filter, whether it fits, and what that means in ε and δ.

Amounts are whole numbers of 1/UNITS, so a balance is a tuple of integers and its sum is exact in any order. The rules are
those of ``dither.accounting.filters``; here they are held over balances that are stored, and over limits that are moved.
Which theorem covers which kind: docs/proofs/ledger-limits.md.

>>> from dither.core import events as ev
>>> gauge = Gauge.of(FilterSpec.of(1), Neighbors.ADD_REMOVE)
>>> price = gauge.price(ev.PureDp(0.25))
>>> gauge.fits(added(price, price)), gauge.remaining(price)
(True, (0.75, 0.0))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

from dither.accounting import filters, rdp
from dither.accounting._book import Book
from dither.accounting._exact import UNITS
from dither.core import events as ev
from dither.core.units import Neighbors
from dither.ledger.entries import in_units, shortened
from dither.ledger.terms import FilterSpec, below

Units: TypeAlias = tuple[int, ...]

NEVER: Final = -1
"""The limit of a Rényi order that cannot hold the promised ε, whatever is spent."""


def added(one: Units, other: Units) -> Units:
    """The sum, currency by currency.

    >>> added((1, 2), (3, 4))
    (4, 6)
    """
    return tuple(a + b for a, b in zip(one, other, strict=True))


def taken(one: Units, other: Units) -> Units:
    """The difference, currency by currency.

    >>> taken((4, 6), (3, 4))
    (1, 2)
    """
    return tuple(a - b for a, b in zip(one, other, strict=True))


def in_floats(amount: int, *, up: bool) -> float:
    """An amount as a float that is not below it (or not above it); the decimal that names the float is what counts.

    >>> in_floats(UNITS // 10, up=True), in_floats(UNITS // 10, up=False)
    (0.1, 0.1)
    """
    if amount > UNITS * 10**300:
        return math.inf if up else 1e300
    near = amount / UNITS
    above, under = Decimal(repr(near)).as_integer_ratio()
    more = above * UNITS - amount * under
    if up:
        return near if more >= 0 else math.nextafter(near, math.inf)
    return near if more <= 0 else math.nextafter(near, 0.0)


def in_units_down(amount: Fraction) -> int:
    """The amount as a whole number of 1/UNITS, rounded down.

    >>> in_units_down(Fraction(1, 3)) == UNITS // 3
    True
    """
    return amount.numerator * UNITS // amount.denominator


@dataclass(frozen=True, slots=True, eq=False)
class Gauge:
    """One filter over one neighbouring relation: its currencies, its limits, its price list."""

    spec: FilterSpec
    neighbors: Neighbors
    currencies: tuple[str, ...]
    limits: Units
    pricing: Book
    """A filter, or for Rényi an odometer over all orders, whose ``price`` is the price."""

    @classmethod
    def of(cls, spec: FilterSpec, neighbors: Neighbors) -> Gauge:
        """The gauge of a specification."""
        return _gauge(spec, neighbors)

    @property
    def zero(self) -> Units:
        """An unspent balance."""
        return (0,) * len(self.limits)

    def price(self, event: ev.Event) -> Units:
        """What the event costs, rounded up; NotPriceableError where the filter's theorem does not cover it.

        >>> Gauge.of(FilterSpec.of(1), Neighbors.ADD_REMOVE).price(ev.PureDp(0.5)) == (UNITS // 2,)
        True
        """
        return _price(self, event)

    def fits(self, spent: Units) -> bool:
        """Whether a balance keeps the promise: every currency, or for Rényi one order at least, and δ."""
        if self.spec.kind != "rdp":
            return all(used <= most for used, most in zip(spent, self.limits, strict=True))
        return spent[-1] <= self.limits[-1] and any(used <= most for used, most in zip(spent[:-1], self.limits, strict=False))

    def share(self, spent: Units) -> float:
        """The part of the limit that is used, from 0 to 1 (and above, where it is overspent); for Rényi, of the order with most left.

        >>> Gauge.of(FilterSpec.of(1), Neighbors.ADD_REMOVE).share((UNITS // 4,))
        0.25
        """
        parts = [_part(used, most) for used, most in zip(spent, self.limits, strict=True)]
        if self.spec.kind != "rdp":
            return max(parts)
        return max(min(part for part, most in zip(parts[:-1], self.limits, strict=False) if most != NEVER), parts[-1])

    def passed(self, spent: Units, threshold: Fraction) -> bool:
        """Whether at least that share of the limit is used, exactly.

        >>> Gauge.of(FilterSpec.of(1), Neighbors.ADD_REMOVE).passed((UNITS // 2,), Fraction(1, 2))
        True
        """

        def at(i: int) -> bool:
            return spent[i] > 0 and spent[i] * threshold.denominator >= self.limits[i] * threshold.numerator

        if self.spec.kind != "rdp":
            return any(map(at, range(len(spent))))
        return at(-1) or all(at(i) for i, most in enumerate(self.limits[:-1]) if most != NEVER)

    def spent_reading(self, spent: Units, events: int) -> tuple[float, float]:
        """(ε, δ): the smallest limit of this kind that, set beforehand, would have let through the same charges; rounded up."""
        if not events:
            return 0.0, 0.0
        kind, slack = self.spec.kind, float(self.spec.delta - self.spec.side_delta) * (1 - 1e-15)  # as the filters take it
        if kind in {"pure", "approx"}:
            return in_floats(spent[0], up=True), in_floats(spent[-1], up=True) if kind == "approx" else 0.0
        if kind == "advanced":
            squares = _above(spent[0])
            epsilon = math.sqrt(2 * -math.log(slack) * squares) + squares / 2
        elif kind == "zcdp":
            epsilon = rdp.epsilon_of_zcdp(_above(spent[0]), slack).value
        else:
            epsilon = min(_above(used) + less for used, less in zip(spent, _conversions(self.spec.orders, slack), strict=False))
        whole = self.spec.delta - self.spec.side_delta + Fraction(spent[-1], UNITS)
        return max(epsilon * (1 + 1e-12), 0.0), _delta_above(whole)

    def remaining(self, spent: Units) -> tuple[float, float]:
        """(ε, δ): the largest ε that one more ε-DP release could have, and the δ left for events with a δ of their own; rounded down."""
        left = [max(most - used, 0) for used, most in zip(spent, self.limits, strict=True)]
        side = in_floats(left[-1], up=False) if len(left) > 1 else 0.0
        if not self.fits(spent):
            return 0.0, 0.0
        kind = self.spec.kind
        if kind in {"pure", "approx"}:
            return in_floats(left[0], up=False), side
        if kind == "rdp":
            return max(_pure_room(a, room) for a, room in zip(self.spec.orders, left, strict=False)), side
        room = min(left[0] / UNITS, 1e300) * (1 - 1e-15)
        return (math.sqrt(room) if kind == "advanced" else max(math.sqrt(2 * room), room)) * (1 - 1e-12), side


def _part(used: int, most: int) -> float:
    if used <= 0:
        return 0.0
    return used / most if most > 0 and used < most * 10**300 else math.inf


def _above(amount: int) -> float:
    """A float not below the amount, by less than 1e-15 of it."""
    return amount / UNITS * (1 + 5e-16) if amount < UNITS * 10**300 else math.inf


def _delta_above(amount: Fraction) -> float:
    near = float(amount)
    return near if Fraction(repr(near)) >= amount else math.nextafter(near, 1.0)


@lru_cache(maxsize=1024)
def _conversions(orders: tuple[float, ...], slack: float) -> tuple[float, ...]:
    """What is added to D of each order, the orders sharing δ (Canonne, Kamath & Steinke 2020).

    The two nearly cancel at a small ε, so the margin is one of the terms, not of their sum: twice what the filter holds back, and more.
    """
    each = math.log(slack) - math.log(len(orders))
    return tuple(math.log1p(-1 / a) - (each + math.log(a)) / (a - 1) + 3e-14 * (1 - each / (a - 1)) for a in orders)


def _pure_room(order: float, left: int) -> float:
    """An ε whose Rényi divergence at this order is at most what is left: D ≤ ε, and D ≤ order·ε²/2."""
    room = min(left / UNITS, 1e300)
    return max(room, math.sqrt(2 * room / order)) * (1 - 1e-11)


@lru_cache(maxsize=4096)
def _gauge(spec: FilterSpec, neighbors: Neighbors) -> Gauge:
    opened = spec.open(neighbors)
    if not isinstance(opened, filters.RdpFilter):
        return Gauge(spec, neighbors, opened.currencies, tuple(in_units_down(most) for most in opened.limit), opened)
    held = dict(zip(opened.orders, opened.limit, strict=False))
    most = [in_units_down(held[a]) if a in held else NEVER for a in spec.orders]
    odometer = filters.RenyiOdometer.open(below(spec.delta), orders=spec.orders, neighbors=neighbors)
    return Gauge(spec, neighbors, odometer.currencies, (*most, in_units_down(opened.limit[-1])), odometer)


@lru_cache(maxsize=16_384)
def _price(gauge: Gauge, event: ev.Event) -> Units:
    return tuple(in_units(shortened(cost)) for cost in gauge.pricing.price(event))
