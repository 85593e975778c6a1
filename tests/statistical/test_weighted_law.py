"""Weighted key selection: keys are shown as often as is priced, and their noisy weights have the law that is priced.

Two kinds of test, each of a right law rejected with probability 5e-8. Each also shows its power: the same draws reject, at the same
level, the laws of 2/3 and 3/2 of the noise, and of a threshold half a standard deviation off.
"""

import math

import numpy as np
import pytest
from scipy import stats

from dither.noise.rng import UnsafeSeededRng
from dither.noise.weighted import GRID, WeightedSelection, unit_weight

pytestmark = pytest.mark.statistical
FALSE_ALARM = 5e-8
KEYS = 20_000


def selection(noise=2.0, threshold=8.0):
    return WeightedSelection(noise_multiplier=noise, threshold=int(threshold * GRID), keys_max=4)


def test_keys_are_shown_as_often_as_their_weight_says():
    mechanism = selection()
    for number, weight in enumerate((5 * GRID, 8 * GRID, 9 * unit_weight(2), 11 * GRID)):
        kept = len(mechanism.measure(dict.fromkeys(range(KEYS), weight), UnsafeSeededRng(number)).value)

        def p_value(chance, kept=kept):
            return stats.binomtest(kept, KEYS, chance).pvalue

        assert p_value(mechanism.keep_probability(weight)) > FALSE_ALARM / 4
        for wrong in (selection(threshold=7.0), selection(threshold=9.0)):
            assert p_value(wrong.keep_probability(weight)) < FALSE_ALARM
        if abs(weight - mechanism.threshold) > GRID:  # at the threshold itself every noise keeps half
            for wrong in (selection(noise=3.0), selection(noise=4 / 3)):
                assert p_value(wrong.keep_probability(weight)) < FALSE_ALARM


def test_noisy_weights_are_gaussian_above_the_threshold():
    mechanism, weight = selection(), 9 * GRID
    shown = np.array(list(mechanism.measure(dict.fromkeys(range(KEYS), weight), UnsafeSeededRng(9)).value.values()))
    assert shown.min() >= mechanism.threshold

    def p_value(noise):
        std = noise * GRID
        edge = (mechanism.threshold - weight - 0.5) / std
        above = stats.norm.sf(edge)
        return stats.kstest(shown, lambda x: 1 - stats.norm.sf((x - weight) / std) / above).pvalue

    assert p_value(2.0) > FALSE_ALARM
    assert p_value(3.0) < FALSE_ALARM
    assert p_value(4 / 3) < FALSE_ALARM


def test_keys_of_one_unit_alone_are_shown_as_rarely_as_delta_says():
    mechanism = WeightedSelection.for_delta(noise_multiplier=1.0, delta=0.01, keys_max=4)
    weight, rounds = unit_weight(1), KEYS * 4
    kept = len(mechanism.measure(dict.fromkeys(range(rounds), weight), UnsafeSeededRng(11)).value)
    assert stats.binomtest(kept, rounds, mechanism.delta, alternative="greater").pvalue > FALSE_ALARM
    assert stats.binomtest(kept, rounds, mechanism.delta / 2, alternative="greater").pvalue < FALSE_ALARM
    assert math.isclose(kept / rounds, mechanism.keep_probability(weight), rel_tol=0.3)
