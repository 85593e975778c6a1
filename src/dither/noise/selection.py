"""Choosing among public candidates by private scores: exponential mechanism, permute-and-flip, noisy max, top k.

A candidate's score may move by at most ``sensitivity`` between neighbouring datasets; ``monotone`` says that all scores
move the same way (counts under add/remove do), which saves a factor 2. Every law here is exact, see ``_lazy``; the work
done depends on the number of candidates, not on their scores, but for the rare draws that floats leave open.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError
from dither.core.events import Event, ExponentialMechanism, PureDp, Repeat
from dither.core.plans import Accuracy
from dither.core.rng import Rng
from dither.noise import samplers
from dither.noise._lazy import Floats, flips, race
from dither.noise._rounding import down, up
from dither.noise._whole import checked_sensitivity
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import array_rng

EPSILON_MIN = 1e-9
DIGITS = 53
"""Scores are clipped at ±2^53 sensitivities: beyond it a float has no digit left in which one unit could be seen."""
_GRID_DIGITS = 20
_LAPLACE_DIGITS = 40
_INTEGER_MAX = 2**53

NoiseLaw: TypeAlias = Literal["gumbel", "exponential", "laplace"]
_LAWS = ("gumbel", "exponential", "laplace")


# ------------------------------------------------------------------------------------------------ shared by all


def checked_epsilon(value: object) -> float:
    """An ε from 1e-9 to 1000."""
    return checks.between("epsilon", value, EPSILON_MIN, checks.EPSILON_MAX)


def checked_flag(name: str, value: object) -> bool:
    """True or False, and nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise checks.refuse(name, value, "True or False")
    return value


def checked_confidence(value: object) -> float:
    """A confidence in (0, 1)."""
    number = checks.real("confidence", value, "a number > 0 and < 1, such as 0.95")
    if not 0 < number < 1:
        raise checks.refuse("confidence", value, "a number > 0 and < 1, such as 0.95")
    return number


def held_scores(value: object, sensitivity: float, digits: int = DIGITS) -> Floats:
    """Private scores as floats within ±2^digits sensitivities; NaN and −∞ count as the lowest, +∞ as the highest.

    Only type, shape and emptiness are refused: they are public. Each score is held by itself, by its own type and value, and
    no two of one type move further apart, so no sensitivity grows. (Whole numbers are held within ±2^53, too, where floats
    tell them apart: a candidate's score must not be an int on one dataset and a float on another.)

    >>> held_scores([1, 2.5, float("nan")], sensitivity=1.0)[:2]
    array([1. , 2.5])
    """
    if isinstance(value, list | tuple):
        array = np.fromiter((_as_float(v) for v in value), np.float64, len(value))
    elif type(value) is np.ndarray and value.ndim == 1 and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        if value.dtype.kind in "iu":  # beyond 2^53 a conversion would round, and move scores apart
            low = 0 if value.dtype.kind == "u" else -_INTEGER_MAX
            value = np.clip(value, low, _INTEGER_MAX) if value.dtype.itemsize == 8 else value
        with np.errstate(invalid="ignore"):  # a signalling NaN would be told of
            array = value.astype(np.float64)
    else:
        given = f"{type(value).__name__}" + (f" of {value.dtype}, {value.ndim}-dimensional" if isinstance(value, np.ndarray) else "")
        raise InputError(
            f"Scores given as {given} are not allowed: expected a list or a 1-dimensional array of int or float, one per candidate."
        )
    if not array.size:
        raise InputError("No scores were given: expected one per candidate, and at least one candidate.")
    limit = math.ldexp(sensitivity, digits)
    np.copyto(array, -limit, where=np.isnan(array))  # not fmax: it lets signalling NaN through
    np.maximum(array, -limit, out=array)
    return np.minimum(array, limit, out=array)


def _as_float(value: object) -> float:
    if isinstance(value, float | np.floating) and not isinstance(value, np.longdouble):
        return float(value)
    if isinstance(value, int | np.integer | np.bool_):
        return float(max(-_INTEGER_MAX, min(_INTEGER_MAX, int(value))))
    raise InputError(f"A score of type {type(value).__name__} is not allowed: expected int or float, one number per candidate.")


@functools.lru_cache(maxsize=256)
def _rate(epsilon: float, sensitivity: float, *, monotone: bool) -> Fraction:
    """What a score is multiplied by in the exponent: ε/Δ where all scores move one way, else ε/2Δ. Exactly."""
    return Fraction(epsilon) / (Fraction(sensitivity) * (1 if monotone else 2))


