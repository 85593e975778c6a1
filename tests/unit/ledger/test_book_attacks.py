"""Attacks on the book: forks, removed files, rewritten rows, histories that change, and limits that come late."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from dither.core import events as ev
from dither.core.errors import InputError, LedgerError, OverBudgetError, RefusedError, TamperError
from dither.core.plans import Charge, State
from dither.core.units import Neighbors, PrivacyUnit
from dither.ledger import holders
from dither.ledger.alerts import File
from dither.ledger.blocks import Blocks, Every
from dither.ledger.book import Ledger
from dither.ledger.entries import charge_digest
from dither.ledger.gauge import Gauge
from dither.ledger.terms import Dataset, FilterSpec

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


def test_a_process_number_that_is_given_again_voids_nothing_where_no_start_time_is_told(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(holders, "_text", lambda path: None)
    monkeypatch.setattr(holders, "_link", lambda path: None)
    with Ledger.open(url) as before:
        before.reserve(charge("p1"))
        monkeypatch.setattr(holders, "_BEGUN", "0.1")  # the same number, in another process
        with Ledger.open(url) as after:
            assert not holders.dead(holders.here())
            with pytest.raises(RefusedError, match="another process"):
                after.void("p1", "I was not there")


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


def test_places_that_cannot_be_entered_are_told(url: str, tmp_path: Path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    hidden.chmod(0)

    def first() -> None:
        if os.geteuid() == 0:
            os.seteuid(65534)  # nobody: whoever is root may enter everywhere
        for given in ((f"sqlite:///{hidden}/book.db", None), ("sqlite://", hidden / "book.key")):
            with pytest.raises(LedgerError, match=r"cannot be (entered|reached)"):
                Ledger.open(given[0], key=given[1])

    assert Child(first).ended_well()


def test_a_link_to_the_file_is_the_same_book(url: str, tmp_path: Path):
    (tmp_path / "link.db").symlink_to("book.db")
    with Ledger.open(url) as one, Ledger.open(f"sqlite:///{tmp_path}/link.db", key=tmp_path / "book.db.key") as two:
        for turn in range(4):
            (one, two)[turn % 2].reserve(charge(f"c{turn}"))
        assert one.balance("acme").share == 1.0


# ------------------------------------------------------------------------------------------------ what is not as it was


def test_a_book_that_is_open_to_read_is_not_written(url: str, tmp_path: Path):
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("c1"))
        before = list(ledger.lines())
    (tmp_path / "book.db.key").unlink()
    with Ledger.open(url, readonly=True) as ledger:
        for attempt in (
            lambda: ledger.reserve(charge("c2")),
            lambda: ledger.commit("c1"),
            lambda: ledger.void("c1", "no"),
            lambda: ledger.grant("beta", "events", epsilon=9),
            lambda: ledger.add_account("beta"),
        ):
            with pytest.raises(LedgerError, match="open read-only"):
                attempt()
        assert list(ledger.lines()) == before


def test_a_book_put_back_in_place_is_noticed_by_who_wrote_to_it(url: str, tmp_path: Path):
    """The same file with older content: no inode changes, and no anchor is read while the book is open."""
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("c1", 1.0))
        edit(tmp_path, "DELETE FROM entries WHERE n > 3", "DELETE FROM charges", "DELETE FROM balances")
        with pytest.raises(TamperError, match="put back to an older state, or rewritten"):
            ledger.reserve(charge("c2", 1.0))
        with Ledger.open(url) as other:
            other.reserve(charge("c3"))
        with pytest.raises(TamperError, match="put back to an older state, or rewritten"):
            ledger.reserve(charge("c2", 0.5))


def test_terms_that_were_read_and_did_not_last_are_not_used(url: str, tmp_path: Path):
    """A server that dies forgets what was shown but not answered; the same numbers are then given to other entries."""
    with Ledger.open(url) as reader:
        with Ledger.open(url) as ledger:
            newest = ledger.tail()[0]
            ledger.grant("beta", "events", epsilon=8)
        assert reader.terms().limits["L2"].filter.epsilon == 8
        edit(tmp_path, f"DELETE FROM entries WHERE n > {newest}")
        with Ledger.open(url) as ledger:
            ledger.grant("beta", "events", epsilon=0.5)
        with pytest.raises(OverBudgetError):
            reader.reserve(charge("c1", 4.0, "beta"))
        assert reader.terms().limits["L2"].filter.epsilon == 0.5


def test_who_is_woken_undecided_decides_alone(url: str, monkeypatch: pytest.MonkeyPatch):
    """An interrupt can strike whoever leads between any two steps; those who wait must neither hang nor be told nothing."""
    with Ledger.open(url) as ledger:
        run, calls = ledger._run, []

        def interrupted(batch: list[object]) -> None:
            calls.append(len(batch))
            if len(calls) == 1:
                while not ledger._waiting:
                    time.sleep(0.001)
                batch += ledger._waiting[:1]
                del ledger._waiting[:1]
                raise KeyboardInterrupt
            run(batch)  # type: ignore[arg-type]

        monkeypatch.setattr(ledger, "_run", interrupted)

        def lead() -> None:
            with suppress(KeyboardInterrupt):
                ledger.reserve(charge("c1"))

        leader = threading.Thread(target=lead)
        leader.start()
        while not calls:
            time.sleep(0.001)
        assert ledger.reserve(charge("c2")).state is State.RESERVED
        leader.join()
        assert (ledger.state("c1"), ledger.state("c2")) == (None, State.RESERVED)
        assert ledger.reserve(charge("c3")).state is State.RESERVED


def test_no_thread_to_tell_with_is_no_failure_to_charge(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Ledger.open(url, channels=[File(tmp_path / "alerts.jsonl")]) as ledger:
        monkeypatch.setattr(threading.Thread, "start", none_left)
        assert ledger.reserve(charge("c1", 0.9)).state is State.RESERVED
        monkeypatch.undo()
        assert ledger.deliver_pending() == 2


# ------------------------------------------------------------------------------------------------ rows that were rewritten


def test_a_release_and_its_row_that_were_both_exchanged_are_found(url: str, tmp_path: Path):
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("c1"))
        ledger.commit("c1", release='{"value":1}')
        forged = f"sha256:{sha256(b'[2]').hexdigest()}"
        told = f"told = json_set(told, '$.release', '{forged}')"
        edit(tmp_path, f"UPDATE charges SET {told}", "UPDATE releases SET body = '[2]'")
        with pytest.raises(TamperError, match="not the one that was committed"):
            ledger.stored("c1")


@pytest.mark.parametrize(
    "edited",
    ["state = 'voided'", "state = 'reserved', settle_n = NULL", "told = json_set(told, '$.entry', 4)", "settle_n = 4", "settle_n = 99"],
)
def test_no_receipt_is_signed_for_a_row_that_its_entry_does_not_bear_out(url: str, tmp_path: Path, edited: str):
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("c1"))
        ledger.commit("c1")
        assert ledger.sealed("c1")
        edit(tmp_path, f"UPDATE charges SET {edited}")
        with pytest.raises(TamperError, match="not what its entry says"):
            ledger.sealed("c1")


def test_a_row_lends_its_receipt_to_no_other_charge(url: str, tmp_path: Path):
    """Whoever asks with a charge of their own under a paid id would be told that it is paid."""
    dear = charge("c1", 100.0)
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("c1", 0.01))
        edit(tmp_path, f"UPDATE charges SET digest = '{charge_digest(dear)}'")
        with pytest.raises(TamperError, match="not what its entry says"):
            ledger.reserve(dear)
        steps = charge("c2", event=ev.Repeat(ev.PureDp(0.01), 50))
        assert ledger.reserve_up_to(steps).receipt.replayed is False
        assert ledger.reserve_up_to(steps).receipt.replayed is True
        edit(tmp_path, f"UPDATE charges SET digest = '{charge_digest(replace(steps, event=ev.Repeat(ev.PureDp(1.0), 9)))}:up_to'")
        with pytest.raises(TamperError, match="not what its entry says"):
            ledger.reserve_up_to(replace(steps, event=ev.Repeat(ev.PureDp(1.0), 9)))


@pytest.mark.parametrize(
    "edited",
    [
        "charges SET reserve_n = 99",
        "charges SET reserve_n = 0",
        "charges SET reserve_n = 5 WHERE id = 'c1'",
        "charges SET told = 'x'",
        "charges SET told = '{}'",
        "charges SET told = '[]'",
        "charges SET state = 'free'",
        "balances SET spent = 'none'",
        "balances SET spent = '-ff'",
        "balances SET events = -1",
    ],
)
def test_a_row_that_cannot_be_is_told_and_nothing_is_decided(url: str, tmp_path: Path, edited: str):
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("c1"))
        ledger.reserve(charge("c2"))
        before = list(ledger.lines())
    edit(tmp_path, f"UPDATE {edited}")
    with Ledger.open(url) as ledger:
        calls = [ledger.standings, lambda: ledger.reserve(charge("c3")), lambda: ledger.commit("c1"), lambda: ledger.receipt("c1")]
        for call in calls[:3] if "balances" in edited else calls[2:]:
            with pytest.raises(TamperError, match=r"audit the book|cannot be read"):
                call()
        assert list(ledger.lines()) == before


# ------------------------------------------------------------------------------------------------ terms that change


def test_budget_over_the_whole_dataset_moves_only_under_a_limit_over_the_whole_dataset():
    """Where a unit's rows reach over blocks, what stands above for each block bounds no sum over them."""
    unit = PrivacyUnit(dataset="visits", key="user")
    months = Dataset(name="visits", unit=unit, blocks=Blocks(column="ts", every=Every.MONTH))
    with Ledger.open("sqlite://") as ledger:
        ledger.add_dataset(months)
        ledger.grant("acme", "visits", epsilon=1, per="block")
        for name in ("acme/a", "acme/b"):
            ledger.grant(name, "visits", epsilon=1)
        with pytest.raises(RefusedError, match="units reach over blocks"):
            ledger.move("acme/a", "acme/b", "visits", epsilon=0.5)
        for name in ("acme/a", "acme/b"):
            ledger.grant(name, "visits", epsilon=1, per="block")
        assert [limit.per for limit in ledger.move("acme/a", "acme/b", "visits", epsilon=0.5)] == ["block", "block"]
        ledger.grant("acme", "visits", epsilon=1)
        assert [limit.per for limit in ledger.move("acme/a", "acme/b", "visits", epsilon=0.25)] == ["dataset", "dataset"]


