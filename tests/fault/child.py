"""What runs in processes of its own: charges that race, and charges whose process is killed under them.

Every step is told over a pipe *after* the ledger answered, so what the test hears is what was acknowledged.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dither.ledger
from dither import events as ev
from dither.core.errors import DitherError, OverBudgetError
from dither.core.plans import Charge
from dither.core.units import PrivacyUnit
from dither.ledger.book import Ledger
from dither.ledger.terms import Blocks, Dataset, Every

UNIT, MONTHLY = PrivacyUnit(dataset="events"), PrivacyUnit(dataset="monthly")
TOP, TEAM, OTHER = ("acme",), ("acme", "ads"), ("acme", "sales")
RELEASE = '{"value":1}'
_ROOM = str(Path(dither.ledger.__file__).parent)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "dither.ledger.book", "dither.events", "sqlalchemy.dialects.sqlite"])


def charge(name: str, event: ev.Event, account: tuple[str, ...] = TEAM, purpose: str = "test", blocks: tuple[str, ...] = ()) -> Charge:
    unit = MONTHLY if blocks else UNIT
    return Charge(id=name, account=account, unit=unit, event=event, plan_digest="sha256:" + "0" * 64, purpose=purpose, blocks=blocks)


def prepared(url: str, *, epsilon: object, top: object = None, **more: Any) -> None:
    """A book with one tree of accounts, and two datasets, the second divided by month."""
    with Ledger.open(url, **more) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.add_dataset(Dataset(name="monthly", unit=MONTHLY, blocks=Blocks(column="ts", every=Every.MONTH)))
        for account in (TOP, TEAM, OTHER):
            ledger.add_account("/".join(account))
        ledger.grant("acme", "events", epsilon=epsilon if top is None else top)
        ledger.grant("acme/ads", "events", epsilon=epsilon)
        ledger.grant("acme", "monthly", epsilon=epsilon, per="block")
        ledger.grant("acme/ads", "monthly", epsilon=epsilon, per="dataset")


# ------------------------------------------------------------------------------------------------ processes


class Child:
    """A process and what it told; ``heard`` grows while it lives."""

    def __init__(self, target: Callable[..., None], *given: Any, **named: Any) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_started, args=(target, theirs, given, named), daemon=True)
        self.process.start()
        theirs.close()
        self.heard: list[tuple[Any, ...]] = []

    def say(self, what: object) -> None:
        self._pipe.send(what)

    def hear(self, *, until: str | None = None, timeout: float = 120.0) -> list[tuple[Any, ...]]:
        """Everything up to its end, or up to a message of that name."""
        while self._pipe.poll(timeout):
            try:
                self.heard.append(self._pipe.recv())
            except (EOFError, ConnectionResetError):
                return self.heard
            if self.heard[-1][0] == until:
                return self.heard
        raise AssertionError(f"nothing heard for {timeout:g} s after {self.heard[-3:]}")

    def speaks(self) -> bool:
        """Take what it has said so far, without waiting; whether more can come."""
        try:
            while self._pipe.poll(0):
                self.heard.append(self._pipe.recv())
        except (EOFError, ConnectionResetError):
            return False
        return True

    def kill(self) -> None:
        self.process.kill()

    def ended(self) -> int:
        """The exit status; minus the signal where there was one."""
        if not self._pipe.closed:
            self.hear()
        self.process.join(60)
        status = self.process.exitcode
        assert status is not None
        self._pipe.close()
        self.process.close()
        return status


def _started(target: Callable[..., None], pipe: Connection, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    target(pipe, *given, **named)
    pipe.close()


# ------------------------------------------------------------------------------------------------ death


class Doom:
    """Ends the process, by SIGKILL, before the given line of the book's own code is executed; 0: only counts them."""

    def __init__(self, line: int) -> None:
        self.line, self.seen = line, 0
        self.places: list[tuple[str, int]] = []

    def __call__(self, frame: Any, event: str, arg: object) -> Any:
        return self._inside if frame.f_code.co_filename.startswith(_ROOM) else None

    def _inside(self, frame: Any, event: str, arg: object) -> Any:
        if event == "line":
            self.seen += 1
            if self.seen == self.line:
                os.kill(os.getpid(), signal.SIGKILL)
            if not self.line:
                self.places.append((frame.f_code.co_filename, frame.f_lineno))
        return self._inside

    @contextmanager
    def upon(self) -> Iterator[None]:
        threading.settrace(self)
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)


def spends(pipe: Connection, url: str, name: str, count: int, doom: int | None = None, **more: Any) -> None:
    """Reserve, of one block or of six at once, commit, void, retry, be refused, over and over; tell each answer."""
    ledger = Ledger.open(url, **more)
    death = Doom(doom or 0)
    pipe.send(("open",))
    if doom is None:
        _spend(pipe, ledger, name, count)
    else:
        with death.upon():
            _spend(pipe, ledger, name, count)
    pipe.send(("places", death.places))
    ledger.close()


def _spend(pipe: Connection, ledger: Ledger, name: str, count: int) -> None:
    for i in range(count):
        months = tuple(f"2026-{1 + (i + k) % 12:02}" for k in range(6)) if i % 5 == 3 else ()
        one = charge(f"{name}-{i}", ev.Repeat(ev.PureDp(0.001), 1 + i % 3), blocks=months)
        pipe.send(("trying", one.id))
        receipt = ledger.reserve(one)
        pipe.send(("reserved", one.id, receipt.entry))
        match i % 5:
            case 0:
                ledger.commit(one.id, release=RELEASE)
                pipe.send(("committed", one.id))
            case 1:
                pipe.send(("voiding", one.id))
                ledger.void(one.id, "no row was read")
                pipe.send(("voided", one.id))
            case 2:
                ledger.commit(one.id, event=ev.Repeat(ev.PureDp(0.001), 1))
                pipe.send(("committed", one.id))
            case 3:
                again = ledger.reserve(one)
                pipe.send(("replayed", one.id, again.entry))
            case _:
                pipe.send(("trying", f"{name}-{i}-big"))
                try:
                    ledger.reserve(charge(f"{name}-{i}-big", ev.PureDp(900.0)))
                except OverBudgetError:
                    pipe.send(("refused", f"{name}-{i}-big"))
                ledger.commit(one.id)
                pipe.send(("committed", one.id))


# ------------------------------------------------------------------------------------------------ races


def races(pipe: Connection, url: str, name: str, tries: list[tuple[str, float, tuple[str, ...]]], voids: float = 0.0, **more: Any) -> None:
    """Try the charges one after the other, from the word on; void a seeded part of those granted, commit the others."""
    draw = random.Random(name)
    with Ledger.open(url, **more) as ledger:
        pipe.send(("ready",))
        pipe.recv()
        for one, epsilon, account in tries:
            try:
                receipt = ledger.reserve(charge(one, ev.PureDp(epsilon), account))
            except OverBudgetError:
                pipe.send(("refused", one))
                continue
            except DitherError as error:
                pipe.send(("failed", one, f"{type(error).__name__}: {error}"))
                raise
            pipe.send(("replayed" if receipt.replayed else "granted", one, receipt.entry, receipt.state.value))
            if receipt.replayed:
                continue
            if draw.random() < voids:
                ledger.void(one, "no row was read")
                pipe.send(("voided", one))
            else:
                ledger.commit(one)
                pipe.send(("committed", one))
