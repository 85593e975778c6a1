"""What follows from the shape of an event alone: the largest loss, and the ρ of zero-concentrated privacy.

Proofs: docs/proofs/special-events.md, "Bounds from the shape".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from dither.accounting._samplers import thinned
from dither.accounting._streams import stream_sensitivity
from dither.core import events as ev


@dataclass(frozen=True, slots=True)
class Move:
    """Present against absent (remove, then add), or one unit's data against another's; ``group`` units at once.

    ``steps`` is how many times the sensitivity that a leaf has divided out one unit can move it: 2 where a leaf inside
    a sampler states it for presence and the unit is replaced.
    """

    replace: bool = False
    group: int = 1
    steps: int = 1

    @property
    def scale(self) -> int:
        """By what a leaf's sensitivity is to be multiplied."""
        return self.group * self.steps


SWAP = Move(replace=True)
SWAP_OF_PRESENCE = Move(replace=True, steps=2)


def uses(sampler: ev.Shuffled, batches: int) -> int:
    """The most batches of one shuffled stream that can hold one unit: one an epoch of at least ⌊population/batch⌋.

    >>> uses(ev.Shuffled(3, 10), 7)
    3
    """
    return -(-batches // (sampler.population // sampler.batch))


def pure_epsilon(event: ev.Event, move: Move = Move()) -> float:
    """The least ε known at δ = 0; ∞ where the loss has no bound.

    >>> pure_epsilon(ev.Repeat(ev.Laplace(2.0), 10))
    5.0
    """
    k = move.group
    one = replace(move, group=1)
    match event:
        case ev.Laplace(noise_multiplier=scale):
            return move.scale / scale
        case ev.DiscreteLaplace(noise_scale=scale, sensitivity=shift):
            return move.scale * shift / scale
        case ev.RandomizedResponse(epsilon=epsilon):
            return k * epsilon
        case ev.PureDp(epsilon=epsilon) | ev.ExponentialMechanism(epsilon=epsilon):
            return move.scale * epsilon
        case ev.ApproxDp(epsilon=epsilon, delta=delta):
            return move.scale * epsilon if delta == 0 else math.inf
        case ev.Zcdp(rho=rho):
            return 0.0 if rho == 0 else math.inf
        case ev.Repeat(event=ev.Subsample(event=inner, sampler=ev.Shuffled() as sampler), count=batches):
            return pure_epsilon(inner, move) * uses(sampler, batches)
        case ev.Repeat(event=inner, count=count):
            return count * pure_epsilon(inner, move)
        case ev.Sequence(events=members):
            return math.fsum(pure_epsilon(member, move) for member in members)
        case ev.Parallel(events=members):
            parted = sorted((pure_epsilon(member) for member in members), reverse=True)
            if not move.replace:
                return k * parted[0]
            return k * max(math.fsum(parted[:2]), *(pure_epsilon(member, one) for member in members))
        case ev.Subsample(event=inner, sampler=sampler):
            return k * _pure_sample(inner, sampler, one)
        case ev.SelectBest(event=inner, runs=runs):
            return _pure_selection(pure_epsilon(inner, move), runs)
        case ev.ShuffledReports(event=inner):
            return k * pure_epsilon(inner, SWAP)
        case _:
            return math.inf


def mean_runs(runs: ev.Stopping) -> float:
    """Mean number of runs, rounded up.

    >>> round(mean_runs(ev.NegativeBinomialRuns(1, 0.1)), 6)
    10.0
    """
    match runs:
        case ev.PoissonRuns(mean=mean):
            return mean
        case ev.NegativeBinomialRuns(shape=shape, gamma=gamma):
            if abs(shape) < 1e-12:
                return (1 / gamma - 1) / -math.log(gamma) * (1 + 1e-9)
            return shape * (1 - gamma) / (gamma * -math.expm1(shape * math.log(gamma))) * (1 + 1e-9)


def _pure_selection(one: float, runs: ev.Stopping) -> float:
    """ε of one run, and by how much more the best of them can weigh it: at chances e^ε : 1 of doing better."""
    if math.isinf(one):
        return math.inf
    match runs:
        case ev.NegativeBinomialRuns(shape=shape, gamma=gamma):
            return one + (1 + shape) * math.log1p(-math.expm1(-one) * (1 - gamma) / (math.exp(-one) + gamma))
        case ev.PoissonRuns(mean=mean):
            return one + mean * math.tanh(0.5 * one)


@lru_cache(maxsize=4096)  # a batch asks for its event under two moves, so nested ones would ask 2ⁿ times
def _pure_sample(inner: ev.Event, sampler: ev.Sampler, move: Move) -> float:
    match sampler:
        case ev.Shuffled():
            return pure_epsilon(inner, move)
        case ev.FixedSize(size=size, population=population):
            return thinned(pure_epsilon(inner, SWAP), size / population)
        case ev.WithReplacement(size=size, population=population):
            share = 1.0 if population == 1 else -math.expm1(size * math.log1p(-1 / population))
            return thinned(pure_epsilon(inner, replace(SWAP, group=size)), share)
        case ev.Poisson(probability=q):
            return _pure_poisson(inner, q, move)
        case ev.TruncatedPoisson(probability=q, cap=cap, population=population):
            plain = _pure_poisson(inner, q, move)
            held = q if move.replace else q * (cap / (cap + 1))
            return plain if cap >= population else max(plain, thinned(pure_epsilon(inner, SWAP_OF_PRESENCE), held))


def _pure_poisson(inner: ev.Event, q: float, move: Move) -> float:
    one = pure_epsilon(inner)
    return thinned(max(one, pure_epsilon(inner, SWAP_OF_PRESENCE)) if move.replace else one, q)


def moved(event: ev.TreeGaussian | ev.MatrixGaussian, move: Move) -> float:
    """How far the whole stream moves: a replaced unit's data leave one pattern of steps and enter another.

    >>> round(moved(ev.TreeGaussian(1.0, 8), Move(replace=True)), 9)
    4.0
    """
    return stream_sensitivity(event) * move.group * (2 if move.replace else 1)


def rho(event: ev.Event, move: Move = Move()) -> float:
    """A ρ for which the event is ρ-zCDP: D_α ≤ ρα for every order; ∞ where none is known.

    >>> rho(ev.Repeat(ev.Gaussian(2.0), 4)), rho(ev.ExponentialMechanism(2.0))
    (0.5, 0.5)
    """
    return min(_rho(event, move), 0.5 * pure_epsilon(event, move) ** 2)


def _rho(event: ev.Event, move: Move) -> float:
    one = replace(move, group=1)
    match event:
        case ev.Gaussian(noise_multiplier=sigma):
            return 0.5 * (move.scale / sigma) ** 2
        case ev.DiscreteGaussian(noise_std=std, sensitivity=shift):
            return 0.5 * (move.scale * shift / std) ** 2
        case ev.TreeGaussian() | ev.MatrixGaussian():
            return 0.5 * (moved(event, move) / event.noise_multiplier) ** 2
        case ev.Zcdp(rho=each):
            return each * move.scale**2
        case ev.ExponentialMechanism(epsilon=epsilon):
            return 0.125 * (move.scale * epsilon) ** 2
        case ev.Repeat(event=ev.Subsample(event=inner, sampler=ev.Shuffled() as sampler), count=batches):
            return move.group**2 * rho(inner, one) * uses(sampler, batches)
        case ev.Repeat(event=inner, count=count):
            return count * rho(inner, move)
        case ev.Sequence(events=members):
            return math.fsum(rho(member, move) for member in members)
        case ev.Parallel(events=members):
            parted = sorted((rho(member) for member in members), reverse=True)
            swapped = max(math.fsum(parted[:2]), *(rho(member, one) for member in members)) if move.replace else parted[0]
            return move.group**2 * swapped
        case ev.Subsample(event=inner, sampler=sampler):
            return move.group**2 * _rho_sample(inner, sampler, one)
        case ev.ShuffledReports(event=inner):
            return move.group**2 * rho(inner, SWAP)
        case _:
            return math.inf


@lru_cache(maxsize=4096)
def _rho_sample(inner: ev.Event, sampler: ev.Sampler, move: Move) -> float:
    """Rényi divergence is quasi-convex, so a batch costs no more than its worst pair of batches."""
    match sampler:
        case ev.Shuffled():
            return rho(inner, move)
        case ev.FixedSize():
            return rho(inner, SWAP)
        case ev.WithReplacement(size=size):
            return rho(inner, replace(SWAP, group=size))
        case ev.Poisson():
            return max(rho(inner), rho(inner, SWAP_OF_PRESENCE)) if move.replace else rho(inner)
        case ev.TruncatedPoisson():
            return max(rho(inner), rho(inner, SWAP_OF_PRESENCE))
