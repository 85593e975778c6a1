"""Adaptive composition as arithmetic: privacy filters, that refuse what would overspend, and odometers, that report.

Events may be chosen one by one, each after seeing the answers of the earlier ones, prices included. A filter is an
immutable state: ``would`` says whether an event still fits, ``after`` gives the state that has it written down (price
first, record, then run). Amounts are exact rationals; what an event costs is rounded up, never a sum. Every class names
the theorem it rests on and refuses what the theorem does not cover. Proofs: docs/proofs/filters.md.

>>> from dither import events as ev
>>> book = PureFilter.open(epsilon=1.0)
>>> for _ in range(10):
...     book = book.after(ev.PureDp(0.1))
>>> book.remaining, book.would(ev.PureDp(1e-9)).allowed
((Fraction(0, 1),), False)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import reduce
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from dither.accounting import _exact, rdp
from dither.accounting._book import Amounts, Book, Decision, added, amounts, checked_orders, divergence, opened, stated
from dither.accounting._book import limit as as_limit
from dither.accounting._bounds import Move
from dither.core import checks
from dither.core import events as ev
from dither.core.errors import DecodeError, RefusedError, UnknownNameError, shown
from dither.core.units import Neighbors
from dither.core.units import neighbors as as_neighbors

__all__ = [
    "AdvancedFilter",
    "ApproxFilter",
    "Decision",
    "IndividualFilter",
    "PureFilter",
    "PureOdometer",
    "RdpFilter",
    "RenyiOdometer",
    "ZcdpFilter",
    "ZcdpOdometer",
    "from_dict",
]

_LOW = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0)
ORDERS = (*_LOW, 14.0, 16.0, 20.0, 24.0, 28.0, 32.0, 40.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0)
"""Orders of a Rényi filter or odometer when none are named."""
_RECORDS_MAX = 10_000_000


# ------------------------------------------------------------------------------------------------ filters


@dataclass(frozen=True, kw_only=True)
class PureFilter(Book):
    """Σε ≤ limit, for events that are pure; the whole is (limit, 0)-DP."""

    kind: ClassVar[str] = "pure"
    theorem: ClassVar[str] = "Rogers, Roth, Ullman & Vadhan 2016 (basic composition is a valid privacy filter)"

    @classmethod
    def open(cls, epsilon: float, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> PureFilter:
        """An unspent filter."""
        limit = as_limit("epsilon", epsilon, checks.EPSILON_MAX)
        return cls(limit=(limit,), spent=(Fraction(0),), **opened(neighbors, group))

    @property
    def currencies(self) -> tuple[str, ...]:
        """One: ε."""
        return ("ε",)

    def _price(self, event: ev.Event) -> Amounts:
        found = _exact.pure(event, self._move)
        if found is None:
            raise self._refuse(event, "ε at δ = 0", "Use a zcdp or rdp filter.")
        return (found,)


@dataclass(frozen=True, kw_only=True)
class ApproxFilter(Book):
    """Σε ≤ limit and Σδ ≤ limit, for events that state an (ε, δ); the whole is (ε, δ)-DP."""

    kind: ClassVar[str] = "approx"
    theorem: ClassVar[str] = "Rogers, Roth, Ullman & Vadhan 2016 (basic composition is a valid privacy filter)"

    @classmethod
    def open(cls, epsilon: float, delta: float, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> ApproxFilter:
        """An unspent filter."""
        limit = as_limit("epsilon", epsilon, checks.EPSILON_MAX), stated(checks.delta(delta))
        return cls(limit=limit, spent=(Fraction(0), Fraction(0)), **opened(neighbors, group))

    @property
    def currencies(self) -> tuple[str, ...]:
        """ε and δ."""
        return ("ε", "δ")

    def _price(self, event: ev.Event) -> Amounts:
        found = _exact.approximate(event, self._move)
        if found is None:
            raise self._refuse(event, "(ε, δ) of its own", "State one with ApproxDp(epsilon, delta), or use a zcdp or rdp filter.")
        return found


@dataclass(frozen=True, kw_only=True)
class AdvancedFilter(Book):
    """Advanced composition, fully adaptive: √(2 log(1/δ′)·Σε²) + Σε²/2 ≤ ε and Σδ ≤ δ″; the whole is (ε, δ′ + δ″)-DP.

    The rule on ε is Σε² ≤ V with V its root, so what is added up is exact: Σε² and Σδ.
    """

    kind: ClassVar[str] = "advanced"
    theorem: ClassVar[str] = "Whitehouse, Ramdas, Rogers & Wu 2023 (fully adaptive advanced composition, same rate and constants)"

    @classmethod
    def open(
        cls, epsilon: float, delta: float, *, side_delta: float = 0.0, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1
    ) -> AdvancedFilter:
        """An unspent filter; ``side_delta`` of δ is kept for events that have a δ of their own."""
        most, side, left = _target(epsilon, delta, side_delta)
        wide = -math.log(_below(left))
        root = most / (math.sqrt(0.5 * wide) + math.sqrt(0.5 * wide + 0.5 * most))  # √V: V/2 + √(2·wide·V) = ε
        squares = Fraction(root * root * (1 - 1e-13))
        return cls(limit=(squares, side), spent=(Fraction(0), Fraction(0)), **opened(neighbors, group))

    @property
    def currencies(self) -> tuple[str, ...]:
        """Σε² and δ."""
        return ("Σε²", "δ")

    def _price(self, event: ev.Event) -> Amounts:
        squares = _squares(event, self._move)
        if squares is None:
            raise self._refuse(event, "(ε, δ) of its own", "State one with ApproxDp(epsilon, delta), or use a zcdp or rdp filter.")
        return squares


def _squares(event: ev.Event, move: Move) -> Amounts | None:
    """(Σε², Σδ) over the parts of an event, which the theorem takes one by one."""
    match event:
        case ev.Repeat(event=ev.Subsample(sampler=ev.Shuffled())):
            found = _exact.approximate(event, move)
        case ev.Repeat(event=inner, count=count):
            each = _squares(inner, move)
            return None if each is None else tuple(count * amount for amount in each)
        case ev.Sequence(events=members):
            parts = [_squares(member, move) for member in members]
            known = [p for p in parts if p is not None]
            return reduce(added, known) if len(known) == len(parts) else None
        case _:
            found = _exact.approximate(event, move)
    return None if found is None else (_exact.rounded_up(found[0] ** 2), found[1])


def _target(epsilon: float, delta: float, side_delta: float) -> tuple[float, Fraction, Fraction]:
    """(ε, δ kept for events, δ left for the conversion)."""
    most = checks.positive("epsilon", epsilon, high=checks.EPSILON_MAX)
    side = stated(checks.delta(side_delta, "side_delta"))
    left = stated(checks.delta(delta, zero=False)) - side
    if left <= 0:
        raise checks.refuse("side_delta", side_delta, f"less than delta={float(delta)!r}, so that some δ is left for the conversion")
    return most, side, left


def _below(share: Fraction) -> float:
    """A float below a share of δ, by less than 1e-14 of it."""
    return float(share) * (1 - 1e-15)


@dataclass(frozen=True, kw_only=True)
class ZcdpFilter(Book):
    """Σρ ≤ limit (and Σδ ≤ side account), for events with a ρ; the whole is δ-approximately limit-zCDP."""

    kind: ClassVar[str] = "zcdp"
    theorem: ClassVar[str] = (
        "Whitehouse, Ramdas, Rogers & Wu 2023 (filter for approximate zCDP); Feldman & Zrnic 2021 at every order at once"
    )

    @classmethod
    def open(cls, rho: float, *, side_delta: float = 0.0, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> ZcdpFilter:
        """An unspent filter for ρ, with ``side_delta`` for events that have a δ of their own."""
        limit = as_limit("rho", rho, checks.EPSILON_MAX), stated(checks.delta(side_delta, "side_delta"))
        return cls(limit=limit, spent=(Fraction(0), Fraction(0)), **opened(neighbors, group))

    @classmethod
    def for_epsilon(
        cls, epsilon: float, delta: float, *, side_delta: float = 0.0, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1
    ) -> ZcdpFilter:
        """An unspent filter whose whole is (ε, δ)-DP: the largest ρ that converts to them."""
        most, side, left = _target(epsilon, delta, side_delta)
        slack, low, high = _below(left), 0.0, most
        for _ in range(80):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if rdp.epsilon_of_zcdp(middle, slack).value <= most else (low, middle)
        return cls(limit=(Fraction(low), side), spent=(Fraction(0), Fraction(0)), **opened(neighbors, group))

    @property
    def currencies(self) -> tuple[str, ...]:
        """ρ and δ."""
        return ("ρ", "δ")

    def epsilon(self, delta: float) -> float:
        """The whole is (ε, δ)-DP when the filter is spent to its limit, whatever was chosen: its side account is in δ."""
        left = _below(stated(checks.delta(delta)) - self.limit[1])
        return rdp.epsilon_of_zcdp(float(self.limit[0]) * (1 + 1e-15), left).value if left > 0 else math.inf

    def _price(self, event: ev.Event) -> Amounts:
        found = _rho(event, self._move)
        if found is None:
            raise self._refuse(event, "ρ", "Use an rdp filter, or state a bound with ApproxDp(epsilon, delta).")
        return found


def _rho(event: ev.Event, move: Move) -> Amounts | None:
    """(ρ, δ) of an event, the δ's of its (ε, δ)-DP parts taken out."""
    stripped, side = _exact.without_delta(event, move)
    found = _exact.rho(stripped, move)
    return None if found is None else (found, side)


