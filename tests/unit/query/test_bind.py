"""SQL → question: names, groups and their public keys, ranges, what is measured once, and the scopes of aliases."""

from datetime import date

import pytest

from asked_tables import CATALOG, EVENTS, SHOP, TABLES
from dither.core.errors import InputError, RefusedError
from dither.query.bind import ask
from dither.query.bind_outputs import HIGHEST, LOWEST
from dither.query.expr import columns_of
from dither.query.facts import Catalog, Column, Table
from dither.query.question import Aggregate, Extend, Filter, JoinPublic, PerUnit, Scan


def question(sql, catalog=CATALOG, **given):
    return ask(sql, catalog, **given).question


def keys(sql, **given):
    return [g.keys for g in question(sql, **given).groups]


# ------------------------------------------------------------------------------------------------ the whole


def test_a_question_in_full():
    sql = "SELECT City, COUNT(*) AS n FROM EVENTS AS e WHERE E.AMOUNT > 5 GROUP BY 1 HAVING n > 10 ORDER BY n DESC, 1 NULLS FIRST LIMIT 5"
    found = question(sql)
    assert found.sql == sql
    assert found.unit == EVENTS
    assert isinstance(found.rows, Filter)
    assert isinstance(found.rows.rows, Scan)
    assert str(found.rows.condition) == "amount > 5.0"
    assert [(g.name, str(g.expr), g.keys) for g in found.groups] == [("City", "city", None)]
    assert found.aggregates == (Aggregate(kind="rows"),)
    assert [(o.name, str(o.expr)) for o in found.outputs] == [("City", "City"), ("n", "a0")]
    assert str(found.having) == "a0 > 10"
    assert [(str(o.expr), o.descending, o.nulls_first) for o in found.order] == [("a0", True, False), ("City", False, True)]
    assert found.limit == 5


def test_options_come_with_the_question():
    asked = ask("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 2, privacy_unit_column = e.USER_ID) COUNT(*) FROM events e", CATALOG)
    assert asked.options.epsilon == 2
    assert asked.options.privacy_unit_column == "USER_ID"
    assert ask("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (privacy_unit_column = cust) COUNT(*) FROM orders", CATALOG).question.unit == SHOP


def test_an_option_names_the_unit_and_nothing_else():
    with pytest.raises(RefusedError, match="the unit of lines is uid"):
        ask("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (privacy_unit_column = order_id) COUNT(*) FROM lines", CATALOG)
    with pytest.raises(RefusedError, match="the unit of readings is one row"):
        ask("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (privacy_unit_column = x) COUNT(*) FROM readings", CATALOG)


def test_the_catalog_is_checked():
    with pytest.raises(InputError, match="a Catalog"):
        ask("SELECT COUNT(*) FROM events", {})


@pytest.mark.parametrize("dialect", ["postgres", "bigquery", "spark", "snowflake"])
def test_dialects_make_the_same_question(dialect):
    sql = "SELECT kind, AVG(amount) AS m FROM events WHERE amount > 5 GROUP BY kind"
    assert question(sql, dialect=dialect) == question(sql)


# ------------------------------------------------------------------------------------------------ what is measured


def measured(sql):
    return [(a.kind, None if a.arg is None else str(a.arg), a.low, a.high, a.levels) for a in question(sql).aggregates]


def test_sums_have_the_range_of_their_argument():
    assert measured("SELECT SUM(amount * qty - 10) FROM events") == [("sum", "(amount * qty) - 10.0", -10, 990, ())]
    assert measured("SELECT SUM(CASE WHEN vip THEN qty ELSE -3 END) FROM events")[0][2:4] == (-3, 10)
    assert measured("SELECT SUM(CLAMP(raw, -2, 7)) FROM events")[0][2:4] == (-2, 7)
    assert measured("SELECT SUM(LEAST(GREATEST(raw, 0), 10)) FROM events")[0][2:4] == (0, 10)
    assert measured("SELECT SUM(vip) FROM events")[0][2:4] == (0, 1)
    assert measured("SELECT SUM(user_id % 10) FROM events")[0][2:4] == (-9, 9)
    assert measured("SELECT SUM(SIGN(user_id)) FROM events")[0][2:4] == (-1, 1)
    assert measured("SELECT SUM(LEAST(n, 5)) FROM (SELECT user_id, COUNT(*) AS n FROM events GROUP BY 1)")[0][2:4] == (1, 5)


