"""From an event to dominating pairs: the leaf table, the samplers, and the one function that counts.

A *move* says how the data of the unit change. ``terms`` flattens an event into leaves with exact counts and is the only
place that multiplies; ``price`` sees one leaf or one composite, never a count. Proofs: docs/proofs/samplers-pricing.md
and docs/proofs/special-events.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np
from scipy.special import gammaln

from dither.accounting import _samplers as sampling
from dither.accounting import _special as special
from dither.accounting._bounds import SWAP, SWAP_OF_PRESENCE, Move, mean_runs, moved, pure_epsilon, uses
from dither.accounting._compose import Composition
from dither.accounting._pair import Array, Pair
from dither.accounting._pairs import GaussianPair, LaplacePair, MixtureGaussianPair
from dither.accounting._shuffle import ClonesPair, clones_as_atoms, clones_of_any, clones_of_response, over
from dither.core import checks
from dither.core import events as ev
from dither.core.errors import InputError, NotPriceableError

COUNT_TOTAL_MAX = 10**15
MIXTURE_MAX = 256
GROUP_MIXTURE_MAX = 4096
LAYERS_MAX = 12
_ONE = Move()


@dataclass(frozen=True, slots=True)
class Price:
    """Pairs that dominate, and pairs that are met: (remove, add), or one for both directions.

    ``lower`` None: nothing is proven from below. The price is tight where ``lower`` is ``upper``; with ``once`` it is
    also tight for a single run, where each ε has its own worst case, but none is the worst at all of them.
    """

    upper: tuple[Pair, ...]
    lower: tuple[Pair, ...] | None
    notes: tuple[str, ...] = ()
    once: bool = False

    def at(self, direction: int) -> Pair:
        """The dominating pair in that direction."""
        return self.upper[min(direction, len(self.upper) - 1)]

    def met(self, direction: int) -> Pair | None:
        """The attained pair in that direction."""
        return None if self.lower is None else self.lower[min(direction, len(self.lower) - 1)]


def _tight(*pairs: Pair) -> Price:
    return Price(pairs, pairs)


def _loose(*pairs: Pair, lower: tuple[Pair, ...] | None = None, note: str) -> Price:
    return Price(pairs, lower, (note,))


# ------------------------------------------------------------------------------------------------ counting


@dataclass(slots=True)
class Terms:
    """An event taken apart: how often each leaf or composite is run, and what has been merged already.

    ``precision`` is Σ count/noise_multiplier² of Gaussians, ``rho`` Σ count·ρ of zCDP events; ``shuffled`` counts what
    is run inside shuffled batches apart from the rest.
    """

    counts: dict[ev.Event, int] = field(default_factory=dict)
    shuffled: dict[ev.Event, int] = field(default_factory=dict)
    precision: float = 0.0
    rho: float = 0.0
    notes: list[str] = field(default_factory=list)
    exact: bool = True


def terms(event: ev.Event, move: Move = _ONE) -> Terms:
    """The event as leaves with counts: the only place where counts are multiplied.

    Counts that several units may share out are priced by what holds for all ways to (docs/proofs/numeric.md, Lemma 4).

    >>> terms(ev.Repeat(ev.Sequence((ev.PureDp(1.0), ev.Repeat(ev.PureDp(1.0), 2))), 5)).counts
    {PureDp(epsilon=1.0): 15}
    """
    made = Terms()
    waiting: list[tuple[ev.Event, int, bool]] = [(event, 1, False)]
    while waiting:
        current, count, dealt = waiting.pop()
        if count > COUNT_TOTAL_MAX:
            raise InputError(f"This event runs a part of it {count:.3g} times: expected at most {COUNT_TOTAL_MAX:_} in all.")
        match current:
            case ev.Repeat(event=ev.Subsample(event=inner, sampler=ev.Shuffled() as sampler), count=batches):
                made.notes.append(_shuffled_note(sampler))
                made.exact = made.exact and sampler.batch == sampler.population
                waiting.append((inner, count * uses(sampler, batches), True))
            case ev.Subsample(event=inner, sampler=ev.Shuffled() as sampler):
                made.notes.append(_shuffled_note(sampler))
                made.exact = made.exact and sampler.batch == sampler.population
                waiting.append((inner, count, True))
            case ev.Repeat(spread=True) if (held := _held(current, move)) is not None:
                made.notes.append(_SPREAD)
                made.exact = False
                waiting.append((held, count, dealt))
            case ev.Repeat(event=inner, count=times):
                waiting.append((inner, count * times, dealt))
            case ev.Sequence(events=members):
                waiting.extend((member, count, dealt) for member in reversed(members))
            case ev.Parallel(events=(only,)):
                waiting.append((only, count, dealt))
            case _:
                counts = made.shuffled if dealt else made.counts
                counts[current] = counts.get(current, 0) + count
    return made


_SPREAD = "Several units may share out the counts they move in any way: priced by a bound on all of them, which need not be met."


def _held(event: ev.Repeat, move: Move) -> ev.Event | None:
    """What holds however units share out the counts they move; None where that is the event as it stands."""
    inner, times = event.event, event.count
    match inner:
        case _ if times == 1 or move.scale == 1:
            return None
        case ev.DiscreteLaplace(noise_scale=scale, sensitivity=shift) if move.scale * shift > 2:
            each, bins = move.scale * shift / scale, 2 * times - 1
            if bins * (each + math.expm1(-each)) + 6 * each * math.sqrt(bins) < times * each:  # roughly which of the two is less
                return ev.Repeat(inner, bins)
            whole = shift * times
            return ev.DiscreteLaplace(scale, whole) if scale / whole >= checks.NOISE_MIN else ev.NonPrivate()
        case ev.DiscreteGaussian(noise_std=std, sensitivity=shift) if move.scale * shift > 2:
            rho = math.nextafter(float(times * Fraction(shift) ** 2 / (2 * Fraction(std) ** 2)), math.inf)
            return ev.Zcdp(rho) if rho <= checks.EPSILON_MAX else ev.NonPrivate()
    return None


def _shuffled_note(sampler: ev.Shuffled) -> str:
    if sampler.batch == sampler.population:
        return "Shuffled batches of the whole population hold every unit: priced without sampling, exactly."
    epoch = sampler.population // sampler.batch
    return (
        f"Shuffled batches are priced as one use of each unit in every {epoch:_} batches, without amplification. Under add_remove an "
        "absent unit leaves its place in the order empty; where its absence moves the cuts between batches, price with replace."
    )


Rule: TypeAlias = Callable[[Terms, Move], None]


def _merge_streams(made: Terms, move: Move) -> None:
    """Trees and Toeplitz mechanisms are one Gaussian release of the whole stream each."""
    for counts in (made.counts, made.shuffled):
        for event in [e for e in counts if isinstance(e, ev.TreeGaussian | ev.MatrixGaussian)]:
            made.precision += counts.pop(event) * (moved(event, move) / event.noise_multiplier) ** 2


def _merge_gaussians(made: Terms, move: Move) -> None:
    """Many Gaussians are one: n equal ones have noise_multiplier / √n; and k units are, however they fall on batches."""
    for counts in (made.counts, made.shuffled):
        for event in [e for e in counts if isinstance(e, ev.Gaussian)]:
            made.precision += counts.pop(event) * (move.scale / event.noise_multiplier) ** 2


def _merge_zcdp(made: Terms, move: Move) -> None:
    """The ρ's of zCDP events add, and k moves cost k² as much (Bun & Steinke 2016)."""
    for counts in (made.counts, made.shuffled):
        for event in [e for e in counts if isinstance(e, ev.Zcdp)]:
            made.rho += counts.pop(event) * event.rho * move.scale**2


