"""Laplace and Gaussian on the grid, discrete ones on the integers: what runs, what is priced, and what must not show."""

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from dither.accounting import compare, filters, loss
from dither.core.errors import InputError, RefusedError
from dither.core.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NonPrivate,
    Poisson,
    Repeat,
    Sequence,
    Shuffled,
    Subsample,
)
from dither.noise import numeric, samplers
from dither.noise.numeric import (
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    grid_noise,
    tail_of,
)
from dither.noise.rng import UnsafeSeededRng

FLOATS = [LaplaceMechanism, GaussianMechanism]
WHOLES = [DiscreteLaplaceMechanism(noise_scale=3.0), DiscreteGaussianMechanism(noise_std=3.0)]
INF, NAN = math.inf, math.nan


def seeded(seed=1):
    return UnsafeSeededRng(seed)


# ------------------------------------------------------------------------------------------------ construction


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("bad", [0, -1, NAN, INF, 1e-4, 1e13, 5e-324, "1", None, True, 1j])
def test_bad_noise_is_refused(kind, bad):
    with pytest.raises(InputError, match="noise_multiplier"):
        kind(noise_multiplier=bad)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("bad", [0, -1, NAN, INF, 1e300, 5e-324, "1", None, True])
def test_bad_sensitivity_is_refused(kind, bad):
    with pytest.raises(InputError, match="sensitivity"):
        kind(noise_multiplier=1.0, sensitivity=bad)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("bad", [(1, 0), (0,), (0, NAN), (-INF, 0), 3, "01", (0, 1, 2), (0, 1e300)])
def test_bad_bounds_are_refused(kind, bad):
    with pytest.raises(InputError, match="bounds"):
        kind(noise_multiplier=1.0, bounds=bad)


@pytest.mark.parametrize(
    "make", [lambda **k: DiscreteLaplaceMechanism(noise_scale=2, **k), lambda **k: DiscreteGaussianMechanism(noise_std=2, **k)]
)
@pytest.mark.parametrize("bad", [0, -1, 1.5, NAN, None, True, "1"])
def test_discrete_sensitivities_and_changes_are_whole(make, bad):
    for name in ("sensitivity", "changes"):
        with pytest.raises(InputError, match=name):
            make(**{name: bad})


@pytest.mark.parametrize("bad", [0, -1, NAN, INF, 1e-9, 1e13, "1"])
def test_bad_discrete_noise_is_refused(bad):
    for make in (lambda: DiscreteLaplaceMechanism(noise_scale=bad), lambda: DiscreteGaussianMechanism(noise_std=bad)):
        with pytest.raises(InputError, match="noise_"):
            make()


def test_sensitivities_that_no_float_holds_are_rounded_up():
    for whole in (2**53 + 1, np.int64(2**53 + 1), np.longdouble(2**53) + 1):
        assert LaplaceMechanism(noise_multiplier=1.0, sensitivity=whole).sensitivity == 2**53 + 2
    assert Fraction(GaussianMechanism(noise_multiplier=1.0, sensitivity=Fraction(1, 3)).sensitivity) >= Fraction(1, 3)


@pytest.mark.parametrize("sensitivity", [1.0, 3.0, 0.1, 1e-200, 7e250])
@pytest.mark.parametrize("multiplier", [1e-3, 1 / 3, 1.1, 1e12])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_the_noise_that_runs_is_never_less_than_the_event_says(law, multiplier, sensitivity):
    for dimension in (1, 10, 10**6 if multiplier < 1e6 else 100):
        if multiplier * (dimension if law == "laplace" else dimension**0.5) > 2.0**39.9:
            continue
        scale, step = grid_noise(law, multiplier, sensitivity, dimension)
        moved = Fraction(samplers.snapped_sensitivity(sensitivity, step, dimension, 1 if law == "laplace" else 2))
        assert Fraction(scale) >= Fraction(multiplier) * moved
        assert step == samplers.grid_step(scale)  # the grid that the sampler of that scale uses
        growth = Fraction(scale) / (Fraction(multiplier) * Fraction(sensitivity)) - 1
        assert 0 < growth < 2 * multiplier * (dimension if law == "laplace" else dimension**0.5) * 2.0**-39 + 1e-15


def test_too_many_coordinates_for_huge_noise_are_refused():
    with pytest.raises(InputError, match="too many for laplace noise"):
        grid_noise("laplace", 1e12, 1.0, 10**6)


def test_by_absolute_noise_the_event_does_not_promise_more():
    for noise in (0.1, 1.0, 2 / 3, 1e5):
        for sensitivity in (0.3, 1.0, 7.7):
            laplace = LaplaceMechanism.from_noise_scale(noise, sensitivity=sensitivity)
            gaussian = GaussianMechanism.from_noise_std(noise, sensitivity=sensitivity)
            assert Fraction(laplace.event.noise_multiplier) <= Fraction(noise) / Fraction(sensitivity)
            assert noise * (1 - 1e-15) < laplace.noise_scale < noise * (1 + 1e-15 + 2.0**-38 * noise / sensitivity)
            assert noise * (1 - 1e-15) < gaussian.noise_std < noise * (1 + 1e-15 + 2.0**-38 * noise / sensitivity)
            assert gaussian.event == Gaussian(laplace.event.noise_multiplier)


