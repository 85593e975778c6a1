import math
from datetime import date, datetime

import duckdb
import pytest

from dither.core.errors import UnknownNameError
from dither.query.expr import call, col, lit
from dither.query.operators import EXP_HIGH, FLOAT_MAX, TEXT_MAX
from dither.query.semantics import evaluate, letters, read

KINDS = {float: "float", int: "int", str: "text", bool: "bool", datetime: "timestamp", date: "date"}


def value(op, *args):
    """The value of an operator on these, as columns (literals where it takes no columns)."""
    fixed = {"date_trunc": (0,), "date_add": (0,), "date_diff": (0,), "substr": (1, 2), "power": (1,), "clamp": (1, 2)}.get(op, ())
    fixed = range(1, len(args)) if op in {"in", "like", "contains", "starts_with", "ends_with"} else fixed
    given = [lit(a) if n in fixed or a is None else col(f"c{n}", KINDS[type(a)]) for n, a in enumerate(args)]
    return evaluate(call(op, *given), {f"c{n}": a for n, a in enumerate(args)})


def at(text):
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("add", (1e308, 1e308), FLOAT_MAX),
        ("sub", (-1e308, 1e308), -FLOAT_MAX),
        ("add", (2**63 - 1, 1), 2.0**63),
        ("mul", (1e-200, 1e-200), 0.0),
        ("div", (1.0, 0.0), None),
        ("div", (0.0, 0.0), None),
        ("div", (1, 2), 0.5),
        ("neg", (-(2**63),), 2.0**63),
        ("round", (2.5,), 3.0),
        ("round", (-2.5,), -3.0),
        ("round", (0.49999999999999994,), 0.0),
        ("floor", (-0.5,), -1.0),
        ("sqrt", (-1.0,), None),
        ("ln", (0.0,), None),
        ("log10", (1000.0,), 3.0),
        ("exp", (1000.0,), math.exp(EXP_HIGH)),
        ("exp", (-1000.0,), 5e-324),
        ("power", (0.0, -1), None),
        ("power", (-8.0, 0.5), None),
        ("power", (-1e200, 3), -FLOAT_MAX),
        ("power", (0.0, 0), 1.0),
        ("sign", (-0.0,), 0),
        ("least", (1.0, None), 1.0),
        ("greatest", ("a", "B"), "a"),
        ("eq", (-0.0, 0.0), True),
        ("eq", (2**53 + 1, 2.0**53), False),
        ("lt", (2**63 - 1, 2.0**63), True),
        ("lt", ("Z", "a"), True),
        ("lt", ("z", "é"), True),
        ("and", (None, False), False),
        ("and", (None, True), None),
        ("or", (None, True), True),
        ("not", (None,), None),
        ("ne", (1, None), None),
        ("in", (None, 1, 2), None),
        ("in", (2, 1, 2), True),
        ("case", (None, 1, 2), 2),
        ("nullif", (0, 0), None),
        ("nullif", (1, None), 1),
        ("coalesce", (None, 5), 5),
        ("cast_int", (2.5,), 2),
        ("cast_int", (1e300,), None),
        ("cast_int", (" +0012 ",), 12),
        ("cast_int", ("1.0",), None),
        ("cast_int", ("9007199254740993",), None),
        ("cast_int", ("٣",), None),
        ("cast_float", ("1e400",), FLOAT_MAX),
        ("cast_float", ("-.5e1",), -5.0),
        ("cast_float", ("nan",), None),
        ("cast_float", ("1_0",), None),
        ("cast_text", (1e16,), "1e+16"),
        ("cast_text", (-0.0,), "0.0"),
        ("cast_text", (True,), "true"),
        ("cast_text", (at("2024-01-02 03:04:05.5"),), "2024-01-02 03:04:05.5"),
        ("cast_bool", (" YES ",), True),
        ("cast_bool", ("maybe",), None),
        ("cast_bool", (0.0,), False),
        ("cast_date", ("2023-02-29",), None),
        ("cast_date", ("2024-02-29",), date(2024, 2, 29)),
        ("cast_timestamp", ("2016-12-31 23:59:60",), None),
        ("cast_timestamp", ("2024-01-02T03:04:05.25Z",), at("2024-01-02 03:04:05.250000")),
        ("cast_timestamp", ("2024-01-02 03:04",), at("2024-01-02 03:04")),
        ("lower", ("ÀÉΣÏ",), "àéσï"),
        ("upper", ("straße",), "STRAẞE"),
        ("trim", ("  a\t ",), "a\t"),
        ("length", ("😀é",), 2),
        ("substr", ("abcdef", -3, 2), "de"),
        ("substr", ("ab", -3, 2), "ab"),
        ("substr", ("abc", 9, 2), ""),
        ("starts_with", ("abc", ""), True),
        ("like", ("a%c", "a!%c"), False),
        ("like", ("aXc", "a_c"), True),
        ("like", ("a\nc", "a%c"), True),
        ("like", ("ac", "a_c"), False),
        ("like", ("aa", "a%a"), True),
        ("like", ("a", "a%a"), False),
        ("like", (None, "a%a"), None),
        ("dow", (date(2024, 1, 7),), 0),
        ("quarter", (date(2024, 12, 1),), 4),
        ("hour", (date(2024, 12, 1),), 0),
        ("date_trunc", ("week", date(1, 1, 3)), date(1, 1, 1)),
        ("date_trunc", ("quarter", at("2024-06-05 01:00")), at("2024-04-01 00:00")),
        ("date_trunc", ("hour", date(2024, 1, 1)), date(2024, 1, 1)),
        ("date_diff", ("month", date(2024, 1, 31), date(2024, 2, 1)), 1),
        ("date_diff", ("week", date(2024, 1, 7), date(2024, 1, 8)), 1),
        ("date_diff", ("year", date(2024, 1, 1), date(2023, 12, 31)), -1),
        ("date_diff", ("hour", at("1969-12-31 23:59"), at("1970-01-01 00:01")), 1),
        ("date_add", ("month", date(2024, 1, 31), 1), date(2024, 2, 29)),
        ("date_add", ("month", date(9999, 12, 1), 1), None),
        ("date_add", ("day", date(1, 1, 1), -1), None),
        ("date_add", ("year", date(2024, 2, 29), 2**63 - 1), None),
        ("date_add", ("second", at("9999-12-31 23:59:59"), 1), None),
    ],
)
def test_meaning(op, args, expected):
    found = value(op, *args)
    assert found == expected
    assert type(found) is type(expected)


