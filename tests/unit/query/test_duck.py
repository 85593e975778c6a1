"""The DuckDB engine: sources, cells against plain Python, bounding against the reference, neighbours, what is kept."""

import gzip
import itertools
import math
import random

import duckdb
import numpy as np
import pytest

from dither.core.errors import DitherError, InputError, UnknownNameError
from dither.core.units import PrivacyUnit
from dither.noise.weighted import GRID, unit_weight
from dither.query import semantics
from dither.query.bounding import ROW, LookItem, Measure, norms_of, scaled
from dither.query.duck import Counted, Source, _bin, open_source, root
from dither.query.expr import call, col, lit
from dither.query.facts import Column, Table, Through
from dither.query.question import Extend, Filter, Group, JoinPublic, PerUnit, Scan
from dither.query.tree import tree_of

UNIT = PrivacyUnit(dataset="events", key="user_id")
CITIES = ("Delhi", "Pune", "Goa")
COLUMNS = (
    Column(name="user_id", type="int"),
    Column(name="city", type="text", values=CITIES),
    Column(name="category", type="text"),
    Column(name="amount", type="float", low=-10, high=100),
)
EVENTS = Table(name="events", unit=UNIT, columns=COLUMNS)
ROWS_TABLE = Table(name="events", unit=PrivacyUnit(dataset="events"), columns=COLUMNS)
CITY, CATEGORY = col("city", "text", values=CITIES), col("category", "text")
AMOUNT = col("amount", "float", -10, 100)
BY_CITY = Group(name="city", expr=CITY, keys=CITIES)
SCAN = Scan(table=EVENTS, alias="events")

COUNT = Counted(measure=Measure(name="n", kind="rows"))
VALUES = Counted(measure=Measure(name="c", kind="rows"), arg=AMOUNT)
UNITS = Counted(measure=Measure(name="u", kind="units"))
SUM = Counted(measure=Measure(name="s", kind="sum", low=-40, high=400), arg=AMOUNT, step=0.25)
PAIR = Counted(measure=Measure(name="p", kind="pair", low=-40, high=400), arg=AMOUNT, step=0.25)
ALL = (COUNT, VALUES, UNITS, SUM, PAIR)


def frame(rows, columns=("user_id", "city", "category", "amount")):
    import pyarrow as pa  # noqa: PLC0415 - heavy

    kinds = {"user_id": pa.int64(), "city": pa.string(), "category": pa.string(), "amount": pa.float64()}
    return pa.table({c: pa.array([r[n] for r in rows], type=kinds[c]) for n, c in enumerate(columns)})


def some_rows(seed, count=40, users=6):
    r = random.Random(seed)
    odd = [None, math.nan, math.inf, -math.inf, 1e300, -0.0]
    return [
        (
            r.choice([*range(users), None]),
            r.choice([*CITIES, "Rome", None]),
            r.choice(["a", "b", "c", "d", None]),
            r.choice(odd) if r.random() < 0.3 else r.uniform(-20, 120),
        )
        for _ in range(count)
    ]


# ------------------------------------------------------------------------------------------------ plain Python beside it


def steps(value):
    """A value as the engine counts it: clamped, to the nearest step, halves away from zero."""
    if value is None or math.isnan(value):
        return None
    x = min(max(value, -10.0), 100.0) / 0.25
    return int(math.copysign(math.floor(abs(x) + 0.5), x)) if x else 0


def reference(rows, counted, key):
    """{unit: {group: columns}} by the meaning of the measures alone; ``key`` of a row is its group, or None."""
    cells = {}
    for number, row in enumerate(rows):
        unit, group = row[0], key(row)
        if group is None or unit is None:
            continue
        unit = number if unit is ... else unit
        value = steps(row[3])
        held = cells.setdefault(unit, {}).setdefault(group, [0] * counted.measure.columns)
        kind = counted.measure.kind
        if kind == "units":
            held[0] = ROW
        elif kind == "rows":
            held[0] += ROW if counted.arg is None or value is not None else 0
        elif value is not None:
            held[0] += value if kind == "sum" else value + 40
            if kind == "pair":
                held[1] += 400 - value
    return cells


