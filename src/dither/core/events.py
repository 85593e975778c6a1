"""Events: the description of a release that is necessary and sufficient to price it (long because the union is closed, on one page).

A closed union of frozen, validated, hashable classes. The ledger stores events and derives ε from them, so this page
is law: a class is never removed, a field never added unless it has a default, and no meaning ever changes.

Sensitivity is already divided out. ``noise_multiplier`` is std/sensitivity for Gaussians and scale/sensitivity for
Laplace noise, where the sensitivity is that of one unit under the unit's neighbouring relation. Inside ``Subsample``
it is that of one *batch*: for ``Poisson``, ``TruncatedPoisson`` one unit's contribution present or absent; for
``FixedSize``, ``WithReplacement`` one unit's contribution replaced by another's; for ``Shuffled`` as outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeAlias, TypeGuard, get_args

from dither.core import checks
from dither.core.encoding import canonical_json, digest, parse_json
from dither.core.errors import DecodeError, InputError, UnknownNameError, shown

DEPTH_MAX = 60
SIZE_MAX = 1_000_000
STEPS_MAX = 10_000_000
COEFFICIENTS_MAX = 100_000


def _set(target: object, name: str, value: object) -> None:
    object.__setattr__(target, name, value)


# ------------------------------------------------------------------------------------------------ leaves


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace noise of scale ``noise_multiplier`` × L1 sensitivity."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _set(self, "noise_multiplier", checks.noise_multiplier(self.noise_multiplier))


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Gaussian noise of standard deviation ``noise_multiplier`` × L2 sensitivity, in any dimension."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _set(self, "noise_multiplier", checks.noise_multiplier(self.noise_multiplier))


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """Integer noise with P(k) ∝ exp(−|k|/noise_scale) on one integer that moves by at most ``sensitivity``."""

    noise_scale: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _discrete(self, "noise_scale")


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """Integer noise with P(k) ∝ exp(−k²/2noise_std²) on one integer that moves by at most ``sensitivity``."""

    noise_std: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        _discrete(self, "noise_std")


def _discrete(event: DiscreteLaplace | DiscreteGaussian, name: str) -> None:
    number = checks.positive(name, getattr(event, name), high=checks.NOISE_MAX)
    sensitivity = checks.count("sensitivity", event.sensitivity)
    if not number / sensitivity >= checks.NOISE_MIN:
        raise checks.refuse(name, number, f"at least {checks.NOISE_MIN:g} × sensitivity={sensitivity}")
    _set(event, name, number)
    _set(event, "sensitivity", sensitivity)


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """k-ary randomised response: the true value with odds e^ε : 1 against each of the ``values`` − 1 others."""

    epsilon: float
    values: int = 2

    def __post_init__(self) -> None:
        _set(self, "epsilon", checks.epsilon(self.epsilon))
        _set(self, "values", checks.count("values", self.values, low=2))


@dataclass(frozen=True, slots=True)
class PureDp:
    """Any mechanism proved (ε, 0)-DP."""

    epsilon: float

    def __post_init__(self) -> None:
        _set(self, "epsilon", checks.epsilon(self.epsilon))


@dataclass(frozen=True, slots=True, repr=False)
class ApproxDp:
    """Any mechanism proved (ε, δ)-DP.

    With ``one_unit`` it is a share of such a proof that holds for one unit, and only together with what stands beside it: a
    part that several units at once may break with more than the rule for groups allows. It has no price for more than one.
    """

    epsilon: float
    delta: float
    one_unit: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        _set(self, "epsilon", checks.epsilon(self.epsilon))
        _set(self, "delta", checks.delta(self.delta))
        if type(self.one_unit) is not bool:
            raise checks.refuse("one_unit", self.one_unit, "true or false")
        if self.one_unit and self.delta == 0:
            raise checks.refuse("one_unit", self.one_unit, "false where delta is 0: PureDp(epsilon) holds for groups of units, too")

    def __repr__(self) -> str:
        return f"ApproxDp(epsilon={self.epsilon!r}, delta={self.delta!r}{', one_unit=True' if self.one_unit else ''})"


@dataclass(frozen=True, slots=True)
class Zcdp:
    """Any mechanism proved ρ-zCDP (Bun & Steinke 2016): Rényi divergence of every order α at most ρα."""

    rho: float

    def __post_init__(self) -> None:
        _set(self, "rho", checks.between("rho", self.rho, 0.0, checks.EPSILON_MAX))


@dataclass(frozen=True, slots=True)
class ExponentialMechanism:
    """Any mechanism proved ε-bounded-range: its privacy loss lies in an interval of width ε (hence (ε, 0)-DP)."""

    epsilon: float

    def __post_init__(self) -> None:
        _set(self, "epsilon", checks.epsilon(self.epsilon))


@dataclass(frozen=True, slots=True)
class TreeGaussian:
    """Binary-tree aggregation of ``steps`` sums, a node of the tree released with Gaussian noise each.

    ``noise_multiplier`` is node std / L2 norm of one unit's contribution to one step. A unit takes part in at most
    ``participations`` steps, any two of them at least ``min_separation`` steps apart.
    """

    noise_multiplier: float
    steps: int
    participations: int = 1
    min_separation: int = 1

    def __post_init__(self) -> None:
        _set(self, "noise_multiplier", checks.noise_multiplier(self.noise_multiplier))
        _stream(self)


@dataclass(frozen=True, slots=True)
class MatrixGaussian:
    """Correlated noise C⁻¹z for a lower-triangular Toeplitz C whose first column starts with ``coefficients``.

    ``noise_multiplier`` is the std of z / L2 norm of one unit's contribution to one step; the sensitivity of C is
    derived, not stated. Participation as in ``TreeGaussian``.
    """

    noise_multiplier: float
    coefficients: tuple[float, ...]
    steps: int
    participations: int = 1
    min_separation: int = 1

    def __post_init__(self) -> None:
        _set(self, "noise_multiplier", checks.noise_multiplier(self.noise_multiplier))
        _stream(self)
        given = checks.sequence("coefficients", self.coefficients, "a non-empty list of numbers", limit=COEFFICIENTS_MAX)
        numbers = tuple(checks.between("coefficients", c, -1e6, 1e6) for c in given)
        if not numbers[0] > 0:
            raise checks.refuse("coefficients", numbers[0], "a first coefficient > 0, so that C can be inverted")
        if len(numbers) > self.steps:
            raise checks.refuse("coefficients", f"{len(numbers)} numbers", f"at most steps={self.steps} of them")
        _set(self, "coefficients", numbers)


def _stream(event: TreeGaussian | MatrixGaussian) -> None:
    steps = checks.count("steps", event.steps, high=STEPS_MAX)
    separation = checks.count("min_separation", event.min_separation, high=steps)
    participations = checks.count("participations", event.participations, high=steps)
    if (participations - 1) * separation >= steps:
        raise checks.refuse(
            "participations", participations, f"at most {-(-steps // separation)}, all that fit {separation} apart in {steps} steps"
        )
    _set(event, "steps", steps)
    _set(event, "participations", participations)
    _set(event, "min_separation", separation)


@dataclass(frozen=True, slots=True)
class NonPrivate:
    """No guarantee at all: ε = ∞."""


# ------------------------------------------------------------------------------------------------ samplers


@dataclass(frozen=True, slots=True)
class Poisson:
    """Every unit is in the batch with this probability, independently, afresh each time."""

    probability: float

    def __post_init__(self) -> None:
        _set(self, "probability", checks.probability("probability", self.probability))


@dataclass(frozen=True, slots=True)
class TruncatedPoisson:
    """Poisson sampling; a batch larger than ``cap`` is cut to a uniform subset of ``cap``.

    ``population`` is a public upper bound on the number of units.
    """

    probability: float
    cap: int
    population: int

    def __post_init__(self) -> None:
        _set(self, "probability", checks.probability("probability", self.probability))
        _set(self, "population", checks.count("population", self.population))
        _set(self, "cap", checks.count("cap", self.cap))


@dataclass(frozen=True, slots=True)
class FixedSize:
    """A uniform batch of exactly ``size`` of ``population`` units, without replacement, afresh each time.

    ``population`` is a public lower bound on the number of units.
    """

    size: int
    population: int

    def __post_init__(self) -> None:
        _batch(self, "size")


@dataclass(frozen=True, slots=True)
class WithReplacement:
    """``size`` independent uniform draws from ``population`` units, afresh each time."""

    size: int
    population: int

    def __post_init__(self) -> None:
        _set(self, "population", checks.count("population", self.population))
        _set(self, "size", checks.count("size", self.size))


@dataclass(frozen=True, slots=True)
class Shuffled:
    """The units in a random order cut into batches of ``batch``; every epoch passes over all of them once.

    ``Repeat(Subsample(e, Shuffled(b, n)), k)`` is *one* stream of k batches; a ``Sequence`` of such events is several
    independent streams. ``population`` is a public lower bound on the number of units.
    """

    batch: int
    population: int

    def __post_init__(self) -> None:
        _batch(self, "batch")


def _batch(sampler: FixedSize | Shuffled, name: str) -> None:
    population = checks.count("population", sampler.population)
    size = checks.count(name, getattr(sampler, name))
    if size > population:
        raise checks.refuse(name, size, f"at most population={population}")
    _set(sampler, "population", population)
    _set(sampler, name, size)


Sampler: TypeAlias = Poisson | TruncatedPoisson | FixedSize | WithReplacement | Shuffled


# ------------------------------------------------------------------------------------------------ stopping rules


@dataclass(frozen=True, slots=True)
class PoissonRuns:
    """The number of runs is Poisson with this mean (none at all is possible)."""

    mean: float

    def __post_init__(self) -> None:
        _set(self, "mean", checks.positive("mean", self.mean, high=1e9))


@dataclass(frozen=True, slots=True)
class NegativeBinomialRuns:
    """Truncated negative binomial runs (at least one): ``shape`` 1 is geometric, 0 logarithmic (Papernot & Steinke 2022)."""

    shape: float
    gamma: float

    def __post_init__(self) -> None:
        shape = checks.real("shape", self.shape)
        if not -1 < shape <= 1e6:
            raise checks.refuse("shape", shape, "a number > -1 and at most 1e6 (1 is geometric, 0 logarithmic)")
        gamma = checks.real("gamma", self.gamma)
        if not 1e-9 <= gamma < 1:
            raise checks.refuse("gamma", gamma, "a number from 1e-9 to below 1")
        _set(self, "shape", shape + 0.0)
        _set(self, "gamma", gamma)


Stopping: TypeAlias = PoissonRuns | NegativeBinomialRuns


# ------------------------------------------------------------------------------------------------ composites


@dataclass(frozen=True, slots=True)
class Subsample:
    """``event`` run on a random batch of the units; which units are in the batch stays secret."""

    event: Event
    sampler: Sampler
    _shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.sampler) not in get_args(Sampler):
            raise checks.refuse("sampler", self.sampler, "Poisson, TruncatedPoisson, FixedSize, WithReplacement or Shuffled")
        _adopt(self, (self.event,))

    def __hash__(self) -> int:
        return self._shape[2]


@dataclass(frozen=True, slots=True, repr=False)
class Repeat:
    """``event``, ``count`` times, each with fresh randomness; later runs may depend on the answers of earlier ones.

    With ``spread`` it is one release of many integers, each with the noise of ``event``, of which a unit moves ``count`` of its
    choice: units together may share them out in any way. For one unit that costs the same; for several it may cost more.
    """

    event: Event
    count: int
    spread: bool = field(default=False, metadata={"later": True})
    _shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set(self, "count", checks.count("count", self.count))
        if type(self.spread) is not bool:
            raise checks.refuse("spread", self.spread, "true or false")
        if self.spread and type(self.event) not in (DiscreteLaplace, DiscreteGaussian):
            raise checks.refuse("spread", self.spread, "false unless the event is DiscreteLaplace or DiscreteGaussian")
        _adopt(self, (self.event,))

    def __repr__(self) -> str:
        return f"Repeat(event={self.event!r}, count={self.count!r}{', spread=True' if self.spread else ''})"

    def __hash__(self) -> int:
        return self._shape[2]


@dataclass(frozen=True, slots=True)
class Sequence:
    """All of ``events`` on the same data, each with fresh randomness; later ones may depend on earlier answers."""

    events: tuple[Event, ...]
    _shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _members(self)

    def __hash__(self) -> int:
        return self._shape[2]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Each of ``events`` on its own part of the data, the parts disjoint by unit and the rule of division public."""

    events: tuple[Event, ...]
    _shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _members(self)

    def __hash__(self) -> int:
        return self._shape[2]


