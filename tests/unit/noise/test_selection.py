"""Selection and quantiles: arguments, edge cases, events."""

import array
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from dither.core.errors import DitherError, InputError, UnknownNameError
from dither.core.events import ExponentialMechanism, NonPrivate, PureDp, Repeat
from dither.core.units import Neighbors
from dither.noise._whole import checked_sensitivity
from dither.noise.quantiles import Quantile, Quantiles, _cells
from dither.noise.rng import SecureRng, UnsafeSeededRng
from dither.noise.selection import ExponentialSelection, PermuteAndFlip, ReportNoisyMax, TopK, held_scores
from dither.noise.threshold import AboveThreshold

ONE_OF = [
    ExponentialSelection(epsilon=1.0),
    PermuteAndFlip(epsilon=1.0),
    ReportNoisyMax(epsilon=1.0),
    ReportNoisyMax(epsilon=1.0, noise="exponential"),
    ReportNoisyMax(epsilon=1.0, noise="laplace"),
]
BAD_NUMBERS = [math.nan, math.inf, -math.inf, -1.0, 0.0, 5e-324, 1e-310, 1e308, "1", None, True, 1 + 2j, [1.0], 10**400]


def test_events():
    assert ExponentialSelection(epsilon=0.5).event == ExponentialMechanism(0.5)
    assert PermuteAndFlip(epsilon=0.5).event == PureDp(0.5)
    assert ReportNoisyMax(epsilon=0.5).event == ExponentialMechanism(0.5)
    assert ReportNoisyMax(epsilon=0.5, noise="exponential").event == PureDp(0.5)
    assert ReportNoisyMax(epsilon=0.5, noise="laplace").event == PureDp(0.5)
    assert TopK(epsilon=0.5, count=4).event == Repeat(ExponentialMechanism(0.125), 4)
    assert TopK(epsilon=0.5, count=1).event == ExponentialMechanism(0.5)
    assert Quantile(quantile=0.5, lower=0, upper=1, epsilon=0.5).event == ExponentialMechanism(0.5)
    three = Quantiles(quantiles=(0.1, 0.5, 0.9), lower=0, upper=1, epsilon=0.5)
    assert (three.levels, three.event) == (2, Repeat(ExponentialMechanism(0.25), 2))
    assert Quantiles(quantiles=[0.5], lower=0, upper=1, epsilon=0.5).event == ExponentialMechanism(0.5)


@pytest.mark.parametrize("count", [3, 7, 10, 49])
def test_shares_never_exceed_the_whole(count):
    top = TopK(epsilon=0.1, count=count)
    assert Fraction(top.event.event.epsilon) * count <= Fraction(0.1)
    many = Quantiles(quantiles=tuple((i + 1) / (count + 1) for i in range(count)), lower=0, upper=1, epsilon=0.1)
    assert Fraction(many.epsilon_each) * many.levels <= Fraction(0.1)
    assert 2 ** (many.levels - 1) <= count < 2**many.levels


@pytest.mark.parametrize("mechanism", [*ONE_OF, TopK(epsilon=1.0, count=1)], ids=repr)
def test_a_predictable_source_is_not_private(mechanism):
    assert mechanism.measure([1.0, 2.0], UnsafeSeededRng(1)).event == NonPrivate()
    assert mechanism.measure([1.0, 2.0], SecureRng()).event == mechanism.event
    assert mechanism.measure([1.0, 2.0]).event == mechanism.event


@pytest.mark.parametrize("kind", [ExponentialSelection, PermuteAndFlip, ReportNoisyMax, TopK])
@pytest.mark.parametrize("name", ["epsilon", "sensitivity"])
@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
def test_bad_numbers_are_refused(kind, name, value):
    arguments = {"epsilon": 1.0, "sensitivity": 1.0} | ({"count": 2} if kind is TopK else {}) | {name: value}
    with pytest.raises(InputError, match=name):
        kind(**arguments)


@pytest.mark.parametrize("kind", [ExponentialSelection, PermuteAndFlip, ReportNoisyMax])
def test_other_bad_arguments_are_refused(kind):
    with pytest.raises(InputError, match="monotone"):
        kind(epsilon=1.0, monotone=1)
    with pytest.raises(InputError, match="epsilon"):
        kind(epsilon=1001)
    with pytest.raises(InputError, match="confidence"):
        kind(epsilon=1.0).interval(1.0, candidates=3)
    with pytest.raises(InputError, match="candidates"):
        kind(epsilon=1.0).interval(0.9, candidates=0)
    with pytest.raises(InputError, match="rng"):
        kind(epsilon=1.0).measure([1.0], rng=7)


