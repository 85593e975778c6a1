"""The answer to a question: a table of noisy numbers, each with how far it may be off, what bounding took away, and the price.

It is made of plain values, and is one JSON value and back: what is stored is what was told.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import math
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, Self, cast

from dither.core import checks, events
from dither.core.encoding import canonical_json, parse_json
from dither.core.errors import DecodeError, InputError, MissingExtraError, UnknownNameError
from dither.core.events import Event
from dither.query.facts import TYPES, Type, Value

WIDTH: Final = 80
SHOWN_MAX: Final = 40
_FORMAT: Final = 1
_KINDS: Final[Mapping[Type, type | tuple[type, ...]]] = {
    "bool": bool,
    "int": int,
    "float": (int, float),
    "text": str,
    "date": str,
    "timestamp": str,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumn:
    """One column: its values from first to last row, and half widths of their intervals (None: there is no noise in it)."""

    name: str
    type: Type
    values: tuple[Value, ...]
    half_widths: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """About which share of an aggregate's total was taken away by bounding units; None where nobody looked, 0 where nothing can be."""

    aggregate: str
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A table that may be released, in the order that was asked for.

    >>> n = ResultColumn(name="n", type="int", values=(41, 7), half_widths=(3.0, 3.0))
    >>> city = ResultColumn(name="city", type="text", values=("Delhi", None))
    >>> answer = Answer(columns=(city, n), event=events.Laplace(2.0))
    >>> print(answer)
    city  |   n
    ------+-------
    Delhi | 41 ± 3
    NULL  |  7 ± 3
    ± holds with 95 % confidence.
    >>> Answer.from_plain(answer.plain()) == answer
    True
    """

    columns: tuple[ResultColumn, ...]
    event: Event
    confidence: float = 0.95
    lost: tuple[Lost, ...] = ()
    price: tuple[float, float] | None = None
    """(ε, δ) that was asked for, if it was."""
    notes: tuple[str, ...] = ()
    _names: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.columns or len({len(c.values) for c in self.columns}) != 1:
            raise InputError("The columns of an answer differ in length, or there are none: expected one value in each for each row.")
        for position, column in enumerate(self.columns):
            if column.half_widths is not None and len(column.half_widths) != len(column.values):
                raise InputError("A column of an answer has another number of intervals than of values: expected one for each.")
            self._names[column.name] = position

    # -------------------------------------------------------------------------------------------- looking at it

    def __len__(self) -> int:
        return len(self.columns[0].values)

    def __getitem__(self, name: str) -> tuple[Value, ...]:
        return self.column(name).values

    def column(self, name: str) -> ResultColumn:
        """The column of that name."""
        if name not in self._names:
            raise UnknownNameError("column of the answer", name, self._names)
        return self.columns[self._names[name]]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(c.name for c in self.columns)

    def rows(self) -> Iterator[tuple[Value, ...]]:
        """Row by row."""
        return zip(*(c.values for c in self.columns), strict=True)

    def interval(self, name: str, row: int) -> tuple[float, float] | None:
        """Between which numbers the truth (after bounding) lies, with ``confidence``; None where the number has no noise or is none."""
        column = self.column(name)
        value = column.values[row]
        width = None if column.half_widths is None else column.half_widths[row]
        if width is None or not isinstance(value, int | float):
            return None
        return value - width, value + width

    def __str__(self) -> str:
        return self.text()

    def text(self, *, width: int = WIDTH, limit: int = SHOWN_MAX) -> str:
        """A table for a terminal: at most ``width`` letters wide, the first ``limit`` rows, and what is to know about it below."""
        cells = [[c.name, *(_cell(c, n) for n in range(min(len(self), limit)))] for c in self.columns]
        room = _room([max(map(_letters, column)) for column in cells], checks.count("width", width, low=20, high=10_000))
        right = [c.type in {"int", "float"} for c in self.columns]
        lines = []
        for n in range(len(cells[0])):
            row = [
                _fit(column[n], wide, right=r and n > 0, centre=r and n == 0) for column, wide, r in zip(cells, room, right, strict=False)
            ]
            lines.append(" | ".join(row).rstrip())
        lines.insert(1, "-+-".join("-" * w for w in room))
        if len(room) < len(cells):
            lines.append(f"(Not shown: {', '.join(self.names[len(room) :])})")
        if len(self) > limit:
            lines.append(f"(The first {limit} of {len(self)} rows.)")
        return "\n".join([*lines, *self._footer(width)])

    def _footer(self, width: int) -> list[str]:
        told = []
        if any(c.half_widths is not None for c in self.columns):
            told.append(f"± holds with {100 * self.confidence:g} % confidence.")
        shares = [f"{x.aggregate}: {_share(x.share)}" for x in self.lost if x.share is None or x.share > 0]
        if shares:
            told.append(f"Lost to bounding, about: {'; '.join(shares)}.")
        if self.price is not None:
            told.append(f"Price: ε = {self.price[0]:.4g}" + (f", δ = {self.price[1]:.3g}." if self.price[1] else "."))
        return [line for text in (*told, *self.notes) for line in _wrapped(text, width)]

    # -------------------------------------------------------------------------------------------- giving it away

    def plain(self) -> dict[str, object]:
        """The answer as a JSON value."""
        columns = []
        for c in self.columns:
            made: dict[str, object] = {"name": c.name, "type": c.type, "values": [_plain(v) for v in c.values]}
            if c.half_widths is not None:
                made["half_widths"] = list(c.half_widths)
            columns.append(made)
        return {
            "format": _FORMAT,
            "columns": columns,
            "confidence": self.confidence,
            "event": events.to_dict(self.event),
            "lost": [{"aggregate": x.aggregate, "share": x.share} for x in self.lost],
            "notes": list(self.notes),
            "price": None if self.price is None else list(self.price),
        }

    @classmethod
    def from_plain(cls, value: object) -> Self:
        """The answer that a JSON value stands for."""
        try:
            found = cast("dict[str, Any]", value)
            if found["format"] != _FORMAT or set(found) != {"format", "columns", "confidence", "event", "lost", "notes", "price"}:
                raise ValueError
            price = found["price"]
            return cls(
                columns=tuple(_column(c) for c in found["columns"]),
                event=events.from_dict(found["event"]),
                confidence=checks.between("confidence", found["confidence"], 0.0, 1.0),
                lost=tuple(Lost(aggregate=str(x["aggregate"]), share=_number(x["share"])) for x in found["lost"]),
                price=None if price is None else (checks.real("epsilon", price[0]), checks.real("delta", price[1])),
                notes=tuple(checks.text("note", n) for n in found["notes"]),
            )
        except (KeyError, TypeError, ValueError, LookupError, AttributeError, OverflowError):
            pass
        raise DecodeError("The value is not an answer: expected what Answer.plain() made.")

    def to_json(self) -> str:
        """The answer as canonical JSON."""
        return canonical_json(self.plain())

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The answer that such a text stands for."""
        return cls.from_plain(parse_json(text))

    def to_csv(self, path: str | Path | None = None) -> str:
        """Comma-separated text: every column, and beside a noisy one ``<name> ±``; written to ``path`` as well, if given."""
        held = io.StringIO()
        writer = csv.writer(held, lineterminator="\n")
        wide = self._wide()
        writer.writerow(list(wide))
        writer.writerows(zip(*([_plain(v) for v in values] for _, values in wide.values()), strict=True))
        if path is not None:
            Path(path).write_text(held.getvalue(), encoding="utf-8", newline="")
        return held.getvalue()

    def to_arrow(self) -> Any:  # noqa: ANN401 - pyarrow.Table, imported on first use
        """An Arrow table, with a column ``<name> ±`` beside each noisy one. Column types follow from the question alone."""
        try:
            import pyarrow as pa  # noqa: PLC0415 - heavy, and for this only
        except ImportError:
            raise MissingExtraError("An Arrow table", "parquet") from None
        kinds = {
            "bool": pa.bool_(),
            "int": pa.int64(),
            "float": pa.float64(),
            "text": pa.string(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us"),
        }
        return pa.table({name: pa.array(values, type=kinds[kind]) for name, (kind, values) in self._wide().items()})

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas.DataFrame, imported on first use
        """A pandas frame, as ``to_arrow``."""
        if importlib.util.find_spec("pandas") is None:
            raise MissingExtraError("A pandas frame", "sql")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:  # noqa: ANN401 - polars.DataFrame, imported on first use
        """A Polars frame, as ``to_arrow``."""
        if importlib.util.find_spec("polars") is None:
            raise MissingExtraError("A Polars frame", "sql")
        return importlib.import_module("polars").from_arrow(self.to_arrow())

    def _wide(self) -> dict[str, tuple[Type, Sequence[Value]]]:
        made: dict[str, tuple[Type, Sequence[Value]]] = {}
        for column in self.columns:
            made[column.name] = (column.type, column.values)
            if column.half_widths is not None:
                beside = f"{column.name} ±"
                while beside in self._names or beside in made:
                    beside += "±"
                made[beside] = ("float", column.half_widths)
        return made


# ------------------------------------------------------------------------------------------------ plain values


def _plain(value: Value) -> str | float | bool | None:
    return value.isoformat() if isinstance(value, date) else value


def _number(value: object) -> float | None:
    return None if value is None else checks.real("number", value)


def _column(value: Mapping[str, Any]) -> ResultColumn:
    kind = value["type"]
    if kind not in TYPES or not set(value) <= {"name", "type", "values", "half_widths"}:
        raise ValueError
    widths = value.get("half_widths")
    return ResultColumn(
        name=checks.instance("name", value["name"], str, "a text"),
        type=kind,
        values=tuple(_typed(v, kind) for v in value["values"]),
        half_widths=None if widths is None else tuple(_number(w) for w in widths),
    )


def _typed(value: object, kind: Type) -> Value:
    if value is None:
        return None
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise ValueError
    if kind == "date":
        return date.fromisoformat(cast("str", value))
    if kind == "timestamp":
        return datetime.fromisoformat(cast("str", value))
    return float(cast("float", value)) if kind == "float" else cast("Value", value)


# ------------------------------------------------------------------------------------------------ text


def _cell(column: ResultColumn, row: int) -> str:
    value = column.values[row]
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    width = None if column.half_widths is None else column.half_widths[row]
    if isinstance(value, int | float):
        return _figure(value, width)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return str(value) if isinstance(value, date) else "".join(c if c.isprintable() else "�" for c in value)


def _figure(value: float, width: float | None) -> str:
    """A number to the digits that its interval leaves standing: two of the half width, and no more."""
    if width is None or width == 0 or not math.isfinite(width):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    places = max(1 - math.floor(math.log10(width)), 0)
    if isinstance(value, int):
        return f"{value:,} ± {width:,.{min(places, 1) if width < 10 and not width.is_integer() else 0}f}"
    return f"{value:,.{places}f} ± {width:,.{places}f}" if places < 12 else f"{value:.6g} ± {width:.2g}"


def _share(share: float | None) -> str:
    return "not known" if share is None else "less than 0.1 %" if share < 0.001 else f"{100 * share:.2g} %"


def _letters(text: str) -> int:
    """How wide a text is in a terminal: letters of East Asia take two places, marks over letters none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _room(wanted: Sequence[int], width: int) -> list[int]:
    """How wide each column is: as it wants, or cut from the widest on; columns that do not fit at all are left out at the end."""
    room = list(wanted)
    while len(room) > 1 and sum(min(w, 6) for w in room) + 3 * (len(room) - 1) > width:
        room.pop()
    over = sum(room) + 3 * (len(room) - 1) - width
    while over > 0:
        widest = max(range(len(room)), key=lambda n: room[n])
        second = max((w for n, w in enumerate(room) if n != widest), default=6)
        cut = min(over, max(room[widest] - max(second, 6), 1))
        room[widest] -= cut
        over -= cut
    return room


def _fit(text: str, width: int, *, right: bool, centre: bool) -> str:
    if _letters(text) > width:
        kept = ""
        for letter in text:
            if _letters(kept + letter) > width - 1:
                break
            kept += letter
        text = kept + "…"
    space = width - _letters(text)
    if centre:
        return " " * (space // 2) + text + " " * (space - space // 2)
    return " " * space + text if right else text + " " * space


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width)
