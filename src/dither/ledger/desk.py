"""What is decided inside one transaction: the rows it needs, the entries it writes, and the rules between them.

Several charges may be decided at one desk, one after the other, each seeing what those before it wrote; all is written
together, or nothing. A rule looks first and writes last, so a refusal leaves nothing behind but its own entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

from dither.core import events as ev
from dither.core.errors import DitherError, TamperError, shown
from dither.core.plans import Charge, Receipt, State
from dither.core.units import Guarantee, Trust
from dither.ledger import entries, merkle, seal
from dither.ledger.agreed import Terms, keys
from dither.ledger.blocks import moment, stamp
from dither.ledger.entries import amount, in_units
from dither.ledger.gauge import Units
from dither.ledger.paths import Account, text
from dither.ledger.store import Query, Turn
from dither.ledger.terms import Dataset, Limit

Key: TypeAlias = tuple[str, str]
"""A balance: a limit's id and a block, "" for the whole dataset."""
_ASKED = 400
_TOLD = frozenset({"entry", "head", "at", "release", "spent", "remaining"})

TAIL: Final = "SELECT n, at, hash, terms, (SELECT t.hash FROM entries t WHERE t.n = e.terms) FROM entries e ORDER BY n DESC LIMIT 1"
_SEEN = "SELECT hash FROM entries WHERE n = ?"
_CHARGES = "SELECT id, digest, state, reserve_n, holder, told FROM charges WHERE id IN ({})"
_BALANCES = "SELECT limit_id, block, spent, events, alerted FROM balances WHERE (limit_id, block) IN (VALUES {})"
_TERMS = "SELECT n, hash, line FROM entries WHERE n = terms AND n >= ? ORDER BY n"

_ADD_ENTRY = "INSERT INTO entries (n, kind, charge, at, terms, hash, line) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ADD_CHARGE = (
    "INSERT INTO charges (id, digest, state, reserve_n, settle_n, account, dataset, purpose, holder, told) "
    "VALUES (?, ?, ?, ?, NULL, ?, ?, ?, ?, ?)"
)
_SETTLE = "UPDATE charges SET state = ?, settle_n = ?, told = ? WHERE id = ?"
_BALANCE = (
    "INSERT INTO balances (limit_id, block, spent, events, alerted) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (limit_id, block) DO UPDATE SET spent = excluded.spent, events = excluded.events, alerted = excluded.alerted"
)
_RELEASE = "INSERT INTO releases (charge, body) VALUES (?, ?)"


# ------------------------------------------------------------------------------------------------ rows


class _Entry(NamedTuple):
    """A row of ``entries``."""

    n: int
    kind: str
    charge: str | None
    at: str
    terms: int
    hash: str
    line: str


@dataclass(slots=True)
class Balance:
    """What one limit has spent on one block: whole units, charges, and thresholds told of."""

    spent: Units
    events: int = 0
    alerted: int = 0

    @classmethod
    def read(cls, spent: str, events: int, alerted: int) -> Balance:
        """From its row."""
        try:
            found = tuple(int(part, 16) for part in spent.split(" "))
            if min(*found, events, alerted) < 0:
                raise ValueError(spent)
        except (AttributeError, TypeError, ValueError):
            raise TamperError("A balance of the book cannot be read: audit the book.") from None
        return cls(found, events, alerted)

    def row(self, key: Key) -> tuple[object, ...]:
        """Its row."""
        return (*key, " ".join(f"{part:x}" for part in self.spent), self.events, self.alerted)


