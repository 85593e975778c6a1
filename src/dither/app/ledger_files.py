"""History as files: CSV for spreadsheets, Parquet for programs. A file is put in place whole, or left as it was."""

from __future__ import annotations

import csv as comma
import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dither.core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from dither.ledger.views import Row

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would take for the beginning of a formula."""


def place(path: Path) -> Path:
    """A path that can be written to: its folder exists, and it is no folder itself.

    >>> place(Path("nowhere/at/all.csv"))
    Traceback (most recent call last):
    dither.core.errors.InputError: There is no folder 'nowhere/at' for all.csv: make it first.
    """
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {str(path.parent)!r} for {path.name}: make it first.")
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder: name a file in it.")
    return path


def csv(rows: Sequence[Row], path: Path) -> None:
    """One row a line. Text that a spreadsheet would run as a formula gets an apostrophe before it."""
    from dither.ledger.views import FIELDS  # noqa: PLC0415 - brings the ledger, which --help must not wait for

    with whole(path) as half, half.open("w", encoding="utf-8", newline="") as file:
        writer = comma.writer(file)
        writer.writerow(FIELDS)
        for row in rows:
            writer.writerow([_cell(held) for held in row.to_dict().values()])


def _cell(held: object) -> object:
    told = " ".join(map(str, held)) if isinstance(held, list) else held
    return f"'{told}" if isinstance(told, str) and told.startswith(FORMULA) else told


def parquet(rows: Sequence[Row], path: Path) -> None:
    """One row a row, with times as times and blocks as lists."""
    try:
        arrow = importlib.import_module("pyarrow")
        writer = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError("A Parquet file", "parquet") from None
    from dither.ledger.views import FIELDS  # noqa: PLC0415

    kinds = {"entry": arrow.int64(), "at": arrow.timestamp("us", tz="UTC"), "blocks": arrow.list_(arrow.string())}
    kinds |= dict.fromkeys(("epsilon", "delta", "share"), arrow.float64())
    schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in FIELDS])
    body = [row.to_dict() | {"at": row.at} for row in rows]
    with whole(path) as half:
        writer.write_table(arrow.Table.from_pylist(body, schema=schema), str(half))


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write: the file is put in place when the block ends well, and left as it was when it does not."""
    half = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield half
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
