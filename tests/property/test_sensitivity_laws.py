"""Stated sensitivities against brute force: no neighbour moves an answer further, and some neighbour moves it that far."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.noise.gridsum import GridSum
from dither.noise.sensitivity import Contribution, bounded_sum, count, grid_sum, grouped_sums, histogram, linear_queries, mean, variance

SHAPES = [
    {},
    {"rows_per_unit": 2},
    {"rows_per_unit": 3, "groups_per_unit": 2},
    {"rows_per_unit": 3, "rows_per_group": 2},
    {"groups_per_unit": 2, "rows_per_group": 2},
    {"rows_per_unit": 3, "groups_per_unit": 2, "rows_per_group": 2},
    {"groups_per_unit": 2, "rows_per_group": 1},
    {"rows_per_unit": 5, "rows_per_group": 2},
]
NEIGHBORS = ["add_remove", "replace"]


def holdings(contribution, bins):
    """Everything one unit may hold: its number of rows in each group."""
    each = range(contribution.rows_in_group + 1)
    for held in itertools.product(each, repeat=bins):
        if sum(held) <= contribution.rows and sum(h > 0 for h in held) <= contribution.groups:
            yield held


def pairs(contribution, bins):
    held = list(holdings(contribution, bins))
    if contribution.neighbors == "add_remove":
        return [(h, (0,) * bins) for h in held]
    return list(itertools.product(held, held))


def largest(changes):
    """Exact largest L1, squared L2, L∞, L0 over all changes."""
    sizes = [(sum(map(abs, c)), sum(x * x for x in c), max(map(abs, c)), sum(x != 0 for x in c)) for c in changes]
    return tuple(max(column) for column in zip(*sizes, strict=True))


def agrees(result, worst, *, l0=True):
    assert result.l1 == worst[0]
    assert worst[1] <= Fraction(result.l2) ** 2 <= worst[1] * (1 + Fraction(1, 2**50))
    assert result.linf == worst[2]
    assert not l0 or result.l0 == worst[3]


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bins", [1, 2, 3, 4, 6])
def test_histograms(shape, neighbors, bins):
    contribution = Contribution(**shape, neighbors=neighbors)
    if bins == 6 and contribution.rows > 4:
        bins = 5  # six are too many to try them all
    changes = [[a - b for a, b in zip(x, y, strict=True)] for x, y in pairs(contribution, bins)]
    worst = largest(changes)
    stated = histogram(contribution, bins=bins)
    agrees(stated, worst)
    unlimited = histogram(contribution)
    assert unlimited.l1 >= worst[0]
    assert Fraction(unlimited.l2) ** 2 >= worst[1]
    assert unlimited.l0 >= worst[3]
    if bins >= 2 * contribution.groups:
        agrees(unlimited, worst)
    if bins >= contribution.groups:
        agrees(count(contribution), largest([[sum(c)] for c in changes]))


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("shape", [*SHAPES[:7], {"groups_per_unit": 3, "rows_per_group": 1}])
@pytest.mark.parametrize("bounds", [(0, 3), (-1, 3), (-3, 3), (1, 3), (-3, -1)])
def test_grouped_sums(shape, neighbors, bounds):
    """Six groups, enough for two units that share none; each group's sum is anywhere between rows × the bounds."""
    contribution = Contribution(**shape, neighbors=neighbors)
    bins = 6 if neighbors == "replace" and contribution.groups == 3 else 4
    low, high = bounds
    ends = {}
    for own, other in pairs(contribution, bins):
        key = tuple(sorted(zip(own, other, strict=True)))
        ends.setdefault(key, None)
    changes = []
    for key in ends:
        # the change of a group is extreme where own rows are all at one end and the other's all at the other
        worst_each = [max(abs(o * a - t * b) for a in (low, high) for b in (low, high)) for o, t in key]
        changes.append(worst_each)
    stated = grouped_sums(low, high, contribution)
    agrees(stated, largest(changes), l0=bins >= 2 * contribution.groups)


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("bounds", [(0, 3), (-1, 3), (-3, 3), (1, 3), (-3, -1), (0.1, 0.7)])
def test_sums(neighbors, rows, bounds):
    low, high = map(Fraction, bounds)
    for fixed in (False, True) if neighbors == "replace" else (False,):
        held = [c for k in ([rows] if fixed else range(rows + 1)) for c in itertools.product((low, (low + high) / 2, high), repeat=k)]
        others = held if neighbors == "replace" else [()]
        worst = max(abs(sum(a) - sum(b)) for a in held for b in others)
        stated = bounded_sum(*bounds, Contribution(rows_per_unit=rows, neighbors=neighbors, rows_fixed=fixed))
        assert worst <= Fraction(stated.l1) <= worst * (1 + Fraction(1, 2**51))


