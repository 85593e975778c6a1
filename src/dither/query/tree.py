"""Quantiles from a tree of noisy counts over the range of a value.

The range is cut into at most 4096 equal leaves, 64 to each node above; leaves and nodes of every group are counted with noise. A row counts
once on each level, and a unit's vector over all of them is bounded as any other, by its norm: the leaves are scaled, the nodes are sums
of scaled leaves. Counts that ought to agree are made to (weighted averages upward, differences spread downward), a running count is
read off, and a quantile is where it crosses its share of the whole, between the edges of a leaf in proportion. All of this follows from
the noisy counts alone and costs nothing.

All quantiles of a value are had from one such tree, whose error hardly depends on how many there are, and a unit's many rows
are bounded by scaling in L2. The exponential mechanism over ranks (``noise.Quantiles``) would need one row of each unit, or its ε for as
many as a unit may have, and its ε again for each level of quantiles.

Guarantee:
    Scaled leaves are whole numbers v' with |v'| ≤ |v|·C/N, N being the norm of all nodes and leaves of the unit or more. A node's v' is the
    sum of its leaves', so |v'| ≤ |v|·C/N holds for it too, and the norm of the whole vector is at most C. The event is that of the
    measure's own mechanism. The rest is post-processing.
Edge cases:
    No rows, or noise above the counts: an answer within the range all the same, and never a NaN. Values outside of the range count in
    the first or last leaf. Whole numbers of few values have a leaf each, and the answer is one of them.
Reference:
    Hay, Rastogi, Miklau & Suciu 2010, Theorem 3 (consistency); variances of the running count: ``deviation`` here, tested against
    simulation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dither.query.facts import Type

FAN = 64
LEAVES_MAX = 4096

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tree:
    """The range of a value cut into leaves: ``levels`` levels, 64 nodes on the first, 64 times as many on the next."""

    low: float
    high: float
    leaves: int
    whole: bool
    """Whether each leaf is one whole number."""

    @property
    def levels(self) -> int:
        """How often one row counts."""
        return max(1, math.ceil(math.log(self.leaves, FAN) - 1e-9))

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many nodes each level has."""
        return tuple(FAN**n for n in range(1, self.levels + 1))

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return sum(self.sizes)

    def leaf(self, value: str) -> str:
        """The leaf that a row's value falls into, as SQL (NULL for NULL)."""
        factor = 1.0 if self.whole else self.leaves / (self.high - self.low)
        scaled, last = f"({value} - {self.low!r}::DOUBLE) * {factor!r}::DOUBLE", self.leaves - 1
        inside = f"WHEN {scaled} > 0 THEN floor({scaled}) WHEN {scaled} <= 0 THEN 0"
        return f"CAST(CASE WHEN {scaled} >= {last} THEN {last} {inside} END AS INTEGER)"

    def edges(self, places: Floats) -> Floats:
        """Values at places counted in leaves."""
        if self.whole:
            return np.asarray(np.clip(np.ceil(places) - 1, 0, self.leaves - 1) + self.low)  # of the leaf in which it is reached
        return np.asarray(self.low + np.clip(places, 0, self.leaves) / self.leaves * (self.high - self.low))


def tree_of(low: float, high: float, kind: Type) -> Tree:
    """The tree for a value of that range.

    >>> tree_of(0, 500, "float").levels, tree_of(0, 120, "int").leaves
    (2, 121)
    """
    if kind == "int" and high - low < LEAVES_MAX:
        return Tree(float(low), float(high), int(high) - int(low) + 1, whole=True)
    return Tree(float(low), float(high), LEAVES_MAX, whole=False)


# ------------------------------------------------------------------------------------------------ counts that agree


def with_nodes(leaves: NDArray[np.int64], tree: Tree) -> NDArray[np.int64]:
    """The counts of all nodes and leaves, level by level from the top: one row for each group; ``leaves`` as many as the last level has.

    >>> with_nodes(np.ones((1, 4096), dtype=np.int64), tree_of(0, 500, "float"))[0, [0, 63, 64]].tolist()
    [64, 64, 1]
    """
    found = [leaves]
    for _ in range(tree.levels - 1):
        found.insert(0, found[0].reshape(len(leaves), -1, FAN).sum(axis=2))
    return np.concatenate(found, axis=1)


