"""The built-in engine: answers and their noise, who counts how often, and files made to break it."""

import math
import warnings
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dither.accounting import epsilon as price
from dither.core import events as ev
from dither.core.errors import DitherError, InputError, MissingExtraError, UnknownNameError
from dither.core.units import Neighbors, PrivacyUnit
from dither.gate import measure, rows
from dither.gate.engines import Column, Facts, Request
from dither.ledger.gauge import Gauge
from dither.ledger.terms import Blocks, FilterSpec
from dither.noise import UnsafeSeededRng, gaussian_noise_multiplier

CITIES = ("Delhi", "Pune")
COLUMNS = (
    Column(name="city", type="text", values=CITIES),
    Column(name="age", type="int", min=0, max=100),
    Column(name="amount", type="float", min=-10, max=50),
    Column(name="member", type="bool"),
    Column(name="day", type="date"),
    Column(name="ts", type="timestamp"),
)
HEADER = "user,city,age,amount,member,day,ts"
ROWS = (
    "a,Delhi,30,1.5,true,2026-01-05,2026-01-05T10:00:00",
    "a,Pune,30,2.5,true,2026-01-06,2026-01-06T10:00:00Z",
    "b,Pune,70,-20,false,2026-02-05,2026-01-31T23:59:59.999999+00:00",
    "c,Agra,17,99,no,2026-02-06,2026-02-01T00:00:00Z",
    "d,Pune,x,,1,2026-03-01,2026-02-28 23:00:00-02:00",
)


class Seeded:
    """A repeatable source that counts as private, so that a law can be tested."""

    private = True

    def __init__(self, seed):
        self.own = UnsafeSeededRng(seed)

    def bytes(self, count):
        return self.own.bytes(count)

    def bits(self, count):
        return self.own.bits(count)

    def below(self, bound):
        return self.own.below(bound)


def facts(folder, *, key=None, source="t.csv", columns=COLUMNS, neighbors="add_remove", **more):
    return Facts(
        name="t", source=source, folder=folder, columns=columns, unit=PrivacyUnit(dataset="t", key=key, neighbors=neighbors), **more
    )


def written(folder, lines=ROWS, header=HEADER, name="t.csv"):
    (folder / name).write_text("\n".join([header, *lines]) + "\n", newline="")
    return folder


def asked(statistic, blocks=(), **options):
    return Request.of("measure", dataset="t", account="acme", purpose="test", blocks=blocks, options={"statistic": statistic, **options})


def planned(known, statistic, blocks=(), **options):
    if "accuracy" not in options:
        options = {"epsilon": 1.0, **options}
    return measure.plan(asked(statistic, blocks, **options), known)


def added(known, statistic, column=None, blocks=(), **options):
    """What the rows add, before any noise."""
    made = planned(known, statistic, blocks, **({} if column is None else {"column": column}), **options)
    with measure.open(known) as data:
        if column is None:
            return [v for batch in made.rows.added(data) for v in batch]
        if statistic == "histogram":
            return [v for batch in made.rows.added(data, column, measure._group(made)) for v in batch]
        return [v for batch in measure._numbers(made, data) for v in batch]


def answered(known, statistic, seed=1, blocks=(), **options):
    made = planned(known, statistic, blocks, **options)
    return measure.run(made, measure.open(known), Seeded(seed))


# ------------------------------------------------------------------------------------------------ answers


def test_every_statistic_is_near_the_truth_where_noise_is_small(tmp_path):
    known = facts(written(tmp_path))
    most = {"epsilon": 1_000.0}
    assert answered(known, "count", **most).value == {"statistic": "count", "estimate": 5}
    assert answered(known, "sum", column="age", **most).value["estimate"] == 147
    assert answered(known, "sum", column="amount", **most).value["estimate"] == pytest.approx(1.5 + 2.5 - 10 + 50, abs=1)
    found = answered(known, "mean", column="amount", **most)
    assert found.value["estimate"] == pytest.approx(44 / 4, abs=0.5)
    assert abs(found.value["estimate"] - 11) <= found.accuracy.half_width
    groups = answered(known, "histogram", column="city", **most).value["estimates"]
    assert groups == [{"value": "Delhi", "estimate": 1}, {"value": "Pune", "estimate": 3}]
    bars = answered(known, "histogram", column="age", bins=4, **most).value["estimates"]
    assert [(b["from"], b["to"], b["estimate"]) for b in bars] == [(0.0, 25.0, 1), (25.0, 50.0, 2), (50.0, 75.0, 1), (75.0, 100, 0)]
    assert answered(known, "histogram", column="member", **most).value["estimates"][1] == {"value": True, "estimate": 3}
    assert answered(known, "median", column="age", **most).value["estimate"] in range(17, 71)
    ends = answered(known, "quantiles", column="age", quantiles=[0.0, 1.0], **most).value["estimates"]
    assert [e["quantile"] for e in ends] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ({"city": "Pune"}, 3),
        ({"city": ["Pune", "Agra"]}, 4),
        ({"age": 30}, 2),
        ({"age": {"min": 17, "max": 30}}, 3),
        ({"age": {"below": 30}}, 1),
        ({"age": {"min": 29.5}}, 3),
        ({"amount": {"max": 2.5}}, 3),
        ({"member": True}, 3),
        ({"member": False, "city": "Agra"}, 1),
        ({"day": "2026-02-05"}, 1),
        ({"day": {"min": "2026-02-05", "below": "2026-03-01"}}, 2),
        ({"ts": {"min": "2026-02-01T00:00:00Z"}}, 2),
    ],
)
def test_conditions(tmp_path, where, count):
    assert len(added(facts(written(tmp_path)), "count", where=where)) == count


