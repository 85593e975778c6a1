"""Smooth sensitivity, propose-test-release, sample-and-aggregate: against brute force over whole small worlds of datasets."""

import itertools
import math
import os
import time
import warnings
from collections import Counter
from fractions import Fraction
from functools import cache, lru_cache

import mpmath
import numpy as np
import pytest

from dither.core.errors import InputError
from dither.core.events import ApproxDp, Laplace, NonPrivate, PureDp
from dither.noise import robust
from dither.noise.rng import SecureRng, UnsafeSeededRng
from dither.noise.robust import (
    ProposeTestRelease,
    SampleAndAggregate,
    SmoothSensitivityMedian,
    Statistic,
    median_statistic,
    spread_statistic,
)

DOMAIN = (0, 1, 3, 4)
TOP = 4
WORLD = [rows for size in range(8) for rows in itertools.combinations_with_replacement(DOMAIN, size)]


def distance(one, other):
    """Fewest rows to add, remove or replace."""
    return max(len(one), len(other)) - (Counter(one) & Counter(other)).total()


def median(rows):
    padded = [0] * 20 + sorted(rows) + [TOP] * 20
    return padded[20 + len(rows) // 2]


@cache
def near(rows):
    return [other for other in WORLD if distance(rows, other) == 1]


@cache
def local(rows):
    return max(abs(median(rows) - median(other)) for other in near(rows))


SMALL = [rows for rows in WORLD if len(rows) <= 4]
PAIRS = [(one, other) for one in SMALL for other in near(one) if len(other) <= 4]


def smooth(mechanism, rows):
    grid = robust._Grid(0.0, TOP)
    return mechanism._smooth(grid.sorted(list(rows)), grid) * grid.step


# ------------------------------------------------------------------------------------------------ smooth sensitivity


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_smooth_sensitivity_is_that_of_its_definition(epsilon, delta):
    """Max over all datasets at all distances of e^(−βd)·(local sensitivity there), in the world of up to 7 rows."""
    mechanism = SmoothSensitivityMedian(epsilon=epsilon, delta=delta, lower=0.0, upper=TOP)
    inner = [rows for rows in WORLD if len(rows) <= 6]
    for rows in SMALL:
        brute = max(local(other) * math.exp(-mechanism.decay * distance(rows, other)) for other in inner)
        assert smooth(mechanism, rows) == pytest.approx(brute, rel=1e-8)
        assert smooth(mechanism, rows) >= brute * (1 - 1e-13)


def test_smooth_sensitivity_of_many_rows_by_the_plain_formula():
    random = np.random.default_rng(1)
    for size, epsilon in [(1, 1.0), (10, 0.3), (33, 1.0), (60, 0.1)]:
        rows = np.round(random.normal(50, 10, size) * 8) / 8
        mechanism = SmoothSensitivityMedian(epsilon=epsilon, lower=0.0, upper=100.0)
        padded = [0.0] * 200 + sorted(rows.clip(0, 100)) + [100.0] * 200
        m = 200 + size // 2
        plain = max(
            math.exp(-mechanism.decay * k) * max(padded[m + t] - padded[m + t - k - 1] for t in range(k + 2)) for k in range(size + 2)
        )
        grid = robust._Grid(0.0, 100.0)
        assert mechanism._smooth(grid.sorted(rows), grid) * grid.step == pytest.approx(plain, rel=1e-8)


def test_scale_changes_by_at_most_the_decay_between_neighbours():
    mechanism = SmoothSensitivityMedian(epsilon=1.0, lower=0.0, upper=TOP)
    for one, other in PAIRS:
        assert smooth(mechanism, one) <= math.exp(mechanism.decay) * smooth(mechanism, other)
        assert abs(median(one) - median(other)) <= smooth(mechanism, one)


def student(z):
    return (2 + z * z) ** -1.5


def laplace(z):
    return np.exp(-np.abs(z)) / 2


def worst_ratio(mechanism, shift, decay):
    """Largest log ratio of output densities over all neighbours (Student noise of the given shift and decay)."""
    outputs = np.concatenate((np.linspace(-60, 60, 4001), 10.0 ** np.arange(2, 7), -(10.0 ** np.arange(2, 7))))
    worst = 0.0
    for one, other in PAIRS:
        a, b = (smooth_with(decay, rows) / shift for rows in (one, other))
        here = student((outputs - median(one)) / a) / a
        there = student((outputs - median(other)) / b) / b
        worst = max(worst, float(np.log(here / there).max()))
    return worst


@cache
def smooth_with(decay, rows):
    padded = [0] * 20 + sorted(rows) + [TOP] * 20
    m = 20 + len(rows) // 2
    return max(math.exp(-decay * k) * max(padded[m + t] - padded[m + t - k - 1] for t in range(k + 2)) for k in range(10))


@pytest.mark.parametrize(("epsilon", "smoothing"), [(0.5, 0.5), (1.0, 0.5), (3.0, 0.3), (2.0, 0.8)])
def test_student_noise_keeps_its_epsilon_between_all_neighbours(epsilon, smoothing):
    mechanism = SmoothSensitivityMedian(epsilon=epsilon, lower=0.0, upper=TOP, smoothing=smoothing)
    assert worst_ratio(mechanism, mechanism.shift, mechanism.decay) <= epsilon
    assert worst_ratio(mechanism, 2 * mechanism.shift, 2 * mechanism.decay) > epsilon  # half the noise


def slide(mechanism):
    z = np.linspace(-50, 50, 200_001)
    return float(np.log(student(z) / student(z + mechanism.shift)).max())


def stretch(mechanism):
    z = np.concatenate((np.linspace(0, 50, 20_001), [1e6]))
    grown = math.exp(mechanism.decay)
    return float(max(np.log(student(z) / (grown * student(z * grown))).max(), np.log(grown * student(z * grown) / student(z)).max()))


@pytest.mark.parametrize("smoothing", [0.2, 0.5, 0.8])
def test_student_shift_and_decay_each_use_their_share_and_no_more(smoothing):
    mechanism = SmoothSensitivityMedian(epsilon=0.02, lower=0.0, upper=TOP, smoothing=smoothing)
    assert 0.99 * (1 - smoothing) * 0.02 < slide(mechanism) <= (1 - smoothing) * 0.02
    assert 0.99 * smoothing * 0.02 < stretch(mechanism) <= smoothing * 0.02


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-2), (1.0, 1e-4), (2.0, 1e-6), (4.0, 0.3), (1.0, 1e-30)])
def test_laplace_stretch_keeps_its_delta(epsilon, delta):
    """Exact hockey-stick between Laplace(1) and Laplace(e^±β) at ε/2; the largest β is used, up to one part in a thousand."""
    mechanism = SmoothSensitivityMedian(epsilon=epsilon, delta=delta, lower=0.0, upper=TOP)
    share = epsilon / 2

    def stick(decay):  # P(|Z| > z) − e^share P(e^−β |Z| > z), z where the densities cross
        z = (share + decay) / math.expm1(decay)
        return math.exp(-z) - math.exp(share - z * math.exp(decay))

    assert mechanism.shift <= share
    assert mechanism.decay <= share
    z = np.linspace(0, 80, 800_001)
    grown = math.exp(mechanism.decay)
    measured = np.maximum(laplace(z) - math.exp(share) * grown * laplace(z * grown), 0).sum() * 2 * (z[1] - z[0])
    assert measured <= delta * 1.01
    assert stick(mechanism.decay) <= delta
    assert mechanism.decay > 0.999999 * share or stick(mechanism.decay * 1.001) > delta


