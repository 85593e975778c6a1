"""Composition at its corners: one release, none, many, too many, tiny, huge, certain, impossible."""

import math
import warnings

import mpmath
import numpy as np
import pytest

from dither.accounting._compose import Composition
from dither.accounting._finite import STATES_MAX, finite, states
from dither.accounting._fourier import Window, product
from dither.accounting._grid import Law
from dither.accounting._lattice import NotSmoothError, laws, part, tilt
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
from dither.accounting._power import Power
from dither.core.errors import InputError


def response(epsilon):
    heads = 1 / (1 + math.exp(-epsilon))
    return AtomsPair(np.array([-epsilon, epsilon]), np.array([1 - heads, heads]), 0.0, epsilon)


def tight(bound, relative=1e-3, absolute=1e-6):
    return bound.upper - bound.lower <= max(relative * bound.lower, absolute)


def test_nothing_costs_nothing():
    nothing = Composition([])
    assert nothing.epsilon(0.0).upper == 0
    assert nothing.delta(0.0).upper == 0


def test_gaussians_merge_exactly():
    parts = [(GaussianPair(5.0), 60), (GaussianPair(2.5), 10)]
    mu = math.sqrt(60 / 25 + 10 / 6.25)
    assert math.isclose(Composition(parts).epsilon_upper(1e-6), gaussian_epsilon(mu, 1e-6), rel_tol=1e-10)
    assert math.isclose(
        Composition([(SubsampledGaussianPair(5.0, 1.0, "add"), 60)]).delta_upper(1.0), gaussian_delta(math.sqrt(2.4), 1.0), rel_tol=1e-10
    )


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9, 1e-20, 1e-30])
def test_full_batches_on_the_lattice_against_the_formula(delta, direction):
    """A mixture that is a plain Gaussian goes through the lattice, and must land on the formula."""
    pair = MixtureGaussianPair(5.0, (0.0, 1.0), direction)
    found = Composition([(pair, 100)]).epsilon(delta)
    exact = gaussian_epsilon(2.0, delta)
    assert found.lower <= exact <= found.upper
    assert tight(found)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 10.0, 20.0])
def test_delta_on_the_lattice_against_the_formula(epsilon):
    found = Composition([(MixtureGaussianPair(5.0, (0.0, 1.0), "remove"), 100)]).delta(epsilon)
    assert found.lower <= gaussian_delta(2.0, epsilon) <= found.upper
    assert found.upper / found.lower - 1 <= 2e-3


@pytest.mark.parametrize(("count", "noise"), [(10**7, 1e2), (10**9, 1e3), (10**12, 1e4)])
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_huge_counts_approach_the_gaussian_limit(count, noise, direction):
    probability = noise / math.sqrt(count)
    found = Composition([(SubsampledGaussianPair(noise, probability, direction), count)]).epsilon(1e-5)
    limit = gaussian_epsilon(probability * math.sqrt(count * math.expm1(noise**-2)), 1e-5)
    assert tight(found)
    assert abs(found.upper / limit - 1) < 2e-3


