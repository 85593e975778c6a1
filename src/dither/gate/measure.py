"""The built-in engine: counts, sums, means, histograms and quantiles of one table, with noise.

>>> from dither.core.units import PrivacyUnit
>>> from dither.gate.engines import Column, Facts, Request
>>> visits = Facts(name="visits", source="visits.csv", unit=PrivacyUnit(dataset="visits"), columns=(Column(name="age", type="int"),))
>>> options = {"statistic": "count", "where": {"age": {"min": 18}}, "accuracy": 20}
>>> made = plan(Request.of("measure", dataset="visits", account="clinic", purpose="report", options=options), visits)
>>> made.event, str(made.accuracy)
(DiscreteLaplace(noise_scale=6.8..., sensitivity=1), '±20 with 95 % confidence')

What a row does to an answer is decided by that row alone (``rows``): whether it can be read, lies in one of the charged
blocks, meets the conditions, and which number or group it holds. Only then the rows of a unit are bounded:

    Of each unit, the first ``rows_per_unit`` of these rows in the order of the file are kept.

**Why this bounds a unit exactly.** A table is a sequence of rows. Leave out all rows of a unit u, or put other rows of one
unit in their places: the rows of any other unit v, and their order among themselves, stay what they were. Which rows of v are
kept is a function of just that sequence, hence unchanged. So between neighbours only the kept rows of u differ: at most
``rows_per_unit`` of them go (add_remove), or go and as many others come (replace), which is what
``noise.sensitivity.Contribution`` says. A row without a key belongs to nobody and is left out. Two keys are never taken for one,
nor one for two (``rows.KEYS``): else u's rows would take places of v's.

**Where units have rows in several blocks** and several are charged, a limit per block promises that the rows of a unit in *one*
block stay hidden. Taking them away may let later rows of the same unit, in other charged blocks, take their places: at most
``rows_per_unit`` kept rows go and at most as many come. So the noise is then that of ``replace``, which covers both promises.

Rows outside the charged blocks, or in none, never enter. Under ``replace`` a row may move into or out of what is counted, so a
count moves by 1 there too, never by 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias, cast

import numpy as np
from pydantic import Field, ValidationError, WithJsonSchema

from dither.core import checks, events
from dither.core.encoding import digest
from dither.core.errors import InputError, shown
from dither.core.events import Event
from dither.core.plans import Accuracy, Release
from dither.core.rng import Rng
from dither.core.units import Neighbors, PrivacyUnit, Trust
from dither.gate import selection
from dither.gate.engines import Column, Facts, Request, Value
from dither.gate.rows import Table, moment, open_table, typed
from dither.gate.wording import Strict, sentences
from dither.ledger.terms import exact, unit_to_dict
from dither.noise import gaussian_noise_multiplier, sensitivity
from dither.noise.gridsum import GridSum
from dither.noise.numeric import DiscreteLaplaceMechanism, GaussianMechanism, LaplaceMechanism
from dither.noise.quantiles import CELLS, Quantile, Quantiles
from dither.noise.sensitivity import Contribution

ROWS_MAX = 1_000_000
GROUPS_MAX = 10_000
_FORMAT = 1
"""Changes when the same request means another computation."""
_FINE = 24  # a sum is counted in steps this many binary places below the larger bound
_NOISE_MAX = 2.0**53
_ROOT_OF_TWO = math.nextafter(math.sqrt(2), 2)

Statistic: TypeAlias = Literal["count", "sum", "mean", "median", "quantiles", "histogram"]
Law: TypeAlias = Literal["laplace", "gaussian"]
Whole: TypeAlias = DiscreteLaplaceMechanism | LaplaceMechanism | GaussianMechanism
_Where: TypeAlias = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["string", "number", "boolean"]},
                {"type": "array", "items": {"type": ["string", "number", "boolean"]}},
                {"type": "object", "properties": {k: {"type": ["string", "number"]} for k in ("min", "max", "below")}},
            ]
        }
    ),
]
_Values: TypeAlias = Annotated[list[Any], WithJsonSchema({"type": "array", "items": {"type": ["string", "number", "boolean"]}})]


class Fields(Strict):
    """What may be asked of this engine."""

    statistic: Statistic
    column: str | None = Field(None, description="What is summed, averaged or grouped by; a count has none.")
    where: dict[str, _Where] = Field(
        default_factory=dict, description="Conditions on declared columns: a value, a list, or {min, max, below}."
    )
    epsilon: float | None = Field(None, description="What the answer may cost; or say how accurate it should be.")
    delta: float = Field(0, description="0 for Laplace noise, above 0 for Gaussian noise.")
    accuracy: float | None = Field(None, description="The answer is to be within ± this much.")
    confidence: float = Field(0.95, description="How sure the stated accuracy is.")
    rows_per_unit: int | None = Field(None, description="At most so many rows of each unit are used; needed where the unit is a key.")
    values: _Values | None = Field(None, description="The groups of a histogram, where the column does not declare them.")
    bins: int | None = Field(None, description="So many equal bins from min to max, for a histogram of numbers.")
    quantiles: list[float] | None = Field(None, description="Rising numbers from 0 to 1.")


# ------------------------------------------------------------------------------------------------ plan


@dataclass(frozen=True, kw_only=True)
class MeasurePlan:
    """What will be measured and with which noise: the mechanisms that run are those that are priced."""

    facts: Facts
    fields: Fields
    blocks: tuple[str, ...]
    contribution: Contribution
    mechanisms: tuple[Whole | Quantile | Quantiles, ...]
    grid: GridSum | None = None
    groups: tuple[Value, ...] = ()

    @property
    def event(self) -> Event:
        """The mechanisms' own."""
        own = tuple(m.event for m in self.mechanisms)
        return own[0] if len(own) == 1 else events.Sequence(own)

    @property
    def unit(self) -> PrivacyUnit:
        """What is hidden."""
        return cast("PrivacyUnit", self.facts.unit)

    @cached_property
    def digest(self) -> str:
        """Of the options, the blocks, the event, and those facts of the dataset that the answer depends on."""
        facts, used = self.facts, {self.fields.column, self.unit.key, *self.fields.where}
        if facts.blocks is not None:
            used.add(facts.blocks.column)
        columns = [(c.name, c.type, c.min, c.max, list(c.values)) for c in facts.columns if c.name in used]
        divided = None if facts.blocks is None else [facts.blocks.column, facts.blocks.every]
        return digest(
            {
                "engine": "measure",
                "format": _FORMAT,
                "source": facts.source,
                "unit": unit_to_dict(self.unit),
                "blocks": [divided, facts.disjoint, list(self.blocks)],
                "columns": sorted(columns),
                "options": self.fields.model_dump(mode="json", exclude_defaults=True),
                "event": events.to_dict(self.event),
            }
        )

    @property
    def accuracy(self) -> Accuracy | None:
        """How far every number of the answer may be off by noise; None where that depends on the answer, or is in ranks."""
        if self.fields.statistic not in ("count", "sum", "histogram"):
            return None
        return _interval(cast("Whole", self.mechanisms[0]), self.fields.confidence, self.step, max(len(self.groups), 1))

    @property
    def step(self) -> float:
        """What a whole number of the mechanism stands for."""
        return 1.0 if self.grid is None else self.grid.step

    @property
    def rows(self) -> selection.Rows:
        """Which rows are measured."""
        return selection.Rows(facts=self.facts, where=self.fields.where, blocks=self.blocks, most=self.contribution.rows)

    def explain(self) -> str:
        """Plain words."""
        asked, facts = self.fields, self.facts
        of = "" if asked.column is None else f" of '{asked.column}'"
        lines = [f"{asked.statistic.capitalize()}{of} in '{facts.name}', hiding {self.unit}."]
        if self.blocks:
            lines.append(f"Only rows of the blocks {', '.join(self.blocks[:6])}{' …' if len(self.blocks) > 6 else ''}.")
        if asked.where:
            lines.append(f"Only rows where {' and '.join(f'{c} is {shown(w)}' for c, w in asked.where.items())}.")
        if self.unit.key is not None:
            lines.append(f"Of each {self.unit.key} the first {self.contribution.rows} of these rows count.")
        lines.append(f"Noise: {self.event}, which costs ε = {self._cost():.4g}{f' at δ = {asked.delta:g}' if asked.delta else ''}.")
        if self.accuracy is not None:
            lines.append(f"By noise alone each number is off by {self.accuracy}.")
        return "\n".join(lines)

    def _cost(self) -> float:
        from dither.accounting import epsilon  # noqa: PLC0415 - a third of a second to load, for the words alone

        return epsilon(self.event, delta=self.fields.delta).upper


