"""What is publicly known of tables: columns, ranges, values, who is protected, which tables are public."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal, TypeAlias

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError, shown
from dither.core.units import PrivacyUnit

Type: TypeAlias = Literal["bool", "int", "float", "text", "date", "timestamp"]
TYPES: tuple[Type, ...] = ("bool", "int", "float", "text", "date", "timestamp")
Value: TypeAlias = bool | int | float | str | date | datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its type, the range to clamp to, the values it can hold (then every group of them is public)."""

    name: str
    type: Type
    low: float | None = None
    high: float | None = None
    values: tuple[Value, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Through:
    """A unit reached over a foreign key: ``column`` here equals the ``key`` of one row of ``table``, and that row holds the unit."""

    column: str
    table: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table. ``unit`` None: the table is public, and ``key`` may say which column is unique in it."""

    name: str
    columns: tuple[Column, ...]
    unit: PrivacyUnit | None = None
    through: Through | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        checks.text("table", self.name, limit=200)
        seen: dict[str, str] = {}
        for column in self.columns:
            other = seen.setdefault(column.name.casefold(), column.name)
            if other != column.name or sum(c.name == column.name for c in self.columns) > 1:
                raise InputError(f"Table {shown(self.name)} has two columns that SQL takes for one, {shown(column.name)}: rename one.")

    @property
    def public(self) -> bool:
        """Whether there is nobody to protect in it."""
        return self.unit is None

    def column(self, name: str) -> Column:
        """The column of that name, in any case."""
        for column in self.columns:
            if column.name.casefold() == name.casefold():
                return column
        raise UnknownNameError(f"column of {self.name}", name, [c.name for c in self.columns])


@dataclass(frozen=True, slots=True)
class Catalog(Mapping[str, Table]):
    """Every table that may be asked about, by name in any case."""

    tables: Mapping[str, Table] = field(default_factory=dict)

    @classmethod
    def of(cls, *tables: Table) -> Catalog:
        """A catalog of these tables.

        >>> from dither.core.units import PrivacyUnit
        >>> Catalog.of(Table(name="events", columns=(), unit=PrivacyUnit(dataset="events")))["EVENTS"].name
        'events'
        """
        made: dict[str, Table] = {}
        for table in tables:
            if made.setdefault(table.name.casefold(), table) is not table:
                raise InputError(f"There are two tables of the name {shown(table.name)}: rename one.")
        return cls(made)

    def __getitem__(self, name: str) -> Table:
        found = self.tables.get(name.casefold())
        if found is None:
            raise UnknownNameError("table", name, [t.name for t in self.tables.values()] or ["(no tables)"])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)
