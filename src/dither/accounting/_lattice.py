"""Choosing the tilt, the window and the lattice of a composition. Nothing here decides a bound, only how tight it gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dither.accounting._fourier import ULP, Window, log_sums
from dither.accounting._grid import Corners, Law, Whole, around_atoms, centred, gathered, lowered, pessimistic, split
from dither.accounting._pair import Array, Pair
from dither.accounting._pairs import AtomsPair, GaussianPair, MixtureGaussianPair, SubsampledGaussianPair

_CELLS_MAX = 20_000
POINTS_MAX = 1 << 21
_FEW = 64
_TURN_MAX = 4.0
_DIVISORS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_SMOOTH = (GaussianPair, SubsampledGaussianPair, MixtureGaussianPair)


class NotSmoothError(Exception):
    """No lattice of a bearable size will do, or the losses are too small to be told apart."""


class Sketch(NamedTuple):
    """A few hundred cells of a pair."""

    cuts: Array
    losses: Array
    p: Array
    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class Part:
    """A pair, how often, the span that is followed, its sketch and its atoms (empty where none are known)."""

    pair: Pair
    count: int
    low: float
    high: float
    sketch: Sketch
    atoms: Array


def part(pair: Pair, count: int, *, log_low: float, log_high: float) -> Part:
    """A part whose losses are followed from the exp(log_low) to the exp(log_high) tail."""
    low, high = pair.span(log_low)[0], pair.span(log_high)[1]
    sketched = _sketch(pair, low, high)
    return Part(pair, count, low, high, sketched, _atoms(pair, low, high, sketched))


def spanned(pairs: Sequence[tuple[Pair, int]], log_delta: float, margin: float) -> list[Part]:
    """Parts whose tails are followed as far as they may matter to a δ of that order."""
    log_count = math.log(sum(count for _, count in pairs))
    return [part(pair, count, log_low=-16 - log_count, log_high=log_delta - margin - log_count) for pair, count in pairs]


def _sketch(pair: Pair, low: float, high: float) -> Sketch:
    if isinstance(pair, AtomsPair):
        keep = pair.p > 0
        cuts = losses = pair.losses[keep]
        p = pair.p[keep]
    else:
        cuts = _sketch_cuts(low, high, pair.std())
        cells = pair.masses(cuts)
        ends = np.concatenate(([low], cuts, [high]))
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log(cells.p) - np.log(cells.q)
        losses = np.where(np.isfinite(losses), np.clip(losses, ends[:-1], ends[1:]), 0.5 * (ends[:-1] + ends[1:]))
        losses, p = losses[cells.p > 0], cells.p[cells.p > 0]
    total = float(p.sum())
    mean = float(p @ losses) / total if total > 0 else 0.0
    return Sketch(cuts, losses, p, mean, float(p @ (losses - mean) ** 2) / total if total > 0 else 0.0)


def _sketch_cuts(low: float, high: float, std: float) -> Array:
    if not high > low:
        return np.array([low])
    if not high - low > 200 * std or not std > 0:
        return np.unique(np.linspace(low, high, 400))
    center = min(max(0.0, low), high)
    t = np.arcsinh(4 * max(high - center, center - low) / std)
    cuts = center + 0.25 * std * np.sinh(np.linspace(-t, t, 500))
    return np.unique(np.concatenate(([low], cuts[(cuts > low) & (cuts < high)], [high])))


def _atoms(pair: Pair, low: float, high: float, sketched: Sketch) -> Array:
    """Where single losses have mass of their own: by the lattice, or found by halving the cells that hold much."""
    if isinstance(pair, (*_SMOOTH, AtomsPair)):
        return np.empty(0)
    lattice = pair.lattice()
    if lattice > 0:
        if (high - low) / lattice > 20_000:
            return np.empty(0)
        return np.asarray(lattice * np.arange(math.ceil(low / lattice - 1e-9), math.floor(high / lattice + 1e-9) + 1), dtype=np.float64)
    step = 1e-6 * (high - low)
    cuts = np.concatenate(([low - step], sketched.cuts[1:-1], [high + step])) if len(sketched.cuts) > 2 else sketched.cuts
    if not len(cuts) > 1:
        return np.empty(0)
    mass = pair.masses(cuts).p[1:-1]
    many = np.flatnonzero(mass > 1e-3)
    left, right, first = cuts[:-1][many], cuts[1:][many], mass[many]
    for _ in range(52):
        if not len(left):
            break
        middle = 0.5 * (left + right)
        edges = np.unique(np.concatenate((left, middle, right)))
        total = np.concatenate(([0.0], np.cumsum(pair.masses(edges).p[1:-1])))
        at = [total[np.searchsorted(edges, e)] for e in (left, middle, right)]
        lower = at[1] - at[0] > at[2] - at[1]
        mass = np.maximum(at[1] - at[0], at[2] - at[1])
        left, right = np.where(lower, left, middle), np.where(lower, middle, right)
        keep = mass > 0.2 * first
        left, right, first = left[keep], right[keep], first[keep]
    return np.unique(0.5 * (left + right))


def cumulants(parts: Sequence[Part], tilts: Array) -> Array:
    """Σ count · log E e^{t·loss} at each t, from the sketches."""
    total = np.zeros(len(tilts))
    for one in parts:
        total += one.count * log_sums(one.sketch.losses, one.sketch.p, tilts)
    return total


class Tilt(NamedTuple):
    """λ, mean and standard deviation of the tilted sum, standard deviation without tilt, and Chernoff's (ε, log δ)."""

    value: float
    center: float
    spread: float
    untilted: float
    epsilon: float
    log_delta: float


