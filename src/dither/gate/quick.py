"""One question about files or frames, without a project: ``dither.sql``. It takes the one path, on a ledger of its own in memory.

Nothing is kept: what several such questions tell adds up, and nobody counts it. A project keeps the book.

Only schemas are read beforehand: the names and types of columns, never a value. Ranges are therefore not known, and stand in the query
(CLAMP, LEAST, GREATEST) or in ``columns``; the keys of groups are private unless they are declared there or listed in the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError, shown
from dither.core.units import Neighbors, PrivacyUnit
from dither.core.units import neighbors as as_neighbors
from dither.gate import path
from dither.gate.ask import InMemory, SqlPlan, SqlRelease, dataset_of
from dither.gate.engines import TYPES, Column, Facts, Request, Type
from dither.ledger.book import Ledger
from dither.query.source import Engine, Place, place_of

ACCOUNT: Final = ("you",)
PURPOSE: Final = "one question"
_WHOLE: Final = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "UHUGEINT"}
_PHYSICAL: Final[Mapping[str, Type]] = {
    **dict.fromkeys(_WHOLE, "int"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "float"),
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID"), "text"),
    "BOOLEAN": "bool",
    "DATE": "date",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"), "timestamp"),
}
_FACTS: Final = ("type", "min", "max", "values")


@dataclass(frozen=True, slots=True)
class Question:
    """A question about named tables, understood but not asked yet."""

    request: Request
    facts: Facts

    def plan(self) -> SqlPlan:
        """What would run and cost, for free: no row is read."""
        made = path.preview(self.request, self.facts)
        assert isinstance(made, SqlPlan)
        return made

    def run(self) -> SqlRelease:
        """The answer, paid from a limit that is just as high as its price."""
        inner = self.plan().inner
        kind = "approx" if inner.delta else "pure"
        with Ledger.open("sqlite://") as ledger:
            ledger.add_dataset(self.facts.terms)
            ledger.grant(ACCOUNT, self.facts.name, epsilon=inner.epsilon, delta=inner.delta, kind=kind)
            return SqlRelease.of(path.execute(ledger, self.request, self.facts))


def sql(  # noqa: PLR0913 - each is named, most have a default
    sql: str,
    *,
    data: Mapping[str, object],
    unit: str | None,
    epsilon: float | None = None,
    delta: float | None = None,
    public: Mapping[str, object] | None = None,
    columns: Mapping[str, object] | None = None,
    neighbors: str = "add_remove",
    bounds: Mapping[str, int] | None = None,
) -> SqlRelease:
    """The answer to one SELECT over files or frames, each number with how far it may be off.

    ``data`` names the private tables: a path, ``duckdb:///FILE#TABLE``, or a pandas, Polars or Arrow frame. ``unit`` is the column that
    says whose a row is; None says that each row is of another person. ``public`` names tables with nobody to protect, as ``"cities"``,
    or ``"cities.city"`` where that column is unique and may be joined on. ``columns`` holds public facts, such as
    ``{"age": {"type": "int", "min": 0, "max": 120}}``. Nothing is kept: the next call starts anew, and what they cost adds up.

    >>> import pyarrow
    >>> visits = pyarrow.table({"person": [1, 1, 2], "minutes": [5.0, 7.5, 30.0]})
    >>> asked = "SELECT COUNT(*) AS n, AVG(CLAMP(minutes, 0, 60)) AS stay FROM visits"
    >>> release = sql(asked, data={"visits": visits}, unit="person", epsilon=2)
    >>> release.table.names, len(release.table), str(release.guarantee)
    (('n', 'stay'), 1, 'ε = 2 at δ = 0, hiding one person of visits (present or absent), central trust')
    """
    return question(
        sql, data=data, unit=unit, epsilon=epsilon, delta=delta, public=public, columns=columns, neighbors=neighbors, bounds=bounds
    ).run()


def question(  # noqa: PLR0913 - as above
    sql: str,
    *,
    data: Mapping[str, object],
    unit: str | None,
    epsilon: float | None = None,
    delta: float | None = None,
    public: Mapping[str, object] | None = None,
    columns: Mapping[str, object] | None = None,
    neighbors: str = "add_remove",
    bounds: Mapping[str, int] | None = None,
) -> Question:
    """The question that ``sql`` would ask; schemas are read, no row is."""
    checks.text("sql", sql, limit=1_000_000)
    related = as_neighbors(neighbors)
    epsilon = None if epsilon is None else checks.epsilon(epsilon, zero=False)
    delta = None if delta is None else checks.delta(delta)
    private, beside = _named("data", data), _named("public", public or {})
    if not private:
        raise InputError("data is empty: expected a table, such as data={'events': 'events.parquet'}.")
    places = {name: place_of(where) for name, where in private.items()}
    keys = dict(_keyed(name) for name in beside)
    for name, where in beside.items():
        table = _keyed(name)[0]
        if table in places:
            raise InputError(f"The table {shown(table)} is named twice: expected each once, in data or in public.")
        places[table] = place_of(where)
    known = dict(columns or {})
    schemas = _schemas(places)
    facts = [_facts(name, places[name], schemas[name], known, unit=_unit(name, unit, schemas[name], related)) for name in private]
    others = tuple(_facts(name, places[name], schemas[name], known, key=_key(name, key, schemas[name])) for name, key in keys.items())
    told = {c.casefold() for schema in schemas.values() for c in schema}
    for name in known:
        if str(name).casefold() not in told:
            raise UnknownNameError("column", name, sorted({c for schema in schemas.values() for c in schema}))
    dataset = dataset_of(sql, [*facts, *others])
    mine = replace(next(f for f in facts if f.name == dataset), beside=others)
    options = {"sql": sql, "epsilon": epsilon, "delta": delta, **dict(bounds or {})}
    asked = {key: value for key, value in options.items() if value is not None}
    return Question(Request.of("sql", dataset=dataset, account=ACCOUNT, purpose=PURPOSE, options=asked), mine)


# ------------------------------------------------------------------------------------------------ what is publicly known


def _named(what: str, given: object) -> dict[str, object]:
    if not isinstance(given, Mapping):
        raise checks.refuse(what, given, "a map from names to paths or frames, such as {'events': 'events.parquet'}")
    for name in given:
        checks.text(f"name in {what}", name, limit=200)
    return dict(given)


def _keyed(name: str) -> tuple[str, str | None]:
    """``cities.city``: a public table and its unique column."""
    table, dot, key = name.partition(".")
    return table, key if dot else None


def _schemas(places: Mapping[str, Place]) -> dict[str, dict[str, str]]:
    """The names and physical types of columns, by table: what DESCRIBE tells."""
    engine = Engine(places, memory_limit=None, temp_directory=None, threads=1)
    try:
        return {name: dict(relation.columns) for name, relation in engine.relations.items()}
    finally:
        engine.close()


def _unit(name: str, unit: object, schema: Mapping[str, str], related: Neighbors) -> PrivacyUnit:
    if unit is None:
        return PrivacyUnit(dataset=name, neighbors=related)
    checks.text("unit", unit, limit=200)
    return PrivacyUnit(dataset=name, key=_column_of(name, unit, schema, "Say whose its rows are, or name it in public"), neighbors=related)


def _key(name: str, key: str | None, schema: Mapping[str, str]) -> str | None:
    return None if key is None else _column_of(name, key, schema, "Name the column that is unique in it")


def _column_of(table: str, name: object, schema: Mapping[str, str], advice: str) -> str:
    for known in schema:
        if known.casefold() == str(name).casefold():
            return known
    raise InputError(f"The table {shown(table)} has no column {shown(name)}: expected one of {', '.join(sorted(schema))}. {advice}.")


def _facts(
    name: str,
    place: Place,
    schema: Mapping[str, str],
    known: Mapping[str, object],
    *,
    unit: PrivacyUnit | None = None,
    key: str | None = None,
) -> Facts:
    declared = {str(column).casefold(): fact for column, fact in known.items()}
    columns = []
    for column, physical in schema.items():
        made = _column(column, physical, declared.get(column.casefold()))
        if made is not None:
            columns.append(made)
    given: dict[str, Any] = {"name": name, "unit": unit, "key": key, "columns": tuple(columns)}
    if place.kind == "frame":
        return InMemory(source="a frame", frame=place.frame, **given)
    source = f"duckdb:///{place.where}#{place.table}" if place.kind == "duckdb" else str(Path(place.where).absolute())
    return Facts(source=source, folder=Path("/"), **given)


def _column(name: str, physical: str, fact: object) -> Column | None:
    """A column as it is declared, else of the type that its schema gives; None for a type that no query can use."""
    if isinstance(fact, Column):
        return replace(fact, name=name)
    kind = _PHYSICAL.get(physical.partition("(")[0].strip())
    if fact is None:
        return None if kind is None else Column(name=name, type=kind)
    if not isinstance(fact, Mapping):
        raise checks.refuse(f"columns[{name!r}]", fact, "a map, such as {'type': 'int', 'min': 0, 'max': 120}")
    for word in fact:
        if word not in _FACTS:
            raise UnknownNameError(f"fact of column {name}", word, _FACTS)
    wanted = fact.get("type", kind)
    if wanted not in TYPES:
        raise UnknownNameError("type of column", wanted, TYPES)
    values = fact.get("values") or ()
    if isinstance(values, str) or not isinstance(values, list | tuple):
        raise checks.refuse(f"values of {name}", values, "a list of public values")
    return Column(name=name, type=wanted, min=fact.get("min"), max=fact.get("max"), values=tuple(values))