def test_names_and_counts_are_checked():
    with pytest.raises(UnknownNameError, match="gumbel"):
        ReportNoisyMax(epsilon=1.0, noise="cauchy")
    for count in (0, -1, 1.5, True, "3", 10**13):
        with pytest.raises(InputError, match="count"):
            TopK(epsilon=1.0, count=count)
    with pytest.raises(InputError, match="count=3"):
        TopK(epsilon=1.0, count=3).measure([1.0, 2.0])
    with pytest.raises(InputError, match="epsilon"):
        TopK(epsilon=1e-8, count=1000)


@pytest.mark.parametrize(
    "scores",
    [[], (), np.zeros(0),
     np.zeros((2, 2)), np.zeros(2, complex), np.zeros(2, np.longdouble), ["a"], [None], [[1.0]], "12", 5.0, None, {1: 2},
     np.array(["a"]), np.array([1, None]), np.ma.array([1.0, 2.0], mask=[0, 1]), [1 + 0j], [np.longdouble(1)]],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("mechanism", ONE_OF, ids=repr)
def test_what_is_not_scores_is_refused(mechanism, scores):
    with pytest.raises(DitherError) as caught:
        mechanism.measure(scores)
    assert "0.0" not in str(caught.value)


def test_errors_never_depend_on_values():
    """Any value of an allowed type is accepted, whatever it holds, and no warning betrays it."""
    nasty = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7e308, 10**400, -(10**400), 2**63, -(2**63), np.int8(3), np.float16(2), True]
    for value in nasty:
        for mechanism in [*ONE_OF, TopK(epsilon=1.0, count=2)]:
            mechanism.measure([0.0, value])
            mechanism.measure([value, value])
    for kind in (np.int8, np.int64, np.uint64, np.uint8):
        limits = np.array([np.iinfo(kind).min, np.iinfo(kind).max, 1], dtype=kind)
        assert np.abs(held_scores(limits, 1.0)).max() <= 2.0**53
    signalling = np.array([0x7FF0000000000001, 0x7FF8000000000000], np.uint64).view(np.float64)
    assert (held_scores(signalling, 1.0) == -(2.0**53)).all()


def test_not_a_number_is_the_lowest_score():
    for mechanism in [*ONE_OF, TopK(epsilon=1.0, count=1)]:
        for low in (math.nan, -math.inf):
            got = mechanism.measure([low, 0.0, low]).value
            assert got in (1, (1,))
        assert mechanism.measure([0.0, math.inf]).value in (1, (1,))


def test_the_input_is_left_alone():
    scores = np.array([math.nan, 1.0, 2.0])
    kept = scores.copy()
    for mechanism in [*ONE_OF, TopK(epsilon=1.0, count=2)]:
        mechanism.measure(scores)
    np.testing.assert_array_equal(scores, kept)


def test_integers_beyond_floats_stay_within_their_sensitivity():
    """2^53 and 2^53 + 1 would both be 2^53 as floats, but 2^53 + 1 and 2^53 + 2 would move apart by 2."""
    one, two = np.array([2**53 + 1, 0]), np.array([2**53 + 2, 0])
    assert abs(held_scores(one, 1.0)[0] - held_scores(two, 1.0)[0]) <= 1
    assert held_scores([2**53 + 1, 0.5], 1e6)[0] == held_scores([2**53 + 2, 0.5], 1e6)[0]
    assert checked_sensitivity(2**53 + 1) == 2.0**53 + 2
    assert checked_sensitivity(Fraction(1, 3)) >= Fraction(1, 3)
    for mechanism in (ExponentialSelection, PermuteAndFlip, ReportNoisyMax, AboveThreshold):
        assert mechanism(epsilon=1.0, sensitivity=np.int64(2**53 + 1)).sensitivity == 2.0**53 + 2


def test_no_value_is_betrayed_by_a_warning_or_a_floating_point_error():
    """Signalling NaN, numbers that underflow: also where the caller has numpy raise on all of these."""
    signalling = [np.array([bits], word).view(kind) for bits, word, kind in (
        (0x7C01, np.uint16, np.float16), (0x7F800001, np.uint32, np.float32), (0x7FF0000000000001, np.uint64, np.float64))]  # fmt: skip
    tiny = [np.array([5e-324, 0.0, -5e-324]), np.array([1e-310, 1.0, -1e308])]
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        for values in [*signalling, *tiny, *(list(v) for v in signalling), *(list(v) for v in tiny)]:
            for mechanism in [*ONE_OF, TopK(epsilon=0.1, count=1), ReportNoisyMax(epsilon=1.0, sensitivity=1e100, noise="laplace"),
                              AboveThreshold(epsilon=1.0), AboveThreshold(epsilon=1.0, sensitivity=1e100)]:  # fmt: skip
                mechanism.measure(values)
            for make in (one, several):
                make().measure(values)
                make(lower=-1e288, upper=1e288).measure(values)
                make(lower=0.0, upper=1e-280).measure(values)
            one(quantile=5e-324, epsilon=0.1).measure(values)