def test_the_event_is_the_noise_multiplier_that_was_given():
    for multiplier in (0.3, 1.1, 17.0):
        assert GaussianMechanism(noise_multiplier=multiplier, sensitivity=0.7).event == Gaussian(multiplier)
        assert LaplaceMechanism(noise_multiplier=multiplier, sensitivity=0.7).event == Laplace(multiplier)
        laplace = DiscreteLaplaceMechanism.from_noise_multiplier(multiplier, sensitivity=3, changes=2)
        gaussian = DiscreteGaussianMechanism.from_noise_multiplier(multiplier, sensitivity=3, changes=2)
        assert Fraction(laplace.noise_scale) >= 3 * Fraction(multiplier)
        assert Fraction(gaussian.noise_std) >= 3 * Fraction(multiplier)
        assert laplace.noise_scale == gaussian.noise_std == pytest.approx(3 * multiplier)
        assert laplace.event == Repeat(DiscreteLaplace(laplace.noise_scale, 3), 2, spread=True)
        assert gaussian.event == Repeat(DiscreteGaussian(gaussian.noise_std, 3), 2, spread=True)


def test_one_unit_of_sensitivity_and_one_change_unless_said_otherwise():
    for kind in FLOATS:
        assert kind(noise_multiplier=2.0).sensitivity == 1.0
    assert LaplaceMechanism.calibrated(epsilon=0.5) == LaplaceMechanism.from_noise_scale(2.0) == LaplaceMechanism(noise_multiplier=2.0)
    assert GaussianMechanism.from_noise_std(2.0) == GaussianMechanism(noise_multiplier=2.0)
    assert GaussianMechanism.calibrated(epsilon=1, delta=1e-5).sensitivity == 1.0
    discrete = DiscreteLaplaceMechanism(noise_scale=2.0, sensitivity=1, changes=1)
    assert DiscreteLaplaceMechanism.calibrated(epsilon=0.5) == DiscreteLaplaceMechanism.from_noise_multiplier(2.0) == discrete
    gaussian = DiscreteGaussianMechanism(noise_std=2.0, sensitivity=1, changes=1)
    assert DiscreteGaussianMechanism.from_noise_multiplier(2.0) == gaussian == DiscreteGaussianMechanism(noise_std=2.0)
    assert DiscreteGaussianMechanism.calibrated(epsilon=1, delta=1e-5).sensitivity == 1


def test_the_largest_epsilon_has_a_mechanism():
    for sensitivity in range(1, 60):
        assert DiscreteLaplaceMechanism.calibrated(epsilon=1000, sensitivity=sensitivity).noise_scale == pytest.approx(sensitivity / 1000)
    assert LaplaceMechanism.calibrated(epsilon=1000).noise_multiplier == pytest.approx(1e-3)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1 / 3, 1.0, 7.7, 1000.0])
def test_calibrated_laplace_meets_epsilon_exactly(epsilon):
    assert Fraction(LaplaceMechanism.calibrated(epsilon=epsilon, sensitivity=3).noise_multiplier) * Fraction(epsilon) >= 1
    discrete = DiscreteLaplaceMechanism.calibrated(epsilon=epsilon, sensitivity=3, changes=2)
    assert Fraction(discrete.noise_scale) * Fraction(epsilon) >= 6
    assert discrete.noise_scale == pytest.approx(6 / epsilon)


def test_calibrated_gaussian_meets_delta():
    mechanism = GaussianMechanism.calibrated(epsilon=0.7, delta=1e-9, sensitivity=3)
    sigma = mp.mpf(mechanism.noise_std) / 3
    with mp.workdps(50):
        assert mp.ncdf(1 / (2 * sigma) - sigma * mp.mpf(0.7)) - mp.exp(mp.mpf(0.7)) * mp.ncdf(-1 / (2 * sigma) - sigma * mp.mpf(0.7)) < 1e-9


def test_delta_zero_and_epsilon_zero_are_refused_where_they_cannot_be_met():
    for make in (
        lambda: GaussianMechanism.calibrated(epsilon=1, delta=0),
        lambda: DiscreteGaussianMechanism.calibrated(epsilon=1, delta=0),
        lambda: LaplaceMechanism.calibrated(epsilon=0),
        lambda: DiscreteLaplaceMechanism.calibrated(epsilon=0),
    ):
        with pytest.raises(InputError):
            make()


def test_several_discrete_gaussians_are_left_to_the_accountant():
    with pytest.raises(RefusedError, match=r"dither\.calibrate"):
        DiscreteGaussianMechanism.calibrated(epsilon=1, delta=1e-5, changes=2)


# ------------------------------------------------------------------------------------------------ types, shapes, totality


