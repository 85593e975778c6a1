"""What one account's charges come to, by every way of adding them up, side by side.

The filter's reading is what guards the limit, and holds however the charges were chosen. The odometers hold so too. The
composition theorems and the tight price are for charges that were all fixed beforehand; they are told for comparison.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from dither.accounting import filters
from dither.accounting._exact import float_above
from dither.accounting.compare import TIGHT, compare
from dither.core import events as ev
from dither.core.encoding import canonical_json
from dither.core.errors import InputError, NotPriceableError
from dither.core.units import Guarantee, Neighbors
from dither.ledger import paths
from dither.ledger.agreed import keys
from dither.ledger.gauge import Gauge, Units, added
from dither.ledger.terms import Dataset, Limit
from dither.ledger.views import Tell, bodies, units

if TYPE_CHECKING:
    from dither.ledger.book import Ledger

EVENTS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What one way of adding up says; ``epsilon`` is None where it says nothing, and ``note`` why."""

    name: str
    epsilon: float | None
    delta: float
    adaptive: bool
    reference: str
    note: str = ""

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        finite = self.epsilon if self.epsilon is not None and math.isfinite(self.epsilon) else None
        made: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        return made | {"epsilon": finite}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """All ways, for the charges of one account and those below it, on one dataset (of a divided one: on one block)."""

    account: paths.Account
    dataset: Dataset
    block: str
    limit: Limit
    delta: float
    charges: int
    spent: Guarantee
    ways: tuple[Way, ...]

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            "account": paths.text(self.account),
            "dataset": self.dataset.name,
            "block": self.block or None,
            "limit": self.limit.to_dict(),
            "hides": self.dataset.hides(self.limit.per),
            "trust": self.dataset.trust.value,
            "delta": self.delta,
            "charges": self.charges,
            "ways": [way.to_dict() for way in self.ways],
        }


def prices(
    ledger: Ledger, account: object, dataset: str, *, block: str | None = None, delta: float | None = None, tell: Tell | None = None
) -> Prices:
    """What the account's charges on a dataset come to, committed and reserved, by every way of adding up.

    The limit is the one nearest to its end of the account itself, or of those above it where it has none.
    """
    whose, terms = paths.account(account), ledger.terms()
    terms.account(whose)
    held = terms.dataset(dataset)
    if block is not None:
        if held.blocks is None:
            raise InputError(f"The dataset '{dataset}' is not divided: expected no block. Leave it out.")
        held.blocks.check(block)
    binding = ledger.balance(whose, dataset, block)
    limit, chosen = binding.limit, binding.block
    counted, charges, total = _counted(ledger, whose, held, limit, chosen, tell)
    level = delta if delta is not None else float(limit.filter.delta)
    ways = _ways(counted, charges, total, limit, held, level)
    return Prices(
        account=whose, dataset=held, block=chosen, limit=limit, delta=level, charges=charges, spent=binding.spent, ways=tuple(ways)
    )


def _counted(
    ledger: Ledger, whose: paths.Account, dataset: Dataset, limit: Limit, block: str, tell: Tell | None
) -> tuple[dict[str, int], int, Units]:
    """How often each event was charged on this balance, how many charges that are, and what they cost under the limit."""
    found: dict[str, tuple[str, Units]] = {}
    for body in bodies(ledger, tell):
        kind = body["kind"]
        if kind == "reserve":
            charge = body["charge"]
            if charge["unit"]["dataset"] != dataset.name or tuple(charge["account"])[: len(whose)] != whose:
                continue
            if block in keys(dataset, limit, tuple(charge["blocks"])) and limit.id in body["prices"]:
                found[charge["id"]] = canonical_json(charge["event"]), units(body["prices"][limit.id])
        elif kind == "void":
            found.pop(body["charge"], None)
        elif kind == "commit" and body["prices"] is not None and body["charge"] in found:
            found[body["charge"]] = canonical_json(body["event"]), units(body["prices"][limit.id])
    counted: dict[str, int] = {}
    total = Gauge.of(limit.filter, dataset.unit.neighbors).zero
    for text, price in found.values():
        counted[text] = counted.get(text, 0) + 1
        total = added(total, price)
    return counted, len(found), total


def composed(counted: dict[str, int]) -> ev.Event:
    """All charges as one event. A stream of shuffled batches stays a stream: two of them are never taken for one longer one.

    >>> composed({'{"event":"PureDp","epsilon":0.5}': 2})
    Repeat(event=PureDp(epsilon=0.5), count=2)
    """
    parts: list[ev.Event] = []
    for text, count in counted.items():
        event = ev.from_dict(json.loads(text))
        if count == 1:
            parts.append(event)
        elif any(isinstance(part, ev.Subsample) and isinstance(part.sampler, ev.Shuffled) for part in ev.walk(event)):
            parts += [event] * count
        else:
            parts.append(ev.Repeat(event, count))
    if len(parts) > EVENTS_MAX:
        raise InputError(
            f"{len(parts):,} different events are too many to compare: expected at most {EVENTS_MAX:,}. Name a block or an account below."
        )
    return parts[0] if len(parts) == 1 else ev.Sequence(tuple(parts))


def _ways(counted: dict[str, int], charges: int, total: Units, limit: Limit, dataset: Dataset, delta: float) -> Iterator[Way]:
    neighbors = dataset.unit.neighbors
    held = Gauge.of(limit.filter, neighbors)
    epsilon, at = held.spent_reading(total, charges)
    opened = limit.filter.open(neighbors)
    yield Way(name=f"filter {limit.id} ({limit.filter.kind})", epsilon=epsilon, delta=at, adaptive=True, reference=opened.theorem)
    if not counted:
        return
    event = composed(counted)
    yield from _odometers(counted, delta, neighbors)
    for row in compare(event, delta, neighbors=neighbors).rows:
        if row.name == TIGHT:
            yield Way(
                name="tight, fixed beforehand", epsilon=row.epsilon, delta=delta, adaptive=False, reference=row.reference, note=row.note
            )
        else:
            yield Way(name=row.name, epsilon=row.epsilon, delta=delta, adaptive=False, reference=row.reference, note=row.note)


def _odometers(counted: dict[str, int], delta: float, neighbors: Neighbors) -> Iterator[Way]:
    parts: list[ev.Event] = [ev.Repeat(ev.from_dict(json.loads(text)), count) for text, count in counted.items()]
    yield _read("odometer (basic)", filters.PureOdometer.open(neighbors=neighbors), parts, delta)
    if delta > 0:
        yield _read("odometer (Rényi)", filters.RenyiOdometer.open(delta, neighbors=neighbors), parts, delta)


def _read(name: str, opened: filters.PureOdometer | filters.RenyiOdometer, parts: list[ev.Event], delta: float) -> Way:
    """An odometer's reading after these events; silent, with the reason, where its theorem does not cover one of them."""
    try:
        for part in parts:
            opened = opened.after(part)
    except NotPriceableError as silent:
        return Way(name=name, epsilon=None, delta=delta, adaptive=True, reference=opened.theorem, note=f"does not apply: {silent}")
    epsilon, at = opened.reading
    return Way(
        name=name,
        epsilon=float_above(Fraction(epsilon)) if epsilon != math.inf else math.inf,
        delta=float_above(at),
        adaptive=True,
        reference=opened.theorem,
    )
