"""One event, every way of accounting: what each theorem says ε is, beside the tight figure, and why where it is silent.

Only the last row is what dither charges. The others are for people who met them in a lecture, a paper or a report.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, ndtr

from dither.accounting import rdp, tables
from dither.accounting._bounds import Move, moved, pure_epsilon
from dither.accounting._pair import Array
from dither.accounting._pairs import gaussian_epsilon
from dither.accounting._price import terms
from dither.accounting.loss import loss
from dither.core import checks
from dither.core import events as ev
from dither.core.errors import DitherError, RefusedError
from dither.core.units import Neighbors
from dither.core.units import neighbors as as_neighbors

UPPER, APPROXIMATION = "upper bound", "approximation"
TIGHT = "dither (tight)"
_HOMOGENEOUS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """What one way of accounting says; ``epsilon`` is None where it says nothing, and ``note`` why."""

    name: str
    reference: str
    epsilon: float | None
    note: str = ""
    kind: str = UPPER
    lower: float | None = None
    order: float | None = None

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value; an infinite ε is null, as JSON has no infinity."""
        return {
            "name": self.name,
            "reference": self.reference,
            "epsilon": self.epsilon if self.epsilon is not None and math.isfinite(self.epsilon) else None,
            "kind": self.kind,
            "lower": self.lower if self.lower is not None and math.isfinite(self.lower) else None,
            "order": self.order if self.order is not None and math.isfinite(self.order) else None,
            "note": self.note,
        }


@dataclass(frozen=True)
class Comparison:
    """All rows for one event at one δ, the tight figure last."""

    event: ev.Event
    delta: float
    neighbors: Neighbors
    group: int
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        return self.to_text()

    @property
    def tight(self) -> Row:
        """The figure that dither charges."""
        return self.rows[-1]

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            "event": ev.to_dict(self.event),
            "delta": self.delta,
            "neighbors": self.neighbors.value,
            "group": self.group,
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_text(self) -> str:
        """A table of at most 80 columns, and a line on each row that needs one."""
        best = self.tight.epsilon
        body = []
        for row in self.rows:
            shown, ratio = "–", ""
            if row.epsilon is not None:
                shown = ("≈ " if row.kind == APPROXIMATION else "") + tables.up(row.epsilon)
                if best is not None and 0 < best < math.inf and row is not self.tight:
                    ratio = f"×{tables.number(row.epsilon / best, 3)}"
            body.append((row.name, shown, ratio, row.reference))
        notes = [tables.paragraph(f"{row.name}: {row.note}", bullet="· ") for row in self.rows if row.note]
        group = f", {self.group} units at once" if self.group > 1 else ""
        head = f"ε at δ = {self.delta:g}, neighbours {self.neighbors.value}{group}"
        return "\n".join([head, "", tables.table(body, ("method", "ε", "", "reference"), left=(0, 3)), "", *notes]).rstrip()


def compare(event: ev.Event, delta: float, *, neighbors: Neighbors | str = Neighbors.ADD_REMOVE, group: int = 1) -> Comparison:
    """What each way of accounting says about an event at that δ.

    >>> from dither import events as ev
    >>> found = compare(ev.Repeat(ev.PureDp(0.1), 100), 1e-6)
    >>> [(row.name, row.epsilon and round(row.epsilon, 2)) for row in found.rows][:3]
    [('basic composition', 10.0), ('advanced composition', 6.31), ('optimal composition', 4.77)]
    """
    case = _Case(event, checks.delta(delta), as_neighbors(neighbors), checks.count("group", group, high=rdp.GROUP_MAX))
    if not ev.is_event(event):
        raise checks.refuse("event", event, "an event, such as events.Gaussian(noise_multiplier=1.1)")
    methods: tuple[Callable[[_Case], Row], ...] = (_basic, _advanced, _optimal, _moments, _renyi, _zcdp, _central_limit, _tight)
    return Comparison(case.event, case.delta, case.neighbors, case.group, tuple(method(case) for method in methods))