def test_the_same_aggregate_is_measured_once():
    assert len(measured("SELECT COUNT(*), COUNT(*) + 1, COUNT(1) FROM events HAVING COUNT(*) > 3 ORDER BY COUNT(*)")) == 1
    assert [m[0] for m in measured("SELECT AVG(amount), COUNT(amount), SUM(amount), STDDEV(amount), VAR_POP(amount) FROM events")] == [
        "count",
        "sum",
        "sum",
    ]
    assert [m[0] for m in measured("SELECT SUM(amount), AVG(amount) FROM events")] == ["sum", "count"]
    assert [m[:4] for m in measured("SELECT SUM(amount) FROM events")] == [("sum", "amount", 0, 100)]


def test_means_are_measured_from_the_middle():
    kind, text, low, high, _ = measured("SELECT AVG(amount) FROM events")[1]
    assert (kind, text, low, high) == ("sum", "CLAMP(amount, 0.0, 100.0) - 50.0", -50, 50)
    (output,) = question("SELECT AVG(amount) FROM events").outputs
    assert (output.expr.low, output.expr.high) == (0, 100)


def test_what_cannot_vary_is_not_measured():
    assert [m[0] for m in measured("SELECT AVG(3), SUM(3), VARIANCE(3), COUNT(*) FROM events")] == ["rows"]


def test_quantiles_of_one_value_are_one_aggregate():
    found = question("SELECT MAX(amount), MEDIAN(amount), QUANTILE_CONT(amount, 0.9), MIN(amount), MEDIAN(qty) FROM events")
    assert [(a.kind, str(a.arg), a.levels) for a in found.aggregates] == [
        ("quantiles", "amount", (LOWEST, 0.5, 0.9, HIGHEST)),
        ("quantiles", "qty", (0.5,)),
    ]
    assert [str(o.expr) for o in found.outputs] == ["a0_3", "a0_1", "a0_2", "a0_0", "a1_0"]


@pytest.mark.parametrize(
    "text",
    [
        "QUANTILE_CONT(amount, 0.9)",
        "PERCENTILE_CONT(amount, 0.9)",
        "APPROX_QUANTILE(amount, 0.9)",
        "QUANTILE(amount, 0.9)",
        "QUANTILE_DISC(amount, 0.9)",
        "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY amount)",
        "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY amount)",
    ],
)
def test_quantiles_in_their_forms(text):
    assert [m[4] for m in measured(f"SELECT {text} FROM events")] == [(0.9,)]


def test_a_descending_quantile_counts_from_the_other_end():
    assert measured("SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY amount DESC) FROM events")[0][4] == (0.75,)


def test_units_are_counted_by_their_key_alone():
    assert [m[0] for m in measured("SELECT COUNT(DISTINCT user_id), APPROX_COUNT_DISTINCT(user_id) FROM events")] == ["units"]
    assert [m[0] for m in measured("SELECT COUNT(DISTINCT cust) FROM orders")] == ["units"]
    assert [m[0] for m in measured("SELECT COUNT(DISTINCT who) FROM (SELECT user_id AS who FROM events)")] == ["units"]
    with pytest.raises(InputError):  # an order is not a unit: a person has many
        question("SELECT COUNT(DISTINCT order_id) FROM lines")
    with pytest.raises(InputError):
        question("SELECT COUNT(DISTINCT m) FROM (SELECT user_id, MAX(user_id) AS m FROM events GROUP BY user_id)")


def test_groups_alone_are_selected_by_something():
    assert [a.kind for a in question("SELECT DISTINCT city FROM events").aggregates] == ["units"]
    assert [a.kind for a in question("SELECT x FROM readings GROUP BY x").aggregates] == ["rows"]