@pytest.mark.parametrize("smoothing", [0.2, 0.5])
@pytest.mark.parametrize("delta", [0.0, 0.4])
def test_slack_for_the_errors_of_floats_is_taken_off(smoothing, delta):
    """Shares are used up to a part in 2³⁰, and S is enlarged by 2⁻⁴⁰: a thousand times what floats can be wrong by."""
    mechanism = SmoothSensitivityMedian(epsilon=1.0, delta=delta, lower=0.0, upper=TOP, smoothing=smoothing)
    used = [mechanism.shift * (1 if delta else 3 / math.sqrt(8)) / (1 - smoothing), mechanism.decay * (1 if delta else 2) / smoothing]
    for share in used:
        assert 1 - 2.0**-29 < share < 1 - 2.0**-31
    grid = robust._Grid(0.0, TOP)
    assert mechanism._smooth(grid.sorted([]), grid) == grid.top * (1 + 2.0**-40)
    firm = SmoothSensitivityMedian(epsilon=1000.0, lower=0.0, upper=TOP)
    assert firm._smooth(grid.sorted([1.0] * 2000), grid) == 1 + 2.0**-40


def test_median_of_even_odd_and_no_rows():
    grid = robust._Grid(0.0, 8.0)
    for rows, expected in [([], 8.0), ([3], 3.0), ([1, 5], 5.0), ([5, 1, 2], 2.0), ([1, 2, 3, 4], 3.0)]:
        values = grid.sorted(rows)
        middle = robust._middle(values)
        assert grid.value(int(grid.around(values, middle, middle)[0])) == expected