def test_rows_of_a_folder_are_those_of_its_files(tmp_path):
    (tmp_path / "t").mkdir()
    written(tmp_path, ROWS[:2], name="t/1.csv")
    written(tmp_path, ROWS[2:], name="t/2.csv")
    assert len(added(facts(tmp_path, source="t"), "count")) == 5


def test_plans_are_digested_by_what_decides_the_answer(tmp_path):
    known = facts(tmp_path)
    first = planned(known, "count", where={"city": "Pune"}).digest
    assert planned(facts(tmp_path, columns=(*COLUMNS, Column(name="new", type="int"))), "count", where={"city": "Pune"}).digest == first
    others = [
        planned(known, "count"),
        planned(known, "count", where={"city": "Delhi"}),
        planned(known, "count", where={"city": "Pune"}, epsilon=0.5),
        planned(facts(tmp_path, source="u.csv"), "count", where={"city": "Pune"}),
        planned(facts(tmp_path, columns=(Column(name="city", type="text"),)), "count", where={"city": "Pune"}),
        planned(facts(tmp_path, neighbors="replace"), "count", where={"city": "Pune"}),
    ]
    assert first not in {p.digest for p in others}
    assert len({p.digest for p in others}) == len(others)


# ------------------------------------------------------------------------------------------------ noise and price


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize(
    ("statistic", "options"),
    [
        ("count", {}),
        ("sum", {"column": "amount"}),
        ("mean", {"column": "amount"}),
        ("histogram", {"column": "city"}),
        ("histogram", {"column": "age", "bins": 7}),
    ],
)
def test_what_is_priced_is_what_was_asked_for(tmp_path, statistic, options, delta, neighbors):
    known = facts(tmp_path, key="user", neighbors=neighbors)
    made = planned(known, statistic, rows_per_unit=3, epsilon=0.7, delta=delta, **options)
    cost = price(made.event, delta=delta).upper
    assert 0.69 < cost <= 0.7 * (1 + 1e-9)
    assert "ε = 0.7" in made.explain()


@pytest.mark.parametrize("kind", ["pure", "approx", "advanced", "zcdp", "rdp"])
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_every_kind_of_limit_prices_every_statistic(tmp_path, kind, neighbors):
    gauge = Gauge.of(FilterSpec.of(10, 0 if kind == "pure" else 1e-5, kind=kind), neighbors)
    known = facts(tmp_path, neighbors=neighbors.value)
    for statistic, options in STATISTICS:
        for delta in (0,) if kind in ("pure", "approx", "advanced") or "quantiles" in options or statistic == "median" else (0, 1e-6):
            assert gauge.fits(gauge.price(planned(known, statistic, delta=delta, **options).event))


STATISTICS = [
    ("count", {}),
    ("sum", {"column": "amount"}),
    ("mean", {"column": "amount"}),
    ("histogram", {"column": "city"}),
    ("median", {"column": "age"}),
    ("quantiles", {"column": "age", "quantiles": [0.1, 0.5, 0.9]}),
]


@pytest.mark.parametrize("percent", [1, 7, 10, 29, 55, 77, 83, 99, 110, 256])
def test_an_epsilon_fits_a_limit_that_is_written_alike(tmp_path, percent):
    """The floats that name them are a little above or below; what is charged is never above the decimal."""
    known = facts(tmp_path, key="user")
    gauge = Gauge.of(FilterSpec.of(Fraction(percent, 100)), Neighbors.ADD_REMOVE)
    for statistic, options in STATISTICS:
        for most in (1,) if statistic in ("median", "quantiles") else (1, 3, 7):
            event = planned(known, statistic, rows_per_unit=most, epsilon=percent / 100, **options).event
            assert gauge.fits(gauge.price(event))
            assert not gauge.fits(tuple(2 * p for p in gauge.price(event)))


def test_sensitivity_is_of_the_bounded_rows(tmp_path):
    def noise(statistic, neighbors="add_remove", **options):
        return planned(facts(tmp_path, key="user", neighbors=neighbors), statistic, rows_per_unit=4, **options).mechanisms

    assert noise("count")[0].sensitivity == noise("count", "replace")[0].sensitivity == 4
    assert noise("histogram", column="city")[0].sensitivity == 4
    assert noise("histogram", "replace", column="city")[0].sensitivity == 8
    assert noise("histogram", "replace", column="city", delta=1e-6)[0].sensitivity == pytest.approx(math.sqrt(32))
    step = planned(facts(tmp_path, key="user"), "sum", rows_per_unit=4, column="amount").grid.step
    assert noise("sum", column="amount")[0].sensitivity * step == 4 * 50
    assert noise("sum", "replace", column="amount")[0].sensitivity * step == 4 * 60
    assert noise("sum", column="age")[0].sensitivity == 4 * 100
    total, count = noise("mean", column="age")
    assert (count.sensitivity, total.sensitivity * planned(facts(tmp_path), "mean", column="age").grid.step) == (4, 4 * 50)


def test_under_replace_a_count_of_a_part_is_no_secret_less(tmp_path):
    for options in ({}, {"where": {"city": "Pune"}}):
        assert planned(facts(tmp_path, neighbors="replace"), "count", **options).mechanisms[0].sensitivity == 1


@pytest.mark.parametrize("statistic", ["count", "sum", "histogram"])
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_accuracy_is_met_and_not_overpaid(tmp_path, statistic, delta):
    column = {"count": {}, "sum": {"column": "amount"}, "histogram": {"column": "city"}}[statistic]
    made = planned(facts(tmp_path), statistic, accuracy=150, delta=delta, **column)
    assert 149 < made.accuracy.half_width <= 150
    assert made.accuracy.confidence == 0.95


