"""SQL for an expression: on every engine the value that ``semantics`` gives, on every row, without ever raising.

Engines differ in what makes them stop. DuckDB and Spark carry ±∞ on, which is turned back at once; PostgreSQL, BigQuery and Snowflake
stop at a float that overflows (PostgreSQL also at one that vanishes), so they ask first. Where the range of an expression shows
that nothing can happen, nothing is asked. A value that is needed twice gets a name, so that the text grows with the expression only.
Constant parts are computed here: an engine that folds constants would otherwise meet them outside of the CASE that guards them.

>>> from dither.query.expr import call, col, lit
>>> sql(call("div", col("x", "int", low=0, high=9), lit(2)))
'(CAST("x" AS DOUBLE) / 2.0e0)'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias, cast

from dither.core.errors import InputError
from dither.query import raw
from dither.query.dialects import Dialect, dialect_of
from dither.query.expr import Expr, col, columns_of
from dither.query.facts import Type, Value
from dither.query.operators import (
    DATE_MAX,
    EXP_HIGH,
    EXP_LOW,
    FINE_UNITS,
    FLOAT_MAX,
    STEPS_MAX,
    TEXT_MAX,
    WHOLE_MAX,
    fits,
    fits_whole,
    span,
)
from dither.query.semantics import DATE_TEXT, FALSE_TEXTS, FLOAT_TEXT, INT_TEXT, TIMESTAMP_TEXT, TRUE_TEXTS, evaluate, letters

_NEAR_MAX = FLOAT_MAX * (1 - 2.0**-51)
_UP, _DOWN = 2.0**537, 2.0**-538
_DAYS = DATE_MAX.toordinal() - 1


def sql(expr: Expr, dialect: str = "duckdb", name: Callable[[str], str] | None = None) -> str:
    """The expression as SQL text. ``name`` writes a column, as ``read`` left it; by default its name, quoted.

    >>> from dither.query.expr import call, col, lit
    >>> sql(call("gt", col("age", "int"), lit(17)), "postgres")
    '("age" > CAST(17 AS BIGINT))'
    """
    spelling = dialect_of(dialect)
    name = name or spelling.quoted
    columns = "".join(name(c) for c in columns_of(expr)).casefold()
    mark = "_v"
    while mark in columns:
        mark += "_"
    return _Writer(spelling, name, mark).text(expr)


def read(
    column: str,
    type: Type,  # noqa: A002 - the word of the language
    dialect: str = "duckdb",
    *,
    low: float | None = None,
    high: float | None = None,
    values: tuple[Value, ...] | None = None,
    physical: str | None = None,
) -> str:
    r"""A raw column (SQL text) as a value of its declared type, whatever it holds: finite, in range, one of its values.

    What is not of the type is NULL, ±∞ the largest float. ``physical`` is the engine's own name of the raw type; where it is not
    said, any is expected. Pass the same ``low``, ``high`` and ``values`` as to ``col``: ranges rest on them.

    >>> read('"sold"', "date", physical="DATE")
    'CASE WHEN "sold" BETWEEN DATE \'0001-01-01\' AND DATE \'9999-12-31\' THEN "sold" END'
    """
    writer = _Writer(dialect_of(dialect), lambda c: c, "_r")
    return raw.read(writer, column, col("x", type, low, high, values), (physical or "").upper())


_Rule: TypeAlias = Callable[["_Writer", Expr], str]


@dataclass(slots=True)
class _Writer:
    """Writes one expression. Every method returns text that can stand as an operand."""

    to: Dialect
    name: Callable[[str], str]
    mark: str
    done: dict[str, str] = field(default_factory=dict)
    names: int = 0
    bare: set[str] = field(default_factory=set)
    """Texts that are a name or a literal: these may be written twice."""
    by_bytes: set[str] = field(default_factory=set)
    """Texts that already say how they are compared."""

    def text(self, e: Expr) -> str:
        if e.digest not in self.done:
            if e.op == "col":
                found = self.name(cast("str", e.value))
                found = self.collated(found, e.type)
                self.bare.add(found)
            elif e.op == "lit" or not columns_of(e):
                found = self.lit(e.value if e.op == "lit" else evaluate(e, {}), e.type)
            else:
                found = _RULES[e.op](self, e)
            self.done[e.digest] = found
        return self.done[e.digest]

    def args(self, e: Expr) -> list[str]:
        return [self.text(a) for a in e.args]

    def lit(self, value: Value, kind: Type) -> str:
        found = self.to.literal(value, kind)
        self.bare.add(found)
        return found

    def let(self, values: list[str], body: Callable[..., str]) -> str:
        """The body, over values that it may use as often as it likes."""
        if all(v in self.bare for v in values):
            return body(*values)
        names = []
        for _ in values:
            self.names += 1
            names.append(f"{self.mark}{self.names}")
        self.bare.update(names)
        text = body(*names)
        for value, name in reversed(list(zip(values, names, strict=True))):
            text = self.to.let.format(value=value, name=name, body=text)
        return text

    def cast(self, text: str, kind: Type) -> str:
        return f"CAST({text} AS {self.to.types[kind]})"

    def formed(self, key: str, text: str) -> str:
        """A template, over a value that it may use several times."""
        return self.let([text], lambda v: self.to.form(key, v)) if self.to.forms[key].count("{0}") > 1 else self.to.form(key, text)

    def whole(self, text: str) -> str:
        """A float that is known to fit, as a whole number; tried where an engine can try, should it look before it is asked."""
        return self.to.form("try_cast", text, "BIGINT") if self.to.name == "duckdb" else self.cast(text, "int")

    # -------------------------------------------------------------------------------------------- floats

    def limit(self, text: str, e: Expr) -> str:
        """A float that may be ±∞, as the largest float; unless its range shows that it cannot."""
        if e.low is not None and e.high is not None:
            return text
        top, bottom = self.to.number(FLOAT_MAX), self.to.number(-FLOAT_MAX)
        return self.let([text], lambda v: f"CASE WHEN {v} > {top} THEN {top} WHEN {v} < {bottom} THEN {bottom} ELSE {v} END")

    def arithmetic(self, e: Expr) -> str:
        a, b = self.args(e)
        plain = f"({a} {_SIGNS[e.op]} {b})"
        if e.type == "int":
            return plain
        safe = e.low is not None and e.high is not None
        if e.op == "mul" and self.to.underflow and not any(_coarse(x) for x in e.args):
            safe = False
        if safe:
            return plain
        if not self.to.strict:
            return self.limit(plain, e)
        return self.let([a, b], self.product if e.op == "mul" else lambda x, y: self.sum(x, y, _SIGNS[e.op]))

    def sum(self, a: str, b: str, sign: str) -> str:
        """What would pass the largest float is found by a difference that cannot."""
        top, bottom = self.to.number(FLOAT_MAX), self.to.number(-FLOAT_MAX)
        over = f"{b} > {top} - {a}" if sign == "+" else f"{b} < {a} - {top}"
        under = f"{b} < {bottom} - {a}" if sign == "+" else f"{b} > {a} - {bottom}"
        return (
            f"CASE WHEN {a} > 0 THEN CASE WHEN {over} THEN {top} ELSE {a} {sign} {b} END"
            f" WHEN {a} < 0 THEN CASE WHEN {under} THEN {bottom} ELSE {a} {sign} {b} END ELSE {a} {sign} {b} END"
        )

    def signed_max(self, a: str, b: str) -> str:
        return f"CASE WHEN ({a} > 0) = ({b} > 0) THEN {self.to.number(FLOAT_MAX)} ELSE {self.to.number(-FLOAT_MAX)} END"

    def product(self, a: str, b: str) -> str:
        near, up, small = self.to.number(_NEAR_MAX), self.to.number(_UP), self.to.number(1 / _UP)
        vanishes = f"(ABS({a}) * {up}) * (ABS({b}) * {up}) <= 0.5"
        found = f"CASE WHEN ABS({a}) > 1 THEN CASE WHEN ABS({b}) > {near} / ABS({a}) THEN {self.signed_max(a, b)} ELSE {a} * {b} END"
        if self.to.underflow:
            found += f" WHEN ABS({b}) < 1 THEN CASE WHEN ABS({a}) < {small} OR ABS({b}) < {small} THEN"
            found += f" CASE WHEN {vanishes} THEN {self.to.number(0.0)} ELSE {a} * {b} END ELSE {a} * {b} END"
        return f"{found} ELSE {a} * {b} END"

    def quotient(self, e: Expr) -> str:
        a, b = self.args(e)
        low, high = span(e.args[1])
        zero = low <= 0 <= high
        coarse = not self.to.underflow or _coarse(e.args[0])
        if e.low is not None and e.high is not None and coarse:
            return f"({a} / NULLIF({b}, {self.to.number(0.0)}))" if zero else f"({a} / {b})"
        if not self.to.strict:
            return self.limit(f"({a} / NULLIF({b}, {self.to.number(0.0)}))", e)
        near, up, down = self.to.number(_NEAR_MAX), self.to.number(_UP), self.to.number(_DOWN)
        return self.let(
            [a, b],
            lambda x, y: (
                f"CASE WHEN {y} = 0 THEN NULL"
                f" WHEN ABS({y}) < 1 THEN CASE WHEN ABS({x}) > {near} * ABS({y}) THEN {self.signed_max(x, y)} ELSE {x} / {y} END"
                f" WHEN ABS({x}) < 1 THEN CASE WHEN ABS({x}) * {up} <= ABS({y}) * {down} THEN {self.to.number(0.0)} ELSE {x} / {y} END"
                f" ELSE {x} / {y} END"
            ),
        )

    def power(self, e: Expr) -> str:
        p = float(cast("float", e.args[1].value))
        call = {"postgres": "power"}.get(self.to.name, "pow")
        number = self.to.number

        def body(x: str) -> str:
            if p == 0:
                return f"CASE WHEN {x} IS NOT NULL THEN {number(1.0)} END"
            whens = [f"WHEN {x} < 0 THEN NULL"] if not p.is_integer() else []
            whens += [f"WHEN {x} = 0 THEN {'NULL' if p < 0 else number(0.0)}"]
            most, least = _root(FLOAT_MAX, p), _root(1e-323, p)
            above, below = (">", "<") if p > 0 else ("<", ">")
            top = number(FLOAT_MAX)
            if p % 2 == 1:
                top = f"CASE WHEN {x} < 0 THEN {number(-FLOAT_MAX)} ELSE {top} END"
            whens += [f"WHEN ABS({x}) {above} {number(most)} THEN {top}"] if most is not None else []
            whens += [f"WHEN ABS({x}) {below} {number(least)} THEN {number(0.0)}"] if least is not None else []
            return f"CASE {' '.join(whens)} ELSE {call}({x}, {number(p)}) END"

        return self.let([self.text(e.args[0])], body)

    def guarded(self, e: Expr, call: str, condition: str) -> str:
        """A function of one number, NULL where it has no value."""
        low, _ = span(e.args[0])
        x = self.text(e.args[0])
        if low > 0 or (low == 0 and condition == ">="):
            return call.format(x)
        return self.let([x], lambda v: f"CASE WHEN {v} {condition} 0 THEN {call.format(v)} END")

    def exp(self, e: Expr) -> str:
        low, high = span(e.args[0])
        x = self.text(e.args[0])
        if low >= EXP_LOW and high <= EXP_HIGH:
            return f"EXP({x})"
        lows, highs = self.to.number(EXP_LOW), self.to.number(EXP_HIGH)
        least, most = self.to.number(math.exp(EXP_LOW)), self.to.number(math.exp(EXP_HIGH))
        return self.let([x], lambda v: f"CASE WHEN {v} > {highs} THEN {most} WHEN {v} < {lows} THEN {least} ELSE EXP({v}) END")

    def step(self, e: Expr) -> str:
        x = self.text(e.args[0])
        if e.args[0].type == "int":
            return x
        found = self.formed(e.op, x)
        return self.whole(found) if e.type == "int" else found

    def clamp(self, e: Expr) -> str:
        x, low, high = self.args(e)
        return self.let([x], lambda v: clamped(v, low, high))

    def mod(self, e: Expr) -> str:
        a, b = self.args(e)
        low, high = span(e.args[1])
        if low <= 0 and fits(e.args[1]):  # by its size: the smallest whole number by -1 would overflow
            b = f"NULLIF(ABS({b}), {self.lit(0, 'int')})"
        elif low <= 0 <= high:
            b = f"NULLIF({b}, {self.lit(0, 'int')})"
        return self.to.form("mod", a, b)

    # -------------------------------------------------------------------------------------------- comparisons

    def compare(self, e: Expr) -> str:
        kinds = [a.type for a in e.args]
        if sorted(kinds) == ["float", "int"]:
            return self.exactly(e)
        a, b = self.args(e)
        return f"({self.collated(a, e.args[0].type)} {_SIGNS[e.op]} {b})"

    def collated(self, text: str, kind: Type) -> str:
        """A text that is compared by its bytes."""
        if kind != "text" or text in self.by_bytes:
            return text
        found = self.to.collate.format(text)
        self.by_bytes.add(found)
        return found

    def exactly(self, e: Expr) -> str:
        """A whole number beside a float, where turning it into a float could make unequal numbers equal."""
        whole, other = e.args if e.args[0].type == "int" else e.args[::-1]
        op = e.op if e.args[0].type == "int" else _TURNED[e.op]
        i = self.text(whole)

        def body(i: str, f: str) -> str:
            true, false = f"({i} = {i})", f"({i} <> {i})"
            above, below = (true, false) if op in {"lt", "le", "ne"} else (false, false) if op == "eq" else (false, true)
            below = true if op == "ne" else below
            if op in {"eq", "ne"}:
                same = f"WHEN {f} = FLOOR({f}) THEN {i} {_SIGNS[op]} {self.whole(f)} ELSE {false if op == 'eq' else true}"
            else:
                near = self.to.form("ceil" if op in {"lt", "ge"} else "floor", f)
                same = f"ELSE {i} {_SIGNS[op]} {self.whole(near)}"
            top, bottom = self.to.number(2.0**63), self.to.number(-(2.0**63))
            return f"CASE WHEN {f} IS NULL THEN NULL WHEN {f} >= {top} THEN {above} WHEN {f} < {bottom} THEN {below} {same} END"

        return self.let([i, self.text(other)], body)

    # -------------------------------------------------------------------------------------------- casts

    def matches(self, text: str, pattern: str) -> str:
        return self.to.form("matches", text, self.to.text(self.to.forms["pattern"].replace("{}", pattern)))

    def cast_int(self, e: Expr) -> str:
        (a,), x = e.args, self.text(e.args[0])
        if a.type == "bool":
            return self.to.form("bool_int", x)
        limit = f"BETWEEN {self.to.number(-float(WHOLE_MAX))} AND {self.to.number(float(WHOLE_MAX))}"
        if a.type == "float":
            ask = "{1}" if fits_whole(a) else f"CASE WHEN {{0}} {limit} THEN {{1}} END"
            return self.let([x], lambda v: ask.format(v, self.to.form("to_int", v)))
        most = self.lit(WHOLE_MAX, "int")
        found = self.let(
            [self.to.form("trim", x)],
            lambda v: f"CASE WHEN {self.matches(v, INT_TEXT)} THEN {self.to.form('try_cast', v, self.to.types['int'])} END",
        )
        return self.let([found], lambda v: f"CASE WHEN ABS({v}) <= {most} THEN {v} END")

    def cast_float(self, e: Expr) -> str:
        (a,), x = e.args, self.text(e.args[0])
        if a.type == "bool":
            return self.cast(self.to.form("bool_int", x), "float")
        if a.type == "int":
            return self.cast(x, "float")
        number = "NUMERIC" if self.to.underflow else self.to.types["float"]
        found = self.let(
            [self.to.form("trim", x)],
            lambda v: f"CASE WHEN {self.matches(v, FLOAT_TEXT)} THEN {self.to.form('try_cast', v, number)} END",
        )
        if not self.to.underflow:
            return self.limit(found, e)
        return self.let([found], lambda v: raw.numeric(self, v))

    def cast_text(self, e: Expr) -> str:
        (a,), x = e.args, self.text(e.args[0])
        if a.type == "bool":
            return self.let([x], lambda v: f"CASE WHEN {v} THEN 'true' WHEN NOT {v} THEN 'false' END")
        if a.type == "int":
            return self.cast(x, "text")
        if not self.to.forms.get(f"{a.type}_text"):
            raise InputError(f"On {self.to.name} a float has no text that is the same as elsewhere: cast {a} to INT first.")
        return self.formed(f"{a.type}_text", x)

    def cast_bool(self, e: Expr) -> str:
        x = self.text(e.args[0])
        if e.args[0].type != "text":
            return f"({x} <> 0)"
        true, false = (", ".join(self.to.text(t) for t in texts) for texts in (TRUE_TEXTS, FALSE_TEXTS))
        value = f"LOWER({self.to.form('trim', x)})"
        return self.let([value], lambda v: f"CASE WHEN {v} IN ({true}) THEN TRUE WHEN {v} IN ({false}) THEN FALSE END")

    def cast_time(self, e: Expr) -> str:
        x = self.text(e.args[0])
        if e.args[0].type != "text":
            return self.cast(x, e.type)
        pattern = DATE_TEXT if e.type == "date" else TIMESTAMP_TEXT
        read = "{0}" if e.type == "date" else self.to.forms["rtrim"]
        kind, zone = self.to.types[e.type], "'Z'"
        return self.let(
            [self.to.form("trim", x)],
            lambda v: f"CASE WHEN {self.matches(v, pattern)} THEN {self.to.form('try_cast', read.format(v, zone), kind)} END",
        )

    # -------------------------------------------------------------------------------------------- texts

    def letters(self, e: Expr) -> str:
        """The engine's own rule for ASCII; beyond it, the same table everywhere."""
        native = self.to.forms["other_case"]
        x = self.text(e.args[0])
        if native == "{2}({0})":
            return native.format(x, "", e.op)
        old, new = (self.to.text(t) for t in letters(e.op))
        ascii_too = "CASE WHEN {0} THEN {1} ELSE {2} END"

        def body(v: str) -> str:
            return ascii_too.format(self.to.form("ascii", v), f"{e.op}({self.collated(v, 'text')})", native.format(v, "", "", old, new))

        return self.let([x], body)

    def substr(self, e: Expr) -> str:
        x = self.text(e.args[0])
        start, *count = (cast("int", a.value) for a in e.args[1:])
        if start > 0:
            return f"substr({x}, {', '.join(str(n) for n in (start, *count))})"
        return f"left(right({x}, {-start}), {count[0]})" if count else f"right({x}, {-start})"

    def concat(self, e: Expr) -> str:
        parts = [self.text(a) if a.op == "lit" else f"left({self.text(a)}, {TEXT_MAX})" for a in e.args]
        return parts[0] if len(parts) == 1 else f"left({' || '.join(parts)}, {TEXT_MAX})"

    def finds(self, e: Expr) -> str:
        x, part = self.args(e)
        wanted = cast("str", e.args[1].value)
        if not wanted:
            return f"({x} = {x})"
        return self.to.form(e.op, x, part, str(len(wanted)))

    # -------------------------------------------------------------------------------------------- times

    def part(self, op: str, x: str) -> str:
        if op in {"dow", "second"}:
            return self.cast(self.to.form(op, x), "int")
        return self.cast(f"EXTRACT({op.upper()} FROM {x})", "int")

    def truncated(self, e: Expr) -> str:
        unit, x = cast("str", e.args[0].value).lower(), self.text(e.args[1])
        if e.type == "date" and unit in FINE_UNITS:
            return x
        if unit == "week" and "trunc_week" in self.to.forms:
            return self.cast(self.let([x], lambda v: self.to.form("trunc_week", v)), e.type)
        return self.to.form(f"trunc_{e.type}", self.to.forms["week"] if unit == "week" else unit, x)

    def place(self, unit: str, x: str, kind: Type) -> str:
        """The number of the year, month, week … in which it lies."""
        if unit == "year":
            return self.part("year", x)
        if unit in {"quarter", "month"}:
            return f"({self.part('year', x)} * {4 if unit == 'quarter' else 12} + {self.part(unit, x)})"
        days = self.to.form("days", x)
        if unit == "day":
            return days
        if unit == "week":
            return self.cast(f"FLOOR({self.cast(days, 'float')} / {self.to.number(7.0)})", "int")
        hours = f"{days} * 24 + {self.part('hour', x)}" if kind == "timestamp" else f"{days} * 24"
        minutes = f"({hours}) * 60 + {self.part('minute', x)}"
        return {"hour": f"({hours})", "minute": f"({minutes})", "second": f"(({minutes}) * 60 + {self.part('second', x)})"}[unit]

    def difference(self, e: Expr) -> str:
        unit, kind = cast("str", e.args[0].value).lower(), e.args[1].type
        ends = [self.text(a) for a in e.args[1:]]
        start, end = (self.let([x], lambda v: self.place(unit, v, kind)) for x in ends)
        return f"({end} - {start})"

    def later(self, e: Expr) -> str:
        """Asked before it is done: no engine has to make a date that is not in the calendar."""
        unit, kind = cast("str", e.args[0].value).lower(), e.args[1].type
        factor, base = {"year": (12, "month"), "quarter": (3, "month"), "week": (7, "day")}.get(unit, (1, unit))
        low, high = {"month": (13, 9_999 * 12 + 12), "day": (0, _DAYS)}.get(base) or _seconds(base)
        most, times = STEPS_MAX[unit], f" * {self.lit(factor, 'int')}" if factor > 1 else ""
        limit = f"BETWEEN {self.lit(-most, 'int')} AND {self.lit(most, 'int')}"
        steps = self.let([self.text(e.args[2])], lambda n: f"CASE WHEN {n} {limit} THEN {n}{times} END")
        found = self.let(
            [self.text(e.args[1]), steps],
            lambda x, n: (
                f"CASE WHEN {self.place(base, x, kind)} + {n} BETWEEN {self.lit(low, 'int')} AND {self.lit(high, 'int')}"
                f" THEN {self.to.form(f'add_{base}', x, n)} END"
            ),
        )
        return self.cast(found, e.type)


