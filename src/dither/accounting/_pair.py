"""The contract between what is priced and how it is composed: a dominating pair of distributions (P, Q).

A pair bounds one release in one direction: for every pair of neighbours (D, D') in that direction and every α ≥ 0,
H_α(M(D) ‖ M(D')) ≤ H_α(P ‖ Q), with H_α(P ‖ Q) = sup_S P(S) − αQ(S). Dominating pairs compose, adaptively too
(Zhu, Dong & Wang 2022, Theorem 10). All that is needed of a pair is the law of its loss L = log dP/dQ, under P and
under Q. A pair knows nothing of counts: repetition is the business of ``_compose`` alone.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

FEEBLE = 1e-300
"""Below it masses lose digits: a Q-mass as small is counted as none from above, which raises δ."""


class Masses(NamedTuple):
    """P- and Q-mass of the loss in the cells cut by n increasing edges; n + 1 cells, each open below, closed above.

    Cells: (−∞, e₀], (e₀, e₁], …, (eₙ₋₂, eₙ₋₁], (eₙ₋₁, ∞). Losses of +∞ (P-mass where Q has none) are in ``p_inf``,
    not in the last cell; Q-mass where P has none is in no cell. Each mass is accurate to a few ulps of *itself* (not
    of 1) wherever that is possible: tails are computed as tails, differences as differences.
    """

    p: Array
    q: Array
    p_inf: float


class Pair(Protocol):
    """A dominating pair, seen through its loss."""

    def masses(self, edges: Array) -> Masses:
        """Masses of the loss between increasing finite edges."""
        ...

    def span(self, log_tail: float) -> tuple[float, float]:
        """(low, high) finite: P(L ≤ low) and P(high < L < ∞) are each at most exp(log_tail)."""
        ...

    def std(self) -> float:
        """Roughly the standard deviation of the loss (0 only if it is constant). Sets the grid, decides nothing."""
        ...

    def lattice(self) -> float:
        """A step of which every atom of the loss is a whole multiple, or 0.0 when there is none worth keeping to."""
        ...