def plan(request: Request, dataset: Facts) -> MeasurePlan:
    """What would run, from public facts only."""
    if dataset.unit is None:
        raise InputError(f"The dataset {shown(dataset.name)} is public: there is nothing to hide, so it is not measured with noise.")
    if dataset.through is not None:
        raise InputError(f"The unit of {shown(dataset.name)} is found through another table, which 'measure' does not read: use SQL.")
    if dataset.trust is not Trust.CENTRAL:
        raise InputError(f"trust='{dataset.trust}' is not allowed: 'measure' sees the rows themselves, so expected central.")
    fields = _fields(request)
    for name in fields.where:
        selection.test(dataset.column(name), fields.where[name])
    blocks = _blocks(request, dataset)
    contribution = _contribution(fields, dataset, blocks)
    made: dict[str, Any] = {"facts": dataset, "fields": fields, "blocks": blocks, "contribution": contribution}
    match fields.statistic:
        case "count":
            most = sensitivity.count(contribution)
            return MeasurePlan(**made, mechanisms=(_chosen(fields, (most.l1, most.l2)),))
        case "sum":
            return _sum(dataset, made)
        case "mean":
            return _mean(dataset, made)
        case "histogram":
            return _histogram(dataset, made)
        case "median" | "quantiles":
            return _quantiles(dataset, made)


