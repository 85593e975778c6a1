"""A release at the command line: what it says, how far it may be off, what it cost, what is left, and where it is written down."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dither
from dither.app import ledger_files as files
from dither.app import ledger_pages as pages
from dither.app import text
from dither.core.errors import MissingExtraError, NotPriceableError
from dither.core.events import to_dict
from dither.core.units import Guarantee

if TYPE_CHECKING:
    from pathlib import Path

    from dither.core.events import Event
    from dither.core.plans import Release
    from dither.gate import Request
    from dither.ledger.book import Ledger
    from dither.query.result import Answer

QUIET_SECONDS = 2.0
AGAIN_SECONDS = 10.0
ROWS_SHOWN = 40
SQL = "sql"


@contextmanager
def ticking(what: str) -> Iterator[None]:
    """Says that something runs, once it has taken two seconds, and every ten seconds from then on."""
    ended = threading.Event()

    def tell() -> None:
        waited, pause = 0.0, QUIET_SECONDS
        while not ended.wait(pause):
            waited += pause
            text.progress(f"{what} is running" + (f", {waited:.0f} s so far" if waited > QUIET_SECONDS else ""))
            pause = AGAIN_SECONDS

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


# ------------------------------------------------------------------------------------------------ what it cost


def cost(release: Release[Any]) -> Guarantee | None:
    """What this release alone costs: a table what was asked for, others at δ = 0 where they are pure, else at the δ of their limit."""
    receipt, asked = release.receipt, table(release)
    if receipt is None:
        return None
    if asked is not None and asked.price is not None:
        return Guarantee(*asked.price, release.unit, receipt.spent.trust)
    priced = dither.loss(release.event, neighbors=release.unit.neighbors)
    for delta in (0.0, receipt.spent.delta):
        epsilon = priced.epsilon_upper(delta)
        if math.isfinite(epsilon):
            return Guarantee(epsilon, delta, release.unit, receipt.spent.trust)
    return None


def fits(ledger: Ledger, request: Request, event: Event) -> bool:
    """Whether every limit that a charge would meet has room for it now."""
    from dither.ledger.gauge import added  # noqa: PLC0415 - brings the ledger, which --help must not wait for
    from dither.ledger.paths import lineage  # noqa: PLC0415

    terms, above = ledger.terms(), set(lineage(request.account))
    for limit in terms.limits.values():
        if limit.dataset != request.dataset or limit.account not in above:
            continue
        gauge = terms.gauge(limit)
        try:
            price = gauge.price(event)
        except NotPriceableError:
            return False
        met = [
            s.amounts for s in ledger.standings(limit.account, limit.dataset) if s.limit.id == limit.id and s.block in {"", *request.blocks}
        ]
        if not all(gauge.fits(added(amounts, price)) for amounts in (met or [gauge.zero])):
            return False
    return True


# ------------------------------------------------------------------------------------------------ as JSON


def told(release: Release[Any]) -> dict[str, object]:
    """A release as JSON."""
    receipt, accuracy, paid = release.receipt, release.accuracy, cost(release)
    kept = None
    if receipt is not None:
        kept = {
            "charge": receipt.charge_id,
            "state": receipt.state.value,
            "entry": receipt.entry,
            "hash": receipt.head,
            "at": receipt.at.isoformat(),
            "replayed": receipt.replayed,
            "spent": guarantee(receipt.spent),
            "remaining": guarantee(receipt.remaining),
        }
    return {
        "value": release.value,
        "accuracy": None if accuracy is None else {"half_width": accuracy.half_width, "confidence": accuracy.confidence},
        "cost": None if paid is None else guarantee(paid),
        "unit": str(release.unit),
        "event": to_dict(release.event),
        "cut_short": type(release).__name__ == "ShortRelease",
        "plan_digest": release.plan_digest,
        "receipt": kept,
    }


def guarantee(held: Guarantee) -> dict[str, object]:
    """(ε, δ) with unit and trust, as JSON; an ε that is infinite is null."""
    epsilon = held.epsilon if math.isfinite(held.epsilon) else None
    return {"epsilon": epsilon, "delta": held.delta, "unit": str(held.unit), "trust": held.trust.value}


# ------------------------------------------------------------------------------------------------ as a page


def page(release: Release[Any], ledger: Ledger | None, request: Request, how: pages.Look) -> list[str]:
    """The value, and what is to know of it; without a ledger nothing is told of what is left."""
    receipt, paid = release.receipt, cost(release)
    answered = table(release)
    known, lines = value(release.value, how) if answered is None else (_below(answered, release), grid(answered, how))
    if release.accuracy is not None:
        known.append(("noise", f"each number is within {release.accuracy}"))
    if type(release).__name__ == "ShortRelease":
        known.append(("steps", str(release)))
    known.append(("cost", pages.guarantee(paid) if paid is not None else f"no ε of its own, hiding {release.unit}"))
    if receipt is not None and ledger is not None:
        again = "; nothing was spent: this is the release stored under that id" if receipt.replayed else ""
        known += [("left", left(ledger, request)), ("receipt", f"{receipt.charge_id}, entry {receipt.entry:,}{again}")]
    return [*lines, *pages.facts(known, how)]


def left(ledger: Ledger, request: Request) -> str:
    """What the tightest of the limits has room for, in words."""
    from dither.ledger import views  # noqa: PLC0415 - brings the ledger, which --help must not wait for

    limit, least = views.least_left(ledger, request.account, request.dataset, request.blocks)
    return f"{pages.room_left(least)} (limit {limit.id} of {'/'.join(limit.account)})"


def table(release: Release[Any]) -> Answer | None:
    """The table that a release of SQL is; None for any other."""
    held = release.value
    if not (isinstance(held, Mapping) and {"columns", "confidence", "lost"} <= set(held)):
        return None
    from dither.query.result import Answer as Found  # noqa: PLC0415 - as above

    return Found.from_plain(held)


def grid(answered: Answer, how: pages.Look) -> list[str]:
    """The table's rows, set in by two so that a heading stays a heading."""
    bare = replace(answered, lost=(), price=None, notes=())
    lines = bare.text(width=how.width - 2, limit=ROWS_SHOWN).splitlines()
    noisy = any(c.half_widths is not None for c in answered.columns)
    told = [*(lines[:-1] if noisy else lines), *([] if len(answered) else ["(no group is shown)"])]
    return [*(how.say(f"  {line}").rstrip() for line in told), ""]


