"""Rows of CSV and Parquet files, read so that no row can disturb another, and no row can stop the reading.

Whether a line is a row, and what its cells mean, is decided by looking at that line alone. For CSV this means that a quoted
cell ends on its line: a quote left open spoils its own row and not those behind it. What cannot be read is left out:

* a line with another number of cells than the header, with quotes that do not close, or longer than ``LINE_MAX``;
* an empty line.

A cell that does not hold what its column's type says (or holds nothing, or NaN) is *missing*, None. Keys are told apart to the
last digit (``KEYS``) and to the last byte, UTF-8 or not, so that two different ones stay two. Which files there are, and their
headers and Parquet schemas, is public: do not keep a file for each unit. Time and memory grow with the number of rows: do not let
those who may not know it measure them.
"""

from __future__ import annotations

import contextlib
import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final, Self, TypeAlias, cast

from dither.core import checks
from dither.core.errors import InputError, MissingExtraError, shown
from dither.gate.engines import Facts, Type, Value

LINE_MAX: Final = 1 << 20
FILES_MAX: Final = 500
_CHUNK = 1 << 20
_BATCH = 1 << 16
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": ","}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Cell: TypeAlias = Any
"""A text of a CSV file; a plain value of a Parquet file; None where there is nothing."""
Meaning: TypeAlias = str | int | float | bool | datetime


# ------------------------------------------------------------------------------------------------ cells


def _number(cell: Cell) -> int | float | None:
    """A number; NaN is none, ±∞ is one."""
    if isinstance(cell, str):
        try:
            return int(cell)
        except ValueError:
            pass
    elif isinstance(cell, int):
        return int(cell)
    elif not isinstance(cell, float | Decimal):
        return None
    try:
        found = float(cell)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(found) else found + 0.0


def _whole(cell: Cell) -> int | float | None:
    """A whole number, or ±∞."""
    found = _number(cell)
    if isinstance(found, float):
        return found if math.isinf(found) else int(found) if found.is_integer() else None
    return found


def _text(cell: Cell) -> str | None:
    """The cell as a text: one text for each value of a column."""
    if isinstance(cell, str):
        return cell or None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return None if math.isnan(cell) else repr(cell + 0.0)
    return None if cell is None else cell.isoformat() if isinstance(cell, date) else str(cell)


_TRUTHS = {"true": True, "t": True, "yes": True, "1": True, "false": False, "f": False, "no": False, "0": False}


def _truth(cell: Cell) -> bool | None:
    if isinstance(cell, int | float):
        return bool(cell) if cell in (0, 1) else None
    return _TRUTHS.get(cell.strip().lower()) if isinstance(cell, str) else None


def moment(cell: Cell) -> datetime | None:
    """The moment in UTC that a cell tells; without a zone it is meant as UTC.

    >>> moment("2026-11-19 06:00+06:00"), moment("yesterday")
    (datetime.datetime(2026, 11, 19, 0, 0, tzinfo=datetime.timezone.utc), None)
    """
    try:
        found = datetime.fromisoformat(cell.strip()) if isinstance(cell, str) else cell
        if isinstance(found, date) and not isinstance(found, datetime):
            return datetime(found.year, found.month, found.day, tzinfo=UTC)
        if not isinstance(found, datetime):
            return None
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _day(cell: Cell) -> datetime | None:
    found = moment(cell)
    return None if found is None else found.replace(hour=0, minute=0, second=0, microsecond=0)


MEANINGS: Final[Mapping[Type, Callable[[Cell], Meaning | None]]] = {
    "text": _text,
    "int": _whole,
    "float": _number,
    "bool": _truth,
    "date": _day,
    "timestamp": moment,
}
"""What a cell of each type means; None where it means nothing."""


def _exact_number(cell: Cell) -> int | float | Decimal | None:
    """A finite number with all of its digits, where ``_number`` takes the nearest float."""
    if isinstance(cell, str):
        try:
            found = Decimal(cell)
        except InvalidOperation:
            return None
        return found if found.is_finite() else None
    if isinstance(cell, float | Decimal):
        return cell if math.isfinite(cell) else None
    return int(cell) if isinstance(cell, int) else None


def _exact_whole(cell: Cell) -> int | float | Decimal | None:
    found = _exact_number(cell)
    if isinstance(found, Decimal):
        return found if found == found.to_integral_value() else None
    return found if isinstance(found, int) or (found is not None and found.is_integer()) else None


KEYS: Final[Mapping[Type, Callable[[Cell], Meaning | Decimal | None]]] = {
    **{kind: read for kind, read in MEANINGS.items() if kind != "timestamp"},
    "int": _exact_whole,
    "float": _exact_number,
}
"""Whose row it is. Two keys that were taken for one would share the rows that one unit may have, and one of them would then decide which
rows of the other count: so numbers too large for a float, or too near to each other, are as many as are written."""


