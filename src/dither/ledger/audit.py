"""A book that is open, held against itself: its lines worked out anew, and every row beside them compared with what follows from them.

Decisions are made from the rows of ``balances`` and ``charges``; whoever can write to the database can write there too. An
export holds the lines alone, so this is where such a hand is seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from dither.core.errors import DecodeError, LedgerError, TamperError, shown
from dither.ledger import desk as desks
from dither.ledger import entries
from dither.ledger.agreed import WHOLE
from dither.ledger.paths import text
from dither.ledger.store import Row, Store
from dither.ledger.verify import Report, _Walk

if TYPE_CHECKING:
    from dither.ledger.reading import Reader

_PAGE: Final = 1024
_BODIES: Final = 16
_ENTRIES = "SELECT n, kind, charge, at, terms, hash, line FROM entries WHERE n >= ? AND n < ? ORDER BY n"
_CHARGES = (
    "SELECT c.id, c.digest, c.state, c.reserve_n, c.settle_n, c.account, c.dataset, c.purpose, c.holder, c.told, "
    "r.line, r.hash, s.line, s.hash "
    "FROM charges c LEFT JOIN entries r ON r.n = c.reserve_n LEFT JOIN entries s ON s.n = c.settle_n WHERE c.id > ? ORDER BY c.id LIMIT ?"
)
_BALANCES = "SELECT limit_id, block, spent, events, alerted FROM balances"
_STRAY = (
    "SELECT count(*) FROM releases r WHERE NOT EXISTS (SELECT 1 FROM charges c WHERE c.id = r.charge AND c.state = 'committed')",
    (),
)
_GUARDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "sqlite": (
        "SELECT name FROM sqlite_master WHERE type = 'trigger'",
        ("entries_no_update", "entries_no_delete", "entries_in_order", "charges_once", "charges_no_delete"),
    ),
    "postgresql": (
        (
            "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
            "WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND c.relname IN ('entries', 'charges')"
        ),
        ("entries_no_change", "entries_no_truncate", "charges_once", "charges_no_delete", "charges_no_truncate"),
    ),
}


def audit(book: Reader) -> Report:
    """Everything that can be checked without a copy kept elsewhere; others may go on writing meanwhile.

    What it finds in rows is told as kind "row". It cannot find a book that was rewritten whole by who has the key: an anchor can.
    """
    tail, balances = book.store.read((desks.TAIL, ()), (_BALANCES, ()))
    if not tail:
        raise LedgerError(f"There is no book in {book.url}: make one with  dither ledger open {book.url}.")
    found = _Audit(book.store, book.public_key, tail[0][0] + 1)
    found.guards(book.url)
    found.entries()
    found.balances(balances)
    found.charges()
    return found.report()


class _Audit:
    def __init__(self, store: Store, public_key: str | None, count: int) -> None:
        self.store, self.count = store, count
        self.walk = _Walk(public_key, tally=False)

    def wrong(self, told: str, n: int | None = None) -> None:
        self.walk.found.at(n, "row", told)

    def report(self) -> Report:
        return self.walk.report(())

    # -------------------------------------------------------------------------------------------- the lines

    def guards(self, url: str) -> None:
        """What refuses to change entries and charges, in the database itself."""
        query, wanted = _GUARDS[url.partition(":")[0].partition("+")[0]]
        (rows,) = self.store.read((query, ()))
        missing = sorted(set(wanted) - {row[0] for row in rows})
        if missing:
            self.wrong(f"The database's own guards are gone: {', '.join(missing)}. Somebody has made its rows editable.")

    def entries(self) -> None:
        """Every line, and what its row says of it beside it."""
        terms = -1
        for start in range(0, self.count, _PAGE):
            (rows,) = self.store.read((_ENTRIES, (start, min(start + _PAGE, self.count))))
            released = {}
            for n, kind, charge, at, changed, head, line in rows:
                self.walk.line(line)
                try:
                    body = entries.parse(line)
                except DecodeError:
                    continue  # found by the walk
                terms = n if body["kind"] in entries.TERMS else terms
                if (kind, charge, at, changed, head) != (body["kind"], _name(body), body["at"], terms, self.walk.head):
                    self.wrong("Its row is not what its line says.", n)
                if body["kind"] == "commit" and body["release"] is not None:
                    released[str(body["charge"])] = (n, body["release"])
            self._releases(released)
        self.walk.closed = True  # an export is closed by a line of its own; a book that is open is not
        self.walk.end()

    def _releases(self, released: Mapping[str, tuple[int, object]]) -> None:
        names = list(released)
        for start in range(0, len(names), _BODIES):
            part = names[start : start + _BODIES]
            marks = ", ".join("?" * len(part))
            (rows,) = self.store.read((f"SELECT charge, body FROM releases WHERE charge IN ({marks})", part))  # noqa: S608 - marks
            kept = {name: f"sha256:{sha256(body.encode('utf-8', 'replace')).hexdigest()}" for name, body in rows}
            for name in part:
                n, digest = released[name]
                if kept.get(name) != digest:
                    self.wrong(f"The release of charge {shown(name)} is {'another than' if name in kept else 'not kept as'} committed.", n)

    # -------------------------------------------------------------------------------------------- the rows

    def balances(self, rows: Sequence[Row]) -> None:
        """What is spent, limit by limit and block by block, at the moment of the last line."""
        limits = self.walk.replay.limits
        kept = {}
        for limit, block, *rest in rows:
            try:
                kept[limit, block] = desks.Balance.read(*rest)
            except TamperError:
                self.wrong(f"The balance of limit {shown(limit)}{_of(block)} cannot be read.")
        due = {(name, block): spent for name, held in limits.items() for block, spent in held.balances.items()}
        for name, block in sorted(kept.keys() | due.keys()):
            held, balance = limits.get(name), kept.get((name, block))
            if held is None:
                self.wrong(f"There is a balance of limit {shown(name)}, which is not set.")
                continue
            told = len(held.told.get(block, ()))
            if balance is None:
                balance = desks.Balance(held.zero)
            if (balance.spent, balance.alerted) != (due.get((name, block), held.zero), told):
                self.wrong(f"The balance of {held.limit.title}{_of(block)} is not what its entries come to.")

    def charges(self) -> None:
        """Every charge: where it stands, what it is, and what was answered."""
        count = 0
        for row in self._all_charges():
            if row[3] < self.count:
                count += 1
                self._charge(*row)
        known = len(self.walk.replay.open) + len(self.walk.replay.settled)
        if count < known:
            self.wrong(f"{known - count} of the charges in the entries have no row.")
        (stray,) = self.store.read(_STRAY)
        if stray[0][0]:
            self.wrong(f"{stray[0][0]} of the releases are of no committed charge.")

    def _all_charges(self) -> Iterator[Row]:
        last, rows = "", self.store.read((_CHARGES, ("", _PAGE)))[0]
        while rows:
            yield from rows
            last = rows[-1][0]
            (rows,) = self.store.read((_CHARGES, (last, _PAGE)))

    def _charge(self, name: str, digest: str, state: str, *rest: Any) -> None:  # noqa: ANN401 - a row
        reserve_n, settle_n, account, dataset, purpose, holder, told, line, head, settled, settled_head = rest
        replay, later = self.walk.replay, settle_n is not None and settle_n >= self.count
        stands = "reserved" if name in replay.open else replay.settled.get(name)
        try:
            body = entries.parse(line or "")
            charge = body["charge"]
            last = body if settle_n is None else entries.parse(settled or "")
            answer = json.loads(told)
            same = (account, dataset, purpose, holder, name, name) == (
                text(tuple(charge["account"])),
                charge["unit"]["dataset"],
                charge["purpose"],
                body["holder"],
                charge["id"],
                _name(last),
            )
            same &= digest == body["digest"] or digest.endswith(":up_to")  # what was asked for then was more
            same &= state == {"reserve": "reserved", "commit": "committed", "void": "voided"}[last["kind"]]
            same &= (answer["entry"], answer["head"], answer["at"], answer["release"]) == (
                reserve_n if settle_n is None else settle_n,
                head if settle_n is None else settled_head,
                last["at"],
                last.get("release"),
            )
        except (DecodeError, KeyError, TypeError, ValueError, AttributeError):
            same = False
        if not same or stands != ("reserved" if later else state):
            self.wrong(f"The row of charge {shown(name)} is not what its entries say.", reserve_n)


def _name(body: Mapping[str, Any]) -> object:
    """The charge that the row of an entry names."""
    if body["kind"] not in {"reserve", "commit", "void", "refusal"}:
        return None
    named = body["charge"]
    return named.get("id") if isinstance(named, dict) else named


def _of(block: object) -> str:
    return "" if block == WHOLE else f" (block {block})"