def test_an_accuracy_no_epsilon_reaches_is_refused(tmp_path):
    with pytest.raises(InputError, match="accuracy=1e-09 is not allowed"):
        planned(facts(tmp_path), "sum", column="amount", accuracy=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("statistic", "options"),
    [("count", {}), ("count", {"delta": 1e-6}), ("sum", {"column": "age"}), ("histogram", {"column": "city"}), ("mean", {"column": "age"})],
)
def test_stated_accuracy_covers(tmp_path, statistic, options):
    """2,000 answers; the 95 % interval covers at least 93.3 %: a false alarm has probability < 3e-4 at exactly 95 %.

    An interval of half the width, or twice the noise, covers below 85 % and is caught with certainty for all practical purposes.
    """
    lines = [f"u{i},Pune,{30 + i % 7},1,1,2026-01-01,2026-01-01" for i in range(40)]
    known = facts(written(tmp_path, lines))
    made, source = planned(known, statistic, **options), Seeded(7)
    truth = {"count": 40, "sum": sum(30 + i % 7 for i in range(40)), "mean": sum(30 + i % 7 for i in range(40)) / 40}
    inside = 0
    for _ in range(2_000):
        found = measure.run(made, measure.open(known), source)
        if statistic == "histogram":
            errors = [abs(e["estimate"] - t) for e, t in zip(found.value["estimates"], (0, 40), strict=True)]
        else:
            errors = [abs(found.value["estimate"] - truth[statistic])]
        inside += max(errors) <= found.accuracy.half_width
    assert inside >= 1_866


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("statistic", "options", "std"),
    [
        ("count", {}, math.sqrt(2) * 3 / 0.5),
        ("sum", {"column": "age"}, math.sqrt(2) * 300 / 0.5),
        ("histogram", {"column": "city"}, math.sqrt(2) * 3 / 0.5),
        ("count", {"delta": 1e-6}, 3 * gaussian_noise_multiplier(0.5, 1e-6)),
        ("sum", {"column": "age", "delta": 1e-6}, 300 * gaussian_noise_multiplier(0.5, 1e-6)),
        ("histogram", {"column": "city", "delta": 1e-6}, 3 * gaussian_noise_multiplier(0.5, 1e-6)),
    ],
)
def test_noise_has_the_spread_of_its_event(tmp_path, statistic, options, std):
    """2,000 answers, three rows per unit, ε = 0.5: the sample variance is within 30 % of what theory says.

    Of Laplace noise it has a relative error of √(5/2,000) = 5 %, so a false alarm is at 6 standard errors; halved noise gives a quarter.
    """
    known = facts(written(tmp_path), key="user")
    made, source = planned(known, statistic, rows_per_unit=3, epsilon=0.5, **options), Seeded(11)
    found = [measure.run(made, measure.open(known), source).value for _ in range(2_000)]
    numbers = [v["estimates"][0]["estimate"] if statistic == "histogram" else v["estimate"] for v in found]
    assert 0.7 < np.var(numbers) / std**2 < 1.3


def test_a_predictable_source_makes_the_release_not_private(tmp_path):
    known = facts(written(tmp_path))
    assert measure.run(planned(known, "count"), measure.open(known), UnsafeSeededRng(1)).event == ev.NonPrivate()


# ------------------------------------------------------------------------------------------------ who counts how often


def test_of_each_unit_the_first_rows_that_count_by_themselves_are_kept(tmp_path):
    lines = ["a,Agra,1,1,1,,", "a,Pune,2,1,1,,", "b,Pune,3,1,1,,", "a,Delhi,4,1,1,,", ",Pune,5,1,1,,", "a,Pune,6,1,1,,"]
    known = facts(written(tmp_path, lines), key="user")
    assert added(known, "sum", "age", rows_per_unit=2) == [1, 2, 3]
    assert added(known, "sum", "age", rows_per_unit=2, where={"city": ["Pune", "Delhi"]}) == [2, 3, 4]
    assert added(known, "histogram", "city", rows_per_unit=1) == [1, 1]


def test_a_key_declared_as_a_number_is_one_however_it_is_written(tmp_path):
    lines = [f"{key},Pune,1,1,1,," for key in ("7", "07", " 7", "7.0", "8", "", "x", "nan")]
    declared = (*COLUMNS, Column(name="user", type="int"))
    assert len(added(facts(written(tmp_path, lines), key="user", columns=declared), "count", rows_per_unit=1)) == 2
    assert len(added(facts(tmp_path, key="user"), "count", rows_per_unit=1)) == 7


def test_keys_that_are_no_text_stay_apart(tmp_path):
    raw = HEADER.encode() + b"\n" + b"".join(key + b",Pune,1,1,1,,\n" for key in (b"\xff", b"\xfe", b"\xff", b"\xef\xbf\xbd"))
    (tmp_path / "t.csv").write_bytes(raw)
    assert len(added(facts(tmp_path, key="user"), "count", rows_per_unit=1)) == 3


def one_unit_moves(folder, source, declared):
    """How far the histogram of cities moves when the first unit leaves, of two whose keys are nearly alike; its noise is for 1."""
    known = facts(folder, key="user", source=source, columns=(COLUMNS[0], *((Column(name="user", type=declared),) if declared else ())))
    return np.bincount(added(known, "histogram", "city", rows_per_unit=1), minlength=2)


