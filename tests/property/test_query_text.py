"""Whatever the text, asking gives a question or one of the house's errors: no other exception, no long thought, no warning.

Three kinds of text: any characters, any SQL words in any order, and good queries with something changed. A question that is made must
satisfy what the engine relies on, checked by ``sound``.
"""

import logging
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from asked_tables import CATALOG
from dither.core.errors import DitherError, RefusedError
from dither.query.bind import ask
from dither.query.expr import columns_of
from dither.query.question import Extend, Filter, JoinPublic, PerUnit, Scan

QUERIES = """
SELECT city, COUNT(*) AS n, AVG(amount) FROM events WHERE amount > 5 AND kind IN ('a', 'b') GROUP BY 1 HAVING n > 10
 ORDER BY n DESC LIMIT 5;
SELECT kind, COUNT(DISTINCT user_id) AS people, SUM(CLAMP(raw, 0, 10)) FROM events GROUP BY kind ORDER BY 2 NULLS FIRST;
SELECT CASE WHEN amount > 10 THEN 'hi' ELSE 'lo' END AS size, MEDIAN(amount), QUANTILE_CONT(amount, 0.9), MIN(qty) FROM events
 GROUP BY size;
WITH t AS (SELECT user_id, kind, COUNT(*) AS n, MAX(amount) AS m FROM events GROUP BY user_id, kind)
 SELECT kind, AVG(LEAST(n, 50)), AVG(m) FROM t WHERE n > 1 GROUP BY kind;
SELECT region, CORR(amount, qty), STDDEV(amount) FROM events AS e LEFT JOIN cities AS c ON e.city = c.city
 WHERE c.region = 'north' GROUP BY region;
SELECT c.day, COUNT(e.user_id), SUM(e.amount) FROM calendar c LEFT JOIN events e ON e.day = c.day GROUP BY c.day;
SELECT DATE_TRUNC('month', ts) AS m, 100.0 * SUM(amount) / NULLIF(COUNT(*), 0) FROM events WHERE ts >= '2024-01-01' GROUP BY m;
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, privacy_unit_column = user_id) MONTH(ts), COUNT(*)
 FROM events GROUP BY 1;
SELECT AVG(LEAST(s, 100)), COUNT(*) FROM
 (SELECT cust, SUM(price) AS s, COUNT(DISTINCT order_id) AS k FROM orders GROUP BY cust) t WHERE k > 2;
SELECT * FROM (SELECT city, COUNT(*) AS n FROM events GROUP BY city) WHERE n > 5 ORDER BY n DESC LIMIT 3;
SELECT UPPER(city) || '!' AS c, COUNT_IF(vip), SUM(amount) FILTER (WHERE qty BETWEEN 1 AND 3) FROM events
 WHERE city LIKE 'a%' GROUP BY 1
"""
GOOD = tuple(" ".join(q.split()) for q in QUERIES.split(";"))
VOCABULARY = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET JOIN LEFT ON USING AS AND OR NOT IN IS NULL CASE WHEN THEN ELSE END DISTINCT WITH
OVER ( ) , * . ; + - / % = < > <> || :: [ ] { } ' " ? $1 :x 1 0 2.5 1e9 'a' '2024-01-01' events orders lines cities calendar readings
user_id city kind amount qty raw ts day vip cust COUNT(*) COUNT( SUM( AVG( MIN( MEDIAN( CLAMP( COALESCE( CAST( INTERVAL DATE UNION ALL
EXISTS BETWEEN LIKE FILTER (WHERE PARTITION ROWS QUALIFY TABLESAMPLE UNNEST( LATERAL VALUES INSERT DROP EXPLAIN PIVOT OPTIONS
DIFFERENTIAL_PRIVACY epsilon -- /* */ NULLS FIRST ROLLUP( TRUE e c t n
"""
WORDS = VOCABULARY.split()
SEEMING = "еvents évents events\u200b ｅvents ſelect ＳＥＬＥＣＴ user＿id cіty"
LOOKALIKES = SEEMING.split(" ")
UNIT = ("user_id", "USER_ID", '"user_id"', "e.user_id", '"E"."User_Id"', "(user_id)", "user_id + 0", "-user_id", "COALESCE(user_id, 0)")


def columns_known(rows):
    """The columns of the rows; every expression on the way looks at columns that there are."""
    match rows:
        case Scan(table=table):
            return {c.name for c in table.columns}
        case Filter(rows=inner, condition=condition):
            known = columns_known(inner)
            assert columns_of(condition) <= known
            assert condition.type == "bool"
            return known
        case Extend(rows=inner, columns=columns):
            known = columns_known(inner)
            for name, expr in columns:
                assert columns_of(expr) <= known
                assert name.casefold() not in {k.casefold() for k in known}
            return known | {name for name, _ in columns}
        case JoinPublic(rows=inner, table=table, alias=alias, on=on, key=key):
            known = columns_known(inner)
            assert columns_of(on) <= known
            assert table.public
            assert table.key == key
            added = {f"{alias}.{c.name}" for c in table.columns}
            assert not {a.casefold() for a in added} & {k.casefold() for k in known}
            return known | added
        case PerUnit(rows=inner, keys=keys, columns=columns, ranges=ranges):
            known = columns_known(inner)
            assert len(ranges) == len(columns)
            for expr in [e for _, e in keys] + [e for *_, e in columns if e is not None]:
                assert columns_of(expr) <= known
            names = [n for n, _ in keys] + [n for n, *_ in columns]
            assert len({n.casefold() for n in names}) == len(names)
            return set(names)
    raise AssertionError(rows)


def scans(rows):
    return [rows.table] if isinstance(rows, Scan) else scans(rows.rows)


def sound(question):
    """What the engine relies on."""
    known = columns_known(question.rows)
    (table,) = scans(question.rows)
    assert table.unit == question.unit
    assert question.aggregates
    names = [g.name for g in question.groups]
    numbers = [n for i, a in enumerate(question.aggregates) for n in a.names(i)]
    assert len({n.casefold() for n in names + numbers}) == len(names) + len(numbers)
    for group in question.groups:
        assert columns_of(group.expr) <= known
        assert group.keys is None or len(set(group.keys)) == len(group.keys)
        if isinstance(question.rows, Scan | Filter) and question.unit.key is not None:
            assert question.unit.key not in columns_of(group.expr)
    for aggregate in question.aggregates:
        assert (aggregate.arg is None) == (aggregate.kind in {"rows", "units"})
        assert aggregate.arg is None or columns_of(aggregate.arg) <= known
        if aggregate.kind in {"sum", "quantiles"}:
            assert aggregate.low is not None
            assert aggregate.high is not None
            assert aggregate.low <= aggregate.high
        assert list(aggregate.levels) == sorted(set(aggregate.levels))
    after = {*names, *numbers}
    for expr in [o.expr for o in question.outputs] + [o.expr for o in question.order] + ([question.having] if question.having else []):
        assert columns_of(expr) <= after
    shown = [o.name.casefold() for o in question.outputs]
    assert len(set(shown)) == len(shown)


def tried(sql, dialect="duckdb"):
    """Ask: a question, or an error of the house whose text is short and holds no markup."""
    try:
        found = ask(sql, CATALOG, dialect=dialect)
    except DitherError as error:
        text = str(error)
        assert text.endswith(".")
        assert len(text) < 2_000
        assert "\n" not in text
        assert "\x1b" not in text
        assert "sqlglot" not in text
        return None
    sound(found.question)
    return found


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.DEBUG)
    yield
    assert caplog.records == []


@pytest.mark.parametrize("sql", GOOD)
def test_the_good_queries_are_good(sql):
    assert tried(sql) is not None


@given(st.text(max_size=200))
@example("SELECT\x00")
@example("SELECT \ud800")
@example("{{ x }}")
@example("{% x %}")
@example("SELECT * FROM events WHERE 'a' = '''")
def test_any_text(sql):
    tried(sql)


@given(st.text(alphabet="()[]{}'\"`-/*;,.:$?<>=!|&%#@\\ \n\tSELECTfromevents01", max_size=120))
def test_any_signs_after_select(sql):
    tried(f"SELECT {sql}")
    tried(f"SELECT COUNT(*) FROM events WHERE {sql}")


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_any_words(words):
    tried(" ".join(words))
    tried(f"SELECT {' '.join(words)}")
    tried(f"SELECT COUNT(*) FROM events WHERE {' '.join(words)}")


def mutants(count, seed):
    """Good queries with words dropped, doubled, swapped, exchanged or set in, or with characters changed."""
    source = random.Random(seed)
    for _ in range(count):
        words = source.choice(GOOD).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(" ")
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(words))
            match source.randrange(8):
                case 0:
                    words[at] = ""
                case 1:
                    words.insert(at, words[at])
                case 2:
                    other = source.randrange(len(words))
                    words[at], words[other] = words[other], words[at]
                case 3:
                    words[at] = source.choice(WORDS)
                case 4:
                    words.insert(at, source.choice(WORDS))
                case 5:
                    words[at] = source.choice(LOOKALIKES)
                case 6:
                    words[at] = words[at].swapcase()
                case _:
                    word = words[at]
                    cut = source.randrange(len(word) + 1)
                    words[at] = word[:cut] + chr(source.choice((source.randrange(32, 127), source.randrange(0x250, 0x3000)))) + word[cut:]
        yield " ".join(words)


def spliced(count, seed):
    """A piece of one good query in the middle of another."""
    source = random.Random(seed)
    for _ in range(count):
        one, two = source.choice(GOOD), source.choice(GOOD)
        a, b = sorted(source.randrange(len(one) + 1) for _ in range(2))
        c, d = sorted(source.randrange(len(two) + 1) for _ in range(2))
        yield one[:a] + two[c:d] + one[b:]


@pytest.mark.parametrize("seed", range(4))
def test_good_queries_changed(seed):
    found = [tried(sql) for sql in mutants(400, seed)]
    assert any(found)
    for sql in spliced(300, seed):
        tried(sql)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_good_queries_changed(seed):
    for sql in mutants(1_000, seed):
        tried(sql)
    for sql in spliced(500, seed):
        tried(sql)


@pytest.mark.parametrize("dialect", ["postgres", "bigquery", "spark", "snowflake"])
def test_good_queries_changed_in_other_dialects(dialect):
    for sql in GOOD:
        tried(sql, dialect)
    for sql in mutants(150, dialect):
        tried(sql, dialect)


@pytest.mark.parametrize(
    "word",
    ["user_id", "USER_ID", '"user_id"', "e.user_id", '"E"."User_Id"', "(user_id)", "user_id + 0", "-user_id", "COALESCE(user_id, 0)"],
)
@pytest.mark.parametrize("clause", ["GROUP BY {}", "GROUP BY city, {}", "GROUP BY GREATEST({}, 1)", "GROUP BY CASE WHEN vip THEN {} END"])
def test_the_unit_is_never_grouped_by(word, clause):
    with pytest.raises(RefusedError, match="each group would hold"):
        ask(f"SELECT COUNT(*) FROM events AS e {clause.format(word)}", CATALOG)


@given(st.sampled_from(GOOD), st.randoms(use_true_random=False))
def test_case_and_space_do_not_matter(sql, source):
    def told(text):
        question = ask(text, CATALOG).question
        return question.rows, [g.expr for g in question.groups], question.aggregates, question.having, question.limit

    pieces = sql.split("'")  # what is quoted stays
    changed = "'".join(
        "".join(source.choice((c.lower(), c.upper())) if c.isascii() else c for c in p).replace(" ", "\n ") if i % 2 == 0 else p
        for i, p in enumerate(pieces)
    )
    one, two = told(sql), told(changed)
    assert len(one[1]) == len(two[1])
    assert [a.kind for a in one[2]] == [a.kind for a in two[2]]
    assert one[4] == two[4]
