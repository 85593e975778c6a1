"""Randomised response: the odds are never above e^ε, the estimates are unbiased, their errors are what they say."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from dither.core.errors import InputError
from dither.core.events import NonPrivate, RandomizedResponse
from dither.noise import samplers
from dither.noise.response import FrequencyEstimate, KaryResponseMechanism, RandomizedResponseMechanism, false_probability
from dither.noise.rng import UnsafeSeededRng

EPSILONS = [0.0, 1e-300, 1e-9, 0.1, math.log(3), 1.0, 4.0, 36.0, 37.0, 100.0, 745.0, 1000.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("values", [2, 3, 16, 10**12])
def test_the_odds_of_the_truth_are_at_most_e_to_the_epsilon(epsilon, values):
    false = false_probability(epsilon, values)
    assert 0 < false <= Fraction(values - 1, values)
    with mp.workdps(700):
        exact = (1 - false) / (false / (values - 1))
        odds = mp.mpf(exact.numerator) / exact.denominator
        assert odds <= mp.exp(mp.mpf(epsilon))
        assert odds >= mp.exp(mp.mpf(epsilon)) * (1 - mp.mpf(2) ** -61)  # and hardly below
        assert odds >= 1


def test_the_coin_that_is_thrown_has_the_probability_that_is_priced(monkeypatch):
    thrown = []

    def watched(p, size=None, rng=None):
        thrown.append(p)
        return np.zeros(size, bool)

    monkeypatch.setattr(samplers, "bernoulli", watched)
    RandomizedResponseMechanism(epsilon=1.5).measure([True])
    KaryResponseMechanism(epsilon=1.5, values=7).measure([3])
    assert thrown == [false_probability(1.5, 2), false_probability(1.5, 7)]


def test_events_and_private_sources():
    binary, kary = RandomizedResponseMechanism(epsilon=1), KaryResponseMechanism(epsilon=2, values=5)
    assert binary.measure(True).event == RandomizedResponse(1.0, 2)
    assert kary.measure([1, 2]).event == RandomizedResponse(2.0, 5)
    assert binary.measure(True, UnsafeSeededRng(1)).event == NonPrivate()
    assert kary.measure(3, UnsafeSeededRng(1)).event == NonPrivate()


def test_shapes_and_types():
    binary, kary = RandomizedResponseMechanism(epsilon=1), KaryResponseMechanism(epsilon=2, values=5)
    assert type(binary.measure(True).value) is type(binary.measure(0).value) is bool
    assert type(kary.measure(3).value) is int
    for many in ([True, False], [], [[1], [0]], np.zeros((2, 3), bool), np.ones((0, 2), np.uint8)):
        assert binary.measure(many).value.dtype == bool
        assert kary.measure(many).value.dtype == np.int64
        assert binary.measure(many).value.shape == kary.measure(many).value.shape == np.shape(many)
    for bad in (0.5, "1", None, [0.5], np.zeros(2)):
        for mechanism in (binary, kary):
            with pytest.raises(InputError, match="value"):
                mechanism.measure(bad)


def test_no_error_depends_on_an_answer():
    binary, kary = RandomizedResponseMechanism(epsilon=1000), KaryResponseMechanism(epsilon=1000, values=5)
    assert binary.measure([2, -1, 0, 2**70]).value.tolist() == [True, True, False, True]
    assert kary.measure([7, -3, 2, -(2**70), 2**70]).value.tolist() == [4, 0, 2, 0, 4]


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, 1001, "1", None, True])
def test_bad_epsilon_is_refused(bad):
    for make in (lambda: RandomizedResponseMechanism(epsilon=bad), lambda: KaryResponseMechanism(epsilon=bad, values=3)):
        with pytest.raises(InputError, match="epsilon"):
            make()


@pytest.mark.parametrize("bad", [1, 0, -1, 2.0, 10**13, "3", None])
def test_bad_numbers_of_values_are_refused(bad):
    with pytest.raises(InputError, match="values"):
        KaryResponseMechanism(epsilon=1, values=bad)


@pytest.mark.parametrize("reports", [[], [2], [-1, 0], [0.5], "01"])
def test_bad_reports_are_refused(reports):
    with pytest.raises(InputError):
        RandomizedResponseMechanism(epsilon=1).estimate(reports)


def test_nothing_can_be_estimated_at_epsilon_zero():
    for mechanism in (RandomizedResponseMechanism(epsilon=0), KaryResponseMechanism(epsilon=0, values=4)):
        with pytest.raises(InputError, match="nothing can be estimated"):
            mechanism.estimate([0, 1])
        assert mechanism.expected_standard_error(100) == math.inf


def test_a_domain_too_large_to_count_is_refused():
    with pytest.raises(InputError, match="too many to count"):
        KaryResponseMechanism(epsilon=1, values=10**9).estimate([1])


@pytest.mark.parametrize("values", [2, 3])
def test_estimates_are_unbiased_and_so_are_their_variances(values):
    """Exactly: the mean over all answers of three respondents, each weighted by its probability."""
    mechanism = RandomizedResponseMechanism(epsilon=0.8) if values == 2 else KaryResponseMechanism(epsilon=0.8, values=3)
    false = float(mechanism.false_probability)
    truth = [1, 0, 1] if values == 2 else [2, 0, 2]
    told = np.stack(np.meshgrid(*[range(values)] * 3), axis=-1).reshape(-1, 3)
    weights = np.prod(np.where(told == truth, 1 - false, false / (values - 1)), axis=1)
    code = 1 if values == 2 else 2

    def of(estimate: FrequencyEstimate):
        return [np.ravel(x)[0 if values == 2 else code] for x in (estimate.frequency, estimate.standard_error)]

    made = np.array([of(mechanism.estimate(row.tolist())) for row in told])
    mean = weights @ made[:, 0]
    variance = weights @ (made[:, 0] - mean) ** 2
    assert mean == pytest.approx(2 / 3, abs=1e-12)
    assert weights @ made[:, 1] ** 2 == pytest.approx(variance, rel=1e-12)
    assert mechanism.expected_standard_error(3, frequency=2 / 3) == pytest.approx(math.sqrt(variance), rel=1e-12)


def test_estimated_shares_add_up_to_one():
    mechanism = KaryResponseMechanism(epsilon=0.5, values=6)
    estimate = mechanism.estimate([0, 1, 1, 5])
    assert np.sum(estimate.frequency) == pytest.approx(1)
    assert np.all(estimate.standard_error >= 0)


def test_variance_is_the_published_formula():
    """Wang et al. 2017, equation 4 (f → 0), over a domain of 1024: 348 at ε = 1, .38 at ε = 4."""
    for epsilon, expected in ((1, 348), (4, 0.38)):
        error = KaryResponseMechanism(epsilon=epsilon, values=1024).expected_standard_error(10**6)
        assert error**2 * 10**6 == pytest.approx(expected, rel=0.015)


@pytest.mark.statistical
def test_answers_have_their_law_and_others_are_rejected():
    """400 000 answers. False alarm: |z| > 6 on 2 + 5 counts, below 2e-8. Power: the odds e^(2ε) or e^(ε/2) are more than 50 sigmas away."""
    count = 400_000
    binary, kary = RandomizedResponseMechanism(epsilon=1.0), KaryResponseMechanism(epsilon=1.0, values=5)
    z = {}
    for epsilon in (0.5, 1.0, 2.0):
        expected = float(false_probability(epsilon, 2)), float(false_probability(epsilon, 5)) / 4
        lies = np.mean(~binary.measure(np.ones(count, bool), UnsafeSeededRng(1)).value)
        told = np.bincount(kary.measure(np.full(count, 3), UnsafeSeededRng(2)).value, minlength=5) / count
        wanted = np.full(5, expected[1])
        wanted[3] = 1 - 4 * expected[1]
        got = np.append(told, lies)
        due = np.append(wanted, expected[0])
        z[epsilon] = np.max(np.abs(got - due) / np.sqrt(due * (1 - due) / count))
    assert z[1.0] < 6
    assert min(z[0.5], z[2.0]) > 50