def _fields(request: Request) -> Fields:
    try:
        fields = Fields.model_validate(request.fields)
    except ValidationError as error:
        raise InputError(next(sentence for _, _, sentence in sentences(error, Fields))) from None
    kind = fields.statistic
    allowed: dict[Statistic, set[str]] = {
        "count": {"accuracy"},
        "sum": {"column", "accuracy"},
        "mean": {"column"},
        "histogram": {"column", "accuracy", "values", "bins"},
        "median": {"column"},
        "quantiles": {"column", "quantiles"},
    }
    always = {"statistic", "where", "epsilon", "delta", "confidence", "rows_per_unit"}
    for name in sorted(fields.model_fields_set - always - allowed[kind]):
        if getattr(fields, name) is not None:
            raise InputError(f"{name}={shown(getattr(fields, name))} is not allowed for the statistic '{kind}': take it out.")
    for name in sorted(allowed[kind] & {"column", "quantiles"}):
        if getattr(fields, name) is None:
            raise InputError(f"The statistic '{kind}' needs '{name}': add it.")
    if (fields.epsilon is None) == (fields.accuracy is None):
        told = "epsilon or accuracy, one of the two" if "accuracy" in allowed[kind] else "epsilon"
        raise InputError(f"How much noise is wanted? Expected {told}.")
    if fields.epsilon is not None:
        checks.epsilon(fields.epsilon, zero=False)
    if fields.accuracy is not None:
        checks.positive("accuracy", fields.accuracy)
    checks.delta(fields.delta)
    Accuracy(half_width=0, confidence=fields.confidence)
    return fields


def _blocks(request: Request, facts: Facts) -> tuple[str, ...]:
    if facts.blocks is None:
        if request.blocks:
            raise InputError(f"The dataset {shown(facts.name)} has no blocks: name none.")
        return ()
    if not request.blocks:
        raise InputError(f"The dataset {shown(facts.name)} is divided into blocks: name those to read with 'blocks'.")
    declared = [c for c in facts.columns if c.name == facts.blocks.column]
    if declared and facts.blocks.every is not None and declared[0].type not in ("date", "timestamp", "text"):
        raise InputError(f"Blocks of time need moments: the column {shown(declared[0].name)} is declared as {declared[0].type}.")
    return tuple(facts.blocks.check(block) for block in request.blocks)