def tilt(parts: Sequence[Part], *, epsilon: float | None = None, log_delta: float = 0.0) -> Tilt:
    """Choose λ > 0 by Chernoff: δ(ε) ≤ exp(K(λ) − λε) λ^λ/(1+λ)^{1+λ}; for the ε given, or for the δ."""
    spread = math.sqrt(math.fsum(p.count * p.sketch.variance for p in parts))
    if not 1e-140 < spread < math.inf:  # tilts are in its inverse, and moments in the square of that
        raise NotSmoothError
    tilts, step, best, found = np.geomspace(1e-3, 1e4, 57) / spread, 10 ** (7 / 56), 0.0, 0.0
    for _ in range(3):  # the best of a grid, and twice of a finer one around it
        k = cumulants(parts, tilts)
        factor = np.where(tilts > 1e6, -1 - np.log(tilts), tilts * np.log(tilts) - (1 + tilts) * np.log1p(tilts))
        aim = (k - log_delta + factor) / tilts if epsilon is None else k - tilts * epsilon + factor
        i = int(np.argmin(aim))
        best, found = float(tilts[i]), float(aim[i])
        tilts, step = best * np.geomspace(1 / step, step, 13), step ** (1 / 6)
    if epsilon is None:
        return at(parts, best, spread, max(found, 0.0), log_delta)
    return at(parts, best, spread, epsilon, min(0.0, found))


def at(parts: Sequence[Part], value: float, untilted: float, epsilon: float, log_delta: float) -> Tilt:
    """The tilt of that λ."""
    center = variance = 0.0
    for one in parts:
        mean, own = tilted_moments(one.sketch.losses, one.sketch.p, value)
        center += one.count * mean
        variance += one.count * own
    return Tilt(value, center, math.sqrt(variance), untilted, epsilon, log_delta)


def tilted_moments(losses: Array, p: Array, value: float) -> tuple[float, float]:
    """Mean and variance under the tilt."""
    with np.errstate(divide="ignore"):
        exponents = value * losses + np.log(p)
    weights = np.exp(exponents - exponents.max())
    weights /= weights.sum()
    mean = float(weights @ losses)
    return mean, float(weights @ (losses - mean) ** 2)