# ------------------------------------------------------------------------------------------------ public keys


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT COUNT(*) FROM events GROUP BY city", None),
        ("SELECT COUNT(*) FROM events GROUP BY kind", ("a", "b", "c")),
        ("SELECT COUNT(*) FROM events WHERE kind <> 'b' GROUP BY kind", ("a", "c")),
        ("SELECT COUNT(*) FROM events WHERE kind = 'b' GROUP BY kind", ("b",)),
        ("SELECT COUNT(*) FROM events WHERE kind = 'z' GROUP BY kind", ()),
        ("SELECT COUNT(*) FROM events WHERE kind = 'b' OR amount > 3 GROUP BY kind", ("a", "b", "c")),
        ("SELECT COUNT(*) FROM events GROUP BY UPPER(kind)", ("A", "B", "C")),
        ("SELECT COUNT(*) FROM events GROUP BY kind = 'a'", (True, False)),
        ("SELECT COUNT(*) FROM events WHERE city IN ('y', 'x', 'y') GROUP BY city", ("y", "x")),
        ("SELECT COUNT(*) FROM events WHERE city IN ('x', NULL) GROUP BY city", ("x",)),
        ("SELECT COUNT(*) FROM events WHERE city NOT IN ('x') GROUP BY city", None),
        ("SELECT COUNT(*) FROM events WHERE city = 'x' OR city IN ('y') GROUP BY city", ("x", "y")),
        ("SELECT COUNT(*) FROM events WHERE city = 'x' OR vip GROUP BY city", None),
        ("SELECT COUNT(*) FROM events WHERE city IN ('x', 'yy') AND LENGTH(city) > 1 GROUP BY city", ("yy",)),
        ("SELECT COUNT(*) FROM events WHERE city IN ('x', 'y') GROUP BY LOWER(city) || '!'", ("x!", "y!")),
        ("SELECT COUNT(*) FROM events WHERE qty IN (1, 2) GROUP BY qty", (1, 2)),
        ("SELECT COUNT(*) FROM events WHERE qty IN (1.0, 2.5) GROUP BY qty", None),
        ("SELECT COUNT(*) FROM events WHERE YEAR(ts) IN (2023, 2024) GROUP BY YEAR(ts)", (2023, 2024)),
        ("SELECT COUNT(*) FROM events WHERE YEAR(ts) = 2024 AND MONTH(ts) < 3 GROUP BY MONTH(ts)", (1, 2)),
        ("SELECT COUNT(*) FROM events WHERE day = DATE '2024-01-05' GROUP BY day", (date(2024, 1, 5),)),
        ("SELECT COUNT(*) FROM events GROUP BY vip", (False, True, None)),
        ("SELECT COUNT(*) FROM events WHERE vip GROUP BY vip", (True,)),
        ("SELECT COUNT(*) FROM events WHERE vip IS NOT NULL GROUP BY vip", (False, True)),
        ("SELECT COUNT(*) FROM events GROUP BY amount > 5", (False, True, None)),
        ("SELECT COUNT(*) FROM events GROUP BY CASE WHEN amount > 5 THEN 'hi' ELSE 'lo' END", ("hi", "lo")),
        ("SELECT COUNT(*) FROM events GROUP BY CASE WHEN amount > 5 THEN 'hi' END", ("hi", None)),
        ("SELECT COUNT(*) FROM events GROUP BY CASE WHEN amount > 5 THEN city ELSE 'lo' END", None),
        ("SELECT COUNT(*) FROM events JOIN calendar USING (day) GROUP BY day", (date(2024, 1, 1), date(2024, 1, 2))),
        ("SELECT COUNT(*) FROM events LEFT JOIN calendar c USING (day) GROUP BY events.day", None),
        ("SELECT COUNT(*) FROM events JOIN cities USING (city) GROUP BY region", ("north", "south")),
        ("SELECT COUNT(e.qty) FROM cities c LEFT JOIN events e ON e.city = c.city WHERE c.city IN ('x') GROUP BY c.city", ("x",)),
    ],
)
def test_keys_are_public_where_the_text_or_the_facts_say_them(sql, expected):
    (found,) = keys(sql)
    assert found == expected
    assert found is None or [type(k) for k in found] == [type(k) for k in expected]


def test_a_condition_beside_an_or_does_not_narrow():
    assert keys("SELECT COUNT(*) FROM events WHERE NOT (kind = 'a' AND vip) GROUP BY kind") == [("a", "b", "c")]