def _contribution(fields: Fields, facts: Facts, blocks: Sequence[str]) -> Contribution:
    """How much of one unit can be in what is measured; see the head of this module for units that reach over blocks."""
    unit, rows = cast("PrivacyUnit", facts.unit), fields.rows_per_unit
    if unit.key is None and rows not in (None, 1):
        raise checks.refuse("rows_per_unit", rows, "none, for the unit is one row")
    if unit.key is not None and rows is None:
        raise InputError(
            f"The unit is one {unit.key}, who may have many rows: say with 'rows_per_unit' how many of them to use at most, "
            "by what is publicly known of such data."
        )
    if any(c.name == unit.key and c.type == "timestamp" for c in facts.columns):
        raise InputError(
            f"The key {shown(unit.key)} is declared as timestamp: expected text, int, float, bool or date, for two moments within a "
            "microsecond would pass for one unit."
        )
    most = 1 if rows is None else checks.count("rows_per_unit", rows, high=ROWS_MAX)
    reaching = unit.key is not None and not facts.disjoint and len(blocks) > 1
    return Contribution(rows_per_unit=most, neighbors=Neighbors.REPLACE if reaching else unit.neighbors)


# ------------------------------------------------------------------------------------------------ noise


def _chosen(fields: Fields, most: tuple[float, float], step: float = 1.0, dimension: int = 1, *, counted: bool = True) -> Whole:
    """The mechanism for whole numbers: for ε (and δ) as given, or the one with most noise that is still accurate enough."""
    law: Law = "gaussian" if fields.delta else "laplace"
    if fields.epsilon is not None:
        wanted = _multiplier(fields)
        return _mechanism(law, wanted, most, counted=counted)
    accuracy = cast("float", fields.accuracy)

    def good(multiplier: float) -> bool:
        return _interval(_mechanism(law, multiplier, most, counted=counted), fields.confidence, step, dimension).half_width <= accuracy

    low, high = checks.NOISE_MIN, min(checks.NOISE_MAX, 0.9 * _NOISE_MAX / max(most))
    if not good(low):
        raise checks.refuse("accuracy", accuracy, "a wider one: no ε up to 1000 is enough for it")
    for _ in range(64):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if good(middle) else (low, middle)
    return _mechanism(law, low, most, counted=counted)


def _multiplier(fields: Fields) -> float:
    """The least noise for ε and δ, in sensitivities; ε is the decimal that was written, so that ten times 0.1 fit a limit of 1."""
    epsilon = cast("float", fields.epsilon)
    if fields.delta:
        return gaussian_noise_multiplier(epsilon, fields.delta)
    wanted = 1 / exact("epsilon", epsilon)
    if wanted > checks.NOISE_MAX:
        raise checks.refuse("epsilon", epsilon, f"at least {1 / checks.NOISE_MAX:g}", "Nothing would be left of the answer.")
    near = float(wanted)
    return near if near >= wanted else math.nextafter(near, math.inf)


def _mechanism(law: Law, multiplier: float, most: tuple[float, float], *, counted: bool) -> Whole:
    """Noise of a multiple of the L1 (Laplace) or L2 (Gaussian) sensitivity; ``counted`` in ones, or else in fine steps."""
    noise = max(multiplier, checks.NOISE_MIN)
    if noise * most[law == "gaussian"] > _NOISE_MAX:
        raise InputError("That is more noise than whole numbers can hold: ask for a larger ε, or fewer rows per unit.")
    if law == "gaussian":
        return GaussianMechanism(noise_multiplier=noise, sensitivity=most[1])
    if counted:
        return DiscreteLaplaceMechanism.from_noise_multiplier(noise, sensitivity=int(most[0]))
    return LaplaceMechanism(noise_multiplier=noise, sensitivity=most[0])


def _interval(mechanism: Whole, confidence: float, step: float, dimension: int) -> Accuracy:
    """How far any of the numbers may be off; noise rounded to whole numbers reaches past ⌈t⌉ only where it reached past t."""
    found = mechanism.interval(confidence, dimension=dimension, joint=True)
    return Accuracy(half_width=math.ceil(found.half_width) * step, confidence=confidence)