def test_counts_of_every_size_agree_with_each_other():
    """The lattice, the characteristic function and mixtures of both give one answer."""
    pair = SubsampledGaussianPair(2.0, 0.001, "remove")
    for count in (10**4, 10**6, 10**8):
        whole = Composition([(pair, count)]).epsilon(1e-6)
        parts = Composition([(pair, count - count // 3), (MixtureGaussianPair(2.0, (0.999, 0.001), "remove"), count // 3)]).epsilon(1e-6)
        assert tight(whole)
        assert whole.lower <= parts.upper
        assert parts.lower <= whole.upper


def test_parts_of_very_different_size():
    small = SubsampledGaussianPair(50.0, 1e-5, "remove")
    alone = gaussian_epsilon(1.0, 1e-5)
    found = Composition([(GaussianPair(1.0), 1), (small, 10**6)]).epsilon(1e-5)
    assert alone * (1 - 1e-6) <= found.upper <= alone * 1.0001
    assert tight(found)


def test_delta_zero():
    assert math.isclose(Composition([(LaplacePair(10.0), 100)]).epsilon_upper(0.0), 10.0, rel_tol=1e-12)
    assert Composition([(LaplacePair(10.0), 100), (response(0.5), 4)]).epsilon_upper(0.0) == pytest.approx(12.0, rel=1e-12)
    assert Composition([(GaussianPair(10.0), 3)]).epsilon_upper(0.0) == math.inf
    assert Composition([(LaplacePair(10.0), 1)], p_inf=1e-9).epsilon_upper(0.0) == math.inf
    assert Composition([(response(0.5), 1)]).epsilon_upper(0.0) == 0.5


def test_pure_events_never_cost_more_than_their_sum():
    for delta in (1e-6, 1e-30, 1e-200):
        assert Composition([(response(0.25), 8)]).epsilon_upper(delta) <= 2.0
        assert Composition([(LaplacePair(4.0), 8)]).epsilon_upper(delta) <= 2.0


def test_large_deltas_cost_nothing():
    pair = SubsampledGaussianPair(1.1, 0.004, "remove")
    for delta in (0.5, 0.9, 0.999999):
        assert Composition([(pair, 4_000)]).epsilon(delta).upper == 0
    total_variation = Composition([(pair, 4_000)]).delta(0.0)
    assert Composition([(pair, 4_000)]).epsilon(total_variation.upper * 1.001).lower == 0
    assert Composition([(pair, 4_000)]).epsilon(total_variation.lower * 0.99).upper > 0


def test_complete_failure_is_paid_first():
    parts = [(LaplacePair(2.0), 10)]
    plain, failing = Composition(parts), Composition(parts, p_inf=1e-7)
    assert failing.epsilon_upper(1e-7 * 0.999) == math.inf
    assert failing.epsilon(1e-5).upper >= plain.epsilon(1e-5).lower
    exact = plain.delta(1.0)
    found = failing.delta(1.0)
    assert found.lower <= 1e-7 + (1 - 1e-7) * exact.upper
    assert found.upper >= 1e-7 + (1 - 1e-7) * exact.lower
    leaky = AtomsPair(np.array([0.0]), np.array([1 - 1e-8]), 1e-8)
    assert Composition([(leaky, 10), *parts]).delta(1.0).lower > 9.9e-8 + exact.lower * 0.999
    assert Composition([(GaussianPair(1.0), 1)], p_inf=1.0).delta(3.0).lower == 1


def test_a_delta_below_what_fails_for_sure_is_never_enough():
    """A digit in the thirteenth place below p_inf is below it: no ε will do."""
    for parts in ([(response(0.5), 3)], [(LaplacePair(2.0), 4)], []):
        composition = Composition(parts, p_inf=1e-6)
        for share in (1 - 1e-13, 1 - 3e-15, 0.5):
            assert composition.epsilon(1e-6 * share).lower == math.inf
            assert composition.epsilon_upper(1e-6 * share) == math.inf
        at = composition.epsilon(1e-6 * (1 + 1e-13))
        assert at.lower <= at.upper < math.inf
        beyond = composition.epsilon(1e-6 * (1 + 1e-9))
        assert at.lower <= beyond.upper <= at.upper * (1 + 1e-12)
    assert Composition([(response(0.5), 3)], p_inf=1e-6).epsilon_upper(1e-6 * (1 + 1e-13)) == pytest.approx(1.5, rel=1e-12)


def test_one_loss_only():
    """A law with a single loss has nothing to add up: it shifts ε."""
    sure = AtomsPair(np.array([0.7]), np.array([1.0]))
    assert Composition([(sure, 3)]).delta(0.0).upper == pytest.approx(-math.expm1(-2.1))
    both = Composition([(sure, 3), (LaplacePair(2.0), 5)])
    assert both.epsilon(1e-6).lower <= 2.1 + Composition([(LaplacePair(2.0), 5)]).epsilon(1e-6).upper
    assert both.epsilon(1e-6).upper >= 2.1 + Composition([(LaplacePair(2.0), 5)]).epsilon(1e-6).lower


def test_too_much_and_too_little_noise_still_give_valid_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for noise, probability, count in [
            (1e12, 1e-12, 10**12),
            (1e12, 0.1, 10**12),
            (1e-3, 0.01, 1_000),
            (1e-3, 0.5, 2),
            (1e-3, 1e-12, 3),
        ]:
            for direction in ("remove", "add"):
                composition = Composition([(SubsampledGaussianPair(noise, probability, direction), count)])
                found = composition.epsilon(1e-6)
                assert 0 <= found.lower <= found.upper
                assert not math.isnan(found.upper)
                assert tight(found) or composition.notes
                low, high = composition.delta(1.0).lower, composition.delta(1.0).upper
                assert 0 <= low <= high <= 1


def test_a_nearly_constant_loss():
    """With σ = 1e-3 the added record is certain to show when sampled, so absence alone is seen: 1000 losses of −log(1−q)."""
    found = Composition([(SubsampledGaussianPair(1e-3, 0.01, "add"), 1_000)]).epsilon(1e-5)
    assert found.lower <= -1_000 * math.log1p(-0.01) * (1 + 1e-9) <= found.upper * (1 + 1e-9)
    assert tight(found)


def test_notes_say_what_is_wide():
    composition = Composition([(SubsampledGaussianPair(1e12, 0.1, "remove"), 10**12)])
    composition.epsilon(1e-6)
    assert any("wide" in note for note in composition.notes)
    fine = Composition([(LaplacePair(2.0), 10)])
    fine.epsilon(1e-6)
    assert fine.notes == []


@pytest.mark.parametrize(
    ("parts", "delta"),
    [
        ([(SubsampledGaussianPair(1.1, 0.004, "remove"), 4_000)], 1e-5),
        ([(SubsampledGaussianPair(1.1, 0.004, "add"), 4_000)], 1e-20),
        ([(LaplacePair(10.0), 100)], 1e-6),
        ([(LaplacePair(2.0), 10), (GaussianPair(5.0), 20)], 1e-12),
        ([(SubsampledGaussianPair(50.0, 1e-5, "remove"), 10**6)], 1e-6),
        ([(GaussianPair(1.0), 1)], 1e-9),
    ],
)
def test_atoms_are_just_above(parts, delta):
    whole = Composition(parts)
    nested = Composition([(whole.atoms(), 1)]).epsilon(delta)
    exact = whole.epsilon(delta)
    assert exact.lower <= nested.upper <= exact.upper * 1.002


@pytest.mark.parametrize(
    ("pair", "count", "delta", "loose"),
    [
        (LaplacePair(1 / 4.125), 2, 1e-3, 1.001),  # all but a hair of the mass is on one loss: nothing may be taken from it
        (LaplacePair(1 / 8.0), 2, 1e-3, 1.001),
        (response(4.125), 2, 1e-3, 1.001),
        (response(0.01), 2, 1e-6, 1.001),
        (SubsampledGaussianPair(0.2, 0.01, "add"), 10, 1e-3, 1.2),  # a largest loss of 0.1, and of 100 the other way round
        (SubsampledGaussianPair(0.2, 0.01, "add"), 2, 1e-3, 1.2),
    ],
)
def test_atoms_are_never_below(pair, count, delta, loose):
    whole = Composition([(pair, count)])
    nested = whole.atoms()
    exact = whole.epsilon(delta)
    assert exact.lower <= Composition([(nested, 1)]).epsilon(delta).upper <= exact.upper * loose
    assert float(nested.p.sum()) + nested.p_inf == pytest.approx(1.0, abs=1e-12)
    assert nested._q.sum() <= 1 + 1e-12


def test_what_is_boxed_bounds_both_ways():
    """A bound on ε one way says nothing of the total variation distance: the reverse, where losses are larger, has to be bounded too."""
    pair = SubsampledGaussianPair(0.2, 0.01, "add")
    edges = np.array([-50.0, -1.0, -0.01, 0.0, 0.02, 0.09])
    for whole in (Composition([(pair, 10)]), Composition([(ReversedPair(pair), 10)])):
        made = whole._boxed()
        for epsilon in edges[edges >= 0].tolist():
            assert made.p_inf + float(made.p @ np.maximum(-np.expm1(epsilon - made.losses), 0.0)) >= whole.delta(epsilon).lower


def test_atoms_of_halves_make_the_whole():
    half = Composition([(SubsampledGaussianPair(1.1, 0.004, "remove"), 2_000)]).atoms()
    whole = Composition([(SubsampledGaussianPair(1.1, 0.004, "remove"), 4_000)]).epsilon(1e-5)
    assert whole.lower <= Composition([(half, 2)]).epsilon(1e-5).upper <= whole.upper * 1.002


def test_finite_laws_are_enumerated():
    pair = AtomsPair(np.array([-0.7, 0.1, 0.9]), np.array([0.2, 0.4, 0.4]))
    assert states([(pair, 20)]) == math.comb(22, 2)
    assert states([(pair, 10**9)]) > STATES_MAX
    made = finite([(pair, 3)], 0.0, 1.0)
    direct = 0.0
    for a in range(4):
        for b in range(4 - a):
            c = 3 - a - b
            ways = math.factorial(3) // (math.factorial(a) * math.factorial(b) * math.factorial(c))
            direct += ways * 0.2**a * 0.4 ** (b + c) * max(0.0, -math.expm1(1.0 - (-0.7 * a + 0.1 * b + 0.9 * c)))
    assert made.delta(1.0)[0] <= direct <= made.delta(1.0)[1]


def test_finite_and_lattice_agree():
    parts = [(response(0.5), 50), (response(0.3), 20)]
    exact, grid = Composition(parts), Composition(parts)
    grid._made = None
    for delta in (0.1, 1e-6, 1e-12, 1e-30):
        a, b = exact.epsilon(delta), grid.epsilon(delta)
        assert b.lower <= a.upper * (1 + 1e-12)
        assert a.lower <= b.upper * (1 + 1e-12)
        assert tight(b, 2e-3)


def test_power_against_the_direct_product():
    """The characteristic function and the FFT give the same law of a sum."""
    one = part(SubsampledGaussianPair(2.0, 0.01, "remove"), 5_000, log_low=-25.0, log_high=-40.0)
    chosen = tilt([one], log_delta=math.log(1e-6))
    law, _ = laws(one, chosen, 2e-4, 1e-7, both=False)
    power = Power(law, 5_000, chosen, -30.0, 0.002)
    made = product(
        [law], [5_000], chosen.value, Window(power.center, 8 * power.spread, 8 * power.spread, 1 / power.spread, 1 / power.spread)
    )
    p = made.tilted * np.exp(made.log_mass - chosen.value * made.losses)

    def profile(losses, masses, epsilon):
        return float(masses @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0))))

    above, below = power.above(0.002), power.below(0.002, 1e-6)
    for epsilon in power.center + power.spread * np.linspace(-3, 3, 25):
        exact = profile(made.losses, p, epsilon)
        assert exact <= profile(above.losses, above.p, epsilon) * (1 + 1e-7)
        assert exact >= profile(below.losses, below.p, epsilon) * (1 - 1e-7)
        assert profile(above.losses, above.p, epsilon) <= 1.01 * profile(below.losses, below.p, epsilon)