def _drop_nothing(made: Terms, move: Move) -> None:
    """What has ε = 0 and δ = 0 costs nothing, however often and whoever moves."""
    del move
    for counts in (made.counts, made.shuffled):
        for event in [e for e in counts if pure_epsilon(e) == 0]:
            del counts[event]


RULES: tuple[Rule, ...] = (_drop_nothing, _merge_streams, _merge_gaussians, _merge_zcdp)


@dataclass(frozen=True, slots=True)
class Parts:
    """What is composed: prices with their counts."""

    prices: tuple[tuple[Price, int], ...]
    notes: tuple[str, ...]
    exact: bool

    @property
    def directions(self) -> int:
        """1 where every part is the same both ways."""
        return max((len(side) for price, _ in self.prices for side in (price.upper, price.lower or ())), default=1)

    @property
    def tight(self) -> bool:
        """Whether every pair composed is met."""
        return self.exact and all(price.lower is price.upper for price, _ in self.prices)


def parts(event: ev.Event, move: Move, *, rules: tuple[Rule, ...] = RULES) -> Parts:
    """The priced parts of an event.

    >>> len(parts(ev.Repeat(ev.Gaussian(1.0), 10**9), Move()).prices)
    1
    """
    made = terms(event, move)
    for rule in rules:
        rule(made, move)
    prices: list[tuple[Price, int]] = []
    if made.precision > 0:
        prices.append((_tight(GaussianPair(1 / math.sqrt(made.precision))), 1))
    if made.rho > 0:
        prices.append((_zcdp(made.rho), 1))
    prices.extend((price(inner, move), count) for inner, count in made.counts.items())
    for inner, count in made.shuffled.items():
        own = price(inner, move) if move.group == 1 else _grouped(inner, move)
        prices.append((own, count))
    if len(prices) == 1 and prices[0][1] == 1 and prices[0][0].once:
        prices = [(_tight(*prices[0][0].upper), 1)]
    elif sum(count for _, count in prices) > 1:
        prices = [(_composable(own), count) for own, count in prices]
    notes = dict.fromkeys([*made.notes, *(note for p, _ in prices for note in p.notes)])
    return Parts(tuple(prices), tuple(notes), made.exact)


