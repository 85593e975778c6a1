"""The last bits of every float that a mechanism tells: what they show of the value is within what was paid for.

Outputs are sorted by sign and by their lowest set bit. For each such class and each order of the two neighbours, the inequality of
(ε, δ)-DP must hold at the ε and δ of the mechanism, up to eight standard deviations and 30 draws. False alarm: fewer than 40 cases × 2
orders × 1,000 classes, each below 1e-14 by Bernstein's inequality, so below 1e-9 jointly for fresh seeds (seeds are fixed). Power: numpy's
noise, added to the value as it is, fails by twenty standard deviations wherever the two values have unlike exponents (checked below).
"""

import math

import numpy as np
import pytest
from scipy import stats

from dither import noise
from dither.noise import linear, robust, samplers, stream
from dither.noise.rng import UnsafeSeededRng
from dither.noise.threshold import Found

pytestmark = pytest.mark.statistical
DRAWS = 20_000
TINY = 5e-324
PAIRS = {
    "0 and 1": (0.0, 1.0, 1.0),
    "-1 and 0": (-1.0, 0.0, 1.0),
    "-0 and 0.1": (-0.0, 0.1, 1.0),
    "thirds": (-1 / 3, 2 / 3, 1.0),
    "tenths": (0.1, 0.2, 0.25),
    "subnormals": (TINY, 2.0**-1030, 2.0**-800),
    "a subnormal and 1": (-TINY, 1.0, 1.0),
    "binades apart": (2.0**20 - 0.3, 2.0**20 + 0.7, 1.0),
    "beyond 2**53": (2.0**53 + 2, 2.0**53 + 8, 8.0),
    "huge": (1e280, math.nextafter(1e280, math.inf), 1e280 * 2.0**-50),
    "small beside huge noise": (1.5e200, -1.5e200, 1e201),
    "past the end": (1e300, 1.7e308, 1.0),
    "the end and infinity": (-math.inf, -(2.0**960), 1.0),
    "no number and 1": (math.nan, 1.0, 1.0),
}


@pytest.fixture(params=[DRAWS, pytest.param(100_000, marks=pytest.mark.slow)])
def draws(request):
    return request.param


def classes(outputs):
    """How many outputs there are of each sign and lowest set bit (or of each zero)."""
    outputs = np.asarray(outputs, np.float64).reshape(-1)
    fraction, exponent = np.frexp(outputs)
    whole = np.abs(np.ldexp(fraction, 53)).astype(np.int64)
    lowest = np.where(whole == 0, -5_000, np.log2(np.maximum(whole & -whole, 1)).astype(np.int64) + exponent)
    names, counts = np.unique(2 * lowest + np.signbit(outputs), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True)), len(outputs)


def worst(first, second, epsilon, delta):
    """By how many standard deviations (less 30 draws) the inequality is broken at most, in either order."""
    (a, n), (b, m) = classes(first), classes(second)
    assert n == m
    found = -math.inf
    for one, other in ((a, b), (b, a)):
        for name, count in one.items():
            bound = math.exp(epsilon) * other.get(name, 0)
            spread = math.sqrt(count + math.exp(epsilon) * bound + delta * n + 1)
            found = max(found, (count - bound - delta * n - 30) / spread)
    return found


def gaussian_delta(epsilon, multiplier=1.0):
    """δ of the Gaussian mechanism (Balle & Wang 2018, Theorem 8)."""
    half, far = 0.5 / multiplier, epsilon * multiplier
    return stats.norm.cdf(half - far) - math.exp(epsilon) * stats.norm.cdf(-half - far)


