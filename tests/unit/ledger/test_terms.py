"""What was agreed is exact, has one text, and is refused as a whole when any of it is wrong."""

import json
import math
import pickle
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dither import events as ev
from dither.core.encoding import canonical_json, parse_json
from dither.core.errors import DecodeError, DitherError, InputError, UnknownNameError
from dither.core.units import Neighbors, PrivacyUnit, Trust
from dither.ledger import terms
from dither.ledger.terms import Blocks, Dataset, Every, FilterSpec, Limit, Per

UNIT = PrivacyUnit(dataset="events", key="user_id")
ROWS = PrivacyUnit(dataset="events")
MONTHS = Blocks(column="ts", every=Every.MONTH)
KINDS = [
    FilterSpec.of(1),
    FilterSpec.of(Fraction(1, 3), kind="pure"),
    FilterSpec.of(1, 1e-6, kind="approx"),
    FilterSpec.of(1, 1e-6, kind="advanced", side_delta=1e-7),
    FilterSpec.of(1, 1e-6, kind="zcdp"),
    FilterSpec.of(3, 1e-6),
    FilterSpec.of(3, 1e-6, orders=[8, 2.0, 8.0], side_delta=0),
]


def limit(**more):
    return Limit(**{"id": "L1", "account": ("acme",), "dataset": "events", "filter": FilterSpec.of(1), "per": Per.DATASET, **more})


# ------------------------------------------------------------------------------------------------ exact numbers


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0.1, Fraction(1, 10)),
        (0.30000000000000004, Fraction(30000000000000004, 10**17)),
        (1, Fraction(1)),
        (-0.0, Fraction(0)),
        (1e308, Fraction(10**308)),
        (Fraction(1, 3), Fraction(1, 3)),
        (sys.float_info.min, Fraction("2.2250738585072014e-308")),
        (2**60 + 1, Fraction(2**60 + 1)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.float32(0.5), Fraction(1, 2)),
        (np.int64(2**60 + 1), Fraction(2**60 + 1)),  # through a float it would lose its last digit
        (np.longdouble(0.5), Fraction(1, 2)),
    ],
)
def test_a_number_is_what_is_written(value, found):
    assert terms.exact("x", value) == found
    assert type(terms.exact("x", value)) is Fraction


NOT_NUMBERS = [
    *(True, False, None, "1", "0.1", b"1", [1], 1 + 0j, math.nan, math.inf, -math.inf, 1e-310, 5e-324, 10**400, -(10**400)),
    *(Fraction(1, 2**1300), Fraction(2**1300), Decimal("0.1"), np.bool_(True), np.nan, np.float32("inf"), np.array(0.1), np.array([0.1])),
    *(np.timedelta64(3, "D"), np.timedelta64(3), np.complex128(1), object()),
]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=[str(i) for i in range(len(NOT_NUMBERS))])
def test_what_is_no_number_is_refused_everywhere(value):
    with pytest.raises(InputError) as told:
        terms.exact("x", value)
    assert len(str(told.value)) < 300
    for wrong in (
        lambda: FilterSpec.of(value),
        lambda: FilterSpec.of(1, value, kind="approx"),
        lambda: FilterSpec.of(1, 1e-6, side_delta=value) if value is not None else FilterSpec.of(value),
        lambda: FilterSpec.of(1, 1e-6, orders=[value]),
        lambda: limit(alert_at=(value,)),
    ):
        with pytest.raises(InputError):
            wrong()


@pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(np.float64).eps, reason="no wider float on this machine")
def test_a_wider_float_is_not_rounded_in_silence():
    just_below = np.nextafter(np.longdouble(0.5), np.longdouble(0))
    with pytest.raises(InputError, match="No float is exactly this"):
        terms.exact("epsilon", just_below)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_the_decimal_that_names_it(value):
    if 0 < abs(value) < sys.float_info.min:
        with pytest.raises(InputError, match="subnormal"):
            terms.exact("x", value)
    else:
        assert terms.exact("x", value) == Fraction(repr(value))


@given(st.fractions(0, 1000) | st.fractions(0, Fraction(1, 10**300), max_denominator=10**330) | st.floats(0, 1000).map(Fraction))
@example(Fraction(1, 2**1100))
@example(Fraction(0))
@example(Fraction(1) - Fraction(1, 10**20))
def test_below_is_never_above_and_the_nearest_that_is_not(value):
    found = terms.below(value)
    assert found >= 0
    assert Fraction(repr(found)) <= value
    assert Fraction(repr(math.nextafter(found, math.inf))) > value


