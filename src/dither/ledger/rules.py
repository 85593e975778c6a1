"""The rules of the book: what may be reserved, settled, granted and moved, each looking first and writing last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from dither.accounting import tables
from dither.accounting._exact import UNITS
from dither.core import checks
from dither.core import events as ev
from dither.core.errors import (
    ConflictError,
    InputError,
    NotPriceableError,
    OverBudgetError,
    RefusedError,
    TamperError,
    UnknownNameError,
    shown,
)
from dither.core.plans import Charge, Receipt, State
from dither.core.units import Trust
from dither.ledger import entries
from dither.ledger.agreed import WHOLE, Terms, share_of, shifted, within
from dither.ledger.blocks import listed, stamp
from dither.ledger.desk import Balance, Desk, Held, Key, Written, all_keys, receipt
from dither.ledger.gauge import Gauge, Units, added, taken
from dither.ledger.paths import Account, text
from dither.ledger.terms import ALERTS_MAX, Dataset, FilterSpec, Limit, exact

RELEASE_MAX: Final = 32 * 1024 * 1024
REASON_MAX: Final = 500


# ------------------------------------------------------------------------------------------------ reserve


def reserve(desk: Desk, charge: Charge, digest: str, *, fewer: bool = False) -> tuple[Receipt, Written]:
    """One transaction's worth of DESIGN §3: read, price, check, append. The order of the answers is fixed."""
    known = desk.charge(charge.id)
    if known is not None:
        if known.digest != digest:
            raise ConflictError(f"The id {shown(charge.id)} already stands for another charge: use a new id for a new charge.")
        written = desk.written(charge.id, known.reserve_n)
        less = replace(written.charge, event=charge.event) if fewer and is_prefix(written.charge.event, charge.event) else written.charge
        if less != charge:
            raise TamperError(f"The row of charge {shown(charge.id)} is not what its entry says: verify the book.")
        return receipt(known, written.trust, written.charge, replayed=True), written
    dataset = desk.terms.check_charge(charge)
    try:
        limits = desk.terms.met(charge)
        _check_windows(desk, limits)
        if fewer:
            charge = _most(desk, charge, dataset, limits)
        prices = {limit.id: desk.terms.gauge(limit).price(charge.event) for limit in limits}
        wanted = all_keys(dataset, limits, charge.blocks)
        after = _after(desk, charge, wanted, prices)
    except (RefusedError, OverBudgetError) as error:
        desk.refused("charge", error, charge=charge)
        raise
    return _reserved(desk, charge, digest, dataset.trust, prices, wanted, after)


def _check_windows(desk: Desk, limits: Iterable[Limit]) -> None:
    now = desk.time
    for limit in limits:
        if limit.starts is not None and now < limit.starts:
            raise RefusedError(f"{_capital(limit.title)} starts at {stamp(limit.starts)}: nothing can be charged before.")
        if limit.ends is not None and now >= limit.ends:
            raise RefusedError(
                f"{_capital(limit.title)} ended at {stamp(limit.ends)}: nothing can be charged any more. What is left is not "
                "carried over, and a new period does not refill it."
            )


def _after(desk: Desk, charge: Charge, wanted: Sequence[Key], prices: Mapping[str, Units]) -> list[Units]:
    """Every balance with the charge on it; OverBudgetError at the first limit that would be passed."""
    made = []
    for key, balance in zip(wanted, desk.balances(wanted), strict=True):
        limit = desk.terms.limits[key[0]]
        gauge, price = desk.terms.gauge(limit), prices[key[0]]
        spent = added(balance.spent, price)
        if not gauge.fits(spent):
            raise OverBudgetError(_over(charge, limit, key[1], gauge, balance, price))
        made.append(spent)
    return made


