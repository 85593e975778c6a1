"""Random reals of which more bits are drawn only when a comparison needs them, and what is decided by comparing them.

Selection needs events such as "E > x" and "the largest of xᵢ − ln Eᵢ" for exponential variables E = −ln(1 − W), W
uniform. W is a stream of bits. Its first 64 settle nearly every comparison in floats, which are trusted to 2⁻²⁹ and no
more; what floats cannot settle is settled in integers with enclosures of the logarithm, drawing further bits of W as
needed. So a float never decides where it could be wrong, and the laws are exact: the one departure is that 16,384 bits
are the end, with probability below 2⁻¹⁶⁰⁰⁰ per pair. Proofs: docs/proofs/selection.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.core.rng import Rng

Floats: TypeAlias = NDArray[np.float64]

SLACK = 2.0**-29
"""Floats within this of each other (relative, or absolute after a logarithm) are compared again in integers. It is a
million times the error that the arithmetic and numpy's log, log1p (documented: 4 units in the last place) can make."""
BITS_MAX = 16_384
_CENTRES_MAX = 4  # each centre narrows a cluster by 2^46, and floats span no more than 2^106 of their last digit here
_ORDINARY_LOW, _ORDINARY_HIGH = np.uint64(2**32), np.uint64(2**64 - 2**44)
_LN_E_LOW, _LN_E_HIGH = -22.2, 2.6  # E < 2^-32·1.01 below the ordinary range, E > 13.8 above it


# ------------------------------------------------------------------------------------------------ enclosures


def _atanh(numerator: int, denominator: int, bits: int) -> int:
    """2**bits · atanh(numerator/denominator) for 0 ≤ ratio ≤ 1/3, rounded down, at most bits + 9 too small."""
    ratio = (numerator << bits) // denominator
    square = ratio * ratio >> bits
    total, odd = 0, 1
    while ratio:
        total += ratio // odd
        ratio = ratio * square >> bits
        odd += 2
    return total


@functools.lru_cache(maxsize=64)
def _ln2(bits: int) -> int:
    return 2 * _atanh(1, 3, bits)


