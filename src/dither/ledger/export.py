"""A book for others: its lines as they are, tables of its charges, and records for the public registry of deployments.

A file is written beside its place and put there when it is whole and on disk: what is there is never half an export.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from unicodedata import normalize

from dither.accounting._exact import float_above
from dither.accounting.loss import loss
from dither.core import events as ev
from dither.core.encoding import canonical_json, parse_json
from dither.core.errors import InputError, LedgerError, MissingExtraError, NotPriceableError, UnknownNameError, shown
from dither.core.units import Neighbors, Trust
from dither.ledger import entries, paths
from dither.ledger.agreed import Terms
from dither.ledger.blocks import moment
from dither.ledger.terms import Dataset, FilterSpec, Limit, Per, below

if TYPE_CHECKING:
    from dither.ledger.book import Ledger

FORMATS: Final = ("jsonl", "csv", "parquet", "registry")
_BATCH: Final = 20_000
_AFTER_AT: Final = len('{"at":"2026-11-19T06:00:00.000000Z",')


# ------------------------------------------------------------------------------------------------ export


def export(ledger: Ledger, path: Path | str, format: str = "jsonl") -> int:  # noqa: A002 - what the command calls it
    """Write the book to a file; how many entries, charges or records it holds.

    ``jsonl`` is the book itself, line by line, closed by a trailer: what ``dither ledger verify`` needs. ``csv`` and
    ``parquet`` have one row for each charge. ``registry`` is a list of records for the OpenDP deployments registry.

    >>> import tempfile
    >>> from dither.ledger.book import Ledger
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.open("sqlite://") as ledger:
    ...     export(ledger, Path(folder, "book.jsonl"))
    1
    """
    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    ways: dict[str, Callable[[Ledger, IO[bytes]], int]] = {"jsonl": _jsonl, "csv": _csv, "parquet": _parquet, "registry": _registry}
    write = ways[format]
    with _replacing(Path(path)) as file:
        return write(ledger, file)


def lines(ledger: Ledger) -> Iterator[str]:
    """The lines of the book as they stand now, its trailer last; entries that are written meanwhile are left out.

    >>> from dither.ledger.book import Ledger
    >>> len(list(lines(Ledger.open("sqlite://"))))
    2
    """
    trailer = ledger.trailer()
    facts = parse_json(trailer)
    if ledger.public_key is not None and facts["signature"] is None:
        raise LedgerError(f"The book {ledger.url} is open without its signing key, which closes an export: open it with key=….")
    yield from ledger.lines(0, facts["count"])
    yield trailer


def _jsonl(ledger: Ledger, file: IO[bytes]) -> int:
    count = -1  # the trailer is no entry
    for count, line in enumerate(lines(ledger)):  # noqa: B007 - the last number is the count
        file.write(line.encode("ascii") + b"\n")
    return count


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of the old one when all is written and on disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.draft")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise InputError(f"{shown(str(path))} cannot be written ({error.strerror}): expected a file in a folder that exists.") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------ rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeRow:
    """One charge, whatever became of it. ``epsilon`` at ``delta`` is what the event costs by itself; such ε's do not add up."""

    id: str
    state: str
    reserved_at: datetime
    settled_at: datetime | None = None
    account: str
    dataset: str
    key: str | None
    neighbors: str
    trust: str
    blocks: tuple[str, ...]
    purpose: str
    event_type: str
    event: str
    """Canonical JSON of what counts: the event reserved, or the smaller one that was committed."""
    epsilon: float
    delta: float
    limit: str
    """The limit nearest to the account, whose δ that is."""
    prices: str
    """Canonical JSON: what each limit holds for the charge, in its own currencies, as exact text."""
    plan_digest: str
    release: str | None = None
    recovered: bool = False
    reason: str | None = None
    by: str
    entry: int
    settled_entry: int | None = None


COLUMNS: Final = tuple(f.name for f in fields(ChargeRow))


def rows(book: Iterable[str]) -> Iterator[ChargeRow]:
    """One row for each charge, in the order of reservation, from the lines of a book (a trailer may be among them).

    >>> from dither.ledger.book import Ledger
    >>> list(rows(Ledger.open("sqlite://").lines()))
    []
    """
    held = _Rows()
    for line in book:
        if line.startswith('"count":', _AFTER_AT):  # the trailer: in an entry, who wrote it comes there
            continue
        held.take(entries.parse(line.rstrip("\n")))
        yield from held.done()
    yield from held.rest()


