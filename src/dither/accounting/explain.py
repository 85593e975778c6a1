"""What (ε, δ) means for a person: odds, beliefs, the best possible attack, groups, trust, and what others have published.

Every number here is a consequence of the guarantee, proved in docs/proofs/explain.md; none is a measurement. Bounds
are rounded to the safe side when they are printed.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from dither.accounting import tables
from dither.accounting._attack import true_positive_rates
from dither.accounting.loss import Loss, loss
from dither.core import checks
from dither.core.errors import InputError, NotPriceableError
from dither.core.events import Event, is_event, to_dict
from dither.core.units import Bound, Guarantee, Neighbors, PrivacyUnit, Trust
from dither.core.units import trust as as_trust

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)
PRIORS = (0.01, 0.1, 0.5)
GROUPS = (2, 4)
EPSILON_HIGH = 10.0
DELTA_HIGH = 1e-3
_ROWS_MAX = 1_000

TRUST_WORDS = {
    Trust.CENTRAL: "central: whoever holds the data sees it raw and must be trusted; the guarantee is against everyone else",
    Trust.LOCAL: "local: every device adds its own noise; nobody but the person sees the raw data",
    Trust.SHUFFLE: "shuffle: devices add noise, and a shuffler that is trusted to mix and forget hides who sent what",
    Trust.DISTRIBUTED: "distributed: devices add shares of the noise under secure aggregation; only the noisy sum is seen",
}
INCOMPARABLE = (
    "An ε counts only together with its δ, its unit and whom it trusts: ε's with different units cannot be compared. "
    "A small ε that hides one report a day may protect a person less than a large one that hides all they ever did."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A published use of differential privacy, with the figures its publisher states.

    ``confirmed`` is false where the figure was not found again in public text when the list was last checked (November 2026).
    """

    name: str
    year: int
    epsilon: float | None
    delta: float | None
    rho: float | None
    unit: str
    period: str | None
    epsilon_per_day: float | None
    trust: Trust
    source: str
    url: str
    confirmed: bool

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            "name": self.name,
            "year": self.year,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "unit": self.unit,
            "period": self.period,
            "epsilon_per_day": self.epsilon_per_day,
            "trust": self.trust.value,
            "source": self.source,
            "url": self.url,
            "confirmed": self.confirmed,
        }


@dataclass(frozen=True, slots=True)
class Belief:
    """How far a belief of ``prior`` may move: to a posterior in [lowest, highest]."""

    prior: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Attack:
    """At ``false_positive_rate`` no attack recognises a unit more often than ``true_positive_rate``.

    ``by_line`` is what (ε, δ) alone would say, without the rest of the event's trade-off curve.
    """

    false_positive_rate: float
    true_positive_rate: float
    by_line: float


