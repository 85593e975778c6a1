"""Linear queries: exact arithmetic, the sensitivity of what is measured, unbiased answers, the error that was promised."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither.core.errors import InputError
from dither.core.events import Gaussian, Laplace, NonPrivate
from dither.noise import linear
from dither.noise.linear import (
    LinearQueries,
    best_strategy,
    error_floor,
    haar_strategy,
    hierarchical_strategy,
    identity_strategy,
    optimised_strategy,
    prefix_workload,
    range_workload,
    strategy_error,
)
from dither.noise.rng import UnsafeSeededRng
from dither.noise.sensitivity import Contribution

LAWS = ["laplace", "gaussian"]


def queries(law="gaussian", workload=None, multiplier=1.0, **more):
    return LinearQueries(workload=prefix_workload(4) if workload is None else workload, law=law, noise_multiplier=multiplier, **more)


# ------------------------------------------------------------------------------------------------ arithmetic and sensitivity


@given(st.data())
@settings(max_examples=60)
def test_the_product_is_exact_for_all_integers(data):
    rows, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    entries = st.integers(-(2**40), 2**40)
    matrix = [[data.draw(entries) for _ in range(columns)] for _ in range(rows)]
    matrix[0][0] = matrix[0][0] or 1
    cells = [data.draw(st.integers(-(2**62), 2**62)) for _ in range(columns)]
    made = linear._product(linear._limbs(np.array(matrix, np.float64)), np.array(cells))
    assert made == [sum(a * x for a, x in zip(row, cells, strict=True)) for row in matrix]


def test_the_product_is_exact_with_many_columns():
    rng = np.random.default_rng(1)
    matrix, cells = rng.integers(-(2**40), 2**40, (3, 5000)), rng.integers(-(2**62), 2**62, 5000)
    assert linear._product(linear._limbs(matrix.astype(np.float64)), cells) == [
        sum(a * x for a, x in zip(map(int, r), map(int, cells), strict=True)) for r in matrix
    ]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("matrix", [[[-1e6, 1e-3]], [[1e6, -1e-3]], [[-1.0, -3.0], [0.1, 0.0]], [[-1e150, 1e-150]], -np.eye(3)])
@pytest.mark.parametrize("multiplier", [1e-3, 1.0, 1e6])
def test_what_is_measured_fits_the_exact_product(monkeypatch, law, matrix, multiplier):
    """Entries of at most 2**40 units, of either sign: beyond that, sums of floats would be rounded."""
    monkeypatch.setattr(linear.samplers, f"rounded_{law}", lambda scale, size=None, rng=None: np.zeros(size, np.int64))
    made = queries(law, matrix, multiplier)
    steps = [[int(v) for v in row] for row in (made.measured / made.unit).tolist()]
    assert max(abs(v) for row in steps for v in row) <= 2**40
    cells = [2**62, -(2**61) - 12345, 2**53 + 1][: len(steps[0])]
    exact = [Fraction(sum(v * x for v, x in zip(row, cells, strict=True))) * Fraction(made.unit) for row in steps]
    assert made.measure(cells).value.tolist() == [float(e) for e in exact]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("multiplier", [1e-3, 1.0, 3e3, 1e9])
@pytest.mark.parametrize("contribution", [Contribution(), Contribution(rows_per_unit=3), Contribution(neighbors="replace")])
def test_the_noise_covers_every_neighbour_of_what_is_measured(law, multiplier, contribution):
    """Exactly, in rationals: no neighbour moves the measured integers by more than noise / noise_multiplier."""
    matrix = np.random.default_rng(3).normal(size=(5, 6))
    made = queries(law, matrix, multiplier, contribution=contribution)
    steps = [[Fraction(float(v)) for v in column] for column in (made.measured / made.unit).T]
    assert all(v.denominator == 1 for column in steps for v in column)
    zero = [Fraction(0)] * 5
    others = [zero] if contribution.neighbors == "add_remove" else [zero, *steps]
    scale = Fraction(made.noise_multiplier) * Fraction(made.sensitivity) / Fraction(made.unit)
    worst = Fraction(0)
    for one in steps:
        for other in others:
            moved = [contribution.rows * (a - b) for a, b in zip(one, other, strict=True)]
            size = sum(abs(m) for m in moved) if law == "laplace" else sum(m * m for m in moved)
            worst = max(worst, size if law == "laplace" else Fraction(math.isqrt(int(size))))
    assert scale >= Fraction(multiplier) * worst
    assert scale <= Fraction(multiplier) * (worst + 1) * (1 + Fraction(1, 10**12))  # tight


def test_the_sampler_is_given_the_scale_that_is_priced(monkeypatch):
    for law, name in zip(LAWS, ("rounded_laplace", "rounded_gaussian"), strict=True):
        given_scales = []
        monkeypatch.setattr(
            linear.samplers, name, lambda scale, size=None, rng=None, kept=given_scales: kept.append(scale) or np.zeros(size, np.int64)
        )
        made = queries(law, multiplier=1.5)
        answers = made.measure([3, 1, 4, 1]).value
        assert answers.tolist() == [3, 4, 8, 9]
        assert given_scales == [Fraction(3, 2) * Fraction(made.sensitivity) / Fraction(made.unit)]


def test_order_and_size_of_cells_change_nothing_but_their_sum(monkeypatch):
    monkeypatch.setattr(linear.samplers, "rounded_gaussian", lambda scale, size=None, rng=None: np.zeros(size, np.int64))
    made = queries(workload=np.ones((1, 3)))
    assert made.measure([2**60, 1, -(2**60)]).value == [1.0]
    assert made.measure([1, 2**60, -(2**60)]).value == [1.0]


# ------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("strategy", [None, identity_strategy(8), hierarchical_strategy(8), haar_strategy(8), "optimised"])
def test_answers_are_unbiased_with_the_stated_errors(law, strategy):
    """2 000 runs. False alarm: means beyond 6 sigmas or variances off by a third, below 1e-8. Power: variances ×4 or ÷4 are rejected."""
    workload = prefix_workload(8)
    chosen = optimised_strategy(workload, law) if isinstance(strategy, str) else strategy
    made = queries(law, workload, 2.0, strategy=chosen)
    histogram, rng = [5, 0, 3, 9, 1, 1, 0, 7], UnsafeSeededRng(7)
    answers = np.array([made.measure(histogram, rng).value for _ in range(2_000)])
    errors = made.standard_errors
    assert np.all(np.abs(answers.mean(axis=0) - np.cumsum(histogram)) < 6 * errors / math.sqrt(2_000))
    assert answers.var(axis=0) == pytest.approx(errors**2, rel=1 / 3)
    assert made.expected_squared_error == pytest.approx(float(np.sum(errors**2)))


@pytest.mark.parametrize("law", LAWS)
def test_errors_follow_from_the_strategy(law):
    workload = range_workload(8)
    for strategy in (identity_strategy(8), haar_strategy(8), -haar_strategy(8), hierarchical_strategy(8)):
        made = queries(law, workload, 3.0, strategy=strategy)
        assert made.expected_squared_error == pytest.approx(9 * strategy_error(workload, strategy, law), rel=1e-9)


def test_halved_noise_would_show(monkeypatch):
    made = queries("gaussian", np.eye(200), 1.0)
    draw = linear.samplers.rounded_gaussian
    monkeypatch.setattr(linear.samplers, "rounded_gaussian", lambda scale, size=None, rng=None: draw(scale / 2, size=size, rng=rng))
    halved = np.array([made.measure(np.zeros(200, int), UnsafeSeededRng(k)).value for k in range(20)])
    assert not np.isclose(halved.std(), 1.0, rtol=0.1)
    monkeypatch.undo()
    whole = np.array([made.measure(np.zeros(200, int), UnsafeSeededRng(k)).value for k in range(20)])
    assert np.isclose(whole.std(), 1.0, rtol=0.1)


def test_no_last_bit_betrays_the_histogram():
    made = queries("gaussian", np.eye(500), 1.0)
    for value in (0, 1):
        outputs = np.array([made.measure(np.full(500, value), UnsafeSeededRng(k)).value for k in range(5)])
        assert np.all(outputs / made.unit == np.rint(outputs / made.unit))
    assert made.unit > 2.0**-53


@pytest.mark.parametrize("law", LAWS)
def test_events_and_calibration(law):
    made = queries(law, multiplier=1.7)
    assert made.event == (Laplace(1.7) if law == "laplace" else Gaussian(1.7))
    assert made.measure([1, 2, 3, 4]).event == made.event
    assert made.measure([1, 2, 3, 4], UnsafeSeededRng(1)).event == NonPrivate()
    assert LinearQueries.calibrated(workload=[[1, 1]], epsilon=1, delta=1e-5).event.noise_multiplier == pytest.approx(3.73063, rel=1e-5)
    assert Fraction(LinearQueries.calibrated(workload=[[1, 1]], epsilon=3).event.noise_multiplier) * 3 >= 1


def test_matrices_cannot_be_changed_afterwards():
    workload = prefix_workload(3)
    made = queries(workload=workload)
    workload[:] = 0
    assert made.measured.max() == 1
    with pytest.raises(ValueError, match="read-only"):
        made.workload[0, 0] = 5


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "bad", [[], [[]], [1, 2], [[1, math.nan]], [[math.inf]], [["a"]], "ab", {}, [[0, 0]], [[1e200]], np.zeros((1, 1, 1)), [[1], [1, 2]]]
)
def test_bad_matrices_are_refused(bad):
    with pytest.raises(InputError, match="workload"):
        queries(workload=bad)
    with pytest.raises(InputError, match="strategy"):
        queries(workload=[[1.0]], strategy=bad)


@pytest.mark.parametrize(
    "bad", [{"law": "cauchy"}, {"multiplier": 0}, {"multiplier": math.nan}, {"contribution": 3}, {"strategy": np.eye(3)}]
)
def test_other_bad_arguments_are_refused(bad):
    with pytest.raises(InputError):
        queries(**bad)


@pytest.mark.parametrize("tiny", [5e-324, 1e-300, 9e-151])
def test_matrices_too_small_to_compute_with_are_refused(tiny):
    with pytest.raises(InputError, match="Use larger units"):
        queries(workload=[[tiny, 0.0]])
    kept = queries(workload=[[1e-150, tiny]])
    assert 1e-150 <= kept.sensitivity <= 1.0000001e-150


def test_a_strategy_that_does_not_span_the_workload_is_refused():
    with pytest.raises(InputError, match="cannot be put together"):
        queries(workload=np.eye(2), strategy=[[1.0, 1.0]])


@pytest.mark.parametrize("bad", [[1, 2, 3], [[1, 2, 3, 4]], 5, [1.0, 2, 3, 4], "abcd", None])
def test_bad_histograms_are_refused(bad):
    with pytest.raises(InputError, match="value"):
        queries().measure(bad)


def test_no_error_depends_on_a_count():
    answers = queries(workload=np.eye(4)).measure([2**80, -(2**80), 0, 2**63]).value
    assert np.all(np.isfinite(answers))
    assert answers[0] == pytest.approx(2.0**62)


# ------------------------------------------------------------------------------------------------ strategies


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 8, 13])
def test_strategies_span_everything(cells):
    for strategy in (identity_strategy(cells), hierarchical_strategy(cells), hierarchical_strategy(cells, 3), haar_strategy(cells)):
        assert strategy.shape[1] == cells
        assert np.linalg.matrix_rank(strategy) == cells


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("workload", [prefix_workload(32), range_workload(16)], ids=["prefix", "range"])
def test_the_best_strategy_is_no_worse_than_any_known_one(law, workload):
    cells = workload.shape[1]
    best = strategy_error(workload, best_strategy(workload, law), law)
    others = [identity_strategy(cells), workload, haar_strategy(cells), *(hierarchical_strategy(cells, b) for b in (2, 4, 8, 16))]
    assert all(best <= strategy_error(workload, other, law) for other in others)
    if law == "gaussian":
        assert error_floor(workload) <= best < 1.10 * error_floor(workload)


@pytest.mark.parametrize("law", LAWS)
def test_the_slope_of_the_optimiser_is_the_slope(law):
    gram = prefix_workload(7).T @ prefix_workload(7)
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(3, 7))
    _, slope = linear._error_and_slope(gram, phi, law)
    for i, j in ((0, 0), (1, 3), (2, 6)):
        bump = np.zeros_like(phi)
        bump[i, j] = 1e-6
        numeric = (linear._error_and_slope(gram, phi + bump, law)[0] - linear._error_and_slope(gram, phi - bump, law)[0]) / 2e-6
        assert slope[i, j] == pytest.approx(numeric, rel=1e-5)


@pytest.mark.parametrize("law", LAWS)
def test_optimised_strategies_have_unit_columns_and_are_repeatable(law):
    workload = prefix_workload(12)
    first, second = (optimised_strategy(workload, law, extra_rows=3) for _ in range(2))
    assert np.array_equal(first, second)
    norms = np.sum(np.abs(first), axis=0) if law == "laplace" else np.sqrt(np.sum(first**2, axis=0))
    assert norms == pytest.approx(np.ones(12))
    assert first.shape == (15, 12)


@pytest.mark.parametrize("bad", [0, -1, 2.5, None, 10**9])
def test_bad_sizes_are_refused(bad):
    for make in (prefix_workload, range_workload, identity_strategy, haar_strategy, hierarchical_strategy):
        with pytest.raises(InputError, match="cells"):
            make(bad)
