"""What is protected, and how far: units, neighbours, trust, bounds, guarantees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError


class Neighbors(StrEnum):
    """Which two datasets must look alike: one unit more or less, or one unit's data changed for another's."""

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"


class Trust(StrEnum):
    """Who sees the raw data: a curator, no one, no one behind a shuffler, or no one behind secure aggregation."""

    CENTRAL = "central"
    LOCAL = "local"
    SHUFFLE = "shuffle"
    DISTRIBUTED = "distributed"


def neighbors(value: object) -> Neighbors:
    """The relation of that name.

    >>> neighbors("replace")
    <Neighbors.REPLACE: 'replace'>
    """
    try:
        return Neighbors(value)  # type: ignore[arg-type]  # any object may be asked for; unknown ones raise
    except ValueError:
        raise UnknownNameError("neighbors", value, [n.value for n in Neighbors]) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyUnit:
    """What is hidden: one row of ``dataset``, or all rows that share one value of ``key``."""

    dataset: str
    key: str | None = None
    neighbors: Neighbors = Neighbors.ADD_REMOVE

    def __post_init__(self) -> None:
        checks.text("dataset", self.dataset)
        if self.key is not None:
            checks.text("key", self.key)
        object.__setattr__(self, "neighbors", neighbors(self.neighbors))

    def __str__(self) -> str:
        what = "one row" if self.key is None else f"one {self.key}"
        how = "present or absent" if self.neighbors is Neighbors.ADD_REMOVE else "replaced by another"
        return f"{what} of {self.dataset} ({how})"


@dataclass(frozen=True, slots=True)
class Bound:
    """A number known to lie in [lower, upper]. Decisions use ``upper``; never the middle."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if math.isnan(self.lower) or math.isnan(self.upper) or not self.lower <= self.upper:
            raise InputError(f"Bound({self.lower!r}, {self.upper!r}) is not allowed: expected lower <= upper.")

    @property
    def width(self) -> float:
        """How far apart the two sides are."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(ε, δ) with the unit it hides and whom it trusts: an ε without them means nothing."""

    epsilon: float
    delta: float
    unit: PrivacyUnit
    trust: Trust = Trust.CENTRAL

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise checks.refuse("epsilon", self.epsilon, "a number >= 0 (∞ for no guarantee)")
        if not 0 <= self.delta <= 1:
            raise checks.refuse("delta", self.delta, "a number from 0 to 1")
        checks.instance("unit", self.unit, PrivacyUnit, "a PrivacyUnit")
        checks.instance("trust", self.trust, Trust, "a Trust")

    def __str__(self) -> str:
        return f"ε = {self.epsilon:.4g} at δ = {self.delta:.3g}, hiding {self.unit}, {self.trust} trust"
