"""Samplers: types, exactness by exhaustion and by scripted bits, refusals, grids, and the last bit that must not betray the value."""

import math
import subprocess
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dither import noise
from dither.core.errors import InputError
from dither.noise import _cells, samplers
from dither.noise.rng import SecureRng, UnsafeSeededRng
from dither.noise.samplers import (
    add_noise,
    bernoulli,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    gaussian,
    grid_step,
    laplace,
    rounded_gaussian,
    rounded_laplace,
    snap,
    snapped_sensitivity,
    uniform_below,
)

INTEGER = [discrete_laplace, discrete_gaussian, rounded_laplace, rounded_gaussian]
FLOAT = [laplace, gaussian]
SIZES = [0, 1, 2, 1_000, (1 << 15) - 1, (1 << 15) + 1, (1 << 17) + 3]


@pytest.fixture
def rng():
    return UnsafeSeededRng(20_240_229)


@pytest.mark.parametrize("sampler", INTEGER)
@pytest.mark.parametrize("scale", [0.001, 0.5, 1, Fraction(7, 3), 10, 600.0, 10**6, 2.0**40, np.float64(3.5), np.int64(4)], ids=str)
def test_integers(sampler, scale, rng):
    assert type(sampler(scale, rng=rng)) is int
    for size in SIZES[:4]:
        out = sampler(scale, size, rng)
        assert out.dtype == np.int64
        assert out.shape == (size,)
    assert type(sampler(scale)) is int


@pytest.mark.parametrize("sampler", FLOAT)
@pytest.mark.parametrize("scale", [1e-3, 1, math.pi, 1e12, 2.0**-900, 2.0**1000, np.float64(2)], ids=str)
def test_floats_are_on_their_grid(sampler, scale, rng):
    step = grid_step(scale)
    assert 2**40 <= scale / step < 2**41
    assert math.frexp(step)[0] == 0.5
    assert type(sampler(scale, rng=rng)) is float
    out = sampler(scale, 20_000, rng)
    assert out.dtype == np.float64
    units = out / step
    assert (units == np.rint(units)).all()
    assert np.abs(units).max() < 2**53
    assert not np.signbit(out[out == 0]).any()


@pytest.mark.parametrize("size", SIZES)
def test_any_size(size, rng):
    for out in (
        laplace(1.0, size, rng),
        gaussian(1.0, size, rng),
        discrete_gaussian(5, size, rng),
        discrete_laplace(5_000, size, rng),
        rounded_laplace(3, size, rng),
        bernoulli(0.5, size, rng),
        bernoulli_exp(0.5, size, rng),
        uniform_below(10, size, rng),
    ):
        assert out.shape == (size,)


def test_blocks_are_not_repeated(rng):
    out = laplace(1.0, 3 << 17, rng)
    assert len(np.unique(out)) > len(out) - 10


@pytest.mark.parametrize("sampler", [*INTEGER, *FLOAT])
@pytest.mark.parametrize("bad", [0, -1, 0.0, -0.0, math.nan, math.inf, -math.inf, "1", None, True, 1j, [1.0], Fraction(0)], ids=repr)
def test_bad_scales(sampler, bad):
    with pytest.raises(InputError, match=r"(scale|std)=.* is not allowed: expected a number"):
        sampler(bad)
    with pytest.raises(InputError):
        sampler(bad, 3)


def test_scales_that_do_not_fit():
    for sampler in INTEGER:
        assert isinstance(sampler(2**54), int)
        with pytest.raises(InputError, match="do not fit 64-bit integers"):
            sampler(2**54 + 4.0)
        with pytest.raises(InputError, match="do not fit 64-bit integers"):
            sampler(1e300, 3)
        assert sampler(5e-324, 3).tolist() == [0, 0, 0]
    for sampler in FLOAT:
        for scale in (5e-324, 2.0**-901, 2.0**1001):
            with pytest.raises(InputError):
                sampler(scale)


def test_largest_scale_never_overflows(rng):
    for sampler, reach in ((discrete_laplace, 160), (rounded_laplace, 160), (discrete_gaussian, 18), (rounded_gaussian, 18)):
        out = sampler(2**54, 2_000, rng)
        assert np.abs(out.astype(float)).max() <= reach * 2.0**54 < 2.0**62
        assert 0.8 < np.abs(out.astype(float)).mean() / 2.0**54 < 1.1 or reach == 18


