"""Rare large losses at tiny δ: the tail that no single tilt can follow, against quadrature in 40 digits and against counting."""

import math

import mpmath
import numpy as np
import pytest

from dither import events as ev
from dither.accounting import loss
from dither.accounting._compose import Composition
from dither.accounting._fourier import Window, log_moments, log_sums, product, tilted_weights
from dither.accounting._grid import Law
from dither.accounting._jumps import by_one, cut, jumped
from dither.accounting._lattice import Tilt, laws, spanned
from dither.accounting._pairs import AtomsPair, GaussianPair, LaplacePair, SubsampledGaussianPair


def twice(noise, share, epsilon):
    """δ of two sampled Gaussians, by quadrature over the first and the formula for the second."""
    with mpmath.workdps(40):
        s, q, e = mpmath.mpf(noise), mpmath.mpf(share), mpmath.mpf(epsilon)

        def place(value):
            return s * s * mpmath.log((mpmath.expm1(value) + q) / q) + mpmath.mpf(1) / 2

        def above(x):
            return mpmath.erfc(x / mpmath.sqrt(2)) / 2

        def once(x):
            own = mpmath.log1p(q * mpmath.expm1((x - mpmath.mpf(1) / 2) / (s * s)))
            left, mass = e - own, (1 - q) * mpmath.npdf(x, 0, s) + q * mpmath.npdf(x, 1, s)
            if left <= mpmath.log1p(-q):
                return mass * -mpmath.expm1(left)
            at = place(left)
            return mass * ((1 - q) * above(at / s) + q * above((at - 1) / s) - mpmath.exp(left) * above(at / s))

        far = place(e)
        ends = sorted([k * s for k in (-16, -8, -4, -2, 0, 2, 4, 6, 8, 10)] + [far + k * s / 2 for k in (-8, -4, -2, -1, 0, 1, 2, 4, 24)])
        return mpmath.quad(once, ends, maxdegree=5)


@pytest.mark.parametrize(
    ("noise", "share", "delta"),
    [
        (1.705, 1.16e-6, 2.62e-25),
        (1.903, 4.3e-6, 1.11e-30),
        (0.599, 9.68e-3, 2.95e-27),
        (4.7828586106904005, 0.02301647582167744, 1.708555904698426e-23),  # tilted by e^700, the bulk must not fall out of the moments
    ],
)
def test_two_releases_at_a_tiny_delta_are_bounded_on_both_sides_of_quadrature(noise, share, delta):
    pair = SubsampledGaussianPair(noise, share, "remove")
    found = Composition([(pair, 2)]).epsilon(delta)
    assert found.upper / found.lower - 1 <= 1e-3
    assert twice(noise, share, found.lower) >= delta
    back, exact = Composition([(pair, 2)]).delta(found.upper), twice(noise, share, found.upper)
    assert back.lower <= exact <= back.upper <= 1.001 * back.lower
    assert exact <= delta


CASES = [  # noise, probability, count, δ, and about how wide a single tilt left it
    (1.065809, 1.80999e-5, 1474, 5.5713e-22, 39.0),
    (0.992922, 2.23477e-5, 4, 1.4117e-16, 6.8),
    (0.407240, 2.20503e-4, 40, 1.7226e-16, 0.0003),
    (0.9063071236836665, 7.239105690950291e-6, 1798, 6.470042995274797e-29, 288.0),
    (0.6133720944008074, 1.0383892204098934e-6, 25, 6.118873864754582e-22, 1.9e6),
    (2.86300102161878, 9.824815110690591e-6, 85, 1.4882408572995483e-29, 0.16),  # more than one large loss
    (1.5116768668984124, 2.6658172790577254e-5, 85795, 9.07123873868906e-27, 0.26),
    (0.43105105986752895, 1.6516898789873934e-6, 2, 5.502825553547116e-26, 2.2),
    (1.297802167155034, 0.0005719514877034696, 3, 3.5866617287963663e-28, 0.0026),
]


@pytest.mark.parametrize(("noise", "probability", "count", "delta", "_was"), CASES)
def test_bounds_stay_tight_at_tiny_deltas(noise, probability, count, delta, _was):
    event = ev.Repeat(ev.Subsample(ev.Gaussian(noise), ev.Poisson(probability)), count)
    found = loss(event).epsilon(delta)
    assert 0 < found.lower <= found.upper <= 1.001 * found.lower
    alone = loss(event).epsilon_upper(delta)
    assert found.lower <= alone <= 1.01 * found.upper  # without the other side, too: budgets are paid by this one


def test_the_upper_bound_is_above_any_single_large_loss_and_falls_with_noise():
    """n·(δ of one release) is nearly all of δ(ε) far out, and the bound may not lie below it."""
    before = math.inf
    for noise in (0.9, 1.0, 1.1):
        pair = SubsampledGaussianPair(noise, 2e-5, "remove")
        found = Composition([(pair, 500)]).epsilon(1e-22)
        cells = pair.masses(np.array([found.upper]))
        assert 500 * float(cells.p[-1] - math.exp(found.upper) * cells.q[-1]) <= 1e-22 * 1.02
        assert found.upper < before
        before = found.lower


