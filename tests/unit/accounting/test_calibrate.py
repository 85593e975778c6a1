"""Calibration: the answer meets the target, and a hair beyond it does not."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from dither import events as ev
from dither.accounting import calibrate, loss
from dither.core.errors import DitherError, InputError

REFERENCE = {
    0.1: 13.805214,
    0.25: 6.0195239,
    0.5: 3.2590763,
    1.0: 1.8429866,
    2.0: 1.1494231,
    3.0: 0.93044328,
    4.0: 0.82255458,
    6.0: 0.70830718,
    8.0: 0.6433462,
    10.0: 0.59913094,
}
EXACT_GAUSSIAN = {0.01: 243.785, 0.1: 30.7496, 0.5: 7.03183, 1.0: 3.73063, 2.0: 1.99381, 5.0: 0.89187, 10.0: 0.49989, 20.0: 0.29004}


def gaussian_delta(epsilon, noise):
    """Balle & Wang 2018, Theorem 8, written here again as the oracle."""
    return ndtr(0.5 / noise - epsilon * noise) - math.exp(epsilon + log_ndtr(-0.5 / noise - epsilon * noise))


def long_run(noise):
    return ev.Repeat(ev.Subsample(ev.Gaussian(noise), ev.Poisson(0.01)), 2_000)


@pytest.mark.parametrize("epsilon", REFERENCE)
def test_it_meets_the_reference_noise(epsilon):
    noise = calibrate(long_run, epsilon=epsilon, delta=1e-5)
    assert loss(long_run(noise)).epsilon(1e-5).upper <= epsilon
    assert noise / REFERENCE[epsilon] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("epsilon", EXACT_GAUSSIAN)
def test_it_meets_the_exact_gaussian(epsilon):
    exact = brentq(lambda s: gaussian_delta(epsilon, s) - 1e-5, 1e-2, 1e4)
    assert exact == pytest.approx(EXACT_GAUSSIAN[epsilon], rel=1e-4)
    noise = calibrate(ev.Gaussian, epsilon=epsilon, delta=1e-5)
    assert exact * (1 - 1e-9) <= noise <= exact * (1 + 1e-4)


@given(epsilon=st.floats(0.02, 50), power=st.floats(-20, -2))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_never_over_and_never_far_under(epsilon, power):
    delta = 10.0**power
    noise = calibrate(ev.Gaussian, epsilon=epsilon, delta=delta)
    assert gaussian_delta(epsilon, noise) <= delta * (1 + 1e-9)
    assert gaussian_delta(epsilon, noise / 1.0002) > delta


@given(epsilon=st.floats(0.05, 20), each=st.floats(0.01, 1.0))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_whole_numbers_are_exact(epsilon, each):
    if epsilon < each:
        with pytest.raises(InputError):
            calibrate(lambda k: ev.Repeat(ev.PureDp(each), k), epsilon=epsilon, integer=True)
        return
    count = calibrate(lambda k: ev.Repeat(ev.PureDp(each), k), epsilon=epsilon, integer=True)
    assert isinstance(count, int)
    assert (
        loss(ev.Repeat(ev.PureDp(each), count)).epsilon(0).upper <= epsilon < loss(ev.Repeat(ev.PureDp(each), count + 1)).epsilon(0).upper
    )


def test_steps_rise_to_the_limit():
    def steps(k):
        return ev.Repeat(ev.Gaussian(100.0), k)

    count = calibrate(steps, epsilon=1, delta=1e-5, integer=True)
    assert gaussian_delta(1.0, 100.0 / math.sqrt(count)) <= 1e-5 < gaussian_delta(1.0, 100.0 / math.sqrt(count + 1))


def test_a_sampling_probability_rises_to_the_limit():
    def run(q):
        return ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.Poisson(q)), 1_000)

    found = calibrate(run, epsilon=1, delta=1e-5)
    assert loss(run(found)).epsilon(1e-5).upper <= 1 < loss(run(found * 1.001)).epsilon(1e-5).upper


def test_other_events_and_the_other_relation():
    assert calibrate(ev.Laplace, epsilon=0.5) == pytest.approx(2.0, rel=1e-4)
    assert calibrate(ev.Laplace, epsilon=0.5) >= 2.0
    assert calibrate(ev.Laplace, epsilon=0.5, group=3) == pytest.approx(6.0, rel=1e-4)
    assert calibrate(ev.PureDp, epsilon=0.5) == pytest.approx(0.5, rel=1e-4)
    both = {n: calibrate(long_run, epsilon=1, delta=1e-5, neighbors=n) for n in ("add_remove", "replace")}
    assert both["replace"] > 1.2 * both["add_remove"], "a replacement is a removal and an addition"


def test_a_target_of_epsilon_zero_is_a_distance():
    noise = calibrate(ev.Gaussian, epsilon=0, delta=1e-2)
    assert 2 * ndtr(0.5 / noise) - 1 == pytest.approx(1e-2, rel=2e-4)


def test_where_the_whole_range_meets_the_target_its_permissive_end_is_the_answer():
    assert calibrate(ev.Gaussian, epsilon=1, delta=1e-5, low=5, high=20) == 5
    assert calibrate(lambda k: ev.Repeat(ev.PureDp(1e-6), k), epsilon=1, integer=True, high=1_000) == 1_000
    assert calibrate(lambda q: ev.Subsample(ev.Gaussian(5.0), ev.Poisson(q)), epsilon=5, delta=1e-5) == 1


def test_the_range_of_the_event_is_found_not_asked_for():
    def fixed(size):
        return ev.Repeat(ev.Subsample(ev.Gaussian(4.0), ev.Poisson(size / 1_000)), 100)

    size = calibrate(fixed, epsilon=2, delta=1e-5, integer=True)
    assert 1 <= size <= 1_000
    assert loss(fixed(size)).epsilon(1e-5).upper <= 2 < loss(fixed(size + 1)).epsilon(1e-5).upper


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_tolerance_is_kept(tolerance):
    exact = brentq(lambda s: gaussian_delta(1.0, s) - 1e-5, 1, 10)
    found = calibrate(ev.Gaussian, epsilon=1, delta=1e-5, tolerance=tolerance)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + tolerance)


def test_few_prices_are_asked_for(monkeypatch):
    asked = []
    real = loss.__globals__["Loss"].epsilon_upper
    monkeypatch.setattr(loss.__globals__["Loss"], "epsilon_upper", lambda self, delta: asked.append(delta) or real(self, delta))
    calibrate(long_run, epsilon=2, delta=1e-5)
    assert len(asked) <= 14


class _Drifting:
    """A function whose events change from call to call."""

    def __init__(self):
        self.calls = 0

    def __call__(self, noise):
        self.calls += 1
        return ev.Gaussian(noise * (1 + self.calls * 1e-9))


WRONG = [
    (lambda: calibrate(ev.Gaussian, epsilon=math.nan, delta=1e-5), "epsilon=nan"),
    (lambda: calibrate(ev.Gaussian, epsilon=-1, delta=1e-5), "epsilon=-1"),
    (lambda: calibrate(ev.Gaussian, epsilon=1, delta=1), "delta=1"),
    (lambda: calibrate(ev.Gaussian, epsilon=0, delta=0), "only a constant"),
    (lambda: calibrate(ev.Gaussian, epsilon=1), "Give a delta > 0"),
    (lambda: calibrate(ev.Gaussian, epsilon=1, delta=1e-5, low=0.1, high=0.2), "lowest price is ε = 33.11"),
    (lambda: calibrate(ev.Gaussian, epsilon=1, delta=1e-5, low=3, high=2), "low=3"),
    (lambda: calibrate(ev.Gaussian, epsilon=1, delta=1e-5, low=0), "low=0"),
    (lambda: calibrate(ev.Gaussian, epsilon=1, delta=1e-5, high=math.inf), "high=inf"),
    (lambda: calibrate(ev.Gaussian, epsilon=1, delta=1e-5, tolerance=0), "tolerance=0"),
    (lambda: calibrate(ev.Gaussian, epsilon=1, delta=1e-5, group=0), "group=0"),
    (lambda: calibrate(ev.Gaussian, epsilon=1, delta=1e-5, neighbors="near"), "neighbors 'near'"),
    (lambda: calibrate(ev.Gaussian, epsilon=1, delta=1e-5, integer="yes"), "integer='yes'"),
    (lambda: calibrate(7, epsilon=1, delta=1e-5), "make_event=7"),
    (lambda: calibrate(lambda _: 3, epsilon=1, delta=1e-5), "expected an event"),
    (lambda: calibrate(lambda _: ev.Gaussian(2.0), epsilon=1, delta=1e-5), "everywhere"),
    (lambda: calibrate(lambda s: ev.Gaussian(abs(math.sin(s)) + 0.5), epsilon=1, delta=1e-5), "not monotone"),
    (lambda: calibrate(lambda k: ev.Repeat(ev.PureDp(0.1), k), epsilon=1), "integer=True"),
    (lambda: calibrate(lambda _: ev.NonPrivate(), epsilon=1, delta=1e-5), "infinite everywhere"),
    (lambda: calibrate(_Drifting(), epsilon=1, delta=1e-5), "two different events"),
]


@pytest.mark.parametrize(("call", "said"), WRONG, ids=[said for _, said in WRONG])
def test_wrong_input_is_told(call, said):
    with pytest.raises(DitherError) as caught:
        call()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