def test_one_candidate_and_ties():
    for mechanism in ONE_OF:
        assert mechanism.measure([-7.0]).value == 0
        assert mechanism.interval(0.99, candidates=1).half_width == 0
    drawn = {m.measure([3.0, 3.0, 3.0], UnsafeSeededRng(s)).value for m in ONE_OF for s in range(40)}
    assert drawn == {0, 1, 2}


def test_all_in_order_when_far_apart():
    scores = [5e15, -3e12, 7.0, 4e15, 0.0, -1e9]
    want = (0, 3, 2, 4, 5, 1)
    assert TopK(epsilon=1000.0, count=6).measure(scores).value == want
    assert TopK(epsilon=1000.0, count=3).measure(np.array(scores)).value == want[:3]


def test_clusters_far_above_the_cut_are_ranked_exactly():
    """The cut lies 2^53 below: floats lose the scores of the leaders, integers do not."""
    scores = [2.0**53 - i * 40 for i in range(20)] + [0.0] * 5
    assert TopK(epsilon=20_000 / 25, count=20).measure(scores[::-1]).value == tuple(range(24, 4, -1))


@pytest.mark.parametrize("mechanism", [*ONE_OF, TopK(epsilon=2.0, count=2)], ids=repr)
def test_intervals_hold(mechanism):
    scores = np.array([0.0, -1.0, -2.0, -3.0, -5.0, -8.0, -13.0, -21.0])
    best = np.sort(scores)[::-1][1 if isinstance(mechanism, TopK) else 0]
    width = mechanism.interval(0.9, candidates=scores.size).half_width
    runs = 400
    picked = [mechanism.measure(scores, UnsafeSeededRng(s)).value for s in range(runs)]
    misses = sum(best - scores[np.ravel(p)].min() > width for p in picked)
    assert misses <= 0.1 * runs
    assert width < mechanism.interval(0.99, candidates=scores.size).half_width


def test_monotone_halves_the_noise():
    general, monotone = (ExponentialSelection(epsilon=1.0, monotone=m).interval(0.9, candidates=10).half_width for m in (False, True))
    assert general == pytest.approx(2 * monotone)


# ------------------------------------------------------------------------------------------------ quantiles


def one(**change):
    return Quantile(**({"quantile": 0.5, "lower": 0.0, "upper": 10.0, "epsilon": 1.0} | change))


def several(**change):
    return Quantiles(**({"quantiles": (0.25, 0.75), "lower": 0.0, "upper": 10.0, "epsilon": 1.0} | change))


@pytest.mark.parametrize("make", [one, several])
@pytest.mark.parametrize(
    "change",
    [{"lower": v} for v in (math.nan, -math.inf, 10.0, 11.0, "0", None, 1e300)]
    + [{"upper": v} for v in (math.nan, math.inf, 0.0, -1.0, True, 1e-300)]
    + [{"epsilon": v} for v in BAD_NUMBERS]
    + [{"cells": v} for v in (0, -1, 2.0, True, 2**31)]
    + [{"neighbors": v} for v in ("bounded", None, 3)],
    ids=repr,
)
def test_bad_quantile_arguments_are_refused(make, change):
    with pytest.raises(InputError):
        make(**change)


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.1, "0.5", None, True])
def test_bad_quantiles_are_refused(value):
    with pytest.raises(InputError, match="quantile"):
        one(quantile=value)
    with pytest.raises(InputError, match="quantile"):
        several(quantiles=(0.5, value))


@pytest.mark.parametrize("value", [(), [], 0.5, (0.5, 0.5), (0.7, 0.3), None, "ab"])
def test_quantiles_must_increase(value):
    with pytest.raises(InputError, match="quantiles"):
        several(quantiles=value)


@pytest.mark.parametrize("make", [one, several])
@pytest.mark.parametrize(
    "rows",
    [np.zeros((2, 2)), ["a"], np.zeros(2, complex), None, [[1.0]], 3.0, "12", {1, 2}, range(3), array.array("d", [1.0]), [1j],
     [np.longdouble(1)], np.zeros(2, np.longdouble), np.array([None]), np.ma.array([1.0, 2.0], mask=[0, 1])],
    ids=repr,
)  # fmt: skip
def test_what_is_not_rows_is_refused(make, rows):
    with pytest.raises(InputError):
        make().measure(rows)


