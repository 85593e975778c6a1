"""Read-only views over a book: its history, who spent what on which purpose, forecasts, what is still allowed in plain words.

Everything is read off the lines of the book and the terms as they stand; nothing is written, and no row of data is known here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dither.core import events as ev
from dither.ledger import alerts, gauge, paths
from dither.ledger.agreed import keys
from dither.ledger.entries import amount, in_units
from dither.ledger.gauge import Gauge, Units, added, taken
from dither.ledger.terms import Dataset, Limit, Per, moment

if TYPE_CHECKING:
    from dither.core.units import Guarantee, Neighbors
    from dither.ledger.book import Ledger
    from dither.ledger.reading import Standing

Key: TypeAlias = tuple[str, str]
"""A balance: limit and block."""
Tell: TypeAlias = Callable[[int, int], None]
"""Told now and then how many lines are read, and how many there are."""

CHUNK: Final = 2_048
REFUSALS_KEPT: Final = 20
POINTS_MAX: Final = 4_000
KINDS: Final = ("open", "dataset", "account", "limit", "move", "charge", "refusal", "alert")


# ------------------------------------------------------------------------------------------------ history


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that happened. A charge is one row, whatever became of it: ``state`` says where it stands now.

    ``epsilon`` at ``delta`` is what the charge alone reads under its nearest limit, and ``share`` the part of that limit it
    took; shares add up, the ε's of single charges are not meant to.
    """

    entry: int
    at: datetime
    by: str
    kind: str
    account: str = ""
    dataset: str = ""
    purpose: str = ""
    what: str = ""
    blocks: tuple[str, ...] = ()
    charge: str = ""
    state: str = ""
    limit: str = ""
    epsilon: float | None = None
    delta: float | None = None
    share: float | None = None

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value; an infinite ε is null, as JSON has no infinity."""
        made: dict[str, object] = {name: getattr(self, name) for name in FIELDS}
        made |= {"at": self.at.isoformat(), "blocks": list(self.blocks)}
        return {name: None if isinstance(held, float) and not math.isfinite(held) else held for name, held in made.items()}


FIELDS: Final = tuple(Row.__slots__)


def history(
    ledger: Ledger,
    *,
    account: object = None,
    dataset: str | None = None,
    purpose: str | None = None,
    kinds: Collection[str] = KINDS,
    limit: int | None = None,
    tell: Tell | None = None,
) -> tuple[Row, ...]:
    """What happened, oldest first; the last ``limit`` rows of it. Of an account, all that lies below it counts too.

    The book is read from its end and no further than is needed.

    >>> from dither.ledger.book import Ledger
    >>> with Ledger.open("sqlite://") as ledger:
    ...     [row.kind for row in history(ledger)]
    ['open']
    """
    whose = None if account is None else paths.account(account)
    terms = ledger.terms()
    if whose is not None:
        terms.account(whose)
    if dataset is not None:
        terms.dataset(dataset)
    reading = _Backwards(terms.datasets, terms.limits)
    found: list[Row] = []
    for body in _backwards(ledger, tell):
        row = reading.row(body)
        if row is None or row.kind not in kinds or not _wanted(row, whose, dataset, purpose):
            continue
        found.append(row)
        if limit is not None and len(found) >= limit:
            break
    return tuple(reversed(found))


def _wanted(row: Row, account: paths.Account | None, dataset: str | None, purpose: str | None) -> bool:
    if account is not None and tuple(row.account.split("/"))[: len(account)] != account:
        return False
    return (dataset is None or row.dataset == dataset) and (purpose is None or row.purpose == purpose)


def bodies(ledger: Ledger, tell: Tell | None = None, *, last: int | None = None) -> Iterator[dict[str, Any]]:
    """Every entry there is now, or the ``last`` of them, oldest first; ``tell`` hears now and then how far it is.

    >>> from dither.ledger.book import Ledger
    >>> with Ledger.open("sqlite://") as ledger:
    ...     [body["kind"] for body in bodies(ledger)]
    ['open']
    """
    count = ledger.tail()[0] + 1
    first = 0 if last is None else max(0, count - last)
    for start in range(first, count, CHUNK):
        if tell is not None:
            tell(start - first, count - first)
        for line in ledger.lines(start, min(start + CHUNK, count)):
            yield json.loads(line)


def _backwards(ledger: Ledger, tell: Tell | None) -> Iterator[dict[str, Any]]:
    count = ledger.tail()[0] + 1
    for end in range(count, 0, -CHUNK):
        if tell is not None:
            tell(count - end, count)
        for line in reversed(tuple(ledger.lines(max(0, end - CHUNK), end))):
            yield json.loads(line)


class _Backwards:
    """Entries become rows, newest first: what became of a charge is met before the charge."""

    def __init__(self, datasets: Mapping[str, Dataset], limits: Mapping[str, Limit]) -> None:
        self.datasets, self.limits = datasets, limits
        self.ends: dict[str, dict[str, Any]] = {}

    def row(self, body: dict[str, Any]) -> Row | None:
        kind = body["kind"]
        if kind in ("commit", "void"):
            self.ends[body["charge"]] = body
            return None
        if kind == "reserve":
            return self._charge(body)
        told = self._told(kind, body)
        return None if told is None else Row(kind=kind, **_when(body), **told)

    def _told(self, kind: str, body: dict[str, Any]) -> dict[str, Any] | None:
        match kind:
            case "open":
                return {"what": f"book {body['book']} opened"}
            case "dataset":
                return {"dataset": body["dataset"]["name"], "what": f"hides {Dataset.from_dict(body['dataset']).unit}"}
            case "account":
                return {"account": "/".join(body["account"]), "what": "account opened"}
            case "limit":
                return self._limit(body)
            case "move":
                return self._move(body)
            case "alert":
                return self._alert(body)
            case "refusal":
                return self._refusal(body)
            case _:
                return None

    def _charge(self, body: dict[str, Any]) -> Row:
        charge, prices = body["charge"], body["prices"]
        end = self.ends.pop(charge["id"], None)
        event, state = charge["event"], "reserved"
        if end is not None:
            state = "voided" if end["kind"] == "void" else "committed"
            if end["kind"] == "commit" and end["event"] is not None:
                event, prices = end["event"], end["prices"]
        nearest = max(prices, key=lambda name: (len(self.limits[name].account), int(name[1:])))
        dataset = self.datasets[charge["unit"]["dataset"]]
        held, price = Gauge.of(self.limits[nearest].filter, dataset.unit.neighbors), units(prices[nearest])
        epsilon, delta = held.spent_reading(price, 1)
        return Row(
            kind="charge",
            **_when(body),
            account="/".join(charge["account"]),
            dataset=dataset.name,
            purpose=charge["purpose"],
            what=event_words(ev.from_dict(event)),
            blocks=tuple(charge["blocks"]),
            charge=charge["id"],
            state=state,
            limit=nearest,
            epsilon=epsilon,
            delta=delta,
            share=held.share(price),
        )

    def _limit(self, body: dict[str, Any]) -> dict[str, Any]:
        limit = Limit.from_dict(body["limit"])
        each = " for each block" if limit.per is Per.BLOCK else ""
        return {"account": paths.text(limit.account), "dataset": limit.dataset, "limit": limit.id, "what": f"limit {limit.filter}{each}"}

    def _move(self, body: dict[str, Any]) -> dict[str, Any]:
        source, target = self.limits[body["source"]], self.limits[body["target"]]
        what = f"moved ε = {_decimal(body['epsilon'])}, δ = {_decimal(body['delta'])} to {paths.text(target.account)}"
        return {"account": paths.text(source.account), "dataset": source.dataset, "limit": source.id, "what": what}

    def _alert(self, body: dict[str, Any]) -> dict[str, Any]:
        limit = self.limits[body["limit"]]
        share = float(body["share"])
        return {
            "account": paths.text(limit.account),
            "dataset": limit.dataset,
            "limit": limit.id,
            "what": f"{100 * share:.4g} % used",
            "blocks": (body["block"],) if body["block"] else (),
            "share": share,
        }

    def _refusal(self, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "account": "/".join(body["account"] or ()),
            "dataset": body["dataset"] or "",
            "purpose": body["purpose"] or "",
            "what": body["text"],
            "charge": body["charge"] or "",
            "state": body["code"],
        }


def _when(body: dict[str, Any]) -> dict[str, Any]:
    return {"entry": body["n"], "at": moment("at", body["at"]), "by": body["by"]}


def _decimal(text: str) -> str:
    top, _, bottom = text.partition("/")
    return f"{int(top) / int(bottom or 1):.6g}"


def event_words(event: ev.Event, width: int = 200) -> str:
    """An event as people would say it.

    >>> event_words(ev.Repeat(ev.Subsample(ev.Gaussian(1.1), ev.Poisson(0.01)), 4_700))
    '4,700 × Gaussian(1.1) on Poisson(0.01)'
    """
    words = _words(event)
    return words if len(words) <= width else f"{words[: width - 1]}…"


def _words(event: ev.Event) -> str:
    match event:
        case ev.Repeat(event=inner, count=count):
            return f"{count:,} × {_words(inner)}"
        case ev.Subsample(event=inner, sampler=sampler):
            return f"{_words(inner)} on {_named(sampler)}"
        case ev.Sequence(events=members):
            return " + ".join(_words(member) for member in members[:8]) + (f" + {len(members) - 8:,} more" if len(members) > 8 else "")
        case ev.Parallel(events=members):
            return f"{len(members):,} side by side: " + ", ".join(_words(member) for member in members[:3])
        case _:
            return _named(event)


def _named(thing: object) -> str:
    """Class and numbers; what is a nested event or a list is told by its class alone."""
    held = [getattr(thing, name) for name in getattr(thing, "__slots__", ()) if not name.startswith("_")]
    shown = [
        _words(part) if ev.is_event(part) else f"{part:g}" if isinstance(part, float) else f"{part:,}" for part in held if _short(part)
    ]
    return f"{type(thing).__name__}({', '.join(shown)})" if shown else type(thing).__name__


def _short(part: object) -> bool:
    return ev.is_event(part) or (isinstance(part, int | float) and not isinstance(part, bool))


# ------------------------------------------------------------------------------------------------ one reading of the whole book


@lru_cache(maxsize=65_536)
def _units(texts: tuple[str, ...]) -> Units:
    return tuple(in_units(amount(text)) for text in texts)


def units(texts: Sequence[str]) -> Units:
    """The amounts of a price, as the book writes them, in whole numbers of its unit.

    >>> units(["1", "0"])[1]
    0
    """
    return _units(tuple(texts))


@dataclass(slots=True)
class Trail:
    """How one balance grew: (when, by how much) of its committed charges; the older ones are merged in pairs where there are many."""

    steps: list[tuple[datetime, Units]] = field(default_factory=list)

    def add(self, at: datetime, price: Units) -> None:
        """One more committed charge."""
        self.steps.append((at, price))
        if len(self.steps) > POINTS_MAX:
            old, recent = self.steps[: -alerts.RECENT], self.steps[-alerts.RECENT :]
            odd, even = old[0::2], old[1::2]
            merged = [(later, added(one, two)) for (_, one), (later, two) in zip(odd, even, strict=False)]
            self.steps = merged + old[2 * len(merged) :] + recent


@dataclass(slots=True)
class Spending:
    """What one account spent on one purpose: its charges, who made them, the amounts under each limit (over all its blocks)."""

    account: str
    dataset: str
    purpose: str
    charges: int = 0
    people: set[str] = field(default_factory=set)
    amounts: dict[str, Units] = field(default_factory=dict)
    last: datetime | None = None


@dataclass(slots=True)
class Survey:
    """What one reading of the book, or of its newest part, gives."""

    whole: bool = True
    entries: int = 0
    trails: dict[Key, Trail] = field(default_factory=dict)
    since: dict[str, datetime] = field(default_factory=dict)
    spendings: dict[tuple[str, str, str], Spending] = field(default_factory=dict)
    refusals: list[Row] = field(default_factory=list)
    refused: list[tuple[datetime, str, str]] = field(default_factory=list)


def survey(ledger: Ledger, *, last: int | None = None, tell: Tell | None = None) -> Survey:
    """Read the book once, or its ``last`` entries: how balances grew, who spent what, what was refused.

    >>> from dither.ledger.book import Ledger
    >>> with Ledger.open("sqlite://") as ledger:
    ...     survey(ledger).entries
    1
    """
    return _Survey(ledger).read(ledger, last, tell)


class _Survey:
    def __init__(self, ledger: Ledger) -> None:
        terms = ledger.terms()
        self.datasets, self.limits = terms.datasets, terms.limits
        self.made = Survey()
        self.open: dict[str, tuple[dict[str, Any], str, list[tuple[Key, Units]]]] = {}
        self.rows = _Backwards(self.datasets, self.limits)

    def read(self, ledger: Ledger, last: int | None, tell: Tell | None) -> Survey:
        for body in bodies(ledger, tell, last=last):
            self.made.whole = self.made.whole and (body["n"] == 0 or self.made.entries > 0)
            self.made.entries += 1
            self._take(body, body["kind"])
        return self.made

    def _take(self, body: dict[str, Any], kind: str) -> None:
        if kind == "reserve":
            self._reserve(body)
        elif kind in ("commit", "void"):
            self._settle(body, kind)
        elif kind == "limit":
            self.made.since[body["limit"]["id"]] = moment("at", body["at"])
        elif kind == "refusal":
            row = self.rows.row(body)
            if row is not None:
                self.made.refusals = [*self.made.refusals[1 - REFUSALS_KEPT :], row]
                self.made.refused.append((row.at, row.account, row.dataset))

    def _met(self, charge: dict[str, Any], prices: Mapping[str, Sequence[str]]) -> list[tuple[Key, Units]]:
        dataset, blocks, met = self.datasets[charge["unit"]["dataset"]], tuple(charge["blocks"]), []
        for name, texts in prices.items():
            price = units(texts)
            met += [((name, block), price) for block in keys(dataset, self.limits[name], blocks)]
        return met

    def _reserve(self, body: dict[str, Any]) -> None:
        charge = body["charge"]
        self.open[charge["id"]] = charge, body["by"], self._met(charge, body["prices"])

    def _settle(self, body: dict[str, Any], kind: str) -> None:
        found = self.open.pop(body["charge"], None)
        if kind == "void" or found is None:  # not found: it was reserved before the part that is read
            return
        charge, by, met = found
        if body["prices"] is not None:
            met = self._met(charge, body["prices"])
        at = moment("at", body["at"])
        place = ("/".join(charge["account"]), charge["unit"]["dataset"], charge["purpose"])
        spending = self.made.spendings.setdefault(place, Spending(*place))
        spending.charges += 1
        spending.people.add(by)
        spending.last = at
        for key, price in met:
            name = key[0]
            spending.amounts[name] = added(spending.amounts[name], price) if name in spending.amounts else price
            self.made.trails.setdefault(key, Trail()).add(at, price)


# ------------------------------------------------------------------------------------------------ shares over time, forecasts


def shares(made: Survey, standing: Standing, neighbors: Neighbors) -> list[tuple[datetime, float]]:
    """The share of a limit used after each committed charge, held against the limit as it stands now.

    What was spent before the part that was surveyed, and what is still reserved, is there from the start.
    """
    key = (standing.limit.id, standing.block)
    steps = made.trails[key].steps if key in made.trails else []
    held = Gauge.of(standing.limit.filter, neighbors)
    spent = standing.amounts
    for _, price in steps:
        spent = taken(spent, price)
    found = []
    for at, price in steps:
        spent = added(spent, price)
        found.append((at, held.share(spent)))
    return found


def forecast(made: Survey, standing: Standing, neighbors: Neighbors, now: datetime) -> alerts.Forecast:
    """When a limit will be used up if the recent trend goes on."""
    return alerts.forecast(shares(made, standing, neighbors), now=now)


# ------------------------------------------------------------------------------------------------ who spent what


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one account spent on one purpose, as a part of all that was spent under one limit."""

    account: str
    dataset: str
    purpose: str
    people: tuple[str, ...]
    charges: int
    part: float
    currency: str
    limit: str
    last: datetime | None

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        made: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        return made | {"people": list(self.people), "last": None if self.last is None else self.last.isoformat()}


