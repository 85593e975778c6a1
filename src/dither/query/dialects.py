"""How each engine spells what the language needs: types, literals, names for a part, texts, times.

What only differs in spelling is here; what differs in what an engine can survive is in ``compile.py``, which asks for two facts:
``strict`` (floats that overflow raise, so they must be caught before) and ``underflow`` (so do floats that vanish).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from types import MappingProxyType

from dither.core.errors import UnknownNameError
from dither.query.facts import Type, Value
from dither.query.operators import INT_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The spellings of one engine. ``forms`` holds templates with ``{0}``, ``{1}`` … for arguments."""

    name: str
    types: Mapping[Type, str]
    quote: str
    escapes: bool
    """Whether a backslash in a text must be doubled."""
    strict: bool
    underflow: bool
    let: str
    """A value used several times: ``{value}`` under the name ``{name}`` in ``{body}``."""
    forms: Mapping[str, str]
    text_prefix: str = ""
    int_form: str = "CAST({} AS BIGINT)"
    float_form: str = "{}"
    collate: str = "{}"

    def text(self, value: str) -> str:
        """A text literal."""
        value = value.replace("\\", "\\\\") if self.escapes else value
        quoted = value.replace("'", "\\'") if self.name == "bigquery" else value.replace("'", "''")
        if self.name in {"bigquery", "spark"}:
            quoted = value.replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        return f"{self.text_prefix}'{quoted}'"

    def literal(self, value: Value, kind: Type) -> str:
        """A literal of that type."""
        if value is None:
            return f"CAST(NULL AS {self.types[kind]})"
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, str):
            return f"CAST({self.text(value)} AS TEXT)" if self.name == "postgres" else self.text(value)
        if isinstance(value, datetime):
            return self.forms["timestamp"].format(f"'{value.isoformat(sep=' ')}'")
        if isinstance(value, date):
            return f"DATE '{value.isoformat()}'"
        if isinstance(value, int):
            if value == INT_MIN:
                return self.forms["least_int"]
            return self.int_form.format(value) if value >= 0 or "(" in self.int_form else f"({self.int_form.format(value)})"
        return self.number(value)

    def number(self, value: float) -> str:
        """A float literal, every digit of it."""
        text = repr(value + 0.0)
        return self.float_form.format(text if "e" in text else f"{text}e0")

    def quoted(self, name: str) -> str:
        """The name of a column."""
        mark = self.quote
        return mark + (name.replace("`", "\\`") if self.name == "bigquery" else name.replace(mark, mark * 2)) + mark

    def form(self, key: str, *args: str) -> str:
        """A template filled in."""
        return self.forms[key].format(*args)


