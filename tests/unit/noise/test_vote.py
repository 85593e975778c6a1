"""The ensemble's noisy vote: what one moved vote can do, and that no answer is given that is not paid for."""

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

from dither.core.errors import InputError, OverBudgetError, RefusedError, UnknownNameError
from dither.core.events import ExponentialMechanism, Gaussian, Laplace, NonPrivate, Repeat, Sequence
from dither.noise import vote as module
from dither.noise.rng import UnsafeSeededRng
from dither.noise.vote import EnsembleVote, Screening


def voting(**more):
    return EnsembleVote(**{"models": 5, "classes": 3, "noise_scale": 2.0, "answers": 4, **more})


SCREEN = Screening(threshold=4.0, noise_std=1.5, queries=6)


@pytest.mark.parametrize(("neighbors", "shards"), [("add_remove", 1), ("replace", 2)])
@pytest.mark.parametrize("noise", module.NOISES)
def test_one_unit_moves_what_the_event_says(noise, neighbors, shards):
    """All changes of one shard, or of two: a unit that is replaced leaves its shard, and the other one may enter another."""
    mechanism = voting(noise=noise, neighbors=neighbors)
    l1 = l2 = spread = single = most = 0.0
    for votes in itertools.combinations_with_replacement((-1, 0, 1, 2), 5):
        for others in itertools.product((0, 1, 2, -1), repeat=shards):
            before, after = mechanism._counts(list(votes)), mechanism._counts([*others, *votes[shards:]])
            moved = after - before
            l1, l2 = max(l1, np.abs(moved).sum()), max(l2, math.sqrt(moved @ moved))
            spread, single = max(spread, moved.max() - moved.min()), max(single, np.abs(moved).max())
            most = max(most, abs(int(after.max()) - int(before.max())))
    assert (l1, l2, spread, single, most) == (2 * shards, math.sqrt(2) * shards, 2 * shards, shards, shards)
    for scale in (0.3, 2.0, 3.0, 7.7):
        event = voting(noise=noise, noise_scale=scale, neighbors=neighbors).answer_event
        exact = Fraction(scale)
        if noise == "gaussian":
            assert isinstance(event, Gaussian)
            least = exact**2 / (2 * shards**2)
            assert least * (1 - Fraction(1, 2**40)) < Fraction(event.noise_multiplier) ** 2 <= least
        elif noise == "laplace":
            assert event == Laplace(scale / l1)
        else:
            assert isinstance(event, ExponentialMechanism)
            assert spread / exact <= Fraction(event.epsilon) < spread / exact * (1 + Fraction(1, 2**40))
    screened = voting(screening=SCREEN, neighbors=neighbors)
    look = Gaussian(1.5 / most)
    assert screened.event == Sequence((Repeat(look, 6), Repeat(screened.answer_event, 4)))
    assert screened.measure([0] * 5).event == Sequence((look, screened.answer_event))


def test_two_shards_of_one_replaced_unit_are_paid_for():
    """An attack: unit u of shard 0 becomes unit v of shard 1, and both models change their vote from label 0 to label 1."""
    laws = []
    for votes in ([0, 0, 0, 1, 1], [1, 1, 0, 1, 1]):
        counts = np.array([votes.count(0), votes.count(1)])
        weights = np.exp(counts / 2.0)
        laws.append(weights / weights.sum())
    loss = max(abs(math.log(p / q)) for p, q in zip(*laws, strict=True))
    one, both = (voting(noise="exponential", classes=2, neighbors=relation).answer_event.epsilon for relation in ("add_remove", "replace"))
    assert one < loss <= both


def test_the_exponential_vote_races_the_true_powers(monkeypatch):
    seen = {}
    monkeypatch.setattr(module, "race", lambda powers, exact, rng: seen.update(powers=powers, exact=exact) or [0])
    voting(noise="exponential", noise_scale=0.3).measure([2, 2, 2, 0, 7], UnsafeSeededRng(1))
    lead = [seen["exact"](i) - seen["exact"](2) for i in range(3)]
    assert lead == [Fraction(-2) / Fraction(0.3), Fraction(-3) / Fraction(0.3), 0]
    assert seen["powers"] == pytest.approx([float(seen["exact"](i)) for i in range(3)])


