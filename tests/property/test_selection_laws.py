"""Laws of selection and quantiles: what runs is compared with exact enumeration, and exact laws with what they cost."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.core.units import Neighbors
from dither.noise import _lazy, quantiles
from dither.noise._lazy import LazyExponential, flips, ln_bounds, race
from dither.noise.quantiles import Quantile, Quantiles
from dither.noise.rng import UnsafeSeededRng
from dither.noise.selection import ExponentialSelection, PermuteAndFlip, ReportNoisyMax, TopK, held_scores, integer_grid

# ------------------------------------------------------------------------------------------------ enclosures


@given(st.integers(1, 2**300), st.integers(1, 2**300), st.integers(1, 400))
def test_ln_bounds_enclose_the_logarithm(numerator, denominator, bits):
    low, high = ln_bounds(numerator, denominator, bits)
    with mpmath.workprec(bits + 700):
        truth = mpmath.log(mpmath.mpf(numerator) / denominator) * mpmath.mpf(2) ** bits
        assert low <= truth <= high
    assert high - low <= 2


@given(st.integers(1, 2**200), st.sampled_from([-1, 0, 1]), st.integers(1, 300))
def test_ln_bounds_near_one(denominator, step, bits):
    numerator = max(1, denominator + step)
    low, high = ln_bounds(numerator, denominator, bits)
    with mpmath.workprec(bits + 700):
        truth = mpmath.log(mpmath.mpf(numerator) / denominator) * mpmath.mpf(2) ** bits
        assert low <= truth <= high


class Words:
    """A source that gives the words it was made of, then seeded ones."""

    private = False

    def __init__(self, words, seed=0):
        self.words = np.array(words, dtype="<u8")
        self.rest = UnsafeSeededRng(seed)
        self.bits, self.below = self.rest.bits, self.rest.below

    def bytes(self, count):
        assert count == self.words.nbytes
        return self.words.tobytes()


class Apart:
    """Three streams, so that further bits for one comparison do not shift what comes after."""

    private = False

    def __init__(self, seed):
        self.bytes, self.bits, self.below = UnsafeSeededRng(seed).bytes, UnsafeSeededRng(seed + 1).bits, UnsafeSeededRng(seed + 2).below


WORD = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 2**44, 2**64 - 2**44 + 1, 2**64 - 2, 2**64 - 1]),
)


def exponential(word):
    """E of a word, and how far the bits that follow can move it."""
    with mpmath.workprec(300):
        low = -mpmath.log1p(-mpmath.mpf(word) / 2**64)
        high = -mpmath.log1p(-(mpmath.mpf(word) + 1) / 2**64) if word + 1 < 2**64 else mpmath.inf
        return low, high


@given(st.lists(st.tuples(WORD, st.floats(0, 50)), min_size=1, max_size=6))
def test_flips_agree_with_high_precision(cases):
    powers = np.array([p for _, p in cases])
    heads = flips(powers, lambda i: Fraction(float(powers[i])), Words([w for w, _ in cases]))
    for (word, power), head in zip(cases, heads, strict=True):
        low, high = exponential(word)
        if low > power or power == 0:
            assert head
        elif high < power:
            assert not head


@given(st.lists(st.tuples(WORD, st.floats(-40, 0), st.integers(1, 2**60)), min_size=1, max_size=6), st.integers(1, 6))
def test_race_agrees_with_high_precision(cases, count):
    count = min(count, len(cases))
    powers = np.array([p for _, p, _ in cases])
    sizes = np.array([m for _, _, m in cases])
    got = race(powers, exact=lambda i: Fraction(float(powers[i])), rng=Words([w for w, _, _ in cases]), count=count, multiplicity=sizes)
    with mpmath.workprec(300):
        keys = []
        for word, power, size in cases:
            low, high = exponential(word)
            base = mpmath.mpf(power) + mpmath.log(size)
            keys.append((base - mpmath.log(high), base - mpmath.log(low) if low else mpmath.inf))
    assert len(set(got)) == count
    order = got + [i for i in range(len(cases)) if i not in got]
    for place, i in enumerate(got):
        for j in order[place + 1 :]:
            assert keys[i][1] >= keys[j][0], "a later one is certainly larger"


SCORES = st.lists(
    st.one_of(
        st.floats(-100, 100),
        st.sampled_from([0.0, 1.0, 1.0 + 2**-52, 1e15, -1e15, 2.0**53, 5e-324]),
        st.floats(allow_nan=True, allow_infinity=True),
    ),
    min_size=1,
    max_size=12,
)


@given(SCORES, st.integers(0, 2**32), st.sampled_from([1e-3, 0.7, 40.0]), st.data())
def test_floats_never_decide_what_integers_would_not(scores, seed, epsilon, data):
    """With the filter set to doubt everything, integers alone decide; the answers are the same."""
    count = data.draw(st.integers(1, len(scores)))
    mechanisms = [ExponentialSelection(epsilon=epsilon), PermuteAndFlip(epsilon=epsilon), TopK(epsilon=epsilon, count=count)]
    for mechanism in mechanisms:
        fast = mechanism.measure(scores, Apart(seed)).value
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_lazy, "SLACK", 1e6)
            assert mechanism.measure(scores, Apart(seed)).value == fast


def test_lazy_bits_settle_what_one_word_cannot():
    """1 − W = e⁻¹ cut at 64 bits: whether E > 1 is decided by bits that had not been drawn."""
    with mpmath.workprec(300):
        word = int(mpmath.floor((1 - mpmath.exp(-1)) * 2**64))
        next_bits = int(mpmath.floor((1 - mpmath.exp(-1)) * mpmath.mpf(2) ** 128)) & (2**64 - 1)

    class Next:
        def __init__(self, bits):
            self.given = bits

        def bits(self, count):
            return self.given if count == 64 else 0

    assert LazyExponential(word, 64, Next(next_bits + 1)).exceeds(Fraction(1))
    assert not LazyExponential(word, 64, Next(next_bits - 1)).exceeds(Fraction(1))


class Scripted(Words):
    """Words first, then exactly the bits it was given (the last of them for ever)."""

    def __init__(self, words, bits):
        super().__init__(words)
        self.left = list(bits)
        self.bits = lambda count: self.left.pop(0) if len(self.left) > 1 else self.left[0]


ONES = 2**64 - 1


def test_a_coin_on_the_edge_waits_for_the_bits_that_decide():
    for power in (0.3, 1.0, 5.0, 13.5):
        with mpmath.workprec(300):
            word = int(mpmath.floor(-mpmath.expm1(-mpmath.mpf(power)) * 2**64))
        got = [bool(flips(np.array([power]), lambda _, p=power: Fraction(p), Scripted([word], [b]))[0]) for b in (0, ONES)]
        assert got == [False, True]
    for power in (2.0**-66, 2.0**-70):  # below the first word's last bit
        assert [bool(flips(np.array([power]), lambda _, p=power: Fraction(p), Scripted([0], [b]))[0]) for b in (0, ONES)] == [False, True]
    for bits, head in ((0, False), (ONES, True)):  # above the last: E > 44.36 is all that 64 ones say
        assert flips(np.array([44.5]), lambda _: Fraction(44.5), Scripted([ONES], [bits, 2**63]))[0] == head


def test_a_race_too_close_for_floats_is_run_in_integers():
    """Powers tuned so that two keys differ by about 1e-17: floats get many of these wrong, integers none."""
    source = UnsafeSeededRng(5)
    for _ in range(150):
        words = [source.bits(63) + 2**61 for _ in range(2)]
        with mpmath.workprec(300):
            logs = [mpmath.log(-mpmath.log1p(-(mpmath.mpf(w) + 0.5) / 2**64)) for w in words]
            power = float(logs[1] - logs[0])
            gap = mpmath.mpf(power) - (logs[1] - logs[0])
        if abs(gap) > 2.0**-60:
            powers = [0.0, power]
            assert race(np.array(powers), exact=lambda i, p=powers: Fraction(p[i]), rng=Words(words)) == [1 if gap > 0 else 0]


def test_a_race_between_multiplicities_too_close_for_floats():
    """No power to widen the doubt: m chances at m times the time, some cells of 2^-64 apart."""
    source = UnsafeSeededRng(6)
    for _ in range(300):
        first, size, offset = source.bits(62) + 2**62, source.below(50) + 2, source.below(401) - 200
        with mpmath.workprec(300):
            time = -mpmath.log1p(-(mpmath.mpf(first) + 0.5) / 2**64)
            second = int(mpmath.floor(-mpmath.expm1(-time * size) * 2**64)) + offset
            if second >= 2**64 - 2**44:
                continue
            low, high = (-mpmath.log1p(-(mpmath.mpf(second) + e) / 2**64) / size for e in (0, 1))
            room = mpmath.mpf(2) ** -60 * time
            winner = 0 if low > time + room else 1 if high < time - room else None
        sizes = np.array([1, size])
        if winner is not None:
            assert race(np.zeros(2), exact=lambda _: Fraction(0), rng=Words([first, second]), multiplicity=sizes) == [winner]


def test_words_at_the_ends_are_left_open():
    with mpmath.workprec(300):
        one = int(mpmath.floor(-mpmath.expm1(-1) * 2**64))  # E = 1, key = power
    for word, power, bits, winner in (
        (0, 44.7, ONES, 1),  # −ln E of the first is 44.36 to ∞, and 45.05 by its float
        (0, 45.5, 0, 0),
        (ONES, -3.5, 0, 1),  # ln E is at least 3.79, and 3.3 by its float
    ):
        powers = [0.0, power]
        rng = Scripted([word, one], [bits])
        assert race(np.array(powers), exact=lambda i, p=powers: Fraction(p[i]), rng=rng) == [winner]


def test_a_dead_heat_draws_on_until_it_is_decided():
    """Both share 128 bits; the next word decides, whichever way; a source that never decides comes to an end."""
    results = set()
    for first, second in ((0, ONES), (ONES, 0)):
        results.add(race(np.zeros(2), exact=lambda _: Fraction(0), rng=Scripted([2**62, 2**62], [7, 7, first, second, 0]))[0])
    assert results == {0, 1}
    assert race(np.zeros(3), exact=lambda _: Fraction(0), rng=Scripted([2**62] * 3, [7]), count=3) == [0, 1, 2]


# ------------------------------------------------------------------------------------------------ exact laws and their cost


def exponential_law(scores, rate):
    weights = [math.exp(rate * (u - max(scores))) for u in scores]
    return [w / math.fsum(weights) for w in weights]


def flip_law(scores, rate):
    """Permute-and-flip by its definition: every order, every flip."""
    chances = [math.exp(rate * (u - max(scores))) for u in scores]
    law = [0.0] * len(scores)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        alive = 1.0
        for i in order:
            law[i] += alive * chances[i] / len(orders)
            alive *= 1 - chances[i]
    return law


def all_flips_law(scores, rate):
    """What the code does: all coins at once, then one head uniformly."""
    chances = [math.exp(rate * (u - max(scores))) for u in scores]
    law = [0.0] * len(scores)
    for heads in itertools.product([0, 1], repeat=len(scores)):
        chance = math.prod(c if h else 1 - c for c, h in zip(chances, heads, strict=True))
        for i, h in enumerate(heads):
            law[i] += chance * h / max(1, sum(heads))
    return law


def noisy_max_law(cells, scale):
    """Discrete Laplace noise on integers, ties to the lowest index."""
    reach = np.arange(-1500, 1500)
    ratio = math.exp(-1 / scale)
    mass = lambda c: (1 - ratio) / (1 + ratio) * ratio ** np.abs(reach - c)  # noqa: E731 - local formula
    law = []
    for i, c in enumerate(cells):
        chance = mass(c)
        for j, other in enumerate(cells):
            if j != i:
                up_to = np.cumsum(mass(other))
                chance = chance * (up_to if j > i else up_to - mass(other))
        law.append(chance.sum())
    return law


def losses(law, other):
    return [math.log(p / q) for p, q in zip(law, other, strict=True)]


def worst(law_of, moves, size, *, monotone):
    """(largest loss, largest spread of losses) over neighbours of several inputs, in grid moves of up to ``moves``."""
    shifts = [s for s in itertools.product(range(-moves, moves + 1), repeat=size) if not monotone or all(x >= 0 for x in s)]
    largest = spread = 0.0
    for base in ([0] * size, [0, 30 * moves, *[0] * (size - 2)], list(range(0, size * moves, moves)), [-25 * moves] * (size - 1) + [0]):
        law = law_of(base)
        for shift in shifts:
            found = losses(law, law_of([b + s for b, s in zip(base, shift, strict=True)]))
            largest = max(largest, *found, *[-x for x in found])
            spread = max(spread, max(found) - min(found))
    return largest, spread


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_price_of_every_law_is_met_and_reached(epsilon, monotone):
    rate = epsilon / (1 if monotone else 2)
    largest, spread = worst(lambda u: exponential_law(u, rate), 1, 4, monotone=monotone)
    assert epsilon * 0.95 < spread <= epsilon * (1 + 1e-9)
    assert largest <= epsilon * (1 + 1e-9)
    largest, _ = worst(lambda u: flip_law(u, rate), 1, 4, monotone=monotone)
    assert epsilon * 0.93 < largest <= epsilon * (1 + 1e-9)
    largest, _ = worst(lambda u: noisy_max_law(u, 1 / rate), 1, 3, monotone=monotone)
    assert epsilon * 0.87 < largest <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("broken", ["noise halved", "factor 2 forgotten"])
def test_broken_twins_cost_more(broken):
    rate = {"noise halved": 2 * 0.5, "factor 2 forgotten": 1.0}[broken]  # right: ε/2 at ε = 1
    assert worst(lambda u: exponential_law(u, rate), 1, 4, monotone=False)[1] > 1.5
    assert worst(lambda u: flip_law(u, rate), 1, 4, monotone=False)[0] > 1.5
    assert worst(lambda u: noisy_max_law(u, 1 / rate), 1, 3, monotone=False)[0] > 1.5


def test_permute_and_flip_is_not_bounded_range():
    """Why its event is PureDp: the spread of its losses exceeds ε."""
    _, spread = worst(lambda u: flip_law(u, 0.5), 1, 4, monotone=False)
    assert spread > 1.2


def test_all_flips_then_one_head_is_permute_and_flip():
    for scores in ([0, 0, 0], [0, -1, -2, -5], [3, 1, 3, 0, 2]):
        assert all_flips_law(scores, 0.7) == pytest.approx(flip_law(scores, 0.7), abs=1e-14)


def test_the_rate_that_runs_is_the_rate_that_is_priced(monkeypatch):
    """What is handed to the samplers, exactly: ε/2Δ and ε/Δ, with no float in between."""
    seen = []
    monkeypatch.setattr(
        "dither.noise.selection.race", lambda powers, *, exact, rng, count=1, centred=None: seen.append(exact(0) - exact(1)) or [0] * count
    )
    monkeypatch.setattr(
        "dither.noise.selection.flips", lambda powers, exact, rng: seen.append(exact(1) - exact(0)) or np.array([True, False])
    )
    scores = [-1.0, 0.0]
    for monotone, share in ((False, 2), (True, 1)):
        common = {"epsilon": 0.3, "sensitivity": 0.7, "monotone": monotone}
        right = -Fraction(0.3) / (Fraction(0.7) * share)
        for mechanism in (
            ExponentialSelection(**common),
            PermuteAndFlip(**common),
            ReportNoisyMax(**common),
            ReportNoisyMax(**common, noise="exponential"),
        ):
            mechanism.measure(scores)
            assert seen.pop() == right
        top = TopK(epsilon=0.9, count=1, sensitivity=0.7, monotone=monotone)
        assert top.measure(scores).event.epsilon == 0.9
        assert seen.pop() == -Fraction(0.9) / (Fraction(0.7) * share)
        top = TopK(epsilon=0.9, count=2, sensitivity=0.7, monotone=monotone)
        top.measure(scores)
        assert seen.pop() == -Fraction(top.event.event.epsilon) / (Fraction(0.7) * share)
        assert top.event.count == 2
        step, moved, scale = ReportNoisyMax(**common, noise="laplace").grid
        assert Fraction(step) * moved >= Fraction(0.7)
        assert moved * share / Fraction(scale) <= Fraction(0.3) < moved * share / Fraction(math.nextafter(scale, 0))


@given(st.floats(1e-100, 1e100), st.floats(1e-9, 1000), st.floats(-1, 1), st.floats(0, 1))
def test_floors_move_by_no_more_than_stated(sensitivity, epsilon, where, move):
    step, moved = integer_grid(sensitivity, epsilon)
    one = where * sensitivity * 1e6
    two = min(one + move * sensitivity, math.nextafter(one + sensitivity, -math.inf))
    if Fraction(two) - Fraction(one) <= Fraction(sensitivity):
        assert abs(math.floor(two / step) - math.floor(one / step)) <= moved
    assert moved * step <= sensitivity * (1 + max(1e-6, 2e-3 / max(epsilon, 1e-3))) or epsilon < 1e-3


@given(SCORES, SCORES, st.floats(1e-3, 1e3))
def test_holding_scores_never_moves_them_apart(scores, others, sensitivity):
    size = min(len(scores), len(others))
    one, two = held_scores(scores[:size], sensitivity), held_scores(others[:size], sensitivity)
    assert np.isfinite(one).all()
    for a, b, x, y in zip(scores, others, one, two, strict=False):
        if math.isfinite(a) and math.isfinite(b):
            assert abs(Fraction(float(x)) - Fraction(float(y))) <= abs(Fraction(a) - Fraction(b))
            assert (x >= y) == (a >= b) or x == y


# ------------------------------------------------------------------------------------------------ quantiles


def rank_error(rows, point, quantile):
    target = Fraction(quantile) * len(rows)
    below, upto = sum(r < point for r in rows), sum(r <= point for r in rows)
    return max(Fraction(0), below - target, target - upto)


def quantile_law(rows, bounds, quantile, rate):
    """Straight from the definition, point by point."""
    weights = {z: math.exp(-rate * rank_error(rows, z, quantile)) for z in range(bounds[0], bounds[1] + 1)}
    total = math.fsum(weights.values())
    return {z: w / total for z, w in weights.items()}


def drawn_law(rows, bounds, quantile, rate):
    """What ``_choice`` hands to the race, expanded to points."""
    weights = {}

    def spy(powers, *, exact, rng, multiplicity):
        spy.seen = [(exact(i), float(powers[i]), int(multiplicity[i])) for i in range(len(powers))]
        return [spy.pick]

    class Take:
        def below(self, bound):
            return self.at

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantiles, "race", spy)
        take = Take()
        spy.pick, take.at = 0, 0
        quantiles._choice(np.array(sorted(rows), dtype=np.int64), bounds, quantile, rate, take)
        for i, (exact, near, size) in enumerate(list(spy.seen)):
            assert abs(float(exact) - near) <= 1e-12 * (1 + abs(near))
            for at in range(size):
                spy.pick, take.at = i, at
                point = quantiles._choice(np.array(sorted(rows), dtype=np.int64), bounds, quantile, rate, take)
                assert point not in weights
                weights[point] = math.exp(exact)
    total = math.fsum(weights.values())
    return {z: w / total for z, w in weights.items()}


@given(st.lists(st.integers(2, 9), max_size=8), st.fractions(0, 1, max_denominator=12))
def test_runs_of_points_are_the_points(rows, quantile):
    rate = Fraction(7, 10)
    wanted, got = quantile_law(rows, (2, 9), quantile, float(rate)), drawn_law(rows, (2, 9), quantile, rate)
    assert set(got) == set(wanted)
    assert all(got[z] == pytest.approx(wanted[z], rel=1e-12) for z in wanted)


def neighbours_of(rows, points, relation):
    if relation is Neighbors.ADD_REMOVE:
        return [[*rows, x] for x in points]
    return [[*rows[:i], x, *rows[i + 1 :]] for i in range(len(rows)) for x in points]


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize("quantile", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_quantile_keeps_its_price_on_every_small_dataset(relation, quantile):
    mechanism = Quantile(quantile=quantile, lower=0, upper=3, cells=3, epsilon=1.0, neighbors=relation)
    rate = float(mechanism._rate)
    widest = largest = 0.0
    for size in (*range(5), 12):
        for rows in itertools.combinations_with_replacement(range(4), size):
            law = quantile_law(rows, (0, 3), quantile, rate)
            for other in neighbours_of(list(rows), range(4), relation):
                found = [math.log(p / q) for p, q in zip(law.values(), quantile_law(other, (0, 3), quantile, rate).values(), strict=True)]
                widest, largest = max(widest, max(found) - min(found)), max(largest, *map(abs, found))
    assert 0.85 < widest <= 1 + 1e-9
    assert largest <= 1 + 1e-9


def quantiles_law(mechanism, rows, jitter_bits):
    """The whole recursion, enumerated: jitter, then every split."""
    points = (mechanism.cells + 1 << jitter_bits) - 1
    law = {}

    def split(todo, rows, bounds, shares, chance, found):
        if not todo:
            answer = tuple(found[i] >> jitter_bits for i in sorted(found))
            law[answer] = law.get(answer, 0.0) + chance
            return
        (start, end, rows, bounds, shares), *rest = todo
        if start == end:
            split(rest, rows, bounds, shares, chance, found)
            return
        middle = (start + end) // 2
        share = Fraction(mechanism.quantiles[middle])
        quantile = (share - shares[0]) / (shares[1] - shares[0])
        for z, p in quantile_law(rows, bounds, quantile, float(mechanism._rate(quantile))).items():
            left = (start, middle, [r for r in rows if r < z], (bounds[0], z), (shares[0], share))
            right = (middle + 1, end, [r for r in rows if r >= z], (z, bounds[1]), (share, shares[1]))
            split([left, right, *rest], None, None, None, chance * p, found | {middle: z})

    jitters = list(itertools.product(range(1 << jitter_bits), repeat=len(rows)))
    for jitter in jitters:
        spread = [(r << jitter_bits) + j for r, j in zip(rows, jitter, strict=True)]
        split([(0, len(mechanism.quantiles), spread, (0, points), (Fraction(0), Fraction(1)))], None, None, None, 1 / len(jitters), {})
    return law


@pytest.mark.parametrize("relation", list(Neighbors))
def test_every_level_spends_its_share(relation, monkeypatch):
    """The rate of each split: ε/levels over the width of its quantile among the rows left, half of it where rows may move."""
    seen = []
    monkeypatch.setattr(quantiles, "_choice", lambda rows, bounds, quantile, rate, rng: seen.append((quantile, rate)) or bounds[0])
    mechanism = Quantiles(quantiles=(0.0, 0.125, 0.5, 0.75, 1.0), lower=0, upper=1, epsilon=3.0, neighbors=relation)
    mechanism.measure([0.5])
    share = Fraction(mechanism.epsilon_each) / (2 if relation is Neighbors.REPLACE else 1)
    quarter = Fraction(1, 4)
    wanted = {Fraction(1, 2): share, 1 - 2 * quarter: share, quarter: share / Fraction(3, 2), Fraction(0): share, Fraction(1): share}
    assert len(seen) == 5
    assert mechanism.event.count == mechanism.levels == 3
    assert all(rate == wanted[quantile] for quantile, rate in seen)


@pytest.mark.parametrize("relation", list(Neighbors))
def test_quantiles_keep_their_price_on_every_small_dataset(relation):
    mechanism = Quantiles(quantiles=(0.25, 0.5, 0.75), lower=0, upper=2, cells=2, epsilon=2.0, neighbors=relation)
    assert mechanism.levels == 2
    largest = 0.0
    laws = {
        rows: quantiles_law(mechanism, rows, 1) for size in range(5) for rows in itertools.combinations_with_replacement(range(3), size)
    }
    for rows, law in laws.items():
        for other in neighbours_of(list(rows), range(3), relation):
            twin = laws.get(tuple(sorted(other)))
            if twin is not None:
                assert set(law) == set(twin)
                largest = max(largest, *(abs(math.log(law[a] / twin[a])) for a in law))
    assert 0.5 < largest <= 2.0 + 1e-9