class _Rows:
    """Charges that wait for their last state; what is agreed, as far as rows tell of it."""

    def __init__(self) -> None:
        self._waiting: deque[dict[str, Any]] = deque()
        self._open: dict[str, dict[str, Any]] = {}
        self._trust: dict[str, str] = {}
        self._limits: dict[str, tuple[int, FilterSpec]] = {}
        self._readings: dict[tuple[str, str, float], float] = {}

    def take(self, body: Mapping[str, Any]) -> None:
        """One entry."""
        match body["kind"]:
            case "dataset":
                made = Dataset.from_dict(body["dataset"])
                self._trust[made.name] = made.trust.value
            case "limit":
                limit = Limit.from_dict(body["limit"])
                self._limits[limit.id] = len(limit.account), limit.filter
            case "move":
                for name, spec in body["filters"].items():
                    self._limits[name] = self._limits[name][0], FilterSpec.from_dict(spec)
            case "reserve":
                self._reserve(body)
            case "commit" | "void":
                self._settle(body)
            case _:
                pass

    def _reserve(self, body: Mapping[str, Any]) -> None:
        charge, unit = body["charge"], body["charge"]["unit"]
        row = {
            **{name: charge[name] for name in ("id", "purpose", "plan_digest")},
            "state": "reserved",
            "reserved_at": moment("at", body["at"]),
            "account": paths.text(tuple(charge["account"])),
            **{name: unit[name] for name in ("dataset", "key", "neighbors")},
            "trust": self._trust[unit["dataset"]],
            "blocks": tuple(charge["blocks"]),
            "event": canonical_json(charge["event"]),
            "prices": canonical_json(body["prices"]),
            "limit": max(body["prices"], key=lambda name: self._limits[name][0]),
            "by": body["by"],
            "entry": body["n"],
        }
        self._waiting.append(row)
        self._open[charge["id"]] = row

    def _settle(self, body: Mapping[str, Any]) -> None:
        row = self._open.pop(body["charge"])
        row |= {"settled_at": moment("at", body["at"]), "settled_entry": body["n"]}
        if body["kind"] == "void":
            row |= {"state": "voided", "reason": body["reason"]}
            return
        row |= {"state": "committed", "release": body["release"], "recovered": body["recovered"]}
        if body["event"] is not None:
            row |= {"event": canonical_json(body["event"]), "prices": canonical_json(body["prices"])}

    def done(self) -> Iterator[ChargeRow]:
        """Rows at the front that will not change any more."""
        while self._waiting and self._waiting[0]["state"] != "reserved":
            yield self._made(self._waiting.popleft())

    def rest(self) -> Iterator[ChargeRow]:
        """All others."""
        while self._waiting:
            yield self._made(self._waiting.popleft())

    def _made(self, row: Mapping[str, Any]) -> ChargeRow:
        delta = below(self._limits[row["limit"]][1].delta)
        key = (row["event"], row["neighbors"], delta)
        if key not in self._readings:
            if len(self._readings) >= _BATCH:
                self._readings.clear()
            self._readings[key] = _reading(ev.from_json(row["event"]), Neighbors(row["neighbors"]), delta)
        kind = json.loads(row["event"])["event"]
        return ChargeRow(**row, event_type=kind, epsilon=self._readings[key], delta=delta)


def _reading(event: ev.Event, neighbors: Neighbors, delta: float) -> float:
    """ε of the event by itself; ∞ where it has none at that δ."""
    try:
        return loss(event, neighbors=neighbors).epsilon_upper(delta)
    except NotPriceableError:
        return math.inf


# ------------------------------------------------------------------------------------------------ tables

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""A cell that begins so is a formula to a spreadsheet."""


def cell(value: object) -> str:
    """A value as a cell of a CSV file: text that a spreadsheet would run as a formula gets an apostrophe before it.

    >>> cell("=HYPERLINK(…)"), cell(("2026-01",)), cell(None), cell(-1.5), cell(math.inf)
    ("'=HYPERLINK(…)", '["2026-01"]', '', '-1.5', 'infinite')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "infinite"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    text = json.dumps(list(value), ensure_ascii=False) if isinstance(value, tuple) else str(value)
    return f"'{text}" if text.lstrip(" \u00a0\u3000").startswith(_FORMULA) or text.startswith("\t") else text


