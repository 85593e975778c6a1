# ruff: noqa: PTH100, PTH110, PTH112, PTH113, PTH116, PTH118, PTH207, S608 - os tells of globs, times and inodes; and this file writes SQL
"""Where rows lie, opened for DuckDB: Parquet and CSV files, DuckDB's own files, pandas, Polars and Arrow frames.

Everything is named beforehand and the engine is then shut in: it can open no other file, load no extension and change no setting.
Which files there are, their headers and schemas are public; rows are not, and nothing here fails because of one.

A line of CSV is a row or not by that line alone: a quoted cell ends on its line, and a line with another number of cells than the
header, longer than ``LINE_MAX`` bytes or not of UTF-8 is left out. An empty cell is NULL.
"""

from __future__ import annotations

import glob
import gzip
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from dither.core.errors import DitherError, InputError, MissingExtraError, UnknownNameError, shown
from dither.query.facts import Column, Table

Mark: TypeAlias = tuple[tuple[object, ...], ...]
"""What tells one state of files from another: each path with its size, times and inode."""

LINE_MAX: Final = 1 << 20
FILES_MAX: Final = 100_000
_DELIMITERS: Final = {".csv": ",", ".tsv": "\t", ".txt": ","}
_DUCKDB: Final = "duckdb:///"
_NEVER: Final = "\x01"
_BROKEN: Final = (
    "The rows could not be read to the end: the charge stays, and why is not told, as it may tell of a row. Check that the source can be"
    " read as a whole, and that there is memory and room on the disk for it."
)


