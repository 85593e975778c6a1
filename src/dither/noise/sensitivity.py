"""How far one unit can move an answer, in exact arithmetic, with the reason in words.

Every number here is a supremum over all pairs of neighbours, attained unless the explanation says otherwise, and
rounded up to a float. Noise is calibrated to it, so a statistic that has no finite (or no useful) one is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError, SensitivityError, UnknownNameError
from dither.core.units import Neighbors, neighbors
from dither.noise._rounding import exactly, sqrt_up, up
from dither.noise.gridsum import GridSum

Matrix: TypeAlias = NDArray[np.float64]

_PAIRS_MAX = 512  # columns up to which all pairs of columns are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The most that one unit can change an answer by: in L1, L2 and L∞, and in how many coordinates (``l0``)."""

    statistic: str
    l1: float
    l2: float
    linf: float
    l0: int
    explanation: str

    def __str__(self) -> str:
        return f"{self.statistic}: L1 {self.l1:g}, L2 {self.l2:g}, L∞ {self.linf:g}. {self.explanation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one unit may hold, by public bounds that are enforced before anything is counted.

    One row per unit unless said otherwise. ``rows_fixed`` says that every unit holds exactly ``rows_per_unit`` rows and
    none of them is ever left out (by a filter, or for being NULL): under ``replace``, row counts then cannot change.

    >>> Contribution(groups_per_unit=3, rows_per_group=2).rows
    6
    """

    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    rows_per_group: int | None = None
    neighbors: Neighbors = Neighbors.ADD_REMOVE
    rows_fixed: bool = False
    rows: int = field(init=False)
    groups: int = field(init=False)
    rows_in_group: int = field(init=False)

    def __post_init__(self) -> None:
        for name in ("rows_per_unit", "groups_per_unit", "rows_per_group"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.count(name, getattr(self, name)))
        object.__setattr__(self, "neighbors", neighbors(self.neighbors))
        checks.instance("rows_fixed", self.rows_fixed, bool, "True or False")
        own, groups, each = self.rows_per_unit, self.groups_per_unit, self.rows_per_group
        if own is None and groups is None and each is None:
            own = 1
        product = None if groups is None or each is None else groups * each
        bounds = [b for b in (own, product) if b is not None]
        if not bounds:
            known = "groups_per_unit" if each is None else "rows_per_group"
            raise SensitivityError(
                f"With {known} alone one unit may hold any number of rows, so no finite sensitivity exists: "
                "bound rows_per_unit, or both groups_per_unit and rows_per_group."
            )
        if self.rows_fixed and self.neighbors is Neighbors.ADD_REMOVE:
            raise checks.refuse("rows_fixed", True, "False under add_remove, where a unit may be absent")
        rows = min(bounds)
        in_group = min(rows, each if each is not None else rows)
        object.__setattr__(self, "rows", checks.count("rows_per_unit", rows))
        object.__setattr__(self, "rows_in_group", in_group)
        object.__setattr__(self, "groups", min(rows, groups if groups is not None else rows))

    @property
    def replace(self) -> bool:
        """Whether neighbours differ by one unit's data changed for another's."""
        return self.neighbors is Neighbors.REPLACE

    def __str__(self) -> str:
        whole = (
            "one row" if self.rows == 1 else f"up to {self.rows} rows ({self.groups} groups, {self.rows_in_group} rows in each, at most)"
        )
        return f"one unit holds {'exactly ' if self.rows_fixed else ''}{whole} and is {'replaced' if self.replace else 'added or removed'}"


ONE_ROW = Contribution()


def _stated(contribution: object) -> Contribution:
    return checks.instance("contribution", contribution, Contribution, "a Contribution")


# ------------------------------------------------------------------------------------------------ counts


def count(contribution: Contribution = ONE_ROW) -> Sensitivity:
    """Of the number of rows (that meet any condition).

    >>> count(Contribution(rows_per_unit=5)).l1
    5.0
    """
    most = 0 if _stated(contribution).rows_fixed else contribution.rows
    why = f"As {contribution}, the count moves by at most {most}"
    why += ": as many rows come as go, so it is no secret and needs no noise." if most == 0 else "."
    return _scalar("count", Fraction(most), why)


def distinct_units(contribution: Contribution = ONE_ROW) -> Sensitivity:
    """Of the number of different units (that meet any condition): one, however many rows a unit holds.

    >>> distinct_units(Contribution(rows_per_unit=1_000)).l2
    1.0
    """
    return _scalar("distinct units", Fraction(1), f"Each unit counts once, whatever it holds; {_stated(contribution)}.")


def histogram(contribution: Contribution = ONE_ROW, *, bins: int | None = None) -> Sensitivity:
    """Of the row counts of all groups together; ``bins`` is the public number of groups, when it is known.

    >>> histogram(Contribution(groups_per_unit=3, rows_per_group=2)).l2 ** 2
    12.000000000000002
    >>> histogram(Contribution(neighbors="replace")).l1
    2.0
    """
    shape = _fill(contribution, bins)
    sides = [shape] if not contribution.replace else _two_sides(contribution, bins)
    l1 = sum(s.full * s.each + s.rest for s in sides)
    squares = sum(s.full * s.each**2 + s.rest**2 for s in sides)
    l0 = _touched(contribution, bins)
    why = (
        f"As {contribution}, it fills {shape.full} groups with {shape.each} rows each{f' and one with {shape.rest}' if shape.rest else ''}"
    )
    why += "; another unit may do so in other groups, as far as there are groups." if contribution.replace else "."
    return Sensitivity(statistic="histogram", l1=up(l1), l2=sqrt_up(squares), linf=up(shape.each), l0=l0, explanation=why)


def _touched(contribution: Contribution, bins: int | None) -> int:
    """How many groups can change: the widest spread of a unit's rows, which need not be the fullest."""
    most = contribution.groups * (2 if contribution.replace else 1)
    return most if bins is None else min(most, bins)


