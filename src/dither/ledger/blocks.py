"""Blocks: how a dataset is divided, by time or into named partitions; moments, and JSON objects with exact fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import cast

from dither.core import checks
from dither.core.errors import DecodeError, InputError, UnknownNameError, shown
from dither.ledger.paths import name

BLOCKS_MAX = 100_000
PARTITIONS_MAX = 100_000
TOLD = 40
"""How many partitions an error lists."""


# ------------------------------------------------------------------------------------------------ moments


def stamp(moment: datetime) -> str:
    """A moment as the book writes it: UTC, microseconds, Z.

    >>> stamp(datetime(2026, 11, 19, 6, tzinfo=UTC))
    '2026-11-19T06:00:00.000000Z'
    """
    return aware("moment", moment).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


_STAMP = re.compile(r"(?!9999)[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z")


def moment(label: str, value: object) -> datetime:
    """The moment that a stamp names.

    >>> moment("at", "2026-11-19T06:00:00.000000Z")
    datetime.datetime(2026, 11, 19, 6, 0, tzinfo=datetime.timezone.utc)
    """
    if isinstance(value, str) and _STAMP.fullmatch(value):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    raise DecodeError(f"The field '{label}' is a time such as '2026-11-19T06:00:00.000000Z': found {shown(value)}.")


def aware(label: str, value: object) -> datetime:
    """A moment with a time zone, in UTC.

    >>> aware("ends", datetime(2026, 1, 1, tzinfo=UTC)).year
    2026
    """
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise checks.refuse(label, value, "a datetime with a time zone, such as datetime(2026, 11, 19, tzinfo=UTC)")
    try:
        found = value.astimezone(UTC)
    except OverflowError:
        found = datetime.min.replace(tzinfo=UTC)
    if found.year not in _YEARS:  # NaT, the time of no time, has no year at all
        raise checks.refuse(label, value, f"a year from {_YEARS[0]} to {_YEARS[-1]}")
    return found if type(found) is datetime else datetime.combine(found.date(), found.time(), UTC)  # no finer than the book's own


# ------------------------------------------------------------------------------------------------ JSON objects


def members(what: str, value: object, wanted: Collection[str]) -> dict[str, object]:
    """A JSON object with exactly these fields.

    >>> members("point", {"x": 1}, ("x",))
    {'x': 1}
    """
    if not isinstance(value, dict):
        raise DecodeError(f"The {what} is a JSON object with the fields {', '.join(wanted)}: found {shown(value)}.")
    if len(value) != len(wanted) or any(f not in value for f in wanted):
        unknown = [shown(f) for f in value if f not in wanted][:3]
        missing = [f for f in wanted if f not in value]
        told = "; ".join(f"{word} {', '.join(found)}" for word, found in (("unknown:", unknown), ("missing:", missing)) if found)
        raise DecodeError(f"The {what} has exactly the fields {', '.join(wanted)}: {told}.")
    return value


def texts(label: str, value: object) -> tuple[str, ...]:
    """A list of texts.

    >>> texts("peaks", ["a", "b"])
    ('a', 'b')
    """
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise DecodeError(f"The field '{label}' is a list of texts: found {shown(value)}.")
    return tuple(value)


def listed(label: str, value: object, expected: str, *, limit: int) -> tuple[object, ...]:
    """What a tuple or list of at most so many members holds; it may be empty.

    >>> listed("alert_at", [0.5], "at most 2 shares", limit=2)
    (0.5,)
    """
    if not isinstance(value, tuple | list) or len(value) > limit:
        raise checks.refuse(label, value, expected)
    return tuple(value)


def names(kind: type) -> tuple[str, ...]:
    """The fields of a class of facts.

    >>> names(Blocks)
    ('column', 'every', 'partitions', 'start')
    """
    return tuple(f.name for f in fields(kind) if f.init)


# ------------------------------------------------------------------------------------------------ blocks


class Every(StrEnum):
    """How long a block of time is."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