def who_spent(made: Survey, limit: Limit, neighbors: Neighbors) -> tuple[Part, ...]:
    """Who spent what on which purpose under a limit, the most first; parts of the currency that is nearest to its end.

    Of a limit over blocks, what was spent on all of them is counted.
    """
    mine = [s for s in made.spendings.values() if limit.id in s.amounts]
    if not mine:
        return ()
    held = Gauge.of(limit.filter, neighbors)
    total = held.zero
    for spending in mine:
        total = added(total, spending.amounts[limit.id])
    i = _binding(held, total)
    parts = [
        Part(
            account=s.account,
            dataset=s.dataset,
            purpose=s.purpose,
            people=tuple(sorted(s.people)),
            charges=s.charges,
            part=s.amounts[limit.id][i] / total[i] if total[i] else 0.0,
            currency=held.currencies[i].replace("D at", "Rényi divergence at"),
            limit=limit.id,
            last=s.last,
        )
        for s in mine
    ]
    return tuple(sorted(parts, key=lambda p: (-p.part, p.account, p.purpose)))


def _binding(held: Gauge, spent: Units) -> int:
    """The currency that decides: the fullest; of Rényi orders the one with most left."""
    parts = [used / most if most > 0 else (math.inf if used else 0.0) for used, most in zip(spent, held.limits, strict=True)]
    if held.spec.kind != "rdp":
        return max(range(len(parts)), key=parts.__getitem__)
    live = [i for i, most in enumerate(held.limits[:-1]) if most != gauge.NEVER]
    best = min(live, key=parts.__getitem__)
    return best if parts[best] >= parts[-1] else len(parts) - 1


