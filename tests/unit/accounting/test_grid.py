"""The two lattice laws: never below, never above the profile of the pair, however coarse the lattice."""

import math

import numpy as np
import pytest

from dither.accounting._grid import (
    Corners,
    Law,
    _convex,
    _convex_one_by_one,
    around_atoms,
    centred,
    gathered,
    lowered,
    optimistic,
    pessimistic,
    settled,
    split,
)
from dither.accounting._pair import Masses
from dither.accounting._pairs import AtomsPair, GaussianPair, LaplacePair, MixtureGaussianPair, SubsampledGaussianPair

PAIRS = [
    GaussianPair(1.0),
    SubsampledGaussianPair(0.6, 0.01, "remove"),
    SubsampledGaussianPair(0.6, 0.01, "add"),
    SubsampledGaussianPair(0.2, 0.3, "remove"),
    MixtureGaussianPair(1.0, (0.5, 0.3, 0.2), "remove"),
    LaplacePair(1.0),
    AtomsPair(np.array([-0.71, 0.1, 0.62, 1.9]), np.array([0.2, 0.3, 0.3, 0.15]), 0.05),
]


def profile(law: Law, losses):
    """δ of a lattice law at e^loss."""
    s = law.losses
    return np.array([law.p_inf + float(law.p @ np.maximum(0.0, -np.expm1(np.minimum(x - s, 0.0)))) for x in losses])


def truth(pair, losses):
    made = [pair.masses(np.array([x])) for x in losses]
    return np.array([float(c.p_inf + max(0.0, c.p[-1] - math.exp(x) * c.q[-1])) for c, x in zip(made, losses, strict=True)])


def places(pair):
    low, high = pair.span(-25.0)
    return np.linspace(low - 0.5, high + 0.5, 301)


@pytest.mark.parametrize("step", [1.3, 0.21, 0.03])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: type(p).__name__)
def test_sandwich(pair, step):
    low, high = pair.span(-30.0)
    index = np.arange(math.floor(low / step) - 1, math.ceil(high / step) + 2)
    upper = pessimistic(index, step, pair.masses(step * index))
    corners = Corners(step * index, index[:-1], 0.5 * step, step, np.zeros(len(index) - 1, dtype=bool))
    plain = optimistic(index[:-1], 0.5 * step, step, pair.masses(step * index))
    moved = centred(pair, corners, 1.0, 0.0)
    x = places(pair)
    exact = truth(pair, x)
    assert (profile(upper, x) >= exact - 4e-15).all()
    assert (profile(plain, x) <= exact + 4e-15).all()
    assert (profile(moved, x) <= exact + 4e-15).all()
    for law in (upper, plain, moved):
        assert (law.p >= 0).all()
        assert (np.diff(law.index) > 0).all()


def test_both_sides_are_second_order():
    pair = GaussianPair(1.0)
    gaps = []
    for step in (0.2, 0.1):
        index = np.arange(math.floor(-9 / step), math.ceil(10 / step))
        cells = pair.masses(step * index)
        upper, lower = pessimistic(index, step, cells), optimistic(index[:-1], 0.5 * step, step, cells)
        x = np.linspace(0.5, 1.5, 37)
        gaps.append((float((profile(upper, x) - truth(pair, x)).mean()), float((truth(pair, x) - profile(lower, x)).mean())))
    for coarse, fine in zip(*gaps, strict=True):
        assert 3.3 < coarse / fine < 4.7, gaps


def test_moving_cuts_pays():
    """A steep pair: with fixed cuts the offsets cost first order, with moved cuts next to nothing."""
    pair = SubsampledGaussianPair(0.6, 0.001, "remove")
    step = 2e-4
    index = np.arange(-7, 40_000)
    cells = pair.masses(step * index)
    corners = Corners(step * index, index[:-1], 0.5 * step, step, np.zeros(len(index) - 1, dtype=bool))
    lost = [
        1e6 * (truth(pair, [0.0])[0] - profile(law, [0.0])[0])
        for law in (optimistic(index[:-1], 0.5 * step, step, cells), centred(pair, corners, 2.0, 1e-9))
    ]
    assert 0 <= lost[1] < 0.4 * lost[0]