@dataclass(frozen=True, slots=True)
class _Case:
    event: ev.Event
    delta: float
    neighbors: Neighbors
    group: int

    @property
    def move(self) -> Move:
        return Move(replace=self.neighbors is Neighbors.REPLACE, group=self.group)


class _SilentError(RefusedError):
    """A method does not apply; the text says why. Never leaves this module."""


def _row(name: str, reference: str) -> Callable[[Callable[[_Case], Row]], Callable[[_Case], Row]]:
    """A method that turns what it cannot answer into a row that says so."""

    def wrap(method: Callable[[_Case], Row]) -> Callable[[_Case], Row]:
        def asked(case: _Case) -> Row:
            try:
                found = method(case)
            except DitherError as silent:
                return Row(name, reference, None, f"does not apply: {silent}")
            if found.epsilon is not None and math.isinf(found.epsilon) and not found.note:
                return Row(name, reference, None, "gives no finite ε here.")
            return found

        return asked

    return wrap


# ------------------------------------------------------------------------------------------------ part by part


def _parts(case: _Case, share: float) -> tuple[list[tuple[float, int]], float, str]:
    """((ε, count) of each part, the δ their ε's use up, a note); ``share`` of δ goes to parts that have no ε of their own."""
    made = terms(case.event, case.move)
    if made.shuffled and case.group > 1:
        raise _SilentError("groups may fall on several shuffled batches of one pass.")
    counts = dict(made.counts)
    for part, count in made.shuffled.items():
        counts[part] = counts.get(part, 0) + count
    found, used, open_parts = [], 0.0, []
    for part, count in counts.items():
        stripped, own = rdp.without_delta(part, neighbors=case.neighbors, group=case.group)
        pure = pure_epsilon(stripped, case.move)
        if math.isfinite(pure):
            found.append((pure, count))
            used += count * own
        else:
            open_parts.append((part, count))
    if not open_parts:
        return found, used, ""
    runs = sum(count for _, count in open_parts)
    each = (case.delta - used) * share / runs
    if not each > 0:
        raise _SilentError("parts without a pure ε need some δ each, and none is left.")
    for part, count in open_parts:
        priced = loss(part, neighbors=case.neighbors, group=case.group).epsilon_upper(each)
        if math.isinf(priced):
            raise _SilentError(f"a part has no finite ε at its share of δ, {each:.3g}.")
        found.append((priced, count))
    return found, used + runs * each, f"each of {runs:,} parts without a pure ε is taken at its tight ε for δ = {each:.3g}."


def _check_left(case: _Case, used: float) -> float:
    left = case.delta - used
    if not left > 0:
        raise _SilentError("it needs some δ beyond what the parts use.")
    return left


@_row("basic composition", "Dwork et al. 2006")
def _basic(case: _Case) -> Row:
    found, used, note = _parts(case, 1.0)
    if used > case.delta * (1 + 1e-12):
        raise _SilentError(f"the δ's of the parts add up to {used:.3g}, more than δ.")
    return Row("basic composition", "Dwork et al. 2006", math.fsum(e * n for e, n in found), note)


@_row("advanced composition", "Dwork, Rothblum & Vadhan 2010")
def _advanced(case: _Case) -> Row:
    found, used, note = _parts(case, 0.5)
    left = _check_left(case, used)
    squares = math.fsum(n * e * e for e, n in found)
    drift = math.fsum(n * e * (math.expm1(e) if e < 700 else math.inf) for e, n in found)
    return Row("advanced composition", "Dwork, Rothblum & Vadhan 2010", math.sqrt(2 * math.log(1 / left) * squares) + drift, note)


