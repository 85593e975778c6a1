"""How everything stands, for people: each dataset's tree of accounts with what is spent, what is left and until when.

Blocks are folded where there are many: the least, the middle and the most that remains, and the few that are nearest to their end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from dither.core import events as ev
from dither.core.errors import NotPriceableError
from dither.core.units import Guarantee
from dither.ledger import paths, views
from dither.ledger.agreed import Terms, keys
from dither.ledger.alerts import Forecast
from dither.ledger.gauge import Gauge, Units
from dither.ledger.terms import Dataset, Limit, moment, unit_to_dict
from dither.ledger.views import Row, Survey

if TYPE_CHECKING:
    from dither.ledger.book import Ledger
    from dither.ledger.reading import Standing

REFUSALS: Final = 3
WITHIN: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
"""How close a count may be asked to be, when none is named."""
CONFIDENCE: Final = 0.95
ENOUGH: Final = 10
COUNTS_MAX: Final = 10**6
BLOCKS_SHOWN: Final = 3
"""So many blocks of a limit are told one by one, and one more before they are folded."""


# ------------------------------------------------------------------------------------------------ what is left, in plain words


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many more counts fit, each within ±``within`` of the truth with 95 % confidence; ``held_by`` is the limit that ends it."""

    counts: int
    within: int
    held_by: str = ""

    def __str__(self) -> str:
        if self.counts == 0:
            return f"no more counts, not even at ±{self.within:,}"
        if self.counts >= COUNTS_MAX:
            return f"more than {COUNTS_MAX:,} counts at ±{self.within:,}"
        return f"about {_two_digits(self.counts):,} more count{'s' if self.counts > 1 else ''} at ±{self.within:,}"

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            "counts": self.counts,
            "within": self.within,
            "confidence": CONFIDENCE,
            "held_by": self.held_by or None,
            "text": str(self),
        }


def _two_digits(count: int) -> int:
    """Rounded down to two digits: what is told is never more than what is left."""
    place: int = 10 ** max(len(str(count)) - 2, 0)
    return count // place * place


def count_events(within: float) -> tuple[ev.Event, ...]:
    """Counts within ±``within`` with 95 % confidence: by two-sided geometric noise, and by discrete Gaussian noise.

    The scales are those of the continuous laws, whose tails are no lighter: P(|X| > h) ≤ e^(−h/scale), and
    P(|X| > h) ≤ 2Φ(−h/std), since the discrete normaliser is at least that of the density (Canonne, Kamath & Steinke 2020).

    >>> [type(event).__name__ for event in count_events(5)]
    ['DiscreteLaplace', 'DiscreteGaussian']
    """
    return ev.DiscreteLaplace(within / math.log(1 / (1 - CONFIDENCE))), ev.DiscreteGaussian(within / 1.9599640)


def room(spent: Sequence[tuple[Limit, Gauge, Units]], within: int | None = None) -> Room:
    """How many more counts fit under all of these limits at once; ±``within`` is chosen so that there are some, if it is not named.

    >>> from dither.core.units import Neighbors
    >>> from dither.ledger.terms import FilterSpec, Per
    >>> limit = Limit(id="L1", account=("acme",), dataset="events", filter=FilterSpec.of(1), per=Per.DATASET)
    >>> held = Gauge.of(limit.filter, Neighbors.ADD_REMOVE)
    >>> str(room([(limit, held, held.zero)], within=30))
    'about 10 more counts at ±30'
    """
    found = Room(counts=0, within=within or WITHIN[-1])
    for each in WITHIN if within is None else (within,):
        found = max((_fitting(spent, event, each) for event in count_events(each)), key=lambda r: r.counts)
        if found.counts >= ENOUGH:
            break
    return found


def _fitting(spent: Sequence[tuple[Limit, Gauge, Units]], event: ev.Event, within: int) -> Room:
    least, held_by = COUNTS_MAX, ""
    for limit, held, used in spent:
        try:
            price = held.price(event)
        except NotPriceableError:
            return Room(counts=0, within=within, held_by=limit.id)
        fits = _most(held, used, price, least)
        if fits < least:
            least, held_by = fits, limit.id
    return Room(counts=least, within=within, held_by=held_by)


