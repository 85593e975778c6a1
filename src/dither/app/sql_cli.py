"""``dither sql``: one SELECT at the command line, over a dataset of a project or over a file, each number with its interval.

The query comes as text, as ``@query.sql`` or, with ``-``, from stdin. Whatever is wrong with it, or with what else was typed, is told
before anything is charged.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dither.app import ledger_files as files
from dither.app import ledger_pages as pages
from dither.app import plots, releases, text
from dither.app.groups import Command, json_option
from dither.core import checks
from dither.core.errors import InputError, MissingExtraError, RunError
from dither.core.units import Guarantee, Neighbors, Trust

if TYPE_CHECKING:
    from types import FrameType

    from dither.gate import Project, Request
    from dither.gate.ask import SqlPlan, SqlRelease
    from dither.ledger.book import Ledger
    from dither.query.answer import QueryPlan
    from dither.query.result import Answer

QUERY_MAX: Final = 1_000_000
STOPPED: Final = 130
_BOUNDS: Final = ("rows_per_unit", "groups_per_unit", "rows_per_group")
EXAMPLES = """\b
Examples:
  dither sql "SELECT city, COUNT(*) AS n FROM visits GROUP BY city" \\
         --account clinic/reports --purpose "weekly report" --epsilon 0.5
  dither sql @stay.sql --epsilon 1 --explain
  dither sql "SELECT AVG(CLAMP(amount, 0, 100)) AS mean FROM events" \\
         --data events=events.parquet --unit user_id --epsilon 1
"""
_PROJECT = (
    click.option(
        "--project",
        type=click.Path(path_type=Path, dir_okay=False),
        default=Path("dither.yaml"),
        metavar="FILE",
        help="The project file; dither.yaml unless said.",
    ),
    click.option("--account", metavar="A", help="Whose budget pays, such as acme/ads."),
    click.option("--purpose", metavar="P", help="What for; it is written into the book."),
    click.option("--block", "blocks", multiple=True, metavar="B", help="A block to read; may be given several times."),
    click.option("--id", "id_", metavar="ID", help="Under one id a question is paid once; asked again, the same answer comes."),
    click.option("--by", metavar="NAME", help="Who does this, for the book; your login name unless said."),
)
_PRICE = (
    click.option("--epsilon", type=float, metavar="E", help="What the whole answer may cost; or say it in the query's OPTIONS."),
    click.option("--delta", type=float, metavar="D", help="Above 0 where keys of groups are private, or for Gaussian noise."),
    click.option("--rows-per-unit", type=int, metavar="N", help="At most so many rows of each unit count; without it a look is paid for."),
    click.option("--groups-per-unit", type=int, metavar="N", help="At most so many groups of each unit count."),
    click.option("--rows-per-group", type=int, metavar="N", help="At most so many rows of each unit count in one group."),
)
_DATA = (
    click.option("--data", multiple=True, metavar="NAME=FILE", help="No project: a private table from a file (Parquet, CSV, DuckDB)."),
    click.option("--unit", metavar="COLUMN", help="With --data: the column that says whose a row is."),
    click.option("--unit-row", is_flag=True, help="With --data: each row is of another person."),
    click.option("--public", multiple=True, metavar="NAME.KEY=FILE", help="With --data: a public table, and its unique column."),
    click.option(
        "--column",
        "columns",
        multiple=True,
        metavar="NAME:TYPE[:…]",
        help="With --data: what is publicly known, as age:int:0:120 or city:text:Delhi,Pune.",
    ),
    click.option(
        "--neighbors", type=click.Choice([n.value for n in Neighbors]), help="With --data: what may differ; add_remove unless said."
    ),
)
_OUTPUT = (
    click.option("--explain", is_flag=True, help="What would be measured, at which price and error; nothing is read or charged."),
    click.option("--csv", "to_csv", type=click.Path(path_type=Path), metavar="FILE", help="Write the table, half widths beside numbers."),
    click.option("--parquet", "to_parquet", type=click.Path(path_type=Path), metavar="FILE", help="The same as Parquet."),
    click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Bars with their intervals (.png, .svg or .pdf)."),
    click.option("--plot-column", metavar="NAME", help="Which number to plot; the first unless said."),
)


def _options(command: Command) -> Command:
    for option in reversed((*_PROJECT, *_PRICE, *_DATA, *_OUTPUT)):
        command = option(command)
    return json_option(command)


@click.command(epilog=EXAMPLES, short_help="Ask one SELECT; every number comes with its interval.")
@click.argument("query")
@_options
@click.pass_context
def sql(context: click.Context, /, query: str, **given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Ask one SELECT: of a dataset of the project, or with --data of a file.

    QUERY is SQL, @FILE, or - for stdin. Public facts alone decide what is refused, and nothing refused is charged.
    """
    asked = _query(query)
    _check_outputs(given)
    _check_price(given)
    with _room(asked, given) as room:
        plan = room.plan()
        drawn = None if given["plot"] is None else _plotted(plan.inner, given["plot_column"])
        if given["explain"]:
            _explain(room, plan, given)
            return
        release = _answer(context, room, plan)
        shown = release.table
        if given["as_json"]:
            text.show_json({"sql": asked, "account": list(room.request.account), "kept": room.kept, **releases.told(release)})
        else:
            how = pages.look()
            lines = releases.page(release, room.ledger if room.kept else None, room.request, how)
            text.show("\n".join([*lines, *_not_kept(room, how)]))
        _write(shown, given)
        if given["plot"] is not None and drawn is not None:
            path = plots.answer(given["plot"], shown, drawn, hides=f"{release.unit}; {room.trust} trust")
            text.progress(f"plot written to {path}")