@_row("optimal composition", "Kairouz, Oh & Viswanath 2015")
def _optimal(case: _Case) -> Row:
    found, used, note = _parts(case, 0.5)
    sizes = {e for e, _ in found if e > 0}
    runs = sum(n for e, n in found if e > 0)
    pure_sum = math.fsum(e * n for e, n in found)
    left = case.delta - used
    if left <= 0 or not sizes:
        if left < 0:
            raise _SilentError(f"the δ's of the parts add up to {used:.3g}, more than δ.")
        return Row("optimal composition", "Kairouz, Oh & Viswanath 2015", pure_sum, note)
    if len(sizes) == 1 and runs <= _HOMOGENEOUS_MAX:
        size = sizes.pop()
        how = "Theorem 3.3, exact for equal parts" if not note else "Theorem 3.3 for equal parts; " + note
        return Row("optimal composition", "Kairouz, Oh & Viswanath 2015", min(pure_sum, _homogeneous(size, runs, left)), how)
    squares = math.fsum(n * e * e for e, n in found)
    drift = math.fsum(n * e * math.tanh(0.5 * e) for e, n in found)
    root = math.sqrt(squares)
    spread = min(math.log(math.e + root / left), math.log(1 / left))
    how = "Theorem 3.5, a closed bound for unequal parts" + (f"; {note}" if note else "")
    return Row("optimal composition", "Kairouz, Oh & Viswanath 2015", min(pure_sum, drift + math.sqrt(2 * squares * spread)), how)


