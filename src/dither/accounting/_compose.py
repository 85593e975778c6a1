"""Composition: many pairs, each some number of times, to δ(ε) and ε(δ) from above and from below.

Each pair becomes two laws on one lattice (``_grid``); the laws are tilted by e^{λ·loss}, so that the losses near the answer
are the likely ones, and multiplied by FFT (``_fourier``). Where one lattice would be too long, powers are taken in rounds,
each on a coarser lattice. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dither.accounting._finite import STATES_MAX, Finite, finite, states
from dither.accounting._fourier import ULP, Curve, Window, curve, log_rises, product, together, untilted
from dither.accounting._grid import Law, gathered, split
from dither.accounting._jumps import Both, Found, jumping
from dither.accounting._lattice import (
    NotSmoothError,
    Part,
    Tilt,
    at,
    coarsest,
    fitted,
    laws,
    part,
    retilted,
    spanned,
    tilt,
    tilted_moments,
    trial_tilts,
    window,
)
from dither.accounting._pair import FEEBLE, Array, Pair
from dither.accounting._pairs import (
    WHOLE,
    AtomsPair,
    GaussianPair,
    ReversedPair,
    SubsampledGaussianPair,
    gaussian_delta,
    gaussian_epsilon,
    subsampled_delta,
)
from dither.accounting._power import Power
from dither.accounting._special import everything, from_profile
from dither.core import checks
from dither.core.units import Bound

COUNT_MAX = 10**15
_TOLERANCE = 3e-4
_TIGHT = 9e-4
_POINTS_MAX = 1 << 19
_ATOMS_MAX = 1 << 15
_STITCH_MAX = 1 << 18
_ATTEMPTS = 4
_TINY = 1e-11
_LEAST = 5e-324
_NOISY = 1e-4
_FAINT = -80.0  # log of a δ below which only the order matters


class Composition:
    """Pairs, each so many times, in one direction; ``p_inf`` is a further probability of complete failure.

    What could not be made tight is said in ``notes``; every number is a bound all the same.

    >>> Composition([(GaussianPair(5.0), 100)]).epsilon(1e-6).upper
    10.99715...
    """

    def __init__(self, parts: Sequence[tuple[Pair, int]], p_inf: float = 0.0) -> None:
        self.notes: list[str] = []
        log_kept, precision = math.log1p(-checks.between("p_inf", p_inf, 0.0, 1.0)) if p_inf < 1 else -math.inf, 0.0
        counts: dict[Pair, int] = {}
        self._shift = 0.0
        for pair, count in parts:
            checks.count("count", count, high=COUNT_MAX)
            if isinstance(pair, GaussianPair) or (isinstance(pair, SubsampledGaussianPair) and pair.probability == 1):
                precision += count / pair.noise_multiplier**2
            elif isinstance(pair, AtomsPair) and np.count_nonzero(pair.p) <= 1:  # one loss only: nothing to add up
                self._shift += count * float(pair.losses[pair.p > 0].sum())
                log_kept += count * math.log1p(-pair.p_inf) if pair.p_inf < 1 else -math.inf
            else:
                counts[pair] = counts.get(pair, 0) + count
        self._p_inf = -math.expm1(log_kept)
        if precision > 0:
            counts[GaussianPair(1 / math.sqrt(precision))] = 1
        self._parts = list(counts.items())
        self._count = sum(counts.values())
        bare = [Law(np.empty(0, dtype=np.int64), np.empty(0), pair.masses(np.zeros(1)).p_inf, 0.0, 1.0) for pair in counts]
        self._infinite = self._p_inf + (1 - self._p_inf) * together(bare, list(counts.values()))
        self._made: Finite | None = None
        atoms = [(pair, c) for pair, c in self._parts if isinstance(pair, AtomsPair)]
        if self._count > 1 and len(atoms) == len(self._parts) and self._infinite < 1 and states(atoms) <= STATES_MAX:
            self._made = finite(atoms, self._infinite, 1 - self._p_inf)

    # -------------------------------------------------------------------------------------------- questions

    def epsilon(self, delta: float) -> Bound:
        """ε ≥ 0 at that δ; ∞ when no ε is enough."""
        lower, upper = self._epsilon(checks.delta(delta), both=True)
        return Bound(min(lower, upper), max(lower, upper))

    def epsilon_upper(self, delta: float) -> float:
        """An ε that is enough at that δ; cheaper than both sides."""
        return self._epsilon(checks.delta(delta), both=False)[1]

    def delta(self, epsilon: float) -> Bound:
        """δ at that ε ≥ 0."""
        lower, upper = self._delta(_nonnegative(epsilon), both=True)
        return Bound(min(lower, upper), max(lower, upper))

    def delta_upper(self, epsilon: float) -> float:
        """A δ that is enough at that ε; cheaper than both sides."""
        return self._delta(_nonnegative(epsilon), both=False)[1]

    def _epsilon(self, delta: float, *, both: bool) -> tuple[float, float]:
        if self._infinite >= 1 or delta < self._infinite * (1 - 1e-15):  # the same number, but for its last digit
            return math.inf, math.inf
        if delta <= self._infinite * (1 + 1e-12):
            low, high = self._unconditional()
            beyond = min(self._infinite * (1 + 2e-12), 1.0)
            return (low if delta <= self._infinite else min(low, self._epsilon(beyond, both=True)[0]) if both else 0.0), high
        if not self._parts:  # one loss, the shift, with what is left of the mass
            ratio = (delta - self._p_inf) / (1 - self._p_inf)
            value = max(0.0, self._shift + math.log1p(-ratio)) if ratio < 1 else 0.0
            return value, value
        if self._count == 1:
            return self._one_epsilon(self._parts[0][0], delta)
        if self._made is not None:
            below, above = self._made.epsilon(delta)
            return max(0.0, below + self._shift), max(0.0, above + self._shift)
        low, high, fineness, jumps, known, needed = 0.0, self._unconditional()[1], 1.0, False, False, True
        for attempt in range(_ATTEMPTS):
            made: Found | None = None
            if jumps or (attempt and high == math.inf):
                start = high if known else low  # the first time by the sketches, then where the answer is
                made = self._jumping(both=both, fineness=fineness, low=start, high=high, needed=needed, delta=delta)
                jumps = known = made is not None
            made = made or self._curves(both=both, fineness=fineness, attempt=attempt, delta=delta, known=high)
            if made is None:
                if attempt:
                    break
                continue
            upper, lower = made
            high = min(high, max(0.0, _widened(upper.epsilon(delta) + self._shift, self._count, 1)))
            low = max(low, _widened(lower.epsilon(delta) + self._shift, self._count, -1)) if lower else low
            noisy = high < math.inf and (jumps or not attempt) and _noisy(upper, high - self._shift, delta - self._infinite)
            if high < math.inf and (high - low <= max(_TIGHT * low, 5e-7) or not (both or noisy)):
                return low, high
            needed = jumps or noisy or 0.1 * high < high - low < math.inf
            jumps = jumps or not attempt
            if attempt or not needed:
                fineness *= min(max(1.5 * (high - low) / max(_TIGHT * low, 5e-7), 4.0), 400.0) if high < math.inf else 16.0
        if high == math.inf or high - low > 0.5 * high:
            high = min(high, self._rough_epsilon(delta))
            low = max(low, min(high, self._rough_lower(delta)))
        if both:
            self._note(low, high, "ε")
        return low, high

    def _unconditional(self) -> tuple[float, float]:
        """ε at a δ that only the infinite losses use up: the sum of the largest losses, from below only if those happen."""
        tops = [(_supremum(pair), count) for pair, count in self._parts]
        known = [top * count for top, count in tops if top is not None]
        if len(known) < len(tops):
            return math.inf, math.inf
        total = max(0.0, math.fsum((self._shift, *known)))
        near = [
            float(pair.masses(np.array([top - 1e-9 * abs(top)])).p[-1])
            for (top, _), (pair, _) in zip(tops, self._parts, strict=True)
            if top
        ]
        return total * (1 - 1e-9) if all(near) else 0.0, total

    def _note(self, low: float, high: float, what: str) -> None:
        if high - low > max(1e-3 * low, 1e-6):
            text = f"The bound on {what} is wide here: from {low:.4g} to {high:.4g}."
            if text not in self.notes:
                self.notes.append(text)

    def _delta(self, epsilon: float, *, both: bool) -> tuple[float, float]:
        epsilon -= self._shift
        if not self._parts:
            value = self._p_inf + (1 - self._p_inf) * max(0.0, -math.expm1(min(epsilon, 0.0)))
            return value, value
        if self._count == 1:
            return self._one_delta(self._parts[0][0], epsilon)
        if self._made is not None:
            return self._made.delta(epsilon)
        if epsilon + self._shift >= self._unconditional()[1] > 0:
            return self._infinite, self._infinite
        asked = epsilon + self._shift
        low, high, fineness, jumps, needed = self._infinite, 1.0, 1.0, False, True
        for attempt in range(_ATTEMPTS):
            made: Found | None = None
            if jumps:
                made = self._jumping(both=both, fineness=fineness, low=asked, high=asked, needed=needed)
                jumps = made is not None
            made = made or self._curves(both=both, fineness=fineness, attempt=attempt, epsilon=epsilon, known=high)
            if made is None or (attempt > 1 and high == 1.0):
                if attempt:
                    break
                jumps = True
                continue
            upper, lower = made
            high = min(high, upper.delta(_widened(epsilon, self._count, -1)))
            low = max(low, lower.delta(_widened(epsilon, self._count, 1))) if lower else low
            noisy = math.exp(_FAINT) < high < 1 and (jumps or not attempt) and _noisy(upper, epsilon, high - self._infinite)
            if high < 1 and (high - low <= max(_TIGHT * low, math.exp(_FAINT)) or not (both or noisy)):
                return low, high
            needed = jumps or noisy or 0.1 * high < high - low
            jumps = jumps or not attempt
            if attempt or not needed:
                fineness *= min(max(1.5 * (high - low) / max(_TIGHT * low, math.exp(_FAINT)), 4.0), 400.0)
        if high == 1.0 or (high - low > 0.5 * high and high > math.exp(_FAINT)):
            least, most = self._rough_delta(epsilon)
            low, high = max(low, min(least, high)), min(high, most)
            for delta in (1e-30, 1e-10):
                if self._infinite < delta < high and low < delta and self._epsilon(delta, both=False)[1] <= epsilon + self._shift:
                    high = delta
        if both:
            self._note(low, high, "δ")
        return low, high

    # -------------------------------------------------------------------------------------------- one release

    def _one_delta(self, pair: Pair, epsilon: float) -> tuple[float, float]:
        """A single release needs no lattice."""
        rest, infinite = 1 - self._p_inf, 0.0
        if isinstance(pair, GaussianPair):
            value = gaussian_delta(1 / pair.noise_multiplier, epsilon)
            low, high = value * (1 - 1e-12), value * (1 + 1e-12)
        elif isinstance(pair, SubsampledGaussianPair) and epsilon >= 0:
            low, high = subsampled_delta(pair, epsilon)
        else:
            cells = pair.masses(np.array([epsilon]))
            p, q, infinite = float(cells.p[-1]), float(cells.q[-1]), cells.p_inf
            if q >= FEEBLE or not p > 0:
                spent = math.exp(min(epsilon + math.log(q), math.log(p))) if p > 0 else 0.0
                error = 32 * ULP * (p + spent)
                low, high = max(0.0, p - spent - error), (p - spent + error if p > 0 else 0.0)
            else:
                low, high = _by_losses(pair, epsilon)
        if not high > 0 and pair.span(-1e7)[1] > epsilon:
            high = _LEAST  # too small for a float is not nothing
        return self._p_inf + rest * (infinite + low), min(1.0, self._p_inf + rest * (infinite + high))

    def _one_epsilon(self, pair: Pair, delta: float) -> tuple[float, float]:
        if isinstance(pair, GaussianPair):
            target = (delta - self._p_inf) / (1 - self._p_inf)
            value = gaussian_epsilon(1 / pair.noise_multiplier, target)
            return max(0.0, value * (1 - 1e-11) + self._shift), max(0.0, value * (1 + 1e-11) + self._shift)
        if self._one_delta(pair, -self._shift)[1] <= delta:
            return 0.0, 0.0
        high = max(pair.span(math.log(delta) - 1.0)[1], 1e-300)
        while self._one_delta(pair, high)[1] > delta:
            if high > 1e9:
                return math.inf, math.inf
            high *= 2
        low = _last(lambda e: self._one_delta(pair, e)[0] > delta, -self._shift, high)[0]
        high = _last(lambda e: self._one_delta(pair, e)[1] > delta, low, high)[1]
        return max(0.0, low + self._shift), min(max(0.0, high + self._shift), self._unconditional()[1])

    # -------------------------------------------------------------------------------------------- many releases

    def _planned(self, epsilon: float | None, delta: float | None) -> tuple[list[Part], Tilt]:
        log_delta = math.log(delta - self._infinite) if delta is not None else 0.0
        margin = 18.0
        while True:
            parts = spanned(self._parts, log_delta, margin)
            chosen = tilt(parts, epsilon=epsilon, log_delta=log_delta)
            if delta is not None or margin > 18.0:
                return parts, chosen
            log_delta, margin = chosen.log_delta, 25.0  # δ was not known: once more, with the tails that its order asks for

    def _curves(
        self, *, both: bool, fineness: float, attempt: int, known: float, delta: float | None = None, epsilon: float | None = None
    ) -> tuple[Curve, Curve | None] | None:
        """Both curves near the answer, of which ``known`` is a bound from above; None when no lattice will do."""
        try:
            parts, chosen = self._planned(epsilon, delta)
        except NotSmoothError:
            return None
        error = (
            max(_TOLERANCE * chosen.epsilon, 2e-7)
            if epsilon is None
            else _TOLERANCE / chosen.value * (1 if chosen.log_delta > _FAINT else 300)
        )
        error /= fineness
        target = chosen.epsilon if epsilon is None else epsilon
        log_tail = -16.0
        if attempt:
            target = min(known, chosen.epsilon) if epsilon is None else epsilon
            log_delta = chosen.log_delta if epsilon is None else min(chosen.log_delta, math.log(max(known - self._infinite, 1e-300)))
            chosen, log_tail = retilted(parts, chosen, target, log_delta)
        log_tail -= 6 * attempt + math.log1p(chosen.spread * chosen.value * (1 + chosen.value))
        try:
            made = self._built(parts, chosen, error, log_tail, both=both)
        except NotSmoothError:
            return None
        counts = [c for _, c in made]
        tilts = trial_tilts(chosen)
        curves: list[Curve] = []
        for side in range(2 if both else 1):
            chain = [pair[side] for pair, _ in made]
            if not all(law.p.any() for law in chain):
                break
            here = _chernoff(chain, counts, chosen, tilts, log_tail)
            here = here._replace(
                left=max(here.left, here.center - target + 4 * chosen.spread) + 4 * chain[0].step,
                right=max(here.right, target - here.center) + 4 * chain[0].step,
            )
            if not (here.left + here.right) / chain[0].step <= 4 * _POINTS_MAX:
                return None
            relative = 8 * ULP * (self._count + 16)
            total = product(chain, counts, chosen.value, here)
            curves.append(curve(total, here.center, relative=relative, p_inf=self._p_inf, upper=side == 0))
        return (curves[0], curves[1] if len(curves) > 1 else None) if curves else None

    def _jumping(self, *, both: bool, fineness: float, low: float, high: float, needed: bool, delta: float | None = None) -> Found | None:
        """As ``_curves``, the sums with a large loss apart from the others; for the δ, or at the ε that is both ``low`` and ``high``."""
        span, excess = (max(low - self._shift, 0.0), high - self._shift), None if delta is None else delta - self._infinite
        try:
            return jumping(self._parts, span, excess, fineness, p_inf=self._p_inf, both=both, needed=needed)
        except NotSmoothError:
            return None

    def _built(self, parts: Sequence[Part], chosen: Tilt, error: float, log_tail: float, *, both: bool) -> list[tuple[list[Law], int]]:
        """Laws on one lattice, [from above, from below], with what is left of their counts."""
        budgets = [12 * error / (len(parts) * p.count * (chosen.value + 1)) for p in parts]
        step = min(math.sqrt(min(budgets)) / 1.5, 0.5 / (chosen.value + 1), chosen.untilted / 8)
        step = max(coarsest(parts, chosen, budgets), fitted(parts, step))
        width = max(14 * chosen.spread, 2 * chosen.untilted, -log_tail / max(chosen.value, 1 / chosen.untilted))
        width = max(width, max((p.high - p.low for p in parts if len(p.atoms) or isinstance(p.pair, AtomsPair)), default=0.0))
        blind = any(p.count >= 64 and 2 * step > math.sqrt(p.sketch.variance) > 0 for p in parts)
        if blind or width / step > _POINTS_MAX or self._count > 1 << 30:
            try:
                return self._in_powers(parts, chosen, error, log_tail, both=both)
            except NotSmoothError:
                pass
        if width / step > 2 * _POINTS_MAX:  # too long: a coarser lattice is valid all the same
            step = fitted(parts, width / _POINTS_MAX)
            budgets = [max(b, 2 * step * step) for b in budgets]
        return [(_sides(laws(p, chosen, step, b, both=both)), p.count) for p, b in zip(parts, budgets, strict=True)]

    def _in_powers(self, parts: Sequence[Part], chosen: Tilt, error: float, log_tail: float, *, both: bool) -> list[tuple[list[Law], int]]:
        """Each part raised to its count on a lattice of its own, then all of them on one that suits the sum."""
        scale = 12 * error / (len(parts) * (chosen.value + 1))
        final = min(math.sqrt(scale / 4), 0.5 / (chosen.value + 1), chosen.untilted / 16)
        final = fitted(parts, max(final, min(error / (8 * len(parts)), chosen.untilted / 2)))
        affordable = 0.01 * error / len(parts)
        made: list[tuple[list[Law], int]] = []
        for one in parts:
            budget = scale / (2 * one.count)
            if one.count == 1:
                sides = _sides(laws(one, chosen, final, scale / 4, both=both))
                made.append((sides, 1))
                continue
            if math.sqrt(one.sketch.variance) < _TINY:
                raise NotSmoothError
            finest = fitted([one], min(math.sqrt(budget) / 1.5, 0.5 / (chosen.value + 1), math.sqrt(one.sketch.variance) / 8))
            steps = [max(finest, coarsest([one], chosen, [loosened * budget])) for loosened in (1, 30, 1000)]
            made.append((self._at_some_step(one, chosen, steps, budget, (log_tail, final, affordable), both=both), 1))
        return made

    @staticmethod
    def _at_some_step(
        one: Part, chosen: Tilt, steps: Sequence[float], budget: float, aim: tuple[float, float, float], *, both: bool
    ) -> list[Law]:
        """The laws of all copies of a part, its own law on the first step that will do (rare atoms can make a fine one rough)."""
        for step in dict.fromkeys(steps):
            if (len(one.atoms) or isinstance(one.pair, AtomsPair)) and (one.high - one.low) / step > _POINTS_MAX:
                continue
            own = _sides(laws(one, chosen, step, budget, both=both))
            try:
                return [_at_once(law, one.count, chosen, *aim, upper=k == 0) for k, law in enumerate(own)]
            except NotSmoothError:
                continue
        raise NotSmoothError

    # -------------------------------------------------------------------------------------------- when all else fails

    def _rough_epsilon(self, delta: float) -> float:
        """Losses cut to [−b, b] have a mean of at most b tanh(b/2) + (Q-mass outside); then Hoeffding (see the proof)."""
        log_each = math.log(delta - self._p_inf) - math.log(8 * self._count)
        linear, square, spent, plain = 0.0, 0.0, self._p_inf, 0.0
        for pair, count in self._parts:
            bound = max(pair.span(log_each)[1], 0.0)
            cells = pair.masses(np.array([-bound, bound]) if bound > 0 else np.zeros(1))
            unseen = 0.0 if isinstance(pair, WHOLE) else max(0.0, 1 - float(cells.q.sum())) + 1e-15
            spent += count * (float(cells.p[-1]) + cells.p_inf)
            linear += count * min(bound, bound * math.tanh(0.5 * bound) + float(cells.q[0] + cells.q[-1]) + unseen)
            square += count * bound * bound
            plain += count * bound
        if not spent < delta:
            return math.inf
        return max(0.0, self._shift + min(plain, linear + math.sqrt(-2 * square * math.log(delta - spent))) * (1 + 1e-12))

    def _rough_lower(self, delta: float) -> float:
        """With probability close to 1 no loss is below the low end of its span."""
        rare = 1e-9
        ends = [(pair.span(math.log(rare / self._count))[0], count) for pair, count in self._parts]
        ratio = (delta - self._p_inf) / ((1 - self._p_inf) * (1 - rare - self._infinite))
        if not 0 <= ratio < 1:
            return 0.0
        low = math.fsum((self._shift, *(end * count for end, count in ends))) + math.log1p(-ratio)
        return max(0.0, low - 1e-9 * abs(low))

    def _rough_delta(self, epsilon: float) -> tuple[float, float]:
        """No loss is outside its span but with small probability, and 1 − e^(ε−s) rises with the sum s."""
        rare = 1e-9
        spans = [(pair.span(math.log(rare / self._count)), count) for pair, count in self._parts]
        low, high = (math.fsum(span[k] * count for span, count in spans) for k in (0, 1))
        slack = 1e-9 * (abs(low) + abs(high))
        rest = 1 - self._p_inf
        least = rest * max(0.0, 1 - rare - self._infinite) * max(0.0, -math.expm1(min(epsilon - low + slack, 0.0)))
        most = self._infinite + rest * (rare + max(0.0, -math.expm1(min(epsilon - high - slack, 0.0))))
        return max(self._infinite, least), min(1.0, most)

    # -------------------------------------------------------------------------------------------- nesting

    def atoms(self) -> AtomsPair:
        """A finite pair just above the whole composition, for putting it inside something else.

        Its tails are relative, by several tilts side by side: nested prices stay tight down to δ about 1e-35.

        >>> Composition([(GaussianPair(5.0), 100)]).atoms().p_inf < 1e-30
        True
        """
        if not self._parts:
            return AtomsPair(np.array([self._shift]), np.array([1 - self._p_inf]), self._p_inf)
        if self._count == 1 and isinstance(self._parts[0][0], AtomsPair) and not self._p_inf and not self._shift:
            return self._parts[0][0]
        log_count = math.log(self._count)
        staged = False
        try:
            parts = [part(pair, c, log_low=-40 - log_count, log_high=-90 - log_count) for pair, c in self._parts]
            near, far = tilt(parts, log_delta=math.log(1e-6)), tilt(parts, log_delta=-85.0)
            error = 1e-4 * near.epsilon if near.epsilon > 0 else 1e-7
            made = self._built(parts, near, error, -40.0, both=False)
            reach, step = far.center + 12 * far.spread + 13 * far.untilted, 0.0
            while reach / made[0][0][0].step > _STITCH_MAX and made[0][0][0].step > step:
                error, step = 2 * error, made[0][0][0].step
                made = self._built(parts, near, error, -40.0, both=False)
            if reach / made[0][0][0].step > _STITCH_MAX:  # more error does not make the lattice coarser: a split is valid all the same
                coarse = made[0][0][0].step * math.ceil(reach / made[0][0][0].step / _STITCH_MAX)
                made = [([split(pair[0], coarse)], count) for pair, count in made]
            staged = any(pair[0].garbage > 0 for pair, _ in made)
        except NotSmoothError:
            self.notes.append("Losses too small to be told apart are nested as one (ε, δ) bound each way, δ = 1e-12.")
            return self._boxed()
        chain, counts = [pair[0] for pair, _ in made], [c for _, c in made]
        return _stitched(parts, chain, counts, near if staged else far, self._p_inf, self._shift, single=staged)

    def _boxed(self) -> AtomsPair:
        """A pair just above a bound on ε at a δ close to p_inf and one on ε of the reverse, whose losses may be far larger."""
        share = self._infinite + 1e-12
        top = self._rough_epsilon(share) if share < 1 else math.inf
        if top == math.inf:
            return everything()
        turned = self._reversed()
        back = turned._infinite + 1e-12  # noqa: SLF001 - of the same class
        bottom = turned._rough_epsilon(back) if back < 1 else math.inf  # noqa: SLF001 - of the same class
        known = {0.0: 1.0}
        if bottom < math.inf:
            known[-bottom] = back * math.exp(-bottom) if bottom > 0 else back
        known[top] = min(share, known.get(top, 1.0)) if top > 0 else min(share, known[0.0])
        losses = sorted(known)
        return from_profile(np.array(losses), np.array([known[x] for x in losses])).law

    def _reversed(self) -> Composition:
        """The same two laws with their roles exchanged."""
        parts: list[tuple[Pair, int]] = []
        for pair, count in self._parts:
            whole = isinstance(pair, WHOLE)
            lost = 0.0 if whole else max(0.0, 1 - math.fsum(pair.masses(np.zeros(1)).q)) + 1e-15
            parts.append((pair if isinstance(pair, GaussianPair) else ReversedPair(pair, lost), count))
        made = Composition(parts, max(0.0, 1 - (1 - self._p_inf) * math.exp(-self._shift)))
        made._shift -= self._shift
        return made


def _by_losses(pair: Pair, epsilon: float) -> tuple[float, float]:
    """δ(ε) = E[(1 − e^(ε−L))₊] without Q, whose masses are too small for floats: each cell counts as its lower or upper end."""
    gaps = np.linspace(0.0, 8.0, 129)
    p = pair.masses(epsilon + gaps).p[1:]
    gain = -np.expm1(-gaps)
    return float(p @ gain) * (1 - 1e-12), float(p @ np.append(gain[1:], 1.0)) * (1 + 1e-12)


def _noisy(curve: Curve | Both, epsilon: float, excess: float) -> bool:
    """Whether a bound from above at its ε is more rounding, or more of what its window left out, than it should be."""
    return curve.noise(epsilon) > _NOISY * excess or curve.delta(epsilon) < 0.9 * excess


def _widened(value: float, count: int, sign: int) -> float:
    """Room for the rounding of the places of the masses (never more than an ulp or two of each loss)."""
    return value + sign * (1e-12 * abs(value) + 4e-16 * min(count, 1 << 20)) if math.isfinite(value) else value


def _nonnegative(epsilon: float) -> float:
    return checks.between("epsilon", epsilon, 0.0, 1e300)


def _last(over: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Neighbouring places, the first (still) over and the second not."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if over(middle):
            low = middle
        else:
            high = middle
        if high - low <= 1e-13 * abs(high):
            break
    return low, high


def _supremum(pair: Pair) -> float | None:
    """The largest finite loss, when there is one."""
    if isinstance(pair, AtomsPair):
        return float(pair.losses[pair.p > 0][-1]) if pair.p.any() else 0.0
    high, higher = pair.span(-1e4)[1], pair.span(-1e7)[1]
    return high if high == higher and float(pair.masses(np.array([high])).p[-1]) == 0 else None


def _sides(made: tuple[Law, Law | None]) -> list[Law]:
    return [law for law in made if law is not None]


def _chernoff(chain: Sequence[Law], counts: Sequence[int], chosen: Tilt, tilts: tuple[Array, Array], log_tail: float) -> Window:
    """The window of the laws themselves."""
    left, right = tilts
    by = np.concatenate((-left, right))
    rise, center = np.zeros(len(by)), 0.0
    for law, count in zip(chain, counts, strict=True):
        own, rises = log_rises(law, chosen.value, by)
        rise += count * rises
        center += count * own
    # ``rise`` is of the centred sum
    moved = rise + center * by
    return window(chosen._replace(center=center), (moved[: len(left)], moved[len(left) :]), tilts, log_tail)


def _at_once(law: Law, count: int, chosen: Tilt, log_tail: float, step: float, affordable: float, *, upper: bool) -> Law:
    """All copies of a law as one, on a coarser lattice."""
    if not law.p.any():
        raise NotSmoothError
    try:
        power = Power(law, count, chosen, log_tail, step)
    except NotSmoothError:
        mean, variance = tilted_moments(law.losses, law.p, chosen.value)
        own = chosen._replace(center=count * mean, spread=math.sqrt(count * variance))
        here = _chernoff([law], [count], own, trial_tilts(own), log_tail)
        if not (here.left + here.right) / law.step <= 2 * _POINTS_MAX:
            raise
        whole = untilted(product([law], [count], chosen.value, here))
        return split(whole, step) if upper else gathered(whole, step, chosen.value, affordable)
    return power.above(step) if upper else power.below(step, affordable)


def _stitched(
    parts: Sequence[Part], chain: Sequence[Law], counts: Sequence[int], far: Tilt, p_inf: float, shift: float, *, single: bool
) -> AtomsPair:
    """One law from several tilts: each loss takes the mass from the tilt that knows it best, raised by what is uncertain."""
    step = chain[0].step
    plain = at(parts, 0.0, far.untilted, 0.0, 0.0)
    lowest = plain.center - 13 * far.untilted - 40 * step
    edge = _chernoff(chain, counts, far, trial_tilts(far), -45.0)
    highest = edge.center + edge.right + 40 * step
    values = [far.value] if single else (far.value * np.array([0.0, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0])).tolist()
    values = values if single else [-1.0, -0.5, *values]
    log_p, trust, failed, losses = np.empty(0), np.empty(0), 0.0, np.empty(0)
    for value in values:
        chosen = at(parts, value, far.untilted, 0.0, 0.0)
        here = _chernoff(chain, counts, chosen, trial_tilts(chosen), -85.0)
        made = product(chain, counts, value, here._replace(left=here.center - lowest, right=highest - here.center))
        losses = made.losses
        noise = made.rounding + made.inherited + made.left + made.right
        own = made.tilted / noise
        found = np.log(made.tilted + noise) + (made.log_mass - value * losses)
        log_p = found if not len(log_p) else np.minimum(found, log_p)
        trust = own if not len(trust) else np.maximum(own, trust)
        failed = math.exp(min(0.0, made.log_mass - value * float(losses[-1]))) * min(1.0, made.right + made.inherited)
    failed = min(1.0, p_inf + together(chain, counts) + failed)
    if failed >= 1:
        return everything()
    p = (1 - p_inf) * np.exp(np.minimum(log_p, 0.0))
    # Each mass is from above, so all may add to more than there is: what is too much is taken from the left, never from all
    # alike, which would lower the tails. Left of the first place that is known, nothing is known but that it is the rest.
    tails = np.append(np.cumsum(p[::-1])[::-1], 0.0)
    first = max(int(np.argmax(trust > 1e3)), int(np.count_nonzero(tails > 1 - failed)) - 1)
    p[first] = 1 - failed - float(tails[first + 1])
    law = Law(np.arange(first, len(p)), p[first:], failed, float(losses[0]) + shift, step)
    law = split(law, step * max(1, math.ceil(len(law.p) / _ATOMS_MAX)))
    return AtomsPair(law.losses, law.p * ((1 - failed) / float(law.p.sum())), failed, law.step)
