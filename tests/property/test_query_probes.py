"""Attacks of one line on which other engines of private SQL tell of one person: here every one of them must come to nothing.

Each is asked of a table without and with user 7, whose row holds the odd value. With the mechanisms on a script the two answers must be
one; what the mechanisms are given must differ by no more than their noise covers; with real noise the answer has the kind it always has.
"""

import math
from datetime import datetime

import pytest

from asked_script import Script, covered, frame, scripting
from dither.core.errors import DitherError
from dither.core.units import Neighbors, PrivacyUnit
from dither.query.answer import answer, plan_question
from dither.query.bind import ask
from dither.query.duck import open_source
from dither.query.facts import Catalog, Column, Table

KEY, TOP = "secretkey", 2**63 - 1
COLUMNS = (
    Column(name="user_id", type="int"),
    Column(name="g", type="text"),
    Column(name="kind", type="text", values=("a", "b")),
    Column(name="x", type="float", low=0, high=100),
    Column(name="raw", type="float"),
    Column(name="k", type="int"),
    Column(name="at", type="timestamp"),
    Column(name="note", type="text"),
)
NORMAL = {"g": "a", "kind": "a", "x": 10.0, "raw": 10.0, "k": 1, "at": datetime(2024, 1, 1), "note": "12"}  # noqa: DTZ001 - in UTC
BASE = [{**NORMAL, "user_id": u, "g": "ab"[u % 2], "kind": "ab"[u % 2], "x": 10.0 + u % 5, "raw": 10.0 + u % 5} for u in range(100, 400)]
NEVER = datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - in UTC

PROBES = {
    "zero divisor in WHERE": ("SELECT COUNT(*) AS n FROM t WHERE 1 / (user_id - 7) < 2", {}),
    "zero divisor on a value": ("SELECT COUNT(*) AS n FROM t WHERE 1 / (x - 50) < 2", {"x": 50.0}),
    "zero divisor in an aggregate": ("SELECT SUM(CLAMP(1 / (x - 50), 0, 9)) AS n FROM t", {"x": 50.0}),
    "remainder by zero": ("SELECT COUNT(*) AS n FROM t WHERE CAST(x AS BIGINT) % CLAMP(k, 0, 9) >= 0", {"k": 0}),
    "whole numbers overflow": ("SELECT COUNT(*) AS n FROM t WHERE k + k > 0", {"k": TOP}),
    "products overflow": ("SELECT SUM(CLAMP(raw * raw * raw, 0, 1)) AS n FROM t", {"raw": 1e308}),
    "the least whole number negated": ("SELECT COUNT(*) AS n FROM t WHERE ABS(-k) > 0", {"k": -(2**63)}),
    "root of a negative": ("SELECT COUNT(*) AS n FROM t WHERE SQRT(user_id - 8) > 0", {}),
    "logarithm of zero": ("SELECT SUM(CLAMP(LN(x), 0, 9)) AS n FROM t", {"x": 0.0}),
    "exponential overflows": ("SELECT AVG(CLAMP(EXP(raw), 0, 9)) AS n FROM t", {"raw": 1e6}),
    "NaN in a sum": ("SELECT SUM(x) AS n, AVG(x) AS m FROM t", {"x": math.nan}),
    "infinity in a sum": ("SELECT SUM(x) AS n, AVG(x) AS m FROM t", {"x": math.inf}),
    "minus infinity in a sum": ("SELECT SUM(CLAMP(raw, -5, 5)) AS n FROM t", {"raw": -math.inf}),
    "infinity less infinity": ("SELECT SUM(CLAMP(raw - raw, 0, 1)) AS n FROM t", {"raw": math.inf}),
    "NaN is compared": ("SELECT COUNT(*) AS n FROM t WHERE raw > 1e9 OR raw <> raw", {"raw": math.nan}),
    "NaN put in for NULL": ("SELECT SUM(CLAMP(COALESCE(x, CAST(note AS DOUBLE)), 0, 9)) AS n FROM t", {"x": None, "note": "nan"}),
    "a cast that fails": ("SELECT SUM(CLAMP(CAST(note AS DOUBLE), 0, 50)) AS n FROM t", {"note": "no number"}),
    "a date that is none": ("SELECT COUNT(*) AS n FROM t WHERE CAST(note AS DATE) > '2024-01-01'", {"note": "2024-02-30"}),
    "a float too large for a whole number": ("SELECT SUM(CLAMP(CAST(raw AS BIGINT), 0, 9)) AS n FROM t", {"raw": 1e300}),
    "time overflows": ("SELECT COUNT(*) AS n FROM t WHERE at + INTERVAL 1 DAY > '2024-01-01'", {"at": NEVER}),
    "quantiles of the same and one odd": ("SELECT MEDIAN(x) AS n, QUANTILE_CONT(x, 0.99) AS m FROM t", {"x": math.nan}),
    "quantiles with infinity": ("SELECT MEDIAN(CLAMP(raw, 0, 100)) AS n FROM t", {"raw": math.inf}),
    "spread of an odd value": ("SELECT STDDEV(x) AS n, CORR(x, CLAMP(k, 0, 5)) AS m FROM t", {"x": math.inf, "k": TOP}),
    "a key that only she has": ("SELECT g, COUNT(*) AS n FROM t GROUP BY g", {"g": KEY}),
    "a key that only she has, public keys": ("SELECT kind, COUNT(*) AS n FROM t GROUP BY kind", {"kind": KEY}),
    "a key of hers that is computed": ("SELECT UPPER(note) AS g, COUNT(DISTINCT user_id) AS n FROM t GROUP BY 1", {"note": KEY}),
    "a number of hers as a key": ("SELECT raw AS g, COUNT(*) AS n FROM t GROUP BY 1", {"raw": 1e308}),
    "NULL as a key": ("SELECT note AS g, COUNT(*) AS n FROM t GROUP BY 1", {"note": None}),
    "HAVING on what is noisy": ("SELECT kind, COUNT(*) AS n FROM t GROUP BY kind HAVING 1 / (COUNT(*) - 150) < 5", {}),
    "ORDER BY and LIMIT": ("SELECT kind, SUM(x) AS n FROM t GROUP BY kind ORDER BY n / 0, LN(n - 1e9) LIMIT 1", {}),
    "a long text": ("SELECT SUM(CLAMP(LENGTH(note), 0, 5)) AS n FROM t WHERE note LIKE '%aab'", {"note": "a" * 10**6}),
    "extremes within one": (
        "SELECT AVG(CLAMP(s, 0, 9)) AS n FROM (SELECT user_id, SUM(raw) AS s, MAX(k) AS m FROM t GROUP BY user_id) w",
        {"raw": -1e308},
    ),
}
REFUSED = {
    "a function that raises": "SELECT COUNT(*) FROM t WHERE error(CASE WHEN user_id = 7 THEN 'her' END) IS NULL",
    "a function that asserts": "SELECT COUNT(*) FROM t WHERE assert_true(user_id <> 7) IS NULL",
    "a function that waits": "SELECT COUNT(*) FROM t WHERE CASE WHEN user_id = 7 THEN sleep(5) END IS NULL",
    "a pattern that takes long": "SELECT COUNT(*) FROM t WHERE regexp_matches(note, '(a+)+$')",
    "a sub-query on others": "SELECT COUNT(*) FROM t WHERE x > (SELECT MAX(x) FROM t WHERE user_id = 7)",
    "a file": "SELECT COUNT(*) FROM 'other.csv'",
    "a sum without bounds": "SELECT SUM(raw) FROM t",
    "her row": "SELECT * FROM t WHERE user_id = 7",
    "her alone as a group": "SELECT user_id, COUNT(*) FROM t GROUP BY user_id",
    "another unit": "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, privacy_unit_column = note) COUNT(*) FROM t",
    "a table twice": "SELECT COUNT(*) FROM t a JOIN t b ON a.g = b.g",
}