@dataclass(slots=True)
class Held:
    """A charge as its row says."""

    id: str
    digest: str
    state: State
    reserve_n: int
    holder: str
    told: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """What a reserve entry says; it never changes, so it may be kept between transactions."""

    charge: Charge
    prices: Mapping[str, Units]
    keys: tuple[Key, ...]
    trust: Trust
    head: str
    """The hash of the entry."""

    @classmethod
    def read(cls, line: str, terms: Terms) -> Written:
        """From its line."""
        try:
            body = entries.parse(line)
            charge = entries.charge_from_dict(body["charge"])
            dataset = terms.dataset(charge.unit.dataset)
            prices = {name: tuple(in_units(amount(a)) for a in price) for name, price in body["prices"].items()}
            keys = all_keys(dataset, [terms.limits[name] for name in prices], charge.blocks)
        except (DitherError, AttributeError, LookupError, TypeError):
            raise TamperError("An entry that should hold a reservation does not: audit the book, or verify an export of it.") from None
        return cls(charge, prices, keys, dataset.trust, entries.hash_of(line))


def all_keys(dataset: Dataset, limits: Iterable[Limit], blocks: tuple[str, ...]) -> tuple[Key, ...]:
    """Every balance that a charge on these blocks adds to."""
    return tuple((limit.id, block) for limit in limits for block in keys(dataset, limit, blocks))


def receipt(held: Held, trust: Trust, charge: Charge, *, replayed: bool) -> Receipt:
    """What was answered last for a charge."""
    told = held.told
    return Receipt(
        charge_id=held.id,
        state=held.state,
        entry=told["entry"],
        spent=_promised(told["spent"], charge, trust),
        remaining=_promised(told["remaining"], charge, trust),
        head=told["head"],
        at=moment("at", told["at"]),
        replayed=replayed,
    )


def _promised(told: tuple[float, float], charge: Charge, trust: Trust) -> Guarantee:
    epsilon, delta = told
    return Guarantee(epsilon, delta, charge.unit, trust)


def held(row: Sequence[Any]) -> Held:
    """A row of ``charges``: id, digest, state, reserve_n, holder, told."""
    name, digest, state, reserve_n, holder, told = row
    try:
        answer = json.loads(told)
        if not isinstance(answer, dict) or not answer.keys() >= _TOLD:
            raise ValueError(told)
        return Held(name, digest, State(state), reserve_n, holder, answer)
    except (TypeError, ValueError):
        raise TamperError(f"The row of charge {shown(name)} cannot be read: audit the book.") from None


# ------------------------------------------------------------------------------------------------ the desk


