"""The sensitivity calculator: its figures, its words, its refusals; and sums that keep their promise where numpy's do not."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dither.core.errors import InputError, SensitivityError, UnknownNameError
from dither.noise._rounding import exactly
from dither.noise._values import integers, numbers
from dither.noise.gridsum import GridSum
from dither.noise.sensitivity import (
    Contribution,
    Sensitivity,
    bounded_sum,
    count,
    distinct_units,
    grid_sum,
    grouped_sums,
    histogram,
    linear_queries,
    mean,
    mean_parts,
    sensitivity_of,
    variance,
    variance_parts,
)

REPLACE = Contribution(neighbors="replace")
FIXED = Contribution(neighbors="replace", rows_fixed=True)


def norms(result: Sensitivity):
    return result.l1, pytest.approx(result.l2), result.linf, result.l0


# ------------------------------------------------------------------------------------------------ contributions


def test_bounds_combine_to_the_tightest():
    assert Contribution().rows == 1
    both = Contribution(rows_per_unit=10, groups_per_unit=3, rows_per_group=2)
    assert (both.rows, both.groups, both.rows_in_group) == (6, 3, 2)
    few = Contribution(rows_per_unit=4, groups_per_unit=30, rows_per_group=9)
    assert (few.rows, few.groups, few.rows_in_group) == (4, 4, 4)


@pytest.mark.parametrize("known", [{"groups_per_unit": 3}, {"rows_per_group": 2}])
def test_unbounded_units_are_refused(known):
    with pytest.raises(SensitivityError, match="any number of rows"):
        Contribution(**known)


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, "3", True, 10**13])
@pytest.mark.parametrize("name", ["rows_per_unit", "groups_per_unit", "rows_per_group"])
def test_bad_bounds_of_units_are_refused(name, bad):
    with pytest.raises(InputError, match=name):
        Contribution(**{name: bad})


def test_other_bad_contributions():
    with pytest.raises(InputError, match="rows_fixed"):
        Contribution(rows_fixed=True)
    with pytest.raises(InputError, match="rows_fixed"):
        Contribution(neighbors="replace", rows_fixed=1)
    with pytest.raises(UnknownNameError):
        Contribution(neighbors="swap")
    with pytest.raises(InputError, match="rows_per_unit"):
        Contribution(groups_per_unit=10**9, rows_per_group=10**9)


# ------------------------------------------------------------------------------------------------ figures


def test_counts():
    assert norms(count()) == (1, 1, 1, 1)
    assert count(Contribution(rows_per_unit=7)).l2 == count(Contribution(rows_per_unit=7, neighbors="replace")).l1 == 7
    assert count(FIXED).l1 == 0
    assert "no secret" in count(FIXED).explanation
    assert distinct_units(Contribution(rows_per_unit=9)).l1 == 1


def test_histograms():
    assert norms(histogram()) == (1, 1, 1, 1)
    assert norms(histogram(REPLACE)) == (2, math.sqrt(2), 1, 2)
    assert norms(histogram(REPLACE, bins=1)) == (1, 1, 1, 1)
    spread = Contribution(rows_per_unit=5, groups_per_unit=4, rows_per_group=2)
    assert norms(histogram(spread)) == (5, 3, 2, 4)
    assert norms(histogram(spread, bins=2)) == (4, math.sqrt(8), 2, 2)


def test_sums():
    assert bounded_sum(-2, 5).l1 == 5
    assert bounded_sum(-7, 5).l2 == 7
    assert bounded_sum(1, 5, REPLACE).linf == 5  # a row may be missing, and then adds 0
    assert bounded_sum(1, 5, FIXED).linf == 4
    assert bounded_sum(-2, 5, REPLACE).l1 == 7
    assert bounded_sum(0.1, 0.3, FIXED).l1 >= Fraction(0.3) - Fraction(0.1)
    assert grid_sum(GridSum(lower=-1, upper=3, step=0.5), Contribution(rows_per_unit=4, neighbors="replace")).l1 == 32


def test_grouped_sums():
    assert norms(grouped_sums(0, 10, Contribution(groups_per_unit=4, rows_per_group=1))) == (40, 20, 10, 4)
    assert norms(grouped_sums(-3, 10, REPLACE)) == (20, math.sqrt(200), 13, 2)
    assert norms(grouped_sums(-10, 10, REPLACE)) == (20, 20, 20, 2)  # the same group, pulled both ways, is worst in L2


def test_means_and_variances():
    fixed = Contribution(rows_per_unit=2, neighbors="replace", rows_fixed=True)
    assert mean(0, 10, fixed, rows=100).l1 == pytest.approx(0.2)
    assert variance(0, 10, FIXED, rows=10).l1 == pytest.approx(9)
    assert variance(0, 2, fixed, rows=3).l1 == pytest.approx(8 / 9)
    assert mean(0, 10, fixed, rows=1).l1 == 10  # no more rows move than there are
    assert [p.l1 for p in mean_parts(100, 200, Contribution(rows_per_unit=2))] == [100, 2]
    assert [p.l1 for p in variance_parts(-3, 3, REPLACE)] == [9, 6, 1]


def test_linear_queries():
    triangle = [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    assert norms(linear_queries(triangle)) == (3, math.sqrt(3), 1, 3)
    assert linear_queries(triangle, REPLACE).l1 == 3  # a row that leaves, or 2 for one that moves
    assert linear_queries([[1, -1]], REPLACE).linf == 2
    assert linear_queries(triangle, Contribution(rows_per_unit=2)).l1 == 6
    assert linear_queries(triangle, Contribution(groups_per_unit=2, rows_per_group=1)).l1 == 5
    assert linear_queries([[3], [4]]).l2 == 5
    assert linear_queries([[3, 3], [0, 0]], Contribution(rows_per_unit=2, rows_per_group=1)).linf == 6
    third = linear_queries([[1 / 3]] * 3)
    assert Fraction(third.l1) >= 3 * Fraction(1 / 3)
    assert Fraction(third.l2) ** 2 >= 3 * Fraction(1 / 3) ** 2
    wide = linear_queries(np.ones((1, 600)), REPLACE)
    assert "upper bound" in wide.explanation


def test_long_columns_and_large_whole_numbers_are_rounded_up():
    """Sums of squares that float64 cannot hold, of one sign or the other, and thousands of roundings all in one direction."""
    for value in (2**24 + 1, 2**24 + 3, 2**25 - 1, 2**26 + 3, 0.1, 0.7, 1 / 3, 1.1):
        for column in (np.full((50_000, 2), float(value)), np.full((50_000, 2), float(-value))):
            column[0] = 0.0
            stated = linear_queries(column)
            assert Fraction(stated.l1) >= 49_999 * Fraction(value)
            assert Fraction(stated.l2) ** 2 >= 49_999 * Fraction(value) ** 2
            assert stated.l2 <= math.sqrt(49_999) * value * (1 + 1e-10)
    random = np.random.default_rng(9)
    for _ in range(200):
        pair = random.normal(size=(1, 2)) * 10.0 ** random.integers(-3, 3, (1, 2))
        one, other = (Fraction(v) for v in pair[0].tolist())
        stated = linear_queries(pair, REPLACE)
        assert min(Fraction(stated.linf), Fraction(stated.l1), Fraction(stated.l2)) >= max(abs(one - other), abs(one), abs(other))


@pytest.mark.parametrize("size", [1e-100, 1e-170, 1e-200, 1e-300, 5e-324, 1e150])
def test_norms_of_tiny_and_huge_columns_are_not_lost(size):
    """Squares of what is below 1e-162 are 0 as floats: an L2 norm made of them would ask for no noise at all."""
    for matrix in ([[size]], [[size], [size]], [[size, 0.0], [0.0, size / 2]]):
        column = [Fraction(row[0]) for row in matrix]
        for contribution in (Contribution(), Contribution(neighbors="replace"), Contribution(rows_per_unit=7, rows_per_group=2)):
            stated = linear_queries(matrix, contribution)
            assert Fraction(stated.l1) >= sum(column)
            assert Fraction(stated.l2) ** 2 >= sum(c * c for c in column)
            assert Fraction(stated.linf) >= max(column)
            assert stated.l2 <= stated.l1 * (1 + 1e-12) + 1e-322


def test_results_are_rounded_up():
    for rows in (2, 3, 5, 7, 1000):
        assert Fraction(histogram(Contribution(groups_per_unit=rows, rows_per_group=1)).l2) ** 2 >= rows
        assert Fraction(mean(0, 0.1, FIXED, rows=rows).l1) >= Fraction(0.1) / rows
    assert bounded_sum(0, 2**53 - 1, Contribution(rows_per_unit=3)).l1 >= 3 * (2**53 - 1)


@pytest.mark.parametrize(
    "result", [count(), histogram(REPLACE), bounded_sum(0, 5), grouped_sums(0, 5), linear_queries([[1]]), *variance_parts(0, 1)]
)
def test_every_answer_is_explained(result):
    assert len(result.explanation) > 30
    assert str(result).startswith(result.statistic)
    assert "L1" in str(result)


FIVE = {"rows_per_unit": 5, "rows_per_group": 2}
HELD = "As one unit holds up to 5 rows (5 groups, 2 rows in each, at most) and is"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (count(), "As one unit holds one row and is added or removed, the count moves by at most 1."),
        (count(FIXED), "holds exactly one row and is replaced, the count moves by at most 0: as many rows come as go"),
        (histogram(Contribution(**FIVE)), f"{HELD} added or removed, it fills 2 groups with 2 rows each and one with 1."),
        (histogram(Contribution(**FIVE, neighbors="replace")), "and one with 1; another unit may do so in other groups"),
        (histogram(), "it fills 1 groups with 1 rows each."),
        (bounded_sum(-2, 5, Contribution(**FIVE)), "Values are clamped to [-2, 5]. " + HELD),
        (bounded_sum(-2, 5, Contribution(**FIVE)), "its rows add up to at most 25 in size. It holds for exact sums only"),
        (bounded_sum(-2, 5, Contribution(**FIVE, neighbors="replace")), "add up to lies in an interval of width 35. It holds for exact"),
        (grid_sum(GridSum(lower=-1, upper=10, step=0.5)), "a whole number of steps from -2 to 20. As one unit holds one row"),
        (grouped_sums(-2, 5, Contribution(**FIVE, neighbors="replace")), "it moves 10 sums at most, one of them by at most 14."),
        (mean(0, 10, FIXED, rows=50), "1 of 50 values may each move by 10."),
        (variance(0, 10, FIXED, rows=50), "49 equal values at one end and 1 that move from there to the other end."),
        (variance_parts(0, 10)[0], "Squares about the midpoint lie in [0, 25]. As one unit holds one row"),
        (variance_parts(0, 10)[1], "clamped to [0, 10]. The midpoint 5 is taken off each. As one unit holds one row"),
        (linear_queries([[1, 2]], Contribution(**FIVE)), "by multiples of columns of the workload. An upper bound: by the triangle"),
        (linear_queries([[1, 2]]), "it moves the answers by multiples of columns of the workload."),
        (linear_queries(np.ones((1, 600)), REPLACE), "An upper bound: above 512 columns their differences are not compared."),
    ],
)
def test_the_explanation_says_what_was_computed(result, text):
    assert text in result.explanation
    assert str(result) == f"{result.statistic}: L1 {result.l1:g}, L2 {result.l2:g}, L∞ {result.linf:g}. {result.explanation}"


# ------------------------------------------------------------------------------------------------ refusals


def test_unbounded_values_are_refused():
    for ask in (
        lambda: bounded_sum(None, 5),
        lambda: mean(None, None, FIXED, rows=3),
        lambda: grouped_sums(0, None),
        lambda: mean_parts(None, 1),
    ):
        with pytest.raises(SensitivityError, match="unbounded values has no finite sensitivity"):
            ask()


@pytest.mark.parametrize("pair", [(1, 0), (math.nan, 1), (0, math.inf), (-math.inf, 0), ("0", 1), (True, 1)])
def test_bad_value_bounds_are_refused(pair):
    with pytest.raises(InputError, match=r"lower|upper"):
        bounded_sum(*pair)


@pytest.mark.parametrize("bound", [Fraction(1, 3), Fraction(2, 3), 2**53 + 1, 2**53 + 3, np.longdouble(1) / 3, np.int64(2**53 + 1)])
def test_bounds_that_no_float_holds_count_at_the_wider_of_themselves_and_their_float(bound):
    """Values may be clamped to either; 10**12 rows add up what one of them is off by."""
    exact, near = exactly(bound), Fraction(float(bound))
    many = Contribution(rows_per_unit=10**12)
    for low, high in ((0, bound), (-bound, 0)):
        assert Fraction(bounded_sum(low, high, many).l1) >= 10**12 * max(exact, near)
        assert Fraction(grouped_sums(low, high, many).l1) >= 10**12 * max(exact, near)
    assert Fraction(bounded_sum(-bound, bound, Contribution(neighbors="replace")).l1) >= 2 * max(exact, near)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: bounded_sum(0, 1e308, Contribution(rows_per_unit=10**12)),
        lambda: bounded_sum(-1e308, 1e308, Contribution(neighbors="replace")),
        lambda: grouped_sums(-1e308, 1e308, Contribution(rows_per_unit=10**12, neighbors="replace")),
        lambda: mean(-1e308, 1e308, FIXED, rows=3),
        lambda: variance(-1e200, 1e200, FIXED, rows=3),
        lambda: variance_parts(-1e308, 1e308),
    ],
)
def test_what_overflows_is_refused_by_the_house(ask):
    with pytest.raises(InputError, match="too large together"):
        ask()


@pytest.mark.parametrize("contribution", [Contribution(), REPLACE])
def test_ratios_are_refused_with_the_way_out(contribution):
    with pytest.raises(SensitivityError, match=r"mean_parts gives the noisy sum about the midpoint and the noisy count"):
        mean(0, 1, contribution, rows=10)
    with pytest.raises(SensitivityError, match="variance_parts"):
        variance(0, 1, contribution, rows=10)
    with pytest.raises(SensitivityError, match="rows="):
        mean(0, 1, FIXED)


@pytest.mark.parametrize(
    "statistic", ["max", "min", "range", "median", "quantile", "mode", "ratio", "product", "standard_deviation", "distinct_values"]
)
def test_what_has_no_sensitivity_is_refused_with_a_reason(statistic):
    with pytest.raises(SensitivityError, match=f"{statistic} has no sensitivity to calibrate noise to. [A-Z].*[.]"):
        sensitivity_of(statistic, lower=0, upper=1)


def test_statistics_by_name():
    assert sensitivity_of("count") == count()
    assert sensitivity_of("histogram", REPLACE, bins=1) == histogram(REPLACE, bins=1)
    assert sensitivity_of("sum", lower=0, upper=2).l1 == 2
    assert sensitivity_of("mean", FIXED, lower=0, upper=2, rows=4).l1 == 0.5
    assert sensitivity_of("variance", FIXED, lower=0, upper=2, rows=2).l1 == 1
    assert sensitivity_of("grouped_sums", lower=0, upper=2) == grouped_sums(0, 2)
    assert sensitivity_of("distinct_units").l1 == 1
    with pytest.raises(UnknownNameError, match="histogram"):
        sensitivity_of("sums")


@pytest.mark.parametrize("bad", [[[]], [1], [[math.nan]], "x", None, [[1], [1, 2]]])
def test_bad_workloads_are_refused(bad):
    with pytest.raises(InputError, match="workload"):
        linear_queries(bad)


# ------------------------------------------------------------------------------------------------ sums on the grid


def test_order_cannot_change_a_sum_on_the_grid_as_it_does_numpys():
    """Casacuberta et al. 2022, reordering: the same rows one by one, large first or small first, differ by more than any row is worth."""
    large, small = np.full(2**12, 2.0**12, np.float32), np.full(2**15, 1.5, np.float32)
    first, second = np.concatenate([large, small]), np.concatenate([small, large])
    naive = [float(np.add.accumulate(rows)[-1]) for rows in (first, second)]
    assert abs(naive[0] - naive[1]) > 2.0**12
    grid = GridSum(lower=0, upper=2.0**12)
    assert grid.total(first) == grid.total(second)
    assert grid.value(grid.total(first)) == 2.0**24 + 1.5 * 2**15


def test_one_row_cannot_add_more_than_its_bound_as_it_does_in_numpy():
    """Casacuberta et al. 2022, rounding: the last row is rounded up to more than its clamp allows."""
    upper = 2.0**43 + 1.5
    rows = np.full(1024, 2.0**43)
    naive = np.sum(np.append(rows, upper)) - np.sum(rows)
    assert naive > upper
    grid = GridSum(lower=0, upper=upper)
    moved = grid.total(np.append(rows, upper)) - grid.total(rows)
    assert moved == grid.per_row[1] <= grid_sum(grid).l1


def test_sums_do_not_wrap_as_numpys_do():
    """Casacuberta et al. 2022, overflow: one more row moves the wrapped sum by 3 · 2**62."""
    rows = np.array([2**62 - 1, 2**62 - 1, 1, 1])
    naive = [int(np.sum(rows[:k])) for k in (3, 4)]
    assert abs(naive[1] - naive[0]) > 2**63
    grid = GridSum(lower=0, upper=2**62 - 1024, step=1.0)
    assert grid.total(rows) == 2 * (2**62 - 1024) + 2
    assert grid.total(np.full(20, 2**62)) == 20 * (2**62 - 1024)
    assert grid.totals(np.full(20, 2**62), [0] * 19 + [1], count=3) == [19 * (2**62 - 1024), 2**62 - 1024, 0]
    full = GridSum(lower=-(2.0**62), upper=0, step=1.0)
    assert full.total(np.full(5, -(2**63))) == full.totals(np.full(5, -(2**63)), [0] * 5, count=1)[0] == -5 * 2**62


def test_infinities_and_nan_are_rows_like_any_other():
    """Casacuberta et al. 2022 (and every mean of a column with a NaN): in numpy one row decides the whole answer."""
    grid = GridSum(lower=-1, upper=10, step=0.5)
    assert grid.total([math.nan, math.inf, -math.inf, 3.3]) == 0 + 20 - 2 + 7
    assert GridSum(lower=2, upper=10, step=0.5).total([math.nan]) == 4
    assert grid.total([10**400, -(10**400), True]) == 20 - 2 + 2
    assert grid.total([]) == 0


def test_rows_are_cut_one_by_one():
    grid = GridSum(lower=-3, upper=100, step=0.25)
    values = np.random.default_rng(1).uniform(-10, 200, 1000)
    assert grid.total(values) == sum(grid.total([v]) for v in values)
    assert all(grid.per_row[0] <= grid.total([v]) <= grid.per_row[1] for v in values)
    assert abs(grid.value(grid.total(values)) - math.fsum(np.clip(values, -3, 100))) <= 1000 * 0.125
    assert grid.total(values.reshape(10, 100)) == grid.total(values)


def test_chunks_do_not_show(monkeypatch):
    grid = GridSum(lower=-(2.0**61), upper=2.0**61, step=1.0)
    rows = np.random.default_rng(2).integers(-(2**61), 2**61, 50)
    assert grid.total(rows) == sum(map(int, rows))
    assert grid.totals(rows, [0] * 50, count=1) == [sum(map(int, rows))]


def test_grouped_totals():
    grid = GridSum(lower=0, upper=2, step=0.5)
    assert grid.totals([1.0, 5.0, 0.4], [1, 1, 0], count=3) == [1, 6, 0]
    assert grid.totals([1.0, 1.0], [-1, 3], count=3) == [0, 0, 0]
    assert grid.totals([], [], count=2) == [0, 0]
    for groups in ([0], [0.0, 1.0], "ab"):
        with pytest.raises(InputError):
            grid.totals([1, 2], groups, count=3)


@pytest.mark.parametrize(
    "bad",
    [
        {"lower": 1, "upper": 1},
        {"lower": 1, "upper": 0},
        {"lower": math.nan, "upper": 0},
        {"lower": 0, "upper": math.inf},
        {"lower": 0, "upper": 1e300},
        {"lower": 0, "upper": 1, "step": 0.3},
        {"lower": 0, "upper": 1, "step": -0.5},
        {"lower": 0, "upper": 1, "step": 2.0**-80},
        {"lower": 0, "upper": 1, "step": 64.0},
        {"lower": "0", "upper": 1},
    ],
)
def test_bad_grids_are_refused(bad):
    with pytest.raises(InputError, match=r"lower|upper|step"):
        GridSum(**bad)


def test_the_default_step_is_fine_and_fits():
    for reach in (1e-200, 1e-3, 1.0, 100.0, 1e18, 1e200):
        grid = GridSum(lower=-reach, upper=reach / 2)
        assert 2**38 <= -grid.per_row[0] <= 2**40 + 1
        assert math.frexp(grid.step)[0] == 0.5


def test_values_keep_their_order_and_their_distance():
    """What makes private values into numbers moves no two of them apart."""
    wild = [-(10**30), -(2**63), -(2**62), -5, 0, 3, 2**62, 2**63, 10**30]
    made = [int(v) for v in integers(wild)[0]]
    assert made == sorted(made)
    assert all(b2 - b1 <= a2 - a1 for a1, a2, b1, b2 in zip(wild, wild[1:], made, made[1:], strict=False))
    mixed = numbers([*wild, 0.5])[0]
    assert mixed.tolist() == [*(float(max(-(2**53), min(2**53, v))) for v in wild), 0.5]