@pytest.mark.parametrize("moved", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_means_and_variances_of_a_fixed_number_of_rows(rows, moved):
    if moved > rows:
        return
    contribution = Contribution(rows_per_unit=moved, neighbors="replace", rows_fixed=True)
    points = [Fraction(0), Fraction(1), Fraction(2)]
    kept_all = list(itertools.combinations_with_replacement(points, rows - moved))
    units = list(itertools.combinations_with_replacement(points, moved))

    def moments(values):
        total = sum(values, Fraction(0))
        return total / rows, sum(v * v for v in values) / rows - (total / rows) ** 2

    worst_mean = worst_variance = Fraction(0)
    for kept in kept_all:
        found = [moments(kept + unit) for unit in units]
        worst_mean = max(worst_mean, max(f[0] for f in found) - min(f[0] for f in found))
        worst_variance = max(worst_variance, max(f[1] for f in found) - min(f[1] for f in found))
    stated_mean, stated_variance = (Fraction(s(0, 2, contribution, rows=rows).l1) for s in (mean, variance))
    assert worst_mean <= stated_mean <= worst_mean * (1 + Fraction(1, 2**51))
    assert worst_variance <= stated_variance <= worst_variance * (1 + Fraction(1, 2**51))


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("shape", SHAPES[:7])
def test_linear_queries(shape, neighbors):
    contribution = Contribution(**shape, neighbors=neighbors)
    generator = np.random.default_rng(5)
    for cells in (1, 2, 3):
        for _ in range(4):
            matrix = generator.integers(-4, 5, (3, cells))
            changes = [[int(v) for v in matrix @ np.subtract(x, y)] for x, y in pairs(contribution, cells)]
            worst, stated = largest(changes), linear_queries(matrix, contribution)
            assert stated.l1 >= worst[0]
            assert Fraction(stated.l2) ** 2 >= worst[1]
            assert stated.linf >= worst[2]
            if contribution.rows_in_group == contribution.rows:  # no cap on a cell: exact
                agrees(stated, worst, l0=False)


def test_norms_of_columns_are_never_rounded_down():
    generator = np.random.default_rng(6)
    for _ in range(60):
        matrix = generator.normal(size=(40, 1)) * 10.0 ** generator.integers(-3, 4, (40, 1))
        column, stated = [Fraction(float(v)) for v in matrix[:, 0]], linear_queries(matrix)
        assert sum(map(abs, column)) <= Fraction(stated.l1) <= sum(map(abs, column)) * (1 + Fraction(1, 2**44))
        assert sum(v * v for v in column) <= Fraction(stated.l2) ** 2 <= sum(v * v for v in column) * (1 + Fraction(1, 2**43))


def test_wide_workloads_are_bounded_without_comparing_all_columns():
    alternating = np.resize([1.0, -1.0], (1, 600))
    assert linear_queries(alternating, Contribution(neighbors="replace")).l1 == 2


def test_linear_queries_of_the_identity_are_histograms():
    for shape in SHAPES:
        contribution = Contribution(**shape)
        assert linear_queries(np.eye(8), contribution).l1 == histogram(contribution, bins=8).l1


finite = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(st.lists(finite, max_size=30), finite, st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.randoms(use_true_random=False))
def test_no_row_moves_a_grid_sum_further_than_stated(rows, more, lower, width, shuffler):
    grid = GridSum(lower=lower, upper=lower + width)
    total = grid.total(rows)
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    assert grid.total(shuffled) == total
    moved = abs(grid.total([*rows, more]) - total)
    assert moved <= grid_sum(grid).l1
    for k in range(min(len(rows), 3)):
        other = [*rows[:k], more, *rows[k + 1 :]]
        assert abs(grid.total(other) - total) <= grid_sum(grid, Contribution(neighbors="replace")).l1


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_the_stated_sensitivity_of_a_grid_sum_is_attained(lower, width):
    grid = GridSum(lower=lower, upper=lower + width)
    alone = max(abs(grid.total([v])) for v in (-math.inf, math.inf))
    assert alone == grid_sum(grid).l1
