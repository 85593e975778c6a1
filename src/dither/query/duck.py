# ruff: noqa: S608 - this file writes SQL, from names that are quoted and expressions that are compiled
"""DuckDB under a question: rows, cells, norms and bounded sums, all whole numbers.

The rows of a question become *cells* by one hash aggregate: one for each unit and group, with a whole number for each measure. Sums are
sums of steps of a fixed grid, so that no order of rows or threads can change one; NULLs add nothing. A unit's norm over its cells says
by how much it is scaled down, and what is left is added up for each group. Where the unit is one row, a cell is a row and nothing is
hashed.

Cells are kept in the engine, by the state of the source and by what they are of, and asked again by later questions: bounding is a
function of cells, so what is kept holds for every bound and every ε. They are dropped when the source changes, and the longest unused
go first when there are too many.

Guarantee:
    For every question and every two tables that differ by one unit's rows, cells differ in that unit's cells alone, hence each bounded
    sum by one vector of norm at most the bound (two where a unit is replaced). Rows whose unit is NULL are nobody's, and are left out.
Edge cases:
    No rows, one unit, NULL keys, cells of zeros: all sums of whole numbers, 0 where there is nothing. A number of a cell is held within
    ±2⁵⁰, so that squares and sums of it fit 127 bits for up to 2²⁷ cells of a unit.
Reference:
    Bounding by scaling: ``bounding.scaled``, which tests hold beside it.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dither.core.errors import DitherError, InputError
from dither.core.units import PrivacyUnit
from dither.noise.weighted import GRID, unit_weight
from dither.query import compile as written
from dither.query.bounding import ROW, LookItem, Measure, Norm
from dither.query.expr import Expr
from dither.query.facts import Table, Type, Value
from dither.query.question import Group, Rows
from dither.query.reader import UNIT, Reader, View, enum, listed
from dither.query.source import Engine, Mark, Place, place_of
from dither.query.tree import FAN, Tree

Key: TypeAlias = tuple[Value, ...]

CELL_MAX: Final = 2**49
"""What a cell holds is held within this, so that squares of 2²⁶ of them fit a HUGEINT."""
COUNT_MAX: Final = 2**31
"""No more rows of one cell are counted."""
TOTAL_MAX: Final = 2**62
DUCKDB_TYPES: Final[Mapping[Type, str]] = {
    "bool": "BOOLEAN",
    "int": "BIGINT",
    "float": "DOUBLE",
    "text": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}
TOTALS_KEPT: Final = 64
REST_MAX: Final = 2**24
"""More pairs of units and keys than this are not held as arrays."""
KEEP_BYTES: Final = 2**31
"""Kept cells are dropped beyond this, the longest unused first."""


# ------------------------------------------------------------------------------------------------ what is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A measure as the engine adds it up: what is looked at in each row, the size of a step, or the tree that a value falls into."""

    measure: Measure
    arg: Expr | None = None
    """Rows where it is NULL add nothing; None: every row counts."""
    step: float = 1.0
    tree: Tree | None = None

    @property
    def rows(self) -> bool:
        """Whether it counts rows, each as ``ROW`` steps."""
        return self.measure.kind == "rows" or self.tree is not None

    def columns(self, arg: str, *, unit: bool) -> tuple[str, ...]:
        """What is kept for each cell: an aggregate, or of a cell that is a row its value."""
        there = "TRUE" if self.arg is None else f"{arg} IS NOT NULL"
        count = f"count(*) FILTER ({there})" if unit and self.arg is not None else "count(*)" if unit else f"CAST({there} AS BIGINT)"
        match self.measure.kind:
            case "units":
                return ()
            case "rows":
                return (count,)
            case "sum" | "pair":
                found = f"coalesce({f'sum({self.steps(arg)})' if unit else self.steps(arg)}, 0)"
                total = f"CAST(least(greatest({found}, -{CELL_MAX}), {CELL_MAX}) AS BIGINT)"
                return (total,) if self.measure.kind == "sum" else (total, count)

    def steps(self, arg: str) -> str:
        """A row's value in steps, rounded on its own, half away from zero."""
        low, high = self.measure.low, self.measure.high
        scaled = f"round(CAST({arg} AS DOUBLE) * {1 / self.step!r}::DOUBLE)"
        return f"CAST(CASE WHEN {scaled} < {low} THEN {low} WHEN {scaled} > {high} THEN {high} ELSE {scaled} END AS BIGINT)"

    def values(self, held: Sequence[str]) -> tuple[str, ...]:
        """The measure's whole numbers of a cell, from what is kept for it."""
        if self.rows:
            return (f"(least({held[0]}, {COUNT_MAX}) * {ROW})",)
        match self.measure.kind:
            case "pair":
                low, high = self.measure.low, self.measure.high
                rows = f"least({held[1]}, {CELL_MAX // max(abs(low), abs(high), 1)})"
                return f"greatest({held[0]} - {rows} * {low}, 0)", f"greatest({rows} * {high} - {held[0]}, 0)"
            case "sum":
                return (held[0],)
            case _:
                return (str(ROW),)


