"""A question means what its SQL means: without noise, by the oracle of the expression language, it gives what DuckDB gives.

The rows of a question are walked here in plain Python, one unit at a time, and its sums are exact; DuckDB runs the same text on the same
rows. Values are inside their declared ranges, so nothing is clamped.
"""

import itertools
import math
import random
import re
from datetime import UTC, date, datetime, timedelta

import duckdb
import pytest

from asked_tables import CATALOG
from dither.query.bind import ask
from dither.query.question import Extend, Filter, JoinPublic, PerUnit, Scan
from dither.query.semantics import evaluate

CITIES = ("Delhi", "Pune", "Goa")


def made():
    """Rows of each table."""
    source = random.Random(7)
    now = datetime(2024, 1, 1, 5, 30, tzinfo=UTC).replace(tzinfo=None)

    def maybe(value, share=0.1):
        return None if source.random() < share else value

    events = [
        {
            "user_id": source.randrange(12),
            "city": maybe(source.choice(CITIES)),
            "kind": source.choice("abc"),
            "amount": maybe(round(source.uniform(0, 100), 2)),
            "qty": maybe(source.randrange(11)),
            "raw": maybe(source.uniform(-500, 500)),
            "ts": maybe(now + timedelta(hours=source.randrange(2_000))),
            "day": date(2024, 1, 1) + timedelta(days=source.randrange(4)),
            "vip": maybe(source.random() < 0.5),
        }
        for _ in range(400)
    ]
    customers = [{"uid": n, "age": 20 + n} for n in range(9)]
    orders = [{"order_id": n, "cust": source.randrange(9), "price": round(source.uniform(0, 50), 2)} for n in range(60)]
    lines = [{"order_id": source.randrange(60), "sku": source.choice("xyz")} for _ in range(200)]
    return {
        "events": events,
        "customers": customers,
        "orders": orders,
        "lines": lines,
        "readings": [{"x": source.random()} for _ in range(50)],
        "cities": [{"city": "Delhi", "region": "north", "pop": 30}, {"city": "Pune", "region": "south", "pop": None}],
        "calendar": [{"day": date(2024, 1, 1), "holiday": True}, {"day": date(2024, 1, 2), "holiday": False}],
    }


DATA = made()


