"""The SQL engine on the one path: a project's facts become a catalog, a request a planned question, an answer a release.

The text is understood, and refused, from public facts alone; rows are read in ``run``. Sources stay open between questions, so that
what one question counted is there for the next (``query.duck``).

>>> from dither.core.units import PrivacyUnit
>>> from dither.gate.engines import Column, Facts, Request
>>> visits = Facts(name="visits", source="visits.csv", unit=PrivacyUnit(dataset="visits"), columns=(Column(name="age", type="int"),))
>>> options = {"sql": "SELECT COUNT(*) AS n FROM visits WHERE age >= 18", "epsilon": 0.5}
>>> request = Request.of("sql", dataset="visits", account="clinic", purpose="report", options=options)
>>> plan(request, visits).event
ApproxDp(epsilon=0.5, delta=0.0)
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import Field, ValidationError

from dither.core.encoding import digest
from dither.core.errors import InputError, MissingExtraError, shown
from dither.core.events import Event
from dither.core.plans import Release
from dither.core.rng import Rng
from dither.core.units import Guarantee, Neighbors, PrivacyUnit, Trust
from dither.gate.engines import Facts, Request
from dither.gate.wording import Strict, sentences
from dither.ledger.terms import unit_to_dict
from dither.query.answer import QueryPlan, answer, plan_question
from dither.query.duck import Source, open_source
from dither.query.expr import Expr, call, col, lit
from dither.query.facts import Catalog, Column, Table, Value
from dither.query.question import Filter, Question, Rows, Scan
from dither.query.result import Answer

if TYPE_CHECKING:
    from dither.query.bind import Asked

OPEN_MAX: Final = 4
_FORMAT: Final = 1


class Fields(Strict):
    """What may be asked of this engine."""

    sql: str = Field(description="One SELECT over the dataset, with public tables joined as needed.")
    epsilon: float | None = Field(None, description="What the whole answer may cost; or say it in the query's own OPTIONS.")
    delta: float | None = Field(None, description="Above 0 where keys of groups are private, or for Gaussian noise.")
    rows_per_unit: int | None = Field(None, description="At most so many rows of each unit count; without it a look is paid for.")
    groups_per_unit: int | None = Field(None, description="At most so many groups of each unit count.")
    rows_per_group: int | None = Field(None, description="At most so many rows of each unit count in one group.")


# ------------------------------------------------------------------------------------------------ plan


@dataclass(frozen=True, kw_only=True)
class SqlPlan:
    """A planned question about a dataset of a project, and the blocks that it may read."""

    facts: Facts
    sql: str
    blocks: tuple[str, ...]
    inner: QueryPlan

    @property
    def event(self) -> Event:
        """The most that the answer costs."""
        return self.inner.event

    @property
    def unit(self) -> PrivacyUnit:
        """What is hidden."""
        assert self.facts.unit is not None
        return self.facts.unit

    @cached_property
    def digest(self) -> str:
        """Of the question, its price, the blocks, and where the rows are."""
        facts = self.facts
        divided = None if facts.blocks is None else [facts.blocks.column, facts.blocks.every, facts.disjoint]
        sources = [[f.name, f.source] for f in (facts, *facts.beside)]
        return digest(
            {
                "engine": "sql",
                "format": _FORMAT,
                "sources": sources,
                "unit": unit_to_dict(self.unit),
                "blocks": [divided, list(self.blocks)],
                "plan": self.inner.digest,
            }
        )

    def explain(self) -> str:
        """Plain words."""
        blocks = f" Only rows of the blocks {', '.join(self.blocks[:6])}{' …' if len(self.blocks) > 6 else ''}." if self.blocks else ""
        return f"{self.inner.explain()}{blocks} It hides {self.unit}."


def plan(request: Request, dataset: Facts) -> SqlPlan:
    """What would run, from public facts only."""
    if dataset.unit is None:
        raise InputError(f"The dataset {shown(dataset.name)} is public: there is nothing to hide, so no budget is kept of it.")
    if dataset.trust is not Trust.CENTRAL:
        raise InputError(f"trust='{dataset.trust}' is not allowed: SQL sees the rows themselves, so expected central.")
    if dataset.through is not None:
        raise InputError(
            f"The unit of {shown(dataset.name)} is found through another table, which a project does not join: put the key itself into the "
            "dataset."
        )
    key = dataset.unit.key
    if key is not None and _table(dataset).column(key).type in {"float", "timestamp"}:  # 2^53 and 2^53 + 1 are one float, and two people
        raise InputError(f"The key {shown(key)} is declared in a type that takes two people for one: declare it as text or int.")
    try:
        given = Fields.model_validate(request.fields)
    except ValidationError as error:
        raise InputError(next(sentence for _, _, sentence in sentences(error, Fields))) from None
    asked = _asked(given.sql, catalog(dataset))
    if asked.question.unit.dataset != dataset.name:
        raise InputError(
            f"The query is about dataset {shown(asked.question.unit.dataset)}: expected {shown(dataset.name)}, as the request says."
        )
    blocks = _blocks(request, dataset)
    question = replace(asked.question, rows=_within(asked.question.rows, dataset, blocks)) if blocks else asked.question
    epsilon = _one("epsilon", given.epsilon, asked.options.epsilon)
    if epsilon is None:
        raise InputError("The query has no price: give an epsilon, such as 0.5, with the request or in the query's OPTIONS.")
    delta = _one("delta", given.delta, asked.options.delta) or 0.0
    private = [g.name for g in question.groups if g.keys is None]
    if private and not delta:
        name = shown(private[0])[1:-1]
        raise InputError(
            f"GROUP BY {name} needs a delta: its keys are private, and which of them may be shown is decided with chance delta to fail. "
            f"Give one such as delta = 1e-6, or declare the values of {name} if they are public."
        )
    inner = plan_question(
        _planned(question, dataset, blocks),
        epsilon=epsilon,
        delta=delta,
        rows_max=given.rows_per_unit,
        groups_max=_one("groups_per_unit", given.groups_per_unit, asked.options.max_groups_contributed),
        rows_per_group_max=_one("rows_per_group", given.rows_per_group, asked.options.max_rows_per_group),
    )
    return SqlPlan(facts=dataset, sql=given.sql, blocks=blocks, inner=inner)


def _asked(sql: str, tables: Catalog) -> Asked:
    try:
        from dither.query.bind import ask  # noqa: PLC0415 - needs an extra, which other engines do without
    except ImportError:
        raise MissingExtraError("SQL", "sql") from None
    return ask(sql, tables)


def _one(name: str, given: Any, told: Any) -> Any:  # noqa: ANN401 - two numbers of one kind, or None
    """What the request says, or the query's own clause; they may not contradict each other."""
    if given is not None and told is not None and given != told:
        raise InputError(f"{name}={given!r} is not what the query's OPTIONS say, {told!r}: expected one of the two, or the same.")
    return told if given is None else given


