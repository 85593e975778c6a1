"""The noise that counters really add, against theory.

Each test compares sample variances or covariances of n = 40,000 independent coordinates with theory at 6 standard errors
(for a variance: 4.3 %). False alarm: at most 2e-9 for each of fewer than 200 comparisons, 4e-7 jointly; with the seeds fixed,
never. Power: noise at 2/3 or 3/2 of its scale has 0.44 or 2.25 of its variance, over 70 standard errors away: certain.
"""

import math

import numpy as np
import pytest

from dither.noise.rng import UnsafeSeededRng
from dither.noise.stream import MatrixCounter, TreeCounter, banded_coefficients, square_root_coefficients

pytestmark = pytest.mark.statistical
N = 40_000
ERROR = 6 * math.sqrt(2 / N)


def sample(counter, seed):
    values = np.tile(np.arange(1.0, counter.steps + 1)[:, None], (1, N))
    return counter.measure(values, UnsafeSeededRng(seed)).value - np.cumsum(values, axis=0)


@pytest.mark.parametrize("steps", [1, 5, 8])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_tree_noise(steps, noise):
    counter = TreeCounter(noise_multiplier=2.0, steps=steps, dimension=N, noise=noise)
    found = sample(counter, 11 + steps)
    theory = np.array([counter.noise_std(t) for t in range(1, steps + 1)])
    heavy = 1.0 if noise == "gaussian" else 2.0  # kurtosis of Laplace noise doubles the error of a sample variance
    assert np.var(found, axis=1) == pytest.approx(theory**2, rel=heavy * ERROR)
    assert np.all(np.abs(np.mean(found, axis=1)) <= 6 * theory / math.sqrt(N))
    for scale in (2 / 3, 3 / 2):
        assert not np.allclose(np.var(found * scale, axis=1), theory**2, rtol=2 * ERROR)


@pytest.mark.parametrize("coefficients", [square_root_coefficients(6), banded_coefficients(6, 2), (1.0, -0.5)])
def test_matrix_noise(coefficients):
    counter = MatrixCounter(noise_multiplier=1.5, steps=6, coefficients=coefficients, dimension=N)
    found = sample(counter, 7)
    column = np.zeros(6)
    column[: len(counter.coefficients)] = counter.coefficients
    toeplitz = np.array([[column[i - j] if i >= j else 0.0 for j in range(6)] for i in range(6)])
    linear = np.tril(np.ones((6, 6))) @ np.linalg.inv(toeplitz) * counter.noise_scale
    theory = linear @ linear.T
    slack = 6 * np.sqrt((np.outer(np.diag(theory), np.diag(theory)) + theory**2) / N)
    assert np.all(np.abs(found @ found.T / N - theory) <= slack)
    white = np.linalg.solve(linear, found)
    assert np.all(np.abs(white @ white.T / N - np.eye(6)) <= 6 * np.sqrt((1 + np.eye(6)) / N))


def test_tree_nodes_are_independent_of_each_other():
    """Covariance of all answers is that of independent nodes: rebuilt here from dyadic blocks by hand for 4 steps."""
    counter = TreeCounter(noise_multiplier=1.0, steps=4, dimension=N)
    found = sample(counter, 3) / counter.noise_scale
    third = 1 / 3
    linear = np.zeros((4, 7))  # noises of leaves 1, 2, their pair, leaves 3, 4, their pair, the root
    linear[0, 0] = 1
    linear[1, :3] = [third, third, 2 * third]
    linear[2] = linear[1]
    linear[2, 3] = 1
    share = 4 / 7
    linear[3] = [(1 - share) * third, (1 - share) * third, (1 - share) * 2 * third] * 2 + [share]
    theory = linear @ linear.T
    slack = 6 * np.sqrt((np.outer(np.diag(theory), np.diag(theory)) + theory**2) / N)
    assert np.all(np.abs(found @ found.T / N - theory) <= slack)


def test_discrete_laplace_tree():
    counter = TreeCounter(noise_multiplier=3.0, steps=1, noise="discrete_laplace")
    rng = UnsafeSeededRng(5)
    found = np.array([counter.open(rng).push(0) for _ in range(2000)])
    assert np.var(found) == pytest.approx(counter.noise_std(1) ** 2, rel=6 * math.sqrt(5 / 2000))


@pytest.mark.parametrize(
    "counter",
    [
        TreeCounter(noise_multiplier=2.0, steps=7, dimension=N),
        TreeCounter(noise_multiplier=2.0, steps=7, dimension=N, noise="laplace"),
        MatrixCounter(noise_multiplier=2.0, steps=7, coefficients=square_root_coefficients(7), dimension=N),
    ],
)
def test_intervals_hold(counter):
    """At 95 %: misses at most 5 % + 6 standard errors (0.65 %) at the worst step; at least 4.35 % where noise is Gaussian."""
    found = np.abs(sample(counter, 2))
    missed = np.max(np.mean(found > counter.interval(0.95).half_width, axis=1))
    error = 6 * math.sqrt(0.05 * 0.95 / N)
    assert missed <= 0.05 + error
    if getattr(counter, "noise", "gaussian") == "gaussian":
        assert missed >= 0.05 - error


def test_no_last_bit_betrays_the_step():
    """The leak test of floats: is any answer finer than the grid around 0 but not around 1? Here both are on one grid."""
    counter = MatrixCounter(noise_multiplier=1.0, steps=1, coefficients=(1.0,), dimension=N)
    fine = counter.grid_step * counter._unit
    for value in (0.0, 1.0):
        found = counter.measure(np.full((1, N), value), UnsafeSeededRng(4)).value
        assert np.all(np.mod(found, fine) == 0)
        assert np.mean(np.mod(found, 2 * fine) == 0) == pytest.approx(0.5, abs=6 * math.sqrt(0.25 / N))
    naive = np.random.default_rng(1).normal(size=N)
    shares = [np.mean(np.mod(value + naive, 2.0**-53) != 0) for value in (0.0, 1.0)]
    assert shares[0] > 0.2
    assert shares[1] == 0