def test_around_reads_the_endless_row():
    grid = robust._Grid(0.0, 8.0)
    values = np.array([5, 6, 7])
    for first in range(-4, 9):
        for last in range(first, 9):
            expected = [0 if i < 1 else grid.top if i > 3 else values[i - 1] for i in range(first, last + 1)]
            assert grid.around(values, first, last).tolist() == expected


def test_rows_are_held_one_by_one():
    grid = robust._Grid(-1.0, 1.0)
    assert grid.sorted([math.nan, math.inf, -math.inf, 5, -5, 0.25]).tolist() == sorted(
        [grid.top // 2, grid.top, 0, grid.top, 0, grid.top * 5 // 8]
    )
    assert grid.value(-(10**30)) == -1.0
    assert grid.value(10**30) == 1.0


def test_noise_scale_is_smooth_sensitivity_over_shift(monkeypatch):
    seen = []
    for delta, name in [(0.0, "_rounded_student"), (1e-6, "_rounded_laplace")]:
        monkeypatch.setattr(robust, name, lambda scale, rng: seen.append(scale) or 0)
        mechanism = SmoothSensitivityMedian(epsilon=1.0, delta=delta, lower=0.0, upper=TOP)
        answer = mechanism.measure([1, 1, 3], UnsafeSeededRng(1))
        assert answer.value == pytest.approx(1.0)
        assert float(seen[-1]) * robust._Grid(0.0, TOP).step == pytest.approx(smooth(mechanism, (1, 1, 3)) / mechanism.shift)


def test_student_rounding_is_exact(monkeypatch):
    """The rounding of scale·T(v) for v known to 64 bits, against the closed form in high precision."""

    class Fixed:
        private = False

        def __init__(self, word, sign):
            self.word, self.sign = word, sign

        def bits(self, count):
            return self.sign if count == 1 else self.word

    for scale in (Fraction(1, 3), Fraction(7, 2), Fraction(10**6), Fraction(2**60, 3)):
        for word in (2**63 + 12345, 2**62 + 999, 2**64 - 2**40, 2**20):
            with mpmath.workdps(60):
                v = (mpmath.mpf(word) + mpmath.mpf(1) / 2) / 2**64
                exact = mpmath.mpf(scale.numerator) / scale.denominator * v * mpmath.sqrt(2) / mpmath.sqrt(1 - v * v)
                expected = int(mpmath.floor(exact + mpmath.mpf(1) / 2))
            got = robust._rounded_student(scale, Fixed(word, 0))
            assert abs(got - expected) <= 1 + abs(expected) * 2.0**-20 * (word > 2**63)
            assert robust._rounded_student(scale, Fixed(word, 1)) == -got


@pytest.mark.parametrize(
    "mechanism",
    [SmoothSensitivityMedian(epsilon=1.0, lower=0.0, upper=10.0), SmoothSensitivityMedian(epsilon=1.0, delta=1e-6, lower=0.0, upper=10.0)],
)
def test_median_answers_are_on_the_grid_within_bounds_and_say_when_predictable(mechanism):
    grid = robust._Grid(0.0, 10.0)
    assert mechanism.event == (ApproxDp(1.0, 1e-6) if mechanism.delta else PureDp(1.0))
    assert mechanism.measure([1, 2, 3]).event == mechanism.event
    for seed in range(40):
        answer = mechanism.measure([4.0] * 50, UnsafeSeededRng(seed))
        assert answer.event == NonPrivate()
        assert 0 <= answer.value <= 10
        assert (answer.value / grid.step).is_integer()


# ------------------------------------------------------------------------------------------------ propose, test, release


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
def test_median_distance_is_the_least_number_of_changes(bound):
    statistic = median_statistic(0.0, TOP)
    for rows in SMALL:
        brute = min(distance(rows, other) for other in WORLD if len(other) <= 6 and local(other) > bound)
        assert statistic.distance(list(rows), round(bound / statistic.step)) == brute


def test_median_distance_where_no_dataset_is_unstable():
    statistic = median_statistic(0.0, TOP)
    grid = robust._Grid(0.0, TOP)
    assert statistic.distance([1, 2, 3], grid.top) == 4
    assert statistic.distance([], grid.top) == 1
    assert statistic.distance([], grid.top - 1) == 0


@pytest.mark.parametrize("half", [False, True])
def test_spread_distance_is_the_least_number_of_changes(half):
    statistic = spread_statistic(0.0, TOP, half=half)
    value = lru_cache(maxsize=None)(lambda rows: statistic.value(list(rows)))
    for rows in WORLD:
        padded = [0] * 20 + sorted(rows) + [TOP] * 20
        n = len(rows)
        difference = padded[20 + math.ceil(3 * n / 4)] - padded[19 + math.ceil(n / 4)]
        steps = round(difference / robust._Grid(0.0, TOP).step)
        if steps:
            edge = 2.0 ** value(rows) * (math.sqrt(2) if half else 1)
            assert edge * (1 - 1e-12) <= steps < 2 * edge
        else:
            assert value(rows) == -1
    for rows in WORLD:
        leaves = min(distance(rows, other) for other in WORLD if value(other) != value(rows))
        assert statistic.distance(list(rows), 0) == min(leaves - 1, max(0, len(rows) - 4))
        assert statistic.distance(list(rows), 1) == 0


def test_distances_move_by_at_most_one_between_neighbours():
    random = np.random.default_rng(2)
    pool = random.normal(50, 15, 60)
    for statistic, bounds in [
        (median_statistic(0, 100), (0, 3, 10)),
        (spread_statistic(0, 100), (0,)),
        (spread_statistic(0, 100, half=True), (0,)),
    ]:
        for size in (0, 1, 5, 18, 41):
            rows = pool[:size].tolist()
            others = [[*rows, x] for x in (0, 50, 100)] + [rows[:i] + rows[i + 1 :] for i in range(size)]
            others += [[*rows[:i], x, *rows[i + 1 :]] for i in range(size) for x in (0, 49, 100)]
            for bound in bounds:
                b = round(bound / statistic.step)
                here = statistic.distance(rows, b)
                assert all(abs(statistic.distance(other, b) - here) <= 1 for other in others)


def passes(mechanism, rows):
    """Probability that the test passes."""
    share = mechanism._shares[0]
    over = mechanism.threshold - mechanism.statistic.distance(list(rows), mechanism._steps)
    tail = math.exp(-share * (abs(over + 0.5) + 0.5)) / (1 + math.exp(-share))
    return tail if over >= 0 else 1 - tail


def hockey_stick(mechanism, one, other, epsilon, *, noise=1.0):
    p, q = passes(mechanism, one), passes(mechanism, other)
    grid = np.linspace(-80, 84, 164_001)
    scale = noise * mechanism._steps * mechanism.statistic.step / mechanism._shares[1]
    here, there = (laplace((grid - median(rows)) / scale) / scale for rows in (one, other))
    return max(0.0, (1 - p) - math.exp(epsilon) * (1 - q)) + np.maximum(p * here - math.exp(epsilon) * q * there, 0).sum() * 0.001


@pytest.mark.parametrize("bound", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (3.0, 0.01)])
def test_propose_test_release_keeps_its_guarantee_between_all_neighbours(epsilon, delta, bound):
    mechanism = ProposeTestRelease(epsilon=epsilon, delta=delta, statistic=median_statistic(0.0, TOP), bound=bound)
    found = [hockey_stick(mechanism, one, other, epsilon) for one, other in PAIRS[::5]]
    assert max(found) <= delta * 1.001
    thin = [hockey_stick(mechanism, one, other, epsilon, noise=0.1) for one, other in PAIRS[::5]]
    assert max(thin) > delta or epsilon > 1  # a tenth of the noise breaks it


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (5.0, 0.4), (1e-3, 1e-30)])
def test_threshold_is_the_least_that_keeps_delta(epsilon, delta):
    mechanism = ProposeTestRelease(epsilon=epsilon, delta=delta, statistic=spread_statistic(0, 1))
    share = mechanism._shares[0]
    assert 0.999999 * epsilon < share <= epsilon
    tail = math.exp(-share * (mechanism.threshold + 1)) / (1 + math.exp(-share))
    assert tail <= delta
    assert mechanism.threshold == 0 or tail * math.exp(share) > delta * (1 - 1e-6)


