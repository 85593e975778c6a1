"""Find the parameter that meets a target (ε, δ): any monotone parameter, either direction, nothing to bracket by hand.

The search runs on the logarithm of the parameter and of ε, where losses are close to straight lines. It keeps two
points: one *proved* to meet the target and one not proved to. The first is returned; the second is at most
``tolerance`` away from it (relative), or next to it for whole numbers. Only upper bounds are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

from dither.accounting import tables
from dither.accounting.loss import loss
from dither.core import checks
from dither.core.errors import InputError, NotPriceableError
from dither.core.events import Event, is_event
from dither.core.units import Neighbors
from dither.core.units import neighbors as as_neighbors

SMALLEST, LARGEST = 1e-12, 1e12
"""Where a parameter is looked for when no ``low`` or ``high`` is given."""
_SLACK = 5e-3  # upper bounds may move by their own width (1e-3) against the trend; more is not monotone
_HAIR = 2e-6  # the same for an ε so small that its width is absolute
_PRICINGS_MAX = 200


class _Point(NamedTuple):
    """One priced value: ``gap`` is log(ε / target), so it is ≤ 0 exactly where the target is proved to be met."""

    value: float
    gap: float
    event: Event | None

    @property
    def good(self) -> bool:
        return self.gap <= 0.0


@dataclass(slots=True)
class _Search:
    """The function being searched: value → gap, with every point priced so far."""

    make_event: Callable[[float], Event] | Callable[[int], Event]
    epsilon: float
    delta: float
    neighbors: Neighbors
    group: int
    low: float
    high: float
    integer: bool
    tolerance: float
    points: list[_Point] = field(default_factory=list)
    outside: Exception | None = None
    unpriced: Exception | None = None

    def snap(self, value: float) -> float:
        """A value in the range, whole where whole numbers are asked for."""
        inside = min(max(value, self.low), self.high)
        return float(min(max(round(inside), math.ceil(self.low)), math.floor(self.high))) if self.integer else inside

    def event(self, value: float) -> Event | None:
        """The event of a value, or None where the value is outside what the event allows."""
        try:
            made = self.make_event(int(value) if self.integer else value)  # type: ignore[arg-type]  # int callables are handed ints only
        except InputError as error:
            self.outside = error
            return None
        if not is_event(made):
            raise checks.refuse("make_event(…)", made, "an event, such as Gaussian(noise_multiplier)")
        return made

    def price(self, value: float, event: Event | None = None) -> _Point:
        """The point at a value that the event allows."""
        for known in self.points:
            if known.value == value:
                return known
        if len(self.points) >= _PRICINGS_MAX:
            raise InputError("calibrate found no answer in 200 trials: give low and high closer together.")
        found = event if event is not None else self.event(value)
        point = _Point(value, math.inf if found is None else self.gap(found), found)
        self.points.append(point)
        self._check_trend()
        return point

    def gap(self, event: Event) -> float:
        """log(ε / target), from the upper bound alone; at a target of ε = 0 the same of δ."""
        try:
            priced = loss(event, neighbors=self.neighbors, group=self.group)
            if self.epsilon == 0.0:
                return _log_ratio(priced.delta_upper(0.0), self.delta)
            return _log_ratio(priced.epsilon_upper(self.delta), self.epsilon)
        except NotPriceableError as error:
            self.unpriced = error
            return math.inf  # what cannot be proved does not meet the target

    def _check_trend(self) -> None:
        """Refuse a function seen to go both up and down: between its points anything could happen."""
        prices = [_exp(p.gap) for p in sorted(self.points, key=lambda p: p.value)]  # in units of the target
        hair = _HAIR / self.epsilon if self.epsilon else 0.0
        rises = any(b > a * (1 + _SLACK) + hair for a, b in pairwise(prices))
        falls = any(b < a * (1 - _SLACK) - hair for a, b in pairwise(prices))
        if rises and falls:
            seen = sorted(self.points, key=lambda p: p.value)[:6]
            shown = ", ".join(f"{self.told(p)} at {tables.number(p.value)}" for p in seen)
            raise InputError(
                f"make_event is not monotone: {shown}. Expected ε to only rise or only fall with the parameter: "
                "give low and high around one slope."
            )

    def told(self, point: _Point) -> str:
        """The price at a point, as text."""
        if self.epsilon == 0.0:
            return f"δ = {tables.up(self.delta * _exp(point.gap))}"
        return f"ε = {tables.up(self.epsilon * _exp(point.gap))}"


if TYPE_CHECKING:

    @overload
    def calibrate(
        make_event: Callable[[float], Event],
        *,
        epsilon: float,
        delta: float = ...,
        neighbors: Neighbors | str = ...,
        group: int = ...,
        low: float | None = ...,
        high: float | None = ...,
        integer: Literal[False] = ...,
        tolerance: float = ...,
    ) -> float: ...

    @overload
    def calibrate(
        make_event: Callable[[int], Event],
        *,
        epsilon: float,
        delta: float = ...,
        neighbors: Neighbors | str = ...,
        group: int = ...,
        low: float | None = ...,
        high: float | None = ...,
        integer: Literal[True],
        tolerance: float = ...,
    ) -> int: ...


def calibrate(  # noqa: PLR0913 - the target, the range and the manner of one search; all but one by keyword
    make_event: Callable[[float], Event] | Callable[[int], Event],
    *,
    epsilon: float,
    delta: float = 0.0,
    neighbors: Neighbors | str = Neighbors.ADD_REMOVE,
    group: int = 1,
    low: float | None = None,
    high: float | None = None,
    integer: bool = False,
    tolerance: float = 1e-4,
) -> float | int:
    """The parameter at which ``make_event(parameter)`` costs as much of (ε, δ) as it may, and no more.

    ``make_event`` may let ε fall with its parameter (a noise multiplier: the least noise is returned) or rise with it
    (steps, a sampling probability: the most are returned). The answer never costs more than the target: its upper
    bound is verified. A value beyond it by more than ``tolerance`` (relative; 1 for whole numbers) would. Where the
    whole range meets the target, its most permissive end is returned.

    >>> from dither import events as ev
    >>> noise = calibrate(ev.Gaussian, epsilon=1, delta=1e-5)
    >>> 3.7306 <= noise <= 3.7311
    True
    >>> calibrate(lambda k: ev.Repeat(ev.PureDp(0.1), k), epsilon=1.05, integer=True)
    10
    """
    search = _search(make_event, epsilon, delta, neighbors, group, low, high, integer=integer, tolerance=tolerance)
    good, bad = _bracket(search)
    if good is None:
        raise _unreachable(search)
    if bad is not None:
        good = _tighten(search, good, bad)
    answer = _verified(search, good)
    return int(answer) if integer else answer


def _search(  # noqa: PLR0913 - the arguments of calibrate, checked in one place
    make_event: Callable[[float], Event] | Callable[[int], Event],
    epsilon: object,
    delta: object,
    neighbors: object,
    group: object,
    low: object,
    high: object,
    *,
    integer: bool,
    tolerance: object,
) -> _Search:
    if not callable(make_event):
        raise checks.refuse("make_event", make_event, "a function of one number that returns an event")
    target = checks.epsilon(epsilon)
    slack = checks.delta(delta)
    if target == 0.0 and slack == 0.0:
        raise InputError("epsilon=0 with delta=0 is not allowed: only a constant meets it. Give an epsilon > 0 or a delta > 0.")
    first = SMALLEST if low is None else checks.positive("low", low, high=checks.COUNT_MAX)
    last = LARGEST if high is None else checks.positive("high", high, high=checks.COUNT_MAX)
    if integer:
        first = max(first, 1.0)
    if not first <= last or (integer and math.ceil(first) > math.floor(last)):
        raise checks.refuse("low", low if low is not None else first, f"a number at most high={last:g}")
    return _Search(
        make_event=make_event,
        epsilon=target,
        delta=slack,
        neighbors=as_neighbors(neighbors),
        group=checks.count("group", group),
        low=first,
        high=last,
        integer=checks.instance("integer", integer, bool, "True or False"),
        tolerance=checks.between("tolerance", tolerance, 1e-9, 0.1),
    )


# ------------------------------------------------------------------------------------------------ bracketing


def _bracket(search: _Search) -> tuple[_Point | None, _Point | None]:
    """A point that meets the target and one that does not; one of them is None where the whole range agrees."""
    start = _start(search)
    search.low, search.high = _edge(search, start, -1), _edge(search, start, +1)
    here = search.price(start)
    there = _contrast(search, here)
    if there is None:
        return (here, None) if here.good else (None, here)
    if here.good != there.good:
        return (here, there) if here.good else (there, here)
    rising = (there.gap > here.gap) == (there.value > here.value)
    way = -1 if rising == (not here.good) else +1  # towards the target
    near, far = sorted((here, there), key=lambda p: way * p.value)
    while far.good == here.good:
        end = search.high if way > 0 else search.low
        if far.value == end:
            return (far, None) if far.good else (None, far)
        near, far = far, search.price(_stride(search, near, far, way))
    return (near, far) if near.good else (far, near)


def _start(search: _Search) -> float:
    """A value that the event allows: 1 or the middle of the range, else the powers of ten around it."""
    given = (search.low, search.high)
    middle = math.sqrt(given[0]) * math.sqrt(given[1]) if given[0] > SMALLEST and given[1] < LARGEST else 1.0
    for power in sorted(range(-24, 25), key=abs):
        value = search.snap(middle * 10.0**power)
        if search.event(value) is not None:
            return value
    for value in given:
        if search.event(value) is not None:
            return value
    whole = "" if search.integer else " For a whole-number parameter give integer=True."
    raise InputError(f"make_event allows no value from {given[0]:g} to {given[1]:g}: it said “{search.outside}”{whole}")


def _edge(search: _Search, start: float, way: int) -> float:
    """The last value in this direction that the event allows (events are cheap to make; nothing is priced here)."""
    end = search.snap(search.high if way > 0 else search.low)
    if search.event(end) is not None:
        return end
    inside, outside = start, end
    for _ in range(200):
        between = search.snap(math.sqrt(inside) * math.sqrt(outside))
        if between in (inside, outside) and search.integer:
            between = search.snap((inside + outside) / 2)
        if between in (inside, outside):
            break
        if search.event(between) is not None:
            inside = between
        else:
            outside = between
    return inside


def _contrast(search: _Search, here: _Point) -> _Point | None:
    """The nearest value of another price, so that the direction is known; None if none in the range differs."""
    for power in range(1, 48):
        values = {search.snap(here.value * factor) for factor in (4.0**power, 4.0**-power)} - {here.value}
        for value in sorted(values, reverse=True):
            found = search.price(value)
            if abs(found.gap - here.gap) > _SLACK or found.good != here.good:
                return found
        if values <= {search.low, search.high}:
            break
    return None


def _stride(search: _Search, near: _Point, far: _Point, way: int) -> float:
    """The next value to try on the way out: where a straight line (log, log) meets the target, and a little past it."""
    step, most = 64.0, 1e4
    if far.good and not search.integer:
        step = most = 2.0  # far past the target lie losses so large that they take long to price
    if math.isfinite(near.gap) and math.isfinite(far.gap) and near.gap != far.gap:
        slope = (far.gap - near.gap) / (math.log(far.value) - math.log(near.value))
        step = math.exp(min(1.05 * abs(far.gap / slope) + 0.02, math.log(most)))
    value = search.snap(far.value * max(step, 1.05) ** way)
    return value if value != far.value else search.snap(far.value + way)


# ------------------------------------------------------------------------------------------------ tightening


def _tighten(search: _Search, good: _Point, bad: _Point) -> _Point:
    """Close the bracket: secant steps kept a margin inside it, so that both sides move; halving where they are slow."""
    margin = 0.45 * math.log1p(search.tolerance)
    last = before = _width(good, bad)
    slow = 0
    while not _closed(search, good, bad):
        low, high = sorted((good, bad), key=lambda p: p.value)
        a, b = math.log(low.value), math.log(high.value)
        aim = (a + b) / 2 if slow >= 2 else _secant(low, high, search)
        value = search.snap(math.exp(min(max(aim, a + margin), b - margin)))
        if search.integer:
            value = min(max(value, low.value + 1), high.value - 1)
        elif not low.value < value < high.value:
            break  # nothing representable lies between them
        point = search.price(value)
        good, bad = (point, bad) if point.good else (good, point)
        before, last = last, _width(good, bad)
        slow = 0 if slow >= 2 or last <= 0.5 * before else slow + 1
    return good


def _closed(search: _Search, good: _Point, bad: _Point) -> bool:
    if search.integer:
        return abs(good.value - bad.value) <= 1
    return _width(good, bad) <= math.log1p(search.tolerance)


def _width(good: _Point, bad: _Point) -> float:
    return abs(math.log(good.value) - math.log(bad.value))


def _secant(low: _Point, high: _Point, search: _Search) -> float:
    """Where log ε crosses the target, by the line (or parabola) through the points nearest to it."""
    a, b = math.log(low.value), math.log(high.value)
    if not (math.isfinite(low.gap) and math.isfinite(high.gap)):
        return (a + b) / 2
    line = a - low.gap * (b - a) / (high.gap - low.gap) if high.gap != low.gap else (a + b) / 2
    others = [p for p in search.points if p not in (low, high) and math.isfinite(p.gap)]
    if not others:
        return line
    third = min(others, key=lambda p: abs(p.gap))
    c = math.log(third.value)
    gaps = (low.gap, high.gap, third.gap)
    if min(abs(gaps[0] - gaps[1]), abs(gaps[1] - gaps[2]), abs(gaps[0] - gaps[2])) < 1e-9:
        return line
    f, g, h = gaps
    curve = a * g * h / ((f - g) * (f - h)) + b * f * h / ((g - f) * (g - h)) + c * f * g / ((h - f) * (h - g))
    return curve if a < curve < b else line


# ------------------------------------------------------------------------------------------------ the answer


def _verified(search: _Search, good: _Point) -> float:
    """The value, after its price has been asked for again in the way a caller would ask: as a two-sided bound."""
    for _ in range(8):
        made = search.event(good.value)
        if made is None or made != good.event:
            raise InputError("make_event gave two different events for one value: expected a pure function of its parameter.")
        if _meets(search, made):
            return good.value
        good = _step_back(search, good)
    raise NotPriceableError(
        f"No value near {tables.number(good.value)} could be verified to meet epsilon={search.epsilon:g} at delta={search.delta:g}."
    )


def _meets(search: _Search, event: Event) -> bool:
    priced = loss(event, neighbors=search.neighbors, group=search.group)
    if search.epsilon == 0.0:
        return priced.delta(0.0).upper <= search.delta
    return priced.epsilon(search.delta).upper <= search.epsilon


def _step_back(search: _Search, good: _Point) -> _Point:
    """A slightly safer value than one whose two-sided bound came out a hair above its one-sided one."""
    worse = max((p for p in search.points if not p.good), key=lambda p: -abs(p.gap), default=None)
    way = 1.0 if worse is None or good.value >= worse.value else -1.0
    value = search.snap(good.value + way if search.integer else good.value * (1 + search.tolerance) ** way)
    event = search.event(value)
    if event is None or value == good.value:
        raise _unreachable(search)
    return _Point(value, good.gap, event)


def _unreachable(search: _Search) -> InputError:
    best = min(search.points, key=lambda p: p.gap)
    nothing = f"No value from {search.low:g} to {search.high:g} meets epsilon={search.epsilon:g} at delta={search.delta:g}: "
    if search.unpriced is not None and math.isinf(best.gap):
        return InputError(f"{nothing}{search.unpriced}")
    if math.isinf(best.gap):
        return InputError(f"{nothing}its ε is infinite everywhere. Give a delta > 0, or another event.")
    if all(p.gap == best.gap for p in search.points):
        return InputError(f"{nothing}{search.told(best)} everywhere. Let make_event use its parameter, or raise epsilon or delta.")
    return InputError(
        f"{nothing}the lowest price is {search.told(best)}, at {tables.number(best.value)}. "
        "Raise epsilon or delta, or let something else of the event vary."
    )


def _log_ratio(value: float, target: float) -> float:
    if value == 0.0:
        return -math.inf
    if math.isinf(value) or target == 0.0:
        return math.inf
    return 0.0 if value == target else math.log(value) - math.log(target) or math.copysign(5e-324, value - target)


def _exp(power: float) -> float:
    return math.exp(power) if power < 700 else math.inf
