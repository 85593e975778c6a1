"""The bounds for when no lattice will do: each against the formula of its proof, worked out here from the atoms, and against the truth."""

import math

import numpy as np
import pytest

from dither.accounting._compose import Composition
from dither.accounting._pairs import AtomsPair, GaussianPair, LaplacePair, SubsampledGaussianPair

ATOMS = {-2.0: 0.02, -0.5: 0.19, 0.4: 0.79 - 3e-9 - 1e-10, 3.0: 3e-9}
FAILS = 1e-10
SMALL = {-0.02: 0.17, 0.0: 0.58, 0.015: 0.25}


def leaky():
    return AtomsPair(np.array(list(ATOMS)), np.array(list(ATOMS.values())), FAILS)


def by_hand(parts, delta, p_inf, shift=0.0):
    """Proof (a): losses cut to [−b, b], the mean by tanh, Hoeffding for the rest."""
    count = sum(c for _, c, _ in parts)
    each = (delta - p_inf) / (8 * count)
    linear = square = plain = 0.0
    spent = p_inf
    for atoms, c, fails in parts:
        b = min(x for x in sorted(atoms) if sum(p for y, p in atoms.items() if y > x) <= each)
        q = {x: p * math.exp(-x) for x, p in atoms.items()}
        outside = sum(v for x, v in q.items() if x <= -b or x > b)
        unseen = max(0.0, 1 - sum(q.values()))
        spent += c * (sum(p for x, p in atoms.items() if x > b) + fails)
        linear += c * min(b, b * math.tanh(b / 2) + outside + unseen)
        square += c * b * b
        plain += c * b
    assert spent < delta
    return max(0.0, shift + min(plain, linear + math.sqrt(2 * square * -math.log(delta - spent))))


def as_pair(atoms):
    return AtomsPair(np.array(list(atoms)), np.array(list(atoms.values())), 0.0)


@pytest.mark.parametrize(
    ("counts", "delta", "p_inf", "shift"),
    [
        ((40, 0), 1e-5, 0.0, 0.0),
        ((400, 300), 1e-6, 0.0, 0.0),
        ((30, 20), 1e-5, 4e-6, 0.3),
        ((3, 1), 1e-4, 0.0, 0.0),
        ((3, 4), 1e-9, 5e-11, 0.0),
    ],
)
def test_rough_epsilon_is_the_formula(counts, delta, p_inf, shift):
    given = [(leaky(), counts[0])] + ([(as_pair(SMALL), counts[1])] if counts[1] else [])
    sure = [(AtomsPair(np.array([shift]), np.array([1.0])), 1)] if shift else []
    composition = Composition(given + sure, p_inf=p_inf)
    plain = [(ATOMS, counts[0], FAILS)] + ([(SMALL, counts[1], 0.0)] if counts[1] else [])
    found, wanted = composition._rough_epsilon(delta), by_hand(plain, delta, p_inf, shift)
    assert found == pytest.approx(wanted, rel=1e-10)
    assert found >= wanted * (1 - 1e-14)
    assert found >= composition.epsilon(delta).lower


@pytest.mark.parametrize(("share", "delta"), [(0.339, 1e-6), (0.36, 1e-6), (0.36, 1e-20)])
def test_rough_epsilon_of_many_small_losses_is_hoeffdings(share, delta):
    """Enough of them that the mean and the spread are what counts, and (0.36) the Q-mass that is not there."""
    atoms = {-0.01: 1 - share, 0.02: share}
    found, wanted = Composition([(as_pair(atoms), 10_000)])._rough_epsilon(delta), by_hand([(atoms, 10_000, 0.0)], delta, 0.0)
    assert wanted < 0.2 * 10_000 * 0.02
    assert found == pytest.approx(wanted, rel=1e-9)
    assert found >= Composition([(as_pair(atoms), 10_000)]).epsilon(delta).lower


