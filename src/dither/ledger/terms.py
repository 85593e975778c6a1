"""What was agreed: datasets and their blocks, filters, limits. Frozen facts, exact numbers, JSON both ways.

>>> FilterSpec.of(0.1).epsilon
Fraction(1, 10)
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from numbers import Integral, Real
from typing import Literal, TypeAlias, cast, get_args

from dither.accounting import filters
from dither.accounting._book import Book, checked_orders, stated
from dither.core import checks
from dither.core.errors import DecodeError, InputError, RefusedError, UnknownNameError, shown
from dither.core.units import Neighbors, PrivacyUnit, Trust
from dither.core.units import trust as as_trust
from dither.ledger.blocks import Blocks, Every, aware, every, listed, members, moment, names, stamp, texts
from dither.ledger.paths import Account, name, text
from dither.ledger.paths import account as as_account

__all__ = [
    "DEFAULT_ORDERS",
    "KINDS",
    "Blocks",
    "Dataset",
    "Every",
    "FilterSpec",
    "Kind",
    "Limit",
    "Per",
    "aware",
    "below",
    "every",
    "exact",
    "fraction",
    "limit_id",
    "members",
    "moment",
    "per",
    "stamp",
    "texts",
    "unit_from_dict",
    "unit_to_dict",
]

ORDERS_MAX = 64
DEFAULT_ORDERS = (4.0, 6.0, 9.0, 14.0, 20.0, 32.0, 56.0, 100.0, 256.0, 1024.0)
"""Rényi orders of a limit when none are named."""
ALERTS_MAX = 16
EPSILON_MIN = Fraction(1, 10**60)
"""Less than the book's unit of account: nothing could ever be charged."""
_BITS_MAX = 1_200  # a decimal of any normal float fits; a longer fraction is a mistake or an attack

Kind: TypeAlias = Literal["pure", "approx", "advanced", "zcdp", "rdp"]
KINDS: tuple[str, ...] = get_args(Kind)


# ------------------------------------------------------------------------------------------------ exact numbers, units


def exact(label: str, value: object, expected: str = "a number") -> Fraction:
    """The number as it is written: a fraction, a whole number, or the decimal that names a float.

    >>> exact("epsilon", 0.1), exact("epsilon", Fraction(1, 3))
    (Fraction(1, 10), Fraction(1, 3))
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise checks.refuse(label, value, expected)
    if isinstance(value, Integral):
        value = _whole(label, value, expected)
    if isinstance(value, int | Fraction):
        found = Fraction(value)
        if max(found.numerator.bit_length(), found.denominator.bit_length()) > _BITS_MAX:
            raise checks.refuse(
                label, f"<{type(value).__name__}>", expected, "A fraction of so many digits is not accepted: write a decimal."
            )
        return found
    number = checks.real(label, value, expected)
    if number != value:  # a wider float, or another kind of fraction, that no float names
        raise checks.refuse(label, value, expected, "No float is exactly this: give a float or a fractions.Fraction.")
    if 0 < abs(number) < sys.float_info.min:
        raise checks.refuse(label, value, expected, "It is subnormal: too small to compute with.")
    return stated(number)


def _whole(label: str, value: Integral, expected: str) -> int:
    """All digits of a whole number, also of numpy's."""
    try:
        return operator.index(value)
    except TypeError:  # a duration of numpy passes for a whole number
        raise checks.refuse(label, value, expected) from None


def fraction(label: str, value: object) -> Fraction:
    """The fraction that a text such as ``"1/10"`` says, in lowest terms.

    >>> fraction("epsilon", "1/10")
    Fraction(1, 10)
    """
    wrong = f"The field '{label}' is a fraction in lowest terms, such as '1/10': found {shown(value)}."
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,400}(/[0-9]{1,400})?", value):
        raise DecodeError(wrong)
    try:
        found = Fraction(value)
    except ZeroDivisionError:
        raise DecodeError(wrong) from None
    if str(found) != value:
        raise DecodeError(wrong)
    return found


def unit_to_dict(unit: PrivacyUnit) -> dict[str, object]:
    """A plain JSON value of a privacy unit.

    >>> unit_to_dict(PrivacyUnit(dataset="events"))
    {'dataset': 'events', 'key': None, 'neighbors': 'add_remove'}
    """
    return {"dataset": unit.dataset, "key": unit.key, "neighbors": unit.neighbors.value}


def unit_from_dict(value: object) -> PrivacyUnit:
    """The privacy unit that a JSON value describes.

    >>> unit_from_dict({"dataset": "events", "key": "user_id", "neighbors": "replace"}).key
    'user_id'
    """
    given = members("unit", value, ("dataset", "key", "neighbors"))
    return PrivacyUnit(
        dataset=cast("str", given["dataset"]), key=cast("str | None", given["key"]), neighbors=cast("Neighbors", given["neighbors"])
    )


