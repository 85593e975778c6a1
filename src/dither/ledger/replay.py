"""The meaning of a book, worked out anew from its entries: what was agreed, what each charge cost, what is left.

This shares no arithmetic with the ledger that wrote the book: prices come from ``dither.accounting.filters``, balances are
sums of whole numbers of 1/UNITS, and every rule of the book is written here a second time, as plainly as it can be.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import sha256
from operator import add, ge, gt, le, sub
from typing import Any, Final, TypeAlias

from dither.accounting import filters
from dither.accounting._exact import UNITS
from dither.core import checks
from dither.core import events as ev
from dither.core.errors import DecodeError, DitherError, InputError, RefusedError, shown
from dither.core.units import Neighbors
from dither.ledger import entries, paths
from dither.ledger.blocks import members, stamp, texts
from dither.ledger.paths import Account
from dither.ledger.terms import Dataset, FilterSpec, Limit, Per, below, fraction, limit_id, unit_to_dict

Units: TypeAlias = tuple[int, ...]
Find: TypeAlias = Callable[[str, str], None]

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
CACHED: Final = 50_000
"""So many events, prices or names are remembered at most; then a memory is emptied."""
CLOSE: Final = Fraction(1, 10**12)
"""Computed prices hold this margin, so two machines whose floats differ in the last digits are both right."""
_SHARE_MARGIN: Final = 1e-4
"""Shares are told to four places."""
_WHO_MAX: Final = 1_000

canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


# ------------------------------------------------------------------------------------------------ one limit


class Rule:
    """A filter as numbers: what an event costs at least, and how much may be spent."""

    def __init__(self, spec: FilterSpec, neighbors: Neighbors) -> None:
        opened = spec.open(neighbors)
        most: list[int | None] = [math.floor(amount * UNITS) for amount in opened.limit]
        self.spec, self.neighbors, self.pricing = spec, neighbors, opened
        self.renyi = isinstance(opened, filters.RdpFilter)
        if isinstance(opened, filters.RdpFilter):
            held = dict(zip(opened.orders, most, strict=False))
            most = [*(held.get(order) for order in spec.orders), most[-1]]
            self.pricing = filters.RenyiOdometer.open(below(spec.delta), orders=spec.orders, neighbors=neighbors)
        self.most = tuple(-1 if amount is None else amount for amount in most)  # nothing fits an order that cannot hold

    def fits(self, spent: Units) -> bool:
        """Every currency within its limit; for Rényi divergences one order is enough."""
        if self.renyi:
            return spent[-1] <= self.most[-1] and any(map(le, spent[:-1], self.most))
        return all(map(le, spent, self.most))

    def levels(self, share: Fraction) -> Units:
        """What must be spent, at the least, for that share of the limit; what has no limit is never the one that counts."""
        return tuple(max(1, math.ceil(share * amount)) if amount >= 0 else 0 for amount in self.most)

    def reached(self, spent: Units, levels: Units) -> bool:
        """Whether the balance has come to these levels: in one currency, or in all Rényi orders."""
        if self.renyi:
            return spent[-1] >= levels[-1] or all(map(ge, spent[:-1], levels))
        return any(map(ge, spent, levels))

    def share(self, spent: Units) -> float:
        """The part of the limit that is used, for people."""
        parts = [
            0.0 if used <= 0 else used / most if most > 0 and used < most * 10**300 else math.inf
            for used, most in zip(spent, self.most, strict=True)
        ]
        return max(min(p for p, most in zip(parts[:-1], self.most, strict=False) if most >= 0), parts[-1]) if self.renyi else max(parts)


@dataclass(slots=True, eq=False)
class Held:
    """A limit and what was spent of it, block by block."""

    limit: Limit
    rule: Rule
    whole: bool
    """Whether there is one balance, however the dataset is divided."""
    balances: dict[str, Units] = field(default_factory=dict)
    told: dict[str, set[Fraction]] = field(default_factory=dict)
    prices: dict[tuple[str, tuple[str, ...]], Units] = field(default_factory=dict)
    levels: tuple[tuple[Fraction, Units], ...] = ()
    charges: int = 0

    def __post_init__(self) -> None:
        self.agree(self.limit, self.rule)

    def agree(self, limit: Limit, rule: Rule) -> None:
        """The terms from now on."""
        self.limit, self.rule = limit, rule
        self.levels = tuple((share, rule.levels(share)) for share in limit.alert_at)

    @property
    def zero(self) -> Units:
        """Nothing spent."""
        return (0,) * len(self.rule.most)

    def worst(self) -> tuple[str, Units]:
        """The block of which most is used."""
        return max(self.balances.items(), key=lambda b: self.rule.share(b[1]), default=("", self.zero))


@dataclass(slots=True)
class Charged:
    """A charge that is reserved: its event, and what each limit holds for it."""

    event: ev.Event | None
    text: str
    parts: list[tuple[Held, tuple[str, ...], Units]]


# ------------------------------------------------------------------------------------------------ the book


class Replay:
    """What the entries so far mean; ``find`` is told of all that cannot be."""

    def __init__(self, find: Find, *, tally: bool = False) -> None:
        self.find = find
        self.book = ""
        self.public_key: str | None = None
        self.datasets: dict[str, Dataset] = {}
        self.accounts: set[Account] = set()
        self.limits: dict[str, Held] = {}
        self.open: dict[str, Charged] = {}
        self.settled: dict[str, str] = {}
        self.tally: dict[tuple[str, str], Counter[str]] | None = {} if tally else None
        self.close = 0
        """Prices below those computed here by less than the margin they hold."""
        self._now = ""
        self._units: dict[str, dict[str, object]] = {}
        self._looks: dict[Account, dict[str, str]] = {}
        self._met: dict[tuple[Account, str], tuple[Held, ...]] = {}
        self._blocks: dict[str, set[str]] = {}
        self._events: dict[str, ev.Event | None] = {}
        self._due: dict[tuple[str, str, Fraction], None] = {}
        self._kinds: dict[str, Callable[[dict[str, Any]], None]] = {
            "open": self._open,
            "dataset": self._dataset,
            "account": self._account,
            "limit": self._limit,
            "move": self._move,
            "reserve": self._reserve,
            "commit": self._commit,
            "void": self._void,
            "refusal": self._refusal,
            "alert": self._alert,
        }

    def apply(self, body: dict[str, Any], at: str) -> None:
        """One entry, its fields known to be those of its kind; ``at`` is the latest time that the book has told."""
        kind, self._now = body["kind"], at
        if self._due and kind not in {"alert", "checkpoint"}:
            self._untold()
        if kind == "checkpoint":
            return
        try:
            self._kinds[kind](body)
        except DitherError as error:
            self.find("form", f"This {kind} entry cannot be: {error}")

    def end(self) -> None:
        """Nothing follows."""
        self._untold()

    # -------------------------------------------------------------------------------------------- what was agreed

    def _open(self, body: dict[str, Any]) -> None:
        self.book, self.public_key = str(body["book"]), None
        if not isinstance(body["book"], str) or re.fullmatch(r"[0-9a-f]{32}", body["book"]) is None:
            raise DecodeError("the book's name is 32 lower-case hex digits.")
        if type(body["format"]) is not int or body["format"] != entries.FORMAT:
            raise DecodeError(f"the format is {shown(body['format'])}: expected {entries.FORMAT}.")
        if body["public_key"] is not None and (
            not isinstance(body["public_key"], str) or re.fullmatch("[0-9a-f]{64}", body["public_key"]) is None
        ):
            raise DecodeError("the public key is 64 lower-case hex digits, or null.")
        self.public_key = body["public_key"]
        versions = body["versions"]
        if not isinstance(versions, dict) or "dither" not in versions:
            raise DecodeError("the versions are a map that names dither's.")
        for name, version in versions.items():
            checks.text("versions", name)
            checks.text("versions", version)

    def _dataset(self, body: dict[str, Any]) -> None:
        made = Dataset.from_dict(body["dataset"])
        _same("dataset", made.to_dict(), body["dataset"])
        old = self.datasets.get(made.name)
        if old is not None and not _grown(old, made):
            self.find("terms", f"Dataset {shown(made.name)} was declared before in other words: it may only gain partitions, at the end.")
            return
        for other in self.datasets:
            if paths.alike(other, made.name):
                self.find("terms", f"Dataset {shown(made.name)} can be taken for dataset {shown(other)}.")
        self.datasets[made.name] = made
        self._units[made.name] = unit_to_dict(made.unit)
        self._blocks.setdefault(made.name, set())

    def _account(self, body: dict[str, Any]) -> None:
        made = paths.account(list(texts("account", body["account"])))
        if made in self.accounts:
            self.find("terms", f"Account {paths.text(made)!r} is declared twice.")
        if made[:-1] and made[:-1] not in self.accounts:
            self.find("terms", f"Account {paths.text(made)!r} is declared before the account above it.")
        looks = self._looks.setdefault(made[:-1], {})
        for seen in map("{} {}".format, ("looks", "folds"), paths.guises(made[-1])):
            other = looks.setdefault(seen, made[-1])
            if other != made[-1]:
                self.find("terms", f"Account {paths.text(made)!r} can be taken for its sibling {other!r}.")
        self.accounts.add(made)

    def _limit(self, body: dict[str, Any]) -> None:
        made = Limit.from_dict(body["limit"])
        _same("limit", made.to_dict(), body["limit"])
        dataset = self.datasets.get(made.dataset)
        if made.account not in self.accounts:
            self.find("terms", f"Limit {made.id} is of account {paths.text(made.account)!r}, which is not declared.")
        if dataset is None:
            self.find("terms", f"Limit {made.id} is on dataset {shown(made.dataset)}, which is not declared.")
            return
        if made.id != f"L{len(self.limits) + 1}":
            self.find("terms", f"Limit {made.id} does not have the next number.")
        if made.id in self.limits or any(_place(h.limit) == _place(made) for h in self.limits.values()):
            self.find("terms", f"Limit {made.id} is set where there is one: a limit never refills.")
            return
        if made.per is Per.BLOCK and dataset.blocks is None:
            self.find("terms", f"Limit {made.id} is for each block of dataset {shown(made.dataset)}, which is not divided.")
        neighbors = dataset.unit.neighbors
        apart = dataset.blocks is not None and bool(dataset.disjoint) and neighbors is Neighbors.ADD_REMOVE
        whole = dataset.blocks is None or (made.per is Per.DATASET and not apart)
        self.limits[made.id] = Held(made, Rule(made.filter, neighbors), whole)
        self._met.clear()

    def _move(self, body: dict[str, Any]) -> None:
        source, target = (self._known(limit_id(end, body[end])) for end in ("source", "target"))
        given = members("filters of a move", body["filters"], (source.limit.id, target.limit.id))
        moved = {label: fraction(label, body[label]) for label in ("epsilon", "delta")}
        after = {held.limit.id: FilterSpec.from_dict(given[held.limit.id]) for held in (source, target)}
        for limit, spec in after.items():
            _same("filter", spec.to_dict(), given[limit])
        self._check_move(source, target, moved, after)
        rules = [(held, Rule(after[held.limit.id], held.rule.neighbors)) for held in (source, target)]
        if any((rule.spec.kind, rule.spec.orders) != (held.rule.spec.kind, held.rule.spec.orders) for held, rule in rules):
            return  # told already; what is spent is in currencies that the new filter does not have
        for held, rule in rules:
            held.agree(replace(held.limit, filter=rule.spec), rule)
            for block, spent in held.balances.items():
                if not held.rule.fits(spent):
                    self.find("overspent", f"The move leaves {held.limit.title}{_of(block)} with less than what is spent.")

    def _check_move(self, source: Held, target: Held, moved: Mapping[str, Fraction], after: Mapping[str, FilterSpec]) -> None:
        one, other = source.limit, target.limit
        if one.id == other.id or one.account[:-1] != other.account[:-1] or one.account == other.account or one.dataset != other.dataset:
            self.find("terms", f"Nothing moves from limit {one.id} to {other.id}: they are not of siblings on one dataset.")
        if one.per is not other.per:
            self.find("terms", f"Nothing moves from limit {one.id} to {other.id}: one is for each block, the other is not.")
        if not any(
            held.limit.account in paths.lineage(one.account)[:-1] and held.limit.dataset == one.dataset for held in self.limits.values()
        ):
            self.find("terms", f"Nothing moves from limit {one.id} to {other.id}: no account above them has a limit on the dataset.")
        if not max(moved.values()) > 0:
            self.find("terms", "A move of nothing is no move.")
        for label, sign, limit in (*((f, -1, one) for f in moved), *((f, 1, other) for f in moved)):
            if getattr(after[limit.id], label) != getattr(limit.filter, label) + sign * moved[label]:
                self.find(
                    "terms",
                    f"After the move, limit {limit.id} does not have the {label} it had {'less' if sign < 0 else 'and'} what moved.",
                )
        for limit in (one, other):
            spec = after[limit.id]
            if (spec.kind, spec.orders, spec.side_delta * limit.filter.delta) != (
                limit.filter.kind,
                limit.filter.orders,
                limit.filter.side_delta * spec.delta,
            ):
                self.find("terms", f"The move changes the filter of limit {limit.id} into another kind, or the part of δ it keeps aside.")

    def _known(self, limit: str) -> Held:
        if limit not in self.limits:
            raise DecodeError(f"limit {limit} is not set.")
        return self.limits[limit]

    # -------------------------------------------------------------------------------------------- charges

    def _reserve(self, body: dict[str, Any]) -> None:
        charge = members("charge", body["charge"], entries.CHARGE_FIELDS)
        if body["digest"] != f"sha256:{sha256(canonical(charge).encode('ascii')).hexdigest()}":
            self.find("charge", "The digest is not that of the charge.")
        name = checks.text("id", charge["id"], limit=200)
        for label, value, limit in (
            ("plan_digest", charge["plan_digest"], 200),
            ("purpose", charge["purpose"], 1_000),
            ("holder", body["holder"], 1_000),
        ):
            checks.text(label, value, limit=limit)
        if name in self.settled or name in self.open:
            self.find("charge", f"Charge {shown(name)} is reserved a second time.")
            return
        account, dataset = texts("account", charge["account"]), self._used(charge["unit"])
        if account not in self.accounts:
            self.find("charge", f"Charge {shown(name)} is of an account that is not declared: {shown('/'.join(account))}.")
        blocks = self._divided(dataset, texts("blocks", charge["blocks"]))
        text = canonical(charge["event"])
        event, met = self._event(text, charge["event"]), self._limits_of(account, dataset.name)
        if not met:
            self.find("charge", f"Charge {shown(name)} meets no limit.")
        parts = self._priced(text, event, met, body["prices"])
        self.open[name] = Charged(event, text, [(held, ("",) if held.whole else blocks, amounts) for held, amounts in parts])
        for held, where, amounts in self.open[name].parts:
            if not _within(held.limit, self._now):
                self.find("window", f"Charge {shown(name)} is outside the time of {held.limit.title}.")
            held.charges += 1
            self._spend(held, where, amounts, text)
            if held.levels:
                self._pass(held, where)

    def _spend(self, held: Held, blocks: tuple[str, ...], amounts: Units, text: str) -> None:
        balances, rule = held.balances, held.rule
        for block in blocks:
            spent = tuple(map(add, balances[block], amounts)) if block in balances else amounts
            balances[block] = spent
            if not rule.fits(spent):
                self.find("overspent", f"The charge overspends {held.limit.title}{_of(block)}.")
            if self.tally is not None:
                self.tally.setdefault((held.limit.id, block), Counter())[text] += 1

    def _pass(self, held: Held, blocks: tuple[str, ...]) -> None:
        """Thresholds that a new charge has passed for the first time: an alert must follow."""
        for block in blocks:
            spent = held.balances[block]
            for share, levels in held.levels:
                if not held.rule.reached(spent, levels):
                    break
                if share not in held.told.get(block, ()):
                    self._due[held.limit.id, block, share] = None

    def _unspend(self, held: Held, blocks: tuple[str, ...], amounts: Units, text: str) -> None:
        for block in blocks:
            held.balances[block] = tuple(map(sub, held.balances[block], amounts))
            if self.tally is not None:
                self.tally[held.limit.id, block][text] -= 1

    def _commit(self, body: dict[str, Any]) -> None:
        name = checks.text("charge", body["charge"], limit=200)
        release, event = body["release"], body["event"]
        if release is not None and not _is_digest(release):
            self.find("form", f"The release of charge {shown(name)} is told by something that is no digest.")
        if not isinstance(body["recovered"], bool):
            self.find("form", "The field 'recovered' is true or false.")
        if (event is None) != (body["prices"] is None):
            self.find("form", "A commit has a smaller event and its prices, or neither.")
        held = self._settle(name, "committed")
        if held is None or event is None:
            return
        text = canonical(event)
        smaller = self._event(text, event)
        if held.event is None or smaller is None or not begins(smaller, held.event):
            self.find("charge", f"Charge {shown(name)} is committed with an event that is no beginning of the one reserved.")
            return
        parts = self._priced(text, smaller, tuple(limit for limit, _, _ in held.parts), body["prices"])
        for (limit, blocks, before), (_, amounts) in zip(held.parts, parts, strict=True):
            if any(map(gt, amounts, before)):
                self.find("price", f"What is committed of charge {shown(name)} costs more under {limit.limit.title} than was reserved.")
            self._unspend(limit, blocks, before, held.text)
            self._spend(limit, blocks, amounts, text)

    def _void(self, body: dict[str, Any]) -> None:
        name = checks.text("charge", body["charge"], limit=200)
        checks.text("reason", body["reason"], limit=_WHO_MAX)
        held = self._settle(name, "voided")
        for limit, blocks, amounts in held.parts if held is not None else ():
            limit.charges -= 1
            self._unspend(limit, blocks, amounts, held.text if held is not None else "")

    def _settle(self, name: str, state: str) -> Charged | None:
        held = self.open.pop(name, None)
        if held is None:
            before = self.settled.get(name)
            told = f"was {before} before" if before is not None else "was never reserved"
            self.find("charge", f"Charge {shown(name)} is {state}, but {told}.")
        self.settled.setdefault(name, state)
        return held

    def _used(self, unit: object) -> Dataset:
        name = unit.get("dataset") if isinstance(unit, dict) else None
        dataset = self.datasets.get(name) if isinstance(name, str) else None
        if dataset is None:
            raise DecodeError(f"its dataset is not declared: {shown(name)}.")
        if unit != self._units[dataset.name]:
            self.find("charge", f"The unit of the charge is not the unit of dataset {shown(dataset.name)}.")
        return dataset

    def _divided(self, dataset: Dataset, blocks: tuple[str, ...]) -> tuple[str, ...]:
        if dataset.blocks is None:
            if blocks:
                self.find("charge", f"The charge names blocks, but dataset {shown(dataset.name)} is not divided.")
            return ()
        if not blocks:
            self.find("charge", f"The charge names no blocks, but dataset {shown(dataset.name)} is divided.")
        known = self._blocks[dataset.name]
        for block in blocks:
            if block not in known:
                known.add(dataset.blocks.check(block))
        if len(set(blocks)) != len(blocks):
            self.find("charge", "The charge names a block twice.")
        return tuple(dict.fromkeys(blocks))

    def _limits_of(self, account: Account, dataset: str) -> tuple[Held, ...]:
        found = self._met.get((account, dataset))
        if found is None:
            held = (h for h in self.limits.values() if h.limit.dataset == dataset)
            found = tuple(h for h in held if account[: len(h.limit.account)] == h.limit.account)
            self._met[account, dataset] = found
        return found

    # -------------------------------------------------------------------------------------------- prices

    def _event(self, text: str, given: object) -> ev.Event | None:
        """The event of that text; None, and a finding, where it is none."""
        if text in self._events:
            return self._events[text]
        if len(self._events) >= CACHED:
            self._events.clear()
        try:
            made = ev.from_dict(given)
        except InputError as error:
            self.find("charge", f"The event cannot be read: {error}")
            return None
        if ev.to_json(made) != text:
            self.find("charge", "The event is not written as the ledger writes it.")
            return None
        self._events[text] = made
        return made

    def _priced(self, text: str, event: ev.Event | None, met: tuple[Held, ...], given: object) -> list[tuple[Held, Units]]:
        """What each limit must hold: what is written, or what is computed here where that is more."""
        prices = given if isinstance(given, dict) else {}
        if not isinstance(given, dict) or len(prices) != len(met):
            self.find("price", "The prices are not those of the limits which the charge meets.")
        found = []
        for held in met:
            key = (text, tuple(t) if isinstance(t := prices.get(held.limit.id), list) else ())
            try:
                amounts = held.prices.get(key)
            except TypeError:  # a list in the list
                amounts, key = None, (text, ())
            if amounts is None:
                amounts = self._price(held, key, event)
            found.append((held, amounts))
        return found

    def _price(self, held: Held, key: tuple[str, tuple[str, ...]], event: ev.Event | None) -> Units:
        """Read the amounts of one limit and compare them with the filter's; remembered where they are right."""
        texts_given, count = key[1], len(held.rule.most)
        written = self._amounts(held, texts_given) if len(texts_given) == count else None
        if len(texts_given) != count:
            self.find("price", f"The price under {held.limit.title} has {len(texts_given)} amounts: expected {count}.")
        if event is None:
            return written or held.zero
        try:
            exact = held.rule.pricing.price(event)
        except RefusedError as error:
            self.find("price", f"The event has no price under {held.limit.title}: {error}")
            return written or held.zero
        least = tuple(math.ceil(amount * UNITS) for amount in exact)
        if written is None:
            return least
        if all(map(ge, written, least)):
            if len(held.prices) >= CACHED:
                held.prices.clear()
            held.prices[key] = written
            return written
        if all(w >= a or ("e" in t and w >= a * (1 - CLOSE)) for w, a, t in zip(written, least, texts_given, strict=True)):
            self.close += 1
        else:
            self.find("price", f"The price under {held.limit.title} is lower than what its filter asks for this event.")
        return tuple(map(max, written, least))

    def _amounts(self, held: Held, given: Iterable[object]) -> Units | None:
        try:
            return tuple(int(entries.amount(text) * UNITS) for text in given)
        except InputError as error:
            self.find("price", f"The price under {held.limit.title} cannot be read: {error}")
            return None

    # -------------------------------------------------------------------------------------------- refusals and alerts

    def _refusal(self, body: dict[str, Any]) -> None:
        for label in ("what", "code"):
            checks.text(label, body[label])
        if not isinstance(body["text"], str) or not body["text"]:
            raise DecodeError("the refusal says nothing.")
        for label, limit in (("charge", 200), ("dataset", 1_000), ("purpose", 1_000)):
            if body[label] is not None:
                checks.text(label, body[label], limit=limit)
        if body["account"] is not None:
            texts("account", body["account"])
        if body["event"] is not None and not _is_digest(body["event"]):
            raise DecodeError("the event is told by something that is no digest.")

    def _alert(self, body: dict[str, Any]) -> None:
        held = self._known(limit_id("limit", body["limit"]))
        block, share = body["block"], fraction("threshold", body["threshold"])
        if not isinstance(body["share"], str) or re.fullmatch(r"[0-9]{1,320}(\.[0-9]{1,40})?", body["share"]) is None:
            raise DecodeError("the share is a decimal, as text.")
        if not isinstance(block, str) or block not in held.balances:
            self.find("alert", f"The alert is about a block of {held.limit.title} of which nothing is spent.")
            return
        told = held.told.setdefault(block, set())
        if share in told:
            self.find("alert", f"The alert about {shown(body['threshold'])} of {held.limit.title}{_of(block)} comes twice.")
        told.add(share)
        self._due.pop((held.limit.id, block, share), None)
        spent = held.balances[block]
        if share not in held.limit.alert_at or not held.rule.reached(spent, held.rule.levels(share)):
            self.find(
                "alert",
                f"The alert says that {shown(body['threshold'])} of {held.limit.title}{_of(block)} is used: it is not, or not asked for.",
            )
        elif abs(float(body["share"]) - min(held.rule.share(spent), 1.0)) > _SHARE_MARGIN:
            self.find("alert", f"The alert tells another share of {held.limit.title}{_of(block)} than what is used.")

    def _untold(self) -> None:
        for limit, block, share in self._due:
            self.find("alert", f"{share} of {self.limits[limit].limit.title}{_of(block)} was passed, and no alert says so.")
            self.limits[limit].told.setdefault(block, set()).add(share)
        self._due.clear()


