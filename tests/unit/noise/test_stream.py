"""Continual counters: what is released, from which noise, at which sensitivity; all of it against brute force."""

import copy
import itertools
import math
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dither.accounting._streams import stream_sensitivity
from dither.core.errors import InputError, OverBudgetError, RefusedError
from dither.core.events import DiscreteLaplace, Laplace, MatrixGaussian, NonPrivate, PureDp, Repeat, TreeGaussian
from dither.noise import _toeplitz, _whole, stream
from dither.noise.rng import SecureRng, UnsafeSeededRng
from dither.noise.stream import MatrixCounter, TreeCounter, banded_coefficients, square_root_coefficients

UNIT = 1 << 30


class Bench:
    """Runs a counter with chosen noise, and sees every noisy whole number that it forms."""

    def __init__(self, monkeypatch, noise=()):
        self.noise = list(noise)
        self.scales = []
        self.told = []
        self.drawn = 0
        for law in ("rounded_gaussian", "rounded_laplace", "discrete_laplace"):
            monkeypatch.setattr(stream.samplers, law, self._draw)
        monkeypatch.setattr(_whole.Buffer, "next", self._next)
        real = _whole.told

        def told(exact, noise):
            low = [int(high) * 2**32 + int(rest) + int(z) for high, rest, z in zip(*exact, noise, strict=True)]
            self.told.append(low if len(low) > 1 else low[0])
            return real(exact, noise)

        monkeypatch.setattr(stream, "told", told)

    def _draw(self, scale, size, source):
        self.scales.append(scale)
        return np.zeros(size, np.int64)

    def _next(self, _buffer=None):
        self.drawn += 1
        return np.array([self.noise[self.drawn - 1] if self.drawn <= len(self.noise) else 0], np.int64)

    def run(self, counter, values, noise=(), early=False):
        self.noise, self.told, self.drawn = list(noise), [], 0
        running = counter.open(UnsafeSeededRng(1))
        answers = [running.push(v) for v in values]
        if early and len(values) < counter.steps:
            answers[-1] = running.finish()
        return np.array(answers)


def released_matrix(bench, counter, unit=1.0):
    """Column s: every whole number that would be released if step s held 1 and nothing else, in order of release."""
    columns = []
    for s in range(counter.steps):
        values = np.zeros(counter.steps)
        values[s] = 1.0
        bench.run(counter, values)
        columns.append([t * counter.grid_step * unit for t in bench.told])
    return np.array(columns).T


def noise_matrix(bench, counter, steps=None):
    """Column i: all answers if the i-th noise were 1 grid step (times UNIT) and all else 0."""
    zeros = np.zeros(steps or counter.steps)
    bench.run(counter, zeros, early=True)
    count = bench.drawn
    columns = []
    for i in range(count):
        noise = [0] * count
        noise[i] = UNIT
        columns.append(bench.run(counter, zeros, noise, early=True) / UNIT / counter.grid_step)
    return np.array(columns).T


def patterns(steps, participations, separation):
    for size in range(1, participations + 1):
        for chosen in itertools.combinations(range(steps), size):
            if all(b - a >= separation for a, b in itertools.pairwise(chosen)):
                yield chosen


def tree(steps, **more):
    return TreeCounter(noise_multiplier=1.0, steps=steps, **more)


# ------------------------------------------------------------------------------------------------ tree: what is released


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 7, 8, 11, 16])
def test_tree_releases_each_node_once_and_every_step_is_in_as_many_nodes_as_the_event_pays(monkeypatch, steps):
    bench = Bench(monkeypatch)
    released = released_matrix(bench, tree(steps))
    assert set(np.unique(released)) <= {0.0, 1.0}
    assert np.all(released.sum(axis=0) == tree(steps).levels)
    assert tree(steps).levels == math.ceil(math.log2(steps)) + 1
    for node in released:
        inside = np.flatnonzero(node)
        assert np.array_equal(inside, np.arange(inside[0], inside[-1] + 1))
    complete = [tuple(node) for node in released if node[-1] == 0]
    assert len(complete) == len(set(complete))