# ------------------------------------------------------------------------------------------------ what was typed


def _query(given: str) -> str:
    """The SQL: as typed, from a file, or from stdin."""
    if given == "-":
        return _decoded(sys.stdin.buffer.read(QUERY_MAX + 1), "stdin")
    if given.startswith("@"):
        try:
            with Path(given[1:]).open("rb") as file:
                return _decoded(file.read(QUERY_MAX + 1), given[1:])
        except OSError as error:
            raise InputError(
                f"The query {given[:80]!r} could not be read: {error.strerror or 'no more is known'}. Name a file of SQL."
            ) from None
    if not given.strip():
        raise InputError("The query is empty: expected SQL, @FILE, or - for stdin.")
    if given.endswith(".sql") and not re.search(r"\s", given):
        raise InputError(f"{given[:80]!r} is the name of a file: write @{given[:80]} to read the query from it.")
    return given


def _decoded(read: bytes, where: str) -> str:
    if len(read) > QUERY_MAX:
        raise InputError(f"The query in {where[:80]} is too long: expected at most {QUERY_MAX:,} bytes.")
    try:
        found = read.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"The query in {where[:80]} is not UTF-8 text: save it as UTF-8.") from None
    if not found.strip():
        raise InputError(f"The query in {where[:80]} is empty: expected SQL.")
    return found


def _check_outputs(given: dict[str, Any]) -> None:
    """Where results go must be possible before anything is paid."""
    wanted = [given[name] for name in ("to_csv", "to_parquet") if given[name] is not None]
    for path in wanted:
        files.place(path)
    if given["plot"] is not None:
        plots.target(given["plot"])
    elif given["plot_column"] is not None:
        raise InputError("--plot-column needs --plot FILE.")
    if given["explain"] and (wanted or given["plot"] is not None):
        raise InputError("--explain has no table to write: leave --csv, --parquet and --plot out.")
    if given["to_parquet"] is not None and not _installed("pyarrow"):
        raise MissingExtraError("A Parquet file", "parquet")
    if given["plot"] is not None and not _installed("matplotlib"):
        raise MissingExtraError("A plot", "plot")


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # taken out of reach on purpose
        return False


