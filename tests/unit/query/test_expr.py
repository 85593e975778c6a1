import math
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from dither.core.errors import InputError, UnknownNameError
from dither.query.expr import DEPTH_MAX, call, canonical, col, columns_of, lit, substitute
from dither.query.operators import OPERATORS, WHOLE_MAX
from dither.query.semantics import _STRICT, _WITH_NULL

X = col("x", "float")
Y = col("y", "float", low=-2, high=3)
I = col("i", "int")
J = col("j", "int", low=0, high=10)
T = col("t", "text")
B = col("b", "bool")
D = col("d", "date")
U = col("u", "timestamp")


def ends(expr):
    return expr.type, expr.low, expr.high


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (call("add", J, lit(1)), ("int", 1, 11)),
        (call("add", J, I), ("float", -(2.0**63), 2.0**63)),
        (call("add", J, lit(0.5)), ("float", 0.5, 10.5)),
        (call("sub", J, J), ("int", -10, 10)),
        (call("mul", Y, Y), ("float", -6, 9)),
        (call("mul", X, lit(2)), ("float", None, None)),
        (call("mul", col("a", "int", high=2**53, low=0), lit(1)), ("int", 0, WHOLE_MAX)),
        (call("mul", col("a", "int", high=2**53, low=0), lit(2)), ("float", 0, 2.0**54)),
        (call("div", lit(10), col("a", "int", low=0, high=4)), ("float", 2.5, 10)),
        (call("div", lit(10), col("a", "float", low=0, high=4)), ("float", 0, None)),
        (call("div", lit(10), Y), ("float", None, None)),
        (call("div", lit(10), lit(0)), ("float", 0, 0)),
        (call("mod", I, lit(3)), ("int", -2, 2)),
        (call("mod", J, I), ("int", 0, 10)),
        (call("neg", J), ("int", -10, 0)),
        (call("neg", I), ("float", -(2.0**63), 2.0**63)),
        (call("abs", Y), ("float", 0, 3)),
        (call("floor", call("div", J, lit(4))), ("int", 0, 3)),
        (call("ceil", Y), ("int", -2, 3)),
        (call("round", X), ("float", None, None)),
        (call("round", Y, lit(2)), ("float", -2, 3)),
        (call("sign", Y), ("int", -1, 1)),
        (call("sqrt", col("a", "float", low=-1, high=16)), ("float", 0, 4)),
        (call("power", Y, lit(2)), ("float", 0, 9.000000000009)),
        (call("power", Y, lit(-1)), ("float", None, None)),
        (call("least", J, lit(3)), ("int", 0, 3)),
        (call("greatest", Y, X), ("float", None, None)),
        (call("clamp", X, lit(0), lit(9)), ("float", 0, 9)),
        (call("clamp", I, lit(0), lit(9)), ("int", 0, 9)),
        (call("case", B, J, lit(20)), ("int", 0, 20)),
        (call("case", B, J, lit(None)), ("int", 0, 10)),
        (call("coalesce", J, lit(-1)), ("int", -1, 10)),
        (call("cast_int", Y), ("int", -2, 3)),
        (call("cast_int", X), ("int", -WHOLE_MAX, WHOLE_MAX)),
        (call("cast_int", T), ("int", -WHOLE_MAX, WHOLE_MAX)),
        (call("cast_float", B), ("float", 0, 1)),
        (call("month", D), ("int", 1, 12)),
        (call("dow", U), ("int", 0, 6)),
        (call("length", T), ("int", 0, 2**32)),
        (call("date_add", lit("month"), D, J), ("date", None, None)),
        (call("date_add", lit("hour"), D, J), ("timestamp", None, None)),
        (call("date_trunc", lit("MONTH"), U), ("timestamp", None, None)),
        (call("eq", D, U), ("bool", None, None)),
    ],
    ids=str,
)
def test_types_and_ranges(expr, expected):
    assert ends(expr) == expected


def test_ranges_of_rounded_functions_are_a_little_wider():
    for op, inner in (("ln", 4.0), ("log10", 4.0), ("exp", 4.0)):
        expr = call(op, col("a", "float", low=1, high=inner))
        value = {"ln": math.log, "log10": math.log10, "exp": math.exp}[op](inner)
        assert value < expr.high < value * (1 + 1e-11)


def test_what_can_be_null():
    whole = col("a", "int", nullable=False)
    assert not call("add", whole, lit(1)).nullable
    assert call("div", lit(1), whole).nullable
    assert not call("div", whole, lit(2)).nullable
    assert not call("coalesce", T, lit("")).nullable
    assert call("case", B, lit(1), lit(None)).nullable
    assert call("nullif", whole, lit(1)).nullable
    assert not call("is_null", T).nullable
    assert call("sqrt", col("a", "float", nullable=False)).nullable
    assert not call("sqrt", col("a", "float", low=0, nullable=False)).nullable


def test_finite_domains():
    city = col("city", "text", values=("Delhi", "Pune"))
    assert city.values == ("Delhi", "Pune")
    assert call("case", B, city, lit("else")).values == ("Delhi", "Pune", "else")
    assert call("coalesce", city, lit("Pune")).values == ("Delhi", "Pune")
    assert call("month", D).values == tuple(range(1, 13))
    assert call("gt", X, lit(0)).values == (False, True)
    assert call("lower", T).values is None
    assert ends(col("n", "int", values=(3, 1, None))) == ("int", 1, 3)
    assert col("n", "float", values=(3, 1)).values == (3.0, 1.0)


