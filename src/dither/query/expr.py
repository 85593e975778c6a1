"""Expressions over one row: a small language in which nothing can go wrong, whatever the row.

Three things make an expression: ``col``, ``lit`` and ``call``. Each is checked when it is made, and knows its type, the range of its
values and whether it can be NULL; ``semantics.py`` says what it means, ``compile.py`` writes it as SQL.

>>> amount = col("amount", "float", low=0, high=100)
>>> net = call("mul", amount, lit(0.8))
>>> str(net), net.type, net.low, net.high
('amount * 0.8', 'float', 0.0, 80.0)
>>> call("ln", net).nullable, call("add", col("n", "int", low=0, high=9), lit(1)).type
(True, 'int')
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from dither.core.errors import InputError, UnknownNameError, shown
from dither.query.facts import TYPES, Type, Value
from dither.query.operators import INT_MAX, INT_MIN, OPERATORS, TEXT_MAX, saturated, shown_expr

if TYPE_CHECKING:
    from dither.query.operators import Shape

DEPTH_MAX, SIZE_MAX = 100, 10_000
"""An expression that is deeper, or has more parts (a part used twice counts twice), is refused."""
_VALUES_MAX = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """One expression. ``op`` is ``col``, ``lit`` or an operator's name. Equal expressions have equal digests."""

    op: str
    type: Type
    args: tuple[Expr, ...] = ()
    value: Value = None
    """A literal's value, or a column's name."""
    low: float | None = None
    high: float | None = None
    values: tuple[Value, ...] | None = None
    """All that it can be besides NULL, where that is known."""
    nullable: bool = True
    digest: str = field(init=False)
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        depth, size = 1 + max((a.depth for a in self.args), default=0), 1 + sum(a.size for a in self.args)
        if depth > DEPTH_MAX:
            raise InputError(f"An expression has more than {DEPTH_MAX} levels: name a part of it in a sub-query, or write it shorter.")
        if size > SIZE_MAX:
            raise InputError(f"An expression has more than {SIZE_MAX} parts: name a part of it in a sub-query, or write it shorter.")
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "size", size)
        facts: list[object] = [self.op, self.type, self.low, self.high, self.nullable, _plain(self.value), *(a.digest for a in self.args)]
        facts.append(None if self.values is None else [_plain(v) for v in self.values])
        text = json.dumps(facts, separators=(",", ":"), allow_nan=False)
        object.__setattr__(self, "digest", hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return _written(self)

    @property
    def is_null(self) -> bool:
        """Whether this is the literal NULL, which has any type."""
        return self.op == "lit" and self.value is None


def _plain(value: Value) -> list[str] | None:
    """A value with its type, so that 1, 1.0 and true differ."""
    return None if value is None else [type(value).__name__, value.isoformat() if isinstance(value, date) else repr(value)]


# ------------------------------------------------------------------------------------------------ constructors


def col(
    name: str,
    type: Type,  # noqa: A002 - the word of the language
    low: float | None = None,
    high: float | None = None,
    values: tuple[Value, ...] | None = None,
    *,
    nullable: bool = True,
) -> Expr:
    """A column. Who reads it clamps it to ``low`` and ``high`` and makes NULL of what is not among ``values``.

    >>> col("age", "int", low=0, high=120).high
    120.0
    """
    if type not in TYPES:
        raise UnknownNameError("type", type, TYPES)
    if not name:
        raise InputError(f"name={shown(name)} is not allowed: expected the name of a column.")
    if (low is not None or high is not None) and type not in {"int", "float"}:
        raise InputError(f"Column {shown(name)} is a {type}, which has no range: leave out low and high.")
    ends = [_end(name, type, end, up=up) for end, up in ((low, False), (high, True))]
    if ends[0] is not None and ends[1] is not None and not ends[0] <= ends[1]:
        raise InputError(f"Column {shown(name)} has the range {ends[0]} to {ends[1]}: low is above high.")
    domain = None if values is None else _domain(name, type, values)
    if domain and type in {"int", "float"}:
        numbers = [float(cast("float", v)) for v in domain]
        ends = [
            max(min(numbers), *(e for e in ends[:1] if e is not None), -math.inf),
            min(max(numbers), *(e for e in ends[1:] if e is not None), math.inf),
        ]
    return Expr("col", type, value=name, low=ends[0], high=ends[1], values=domain, nullable=nullable)


def _end(name: str, type: Type, end: float | None, *, up: bool) -> float | None:  # noqa: A002
    if end is None:
        return None
    if not math.isfinite(end):
        raise InputError(f"The range of column {shown(name)} has the end {shown(end)}: expected a finite number.")
    if type == "int":
        whole = math.floor(end) if up else math.ceil(end)
        return float(min(max(whole, INT_MIN), INT_MAX)) if abs(whole) <= 2**53 else None
    return saturated(float(end))


def _domain(name: str, type: Type, values: tuple[Value, ...]) -> tuple[Value, ...]:  # noqa: A002
    if len(values) > _VALUES_MAX:
        raise InputError(f"Column {shown(name)} lists more than {_VALUES_MAX} values: leave the list out, and its groups are selected.")
    found: dict[Value, None] = {}
    for value in values:
        if value is None:
            continue
        literal = lit(value)
        if literal.type != type and (literal.type, type) not in {("int", "float"), ("date", "timestamp")}:
            raise InputError(f"Column {shown(name)} is a {type}, but lists {shown(value)}, a {literal.type}.")
        found[_as(literal, type).value] = None
    return tuple(found)


def lit(value: object, type: Type | None = None) -> Expr:  # noqa: A002
    """A literal. ``type`` is for NULL, which has any.

    >>> lit(3).type, lit(3.5).low, lit("a").values, lit(None, "float").type
    ('int', 3.5, ('a',), 'float')
    """
    if value is None:
        return Expr("lit", type or "bool", values=())
    if isinstance(value, bool):
        return Expr("lit", "bool", value=value, values=(value,), nullable=False)
    if isinstance(value, int):
        if INT_MIN <= value <= INT_MAX:
            low, high = _around(value)
            return Expr("lit", "int", value=int(value), low=low, high=high, values=(int(value),), nullable=False)
        if abs(value) > 10**308:
            raise InputError(f"The number {shown(value)} is too large: expected one of at most 308 digits.")
        value = float(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"The number {shown(value)} is not allowed: expected a finite one.")
        value = float(value) + 0.0
        return Expr("lit", "float", value=value, low=value, high=value, values=(value,), nullable=False)
    if isinstance(value, str):
        return _lit_text(value)
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = _utc(value)
        return Expr("lit", "timestamp", value=value.replace(fold=0), values=(value.replace(fold=0),), nullable=False)
    if isinstance(value, date):
        return Expr("lit", "date", value=value, values=(value,), nullable=False)
    raise InputError(f"A value {shown(value)} is not allowed: expected one of {', '.join(TYPES)}, or NULL.")


def _around(value: int) -> tuple[float, float]:
    near = float(value)
    low, high = near, near
    if near > value:
        low = math.nextafter(near, -math.inf)
    elif near < value:
        high = math.nextafter(near, math.inf)
    return low, high


def _utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise InputError(f"The timestamp {shown(value)} leaves the calendar in UTC: expected the years 1 to 9999.") from None


def _lit_text(value: str) -> Expr:
    if len(value) > TEXT_MAX:
        raise InputError(f"A text of {len(value)} characters is too long: expected at most {TEXT_MAX}.")
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise InputError(f"The text {shown(value)} has a character that no database stores (NUL, or half of a pair): leave it out.")
    return Expr("lit", "text", value=str(value), values=(str(value),), nullable=False)


def call(op: str, *args: Expr) -> Expr:
    """An operator applied to expressions; what it takes is checked here, so that nothing can fail later.

    >>> call("div", lit(1), col("n", "int")).nullable
    True
    """
    sugar = _SUGAR.get(op)
    if sugar is not None and sugar.takes(len(args)):
        return sugar.make(*args)
    operator = OPERATORS.get(op)
    if operator is None:
        raise UnknownNameError("operator", op, {*OPERATORS, *_SUGAR})
    if len(args) < operator.least or (operator.most is not None and len(args) > operator.most):
        raise InputError(f"{op} is written {operator.syntax}: given {len(args)} arguments.")
    shape = operator.rule(op, args)
    turned = tuple(_as(a, kind) for a, kind in zip(args, shape.takes, strict=True))
    if op in _SAME and turned[0].type == shape.type:
        return turned[0]
    values = _values(op, turned, shape)
    return Expr(op, shape.type, turned, None, shape.low, shape.high, values, shape.nullable)


_SAME = frozenset({"cast_int", "cast_float", "cast_text", "cast_bool", "cast_date", "cast_timestamp"})
_SMALL = frozenset({"quarter", "month", "day", "dow", "hour", "minute", "sign"})


def _values(op: str, args: tuple[Expr, ...], shape: Shape) -> tuple[Value, ...] | None:
    """All that a call can give, where that is plain to see."""
    if shape.type == "bool":
        return (False, True)
    if op in _SMALL and shape.low is not None and shape.high is not None:
        return tuple(range(int(shape.low), int(shape.high) + 1))
    if op in {"case", "coalesce", "nullif"}:
        parts = {"case": (*args[1::2], args[-1]), "nullif": args[:1]}.get(op, args)
        if all(p.values is not None for p in parts):
            return tuple(dict.fromkeys(v for p in parts for v in p.values or ()))
    return None


def _as(expr: Expr, kind: Type) -> Expr:
    """The expression as one of that type, where every value of its own type is one."""
    if expr.type == kind:
        return expr
    if expr.is_null:
        return lit(None, kind)
    if expr.op == "lit" and kind == "float":
        return lit(float(cast("int", expr.value)))
    if expr.op == "lit" and kind == "timestamp":
        day = cast("date", expr.value)
        return lit(datetime(day.year, day.month, day.day))  # noqa: DTZ001 - in UTC, without saying so
    assert (expr.type, kind) in {("int", "float"), ("date", "timestamp")}
    values = None if expr.values is None else tuple(cast("float", _as(lit(v), kind).value) for v in expr.values)
    return Expr(f"cast_{kind}", kind, (expr,), None, expr.low, expr.high, values, expr.nullable)


# ------------------------------------------------------------------------------------------------ what is written with others


@dataclass(frozen=True, slots=True)
class _Sugar:
    takes: Callable[[int], bool]
    make: Callable[..., Expr]


def _round(x: Expr, digits: Expr) -> Expr:
    if digits.op != "lit" or digits.type != "int" or not abs(cast("int", digits.value)) <= 15:
        raise InputError(f"round takes a whole number of digits from -15 to 15, not {shown_expr(digits)}.")
    n = cast("int", digits.value)
    if n == 0 or (n > 0 and x.type == "int"):
        return call("round", x)
    scale = lit(float(10 ** abs(n)))
    if n > 0:
        return call("div", call("round", call("mul", x, scale)), scale)
    return call("mul", call("round", call("div", x, scale)), lit(10 ** abs(n)))


def _power(x: Expr, exponent: Expr) -> Expr:
    if x.op == "lit" and exponent.op != "lit" and not x.is_null and x.type in {"int", "float"}:
        base = float(cast("float", x.value))
        if not base > 0:
            raise InputError(f"power takes a base above 0 where the exponent varies: given {shown_expr(x)}.")
        return call("exp", call("mul", exponent, lit(math.log(base))))
    operator = OPERATORS["power"]
    shape = operator.rule("power", (x, exponent))
    return Expr("power", "float", (_as(x, "float"), _as(exponent, "float")), None, shape.low, shape.high, None, shape.nullable)


_LIKE = "LIKE takes 'abc', 'abc%', '%abc', '%abc%' or 'abc%def', where _ is any one character (not between two %)"


def _like(x: Expr, pattern: Expr, escape: Expr | None = None) -> Expr:
    """LIKE, written with comparisons that take time in proportion to the text."""
    parts = _pieces(pattern, escape)
    texts = ["".join(c or "_" for c in part) for part in parts]
    plain = all(None not in part for part in parts)
    if len(parts) == 1 and plain:
        return call("eq", x, lit(texts[0]))
    if len(parts) == 3 and not parts[0] and not parts[2] and None not in parts[1]:
        return call("contains", x, lit(texts[1]))
    if len(parts) > 2:
        raise InputError(f"{_LIKE}: given {shown_expr(pattern)}.")
    if len(parts) == 2 and plain and not all(texts):
        return call("starts_with", x, lit(texts[0])) if texts[0] or not texts[1] else call("ends_with", x, lit(texts[1]))
    long = sum(len(part) for part in parts)
    tests = [call("eq" if len(parts) == 1 else "ge", call("length", x), lit(long))]
    for part, start in zip(parts, (1, -len(parts[-1])), strict=False):
        tests += [call("eq", call("substr", x, lit(start + at), lit(len(run))), lit(run)) for at, run in _runs(part)]
    return call("and", *tests)


def _pieces(pattern: Expr, escape: Expr | None) -> list[list[str | None]]:
    """The pattern between its %, None for every _."""
    texts = [e.value if e.op == "lit" else None for e in (pattern, escape) if e is not None]
    if not all(isinstance(t, str) for t in texts) or (escape is not None and len(cast("str", texts[1])) > 1):
        raise InputError("LIKE takes a literal pattern, and ESCAPE one literal character: write them out.")
    mark = cast("str", texts[1]) if escape is not None else ""
    parts: list[list[str | None]] = [[]]
    letters = iter(cast("str", texts[0]))
    for letter in letters:
        if mark and letter == mark:
            kept = next(letters, None)
            if kept is None or kept not in {"%", "_", mark}:
                raise InputError(
                    f"The pattern {shown_expr(pattern)} has an escape before no %, _ or escape: write it twice, or leave it out."
                )
            parts[-1].append(kept)
        elif letter == "%":
            if len(parts) == 1 or parts[-1]:  # %% is %
                parts.append([])
        else:
            parts[-1].append(None if letter == "_" else letter)
    return parts


def _runs(part: list[str | None]) -> list[tuple[int, str]]:
    """The stretches of letters between the _, each with its place."""
    found: list[tuple[int, str]] = []
    for at, letter in enumerate(part):
        if letter is None:
            continue
        if found and found[-1][0] + len(found[-1][1]) == at:
            found[-1] = (found[-1][0], found[-1][1] + letter)
        else:
            found.append((at, letter))
    return found


_SUGAR: Mapping[str, _Sugar] = MappingProxyType(
    {
        "round": _Sugar(lambda n: n == 2, _round),
        "power": _Sugar(lambda n: n == 2, _power),
        "like": _Sugar(lambda n: n in {2, 3}, _like),
    }
)


# ------------------------------------------------------------------------------------------------ for other rooms


def columns_of(expr: Expr) -> frozenset[str]:
    """The names of the columns it looks at.

    >>> sorted(columns_of(call("add", col("a", "int"), col("b", "int"))))
    ['a', 'b']
    """
    found: set[str] = set()
    seen: set[str] = set()
    stack = [expr]
    while stack:
        e = stack.pop()
        if e.digest in seen:
            continue
        seen.add(e.digest)
        if e.op == "col":
            found.add(cast("str", e.value))
        stack.extend(e.args)
    return frozenset(found)


def substitute(expr: Expr, by: Mapping[str, Expr]) -> Expr:
    """The expression with columns replaced, ranges found anew.

    >>> str(substitute(call("abs", col("a", "int", low=-9, high=9)), {"a": lit(-1)}))
    'ABS(-1)'
    """
    done: dict[str, Expr] = {}

    def made(e: Expr) -> Expr:
        if e.digest not in done:
            if e.op == "col":
                done[e.digest] = by.get(cast("str", e.value), e)
            else:
                args = tuple(made(a) for a in e.args)
                done[e.digest] = e if args == e.args else call(e.op, *args)
        return done[e.digest]

    return made(expr)


def canonical(expr: Expr) -> str:
    """A text that only equal expressions share, the same on every machine: what digests of questions are made from.

    >>> canonical(lit(1)) == canonical(lit(True))
    False
    """
    return f"expr:{expr.digest}"


_INFIX = MappingProxyType(
    {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    | {"and": "AND", "or": "OR", "concat": "||"}
)


def _written(e: Expr) -> str:
    """SQL-like text for people."""
    if e.op == "col":
        return cast("str", e.value)
    if e.op == "lit":
        return _literal(e.value)
    if _silent(e):
        return _written(e.args[0])
    parts = [_written(a) for a in e.args]
    inner = [p if a.op in {"col", "lit"} or not _loose(a) else f"({p})" for a, p in zip(e.args, parts, strict=True)]
    match e.op:
        case op if op in _INFIX:
            return f" {_INFIX[op]} ".join(inner)
        case "neg":
            return f"-{inner[0]}"
        case "not":
            return f"NOT {inner[0]}"
        case "is_null":
            return f"{inner[0]} IS NULL"
        case "in":
            return f"{inner[0]} IN ({', '.join(parts[1:])})"
        case "case":
            whens = "".join(f" WHEN {c} THEN {v}" for c, v in zip(parts[:-1:2], parts[1::2], strict=True))
            return f"CASE{whens} ELSE {parts[-1]} END"
        case op if op.startswith("cast_"):
            return f"CAST({parts[0]} AS {e.type.upper()})"
        case op:
            return f"{op.upper()}({', '.join(parts)})"


def _silent(e: Expr) -> bool:
    """Whether it only says that a whole number is a number, or a date a timestamp."""
    return (e.op, e.args[0].type if e.args else None) in {("cast_float", "int"), ("cast_timestamp", "date")}


def _loose(e: Expr) -> bool:
    if _silent(e):
        return _loose(e.args[0])
    return e.op in _INFIX or e.op in {"neg", "not", "is_null", "in"}


def _literal(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", False: "FALSE", True: "TRUE"}[value]
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return f"DATE '{value.isoformat()}'" if isinstance(value, date) else repr(value)