def test_rough_epsilon_counts_what_is_beyond_and_what_fails():
    """No ε where the failures and the losses that were left out use δ up, one less count away from it."""
    for fails, count in ((1e-9, 10), (3e-10, 100)):
        pair = AtomsPair(np.array([-0.1, 0.1]), np.array([0.475, 0.525 - fails]), fails)
        composition = Composition([(pair, count)], p_inf=1e-12)
        assert composition._rough_epsilon(count * fails + 0.9e-12) == math.inf
        assert composition._rough_epsilon(count * fails * 0.95 + 1e-12) == math.inf
        assert composition._rough_epsilon(count * fails * 1.05 + 1e-12) < math.inf


def test_rough_epsilon_of_one_sided_losses_is_at_least_the_truth():
    for pair, count in (
        (SubsampledGaussianPair(0.8, 0.1, "remove"), 30),
        (SubsampledGaussianPair(2.0, 0.3, "add"), 50),
        (LaplacePair(3.0), 20),
    ):
        for delta in (1e-3, 1e-9, 1e-20):
            composition = Composition([(pair, count)])
            assert composition._rough_epsilon(delta) >= composition.epsilon(delta).upper
            assert composition._rough_lower(delta) <= composition.epsilon(delta).lower


def test_rough_sides_by_hand():
    """The least and the largest sum that has a probability worth the name."""
    low, high, counts = -0.5, 0.75, (4, 7)
    pair = AtomsPair(np.array([low, high]), np.array([0.3, 0.7]), 0.0)
    steady = AtomsPair(np.array([0.2, 0.3]), np.array([0.5, 0.5]), 0.0)
    composition = Composition([(pair, counts[0]), (steady, counts[1])], p_inf=0.01)
    least, most = counts[0] * low + counts[1] * 0.2, counts[0] * high + counts[1] * 0.3
    for epsilon in (0.0, 1.0, 4.0):
        found = composition._rough_delta(epsilon)
        assert found[0] == pytest.approx(max(0.01, 0.99 * 0.99 * max(0.0, 1 - math.exp(epsilon - least))), rel=1e-6)
        assert found[1] == pytest.approx(min(1.0, 0.01 + 0.99 * max(0.0, 1 - math.exp(epsilon - most))), rel=1e-6)
        exact = composition.delta(epsilon)
        assert found[0] <= exact.lower * (1 + 1e-9)
        assert found[1] >= exact.upper * (1 - 1e-9)
    always = Composition([(steady, 10)])
    share = 1 - math.exp(-0.3)
    assert always._rough_lower(share) == pytest.approx(2.0 - 0.3, rel=1e-6)
    assert always._rough_lower(share) <= always.epsilon(share).lower
    failing = Composition([(steady, 10)], p_inf=0.2)
    assert failing._rough_lower(0.2 + 0.8 * 0.8 * share) == pytest.approx(1.7, rel=1e-6)
    assert failing._rough_lower(1 - 1e-12) == 0.0


@pytest.mark.parametrize("sign", [1, -1])
def test_room_for_rounding_is_given_to_the_right_side(sign):
    from dither.accounting._compose import _widened  # noqa: PLC0415 - of no use elsewhere

    for value, count in ((1.0, 1), (1e-12, 1000), (-3.0, 10**9), (0.0, 10**12)):
        room = sign * (_widened(value, count, sign) - value)
        exact = 1e-12 * abs(value) + 4e-16 * min(count, 1 << 20)
        assert room == pytest.approx(exact, rel=1e-3, abs=3e-16 * abs(value))
        assert room > 0
    assert _widened(math.inf, 5, sign) == math.inf


def test_where_only_the_order_matters_ends_are_kept():
    """A finite answer is never above the sum of the largest losses, nor below the Gaussian alone."""
    for delta in (1e-2, 1e-8, 1e-40):
        found = Composition([(LaplacePair(4.0), 6), (leaky(), 2)]).epsilon(max(delta, 3 * FAILS))
        assert found.upper <= 6 / 4.0 + 2 * 3.0 + 1e-12
    alone = Composition([(GaussianPair(2.0), 3)]).epsilon(1e-7)
    more = Composition([(GaussianPair(2.0), 3), (LaplacePair(4.0), 6)]).epsilon(1e-7)
    assert more.lower >= alone.lower
    assert more.upper <= alone.upper + 1.5 + 1e-9
