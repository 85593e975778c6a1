"""What is protected, and how far: units, neighbours, trust, bounds, guarantees."""

from __future__ import annotations

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
    if type(value) is Neighbors:
        return value
    if isinstance(value, str) and value in tuple(Neighbors):
        return Neighbors(value)
    raise UnknownNameError("neighbors", value, [n.value for n in Neighbors])


def trust(value: object) -> Trust:
    """The trust model of that name.

    >>> trust("local")
    <Trust.LOCAL: 'local'>
    """
    if type(value) is Trust:
        return value
    if isinstance(value, str) and value in tuple(Trust):
        return Trust(value)
    raise UnknownNameError("trust", value, [t.value for t in Trust])


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
        object.__setattr__(self, "lower", checks.extended("lower", self.lower, up=False))
        object.__setattr__(self, "upper", checks.extended("upper", self.upper))
        if not self.lower <= self.upper:
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
        epsilon = checks.extended("epsilon", self.epsilon, "a number >= 0 (∞ for no guarantee)")
        delta = checks.extended("delta", self.delta, "a number from 0 to 1")
        if not epsilon >= 0:
            raise checks.refuse("epsilon", self.epsilon, "a number >= 0 (∞ for no guarantee)")
        if not 0 <= delta <= 1:
            raise checks.refuse("delta", self.delta, "a number from 0 to 1")
        object.__setattr__(self, "epsilon", epsilon + 0.0)
        object.__setattr__(self, "delta", delta + 0.0)
        checks.instance("unit", self.unit, PrivacyUnit, "a PrivacyUnit")
        object.__setattr__(self, "trust", trust(self.trust))

    def __str__(self) -> str:
        return f"ε = {self.epsilon:.4g} at δ = {self.delta:.3g}, hiding {self.unit}, {self.trust} trust"