@dataclass(frozen=True, slots=True)
class SelectBest:
    """``event`` run a random number of times; only the best run, by a score its own output carries, is released."""

    event: Event
    runs: Stopping
    _shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.runs) not in get_args(Stopping):
            raise checks.refuse("runs", self.runs, "PoissonRuns or NegativeBinomialRuns")
        _adopt(self, (self.event,))

    def __hash__(self) -> int:
        return self._shape[2]


@dataclass(frozen=True, slots=True)
class ShuffledReports:
    """``reports`` users each send one report of the local ``event``; only their shuffled multiset is seen.

    ``event`` is what one report spends locally; ``reports`` is a public lower bound on how many honest users report.
    """

    event: Event
    reports: int
    _shape: tuple[int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set(self, "reports", checks.count("reports", self.reports))
        _adopt(self, (self.event,))

    def __hash__(self) -> int:
        return self._shape[2]


Leaf: TypeAlias = (
    Laplace
    | Gaussian
    | DiscreteLaplace
    | DiscreteGaussian
    | RandomizedResponse
    | PureDp
    | ApproxDp
    | Zcdp
    | ExponentialMechanism
    | TreeGaussian
    | MatrixGaussian
    | NonPrivate
)
Composite: TypeAlias = Subsample | Repeat | Sequence | Parallel | SelectBest | ShuffledReports
Event: TypeAlias = Leaf | Composite

_LEAVES: tuple[type, ...] = get_args(Leaf)
_COMPOSITES: tuple[type, ...] = (Subsample, Repeat, Sequence, Parallel, SelectBest, ShuffledReports)
_EVENTS = _LEAVES + _COMPOSITES


def is_event(value: object) -> TypeGuard[Event]:
    """Whether ``value`` is an event (exactly one of the union; subclasses are not)."""
    return type(value) in _EVENTS


def children(event: Event) -> tuple[Event, ...]:
    """The events directly inside."""
    if isinstance(event, Sequence | Parallel):
        return event.events
    if isinstance(event, _COMPOSITES):
        return (event.event,)  # type: ignore[union-attr]  # the two with .events are handled above
    return ()


def _members(event: Sequence | Parallel) -> None:
    given = checks.sequence("events", event.events, f"a list or tuple of 1 to {SIZE_MAX:_} events", limit=SIZE_MAX)
    _set(event, "events", tuple(given))
    _adopt(event, event.events)


def _adopt(event: Composite, inner: tuple[object, ...]) -> None:
    """Check the members and store (depth, size, hash) once, so that deep or repeated trees stay cheap.

    The hash is made of numbers only: it is pickled with the event and must mean the same in another process.
    """
    depth, size = 1, 1
    for member in inner:
        if not is_event(member):
            raise checks.refuse("event", member, f"an event ({', '.join(k.__name__ for k in _EVENTS)})")
        member_depth, member_size = getattr(member, "_shape", (1, 1))[:2]
        depth, size = max(depth, member_depth + 1), size + member_size
    if depth > DEPTH_MAX:
        raise InputError(f"This event is nested {depth} levels deep: expected at most {DEPTH_MAX}. Flatten it with Sequence or Repeat.")
    if size > SIZE_MAX:
        raise InputError(f"This event has {size:_} parts: expected at most {SIZE_MAX:_}. Use Repeat(event, count) for equal ones.")
    own = tuple(getattr(event, f.name) for f in fields(event) if f.compare)
    _set(event, "_shape", (depth, size, hash((_EVENTS.index(type(event)), own))))


def walk(event: Event) -> Iterator[Event]:
    """The event and everything inside it, outermost first.

    >>> [type(e).__name__ for e in walk(Repeat(Gaussian(1.0), 3))]
    ['Repeat', 'Gaussian']
    """
    waiting = [event]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(children(current)))