@pytest.mark.parametrize("kind", FLOATS)
def test_shapes_and_types_of_what_comes_back(kind):
    mechanism = kind(noise_multiplier=1.0)
    for number in (1, 1.5, True, np.float32(2), np.int8(3), np.bool_(True), 10**400, -(10**400)):
        assert type(mechanism.measure(number).value) is float
    for many in (
        [1, 2],
        (1.5, 2),
        [[1], [2]],
        [],
        [[], []],
        np.zeros((2, 3, 4)),
        np.zeros((0, 2), np.int8),
        np.array(3.0),
        np.ones(3, np.uint64),
    ):
        value = mechanism.measure(many).value
        assert type(value) is np.ndarray
        assert value.dtype == np.float64
        assert value.shape == np.shape(many)


@pytest.mark.parametrize("mechanism", WHOLES)
def test_shapes_and_types_of_whole_numbers(mechanism):
    for number in (1, True, np.int8(3), 10**400):
        assert type(mechanism.measure(number).value) is int
    for many in ([1, 2], [], [[1], [2]], np.zeros((0, 2), np.int8), np.array(3), np.ones((2, 2), np.uint64), [True, False]):
        value = mechanism.measure(many).value
        assert value.dtype == np.int64
        assert value.shape == np.shape(many)
    for bad in (1.0, [1.5], np.zeros(2), [1, 2.0], NAN):
        with pytest.raises(InputError, match="floating"):
            mechanism.measure(bad)


@pytest.mark.parametrize("mechanism", [LaplaceMechanism(noise_multiplier=1.0), GaussianMechanism(noise_multiplier=1.0), *WHOLES])
@pytest.mark.parametrize("bad", ["1", None, 1j, [1, None], [[1], [1, 2]], np.array(["a"]), np.array([1], object), {1: 2}, np.ma.array([1])])
def test_wrong_types_and_shapes_are_refused_without_a_value(mechanism, bad):
    with pytest.raises(InputError, match="The value is") as raised:
        mechanism.measure(bad)
    assert "1" not in str(raised.value).replace("int16", "").replace("<U1", "").replace("complex128", "")


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("bounds", [None, (-5.0, 5.0), (2.0, 3.0)])
def test_no_error_depends_on_a_value(kind, bounds):
    mechanism = kind(noise_multiplier=1.0, sensitivity=5.0, bounds=bounds)
    for value in (NAN, INF, -INF, 1e308, -1e308, 5e-324, -0.0, 2**62, -(2**63), 2**64, 10**1000):
        for form in (
            value,
            [value],
            [value, 0.5],
            np.array([value]) if isinstance(value, float) else (value,),
        ):
            noisy = np.ravel(mechanism.measure(form).value)
            assert np.all(np.isfinite(noisy))
    for array in (
        np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max]),
        np.array([np.iinfo(np.uint64).max]),
        np.array([NAN, INF], np.float16),
    ):
        assert np.all(np.isfinite(mechanism.measure(array).value))


def test_nan_counts_as_zero_and_everything_is_clamped_into_the_bounds():
    mechanism = GaussianMechanism(noise_multiplier=1e-3, sensitivity=1e-6, bounds=(2.0, 3.0))
    assert mechanism.measure([NAN, INF, -INF, 2.5, 99, 2**70]).value == pytest.approx([2, 3, 2, 2.5, 3, 3], abs=1e-6)
    for value, held in ((1.0, 2), (9.0, 3), (2.5, 2.5), (NAN, 2), (-INF, 2), (INF, 3), (0, 2), (9, 3)):
        assert mechanism.measure(value).value == pytest.approx(held, abs=1e-6)
    free = GaussianMechanism(noise_multiplier=1e-3, sensitivity=1e-6)
    assert free.measure([NAN, 7.0]).value == pytest.approx([0, 7], abs=1e-6)
    assert free.measure(INF).value == pytest.approx(2.0**960)
    wide = GaussianMechanism(noise_multiplier=1e-3, sensitivity=1e-6, bounds=(0.5, 2.0**60))
    assert wide.measure(np.array([0, 2**61, 3])).value == pytest.approx([1, 2.0**60, 3], abs=1e-6)
    assert wide.measure([0.0, 2.0**61, 3.25]).value == pytest.approx([0.5, 2.0**60, 3.25], abs=1e-6)


def test_scalars_and_arrays_run_the_same_mechanism(monkeypatch):
    planted = [0]

    def fake(scale, size=None, rng=None):
        return fake_whole(scale, size) * samplers.grid_step(scale)

    def fake_whole(scale, size=None, rng=None):
        return planted[0] if size is None else np.full(size, planted[0])

    for name in ("laplace", "gaussian"):
        monkeypatch.setattr(samplers, name, fake)
        monkeypatch.setattr(samplers, f"rounded_{name}", fake_whole)
    for kind, noise in itertools.product(FLOATS, (5, -7, 12345678901)):
        planted[0] = noise
        for sensitivity in (2.0**-30, 1e-3, 1.0, 1e9, 2.0**40, 1e15, 1e25):
            mechanism = kind(noise_multiplier=1.3, sensitivity=sensitivity)
            for value in (0.0, 0.1, -0.7, 1e17, -3e22, 1e300, 2.0**961, 3, -3, 2**53 + 1, 2**62, -(2**70)):
                assert mechanism.measure(value).value == mechanism.measure([value]).value[0], (sensitivity, value)
            for value in (0, 3, -(2**30), 2**53):  # a whole number is the same number whatever its type
                assert mechanism.measure(value).value == mechanism.measure(float(value)).value, (sensitivity, value)


