"""The shape of ``dither.yaml``: which keys there are and what may stand under them, for the reader and for editors."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from dither.core.errors import InputError, shown
from dither.gate import engines
from dither.gate.engines import Type
from dither.gate.wording import Strict

DEFAULT_URL = "sqlite:///dither.db"


def single(value: object) -> object:
    """What stands alone where a list is expected is a list of one; nothing is an empty list."""
    return [] if value is None else value if isinstance(value, list) else [value]


def named(value: object) -> object:
    """A list of jobs as a map: by their own names, or by their places."""
    if not isinstance(value, list):
        return value
    made: dict[str, object] = {}
    for i, job in enumerate(value, 1):
        given = job.get("name") if isinstance(job, dict) else None
        name = given if isinstance(given, str) else f"job-{i}"
        if name in made:
            raise InputError(f"Two jobs are called {shown(name)}: name each job once.")
        made[name] = job
    return made


def _channel(value: object) -> object:
    return {"log": True} if value == "log" else value


def as_text(value: object) -> object:
    """A whole number that stands for a name, such as the block 2026."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _ledger(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


_Name: TypeAlias = Annotated[str, BeforeValidator(as_text)]
_Share: TypeAlias = Annotated[Any, WithJsonSchema({"type": ["number", "string"], "examples": [0.6, "60 %", "3/5"]})]
_Value: TypeAlias = Annotated[Any, WithJsonSchema({"type": ["string", "number", "boolean"]})]


class LedgerFields(Strict):
    """Where the budget book is, and what seals it."""

    url: str = Field(DEFAULT_URL, description="sqlite:///file.db beside this file, sqlite:////absolute.db or postgresql+psycopg://…")
    key: str | None = Field(None, description="The Ed25519 key that signs receipts; beside an SQLite file there is one anyway.")
    anchor: str | None = Field(None, description="A file elsewhere that the book's head is written to, against a book put back.")


class ChannelFields(Strict):
    """Whom alerts and refusals are told: one of log, file, webhook and command."""

    log: Literal[True] | None = None
    file: str | None = Field(None, description="JSON lines are appended to it.")
    webhook: str | None = Field(None, description="An address that JSON is POSTed to.")
    headers: dict[str, str] | None = Field(None, description="HTTP headers of the webhook.")
    command: list[str] | None = Field(None, description="A program and its arguments; JSON comes on its stdin, no shell is used.")


class UnitFields(Strict):
    """What is hidden: ``{row: true}``, or all rows of one value of ``key``."""

    row: Literal[True] | None = None
    key: str | None = None
    through: str | None = Field(None, description="table.column: the key is found over a foreign key.")


class BlocksFields(Strict):
    """How a dataset is divided, each block with a budget of its own."""

    column: str
    every: Literal["hour", "day", "week", "month", "quarter", "year"] | None = None
    partitions: list[_Name] | None = Field(None, description="Public names of the parts; more may be added at the end later.")
    start: _Name | None = Field(None, description="The first block there is.")
    disjoint: bool | None = Field(
        None, description="For keys: true where no unit has rows in two blocks. Only then are blocks free of each other."
    )


class ColumnFields(Strict):
    """What is publicly known of a column."""

    type: Type
    min: float | None = Field(None, description="Values are clamped to it. Choose it from public knowledge, never from the data.")
    max: float | None = None
    values: list[_Value] | None = Field(None, description="All values there can be; every one appears in answers.")


class DatasetFields(Strict):
    """A source and what is publicly known of it."""

    source: str = Field(description="A file or folder beside this file, duckdb:///file.db#table, postgresql://…#table.")
    public: bool = Field(False, description="Nothing in it needs hiding; no budget is kept.")
    unit: UnitFields | None = None
    neighbors: Literal["add_remove", "replace"] | None = None
    trust: Literal["central", "local", "shuffle", "distributed"] | None = None
    blocks: BlocksFields | None = None
    columns: dict[str, ColumnFields] = Field(default_factory=dict)
    key: str | None = Field(None, description="The column that a public dataset is joined on.")


class LimitFields(Strict):
    """How much an account may spend on a dataset."""

    dataset: str | None = Field(None, description="May be left out where there is one protected dataset.")
    epsilon: float | None = None
    delta: float = 0
    filter: Literal["pure", "approx", "advanced", "zcdp", "rdp"] | None = Field(
        None, description="pure without a delta, rdp with one, unless said."
    )
    side_delta: float | None = None
    orders: list[float] | None = None
    per: Literal["dataset", "block"] = "dataset"
    starts: str | None = Field(None, description="A date (from its first moment, UTC) or a time with its zone.")
    ends: str | None = Field(None, description="The first moment at which nothing may be spent any more.")
    alert_at: list[float] | None = Field(None, description="Shares at which to tell; 0.5, 0.8 and 0.95 unless said.")
    split: dict[str, _Share] | None = Field(None, description="Accounts below this one and their shares of it, such as {training: 60 %}.")


class SpanFields(Strict):
    """All blocks from the first to the last."""

    first: _Name
    last: _Name


_Blocks: TypeAlias = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["string", "integer"]},
                {"type": "array", "items": {"type": ["string", "integer"]}},
                {"type": "object", "required": ["first", "last"]},
            ]
        }
    ),
]


class JobFields(Strict):
    """What to ask, and for what."""

    name: str | None = Field(None, description="In a list of jobs; in a map the key is the name.")
    engine: str = "measure"
    dataset: str | None = Field(None, description="May be left out where there is one protected dataset.")
    account: str
    purpose: str = Field(description="What the answer is for; it is written into the book.")
    blocks: _Blocks = Field(None, description="A block, a list of blocks, or {first: …, last: …}.")
    options: dict[str, Any] = Field(default_factory=dict, description="The engine's own fields.")
    id: _Name | None = Field(None, description="With an id the job is paid for and run once; asked again, the stored release is shown.")


class ProjectFields(Strict):
    """A dither project."""

    ledger: Annotated[LedgerFields, BeforeValidator(_ledger, json_schema_input_type=str | LedgerFields)] = Field(
        default_factory=lambda: LedgerFields.model_validate({})
    )
    alerts: Annotated[
        list[Annotated[ChannelFields, BeforeValidator(_channel, json_schema_input_type=Literal["log"] | ChannelFields)]],
        BeforeValidator(single, json_schema_input_type=list[Literal["log"] | ChannelFields] | Literal["log"] | ChannelFields),
    ] = Field(default_factory=list)
    datasets: dict[str, DatasetFields]
    accounts: dict[
        str, Annotated[list[LimitFields], BeforeValidator(single, json_schema_input_type=list[LimitFields] | LimitFields | None)]
    ] = Field(default_factory=dict)
    jobs: Annotated[dict[str, JobFields], BeforeValidator(named, json_schema_input_type=dict[str, JobFields] | list[JobFields])] = Field(
        default_factory=dict
    )


def schema() -> dict[str, Any]:
    """The JSON schema of ``dither.yaml``, for editors.

    >>> sorted(schema()["properties"])
    ['accounts', 'alerts', 'datasets', 'jobs', 'ledger']
    """
    made = ProjectFields.model_json_schema()
    choices = []
    for name in engines.engine_names():
        fields = getattr(engines.engine(name), "Fields", None) if engines.early(name) else None
        if fields is not None:
            options = {"if": {"properties": {"engine": {"const": name}}}, "then": {"properties": {"options": fields.model_json_schema()}}}
            choices.append(options)
    made["$defs"]["JobFields"]["allOf"] = choices
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dither.yaml", **made}