def typed(kind: Type, value: object, name: str = "values") -> Value:
    """A public value that a column of that type can hold, as YAML writes it.

    >>> typed("int", 3), typed("date", "2026-11-19")
    (3, '2026-11-19')
    """
    wanted = {"text": "a text", "int": "a whole number", "float": "a number", "bool": "true or false"}
    right = {
        "text": isinstance(value, str) and value != "",
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(checks.extended(name, value)),
        "bool": isinstance(value, bool),
    }
    if kind in right:
        if not right[kind]:
            raise checks.refuse(name, value, wanted[kind], "Put it in quotes." if kind == "text" and value != "" else "")
    elif not isinstance(value, str) or moment(value) is None:
        raise checks.refuse(name, value, "a date such as '2026-11-19', or a time such as '2026-11-19T06:00'")
    return float(cast("float", value)) if kind == "float" else cast("Value", value)


# ------------------------------------------------------------------------------------------------ sources


@dataclass(frozen=True, slots=True)
class _Csv:
    """One file with its header read."""

    file: IO[bytes]
    names: list[str]
    delimiter: str

    def batches(self, columns: Sequence[str]) -> Iterator[list[tuple[Cell, ...]]]:
        width, places = len(self.names), [self.names.index(c) for c in columns]
        pick: Callable[[list[str]], tuple[Cell, ...]] = (
            itemgetter(*places) if len(places) > 1 else lambda cells: tuple(cells[i] for i in places)
        )
        for lines in _lines(self.file):
            made = []
            for line in lines:
                cells = _cells(line.decode("utf-8", "surrogateescape").removesuffix("\r"), self.delimiter)
                if cells is not None and len(cells) == width:
                    made.append(pick(cells))
            yield made

    def close(self) -> None:
        self.file.close()