def _each(fields: Fields) -> float:
    """How sure each of two numbers must be: each is wrong with half of the probability."""
    return (1 + fields.confidence) / 2


def _add_noise(mechanism: Whole, value: Any, rng: Rng) -> tuple[Any, Event]:  # noqa: ANN401 - an int or an integer array, and the same back
    noisy: Any = (
        mechanism.measure(value, rng) if isinstance(mechanism, DiscreteLaplaceMechanism) else mechanism.measure_integers(value, rng)
    )
    return noisy.value, noisy.event


def _bounded(facts: Facts, name: str | None) -> tuple[Column, float, float]:
    """A column of numbers with the bounds to clamp it to."""
    column = facts.column(cast("str", name))
    if column.type not in ("int", "float"):
        raise InputError(f"The column {shown(name)} is declared as {column.type}: expected int or float.")
    if column.min is None or column.max is None:
        raise InputError(f"The column {shown(name)} has no bounds: declare its min and max, from public knowledge and not from the data.")
    if not column.min < column.max or not math.isfinite(column.max - column.min):
        raise InputError(f"The column {shown(name)} has min={column.min!r} and max={column.max!r}: expected min < max.")
    return column, column.min, column.max


def _grid(column: Column, low: float, high: float) -> GridSum:
    """Steps that are fine beside the noise; whole ones for whole numbers where these are small."""
    step = math.ldexp(1.0, max(math.frexp(max(-low, high))[1] - _FINE, -800))
    return GridSum(lower=low, upper=high, step=max(step, 1.0) if column.type == "int" else step)


def _sum(facts: Facts, made: Mapping[str, Any]) -> MeasurePlan:
    column, low, high = _bounded(facts, made["fields"].column)
    grid = _grid(column, low, high)
    most = sensitivity.grid_sum(grid, made["contribution"])
    mechanism = _chosen(made["fields"], (most.l1, most.l2), grid.step, counted=False)
    return MeasurePlan(**made, mechanisms=(mechanism,), grid=grid)


def _mean(facts: Facts, made: Mapping[str, Any]) -> MeasurePlan:
    """The sum about the midpoint and the count, each with noise for half of the cost."""
    column, low, high = _bounded(facts, made["fields"].column)
    fields, half = made["fields"], (high - low) / 2
    grid = _grid(Column(name=column.name, type="float"), -half, half)
    total, count = sensitivity.grid_sum(grid, made["contribution"]), sensitivity.count(made["contribution"])
    if _each(fields) >= 1:
        raise checks.refuse("confidence", fields.confidence, "at most 0.999999999999999")
    one = _multiplier(fields)  # two Laplace events of twice the noise cost as one, two Gaussians of √2 times
    noise = math.nextafter(one * _ROOT_OF_TWO, math.inf) if fields.delta else 2 * one
    law: Law = "gaussian" if fields.delta else "laplace"
    parts = (_mechanism(law, noise, (total.l1, total.l2), counted=False), _mechanism(law, noise, (count.l1, count.l2), counted=True))
    return MeasurePlan(**made, mechanisms=parts, grid=grid)


def _histogram(facts: Facts, made: Mapping[str, Any]) -> MeasurePlan:
    """Counts of public groups."""
    fields: Fields = made["fields"]
    column = facts.column(cast("str", fields.column))
    if fields.bins is not None:
        if fields.values is not None:
            raise InputError("A histogram has bins or values: expected one of the two.")
        _bounded(facts, fields.column)
        groups: tuple[Value, ...] = tuple(range(checks.count("bins", fields.bins, high=GROUPS_MAX)))
    else:
        given = column.values or ((False, True) if column.type == "bool" else ())
        groups = given if fields.values is None else tuple(typed(column.type, v) for v in fields.values)
        if not 1 <= len(groups) <= GROUPS_MAX or len(set(groups)) != len(groups):
            raise InputError(
                f"The groups of {shown(column.name)} are not known: declare its values (each once, at most {GROUPS_MAX}), "
                "or ask for 'bins' of a column of numbers. Groups found in the data would tell who is in it."
            )
        if fields.values is not None and column.type in ("date", "timestamp") and len({moment(v) for v in groups}) != len(groups):
            raise InputError("Two of the values are one moment: name each once.")
    most = sensitivity.histogram(made["contribution"], bins=len(groups))
    return MeasurePlan(**made, mechanisms=(_chosen(fields, (most.l1, most.l2), dimension=len(groups)),), groups=groups)