GUARANTEE = {"laplace": (1.0, 0.0), "gaussian": (3.0, gaussian_delta(3.0))}
NUMBERS = {"laplace": noise.LaplaceMechanism, "gaussian": noise.GaussianMechanism}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("law", NUMBERS)
def test_one_number_at_a_time(law, pair, draws):
    first, second, sensitivity = PAIRS[pair]
    mechanism = NUMBERS[law](noise_multiplier=1.0, sensitivity=sensitivity)
    rng = UnsafeSeededRng(1)
    outputs = [[mechanism.measure(value, rng).value for _ in range(draws)] for value in (first, second)]
    assert worst(*outputs, *GUARANTEE[law]) < 8


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("law", NUMBERS)
def test_arrays(law, pair, draws):
    """Each coordinate of neighbours that differ in all of them is a mechanism of its own share of the sensitivity at most."""
    first, second, sensitivity = PAIRS[pair]
    norm = 100 if law == "laplace" else 10
    mechanism = NUMBERS[law](noise_multiplier=1.0 / norm, sensitivity=norm * sensitivity)
    rng = UnsafeSeededRng(2)
    outputs = [[mechanism.measure(np.full(100, value), rng).value for _ in range(draws // 100)] for value in (first, second)]
    assert worst(*outputs, *GUARANTEE[law]) < 8


@pytest.mark.parametrize(("first", "second"), [(-1, 0), (2**53, 2**53 + 1), (2**61, 2**61 - 3)])
@pytest.mark.parametrize("law", NUMBERS)
def test_whole_numbers_with_float_noise(law, first, second, draws):
    mechanism = NUMBERS[law](noise_multiplier=2.0**-9, sensitivity=abs(second - first) * 2**9)
    rng = UnsafeSeededRng(3)
    for shape in ((), (1_000,)):
        count = draws // math.prod(shape)
        outputs = [
            [mechanism.measure(np.full(shape, value) if shape else value, rng).value for _ in range(count)] for value in (first, second)
        ]
        assert worst(*outputs, *GUARANTEE[law]) < 8


def rows(count, **changed):
    """Rows that are on no grid, and perhaps one more."""
    return [float(i) / 7 for i in range(count)] + list(changed.values())


OTHERS = {
    "tree, gaussian": (noise.TreeCounter(noise_multiplier=math.sqrt(10), steps=500), [0.1] * 500, [0.9] + [0.1] * 499, "gaussian"),
    "tree, laplace": (noise.TreeCounter(noise_multiplier=10.0, steps=500, noise="laplace"), [0.1] * 500, [0.9] + [0.1] * 499, "laplace"),
    "matrix": (
        noise.MatrixCounter(noise_multiplier=1.0, steps=500, coefficients=stream.square_root_coefficients(500)),
        [0.1] * 500,
        [0.9] + [0.1] * 499,
        "gaussian",
    ),
    "linear, gaussian": (
        noise.LinearQueries(workload=linear.prefix_workload(50) / 3, law="gaussian", noise_multiplier=1.0),
        [1] * 50,
        [2] + [1] * 49,
        "gaussian",
    ),
    "linear, laplace": (
        noise.LinearQueries(workload=linear.prefix_workload(50) / 3, law="laplace", noise_multiplier=1.0),
        [1] * 50,
        [2] + [1] * 49,
        "laplace",
    ),
    "smooth": (noise.SmoothSensitivityMedian(epsilon=1.0, lower=0.1, upper=7.3), rows(9), rows(9, new=7.0), "laplace"),
    "propose": (
        noise.ProposeTestRelease(epsilon=1.0, delta=1e-3, statistic=robust.median_statistic(0.1, 7.3), bound=3.0),
        rows(30),
        rows(30, new=7.0),
        "laplace",
    ),
    "aggregate": (
        noise.SampleAndAggregate(function=lambda r: [np.mean(r)] * 50, blocks=3, lower=0.1, upper=7.3, epsilon=1.0, dimension=50),
        rows(20),
        rows(20, new=7.0),
        "laplace",
    ),
    "values above": (
        noise.AboveThreshold(epsilon=1.0, hits=500, value_epsilon=0.1),
        [90_000.1] * 500,
        [90_000.9] * 500,
        "laplace",
    ),
    "quantiles": (noise.Quantiles(quantiles=(0.3, 0.7), lower=0.1, upper=7.3, epsilon=1.0), rows(20), rows(20, new=7.0), "laplace"),
}


def told(value):
    """All the floats of one answer; a number that no answer is stands for None."""
    values = value.values if isinstance(value, Found) else np.atleast_1d(np.array(value, object))
    return np.array([-77.0 if number is None else number for number in values], np.float64)


@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_that_tells_floats(name, draws):
    mechanism, first, second, law = OTHERS[name]
    rng = UnsafeSeededRng(4)
    outputs = []
    for data in (first, second):
        many = [told(mechanism.measure(data, rng).value)]
        many += [told(mechanism.measure(data, rng).value) for _ in range(draws // len(many[0]))]
        outputs.append(np.concatenate(many))
    epsilon, delta = GUARANTEE[law]
    assert worst(*outputs, epsilon, delta if name != "propose" else 1e-3) < 8


@pytest.mark.parametrize("pair", ["0 and 1", "-1 and 0", "-0 and 0.1", "thirds", "tenths", "a subnormal and 1"])
def test_unsafe_noise_is_caught(pair):
    first, second, sensitivity = PAIRS[pair]
    generator = np.random.default_rng(5)
    for law, draw in (("laplace", generator.laplace), ("gaussian", generator.normal)):
        outputs = [value + draw(scale=sensitivity, size=100_000) for value in (first, second)]
        assert worst(*outputs, *GUARANTEE[law]) > 20, (law, pair)


def test_every_output_is_on_the_grid_of_its_scale():
    for law, mechanism in NUMBERS.items():
        rng = UnsafeSeededRng(6)
        made = mechanism(noise_multiplier=1.0)
        step = samplers.grid_step(made.noise_scale if law == "laplace" else made.noise_std)
        for value in (0.0, -1 / 3, TINY, 1e6 / 7):
            assert all((made.measure(value, rng).value / step).is_integer() for _ in range(DRAWS))