def test_power_refuses_what_it_cannot_prove_smooth():
    one = part(response(0.5), 3, log_low=-20.0, log_high=-20.0)
    chosen = tilt([one], log_delta=-10.0)
    with pytest.raises(NotSmoothError):
        Power(Law(np.array([-1, 1]), np.array([0.4, 0.6]), 0.0, 0.0, 0.5), 3, chosen, -20.0, 0.1)


def test_reversed_twice_is_the_same_price():
    pair = SubsampledGaussianPair(1.0, 0.05, "remove")
    plain = Composition([(pair, 50)]).epsilon(1e-6)
    other = Composition([(ReversedPair(SubsampledGaussianPair(1.0, 0.05, "add")), 50)]).epsilon(1e-6)
    assert plain.lower <= other.upper * (1 + 1e-9)
    assert other.lower <= plain.upper * (1 + 1e-9)
    assert tight(other)


class TwoAtomsAndMore:
    """Laplace noise on a Poisson batch: two atoms on no common lattice, and a density between them."""

    def __init__(self, q):
        self.q = q
        self.inner = LaplacePair(1.0)

    def _moved(self, edges):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.clip(np.nan_to_num(np.log((np.expm1(edges) + self.q) / self.q), nan=-50.0, neginf=-50.0), -50, 50)

    def masses(self, edges):
        cells = self.inner.masses(self._moved(edges))
        return type(cells)(self.q * cells.p + (1 - self.q) * cells.q, cells.q, 0.0)

    def span(self, log_tail):
        del log_tail
        return math.nextafter(math.log1p(self.q * math.expm1(-1.0)), -1), math.nextafter(math.log1p(self.q * math.expm1(1.0)), 1)

    def std(self):
        return self.q

    def lattice(self):
        return 0.0


