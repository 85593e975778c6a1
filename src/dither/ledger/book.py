"""The ledger: one budget book that decides, in one transaction each, what may be spent, and remembers it for ever.

Threads that charge at the same time share a transaction: whoever comes first decides for all who wait. Nothing is
answered before it is durable.

>>> from dither.core import events as ev
>>> from dither.core.units import PrivacyUnit
>>> ledger = Ledger.open("sqlite://")
>>> unit = PrivacyUnit(dataset="events", key="user_id")
>>> _ = ledger.add_dataset(Dataset(name="events", unit=unit)), ledger.grant("acme/ads", "events", epsilon=1)
>>> charge = Charge(id="c1", account=("acme", "ads"), unit=unit, event=ev.PureDp(0.25), plan_digest="sha256:0", purpose="weekly report")
>>> ledger.reserve(charge).remaining.epsilon, ledger.commit("c1").state
(0.75, <State.COMMITTED: 'committed'>)
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from dither.core import checks
from dither.core import events as ev
from dither.core.encoding import canonical_json, parse_json
from dither.core.errors import DitherError, InputError, LedgerError, NotPriceableError, OverBudgetError, RefusedError, TamperError, shown
from dither.core.plans import Charge, Receipt, State
from dither.ledger import desk as desks
from dither.ledger import entries, holders, opening, rules, seal
from dither.ledger.agreed import Terms
from dither.ledger.alerts import Channel, send
from dither.ledger.blocks import aware, moment
from dither.ledger.desk import Desk, Key, Written
from dither.ledger.paths import Account
from dither.ledger.paths import account as as_account
from dither.ledger.reading import Reader
from dither.ledger.store import Query, Store, open_store
from dither.ledger.terms import Dataset, FilterSpec, Limit, exact, per

T = TypeVar("T")

ALERT_AT: Final = (0.5, 0.8, 0.95)
_BATCH = 128
_LOOK = 0.2
"""Seconds after which who waits looks whether anybody still decides."""
_REMEMBERED = 4_096
_NEWS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Reserved:
    """What ``reserve_up_to`` found room for."""

    receipt: Receipt
    event: ev.Event


class _Job:
    """One decision that waits for its transaction."""

    __slots__ = ("by", "done", "error", "ids", "left", "result", "wake", "wanted", "work")

    def __init__(self, work: Callable[[Desk], Any], ids: Sequence[str], wanted: Sequence[Key]) -> None:
        self.work, self.ids, self.wanted = work, ids, wanted
        self.done = self.left = False
        self.by: _Job | None = None  # who has taken it into its transaction
        self.wake = threading.Semaphore(0)
        self.result: Any = None
        self.error: BaseException | None = None


class Ledger(Reader):
    """A budget book that is open. Safe to use from many threads; many processes may open one book."""

    def __init__(self, store: Store, *, channels: Iterable[Channel], actor: str, clock: Callable[[], datetime]) -> None:
        """Use ``Ledger.open``."""
        super().__init__(store)
        self.actor = actor
        self._anchor: seal.AnchorFile | None = None
        self._clock = clock
        self._channels = tuple(channels)
        self._waiting: list[_Job] = []
        self._queue = threading.Lock()
        self._leader: _Job | None = None
        self._written: OrderedDict[str, Written] = OrderedDict()
        self._holder = holders.here()
        self._telling: threading.Thread | None = None
        self._closed = self._readonly = False
        self._seen: tuple[int, str] | None = None  # the newest entry that was written here, and is durable
        _LEDGERS.add(self)

    # -------------------------------------------------------------------------------------------- opening

    @classmethod
    def open(  # noqa: PLR0913 - each has its default, and is named
        cls,
        url: str = "sqlite:///dither.db",
        *,
        key: str | os.PathLike[str] | None = None,
        anchor: str | os.PathLike[str] | None = None,
        channels: Iterable[Channel] = (),
        actor: str | None = None,
        clock: Callable[[], datetime] | None = None,
        create: bool = True,
        readonly: bool = False,
    ) -> Ledger:
        """The book at a URL, made on first use. A reservation whose process died on this machine is found here, and stays spent.

        The signing key lies beside an SQLite file (``dither.db.key``) unless ``key`` (or the variable DITHER_KEY) names
        another place; a book in PostgreSQL is unsigned without one. ``anchor`` is a file kept elsewhere, against a book put back to
        an older state. ``readonly`` needs no key, writes no entry, and finds no dead holder.
        """
        who = checks.text("actor", actor if actor is not None else opening.user(), limit=200)
        told = opening.told_by(channels)
        if clock is not None and not callable(clock):
            raise checks.refuse("clock", clock, "a function that gives the time, such as lambda: datetime.now(UTC)")
        places = None if key is None else opening.place("key", key), None if anchor is None else opening.place("anchor", anchor)
        store = open_store(url, create=create and not readonly)
        try:
            ledger = cls(store, channels=told, actor=who, clock=clock or opening.now)
            ledger._unlock(opening.key_path(store.url, places[0]), places[1], readonly=readonly)
        except BaseException:
            store.close()
            raise
        return ledger

    def _unlock(self, key: Path | None, anchor: Path | None, *, readonly: bool) -> None:
        """Find out whose book it is, open its key, compare the anchor, settle what the dead left."""
        (first,) = self.store.read(("SELECT line FROM entries WHERE n = 0", ()))
        self._readonly = readonly
        if not first and readonly:
            raise LedgerError(f"There is no book in {self.store.url}: make one with  dither ledger open {self.store.url}.")
        if not first:
            self._sealer = opening.sealer(key) if key is not None else seal.Sealer.ephemeral() if self.store.url == "sqlite://" else None
            self._do(self._begin)
            (first,) = self.store.read(("SELECT line FROM entries WHERE n = 0", ()))
        try:
            body = entries.parse(first[0][0])
        except DitherError:
            raise TamperError(f"The first entry of the book {self.store.url} is damaged: restore it from a copy.") from None
        if body["kind"] != "open" or body["format"] != entries.FORMAT:
            raise LedgerError(f"The book {self.store.url} is of another format than {entries.FORMAT}: update dither.")
        if not readonly:
            self._check_key(body["public_key"], key)
        self._refresh()
        if anchor is not None:
            self._anchor = seal.AnchorFile(anchor, self._sealer)
            self._check_anchor(anchor, body["public_key"])
        if not readonly:
            self.recover()

    def _begin(self, desk: Desk) -> None:
        if desk.n < 0:
            book = seal.Sealer.ephemeral().public_key[:32]  # 128 bits that no other book has
            versions = {
                "python": platform.python_version(),
                **{package: importlib.metadata.version(package) for package in ("dither", "numpy", "scipy")},
            }
            public = None if self._sealer is None else self._sealer.public_key
            desk.append("open", book=book, format=entries.FORMAT, public_key=public, versions=versions)

    def _check_key(self, public_key: str | None, key: Path | None) -> None:
        if public_key is None:
            self._sealer = None
            return
        if self._sealer is None:
            if key is None or not opening.is_there(key):
                place = "the variable DITHER_KEY or key=…" if key is None else str(key)
                raise LedgerError(
                    f"The signing key of the book {self.store.url} is missing: expected it at {place}. Restore it, or open it read-only."
                )
            self._sealer = opening.sealer(key)
        if self._sealer.public_key != public_key:
            raise TamperError(f"The signing key is not that of the book {self.store.url}: give key=… the one it was opened with first.")

    def _check_anchor(self, path: Path, public_key: str | None) -> None:
        found = seal.last_anchor(path)
        if found is None:
            return
        if public_key is not None and not found.signed_by(public_key):
            raise TamperError(f"The anchor file {path} is not signed with the key of this book: give the file of this book.")
        (rows,) = self.store.read(("SELECT hash FROM entries WHERE n = ?", (found.n,)))
        if not rows:
            raise TamperError(
                f"The book {self.store.url} ends before entry {found.n}, which the anchor file {path} has seen: it was put back to an "
                "older state. Restore the newer one; what was spent since counts as spent."
            )
        if rows[0][0] != found.hash:
            raise TamperError(
                f"Entry {found.n} of the book {self.store.url} is not the one that the anchor file {path} has seen: restore the true book."
            )

    def close(self) -> None:
        """Tell what is still to be told, and give back files and connections. It may be called twice."""
        if not self._closed:
            self._closed = True
            if self._telling is not None:
                self._telling.join(60)
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _forked(self) -> None:
        """In a forked child: the parent's locks may be held by threads that are not here, and its charges are not this process's."""
        self._queue, self._waiting, self._leader = threading.Lock(), [], None
        self._holder, self._telling = holders.here(), None

    # -------------------------------------------------------------------------------------------- transactions

    def _do(self, work: Callable[[Desk], T], ids: Sequence[str] = (), wanted: Sequence[Key] = ()) -> T:
        """Decide in a transaction, together with whoever else waits for one."""
        if self._closed:
            raise LedgerError("This ledger is closed: open it again.")
        if self._readonly:
            raise LedgerError(f"The book {self.url} is open read-only: open it without readonly to write to it.")
        job = _Job(work, ids, wanted)
        try:
            with self._queue:
                self._waiting.append(job)
                if self._leader is None or self._leader.left:
                    self._leader = job
            while not job.done:
                if self._leader is job:
                    self._lead(job)
                elif not job.wake.acquire(timeout=_LOOK):
                    self._look(job)
        finally:
            job.left = True  # nothing is called here, so no interrupt comes before it
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    def _lead(self, job: _Job) -> None:
        """Decide for all who wait, wake them, and hand over to one of those who came meanwhile."""
        batch = [job]
        try:
            with self._queue:
                batch += [other for other in self._waiting if other is not job and not other.left][: _BATCH - 1]
                for taken in batch:
                    taken.by = job
                self._waiting = [other for other in self._waiting if other.by is not job and not other.left]
            self._run(batch)
        finally:
            with self._queue:
                self._leader = next((other for other in self._waiting if not other.left), None)
                if self._leader is not None:
                    self._leader.wake.release()
            for other in batch[1:]:
                other.wake.release()

    def _look(self, job: _Job) -> None:
        """Has whoever leads been interrupted, before it decided or before it told? Every job may be done twice."""
        with self._queue:
            if job.by is not None and job.by.left and not job.done:
                job.by = None
                self._waiting.append(job)
            if job.by is None and (self._leader is None or self._leader.left):
                self._leader = job

    def _run(self, batch: Sequence[_Job]) -> None:
        """One transaction for all; what fails in it fails for all, and what is refused for one is refused for that one."""

        def together(turn: Any) -> Desk:  # noqa: ANN401 - a Turn of either store
            desk = Desk(turn, self._terms, now=self._moment(), by=self.actor, holder=self._holder, sealer=self._sealer, seen=self._seen)
            desk.start([name for job in batch for name in job.ids], [key for job in batch for key in job.wanted])
            for job in batch:
                job.result = job.error = None
                before = desk.n
                try:
                    job.result = job.work(desk)
                except (RefusedError, OverBudgetError) as error:
                    job.error = error
                except DitherError as error:
                    job.error = error
                    if desk.n != before:  # it wrote before it looked: nothing of this transaction may stay
                        raise LedgerError(
                            f"The book {self.url} was not changed: {type(error).__name__} came too late. Report this."
                        ) from error
                except (ArithmeticError, LookupError, TypeError, ValueError, AssertionError) as error:
                    raise LedgerError(
                        f"The book {self.url} cannot be used: its entries do not agree ({type(error).__name__}). Verify it."
                    ) from error
            desk.finish()
            return desk

        try:
            desk = self.store.write(together)
            self._terms = desk.terms
            if desk.n >= 0:
                self._seen = max(self._seen or (-1, ""), (desk.n, desk.head))
            if self._anchor is not None and desk.n >= 0:
                self._anchor.anchor(desk.n, desk.head, moment("at", desk.at))
        except BaseException as error:
            for job in batch:
                job.error = (
                    error if isinstance(error, DitherError) else LedgerError("The ledger was interrupted: try again with the same id.")
                )
                job.done = True
            if not isinstance(error, DitherError):
                raise
            return
        for job in batch:
            job.done = True
        if desk.news:
            self._tell()

    def _moment(self) -> datetime:
        return aware("clock", self._clock())

    # -------------------------------------------------------------------------------------------- what is agreed

    def add_dataset(self, dataset: Dataset) -> Dataset:
        """Declare a dataset: its unit, who sees the rows, how it is divided. The same again changes nothing."""
        checks.instance("dataset", dataset, Dataset, "a Dataset")
        return self._do(lambda desk: rules.declare(desk, dataset))

    def add_account(self, account: object) -> Account:
        """Declare an account and those above it. The same again changes nothing."""
        name = as_account(account)
        return self._do(lambda desk: rules.add_account(desk, name))

    def grant(  # noqa: PLR0913 - each has its default, and is named
        self,
        account: object,
        dataset: str,
        *,
        epsilon: object,
        delta: object = 0,
        kind: str | None = None,
        side_delta: object = None,
        orders: Iterable[float] | None = None,
        per: str = "dataset",
        starts: datetime | None = None,
        ends: datetime | None = None,
        alert_at: Sequence[object] = ALERT_AT,
    ) -> Limit:
        """A limit on what an account, and all below it, may spend on a dataset, guarded by a privacy filter.

        The same terms again give the limit that is there; a limit is never changed or refilled.
        """
        wanted = Limit(
            id="L1",
            account=as_account(account),
            dataset=dataset,
            filter=FilterSpec.of(epsilon, delta, kind=kind, side_delta=side_delta, orders=orders),
            per=_per(per),
            starts=starts,
            ends=ends,
            alert_at=alert_at,  # type: ignore[arg-type]  # checked and made exact by Limit
        )
        return self._do(lambda desk: rules.grant(desk, wanted))

    def split(
        self, account: object, dataset: str, shares: Mapping[str, object], *, alert_at: Sequence[object] | None = None
    ) -> tuple[Limit, ...]:
        """Limits for the children of an account, each a share of its own: ``{"training": 0.6, "evaluation": 0.2, "queries": 0.2}``."""
        name = as_account(account)
        checks.instance("shares", shares, Mapping, "a map from child to share, such as {'training': 0.6, 'queries': 0.4}")
        parts = {
            as_account((*name, child))[-1]: exact(f"shares[{child!r}]", share, "a share > 0 and at most 1")
            for child, share in shares.items()
        }
        if not parts or not all(0 < share <= 1 for share in parts.values()) or sum(parts.values()) > 1:
            raise checks.refuse("shares", dict(shares), "shares > 0 that sum to at most 1")
        told = None if alert_at is None else rules.thresholds(alert_at)
        return self._do(lambda desk: rules.split(desk, name, dataset, parts, told))

    def move(self, source: object, target: object, dataset: str, *, epsilon: object, delta: object = 0) -> tuple[Limit, Limit]:
        """Move unspent budget between siblings; the limit above both, which does not change, holds the promise."""
        pair = as_account(source), as_account(target)
        amounts = exact("epsilon", epsilon, "a number > 0"), exact("delta", delta, "a number from 0 to below 1")
        if amounts[0] <= 0 or not 0 <= amounts[1] < 1:
            raise InputError(
                f"epsilon={shown(epsilon)}, delta={shown(delta)} are not allowed: expected epsilon > 0 and delta from 0 to below 1."
            )
        return self._do(lambda desk: rules.move(desk, *pair, dataset, *amounts))

    # -------------------------------------------------------------------------------------------- charges

    def reserve(self, charge: Charge) -> Receipt:
        """Set aside what a charge may cost. Without this receipt nothing may run; the same charge again gives it again."""
        return self._reserve(charge, fewer=False)[0]

    def reserve_up_to(self, charge: Charge) -> Reserved:
        """Set aside as many steps of ``charge.event``, a Repeat, as every limit has room for; OverBudgetError where not one fits."""
        receipt, written = self._reserve(charge, fewer=True)
        return Reserved(receipt, written.charge.event)

    def _reserve(self, charge: Charge, *, fewer: bool) -> tuple[Receipt, Written]:
        checks.instance("charge", charge, Charge, "a Charge")
        if fewer and (not isinstance(charge.event, ev.Repeat) or charge.event.spread):
            raise checks.refuse("event", charge.event, "a Repeat of steps, of which as many steps are reserved as fit")
        digest = entries.charge_digest(charge) + (entries.UP_TO if fewer else "")
        wanted = self._likely(charge)
        made = self._do(lambda desk: rules.reserve(desk, charge, digest, fewer=fewer), [charge.id], wanted)
        self._remember(made[1])
        return made

    def _likely(self, charge: Charge) -> tuple[Key, ...]:
        """The balances that a charge probably needs; its prices are computed here, so that no one waits for that."""
        terms = self._terms
        dataset = terms.datasets.get(charge.unit.dataset)
        limits = terms.limits_of(charge.account, charge.unit.dataset)
        if dataset is None or (dataset.blocks is None) == bool(charge.blocks):
            return ()
        for limit in limits:
            with suppress(NotPriceableError):  # refused, and written down, in its turn
                terms.gauge(limit).price(charge.event)
        return desks.all_keys(dataset, limits, charge.blocks)

    def _remember(self, written: Written) -> None:
        self._written[written.charge.id] = written
        while len(self._written) > _REMEMBERED:
            with suppress(KeyError):
                self._written.popitem(last=False)

    def commit(self, charge_id: str, *, event: ev.Event | None = None, release: str | None = None) -> Receipt:
        """Spent for good. ``event`` says what ran, where it is only the beginning of what was reserved; ``release`` is kept with it."""
        name = checks.text("id", charge_id, limit=200)
        if event is not None and not ev.is_event(event):
            raise checks.refuse("event", event, "an event, or None for the one reserved")
        if release is not None and not isinstance(release, str):
            raise checks.refuse("release", type(release).__name__, "canonical JSON text, or None")
        if release is not None and (len(release) > rules.RELEASE_MAX or canonical_json(parse_json(release)) != release):
            raise checks.refuse("release", type(release).__name__, f"canonical JSON text of at most {rules.RELEASE_MAX} characters")
        written = self._written.get(name)
        wanted = () if written is None else written.keys
        made = self._do(lambda desk: rules.commit(desk, name, written, event=event, release=release), [name], wanted)
        self._written.pop(name, None)
        return made

    def void(self, charge_id: str, reason: str) -> Receipt:
        """Give back what was reserved, because no row was read: only by the process that reserved it, and only while it is reserved."""
        name = checks.text("id", charge_id, limit=200)
        why = checks.text("reason", reason, limit=rules.REASON_MAX)
        written = self._written.get(name)
        wanted = () if written is None else written.keys
        made = self._do(lambda desk: rules.void(desk, name, written, why), [name], wanted)
        self._written.pop(name, None)
        return made

    def recover(self) -> int:
        """Commit what processes that died on this machine had reserved: what they read is unknown, so it is spent. How many there were."""
        (rows,) = self.store.read(("SELECT id, holder FROM charges WHERE settle_n IS NULL ORDER BY reserve_n", ()))
        gone: dict[str, bool] = {}
        for _, holder in rows:
            if holder not in gone:
                gone[holder] = holder != self._holder and holders.dead(holder)
        found = [name for name, holder in rows if gone[holder]]

        def settle(desk: Desk) -> int:
            count = 0
            for name in found:
                kept = desk.charge(name)
                if kept is not None and kept.state is State.RESERVED:
                    rules.commit(desk, name, None, recovered=True)
                    count += 1
            return count

        return self._do(settle, found) if found else 0

    # -------------------------------------------------------------------------------------------- telling

    def _tell(self) -> None:
        """Tell in the background: a charge waits for no webhook."""
        if self._channels and (self._telling is None or not self._telling.is_alive()) and not self._closed:
            made = threading.Thread(target=self._told_quietly, name="dither-alerts", daemon=True)
            with suppress(RuntimeError):  # no thread is to be had now: told at the next deliver_pending
                made.start()
                self._telling = made

    def _told_quietly(self) -> None:
        with suppress(LedgerError):  # told at the next deliver_pending
            while self.deliver_pending():
                pass

    def deliver_pending(self) -> int:
        """Tell every channel of the alerts and refusals it was not told of (the newest 1,000); how many messages arrived."""
        if not self._channels:
            return 0
        names = [channel.name for channel in self._channels]
        (rows,) = self.store.read(
            (f"SELECT n, hash, line FROM entries WHERE kind IN ('alert', 'refusal') ORDER BY n DESC LIMIT {_NEWS_MAX}", ())  # noqa: S608 - a constant
        )
        if not rows:
            return 0
        (told,) = self.store.read(("SELECT entry, channel FROM deliveries WHERE entry >= ?", (rows[-1][0],)))
        known, terms, count = {(n, name) for n, name in told}, self._refresh(), 0
        for n, head, line in reversed(rows):
            body = entries.parse(line)
            for channel, name in zip(self._channels, names, strict=True):
                if (n, name) not in known and not send(channel, _message(terms, body, head)):
                    self._mark(n, name)
                    count += 1
        return count

    def _mark(self, n: int, name: str) -> None:
        at = seal.time_text(self._moment())
        query: Query = (
            "INSERT INTO deliveries (entry, channel, at) VALUES (?, ?, ?) ON CONFLICT (entry, channel) DO NOTHING",
            (n, name, at),
        )

        def work(turn: Any) -> None:  # noqa: ANN401 - a Turn of either store
            turn.ask(("SELECT 1", ()))
            turn.tell(query[0], query[1])

        self.store.write(work)


# ------------------------------------------------------------------------------------------------ small things


_LEDGERS: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _after_fork() -> None:
    for ledger in list(_LEDGERS):
        ledger._forked()  # noqa: SLF001 - of this very module


os.register_at_fork(after_in_child=_after_fork)


def _per(value: str) -> Any:  # noqa: ANN401 - a Per; the parameter of that name hides the function
    return per(value)


def _message(terms: Terms, body: Mapping[str, Any], head: str) -> dict[str, Any]:
    """What channels are told: names, limits and shares."""
    if body["kind"] == "refusal":
        told = {name: body[name] for name in ("what", "charge", "account", "dataset", "purpose", "code", "text")}
        return {"entry": body["n"], "hash": head, "at": body["at"], "kind": "refusal", **told}
    limit = terms.limits[body["limit"]]
    where = f" (block {body['block']})" if body["block"] else ""
    passed = f"{100 * float(Fraction(body['threshold'])):g} %"
    return {
        "entry": body["n"],
        "hash": head,
        "at": body["at"],
        "kind": "alert",
        "limit": limit.id,
        "account": list(limit.account),
        "dataset": limit.dataset,
        "block": body["block"],
        "threshold": body["threshold"],
        "share": body["share"],
        "text": f"{limit.title}{where} has passed {passed} of {limit.filter}: {100 * float(body['share']):.4g} % is used.",
    }
