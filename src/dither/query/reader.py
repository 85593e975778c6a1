# ruff: noqa: S608 - this file writes SQL, from names that are quoted and expressions that are compiled
"""``Rows`` as one SELECT of DuckDB: who a row belongs to, its columns as values of their types, what sub-queries and joins make of it.

No column is called by its own name: two may differ in case alone, which DuckDB takes for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dither.core.errors import InputError, UnknownNameError, shown
from dither.core.units import PrivacyUnit
from dither.query import compile as written
from dither.query.expr import Expr, lit
from dither.query.facts import Column, Table, Value
from dither.query.question import Extend, Filter, JoinPublic, PerUnit, PerUnitKind, Rows, Scan
from dither.query.source import Engine, Relation, quoted, text

UNIT: Final = "u"
_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"})
_PLAIN: Final = _WHOLE | {
    *("UHUGEINT", "DECIMAL", "BOOLEAN", "DATE", "TIME", "UUID", "BLOB"),
    *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
}


@dataclass(frozen=True, slots=True)
class View:
    """Rows as a SELECT: what each column is called in it, and whether ``u``, the unit, is there."""

    sql: str
    names: Mapping[str, str]
    unit: bool

    def of(self, expr: Expr) -> str:
        """An expression over the rows."""
        return written.sql(expr, "duckdb", lambda column: self.names[column])


@dataclass(frozen=True, slots=True)
class Reader:
    """Writes rows as SQL for an engine whose tables are known."""

    engine: Engine
    tables: Mapping[str, Table]
    unit: PrivacyUnit

    def rows(self, rows: Rows) -> View:
        """What ``Rows`` are, as SQL."""
        match rows:
            case Scan(table=table):
                return self._scan(table)
            case Filter(rows=inner, condition=condition):
                view = self.rows(inner)
                return View(f"SELECT * FROM ({view.sql}) WHERE {view.of(condition)}", view.names, view.unit)
            case Extend(rows=inner, columns=columns):
                view = self.rows(inner)
                names = _more(view.names, (name for name, _ in columns))
                made = ", ".join(f"{view.of(expr)} AS {names[name]}" for name, expr in columns)
                return View(f"SELECT *, {made} FROM ({view.sql})" if columns else view.sql, names, view.unit)
            case JoinPublic():
                return self._join(rows)
            case PerUnit():
                return self._per_unit(rows)

    def relation(self, table: Table) -> Relation:
        """Where a table is in the engine."""
        found = self.engine.relations.get(table.name.casefold())
        if found is None:
            raise UnknownNameError("table of the source", table.name, self.engine.relations or ["(no tables)"])
        return found

    def _scan(self, table: Table) -> View:
        names = {c.name: f"c{n}" for n, c in enumerate(table.columns)}
        source = self.relation(table).sql
        if table.unit is None or self.unit.key is None:
            return View(self._columns(table, names, source, ""), names, unit=False)
        if table.through is None:
            key = self._unit(table, table.column(self.unit.key))
            return View(self._columns(table, names, f"(SELECT {key} AS {UNIT}, * FROM {source})", UNIT), names, unit=True)
        link = self._identity(table, table.column(table.through.column))
        owned = f"(SELECT {link} AS {UNIT}_link, * FROM {source}) JOIN ({self._owners(table)}) ON {UNIT}_link = {UNIT}_key"
        return View(self._columns(table, names, owned, UNIT), names, unit=True)

    def _columns(self, table: Table, names: Mapping[str, str], source: str, unit: str) -> str:
        """The columns of a table as values of their declared types, within their ranges and among their values."""
        read, held = [], []
        for c in table.columns:
            raw, physical = self.relation(table).raw(table, c)
            told = written.read(raw, c.type, "duckdb", low=c.low, high=c.high, physical=physical)
            read.append(f"{told} AS {names[c.name]}")
            held.append(f"{_among(c, names[c.name])} AS {names[c.name]}")
        first = [unit] if unit else []
        return f"SELECT {', '.join([*first, *held]) or '1'} FROM (SELECT {', '.join([*first, *read]) or '1'} FROM {source})"

    def _owners(self, table: Table) -> str:
        """Each key of the table that a foreign key points to, with the one unit that it leads to.

        Where two units claim one key, the least has it: which rows a unit has is then clear, and taking a unit away with its rows
        changes no other's.
        """
        assert table.through is not None
        owner = self.tables.get(table.through.table.casefold())
        if owner is None:
            raise UnknownNameError("table of the source", table.through.table, [t.name for t in self.tables.values()])
        key = self._identity(owner, owner.column(table.through.key))
        if owner.through is None:
            assert self.unit.key is not None
            unit = self._unit(owner, owner.column(self.unit.key))
            found = f"SELECT {key} AS k, {unit} AS o FROM {self.relation(owner).sql}"
        else:
            link = self._identity(owner, owner.column(owner.through.column))
            inner = f"SELECT {key} AS k, {link} AS link FROM {self.relation(owner).sql}"
            found = f"SELECT k, {UNIT} AS o FROM ({inner}) JOIN ({self._owners(owner)}) ON link = {UNIT}_key"
        return f"SELECT k AS {UNIT}_key, min(o) AS {UNIT} FROM ({found}) WHERE k IS NOT NULL AND o IS NOT NULL GROUP BY k"

    def _unit(self, table: Table, column: Column) -> str:
        """Who a row belongs to: the raw value itself, whatever type is declared, so that no two are taken for one. A NaN is nobody."""
        raw, physical = self.relation(table).raw(table, column)
        kind = physical.upper().split("(")[0]
        if kind in {"FLOAT", "DOUBLE"}:
            return f"CASE WHEN NOT isnan({raw}) THEN {raw} END"
        return raw if kind in _PLAIN else self._identity(table, column)

    def _identity(self, table: Table, column: Column) -> str:
        """A key as it is compared with another: the raw value where it is of the declared type; whole numbers in any spelling."""
        raw, physical = self.relation(table).raw(table, column)
        whole = physical.upper() in _WHOLE
        if (column.type == "int" and whole) or (column.type == "text" and physical.upper() == "VARCHAR"):
            return raw
        if column.type == "int" and physical.upper() == "VARCHAR":
            return f"CASE WHEN regexp_full_match(trim({raw}), '[+-]?[0-9]{{1,38}}') THEN TRY_CAST(trim({raw}) AS HUGEINT) END"
        return written.read(raw, column.type, "duckdb", physical=physical)

    def _join(self, rows: JoinPublic) -> View:
        view = self.rows(rows.rows)
        key = rows.table.column(rows.key)
        names = _more(view.names, (f"{rows.alias}.{c.name}" for c in rows.table.columns))
        own = {c.name: names[f"{rows.alias}.{c.name}"] for c in rows.table.columns}
        public = self._columns(rows.table, own, self.relation(rows.table).sql, "")
        held = own[key.name]
        left, right, compared = f"l.{held}_on", f"r.{held}", held
        if {rows.on.type, key.type} == {"int", "float"}:
            left, right, compared = (f"CAST({side} AS DOUBLE)" for side in (left, right, held))
        elif rows.on.type != key.type:
            raise InputError(f"The key {shown(key.name)} of {rows.table.name} is {key.type}, and is joined with {rows.on.type}: CAST one.")
        self._unique(rows.table, key, f"SELECT {compared} AS k FROM ({public})")
        added = ", ".join(f"r.{name}" for name in own.values())
        sql = (
            f"SELECT l.* EXCLUDE ({held}_on), {added} FROM (SELECT *, {view.of(rows.on)} AS {held}_on FROM ({view.sql})) AS l "
            f"{'LEFT ' if rows.keep else ''}JOIN ({public}) AS r ON {left} = {right}"
        )
        return View(sql, names, view.unit)

    def _unique(self, table: Table, key: Column, sql: str) -> None:
        """A public table may be looked at: a key that is there twice would double rows."""
        if sql in self.engine.checked:
            return
        twice = self.engine.rows(f"SELECT 1 FROM ({sql}) WHERE k IS NOT NULL GROUP BY k HAVING count(*) > 1 LIMIT 1")
        if twice:
            raise InputError(f"The public table {shown(table.name)} has a value of its key {shown(key.name)} twice: expected each once.")
        self.engine.checked.add(sql)

    def _per_unit(self, rows: PerUnit) -> View:
        view = self.rows(rows.rows)
        names = _more({}, (*(name for name, _ in rows.keys), *(name for name, _, _ in rows.columns)))
        unit = UNIT if view.unit else f"row_number() OVER () AS {UNIT}"
        keys = [f"{view.of(expr)} AS {names[name]}" for name, expr in rows.keys]
        args = [f"{view.of(expr)} AS x{n}" for n, (_, _, expr) in enumerate(rows.columns) if expr is not None]
        inner = f"SELECT {', '.join([unit, *keys, *args])} FROM ({view.sql})"
        ranges = rows.ranges or tuple((None, None) for _ in rows.columns)
        made = [
            f"{_within(kind, expr, f'x{n}', ends)} AS {names[name]}"
            for n, ((name, kind, expr), ends) in enumerate(zip(rows.columns, ranges, strict=True))
        ]
        by = ", ".join([UNIT, *(names[name] for name, _ in rows.keys)])
        return View(f"SELECT {', '.join([by, *made])} FROM ({inner}) WHERE {UNIT} IS NOT NULL GROUP BY {by}", names, unit=True)


def _more(names: Mapping[str, str], added: Iterable[str]) -> dict[str, str]:
    """The names, and new ones for what is added."""
    made = dict(names)
    for name in added:
        made[name] = f"c{len(made)}"
    return made


def _among(column: Column, read: str) -> str:
    """A value if it is one of its column's; texts by a type of their own, which is many times as fast as a list."""
    if column.values is None:
        return read
    known = [v for v in column.values if v is not None]
    if not known:
        return f"CASE WHEN FALSE THEN {read} END"
    if column.type == "text":
        return f"CAST(TRY_CAST({read} AS {enum(known)}) AS VARCHAR)"
    return f"CASE WHEN {read} IN ({listed(known)}) THEN {read} END"


