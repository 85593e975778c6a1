"""Pages for a terminal: plain text of 80 columns, painted only where a person is looking."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

_PLAIN = {
    "ε": "eps",
    "δ": "delta",
    "ρ": "rho",
    "μ": "mu",
    "α": "alpha",
    "Σ": "sum",
    "σ": "sigma",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "∞": "inf",
}
_PLAIN |= {
    "−": "-",
    "–": "-",
    "─": "-",
    "×": "x",
    "·": "*",
    "±": "+-",
    "→": "->",
    "…": "...",
    "“": '"',
    "”": '"',
    "√": "sqrt",
    "′": "'",
    "⁻": "-",
}


WIDTH = 80
_SENTENCE_MAX = 800


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What a terminal's alphabet lacks, spelled in plain letters."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error("dither_plain", _plain)


def prepare() -> bool:
    """Make both streams able to say anything: a letter that their alphabet lacks is spelled out. Whether stdout is there."""
    there = sys.stdout is not None
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end of the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="dither_plain")
    return there


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


def command(start: str, flags: Sequence[str]) -> str:
    """A command line to be copied, broken as a shell allows where it is longer than the page."""
    lines = [f"  {start}"]
    for flag in flags:
        if len(lines[-1]) + len(flag) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append(" " * 7)
        lines[-1] += f" {flag}"
    return "\n".join(lines)


def show_json(value: Mapping[str, Any]) -> None:
    """Write one JSON value; numbers that are infinite must already be null."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def complain(sentence: str, *, code: str, status: int, as_json: bool = False) -> int:
    """One sentence on stderr (or one line of JSON), and the status to end with; what was typed is cut, and steers no terminal."""
    said = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(sentence.split()))
    if len(said) > _SENTENCE_MAX:
        said = f"{said[: _SENTENCE_MAX - 300]} … {said[-290:]}"
    click.echo(json.dumps({"error": {"code": code, "message": said}}, ensure_ascii=False) if as_json else f"dither: {said}", err=True)
    return status


def progress(sentence: str) -> None:
    """Where a longer run is, on stderr; for people only."""
    if sys.stderr.isatty():
        click.echo(click.style(f"… {sentence}", dim=not os.environ.get("NO_COLOR")), err=True)
    else:
        click.echo(f"… {sentence}", err=True)