# ------------------------------------------------------------------------------------------------ small rules


def begins(part: ev.Event, whole: ev.Event) -> bool:
    """Whether a run of ``whole`` that stopped early is a run of ``part``.

    >>> begins(ev.Repeat(ev.Gaussian(1.0), 3), ev.Repeat(ev.Gaussian(1.0), 10)), begins(ev.Gaussian(1.0), ev.Gaussian(2.0))
    (True, False)
    """
    if part == whole:
        return True
    match part, whole:
        case ev.Repeat(event=one, count=few), ev.Repeat(event=other, count=many):
            return not part.spread and not whole.spread and one == other and few <= many
        case ev.Sequence(events=few), ev.Sequence(events=many):
            last = len(few) - 1
            return last < len(many) and few[:last] == many[:last] and begins(few[last], many[last])
        case _:
            return False


def _place(limit: Limit) -> tuple[Account, str, Per]:
    return limit.account, limit.dataset, limit.per


def _grown(old: Dataset, new: Dataset) -> bool:
    """The same dataset, with more partitions behind the old ones."""
    if old.blocks is None or new.blocks is None or not old.blocks.partitions:
        return False
    count = len(old.blocks.partitions)
    more = len(new.blocks.partitions) > count and new.blocks.partitions[:count] == old.blocks.partitions
    plain = [{**d.to_dict(), "blocks": {**d.blocks.to_dict(), "partitions": []}} for d in (old, new) if d.blocks is not None]
    return more and plain[0] == plain[1]


def _same(what: str, made: object, given: object) -> None:
    if canonical(made) != canonical(given):
        raise DecodeError(f"the {what} is not written as the ledger writes it.")


def _within(limit: Limit, now: str) -> bool:
    """Times as the book writes them are in order as texts."""
    return (limit.starts is None or stamp(limit.starts) <= now) and (limit.ends is None or now < stamp(limit.ends))


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None


def _of(block: str) -> str:
    return f", block {shown(block)}" if block else ""
