"""From a pair to two laws on a lattice: one whose profile lies above the pair's, one whose profile lies below.

The profile of (P, Q) is H(α) = sup_S P(S) − αQ(S). A law with mass p_i at the losses s_i has the profile
Σ_i p_i (1 − α e^{−s_i})₊ + p_inf, a convex polyline with its corners at α_i = e^{s_i}. A polyline through points of H lies
above it (Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022); one whose every piece lies below a line α ↦ P(S) − αQ(S)
lies below it. Both survive composition. The proofs are in docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solveh_banded

from dither.accounting._pair import FEEBLE, Array, Masses, Pair

Whole: TypeAlias = NDArray[np.int64]

_SETTLE_MAX = 1e-13
_SPREAD_MAX = 600.0
_SLACK = 4e-16  # of a mean loss: what log(P/Q) of two masses right to an ulp may be off; given back in ``Composition``


@dataclass(frozen=True, slots=True)
class Law:
    """P-mass ``p`` at the losses origin + step·index, ``p_inf`` at +∞; what is missing to 1 is left out of the price.

    ``garbage`` bounds, in the 1-norm under the tilt of the composition, how far the masses may be from those of a valid law.
    """

    index: Whole
    p: Array
    p_inf: float
    origin: float
    step: float
    garbage: float = 0.0

    @property
    def losses(self) -> Array:
        """Where the masses sit."""
        return np.asarray(self.origin + self.step * self.index, dtype=np.float64)


# ------------------------------------------------------------------------------------------------ from above


def pessimistic(index: Whole, step: float, cells: Masses, origin: float = 0.0) -> Law:
    """Connect the dots: each cell's P- and Q-mass is put on its two ends; what is above the last dot goes to +∞.

    >>> law = pessimistic(np.array([0, 1]), 1.0, Masses(np.array([0.0, 0.5, 0.5]), np.array([0.5, 0.25, 0.1]), 0.0))
    >>> law.p_inf, bool(law.p[1] > law.p[0])
    (0.5, True)
    """
    edges = origin + step * index
    p, q = cells.p[1:-1], cells.q[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        over = edges[:-1] + np.log(q) - np.log(p)  # minus how far the cell's mean loss log(P/Q) is above its lower end
        up = np.expm1(over) / np.expm1(edges[:-1] - edges[1:])
    near = (1 - up) * np.diff(edges) <= _SLACK  # an atom on the upper end: up all of it, not all but the rounding of a logarithm
    up = np.where(np.isfinite(up) & ~near & (q >= FEEBLE), np.clip(up, 0.0, 1.0), 1.0) * p
    made = np.empty(len(index))
    made[0] = cells.p[0]
    made[1:] = up
    made[:-1] += p - up
    p_inf = cells.p_inf + float(cells.p[-1])
    with np.errstate(over="ignore"):
        lost = float(cells.q[0]) - float(cells.p[0]) * math.exp(min(-float(edges[0]), 700.0)) + float(cells.q[-1])
    some = made > 0
    law = Law(index[some], made[some], p_inf, origin, step)
    return settled(law, p_inf - lost) if _whole(cells) else law


def _relabelled(law: Law, step: float) -> Law | None:
    """The law itself where its step is a whole multiple of the new one; None where it is not."""
    times = round(law.step / step)
    if not abs(law.step / step - times) <= 4e-16 * times:
        return None
    return replace(law, index=law.index * times, step=step, garbage=2 * law.garbage)


def split(law: Law, step: float) -> Law:
    """The law moved up to another lattice: each atom is split over the two points around it."""
    same = _relabelled(law, step)
    if same is not None:
        return same
    losses = law.losses
    left = np.floor(losses / step).astype(np.int64)
    rise = np.clip(losses - step * left, 0.0, step)
    up = law.p * np.expm1(-rise) / math.expm1(-step)
    first, size = int(left.min()), int(left.max() - left.min()) + 2
    made = np.asarray(np.bincount(left - first, law.p - up, size) + np.bincount(left + 1 - first, up, size), dtype=np.float64)
    used = np.flatnonzero(made > 0)
    return Law(used + first, made[used], law.p_inf, 0.0, step, 2 * law.garbage)


def _whole(cells: Masses) -> bool:
    """Whether both laws are all there: no Q-mass where P has none."""
    return abs(float(cells.q.sum()) - 1) < 1e-12 and abs(float(cells.p.sum()) + cells.p_inf - 1) < 1e-12


def settled(law: Law, balance: float) -> Law:
    """The law moved by a rounding error, so that Σ p (e^{−s} − 1) is exactly the ``balance`` that arithmetic without rounding gives.

    Of masses that are right to 2⁻⁵², losses of 1e-9 have a mean, about 1e-18, that is lost; this gives it back.
    """
    losses = law.losses
    if not law.p.any() or float(np.abs(losses).max()) > 1:
        return law
    move = (float(law.p @ np.expm1(-losses)) - balance) / float(law.p @ np.exp(-losses))
    return replace(law, origin=law.origin + move) if abs(move) < _SETTLE_MAX else law


# ------------------------------------------------------------------------------------------------ from below


def optimistic(index: Whole, origin: float, step: float, cells: Masses) -> Law:
    """The polyline with a corner at each ``index``, one per inner cell, that lies below the tangents of H at the cuts.

    ``cells`` are cut so that the i-th inner cell belongs to the i-th corner; the two outer cells are left out.

    >>> cells = Masses(np.array([0.0, 0.5, 0.5, 0.0]), np.array([0.0, 0.6, 0.4, 0.0]), 0.0)
    >>> law = optimistic(np.array([0, 1]), -0.2, 0.4, cells)
    >>> bool(law.p.sum() <= 1)
    True
    """
    p, q = cells.p[1:-1], cells.q[1:-1]
    keep = p > 0
    index, p, q = index[keep], p[keep], q[keep]
    index, origin, p, q = _merged(index, origin, step, p, q)
    excess = _excess(index, origin, step, p, q)
    law = lowered(index, origin, step, p, excess, cells.p_inf)
    if not len(p) or not _whole(cells):
        return law
    dropped = float(cells.p[0] - cells.q[0]) + float(cells.p[-1] - cells.q[-1])
    return settled(law, cells.p_inf + dropped + max(float(excess[0]), 0.0))


def _excess(index: Whole, origin: float, step: float, p: Array, q: Array) -> Array:
    """P − e^corner Q of each cell."""
    with np.errstate(divide="ignore"):
        below = (origin + step * index) + np.log(q) - np.log(p)
    below = np.where(np.isfinite(below), below, 0.0)  # a Q-mass too small for a float: see the proof
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(-p * np.expm1(below), -1e300))


def _merged(index: Whole, origin: float, step: float, p: Array, q: Array) -> tuple[Whole, float, Array, Array]:
    """Without cuts where, right of the bulk, masses fall too steeply for the corners: such cells join the one on their left.

    A corner above its cell's mean loss takes from the next, and if that holds too little, from all to the right, where the tail
    that matters may be. Fewer cuts are valid, and cost what the losses of these cells are worth; all corners move up by what the
    mean loss of the bulk gained.
    """
    for _ in range(100):
        most = int(np.argmax(p)) if len(p) else 0
        excess = _excess(index, origin, step, p, q)
        steep = np.append(-2 * excess[:-1] > step * np.diff(index) * p[1:], False)
        steep[: most + 1] = False
        if len(p) < 3 or not steep.any():
            break
        starts = np.flatnonzero(~steep)
        index, p, q = index[starts], np.add.reduceat(p, starts), np.add.reduceat(q, starts)
        gained = math.log(float(p[most]) / max(float(q[most]), FEEBLE)) - (origin + step * float(index[most]))
        origin += gained - 4 * _SLACK if 4 * _SLACK < gained < 0.5 * step else 0.0
    return index, origin, p, q


def lowered(index: Whole, origin: float, step: float, p: Array, excess: Array, p_inf: float) -> Law:
    """The optimistic law from masses and ``excess`` x_i = P_i − e^{s_i} Q_i of the cells whose corners are s_i."""
    given_up = 1
    while len(index):
        index, p, excess = _ended(index, step, p, excess)
        above, under = np.maximum(excess, 0.0), np.maximum(-excess, 0.0)
        gaps = step * np.diff(index)
        turn = above[1:] - under[:-1]
        made = p - excess
        with np.errstate(over="ignore"):
            made[1:] += turn / -np.expm1(-gaps)
            made[:-1] -= turn / np.expm1(gaps)
        law = _convex(Law(index, made, p_inf, origin, step))
        if law is not None:
            return law
        # nothing right of the last corner can make up for it: leave its cell out of the price
        index, p, excess = index[:-given_up], p[:-given_up], excess[:-given_up]
        given_up *= 2
    return Law(np.zeros(1, dtype=np.int64), np.zeros(1), p_inf, origin, step)


def _ended(index: Whole, step: float, p: Array, excess: Array) -> tuple[Whole, Array, Array]:
    """The same with the last corner at or below its cell's mean loss: right of it the line is constant, and none is lower.

    Where it lies above, it goes down to the next lattice point, or into the corner before.
    """
    index, p, excess, n = index.copy(), p.copy(), excess.copy(), len(p)
    while excess[n - 1] < -_SLACK * p[n - 1]:
        mass, over = float(p[n - 1]), float(excess[n - 1])
        below = math.log1p(-over / mass)  # e^corner Q = P − x, so the mean loss is log(1 − x/P) under the corner
        here = int(index[n - 1])
        place = here - math.ceil(below / step)
        merge = n > 1 and place <= index[n - 2]
        place = int(index[n - 2]) if merge else place
        rest = mass - (mass - over) * math.exp(-step * (here - place))
        if merge:
            n -= 1
            p[n - 1] += mass
            excess[n - 1] += rest
        else:
            index[n - 1], excess[n - 1] = place, max(rest, 0.0)
    excess[n - 1] = max(excess[n - 1], 0.0)
    return index[:n], p[:n], excess[:n]


def _convex(law: Law) -> Law | None:
    """A convex polyline with some of these corners, nowhere above the given one; None when the last corner is negative.

    A corner of negative mass is given up, and its mass put on its neighbours with the Q-mean kept, which lowers the line.
    """
    index, p = law.index, law.p
    for _ in range(40):
        if not p[-1] >= 0:
            return None
        bad = np.flatnonzero(p < 0)
        if not len(bad):
            return replace(law, index=index[p > 0], p=p[p > 0])
        run = np.cumsum(np.concatenate(([0], np.diff(bad) > 1)))
        first = bad[np.searchsorted(run, run)]
        bad = bad[(bad - first) % 2 == 0]  # of neighbours every other one, so that each has both sides left
        p = p.copy()
        inner = bad[bad > 0]
        gap_left = law.step * (index[inner] - index[inner - 1])
        gap_right = law.step * (index[inner + 1] - index[inner])
        whole = np.expm1(-gap_left - gap_right)
        np.add.at(p, inner + 1, p[inner] * np.expm1(-gap_left) / whole)
        np.add.at(p, inner - 1, p[inner] * np.expm1(-gap_right) * np.exp(-gap_left) / whole)
        if bad[0] == 0:
            p[1] += p[0] * math.exp(min(law.step * float(index[1] - index[0]), 700.0))
        keep = np.ones(len(p), dtype=bool)
        keep[bad] = False
        index, p = index[keep], p[keep]
    return _convex_one_by_one(replace(law, index=index, p=p))


def _convex_one_by_one(law: Law) -> Law | None:
    """As ``_convex``, corner by corner, for the rare law in which a dip spreads far."""
    places: list[int] = []
    masses: list[float] = []
    rows = list(zip(law.index.tolist(), law.p.tolist(), strict=True))
    owed = 0.0
    for k, (place, given) in enumerate(rows):
        places.append(place)
        masses.append(given + owed)
        owed = 0.0
        if k + 1 == len(rows):
            break
        while masses and masses[-1] < 0:
            gap_right = law.step * (rows[k + 1][0] - places[-1])
            mass, here = masses.pop(), places.pop()
            if not masses:
                owed += mass * math.exp(min(gap_right, 700.0))
                break
            gap_left = law.step * (here - places[-1])
            whole = math.expm1(-gap_left - gap_right)
            owed += mass * math.expm1(-gap_left) / whole
            masses[-1] += mass * math.expm1(-gap_right) * math.exp(-gap_left) / whole
    if not masses[-1] >= 0:
        return None
    made = np.array(masses)
    return replace(law, index=np.array(places, dtype=np.int64)[made > 0], p=made[made > 0])


@dataclass(frozen=True, slots=True)
class Corners:
    """A first choice of cells for a law from below: cuts, one corner per inner cell, and which cells hold an atom."""

    cuts: Array
    index: Whole
    origin: float
    step: float
    atoms: NDArray[np.bool_]


def centred(pair: Pair, corners: Corners, tilt: float, affordable: float, cells: Masses | None = None) -> Law:
    """The optimistic law, its cuts moved until the cells' mean losses are at the corners.

    A cell whose mean loss is off its corner costs as much as it is off. Any cuts at all give a valid law; damped Newton
    steps look for those whose weighted offsets add to less than ``affordable``.
    """
    cuts, origin, damping = corners.cuts, corners.origin, 1.0
    grid = np.asarray(corners.step * corners.index, dtype=np.float64)
    cells = pair.masses(cuts) if cells is None else cells
    offset, weights = _offsets(cells, origin + grid, tilt)
    drift = float(weights @ np.abs(offset))
    fixed = bool(corners.atoms.any())
    for _ in range(16):
        if drift <= affordable:
            break
        lower, shift = _correction(cuts, cells, origin + grid, offset, weights, corners.atoms)
        shift = 0.0 if fixed else shift
        new_cuts, new_origin = cuts - damping * lower, origin + damping * shift
        new_cells = pair.masses(new_cuts)
        new_offset, new_weights = _offsets(new_cells, new_origin + grid, tilt)
        new_drift = float(new_weights @ np.abs(new_offset))
        if new_drift < drift:
            cuts, origin, cells, offset, weights = new_cuts, new_origin, new_cells, new_offset, new_weights
            drift, damping = new_drift, min(1.0, 1.5 * damping)
        else:
            damping *= 0.4
    return optimistic(corners.index, origin, corners.step, cells)


def _offsets(cells: Masses, middles: Array, tilt: float) -> tuple[Array, Array]:
    """How far each inner cell's mean loss is from its corner, and how much that matters."""
    p, q = cells.p[1:-1], cells.q[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        offset = np.log(p) - np.log(q) - middles
    exponents = tilt * middles
    tilted = p * np.exp(exponents - exponents.max())
    return np.where(np.isfinite(offset), offset, 0.0), np.maximum(p, tilted / max(float(tilted.sum()), 1e-300))


def _correction(cuts: Array, cells: Masses, middles: Array, offset: Array, weights: Array, atoms: NDArray[np.bool_]) -> tuple[Array, float]:
    """By how much to lower the cuts and to raise all corners: a damped Newton step of least norm towards no offset."""
    width = np.diff(cuts)
    p = np.maximum(cells.p[1:-1], 1e-300)
    density = p / width
    if atoms.any():  # at the cut beside an atom the density is that of the other cell
        beside = np.maximum(np.where(atoms, 0.0, density), 1e-300)
        density = np.where(atoms, np.maximum(np.roll(beside, 1), np.roll(beside, -1)), density)
    at_cuts = np.concatenate(([0.0], np.sqrt(density[:-1] * density[1:]), [0.0]))  # next to nothing lies at the outer cuts
    mean = middles + offset
    room = np.concatenate((width[:1], np.minimum(width[:-1], width[1:]), width[-1:]))
    lower = at_cuts[:-1] / p * (mean - cuts[:-1]) * room[:-1]  # d(mean loss) per d(cut / room)
    upper = at_cuts[1:] / p * (cuts[1:] - mean) * room[1:]
    diagonal = (lower**2 + upper**2) * 1.001 + width**2 * 1e-9 / (weights + 1e-14)
    banded = np.zeros((2, len(p)))
    banded[0, 1:], banded[1] = upper[:-1] * lower[1:], diagonal
    solved = solveh_banded(banded, np.column_stack((offset, np.ones(len(p)))), check_finite=False)
    cheap = 0.0 if atoms.any() else 100 * float(width.min()) ** 2  # moving all corners together costs little
    shift = cheap * float(solved[:, 0].sum()) / (1 + cheap * float(solved[:, 1].sum()))
    multiplier = solved[:, 0] - shift * solved[:, 1]
    step = np.zeros(len(cuts))
    step[:-1] += lower * multiplier
    step[1:] += upper * multiplier
    most = float(np.abs(step).max())
    scale = min(1.0, 0.4 / most) if most > 0 else 1.0
    return step * scale * room, shift * scale


# ------------------------------------------------------------------------------------------------ laws as pairs


class Smeared:
    """A lattice law whose atoms may be cut: each is spread evenly over its step, P and Q alike.

    A share of an atom is a randomised set of outcomes, whose line α ↦ P(S) − αQ(S) lies below H as well; so cuts through
    atoms are as good as any for an optimistic law, and for nothing else.
    """

    def __init__(self, law: Law) -> None:
        first, size = int(law.index[0]), int(law.index[-1] - law.index[0]) + 1
        dense = np.zeros(size)
        dense[law.index - first] = law.p
        self._start = law.origin + law.step * (first - 0.5)
        self._step = law.step
        self._p_inf = law.p_inf
        losses = law.origin + law.step * (first + np.arange(size))
        with np.errstate(divide="ignore"):
            q = np.exp(np.log(dense) - losses)
        self._sums = [(np.concatenate(([0.0], np.cumsum(m))), np.concatenate((np.cumsum(m[::-1])[::-1], [0.0]))) for m in (dense, q)]
        self._size = size

    def masses(self, edges: Array) -> Masses:
        """Masses between increasing cuts, atoms cut in proportion; each a difference of the nearer tail."""
        at = np.clip((edges - self._start) / self._step, 0.0, float(self._size))
        whole = np.minimum(at.astype(np.int64), self._size - 1)
        part = at - whole
        made = []
        for below, above in self._sums:
            left = below[whole] + part * (below[whole + 1] - below[whole])
            right = above[whole] + part * (above[whole + 1] - above[whole])
            left, right = np.concatenate(([0.0], left, below[-1:])), np.concatenate((above[:1], right, [0.0]))
            made.append(np.maximum(np.where(left[1:] < right[:-1], np.diff(left), -np.diff(right)), 0.0))
        return Masses(made[0], made[1], self._p_inf)

    def span(self, log_tail: float) -> tuple[float, float]:
        """From the first to the last atom."""
        del log_tail
        return self._start, self._start + self._step * self._size

    def std(self) -> float:
        """Not asked for."""
        return self._step

    def lattice(self) -> float:
        """None to keep to."""
        return 0.0


def gathered(law: Law, step: float, tilt: float, affordable: float) -> Law:
    """The law moved down to another lattice."""
    same = _relabelled(law, step)
    if same is not None:
        return same
    losses = law.losses
    if step > 0.5 or float(losses[-1] - losses[0]) > _SPREAD_MAX:  # e^−loss has no room to be weighed: each atom goes down
        index = np.floor(losses / step).astype(np.int64)
        mass = np.bincount(index - int(index[0]), law.p)
        some = np.flatnonzero(mass > 0)
        return Law(some + int(index[0]), np.asarray(mass[some], dtype=np.float64), law.p_inf, 0.0, step, 2 * law.garbage)
    away = step * round(float(law.p @ losses) / float(law.p.sum()) / step) if float(np.abs(losses).max()) > _SPREAD_MAX else 0.0
    if away:  # all losses moved together, and the law moved back
        made = gathered(replace(law, origin=law.origin - away), step, tilt, affordable)
        return replace(made, index=made.index + round(away / step))
    smeared = Smeared(law)
    low, high = smeared.span(0.0)
    index = np.arange(math.floor(low / step), math.ceil(high / step) + 1, dtype=np.int64)
    cuts = step * (np.append(index, index[-1] + 1) - 0.5)
    corners = Corners(cuts, index, 0.0, step, np.zeros(len(index), dtype=bool))
    return replace(centred(smeared, corners, tilt, affordable), garbage=2 * law.garbage)


def around_atoms(span: tuple[float, float], atoms: Array, origin: float, step: float) -> Corners:
    """Cells for a pair with known atoms: thin ones around them, and between them cells of two steps."""
    low, high = math.floor((span[0] - origin) / step) - 1, math.ceil((span[1] - origin) / step) + 1
    at = np.rint((atoms - origin) / step).astype(np.int64)
    distinct = np.concatenate(([True], np.diff(at) > 0))
    atoms, at = atoms[distinct], at[distinct]
    cuts, index, holds = [origin + step * min(low, int(at[0]) - 2)], [], []
    start = min(low, int(at[0]) - 2)
    thin = 1e-14 * np.abs(atoms) + 1e-9 * step
    for k, (place, spot) in enumerate(zip(at.tolist(), atoms.tolist(), strict=True)):
        middle = np.arange(start + 2, place - 1, 2, dtype=np.int64)
        corner = np.append(middle - 1, (int(middle[-1]) if len(middle) else start) + 1)
        if corner[-1] >= place:  # no room for a corner between two atoms: the space between joins the second
            corner, middle = corner[:-1], middle[:0]
        cuts.extend((origin + step * middle).tolist())
        index.extend(corner.tolist())
        holds.extend([False] * len(corner))
        if len(corner):
            cuts.append(spot - thin[k])
        cuts.append(spot + thin[k])
        index.append(place)
        holds.append(True)
        start = place
    middle = np.arange(start + 2, max(high, start + 2) + 2, 2, dtype=np.int64)
    cuts.extend((origin + step * middle).tolist())
    index.extend((middle - 1).tolist())
    holds.extend([False] * len(middle))
    return Corners(np.array(cuts), np.array(index, dtype=np.int64), origin, step, np.array(holds))