def _composable(own: Price) -> Price:
    """Pairs whose cells are dear to compute, as atoms."""
    if not any(isinstance(pair, ClonesPair) for pair in own.upper):
        return own
    return replace(own, upper=tuple(clones_as_atoms(pair) if isinstance(pair, ClonesPair) else pair for pair in own.upper))


def as_pairs(event: ev.Event, move: Move) -> Price:
    """The event as one pair in each direction, however it is composed, for use inside another.

    >>> as_pairs(ev.Repeat(ev.Gaussian(2.0), 4), Move()).upper
    (GaussianPair(noise_multiplier=1.0),)
    """
    made = parts(event, move)
    if not made.prices:
        return _tight(special.approx_dp(0.0, 0.0))
    if len(made.prices) == 1 and made.prices[0][1] == 1:
        only = made.prices[0][0]
        if any(sampling.layers(pair) > LAYERS_MAX for pair in only.upper):
            flat = tuple(_flattened(pair) for pair in only.upper)  # type: ignore[arg-type]  # pairs are frozen, so they can be hashed
            return Price(flat, None, (*made.notes, _NESTED))
        return only if made.exact else Price(only.upper, None, made.notes)
    both = tuple(Composition([(p.at(d), c) for p, c in made.prices]).atoms() for d in range(max(len(p.upper) for p, _ in made.prices)))
    return Price(both, None, (*made.notes, _NESTED))


_NESTED = "A composition inside a sampler or a choice is priced by a discrete pair just above it."


@lru_cache(maxsize=64)
def _flattened(pair: Pair) -> Pair:
    """A discrete pair just above: samplers within samplers would double the work with every layer."""
    return special.group_pair(pair, 1)


# ------------------------------------------------------------------------------------------------ one leaf or composite