def test_the_event_counts_every_answer_and_every_question():
    assert voting().event == Repeat(voting().answer_event, 4)
    screened = voting(screening=SCREEN)
    assert screened.event == Sequence((Repeat(Gaussian(1.5), 6), Repeat(screened.answer_event, 4)))


@pytest.mark.parametrize("noise", module.NOISES)
def test_the_event_says_when_noise_can_be_predicted(noise):
    mechanism = voting(noise=noise)
    assert mechanism.measure([0] * 5).event == mechanism.answer_event
    assert mechanism.measure([0] * 5, UnsafeSeededRng(1)).event == NonPrivate()
    assert mechanism.open().event == mechanism.event
    assert mechanism.open(UnsafeSeededRng(1)).event == NonPrivate()
    screened = voting(noise=noise, screening=SCREEN)
    assert screened.measure([0] * 5).event == Sequence((Gaussian(1.5), screened.answer_event))


def test_noise_is_drawn_at_its_scale_for_every_class(monkeypatch):
    seen = []

    def draw(scale, size=None, rng=None):
        seen.append((scale, size))
        return 0 if size is None else np.zeros(size, np.int64)

    for law, noise in [("rounded_gaussian", "gaussian"), ("rounded_laplace", "laplace")]:
        monkeypatch.setattr(module.samplers, law, draw)
        assert voting(noise=noise, screening=SCREEN).measure([1, 1, 1, 1, 0], UnsafeSeededRng(1)).value == 1
        assert seen[-1] == (2 * 2**20, 3)
        if noise == "gaussian":
            assert seen[0] == (Fraction(3, 2) * 2**20, None)


def test_noise_decides_the_winner(monkeypatch):
    monkeypatch.setattr(module.samplers, "rounded_gaussian", lambda scale, size, rng: np.array([0, 3 * 2**20 + 1, -(2**20)]))
    assert voting().measure([0, 0, 0, 2, 2], UnsafeSeededRng(1)).value == 1
    monkeypatch.setattr(module.samplers, "rounded_gaussian", lambda scale, size, rng: np.array([0, 3 * 2**20, -(2**20)]))
    assert {voting().measure([0, 0, 0, 2, 2], UnsafeSeededRng(s)).value for s in range(40)} == {0, 1}


@pytest.mark.parametrize(("noise", "answered"), [(-1, False), (0, True), (1, True)])
def test_screening_compares_the_largest_count_with_the_threshold(monkeypatch, noise, answered):
    monkeypatch.setattr(
        module.samplers, "rounded_gaussian", lambda scale, size=None, rng=None: noise if size is None else np.zeros(size, np.int64)
    )
    mechanism = voting(screening=SCREEN)
    assert mechanism.measure([1, 1, 1, 1, 0], UnsafeSeededRng(1)).value == (1 if answered else None)
    finer = voting(screening=Screening(threshold=4.0 + 2.0**-21, noise_std=1.5, queries=6))
    assert (finer.measure([1, 1, 1, 1, 0], UnsafeSeededRng(1)).value is not None) == (noise >= 1)
    session = mechanism.open(UnsafeSeededRng(1))
    assert session.answer([1, 1, 1, 1, 0]) == (1 if answered else None)
    assert (session.queries_left, session.answers_left) == (5, 3 if answered else 4)


def test_a_session_stops_before_the_answer_that_is_not_paid_for():
    drawn = []

    class Counted(UnsafeSeededRng):
        def uint64(self, count):
            drawn.append(count)
            return super().uint64(count)

    session = voting().open(Counted(1))
    for left in (3, 2, 1, 0):
        assert session.answer([0] * 5) is not None
        assert session.answers_left == left
    before = len(drawn)
    for call in (lambda: session.answer([0] * 5), lambda: session.ask([lambda x: 0] * 5, None)):
        with pytest.raises(OverBudgetError, match="at most 4"):
            call()
    assert len(drawn) == before
    assert session.answers_left == 0


def test_a_session_stops_when_its_questions_are_used_up():
    session = voting(screening=Screening(threshold=1e12, noise_std=1.0, queries=6)).open(UnsafeSeededRng(1))
    assert [session.answer([0] * 5) for _ in range(6)] == [None] * 6
    assert session.answers_left == 4
    with pytest.raises(OverBudgetError, match="questions"):
        session.answer([0] * 5)