# ------------------------------------------------------------------------------------------------ names and scopes


def test_a_column_goes_before_an_alias_in_group_by_and_where():
    found = question("SELECT kind AS city, COUNT(*) FROM events WHERE city = 'x' GROUP BY kind, city")
    assert [str(g.expr) for g in found.groups] == ["kind", "city"]
    assert str(found.rows.condition) == "city = 'x'"


def test_an_alias_goes_before_a_column_in_order_by():
    found = question("SELECT city, SUM(amount) AS qty FROM events GROUP BY city, qty ORDER BY qty")
    assert str(found.order[0].expr) == "a0"


def test_an_alias_stands_for_an_aggregate_in_having():
    assert str(question("SELECT SUM(amount) AS amount FROM events HAVING amount > 3").having) == "a0 > 3.0"


def test_aliases_build_on_aliases():
    found = question("SELECT qty AS q, q + 1 AS w, COUNT(*) AS n, n * 2 AS m FROM events GROUP BY q, w")
    assert [str(g.expr) for g in found.groups] == ["qty", "qty + 1"]
    assert [o.name for o in found.outputs] == ["q", "w", "n", "m"]


def test_a_part_of_with_shadows_a_table_and_reads_it():
    found = question("WITH events AS (SELECT * FROM events WHERE vip) SELECT COUNT(*) FROM events")
    assert isinstance(found.rows, Filter)
    found = question("WITH cities AS (SELECT city FROM events) SELECT COUNT(*) FROM cities")
    assert found.unit == EVENTS


def test_an_inner_part_of_with_ends_with_its_query():
    with pytest.raises(InputError, match="Unknown table 'inside'"):
        question("WITH t AS (WITH inside AS (SELECT * FROM events) SELECT * FROM inside) SELECT COUNT(*) FROM inside")


def test_a_sub_query_does_not_see_the_outer_tables():
    with pytest.raises(InputError, match="Unknown table of the query 'o'"):
        question("SELECT COUNT(*) FROM (SELECT user_id FROM events WHERE o.city = city) AS o")


def test_dropped_columns_are_gone():
    with pytest.raises(InputError, match="Unknown column 'amount'"):
        question("SELECT SUM(amount) FROM (SELECT city FROM events)")


def test_names_that_need_quotes():
    found = question('SELECT "SAY ""X""" AS "a b.c", COUNT(*), COUNT(DISTINCT "a.b") FROM "Odd Names" GROUP BY 1')
    assert [(g.name, str(g.expr)) for g in found.groups] == [('SAY "X"', 'say "x"')]
    assert found.outputs[0].name == "a b.c"
    assert [a.kind for a in found.aggregates] == ["rows", "units"]


def test_a_group_is_never_called_like_an_aggregate():
    found = question('SELECT a0, COUNT(*) AS n FROM "odd names" GROUP BY a0 HAVING n > 1 ORDER BY a0')
    assert found.groups[0].name == "a0_"
    assert [str(o.expr) for o in found.outputs] == ["a0_", "a0"]
    assert [o.name for o in found.outputs] == ["a0", "n"]


def test_outputs_have_names_of_their_own():
    assert [o.name for o in question("SELECT COUNT(*), COUNT(*), city, CITY FROM events GROUP BY city").outputs] == [
        "count(*)",
        "count(*)_1",
        "city",
        "city_1",
    ]


def test_a_dot_in_a_name_does_not_make_two_columns_one():
    catalog = Catalog.of(
        Table(name="t", unit=EVENTS, columns=(Column(name="user_id", type="int"), Column(name="c.city", type="text"))),
        Table(name="c", key="city", columns=(Column(name="city", type="text"),)),
    )
    found = question('SELECT c.city, "c.city", COUNT(*) FROM t JOIN c ON c.city = "c.city" GROUP BY 1, 2', catalog)
    assert isinstance(found.rows, JoinPublic)
    assert [str(g.expr) for g in found.groups] == ["c_.city", "c.city"]


@pytest.mark.parametrize("name", ["еvents", "evénts", "events\u200b", "ｅvents"])
def test_names_that_only_look_alike_are_unknown(name):
    with pytest.raises(InputError):
        question(f'SELECT COUNT(*) FROM "{name}"')