def listed(values: Iterable[Value]) -> str:
    """Values as literals, NULL left out.

    >>> listed(["a", None, "b"])
    "'a', 'b'"
    """
    return ", ".join(written.sql(lit(v), "duckdb", quoted) for v in values if v is not None)


def enum(values: Iterable[Value]) -> str:
    """A type of so many texts: a text of another sort becomes NULL, and hashing one is hashing a small number.

    >>> enum(["a", "b", None])
    "ENUM('a', 'b')"
    """
    return f"ENUM({', '.join(text(str(v)) for v in dict.fromkeys(values) if v is not None)})"


def _within(kind: PerUnitKind, expr: Expr | None, arg: str, ends: tuple[float | None, float | None]) -> str:
    """An exact aggregate over one unit's rows: floats are added up in their order of size, which no thread can change."""
    match kind:
        case "rows":
            return "count(*)"
        case "count":
            return f"count({arg})"
        case "min" | "max":
            return f"{kind}({arg})"
        case "sum" | "avg":
            assert expr is not None
            total = f"sum({arg})" if expr.type == "int" else f"sum({arg} ORDER BY {arg})"
            found = f"CAST({total} AS DOUBLE)"
            if kind == "avg":
                found = f"{found} / count({arg})"
            low, high = (-1.7976931348623157e308, 1.7976931348623157e308)
            low, high = (low if ends[0] is None else ends[0]), (high if ends[1] is None else ends[1])
            return f"CASE WHEN count({arg}) > 0 THEN least(greatest({found}, {low!r}::DOUBLE), {high!r}::DOUBLE) END"