def _homogeneous(epsilon: float, runs: int, delta: float) -> float:
    """The ε at which δ = Σ_j P(j)(1 − e^{ε−(k−2j)ε₀})₊, j ∼ Bin(k, 1/(1 + e^ε₀)): k-fold randomised response, solved exactly."""
    j = np.arange(runs // 2 + 1.0)  # losses (k − 2j)ε₀ ≥ 0
    losses = (runs - 2 * j) * epsilon
    log_q = -epsilon - math.log1p(math.exp(-epsilon)) if epsilon < 700 else -epsilon
    log_p = -math.log1p(math.exp(-epsilon))
    log_mass = gammaln(runs + 1.0) - gammaln(j + 1) - gammaln(runs - j + 1) + j * log_q + (runs - j) * log_p
    log_mass += 1e-15 * runs * max(1.0, math.log(runs))  # rounding of the gamma functions, upwards
    ahead = np.exp(np.logaddexp.accumulate(log_mass))
    log_back = np.logaddexp.accumulate(log_mass - losses)
    # between losses[i+1] and losses[i], δ(ε) = ahead[i] − e^ε·back[i]
    nexts = np.append(losses[1:], 0.0)
    at_next: Array = ahead - np.exp(np.minimum(nexts + log_back, 700.0))
    reached = np.flatnonzero(at_next >= delta)
    if not reached.size:
        return 0.0
    i = int(reached[0])
    if ahead[i] <= delta:
        return float(losses[i])
    return float(min(max(math.log(ahead[i] - delta) - log_back[i], nexts[i]), losses[i])) * (1 + 1e-12)


# ------------------------------------------------------------------------------------------------ by moments


def _stripped(case: _Case) -> tuple[ev.Event, float]:
    made, side = rdp.without_delta(case.event, neighbors=case.neighbors, group=case.group)
    if not case.delta > side:
        raise _SilentError("it needs some δ beyond that of the parts.")
    return made, case.delta - side


@_row("moments accountant", "Abadi et al. 2016")
def _moments(case: _Case) -> Row:
    made, left = _stripped(case)
    orders = np.arange(2.0, 34.0)
    found = rdp.curve(made, orders, neighbors=case.neighbors, group=case.group) - math.log(left) / (orders - 1)
    best = int(np.argmin(found))
    note = "as published: whole orders 2 … 33, ε = D + log(1/δ)/(order − 1)."
    if not math.isfinite(found[best]):
        raise _SilentError("no moment of these orders is finite.")
    return Row("moments accountant", "Abadi et al. 2016", float(found[best]), note, order=float(orders[best]))


@_row("Rényi (RDP)", "Mironov 2017")
def _renyi(case: _Case) -> Row:
    found = rdp.renyi_epsilon(case.event, case.delta, neighbors=case.neighbors, group=case.group)
    if math.isinf(found.value):
        raise _SilentError("no moment is finite, or no δ is left for the conversion.")
    at = "the largest loss" if math.isinf(found.order) else f"order {found.order:.4g}"
    note = f"best at {at}, converted by Canonne, Kamath & Steinke 2020."
    return Row("Rényi (RDP)", "Mironov 2017", found.value, note, order=found.order)


@_row("zCDP", "Bun & Steinke 2016")
def _zcdp(case: _Case) -> Row:
    made, left = _stripped(case)
    rho = float(rdp.zcdp(made, neighbors=case.neighbors, group=case.group)) * (1 + 1e-15)
    found = rdp.epsilon_of_zcdp(rho, left)
    sampled = any(isinstance(part, ev.Subsample) for part in ev.walk(case.event))
    note = f"ρ = {tables.up(rho)}, best at order {found.order:.4g}{'; sampling does not lower ρ.' if sampled else '.'}"
    return Row("zCDP", "Bun & Steinke 2016", found.value, note, order=found.order)


# ------------------------------------------------------------------------------------------------ the central limit, and the truth


def _limit_square(part: ev.Event, case: _Case) -> tuple[float, bool]:
    """μ² of one run in the limit of many, and whether it is exact."""
    k = case.group
    match part:
        case ev.Gaussian(noise_multiplier=sigma):
            return (k / sigma) ** 2, True
        case ev.TreeGaussian() | ev.MatrixGaussian():
            return (moved(part, case.move) / part.noise_multiplier) ** 2, True
        case ev.Subsample(event=ev.Gaussian(noise_multiplier=sigma), sampler=ev.Poisson(probability=q)):
            if not case.move.replace and k == 1 and sigma > 0.04:
                return q * q * math.expm1(sigma**-2), False
        case ev.Subsample(event=ev.Gaussian(noise_multiplier=sigma), sampler=ev.FixedSize(size=size, population=population)):
            if case.move.replace and k == 1 and sigma > 0.04:
                inside = math.exp(sigma**-2) * float(ndtr(1.5 / sigma)) + 3 * float(ndtr(-0.5 / sigma)) - 2
                return 2 * (size / population) ** 2 * inside, False
        case _:
            pass
    raise _SilentError("the published limit is for Gaussian noise, plain or on Poisson (add_remove) or fixed-size (replace) batches.")


@_row("GDP central limit", "Bu, Dong, Long & Su 2020")
def _central_limit(case: _Case) -> Row:
    made = terms(case.event, case.move)
    if made.shuffled:
        raise _SilentError("it has no form for shuffled batches.")
    if case.delta == 0:
        raise _SilentError("it gives no ε at δ = 0.")
    parts = [(*_limit_square(part, case), count) for part, count in made.counts.items()]
    mu = math.sqrt(math.fsum(square * count for square, _, count in parts))
    found = gaussian_epsilon(mu, case.delta)
    if all(exact for _, exact, _ in parts):
        return Row("GDP central limit", "Bu, Dong, Long & Su 2020", found, f"exact here: μ = {mu:.4g}, Gaussians alone.")
    note = f"approximation, can under-report: not a bound and no guarantee (μ = {mu:.4g})."
    return Row("GDP central limit", "Bu, Dong, Long & Su 2020", found, note, kind=APPROXIMATION)


@_row(TIGHT, "privacy loss distribution")
def _tight(case: _Case) -> Row:
    price = loss(case.event, neighbors=case.neighbors, group=case.group)
    bound = price.epsilon(case.delta)
    note = "" if price.tight else " ".join(price.notes[:1]) or "a valid bound that need not be met."
    return Row(TIGHT, "privacy loss distribution", bound.upper, note, lower=bound.lower)
