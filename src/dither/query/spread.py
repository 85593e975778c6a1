"""What a noisy look tells of how units differ: how many have which norm, what a bound would take away, and how sure that is.

Noise hides the few units that have most, and they weigh most. So the bins are believed up to the last that stands out of the noise; for
those beyond, a tail is guessed that goes on as the bins before it do, and is held against the noisy bins that it passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dither.query.bounding import Measure, Norm, Profile

_FALLS, _BENDS = np.linspace(0.2, 1.0, 33), np.array([0.98, 0.96, 0.93, 0.88, 0.8])  # shapes a tail of norms may have
_MISFIT = 0.1  # how far, relatively, a bin may be from such a shape


@dataclass(frozen=True, slots=True)
class Spread:
    """How many units have which norm, as far as the noise lets one see: two points for each bin, ``mass`` in L1 steps."""

    norms: NDArray[np.float64]
    units: NDArray[np.float64]
    mass: NDArray[np.float64]
    doubts: NDArray[np.float64]
    """The standard deviation of each number of units."""
    tail: int
    """From this bin on, numbers are guessed from the others, and wrong together."""

    def lost(self, limit: float) -> float:
        """The share of the total that a bound takes away."""
        total = float(self.mass.sum())
        return float((self.mass * self._cut(limit)).sum()) / total if total else 0.0

    def doubt(self, limit: float) -> float:
        """How far that share may be off, at about 95 %, with half a per cent, and 30 % of it, for what bins do not tell."""
        share = self.lost(limit)
        each = np.divide(self.mass, self.units, out=self.norms.copy(), where=self.units > 0)
        moved = (each * (self._cut(limit) - share) * self.doubts / float(self.mass.sum())).reshape(-1, 2).sum(axis=1)
        found = math.hypot(*moved[: self.tail].tolist(), float(moved[self.tail :].sum()), 0.15 * share + 0.0025)
        return min(1.0, 2 * found)

    def _cut(self, limit: float) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.maximum(0.0, 1 - limit / self.norms)
        return found


def _spread(measure: Measure, profile: Profile) -> Spread:
    """The profile without the bins that only hold noise; each bin as two points, so that a bound may lie between them."""
    noisy = np.asarray(profile.counts, dtype=np.float64)
    edges = np.asarray(profile.edges, dtype=np.float64)
    units, doubts, tail = _cleaned(noisy, profile.noise_scale)
    below = np.concatenate(([edges[0] / math.sqrt(2)], edges[:-1]))
    norms = np.stack([below**0.75 * edges**0.25, below**0.25 * edges**0.75], axis=1)
    if measure.kind != "sum" and profile.norm == "l1":
        rows = np.floor(edges / measure.row + 1e-9), np.floor(below / measure.row + 1e-9)
        for k in np.flatnonzero((rows[0] <= 16) & (edges >= measure.row)).tolist():  # few whole numbers lie in the bin
            inside = np.arange(rows[1][k] + 1, rows[0][k] + 1) * measure.row
            norms[k] = inside.mean() if inside.size else edges[k]
    parts = _halves(units, profile.noise_scale)
    flat, halves = norms.reshape(-1), (units[:, None] * parts).reshape(-1)
    return Spread(flat, halves, flat * halves, (doubts[:, None] * parts).reshape(-1), tail)


def _halves(units: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """How each bin's units divide over its lower and its upper half: as steeply as the bins beside it rise or fall."""
    beside = np.concatenate(([units[0]], units, [0.0])) + scale + 1.0
    upper = np.clip(beside[2:] / beside[:-2], 1e-3, 1e3) ** 0.25
    return np.stack([1 / (1 + upper), upper / (1 + upper)], axis=1)


def _cleaned(noisy: NDArray[np.float64], scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Counts ≥ 0, how far they may be off, and from where they are guesses.

    Counts are as they are up to the last bin that stands out of the noise, and beyond it a tail that fits all bins.
    """
    top = _top(noisy, scale) if scale else noisy.size - 1
    if top is None:
        return np.zeros_like(noisy), np.zeros_like(noisy), 0
    units, doubts = np.maximum(noisy, 0.0), np.full_like(noisy, scale * math.sqrt(2))
    if top < noisy.size - 1:
        units[top + 1 :], doubts[top + 1 :] = _tail(noisy, top, scale)
    return units, doubts, top + 1


def _top(noisy: NDArray[np.float64], scale: float) -> int | None:
    """The last bin that stands out of the noise, alone or with its neighbours; by chance in about 1 of 10,000 looks."""
    far = math.log(noisy.size / 2e-4)
    ends = []
    for width in (w for w in (1, 2, 4) if w <= noisy.size):
        sums = np.convolve(noisy, np.ones(width), "valid")
        out = np.flatnonzero(sums > scale * (far + math.sqrt(2 * (width - 1) * far)))
        if out.size:
            ends.append(int(out[-1] + np.argmax(noisy[out[-1] : out[-1] + width])))
    return max(ends, default=None)


def _tail(noisy: NDArray[np.float64], top: int, scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The bins above ``top``, and their doubts: the mean of all tails A · fall^k · bend^(k²), weighed by how well they fit the bins."""
    first = max(int(np.argmax(noisy[: top + 1])), top - 6)
    steps = np.arange(first - top, noisy.size - top, dtype=np.float64)
    seen = noisy[first:]
    weights = 1 / (2 * scale * scale + np.maximum(seen, 0.0) + (_MISFIT * seen) ** 2)
    shapes = np.exp(np.log(_FALLS)[:, None, None] * steps + np.log(_BENDS)[None, :, None] * steps**2).reshape(-1, steps.size)
    precision = (shapes * shapes * weights).sum(axis=1)
    sizes = np.maximum(0.0, (shapes * seen * weights).sum(axis=1) / precision)
    tails = sizes[:, None] * shapes
    misfit = ((seen - tails) ** 2 * weights).sum(axis=1)
    likely = np.exp((misfit.min() - misfit) / 2)
    likely /= likely.sum()
    mean: NDArray[np.float64] = likely @ tails
    doubts: NDArray[np.float64] = np.sqrt(likely @ (shapes * shapes / precision[:, None] + (tails - mean) ** 2))
    return mean[top + 1 - first :], doubts[top + 1 - first :]


def _coupled(spread: Spread, first: Spread) -> Spread:
    """The spread of L2 norms with the L1 mass of the units that have the same rank by L1 norm."""
    if not spread.units.sum() or not first.units.sum():
        return spread
    ranks = np.concatenate(([0.0], np.cumsum(first.units) / first.units.sum()))
    mass = np.concatenate(([0.0], np.cumsum(first.mass)))
    wanted = np.concatenate(([0.0], np.cumsum(spread.units) / spread.units.sum()))
    return replace(spread, mass=np.diff(np.interp(wanted, ranks, mass)))


def spreads(measure: Measure, profiles: tuple[Profile, ...]) -> dict[Norm, Spread]:
    """What the profiles of one measure tell, by norm."""
    found: dict[Norm, Spread] = {p.norm: _spread(measure, p) for p in profiles if p.measure == measure.name}
    if "l1" in found and "l2" in found:
        found["l2"] = _coupled(found["l2"], found["l1"])
    return found