def _check_price(given: dict[str, Any]) -> None:
    """Numbers are told by the names that they were typed under."""
    if given["epsilon"] is not None:
        checks.epsilon(given["epsilon"], "--epsilon", zero=False)
    if given["delta"] is not None:
        checks.delta(given["delta"], "--delta")
    for name in _BOUNDS:
        if given[name] is not None:
            checks.count(f"--{name.replace('_', '-')}", given[name])


def _named(option: str, given: Sequence[str]) -> dict[str, object]:
    """``NAME=FILE``, several times."""
    made: dict[str, object] = {}
    for each in given:
        name, equals, where = each.partition("=")
        if not equals or not name or not where:
            raise InputError(f"{option} {each[:80]!r} is not allowed: expected NAME=FILE, such as events=events.parquet.")
        if name in made:
            raise InputError(f"{option} names {name[:80]!r} twice: expected each table once.")
        made[name] = where
    return made


def _columns(given: Sequence[str]) -> dict[str, object]:
    """``age:int:0:120`` and ``city:text:Delhi,Pune``."""
    made: dict[str, object] = {}
    for each in given:
        name, *rest = each.split(":")
        lone = len(rest) == 2 and rest[0] in ("int", "float") and "," not in rest[1]  # a range that lacks an end, more likely
        if not name or not rest or len(rest) > 3 or name in made or lone:
            raise InputError(
                f"--column {each[:80]!r} is not allowed: expected NAME:TYPE, NAME:TYPE:MIN:MAX or NAME:TYPE:VALUE,VALUE, once for each."
            )
        fact: dict[str, object] = {"type": rest[0]}
        if len(rest) == 2:
            fact["values"] = [_typed(name, rest[0], part.strip()) for part in rest[1].split(",")]
        elif len(rest) == 3:
            fact |= {end: _number(name, part) for end, part in zip(("min", "max"), rest[1:], strict=True) if part}
        made[name] = fact
    return made


def _typed(name: str, kind: str, part: str) -> object:
    if kind in ("int", "float"):
        found = _number(name, part)
        return int(found) if kind == "int" and found.is_integer() else found
    if kind == "bool" and part.lower() in ("true", "false"):
        return part.lower() == "true"
    return part


def _number(name: str, part: str) -> float:
    try:
        found = float(part)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"--column {name[:80]!r} has {part[:80]!r} for a number: expected such as 0 or 99.5.")
    return found


# ------------------------------------------------------------------------------------------------ where it is asked


@dataclass(frozen=True)
class _Room:
    """A question where it can be asked: in a project with its book, or on its own with none that is kept."""

    request: Request
    project: Project | None = None
    alone: Any = None

    @property
    def kept(self) -> bool:
        """Whether the charge is written into a book that stays."""
        return self.project is not None

    @property
    def ledger(self) -> Ledger | None:
        """The book of the project."""
        return None if self.project is None else self.project.ledger

    @property
    def trust(self) -> Trust:
        """Who sees the rows."""
        return Trust.CENTRAL if self.project is None else self.project.facts(self.request.dataset).trust

    def plan(self) -> SqlPlan:
        """What would run."""
        made: Any = self.alone.plan() if self.project is None else self.project.plan(self.request)
        found: SqlPlan = made
        return found

    def run(self) -> SqlRelease:
        """The answer, paid for."""
        from dither.gate.ask import SqlRelease as Table  # noqa: PLC0415 - an extra

        found: SqlRelease = self.alone.run() if self.project is None else Table.of(self.project.run(self.request))
        return found


@contextmanager
def _room(asked: str, given: dict[str, Any]) -> Iterator[_Room]:
    if not (_installed("duckdb") and _installed("sqlglot")):
        raise MissingExtraError("SQL", "sql")
    _check_place(given)
    bounds = {name: given[name] for name in _BOUNDS if given[name] is not None}
    price = {"epsilon": given["epsilon"], "delta": given["delta"]}
    if given["data"]:
        from dither.gate import quick  # noqa: PLC0415 - brings the gate and its engine, which --help must not wait for

        alone = quick.question(
            asked,
            data=_named("--data", given["data"]),
            unit=given["unit"],
            neighbors=given["neighbors"] or Neighbors.ADD_REMOVE.value,
            bounds=bounds,
            epsilon=given["epsilon"],
            delta=given["delta"],
            public=_named("--public", given["public"]),
            columns=_columns(given["columns"]),
        )
        yield _Room(alone.request, alone=alone)
        return
    from dither.gate import Project as Loaded  # noqa: PLC0415 - as above
    from dither.gate.ask import dataset_of  # noqa: PLC0415

    with Loaded.load(given["project"], actor=given["by"]) as project:
        dataset = dataset_of(asked, project.datasets.values())
        account = given["account"] or "/".join(_payer(project, dataset))
        purpose = given["purpose"] or "a look at the price"
        more = {"id": given["id_"], "blocks": tuple(given["blocks"])}
        request = project.request(
            "sql", dataset=dataset, account=account, purpose=purpose, sql=asked, **price, **bounds, **{k: v for k, v in more.items() if v}
        )
        yield _Room(request, project=project)


def _check_place(given: dict[str, Any]) -> None:
    """A project or data of its own, not half of each."""
    if not given["data"]:
        for name, flag in (
            ("unit", "--unit"),
            ("unit_row", "--unit-row"),
            ("public", "--public"),
            ("columns", "--column"),
            ("neighbors", "--neighbors"),
        ):
            if given[name]:
                raise InputError(f"{flag} needs --data NAME=FILE: in a project the file says it.")
        if not given["project"].exists():
            raise InputError(
                f"There is no {str(given['project'])[:200]}: name a project with --project, make one with  dither init , "
                "or ask about a file with --data NAME=FILE --unit COLUMN."
            )
        for name, meant in (("account", "whose budget pays"), ("purpose", "what it is for, as the book will say")):
            if not given[name] and not given["explain"]:
                raise InputError(f"--{name} is needed: it says {meant}. With --explain nothing is charged and none is needed.")
        return
    for name, flag in (("account", "--account"), ("purpose", "--purpose"), ("blocks", "--block"), ("id_", "--id"), ("by", "--by")):
        if given[name]:
            raise InputError(f"{flag} needs a project, which keeps a book: leave it or --data out.")
    if (given["unit"] is None) == (not given["unit_row"]):
        raise InputError(
            "--data needs one of --unit COLUMN, which says whose a row is, and --unit-row, where each row is of another person."
        )


def _payer(project: Project, dataset: str) -> tuple[str, ...]:
    """An account with a limit on the dataset, for a question that is only explained."""
    limits = [limit for limit in project.ledger.terms().limits.values() if limit.dataset == dataset]
    if not limits:
        raise InputError(f"No account has a limit on dataset {dataset[:80]!r}: grant one in the project file.")
    return limits[0].account


# ------------------------------------------------------------------------------------------------ asking


@dataclass
class _Pressed:
    """Whether Ctrl-C was pressed: a database that is stopped tells it in words of its own."""

    yes: bool = False


@contextmanager
def _noticing() -> Iterator[_Pressed]:
    pressed = _Pressed()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def heard(number: int, frame: FrameType | None) -> None:
        pressed.yes = True
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _answer(context: click.Context, room: _Room, plan: SqlPlan) -> SqlRelease:
    """The release; stopped by Ctrl-C, a word on what became of the charge."""
    first = None if room.ledger is None else room.ledger.tail()[0] + 1
    with _noticing() as pressed:
        try:
            with releases.ticking("the query"):
                return room.run()
        except (KeyboardInterrupt, RunError) as error:
            if not pressed.yes and isinstance(error, RunError):
                raise
    context.exit(text.complain(_stopped(room, first, plan), code="stopped", status=STOPPED, as_json=bool(context.params.get("as_json"))))
    raise AssertionError  # exit() has left


def _stopped(room: _Room, first: int | None, plan: SqlPlan) -> str:
    """What became of the charge, in words."""
    if room.ledger is None or first is None:
        return "Stopped: no book is kept, so count it as spent."
    charge = _charged(room.ledger, first, plan.digest)
    if charge is None:
        return "Stopped before anything was charged."
    state = room.ledger.state(charge)
    if state is not None and state.value == "voided":
        return f"Stopped: charge {charge} was given back, for no row was read."
    return f"Stopped: charge {charge} stays spent, for rows may have been read. There is no release."


def _charged(ledger: Ledger, first: int, digest: str) -> str | None:
    """The charge of this plan among the newest entries."""
    for line in ledger.lines(first):
        body = json.loads(line)
        if body.get("kind") == "reserve" and body["charge"]["plan_digest"] == digest:
            return str(body["charge"]["id"])
    return None


def _not_kept(room: _Room, how: pages.Look) -> list[str]:
    if room.kept:
        return []
    said = "No book is kept: what you ask next costs as much again, and nobody adds it up. A project does: dither init."
    return ["", *pages.wrapped(how.say(said), how.width, first="  ! ", rest="  ! ")]


def _write(shown: Answer, given: dict[str, Any]) -> None:
    for name, write in (("to_csv", releases.to_csv), ("to_parquet", releases.to_parquet)):
        path = given[name]
        if path is not None:
            write(shown, path)
            text.progress(f"{len(shown):,} row{'' if len(shown) == 1 else 's'} written to {path}")


def _plotted(plan: QueryPlan, name: str | None) -> str:
    """The number that is plotted: known from the question alone, so that it is wrong before anything is paid."""
    from dither.query.expr import columns_of  # noqa: PLC0415 - as above

    groups = {group.name for group in plan.question.groups}
    numbers = [o.name for o in plan.question.outputs if o.expr.type in ("int", "float") and columns_of(o.expr) - groups]
    if not numbers:
        raise InputError("The answer has no number with noise to plot: add an aggregate to SELECT, such as COUNT(*).")
    if name is not None and name not in numbers:
        raise InputError(f"--plot-column {name[:80]!r} is not allowed: expected one of {', '.join(n[:80] for n in numbers[:20])}.")
    return name or numbers[0]


# ------------------------------------------------------------------------------------------------ explaining


def _explain(room: _Room, plan: SqlPlan, given: dict[str, Any]) -> None:
    from dither.query.expected import expected, units_for_key  # noqa: PLC0415 - as above

    price = Guarantee(plan.inner.epsilon, plan.inner.delta, plan.unit, room.trust)
    numbers, needed = expected(plan.inner), units_for_key(plan.inner)
    room_for = None if room.ledger is None else releases.fits(room.ledger, room.request, plan.event)
    if given["as_json"]:
        text.show_json(
            {
                "sql": plan.sql,
                "groups": [{"name": g.name, "keys": None if g.keys is None else len(g.keys)} for g in plan.inner.question.groups],
                "units_for_private_key": needed,
                "bounds": _bounds(plan.inner),
                "numbers": [
                    {
                        "measured": n.what,
                        "noise": n.law,
                        "errors": [{"rows_per_unit": e.rows, "half_width": e.half_width, "in_ranks": e.ranks} for e in n.errors],
                    }
                    for n in numbers
                ],
                "confidence": 0.95,
                "price": releases.guarantee(price),
                "fits": room_for,
                "plan_digest": plan.digest,
            }
        )
        return
    how = pages.look()
    one = _one(plan)
    known = [("groups", _groups(plan.inner, needed, one)), ("bound", _bound_words(plan.inner, one))]
    if plan.blocks:
        known.append(("blocks", ", ".join(plan.blocks[:12]) + (", …" if len(plan.blocks) > 12 else "")))
    known.append(("price", pages.guarantee(price)))
    if room.ledger is not None and given["account"]:
        fits = "it fits" if room_for else "it does NOT fit, and would be refused"
        known.append(("left", f"{releases.left(room.ledger, room.request)}: {fits}"))
    lines = [
        *pages.wrapped("Explained only: no row was read, nothing was charged.", how.width),
        "",
        *pages.facts(known, how),
        "",
        *_error_lines(numbers, one, how),
    ]
    text.show("\n".join(lines))


def _one(plan: SqlPlan) -> str:
    return "row" if plan.unit.key is None else plan.unit.key


def _groups(plan: QueryPlan, needed: int | None, one: str) -> str:
    groups = plan.question.groups
    if not groups:
        return "none: one row for all"
    told = ", ".join(f"{g.name} ({'private keys' if g.keys is None else f'{len(g.keys):,} public keys'})" for g in groups)
    if needed is None:
        return f"{told}; every public group is shown, also an empty one"
    many = f"{needed:,} × {one}" if one != "row" else f"{needed:,} rows"
    return f"{told}; a group is more likely shown than not from about {many} on (more, where each is in many groups)"


def _bounds(plan: QueryPlan) -> dict[str, object]:
    """What one unit has at most, and what finding it costs."""
    from dither.query.bounding import look_plan  # noqa: PLC0415 - as above

    looks = [look for look in map(look_plan, plan.goals) if look is not None]
    first = plan.goals[0]
    return {
        "look_epsilon": sum(look.epsilon for look in looks),
        "rows_per_unit": first.rows_max,
        "groups_per_unit": first.groups_max,
        "rows_per_group": first.rows_per_group_max,
    }


def _bound_words(plan: QueryPlan, one: str) -> str:
    found = _bounds(plan)
    if plan.unit.key is None:
        return "each row counts once"
    words = (("rows_per_unit", "rows"), ("groups_per_unit", "groups"), ("rows_per_group", "rows in a group"))
    declared = [f"{found[name]:,} {what}" for name, what in words if found[name] is not None]
    enforced = f"declared: {', '.join(declared)} of each {one} at most; more is scaled down" if declared else ""
    spent = found["look_epsilon"]
    if not spent:
        return enforced or f"each {one} counts once at most"
    look = f"chosen by a private look at how much each {one} contributes, which is ε = {spent:.3g} of the price"
    return f"{look}; {enforced}" if enforced else f"{look}. Declare --rows-per-unit to save it"


def _error_lines(numbers: Sequence[Any], one: str, how: pages.Look) -> list[str]:
    """A table of the errors to expect: a column for each bound that a look may choose, or the one that is known."""
    if not numbers:
        return [how.say("  Nothing is counted: only which groups there are is told.")]
    chosen = all(n.chosen for n in numbers)
    tried = max((n.errors for n in numbers), key=len)
    heads = ["± at 95 %"] if chosen else [f"± at {e.rows:g}" for e in tried]
    body = []
    for n in numbers:
        told = [f"{_figure(e.half_width)}{' ranks' if e.ranks else ''}" for e in n.errors]
        body.append((n.what, n.law, *(told if len(told) == len(heads) else [*told, *[""] * (len(heads) - len(told))])))
    lines = pages.grid(body, ("measured in each group", "noise", *heads), how, right=range(2, 2 + len(heads)))
    notes = []
    if not chosen:
        rows = " or ".join(f"{e.rows:g}" for e in tried)
        notes.append(f"± at 95 %, if the look bounds each {one} at {rows} rows; it chooses the bound with the least error.")
    if any(e.ranks for n in numbers for e in n.errors):
        notes.append("Ranks: a quantile may lie so many rows from its place in order; how far that is in values, only the answer can tell.")
    notes.append("What is computed from several of these, as a mean is, gets its interval from theirs.")
    return [*lines, "", *(line for note in notes for line in pages.wrapped(how.say(note), how.width, first="  "))]


def _figure(width: float) -> str:
    return f"{width:,.0f}" if width >= 100 else f"{width:.2g}"