@dataclass(frozen=True, kw_only=True)
class RdpFilter(Book):
    """Σ D_α ≤ B_α at one fixed order, or at any one of several; the whole is (ε, δ)-DP.

    With one order this is the theorem as published. With m orders an event fits while *some* order still holds, and
    each order is held to (ε, δ/m): which order holds may depend on the answers, so the δ's of all are added (proof page).
    Where the workload is known, name its one best order (``rdp.renyi_epsilon(event, delta).order``): that lets most through.
    An event whose divergence is infinite at an order uses that order up for good.
    """

    orders: tuple[float, ...]
    epsilon: Fraction
    delta: Fraction

    kind: ClassVar[str] = "rdp"
    theorem: ClassVar[str] = (
        "Feldman & Zrnic 2021 and Lécuyer 2021 (Rényi privacy filter at a fixed order); several orders share δ by a union bound"
    )

    @classmethod
    def open(
        cls,
        epsilon: float,
        delta: float,
        *,
        orders: Iterable[float] = ORDERS,
        side_delta: float = 0.0,
        neighbors: Neighbors | str = Neighbors.ADD_REMOVE,
        group: int = 1,
    ) -> RdpFilter:
        """An unspent filter; ``orders`` are fixed here, before anything is asked."""
        most, side, left = _target(epsilon, delta, side_delta)
        asked = checked_orders(orders)
        each = _below(left / len(asked))
        kept = [(a, found) for a, found in ((a, _order_limit(a, most, each)) for a in asked) if found > 0]
        if not kept:
            raise RefusedError(f"ε = {most:g} at δ = {float(delta):g} leaves nothing to spend at orders {shown(asked)}: add larger orders.")
        return cls(
            limit=(*(Fraction(found) for _, found in kept), side),
            spent=(Fraction(0),) * (len(kept) + 1),
            orders=tuple(a for a, _ in kept),
            epsilon=stated(most),
            delta=stated(delta),
            **opened(neighbors, group),
        )

    def __post_init__(self) -> None:
        _check_curve(self.orders, epsilon=self.epsilon, delta=self.delta)
        super().__post_init__()

    @property
    def currencies(self) -> tuple[str, ...]:
        """A Rényi divergence for each order, and δ."""
        return (*(f"D at order {a:g}" for a in self.orders), "δ")

    def _fits(self, after: Amounts) -> bool:
        held = any(used <= most for used, most in zip(after[:-1], self.limit[:-1], strict=True))
        return held and after[-1] <= self.limit[-1]

    def _price(self, event: ev.Event) -> Amounts:
        stripped, side = _exact.without_delta(event, self._move)
        found = rdp.curve(stripped, self.orders, neighbors=self.neighbors, group=self.group).tolist()
        if all(math.isinf(d) for d in found):
            raise self._refuse(event, "Rényi divergence", "State a bound with ApproxDp(epsilon, delta), paid from side_delta.")
        prices = [divergence(d, most + 1) for d, most in zip(found, self.limit, strict=False)]
        return (*prices, side)


