"""Sums whose sensitivity is what it is said to be: integers of a grid, added exactly.

A sum of floats depends on their order and on every rounding on the way, so that one more row can move it by far more
than the row's bound (Casacuberta, Shoemate, Vadhan & Wagaman 2022). Here each row is clamped and rounded on its own to
a whole number of steps, and whole numbers add up the same in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dither.core import checks
from dither.noise._values import INTEGER_MAX, numbers

_FINE = 40  # the step is this many binary places below the larger bound, unless another is asked for
_EXPONENT_MAX = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSum:
    """The sum of values clamped to [lower, upper], each rounded to the nearest whole number of ``step`` (a power of two).

    ``total`` is the exact integer number of steps; ``per_row`` the exact integers that one row can add. Which rows there
    are decides the sum; in what order or in what chunks they come does not. NaN counts as 0, clamped like any value.

    >>> grid = GridSum(lower=0.0, upper=100.0, step=0.25)
    >>> grid.total([0.1, 250.0, float("nan"), 3.3]), grid.per_row
    (413, (0, 400))
    >>> grid.value(413)
    103.25
    """

    lower: float
    upper: float
    step: float = 0.0
    per_row: tuple[int, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        lower = checks.between("lower", self.lower, -(2.0**_EXPONENT_MAX), 2.0**_EXPONENT_MAX)
        upper = checks.between("upper", self.upper, -(2.0**_EXPONENT_MAX), 2.0**_EXPONENT_MAX)
        if not lower < upper:
            raise checks.refuse("lower", lower, f"a number below upper={upper!r}")
        reach = max(-lower, upper)
        step = checks.real("step", self.step) or math.ldexp(1.0, max(math.frexp(reach)[1] - _FINE, -_EXPONENT_MAX))
        step = checks.between("step", step, 2.0**-_EXPONENT_MAX, 2.0**_EXPONENT_MAX)
        if math.frexp(step)[0] != 0.5:
            raise checks.refuse("step", step, "a power of two, such as 0.25", "Only then are sums exact.")
        if reach / step > INTEGER_MAX:
            raise checks.refuse("step", step, f"at least the larger bound / 2**62 = {reach / INTEGER_MAX:g}", "Use a larger step.")
        steps = (round(lower / step), round(upper / step))
        if steps[0] == steps[1]:
            raise checks.refuse("step", step, "a step that tells lower from upper", "Use a smaller step.")
        for name, value in (("lower", lower), ("upper", upper), ("step", step), ("per_row", steps)):
            object.__setattr__(self, name, value)

    def total(self, values: object) -> int:
        """The exact sum in steps: of a list or array, all its axes together.

        >>> GridSum(lower=0, upper=2, step=1.0).total([1, 2, 7])
        5
        """
        rows = self._steps(values).reshape(-1)
        chunk = self._chunk
        return sum(int(np.sum(rows[k : k + chunk])) for k in range(0, rows.size, chunk))

    def totals(self, values: object, groups: object, count: int) -> list[int]:
        """The exact sum of each group, in steps; ``groups`` holds one index below ``count`` for each value.

        A row whose index is outside of 0 … count − 1 belongs to no group.

        >>> GridSum(lower=0, upper=2, step=1.0).totals([1, 2, 2, 1], [0, 2, 2, 9], count=3)
        [1, 0, 4]
        """
        count = checks.count("count", count, high=100_000_000)
        rows, (indices, _) = self._steps(values).reshape(-1), numbers(groups)
        if indices.reshape(-1).shape != rows.shape or (indices.dtype.kind != "i" and indices.size):
            raise checks.refuse("groups", "an array of another shape or type", "one whole number for each value")
        kept = (indices.reshape(-1) >= 0) & (indices.reshape(-1) < count)
        where, what = indices.reshape(-1)[kept].astype(np.intp), rows[kept]
        chunk = self._chunk
        made = [0] * count
        for k in range(0, what.size, chunk):
            part = np.zeros(count, dtype=np.int64)
            np.add.at(part, where[k : k + chunk], what[k : k + chunk])
            made = [total + int(more) for total, more in zip(made, part, strict=True)]
        return made

    @property
    def _chunk(self) -> int:
        """So many rows can be added up without overflow: one at least, as none is more than ``INTEGER_MAX`` steps."""
        return INTEGER_MAX // max(abs(s) for s in self.per_row)

    def value(self, steps: float) -> float:
        """The number that so many steps stand for (apply it to what the mechanism returned).

        >>> GridSum(lower=0, upper=2, step=0.5).value(3)
        1.5
        """
        return float(steps) * self.step

    def _steps(self, values: object) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Each value as its own number of steps: a function of that value and of public facts alone."""
        found, _ = numbers(values)
        low, high = self.per_row
        if found.dtype.kind == "i" and self.step == 1.0:
            return np.clip(found, low, high)
        held = np.clip(found.astype(np.float64), self.lower, self.upper)
        with np.errstate(under="ignore"):  # what underflows is far below half a step, and is not told of
            return np.clip(np.rint(held / self.step).astype(np.int64), low, high)