def _planned(question: Question, dataset: Facts, blocks: tuple[str, ...]) -> Question:
    """The question with the neighbours that noise must cover.

    Where a unit has rows in several blocks and several are read, a limit for each block promises to hide its rows in *one*. Without
    these the unit is scaled by another factor, so all that is left of it moves too: by as much as if it were replaced.
    """
    if len(blocks) > 1 and not dataset.terms.disjoint:
        return replace(question, unit=replace(question.unit, neighbors=Neighbors.REPLACE))
    return question


def catalog(dataset: Facts) -> Catalog:
    """The tables that a query may name: the dataset, and the public ones beside it."""
    return Catalog.of(_table(dataset), *(_table(f) for f in dataset.beside if f.unit is None))


def _table(facts: Facts) -> Table:
    columns = [_column(c) for c in facts.columns]
    known = {c.name.casefold() for c in columns}
    needed = (facts.unit.key if facts.unit is not None else None, facts.key)
    columns += [Column(name=name, type="text") for name in needed if name is not None and name.casefold() not in known]
    divided = facts.blocks
    if divided is not None and divided.column.casefold() not in {c.name.casefold() for c in columns}:
        columns.append(Column(name=divided.column, type="text" if divided.every is None else "timestamp"))
    return Table(name=facts.name, columns=tuple(columns), unit=facts.unit, key=facts.key)


def _column(column: Any) -> Column:  # noqa: ANN401 - a Column of the gate
    values = tuple(_value(column.type, v) for v in column.values) if column.values else None
    return Column(name=column.name, type=column.type, low=column.min, high=column.max, values=values)


def _value(kind: str, value: Any) -> Value:  # noqa: ANN401 - as YAML writes it
    if kind == "date":
        return date.fromisoformat(str(value)[:10])
    if kind == "timestamp":
        found = datetime.fromisoformat(str(value))
        return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo is not None else found
    return float(value) if kind == "float" else value


# ------------------------------------------------------------------------------------------------ blocks


def _blocks(request: Request, dataset: Facts) -> tuple[str, ...]:
    if dataset.blocks is None:
        if request.blocks:
            raise InputError(f"The dataset {shown(dataset.name)} is not divided into blocks: take 'blocks' out of the request.")
        return ()
    if not request.blocks:
        raise InputError(f"The dataset {shown(dataset.name)} is divided by {dataset.blocks.column}: name the blocks that the query reads.")
    return tuple(dataset.blocks.check(block) for block in request.blocks)


