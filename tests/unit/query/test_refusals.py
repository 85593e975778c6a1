"""Every rule has a query that breaks it, and every text names the fragment, the rule and what to write instead."""

import re
import string

import pytest

from asked_tables import CATALOG
from dither.core.errors import DitherError, InputError, RefusedError, UnknownNameError
from dither.query.bind import ask
from dither.query.refusals import FRAGMENT_MAX, RULES, cut, refuse, wrong

PRIVATE = {
    "raw_column": [
        "SELECT amount FROM events",
        "SELECT city, amount, COUNT(*) FROM events GROUP BY city",
        "SELECT city FROM events GROUP BY city HAVING amount > 3",
        "SELECT COUNT(*) FROM events ORDER BY amount",
        "SELECT COUNT(*), user_id FROM events",
        "SELECT x FROM (SELECT user_id, COUNT(*) AS x FROM events GROUP BY user_id)",
        "SELECT UPPER(city) FROM events GROUP BY LOWER(city)",
        "SELECT COALESCE(amount, SUM(amount)) FROM events",
        "SELECT CASE WHEN vip THEN COUNT(*) END FROM events",
    ],
    "raw_star": [
        "SELECT * FROM events",
        "SELECT e.* FROM events AS e",
        "FROM events",
        "SELECT FROM events",
        "SELECT COUNT(*), * FROM events",
    ],
    "raw_aggregate": [
        f"SELECT {f} FROM events"
        for f in (
            "ARRAY_AGG(amount)",
            "LIST(amount)",
            "STRING_AGG(city, ',')",
            "GROUP_CONCAT(city)",
            "LISTAGG(city)",
            "FIRST(city)",
            "LAST(city)",
            "ANY_VALUE(city)",
            "ARBITRARY(city)",
            "MODE(city)",
            "MODE() WITHIN GROUP (ORDER BY city)",
            "ARG_MAX(city, amount)",
            "MIN_BY(city, amount)",
            "HISTOGRAM(city)",
            "JSON_GROUP_ARRAY(city)",
            "FIRST(city) FILTER (WHERE vip)",
            "UPPER(ANY_VALUE(city))",
        )
    ],
    "group_by_unit": [
        "SELECT user_id, COUNT(*) FROM events GROUP BY user_id",
        'SELECT "USER_ID", COUNT(*) FROM events GROUP BY 1',
        "SELECT user_id % 10, COUNT(*) FROM events GROUP BY 1",
        "SELECT u, COUNT(*) FROM (SELECT user_id AS u FROM events) GROUP BY u",
        "SELECT u, COUNT(*) FROM (SELECT user_id + 1 AS u FROM events) GROUP BY u",
        "SELECT m, COUNT(*) FROM (SELECT user_id, MAX(user_id) AS m FROM events GROUP BY user_id) GROUP BY m",
        "SELECT m, COUNT(*) FROM (SELECT user_id, -user_id AS m FROM events GROUP BY user_id) GROUP BY m",
        "SELECT CASE WHEN vip THEN user_id END, COUNT(*) FROM events GROUP BY ALL",
        "SELECT DISTINCT user_id FROM events",
        "SELECT cust, SUM(price) FROM orders GROUP BY cust",
        "SELECT COUNT(*) FROM lines GROUP BY order_id",
        "SELECT c.code, COUNT(*) FROM events e JOIN keyed c ON c.code = e.user_id GROUP BY c.code",
        "SELECT COUNT(*) FROM events WHERE user_id IN (1, 2) GROUP BY user_id",
        'SELECT COUNT(*) FROM "odd names" GROUP BY "a.b"',
    ],
    "unbounded": [
        "SELECT SUM(raw) FROM events",
        "SELECT AVG(raw) FROM events",
        "SELECT SUM(amount / raw) FROM events",
        "SELECT VARIANCE(raw) FROM events",
        "SELECT CORR(raw, amount) FROM events",
        "SELECT MIN(raw) FROM events",
        "SELECT MEDIAN(raw) FROM events",
        "SELECT SUM(user_id) FROM events",
        "SELECT SUM(user_id - user_id) FROM events",
        "SELECT AVG(user_id / 1e12) FROM events",
        "SELECT AVG(raw / 1e12) FROM events",
        "SELECT AVG(SQRT(raw)) FROM events",
        "SELECT SUM(n * 2) FROM (SELECT user_id, COUNT(*) AS n FROM events GROUP BY user_id)",
        "SELECT SUM(user_id % 10 + user_id) FROM events",
        "SELECT AVG(n) FROM (SELECT user_id, COUNT(*) AS n FROM events GROUP BY user_id)",
        "SELECT AVG(s) FROM (SELECT user_id, SUM(amount) AS s FROM events GROUP BY user_id)",
        "SELECT COUNT(*) FROM events ORDER BY SUM(raw)",
        "SELECT COUNT(*) FROM events HAVING SUM(GREATEST(raw, 0)) > 1",
        "SELECT SUM(LENGTH(city) * raw) FROM events",
    ],
    "private_join": [
        "SELECT COUNT(*) FROM events a JOIN events b ON a.user_id = b.user_id",
        "SELECT COUNT(*) FROM events, orders",
        "SELECT COUNT(*) FROM events CROSS JOIN orders",
        "WITH t AS (SELECT * FROM events) SELECT COUNT(*) FROM t JOIN events USING (user_id)",
        "SELECT COUNT(*) FROM cities c JOIN events e ON e.city = c.city JOIN orders o ON o.cust = e.user_id",
        "SELECT COUNT(*) FROM events NATURAL JOIN events b",
    ],
    "many_in_subquery": [
        "SELECT AVG(n) FROM (SELECT city, COUNT(*) AS n FROM events GROUP BY city)",
        "SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM events)",
        "SELECT n, COUNT(*) FROM (SELECT city, COUNT(*) AS n FROM events GROUP BY city) GROUP BY n",
        "SELECT AVG(n) FROM (SELECT user_id % 2, COUNT(*) AS n FROM events GROUP BY user_id % 2)",
        "WITH a AS (SELECT city, COUNT(*) AS n FROM events GROUP BY city) SELECT COUNT(*) FROM a JOIN cities USING (city)",
        "SELECT DISTINCT n FROM (SELECT city, COUNT(*) AS n FROM events GROUP BY city)",
        "SELECT n FROM (SELECT city, COUNT(*) AS n FROM events GROUP BY city) ORDER BY MAX(n)",
        "SELECT AVG(n) FROM (SELECT MAX(user_id) AS user_id, COUNT(*) AS n FROM events)",
    ],
    "other_people": [
        "SELECT COUNT(*) FROM events WHERE amount > (SELECT AVG(amount) FROM events)",
        "SELECT COUNT(*) FROM events e WHERE EXISTS (SELECT 1 FROM events b WHERE b.amount > e.amount)",
        "SELECT COUNT(*) FROM events WHERE user_id IN (SELECT cust FROM orders)",
        "SELECT COUNT(*) FROM events WHERE user_id NOT IN (SELECT cust FROM orders)",
        "SELECT (SELECT COUNT(*) FROM events) FROM events",
        "SELECT COUNT(*) FROM events GROUP BY (SELECT 1)",
        "SELECT COUNT(*) FROM events HAVING (SELECT TRUE)",
        "SELECT COUNT(*) FROM events ORDER BY (SELECT 1 FROM events)",
        "SELECT SUM((SELECT amount)) FROM events",
        "SELECT COUNT(*) FROM events WHERE amount > ALL (SELECT amount FROM events)",
        "WITH cities AS (SELECT * FROM events) SELECT COUNT(*) FROM events WHERE city IN (SELECT city FROM nowhere)",
    ],
    "order_dependent": [
        "SELECT COUNT(*) FROM (SELECT * FROM events LIMIT 10)",
        "SELECT COUNT(*) FROM (SELECT * FROM events ORDER BY amount)",
        "SELECT COUNT(*) FROM (SELECT DISTINCT city FROM events)",
        "SELECT COUNT(*) FROM (SELECT DISTINCT ON (city) city FROM events)",
        "WITH t AS (SELECT * FROM events OFFSET 3) SELECT COUNT(*) FROM t",
        "SELECT COUNT(*) FROM (SELECT * FROM events QUALIFY ROW_NUMBER() OVER () = 1)",
        "WITH unused AS (SELECT * FROM events LIMIT 1) SELECT COUNT(*) FROM events",
    ],
    "window": [
        "SELECT SUM(amount) OVER () FROM events",
        "SELECT ROW_NUMBER() OVER (ORDER BY COUNT(*)) FROM events GROUP BY city",
        "SELECT COUNT(*) FROM (SELECT LAG(amount) OVER (ORDER BY ts) AS x FROM events)",
        "SELECT COUNT(*) FROM events QUALIFY ROW_NUMBER() OVER () = 1",
        "SELECT COUNT(*) FROM events WHERE ROW_NUMBER() OVER () = 1",
        "SELECT RANK() OVER w FROM events WINDOW w AS (ORDER BY amount)",
        "SELECT COUNT(*) FROM events GROUP BY NTILE(4) OVER (ORDER BY amount)",
    ],
    "no_unit": ["SELECT AVG(m) FROM (SELECT x, COUNT(*) AS m FROM readings GROUP BY x)"],
    "no_aggregate": ["SELECT 1 FROM events", "SELECT 'a' AS x, 2 FROM events LIMIT 3", "SELECT NULL FROM events WHERE vip"],
    "unit_option": ["SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (privacy_unit_column = city) COUNT(*) FROM events"],
    "public_only": ["SELECT COUNT(*) FROM cities", "SELECT COUNT(*) FROM events e JOIN (SELECT * FROM cities) c ON c.city = e.city"],
}
OUTSIDE = {
    "statement": ["DROP TABLE events", "EXPLAIN SELECT 1", "SELECT COUNT(*) INTO x FROM events", "WITH a AS (DELETE FROM events) SELECT 1"],
    "several": ["SELECT COUNT(*) FROM events; SELECT 1"],
    "file": [
        "SELECT COUNT(*) FROM 'people.parquet'",
        'SELECT COUNT(*) FROM "s3://bucket/x.csv"',
        "SELECT COUNT(*) FROM '/etc/passwd'",
        "SELECT COUNT(*) FROM '*.csv'",
        "WITH x AS (SELECT * FROM 'a.csv') SELECT COUNT(*) FROM events",
    ],
    "table_function": [
        "SELECT COUNT(*) FROM read_csv('/etc/passwd')",
        "SELECT COUNT(*) FROM read_parquet(['a'])",
        "SELECT COUNT(*) FROM glob('*')",
        "SELECT COUNT(*) FROM range(10)",
        "SELECT COUNT(*) FROM duckdb_tables()",
        "SELECT COUNT(*) FROM pragma_table_info('events')",
        "SELECT COUNT(*) FROM events, sniff_csv('a')",
        "WITH x AS (SELECT * FROM query('SELECT 1')) SELECT COUNT(*) FROM events",
    ],
    "catalog": ["SELECT COUNT(*) FROM information_schema.tables", "SELECT COUNT(*) FROM main.events", "SELECT a.b.c.d FROM events"],
    "set_operation": [
        "SELECT COUNT(*) FROM events UNION ALL SELECT COUNT(*) FROM events",
        "SELECT COUNT(*) FROM (SELECT * FROM events UNION SELECT * FROM events)",
        "WITH t AS (SELECT 1 EXCEPT SELECT 2) SELECT COUNT(*) FROM events",
    ],
    "sample": [
        "SELECT COUNT(*) FROM events TABLESAMPLE 10%",
        "SELECT COUNT(*) FROM events USING SAMPLE 3",
        "SELECT COUNT(*) FROM (SELECT * FROM events USING SAMPLE 3)",
    ],
    "not_repeatable": [
        f"SELECT COUNT(*) FROM events WHERE {c}"
        for c in (
            "amount > RANDOM()",
            "ts > NOW()",
            "day = CURRENT_DATE",
            "ts < CURRENT_TIMESTAMP",
            "city = UUID()",
            "city = GEN_RANDOM_UUID()",
            "city = CURRENT_USER",
            "city = VERSION()",
            "day = TODAY()",
            "amount = SETSEED(0.1)",
            "city = GETENV('HOME')",
            "city = CURRENT_SETTING('x')",
            "qty = NEXTVAL('s')",
            "ts > LOCALTIMESTAMP",
        )
    ],
    "regex": [
        f"SELECT COUNT(*) FROM events WHERE {c}"
        for c in (
            "city ~ 'a'",
            "REGEXP_MATCHES(city, 'a')",
            "city SIMILAR TO 'a'",
            "city GLOB 'a*'",
            "REGEXP_REPLACE(city, 'a', 'b') = 'c'",
        )
    ],
    "parameter": [f"SELECT COUNT(*) FROM events WHERE amount > {p}" for p in ("?", "$1", ":x")],
    "unnest": [
        "SELECT COUNT(*) FROM events, UNNEST([1, 2]) AS u",
        "SELECT COUNT(*) FROM (VALUES (1)) AS v",
        "SELECT COUNT(*) FROM events, LATERAL (SELECT 1)",
    ],
}
GRAMMAR = {
    "clause": [
        "SELECT COUNT(*) FROM events OFFSET 5",
        "SELECT COUNT(*) FROM events FOR UPDATE",
        "SELECT COUNT(*) FROM events PIVOT (SUM(amount) FOR kind IN ('a'))",
    ],
    "expression": [
        "SELECT COUNT(*) FROM events WHERE (amount, qty) IN ((1, 2))",
        "SELECT COUNT(*) FROM events WHERE amount[0] = 1",
        "SELECT COUNT(*) FROM events WHERE qty & 1 = 1",
    ],
    "function": [
        "SELECT COUNT(*) FROM events WHERE my_udf(city)",
        "SELECT KURTOSIS(amount) FROM events",
        "SELECT PRODUCT(amount) FROM events",
        "SELECT MD5(city), COUNT(*) FROM events GROUP BY 1",
        "SELECT COUNT(*) FROM events WHERE SLEEP(10)",
        "SELECT UNNEST([1, 2]), COUNT(*) FROM events",
    ],
    "arguments": ["SELECT SUM(city) FROM events", "SELECT AVG(day) FROM events", "SELECT MIN(ts) FROM events"],
    "modifier": [
        "SELECT SUM(amount ORDER BY ts) FROM events",
        "SELECT TRIM(LEADING 'x' FROM city), COUNT(*) FROM events GROUP BY 1",
        "SELECT MIN(amount, 3) FROM events",
    ],
    "literal": ["SELECT COUNT(*) FROM events WHERE city ILIKE kind", "SELECT COUNT(*) FROM events WHERE ts > day + INTERVAL 'x'"],
    "cast": [
        f"SELECT COUNT(*) FROM events WHERE CAST(amount AS {t}) IS NULL"
        for t in ("INT[]", "DECIMAL(10, 2)", "TINYINT", "UUID", "STRUCT(a INT)", "JSON", "BLOB")
    ],
    "whole_division": [],
    "subquery_expression": ["SELECT COUNT(*) FROM events WHERE city IN (SELECT city FROM cities)"],
    "nested_aggregate": [
        "SELECT SUM(SUM(amount)) FROM events",
        "SELECT COUNT(*) FILTER (WHERE COUNT(*) > 1) FROM events",
        "SELECT COUNT(DISTINCT COUNT(*)) FROM events",
        "SELECT AVG(n) FROM (SELECT user_id, SUM(COUNT(*)) AS n FROM events GROUP BY user_id)",
    ],
    "aggregate_here": [
        "SELECT COUNT(*) FROM events WHERE COUNT(*) > 3",
        "SELECT COUNT(*) FROM events GROUP BY COUNT(*)",
        "SELECT COUNT(*) FROM events e JOIN cities c ON c.city = e.city AND COUNT(*) > 1",
    ],
    "alias_in_where": ["SELECT COUNT(*) AS n FROM events WHERE n > 3"],
    "distinct_aggregate": [
        "SELECT COUNT(DISTINCT city) FROM events",
        "SELECT SUM(DISTINCT amount) FROM events",
        "SELECT COUNT(DISTINCT user_id, city) FROM events",
        "SELECT COUNT(DISTINCT user_id + 0) FROM events",
        "SELECT COUNT(DISTINCT order_id) FROM lines",
    ],
    "distinct_filter": ["SELECT COUNT(DISTINCT user_id) FILTER (WHERE vip) FROM events"],
    "distinct": ["SELECT DISTINCT COUNT(*) FROM events", "SELECT DISTINCT city FROM events GROUP BY city"],
    "not_grouped": ["SELECT AVG(a) FROM (SELECT user_id, amount AS a, COUNT(*) AS n FROM events GROUP BY user_id)"],
    "constant_group": [
        "SELECT COUNT(*) FROM events GROUP BY 'x'",
        "SELECT COUNT(*) FROM events GROUP BY 1 + 1",
        "SELECT DISTINCT 1 FROM events",
    ],
    "ordinal": [f"SELECT city, COUNT(*) FROM events GROUP BY {n}" for n in ("0", "3", "-1", "1.5", "99999999999999999999")]
    + ["SELECT COUNT(*) FROM events ORDER BY 2"],
    "ordinal_aggregate": ["SELECT city, COUNT(*) FROM events GROUP BY 2"],
    "grouping_sets": [
        f"SELECT city, COUNT(*) FROM events GROUP BY {g}"
        for g in ("ROLLUP (city)", "CUBE (city)", "GROUPING SETS ((city), ())", "(city, kind)")
    ],
    "moment": ["SELECT COUNT(*) FROM events WHERE ts > 'yesterday'", "SELECT COUNT(*) FROM events WHERE day = DATE '2024-02-30'"],
    "where_type": [
        "SELECT COUNT(*) FROM events WHERE city",
        "SELECT COUNT(*) FROM events HAVING COUNT(*)",
        "SELECT SUM(amount) FILTER (WHERE qty) FROM events",
    ],
    "limit": [f"SELECT COUNT(*) FROM events LIMIT {n}" for n in ("2.5", "(SELECT 1)", "-1", "10%", "1 + 1")],
    "quantile_level": [f"SELECT QUANTILE_CONT(amount, {q}) FROM events" for q in ("1.5", "amount", "'0.5'", "[0.1, 0.9]", "0.4 + 0.1")],
    "ambiguous": ["SELECT COUNT(*) FROM events e JOIN cities c ON e.city = c.city WHERE city = 'x'"],
    "alias_twice": [
        "SELECT COUNT(*) FROM events x JOIN cities x ON x.city = x.city",
        "SELECT COUNT(*) FROM events e JOIN cities E ON e.city = 'a'",
    ],
    "cte_twice": ["WITH t AS (SELECT * FROM events), T AS (SELECT * FROM events) SELECT COUNT(*) FROM t"],
    "column_names": ["SELECT COUNT(*) FROM events AS e(a, b)", "WITH t(a, A) AS (SELECT city, kind FROM events) SELECT COUNT(*) FROM t"],
    "recursive": ["WITH RECURSIVE t AS (SELECT 1) SELECT COUNT(*) FROM t"],
    "join_kind": [
        f"SELECT COUNT(*) FROM events e {j}"
        for j in (
            "CROSS JOIN cities",
            "RIGHT JOIN cities c ON e.city = c.city",
            "FULL JOIN cities c ON e.city = c.city",
            "NATURAL JOIN cities",
            "SEMI JOIN cities c ON e.city = c.city",
            "ANTI JOIN cities c ON e.city = c.city",
            "ASOF JOIN cities c ON e.city >= c.city",
            "POSITIONAL JOIN cities",
        )
    ],
    "join_on": [
        f"SELECT COUNT(*) FROM events e {j}"
        for j in (
            "JOIN cities c ON e.amount > c.pop",
            "JOIN cities c ON TRUE",
            "JOIN cities c ON e.city = c.region",
            "LEFT JOIN cities c ON e.city = c.city AND c.pop > 5",
            ", cities c",
            "JOIN cities c ON c.city = c.region",
            "JOIN cities c ON e.city = c.city OR TRUE",
            "JOIN cities c ON c.city = 'x'",
        )
    ],
    "join_no_key": ["SELECT COUNT(*) FROM events e JOIN codes c ON c.code = e.qty"],
    "join_derived": ["SELECT COUNT(e.qty) FROM (SELECT e.qty FROM calendar c LEFT JOIN events e ON c.day = e.day) e"],
    "join_types": ["SELECT COUNT(*) FROM events e JOIN cities c ON e.qty = c.city"],
    "calendar_keys": ["SELECT c.city, COUNT(e.qty) FROM cities c LEFT JOIN events e ON e.city = c.city GROUP BY c.city"],
    "calendar_count": [
        "SELECT c.day, COUNT(*) FROM calendar c LEFT JOIN events e ON e.day = c.day GROUP BY c.day",
        "SELECT c.day, COUNT(1) FROM calendar c LEFT JOIN events e ON e.day = c.day GROUP BY c.day",
        "SELECT c.region, SUM(CLAMP(c.pop, 0, 9)) FROM cities c LEFT JOIN events e ON e.city = c.city GROUP BY 1",
    ],
    "no_from": ["SELECT COUNT(*)", "SELECT 1"],
    "alias_loop": ["SELECT b AS a, a AS b FROM events GROUP BY a"],
    "per_unit_aggregate": ["SELECT AVG(n) FROM (SELECT user_id, MEDIAN(amount) AS n FROM events GROUP BY user_id)"],
    "per_unit_distinct": [
        "SELECT COUNT(*) FROM (SELECT user_id, COUNT(DISTINCT city) AS a, COUNT(DISTINCT kind) AS b FROM events GROUP BY user_id)"
    ],
    "subquery_name": ["SELECT COUNT(*) FROM (SELECT city AS x, kind AS X FROM events)"],
    "too_many": [
        "SELECT " + ", ".join(["city"] * 501) + " FROM events GROUP BY city",
        "SELECT COUNT(*) FROM events GROUP BY " + ", ".join(f"qty + {n}" for n in range(33)),
        "SELECT "
        + ", ".join(f"SUM(CLAMP(qty, 0, {n}))" for n in range(1, 9))
        + ", "
        + ", ".join(f"SUM(qty * {n})" for n in range(2, 260))
        + " FROM events",
    ],
}
CASES = [(rule, sql) for table in (PRIVATE, OUTSIDE, GRAMMAR) for rule, texts in table.items() for sql in texts]