def spending(
    ledger: Ledger, made: Survey, *, account: object = None, dataset: str | None = None, purpose: str | None = None
) -> list[tuple[Limit, Dataset, tuple[Part, ...]]]:
    """Who spent what on which purpose, under the limits that are nearest to the root, or to the account that is named.

    >>> from dither.ledger.book import Ledger
    >>> with Ledger.open("sqlite://") as ledger:
    ...     spending(ledger, survey(ledger))
    []
    """
    terms = ledger.terms()
    whose = () if account is None else paths.account(account)
    found = []
    for name, held in sorted(terms.datasets.items()):
        if dataset not in (None, name):
            continue
        for limit in _deciding([limit for limit in terms.limits.values() if limit.dataset == name], whose):
            parts = who_spent(made, limit, held.unit.neighbors)
            mine = tuple(p for p in parts if tuple(p.account.split("/"))[: len(whose)] == whose and purpose in (None, p.purpose))
            if mine:
                found.append((limit, held, mine))
    return found


def _deciding(limits: Sequence[Limit], whose: paths.Account) -> list[Limit]:
    """One limit of each account that has none above it; of an account that is named, its own or the nearest above."""
    by_account: dict[paths.Account, Limit] = {}
    for limit in sorted(limits, key=lambda x: (x.per is Per.BLOCK, int(x.id[1:]))):
        by_account.setdefault(limit.account, limit)
    above = [by_account[a] for a in paths.lineage(whose) if a in by_account] if whose else []
    if above:
        return above[-1:]
    below = [a for a in by_account if a[: len(whose)] == whose]
    return [by_account[a] for a in sorted(below) if not any(up in by_account for up in paths.lineage(a)[:-1])]


# ------------------------------------------------------------------------------------------------ what is left


def least_left(ledger: Ledger, account: paths.Account, dataset: str, blocks: Sequence[str] = ()) -> tuple[Limit, Guarantee]:
    """Of all limits that a charge of this account would meet, the one that leaves least room, and what it leaves.

    >>> from dither.core.units import PrivacyUnit
    >>> from dither.ledger.book import Ledger
    >>> with Ledger.open("sqlite://") as ledger:
    ...     _ = ledger.add_dataset(Dataset(name="events", unit=PrivacyUnit(dataset="events")))
    ...     _ = ledger.grant("acme", "events", epsilon=4), ledger.grant("acme/ads", "events", epsilon=1)
    ...     least_left(ledger, ("acme", "ads"), "events")[1].epsilon
    1.0
    """
    above = set(paths.lineage(account))
    met = [s for s in ledger.standings(dataset=dataset) if s.limit.account in above and s.block in {"", *blocks}]
    least = min(met, key=lambda s: (s.remaining.epsilon, -s.share))
    return least.limit, least.remaining