@pytest.fixture(scope="module")
def database():
    connection = duckdb.connect()
    kinds = {"int": "BIGINT", "float": "DOUBLE", "text": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP", "bool": "BOOLEAN"}
    for name, rows in DATA.items():
        columns = CATALOG[name].columns
        connection.execute(f"CREATE TABLE {name} ({', '.join(f'{c.name} {kinds[c.type]}' for c in columns)})")
        connection.executemany(
            f"INSERT INTO {name} VALUES ({', '.join('?' for _ in columns)})", [tuple(row[c.name] for c in columns) for row in rows]
        )
    yield connection
    connection.close()


# ------------------------------------------------------------------------------------------------ the question, walked


def unit_of(table, row, place):
    if table.unit.key is None:
        return place
    while table.through is not None:
        row = next(r for r in DATA[table.through.table] if r[table.through.key] == row[table.through.column])
        table = CATALOG[table.through.table]
    return row[table.unit.key]


def walked(rows):
    """(unit, row) pairs."""
    match rows:
        case Scan(table=table):
            return [(unit_of(table, r, n), dict(r)) for n, r in enumerate(DATA[table.name])]
        case Filter(rows=inner, condition=condition):
            return [(u, r) for u, r in walked(inner) if evaluate(condition, r) is True]
        case Extend(rows=inner, columns=columns):
            return [(u, r | {n: evaluate(e, r) for n, e in columns}) for u, r in walked(inner)]
        case JoinPublic(rows=inner, table=table, alias=alias, on=on, key=key, keep=keep):
            found = {r[key]: r for r in DATA[table.name]}
            none = dict.fromkeys(c.name for c in table.columns)
            joined = []
            for u, r in walked(inner):
                met = found.get(evaluate(on, r))
                if met is not None or keep:
                    joined.append((u, r | {f"{alias}.{n}": v for n, v in (met or none).items()}))
            return joined
        case PerUnit(rows=inner, keys=keys, columns=columns):
            cells = {}
            for u, r in walked(inner):
                cells.setdefault((u, *(evaluate(e, r) for _, e in keys)), []).append(r)
            return [
                (u, dict(zip([n for n, _ in keys], values, strict=True)) | {n: within(k, e, cell) for n, k, e in columns})
                for (u, *values), cell in cells.items()
            ]
    raise AssertionError(rows)


def within(kind, expr, cell):
    if kind == "rows":
        return len(cell)
    values = [v for v in (evaluate(expr, r) for r in cell) if v is not None]
    if kind == "count":
        return len(values)
    if not values:
        return None
    return {"sum": math.fsum, "min": min, "max": max, "avg": lambda v: math.fsum(v) / len(v)}[kind](values)


def measured(aggregate, cell):
    if aggregate.kind == "rows":
        return len(cell)
    if aggregate.kind == "units":
        return len({u for u, _ in cell})
    values = [v for v in (evaluate(aggregate.arg, r) for _, r in cell) if v is not None]
    if aggregate.kind == "count":
        return len(values)
    assert all(aggregate.low <= v <= aggregate.high for v in values)
    return math.fsum(values)


def answered(question):
    """The rows of the answer, without noise; public groups that are empty are left out, as SQL does."""
    cells = {}
    for u, r in walked(question.rows):
        key = tuple(evaluate(g.expr, r) for g in question.groups)
        if all(g.keys is None or k in g.keys for g, k in zip(question.groups, key, strict=True)):
            cells.setdefault(key, []).append((u, r))
    if not question.groups:
        cells.setdefault((), [])
    found = []
    for key, cell in cells.items():
        known = dict(zip([g.name for g in question.groups], key, strict=True))
        known |= {a.names(i)[0]: measured(a, cell) for i, a in enumerate(question.aggregates)}
        if question.having is None or evaluate(question.having, known) is True:
            order = [evaluate(o.expr, known) for o in question.order]
            found.append((order, tuple(evaluate(o.expr, known) for o in question.outputs)))
    for place, by in reversed(list(enumerate(question.order))):
        nones = [f for f in found if f[0][place] is None]
        rest = sorted((f for f in found if f[0][place] is not None), key=lambda f, n=place: f[0][n], reverse=by.descending)
        found = nones + rest if by.nulls_first else rest + nones
    return [row for _, row in found][: question.limit]


def near(one, two):
    if isinstance(one, float) or isinstance(two, float):
        return one is not None and two is not None and math.isclose(one, two, rel_tol=1e-7, abs_tol=1e-6)
    return one == two


def sortable(row):
    return [(v is not None, str(round(v, 4)) if isinstance(v, float) else str(v)) for v in row]


QUERIES = """
SELECT COUNT(*), COUNT(amount), COUNT(city), COUNT(1), COUNT(DISTINCT user_id) FROM events;
SELECT SUM(amount), SUM(qty), SUM(amount * qty), SUM(-amount), SUM(vip::INT), SUM(1) FROM events;
SELECT AVG(amount), AVG(qty), AVG(qty * 2 + 1), AVG(CASE WHEN vip THEN amount END) FROM events;
SELECT VAR_POP(amount), VARIANCE(qty), STDDEV(amount), STDDEV_POP(qty), VAR_SAMP(amount) FROM events;
SELECT COVAR_POP(amount, qty), COVAR_SAMP(qty, amount), CORR(amount, qty) FROM events;
SELECT SUM(LEAST(GREATEST(raw, 0), 10)), AVG(CASE WHEN raw > 0 THEN 1 ELSE 0 END) FROM events WHERE raw IS NOT NULL;
SELECT city, COUNT(*), AVG(amount) FROM events GROUP BY city;
SELECT city, kind, COUNT(*) FROM events GROUP BY 2, 1;
SELECT kind, COUNT(*) AS n FROM events GROUP BY kind ORDER BY n DESC, kind;
SELECT kind, COUNT(*) AS n FROM events WHERE kind <> 'a' GROUP BY kind ORDER BY 1;
SELECT city, COUNT(*) FROM events WHERE city IN ('Delhi', 'Goa') GROUP BY city;
SELECT UPPER(city) AS c, COUNT(*) FROM events WHERE city IN ('Delhi', 'Goa') OR city = 'Pune' GROUP BY UPPER(city);
SELECT UPPER(city) || '!' AS c, COUNT(*) FROM events GROUP BY 1;
SELECT CASE WHEN amount > 50 THEN 'hi' ELSE 'lo' END AS size, COUNT(*) FROM events GROUP BY size ORDER BY size;
SELECT CASE kind WHEN 'a' THEN 'first' WHEN 'b' THEN 'second' END AS k, COUNT(*) FROM events GROUP BY ALL;
SELECT vip, COUNT(*) FROM events GROUP BY vip ORDER BY vip NULLS FIRST;
SELECT vip, COUNT(*) FROM events WHERE vip GROUP BY vip;
SELECT qty, COUNT(*) FROM events GROUP BY qty HAVING qty > 3 AND COUNT(*) > 2 ORDER BY qty DESC LIMIT 3;
SELECT qty % 3 AS r, SUM(amount) AS s FROM events GROUP BY r HAVING s > 10 ORDER BY s;
SELECT MONTH(ts) AS m, YEAR(ts), COUNT(*) FROM events GROUP BY m, YEAR(ts);
SELECT DATE_TRUNC('month', ts) AS m, COUNT(*) FROM events WHERE ts >= '2024-01-10' GROUP BY m ORDER BY m;
SELECT DAYOFWEEK(ts) AS d, COUNT(*) FROM events GROUP BY d;
SELECT EXTRACT(hour FROM ts) AS h, COUNT(*) FROM events WHERE ts BETWEEN '2024-01-01' AND TIMESTAMP '2024-02-01 12:00:00' GROUP
 BY h;
SELECT COUNT(*) FROM events WHERE day + 1 > DATE '2024-01-02' AND day - INTERVAL 1 DAY < '2024-01-03';
SELECT COUNT(*) FROM events WHERE DATE_DIFF('day', day, DATE '2024-01-10') BETWEEN 7 AND 8;
SELECT COUNT_IF(amount > 30), COUNT(*) FILTER (WHERE vip), SUM(amount) FILTER (WHERE qty > 5), COUNT(city) FILTER (WHERE NOT vip)
 FROM events;
SELECT 100.0 * SUM(amount) / COUNT(*), COALESCE(SUM(qty), 0) + 1, ROUND(AVG(amount), 1) FROM events;
SELECT CASE WHEN COUNT(*) > 10 THEN 'many' ELSE 'few' END FROM events;
SELECT city, SUM(amount) / NULLIF(COUNT(DISTINCT user_id), 0) AS each FROM events GROUP BY city HAVING COUNT(*) > 1 ORDER BY each
 DESC NULLS LAST;
SELECT COUNT(*) FROM events WHERE city LIKE 'D%' OR city LIKE '%un%' OR STARTS_WITH(city, 'G');
SELECT COUNT(*) FROM events WHERE city IS NULL OR NOT (city = 'Delhi') AND qty NOT IN (1, 2) AND vip IS NOT TRUE;
SELECT COUNT(*) FROM events WHERE city IS DISTINCT FROM 'Delhi' AND LENGTH(city) BETWEEN 1 AND 4;
SELECT COUNT(*) FROM events WHERE ABS(raw) > 100 AND FLOOR(raw) < CEIL(raw) AND SQRT(amount) > 2 AND SIGN(raw) = -1;
SELECT COUNT(*) FROM events WHERE SUBSTRING(city, 2, 2) = 'el' OR LEFT(city, 1) = 'G' OR RIGHT(city, 2) = 'ne' OR
 TRIM(LOWER(city)) = 'x';
SELECT DISTINCT kind FROM events;
SELECT kind FROM events GROUP BY kind ORDER BY kind DESC;
SELECT AVG(LEAST(n, 100)), COUNT(*) FROM (SELECT user_id, COUNT(*) AS n FROM events GROUP BY user_id);
SELECT kind, AVG(m), COUNT(DISTINCT u) FROM (SELECT user_id AS u, kind, MAX(amount) AS m FROM events GROUP BY 1, 2) GROUP BY kind;
SELECT COUNT(*) FROM (SELECT user_id, SUM(amount) AS s FROM events GROUP BY user_id HAVING COUNT(*) > 30) WHERE s > 1000;
SELECT c, COUNT(*) FROM (SELECT user_id, COUNT(DISTINCT city) AS c FROM events WHERE kind = 'a' GROUP BY user_id) GROUP BY c;
SELECT SUM(LEAST(n, 99)), SUM(LEAST(c, 9)), SUM(LEAST(s, 9999)), AVG(lo), SUM(LEAST(a, 99)) FROM (SELECT user_id, COUNT(*) AS n,
 COUNT(DISTINCT city) AS c, SUM(amount) AS s, MIN(qty) AS lo, COUNT(amount) AS a FROM events GROUP BY user_id);
WITH t AS (SELECT *, amount * 2 AS twice FROM events), u AS (SELECT user_id, AVG(twice) AS m FROM t WHERE vip GROUP BY user_id)
 SELECT AVG(m), VAR_POP(m) FROM u;
WITH events AS (SELECT * FROM events WHERE amount > 50) SELECT COUNT(*) FROM events;
SELECT COUNT(*) FROM (SELECT * FROM (SELECT user_id, city FROM events WHERE vip) AS a(who, town) WHERE town = 'Pune') b WHERE who
 > 3;
SELECT AVG(LEAST(n, 9)) FROM (SELECT user_id, d, COUNT(*) AS n FROM (SELECT user_id, day AS d, qty FROM events) GROUP BY user_id,
 d HAVING MAX(qty) > 5);
SELECT AVG(LEAST(m, 9)) FROM (SELECT user_id, COUNT(*) AS m FROM (SELECT user_id, kind, COUNT(*) AS n FROM events GROUP BY 1, 2)
 WHERE n > 3 GROUP BY 1);
SELECT AVG(LEAST(s, 999)), COUNT(DISTINCT cust) FROM (SELECT cust, SUM(price) AS s FROM orders GROUP BY cust);
SELECT AVG(LEAST(n, 20)), COUNT(*) FROM (SELECT order_id, COUNT(*) AS n FROM lines GROUP BY order_id);
SELECT sku, COUNT(*) FROM lines GROUP BY sku;
SELECT COUNT(DISTINCT cust), COUNT(*) FROM orders;
SELECT COUNT(*), AVG(x), VAR_POP(x) FROM readings WHERE x > 0.2;
SELECT AVG(y) FROM (SELECT x * x AS y FROM readings);
SELECT region, COUNT(*), SUM(amount) FROM events e JOIN cities c ON e.city = c.city GROUP BY region;
SELECT region, COUNT(*) FROM events e LEFT JOIN cities c USING (city) WHERE region = 'north' GROUP BY region;
SELECT COUNT(*) FROM events e LEFT JOIN cities c ON c.city = e.city WHERE c.city IS NULL;
SELECT COUNT(*) FROM events JOIN cities USING (city) WHERE pop > 5 AND city = 'Delhi';
SELECT COUNT(*) FROM cities c JOIN events e ON e.city = c.city AND c.pop > 5 AND e.vip;
SELECT c.day, COUNT(e.user_id) AS n, SUM(e.amount) FROM calendar c LEFT JOIN events e ON e.day = c.day GROUP BY c.day ORDER BY
 c.day;
SELECT a.region, COUNT(*) FROM events e JOIN cities a ON e.city = a.city JOIN calendar b ON b.day = e.day WHERE NOT holiday GROUP
 BY a.region;
SELECT day, COUNT(*) FROM events JOIN calendar USING (day) GROUP BY day;
SELECT AVG(LEAST(n, 50)) FROM (SELECT user_id, COUNT(*) AS n FROM events JOIN cities USING (city) WHERE region = 'south' GROUP BY
 user_id);
SELECT * FROM (SELECT city, COUNT(*) AS n FROM events GROUP BY city) WHERE n > 5 ORDER BY n DESC LIMIT 2;
WITH a AS (SELECT city, COUNT(*) AS n FROM events GROUP BY city), b AS (SELECT city, n + 1 AS m FROM a WHERE n > 3) SELECT m * 2
 AS d FROM b ORDER BY d;
SELECT city AS n, COUNT(*) AS city FROM events GROUP BY events.city ORDER BY city
"""
SAME = tuple(" ".join(q.split()) for q in QUERIES.split(";"))


@pytest.mark.parametrize("sql", SAME)
def test_without_noise_it_is_the_answer_of_duckdb(sql, database):
    ours = answered(ask(sql, CATALOG).question)
    theirs = database.execute(sql).fetchall()
    if "ORDER BY" not in sql:
        ours, theirs = sorted(ours, key=sortable), sorted(theirs, key=sortable)
    assert len(ours) == len(theirs) > 0
    for one, two in zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True):
        assert near(one, two), (ours, theirs)


