"""Directed rounding of exact rationals: what must not come out too small is rounded up, never to nearest."""

from __future__ import annotations

import math
from fractions import Fraction

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


def down(exact: Fraction | int) -> float:
    """The largest float ≤ ``exact``.

    >>> down(Fraction(1, 3)) < Fraction(1, 3)
    True
    """
    return -up(-exact)


def sqrt_up(exact: Fraction | int) -> float:
    """The smallest float whose square is ≥ ``exact`` ≥ 0.

    >>> sqrt_up(9), Fraction(sqrt_up(2)) ** 2 >= 2
    (3.0, True)
    """
    root = math.sqrt(up(exact))
    while root > 0 and Fraction(math.nextafter(root, 0.0)) ** 2 >= exact:
        root = math.nextafter(root, 0.0)
    while Fraction(root) ** 2 < exact:
        root = math.nextafter(root, math.inf)
    return root