def test_texts_do_not_grow_without_end():
    text = "ä" * TEXT_MAX
    assert evaluate(call("concat", col("t", "text"), lit("x")), {"t": text}) == text
    assert evaluate(call("concat", lit("x"), col("t", "text")), {"t": text}) == "x" + text[:-1]


def test_letters_are_those_of_duckdb():
    """Every letter of Unicode, one by one."""
    places = [n for n in range(1, 0x20000) if not 0xD800 <= n < 0xE000]
    small, large = (str.maketrans(*letters(op)) for op in ("lower", "upper"))
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT n, lower(chr(n)), upper(chr(n)) FROM (SELECT unnest(?::INTEGER[]) AS n)", [places]).fetchall()
    assert [row for row in rows if (chr(row[0]).translate(small), chr(row[0]).translate(large)) != row[1:]] == []


def test_reading():
    nan, inf = float("nan"), float("inf")
    assert [read(v, col("x", "float")) for v in (nan, inf, -inf, None)] == [None, FLOAT_MAX, -FLOAT_MAX, None]
    assert [read(v, col("x", "float", low=0, high=1)) for v in (nan, inf, -inf, 0.5)] == [None, 1.0, 0.0, 0.5]
    assert [read(v, col("x", "int", low=0)) for v in (-5, 2**62)] == [0, 2**62]
    assert [read(v, col("x", "text", values=("a",))) for v in ("a", "b", None)] == ["a", None, None]


def test_missing_columns_are_named():
    with pytest.raises(UnknownNameError, match="Unknown column 'x': expected one of y"):
        evaluate(col("x", "int"), {"y": 1})