def _lines(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Lines without their ends, many at a time; a line that is empty or too long is no line."""
    rest, skipping = b"", False
    while chunk := file.read(_CHUNK):
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        if skipping and parts:
            del parts[0]
            skipping = False
        if skipping or len(rest) > LINE_MAX:
            rest, skipping = b"", True
        yield [part for part in parts if 0 < len(part) <= LINE_MAX]
    if rest:
        yield [rest]


def _cells(line: str, delimiter: str) -> list[str] | None:
    """The cells of a line, from that line alone; None where it cannot be read."""
    if '"' not in line:
        return line.split(delimiter) if line else None
    try:
        found = list(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return found[0] if len(found) == 1 else None


def _opened_csv(path: Path, delimiter: str) -> _Csv:
    file = path.open("rb")
    with contextlib.ExitStack() as stack:
        stack.callback(file.close)
        try:
            header = file.readline(LINE_MAX).decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise InputError(f"The header of {shown(path.name)} is not UTF-8: save the file as UTF-8.") from None
        names = _cells(header, delimiter)
        if names is None:
            raise InputError(f"{shown(path.name)} has no header: expected the names of the columns in its first line.")
        stack.pop_all()
    return _Csv(file, [name.strip() for name in names], delimiter)


@dataclass(frozen=True, slots=True)
class _Parquet:
    """One file with its schema read."""

    file: Any
    names: list[str]
    kinds: Mapping[str, str]

    def batches(self, columns: Sequence[str]) -> Iterator[list[tuple[Cell, ...]]]:
        for batch in self.file.iter_batches(batch_size=_BATCH, columns=list(dict.fromkeys(columns))):
            held = {name: _plain(batch.column(name)) for name in batch.schema.names}
            yield list(zip(*(held[c] for c in columns), strict=True)) if columns else [()] * batch.num_rows

    def close(self) -> None:
        self.file.close()


def _plain(array: Any) -> list[Cell]:  # noqa: ANN401 - a pyarrow array
    """Plain values; nothing a row holds (bytes that are no UTF-8, the year 300000) makes this fail."""
    import pyarrow as pa  # noqa: PLC0415 - only where a Parquet file was opened

    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_timestamp(kind):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        return [_since(count, per_second) for count in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_date(kind):
        steps, per_day = (array.cast(pa.int32()), 1) if pa.types.is_date32(kind) else (array.cast(pa.int64()), 86_400_000)
        return [_since(None if count is None else count * 86_400, per_day) for count in steps.to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        array, kind = array.cast(pa.large_binary()), pa.large_binary()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if cell is None else cell.decode("utf-8", "surrogateescape") for cell in array.to_pylist()]
    return cast("list[Cell]", array.to_pylist())


def _since(count: int | None, per_second: int) -> datetime | None:
    if count is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=count * 1_000_000 // per_second)
    except OverflowError:
        return None


def _opened_parquet(path: Path, wanted: Sequence[str]) -> _Parquet:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("A Parquet file", "parquet") from None
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise InputError(f"{shown(path.name)} is not a Parquet file, or a damaged one: write it again.") from None
    types = pa.types
    readable = (
        *(types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_timestamp, types.is_date),
        *(types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_null),
    )
    kinds = {}
    for column in file.schema_arrow:
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        kinds[column.name] = "whole numbers" if types.is_integer(kind) else "texts" if any(c(kind) for c in readable[6:10]) else str(kind)
        if column.name in wanted and not any(check(kind) for check in readable):
            file.close()
            raise InputError(
                f"The column {shown(column.name)} is of the Parquet type {kind}: expected numbers, texts, booleans, dates or times."
            )
    return _Parquet(file, list(file.schema_arrow.names), kinds)


class Table:
    """Opened files of one dataset; nothing of a row is read before ``batches`` is."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[_Csv | _Parquet]) -> None:
        self._parts = tuple(parts)

    def batches(self, columns: Sequence[str]) -> Iterator[list[tuple[Cell, ...]]]:
        """Rows, many at a time: of each the cells of these columns."""
        for part in self._parts:
            yield from part.batches(columns)

    def close(self) -> None:
        """Let go of the files."""
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_table(facts: Facts) -> Table:
    """The files of a dataset, opened, with every declared column there; an error names no column that was not declared."""
    if "://" in facts.source or ":///" in facts.source:
        raise InputError(f"The source {shown(facts.source)} is not a file: expected a CSV or Parquet file, or a folder of them.")
    wanted = [c.name for c in facts.columns]
    wanted += [c for c in (facts.unit.key if facts.unit else None, facts.blocks.column if facts.blocks else None) if c is not None]
    parts: list[_Csv | _Parquet] = []
    with contextlib.ExitStack() as stack:
        for path in _listed(facts):
            try:
                parquet = path.suffix.lower() == ".parquet"
                part = _opened_parquet(path, wanted) if parquet else _opened_csv(path, _DELIMITERS[path.suffix.lower()])
            except OSError as error:
                raise _not_opened(facts, error) from None
            stack.callback(part.close)
            if not wanted and not parquet:
                raise InputError(
                    f"No column of {shown(facts.name)} is declared, so no one can tell whether the first line is a header or somebody's "
                    "row: declare at least one."
                )
            parts.append(part)
            for name in dict.fromkeys(wanted):
                if part.names.count(name) != 1:
                    what = "has no column" if name not in part.names else "has more than one column"
                    # the names that are there are not told: without a header they would be a row
                    raise InputError(f"{shown(path.name)} {what} {shown(name)}, which is declared: expected one, named in the first line.")
        _check_key(facts, [part.kinds for part in parts if isinstance(part, _Parquet)])
        stack.pop_all()
    return Table(parts)


def _not_opened(facts: Facts, error: OSError) -> InputError:
    return InputError(f"The source {shown(facts.source)} could not be opened: {error.strerror or 'no more is known'}.")


def _listed(facts: Facts) -> list[Path]:
    try:
        return _paths(facts.path, facts.source)
    except OSError as error:
        raise _not_opened(facts, error) from None


def _check_key(facts: Facts, files: Sequence[Mapping[str, str]]) -> None:
    """A key that is read as a text must be written alike everywhere: 7 of one file and 7.0 of another are one unit."""
    key = None if facts.unit is None else facts.unit.key
    if key is None or any(c.name == key and c.type != "text" for c in facts.columns):
        return
    found = sorted({kinds[key] for kinds in files} - {"null"})
    if len(found) > 1:
        raise InputError(
            f"The key {shown(key)} is not of one type in all files of {shown(facts.source)} (found {', '.join(found)}), so one unit would "
            "pass for two: write them alike, or declare the column as int."
        )
    if found and found[0].startswith("timestamp[ns"):
        raise InputError(
            f"The key {shown(key)} is of the Parquet type {found[0]}: expected microseconds at most, or whole numbers or texts."
        )


def _paths(path: Path, source: str) -> list[Path]:
    """The file, or the files of the folder in the order of their names."""
    known = [*_DELIMITERS, ".parquet"]
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.is_file() and p.suffix.lower() in known and not p.name.startswith("."))
        if not 1 <= len(found) <= FILES_MAX or len({p.suffix.lower() for p in found}) != 1:
            raise InputError(
                f"The folder {shown(source)} is not read: expected from 1 to {FILES_MAX} files of one kind, {', '.join(known)}."
            )
        return found
    if not path.is_file():
        raise InputError(f"The source {shown(source)} is not there, or is no file: expected a CSV or Parquet file beside the project file.")
    if path.suffix.lower() not in known:
        raise InputError(f"The source {shown(source)} is not read: expected a name that ends with {', '.join(known)}.")
    return [path]
