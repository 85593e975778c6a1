"""Many linear queries over one histogram: measured as they are, or through a strategy and put together again.

The matrix mechanism (Li, Miklau, Hay, McGregor & Rastogi 2015): to answer W·x, measure A·x + noise for another matrix A
of small sensitivity, and return W·A⁺ times that. What is measured is an integer matrix (A on a power-of-two grid) times
an integer vector, in exact arithmetic: no order of summation and no rounding can move it by more than its sensitivity.
Everything after the noise is arithmetic on what is already private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError
from dither.core.events import Event, Gaussian, Laplace
from dither.core.rng import Rng
from dither.noise import samplers
from dither.noise._analytic import gaussian_noise_multiplier
from dither.noise._rounding import up
from dither.noise._values import Floats, Integers, integers
from dither.noise.noisy import Noisy, noisy
from dither.noise.rng import array_rng
from dither.noise.sensitivity import ONE_ROW, Contribution, linear_queries, matrix_of

ENTRIES_MAX = 1 << 25
CELLS_MAX = 1 << 20
_STRATEGY_BITS, _NOISE_BITS, _LIMB = 40, 53, 20
_RESIDUE_MAX = 1e-7
_ENTRY_MIN = 1e-150
_MEMORY = 12

Law: TypeAlias = Literal["laplace", "gaussian"]


# ------------------------------------------------------------------------------------------------ the mechanism


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearQueries:
    """``workload @ histogram`` with noise; through ``strategy @ histogram`` where one is given.

    Guarantee:
        Of the integer vector x, whose cells count the rows of disjoint public groups, between neighbours as ``contribution`` says
        (for any other integer vector: coordinates that change by at most ``contribution.rows`` in sum). The outputs
        are as close as the event ``Laplace(noise_multiplier)`` or ``Gaussian(noise_multiplier)`` says: the noise is that multiple
        of the L1 or L2 sensitivity of the matrix that is measured, its largest column norm.
    Edge cases:
        Cells are integers by type (floats are refused: cut them to a grid with ``GridSum.totals``) and held within ±2⁶². A vector of
        another length than the matrix has columns, matrices with NaN or ±∞, and a strategy from which the workload cannot be put
        together are refused. Matrices are rounded to ``unit``, 40 binary digits below their largest entry (fewer above a noise
        multiplier of about 1,000); what is measured is ``measured``, exactly.
    Reference:
        Li, Miklau, Hay, McGregor & Rastogi 2015, Propositions 3 to 5; McKenna, Miklau, Hay & Machanavajjhala 2018 (p-Identity).

    >>> queries = LinearQueries(workload=prefix_workload(4), strategy=identity_strategy(4), law="gaussian", noise_multiplier=2.0)
    >>> queries.event, queries.measure([3, 1, 4, 1]).value.shape, queries.standard_errors.round(3).tolist()
    (Gaussian(noise_multiplier=2.0), (4,), [2.0, 2.828, 3.464, 4.0])
    """

    workload: Floats
    law: Law
    noise_multiplier: float
    strategy: Floats | None = None
    contribution: Contribution = ONE_ROW
    unit: float = field(init=False)
    sensitivity: float = field(init=False)
    _steps: Floats = field(init=False, repr=False)
    _limbs: tuple[tuple[Floats, int], ...] = field(init=False, repr=False)
    _rebuild: Floats | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        workload = _sized("workload", self.workload)
        _law(self.law)
        multiplier = checks.noise_multiplier(self.noise_multiplier)
        checks.instance("contribution", self.contribution, Contribution, "a Contribution")
        strategy = None if self.strategy is None else _sized("strategy", self.strategy)
        if strategy is not None and strategy.shape[1] != workload.shape[1]:
            raise checks.refuse("strategy", f"{strategy.shape[1]} columns", f"{workload.shape[1]} columns, as the workload has")
        unit, steps = _on_grid(workload if strategy is None else strategy, multiplier, self._moved)
        moved_steps = self._moved(steps)
        if not Fraction(multiplier) * Fraction(moved_steps) <= samplers.SCALE_MAX:
            raise checks.refuse("noise_multiplier", multiplier, "less noise: the sensitivity of this matrix makes its scale overflow")
        made: dict[str, Any] = {"noise_multiplier": multiplier, "workload": workload, "strategy": strategy, "unit": unit, "_steps": steps}
        made["sensitivity"] = up(Fraction(moved_steps) * Fraction(unit))
        made["_limbs"] = _limbs(steps)
        made["_rebuild"] = None if strategy is None else _rebuilding(workload, steps * unit)
        for name, value in made.items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    def _moved(self, matrix: Floats) -> float:
        moved = linear_queries(matrix, self.contribution)
        return moved.l1 if self.law == "laplace" else moved.l2

    @classmethod
    def calibrated(
        cls,
        *,
        workload: object,
        epsilon: float,
        delta: float = 0.0,
        strategy: object = None,
        contribution: Contribution = ONE_ROW,
    ) -> Self:
        """The least noise that is (ε, δ)-DP: Gaussian, or Laplace where δ = 0.

        >>> LinearQueries.calibrated(workload=[[1, 1]], epsilon=0.5).event
        Laplace(noise_multiplier=2.0)
        """
        law: Law = "gaussian" if checks.delta(delta) else "laplace"
        wanted = up(1 / Fraction(checks.epsilon(epsilon, zero=False))) if law == "laplace" else gaussian_noise_multiplier(epsilon, delta)
        matrices: Any = {"workload": workload, "strategy": strategy}
        return cls(**matrices, law=law, noise_multiplier=max(wanted, checks.NOISE_MIN), contribution=contribution)

    @property
    def event(self) -> Event:
        """What one measurement costs."""
        return Laplace(self.noise_multiplier) if self.law == "laplace" else Gaussian(self.noise_multiplier)

    @property
    def measured(self) -> Floats:
        """The matrix that is measured: the strategy, or the workload itself, as rounded to ``unit``."""
        return np.asarray(self._steps * self.unit, dtype=np.float64)

    @property
    def standard_errors(self) -> Floats:
        """The standard deviation of each answer: answers are unbiased, so this is all their error."""
        variance = (self.noise_multiplier * self.sensitivity) ** 2 * (2.0 if self.law == "laplace" else 1.0)
        rows = np.ones(self.workload.shape[0]) if self._rebuild is None else np.sum(self._rebuild * self._rebuild, axis=1)
        return np.asarray(np.sqrt(variance * rows), dtype=np.float64)

    @property
    def expected_squared_error(self) -> float:
        """The sum of the variances of all answers."""
        return float(np.sum(self.standard_errors**2))

    def measure(self, value: object, rng: Rng | None = None) -> Noisy[Floats]:
        """The answers to the queries over the histogram ``value``: one float for each row of the workload."""
        source = array_rng(rng)
        cells, _ = integers(value)
        if cells.shape != (self.workload.shape[1],):
            raise InputError(
                f"The value has the wrong shape: expected {self.workload.shape[1]} whole numbers, one for each column of the workload."
            )
        draw = samplers.rounded_laplace if self.law == "laplace" else samplers.rounded_gaussian
        scale = Fraction(self.noise_multiplier) * Fraction(self.sensitivity) / Fraction(self.unit)
        noise = np.asarray(draw(scale, size=self._steps.shape[0], rng=source)).tolist()
        exact = [total + more for total, more in zip(_product(self._limbs, cells), noise, strict=True)]
        unit = Fraction(self.unit)
        made = np.array([total * unit.numerator / unit.denominator for total in exact])  # integers: rounded once
        return noisy(made if self._rebuild is None else self._rebuild @ made, self.event, source)


def _law(law: object) -> None:
    if not isinstance(law, str) or law not in ("laplace", "gaussian"):
        raise UnknownNameError("law", law, ["laplace", "gaussian"])


def _sized(name: str, value: object) -> Floats:
    matrix = matrix_of(name, value)
    if matrix.size > ENTRIES_MAX or matrix.shape[1] > CELLS_MAX:
        raise checks.refuse(name, f"shape {matrix.shape}", f"at most {ENTRIES_MAX:_} entries and {CELLS_MAX:_} columns")
    largest = float(np.max(np.abs(matrix)))
    if not largest:
        raise checks.refuse(name, "all zero", "at least one entry that is not 0: nothing would be measured")
    if largest < _ENTRY_MIN:
        raise checks.refuse(name, f"a largest entry of {largest!r}", f"one of at least {_ENTRY_MIN:g} in size", "Use larger units.")
    return matrix


def _on_grid(matrix: Floats, multiplier: float, moved: Callable[[Floats], float]) -> tuple[float, Floats]:
    """(unit, whole numbers): the finest grid on which entries keep within 2**40 and the noise within 2**53."""
    by_entry = math.frexp(float(np.max(np.abs(matrix))))[1] - _STRATEGY_BITS
    by_noise = math.frexp(moved(matrix))[1] + math.frexp(multiplier)[1] - _NOISE_BITS
    exponent = max(by_entry, by_noise)
    steps = np.rint(np.ldexp(matrix, -exponent)) + 0.0
    if not np.any(steps):
        raise checks.refuse("noise_multiplier", multiplier, "less noise: every entry of the matrix would vanish in it")
    return math.ldexp(1.0, exponent), np.asarray(steps, dtype=np.float64)


def _rebuilding(workload: Floats, strategy: Floats) -> Floats:
    """W·A⁺, with W·A⁺·A = W checked: so the answers are unbiased."""
    solved = np.linalg.lstsq(strategy.T, workload.T, rcond=None)[0].T
    residue = np.max(np.abs(solved @ strategy - workload))
    if not residue <= _RESIDUE_MAX * np.max(np.abs(workload)):
        raise InputError("The strategy is not allowed: the workload cannot be put together from its rows. Add rows that span it.")
    return np.asarray(solved, dtype=np.float64)


def _limbs(steps: Floats) -> tuple[tuple[Floats, int], ...]:
    """Σ part·2**place = steps, each part whole and at most 2**20 in size; parts that are all 0 are left out."""
    high = np.floor(steps / 2.0**_LIMB)
    low = steps - high * 2.0**_LIMB
    return tuple((part, place) for part, place in ((low, 0), (high, _LIMB)) if np.any(part))


def _product(limbs: tuple[tuple[Floats, int], ...], cells: Integers) -> list[int]:
    """``steps @ cells`` exactly: cells are cut as well, so small that every float sum below is a whole number under 2**53."""
    rows, columns = limbs[0][0].shape
    bits = 53 - _LIMB - 1 - (columns - 1).bit_length()
    total = [0] * rows
    for k in range(-(-64 // bits)):  # as many limbs for small cells as for large ones
        last = (k + 1) * bits >= 64
        limb = cells >> (k * bits)
        limb = (limb if last else limb & ((1 << bits) - 1)).astype(np.float64)
        for part, place in limbs:
            total = [t + (int(m) << (place + k * bits)) for t, m in zip(total, (part @ limb).tolist(), strict=True)]
    return total


# ------------------------------------------------------------------------------------------------ workloads, strategies


def prefix_workload(cells: int) -> Floats:
    """All sums of the first 1, 2, … ``cells`` cells (the cumulative histogram).

    >>> prefix_workload(2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    return np.tri(_cells(cells))


def range_workload(cells: int) -> Floats:
    """All sums over contiguous ranges of cells: cells·(cells + 1)/2 of them.

    >>> range_workload(2).tolist()
    [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    """
    size = checks.count("cells", cells, high=400)
    ends = [(first, last) for first in range(size) for last in range(first, size)]
    places = np.arange(size)
    return np.array([(places >= first) & (places <= last) for first, last in ends], dtype=np.float64)


def identity_strategy(cells: int) -> Floats:
    """Every cell by itself.

    >>> identity_strategy(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return np.eye(_cells(cells))


def hierarchical_strategy(cells: int, branching: int = 2) -> Floats:
    """Every cell, every block of ``branching`` cells, of branching², … up to the whole (Hay, Rastogi, Miklau & Suciu 2010).

    >>> hierarchical_strategy(4).shape
    (7, 4)
    """
    size, fan = _cells(cells), checks.count("branching", branching, low=2, high=CELLS_MAX)
    places, width, levels = np.arange(size), 1, []
    while True:
        blocks = -(-size // width)
        levels.append((places // width == np.arange(blocks)[:, None]).astype(np.float64))
        if blocks == 1:
            return np.vstack(levels)
        width *= fan


def haar_strategy(cells: int) -> Floats:
    """The total, and left half minus right half of every block (the Haar wavelet; Xiao, Wang & Gehrke 2011, unweighted).

    >>> haar_strategy(4).astype(int).tolist()
    [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]
    """
    size = _cells(cells)
    width, places, rows = 1 << (size - 1).bit_length(), np.arange(size), [np.ones((1, size))]
    while width > 1:
        blocks = np.arange(-(-size // width))[:, None]
        inside = places // width == blocks
        halves = inside * np.where(places % width < width // 2, 1.0, -1.0)
        rows.append(halves[np.any(halves < 0, axis=1)])  # a block without a right half repeats what is known
        width //= 2
    return np.vstack(rows)


def _cells(cells: object) -> int:
    return checks.count("cells", cells, high=5_000)


def strategy_error(workload: object, strategy: object, law: Law) -> float:
    """The sum of the variances of all answers at noise multiplier 1, one row per unit added or removed.

    >>> strategy_error(prefix_workload(4), identity_strategy(4), "gaussian")
    10.0
    """
    _law(law)
    wanted, measured = _sized("workload", workload), _sized("strategy", strategy)
    norms = np.sum(np.abs(measured), axis=0) ** 2 if law == "laplace" else np.sum(measured * measured, axis=0)
    return float(np.max(norms) * np.sum(_rebuilding(wanted, measured) ** 2) * (2 if law == "laplace" else 1))


def error_floor(workload: object) -> float:
    """What no strategy can go below with Gaussian noise of multiplier 1: (Σ singular values)²/cells (Li & Miklau 2013).

    >>> round(error_floor(identity_strategy(8)), 9)
    8.0
    """
    matrix = _sized("workload", workload)
    return float(np.sum(np.linalg.svd(matrix, compute_uv=False)) ** 2 / matrix.shape[1])


def best_strategy(workload: object, law: Law) -> Floats:
    """Of the identity, the workload itself, trees, the Haar wavelet and an optimised strategy: the one with the least error.

    >>> best_strategy(identity_strategy(4), "laplace").tolist() == identity_strategy(4).tolist()
    True
    """
    matrix = _sized("workload", workload)
    cells = matrix.shape[1]
    known = [identity_strategy(cells), matrix, haar_strategy(cells), *(hierarchical_strategy(cells, b) for b in (2, 4, 8, 16))]
    made = [*known, optimised_strategy(matrix, law)]
    return min(made, key=lambda strategy: strategy_error(matrix, strategy, law))


# ------------------------------------------------------------------------------------------------ optimiser


def optimised_strategy(workload: object, law: Law, *, extra_rows: int | None = None, steps: int = 300) -> Floats:
    """A p-Identity strategy fitted to the workload: the cells and ``extra_rows`` weighted sums of them, columns of norm 1.

    A = [I; Θ]·diag(1/c) with c the column norms of [I; Θ] (L1 with Θ ≥ 0 for Laplace, L2 for Gaussian): full rank and of
    sensitivity 1 for every Θ. The error tr(WᵀW(AᵀA)⁻¹) is minimised by L-BFGS from fixed starts; no data is involved.

    >>> made = optimised_strategy(prefix_workload(16), "gaussian")
    >>> strategy_error(prefix_workload(16), made, "gaussian") < 0.8 * strategy_error(prefix_workload(16), haar_strategy(16), "gaussian")
    True
    """
    _law(law)
    matrix = _sized("workload", workload)
    cells = matrix.shape[1]
    default = min(cells, 128) if law == "gaussian" else max(1, min(cells // 4, 64))
    count = default if extra_rows is None else checks.count("extra_rows", extra_rows, high=4 * cells)
    rounds = checks.count("steps", steps, high=100_000)
    gram = matrix.T @ matrix
    gram /= np.max(np.diag(gram))
    places = (np.arange(cells) + 0.5) / cells
    tree = hierarchical_strategy(cells)[cells:][::-1]
    waves = 0.6 + 0.4 * np.cos(np.pi * np.outer(np.arange(1, count + 1), places))
    blocks = 0.05 + np.resize(tree, (count, cells)) + 0.01 * waves if len(tree) else waves
    found = [_descend(gram, start, law, rounds) for start in (waves, blocks)]
    _, best = min(found, key=lambda pair: pair[0])
    theta = best * best if law == "laplace" else best
    stacked = np.vstack([np.eye(cells), theta])
    return np.asarray(stacked / _column_norms(theta, law), dtype=np.float64)


def _column_norms(theta: Floats, law: Law) -> Floats:
    return np.asarray(1 + np.sum(theta, axis=0) if law == "laplace" else np.sqrt(1 + np.sum(theta * theta, axis=0)), dtype=np.float64)


def _error_and_slope(gram: Floats, phi: Floats, law: Law) -> tuple[float, Floats]:
    """The error f = cᵀ(V ∘ M)c with M = (I + ΘᵀΘ)⁻¹ and V = WᵀW, and its gradient; Θ = φ² (Laplace) or φ."""
    theta = phi * phi if law == "laplace" else phi
    norms = _column_norms(theta, law)
    inverse = np.eye(gram.shape[0]) - theta.T @ np.linalg.solve(np.eye(theta.shape[0]) + theta @ theta.T, theta)
    by_norm = (gram * inverse) @ norms
    weighted = norms[:, None] * gram * norms
    slope = -2 * (theta @ inverse) @ weighted @ inverse
    if law == "laplace":
        return float(norms @ by_norm), (slope + 2 * by_norm) * 2 * phi
    return float(norms @ by_norm), slope + 2 * by_norm / norms * theta


def _descend(gram: Floats, start: Floats, law: Law, rounds: int) -> tuple[float, Floats]:
    """L-BFGS (Nocedal & Wright 2006, Algorithm 7.5) with halving of the step until the error falls enough."""
    point, pairs = start.copy(), []  # type: tuple[Floats, list[tuple[Floats, Floats]]]
    error, slope = _error_and_slope(gram, point, law)
    for _ in range(rounds):
        direction = -_smoothed(slope, pairs)
        gain = float(np.sum(direction * slope))
        if not gain < 0:
            direction, gain, pairs = -slope, -float(np.sum(slope * slope)), []
        step = 1.0 if pairs else min(1.0, 1 / (1e-300 + float(np.max(np.abs(slope)))))
        for _halving in range(40):
            trial = point + step * direction
            trial_error, trial_slope = _error_and_slope(gram, trial, law)
            if trial_error <= error + 1e-4 * step * gain:
                break
            step /= 2
        else:
            break
        moved, turned = trial - point, trial_slope - slope
        if float(np.sum(moved * turned)) > 1e-300:
            pairs = [*pairs[-_MEMORY + 1 :], (moved, turned)]
        settled = error - trial_error <= 1e-9 * error
        point, error, slope = trial, trial_error, trial_slope
        if settled:
            break
    return error, point


def _smoothed(slope: Floats, pairs: list[tuple[Floats, Floats]]) -> Floats:
    """The inverse Hessian that the last steps suggest, times the slope (two-loop recursion)."""
    result, weights = slope.copy(), []
    for moved, turned in reversed(pairs):
        weight = np.sum(moved * result) / np.sum(moved * turned)
        weights.append(weight)
        result -= weight * turned
    if pairs:
        moved, turned = pairs[-1]
        result *= np.sum(moved * turned) / np.sum(turned * turned)
    for (moved, turned), weight in zip(pairs, reversed(weights), strict=True):
        result += (weight - np.sum(turned * result) / np.sum(moved * turned)) * moved
    return result