def window(chosen: Tilt, log_moment: Sequence[Array], tilts: tuple[Array, Array], log_tail: float) -> Window:
    """By Chernoff: outside it the tilted sum has mass about exp(log_tail).

    ``log_moment`` is K(λ ± t) − K(λ) on the ``tilts`` t to the left and to the right.
    """
    found = []
    for k, t, sign in zip(log_moment, tilts, (-1, 1), strict=True):
        radii = (k - log_tail) / t - sign * chosen.center
        i = int(np.argmin(radii))
        found.append((max(float(radii[i]), 0.0), float(t[i])))
    (left, t_left), (right, t_right) = found
    return Window(chosen.center, left, right, t_left, t_right)


def retilted(parts: Sequence[Part], chosen: Tilt, target: float, log_delta: float) -> tuple[Tilt, float]:
    """Of tilts near the chosen one that whose window is the shortest, and the log of the tail that may be left out.

    Chernoff's tilt lies far from the answer where a rare large loss is most of the tail: there a gentler one follows a
    tenth of the range. What is lost in rounding, about e^−30 of the tilted whole, has to stay far below δ.
    """
    best, found, shortest = chosen, -16.0, math.inf
    for factor in (1.0, 10.0, 3.0, 0.3, 0.1, 0.03, 0.01, 0.003):
        value = factor * chosen.value
        k = float(cumulants(parts, np.array([value]))[0])
        scale = k - value * target + value * math.log(value) - (1 + value) * math.log1p(value)
        if not scale < log_delta + 18:
            continue
        tail = min(-16.0, log_delta - scale - 12)
        own = at(parts, value, chosen.untilted, chosen.epsilon, chosen.log_delta)
        tilts = trial_tilts(own)
        moments = cumulants(parts, np.concatenate((value - tilts[0], value + tilts[1]))) - k
        here = window(own, (moments[: len(tilts[0])], moments[len(tilts[0]) :]), tilts, tail)
        length = max(here.left, own.center - target) + max(here.right, target - own.center)
        if length < 0.7 * shortest:
            best, found, shortest = own, tail, length
    return best, found


def trial_tilts(chosen: Tilt) -> tuple[Array, Array]:
    """Tilts worth trying for Chernoff bounds to the left and to the right."""
    scale = max(chosen.spread, 1e-12 * abs(chosen.center), 1e-300)
    right = np.geomspace(1e-3, 60.0, 40) / scale
    if not chosen.value > 0:
        return right, right
    return np.concatenate((right, chosen.value * np.array([0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96]))), right


# ------------------------------------------------------------------------------------------------ laws of one pair


def laws(one: Part, chosen: Tilt, step: float, allowed: float, *, both: bool, weights: Array | None = None) -> tuple[Law, Law | None]:
    """The pessimistic law of a pair and, if asked, the optimistic one.

    ``allowed`` is the mean squared cell width, under the tilted law, that the error asked for permits; ``weights``, one for
    each loss of the sketch, stand in for the tilted law where more than one tilt is used.
    """
    affordable = 0.03 * allowed * (chosen.value + 1)
    if isinstance(one.pair, AtomsPair):
        if spacing(one) >= 1.5 * step or len(one.sketch.p) < 64:
            return _finite_laws(one.pair, step, both=both)
        fine = one.pair.step if one.pair.step > step / 256 else step / 64  # many atoms to a step: cells may cut through them
        upper, lower = _finite_laws(one.pair, fine, both=both)
        return split(upper, step), gathered(lower, step, chosen.value, affordable) if lower is not None else None
    if len(one.atoms) and (one.atoms[-1] - one.atoms[0] >= 1.5 * step * (len(one.atoms) - 1)):
        origin = float(one.atoms[-1]) if not one.pair.lattice() else 0.0
        first, last = math.floor((one.low - origin) / step) - 1, math.ceil((one.high - origin) / step) + 1
        if last - first > POINTS_MAX:
            raise NotSmoothError
        index = np.arange(first, last + 1, dtype=np.int64)
        upper = pessimistic(index, step, one.pair.masses(_floats(origin + step * index)), origin)
        if not both:
            return upper, None
        return upper, centred(one.pair, around_atoms((one.low, one.high), one.atoms, origin, step), chosen.value, affordable)
    index = _layout(one, chosen, step, allowed, weights)
    cells = one.pair.masses(_floats(step * index))
    upper = pessimistic(index, step, cells)
    if not both:
        return upper, None
    middle = (index[:-1] + index[1:] - 1) // 2
    none = np.zeros(len(middle), dtype=bool)
    if one.pair.std() > step:
        corners = Corners(_floats(step * index), middle, 0.5 * step, step, none)
        return upper, centred(one.pair, corners, chosen.value, affordable, cells)
    # Nearly all is in one cell: that cell is put around 0, its corner at its mean loss, as nothing else could make up for it.
    edges = _floats(step * (index - 0.5))
    cells = one.pair.masses(edges)
    most = int(np.argmax(cells.p[1:-1]))
    origin = math.log(float(cells.p[most + 1]) / max(float(cells.q[most + 1]), 1e-300)) - step * float(middle[most])
    corners = Corners(edges, middle, origin - 1e-15 if abs(origin) < step else 0.0, step, none)
    return upper, centred(one.pair, corners, chosen.value, affordable, cells)