@dataclass(frozen=True, slots=True)
class Kept:
    """What makes two views of cells the same: the state of the source, the rows, what they are grouped by, and which groups there are."""

    mark: Mark
    rows: str
    keys: tuple[str, ...]
    public: tuple[str, ...]
    tree: str


# ------------------------------------------------------------------------------------------------ cells


@dataclass(slots=True)
class Cells:
    """The cells of a question: a table of the engine, or a SELECT where a cell is a row. What was asked of them is remembered."""

    engine: Engine
    source: str
    keys: tuple[str, ...]
    unit: bool
    held: dict[str, str]
    """What is kept, as it was computed, and the column that it is in."""
    columns: dict[Counted, tuple[str, ...]]
    size: int = 0
    tables: list[str] = field(default_factory=list)
    norms: dict[tuple[Counted, Norm], tuple[str, str]] = field(default_factory=dict)
    known: dict[object, Any] = field(default_factory=dict)

    def values(self, counted: Counted) -> tuple[str, ...]:
        """A measure's whole numbers of a cell, as SQL."""
        return counted.values(self.columns[counted])

    def _norm(self, counted: Counted, norm: Norm) -> str:
        """A unit's norm, squared if it is l2."""
        if counted.tree is not None:  # of a unit; a row's is the same for all
            if norm == "l1":
                return f"sum(n) * {ROW * counted.tree.levels}"
            return f"(sum(q) + sum(n * n)) * {ROW**2}" if counted.tree.levels > 1 else f"sum(q) * {ROW**2}"
        if counted.measure.kind == "units" and self.unit:
            return f"CAST(count(*) AS HUGEINT) * {ROW if norm == 'l1' else ROW**2}"
        if counted.measure.kind == "rows" and self.unit:  # whole rows first: their squares are 64 bits
            rows = f"least({self.columns[counted][0]}, {COUNT_MAX})"
            return f"sum({rows}) * {ROW}" if norm == "l1" else f"sum({rows} * {rows}) * {ROW**2}"
        parts = [f"abs({v})" if norm == "l1" else f"CAST({v} AS HUGEINT) * {v}" for v in self.values(counted)]
        return f"sum({' + '.join(parts)})" if self.unit else f"CAST({' + '.join(parts)} AS HUGEINT)"

    def _nodes(self, counted: Counted) -> str:
        """The nodes above the leaves of a tree: how many rows, and the squares of the leaves, added up."""
        assert counted.tree is not None
        (held,) = self.columns[counted]
        leaf = f"least({held}, {COUNT_MAX})"
        by = ", ".join([UNIT, *self.keys[:-1]])
        made = f"sum({leaf}) AS n, sum({leaf} * {leaf}) AS q"
        return f"(SELECT {by}, leaf // {FAN} AS node, {made} FROM {self.source} GROUP BY ALL)"

    def _measured(self, wanted: Sequence[tuple[Counted, Norm]]) -> None:
        """Each unit's norms, kept beside the cells."""
        missing = [w for w in dict.fromkeys(wanted) if w not in self.norms]
        if not missing:
            return
        source = self.source
        if missing[0][0].tree is not None:
            source = self._nodes(missing[0][0])
        made = ", ".join(f"{self._norm(c, n)} AS s{i}" for i, (c, n) in enumerate(missing))
        if self.unit:
            name = f"{self.source}_n{len(self.tables)}"
            self.engine.rows(f"CREATE TEMP TABLE {name} AS SELECT {UNIT}, {made} FROM {source} GROUP BY {UNIT}")
            self.tables.append(name)
            self.size += self.size // 4  # there are fewer units than cells
        else:
            name = f"(SELECT {made} FROM {self.source})"
        self.norms |= {w: (name, f"s{i}") for i, w in enumerate(missing)}

    def look(self, items: Sequence[tuple[Counted, LookItem]]) -> list[tuple[int, ...]]:
        """How many units have a norm in each bin, item by item; a unit of norm 0 is in none."""
        self._measured([(c, i.norm) for c, i in items])
        found = []
        for counted, item in items:
            asked = ("look", counted, item.norm, item.edges)
            if asked not in self.known:
                table, norm = self.norms[counted, item.norm]
                place = _bin(norm, [e * e if item.norm == "l2" else e for e in item.edges])
                counts = dict(self.engine.rows(f"SELECT {place} AS b, count(*) FROM {table} WHERE {norm} > 0 GROUP BY b"))
                self.known[asked] = tuple(int(counts.get(n, 0)) for n in range(len(item.edges)))
            found.append(self.known[asked])
        return found

    def groups(self) -> list[tuple[Value, ...]]:
        """The groups that have a cell, in the order of their keys, NULL last."""
        if "groups" not in self.known:
            by = ", ".join(self.keys)
            self.known["groups"] = self.engine.rows(f"SELECT {by} FROM {self.source} GROUP BY {by} ORDER BY {by}") if by else [()]
        return list(self.known["groups"])

    def totals(self, counted: Counted, norm: Norm, limit: int) -> tuple[NDArray[np.int64], ...]:
        """The measure's columns over all units, each unit scaled to ``limit``: one number for each of ``groups()``.

        ``bounding.scaled`` says what scaling is; most units are below the bound, so all cells are added up as they are, and of units
        above it the difference is taken away.
        """
        asked = ("totals", counted, norm, limit)
        if asked not in self.known:
            values = self.values(counted)
            by = [f"{k} AS {k}" for k in self.keys]
            whole = [f"sum({v if self.unit else self._of_row(counted, n, norm, limit)}) AS t{n}" for n, v in enumerate(values)]
            sql = self._grouped(", ".join([*by, *whole]), self.source)
            if self.unit:
                self._measured([(counted, norm)])
                table, held = self.norms[counted, norm]
                most = limit * limit if norm == "l2" else limit
                above = f"SELECT {UNIT}, {root(held) if norm == 'l2' else held} AS norm FROM {table} WHERE {held} > {most}"
                less = [f"-sum({v} - CAST({v} AS HUGEINT) * {limit} // norm) AS t{n}" for n, v in enumerate(values)]
                cut = self._grouped(", ".join([*by, *less]), f"{self.source} JOIN ({above}) USING ({UNIT})")
                sql = f"SELECT * FROM ({sql}) UNION ALL SELECT * FROM ({cut})"
            held_within = [
                f"CAST(least(greatest(coalesce(sum(t{n}), 0), -{TOTAL_MAX}), {TOTAL_MAX}) AS BIGINT) AS t{n}" for n in range(len(values))
            ]
            order = f" ORDER BY {', '.join(self.keys)}" if self.keys else ""
            found = self.engine.arrays(self._grouped(", ".join(held_within), f"({sql})") + order)
            told = [k for k in self.known if isinstance(k, tuple) and k[0] == "totals"]
            for oldest in told[: max(0, len(told) - TOTALS_KEPT)]:
                del self.known[oldest]
            self.known[asked] = tuple(np.ma.getdata(found[f"t{n}"]).astype(np.int64) for n in range(len(values)))
        return cast("tuple[NDArray[np.int64], ...]", self.known[asked])

    def _grouped(self, made: str, source: str) -> str:
        return f"SELECT {made} FROM {source}" + (f" GROUP BY {', '.join(self.keys)}" if self.keys else "")

    def _of_row(self, counted: Counted, column: int, norm: Norm, limit: int) -> str:
        """A row's value, scaled by the row's own norm; of a tree, where each row counts once on each level, so many rows scaled."""
        values = self.values(counted)
        if counted.tree is not None:
            levels = counted.tree.levels
            size = ROW * levels if norm == "l1" else math.isqrt(ROW * ROW * levels - 1) + 1
            return f"CAST({self.columns[counted][0]} AS HUGEINT) * {ROW if size <= limit else ROW * limit // size}"
        if norm == "l1":
            total = " + ".join(f"abs({v})" for v in values)
        else:
            total = root(f"({' + '.join(f'CAST({v} AS HUGEINT) * {v}' for v in values)})")
        return f"CASE WHEN {total} > {limit} THEN CAST({values[column]} AS HUGEINT) * {limit} // ({total}) ELSE {values[column]} END"

    def weights(self, places: Sequence[int], keys_max: int, shown_before: Iterable[Key] = (), sure: int | None = None) -> dict[Key, int]:
        """What units give to each key (the columns ``places``), each unit sharing one weight among its keys, those shown before left out.

        A unit of more than ``keys_max`` keys gives to so many of them, told by a hash of unit and key: no key is preferred. Keys of at
        least the weight ``sure`` are expected to be shown at first: what is left without them is kept, and used where they were.
        """
        names = [self.keys[p] for p in places]
        by = ", ".join(names)
        before = set(shown_before)
        asked = ("weights", by, keys_max)
        if not before and asked in self.known:
            return dict(self.known[asked])
        if not self.unit:
            found = self.engine.rows(f"SELECT {by}, count(*) * {GRID} FROM {self.source} GROUP BY {by}")
            return {tuple(row[:-1]): int(row[-1]) for row in found if tuple(row[:-1]) not in before}
        rest = self._rest(names, before, self.known.get(asked, {}), sure)
        if rest is not None:
            return rest.weights(before, keys_max)
        left = sorted(before, key=repr)
        base = self._pairs(names)
        pairs = self._without(base, names, left)
        counts = f"SELECT {UNIT}, count(*) AS n FROM pairs GROUP BY {UNIT}"
        few = f"SELECT {by}, CAST(floor({GRID} / sqrt(n)) AS BIGINT) AS w FROM pairs JOIN counts USING ({UNIT}) WHERE n <= {keys_max}"
        ranked = f"row_number() OVER (PARTITION BY {UNIT} ORDER BY hash({UNIT}, {by}), {by}) AS place"
        crowded = f"SELECT {by}, {ranked} FROM pairs JOIN counts USING ({UNIT}) WHERE n > {keys_max}"
        many = f"SELECT {by}, CAST({unit_weight(keys_max)} AS BIGINT) AS w FROM ({crowded}) WHERE place <= {keys_max}"
        sql = (
            f"WITH pairs AS ({pairs}), counts AS MATERIALIZED ({counts}) "
            f"SELECT {by}, CAST(least(sum(w), {2**61}) AS BIGINT) FROM ({few} UNION ALL {many}) GROUP BY {by}"
        )
        found = self.engine.rows(sql, _columnwise(left, len(names)))
        made = {tuple(row[:-1]): int(row[-1]) for row in found}
        if not before:
            self.known[asked] = made
        return dict(made)

    def _pairs(self, names: Sequence[str]) -> str:
        """Units and keys that have a cell, each once."""
        return f"(SELECT {UNIT}, {', '.join(names)} FROM {self.source}" + ("" if len(names) == len(self.keys) else " GROUP BY ALL") + ")"

    def _rest(self, names: Sequence[str], before: set[Key], first: Mapping[Key, int], sure: int | None) -> Rest | None:
        """The pairs of units and keys without heavy keys, if all of those were shown before; made when that is so for the first time."""
        kept = ("rest", *names)
        if kept not in self.known and sure is not None:
            heavy = {k for k, w in first.items() if w >= sure}
            if not heavy or not heavy <= before:
                return None
            by, listed = ", ".join(names), sorted(heavy, key=repr)
            name = f"{self.source}_r{len(self.tables)}"
            self.engine.rows(
                f"CREATE TEMP TABLE {name} AS {self._without(self._pairs(names), names, listed)}", _columnwise(listed, len(names))
            )
            ((size,),) = self.engine.rows(f"SELECT count(*) FROM {name}")
            if size > REST_MAX:
                self.known[kept] = None
            else:
                keys = self.engine.rows(f"SELECT {by} FROM {name} GROUP BY {by} ORDER BY {by}")
                told = f"SELECT {UNIT}, dense_rank() OVER (ORDER BY {by}) - 1 AS g, hash({UNIT}, {by}) AS h FROM {name}"
                begins = f"{UNIT} IS DISTINCT FROM lag({UNIT}) OVER (ORDER BY {UNIT}, h, g)"
                found = self.engine.arrays(f"SELECT g, CAST({begins} AS INTEGER) AS first FROM ({told}) ORDER BY {UNIT}, h, g")
                units = np.cumsum(np.ma.getdata(found["first"]), dtype=np.int64) - 1
                self.known[kept] = Rest(frozenset(heavy), keys, units, np.ma.getdata(found["g"]).astype(np.int64))
            self.engine.rows(f"DROP TABLE {name}")
        rest: Rest | None = self.known.get(kept)
        return rest if rest is not None and rest.heavy <= before else None

    def _without(self, base: str, names: Sequence[str], left: Sequence[tuple[Value, ...]]) -> str:
        """A relation without the keys that are given, column by column, as parameters."""
        if not left:
            return f"SELECT * FROM {base}"
        asked = ("kinds", *names)
        if asked not in self.known:
            self.known[asked] = [row[1] for row in self.engine.rows(f"DESCRIBE SELECT {', '.join(names)} FROM {self.source}")]
        held = [
            f"unnest(CAST(${n + 1} AS {kind}[])) AS {name}" for n, (name, kind) in enumerate(zip(names, self.known[asked], strict=True))
        ]
        same = " AND ".join(f"p.{name} IS NOT DISTINCT FROM d.{name}" for name in names)
        return f"SELECT * FROM {base} AS p WHERE NOT EXISTS (SELECT 1 FROM (SELECT {', '.join(held)}) AS d WHERE {same})"


