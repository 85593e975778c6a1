"""Composition: many pairs, each some number of times, to δ(ε) and ε(δ) from above and from below.

Each pair becomes two laws on one lattice (``_grid``); the laws are tilted by e^{λ·loss}, so that the losses near the answer
are the likely ones, multiplied by FFT, and the tilt is undone only relative to its own centre. Whatever the circle folds
over, the tails cut off and the rounding can add up to is bounded and given to the upper side and taken from the lower one.
Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import fft
from scipy.linalg import solveh_banded
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr, ndtri_exp

from dither.accounting._grid import Law, Whole, lowered, optimistic, pessimistic
from dither.accounting._pair import Array, Masses, Pair
from dither.accounting._pairs import AtomsPair, GaussianPair
from dither.core.units import Bound

_ULP = 2.0**-53
_TOLERANCE = 3e-4
_POINTS_MAX = 1 << 21


# ------------------------------------------------------------------------------------------------ one Gaussian


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of N(μ, 1) against N(0, 1) (Balle & Wang 2018, Theorem 8), without cancellation.

    With a, b = ε/μ ∓ μ/2 it is Φ(−a) − e^ε Φ(−b) = φ(a) (M(a) − M(b)), M the Mills ratio.

    >>> round(gaussian_delta(1.0, 1.0), 12)
    0.126936737507
    """
    a, b = epsilon / mu - 0.5 * mu, epsilon / mu + 0.5 * mu
    if a < -10.0:
        return float(ndtr(-a) - math.exp(min(epsilon + float(log_ndtr(-b)), 0.0)))
    if mu > 0.5:
        gain = math.sqrt(math.pi / 2) * float(erfcx(a / math.sqrt(2)) - erfcx(b / math.sqrt(2)))
    else:
        x = 0.5 * (a + b) + 0.5 * mu * _NODES
        gain = 0.5 * mu * float(_WEIGHTS @ _mills_slope(x))
    return math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi) * gain


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def _mills_slope(x: Array) -> Array:
    """Minus the derivative of the Mills ratio: 1 − x M(x), by its continued fraction where that would cancel."""
    direct = 1 - x * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
    if (x < 8.0).all():
        return np.asarray(direct)
    inverse = 1 / np.maximum(x, 8.0) ** 2
    series, term = np.zeros_like(x), np.ones_like(x)
    for k in range(1, 16):
        term = -term * (2 * k - 1) * inverse
        series -= term
    return np.where(x < 8.0, direct, series)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The ε ≥ 0 at which N(μ, 1) against N(0, 1) has that δ > 0.

    >>> round(gaussian_epsilon(1.0, 1e-5), 7)
    4.3771781
    """
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * (0.5 * mu + max(0.0, -float(ndtri_exp(math.log(delta)))))
    target = math.log(delta)

    def miss(epsilon: float) -> float:
        return math.log(max(gaussian_delta(mu, epsilon), 5e-324)) - target

    while miss(high) > 0:
        high *= 1.0 + 1e-9
    return float(brentq(miss, 0.0, high, xtol=high * 1e-15, rtol=1e-14))


# ------------------------------------------------------------------------------------------------ planning


class _Sketch(NamedTuple):
    """A few hundred cells of a pair: enough to choose the tilt and the lattice, never used for a bound."""

    cuts: Array
    losses: Array
    p: Array
    mean: float
    variance: float


def _sketch(pair: Pair, low: float, high: float) -> _Sketch:
    if isinstance(pair, AtomsPair):
        keep = pair.p > 0
        losses, p = pair.losses[keep], pair.p[keep]
        cuts = losses
    else:
        cuts = _sketch_cuts(low, high, pair.std())
        cells = pair.masses(cuts)
        keep = (cells.p > 0) & (cells.q > 0)
        ends = np.concatenate(([low], cuts, [high]))
        with np.errstate(divide="ignore", invalid="ignore"):
            mean_loss = np.log(cells.p) - np.log(cells.q)
        losses = np.where(keep, np.clip(mean_loss, ends[:-1], ends[1:]), 0.5 * (ends[:-1] + ends[1:]))
        losses, p = losses[cells.p > 0], cells.p[cells.p > 0]
    total = float(p.sum())
    mean = float(p @ losses) / total
    return _Sketch(cuts, losses, p, mean, float(p @ (losses - mean) ** 2) / total)


def _sketch_cuts(low: float, high: float, std: float) -> Array:
    if not high > low:
        return np.array([low])
    if not high - low > 200 * std:
        return np.linspace(low, high, 400)
    center = min(max(0.0, low), high)
    reach = max(high - center, center - low)
    t = np.arcsinh(4 * reach / std)
    cuts = center + 0.25 * std * np.sinh(np.linspace(-t, t, 500))
    inside = cuts[(cuts > low) & (cuts < high)]
    return np.unique(np.concatenate(([low], inside, [high])))


class _Part(NamedTuple):
    pair: Pair
    count: int
    low: float
    high: float
    sketch: _Sketch


def _cumulants(parts: Sequence[_Part], tilts: Array) -> Array:
    """Σ count · log E e^{t·loss} at each t, from the sketches."""
    total = np.zeros(len(tilts))
    for part in parts:
        exponents = np.multiply.outer(tilts, part.sketch.losses)
        top = exponents.max(axis=1)
        total += part.count * (top + np.log(np.exp(exponents - top[:, None]) @ part.sketch.p))
    return total


class _Tilt(NamedTuple):
    """λ, the mean of the tilted sum, its standard deviation, and Chernoff's guess of (ε, log δ)."""

    value: float
    center: float
    spread: float
    untilted: float
    epsilon: float
    log_delta: float


