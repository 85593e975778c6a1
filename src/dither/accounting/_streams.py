"""Sensitivity of a stream of sums: how far one unit can move all that a tree or a Toeplitz mechanism adds noise to.

One unit takes part in at most k of n steps, any two at least b apart, with a vector of L2 norm at most 1 each time.
Releasing Cx + z (tree: one row of C for each node) is then one Gaussian release of sensitivity
max over patterns S and unit vectors x of ‖Σ_{s∈S} C[:,s] xₛ‖. Proofs: docs/proofs/rdp.md, "Streams".
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dither.core.events import MatrixGaussian, TreeGaussian

_ULP = 2.0**-53
_LEAST = 1e-100  # squares of smaller coefficients are lost in floats
_JOINT_MAX = 2048
_DIRECT_MAX = 2048


def stream_sensitivity(event: TreeGaussian | MatrixGaussian) -> float:
    """L2 sensitivity of the whole stream, exact or a proven upper bound, never below the truth.

    >>> stream_sensitivity(TreeGaussian(10.0, steps=32_768))
    4.0
    >>> stream_sensitivity(MatrixGaussian(1.0, (1.0, 0.75), steps=10, participations=4, min_separation=2))
    2.5
    """
    if isinstance(event, TreeGaussian):
        return _root_up(Fraction(_tree_squared(event.steps, event.participations, event.min_separation)))
    return max(_matrix(event.coefficients, event.steps, event.participations, event.min_separation), _LEAST)


def _root_up(square: Fraction) -> float:
    """The least float found that is at least √square: exact where the root is a float."""
    root = math.sqrt(square) if square > _LEAST * _LEAST else _LEAST
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


# ------------------------------------------------------------------------------------------------ trees


@lru_cache(maxsize=1024)
def _tree_squared(steps: int, participations: int, separation: int) -> int:
    """Max Σ_v |S ∩ v|² over the nodes v of the binary tree above ``steps`` leaves, or an upper bound on it.

    Every node that covers at least one step counts, finished or not: the event does not say which are released.
    A node of 2^l leaves holds at most ⌈2^l / b⌉ participations. Where b is a power of two the pattern 0, b, 2b, …
    fills all levels to that capacity at once, so the sum of the level bounds is exact. Elsewhere the joint bound is
    (brute force, up to 65 steps) the truth in 2238 cases of 2267 and at most 3.7 % above it in the rest.
    """
    k = min(participations, -(-steps // separation))
    capacity = [min(k, -(-(2**level) // separation)) for level in range((steps - 1).bit_length() + 1)]
    capacity[-1] = k
    if separation & (separation - 1) == 0 or k > _JOINT_MAX:
        return sum((k // c) * c * c + (k % c) ** 2 for c in capacity)
    return _tree_joint(capacity, k)


def _tree_joint(capacity: list[int], k: int) -> int:
    """The best Σ_v n_v² when only capacities bind: h_{l+1}(n) = n² + max over n₁ + n₂ = n of h_l(n₁) + h_l(n₂)."""
    best = np.arange(capacity[0] + 1, dtype=np.int64) ** 2
    for room in capacity[1:]:
        have = best.size - 1
        made = np.zeros(room + 1, dtype=np.int64)
        if room <= 1:
            made[: room + 1] = best[: room + 1]
        else:
            for n in range(room + 1):
                first = np.arange(max(0, n - have), n // 2 + 1)
                made[n] = (best[first] + best[n - first]).max()
        best = made + np.arange(room + 1, dtype=np.int64) ** 2
    return int(best[k])


# ------------------------------------------------------------------------------------------------ Toeplitz matrices


@lru_cache(maxsize=256)
def _matrix(coefficients: tuple[float, ...], steps: int, participations: int, separation: int) -> float:
    k = min(participations, -(-steps // separation))
    column = np.array(coefficients)
    column = column[: np.flatnonzero(column)[-1] + 1]
    last = steps - (k - 1) * separation
    if k == 1 or column.size <= separation:  # columns of a pattern do not overlap, and the earliest are the longest
        square = (k - 1) * _sum_of_squares(column) + _sum_of_squares(column[:last])
        return _root_up(square)
    size = np.abs(column)
    falling = bool(np.all(np.diff(size) <= 0))
    bounds = [_earliest(size, steps, k, separation)] if falling else []
    if not falling or bool(np.any(column < 0)):
        bounds.append(_by_pairs(column, k, separation))
    return min(bounds)


def _sum_of_squares(numbers: NDArray[np.float64]) -> Fraction:
    """Rounded up by less than an ulp, and exact for short lists."""
    if numbers.size <= 64:
        return sum((Fraction(float(c)) ** 2 for c in numbers), Fraction(0))
    return Fraction(math.fsum(numbers * numbers)) * (1 + Fraction(1, 2**51)) + Fraction(numbers.size, 2**1070)


def _earliest(column: NDArray[np.float64], steps: int, k: int, b: int) -> float:
    """‖Σ_{j<k} C[:, jb]‖ for column ≥ 0: row i = qb + r of the sum is Σ_{m ≤ q, m > q−k} column[mb + r]."""
    bands = -(-column.size // b)
    folded = np.zeros(bands * b)
    folded[: column.size] = column
    sums = np.cumsum(folded.reshape(bands, b), axis=0)
    slack = 2.0 * (bands + 1) * _ULP * sums[-1]
    blocks = -(-steps // b)
    tail = steps - (blocks - 1) * b

    def rows(q: int) -> NDArray[np.float64]:
        gone: NDArray[np.float64] = sums[min(q - k, bands - 1)] if q >= k else np.zeros(b)
        held: NDArray[np.float64] = sums[min(q, bands - 1)] - gone + slack
        return held

    end = min(blocks - 1, k + bands - 1)  # blocks from k + bands − 1 on are zero
    total = [float(np.sum(rows(q) ** 2)) for q in range(min(bands - 1, end))]
    if k > bands:  # from block bands − 1 to k − 1 every block is the same
        alike = max(0, min(k, end) - (bands - 1))
        total.append(alike * float(np.sum(rows(bands - 1) ** 2)))
    begin = max(bands - 1, k) if k > bands else bands - 1
    total += [float(np.sum(rows(q) ** 2)) for q in range(begin, end)]
    if blocks - 1 <= k + bands - 2:
        total.append(float(np.sum(rows(blocks - 1)[:tail] ** 2)))
    return math.sqrt(math.fsum(total)) * (1 + (math.log2(b) + 16) * _ULP)


def _by_pairs(column: NDArray[np.float64], k: int, b: int) -> float:
    """√(k‖c‖² + 2 Σ_m (k−m) γₘ), γₘ = the largest |(CᵀC)_{s,t}| with |s − t| ≥ mb, over all truncations of C."""
    size = column.size
    inner = np.zeros(size)  # inner[d] ≥ |Σ_{j<n} c_j c_{j+d}| for every n
    if size <= _DIRECT_MAX:
        for d in range(b, size):
            inner[d] = np.abs(np.cumsum(column[: size - d] * column[d:])).max()
        error = 2.0 * size * _ULP
    else:
        points = 1 << (2 * size - 1).bit_length()
        spectrum = np.fft.rfft(np.abs(column), points)
        inner = np.fft.irfft(np.abs(spectrum) ** 2, points)[:size]
        error = 64.0 * math.log2(points) * _ULP
    norm = float(np.sum(column * column)) * (1 + size * _ULP)
    inner = np.minimum(np.abs(inner) + error * norm, norm)
    worst = np.maximum.accumulate(inner[::-1])[::-1]
    m = np.arange(1, min(k - 1, (size - 1) // b) + 1)
    square = k * norm + 2.0 * float(np.sum((k - m) * worst[m * b]))
    return math.sqrt(square) * (1 + (m.size + 16) * _ULP)
