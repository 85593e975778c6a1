"""The laws that robust.py and vote.py draw from, by χ² or against exact probabilities at 6 standard errors.

False alarm: at most 2e-9 for each of fewer than 200 comparisons; with the seeds fixed, never. Power: stated at each test.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from dither.noise import robust
from dither.noise.rng import UnsafeSeededRng
from dither.noise.robust import ProposeTestRelease, SampleAndAggregate, SmoothSensitivityMedian, median_statistic
from dither.noise.vote import EnsembleVote, Screening

pytestmark = pytest.mark.statistical
N = 20_000


def student_cdf(x):
    return 0.5 + x / (2 * math.sqrt(2 + x * x))


def laplace_cdf(x):
    return 1 - math.exp(-x) / 2 if x > 0 else math.exp(x) / 2


LAWS = [(robust._rounded_student, student_cdf), (robust._rounded_laplace, laplace_cdf)]


def agrees(draws, cdf, scale):
    edges = [-6, -2, -1, 0, 1, 2, 6]
    for k in edges:
        p = cdf((k + 0.5) / scale)
        if abs(np.mean(draws <= k) - p) > 6 * math.sqrt(p * (1 - p) / len(draws)) + 1e-12:
            return False
    return True


@pytest.mark.parametrize(("draw", "cdf"), LAWS)
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(5, 3), Fraction(10)])
def test_rounded_noise_has_its_law(draw, cdf, scale):
    """Seven points of the distribution function. Power: scales of 2/3 and 3/2 move one of them by over 10 standard errors."""
    rng = UnsafeSeededRng(1)
    draws = np.array([draw(scale, rng) for _ in range(N)])
    assert agrees(draws, cdf, float(scale))
    assert not agrees(draws, cdf, float(scale) * 2 / 3)
    assert not agrees(draws, cdf, float(scale) * 3 / 2)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_median_noise(delta):
    """Quartiles of the released error, against noise of smooth sensitivity / shift. Power: halves are 30 errors away."""
    mechanism = SmoothSensitivityMedian(epsilon=1.0, delta=delta, lower=0.0, upper=1000.0)
    rows = [500 + i for i in range(-100, 100)]
    grid = robust._Grid(0.0, 1000.0)
    scale = mechanism._smooth(grid.sorted(rows), grid) * grid.step / mechanism.shift
    rng = UnsafeSeededRng(2)
    errors = np.array([mechanism.measure(rows, rng).value - 500 for _ in range(4000)])
    half = math.sqrt(2 / 3) if not delta else math.log(2)  # P(|Z| ≤ half) = ½
    for factor, right in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        share = np.mean(np.abs(errors) <= half * scale * factor)
        assert (abs(share - 0.5) <= 6 * 0.5 / math.sqrt(4000)) == right


def test_propose_test_release_passes_as_often_as_it_says():
    mechanism = ProposeTestRelease(epsilon=0.5, delta=0.05, statistic=median_statistic(0, 10), bound=1.0)
    rng = UnsafeSeededRng(3)
    for rows in ([5.0] * 8, [0.0, 10.0]):
        share, distance = mechanism._shares[0], mechanism.statistic.distance(rows, mechanism._steps)
        over = mechanism.threshold - distance
        tail = math.exp(-share * (over + 1)) / (1 + math.exp(-share)) if over >= 0 else 1 - math.exp(share * over) / (1 + math.exp(-share))
        passed = np.mean([mechanism.measure(rows, rng).value is not None for _ in range(4000)])
        assert passed == pytest.approx(tail, abs=6 * math.sqrt(tail * (1 - tail) / 4000))
    assert tail <= 0.05


def test_aggregate_noise_and_blocks():
    mechanism = SampleAndAggregate(function=lambda rows: 1.0, blocks=10, lower=0.0, upper=2.0, epsilon=0.5)
    rng = UnsafeSeededRng(4)
    errors = np.array([mechanism.measure([0] * 10, rng).value - 1.0 for _ in range(4000)])
    assert np.mean(np.abs(errors)) == pytest.approx(2.0 / 10 / 0.5, rel=6 / math.sqrt(4000))
    sizes = np.array([len(b) for b in mechanism._blocks(list(range(100_000)), rng)])
    assert np.all(np.abs(sizes - 10_000) <= 6 * math.sqrt(100_000 * 0.09))


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "exponential"])
def test_votes_win_as_often_as_theory_says(noise):
    """Two classes, 6 : 4 votes, scale 3. Power: scales of 2/3 and 3/2 move the share by at least 8 standard errors."""
    mechanism = EnsembleVote(models=10, classes=2, noise_scale=3.0, answers=1, noise=noise)
    rng = UnsafeSeededRng(6)
    won = np.mean([mechanism.measure([0] * 6 + [1] * 4, rng).value == 0 for _ in range(N)])

    def theory(scale):
        lead = 2 / scale
        if noise == "gaussian":
            return 0.5 * (1 + math.erf(lead / 2))
        if noise == "laplace":
            return 1 - math.exp(-lead) * (2 + lead) / 4
        return 1 / (1 + math.exp(-lead))

    error = 6 * math.sqrt(theory(3.0) * (1 - theory(3.0)) / N)
    assert abs(won - theory(3.0)) <= error
    assert abs(won - theory(2.0)) > error
    assert abs(won - theory(4.5)) > error


def test_screening_passes_as_often_as_theory_says():
    mechanism = EnsembleVote(models=10, classes=2, noise_scale=3.0, answers=1, screening=Screening(threshold=8.0, noise_std=2.0, queries=1))
    rng = UnsafeSeededRng(7)
    passed = np.mean([mechanism.measure([0] * 7 + [1] * 3, rng).value is not None for _ in range(N)])
    expected = 0.5 * (1 - math.erf(0.5 / math.sqrt(2)))
    assert passed == pytest.approx(expected, abs=6 * math.sqrt(expected * (1 - expected) / N))
