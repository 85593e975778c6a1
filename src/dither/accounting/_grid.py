"""From a pair to two laws on a lattice: one whose profile lies above the pair's, one whose profile lies below.

The profile of (P, Q) is H(α) = sup_S P(S) − αQ(S). A law with mass p_i at the losses s_i has the profile
Σ_i p_i (1 − α e^{−s_i})₊ + p_inf, a convex polyline with its corners at α_i = e^{s_i}. A polyline through points of H lies
above it (Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022); one whose every piece lies below a line α ↦ P(S) − αQ(S)
lies below it. Both survive composition. The proofs are in docs/proofs/composition.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dither.accounting._pair import Array, Masses

Whole = NDArray[np.int64]


class Law(NamedTuple):
    """P-mass ``p`` at the losses origin + step·index, ``p_inf`` at +∞; what is missing to 1 is left out of the price."""

    index: Whole
    p: Array
    p_inf: float
    origin: float
    step: float

    @property
    def losses(self) -> Array:
        """Where the masses sit."""
        return self.origin + self.step * self.index


def pessimistic(index: Whole, step: float, cells: Masses) -> Law:
    """Connect the dots: each cell's P- and Q-mass is put on its two ends; what is above the last dot goes to +∞.

    >>> law = pessimistic(np.array([0, 1]), 1.0, Masses(np.array([0.0, 0.5, 0.5]), np.array([0.5, 0.25, 0.1]), 0.0))
    >>> law.p_inf, bool(law.p[1] > law.p[0])
    (0.5, True)
    """
    edges = step * index
    p, q = cells.p[1:-1], cells.q[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        over = edges[:-1] + np.log(q) - np.log(p)  # minus how far the cell's mean loss log(P/Q) is above its lower end
        up = np.expm1(over) / np.expm1(edges[:-1] - edges[1:])
    up = np.where(np.isfinite(up), np.clip(up, 0.0, 1.0), 1.0) * p
    made = np.empty(len(index))
    made[0] = cells.p[0]
    made[1:] = up
    made[:-1] += p - up
    some = made > 0
    return Law(index[some], made[some], cells.p_inf + float(cells.p[-1]), 0.0, step)


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
    with np.errstate(divide="ignore"):
        below = (origin + step * index) + np.log(q) - np.log(p)
    below = np.where(np.isfinite(below), below, 0.0)  # a Q-mass too small for a float: see the proof
    with np.errstate(over="ignore"):
        excess = -p * np.expm1(below)
    return lowered(index, origin, step, p, excess, cells.p_inf)


def lowered(index: Whole, origin: float, step: float, p: Array, excess: Array, p_inf: float) -> Law:
    """The optimistic law from masses and ``excess`` x_i = P_i − e^{s_i} Q_i of the cells whose corners are s_i."""
    if not len(index):
        return Law(index, p, p_inf, origin, step)
    if excess[-1] < 0:  # the last line is constant, so the last corner may not lie above the cell's mean loss
        p = p.copy()
        p[-1] += excess[-1]
        excess = np.append(excess[:-1], 0.0)
        if not p[-1] > 0:
            return lowered(index[:-1], origin, step, p[:-1], excess[:-1], p_inf)
    above, under = np.maximum(excess, 0.0), np.maximum(-excess, 0.0)
    gaps = step * np.diff(index)
    turn = above[1:] - under[:-1]
    made = p - excess
    with np.errstate(over="ignore"):
        made[1:] += turn / -np.expm1(-gaps)
        made[:-1] -= turn / np.expm1(gaps)
    law = _convex(Law(index, made, p_inf, origin, step))
    if law is None:  # nothing right of the last corner can make up for it: leave its cell out of the price
        return lowered(index[:-1], origin, step, p[:-1], excess[:-1], p_inf)
    return law


def _convex(law: Law) -> Law | None:
    """A convex polyline with some of these corners, nowhere above the given one; None when the last corner is negative.

    A corner of negative mass is given up, and its mass put on its neighbours with the Q-mean kept, which lowers the line.
    """
    index, p = law.index, law.p
    while True:
        if not p[-1] >= 0:
            return None
        bad = np.flatnonzero(p < 0)
        if not len(bad):
            return law._replace(index=index, p=p)
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
            with np.errstate(over="ignore"):
                p[1] += p[0] * np.exp(law.step * float(index[1] - index[0]))
        keep = np.ones(len(p), dtype=bool)
        keep[bad] = False
        index, p = index[keep], p[keep]
