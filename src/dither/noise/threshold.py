"""Above threshold (the sparse vector technique): any number of questions, a price only for the ``hits`` that say yes.

Scores and thresholds are floored to integers of a public grid and the noise is integer, so every comparison is exact and
the proof is a shift of integers. Four things make the known wrong versions wrong, and each is in the code once: the
threshold is noised, with noise that no answer re-uses; every score is noised, with noise that grows with ``hits``; the
session ends for good after ``hits``; a number is told only with fresh noise, paid for separately.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dither.core import checks
from dither.core.errors import InputError, RefusedError
from dither.core.events import DiscreteLaplace, Event, NonPrivate, PureDp, Repeat, Sequence
from dither.core.plans import Accuracy
from dither.core.rng import Rng
from dither.noise import samplers
from dither.noise._rounding import up
from dither.noise._whole import checked_sensitivity, no_copy, same_process
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import ArrayRng, array_rng
from dither.noise.selection import checked_confidence, checked_epsilon, checked_flag, floors, held_scores, integer_grid

HITS_MAX = 1_000_000
_DIGITS = 40
_BLOCK = 1 << 16


class Answer(NamedTuple):
    """Whether the noisy score was above the noisy threshold, and, where paid for, the score with fresh noise."""

    above: bool
    value: float | None


class Found(NamedTuple):
    """How many questions were answered, which of them were above, and, where paid for, those scores with fresh noise."""

    asked: int
    above: tuple[int, ...]
    values: tuple[float, ...]


class Scales(NamedTuple):
    """The grid's step, how many steps a score may move by, and the noise scales in steps."""

    step: float
    moved: int
    threshold: float
    query: float
    value: float | None


@functools.lru_cache(maxsize=256)
def _scales(epsilon: float, sensitivity: float, hits: int, monotone: bool, value_epsilon: float | None) -> Scales:  # noqa: FBT001 - a cached function of plain facts
    small = epsilon if value_epsilon is None else min(epsilon, value_epsilon)
    step, moved = integer_grid(sensitivity, small / hits)
    crossings = (1 if monotone else 2) * hits
    threshold = up(Fraction(moved * (1 + crossings ** (2 / 3))) / Fraction(epsilon))
    left = Fraction(epsilon) - moved / Fraction(threshold)
    query = up(crossings * moved / left)
    value = None if value_epsilon is None else up(Fraction(moved * hits) / Fraction(value_epsilon))
    return Scales(step, moved, threshold, query, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AboveThreshold:
    """Tells which scores of a stream are above a public threshold, until ``hits`` of them were.

    ``start`` opens a session for adaptive questions; ``measure`` answers a whole list. ``epsilon`` pays for all the
    yes/no answers of a session; ``value_epsilon``, if given, pays for ``hits`` noisy values in all, one per yes.

    Guarantee:
        (ε, 0)-DP for the whole session, adaptive or not, for neighbours whose every score differs by at most
        ``sensitivity`` (and, with ``monotone``, all scores of the session in one direction). Event: ``PureDp(epsilon)``,
        in a ``Sequence`` with ``Repeat(DiscreteLaplace(…), hits)`` where values are paid for. The whole event is
        charged when the session starts, however few yeses there are.

    Edge cases:
        After ``hits`` yeses: refused, for good. A session cannot be copied, pickled or used after a fork: two branches
        would share the threshold's noise. Ties of noisy integers count as above. NaN and −∞ count as the lowest score,
        +∞ as the highest (±2^40·Δ, where all scores are clipped). An empty list: nothing is asked. The time an answer
        takes depends on its noise, not on the score; it tells at most what the answer tells and a little of the noise, so
        answer on a fixed beat where that matters.

    Reference:
        Lyu, Su & Li 2017, Algorithm 7 and Theorems 2 to 5 (privacy, monotone scores, the best split 1 : (2·hits)^(2/3));
        Dwork & Roth 2014, Theorem 3.24 (accuracy).

    >>> AboveThreshold(epsilon=5.0).measure([-50, -40, 80, 90]).value
    Found(asked=3, above=(2,), values=())
    """

    epsilon: float
    sensitivity: float = 1.0
    hits: int = 1
    monotone: bool = False
    value_epsilon: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checked_epsilon(self.epsilon))
        object.__setattr__(self, "sensitivity", checked_sensitivity(self.sensitivity))
        object.__setattr__(self, "hits", checks.count("hits", self.hits, high=HITS_MAX))
        checked_flag("monotone", self.monotone)
        if self.value_epsilon is not None:
            object.__setattr__(self, "value_epsilon", checks.positive("value_epsilon", self.value_epsilon, high=checks.EPSILON_MAX))
        scales = self.scales
        if max(scales.query, scales.threshold, scales.value or 0.0) > checks.NOISE_MAX:
            raise InputError(f"epsilon is too small for hits={self.hits}: expected noise of at most {checks.NOISE_MAX:g} grid steps.")

    @property
    def scales(self) -> Scales:
        """The grid and the noise: moved/threshold + shifts·hits·moved/query ≤ ε exactly, shifts 1 if monotone, else 2."""
        return _scales(self.epsilon, self.sensitivity, self.hits, self.monotone, self.value_epsilon)

    @property
    def event(self) -> Event:
        """What one session costs, used up or not."""
        scales = self.scales
        if scales.value is None:
            return PureDp(self.epsilon)
        return Sequence((PureDp(self.epsilon), Repeat(DiscreteLaplace(scales.value, scales.moved), self.hits)))

    def start(self, rng: Rng | None = None) -> Session:
        """A session; the threshold's noise is drawn here, once.

        >>> session = AboveThreshold(epsilon=5.0).start()
        >>> session.ask(-70.0).above, session.ask(90.0, threshold=20.0).above, session.hits_left
        (False, True, 0)
        """
        return Session(self, array_rng(rng))

    def measure(self, scores: object, rng: Rng | None = None, *, threshold: float = 0.0) -> Noisy[Found]:
        """Ask all ``scores`` in order against one threshold, up to the last hit."""
        source = array_rng(rng)
        found = _answer_all(self.scales, self.hits, _grid_cells(scores, self), _threshold_cell(threshold, self), source)
        return noisy(found, self.event, source)

    def interval(self, confidence: float, *, queries: int) -> Accuracy:
        """No yes among ``queries`` is further below the threshold, and no no further above, than this."""
        asked, sure, scales = checks.count("queries", queries), checked_confidence(confidence), self.scales
        miss = -math.log1p(-sure)
        cells = scales.threshold * (math.log(2) + miss) + scales.query * (math.log(2 * asked) + miss) + 3
        return Accuracy(half_width=scales.step * cells, confidence=sure)


