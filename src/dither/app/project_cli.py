"""``dither init`` and ``dither run``: a folder to start from, and the jobs of a project file, each paid for and receipted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dither.app import ledger_pages as pages
from dither.app import releases, text
from dither.app.groups import json_option
from dither.core.errors import DitherError, LedgerError, UnknownNameError

if TYPE_CHECKING:
    from dither.core.plans import Release
    from dither.gate import Project

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
                with releases.ticking(name):
                    release = project.run_job(name, up_to=given["up_to"])
            except LedgerError:
                raise
            except DitherError as error:
                statuses.append(text.complain(f"Job {name!r}: {error}", code=error.code, status=error.exit_status, as_json=as_json))
                continue
            if not as_json:
                _show_release(name, project, release, first=not told)
            told.append({"job": name, **releases.told(release)})
    if as_json:
        text.show_json({"releases": told})
    if statuses:
        context.exit(statuses[0])


def _show_release(name: str, project: Project, release: Release[Any], *, first: bool) -> None:
    how, request = pages.look(), project.job(name)
    lines = pages.wrapped(how.say(f"{name}: {request.purpose}, on account of {'/'.join(request.account)}"), how.width)
    body = releases.page(release, project.ledger, request, how)
    apart = [""] if isinstance(release.value, dict) and any(isinstance(held, list) for held in release.value.values()) else []
    text.show("\n".join([*([] if first else [""]), *lines, *apart, *body]))