def _gumbel_race(scores: Floats, rate: Fraction, rng: Rng, count: int = 1) -> list[int]:
    """Indices of the ``count`` largest of rate·score + Gumbel noise, largest first."""
    centre = float(scores.max() if count == 1 else np.partition(scores, scores.size - count)[scores.size - count])

    def exact(i: int) -> Fraction:
        return rate * (Fraction(float(scores[i])) - Fraction(centre))

    def centred(some: NDArray[np.intp]) -> Floats:
        return np.asarray((scores[some] - scores[some].max()) * float(rate))

    with np.errstate(under="ignore"):
        return race((scores - centre) * float(rate), exact=exact, rng=rng, count=count, centred=centred)


def _first_flip(scores: Floats, rate: Fraction, rng: Rng) -> int:
    """One candidate, uniform among those whose coin of probability exp(rate·(score − best)) shows heads."""
    best = float(scores.max())
    with np.errstate(under="ignore"):
        coins = flips((best - scores) * float(rate), lambda i: rate * (Fraction(best) - Fraction(float(scores[i]))), rng)
    heads = np.flatnonzero(coins)
    return int(heads[rng.below(int(heads.size))])


def _union_bound(rate: Fraction, others: int, draws: int, confidence: float) -> float:
    """The t at which draws·others·exp(−rate·t) = 1 − confidence."""
    return max(0.0, (math.log(max(others, 1)) + math.log(draws) - math.log1p(-confidence)) / float(rate)) if others else 0.0


