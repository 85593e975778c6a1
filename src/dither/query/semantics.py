"""What an expression means: its value on one row, in plain Python. Slow and obvious; every engine is tested against it.

There is one rule for each operator, and none can raise. Floats are finite: what would be ±∞ is the largest float, what would be NaN is
NULL, and -0.0 is 0.0. Texts are compared by their bytes. Timestamps are in UTC and in the years 1 to 9999.

>>> from dither.query.expr import call, col, lit
>>> evaluate(call("div", lit(1), col("n", "int")), {"n": 0}) is None
True
>>> evaluate(call("mul", col("x", "float"), lit(10.0)), {"x": 1e308})
1.7976931348623157e+308
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias

from dither.core.errors import UnknownNameError
from dither.query.expr import Expr
from dither.query.facts import Type, Value
from dither.query.operators import (
    EXP_HIGH,
    EXP_LOW,
    FINE_UNITS,
    STEPS_MAX,
    TEXT_MAX,
    UNITS,
    WHOLE_MAX,
    power,
    saturated,
)

_Rule: TypeAlias = Callable[..., Value]
_Any: TypeAlias = Any

# ------------------------------------------------------------------------------------------------ the texts that casts read

_YEAR = r"([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_MONTH_DAY = r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
DATE_TEXT = rf"({_YEAR}-{_MONTH_DAY}|{_LEAP}-02-29)"
"""A date of the calendar, years 1 to 9999, leap years and all: what matches can be cast on every engine."""
TIMESTAMP_TEXT = rf"{DATE_TEXT}([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{{1,6}})?)?Z?)?"
INT_TEXT = r"[+-]?0{0,40}[0-9]{1,16}"
FLOAT_TEXT = r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?"
TRUE_TEXTS, FALSE_TEXTS = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")

# ------------------------------------------------------------------------------------------------ small and large letters


def _small(letter: str) -> str:
    found = letter.lower()
    return found if len(found) == 1 else "i" if letter == "\u0130" else letter


def _large(letter: str) -> str:
    found = letter.upper() if len(letter.upper()) == 1 else letter.title()
    return "\u1e9e" if letter == "\u00df" else found if len(found) == 1 else letter


def _letters(rule: Callable[[str], str]) -> tuple[str, str]:
    """Every letter that the rule changes, and what it becomes."""
    places = (*range(0x41, 0xD800), *range(0xE000, 0x20000))
    pairs = [(chr(c), rule(chr(c))) for c in places if rule(chr(c)) != chr(c)]
    return "".join(a for a, _ in pairs), "".join(b for _, b in pairs)


@cache
def letters(op: str) -> tuple[str, str]:
    """What ``lower`` or ``upper`` changes, letter by letter (the simple mappings of Unicode), and into what."""
    return _letters(_small if op == "lower" else _large)


@cache
def _table(op: str) -> dict[int, int]:
    return str.maketrans(*letters(op))


# ------------------------------------------------------------------------------------------------ evaluation


def evaluate(expr: Expr, row: Mapping[str, Value]) -> Value:
    """The value on a row of values as ``read`` gives them.

    >>> from dither.query.expr import call, col, lit
    >>> evaluate(call("upper", col("city", "text")), {"city": "pune"})
    'PUNE'
    """
    done: dict[str, Value] = {}

    def value(e: Expr) -> Value:
        if e.digest not in done:
            done[e.digest] = e.value if e.op == "lit" else _cell(e, row) if e.op == "col" else apply(e, [value(a) for a in e.args])
        return done[e.digest]

    return value(expr)


def _cell(expr: Expr, row: Mapping[str, Value]) -> Value:
    assert isinstance(expr.value, str)
    if expr.value not in row:
        raise UnknownNameError("column", expr.value, row)
    return row[expr.value]


def apply(expr: Expr, args: Sequence[Value]) -> Value:
    """The value of a call whose arguments have these values.

    >>> from dither.query.expr import call, col
    >>> apply(call("sqrt", col("x", "float")), [-1.0]) is None
    True
    """
    if expr.op in _WITH_NULL:
        return _WITH_NULL[expr.op](*args)
    if any(a is None for a in args):
        return None
    found = _STRICT[expr.op](expr, *args)
    return saturated(found) if isinstance(found, float) else found


def read(value: object, column: Expr) -> Value:
    """A raw value of the column's own type, as the column has it: finite, within the calendar, clamped, and one of its values.

    >>> from dither.query.expr import col
    >>> read(float("inf"), col("x", "float", high=100)), read(float("nan"), col("x", "float"))
    (100.0, None)
    """
    if value is None:
        return None
    found: Any = value
    if column.type == "float":
        found = None if math.isnan(found) else saturated(float(found))
    if found is not None and column.type in {"int", "float"}:
        kind = int if column.type == "int" else float
        found = found if column.low is None else max(found, kind(column.low))
        found = found if column.high is None else min(found, kind(column.high))
    if column.values is not None and found not in column.values:
        return None
    return found  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------ what NULL does not end


def _and(*args: _Any) -> Value:
    return False if False in args else None if None in args else True


def _or(*args: _Any) -> Value:
    return True if True in args else None if None in args else False


def _case(*args: _Any) -> Value:
    for condition, value in zip(args[:-1:2], args[1::2], strict=True):
        if condition is True:
            return value  # type: ignore[no-any-return]
    return args[-1]  # type: ignore[no-any-return]


def _known(args: Sequence[_Any]) -> list[Any]:
    return [a for a in args if a is not None]


_WITH_NULL: Mapping[str, _Rule] = MappingProxyType(
    {
        "and": _and,
        "or": _or,
        "is_null": lambda x: x is None,
        "case": _case,
        "coalesce": lambda *args: next(iter(_known(args)), None),
        "nullif": lambda x, y: None if x is not None and y is not None and x == y else x,
        "least": lambda *args: min(_known(args), default=None),
        "greatest": lambda *args: max(_known(args), default=None),
    }
)

# ------------------------------------------------------------------------------------------------ numbers


def _mod(_: Expr, x: int, y: int) -> Value:
    """The rest has the sign of what is divided."""
    return None if y == 0 else (abs(x) % abs(y)) * (-1 if x < 0 else 1)


def _round_away(x: float) -> float:
    """The nearest whole number; a half goes away from zero."""
    size = abs(x)
    down = float(math.floor(size))
    return math.copysign(down + (size - down >= 0.5), x)


def _stepped(rule: Callable[[_Any], float]) -> _Rule:
    def stepped(e: Expr, x: float) -> Value:
        return x if isinstance(x, int) else int(rule(x)) if e.type == "int" else float(rule(x))

    return stepped


_NUMBERS: Mapping[str, _Rule] = MappingProxyType(
    {
        "neg": lambda _, x: -x,
        "abs": lambda _, x: abs(x),
        "add": lambda _, x, y: x + y,
        "sub": lambda _, x, y: x - y,
        "mul": lambda _, x, y: x * y,
        "div": lambda _, x, y: None if y == 0 else x / y,
        "mod": _mod,
        "floor": _stepped(math.floor),
        "ceil": _stepped(math.ceil),
        "round": _stepped(_round_away),
        "sign": lambda _, x: (x > 0) - (x < 0),
        "sqrt": lambda _, x: None if x < 0 else math.sqrt(x),
        "ln": lambda _, x: None if x <= 0 else math.log(x),
        "log10": lambda _, x: None if x <= 0 else math.log10(x),
        "exp": lambda _, x: math.exp(min(max(x, EXP_LOW), EXP_HIGH)),
        "power": lambda _, x, y: power(x, y),
        "clamp": lambda _, x, low, high: min(max(x, low), high),
    }
)

# ------------------------------------------------------------------------------------------------ casts


def _cast_int(_: Expr, x: _Any) -> Value:
    if isinstance(x, str):
        x = x.strip(" ")
        if not re.fullmatch(INT_TEXT, x, re.ASCII):
            return None
    found = round(x) if isinstance(x, float) else int(x)
    return found if abs(found) <= WHOLE_MAX else None


def _cast_float(_: Expr, x: _Any) -> Value:
    if isinstance(x, str):
        x = x.strip(" ")
        if not re.fullmatch(FLOAT_TEXT, x, re.ASCII):
            return None
    return float(x)


def _cast_text(_: Expr, x: _Any) -> Value:
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, datetime):
        whole = x.isoformat(sep=" ", timespec="seconds")
        return f"{whole}.{x.microsecond:06d}".rstrip("0") if x.microsecond else whole
    return x.isoformat() if isinstance(x, date) else repr(x + 0)  # -0.0 + 0 is 0.0


def _cast_bool(_: Expr, x: _Any) -> Value:
    if isinstance(x, str):
        x = x.strip(" ").translate(_table("lower"))
        return True if x in TRUE_TEXTS else False if x in FALSE_TEXTS else None
    return bool(x != 0)


def _cast_date(_: Expr, x: _Any) -> Value:
    if isinstance(x, str):
        x = x.strip(" ")
        return date.fromisoformat(x) if re.fullmatch(DATE_TEXT, x, re.ASCII) else None
    return x.date()  # type: ignore[no-any-return]


def _cast_timestamp(_: Expr, x: _Any) -> Value:
    if isinstance(x, str):
        x = x.strip(" ")
        if not re.fullmatch(TIMESTAMP_TEXT, x, re.ASCII):
            return None
        x = x.removesuffix("Z")
        whole, _, part = x.partition(".")
        return datetime.fromisoformat(whole) + timedelta(microseconds=int(part.ljust(6, "0") or 0))
    return datetime(x.year, x.month, x.day)  # noqa: DTZ001 - in UTC, without saying so


_CASTS: Mapping[str, _Rule] = MappingProxyType(
    {
        "cast_int": _cast_int,
        "cast_float": _cast_float,
        "cast_text": _cast_text,
        "cast_bool": _cast_bool,
        "cast_date": _cast_date,
        "cast_timestamp": _cast_timestamp,
    }
)

# ------------------------------------------------------------------------------------------------ texts


def _substr(_: Expr, x: str, start: int, count: int | None = None) -> Value:
    rest = x[start - 1 :] if start > 0 else x[max(len(x) + start, 0) :]
    return rest if count is None else rest[:count]


_TEXTS: Mapping[str, _Rule] = MappingProxyType(
    {
        "lower": lambda _, x: x.translate(_table("lower")),
        "upper": lambda _, x: x.translate(_table("upper")),
        "trim": lambda _, x: x.strip(" "),
        "length": lambda _, x: len(x),
        "substr": _substr,
        "concat": lambda _, *args: "".join(x[:TEXT_MAX] for x in args)[:TEXT_MAX],
        "starts_with": lambda _, x, part: x.startswith(part),
        "ends_with": lambda _, x, part: x.endswith(part),
        "contains": lambda _, x, part: part in x,
    }
)

# ------------------------------------------------------------------------------------------------ times


def _quarter(x: date) -> int:
    return (x.month - 1) // 3 + 1


def _date_trunc(_: Expr, unit: str, x: date) -> Value:
    kind: Type = "timestamp" if isinstance(x, datetime) else "date"
    unit = unit.lower()
    if isinstance(x, datetime) and unit in FINE_UNITS:
        return x.replace(
            microsecond=0,
            second=x.second if unit == "second" else 0,
            minute=0 if unit == "hour" else x.minute,
        )
    day = x.date() if isinstance(x, datetime) else x
    day = {
        "year": lambda: day.replace(month=1, day=1),
        "quarter": lambda: day.replace(month=_quarter(day) * 3 - 2, day=1),
        "month": lambda: day.replace(day=1),
        "week": lambda: day - timedelta(days=day.weekday()),
    }.get(unit, lambda: day)()
    return datetime(day.year, day.month, day.day) if kind == "timestamp" else day  # noqa: DTZ001


def _date_diff(_: Expr, unit: str, start: date, end: date) -> Value:
    """How many borders of that unit lie between the two."""
    unit = unit.lower()
    places = [_place(unit, x) for x in (start, end)]
    return places[1] - places[0]


def _place(unit: str, x: date) -> int:
    """The number of the year, month, week … in which it lies."""
    if unit in {"year", "quarter", "month"}:
        return {"year": x.year, "quarter": x.year * 4 + _quarter(x), "month": x.year * 12 + x.month}[unit]
    days = x.toordinal()
    if unit in {"week", "day"}:
        return days if unit == "day" else (days - 1) // 7
    assert isinstance(x, datetime)
    return (days * 86_400 + x.hour * 3_600 + x.minute * 60 + x.second) // UNITS[unit]


def _date_add(_: Expr, unit: str, x: date, n: int) -> Value:
    """Some units later; the 31st becomes the last of a shorter month; NULL outside of the calendar."""
    unit = unit.lower()
    if abs(n) > STEPS_MAX[unit]:
        return None
    if unit in {"year", "quarter", "month"}:
        months = x.year * 12 + x.month - 1 + n * {"year": 12, "quarter": 3, "month": 1}[unit]
        year, month = divmod(months, 12)
        if not 1 <= year <= 9999:
            return None
        last = 31 if month == 11 else (date(year, month + 2, 1) - timedelta(days=1)).day
        return x.replace(year=year, month=month + 1, day=min(x.day, last))
    try:
        return x + n * timedelta(seconds=UNITS[unit] if unit != "week" else 7 * 86_400)
    except OverflowError:
        return None


_TIMES: Mapping[str, _Rule] = MappingProxyType(
    {
        "year": lambda _, x: x.year,
        "quarter": lambda _, x: _quarter(x),
        "month": lambda _, x: x.month,
        "day": lambda _, x: x.day,
        "dow": lambda _, x: x.isoweekday() % 7,
        "hour": lambda _, x: x.hour,
        "minute": lambda _, x: x.minute,
        "date_trunc": _date_trunc,
        "date_diff": _date_diff,
        "date_add": _date_add,
    }
)

# ------------------------------------------------------------------------------------------------ the table

_COMPARE: Mapping[str, _Rule] = MappingProxyType(
    {
        "eq": lambda _, x, y: x == y,
        "ne": lambda _, x, y: x != y,
        "lt": lambda _, x, y: x < y,
        "le": lambda _, x, y: x <= y,
        "gt": lambda _, x, y: x > y,
        "ge": lambda _, x, y: x >= y,
        "not": lambda _, x: not x,
        "in": lambda _, x, *values: x in values,
    }
)
_STRICT: Mapping[str, _Rule] = MappingProxyType({**_NUMBERS, **_CASTS, **_TEXTS, **_TIMES, **_COMPARE})
