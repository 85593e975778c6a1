"""``dither init`` and ``dither run``: a folder to start from, and the jobs of a project file, each paid for and receipted."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import dither
from dither.app import ledger_pages as pages
from dither.app import text
from dither.app.groups import json_option
from dither.core.errors import DitherError, LedgerError, UnknownNameError
from dither.core.events import to_dict
from dither.core.units import Guarantee

if TYPE_CHECKING:
    from dither.core.plans import Release
    from dither.gate import Project

QUIET_SECONDS = 2.0
ROWS_SHOWN = 40
EXAMPLES = """\b
Examples:
  dither run dither.yaml
  dither run dither.yaml --job "mean stay" --json
"""


# ------------------------------------------------------------------------------------------------ init


@click.command(short_help="A folder to start from: dither.yaml and some data.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@json_option
def init(folder: Path, *, as_json: bool) -> None:
    """Make a folder to start from: a dither.yaml that explains itself, and made-up data. Nothing that is there is written over."""
    from dither.gate import write_starter  # noqa: PLC0415 - brings pydantic, which --help must not wait for

    made = write_starter(folder)
    if as_json:
        text.show_json({"files": [str(path) for path in made]})
        return
    where = "" if folder == Path() else f"cd {folder} && "
    text.show("\n".join([*(f"{path} written" for path in made), "", f"Next: {where}dither run dither.yaml"]))


# ------------------------------------------------------------------------------------------------ run


@click.command(epilog=EXAMPLES, short_help="Run the jobs of a project file, each paid for and receipted.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), default=Path("dither.yaml"))
@click.option("--job", "jobs", multiple=True, metavar="NAME", help="Only this job; may be given several times.")
@click.option("--up-to", is_flag=True, help="Of a job in steps, run as many as the limits have room for.")
@click.option("--by", metavar="NAME", help="Who does this, for the book; your login name unless said.")
@json_option
@click.pass_context
def run(context: click.Context, /, file: Path, **given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Run the jobs of a project file: what is released, how far it may be off, what it cost, what is left.

    A job that is refused or fails does not stop the others; the status is that of the first that did not end well.
    """
    from dither.gate import Project as Loaded  # noqa: PLC0415 - brings the ledger and pydantic, which --help must not wait for

    as_json, statuses = given["as_json"], []
    with Loaded.load(file, actor=given["by"]) as project:
        names = given["jobs"] or project.names
        for name in names:
            project.job(name)  # a name that is wrong is told before anything is spent
        if not names:
            raise UnknownNameError("job", str(file), ["one under 'jobs:' in the file"])
        told: list[dict[str, object]] = []
        for name in names:
            try:
                with _ticking(name):
                    release = project.run_job(name, up_to=given["up_to"])
            except LedgerError:
                raise
            except DitherError as error:
                statuses.append(text.complain(f"Job {name!r}: {error}", code=error.code, status=error.exit_status, as_json=as_json))
                continue
            if not as_json:
                _show_release(name, project, release, first=not told)
            told.append(_told(name, release))
    if as_json:
        text.show_json({"releases": told})
    if statuses:
        context.exit(statuses[0])


@contextmanager
def _ticking(name: str) -> Iterator[None]:
    """Says that a job runs, once it has taken two seconds."""
    timer = threading.Timer(QUIET_SECONDS, text.progress, [f"{name} is running"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cost(release: Release[Any]) -> Guarantee | None:
    """What this release alone costs: at δ = 0 where it is pure, else at the δ of its limit; None where there is no ε at either."""
    receipt = release.receipt
    if receipt is None:
        return None
    priced = dither.loss(release.event, neighbors=release.unit.neighbors)
    for delta in (0.0, receipt.spent.delta):
        epsilon = priced.epsilon_upper(delta)
        if math.isfinite(epsilon):
            return Guarantee(epsilon, delta, release.unit, receipt.spent.trust)
    return None


def _told(name: str, release: Release[Any]) -> dict[str, object]:
    """A release as JSON."""
    receipt, accuracy, cost = release.receipt, release.accuracy, _cost(release)
    kept = None
    if receipt is not None:
        kept = {
            "charge": receipt.charge_id,
            "state": receipt.state.value,
            "entry": receipt.entry,
            "hash": receipt.head,
            "at": receipt.at.isoformat(),
            "replayed": receipt.replayed,
            "spent": _guarantee(receipt.spent),
            "remaining": _guarantee(receipt.remaining),
        }
    return {
        "job": name,
        "value": release.value,
        "accuracy": None if accuracy is None else {"half_width": accuracy.half_width, "confidence": accuracy.confidence},
        "cost": None if cost is None else _guarantee(cost),
        "unit": str(release.unit),
        "event": to_dict(release.event),
        "cut_short": type(release).__name__ == "ShortRelease",
        "plan_digest": release.plan_digest,
        "receipt": kept,
    }


def _guarantee(told: Guarantee) -> dict[str, object]:
    epsilon = told.epsilon if math.isfinite(told.epsilon) else None
    return {"epsilon": epsilon, "delta": told.delta, "unit": str(told.unit), "trust": told.trust.value}


def _show_release(name: str, project: Project, release: Release[Any], *, first: bool) -> None:
    how, receipt, cost, request = pages.look(), release.receipt, _cost(release), project.job(name)
    lines = pages.wrapped(how.say(f"{name}: {request.purpose}, on account of {'/'.join(request.account)}"), how.width)
    known, tables = _value(release.value, how)
    if release.accuracy is not None:
        known.append(("noise", f"each number is within {release.accuracy}"))
    if type(release).__name__ == "ShortRelease":
        known.append(("steps", str(release)))
    known.append(("cost", pages.guarantee(cost) if cost is not None else f"no ε of its own, hiding {release.unit}"))
    if receipt is not None:
        from dither.ledger import views  # noqa: PLC0415

        limit, least = views.least_left(project.ledger, request.account, request.dataset, request.blocks)
        again = "; nothing was spent: this is the release stored under that id" if receipt.replayed else ""
        known += [
            ("left", f"{pages.room_left(least)} (limit {limit.id} of {'/'.join(limit.account)})"),
            ("receipt", f"{receipt.charge_id}, entry {receipt.entry:,}{again}"),
        ]
    text.show("\n".join([*([] if first else [""]), *lines, *tables, *pages.facts(known, how)]))


def _value(value: object, how: pages.Look) -> tuple[list[tuple[str, str]], list[str]]:
    """The released value: what is one thing as facts, lists of equal maps as tables."""
    if not isinstance(value, Mapping):
        return [("value", _plainly(value))], []
    known: list[tuple[str, str]] = []
    lines: list[str] = []
    for key in sorted(value, key=lambda name: (name != "statistic", str(name))):
        held = value[key]
        if not (isinstance(held, list) and held and all(isinstance(row, Mapping) for row in held)):
            known.append((str(key).replace("_", " "), _plainly(held)))
            continue
        names = sorted({str(name) for row in held for name in row}, key=lambda name: (name == "estimate", name))
        numbers = [i for i, each in enumerate(names) if all(isinstance(row.get(each), int | float) for row in held)]
        body = [[_plainly(row.get(each)) for each in names] for row in held[:ROWS_SHOWN]]
        lines += [*pages.grid(body, names, how, right=numbers), ""]
        if len(held) > ROWS_SHOWN:
            lines[-1:] = [f"  {how.more} {len(held) - ROWS_SHOWN:,} more; --json has all", ""]
    return known, ["", *lines] if lines else []


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
