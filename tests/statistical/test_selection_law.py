"""Selection, above threshold and partition selection: what is drawn has the law that is priced (chi-squared).

Each law is enumerated from its definition. A right law is rejected with probability 5e-8, all 17 together with at most
1e-6 over the choice of seeds. Every test also shows its power: the same draws reject, at the same level, the laws of 2/3
and 3/2 of the noise, and of each broken twin named.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.core.units import Neighbors
from dither.noise import quantiles
from dither.noise.partition import OptimalPartitionSelection, StableHistogram
from dither.noise.quantiles import Quantile, Quantiles
from dither.noise.rng import UnsafeSeededRng
from dither.noise.selection import ExponentialSelection, PermuteAndFlip, ReportNoisyMax, TopK
from dither.noise.threshold import AboveThreshold, _scales

pytestmark = pytest.mark.statistical
FALSE_ALARM = 5e-8
SCORES = [0.0, 1.0, 1.5, 3.0, 3.0, -2.0]


def p_value(counts, law):
    """Chi-squared, cells expected below 5 put together."""
    assert set(counts) <= {k for k, p in law.items() if p > 0}, "something impossible was drawn"
    total = sum(counts.values())
    large = [k for k, p in law.items() if p * total >= 5]
    seen, wanted = [counts[k] for k in large], [law[k] * total for k in large]
    if total - sum(wanted) > 1e-6 * total:
        seen, wanted = [*seen, total - sum(seen)], [*wanted, total - sum(wanted)]
    return stats.chi2.sf(sum((s - w) ** 2 / w for s, w in zip(seen, wanted, strict=True)), len(seen) - 1)


def check(draw, law_at, rate, *, runs, seed):
    """``draw(rng)`` follows ``law_at(rate)``, and not the laws of 2/3 or 3/2 of the noise."""
    rng = UnsafeSeededRng(seed)
    counts = Counter(draw(rng) for _ in range(runs))
    assert p_value(counts, law_at(rate)) > FALSE_ALARM
    for wrong in (rate * 1.5, rate / 1.5):
        assert p_value(counts, law_at(wrong)) < FALSE_ALARM
    return counts


def exponential_law(scores, rate):
    weights = [math.exp(rate * (u - max(scores))) for u in scores]
    return {i: w / math.fsum(weights) for i, w in enumerate(weights)}


def flip_law(scores, rate):
    chances = [math.exp(rate * (u - max(scores))) for u in scores]
    law = dict.fromkeys(range(len(scores)), 0.0)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        alive = 1.0 / len(orders)
        for i in order:
            law[i] += alive * chances[i]
            alive *= 1 - chances[i]
    return law


def peeled_law(scores, rate, count):
    law = {}
    for path in itertools.permutations(range(len(scores)), count):
        left, chance = dict(enumerate(scores)), 1.0
        for i in path:
            chance *= math.exp(rate * left[i]) / math.fsum(math.exp(rate * u) for u in left.values())
            del left[i]
        law[path] = chance
    return law


def laplace_max_law(scores, rate):
    """Continuous Laplace noise by quadrature: the grid of the mechanism is 2^-20, far below what can be seen."""
    points = np.linspace(-60, 60, 240_001)
    law = {}
    for i, u in enumerate(scores):
        density = stats.laplace.pdf(points, u, 1 / rate)
        for j, other in enumerate(scores):
            if j != i:
                density = density * stats.laplace.cdf(points, other, 1 / rate)
        law[i] = np.trapezoid(density, points)
    total = math.fsum(law.values())
    return {i: p / total for i, p in law.items()}


@pytest.mark.parametrize("kind", [ExponentialSelection, ReportNoisyMax])
@pytest.mark.parametrize("monotone", [False, True])
def test_exponential_selection(kind, monotone):
    mechanism = kind(epsilon=1.2, sensitivity=0.8, monotone=monotone)
    rate = 1.2 / 0.8 / (1 if monotone else 2)
    counts = check(lambda r: mechanism.measure(SCORES, r).value, lambda s: exponential_law(SCORES, s), rate, runs=20_000, seed=11)
    assert p_value(counts, flip_law(SCORES, rate)) < FALSE_ALARM


@pytest.mark.parametrize("noise", ["flips", "exponential"])
def test_permute_and_flip(noise):
    common = {"epsilon": 1.2, "sensitivity": 0.8}
    mechanism = PermuteAndFlip(**common) if noise == "flips" else ReportNoisyMax(**common, noise="exponential")
    counts = check(lambda r: mechanism.measure(SCORES, r).value, lambda s: flip_law(SCORES, s), 0.75, runs=20_000, seed=12)
    assert p_value(counts, exponential_law(SCORES, 0.75)) < FALSE_ALARM


def test_noisy_max_with_laplace_noise():
    mechanism = ReportNoisyMax(epsilon=1.2, sensitivity=0.8, noise="laplace")
    check(lambda r: mechanism.measure(SCORES, r).value, lambda s: laplace_max_law(SCORES, s), 0.75, runs=20_000, seed=13)


def test_top_k():
    mechanism = TopK(epsilon=3.0, count=3, sensitivity=0.8)
    rate = 1.0 / 0.8 / 2
    counts = check(lambda r: mechanism.measure(SCORES[:5], r).value, lambda s: peeled_law(SCORES[:5], s, 3), rate, runs=30_000, seed=14)
    assert p_value(counts, peeled_law(SCORES[:5], 3 * rate, 3)) < FALSE_ALARM  # the count forgotten


def test_many_candidates():
    """10,000 candidates in one vector, 20 values of score: the law of the score drawn."""
    scores = (np.arange(10_000) * 7919 % 20) / 2.0
    mechanism = ExponentialSelection(epsilon=0.6)

    def law_at(rate):
        weights = {u: math.exp(rate * u) for u in sorted(set(scores.tolist()))}
        return {u: w / math.fsum(weights.values()) for u, w in weights.items()}

    check(lambda r: float(scores[mechanism.measure(scores, r).value]), law_at, 0.3, runs=10_000, seed=15)


def quantile_law(rows, points, quantile, rate):
    target = Fraction(quantile) * len(rows)
    errors = {z: max(Fraction(0), sum(r < z for r in rows) - target, target - sum(r <= z for r in rows)) for z in range(points)}
    weights = {z: math.exp(-rate * e) for z, e in errors.items()}
    return {z: w / math.fsum(weights.values()) for z, w in weights.items()}


@pytest.mark.parametrize("relation", list(Neighbors))
def test_quantile(relation):
    rows = [1, 4, 4, 4, 9, 11, 12, 12]
    mechanism = Quantile(quantile=0.7, lower=0, upper=12, cells=12, epsilon=1.4, neighbors=relation)
    rate = 1.4 / (2 if relation is Neighbors.REPLACE else 2 * 0.7)
    check(lambda r: int(mechanism.measure(rows, r).value), lambda s: quantile_law(rows, 13, 0.7, s), rate, runs=20_000, seed=16)


def test_quantiles(monkeypatch):
    """The whole recursion with one bit of jitter, against its enumeration."""
    monkeypatch.setattr(quantiles, "_JITTER", 1)
    rows = [0, 2, 2, 3]
    mechanism = Quantiles(quantiles=(0.25, 0.6), lower=0, upper=3, cells=3, epsilon=4.0)

    def law_at(rate):
        """Levels split at the quantile 0.6, then 0.25/0.6 of what lies below; ``rate`` is ε/levels."""
        law = {}
        for jitter in itertools.product([0, 1], repeat=4):
            spread = [2 * r + j for r, j in zip(rows, jitter, strict=True)]
            for top, p in quantile_law(spread, 8, Fraction(0.6), rate / (2 * 0.6)).items():
                share = Fraction(0.25) / Fraction(0.6)
                below = quantile_law([r for r in spread if r < top], top + 1, share, rate / (2 * float(1 - share)))
                for low, q in below.items():
                    key = (low >> 1, top >> 1)
                    law[key] = law.get(key, 0.0) + p * q / 16
        return law

    check(lambda r: tuple(int(v) for v in mechanism.measure(rows, r).value), law_at, 2.0, runs=15_000, seed=17)


def threshold_law(cells, hits, threshold_scale, query_scale):
    """Discrete Laplace noise on a coarse grid, by one sum over the threshold's noise; keys are the answers in order."""
    noise = np.arange(-2_000, 2_001)
    law = {}

    def tail(at, scale):
        ratio = math.exp(-1 / scale)
        right = ratio ** np.maximum(at, 1) / (1 + ratio)
        return np.where(at >= 1, right, 1 - ratio ** np.maximum(1 - at, 1) / (1 + ratio))

    ratio = math.exp(-1 / threshold_scale)
    mass = (1 - ratio) / (1 + ratio) * ratio ** np.abs(noise)
    for answers in itertools.product([False, True], repeat=len(cells)):
        end = next((i + 1 for i in range(len(cells)) if sum(answers[: i + 1]) == hits), len(cells))
        if any(answers[end:]):
            continue
        chance = mass.copy()
        for cell, above in zip(cells[:end], answers[:end], strict=True):
            up = tail(noise - cell, query_scale)
            chance *= up if above else 1 - up
        law[answers[:end]] = chance.sum()
    return law