# ------------------------------------------------------------------------------------------------ JSON

_TABLE: dict[str, tuple[str, type[Any]]] = {k.__name__: ("event", k) for k in _EVENTS}
_TABLE |= {k.__name__: ("sampler", k) for k in get_args(Sampler)}
_TABLE |= {k.__name__: ("runs", k) for k in get_args(Stopping)}
_TAGS = ("event", "sampler", "runs")


def to_dict(event: Event) -> dict[str, object]:
    """A plain JSON value; ``from_dict`` gives the equal event back.

    >>> to_dict(Repeat(Gaussian(1.5), 10))
    {'event': 'Repeat', 'of': {'event': 'Gaussian', 'noise_multiplier': 1.5}, 'count': 10}
    """
    if not is_event(event):
        raise checks.refuse("event", event, "an event")
    return _encode(event)


def _encode(node: Any) -> dict[str, object]:  # noqa: ANN401 - any member of the fixed table
    kind = type(node).__name__
    made: dict[str, object] = {_TABLE[kind][0]: kind}
    for name, value in _public(node):
        if type(value).__name__ in _TABLE:
            made["of" if name == "event" else name] = _encode(value)
        elif isinstance(value, tuple):
            made["of" if name == "events" else name] = [_encode(v) if type(v).__name__ in _TABLE else v for v in value]
        else:
            made[name] = value
    return made