# ------------------------------------------------------------------------------------------------ what must not show


def test_a_predictable_source_makes_the_release_non_private():
    for mechanism in (LaplaceMechanism(noise_multiplier=1.0), GaussianMechanism(noise_multiplier=1.0), *WHOLES):
        assert mechanism.measure(3, seeded()).event == NonPrivate()
        assert mechanism.measure([3, 4], seeded()).event == NonPrivate()
        assert mechanism.measure(3).event == mechanism.event
        assert mechanism.measure(3, seeded(5)).value == mechanism.measure(3, seeded(5)).value


def finer_than(outputs, place):
    return np.mean(np.ldexp(outputs, place) != np.rint(np.ldexp(outputs, place)))


def leaks(draw):
    """Share of outputs on 0 and on 1 that are not multiples of 2**-53: some on one side, none on the other, tells them apart."""
    return [finer_than(draw(value), 53) for value in (0.0, 1.0)]


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_no_last_bit_betrays_the_value_and_numpys_does(kind, dtype):
    mechanism = kind(noise_multiplier=1.0)
    assert leaks(lambda v: mechanism.measure(np.full(20_000, v, dtype), seeded()).value) == [0, 0]
    assert leaks(lambda v: np.array([mechanism.measure(dtype(v).item(), seeded(k)).value for k in range(300)])) == [0, 0]
    twin = np.random.default_rng(1)
    on_zero, on_one = leaks(lambda v: v + (twin.laplace if kind is LaplaceMechanism else twin.normal)(size=20_000))
    assert on_zero > 0.1
    assert on_one == 0


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1 / 3, -1e-9, 12345.678])
def test_outputs_lie_on_the_grid_whatever_the_value(kind, value):
    mechanism = kind(noise_multiplier=1.0, sensitivity=0.3)
    outputs = mechanism.measure(np.full(1000, value), seeded()).value
    steps = outputs / grid_noise("laplace" if kind is LaplaceMechanism else "gaussian", 1.0, 0.3, 1000)[1]
    assert np.all(steps == np.rint(steps))
    assert not np.any(np.signbit(outputs) & (outputs == 0))


@pytest.mark.parametrize("sensitivity", [2.0**-300, 2.0**-40, 1e-9, 1e-3, 1.0, 37.0, 1e9, 2.0**40, 2.0**50, 1e18, 1e19, 1e30])
@pytest.mark.parametrize("single", [True, False])
def test_the_output_is_a_function_of_the_exact_sum(monkeypatch, sensitivity, single):
    """Integers a and a + d with noise z and z − d/step: one exact sum, so one output, be a beside 2**53 or not."""
    mechanism = GaussianMechanism(noise_multiplier=1.0, sensitivity=sensitivity)
    step = Fraction(mechanism.step)
    planted = []
    monkeypatch.setattr(
        samplers, "rounded_gaussian", lambda scale, size=None, rng=None: planted[0] if size is None else np.array([planted[0]])
    )

    def output(value, noise):
        planted[:] = [noise]
        return mechanism.measure(value).value if single else mechanism.measure(np.array([value])).value[0]

    for base in (0, 1, 1000, -1000, 2**53 - 1, 2**53, 2**53 + 1, -(2**53), 2**61 + 1):
        for noise in (0, 1, -1, 2**40 + 3, -(2**41) - 7, 2**44 + 1):
            for shift in (1, 2, 3, 1000):
                moved = shift / step if step < 1 else shift
                apart = shift if step < 1 else shift * int(step)
                if Fraction(moved).denominator != 1 or abs(noise - moved) >= 2**52 or abs(base + apart) > 2**62:
                    continue
                assert output(base, noise) == output(base + apart, int(noise - moved)), (base, noise, shift)


@pytest.mark.parametrize("sensitivity", [1e-200, 1e-3, 1.0, 2.0**40, 1e30, 1e250])
@pytest.mark.parametrize("single", [True, False])
def test_the_output_on_floats_is_a_function_of_the_exact_sum(monkeypatch, sensitivity, single):
    """As above, for floats: v and v + d, whole numbers of steps, under noise z and z − d; then values that are moved to such."""
    mechanism = LaplaceMechanism(noise_multiplier=1.0, sensitivity=sensitivity)
    step, planted = mechanism.step, [0]
    monkeypatch.setattr(
        samplers, "laplace", lambda scale, size=None, rng=None: planted[0] * step if size is None else np.full(size, planted[0] * step)
    )

    def output(value, noise):
        planted[0] = noise
        made = mechanism.measure(value).value if single else mechanism.measure(np.array([value])).value[0]
        return np.float64(made).tobytes()  # to the last bit, the sign of zero too

    random = np.random.default_rng(8)
    for places in (1, 20, 40, 52, 53, 54, 60, 90):
        for _ in range(20):
            start = float(random.integers(-(2**52), 2**52)) * 2.0 ** (places - 52)
            base = round(start) if places <= 52 else int(start)
            shift = int(random.integers(-(2**40), 2**40)) * max(1, 2 ** (places - 52))
            noise = int(random.integers(-(2**47), 2**47))
            if abs(noise - shift) >= 2**49 or Fraction(float(base + shift)) != base + shift:
                continue
            assert output(base * step, noise) == output((base + shift) * step, noise - shift)
            if places <= 51:
                assert output(base * step, noise) == output((base + 0.49) * step, noise) == output((base - 0.49) * step, noise)
    assert output(0.0, 0) == output(-0.0, 0) == output(step, -1) == output(-step, 1) == np.float64(0.0).tobytes()


