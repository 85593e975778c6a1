"""The table of operators: what each takes, what type it gives, and between which numbers its values lie.

The language is total, so ranges are sound for *every* row: floats are finite and saturate at ±FLOAT_MAX, whole numbers that a result
could carry past ±2^53 are computed as floats, and whatever has no value is NULL. Sums, products and quotients are rounded to nearest,
which is monotone, so the ends of a range are computed by the same operation; ``exp``, ``ln``, ``log10`` and ``power`` differ by
a few last places between engines, so their ranges are widened.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from dither.core.errors import InputError, UnknownNameError, shown
from dither.query.facts import Type

if TYPE_CHECKING:
    from dither.query.expr import Expr

FLOAT_MAX = sys.float_info.max
WHOLE_MAX = 2**53
"""Every whole number up to here is a float; a result that could be larger is a float."""
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
TEXT_MAX = 65_536
"""``concat`` looks at no more characters of each part than this, and gives no more."""
FIND_MAX = 1_000
"""Longer texts are not looked for: the time of a search may grow with the product of the two lengths."""
EXP_LOW, EXP_HIGH = -745.0, 709.782712893383
"""``exp`` is constant outside: the smallest positive float, and (to ten digits) the largest float."""
POWER_MAX = 64.0
DATE_MIN, DATE_MAX = date(1, 1, 1), date(9999, 12, 31)
TIMESTAMP_MIN, TIMESTAMP_MAX = datetime.min, datetime.max  # noqa: DTZ901 - timestamps of the language are in UTC, without saying so
UNITS: Mapping[str, int] = MappingProxyType(
    {"year": 366 * 86_400, "quarter": 92 * 86_400, "month": 31 * 86_400, "week": 7 * 86_400, "day": 86_400}
    | {"hour": 3_600, "minute": 60, "second": 1}
)
"""Units of time, each with its longest length in seconds."""
_SHORTEST = MappingProxyType({**UNITS, "year": 365 * 86_400, "quarter": 90 * 86_400, "month": 28 * 86_400})
_CALENDAR = 9_999 * 366 * 86_400
STEPS_MAX: Mapping[str, int] = MappingProxyType({unit: _CALENDAR // length for unit, length in _SHORTEST.items()})
"""More steps of a unit than this leave the calendar from wherever they start."""
FINE_UNITS = frozenset({"hour", "minute", "second"})
NUMBERS: tuple[Type, ...] = ("int", "float")
ORDERED: tuple[Type, ...] = ("int", "float", "text", "date", "timestamp")
TIMES: tuple[Type, ...] = ("date", "timestamp")
_WIDER = 1e-12

Range: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a call gives, and the types its arguments are first turned into."""

    type: Type
    takes: tuple[Type, ...]
    low: float | None = None
    high: float | None = None
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: how it is written, how many arguments it has (``most`` None: any number), and its rule."""

    name: str
    syntax: str
    least: int
    most: int | None
    rule: Callable[[str, tuple[Expr, ...]], Shape]


# ------------------------------------------------------------------------------------------------ ranges


def saturated(number: float) -> float:
    """The nearest finite float; -0.0 is 0.0.

    >>> saturated(float("-inf"))
    -1.7976931348623157e+308
    """
    return min(max(number, -FLOAT_MAX), FLOAT_MAX) + 0.0


def span(expr: Expr) -> Range:
    """Between which numbers the values lie, for a number of any kind."""
    low, high = (float(INT_MIN), 2.0**63) if expr.type == "int" else (-FLOAT_MAX, FLOAT_MAX)
    return (low if expr.low is None else expr.low), (high if expr.high is None else expr.high)


def fits(expr: Expr) -> bool:
    """Whether every value is a float exactly."""
    low, high = span(expr)
    return expr.type == "float" or (low >= -WHOLE_MAX and high <= WHOLE_MAX)


def power(number: float, exponent: float) -> float | None:
    """The power, saturating; None where it has no value.

    >>> power(10.0, 400.0), power(-8.0, 0.5), power(0.0, -1.0)
    (1.7976931348623157e+308, None, None)
    """
    try:
        return saturated(math.pow(number, exponent))
    except OverflowError:
        return -FLOAT_MAX if number < 0 and exponent % 2 == 1 else FLOAT_MAX
    except ValueError:
        return None


def _wider(low: float, high: float) -> Range:
    return saturated(low - abs(low) * _WIDER), saturated(high + abs(high) * _WIDER)


def _ends(low: float, high: float) -> tuple[float | None, float | None]:
    """A range as an expression tells it: an end at the largest float is no end."""
    return (None if low <= -FLOAT_MAX else low + 0.0), (None if high >= FLOAT_MAX else high + 0.0)


def _union(args: Sequence[Expr]) -> tuple[float | None, float | None]:
    """The range of what may be any of these (NULL literals have no number)."""
    args = [a for a in args if not a.is_null]
    if not args or any(a.type not in NUMBERS for a in args):
        return None, None
    lows, highs = [a.low for a in args], [a.high for a in args]
    return (
        None if None in lows else min(v for v in lows if v is not None),
        None if None in highs else max(v for v in highs if v is not None),
    )


# ------------------------------------------------------------------------------------------------ types


def _wants(op: str, expected: str, given: Expr) -> InputError:
    return InputError(f"{op} takes {expected}: {shown_expr(given)} is a {given.type}; {_ADVICE}.")


_ADVICE = "write CAST(… AS …) around it"


def shown_expr(expr: Expr) -> str:
    """The text of an expression, short enough for a message."""
    text = str(expr)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _only(op: str, args: Sequence[Expr], types: tuple[Type, ...], expected: str) -> None:
    for a in args:
        if not a.is_null and a.type not in types:
            raise _wants(op, expected, a)


def unify(op: str, args: Sequence[Expr]) -> Type:
    """The one type that all of these can have: a whole number is a number, a date is a timestamp, NULL is anything."""
    types = {a.type for a in args if not a.is_null}
    types = types or {a.type for a in args} - {"bool"}  # of NULLs alone, the type that one of them was given
    if len(types) <= 1:
        return types.pop() if types else "bool"
    if types <= {"int", "float"}:
        return "float"
    if types <= {"date", "timestamp"}:
        return "timestamp"
    raise InputError(f"{op} mixes {' and '.join(sorted(types))}: {', '.join(shown_expr(a) for a in args[:4])}; {_ADVICE}.")


def _literal(op: str, what: str, expr: Expr) -> object:
    if expr.op != "lit" or expr.value is None:
        raise InputError(f"{op} takes a literal as its {what}, not {shown_expr(expr)}: write the value itself.")
    return expr.value


def unit_of(op: str, expr: Expr, *, known: Sequence[str] = tuple(UNITS)) -> str:
    """The unit of time that a literal names."""
    unit = _literal(op, "unit", expr)
    if not isinstance(unit, str) or unit.lower() not in known:
        raise UnknownNameError(f"unit of {op}", unit, known)
    return unit.lower()


def _each(kind: Type, args: Sequence[Expr]) -> tuple[Type, ...]:
    return (kind,) * len(args)


def _nullable(args: Sequence[Expr]) -> bool:
    return any(a.nullable for a in args)


# ------------------------------------------------------------------------------------------------ arithmetic


def _corners(op: str, a: Expr, b: Expr) -> Range:
    (al, ah), (bl, bh) = span(a), span(b)
    if a.type == b.type == "int":  # exact: a float could round a number just past the limit onto it
        al, ah, bl, bh = int(al), int(ah), int(bl), int(bh)
    if op == "add":
        return al + bl, ah + bh
    if op == "sub":
        return al - bh, ah - bl
    found = [x * y for x in (al, ah) for y in (bl, bh)]
    return min(found), max(found)


def _arithmetic(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "numbers")
    low, high = _corners(op, args[0], args[1])
    return _whole_if_it_fits(args, low, high)


def _whole_if_it_fits(args: tuple[Expr, ...], low: float, high: float, *, nullable: bool | None = None) -> Shape:
    nullable = _nullable(args) if nullable is None else nullable
    if all(a.type == "int" or a.is_null for a in args) and low >= -WHOLE_MAX and high <= WHOLE_MAX:
        return Shape("int", _each("int", args), float(low) + 0.0, float(high) + 0.0, nullable)
    return Shape("float", _each("float", args), *_ends(saturated(float(low)), saturated(float(high))), nullable)


def _neg(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "a number")
    low, high = span(args[0])
    return _whole_if_it_fits(args, -high, -low)


def _abs(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "a number")
    low, high = span(args[0])
    return _whole_if_it_fits(args, max(low, -high, 0.0), max(-low, high))


def _div(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "numbers")
    (al, ah), (bl, bh) = span(args[0]), span(args[1])
    zero = bl <= 0 <= bh
    takes: tuple[Type, ...] = ("float", "float")
    nullable = _nullable(args) or zero
    divisors = [bl, bh]
    if zero and args[1].type == "int":
        divisors = [d for d in (bl, -1.0) if bl < 0] + [d for d in (1.0, bh) if bh > 0]
    elif zero and (al < 0 or bl < 0):
        return Shape("float", takes, None, None, nullable)
    elif zero:
        return Shape("float", takes, 0.0, None, nullable)
    found = [saturated(x / d) for x in (al, ah) for d in divisors] or [0.0]
    return Shape("float", takes, *_ends(min(found), max(found)), nullable)


def _mod(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, ("int",), "whole numbers")
    (al, ah), (bl, bh) = span(args[0]), span(args[1])
    most = min(max(-al, ah, 0.0), max(-bl, bh, 1.0) - 1.0)
    low, high = (-most if al < 0 else 0.0), (most if ah > 0 else 0.0)
    nullable = _nullable(args) or bl <= 0 <= bh
    if most <= WHOLE_MAX:
        return Shape("int", ("int", "int"), low + 0.0, high, nullable)
    raise InputError(
        f"{op} of {shown_expr(args[0])} by {shown_expr(args[1])} can be larger than 2^53: state the range of one of them"
        " (low and high of the column), or write CLAMP around it."
    )


def _step(op: str, args: tuple[Expr, ...]) -> Shape:
    """floor, ceil and round (to whole numbers)."""
    _only(op, args, NUMBERS, "a number")
    (a,) = args
    low, high = span(a)
    if a.type == "int":
        return Shape("int", ("int",), a.low, a.high, a.nullable)
    if low >= -WHOLE_MAX and high <= WHOLE_MAX:
        return Shape("int", ("float",), float(math.floor(low)), float(math.ceil(high)), a.nullable)
    ends = [end if end is None or abs(end) > WHOLE_MAX else float(rule(end)) for end, rule in ((a.low, math.floor), (a.high, math.ceil))]
    return Shape("float", ("float",), ends[0], ends[1], a.nullable)


def _sign(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "a number")
    low, high = span(args[0])
    return Shape("int", (args[0].type,), float((low > 0) - (low < 0)), float((high > 0) - (high < 0)), args[0].nullable)


def _sqrt(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "a number")
    low, high = span(args[0])
    return Shape("float", ("float",), math.sqrt(max(low, 0.0)), _ends(0.0, math.sqrt(max(high, 0.0)))[1], args[0].nullable or low < 0)


def _log(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "a number")
    low, high = span(args[0])
    log = math.log10 if op == "log10" else math.log
    found = _wider(*(log(max(end, 5e-324)) for end in (low, high)))
    return Shape("float", ("float",), *found, args[0].nullable or low <= 0)


def _exp(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "a number")
    low, high = (math.exp(min(max(end, EXP_LOW), EXP_HIGH)) for end in span(args[0]))
    low, high = _wider(low, high)
    return Shape("float", ("float",), max(low, 0.0), None if high > 1e308 else high, args[0].nullable)


def _power(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "numbers")
    exponent = _literal(op, "exponent", args[1])
    assert isinstance(exponent, int | float)
    if not abs(exponent) <= POWER_MAX:
        raise InputError(f"{op} takes an exponent from {-POWER_MAX:g} to {POWER_MAX:g}: given {shown(exponent)}.")
    low, high, p = *span(args[0]), float(exponent)
    whole, zero = p.is_integer(), low <= 0 <= high
    nullable = args[0].nullable or (not whole and low < 0) or (p < 0 and zero)
    if not whole:
        low, high, zero = max(low, 0.0), max(high, 0.0), low <= 0
    if p < 0 and zero:
        return Shape("float", ("float", "float"), 0.0 if p % 2 != 1 or low >= 0 else None, None, nullable)
    ends = [v for v in (power(low, p), power(high, p)) if v is not None] + ([0.0] if zero and p else [])
    return Shape("float", ("float", "float"), *_ends(*_wider(min(ends), max(ends))), nullable)


def _extreme(op: str, args: tuple[Expr, ...]) -> Shape:
    """Least and greatest, which pass over NULLs: the result is NULL where all are."""
    _only(op, args, ORDERED, "numbers, texts, dates or timestamps")
    found = unify(op, args)
    nullable = all(a.nullable for a in args)
    takes = (found,) * len(args)
    if found not in NUMBERS:
        return Shape(found, takes, nullable=nullable)
    given = [a for a in args if not a.is_null]
    low, high = _union(given)
    sure = [span(a) for a in given if not a.nullable]
    if sure and op == "least":
        high = _ends(0.0, min(span_high for _, span_high in sure))[1] if high is None else min(high, *(h for _, h in sure))
    if sure and op == "greatest":
        low = _ends(max(span_low for span_low, _ in sure), 0.0)[0] if low is None else max(low, *(v for v, _ in sure))
    return Shape(found, takes, low, high, nullable)


def _clamp(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, NUMBERS, "numbers")
    low, high = _literal(op, "low end", args[1]), _literal(op, "high end", args[2])
    if not low <= high:  # type: ignore[operator]  # both are numbers
        raise InputError(f"{op} takes a low end that is at most the high end: given {low} and {high}.")
    found = unify(op, args)
    inside = [min(max(end, span(args[1])[0]), span(args[2])[1]) for end in span(args[0])]
    return Shape(found, _each(found, args), inside[0], inside[1], args[0].nullable)


# ------------------------------------------------------------------------------------------------ truth, choice, casts


def _compare(op: str, args: tuple[Expr, ...]) -> Shape:
    if op in {"eq", "ne"}:
        found = unify(op, args)
    else:
        _only(op, args, ORDERED, "numbers, texts, dates or timestamps")
        found = unify(op, args)
    if {a.type for a in args if not a.is_null} == {"int", "float"} and not all(fits(a) for a in args):
        return Shape("bool", (args[0].type, args[1].type), nullable=_nullable(args))  # compared exactly, not as floats
    return Shape("bool", (found, found), nullable=_nullable(args))


def _logic(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, ("bool",), "conditions")
    return Shape("bool", _each("bool", args), nullable=_nullable(args))


def _is_null(_: str, args: tuple[Expr, ...]) -> Shape:
    return Shape("bool", (args[0].type,), nullable=False)


def _in(op: str, args: tuple[Expr, ...]) -> Shape:
    for a in args[1:]:
        _literal(op, "list", a)
    found = unify(op, args)
    return Shape("bool", (found,) * len(args), nullable=args[0].nullable)


def _case(op: str, args: tuple[Expr, ...]) -> Shape:
    if len(args) % 2 == 0:
        raise InputError(f"{op} takes pairs of a condition and a value, and a last value: given {len(args)} arguments.")
    conditions, values = args[:-1:2], (*args[1::2], args[-1])
    _only(op, conditions, ("bool",), "conditions")
    found = unify(op, values)
    takes: list[Type] = list(itertools.chain.from_iterable(("bool", found) for _ in conditions))
    return Shape(found, (*takes, found), *_union(values), _nullable(values))


def _coalesce(op: str, args: tuple[Expr, ...]) -> Shape:
    found = unify(op, args)
    return Shape(found, (found,) * len(args), *_union(args), all(a.nullable for a in args))


def _nullif(op: str, args: tuple[Expr, ...]) -> Shape:
    found = unify(op, args)
    return Shape(found, (found, found), *_union(args[:1]), nullable=True)


_CASTS: Mapping[str, tuple[Type, tuple[Type, ...]]] = MappingProxyType(
    {
        "cast_int": ("int", ("bool", "int", "float", "text")),
        "cast_float": ("float", ("bool", "int", "float", "text")),
        "cast_text": ("text", ("bool", "int", "float", "text", "date", "timestamp")),
        "cast_bool": ("bool", ("bool", "int", "float", "text")),
        "cast_date": ("date", ("text", "date", "timestamp")),
        "cast_timestamp": ("timestamp", ("text", "date", "timestamp")),
    }
)


def _cast(op: str, args: tuple[Expr, ...]) -> Shape:
    found, allowed = _CASTS[op]
    (a,) = args
    _only(op, args, allowed, f"one of {', '.join(allowed)}")
    given = found if a.is_null else a.type
    nullable = a.nullable or (given == "text" and found != "text")
    if found not in NUMBERS or given == found:
        return Shape(found, (given,), a.low if given in NUMBERS else None, a.high if given in NUMBERS else None, nullable)
    if given == "bool":
        return Shape(found, (given,), 0.0, 1.0, nullable)
    low, high = (-FLOAT_MAX, FLOAT_MAX) if given == "text" else span(a)
    if found == "float":
        return Shape(found, (given,), *_ends(low, high), nullable)
    low, high = max(low, -float(WHOLE_MAX)), min(high, float(WHOLE_MAX))
    if low > high:  # nothing fits: always NULL
        low, high = 0.0, 0.0
    return Shape(found, (given,), float(round(low)), float(round(high)), nullable or not fits_whole(a))


def fits_whole(expr: Expr) -> bool:
    """Whether every value, rounded, is at most 2^53 from 0."""
    low, high = span(expr)
    return low >= -WHOLE_MAX and high <= WHOLE_MAX


# ------------------------------------------------------------------------------------------------ texts, times


def _text(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, ("text",), "text")
    return Shape("text", _each("text", args), nullable=_nullable(args))


def _length(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, ("text",), "text")
    return Shape("int", ("text",), 0.0, float(2**32), args[0].nullable)


def _substr(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args[:1], ("text",), "text")
    start = _literal(op, "start", args[1])
    count = _literal(op, "length", args[2]) if len(args) > 2 else 0
    if args[1].type != "int" or start == 0 or not abs(int(start)) <= TEXT_MAX:  # type: ignore[call-overload]
        raise InputError(f"{op} starts at 1 (or, from the end, at -1), at most {TEXT_MAX} away: given {shown(start)}.")
    if len(args) > 2 and (args[2].type != "int" or not 0 <= int(count) <= TEXT_MAX):  # type: ignore[call-overload]
        raise InputError(f"{op} takes a length from 0 to {TEXT_MAX}: given {shown(count)}.")
    return Shape("text", ("text", *("int",) * (len(args) - 1)), nullable=args[0].nullable)  # type: ignore[arg-type]


def _finds(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, ("text",), "text")
    if len(str(_literal(op, "text to look for", args[1]))) > FIND_MAX:
        raise InputError(f"{op} looks for a text of at most {FIND_MAX} characters: write a shorter one.")
    return Shape("bool", ("text", "text"), nullable=args[0].nullable)


_PARTS: Mapping[str, Range] = MappingProxyType(
    {
        "year": (1.0, 9999.0),
        "quarter": (1.0, 4.0),
        "month": (1.0, 12.0),
        "day": (1.0, 31.0),
        "dow": (0.0, 6.0),
        "hour": (0.0, 23.0),
        "minute": (0.0, 59.0),
    }
)


def _part(op: str, args: tuple[Expr, ...]) -> Shape:
    _only(op, args, TIMES, "a date or a timestamp")
    takes: Type = "timestamp" if op in FINE_UNITS else args[0].type
    return Shape("int", (takes,), *_PARTS[op], args[0].nullable)


def _date_trunc(op: str, args: tuple[Expr, ...]) -> Shape:
    unit_of(op, args[0])
    _only(op, args[1:], TIMES, "a date or a timestamp")
    found: Type = "date" if args[1].is_null else args[1].type
    return Shape(found, ("text", found), nullable=args[1].nullable)


def _date_diff(op: str, args: tuple[Expr, ...]) -> Shape:
    unit = unit_of(op, args[0])
    _only(op, args[1:], TIMES, "dates or timestamps")
    found: Type = "timestamp" if unit in FINE_UNITS else unify(op, args[1:])
    most = float(STEPS_MAX[unit])
    return Shape("int", ("text", found, found), -most, most, _nullable(args[1:]))


def _date_add(op: str, args: tuple[Expr, ...]) -> Shape:
    unit = unit_of(op, args[0])
    _only(op, args[1:2], TIMES, "a date or a timestamp")
    _only(op, args[2:], ("int",), "a whole number of units")
    found: Type = "timestamp" if unit in FINE_UNITS else ("date" if args[1].is_null else args[1].type)
    return Shape(found, ("text", found, "int"), nullable=True)


# ------------------------------------------------------------------------------------------------ the table

_ROWS: tuple[tuple[str, str, int, int | None, Callable[[str, tuple[Expr, ...]], Shape]], ...] = (
    ("neg", "-x", 1, 1, _neg),
    ("abs", "ABS(x)", 1, 1, _abs),
    ("add", "x + y", 2, 2, _arithmetic),
    ("sub", "x - y", 2, 2, _arithmetic),
    ("mul", "x * y", 2, 2, _arithmetic),
    ("div", "x / y", 2, 2, _div),
    ("mod", "MOD(x, y)", 2, 2, _mod),
    ("floor", "FLOOR(x)", 1, 1, _step),
    ("ceil", "CEIL(x)", 1, 1, _step),
    ("round", "ROUND(x) or ROUND(x, digits)", 1, 1, _step),
    ("sign", "SIGN(x)", 1, 1, _sign),
    ("sqrt", "SQRT(x)", 1, 1, _sqrt),
    ("ln", "LN(x)", 1, 1, _log),
    ("log10", "LOG10(x)", 1, 1, _log),
    ("exp", "EXP(x)", 1, 1, _exp),
    ("power", "POWER(x, 2) or POWER(2, x)", 2, 2, _power),
    ("least", "LEAST(x, y, …)", 1, None, _extreme),
    ("greatest", "GREATEST(x, y, …)", 1, None, _extreme),
    ("clamp", "CLAMP(x, low, high)", 3, 3, _clamp),
    ("eq", "x = y", 2, 2, _compare),
    ("ne", "x <> y", 2, 2, _compare),
    ("lt", "x < y", 2, 2, _compare),
    ("le", "x <= y", 2, 2, _compare),
    ("gt", "x > y", 2, 2, _compare),
    ("ge", "x >= y", 2, 2, _compare),
    ("and", "x AND y", 1, None, _logic),
    ("or", "x OR y", 1, None, _logic),
    ("not", "NOT x", 1, 1, _logic),
    ("is_null", "x IS NULL", 1, 1, _is_null),
    ("in", "x IN (1, 2, …)", 2, None, _in),
    ("case", "CASE WHEN x THEN y ELSE z END", 3, None, _case),
    ("coalesce", "COALESCE(x, y, …)", 1, None, _coalesce),
    ("nullif", "NULLIF(x, y)", 2, 2, _nullif),
    *((name, f"CAST(x AS {kind.upper()})", 1, 1, _cast) for name, (kind, _) in _CASTS.items()),
    ("lower", "LOWER(x)", 1, 1, _text),
    ("upper", "UPPER(x)", 1, 1, _text),
    ("trim", "TRIM(x)", 1, 1, _text),
    ("length", "LENGTH(x)", 1, 1, _length),
    ("substr", "SUBSTR(x, start) or SUBSTR(x, start, length)", 2, 3, _substr),
    ("concat", "x || y", 1, None, _text),
    ("starts_with", "STARTS_WITH(x, 'text')", 2, 2, _finds),
    ("ends_with", "ENDS_WITH(x, 'text')", 2, 2, _finds),
    ("contains", "CONTAINS(x, 'text')", 2, 2, _finds),
    *((name, f"EXTRACT({name.upper()} FROM x)", 1, 1, _part) for name in _PARTS),
    ("date_trunc", "DATE_TRUNC('month', x)", 2, 2, _date_trunc),
    ("date_diff", "DATE_DIFF('day', from, to)", 3, 3, _date_diff),
    ("date_add", "DATE_ADD('day', x, n)", 3, 3, _date_add),
)
OPERATORS: Mapping[str, Operator] = MappingProxyType({row[0]: Operator(*row) for row in _ROWS})