# ------------------------------------------------------------------------------------------------ any query of a small grammar


class Writer:
    """Writes queries that are right: every one must be a question, and mean what DuckDB takes it for."""

    def __init__(self, seed):
        self.of = random.Random(seed)

    def one(self, *choices):
        return self.of.choice(choices)

    def number(self, depth=2):
        if depth == 0 or self.of.random() < 0.3:
            return self.one("amount", "qty", "3", "0.5", "e.qty", "-qty")
        a, b = self.number(depth - 1), self.number(depth - 1)
        return self.one(
            f"({a} + {b})",
            f"({a} - {b})",
            f"({a} * {b})",
            f"CASE WHEN {self.condition(depth - 1)} THEN {a} ELSE {b} END",
            f"CASE WHEN {self.condition(depth - 1)} THEN {a} END",
            f"COALESCE({a}, {b})",
            f"ABS({a})",
            f"GREATEST({a}, {b})",
            f"LEAST({a}, 7)",
            f"NULLIF({a}, {b})",
            "(qty % 3)",
            f"FLOOR({a})",
            f"LEAST(GREATEST(raw, {self.of.randrange(5)}), 40)",
        )

    def condition(self, depth=2):
        if depth == 0 or self.of.random() < 0.3:
            return self.one(
                "vip",
                "qty > 4",
                "amount <= 50",
                "city = 'Pune'",
                "kind IN ('a', 'b')",
                "city IS NULL",
                "qty BETWEEN 2 AND 6",
                "city LIKE '%e%'",
                "day = '2024-01-02'",
                "ts < '2024-02-01'",
                "user_id < 9",
                "qty NOT IN (1, 2)",
                "MONTH(ts) = 1",
                "LENGTH(city) > 3",
            )
        a, b = self.condition(depth - 1), self.condition(depth - 1)
        return self.one(
            f"({a} AND {b})",
            f"({a} OR {b})",
            f"NOT {a}",
            f"({a}) IS NOT TRUE",
            f"{self.number(depth - 1)} > {self.number(depth - 1)}",
            f"{self.number(depth - 1)} = {self.number(depth - 1)}",
        )

    def group(self):
        where = self.condition(1).replace("user_id < 9", "qty < 9")  # of the unit itself there are no groups
        where = where if re.search("[a-z]", where) else f"qty > 2 AND {where}"  # nor of what has no column
        return self.one(
            "city",
            "kind",
            "vip",
            "qty",
            "qty % 3",
            "UPPER(city)",
            "MONTH(ts)",
            "day",
            "LENGTH(city)",
            f"CASE WHEN {where} THEN 'yes' ELSE kind END",
            f"({where})",
        )

    def aggregate(self):
        x = self.number()
        return self.one(
            "COUNT(*)",
            f"COUNT({x})",
            f"SUM({x})",
            f"AVG({x})",
            f"VAR_POP({self.one('amount', 'qty', 'qty + 1')})",
            "COUNT(DISTINCT user_id)",
            f"COUNT_IF({self.condition(1)})",
            f"SUM({x}) FILTER (WHERE {self.condition(1)})",
            f"COUNT(*) FILTER (WHERE {self.condition(1)})",
        )

    def source(self):
        kept = "user_id, city, kind, amount, qty, raw, ts, day, vip"
        where = f" WHERE {self.condition()}"
        return self.one(
            "events AS e",
            "events AS e",
            f"(SELECT * FROM events AS e{where}) AS e",
            f"(SELECT {kept} FROM events AS e{where}) AS e",
            f"(SELECT {kept.replace('amount', 'LEAST(amount, 60) AS amount')} FROM events AS e) AS e",
            "events AS e LEFT JOIN cities AS c ON c.city = e.kind || 'x'",
            "(SELECT user_id, kind, city, MAX(amount) AS amount, MIN(qty) AS qty, LEAST(SUM(raw), 40) AS raw, MAX(ts) AS ts,"
            f" MIN(day) AS day, COUNT(*) > 4 AS vip FROM events AS e{where} GROUP BY user_id, kind, city) AS e",
        )

    def query(self):
        groups = list(dict.fromkeys(self.group() for _ in range(self.of.randrange(3))))
        shown = [*groups, *(self.aggregate() for _ in range(self.of.randint(1, 3)))]
        source = self.source()
        sql = f"SELECT {', '.join(f'{x} AS o{i}' for i, x in enumerate(shown))} FROM {source}"
        if self.of.random() < 0.6:
            sql += f" WHERE {self.condition()}"
        if groups:
            sql += f" GROUP BY {', '.join(self.one(x, str(i + 1)) for i, x in enumerate(groups))}"
        if self.of.random() < 0.3:
            sql += f" HAVING COUNT(*) > {self.of.randrange(4)}"
        if " JOIN " in source:
            sql = re.sub(r"(?<![.\w])city\b", "e.city", sql)
        return sql, len(groups)


def same(sql, count, database):
    question = ask(sql, CATALOG).question
    ours = {row[:count]: row[count:] for row in answered(question)}
    theirs = {row[:count]: row[count:] for row in database.execute(sql).fetchall()}
    assert set(ours) == set(theirs), sql
    for key, row in theirs.items():
        assert all(near(one, two) for one, two in zip(ours[key], row, strict=True) if two is not None), (sql, key, ours[key], row)


@pytest.mark.parametrize("seed", range(8))
def test_any_query_means_what_duckdb_takes_it_for(seed, database):
    writer = Writer(seed)
    for _ in range(25):
        same(*writer.query(), database)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_queries_mean_what_duckdb_takes_them_for(seed, database):
    writer = Writer(seed)
    for _ in range(100):
        same(*writer.query(), database)