def _public(node: Any) -> list[tuple[str, object]]:  # noqa: ANN401 - any member of the fixed table
    """Name and value of each field; one that was added later is left out at its default, so that digests stay what they were."""
    found = [(f, getattr(node, f.name)) for f in fields(node) if f.compare]
    return [(f.name, value) for f, value in found if not ("later" in f.metadata and value == f.default)]


def from_dict(value: object) -> Event:
    """The event that a JSON value describes; decoded through a fixed table of names, never by importing anything.

    >>> from_dict({"event": "Gaussian", "noise_multiplier": 2})
    Gaussian(noise_multiplier=2.0)
    """
    made = _decode(value, "event", 0)
    if not is_event(made):
        raise DecodeError(f"{shown(value)} is not an event.")
    return made


def _decode(value: object, tag: str, depth: int) -> object:
    if depth > DEPTH_MAX:
        raise DecodeError(f"The event is nested too deeply: expected at most {DEPTH_MAX} levels.")
    if not isinstance(value, dict) or tag not in value:
        raise DecodeError(f"{shown(value)} is not an event: expected a map with the key '{tag}', such as {_EXAMPLES[tag]}.")
    name = value[tag]
    found = _TABLE.get(name) if isinstance(name, str) else None
    if found is None or found[0] != tag:
        raise UnknownNameError(tag, name, [k for k, (kind, _) in _TABLE.items() if kind == tag])
    kind = found[1]
    allowed = {("of" if f.name in ("event", "events") else f.name): f for f in fields(kind) if f.compare}
    unknown = [k for k in value if k != tag and k not in allowed]
    if unknown:
        raise UnknownNameError(f"field of {name}", unknown[0], allowed or ["(none)"])
    given = {allowed[k].name: _member(k, v, depth) for k, v in value.items() if k != tag}
    missing = [k for k, f in allowed.items() if f.name not in given and not _has_default(f)]
    if missing:
        raise DecodeError(f"{name} needs the field '{missing[0]}': expected {', '.join(allowed)}.")
    return kind(**given)