@pytest.mark.parametrize("noise_multiplier", [0.5, 1.0, 7.0])
def test_atoms_on_the_lattice_are_not_moved(noise_multiplier):
    pair = LaplacePair(noise_multiplier)
    top = 1 / noise_multiplier
    step = top / 40
    made = centred(pair, around_atoms((-top, top), np.array([-top, top]), 0.0, step), 1.0, 0.0)
    assert math.isclose(float(made.p[-1]), 0.5, rel_tol=1e-6)
    x = np.linspace(-1.2 * top, 1.2 * top, 97)
    assert (profile(made, x) <= truth(pair, x) + 1e-15).all()
    assert (truth(pair, x) - profile(made, x)).max() < 5e-4


def test_what_is_above_the_last_dot_is_infinite():
    pair = GaussianPair(1.0)
    upper = pessimistic(np.arange(-10, 11), 0.1, pair.masses(0.1 * np.arange(-10, 11)))
    assert math.isclose(upper.p_inf, float(pair.masses(np.array([1.0])).p[-1]), rel_tol=1e-12)


def test_underflowing_masses_stay_bounds():
    """Far out Q underflows: from above the mass goes up, from below down."""
    cells = Masses(np.array([0.0, 0.5, 0.5, 0.0]), np.array([0.0, 0.4, 0.0, 0.0]), 0.0)
    upper = pessimistic(np.array([0, 1, 800]), 1.0, cells)
    assert upper.index[-1] == 800
    assert upper.p[-1] == 0.5


def test_settled_gives_back_the_lost_mean():
    pair = SubsampledGaussianPair(1e3, 1e-6, "remove")  # losses about 1e-9, their mean about 5e-19
    step = pair.std() / 16
    index = np.arange(-200, 201)
    law = pessimistic(index, step, pair.masses(step * index))
    mean = float(law.p @ np.expm1(-law.losses))
    assert abs(mean) < 1e-24
    assert settled(law, 1e-3) is law  # nothing like a rounding error: left alone


def test_split_and_gathered_bracket_a_lattice_law():
    pair = GaussianPair(1.0)
    step = 0.01
    index = np.arange(-900, 1001)
    law = pessimistic(index, step, pair.masses(step * index))
    x = places(pair)
    own = profile(law, x)
    assert (profile(split(law, 0.13), x) >= own - 1e-14).all()
    low = gathered(law, 0.13, 1.0, 1e-9)
    assert (profile(low, x) <= own * (1 + 1e-11) + 1e-18).all()
    assert (own - profile(low, x)).max() < 2e-3


def test_a_last_corner_above_its_mean_loss_goes_down():
    """One atom at 0.3 and a corner at 1: the only valid law has it at 0 or below."""
    law = lowered(np.array([1]), 0.0, 1.0, np.array([0.8]), np.array([0.8 - math.e * 0.8 * math.exp(-0.3)]), 0.0)
    assert law.index[-1] <= 0
    x = np.linspace(-2, 2, 41)
    exact = 0.8 * np.maximum(0.0, -np.expm1(np.minimum(x - 0.3, 0.0)))
    assert (profile(law, x) <= exact + 1e-15).all()


def test_dips_are_given_up_alike():
    rng = np.cos(np.arange(1, 200) ** 2)  # a fixed rough sequence
    p = np.abs(rng) + np.where(rng < -0.9, -1.3, 0.0)
    p[-1] = 3.0
    law = Law(np.arange(len(p)), p, 0.0, 0.0, 0.1)
    x = np.linspace(-1, 20, 200)
    for made in (_convex(law), _convex_one_by_one(law)):
        assert made is not None
        assert (made.p > 0).all()
        assert (profile(made, x) <= profile(law, x) + 1e-12).all()