def test_hints_and_comments_say_nothing():
    assert question("SELECT /*+ PARALLEL(8) */ COUNT(*) /* x */ FROM events -- y").aggregates == (Aggregate(kind="rows"),)


# ------------------------------------------------------------------------------------------------ sub-queries and joins


def test_a_sub_query_by_unit_has_one_row_for_each():
    found = question(
        "SELECT AVG(LEAST(n, 9)), COUNT(DISTINCT user_id)"
        " FROM (SELECT user_id, COUNT(*) AS n FROM events WHERE vip GROUP BY user_id HAVING n > 1)"
    )
    assert isinstance(found.rows, Filter)
    per = found.rows.rows
    assert isinstance(per, PerUnit)
    assert [n for n, _ in per.keys] == ["user_id"]
    assert per.columns == (("n", "rows", None),)
    assert per.ranges == ((1, None),)
    assert [a.kind for a in found.aggregates] == ["rows", "sum", "units"]


def test_a_foreign_key_to_one_unit_may_be_grouped_by_inside():
    found = question("SELECT AVG(LEAST(n, 9)) FROM (SELECT order_id, COUNT(*) AS n FROM lines GROUP BY order_id)")
    assert isinstance(found.rows, PerUnit)
    assert found.unit == SHOP


def test_expressions_of_sub_queries_become_columns():
    found = question("SELECT AVG(y) FROM (SELECT amount * 2 AS y FROM events)")
    assert isinstance(found.rows, Extend)
    assert [(n, str(e)) for n, e in found.rows.columns] == [("y", "amount * 2.0")]
    twice = question("SELECT COUNT(*) FROM (SELECT amount + 1 AS amount FROM (SELECT amount + 1 AS amount FROM events)) WHERE amount > 3")
    assert columns_of(twice.rows.condition) == {"amount_2"}


def test_nested_doubling_stays_small():
    sql = "SELECT amount FROM events"
    for _ in range(25):
        sql = f"SELECT amount + amount AS amount FROM ({sql})"
    assert question(f"SELECT SUM(CLAMP(amount, 0, 1)) FROM ({sql})").aggregates[0].arg.size < 10


def test_an_answer_shown_again_costs_the_same():
    inner = "SELECT city, COUNT(*) AS n FROM events GROUP BY city HAVING COUNT(*) > 2"
    one, two = question(inner), question(f"SELECT n * 2 AS d FROM ({inner}) AS t WHERE t.n > 5 ORDER BY d DESC LIMIT 3")
    assert (one.rows, one.groups, one.aggregates) == (two.rows, two.groups, two.aggregates)
    assert str(two.having) == "(a0 > 2) AND (a0 > 5)"
    assert [str(o.expr) for o in two.order] == ["a0 * 2.0"]
    assert two.limit == 3


def test_a_join_of_the_unit_to_a_public_table_still_tells_the_unit():
    catalog = Catalog.of(
        *TABLES, Table(name="keyed", key="code", columns=(Column(name="code", type="int"), Column(name="label", type="text")))
    )
    with pytest.raises(RefusedError):
        question("SELECT COUNT(*) FROM events e JOIN keyed k ON k.code = e.user_id GROUP BY k.code + 1", catalog)
    assert (
        question("SELECT label, COUNT(*) FROM events e JOIN keyed k ON k.code = e.user_id GROUP BY label", catalog).groups[0].keys is None
    )


def test_two_joins_of_one_table_are_told_apart():
    found = question(
        "SELECT a.region, b.region, COUNT(*) FROM events e JOIN cities a ON a.city = e.city JOIN cities b ON b.city = e.kind GROUP BY 1, 2"
    )
    assert [str(g.expr) for g in found.groups] == ["a.region", "b.region"]
    assert len({g.name for g in found.groups}) == 2


def test_inner_aliases_do_not_meet_outer_ones():
    found = question(
        "SELECT c.region, x, COUNT(*) FROM (SELECT e.city, c.region AS x FROM events e JOIN cities c ON c.city = e.city) t"
        " JOIN cities c ON c.city = t.city GROUP BY 1, 2"
    )
    assert len({str(g.expr) for g in found.groups}) == 2
