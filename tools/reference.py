"""Write docs/reference/*.md from the code: errors and events. `--check` only says whether they are up to date."""

import dataclasses
import sys
import typing
from pathlib import Path

from dither.core import errors, events

ROOT = Path(__file__).parents[1]
MADE = "<!-- Made by tools/reference.py from the code; edit the code. -->\n"


def _tree(kind: type, depth: int = 0) -> list[tuple[type, int]]:
    inner = [row for k in kind.__subclasses__() if k.__module__ == errors.__name__ for row in _tree(k, depth + 1)]
    return [(kind, depth), *inner]


def errors_page() -> str:
    """The table of error codes."""
    lines = [
        "# Errors",
        "",
        MADE,
        "Every error is a `DitherError` with a stable `code`. The command line ends with the exit status; errors go to stderr in one",
        "sentence. The text says what was given, what is allowed, what to do. No text holds a private value or a row count.",
        "",
        "| code | class | exit status | meaning |",
        "|---|---|---|---|",
    ]
    for kind, depth in _tree(errors.DitherError):
        meaning = (kind.__doc__ or "").split("\n")[0]
        lines.append(f"| `{kind.code}` | {'&nbsp;&nbsp;' * depth}`{kind.__name__}` | {kind.exit_status} | {meaning} |")
    return "\n".join(lines) + "\n"


def _fields(kind: type) -> str:
    shown = []
    for f in dataclasses.fields(kind):
        if f.compare:
            default = "" if f.default is dataclasses.MISSING else f" = {f.default!r}"
            shown.append(f"{f.name}: {f.type}{default}")
    return ", ".join(shown)


def events_page() -> str:
    """The catalogue of events."""
    lines = [
        "# Events",
        "",
        MADE,
        "An event is the description of a release that is necessary and sufficient to price it. Events are frozen, hashable,",
        "and survive JSON (`ev.to_json`, `ev.from_json`). A class is never removed and never changes its meaning.",
    ]
    groups = {
        "Leaves": typing.get_args(events.Leaf),
        "Composites": typing.get_args(events.Composite),
        "Samplers": typing.get_args(events.Sampler),
        "Stopping rules": typing.get_args(events.Stopping),
    }
    for title, kinds in groups.items():
        lines += ["", f"## {title}"]
        for kind in kinds:
            words = "\n".join(line.strip() for line in (kind.__doc__ or "").strip().split("\n"))
            lines += ["", f"### `{kind.__name__}({_fields(kind)})`", "", words]
    return "\n".join(lines) + "\n"


PAGES = {"errors.md": errors_page, "events.md": events_page}


def main() -> int:
    """Write the pages, or compare them with what is there."""
    folder = ROOT / "docs/reference"
    stale = []
    for name, make in PAGES.items():
        path, text = folder / name, make()
        if "--check" in sys.argv:
            stale += [name] if not path.exists() or path.read_text() != text else []
        else:
            path.write_text(text)
    if stale:
        print(f"Out of date: {', '.join(stale)}. Run: python tools/reference.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
