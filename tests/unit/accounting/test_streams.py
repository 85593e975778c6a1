"""Stream sensitivity against a search of every pattern of participation."""

import itertools
import math

import numpy as np
import pytest

from dither import events as ev
from dither.accounting import rdp
from dither.accounting._streams import _tree_squared, stream_sensitivity
from dither.accounting.loss import loss


def patterns(steps, most, separation, start=0):
    yield ()
    if most:
        for first in range(start, steps):
            for rest in patterns(steps, most - 1, separation, first + separation):
                yield (first, *rest)


def tree_by_search(steps, most, separation):
    levels = (steps - 1).bit_length() + 1
    shared = [[levels - (s ^ t).bit_length() for t in range(steps)] for s in range(steps)]
    return max(sum(shared[s][t] for s in p for t in p) for p in patterns(steps, most, separation))


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 11, 13, 16])
def test_tree_is_never_below_and_mostly_equal(steps):
    for separation in range(1, steps + 1):
        for most in range(1, -(-steps // separation) + 1):
            if math.comb(steps - (most - 1) * (separation - 1), most) > 2_000:
                continue
            found, true = _tree_squared(steps, most, separation), tree_by_search(steps, most, separation)
            assert true <= found <= 1.04 * true
            if separation & (separation - 1) == 0 or most == 1:
                assert found == true


def test_one_pass_over_a_tree_touches_one_node_on_each_level():
    assert stream_sensitivity(ev.TreeGaussian(1.0, 2**15)) == 4.0
    assert stream_sensitivity(ev.TreeGaussian(1.0, 2**15 + 1)) ** 2 == pytest.approx(17)


def matrix_by_search(column, steps, most, separation):
    c = np.zeros((steps, steps))
    for j in range(steps):
        c[j : j + len(column), j] = column[: steps - j]
    gram = c.T @ c
    best = 0.0
    for p in patterns(steps, most, separation):
        inside = gram[np.ix_(p, p)]
        for signs in itertools.product([1, -1], repeat=max(len(p) - 1, 0)):
            x = np.array([1, *signs][: len(p)])
            best = max(best, float(x @ inside @ x))
    return math.sqrt(best)


@pytest.mark.parametrize("seed", range(60))
def test_toeplitz_against_search(seed):
    rng = np.random.Generator(np.random.PCG64(seed))
    steps = int(rng.integers(1, 10))
    separation = int(rng.integers(1, steps + 1))
    most = int(rng.integers(1, -(-steps // separation) + 1))
    column = rng.random(int(rng.integers(1, steps + 1))) + 0.01
    kind = seed % 4
    if kind in (0, 3):
        column = np.sort(column)[::-1].copy()
    if kind >= 2:
        column[1:] *= rng.choice([-1, 1], column.size - 1)
    found = stream_sensitivity(ev.MatrixGaussian(1.0, tuple(column), steps, most, separation))
    true = matrix_by_search(column, steps, most, separation)
    assert true * (1 - 1e-14) <= found <= 2 * true
    if kind == 0 or most == 1 or column.size <= separation:
        assert found == pytest.approx(true, rel=1e-11)


def test_orthogonal_columns_are_exact_and_earliest():
    assert stream_sensitivity(ev.MatrixGaussian(1.0, (1.0, 0.75), 10, 4, 2)) == 2.5
    assert stream_sensitivity(ev.MatrixGaussian(1.0, (3.0, 4.0), 4, 2, 3)) == pytest.approx(math.sqrt(25 + 9))
    assert stream_sensitivity(ev.MatrixGaussian(1.0, (1.0,), 10**7, 1, 1)) == 1.0


def test_long_streams():
    column = tuple((np.arange(1, 100_001) ** -0.5).tolist())
    every = stream_sensitivity(ev.MatrixGaussian(1.0, column, 10**7, 10**7, 1))
    assert every == pytest.approx(sum(column) * math.sqrt(10**7), rel=0.01)
    few = stream_sensitivity(ev.MatrixGaussian(1.0, column, 10**7, 100, 99_999))
    assert math.sqrt(100 * sum(c * c for c in column)) <= few < 1.01 * math.sqrt(100 * sum(c * c for c in column))
    wavy = tuple(c * (-1) ** i for i, c in enumerate(column))
    assert stream_sensitivity(ev.MatrixGaussian(1.0, wavy, 10**7, 100, 999)) > few * 0.9
    assert stream_sensitivity(ev.TreeGaussian(1.0, 10**7, 10**7, 1)) > stream_sensitivity(ev.TreeGaussian(1.0, 10**7, 2_048, 3))


@pytest.mark.parametrize("column", [(1e-200,) * 100, (1e-160, -1e-170), (1e-300,)])
def test_coefficients_too_small_to_square_are_not_taken_for_nothing(column):
    event = ev.MatrixGaussian(1.0, column, 100, 50, 1)
    assert stream_sensitivity(event) >= 50 * max(column)
    assert np.isfinite(rdp.curve(event, [2.0, 1e9])).all()
    assert loss(ev.Subsample(event, ev.Poisson(0.1))).delta(0.0).upper <= 1e-90


@pytest.mark.parametrize("seed", range(40))
def test_long_falling_columns_by_adding_them_up(seed):
    rng = np.random.Generator(np.random.PCG64(seed))
    steps = int(rng.integers(20, 400))
    separation = int(rng.integers(1, steps // 2))
    most = int(rng.integers(1, -(-steps // separation) + 1))
    column = np.sort(np.round(rng.random(int(rng.integers(1, steps + 1))), int(rng.integers(1, 4))) + 0.01)[::-1]
    total = np.zeros(steps)
    for start in range(0, most * separation, separation):
        total[start : start + len(column)] += column[: steps - start]
    found = stream_sensitivity(ev.MatrixGaussian(1.0, tuple(column), steps, most, separation))
    assert found == pytest.approx(math.sqrt(float(total @ total)), rel=1e-11)
    assert found >= math.sqrt(float(total @ total)) * (1 - 1e-15)