def test_the_test_and_the_release_use_the_noise_of_their_shares(monkeypatch):
    seen = {}
    monkeypatch.setattr(robust.samplers, "discrete_laplace", lambda scale, rng: seen.update(test=scale) or 0)
    monkeypatch.setattr(robust.samplers, "rounded_laplace", lambda scale, rng: seen.update(release=scale) or 0)
    statistic = Statistic(value=len, distance=lambda rows, bound: 1000 if bound == 3 else 0, step=0.5, offset=10.0)
    mechanism = ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=statistic, bound=1.5, test_share=0.2)
    assert mechanism.measure([1, 2], UnsafeSeededRng(1)).value == 11.0
    assert 5 <= seen["test"] < 5.001
    assert 3 / 0.8 <= seen["release"] < 3 / 0.8 + 0.001
    assert sum(mechanism._shares) <= 1.0
    assert mechanism.interval(0.95).half_width == pytest.approx((3 / 0.8 * math.log(20) + 1) * 0.5, rel=1e-6)


def test_passing_is_strictly_above_the_threshold(monkeypatch):
    monkeypatch.setattr(robust.samplers, "discrete_laplace", lambda scale, rng: 0)
    for extra, answered in [(0, False), (1, True)]:
        statistic = Statistic(value=lambda rows: 7, distance=lambda rows, bound, extra=extra: 14 + extra, step=1.0)
        mechanism = ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=statistic)
        assert mechanism.threshold == 13
        statistic = Statistic(value=lambda rows: 7, distance=lambda rows, bound, extra=extra: 13 + extra, step=1.0)
        mechanism = ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=statistic)
        assert (mechanism.measure([], UnsafeSeededRng(1)).value is not None) == answered