def test_atoms_are_found_where_no_lattice_is_named():
    found = Composition([(TwoAtomsAndMore(0.1), 200)]).epsilon(1e-6)
    assert tight(found, 2e-3)
    assert 0 < found.lower < 200 * math.log1p(0.1 * math.expm1(1.0))


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan, math.inf, "x", None, True])
def test_bad_deltas_are_refused(delta):
    with pytest.raises(InputError, match="delta"):
        Composition([(GaussianPair(1.0), 1)]).epsilon(delta)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf, "x", None])
def test_bad_epsilons_are_refused(epsilon):
    with pytest.raises(InputError, match="epsilon"):
        Composition([(GaussianPair(1.0), 1)]).delta(epsilon)


@pytest.mark.parametrize("count", [0, -1, 1.5, 10**15 + 1, True])
def test_bad_counts_are_refused(count):
    with pytest.raises(InputError, match="count"):
        Composition([(GaussianPair(1.0), count)])


def test_a_single_subsampled_release_in_fifty_digits():
    mpmath.mp.dps = 50
    sigma, q, epsilon = mpmath.mpf("0.8"), mpmath.mpf("0.02"), mpmath.mpf("0.75")
    x = sigma**2 * mpmath.log((mpmath.exp(epsilon) - 1 + q) / q) + mpmath.mpf(1) / 2
    exact = (1 - q) * mpmath.ncdf(-x / sigma) + q * mpmath.ncdf((1 - x) / sigma) - mpmath.exp(epsilon) * mpmath.ncdf(-x / sigma)
    found = Composition([(SubsampledGaussianPair(0.8, 0.02, "remove"), 1)]).delta(0.75)
    assert found.lower <= exact <= found.upper
    assert found.upper / found.lower - 1 < 1e-10


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_one_sampled_release_by_the_closed_form(direction):
    """Against Φ in 60 digits: a few 1e-12 of δ itself, however small it is."""
    with mpmath.workdps(60):
        for std, q, epsilon in [
            (1.0, 0.01, 0.0),
            (0.3, 0.2, 3.0),
            (1e4, 1e-6, 0.0),
            (50.0, 1e-3, 1e-5),
            (2.0, 0.9, 0.5),
            (0.05, 1e-8, 40.0),
        ]:
            share, alpha = mpmath.mpf(q), mpmath.exp(epsilon)
            kept = share if direction == "remove" else 1 - alpha * (1 - share)
            at = 1 + (alpha - 1) / share if direction == "remove" else (alpha * share / kept if kept > 0 else None)
            found = Composition([(SubsampledGaussianPair(std, q, direction), 1)]).delta(epsilon)
            if at is None:
                assert found.upper <= 1e-300
                continue
            mu, loss = 1 / mpmath.mpf(std), mpmath.log(at)
            exact = kept * (mpmath.ncdf(mu / 2 - loss / mu) - at * mpmath.ncdf(-mu / 2 - loss / mu))
            assert found.lower <= exact <= found.upper
            assert found.upper <= exact * (1 + mpmath.mpf("1e-10"))


def test_a_delta_too_small_for_a_float_is_not_told_as_none():
    assert Composition([(GaussianPair(100.0), 1)]).delta(10.0).upper > 0
    assert Composition([(SubsampledGaussianPair(100.0, 0.1, "remove"), 1)]).delta(10.0).upper > 0
    assert Composition([(SubsampledGaussianPair(100.0, 0.1, "add"), 1)]).delta(10.0).upper == 0  # no loss is above log(1/0.9)