def bounded(cells, norm, limit):
    """{group: columns}, every unit scaled by ``bounding.scaled``."""
    totals = {}
    for groups in cells.values():
        flat = np.array([v for g in groups for v in groups[g]], dtype=object)
        (size,) = norms_of(flat, np.zeros(len(flat), dtype=np.int64), 1, norm)
        made = iter(scaled(flat, np.array([size] * len(flat), dtype=object), limit).tolist())
        for g in groups:
            held = totals.setdefault(g, [0] * len(groups[g]))
            for n in range(len(held)):
                held[n] += next(made)
    return totals


def told(cells, counted, norm, limit):
    arrays = cells.totals(counted, norm, limit)
    return {g: [int(a[n]) for a in arrays] for n, g in enumerate(cells.groups())}


def city_key(row):
    return (row[1],) if row[1] in CITIES else None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("counted", ALL, ids=lambda c: c.measure.kind + c.measure.name)
def test_bounded_sums_are_those_of_the_reference(seed, counted):
    rows = some_rows(seed)
    source = open_source((EVENTS, frame(rows)))
    cells = source.cells(SCAN, UNIT, (BY_CITY,), ALL)
    expected = reference(rows, counted, city_key)
    for norm, limit in itertools.product(("l1", "l2"), (1, 7, 500, 3 * ROW, 2**40)):
        assert told(cells, counted, norm, limit) == bounded(expected, norm, limit), (norm, limit)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("counted", ALL, ids=lambda c: c.measure.kind + c.measure.name)
def test_a_row_that_is_a_unit_is_bounded_by_itself(seed, counted):
    rows = [(..., *r[1:]) for r in some_rows(seed)]
    source = open_source((ROWS_TABLE, frame([(None, *r[1:]) for r in rows])))
    cells = source.cells(Scan(table=ROWS_TABLE, alias="e"), ROWS_TABLE.unit, (BY_CITY,), ALL)
    expected = reference(rows, counted, city_key)
    for norm, limit in itertools.product(("l1", "l2"), (1, 7, 500, 2**40)):
        assert told(cells, counted, norm, limit) == bounded(expected, norm, limit)


@pytest.mark.parametrize("counted", ALL, ids=lambda c: c.measure.kind + c.measure.name)
def test_the_look_counts_units_by_norm(counted):
    rows = some_rows(3, count=200, users=30)
    cells = open_source((EVENTS, frame(rows))).cells(SCAN, UNIT, (BY_CITY,), ALL)
    expected = reference(rows, counted, city_key)
    edges = tuple(sorted({1, 40, 100, 400, ROW, 1449, 2 * ROW, 2897, 5 * ROW}))
    for norm in ("l1", "l2"):
        counts = [0] * len(edges)
        for groups in expected.values():
            flat = np.array([v for g in groups for v in groups[g]], dtype=object)
            (size,) = norms_of(flat, np.zeros(len(flat), dtype=np.int64), 1, norm)
            if size:
                counts[next((k for k, e in enumerate(edges) if size <= e), len(edges) - 1)] += 1
        item = LookItem(measure=counted.measure, norm=norm, edges=edges)
        assert cells.look([(counted, item)]) == [tuple(counts)]


# ------------------------------------------------------------------------------------------------ neighbours


def vector(rows, group, counted, norm, limit, scan=SCAN):
    cells = open_source((EVENTS, frame(rows))).cells(scan, UNIT, group, (counted,))
    return {(g, n): v for g, values in told(cells, counted, norm, limit).items() for n, v in enumerate(values)}


def distance(a, b, norm):
    differences = [a.get(k, 0) - b.get(k, 0) for k in {*a, *b}]
    return sum(map(abs, differences)) if norm == "l1" else math.sqrt(sum(d * d for d in differences))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("counted", ALL, ids=lambda c: c.measure.kind + c.measure.name)
def test_taking_any_unit_away_moves_the_totals_by_the_bound_at_most(seed, counted):
    rows = some_rows(100 + seed, count=24, users=4)
    private = Group(name="category", expr=CATEGORY, keys=None)
    for norm, limit in (("l1", 700), ("l2", 700), ("l1", 3 * ROW), ("l2", 2 * ROW)):
        whole = vector(rows, (BY_CITY, private), counted, norm, limit)
        most = 0.0
        for user in range(4):
            less = vector([r for r in rows if r[0] != user], (BY_CITY, private), counted, norm, limit)
            most = max(most, distance(whole, less, norm))
        assert most <= limit
    assert most > 0


