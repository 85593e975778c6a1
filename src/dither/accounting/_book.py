"""What every filter and odometer is: an immutable sum of exact prices, held against limits or merely told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeAlias

from dither.accounting import _exact, rdp, tables
from dither.accounting._bounds import Move
from dither.core import checks
from dither.core import events as ev
from dither.core.errors import NotPriceableError, OverBudgetError
from dither.core.units import Neighbors
from dither.core.units import neighbors as as_neighbors

Amounts: TypeAlias = tuple[Fraction, ...]
ORDERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an event fits, what it costs in the filter's currencies, and in words why not."""

    allowed: bool
    price: Amounts
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Book:
    """What was spent, on how many events, for which neighbours; an odometer has no ``limit``."""

    spent: Amounts
    limit: Amounts = ()
    events: int = 0
    neighbors: Neighbors = Neighbors.ADD_REMOVE
    group: int = 1

    kind: ClassVar[str]
    theorem: ClassVar[str]
    """What the guarantee rests on."""
    limited: ClassVar[bool] = True

    def __post_init__(self) -> None:
        count = len(self.currencies)
        amounts("spent", self.spent, count)
        amounts("limit", self.limit, count if self.limited else 0)
        checks.count("events", self.events, low=0)
        checks.instance("neighbors", self.neighbors, Neighbors, "a Neighbors")
        checks.count("group", self.group, high=rdp.GROUP_MAX)

    @property
    def currencies(self) -> tuple[str, ...]:
        """Names of the amounts, in their order."""
        raise NotImplementedError

    def _price(self, event: ev.Event) -> Amounts:
        raise NotImplementedError

    def price(self, event: ev.Event) -> Amounts:
        """What the event costs, exactly or rounded up; refused where the theorem does not cover it."""
        if not ev.is_event(event):
            raise checks.refuse("event", event, "an event, such as events.Gaussian(noise_multiplier=1.1)")
        return self._price(event)

    @property
    def remaining(self) -> Amounts:
        """What is left of each currency; nothing to tell where there is no limit."""
        return tuple(most - used for most, used in zip(self.limit, self.spent, strict=True)) if self.limited else ()

    def _short(self, after: Amounts) -> list[int]:
        return [i for i, (used, most) in enumerate(zip(after, self.limit, strict=True)) if used > most]

    def _fits(self, after: Amounts) -> bool:
        return not self._short(after)

    def would(self, event: ev.Event) -> Decision:
        """Whether the event may still run. Nothing is recorded; the event's price must be one that can be added."""
        price = self.price(event)
        after = added(self.spent, price)
        if not self.limited or self._fits(after):
            return Decision(True, price)
        short = self._short(after)
        told = [f"{self.currencies[i]}: it costs {_told(price[i], tables.up)}, {self._left(i)} is left" for i in short[:3]]
        more = f"; and {len(short) - 3} more" if len(short) > 3 else ""
        return Decision(False, price, f"{type(event).__name__} would overspend: {'; '.join(told)}{more}.")

    def _left(self, i: int) -> str:
        return _told(max(self.limit[i] - self.spent[i], Fraction(0)), tables.down)

    def after(self, event: ev.Event) -> Self:
        """The state with the event written down; OverBudgetError, and no new state, where it does not fit."""
        decision = self.would(event)
        if not decision.allowed:
            raise OverBudgetError(decision.reason)
        return replace(self, spent=added(self.spent, decision.price), events=self.events + 1)

    @property
    def _move(self) -> Move:
        return Move(replace=self.neighbors is Neighbors.REPLACE, group=self.group)

    def _refuse(self, event: ev.Event, currency: str, advice: str) -> NotPriceableError:
        return NotPriceableError(f"{type(event).__name__} has no finite {currency}, which is what {self.kind} adds up. {advice}")

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value; ``filters.from_dict`` gives the equal state back, exactly."""
        made: dict[str, object] = {"filter": self.kind}
        for name in (f.name for f in fields(self)):
            held = getattr(self, name)
            if isinstance(held, tuple):
                made[name] = [str(amount) if isinstance(amount, Fraction) else amount for amount in held]
            else:
                made[name] = str(held) if isinstance(held, Fraction | Neighbors) else held
        return made


def _told(amount: Fraction, rounded: Callable[[float, int], str]) -> str:
    """An amount for people; what is beyond all floats is told as 1e300."""
    return rounded(float(min(amount, Fraction(10**300))), 6)


def amounts(name: str, given: object, count: int) -> None:
    """Refuse what is not ``count`` exact amounts: a float here would make every later sum a guess.

    >>> amounts("spent", (Fraction(1, 3),), 1)
    """
    exact = isinstance(given, tuple) and len(given) == count and all(type(a) is Fraction and a >= 0 for a in given)
    if not exact:
        raise checks.refuse(name, given, f"a tuple of {count} fractions, none below 0")


def added(one: Amounts, other: Amounts) -> Amounts:
    """The sum, currency by currency.

    >>> added((Fraction(1, 3), Fraction(0)), (Fraction(2, 3), Fraction(1)))
    (Fraction(1, 1), Fraction(1, 1))
    """
    return tuple(a + b for a, b in zip(one, other, strict=True))


def stated(number: float) -> Fraction:
    """The decimal that names a float, to its last digit: limits are never rounded, not even by less than any price.

    >>> stated(0.1), stated(1e-300) < Fraction(1, 10**299)
    (Fraction(1, 10), True)
    """
    return Fraction(repr(float(number)))


def limit(name: str, value: float | Fraction, high: float) -> Fraction:
    """A limit as it is written: a fraction, or the decimal that names a float.

    >>> limit("epsilon", 0.3, 10.0)
    Fraction(3, 10)
    """
    if isinstance(value, Fraction):
        if not 0 <= value <= high:
            raise checks.refuse(name, value, f"a number from 0 to {high:g}")
        return value
    return stated(checks.between(name, value, 0.0, high))


def opened(neighbors: Neighbors | str, group: int) -> dict[str, Any]:
    """The facts that are fixed when a book is opened.

    >>> opened("replace", 2)["group"]
    2
    """
    return {"neighbors": as_neighbors(neighbors), "group": checks.count("group", group, high=rdp.GROUP_MAX)}


def divergence(value: float, unbounded: Fraction) -> Fraction:
    """A computed divergence, rounded up; ``unbounded`` stands for ∞.

    >>> divergence(math.inf, Fraction(7)), divergence(0.0, Fraction(7))
    (Fraction(7, 1), Fraction(0, 1))
    """
    return _exact.rounded_up(Fraction(value) * (1 + Fraction(1, 10**12))) if math.isfinite(value) else unbounded


def checked_orders(orders: Iterable[float]) -> tuple[float, ...]:
    """Orders above 1, each once, rising.

    >>> checked_orders([8, 2.0, 8.0])
    (2.0, 8.0)
    """
    expected = "one or more numbers above 1"
    if isinstance(orders, str | bytes | bytearray):
        raise checks.refuse("orders", orders, expected)
    try:
        given = list(orders)
    except TypeError:
        raise checks.refuse("orders", orders, expected) from None
    found = tuple(sorted({checks.between("orders", a, 1.0, rdp.ORDER_MAX) for a in given}))
    if not found or found[0] <= 1 or len(found) > ORDERS_MAX:
        raise checks.refuse("orders", found, f"{expected}, at most {ORDERS_MAX}")
    return found
