"""Lower-triangular Toeplitz matrices as power series: the square root, the best few bands, and what noise they leave."""

from __future__ import annotations

import math
from collections import deque
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.core import checks

Floats: TypeAlias = NDArray[np.float64]


def square_root_coefficients(bands: int) -> tuple[float, ...]:
    """The first ``bands`` coefficients of (1 − x)^(−1/2): C with C² = the matrix of running sums (Fichtenberger et al. 2023).

    >>> square_root_coefficients(4)
    (1.0, 0.5, 0.375, 0.3125)
    """
    count = checks.count("bands", bands, high=100_000)
    ratios = np.arange(1, 2 * count - 1, 2) / np.arange(2, 2 * count, 2)
    return (1.0, *np.cumprod(ratios).tolist())


def _inverse(series: Floats, count: int) -> Floats:
    """The first ``count`` coefficients of 1 / series, by Newton's iteration."""
    found = np.array([1.0 / series[0]])
    while found.size < count:
        size = min(2 * found.size, count)
        error = -_times(found, series[:size], size)
        error[0] += 2.0
        found = _times(found, error, size)
    return found


def _times(a: Floats, b: Floats, count: int) -> Floats:
    """The first ``count`` coefficients of the product of two series."""
    if min(a.size, b.size) <= 64:
        made: Floats = np.convolve(a, b)[:count]
    else:
        points = 1 << (a.size + b.size - 2).bit_length()
        made = np.fft.irfft(np.fft.rfft(a, points) * np.fft.rfft(b, points), points)[: min(count, a.size + b.size - 1)]
    return np.concatenate((made, np.zeros(count - made.size)))


def _objective(tail: Floats, steps: int) -> tuple[float, Floats]:
    """log(‖c‖² · Σ_s (n−s) v_s²) for c = (1, tail), v = 1/((1−x)c(x)), and its gradient in ``tail``."""
    c = np.concatenate(([1.0], tail))
    left = np.arange(steps, 0, -1.0)
    norm = float(c @ c)
    with np.errstate(all="ignore"):  # a step too far makes an inverse that explodes; the search steps back
        w = _inverse(c, steps)
        v = np.cumsum(w)
        error = float(left @ (v * v))
    if not error < 1e100:
        return math.inf, np.zeros_like(tail)
    u = _times(v, w, steps)
    weighted = left * v
    slope = np.array([weighted[j:] @ u[: steps - j] for j in range(1, c.size)])
    return math.log(norm * error), 2 * tail / norm - 2 * slope / error


def banded_coefficients(steps: int, bands: int) -> tuple[float, ...]:
    """The ``bands`` coefficients that give the least mean squared error of ``steps`` running sums at a fixed price.

    The price is that of units whose participations lie at least ``bands`` steps apart (then columns of C do not meet,
    and sensitivity is √participations · ‖c‖), or of one participation. Found by a quasi-Newton search from the square
    root; any result is as private as its event says, so the search can only cost accuracy.

    >>> [round(c, 3) for c in banded_coefficients(64, 3)]
    [1.0, 0.703, 0.579]
    """
    count = checks.count("steps", steps, high=10_000_000)
    return _best_bands(count, checks.count("bands", bands, high=min(count, 100_000)))


@lru_cache(maxsize=64)
def _best_bands(count: int, width: int) -> tuple[float, ...]:
    x = np.array(square_root_coefficients(width)[1:])
    value, slope = _objective(x, count) if x.size else (0.0, x)
    pairs: deque[tuple[Floats, Floats]] = deque(maxlen=12)
    for _ in range(300 if x.size else 0):
        move = _quasi_newton(slope, pairs)
        size, promised = 1.0, float(slope @ move)
        there, tilt = _objective(x + move, count)
        while there > value + 1e-4 * size * promised and size > 1e-8:
            size /= 2
            there, tilt = _objective(x + size * move, count)
        if there >= value:
            break
        pairs.append((size * move, tilt - slope))
        gained, x, value, slope = value - there, x + size * move, there, tilt
        if gained < 1e-10:
            break
    return (1.0, *x.tolist())


def _quasi_newton(slope: Floats, pairs: deque[tuple[Floats, Floats]]) -> Floats:
    """The L-BFGS direction (Nocedal 1980): − (inverse Hessian from the last moves) · slope."""
    q = slope.copy()
    kept = [(s, y, 1 / (s @ y)) for s, y in pairs if s @ y > 1e-14]
    shares = []
    for s, y, r in reversed(kept):
        shares.append(r * (s @ q))
        q = q - shares[-1] * y
    if kept:
        s, y, r = kept[-1]
        q = q / (r * (y @ y))
    else:
        q = q / max(1.0, 10 * float(np.linalg.norm(q)))
    for (s, y, r), a in zip(kept, reversed(shares), strict=True):
        q = q + (a - r * (y @ q)) * s
    return -q


@lru_cache(maxsize=8)
def growth(coefficients: tuple[float, ...], steps: int) -> Floats:
    """Σ_{s≤t} v_s² for t = 0 … steps − 1, v = the first column of A·C⁻¹: the noise in each running sum."""
    with np.errstate(all="ignore"):
        v = np.cumsum(_inverse(np.array(coefficients), steps))
        made: Floats = np.cumsum(v * v)
    return made
