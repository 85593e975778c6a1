"""Directed rounding of exact rationals: what must not come out too small is rounded up, never to nearest."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Rational
from typing import Any

from dither.core.errors import InputError

_OVERFLOW = "The numbers given are too large together: their product or ratio does not fit a float. Use smaller units."


def up(exact: Fraction | int) -> float:
    """The smallest float ≥ ``exact``.

    >>> up(Fraction(1, 3)) > Fraction(1, 3)
    True
    """
    try:
        near = float(exact)
    except OverflowError:
        raise InputError(_OVERFLOW) from None
    rounded = near if near >= exact else math.nextafter(near, math.inf)
    if math.isinf(rounded):
        raise InputError(_OVERFLOW)
    return rounded


def exactly(number: Any) -> Fraction:  # noqa: ANN401 - whatever passed for a finite real: int, float, Fraction, any numpy scalar
    """The rational that a finite real number is, before any rounding to a float.

    >>> exactly(2**53 + 1), exactly(0.5)
    (Fraction(9007199254740993, 1), Fraction(1, 2))
    """
    if isinstance(number, Rational):
        return Fraction(int(number.numerator), int(number.denominator))
    return Fraction(*number.as_integer_ratio())


def down(exact: Fraction | int) -> float:
    """The largest float ≤ ``exact``.

    >>> down(Fraction(1, 3)) < Fraction(1, 3)
    True
    """
    return 0.0 - up(-exact)


def sqrt_up(exact: Fraction | int) -> float:
    """The smallest float whose square is ≥ ``exact`` ≥ 0.

    >>> sqrt_up(9), Fraction(sqrt_up(2)) ** 2 >= 2
    (3.0, True)
    """
    ratio = Fraction(exact)
    if not ratio:
        return 0.0
    scale = max(0, 80 - (ratio.numerator.bit_length() - ratio.denominator.bit_length()) // 2)
    root = up(
        Fraction(math.isqrt((ratio.numerator << 2 * scale) // ratio.denominator) + 1, 1 << scale)
    )  # too large by 2**-79 of itself at most
    while Fraction(math.nextafter(root, 0.0)) ** 2 >= ratio:
        root = math.nextafter(root, 0.0)
    return root