@pytest.mark.parametrize(
    ("steps", "participations", "separation"),
    [(1, 1, 1), (5, 1, 1), (8, 1, 1), (6, 3, 1), (8, 2, 3), (8, 3, 2), (9, 9, 1), (11, 3, 4), (10, 2, 5)],
)
def test_tree_event_covers_every_participation_pattern(monkeypatch, steps, participations, separation):
    counter = tree(steps, participations=participations, min_separation=separation)
    released = released_matrix(Bench(monkeypatch), counter)
    worst = max(np.linalg.norm(released[:, list(p)].sum(axis=1)) for p in patterns(steps, participations, separation))
    assert worst <= stream_sensitivity(counter.event) * (1 + 1e-12)
    if participations == 1:
        assert worst == pytest.approx(stream_sensitivity(counter.event))


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 6, 8, 13, 16, 21])
def test_tree_noise_std_is_that_of_the_linear_map(monkeypatch, steps):
    counter = tree(steps)
    mapped = noise_matrix(Bench(monkeypatch), counter)
    std = np.linalg.norm(mapped, axis=1) * counter.noise_scale
    assert [counter.noise_std(t) for t in range(1, steps + 1)] == pytest.approx(list(std), rel=1e-9)
    assert max(std) == pytest.approx(max(counter.noise_std(t) for t in counter._worst_steps()), rel=1e-9)


@pytest.mark.parametrize(("steps", "ended"), [(8, 3), (8, 6), (16, 9), (7, 1)])
def test_tree_finished_early_is_completed_with_the_nodes_above(monkeypatch, steps, ended):
    counter = tree(steps)
    mapped = noise_matrix(Bench(monkeypatch), counter, ended)
    weights = counter._weights(ended, ended=True)
    assert sum(n * w * w for w, n in weights) == pytest.approx(float(mapped[-1] @ mapped[-1]), rel=1e-9)
    assert sum(n * w * w for w, n in weights) < sum(n * w * w for w, n in counter._weights(ended, ended=False))


def test_the_refined_estimate_halves_the_variance_of_a_node():
    assert [stream._block_variance(level) for level in range(4)] == pytest.approx([1, 2 / 3, 4 / 7, 8 / 15])
    assert stream._block_variance(40) == pytest.approx(0.5)
    for level in range(6):
        assert sum(n * w * w for w, n in stream._block_weights(level)) == pytest.approx(stream._block_variance(level))
        assert all(w > 0 for w, _ in stream._block_weights(level))


@pytest.mark.parametrize("steps", [1, 2, 5, 8, 12])
def test_without_noise_the_sums_are_exact(monkeypatch, steps):
    values = np.arange(1.0, steps + 1) * 0.25 - 1.5
    bench = Bench(monkeypatch)
    assert bench.run(tree(steps), values) == pytest.approx(np.cumsum(values), abs=1e-12)
    counter = MatrixCounter(noise_multiplier=1.0, steps=steps, coefficients=square_root_coefficients(steps))
    assert bench.run(counter, values) == pytest.approx(np.cumsum(values), abs=1e-9)


# ------------------------------------------------------------------------------------------------ matrix: what is released


MATRICES = [
    (6, square_root_coefficients(6), 1, 1),
    (8, square_root_coefficients(8), 3, 2),
    (9, banded_coefficients(9, 3), 3, 3),
    (9, banded_coefficients(9, 4), 4, 2),
    (7, (2.0, -0.75, 0.3), 3, 1),
    (8, (2 - 2.0**-40, *(1.5 * 2.0**-15,) * 7), 8, 1),  # the first is rounded up to a power of two
    (5, (1.0,), 2, 2),
]