def test_large_integers_are_not_rounded_apart():
    """2**53 and 2**53 + 1 as floats are 0 or 2 apart: cast first, and sensitivity 1 is not what it says."""
    for bounds in (None, (0.0, 2.0**61), (-(2.0**61), 2.0**61)):
        mechanism = GaussianMechanism(noise_multiplier=1e-3, sensitivity=1, bounds=bounds)
        moved = [mechanism.measure(2**60 + k, seeded()).value - 2.0**60 for k in (0, 1, 200)]
        assert moved == [0, 0, 256]  # only the last rounding, of the exact sum, is left


def test_bounds_round_no_large_integers(monkeypatch):
    """Of 2**53 + 1 and 2**53 + 2 as floats, one moves by 1 and the other not at all."""
    seen = []
    monkeypatch.setattr(numeric, "_on_integers", lambda law, scale, step, found, rng: seen.append(found.tolist()) or found.astype(float))
    for bounds in ((0.0, 2.0**61), (-(2.0**61), 1e18), (0.5, 2.0**55)):
        GaussianMechanism(noise_multiplier=1.0, bounds=bounds).measure([2**53 + 1, 2**53 + 2])
    assert seen == [[2**53 + 1, 2**53 + 2]] * 3


def test_the_snapped_values_keep_to_the_snapped_sensitivity(monkeypatch):
    """Worst pairs for rounding to the grid: ties, and values just beside them."""
    monkeypatch.setattr(samplers, "gaussian", lambda std, size=None, rng=None: 0.0 if size is None else np.zeros(size))
    for sensitivity in (1.0, 0.3, 2.0**-40 * 3.0):
        mechanism = GaussianMechanism(noise_multiplier=1.0, sensitivity=sensitivity)
        step = mechanism.step
        most = samplers.snapped_sensitivity(sensitivity, step, 1, 2)
        starts = np.array([0.0, step / 2, -step / 2, 1.5 * step, step * 0.4999, 7.5 * step])
        for start in starts:
            pair = [mechanism.measure(float(v)).value for v in (start, start + sensitivity)]
            assert Fraction(pair[1]) - Fraction(pair[0]) <= Fraction(most)


# ------------------------------------------------------------------------------------------------ whole numbers


def test_integers_with_rounded_noise():
    for kind in FLOATS:
        mechanism = kind(noise_multiplier=2.0, sensitivity=math.sqrt(2))
        assert type(mechanism.measure_integers(5).value) is int
        assert mechanism.measure_integers(5).event == mechanism.event
        noise = mechanism.measure_integers(np.zeros(40_000, int), seeded()).value
        assert noise.dtype == np.int64
        assert noise.std() == pytest.approx(math.sqrt(8 * (2 if kind is LaplaceMechanism else 1) + 1 / 12), rel=0.03)
        with pytest.raises(InputError, match="floating"):
            mechanism.measure_integers(1.5)
        assert kind(noise_multiplier=1.0, sensitivity=2.0**50).measure_integers(np.array([-(2**63)])).value < 0
        with pytest.raises(InputError, match=r"2\*\*54"):
            kind(noise_multiplier=1e12, sensitivity=1e9).measure_integers(1)


@pytest.mark.parametrize("kind", FLOATS)
def test_whole_numbers_are_held_within_the_bounds_too(kind):
    """Sensitivity 1 is right for numbers held in [0, 1] and for no others: a clip that is dropped is noise that is missing."""
    mechanism = kind(noise_multiplier=1e-3, sensitivity=1.0, bounds=(-0.5, 1.5))
    assert [mechanism.measure_integers(v).value for v in (-7, 0, 1, 1000, 2**70, -(2**70))] == [0, 0, 1, 1, 1, 0]
    assert mechanism.measure_integers(np.array([-7, 0, 1, 1000])).value.tolist() == [0, 0, 1, 1]
    wide = kind(noise_multiplier=1e-3, bounds=(-(2.0**80), 2.0**80))
    assert wide.measure_integers(2**80).value == 2**62
    for value in (0, [0, 1]):
        with pytest.raises(InputError, match="a whole number between them"):
            kind(noise_multiplier=1.0, bounds=(0.2, 0.8)).measure_integers(value)