def told(sql, catalog=CATALOG, **given):
    with pytest.raises(DitherError) as found:
        ask(sql, catalog, **given)
    return found.value


@pytest.mark.parametrize(("rule", "sql"), CASES, ids=lambda x: x[:70])
def test_each_rule_refuses_what_breaks_it(rule, sql, keyed):
    error = told(sql, keyed)
    assert type(error) is RULES[rule].error, str(error)
    text = str(error)
    pattern = ".*?".join(re.escape(part) for part, *_ in string.Formatter().parse(RULES[rule].why))
    assert re.search(pattern, text), f"{text}\n  is not: {RULES[rule].why}"
    assert "{" not in text
    assert "\n" not in text
    assert text.endswith(".")
    assert len(text) < 1_200


@pytest.fixture
def keyed():
    from asked_tables import TABLES  # noqa: PLC0415
    from dither.query.facts import Catalog, Column, Table  # noqa: PLC0415

    return Catalog.of(
        *TABLES, Table(name="keyed", key="code", columns=(Column(name="code", type="int"), Column(name="label", type="text")))
    )


def test_every_rule_is_exercised():
    untested = set(RULES) - {rule for rule, _ in CASES}
    assert untested == {"whole_division"}  # PostgreSQL's, below


def test_whole_division_of_another_dialect():
    error = told("SELECT COUNT(*) FROM events WHERE qty / 2 > 1", dialect="postgres")
    assert "without a rest" in str(error)


