"""Which rows are measured and what each of them adds: functions of a cell and of public facts, made from a request."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, TypeAlias

from dither.core.errors import InputError, UnknownNameError, shown
from dither.gate.engines import Column, Facts, Type, Value
from dither.gate.rows import KEYS, MEANINGS, Cell, Table, moment, typed
from dither.ledger.blocks import Blocks

Read: TypeAlias = Callable[[Cell], Any]
"""What a cell adds, None for nothing: a function of the cell and of public facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Which rows: those of the charged blocks that meet the conditions, and of each unit the first ``most`` of these."""

    facts: Facts
    where: Mapping[str, object]
    blocks: Sequence[str]
    most: int

    def added(self, data: Table, column: str | None = None, read: Read | None = None) -> Iterator[list[Any]]:
        """What the rows add, many at a time; without a column every row adds True."""
        tests = [(name, test(self.facts.column(name), wanted)) for name, wanted in self.where.items()]
        if self.facts.blocks is not None:
            tests.insert(0, (self.facts.blocks.column, _inside(self.facts.blocks, self.blocks)))
        key = self.facts.unit.key if self.facts.unit is not None else None
        names = [name for name, _ in tests] + [name for name in (column, key) if name is not None]
        checked, at = tuple(enumerate(check for _, check in tests)), len(tests)
        owner_of, most, seen = _key(self.facts, key), self.most, {}  # type: Any, int, dict[object, int]
        for rows in data.batches(names):
            kept: list[Any] = []
            for row in rows:
                if not all(check(row[i]) for i, check in checked):
                    continue
                value = True if read is None else read(row[at])
                if value is None:
                    continue
                if key is not None:
                    owner = owner_of(row[-1])
                    before = most if owner is None else seen.get(owner, 0)
                    if before >= most:
                        continue
                    seen[owner] = before + 1
                kept.append(value)
            yield kept


def _key(facts: Facts, key: str | None) -> Callable[[Cell], Any]:
    """The value of the key, so that 7 and 07 are one where it is declared as a number; texts are told apart to the letter."""
    declared = [c.type for c in facts.columns if c.name == key]
    return KEYS[declared[0] if declared else "text"]


def _inside(division: Blocks, blocks: Sequence[str]) -> Callable[[Cell], bool]:
    """Whether a cell of the block column lies in the charged blocks."""
    if division.every is None:
        chosen, text = frozenset(blocks), MEANINGS["text"]
        return lambda cell: text(cell) in chosen
    spans = _merged(sorted(division.span(block) for block in blocks))
    starts, ends = [start for start, _ in spans], [end for _, end in spans]

    def inside(cell: Cell) -> bool:
        at = moment(cell)
        if at is None:
            return False
        place = bisect.bisect_right(starts, at) - 1
        return place >= 0 and at < ends[place]

    return inside


def _merged(spans: Sequence[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Spans that touch as one."""
    made: list[tuple[datetime, datetime]] = []
    for start, end in spans:
        if made and made[-1][1] == start:
            made[-1] = (made[-1][0], end)
        else:
            made.append((start, end))
    return made


def test(column: Column, wanted: object) -> Callable[[Cell], bool]:
    """A condition: equal to a value, to one of a list, or in a range.

    >>> adult = test(Column(name="age", type="int"), {"min": 18})
    >>> adult("44"), adult("7"), adult("unknown")
    (True, False, False)
    """
    read = MEANINGS[column.type]
    if isinstance(wanted, dict):
        return _range(column, wanted)
    given = wanted if isinstance(wanted, list) else [wanted]
    if not given:
        raise InputError(f"The condition on {shown(column.name)} is an empty list: name at least one value.")
    allowed = frozenset(read(typed(column.type, value, f"where.{column.name}")) for value in given)
    return lambda cell: read(cell) in allowed


def _range(column: Column, wanted: Mapping[str, object]) -> Callable[[Cell], bool]:
    read = MEANINGS[column.type]
    if column.type in ("text", "bool"):
        raise InputError(
            f"A range of {shown(column.name)} is not possible: it is declared as {column.type}. Name a value or a list of values."
        )
    for key in wanted:
        if key not in ("min", "max", "below"):
            raise UnknownNameError(f"condition on {column.name}", key, ["min", "max", "below"])
    if not wanted:
        raise InputError(f"The condition on {shown(column.name)} says nothing: expected min, max or below.")
    kind: Type = "float" if column.type == "int" else column.type
    limits: Any = {key: MEANINGS[kind](typed(kind, value, f"where.{column.name}.{key}")) for key, value in wanted.items()}
    least, most, below = (limits.get(key) for key in ("min", "max", "below"))

    def within(cell: Cell) -> bool:
        found: Any = read(cell)
        return (
            found is not None and (least is None or found >= least) and (most is None or found <= most) and (below is None or found < below)
        )

    return within


def clamped(column: Column, low: float, high: float) -> Read:
    """The number, moved into the bounds; ±∞ is moved there too, and what is no number adds nothing.

    >>> [clamped(Column(name="age", type="int"), 0, 100)(cell) for cell in ("44", "1e999", "-3", "nan", "")]
    [44.0, 100.0, 0.0, None, None]
    """
    number: Callable[[Cell], Any] = MEANINGS[column.type]

    def read(cell: Cell) -> float | None:
        found = number(cell)
        return None if found is None else float(max(low, min(high, found)))

    return read


def group(column: Column, groups: Sequence[Value]) -> Read:
    """The place of the row's group among the public ones; None for what is in none of them."""
    meaning = MEANINGS[column.type]
    places = {meaning(value): i for i, value in enumerate(groups)}
    return lambda cell: None if (found := meaning(cell)) is None else places.get(found)


def edges(low: float, high: float, bins: int) -> tuple[float, ...]:
    """Where bins of equal width begin, and where the last of them ends; each the float nearest to its true place.

    >>> edges(0, 100, 4)
    (0.0, 25.0, 50.0, 75.0, 100.0)
    """
    start, width = Fraction(low), (Fraction(high) - Fraction(low)) / bins
    return tuple(float(start + i * width) for i in range(bins + 1))


def bin_of(column: Column, low: float, high: float, bins: int) -> Read:
    """The number of the row's bin, from its lower edge on; numbers outside are moved into the outer ones.

    >>> [bin_of(Column(name="age", type="int"), 0, 100, 4)(cell) for cell in ("0", "25", "100", "-7", "x")]
    [0, 1, 3, 0, None]
    """
    number, inner = clamped(column, low, high), edges(low, high, bins)[1:-1]

    def read(cell: Cell) -> int | None:
        found = number(cell)
        return None if found is None else bisect.bisect_right(inner, found)

    return read