def _within(rows: Rows, dataset: Facts, blocks: Iterable[str]) -> Rows:
    """The rows of the dataset that lie in one of the blocks: the condition stands right above the table, below everything else."""
    if isinstance(rows, Scan):
        return Filter(rows=rows, condition=_inside(rows, dataset, tuple(blocks))) if rows.table.name == dataset.name else rows
    return replace(rows, rows=_within(rows.rows, dataset, blocks))


def _inside(scan: Scan, dataset: Facts, blocks: tuple[str, ...]) -> Expr:
    assert dataset.blocks is not None
    column = scan.table.column(dataset.blocks.column)
    here = col(column.name, column.type, column.low, column.high, column.values)
    if dataset.blocks.every is None:
        return call("in", here, *(lit(_value(column.type, block)) for block in blocks))
    made: Expr | None = None
    for start, end in _spans(dataset, blocks):
        if column.type == "date":
            one = call("and", call("ge", here, lit(start.date())), call("lt", here, lit(end.date())))
        else:
            one = call("and", call("ge", here, lit(start)), call("lt", here, lit(end)))
        made = one if made is None else call("or", made, one)
    assert made is not None
    return made


def _spans(dataset: Facts, blocks: tuple[str, ...]) -> list[tuple[datetime, datetime]]:
    """Spans of time in UTC, without zone, as the query room counts time; neighbours in time made one."""
    assert dataset.blocks is not None
    found: list[tuple[datetime, datetime]] = []
    for start, end in sorted(tuple(at.replace(tzinfo=None) for at in dataset.blocks.span(block)) for block in blocks):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found


# ------------------------------------------------------------------------------------------------ open, run

_OPEN: OrderedDict[tuple[object, ...], Source] = OrderedDict()
_LOCK = threading.Lock()


def open(dataset: Facts) -> Source:  # noqa: A001 - the name that engines have
    """The dataset and the public tables beside it, opened; no row is read. What an earlier question opened is used again."""
    tables = [(_table(f), _place(f)) for f in (dataset, *(f for f in dataset.beside if f.unit is None))]
    if any(isinstance(f, InMemory) for f in (dataset, *dataset.beside)):
        return open_source(*tables)  # of a frame nobody can tell whether it is still the same
    key = tuple((table, str(place)) for table, place in tables)
    with _LOCK:
        found = _OPEN.pop(key, None)
        if found is None:
            try:
                found = open_source(*tables)
            except ImportError:
                raise MissingExtraError("SQL", "sql") from None
        _OPEN[key] = found
        while len(_OPEN) > OPEN_MAX:
            _OPEN.popitem(last=False)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemory(Facts):
    """A dataset that is a frame of the caller's, not a file: never a project's."""

    frame: Any = field(default=None, compare=False, repr=False)


def _place(facts: Facts) -> object:
    if isinstance(facts, InMemory):
        return facts.frame
    if not facts.source.startswith("duckdb:///"):
        return str(facts.path)
    file, _, table = facts.source.removeprefix("duckdb:///").partition("#")
    return f"duckdb:///{facts.folder / file}#{table}"


def run(plan: SqlPlan, data: Source, rng: Rng) -> Release[Any]:
    """The release: a table as ``query.result.Answer`` writes it, with an interval for every number."""
    made = answer(plan.inner, data, rng)
    return Release(value=made.plain(), event=plan.event, unit=plan.unit, plan_digest=plan.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRelease(Release[Any]):
    """A release whose value is a table."""

    @classmethod
    def of(cls, release: Release[Any]) -> Self:
        """What the path gave, as a table."""
        return cls(**{f.name: getattr(release, f.name) for f in fields(Release)})

    @property
    def table(self) -> Answer:
        """The table: names, values, intervals, the share lost to bounding."""
        return Answer.from_plain(self.value)

    @property
    def guarantee(self) -> Guarantee:
        """What the answer cost, whom it hides, and who was trusted with the rows."""
        epsilon, delta = self.table.price or (math.inf, 1.0)
        return Guarantee(epsilon, delta, self.unit)

    def to_arrow(self) -> Any:  # noqa: ANN401 - pyarrow is an extra
        """An Arrow table; intervals are columns of their own."""
        return self.table.to_arrow()

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is imported on first use
        """A pandas frame."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:  # noqa: ANN401 - polars is imported on first use
        """A Polars frame."""
        return self.table.to_polars()

    def __str__(self) -> str:
        return str(self.table)


def dataset_of(sql: str, datasets: Iterable[Facts]) -> str:
    """Which dataset a query is about."""
    known = [f for f in datasets if f.through is None]
    return _asked(sql, Catalog.of(*map(_table, known))).question.unit.dataset