def _quantiles(facts: Facts, made: Mapping[str, Any]) -> MeasurePlan:
    """By the exponential mechanism, whose guarantee is for one row more, less or changed.

    Calibrated for a changed row it also covers one that comes or goes (its rate is never above the one for those), so
    under ``replace`` a row may leave or enter what is measured as well.
    """
    fields: Fields = made["fields"]
    contribution: Contribution = made["contribution"]
    column, low, high = _bounded(facts, fields.column)
    if fields.delta:
        raise checks.refuse("delta", fields.delta, "0, for quantiles are drawn with no δ")
    if contribution.rows != 1:
        raise checks.refuse("rows_per_unit", contribution.rows, "1, for a quantile takes one row of each unit")
    width = high - low
    whole = column.type == "int" and low == round(low) and high == round(high) and width <= CELLS
    shared: dict[str, Any] = {"lower": low, "upper": high, "epsilon": fields.epsilon, "neighbors": contribution.neighbors}
    shared["cells"] = int(width) if whole else CELLS
    if fields.statistic == "median":
        return MeasurePlan(**made, mechanisms=(Quantile(quantile=0.5, **shared),))
    return MeasurePlan(**made, mechanisms=(Quantiles(quantiles=tuple(fields.quantiles or ()), **shared),))


# ------------------------------------------------------------------------------------------------ rows


def open(dataset: Facts) -> Table:  # noqa: A001 - the name that engines are called by
    """The source, opened; its header is read and no row. See ``rows``."""
    return open_table(dataset)


def run(plan: MeasurePlan, data: Table, rng: Rng) -> Release[dict[str, object]]:
    """Read the rows once, and release what the plan says."""
    with data:
        match plan.fields.statistic:
            case "count":
                return _count(plan, data, rng)
            case "sum":
                return _summed(plan, data, rng)
            case "mean":
                return _averaged(plan, data, rng)
            case "histogram":
                return _grouped(plan, data, rng)
            case "median" | "quantiles":
                return _ranked(plan, data, rng)


def _released(plan: MeasurePlan, value: dict[str, object], event: Event, accuracy: Accuracy | None = None) -> Release[dict[str, object]]:
    told = plan.accuracy if accuracy is None else accuracy
    made = {"statistic": plan.fields.statistic, **value}
    return Release(value=made, event=event, unit=plan.unit, plan_digest=plan.digest, accuracy=told)


def _count(plan: MeasurePlan, data: Table, rng: Rng) -> Release[dict[str, object]]:
    total = sum(len(batch) for batch in plan.rows.added(data))
    noisy, event = _add_noise(cast("Whole", plan.mechanisms[0]), total, rng)
    return _released(plan, {"estimate": int(noisy)}, event)


def _summed(plan: MeasurePlan, data: Table, rng: Rng) -> Release[dict[str, object]]:
    grid = cast("GridSum", plan.grid)
    total = sum(grid.total(np.array(batch, np.float64)) for batch in _numbers(plan, data))
    noisy, event = _add_noise(cast("Whole", plan.mechanisms[0]), total, rng)
    found = grid.value(int(noisy))
    whole = plan.facts.column(cast("str", plan.fields.column)).type == "int"
    return _released(plan, {"estimate": int(found) if whole else found}, event)