@lru_cache(maxsize=1024)
def price(event: ev.Event, move: Move) -> Price:
    """The pairs of one leaf or composite event under a move.

    >>> price(ev.Laplace(2.0), Move(group=2)).upper
    (LaplacePair(noise_multiplier=1.0),)
    """
    k = move.scale
    match event:
        case ev.Gaussian(noise_multiplier=sigma):
            return _tight(GaussianPair(sigma / k))
        case ev.Laplace(noise_multiplier=scale):
            return _tight(LaplacePair(scale / k))
        case ev.DiscreteLaplace(noise_scale=scale, sensitivity=shift):
            return _tight(special.DiscreteLaplacePair(scale, shift * k))
        case ev.DiscreteGaussian(noise_std=std, sensitivity=shift):
            return _tight(special.DiscreteGaussianPair(std, shift * k))
        case ev.RandomizedResponse(epsilon=epsilon, values=values):
            if move.group == 1:
                return _tight(special.randomized_response(epsilon, values))
            return _pure(epsilon * move.group, 1)
        case ev.PureDp(epsilon=epsilon):
            return _pure(epsilon, k)
        case ev.ApproxDp():
            return _approx(event, k)
        case ev.Zcdp(rho=rho):
            return _zcdp(rho * k * k)
        case ev.ExponentialMechanism(epsilon=epsilon):
            return _bounded_range(epsilon, k)
        case ev.TreeGaussian() | ev.MatrixGaussian():
            return _tight(GaussianPair(event.noise_multiplier / moved(event, move)))
        case ev.NonPrivate():
            return _tight(special.everything())
        case ev.Subsample():
            return _subsample(event, move) if move.group == 1 else _group_subsample(event, move)
        case ev.Parallel():
            return _parallel(event, move) if move.group == 1 else _group_parallel(event, move)
        case ev.SelectBest():
            return _select(event, move)
        case ev.ShuffledReports():
            return _reports(event) if move.group == 1 else _group_reports(event, move)
        case ev.Repeat() | ev.Sequence():
            return as_pairs(event, move)


def _group_note(size: int) -> str:
    return f"{size} moves of one mechanism are priced by a general bound on groups, which need not be met."


def _pure(epsilon: float, moves: int) -> Price:
    if epsilon == 0:
        return _tight(special.approx_dp(0.0, 0.0))
    pair = special.randomized_response(epsilon * moves, 2)
    return _tight(pair) if moves == 1 else _loose(pair, note=_group_note(moves))


def _approx(event: ev.ApproxDp, moves: int) -> Price:
    if moves == 1:
        return _tight(special.approx_dp(event.epsilon, event.delta))
    if event.one_unit:
        raise _for_one_unit(moves)
    if event.delta == 0:
        return _pure(event.epsilon, moves)
    least = (moves - 1) * event.epsilon + math.log(event.delta)  # log of the last term of δ(1 + e^ε + … + e^{(k−1)ε})
    if least >= 0:
        return _loose(special.everything(), note=_group_note(moves))
    ratio = moves if event.epsilon == 0 else math.expm1(-moves * event.epsilon) / math.expm1(-event.epsilon)
    share = math.exp(least) * ratio
    pair = special.approx_dp(event.epsilon * moves, share) if share < 1 else special.everything()
    return _loose(pair, note=_group_note(moves))


def _for_one_unit(moves: int) -> NotPriceableError:
    return NotPriceableError(
        "A part of this event, ApproxDp(…, one_unit=True), is proved for one unit only, together with what stands beside it, so it has "
        f"no price for {moves:,} units or moves at once: expected one. A histogram with Laplace noise whose units move one count each has "
        "a price for groups."
    )


def _bounded_range(epsilon: float, moves: int) -> Price:
    if epsilon == 0:
        return _tight(special.approx_dp(0.0, 0.0))
    met = (special.randomized_response(0.5 * epsilon, 2),)
    pair = special.BoundedRangePair(epsilon * moves)
    if moves > 1:
        return _loose(pair, lower=met, note=_group_note(moves))
    note = "Composed bounded-range mechanisms: no single one meets the worst case at every ε, so ε may be a little less."
    return Price((pair,), met, (note,), once=True)


def _zcdp(rho: float) -> Price:
    if rho == 0:
        return _tight(special.approx_dp(0.0, 0.0))
    note = "zCDP says less than a mechanism does: the bound from below is the Gaussian of the same ρ."
    return Price((special.zcdp_pair(rho),), (GaussianPair(1 / math.sqrt(2 * rho)),), (note,))


def _grouped(event: ev.Event, move: Move) -> Price:
    """A group through the general bound, from the price of one unit."""
    if isinstance(event, ev.ApproxDp) and event.one_unit:
        raise _for_one_unit(move.group)
    one = price(event, replace(move, group=1))
    note = _group_note(move.group)
    return Price(tuple(special.group_pair(pair, move.group) for pair in one.upper), one.lower, (*one.notes, note))


# ------------------------------------------------------------------------------------------------ samplers


