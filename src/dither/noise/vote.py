"""Private prediction at serving time: a noisy vote of models trained on disjoint shards, for as many answers as are paid for.

One unit is in one shard, so it can change one model, so it can move one vote, whatever the models are; a unit that is replaced
by another can move two. The noise of an answer hides that. Proofs: docs/proofs/vote.md.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import OverBudgetError, UnknownNameError
from dither.core.events import Event, Gaussian, Laplace, NonPrivate, Repeat
from dither.core.events import ExponentialMechanism as ExponentialEvent
from dither.core.events import Sequence as SequenceOf
from dither.core.rng import Rng
from dither.core.units import Neighbors, neighbors
from dither.noise import samplers
from dither.noise._isolated import quietly
from dither.noise._lazy import race
from dither.noise._rounding import sqrt_up, up
from dither.noise._values import integers
from dither.noise._whole import no_copy, same_process
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import array_rng

Integers: TypeAlias = NDArray[np.int64]

__all__ = ["NOISES", "EnsembleVote", "Screening", "VoteSession"]

NOISES = ("gaussian", "laplace", "exponential")
NOISE_MIN, NOISE_MAX = 1e-2, 1e9
_PLACES = 20
_ONE = 1 << _PLACES
"""Votes and noise are whole multiples of 2⁻²⁰ of a vote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """Ask first whether the ensemble agrees: answer only if the largest count plus N(0, noise_std²) is at least ``threshold``.

    Each of ``queries`` questions pays for this look, whether it is then answered or not.
    """

    threshold: float
    noise_std: float
    queries: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", checks.between("threshold", self.threshold, -1e12, 1e12))
        object.__setattr__(self, "noise_std", checks.between("noise_std", self.noise_std, NOISE_MIN, NOISE_MAX))
        object.__setattr__(self, "queries", checks.count("queries", self.queries))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleVote:
    """The label that most of ``models`` vote for, noisily: PATE's aggregation, with a budget of ``answers``.

    ``noise`` is ``"gaussian"`` (GNMax), ``"laplace"`` (LNMax) with standard deviation or scale ``noise_scale`` votes, or
    ``"exponential"``: label drawn with probability ∝ exp(count / noise_scale). ``screening`` makes it confident GNMax.

    >>> from dither.noise.rng import UnsafeSeededRng
    >>> vote = EnsembleVote(models=100, classes=3, noise_scale=10.0, answers=50)
    >>> vote.event.count, vote.event.event.noise_multiplier < 10 / 2**0.5
    (50, True)
    >>> vote.measure([2] * 90 + [0] * 10, UnsafeSeededRng(1)).value
    2
    >>> session = vote.open(UnsafeSeededRng(1))
    >>> session.answer([1] * 100), session.answers_left
    (1, 49)

    Guarantee:
        Neighbours: one unit added or removed; with ``neighbors="replace"``, replaced by another, which may belong to another
        shard. Precondition: units are divided among the models by a rule that puts each into one shard, whatever the
        other units are, and each model depends on its own shard alone; the question does not depend on the shards (it may
        depend on earlier answers). Event, with v = 1 vote that moves, or 2 under ``replace``: per answer
        ``Gaussian(noise_scale/v√2)``, ``Laplace(noise_scale/2v)`` or ``ExponentialMechanism(2v/noise_scale)``, ``answers``
        times; with screening also ``Gaussian(noise_std/v)``, ``queries`` times. Charge ``event`` once, before ``open``.

    Edge cases:
        A vote that is no label (out of range, a model that raises or says NaN): not counted, which moves one vote like
        any other change of a model. No valid votes, ties: decided by the noise; equal noisy counts by a fair draw. A
        wrong number of votes, or votes of a type that holds fractions, which are public: refused. A copy or a fork:
        refused. The answer or question after the last one paid for: refused before any noise is drawn. An exception on
        the way out: that answer is spent. Threads may share a session. How long the models take is not hidden: answer on
        a fixed beat, or run them where nobody can time them.

    Reference:
        Papernot et al. (2017), Section 3.1 (LNMax); Papernot et al. (2018), "Scalable private learning with PATE",
        Algorithm 1 (confident GNMax), Proposition 8; McSherry & Talwar (2007), Theorem 6; Vadhan & Zhang (2023),
        Theorem 1.3 (screening and answering interleaved).
    """

    models: int
    classes: int
    noise_scale: float
    answers: int
    noise: str = "gaussian"
    screening: Screening | None = None
    neighbors: Neighbors = Neighbors.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbors", neighbors(self.neighbors))
        object.__setattr__(self, "models", checks.count("models", self.models, high=1 << 30))
        object.__setattr__(self, "classes", checks.count("classes", self.classes, low=2, high=1 << 24))
        object.__setattr__(self, "noise_scale", checks.between("noise_scale", self.noise_scale, NOISE_MIN, NOISE_MAX))
        object.__setattr__(self, "answers", checks.count("answers", self.answers))
        if self.noise not in NOISES:
            raise UnknownNameError("noise", self.noise, NOISES)
        if self.screening is not None:
            checks.instance("screening", self.screening, Screening, "None or a Screening")
            if self.screening.queries < self.answers:
                raise checks.refuse("screening.queries", self.screening.queries, f"at least answers={self.answers}")

    @property
    def votes_moved(self) -> int:
        """How many votes one unit can move: a unit that is replaced leaves one shard, and the other one may enter another."""
        return 2 if self.neighbors is Neighbors.REPLACE else 1

    @property
    def answer_event(self) -> Event:
        """The price of one answer."""
        scale = self.noise_scale / self.votes_moved  # by 1 or 2: exact
        if self.noise == "gaussian":  # one vote that moves is (−1, +1): L2 norm √2, L1 norm 2, and 1 in each count
            return Gaussian(math.nextafter(scale / sqrt_up(2), 0.0))
        if self.noise == "laplace":
            return Laplace(scale / 2)
        return ExponentialEvent(up(2 / Fraction(scale)))

    def _look_event(self, screening: Screening) -> Event:
        """The price of one screening: each vote that moves can move the largest count by one."""
        return Gaussian(screening.noise_std / self.votes_moved)

    @property
    def event(self) -> Event:
        """The price of the whole session: all answers, and all screened questions."""
        answered = Repeat(self.answer_event, self.answers)
        if self.screening is None:
            return answered
        return SequenceOf((Repeat(self._look_event(self.screening), self.screening.queries), answered))

    def open(self, rng: Rng | None = None) -> VoteSession:
        """A session of ``answers`` answers. Charge ``event`` first."""
        return VoteSession(self, rng)

    def measure(self, votes: object, rng: Rng | None = None) -> Noisy[int | None]:
        """One single answer, priced as one: an EnsembleVote of one answer (and one question) on these votes."""
        source = array_rng(rng)
        counts = self._counts(votes)
        event: Event = self.answer_event
        if self.screening is not None:
            event = SequenceOf((self._look_event(self.screening), event))
            if not self._agreed(counts, source):
                return noisy(None, event, source)
        return noisy(self._winner(counts, source), event, source)

    def _counts(self, votes: object) -> Integers:
        """How many valid votes each class has, from one label for each model."""
        given, _ = integers(votes)
        if given.shape != (self.models,):
            raise checks.refuse("votes", f"an array of shape {given.shape}", f"one label for each of models={self.models}")
        return np.bincount(given[(given >= 0) & (given < self.classes)], minlength=self.classes).astype(np.int64)

    def _agreed(self, counts: Integers, rng: Rng) -> bool:
        """Whether the largest count, with noise, reaches the threshold."""
        assert self.screening is not None
        noise = samplers.rounded_gaussian(Fraction(self.screening.noise_std) * _ONE, rng=rng)
        return int(counts.max()) * _ONE + noise >= math.ceil(Fraction(self.screening.threshold) * _ONE)

    def _winner(self, counts: Integers, rng: Rng) -> int:
        """The label with the most votes after noise."""
        if self.noise == "exponential":
            scale, behind = Fraction(self.noise_scale), counts - counts.max()
            return race(behind / self.noise_scale, exact=lambda i: int(behind[i]) / scale, rng=rng)[0]
        draw = samplers.rounded_gaussian if self.noise == "gaussian" else samplers.rounded_laplace
        noisy_counts = counts * _ONE + draw(Fraction(self.noise_scale) * _ONE, counts.size, rng)
        best = np.flatnonzero(noisy_counts == noisy_counts.max())
        return int(best[rng.below(best.size)])