def small_law(rng):
    index = np.unique(rng.integers(-6, 30, 12))
    p = rng.uniform(0.0, 1.0, len(index)) * np.exp(-2.0 * np.arange(len(index)))
    return Law(index, p / p.sum(), 0.0, 0.0, 0.05)


def powers(law, count):
    dense = np.zeros(int(law.index[-1] - law.index[0]) + 1)
    dense[law.index - law.index[0]] = law.p
    made = np.ones(1)
    for _ in range(count):
        made = np.convolve(made, dense)
    return count * int(law.index[0]), made


@pytest.mark.parametrize("counts", [(1,), (5,), (3, 4)])
@pytest.mark.parametrize("tilt", [0.0, 2.0, 15.0])
def test_sums_with_a_jump_are_all_sums_less_those_without(counts, tilt):
    rng = np.random.default_rng(5)
    for _ in range(5):
        laws = [small_law(rng) for _ in counts]
        cuts = [len(law.p) - 3 for law in laws]
        first, whole = 0, np.ones(1)
        start, without = 0, np.ones(1)
        for law, k, count in zip(laws, cuts, counts, strict=True):
            at, made = powers(law, count)
            first, whole = first + at, np.convolve(whole, made)
            at, made = powers(Law(law.index[:k], law.p[:k], 0.0, 0.0, law.step), count)
            start, without = start + at, np.convolve(without, made)
        exact = whole.copy()
        exact[start - first : start - first + len(without)] -= without
        made = jumped(laws, cuts, counts, tilt, Window(0.05 * first, 1.0, 0.05 * len(whole) + 1.0, 1.0, 1.0))
        places = np.rint(made.losses / 0.05).astype(int) - first
        inside = (places >= 0) & (places < len(exact))
        found = (made.tilted * np.exp(made.log_mass - tilt * made.losses))[inside]
        scale = np.exp(made.log_mass - tilt * made.losses)[inside]
        assert (np.abs(found - exact[places[inside]]) <= made.rounding * scale + 4e-16 * whole[places[inside]]).all()
        assert made.rounding <= 1e-10


def test_what_jumps_is_right_to_a_share_of_itself_however_rare_it_is():
    """A loss of mass 1e-250 beside one of mass 1: differences of powers would have lost it long before."""
    for rare in (1e-20, 1e-100, 1e-250):
        law = Law(np.array([0, 40]), np.array([1.0, rare]), 0.0, 0.0, 0.1)
        made = jumped([law], [1], [1000], 0.0, Window(4.0, 3.0, 3.0, 1.0, 1.0))
        assert made.log_mass == pytest.approx(math.log(1000 * rare), rel=1e-12)
        assert made.tilted.sum() == pytest.approx(1.0, abs=1e-9)
        assert made.losses[int(np.argmax(made.tilted))] == pytest.approx(4.0)
        assert made.rounding < 1e-9


def test_masses_outside_the_window_are_counted():
    """What the circle folds in is bounded from the left and from the right, by the moments of the sums with a jump."""
    law = Law(np.array([0, 10, 60]), np.array([0.9, 1e-3, 1e-6]), 0.0, 0.0, 0.1)
    narrow = jumped([law], [1], [3], 0.5, Window(1.5, 1.0, 1.0, 5.0, 5.0))
    assert narrow.right >= 1e-6 * math.exp(3.0) / math.exp(narrow.log_mass) * 0.9
    assert jumped([law], [1], [3], 0.5, Window(10.0, 15.0, 15.0, 8.0, 8.0)).right < 1e-6
    assert jumped([law], [1], [3], 0.5, Window(10.0, 9.5, 20.0, 8.0, 8.0)).left > 1e-6


def test_moments_keep_what_weighs_little_under_the_tilt():
    law = Law(np.array([0, 100_000]), np.array([1.0, 1e-280]), 0.0, 0.0, 1e-4)
    for tilt in (60.0, 64.0, 68.0, 72.0):
        with mpmath.workdps(50):
            exact = mpmath.log(1 + mpmath.mpf(1e-280) * mpmath.exp(tilt * mpmath.mpf(10)))
            share = 1 / (1 + mpmath.mpf(1e-280) * mpmath.exp(tilt * mpmath.mpf(10)))
        assert float(log_moments(law, np.array([tilt]))[0]) == pytest.approx(float(exact), rel=1e-11, abs=1e-13)
        assert float(log_sums(law.losses, law.p, np.array([tilt]))[0]) == pytest.approx(float(exact), rel=1e-11, abs=1e-13)
        assert float(tilted_weights(law, tilt)[0]) == pytest.approx(float(share), rel=1e-11)
    slight = Law(np.array([0, 10_000]), np.array([1.0, 1e-310]), 0.0, 0.0, 0.1)
    assert float(tilted_weights(slight, 0.72)[1]) == pytest.approx(1 / (1 + math.exp(-0.72 * 1000 - math.log(1e-310))), rel=1e-9)
    assert log_sums(np.zeros(2), np.zeros(2), np.zeros(1))[0] == -math.inf