@given(st.fractions(min_value=0))
def test_fractions_have_one_text(value):
    assert terms.fraction("x", str(value)) == value


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "1/0", "0/1", "2/4", "1/1", "-1", "+1", "01", "1/02", "0.1", "1e3", " 1", "1 ", "1\n", "1/2/3", "1_0", "١", "½", "a"),
        *("1" * 401, "1" * 10**6, None, 1, 0.1, Fraction(1, 2), ["1"], True, b"1"),
    ],
    ids=range(28),
)
def test_no_other_text_is_a_fraction(wrong):
    with pytest.raises(DecodeError, match="fraction in lowest terms"):
        terms.fraction("x", wrong)


# ------------------------------------------------------------------------------------------------ filters


@pytest.mark.parametrize("spec", KINDS, ids=str)
def test_a_filter_has_one_text_and_opens(spec):
    told = canonical_json(spec.to_dict())
    again = FilterSpec.from_dict(parse_json(told))
    assert again == spec == pickle.loads(pickle.dumps(spec))
    assert hash(again) == hash(spec)
    assert canonical_json(again.to_dict()) == told
    for neighbors in Neighbors:
        book = spec.open(neighbors)
        assert (book.kind, book.neighbors, book.events) == (spec.kind, neighbors, 0)
        assert not any(book.spent)
        assert book.would(ev.PureDp(1e-9)).allowed


def test_what_is_not_said_is_filled_in():
    assert (FilterSpec.of(1).kind, FilterSpec.of(1, 1e-6).kind) == ("pure", "rdp")
    assert FilterSpec.of(1, 1e-6).side_delta == Fraction(1, 2_000_000)
    assert FilterSpec.of(1, 1e-6).orders == terms.DEFAULT_ORDERS
    assert FilterSpec.of(1, 1e-6, kind="zcdp").side_delta == 0
    assert FilterSpec.of(0.1) == FilterSpec.of(Fraction(1, 10)) != FilterSpec.of(Fraction(0.1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0},
        {"epsilon": -1},
        {"epsilon": 1000.1},
        {"epsilon": Fraction(1, 10**61)},
        {"delta": 1},
        {"delta": -1e-9},
        {"delta": 1e-6, "kind": "pure"},
        {"kind": "zcdp"},
        {"kind": "rdp"},
        {"kind": "advanced"},
        {"kind": "Pure"},
        {"kind": ""},
        {"kind": 7},
        {"kind": ["rdp"]},
        {"kind": "pure", "side_delta": 1e-9},
        {"delta": 1e-6, "kind": "approx", "side_delta": 1e-9},
        {"delta": 1e-6, "side_delta": 1e-6},
        {"delta": 1e-6, "side_delta": -1e-9},
        {"delta": Fraction(1, 3), "side_delta": Fraction(1, 3) - Fraction(1, 10**30), "kind": "zcdp"},  # one float for both
        {"delta": Fraction(1, 2**1150), "kind": "zcdp"},
        {"delta": Fraction(1, 2**1150), "kind": "advanced"},
        {"delta": 1e-6, "kind": "zcdp", "orders": [2.0]},
        {"delta": 1e-6, "orders": []},
        {"delta": 1e-6, "orders": "248"},
        {"delta": 1e-6, "orders": [1.0]},
        {"delta": 1e-6, "orders": [0.5]},
        {"delta": 1e-6, "orders": 7},
        {"delta": 1e-6, "orders": [1.0001]},  # no ε that small is reached at this order
        {"delta": 1e-6, "orders": range(2, 100)},
    ],
    ids=str,
)
def test_a_limit_that_no_filter_can_hold_is_refused_when_it_is_agreed(wrong):
    with pytest.raises(InputError):
        FilterSpec.of(**{"epsilon": 1, **wrong})


def test_unknown_kinds_list_the_known():
    with pytest.raises(UnknownNameError, match="advanced, approx, pure, rdp, zcdp"):
        FilterSpec.of(1, kind="renyi")


