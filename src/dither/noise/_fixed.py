"""exp and Gaussian weights in fixed point on Python's integers, each with a proved error bound (docs/proofs/samplers.md)."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

WEIGHT_BITS = 320
"""Weights are integers w with |w - 2**320 f| < 2**WEIGHT_ERROR_BITS."""
WEIGHT_ERROR_BITS = 36
BITS_MAX = 1 << 16
_GUARD = 64
_HALVINGS = 8


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers low ≤ 2**bits · exp(-x) ≤ high with high - low ≤ 2, for any rational x ≥ 0.

    >>> low, high = exp_bounds(Fraction(1), 53)
    >>> low <= 3313563428353947 <= high <= low + 2  # floor(2**53 / e)
    True
    """
    if x < 0 or not 0 < bits <= BITS_MAX:
        raise AssertionError(f"exp_bounds: x={x} or bits={bits} out of range")
    if x == 0:
        return 1 << bits, 1 << bits
    if x >= bits:
        return 0, 1
    work = bits + _GUARD
    ln2 = _ln2(work)
    scaled = (x.numerator << work) // x.denominator
    turns = scaled // ln2 + 1
    y = (turns * ln2 - scaled) >> _HALVINGS  # exp(-x) = 2**-turns · exp(y)**(2**halvings), y > 0
    total = term = 1 << work
    k = 0
    while term:
        k += 1
        term = (term * y >> work) // k
        total += term
    for _ in range(_HALVINGS):
        total = total * total >> work
    shift = _GUARD + turns
    return (total - (1 << 40)) >> shift, ((total + (1 << 40)) >> shift) + 1


@lru_cache(maxsize=32)
def _ln2(bits: int) -> int:
    """Natural log of 2 to within one unit of 2**-bits: 18 artanh(1/26) - 2 artanh(1/4801) + 8 artanh(1/8749)."""
    work = bits + 32
    total = 18 * _artanh_inverse(26, work) - 2 * _artanh_inverse(4801, work) + 8 * _artanh_inverse(8749, work)
    return total >> 32


def _artanh_inverse(n: int, bits: int) -> int:
    """Artanh(1/n) in units of 2**-bits, too small by less than one unit per term of the series."""
    power = (1 << bits) // n
    total, k, square = power, 1, n * n
    while power:
        power //= square
        k += 2
        total += power // k
    return total


def laplace_weights(step: Fraction, count: int) -> list[int]:
    """2**320 · exp(-step·i) for i = 0 … count - 1, each within 2**36 units.

    >>> [w >> 316 for w in laplace_weights(Fraction(1), 4)]
    [16, 5, 2, 0]
    """
    ratio = exp_bounds(step, WEIGHT_BITS)[0]
    weight = 1 << WEIGHT_BITS
    out = []
    for _ in range(count):
        out.append(weight)
        weight = weight * ratio >> WEIGHT_BITS
    return out


def gaussian_weights(step: Fraction, count: int) -> list[int]:
    """2**320 · exp(-(step·i)²/2) for i = 0 … count - 1, each within 2**36 units.

    >>> [w >> 316 for w in gaussian_weights(Fraction(1), 4)]
    [16, 9, 2, 0]
    """
    half = step * step / 2
    ratio, change = exp_bounds(half, WEIGHT_BITS)[0], exp_bounds(2 * half, WEIGHT_BITS)[0]
    weight = 1 << WEIGHT_BITS
    out = []
    for _ in range(count):
        out.append(weight)
        weight = weight * ratio >> WEIGHT_BITS
        ratio = ratio * change >> WEIGHT_BITS
    return out