@pytest.mark.parametrize(
    ("declared", "first", "second"),
    [
        ("int", "9007199254740993.0", "9007199254740992"),
        ("int", "1e999", "2e999"),
        ("int", "inf", "1e999"),
        ("int", "9" * 5_000, "8" * 5_000),
        ("int", "1e-400", "0"),
        ("float", "0.1", "0.10000000000000000001"),
        ("float", "1e999", "2e999"),
        ("float", "-inf", "-1e999"),
        ("float", "9" * 400, "8" * 400),
    ],
)
def test_no_two_keys_are_taken_for_one(tmp_path, declared, first, second):
    """Else the second unit's row takes the place of the first one's: one unit leaves, and two groups change."""
    lines = [f"{first},Delhi,1,1,1,,", f"{second},Pune,1,1,1,,"]
    both = one_unit_moves(written(tmp_path, lines), "t.csv", declared)
    assert np.abs(both - one_unit_moves(written(tmp_path, lines[1:]), "t.csv", declared)).sum() <= 1


@pytest.mark.parametrize(
    ("declared", "kind", "keys"),
    [
        ("int", pa.decimal128(38, 0), [Decimal(2**53 + 1), Decimal(2**53)]),
        ("float", pa.decimal128(38, 1), [Decimal(2**53 + 1), Decimal(2**53)]),
        (None, pa.decimal128(38, 0), [Decimal(2**53 + 1), Decimal(2**53)]),
        ("int", pa.uint64(), [2**63 + 1, 2**63]),
        ("int", pa.float64(), [math.inf, 1.0]),
        (None, pa.float64(), [math.inf, -math.inf]),
        ("text", pa.timestamp("us"), [1, 2]),
    ],
)
def test_no_two_keys_of_a_parquet_file_are_taken_for_one(tmp_path, declared, kind, keys):
    held = table(user=pa.array(keys, kind), city=["Delhi", "Pune"])
    pq.write_table(held, tmp_path / "a.parquet")
    pq.write_table(held[1:], tmp_path / "b.parquet")
    both, one = (one_unit_moves(tmp_path, name, declared) for name in ("a.parquet", "b.parquet"))
    assert np.abs(both - one).sum() <= 1


def test_a_key_that_could_not_be_told_apart_is_refused(tmp_path):
    columns = (COLUMNS[0], Column(name="user", type="timestamp"))
    with pytest.raises(InputError, match="declared as timestamp: expected text, int"):
        planned(facts(tmp_path, key="user", columns=columns), "count", rows_per_unit=1)
    pq.write_table(table(user=pa.array([1, 2], pa.timestamp("ns")), city=["Delhi", "Pune"]), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"Parquet type timestamp\[ns\]: expected microseconds"):
        measure.open(facts(tmp_path, key="user", source="t.parquet", columns=COLUMNS[:1]))
    assert one_unit_moves(tmp_path, "t.parquet", "date").tolist() == [1, 0]  # both are of one day, which is the unit


def test_a_key_of_two_types_is_not_two_units(tmp_path):
    """Whole numbers turn into floats where a writer meets a missing one: 7 of one month would be 7.0 of the next."""
    (tmp_path / "t").mkdir()
    for i, kind in enumerate((pa.int64(), pa.float64())):
        pq.write_table(table(user=pa.array([7], kind), city=["Delhi"]), tmp_path / "t" / f"{i}.parquet")
    with pytest.raises(InputError, match=r"not of one type in all files of 't' \(found double, whole numbers\)"):
        measure.open(facts(tmp_path, key="user", source="t", columns=COLUMNS[:1]))
    assert one_unit_moves(tmp_path, "t", "int").tolist() == [1, 0]
    pq.write_table(table(user=pa.array([7], pa.int8()).dictionary_encode(), city=["Delhi"]), tmp_path / "t" / "1.parquet")
    pq.write_table(table(user=pa.nulls(1), city=["Delhi"]), tmp_path / "t" / "2.parquet")
    assert one_unit_moves(tmp_path, "t", None).tolist() == [1, 0]


def test_a_keyed_unit_needs_a_bound(tmp_path):
    known = facts(tmp_path, key="user")
    with pytest.raises(InputError, match="rows_per_unit"):
        planned(known, "count")
    with pytest.raises(InputError, match="rows_per_unit=2 is not allowed: expected 1"):
        planned(known, "median", column="age", rows_per_unit=2)
    with pytest.raises(InputError, match="the unit is one row"):
        planned(facts(tmp_path), "count", rows_per_unit=2)


# ------------------------------------------------------------------------------------------------ blocks


MONTHS = Blocks(column="ts", every="month", start="2026-01")


def test_only_rows_of_the_charged_blocks_are_counted(tmp_path):
    known = facts(written(tmp_path), blocks=MONTHS)
    assert len(added(known, "count", blocks=["2026-01"])) == 3
    assert len(added(known, "count", blocks=["2026-02"])) == 1
    assert len(added(known, "count", blocks=["2026-03"])) == 1  # its moment has a zone, and is in March in UTC
    assert len(added(known, "count", blocks=["2026-01", "2026-03"])) == 4
    assert len(added(known, "count", blocks=["2026-01", "2026-02", "2026-03"])) == 5


def test_partitions_are_told_by_their_names(tmp_path):
    known = facts(written(tmp_path), blocks=Blocks(column="city", partitions=("Delhi", "Pune", "Agra")))
    assert [len(added(known, "count", blocks=[b])) for b in ("Delhi", "Pune", "Agra")] == [1, 3, 1]