@dataclass(frozen=True, slots=True)
class GroupGuarantee:
    """(ε, δ) of ``size`` units taken together."""

    size: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The best possible true positive rate at each false positive rate, exact and by the (ε, δ) line alone."""

    false_positive_rates: tuple[float, ...]
    true_positive_rates: tuple[float, ...]
    by_line: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer of ``explain``: all of it as data, as text (80 columns) and as JSON."""

    guarantee: Guarantee
    event: Event | None
    price: Bound | None
    odds_factor: float
    beliefs: tuple[Belief, ...]
    attacks: tuple[Attack, ...]
    advantage: float
    groups: tuple[GroupGuarantee, ...]
    population: int | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    deployments: tuple[Deployment, ...]

    def __str__(self) -> str:
        return self.to_text()

    @property
    def best_guess(self) -> float:
        """How often the best attack guesses right between two equally likely neighbours."""
        return (1 + self.advantage) / 2

    def curve(self, points: int = 161, *, lowest: float = 1e-4) -> Curve:
        """Data for a plot of the trade-off, false positive rates evenly spread on a logarithmic axis.

        >>> from dither.core.events import PureDp
        >>> len(explain(PureDp(1.0)).curve(5).true_positive_rates)
        5
        """
        count = checks.count("points", points, low=2, high=100_000)
        start = checks.between("lowest", lowest, 1e-12, 0.5)
        rates = tuple(start ** (1 - i / (count - 1)) for i in range(count))
        line = tuple(_line(self.guarantee, rate) for rate in rates)
        if self.event is None:
            return Curve(rates, line, line)
        priced = loss(self.event, neighbors=self.guarantee.unit.neighbors)
        return Curve(rates, _below(true_positive_rates(priced, rates, knots=30, refine=False), line), line)

    def nearest(self, count: int) -> tuple[Deployment, ...]:
        """The published figures nearest in ε (on a logarithmic scale), smallest ε first."""
        here = math.log(min(max(self.guarantee.epsilon, 1e-3), 1e3))
        most = checks.count("count", count, low=0)
        known = [d for d in self.deployments if d.epsilon]
        close = sorted(known, key=lambda d: abs(math.log(d.epsilon or 1.0) - here))[:most]
        return tuple(sorted(close, key=lambda d: d.epsilon or 0.0))

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value; an unbounded number is null."""
        unit = self.guarantee.unit
        return {
            "epsilon": _finite(self.guarantee.epsilon),
            "delta": self.guarantee.delta,
            "unit": {"dataset": unit.dataset, "key": unit.key, "neighbors": unit.neighbors.value, "text": str(unit)},
            "trust": {"model": self.guarantee.trust.value, "text": TRUST_WORDS[self.guarantee.trust]},
            "price": None if self.price is None else {"lower": _finite(self.price.lower), "upper": _finite(self.price.upper)},
            "odds_factor": _finite(self.odds_factor),
            "beliefs": [{"prior": b.prior, "lowest": b.lowest, "highest": b.highest} for b in self.beliefs],
            "attacks": [
                {"false_positive_rate": a.false_positive_rate, "true_positive_rate": a.true_positive_rate, "by_line": a.by_line}
                for a in self.attacks
            ],
            "advantage": self.advantage,
            "best_guess": self.best_guess,
            "groups": [{"size": g.size, "epsilon": _finite(g.epsilon), "delta": g.delta} for g in self.groups],
            "population": self.population,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "deployments": [d.to_dict() for d in self.deployments],
            "event": None if self.event is None else to_dict(self.event),
        }

    def to_text(self, *, nearest: int = 5) -> str:
        """The explanation on a page of 80 columns, with the ``nearest`` published figures."""
        return "\n".join(
            [*_head(self), *_meaning(self), *_attack_lines(self), *_group_lines(self), *_caveats(self), *_published(self, nearest)]
        )


# ------------------------------------------------------------------------------------------------ making one


def explain(
    what: Event | Guarantee,
    *,
    delta: float | None = None,
    prior: float | Sequence[float] = PRIORS,
    population: int | None = None,
    group: int | Sequence[int] = GROUPS,
    unit: PrivacyUnit | str | None = None,
    trust: Trust | str | None = None,
) -> Explanation:
    """What an event at some ``delta``, or a bare guarantee, means for one person.

    For an event every figure comes from its own trade-off curve; for a guarantee from (ε, δ) alone, which is all that
    is known. ``unit`` may be the name of a key (``"user_id"``); its default is one row. ``population`` is a public
    number of units, used only to judge δ.

    >>> from dither.core.events import Gaussian
    >>> told = explain(Gaussian(noise_multiplier=4.0), delta=1e-5)
    >>> 0.92 < told.guarantee.epsilon < 0.93, round(told.advantage, 2)
    (True, 0.1)
    """
    guarantee, event, priced = _given(what, delta, unit, trust)
    n = None if population is None else checks.count("population", population)
    return Explanation(
        guarantee=guarantee,
        event=event,
        price=None if priced is None else priced.epsilon(guarantee.delta),
        odds_factor=_exp(guarantee.epsilon),
        beliefs=tuple(_belief(p, guarantee.epsilon) for p in _priors(prior)),
        attacks=_attacks(guarantee, priced),
        advantage=_advantage(guarantee, priced),
        groups=tuple(_group(k, guarantee, event) for k in _sizes(group)),
        population=n,
        warnings=_warnings(guarantee, n),
        notes=(*_notes(guarantee, priced, n), *_open_groups(_sizes(group), guarantee, event)),
        deployments=deployments(),
    )


def _given(what: Event | Guarantee, delta: object, unit: object, trust: object) -> tuple[Guarantee, Event | None, Loss | None]:
    if isinstance(what, Guarantee):
        for name, value in (("delta", delta), ("unit", unit), ("trust", trust)):
            if value is not None:
                raise checks.refuse(name, value, f"nothing: the guarantee already has its {name}", "Make another Guarantee.")
        return what, None, None
    if not is_event(what):
        raise checks.refuse("what", what, "an event or a Guarantee")
    hidden = _unit(unit)
    priced = loss(what, neighbors=hidden.neighbors)
    share = 0.0 if delta is None else checks.delta(delta)
    epsilon = priced.epsilon_upper(share)
    if math.isinf(epsilon) and math.isfinite(priced.epsilon_upper(1 - 1e-9)):  # not a word of "no guarantee": it has one elsewhere
        least = priced.delta_upper(checks.EPSILON_MAX)
        expected = f"above {tables.up(least, 3)}" if 1e-300 < least < 1 else "well below 1/population, such as 1e-6"
        raise InputError(f"delta={delta} is not allowed here: this event has no finite ε at δ = {share:g}. Give a delta {expected}.")
    return Guarantee(epsilon, share, hidden, Trust.CENTRAL if trust is None else as_trust(trust)), what, priced


def _unit(unit: object) -> PrivacyUnit:
    if unit is None:
        return PrivacyUnit(dataset="the data")
    if isinstance(unit, str):
        return PrivacyUnit(dataset="the data", key=unit)
    return checks.instance("unit", unit, PrivacyUnit, "a PrivacyUnit or the name of a key, such as 'user_id'")


def _priors(prior: object) -> tuple[float, ...]:
    expected = "one or more numbers between 0 and 1, both excluded"
    given = prior if isinstance(prior, list | tuple) else [prior]
    found = tuple(checks.real("prior", p, expected) for p in checks.sequence("prior", given, expected, limit=_ROWS_MAX))
    for p in found:
        if not sys.float_info.min <= p < 1:
            raise checks.refuse("prior", p, expected)
    return found


def _sizes(group: object) -> tuple[int, ...]:
    given = group if isinstance(group, list | tuple) else [group]
    kept = checks.sequence("group", given, "one or more whole numbers ≥ 1", limit=_ROWS_MAX)
    return tuple(checks.count("group", k, high=1_000_000) for k in kept)


@cache
def deployments() -> tuple[Deployment, ...]:
    """Published uses of differential privacy, as their publishers state them.

    >>> any(d.name.startswith("US Census 2020") for d in deployments())
    True
    """
    text = resources.files("dither.accounting").joinpath("deployments.json").read_text("utf-8")
    entries: list[dict[str, Any]] = json.loads(text)["deployments"]
    return tuple(Deployment(**{**entry, "trust": Trust(entry["trust"])}) for entry in entries)


# ------------------------------------------------------------------------------------------------ the arithmetic


def _belief(prior: float, epsilon: float) -> Belief:
    """Posterior odds = prior odds × e^±ε, written so that nothing overflows."""
    down = math.exp(-epsilon)
    against = 1.0 - prior
    return Belief(prior, prior * down / (prior * down + against), prior / (prior + against * down))


def _line(guarantee: Guarantee, rate: float) -> float:
    """The best true positive rate that (ε, δ) allows (Wasserman & Zhou 2010; Kairouz, Oh & Viswanath 2015)."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if math.isinf(epsilon):
        return 1.0
    steep = delta + _exp(epsilon) * rate
    flat = 1.0 - math.exp(-epsilon) * (1.0 - delta - rate)
    return min(1.0, steep, flat)