@dataclass(frozen=True, slots=True)
class Rest:
    """Pairs of units and keys, heavy keys left out, sorted by unit and within one by a hash: what later rounds of selection look at."""

    heavy: frozenset[Key]
    keys: list[Key]
    units: NDArray[np.int64]
    places: NDArray[np.int64]

    def weights(self, before: set[Key], keys_max: int) -> dict[Key, int]:
        """What each key gets from units that share their weight among those of their keys that are not there before."""
        there = np.array([k not in before for k in self.keys], dtype=bool)
        kept = np.flatnonzero(there[self.places]) if there.size else np.zeros(0, np.int64)
        units, places = self.units[kept], self.places[kept]
        counts = np.bincount(units, minlength=int(self.units[-1]) + 1 if self.units.size else 0)
        rank = np.arange(units.size) - (np.cumsum(counts) - counts)[units]
        each = np.array([0, *(unit_weight(n) for n in range(1, keys_max + 1))], dtype=np.float64)
        given = np.where(rank < keys_max, each[np.minimum(counts, keys_max)][units], 0.0)
        total = np.bincount(places, weights=given, minlength=len(self.keys))  # whole numbers below 2⁵³: exact
        return {self.keys[n]: int(total[n]) for n in np.flatnonzero(total > 0).tolist()}


