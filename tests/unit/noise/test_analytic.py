"""Exact calibration against 400-digit arithmetic, against published figures, and against brute force."""

import math

import mpmath as mp
import pytest

from dither.core.errors import InputError, RefusedError
from dither.noise import _analytic as an

EPSILONS = [0.0, 1e-3, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 1000.0]
DELTAS = [1e-300, 1e-200, 1e-100, 1e-30, 1e-15, 1e-10, 1e-5, 0.01, 0.3, 0.9, 0.999999]


@pytest.fixture(autouse=True)
def many_digits():
    with mp.workdps(420):
        yield


def true_delta(sigma, epsilon):
    sigma, epsilon = mp.mpf(sigma), mp.mpf(epsilon)
    return mp.ncdf(1 / (2 * sigma) - epsilon * sigma) - mp.exp(epsilon) * mp.ncdf(-1 / (2 * sigma) - epsilon * sigma)


def reachable(epsilon, delta):
    return epsilon > 0 or delta > 1e-11


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_delta_asked_for_is_truly_met_and_hardly_overpaid(epsilon):
    for delta in (d for d in DELTAS if reachable(epsilon, d)):
        sigma = an.gaussian_noise_multiplier(epsilon, delta)
        assert true_delta(sigma, epsilon) <= mp.mpf(delta), (epsilon, delta)
        if delta < 0.99:
            assert true_delta(sigma * (1 - 1e-10), epsilon) > mp.mpf(delta), (epsilon, delta)
        assert abs(an.log_gaussian_delta(sigma, epsilon) - mp.log(true_delta(sigma, epsilon))) < an.SLACK / 2


@pytest.mark.parametrize(
    ("epsilon", "exact", "ratio", "classic_delta"),
    [
        (0.01, 243.785, 1.987, 2.5e-10),
        (0.1, 30.7496, 1.576, 2.6e-9),
        (0.5, 7.03183, 1.378, 1.6e-8),
        (1, 3.73063, 1.299, 4.1e-8),
        (2, 1.99381, 1.215, 1.3e-7),
        (3, 1.39059, 1.161, 3.2e-7),
        (5, 0.89187, 1.086, 1.4e-6),
        (8, 0.60023, 1.009, 8.0e-6),
        (10, 0.49989, 0.969, 2.3e-5),
        (15, 0.36191, 0.892, 2.2e-4),
        (20, 0.29004, 0.835, 1.5e-3),
    ],
)
def test_the_table_of_exact_and_classic(epsilon, exact, ratio, classic_delta):
    sigma = an.gaussian_noise_multiplier(epsilon, 1e-5)
    assert sigma == pytest.approx(exact, rel=1e-5)
    classic = math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    assert classic / sigma == pytest.approx(ratio, abs=6e-4)
    assert math.exp(an.log_gaussian_delta(classic, epsilon)) == pytest.approx(classic_delta, rel=0.04)


def test_halved_noise_misses_the_delta():
    for epsilon in (0.1, 1.0, 10.0):
        assert true_delta(an.gaussian_noise_multiplier(epsilon, 1e-6) / 2, epsilon) > 100 * mp.mpf(1e-6)


def test_noise_falls_as_epsilon_or_delta_grows():
    by_epsilon = [an.gaussian_noise_multiplier(e, 1e-6) for e in (0.0, *(10 ** (k / 7) for k in range(-20, 21)))]
    by_delta = [an.gaussian_noise_multiplier(1.0, 10.0**-k) for k in range(1, 301, 7)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert by_delta == sorted(by_delta)


def test_the_classic_formula_is_refused_above_one():
    assert an.classic_gaussian_noise_multiplier(1.0, 1e-5) == pytest.approx(4.8448, rel=1e-4)
    with pytest.raises(RefusedError, match="proved for epsilon <= 1"):
        an.classic_gaussian_noise_multiplier(math.nextafter(1, 2), 1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1, 0), (1, 1), (1, math.nan), (math.nan, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (1e9, 1e-5), ("1", 1e-5), (True, 0.1)],
)
def test_bad_targets_are_refused(epsilon, delta):
    for function in (an.gaussian_noise_multiplier, an.discrete_gaussian_noise_std, an.classic_gaussian_noise_multiplier):
        with pytest.raises((InputError, RefusedError)):
            function(epsilon, delta)


def test_what_needs_endless_noise_is_refused():
    with pytest.raises(InputError, match="Ask for a larger epsilon or delta"):
        an.gaussian_noise_multiplier(0.0, 1e-30)


def test_the_smallest_noise_is_not_undercut():
    assert an.gaussian_noise_multiplier(1000, 1 - 1e-16) >= 1e-3