@pytest.mark.parametrize(("steps", "coefficients", "participations", "separation"), MATRICES)
def test_matrix_releases_c_times_x_for_the_very_c_of_its_event(monkeypatch, steps, coefficients, participations, separation):
    counter = MatrixCounter(
        noise_multiplier=1.0, steps=steps, coefficients=coefficients, participations=participations, min_separation=separation
    )
    event = counter.event
    assert isinstance(event, MatrixGaussian)
    column = np.zeros(steps)
    column[: len(event.coefficients)] = event.coefficients
    toeplitz = np.array([[column[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])
    released = released_matrix(Bench(monkeypatch), counter, counter._unit)
    assert np.array_equal(released, toeplitz)
    worst = max(
        np.linalg.norm((released[:, list(p)] * signs).sum(axis=1))
        for p in patterns(steps, participations, separation)
        for signs in itertools.product((1, -1), repeat=len(p))
    )
    assert worst <= stream_sensitivity(event) * (1 + 1e-12)
    assert np.allclose(event.coefficients, coefficients[: len(event.coefficients)], atol=coefficients[0] * 2.0**-16)


@pytest.mark.parametrize(("steps", "coefficients", "participations", "separation"), MATRICES)
def test_matrix_noise_is_prefix_sums_of_c_inverse(monkeypatch, steps, coefficients, participations, separation):
    counter = MatrixCounter(noise_multiplier=1.0, steps=steps, coefficients=coefficients)
    column = np.zeros(steps)
    column[: len(counter.coefficients)] = counter.coefficients
    toeplitz = np.array([[column[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])
    theory = np.tril(np.ones((steps, steps))) @ np.linalg.inv(toeplitz)
    mapped = noise_matrix(Bench(monkeypatch), counter) / counter._unit
    assert np.allclose(mapped, theory, rtol=1e-9, atol=1e-9)
    std = np.linalg.norm(theory, axis=1) * counter.noise_scale
    assert [counter.noise_std(t) for t in range(1, steps + 1)] == pytest.approx(list(std), rel=1e-9)


def test_the_last_noisy_step_is_the_difference_of_two_sums():
    counter = MatrixCounter(noise_multiplier=1.0, steps=5, coefficients=(1.0, 0.5), dimension=3)
    running = counter.open(UnsafeSeededRng(5))
    first = running.push([1.0, 2.0, 3.0])
    assert np.array_equal(first, running.last)
    second = running.push([0.0, 0.0, 1.0])
    assert np.allclose(second - first, running.last, atol=1e-12)


# ------------------------------------------------------------------------------------------------ noise: how much


@pytest.mark.parametrize("multiplier", [1e-3, 0.3, 1.0, 7.5, 1e4])
@pytest.mark.parametrize("dimension", [None, 3, 10_000])
def test_noise_is_never_less_than_the_event_says(monkeypatch, multiplier, dimension):
    for sensitivity in (1.0, 0.1, 3.0, 1e-9, 1e9):
        made = {"noise_multiplier": multiplier, "sensitivity": sensitivity, "dimension": dimension}
        counters = [
            TreeCounter(steps=8, **made),
            TreeCounter(steps=8, noise="laplace", **made),
            MatrixCounter(steps=8, coefficients=(1.0, 0.5), **made),
        ]
        for counter in counters:
            bench = Bench(monkeypatch)
            monkeypatch.undo()
            bench = Bench(monkeypatch)
            running = counter.open(SecureRng())
            running._noise._draw(SecureRng(), 1)
            finest = counter.grid_step * getattr(counter, "_unit", 1.0)
            absolute = Fraction(bench.scales[-1]) * Fraction(finest)
            size = dimension or 1
            l1 = getattr(counter, "noise", "") == "laplace"
            growth = Fraction(size) if l1 else Fraction(math.isqrt(size << 80), 1 << 40)
            assert absolute >= Fraction(multiplier) * (Fraction(sensitivity) + growth * Fraction(counter.grid_step))
            moved = Fraction(sensitivity) + (growth + Fraction(1, 1000)) * Fraction(counter.grid_step)
            assert absolute <= Fraction(multiplier) * moved * (1 + Fraction(1, 2**45))
            assert absolute <= Fraction(multiplier) * Fraction(sensitivity) * (1 + Fraction(1, 1000))
            assert running._noise._dimension == size
            monkeypatch.undo()


def test_the_grid_is_fine_beside_the_sensitivity_and_fits_the_noise():
    assert tree(8).grid_step == 2.0**-20
    assert tree(8, dimension=4).grid_step == 2.0**-21
    assert tree(8, dimension=4, noise="laplace").grid_step == 2.0**-22
    assert tree(8, sensitivity=3.0).grid_step == 2.0**-19
    assert tree(8, noise="discrete_laplace", sensitivity=8).grid_step == 1.0
    root = {"coefficients": (1.0, 0.5), "steps": 8, "noise_multiplier": 1.0}
    assert MatrixCounter(**root).grid_step == 2.0**-20
    assert MatrixCounter(**root)._unit == 2.0**-16
    assert MatrixCounter(**{**root, "coefficients": (3.0, 0.5)})._unit == 2.0**-15
    assert MatrixCounter(**root, dimension=16).grid_step == 2.0**-22
    assert TreeCounter(noise_multiplier=2.0**36, steps=8).grid_step == 2.0**-15  # 2·2³⁶/2⁵²
    assert MatrixCounter(**{**root, "noise_multiplier": 2.0**20}).grid_step == 2.0**-15
    for multiplier in (1e-3, 1.0, 1e6, 1e11):
        for counter in (TreeCounter(noise_multiplier=multiplier, steps=8), MatrixCounter(**{**root, "noise_multiplier": multiplier})):
            assert counter.noise_scale / counter.grid_step / getattr(counter, "_unit", 1.0) <= 2**54


@pytest.mark.parametrize("make", [TreeCounter, lambda **more: MatrixCounter(coefficients=(1.0, 0.5), **more)])
def test_noise_that_fits_no_integer_is_refused(make):
    with pytest.raises(InputError, match=r"noise_multiplier=1000000000000\.0"):
        make(noise_multiplier=1e12, steps=8, dimension=2**30)


def test_intervals_are_the_quantile_of_the_worst_step_and_the_rounding():
    from_table = 1.959963984540054
    counter = tree(6)
    worst = max(counter.noise_std(t) for t in range(1, 7))
    assert counter.interval().half_width == pytest.approx(from_table * worst + 2.0**-20 * (6 + 2 * 4) / 2, abs=1e-9)
    assert counter.interval().confidence == 0.95
    root = MatrixCounter(noise_multiplier=1.0, steps=6, coefficients=square_root_coefficients(6))
    spread = math.sqrt(6 * np.sum(np.array(_toeplitz.growth(root.coefficients, 6))[-1]))
    slack = root.grid_step * (6 + spread * root._unit) / 2
    assert root.interval().half_width == pytest.approx(from_table * root.noise_std(6) + slack, abs=1e-10)
    assert root.interval().confidence == 0.95
    for share in (0.5, 0.9, 0.999):
        laplace = tree(6, noise="laplace")
        worst = max(laplace._worst_steps(), key=laplace.noise_std)
        reach = (laplace.interval(share).half_width - laplace.grid_step * (6 + 2 * 4) / 2) / laplace.noise_scale
        assert stream._laplace_tail(reach, laplace._weights(worst, ended=worst == 6)) == pytest.approx(1 - share, rel=1e-6)


def test_upper_root_finds_the_least_that_will_do():
    for goal in (0.9, 0.5, 1e-3, 1e-9):
        assert stream._upper_root(lambda t: math.exp(-t), goal) == pytest.approx(-math.log(goal), rel=1e-12)
        assert math.exp(-stream._upper_root(lambda t: math.exp(-t), goal)) <= goal
    assert stream._upper_root(lambda t: 0.0 if t >= 1 else 1.0, 0.0) == 1.0


def test_events():
    assert tree(9, participations=2, min_separation=3).event == TreeGaussian(1.0, 9, 2, 3)
    assert tree(9, noise="laplace").event == Repeat(Laplace(1.0), 5)
    assert tree(9, noise="laplace", participations=3).event.epsilon == pytest.approx(15.0)
    assert tree(9, noise="laplace", participations=3).event.epsilon >= 15.0
    whole = TreeCounter(noise_multiplier=2.0, steps=4, sensitivity=3, noise="discrete_laplace")
    assert isinstance(whole.event, Repeat)
    assert whole.event.event == DiscreteLaplace(whole.noise_scale, 3)
    assert whole.event.count == 3
    assert 6.0 <= whole.noise_scale < 6.0 + 1e-9
    several = TreeCounter(noise_multiplier=2.0, steps=4, sensitivity=3, noise="discrete_laplace", participations=2)
    assert isinstance(several.event, PureDp)
    assert 3.0 <= several.event.epsilon < 3.0 + 1e-9


@pytest.mark.parametrize("counter", [tree(4), MatrixCounter(noise_multiplier=1.0, steps=4, coefficients=(1.0, 0.5))])
def test_the_event_says_when_noise_can_be_predicted(counter):
    assert counter.measure([1, 2, 3, 4]).event == counter.event
    assert counter.measure([1, 2, 3, 4], UnsafeSeededRng(1)).event == NonPrivate()
    assert counter.open().event == counter.event
    assert counter.open(UnsafeSeededRng(1)).event == NonPrivate()


def test_discrete_laplace_is_for_whole_numbers_by_type():
    """Rounded, 0.5 and 1.5 would be 0 and 2: twice as far apart as the sensitivity that is priced."""
    counter = TreeCounter(noise_multiplier=1.0, steps=3, noise="discrete_laplace")
    running = counter.open(UnsafeSeededRng(1))
    for wrong in (0.5, 1.0, math.nan, np.float32(1)):
        with pytest.raises(InputError, match="floating"):
            running.push(wrong)
    with pytest.raises(InputError, match="floating"):
        counter.measure([1, 2.0, 3], UnsafeSeededRng(1))
    for allowed in (1, True, np.int8(1)):
        running.push(allowed)


def test_discrete_laplace_nodes_are_whole():
    counter = TreeCounter(noise_multiplier=2.0, steps=1, noise="discrete_laplace")
    for seed in range(20):
        assert counter.measure([7], UnsafeSeededRng(seed)).value[0].is_integer()


# ------------------------------------------------------------------------------------------------ floats betray nothing


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 9), st.integers(0, 2**32), st.sampled_from(["tree", "sqrt", "banded"]))
def test_answers_are_a_function_of_noisy_whole_numbers_alone(steps, seed, kind):
    """Other data under noise that cancels the difference give the same floats to the last bit: nothing else gets out."""
    with pytest.MonkeyPatch.context() as patch:
        bench = Bench(patch)
        random = np.random.default_rng(seed)
        if kind == "tree":
            counter = tree(steps)
        else:
            made = square_root_coefficients(steps) if kind == "sqrt" else banded_coefficients(steps, min(3, steps))
            counter = MatrixCounter(noise_multiplier=1.0, steps=steps, coefficients=made)
        one, other = (random.normal(size=steps) * 10.0 ** random.integers(-6, 6) for _ in range(2))
        first, second = under_cancelling_noise(bench, counter, one, other, random)
        assert first.tobytes() == second.tobytes()


def under_cancelling_noise(bench, counter, one, other, random):
    bench.run(counter, other)
    there = bench.told
    noise = [int(z) for z in random.integers(-(2**40), 2**40, size=len(there))]
    bench.run(counter, one)
    here = bench.told
    first = bench.run(counter, one, noise)
    return first, bench.run(counter, other, [z + a - b for z, a, b in zip(noise, here, there, strict=True)])


@pytest.mark.parametrize("counter", [tree(8), MatrixCounter(noise_multiplier=1.0, steps=8, coefficients=(1.0, 0.5))])
def test_a_twin_that_rounds_the_data_before_adding_noise_is_caught(monkeypatch, counter):
    random = np.random.default_rng(3)
    bench = Bench(monkeypatch)
    one, other = random.normal(size=8) * 1e5, random.normal(size=8) * 1e5
    first, second = under_cancelling_noise(bench, counter, one, other, random)
    assert first.tobytes() == second.tobytes()
    real = stream.told

    def broken(exact, noise):
        real(exact, noise)
        return (np.ldexp(exact[0].astype(float), 32) + exact[1]) / 3 + noise / 3

    monkeypatch.setattr(stream, "told", broken)
    first, second = under_cancelling_noise(bench, counter, one, other, random)
    assert first.tobytes() != second.tobytes()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.floats(allow_nan=True, width=64) | st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, width=64) | st.integers(-(2**70), 2**70),
    st.integers(-80, 80),
)
def test_rounding_moves_no_two_values_apart_by_more_than_a_step(a, b, places):
    step = 2.0**places
    first, second = (int(_whole.whole(_whole.one_step(x, None), step)[0]) for x in (a, b))
    held = [Fraction(0) if math.isnan(x) else Fraction(max(-(2**1000), min(2**1000, x))) for x in (a, b)]
    assert abs(first - second) <= abs(held[0] - held[1]) / Fraction(step) + 1
    assert max(abs(first), abs(second)) <= 2**61
    for x, whole in zip(held, (first, second), strict=True):
        if abs(x) < 2**53 and abs(x / Fraction(step)) < 2**60:
            assert abs(whole - x / Fraction(step)) <= Fraction(1, 2)


