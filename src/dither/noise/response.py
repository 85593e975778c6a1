"""Randomised response: each person says something false with a known probability, and the crowd is counted exactly right on average.

The probability of a false answer is a dyadic rational, rounded up from (k − 1)/(e^ε + k − 1) at the 64th digit of the odds, and
the coin that is thrown has exactly that probability: the odds of the truth are at most e^ε, never a rounding above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError
from dither.core.events import Event, RandomizedResponse
from dither.core.rng import Rng
from dither.noise import samplers
from dither.noise._fixed import exp_bounds
from dither.noise._values import Floats, Integers, integers
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import array_rng

VALUES_MAX = 10**12
CELLS_MAX = 10_000_000
_DIGITS = 64

Many: TypeAlias = Sequence[Any] | NDArray[Any]


@lru_cache(maxsize=256)
def false_probability(epsilon: float, values: int) -> Fraction:
    """(k − 1)/(e^ε + k − 1), rounded up so little that the odds keep 64 digits, and never above (k − 1)/k, where answers are uniform.

    >>> float(false_probability(0.0, 4)), round(float(false_probability(1.0, 2)), 6)
    (0.75, 0.268941)
    """
    others = values - 1
    bits = 192 + math.ceil(1.5 * epsilon)  # e^−ε > 2^−1.5ε
    odds = others * Fraction(exp_bounds(Fraction(epsilon), bits)[1], 1 << bits)  # (k − 1)e^−ε, rounded up
    exact = odds / (1 + odds)
    shift = _DIGITS + values.bit_length() + exact.denominator.bit_length() - exact.numerator.bit_length()
    return min(Fraction(-((-exact.numerator << shift) // exact.denominator), 1 << shift), Fraction(others, values))


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyEstimate:
    """Unbiased frequencies of true values, and the standard error that randomisation alone gives each.

    ``standard_error`` squared is itself unbiased, and never negative. It is about the people who answered; to speak of
    a larger population add the variance f(1 − f)/n of having drawn them.
    """

    frequency: float | Floats
    standard_error: float | Floats


def _estimated(told: float | Floats, count: int, truth: Fraction, lie: Fraction) -> FrequencyEstimate:
    """From the shares that were told: f = (share − q)/(p − q), Var f = (f·p(1 − p) + (1 − f)·q(1 − q))/(n(p − q)²)."""
    gap = float(truth - lie)
    if not gap > 0:
        raise InputError("At this epsilon every answer is equally likely whatever the truth: nothing can be estimated. Take a larger one.")
    frequency = (told - float(lie)) / gap
    ours, others = float(truth * (1 - truth)), float(lie * (1 - lie))
    spread = np.maximum(frequency * ours + (1 - frequency) * others, 0.0) / count
    error = np.sqrt(spread) / gap
    if isinstance(told, float):
        return FrequencyEstimate(frequency=float(frequency), standard_error=float(error))
    return FrequencyEstimate(frequency=np.asarray(frequency), standard_error=np.asarray(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomizedResponseMechanism:
    """Binary randomised response: the true bit with probability at most e^ε/(1 + e^ε), else the other.

    Guarantee:
        Each respondent's answer is as the event ``RandomizedResponse(epsilon, 2)`` says, between any two true bits (a unit
        is one respondent, neighbours replace that respondent's bit), whoever sees it. Answers of different respondents are
        independent. A respondent who answers again spends again.
    Edge cases:
        Any integer but 0 counts as True: no error depends on the answer. Floats are refused by type. An empty array stays
        empty. ε = 0 tosses a fair coin, from which nothing can be estimated. The
        same work is done for every true bit.
    Reference:
        Warner 1965; Kairouz, Oh & Viswanath 2016, Theorem 2 (optimal).

    >>> mechanism = RandomizedResponseMechanism(epsilon=1.0)
    >>> mechanism.event, type(mechanism.measure(True).value)
    (RandomizedResponse(epsilon=1.0, values=2), <class 'bool'>)
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.epsilon(self.epsilon))

    @property
    def event(self) -> Event:
        """What one answer of one respondent costs that respondent."""
        return RandomizedResponse(self.epsilon, 2)

    @property
    def false_probability(self) -> Fraction:
        """The exact probability of a false answer."""
        return false_probability(self.epsilon, 2)

    @overload
    def measure(self, value: bool, rng: Rng | None = None) -> Noisy[bool]: ...  # noqa: FBT001 - the private bit is the argument
    @overload
    def measure(self, value: Many, rng: Rng | None = None) -> Noisy[NDArray[np.bool_]]: ...
    def measure(self, value: bool | Many, rng: Rng | None = None) -> Noisy[bool] | Noisy[NDArray[np.bool_]]:  # noqa: FBT001 - as above
        """The answer of one respondent, or of many: an array holds one bit of each."""
        source = array_rng(rng)
        found, single = integers(value)
        false = samplers.bernoulli(self.false_probability, size=found.size, rng=source).reshape(found.shape)
        made = (found != 0) ^ false
        return noisy(bool(made), self.event, source) if single else noisy(made, self.event, source)

    def estimate(self, reports: Many) -> FrequencyEstimate:
        """The unbiased share of True among the respondents, from their answers.

        >>> RandomizedResponseMechanism(epsilon=700.0).estimate([True, True, False, False]).frequency
        0.5
        """
        told = _reports(reports, 2)
        false = self.false_probability
        return _estimated(float(np.mean(told)), told.size, 1 - false, false)

    def expected_standard_error(self, respondents: int, *, frequency: float = 0.5) -> float:
        """The standard error that so many respondents would give, for planning.

        >>> round(RandomizedResponseMechanism(epsilon=1.0).expected_standard_error(10_000), 5)
        0.0096
        """
        return _planned(1 - self.false_probability, self.false_probability, respondents, frequency)