def test_log_ndtr_everywhere():
    for x in [-1e6, -100, -38.5, -20, -5.0001, -5, -4.999, -1, -1e-10, 0, 1e-10, 1, 5, 8, 20]:
        exact = (
            mp.log(mp.ncdf(x))
            if x > -1000
            else -(mp.mpf(x) ** 2) / 2 - mp.log(-mp.mpf(x)) - mp.log(mp.sqrt(2 * mp.pi)) - 1 / mp.mpf(x) ** 2
        )
        assert abs(an.log_ndtr(x) - exact) <= (2e-14 if x < 9 else 1e-12) * abs(exact), x  # far right it is −Φ(−x), a tail


def test_mills_ratio_is_continuous_where_its_method_changes():
    for x in (-6, -1, 0, 2, 4.999, 5.0, 5.001, 30, 1e8):
        exact = mp.ncdf(-x) / mp.npdf(x) if x < 100 else 1 / mp.mpf(x) - 1 / mp.mpf(x) ** 3
        assert abs(an.mills(x) / exact - 1) < 2e-14, x
        if x > -5:
            slope = 1 - x * exact if x < 100 else 1 / mp.mpf(x) ** 2
            assert abs(an._mills_slope(x) / slope - 1) < 1e-12, x


@pytest.mark.parametrize("tail", [1 - 2**-53, 0.9, 0.5, 0.05, 1e-9, 1e-16, 1e-100, 1e-300])
def test_normal_quantiles_are_enough_and_tight(tail):
    x = an.normal_quantile(tail)
    assert 2 * mp.ncdf(-x) <= mp.mpf(tail)
    assert 2 * mp.ncdf(-x * (1 - 2e-11) + 1e-11) > mp.mpf(tail)


# ------------------------------------------------------------------------------------------------ discrete Gaussian


def brute_delta(sigma, epsilon, shift):
    with mp.workdps(60):
        reach = int(60 * sigma + 60 + shift)
        weights = {k: mp.exp(-(mp.mpf(k) ** 2) / (2 * mp.mpf(sigma) ** 2)) for k in range(-reach - shift, reach + shift + 1)}
        e = mp.exp(epsilon)
        parts = (weights[k] - e * weights[k + shift] for k in range(-reach, reach + 1))
        return mp.fsum(p for p in parts if p > 0) / mp.fsum(weights.values())


@pytest.mark.parametrize(
    ("sigma", "epsilon", "shift"),
    [(0.3, 1, 1), (1, 0.5, 1), (3, 2, 4), (0.5, 0, 1), (50, 0.1, 3), (20, 5, 30), (9.99, 0.01, 1), (10, 0.01, 1)],
)
def test_discrete_gaussian_delta_is_the_brute_force_one(sigma, epsilon, shift):
    exact = float(mp.log(brute_delta(sigma, epsilon, shift)))
    assert exact <= an.log_discrete_gaussian_delta(sigma, epsilon, shift) <= exact + 1e-9


@pytest.mark.parametrize("epsilon", [35, 60, 300])
@pytest.mark.parametrize("whole", [1, 4])
def test_discrete_gaussian_delta_where_the_first_term_hangs_on_the_last_digits(epsilon, whole):
    """From ε = 34 on a term whose gain is 1e-16 can still be the largest: the distance to the cut must be exact."""
    for shift in (1, 2):
        sigma = math.sqrt((whole + shift / 2) * shift / epsilon)
        for _ in range(6):
            sigma = math.nextafter(sigma, 0.0)
        for _ in range(12):
            exact = float(mp.log(brute_delta(sigma, epsilon, shift)))
            assert exact <= an.log_discrete_gaussian_delta(sigma, epsilon, shift) <= exact + 1e-9
            sigma = math.nextafter(sigma, 9.0)


def test_blocks_overstate_delta_by_little(monkeypatch):
    args = (5000.0, 1e-3, 2)
    exact = an.log_discrete_gaussian_delta(*args)
    monkeypatch.setattr(an, "_BLOCKS", 1 << 12)
    assert exact < an.log_discrete_gaussian_delta(*args) < exact + 0.02


@pytest.mark.parametrize("sensitivity", [1, 7])
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-5), (0.2, 1e-4), (8, 1e-6), (20, 1e-5), (0, 0.1), (1, 0.9)])
def test_discrete_gaussian_calibration_is_met_and_tight(epsilon, delta, sensitivity):
    std = an.discrete_gaussian_noise_std(epsilon, delta, sensitivity)
    assert brute_delta(std, epsilon, sensitivity) <= delta
    assert brute_delta(std * (1 - 1e-4), epsilon, sensitivity) > delta
    assert brute_delta(std / 2, epsilon, sensitivity) > 1.05 * delta


def test_wide_discrete_gaussians_are_like_continuous_ones():
    for args in ((0.001, 1e-10, 1), (0.01, 1e-300, 1000)):
        assert an.discrete_gaussian_noise_std(*args) == pytest.approx(an.gaussian_noise_multiplier(*args[:2]) * args[2], rel=1e-4)