def test_whole_numbers_larger_than_a_float_holds_stay_exact():
    assert [int(_whole.whole(_whole.one_step(2**60 + i, None), 1.0)[0]) - 2**60 for i in range(4)] == [0, 1, 2, 3]
    assert [int(_whole.whole(_whole.one_step(x, None), 4.0)[0]) for x in (5, 6, 7, -5, -7)] == [1, 2, 2, -1, -2]


def test_limbs_hold_sums_of_the_largest_values(monkeypatch):
    counter = tree(2**14)
    bench = Bench(monkeypatch)
    answers = bench.run(counter, [np.inf] * 2**14)
    assert bench.told[-1] == 2**14 * 2**61
    assert answers[-1] == 2**14 * 2.0**61 * counter.grid_step
    wide = MatrixCounter(noise_multiplier=1.0, steps=3, coefficients=(1.0, -1.0, 1.0))
    bench.run(wide, [np.inf, -np.inf, np.inf])
    assert bench.told[-1] == 3 * 2**61 * round(1 / wide._unit)


def test_told_is_exact_and_canonical():
    for exact, noise in [(-5, 3), (2**61, -(2**61)), (-(2**61), 2**60), (2**33 - 1, 1), (0, -1)]:
        limbs = _whole.split(np.array([exact]))
        assert _whole.told(limbs, np.array([noise]))[0] == float(exact + noise)
        assert _whole.told(limbs + _whole.split(np.array([7])), np.array([noise - 7]))[0] == float(exact + noise)


def test_nan_counts_as_zero_and_infinity_is_cut(monkeypatch):
    bench = Bench(monkeypatch)
    assert np.array_equal(bench.run(tree(3), [1.0, math.nan, 2.0]), [1.0, 1.0, 3.0])
    assert np.isfinite(bench.run(tree(2), [math.inf, -math.inf])).all()


# ------------------------------------------------------------------------------------------------ a stream runs once


COUNTERS = [tree(3), MatrixCounter(noise_multiplier=1.0, steps=3, coefficients=(1.0, 0.5))]


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_step_too_many_is_refused(counter):
    running = counter.open(UnsafeSeededRng(1))
    for x in (1, 2, 3):
        running.push(x)
    with pytest.raises(OverBudgetError, match="at most 3"):
        running.push(4)


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_refused_step_leaves_the_stream_as_it_was(counter):
    running, twin = counter.open(UnsafeSeededRng(1)), counter.open(UnsafeSeededRng(1))
    assert running.push(1) == twin.push(1)
    for wrong in ([1, 2], "x", None, 1j, [[1]]):
        with pytest.raises(InputError):
            running.push(wrong)
    assert [running.push(2), running.push(3)] == [twin.push(2), twin.push(3)]


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_running_stream_cannot_be_copied(counter):
    running = counter.open(UnsafeSeededRng(1))
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(RefusedError, match="cannot be copied"):
            attempt(running)


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_running_stream_ends_in_a_fork(counter, monkeypatch):
    running = counter.open(UnsafeSeededRng(1))
    running.push(1)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for _ in range(2):  # the lock is given back
        with pytest.raises(RefusedError, match="another process"):
            running.push(1)
    monkeypatch.undo()
    running.push(2)


@pytest.mark.parametrize("counter", COUNTERS)
def test_an_interrupt_within_a_step_ends_the_stream(counter, monkeypatch):
    """Half a step is done: a node may be lost, and positions in the tree would no longer be those of the event."""
    running = counter.open(UnsafeSeededRng(1))
    running.push(1)

    def interrupted(exact, noise):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stream, "told", interrupted)
        with pytest.raises(KeyboardInterrupt):
            running.push(1)
    with pytest.raises(OverBudgetError):
        running.push(1)


@pytest.mark.parametrize(
    "make", [tree, lambda steps, **more: MatrixCounter(noise_multiplier=1.0, steps=steps, coefficients=(1.0,), **more)]
)
def test_sensitivities_that_no_float_holds_are_rounded_up(make):
    for whole in (2**53 + 1, np.int64(2**53 + 1), Fraction(2**54 + 2, 2)):
        assert make(3, sensitivity=whole).sensitivity == 2**53 + 2


def test_finish_ends_a_tree_once():
    running = tree(8).open(UnsafeSeededRng(1))
    with pytest.raises(InputError, match="no step"):
        running.finish()
    running.push(1)
    running.finish()
    for again in (running.finish, lambda: running.push(1)):
        with pytest.raises(OverBudgetError):
            again()


def test_measure_is_the_stream_run_to_its_end():
    for counter in (*COUNTERS, tree(3, dimension=2)):
        values = np.ones((3, 2)) if counter.dimension else np.ones(3)
        running = counter.open(UnsafeSeededRng(9))
        assert np.array_equal(counter.measure(values, UnsafeSeededRng(9)).value, [running.push(v) for v in values])
    short = tree(8).open(UnsafeSeededRng(9))
    pushed = [short.push(1), short.push(1), short.finish()]
    assert np.array_equal(tree(8).measure([1, 1], UnsafeSeededRng(9)).value, [pushed[0], pushed[2]])


def test_noise_is_fresh_for_every_node_and_every_stream():
    counter = tree(64, dimension=50)
    one, two = (counter.measure(np.zeros((64, 50)), SecureRng()).value for _ in range(2))
    assert len(np.unique(np.concatenate((one, two)))) == 2 * one.size


# ------------------------------------------------------------------------------------------------ coefficients


def test_square_root_squared_is_the_matrix_of_sums():
    c = np.array(square_root_coefficients(50))
    assert np.convolve(c, c)[:50] == pytest.approx(np.ones(50))


def test_series_inverse_for_short_and_long():
    for size in (1, 2, 63, 64, 65, 1000):
        c = np.array(square_root_coefficients(min(size, 300)))
        unit = np.convolve(c, _toeplitz._inverse(c, size))[:size]
        assert unit == pytest.approx([1.0] + [0.0] * (size - 1), abs=1e-10)


def test_objective_has_the_slope_it_says():
    x = np.array([0.6, 0.4, 0.1])
    value, slope = _toeplitz._objective(x, 40)
    for j in range(3):
        move = np.eye(3)[j] * 1e-6
        measured = (_toeplitz._objective(x + move, 40)[0] - _toeplitz._objective(x - move, 40)[0]) / 2e-6
        assert slope[j] == pytest.approx(measured, rel=1e-6)
    column = np.concatenate(([1.0], x, np.zeros(36)))
    c = np.array([[column[i - k] if i >= k else 0.0 for k in range(40)] for i in range(40)])
    b = np.tril(np.ones((40, 40))) @ np.linalg.inv(c)
    assert value == pytest.approx(math.log((column @ column) * np.sum(b * b)))


@pytest.mark.parametrize(("steps", "bands"), [(16, 2), (64, 3), (100, 8)])
def test_bands_are_the_best_that_a_slow_search_finds(steps, bands):
    found = np.array(banded_coefficients(steps, bands)[1:])
    slow = minimize(
        lambda x: _toeplitz._objective(x, steps)[0],
        np.full(bands - 1, 0.3),
        method="Nelder-Mead",
        options={"maxiter": 20_000, "fatol": 1e-12, "xatol": 1e-10, "adaptive": True},
    )
    assert _toeplitz._objective(found, steps)[0] <= slow.fun + 1e-9


