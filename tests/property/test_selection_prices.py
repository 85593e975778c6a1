"""From what runs to what is charged: the law of every mechanism with few outcomes, by enumeration of its own code, against the accountant.

``law`` runs a mechanism with every primitive draw (a race, coins, a uniform integer, jitter) replaced by one that takes each
possible outcome in turn and keeps its exact probability. The hockey-stick divergence of two such laws, both ways round and at
many ε (those where it bends included), may nowhere exceed δ(ε) of the event that the mechanism itself hands over, for neighbours
one move apart, for groups of moves, and for runs composed.
"""

import itertools
import math
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

from dither.accounting.loss import loss
from dither.core.events import Repeat
from dither.core.units import Neighbors
from dither.noise import partition, quantiles, response, selection, vote
from dither.noise.partition import OptimalPartitionSelection, StableHistogram
from dither.noise.quantiles import Quantile, Quantiles
from dither.noise.response import KaryResponseMechanism, RandomizedResponseMechanism
from dither.noise.selection import ExponentialSelection, PermuteAndFlip, ReportNoisyMax, TopK
from dither.noise.threshold import AboveThreshold, _scales
from dither.noise.vote import EnsembleVote, Screening, VoteSession

# ------------------------------------------------------------------------------------------------ every outcome in turn


class Oracle:
    """A source whose draws follow a script; beyond its end it takes the first outcome and writes down the others."""

    private = True

    def __init__(self, script):
        self.script, self.at, self.chance, self.others = script, 0, 1.0, []

    def choose(self, weights):
        total = math.fsum(weights)
        if self.at < len(self.script):
            taken = self.script[self.at]
        else:
            taken, *rest = [i for i, w in enumerate(weights) if w > 0]
            self.others += [(*self.script, i) for i in rest]
            self.script = (*self.script, taken)
        self.at += 1
        self.chance *= weights[taken] / total
        return taken

    def below(self, bound):
        return self.choose([1] * bound)

    def bits(self, count):
        raise AssertionError("no bit is to be drawn but by the primitives")

    def bytes(self, count):
        """32-bit words of which only the first bit counts."""
        return b"".join((b"\x00" * 4, b"\xff" * 4)[self.choose([1, 1])] for _ in range(count // 4))


def race(powers, *, exact, rng, count=1, multiplicity=None, centred=None):
    found = [exact(i) for i in range(len(powers))]
    assert powers == pytest.approx([float(p) for p in found], rel=1e-12, abs=1e-12)
    sizes = [1] * len(powers) if multiplicity is None else multiplicity.tolist()
    left, order = list(range(len(powers))), []
    while len(order) < count:
        best = max(found[i] for i in left)
        order.append(left.pop(rng.choose([sizes[i] * math.exp(found[i] - best) for i in left])))
    return order


def flips(powers, exact, rng):
    return np.array([rng.choose([1 - math.exp(-exact(i)), math.exp(-exact(i))]) == 1 for i in range(len(powers))])


def bernoulli(p, size=None, rng=None):
    return np.array([rng.choose([float(1 - p), float(p)]) == 1 for _ in range(size)])


def uniform_below(bound, size=None, rng=None):
    return np.array([rng.choose([1] * bound) for _ in range(size)], dtype=np.int64)


def keep(self, counts, rng):
    chances = [float(min(self.bounds(c, 200)[0], 1)) for c in counts.tolist()]
    return np.array([rng.choose([1 - p, p]) == 1 for p in chances], dtype=bool)


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    for module in (selection, quantiles, vote):
        monkeypatch.setattr(module, "race", race)
    monkeypatch.setattr(selection, "flips", flips)
    monkeypatch.setattr(response.samplers, "bernoulli", bernoulli)
    monkeypatch.setattr(response.samplers, "uniform_below", uniform_below)
    monkeypatch.setattr(partition._KeepLaw, "flip", keep)
    monkeypatch.setattr(quantiles, "_JITTER", 1)
    for module in (selection, quantiles, response, partition, vote):
        monkeypatch.setattr(module, "array_rng", Jittered)


class Jittered:
    """What ``array_rng`` makes of an oracle."""

    private = True

    def __init__(self, oracle):
        self.choose, self.below, self.bytes = oracle.choose, oracle.below, oracle.bytes

    def uint32(self, count):
        return np.frombuffer(self.bytes(4 * count), np.uint32)


def law(run):
    """Every outcome of ``run(rng)`` with its probability."""
    waiting, found = [()], {}
    while waiting:
        oracle = Oracle(waiting.pop())
        value = run(oracle)
        waiting += oracle.others
        found[value] = found.get(value, 0.0) + oracle.chance
    assert math.fsum(found.values()) == pytest.approx(1, abs=1e-9)
    return found


def measured(mechanism, data):
    event = mechanism.event

    def run(rng):
        made = mechanism.measure(data, rng)
        assert made.event == event
        value = made.value
        return tuple(value.items()) if isinstance(value, dict) else tuple(value) if isinstance(value, np.ndarray) else value

    return law(run)


# ------------------------------------------------------------------------------------------------ what may be paid at most


def hockey_stick(one, two, epsilon):
    return math.fsum(max(0.0, p - math.exp(epsilon) * two.get(o, 0.0)) for o, p in one.items())


@lru_cache(maxsize=4096)
def price(event, group, epsilon):
    return loss(event, group=group).delta(epsilon).upper


GRID = (0.0, 0.05, 0.2, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 9.0)


def spent(event, one, two, *, group=1, bends=4):
    """The largest part of δ(ε) that the two laws use up, where it is not negligible; nowhere may it be more than all."""
    losses = sorted({round(abs(math.log(p / two[o])), 9) for o, p in one.items() if p > 0 and two.get(o, 0) > 0})
    most = 0.0
    for epsilon in {*GRID, *losses[:: max(1, len(losses) // bends)], *losses[-1:]}:
        allowed = price(event, group, epsilon)
        paid = max(hockey_stick(one, two, epsilon), hockey_stick(two, one, epsilon))
        assert paid <= allowed * (1 + 1e-8) + 1e-11, (event, group, epsilon, paid, allowed)
        if allowed > 1e-7:
            most = max(most, paid / allowed)
    return most


def composed(*laws):
    made = {}
    for path in itertools.product(*(one.items() for one in laws)):
        key = tuple(o for o, _ in path)
        made[key] = made.get(key, 0.0) + math.prod(p for _, p in path)
    return made


# ------------------------------------------------------------------------------------------------ selection

BASES = ([0.0, 0.0, 0.0], [0.0, 30.0, 30.0], [0.0, 1.0, 2.5], [-40.0, 0.0, -40.0])


def moved(scores, monotone, step=1.0):
    """Every neighbour whose scores move by ``step`` or not at all."""
    for signs in itertools.product((0, 1) if monotone else (-1, 0, 1), repeat=len(scores)):
        yield [s + step * sign for s, sign in zip(scores, signs, strict=True)]


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("epsilon", [0.4, 2.0])
@pytest.mark.parametrize("noise", ["race", "gumbel", "flips", "exponential"])
def test_selections(noise, epsilon, monotone):
    common = {"epsilon": epsilon, "sensitivity": 0.8, "monotone": monotone}
    mechanism = {
        "race": lambda: ExponentialSelection(**common),
        "flips": lambda: PermuteAndFlip(**common),
    }.get(noise, lambda: ReportNoisyMax(**common, noise=noise))()
    most = 0.0
    for base in BASES:
        one = measured(mechanism, base)
        for other in moved(base, monotone, 0.8):
            two = measured(mechanism, other)
            most = max(most, spent(mechanism.event, one, two))
    assert most > (0.99 if noise in ("race", "gumbel") else 0.7)


@pytest.mark.parametrize("noise", ["race", "flips"])
def test_selections_by_groups_and_composed(noise):
    mechanism = (ExponentialSelection if noise == "race" else PermuteAndFlip)(epsilon=0.7)
    for base, other, beyond in (
        ([0.0, 0.0, 0.0], [1.0, -1.0, -1.0], [3.0, -3.0, -3.0]),
        ([0.0, 9.0, 9.0], [1.0, 8.0, 8.0], [3.0, 6.0, 6.0]),
        ([0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [1.0, 4.0, -1.0]),
    ):
        one, two, three = (measured(mechanism, s) for s in (base, other, beyond))
        spent(mechanism.event, one, three, group=3)
        spent(Repeat(mechanism.event, 3), composed(one, one, one), composed(two, two, two))
        spent(Repeat(mechanism.event, 2), composed(one, two), composed(two, one))


def test_noisy_max_with_laplace_noise(monkeypatch):
    """On a grid of one sensitivity, by sums over the noise of the scale that the mechanism uses."""
    monkeypatch.setattr(selection, "_GRID_DIGITS", 0)
    for monotone in (False, True):
        mechanism = ReportNoisyMax(epsilon=1.2, monotone=monotone, noise="laplace")
        step, moves, scale = mechanism.grid
        assert (step, moves) == (1.0, 1)
        reach = np.arange(-150, 151)

        def made(cells, scale=scale, reach=reach):
            mass = [np.exp(-np.abs(reach - c) / scale) for c in cells]
            mass = [m / m.sum() for m in mass]
            found = {}
            for i, own in enumerate(mass):
                chance = own
                for j, other in enumerate(mass):
                    if j != i:
                        chance = chance * (np.cumsum(other) if j > i else np.cumsum(other) - other)
                found[i] = float(chance.sum())
            return found

        most = 0.0
        for base in ([0, 0, 0], [0, 6, 6], [0, 1, 3]):
            for other in moved(base, monotone):
                most = max(most, spent(mechanism.event, made(base), made([int(c) for c in other])))
        assert most > 0.55


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_top_k(count, monotone):
    mechanism = TopK(epsilon=1.5, count=count, monotone=monotone)
    most = 0.0
    for base in ([0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.5, 2.5], [0.0, 0.0, 20.0, 20.0]):
        one = measured(mechanism, base)
        for other in moved(base, monotone):
            most = max(most, spent(mechanism.event, one, measured(mechanism, other)))
    assert most > 0.8
    assert spent(mechanism.event, one, measured(mechanism, [2.0, 1.0, 20.0, 22.0]), group=2) > 0.3


# ------------------------------------------------------------------------------------------------ quantiles


def datasets(points, most):
    return [list(rows) for size in range(most + 1) for rows in itertools.combinations_with_replacement(points, size)]


def neighbours(rows, points, relation):
    if relation is Neighbors.ADD_REMOVE:
        return [[*rows, x] for x in points]
    return [[*rows[:i], x, *rows[i + 1 :]] for i in range(len(rows)) for x in points if x != rows[i]]


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize("quantile", [0.0, 0.3, 0.5, 1.0])
def test_one_quantile(quantile, relation):
    mechanism = Quantile(quantile=quantile, lower=0, upper=3, cells=3, epsilon=1.3, neighbors=relation)
    points = [0.0, 1.0, 2.0, 3.0, math.nan, math.inf]
    most = 0.0
    for rows in [*datasets([0.0, 1.0, 3.0], 3), [0.0] * 6 + [3.0] * 6]:
        one = measured(mechanism, rows)
        for other in neighbours(rows, points, relation):
            most = max(most, spent(mechanism.event, one, measured(mechanism, other)))
    assert most > (0.99 if quantile in (0, 1) else 0.6)
    one, three = measured(mechanism, [0.0, 1.0, 2.0]), measured(mechanism, [3.0, 3.0, 3.0])
    spent(mechanism.event, one, three, group=6 if relation is Neighbors.ADD_REMOVE else 3)


@pytest.mark.parametrize("relation", list(Neighbors))
def test_several_quantiles(relation):
    mechanism = Quantiles(quantiles=(0.25, 0.5, 1.0), lower=0, upper=1, cells=1, epsilon=3.0, neighbors=relation)
    laws = {tuple(rows): measured(mechanism, rows) for rows in datasets([0.0, 1.0], 3)}
    most = 0.0
    for rows, one in laws.items():
        for other in neighbours(list(rows), [0.0, 1.0], relation):
            two = laws.get(tuple(sorted(other)))
            if two is not None:
                most = max(most, spent(mechanism.event, one, two))
    assert most > 0.3
    spent(mechanism.event, laws[()], laws[(0.0, 1.0, 1.0)], group=3)


# ------------------------------------------------------------------------------------------------ above threshold


def upper_tail(at, scale):
    ratio = math.exp(-1 / scale)
    return np.where(at >= 1, ratio ** np.maximum(at, 0) / (1 + ratio), 1 - ratio ** np.maximum(1 - at, 0) / (1 + ratio))


def threshold_law(mechanism, cells):
    """Answers, and where they are paid for values, of a list of whole scores against 0, with the mechanism's own scales."""
    scales = mechanism.scales
    assert (scales.step, scales.moved) == (1.0, 1)
    noise = np.arange(-400, 401)
    ratio = math.exp(-1 / scales.threshold)
    weight = (1 - ratio) / (1 + ratio) * ratio ** np.abs(noise)
    found = {}
    for answers in itertools.product((False, True), repeat=len(cells)):
        end = next((i + 1 for i in range(len(cells)) if sum(answers[: i + 1]) == mechanism.hits), len(cells))
        if any(answers[end:]):
            continue
        chance = weight.copy()
        for cell, above in zip(cells[:end], answers[:end], strict=True):
            up = upper_tail(noise - cell, scales.query)
            chance *= up if above else 1 - up
        told = [{(): 1.0}]
        if scales.value is not None:
            ratio = math.exp(-1 / scales.value)
            reach = range(-60, 61)
            told = [
                {c + z: (1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in reach}
                for c, above in zip(cells[:end], answers[:end], strict=True)
                if above
            ]
        for values, p in composed(*told).items():
            found[answers[:end], values] = float(chance.sum()) * p
    return found


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("value_epsilon", [None, 0.9])
def test_above_threshold(monkeypatch, monotone, value_epsilon):
    monkeypatch.setattr(selection, "_GRID_DIGITS", 0)
    monkeypatch.setattr("dither.noise.threshold._scales", _scales.__wrapped__)
    mechanism = AboveThreshold(epsilon=1.1, hits=2 if value_epsilon is None else 1, monotone=monotone, value_epsilon=value_epsilon)
    most = 0.0
    for base in ([0, 0, 0], [-9, -9, 2], [5, 0, -3]):
        one = threshold_law(mechanism, base)
        for other in moved(base, monotone):
            two = threshold_law(mechanism, [int(c) for c in other])
            most = max(most, spent(mechanism.event, one, two))
    assert most > (0.15 if value_epsilon is None else 0.8)
    spent(mechanism.event, one, threshold_law(mechanism, [c + 2 for c in base]), group=2)


# ------------------------------------------------------------------------------------------------ partitions


def histogram_law(mechanism, counts):
    scale, reach = mechanism.noise_scale, np.arange(-40, 41)
    weights = np.exp(-np.abs(reach) / scale if mechanism.noise == "laplace" else -(reach**2) / (2 * scale**2))
    laws = []
    for count in counts:
        told = {}
        for k, p in zip(reach.tolist(), (weights / weights.sum()).tolist(), strict=True):
            key = count + k if count >= mechanism.units_min and count + k >= mechanism.threshold else None
            told[key] = told.get(key, 0.0) + p
        laws.append(told)
    return composed(*laws)


HISTOGRAMS = [
    StableHistogram(noise="laplace", noise_scale=1.5, threshold=5, groups_max=1),
    StableHistogram(noise="laplace", noise_scale=1.5, threshold=5, groups_max=2),
    StableHistogram(noise="laplace", noise_scale=1.5, threshold=8, groups_max=2, units_min=4),
    StableHistogram(noise="gaussian", noise_scale=1.2, threshold=4, groups_max=1),
    StableHistogram(noise="gaussian", noise_scale=1.2, threshold=6, groups_max=2, units_min=3),
    StableHistogram(noise="laplace", noise_scale=1.5, threshold=5, groups_max=1, neighbors="replace"),
    StableHistogram(noise="gaussian", noise_scale=1.2, threshold=4, groups_max=1, neighbors="replace"),
]


def unit_moves(mechanism):
    """What one unit can do to the counts of two groups."""
    if mechanism.neighbors is Neighbors.REPLACE:
        return [(1, 0), (-1, 0), (1, -1), (-1, 1)]
    return [(1, 0), (0, 1), (1, 1)][: 3 if mechanism.groups_max == 2 else 2]


@pytest.mark.parametrize("mechanism", HISTOGRAMS, ids=repr)
def test_histograms(mechanism):
    low = mechanism.units_min
    most = 0.0
    for counts in itertools.product((0, low - 1, low, low + 4), repeat=2):
        one = histogram_law(mechanism, counts)
        for move in unit_moves(mechanism):
            after = [c + m for c, m in zip(counts, move, strict=True)]
            if min(after) >= 0:
                most = max(most, spent(mechanism.event, one, histogram_law(mechanism, after)))
    assert most > 0.99


@pytest.mark.parametrize(
    "mechanism",
    [m for m in HISTOGRAMS if m.noise == "laplace" and len(unit_moves(m)) == 2 and m.neighbors is Neighbors.ADD_REMOVE],
    ids=repr,
)
def test_histograms_of_groups_of_units(mechanism):
    """Several units together, in one group or apart: what is new is shown with far more than the sum of what each would do alone."""
    low = mechanism.units_min
    for start in ((0, 0), (low - 1, low - 1), (low + 2, 0)):
        one = histogram_law(mechanism, start)
        for units in (2, 3):
            for move in ((units, 0), (units - 1, 1)):
                after = [c + m for c, m in zip(start, move, strict=True)]
                spent(mechanism.event, one, histogram_law(mechanism, after), group=units)


@pytest.mark.parametrize("relation", list(Neighbors))
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.02), (2.0, 1e-4), (0.0, 0.1), (0.1, 0.5)])
@pytest.mark.parametrize("groups", [1, 2])
def test_optimal_partition_selection(epsilon, delta, groups, relation):
    mechanism = OptimalPartitionSelection(epsilon_each=epsilon, delta_each=delta, groups_max=groups, units_min=2, neighbors=relation)
    names = "abcd"[: groups * (2 if relation is Neighbors.REPLACE else 1)]
    most = 0.0
    for count in range(14):
        for others in {0, 1, count, 30}:
            counts = dict(zip(names, [count, *[others] * (len(names) - 1)], strict=True))
            one = measured(mechanism, counts)
            moves = [1] * groups + [-1] * (len(names) - groups)
            after = {name: max(0, c + m) for (name, c), m in zip(counts.items(), moves, strict=True)}
            most = max(most, spent(mechanism.event, one, measured(mechanism, after)))
            if relation is Neighbors.ADD_REMOVE and groups == 1:
                after = {name: c + 3 for name, c in counts.items()}
                spent(mechanism.event, one, measured(mechanism, after), group=3)
    assert most > (0.99 if relation is Neighbors.ADD_REMOVE and groups == 1 else 0.4)


# ------------------------------------------------------------------------------------------------ responses and votes


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.5])
def test_responses(epsilon):
    binary = RandomizedResponseMechanism(epsilon=epsilon)
    laws = [law(lambda r, v=v: binary.measure(v, r).value) for v in (False, True)]
    assert spent(binary.event, *laws) > (0.999 if epsilon else -1)
    spent(Repeat(binary.event, 2), composed(laws[0], laws[0]), composed(laws[1], laws[1]))
    for values in (2, 3, 5):
        kary = KaryResponseMechanism(epsilon=epsilon, values=values)
        laws = [law(lambda r, v=v, k=kary: k.measure(v, r).value) for v in range(values)]
        for one, two in itertools.combinations(laws, 2):
            assert spent(kary.event, one, two) > (0.999 if epsilon else -1)


def winner_law(mechanism, counts):
    """The winner by quadrature; equal noisy counts have no mass worth naming on a grid of 2^-20."""
    draw = stats.norm if mechanism.noise == "gaussian" else stats.laplace
    points = np.linspace(-80, 80, 320_001)
    shown = {}
    for i, count in enumerate(counts):
        density = draw.pdf(points, count, mechanism.noise_scale)
        for j, other in enumerate(counts):
            if j != i:
                density = density * draw.cdf(points, other, mechanism.noise_scale)
        shown[i] = float(np.trapezoid(density, points))
    total = math.fsum(shown.values())
    return {i: p / total for i, p in shown.items()}


def screened_law(mechanism, counts):
    if mechanism.noise == "exponential":
        winners = law(lambda r: mechanism._winner(np.array(counts), Jittered(r)))
    else:
        winners = winner_law(mechanism, counts)
    if mechanism.screening is None:
        return winners
    silent = float(stats.norm.cdf(mechanism.screening.threshold, max(counts), mechanism.screening.noise_std))
    return {None: silent} | {i: p * (1 - silent) for i, p in winners.items()}


@pytest.mark.parametrize("noise", vote.NOISES)
@pytest.mark.parametrize("screened", [False, True])
def test_votes(noise, screened):
    screening = Screening(threshold=3.0, noise_std=2.0, queries=2) if screened else None
    mechanism = EnsembleVote(models=6, classes=3, noise_scale=2.0, answers=2, noise=noise, screening=screening)
    once = EnsembleVote(
        models=6,
        classes=3,
        noise_scale=2.0,
        answers=1,
        noise=noise,
        screening=screening and Screening(threshold=3.0, noise_std=2.0, queries=1),
    )
    pairs = [([3, 3, 0], [2, 4, 0]), ([6, 0, 0], [5, 0, 1]), ([2, 2, 2], [3, 1, 2]), ([2, 2, 1], [2, 2, 2]), ([0, 0, 0], [1, 0, 0])]
    most = 0.0
    for a, b in pairs:
        one, two = screened_law(mechanism, a), screened_law(mechanism, b)
        most = max(most, spent(once.event, one, two))
        spent(mechanism.event, composed(one, one), composed(two, two))
    assert most > (0.25 if screened else 0.5)
    one, three = screened_law(mechanism, [6, 0, 0]), screened_law(mechanism, [4, 2, 0])
    spent(once.event, one, three, group=2)


@pytest.mark.parametrize("wrong", ["bounded range for coins", "rate", "count", "groups", "replace"])
def test_wrong_prices_are_noticed(wrong):
    """The same comparison refuses what is priced too low."""
    if wrong == "bounded range for coins":  # pure, but composed worse than bounded range
        pair = [measured(PermuteAndFlip(epsilon=1.0), s) for s in ([0.0, 0.0, 0.0], [1.0, -1.0, -1.0])]
        event = Repeat(ExponentialSelection(epsilon=1.0).event, 3)
        pair = [composed(made, made, made) for made in pair]
    elif wrong == "rate":
        pair = [measured(ExponentialSelection(epsilon=1.5), s) for s in ([0.0, 0.0, 0.0], [1.0, -1.0, -1.0])]
        event = ExponentialSelection(epsilon=1.0).event
    elif wrong == "count":
        pair = [measured(TopK(epsilon=2.0, count=2), s) for s in ([0.0, 0.0, 0.0], [1.0, 1.0, -1.0])]
        event = TopK(epsilon=1.0, count=1).event
    elif wrong == "groups":
        twice = OptimalPartitionSelection(epsilon_each=1.0, delta_each=0.01, groups_max=2)
        pair = [measured(twice, {"a": n, "b": n}) for n in (0, 1)]
        event = OptimalPartitionSelection(epsilon_each=1.0, delta_each=0.01).event
    else:
        mechanism = StableHistogram(noise="laplace", noise_scale=1.5, threshold=5)
        pair = [histogram_law(mechanism, counts) for counts in ((9, 9), (10, 8))]
        event = mechanism.event
    with pytest.raises(AssertionError):
        spent(event, *pair)


def test_a_session_of_votes_is_the_composition():
    """Adaptive: the second question is asked on other counts after a label than after silence."""
    votes = {"first": [0, 0, 1], "label": [0, 1, 1], "silence": [0, 0, 0]}

    def run(rng, shift):
        made = EnsembleVote(models=3, classes=2, noise_scale=2.0, answers=2, noise="exponential")
        session = VoteSession(made, rng)
        first = session.answer([shift, *votes["first"][1:]])
        second = session.answer([shift, *votes["label" if first else "silence"][1:]])
        return first, second

    event = EnsembleVote(models=3, classes=2, noise_scale=2.0, answers=2, noise="exponential").event
    assert spent(event, law(lambda r: run(r, 0)), law(lambda r: run(r, 1))) > 0.3
