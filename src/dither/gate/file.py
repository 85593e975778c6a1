r"""The project file ``dither.yaml``: what it may say, and what it says, as facts, limits and requests.

Two steps. The shape is checked first (keys, types, which things go together), then the house's own nouns are made of it, so
that a limit or a block from YAML obeys the same rules as one from Python. Whatever is wrong is told as
``file:line:column: sentence``.

>>> found = read('datasets: {visits: {source: visits.csv, unit: {row: true}}}\naccounts: {clinic: {epsilon: 1}}', "dither.yaml")
>>> found.limits[0].limit.title, found.limits[0].limit.filter.kind
("limit L1 of account 'clinic' on dataset 'visits'", 'pure')
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError, shown
from dither.core.units import PrivacyUnit
from dither.core.units import neighbors as as_neighbors
from dither.core.units import trust as as_trust
from dither.gate import engines
from dither.gate.engines import Column, Facts, Request
from dither.gate.marked import Loc, Marked
from dither.gate.marked import load as load_marked
from dither.gate.marked import read as read_marked
from dither.gate.rows import typed
from dither.gate.shape import (
    BlocksFields,
    ChannelFields,
    ColumnFields,
    DatasetFields,
    JobFields,
    LimitFields,
    ProjectFields,
    SpanFields,
    UnitFields,
    as_text,
    named,
    schema,
    single,
)
from dither.gate.wording import Strict, sentences
from dither.ledger.alerts import Channel, Command, File, Log, Webhook
from dither.ledger.paths import Account, lineage, part
from dither.ledger.paths import account as as_account
from dither.ledger.paths import name as as_name
from dither.ledger.terms import Blocks, Every, FilterSpec, Limit, Per, exact

__all__ = ["Declared", "Terms", "load", "read", "schema"]

ALERT_AT = (0.5, 0.8, 0.95)
_ERRORS_MAX = 5
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,20})?) ?%")
_RATIO = re.compile(r"([0-9]{1,20})/([1-9][0-9]{0,19})")


# ------------------------------------------------------------------------------------------------ what it says


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A limit as the file states it (its id is none yet), how it is split, and where it stands."""

    limit: Limit
    split: Mapping[str, Fraction]
    loc: tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Everything a project file says, checked; ``accounts`` and ``limits`` come parents first."""

    url: str
    key: Path | None
    anchor: Path | None
    channels: tuple[Channel, ...]
    datasets: Mapping[str, Facts]
    accounts: tuple[Account, ...]
    limits: tuple[Terms, ...]
    jobs: Mapping[str, Request]
    marked: Marked = field(repr=False, compare=False)


def load(path: Path) -> Declared:
    """What the file of that path says; what is relative in it is relative to its folder."""
    return _Builder(load_marked(path), path.resolve().parent).declared()  # through a link too: one file, one book


def read(text: str, name: str, folder: Path = Path()) -> Declared:
    r"""What a text says; ``name`` is how errors call it.

    >>> read("datasets:\n  visits:\n    sorce: a.csv", "dither.yaml")
    Traceback (most recent call last):
    dither.core.errors.InputError: dither.yaml:3:5: The key 'source' is missing here: add it.
    dither.yaml:3:5: Unknown key 'sorce': expected one of ...; did you mean 'source'?
    """
    return _Builder(read_marked(text, name), folder.absolute()).declared()


class _Builder:
    """Makes the house's nouns of a checked shape; every refusal gets its place."""

    def __init__(self, marked: Marked, folder: Path) -> None:
        self.marked, self.folder = marked, folder

    def declared(self) -> Declared:
        """All of it."""
        return Declared(
            url=self.url,
            key=self.beside(self.fields.ledger.key),
            anchor=self.beside(self.fields.ledger.anchor),
            channels=tuple(self.channel(i, c) for i, c in enumerate(self.fields.alerts)),
            datasets=self.datasets,
            accounts=self.accounts,
            limits=self.all_limits(),
            jobs=self.jobs(),
            marked=self.marked,
        )

    @cached_property
    def fields(self) -> ProjectFields:
        """The shape."""
        try:
            return ProjectFields.model_validate(self.marked.value)
        except ValidationError as error:
            raise self.told(error, ProjectFields, ()) from None

    def told(self, error: ValidationError, model: type[Strict], prefix: Loc) -> InputError:
        """The first few things that are wrong, in the order of the file, a line each."""
        found = []
        for loc, key, sentence in sentences(error, model):
            whole = self.real((*prefix, *loc))
            found.append((self.marked.place(whole, key), str(self.marked.refuse(whole, sentence, key=key))))
        told = list(dict.fromkeys(line for _, line in sorted(found)))
        more = [f"(and {len(told) - _ERRORS_MAX} more)"] if len(told) > _ERRORS_MAX else []
        return InputError("\n".join([*told[:_ERRORS_MAX], *more]))

    def real(self, loc: Loc) -> tuple[str | int, ...]:
        """The location in the file as it is written: a job of a list stands at its index."""
        given = self.marked.value.get("jobs") if isinstance(self.marked.value, dict) else None
        if len(loc) > 1 and loc[0] == "jobs" and isinstance(given, list):
            return ("jobs", list(cast("dict[str, object]", named(given))).index(str(loc[1])), *loc[2:])
        return tuple(loc)

    @contextmanager
    def at(self, *loc: str | int, key: str | None = None) -> Iterator[None]:
        """Give what is refused inside its place."""
        try:
            yield
        except InputError as error:
            raise self.marked.refuse(self.real(loc), str(error), key=key) from None

    # -------------------------------------------------------------------------------------------- ledger

    @property
    def url(self) -> str:
        """The book's address; an SQLite file lies beside the project file, wherever the caller stands."""
        url = self.fields.ledger.url
        with self.at("ledger", "url"):
            if not url.startswith("sqlite"):
                return url  # a server's; the ledger says what it takes
            path = url.removeprefix("sqlite:///")
            if path in {url, ""} or any(part in path for part in ("?", ":memory:", "file:")):
                raise InputError(
                    f"url={shown(url)} is not allowed: expected sqlite:///<file>, for a book in memory forgets what was spent, and one "
                    "that is looked for elsewhere begins anew."
                )
            # in an address % and ? have a meaning; in the name of a folder they have none
            return f"sqlite:///{Path(str(self.folder).replace('%', '%25').replace('?', '%3F')) / path}"

    def beside(self, path: str | None) -> Path | None:
        """A path relative to the project file."""
        return None if path is None else self.folder / path

    def channel(self, i: int, given: ChannelFields) -> Channel:
        """Someone to tell."""
        with self.at("alerts", i):
            kinds = [k for k in ("log", "file", "webhook", "command") if getattr(given, k) is not None]
            if len(kinds) != 1:
                raise InputError("An alert goes one way: expected one of log, {file: …}, {webhook: …}, {command: […]}.")
            if given.headers is not None and given.webhook is None:
                raise InputError("Only a webhook has headers: take them out.")
            if given.webhook is not None:
                return Webhook(given.webhook, given.headers or {})
            if given.command is not None:
                return Command(tuple(given.command))
            return Log() if given.file is None else File(self.folder / given.file)

    # -------------------------------------------------------------------------------------------- datasets

    @cached_property
    def datasets(self) -> dict[str, Facts]:
        """All datasets, public ones too."""
        found = {name: self.facts(name, given) for name, given in self.fields.datasets.items()}
        places: dict[str, str | Path] = {}
        for name, facts in found.items():
            places[name] = self.source(name, facts)
            other = next(known for known, place in places.items() if _overlap(place, places[name]))
            if other != name:
                raise self.marked.refuse(
                    ("datasets", name, "source"),
                    f"The datasets {shown(other)} and {shown(name)} have one source, but what is spent on one does not count on the other: "
                    "expected one dataset for each source.",
                )
        return found

    def source(self, name: str, facts: Facts) -> str | Path:
        """Where a dataset is read from, by whatever name: an address, or the true path of a file or folder."""
        if "://" in facts.source or ":///" in facts.source:
            return facts.source
        try:
            return facts.path.resolve()
        except (OSError, RuntimeError):  # RuntimeError: links that lead to each other
            raise self.marked.refuse(
                ("datasets", name, "source"),
                f"The source {shown(facts.source)} cannot be followed to a file: expected one that links do not lead away from.",
            ) from None

    def facts(self, name: str, given: DatasetFields) -> Facts:
        """What is publicly known of one dataset."""
        here = ("datasets", name)
        with self.at(*here, key=None):
            as_name("name", name, limit=200)
            checks.text("source", given.source, limit=4_000)
        columns = tuple(self.column((*here, "columns", n), n, c) for n, c in given.columns.items())
        if given.public:
            for key in ("unit", "neighbors", "trust", "blocks"):
                if getattr(given, key) is not None:
                    raise self.marked.refuse(here, f"A public dataset hides nothing: take out '{key}', or 'public'.", key=key)
            return Facts(name=name, source=given.source, folder=self.folder, columns=columns, key=given.key)
        if given.unit is None:
            raise self.marked.refuse(
                here, "The key 'unit' is missing here: say what is hidden, {row: true} or {key: <column>}; or public: true."
            )
        if given.key is not None:
            raise self.marked.refuse(here, "Only a public dataset has a key of its own: write unit: {key: …}.", key="key")
        unit = self.unit(name, given)
        blocks, disjoint = self.blocks(here, given.blocks)
        with self.at(*here):
            made = Facts(
                name=name,
                source=given.source,
                folder=self.folder,
                unit=unit,
                trust=as_trust(given.trust or "central"),
                blocks=blocks,
                disjoint=disjoint,
                through=given.unit.through,
                columns=columns,
            )
            _ = made.terms
        return made

    def unit(self, name: str, given: DatasetFields) -> PrivacyUnit:
        """What is hidden."""
        unit = cast("UnitFields", given.unit)
        with self.at("datasets", name, "unit"):
            if (unit.row is None) == (unit.key is None):
                raise InputError("A unit is a row or a key: expected {row: true} or {key: <column>}.")
            if unit.through is not None and unit.key is None:
                raise InputError("Only a key is found through another table: expected {key: …, through: table.column}.")
            return PrivacyUnit(dataset=name, key=unit.key, neighbors=as_neighbors(given.neighbors or "add_remove"))

    def blocks(self, here: Loc, given: BlocksFields | None) -> tuple[Blocks | None, bool | None]:
        """How the dataset is divided."""
        if given is None:
            return None, None
        with self.at(*here, "blocks"):
            every = None if given.every is None else Every(given.every)
            made = Blocks(column=given.column, every=every, partitions=tuple(given.partitions or ()), start=given.start)
        return made, given.disjoint

    def column(self, here: Loc, name: str, given: ColumnFields) -> Column:
        """What is publicly known of one column."""
        with self.at(*here):
            as_name("column", name, limit=200)
            if given.type not in ("int", "float") and (given.min is not None or given.max is not None):
                raise InputError(f"A column of type {given.type} has no min and max: expected type int or float.")
            if given.min is not None and given.max is not None and not given.min <= given.max:
                raise checks.refuse("min", given.min, f"a number not above max={given.max!r}")
        values = []
        for i, value in enumerate(given.values or ()):
            with self.at(*here, "values", i):
                if given.type in ("date", "timestamp"):
                    raise InputError(f"A column of type {given.type} has no list of values: leave it out.")
                values.append(typed(given.type, value))
        if len(set(values)) != len(values):
            raise self.marked.refuse((*here, "values"), "A value is there twice: name each value once.")
        return Column(name=name, type=given.type, min=given.min, max=given.max, values=tuple(values))

    def dataset(self, here: Loc, given: str | None) -> Facts:
        """The protected dataset of that name; the only one there is, where none is named."""
        known = [name for name, facts in self.datasets.items() if facts.unit is not None]
        if given is None and len(known) == 1:
            return self.datasets[known[0]]
        if given is None:
            raise self.marked.refuse(here, f"The key 'dataset' is missing here: expected one of {', '.join(sorted(known)) or '(none)'}.")
        with self.at(*here, "dataset"):
            if given in self.datasets and given not in known:
                raise InputError(f"The dataset {shown(given)} is public: it has no budget and is not measured with noise.")
            if given not in known:
                raise UnknownNameError("dataset", given, known or ["(none)"])
            return self.datasets[given]

    # -------------------------------------------------------------------------------------------- accounts

    @cached_property
    def accounts(self) -> tuple[Account, ...]:
        """Every account that is named, those above it, and the parts of splits; parents first."""
        found: set[Account] = set()
        for name, limits in self.fields.accounts.items():
            with self.at("accounts", key=name):
                own = as_account(name)
                found.update(lineage(own))
            for i, limit in enumerate(limits):
                with self.at("accounts", name, i, "split"):
                    found.update((*own, part(child)) for child in limit.split or {})
        return tuple(sorted(found))

    def all_limits(self) -> tuple[Terms, ...]:
        """Every limit, parents first."""
        found = sorted(self.limits(), key=lambda terms: terms.limit.account)
        self._check_splits(found)
        return tuple(found)

    def limits(self) -> Iterator[Terms]:
        """Every limit that is stated; splits stay with theirs."""
        _ = self.accounts
        for name, given in self.fields.accounts.items():
            seen = set()
            for i, limit in enumerate(given):
                here = ("accounts", name, i)
                if limit.model_fields_set:
                    made = self.limit(here, as_account(name), limit)
                    what = made.limit.dataset, made.limit.per
                    if what in seen:
                        raise self.marked.refuse(here, f"This account has two limits on {shown(what[0])}: expected one.")
                    seen.add(what)
                    yield made

    def _check_splits(self, limits: Sequence[Terms]) -> None:
        """A split divides all limits of its account on its dataset, and its parts have no other limit there: nothing is written first."""
        stated = {(terms.limit.account, terms.limit.dataset) for terms in limits}
        split: dict[tuple[Account, str], Mapping[str, Fraction]] = {}
        for terms in limits:
            account, dataset, here = terms.limit.account, terms.limit.dataset, (*terms.loc, "split")
            if terms.split and split.setdefault((account, dataset), terms.split) != terms.split:
                raise self.marked.refuse(
                    here,
                    f"The limits of {shown('/'.join(account))} on {shown(dataset)} are split in two ways: a split divides them all, "
                    "so name it once.",
                )
            for child in terms.split:
                if ((*account, child), dataset) in stated:
                    raise self.marked.refuse(
                        here,
                        f"The account {shown('/'.join((*account, child)))} has a limit on {shown(dataset)} of its own: take it out there, "
                        "or out of this split.",
                        key=child,
                    )

    def limit(self, here: tuple[str | int, ...], account: Account, given: LimitFields) -> Terms:
        """One limit."""
        facts = self.dataset(here, given.dataset)
        if given.epsilon is None:
            raise self.marked.refuse(here, "The key 'epsilon' is missing here: a limit needs one.")
        if given.per == "block" and facts.blocks is None:
            raise self.marked.refuse(here, f"The dataset {shown(facts.name)} has no blocks: divide it, or leave 'per' out.", key="per")
        with self.at(*here, "epsilon"):
            checks.epsilon(given.epsilon, zero=False)
        with self.at(*here, "delta"):
            checks.delta(given.delta)
        with self.at(*here):
            spec = FilterSpec.of(given.epsilon, given.delta, kind=given.filter, side_delta=given.side_delta, orders=given.orders)
        split = {}
        for child, share in (given.split or {}).items():
            with self.at(*here, "split", child):
                split[child] = _fraction(share)
        if sum(split.values()) > 1:
            raise self.marked.refuse((*here, "split"), "The shares add up to more than 1: expected at most 100 %.")
        starts, ends = (self.moment(here, key, getattr(given, key)) for key in ("starts", "ends"))
        with self.at(*here, "alert_at"):
            alert_at = tuple(exact("alert_at", a) for a in (ALERT_AT if given.alert_at is None else given.alert_at))
            Limit(id="L1", account=account, dataset=facts.name, filter=spec, per=Per.DATASET, alert_at=alert_at)
        with self.at(*here, "ends"):
            made = Limit(
                id="L1",
                account=account,
                dataset=facts.name,
                filter=spec,
                per=Per(given.per),
                starts=starts,
                ends=ends,
                alert_at=alert_at,
            )
        return Terms(limit=made, split=split, loc=here)

    def moment(self, here: Loc, key: str, given: str | None) -> datetime | None:
        """When a limit starts or ends."""
        with self.at(*here, key):
            return _moment(key, given)

    # -------------------------------------------------------------------------------------------- jobs

    def jobs(self) -> dict[str, Request]:
        """Every job as a request."""
        found = {name: self.job(name, given) for name, given in self.fields.jobs.items()}
        first: dict[str | None, str] = {}
        for name, request in found.items():
            other = first.setdefault(request.id, name)
            if request.id is not None and other != name:
                raise self.marked.refuse(
                    self.real(("jobs", name, "id")),
                    f"Two jobs have the id {shown(request.id)}, {shown(other)} and {shown(name)}: give each its own, for under one id one "
                    "answer is kept.",
                )
        return found

    def job(self, name: str, given: JobFields) -> Request:
        """One job; the fields of an engine that comes with dither are checked now."""
        here = ("jobs", name)
        facts = self.dataset(self.real(here), given.dataset)
        with self.at(*here, "engine"):
            if given.engine not in engines.engine_names():
                raise UnknownNameError("engine", given.engine, engines.engine_names())
        with self.at(*here, "account"):
            if as_account(given.account) not in self.accounts:
                raise UnknownNameError("account", given.account, ["/".join(a) for a in self.accounts] or ["(none)"])
        with self.at(*here, "purpose"):
            checks.text("purpose", given.purpose, limit=engines.PURPOSE_MAX)
        blocks = self.chosen(here, facts, given.blocks)
        fields = getattr(engines.engine(given.engine), "Fields", None) if engines.early(given.engine) else None
        if fields is not None:
            try:
                fields.model_validate(given.options)
            except ValidationError as error:
                raise self.told(error, fields, (*here, "options")) from None
        with self.at(*here):
            return Request.of(
                given.engine,
                dataset=facts.name,
                account=given.account,
                purpose=given.purpose,
                blocks=blocks,
                options=given.options,
                id=given.id,
                name=name,
            )

    def chosen(self, here: Loc, facts: Facts, given: object) -> tuple[str, ...]:
        """The blocks that a job names."""
        span = None
        if isinstance(given, dict):
            try:
                span = SpanFields.model_validate(given)
            except ValidationError as error:
                raise self.told(error, SpanFields, (*here, "blocks")) from None
        with self.at(*here, "blocks"):
            if facts.blocks is None:
                if given is not None:
                    raise InputError(f"The dataset {shown(facts.name)} has no blocks: take 'blocks' out.")
                return ()
            if span is not None:
                return facts.blocks.names(span.first, span.last)
            found = tuple(facts.blocks.check(as_text(block)) for block in cast("list[object]", single(given)))
            if not found:
                raise InputError(f"The dataset {shown(facts.name)} is divided into blocks: name at least one to read with 'blocks'.")
            return found