def test_extreme_integers_do_not_wrap():
    for mechanism in WHOLES:
        low, high = mechanism.measure(np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])).value
        assert abs(int(low) + 2**62) < 1000
        assert abs(int(high) - 2**62) < 1000


def test_huge_integers_of_every_type_are_held_at_the_same_place():
    huge = (2**63, np.uint64(2**64 - 1), [2**70], np.array([2**64 - 1], np.uint64), np.array([2**63 - 1]))
    for mechanism in (*WHOLES, *(kind(noise_multiplier=1e-3, sensitivity=1.0) for kind in FLOATS)):
        for value in huge:
            assert np.ravel(mechanism.measure(value).value)[0] == pytest.approx(2**62, abs=1000)


def test_the_events_of_discrete_mechanisms():
    assert DiscreteLaplaceMechanism(noise_scale=2.0, sensitivity=3).event == DiscreteLaplace(2.0, 3)
    assert DiscreteLaplaceMechanism(noise_scale=2.0, sensitivity=3, changes=4).event == Repeat(DiscreteLaplace(2.0, 3), 4, spread=True)
    assert DiscreteGaussianMechanism(noise_std=2.0, changes=5).event == Repeat(DiscreteGaussian(2.0, 1), 5, spread=True)
    with pytest.raises(InputError, match="floating"):
        DiscreteLaplaceMechanism(noise_scale=2.0).measure(NAN)


def profile(law, noise, shifts, reach):
    """H_α(M(0) ‖ M(shifts)) at many α, by brute force over the product of one or two coordinates."""
    k = np.arange(-reach, reach + 1)
    pmf = np.exp(-np.abs(k) / noise) if law == "laplace" else np.exp(-0.5 * (k / noise) ** 2)
    pmf /= pmf.sum()
    ones = [(pmf, np.concatenate([np.zeros(s), pmf[: len(pmf) - s]]) if s else pmf) for s in shifts]
    p, q = ones[0]
    for other in ones[1:]:
        p, q = np.outer(p, other[0]).ravel(), np.outer(q, other[1]).ravel()
    return np.array([np.maximum(p - math.exp(e) * q, 0).sum() for e in np.linspace(-4, 4, 33)])


@pytest.mark.parametrize(("law", "noise"), [("laplace", 0.7), ("laplace", 3.0), ("gaussian", 0.8), ("gaussian", 3.0)])
def test_one_change_of_the_sum_dominates_any_division_of_it(law, noise):
    """The lemma of docs/proofs/numeric.md: with a group's total in one coordinate the loss is the worst."""
    reach = int(40 * noise if law == "laplace" else 15 * noise) + 10
    for total, first in ((2, 1), (3, 1), (5, 2), (6, 3)):
        single = profile(law, noise, (total,), 2 * reach)
        divided = profile(law, noise, (first, total - first), reach)
        assert np.all(divided <= single + 1e-12)
        assert np.max(single - divided) > 1e-6  # so the tighter view, l0 groups of l∞, is worth having


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_a_smaller_change_is_dominated_by_a_larger_one(law):
    small, large = (profile(law, 2.0, (s,), 120) for s in (1, 2))
    assert np.all(small <= large + 1e-12)


# ------------------------------------------------------------------------------------------------ intervals


@pytest.mark.parametrize("confidence", [1e-6, 0.5, 0.68, 0.95, 0.999999, 1 - 1e-12])
def test_intervals_on_the_grid_are_exact(confidence):
    for mechanism, inside in (
        (LaplaceMechanism(noise_multiplier=2.0, sensitivity=3.0), lambda w, s: 1 - mp.exp(-w / s)),
        (GaussianMechanism(noise_multiplier=2.0, sensitivity=3.0), lambda w, s: mp.erf(w / s / mp.sqrt(2))),
    ):
        with mp.workdps(40):
            scale = mechanism.noise_scale if isinstance(mechanism, LaplaceMechanism) else mechanism.noise_std
            accuracy = mechanism.interval(confidence)
            half, step = mp.mpf(accuracy.half_width), mp.mpf(mechanism.step)
            assert accuracy.confidence == confidence
            assert half / step - mp.mpf(1) / 2 == mp.nint(half / step - mp.mpf(1) / 2)
            assert inside(half, scale) >= mp.mpf(confidence)
            assert inside(half * (1 - mp.mpf(10) ** -10) - 2 * step, scale) < mp.mpf(confidence) + mp.mpf(10) ** -12


@pytest.mark.parametrize("confidence", [1e-6, 0.3, 0.5, 0.9, 0.95, 0.999999])
@pytest.mark.parametrize("noise", [0.3, 1.0, 2.5, 40.0])
def test_discrete_intervals_are_the_least_whole_ones(noise, confidence):
    with mp.workdps(40):
        for mechanism, weight in (
            (DiscreteLaplaceMechanism(noise_scale=noise), lambda k: mp.exp(-mp.mpf(k) / noise)),
            (DiscreteGaussianMechanism(noise_std=noise), lambda k: mp.exp(-(mp.mpf(k) ** 2) / (2 * mp.mpf(noise) ** 2))),
        ):
            weights = [weight(k) for k in range(int(60 * noise) + 60)]
            total = 2 * mp.fsum(weights) - 1
            half = int(mechanism.interval(confidence).half_width)

            def inside(k, weights=weights, total=total):
                return (2 * mp.fsum(weights[: k + 1]) - 1) / total

            assert inside(half) >= mp.mpf(confidence) - mp.mpf(10) ** -20
            assert half == 0 or inside(half - 1) < mp.mpf(confidence)