def _subsample(event: ev.Subsample, move: Move) -> Price:
    inner = event.event
    match event.sampler:
        case ev.Poisson(probability=q):
            return _replaced_poisson(inner, q) if move.replace else _both(as_pairs(inner, Move()), q)
        case ev.FixedSize(size=size, population=population):
            swapped = as_pairs(inner, SWAP)
            return _replaced_share(swapped, size / population) if move.replace else _both(swapped, size / population)
        case ev.WithReplacement() as sampler:
            return _with_replacement(inner, sampler, move)
        case ev.TruncatedPoisson() as sampler:
            return _truncated(inner, sampler, move)
        case ev.Shuffled():
            return as_pairs(event, move)


def _both(inner: Price, q: float) -> Price:
    """((1−q)Q + qP, Q) and (P, (1−q)P + qQ)."""

    def made(price_at: Callable[[int], Pair | None]) -> tuple[Pair, ...] | None:
        sides = price_at(0), price_at(1)
        if sides[0] is None or sides[1] is None:
            return None
        return sampling.poisson(sides[0], q, "remove"), sampling.poisson(sides[1], q, "add")

    upper = made(inner.at)
    assert upper is not None
    return Price(upper, upper if inner.lower is inner.upper else made(inner.met), inner.notes)


def _replaced_share(swapped: Price, share: float) -> Price:
    """A batch of fixed size under replacement: above and below loss 0 another pair is the worst (Zhu et al. 2022)."""
    upper = (sampling.without_replacement(swapped.at(0), share),)
    if share >= 1:
        return swapped
    lower = _both(swapped, share).lower
    note = "Fixed-size batches under replacement: no single pair of datasets meets the worst case at every ε."
    return Price(upper, lower, (*swapped.notes, note), once=swapped.lower is swapped.upper)


def _replaced_poisson(inner: ev.Event, q: float) -> Price:
    if q >= 1:
        return as_pairs(inner, SWAP_OF_PRESENCE)
    one, two = as_pairs(inner, Move()), as_pairs(inner, SWAP_OF_PRESENCE)
    sigma = _gaussian(one)
    if sigma is not None and _gaussian(two) == 0.5 * sigma:
        return _tight(sampling.ReplacedGaussianPair(sigma, q))
    note = "A Poisson batch under replacement is priced through advanced joint convexity, which need not be met."
    pair = special.replaced_sample_pair(one.at(0), two.at(0), q)
    return Price((pair,), _both(one, q).lower, (*one.notes, *two.notes, note))


def _gaussian(one: Price) -> float | None:
    pair = one.upper[0]
    return pair.noise_multiplier if len(one.upper) == 1 and isinstance(pair, GaussianPair) and one.lower is one.upper else None


def _with_replacement(inner: ev.Event, sampler: ev.WithReplacement, move: Move) -> Price:
    share, law, lost = sampling.times_drawn(sampler.size, sampler.population)
    swapped = as_pairs(inner, SWAP)
    if len(law) == 1 and law[0][0] == 1:
        return _replaced_share(swapped, share) if move.replace else _both(swapped, share)
    sigma = _gaussian(swapped)
    if sigma is not None and lost + law[-1][0] <= MIXTURE_MAX and len(law) == law[-1][0]:
        return _gaussian_copies(sigma, share, law, lost, move)
    copies = [as_pairs(inner, replace(SWAP, group=k)) for k, _ in law]
    mixed = Price((sampling.MixPair(tuple(w for _, w in law), tuple(c.at(0) for c in copies), lost),), None)
    note = "Draws with replacement: how often the unit was drawn is taken to be seen, which need not be so."
    made = _replaced_share(mixed, share) if move.replace else _both(mixed, share)
    return Price(made.upper, None, tuple(dict.fromkeys((*(n for c in copies for n in c.notes), *made.notes, note))))