def quoted(name: str) -> str:
    """An identifier of SQL.

    >>> quoted("city")
    '"city"'
    """
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A literal text of SQL.

    >>> text("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


# ------------------------------------------------------------------------------------------------ files


def is_csv(path: str) -> bool:
    """Whether a file is one of lines and delimiters, by its name."""
    return Path(path.removesuffix(".gz")).suffix.lower() in _DELIMITERS


def files_of(where: str) -> tuple[str, ...]:
    """The files that a path, a folder or a glob names, sorted."""
    if os.path.isdir(where):
        inside = [p for p in glob.glob(os.path.join(glob.escape(where), "**"), recursive=True) if os.path.isfile(p)]
        found = [p for p in inside if p.lower().endswith(".parquet")] or [p for p in inside if is_csv(p)]
    elif os.path.exists(where):
        found = [where]
    else:
        found = [p for p in glob.glob(where, recursive=True) if os.path.isfile(p)]
    if not found or len(found) > FILES_MAX:
        raise InputError(f"The source {shown(where)} names {'no file' if not found else 'too many files'}: expected 1 to {FILES_MAX}.")
    if len({is_csv(p) for p in found}) > 1:
        raise InputError(f"The source {shown(where)} names CSV and Parquet files: give one kind.")
    return tuple(sorted(os.path.abspath(p) for p in found))


def mark(paths: Sequence[str]) -> Mark:
    """The state of files; a file that is gone has a mark as well."""
    made: list[tuple[object, ...]] = []
    for path in paths:
        try:
            found = os.stat(path)
            made.append((path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev))
        except OSError:
            made.append((path, None))
    return tuple(made)


# ------------------------------------------------------------------------------------------------ one table's place


@dataclass(frozen=True, slots=True)
class Place:
    """Where one table lies: files, a table of a DuckDB file, or a frame in memory."""

    kind: str
    where: str = ""
    table: str = ""
    frame: Any = field(default=None, compare=False)

    @property
    def files(self) -> tuple[str, ...]:
        """All that is read."""
        if self.kind == "frame":
            return ()
        if self.kind == "duckdb":
            return (self.where, self.where + ".wal")
        return files_of(self.where)

    @property
    def mark(self) -> Mark:
        """The state that it is in now."""
        return (("frame", id(self.frame)),) if self.kind == "frame" else mark(self.files)


def place_of(where: object) -> Place:
    """The place that a path, a URL or a frame stands for.

    >>> place_of("no-such-folder/events.parquet")
    Traceback (most recent call last):
    dither.core.errors.InputError: The source 'no-such-folder/events.parquet' names no file: expected 1 to 100000.
    """
    if isinstance(where, Place):
        return where
    if isinstance(where, str | os.PathLike):
        given = os.fspath(where)
        if not isinstance(given, str) or not given or "\0" in given:
            raise InputError(f"The source {shown(where)} is not allowed: expected a path, duckdb:///FILE#TABLE, or a frame.")
        if given.startswith(_DUCKDB):
            file, _, name = given.removeprefix(_DUCKDB).partition("#")
            if not file or not name or not os.path.isfile(file):
                raise InputError(f"The source {shown(where)} is not a table of a DuckDB file: expected duckdb:///FILE#TABLE.")
            return Place("duckdb", os.path.abspath(file), name)
        if "://" in given:
            raise InputError(
                f"The source {shown(where)} is not one that DuckDB reads here: expected a path, duckdb:///FILE#TABLE, or a frame."
            )
        files = files_of(given)
        return Place("csv" if is_csv(files[0]) else "parquet", given)
    return Place("frame", frame=arrow_of(where))


def arrow_of(frame: object) -> Any:  # noqa: ANN401 - pyarrow is imported on first use
    """A frame as an Arrow table of its own: what happens to the frame afterwards does not show."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - heavy, and for frames only
    except ImportError:
        raise MissingExtraError("Asking about frames", "parquet") from None
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    kind = type(frame)
    if kind.__name__ == "LazyFrame":
        return arrow_of(frame.collect())  # type: ignore[attr-defined]
    if kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas":
        return _of_pandas(frame, pa)
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise InputError(f"The source is a {kind.__name__}: expected a path, duckdb:///FILE#TABLE, or a pandas, Polars or Arrow frame.")


def _of_pandas(frame: Any, pa: Any) -> Any:  # noqa: ANN401 - as above
    """Column by column; what Python objects are is told by themselves alone, so that none can stop the reading."""
    columns = {}
    for position, name in enumerate(frame.columns):
        if not isinstance(name, str) or name in columns:
            raise InputError(f"The frame's column {shown(name)} is not allowed: expected names that are texts, each once.")
        held = frame.iloc[:, position]
        if held.dtype == object:
            columns[name] = pa.array([_plain(v) for v in held.tolist()], type=pa.string())
        else:
            columns[name] = pa.Array.from_pandas(held.copy(deep=True))
    return pa.table(columns)


def _plain(value: object) -> str | None:
    """A Python object as a text; NaN and NaT are nothing, and so is what is not a plain value."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return None if any("\ud800" <= c <= "\udfff" for c in value) else str(value)
    if isinstance(value, int):
        return str(int(value)) if -(2**127) < value < 2**127 else None
    if isinstance(value, float):
        return repr(float(value))
    stamp = getattr(value, "isoformat", None)
    return str(stamp()) if stamp is not None and type(value).__module__ in {"datetime", "pandas"} else None


# ------------------------------------------------------------------------------------------------ the engine, shut in


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the engine sees it: what stands in FROM, and the columns that it has, each with its physical type."""

    sql: str
    columns: Mapping[str, str]

    def raw(self, table: Table, column: Column) -> tuple[str, str]:
        """The name of a column of the facts as it is written there, quoted, and its physical type."""
        for name, kind in self.columns.items():
            if name.casefold() == column.name.casefold():
                return quoted(name), kind
        raise UnknownNameError(f"column of the source of {table.name}", column.name, self.columns or ["(no columns)"])


class Engine:
    """A DuckDB of its own with the tables registered and all doors closed."""

    def __init__(self, places: Mapping[str, Place], *, memory_limit: str | None, temp_directory: str | None, threads: int | None) -> None:
        try:
            import duckdb  # noqa: PLC0415 - heavy, and needed from here on only
        except ImportError:
            raise MissingExtraError("Asking with SQL", "sql") from None
        config: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "enable_external_file_cache": "false",
        }
        asked = {"memory_limit": memory_limit, "temp_directory": temp_directory, "threads": threads}
        config |= {name: str(value) for name, value in asked.items() if value is not None}
        self._errors = duckdb.Error
        try:
            self._connection = duckdb.connect(":memory:", config=config)
        except duckdb.Error:
            raise InputError(f"DuckDB does not take the settings {shown(asked)}: expected such as memory_limit='4GB', threads=4.") from None
        self.lock = threading.RLock()
        self.relations: dict[str, Relation] = {}
        self.checked: set[str] = set()
        """Public tables whose keys were found to be unique."""
        try:
            self._open(places)
        except BaseException:
            self.close()
            raise

    def _open(self, places: Mapping[str, Place]) -> None:
        allowed: list[str] = []
        attached: dict[str, str] = {}
        self._connection.execute("SET TimeZone = 'UTC'")
        sources = {}
        for number, (name, place) in enumerate(places.items()):
            sources[name] = self._from(number, place, attached)
            allowed += place.files if place.kind in {"parquet", "csv"} else ()
        self._connection.execute(f"SET allowed_paths = [{', '.join(map(text, allowed))}]" if allowed else "SET allowed_paths = []")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        for name, source in sources.items():
            told = self._schema(f"DESCRIBE SELECT * FROM {source}", name)
            self.relations[name] = Relation(source, {str(row[0]): str(row[1]) for row in told})

    def _schema(self, sql: str, name: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql).fetchall()
        except self._errors:
            pass
        raise InputError(f"The source of {shown(name)} cannot be opened: expected readable files of one kind, or a table that exists.")

    def _from(self, number: int, place: Place, attached: dict[str, str]) -> str:
        """What stands in FROM for a place."""
        match place.kind:
            case "frame":
                self._connection.register(f"frame{number}", place.frame)
                return f"frame{number}"
            case "duckdb":
                alias = attached.setdefault(place.where, f"file{number}")
                if alias == f"file{number}":
                    self._schema(f"ATTACH {text(place.where)} AS {alias} (READ_ONLY)", place.table)
                known = self._connection.execute(
                    "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ? ORDER BY ALL", [alias]
                ).fetchall()
                for schema, table in known:
                    if place.table in {table, f"{schema}.{table}"}:
                        return self._bytewise(f"{alias}.{quoted(schema)}.{quoted(table)}", place.table)
                raise UnknownNameError("table of the DuckDB file", place.table, [t for _, t in known] or ["(no tables)"])
            case "csv":
                return _csv(place.files)
            case _:
                files = place.files
                hive = any("=" in Path(f).parent.name for f in files)
                parts = "hive_partitioning = true, hive_types_autocast = false" if hive else "hive_partitioning = false"
                return f"read_parquet([{', '.join(map(text, files))}], union_by_name = true, {parts})"

    def _bytewise(self, relation: str, name: str) -> str:
        """A table without the collations of its columns: under one, the spelling of a group is that of whichever row is met first."""
        kinds = self._schema(f"DESCRIBE SELECT * FROM {relation}", name)
        texts = [f'{column} COLLATE "binary" AS {column}' for column in (quoted(str(k[0])) for k in kinds if k[1] == "VARCHAR")]
        return f"(SELECT * REPLACE ({', '.join(texts)}) FROM {relation})" if texts else relation

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement. Whatever goes wrong becomes one fixed text, without a cause: an engine's words can hold a private value."""
        with self.lock:
            try:
                return self._connection.execute(sql, list(values)).fetchall()
            except self._errors:
                pass
        raise DitherError(_BROKEN)

    def arrays(self, sql: str) -> dict[str, Any]:
        """Run a statement; its columns as numpy arrays (masked where a NULL may stand)."""
        with self.lock:
            try:
                return self._connection.execute(sql).fetchnumpy()
            except self._errors:
                pass
        raise DitherError(_BROKEN)

    def possible(self, sql: str) -> bool:
        """Whether a statement can be prepared: known from schemas alone, nothing is read."""
        with self.lock:
            try:
                self._connection.execute(f"EXPLAIN {sql}")
            except self._errors:
                return False
        return True

    def interrupt(self) -> None:
        """End what runs, from another thread; it ends in the fixed text."""
        self._connection.interrupt()

    def close(self) -> None:
        """Let go of files and memory."""
        self._connection.close()


def _csv(files: Sequence[str]) -> str:
    """Lines as rows of texts: cut into lines first, so that no quote reaches over the end of its own.

    Whether DuckDB takes a line of just its longest size depends on where the line stands, so what is too long is left out here.
    """
    first = files[0]
    delimiter = _DELIMITERS[Path(first.removesuffix(".gz")).suffix.lower()]
    headers = {_header(f, delimiter) for f in files}
    if len(headers) > 1:
        raise InputError(f"The source {shown(first)} and the files beside it have different headers: expected one for all.")
    names = next(iter(headers))
    if len({n.casefold() for n in names}) < len(names) or not all(names):
        raise InputError(f"The header of {shown(first)} is not allowed: expected a name for each column, each once.")
    cell = f'("(?:[^"]|"")*"|[^"{delimiter}]*){delimiter}'.replace("\t", "\\t")
    line = f"(?:{cell.replace('(', '(?:', 1)})*"
    plain = f"string_split(line, {text(delimiter)})" if delimiter != "\t" else "string_split(line, chr(9))"
    ended = f"line || {text(delimiter) if delimiter != chr(9) else 'chr(9)'}"
    cells = (
        f"CASE WHEN NOT contains(line, '\"') THEN {plain} "
        f"WHEN regexp_full_match({ended}, {text(line)}) THEN regexp_extract_all({ended}, {text(cell)}, 1) END"
    )
    columns = ", ".join(f"{_cell(f'cells[{n + 1}]')} AS {quoted(name)}" for n, name in enumerate(names))
    return (
        f"(SELECT {columns} FROM (SELECT {cells} AS cells FROM (SELECT rtrim(line, chr(13)) AS line FROM read_csv("
        f"[{', '.join(map(text, files))}], columns = {{'line': 'VARCHAR'}}, auto_detect = false, header = false, skip = 1, "
        f"delim = {text(_NEVER)}, quote = '', escape = '', comment = '', new_line = '\\n', "
        "ignore_errors = true, strict_mode = false, null_padding = true, "
        f"max_line_size = {2 * LINE_MAX}) WHERE strlen(line) <= {LINE_MAX}) WHERE line <> '') WHERE len(cells) = {len(names)})"
    )


def _cell(raw: str) -> str:
    """A cell without its quotes; an empty one is NULL."""
    return (
        f"CASE WHEN {raw} = '' THEN NULL WHEN starts_with({raw}, '\"') "
        f"THEN replace(substr({raw}, 2, len({raw}) - 2), '\"\"', '\"') ELSE {raw} END"
    )


def _header(path: str, delimiter: str) -> tuple[str, ...]:
    import csv  # noqa: PLC0415 - for headers only

    opener = gzip.open if path.endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            line = file.readline(LINE_MAX).decode("utf-8-sig")
    except (OSError, ValueError):
        line = ""
    found = next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [])
    if not found:
        raise InputError(f"The file {shown(path)} has no header: expected the names of its columns in the first line.")
    return tuple(found)