def test_what_is_left_of_a_limit_that_has_ended_moves_nowhere():
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with Ledger.open("sqlite://", clock=lambda: now[0]) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.grant("acme", "events", epsilon=2)
        ledger.grant("acme/old", "events", epsilon=1, ends=datetime(2026, 2, 1, tzinfo=UTC))
        ledger.grant("acme/new", "events", epsilon=1)
        ledger.move("acme/old", "acme/new", "events", epsilon=0.25)
        now[0] = datetime(2026, 2, 1, tzinfo=UTC)
        with pytest.raises(RefusedError, match="not carried over"):
            ledger.move("acme/old", "acme/new", "events", epsilon=0.25)


def test_a_limit_that_comes_after_charges_is_told_of(url: str):
    """It is a filter over what is charged from then on; nobody may take it for a bound on what went before."""
    with Ledger.open(url) as ledger:
        ledger.grant("beta/ads", "events", epsilon=1)
        ledger.reserve(charge("b1", 1.0, "beta/ads"))
        ledger.grant("beta", "events", epsilon=1)
        ledger.grant("beta/adsense", "events", epsilon=0.5)
        (late,) = [note for note in ledger.notes() if "comes on top" in note]
        assert late.startswith("Limit L3 of account 'beta' on dataset 'events' was granted at 20")
        ledger.void("b1", "nothing was read")
        assert not any("comes on top" in note for note in ledger.notes())


