"""Plans, charges, receipts, releases: the nouns of the one path (plan → reserve → run → settle → release)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from dither.core import checks
from dither.core.events import Event, is_event
from dither.core.units import Guarantee, PrivacyUnit

T_co = TypeVar("T_co", covariant=True)


class State(StrEnum):
    """Where a charge stands. From RESERVED it goes to COMMITTED or VOIDED, and never back."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    VOIDED = "voided"


class Plan(Protocol):
    """What would run, made from public facts only: it can be printed, priced and digested before anything is read."""

    @property
    def event(self) -> Event:
        """The worst case, for pricing."""
        ...

    @property
    def unit(self) -> PrivacyUnit:
        """What is hidden."""
        ...

    @property
    def digest(self) -> str:
        """Of everything that decides the answer but the rows and the noise."""
        ...

    def explain(self) -> str:
        """Plain words."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One intended spend. ``id`` is made by the caller, so that a retry is recognised."""

    id: str
    account: tuple[str, ...]
    unit: PrivacyUnit
    event: Event
    plan_digest: str
    purpose: str
    blocks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.text("id", self.id, limit=200)
        account = checks.texts("account", self.account, "a tuple of names, such as ('acme', 'ads')", low=1, limit=32)
        object.__setattr__(self, "account", account)
        checks.instance("unit", self.unit, PrivacyUnit, "a PrivacyUnit")
        if not is_event(self.event):
            raise checks.refuse("event", self.event, "an Event")
        checks.text("plan_digest", self.plan_digest, limit=200)
        checks.text("purpose", self.purpose)
        blocks = checks.texts("blocks", self.blocks, "a tuple of names, such as ('2026-01', '2026-02')", low=0, limit=100_000)
        object.__setattr__(self, "blocks", blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the ledger answered: the entry, what is spent and what remains, and the head of its chain."""

    charge_id: str
    state: State
    entry: int
    spent: Guarantee
    remaining: Guarantee
    head: str
    at: datetime
    replayed: bool = False

    def __post_init__(self) -> None:
        checks.text("charge_id", self.charge_id, limit=200)
        checks.instance("state", self.state, State, "a State")
        object.__setattr__(self, "entry", checks.count("entry", self.entry, low=0))
        checks.instance("spent", self.spent, Guarantee, "a Guarantee")
        checks.instance("remaining", self.remaining, Guarantee, "a Guarantee")
        checks.text("head", self.head, limit=200)
        checks.instance("at", self.at, datetime, "a datetime")
        checks.instance("replayed", self.replayed, bool, "True or False")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How far a noisy value may be from the true one: |error| ≤ half_width with at least that confidence."""

    half_width: float
    confidence: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "half_width", checks.between("half_width", self.half_width, 0.0, float(2**1023)))
        confidence = checks.real("confidence", self.confidence, "a number > 0 and < 1, such as 0.95")
        if not 0 < confidence < 1:
            raise checks.refuse("confidence", self.confidence, "a number > 0 and < 1, such as 0.95")
        object.__setattr__(self, "confidence", confidence)

    def __str__(self) -> str:
        return f"±{self.half_width:.4g} with {100 * self.confidence:g} % confidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Generic[T_co]):
    """The only thing that may leave: a value, what it cost, and to whom it was charged."""

    value: T_co
    event: Event
    unit: PrivacyUnit
    plan_digest: str
    accuracy: Accuracy | None = None
    receipt: Receipt | None = None

    def __post_init__(self) -> None:
        if not is_event(self.event):
            raise checks.refuse("event", self.event, "an Event")
        checks.instance("unit", self.unit, PrivacyUnit, "a PrivacyUnit")
        checks.text("plan_digest", self.plan_digest, limit=200)
        checks.instance("accuracy", self.accuracy, (Accuracy, type(None)), "an Accuracy or None")
        checks.instance("receipt", self.receipt, (Receipt, type(None)), "a Receipt or None")
