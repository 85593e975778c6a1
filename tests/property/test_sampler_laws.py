"""Laws that hold for every input: bounds bracket, signs mirror, snapping is nearest, sums depend on the exact sum only."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.noise import _cells, _fixed, samplers
from dither.noise.rng import UnsafeSeededRng
from dither.noise.samplers import add_noise, grid_step, snap, snapped_sensitivity

rationals = st.fractions(min_value=0, max_value=400, max_denominator=10**9)
scales = st.floats(min_value=1e-3, max_value=1e12)
values = st.floats(min_value=-1e15, max_value=1e15)


@given(rationals, rationals, st.sampled_from([40, 64, 200]))
def test_exp_bounds_fall_and_multiply(x, y, bits):
    low_x, high_x = _fixed.exp_bounds(x, bits)
    low_y, high_y = _fixed.exp_bounds(y, bits)
    low, high = _fixed.exp_bounds(x + y, bits)
    if x <= y:
        assert high_x >= low_y
    assert low_x * low_y <= high << bits
    assert high_x * high_y >= low << bits


@given(rationals, st.sampled_from([16, 53, 100]))
def test_more_bits_refine(x, bits):
    low, high = _fixed.exp_bounds(x, bits)
    finer_low, finer_high = _fixed.exp_bounds(x, bits + 64)
    assert low << 64 <= finer_high
    assert finer_low <= high << 64


@given(scales, st.sampled_from(["laplace", "gaussian"]))
def test_guides_mirror(scale, law):
    exact = Fraction(scale)
    guide = _cells.single_integers(law, exact)
    table = guide.guide if guide is not None else _cells.wide_integers(law, exact).guide.guide
    positive, negative = table[: 1 << 15], table[1 << 15 :]
    sure = positive != -32_768
    assert (sure == (negative != -32_768)).all()
    mirrored = -positive if guide is not None else ~positive
    assert (negative[sure] == mirrored[sure]).all()
    assert (np.diff(positive[sure]) >= 0).all()


@given(scales, st.integers(0, 1 << 30))
def test_scale_is_equivariant(scale, seed):
    """The same bits at twice the scale give twice the noise, to the last bit: the grid goes with the scale."""
    for sampler in (samplers.laplace, samplers.gaussian):
        once = sampler(scale, 50, UnsafeSeededRng(seed))
        twice = sampler(2 * scale, 50, UnsafeSeededRng(seed))
        assert (2 * once == twice).all()


@given(values, st.integers(-60, 40))
def test_snap_is_nearest_and_settles(value, exponent):
    step = 2.0**exponent
    moved = snap(value, step)
    assert abs(Fraction(moved) - Fraction(value)) <= Fraction(step) / 2
    assert (Fraction(moved) / Fraction(step)).denominator == 1
    assert snap(moved, step) == moved
    assert snap(-value, step) == -moved


@given(values, values, st.integers(-60, 40))
def test_snap_keeps_order_and_sensitivity(a, b, exponent):
    step = 2.0**exponent
    moved_a, moved_b = snap(a, step), snap(b, step)
    assert (a <= b) <= (moved_a <= moved_b)
    gap = abs(Fraction(a) - Fraction(b))
    if gap:
        bound = math.nextafter(float(gap), math.inf)
        assert abs(Fraction(moved_a) - Fraction(moved_b)) <= Fraction(snapped_sensitivity(bound, step))


@given(st.lists(st.tuples(values, values), min_size=1, max_size=6), st.integers(-60, 40), st.sampled_from([1, 2, math.inf]))
def test_snapped_sensitivity_covers_vectors(pairs, exponent, norm):
    step = 2.0**exponent
    before = [abs(Fraction(a) - Fraction(b)) for a, b in pairs]
    after = [abs(Fraction(snap(a, step)) - Fraction(snap(b, step))) for a, b in pairs]
    if norm == 2:
        square = sum(d * d for d in before)
        bound = math.sqrt(square) * (1 + 1e-15)
        if bound > 1e-150:
            assert Fraction(snapped_sensitivity(bound, step, len(pairs), 2)) ** 2 >= sum(d * d for d in after)
        return
    fold = sum if norm == 1 else max
    bound = math.nextafter(float(fold(before)), math.inf)
    if bound > 1e-300:
        assert Fraction(snapped_sensitivity(bound, step, len(pairs), norm)) >= fold(after)


@given(st.integers(-(2**50), 2**50), st.integers(-(2**48), 2**48), st.integers(-(2**48), 2**48), scales)
def test_the_sum_is_a_function_of_the_exact_sum(value, noise, shift, scale):
    """Moving an amount from the noise to the value changes nothing that is seen: so nothing but the exact sum is."""
    step = grid_step(scale)
    first = add_noise(value * step, noise * step, step)
    second = add_noise((value + shift) * step, (noise - shift) * step, step)
    assert first == second
    assert math.copysign(1, first) == math.copysign(1, second)
    assert Fraction(first) == Fraction(value + noise) * Fraction(step)


@given(st.floats(min_value=2.0**53, max_value=2.0**960), st.integers(-(2**50), 2**50))
def test_huge_values_too(value, noise):
    step = 1.0
    total = add_noise(value, float(noise), step)
    assert total == float(Fraction(value) + noise)


class One:
    """A source of one word."""

    private = False

    def __init__(self, word):
        self.word = word

    def bits(self, _count):
        return self.word

    def bytes(self, _count):
        raise AssertionError

    def below(self, _bound):
        raise AssertionError


@given(st.fractions(min_value=0, max_value=1, max_denominator=10**6), st.integers(0, (1 << 64) - 1))
def test_a_coin_is_one_comparison(p, word):
    expected = Fraction(word, 1 << 64) < p
    if not Fraction(word, 1 << 64) < p < Fraction(word + 1, 1 << 64):
        assert samplers.bernoulli(p, rng=One(word)) == expected


@given(
    st.fractions(min_value=Fraction(1, 1000), max_value=10**13, max_denominator=10**6),
    st.integers(-(2**61), 2**61),
    st.integers(0, 1 << 30),
)
def test_exact_rounding_is_in_its_interval(scale, place, seed):
    factor = scale / (1 << 55)
    out = samplers._round_exactly(factor, place, 0, UnsafeSeededRng(seed))
    assert math.floor(factor * place + Fraction(1, 2)) <= out <= math.ceil(factor * (place + 1) + Fraction(1, 2)) - 1


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2, 3), 1.5])
def test_a_fraction_and_its_float_agree_where_they_are_equal(scale):
    exact = Fraction(scale)
    same = float(exact)
    if Fraction(same) == exact:
        for sampler in (samplers.discrete_laplace, samplers.rounded_gaussian):
            assert (sampler(exact, 100, UnsafeSeededRng(1)) == sampler(same, 100, UnsafeSeededRng(1))).all()