def _layout(one: Part, chosen: Tilt, step: float, allowed: float, weights: Array | None) -> Whole:
    """Lattice cuts for a pair without atoms: cells an odd number of steps wide, wider where little depends on them."""
    cuts, losses = one.sketch.cuts, one.sketch.losses
    if len(cuts) < 2:
        start = math.floor(cuts[0] / step)
        return np.array([start - 1, start, start + 1, start + 2], dtype=np.int64)
    if weights is None:
        exponents = chosen.value * losses
        tilted = one.sketch.p * np.exp(exponents - exponents.max())
        weights = np.maximum(one.sketch.p, tilted / tilted.sum())
    mass, _ = np.histogram(losses, cuts, weights=weights)
    width = np.diff(cuts)
    density = (mass + 1e-12 * max(float(mass.max()), 1e-300)) / width
    scale = math.sqrt(allowed / float(width @ np.cbrt(density)))
    scale = max(scale, float(width @ np.cbrt(density)) / _CELLS_MAX)
    center = float(weights @ losses) / float(weights.sum())
    # far below where the mass is, a cell may be as wide as a share of the distance: what goes up in it is still next to nothing
    turned = 0.5 / (chosen.value + 1) + 0.2 * np.maximum(center - cuts[1:], 0.0)
    wanted = np.minimum(np.minimum(scale / np.cbrt(density), turned), width) / step
    multiples = 3 ** np.clip(np.floor(np.log(np.maximum(wanted, 1.0)) / math.log(3)), 0, 30).astype(np.int64)
    multiples[-1] = multiples[-2:].max()  # the last sketch cell may be a sliver
    start = math.floor(cuts[0] / step)
    here, repeats = start, np.empty(len(multiples), dtype=np.int64)
    ends = np.ceil(cuts[1:] / step).astype(np.int64)
    for i, (end, multiple) in enumerate(zip(ends.tolist(), multiples.tolist(), strict=True)):
        repeats[i] = max(0, (end - here) // multiple)
        here += int(repeats[i]) * multiple
    repeats[-1] += max(1, -((here - int(ends[-1])) // int(multiples[-1])))
    if int(repeats.sum()) > POINTS_MAX:
        raise NotSmoothError
    return np.concatenate((np.array([start], dtype=np.int64), start + np.cumsum(np.repeat(multiples, repeats))))


def _finite_laws(pair: AtomsPair, step: float, *, both: bool) -> tuple[Law, Law | None]:
    """A finite law: every atom is split over the two lattice points around it, or lowered to the nearest one."""
    keep = pair.p > 0
    losses, p = pair.losses[keep], pair.p[keep]
    origin = _origin(pair)
    position = (losses - origin) / step
    if not float(np.ptp(position)) <= POINTS_MAX:
        raise NotSmoothError
    near = np.rint(position)
    position = np.where(np.abs(position - near) <= 4 * ULP * np.abs(position), near, position)  # the rounding of the division
    left = np.floor(position).astype(np.int64)
    rise = np.where(position == left, 0.0, np.clip((losses - origin) - step * left, 0.0, step))
    up = p * np.expm1(-rise) / math.expm1(-step)
    first, size = int(left.min()), int(left.max() - left.min()) + 2
    made = _floats(np.bincount(left - first, p - up, size) + np.bincount(left + 1 - first, up, size))
    used = np.flatnonzero(made > 0)
    upper = Law(used + first, made[used], pair.p_inf, origin, step)
    if not both:
        return upper, None
    corner = np.rint(position).astype(np.int64)
    excess = np.where(position == corner, 0.0, -p * np.expm1(origin + step * corner - losses))
    first, size = int(corner.min()), int(corner.max() - corner.min()) + 1
    mass, extra = _floats(np.bincount(corner - first, p, size)), _floats(np.bincount(corner - first, excess, size))
    used = np.flatnonzero(mass > 0)
    return upper, lowered(used + first, origin, step, mass[used], extra[used], pair.p_inf)


def _floats(values: NDArray[np.floating] | NDArray[np.signedinteger]) -> Array:
    return np.asarray(values, dtype=np.float64)


def spacing(one: Part) -> float:
    """The distance that the step should divide: the lattice, or that of the two heaviest atoms; 0 for neither."""
    if one.pair.lattice() > 0:
        return one.pair.lattice()
    if isinstance(one.pair, AtomsPair):
        heavy = np.argsort(one.pair.p)[-2:]
        return abs(float(np.diff(one.pair.losses[heavy])[0])) if len(heavy) == 2 else 0.0
    return float(one.atoms[-1] - one.atoms[0]) if len(one.atoms) > 1 else 0.0


def coarsest(parts: Sequence[Part], chosen: Tilt, budgets: Sequence[float]) -> float:
    """The widest step at which laws of a few atoms each lose no more than the budgets allow; 0 for none, or other laws.

    Atoms on the lattice lose nothing, whatever its step; the others are moved by less than a step.
    """
    if not all(isinstance(p.pair, AtomsPair) and 1 < len(p.sketch.p) <= _FEW for p in parts):
        return 0.0
    base = min(spacing(p) for p in parts)
    for divisor in _DIVISORS:
        step = base / divisor
        if step * (chosen.value + 1) > _TURN_MAX:  # under the tilt all would be in one place
            continue
        for one, budget in zip(parts, budgets, strict=True):
            assert isinstance(one.pair, AtomsPair)
            exponents = chosen.value * one.sketch.losses
            tilted = one.sketch.p * np.exp(exponents - exponents.max())
            weights = np.maximum(one.sketch.p, tilted / tilted.sum())
            position = (one.sketch.losses - _origin(one.pair)) / step
            off = np.abs(position - np.rint(position))
            off = np.where(off <= 1e-9, 0.0, off) * step
            if float(weights @ off) > 0.05 * budget * (chosen.value + 1) or 6 * float(weights @ (off * step)) > budget:
                break
        else:
            return step
    return 0.0


def _origin(pair: AtomsPair) -> float:
    """A place that is to be on the lattice."""
    return 0.0 if pair.step else float(pair.losses[np.argmax(pair.p)])


def fitted(parts: Sequence[Part], step: float) -> float:
    """The step, made at most 2.5 times smaller so that the spacings are, as nearly as can be, even multiples of it."""
    wanted = [(spacing(p), p.count) for p in parts]
    wanted = [(s, c) for s, c in wanted if s >= 1.5 * step]
    if not wanted:
        return step
    base = min(s for s, _ in wanted)
    least = 2 * math.ceil(0.5 * base / step)
    choices = base / np.arange(least, max(2.5 * least, least + 2) if len(wanted) > 1 else least + 1, 2)[:2000]
    misfit = np.zeros(len(choices))
    for distance, count in wanted:
        misfit += count * np.abs(np.rint(distance / choices) * choices - distance)
    misfit = np.where(misfit <= 1e-9 * base, 0.0, misfit)
    return float(choices[int(np.argmin(misfit))])
