"""Above threshold: what it costs by enumeration, the wrong versions of the literature beside it, and the session's rules."""

import copy
import itertools
import math
import os
import pickle
import threading
import time
from fractions import Fraction

import numpy as np
import pytest

from dither.core.errors import InputError, RefusedError
from dither.core.events import DiscreteLaplace, NonPrivate, PureDp, Repeat, Sequence
from dither.noise import samplers
from dither.noise.rng import SecureRng, UnsafeSeededRng
from dither.noise.threshold import AboveThreshold, Answer, Found, _scales

# ------------------------------------------------------------------------------------------------ exact law


def log_upper_tail(at, scale):
    """ln P(noise ≥ at) for discrete Laplace noise of ``scale``; no noise at scale 0."""
    at = np.asarray(at, dtype=float)
    if scale == 0:
        with np.errstate(divide="ignore"):
            return np.log((at <= 0).astype(float))
    ratio = math.exp(-1 / scale)
    with np.errstate(divide="ignore", over="ignore"):
        right = -at / scale - math.log1p(ratio)
        left = np.log1p(-np.exp(np.minimum(-(1 - at), 0) / scale) / (1 + ratio))
    return np.where(at >= 1, right, left)


def log_chance(questions, *, threshold_scale, query_scale):
    """ln of the probability that (cell, answer, how often) … are answered so, by one sum over the threshold's noise."""
    reach = int(80 * threshold_scale) + int(60 * query_scale) + 2 if threshold_scale else 0
    noise = np.arange(-reach, reach + 1)
    total = np.zeros(noise.size)
    if threshold_scale:
        ratio = math.exp(-1 / threshold_scale)
        total = math.log((1 - ratio) / (1 + ratio)) - np.abs(noise) / threshold_scale
    for cell, answer, often in [q for q in questions if q[2]]:
        above = log_upper_tail(noise - cell, query_scale)
        with np.errstate(divide="ignore"):
            total = total + often * (above if answer else np.log(-np.expm1(above)))
    peak = total.max()
    return peak + math.log(np.exp(total - peak).sum()) if peak > -math.inf else -math.inf


def worst_loss(*, hits, monotone, threshold_scale, query_scale, misses=3_000, cells=(0,)):
    """The largest loss over inputs of the kind that is worst: many noes, then ``hits`` yeses, moved against each other."""
    scales = {"threshold_scale": threshold_scale, "query_scale": query_scale}
    largest = 0.0
    moves = [(1, 0), (0, 1), (1, 1)] if monotone else [(1, -1), (-1, 1), (1, 1), (-1, -1)]
    for cell, often, move in itertools.product(cells, {0, 1, misses}, moves):
        one = [(0, False, often), (cell, True, hits)]
        two = [(move[0], False, often), (cell + move[1], True, hits)]
        a, b = log_chance(one, **scales), log_chance(two, **scales)
        if max(a, b) > -math.inf:
            largest = max(largest, abs(a - b))
    return largest


@pytest.fixture
def coarse(monkeypatch):
    """Grid steps of one sensitivity, so that the law can be summed."""
    monkeypatch.setattr("dither.noise.selection._GRID_DIGITS", 0)
    monkeypatch.setattr("dither.noise.threshold._scales", _scales.__wrapped__)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("hits", [1, 3])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_price_is_met_and_reached(coarse, epsilon, hits, monotone):
    scales = AboveThreshold(epsilon=epsilon, hits=hits, monotone=monotone).scales
    assert scales.moved == 1
    loss = worst_loss(
        hits=hits, monotone=monotone, threshold_scale=scales.threshold, query_scale=scales.query, misses=100_000, cells=(-3, 0, 3)
    )
    assert 0.95 * epsilon < loss <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("monotone", [False, True])
