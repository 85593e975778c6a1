"""The closed-form pairs against integrals in 40 digits, and against themselves."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from dither.accounting._pairs import (
    AtomsPair,
    GaussianPair,
    LaplacePair,
    MixtureGaussianPair,
    ReversedPair,
    SubsampledGaussianPair,
    gaussian_delta,
    gaussian_epsilon,
)
from dither.core.errors import InputError

PAIRS = [
    GaussianPair(0.7),
    GaussianPair(40.0),
    SubsampledGaussianPair(1.1, 0.01, "remove"),
    SubsampledGaussianPair(1.1, 0.01, "add"),
    SubsampledGaussianPair(50.0, 1e-5, "remove"),
    SubsampledGaussianPair(0.3, 0.3, "add"),
    SubsampledGaussianPair(2.0, 1.0, "remove"),
    MixtureGaussianPair(1.0, (0.81, 0.18, 0.01), "remove"),
    MixtureGaussianPair(1.0, (0.81, 0.18, 0.01), "add"),
    MixtureGaussianPair(0.8, (0.0, 0.5, 0.0, 0.5), "remove"),
    LaplacePair(1.0),
    LaplacePair(30.0),
    AtomsPair(np.array([-0.5, 0.5]), np.array([0.3, 0.7]), 0.0),
    ReversedPair(LaplacePair(2.0)),
    ReversedPair(SubsampledGaussianPair(1.1, 0.01, "add")),
]


def ids(pair):
    return type(pair).__name__


@pytest.mark.parametrize("pair", PAIRS, ids=ids)
class TestContract:
    def test_masses_add_up(self, pair):
        low, high = pair.span(-20.0)
        cells = pair.masses(np.linspace(low, high, 50))
        assert len(cells.p) == len(cells.q) == 51
        assert math.isclose(cells.p.sum() + cells.p_inf, 1, rel_tol=1e-13)
        assert cells.q.sum() <= 1 + 1e-12

    def test_span_holds_the_tails(self, pair):
        for log_tail in (-1.0, -5.0, -30.0, -200.0):
            low, high = pair.span(log_tail)
            assert math.isfinite(low)
            assert math.isfinite(high)
            cells = pair.masses(np.unique([low, high]))
            assert cells.p[0] <= math.exp(log_tail) * (1 + 1e-5)
            assert cells.p[-1] <= math.exp(log_tail) * (1 + 1e-5)

    def test_mass_ratio_is_the_loss(self, pair):
        """In every cell log(P/Q) lies between the ends: the law of L under P and under Q belong together."""
        low, high = pair.span(-60.0)
        edges = np.linspace(low, high, 400)
        cells = pair.masses(edges)
        for (left, right), p, q in zip(pairwise(edges), cells.p[1:-1], cells.q[1:-1], strict=True):
            if p > 1e-280 and q > 1e-280:
                slack = 1e-11 * (1 + abs(left))
                assert left - slack <= math.log(p / q) <= right + slack

    def test_cells_refine(self, pair):
        low, high = pair.span(-15.0)
        fine = np.linspace(low, high, 65)
        a, b = pair.masses(fine), pair.masses(fine[::8])
        sums = np.concatenate((a.p[:1], a.p[1:-1].reshape(8, 8).sum(axis=1), a.p[-1:]))
        np.testing.assert_allclose(sums, b.p, rtol=1e-11, atol=1e-300)


def test_subsampled_masses_against_mpmath():
    mpmath.mp.dps = 40
    s, q = mpmath.mpf("1.1"), mpmath.mpf(256) / 60000
    pair = SubsampledGaussianPair(1.1, 256 / 60000, "remove")
    for left, right in ((-0.004, -0.003), (-0.001, 0.0), (0.0, 1e-3), (0.5, 1.0), (6.0, 6.5)):
        cut = [s * s * mpmath.log((mpmath.exp(mpmath.mpf(e)) - 1 + q) / q) + mpmath.mpf(1) / 2 for e in (left, right)]

        def mass(mean, cut=cut):
            # As a difference of upper tails: both losses above 0 lie right of the mean.
            return (mpmath.erfc((cut[0] - mean) / s / mpmath.sqrt(2)) - mpmath.erfc((cut[1] - mean) / s / mpmath.sqrt(2))) / 2

        cells = pair.masses(np.array([left, right]))
        assert math.isclose(cells.q[1], mass(0), rel_tol=2e-12)
        assert math.isclose(cells.p[1], (1 - q) * mass(0) + q * mass(1), rel_tol=2e-12)


def test_add_is_remove_turned_round():
    edges = np.linspace(-0.01, 0.5, 30)
    remove = SubsampledGaussianPair(1.0, 0.01, "remove").masses(edges)
    add = SubsampledGaussianPair(1.0, 0.01, "add").masses(-edges[::-1])
    np.testing.assert_array_equal(remove.p, add.q[::-1])
    np.testing.assert_array_equal(remove.q, add.p[::-1])


def test_mixture_of_two_is_the_subsampled_pair():
    edges = np.linspace(-0.2, 3.0, 60)
    one = MixtureGaussianPair(1.3, (0.8, 0.2), "remove").masses(edges)
    two = SubsampledGaussianPair(1.3, 0.2, "remove").masses(edges)
    np.testing.assert_allclose(one.p, two.p, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(one.q, two.q, rtol=1e-10, atol=1e-300)


def test_narrow_cells_keep_their_digits():
    pair = GaussianPair(1.0)
    edges = 3.0 + 1e-9 * np.arange(3)
    cells = pair.masses(edges)
    density = math.exp(-0.5 * 2.5**2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(cells.p[1:-1], density * np.diff(edges), rtol=1e-7)
    assert abs(math.log(cells.p[1] / cells.q[1]) - 3.0) < 1e-8


def test_reversed_exchanges_the_laws_and_keeps_atoms_in_their_cells():
    inner = AtomsPair(np.array([-1.0, 0.0, 0.5]), np.array([0.1, 0.5, 0.3]), 0.1)
    pair = ReversedPair(inner, q_inf=1 - float((inner.p * np.exp(-inner.losses)).sum()))
    cells = pair.masses(np.array([-0.5, 0.0, 1.0]))
    np.testing.assert_allclose(cells.p, [0.3 * math.exp(-0.5), 0.5, 0.1 * math.e, 0.0])
    np.testing.assert_allclose(cells.q, [0.3, 0.5, 0.1, 0.0])
    assert math.isclose(cells.p.sum() + cells.p_inf, 1)


@pytest.mark.parametrize(
    ("losses", "p", "p_inf"),
    [
        ([0.0, 0.0], [0.5, 0.5], 0.0),
        ([1.0, 0.0], [0.5, 0.5], 0.0),
        ([0.0], [1.1], 0.0),
        ([0.0], [math.nan], 0.0),
        ([math.inf], [1.0], 0.0),
        ([-1.0, 1.0], [0.9, 0.1], 0.0),
        ([0.0, 1.0], [-0.1, 1.1], 0.0),
        ([0.0], [0.5], -0.5),
    ],
)
def test_a_law_that_is_none_is_refused(losses, p, p_inf):
    with pytest.raises(InputError):
        AtomsPair(np.array(losses), np.array(p), p_inf)


def test_unknown_direction_and_weights_are_refused():
    with pytest.raises(InputError, match="'remove'"):
        SubsampledGaussianPair(1.0, 0.1, "sideways")
    with pytest.raises(InputError, match="weights"):
        MixtureGaussianPair(1.0, (0.5, 0.4), "add")
    with pytest.raises(InputError, match="weights"):
        MixtureGaussianPair(1.0, (1.0, 0.0), "add")


def exact_delta(mu, epsilon):
    mpmath.mp.dps = 60
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("mu", [1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.6, 1.0, 5.0, 30.0, 1000.0])
def test_gaussian_delta(mu):
    for z in (-6.0, -2.0, -0.4, 0.0, 1.0, 3.0, 7.0, 9.0, 12.0, 20.0, 35.0):
        epsilon = max(0.0, mu * (mu / 2 + z))
        want = exact_delta(mu, epsilon)
        if want > 1e-290:
            assert math.isclose(gaussian_delta(mu, epsilon), want, rel_tol=3e-12), (mu, z)


@pytest.mark.parametrize("mu", [1e-9, 0.01, 0.5, 1.0, 10.0, 1000.0])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-30, 1e-200])
def test_gaussian_epsilon_inverts(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon == 0:
        assert exact_delta(mu, 0) <= delta * (1 + 1e-12)
    else:
        assert exact_delta(mu, epsilon * (1 + 1e-11)) <= delta <= exact_delta(mu, epsilon * (1 - 1e-11))
