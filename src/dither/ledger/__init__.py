"""The privacy ledger: one append-only budget book that cannot overspend, be edited unseen, or forget.

Names are imported when first used.

>>> from dither.ledger import Ledger
>>> Ledger.open("sqlite://").tail()[0]
0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither.core.plans import Charge as Charge
    from dither.core.plans import Receipt as Receipt
    from dither.core.plans import State as State
    from dither.ledger.alerts import Command as Command
    from dither.ledger.alerts import File as File
    from dither.ledger.alerts import Log as Log
    from dither.ledger.alerts import Webhook as Webhook
    from dither.ledger.blocks import Blocks as Blocks
    from dither.ledger.blocks import Every as Every
    from dither.ledger.book import Ledger as Ledger
    from dither.ledger.reading import Standing as Standing
    from dither.ledger.terms import Dataset as Dataset
    from dither.ledger.terms import FilterSpec as FilterSpec
    from dither.ledger.terms import Limit as Limit
    from dither.ledger.verify import verify_file as verify_file

_HOMES: dict[str, tuple[str, ...]] = {
    "dither.core.plans": ("Charge", "Receipt", "State"),
    "dither.ledger.alerts": ("Command", "File", "Log", "Webhook"),
    "dither.ledger.blocks": ("Blocks", "Every"),
    "dither.ledger.book": ("Ledger",),
    "dither.ledger.reading": ("Standing",),
    "dither.ledger.terms": ("Dataset", "FilterSpec", "Limit"),
    "dither.ledger.verify": ("verify_file",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - one table says what is public and where it lives


def __getattr__(name: str) -> object:
    """Import a name on first use, so that ``import dither`` stays light."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dither.ledger' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