def _tilt(parts: Sequence[_Part], *, epsilon: float | None, log_delta: float) -> _Tilt:
    """Choose λ ≥ 0 by Chernoff: δ(ε) ≤ exp(K(λ) − λε) λ^λ/(1+λ)^{1+λ}."""
    spread = math.sqrt(math.fsum(p.count * p.sketch.variance for p in parts))
    tilts = np.geomspace(1e-3, 1e4, 57) / spread
    k = _cumulants(parts, tilts)
    factor = tilts * np.log(tilts) - (1 + tilts) * np.log1p(tilts)
    factor = np.where(tilts > 1e6, -1 - np.log(tilts), factor)
    if epsilon is None:
        i = int(np.argmin((k - log_delta + factor) / tilts))
        epsilon = float((k[i] - log_delta + factor[i]) / tilts[i])
    else:
        i = int(np.argmin(k - tilts * epsilon + factor))
        log_delta = min(0.0, float(k[i] - tilts[i] * epsilon + factor[i]))
    center = variance = 0.0
    for part in parts:
        exponents = tilts[i] * part.sketch.losses
        weights = part.sketch.p * np.exp(exponents - exponents.max())
        weights /= weights.sum()
        mean = float(weights @ part.sketch.losses)
        center += part.count * mean
        variance += part.count * float(weights @ (part.sketch.losses - mean) ** 2)
    return _Tilt(float(tilts[i]), center, math.sqrt(variance), spread, max(epsilon, 0.0), log_delta)


def _radius(parts: Sequence[_Part], tilt: _Tilt, log_tail: float, sign: int) -> tuple[float, float]:
    """(radius, t): beyond it the tilted sum has mass at most about exp(log_tail), by Chernoff with tilt λ + sign·t."""
    scale = max(tilt.spread, 1e-12 * abs(tilt.center), 1e-300)
    t = np.geomspace(0.05, 60.0, 24) / scale
    if sign < 0:
        t = np.concatenate((t, tilt.value * np.array([0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96])))
    k = _cumulants(parts, tilt.value + sign * t) - float(_cumulants(parts, np.array([tilt.value]))[0])
    radii = (k - log_tail) / t - sign * tilt.center
    i = int(np.argmin(radii))
    return max(float(radii[i]), 0.0), float(t[i])