def test_an_answer_that_fails_on_the_way_is_spent(monkeypatch):
    session = voting().open(UnsafeSeededRng(1))

    def broken(*_):
        raise MemoryError

    monkeypatch.setattr(module.samplers, "rounded_gaussian", broken)
    with pytest.raises(MemoryError):
        session.answer([0] * 5)
    assert session.answers_left == 3


def test_a_session_is_not_copied_and_ends_in_a_fork(monkeypatch):
    session = voting().open(UnsafeSeededRng(1))
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(RefusedError):
            attempt(session)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for call in (lambda: session.answer([0] * 5), lambda: session.ask([lambda x: 0] * 5, None)):
        with session._lock, pytest.raises(RefusedError, match="another process"):  # a lock that was held at the fork stays so
            call()
    assert session.answers_left == 4


def test_threads_cannot_get_more_answers_than_were_paid_for(monkeypatch):
    monkeypatch.setattr(EnsembleVote, "_winner", lambda self, counts, rng: time.sleep(1e-4) or 0)  # lets another thread in
    monkeypatch.setattr(EnsembleVote, "_agreed", lambda self, counts, rng: time.sleep(1e-4) or int(counts[1]) == 0)
    session = voting(answers=25, screening=Screening(threshold=4.0, noise_std=1.5, queries=60)).open()
    given, refused = [], []

    def ask():
        for i in range(20):
            try:
                given.append(session.answer([i % 2] * 5))
            except OverBudgetError:
                refused.append(1)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert given.count(0) == 25 - session.answers_left
    assert len(given) == 60 - session.queries_left
    assert session.answers_left == 0
    assert len(given) + len(refused) == 160


def test_votes_that_are_no_label_are_not_counted():
    assert voting()._counts([0, 3, -1, 2**62, 2]).tolist() == [1, 0, 1]
    assert voting()._counts(np.array([True, False, True, True, False])).tolist() == [2, 3, 0]


def test_models_that_fail_have_no_vote(monkeypatch):
    counted = []
    monkeypatch.setattr(EnsembleVote, "_winner", lambda self, counts, rng: counted.append(counts.tolist()) or 0)
    models = [lambda x: 1, lambda x: np.int64(2), lambda x: 1 / 0, lambda x: math.nan, lambda x: "cat"]
    voting().open(UnsafeSeededRng(1)).ask(models, "question")
    models = [lambda x: x, lambda x: 1.5, lambda x: math.inf, lambda x: None, lambda x: 1e300]
    voting().open(UnsafeSeededRng(1)).ask(models, 2)
    assert counted == [[0, 1, 1], [0, 0, 1]]


def test_clear_votes_win_and_no_votes_are_a_fair_draw():
    for noise in module.NOISES:
        mechanism = EnsembleVote(models=200, classes=4, noise_scale=5.0, answers=1, noise=noise)
        assert all(mechanism.measure([3] * 190 + [0] * 10, UnsafeSeededRng(s)).value == 3 for s in range(20))
        assert len({mechanism.measure([-1] * 200, UnsafeSeededRng(s)).value for s in range(60)}) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"models": 0},
        {"classes": 1},
        {"classes": 2.0},
        {"noise_scale": 0.0},
        {"noise_scale": math.nan},
        {"noise_scale": 1e10},
        {"answers": 0},
        {"answers": 1.5},
        {"screening": 3},
        {"neighbors": "any"},
        {"screening": Screening(threshold=1.0, noise_std=1.0, queries=3)},
    ],
)
def test_bad_arguments_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        voting(**wrong)


def test_bad_noise_screening_and_votes_are_refused():
    with pytest.raises(UnknownNameError):
        voting(noise="cauchy")
    for wrong in ({"threshold": math.nan}, {"noise_std": 0.0}, {"noise_std": math.inf}, {"queries": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Screening(**{"threshold": 1.0, "noise_std": 1.0, "queries": 3, **wrong})
    session = voting().open(UnsafeSeededRng(1))
    for wrong in ([0] * 4, [[0] * 5], [0.0] * 5, "00000", None, 3):
        with pytest.raises(InputError):
            session.answer(wrong)
    with pytest.raises(InputError, match="models"):
        session.ask([lambda x: 0], None)
    assert session.answers_left == 4