_DUCKDB: Mapping[str, str] = {
    "least_int": "(CAST(-9223372036854775807 AS BIGINT) - 1)",
    "timestamp": "TIMESTAMP {}",
    "matches": "regexp_full_match({0}, {1})",
    "pattern": "{}",
    "ascii": "strlen({0}) = length({0})",
    "other_case": "{2}({0})",
    "length": "length({0})",
    "trim": "trim({0}, ' ')",
    "rtrim": "rtrim({0}, {1})",
    "starts_with": "starts_with({0}, {1})",
    "ends_with": "ends_with({0}, {1})",
    "contains": "contains({0}, {1})",
    "log10": "log10({0})",
    "to_int": "TRY_CAST({0} AS BIGINT)",
    "try_cast": "TRY_CAST({0} AS {1})",
    "bool_int": "CAST({0} AS BIGINT)",
    "date_text": "CAST({0} AS VARCHAR)",
    "timestamp_text": "CAST({0} AS VARCHAR)",
    "float_text": "CASE WHEN {0} = 0 THEN '0.0' ELSE CAST({0} AS VARCHAR) END",
    "nullif": "NULLIF({0})",
    "least": "least({0})",
    "greatest": "greatest({0})",
    "dow": "EXTRACT(DOW FROM {0})",
    "second": "EXTRACT(SECOND FROM {0})",
    "days": "date_diff('day', DATE '0001-01-01', CAST({0} AS DATE))",
    "trunc_date": "CAST(date_trunc('{0}', {1}) AS DATE)",
    "trunc_timestamp": "CAST(date_trunc('{0}', {1}) AS TIMESTAMP)",
    "week": "week",
    "add_month": "({0} + to_months(TRY_CAST({1} AS INTEGER)))",
    "add_day": "({0} + to_days(TRY_CAST({1} AS INTEGER)))",
    "add_hour": "({0} + to_hours({1}))",
    "add_minute": "({0} + to_minutes({1}))",
    "add_second": "({0} + to_seconds({1}))",
    "round": "round({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "mod": "({0} % {1})",
}
_POSTGRES: Mapping[str, str] = {
    **_DUCKDB,
    "least_int": "CAST('-9223372036854775808' AS BIGINT)",
    "matches": "{0} ~ {1}",
    "pattern": "^(?:{})$",
    "ascii": "octet_length({0}) = char_length({0})",
    "other_case": "translate({0}, {3}, {4})",
    "length": "CAST(char_length({0}) AS BIGINT)",
    "trim": "btrim({0}, ' ')",
    "ends_with": "(right({0}, {2}) = {1})",
    "contains": "(strpos({0}, {1}) > 0)",
    "log10": "log({0})",
    "try_cast": "CAST({0} AS {1})",
    "to_int": "CAST({0} AS BIGINT)",
    "bool_int": "CAST(CAST({0} AS INTEGER) AS BIGINT)",
    "date_text": "to_char({0}, 'YYYY-MM-DD')",
    "timestamp_text": "rtrim(rtrim(to_char({0}, 'YYYY-MM-DD HH24:MI:SS.US'), '0'), '.')",
    "float_text": "",  # its digits are not always the fewest: 7.66279631452242e+16 has one more
    "days": "CAST(CAST({0} AS DATE) - DATE '0001-01-01' AS BIGINT)",
    "trunc_date": "CAST(date_trunc('{0}', CAST({1} AS TIMESTAMP)) AS DATE)",
    "second": "floor(EXTRACT(SECOND FROM {0}))",
    "add_month": "({0} + INTERVAL '1 month' * CAST({1} AS DOUBLE PRECISION))",
    "add_day": "({0} + INTERVAL '1 day' * CAST({1} AS DOUBLE PRECISION))",
    "add_hour": "({0} + INTERVAL '1 hour' * CAST({1} AS DOUBLE PRECISION))",
    "add_minute": "({0} + INTERVAL '1 minute' * CAST({1} AS DOUBLE PRECISION))",
    "add_second": "({0} + INTERVAL '1 second' * CAST({1} AS DOUBLE PRECISION))",
    "round": "CASE WHEN abs({0}) < 4503599627370496 THEN sign({0}) * (floor(abs({0}))"
    " + CASE WHEN abs({0}) - floor(abs({0})) >= 0.5 THEN 1 ELSE 0 END) ELSE {0} END",
}
_SPARK: Mapping[str, str] = {
    **_DUCKDB,
    "least_int": "CAST('-9223372036854775808' AS BIGINT)",
    "timestamp": "TIMESTAMP_NTZ {}",
    "matches": "{0} RLIKE {1}",
    "pattern": r"^(?:{})\z",
    "ascii": "octet_length({0}) = char_length({0})",
    "other_case": "translate({0}, {3}, {4})",
    "length": "CAST(char_length({0}) AS BIGINT)",
    "trim": "trim(BOTH ' ' FROM {0})",
    "rtrim": "trim(TRAILING {1} FROM {0})",
    "starts_with": "startswith({0}, {1})",
    "ends_with": "endswith({0}, {1})",
    "to_int": "CAST(rint({0}) AS BIGINT)",
    "date_text": "date_format({0}, 'yyyy-MM-dd')",
    "timestamp_text": "trim(TRAILING '.' FROM trim(TRAILING '0' FROM date_format({0}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')))",
    "float_text": "",
    "dow": "(dayofweek({0}) - 1)",
    "second": "floor(EXTRACT(SECOND FROM {0}))",
    "days": "CAST(datediff(CAST({0} AS DATE), DATE '0001-01-01') AS BIGINT)",
    "trunc_timestamp": "CAST(date_trunc('{0}', {1}) AS TIMESTAMP_NTZ)",
    "add_month": "timestampadd(MONTH, {1}, {0})",
    "add_day": "timestampadd(DAY, {1}, {0})",
    "add_hour": "timestampadd(HOUR, {1}, {0})",
    "add_minute": "timestampadd(MINUTE, {1}, {0})",
    "add_second": "timestampadd(SECOND, {1}, {0})",
    "floor": "CASE WHEN abs({0}) < 9007199254740992D THEN CAST(floor({0}) AS DOUBLE) ELSE {0} END",
    "ceil": "CASE WHEN abs({0}) < 9007199254740992D THEN CAST(ceil({0}) AS DOUBLE) ELSE {0} END",
}
_HALF_EVEN = "CASE WHEN ABS({0} - TRUNC({0})) = 0.5 THEN 2 * ROUND({0} / 2) ELSE ROUND({0}) END"
_BIGQUERY: Mapping[str, str] = {
    **_DUCKDB,
    "least_int": "CAST('-9223372036854775808' AS INT64)",
    "timestamp": "DATETIME {}",
    "matches": "REGEXP_CONTAINS({0}, {1})",
    "pattern": "^(?:{})$",
    "ascii": "BYTE_LENGTH({0}) = CHAR_LENGTH({0})",
    "other_case": "TRANSLATE({0}, {3}, {4})",
    "length": "CHAR_LENGTH({0})",
    "contains": "(STRPOS({0}, {1}) > 0)",
    "to_int": f"CAST({_HALF_EVEN} AS INT64)",
    "try_cast": "SAFE_CAST({0} AS {1})",
    "bool_int": "CAST({0} AS INT64)",
    "date_text": "CAST({0} AS STRING)",
    "timestamp_text": "RTRIM(RTRIM(FORMAT_DATETIME('%E4Y-%m-%d %H:%M:%E6S', {0}), '0'), '.')",
    "float_text": "",
    "least": "(SELECT MIN(v) FROM UNNEST([{0}]) AS v)",
    "greatest": "(SELECT MAX(v) FROM UNNEST([{0}]) AS v)",
    "dow": "(EXTRACT(DAYOFWEEK FROM {0}) - 1)",
    "days": "DATE_DIFF(CAST({0} AS DATE), DATE '0001-01-01', DAY)",
    "trunc_date": "DATE_TRUNC({1}, {0})",
    "trunc_timestamp": "DATETIME_TRUNC({1}, {0})",
    "week": "ISOWEEK",
    "add_month": "({0} + INTERVAL {1} MONTH)",
    "add_day": "({0} + INTERVAL {1} DAY)",
    "add_hour": "DATETIME_ADD({0}, INTERVAL {1} HOUR)",
    "add_minute": "DATETIME_ADD({0}, INTERVAL {1} MINUTE)",
    "add_second": "DATETIME_ADD({0}, INTERVAL {1} SECOND)",
    "mod": "MOD({0}, {1})",
}
_SNOWFLAKE: Mapping[str, str] = {
    **_DUCKDB,
    "least_int": "CAST('-9223372036854775808' AS BIGINT)",
    "timestamp": "{}::TIMESTAMP_NTZ",
    "matches": "REGEXP_LIKE({0}, {1})",
    "ascii": "OCTET_LENGTH({0}) = LENGTH({0})",
    "other_case": "TRANSLATE({0}, {3}, {4})",
    "starts_with": "STARTSWITH({0}, {1})",
    "ends_with": "ENDSWITH({0}, {1})",
    "log10": "LOG(10, {0})",
    "to_int": f"CAST({_HALF_EVEN} AS BIGINT)",
    "date_text": "TO_VARCHAR({0}, 'YYYY-MM-DD')",
    "timestamp_text": "RTRIM(RTRIM(TO_VARCHAR({0}, 'YYYY-MM-DD HH24:MI:SS.FF6'), '0'), '.')",
    "float_text": "",
    "trunc_timestamp": "CAST(date_trunc('{0}', {1}) AS TIMESTAMP_NTZ)",
    "trunc_week": "DATEADD('DAY', 1 - DAYOFWEEKISO({0}), date_trunc('day', {0}))",
    "least": "LEAST_IGNORE_NULLS({0})",
    "greatest": "GREATEST_IGNORE_NULLS({0})",
    "dow": "(DAYOFWEEKISO({0}) % 7)",
    "days": "DATEDIFF('DAY', DATE '0001-01-01', CAST({0} AS DATE))",
    "add_month": "DATEADD('MONTH', {1}, {0})",
    "add_day": "DATEADD('DAY', {1}, {0})",
    "add_hour": "DATEADD('HOUR', {1}, {0})",
    "add_minute": "DATEADD('MINUTE', {1}, {0})",
    "add_second": "DATEADD('SECOND', {1}, {0})",
}
_TYPES: Mapping[Type, str] = {
    "bool": "BOOLEAN",
    "int": "BIGINT",
    "float": "DOUBLE",
    "text": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "duckdb": Dialect(
            name="duckdb",
            types=_TYPES,
            quote='"',
            escapes=False,
            strict=False,
            underflow=False,
            let="list_transform([{value}], lambda {name}: {body})[1]",
            forms=_DUCKDB,
            collate='({} COLLATE "binary")',
        ),
        "postgres": Dialect(
            name="postgres",
            types={**_TYPES, "float": "DOUBLE PRECISION", "text": "TEXT"},
            quote='"',
            escapes=True,
            strict=True,
            underflow=True,
            let="(SELECT {body} FROM (SELECT {value} AS {name} OFFSET 0) AS t{name})",
            forms=_POSTGRES,
            text_prefix="E",
            float_form="CAST('{}' AS DOUBLE PRECISION)",
            collate='({} COLLATE "C")',
        ),
        "spark": Dialect(
            name="spark",
            types={**_TYPES, "text": "STRING", "timestamp": "TIMESTAMP_NTZ"},
            quote="`",
            escapes=True,
            strict=False,
            underflow=False,
            let="element_at(transform(array({value}), {name} -> {body}), 1)",
            forms=_SPARK,
            int_form="{}L",
            float_form="{}D",
        ),
        "bigquery": Dialect(
            name="bigquery",
            types={"bool": "BOOL", "int": "INT64", "float": "FLOAT64", "text": "STRING", "date": "DATE", "timestamp": "DATETIME"},
            quote="`",
            escapes=True,
            strict=True,
            underflow=False,
            let="(SELECT {body} FROM UNNEST([{value}]) AS {name})",
            forms=_BIGQUERY,
            int_form="{}",
            collate="COLLATE({}, '')",
        ),
        "snowflake": Dialect(
            name="snowflake",
            types={**_TYPES, "timestamp": "TIMESTAMP_NTZ"},
            quote='"',
            escapes=True,
            strict=True,
            underflow=False,
            let="(SELECT {body} FROM (SELECT {value} AS {name}))",
            forms=_SNOWFLAKE,
            float_form="CAST({} AS DOUBLE)",
            collate="COLLATE({}, 'utf8')",
        ),
    }
)


def dialect_of(name: str) -> Dialect:
    """The dialect of that name.

    >>> dialect_of("postgres").literal(-1.5, "float")
    "CAST('-1.5e0' AS DOUBLE PRECISION)"
    """
    found = DIALECTS.get(name)
    if found is None:
        raise UnknownNameError("dialect", name, DIALECTS)
    return found


Body = Callable[..., str]