class Session:
    """One run of ``AboveThreshold``: ask until it says yes for the last time. Threads may share it; copies are refused.

    Guarantee:
        As of the ``AboveThreshold`` that started it: ``event`` prices the whole session, adaptively chosen questions
        included.

    Edge cases:
        Asking after the last hit, or in a forked process: refused.

    Reference:
        Lyu, Su & Li 2017, Algorithm 7.
    """

    __slots__ = ("_left", "_lock", "_mechanism", "_noise", "_pid", "_rng", "_scales")
    __reduce_ex__ = no_copy

    def __init__(self, mechanism: AboveThreshold, rng: ArrayRng) -> None:
        self._mechanism, self._rng, self._scales = mechanism, rng, mechanism.scales
        self._left, self._pid, self._lock = mechanism.hits, os.getpid(), threading.Lock()
        self._noise = samplers.discrete_laplace(self._scales.threshold, rng=rng)

    @property
    def event(self) -> Event:
        """What the whole session costs, from its start."""
        return self._mechanism.event if self._rng.private else NonPrivate()

    @property
    def hits_left(self) -> int:
        """How many more yeses there can be."""
        return self._left

    def ask(self, score: float, *, threshold: float = 0.0) -> Answer:
        """Whether ``score`` is above ``threshold``, with noise."""
        same_process("session", self._pid)  # before the lock, which a thread that is not in the child may hold for ever
        cell = int(_grid_cells([score], self._mechanism)[0])
        bar = _threshold_cell(threshold, self._mechanism)
        with self._lock:
            if self._left == 0:
                raise RefusedError(f"All hits={self._mechanism.hits} of the session are used: start a new one, at a new price.")
            above = cell + samplers.discrete_laplace(self._scales.query, rng=self._rng) >= bar + self._noise
            self._left -= above
            value = None
            if above and self._scales.value is not None:
                value = (cell + samplers.discrete_laplace(self._scales.value, rng=self._rng)) * self._scales.step
        return Answer(above, value)


def _grid_cells(scores: object, mechanism: AboveThreshold) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if (isinstance(scores, list | tuple) and not scores) or (isinstance(scores, np.ndarray) and scores.shape == (0,)):
        return np.zeros(0, np.int64)
    return floors(held_scores(scores, mechanism.sensitivity, _DIGITS), mechanism.scales.step)


def _threshold_cell(threshold: object, mechanism: AboveThreshold) -> int:
    limit = math.ldexp(mechanism.sensitivity, _DIGITS)
    held = max(-limit, min(limit, checks.real("threshold", threshold)))
    return math.floor(held / mechanism.scales.step)


def _answer_all(scales: Scales, hits: int, cells: np.ndarray[tuple[int], np.dtype[np.int64]], bar: int, rng: ArrayRng) -> Found:
    """The whole list at once; noise drawn for scores after the last hit is thrown away unseen."""
    bar += samplers.discrete_laplace(scales.threshold, rng=rng)
    above: list[int] = []
    asked = cells.size
    for start in range(0, cells.size, _BLOCK):
        block = cells[start : start + _BLOCK]
        over = np.flatnonzero(block + samplers.discrete_laplace(scales.query, rng=rng, size=block.size) >= bar) + start
        above += over[: hits - len(above)].tolist()
        if len(above) == hits:
            asked = above[-1] + 1
            break
    values: tuple[float, ...] = ()
    if scales.value is not None and above:
        told = cells[above] + samplers.discrete_laplace(scales.value, rng=rng, size=len(above))
        values = tuple((told * scales.step).tolist())
    return Found(asked, tuple(above), values)
