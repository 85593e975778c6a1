"""The one path: project file → request → plan → reserve → run → settle → release. Names are imported when first used.

>>> from dither import gate
>>> gate.engine_names()
('measure', 'sql')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither.core.errors import RunError as RunError
    from dither.gate.engines import Column as Column
    from dither.gate.engines import Engine as Engine
    from dither.gate.engines import Facts as Facts
    from dither.gate.engines import Request as Request
    from dither.gate.engines import engine as engine
    from dither.gate.engines import engine_names as engine_names
    from dither.gate.engines import register as register
    from dither.gate.file import schema as schema
    from dither.gate.path import execute as execute
    from dither.gate.project import Project as Project
    from dither.gate.starter import init_text as init_text
    from dither.gate.starter import write_starter as write_starter

_HOMES: dict[str, tuple[str, ...]] = {
    "engines": ("Column", "Engine", "Facts", "Request", "engine", "engine_names", "register"),
    "file": ("schema",),
    "path": ("RunError", "execute"),
    "project": ("Project",),
    "starter": ("init_text", "write_starter"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - one table says what is public and where it lives


def __getattr__(name: str) -> object:
    """Import a name on first use, so that ``import dither`` stays light."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dither.gate' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"dither.gate.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