class Desk:
    """The book as one transaction sees and changes it."""

    def __init__(
        self,
        turn: Turn,
        terms: Terms,
        *,
        now: datetime,
        by: str,
        holder: str,
        sealer: seal.Sealer | None,
        seen: tuple[int, str] | None = None,
    ) -> None:
        self.turn, self.terms, self.holder = turn, terms, holder
        self._by, self._sealer, self._seen = by, sealer, seen
        self._now = stamp(now)
        self.n, self.at, self.head, self._terms_n = -1, "", entries.GENESIS, -1
        self._held: dict[str, Held | None] = {}
        self._balances: dict[Key, Balance] = {}
        self._touched: dict[Key, Balance] = {}
        self._new_entries: list[_Entry] = []
        self._new_charges: list[tuple[object, ...]] = []
        self._settled: list[tuple[object, ...]] = []
        self._releases: list[tuple[str, str]] = []
        self.news = 0
        """How many entries written here somebody wants to be told of."""

    # -------------------------------------------------------------------------------------------- reading

    def start(self, ids: Iterable[str], wanted: Iterable[Key]) -> None:
        """Read the end of the book and, in the same round, whatever is likely to be needed; terms that are old are read anew."""
        ids, wanted = list(dict.fromkeys(ids)), list(dict.fromkeys(wanted))
        (tail, *found) = self.turn.ask((TAIL, ()), *_charge_queries(ids), *_balance_queries(wanted))
        if self._seen is not None and (not tail or (tail[0][0], tail[0][2]) != self._seen):
            self._check_seen(*self._seen)
        now = ""
        if tail:
            self.n, self.at, self.head, self._terms_n, now = tail[0]
        if now != self.terms.head:
            self.terms = read_terms(self.turn.ask, self.terms)
        self._take(ids, wanted, [row for rows in found for row in rows])

    def _check_seen(self, n: int, head: str) -> None:
        (seen,) = self.turn.ask((_SEEN, (n,)))
        if [row[0] for row in seen] != [head]:
            raise TamperError(
                f"Entry {n} of the book is no longer there as this process wrote it: the book was put back to an older state, or "
                "rewritten. Restore the true one; what was spent since then counts as spent."
            )

    def _take(self, ids: Iterable[str], wanted: Iterable[Key], rows: Iterable[Sequence[Any]]) -> None:
        self._held.update(dict.fromkeys(ids))
        found = {}
        for row in rows:
            if len(row) == 6:
                self._held[row[0]] = held(row)
            else:
                found[row[0], row[1]] = Balance.read(*row[2:])
        for key in wanted:
            if key in found:
                self._balances[key] = found[key]
            elif key[0] in self.terms.limits:
                self._balances[key] = Balance(self.terms.gauge(self.terms.limits[key[0]]).zero)

    def charge(self, name: str) -> Held | None:
        """The charge of that id, if there is one."""
        if name not in self._held:
            self._take([name], [], [row for rows in self.turn.ask(*_charge_queries([name])) for row in rows])
        return self._held[name]

    def balances(self, wanted: Sequence[Key]) -> list[Balance]:
        """The balances of these keys."""
        missing = [key for key in wanted if key not in self._balances]
        if missing:
            self._take([], missing, [row for rows in self.turn.ask(*_balance_queries(missing)) for row in rows])
        return [self._balances[key] for key in wanted]

    def all_balances(self, limit: Limit) -> list[tuple[str, Balance]]:
        """Every balance of a limit, with its block."""
        (rows,) = self.turn.ask(("SELECT block, spent, events, alerted FROM balances WHERE limit_id = ?", (limit.id,)))
        found = {(limit.id, block): Balance.read(*rest) for block, *rest in rows}
        found |= {key: balance for key, balance in self._touched.items() if key[0] == limit.id}
        return [(block, balance) for (_, block), balance in found.items()]

    def written(self, name: str, n: int) -> Written:
        """What the reserve entry of that number says."""
        pending = next((row for row in self._new_entries if row.n == n), None)
        rows = [(pending.line,)] if pending is not None else self.turn.ask(("SELECT line FROM entries WHERE n = ?", (n,)))[0]
        made = Written.read(rows[0][0] if rows else "", self.terms)
        if made.charge.id != name:
            raise TamperError(f"Entry {n} of the book is not the reservation of charge {shown(name)}: audit the book.")
        return made

    @property
    def time(self) -> datetime:
        """Now, and never before the last entry: a clock that goes back opens nothing again."""
        return moment("at", max(self._now, self.at))

    # -------------------------------------------------------------------------------------------- writing

    def append(self, kind: str, charge: str | None = None, /, **fields: object) -> tuple[int, str, str]:
        """One more entry: its number, hash and time."""
        if (self.n + 1) % entries.CHECKPOINT_EVERY == 0 and self.n >= 0 and kind != "checkpoint":
            self._checkpoint()
        n, self.at = self.n + 1, max(self._now, self.at)
        body = {**fields, "n": n, "prev": self.head, "at": self.at, "by": self._by, "kind": kind}
        line = entries.dump(body)
        self.n, self.head = n, sha256(line.encode("ascii")).hexdigest()
        if kind in entries.TERMS:
            self._terms_n = n
            self.terms = self.terms.after([(n, self.head, body)])
        self.news += kind in {"alert", "refusal"}
        self._new_entries.append(_Entry(n, kind, charge, self.at, self._terms_n, self.head, line))
        return n, self.head, self.at

    def _checkpoint(self) -> None:
        count = self.n + 1
        start = count - entries.CHECKPOINT_EVERY
        stored = self.turn.ask(
            ("SELECT hash FROM entries WHERE n >= ? AND n < ? ORDER BY n", (start, count)),
            ("SELECT line FROM entries WHERE n = ?", (start,)),
        )
        hashes = [row[0] for row in stored[0]] + [row.hash for row in self._new_entries if row.n >= start]
        peaks: Sequence[str] = ()
        if start:
            last = stored[1][0][0] if stored[1] else next(row.line for row in self._new_entries if row.n == start)
            peaks = entries.parse(last)["peaks"]
        peaks = merkle.grow(peaks, start, hashes)
        body = seal.checkpoint(self._sealer, self.terms.book, peaks, count)
        self.append("checkpoint", None, **{name: value for name, value in body.items() if name != "kind"})

    def put(self, key: Key, balance: Balance) -> None:
        """A balance that has changed."""
        self._balances[key] = self._touched[key] = balance

    def add_charge(self, made: Held, charge: Charge) -> None:
        """A new reservation."""
        self._held[made.id] = made
        where = (text(charge.account), charge.unit.dataset, charge.purpose)
        self._new_charges.append((made.id, made.digest, made.state.value, made.reserve_n, *where, made.holder, entries.dump(made.told)))

    def settle(self, made: Held, n: int) -> None:
        """A charge that goes to its last state."""
        self._held[made.id] = made
        self._settled.append((made.state.value, n, entries.dump(made.told), made.id))

    def add_release(self, name: str, body: str) -> None:
        """What was released under a charge."""
        self._releases.append((name, body))

    def finish(self) -> None:
        """Hand everything to the transaction."""
        for sql, rows in (
            (_ADD_ENTRY, self._new_entries),
            (_ADD_CHARGE, self._new_charges),
            (_SETTLE, self._settled),
            (_BALANCE, [balance.row(key) for key, balance in self._touched.items()]),
            (_RELEASE, self._releases),
        ):
            if rows:
                self.turn.tell(sql, *rows)

    def refused(
        self, what: str, error: DitherError, *, charge: Charge | None = None, account: Account | None = None, dataset: str | None = None
    ) -> None:
        """The entry of a refusal."""
        self.append(
            "refusal",
            None if charge is None else charge.id,
            what=what,
            charge=None if charge is None else charge.id,
            account=list(charge.account) if charge is not None else None if account is None else list(account),
            dataset=charge.unit.dataset if charge is not None else dataset,
            purpose=None if charge is None else charge.purpose,
            event=None if charge is None else ev.event_digest(charge.event),
            code=error.code,
            text=str(error)[:2_000],
        )


