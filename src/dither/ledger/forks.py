"""Forks: SQLite forbids to carry a connection over one, so whoever holds some closes them first.

A child with a connection believes that it holds its parent's locks. When the parent then closes the book, it removes the
log that the child writes to: charges would be answered, and lost.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

_LOOK = 0.002
"""Seconds between two looks."""


class Held(Protocol):
    """What has connections."""

    def about_to_fork(self) -> None:
        """Nothing begins any more."""
        ...

    def drained(self) -> bool:
        """Wait until nothing runs, and close every connection; whether that could be done."""
        ...

    def forked(self, *, child: bool, clean: bool) -> None:
        """Go on; ``clean`` is whether nothing was carried over."""
        ...


class Gate:
    """Counts who is inside, and can be shut until all are out.

    >>> gate = Gate()
    >>> with gate:
    ...     gate.drained(0.0)
    False
    >>> gate.drained(0.0)
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # an interrupt may leave a Condition locked for ever
        self._inside: set[int] = set()
        self._shut = False

    def __enter__(self) -> None:
        while not self._entered():
            time.sleep(_LOOK)

    def _entered(self) -> bool:
        with self._lock:
            if not self._shut:
                self._inside.add(threading.get_ident())
            return not self._shut

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside.discard(threading.get_ident())

    def shut(self) -> None:
        """Nobody enters."""
        with self._lock:
            self._shut = True

    def drained(self, seconds: float) -> bool:
        """Whether all are out, after so long at most; at once where it is this very thread that is inside."""
        deadline = time.monotonic() + seconds
        while self._inside and threading.get_ident() not in self._inside and time.monotonic() < deadline:
            time.sleep(_LOOK)
        return not self._inside

    def open(self) -> None:
        """Whoever waits enters."""
        with self._lock:
            self._shut = False


_known: weakref.WeakSet[Held] = weakref.WeakSet()
_turn = threading.Lock()
_clean: dict[Held, bool] = {}


def heed(held: Held) -> None:
    """From now on it is told of forks."""
    with _turn:
        _known.add(held)


def _before() -> None:
    _turn.acquire()
    _clean.update(dict.fromkeys(_known, False))  # until it is known to be so
    for held in _clean:
        held.about_to_fork()
    for held in _clean:
        _clean[held] = held.drained()


def _after(*, child: bool) -> None:
    for held, clean in _clean.items():
        held.forked(child=child, clean=clean)
    _clean.clear()
    _turn.release()


os.register_at_fork(before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True))