def _most(held: Gauge, used: Units, price: Units, high: int) -> int:
    """The largest number of further events, at most ``high``, that fits."""

    def fits(count: int) -> bool:
        return held.fits(tuple(u + count * p for u, p in zip(used, price, strict=True)))

    if fits(high):
        return high
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# ------------------------------------------------------------------------------------------------ the tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One balance: how it stands, how many counts it still has room for, when it will be used up."""

    standing: Standing
    room: Room | None
    forecast: Forecast

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        found = self.standing
        return {
            "block": found.block or None,
            "spent": _pair(found.spent),
            "remaining": _pair(found.remaining),
            "share": _finite(found.share),
            "reserved": found.reserved,
            "events": found.events,
            "room": None if self.room is None else self.room.to_dict(),
            "forecast": self.forecast.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Many blocks in one: how many there are, and the least, middle and most ε that remains."""

    blocks: int
    least: float
    median: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One limit: its balances, the fullest first; of many blocks only a few, and a ``fold`` over all."""

    limit: Limit
    hides: str
    lines: tuple[Line, ...]
    fold: Fold | None
    active: str
    """"" while it may be spent; else "not before …" or "ended …"."""

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        fold = self.fold
        folded = None if fold is None else {"blocks": fold.blocks, "least": fold.least, "median": fold.median, "most": fold.most}
        return {
            **self.limit.to_dict(),
            "epsilon": float(self.limit.filter.epsilon),
            "delta": float(self.limit.filter.delta),
            "hides": self.hides,
            "active": self.active or "yes",
            "balances": [line.to_dict() for line in self.lines],
            "remaining_over_blocks": folded,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One account in a dataset's tree, with its limits there."""

    account: paths.Account
    ties: tuple[bool, ...]
    """For each level below the root: whether more siblings follow."""
    limits: tuple[Held, ...]
    unlimited: int = 0
    """How many accounts right below have no limit of their own there, nor any below them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One dataset: what is hidden, from whom, and who may spend how much."""

    dataset: Dataset
    nodes: tuple[Node, ...]

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        limits = [held.to_dict() for node in self.nodes for held in node.limits]
        unit = unit_to_dict(self.dataset.unit) | {"text": str(self.dataset.unit)}
        return {"dataset": self.dataset.name, "unit": unit, "trust": self.dataset.trust.value, "limits": limits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The whole of it."""

    url: str
    book: str
    public_key: str | None
    entries: int
    head: str
    at: datetime
    sheets: tuple[Sheet, ...]
    notes: tuple[str, ...]
    refusals: tuple[Row, ...]
    open_charges: int

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            "ledger": self.url,
            "book": self.book,
            "public_key": self.public_key,
            "entries": self.entries,
            "head": self.head,
            "at": self.at.isoformat(),
            "datasets": [sheet.to_dict() for sheet in self.sheets],
            "notes": list(self.notes),
            "refusals": [row.to_dict() for row in self.refusals],
            "open_charges": self.open_charges,
        }


def overview(
    ledger: Ledger,
    made: Survey,
    *,
    now: datetime,
    account: object = None,
    dataset: str | None = None,
    within: int | None = None,
) -> Overview:
    """How everything stands, or what lies at and below one account, or one dataset; ``made`` is ``views.survey(ledger)``.

    >>> from datetime import UTC
    >>> from dither.ledger.book import Ledger
    >>> with Ledger.open("sqlite://") as ledger:
    ...     overview(ledger, views.survey(ledger), now=datetime.now(UTC)).sheets
    ()
    """
    terms = ledger.terms()
    whose = None if account is None else paths.account(account)
    if whose is not None:
        terms.account(whose)
    if dataset is not None:
        terms.dataset(dataset)
    by_limit: dict[str, list[Standing]] = {}
    for standing in ledger.standings():
        by_limit.setdefault(standing.limit.id, []).append(standing)
    spent = {(s.limit.id, s.block): s.amounts for found in by_limit.values() for s in found}
    making = _Making(made, terms, spent, now, within)
    every = [
        Sheet(dataset=held, nodes=making.nodes(held, terms.accounts, whose, by_limit))
        for name, held in sorted(terms.datasets.items())
        if dataset in (None, name)
    ]
    sheets = [sheet for sheet in every if sheet.nodes or whose is None]
    n, head, at = ledger.tail()
    mine = [row for row in made.refusals if whose is None or tuple(row.account.split("/"))[: len(whose)] == whose]
    return Overview(
        url=ledger.url,
        book=ledger.book,
        public_key=ledger.public_key,
        entries=n + 1,
        head=head,
        at=moment("at", at),
        sheets=tuple(sheets),
        notes=ledger.notes(),
        refusals=tuple(row for row in mine if dataset in (None, row.dataset))[-REFUSALS:],
        open_charges=len(ledger.open_charges()),
    )


@dataclass(frozen=True, slots=True)
class _Making:
    made: Survey
    terms: Terms
    balances: Mapping[tuple[str, str], Units]
    now: datetime
    within: int | None

    def nodes(
        self, dataset: Dataset, accounts: frozenset[paths.Account], whose: paths.Account | None, standings: Mapping[str, Sequence[Standing]]
    ) -> tuple[Node, ...]:
        """The tree of a dataset: accounts with limits there and those above them; the others are counted."""
        mine: dict[paths.Account, list[Limit]] = {}
        for limit in self.terms.limits.values():
            if limit.dataset == dataset.name:
                mine.setdefault(limit.account, []).append(limit)
        shown = {above for account in mine for above in paths.lineage(account)}
        if whose is not None:
            shown = {a for a in shown if a[: len(whose)] == whose or a == whose[: len(a)]}
        last: dict[paths.Account, str] = {}
        for account in sorted(shown):
            last[account[:-1]] = account[-1]
        unlimited: dict[paths.Account, int] = {}
        for account in accounts - shown:
            unlimited[account[:-1]] = unlimited.get(account[:-1], 0) + 1
        found = []
        for account in sorted(shown):
            limits = tuple(self.held(dataset, limit, standings.get(limit.id, ())) for limit in mine.get(account, ()))
            ties = tuple(last[account[:depth]] > account[depth] for depth in range(1, len(account)))
            below = unlimited.get(account, 0) if whose is None or account[: len(whose)] == whose else 0
            found.append(Node(account=account, ties=ties, limits=limits, unlimited=below))
        return tuple(found)

    def held(self, dataset: Dataset, limit: Limit, standings: Sequence[Standing]) -> Held:
        ordered = sorted(standings, key=lambda s: (-s.share, s.block))
        many = len(ordered) > BLOCKS_SHOWN + 1
        left = sorted(s.remaining.epsilon for s in ordered)
        fold = Fold(blocks=len(left), least=left[0], median=statistics.median_low(left), most=left[-1]) if many else None
        shown = ordered[:BLOCKS_SHOWN] if many else ordered
        active = ""
        if limit.ends is not None and limit.ends <= self.now:
            active = f"ended {limit.ends:%Y-%m-%d %H:%M}"
        elif limit.starts is not None and limit.starts > self.now:
            active = f"not before {limit.starts:%Y-%m-%d %H:%M}"
        lines = tuple(self.line(dataset, s, spendable=not active) for s in shown)
        return Held(limit=limit, hides=dataset.hides(limit.per), lines=lines, fold=fold, active=active)

    def line(self, dataset: Dataset, standing: Standing, *, spendable: bool) -> Line:
        ahead = views.forecast(self.made, standing, dataset.unit.neighbors, self.now)
        left = room(self.spent(dataset, standing.limit, standing.block), self.within) if spendable else None
        return Line(standing=standing, room=left, forecast=ahead)

    def spent(self, dataset: Dataset, limit: Limit, block: str) -> list[tuple[Limit, Gauge, Units]]:
        """Every balance that a charge of this account (on this block; "" is one nobody has touched) would meet."""
        found = []
        for other in self.terms.limits_of(limit.account, dataset.name):
            held = self.terms.gauge(other)
            found += [(other, held, self.balances.get((other.id, met), held.zero)) for met in keys(dataset, other, (block,))]
        return found


def _pair(told: Guarantee) -> dict[str, object]:
    return {"epsilon": _finite(told.epsilon), "delta": told.delta}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