def _below(answered: Answer, release: Release[Any]) -> list[tuple[str, str]]:
    """What is to know of a table's numbers."""
    one = "one row" if release.unit.key is None else f"one {release.unit.key}"
    known = []
    if any(c.half_widths is not None for c in answered.columns):
        known.append(("±", f"holds with {100 * answered.confidence:g} % confidence, for the noise"))
    once = {"COUNT(DISTINCT unit)"} if all(c.half_widths is not None for c in answered.columns) else set()
    shares = [lost.share for lost in answered.lost if lost.aggregate not in once]  # in one group, a unit counts once whatever it has
    if any(share is None for share in shares):
        known.append(("lost", f"not known: what {one} has above the bound that was given is scaled down to it"))
    elif max((share for share in shares if share is not None), default=0.0) > 0:
        most = max(share for share in shares if share is not None)
        amount = "less than 0.1 %" if most < 0.001 else f"about {100 * most:.2g} %"
        known.append(("lost", f"{amount} of what is counted, by bounding what {one} contributes"))
    return [*known, *(("note", note) for note in answered.notes)]


def value(held: object, how: pages.Look) -> tuple[list[tuple[str, str]], list[str]]:
    """A value: what is one thing as facts, lists of equal maps as tables."""
    if not isinstance(held, Mapping):
        return [("value", _plainly(held))], []
    known: list[tuple[str, str]] = []
    lines: list[str] = []
    for key in sorted(held, key=lambda name: (name != "statistic", str(name))):
        part = held[key]
        if not (isinstance(part, list) and part and all(isinstance(row, Mapping) for row in part)):
            known.append((str(key).replace("_", " "), _plainly(part)))
            continue
        names = sorted({str(name) for row in part for name in row}, key=lambda name: (name == "estimate", name))
        numbers = [i for i, each in enumerate(names) if all(isinstance(row.get(each), int | float) for row in part)]
        body = [[_plainly(row.get(each)) for each in names] for row in part[:ROWS_SHOWN]]
        lines += [*pages.grid(body, names, how, right=numbers), ""]
        if len(part) > ROWS_SHOWN:
            lines[-1:] = [f"  {how.more} {len(part) - ROWS_SHOWN:,} more; --json has all", ""]
    return known, lines


def _plainly(held: object) -> str:
    if isinstance(held, bool) or held is None or isinstance(held, str):
        return str(held)
    if isinstance(held, int):
        return f"{held:,}"
    if isinstance(held, float):
        return f"{held:,.6g}"
    if isinstance(held, Sequence) and not any(isinstance(part, Sequence | Mapping) and not isinstance(part, str) for part in held):
        return ", ".join(_plainly(part) for part in held[:ROWS_SHOWN]) + (", …" if len(held) > ROWS_SHOWN else "")
    return json.dumps(held, ensure_ascii=False)[:2_000]


# ------------------------------------------------------------------------------------------------ as files


def to_csv(answered: Answer, path: Path) -> None:
    """One row a line, half widths beside the numbers. Text that a spreadsheet would run as a formula gets an apostrophe before it."""
    from dither.ledger.export import cell  # noqa: PLC0415 - brings the ledger, which --help must not wait for

    names, columns = _wide(answered)
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow([cell(name) for name in names])
    writer.writerows([cell(each) for each in row] for row in zip(*columns, strict=True))
    with files.whole(path) as half:
        half.write_text(held.getvalue(), encoding="utf-8", newline="")


def to_parquet(answered: Answer, path: Path) -> None:
    """The same for programs, each column of its own type."""
    try:
        writer = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError("A Parquet file", "parquet") from None
    with files.whole(path) as half:
        writer.write_table(answered.to_arrow(), str(half))


def _wide(answered: Answer) -> tuple[list[str], list[Sequence[object]]]:
    names: list[str] = []
    columns: list[Sequence[object]] = []
    for column in answered.columns:
        names.append(column.name)
        columns.append(column.values)
        if column.half_widths is not None:
            names.append(f"{column.name} ±")
            columns.append(column.half_widths)
    return names, columns