# ------------------------------------------------------------------------------------------------ values


def _overlap(one: str | Path, other: str | Path) -> bool:
    """Whether two sources may hold the same rows: they are one, or one is a folder that the other lies in."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return one == other or one in other.parents or other in one.parents


def _fraction(share: object) -> Fraction:
    """A share: 0.6, "60 %" or "3/5"."""
    expected = "a share > 0 and at most 1, such as 0.6, 60 % or 3/5"
    percent = _PERCENT.fullmatch(share) if isinstance(share, str) else None
    ratio = _RATIO.fullmatch(share) if isinstance(share, str) else None
    if percent:
        found = Fraction(percent[1]) / 100
    elif ratio:
        found = Fraction(int(ratio[1]), int(ratio[2]))
    else:
        found = exact("share", share, expected)
    if not 0 < found <= 1:
        raise checks.refuse("share", share, expected)
    return found


def _moment(key: str, given: str | None) -> datetime | None:
    """A date is its first moment, UTC; a time needs a zone, or it would mean another moment elsewhere."""
    if given is None:
        return None
    expected = "a date such as 2026-11-19, or a time with its zone such as 2026-11-19T06:00:00Z"
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", given):
            return datetime.combine(date.fromisoformat(given), time(), UTC)
        found = datetime.fromisoformat(given)
    except ValueError:
        raise checks.refuse(key, given, expected) from None
    if found.utcoffset() is None:
        raise checks.refuse(key, given, expected)
    return found