# ------------------------------------------------------------------------------------------------ datasets


class Per(StrEnum):
    """What a limit is held against: each block by itself, or the whole dataset."""

    BLOCK = "block"
    DATASET = "dataset"


def per(value: object) -> Per:
    """The way of that name.

    >>> per("block")
    <Per.BLOCK: 'block'>
    """
    if isinstance(value, str) and value in tuple(Per):
        return Per(value)
    raise UnknownNameError("per", value, [p.value for p in Per])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """What is protected: a dataset, its unit, who sees the raw rows, and how it is divided.

    ``disjoint`` says that no unit has rows in two blocks. That is so for rows; for the rows of a key it must be declared.
    """

    name: str
    unit: PrivacyUnit
    trust: Trust = Trust.CENTRAL
    blocks: Blocks | None = None
    disjoint: bool | None = None

    def __post_init__(self) -> None:
        name("name", self.name, limit=200)
        checks.instance("unit", self.unit, PrivacyUnit, "a PrivacyUnit")
        if self.unit.dataset != self.name:
            raise checks.refuse("unit", self.unit, f"a unit of dataset='{self.name}'")
        object.__setattr__(self, "trust", as_trust(self.trust))
        checks.instance("blocks", self.blocks, (Blocks, type(None)), "Blocks or None")
        checks.instance("disjoint", self.disjoint, (bool, type(None)), "True, False or None")
        if self.blocks is None:
            if self.disjoint is not None:
                raise checks.refuse("disjoint", self.disjoint, "None, for the dataset is not divided into blocks")
        elif self.unit.key is None:
            if self.disjoint is False:
                raise checks.refuse("disjoint", self.disjoint, "True or None: a row is in one block")
            object.__setattr__(self, "disjoint", True)
        else:
            object.__setattr__(self, "disjoint", bool(self.disjoint))

    def hides(self, how: Per) -> str:
        """What a limit of that kind hides, in words: where units reach over blocks, one block's rows of a unit, not all.

        >>> unit = PrivacyUnit(dataset="events", key="user_id")
        >>> Dataset(name="events", unit=unit, blocks=Blocks(column="ts", every=Every.MONTH)).hides(Per.BLOCK)
        "one user_id's rows of one month of events (present or absent), not all rows of one user_id"
        """
        if how is Per.DATASET or self.blocks is None:
            return str(self.unit)
        block = f"partition by {self.blocks.column}" if self.blocks.every is None else self.blocks.every.value
        whose = "one row" if self.unit.key is None else f"one {self.unit.key}'s rows"
        same = self.unit.neighbors is Neighbors.ADD_REMOVE
        done = "present or absent" if same else f"replaced by another of the same {block}"
        more = "" if self.disjoint else f", not all rows of one {self.unit.key}"
        return f"{whose} of one {block} of {self.name} ({done}){more}"

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            "name": self.name,
            "unit": unit_to_dict(self.unit),
            "trust": self.trust.value,
            "blocks": None if self.blocks is None else self.blocks.to_dict(),
            "disjoint": self.disjoint,
        }

    @classmethod
    def from_dict(cls, value: object) -> Dataset:
        """The dataset that a JSON value describes."""
        given = members("dataset", value, names(cls))
        made = cls(
            name=cast("str", given["name"]),
            unit=unit_from_dict(given["unit"]),
            trust=as_trust(given["trust"]),
            blocks=None if given["blocks"] is None else Blocks.from_dict(given["blocks"]),
            disjoint=cast("bool | None", given["disjoint"]),
        )
        if made.disjoint is not given["disjoint"]:
            raise DecodeError(f"The field 'disjoint' says {shown(given['disjoint'])}, which follows to be {made.disjoint}: write that.")
        return made


# ------------------------------------------------------------------------------------------------ filters and limits