_SHAPES = {
    Every.HOUR: (re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2})"), "2026-11-19T06"),
    Every.DAY: (re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})"), "2026-11-19"),
    Every.WEEK: (re.compile(r"([0-9]{4})-W([0-9]{2})"), "2026-W47"),
    Every.MONTH: (re.compile(r"([0-9]{4})-([0-9]{2})"), "2026-11"),
    Every.QUARTER: (re.compile(r"([0-9]{4})-Q([1-4])"), "2026-Q4"),
    Every.YEAR: (re.compile(r"([0-9]{4})"), "2026"),
}
_YEARS = range(1000, 9999)  # four digits, and a year after the last, for blocks end where the next begins


def _number(every: Every, block: str) -> int | None:
    """Blocks in the order of time, by whole numbers; None for what names none."""
    found = _SHAPES[every][0].fullmatch(block)
    if found is None:
        return None
    year, *rest = (int(digits) for digits in found.groups())
    if year not in _YEARS:
        return None
    try:
        match every:
            case Every.HOUR:
                return date(year, *rest[:2]).toordinal() * 24 + rest[2] if rest[2] < 24 else None
            case Every.DAY:
                return date(year, *rest).toordinal()
            case Every.WEEK:
                return date.fromisocalendar(year, rest[0], 1).toordinal() // 7
            case Every.MONTH:
                return date(year, rest[0], 1).year * 12 + rest[0] - 1
            case Every.QUARTER:
                return year * 4 + rest[0] - 1
            case Every.YEAR:
                return year
    except ValueError:
        return None


