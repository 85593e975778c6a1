"""Partition selection: thresholds, optimal keep probabilities, and both against enumeration."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.accounting._bounds import Move
from dither.accounting._exact import approximate, without_delta
from dither.accounting.loss import loss
from dither.core.errors import InputError, NotPriceableError, UnknownNameError
from dither.core.events import (
    ApproxDp,
    DiscreteGaussian,
    DiscreteLaplace,
    NonPrivate,
    Parallel,
    Poisson,
    PureDp,
    Repeat,
    Sequence,
    Shuffled,
    Subsample,
)
from dither.core.units import Neighbors
from dither.noise import partition
from dither.noise.partition import OptimalPartitionSelection, StableHistogram, ordered, tail
from dither.noise.rng import UnsafeSeededRng


def truth_mass(noise, scale, reach):
    """P(k) for |k| ≤ reach, in mpmath."""
    with mpmath.workdps(60):
        s = mpmath.mpf(scale)
        f = (lambda k: mpmath.exp(-abs(k) / s)) if noise == "laplace" else (lambda k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)))
        weights = {k: f(k) for k in range(-reach, reach + 1)}
        total = mpmath.fsum(weights.values())
        return {k: w / total for k, w in weights.items()}


@pytest.mark.parametrize(("noise", "scale"), [("laplace", 0.3), ("laplace", 7.5), ("gaussian", 0.3), ("gaussian", 1.0), ("gaussian", 12.5)])
def test_tails_are_upper_bounds_and_tight(noise, scale):
    law = truth_mass(noise, scale, int(120 * scale) + 80)
    for at in (-20, -1, 0, 1, 2, 5, 17, 40):
        truth = mpmath.fsum(p for k, p in law.items() if k >= at)
        got = tail(noise, scale, at)
        assert got >= truth * (1 - mpmath.mpf(10) ** -40) or got == 1.0
        if truth > 1e-290:
            assert got <= truth * (1 + 1e-9)


def test_wide_gaussian_tails_are_upper_bounds():
    """Above the scale where terms are summed: against the sum, done once in full."""
    for scale in (200.5, 1000.0):
        for at in (1, 150, 1001, 3000, 7000):
            k = np.arange(at, int(45 * scale))
            total = 1 + 2 * math.fsum(np.exp(-(np.arange(1, int(45 * scale)) ** 2) / (2 * scale**2)))
            truth = math.fsum(np.exp(-(k**2) / (2 * scale**2))) / total
            assert truth <= tail("gaussian", scale, at) <= truth * 1.02
            assert 1 - truth <= tail("gaussian", scale, 1 - at) <= (1 - truth) * 1.02
    assert tail("gaussian", 10.0, 10**6) == tail("laplace", 1.0, 10**6) == 1e-300
    assert tail("gaussian", 1e12, 10**15) == 1e-300


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("groups", [1, 3, 1000])
def test_the_threshold_is_the_least(noise, groups):
    for delta in (1e-3, 1e-6, 1e-12, 1e-30):
        if noise == "laplace":
            found = StableHistogram.for_laplace(epsilon=0.7, delta=delta, groups_max=groups)
        else:
            found = StableHistogram.for_gaussian(noise_std=3.0, delta=delta, groups_max=groups)
        assert found.delta <= delta
        lower = StableHistogram(noise=noise, noise_scale=found.noise_scale, threshold=found.threshold - 1, groups_max=groups)
        assert lower.delta > delta
        shifted = StableHistogram(
            noise=noise, noise_scale=found.noise_scale, threshold=found.threshold + 9, groups_max=groups, units_min=10
        )
        assert shifted.delta == found.delta


def histogram_law(mechanism, counts, reach):
    """Every outcome of a histogram (a noisy value or nothing, group by group) with its probability."""
    law = {k: float(p) for k, p in truth_mass(mechanism.noise, mechanism.noise_scale, reach).items()}
    rows = []
    for count in counts:
        told = {}
        for k, p in law.items():
            value = count + k if count >= mechanism.units_min and count + k >= mechanism.threshold else None
            told[value] = told.get(value, 0.0) + p
        rows.append(told if count >= mechanism.units_min else {None: 1.0})
    return {tuple(v for v, _ in path): math.prod(p for _, p in path) for path in itertools.product(*(r.items() for r in rows))}


def hockey_stick(law, other, epsilon):
    return math.fsum(max(0.0, p - math.exp(epsilon) * other.get(o, 0.0)) for o, p in law.items())


def histogram_price(mechanism, epsilon, reach):
    """δ(ε) of the event, by enumeration: noise on every group, and ApproxDp(0, δ) beside it."""
    one = {k: float(p) for k, p in truth_mass(mechanism.noise, mechanism.noise_scale, reach).items()}
    pair = [(p, one.get(k - 1, 0.0)) for k, p in one.items()]
    total = [
        (math.prod(x[0] for x in path), math.prod(x[1] for x in path)) for path in itertools.product(pair, repeat=mechanism.groups_max)
    ]
    stick = math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q in total)
    return mechanism.delta + (1 - mechanism.delta) * stick


CASES = [
    StableHistogram(noise="laplace", noise_scale=1.5, threshold=5, groups_max=2),
    StableHistogram(noise="laplace", noise_scale=1.5, threshold=8, groups_max=2, units_min=4),
    StableHistogram(noise="gaussian", noise_scale=1.2, threshold=4, groups_max=2),
]


@pytest.mark.parametrize("mechanism", CASES, ids=repr)
def test_histograms_keep_their_price(mechanism):
    """All histograms of two groups near 0 and near the threshold, one unit more in each or both, at several ε."""
    reach = 30
    prices = {e: histogram_price(mechanism, e, reach) for e in (0.0, 0.3, 2 / 1.5, 3.0)}
    tightest = 0.0
    low = mechanism.units_min
    for counts in itertools.product((0, low - 1, low, low + 3), repeat=2):
        law = histogram_law(mechanism, counts, reach)
        for move in ((1, 0), (1, 1)):
            other = histogram_law(mechanism, [c + m for c, m in zip(counts, move, strict=True)], reach)
            for epsilon, price in prices.items():
                paid = max(hockey_stick(law, other, epsilon), hockey_stick(other, law, epsilon))
                assert paid <= price * (1 + 1e-9) + 1e-9
                tightest = max(tightest, paid / price)
    assert tightest > (0.999 if mechanism.noise == "laplace" else 0.95)  # a group cannot be both new and old


@pytest.mark.parametrize("broken", ["threshold one lower", "groups forgotten", "noise halved", "pre-threshold not counted", "no threshold"])
def test_broken_histograms_are_caught(broken):
    mechanism = CASES[0]
    change = {
        "threshold one lower": {"threshold": 4},
        "groups forgotten": {},
        "noise halved": {"noise_scale": 0.75},
        "pre-threshold not counted": {"units_min": 2},
        "no threshold": {"threshold": 2},
    }[broken]
    arguments = {"noise": "laplace", "noise_scale": 1.5, "threshold": 5, "groups_max": 2} | change
    claimed = StableHistogram(**(arguments | {"groups_max": 1})).delta if broken == "groups forgotten" else mechanism.delta
    twin = StableHistogram(**arguments)
    low = twin.units_min
    paid = [
        hockey_stick(histogram_law(twin, [c + 1 for c in counts], 30), histogram_law(twin, counts, 30), 2 / 1.5)
        for counts in ((low - 1, low - 1), (9, 9))
    ]
    assert max(paid) > claimed * 1.2


def test_histogram_events_and_rules():
    mechanism = StableHistogram(noise="laplace", noise_scale=2.0, threshold=20, groups_max=3)
    assert mechanism.event == Repeat(ApproxDp(0.5, tail("laplace", 2.0, 19), one_unit=True), 3)
    assert 3 * tail("laplace", 2.0, 19) * 0.999 < mechanism.delta <= 3 * tail("laplace", 2.0, 19) * 1.001
    one = StableHistogram(noise="gaussian", noise_scale=2.0, threshold=20)
    assert one.event == Sequence((DiscreteGaussian(2.0), ApproxDp(0.0, one.delta, one_unit=True)))
    thin = StableHistogram(noise="laplace", noise_scale=3.3, threshold=20)
    assert Fraction(math.nextafter(thin.event.epsilon, 0)) < 1 / Fraction(3.3) <= Fraction(thin.event.epsilon)
    assert mechanism.measure({"a": 1}, UnsafeSeededRng(1)).event == NonPrivate()
    assert mechanism.measure({}).value == {}
    assert mechanism.measure({"a": 0, "b": -5, "c": -(10**400)}).value == {}
    assert list(mechanism.measure({"z": 10**400, "b": 500, "a": np.int32(700)}).value) == ["a", "b", "z"]
    hidden = StableHistogram(noise="laplace", noise_scale=1000.0, threshold=101, units_min=100)
    assert all(hidden.measure({"a": 99}, UnsafeSeededRng(s)).value == {} for s in range(50))
    assert hidden.keep_probability(99) == 0.0
    assert 0.49 < hidden.keep_probability(101) < 0.51
    assert 0.99 < one.keep_probability(60) <= 1.0


@pytest.mark.parametrize("groups", [1, 3, 7, 999])
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 7.7])
def test_budgets_are_kept_and_nearly_used(epsilon, groups):
    for relation in Neighbors:
        common = {"epsilon": epsilon, "delta": 1e-6, "groups_max": groups, "neighbors": relation}
        touched = groups * (2 if relation is Neighbors.REPLACE else 1)
        histogram = StableHistogram.for_laplace(**common)
        price = loss(histogram.event)
        assert Fraction(epsilon) * (1 - Fraction(1, 10**12)) < touched / Fraction(histogram.noise_scale) <= Fraction(epsilon)
        assert price.delta(epsilon * (1 + 1e-12)).upper <= 1e-6 * (1 + 1e-9)
        first = histogram.event.events[0] if relation is Neighbors.REPLACE else histogram.event
        each = getattr(first, "event", first)
        assert Fraction(each.epsilon) * touched <= Fraction(epsilon)
        optimal = OptimalPartitionSelection.for_budget(**common)
        assert Fraction(optimal.epsilon_each) * touched <= Fraction(epsilon)
        assert Fraction(optimal.delta_each) * touched <= Fraction(1e-6)
        assert optimal.neighbors is histogram.neighbors is relation


def test_a_replaced_unit_moves_twice_as_many_groups():
    common = {"noise_scale": 2.0, "threshold": 20, "groups_max": 3, "neighbors": "replace"}
    laplace, gaussian = (StableHistogram(noise=noise, **common) for noise in ("laplace", "gaussian"))
    assert laplace.event == Sequence((Repeat(ApproxDp(0.5, laplace.delta_each, one_unit=True), 3), Repeat(PureDp(0.5), 3)))
    assert gaussian.event == Sequence((Repeat(DiscreteGaussian(2.0), 6), ApproxDp(0.0, gaussian.delta, one_unit=True)))
    assert StableHistogram.for_gaussian(noise_std=2.0, delta=1e-6, neighbors="replace").event.events[0] == Repeat(DiscreteGaussian(2.0), 2)
    one = OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-5, neighbors="replace")
    assert one.event == Repeat(ApproxDp(1.0, 1e-5, one_unit=True), 2)


def test_the_event_of_laplace_noise_is_as_tight_as_the_noise():
    """(1/scale, δ₁) for each group, against the noise itself beside the chance of a new group: the same δ at every ε."""
    for scale, groups in ((1.5, 1), (1.5, 4), (40.0, 3)):
        mechanism = StableHistogram(noise="laplace", noise_scale=scale, threshold=int(8 * scale), groups_max=groups)
        noise = loss(Sequence((Repeat(DiscreteLaplace(scale), groups), ApproxDp(0.0, mechanism.delta))))
        for epsilon in (0.0, 0.01, 0.3, 1.0, 2.0, 3.0):
            assert loss(mechanism.event).delta(epsilon).upper == pytest.approx(noise.delta(epsilon).upper, rel=1e-6)


def test_units_in_one_new_group_show_it_more_often_than_one_by_one():
    """Why Laplace noise is not priced as noise beside ApproxDp(0, δ): that would price k units at k·δ."""
    mechanism = StableHistogram(noise="laplace", noise_scale=1.0, threshold=12)
    for units in (2, 5, 10):
        shown = mechanism.keep_probability(units) / (1 + 1e-9)
        assert shown > units * mechanism.delta
        assert shown <= loss(mechanism.event, group=units).delta(30.0).upper


def test_a_histogram_with_gaussian_noise_has_no_price_for_groups_of_units():
    """Its shares of δ add up for one unit only: at ε = 8, two units in one new group show it with 8.8e-6, not 2·δ = 1.6e-6."""
    mechanism = StableHistogram.for_gaussian(noise_std=2.0, delta=1e-6)
    assert mechanism.keep_probability(2) > 5 * 2 * mechanism.delta / 2
    event = mechanism.event
    assert loss(event).delta(8.0).upper == pytest.approx(mechanism.delta, rel=1e-9)
    relations = {Neighbors.ADD_REMOVE: Shuffled(2, 10), Neighbors.REPLACE: Shuffled(5, 10)}
    for neighbors, sampler in relations.items():
        for whole in (event, Repeat(event, 3), Sequence((PureDp(0.1), event)), Repeat(Subsample(event, sampler), 3)):
            with pytest.raises(NotPriceableError, match="one unit only"):
                loss(whole, neighbors=neighbors, group=2)
            assert approximate(whole, Move(replace=neighbors is Neighbors.REPLACE, group=2)) is None
    with pytest.raises(NotPriceableError, match="one unit only"):  # stated for presence, and the unit is replaced
        loss(Subsample(event, Poisson(0.1)), neighbors="replace")
    assert without_delta(event, Move(group=2)) == (event, 0)
    # one mechanism as a whole: the chain of moves goes through its whole profile, e^ε − 1 times δ more for the second
    for whole in (Parallel((event, PureDp(0.5))), Subsample(event, Poisson(0.999))):
        assert loss(whole, group=2).delta(8.0).upper >= mechanism.keep_probability(2) * 0.998 - mechanism.delta


def test_units_that_move_several_counts_each_have_no_price_together():
    """Three units in two groups each may move three groups by two: at ε = 0 more than two groups by three."""

    def told(*moves):
        stays = [math.prod(p) for p in itertools.product(*[(math.exp(j) / (1 + math.exp(j)), 1 / (1 + math.exp(j))) for j in moves])]
        turns = [math.prod(p) for p in itertools.product(*[(1 / (1 + math.exp(j)), math.exp(j) / (1 + math.exp(j))) for j in moves])]
        return sum(max(0.0, p - q) for p, q in zip(stays, turns, strict=True))

    assert told(2, 2, 2) > 1.015 * told(3, 3)
    for mechanism in (
        StableHistogram(noise="laplace", noise_scale=1.0, threshold=15, groups_max=2),
        StableHistogram(noise="laplace", noise_scale=1.0, threshold=15, neighbors="replace"),
        OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-6, groups_max=2),
        OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-6, neighbors="replace"),
    ):
        assert loss(mechanism.event).epsilon(1e-4).upper < 3
        with pytest.raises(NotPriceableError, match="one unit only"):
            loss(mechanism.event, group=2)
    assert loss(OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-6).event, group=2).epsilon(1e-4).upper == pytest.approx(
        2.0, rel=1e-3
    )


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_histogram_intervals_hold_and_are_least(noise):
    for scale in (0.4, 3.0, 150.0):
        mechanism = StableHistogram(noise=noise, noise_scale=scale, threshold=10**4)
        width = int(mechanism.interval(0.95).half_width)
        assert 2 * tail(noise, scale, width + 1) <= 0.05 * (1 + 1e-9)
        assert width == 1 or 2 * tail(noise, scale, width) > 0.05


# ------------------------------------------------------------------------------------------------ optimal keep probabilities


def recursion(epsilon, delta, length):
    """Desfontaines et al. 2022, the recursion itself, in high precision."""
    with mpmath.workdps(80):
        e, d = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(delta)
        chances = [mpmath.mpf(0)]
        for _ in range(length):
            last = chances[-1]
            chances.append(min(e * last + d, 1 - (1 - last - d) / e, mpmath.mpf(1)))
        return chances


PAIRS = [
    (1.0, 1e-5),
    (0.1, 1e-6),
    (0.01, 1e-3),
    (5.0, 1e-30),
    (3.0, 0.2),
    (0.5, 0.6),
    (20.0, 1e-100),
    (1e-6, 0.01),
    (0.0, 0.013),
    (1000.0, 1e-9),
]


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS)
def test_closed_form_is_the_recursion(epsilon, delta):
    law = partition._KeepLaw(epsilon, delta)
    chances = recursion(epsilon, delta, 400)
    near = law.near(np.arange(len(chances)))
    for count, truth in enumerate(chances):
        assert near[count] == pytest.approx(float(truth), rel=2.0**-40, abs=0)
        if count % 7 < 3:
            low, high = law.bounds(count, 96)
            with mpmath.workdps(80):
                low, high = (mpmath.mpf(x.numerator) / x.denominator for x in (low, high))
                assert min(low, 1) <= truth + mpmath.mpf(10) ** -70
                assert truth <= high + mpmath.mpf(10) ** -70 or high >= 1
                assert high - low <= mpmath.mpf(2) ** -60


@given(st.floats(1e-12, 50), st.floats(1e-100, 0.999))
def test_keep_probabilities_obey_and_exhaust_the_inequalities(epsilon, delta):
    law = partition._KeepLaw(epsilon, delta)
    counts = sorted({*range(20), *(law.turn + k for k in range(-3, 4)), *(round(law.turn * x) for x in (0.5, 1.5, 2, 3))})
    for count in (c for c in counts if 0 <= c < 2**52):
        now, after = ([Fraction(min(x, Fraction(1))) for x in law.bounds(c, 200)] for c in (count, count + 1))
        with mpmath.workdps(90):
            n, a = (mpmath.mpf(x[0].numerator) / x[0].denominator for x in (now, after))
            e, d = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(delta)
            room = mpmath.mpf(10) ** -30
            assert a <= e * n + d + room
            assert (1 - n) <= e * (1 - a) + d + room
            assert min(abs(a - e * n - d), abs((1 - n) - e * (1 - a) - d), abs(1 - a)) <= room


@pytest.mark.parametrize("broken", ["delta doubled", "epsilon doubled", "groups forgotten"])
def test_broken_keep_probabilities_are_caught(broken):
    """One unit in ``groups`` groups at once: the product law against the composition of what is claimed."""
    epsilon, delta, groups = 0.5, 1e-3, 1
    law = {"delta doubled": (epsilon, 2 * delta), "epsilon doubled": (2 * epsilon, delta), "groups forgotten": (epsilon, delta)}[broken]
    groups = 3 if broken == "groups forgotten" else 1

    def paid(chances, n):
        one, two = (dict(zip(itertools.product([0, 1], repeat=groups), _product(chances[c], groups), strict=True)) for c in (n, n + 1))
        return max(hockey_stick(one, two, epsilon), hockey_stick(two, one, epsilon))

    def _product(chance, groups):
        return [math.prod(float(chance) if b else 1 - float(chance) for b in bits) for bits in itertools.product([0, 1], repeat=groups)]

    assert max(paid(recursion(*law, 40), n) for n in range(40)) > 1.5 * delta
    if groups == 1:
        assert max(paid(recursion(epsilon, delta, 40), n) for n in range(40)) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-6), (0.01, 1e-3), (3.0, 0.2), (0.5, 0.6), (2.0, 1e-30)])
def test_the_probabilities_are_those_of_the_paper(epsilon, delta):
    """Desfontaines et al. 2022, Theorem 2 as printed: two turns, and a formula for each of the three stretches."""
    law = partition._KeepLaw(epsilon, delta)
    with mpmath.workdps(60):
        e, d = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(delta)
        first = 1 + int(mpmath.floor(mpmath.log((e + 2 * d - 1) / (d * (e + 1))) / epsilon))
        at_first = d * (e**first - 1) / (e - 1)
        second = first + int(mpmath.floor(mpmath.log(1 + (e - 1) / d * (1 - at_first)) / epsilon))
        for n in range(second + 3):
            if n <= first:
                truth = d * (e**n - 1) / (e - 1)
            elif n <= second:
                m = n - first
                truth = (1 - e ** (-m)) * (1 + d / (e - 1)) + e ** (-m) * at_first
            else:
                truth = mpmath.mpf(1)
            assert law.near(np.array([n]))[0] == pytest.approx(float(truth), rel=2.0**-40)


def greedy(e, d, length):
    """The largest probabilities that obey all four inequalities, both ways round, in rationals: e stands for e^ε."""
    chances = [Fraction(0)]
    for _ in range(length):
        last = chances[-1]
        best = min(e * last + d, 1 - (1 - last - d) / e, Fraction(1))
        low = max((last - d) / e, 1 - e * (1 - last) - d)
        assert best >= low
        for one, two in ((last, best), (best, last)):
            assert one <= e * two + d
            assert 1 - one <= e * (1 - two) + d
        more = best + Fraction(1, 10**30)
        assert best == 1 or more > e * last + d or 1 - last > e * (1 - more) + d
        chances.append(best)
    return chances


@pytest.mark.parametrize(
    ("ratio", "delta"), [(2, Fraction(1, 1000)), (3, Fraction(1, 7)), (Fraction(11, 10), Fraction(1, 10**6)), (1, Fraction(1, 13))]
)
def test_probabilities_in_rationals(monkeypatch, ratio, delta):
    """e^ε rational: every count from 0 to certainty, exactly, with the enclosures of e^−ε replaced by the number itself."""
    monkeypatch.setattr(partition, "_enclosed", lambda power, bits: (1 / Fraction(ratio) ** int(power),) * 2)
    law = partition._KeepLaw.__new__(partition._KeepLaw)
    law.epsilon, law.delta = Fraction(ratio != 1), delta  # powers of e^ε are counted in whole ε
    law.floats = math.log(ratio), float(delta)
    truth = greedy(Fraction(ratio), delta, 400)
    if ratio != 1:
        bar = (1 - delta) / (ratio + 1)
        law.turn = next(n for n, p in enumerate(truth) if p > bar)
    for count, chance in enumerate(truth):
        assert [min(x, Fraction(1)) for x in law.bounds(count, 64)] == [chance, chance]
    assert truth[-1] == 1


def test_optimal_keeps_more_than_noise_and_threshold():
    best = OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-6)
    noisy = StableHistogram.for_laplace(epsilon=1.0, delta=1e-6)
    assert all(best.keep_probability(n) >= noisy.keep_probability(n) * (1 - 1e-9) for n in range(60))
    assert best.keep_probability(13) > 1.5 * noisy.keep_probability(13)


def test_doubtful_coins_are_settled_by_enclosures():
    """Words next to π: the bits that follow decide, and decide both ways."""
    law = partition._law(1.0, 1e-5)
    for count in (1, 5, law.turn, law.turn + 1, law.turn + 5):
        with mpmath.workdps(80):
            chance = recursion(1.0, 1e-5, count)[-1]
            word = int(mpmath.floor(chance * 2**64))
            rest = int(mpmath.floor(chance * mpmath.mpf(2) ** 128)) & (2**64 - 1)

        class Bits:
            private = False

            def __init__(self, word, rest):
                self.word, self.rest = word, rest

            def bytes(self, count):
                return self.word.to_bytes(8, "little")

            def bits(self, count):
                return self.rest

        one = np.array([count])
        assert law.flip(one, Bits(word, rest - 2))[0]
        assert not law.flip(one, Bits(word, rest + 2))[0]
        assert law.flip(one, Bits(word - 1, 2**64 - 1))[0]
        assert not law.flip(one, Bits(word + 1, 0))[0]


def test_certain_ends_are_certain():
    law = partition._law(1.0, 1e-5)

    class Highest:
        private = False

        def bytes(self, count):
            return b"\xff" * count

        def bits(self, count):
            return (1 << count) - 1

    class Lowest(Highest):
        def bytes(self, count):
            return bytes(count)

        def bits(self, count):
            return 0

    assert law.flip(np.array([2**53, 500, 0, 1]), Highest()).tolist() == [True, True, False, False]
    assert law.flip(np.array([2**53, 500, 0, 1]), Lowest()).tolist() == [True, True, False, True]


def test_optimal_events_and_rules():
    split = OptimalPartitionSelection.for_budget(epsilon=1.0, delta=1e-5, groups_max=3)
    assert split.event == Repeat(ApproxDp(split.epsilon_each, split.delta_each, one_unit=True), 3)
    assert Fraction(split.epsilon_each) * 3 <= 1
    assert Fraction(split.delta_each) * 3 <= Fraction(1e-5)
    one = OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-5)
    assert one.event == ApproxDp(1.0, 1e-5)
    assert one.measure({"a": 500}, UnsafeSeededRng(1)).event == NonPrivate()
    assert one.measure({}).value == ()
    assert one.measure({"a": 0, "b": -(10**400)}).value == ()
    assert one.measure({3: 10**400, 2: np.uint8(200), 1: 300}).value == (1, 2, 3)
    hidden = OptimalPartitionSelection(epsilon_each=1000.0, delta_each=0.9, units_min=50)
    assert hidden.measure({"a": 49, "b": 60}).value == ("b",)
    assert hidden.keep_probability(49) == 0.0
    assert hidden.keep_probability(50) == 0.9


def test_thresholds_and_shifts_are_exact(monkeypatch):
    monkeypatch.setattr(partition.samplers, "discrete_laplace", lambda scale, *, rng, size: np.zeros(size, np.int64))
    histogram = StableHistogram(noise="laplace", noise_scale=1.0, threshold=20, units_min=3)
    assert histogram.measure({"a": 19, "b": 20, "c": 21, "d": 2}).value == {"b": 20, "c": 21}
    shy = OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-12, units_min=50)
    assert shy.measure(dict.fromkeys(range(1000), 50), UnsafeSeededRng(1)).value == ()  # the first that can be shown, at 1e-12
    assert len(shy.measure(dict.fromkeys(range(1000), 150)).value) == 1000


def test_order_tells_nothing():
    keys = ["b", 1, ("x", 2), None, 2.5, b"q", 10, 9, True]
    assert len({tuple(map(repr, ordered(list(p)))) for p in itertools.permutations(keys[:6])}) == 1
    assert ordered([10, 9, -1]) == [-1, 9, 10]
    one = OptimalPartitionSelection(epsilon_each=5.0, delta_each=0.5)
    counts = dict.fromkeys(keys, 10**6)
    backwards = dict(reversed(counts.items()))
    assert one.measure(counts).value == one.measure(backwards).value
    histogram = StableHistogram.for_laplace(epsilon=1.0, delta=1e-6)
    assert list(histogram.measure(counts).value) == list(histogram.measure(backwards).value)


BAD = [math.nan, math.inf, -1.0, "1", None, True, 1j]


@pytest.mark.parametrize(
    ("kind", "change"),
    [(StableHistogram, {"noise_scale": v}) for v in [*BAD, 0.0, 5e-324, 1e300]]
    + [(StableHistogram, {"threshold": v}) for v in [*BAD, 0, 1, 2.0, 10**16]]
    + [(StableHistogram, {"noise": v}) for v in ("cauchy", None, 3)]
    + [(StableHistogram, {"threshold": 3, "groups_max": 10**9})]
    + [(OptimalPartitionSelection, {"epsilon_each": v}) for v in [*BAD, 5e-324, 1e-13, 1001]]
    + [(OptimalPartitionSelection, {"delta_each": v}) for v in [*BAD, 0.0, 1.0, 5e-324, 1e-200]]
    + [
        (k, {n: v})
        for k in (StableHistogram, OptimalPartitionSelection)
        for n in ("groups_max", "units_min")
        for v in [*BAD, 0, 1.0, 10**12]
    ],
    ids=repr,
)
def test_bad_arguments_are_refused(kind, change):
    good = (
        {"noise": "laplace", "noise_scale": 1.0, "threshold": 40} if kind is StableHistogram else {"epsilon_each": 1.0, "delta_each": 1e-5}
    )
    with pytest.raises((InputError, UnknownNameError)):
        kind(**(good | change))


@pytest.mark.parametrize("counts", [None, [1, 2], {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": None}, {"a": math.nan}, 3], ids=repr)
def test_bad_counts_are_refused(counts):
    for mechanism in (CASES[0], OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-5)):
        with pytest.raises(InputError):
            mechanism.measure(counts)


@pytest.mark.parametrize("delta", [*BAD, 0.0, 1.0])
def test_budgets_are_checked(delta):
    for make in (StableHistogram.for_laplace, OptimalPartitionSelection.for_budget):
        with pytest.raises(InputError):
            make(epsilon=1.0, delta=delta)
        with pytest.raises(InputError):
            make(epsilon=math.nan, delta=1e-5)
        with pytest.raises(InputError):
            make(epsilon=1.0, delta=1e-5, groups_max=0)
    with pytest.raises(InputError):
        StableHistogram.for_gaussian(noise_std=1.0, delta=delta)