@dataclass(frozen=True, slots=True, kw_only=True)
class KaryResponseMechanism:
    """k-ary randomised response: the true one of ``values`` codes with odds at most e^ε : 1 against each other one.

    Guarantee:
        Each respondent's answer is as the event ``RandomizedResponse(epsilon, values)`` says, between any two true codes (a
        unit is one respondent, neighbours replace that respondent's code), whoever sees it. Answers of different respondents
        are independent. A respondent who answers again spends again.
    Edge cases:
        Codes are 0 … values − 1; others count as the nearest of these: no error depends on the answer. Floats are refused
        by type. An empty array stays empty. ε = 0 answers uniformly, from which nothing can be estimated. The same
        work is done for every true code.
    Reference:
        Kairouz, Bonawitz & Ramage 2016, Section 2; variance: Wang, Blocki, Li & Jha 2017, Equation 4.

    >>> mechanism = KaryResponseMechanism(epsilon=2.0, values=5)
    >>> mechanism.event, 0 <= mechanism.measure(3).value < 5
    (RandomizedResponse(epsilon=2.0, values=5), True)
    """

    epsilon: float
    values: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.epsilon(self.epsilon))
        object.__setattr__(self, "values", checks.count("values", self.values, low=2, high=VALUES_MAX))

    @property
    def event(self) -> Event:
        """What one answer of one respondent costs that respondent."""
        return RandomizedResponse(self.epsilon, self.values)

    @property
    def false_probability(self) -> Fraction:
        """The exact probability of any false answer; each of the others has an equal share of it."""
        return false_probability(self.epsilon, self.values)

    @overload
    def measure(self, value: int, rng: Rng | None = None) -> Noisy[int]: ...
    @overload
    def measure(self, value: Many, rng: Rng | None = None) -> Noisy[Integers]: ...
    def measure(self, value: int | Many, rng: Rng | None = None) -> Noisy[int] | Noisy[Integers]:
        """The answer of one respondent, or of many: an array holds one code of each."""
        source = array_rng(rng)
        found, single = integers(value)
        codes = np.clip(found, 0, self.values - 1).reshape(-1)
        false = samplers.bernoulli(self.false_probability, size=codes.size, rng=source)
        other = 1 + samplers.uniform_below(self.values - 1, size=codes.size, rng=source)  # drawn for all, so that time tells nothing
        made = ((codes + np.where(false, other, 0)) % self.values).reshape(found.shape)
        return noisy(int(made), self.event, source) if single else noisy(made, self.event, source)

    def estimate(self, reports: Many) -> FrequencyEstimate:
        """The unbiased share of each code among the respondents, from their answers; the shares add up to 1, some may be negative.

        >>> KaryResponseMechanism(epsilon=700.0, values=3).estimate([0, 0, 1, 2]).frequency.round(6).tolist()
        [0.5, 0.25, 0.25]
        """
        if self.values > CELLS_MAX:
            raise InputError(f"values={self.values} is too many to count one by one: expected at most {CELLS_MAX:_}.")
        told = _reports(reports, self.values)
        false = self.false_probability
        shares = np.bincount(told, minlength=self.values) / told.size
        return _estimated(shares, told.size, 1 - false, false / (self.values - 1))

    def expected_standard_error(self, respondents: int, *, frequency: float = 0.0) -> float:
        """The standard error that so many respondents would give a code of this frequency, for planning.

        >>> round(KaryResponseMechanism(epsilon=1.0, values=1024).expected_standard_error(1_000_000), 5)
        0.01863
        """
        return _planned(1 - self.false_probability, self.false_probability / (self.values - 1), respondents, frequency)


def _reports(reports: object, values: int) -> Integers:
    """Answers as they were given; they are public by now, so what is wrong with them is said."""
    found, _ = integers(reports)
    if not found.size:
        raise InputError("No reports were given: expected at least one answer.")
    if int(found.min()) < 0 or int(found.max()) >= values:
        raise InputError(f"The reports hold an answer outside of 0 … {values - 1}: expected what measure returned.")
    return found.reshape(-1)


def _planned(truth: Fraction, lie: Fraction, respondents: int, frequency: float) -> float:
    count = checks.count("respondents", respondents)
    share = checks.between("frequency", frequency, 0.0, 1.0)
    if not truth > lie:
        return math.inf
    variance = share * float(truth * (1 - truth)) + (1 - share) * float(lie * (1 - lie))
    return math.sqrt(variance / count) / float(truth - lie)