SPEC = KINDS[-1].to_dict()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"epsilon": 3}, {"epsilon": 3.0}, {"epsilon": "3.0"}, {"epsilon": "6/2"}, {"epsilon": None}, {"delta": "1e-6"}, {"kind": None}),
        *({"orders": [8.0, 2.0]}, {"orders": [2.0, 2.0]}, {"orders": [2, 8]}, {"orders": None}, {"orders": "28"}, {"orders": []}),
        *({"orders": [2.0] * 10**5}, {"orders": [math.nan]}, {"orders": [math.inf]}, {"more": 1}, {"epsilon": "9" * 400}),
        {"kind": "pure", "delta": "0"},
    ],
    ids=range(19),
)
def test_json_of_no_filter_is_refused(wrong):
    with pytest.raises(InputError):
        FilterSpec.from_dict({**SPEC, **wrong})
    for name in SPEC:
        with pytest.raises(DecodeError, match=f"missing: {name}"):
            FilterSpec.from_dict({k: v for k, v in SPEC.items() if k != name})


# ------------------------------------------------------------------------------------------------ datasets

DATASETS = [
    Dataset(name="events", unit=ROWS),
    Dataset(name="events", unit=UNIT, trust="local"),
    Dataset(name="events", unit=UNIT, blocks=MONTHS),
    Dataset(name="events", unit=UNIT, blocks=MONTHS, disjoint=True),
    Dataset(name="events", unit=ROWS, blocks=Blocks(column="r", partitions=("a", "b"))),
    Dataset(name="é", unit=PrivacyUnit(dataset="é", neighbors="replace")),
]


@pytest.mark.parametrize("made", DATASETS, ids=range(6))
def test_a_dataset_has_one_text(made):
    told = canonical_json(made.to_dict())
    assert Dataset.from_dict(parse_json(told)) == made == pickle.loads(pickle.dumps(made))
    assert canonical_json(Dataset.from_dict(parse_json(told)).to_dict()) == told


def test_blocks_are_disjoint_for_rows_and_for_keys_only_if_declared():
    assert [d.disjoint for d in DATASETS] == [None, None, False, True, True, None]
    assert DATASETS[0].trust is Trust.CENTRAL


def test_what_a_limit_hides_is_told_in_words():
    replaced = PrivacyUnit(dataset="events", neighbors="replace")
    assert DATASETS[3].hides(Per.BLOCK) == "one user_id's rows of one month of events (present or absent)"
    assert DATASETS[2].hides(Per.BLOCK).endswith(", not all rows of one user_id")
    assert DATASETS[2].hides(Per.DATASET) == str(UNIT)
    assert DATASETS[1].hides(Per.BLOCK) == str(UNIT)
    assert DATASETS[4].hides(Per.BLOCK) == "one row of one partition by r of events (present or absent)"
    assert Dataset(name="events", unit=replaced, blocks=MONTHS).hides(Per.BLOCK).endswith("(replaced by another of the same month)")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "other"},
        {"name": ""},
        {"name": None},
        {"name": "e\u0301"},
        {"unit": "events"},
        {"unit": None},
        {"trust": "nobody"},
        {"trust": None},
        {"blocks": "month"},
        {"blocks": None, "disjoint": True},
        {"blocks": None, "disjoint": False},
        {"unit": ROWS, "disjoint": False},
        {"disjoint": 1},
        {"disjoint": "yes"},
    ],
    ids=str,
)
def test_a_dataset_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError):
        Dataset(**{"name": "events", "unit": UNIT, "blocks": MONTHS, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"disjoint": None},  # written out, for a dataset with blocks
        {"disjoint": 0},
        {"unit": None},
        {"unit": {"dataset": "events", "key": 7, "neighbors": "replace"}},
        {"unit": {"dataset": "events", "key": "", "neighbors": "replace"}},
        {"unit": {"dataset": "events", "key": None, "neighbors": "others"}},
        {"unit": {"dataset": "events", "key": None, "neighbors": ["replace"]}},
        {"unit": {"dataset": ["events"], "key": None, "neighbors": "replace"}},
        {"trust": ["central"]},
        {"blocks": "month"},
        {"name": "other"},
        {"name": ["events"]},
        {"more": 1},
    ],
    ids=range(13),
)
def test_json_of_no_dataset_is_refused(wrong):
    with pytest.raises(InputError):
        Dataset.from_dict({**DATASETS[2].to_dict(), **wrong})


# ------------------------------------------------------------------------------------------------ limits

