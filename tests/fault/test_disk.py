"""The disk, the file and the clock fail: a LedgerError and no receipt, nothing half-written, and the same id works once they are back."""

import os
import resource
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from child import RELEASE, TEAM, UNIT, Child, charge, prepared

from accountant import Audit
from dither import events as ev
from dither.core.errors import LedgerError, RefusedError, TamperError
from dither.core.plans import State
from dither.ledger import store
from dither.ledger.book import Ledger
from dither.ledger.terms import Dataset
from dither.ledger.verify import verify

TABLES = ("entries", "charges", "balances", "releases")


def audited(ledger):
    report = verify([*ledger.lines(), ledger.trailer()], public_key=ledger.public_key)
    assert report.ok, str(report)
    return Audit(ledger.lines())


# ------------------------------------------------------------------------------------------------ power cuts


def dumped(path):
    """All rows of a book, as SQLite itself gives them back after it has read its log."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")  # of this copy, which is thrown away
    try:
        return tuple(tuple(connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")) for table in TABLES)
    finally:
        connection.close()


class Cut:
    """A book whose log holds a few transactions, the last two of which are cut off byte by byte."""

    def __init__(self, folder):
        self.folder, self.url = folder, f"sqlite:///{folder}/book.db"
        self.anchor = folder / "anchors"
        prepared(self.url, epsilon=1, anchor=self.anchor)
        self.states, ends = [], []
        with Ledger.open(self.url, anchor=self.anchor) as ledger:
            ledger.reserve(charge("first", ev.PureDp(0.1)))
            ledger.commit("first", release=RELEASE)
            for step in (
                lambda: None,
                lambda: ledger.reserve(charge("last", ev.PureDp(0.2))),
                lambda: ledger.commit("last", release=RELEASE),
            ):
                step()
                ends.append((folder / "book.db-wal").stat().st_size)
                self.states.append(self._copied(f"state{len(ends)}"))
            self.database, self.log = (folder / "book.db").read_bytes(), (folder / "book.db-wal").read_bytes()
            self.lines = list(ledger.lines())
        self.first, self.end = ends[0], ends[-1]
        assert ends == sorted(set(ends)), "the log only grew"

    def _copied(self, name):
        place = self.folder / name
        place.mkdir()
        for end in ("", "-wal"):
            shutil.copy(self.folder / f"book.db{end}", place / f"book.db{end}")
        return dumped(place / "book.db")

    def after(self, log, name="cut"):
        """What is left of the book where this much of the log reached the disk: the number of the state, and its folder."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        for end in ("-wal", "-shm"):
            (place / f"book.db{end}").unlink(missing_ok=True)
        (place / "book.db").write_bytes(self.database)
        (place / "book.db-wal").write_bytes(log)
        return self.states.index(dumped(place / "book.db")), place

    def places(self, every):
        """Bytes at which to cut: each, or some and all around the ends of pages."""
        page = int.from_bytes(self.log[8:12], "big") + 24
        near = {e + d for e in range(32, self.end + 1, page) for d in (-1, 0, 1, 24)}
        return [k for k in range(self.first, self.end + 1) if k % every == 0 or k in near or k == self.end]

    def reopened(self, state, place):
        """Without an anchor the shorter book is a good one; with it, what is missing is found."""
        for end in (".key", ".pub"):
            for key in self.folder.glob(f"*{end}"):
                shutil.copy(key, place / key.name)
        url = f"sqlite:///{place}/book.db"
        with Ledger.open(url) as ledger:
            found = audited(ledger)
            assert list(ledger.lines()) == self.lines[: found.count]
            assert ledger.state("last") == (None, State.RESERVED, State.COMMITTED)[state]
            assert state == 0 or ledger.stored("last") == (RELEASE if state == 2 else None)
        kept = place / "anchors"
        shutil.copy(self.anchor, kept)
        if state < 2:
            with pytest.raises(TamperError):
                Ledger.open(url, anchor=kept)
        else:
            Ledger.open(url, anchor=kept).close()


def cut_everywhere(folder, every, damaged=lambda log, k: log[:k]):
    cut = Cut(folder)
    seen, last = {}, 0
    for k in cut.places(every):
        state, place = cut.after(damaged(cut.log, k))
        assert state >= last, "what was on disk before is on disk"
        last = state
        if state not in seen:
            seen[state] = shutil.copytree(place, folder / f"seen{state}")
    assert sorted(seen) == [0, 1, 2], "a transaction is there whole or not at all"
    for state, place in seen.items():
        cut.reopened(state, place)


