"""Text → one SELECT, within bounds; GoogleSQL's clause; every failure one sentence that says where."""

import pytest
from sqlglot import exp

from dither.core.errors import InputError, RefusedError, UnknownNameError
from dither.query.parse import DIALECTS, TEXT_MAX, Options, parse, place


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM t",
        "select count(*) from t;",
        " \n SELECT COUNT(*) FROM t ; ; ",
        "(SELECT COUNT(*) FROM t)",
        "((SELECT COUNT(*) FROM t))",
        "WITH a AS (SELECT * FROM t) SELECT COUNT(*) FROM a",
        "FROM t SELECT COUNT(*)",
        "SELECT /* a ; in a comment */ COUNT(*) -- and ; here\nFROM t",
        "SELECT ';' FROM t",
    ],
)
def test_one_select_is_read(sql):
    assert isinstance(parse(sql).tree, exp.Select)
    assert parse(sql).options == Options()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_reads_plain_sql(dialect):
    assert isinstance(parse("SELECT city, COUNT(*) AS n FROM t WHERE x > 1 GROUP BY city", dialect=dialect).tree, exp.Select)


def test_an_unknown_dialect_lists_those_there_are():
    with pytest.raises(UnknownNameError, match="duckdb"):
        parse("SELECT 1", dialect="mysql")


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE t",
        "INSERT INTO t VALUES (1)",
        "EXPLAIN SELECT 1",
        "PRAGMA version",
        "SET x = 1",
        "ATTACH 'x.db'",
        "COPY t TO 'x'",
        "DESCRIBE t",
        "SUMMARIZE t",
        "PIVOT t ON x USING SUM(y)",
        "VALUES (1)",
        "CALL f()",
        "EXPORT DATABASE 'x'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "VACUUM",
        "BEGIN",
        "CREATE TABLE x AS SELECT 1",
        "WITH a AS (SELECT 1) INSERT INTO t SELECT 1",
        "WITH a AS (SELECT 1) DELETE FROM t",
        "SHOW TABLES",
        "WITH t AS (DROP user_id, kind, COUNT(*) FROM t) SELECT COUNT(*) FROM t",
        "WITH t AS (SET x) SELECT 1",
        "t",
        "1",
    ],
)
def test_anything_but_a_select_is_refused(sql, caplog):
    with pytest.raises(RefusedError, match="only one SELECT"):
        parse(sql)
    assert caplog.records == []  # the parser logs nothing of the query


@pytest.mark.parametrize("sql", ["SELECT 1; SELECT 2", "SELECT 1;DROP TABLE t", "SELECT COUNT(*) FROM t; --\n;\nDELETE FROM t"])
def test_one_statement_at_a_time(sql):
    with pytest.raises(RefusedError, match="one statement"):
        parse(sql)


@pytest.mark.parametrize("sql", ["SELECT 1 UNION SELECT 2", "SELECT 1 EXCEPT SELECT 2", "(SELECT 1) INTERSECT ALL (SELECT 1)"])
def test_set_operations_are_refused(sql):
    with pytest.raises(RefusedError, match="UNION"):
        parse(sql)


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("SELECT 'abc", "line 1, column 8"),
        ('SELECT\n  "abc', "line 2, column 3"),
        ("SELECT a\n FROM (", "line 2, column 7"),
        ("SELECT a b c FROM t", "line 1, column 12"),
        ("SELECT /* a", "line 1, column 8"),
        ("SELECT a FROM t WHERE", "line 1"),
        ("SELECT COUNT( FROM t", "line 1"),
        ("SELECT $$a", "line 1, column 8"),
    ],
)
def test_what_cannot_be_read_says_where(sql, where):
    with pytest.raises(InputError, match=where) as told:
        parse(sql)
    text = str(told.value)
    assert "\x1b" not in text
    assert "sqlglot" not in text
    assert "\n" not in text


@pytest.mark.parametrize("sql", ["", "   ", ";", " ; ; ", "-- nothing", None, 1, b"SELECT 1", ["SELECT 1"]])
def test_nothing_at_all(sql):
    with pytest.raises(InputError):
        parse(sql)