def test_the_price_is_met_for_every_short_list(coarse, monotone):
    """All lists of 3 questions near the threshold, all neighbours, all answers, hits = 2."""
    scales = AboveThreshold(epsilon=1.0, hits=2, monotone=monotone).scales
    chances = {}
    for cells in itertools.product(range(-2, 3), repeat=3):
        chances[cells] = {}
        for answers in itertools.product([False, True], repeat=3):
            if sum(answers[:2]) == 2:
                continue  # the session has ended before the third
            questions = [(c, a, 1) for c, a in zip(cells, answers, strict=True)]
            chances[cells][answers] = log_chance(questions, threshold_scale=scales.threshold, query_scale=scales.query)
    steps = (0, 1) if monotone else (-1, 0, 1)
    worst = max(
        abs(chances[cells][a] - chances[other][a])
        for cells in chances
        for move in itertools.product(steps, repeat=3)
        if (other := tuple(c + m for c, m in zip(cells, move, strict=True))) in chances
        for a in chances[cells]
    )
    assert 0.4 < worst <= 1.0


WRONG = {
    "query noise halved": lambda s, c: {"threshold_scale": s.threshold, "query_scale": s.query / 2, "hits": c},
    "threshold noise halved": lambda s, c: {"threshold_scale": s.threshold / 2, "query_scale": s.query, "hits": c},
    "the factor 2 of general scores forgotten": lambda s, c: {"threshold_scale": s.threshold, "query_scale": s.query / 2, "hits": c},
    "threshold not noised": lambda s, c: {"threshold_scale": 0, "query_scale": s.query, "hits": c},
    "query noise not grown with hits (Lee & Clifton 2014)": lambda s, c: {"threshold_scale": 4.0, "query_scale": 4 / 3, "hits": c},
    "scores not noised (Stoddard et al. 2014)": lambda s, c: {"threshold_scale": 2.0, "query_scale": 0, "hits": c},
    "never stops (Chen et al. 2015)": lambda s, c: {"threshold_scale": 2.0, "query_scale": 2.0, "hits": 40},
    "stop forgotten": lambda s, c: {"threshold_scale": s.threshold, "query_scale": s.query, "hits": c + 40},
}


@pytest.mark.parametrize("name", WRONG)
def test_the_wrong_versions_cost_more(coarse, name):
    """Lyu, Su & Li 2017, Figure 1: each wrong version beside the loss that shows it, at a claimed ε of 1 and 5 hits."""
    loss = worst_loss(monotone=False, cells=(-1, 0, 1), **WRONG[name](AboveThreshold(epsilon=1.0, hits=5).scales, 5))
    assert loss > 1.15


def test_telling_the_noisy_score_that_was_compared_costs_more(coarse):
    """Roth's lecture notes (Algorithm 3 of Lyu et al.): the compared noise is released, so a yes at v bounds the threshold by v."""
    scales = AboveThreshold(epsilon=1.0).scales
    noise = np.arange(-4000, 4001)
    ratio = math.exp(-1 / scales.threshold)
    mass = (1 - ratio) / (1 + ratio) * ratio ** np.abs(noise)

    def log_told(cells, misses, told):
        with np.errstate(divide="ignore"):
            below = np.log(-np.expm1(log_upper_tail(noise - cells[0], scales.query))) * misses
        seen = -abs(told - cells[1]) / scales.query
        return seen + math.log((mass * np.exp(below) * (noise <= told)).sum())

    assert abs(log_told((0, 0), 40, 0) - log_told((2, 2), 40, 0)) / 2 > 1.5  # two steps apart, so half of it per step


# ------------------------------------------------------------------------------------------------ what the code draws


class Script:
    """Stands for the sampler: hands out what it is told to, and writes down what was asked."""

    def __init__(self, values):
        self.values, self.scales = list(values), []

    def __call__(self, scale, *, rng, size=None):
        self.scales.append(scale)
        given = [self.values.pop(0) for _ in range(1 if size is None else size)]
        return given[0] if size is None else np.array(given, dtype=np.int64)


@pytest.fixture
def script(monkeypatch):
    def start(*values):
        made = Script(values)
        monkeypatch.setattr(samplers, "discrete_laplace", made)
        return made

    return start


