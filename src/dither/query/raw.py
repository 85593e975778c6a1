"""How a raw column, of whatever type the engine has it, becomes a value of its declared type without ever raising.

NaN is NULL, ±∞ the largest float, a time outside of the years 1 to 9999 is NULL, numbers are clamped to the column's range, and what is
not among its listed values is NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dither.query.facts import Type
from dither.query.operators import DATE_MAX, DATE_MIN, FLOAT_MAX, TIMESTAMP_MAX, TIMESTAMP_MIN
from dither.query.semantics import FALSE_TEXTS, FLOAT_TEXT, TIMESTAMP_TEXT, TRUE_TEXTS

if TYPE_CHECKING:
    from dither.query.compile import _Writer as Writer
    from dither.query.expr import Expr

_WHOLE = {"SMALLINT", "INTEGER", "BIGINT", "INT2", "INT4", "INT8", "INT"}
_BINARY = {"DOUBLE PRECISION", "REAL", "FLOAT4", "FLOAT8"}
_TINY = "2.4703282292062327e-324"


def read(w: Writer, x: str, column: Expr, physical: str) -> str:
    """The column (SQL text) as its declared type has it."""
    w.bare.add(x)
    kind = column.type
    v = _postgres(w, x, kind, physical) if w.to.name == "postgres" else _tried(w, x, kind, physical)
    found = w.let([v], lambda y: _ranged(w, y, column)) if kind in {"int", "float", "date", "timestamp"} else v
    if column.values is None:
        return found
    listed = ", ".join(w.lit(value, kind) for value in column.values) or w.lit(None, kind)
    return w.let([found], lambda y: f"CASE WHEN {w.to.collate.format(y) if kind == 'text' else y} IN ({listed}) THEN {y} END")


def _ranged(w: Writer, v: str, column: Expr) -> str:
    if column.type in {"date", "timestamp"}:
        first, last = (DATE_MIN, DATE_MAX) if column.type == "date" else (TIMESTAMP_MIN, TIMESTAMP_MAX)
        return f"CASE WHEN {v} BETWEEN {w.lit(first, column.type)} AND {w.lit(last, column.type)} THEN {v} END"
    low, high = column.low, column.high
    if column.type == "int":
        whens = [f" WHEN {v} > {w.lit(int(high), 'int')} THEN {w.lit(int(high), 'int')}"] if high is not None else []
        whens += [f" WHEN {v} < {w.lit(int(low), 'int')} THEN {w.lit(int(low), 'int')}"] if low is not None else []
        return f"CASE{''.join(whens)} ELSE {v} END" if whens else v
    nan = {"postgres": f"{v} = 'NaN'", "snowflake": f"{v} = 'NaN'", "bigquery": f"IS_NAN({v})"}.get(w.to.name, f"isnan({v})")
    top, bottom = w.to.number(FLOAT_MAX if high is None else high), w.to.number(-FLOAT_MAX if low is None else low)
    zero = w.to.number(0.0)
    ends = f"WHEN {v} > {top} THEN {top} WHEN {v} < {bottom} THEN {bottom}"
    return f"CASE WHEN {nan} THEN NULL {ends} WHEN {v} = 0 THEN {zero} ELSE {v} END"


def _tried(w: Writer, x: str, kind: Type, physical: str) -> str:
    """Engines that can try a cast."""
    wanted = w.to.types[kind]
    if physical == wanted or (w.to.name == "duckdb" and physical == "VARCHAR" == wanted):
        return x
    if w.to.name == "duckdb" and kind in {"date", "timestamp"} and physical in {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"}:
        return f"CAST(CASE WHEN isfinite({x}) THEN make_timestamp(epoch_us({x})) END AS {wanted})"
    if w.to.name == "snowflake":  # tries texts only
        return f"TRY_CAST(TO_VARCHAR({x}) AS {wanted})"
    if w.to.name == "spark":
        return f"try_cast({x} AS {wanted})"
    return w.to.form("try_cast", x, wanted)


def _postgres(w: Writer, x: str, kind: Type, physical: str) -> str:
    """PostgreSQL cannot try: what would raise is asked for before."""
    physical = physical.split("(", maxsplit=1)[0].strip() if "TIME" not in physical else physical
    match kind:
        case "text":
            return w.cast(x, "text")
        case "bool":
            return x if physical in {"BOOLEAN", "BOOL"} else _bool(w, x)
        case "int":
            return _int(w, x, physical)
        case "float":
            return _float(w, x, physical)
        case "date" | "timestamp":
            return _time(w, x, kind, physical)


def _bool(w: Writer, x: str) -> str:
    true, false = (", ".join(w.to.text(t) for t in texts) for texts in (TRUE_TEXTS, FALSE_TEXTS))
    value = f"lower(btrim(CAST({x} AS TEXT), ' '))"
    return w.let([value], lambda v: f"CASE WHEN {v} IN ({true}) THEN TRUE WHEN {v} IN ({false}) THEN FALSE END")


def _int(w: Writer, x: str, physical: str) -> str:
    if physical in _WHOLE:
        return x if physical in {"BIGINT", "INT8"} else w.cast(x, "int")
    if physical in _BINARY:
        low, high = w.to.number(-(2.0**63)), w.to.number(2.0**63)
        return f"CASE WHEN {x} >= {low} THEN CASE WHEN {x} < {high} THEN CAST(CAST({x} AS DOUBLE PRECISION) AS BIGINT) END END"
    if physical in {"NUMERIC", "DECIMAL"}:
        return f"CASE WHEN {x} BETWEEN -9223372036854775808 AND 9223372036854775807 THEN CAST({x} AS BIGINT) END"
    if physical in {"BOOLEAN", "BOOL"}:
        return w.to.form("bool_int", x)
    return w.let([f"CAST({x} AS TEXT)"], lambda v: f"CASE WHEN {w.matches(v, ' *[+-]?[0-9]{1,18} *')} THEN CAST({v} AS BIGINT) END")


def _float(w: Writer, x: str, physical: str) -> str:
    if physical in _WHOLE | _BINARY:
        return x if physical in {"DOUBLE PRECISION", "FLOAT8"} else w.cast(x, "float")
    if physical in {"NUMERIC", "DECIMAL"}:
        return w.let([x], lambda v: f"CASE WHEN {v} <> 'NaN' THEN {numeric(w, v)} END")
    text = w.let(
        [f"btrim(CAST({x} AS TEXT), ' ')"],
        lambda v: f"CASE WHEN {v} IN ('Infinity', '-Infinity') THEN {v} || '' WHEN {w.matches(v, FLOAT_TEXT)} THEN {v} END",
    )
    ends = (w.to.number(FLOAT_MAX), w.to.number(-FLOAT_MAX))
    return w.let(
        [text],
        lambda v: (
            f"CASE WHEN {v} = 'Infinity' THEN {ends[0]} WHEN {v} = '-Infinity' THEN {ends[1]}"
            f" ELSE {w.let([f'CAST({v} AS NUMERIC)'], lambda n: numeric(w, n))} END"
        ),
    )


def numeric(w: Writer, v: str) -> str:
    """A NUMERIC of PostgreSQL as a float: its cast raises for what is too large and for what vanishes."""
    top = repr(FLOAT_MAX)
    return (
        f"CASE WHEN {v} > {top} THEN {w.to.number(FLOAT_MAX)} WHEN {v} < -{top} THEN {w.to.number(-FLOAT_MAX)}"
        f" WHEN ABS({v}) <= {_TINY} THEN {w.to.number(0.0)} ELSE CAST({v} AS DOUBLE PRECISION) END"
    )


def _time(w: Writer, x: str, kind: Type, physical: str) -> str:
    if "WITH TIME ZONE" in physical or physical.startswith("TIMESTAMPTZ"):
        return w.cast(f"({x} AT TIME ZONE 'UTC')", kind)
    if physical.startswith("TIMESTAMP"):
        return x if kind == "timestamp" else w.cast(x, kind)
    if physical == "DATE":  # dates reach further than timestamps
        limits = f"{w.lit(DATE_MIN, 'date')} AND {w.lit(DATE_MAX, 'date')}"
        return x if kind == "date" else f"CASE WHEN {x} BETWEEN {limits} THEN {w.cast(x, kind)} END"
    value = f"btrim(CAST({x} AS TEXT), ' ')"
    return w.let([value], lambda v: f"CASE WHEN {w.matches(v, TIMESTAMP_TEXT)} THEN CAST(CAST({v} AS TIMESTAMP) AS {w.to.types[kind]}) END")