def _check_curve(orders: object, **exact: Fraction) -> None:
    """Orders above 1, rising, each once; the other facts exact."""
    for name, value in exact.items():
        amounts(name, (value,), 1)
    if not isinstance(orders, tuple) or checked_orders(orders) != orders:
        raise checks.refuse("orders", orders, "a tuple of numbers above 1, rising")


def _order_limit(order: float, epsilon: float, delta: float) -> float:
    """The largest D that converts to (ε, δ) at this order, rounded down (Canonne, Kamath & Steinke 2020)."""
    most = epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)
    return most - 1e-14 * (1 + epsilon + abs(math.log(delta)) / (order - 1))


# ------------------------------------------------------------------------------------------------ odometers


@dataclass(frozen=True, kw_only=True)
class PureOdometer(Book):
    """Σε and Σδ so far, valid at any stopping time, however chosen (what that means is on the proof page)."""

    limited: ClassVar[bool] = False
    kind: ClassVar[str] = "pure_odometer"
    theorem: ClassVar[str] = "Rogers, Roth, Ullman & Vadhan 2016 (basic composition is a valid privacy odometer)"

    @classmethod
    def open(cls, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> PureOdometer:
        """An odometer at zero."""
        return cls(spent=(Fraction(0), Fraction(0)), **opened(neighbors, group))

    @property
    def currencies(self) -> tuple[str, ...]:
        """ε and δ."""
        return ("ε", "δ")

    @property
    def reading(self) -> tuple[Fraction, Fraction]:
        """(ε, δ) so far."""
        return self.spent[0], min(self.spent[1], Fraction(1))

    def _price(self, event: ev.Event) -> Amounts:
        found = _exact.approximate(event, self._move)
        if found is None:
            raise self._refuse(event, "(ε, δ) of its own", "Use a RenyiOdometer.")
        return found


@dataclass(frozen=True, kw_only=True)
class ZcdpOdometer(Book):
    """Σρ and Σδ so far, valid at any stopping time that keeps them below what was fixed beforehand (proof page).

    To turn a reading into an ε at a δ afterwards, use a ``RenyiOdometer``, whose ε holds at all times at once.
    """

    limited: ClassVar[bool] = False
    kind: ClassVar[str] = "zcdp_odometer"
    theorem: ClassVar[str] = "Whitehouse, Ramdas, Rogers & Wu 2023 (approximate zCDP, fully adaptive); Feldman & Zrnic 2021"

    @classmethod
    def open(cls, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> ZcdpOdometer:
        """An odometer at zero."""
        return cls(spent=(Fraction(0), Fraction(0)), **opened(neighbors, group))

    @property
    def currencies(self) -> tuple[str, ...]:
        """ρ and δ."""
        return ("ρ", "δ")

    @property
    def reading(self) -> tuple[Fraction, Fraction]:
        """(ρ, δ) so far."""
        return self.spent[0], min(self.spent[1], Fraction(1))

    def _price(self, event: ev.Event) -> Amounts:
        found = _rho(event, self._move)
        if found is None:
            raise self._refuse(event, "ρ", "Use a RenyiOdometer, or state a bound with ApproxDp(epsilon, delta).")
        return found


@dataclass(frozen=True, kw_only=True)
class RenyiOdometer(Book):
    """min over orders of Σ D_α + log(m/δ)/(α − 1): bounds the privacy loss at all times at once, but for probability δ.

    The loss of one order, exponentiated, is a supermartingale; Ville's inequality bounds it for ever, m orders share δ.
    """

    orders: tuple[float, ...]
    delta: Fraction

    limited: ClassVar[bool] = False
    kind: ClassVar[str] = "renyi_odometer"
    theorem: ClassVar[str] = "Lécuyer 2021 (Rényi odometer); Whitehouse, Ramdas, Rogers & Wu 2023 (time-uniform by Ville's inequality)"

    @classmethod
    def open(
        cls, delta: float, *, orders: Iterable[float] = ORDERS, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1
    ) -> RenyiOdometer:
        """An odometer at zero; δ and the orders are fixed here."""
        asked = checked_orders(orders)
        share = stated(checks.delta(delta, zero=False))
        return cls(spent=(Fraction(0),) * (len(asked) + 1), orders=asked, delta=share, **opened(neighbors, group))

    @property
    def currencies(self) -> tuple[str, ...]:
        """A Rényi divergence for each order, and δ."""
        return (*(f"D at order {a:g}" for a in self.orders), "δ")

    def __post_init__(self) -> None:
        _check_curve(self.orders, delta=self.delta)
        super().__post_init__()

    @property
    def reading(self) -> tuple[float, Fraction]:
        """(ε, δ) so far: the loss is at most ε but for probability δ, at every time up to now and any stopping time."""
        wide = math.log(len(self.orders)) - math.log(float(self.delta))
        found = [float(min(used, Fraction(10**300))) + wide / (a - 1) for a, used in zip(self.orders, self.spent, strict=False)]
        epsilon = min(found) * (1 + 1e-14) if self.events else 0.0
        return (epsilon if epsilon < 1e299 else math.inf), min(self.delta + self.spent[-1], Fraction(1))

    def _price(self, event: ev.Event) -> Amounts:
        stripped, side = _exact.without_delta(event, self._move)
        found = rdp.curve(stripped, self.orders, neighbors=self.neighbors, group=self.group)
        if not np.isfinite(found).any():
            raise self._refuse(event, "Rényi divergence", "State a bound with ApproxDp(epsilon, delta).")
        prices = [divergence(d, Fraction(10**301)) for d in found.tolist()]
        return (*prices, side)


# ------------------------------------------------------------------------------------------------ one budget per record


@dataclass(frozen=True, kw_only=True)
class IndividualFilter:
    """A ρ budget for each record: a record takes part only while *its own* price still fits; the whole is limit-zCDP.

    The price of a record is what its presence costs in *any* data it could be in, so it may depend on that record alone
    (for a sum: Gaussian(std / its own norm)). Prices, who is active and what is spent are therefore private: none of
    them may be released, and the analysis must not depend on them but through who is active.
    """

    limit: Fraction
    spent: Mapping[str, Fraction]

    kind: ClassVar[str] = "individual"
    theorem: ClassVar[str] = "Feldman & Zrnic 2021 (individual Rényi filter), at every order at once; neighbours add_remove"

    def __post_init__(self) -> None:
        amounts("limit", (self.limit,), 1)
        spent = dict(checks.instance("spent", self.spent, Mapping, "a map from record to amount"))
        _check_records(spent)
        amounts("spent", tuple(spent.values()), len(spent))
        object.__setattr__(self, "spent", MappingProxyType(spent))  # a copy, and read-only

    def __reduce__(self) -> tuple[Callable[[object], object], tuple[dict[str, object]]]:
        return from_dict, (self.to_dict(),)

    @classmethod
    def open(cls, rho: float) -> IndividualFilter:
        """An unspent filter: every record may spend ``rho``."""
        return cls(limit=as_limit("rho", rho, checks.EPSILON_MAX), spent={})

    def _prices(self, events: Mapping[str, ev.Event]) -> dict[str, Fraction]:
        checks.instance("events", events, Mapping, "a map from record to event")
        _check_records(events)
        known: dict[ev.Event, Fraction] = {}
        for event in events.values():
            if not ev.is_event(event):
                raise checks.refuse("events", event, "a map from record to event")
            if event not in known:
                known[event] = rdp.zcdp(event)
        return {record: known[event] for record, event in events.items()}

    def active(self, events: Mapping[str, ev.Event]) -> frozenset[str]:
        """The records whose own price still fits; run the analysis on these alone."""
        prices = self._prices(events)
        return frozenset(r for r, price in prices.items() if self.spent.get(r, Fraction(0)) + price <= self.limit)

    def after(self, events: Mapping[str, ev.Event]) -> IndividualFilter:
        """The state with the active records charged, each its own price; the others took no part."""
        prices = self._prices(events)
        made = dict(self.spent)
        for record, price in prices.items():
            total = made.get(record, Fraction(0)) + price
            if total <= self.limit:
                made[record] = total
        return IndividualFilter(limit=self.limit, spent=made)

    def remaining(self, record: str) -> Fraction:
        """What the record has left."""
        _check_records((record,))
        return self.limit - self.spent.get(record, Fraction(0))

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value. It is private: it tells what each record spent."""
        return {"filter": self.kind, "limit": str(self.limit), "spent": {record: str(used) for record, used in sorted(self.spent.items())}}


def _check_records(records: Collection[str]) -> None:
    """Names are text, so that a state that went through JSON still knows who is who."""
    if len(records) > _RECORDS_MAX:
        raise checks.refuse("records", "so many", f"at most {_RECORDS_MAX:_} records")
    for record in records:
        if not isinstance(record, str):
            raise checks.refuse("records", type(record), "text as the name of every record")


# ------------------------------------------------------------------------------------------------ JSON

_KINDS: dict[str, type[Book]] = {
    kind.kind: kind for kind in (PureFilter, ApproxFilter, AdvancedFilter, ZcdpFilter, RdpFilter, PureOdometer, ZcdpOdometer, RenyiOdometer)
}


def from_dict(value: object) -> Book | IndividualFilter:
    """The filter or odometer that a JSON value describes.

    >>> from dither import events as ev
    >>> book = PureFilter.open(1.0).after(ev.Laplace(3.0))
    >>> from_dict(book.to_dict()) == book
    True
    """
    if not isinstance(value, dict) or "filter" not in value:
        raise DecodeError("A filter is a JSON object with the key 'filter'.")
    kind: object = value["filter"]
    if not isinstance(kind, str) or kind not in {*_KINDS, IndividualFilter.kind}:
        raise UnknownNameError("filter", kind, [*_KINDS, IndividualFilter.kind])
    if kind == IndividualFilter.kind:
        held = value.get("spent")
        if set(value) != {"filter", "limit", "spent"} or not isinstance(held, dict):
            raise DecodeError("An individual filter needs the keys filter, limit and spent, a map from record to amount.")
        return IndividualFilter(limit=_amount(value["limit"]), spent={k: _amount(v) for k, v in held.items()})
    made = _KINDS[kind]
    wanted = {f.name for f in fields(made)} | {"filter"}
    if set(value) != wanted:
        raise DecodeError(f"A {kind} filter has the keys {', '.join(sorted(wanted))}: found {', '.join(map(str, sorted(value, key=str)))}.")
    given: dict[str, Any] = {
        "neighbors": as_neighbors(value["neighbors"]),
        "group": checks.count("group", value["group"], high=rdp.GROUP_MAX),
    }
    given["events"] = checks.count("events", value["events"], low=0)
    for name in ("limit", "spent"):
        if name in wanted:
            given[name] = _amounts(name, value[name])
    for name in ("epsilon", "delta"):
        if name in wanted:
            given[name] = _amount(value[name])
    if "orders" in wanted:
        given["orders"] = checked_orders([checks.real("orders", a) for a in checks.sequence("orders", value["orders"], "a list of orders")])
    return made(**given)


def _amounts(name: str, given: object) -> Amounts:
    if not isinstance(given, list):
        raise DecodeError(f"The field '{name}' of a filter is a list of amounts.")
    return tuple(_amount(amount) for amount in given)


def _amount(text: object) -> Fraction:
    if not isinstance(text, str) or len(text) > 2_000 or not all(c in "0123456789/" for c in text):
        raise DecodeError("An amount is text such as '1/3': a whole number or a fraction, not below 0.")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise DecodeError("An amount is text such as '1/3': a whole number or a fraction, not below 0.") from None