def _coarse(e: Expr) -> bool:
    """Whether every value is 0 or at least 1 in size, so that no product with a float can vanish."""
    if e.op == "lit":
        return e.value == 0 or abs(cast("float", e.value or 0)) >= 1
    low, high = span(e)
    return (e.op == "cast_float" and e.args[0].type in {"int", "bool"}) or e.op in {"floor", "ceil", "round"} or low >= 1 or high <= -1


def _root(number: float, exponent: float) -> float | None:
    """Which number has that power, a little on the safe side; None where no float has."""
    try:
        found = math.pow(number, 1 / exponent)
    except OverflowError:
        return None
    safe = 1 - 1e-13 if (number > 1) == (exponent > 0) else 1 + 1e-13
    return found * safe if 0 < found < FLOAT_MAX else None


def _seconds(unit: str) -> tuple[int, int]:
    per_day = {"hour": 24, "minute": 24 * 60, "second": 86_400}[unit]
    return 0, (_DAYS + 1) * per_day - 1


def clamped(v: str, low: str | None, high: str | None) -> str:
    """A CASE that keeps NULL."""
    whens = [f" WHEN {v} > {high} THEN {high}"] if high is not None else []
    whens += [f" WHEN {v} < {low} THEN {low}"] if low is not None else []
    return f"CASE{''.join(whens)} ELSE {v} END" if whens else v


