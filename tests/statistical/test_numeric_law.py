"""What the mechanisms of numbers add has the law that their event prices, by every path: one number, floats, integers, matrices.

Each test bins 10**6 draws (10**5 one by one, 250 000 of a matrix) into 32 cells of equal probability and takes χ² with 31
degrees of freedom. False alarm: threshold at p = 1e-9 for 13 mechanisms, below 2e-8 together. Power: a scale off by 2 %
(10 % one by one, 5 % of a matrix) has a noncentrality above 300, rejected with probability above 1 − 1e-9; halved, 2/3 and
3/2 scales above 10**4.
"""

import math

import numpy as np
import pytest
from scipy import stats

from dither.core.events import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from dither.noise.linear import LinearQueries
from dither.noise.numeric import DiscreteGaussianMechanism, DiscreteLaplaceMechanism, GaussianMechanism, LaplaceMechanism
from dither.noise.rng import UnsafeSeededRng

pytestmark = pytest.mark.statistical

COUNT, SINGLE, CELLS = 1_000_000, 100_000, 32
SENSITIVITY, MULTIPLIER = 3.0, 1.7
ALARM = stats.chi2.isf(1e-9, CELLS - 1)


def chi_square(noise, cdf):
    """χ² of the cells between the quantiles; ``cdf`` maps each draw to a uniform number."""
    seen = np.bincount(np.minimum((cdf(noise) * CELLS).astype(int), CELLS - 1), minlength=CELLS)
    return float(np.sum((seen - len(noise) / CELLS) ** 2) / (len(noise) / CELLS))


def continuous(event):
    """The law that the event states, for one unit of sensitivity ``SENSITIVITY``."""
    match event:
        case Laplace(multiplier):
            return lambda factor: stats.laplace(scale=factor * multiplier * SENSITIVITY).cdf
        case Gaussian(multiplier):
            return lambda factor: stats.norm(scale=factor * multiplier * SENSITIVITY).cdf
    raise AssertionError


def judge(noise, law, near=0.02):
    assert chi_square(noise, law(1.0)) < ALARM
    for wrong in (0.5, 2 / 3, 1 - near, 1 + near, 1.5):
        assert chi_square(noise, law(wrong)) > ALARM, wrong


@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
@pytest.mark.parametrize(
    "value", [np.full(COUNT, 0.1), np.full(COUNT, -7), np.full((1000, 1000), 1e5, np.float32)], ids=["float64", "int64", "float32"]
)
def test_arrays(kind, value):
    mechanism = kind(noise_multiplier=MULTIPLIER, sensitivity=SENSITIVITY)
    noise = (mechanism.measure(value, UnsafeSeededRng(11)).value - value).ravel()
    judge(noise, continuous(mechanism.event))


@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
@pytest.mark.parametrize("value", [0.1, -7])
def test_single_numbers(kind, value):
    mechanism, rng = kind(noise_multiplier=MULTIPLIER, sensitivity=SENSITIVITY), UnsafeSeededRng(12)
    noise = np.array([mechanism.measure(value, rng).value - value for _ in range(SINGLE)])
    judge(noise, continuous(mechanism.event), near=0.1)


@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
def test_whole_numbers_with_rounded_noise(kind):
    """Spread over its cell of width 1 again, rounded noise of a wide law is the continuous one to 1 part in 10**5."""
    rng = np.random.default_rng(3)
    law = continuous(kind(noise_multiplier=MULTIPLIER, sensitivity=SENSITIVITY).event)
    wide = kind(noise_multiplier=MULTIPLIER, sensitivity=1000 * SENSITIVITY)
    noise = (wide.measure_integers(np.zeros(COUNT, int), UnsafeSeededRng(13)).value + rng.uniform(-0.5, 0.5, COUNT)) / 1000
    judge(noise, law)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_linear_queries(law):
    queries = LinearQueries(workload=SENSITIVITY * np.eye(250), law=law, noise_multiplier=MULTIPLIER)
    rng = UnsafeSeededRng(14)
    noise = np.concatenate([queries.measure(np.zeros(250, int), rng).value for _ in range(1000)])
    judge(noise, continuous(queries.event), near=0.05)


@pytest.mark.parametrize(
    "mechanism", [DiscreteLaplaceMechanism(noise_scale=5.1, sensitivity=3), DiscreteGaussianMechanism(noise_std=5.1, sensitivity=3)]
)
def test_discrete_noise(mechanism):
    """Integers −20 … 20 and beyond: 42 degrees of freedom, same alarm and power."""
    noise = np.clip(mechanism.measure(np.zeros(COUNT, int), UnsafeSeededRng(15)).value, -21, 21) + 21

    def statistic(factor):
        k = np.arange(-400, 401)
        match mechanism.event:
            case DiscreteLaplace(scale):
                weights = np.exp(-np.abs(k) / (factor * scale))
            case DiscreteGaussian(std):
                weights = np.exp(-0.5 * (k / (factor * std)) ** 2)
        weights /= weights.sum()
        due = COUNT * np.concatenate([[weights[:380].sum()], weights[380:421], [weights[421:].sum()]])
        return float(np.sum((np.bincount(noise, minlength=43) - due) ** 2 / due))

    alarm = stats.chi2.isf(1e-9, 42)
    assert statistic(1.0) < alarm
    for wrong in (0.5, 2 / 3, 0.98, 1.02, 1.5):
        assert statistic(wrong) > alarm, wrong


@pytest.mark.parametrize("kind", [LaplaceMechanism, GaussianMechanism])
def test_neighbours_are_as_close_as_the_event_says_and_no_closer(kind):
    """δ at ε = 1/noise_multiplier/2 on neighbours at the full sensitivity, from 10**6 draws each.

    False alarm: 6 standard errors, below 2e-9. Power: with the noise halved δ is more than 50 standard errors away.
    """
    mechanism = kind(noise_multiplier=MULTIPLIER, sensitivity=SENSITIVITY)
    epsilon = 0.5 / MULTIPLIER
    edge = SENSITIVITY / 2 - (epsilon * MULTIPLIER * SENSITIVITY / 2 if kind is LaplaceMechanism else epsilon * MULTIPLIER**2 * SENSITIVITY)

    def delta(factor):
        run = kind(noise_multiplier=MULTIPLIER * factor, sensitivity=SENSITIVITY)
        low, high = (
            np.mean(run.measure(np.full(COUNT, v), UnsafeSeededRng(16 + k)).value <= edge) for k, v in enumerate((0.0, SENSITIVITY))
        )
        return low - math.exp(epsilon) * high

    law = continuous(mechanism.event)(1.0)
    expected = law(edge) - math.exp(epsilon) * law(edge - SENSITIVITY)
    error = math.sqrt((1 + math.exp(2 * epsilon)) / 4 / COUNT)
    assert abs(delta(1.0) - expected) < 6 * error
    assert abs(delta(0.5) - expected) > 50 * error
