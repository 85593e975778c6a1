"""Blocks: each moment is in one block, each block has one name, and nothing else names one."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.core.errors import DecodeError, InputError, UnknownNameError
from dither.ledger import blocks
from dither.ledger.blocks import Blocks, Every

MOMENTS = st.datetimes(datetime(1000, 1, 8), datetime(9998, 12, 24), timezones=st.just(UTC))  # noqa: DTZ001 - the zone is beside it
RANGES = {
    Every.HOUR: [("1000-01-01T00", "1000-03-01T05"), ("2027-12-30T22", "2028-03-02T01"), ("9998-12-30T00", "9998-12-31T23")],
    Every.DAY: [("1000-01-01", "1001-12-31"), ("1999-12-01", "2029-03-01"), ("9998-01-01", "9998-12-31")],
    Every.WEEK: [("1000-W01", "1003-W01"), ("1970-W01", "2040-W01"), ("9990-W01", "9998-W52")],
    Every.MONTH: [("1000-01", "1200-01"), ("1900-01", "9998-12")],
    Every.QUARTER: [("1000-Q1", "9998-Q4")],
    Every.YEAR: [("1000", "9998")],
}


def by(every, **more):
    return Blocks(column="ts", every=every, **more)


@pytest.mark.parametrize("every", Every)
def test_blocks_follow_each_other_without_gap_or_overlap(every):
    divided = by(every)
    for first, last in RANGES[every]:
        names = divided.names(first, last)
        assert (names[0], names[-1]) == (first, last)
        assert len(set(names)) == len(names)
        assert list(names) == sorted(names)
        spans = [divided.span(name) for name in names]
        assert all(one[1] == other[0] for one, other in pairwise(spans))
        for name, (begin, end) in zip(names, spans, strict=True):
            assert divided.check(name) == name
            assert begin < end
            if begin.year >= 1000:  # the first week of the year 1000 begins in 999
                assert divided.holding(begin) == name
            assert divided.holding(end - timedelta(microseconds=1)) == name


@given(every=st.sampled_from(Every), at=MOMENTS, hours=st.integers(-14, 14))
def test_every_moment_is_in_the_one_block_that_holds_it(every, at, hours):
    divided = by(every)
    name = divided.holding(at)
    begin, end = divided.span(name)
    assert begin <= at < end
    assert divided.holding(at.astimezone(timezone(timedelta(hours=hours)))) == name


@given(at=MOMENTS)
def test_names_are_those_that_calendars_write(at):
    year, week, _ = at.isocalendar()
    assert by(Every.DAY).holding(at) == at.date().isoformat()
    assert by(Every.HOUR).holding(at) == at.isoformat()[:13]
    assert by(Every.MONTH).holding(at) == at.date().isoformat()[:7]
    assert by(Every.WEEK).holding(at) == date.fromisocalendar(year, week, 1).strftime("%G-W%V")
    assert by(Every.QUARTER).holding(at) == f"{at.year}-Q{1 + (at.month - 1) // 3}"
    assert by(Every.YEAR).holding(at) == str(at.year)


WRONG = {
    Every.HOUR: ["2026-11-19T24", "2026-11-19T6", "2026-11-19 06", "2026-11-31T06", "2026-11-19T06:00", "2026-11-19", "0999-12-31T23"],
    Every.DAY: ["2026-02-29", "2026-2-9", "2026-00-01", "2026-01-00", "20260101", "2026-01-01Z", "2026-W01", "9999-01-01", "2026-366"],
    Every.WEEK: ["2026-W00", "2026-W54", "2027-W53", "2026-w01", "2026-W1", "2026W01", "2026-W01-1", "9999-W01", "2026-01"],
    Every.MONTH: ["2026-13", "2026-00", "2026-1", "2026/11", "202611", "26-11", "0999-12", "9999-01", "2026-Q4"],
    Every.QUARTER: ["2026-Q0", "2026-Q5", "2026-q1", "2026Q1", "2026-Q01", "2026-1"],
    Every.YEAR: ["0000", "0999", "9999", "10000", "26", "02026", "-2026", "+2026", "2_026"],
}


@pytest.mark.parametrize("every", Every)
def test_no_block_has_a_second_name(every):
    divided, right = by(every), RANGES[every][0][0]
    arabic = right.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩"))
    wide = right.translate(str.maketrans("0123456789", "０１２３４５６７８９"))
    around = [f"{right}\n", f" {right}", f"{right} ", f"{right}\0", right.encode(), arabic, wide, "", "x" * 10**6]
    for wrong in [*WRONG[every], *around, None, 2026, 2026.0, True, [right], date(2026, 1, 1)]:
        for ask in (
            divided.check,
            divided.span,
            lambda b: divided.names(b, b),
            lambda b: by(every, start=b) if b is not None else divided.check(b),
        ):
            with pytest.raises(InputError):
                ask(wrong)


def test_blocks_before_the_first_are_none():
    divided = by(Every.MONTH, start="2026-11")
    assert divided.check("2026-11") == "2026-11"
    with pytest.raises(InputError, match="from '2026-11' on"):
        divided.check("2026-10")
    with pytest.raises(InputError, match="from '2026-11' on"):
        divided.holding(datetime(2026, 10, 31, 23, 59, 59, tzinfo=UTC))


def test_ranges_are_bounded_before_they_are_built():
    with pytest.raises(InputError, match="too many"):
        by(Every.HOUR).names("1000-01-01T00", "9998-12-31T23")
    with pytest.raises(InputError, match="earlier block first"):
        by(Every.DAY).names("2026-11-02", "2026-11-01")
    assert len(by(Every.DAY).names("2000-01-01", "2273-10-15")) == blocks.BLOCKS_MAX
    with pytest.raises(InputError, match="100001 blocks are too many"):
        by(Every.DAY).names("2000-01-01", "2273-10-16")


def test_partitions_are_a_public_list():
    regions = Blocks(column="region", partitions=("north", "south", "Île-de-France"))
    assert regions.names("north", "Île-de-France") == regions.partitions
    assert regions.names("south", "south") == ("south",)
    with pytest.raises(UnknownNameError, match=r"'nort'.*north"):
        regions.check("nort")
    with pytest.raises(InputError, match="earlier block first"):
        regions.names("south", "north")
    for ask in (lambda: regions.span("north"), lambda: regions.holding(datetime(2026, 1, 1, tzinfo=UTC))):
        with pytest.raises(InputError, match="no spans of time"):
            ask()
    for wrong in (None, 7, ["north"], b"north", "north ", "I\u0302le-de-France", np.array(["north"])):
        with pytest.raises(InputError):
            regions.check(wrong)


def test_many_partitions_are_checked_one_by_one_in_no_time():
    many = tuple(f"p{i}" for i in range(blocks.PARTITIONS_MAX))
    divided = Blocks(column="region", partitions=many)
    assert tuple(map(divided.check, many)) == many  # a search through all for each would be 5·10⁹ steps, a hang
    assert divided.names("p7", "p99999") == many[7:]
    with pytest.raises(UnknownNameError, match=r"99960 more") as told:
        divided.check("q")
    assert len(str(told.value)) < 1_000
    with pytest.raises(InputError, match="at most 100000"):
        Blocks(column="region", partitions=(*many, "more"))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"every": "month", "partitions": ("a",)},
        {"every": "fortnight"},
        {"every": ""},
        {"every": 7},
        {"every": True},
        {"partitions": ("a", "a")},
        {"partitions": "north"},
        {"partitions": ("a", "")},
        {"partitions": ("a", 7)},
        {"partitions": ("e\u0301",)},
        {"partitions": ("a\u200b",)},
        {"partitions": ("x" * 201,)},
        {"partitions": {"a": 1}},
        {"partitions": ("a",), "start": "2026"},
        {"every": "month", "start": "2026"},
        {"every": "month", "start": 2026},
        {"every": "month", "start": ""},
        {"every": "month", "column": ""},
        {"every": "month", "column": None},
        {"every": "month", "column": "t\0s"},
        {"every": "month", "column": "x" * 201},
    ],
    ids=str,
)
def test_what_divides_nothing_is_refused(wrong):
    with pytest.raises(InputError):
        Blocks(**{"column": "ts", **wrong})


@pytest.mark.parametrize(
    "made",
    [by(Every.WEEK), by("month", start="2026-11"), Blocks(column="r", partitions=["north", "süd"])],
    ids=["week", "month", "regions"],
)
def test_blocks_are_facts(made):
    assert Blocks.from_dict(made.to_dict()) == made == copy.deepcopy(made) == pickle.loads(pickle.dumps(made))
    assert hash(Blocks.from_dict(made.to_dict())) == hash(made)
    assert "_places" not in repr(made) + str(made.to_dict())
    assert replace(made, column="other").check(made.partitions[0] if made.partitions else made.start or "2026-W01")
    with pytest.raises(FrozenInstanceError):
        made.column = "x"


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "month",
        {},
        {"column": "ts"},
        {"column": "ts", "every": "month", "partitions": [], "start": None, "more": 1},
        {"column": "ts", "every": "month", "partitions": (), "start": None},
        {"column": "ts", "every": "month", "partitions": None, "start": None},
        {"column": "ts", "every": "month", "partitions": [], "start": 2026},
        {"column": "ts", "every": None, "partitions": [], "start": None},
        {"column": ["ts"], "every": "month", "partitions": [], "start": None},
        {"column": "ts", "every": ["month"], "partitions": [], "start": None},
        {"column": "ts", "every": None, "partitions": ["a", None], "start": None},
        {"column": "ts", "every": "month", "partitions": [], 10**5_000: None},
        {"column": "ts", "every": "month", "partitions": [], "s\u202etart": None},
    ],
    ids=range(15),
)
def test_json_of_no_blocks_is_one_clear_error(wrong):
    with pytest.raises(InputError) as told:
        Blocks.from_dict(wrong)
    assert str(told.value).isprintable()


# ------------------------------------------------------------------------------------------------ moments


@given(at=MOMENTS, minutes=st.integers(-14 * 60, 14 * 60))
def test_stamps_go_both_ways(at, minutes):
    told = blocks.stamp(at.astimezone(timezone(timedelta(minutes=minutes))))
    assert blocks.moment("at", told) == at
    assert blocks.stamp(blocks.moment("at", told)) == told
    assert len(told) == 27


@given(st.lists(MOMENTS, min_size=2, max_size=6))
def test_stamps_sort_as_moments_do(moments):
    assert [blocks.stamp(m) for m in sorted(moments)] == sorted(blocks.stamp(m) for m in moments)


STAMP = "2026-11-19T06:00:00.000000Z"


@pytest.mark.parametrize(
    "wrong",
    [
        *(STAMP[:-1], STAMP.lower(), STAMP.replace("T", " "), STAMP.replace("Z", "+00:00"), STAMP.replace(".000000", ""), STAMP + "\n"),
        *("2026-11-31T06:00:00.000000Z", "2026-11-19T24:00:00.000000Z", "2026-11-19T06:00:60.000000Z", "0000-11-19T06:00:00.000000Z"),
        *("0999-11-19T06:00:00.000000Z", "9999-11-19T06:00:00.000000Z", "٢٠٢٦-11-19T06:00:00.000000Z", "", None, 7, STAMP.encode()),
    ],
)
def test_what_is_no_stamp_is_told_so(wrong):
    with pytest.raises(DecodeError, match="'at' is a time such as"):
        blocks.moment("at", wrong)


class Nanoseconds(datetime):
    """A finer kind of moment, as tables have them."""


def test_moments_are_plain_and_in_utc():
    india = timezone(timedelta(hours=5, minutes=30))
    assert blocks.aware("ends", datetime(2026, 1, 1, 5, 30, tzinfo=india)) == datetime(2026, 1, 1, tzinfo=UTC)
    assert blocks.aware("ends", datetime(2026, 1, 1, 5, 30, tzinfo=india)).tzinfo is UTC
    found = blocks.aware("ends", Nanoseconds(2026, 1, 1, tzinfo=UTC))
    assert (type(found), found) == (datetime, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "wrong",
    [
        datetime(2026, 1, 1),  # noqa: DTZ001 - that is what is refused
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        datetime(999, 1, 1, tzinfo=UTC),
        datetime(9999, 1, 1, tzinfo=UTC),
        date(2026, 1, 1),
        STAMP,
        None,
        1.7e9,
        np.datetime64("2026-01-01"),
    ],
    ids=range(10),
)
def test_what_is_no_moment_is_refused(wrong):
    with pytest.raises(InputError, match="ends="):
        blocks.aware("ends", wrong)
    with pytest.raises(InputError):
        by(Every.DAY).holding(wrong)


def test_the_time_of_a_naive_clock_is_never_stamped():
    with pytest.raises(InputError, match="time zone"):
        blocks.stamp(datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused
