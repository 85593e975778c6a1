"""``dither ledger …``: the budget book at the command line.

The book is found by ``--ledger URL``, by the environment variable DITHER_LEDGER, by the ``dither.yaml`` of this folder, or is
the ``dither.db`` of this folder. Nothing of the ledger is imported until a command runs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from datetime import time as clock_time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from dither.app import ledger_pages as pages
from dither.app import text
from dither.app.groups import Command, Map, Number, json_option
from dither.core.errors import InputError, TamperError, UnknownNameError

if TYPE_CHECKING:
    from dither.ledger.book import Ledger
    from dither.ledger.overview import Overview
    from dither.ledger.terms import Dataset, Limit
    from dither.ledger.verify import Report
    from dither.ledger.views import Part, Row, Survey

    Spent: TypeAlias = Sequence[tuple[Limit, Dataset, Sequence[Part]]]

VARIABLE: Final = "DITHER_LEDGER"
PROJECT: Final = Path("dither.yaml")
QUIET_SECONDS: Final = 2.0
RECENT: Final = 50_000
"""So many of the newest entries are read for a forecast and the last refusals; a plot reads all."""

EXAMPLES = {
    "ledger": """\b
Examples:
  dither ledger open sqlite:///dither.db
  dither ledger show
  dither ledger history --account acme/ads --limit 50
  dither ledger export book.jsonl && dither ledger verify book.jsonl \\
         --public-key dither.db.pub
""",
    "grant": """\b
Examples:
  dither ledger grant acme/ads events --epsilon 4 --delta 1e-6
  dither ledger grant acme/ads events --epsilon 1 --per block
""",
    "split": """\b
Examples:
  dither ledger split acme events training=60% evaluation=20% queries=20%
""",
}


# ------------------------------------------------------------------------------------------------ finding and opening the book


_BOOK = (
    click.option("--ledger", "url", metavar="URL", help="The book: sqlite:///dither.db or postgresql+psycopg://…"),
    click.option("--key", type=click.Path(path_type=Path), metavar="FILE", help="The key that signs, if not the one beside the book."),
    click.option("--anchor", type=click.Path(path_type=Path), metavar="FILE", help="The anchor file, kept away from the book."),
)


def _book_options(command: Command) -> Command:
    for option in reversed(_BOOK):
        command = option(command)
    return json_option(command)


_WHO = click.option("--by", metavar="NAME", help="Who does this, for the book; your login name unless said.")


@contextmanager
def _book(given: dict[str, Any], *, create: bool = False, readonly: bool = False) -> Iterator[Ledger]:
    """The ledger that was named, or the one of this folder; to look at it no key is needed, and nothing is written."""
    found = _found(given["url"])
    more: dict[str, Any] = {name: given[name] or found.get(name) for name in ("key", "anchor")}
    from dither.ledger.book import Ledger  # noqa: PLC0415 - brings SQLAlchemy, which --help must not wait for

    more |= {"channels": found.get("channels", ()), "actor": given.get("by")}
    with Ledger.open(found["url"], create=create, readonly=readonly, **more) as ledger:
        yield ledger


def _found(url: str | None) -> dict[str, Any]:
    if url is not None:
        return {"url": url}
    if os.environ.get(VARIABLE):
        return {"url": os.environ[VARIABLE]}
    if PROJECT.exists():
        from dither.gate import file  # noqa: PLC0415 - brings pydantic

        declared = file.load(PROJECT)
        return {"url": declared.url, "key": declared.key, "anchor": declared.anchor, "channels": declared.channels}
    if Path("dither.db").exists():
        return {"url": "sqlite:///dither.db"}
    raise InputError(f"No ledger is named: give --ledger URL, set {VARIABLE}, or make a dither.yaml here with  dither init.")


class _Progress:
    """Says how far a longer reading is, once it has taken two seconds, and every two seconds from then on."""

    def __init__(self, what: str) -> None:
        self.what, self.next = what, time.monotonic() + QUIET_SECONDS

    def __call__(self, done: int, total: int | None = None) -> None:
        if time.monotonic() >= self.next:
            text.progress(f"{self.what}: {done:,}{f' of {total:,}' if total else ''}")
            self.next = time.monotonic() + QUIET_SECONDS


def _show(lines: Sequence[str]) -> None:
    text.show("\n".join(lines))


NUMBER = Number()


class _Moment(click.ParamType):  # type: ignore[type-arg]  # as above
    """A date (from its first moment, UTC), or a time with its zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own types
        if not isinstance(value, str):
            return value
        try:
            if re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
                return datetime.combine(date.fromisoformat(value), clock_time(), UTC)
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is not None and found.tzinfo is not None:
            return found
        return self.fail(f"{value[:60]!r} is not a time such as 2026-11-19 or 2026-11-19T06:00:00+05:30.", param, ctx)


MOMENT = _Moment()


# ------------------------------------------------------------------------------------------------ the group


@click.group(cls=Map, epilog=EXAMPLES["ledger"], short_help="The budget book: limits, charges, receipts, proof.")
def ledger() -> None:
    """The budget book: who may spend how much, who spent what, and the proof of it.

    It is found by --ledger URL, by the variable DITHER_LEDGER, by the dither.yaml of this folder, or is its dither.db.
    """


@ledger.command("open", short_help="Make a book, or open one that is there.")
@click.argument("url")
@click.option("--key", type=click.Path(path_type=Path), metavar="FILE", help="Where the signing key is, or is to be made.")
@click.option("--anchor", type=click.Path(path_type=Path), metavar="FILE", help="A file away from the book that its head is written to.")
@_WHO
@json_option
def open_(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Make a book, or open one that is there: sqlite:///dither.db or postgresql+psycopg://user@host/database."""
    with _book(given, create=True) as book:
        n, head, at = book.tail()
        told = {"ledger": book.url, "book": book.book, "public_key": book.public_key, "entries": n + 1, "head": head, "at": at}
        if given["as_json"]:
            text.show_json(told)
            return
        known = [("book", book.book), ("entries", f"{n + 1:,}, last {at}"), ("head", head)]
        key = book.public_key or "none: nothing is signed. Give --key FILE, so that what is exported can be proved."
        _show([f"{book.url} is open", "", *pages.facts([*known, ("public key", key)], pages.look())])


# ------------------------------------------------------------------------------------------------ limits


@ledger.command(epilog=EXAMPLES["grant"], short_help="Give an account a limit on a dataset.")
@click.argument("account")
@click.argument("dataset")
@click.option("--epsilon", type=NUMBER, required=True, help="The ε that may be spent.")
@click.option("--delta", type=NUMBER, default=0.0, show_default=True, help="The δ of it.")
@click.option("--filter", "kind", metavar="KIND", help="pure, approx, advanced, zcdp or rdp; pure without a δ, rdp with one, unless said.")
@click.option("--side-delta", type=NUMBER, help="The part of δ kept for events that have a δ of their own.")
@click.option("--order", "orders", type=float, multiple=True, help="A Rényi order of an rdp limit; may be given several times.")
@click.option("--per", type=click.Choice(["dataset", "block"]), default="dataset", show_default=True, help="Against what it is held.")
@click.option("--starts", type=MOMENT, metavar="TIME", help="Nothing may be spent before.")
@click.option("--ends", type=MOMENT, metavar="TIME", help="Nothing may be spent from then on.")
@click.option("--alert-at", type=NUMBER, multiple=True, help="A share at which to tell; 0.5, 0.8 and 0.95 unless said.")
@click.option("--new", is_flag=True, help="Open the account if there is none of this name.")
@_WHO
@_book_options
def grant(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Give an account a limit on a dataset. A limit never refills, and is not widened later: new blocks bring new budget."""
    terms = {name: given[name] for name in ("epsilon", "delta", "kind", "side_delta", "per", "starts", "ends")}
    terms |= {"orders": given["orders"] or None} | ({"alert_at": given["alert_at"]} if given["alert_at"] else {})
    with _book(given) as book:
        if not given["new"]:
            _known(book, given["account"])
        _told_limits([book.grant(given["account"], given["dataset"], **terms)], book, as_json=given["as_json"])


def _known(book: Ledger, account: str) -> None:
    """A name that was mistyped must not become an account with a budget of its own."""
    from dither.ledger import paths  # noqa: PLC0415

    try:
        book.terms().account(paths.account(account))
    except UnknownNameError as error:
        raise InputError(f"{str(error).rstrip('.')}; or add --new to open it.") from None


@ledger.command(epilog=EXAMPLES["split"], short_help="Divide a limit among the accounts below.")
@click.argument("account")
@click.argument("dataset")
@click.argument("shares", nargs=-1, required=True, metavar="NAME=SHARE…")
@_WHO
@_book_options
def split(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Divide an account's limit on a dataset among accounts below it, which are opened; the shares come to 1 at most."""
    shares = dict(_share(each) for each in given["shares"])
    if len(shares) != len(given["shares"]):
        raise InputError("One account is named twice: expected NAME=SHARE once for each.")
    with _book(given) as book:
        _told_limits(book.split(given["account"], given["dataset"], shares), book, as_json=given["as_json"])


def _share(typed: str) -> tuple[str, Fraction]:
    name, _, share = typed.rpartition("=")
    found = re.fullmatch(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)( ?%)?|([0-9]{1,20}/[1-9][0-9]{0,19})", share)
    if not name or found is None:
        raise InputError(f"{typed[:80]!r} is no share: expected NAME=SHARE such as training=60%, training=0.6 or training=3/5.")
    return name, Fraction(found[3]) if found[3] else Fraction(found[1]) / (100 if found[2] else 1)


@ledger.command(short_help="Move unspent budget between siblings.")
@click.argument("source")
@click.argument("target")
@click.argument("dataset")
@click.option("--epsilon", type=NUMBER, required=True, help="How much ε to move.")
@click.option("--delta", type=NUMBER, default=0.0, show_default=True, help="How much δ to move.")
@_WHO
@_book_options
def move(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Move unspent budget on a dataset from one account to a sibling of it."""
    with _book(given) as book:
        moved = book.move(given["source"], given["target"], given["dataset"], epsilon=given["epsilon"], delta=given["delta"])
        _told_limits(moved, book, as_json=given["as_json"])


def _told_limits(limits: Sequence[Limit], book: Ledger, *, as_json: bool) -> None:
    notes = book.notes()
    if as_json:
        text.show_json({"limits": [_limit_told(limit, book) for limit in limits], "notes": list(notes)})
        return
    how, datasets = pages.look(), book.terms().datasets
    lines: list[str] = []
    for limit in limits:
        held = datasets[limit.dataset]
        known = [
            (
                "limit",
                f"{limit.id}: ε = {float(limit.filter.epsilon):.6g} at δ = {float(limit.filter.delta):.6g}, filter {limit.filter.kind}",
            ),
            ("hides", f"{held.hides(limit.per)}; {held.trust} trust"),
            ("when", f"{_day(limit.starts, 'from the beginning')} to {_day(limit.ends, 'no end')}"),
            ("tells at", ", ".join(f"{100 * float(share):g} %" for share in limit.alert_at) or "no share"),
        ]
        lines += [how.say(f"{'/'.join(limit.account)} on {limit.dataset}"), *pages.facts(known, how), ""]
    for note in notes:
        lines += [*pages.wrapped(how.say(note), how.width, first="  ! ", rest="  ! "), ""]
    _show(lines[:-1])


def _limit_told(limit: Limit, book: Ledger) -> dict[str, object]:
    held = book.terms().datasets[limit.dataset]
    numbers = {"epsilon": float(limit.filter.epsilon), "delta": float(limit.filter.delta)}
    return limit.to_dict() | numbers | {"hides": held.hides(limit.per), "trust": held.trust.value}


def _day(at: datetime | None, otherwise: str) -> str:
    return otherwise if at is None else f"{at:%Y-%m-%d %H:%M} UTC"


# ------------------------------------------------------------------------------------------------ show, history


@ledger.command(short_help="The tree of accounts: spent, reserved, free, how long it lasts.")
@click.option("--account", help="Only this account and what is below it.")
@click.option("--dataset", help="Only this dataset.")
@click.option("--within", type=click.IntRange(1, 10**9), metavar="N", help="Tell how many counts within ±N are left; chosen unless said.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot how each limit was used up (.png, .svg or .pdf).")
@_book_options
def show(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """The tree of accounts with what is spent, reserved and free, what that still allows, and when it will be used up."""
    path = _target(given["plot"])
    with _book(given, readonly=True) as book:
        from dither.ledger import overview, views  # noqa: PLC0415
        from dither.ledger.terms import moment  # noqa: PLC0415

        now = max(datetime.now(UTC), moment("at", book.tail()[2]))
        made = views.survey(book, last=None if path is not None else RECENT, tell=_Progress("reading the book"))
        wanted = {name: given[name] for name in ("account", "dataset", "within")}
        found = overview.overview(book, made, now=now, **wanted)
    if given["as_json"]:
        text.show_json(found.to_dict())
    else:
        _show(pages.overview_page(found, pages.look()))
    if path is not None:
        _plot_burn_down(path, found, made, now)


def _target(path: Path | None) -> Path | None:
    if path is None:
        return None
    from dither.app import plots  # noqa: PLC0415

    return plots.target(path)


def _plot_burn_down(path: Path, found: Overview, made: Survey, now: datetime) -> None:
    from dither.app import ledger_plots  # noqa: PLC0415
    from dither.ledger import views  # noqa: PLC0415

    lines = []
    for sheet in found.sheets:
        for node in sheet.nodes:
            for held in node.limits:
                neighbors = sheet.dataset.unit.neighbors
                for line in held.lines:
                    block = line.standing.block
                    name = f"{'/'.join(node.account)}{f' [{block}]' if block else ''}"
                    points = views.shares(made, line.standing, neighbors)
                    since, words = made.since.get(held.limit.id, now), f"{held.limit.filter}"
                    lines.append(ledger_plots.Line(name=name, words=words, points=points, starts=since, forecast=line.forecast))
    hides = "; ".join(f"{sheet.dataset.unit}, {sheet.dataset.trust} trust" for sheet in found.sheets) or "nothing yet"
    mine = {sheet.dataset.name for sheet in found.sheets}
    refused = [at for at, _, dataset in made.refused if dataset in mine or not dataset]
    ledger_plots.burn_down(path, lines, now=now, refusals=refused, hides=hides)
    text.progress(f"plot written to {path}")


@ledger.command(short_help="What happened, and who spent what on which purpose.")
@click.option("--account", help="Only this account and what is below it.")
@click.option("--dataset", help="Only this dataset.")
@click.option("--purpose", help="Only this purpose.")
@click.option("--limit", type=click.IntRange(1, 10**9), metavar="N", help="The last N things; 20 unless said, all in files and JSON.")
@click.option("--csv", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write them as CSV too.")
@click.option("--parquet", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write them as Parquet too.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot who spent what on which purpose (.png, .svg or .pdf).")
@_book_options
def history(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """What happened, oldest first, and below it who spent what on which purpose."""
    from dither.app import ledger_files  # noqa: PLC0415

    path = _target(given["plot"])
    files = [given[name] for name in ("csv", "parquet") if given[name] is not None]
    for file in files:
        ledger_files.place(file)
    asked = given["limit"] or (None if given["as_json"] or files else 20)
    with _book(given, readonly=True) as book:
        from dither.ledger import views  # noqa: PLC0415

        wanted = {name: given[name] for name in ("account", "dataset", "purpose")}
        rows = views.history(book, **wanted, limit=asked, tell=_Progress("reading the book"))
        made = views.survey(book, tell=_Progress("adding up"))
        spent = views.spending(book, made, **wanted)
    if given["as_json"]:
        text.show_json({"rows": [row.to_dict() for row in rows], "spent": [p.to_dict() for _, _, parts in spent for p in parts]})
    else:
        _show(_history_page(rows[-(given["limit"] or 20) :], spent))
    if given["csv"] is not None:
        ledger_files.csv(rows, given["csv"])
    if given["parquet"] is not None:
        ledger_files.parquet(rows, given["parquet"])
    for file in files:
        text.progress(f"{len(rows):,} rows written to {file}")
    if path is not None:
        _plot_who(path, spent)


def _history_page(rows: Sequence[Row], spent: Spent) -> list[str]:
    how = pages.look()
    lines = pages.history_page(rows, how)
    for limit, dataset, parts in spent:
        under = f"{limit.id} of {'/'.join(limit.account)}"
        title = f"Who spent what on {dataset.name}, under {under} (by {parts[0].currency}; hides {dataset.hides(limit.per)})"
        lines += ["", *pages.who_page(parts, title, how)]
    return lines


def _plot_who(path: Path, spent: Spent) -> None:
    from dither.app import ledger_plots  # noqa: PLC0415

    if not spent:
        raise InputError("Nothing is spent there yet, so there is nothing to plot: leave out --plot.")
    if len(spent) > 1:
        named = ", ".join(sorted({dataset.name for _, dataset, _ in spent}))
        raise InputError(f"There are several limits to plot, on {named}: name one with --dataset or --account.")
    limit, dataset, parts = spent[0]
    bars = [ledger_plots.Bar(account=p.account, purpose=p.purpose, part=p.part, charges=p.charges) for p in parts]
    words = f"by {parts[0].currency} under {limit.id}: {limit.filter}"
    ledger_plots.who_spent(path, bars, words=words, hides=f"{dataset.hides(limit.per)}; {dataset.trust} trust")
    text.progress(f"plot written to {path}")


# ------------------------------------------------------------------------------------------------ datasets, prices, receipts


@ledger.command(short_help="What is protected: units, blocks, trust.")
@_book_options
def datasets(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """What is protected: each dataset's unit, who sees its rows, and how it is divided."""
    with _book(given, readonly=True) as book:
        known = [held for _, held in sorted(book.terms().datasets.items())]
    if given["as_json"]:
        text.show_json({"datasets": [held.to_dict() | {"hides": str(held.unit)} for held in known]})
        return
    how = pages.look()
    lines: list[str] = []
    for held in known:
        told = [("hides", str(held.unit)), ("trust", held.trust.value)]
        if held.blocks is not None:
            by = f"every {held.blocks.every}" if held.blocks.every is not None else f"{len(held.blocks.partitions):,} partitions"
            lies = "no unit lies in two blocks" if held.disjoint else "a unit may lie in several blocks"
            told.append(("blocks", f"{by} of {held.blocks.column}; {lies}"))
        lines += [*pages.wrapped(how.say(held.name), how.width), *pages.facts(told, how), ""]
    _show(lines[:-1] or ["No dataset yet: declare one in dither.yaml, then  dither ledger show."])


@ledger.command(short_help="What an account's charges come to, by every way of adding up.")
@click.argument("account")
@click.option("--dataset", required=True, help="The dataset.")
@click.option("--block", help="The block of a divided dataset; the fullest unless said.")
@click.option("--delta", type=float, help="The δ of the comparison; the limit's unless said.")
@_book_options
def prices(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """What an account's charges come to, by every way of adding up, side by side."""
    with _book(given, readonly=True) as book:
        from dither.core import checks  # noqa: PLC0415
        from dither.ledger import prices as sums  # noqa: PLC0415

        delta = None if given["delta"] is None else checks.delta(given["delta"])
        told = {"block": given["block"], "delta": delta, "tell": _Progress("reading the book")}
        made = sums.prices(book, given["account"], given["dataset"], **told)
    if given["as_json"]:
        text.show_json(made.to_dict())
    else:
        _show(pages.prices_page(made, pages.look()))


@ledger.command(short_help="The signed receipt of one charge.")
@click.argument("charge")
@_book_options
def receipt(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """The signed receipt of one charge; --json writes the receipt itself, to be kept or handed on."""
    with _book(given, readonly=not given["as_json"]) as book:  # to sign, the key is needed
        found = book.receipt(given["charge"])
        signed = book.public_key is not None
        if given["as_json"]:
            if not signed:
                raise InputError("This book has no key, so its receipts are not signed: keep an export of it instead.")
            click.echo(book.sealed(given["charge"]))
            return
    how = pages.look()
    proof = "--json writes it signed, and  dither ledger verify --receipt  checks it" if signed else "none: the book has no key"
    _show(
        [
            *pages.wrapped(how.say(f"Receipt of {found.charge_id}"), how.width),
            "",
            *pages.facts([*pages.receipt_facts(found), ("proof", proof)], how),
        ]
    )


# ------------------------------------------------------------------------------------------------ alerts, export, verify


@ledger.command(short_help="Thresholds passed and refusals; tell who was not told.")
@click.option("--deliver", is_flag=True, help="Tell every channel of dither.yaml what it was not told yet.")
@click.option("--limit", type=click.IntRange(1, 10**9), metavar="N", default=20, show_default=True, help="The last N.")
@_book_options
def alerts(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Thresholds that were passed and charges that were refused, oldest first."""
    with _book(given, readonly=not given["deliver"]) as book:
        from dither.ledger import views  # noqa: PLC0415

        told = book.deliver_pending() if given["deliver"] else None
        rows = views.history(book, kinds=("alert", "refusal"), limit=given["limit"], tell=_Progress("reading the book"))
    if given["as_json"]:
        text.show_json({"rows": [row.to_dict() for row in rows], "delivered": told})
        return
    lines = pages.history_page(rows, pages.look()) if rows else ["No threshold was passed, and nothing was refused."]
    if told is not None:
        lines += ["", f"{told:,} message{'' if told == 1 else 's'} told."]
    _show(lines)


@ledger.command(short_help="Write the book to a file.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    "kind",
    type=click.Choice(["jsonl", "csv", "parquet", "registry"]),
    help="jsonl is what  verify  reads; by the file's ending unless said.",
)
@_book_options
def export(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Write the book to a file: jsonl to verify and keep, csv and parquet to work with, registry for the public registry of deployments."""
    from dither.app import ledger_files  # noqa: PLC0415

    path = ledger_files.place(given["file"])
    kind = given["kind"] or {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet", ".json": "registry", ".yaml": "registry"}.get(
        path.suffix.lower()
    )
    if kind is None:
        raise InputError(f"The format of {path.name} is not clear: give --format jsonl, csv, parquet or registry.")
    with _book(given, readonly=kind != "jsonl") as book:  # what closes the lines is signed
        from dither.ledger.export import export as write  # noqa: PLC0415

        count = write(book, path, kind)
    if given["as_json"]:
        text.show_json({"file": str(path), "format": kind, "count": count})
    else:
        one, many = {"jsonl": ("entry", "entries"), "registry": ("record", "records")}.get(kind, ("charge", "charges"))
        click.echo(f"{path}: {kind}, {count:,} {one if count == 1 else many}")


@ledger.command(short_help="Prove an exported book whole, from the file alone.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--public-key", metavar="FILE|HEX", help="The book's public key, had from elsewhere than the file.")
@click.option("--anchors", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="The anchor file kept away from the book.")
@click.option(
    "--receipt", "receipts", type=click.Path(path_type=Path, dir_okay=False), multiple=True, metavar="FILE", help="A receipt to find in it."
)
@click.option("--second-opinion", is_flag=True, help="Price everything once more with dp-accounting, if it is installed.")
@_book_options
def verify(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Prove an exported book whole, from the file alone: every line, every seal, every price and every sum. Status 1 if it is not.

    Without FILE the book itself is held against its own lines: its rows, its triggers, every price and every sum.
    """
    from dither.ledger import seal  # noqa: PLC0415
    from dither.ledger.verify import verify_file  # noqa: PLC0415

    if given["file"] is None:
        if given["public_key"] or given["anchors"] or given["receipts"] or given["second_opinion"]:
            raise InputError("Keys, anchors and receipts prove an exported file: name the FILE that  dither ledger export  wrote.")
        with _book(given, readonly=True) as book:
            _reported(book.audit(), book.url, as_json=given["as_json"])
        return
    key = given["public_key"]
    if key is not None and not re.fullmatch(r"[0-9a-f]{64}", key):
        key = seal.read_public_key(Path(key))
    path = _readable(given["file"])
    slips = [_readable(slip).read_bytes() for slip in given["receipts"]]
    ticking = _Progress("verifying")
    more = {"anchors": given["anchors"], "receipts": slips, "second_opinion": given["second_opinion"]}
    _reported(verify_file(path, public_key=key, progress=ticking, **more), str(path), as_json=given["as_json"])


def _reported(report: Report, what: str, *, as_json: bool) -> None:
    if as_json:
        text.show_json(report.to_dict())
    else:
        how = pages.look()
        _show(
            [
                line
                for told in str(report).splitlines()
                for line in pages.wrapped(how.say(told), how.width, first=_indent(told), rest="    ")
            ]
        )
    if not report.ok:
        raise TamperError(
            f"{what} is not what was written: {report.found:,} finding{'' if report.found == 1 else 's'}, told above. Trust none of it."
        )


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _readable(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}: name one that  dither ledger export  wrote.")
    return path