def test_every_table_of_two_units_and_few_rows_keeps_to_the_bound():
    """All tables with up to three rows of one unit over two groups and three values, beside another unit: nothing is left to chance."""
    kinds = list(itertools.product(("Delhi", "Pune"), (None, -10.0, 100.0)))
    rest = [(7, "Delhi", "a", 30.0), (7, "Pune", "a", 100.0), (7, "Pune", "b", 99.0)]
    limits = ((SUM, "l1", 150), (SUM, "l2", 150), (PAIR, "l1", 200), (PAIR, "l2", 200), (COUNT, "l2", 1100))
    table = [
        (unit, city, "a", amount)
        for unit, picked in enumerate(p for n in (1, 2, 3) for p in itertools.combinations_with_replacement(kinds, n))
        for city, amount in picked
    ]
    # all units at once: what one adds is the difference between totals with and without it, as cells of others do not move
    cells = open_source((EVENTS, frame([*table, *[(10_000 + r[0], *r[1:]) for r in rest]])))
    made = cells.cells(SCAN, UNIT, (BY_CITY, Group(name="u", expr=col("user_id", "int"))), (COUNT, SUM, PAIR))
    for counted, norm, limit in limits:
        sizes = {}
        for (_, unit), values in told(made, counted, norm, limit).items():
            sizes.setdefault(unit, []).extend(values)
        for values in sizes.values():
            assert (sum(map(abs, values)) if norm == "l1" else math.sqrt(sum(v * v for v in values))) <= limit


@pytest.mark.parametrize("per_unit", [False, True])
def test_no_other_unit_moves(per_unit):
    """Through joins, filters and sub-queries, the cells of a unit are a function of its own rows."""
    rows = some_rows(7, count=60, users=5)
    prices = Table(
        name="prices", key="category", columns=(Column(name="category", type="text"), Column(name="price", type="float", low=0, high=9))
    )
    import pyarrow as pa  # noqa: PLC0415 - heavy

    public = pa.table({"category": ["a", "b", None, "x"], "price": [1.5, 2.5, 3.5, 4.5]})
    joined = JoinPublic(rows=SCAN, table=prices, alias="p", on=CATEGORY, key="category", keep=True)
    price = col("p.price", "float", 0, 9)
    built = Filter(
        rows=Extend(rows=joined, columns=(("cost", call("mul", AMOUNT, price)),)), condition=call("gt", col("cost", "float"), lit(-50.0))
    )
    if per_unit:
        built = PerUnit(
            rows=built,
            keys=(("city", CITY),),
            columns=(("n", "rows", None), ("total", "sum", col("cost", "float"))),
            ranges=((1, None), (None, None)),
        )
    counted = Counted(
        measure=Measure(name="s", kind="sum", low=-400, high=400), arg=col("total" if per_unit else "cost", "float"), step=0.25
    )

    def cells(kept):
        source = open_source((EVENTS, frame(kept)), (prices, public))
        made = source.cells(built, UNIT, (BY_CITY, Group(name="k", expr=CITY if per_unit else CATEGORY)), (counted,))
        found = made.engine.rows(f"SELECT * FROM {made.source}")
        return set(found)

    whole = cells(rows)
    assert len(whole) > 5
    for user in range(5):
        less = cells([r for r in rows if r[0] != user])
        assert less == {r for r in whole if r[0] != user}


# ------------------------------------------------------------------------------------------------ rows


def rows_of(source, rows, names, unit=UNIT):
    """The rows themselves, for tests: as the engine reads them."""
    from dither.query.reader import Reader  # noqa: PLC0415 - not what is tested

    view = Reader(source._engine, source.tables, unit).rows(rows)
    own = ["u", *(view.names[n] for n in names)] if view.unit else [view.names[n] for n in names]
    return sorted(source._engine.rows(f"SELECT {', '.join(own)} FROM ({view.sql})"), key=repr)


def test_aggregates_within_a_unit_are_exact():
    rows = [(1, "Delhi", "a", 0.1), (1, "Delhi", "b", 0.2), (1, "Pune", "b", None), (2, "Pune", "a", 7.0), (None, "Pune", "a", 9.0)]
    columns = (
        ("n", "rows", None),
        ("c", "count", AMOUNT),
        ("s", "sum", AMOUNT),
        ("least", "min", AMOUNT),
        ("most", "max", CATEGORY),
        ("mean", "avg", AMOUNT),
        ("whole", "sum", lit(3)),
    )
    built = PerUnit(rows=SCAN, keys=(), columns=columns, ranges=((1, None), (0, None), (None, 5.0), *[(None, None)] * 4))
    found = rows_of(open_source((EVENTS, frame(rows))), built, [n for n, *_ in columns])
    assert found == [(1, 3, 2, 0.1 + 0.2, 0.1, "b", (0.1 + 0.2) / 2, 9.0), (2, 1, 1, 5.0, 7.0, "a", 7.0, 3.0)]


