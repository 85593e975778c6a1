"""What a book is opened with: who opens it, its key, its anchor, whom to tell."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast, get_args

from dither.core import checks
from dither.core.errors import LedgerError
from dither.ledger import seal
from dither.ledger.alerts import Channel

KEY_VARIABLE: Final = "DITHER_KEY"  # the name of the variable that holds the key's path


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def user() -> str:
    """Who runs this.

    >>> user() != ""
    True
    """
    try:
        return getpass.getuser()[:200] or "unknown"
    except (KeyError, OSError, ImportError):
        return "unknown"


def told_by(channels: object) -> tuple[Channel, ...]:
    """The channels, checked: a wrong one would be found at the first alert.

    >>> told_by(())
    ()
    """
    expected = "a list of alerts.Log, File, Webhook or Command"
    if not isinstance(channels, Iterable):
        raise checks.refuse("channels", channels, expected)
    return tuple(cast("Channel", checks.instance("channels", channel, get_args(Channel), expected)) for channel in channels)


def place(label: str, value: object) -> Path:
    """The path of a file that there may be, checked.

    >>> place("anchor", "book.anchor").name
    'book.anchor'
    """
    expected = "the path of a file"
    checks.instance(label, value, (str, os.PathLike), expected)
    try:
        found = Path(cast("str | os.PathLike[str]", value))
    except TypeError:
        raise checks.refuse(label, value, expected) from None
    try:
        if not os.fsencode(found) or not found.name:
            raise checks.refuse(label, value, expected)
        found.exists()
    except PermissionError:
        return found  # told by who opens it
    except (OSError, ValueError):
        raise checks.refuse(label, value, expected) from None
    return found


def is_there(path: Path) -> bool:
    """Whether there is such a file, as far as can be seen from here.

    >>> is_there(Path("/"))
    True
    """
    try:
        return path.exists()
    except OSError:
        return False


def sealer(key: Path) -> seal.Sealer:
    """The key of a file, made on first use."""
    try:
        return seal.Sealer.open(key)
    except OSError as error:
        raise LedgerError(f"The signing key {key} cannot be reached ({error.strerror}): give the right to its folder.") from None


def key_path(url: str, key: Path | None) -> Path | None:
    """Where the signing key of a book is: as said, or as the variable says, or beside an SQLite file.

    >>> key_path("sqlite:///book.db", None).name
    'book.db.key'
    """
    given = os.environ.get(KEY_VARIABLE) or None
    if key is not None or given is not None:
        return key if key is not None else place(KEY_VARIABLE, given)
    name = url.removeprefix("sqlite:///")
    return Path(f"{name}.key") if url.startswith("sqlite:///") else None
