"""Reading the book: one charge, every limit, the lines as they are. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import TYPE_CHECKING

from dither.core import checks
from dither.core.errors import InputError, LedgerError, TamperError, UnknownNameError, shown
from dither.core.plans import Charge, Receipt, State
from dither.core.units import Guarantee
from dither.ledger import desk as desks
from dither.ledger import entries, merkle, seal
from dither.ledger.agreed import WHOLE, Terms
from dither.ledger.blocks import moment
from dither.ledger.desk import Balance, Key, Written
from dither.ledger.gauge import Units, added
from dither.ledger.paths import Account, lineage, text
from dither.ledger.paths import account as as_account
from dither.ledger.store import Store
from dither.ledger.terms import Limit

if TYPE_CHECKING:
    from dither.ledger.verify import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one limit stands on one block ("" for the whole dataset): ``share`` counts ``reserved``, what is open, too."""

    limit: Limit
    block: str
    spent: Guarantee
    remaining: Guarantee
    share: float
    reserved: float
    events: int
    amounts: Units
    """What is spent in the filter's own currencies, in whole units (``dither.ledger.gauge``)."""


class Reader:
    """The reading half of a ledger."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._sealer: seal.Sealer | None = None
        self._terms = Terms()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.url!r})"

    @property
    def url(self) -> str:
        """Where the book is, without a password."""
        return self.store.url

    @property
    def book(self) -> str:
        """The name that no other book has."""
        return self._terms.book

    @property
    def public_key(self) -> str | None:
        """The key that its seals are checked with, in hex; None for an unsigned book."""
        return self._terms.public_key

    def _refresh(self) -> Terms:
        """The terms as they stand now."""
        (newest,) = self.store.read((desks.TAIL, ()))
        known = self._terms  # a writer may set it anew at any time; whoever decides looks again, inside its transaction
        if (newest[0][4] if newest else "") != known.head:
            self._terms = known = desks.read_terms(self.store.read, known)
        return known

    # -------------------------------------------------------------------------------------------- one charge, read

    def _proved(self, kept: desks.Held, which: str) -> entries.Body:
        """The entry that made a charge what its row says it is; TamperError where the two do not agree."""
        (rows,) = self.store.read(
            (f"SELECT e.n, e.hash, e.line FROM charges c JOIN entries e ON e.n = c.{which} WHERE c.id = ?", (kept.id,))  # noqa: S608 - a constant
        )
        n, head, line = rows[0] if rows else (-1, "", "")
        kind = {State.RESERVED: "reserve", State.COMMITTED: "commit", State.VOIDED: "void"}[kept.state]
        if rows and entries.hash_of(line) == head == kept.told["head"] and n == kept.told["entry"]:
            body = entries.parse(line)
            named = body.get("charge")
            if body["kind"] == kind and (named["id"] if isinstance(named, dict) else named) == kept.id:
                return body
        raise TamperError(f"The row of charge {shown(kept.id)} is not what its entry says: verify the book.")

    def _charge(self, charge_id: str) -> tuple[desks.Held, Written]:
        name = checks.text("id", charge_id, limit=200)
        rows = self.store.read(
            ("SELECT id, digest, state, reserve_n, holder, told FROM charges WHERE id = ?", (name,)),
            ("SELECT e.line FROM charges c JOIN entries e ON e.n = c.reserve_n WHERE c.id = ?", (name,)),
        )
        if not rows[0]:
            raise UnknownNameError("charge", name, ["the id of a charge in this book"])
        kept, written = desks.held(rows[0][0]), Written.read(rows[1][0][0] if rows[1] else "", self._refresh())
        if written.charge.id != name:
            raise TamperError(f"The row of charge {shown(name)} is not what its entry says: audit the book.")
        return kept, written

    def receipt(self, charge_id: str) -> Receipt:
        """What was answered last for a charge."""
        kept, written = self._charge(charge_id)
        return desks.receipt(kept, written.trust, written.charge, replayed=True)

    def charge(self, charge_id: str) -> Charge:
        """The charge as it was reserved."""
        return self._charge(charge_id)[1].charge

    def state(self, charge_id: str) -> State | None:
        """Where a charge stands; None where there is none of that id."""
        (rows,) = self.store.read(("SELECT state FROM charges WHERE id = ?", (checks.text("id", charge_id, limit=200),)))
        return State(rows[0][0]) if rows else None

    def stored(self, charge_id: str) -> str | None:
        """The release that was kept with a charge, as it was given; TamperError where it is not the one that the book has the digest of."""
        kept, _ = self._charge(charge_id)
        (rows,) = self.store.read(("SELECT body FROM releases WHERE charge = ?", (charge_id,)))
        if not rows:
            return None
        body, said = str(rows[0][0]), self._proved(kept, "settle_n").get("release")
        if f"sha256:{sha256(body.encode('ascii', 'replace')).hexdigest()}" != said:
            raise TamperError(f"The release kept under charge {shown(charge_id)} is not the one that was committed: verify the book.")
        return body

    def sealed(self, charge_id: str) -> str:
        """A signed receipt, to hand to whoever asks for evidence."""
        if self._sealer is None:
            raise LedgerError(f"The book {self.url} is open without its signing key: open it with key=… to sign a receipt.")
        kept, written = self._charge(charge_id)
        self._proved(kept, "reserve_n" if kept.state is State.RESERVED else "settle_n")
        n, head, _ = self.tail()
        made = desks.receipt(kept, written.trust, written.charge, replayed=False)
        return seal.receipt_text(self._sealer, made, written.charge, book=self.book, head=(n, head))

    def open_charges(self) -> tuple[tuple[Charge, Receipt], ...]:
        """Every charge that is reserved, and neither committed nor voided."""
        (rows,) = self.store.read(
            (
                "SELECT c.id, c.digest, c.state, c.reserve_n, c.holder, c.told, e.line "  # noqa: ISC004 - one query
                "FROM charges c JOIN entries e ON e.n = c.reserve_n WHERE c.settle_n IS NULL ORDER BY c.reserve_n",
                (),
            )
        )
        terms = self._refresh() if rows else self._terms
        found = [(desks.held(row[:6]), Written.read(row[6], terms)) for row in rows]
        return tuple((w.charge, desks.receipt(kept, w.trust, w.charge, replayed=True)) for kept, w in found)

    # -------------------------------------------------------------------------------------------- the whole book, read

    def terms(self) -> Terms:
        """What is agreed: ``datasets``, ``accounts``, ``limits`` (as they stand after moves)."""
        return self._refresh()

    def tail(self) -> tuple[int, str, str]:
        """The newest entry: its number, hash and time."""
        (rows,) = self.store.read((desks.TAIL, ()))
        n, at, head, *_ = rows[0]
        return n, head, at

    def lines(self, first: int = 0, last: int | None = None) -> Iterator[str]:
        """The lines from ``first`` to before ``last``, or to the newest."""
        start = checks.count("first", first, low=0, high=2**62)
        end = self.tail()[0] + 1 if last is None else checks.count("last", last, low=0, high=2**62)
        return self.store.scan(start, end)

    def trailer(self, count: int | None = None) -> str:
        """The last line of an export of the first ``count`` entries (of all of them): how many they are, and how they end."""
        newest = self.tail()[0] + 1
        whole = newest if count is None else checks.count("count", count, low=1, high=newest)
        start = (whole - 1) // entries.CHECKPOINT_EVERY * entries.CHECKPOINT_EVERY
        checkpoint, rows = self.store.read(
            ("SELECT line FROM entries WHERE n = ?", (start,)),
            ("SELECT hash, at FROM entries WHERE n >= ? AND n < ? ORDER BY n", (start, whole)),
        )
        peaks = entries.parse(checkpoint[0][0])["peaks"] if start else ()
        top = merkle.grow(peaks, start, [row[0] for row in rows])
        head, at = rows[-1]
        root = merkle.root(top, whole)
        return seal.trailer(self._sealer, self.book, count=whole, head=head, root_hash=root, at=moment("at", at))

    def standings(self, account: object = None, dataset: str | None = None) -> tuple[Standing, ...]:
        """Where every limit stands (of one account, of one dataset); a limit that was never used stands at zero."""
        name = None if account is None else as_account(account)
        balances, opened = self.store.read(
            ("SELECT limit_id, block, spent, events, alerted FROM balances ORDER BY limit_id, block", ()),
            ("SELECT e.line FROM charges c JOIN entries e ON e.n = c.reserve_n WHERE c.settle_n IS NULL", ()),
        )
        terms = self._refresh()
        if name is not None:
            terms.account(name)
        if dataset is not None:
            terms.dataset(checks.text("dataset", dataset))
        still: dict[Key, Units] = {}
        for (line,) in opened:
            written = Written.read(line, terms)
            for key in written.keys:
                price = written.prices[key[0]]
                still[key] = added(still[key], price) if key in still else price
        rows: dict[str, list[tuple[str, Balance]]] = {}
        for limit_id, block, *rest in balances:
            rows.setdefault(limit_id, []).append((block, Balance.read(*rest)))
        made = []
        for limit in terms.limits.values():
            if (name is None or limit.account == name) and (dataset is None or limit.dataset == dataset):
                for block, balance in rows.get(limit.id) or [(WHOLE, Balance(terms.gauge(limit).zero))]:
                    made.append(_standing(terms, limit, block, balance, still.get((limit.id, block))))
        return tuple(made)

    def balance(self, account: object, dataset: str | None = None, block: str | None = None) -> Standing:
        """Where the limit stands that binds an account: of its own limits and those above it, the one of which most is used."""
        name = self._refresh().account(as_account(account))
        if block is not None:
            checks.text("block", block)
        above = set(lineage(name))
        found = [s for s in self.standings(dataset=dataset) if s.limit.account in above and (block is None or s.block in {block, WHOLE})]
        own = [s for s in found if s.limit.account == name] or found
        if not own:
            raise InputError(f"Account '{text(name)}' has no limit, nor has an account above it: grant one with  dither ledger grant.")
        return max(own, key=lambda s: s.share)

    def audit(self) -> Report:
        """The whole book held against itself, its rows against its lines (``dither.ledger.audit``)."""
        from dither.ledger.audit import audit  # noqa: PLC0415 - it needs this module

        return audit(self)

    def notes(self) -> tuple[str, ...]:
        """What must be assumed for the limits to mean what they say: who would have to share answers to pass one."""
        terms = self._refresh()
        made = []
        for dataset in sorted(terms.datasets):
            for how in ("block", "dataset"):
                held = {
                    limit.account: limit.filter.epsilon for limit in terms.limits.values() if limit.dataset == dataset and limit.per == how
                }
                made += _collusion(dataset, "" if how == "dataset" else " for each block", held)
        return (*made, *self._late(terms))

    def _late(self, terms: Terms) -> list[str]:
        """Limits that were granted when charges below them had been made: what these cost is not in them."""
        granted, charged = self.store.read(
            ("SELECT line FROM entries WHERE n = terms AND kind = 'limit' ORDER BY n", ()),
            ("SELECT account, dataset, min(reserve_n) FROM charges WHERE state <> 'voided' GROUP BY account, dataset", ()),
        )
        first = [(as_account(account), dataset, n) for account, dataset, n in charged]
        made = []
        for (line,) in granted:
            body = entries.parse(line)
            limit = terms.limits.get(body["limit"]["id"])
            if limit is not None and any(
                dataset == limit.dataset and account[: len(limit.account)] == limit.account and n < body["n"]
                for account, dataset, n in first
            ):
                made.append(
                    f"{limit.title[:1].upper()}{limit.title[1:]} was granted at {body['at']}, when charges below it had been made: it "
                    "holds for what is charged from then on, and what was charged before comes on top."
                )
        return made


def _standing(terms: Terms, limit: Limit, block: str, balance: Balance, still: Units | None) -> Standing:
    gauge, dataset = terms.gauge(limit), terms.datasets[limit.dataset]
    share = gauge.share(balance.spent)
    settled = balance.spent if still is None else tuple(a - b for a, b in zip(balance.spent, still, strict=True))
    return Standing(
        limit=limit,
        block=block,
        spent=Guarantee(*gauge.spent_reading(balance.spent, balance.events), unit=dataset.unit, trust=dataset.trust),
        remaining=Guarantee(*gauge.remaining(balance.spent), unit=dataset.unit, trust=dataset.trust),
        share=share,
        reserved=0.0 if still is None else max(share - gauge.share(settled), 0.0),
        events=balance.events,
        amounts=balance.spent,
    )


def _collusion(dataset: str, each: str, held: Mapping[Account, Fraction]) -> list[str]:
    """Where the limits under one account, or of accounts with nothing above, come to more than what is above them."""
    under: dict[Account, list[Account]] = {}
    for name in held:
        above = next((name[:depth] for depth in range(len(name) - 1, 0, -1) if name[:depth] in held), ())
        under.setdefault(above, []).append(name)
    made = []
    for above, names in sorted(under.items()):
        total = sum((held[name] for name in names), Fraction(0))
        listed = ", ".join(f"'{text(name)}'" for name in sorted(names)[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        if above and total > held[above]:
            made.append(
                f"On dataset '{dataset}'{each}, the limits of {listed} sum to ε = {float(total):g}, above the ε = {float(held[above]):g} "
                f"of '{text(above)}': all of them together cannot pass it, for a charge counts there too; whoever is promised only a "
                "part's own limit is assumed not to share answers with the others."
            )
        elif not above and len(names) > 1:
            made.append(
                f"On dataset '{dataset}'{each}, nothing stands above {listed}: if they share answers, what protects a unit is the sum of "
                f"their limits, ε = {float(total):g}. Put them under one account with a limit to bound that."
            )
    return made