def test_rows_in_no_block_count_nowhere(tmp_path):
    known = facts(written(tmp_path, ["a,Pune,1,1,1,,", "a,Pune,1,1,1,,yesterday", "a,Pune,1,1,1,,99999-01-01"]), blocks=MONTHS)
    assert added(known, "count", blocks=["2026-01", "2026-02"]) == []


def test_blocks_must_be_named_where_there_are_some(tmp_path):
    with pytest.raises(InputError, match="divided into blocks: name those"):
        planned(facts(tmp_path, blocks=MONTHS), "count")
    with pytest.raises(InputError, match="has no blocks"):
        planned(facts(tmp_path), "count", blocks=["2026-01"])
    with pytest.raises(InputError, match="declared as int"):
        planned(facts(tmp_path, blocks=Blocks(column="age", every="day")), "count", blocks=["2026-01-01"])


def test_noise_covers_a_unit_whose_rows_of_one_block_are_taken_away(tmp_path):
    """Without its rows in January, the later rows of a are kept instead: as many come as go, in other groups."""
    lines = [*(f"a,Delhi,1,1,1,,2026-01-0{i}" for i in range(1, 4)), *(f"a,Pune,1,1,1,,2026-02-0{i}" for i in range(1, 4))]
    known = facts(written(tmp_path, lines), key="user", blocks=MONTHS)
    both = ["2026-01", "2026-02"]
    before = np.bincount(added(known, "histogram", "city", both, rows_per_unit=3), minlength=2)
    written(tmp_path, lines[3:])
    after = np.bincount(added(known, "histogram", "city", both, rows_per_unit=3), minlength=2)
    moved = int(np.abs(before - after).sum())
    assert moved == 6 == planned(known, "histogram", both, column="city", rows_per_unit=3).mechanisms[0].sensitivity
    assert planned(known, "histogram", both[:1], column="city", rows_per_unit=3).mechanisms[0].sensitivity == 3
    disjoint = facts(tmp_path, key="user", blocks=MONTHS, disjoint=True)
    assert planned(disjoint, "histogram", both, column="city", rows_per_unit=3).mechanisms[0].sensitivity == 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


ENTRY = st.tuples(
    st.sampled_from("aaab"),
    st.sampled_from((*CITIES, *CITIES, "Agra")),
    st.integers(-20, 120),
    st.sampled_from(("2026-01", "2026-02", "2026-02", "2026-03")),
)
BOTH = ("2026-01", "2026-02")


def moved(folder, entries, others, *, neighbors, disjoint, delta):
    """(how far each statistic moves between two lists of entries, how far its noise expects it to)."""
    vectors = []
    known = facts(folder, key="user", blocks=MONTHS, neighbors=neighbors, disjoint=disjoint)
    for held in (entries, others):
        written(folder, [f"{user},{city},{age},{age},1,,{month}-05" for user, city, age, month in held])
        more = {"blocks": list(BOTH), "rows_per_unit": 2, "delta": delta}
        groups = np.bincount(added(known, "histogram", "city", **more), minlength=2)
        total = np.array([planned(known, "sum", column="amount", **more).grid.total(added(known, "sum", "amount", **more))])
        vectors.append((groups, total, np.array([len(added(known, "count", **more))])))
    norm = 2 if delta else 1
    for (statistic, column), before, after in zip((("histogram", "city"), ("sum", "amount"), ("count", None)), *vectors, strict=True):
        made = planned(known, statistic, **({} if column is None else {"column": column}), **more)
        yield float(np.linalg.norm((before - after).astype(float), norm)), made.mechanisms[0].sensitivity


@settings(max_examples=250)
@given(
    st.lists(ENTRY, max_size=9),
    st.lists(st.tuples(st.integers(0, 9), ENTRY), max_size=4),
    st.sampled_from(("whole unit", "one block of a unit")),
    st.sampled_from(("add_remove", "replace")),
    st.sampled_from((0, 1e-6)),
)
@example([*[("a", "Delhi", -9, BOTH[0])] * 2, *[("a", "Pune", 99, BOTH[1])] * 2], [], "one block of a unit", "add_remove", 0)
def test_between_neighbours_nothing_moves_further_than_its_noise_expects(folder, entries, come, what, neighbors, delta):
    """Neighbours of both promises: a unit with all its rows, and where units reach over blocks, its rows of one block alone."""

    def mine(entry):
        return entry[0] == "a" and (what == "whole unit" or entry[3] == "2026-01")

    rest = [e for e in entries if not mine(e)]
    if neighbors == "replace":  # other rows of one unit come, wherever they may stand; those of one block stay in it
        name, month = ("z", None) if what == "whole unit" else ("a", "2026-01")
        for place, (_, city, age, own) in come:
            rest.insert(place, (name, city, age, month or own))
    for far, expected in moved(folder, entries, rest, neighbors=neighbors, disjoint=None, delta=delta):
        assert far <= expected * (1 + 1e-12)
    if what == "whole unit":
        held = [e for e in entries if e[3] == "2026-01"]
        rest = [e for e in rest if e[3] == "2026-01"]  # each unit in one block only
        for far, expected in moved(folder, held, rest, neighbors=neighbors, disjoint=True, delta=delta):
            assert far <= expected * (1 + 1e-12)


# ------------------------------------------------------------------------------------------------ hostile files


CELLS = st.sampled_from(
    ["a", "b", "c", "", '"', '""', '"a"', '"a,b"', 'a"b', "7", "07", "-1e999", "nan", "1_0", "9" * 5_000, "x\r", "\0", "é", "\ud800"]
)
LINES = st.lists(st.lists(CELLS, min_size=1, max_size=4).map(",".join), max_size=12)


