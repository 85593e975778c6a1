"""What people type, made into events: flags for the common case, JSON for every other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

import click

from dither.core import checks
from dither.core.encoding import TEXT_MAX, parse_json
from dither.core.errors import InputError
from dither.core.events import Event, FixedSize, Gaussian, Laplace, Poisson, Repeat, Sampler, Shuffled, Subsample, from_dict

Command = TypeVar("Command", bound=Callable[..., Any])
Maker: TypeAlias = Callable[[float], Event]

MECHANISMS: dict[str, type[Gaussian | Laplace]] = {"gaussian": Gaussian, "laplace": Laplace}
SAMPLINGS = ("poisson", "fixed-size", "shuffled")
HOLE = "?"
WHOLE = frozenset(
    {"count", "steps", "size", "batch", "population", "cap", "reports", "participations", "min_separation", "sensitivity", "values"}
)

_OPTIONS = (
    click.option("--event", "event", metavar="FILE|-|JSON", help="The event as JSON: a file, - for stdin, or the text itself."),
    click.option("--noise-multiplier", type=float, help="Noise std (Laplace: scale) over the sensitivity."),
    click.option("--mechanism", type=click.Choice(list(MECHANISMS)), help="The noise's law; gaussian unless said."),
    click.option("--sampling-probability", type=float, help="Chance of a unit to be in a step (Poisson sampling)."),
    click.option("--batch", type=int, help="Units in a step, with --population, in place of a probability."),
    click.option("--population", type=int, help="Units in all, a public number."),
    click.option("--sampling", type=click.Choice(SAMPLINGS), help="How batches are drawn; poisson unless said."),
    click.option("--steps", type=int, help="How many times; once unless said."),
    click.option("--epochs", type=float, help="Passes over the population, in place of --steps."),
)


def event_options(command: Command) -> Command:
    """Add the flags that describe an event."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFlags:
    """What was typed; None where nothing was."""

    event: str | None = None
    noise_multiplier: float | None = None
    mechanism: str | None = None
    sampling_probability: float | None = None
    batch: int | None = None
    population: int | None = None
    sampling: str | None = None
    steps: int | None = None
    epochs: float | None = None

    @classmethod
    def take(cls, given: dict[str, Any]) -> EventFlags:
        """Take the event's flags out of a command's arguments."""
        return cls(**{f.name: given.pop(f.name) for f in fields(cls)})

    @property
    def any(self) -> bool:
        """Whether an event is described at all (a population alone is not one)."""
        return any(getattr(self, f.name) is not None for f in fields(self) if f.name != "population")

    def priced_alone(self) -> EventFlags:
        """The same, for a command that asks about nothing but the event: a population must be part of it."""
        if self.population is not None and self.batch is None:
            _refuse("--population says nothing here without --batch: leave it out, or give both.")
        return self

    def to_event(self) -> Event:
        """The event, all of it given."""
        if self.event is not None:
            return from_dict(self._json())
        if self.noise_multiplier is None:
            _refuse("No event is given: use --noise-multiplier (with --steps, --sampling-probability …) or --event.")
        return self._make(self.noise_multiplier, self._sampler(), self._steps())

    def to_search(self) -> tuple[str, Maker, bool]:
        """What is left open: its name, the event as a function of it, and whether it is a whole number."""
        if self.event is not None:
            return self._hole()
        sampled = self.sampling_probability is not None or self.batch is not None
        if self.noise_multiplier is None:
            sampler, steps = self._sampler(), self._steps()
            return "noise_multiplier", lambda x: self._make(x, sampler, steps), False
        noise = self.noise_multiplier
        if self.steps is None and self.epochs is None:
            sampler = self._sampler()
            return "steps", lambda k: self._make(noise, sampler, int(k)), True
        if sampled or self.sampling not in (None, "poisson"):
            _refuse("Nothing is left to solve for: leave out --noise-multiplier, --steps or --sampling-probability.")
        if self.steps is None:
            _refuse("--epochs needs a batch size, which is what is left open: give --steps.")
        steps = self.steps
        return "sampling_probability", lambda p: self._make(noise, Poisson(p), steps), False

    def _make(self, noise_multiplier: float, sampler: Sampler | None, steps: int) -> Event:
        leaf = MECHANISMS[self.mechanism or "gaussian"](noise_multiplier)
        step: Event = leaf if sampler is None else Subsample(leaf, sampler)
        return Repeat(step, steps)

    def _sampler(self) -> Sampler | None:
        sampling = self.sampling or "poisson"
        if self.sampling_probability is not None:
            if self.batch is not None:
                _refuse("--sampling-probability and --batch say the same twice: give one of them.")
            if sampling != "poisson":
                _refuse(f"--sampling {sampling} needs --batch and --population, not a probability.")
            return Poisson(self.sampling_probability)
        if self.batch is None:
            if self.sampling is not None:
                _refuse(f"--sampling {sampling} needs --batch and --population.")
            return None
        population = self._population()
        batch = checks.count("batch", self.batch, high=population)
        if sampling == "poisson":
            return Poisson(batch / population)
        return FixedSize(batch, population) if sampling == "fixed-size" else Shuffled(batch, population)

    def _population(self) -> int:
        if self.population is None:
            _refuse("--batch needs --population, the number of units (a public figure).")
        return checks.count("population", self.population)

    def _steps(self) -> int:
        if self.epochs is None:
            return 1 if self.steps is None else checks.count("steps", self.steps)
        if self.steps is not None:
            _refuse("--steps and --epochs say the same twice: give one of them.")
        from dither.accounting.plan import Schedule  # noqa: PLC0415 - brings scipy, which --help must not wait for

        if self.batch is None:
            _refuse("--epochs needs --batch and --population.")
        return Schedule(population=self._population(), epochs=self.epochs, batch=self.batch).steps

    def _json(self) -> Any:  # noqa: ANN401 - JSON is whatever it is; from_dict checks it
        others = [
            f.name.replace("_", "-") for f in fields(self) if f.name not in ("event", "population") and getattr(self, f.name) is not None
        ]
        if others:
            _refuse(f"--event describes the whole event: leave out --{others[0]}.")
        return parse_json(read(self.event or ""))

    def _hole(self) -> tuple[str, Maker, bool]:
        template = self._json()
        holes = list(_holes(template, ()))
        if len(holes) != 1:
            example = f'{{"event":"Gaussian","noise_multiplier":"{HOLE}"}}'
            _refuse(f'--event has {len(holes)} open places: put one "{HOLE}" where the number to find belongs, such as {example}.')
        path = holes[0]
        name = next((str(key) for key in reversed(path) if isinstance(key, str)), "value")
        whole = name in WHOLE
        return name, lambda x: from_dict(_filled(template, path, int(x) if whole else x)), whole


