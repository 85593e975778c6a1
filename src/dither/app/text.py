"""Pages for a terminal: plain text of 80 columns, painted only where a person is looking."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import click


def painted() -> bool:
    """Whether to use colour: a terminal, not told otherwise (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show(page: str) -> None:
    """Write a page: its headings bold, its rules dim and its warnings yellow, on a terminal."""
    for line in page.splitlines():
        click.echo(_paint(line) if painted() else line)


def _paint(line: str) -> str:
    stripped = line.lstrip()
    if stripped.startswith("! "):
        return click.style(line, fg="yellow")
    if stripped and not stripped.strip("─"):
        return click.style(line, dim=True)
    if line and not line.startswith(" "):
        return click.style(line, bold=True)
    return line


def show_json(value: Mapping[str, Any]) -> None:
    """Write one JSON value; numbers that are infinite must already be null."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def complain(sentence: str, *, code: str, status: int, as_json: bool = False) -> int:
    """One sentence on stderr (or one line of JSON), and the status to end with."""
    said = " ".join(sentence.split())
    click.echo(json.dumps({"error": {"code": code, "message": said}}, ensure_ascii=False) if as_json else f"dither: {said}", err=True)
    return status


def progress(sentence: str) -> None:
    """Where a longer run is, on stderr; for people only."""
    if sys.stderr.isatty():
        click.echo(click.style(f"… {sentence}", dim=not os.environ.get("NO_COLOR")), err=True)
    else:
        click.echo(f"… {sentence}", err=True)