def read_terms(ask: Callable[[Query], list[list[Any]]], known: Terms) -> Terms:
    """What is agreed by all entries; only those after what is known are read, if that still stands."""
    (rows,) = ask((_TERMS, (known.at,)))
    if known.at >= 0 and (not rows or (rows[0][0], rows[0][1]) != (known.at, known.head)):
        known = Terms()
        (rows,) = ask((_TERMS, (known.at,)))
    try:
        return known.after([(n, head, entries.parse(line)) for n, head, line in rows if n > known.at])
    except (DitherError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
        raise TamperError("What the entries of the book agree on cannot be read: restore it from a copy, and verify that.") from None


def _charge_queries(ids: Sequence[str]) -> list[Query]:
    return [(_CHARGES.format(_marks(part)), part) for part in _parts(ids)]


def _balance_queries(wanted: Sequence[Key]) -> list[Query]:
    """The balances of all these keys, in as few questions as there is room for."""
    parts = (wanted[i : i + _ASKED] for i in range(0, len(wanted), _ASKED))
    return [(_balances_of(len(part)), [name for key in part for name in key]) for part in parts]


@lru_cache(maxsize=_ASKED)
def _balances_of(count: int) -> str:
    return _BALANCES.format(", ".join(["(?, ?)"] * count))


def _parts(many: Sequence[str]) -> list[Sequence[str]]:
    return [many[i : i + _ASKED] for i in range(0, len(many), _ASKED)]


def _marks(many: Sequence[str]) -> str:
    return ", ".join("?" * len(many))