@pytest.mark.parametrize("as_session", [False, True])
def test_above_threshold(monkeypatch, as_session):
    monkeypatch.setattr("dither.noise.selection._GRID_DIGITS", 0)
    monkeypatch.setattr("dither.noise.threshold._scales", _scales.__wrapped__)
    mechanism = AboveThreshold(epsilon=2.0, hits=2)
    scales = mechanism.scales
    cells = [0, -2, 3, 1]

    def draw(rng):
        if not as_session:
            found = mechanism.measure(cells, rng).value
            return tuple(i in found.above for i in range(found.asked))
        session, answers = mechanism.start(rng), []
        while session.hits_left and len(answers) < len(cells):
            answers.append(session.ask(cells[len(answers)]).above)
        return tuple(answers)

    rng = UnsafeSeededRng(18)
    counts = Counter(draw(rng) for _ in range(20_000))
    assert p_value(counts, threshold_law(cells, 2, scales.threshold, scales.query)) > FALSE_ALARM
    for wrong in (
        (1e-3, scales.query),
        (scales.threshold, scales.query / 2),
        (scales.threshold, scales.query / 1.5),
        (scales.threshold / 2, scales.query),
    ):
        assert p_value(counts, threshold_law(cells, 2, *wrong)) < FALSE_ALARM