def test_power_is_cut_within_the_last_two_transactions(tmp_path):
    cut_everywhere(tmp_path, 211)


@pytest.mark.slow
def test_power_is_cut_at_every_byte_of_the_last_two_transactions(tmp_path):
    cut_everywhere(tmp_path, 1)


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\xa5"])
def test_the_end_of_the_log_is_garbage(tmp_path, filler):
    """A disk that had grown the file but not yet written it."""
    cut_everywhere(tmp_path, 997, lambda log, k: log[:k] + filler * (len(log) - k))


def test_an_older_copy_of_the_book_is_found_by_its_anchor(tmp_path):
    url, anchor = f"sqlite:///{tmp_path}/book.db", tmp_path / "anchors"
    prepared(url, epsilon=1, anchor=anchor)
    shutil.copy(tmp_path / "book.db", tmp_path / "old.db")
    with Ledger.open(url, anchor=anchor) as ledger:
        ledger.reserve(charge("c", ev.PureDp(0.5)))
        ledger.commit("c")
    for end in ("-wal", "-shm"):
        (tmp_path / f"book.db{end}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "old.db", tmp_path / "book.db")
    with pytest.raises(TamperError):
        Ledger.open(url, anchor=anchor)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_the_file_changes_hands_while_the_book_is_open(tmp_path, how):
    url, path = f"sqlite:///{tmp_path}/book.db", tmp_path / "book.db"
    prepared(url, epsilon=1)
    old = path.read_bytes()
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("c", ev.PureDp(0.5)))
        if how == "removed":
            path.unlink()
        else:
            (tmp_path / "new").write_bytes(old)
            (tmp_path / "new").replace(path)
        with pytest.raises(LedgerError):
            ledger.reserve(charge("d", ev.PureDp(0.5)))


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_book_that_begins_anew_is_found_by_its_anchor(tmp_path, how):
    url, anchor = f"sqlite:///{tmp_path}/book.db", tmp_path / "anchors"
    prepared(url, epsilon=1, anchor=anchor)
    if how == "removed":
        (tmp_path / "book.db").unlink()
    else:
        (tmp_path / "book.db").write_bytes(b"")
    with pytest.raises(TamperError):
        Ledger.open(url, anchor=anchor)


# ------------------------------------------------------------------------------------------------ no room


def fills(pipe, url, how, folder):
    """Spend until there is no room; then make room, and go on with the very charge that failed."""
    pages = sa.event.listen(sa.engine.Engine, "connect", few_pages) if how == "pages" else None
    with Ledger.open(url) as ledger:
        end = room(how, folder)
        name = spend_until_full(pipe, ledger)
        for _ in range(3):
            try:
                ledger.reserve(charge(name, ev.PureDp(0.001), purpose="p" * 900))
            except LedgerError:
                pipe.send(("failed", name))
        end()
        del pages
    if how == "pages":
        sa.event.remove(sa.engine.Engine, "connect", few_pages)
    with Ledger.open(url) as ledger:
        ledger.reserve(charge(name, ev.PureDp(0.001), purpose="p" * 900))
        pipe.send(("reserved", name))
        ledger.commit(name)
        pipe.send(("committed", name))


def spend_until_full(pipe, ledger):
    for i in range(10_000):
        name = f"c{i}"
        try:
            ledger.reserve(charge(name, ev.PureDp(0.001), purpose="p" * 900))
            pipe.send(("reserved", name))
            ledger.commit(name, release='"' + "x" * 2_000 + '"')
            pipe.send(("committed", name))
        except LedgerError as error:
            pipe.send(("full", name, str(error)))
            return name
    raise AssertionError("there was always room")


def few_pages(connection, _record):
    connection.execute("PRAGMA max_page_count = 80")


def room(how, folder):
    """Take the room away; gives back what gives it back."""
    if how == "file size":
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    if how == "disk":
        filler = Path(folder) / "filler"
        with filler.open("wb") as file:
            left = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
            file.write(b"\0" * max(left - 150_000, 0))
        return filler.unlink
    return lambda: None