@pytest.mark.parametrize("made", ["nonsense", None, math.nan, 2.5, 1 << 70, [1]])
def test_nonsense_of_a_statistic_counts_as_the_least_stable(made, monkeypatch):
    monkeypatch.setattr(robust.samplers, "discrete_laplace", lambda scale, rng: 10**6)
    for name in ("value", "distance"):
        parts = {"value": lambda rows: 5, "distance": lambda rows, bound: 10**9, name: lambda *_: made}
        mechanism = ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=Statistic(step=1.0, **parts))
        assert mechanism.measure([], UnsafeSeededRng(1)).value == 0.0


def test_errors_and_warnings_of_a_statistic_are_not_seen():
    def loud(rows, bound=0):
        warnings.warn("a private thing", stacklevel=1)
        raise InputError("a private thing")

    mechanism = ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=Statistic(value=loud, distance=loud, step=1.0))
    assert mechanism.measure([1]).value is None


def test_release_says_when_predictable():
    mechanism = ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=median_statistic(0, 10), bound=0.1)
    assert mechanism.measure([5.0] * 100).event == ApproxDp(1.0, 1e-6)
    assert mechanism.measure([5.0] * 100, UnsafeSeededRng(1)).event == NonPrivate()
    assert mechanism.measure([5.0] * 2, UnsafeSeededRng(1)) == (None, NonPrivate())
    exact = ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=median_statistic(0, 8), bound=0)
    assert exact.measure([5.0] * 200, UnsafeSeededRng(1)).value == 5.0
    assert exact.interval().half_width == 0.0
    assert exact.interval().confidence == averaging().interval().confidence == mechanism.interval().confidence == 0.95
    assert mechanism.interval() == mechanism.interval(0.95)


# ------------------------------------------------------------------------------------------------ sample and aggregate


def mean(rows):
    return sum(rows) / len(rows)


def averaging(**more):
    return SampleAndAggregate(**{"function": mean, "blocks": 8, "lower": 0.0, "upper": 4.0, "epsilon": 1.0, **more})


@pytest.mark.parametrize("rows", [list(range(100)), tuple(range(100)), np.arange(100), []])
def test_every_row_is_in_exactly_one_block(rows):
    blocks = averaging()._blocks(rows, UnsafeSeededRng(3))
    assert len(blocks) == 8
    assert sorted(int(x) for block in blocks for x in block) == list(range(len(rows)))


def test_blocks_are_chosen_without_looking_at_the_rows():
    one, other = (averaging()._blocks(rows, UnsafeSeededRng(3)) for rows in (["a"] * 50, ["b"] + ["a"] * 49))
    assert [len(b) for b in one] == [len(b) for b in other]
    assert sum(a != b for a, b in zip(one, other, strict=True)) == 1


def test_one_row_moves_the_sum_by_at_most_the_range(monkeypatch):
    """With the same blocks and no noise, a replaced row moves the answer by at most range / blocks; some row does."""
    monkeypatch.setattr(robust.samplers, "rounded_laplace", lambda scale, size, rng: np.zeros(size, np.int64))
    mechanism = averaging(function=lambda rows: 1e9 * max(rows))
    answers = [mechanism.measure([x] + [0] * 60, UnsafeSeededRng(3)).value for x in (-5, 0, 1, math.inf)]
    assert max(answers) - min(answers) == pytest.approx(0.5)


@pytest.mark.parametrize(("epsilon", "dimension"), [(1.0, None), (0.25, None), (2.0, 3)])
def test_mean_noise_covers_one_whole_block(epsilon, dimension):
    mechanism = averaging(epsilon=epsilon, dimension=dimension)
    assert mechanism.event == Laplace(1 / epsilon)
    noise = float(mechanism._noise_steps) * mechanism._grid.step
    assert noise == pytest.approx(4.0 * (dimension or 1) / epsilon)
    assert noise >= 4.0 * (dimension or 1) / epsilon
    assert mechanism.interval(0.9).half_width == pytest.approx(noise * math.log(10) / 8, rel=1e-6)