# ------------------------------------------------------------------------------------------------ lattices


def _layout(part: _Part, tilt: _Tilt, step: float, allowed: float) -> Whole:
    """Lattice cuts for a pair without atoms: cells an odd number of steps wide, wider where little depends on them.

    ``allowed`` is the mean squared cell width, under the tilted law, that the error asked for permits.
    """
    cuts, losses = part.sketch.cuts, part.sketch.losses
    exponents = tilt.value * losses
    tilted = part.sketch.p * np.exp(exponents - exponents.max())
    weights = np.maximum(part.sketch.p, tilted / tilted.sum())
    mass, _ = np.histogram(losses, cuts, weights=weights)
    width = np.diff(cuts)
    density = (mass + 1e-12 * mass.max()) / width
    scale = math.sqrt(allowed / float(width @ np.cbrt(density)))
    wanted = np.minimum(np.minimum(scale / np.cbrt(density), 0.5 / (tilt.value + 1)), width) / step
    multiples = 3 ** np.clip(np.floor(np.log(np.maximum(wanted, 1.0)) / math.log(3)), 0, 12).astype(np.int64)
    start = math.floor(cuts[0] / step)
    at, repeats = start, np.empty(len(multiples), dtype=np.int64)
    ends = np.ceil(cuts[1:] / step).astype(np.int64)
    for i, (end, multiple) in enumerate(zip(ends.tolist(), multiples.tolist(), strict=True)):
        repeats[i] = max(0, (end - at) // multiple)
        at += int(repeats[i]) * multiple
    repeats[-1] += max(0, -((at - int(ends[-1])) // int(multiples[-1])))
    index = start + np.cumsum(np.repeat(multiples, repeats))
    return np.concatenate((np.array([start], dtype=np.int64), index))


def _laws(part: _Part, tilt: _Tilt, step: float, allowed: float, *, both: bool) -> tuple[Law, Law | None]:
    """The pessimistic law of a pair and, if asked, the optimistic one."""
    if isinstance(part.pair, AtomsPair):
        return _atom_laws(part.pair, part, step, both=both)
    lattice = part.pair.lattice()
    if lattice > 0 and lattice >= 1.5 * step:
        return _lattice_laws(part, step, max(2, round(lattice / step)), both=both)
    index = _layout(part, tilt, step, allowed)
    cells = part.pair.masses(step * index)
    upper = pessimistic(index, step, cells)
    if not both:
        return upper, None
    return upper, _centred(part, tilt, index, step, allowed, cells)


def _centred(part: _Part, tilt: _Tilt, index: Whole, step: float, allowed: float, cells: Masses) -> Law:
    """The optimistic law with its corners in the middle of the cells, the cuts moved until mean losses are there too.

    A cell whose mean loss is off its corner costs as much as it is off. Moving each cut by minus the average offset of
    the cells beside it leaves offsets of second order, and any cuts at all give a valid law.
    """
    corners = (index[:-1] + index[1:] - 1) // 2
    origin, cuts = 0.5 * step, step * index
    affordable, damping = 0.03 * allowed * (tilt.value + 1), 1.0
    offset, weights = _offsets(cells, origin + step * corners, tilt.value)
    drift = float(weights @ np.abs(offset))
    for _ in range(16):
        if drift <= affordable:
            break
        lower, shift = _correction(cuts, cells, offset, origin + step * corners, weights)
        new_cuts, new_origin = cuts - damping * lower, origin + damping * shift
        new_cells = part.pair.masses(new_cuts)
        new_offset, new_weights = _offsets(new_cells, new_origin + step * corners, tilt.value)
        new_drift = float(new_weights @ np.abs(new_offset))
        if new_drift < drift:
            cuts, origin, cells, offset, weights = new_cuts, new_origin, new_cells, new_offset, new_weights
            drift, damping = new_drift, min(1.0, 1.5 * damping)
        else:
            damping *= 0.4
    return optimistic(corners, origin, step, cells)


def _offsets(cells: Masses, middles: Array, tilt: float) -> tuple[Array, Array]:
    """How far each inner cell's mean loss is from its corner, and how much that matters."""
    p, q = cells.p[1:-1], cells.q[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        offset = np.log(p) - np.log(q) - middles
    exponents = tilt * middles
    tilted = p * np.exp(exponents - exponents.max())
    return np.where(np.isfinite(offset), offset, 0.0), np.maximum(p, tilted / tilted.sum())


def _correction(cuts: Array, cells: Masses, offset: Array, middles: Array, weights: Array) -> tuple[Array, float]:
    """By how much to lower the cuts and to raise all corners: a damped Newton step of least norm towards no offset."""
    width = np.diff(cuts)
    p = np.maximum(cells.p[1:-1], 1e-300)
    density = p / width
    at_cuts = np.concatenate(([0.0], np.sqrt(density[:-1] * density[1:]), [0.0]))  # next to nothing lies at the outer cuts
    mean = middles + offset
    room = np.concatenate((width[:1], np.minimum(width[:-1], width[1:]), width[-1:]))
    lower = at_cuts[:-1] / p * (mean - cuts[:-1]) * room[:-1]  # d(mean loss) per d(cut / room)
    upper = at_cuts[1:] / p * (cuts[1:] - mean) * room[1:]
    diagonal = (lower**2 + upper**2) * 1.001 + width**2 * 1e-9 / (weights + 1e-14)
    banded = np.zeros((2, len(p)))
    banded[0, 1:], banded[1] = upper[:-1] * lower[1:], diagonal
    solved = solveh_banded(banded, np.column_stack((offset, np.ones(len(p)))), check_finite=False)
    cheap = 100 * float(width.min()) ** 2  # moving all corners together costs little
    shift = cheap * float(solved[:, 0].sum()) / (1 + cheap * float(solved[:, 1].sum()))
    multiplier = solved[:, 0] - shift * solved[:, 1]
    step = np.zeros(len(cuts))
    step[:-1] += lower * multiplier
    step[1:] += upper * multiplier
    most = float(np.abs(step).max())
    scale = min(1.0, 0.4 / most) if most > 0 else 1.0
    return step * scale * room, shift * scale


def _lattice_laws(part: _Part, step: float, every: int, *, both: bool) -> tuple[Law, Law | None]:
    """A pair with atoms at multiples of ``every`` steps: thin cells hold them, so that no atom is moved."""
    first, last = math.floor(part.low / step) - 1, math.ceil(part.high / step) + 1
    index = np.arange(first, last + 1, dtype=np.int64)
    upper = pessimistic(index, step, part.pair.masses(step * index))
    if not both:
        return upper, None
    first, last = every * math.floor(part.low / (every * step) - 0.5), every * math.ceil(part.high / (every * step) + 0.5)
    atoms = np.arange(first, last + 1, every, dtype=np.int64)
    thin = step * np.abs(atoms) * 1e-14 + 1e-9 * step
    between = np.setdiff1d(np.arange(first, last + 1, 2, dtype=np.int64), atoms)
    cuts = np.concatenate((step * atoms - thin, step * atoms + thin, step * between))
    order = np.argsort(cuts, kind="stable")
    corners = np.sort(np.concatenate((atoms, np.arange(first + 1, last, 2, dtype=np.int64))))
    return upper, optimistic(corners, 0.0, step, part.pair.masses(cuts[order]))


def _atom_laws(pair: AtomsPair, part: _Part, step: float, *, both: bool) -> tuple[Law, Law | None]:
    """A finite law: every atom is split over the two lattice points around it, or lowered to the nearest one."""
    keep = pair.p > 0
    losses, p = pair.losses[keep], pair.p[keep]
    origin = 0.0 if pair.step else float(losses[np.argmax(p)])
    position = (losses - origin) / step
    left = np.floor(position + 1e-9).astype(np.int64)
    rise = np.clip((losses - origin) - step * left, 0.0, step)
    up = p * np.expm1(-rise) / math.expm1(-step)
    index = np.arange(left.min(), left.max() + 2)
    made = np.bincount(left - index[0], p - up, len(index)) + np.bincount(left + 1 - index[0], up, len(index))
    used = made > 0
    upper = Law(index[used], made[used], pair.p_inf, origin, step)
    if not both:
        return upper, None
    corner = np.rint(position).astype(np.int64)
    excess = -p * np.expm1(origin + step * corner - losses)
    base = int(corner.min())
    size = int(corner.max()) - base + 1
    mass = np.bincount(corner - base, p, size)
    extra = np.bincount(corner - base, excess, size)
    used = mass > 0
    return upper, lowered(np.flatnonzero(used) + base, origin, step, mass[used], extra[used], pair.p_inf)


# ------------------------------------------------------------------------------------------------ the product


def _log_moment(law: Law, t: float) -> float:
    """Log of E e^{t·loss} of the finite part."""
    exponents = t * law.losses
    top = float(np.max(exponents)) if len(exponents) else 0.0
    if not len(exponents) or not law.p.any():
        return -math.inf
    if top < 1 and float(np.min(exponents)) > -1:
        return math.log1p(float(law.p @ np.expm1(exponents)) + (float(law.p.sum()) - 1))
    return top + math.log(float(law.p @ np.exp(exponents - top)))


@dataclass(frozen=True, slots=True)
class _Curve:
    """The profile of a composition near one place: δ(s_i) = p_inf + e^{log_scale} (gain_i ± error_i) on a lattice s_i."""

    losses: Array
    gain: Array
    slope: Array
    error: Array
    log_scale: float
    p_inf: float
    relative: float
    upper: bool

    def delta(self, epsilon: float) -> float:
        """The bound on δ at ε; above the window an upper bound is the last value, a lower one p_inf."""
        i = int(np.searchsorted(self.losses, epsilon, "left"))
        if i == len(self.losses):
            inner = float(self.gain[-1]) if self.upper else -math.inf
            i -= 1
        else:
            inner = float(self.gain[i] + self.slope[i] * -math.expm1(min(epsilon - self.losses[i], 0.0)))
        error = float(self.error[max(i - 1, 0)])
        inner = max(0.0, inner + error if self.upper else inner - error)
        factor = 1 + self.relative if self.upper else max(0.0, 1 - self.relative)
        if inner == 0:
            return self.p_inf
        return self.p_inf + math.exp(min(0.0, self.log_scale + math.log(inner))) * factor

    def epsilon(self, delta: float) -> float:
        """The bound on ε at δ: −∞ when every ε in the window will do, +∞ when none will."""
        if delta <= self.p_inf:
            return math.inf
        log_target = math.log(delta - self.p_inf) - self.log_scale
        log_target += -math.log1p(self.relative) if self.upper else -math.log1p(-min(self.relative, 0.5))
        if log_target > 700:
            return -math.inf
        target = math.exp(log_target)
        bound = self.gain + self.error if self.upper else self.gain - self.error
        over = np.flatnonzero(bound > target)
        if not len(over):
            return -math.inf
        i = int(over[-1])
        if i + 1 == len(self.losses):
            return math.inf if self.upper else float(self.losses[i])
        aim = target - float(self.error[i]) if self.upper else target + float(self.error[i])
        ratio = (aim - float(self.gain[i + 1])) / float(self.slope[i + 1]) if self.slope[i + 1] > 0 else 0.0
        if ratio >= 1:
            return float(self.losses[i])
        return float(self.losses[i + 1]) + math.log1p(-max(ratio, 0.0))


class _Window(NamedTuple):
    """Where the tilted sum is followed: [center − left, center + right], and the tilts that bound what is outside."""

    center: float
    left: float
    right: float
    t_left: float
    t_right: float


def _product(laws: Sequence[Law], counts: Sequence[int], tilt: float, window: _Window, *, upper: bool, p_inf: float) -> _Curve:
    """The curve of the composition of ``laws``, each so many times."""
    step, total = laws[0].step, sum(counts)
    n = fft.next_fast_len(int((window.left + window.right) / step) + 8, real=True)
    spectrum: np.ndarray[tuple[int], np.dtype[np.complex128]] | None = None
    base, origin, log_scale, log_left, log_right, fraction = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for law, count in zip(laws, counts, strict=True):
        exponents = tilt * law.losses
        weights = law.p * np.exp(exponents - exponents.max())
        weights /= weights.sum()
        shift = int(law.index[0]) + round(float(weights @ (law.index - law.index[0])))
        own = _power(fft.rfft(np.bincount((law.index - shift) % n, weights, n)), count)
        spectrum = own if spectrum is None else spectrum * own
        base += count * shift
        origin += count * law.origin
        k = _log_moment(law, tilt)
        log_scale += count * k
        log_left += count * (_log_moment(law, tilt - window.t_left) - k)
        log_right += count * (_log_moment(law, tilt + window.t_right) - k)
        fraction += count * 0.5 ** min(count - 1, 1000)
    assert spectrum is not None
    tilted = np.maximum(fft.irfft(spectrum, n), 0.0)
    first = round((window.center - window.left - origin) / step)
    tilted = np.roll(tilted, -((first - base) % n))
    losses = (origin + step * first) + step * np.arange(n)
    y = losses - window.center
    keep = (y > -600 / (tilt + 1)) & (y < 600 / (tilt + 1))
    losses, y, tilted = losses[keep], y[keep], tilted[keep]
    log_scale -= tilt * window.center
    outside_right = math.exp(min(0.0, log_right - window.t_right * (float(y[-1]) + window.center)))
    outside_left = math.exp(min(0.0, log_left + window.t_left * (float(y[0]) + window.center)))
    below = np.cumsum((tilted * np.exp(-(tilt + 1) * y))[::-1])[::-1]
    slope = np.exp(y) * below
    gain = np.concatenate((np.cumsum((-math.expm1(-step) * slope)[:0:-1])[::-1], [0.0]))
    fall = np.exp(-tilt * y)
    eta = 8 * _ULP * math.log2(n)
    norm = math.sqrt(float(tilted @ tilted))
    rounding = eta * ((2 * total + 1) * norm + fraction) * math.sqrt(min(n, 1 / -math.expm1(-2 * tilt * step)))
    error = rounding * fall + float(fall[-1]) * outside_right
    if not upper:
        peak = math.exp(tilt * math.log(tilt / (1 + tilt)) - math.log1p(tilt)) if tilt > 0 else 1.0
        error = rounding * fall + peak * fall * (outside_left + outside_right)
    infinite = -math.expm1(math.fsum(c * math.log1p(-law.p_inf) for law, c in zip(laws, counts, strict=True) if law.p_inf < 1))
    infinite = p_inf + (1 - p_inf) * infinite
    relative = 64 * _ULP * (total + 16)
    return _Curve(losses, gain, slope, error, log_scale, infinite, relative, upper)


def _power(
    values: np.ndarray[tuple[int], np.dtype[np.complex128]], count: int
) -> np.ndarray[tuple[int], np.dtype[np.complex128]]:
    """Values to a whole power by repeated squaring."""
    result: np.ndarray[tuple[int], np.dtype[np.complex128]] | None = None
    while True:
        if count & 1:
            result = values if result is None else result * values
        count >>= 1
        if not count:
            assert result is not None
            return result
        values = values * values


# ------------------------------------------------------------------------------------------------ the public face


class Composition:
    """Pairs, each so many times, in one direction; ``p_inf`` is a further probability of complete failure.

    >>> Composition([(GaussianPair(5.0), 100)]).epsilon(1e-6)
    Bound(lower=10.9971, upper=10.9972)
    """

    def __init__(self, parts: Sequence[tuple[Pair, int]], p_inf: float = 0.0) -> None:
        self.notes: list[str] = []
        self._p_inf = p_inf
        precision = 0.0
        counts: dict[Pair, int] = {}
        for pair, count in parts:
            if isinstance(pair, GaussianPair):
                precision += count / pair.noise_multiplier**2
            else:
                counts[pair] = counts.get(pair, 0) + count
        if precision > 0:
            counts[GaussianPair(1 / math.sqrt(precision))] = 1
        self._parts = list(counts.items())

    def epsilon(self, delta: float) -> Bound:
        """ε at that δ."""
        lower, upper = self._epsilon(delta, both=True)
        return Bound(min(lower, upper), upper)

    def epsilon_upper(self, delta: float) -> float:
        """An ε that is enough at that δ; cheaper than both sides."""
        return self._epsilon(delta, both=False)[1]

    def delta(self, epsilon: float) -> Bound:
        """δ at that ε."""
        lower, upper = self._delta(epsilon, both=True)
        return Bound(min(lower, upper), upper)

    def delta_upper(self, epsilon: float) -> float:
        """A δ that is enough at that ε; cheaper than both sides."""
        return self._delta(epsilon, both=False)[1]

    # -------------------------------------------------------------------------------------------- cases

    def _epsilon(self, delta: float, *, both: bool) -> tuple[float, float]:
        if delta <= self._p_inf:
            return math.inf, math.inf
        if not self._parts:
            return 0.0, 0.0
        if len(self._parts) == 1 and self._parts[0][1] == 1:
            return self._one_epsilon(self._parts[0][0], delta)
        best = (0.0, math.inf)
        for attempt in range(5):
            upper, lower = self._curves(both=both, attempt=attempt, delta=delta)
            high = max(0.0, upper.epsilon(delta))
            low = max(0.0, lower.epsilon(delta)) if lower else 0.0
            best = max(best[0], low), min(best[1], high)
            if not both and high < math.inf:
                break
            if best[1] - best[0] <= max(1e-3 * best[0], 1e-6):
                break
        return best

    def _delta(self, epsilon: float, *, both: bool) -> tuple[float, float]:
        if not self._parts:
            return self._p_inf, self._p_inf
        if len(self._parts) == 1 and self._parts[0][1] == 1:
            return self._one_delta(self._parts[0][0], epsilon)
        best = (0.0, 1.0)
        for attempt in range(5):
            upper, lower = self._curves(both=both, attempt=attempt, epsilon=epsilon)
            high = min(1.0, upper.delta(epsilon))
            low = lower.delta(epsilon) if lower else 0.0
            best = max(best[0], low), min(best[1], high)
            if not both or best[1] - best[0] <= max(1e-3 * best[0], 1e-300):
                break
        return best

    def _one_delta(self, pair: Pair, epsilon: float) -> tuple[float, float]:
        """A single release needs no lattice."""
        rest = 1 - self._p_inf
        if isinstance(pair, GaussianPair):
            value = gaussian_delta(1 / pair.noise_multiplier, epsilon)
            return self._p_inf + rest * value * (1 - 1e-12), min(1.0, self._p_inf + rest * value * (1 + 1e-12))
        cells = pair.masses(np.array([epsilon]))
        p, q = float(cells.p[-1]), float(cells.q[-1])
        spent = math.exp(min(epsilon + math.log(q), math.log(p))) if q > 0 and p > 0 else 0.0
        error = 32 * _ULP * p
        low, high = max(0.0, p - spent - error), p - spent + error
        return self._p_inf + rest * (cells.p_inf + low), min(1.0, self._p_inf + rest * (cells.p_inf + high))

    def _one_epsilon(self, pair: Pair, delta: float) -> tuple[float, float]:
        if isinstance(pair, GaussianPair):
            target = (delta - self._p_inf) / (1 - self._p_inf)
            value = gaussian_epsilon(1 / pair.noise_multiplier, target)
            return value * (1 - 1e-11), value * (1 + 1e-11)
        if self._one_delta(pair, 0.0)[1] <= delta:
            return 0.0, 0.0
        high = max(pair.span(math.log(delta) - 1.0)[1], 1e-300)
        while self._one_delta(pair, high)[1] > delta:
            if high > 1e9:
                return math.inf, math.inf
            high *= 2
        ends = []
        for side in (0, 1):
            low, top = 0.0, high
            for _ in range(200):
                middle = 0.5 * (low + top)
                if self._one_delta(pair, middle)[side] > delta:
                    low = middle
                else:
                    top = middle
                if top - low <= 1e-13 * top:
                    break
            ends.append((low, top)[side])
        return ends[0], ends[1]

    def _curves(
        self, *, both: bool, attempt: int, delta: float | None = None, epsilon: float | None = None
    ) -> tuple[_Curve, _Curve | None]:
        total = sum(c for _, c in self._parts)
        log_delta = math.log(delta - self._p_inf) if delta is not None else 0.0
        parts = self._sketched(log_delta - 18 - math.log(total), math.log(1e-7 / total))
        tilt = _tilt(parts, epsilon=epsilon, log_delta=log_delta)
        if delta is None:
            parts = self._sketched(tilt.log_delta - 25 - math.log(total), math.log(1e-7 / total))
            tilt = _tilt(parts, epsilon=epsilon, log_delta=log_delta)
        error = max(_TOLERANCE * tilt.epsilon, 3e-7) if epsilon is None else _TOLERANCE / max(tilt.value, 1e-300)
        error /= 4**attempt
        budgets = [12 * error / (len(parts) * p.count * (tilt.value + 1)) for p in parts]
        step = min(math.sqrt(min(budgets)) / 1.5, 0.5 / (tilt.value + 1), tilt.untilted / 8)
        step = self._fitted(step)
        log_tail = -16.0 - 4 * attempt - math.log1p(tilt.spread * tilt.value * (1 + tilt.value))
        right, t_right = _radius(parts, tilt, log_tail, 1)
        left, t_left = _radius(parts, tilt, log_tail, -1)
        target = tilt.epsilon if epsilon is None else epsilon
        left = max(left, tilt.center - target + 4 * tilt.spread)
        right = max(right, target - tilt.center + 4 * step)
        window = _Window(tilt.center, left + 4 * step, right + 4 * step, t_left, t_right)
        laws = [_laws(p, tilt, step, b, both=both) for p, b in zip(parts, budgets, strict=True)]
        counts = [p.count for p in parts]
        upper = _product([u for u, _ in laws], counts, tilt.value, window, upper=True, p_inf=self._p_inf)
        if not both:
            return upper, None
        lows = [low for _, low in laws if low is not None]
        return upper, _product(lows, counts, tilt.value, window, upper=False, p_inf=self._p_inf)

    def _fitted(self, step: float) -> float:
        """The step, made smaller so that it divides the lattice of the pairs that have one."""
        lattices = sorted({p.lattice() for p, _ in self._parts if p.lattice() > 0})
        if not lattices:
            return step
        every = math.ceil(lattices[0] / step)
        return lattices[0] / (every + every % 2)

    def _sketched(self, log_high: float, log_low: float) -> list[_Part]:
        made = []
        for pair, count in self._parts:
            low, high = pair.span(log_low)[0], pair.span(log_high)[1]
            made.append(_Part(pair, count, low, high, _sketch(pair, low, high)))
        return made
