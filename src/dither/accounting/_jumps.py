"""Rare large losses: the sums in which none is above a cut, and those in which one is, each under a tilt of its own.

Where the tail of one loss is heavier than any exponential up to the answer, no single tilt will do: one that makes the answer
likely leaves nearly all mass at the far end, and a gentler one nearly all of it near 0, and the rounding of the transforms, a
share of the whole, hides the answer. Cut in two, both pieces are harmless. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import fft

from dither.accounting._fourier import ULP, Curve, Product, Spectrum, Window, curve, log_moments, log_sums, product, tilted_weights
from dither.accounting._grid import Law
from dither.accounting._lattice import NotSmoothError, Part, Tilt, fitted, laws, spanned
from dither.accounting._pair import Array, Pair

_POINTS_MAX = 1 << 20
_STEEP = 1e4
_TOLERANCE = 3e-4
_MARGIN = 18.0
_LEAST = -80.0  # where a search for log δ begins
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_TURNS = np.geomspace(0.05, 500.0, 48)


class Cut(NamedTuple):
    """Where losses are cut, the ε and log δ looked for, −d log δ/dε there, and the tilts of the two pieces."""

    place: float
    target: float
    log_delta: float
    slope: float
    near: float
    far: float


def by_one(parts: Sequence[Part], epsilon: float) -> tuple[float, float]:
    """δ(ε) and −δ′(ε) if one loss made up the sum, from the sketches: close where large losses are rare."""
    value = slope = 0.0
    for one in parts:
        over = one.sketch.losses > epsilon
        left = np.exp(epsilon - one.sketch.losses[over])
        value += one.count * float(one.sketch.p[over] @ (1 - left))
        slope += one.count * float(one.sketch.p[over] @ left)
    return value, slope


def _sought(parts: Sequence[Part], log_delta: float, low: float, high: float) -> float:
    """The ε between these at which one loss makes up for that δ."""
    target = math.exp(log_delta)
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if by_one(parts, middle)[0] > target else (low, middle)
    return 0.5 * (low + high)


def cut(parts: Sequence[Part], log_delta: float, low: float, high: float) -> Cut | None:
    """Where to cut for an ε between these: the place and the tilts under which the rounding of both pieces matters least."""
    target = _sought(parts, log_delta, low, min(high, max(p.high for p in parts))) if high > low else low
    value, slope = by_one(parts, target)
    if not 0 < target * slope < _STEEP * value:
        return None  # no single loss makes up for it: there is no tail to follow
    tilts = _TURNS / target
    best, found = math.inf, None
    least = max(float(one.sketch.losses[one.sketch.p > 0].min(initial=math.inf)) for one in parts)
    most = max(float(one.sketch.losses[one.sketch.p > 0].max(initial=-math.inf)) for one in parts)
    for place in target * np.array(_SHARES):
        if not least <= place < most:  # every part has losses below it, and one has some above
            continue
        below, odds = np.zeros(len(tilts)), []
        for one in parts:
            losses, p = one.sketch.losses - target, one.sketch.p
            few = losses + target > place
            kept = log_sums(losses[~few], p[~few], tilts)
            below += one.count * (kept + tilts * target)
            odds.append(log_sums(losses[few], p[few], tilts) - kept)
        near = below - tilts * target
        far = near + _log_jumps(odds, [one.count for one in parts])
        i, j = int(np.argmin(near)), int(np.argmin(far))
        worst = max(float(near[i]), float(far[j]))
        if worst < best:
            best, found = worst, Cut(float(place), target, log_delta, slope / value, float(tilts[i]), float(tilts[j]))
    return found


def _log_jumps(odds: Sequence[Array], counts: Sequence[int]) -> Array:
    """Log of Π (1 + e^odds)^count − 1: what the sums with a jump weigh beside those without."""
    rise = np.sum([c * np.logaddexp(0.0, x) for x, c in zip(odds, counts, strict=True)], axis=0)
    least = np.logaddexp.reduce([math.log(c) + x for x, c in zip(odds, counts, strict=True)], axis=0)
    with np.errstate(divide="ignore"):
        made = np.where(rise < 30, np.log(np.expm1(np.minimum(rise, 30.0))), rise)
    return np.asarray(np.where(rise > 1e-290, made, least))


@dataclass(frozen=True, slots=True)
class Both:
    """A bound on the profile as the sum of those of two pieces; what fails for sure is in ``without``."""

    without: Curve
    jumping: Curve

    def delta(self, epsilon: float) -> float:
        """The bound on δ at ε."""
        return min(1.0, self.without.delta(epsilon) + self.jumping.delta(epsilon))

    def noise(self, epsilon: float) -> float:
        """What of that is uncertainty."""
        return self.without.noise(epsilon) + self.jumping.noise(epsilon)

    def epsilon(self, delta: float) -> float:
        """The bound on ε at δ; from below −∞ and from above +∞ when the windows do not hold it."""
        low = max(float(c.losses[0]) for c in (self.without, self.jumping))
        high = max(float(c.losses[-1]) for c in (self.without, self.jumping))
        upper = self.without.upper
        if not self.delta(low) > delta:
            return low if upper else -math.inf
        if self.delta(high) > delta:
            return math.inf if upper else high
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high if upper else low


def jumping(
    pairs: Sequence[tuple[Pair, int]],
    within: tuple[float, float],
    delta: float | None,
    fineness: float,
    *,
    p_inf: float,
    both: bool,
    needed: bool,
) -> tuple[Both, Both | None]:
    """Both bounds for an ε ``within`` at that δ, or, where none is given, for δ at its upper end.

    NotSmoothError where no single loss makes up for the sum; unless it is ``needed``, it has to make up for most of δ.
    """
    low, high = within
    log_delta = _LEAST if delta is None else math.log(delta)
    if delta is None:  # its order is found first
        log_delta = math.log(max(by_one(spanned(pairs, log_delta, _MARGIN), high)[0], 1e-300))
    parts = spanned(pairs, log_delta, _MARGIN)
    chosen = cut(parts, log_delta, low, high)
    if chosen is None or not (needed or by_one(parts, high)[0] > 0.3 * math.exp(log_delta)):
        raise NotSmoothError
    error = max(_TOLERANCE * chosen.target, 2e-7) if delta is not None else _TOLERANCE / chosen.slope
    return curves(parts, chosen, error / fineness, p_inf, both=both)


Found: TypeAlias = tuple[Curve | Both, Curve | Both | None]
"""Bounds from above and, if asked for and found, from below."""


def curves(parts: Sequence[Part], chosen: Cut, error: float, p_inf: float, *, both: bool) -> tuple[Both, Both | None]:
    """Both bounds near the ε of the cut, with an error of ε about ``error``."""
    made = _laws(parts, chosen, error, both=both)
    counts = [p.count for p in parts]
    relative = 8 * ULP * (sum(counts) + 16)
    found: list[Both] = []
    for side in range(2 if both else 1):
        chain = [pair[side] for pair in made]
        cuts = [int(np.searchsorted(law.losses, chosen.place, "right")) for law in chain]
        pieces = [(law.p[:k].any(), law.p[k:].any()) for law, k in zip(chain, cuts, strict=True)]
        if not all(low for low, _ in pieces) or not any(few for _, few in pieces):
            break
        below = [replace(law, index=law.index[:k], p=law.p[:k]) for law, k in zip(chain, cuts, strict=True)]
        upper = side == 0
        here = _window(below, counts, None, chosen, chosen.near)
        without = curve(product(below, counts, chosen.near, here), chosen.target, relative=relative, p_inf=p_inf, upper=upper)
        here = _window(below, counts, chain, chosen, chosen.far)
        jumping = curve(jumped(chain, cuts, counts, chosen.far, here), chosen.target, relative=relative, p_inf=0.0, upper=upper)
        scale = math.log1p(-p_inf)
        found.append(Both(without, replace(jumping, log_scale=jumping.log_scale + scale)))
    if not found:
        raise NotSmoothError
    return found[0], found[1] if len(found) > 1 else None


def _laws(parts: Sequence[Part], chosen: Cut, error: float, *, both: bool) -> list[list[Law]]:
    """Laws on one lattice, [from above, from below], with small cells where either piece has its mass."""
    budgets = [12 * error / (len(parts) * p.count * (chosen.slope + 1)) for p in parts]
    step = min(math.sqrt(min(budgets)) / 1.5, 0.5 / (max(chosen.slope, chosen.near) + 1), chosen.target / 64)
    step = fitted(parts, max(step, 2 * max(p.high for p in parts) / _POINTS_MAX))
    budgets = [max(b, 2 * step * step) for b in budgets]
    made = []
    for one, budget in zip(parts, budgets, strict=True):
        losses, p = one.sketch.losses, one.sketch.p
        few = losses > chosen.place
        tilted = [_likely(p * ~few, chosen.near * losses), _likely(p * few, chosen.far * losses) / one.count]
        weights = np.maximum(p, np.maximum(*tilted))
        tilt = Tilt(chosen.slope, chosen.target, chosen.target, chosen.target, chosen.target, chosen.log_delta)
        upper, lower = laws(one, tilt, step, budget, both=both, weights=weights)
        made.append([upper] if lower is None else [upper, lower])
    return made


def _likely(p: Array, exponents: Array) -> Array:
    if not p.any():
        return p
    weights = p * np.exp(np.minimum(exponents - exponents[p > 0].max(), 0.0))
    return np.asarray(weights / weights.sum())


def _window(below: Sequence[Law], counts: Sequence[int], chain: Sequence[Law] | None, chosen: Cut, value: float) -> Window:
    """The window of a piece, all around the target: outside it there is nothing that matters at δ."""
    by = np.geomspace(0.1, 1000.0, 32) / chosen.target
    tilts = np.concatenate(([value], value - by, value + by))
    log_mass: Array
    if chain is None:
        log_mass = np.sum([c * log_moments(law, tilts) for law, c in zip(below, counts, strict=True)], axis=0)
    else:
        log_mass = _log_masses(below, chain, counts, tilts)
    log_tail = min(chosen.log_delta - (float(log_mass[0]) - value * chosen.target), 0.0) - 14
    rises = log_mass[1:] - log_mass[0]
    left = chosen.target - (log_tail - rises[: len(by)]) / by
    right = (rises[len(by) :] - log_tail) / by - chosen.target
    i, j = int(np.argmin(left)), int(np.argmin(right))
    step = below[0].step
    here = Window(chosen.target, max(float(left[i]), 0.0) + 8 * step, max(float(right[j]), 0.0) + 8 * step, float(by[i]), float(by[j]))
    if not (here.left + here.right) / step <= 2 * _POINTS_MAX:
        raise NotSmoothError
    return here


def _log_masses(below: Sequence[Law], chain: Sequence[Law], counts: Sequence[int], tilts: Array) -> Array:
    """Log E e^{t·sum} over the sums with a jump."""
    low = [log_moments(law, tilts) for law in below]
    few = [log_sums(law.losses[len(b.p) :], law.p[len(b.p) :], tilts) for law, b in zip(chain, below, strict=True)]
    whole = np.sum([c * k for k, c in zip(low, counts, strict=True)], axis=0)
    return np.asarray(whole + _log_jumps([f - k for f, k in zip(few, low, strict=True)], counts))


def jumped(chain: Sequence[Law], cuts: Sequence[int], counts: Sequence[int], tilt: float, window: Window) -> Product:
    """The tilted law of those sums in which some loss is not among the first ``cuts`` of its law.

    W^n − B^n, from B and R = W − B by additions and multiplications alone: it is right to a share of itself, not of W^n.
    """
    step, total = chain[0].step, sum(counts)
    n = fft.next_fast_len(int((window.left + window.right) / step) + 8, real=True)
    tilts = np.array([tilt, tilt - window.t_left, tilt + window.t_right])
    without: Spectrum | None = None
    jumps: Spectrum | None = None
    base, origin, moments, kept = 0, 0.0, np.zeros(3), 0.0
    below = [replace(law, index=law.index[:k], p=law.p[:k]) for law, k in zip(chain, cuts, strict=True)]
    for law, k, count in zip(chain, cuts, counts, strict=True):
        weights = tilted_weights(law, tilt)
        shift = int(law.index[0]) + round(float(weights @ (law.index - law.index[0])))
        at = (law.index - shift) % n
        low, few = (np.asarray(fft.rfft(np.bincount(at[part], weights[part], n))) for part in (slice(0, k), slice(k, None)))
        own = _jumping_power(low, few, count)
        without, jumps = own if without is None or jumps is None else _joined((without, jumps), own)
        base += count * shift
        origin += count * law.origin
        moments += count * log_moments(law, tilts)
        kept += count * math.log1p(-min(float(weights[k:].sum()), 1 - 1e-16))
    assert jumps is not None
    share = -math.expm1(kept)  # what the sums with a jump weigh under the tilt
    if not share > 1e-290:
        raise NotSmoothError
    tilted = np.maximum(fft.irfft(jumps / share, n), 0.0)
    first = round((window.center - window.left - origin) / step)
    tilted = np.roll(tilted, -((first - base) % n))
    low_end = origin + step * first
    high_end = low_end + step * (n - 1)
    eta = 8 * ULP * math.log2(n)
    rounding = math.expm1(total * (eta + 16 * ULP)) + eta * math.sqrt(float(tilted @ tilted))
    log_mass = _log_masses(below, chain, counts, tilts)
    left = math.exp(min(0.0, float(log_mass[1] - log_mass[0]) + window.t_left * low_end))
    right = math.exp(min(0.0, float(log_mass[2] - log_mass[0]) - window.t_right * high_end))
    return Product(first, origin, step, tilted, tilt, float(log_mass[0]), rounding, left, right, 0.0, 0.0)


def _joined(one: tuple[Spectrum, Spectrum], two: tuple[Spectrum, Spectrum]) -> tuple[Spectrum, Spectrum]:
    """(without, with a jump) of a sum from those of its two parts."""
    return one[0] * two[0], one[1] * (two[0] + two[1]) + one[0] * two[1]


def _jumping_power(low: Spectrum, few: Spectrum, count: int) -> tuple[Spectrum, Spectrum]:
    """(low^count, (low + few)^count − low^count) by repeated squaring."""
    result: tuple[Spectrum, Spectrum] | None = None
    value = (low, few)
    while True:
        if count & 1:
            result = value if result is None else _joined(result, value)
        count >>= 1
        if not count:
            assert result is not None
            return result
        value = value[0] * value[0], value[1] * (2 * value[0] + value[1])