@pytest.mark.parametrize("bad", [-1, 1.5, "3", True, (2, 3), 1 << 50], ids=repr)
def test_bad_sizes(bad):
    for sampler in (*INTEGER, *FLOAT):
        with pytest.raises(InputError, match="size="):
            sampler(1.0, bad)
    for call in (lambda: bernoulli(0.5, bad), lambda: bernoulli_exp(0.5, bad), lambda: uniform_below(5, bad)):
        with pytest.raises(InputError, match="size="):
            call()


# ---------------------------------------------------------------- every decision, the quick way and by integers


ACCEPTING = [
    lambda r: laplace(1.3, 3_000, r),
    lambda r: gaussian(0.7, 3_000, r),
    lambda r: discrete_laplace(1e6, 3_000, r),
    lambda r: discrete_gaussian(1e6, 3_000, r),
    lambda r: discrete_gaussian(777.7, 3_000, r),
]
ROUNDING = [
    lambda r: laplace(1.3, 3_000, r),
    lambda r: rounded_gaussian(0.7, 3_000, r),
    lambda r: rounded_laplace(Fraction(1000, 3), 3_000, r),
    lambda r: rounded_gaussian(2**45 + 1, 3_000, r),
]


@pytest.mark.parametrize("draw", ACCEPTING)
def test_floats_decide_as_integers_do(draw, monkeypatch):
    """The same bits, every acceptance once by float64 and once by integer arithmetic: the same draws."""
    quick = draw(UnsafeSeededRng(11))
    monkeypatch.setattr(_cells, "FLOAT_MARGIN", 2.0)
    assert (draw(UnsafeSeededRng(11)) == quick).all()


@pytest.mark.parametrize("draw", ROUNDING)
def test_floats_round_as_integers_do(draw, monkeypatch):
    quick = draw(UnsafeSeededRng(12))
    monkeypatch.setattr(samplers, "_SLOP", 1.0)
    assert (draw(UnsafeSeededRng(12)) == quick).all()


@pytest.mark.parametrize(
    "draw", [lambda r: discrete_laplace(1e6, 3_000, r), lambda r: discrete_gaussian(3_000, 3_000, r), lambda r: laplace(1.0, 3_000, r)]
)
def test_the_squeeze_changes_nothing_but_time(draw, monkeypatch):
    """With no squeeze at all every place goes through the full acceptance test; the law (here: its scale) stays."""
    expected = float(np.abs(draw(UnsafeSeededRng(13))).mean())
    original = _cells._cells
    cache = {}

    def without(law, width, place_bits):
        found = original(law, width, place_bits)
        return cache.setdefault((law, width), _cells.Cells(found.guide, np.uint16(0), place_bits))

    monkeypatch.setattr(_cells, "_cells", without)
    for table in (_cells.wide_integers, _cells.unit_law):
        table.cache_clear()
    try:
        assert float(np.abs(draw(UnsafeSeededRng(14))).mean()) == pytest.approx(expected, rel=0.15)
    finally:
        for table in (_cells.wide_integers, _cells.unit_law):
            table.cache_clear()


def test_acceptance_bounds_bracket_the_density():
    with mpmath.workprec(400):
        for cells in (
            _cells.unit_law("laplace"),
            _cells.unit_law("gaussian"),
            _cells.wide_integers("gaussian", Fraction(12_345)),
            _cells.wide_integers("laplace", Fraction(12_345)),
        ):
            for cell, offset in (
                (0, 0),
                (0, (1 << 48) - 1),
                (5, 1 << 40),
                (300, 123_456_789_012),
                (-1, 0),
                (-1, (1 << 48) - 1),
                (-200, 1 << 47),
            ):
                place = (cell << 48) | offset
                low, high = _cells._acceptance(cells, place, 48, 200)
                width = mpmath.mpf(cells.guide.width.numerator) / cells.guide.width.denominator
                mirror = place if place >= 0 else ~place
                edge = (mirror >> 48) * width
                if cells.place_bits is None:
                    ends = [mirror * width / mpmath.mpf(2) ** 48, (mirror + 1) * width / mpmath.mpf(2) ** 48]
                else:  # the integer itself
                    k = place >> (48 - cells.place_bits)
                    ends = [abs(k) * width / mpmath.mpf(2) ** cells.place_bits] * 2
                f = (lambda t: mpmath.exp(-t)) if cells.guide.law == "laplace" else (lambda t: mpmath.exp(-t * t / 2))
                near, far = (f(t) / f(edge) * mpmath.mpf(2) ** 200 for t in ends)
                assert low <= far <= near <= high
                assert high - near <= 3
                assert far - low <= 3