@pytest.mark.parametrize("char", ["\0", "\x07", "\x1b", "\x7f", "\ud800"])
def test_control_characters_are_refused(char):
    with pytest.raises(InputError, match="line 1, column 9"):
        parse(f"SELECT x{char} FROM t")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 10_000 + "1" + ")" * 10_000,
        "SELECT " + "(" * 33 + "1" + ")" * 33,
        "SELECT " + "NOT " * 5_000 + "TRUE",
        "SELECT " + "- " * 5_000 + "1",
        "SELECT " + "CASE WHEN a THEN " * 40 + "1" + " END" * 40,
        "SELECT 1" + " + 1" * 1_000,
        "SELECT x" + "[1]" * 500 + " FROM t",
        "SELECT x" + "::INT" * 500 + " FROM t",
        "SELECT x" + " IS NULL" * 500 + " FROM t",
        "SELECT x" + " || x" * 2_000 + " FROM t",
        "SELECT " + "{" * 70 + "}" * 70,
        "SELECT " + "f(" * 200 + ")" * 200,
        "SELECT * FROM " + "(SELECT * FROM " * 60 + "t" + ")" * 60,
        "SELECT 1" + " UNION SELECT 1" * 500,
        "SELECT INTERVAL " + "INTERVAL " * 200 + "1 DAY",
        "SELECT " + "EXISTS " * 100 + "(SELECT 1)",
        "SELECT " + "a" * (TEXT_MAX + 1),
        "SELECT " + "1," * 60_000 + "1",
        "SELECT x FROM t WHERE " + " AND ".join(["x = 1"] * 6_000),
        "A" * 1_000_000,
    ],
    ids=lambda sql: sql[:24],
)
def test_size_and_depth_are_bounded(sql):
    with pytest.raises(InputError, match=r"nests too deep|shorter"):
        parse(sql)


def test_long_chains_of_and_are_flat():
    assert parse("SELECT x FROM t WHERE " + " AND ".join(["x = 1"] * 3_000)).tree.args["where"]


@pytest.mark.parametrize("text", ["MAX()", "SUM()", "LOWER()", "MAX() FILTER (WHERE x)", "COVAR_POP(x)", "NULLIF(x)", "QUANTILE_CONT()"])
def test_what_lacks_a_part_is_told(text):
    with pytest.raises(InputError, match=r"cannot be read"):
        parse(f"SELECT {text} FROM t")


def test_place_counts_from_one():
    assert place("a\nbc", 0) == "line 1, column 1"
    assert place("a\nbc", 3) == "line 2, column 2"


# ------------------------------------------------------------------------------------------------ GoogleSQL's clause


def test_options_are_read():
    found = parse(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1.5, Delta=1e-6, max_groups_contributed = 3,"
        " MAX_ROWS_PER_GROUP = 2, privacy_unit_column = user_id) city, COUNT(*) FROM t GROUP BY city"
    )
    assert found.options == Options(epsilon=1.5, delta=1e-6, max_groups_contributed=3, max_rows_per_group=2, privacy_unit_column="user_id")
    assert [e.sql() for e in found.tree.expressions] == ["city", "COUNT(*)"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT WITH DIFFERENTIAL_PRIVACY COUNT(*) FROM t",
        "select with differential_privacy options() count(*) from t",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1,) COUNT(*) FROM t",
        "WITH a AS (SELECT * FROM t) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) COUNT(*) FROM a",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column=t.id) COUNT(*) FROM t",
        'SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(privacy_unit_column="id") COUNT(*) FROM t',
    ],
)
def test_the_clause_in_its_forms(sql):
    assert [e.sql() for e in parse(sql).tree.expressions] == ["COUNT(*)"]


def test_places_after_the_clause_are_those_of_the_text():
    with pytest.raises(InputError, match="line 2, column 28"):
        parse("SELECT WITH DIFFERENTIAL_PRIVACY\n OPTIONS (epsilon = 1) a b cc d FROM t")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("(epsilon = 0)", "epsilon"),
        ("(epsilon = 1e9)", "epsilon"),
        ("(epsilon = 1e999)", "epsilon"),
        ("(delta = 1)", "delta"),
        ("(epsilon = -1)", "OPTIONS"),
        ("(epsilon = 'a')", "OPTIONS"),
        ("(epsilon = 1 + 1)", "OPTIONS"),
        ("(epsilon = )", "OPTIONS"),
        ("(epsilon 1)", "OPTIONS"),
        ("(epsilon = 1", "OPTIONS"),
        ("epsilon = 1", "OPTIONS"),
        ("(epsilon = 1, epsilon = 2)", "twice"),
        ("(eps = 1)", "Unknown option"),
        ("(max_groups_contributed = 0)", "max_groups_contributed"),
        ("(max_groups_contributed = 1.5)", "max_groups_contributed"),
        ("(max_rows_per_group = 99999999999999999999)", "max_rows_per_group"),
        ("(privacy_unit_column = 3)", "OPTIONS"),
        ("(privacy_unit_column = a b c d)", "OPTIONS"),
    ],
)
def test_wrong_options_are_told(options, told):
    with pytest.raises(InputError, match=told):
        parse(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS {options} COUNT(*) FROM t")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) COUNT(*) FROM t)",
        "SELECT WITH DIFFERENTIAL_PRIVACY a FROM t UNION SELECT WITH DIFFERENTIAL_PRIVACY a FROM t",
    ],
)
def test_the_clause_stands_once_and_outermost(sql):
    with pytest.raises(InputError, match="once, in the outermost"):
        parse(sql)