class _Fill(NamedTuple):
    """The fullest way to spread a unit's rows: ``full`` groups of ``each`` rows and one of ``rest``."""

    full: int
    each: int
    rest: int


def _fill(contribution: Contribution, bins: int | None) -> _Fill:
    most = _stated(contribution).groups
    groups = most if bins is None else min(most, checks.count("bins", bins))
    each = contribution.rows_in_group
    full = min(groups, contribution.rows // each)
    return _Fill(full, each, min(contribution.rows - full * each, each) if full < groups else 0)


def _two_sides(contribution: Contribution, bins: int | None) -> list[_Fill]:
    """Two units in disjoint groups. With too few groups for both, every group is used: one unit's ``rest`` only if that still fits."""
    one = _fill(contribution, bins)
    wanted = one.full + (one.rest > 0)
    if bins is None or bins >= 2 * wanted:
        return [one, one]
    left = bins - wanted  # groups that remain for the other unit, fewer than it wants: all of them full
    swapped = _Fill(one.full, one.each, 0)
    plain = [one, _Fill(left, one.each, 0)]
    fuller = [swapped, _Fill(min(bins - one.full, one.full), one.each, 0)]
    return max(plain, fuller, key=lambda pair: sum(s.full * s.each + s.rest for s in pair))


# ------------------------------------------------------------------------------------------------ sums


def bounded_sum(lower: float | None, upper: float | None, contribution: Contribution = ONE_ROW) -> Sensitivity:
    """Of the exact sum of one column whose values are clamped to [lower, upper]; a missing value adds 0.

    >>> bounded_sum(-2, 5, Contribution(rows_per_unit=3)).l1, bounded_sum(-2, 5, Contribution(neighbors="replace")).l1
    (15.0, 7.0)
    """
    low, high = _bounds("sum", lower, upper)
    most, why = _sum_moves(low, high, contribution)
    return _scalar("sum", most, f"{_clamped(low, high)} {why} It holds for exact sums only: use GridSum.")


def _clamped(low: Fraction, high: Fraction) -> str:
    return f"Values are clamped to [{float(low):g}, {float(high):g}]."


def _sum_moves(low: Fraction, high: Fraction, contribution: Contribution) -> tuple[Fraction, str]:
    rows = _stated(contribution).rows
    if not contribution.replace:
        most = rows * max(abs(low), abs(high))
        return most, f"As {contribution}, its rows add up to at most {up(most):g} in size."
    if not contribution.rows_fixed:
        low, high = min(low, Fraction(0)), max(high, Fraction(0))
    most = rows * (high - low)
    return most, f"As {contribution}, what its rows add up to lies in an interval of width {up(most):g}."


def grid_sum(grid: GridSum, contribution: Contribution = ONE_ROW) -> Sensitivity:
    """Of ``grid.total``, in steps: exact whole numbers, from the integers that rows are cut to and not from the bounds.

    >>> grid_sum(GridSum(lower=0, upper=10, step=0.5), Contribution(rows_per_unit=2)).l1
    40.0
    """
    checks.instance("grid", grid, GridSum, "a GridSum")
    low, high = (Fraction(s) for s in grid.per_row)
    most, why = _sum_moves(low, high, contribution)
    return _scalar("sum in steps", most, f"Each row adds a whole number of steps from {grid.per_row[0]} to {grid.per_row[1]}. {why}")


def grouped_sums(lower: float | None, upper: float | None, contribution: Contribution = ONE_ROW) -> Sensitivity:
    """Of the exact sums of a clamped column in all groups together.

    >>> grouped_sums(0, 10, Contribution(groups_per_unit=4, rows_per_group=1)).l2
    20.0
    """
    low, high = _bounds("sum", lower, upper)
    small, large = sorted((max(high, Fraction(0)), max(-low, Fraction(0))))
    fill = _fill(contribution, None)
    sizes = [fill.each] * min(fill.full, 2) + ([fill.rest] if fill.rest else [])
    spare = max(fill.full - 2, 0)  # beyond two, full groups are alike: both ways of pairing them are weighed below
    l0 = _touched(contribution, None)
    if not contribution.replace:
        squares = (fill.full * fill.each**2 + fill.rest**2) * large**2
        made = (contribution.rows * large, squares, fill.each * large, l0)
    else:
        alike = max((small + large) ** 2, 2 * large**2) * fill.each**2
        squares = max(_paired(sizes, ways, large, small) for ways in _pairings(len(sizes))) + spare * alike
        made = (2 * contribution.rows * large, squares, fill.each * (small + large), l0)
    why = (
        f"{_clamped(low, high)} As {contribution}, it moves {made[3]} sums at most, one of them by at most {up(made[2]):g}. "
        "It holds for exact sums only: use GridSum."
    )
    return Sensitivity(statistic="grouped sums", l1=up(made[0]), l2=sqrt_up(made[1]), linf=up(made[2]), l0=made[3], explanation=why)


def _pairings(size: int) -> list[tuple[int | None, ...]]:
    """Every way in which groups of one unit coincide with groups of the other: for each of ours, one of theirs or none."""
    choices: list[int | None] = [None, *range(size)]
    chosen = itertools.product(choices, repeat=size)
    return [c for c in chosen if len({x for x in c if x is not None}) == sum(x is not None for x in c)]


def _paired(sizes: list[int], ways: tuple[int | None, ...], large: Fraction, small: Fraction) -> Fraction:
    """Σ of squared changes when our i-th group coincides with their ``ways[i]``-th and both pull apart."""
    total = Fraction(0)
    for own, other in zip(sizes, ways, strict=True):
        theirs = 0 if other is None else sizes[other]
        total += (max(own, theirs) * large + min(own, theirs) * small) ** 2
    alone = [s for k, s in enumerate(sizes) if k not in ways]
    return total + sum((s * large) ** 2 for s in alone)


# ------------------------------------------------------------------------------------------------ mean and variance


def mean(lower: float | None, upper: float | None, contribution: Contribution = ONE_ROW, *, rows: int | None = None) -> Sensitivity:
    """Of the mean of exactly ``rows`` clamped values, a public number that does not change (``replace``, ``rows_fixed``).

    >>> mean(0, 100, Contribution(rows_per_unit=1, neighbors="replace", rows_fixed=True), rows=50).l1
    2.0
    """
    low, high = _bounds("mean", lower, upper)
    total = _fixed_rows("mean", contribution, rows, "mean_parts gives the noisy sum about the midpoint and the noisy count to divide")
    moved = min(contribution.rows, total)
    why = f"{moved} of {total} values may each move by {up(high - low):g}."
    return _scalar("mean", Fraction(moved, total) * (high - low), why)


def variance(lower: float | None, upper: float | None, contribution: Contribution = ONE_ROW, *, rows: int | None = None) -> Sensitivity:
    """Of the population variance (divisor n) of exactly ``rows`` clamped values; for the divisor n − 1 multiply by n/(n − 1).

    >>> variance(0, 50, Contribution(rows_per_unit=1, neighbors="replace", rows_fixed=True), rows=50).l1
    49.0
    """
    low, high = _bounds("variance", lower, upper)
    total = _fixed_rows("variance", contribution, rows, "variance_parts gives the noisy moments about the midpoint and the noisy count")
    moved = min(contribution.rows, total // 2)  # more than half the values at one end make the variance smaller again
    why = f"The worst case is {total - moved} equal values at one end and {moved} that move from there to the other end."
    return _scalar("variance", Fraction(moved, total) * Fraction(total - moved, total) * (high - low) ** 2, why)


def mean_parts(lower: float | None, upper: float | None, contribution: Contribution = ONE_ROW) -> tuple[Sensitivity, Sensitivity]:
    """For a mean whose number of rows is private: of Σ(x − midpoint), and of the count; mean ≈ midpoint + sum/count.

    Two releases, each with its own noise. About the midpoint the sum moves half as much as about 0 at worst.

    >>> [part.l1 for part in mean_parts(100, 200)]
    [50.0, 1.0]
    """
    low, high = _bounds("mean", lower, upper)
    half = (high - low) / 2
    most, why = _sum_moves(-half, half, contribution)
    text = f"{_clamped(low, high)} The midpoint {float((low + high) / 2):g} is taken off each. {why}"
    return _scalar("sum about the midpoint", most, text), count(contribution)


def variance_parts(
    lower: float | None, upper: float | None, contribution: Contribution = ONE_ROW
) -> tuple[Sensitivity, Sensitivity, Sensitivity]:
    """For a variance whose number of rows is private: of Σ(x − m)², of Σ(x − m) about the midpoint m, and of the count.

    >>> [part.l1 for part in variance_parts(-3, 3)]
    [9.0, 3.0, 1.0]
    """
    low, high = _bounds("variance", lower, upper)
    half = (high - low) / 2
    most, why = _sum_moves(Fraction(0), half * half, contribution)
    text = f"Squares about the midpoint lie in [0, {up(half * half):g}]. {why}"
    return _scalar("sum of squares about the midpoint", most, text), *mean_parts(lower, upper, contribution)


def _fixed_rows(statistic: str, contribution: Contribution, rows: int | None, instead: str) -> int:
    if not _stated(contribution).rows_fixed or rows is None:
        raise SensitivityError(
            f"A {statistic} is a ratio: where the number of rows is not a public constant, one unit among few moves it across the whole "
            f"range, so it has no useful sensitivity. Split it: {instead}. Only with rows=…, neighbors='replace' and rows_fixed=True does "
            f"the {statistic} itself have one."
        )
    return checks.count("rows", rows)


# ------------------------------------------------------------------------------------------------ linear queries


def linear_queries(workload: object, contribution: Contribution = ONE_ROW) -> Sensitivity:
    """Of ``workload @ histogram`` for a matrix with a row for each query and a column for each cell of the histogram.

    Exact for one row per unit and for units whose rows may all be in one cell; otherwise an upper bound.

    >>> linear_queries([[1, 1, 1], [0, 1, 1], [0, 0, 1]]).l1
    3.0
    """
    matrix = matrix_of("workload", workload)
    text, limited = "", _stated(contribution).rows_in_group < contribution.rows
    if limited:
        text = " An upper bound: by the triangle inequality over cells."
    elif contribution.replace and matrix.shape[1] > _PAIRS_MAX:
        text = f" An upper bound: above {_PAIRS_MAX} columns their differences are not compared."
    l1, l2, linf = (_moved(matrix, contribution, norms) for norms in (_l1, _l2, _linf))
    why = f"As {contribution}, it moves the answers by multiples of columns of the workload.{text}"
    return Sensitivity(statistic="linear queries", l1=l1, l2=l2, linf=linf, l0=matrix.shape[0], explanation=why)


def matrix_of(name: str, value: object) -> Matrix:
    """A public matrix of finite numbers, at least 1 × 1, copied.

    >>> matrix_of("workload", [[1, 2]]).shape
    (1, 2)
    """
    expected = "a matrix of finite numbers, at most 1e150 in size, with at least one row and one column"
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise checks.refuse(name, type(value).__name__, expected) from None
    if matrix.ndim != 2 or not matrix.size or not np.all(np.isfinite(matrix)) or np.max(np.abs(matrix)) > 1e150:
        raise checks.refuse(name, f"shape {matrix.shape}", expected)
    return matrix


def _l1(matrix: Matrix) -> Matrix:
    """L1 norm of each column, rounded up (exact where all entries are whole and the sums small)."""
    return np.asarray(np.sum(np.abs(matrix), axis=0) * _slack(matrix), dtype=np.float64)


def _l2(matrix: Matrix) -> Matrix:
    """L2 norm of each column, rounded up (the root of a perfect square is exact); scaled first, or squares of tiny entries vanish."""
    slack = _slack(matrix)
    places = np.frexp(np.max(np.abs(matrix), axis=0))[1] * (slack != 1.0)
    scaled = np.ldexp(matrix, -places)
    squares = np.sum(scaled * scaled, axis=0) * slack
    roots = np.sqrt(squares)
    exact = (slack == 1.0) & (np.rint(roots) ** 2 == squares)
    return np.asarray(np.where(exact, roots, np.nextafter(np.ldexp(roots, places), np.inf)), dtype=np.float64)


def _linf(matrix: Matrix) -> Matrix:
    return np.asarray(np.max(np.abs(matrix), axis=0), dtype=np.float64) * (1.0 if _slack(matrix) == 1.0 else 1 + 2.0**-51)


def _slack(matrix: Matrix) -> float:
    """1 where sums of squares are exact; else more than the relative error of that many roundings."""
    whole = bool(np.all(matrix == np.rint(matrix))) and float(np.max(np.abs(matrix))) ** 2 * matrix.shape[0] < 2**50
    return 1.0 if whole else 1 + (matrix.shape[0] + 4) * 2.0**-52


def _moved(matrix: Matrix, contribution: Contribution, norms: Callable[[Matrix], Matrix]) -> float:
    """Bound on ‖Σ (n_i − n'_i)·column_i‖ over the counts n, n' that one unit may hold in the cells."""
    raw = [Fraction(float(x)) for x in norms(matrix)]
    fill = _fill(contribution, matrix.shape[1])
    ordered = sorted(raw, reverse=True)
    alone = fill.each * sum(ordered[: fill.full], Fraction(0)) + (fill.rest * ordered[fill.full] if fill.rest else 0)
    if not contribution.replace:
        return up(alone)
    if matrix.shape[1] > _PAIRS_MAX:
        return up(2 * alone)
    apart = max(float(np.max(norms(matrix - matrix[:, [j]]))) for j in range(matrix.shape[1]))
    return up(min(2 * alone, contribution.rows * max(Fraction(apart), ordered[0])))


# ------------------------------------------------------------------------------------------------ by name

_REFUSED = {
    "max": "One row can be the largest, so it may move by the whole range. Use quantiles, which choose among public candidates.",
    "min": "One row can be the smallest, so it may move by the whole range. Use quantiles, which choose among public candidates.",
    "range": "It is max − min: one row moves it by the whole range. Take two quantiles instead.",
    "median": "Between neighbours it may jump across the whole range. Use the exponential mechanism over candidates, or the smooth median.",
    "quantile": "Between neighbours it may jump across the whole range. Use the exponential mechanism over public candidates.",
    "mode": "One row can change which value is most frequent. Use report-noisy-max over the counts.",
    "ratio": "Its denominator may be small, so one row moves it without bound. Release both parts, each with noise, and divide.",
    "product": "One row can multiply it by anything. Release the sum of clamped logarithms.",
    "standard_deviation": "The square root is steep near 0. Release the parts of the variance and take the root afterwards.",
    "distinct_values": "A unit may hold any number of values: bound groups_per_unit and count the groups it fills, as histogram does.",
}


def sensitivity_of(
    statistic: str,
    contribution: Contribution = ONE_ROW,
    *,
    lower: float | None = None,
    upper: float | None = None,
    rows: int | None = None,
    bins: int | None = None,
) -> Sensitivity:
    """The sensitivity of a statistic by its name, or the reason why it has none.

    >>> sensitivity_of("sum", lower=0, upper=5).l1
    5.0
    >>> sensitivity_of("max", lower=0, upper=5)
    Traceback (most recent call last):
    dither.core.errors.SensitivityError: max has no sensitivity to calibrate noise to. One row can be the largest, ...
    """
    known: dict[str, Callable[[], Sensitivity]] = {
        "count": lambda: count(contribution),
        "distinct_units": lambda: distinct_units(contribution),
        "histogram": lambda: histogram(contribution, bins=bins),
        "sum": lambda: bounded_sum(lower, upper, contribution),
        "grouped_sums": lambda: grouped_sums(lower, upper, contribution),
        "mean": lambda: mean(lower, upper, contribution, rows=rows),
        "variance": lambda: variance(lower, upper, contribution, rows=rows),
    }
    if not isinstance(statistic, str):
        raise UnknownNameError("statistic", statistic, [*known, *_REFUSED])
    if statistic in _REFUSED:
        raise SensitivityError(f"{statistic} has no sensitivity to calibrate noise to. {_REFUSED[statistic]}")
    if statistic not in known:
        raise UnknownNameError("statistic", statistic, [*known, *_REFUSED])
    return known[statistic]()


def _bounds(statistic: str, lower: object, upper: object) -> tuple[Fraction, Fraction]:
    if lower is None or upper is None:
        raise SensitivityError(
            f"A {statistic} of unbounded values has no finite sensitivity: one row could hold any number. State lower and upper from "
            "public knowledge (never from the data); values are clamped to them."
        )
    # values may be clamped to a bound or to its nearest float: the one further out counts
    low = min(Fraction(checks.real("lower", lower)), exactly(lower))
    high = max(Fraction(checks.real("upper", upper)), exactly(upper))
    if low > high:
        raise InputError(f"lower={float(low)!r} is not allowed: expected a number not above upper={float(high)!r}.")
    return low, high


def _scalar(statistic: str, most: Fraction, why: str) -> Sensitivity:
    value = up(most)
    return Sensitivity(statistic=statistic, l1=value, l2=value, linf=value, l0=int(most > 0), explanation=why)