def _csv(ledger: Ledger, file: IO[bytes]) -> int:
    wrapped = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(wrapped, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    count = 0
    for row in rows(ledger.lines()):
        writer.writerow([cell(getattr(row, name)) for name in COLUMNS])
        count += 1
    wrapped.detach()
    return count


def _parquet(ledger: Ledger, file: IO[bytes]) -> int:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("Parquet export", "parquet") from None
    special: dict[str, Any] = {
        **dict.fromkeys(("reserved_at", "settled_at"), pa.timestamp("us", tz="UTC")),
        **dict.fromkeys(("epsilon", "delta"), pa.float64()),
        **dict.fromkeys(("entry", "settled_entry"), pa.int64()),
        "blocks": pa.list_(pa.string()),
        "recovered": pa.bool_(),
    }
    empty = {"settled_at", "key", "release", "reason", "settled_entry"}
    schema = pa.schema([pa.field(name, special.get(name, pa.string()), nullable=name in empty) for name in COLUMNS])
    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        for batch in _batches(rows(ledger.lines())):
            writer.write_table(pa.Table.from_pylist([asdict(row) for row in batch], schema=schema))
            count += len(batch)
    return count


def _batches(given: Iterable[ChargeRow]) -> Iterator[list[ChargeRow]]:
    batch: list[ChargeRow] = []
    for row in given:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


# ------------------------------------------------------------------------------------------------ the registry


def _registry(ledger: Ledger, file: IO[bytes]) -> int:
    made = records(ledger)
    file.write(json.dumps(made, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n")
    return len(made)


def records(ledger: Ledger) -> list[dict[str, object]]:
    """A record for each dataset that has a limit, in the schema of the OpenDP deployments registry (``registry.json``).

    What a book cannot know (the region, the field of work, what the data is) is said to be not stated: fill it in.

    >>> from dither.ledger.book import Ledger
    >>> records(Ledger.open("sqlite://"))
    []
    """
    terms, told = ledger.terms(), defaultdict[str, _Told](_Told)
    for row in rows(ledger.lines()):
        told[row.dataset].take(row)
    limited = {limit.dataset for limit in terms.limits.values()}
    return [_record(ledger, terms, terms.datasets[name], told[name]) for name in sorted(limited)]


class _Told:
    """What the charges of one dataset come to, in words."""

    def __init__(self) -> None:
        self.charges = 0
        self.kinds: Counter[str] = Counter()
        self.purposes: dict[str, None] = {}
        self.last: datetime | None = None
        self.training = 0

    def take(self, row: ChargeRow) -> None:
        """One charge; what was voided was never released."""
        if row.state == "voided":
            return
        self.charges += 1
        inside = [type(event).__name__ for event in ev.walk(ev.from_json(row.event)) if not ev.children(event)]
        self.kinds.update(set(inside))
        self.training += '"event":"Subsample"' in row.event
        if len(self.purposes) < _PURPOSES_MAX:
            self.purposes[row.purpose] = None
        self.last = row.settled_at or row.reserved_at


def _record(ledger: Ledger, terms: Terms, dataset: Dataset, told: _Told) -> dict[str, object]:
    held = [limit for limit in terms.limits.values() if limit.dataset == dataset.name]
    top = [limit for limit in held if not any(_above(other, limit) for other in held)]
    n, head, at = ledger.tail()
    day = (told.last or moment("at", at)).date().isoformat()
    curators = sorted({limit.account[0] for limit in held})
    return {
        "url_slug": _slug(f"{dataset.name}-{ledger.book[:8]}"),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": f"Releases from {dataset.name}",
                "data_curators": curators,
                "description": f"{told.charges} differentially private releases from dataset '{dataset.name}', charged to one budget book.",
                "intended_use": "; ".join(told.purposes) or _UNKNOWN,
                "data_product_type": "Machine learning model" if 2 * told.training > told.charges else "Summary statistics",
                "data_product_region": _UNKNOWN,
                "publication_date": day,
            },
            "dp_variant": _variant(dataset, top),
            "privacy_loss": _loss(ledger, dataset, held, top),
            "deployment_model": {
                "model_name": _MODELS[dataset.trust],
                "actors": f"Accounts: {', '.join(paths.text(a) for a in sorted({limit.account for limit in held}))}.",
                "release_type": "One release" if told.charges == 1 else "Many releases",
                "data_source_type": "Dynamic" if dataset.blocks is not None and dataset.blocks.every is not None else "Static",
                "data_source_type_details": _divided(dataset),
                "access_type": "Interactive",
                "access_type_details": "Every release is chosen after the answers of those before it; the filters hold for that.",
            },
            "accounting": {
                "composition": "; ".join(dict.fromkeys(_theorem(limit, dataset) for limit in top)),
                "post_processing": "Whatever is computed from releases alone costs nothing more.",
            },
            "implementation": {
                "mechanisms": ", ".join(f"{name} ({count})" for name, count in sorted(told.kinds.items())) or "None yet",
                "preprocessing_and_hyperparameter_tuning": "What read the data through this book is charged in it, tuning runs among it.",
                "justification": "Each charge names its purpose; limits were agreed before the first of them.",
            },
            "administrative": {
                "sources": f"Budget book {ledger.book}, entry {n}, hash {head}.",
                "notes": f"Made from the book by dither; public key {ledger.public_key or 'none (the book is not signed)'}.",
                "registry_authors": curators,
            },
        },
    }


_UNKNOWN: Final = "Not stated in the budget book"
_PURPOSES_MAX: Final = 50
_MODELS: Final = {Trust.CENTRAL: "Central", Trust.LOCAL: "Local", Trust.SHUFFLE: "Shuffle", Trust.DISTRIBUTED: "Federated"}
_VARIANTS: Final = {
    "pure": "Pure DP",
    "approx": "Approximate DP",
    "advanced": "Approximate DP",
    "zcdp": "Zero-concentrated DP",
    "rdp": "Renyi DP",
}


def _above(other: Limit, limit: Limit) -> bool:
    """Whether another limit holds all that this one does: of an account above, or of the same one over all blocks."""
    if other.account == limit.account:
        return other.per is Per.DATASET and limit.per is Per.BLOCK
    return other.account == limit.account[: len(other.account)]


def _variant(dataset: Dataset, top: Iterable[Limit]) -> dict[str, object]:
    kinds = {_VARIANTS[limit.filter.kind] for limit in top}
    return {
        "variant_name": kinds.pop() if len(kinds) == 1 else "Custom",
        "data_domain": f"Dataset '{dataset.name}'. {_divided(dataset)}",
        "unprotected_quantities": "What a charge says of itself: account, time, purpose, blocks and event, with the sizes that it states.",
    }


def _loss(ledger: Ledger, dataset: Dataset, held: Iterable[Limit], top: Iterable[Limit]) -> dict[str, object]:
    """What is promised to a unit: the limits that nothing stands above, together."""
    standings = ledger.standings(dataset=dataset.name)
    used = {limit.id: max((s.share for s in standings if s.limit.id == limit.id), default=0.0) for limit in held}
    epsilon = sum((limit.filter.epsilon for limit in top), Fraction(0))
    delta = min(sum((limit.filter.delta for limit in top), Fraction(0)), Fraction(1))
    told = [f"{limit.title}: {limit.filter}, {100 * used[limit.id]:.3g} % used" for limit in held]
    return {
        "privacy_unit": "one row" if dataset.unit.key is None else f"one {dataset.unit.key}",
        "privacy_unit_details": "; ".join(dict.fromkeys(dataset.hides(limit.per) for limit in top)),
        "privacy_parameters": {"epsilon": float_above(epsilon), "delta": float_above(delta)},
        "privacy_parameters_details": f"The sum of the limits that no other stands above. {'; '.join(told)}.",
    }


def _theorem(limit: Limit, dataset: Dataset) -> str:
    return limit.filter.open(dataset.unit.neighbors).theorem


def _divided(dataset: Dataset) -> str:
    if dataset.blocks is None:
        return "It is not divided into blocks."
    by = f"every {dataset.blocks.every}" if dataset.blocks.every is not None else f"{len(dataset.blocks.partitions)} partitions"
    return f"It is divided by {dataset.blocks.column}: {by}."


def _slug(text: str) -> str:
    plain = normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall(r"[a-z0-9]+", plain)) or "dataset"