class Odd(BaseException):
    """As what a task that is cancelled raises: no Exception."""


def failing(kind):
    def function(rows):
        if kind == "raises":
            raise RuntimeError(str(rows))
        if kind == "exits":
            raise SystemExit(3)
        if kind == "odd":
            raise Odd(str(rows))
        if kind == "warns":
            warnings.warn(str(rows), stacklevel=1)
        return {"nan": math.nan, "infinite": math.inf, "text": "x", "none": None, "shape": [1, 2], "warns": math.nan}[kind]

    return function


@pytest.mark.parametrize("kind", ["raises", "exits", "odd", "warns", "nan", "infinite", "text", "none", "shape"])
@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_whatever_goes_wrong_in_a_block_is_the_default(kind, aggregate, monkeypatch):
    monkeypatch.setattr(robust.samplers, "rounded_laplace", lambda scale, size, rng: np.zeros(size, np.int64))
    monkeypatch.setattr(robust, "_rounded_student", lambda scale, rng: 0)
    for default, told in [(None, 2.0), (3.0, 3.0)]:
        mechanism = averaging(function=failing(kind), aggregate=aggregate, default=default)
        assert mechanism.measure([1] * 30, UnsafeSeededRng(1)).value == pytest.approx(told)


def test_an_interrupt_from_the_keyboard_gets_through():
    def interrupted(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        averaging(function=interrupted).measure([1] * 30)


def test_empty_blocks_answer_with_the_default():
    assert averaging(epsilon=1000.0).measure([], UnsafeSeededRng(1)).value == pytest.approx(2.0, abs=0.02)


def hang(rows):
    time.sleep(30 if 7 in rows else 0)
    return mean(rows)


def dies(rows):
    os._exit(1)


def noisy_output(rows):
    print("private", rows)  # noqa: T201 - that nobody sees it is what is tested
    return mean(rows)


def test_a_block_that_hangs_is_killed_and_one_that_dies_is_the_default(capfd):
    for function in (hang, dies):
        mechanism = averaging(function=function, blocks=1, timeout=0.5, epsilon=1000.0)
        began = time.monotonic()
        assert mechanism.measure([7, 1], UnsafeSeededRng(1)).value == pytest.approx(2.0, abs=0.1)
        assert time.monotonic() - began < 10
    quiet = averaging(function=noisy_output, blocks=2, timeout=20.0, epsilon=1000.0)
    assert quiet.measure([1] * 40, UnsafeSeededRng(1)).value == pytest.approx(1.0, abs=0.1)
    assert "private" not in "".join(capfd.readouterr())


def test_steady_blocks_take_all_their_time_and_share_no_memory():
    seen = []

    def remembers(rows):
        seen.append(1)
        return len(seen)

    began = time.monotonic()
    steady = averaging(function=remembers, blocks=3, timeout=0.2, steady=True, epsilon=1000.0)
    assert steady.measure([1] * 40, UnsafeSeededRng(1)).value == pytest.approx(1.0, abs=0.1)
    assert time.monotonic() - began >= 0.6


def test_median_aggregate_is_the_smooth_median_of_the_answers():
    mechanism = averaging(aggregate="median", delta=1e-6, blocks=200)
    assert mechanism.event == ApproxDp(1.0, 1e-6)
    assert mechanism.interval() is None
    assert mechanism.measure([2.0] * 1000, UnsafeSeededRng(1)).value == pytest.approx(2.0, abs=0.5)
    assert averaging(aggregate="median").event == PureDp(1.0)


def test_vector_answers():
    mechanism = averaging(function=lambda rows: np.mean(rows, axis=0), dimension=2, blocks=50, epsilon=100.0)
    answer = mechanism.measure(np.tile([1.0, 3.0], (500, 1)), UnsafeSeededRng(1)).value
    assert answer == pytest.approx([1.0, 3.0], abs=0.05)


# ------------------------------------------------------------------------------------------------ bad input

MEDIAN = {"epsilon": 1.0, "lower": 0.0, "upper": 1.0}
BAD = [
    {"epsilon": 0.0},
    {"epsilon": math.nan},
    {"epsilon": -1},
    {"epsilon": "1"},
    {"lower": 2.0},
    {"lower": math.nan},
    {"lower": 1.0},
    {"lower": 1.0 - 1e-14},
    {"upper": math.inf},
    {"delta": 1.0},
    {"delta": 1e-31},
    {"delta": -1e-9},
]


@pytest.mark.parametrize("wrong", [*BAD, {"smoothing": 0.0}, {"smoothing": 1.0}])
def test_bad_medians_are_refused(wrong):
    with pytest.raises(InputError):
        SmoothSensitivityMedian(**{**MEDIAN, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        *BAD,
        {"function": 3},
        {"blocks": 0},
        {"blocks": 10**7},
        {"aggregate": "max"},
        {"aggregate": "mean", "delta": 1e-6},
        {"aggregate": "median", "dimension": 2},
        {"dimension": 0},
        {"default": 7.0},
        {"default": math.nan},
        {"timeout": 0.0},
        {"timeout": math.inf},
        {"steady": True},
    ],
)
def test_bad_aggregates_are_refused(wrong):
    with pytest.raises(InputError):
        SampleAndAggregate(**{**MEDIAN, "function": mean, "blocks": 4, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"delta": 0.0},
        {"delta": 1.0},
        {"statistic": None},
        {"bound": -1.0},
        {"bound": math.nan},
        {"bound": 1e30},
        {"test_share": 0.0},
        {"bound": 500.0, "epsilon": 1e-3, "test_share": 0.99, "statistic": median_statistic(0, 1)},
    ],
)
def test_bad_proposals_are_refused(wrong):
    with pytest.raises(InputError):
        ProposeTestRelease(**{"epsilon": 1.0, "delta": 1e-6, "statistic": median_statistic(0, 1), **wrong})