def test_each_draw_is_made_once_with_its_own_scale(coarse, script):
    mechanism = AboveThreshold(epsilon=1.0, hits=2, value_epsilon=0.5)
    drawn = script(3, 2, 3, 10, -1, 5, 20)
    session = mechanism.start()
    assert session.ask(0.0) == Answer(False, None)  # 0 + 2 < 0 + 3
    assert session.ask(0.0) == Answer(True, 10.0)  # 0 + 3 ≥ 0 + 3; told with the fresh 10, not with the 3
    assert session.ask(0.0, threshold=-3.0) == Answer(False, None)  # −1 < −3 + 3
    assert session.ask(100.0, threshold=101.0) == Answer(True, 120.0)  # the threshold's noise is still 3
    scales = mechanism.scales
    assert drawn.scales == [scales.threshold, scales.query, scales.query, scales.value, scales.query, scales.query, scales.value]
    with pytest.raises(RefusedError, match="hits=2"):
        session.ask(0.0)
    assert drawn.values == []


def test_a_list_is_answered_like_a_session(coarse, script):
    mechanism = AboveThreshold(epsilon=1.0, hits=2, value_epsilon=0.5)
    drawn = script(3, 2, 3, -1, 5, 99, 10, 20)
    assert mechanism.measure([0, 0, -3, 100, 7]).value == Found(4, (1, 3), (10.0, 120.0))
    scales = mechanism.scales
    assert drawn.scales == [scales.threshold, scales.query, scales.value]
    script(3, 2, 2)
    assert AboveThreshold(epsilon=1.0).measure([0, 0]).value == Found(2, (), ())


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("hits", [1, 2, 17, 1000])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("sensitivity", [1.0, 0.3, 7e20])
def test_the_scales_spend_epsilon_and_no_more(epsilon, hits, monotone, sensitivity):
    scales = AboveThreshold(epsilon=epsilon, hits=hits, monotone=monotone, sensitivity=sensitivity).scales
    assert Fraction(scales.step) * scales.moved >= Fraction(sensitivity)
    spent = scales.moved / Fraction(scales.threshold) + (1 if monotone else 2) * hits * scales.moved / Fraction(scales.query)
    assert Fraction(epsilon) * (1 - Fraction(1, 10**9)) < spent <= Fraction(epsilon)
    told = AboveThreshold(epsilon=epsilon, hits=hits, monotone=monotone, sensitivity=sensitivity, value_epsilon=0.7 * epsilon)
    assert {type(s) for s in (told.scales.threshold, told.scales.query, told.scales.value)} == {float}  # what runs is what the event holds
    spent = hits * told.scales.moved / Fraction(told.event.events[1].event.noise_scale)
    assert Fraction(0.7 * epsilon) * (1 - Fraction(1, 10**9)) < spent <= Fraction(0.7 * epsilon)


def test_events():
    assert AboveThreshold(epsilon=0.5).event == PureDp(0.5)
    paid = AboveThreshold(epsilon=0.5, hits=3, value_epsilon=0.3)
    scales = paid.scales
    assert paid.event == Sequence((PureDp(0.5), Repeat(DiscreteLaplace(scales.value, scales.moved), 3)))
    assert 3 * scales.moved / Fraction(scales.value) <= Fraction(0.3)
    assert paid.start(UnsafeSeededRng(1)).event == NonPrivate()
    assert paid.measure([1.0], UnsafeSeededRng(1)).event == NonPrivate()
    assert paid.start(SecureRng()).event == paid.measure([1.0]).event == paid.event


# ------------------------------------------------------------------------------------------------ rules of a session


def test_a_session_cannot_be_branched():
    session = AboveThreshold(epsilon=1.0).start()
    for branch in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(RefusedError, match="copied"):
            branch(session)


def test_a_session_ends_with_the_process_that_started_it(monkeypatch):
    session = AboveThreshold(epsilon=1.0).start()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with session._lock, pytest.raises(RefusedError, match="process"):  # a lock that was held when the process forked stays so
        session.ask(0.0)


def test_threads_cannot_win_more_hits_than_were_paid_for(monkeypatch):
    monkeypatch.setattr(samplers, "discrete_laplace", lambda scale, *, rng: time.sleep(1e-4) or 0)  # lets another thread in
    session = AboveThreshold(epsilon=100.0, hits=25).start()
    wins, refused = [], []

    def ask():
        for _ in range(20):
            try:
                wins.append(session.ask(1e6).above)
            except RefusedError:
                refused.append(1)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sum(wins) == 25
    assert len(wins) + len(refused) == 160
    assert session.hits_left == 0