def consistent(counts: Floats, tree: Tree) -> Floats:
    """The leaves' counts, one row for each group, from noisy counts of all nodes, level by level from the top.

    >>> tree = tree_of(0, 15, "int")
    >>> float(consistent(np.arange(64.0).reshape(1, 64), tree)[0, 3])
    3.0
    """
    groups, starts = counts.shape[0], np.cumsum((0, *tree.sizes))
    held = [counts[:, a:b] for a, b in itertools.pairwise(starts.tolist())]
    z: list[Floats] = [held[-1]]
    for height, own in enumerate(reversed(held[:-1]), start=2):
        below = z[0].reshape(groups, own.shape[1], FAN).sum(axis=2)
        top, less = FAN**height, FAN ** (height - 1)
        z.insert(0, (top - less) / (top - 1) * own + (less - 1) / (top - 1) * below)
    found = z[0]
    for level in z[1:]:
        parts = level.reshape(groups, found.shape[1], FAN)
        found = (parts + (found - parts.sum(axis=2))[:, :, None] / FAN).reshape(groups, level.shape[1])
    return found[:, : tree.leaves]


@lru_cache(maxsize=64)
def deviation(levels: int) -> Floats:
    """The standard deviation of the running count at each edge of a leaf, for noise of standard deviation 1 on every node."""
    variances = [1.0]
    for _ in range(levels - 1):
        variances.insert(0, 1 / (1 + 1 / (FAN * variances[0])))
    places = np.arange(FAN**levels + 1)
    part, found = np.zeros(places.size), np.zeros(places.size)
    for level in range(levels - 1, -1, -1):
        digit = places // FAN ** (levels - 1 - level) % FAN
        if level == 0:
            digit = places // FAN ** (levels - 1)
        total, squares = digit + part, digit + part * part
        found += variances[level] * (squares - (total * total / FAN if level else 0.0))
        part = total / FAN
    return np.sqrt(np.maximum(found, 0.0))


# ------------------------------------------------------------------------------------------------ quantiles


def quantiles(leaves: Floats, tree: Tree, levels: Sequence[float], noise_std: float) -> tuple[Floats, Floats]:
    """The quantiles of each group and their half widths at 95 %, as arrays of (group, level)."""
    running = np.concatenate([np.zeros((leaves.shape[0], 1)), np.cumsum(leaves, axis=1)], axis=1)
    up = np.maximum.accumulate(running, axis=1)
    down = np.minimum.accumulate(running[:, ::-1], axis=1)[:, ::-1]
    steady = np.maximum((up + down) / 2, 0.0)
    spread = 1.96 * noise_std * deviation(tree.levels)[: tree.leaves + 1]
    found, widths = np.empty((len(leaves), len(levels))), np.empty((len(leaves), len(levels)))
    for g, counts in enumerate(steady):
        total = counts[-1]
        for k, level in enumerate(levels):
            if total <= 0:
                found[g, k], widths[g, k] = tree.low + level * (tree.high - tree.low), tree.high - tree.low
                continue
            place = _crossing(counts, level * total)
            off = spread[min(int(place) + 1, tree.leaves)]
            ends = tree.edges(np.array([_crossing(counts, level * total - off), place, _crossing(counts, level * total + off)]))
            found[g, k] = ends[1]
            widths[g, k] = max(ends[2] - ends[1], ends[1] - ends[0], 0.0 if tree.whole else (tree.high - tree.low) / tree.leaves)
    return found, widths


def _crossing(counts: Floats, target: float) -> float:
    """Where the running count reaches a number, in leaves: in proportion within the leaf, in the middle of a stretch of empty ones."""
    last = len(counts) - 1
    above = int(np.searchsorted(counts, target, side="left"))
    if above == 0:  # nothing lies below: the first leaf that holds something
        return max(int(np.searchsorted(counts, counts[0], side="right")) - 1, 0) + 1e-6
    if above > last:
        return float(last)
    step = counts[above] - counts[above - 1]
    return above - 1 + (target - counts[above - 1]) / step if step > 0 else float(above)