@pytest.mark.parametrize("make", [one, several])
def test_rows_of_any_value_are_taken(make):
    for rows in ([], np.zeros(0), [math.nan], [math.inf, -math.inf], [10**400, -1], np.array([np.nan, 1e308, -1e308]), [True, 2], [5e-324]):
        for value in np.ravel(make().measure(rows).value):
            assert 0.0 <= value <= 10.0
    extreme = make(lower=-1e288, upper=1e288, cells=1 << 30)
    assert np.abs(extreme.measure([math.nan, 0.0, math.inf, 1e300]).value).max() <= 1e288
    tiny = make(lower=0.0, upper=1e-280, cells=1 << 30)
    assert np.max(tiny.measure([0.0, 1e-281]).value) <= 1e-280


def test_not_a_number_is_the_lower_bound():
    sharp = one(epsilon=1000.0, cells=10)
    for rows in ([math.nan] * 9, np.full(9, np.nan), np.full(9, np.nan, np.float32), [-math.inf] * 9):
        assert sharp.measure(rows).value == 0.0
    assert sharp.measure([math.inf] * 9).value == 10.0


def test_ties_are_found():
    """All rows on one point: without points of their own, ties would have width 0 and never be drawn."""
    assert one(epsilon=5.0, cells=10).measure([7] * 50).value == 7.0
    assert several(epsilon=50.0, cells=10).measure([7] * 200).value == (7.0, 7.0)


def test_sharp_quantiles_are_the_quantiles():
    rows = np.arange(1001) / 100
    sharp = several(quantiles=tuple(i / 10 for i in range(11)), epsilon=1000.0, cells=1000)
    assert np.abs(np.array(sharp.measure(rows).value) - np.arange(11)).max() <= 0.5
    for quantile in (0.0, 0.1, 0.5, 1.0):
        assert abs(one(quantile=quantile, epsilon=1000.0, cells=1000).measure(rows).value - 10 * quantile) <= 0.05


@pytest.mark.parametrize("relation", list(Neighbors))
def test_answers_increase_and_stay_inside(relation):
    mechanism = several(quantiles=tuple(i / 20 for i in range(1, 20)), epsilon=0.1, neighbors=relation, cells=7)
    for seed in range(30):
        got = mechanism.measure([1.0, 9.0, 9.0], UnsafeSeededRng(seed))
        assert list(got.value) == sorted(got.value)
        assert min(got.value) >= 0.0
        assert max(got.value) <= 10.0
        assert got.event == NonPrivate()


def test_rank_intervals_hold():
    rows = np.sort((np.arange(500) * 7919 % 1000) / 100.0)
    for mechanism in (one(), one(quantile=0.9), one(neighbors="replace"), several(epsilon=5.0)):
        width = mechanism.interval(0.9).half_width
        wanted = np.ravel(getattr(mechanism, "quantiles", getattr(mechanism, "quantile", None))) * rows.size
        misses = 0
        for seed in range(200):
            got = np.ravel(mechanism.measure(rows, UnsafeSeededRng(seed)).value)
            step = 10 / mechanism.cells
            low, high = np.searchsorted(rows, got - step), np.searchsorted(rows, got + step)
            misses += bool((np.maximum(np.maximum(low - wanted, wanted - high), 0) > width).any())
        assert misses <= 20


def test_a_row_is_placed_by_itself_alone():
    """Position, company and vector width must not change where a row goes."""
    rows = np.array([0.1 * k for k in range(100)])
    together = _cells(rows, 0.0, 10.0, 12345)
    assert together.tolist() == [int(_cells([float(r)], 0.0, 10.0, 12345)[0]) for r in rows]
    assert _cells(rows[::-1], 0.0, 10.0, 12345)[::-1].tolist() == together.tolist()


@pytest.mark.parametrize("beside", [0.5, True, math.nan, math.inf, 10**400, np.float32(1), np.uint8(3), -(2**70)])
def test_a_row_of_another_type_moves_no_other_row(beside):
    """Whole numbers past 2^53, which a list that also holds a float may not hold elsewhere."""
    rows = [5 * 10**17, 2**61, 2**62 + 2**60, 10**18, -3]
    alone = _cells(rows, 0.0, 1e19, 1000)
    assert alone.tolist() == [50, 231, 576, 100, 0]
    assert _cells([*rows, beside], 0.0, 1e19, 1000)[:-1].tolist() == alone.tolist()
    assert _cells(np.array(rows[:3]), 0.0, 1e19, 1000).tolist() == alone.tolist()[:3]