def ln_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Integers that enclose 2**bits · ln(numerator/denominator), at most 2 apart.

    >>> ln_bounds(2, 1, 10)  # 1024 ln 2 = 709.78…
    (709, 710)
    """
    shift = numerator.bit_length() - denominator.bit_length()
    work = bits + bits.bit_length() + abs(shift).bit_length() + 8
    top, bottom = numerator << max(-shift, 0), denominator << max(shift, 0)
    error = 2 * (work + 9)
    part = 2 * _atanh(abs(top - bottom), top + bottom, work)
    low, high = (part, part + error) if top >= bottom else (-part - error, -part)
    two = _ln2(work)
    low += shift * (two if shift >= 0 else two + error)
    high += shift * (two + error if shift >= 0 else two)
    guard = work - bits
    return low >> guard, -(-high >> guard)


# ------------------------------------------------------------------------------------------------ one lazy variable


class LazyExponential:
    """E = −ln(1 − W) for a uniform W of which the leading ``bits`` bits, the integer ``known``, have been drawn."""

    __slots__ = ("bits", "known", "rng")

    def __init__(self, known: int, bits: int, rng: Rng) -> None:
        self.known, self.bits, self.rng = known, bits, rng

    def bounds(self, bits: int) -> tuple[int, int]:
        """Integers that enclose 2**bits · E, after drawing enough of W to make it so."""
        while self.bits < bits or self.known + 1 == 1 << self.bits:
            self.known = self.known << 64 | self.rng.bits(64)
            self.bits += 64
        whole = 1 << self.bits
        return ln_bounds(whole, whole - self.known, bits)[0], ln_bounds(whole, whole - self.known - 1, bits)[1]

    def exceeds(self, threshold: Fraction) -> bool:
        """Whether E > threshold."""
        if threshold <= 0:
            return True
        bits = 96
        while bits <= BITS_MAX:
            low, high = self.bounds(bits)
            if low * threshold.denominator >= threshold.numerator << bits:
                return True
            if high * threshold.denominator <= threshold.numerator << bits:
                return False
            bits *= 2
        return False

    def ln_bounds(self, bits: int) -> tuple[int, int] | None:
        """Integers that enclose 2**bits · ln E, or None where ``bits`` bits of W do not bound it from below."""
        low, high = self.bounds(bits)
        if low <= 0:
            return None
        return ln_bounds(low, 1 << bits, bits)[0], ln_bounds(high, 1 << bits, bits)[1]


# ------------------------------------------------------------------------------------------------ many at once


def _uniform_words(rng: Rng, size: int) -> NDArray[np.uint64]:
    return np.frombuffer(rng.bytes(8 * size), dtype="<u8")


def _exponentials(words: NDArray[np.uint64]) -> Floats:
    """E to a relative 2^-30 for every word in the ordinary range [2^32, 2^64 − 2^44]."""
    leading = words.astype(np.float64)
    leading += 0.5
    leading *= -(2.0**-64)
    np.maximum(leading, -1 + 2.0**-40, out=leading)
    return np.negative(np.log1p(leading, out=leading), out=leading)


def flips(powers: Floats, exact: Callable[[int], Fraction], rng: Rng) -> NDArray[np.bool_]:
    """Independent coins, heads with probability exp(−power); ``powers`` ≥ 0 to a relative 2^-45, ``exact`` the truth."""
    words = _uniform_words(rng, powers.size)
    drawn = _exponentials(words)
    heads = np.asarray(drawn > powers)
    doubtful = np.abs(drawn - powers) <= SLACK * np.maximum(drawn, powers)
    doubtful |= (words < _ORDINARY_LOW) | (words > _ORDINARY_HIGH)
    for i in np.flatnonzero(doubtful).tolist():
        heads[i] = LazyExponential(int(words[i]), 64, rng).exceeds(exact(i))
    return heads


def race(
    powers: Floats,
    *,
    exact: Callable[[int], Fraction],
    rng: Rng,
    count: int = 1,
    multiplicity: NDArray[np.int64] | None = None,
    centred: Callable[[NDArray[np.intp]], Floats] | None = None,
) -> list[int]:
    """The ``count`` largest of powerᵢ + ln multiplicityᵢ − ln Eᵢ, largest first: exponential mechanisms, peeled.

    ``powers`` are floats right to a relative 2^-48 plus an absolute 2^-40; ``exact`` gives the truth. Multiplicities are
    at least 1. The first index is drawn with probability ∝ multiplicityᵢ·exp(powerᵢ), each later one likewise from the
    rest. To stay fast, powers should be centred (the ``count``-th largest near 0), and ``centred`` should give those of
    some candidates anew, the largest of them 0: what one centre blurs, another does not.
    """
    words = _uniform_words(rng, powers.size)
    low, high = _key_bounds(words, powers, multiplicity)
    floor = low.max() if count == 1 else np.partition(low, powers.size - count)[powers.size - count]
    left = np.flatnonzero(high >= floor)
    if left.size == 1:
        return [int(left[0])]
    compare = functools.cmp_to_key(_comparison(words, exact, multiplicity, rng))

    def ranked(left: NDArray[np.intp], low: Floats, high: Floats, centres: int) -> list[int]:
        order: list[int] = []
        for cluster in _clusters(left, low, high):
            if cluster.size > 1 and centres and centred is not None:
                anew = _key_bounds(words[cluster], centred(cluster), None if multiplicity is None else multiplicity[cluster])
                order += ranked(cluster, *anew, centres - 1)
            else:
                order += sorted(cluster.tolist(), key=compare)
            if len(order) >= count:
                break
        return order

    return ranked(left, low[left], high[left], _CENTRES_MAX)[:count]


def _key_bounds(words: NDArray[np.uint64], powers: Floats, multiplicity: NDArray[np.int64] | None) -> tuple[Floats, Floats]:
    """Floats that every key lies between, whatever the bits still to be drawn."""
    sizes = None if multiplicity is None else np.log(multiplicity)
    keys = powers - np.log(_exponentials(words))
    if sizes is not None:
        keys += sizes
    doubt = np.abs(powers)
    doubt *= 2.0**-47
    doubt += 2 * SLACK
    low, high = keys - doubt, keys + doubt
    for i in np.flatnonzero((words < _ORDINARY_LOW) | (words > _ORDINARY_HIGH)).tolist():
        plain = float(powers[i]) + (0.0 if sizes is None else float(sizes[i]))
        if words[i] < _ORDINARY_LOW:
            low[i], high[i] = plain - _LN_E_LOW - 0.1 - float(doubt[i]), np.inf
        else:
            low[i], high[i] = -np.inf, plain - _LN_E_HIGH + float(doubt[i])
    return low, high


def _clusters(left: NDArray[np.intp], low: Floats, high: Floats) -> list[NDArray[np.intp]]:
    """``left`` cut into runs, largest keys first: intervals of different runs do not touch."""
    order = np.argsort(-high, kind="stable")
    certain = high[order][1:] < np.minimum.accumulate(low[order])[:-1]
    return np.split(left[order], np.flatnonzero(certain) + 1)


def _comparison(
    words: NDArray[np.uint64], exact: Callable[[int], Fraction], multiplicity: NDArray[np.int64] | None, rng: Rng
) -> Callable[[int, int], int]:
    """A comparison that puts the larger key first, exactly."""
    drawn: dict[int, LazyExponential] = {}

    def compare(first: int, second: int) -> int:
        for i in (first, second):
            if i not in drawn:
                drawn[i] = LazyExponential(int(words[i]), 64, rng)
        lead = exact(first) - exact(second)
        counts = (1, 1) if multiplicity is None else (int(multiplicity[first]), int(multiplicity[second]))
        bits = 96
        while bits <= BITS_MAX:
            one, two = drawn[first].ln_bounds(bits), drawn[second].ln_bounds(bits)
            if one is not None and two is not None:
                ratio = (0, 0) if counts[0] == counts[1] else ln_bounds(counts[0], counts[1], bits)
                scaled = (lead.numerator << bits) // lead.denominator
                if scaled + ratio[0] + two[0] - one[1] > 0:
                    return -1
                if scaled + 1 + ratio[1] + two[1] - one[0] < 0:
                    return 1
            bits *= 2
        return -1 if first < second else 1

    return compare