def test_columns_and_literals_are_checked():
    with pytest.raises(UnknownNameError, match="expected one of bool, date, float"):
        col("a", "decimal")
    with pytest.raises(InputError, match="low is above high"):
        col("a", "int", low=2, high=1)
    with pytest.raises(InputError, match="has no range"):
        col("a", "text", low=2)
    with pytest.raises(InputError, match="lists 'x', a text"):
        col("a", "int", values=("x",))
    for value in (math.nan, math.inf, 10**400, "a\0", "\ud800", "x" * 70_000, object(), b"x"):
        with pytest.raises(InputError):
            lit(value)


def test_literals():
    assert lit(10**20).type == "float"
    assert (lit(2**53 + 1).low, lit(2**53 + 1).high) == (2.0**53, 2.0**53 + 2)
    assert str(lit(-0.0)) == "0.0"
    assert lit(datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))).value == datetime(2024, 1, 1)  # noqa: DTZ001
    assert lit(datetime(2024, 1, 1, tzinfo=UTC)) == lit(datetime(2024, 1, 1))  # noqa: DTZ001
    with pytest.raises(InputError, match="leaves the calendar"):
        lit(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    assert len({lit(1), lit(1.0), lit(True), lit("1"), lit(None), lit(date(2024, 1, 1))}) == 6


@pytest.mark.parametrize(
    ("op", "args", "message"),
    [
        ("plus", (X, X), "Unknown operator 'plus': expected one of abs, add"),
        ("add", (X,), "add is written x \\+ y: given 1 arguments"),
        ("add", (T, X), "add takes numbers: t is a text; write CAST"),
        ("eq", (T, X), "eq mixes float and text"),
        ("lt", (B, B), "lt takes numbers, texts, dates or timestamps: b is a bool"),
        ("and", (B, X), "and takes conditions: x is a float"),
        ("mod", (X, J), "mod takes whole numbers"),
        ("mod", (I, I), "state the range of one of them"),
        ("case", (B, X, B, X), "pairs of a condition and a value"),
        ("clamp", (X, lit(3), lit(1)), "low end that is at most the high end"),
        ("clamp", (X, Y, lit(1)), "takes a literal as its low end"),
        ("in", (X, Y), "takes a literal as its list"),
        ("in", (X, lit(None)), "takes a literal as its list"),
        ("power", (X, Y), "takes a literal as its exponent"),
        ("power", (X, lit(100)), "exponent from -64 to 64"),
        ("power", (lit(-2), X), "base above 0"),
        ("substr", (T, lit(0)), "starts at 1"),
        ("substr", (T, lit(1), lit(-1)), "length from 0"),
        ("substr", (T, J), "takes a literal as its start"),
        ("contains", (T, T), "takes a literal as its text to look for"),
        ("contains", (T, lit("x" * 1_001)), "at most 1000 characters"),
        ("date_trunc", (lit("moth"), D), "Unknown unit of date_trunc 'moth': expected one of day, hour"),
        ("date_add", (lit("day"), D, X), "whole number of units"),
        ("date_add", (lit("day"), T, J), "takes a date or a timestamp"),
        ("cast_date", (X,), "takes one of text, date, timestamp"),
        ("round", (X, Y), "whole number of digits"),
        ("round", (X, lit(99)), "from -15 to 15"),
        ("like", (T, T), "literal pattern"),
        ("like", (T, lit("%a%b%")), "LIKE takes 'abc'"),
        ("like", (T, lit("a\\"), lit("\\")), "escape before no"),
        ("like", (T, lit("a\\b"), lit("\\")), "escape before no"),
        ("like", (T, lit("a"), lit("ab")), "one literal character"),
    ],
)
def test_wrong_calls_say_what_is_right(op, args, message):
    with pytest.raises(InputError, match=message):
        call(op, *args)


def grown(step, levels):
    expr = X
    for _ in range(levels):
        expr = step(expr)
    return expr


def test_depth_and_size_are_bounded():
    assert grown(lambda e: call("neg", e), DEPTH_MAX - 1).depth == DEPTH_MAX
    with pytest.raises(InputError, match=f"more than {DEPTH_MAX} levels"):
        grown(lambda e: call("neg", e), DEPTH_MAX)
    with pytest.raises(InputError, match="more than 10000 parts"):
        grown(lambda e: call("add", e, e), DEPTH_MAX)


def test_every_operator_has_a_meaning():
    assert set(OPERATORS) == set(_STRICT) | set(_WITH_NULL)
    assert all(row.name == name for name, row in OPERATORS.items())


def test_text_for_people():
    assert str(call("and", call("gt", call("add", J, lit(1)), lit(3)), call("not", call("is_null", T)))) == (
        "((j + 1) > 3) AND (NOT (t IS NULL))"
    )
    assert str(call("case", B, lit("it's"), lit(None))) == "CASE WHEN b THEN 'it''s' ELSE NULL END"
    assert str(call("div", J, lit(2))) == "j / 2.0"
    assert str(call("cast_date", T)) == "CAST(t AS DATE)"
    assert str(call("eq", D, lit(date(2024, 1, 2)))) == "d = DATE '2024-01-02'"
    assert str(call("date_diff", lit("day"), D, D)) == "DATE_DIFF('day', d, d)"


def test_columns_and_substitution():
    expr = call("add", call("mul", J, lit(2)), call("length", T))
    assert columns_of(expr) == {"j", "t"}
    fixed = substitute(expr, {"j": lit(5)})
    assert columns_of(fixed) == {"t"}
    assert fixed.low == 10
    assert canonical(expr) != canonical(fixed)
    assert canonical(col("a", "int", high=3, low=0)) != canonical(col("a", "int", high=4, low=0))


def test_digests_do_not_change():
    """What digests of questions rest on: an entry changes only with the language's version."""
    assert canonical(call("gt", J, lit(3))) == "expr:e321316fa837bbf36f0535badc66e1c4f49cbf05bae753a9543bba78f8d9980b"