def _gaussian_copies(sigma: float, share: float, law: tuple[tuple[int, float], ...], lost: float, move: Move, *, apart: int = 1) -> Price:
    """Σ Pr[k copies] N(k, σ²) against N(0, σ²): met under add_remove, and the larger part of the bound under replace.

    ``apart`` is how far a record and its replacement are from each other where each is 1 from its absence.
    """
    weights = (1 - share, *(share * w for _, w in law))
    met = MixtureGaussianPair(sigma, weights, "remove"), MixtureGaussianPair(sigma, weights, "add")
    upper: tuple[Pair, ...] = met
    if lost:
        upper = tuple(sampling.MixPair((1.0,), (pair,), lost) for pair in met)
    if not move.replace:
        return _tight(*upper)  # ``lost`` is below 1e-50: of no account in either side
    one = MixtureGaussianPair(sigma, (0.0, *(w for _, w in law)), "remove")
    two = sampling.MixPair(tuple(w for _, w in law), tuple(GaussianPair(sigma / (apart * k)) for k, _ in law), lost)
    note = "Batches that may hold several of the records replaced are priced through advanced joint convexity, which need not be met."
    return Price((special.replaced_sample_pair(one, two, share),), met, (note,))


def _truncated(inner: ev.Event, sampler: ev.TruncatedPoisson, move: Move) -> Price:
    q = sampler.probability
    plain = _replaced_poisson(inner, q) if move.replace else _both(as_pairs(inner, Move()), q)
    full = over(sampler.population - 1, q, sampler.cap)
    if full == 0:
        return plain
    swapped = as_pairs(inner, SWAP_OF_PRESENCE)
    held = q * (sampler.cap / (sampler.cap + 1))
    cut = _replaced_share(swapped, held) if move.replace else _both(swapped, held)
    upper = tuple(_mixed((1 - full, full), (plain.at(d), sampling.largest((cut.at(d), plain.at(d))))) for d in range(len(plain.upper)))
    note = "Truncated Poisson batches: whether the batch was cut is taken to be seen, which need not be so."
    return Price(upper, plain.lower, tuple(dict.fromkeys((*plain.notes, *swapped.notes, note))))


def _mixed(weights: tuple[float, float], pairs: tuple[Pair, Pair]) -> Pair:
    return pairs[1] if weights[0] <= 0 else sampling.MixPair(weights, pairs)


def _group_subsample(event: ev.Subsample, move: Move) -> Price:
    """Poisson batches of a Gaussian hold Bin(k, q) of the k units (Ganesh 2024); otherwise the general bound."""
    if isinstance(event.sampler, ev.Shuffled):
        return as_pairs(event, move)
    if isinstance(event.sampler, ev.Poisson):
        sigma, q, k = _gaussian(as_pairs(event.event, Move())), event.sampler.probability, move.group
        if sigma is not None and q >= 1:
            return _tight(GaussianPair(sigma / (2 * k if move.replace else k)))
        if sigma is not None and k <= (MIXTURE_MAX if move.replace else GROUP_MIXTURE_MAX):
            j = np.arange(k + 1.0)
            weights = np.exp(gammaln(k + 1.0) - gammaln(j + 1) - gammaln(k - j + 1) + j * math.log(q) + (k - j) * math.log1p(-q))
            law = (weights / weights.sum()).tolist()
            if move.replace:
                share = -math.expm1(k * math.log1p(-q))
                copies = _gaussian_copies(sigma, share, tuple((i, law[i] / share) for i in range(1, k + 1)), 0.0, move, apart=2)
                chain = special.group_pair(_replaced_poisson(event.event, q).at(0), k)
                return replace(copies, upper=(special.lesser((special.group_pair(copies.at(0), 1), chain)),))
            return _tight(MixtureGaussianPair(sigma, tuple(law), "remove"), MixtureGaussianPair(sigma, tuple(law), "add"))
    return _grouped(event, move)


# ------------------------------------------------------------------------------------------------ choices