def _over(charge: Charge, limit: Limit, block: str, gauge: Gauge, balance: Balance, price: Units) -> str:
    where = f" (block {block})" if block else ""
    epsilon, delta = gauge.remaining(balance.spent)
    left = f"ε = {tables.down(epsilon, 6)}" + (f" at δ = {tables.down(delta, 4)}" if limit.filter.delta else "")
    pure = gauge.spec.kind in {"pure", "approx"}
    cost = f"it costs ε = {tables.up(price[0] / UNITS, 6)}" if pure and price[0] < UNITS * 10**300 else "its cost does not fit"
    one = "" if pure else "for one more ε-DP release "
    return (
        f"Charge {shown(charge.id)} would overspend {limit.title}{where}: {cost}, and {one}{left} is left of {limit.filter}. "
        "Ask for less, use other blocks, or move unspent budget from a sibling."
    )


def _most(desk: Desk, charge: Charge, dataset: Dataset, limits: Sequence[Limit]) -> Charge:
    """The charge with as many of its steps as fit; as it stands where not even one does."""
    whole = charge.event
    if not isinstance(whole, ev.Repeat) or whole.spread:
        raise checks.refuse("event", whole, "a Repeat of steps, of which as many steps are reserved as fit")
    wanted = all_keys(dataset, limits, charge.blocks)
    balances = desk.balances(wanted)

    def fits(count: int) -> bool:
        prices = {limit.id: desk.terms.gauge(limit).price(replace(whole, count=count)) for limit in limits}
        return all(
            desk.terms.gauge(desk.terms.limits[name]).fits(added(balance.spent, prices[name]))
            for (name, _), balance in zip(wanted, balances, strict=True)
        )

    if fits(whole.count):
        return charge
    low, high = 0, whole.count  # low fits (or is nothing), high does not
    step = 1
    while low + step < high and fits(low + step):
        low, step = low + step, 2 * step
    high = min(high, low + step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return replace(charge, event=replace(whole, count=max(low, 1)))


def _reserved(
    desk: Desk, charge: Charge, digest: str, trust: Trust, prices: dict[str, Units], wanted: tuple[Key, ...], after: Sequence[Units]
) -> tuple[Receipt, Written]:
    made = entries.charge_to_dict(charge)
    texts = {name: [_units_text(a) for a in price] for name, price in prices.items()}
    own = entries.digest_of(made) if digest.endswith(entries.UP_TO) else digest
    n, head, at = desk.append("reserve", charge.id, charge=made, digest=own, holder=desk.holder, prices=texts)
    written = Written(charge, prices, wanted, trust, head)
    before = desk.balances(written.keys)
    balances = [Balance(spent, old.events + 1, old.alerted) for spent, old in zip(after, before, strict=True)]
    for key, balance in zip(written.keys, balances, strict=True):
        desk.put(key, balance)
    told = {"entry": n, "head": head, "at": at, "release": None, **_standing(desk.terms, written.keys, balances)}
    kept = Held(charge.id, digest, State.RESERVED, n, desk.holder, told)
    desk.add_charge(kept, charge)
    for key, balance in zip(written.keys, balances, strict=True):
        _alert(desk, key, balance)
    return receipt(kept, written.trust, charge, replayed=False), written


@lru_cache(maxsize=4_096)
def _units_text(units: int) -> str:
    return entries.amount_text(Fraction(units, UNITS))


def _standing(terms: Terms, wanted: Sequence[Key], balances: Sequence[Balance]) -> dict[str, object]:
    """What is spent and what remains at the limit that binds: the one that leaves least, and of those the one most used."""
    found = []
    for (name, _), balance in zip(wanted, balances, strict=True):
        gauge = terms.gauge(terms.limits[name])
        found.append((gauge.remaining(balance.spent), -gauge.share(balance.spent) if len(wanted) > 1 else 0.0))
    least = min(range(len(found)), key=found.__getitem__)
    gauge, balance = terms.gauge(terms.limits[wanted[least][0]]), balances[least]
    return {"spent": gauge.spent_reading(balance.spent, balance.events), "remaining": found[least][0]}


def _alert(desk: Desk, key: Key, balance: Balance) -> None:
    """An entry for every threshold that is passed for the first time."""
    limit = desk.terms.limits[key[0]]
    gauge = desk.terms.gauge(limit)
    while balance.alerted < len(limit.alert_at) and gauge.passed(balance.spent, limit.alert_at[balance.alerted]):
        share = min(gauge.share(balance.spent), 1.0)
        desk.append("alert", limit=limit.id, block=key[1], threshold=str(limit.alert_at[balance.alerted]), share=f"{share:.4f}")
        balance.alerted += 1


# ------------------------------------------------------------------------------------------------ settle


def commit(
    desk: Desk, name: str, written: Written | None, *, event: ev.Event | None = None, release: str | None = None, recovered: bool = False
) -> Receipt:
    """Spent for good; less than was reserved only where the event is a prefix of the one reserved (docs/proofs/ledger-limits.md)."""
    kept, written = _to_settle(desk, name, written)
    digest = None if release is None else f"sha256:{sha256(release.encode('ascii')).hexdigest()}"
    if kept.state is State.VOIDED:
        raise ConflictError(f"Charge {shown(name)} was voided: nothing may run under it. Reserve again with a new id.")
    if kept.state is State.COMMITTED:
        if digest is not None and kept.told["release"] != digest:
            raise ConflictError(
                f"Charge {shown(name)} was committed with another release, or with none: noise is never drawn twice under one id."
            )
        return receipt(kept, written.trust, written.charge, replayed=True)
    prices, said = _less(desk, written, event)
    fields: dict[str, Any] = {"event": None, "prices": None}
    if prices is not None and said is not None:
        fields = {"event": ev.to_dict(said), "prices": {limit: [_units_text(a) for a in price] for limit, price in prices.items()}}
    n, head, at = desk.append("commit", name, charge=name, release=digest, recovered=recovered, **fields)
    if prices is not None:
        _give_back(desk, written, {limit: taken(written.prices[limit], price) for limit, price in prices.items()}, events=0)
    told = {"entry": n, "head": head, "at": at, "release": digest, **_standing(desk.terms, written.keys, desk.balances(written.keys))}
    made = Held(name, kept.digest, State.COMMITTED, kept.reserve_n, kept.holder, told)
    desk.settle(made, n)
    if release is not None:
        desk.add_release(name, release)
    return receipt(made, written.trust, written.charge, replayed=False)


def void(desk: Desk, name: str, written: Written | None, reason: str) -> Receipt:
    """Given back, because no row was read: only by the process that reserved, and only while it is reserved."""
    kept, written = _to_settle(desk, name, written)
    if kept.state is State.VOIDED:
        return receipt(kept, written.trust, written.charge, replayed=True)
    if kept.state is State.COMMITTED:
        raise ConflictError(f"Charge {shown(name)} is committed: what is spent is never given back.")
    if kept.holder != desk.holder:
        raise RefusedError(
            f"Charge {shown(name)} is held by another process, and only that one can say that it read nothing: commit it, or let it be."
        )
    n, head, at = desk.append("void", name, charge=name, reason=reason)
    _give_back(desk, written, written.prices, events=1)
    told = {"entry": n, "head": head, "at": at, "release": None, **_standing(desk.terms, written.keys, desk.balances(written.keys))}
    made = Held(name, kept.digest, State.VOIDED, kept.reserve_n, kept.holder, told)
    desk.settle(made, n)
    return receipt(made, written.trust, written.charge, replayed=False)


def _to_settle(desk: Desk, name: str, written: Written | None) -> tuple[Held, Written]:
    kept = desk.charge(name)
    if kept is None:
        raise UnknownNameError("charge", name, ["the id of a reserved charge"])
    if written is None or (kept.state is State.RESERVED and kept.told["head"] != written.head):
        written = desk.written(name, kept.reserve_n)
    desk.balances(written.keys)  # read before anything is written
    return kept, written


def _less(desk: Desk, written: Written, event: ev.Event | None) -> tuple[dict[str, Units] | None, ev.Event | None]:
    """The prices of a smaller event, if that is what ran, and no dearer at any limit."""
    if event is None or event == written.charge.event:
        return None, None
    if not is_prefix(event, written.charge.event):
        raise InputError(
            f"Event {shown(event)} is not the beginning of the one reserved: expected the same steps, fewer of them "
            "(Repeat with a smaller count, or the first members of a Sequence)."
        )
    try:
        prices = {name: desk.terms.gauge(desk.terms.limits[name]).price(event) for name in written.prices}
    except NotPriceableError:
        return None, None
    cheaper = all(a <= b for name, price in prices.items() for a, b in zip(price, written.prices[name], strict=True))
    return (prices, event) if cheaper else (None, None)


def is_prefix(part: ev.Event, whole: ev.Event) -> bool:
    """Whether whoever runs ``whole`` step by step has, at some time, run ``part``.

    >>> step = ev.Gaussian(1.0)
    >>> is_prefix(ev.Repeat(step, 3), ev.Repeat(step, 5)), is_prefix(ev.Repeat(step, 5), ev.Repeat(step, 3))
    (True, False)
    """
    if part == whole:
        return True
    if isinstance(whole, ev.Repeat):
        if not isinstance(part, ev.Repeat) or part.spread or whole.spread:  # what is spread is one release, not steps
            return False
        return part.event == whole.event and part.count <= whole.count
    if isinstance(whole, ev.Sequence):
        last = len(part.events) - 1 if isinstance(part, ev.Sequence) else -1
        if not isinstance(part, ev.Sequence) or not 0 <= last < len(whole.events):
            return False
        return part.events[:last] == whole.events[:last] and is_prefix(part.events[last], whole.events[last])
    return False


def _give_back(desk: Desk, written: Written, amounts: Mapping[str, Units], *, events: int) -> None:
    for key, balance in zip(written.keys, desk.balances(written.keys), strict=True):
        desk.put(key, Balance(taken(balance.spent, amounts[key[0]]), balance.events - events, balance.alerted))


# ------------------------------------------------------------------------------------------------ what is agreed


def declare(desk: Desk, dataset: Dataset) -> Dataset:
    """The dataset, written down once."""
    if desk.terms.new_dataset(dataset):
        desk.append("dataset", dataset=dataset.to_dict())
    return dataset


def add_account(desk: Desk, account: Account) -> Account:
    """The account and those above it, each written down once."""
    for made in desk.terms.new_accounts(account):
        desk.append("account", account=list(made))
    return account


def grant(desk: Desk, wanted: Limit) -> Limit:
    """A new limit (``wanted`` has a name that does not count); the same terms again give the limit that is there."""
    dataset = desk.terms.dataset(wanted.dataset)
    new = desk.terms.new_accounts(wanted.account)
    for known in desk.terms.own_limits(wanted.account, wanted.dataset):
        if known.per is wanted.per:
            if replace(desk.terms.granted[known.id], id=wanted.id) == wanted:
                return known
            error = RefusedError(
                f"Account '{text(wanted.account)}' has limit {known.id} on dataset '{wanted.dataset}' already, of {known.filter}: a limit "
                "is never changed or refilled, not by a new period either. Move unspent budget from a sibling, or charge new blocks."
            )
            desk.refused("grant", error, account=wanted.account, dataset=wanted.dataset)
            raise error
    if wanted.per == "block" and dataset.blocks is None:
        raise checks.refuse("per", "block", f"'dataset', for dataset '{dataset.name}' is not divided into blocks")
    made = replace(wanted, id=f"L{len(desk.terms.granted) + 1}")
    for account in new:
        desk.append("account", account=list(account))
    desk.append("limit", limit=made.to_dict())
    return made


def split(
    desk: Desk, account: Account, dataset: str, shares: Mapping[str, Fraction], alert_at: tuple[Fraction, ...] | None
) -> tuple[Limit, ...]:
    """A limit for each child, of so much of the account's own; all or none."""
    own = desk.terms.own_limits(desk.terms.account(account), desk.terms.dataset(dataset).name)
    if not own:
        raise InputError(f"Account '{text(account)}' has no limit of its own on dataset '{dataset}' to split: grant one first.")
    made = []
    for limit in own:
        base = desk.terms.granted[limit.id]
        for child, share in shares.items():
            wanted = replace(
                base,
                account=(*account, child),
                filter=share_of(base.filter, share),
                alert_at=base.alert_at if alert_at is None else alert_at,
            )
            made.append(wanted)
    desk.terms.new_accounts(*(wanted.account for wanted in made))
    for wanted in made:
        for known in desk.terms.own_limits(wanted.account, dataset):
            if known.per is wanted.per and replace(desk.terms.granted[known.id], id=wanted.id) != wanted:
                grant(desk, wanted)  # refuses, and writes that down
    return tuple(grant(desk, wanted) for wanted in made)


def thresholds(given: object) -> tuple[Fraction, ...]:
    """The shares at which to tell, exact and rising.

    >>> thresholds([0.8, 0.5])
    (Fraction(1, 2), Fraction(4, 5))
    """
    expected = f"at most {ALERTS_MAX} shares > 0 and at most 1, such as (0.5, 0.8, 0.95)"
    found = tuple(sorted({exact("alert_at", a, expected) for a in listed("alert_at", given, expected, limit=ALERTS_MAX)}))
    if found and not 0 < found[0] <= found[-1] <= 1:
        raise checks.refuse("alert_at", given, expected)
    return found


def move(desk: Desk, source: Account, target: Account, dataset: str, epsilon: Fraction, delta: Fraction) -> tuple[Limit, Limit]:
    """Unspent budget from one sibling's limit to another's, under a limit of an account above both, which holds the promise."""
    for account in (source, target):
        desk.terms.account(account)
    desk.terms.dataset(dataset)
    try:
        pair = _to_move(desk.terms, source, target, dataset)
        filters = _moved(desk, *pair, epsilon, delta)
    except RefusedError as error:
        desk.refused("move", error, account=source, dataset=dataset)
        raise
    made = {name: spec.to_dict() for name, spec in filters.items()}
    desk.append("move", source=pair[0].id, target=pair[1].id, epsilon=str(epsilon), delta=str(delta), filters=made)
    return desk.terms.limits[pair[0].id], desk.terms.limits[pair[1].id]


def _to_move(terms: Terms, source: Account, target: Account, dataset: str) -> tuple[Limit, Limit]:
    if source == target or source[:-1] != target[:-1]:
        raise RefusedError(f"Budget moves between siblings only: '{text(source)}' and '{text(target)}' are not two accounts under one.")
    above, seen = terms.limits_of(source[:-1], dataset), False
    if not above:
        raise RefusedError(
            f"Nothing above '{text(source)}' and '{text(target)}' has a limit on dataset '{dataset}': no promise would hold both to it."
        )
    for limit in terms.own_limits(source, dataset):
        for other in terms.own_limits(target, dataset):
            alike = (limit.per, limit.filter.kind, limit.filter.orders) == (other.per, other.filter.kind, other.filter.orders)
            if alike and any(within(terms.datasets[dataset], limit, up) for up in above):
                return limit, other
            seen = seen or alike
    if seen:
        raise RefusedError(
            f"What stands above '{text(source)}' and '{text(target)}' on dataset '{dataset}' holds for each block by itself, and units "
            "reach over blocks: no promise would hold both over the whole dataset."
        )
    raise RefusedError(
        f"'{text(source)}' and '{text(target)}' have no limits of one kind on dataset '{dataset}': budget moves between equals."
    )


def _moved(desk: Desk, source: Limit, target: Limit, epsilon: Fraction, delta: Fraction) -> dict[str, FilterSpec]:
    if epsilon >= source.filter.epsilon or (delta and delta >= source.filter.delta):
        raise RefusedError(f"{_capital(source.title)} is of {source.filter}, which is not more than what would be moved.")
    if source.ends is not None and desk.time >= source.ends:
        raise RefusedError(f"{_capital(source.title)} ended at {stamp(source.ends)}: what is left of it is not carried over.")
    filters = {source.id: shifted(source.filter, -epsilon, -delta), target.id: shifted(target.filter, epsilon, delta)}
    neighbors = desk.terms.datasets[source.dataset].unit.neighbors
    for block, balance in desk.all_balances(source):
        if not Gauge.of(filters[source.id], neighbors).fits(balance.spent):
            where = f" (block {block})" if block != WHOLE else ""
            raise RefusedError(f"{_capital(source.title)}{where} has spent more than would be left: move less.")
    return filters


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
