"""Every argument check of the house, in one place: what was given → what is allowed → what to do.

Checks are written ``if not x > low`` so that NaN is refused by the same line that refuses a bad sign.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TypeVar

from dither.core.errors import InputError, shown

NOISE_MIN, NOISE_MAX = 1e-3, 1e12
"""Noise multipliers outside this range are refused: below it there is no privacy left to speak of, above it no signal."""
EPSILON_MAX = 1_000.0
"""An ε above this is not a guarantee; ``NonPrivate()`` says so honestly."""
PROBABILITY_MIN = 1e-12
COUNT_MAX = 10**12

_T = TypeVar("_T")


def refuse(name: str, value: object, expected: str, advice: str = "") -> InputError:
    """The error for an argument that is not allowed (return it, so that the caller's ``raise`` shows where)."""
    return InputError(f"{name}={shown(value)} is not allowed: expected {expected}.{f' {advice}' if advice else ''}")


def real(name: str, value: object, expected: str = "a finite number") -> float:
    """A finite float; refuses bools, text, NaN, ±∞, complex, and numbers that overflow a float."""
    if type(value) is float and math.isfinite(value):  # the common case, in a tenth of the time
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise refuse(name, value, expected)
    try:
        number = float(value)
    except (OverflowError, ValueError, TypeError):
        raise refuse(name, value, expected) from None
    if not math.isfinite(number):
        raise refuse(name, value, expected)
    return number


def extended(name: str, value: object, expected: str = "a number, or ∞", *, up: bool = True) -> float:
    """A float, ±∞ allowed, NaN refused; what no float names is rounded up, or down for a lower bound."""
    if type(value) is float and value == value:  # noqa: PLR0124 - not NaN
        return value
    if isinstance(value, float) and math.isinf(value):
        return float(value)
    number = real(name, value, expected)
    if (number < value) if up else (number > value):  # type: ignore[operator]  # exact: a float beside a Fraction or an int
        return math.nextafter(number, math.inf if up else -math.inf)
    return number


def between(name: str, value: object, low: float, high: float, *, advice: str = "") -> float:
    """A finite number in [low, high]."""
    expected = f"a number from {low:g} to {high:g}"
    number = real(name, value, expected)
    if not low <= number <= high:
        raise refuse(name, value, expected, advice)
    return number + 0.0  # -0.0 becomes 0.0, so that equal events have equal digests


def positive(name: str, value: object, *, high: float = sys.float_info.max) -> float:
    """A finite, normal number > 0 (subnormals lose bits, so they are refused)."""
    expected = "a number > 0" if high == sys.float_info.max else f"a number > 0 and at most {high:g}"
    number = real(name, value, expected)
    if not number > 0 or number > high:
        raise refuse(name, value, expected)
    if number < sys.float_info.min:
        raise refuse(name, value, expected, "It is subnormal: too small to compute with.")
    return number


def noise_multiplier(value: object, name: str = "noise_multiplier") -> float:
    """A noise multiplier (or absolute noise scale in units of the sensitivity) that the accountant can price."""
    number = real(name, value, "a number > 0")
    if not number > 0:
        raise refuse(name, value, "a number > 0")
    if not NOISE_MIN <= number <= NOISE_MAX:
        raise refuse(name, value, f"a number from {NOISE_MIN:g} to {NOISE_MAX:g}", "For no noise at all use NonPrivate().")
    return number


def probability(name: str, value: object) -> float:
    """A probability in (0, 1]."""
    expected = "a probability > 0 and at most 1"
    number = real(name, value, expected)
    if not PROBABILITY_MIN <= number <= 1:
        advice = f"The smallest that can be priced is {PROBABILITY_MIN:g}." if 0 < number < PROBABILITY_MIN else ""
        raise refuse(name, value, expected, advice)
    return number


def epsilon(value: object, name: str = "epsilon", *, zero: bool = True) -> float:
    """An ε in [0, 1000], or (0, 1000] where 0 makes no sense."""
    if not zero:
        return positive(name, value, high=EPSILON_MAX)
    return between(name, value, 0.0, EPSILON_MAX)


def delta(value: object, name: str = "delta", *, zero: bool = True) -> float:
    """A δ in [0, 1), or in (0, 1) where 0 cannot be met."""
    expected = "a number from 0 to below 1" if zero else "a number > 0 and below 1"
    number = real(name, value, expected)
    if not 0 <= number < 1 or (number == 0 and not zero):
        raise refuse(name, value, expected, "" if zero or number else "This event has no finite ε at δ = 0.")
    if 0 < number < sys.float_info.min:
        raise refuse(name, value, expected, "It is subnormal: too small to compute with.")
    return number + 0.0


def count(name: str, value: object, *, low: int = 1, high: int = COUNT_MAX) -> int:
    """A whole number in [low, high]; floats are refused, even whole ones."""
    if type(value) is int and low <= value <= high:
        return value
    expected = f"a whole number from {low:,} to {high:,}".replace(",", "_")
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise refuse(name, value, expected)
    try:
        number = int(value)
    except (TypeError, ValueError):  # of a numpy duration, which passes for a whole number
        raise refuse(name, value, expected) from None
    if not low <= number <= high:
        raise refuse(name, number, expected)
    return number


def text(name: str, value: object, *, limit: int = 1_000) -> str:
    """A non-empty text without control characters."""
    if not isinstance(value, str) or not value or len(value) > limit or not value.isprintable():
        raise refuse(name, value, f"a printable text of 1 to {limit} characters")
    return value


def texts(name: str, value: object, expected: str, *, low: int, limit: int) -> tuple[str, ...]:
    """From ``low`` to ``limit`` printable texts in a list or tuple (a single text is refused, not taken letter by letter)."""
    if not isinstance(value, list | tuple) or not low <= len(value) <= limit:
        raise refuse(name, value, expected)
    return tuple(text(name, part, limit=200) for part in value)


def instance(name: str, value: object, kinds: type[_T] | tuple[type[_T], ...], expected: str) -> _T:
    """A value of one of ``kinds``."""
    if not isinstance(value, kinds):
        raise refuse(name, value, expected)
    return value


def sequence(name: str, value: object, expected: str, *, limit: int = 1_000_000) -> Sequence[object]:
    """A non-empty list or tuple of at most ``limit`` members."""
    if not isinstance(value, list | tuple) or not value or len(value) > limit:
        raise refuse(name, value, expected)
    return value