class Scripted:
    """A source that hands out the numbers a test wrote."""

    private = False

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def bits(self, count):
        number = self.numbers.pop(0)
        assert 0 <= number < 1 << count
        return number

    def bytes(self, count):
        return self.bits(8 * count).to_bytes(count, "little")

    def below(self, bound):
        raise AssertionError


def test_exact_acceptance_goes_on_until_it_is_certain():
    cells = _cells.unit_law("laplace")
    place, bits = (3 << 48) | (1 << 47), 64
    low, high = _cells._acceptance(cells, place, 48, bits)
    for u in range(low - 1, high + 1):
        rng = Scripted(0, 0, 0, 0)
        found = _cells._accept_exactly(cells, place, u, rng)
        if found is not None:
            assert found[0] >> (found[1] - 48) == place
            assert (4 - len(rng.numbers)) // 2 * 64 + 48 == found[1]
        rng = Scripted(*[(1 << 64) - 1] * 4)
        top = _cells._accept_exactly(cells, place, u, rng)
        assert found is not None or top is None
    assert _cells._accept_exactly(cells, place, low - 1, Scripted()) == (place, 48)
    assert _cells._accept_exactly(cells, place, high, Scripted()) is None


def test_known_bits_of_a_draw_are_used_again(monkeypatch):
    """A draw whose acceptance needed more bits is rounded with those very bits, not with fresh ones."""
    asked = []
    original = samplers._round_exactly

    def spy(factor, place, bits, rng):
        asked.append(bits)
        return original(factor, place, bits, rng)

    monkeypatch.setattr(samplers, "_round_exactly", spy)
    monkeypatch.setattr(_cells, "_accept_exactly", lambda _cells, place, _u, _rng: ((place << 64) | 5, 112))
    monkeypatch.setattr(_cells, "FLOAT_MARGIN", 2.0)
    rounded_laplace(2.0**20, 2_000, UnsafeSeededRng(1))
    assert 64 in asked


@pytest.mark.parametrize("factor", [Fraction(1, 3), Fraction(5, 8), Fraction(2**40 + 1, 2**48), Fraction(1)])
def test_rounding_is_exact(factor):
    for place in (-7, -3, -2, -1, 0, 1, 2, 3, 8, 1_000_003):
        for bits in (0, 3):
            for extra in (0, (1 << 64) - 1, 1 << 63):
                rng = Scripted(*[extra] * 8)
                out = samplers._round_exactly(factor, place, bits, rng)
                used = 8 - len(rng.numbers)
                known, scale = place, 1 << bits
                for _ in range(used):
                    known, scale = (known << 64) | extra, scale << 64
                low, high = Fraction(known, scale) * factor, Fraction(known + 1, scale) * factor
                assert math.floor(low + Fraction(1, 2)) == out == math.ceil(high + Fraction(1, 2)) - 1


# ---------------------------------------------------------------- coins and uniform integers


@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(1, 2), 0.3, 1e-300, 0, 1, Fraction(2**64 - 1, 2**64), Fraction(1, 2**64)], ids=str)
def test_a_coin_is_its_binary_digits(p):
    exact = Fraction(p)
    first = (exact.numerator << 64) // exact.denominator
    for word in {0, max(first - 1, 0), min(first, 2**64 - 1), min(first + 1, 2**64 - 1), 2**64 - 1}:
        for rest in (0, (1 << 64) - 1):
            rng = Scripted(word, *[rest] * 20)
            out = bernoulli(p, rng=rng)
            value, bits = word, 64
            for _ in range(20 - len(rng.numbers)):
                value, bits = (value << 64) | rest, bits + 64
            assert out == (Fraction(value, 1 << bits) < exact)
            assert out or Fraction(value, 1 << bits) >= exact


@pytest.mark.parametrize("call", [lambda r, n: bernoulli(Fraction(1, 3), n, r), lambda r, n: bernoulli_exp(Fraction(11, 10), n, r)])
def test_arrays_of_coins_compare_the_same_digits(call):
    head = {1: 21_845, 0: int(65_536 * math.exp(-1.1))}
    for key, sampler in ((1, lambda r, n: bernoulli(Fraction(1, 3), n, r)), (0, lambda r, n: bernoulli_exp(Fraction(11, 10), n, r))):
        words = sum(w << 16 * i for i, w in enumerate((head[key] - 1, head[key], head[key] + 1)))
        assert sampler(Scripted(words, 0), 3).tolist() == [True, True, False]
        assert sampler(Scripted(words, (1 << 64) - 1), 3).tolist() == [True, False, False]
    assert call(SecureRng(), 5).dtype == np.bool_


