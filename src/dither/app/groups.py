"""What the groups of commands have in common: a hint for a command that does not exist, JSON where it is asked for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class Map(click.Group):
    """A group that suggests the nearest command for one that does not exist."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of that name, or a hint."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"Did you mean {near[0]}?" if near else f"Expected one of {', '.join(known)}."
            raise click.UsageError(f"There is no command {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON.")(command)


class Number(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """A decimal or a fraction, exact: what is typed is what is written into the book."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own types
        """The number that was typed."""
        if not isinstance(value, str):
            return value
        if re.fullmatch(r"[0-9]{1,20}/[1-9][0-9]{0,19}", value):
            return Fraction(value)
        try:
            return float(value)
        except ValueError:
            return self.fail(f"{value[:60]!r} is not a number such as 0.5, 1e-6 or 1/3.", param, ctx)