def counted(folder, lines, **options):
    raw = "\n".join(["user,group,n", *lines]).encode("utf-8", "surrogatepass")
    (folder / "t.csv").write_bytes(raw)
    columns = (Column(name="group", type="text", values=("a", "b", "c", "a,b")), Column(name="n", type="int", min=-5, max=20))
    known = facts(folder, key=options.pop("key", None), columns=columns)
    more = {"rows_per_unit": 2} if known.unit.key else {}
    groups = np.bincount(added(known, "histogram", "group", **more), minlength=4)
    numbers = added(known, "sum", "n", **more)
    return groups, sum(numbers), len(added(known, "count", **more))


@settings(max_examples=300)
@given(LINES, st.data())
def test_no_line_moves_an_answer_by_more_than_one_row(folder, lines, data):
    if not lines:
        return
    i = data.draw(st.integers(0, len(lines) - 1))
    other = data.draw(st.lists(CELLS, min_size=1, max_size=4).map(",".join))
    groups, total, count = counted(folder, lines)
    less = counted(folder, lines[:i] + lines[i + 1 :])
    assert np.abs(groups - less[0]).sum() <= 1
    assert abs(total - less[1]) <= 20
    assert count - less[2] in (0, 1)
    changed = counted(folder, [*lines[:i], other, *lines[i + 1 :]])
    assert np.abs(groups - changed[0]).sum() <= 2
    assert abs(total - changed[1]) <= 25
    assert abs(count - changed[2]) <= 1


@settings(max_examples=200)
@given(LINES)
def test_no_unit_moves_an_answer_by_more_than_its_rows(folder, lines):
    groups, total, count = counted(folder, lines, key="user")
    for user in ("a", "b", "7", '"', "\ud800"):
        rest = [line for line in lines if owner(line) != user]
        less = counted(folder, rest, key="user")
        assert np.abs(groups - less[0]).sum() <= 2
        assert abs(total - less[1]) <= 40
        assert 0 <= count - less[2] <= 2


def owner(line):
    """The unit of a line by the slow and plain rule: the quoted text, or what stands before the first comma."""
    cells = rows._cells(line.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape").removesuffix("\r"), ",")
    return None if cells is None else cells[0].encode("utf-8", "surrogateescape").decode("utf-8", "surrogatepass")


@given(
    st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=20),
    st.integers(1, 30),
    st.integers(1, 10),
    st.booleans(),
)
def test_lines_are_the_same_however_the_file_is_read(folder, lines, chunk, longest, ended):
    path = folder / "lines"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ended else b""))
    with pytest.MonkeyPatch.context() as patch, path.open("rb") as file:
        patch.setattr(rows, "_CHUNK", chunk)
        patch.setattr(rows, "LINE_MAX", longest)
        found = [line for batch in rows._lines(file) for line in batch]
    assert found == [line for line in lines if 0 < len(line) <= longest]


def test_an_open_quote_spoils_its_own_row_and_no_other(tmp_path):
    spoiled = [ROWS[0], 'a,"Delhi,30,1.5,true,2026-01-05,2026-01-05', *ROWS[1:]]
    assert len(added(facts(written(tmp_path, spoiled)), "count")) == 5
    quoted = [*ROWS, 'a,"Delhi",30,1.5,true,2026-01-05,"2026-01-05"', 'a,"De,""lhi",30,1.5,true,2026-01-05,']
    assert len(added(facts(written(tmp_path, quoted)), "count")) == 7
    assert len(added(facts(tmp_path), "count", where={"city": "Delhi"})) == 2


def test_endless_lines_and_cells_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "LINE_MAX", 1_000)
    lines = [*ROWS, f"a,{'x' * 2_000},1,1,1,,", *ROWS[:1]]
    assert len(added(facts(written(tmp_path, lines)), "count")) == 6


def test_windows_lines_and_a_byte_order_mark(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([HEADER, *ROWS, "", ""]).encode())
    assert len(added(facts(tmp_path), "count", where={"ts": {"min": "2026-01-01"}})) == 5
    (tmp_path / "t.tsv").write_text("\n".join([HEADER, *ROWS]).replace(",", "\t"))
    assert len(added(facts(tmp_path, source="t.tsv"), "count")) == 5