def test_two_tilts_are_powers_of_one_law():
    """Product and moments of a law whose far end outweighs its bulk by e^800 under the tilt."""
    law = Law(np.array([0, 40]), np.array([1.0, 1e-290]), 0.0, 0.0, 0.5)
    made = product([law], [2], 33.0, Window(0.0, 5.0, 45.0, 1.0, 1.0))
    p = made.tilted * np.exp(made.log_mass - 33.0 * made.losses)
    at = {round(x / 0.5): v for x, v in zip(made.losses, p, strict=True)}
    assert at[0] == pytest.approx(1.0, rel=1e-9)
    assert at[40] == pytest.approx(2e-290, rel=1e-9)


def test_a_steep_fall_beside_the_bulk_does_not_cost_the_tail():
    """A law from below on a lattice coarser than the bulk keeps what is far out, and is below all the same."""
    pair = SubsampledGaussianPair(1.2978, 5.7195e-4, "remove")
    one = spanned([(pair, 3)], math.log(3.6e-28), 18.0)[0]
    law = laws(one, Tilt(23.0, 1.0, 1.0, 1.0, 1.0, -63.0), 0.0048, 1e-4, both=True)[1]
    assert law is not None
    for epsilon in (0.0, 0.004, 0.1, 0.5, 1.0, 1.5):
        cells = pair.masses(np.array([epsilon]))
        exact = float(cells.p[-1] - math.exp(epsilon) * cells.q[-1])
        found = float(law.p @ np.maximum(-np.expm1(epsilon - law.losses), 0.0))
        assert found <= exact * (1 + 1e-9)
        assert found >= 0.95 * exact or epsilon < 0.1


def test_where_no_single_loss_makes_up_for_the_sum_there_is_nothing_to_cut():
    """Losses below log 1/(1 − q) have no tail to follow: the place found is a cliff."""
    parts = spanned([(SubsampledGaussianPair(0.6, 1e-4, "add"), 50)], math.log(1e-20), 18.0)
    assert cut(parts, math.log(1e-20), 0.0, 1e-4) is None
    parts = spanned([(SubsampledGaussianPair(1.0, 1e-4, "remove"), 50)], math.log(1e-20), 18.0)
    found = cut(parts, math.log(1e-20), 0.0, 5.0)
    assert found is not None
    assert 0 < found.place < found.target
    assert by_one(parts, found.target)[0] == pytest.approx(1e-20, rel=1e-6)


def test_atoms_jump_as_well():
    """Two outcomes, one rare and large, and a third of the same kind that is the only way to a great loss."""
    rare = AtomsPair(np.array([-0.01, 0.01, 3.0]), np.array([0.4975, 0.5025, 1e-18]), 0.0)
    other = SubsampledGaussianPair(1.0, 1e-5, "remove")
    found = Composition([(rare, 7), (other, 50)]).epsilon(1e-18)
    exact = 7 * 1e-18 * -math.expm1(found.lower - 3.0)
    assert found.lower <= found.upper <= found.lower * 1.01
    assert exact == pytest.approx(1e-18, rel=0.2)


def test_failing_parts_stand_beside_the_tail():
    pair = SubsampledGaussianPair(1.0, 2e-5, "remove")
    plain = Composition([(pair, 100)]).epsilon(1e-20)
    failing = Composition([(pair, 100)], p_inf=3e-21)
    assert failing.epsilon(1e-20 + 3e-21).lower <= plain.upper
    assert failing.epsilon(1e-20 + 3e-21).upper >= plain.lower * (1 - 1e-6)
    shifted = Composition([(pair, 100), (AtomsPair(np.array([0.25]), np.array([1.0])), 1)]).epsilon(1e-20)
    assert shifted.lower == pytest.approx(plain.lower + 0.25, rel=1e-3)
    assert shifted.upper == pytest.approx(plain.upper + 0.25, rel=1e-3)
    assert failing.delta(plain.upper).upper >= 3e-21


def test_parts_that_lie_beyond_every_cut_are_followed_whole():
    """A Gaussian of ε about 90 beside a sampled one: there is no cut below which both have losses."""
    for parts in (
        [(GaussianPair(0.7), 73), (SubsampledGaussianPair(1.0, 0.001, "remove"), 64)],
        [(LaplacePair(3.7), 1), (GaussianPair(0.7), 59)],
        [(LaplacePair(0.5), 1), (GaussianPair(0.7), 120)],
    ):
        for delta in (0.01, 1e-6, 1e-14):
            found, turned = Composition(parts).epsilon(delta), Composition(parts[::-1]).epsilon(delta)
            assert found.lower <= turned.upper * (1 + 1e-9)
            assert turned.lower <= found.upper * (1 + 1e-9)
            assert found.upper <= found.lower * 1.001