class VoteSession:
    """Answers from one ensemble until what is paid for is used up. Count first, then noise: nothing can be asked twice.

    >>> from dither.noise.rng import UnsafeSeededRng
    >>> vote = EnsembleVote(models=3, classes=2, noise_scale=1.0, answers=1)
    >>> session = vote.open(UnsafeSeededRng(1))
    >>> session.ask([lambda x: x > 1, lambda x: x > 2, lambda x: x / 0], 5) in (0, 1)
    True
    >>> session.answer([0, 0, 0])
    Traceback (most recent call last):
    dither.core.errors.OverBudgetError: All 1 answers of this session are given: expected at most 1. Open a new one, and pay for it.
    """

    def __init__(self, vote: EnsembleVote, rng: Rng | None = None) -> None:
        self.vote = vote
        self.event: Event = vote.event if array_rng(rng).private else NonPrivate()
        self.answers_left = vote.answers
        self.queries_left = None if vote.screening is None else vote.screening.queries
        self._rng = rng
        self._lock = threading.Lock()
        self._process = os.getpid()

    __reduce_ex__ = no_copy

    def answer(self, votes: object) -> int | None:
        """The label for one question, from one vote for each model; None if screening says that they do not agree."""
        same_process("session", self._process)  # before the lock, which a thread that is not in the child may hold for ever
        source = array_rng(self._rng)
        counts = self.vote._counts(votes)  # noqa: SLF001 - the session is the other half of its mechanism
        with self._lock:
            self._may_ask()
            if self.queries_left is not None:
                self.queries_left -= 1
                if not self.vote._agreed(counts, source):  # noqa: SLF001 - as above
                    return None
            self.answers_left -= 1
            return self.vote._winner(counts, source)  # noqa: SLF001 - as above

    def ask(self, models: Sequence[Callable[[Any], object]], question: object) -> int | None:
        """``answer`` of the labels that the models give to ``question``; one that raises or gives no label has no vote."""
        if len(models) != self.vote.models:
            raise checks.refuse("models", f"{len(models)} of them", f"models={self.vote.models}")
        same_process("session", self._process)
        with self._lock:
            self._may_ask()
        return self.answer(np.array([_label(model, question) for model in models], np.int64))

    def _may_ask(self) -> None:
        if self.answers_left < 1:
            most = self.vote.answers
            raise OverBudgetError(f"All {most} answers of this session are given: expected at most {most}. Open a new one, and pay for it.")
        if self.queries_left is not None and self.queries_left < 1:
            raise OverBudgetError("All screened questions of this session are asked. Open a new one, and pay for it.")


def _label(model: Callable[[Any], object], question: object) -> int:
    """The label as a whole number, −1 for none."""
    made = quietly(lambda: float(model(question)))  # type: ignore[arg-type]  # what is no number raises, and has no vote
    return int(made) if made is not None and math.isfinite(made) and made == int(made) and abs(made) < 2**53 else -1