@pytest.mark.parametrize("cell", ["inf", "-inf", "1e999", "9" * 4_000, "9" * 9_000, "1e308", "-0.0", "nan", "", "0x10", "1,5", "½", "None"])
def test_no_cell_raises_or_warns(tmp_path, cell):
    known = facts(written(tmp_path, [f"a,{cell},{cell},{cell},{cell},{cell},{cell}"] if "," not in cell else [cell]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for statistic, options in (("sum", {"column": "age"}), ("mean", {"column": "amount"}), ("median", {"column": "amount"})):
            answered(known, statistic, **options)
        for column in ("city", "member"):
            answered(known, "histogram", column=column)
        answered(known, "histogram", column="amount", bins=9)
        answered(known, "count", where={"day": {"min": "2026-01-01"}, "ts": {"below": "2027-01-01"}, "age": 3})


def test_an_empty_file_is_answered_like_any_other(tmp_path):
    known = facts(written(tmp_path, []))
    for statistic, options in (("count", {}), ("sum", {"column": "age"}), ("mean", {"column": "age"}), ("histogram", {"column": "city"})):
        assert answered(known, statistic, **options).event == planned(known, statistic, **options).event
    assert 0 <= answered(known, "median", column="age").value["estimate"] <= 100


# ------------------------------------------------------------------------------------------------ Parquet


def table(**columns):
    return pa.table(columns)


def test_parquet_answers_like_csv(tmp_path):
    users = ["a", "a", "b", "c", None]
    moments = [datetime(2026, 1, i + 1, tzinfo=UTC) for i in range(5)]
    held = table(
        user=pa.array(users).dictionary_encode(),
        city=["Delhi", "Pune", "Pune", None, "Agra"],
        age=pa.array([30, 30, None, 17, 99], pa.uint64()),
        amount=[1.5, math.nan, -math.inf, 3.5, 4.5],
        member=[True, False, None, True, True],
        day=[m.date() for m in moments],
        ts=pa.array(moments, pa.timestamp("ns", "UTC")),
    )
    pq.write_table(held, tmp_path / "t.parquet")
    known = facts(tmp_path, source="t.parquet")
    assert len(added(known, "count")) == 5
    assert added(known, "sum", "age") == [30, 30, 17, 99]
    assert added(known, "sum", "amount") == [1.5, -10, 3.5, 4.5]
    assert added(known, "histogram", "city") == [0, 1, 1]
    assert len(added(known, "count", where={"day": {"min": "2026-01-04"}})) == 2
    assert len(added(facts(tmp_path, source="t.parquet", key="user"), "count", rows_per_unit=1)) == 3
    assert len(added(facts(tmp_path, source="t.parquet", blocks=Blocks(column="ts", every="day")), "count", blocks=["2026-01-02"])) == 1


def test_no_value_of_a_parquet_file_raises(tmp_path):
    bad = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"\xff\xfe")])
    held = table(
        user=bad,
        city=bad,
        age=pa.array([Decimal("1.0"), Decimal("2.5")]),
        amount=pa.array(np.array([1.5, np.inf], np.float16)),
        member=pa.array([2, 0]),
        day=pa.array([2**30, -(2**30)], pa.date32()),
        ts=pa.array([2**62, -(2**62)], pa.timestamp("ns")),
    )
    pq.write_table(held, tmp_path / "t.parquet")
    known = facts(tmp_path, source="t.parquet")
    assert added(known, "sum", "age") == [1]
    assert added(known, "sum", "amount") == [1.5, 50]
    assert added(known, "histogram", "city") == []
    assert len(added(known, "count", where={"member": False})) == 1
    assert added(known, "count", where={"day": {"min": "1000-01-01"}}) == []
    assert len(added(facts(tmp_path, source="t.parquet", key="user"), "count", rows_per_unit=1)) == 2
    wide = table(**{name: held[name] for name in held.column_names if name != "ts"}, ts=pa.array([2**62, None], pa.timestamp("ms")))
    pq.write_table(wide, tmp_path / "t.parquet")
    assert added(known, "count", where={"ts": {"min": "1000-01-01"}}) == []


def test_a_parquet_column_of_another_kind_is_refused_when_it_is_opened(tmp_path):
    pq.write_table(table(city=[["a"]]), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="of the Parquet type list"):
        measure.open(facts(tmp_path, source="t.parquet", columns=COLUMNS[:1]))
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="not a Parquet file"):
        measure.open(facts(tmp_path, source="t.parquet", columns=COLUMNS[:1]))


def test_parquet_is_an_extra(tmp_path, monkeypatch):
    pq.write_table(table(city=["a"]), tmp_path / "t.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="parquet"):
        measure.open(facts(tmp_path, source="t.parquet", columns=COLUMNS[:1]))


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("statistic", "options", "told"),
    [
        ("max", {}, "statistic='max' is not allowed: expected one of count, sum, mean, median, quantiles, histogram"),
        ("count", {"epsilom": 1}, "Unknown key 'epsilom'"),
        ("count", {"column": "age"}, "column='age' is not allowed for the statistic 'count'"),
        ("count", {"epsilon": 0}, "epsilon=0.0 is not allowed"),
        ("count", {"epsilon": "1"}, "epsilon='1' is not allowed: expected a number"),
        ("count", {"epsilon": None}, "epsilon or accuracy, one of the two"),
        ("count", {"accuracy": 5, "epsilon": 1.0}, "epsilon or accuracy, one of the two"),
        ("count", {"delta": 1}, "delta=1.0 is not allowed"),
        ("count", {"confidence": 1}, "confidence=1.0 is not allowed"),
        ("count", {"epsilon": 1e-300}, "epsilon=1e-300 is not allowed: expected at least 1e-12"),
        ("sum", {}, "needs 'column'"),
        ("sum", {"column": "agee"}, "Unknown column of t 'agee'"),
        ("sum", {"column": "city"}, "declared as text: expected int or float"),
        ("mean", {"column": "age", "accuracy": 3, "epsilon": None}, "accuracy=3.0 is not allowed for the statistic 'mean'"),
        ("median", {"column": "age", "delta": 1e-6}, "delta=1e-06 is not allowed: expected 0"),
        ("quantiles", {"column": "age", "quantiles": [0.5, 0.5]}, "strictly increasing"),
        ("histogram", {"column": "age"}, "groups of 'age' are not known"),
        ("histogram", {"column": "age", "bins": 0}, "bins=0 is not allowed"),
        ("histogram", {"column": "age", "bins": 2, "values": [1]}, "bins or values"),
        ("histogram", {"column": "city", "values": ["a", "a"]}, "each once"),
        ("histogram", {"column": "city", "values": [1]}, "values=1 is not allowed: expected a text. Put it in quotes."),
        ("count", {"where": {"user": "a"}}, "Unknown column of t 'user'"),
        ("count", {"where": {"age": "x"}}, "where.age='x' is not allowed: expected a whole number"),
        ("count", {"where": {"age": []}}, "empty list"),
        ("count", {"where": {"age": {}}}, "says nothing"),
        ("count", {"where": {"age": {"mim": 3}}}, "Unknown condition on age 'mim'"),
        ("count", {"where": {"city": {"min": "a"}}}, "range of 'city' is not possible"),
        ("count", {"where": {"day": "soon"}}, "expected a date such as"),
        ("count", {"where": {"age": None}}, "where.age=<NoneType> is not allowed"),
    ],
)
def test_wrong_options_are_one_sentence(tmp_path, statistic, options, told):
    with pytest.raises(InputError) as caught:
        planned(facts(tmp_path), statistic, **options)
    assert told in str(caught.value)