@pytest.mark.parametrize(
    "given",
    [{"channels": None}, {"channels": ["log"]}, {"clock": True}, {"key": 7}, {"key": "a\ud800"}, {"key": "k" * 5_000}, {"anchor": ""}],
    ids=str,
)
def test_what_a_book_cannot_be_opened_with_is_told(given: dict[str, object]):
    with pytest.raises(InputError, match=f"^{next(iter(given))}="):
        Ledger.open("sqlite://", **given)  # type: ignore[arg-type]


def test_what_is_no_text_is_told(url: str):
    with Ledger.open(url) as ledger:
        for call in (
            lambda: ledger.commit("c1", release=True),  # type: ignore[arg-type]
            lambda: ledger.standings(None, []),  # type: ignore[arg-type]
            lambda: ledger.balance("acme", block={}),  # type: ignore[arg-type]
        ):
            with pytest.raises(InputError, match="not allowed"):
                call()


# ------------------------------------------------------------------------------------------------ audits


def busy(ledger: Ledger) -> None:
    """A bit of everything that a book can hold."""
    months = Dataset(name="visits", unit=PrivacyUnit(dataset="visits"), blocks=Blocks(column="ts", every=Every.MONTH))
    ledger.add_dataset(months)
    ledger.grant("acme", "visits", epsilon=3, delta=1e-6, per="block")
    ledger.grant("acme/a", "visits", epsilon=1, delta=1e-7)
    ledger.grant("acme/b", "visits", epsilon=1, delta=1e-7)
    for turn in range(600):
        name, blocks = f"v{turn}", ("2026-01", "2026-02")[: 1 + turn % 2]
        where = {"unit": months.unit, "account": ("acme", "ab"[turn % 2]), "blocks": blocks}
        event = ev.Repeat(ev.Gaussian(200.0), 2 + turn % 5)
        ledger.reserve(replace(charge(name), event=event, **where))
        if turn % 7 == 1:
            ledger.void(name, "the source could not be opened")
        elif turn % 7 > 2:
            ledger.commit(
                name, event=ev.Repeat(ev.Gaussian(200.0), 1) if turn % 3 else None, release=f"[{turn}]" if turn % 5 == 0 else None
            )
    ledger.move("acme/a", "acme/b", "visits", epsilon=0.125)
    ledger.reserve_up_to(charge("c1", event=ev.Repeat(ev.PureDp(0.25), 9)))
    ledger.commit("c1", event=ev.Repeat(ev.PureDp(0.25), 3), release="[1]")
    with pytest.raises(OverBudgetError):
        ledger.reserve(charge("c2", 2.0))


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a busy book, to be copied."""
    folder = tmp_path_factory.mktemp("busy")
    with Ledger.open(f"sqlite:///{folder}/book.db") as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.grant("acme", "events", epsilon=1)
        busy(ledger)
    return folder


def copied(much: Path, tmp_path: Path) -> str:
    shutil.copytree(much, tmp_path, dirs_exist_ok=True)
    return f"sqlite:///{tmp_path}/book.db"


def test_an_audit_finds_nothing_in_a_busy_book(much: Path, tmp_path: Path):
    url = copied(much, tmp_path)
    with Ledger.open(url) as ledger:
        report = ledger.audit()
        assert (report.findings, report.ok, report.signed) == ((), True, True)
        assert (report.entries, report.checkpoints, report.open_charges > 0) == (ledger.tail()[0] + 1, 1, True)
        ledger.reserve(charge("c3", 0.125))
        assert ledger.audit().ok
    with Ledger.open(url, readonly=True) as ledger:
        assert ledger.audit().ok


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        ("UPDATE balances SET spent = '0' WHERE limit_id = 'L1'", "limit L1 of account 'acme' on dataset 'events' is not what its entries"),
        ("UPDATE balances SET alerted = 3 WHERE limit_id = 'L2' AND block = '2026-01'", "'visits' for each block (block 2026-01) is not"),
        (
            "DELETE FROM balances WHERE limit_id = 'L4' AND block = '2026-02'",
            "limit L4 of account 'acme/b' on dataset 'visits' (block 2026",
        ),
        ("UPDATE balances SET block = '2027-01' WHERE limit_id = 'L2' AND block = '2026-01'", "(block 2027-01) is not what its entries"),
        ("UPDATE balances SET spent = 'much' WHERE limit_id = 'L1'", "cannot be read"),
        ("UPDATE charges SET state = 'voided' WHERE id = 'c1'", "The row of charge 'c1' is not"),
        ("UPDATE charges SET settle_n = NULL, state = 'reserved' WHERE id = 'c1'", "The row of charge 'c1' is not"),
        ("UPDATE charges SET holder = 'me' WHERE id = 'v0'", "The row of charge 'v0' is not"),
        ("UPDATE charges SET digest = 'sha256:0' WHERE id = 'v0'", "The row of charge 'v0' is not"),
        ("UPDATE charges SET told = '{}' WHERE id = 'v0'", "The row of charge 'v0' is not"),
        ("DELETE FROM charges WHERE id = 'v0'", "1 of the charges in the entries have no row"),
        ("UPDATE releases SET body = '[2]' WHERE charge = 'c1'", "The release of charge 'c1' is another than committed"),
        ("DELETE FROM releases WHERE charge = 'c1'", "The release of charge 'c1' is not kept as committed"),
        ("INSERT INTO releases VALUES ('v1', '[0]')", "1 of the releases are of no committed charge"),
        ("UPDATE entries SET terms = 3 WHERE n = 99", "entry 99: row: Its row is not what its line says"),
        ("UPDATE entries SET charge = NULL WHERE charge = 'c1'", "Its row is not what its line says"),
        ("UPDATE entries SET line = replace(line, 'weekly', 'daily') WHERE charge = 'v0'", "chain"),
        ("SELECT 1", "guards are gone"),
    ],
)
def test_an_audit_finds_a_hand_in_the_rows(much: Path, tmp_path: Path, edited: str, told: str):
    url = copied(much, tmp_path)
    edit(tmp_path, edited)
    with Ledger.open(url, readonly=True) as ledger:
        report = ledger.audit()
        assert not report.ok
        assert told in str(report)


def test_terms_that_were_hidden_are_told_of(much: Path, tmp_path: Path):
    url = copied(much, tmp_path)
    edit(tmp_path, "UPDATE entries SET terms = 0 WHERE kind = 'limit'")
    with pytest.raises(TamperError, match="agree on cannot be read"):
        Ledger.open(url, readonly=True)


# ------------------------------------------------------------------------------------------------ arithmetic


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.003, 1e-3), (0.01, 1e-6), (0.01, 1e-3), (0.1, 1e-9), (0.1, 1e-6), (0.1, 1e-3), (1.0, 1e-9)]
)
def test_a_small_reading_is_rounded_up_too(epsilon: float, delta: float):
    """What is added to a divergence is large beside a small ε, and nearly cancels it: so do the digits."""
    gauge = Gauge.of(FilterSpec.of(epsilon, delta, kind="rdp", side_delta=0), Neighbors.ADD_REMOVE)
    for part in range(1, 8):
        spent = gauge.price(ev.PureDp(epsilon * part / 8))
        reading, _ = gauge.spent_reading(spent, 1)
        assert Gauge.of(FilterSpec.of(reading, delta, kind="rdp", side_delta=0), Neighbors.ADD_REMOVE).fits(spent)