def _below(rates: Sequence[float], line: Sequence[float]) -> tuple[float, ...]:
    """Two bounds, both valid: the lower of them."""
    return tuple(min(pair) for pair in zip(rates, line, strict=True))


def _attacks(guarantee: Guarantee, priced: Loss | None) -> tuple[Attack, ...]:
    line = [_line(guarantee, rate) for rate in FALSE_POSITIVE_RATES]
    best = line if priced is None else _below(true_positive_rates(priced, FALSE_POSITIVE_RATES), line)
    return tuple(Attack(*found) for found in zip(FALSE_POSITIVE_RATES, best, line, strict=True))


def _advantage(guarantee: Guarantee, priced: Loss | None) -> float:
    """Largest TPR − FPR: the total variation distance, or tanh(ε/2) stretched by δ where only (ε, δ) is known."""
    tanh = math.tanh(guarantee.epsilon / 2)
    by_line = min(1.0, tanh + guarantee.delta * (1.0 - tanh))
    return by_line if priced is None else min(by_line, priced.delta_upper(0.0))


def _group(size: int, guarantee: Guarantee, event: Event | None) -> GroupGuarantee:
    """The event priced for the whole group; where that is not possible, or only (ε, δ) is known, the general rule."""
    general = GroupGuarantee(size, size * guarantee.epsilon, _group_delta(size, guarantee))
    if event is None or size == 1:
        return general
    try:
        return GroupGuarantee(
            size, loss(event, neighbors=guarantee.unit.neighbors, group=size).epsilon_upper(guarantee.delta), guarantee.delta
        )
    except NotPriceableError:
        return general


