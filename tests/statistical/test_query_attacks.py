"""Averaging and reconstruction against a session of SQL: whoever asks until the ledger refuses learns no more than ε allows.

A guess at one bit that a table of ε-differential privacy hides is right with probability e^ε / (1 + e^ε) at most, whatever the other bits
are, so the number of right guesses is at most binomial. Each test says too much is known where that many right guesses come about by
chance in less than one of a million runs. The same attack on a ledger that refuses nothing succeeds, so the attacks are real ones.
"""

import math
from random import Random

import numpy as np
import pytest
from scipy.stats import binom

from dither.core.errors import OverBudgetError
from dither.core.units import PrivacyUnit
from dither.gate import ask
from dither.gate.engines import Column, Facts, Request
from dither.gate.path import execute
from dither.ledger.book import Ledger

FALSE_ALARM = 1e-6
NAME = "people"


def facts(folder, users):
    """A table with one row for each of these users."""
    (folder / "people.csv").write_text("\n".join(["user_id", *map(str, users), ""]))
    unit = PrivacyUnit(dataset=NAME, key="user_id")
    return Facts(name=NAME, source="people.csv", folder=folder, unit=unit, columns=(Column(name="user_id", type="int"),))


def session(made, texts, *, limit, each):
    """What is answered until the ledger refuses; all of it, if it never does."""
    found = []
    with Ledger.open("sqlite://") as book:
        book.add_dataset(made.terms)
        book.grant("attacker", NAME, epsilon=limit)
        for n, sql in enumerate(texts):
            options = {"sql": sql, "epsilon": each, "rows_per_unit": 1}
            asked = Request.of("sql", dataset=NAME, account="attacker", purpose="attack", options=options, id=f"q{n}")
            try:
                found.append(ask.SqlRelease.of(execute(book, asked, made)).table["n"][0])
            except OverBudgetError:
                break
    return found


def most_right(count, epsilon):
    """More right guesses than this are too many."""
    chance = math.exp(epsilon) / (1 + math.exp(epsilon))
    return int(binom.isf(FALSE_ALARM, count, chance))


@pytest.mark.parametrize(("limit", "stopped"), [(0.5, True), (50.0, False)])
def test_averaging_the_same_question(limit, stopped, tmp_path):
    """Is user 7 there? The same count again and again, its mean rounded."""
    random, games, right = Random(5), 90 if stopped else 30, 0
    for _ in range(games):
        there = random.random() < 0.5
        made = facts(tmp_path, [*range(100, 140), *([7] if there else [])])
        told = session(made, ["SELECT COUNT(*) AS n FROM people"] * 12, limit=limit, each=0.1 if stopped else 4.0)
        assert len(told) == (5 if stopped else 12)
        right += (float(np.mean(told)) > 40.5) == there
    assert (right <= most_right(games, 0.5)) == stopped


@pytest.mark.parametrize(("limit", "stopped"), [(1.0, True), (400.0, False)])
def test_reconstruction_from_random_subsets(limit, stopped, tmp_path):
    """Dinur and Nissim 2003: counts of random halves of the users, solved by least squares for who is there."""
    random, games, users, right = Random(6), 12 if stopped else 4, 16, 0
    for _ in range(games):
        bits = [random.random() < 0.5 for _ in range(users)]
        made = facts(tmp_path, [100, *(n for n in range(users) if bits[n])])
        halves = [sorted(random.sample(range(users), users // 2)) for _ in range(40)]
        texts = [f"SELECT COUNT(*) AS n FROM people WHERE user_id IN ({', '.join(map(str, half))})" for half in halves]
        told = session(made, texts, limit=limit, each=0.1 if stopped else 8.0)
        assert len(told) == (10 if stopped else 40)
        asked = np.array([[n in half for n in range(users)] for half in halves[: len(told)]], dtype=float)
        guess = np.linalg.lstsq(asked, np.array(told, dtype=float), rcond=None)[0] > 0.5
        right += int(np.sum(guess == np.array(bits)))
    assert (right <= most_right(games * users, 1.0)) == stopped