def test_optimal_partition_selection():
    mechanism = OptimalPartitionSelection(epsilon_each=0.4, delta_each=0.02)
    counts = dict(enumerate(range(16)))
    chances = [0.0]
    for _ in range(15):
        last = chances[-1]
        chances.append(min(math.exp(0.4) * last + 0.02, 1 - math.exp(-0.4) * (1 - last - 0.02), 1.0))
    rng = UnsafeSeededRng(19)
    runs = 8_000
    kept = np.zeros(16)
    for _ in range(runs):
        kept[list(mechanism.measure(counts, rng).value)] += 1

    def p(at):
        live = np.array([0 < c < 1 for c in at])
        expected, seen = runs * np.array(at)[live], kept[live]
        return stats.chi2.sf(((seen - expected) ** 2 / (expected * (1 - expected / runs))).sum(), live.sum())

    assert kept[0] == 0
    assert p(chances) > FALSE_ALARM
    assert p([0.0, *(min(1.0, 1.5 * c) for c in chances[1:])]) < FALSE_ALARM
    assert p([*chances[1:], 0.99]) < FALSE_ALARM  # one unit more than there is


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_stable_histogram(noise):
    mechanism = StableHistogram(noise=noise, noise_scale=2.0, threshold=6, units_min=2)

    def law_at(scale):
        steps = np.arange(-200, 201)
        weights = np.exp(-np.abs(steps) / scale) if noise == "laplace" else np.exp(-(steps**2) / (2 * scale**2))
        law = {}
        for step, weight in zip(steps.tolist(), (weights / weights.sum()).tolist(), strict=True):
            key = 5 + step if 5 + step >= 6 else None
            law[key] = law.get(key, 0.0) + weight
        return law

    def draw(rng):
        told = mechanism.measure({"one": 1, "five": 5}, rng).value
        assert "one" not in told
        return told.get("five")

    check(draw, law_at, 2.0, runs=20_000, seed=20)