def _columnwise(keys: Sequence[tuple[Value, ...]], count: int) -> list[list[Value]]:
    return [[key[n] for key in keys] for n in range(count)] if keys else []


def _bin(value: str, edges: Sequence[int]) -> str:
    """The place of the first edge that is not below a value, or of the last one: by halving, so that few are looked at."""

    def among(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        return f"CASE WHEN {value} <= {edges[middle]} THEN {among(low, middle)} ELSE {among(middle + 1, high)} END"

    return among(0, len(edges) - 1)


def root(square: str) -> str:
    """The smallest whole number whose square is at least a HUGEINT above 0: the root of a float, one step of Newton's, one up or down."""
    near = f"CAST(greatest(ceil(sqrt(CAST({square} AS DOUBLE))), 1) AS HUGEINT)"
    return (
        f"list_transform([{near}], lambda a: list_transform([(a + {square} // a) // 2], lambda b: "
        f"CASE WHEN (b - 1) * (b - 1) >= {square} THEN b - 1 WHEN b * b >= {square} THEN b ELSE b + 1 END)[1])[1]"
    )


# ------------------------------------------------------------------------------------------------ the source


class Source:
    r"""Tables opened for questions, with the cells that earlier questions left.

    >>> import tempfile
    >>> from dither.query.facts import Column
    >>> file = tempfile.NamedTemporaryFile(suffix=".csv")
    >>> _ = file.write(b"user_id,city\n1,Pune\n2,Pune\n"), file.flush()
    >>> columns = (Column(name="user_id", type="int"), Column(name="city", type="text"))
    >>> events = Table(name="events", columns=columns, unit=PrivacyUnit(dataset="events", key="user_id"))
    >>> open_source((events, file.name)).tables["events"].name
    'events'
    """

    def __init__(
        self,
        tables: Sequence[tuple[Table, object]],
        *,
        memory_limit: str | None = None,
        temp_directory: str | None = None,
        threads: int | None = None,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self.tables = {table.name.casefold(): table for table, _ in tables}
        if len(self.tables) < len(tables) or not tables:
            raise InputError("The tables of a source are none, or two of one name: expected each once.")
        self._places: dict[str, Place] = {table.name.casefold(): place_of(where) for table, where in tables}
        self._settings: dict[str, Any] = {"memory_limit": memory_limit, "temp_directory": temp_directory, "threads": threads}
        self._keep_bytes = keep_bytes
        self._kept: OrderedDict[Kept, Cells] = OrderedDict()
        self._made = 0
        self.lock = threading.RLock()
        self._mark = self._now()
        self._engine = Engine(self._places, **self._settings)

    def _now(self) -> Mark:
        return tuple((name, *place.mark) for name, place in self._places.items())

    @property
    def version(self) -> str:
        """The state of all files, as a digest; frames have the state in which they were given."""
        return hashlib.sha256(repr(self._now()).encode()).hexdigest()

    def close(self) -> None:
        """Let go of files, memory and what was kept."""
        self._kept.clear()
        self._engine.close()

    def cancel(self) -> None:
        """End the question that runs, from another thread: it ends as one that could not be finished."""
        self._engine.interrupt()

    def _fresh(self) -> None:
        """Open anew what has changed since."""
        now = self._now()
        if now != self._mark:
            self.close()
            self._mark, self._engine = now, Engine(self._places, **self._settings)

    def cells(self, rows: Rows, unit: PrivacyUnit, groups: Sequence[Group], counted: Sequence[Counted]) -> Cells:
        """The cells of these groups, with these measures: as kept, or made now. Measures with a tree have it alone."""
        with self.lock:
            self._fresh()
            view = Reader(self._engine, self.tables, unit).rows(rows)
            keys = tuple(_key(g, view.of(g.expr)) for g in groups)
            cut = counted[0].tree if counted else None
            tree = "" if cut is None else repr((cut, view.of(_value(counted[0]))))
            public = tuple(_public(g, f"k{n}", view.of(g.expr)) for n, g in enumerate(groups))
            kept = Kept(self._mark, view.sql, keys, public, tree)
            found = self._kept.pop(kept, None)
            wanted = {c: _columns(c, view) for c in counted}
            needed = dict.fromkeys(sql for made in wanted.values() for sql in made)
            if found is None or any(sql not in found.held for sql in needed):
                before = {} if found is None else found.held
                made = self._made_cells(view, groups, keys, {**dict.fromkeys(before), **needed}, cut, wanted)
                if found is not None:
                    self._drop(found)
                found = made
            for c, columns in wanted.items():
                found.columns[c] = tuple(found.held[sql] for sql in columns)
            self._kept[kept] = found
            self._prune()
            return found

    def compute(self, exprs: Sequence[Expr], columns: Mapping[str, Sequence[Value]]) -> list[list[Value]]:
        """Expressions over columns of values that may be known: row by row, in the order that is given."""
        kinds = {str(c.value): DUCKDB_TYPES[c.type] for e in exprs for c in _leaves(e)}
        held = ", ".join(f"unnest(CAST(${n + 1} AS {kinds[name]}[])) AS c{n}" for n, name in enumerate(columns))
        place = {name: f"c{n}" for n, name in enumerate(columns)}
        made = ", ".join(written.sql(e, "duckdb", place.__getitem__) for e in exprs)
        size = len(next(iter(columns.values())))
        found = self._engine.rows(
            f"SELECT {made} FROM (SELECT {held}, unnest(range({size})) AS place) ORDER BY place", list(columns.values())
        )
        return [list(values) for values in zip(*found, strict=True)]

    def _made_cells(
        self,
        view: View,
        groups: Sequence[Group],
        keys: Sequence[str],
        needed: Mapping[str, Any],
        tree: Tree | None,
        wanted: Mapping[Counted, Any],
    ) -> Cells:
        names = [f"k{n}" for n in range(len(keys))]
        held = {sql: f"m{n}" for n, sql in enumerate(needed)}
        inner = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]  # beside what the rows have, the unit among it
        conditions = [c for g, name in zip(groups, names, strict=True) if (c := _public(g, name, view.of(g.expr)))]
        if view.unit:
            conditions.append(f"{UNIT} IS NOT NULL")
        if tree is not None:
            inner.append(f"{tree.leaf(view.of(_value(next(iter(wanted)))))} AS leaf")
            conditions.append("leaf IS NOT NULL")
            names.append("leaf")
        # what a row is looked at for is written out again in each measure: the engine computes it once
        carried = f"SELECT *, {', '.join(inner)} FROM ({view.sql})" if inner else view.sql
        source = f"({carried}) WHERE {' AND '.join(conditions)}" if conditions else f"({carried})"
        by = [*([UNIT] if view.unit else []), *names]
        if tree is not None:
            held = dict.fromkeys(needed, "m0")
        sql = f"SELECT {', '.join([*by, *(f'{s} AS {n}' for s, n in held.items())]) or '1 AS one'} FROM {source}"
        if by and (view.unit or tree is not None):
            sql += f" GROUP BY {', '.join(by)}"
        if not view.unit:
            return Cells(self._engine, f"({sql})", tuple(names), unit=False, held=held, columns={})
        self._made += 1
        table = f"cells{self._made}"
        self._engine.rows(f"CREATE TEMP TABLE {table} AS {sql}")
        if self._now() != self._mark:
            raise DitherError("The source changed while it was read: the charge stays. Ask again when it is at rest.")
        ((size,),) = self._engine.rows(f"SELECT count(*) FROM {table}")
        return Cells(
            self._engine,
            table,
            tuple(names),
            unit=True,
            held=held,
            columns={},
            size=size * 8 * (1 + 2 * len(names) + len(held)),
            tables=[table],
        )

    def _drop(self, cells: Cells) -> None:
        for table in cells.tables:
            self._engine.rows(f"DROP TABLE IF EXISTS {table}")

    def _prune(self) -> None:
        """Drop what was unused the longest, but never what was asked for now."""
        while len(self._kept) > 1 and sum(c.size for c in self._kept.values()) > self._keep_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._drop(oldest)


def open_source(
    *tables: tuple[Table, object],
    memory_limit: str | None = None,
    temp_directory: str | None = None,
    threads: int | None = None,
    keep_bytes: int = KEEP_BYTES,
) -> Source:
    """Open tables, each given with where it lies: a file, a folder, a glob, ``duckdb:///FILE#TABLE``, or a frame."""
    return Source(tables, memory_limit=memory_limit, temp_directory=temp_directory, threads=threads, keep_bytes=keep_bytes)


def _leaves(expr: Expr) -> list[Expr]:
    """The columns in an expression."""
    found, waiting = [], [expr]
    while waiting:
        e = waiting.pop()
        found += [e] if e.op == "col" else []
        waiting += e.args
    return found


def _value(counted: Counted) -> Expr:
    assert counted.arg is not None
    return counted.arg


def _columns(counted: Counted, view: View) -> tuple[str, ...]:
    if counted.tree is not None:
        return ("count(*)",)
    return counted.columns("" if counted.arg is None else f"({view.of(counted.arg)})", unit=view.unit)


def _key(group: Group, value: str) -> str:
    """What rows are grouped by: texts of public groups as small numbers, 0.0 and -0.0 as one."""
    if group.keys is not None and group.expr.type == "text" and any(k is not None for k in group.keys):
        return f"TRY_CAST({value} AS {enum(group.keys)})"
    return f"({value}) + 0.0::DOUBLE" if group.expr.type == "float" else f"({value})"


def _public(group: Group, name: str, value: str) -> str:
    """The condition that a row's group is a public one."""
    if group.keys is None:
        return ""
    known = [k for k in group.keys if k is not None]
    among = "FALSE" if not known else f"{name} IS NOT NULL" if group.expr.type == "text" else f"{name} IN ({listed(known)})"
    return f"({value} IS NULL OR {among})" if None in group.keys else among