def test_datasets_it_cannot_protect_are_refused(tmp_path):
    for known, told in (
        (Facts(name="t", source="t.csv"), "is public"),
        (facts(tmp_path, key="user", through="users.id"), "through another table"),
        (facts(tmp_path, trust="local"), "trust='local' is not allowed"),
    ):
        with pytest.raises(InputError, match=told):
            planned(known, "count")


@pytest.mark.parametrize("source", ["none.csv", "t.xlsx", "duckdb:///a.db#t", "postgresql://x/y#t", "empty", "."])
def test_a_source_that_cannot_be_read_is_one_sentence(tmp_path, source):
    (tmp_path / "t.xlsx").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"The (source|folder) "):
        measure.open(facts(tmp_path, source=source))


def test_a_header_is_known_by_a_declared_name(tmp_path):
    """Where none is declared the first line may be a row, and one row of another width would rule all others out."""
    written(tmp_path, ROWS)
    with pytest.raises(InputError, match="No column of 't' is declared"):
        measure.open(facts(tmp_path, columns=()))
    pq.write_table(table(age=[1, 2]), tmp_path / "t.parquet")
    (tmp_path / "folder").mkdir()
    pq.write_table(table(age=[3]), tmp_path / "folder" / "1.parquet")
    assert [len(added(facts(tmp_path, source=s, columns=()), "count")) for s in ("t.parquet", "folder")] == [2, 1]
    assert len(added(facts(tmp_path, columns=(), key="user"), "count", rows_per_unit=1)) == 4


@pytest.mark.parametrize(("low", "high", "bins"), [(0, 100, 100), (0, 1, 10), (-1e308, 1, 7), (1e17, 1e17 + 16, 10_000), (0.1, 0.7, 3)])
def test_a_number_is_in_the_bin_whose_edges_hold_it(tmp_path, low, high, bins):
    known = facts(tmp_path, columns=(Column(name="x", type="float", min=low, max=high),))
    made = planned(known, "histogram", column="x", bins=bins)
    titles, read = list(measure._titles(made)), measure._group(made)
    assert all(math.isfinite(t["from"]) and t["from"] <= t["to"] for t in titles)
    assert (titles[0]["from"], titles[-1]["to"]) == (low, high)
    for title in titles[:200]:
        place = read(repr(title["from"]))
        assert titles[place]["from"] <= title["from"] < titles[place]["to"] or place == bins - 1
    assert read(repr(float(high))) == bins - 1


@pytest.mark.parametrize("source", ["t" * 300 + ".csv", "t" * 5_000])
def test_a_source_whose_name_is_too_long_is_one_sentence(tmp_path, source):
    with pytest.raises(InputError, match=r"could not be opened: File name too long"):
        measure.open(facts(tmp_path, source=source))


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_what_cannot_be_run_is_not_planned(tmp_path, delta):
    """Of two numbers each is wrong half as often, which no float says of this one: told when nothing is spent yet."""
    with pytest.raises(InputError, match=r"confidence=0\.9999999999999999 is not allowed: expected at most 0\.999999999999999"):
        planned(facts(tmp_path), "mean", column="age", confidence=0.9999999999999999, delta=delta)
    assert answered(facts(written(tmp_path)), "mean", column="age", confidence=0.999999999999999, delta=delta).accuracy.confidence < 1


def test_a_file_without_a_header_tells_nothing_of_its_first_row(tmp_path):
    written(tmp_path, ROWS[1:], header="secret,Delhi,44")
    with pytest.raises(InputError) as caught:
        measure.open(facts(tmp_path))
    assert "has no column 'city'" in str(caught.value)
    assert not any(cell in str(caught.value) for cell in ("secret", "Delhi", "44"))
    for raw in (b"", b"\n", b"\xff\xfe\n", b'"open\n'):
        (tmp_path / "t.csv").write_bytes(raw)
        with pytest.raises(InputError, match=r"header|no column"):
            measure.open(facts(tmp_path))
    written(tmp_path, header=HEADER.replace("user", "city"))
    with pytest.raises(InputError, match="more than one column 'city'"):
        measure.open(facts(tmp_path))


def test_a_file_is_closed_whatever_happens(tmp_path):
    known = facts(written(tmp_path))
    data = measure.open(known)
    measure.run(planned(known, "count"), data, Seeded(1))
    assert all(part.file.closed for part in data._parts)
    broken = measure.open(known)
    broken._parts[0].names.clear()
    with pytest.raises((ValueError, DitherError)):
        measure.run(planned(known, "sum", column="age"), broken, Seeded(1))
    assert broken._parts[0].file.closed


def test_unknown_columns_list_those_that_are_declared(tmp_path):
    with pytest.raises(UnknownNameError, match="age, amount, city, day, member, ts"):
        planned(facts(Path(tmp_path)), "sum", column="x")