def test_every_rule_of_privacy_is_a_refusal():
    assert all(RULES[rule].error is RefusedError for rule in PRIVATE if rule != "public_only")


@pytest.mark.parametrize(
    ("sql", "listed"),
    [
        ("SELECT COUNT(*) FROM evnets", "events"),
        ("SELECT COUNT(*) FROM events WHERE cty = 'a'", "city"),
        ("SELECT COUNT(*) FROM events e WHERE x.city = 'a'", "e"),
        ("SELECT COUNT(*) FROM events WHERE rowid = 1", "amount"),
        ("WITH t AS (SELECT city FROM events) SELECT SUM(amount) FROM t", "city"),
        ("SELECT x FROM (SELECT city, COUNT(*) AS n FROM events GROUP BY city)", "n"),
        ("SELECT x.n FROM (SELECT city, COUNT(*) AS n FROM events GROUP BY city) t", "t"),
        ("SELECT DATE_TRUNC('fortnight', ts), COUNT(*) FROM events GROUP BY 1", "month"),
        ("SELECT EXTRACT(millennium FROM ts), COUNT(*) FROM events GROUP BY 1", "year"),
        ("SELECT COUNT(*) FROM events JOIN cities USING (town)", "city"),
    ],
)
def test_unknown_names_list_those_there_are(sql, listed):
    error = told(sql)
    if isinstance(error, UnknownNameError):
        assert listed in error.known
    else:
        assert "USING" in sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT LOWER(amount), COUNT(*) FROM events GROUP BY 1",
        "SELECT COUNT(*) FROM events WHERE amount > 'a'",
        "SELECT COUNT(*) FROM events WHERE amount AND TRUE",
        "SELECT COUNT(*) FROM events WHERE city LIKE kind",
        "SELECT SUM(CLAMP(raw, qty, 5)) FROM events",
        "SELECT SUM(CLAMP(raw, 5, 1)) FROM events",
        "SELECT COUNT(*) FROM events WHERE amount > 1e999",
        f"SELECT COUNT(*) FROM events WHERE amount > {'9' * 400}",
        f"SELECT COUNT(*) FROM events WHERE city = '{'x' * 70_000}'",
        "SELECT COUNT(*) FROM events WHERE POWER(amount, 'a') > 1",
    ],
)
def test_operands_that_do_not_fit_are_told_with_their_place(sql):
    error = told(sql)
    assert type(error) is InputError
    assert "line 1, column" in str(error)
    assert len(str(error)) < 400


def test_the_text_does_not_depend_on_declared_ranges_of_other_columns():
    assert str(told("SELECT amount FROM events")) == (
        "amount (line 1, column 8) is refused: it is one person's value, and only aggregates over many people leave."
        " Aggregate it, such as COUNT(*) or AVG(amount), or name it in GROUP BY."
    )


def test_fragments_are_one_short_printable_line():
    assert cut("a\n\tb\x1b[31m") == "a b\N{REPLACEMENT CHARACTER}[31m"
    assert len(cut("x" * 10_000)) == FRAGMENT_MAX
    assert "{" in str(refuse("several", "{oops}"))  # braces of the query are no places of the text
    assert str(wrong("f", "", "no.")) == "f is not allowed: no."
