"""A second opinion on a book: what is charged to each limit, composed by ``dp_accounting`` where that is installed.

Two accountants bound the same ε, so of two different answers none need be wrong. What cannot both be true is that one proves
more than the other allows: their bound from *below* above ours from above, or above the limit. Only that is a finding.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from dither.accounting.loss import epsilon
from dither.core import events as ev
from dither.core.errors import DitherError
from dither.core.units import Neighbors
from dither.ledger.replay import Held
from dither.ledger.terms import below

TOLERANCE: Final = 1e-3
"""Relative and absolute: far above what either rounds, far below what matters."""
_INTERVAL: Final = 1e-4
_SLACK: Final = 1e-9
"""Added to δ when dp_accounting is asked: what it cuts off its tails is more than some δ. It can only make ε smaller."""
_MODULE: Final = "dp_accounting.pld.privacy_loss_distribution"

_Pld: TypeAlias = Any
"""A privacy loss distribution of dp_accounting, which has no types for us."""


def compare(tally: Mapping[tuple[str, str], Counter[str]], limits: Mapping[str, Held]) -> tuple[list[str], list[str]]:
    """(contradictions, notes) about what each limit holds, in the block of which most is used.

    >>> compare({}, {})[0]
    []
    """
    wrong: list[str] = []
    notes: list[str] = []
    pld: Any = None
    try:
        pld = importlib.import_module(_MODULE)
    except ImportError:
        notes.append("No second opinion: dp-accounting is not installed. Run  pip install dp-accounting  to have one.")
    for name, held in limits.items():
        block, _ = held.worst()
        counts = {text: count for text, count in tally.get((name, block), Counter()).items() if count > 0}
        if counts:
            _compare(pld, held, counts, wrong, notes)
    return wrong, notes


def _compare(pld: Any, held: Held, counts: Mapping[str, int], wrong: list[str], notes: list[str]) -> None:  # noqa: ANN401 - a module
    events = tuple(part for text, count in counts.items() for part in _times(ev.from_json(text), count))
    neighbors, delta, title = held.rule.neighbors, below(held.rule.spec.delta), held.limit.title
    try:
        ours = epsilon(ev.Sequence(events), delta, neighbors=neighbors)
    except DitherError as error:
        notes.append(f"No second opinion on {title}: {error}")
        return
    limit = float(held.rule.spec.epsilon)
    if ours.lower > limit * (1 + TOLERANCE):
        wrong.append(f"What is charged to {title} costs at least ε = {ours.lower:.6g}, more than its ε = {limit:.6g}.")
    if pld is None:
        return
    high, told = _theirs(pld, events, neighbors, delta, high=True)
    if not told:
        notes.append(f"No second opinion on {title}: dp_accounting has none of its events.")
        return
    part = "" if told == len(events) else f" over {told} of {len(events)} kinds of events"
    if high <= ours.upper * (1 + TOLERANCE) + TOLERANCE or math.isinf(ours.upper):
        notes.append(f"Second opinion on {title}: ε = {high:.6g}{part} by dp_accounting, {ours.upper:.6g} here.")
        return
    low, _ = _theirs(pld, events, neighbors, delta, high=False)
    if low > min(ours.upper, limit) * (1 + TOLERANCE) + TOLERANCE:
        wrong.append(f"What is charged to {title} costs at least ε = {low:.6g}{part} by dp_accounting, but {ours.upper:.6g} here.")
    else:
        notes.append(f"Second opinion on {title}: ε from {low:.6g} to {high:.6g}{part} by dp_accounting, {ours.upper:.6g} here.")


def _times(event: ev.Event, count: int) -> tuple[ev.Event, ...]:
    """The event so many times over; streams of shuffled batches stay apart, for two of them are not one longer one."""
    apart = any(isinstance(part, ev.Subsample) and isinstance(part.sampler, ev.Shuffled) for part in ev.walk(event))
    return (event,) * count if apart else (ev.Repeat(event, count),)


def _theirs(pld: Any, events: tuple[ev.Event, ...], neighbors: Neighbors, delta: float, *, high: bool) -> tuple[float, int]:  # noqa: ANN401 - a module
    """(ε, how many of the events it has), from above or from below; what is left out makes it smaller."""
    found = [made for made in (_made(pld, event, neighbors, high=high) for event in events) if made is not None]
    if not found:
        return 0.0, 0
    whole = found[0]
    for other in found[1:]:
        whole = whole.compose(other)
    return float(whole.get_epsilon_for_delta(min(delta + _SLACK, 1.0))), len(found)


def _made(pld: Any, event: ev.Event, neighbors: Neighbors, *, high: bool) -> _Pld | None:  # noqa: ANN401 - a module
    """The event as dp_accounting has it; None where it has none that means the same."""
    how = {"pessimistic_estimate": high, "value_discretization_interval": _INTERVAL}
    dots = {**how, "use_connect_dots": high}
    match event:
        case ev.Gaussian(noise_multiplier=sigma):
            return pld.from_gaussian_mechanism(sigma, **dots)
        case ev.Laplace(noise_multiplier=scale):
            return pld.from_laplace_mechanism(scale, **dots)
        case ev.Subsample(event=ev.Gaussian(noise_multiplier=sigma), sampler=ev.Poisson(probability=q)) if (
            neighbors is Neighbors.ADD_REMOVE
        ):
            return pld.from_gaussian_mechanism(sigma, sampling_prob=q, **dots)
        case ev.Subsample(event=ev.Laplace(noise_multiplier=scale), sampler=ev.Poisson(probability=q)) if neighbors is Neighbors.ADD_REMOVE:
            return pld.from_laplace_mechanism(scale, sampling_prob=q, **dots)
        case ev.PureDp(epsilon=each) | ev.ApproxDp(epsilon=each, delta=0.0):
            return pld.from_randomized_response(2 / (1 + math.exp(each)), 2, **how) if 0 < each < 20 else None
        case ev.Repeat(event=inner, count=count):
            one = _made(pld, inner, neighbors, high=high)
            return None if one is None else one.self_compose(count)
        case ev.Sequence(events=members):
            parts = [_made(pld, member, neighbors, high=high) for member in members]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            whole = known[0]
            for other in known[1:]:
                whole = whole.compose(other)
            return whole
        case _:
            return None