def test_sums_within_a_unit_do_not_depend_on_the_order_of_rows():
    r = random.Random(5)
    values = [r.choice([1e16, 1.0, -1e16, 0.3, 1e-9]) for _ in range(300)]
    table = Table(name="events", unit=UNIT, columns=(Column(name="user_id", type="int"), Column(name="amount", type="float")))
    built = PerUnit(rows=Scan(table=table, alias="e"), keys=(), columns=(("s", "sum", col("amount", "float")),))
    found = set()
    for seed in range(5):
        random.Random(seed).shuffle(values)
        ((_, total),) = rows_of(open_source((table, frame([(1, v) for v in values], ("user_id", "amount")))), built, ["s"])
        found.add(total)
    assert len(found) == 1


def test_rows_belong_to_units_over_foreign_keys():
    import pyarrow as pa  # noqa: PLC0415 - heavy

    unit = PrivacyUnit(dataset="people", key="household")
    people = Table(name="people", unit=unit, columns=(Column(name="person", type="text"), Column(name="household", type="int")))
    orders = Table(
        name="orders",
        unit=unit,
        through=Through(column="buyer", table="people", key="person"),
        columns=(Column(name="order", type="int"), Column(name="buyer", type="text")),
    )
    items = Table(
        name="items",
        unit=unit,
        through=Through(column="order", table="orders", key="order"),
        columns=(Column(name="order", type="int"), Column(name="price", type="float", low=0, high=9)),
    )
    data = {
        "people": pa.table({"person": ["ann", "bob", "eve", "eve", "joe"], "household": [1, 1, 3, 2, None]}),
        "orders": pa.table({"order": [10, 11, 12, 13, 14], "buyer": ["ann", "bob", "eve", "nobody", "joe"]}),
        "items": pa.table({"order": [10, 10, 11, 12, 13, 14, None], "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]}),
    }
    source = open_source(*((t, data[t.name]) for t in (people, orders, items)))
    found = rows_of(source, Scan(table=items, alias="items"), ["price"], unit)
    assert found == [(1, 1.0), (1, 2.0), (1, 3.0), (2, 4.0)]  # of two claims the least; who has no household is nobody


def test_a_public_key_that_is_there_twice_is_refused():
    import pyarrow as pa  # noqa: PLC0415 - heavy

    prices = Table(name="prices", key="category", columns=(Column(name="category", type="text"),))
    joined = JoinPublic(rows=SCAN, table=prices, alias="p", on=CATEGORY, key="category", keep=False)
    source = open_source((EVENTS, frame([])), (prices, pa.table({"category": ["a", "a"]})))
    with pytest.raises(InputError, match="'prices' has a value of its key 'category' twice"):
        source.cells(joined, UNIT, (), (COUNT,))


def test_large_keys_of_units_are_told_apart():
    table = Table(name="events", unit=UNIT, columns=(Column(name="user_id", type="int", low=0, high=5),))
    ids = [2**62, 2**62 + 1, 2**62 + 2, None]
    cells = open_source((table, frame([(i,) for i in ids], ("user_id",)))).cells(Scan(table=table, alias="e"), UNIT, (), (UNITS,))
    assert told(cells, UNITS, "l1", ROW) == {(): [3 * ROW]}


# ------------------------------------------------------------------------------------------------ places


LINES = b"\n".join(
    [
        b"user_id,city,category,amount\r",
        b"1,Delhi,a,1.5\r",
        b'"2,Delhi,a,1',
        b'3,"Pune","a, ""b""",2',
        b"\xff\xfe,Delhi,a,1",
        b"4,Goa",
        b"5,Goa,a,b,c",
        b"",
        b"x,Goa,c,not a number",
        b"6,Goa,,1e999",
        b"7,\x01,a,3",
        b'8,"Goa"x,a,3',
        b"9,Pune,\xc3\xa9,4",
    ]
)


def test_a_bad_line_disturbs_no_other(tmp_path):
    good = {(1, "Delhi", "a", 1.5), (3, "Pune", 'a, "b"', 2.0), (None, "Goa", "c", None), (6, "Goa", None, 100.0), (9, "Pune", "é", 4.0)}
    file, packed = tmp_path / "e.csv", tmp_path / "f.csv.gz"
    file.write_bytes(LINES)
    packed.write_bytes(gzip.compress(LINES))
    names = ["user_id", "city", "category", "amount"]
    for where in (file, packed):
        found = {r[1:] for r in rows_of(open_source((EVENTS, where)), SCAN, names)}
        assert found == good
    huge = tmp_path / "g.csv"
    huge.write_bytes(LINES + b"\n10,Pune," + b"k" * 3_000_000 + b",4\n11,Pune,z,4\n")
    assert {r[1] for r in rows_of(open_source((EVENTS, huge)), SCAN, names)} == {1, 3, None, 6, 9, 11}
    both = tmp_path / "both"
    both.mkdir()
    (both / "1.csv").write_bytes(LINES)
    (both / "2.csv").write_bytes(LINES)
    assert len(rows_of(open_source((EVENTS, str(both))), SCAN, names)) == 2 * len(good)
    (both / "3.csv").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(InputError, match="different headers"):
        open_source((EVENTS, str(both)))


def test_every_line_of_a_csv_is_read_by_itself(tmp_path):
    """Lines made of the letters that matter: what a file holds is what its lines hold, each in a file of its own."""
    r = random.Random(9)
    table = Table(name="events", unit=UNIT, columns=(Column(name="user_id", type="text"), Column(name="city", type="text")))
    lines = ["".join(r.choice('ab1,,"" \t\r;é') for _ in range(r.randrange(9))) for _ in range(150)]
    scan = Scan(table=table, alias="e")

    def read(name, some):
        file = tmp_path / name
        file.write_bytes(b"user_id,city\n" + "\n".join(some).encode())
        return rows_of(open_source((table, file)), scan, ["user_id", "city"])

    each = [row for n, line in enumerate(lines) for row in read(f"{n}.csv", [line])]
    assert read("all.csv", lines) == sorted(each, key=repr)
    assert len(each) > 20


@pytest.mark.parametrize("where", ["file", "folder", "glob", "hive", "duckdb", "csv", "tsv"])
def test_the_same_rows_come_from_every_place(where, tmp_path):
    rows = [r for r in some_rows(1, count=60) if r[3] is None or math.isfinite(r[3])]
    table = frame(rows)
    con = duckdb.connect(str(tmp_path / "shop.db"))
    con.register("t", table)
    con.execute("CREATE TABLE events AS SELECT * FROM t")
    parts = tmp_path / "parts"
    parts.mkdir()
    con.execute(f"COPY (SELECT * FROM t LIMIT 30) TO '{parts}/a.parquet'")
    con.execute(f"COPY (SELECT * FROM t OFFSET 30) TO '{parts}/b.parquet'")
    con.execute(f"COPY t TO '{tmp_path}/all.parquet'")
    con.execute(f"COPY t TO '{tmp_path}/hive' (FORMAT parquet, PARTITION_BY (city))")
    con.execute(f"COPY t TO '{tmp_path}/all.csv' (HEADER)")
    con.execute(f"COPY t TO '{tmp_path}/all.tsv' (HEADER, DELIMITER '\t')")
    con.close()
    places = {
        "file": tmp_path / "all.parquet",
        "folder": parts,
        "glob": str(parts / "*.parquet"),
        "hive": tmp_path / "hive",
        "duckdb": f"duckdb:///{tmp_path}/shop.db#events",
        "csv": tmp_path / "all.csv",
        "tsv": tmp_path / "all.tsv",
    }
    cells = open_source((EVENTS, places[where])).cells(SCAN, UNIT, (BY_CITY,), ALL)
    same = open_source((EVENTS, table)).cells(SCAN, UNIT, (BY_CITY,), ALL)
    for counted in ALL:
        assert told(cells, counted, "l1", 3000) == told(same, counted, "l1", 3000)


def test_frames_of_pandas_and_polars():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = some_rows(2)
    names = ("user_id", "city", "category", "amount")
    same = open_source((EVENTS, frame(rows))).cells(SCAN, UNIT, (BY_CITY,), ALL)
    data = {name: [r[n] for r in rows] for n, name in enumerate(names)}
    frames = [
        pandas.DataFrame(data),
        pandas.DataFrame({k: pandas.Series(v, dtype=object) for k, v in data.items()}),
        polars.DataFrame(data, strict=False),
        polars.DataFrame(data, strict=False).lazy(),
    ]
    for made in frames:
        source = open_source((EVENTS, made))
        for counted in ALL:
            assert told(source.cells(SCAN, UNIT, (BY_CITY,), ALL), counted, "l1", 3000) == told(same, counted, "l1", 3000)
    changed = pandas.DataFrame({**data, "amount": [1.0] * len(rows)})
    source = open_source((EVENTS, changed))
    before = told(source.cells(SCAN, UNIT, (), (SUM,)), SUM, "l1", 3000)
    changed["amount"] = 50.0
    changed.loc[:, "user_id"] = 1
    assert told(source.cells(SCAN, UNIT, (), (PAIR, SUM)), SUM, "l1", 3000) == before


def test_a_python_object_cannot_stop_the_reading():
    pandas = pytest.importorskip("pandas")

    class Odd:
        def __str__(self):
            raise RuntimeError("told")

        def __eq__(self, other):
            return False

        __hash__ = None

    mixed = pandas.DataFrame({"user_id": pandas.Series([1, "2", 3.0, Odd(), 2**200, "\ud800"], dtype=object), "city": ["Pune"] * 6})
    table = Table(name="events", unit=UNIT, columns=(Column(name="user_id", type="int"), Column(name="city", type="text")))
    assert [r[0] for r in rows_of(open_source((table, mixed)), Scan(table=table, alias="e"), ["city"])][:2] == [1, 2]


def test_places_that_are_none(tmp_path):
    (tmp_path / "none.csv").write_text("")
    file = tmp_path / "shop.db"
    con = duckdb.connect(str(file))
    con.execute("CREATE TABLE events (user_id BIGINT); CREATE VIEW seen AS SELECT * FROM events")
    con.close()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is not one")
    cases = [
        (tmp_path / "missing.parquet", InputError, "names no file"),
        ("s3://bucket/e.parquet", InputError, "not one that DuckDB reads here"),
        (tmp_path / "none.csv", InputError, "no header"),
        (f"duckdb:///{file}#missing", UnknownNameError, "events"),
        (f"duckdb:///{file}#seen", UnknownNameError, "events"),
        (f"duckdb:///{tmp_path}/other.db#events", InputError, "not a table of a DuckDB file"),
        (tmp_path / "broken.parquet", InputError, "cannot be opened"),
        (17, InputError, "is a int"),
        ("", InputError, "is not allowed"),
    ]
    for where, kind, said in cases:
        with pytest.raises(kind, match=said):
            open_source((EVENTS, where))
    with pytest.raises(UnknownNameError, match="city"):
        open_source((EVENTS, f"duckdb:///{file}#events")).cells(SCAN, UNIT, (), (COUNT,))
    with pytest.raises(InputError, match="does not take the settings"):
        open_source((EVENTS, frame([])), memory_limit="a lot")
    with pytest.raises(InputError, match="none, or two of one name"):
        open_source()


# ------------------------------------------------------------------------------------------------ shut in


def test_the_engine_is_shut_in(tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    table = tmp_path / "e.csv"
    table.write_bytes(LINES)
    source = open_source((EVENTS, table))
    rows = [1]  # noqa: F841 - must not be found by its name
    for sql in (
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM '{secret}'",
        f"ATTACH '{tmp_path}/new.db'",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '1GB'",
        "SELECT * FROM rows",
    ):
        with pytest.raises(DitherError, match="could not be read to the end"):
            source._engine.rows(sql)
    assert not (tmp_path / "out.csv").exists()


def test_what_the_engine_says_is_not_told(tmp_path):
    """A file that breaks in its middle: one text, and neither a cause nor a context that could hold a value."""
    con = duckdb.connect()
    file = tmp_path / "e.parquet"
    con.execute(
        f"COPY (SELECT range AS user_id, 'Pune' AS city, hash(range)::VARCHAR AS category, 1.0 AS amount FROM range(100000)) TO '{file}'"
    )
    source = open_source((EVENTS, file))
    content = bytearray(file.read_bytes())
    content[1000:200_000] = b"\x55" * 199_000
    file.write_bytes(content)
    with pytest.raises(DitherError) as caught:
        source.cells(SCAN, UNIT, (Group(name="c", expr=CATEGORY),), (SUM,))
    assert str(caught.value).startswith("The rows could not be read to the end: the charge stays")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_more_rows_than_memory(tmp_path):
    con = duckdb.connect()
    file = tmp_path / "e.parquet"
    many = "SELECT range % 300000 AS user_id, 'Pune' AS city, (hash(range) % 9)::VARCHAR AS category, 1.0 AS amount FROM range(1500000)"
    con.execute(f"COPY ({many}) TO '{file}'")
    source = open_source((EVENTS, file), memory_limit="80MB", temp_directory=str(tmp_path / "spilled"), threads=2)
    cells = source.cells(SCAN, UNIT, (Group(name="c", expr=CATEGORY),), (COUNT, SUM))
    assert sum(v[0] for v in told(cells, COUNT, "l1", 100 * ROW).values()) == 1_500_000 * ROW


# ------------------------------------------------------------------------------------------------ kept


def test_cells_are_kept_and_shared():
    source = open_source((EVENTS, frame(some_rows(1))))
    first = source.cells(SCAN, UNIT, (BY_CITY,), (COUNT,))
    table = first.source
    assert source.cells(SCAN, UNIT, (BY_CITY,), (COUNT, UNITS)).source == table
    more = source.cells(SCAN, UNIT, (BY_CITY,), (SUM,))
    assert more.source != table
    assert source.cells(SCAN, UNIT, (BY_CITY,), ALL[:1]).source == more.source  # made again with both
    assert source.cells(SCAN, UNIT, (), (COUNT,)).source != more.source
    other = Filter(rows=SCAN, condition=call("gt", AMOUNT, lit(0.0)))
    assert source.cells(other, UNIT, (BY_CITY,), (COUNT,)).source != more.source
    assert len(source._kept) == 3


def test_what_is_kept_is_bounded():
    source = open_source((EVENTS, frame(some_rows(1))), keep_bytes=1)
    for group in ((BY_CITY,), (), (Group(name="c", expr=CATEGORY),)):
        source.cells(SCAN, UNIT, group, (COUNT,)).totals(COUNT, "l1", 10)
        assert len(source._kept) == 1
    assert len(source._engine.rows("SELECT 1 FROM duckdb_tables() WHERE temporary")) == 2  # the cells and their norms


def test_what_is_kept_goes_when_the_source_changes(tmp_path):
    file = tmp_path / "e.csv"
    file.write_text("user_id,city,category,amount\n1,Pune,a,1\n")
    source = open_source((EVENTS, file))
    assert told(source.cells(SCAN, UNIT, (), (COUNT,)), COUNT, "l1", ROW) == {(): [ROW]}
    version = source.version
    file.write_text("user_id,city,category,amount\n1,Pune,a,1\n2,Pune,a,1\n")
    assert source.version != version
    assert told(source.cells(SCAN, UNIT, (), (COUNT,)), COUNT, "l1", ROW) == {(): [2 * ROW]}
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "a.csv").write_bytes(file.read_bytes())
    source = open_source((EVENTS, folder))
    assert told(source.cells(SCAN, UNIT, (), (COUNT,)), COUNT, "l1", ROW) == {(): [2 * ROW]}
    (folder / "b.csv").write_text("user_id,city,category,amount\n3,Pune,a,1\n")
    assert told(source.cells(SCAN, UNIT, (), (COUNT,)), COUNT, "l1", ROW) == {(): [3 * ROW]}


# ------------------------------------------------------------------------------------------------ keys, trees, small parts


@pytest.mark.parametrize("public", [False, True])
def test_units_share_one_weight_among_their_keys(public):
    rows = some_rows(4, count=80, users=9)
    groups = (Group(name="category", expr=CATEGORY), *((BY_CITY,) if public else ()))
    cells = open_source((EVENTS, frame(rows))).cells(SCAN, UNIT, groups, (COUNT,))
    there = {(r[0], r[2]) for r in rows if r[0] is not None and (not public or r[1] in CITIES)}

    def expected(before):
        pairs = {(u, k) for u, k in there if (k,) not in before}
        made = {}
        for u, k in pairs:
            made[(k,)] = made.get((k,), 0) + unit_weight(sum(1 for p in pairs if p[0] == u))
        return made

    for before in ([], [("a",)], [("a",), (None,)]):
        assert cells.weights([0], 64, before) == expected(before)
    heavy = sorted(expected([]).values())[-2]  # two keys are expected to be shown, and what is left without them is kept
    known = [k for k, w in expected([]).items() if w >= heavy]
    for before in (known, [*known, (None,)], known[:1], [], [("a",)], [("a",), ("b",), ("c",), ("d",), (None,)]):
        assert cells.weights([0], 64, before, heavy) == expected(before)
    assert any(key[0] == "rest" for key in cells.known if isinstance(key, tuple))


def test_a_unit_of_many_keys_gives_to_few():
    rows = [(1, "Pune", f"k{n}", 1.0) for n in range(50)] + [(2, "Pune", "k1", 1.0)]
    cells = open_source((EVENTS, frame(rows))).cells(SCAN, UNIT, (Group(name="c", expr=CATEGORY),), (COUNT,))
    made = cells.weights([0], 10)
    assert len(made) in (10, 11)
    assert sum(w * w for w in made.values()) <= 10 * unit_weight(10) ** 2 + 2 * GRID * unit_weight(10) + GRID**2
    assert sorted(made.values())[:9] == [unit_weight(10)] * 9


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("kind", ["float", "int"])
def test_a_tree_is_bounded_with_all_of_its_nodes(unit, kind):
    table = EVENTS if unit else ROWS_TABLE
    rows = [(n % 7, "Pune" if n % 3 else "Goa", "a", -10 + n * 0.11) for n in range(1000)]
    arg = AMOUNT if kind == "float" else call("cast_int", call("clamp", AMOUNT, lit(0.0), lit(20.0)))
    tree = tree_of(-10, 100, "float") if kind == "float" else tree_of(0, 20, "int")
    counted = Counted(measure=Measure(name="q", kind="sum", low=0, high=tree.levels * ROW), arg=arg, tree=tree)
    cells = open_source((table, frame(rows))).cells(Scan(table=table, alias="e"), table.unit, (BY_CITY,), (counted,))
    made = {}
    for number, (user, city, _, amount) in enumerate(rows):
        value = amount if kind == "float" else semantics.evaluate(arg, {"amount": amount})
        leaf = min(math.floor((amount + 10) * (4096 / 110)), 4095) if kind == "float" else value
        held = made.setdefault(user if unit else number, {})
        held[city, leaf] = held.get((city, leaf), 0) + 1
    for norm, limit in (("l1", 900), ("l2", 900), ("l2", 20_000), ("l1", 2**40), ("l2", 2**40)):
        totals = {}
        for held in made.values():
            nodes = {}
            for (city, leaf), n in held.items():
                nodes[city, leaf // 64] = nodes.get((city, leaf // 64), 0) + n * ROW
            levels = [[n * ROW for n in held.values()], list(nodes.values())][: tree.levels]
            (size,) = norms_of(
                np.array([v for level in levels for v in level], dtype=object), np.zeros(sum(map(len, levels)), int), 1, norm
            )
            mine = {k: n * ROW if size <= limit else n * ROW * limit // size for k, n in held.items()}
            above = {}
            for (city, leaf), v in mine.items():
                totals[city, leaf] = totals.get((city, leaf), 0) + v
                above[city, leaf // 64] = above.get((city, leaf // 64), 0) + v
            both = [*mine.values(), *(above.values() if tree.levels > 1 else ())]
            assert (sum(both) if norm == "l1" else math.sqrt(sum(v * v for v in both))) <= limit
        assert {k: v[0] for k, v in told(cells, counted, norm, limit).items()} == totals


def test_roots_are_exact():
    source = open_source((EVENTS, frame([])))
    r = random.Random(2)
    for _ in range(60):
        n = r.getrandbits(r.randrange(1, 63)) + 1
        for square in (n * n - 1, n * n, n * n + 1):
            if 0 < square < 2**125:
                expected = math.isqrt(square - 1) + 1
                ((found,),) = source._engine.rows(f"SELECT {root('s')} FROM (SELECT CAST('{square}' AS HUGEINT) AS s)")
                assert found == expected


def test_bins_hold_what_is_up_to_their_edge():
    source = open_source((EVENTS, frame([])))
    edges = [3, 5, 9, 20, 21]
    found = source._engine.rows(f"SELECT v, {_bin('v', edges)} FROM (SELECT unnest(range(1, 30)) AS v)")
    assert all(place == next((k for k, e in enumerate(edges) if v <= e), 4) for v, place in found)


def test_a_source_can_be_closed_and_cancelled():
    source = Source([(EVENTS, frame([]))])
    source.cancel()
    source.close()