START = datetime(2026, 11, 19, 6, 0, 0, 1, tzinfo=UTC)
LIMITS = [
    limit(),
    limit(account="acme/ads/市場", filter=KINDS[5], per="block", alert_at=(0.95, Fraction(1, 2), 0.8, 1, 0.5)),
    limit(id="L999999999999999999", starts=START, ends=START + timedelta(microseconds=1)),
    limit(ends=datetime(2027, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
]


@pytest.mark.parametrize("made", LIMITS, ids=range(4))
def test_a_limit_has_one_text(made):
    told = canonical_json(made.to_dict())
    assert Limit.from_dict(parse_json(told)) == made == pickle.loads(pickle.dumps(made))
    assert canonical_json(Limit.from_dict(parse_json(told)).to_dict()) == told


def test_a_limit_is_put_in_order():
    assert LIMITS[1].alert_at == (Fraction(1, 2), Fraction(4, 5), Fraction(19, 20), Fraction(1))
    assert LIMITS[1].account == ("acme", "ads", "市場")
    assert LIMITS[1].per is Per.BLOCK
    assert LIMITS[3].ends == datetime(2027, 1, 1, tzinfo=UTC)
    assert LIMITS[1].title == "limit L1 of account 'acme/ads/市場' on dataset 'events' for each block"
    assert replace(LIMITS[1], id="L2").title.startswith("limit L2 ")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"id": i} for i in ("L0", "L01", "l1", "1", "", "L1 ", "L1\n", "L-1", "L" + "1" * 19, "L١", None, 1)),
        *({"account": a} for a in ("", "acme/", (), None, ("acme", "a/b"), ("аcme\u200b",))),
        *({"dataset": d} for d in ("", None, 7, "e\u0301", "x" * 201)),
        *({"filter": f} for f in (None, "pure", FilterSpec, {"kind": "pure"})),
        *({"per": p} for p in (None, "", "Block", "month", 1, ["block"])),
        *({"starts": s} for s in ("2026-11-19", datetime(2026, 1, 1), 7)),  # noqa: DTZ001 - that is what is refused
        {"starts": START, "ends": START},
        {"starts": START, "ends": START - timedelta(days=1)},
        *({"alert_at": a} for a in (0.5, "50 %", None, (0,), (-0.5,), (1.01,), (0.5, None), ("1/2",), (0.5,) * 17, {0.5}, {0.5: 1})),
    ],
    ids=range(49),
)
def test_a_limit_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError):
        limit(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"alert_at": a} for a in (["4/5", "1/2"], ["1/2", "1/2"], ["2/4"], [0.5], "1/2", None, ["0"], ["2"], ["1/2", None])),
        *({"starts": s} for s in ("2026-11-19", "2026-11-19T24:00:00.000000Z", 7, "", "0001-01-01T00:00:00.000000Z")),
        *({"account": a} for a in ("acme", [], ["acme", 1], None, ["acme/ads"], ["e\u0301"])),
        *({"per": None}, {"filter": None}, {"filter": []}, {"id": 1}, {"dataset": None}, {"more": None}),
    ],
    ids=range(26),
)
def test_json_of_no_limit_is_refused(wrong):
    with pytest.raises(InputError):
        Limit.from_dict({**LIMITS[0].to_dict(), **wrong})


DEEP = json.loads('{"id":' * 150 + "1" + "}" * 150)


@pytest.mark.parametrize("read", [Dataset.from_dict, FilterSpec.from_dict, Limit.from_dict, Blocks.from_dict, terms.unit_from_dict])
@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {}, DEEP, {"a": DEEP}, {1: 2}, {None: 1}], ids=range(10))
def test_json_of_another_kind_is_one_clear_error(read, value):
    with pytest.raises(DecodeError, match=r"has exactly the fields|is a JSON object") as told:
        read(value)
    assert len(str(told.value)) < 500


def test_json_that_is_too_deep_never_gets_so_far():
    for text in ('{"id":' * 10_000 + "1" + "}" * 10_000, "[" * 10_000, '{"alert_at":' + "[" * 10_000 + "]" * 10_000 + "}"):
        with pytest.raises(DecodeError, match="nested too deeply"):
            Limit.from_dict(parse_json(text))
    nested = 1
    for _ in range(10_000):
        nested = [nested]
    for made in (LIMITS[0], DATASETS[2], KINDS[0], MONTHS):
        for name in made.to_dict():
            with pytest.raises(DitherError):
                type(made).from_dict({**made.to_dict(), name: nested})