def read(source: str) -> str | bytes:
    """The text of ``--event``: JSON as it stands, ``-`` for stdin, else a file."""
    if source.lstrip().startswith(("{", "[")):
        return source
    if source == "-":
        if sys.stdin is None:
            _refuse("--event - reads stdin, which is closed: give a file, or the JSON text itself.")
        return sys.stdin.buffer.read(TEXT_MAX + 1)
    try:
        with Path(source).open("rb") as file:
            return file.read(TEXT_MAX + 1)
    except (OSError, ValueError):
        _refuse(f"--event {source!r} cannot be read: expected a file, - for stdin, or JSON text that starts with {{.")


def _holes(node: object, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    if node == HOLE:
        return [path]
    if isinstance(node, dict):
        return [found for key, value in node.items() for found in _holes(value, (*path, key))]
    if isinstance(node, list):
        return [found for i, value in enumerate(node) for found in _holes(value, (*path, i))]
    return []


def _filled(node: Any, path: tuple[str | int, ...], value: float) -> Any:  # noqa: ANN401 - a JSON value, copied along one path
    if not path:
        return value
    key, rest = path[0], path[1:]
    copied = dict(node) if isinstance(node, dict) else list(node)
    copied[key] = _filled(node[key], rest, value)  # type: ignore[index]  # the path was read off this very value
    return copied


def _refuse(sentence: str) -> NoReturn:
    raise InputError(sentence)
