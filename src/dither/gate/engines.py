"""What an engine is, what it is told, and where engines are found.

An engine is a module (or any object) with three plain functions. ``plan`` sees public facts only and touches no file;
``open`` opens the source and reads no row; ``run`` reads rows, and whatever happens from then on is spent. None of them
ever meets the ledger.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, TypeAlias, get_args

from dither.core import checks
from dither.core.encoding import canonical_json, parse_json
from dither.core.errors import InputError, UnknownNameError, shown
from dither.core.plans import Plan, Release
from dither.core.rng import Rng
from dither.core.units import PrivacyUnit, Trust
from dither.ledger.paths import account as as_account
from dither.ledger.terms import Blocks, Dataset

GROUP = "dither.engines"
"""The entry-point group through which an installed package adds engines."""
PURPOSE_MAX = 800
ID_MAX = 195
"""A charge's is 200: five are kept for ``~2`` and so on, where a source did not open."""

Type: TypeAlias = Literal["text", "int", "float", "bool", "date", "timestamp"]
TYPES: tuple[str, ...] = get_args(Type)
Value: TypeAlias = str | int | float | bool


# ------------------------------------------------------------------------------------------------ public facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What is publicly known of a column: its type, the range to clamp to, the values it can hold."""

    name: str
    type: Type
    min: float | None = None
    max: float | None = None
    values: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        checks.text("column", self.name)
        if self.type not in TYPES:
            raise UnknownNameError("type of column", self.type, TYPES)
        low, high = (value if value is None else checks.real(label, value) for label, value in (("min", self.min), ("max", self.max)))
        if low is not None and high is not None and low > high:
            raise checks.refuse("min", self.min, f"a number not above max={self.max!r}")
        if not isinstance(self.values, tuple):
            raise checks.refuse("values", self.values, "a tuple of public values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is publicly known of a dataset; ``unit`` is None for a public one, which has nothing to hide."""

    name: str
    source: str
    folder: Path = field(default=Path(), compare=False)
    unit: PrivacyUnit | None = None
    trust: Trust = Trust.CENTRAL
    blocks: Blocks | None = None
    disjoint: bool | None = None
    through: str | None = None
    columns: tuple[Column, ...] = ()
    key: str | None = None
    beside: tuple[Facts, ...] = field(default=(), compare=False)
    """The public datasets of the same project, which a query may join."""

    @property
    def path(self) -> Path:
        """Where a source that is a file lies: relative to the project file."""
        return self.folder / self.source

    @property
    def terms(self) -> Dataset:
        """What the ledger is told of it."""
        if self.unit is None:
            raise InputError(f"The dataset {shown(self.name)} is public: it has no privacy unit, and the ledger has no account of it.")
        return Dataset(name=self.name, unit=self.unit, trust=self.trust, blocks=self.blocks, disjoint=self.disjoint)

    def column(self, name: str) -> Column:
        """The declared column of that name."""
        for column in self.columns:
            if column.name == name:
                return column
        known = [c.name for c in self.columns]
        raise UnknownNameError(f"column of {self.name}", name, known or ["(no columns are declared)"])

    @property
    def one_unit(self) -> str:
        """What is hidden, in two words.

        >>> Facts(name="events", source="e.csv", unit=PrivacyUnit(dataset="events", key="user_id")).one_unit
        'one user_id'
        """
        return "one row" if self.unit is None or self.unit.key is None else f"one {self.unit.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked: of which engine, from which dataset, on whose account, what for. YAML, HTTP, flags and Python make the same one.

    ``options`` are the engine's own fields, as canonical JSON; ``name`` is the job's, and decides nothing.

    >>> request = Request.of("measure", dataset="events", account="acme/ads", purpose="weekly", options={"statistic": "count"})
    >>> request.account, request.options
    (('acme', 'ads'), '{"statistic":"count"}')
    """

    engine: str
    dataset: str
    account: tuple[str, ...]
    purpose: str
    blocks: tuple[str, ...] = ()
    options: str = "{}"
    id: str | None = None
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        checks.text("engine", self.engine, limit=100)
        checks.text("dataset", self.dataset)
        object.__setattr__(self, "account", as_account(self.account))
        checks.text("purpose", self.purpose, limit=PURPOSE_MAX)
        blocks = checks.texts("blocks", self.blocks, "a list of block names", low=0, limit=100_000)
        if len(set(blocks)) != len(blocks):
            raise checks.refuse("blocks", self.blocks, "each block once")
        object.__setattr__(self, "blocks", blocks)
        fields = parse_json(self.options)
        if not isinstance(fields, dict):
            raise checks.refuse("options", self.options, "a JSON map")
        object.__setattr__(self, "options", canonical_json(fields))  # one request has one text, and so one digest
        if self.name != "":
            checks.text("name", self.name, limit=200)
        if self.id is not None:
            checks.text("id", self.id, limit=ID_MAX)

    @classmethod
    def of(cls, engine: str, *, account: object, options: Mapping[str, object] | None = None, **more: Any) -> Request:  # noqa: ANN401 - the other fields, checked above
        """A request from plain values: the account as text or a tuple, the engine's fields as a map."""
        given: object = options
        if not isinstance(given, Mapping | None):
            raise checks.refuse("options", given, "a map of the engine's own fields")
        return cls(engine=engine, account=as_account(account), options=canonical_json(dict(given or {})), **more)

    @property
    def fields(self) -> dict[str, Any]:
        """The engine's own fields."""
        found: dict[str, Any] = parse_json(self.options)
        return found


# ------------------------------------------------------------------------------------------------ engines


class Engine(Protocol):
    """Three functions; a module that has them is an engine.

    It may also have ``Fields``, a pydantic model of its own fields of a request: they are then checked when a project is loaded, with
    line and column. What ``run`` returns as the release's value is plain JSON (numbers, texts, lists, maps with texts as keys).
    """

    def plan(self, request: Any, dataset: Any) -> Plan:  # noqa: ANN401 - a Request, and the Facts; an engine may ask for less
        """What would run, from public facts only: no file is touched, nothing is drawn."""
        ...

    def open(self, dataset: Any) -> Any:  # noqa: ANN401 - the Facts; what ``run`` reads from
        """The source, opened; no row is read. An error here costs nothing, and its text is shown."""
        ...

    def run(self, plan: Any, data: Any, rng: Rng) -> Release[Any]:  # noqa: ANN401 - its own plan, its own source
        """The release. It closes the source; an error here is spent, and its text is not shown."""
        ...


_LOCK = threading.Lock()
_REGISTERED: dict[str, object] = {"measure": "dither.gate.measure", "sql": "dither.gate.ask"}
_FUNCTIONS = ("plan", "open", "run")


def register(name: str, module: object) -> None:
    """Add an engine under a name: a module, an object with the three functions, or the dotted name of a module to import later.

    >>> register("measure", "dither.gate.measure")  # the same again does nothing
    >>> register("measure", "elsewhere")
    Traceback (most recent call last):
    dither.core.errors.InputError: The engine 'measure' is there already: choose another name.
    """
    checks.text("name", name, limit=100)
    if not isinstance(module, str):
        _complete(name, module)
    elif not all(part.isidentifier() for part in module.split(".")):
        raise checks.refuse("module", module, "the dotted name of a module, such as 'acme.engine'")
    with _LOCK:
        known = _REGISTERED.get(name)
        same = known is module or (isinstance(known, str) and isinstance(module, str) and known == module)
        if known is not None and not same:
            raise InputError(f"The engine {shown(name)} is there already: choose another name.")
        _REGISTERED[name] = module


def engine_names() -> tuple[str, ...]:
    """All engines there are, loaded or not.

    >>> "measure" in engine_names()
    True
    """
    return tuple(sorted({*_REGISTERED, *_entry_points()}))


def engine(name: object) -> Engine:
    """The engine of that name, imported when first asked for.

    >>> engine("measure").__name__
    'dither.gate.measure'
    >>> engine("measures")
    Traceback (most recent call last):
    dither.core.errors.UnknownNameError: Unknown engine 'measures': expected one of measure, sql.
    """
    if not isinstance(name, str):
        raise UnknownNameError("engine", name, engine_names())
    found = _REGISTERED.get(name)
    if found is None:
        point = _entry_points().get(name)
        if point is None:
            raise UnknownNameError("engine", name, engine_names())
        found = _loaded(name, point)
    elif isinstance(found, str):
        found = _imported(name, found)
    return _complete(name, found)


def early(name: object) -> bool:
    """Whether an engine's fields are checked when a project is loaded: those registered here, not those of installed packages.

    >>> early("measure")
    True
    """
    return isinstance(name, str) and name in _REGISTERED


def nearest(name: object, known: Iterable[str]) -> str:
    """A question to put behind an unknown name: ``did you mean …?``, or nothing.

    >>> nearest("epsilom", ["delta", "epsilon"])
    "did you mean 'epsilon'?"
    """
    near = difflib.get_close_matches(str(name)[:100], list(known), 1, 0.6)
    return f"did you mean {near[0]!r}?" if near else ""


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def _loaded(name: str, point: importlib.metadata.EntryPoint) -> object:
    try:
        return point.load()
    except (ImportError, AttributeError):
        raise InputError(
            f"The engine {shown(name)} could not be loaded from {shown(point.value)}: reinstall the package it is from."
        ) from None


def _imported(name: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"The engine {shown(name)} could not be loaded: there is no module {shown(module)}, or it lacks a package."
        ) from None


def _complete(name: str, found: Any) -> Engine:  # noqa: ANN401 - whatever was registered
    missing = [f for f in _FUNCTIONS if not callable(getattr(found, f, None))]
    if missing:
        raise InputError(f"The engine {shown(name)} has no function {missing[0]}(): expected {', '.join(_FUNCTIONS)}.")
    made: Engine = found
    return made