@pytest.mark.parametrize("wrong", [{"value": 1}, {"distance": None}, {"step": 0.0}, {"step": math.nan}, {"offset": math.inf}])
def test_bad_statistics_are_refused(wrong):
    with pytest.raises(InputError):
        Statistic(**{"value": len, "distance": lambda rows, bound: 0, "step": 1.0, **wrong})


def test_bad_rows_are_refused():
    calls = [
        SmoothSensitivityMedian(**MEDIAN).measure,
        ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=median_statistic(0, 1)).measure,
    ]
    for call, wrong in itertools.product(calls, (["x"], 3.0, [[1.0]], None, [1j], {1.0})):
        with pytest.raises(InputError):
            call(wrong, SecureRng())
    for wrong in (3.0, None, {1}, np.array(1.0)):
        with pytest.raises(InputError):
            averaging().measure(wrong)
    for wrong in (0, 1, math.nan):
        with pytest.raises(InputError):
            averaging().interval(wrong)
        with pytest.raises(InputError):
            ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=median_statistic(0, 1)).interval(wrong)


def test_the_largest_epsilon_with_nearly_all_of_it_on_the_amount_of_noise():
    """Its decay has no overflow on the way: all of the share that the δ allows."""
    mechanism = SmoothSensitivityMedian(epsilon=1000.0, lower=0.0, upper=1.0, delta=1e-6, smoothing=0.99)
    share = 1000 * 0.99 * (1 - robust._SLACK)
    with mpmath.workdps(30):
        decay = mpmath.mpf(mechanism.decay)
        tail = mpmath.exp(-(share + decay) / mpmath.expm1(decay)) * -mpmath.expm1(-decay)
    assert 0.999e-6 < tail <= 1e-6
    assert 0 <= mechanism.measure([0.5] * 9).value <= 1