@pytest.mark.parametrize(
    "change",
    [{"epsilon": v} for v in (math.nan, math.inf, 0, -1, 1e-300, 1001, "1", None, True)]
    + [{"sensitivity": v} for v in (math.nan, math.inf, 0, -1, 5e-324, "1", None, True)]
    + [{"hits": v} for v in (0, -1, 1.0, True, "1", 10**12, None)]
    + [{"monotone": v} for v in (1, 0, "yes", None)]
    + [{"value_epsilon": v} for v in (math.nan, math.inf, 0, -1, 5e-324, "1", True, 1001)]
    + [{"epsilon": 1e-8, "hits": 10**6}],
    ids=repr,
)
def test_bad_arguments_are_refused(change):
    with pytest.raises(InputError):
        AboveThreshold(**({"epsilon": 1.0} | change))


@pytest.mark.parametrize("threshold", [math.nan, math.inf, "1", None, True])
def test_bad_thresholds_are_refused(threshold):
    with pytest.raises(InputError, match="threshold"):
        AboveThreshold(epsilon=1.0).measure([1.0], threshold=threshold)
    session = AboveThreshold(epsilon=1.0).start()
    with pytest.raises(InputError, match="threshold"):
        session.ask(1.0, threshold=threshold)
    assert session.hits_left == 1


def test_scores_of_any_value_are_taken():
    for score in (math.nan, -math.inf, -(10**400), -1.7e308, -(2**63)):
        session = AboveThreshold(epsilon=1.0).start()
        assert session.ask(score).above is False
        assert AboveThreshold(epsilon=1.0).measure([score]).value == Found(1, (), ())
    for score in (math.inf, 10**400, 1.7e308, 2**62):
        assert AboveThreshold(epsilon=1.0, value_epsilon=1.0).start().ask(score).above is True
        assert AboveThreshold(epsilon=1.0).measure(np.array([float(score)]) if abs(score) < 1e308 else [score]).value.above == (0,)
    assert AboveThreshold(epsilon=1.0).measure([]).value == Found(0, (), ())
    assert AboveThreshold(epsilon=1.0).measure(np.zeros(0)).value == Found(0, (), ())
    for bad in (["a"], np.zeros((2, 2)), None, 3.0, np.zeros((0, 2))):
        with pytest.raises(InputError):
            AboveThreshold(epsilon=1.0).measure(bad)


def test_long_lists_stop_in_a_later_block():
    scores = np.full(200_000, -1e9)
    scores[[150_000, 170_000]] = 1e9
    got = AboveThreshold(epsilon=1.0, hits=2).measure(scores).value
    assert got == Found(170_001, (150_000, 170_000), ())


@pytest.mark.parametrize("queries", [1, 20])
def test_the_interval_covers_all_noise_that_is_likely(coarse, script, queries):
    """Noise of the threshold beyond a and of any query beyond b, each with half of 1 − confidence, against the score together."""
    mechanism = AboveThreshold(epsilon=0.1)
    width = mechanism.interval(0.9, queries=queries).half_width
    least = lambda scale, chance: next(t for t in itertools.count() if 2 * math.exp(log_upper_tail(t + 1, scale)) <= chance)  # noqa: E731 - local formula
    a, b = least(mechanism.scales.threshold, 0.05), least(mechanism.scales.query, 0.05 / queries)
    script(a, -b)
    assert mechanism.start().ask(width).above
    script(-a, b)
    assert not mechanism.start().ask(-width).above
    assert width <= 1.2 * (a + b) + 4


def test_the_interval_holds():
    mechanism = AboveThreshold(epsilon=1.0, hits=3)
    width = mechanism.interval(0.9, queries=20).half_width
    scores = np.where(np.arange(20) % 7 == 6, width, -width)
    wrong = sum(mechanism.measure(scores, UnsafeSeededRng(s)).value != Found(20, (6, 13), ()) for s in range(300))
    assert wrong <= 30