def _averaged(plan: MeasurePlan, data: Table, rng: Rng) -> Release[dict[str, object]]:
    """The midpoint + S/n from the noisy S and n, within the bounds; the interval is computed from these two alone.

    With |S − S₀| ≤ s, |n − n₀| ≤ c, h half the width of the bounds and m = S/n: the true mean about the midpoint is within ±h, so
    the error (S − S₀ − m₀·(n − n₀))/n is at most (s + h·c)/n; and as |m₀| ≤ |m| + error, at most (s + |m|·c)/(n − c) where n > c.
    """
    _, low, high = _bounded(plan.facts, plan.fields.column)
    grid, half = cast("GridSum", plan.grid), (high - low) / 2
    middle, total, count = low + half, 0, 0
    for batch in _numbers(plan, data):
        total += grid.total(np.array(batch, np.float64) - middle)
        count += len(batch)
    sums, counts = cast("tuple[Whole, Whole]", plan.mechanisms)
    (noisy, event), (number, other) = _add_noise(sums, total, rng), _add_noise(counts, count, rng)
    about, rows = grid.value(int(noisy)), max(int(number), 1)
    offset = max(-half, min(half, about / rows))
    s, c = (_interval(m, _each(plan.fields), step, 1).half_width for m, step in ((sums, grid.step), (counts, 1.0)))
    wide = half + abs(offset)
    if number > c:
        wide = min(wide, (s + half * c) / rows, (s + abs(offset) * c) / (rows - c))
    estimate = max(low, min(high, middle + offset))
    # a step more, for every row was rounded to one
    accuracy = Accuracy(half_width=wide + grid.step, confidence=plan.fields.confidence)
    return _released(plan, {"estimate": estimate, "rows": int(number)}, events.Sequence((event, other)), accuracy)


def _grouped(plan: MeasurePlan, data: Table, rng: Rng) -> Release[dict[str, object]]:
    found = np.zeros(len(plan.groups), np.int64)
    for batch in plan.rows.added(data, plan.fields.column, _group(plan)):
        found += np.bincount(np.array(batch, np.int64), minlength=found.size)
    noisy, event = _add_noise(cast("Whole", plan.mechanisms[0]), found, rng)
    estimates: list[dict[str, object]] = [{**named, "estimate": int(n)} for named, n in zip(_titles(plan), noisy, strict=True)]
    return _released(plan, {"estimates": estimates}, event)


def _titles(plan: MeasurePlan) -> Iterator[Mapping[str, object]]:
    if plan.fields.bins is None:
        yield from ({"value": group} for group in plan.groups)
        return
    _, low, high = _bounded(plan.facts, plan.fields.column)
    yield from ({"from": a, "to": b} for a, b in pairwise(selection.edges(low, high, plan.fields.bins)))


def _ranked(plan: MeasurePlan, data: Table, rng: Rng) -> Release[dict[str, object]]:
    rows = np.concatenate([np.zeros(0), *(np.array(batch, np.float64) for batch in _numbers(plan, data))])
    whole = plan.facts.column(cast("str", plan.fields.column)).type == "int"
    mechanism = cast("Quantile | Quantiles", plan.mechanisms[0])
    found, event = mechanism.measure(rows, rng)
    ranks = mechanism.interval(plan.fields.confidence).half_width
    if isinstance(mechanism, Quantile):
        return _released(plan, {"estimate": _point(found, whole=whole), "ranks_off": ranks}, event)
    pairs = zip(mechanism.quantiles, cast("tuple[float, ...]", found), strict=True)
    estimates = [{"quantile": q, "estimate": _point(e, whole=whole)} for q, e in pairs]
    return _released(plan, {"estimates": estimates, "ranks_off": ranks}, event)


def _numbers(plan: MeasurePlan, data: Table) -> Iterator[list[float]]:
    column, low, high = _bounded(plan.facts, plan.fields.column)
    return plan.rows.added(data, column.name, selection.clamped(column, low, high))


def _group(plan: MeasurePlan) -> selection.Read:
    if plan.fields.bins is None:
        return selection.group(plan.facts.column(cast("str", plan.fields.column)), plan.groups)
    return selection.bin_of(*_bounded(plan.facts, plan.fields.column), plan.fields.bins)


def _point(found: Any, *, whole: bool) -> int | float:  # noqa: ANN401 - a float
    return round(found) if whole else float(found)