# ------------------------------------------------------------------------------------------------ mechanisms


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialSelection:
    """One candidate, drawn with probability ∝ exp(ε·score/2Δ), or exp(ε·score/Δ) for monotone scores.

    Guarantee:
        ε-bounded range, hence (ε, 0)-DP, for neighbours whose scores, candidate by candidate, differ by at most
        ``sensitivity`` (and, with ``monotone``, all in one direction). Event: ``ExponentialMechanism(epsilon)``.
        Candidates and their number are public. The scores handed in are the floats whose sensitivity is meant.

    Edge cases:
        One candidate: it is returned. Ties: equally likely. NaN and −∞ count as the lowest score there is, +∞ as the
        highest (±2^53·Δ, where all scores are clipped). No candidates, or scores that are not one-dimensional numbers:
        refused. Scores of any size: the law stays exact and the time the same.

    Reference:
        McSherry & Talwar 2007, Theorem 6; bounded range: Dong, Durfee & Rogers 2020, Lemma 3.2 (Durfee & Rogers 2019);
        the race of exponential variables (Gumbel-max): Yellott 1977; utility: Dwork & Roth 2014, Corollary 3.12.

    >>> ExponentialSelection(epsilon=2.0).measure([0, 1, 500]).value
    2
    """

    epsilon: float
    sensitivity: float = 1.0
    monotone: bool = False

    def __post_init__(self) -> None:
        _check(self)

    @property
    def event(self) -> Event:
        """What one selection costs."""
        return ExponentialMechanism(self.epsilon)

    def measure(self, scores: object, rng: Rng | None = None) -> Noisy[int]:
        """The index of the chosen candidate."""
        source = array_rng(rng)
        held = held_scores(scores, self.sensitivity)
        return noisy(_gumbel_race(held, self._rate, source)[0], self.event, source)

    def interval(self, confidence: float, *, candidates: int) -> Accuracy:
        """How far below the best score the chosen one may lie."""
        others = checks.count("candidates", candidates) - 1
        sure = checked_confidence(confidence)
        return Accuracy(half_width=_union_bound(self._rate, others, 1, sure), confidence=sure)

    @property
    def _rate(self) -> Fraction:
        return _rate(self.epsilon, self.sensitivity, monotone=self.monotone)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermuteAndFlip:
    """One candidate: in random order, each is taken with probability exp(ε·(score − best)/2Δ) until one is.

    Never worse than the exponential mechanism at the same ε, in distribution of the score and for every input; but it is
    ε-DP only, not ε-bounded-range, so many of them compose worse.

    Guarantee:
        (ε, 0)-DP, neighbours and scores as for ``ExponentialSelection``. Event: ``PureDp(epsilon)``.

    Edge cases:
        As for ``ExponentialSelection``: ties equally likely, NaN and −∞ lowest, +∞ highest, empty refused. All coins
        are flipped at once and one head is chosen: the time does not depend on which candidate wins.

    Reference:
        McKenna & Sheldon 2020, Theorem 1 (privacy), Theorem 2 (dominance); monotone scores: the same proof with Δ for
        2Δ; equal to noisy max with exponential noise: Ding, Kifer et al. 2021.

    >>> PermuteAndFlip(epsilon=2.0).measure([0, 1, 500]).event
    PureDp(epsilon=2.0)
    """

    epsilon: float
    sensitivity: float = 1.0
    monotone: bool = False

    def __post_init__(self) -> None:
        _check(self)

    @property
    def event(self) -> Event:
        """What one selection costs."""
        return PureDp(self.epsilon)

    def measure(self, scores: object, rng: Rng | None = None) -> Noisy[int]:
        """The index of the chosen candidate."""
        source = array_rng(rng)
        held = held_scores(scores, self.sensitivity)
        return noisy(_first_flip(held, self._rate, source), self.event, source)

    def interval(self, confidence: float, *, candidates: int) -> Accuracy:
        """How far below the best score the chosen one may lie."""
        others = checks.count("candidates", candidates) - 1
        sure = checked_confidence(confidence)
        return Accuracy(half_width=_union_bound(self._rate, others, 1, sure), confidence=sure)

    @property
    def _rate(self) -> Fraction:
        return _rate(self.epsilon, self.sensitivity, monotone=self.monotone)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportNoisyMax:
    """The index of the largest score after noise was added to each; the noisy score itself is not told.

    ``noise`` is "gumbel" (the law of ``ExponentialSelection``), "exponential" (the law of ``PermuteAndFlip``) or
    "laplace" (two-sided, on an integer grid of 2^-20 sensitivities; never better than "exponential").

    Guarantee:
        Neighbours and scores as for ``ExponentialSelection``. Event: ``ExponentialMechanism(epsilon)`` for Gumbel noise,
        ``PureDp(epsilon)`` for the others. The scale is 2Δ/ε, and Δ/ε for monotone scores.

    Edge cases:
        NaN and −∞ lowest, +∞ highest; clipped at ±2^53·Δ ("laplace": ±2^40·Δ). Ties after Laplace noise (probability
        about 2^-20 per pair) go to the lower index: a fixed order, so the proof stands. Empty: refused.

    Reference:
        Dwork & Roth 2014, Claim 3.9 (Laplace, monotone counts); Durfee & Rogers 2019, Lemma 4.2 (Gumbel); Ding, Kifer
        et al. 2021 (exponential).

    >>> ReportNoisyMax(epsilon=2.0, noise="laplace").measure([0, 1, 500]).value
    2
    """

    epsilon: float
    sensitivity: float = 1.0
    monotone: bool = False
    noise: NoiseLaw = "gumbel"

    def __post_init__(self) -> None:
        _check(self)
        if self.noise not in _LAWS:
            raise UnknownNameError("noise", self.noise, _LAWS)

    @property
    def event(self) -> Event:
        """What one selection costs."""
        return ExponentialMechanism(self.epsilon) if self.noise == "gumbel" else PureDp(self.epsilon)

    def measure(self, scores: object, rng: Rng | None = None) -> Noisy[int]:
        """The index of the chosen candidate."""
        source = array_rng(rng)
        held = held_scores(scores, self.sensitivity, _LAPLACE_DIGITS if self.noise == "laplace" else DIGITS)
        rate = _rate(self.epsilon, self.sensitivity, monotone=self.monotone)
        if self.noise == "gumbel":
            chosen = _gumbel_race(held, rate, source)[0]
        elif self.noise == "exponential":
            chosen = _first_flip(held, rate, source)
        else:
            step, _, scale = self.grid
            cells = floors(held, step)
            chosen = int(np.argmax(cells + samplers.discrete_laplace(scale, rng=source, size=cells.size)))
        return noisy(chosen, self.event, source)

    @property
    def grid(self) -> tuple[float, int, float]:
        """For Laplace noise: the step of the grid, how many steps a score may move by, and the noise scale in steps."""
        step, moved = integer_grid(self.sensitivity, self.epsilon)
        return step, moved, up(Fraction(moved) * (1 if self.monotone else 2) / Fraction(self.epsilon))

    def interval(self, confidence: float, *, candidates: int) -> Accuracy:
        """How far below the best score the chosen one may lie."""
        others = checks.count("candidates", candidates) - 1
        sure = checked_confidence(confidence)
        if self.noise != "laplace" or not others:
            width = _union_bound(_rate(self.epsilon, self.sensitivity, monotone=self.monotone), others, 1, sure)
        else:  # the best and the chosen are both within scale·ln(candidates/(1 − confidence)) + 1 of the truth, then floored
            step, _, scale = self.grid
            width = step * (2 * scale * (math.log(candidates) - math.log1p(-sure)) + 3)
        return Accuracy(half_width=width, confidence=sure)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK:
    """The ``count`` candidates with the largest scores after Gumbel noise, best first: exponential mechanisms, peeled.

    One round of noise in one pass has exactly the law of ``count`` exponential mechanisms run one after another, each on
    the candidates that are left. ``epsilon`` is the total by basic composition; the event lets a better bound be used.

    Guarantee:
        Adaptive composition of ``count`` mechanisms of (ε/count)-bounded range; neighbours and scores as for
        ``ExponentialSelection``. Event: ``Repeat(ExponentialMechanism(ε/count), count)``. The order is released too.

    Edge cases:
        ``count`` above the number of candidates: refused (both are public). NaN and −∞ lowest, +∞ highest. Ties equally
        likely. Scores of any spread: the time stays the same, up to a few passes more over the leaders.

    Reference:
        Durfee & Rogers 2019, Lemma 4.2 and Corollary 4.1 (one-shot Gumbel = peeling); Dong, Durfee & Rogers 2020.

    >>> TopK(epsilon=2.0, count=2).measure([0, 900, 500]).value
    (1, 2)
    """

    epsilon: float
    count: int
    sensitivity: float = 1.0
    monotone: bool = False

    def __post_init__(self) -> None:
        _check(self)
        object.__setattr__(self, "count", checks.count("count", self.count, high=10**9))
        if self.epsilon_each < EPSILON_MIN:
            raise checks.refuse("epsilon", self.epsilon, f"at least {EPSILON_MIN:g} × count={self.count}")

    @property
    def epsilon_each(self) -> float:
        """ε of one of the peeled mechanisms: epsilon/count, rounded down."""
        return down(Fraction(self.epsilon) / self.count)

    @property
    def event(self) -> Event:
        """What the whole selection costs."""
        one = ExponentialMechanism(self.epsilon_each)
        return one if self.count == 1 else Repeat(one, self.count)

    def measure(self, scores: object, rng: Rng | None = None) -> Noisy[tuple[int, ...]]:
        """The indices of the chosen candidates, best noisy score first."""
        source = array_rng(rng)
        held = held_scores(scores, self.sensitivity)
        if held.size < self.count:
            raise InputError(f"count={self.count} is not allowed: expected at most the number of candidates.")
        return noisy(tuple(_gumbel_race(held, self._rate, source, self.count)), self.event, source)

    def interval(self, confidence: float, *, candidates: int) -> Accuracy:
        """How far below the ``count``-th best score the worst of the chosen may lie."""
        others = checks.count("candidates", candidates, low=self.count) - 1
        sure = checked_confidence(confidence)
        return Accuracy(half_width=_union_bound(self._rate, others, self.count, sure), confidence=sure)

    @property
    def _rate(self) -> Fraction:
        return _rate(self.epsilon_each, self.sensitivity, monotone=self.monotone)


def integer_grid(sensitivity: float, epsilon: float) -> tuple[float, int]:
    """A power-of-two step for scores, fine beside the noise, and how many steps a score's floor may move by.

    >>> integer_grid(1.0, 1.0)
    (9.5367431640625e-07, 1048576)
    """
    digits = max(0, min(_GRID_DIGITS, _GRID_DIGITS + math.frexp(epsilon)[1]))
    step = math.ldexp(1.0, math.frexp(sensitivity)[1] - 1 - digits)
    return step, math.ceil(Fraction(sensitivity) / Fraction(step))


def floors(scores: Floats, step: float) -> NDArray[np.int64]:
    """Scores as whole steps, rounded down: exactly, as a step is a power of two."""
    with np.errstate(under="ignore"):
        return np.floor(scores / step).astype(np.int64)


def _check(mechanism: ExponentialSelection | PermuteAndFlip | ReportNoisyMax | TopK) -> None:
    object.__setattr__(mechanism, "epsilon", checked_epsilon(mechanism.epsilon))
    object.__setattr__(mechanism, "sensitivity", checked_sensitivity(mechanism.sensitivity))
    checked_flag("monotone", mechanism.monotone)
