"""Weighted key selection: its δ against every way to divide a weight, its law against its event, its edges."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.accounting.loss import loss
from dither.core.errors import InputError, UnknownNameError
from dither.core.events import ApproxDp, Gaussian, Repeat, Sequence
from dither.noise import weighted
from dither.noise.rng import UnsafeSeededRng
from dither.noise.weighted import GRID, WeightedSelection, unit_weight

SMALL = 256


# ------------------------------------------------------------------------------------------------ weights


def test_equal_weights_are_the_largest_allowed_and_doubles_find_them():
    keys = np.arange(1, 10**6 + 1)
    found = np.floor(GRID / np.sqrt(keys.astype(np.float64))).astype(np.int64)
    assert bool(np.all(keys * found**2 <= GRID**2))
    assert bool(np.all(keys * (found + 1) ** 2 > GRID**2))
    assert [unit_weight(int(k)) for k in keys[:2000]] == found[:2000].tolist()
    assert unit_weight(4, 256) == 128
    with pytest.raises(InputError):
        unit_weight(0)


# ------------------------------------------------------------------------------------------------ δ


def shown(mechanism, weights):
    """The chance that any of these keys is shown, in 50 digits."""
    with mpmath.workdps(50):
        std = mpmath.mpf(mechanism.noise_multiplier) * mechanism.grid
        hidden = mpmath.mpf(1)
        for w in weights:
            hidden *= 1 - mpmath.erfc((mechanism.threshold - w - mpmath.mpf("0.5")) / (std * mpmath.sqrt(2))) / 2
        return 1 - hidden


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("keys", [1, 3, 50])
def test_delta_is_above_every_division_of_the_weight_and_near_the_worst(noise, keys):
    mechanism = WeightedSelection.for_delta(noise_multiplier=noise, delta=1e-6, keys_max=keys)
    assert mechanism.delta <= 1e-6
    draw = np.random.default_rng(1)
    worst = mpmath.mpf(0)
    divisions = [[unit_weight(k)] * k for k in range(1, keys + 1)]
    for _ in range(60):
        parts = draw.exponential(size=int(draw.integers(1, keys + 1))) ** draw.uniform(0.2, 4)
        divisions.append([int(w) for w in np.floor(GRID * np.sqrt(parts / parts.sum()))])
    for share in np.linspace(0, 1, 21):  # one large key and many small ones
        if keys > 1:
            rest = math.isqrt(int((GRID**2 - (share * GRID) ** 2) / (keys - 1)))
            divisions.append([int(share * GRID), *[rest] * (keys - 1)])
    for weights in divisions:
        assert sum(w * w for w in weights) <= GRID**2
        worst = max(worst, shown(mechanism, weights))
    assert worst <= mechanism.delta
    assert worst >= mechanism.delta * 0.5
    if noise >= 4:
        assert worst >= mechanism.delta * 0.97


def test_the_threshold_is_the_least_to_a_step():
    for delta in (1e-3, 1e-6, 1e-12, 1e-60):
        found = WeightedSelection.for_delta(noise_multiplier=3.0, delta=delta, keys_max=20)
        lower = WeightedSelection(noise_multiplier=3.0, threshold=found.threshold - GRID // 4096 - 1, keys_max=20)
        assert found.delta <= delta < lower.delta


@given(st.floats(0.01, 100), st.floats(1e-12, 0.1), st.integers(1, 1000))
def test_more_of_anything_moves_the_threshold_the_right_way(noise, delta, keys):
    at = WeightedSelection.for_delta(noise_multiplier=noise, delta=delta, keys_max=keys).threshold
    slack = GRID // 1024 + at // 500
    assert WeightedSelection.for_delta(noise_multiplier=2 * noise, delta=delta, keys_max=keys).threshold >= at - slack
    assert WeightedSelection.for_delta(noise_multiplier=noise, delta=delta / 2, keys_max=keys).threshold >= at - slack
    assert WeightedSelection.for_delta(noise_multiplier=noise, delta=delta, keys_max=2 * keys).threshold >= at - slack


# ------------------------------------------------------------------------------------------------ the law against the event


def key_laws(mechanism, before, after):
    """Pairs of probabilities of every outcome of one key: hidden, or each noisy weight that is shown."""
    std = mechanism.noise_multiplier * mechanism.grid
    low, high = mechanism.threshold, mechanism.threshold + int(16 * std)
    made = []
    for weight in (before, after):
        if not weight:
            made.append(np.concatenate(([1.0], np.zeros(high - low))))
            continue
        edges = (np.arange(low, high + 1) - weight - 0.5) / (std * math.sqrt(2))
        tails = np.array([math.erfc(e) / 2 for e in edges])
        made.append(np.concatenate(([1 - tails[0]], tails[:-1] - tails[1:])))
    return made


def sticks(mechanism, moves, epsilon):
    """The larger hockey-stick divergence of a whole output, keys being independent."""
    laws = [key_laws(mechanism, a, b) for a, b in moves]
    first, second = np.array([1.0]), np.array([1.0])
    for p, q in laws:
        first, second = np.outer(first, p).reshape(-1), np.outer(second, q).reshape(-1)
    bar = math.exp(epsilon)
    return max(float(np.maximum(0, first - bar * second).sum()), float(np.maximum(0, second - bar * first).sum()))


HALF, WHOLE = unit_weight(2, SMALL), SMALL
ADDED = {
    "a new key": [(0, WHOLE)],
    "two new keys": [(0, HALF), (0, HALF)],
    "an old key": [(700, 700 + WHOLE)],
    "two old keys": [(600, 600 + HALF), (500, 500 + HALF)],
    "an old and a new key": [(600, 600 + HALF), (0, HALF)],
}
REPLACED = {
    "one key for another": [(0, WHOLE), (WHOLE, 0)],
    "old keys, one up and one down": [(600, 600 + WHOLE), (500 + WHOLE, 500)],
    "up and new": [(600, 600 + HALF), (HALF, 0)],
}


def selection(neighbors="add_remove", **changes):
    given = {"noise_multiplier": 1.0, "threshold": 4 * SMALL, "keys_max": 2, "grid": SMALL, "neighbors": neighbors}
    return WeightedSelection(**(given | changes))


@pytest.mark.parametrize(("neighbors", "moves"), [("add_remove", m) for m in ADDED.values()] + [("replace", m) for m in REPLACED.values()])
def test_the_exact_law_of_neighbours_keeps_the_price(neighbors, moves):
    mechanism = selection(neighbors)
    price = loss(mechanism.event)
    for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
        assert sticks(mechanism, moves, epsilon) <= price.delta_upper(epsilon) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("claimed", "run", "moves"),
    [
        (selection(), selection(noise_multiplier=0.5), ADDED["an old key"]),
        (selection(), selection(threshold=3 * SMALL), ADDED["a new key"]),
        (selection(), selection(), [(0, 2 * WHOLE)]),
        (selection(keys_max=1), selection(), ADDED["two new keys"]),
        (selection(), selection(), REPLACED["old keys, one up and one down"]),
    ],
    ids=["noise halved", "threshold lower", "weight not bounded", "keys forgotten", "replace priced as add"],
)
def test_broken_twins_are_caught(claimed, run, moves):
    if moves is ADDED["two new keys"]:  # a threshold so high that small weights tell
        claimed = selection(keys_max=1, noise_multiplier=4.0, threshold=20 * SMALL)
        run = selection(keys_max=2, noise_multiplier=4.0, threshold=20 * SMALL)
    price = loss(claimed.event)
    assert any(sticks(run, moves, e) > price.delta_upper(e) * (1 + 1e-6) for e in (0.0, 0.3, 1.0, 2.0, 4.0, 9.0))


def test_the_event_under_both_relations():
    noise = Gaussian(1.0)
    added, replaced = selection(), selection("replace")
    assert added.event == Sequence((noise, ApproxDp(0.0, added.delta, one_unit=True)))
    assert replaced.event == Sequence((Repeat(noise, 2), ApproxDp(0.0, added.delta, one_unit=True)))


# ------------------------------------------------------------------------------------------------ edges


def test_what_is_shown_is_sorted_and_the_rest_is_not_looked_at():
    mechanism = WeightedSelection.for_delta(noise_multiplier=1.0, delta=1e-6)
    given = {"b": 900 * GRID, "a": 800 * GRID, "c": 0, "d": -(10**9) * GRID, "e": 10**60}
    found = mechanism.measure(given, UnsafeSeededRng(3)).value
    assert list(found) == ["a", "b", "e"]
    assert all(type(v) is int for v in found.values())
    assert abs(found["e"] - 2**61) < 100 * GRID
    assert mechanism.measure({}, UnsafeSeededRng(3)).value == {}
    assert list(mechanism.measure({10: 900 * GRID, 9: 900 * GRID}).value) == [9, 10]


@pytest.mark.parametrize("weights", [[1, 2], {"a": 1.0}, {"a": True}, {"a": None}, "ab"])
def test_weights_of_a_wrong_type_are_refused(weights):
    with pytest.raises(InputError, match="weight"):
        selection().measure(weights)


@pytest.mark.parametrize(
    "change",
    [
        {"noise_multiplier": 0.0},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": 1e12, "grid": GRID},
        {"threshold": 0},
        {"threshold": 1.5},
        {"noise_multiplier": 0.001, "threshold": 1},
        {"keys_max": 0},
        {"grid": 10},
    ],
    ids=str,
)
def test_arguments_out_of_range_are_refused(change):
    with pytest.raises(InputError):
        selection(**change)
    with pytest.raises(UnknownNameError):
        selection("friends")


def test_no_threshold_meets_a_delta_of_nothing():
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(InputError, match="delta"):
            WeightedSelection.for_delta(noise_multiplier=1.0, delta=delta)


def test_chances_to_be_kept():
    mechanism = selection()
    assert mechanism.keep_probability(0) == 0.0
    assert 0 < mechanism.keep_probability(1) < mechanism.keep_probability(1000) < mechanism.keep_probability(2000) < 1
    assert mechanism.keep_probability(10**6) == 1.0
    assert weighted._shown(1.0, 10**9) == 1e-300