def kind(value: object) -> Kind:
    """The kind of filter of that name.

    >>> kind("zcdp")
    'zcdp'
    """
    if isinstance(value, str) and value in KINDS:
        return cast("Kind", str(value))
    raise UnknownNameError("filter", value, KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSpec:
    """Which filter guards a limit: its kind and its numbers, exact. ``FilterSpec.of`` fills in what is not said."""

    kind: Kind
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    side_delta: Fraction = Fraction(0)
    orders: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind(self.kind))
        epsilon = exact("epsilon", self.epsilon, "a number > 0 and at most 1000")
        if not 0 < epsilon <= Fraction(checks.EPSILON_MAX):
            raise checks.refuse("epsilon", self.epsilon, "a number > 0 and at most 1000")
        if epsilon < EPSILON_MIN:
            raise checks.refuse("epsilon", float(epsilon), "a number > 0 and at most 1000", "It is too small to compute with.")
        object.__setattr__(self, "epsilon", epsilon)
        for label in ("delta", "side_delta"):
            found = exact(label, getattr(self, label), "a number from 0 to below 1")
            if not 0 <= found < 1:
                raise checks.refuse(label, getattr(self, label), "a number from 0 to below 1")
            object.__setattr__(self, label, found)
        self._check_deltas()
        self._check_orders()
        self._check_opens()

    def _check_deltas(self) -> None:
        if self.kind == "pure" and self.delta:
            raise checks.refuse("delta", float(self.delta), "0, for a pure limit has no δ", "Use another kind of filter, such as 'rdp'.")
        if self.kind in {"pure", "approx"} and self.side_delta:
            raise checks.refuse("side_delta", float(self.side_delta), f"0, for an {self.kind} limit spends its δ on events directly")
        if self.kind in {"advanced", "zcdp", "rdp"} and not self.side_delta < self.delta:
            raise checks.refuse(
                "delta",
                float(self.delta),
                f"more than side_delta={float(self.side_delta):g} in a limit of kind '{self.kind}'",
                "Some δ must be left for the conversion to ε.",
            )

    def _check_orders(self) -> None:
        if self.kind != "rdp":
            if self.orders != ():
                raise checks.refuse("orders", self.orders, "none, for only an rdp limit has orders")
            return
        found = checked_orders(self.orders)
        if len(found) > ORDERS_MAX:
            raise checks.refuse("orders", self.orders, f"at most {ORDERS_MAX} orders")
        object.__setattr__(self, "orders", found)

    def _check_opens(self) -> None:
        """A limit that no filter can hold is refused when it is agreed, not when it is first charged."""
        try:
            for neighbors in Neighbors:
                self.open(neighbors)
        except RefusedError as error:
            raise InputError(f"{error} Or use a filter of another kind, such as 'zcdp'.") from None

    @classmethod
    def of(
        cls,
        epsilon: object,
        delta: object = 0,
        *,
        kind: str | None = None,
        side_delta: object = None,
        orders: Iterable[float] | None = None,
    ) -> FilterSpec:
        """A specification from plain numbers: pure at δ = 0, and Rényi with half of δ kept aside where there is a δ.

        >>> FilterSpec.of(3, 1e-6).kind, FilterSpec.of(3, 1e-6).side_delta
        ('rdp', Fraction(1, 2000000))
        """
        share = exact("delta", delta, "a number from 0 to below 1")
        chosen = ("rdp" if share > 0 else "pure") if kind is None else kind
        if side_delta is None:
            side = share / 2 if chosen == "rdp" else Fraction(0)
        else:
            side = exact("side_delta", side_delta, "a number from 0 to below 1")
        usual: tuple[float, ...] = DEFAULT_ORDERS if chosen == "rdp" else ()
        asked = usual if orders is None else checked_orders(orders)
        most = exact("epsilon", epsilon, "a number > 0 and at most 1000")
        return cls(kind=cast("Kind", chosen), epsilon=most, delta=share, side_delta=side, orders=asked)

    def open(self, neighbors: Neighbors) -> Book:
        """The filter, unspent. Where a limit must be computed in floats, its numbers are rounded down first.

        >>> FilterSpec.of(1).open(Neighbors.ADD_REMOVE).limit
        (Fraction(1, 1),)
        """
        return _unspent(self, neighbors)

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value, numbers as exact fractions."""
        return {
            "kind": self.kind,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "side_delta": str(self.side_delta),
            "orders": list(self.orders),
        }

    @classmethod
    def from_dict(cls, value: object) -> FilterSpec:
        """The specification that a JSON value describes."""
        given = members("filter", value, names(cls))
        orders = given["orders"]
        if not isinstance(orders, list) or not all(isinstance(a, float) for a in orders) or len(orders) > ORDERS_MAX:
            raise DecodeError(f"The field 'orders' is a list of at most {ORDERS_MAX} numbers: found {shown(orders)}.")
        made = cls(
            kind=cast("Kind", given["kind"]),
            epsilon=fraction("epsilon", given["epsilon"]),
            delta=fraction("delta", given["delta"]),
            side_delta=fraction("side_delta", given["side_delta"]),
            orders=tuple(orders),
        )
        if list(made.orders) != orders:
            raise DecodeError("The field 'orders' is a list of rising numbers, each once.")
        return made

    def __str__(self) -> str:
        delta = f" at δ = {float(self.delta):.6g}" if self.delta else ""
        return f"ε = {float(self.epsilon):.6g}{delta} ({self.kind})"


@lru_cache(maxsize=1_024)
def _unspent(spec: FilterSpec, neighbors: Neighbors) -> Book:
    """Books are frozen, and some take a root to find: each is made once."""
    if spec.kind == "pure":
        return filters.PureFilter(limit=(spec.epsilon,), spent=(Fraction(0),), neighbors=neighbors)
    if spec.kind == "approx":
        return filters.ApproxFilter(limit=(spec.epsilon, spec.delta), spent=(Fraction(0), Fraction(0)), neighbors=neighbors)
    epsilon, delta, side = below(spec.epsilon), below(spec.delta), below(spec.side_delta)
    if spec.kind == "advanced":
        return filters.AdvancedFilter.open(epsilon, delta, side_delta=side, neighbors=neighbors)
    if spec.kind == "zcdp":
        return filters.ZcdpFilter.for_epsilon(epsilon, delta, side_delta=side, neighbors=neighbors)
    return filters.RdpFilter.open(epsilon, delta, orders=spec.orders, side_delta=side, neighbors=neighbors)


def below(value: Fraction) -> float:
    """The float whose shortest decimal is the value, or else one just below it.

    >>> below(Fraction(1, 10)), Fraction(str(below(Fraction(1, 3)))) <= Fraction(1, 3)
    (0.1, True)
    """
    near = float(value)
    return near if stated(near) <= value else math.nextafter(near, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much an account may spend on a dataset, from when to when, and at which shares of it to tell."""

    id: str
    account: Account
    dataset: str
    filter: FilterSpec
    per: Per
    starts: datetime | None = None
    ends: datetime | None = None
    alert_at: tuple[Fraction, ...] = ()

    def __post_init__(self) -> None:
        limit_id("id", self.id)
        object.__setattr__(self, "account", as_account(self.account))
        name("dataset", self.dataset, limit=200)
        checks.instance("filter", self.filter, FilterSpec, "a FilterSpec")
        object.__setattr__(self, "per", per(self.per))
        for label in ("starts", "ends"):
            if getattr(self, label) is not None:
                object.__setattr__(self, label, aware(label, getattr(self, label)))
        if self.starts is not None and self.ends is not None and not self.starts < self.ends:
            raise checks.refuse("ends", stamp(self.ends), f"a moment after starts={stamp(self.starts)}")
        given = listed("alert_at", self.alert_at, f"at most {ALERTS_MAX} shares, such as (0.5, 0.8, 0.95)", limit=ALERTS_MAX)
        shares = tuple(sorted({exact("alert_at", a, "a share > 0 and at most 1") for a in given}))
        if shares and not 0 < shares[0] <= shares[-1] <= 1:
            raise checks.refuse("alert_at", self.alert_at, "shares > 0 and at most 1")
        object.__setattr__(self, "alert_at", shares)

    @property
    def title(self) -> str:
        """The limit in a few words, for messages.

        >>> Limit(id="L1", account=("acme",), dataset="events", filter=FilterSpec.of(1), per=Per.DATASET).title
        "limit L1 of account 'acme' on dataset 'events'"
        """
        each = " for each block" if self.per is Per.BLOCK else ""
        return f"limit {self.id} of account '{text(self.account)}' on dataset '{self.dataset}'{each}"

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            "id": self.id,
            "account": list(self.account),
            "dataset": self.dataset,
            "filter": self.filter.to_dict(),
            "per": self.per.value,
            "starts": None if self.starts is None else stamp(self.starts),
            "ends": None if self.ends is None else stamp(self.ends),
            "alert_at": [str(a) for a in self.alert_at],
        }

    @classmethod
    def from_dict(cls, value: object) -> Limit:
        """The limit that a JSON value describes."""
        given = members("limit", value, names(cls))
        alerts = texts("alert_at", given["alert_at"])
        made = cls(
            id=cast("str", given["id"]),
            account=texts("account", given["account"]),
            dataset=cast("str", given["dataset"]),
            filter=FilterSpec.from_dict(given["filter"]),
            per=per(given["per"]),
            starts=None if given["starts"] is None else moment("starts", given["starts"]),
            ends=None if given["ends"] is None else moment("ends", given["ends"]),
            alert_at=tuple(fraction("alert_at", a) for a in alerts),
        )
        if len(made.alert_at) != len(alerts) or [str(a) for a in made.alert_at] != list(alerts):
            raise DecodeError("The field 'alert_at' is a list of rising shares, each once.")
        return made


def limit_id(label: str, value: object) -> str:
    """A limit's name, made by the ledger: L1, L2 and so on.

    >>> limit_id("limit", "L12")
    'L12'
    """
    if not isinstance(value, str) or not re.fullmatch(r"L[1-9][0-9]{0,17}", value):
        raise checks.refuse(label, value, "the name of a limit, such as 'L1'")
    return value
