"""What has been agreed so far: datasets, accounts and limits, read off the entries, and which limits a charge meets.

A ``Terms`` is never changed; an entry that changes what is agreed makes the next one, so it can be kept between charges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from dither.core import checks
from dither.core.errors import ConflictError, InputError, RefusedError, UnknownNameError, shown
from dither.core.plans import Charge
from dither.core.units import Neighbors
from dither.ledger.blocks import Blocks
from dither.ledger.gauge import Gauge
from dither.ledger.paths import Account, alike, guises, lineage, text
from dither.ledger.terms import Dataset, FilterSpec, Limit, Per

WHOLE = ""
"""The block of a balance that is kept over the whole dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Everything that was agreed up to entry ``at``; limits as they stand after moves, ``granted`` as they were made."""

    at: int = -1
    head: str = ""
    """The hash of that entry: numbers alone may have been given anew, after a crash or by a hand."""
    book: str = ""
    public_key: str | None = None
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    accounts: frozenset[Account] = frozenset()
    limits: Mapping[str, Limit] = field(default_factory=dict)
    granted: Mapping[str, Limit] = field(default_factory=dict)
    _looks: Mapping[tuple[Account, int, str], str] = field(default_factory=dict)
    _held: Mapping[tuple[Account, str], tuple[str, ...]] = field(default_factory=dict)
    _gauges: dict[str, Gauge] = field(default_factory=dict, compare=False, repr=False)

    def after(self, entries: Iterable[tuple[int, str, Mapping[str, Any]]]) -> Terms:
        """What is agreed once these entries, whose numbers rise, are written: number, hash and fields of each."""
        at, head, book, public_key, accounts = self.at, self.head, self.book, self.public_key, set(self.accounts)
        datasets, limits, granted = dict(self.datasets), dict(self.limits), dict(self.granted)
        looks, held = dict(self._looks), dict(self._held)
        for n, digest, body in entries:
            at, head = n, digest
            match body["kind"]:
                case "open":
                    book, public_key = body["book"], body["public_key"]
                case "dataset":
                    made = Dataset.from_dict(body["dataset"])
                    datasets[made.name] = made
                case "account":
                    account = tuple(body["account"])
                    accounts.add(account)
                    looks |= dict.fromkeys(_places(account), account[-1])
                case "limit":
                    limit = Limit.from_dict(body["limit"])
                    limits[limit.id] = granted[limit.id] = limit
                    held[limit.account, limit.dataset] = (*held.get((limit.account, limit.dataset), ()), limit.id)
                case "move":
                    for name, spec in body["filters"].items():
                        limits[name] = replace(limits[name], filter=FilterSpec.from_dict(spec))
                case other:
                    raise AssertionError(f"unreachable: an entry of kind {other} changes no terms")
        return Terms(
            at=at,
            head=head,
            book=book,
            public_key=public_key,
            datasets=MappingProxyType(datasets),
            accounts=frozenset(accounts),
            limits=MappingProxyType(limits),
            granted=MappingProxyType(granted),
            _looks=MappingProxyType(looks),
            _held=MappingProxyType(held),
        )

    # -------------------------------------------------------------------------------------------- looking up

    def dataset(self, name: str) -> Dataset:
        """The dataset of that name."""
        if name not in self.datasets:
            raise UnknownNameError("dataset", name, sorted(self.datasets) or ["(no datasets are declared)"])
        return self.datasets[name]

    def account(self, account: Account) -> Account:
        """The account, if it is one."""
        if account not in self.accounts:
            near = [a for a in self.accounts if a[:1] == account[:1]] or list(self.accounts)
            raise UnknownNameError("account", text(account), sorted(map(text, near))[:20] or ["(no accounts are declared)"])
        return account

    def limits_of(self, account: Account, dataset: str) -> tuple[Limit, ...]:
        """Every limit that a charge of this account meets, root first."""
        return tuple(self.limits[name] for above in lineage(account) for name in self._held.get((above, dataset), ()))

    def own_limits(self, account: Account, dataset: str) -> tuple[Limit, ...]:
        """The limits of this very account."""
        return tuple(self.limits[name] for name in self._held.get((account, dataset), ()))

    def gauge(self, limit: Limit) -> Gauge:
        """The arithmetic of a limit that is agreed."""
        found = self._gauges.get(limit.id)
        if found is None:
            found = self._gauges[limit.id] = Gauge.of(self.limits[limit.id].filter, self.datasets[limit.dataset].unit.neighbors)
        return found

    # -------------------------------------------------------------------------------------------- a charge

    def check_charge(self, charge: Charge) -> Dataset:
        """The dataset of a charge, whose account, unit and blocks are what was agreed."""
        dataset = self.dataset(charge.unit.dataset)
        self.account(charge.account)
        if charge.unit != dataset.unit:
            raise checks.refuse("unit", charge.unit, f"the unit of dataset '{dataset.name}': {dataset.unit}")
        check_blocks(dataset, charge.blocks)
        return dataset

    def met(self, charge: Charge) -> tuple[Limit, ...]:
        """The limits that a charge meets; a charge that meets none is refused."""
        found = self.limits_of(charge.account, charge.unit.dataset)
        if not found:
            name, dataset = text(charge.account), charge.unit.dataset
            raise RefusedError(
                f"Account '{name}' has no limit on dataset '{dataset}', nor has an account above it: "
                f"grant one with  dither ledger grant {name} {dataset} --epsilon …."
            )
        return found

    # -------------------------------------------------------------------------------------------- what may be declared

    def new_dataset(self, given: Dataset) -> bool:
        """Whether the dataset is new or has new partitions; ConflictError where it is another than was declared."""
        known = self.datasets.get(given.name)
        if known is None:
            for other in self.datasets:
                if alike(other, given.name):
                    raise _taken_for("dataset", given.name, other)
            return True
        if known == given:
            return False
        if known.blocks is not None and given.blocks is not None and known.blocks.partitions:
            before, now = known.blocks.partitions, given.blocks.partitions
            grown = Blocks(column=known.blocks.column, partitions=now) if now[: len(before)] == before else None
            if grown is not None and replace(known, blocks=grown) == given:
                return True
        raise ConflictError(
            f"Dataset {shown(given.name)} was declared in another way: its unit, trust and blocks never change, and partitions can only be "
            "added at the end. Declare it as before, or give it another name."
        )

    def new_accounts(self, *accounts: Account) -> tuple[Account, ...]:
        """The accounts to be made for these to be there, parents first; InputError for one that looks like another."""
        made = tuple(dict.fromkeys(a for account in accounts for a in lineage(account) if a not in self.accounts))
        looks = dict[tuple[Account, int, str], str]()
        for each in made:
            for place in _places(each):
                known = self._looks.get(place, looks.get(place, each[-1]))
                if known != each[-1]:
                    raise _taken_for("account", text(each), text((*each[:-1], known)))
                looks[place] = each[-1]
        return made


def _places(account: Account) -> list[tuple[Account, int, str]]:
    """Where a name is looked up by what it looks like: no two siblings may share one."""
    return [(account[:-1], i, guise) for i, guise in enumerate(guises(account[-1]))]


def _taken_for(what: str, name: str, other: str) -> InputError:
    return InputError(f"The {what} {shown(name)} looks like {shown(other)}, which is there already: choose a name no one can take for it.")


def check_blocks(dataset: Dataset, blocks: Collection[str]) -> None:
    """Blocks where the dataset is divided, each once; none where it is not.

    >>> from dither.core.units import PrivacyUnit
    >>> check_blocks(Dataset(name="events", unit=PrivacyUnit(dataset="events")), ())
    """
    if dataset.blocks is None:
        if blocks:
            raise checks.refuse("blocks", tuple(blocks)[:3], f"none, for dataset '{dataset.name}' is not divided into blocks")
        return
    if not blocks:
        raise InputError(
            f"Dataset '{dataset.name}' is divided by {dataset.blocks.column}: expected the blocks that are read, none are named."
        )
    for block in blocks:
        dataset.blocks.check(block)
    if len(set(blocks)) != len(blocks):
        raise checks.refuse("blocks", tuple(blocks)[:3], "each block once")


def keys(dataset: Dataset, limit: Limit, blocks: tuple[str, ...]) -> tuple[str, ...]:
    """The blocks of the balances that a charge adds to (docs/proofs/ledger-limits.md, parallel composition).

    >>> from dither.core.units import PrivacyUnit
    >>> from dither.ledger.terms import Every
    >>> unit = PrivacyUnit(dataset="events", neighbors=Neighbors.REPLACE)
    >>> months = Dataset(name="events", unit=unit, blocks=Blocks(column="ts", every=Every.MONTH))
    >>> limit = Limit(id="L1", account=("acme",), dataset="events", filter=FilterSpec.of(1), per=Per.DATASET)
    >>> keys(months, limit, ("2026-01", "2026-02"))
    ('',)
    """
    if dataset.blocks is None:
        return (WHOLE,)
    return blocks if _apart(dataset) or limit.per is Per.BLOCK else (WHOLE,)


def _apart(dataset: Dataset) -> bool:
    """Whether neighbours differ in one block only."""
    return bool(dataset.disjoint) and dataset.unit.neighbors is Neighbors.ADD_REMOVE


def within(dataset: Dataset, limit: Limit, above: Limit) -> bool:
    """Whether what ``above`` promises, as a filter over the same charges and more, is of the kind that ``limit`` promises.

    >>> from dither.core.units import PrivacyUnit
    >>> events = Dataset(name="events", unit=PrivacyUnit(dataset="events"))
    >>> limit = Limit(id="L1", account=("acme",), dataset="events", filter=FilterSpec.of(1), per=Per.DATASET)
    >>> within(events, limit, limit)
    True
    """
    return dataset.blocks is None or _apart(dataset) or above.per is Per.DATASET or limit.per is Per.BLOCK


def share_of(spec: FilterSpec, share: Fraction) -> FilterSpec:
    """A filter of the same kind with a part of its ε and δ.

    >>> share_of(FilterSpec.of(10), Fraction(3, 5)).epsilon
    Fraction(6, 1)
    """
    return replace(spec, epsilon=spec.epsilon * share, delta=spec.delta * share, side_delta=spec.side_delta * share)


def shifted(spec: FilterSpec, epsilon: Fraction, delta: Fraction) -> FilterSpec:
    """The filter with ε and δ changed by so much; the δ for events keeps its part of δ.

    >>> shifted(FilterSpec.of(10), Fraction(-1), Fraction(0)).epsilon
    Fraction(9, 1)
    """
    wide = spec.delta + delta
    side = spec.side_delta * wide / spec.delta if spec.delta else spec.side_delta
    return replace(spec, epsilon=spec.epsilon + epsilon, delta=wide, side_delta=side)