def test_a_tied_coin_takes_more_digits():
    third = (1 << 64) // 3
    digits = third & ((1 << 64) - 1)
    assert bernoulli(Fraction(1, 3), 1, Scripted(21_845, digits, 0)).tolist() == [True]
    assert bernoulli(Fraction(1, 3), 1, Scripted(21_845, digits, digits, digits + 1)).tolist() == [False]
    assert bernoulli(Fraction(1, 3), rng=Scripted(third, digits, digits - 1)) is True


@pytest.mark.parametrize("x", [0, Fraction(1, 3), 0.5, 1, 20, 44.3, 80, 700.0])
def test_exponential_coin_against_an_oracle(x):
    with mpmath.workprec(300):
        scaled = mpmath.exp(-mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator) * mpmath.mpf(2) ** 64
        first = int(mpmath.floor(scaled))
        for word in {0, max(first - 1, 0), min(first + 1, 2**64 - 1), first >> 1}:
            if word == first:
                continue
            assert bernoulli_exp(x, rng=Scripted(word)) == (word < first)
        if x:
            rest = int(mpmath.floor((scaled - first) * mpmath.mpf(2) ** 64))
            assert rest == 0 or bernoulli_exp(x, rng=Scripted(first, rest - 1)) is True
            assert bernoulli_exp(x, rng=Scripted(first, rest + 1)) is False


def test_coins_at_the_ends():
    for size in (None, 1_000):
        assert np.all(bernoulli(1, size))
        assert not np.any(bernoulli(0, size))
        assert not np.any(bernoulli(5e-324, size))
        assert np.all(bernoulli_exp(0, size))
        assert np.all(bernoulli_exp(5e-324, size))
        assert not np.any(bernoulli_exp(1e308, size))
        assert not np.any(bernoulli_exp(10**400, size))
        assert np.all(bernoulli_exp(Fraction(1, 1 << 10_000), size))
        with pytest.raises(InputError, match="use 0"):
            bernoulli_exp(Fraction(1, 10**30_000), size)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf, "1", None, True, Fraction(-1, 3), Fraction(4, 3)], ids=repr)
def test_bad_probabilities(bad):
    with pytest.raises(InputError, match="p="):
        bernoulli(bad)
    if not (isinstance(bad, float | Fraction) and bad > 1 and bad < math.inf):
        with pytest.raises(InputError, match="x="):
            bernoulli_exp(bad)


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 1 << 32, (1 << 32) + 1, 3 << 61, 1 << 63])
def test_uniform_bounds(bound, rng):
    out = uniform_below(bound, 5_000, rng)
    assert out.dtype == np.int64
    assert out.min() >= 0
    assert out.max() < bound
    assert abs(out.astype(float).mean() / max(bound - 1, 1) - 0.5) < 0.05 or bound == 1
    assert 0 <= uniform_below(bound, rng=rng) < bound


