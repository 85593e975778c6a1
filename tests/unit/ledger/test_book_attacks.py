"""Attacks on the book: forks, removed files, rewritten rows, histories that change, and limits that come late."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dither.core import events as ev
from dither.core.errors import LedgerError, RefusedError, TamperError
from dither.core.plans import Charge, State
from dither.core.units import PrivacyUnit
from dither.ledger.book import Ledger
from dither.ledger.terms import Dataset

UNIT = PrivacyUnit(dataset="events")


def charge(name: str, epsilon: float = 0.25, account: str = "acme", **more: object) -> Charge:
    given = {"unit": UNIT, "event": ev.PureDp(epsilon), "plan_digest": "sha256:0", "purpose": "weekly report", **more}
    return Charge(id=name, account=tuple(account.split("/")), **given)  # type: ignore[arg-type]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A book in a file, with one limit of ε = 1."""
    url = f"sqlite:///{tmp_path}/book.db"
    with Ledger.open(url) as made:
        made.add_dataset(Dataset(name="events", unit=UNIT))
        made.grant("acme", "events", epsilon=1)
    return url


def edit(tmp_path: Path, *statements: str) -> None:
    """What somebody with the right to write to the file does, past the ledger and its triggers."""
    with sqlite3.connect(tmp_path / "book.db") as file:
        for name, sql in file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall():
            file.execute(f"DROP TRIGGER {name}")
            assert sql
        for statement in statements:
            file.execute(statement)
    file.close()


# ------------------------------------------------------------------------------------------------ forks


class Child:
    """A forked child that works in two steps, the second when it is told to."""

    def __init__(self, first: Callable[[], object], second: Callable[[], object] = lambda: None) -> None:
        (ready, self._ready), (self._go, go) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:  # pragma: no cover - another process
            code = 1
            try:
                first()
                os.write(self._ready, b"x")
                os.read(self._go, 1)
                second()
                code = 0
            finally:
                os.write(self._ready, b"x")
                os._exit(code)
        os.read(ready, 1)
        self._tell = go

    def ended_well(self) -> bool:
        os.write(self._tell, b"x")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) == 0


@pytest.mark.parametrize("anew", [False, True], ids=["inherited", "opened anew"])
def test_what_a_forked_child_charges_stays_when_its_parent_closes(url: str, *, anew: bool):
    """SQLite removes the log with the last connection; a child that believes to hold its parent's locks would not count as one."""
    parent = Ledger.open(url)
    parent.reserve(charge("p1"))
    ledgers = []

    def first() -> None:
        ledgers.append(Ledger.open(url) if anew else parent)
        ledgers[0].reserve(charge("c1"))

    child = Child(first, lambda: ledgers[0].reserve(charge("c2")))
    parent.close()
    assert child.ended_well()
    with Ledger.open(url) as ledger:
        assert [ledger.state(name) is not None for name in ("p1", "c1", "c2")] == [True, True, True]
        assert ledger.balance("acme").share == 0.75


def test_a_fork_waits_for_the_transactions_that_run(url: str):
    with Ledger.open(url) as ledger:
        inside, go = threading.Event(), threading.Event()

        def slow(desk: object) -> None:
            inside.set()
            go.wait(60)

        writer = threading.Thread(target=ledger._do, args=(slow,))
        writer.start()
        inside.wait(60)
        threading.Timer(0.2, go.set).start()
        child = Child(lambda: ledger.reserve(charge("c1")))
        assert child.ended_well()
        writer.join()
        ledger.reserve(charge("p1"))
        assert ledger.balance("acme").share == 0.5


def test_a_child_forked_in_the_middle_of_a_transaction_cannot_use_the_book(url: str):
    """Its own thread was in it, so nobody can end it: the child is told, whichever way it tries."""
    with Ledger.open(url) as ledger:
        told = []

        def work(desk: object) -> None:
            def first() -> None:
                for attempt in (lambda: ledger.balance("acme"), lambda: Ledger.open(url)):
                    with pytest.raises(LedgerError, match="started anew"):
                        attempt()

            told.append(Child(first).ended_well())

        ledger._do(work)
        assert told == [True]
        ledger.reserve(charge("p1"))


def test_only_the_parent_may_void_what_it_reserved_before_a_fork(url: str):
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("p1"))

        def first() -> None:
            with pytest.raises(RefusedError, match="another process"):
                ledger.void("p1", "I was not there")

        assert Child(first).ended_well()
        assert ledger.void("p1", "nothing was read").state is State.VOIDED


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_nothing_is_answered_once_the_log_or_its_index_is_gone(url: str, tmp_path: Path, ending: str):
    """Somebody tidies up. What is written to a removed log is durable for nobody."""
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("c1"))
        (tmp_path / f"book.db{ending}").unlink()
        with pytest.raises(TamperError, match="removed or replaced while it was open"):
            ledger.reserve(charge("c2"))
    with Ledger.open(url) as again:
        assert again.state("c1") is State.RESERVED
        again.reserve(charge("c3"))


def test_a_file_of_two_names_is_no_book(url: str, tmp_path: Path):
    """Under the other name it has another log: two writers would not see each other."""
    with Ledger.open(url) as ledger:
        (tmp_path / "copy.db").hardlink_to(tmp_path / "book.db")
        with pytest.raises(LedgerError, match="hard links"):
            ledger.reserve(charge("c1"))
    with pytest.raises(LedgerError, match="hard links"):
        Ledger.open(f"sqlite:///{tmp_path}/copy.db")


def test_a_link_to_the_file_is_the_same_book(url: str, tmp_path: Path):
    (tmp_path / "link.db").symlink_to("book.db")
    with Ledger.open(url) as one, Ledger.open(f"sqlite:///{tmp_path}/link.db", key=tmp_path / "book.db.key") as two:
        for turn in range(4):
            (one, two)[turn % 2].reserve(charge(f"c{turn}"))
        assert one.balance("acme").share == 1.0