def test_wide_discrete_gaussians_have_a_valid_interval():
    """Beyond the noise that is summed up: at most one wider than by the sum, never narrower."""
    for std in (10_001.3, 12_345.6):
        weights = np.exp(-0.5 * (np.arange(40 * std) / std) ** 2)
        outside = 1 - (2 * np.cumsum(weights) - 1) / (2 * weights.sum() - 1)  # beyond k, off by less than 1e-12
        for confidence in (1e-3, 0.3, 0.5, 0.8, 0.9, 0.95, 0.99, 0.9999):
            least = np.argmax(outside <= 1 - confidence + 1e-12)
            assert least <= DiscreteGaussianMechanism(noise_std=std).interval(confidence).half_width <= least + 1


def test_joint_intervals_hold_for_all_coordinates():
    single, joint = (GaussianMechanism(noise_multiplier=1.0).interval(0.95, dimension=1000, joint=j).half_width for j in (False, True))
    assert joint == pytest.approx(4.04966, rel=1e-4)  # Φ⁻¹ of (1 + .95^(1/1000))/2
    assert single == pytest.approx(1.95996, rel=1e-4)
    outputs = GaussianMechanism(noise_multiplier=1.0).measure(np.zeros((400, 1000)), seeded()).value
    assert 0.9 < np.mean(np.all(np.abs(outputs) <= joint, axis=1)) < 0.99
    assert tail_of(0.95, dimension=1, joint=True) == pytest.approx(0.05)
    with mp.workdps(60):
        for confidence, dimension in itertools.product((1e-9, 0.3, 0.95, 1 - 1e-12), (1, 2, 1000, 10**9)):
            exact = 1 - mp.mpf(confidence) ** (mp.mpf(1) / dimension)
            assert exact * (1 - mp.mpf("2e-13")) <= mp.mpf(tail_of(confidence, dimension=dimension, joint=True)) <= exact
            assert tail_of(confidence, dimension=dimension) == tail_of(confidence) <= 1 - Fraction(confidence)
            assert type(tail_of(confidence)) is float
    for mechanism in (LaplaceMechanism(noise_multiplier=1.0), GaussianMechanism(noise_multiplier=1.0), *WHOLES):
        assert mechanism.interval(0.9) == mechanism.interval(0.9, dimension=1, joint=True)
        assert mechanism.interval(0.9, dimension=2, joint=True).half_width > mechanism.interval(0.9, dimension=2).half_width


@pytest.mark.parametrize("bad", [0, 1, -0.5, 1.5, NAN, "0.9", True, None])
def test_bad_confidence_is_refused(bad):
    for mechanism in (LaplaceMechanism(noise_multiplier=1.0), GaussianMechanism(noise_multiplier=1.0), *WHOLES):
        with pytest.raises(InputError, match="confidence"):
            mechanism.interval(bad)


def test_mechanisms_are_values():
    assert GaussianMechanism(noise_multiplier=1) == GaussianMechanism(noise_multiplier=1.0)
    assert len({LaplaceMechanism(noise_multiplier=1.0), LaplaceMechanism(noise_multiplier=1.0)}) == 1
    with pytest.raises(AttributeError):
        GaussianMechanism(noise_multiplier=1.0).noise_multiplier = 0.1  # type: ignore[misc]  # frozen is what is tested
    assert numeric.SENSITIVITY_MIN > 0


# ------------------------------------------------------------------------------------------------ several units


def closeness(weights, moves, epsilon):
    """δ(ε) of noise with these weights at −r … r on as many integers as there are moves, by adding up its whole law."""
    reach = len(weights) // 2
    law = dict(zip(range(-reach, reach + 1), weights, strict=True))
    losses = {0.0: 1.0}
    for move in moves:
        one = {}
        for k, p in law.items():
            q = law.get(k - move, 0.0)
            ratio = round(math.log(p / q), 9) if q else INF
            one[ratio] = one.get(ratio, 0.0) + p
        both = {}
        for (a, p), (b, q) in itertools.product(losses.items(), one.items()):
            both[round(a + b, 9)] = both.get(round(a + b, 9), 0.0) + p * q
        losses = both
    return sum(p * -math.expm1(epsilon - a) for a, p in losses.items() if a > epsilon)


def laplace_weights(scale, reach=60):
    return [math.exp(-abs(k) / scale) * math.tanh(0.5 / scale) for k in range(-reach, reach + 1)]


def gaussian_weights(std, reach=20):
    raw = [math.exp(-(k * k) / (2 * std * std)) for k in range(-reach, reach + 1)]
    return [w / sum(raw) for w in raw]