def test_uniform_is_exact_by_exhaustion():
    """Every one of a lattice of words: each result has the same number of accepted words (Lemire's rule, scaled to show)."""
    for bound in (3, 5, 6, 7, 1_000):
        step = (1 << 32) // bound
        words = np.unique(np.concatenate([np.arange(bound) * step + d for d in range(-1, 3)]).clip(0, (1 << 32) - 1)).astype(np.uint64)
        product = words * np.uint64(bound)
        rng = Words(words.astype(np.uint32))
        values = np.empty(len(words), np.uint64)
        good = np.ones(len(words), bool)
        good[samplers._below_small(bound, values, rng)] = False
        assert (values == product >> np.uint64(32)).all()
        refuse = (1 << 32) % bound
        assert (good == ((product & np.uint64(0xFFFFFFFF)) >= np.uint64(refuse))).all()
        # accepted words of result r are those with low half ≥ refuse: (2**32 - refuse) / bound of them, for each r
        for r in (0, 1, bound - 1):
            first = -(-((r << 32) + refuse) // bound)
            last = -(-((r + 1) << 32) // bound) - 1
            assert last - first + 1 == ((1 << 32) - refuse) // bound


class Words:
    def __init__(self, words):
        self.words = words

    def uint32(self, count):
        return self.words[:count]


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3", None], ids=repr)
def test_bad_uniform_bounds(bad):
    for size in (None, 3):
        with pytest.raises(InputError, match="bound="):
            uniform_below(bad, size)
    with pytest.raises(InputError, match="bound="):
        uniform_below((1 << 63) + 1, 3)
    assert uniform_below(1 << 200).bit_length() <= 200


# ---------------------------------------------------------------- the grid


@pytest.mark.parametrize("step", [2.0**-40, 0.25, 1.0, 2.0**30])
def test_snap_is_the_nearest_multiple(step):
    for value in (
        0.0,
        0.1,
        -0.1,
        1 / 3,
        1e-320,
        -1e-320,
        12_345.678,
        2.0**52 * step,
        2.0**52 * step - step / 2,
        2.0**51 * step + step / 2,
        1e288,
        -1e288,
    ):
        out = snap(value, step)
        exact = Fraction(value) / Fraction(step)
        assert Fraction(out) == round(exact) * Fraction(step)  # Fraction rounds ties to even too
        assert math.copysign(1.0, out) == 1.0 or out < 0
        assert snap(out, step) == out


def test_snap_arrays_and_integers():
    assert snap(np.array([0.3, -0.3, 0.125]), 0.25).tolist() == [0.25, -0.25, 0.0]
    assert snap(np.array([1, 2, 3]), 2.0).tolist() == [0.0, 2.0, 4.0]
    assert snap(np.zeros((2, 3)), 1.0).shape == (2, 3)
    assert snap(7, 1.0) == 7.0


def test_no_negative_zero_betrays_a_sign():
    step = grid_step(1.0)
    for value in (0.0, -0.0, -step / 4, step / 4):
        for drawn in (0.0, -0.0):
            assert math.copysign(1.0, add_noise(value, drawn, step)) == 1.0
    out = add_noise(np.array([-0.0, -step / 4]), np.array([-0.0, -0.0]), step)
    assert not np.signbit(out).any()


def test_adding_noise_rounds_the_exact_sum_once(rng):
    for scale in (1e-3, 1.0, 1e9):
        step = grid_step(scale)
        drawn = laplace(scale, 2_000, rng)
        values = np.concatenate([rng.uint64(1_000).astype(float) * 2.0**-64, rng.uint64(1_000).astype(float)])
        out = add_noise(values, drawn, step)
        for v, n, o in zip(values.tolist(), drawn.tolist(), out.tolist(), strict=True):
            moved = round(Fraction(v) / Fraction(step)) * Fraction(step)
            assert o == float(moved + Fraction(n))
        assert add_noise(values[0].item(), drawn[0].item(), step) == out[0]


@pytest.mark.parametrize("bad", ["1", None, 1j, Fraction(1, 3), [1.0, None], np.array([1j]), np.array(["1"]), np.array([None])], ids=repr)
def test_types_that_cannot_be_noised(bad):
    with pytest.raises(InputError, match="expected a number"):
        add_noise(bad, 0.0, 1.0)
    with pytest.raises(InputError, match="expected a number"):
        snap(bad, 1.0)


def test_no_private_value_is_refused():
    """An error on NaN, an infinity or a huge number would tell that it is there."""
    top = samplers.VALUE_MAX
    hard = [math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, -0.0]
    expected = [0.0, top, -top, top, -top, 0.0, 0.0]
    assert snap(np.array(hard), 1.0).tolist() == expected
    assert add_noise(np.array(hard), np.zeros(7), 1.0).tolist() == expected
    for value, moved in zip(hard, expected, strict=True):
        assert add_noise(value, 0.0, 1.0) == snap(value, 1.0) == moved
    for value in (2**53, 2**53 + 1, 2**70, 10**400):
        assert add_noise(value, 0.0, 1.0) == 2.0**53
        assert add_noise(-value, 0.0, 1.0) == -(2.0**53)
    assert snap(np.array([2**64 - 1, 3], np.uint64), 1.0).tolist() == [2.0**53, 3.0]
    assert snap(np.array([-(2**63)]), 1.0).tolist() == [-(2.0**53)]
    assert add_noise(np.array([-3], np.int8), np.zeros(1), 1.0).tolist() == [-3.0]
    assert add_noise(True, 0.0, 1.0) == 1.0


def test_no_sum_overflows():
    top = samplers.VALUE_MAX
    step = grid_step(samplers.FLOAT_SCALE_MAX)
    assert math.isfinite(add_noise(top, snap(160 * samplers.FLOAT_SCALE_MAX * 1.99, step), step))


@pytest.mark.parametrize("bad", [0.0, -1.0, 0.3, 3.0, math.nan, math.inf, "1", None, 5e-324, True], ids=repr)
def test_bad_steps(bad):
    for call in (lambda: snap(1.0, bad), lambda: add_noise(1.0, 0.0, bad), lambda: snapped_sensitivity(1.0, bad)):
        with pytest.raises(InputError, match="step="):
            call()


def test_noise_must_have_the_shape_of_the_values():
    with pytest.raises(InputError, match="one number of noise for every value"):
        add_noise(np.zeros(3), np.zeros(2), 1.0)
    with pytest.raises(InputError, match="one number of noise for every value"):
        add_noise(np.zeros(3), 1.0, 1.0)
    with pytest.raises(InputError, match="one number of noise for every value"):
        add_noise(1.0, np.zeros(3), 1.0)


def test_noise_must_be_on_the_grid():
    with pytest.raises(InputError, match="multiples of step"):
        add_noise(1.0, 0.3, 0.25)
    with pytest.raises(InputError, match="multiples of step"):
        add_noise(np.zeros(2), np.array([0.25, math.nan]), 0.25)


def test_a_strict_numpy_changes_nothing():
    with np.errstate(all="raise"):
        assert snap(1e-310, 2.0**30) == 0.0
        assert snap(np.array([5e-324, 1e288]), 2.0**900).tolist() == [0.0, snap(1e288, 2.0**900)]
        assert rounded_laplace(5e-324, 10).tolist() == [0] * 10
        for sampler in (*INTEGER, *FLOAT):
            assert len(sampler(700.0, 40_000)) == 40_000


def test_snapped_sensitivity_rounds_up():
    step = 2.0**-40
    assert snapped_sensitivity(1.0, step) == 1.0 + step
    assert snapped_sensitivity(1.0, step, 9, 1) == 1.0 + 9 * step
    assert snapped_sensitivity(1.0, step, 9, 2) == 1.0 + 3 * step
    assert snapped_sensitivity(1.0, step, 9, math.inf) == 1.0 + step
    assert snapped_sensitivity(1.0, 2.0**-60) == math.nextafter(1.0, 2.0)
    root = Fraction(snapped_sensitivity(1.0, step, 2, 2)) - 1
    assert root**2 >= 2 * Fraction(step) ** 2
    for bad in (3, "2", None, math.nan, -1):
        with pytest.raises(InputError, match="norm="):
            snapped_sensitivity(1.0, step, norm=bad)
    for bad in (0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="sensitivity="):
            snapped_sensitivity(bad, step)
    with pytest.raises(InputError, match="dimension="):
        snapped_sensitivity(1.0, step, dimension=0)
    with pytest.raises(InputError, match="too large"):
        snapped_sensitivity(1.0, 2.0**1023, 10**12)


# ---------------------------------------------------------------- the last bit


def finer(outputs, bits=53):
    """The share of outputs that are no multiple of 2**-bits."""
    return np.mean([math.ldexp(x, bits) != math.floor(math.ldexp(x, bits)) for x in outputs])


def test_the_last_bit_of_ours_betrays_nothing(rng):
    """On 0 and on 1 every output is a multiple of one and the same grid; and at every bit the two leave the same share."""
    for sampler in FLOAT:
        step = grid_step(1.0)
        outputs = {value: [add_noise(value, sampler(1.0, rng=rng), step) for _ in range(3_000)] for value in (0.0, 1.0)}
        for value in (0.0, 1.0):
            assert finer(outputs[value]) == 0.0
            assert all((x / step).is_integer() for x in outputs[value])
        for bits in range(36, 41):
            assert finer(outputs[0.0], bits) == pytest.approx(finer(outputs[1.0], bits), abs=0.05)


def test_the_last_bit_of_numpy_betrays_the_value():
    numpy_rng = np.random.default_rng(1)
    for draw in (numpy_rng.laplace, numpy_rng.standard_normal):
        on_0, on_1 = ([value + draw() for _ in range(3_000)] for value in (0.0, 1.0))
        assert finer(on_0) > 0.2
        assert finer(on_1) == 0.0


# ---------------------------------------------------------------- the front door


def test_every_exported_name_is_there():
    for name in noise.__all__:
        assert getattr(noise, name).__name__ == name
        assert name in dir(noise)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = noise.nothing_of_the_kind


def test_importing_the_room_is_light():
    code = "import sys, dither.noise; print([m for m in ('numpy', 'cryptography') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