def _joined(word: str) -> _Rule:
    return lambda w, e: f"({f' {word} '.join(w.args(e))})"


def _case(w: _Writer, e: Expr) -> str:
    parts = w.args(e)
    whens = "".join(f" WHEN {c} THEN {v}" for c, v in zip(parts[:-1:2], parts[1::2], strict=True))
    return f"CASE{whens} ELSE {parts[-1]} END"


def _in(w: _Writer, e: Expr) -> str:
    x, *listed = w.args(e)
    return f"({w.collated(x, e.args[0].type)} IN ({', '.join(listed)}))"


def _called(key: str) -> _Rule:
    def written(w: _Writer, e: Expr) -> str:
        first, *rest = w.args(e)
        return w.to.form(key, ", ".join((w.collated(first, e.type), *rest)))

    return written


_SIGNS: Mapping[str, str] = MappingProxyType(
    {"add": "+", "sub": "-", "mul": "*", "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
)
_TURNED: Mapping[str, str] = MappingProxyType({"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"})
_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "neg": lambda w, e: f"(- {w.text(e.args[0])})",
        "abs": lambda w, e: f"ABS({w.text(e.args[0])})",
        "add": _Writer.arithmetic,
        "sub": _Writer.arithmetic,
        "mul": _Writer.arithmetic,
        "div": _Writer.quotient,
        "mod": _Writer.mod,
        "floor": _Writer.step,
        "ceil": _Writer.step,
        "round": _Writer.step,
        "sign": lambda w, e: w.cast(f"SIGN({w.text(e.args[0])})", "int"),
        "sqrt": lambda w, e: w.guarded(e, "SQRT({})", ">="),
        "ln": lambda w, e: w.guarded(e, "LN({})", ">"),
        "log10": lambda w, e: w.guarded(e, w.to.forms["log10"].replace("{0}", "{}"), ">"),
        "exp": _Writer.exp,
        "power": _Writer.power,
        "least": _called("least"),
        "greatest": _called("greatest"),
        "clamp": _Writer.clamp,
        **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _Writer.compare),
        "and": _joined("AND"),
        "or": _joined("OR"),
        "not": lambda w, e: f"(NOT {w.text(e.args[0])})",
        "is_null": lambda w, e: f"({w.text(e.args[0])} IS NULL)",
        "in": _in,
        "case": _case,
        "coalesce": lambda w, e: f"COALESCE({', '.join(w.args(e))})",
        "nullif": _called("nullif"),
        "cast_int": _Writer.cast_int,
        "cast_float": _Writer.cast_float,
        "cast_text": _Writer.cast_text,
        "cast_bool": _Writer.cast_bool,
        "cast_date": _Writer.cast_time,
        "cast_timestamp": _Writer.cast_time,
        "lower": _Writer.letters,
        "upper": _Writer.letters,
        "trim": lambda w, e: w.to.form("trim", w.text(e.args[0])),
        "length": lambda w, e: w.to.form("length", w.text(e.args[0])),
        "substr": _Writer.substr,
        "concat": _Writer.concat,
        **dict.fromkeys(("starts_with", "ends_with", "contains"), _Writer.finds),
        **dict.fromkeys(("year", "quarter", "month", "day", "dow", "hour", "minute"), lambda w, e: w.part(e.op, w.text(e.args[0]))),
        "date_trunc": _Writer.truncated,
        "date_diff": _Writer.difference,
        "date_add": _Writer.later,
    }
)