def _parallel(event: ev.Parallel, move: Move) -> Price:
    """The unit is in one part, so the worst part is the price; replaced, it may leave one part and enter another."""
    members = tuple(dict.fromkeys(event.events))
    inside = [as_pairs(member, Move()) for member in members]
    worst = tuple(sampling.largest(tuple(p.at(d) for p in inside)) for d in range(max(len(p.upper) for p in inside)))
    notes = tuple(dict.fromkeys(note for p in inside for note in p.notes))
    tight = all(p.lower is p.upper for p in inside)
    widest = max(inside, key=lambda p: p.at(0).std())
    if not move.replace:
        if any(isinstance(pair, sampling.MaxPair) for pair in worst):
            notes += ("Parallel: which part is the worst changes with ε, so compositions of it need not be met.",)
            return Price(worst, widest.lower, notes, once=tight)
        return Price(worst, worst if tight else widest.lower, notes)
    note = "Parallel under replacement: the unit may leave the worst part and enter another as bad, or stay in one."
    swaps = [as_pairs(member, move) for member in members]
    sigmas = sorted(s for member in event.events if (s := _gaussian(as_pairs(member, Move()))) is not None)
    stays = [s for p in swaps if (s := _gaussian(p)) is not None]
    if len(sigmas) == len(event.events) and len(stays) == len(swaps):
        pair = GaussianPair(min(1 / math.hypot(1 / sigmas[0], 1 / sigmas[1]), *stays))
        return Price((pair,), (GaussianPair(min(stays)),), (note,))
    moved = Composition([(worst[0], 1), (worst[-1], 1)]).atoms()
    either = sampling.largest((moved, *(p.at(0) for p in swaps)))
    stay = max(swaps, key=lambda p: p.at(0).std())
    return Price((either,), stay.lower, tuple(dict.fromkeys((*notes, *(n for p in swaps for n in p.notes), note))))


def _group_parallel(event: ev.Parallel, move: Move) -> Price:
    sigmas = [_gaussian(as_pairs(member, Move())) for member in event.events]
    known = [s for s in sigmas if s is not None]
    if len(known) == len(sigmas) and not move.replace:
        return _tight(GaussianPair(min(known) / move.scale))
    return _grouped(event, move)


def _select(event: ev.SelectBest, move: Move) -> Price:
    """By the profile of one run (docs/proofs/special-events.md), and by Papernot & Steinke 2022 through Rényi divergences."""
    from dither.accounting.rdp import _curve  # noqa: PLC0415 - only selection needs the whole Rényi accountant

    if pure_epsilon(event, move) == 0:
        return _tight(special.approx_dp(0.0, 0.0))
    inside = as_pairs(event.event, move)

    def heights(losses: Array) -> Array:
        return special.renyi_heights(lambda orders: _curve(event, move, orders), losses)

    upper = special.selected_pairs(inside.upper, mean_runs(event.runs), partial(_lift, event.runs), heights)
    note = "Selecting the best of a random number of runs is priced by a bound on all ways to choose, which need not be met."
    return _loose(*upper, note=note)


def _lift(runs: ev.Stopping, u: Array, v: Array) -> Array:
    """Log φ′(1 − u)/φ′(1 − v) for the generating function φ of the number of runs, rounded up."""
    match runs:
        case ev.NegativeBinomialRuns(shape=shape, gamma=gamma):
            return np.asarray((1 + shape) * (np.log((gamma + (1 - gamma) * v) / (gamma + (1 - gamma) * u)) + 1e-13))
        case ev.PoissonRuns(mean=mean):
            return mean * (v - u + 1e-14)


def _group_reports(event: ev.ShuffledReports, move: Move) -> Price:
    """Each of the group sends its own report; where hiding among the others is not counted, these are all there is."""
    if math.isinf(pure_epsilon(event.event, SWAP)):
        own = as_pairs(ev.Repeat(event.event, move.group), SWAP)
        return Price(own.upper, None, (*own.notes, _OPEN_REPORTS))
    return _grouped(event, move)


_OPEN_REPORTS = "One report has no pure ε, so hiding among the others is not counted: the price is that of the reports themselves."


def _reports(event: ev.ShuffledReports) -> Price:
    """The shuffled multiset, or one report alone where that is the better bound or no pure ε is known."""
    epsilon = pure_epsilon(event.event, SWAP)
    if math.isinf(epsilon):
        own = as_pairs(event.event, SWAP)
        return Price(own.upper, None, (*own.notes, _OPEN_REPORTS))
    if epsilon == 0:
        return _tight(special.approx_dp(0.0, 0.0))
    if event.reports == 1:
        return as_pairs(event.event, SWAP)
    note = "Shuffled reports: the other reports are taken apart into clones, a valid bound that need not be met."
    if isinstance(event.event, ev.RandomizedResponse):
        return _loose(clones_of_response(event.event.epsilon, event.event.values, event.reports), note=note)
    return _loose(clones_of_any(epsilon, event.reports), note=note)
