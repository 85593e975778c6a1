"""The reference table: prices known from independent code, from formulas, or from exact enumeration.

Source of the DP-SGD, Laplace and mixed rows: connect-the-dots loss laws, composed by FFT at steps h and h/2 and
extrapolated; dp-accounting 0.6.0 (its PLD) agrees to 4–6 digits wherever it works. Gaussian rows: Balle & Wang 2018,
Theorem 8. Randomised response: exact enumeration of outcomes. The one-step row: its closed form in 50 digits.
"""

import math

import mpmath
import numpy as np
import pytest

from dither.accounting._compose import Composition
from dither.accounting._pairs import AtomsPair, GaussianPair, LaplacePair, SubsampledGaussianPair

Q = 256 / 60_000


def sgd(noise_multiplier, probability, count):
    return [[(SubsampledGaussianPair(noise_multiplier, probability, d), count)] for d in ("remove", "add")]


def response(epsilon, values):
    weight = 1 / (math.exp(epsilon) + values - 1)
    losses = [-epsilon, 0.0, epsilon] if values > 2 else [-epsilon, epsilon]
    p = [weight, (values - 2) * weight, math.exp(epsilon) * weight] if values > 2 else [weight, math.exp(epsilon) * weight]
    return AtomsPair(np.array(losses), np.array(p), 0.0, epsilon)


TABLE = [
    # name, directions, delta, epsilon
    ("A sigma 1.1 q 256/60k T 4700", sgd(1.1, Q, 4_700), 1e-5, 1.3206352),
    ("B sigma 1 q 256/60k T 600", sgd(1.0, Q, 600), 1e-5, 0.577329),
    ("C sigma 3 q 256/60k T 600", sgd(3.0, Q, 600), 1e-5, 0.11391247),
    ("D sigma 1 q .01 T 1000", sgd(1.0, 0.01, 1_000), 1e-5, 1.8282366),
    ("E sigma 2 q .01 T 1000", sgd(2.0, 0.01, 1_000), 1e-5, 0.62203031),
    ("F sigma .6 q .001 T 1e5", sgd(0.6, 0.001, 100_000), 1e-6, 6.9608555),
    ("G sigma 4 q .1 T 1e4", sgd(4.0, 0.1, 10_000), 1e-6, 14.774174),
    ("Gauss sigma 1", [[(GaussianPair(1.0), 1)]], 1e-5, 4.3771781),
    ("Gauss sigma 5 x 100", [[(GaussianPair(5.0), 100)]], 1e-6, 10.997151),
    ("Gauss sigma 20 x 1000", [[(GaussianPair(20.0), 1_000)]], 1e-6, 8.306225),
    ("Gauss sigma 100 x 1000", [[(GaussianPair(100.0), 1_000)]], 1e-10, 1.9092803),
    ("Laplace .1 x 100", [[(LaplacePair(10.0), 100)]], 1e-6, 4.6926674),
    ("Laplace .01 x 10000", [[(LaplacePair(100.0), 10_000)]], 1e-6, 4.8762576),
    ("Laplace 1 x 10", [[(LaplacePair(1.0), 10)]], 1e-6, 9.9989797),
    ("10 Laplace .5 + 20 Gauss 5", [[(LaplacePair(2.0), 10), (GaussianPair(5.0), 20)]], 1e-6, 8.02091),
    ("response k 2 eps .5 x 50", [[(response(0.5, 2), 50)]], 1e-6, 20.301001),
    ("response k 16 eps 1 x 20", [[(response(1.0, 16), 20)]], 1e-6, 11.781612),
    ("hard sigma 50 q 1e-5 T 1e6", sgd(50.0, 1e-5, 1_000_000), 1e-6, 0.00043846877),
    ("hard sigma .3 q .01 T 1000", sgd(0.3, 0.01, 1_000), 1e-5, 69.815716),
    ("hard sigma 1 q .2 T 5000", sgd(1.0, 0.2, 5_000), 1e-5, 208.23689),
    ("hard delta 1e-15", sgd(4.0, 1 / 3_000, 10_000), 1e-15, 0.060314508),
    ("hard delta 1.13e-18", sgd(4.0, 1 / 3_000, 10_000), 1.13e-18, 0.06787506),
    ("hard one step", sgd(10.0, 1e-3, 1), 1e-8, 0.00040580610),
]


@pytest.mark.parametrize(("directions", "delta", "epsilon"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_row(directions, delta, epsilon):
    bounds = [Composition(parts).epsilon(delta) for parts in directions]
    lower, upper = max(b.lower for b in bounds), max(b.upper for b in bounds)
    assert lower * (1 - 2e-6) <= epsilon <= upper * (1 + 2e-6)  # the references have six or seven digits
    assert upper / lower - 1 <= 1e-3
    assert abs(upper / epsilon - 1) <= 1e-3
    cheap = max(Composition(parts).epsilon_upper(delta) for parts in directions)
    assert lower <= cheap <= epsilon * (1 + 1e-3)


@pytest.mark.parametrize(("directions", "delta", "epsilon"), [row[1:] for row in TABLE[:7]], ids=[row[0] for row in TABLE[:7]])
def test_delta_of_epsilon_is_the_inverse(directions, delta, epsilon):
    bounds = [Composition(parts).delta(epsilon) for parts in directions]
    lower, upper = max(b.lower for b in bounds), max(b.upper for b in bounds)
    assert lower * (1 - 1e-4) <= delta <= upper * (1 + 1e-4)
    assert upper / lower - 1 <= 1e-3


@pytest.mark.parametrize(("directions", "delta", "epsilon"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_wrong_event_is_not_inside_the_bounds(directions, delta, epsilon):
    """The power of the table: half the noise or 90 % of the count gives bounds that exclude the reference."""
    if directions[0][0][1] < 10:
        return
    fewer = [[(pair, count - count // 10) for pair, count in parts] for parts in directions]
    assert max(Composition(parts).epsilon(delta).upper for parts in fewer) < epsilon * (1 - 1e-3)


def test_one_step_in_fifty_digits():
    mpmath.mp.dps = 50
    sigma, q = mpmath.mpf(10), mpmath.mpf("1e-3")
    for direction in ("remove", "add"):
        found = Composition([(SubsampledGaussianPair(10.0, 1e-3, direction), 1)]).epsilon(1e-8)
        for epsilon, side in ((found.lower, 1), (found.upper, -1)):
            e = mpmath.mpf(epsilon)
            if direction == "remove":
                x = sigma**2 * mpmath.log((mpmath.exp(e) - 1 + q) / q) + mpmath.mpf(1) / 2
                plain, moved = mpmath.ncdf(-x / sigma), mpmath.ncdf((1 - x) / sigma)
                delta = (1 - q) * plain + q * moved - mpmath.exp(e) * plain
            else:
                x = sigma**2 * mpmath.log((mpmath.exp(-e) - 1 + q) / q) + mpmath.mpf(1) / 2
                plain, moved = mpmath.ncdf(x / sigma), mpmath.ncdf((x - 1) / sigma)
                delta = plain - mpmath.exp(e) * ((1 - q) * plain + q * moved)
            assert side * (delta - mpmath.mpf("1e-8")) >= -mpmath.mpf("1e-17")