def _begin(every: Every, number: int) -> datetime:
    """The first moment of a block. Mondays have the ordinals 1, 8, 15 and so on."""
    match every:
        case Every.HOUR:
            return datetime.combine(date.fromordinal(number // 24), datetime.min.time(), UTC) + timedelta(hours=number % 24)
        case Every.DAY:
            return datetime.combine(date.fromordinal(number), datetime.min.time(), UTC)
        case Every.WEEK:
            return datetime.combine(date.fromordinal(number * 7 + 1), datetime.min.time(), UTC)
        case Every.MONTH:
            return datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC)
        case Every.QUARTER:
            return datetime(number // 4, number % 4 * 3 + 1, 1, tzinfo=UTC)
        case Every.YEAR:
            return datetime(number, 1, 1, tzinfo=UTC)


def _named(every: Every, start: datetime) -> str:
    match every:
        case Every.HOUR:
            return f"{start.year:04}-{start.month:02}-{start.day:02}T{start.hour:02}"
        case Every.DAY:
            return f"{start.year:04}-{start.month:02}-{start.day:02}"
        case Every.WEEK:
            year, week, _ = start.isocalendar()
            return f"{year:04}-W{week:02}"
        case Every.MONTH:
            return f"{start.year:04}-{start.month:02}"
        case Every.QUARTER:
            return f"{start.year:04}-Q{(start.month + 2) // 3}"
        case Every.YEAR:
            return f"{start.year:04}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """How a dataset is divided by ``column``: by time, from the block ``start`` on, or into named partitions.

    A block of time holds the moments of its span in UTC, its end excluded.

    >>> Blocks(column="ts", every=Every.MONTH, start="2026-11").names("2026-11", "2027-01")
    ('2026-11', '2026-12', '2027-01')
    """

    column: str
    every: Every | None = None
    partitions: tuple[str, ...] = ()
    start: str | None = None
    _places: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name("column", self.column, limit=200)
        given = listed("partitions", self.partitions, f"a tuple of at most {PARTITIONS_MAX} public names", limit=PARTITIONS_MAX)
        object.__setattr__(self, "partitions", tuple(name("partitions", p, limit=200) for p in given))
        object.__setattr__(self, "_places", {partition: i for i, partition in enumerate(self.partitions)})
        if len(self._places) != len(self.partitions):
            raise checks.refuse("partitions", self.partitions, "each name once")
        if (self.every is None) == (not self.partitions):
            raise InputError("Blocks are divided by time or into partitions: expected every=… or partitions=(…), one of the two.")
        if self.every is not None:
            object.__setattr__(self, "every", every(self.every))
        if self.start is not None:
            if self.every is None:
                raise checks.refuse("start", self.start, "no start, for partitions have no order in time")
            self._number(self.start, "start")
            object.__setattr__(self, "start", str.__str__(self.start))

    def _number(self, block: object, label: str = "block") -> int:
        """The place of a block of time in their order; refuses what is no block of this division."""
        if self.every is None:
            raise InputError(f"Partitions of '{self.column}' are no spans of time: expected a division with every=….")
        found = _number(self.every, block) if isinstance(block, str) else None
        if found is None:
            example = _SHAPES[self.every][1]
            raise checks.refuse(label, block, f"the name of {'an' if self.every == 'hour' else 'a'} {self.every.value} such as '{example}'")
        return found

    def check(self, block: object) -> str:
        """The block's name, if there is such a block.

        >>> Blocks(column="region", partitions=("north", "south")).check("north")
        'north'
        """
        if self.every is None:
            if not isinstance(block, str) or block not in self._places:
                more = len(self.partitions) - TOLD
                raise UnknownNameError("block", block, [*self.partitions[:TOLD], *([f"… ({more} more)"] if more > 0 else [])])
            return str.__str__(block)
        found = self._number(block)
        if self.start is not None and found < self._number(self.start):
            raise checks.refuse("block", block, f"a block from '{self.start}' on, the first of this dataset")
        return str.__str__(cast("str", block))

    def names(self, first: object, last: object) -> tuple[str, ...]:
        """All blocks from the first to the last, both included; at most 100,000."""
        first, last = self.check(first), self.check(last)
        if self.every is None:
            low, high = self._places[first], self._places[last]
        else:
            low, high = self._number(first), self._number(last)
        if low > high:
            raise InputError(f"The blocks from {shown(first)} to {shown(last)} are none: expected the earlier block first.")
        if high - low >= BLOCKS_MAX:
            raise InputError(f"{high - low + 1} blocks are too many: expected at most {BLOCKS_MAX}. Name fewer, or divide by longer spans.")
        if self.every is None:
            return self.partitions[low : high + 1]
        return tuple(_named(self.every, _begin(self.every, i)) for i in range(low, high + 1))

    def span(self, block: object) -> tuple[datetime, datetime]:
        """From the first moment of the block to the first moment after it, in UTC.

        >>> Blocks(column="ts", every=Every.DAY).span("2028-02-29")[1]
        datetime.datetime(2028, 3, 1, 0, 0, tzinfo=datetime.timezone.utc)
        """
        number = self._number(self.check(block))
        return _begin(cast("Every", self.every), number), _begin(cast("Every", self.every), number + 1)

    def holding(self, at: datetime) -> str:
        """The block of time that holds this moment.

        >>> Blocks(column="ts", every=Every.WEEK).holding(datetime(2027, 1, 1, tzinfo=UTC))
        '2026-W53'
        """
        if self.every is None:
            raise InputError(f"Partitions of '{self.column}' are no spans of time: expected a division with every=….")
        return self.check(_named(self.every, aware("at", at)))

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        kind = None if self.every is None else self.every.value
        return {"column": self.column, "every": kind, "partitions": list(self.partitions), "start": self.start}

    @classmethod
    def from_dict(cls, value: object) -> Blocks:
        """The blocks that a JSON value describes."""
        given = members("blocks", value, names(cls))
        kind = given["every"]
        return cls(
            column=cast("str", given["column"]),
            every=None if kind is None else every(kind),
            partitions=texts("partitions", given["partitions"]),
            start=cast("str | None", given["start"]),
        )


def every(value: object) -> Every:
    """The span of that name.

    >>> every("month")
    <Every.MONTH: 'month'>
    """
    if isinstance(value, str) and value in tuple(Every):
        return Every(value)
    raise UnknownNameError("span of blocks", value, [e.value for e in Every])