def test_units_that_share_out_the_counts_they_move_are_priced_for_it():
    """Three units that move two counts each may move three by two: six moves of one integer cover it, two of three are not proved to."""
    for scale in (0.7, 1.0, 2.0):
        weights = laplace_weights(scale)
        price = loss(DiscreteLaplaceMechanism(noise_scale=scale, changes=2).event, group=3)
        whole = loss(DiscreteLaplace(scale, 2), group=3)
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            assert price.delta(epsilon).upper == pytest.approx(whole.delta(epsilon).upper, rel=1e-6)
            for moves in ((2, 2, 2), (3, 3), (3, 2, 1), (2, 2, 1, 1), (3, 1, 1, 1), (1,) * 6):
                assert closeness(weights, moves, epsilon) <= price.delta(epsilon).upper + 1e-9
        assert not price.tight
        two = DiscreteLaplaceMechanism(noise_scale=scale, changes=2).event  # two units: two counts by two are the worst, and met
        assert loss(two, group=2).delta(0.5).upper == pytest.approx(closeness(weights, (2, 2), 0.5), rel=1e-5)


def test_many_counts_are_put_into_fewer_than_twice_as_many():
    many = Repeat(DiscreteLaplace(300.0), 1_000, spread=True)
    one = loss(DiscreteLaplace(300.0, 1_000), group=3).epsilon(1e-6).upper
    bins = loss(Repeat(DiscreteLaplace(300.0), 1_999), group=3).epsilon(1e-6).upper
    assert loss(many, group=3).epsilon(1e-6).upper == pytest.approx(bins, rel=1e-3)
    assert bins < 0.5 * one


@pytest.mark.parametrize("sensitivity", [1, 2])
def test_groups_of_units_with_discrete_gaussian_noise(sensitivity):
    for std in (1.0, 2.0):
        weights = gaussian_weights(std, 24)
        price = loss(DiscreteGaussianMechanism(noise_std=std, sensitivity=sensitivity, changes=2).event, group=2)
        for moves in ((2, 2), (2, 1, 1), (1, 1, 1, 1)):
            for epsilon in (0.0, 0.5, 2.0):
                assert closeness(weights, [sensitivity * m for m in moves], epsilon) <= price.delta(epsilon).upper + 1e-9
    noisy_counts = DiscreteGaussianMechanism(noise_std=20.0, changes=4).event
    plain = loss(Repeat(DiscreteGaussian(20.0), 4), group=3).epsilon(1e-6)
    assert plain.upper < loss(noisy_counts, group=3).epsilon(1e-6).upper < 1.25 * plain.upper


def test_one_unit_costs_what_it_did_and_filters_price_it_as_before():
    for event in (DiscreteLaplace(3.0, 2), DiscreteGaussian(3.0)):
        counts, plain = Repeat(event, 4, spread=True), Repeat(event, 4)
        for neighbors in ("add_remove", "replace"):
            ours, theirs = loss(counts, neighbors=neighbors), loss(plain, neighbors=neighbors)
            assert ours.epsilon(1e-6) == theirs.epsilon(1e-6)
            assert ours.tight == theirs.tight
        assert [r.epsilon for r in compare(counts, 1e-6).rows] == [r.epsilon for r in compare(plain, 1e-6).rows]
        for group in (1, 3):
            opened = [filters.ZcdpFilter.open(900.0, group=group), filters.RdpFilter.open(900.0, 1e-6, orders=[2.0, 8.0], group=group)]
            if isinstance(event, DiscreteLaplace):
                opened += [filters.PureFilter.open(900.0, group=group), filters.AdvancedFilter.open(900.0, 1e-6, group=group)]
            for book in opened:
                assert book.price(counts) == book.price(plain)


def test_counts_that_are_shared_out_within_other_events():
    counts, whole = Repeat(DiscreteLaplace(4.0), 3, spread=True), DiscreteLaplace(4.0, 3)
    for wrap in (
        lambda e: Sequence((Gaussian(1.0), e)),
        lambda e: Repeat(e, 3),
        lambda e: Repeat(Subsample(e, Shuffled(2, 10)), 3),
    ):
        assert loss(wrap(counts), group=3).delta(0.5).upper == pytest.approx(loss(wrap(whole), group=3).delta(0.5).upper, rel=0.01)
    # stated for presence, and the unit is replaced: it moves counts down and others up
    one = loss(Subsample(counts, Poisson(0.999)), neighbors="replace").delta(0.1).upper
    assert one >= 0.99 * closeness(laplace_weights(4.0, 30), (1,) * 6, 0.1)
    assert one >= 0.99 * closeness(laplace_weights(4.0, 30), (2, 2, 2), 0.1)
    drowned = loss(Repeat(DiscreteLaplace(0.01), 100, spread=True), group=3)
    assert drowned.epsilon(1e-6).upper == INF
    assert loss(Repeat(DiscreteGaussian(0.01), 100, spread=True), group=3).epsilon(1e-6).upper == INF
