"""Plan a training run from public facts: how much noise, how many steps, and what more data or time would buy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dither.accounting import tables
from dither.accounting.calibrate import calibrate
from dither.accounting.loss import loss
from dither.core import checks
from dither.core.errors import InputError, UnknownNameError
from dither.core.events import Event, FixedSize, Gaussian, Poisson, Repeat, Shuffled, Subsample, to_dict
from dither.core.units import Bound, Guarantee, Neighbors, PrivacyUnit, Trust

SAMPLINGS = ("poisson", "fixed_size", "shuffled")
"""How a batch is drawn: each unit by its own coin, a fixed number at random, or by cutting a shuffled order."""

_BatchSampler: TypeAlias = Poisson | FixedSize | Shuffled


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The public facts that decide a training run's price but for its noise."""

    population: int
    epochs: float
    batch: int
    sampling: str = "poisson"

    def __post_init__(self) -> None:
        object.__setattr__(self, "population", checks.count("population", self.population))
        object.__setattr__(self, "batch", checks.count("batch", self.batch))
        object.__setattr__(self, "epochs", checks.positive("epochs", self.epochs, high=1e9))
        if self.batch > self.population:
            raise checks.refuse("batch", self.batch, f"at most population={self.population}")
        sampling: object = self.sampling
        if not isinstance(sampling, str) or sampling not in SAMPLINGS:
            raise UnknownNameError("sampling", sampling, SAMPLINGS)
        if self.steps > checks.COUNT_MAX:
            raise checks.refuse("epochs", self.epochs, f"at most {checks.COUNT_MAX:g} steps, not {self.steps:g}")

    @property
    def steps(self) -> int:
        """Batches in all: enough to reach ``epochs`` passes in expectation."""
        return math.ceil(self.epochs * self.population / self.batch * (1 - 1e-12))

    @property
    def sampling_probability(self) -> float:
        """The chance of one unit to be in one batch."""
        return self.batch / self.population

    def event(self, noise_multiplier: float) -> Event:
        """What the run releases, for pricing.

        >>> Schedule(population=1_000, epochs=1, batch=100).event(2.0).count
        10
        """
        sampler: _BatchSampler
        match self.sampling:
            case "poisson":
                sampler = Poisson(self.sampling_probability)
            case "fixed_size":
                sampler = FixedSize(self.batch, self.population)
            case _:
                sampler = Shuffled(self.batch, self.population)
        return Repeat(Subsample(Gaussian(noise_multiplier), sampler), self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to train: the noise that meets the target, and what the plan's own noise would cost instead."""

    name: str
    schedule: Schedule
    epsilon: float
    noise_multiplier: float
    noise_to_signal: float
    epsilon_at_plan_noise: float

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            "name": self.name,
            "population": self.schedule.population,
            "epochs": self.schedule.epochs,
            "batch": self.schedule.batch,
            "steps": self.schedule.steps,
            "sampling_probability": self.schedule.sampling_probability,
            "epsilon": self.epsilon,
            "noise_multiplier": self.noise_multiplier,
            "noise_to_signal": self.noise_to_signal,
            "epsilon_at_plan_noise": self.epsilon_at_plan_noise if math.isfinite(self.epsilon_at_plan_noise) else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The answer of ``plan_training``; ``options[0]`` is the plan, the others what doubling something buys.

    ``noise_to_signal`` is the noise's standard deviation in one coordinate of the average gradient, divided by the
    clipping norm: the length of the longest arrow one unit may add to a sum, over the batch size.
    """

    target: Guarantee
    price: Bound
    event: Event
    options: tuple[Option, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.to_text()

    @property
    def schedule(self) -> Schedule:
        """Population, epochs, batch and sampling."""
        return self.options[0].schedule

    @property
    def steps(self) -> int:
        """Batches in all."""
        return self.schedule.steps

    @property
    def sampling_probability(self) -> float:
        """The chance of one unit to be in one batch."""
        return self.schedule.sampling_probability

    @property
    def noise_multiplier(self) -> float:
        """Noise std over the sensitivity of one batch's sum."""
        return self.options[0].noise_multiplier

    @property
    def noise_to_signal(self) -> float:
        """Noise std in one coordinate of the average gradient, in clipping norms."""
        return self.options[0].noise_to_signal

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        unit = self.target.unit
        return {
            "target": {
                "epsilon": self.target.epsilon,
                "delta": self.target.delta,
                "unit": {"dataset": unit.dataset, "key": unit.key, "neighbors": unit.neighbors.value},
                "trust": self.target.trust.value,
            },
            "price": {"lower": self.price.lower, "upper": self.price.upper},
            "sampling": self.schedule.sampling,
            "noise_multiplier": self.noise_multiplier,
            "noise_to_signal": self.noise_to_signal,
            "steps": self.steps,
            "sampling_probability": self.sampling_probability,
            "options": [option.to_dict() for option in self.options],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "event": to_dict(self.event),
        }

    def to_text(self) -> str:
        """The plan on a page of 80 columns."""
        target, plan = self.target, self.options[0]
        lines = [
            f"Plan for ε ≤ {tables.number(target.epsilon)} at δ = {tables.number(target.delta)}",
            "",
            tables.facts(
                [
                    ("noise multiplier", f"{tables.up(plan.noise_multiplier, 5)}  (noise std / sensitivity of one batch)"),
                    ("steps", f"{plan.schedule.steps:,} of {plan.schedule.batch:,} units, {_epochs(plan.schedule)}"),
                    ("sampling", f"{_sampling(plan.schedule)}"),
                    (
                        "noise / signal",
                        f"{tables.number(plan.noise_to_signal)}  (std per coordinate of the mean gradient, in clipping norms)",
                    ),
                    ("price", f"ε ≤ {tables.up(self.price.upper, 5)} at δ = {tables.number(target.delta)}"),
                    ("unit", str(target.unit)),
                    ("trust", f"{target.trust}"),
                ]
            ),
            "",
            "What doubling buys",
            "",
            tables.table(
                [_row(option, plan) for option in self.options],
                ("", "sampling", "steps", "noise", "noise/signal", "change", "ε if kept"),
            ),
            "",
            tables.paragraph(
                "noise: the multiplier that meets the target (in the last row, twice its ε). change: of noise/signal; less is "
                "better. ε if kept: the price if the plan's own noise multiplier were kept."
            ),
        ]
        lines += [tables.paragraph(warning, bullet="! ") for warning in self.warnings]
        lines += [tables.paragraph(note, bullet="· ") for note in self.notes]
        return "\n".join(lines)


def _epochs(schedule: Schedule) -> str:
    return f"{tables.number(schedule.epochs)} epoch{'' if schedule.epochs == 1 else 's'} of {schedule.population:,}"


def _sampling(schedule: Schedule) -> str:
    share = tables.number(schedule.sampling_probability)
    return {
        "poisson": f"Poisson: every unit joins a batch with probability {share}",
        "fixed_size": f"fixed size: {schedule.batch:,} at random, a share of {share}",
        "shuffled": f"shuffled: one pass after another, a share of {share} in a batch",
    }[schedule.sampling]


def _row(option: Option, plan: Option) -> tuple[str, ...]:
    change = option.noise_to_signal / plan.noise_to_signal - 1
    return (
        option.name,
        tables.number(option.schedule.sampling_probability),
        f"{option.schedule.steps:,}" if option.schedule.steps < 10_000_000 else tables.number(option.schedule.steps),
        tables.up(option.noise_multiplier),
        tables.number(option.noise_to_signal, 3),
        "" if option is plan else f"{100 * change:+.0f} %".replace("-", "−"),
        tables.up(option.epsilon_at_plan_noise),
    )


def plan_training(  # noqa: PLR0913 - the public facts of one training run, all by keyword
    *,
    population: int,
    epochs: float,
    batch: int,
    epsilon: float,
    delta: float,
    unit: PrivacyUnit | None = None,
    sampling: str = "poisson",
    trust: Trust = Trust.CENTRAL,
) -> TrainingPlan:
    """The noise that trains a model within (ε, δ), and what doubling batch, epochs, population or ε would buy.

    ``population`` counts units (users, if ``unit`` has a key), a public number. Each unit's contribution to a step is
    clipped to one norm.

    >>> plan = plan_training(population=60_000, epochs=1, batch=600, epsilon=2, delta=1e-6)
    >>> plan.steps, plan.price.upper <= 2
    (100, True)
    """
    schedule = Schedule(population=population, epochs=epochs, batch=batch, sampling=sampling)
    if unit is None:
        unit = PrivacyUnit(dataset="the training data", neighbors=_natural(schedule.sampling))
    target = Guarantee(
        checks.epsilon(epsilon, zero=False),
        checks.delta(delta, zero=False),
        checks.instance("unit", unit, PrivacyUnit, "a PrivacyUnit"),
        trust,
    )
    base = _option("this plan", schedule, target)
    doubled: list[tuple[str, float, dict[str, Any]]] = [
        ("batch ×2", 1.0, {"batch": 2 * schedule.batch}),
        ("epochs ×2", 1.0, {"epochs": 2 * schedule.epochs}),
        ("population ×2", 1.0, {"population": 2 * schedule.population}),
        ("ε ×2", 2.0, {}),
    ]
    options, left_out = [base], []
    for name, factor, changed in doubled:
        try:
            options.append(_option(name, replace(schedule, **changed), target, factor=factor, plan_noise=base.noise_multiplier))
        except InputError as error:  # a batch above the population, an ε above the largest, a target that no noise meets
            left_out.append(f"{name} is left out: {error}")
    event = schedule.event(base.noise_multiplier)
    priced = loss(event, neighbors=unit.neighbors)
    return TrainingPlan(
        target=target,
        price=priced.epsilon(target.delta),
        event=event,
        options=tuple(options),
        warnings=_warnings(schedule, target),
        notes=(*priced.notes, *left_out),
    )


def _natural(sampling: str) -> Neighbors:
    """A fixed batch size keeps the number of units fixed, so its neighbours differ by a replacement."""
    return Neighbors.REPLACE if sampling == "fixed_size" else Neighbors.ADD_REMOVE


def _option(name: str, schedule: Schedule, target: Guarantee, *, factor: float = 1.0, plan_noise: float | None = None) -> Option:
    epsilon, related = checks.epsilon(target.epsilon * factor), target.unit.neighbors
    noise = calibrate(schedule.event, epsilon=epsilon, delta=target.delta, neighbors=related)
    kept = noise if plan_noise is None else plan_noise
    return Option(
        name=name,
        schedule=schedule,
        epsilon=epsilon,
        noise_multiplier=noise,
        noise_to_signal=noise * _arrows(schedule, related) / schedule.batch,
        epsilon_at_plan_noise=loss(schedule.event(kept), neighbors=related).epsilon_upper(target.delta),
    )


def _arrows(schedule: Schedule, related: Neighbors) -> int:
    """The sensitivity of a batch's sum in clipping norms: 2 where one contribution takes another's place."""
    replaced = schedule.sampling == "fixed_size" or (schedule.sampling == "shuffled" and related is Neighbors.REPLACE)
    return 2 if replaced else 1


def _warnings(schedule: Schedule, target: Guarantee) -> tuple[str, ...]:
    found = []
    if tables.excludes_nothing(target.delta, schedule.population):
        found.append(
            f"δ = {tables.number(target.delta)} is at least 1/population = {tables.number(1 / schedule.population)}: "
            "publishing one whole unit at random would satisfy it. Choose a δ well below."
        )
    if target.epsilon > 10:
        found.append(f"ε = {tables.number(target.epsilon)} is above 10: the guarantee says little about a determined attacker.")
    return tuple(found)