def test_matrix_beats_tree_at_the_same_price():
    """Root mean squared error times sensitivity: at most 0.6 of the (refined, completed) tree's at 1024 steps."""
    steps = 1024

    def cost(counter):
        mean = np.mean([counter.noise_std(t) ** 2 for t in range(1, steps + 1)])
        return math.sqrt(mean) * stream_sensitivity(counter.event)

    the_tree = cost(tree(steps))
    root = cost(MatrixCounter(noise_multiplier=1.0, steps=steps, coefficients=square_root_coefficients(steps)))
    best = cost(MatrixCounter(noise_multiplier=1.0, steps=steps, coefficients=banded_coefficients(steps, steps)))
    assert best < root < 0.6 * the_tree
    epochs = {"participations": 4, "min_separation": 256}
    several_tree = cost(tree(steps, **epochs))
    several = cost(MatrixCounter(noise_multiplier=1.0, steps=steps, coefficients=banded_coefficients(steps, 256), **epochs))
    root_several = cost(MatrixCounter(noise_multiplier=1.0, steps=steps, coefficients=square_root_coefficients(steps), **epochs))
    assert several < root_several < 0.6 * several_tree


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "wrong",
    [
        {"noise_multiplier": 0.0},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": 1e13},
        {"steps": 0},
        {"steps": 2.0},
        {"steps": 10**12},
        {"sensitivity": 0.0},
        {"sensitivity": math.inf},
        {"sensitivity": 5e-324},
        {"sensitivity": "1"},
        {"dimension": 0},
        {"dimension": 2**40},
        {"participations": 0},
        {"participations": 9},
        {"min_separation": 0},
        {"participations": 3, "min_separation": 4},
    ],
)
def test_bad_arguments_are_refused_by_name(wrong):
    good = {"noise_multiplier": 1.0, "steps": 8, **wrong}
    for make in (lambda: TreeCounter(**good), lambda: MatrixCounter(coefficients=(1.0, 0.5), **good)):
        with pytest.raises(InputError, match=next(iter(wrong))):
            make()


@pytest.mark.parametrize(
    "wrong",
    [
        {"noise": "cauchy"},
        {"noise": "discrete_laplace", "sensitivity": 1.5},
        {"noise": "discrete_laplace", "sensitivity": 2**41},
        {"noise": "discrete_laplace", "dimension": 2},
        {"noise": "laplace", "participations": 8, "noise_multiplier": 0.01},
    ],
)
def test_bad_noise_is_refused(wrong):
    with pytest.raises(InputError):
        TreeCounter(**{"noise_multiplier": 1.0, "steps": 8, **wrong})


@pytest.mark.parametrize("wrong", [(), (0.0, 1.0), (-1.0,), (math.nan,), "1", (1.0,) * 9, (1.0, 1e6), (1.0, 3.0) + (0.0,) * 60, None])
def test_bad_coefficients_are_refused(wrong):
    with pytest.raises(InputError, match="coefficients"):
        MatrixCounter(noise_multiplier=1.0, steps=8 if len(wrong or ()) != 62 else 2000, coefficients=wrong)


def test_coefficients_that_round_to_zero_are_dropped_from_run_and_event_alike():
    counter = MatrixCounter(noise_multiplier=1.0, steps=4, coefficients=(1.0, 0.5, 1e-9))
    assert counter.coefficients == counter.event.coefficients == (1.0, 0.5)


@pytest.mark.parametrize("counter", COUNTERS)
def test_bad_streams_and_confidences_are_refused(counter):
    for wrong in ([], [1, 2, 3, 4], [[1, 2, 3]], "abc", 7, None):
        with pytest.raises(InputError):
            counter.measure(wrong, UnsafeSeededRng(1))
    for wrong in (0, 1, 1.5, math.nan, "x"):
        with pytest.raises(InputError):
            counter.interval(wrong)
    for wrong in (0, 4, 1.5):
        with pytest.raises(InputError):
            counter.noise_std(wrong)


def test_laplace_interval_bounds_the_tail_it_says():
    """One Laplace node: Chernoff is above the exact e^(−t), below ten times it."""
    for reach in (3.0, 6.0, 20.0):
        bound = stream._laplace_tail(reach, [(1.0, 1)])
        assert math.exp(-reach) <= bound <= 60 * math.exp(-reach)
    assert stream._laplace_tail(1e-9, [(1.0, 1)]) == pytest.approx(1.0)
    assert tree(1, noise="laplace").interval(0.99).half_width >= math.log(100)