def _member(key: str, value: object, depth: int) -> object:
    if key in ("sampler", "runs"):
        return _decode(value, key, depth + 1)
    if key != "of":
        return tuple(value) if isinstance(value, list) else value
    if isinstance(value, list):
        return tuple(_decode(v, "event", depth + 1) for v in value)
    return _decode(value, "event", depth + 1)


def _has_default(member: Any) -> bool:  # noqa: ANN401 - dataclasses.Field is generic in its type
    return member.default is not MISSING or member.default_factory is not MISSING


_EXAMPLES = {
    "event": "{'event': 'Gaussian', 'noise_multiplier': 1.1}",
    "sampler": "{'sampler': 'Poisson', 'probability': 0.01}",
    "runs": "{'runs': 'PoissonRuns', 'mean': 10}",
}


def to_json(event: Event) -> str:
    """Canonical JSON text of an event."""
    return canonical_json(to_dict(event))


def from_json(text: str | bytes) -> Event:
    """The event that canonical (or any strict) JSON text describes.

    >>> from_json('{"event":"Laplace","noise_multiplier":2.0}')
    Laplace(noise_multiplier=2.0)
    """
    return from_dict(parse_json(text))


def event_digest(event: Event) -> str:
    """``sha256:…`` of the event's canonical JSON: equal events, equal digests."""
    return digest(to_dict(event))