@contextmanager
def small_disk(folder):
    """A file system of its own, of 4 MB."""
    folder.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=False, capture_output=True).returncode
    ):
        pytest.skip("a file system can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("how", ["file size", "pages", "disk"])
def test_there_is_no_room(tmp_path, how):
    with small_disk(tmp_path / "small") if how == "disk" else small(tmp_path) as folder:
        url = f"sqlite:///{folder}/book.db"
        prepared(url, epsilon=900)
        child = Child(fills, url, how, str(folder))
        assert child.ended() == 0
        ((_, name, text),) = [m for m in child.heard if m[0] == "full"]
        assert "cannot be used" in text
        assert "p" * 20 not in text
        with Ledger.open(url) as ledger:
            audit = audited(ledger)
            for what, one, *_ in child.heard:
                if what in {"reserved", "committed"}:
                    assert audit.states[one] == "committed"
            assert sum(c["id"] == name for c in audit.charges.values()) == 1
            assert ledger.open_charges() == ()


@contextmanager
def small(folder):
    yield folder


# ------------------------------------------------------------------------------------------------ no right, no turn


def tries(pipe, url, uid):
    """Try to spend as another user; only what the book said comes back."""
    prepared("sqlite://", epsilon=1)  # loads all that runs, for its files may be out of that user's reach
    if uid:
        os.setgid(uid)
        os.setuid(uid)
    try:
        with Ledger.open(url) as ledger:
            pipe.send(("open",))
            ledger.reserve(charge("c", ev.PureDp(0.5)))
            pipe.send(("reserved", "c"))
    except LedgerError as error:
        pipe.send(("failed", str(error)))


@pytest.fixture
def reachable():
    """A folder that any user may enter; those of pytest are for their owner only."""
    with tempfile.TemporaryDirectory(prefix="dither-") as place:
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.mark.parametrize("what", ["file", "folder", "file and folder", "key", "way"])
def test_without_the_right_to_write_nothing_is_charged(reachable, what):
    folder = reachable / "above" / "book"
    folder.mkdir(parents=True)
    url = f"sqlite:///{folder}/book.db"
    prepared(url, epsilon=1)
    uid = 65_534 if os.geteuid() == 0 else 0
    for path in (folder.parent, folder, *folder.iterdir()):
        if uid:
            os.chown(path, uid, uid)
    if "file" in what:
        (folder / "book.db").chmod(0o400)
    if "folder" in what:
        folder.chmod(0o500)
    if what == "key":
        next(folder.glob("*.key")).chmod(0)
    if what == "way":
        folder.parent.chmod(0)
    child = Child(tries, url, uid)
    assert child.ended() == 0
    assert [m[0] for m in child.heard if m[0] != "open"] == ["failed"], child.heard
    folder.parent.chmod(0o700)
    folder.chmod(0o700)
    for path in folder.iterdir():
        path.chmod(0o600)
        os.chown(path, os.geteuid(), os.getegid())
    with Ledger.open(url) as ledger:
        assert audited(ledger).kinds["reserve"] == 0


@contextmanager
def occupied(url, server):
    """Another holds the right to write, past the ledger."""
    if url.startswith("sqlite"):
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
    else:
        other = server.connect(url.split("@/")[1].split("?")[0])
        other.execute("BEGIN")
        other.execute("LOCK TABLE turn IN EXCLUSIVE MODE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_a_locked_book_is_waited_for_and_then_refused(book_url, request, monkeypatch):
    monkeypatch.setattr(store, "WAIT_SECONDS", 0.5)
    server = request.getfixturevalue("postgres") if book_url.startswith("postgres") else None
    prepared(book_url, epsilon=1)
    with Ledger.open(book_url) as ledger:
        ledger.reserve(charge("mine", ev.PureDp(0.1)))
        before = ledger.tail()
        with occupied(book_url, server):
            for call in (
                lambda: ledger.reserve(charge("c", ev.PureDp(0.5))),
                lambda: ledger.commit("mine"),
                lambda: ledger.void("mine", "no row was read"),
                lambda: ledger.grant("acme/sales", "events", epsilon=1),
                lambda: ledger.add_account("acme/new"),
            ):
                with pytest.raises(LedgerError):
                    call()
            assert ledger.tail() == before, "who only reads does not wait"
            assert ledger.state("mine") is State.RESERVED
        assert not ledger.reserve(charge("c", ev.PureDp(0.5))).replayed
        assert ledger.commit("c").state is State.COMMITTED
        assert audited(ledger).kinds["reserve"] == 2


@pytest.mark.postgres
def test_a_server_that_only_reads_is_refused(postgres, postgres_url):
    prepared(postgres_url, epsilon=1)
    name = postgres_url.split("@/")[1].split("?")[0]
    with postgres.connect() as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(LedgerError), Ledger.open(postgres_url) as ledger:
        ledger.reserve(charge("c", ev.PureDp(0.5)))
    with postgres.connect() as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
    with Ledger.open(postgres_url) as ledger:
        assert audited(ledger).kinds["reserve"] == 0
        ledger.reserve(charge("c", ev.PureDp(0.5)))


@pytest.mark.postgres
def test_a_server_that_is_gone_is_a_ledger_error_at_every_call(postgres):
    url = postgres.database()
    prepared(url, epsilon=1)
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("mine", ev.PureDp(0.1)))
        postgres.stop()
        try:
            for call in (
                lambda: ledger.reserve(charge("c", ev.PureDp(0.5))),
                lambda: ledger.commit("mine"),
                ledger.tail,
                ledger.standings,
                lambda: ledger.state("mine"),
                lambda: list(ledger.lines()),
                lambda: Ledger.open(url),
            ):
                with pytest.raises(LedgerError):
                    call()
        finally:
            postgres.start()
        assert ledger.commit("mine").state is State.COMMITTED
        assert audited(ledger).kinds["reserve"] == 1
    postgres.drop(url)


# ------------------------------------------------------------------------------------------------ what the triggers hold


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entries",
        "UPDATE entries SET line = '' WHERE n = 0",
        "DELETE FROM charges",
        "UPDATE charges SET state = 'reserved' WHERE state = 'committed'",
        "INSERT INTO entries (n, kind, charge, at, terms, hash, line) VALUES (0, 'x', NULL, '', 0, '', '')",
    ],
)
def test_the_database_itself_refuses_to_change_what_was_written(book_url, request, statement):
    prepared(book_url, epsilon=1)
    with Ledger.open(book_url) as ledger:
        ledger.reserve(charge("c", ev.PureDp(0.5)))
        ledger.commit("c")
        lines = list(ledger.lines())
        engine = sa.create_engine(book_url)
        with pytest.raises(sa.exc.DBAPIError), engine.begin() as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()
        assert list(ledger.lines()) == lines
        audited(ledger)