def _open_groups(sizes: tuple[int, ...], guarantee: Guarantee, event: Event | None) -> tuple[str, ...]:
    """Why the event itself is not priced for groups, where it is not."""
    most = max(sizes)
    if event is None or most == 1:
        return ()
    try:
        loss(event, neighbors=guarantee.unit.neighbors, group=most)
    except NotPriceableError as refusal:
        return (f"Groups are not priced by this event but by the rule for any (ε, δ): k·ε at a δ that grows with e^ε. {refusal}",)
    return ()


def _group_delta(size: int, guarantee: Guarantee) -> float:
    """δ·(1 + e^ε + … + e^((k−1)ε)), at most 1."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if delta == 0.0 or math.isinf(epsilon):
        return delta
    if epsilon * size > 700:
        return 1.0
    grown = float(size) if epsilon == 0 else math.expm1(size * epsilon) / math.expm1(epsilon)
    return min(1.0, delta * grown * (1 + 1e-15))


def _warnings(guarantee: Guarantee, population: int | None) -> tuple[str, ...]:
    epsilon, delta = guarantee.epsilon, guarantee.delta
    found = []
    if math.isinf(epsilon):
        found.append("ε = ∞ is no guarantee at all: the result may show everything about anyone.")
    elif epsilon > EPSILON_HIGH:
        found.append(
            f"ε = {tables.number(epsilon)} is above {EPSILON_HIGH:g}: as a worst case it promises little "
            f"(odds × {tables.number(_exp(epsilon), 2)}). What protects people then is not this number."
        )
    if population is not None and tables.excludes_nothing(delta, population):
        found.append(
            f"δ = {tables.number(delta)} is at least 1/population = {tables.number(1 / population)}: publishing one whole unit "
            "picked at random would satisfy it. Choose a δ well below."
        )
    if delta > DELTA_HIGH:
        found.append(f"δ = {tables.number(delta)} is large: with that probability all may be revealed.")
    return tuple(found)


def _notes(guarantee: Guarantee, priced: Loss | None, population: int | None) -> tuple[str, ...]:
    found = list(priced.notes) if priced is not None else []
    if priced is not None and not priced.tight:
        found.append("The price is a valid bound that may be loose: the true figures may be better, not worse.")
    if guarantee.delta > 0 and population is None:
        found.append("Give population to have δ checked against 1/population.")
    return tuple(found)


def _exp(power: float) -> float:
    return math.exp(power) if power < 709 else math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# ------------------------------------------------------------------------------------------------ text


def _head(told: Explanation) -> list[str]:
    guarantee = told.guarantee
    source = "its own exact trade-off curve (upper bounds)" if told.event is not None else "(ε, δ) alone; an event would say more"
    return [
        f"ε = {tables.up(guarantee.epsilon)} at δ = {tables.number(guarantee.delta)}",
        "",
        tables.facts([("unit", str(guarantee.unit)), ("trust", TRUST_WORDS[guarantee.trust]), ("from", source)]),
        "",
    ]


def _thing(guarantee: Guarantee) -> str:
    return f"one {guarantee.unit.key or 'row'}"


def _question(guarantee: Guarantee) -> str:
    thing = _thing(guarantee)
    absent = guarantee.unit.neighbors is Neighbors.ADD_REMOVE
    return f"is {thing} in the data?" if absent else f"which of two values does {thing} have?"


def _meaning(told: Explanation) -> list[str]:
    guarantee = told.guarantee
    factor = tables.up(told.odds_factor) if told.odds_factor < 1e6 else f"e^{tables.up(guarantee.epsilon)}"
    game = (
        f"Nobody who sees the result can do better than this: with probability {tables.number(guarantee.delta)} the answer to "
        f"“{_question(guarantee)}” is shown outright; else the odds of it move by a factor of at most {factor}."
        if guarantee.delta > 0
        else f"For whoever sees the result, the odds of “{_question(guarantee)}” move by a factor of at most {factor}."
    )
    if math.isinf(guarantee.epsilon):
        game = f"Nothing is promised: whoever sees the result may know the answer to “{_question(guarantee)}” for certain."
    rows = [(_share(b.prior), f"{tables.down(100 * b.lowest, 3)} %", tables.percent(b.highest)) for b in told.beliefs]
    unless = " (but for the share δ)" if guarantee.delta > 0 else ""
    return [
        f"What it means for {_thing(guarantee)}",
        "",
        tables.paragraph(game),
        "",
        tables.table(rows, ("belief before", "after, at least", f"after, at most{unless}"), left=()),
        "",
    ]


def _share(value: float) -> str:
    """A probability as a percentage, rounded to the nearest."""
    return f"{tables.number(100 * value, 3)} %"


def _attack_lines(told: Explanation) -> list[str]:
    exact = told.event is not None
    headings = ("wrongly accused", "found, at most", "by (ε, δ) alone") if exact else ("wrongly accused", "found, at most")
    rows = []
    for attack in told.attacks:
        row = (_share(attack.false_positive_rate), tables.percent(attack.true_positive_rate))
        rows.append((*row, tables.percent(attack.by_line)) if exact else row)
    return [
        f"The best possible attack on “{_question(told.guarantee)}”",
        "",
        tables.table(rows, headings, left=()),
        "",
        tables.paragraph(
            f"Membership advantage (found − wrongly accused): at most {tables.percent(told.advantage)}. Of two equally likely "
            f"cases the best guess is right at most {tables.percent(told.best_guess)} of the time; a coin, 50 %."
        ),
        "",
    ]


def _group_lines(told: Explanation) -> list[str]:
    if not told.groups:
        return []
    thing = told.guarantee.unit.key or "row"
    rows = [(f"{g.size:,}", tables.up(g.epsilon), tables.up(g.delta)) for g in told.groups]
    return [
        f"A group of k that stand or fall together (k times one {thing})",
        "",
        tables.table(rows, ("k", "ε, at most", "at δ"), left=()),
        "",
    ]


def _caveats(told: Explanation) -> list[str]:
    lines = [tables.paragraph(w, bullet="! ") for w in told.warnings] + [tables.paragraph(n, bullet="· ") for n in told.notes]
    return [*lines, ""] if lines else []


def _published(told: Explanation, nearest: int) -> list[str]:
    near = told.nearest(nearest)
    if not near:
        return []
    rows = [(d.name, str(d.year), tables.number(d.epsilon or 0.0), tables.number(d.delta or 0.0), d.trust.value) for d in near]
    lines = tables.table(rows, ("published, nearest in ε", "year", "ε", "δ", "trust"), left=(0, 4)).splitlines()
    body = [line for row, d in zip(lines[2:], near, strict=True) for line in (row, f"    {d.unit}{'' if d.confirmed else ' [?]'}")]
    doubt = (
        []
        if all(d.confirmed for d in near)
        else ["", tables.paragraph("[?] not found again in public text when this list was last checked.")]
    )
    return [*lines[:2], *body, *doubt, "", tables.paragraph(INCOMPARABLE)]