def table(key, neighbors="add_remove"):
    return Table(name="t", columns=COLUMNS, unit=PrivacyUnit(dataset="t", key=key, neighbors=neighbors))


def source(private, rows):
    return open_source((private, frame({c.name: (c.type, [r[c.name] for r in rows]) for c in COLUMNS})), threads=2)


@pytest.mark.parametrize("declared", [{}, {"rows_max": 1}], ids=["look", "declared"])
@pytest.mark.parametrize("name", PROBES)
def test_she_is_not_told_of(name, declared, monkeypatch):
    sql, odd = PROBES[name]
    private = table("user_id")
    hers = [{**NORMAL, **odd, "user_id": 7}] * (1 if declared else 3)
    without, having = source(private, BASE), source(private, [*BASE, *hers])
    plan = plan_question(ask(sql, Catalog.of(private)).question, epsilon=1, delta=1e-6, **declared)
    for each in (without, having):
        made = answer(plan, each)
        assert made.names == tuple(o.name for o in plan.question.outputs)
        assert KEY not in str(made.plain()).lower()
        for column in made.columns:
            assert all(v is None or (isinstance(v, int | str) or math.isfinite(v)) for v in column.values)
    run = scripting(monkeypatch)
    one, two = Script(3), Script(3)
    told = run(plan, having, one)
    two.shown = one.chosen
    assert run(plan, without, two) == told
    for mine, other in zip(one.given, two.given, strict=True):
        covered(mine, other, Neighbors.ADD_REMOVE)
    without.close()
    having.close()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_before_a_row_is_read(name):
    with pytest.raises(DitherError):
        ask(REFUSED[name], Catalog.of(table("user_id")))


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
def test_too_small_a_declared_bound_is_enforced(neighbors, monkeypatch):
    """She has a thousand rows where one is declared: what is given to the mechanism moves by what one row moves it."""
    private = table("user_id", neighbors)
    plan = plan_question(ask("SELECT SUM(x) AS n, COUNT(*) AS m FROM t", Catalog.of(private)).question, epsilon=1, rows_max=1)
    run = scripting(monkeypatch)
    given = []
    for hers in ([], [{**NORMAL, "user_id": 7, "x": 100.0}] * 1000):
        script, made = Script(3), source(private, [*BASE, *hers])
        run(plan, made, script)
        given.append(script.given)
        made.close()
    for mine, other in zip(*given, strict=True):
        covered(mine, other, plan.unit.neighbors)
    assert given[0] != given[1]