# ------------------------------------------------------------------------------------------------ clocks


def test_a_clock_that_goes_back_opens_nothing_again(book_url):
    noon = datetime(2026, 11, 19, 12, tzinfo=UTC)
    now = [noon]
    with Ledger.open(book_url, clock=lambda: now[0]) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.add_account("acme")
        ledger.add_account("acme/ads")
        ledger.grant("acme", "events", epsilon=1, starts=noon + timedelta(hours=1), ends=noon + timedelta(hours=2))

        def at(hours, name):
            now[0] = noon + timedelta(hours=hours)
            return ledger.reserve(charge(name, ev.PureDp(0.1), TEAM))

        with pytest.raises(RefusedError):
            at(0.9, "early")
        assert at(1, "first").at == noon + timedelta(hours=1)
        assert at(-30, "clock back").at == noon + timedelta(hours=1)
        assert at(1.999, "last").state is State.RESERVED
        with pytest.raises(RefusedError):
            at(2, "late")
        for hours in (1.5, 0, -10_000, -700_000):
            with pytest.raises(RefusedError):
                at(hours, f"late and back {hours}")
        assert ledger.commit("first").at >= noon + timedelta(hours=2)
        assert audited(ledger).at == "2026-11-19T14:00:00.000000Z"
    now[0] = noon
    with Ledger.open(book_url, clock=lambda: now[0]) as ledger:
        with pytest.raises(RefusedError):
            ledger.reserve(charge("after a restart", ev.PureDp(0.1), TEAM))
        audited(ledger)


def test_a_clock_far_ahead_does_not_stop_the_book(book_url):
    now = [datetime(9998, 12, 31, tzinfo=UTC)]
    with Ledger.open(book_url, clock=lambda: now[0]) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        for account in ("acme", "acme/ads"):
            ledger.add_account(account)
        ledger.grant("acme", "events", epsilon=1)
        now[0] = datetime(2026, 1, 1, tzinfo=UTC)
        assert ledger.reserve(charge("c", ev.PureDp(0.1))).at.year == 9998
        audited(ledger)
