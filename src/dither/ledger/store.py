"""Where the book is kept: an SQLite file (WAL, full sync) or PostgreSQL, behind the same three calls.

``write`` runs a function in one exclusive transaction that is durable before it returns; ``read`` gives one snapshot;
``scan`` streams. Every failure of the database is a LedgerError, and what it left undone is rolled back.

An SQLite file is trusted while its one name, its log and its index are the very files that were opened: writes to a log that
was removed would be lost. Before a process forks, its connections are closed, for SQLite cannot be carried over.

In PostgreSQL writers queue on the lock of an empty table, so that each sees all that was written before it. They give the lock
back before the disk has answered, then wait for it together: a commit record later in the log is never durable
without those before it, so what a writer built on is on disk when its own record is.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeAlias, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool, StaticPool

from dither.core import checks
from dither.core.errors import InputError, LedgerError, MissingExtraError, TamperError, shown
from dither.ledger import forks, schema

Query: TypeAlias = tuple[str, Sequence[object]]
Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")

WAIT_SECONDS: Final = 10.0
"""How long a writer waits for the others."""
TRIES: Final = 8
_CHUNK = 4096
_MIGRATING = 0x646974686572  # "dither", for PostgreSQL's advisory lock


class Turn(Protocol):
    """One transaction: questions now, statements at its end."""

    def ask(self, *queries: Query) -> list[list[Row]]:
        """The rows of each query."""
        ...

    def tell(self, sql: str, *rows: Sequence[object]) -> None:
        """One statement, once for each row, when the transaction commits."""
        ...


class Store(Protocol):
    """A database that holds a book."""

    url: str

    def write(self, work: Callable[[Turn], T]) -> T:
        """What ``work`` returns, once all it told is durable. It may be run again from the start, so it changes nothing else."""
        ...

    def read(self, *queries: Query) -> list[list[Row]]:
        """The rows of each query, all of one moment."""
        ...

    def scan(self, first: int, last: int) -> Iterator[str]:
        """The lines from ``first`` to before ``last``."""
        ...

    def close(self) -> None:
        """Give back files and connections."""
        ...


def open_store(url: str, *, create: bool) -> Store:
    """The store of a URL; its tables are made or brought up to date.

    >>> store = open_store("sqlite://", create=True)
    >>> store.read(("SELECT count(*) FROM entries", ()))
    [[(0,)]]
    """
    try:
        parsed = sa.make_url(checks.text("url", url, limit=4_000))
    except sa.exc.ArgumentError:
        parsed = None
    backend = None if parsed is None else parsed.get_backend_name()
    if parsed is None or backend not in {"sqlite", "postgresql"}:
        given = "<url>" if parsed is not None and parsed.password else shown(url)
        raise InputError(f"url={given} is not allowed: expected sqlite:///dither.db or postgresql+psycopg://user@host/database.")
    if backend == "sqlite":
        return _Sqlite(parsed, create=create)
    return _Postgres(parsed.set(drivername="postgresql+psycopg"), create=create)


_SCAN = "SELECT line FROM entries WHERE n >= ? AND n < ? ORDER BY n"


def _chunks(ask: Callable[[Query], list[Row]], first: int, last: int) -> Iterator[str]:
    for start in range(first, last, _CHUNK):
        for (line,) in ask((_SCAN, (start, min(start + _CHUNK, last)))):
            yield line


def _migrated(connection: sa.Connection, begin: str, *, create: bool, where: str) -> None:
    """Inside one transaction, so that two who open a new book at once make it once."""
    connection.exec_driver_sql(begin)
    try:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
        found = schema.version(connection)
        if found is None and not create:
            raise LedgerError(f"There is no book in {where}: make one with  dither ledger open {where}.")
        if found != schema.VERSION:
            schema.upgrade(connection)
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        with suppress(sa.exc.SQLAlchemyError):
            connection.exec_driver_sql("ROLLBACK")
        raise


# ------------------------------------------------------------------------------------------------ SQLite


class _SqliteTurn:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.told: list[tuple[str, tuple[Sequence[object], ...]]] = []

    def ask(self, *queries: Query) -> list[list[Row]]:
        return [self._connection.execute(sql, tuple(given)).fetchall() for sql, given in queries]

    def tell(self, sql: str, *rows: Sequence[object]) -> None:
        self.told.append((sql, rows))


class _Sqlite:
    """A file that one process at a time writes, and any number read."""

    def __init__(self, url: sa.URL, *, create: bool) -> None:
        self._memory = url.database in {None, "", ":memory:"}
        self.url = "sqlite://" if self._memory else f"sqlite:///{url.database}"
        self._path = None if self._memory else Path(cast("str", url.database)).absolute()
        if url.query:
            raise InputError(f"url={shown(self.url)} with options is not allowed: expected sqlite:///FILE alone.")
        if self._path is not None:
            _check_place(self._path, create=create)
        real = "" if self._path is None else os.path.realpath(self._path)
        self._name = "" if self._path is None else str(self._path)
        self._beside = f"{real}-wal", f"{real}-shm"  # SQLite names them beside what a link points at
        self._lock = threading.RLock()
        self._made_by = os.getpid()
        self._gate = forks.Gate()
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=None if self._path is None else str(self._path)),
            poolclass=StaticPool if self._memory else QueuePool,
            connect_args={"isolation_level": None, "timeout": WAIT_SECONDS, "check_same_thread": False},
            isolation_level="AUTOCOMMIT",
            pool_reset_on_return=None,  # every transaction is ended here
        )
        sa.event.listen(self._engine, "connect", self._opened)
        if not self._memory:
            forks.heed(self)
        self._file = None if self._path is None else _identity(self._path)
        try:
            with self._connected(), self._engine.connect() as connection:
                _migrated(connection, "BEGIN IMMEDIATE", create=create, where=self.url)
        except (sqlite3.Error, sa.exc.SQLAlchemyError) as error:
            self._engine.dispose()
            raise self._failed(error) from None
        except BaseException:
            self._engine.dispose()
            raise
        self._file = None if self._path is None else _identity(self._path)

    def write(self, work: Callable[[Turn], T]) -> T:
        with self._connected() as held:
            connection = cast("sqlite3.Connection", held.driver_connection)
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._same_files(held)
                    turn = _SqliteTurn(connection)
                    result = work(turn)
                    for sql, rows in turn.told:
                        if len(rows) == 1:
                            connection.execute(sql, rows[0])
                        else:
                            connection.executemany(sql, rows)
                    connection.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._failed(error) from None
            self._same_files(held)
            return result

    def read(self, *queries: Query) -> list[list[Row]]:
        with self._connected() as held:
            connection = cast("sqlite3.Connection", held.driver_connection)
            try:
                connection.execute("BEGIN")
                try:
                    return _SqliteTurn(connection).ask(*queries)
                finally:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise self._failed(error) from None

    def scan(self, first: int, last: int) -> Iterator[str]:
        return _chunks(lambda query: self.read(query)[0], first, last)

    def close(self) -> None:
        self._engine.dispose()

    # -------------------------------------------------------------------------------------------- connections

    @contextmanager
    def _connected(self) -> Iterator[sa.PoolProxiedConnection]:
        if self._memory:
            if os.getpid() != self._made_by:
                raise LedgerError("A private ledger in memory does not survive a fork: open one in the child.")
            with self._lock:
                yield from self._checked_out()
            return
        if self._file is not None and self._file in _LEFT_OPEN:
            raise LedgerError(
                f"The book {self.url} was in use when this process was forked, and SQLite cannot be carried over: open it in a process "
                "that is started anew (multiprocessing's 'spawn' or 'forkserver')."
            )
        with self._gate:
            yield from self._checked_out()

    def _checked_out(self) -> Iterator[sa.PoolProxiedConnection]:
        try:
            held = self._engine.raw_connection()
        except (sqlite3.Error, sa.exc.SQLAlchemyError) as error:
            raise self._failed(error) from None
        try:
            yield held
        finally:
            held.close()

    def _opened(self, connection: sqlite3.Connection, record: sa.pool.ConnectionPoolEntry) -> None:
        """A new connection: full sync, and which log and index it has opened."""
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        if mode == "wal" and self._path is not None:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            record.info["beside"] = _identities(self._beside)

    def _same_files(self, held: sa.PoolProxiedConnection) -> None:
        """A file that was moved away takes its writes with it: they would be durable, and lost. So would those under two names."""
        if self._path is None:
            return
        try:
            found = os.stat(self._name)  # noqa: PTH116 - twice in every transaction
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise TamperError(
                f"The file of the book, {self._path}, was removed or replaced while it was open: put it back, and open it again."
            )
        if "beside" in held.info and held.info["beside"] != _identities(self._beside):
            raise TamperError(
                f"The log of the book, {self._path}-wal, or its index was removed or replaced while it was open: close it in every "
                "process, and open it again. What was just asked is not in the book."
            )
        if found.st_nlink > 1:
            _check_name(self._path)

    # -------------------------------------------------------------------------------------------- forks

    def about_to_fork(self) -> None:
        """No transaction begins any more."""
        self._gate.shut()

    def drained(self) -> bool:
        """Wait until none runs, and close every connection; whether that could be done."""
        done = self._gate.drained(WAIT_SECONDS)
        self._engine.dispose(close=done)
        return done

    def forked(self, *, child: bool, clean: bool) -> None:
        """Go on, here and in the child: each with connections of its own."""
        if child:
            self._gate = forks.Gate()
            if not clean:
                _LEFT_OPEN.add(self._file)
        else:
            self._gate.open()

    def _failed(self, error: Exception) -> LedgerError:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        return LedgerError(f"The book {self.url} cannot be used: {_sqlite_words(cause)}")


_LEFT_OPEN: set[tuple[int, int] | None] = set()
"""Files that a thread of the parent was using at the fork: SQLite in this process takes the parent's locks for its own."""


def _check_place(path: Path, *, create: bool) -> None:
    try:
        if not path.parent.is_dir():
            raise LedgerError(f"The folder {path.parent} of the book does not exist: make it, or give another place.")
        if not path.exists() and not create:
            raise LedgerError(f"There is no book at {path}: make one with  dither ledger open sqlite:///{path.name}.")
    except OSError:
        raise LedgerError(f"The folder {path.parent} of the book cannot be entered: give the right to it, or give another place.") from None
    _check_name(path)


def _check_name(path: Path) -> None:
    """Under another name the same file has another log, and two writers would not see each other."""
    try:
        names = path.stat().st_nlink
    except OSError:
        return
    if names > 1:
        raise LedgerError(f"The file of the book, {path}, has {names} names (hard links): remove the others, or make copies of them.")


def _identity(path: Path | str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - twice in every transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _identities(paths: tuple[str, ...]) -> list[tuple[int, int] | None]:
    return [_identity(path) for path in paths]


def _sqlite_words(error: object) -> str:
    """What to do, by SQLite's own result code; its texts may name what was written."""
    code = getattr(error, "sqlite_errorcode", 0) or 0
    match code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"another process has held it for {WAIT_SECONDS:g} s. Try again with the same id, or find out who holds it."
        case sqlite3.SQLITE_FULL:
            return "its disk is full. Make room, and try again with the same id."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return "it is read-only here. Give the right to write to the file and its folder."
        case sqlite3.SQLITE_CANTOPEN:
            return "its file cannot be opened. Check the path, and the rights to the file and its folder."
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return "its file is damaged, or is no SQLite database. Restore it from a copy, and verify it against the anchors."
        case sqlite3.SQLITE_IOERR:
            return "its disk does not answer. Try again with the same id once it does."
        case sqlite3.SQLITE_CONSTRAINT:
            return "what would be written contradicts it. Verify the book."
        case _:
            return f"SQLite failed ({getattr(error, 'sqlite_errorname', None) or type(error).__name__})."


# ------------------------------------------------------------------------------------------------ PostgreSQL

_AGAIN = frozenset({"40001", "40P01"})
_BEGIN = ("BEGIN ISOLATION LEVEL SERIALIZABLE", "LOCK TABLE turn IN EXCLUSIVE MODE", "SET LOCAL synchronous_commit = off")
_DURABLE = "SELECT pg_logical_emit_message(true, 'dither', '')"
"""A record of its own, committed with full sync: once it is on disk, so is all before it."""


class _PostgresTurn:
    """Questions and statements travel in one packet each way; the transaction begins with the first question."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - psycopg is an extra
        self._connection = connection
        self._begun = False
        self.told: list[tuple[str, tuple[Sequence[object], ...]]] = []

    def ask(self, *queries: Query) -> list[list[Row]]:
        with self._connection.pipeline():
            if not self._begun:
                self._begun = True
                for statement in _BEGIN:
                    self._connection.execute(statement)
            cursors = [self._connection.execute(_percent(sql), tuple(given)) for sql, given in queries]
        return [cursor.fetchall() for cursor in cursors]

    def tell(self, sql: str, *rows: Sequence[object]) -> None:
        self.told.append((sql, rows))

    def finish(self) -> None:
        """Write what was told, commit, and wait for the disk without holding up the next writer."""
        with self._connection.pipeline():
            for sql, rows in self.told:
                for many, given in _together(sql, rows):
                    self._connection.execute(many, given)
            self._connection.execute("COMMIT")
            self._connection.execute(_DURABLE)


class _Postgres:
    """A database for teams."""

    def __init__(self, url: sa.URL, *, create: bool) -> None:
        try:
            import psycopg  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtraError("A ledger in PostgreSQL", "postgres") from None
        self._psycopg = psycopg
        self.url = url.render_as_string(hide_password=True)
        self._made_by = os.getpid()
        self._engine = sa.create_engine(
            url,
            poolclass=QueuePool,
            pool_size=8,
            max_overflow=24,
            pool_timeout=WAIT_SECONDS,
            isolation_level="AUTOCOMMIT",
            pool_reset_on_return=None,  # every transaction is ended here
            connect_args={
                "connect_timeout": int(WAIT_SECONDS),
                "options": f"-c synchronous_commit=on -c lock_timeout={int(1000 * WAIT_SECONDS)}",
            },
        )
        try:
            with self._engine.connect() as connection:
                if connection.exec_driver_sql("SHOW fsync").scalar() != "on":
                    raise LedgerError(f"The server of {self.url} runs with fsync = off, so a charge could be forgotten: set fsync = on.")
                _migrated(connection, "BEGIN", create=create, where=self.url)
        except (psycopg.Error, sa.exc.SQLAlchemyError) as error:
            self._engine.dispose()
            raise self._failed(error) from None

    def write(self, work: Callable[[Turn], T]) -> T:
        for left in reversed(range(TRIES)):
            with self._connected() as connection:
                turn = _PostgresTurn(connection)
                try:
                    try:
                        result = work(turn)
                        turn.finish()
                    except BaseException:
                        self._rolled_back(connection)
                        raise
                except self._psycopg.Error as error:
                    if error.sqlstate not in _AGAIN or not left:
                        self._broken(connection, error)
                else:
                    return result
        raise AssertionError("unreachable: the last try returns or raises")

    def read(self, *queries: Query) -> list[list[Row]]:
        with self._connected() as connection:
            try:
                with connection.pipeline():
                    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    cursors = [connection.execute(_percent(sql), tuple(given)) for sql, given in queries]
                    connection.execute("COMMIT")
                return [cursor.fetchall() for cursor in cursors]
            except self._psycopg.Error as error:
                self._rolled_back(connection)
                self._broken(connection, error)

    def scan(self, first: int, last: int) -> Iterator[str]:
        return _chunks(lambda query: self.read(query)[0], first, last)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if os.getpid() != self._made_by:
            self._engine.dispose(close=False)
            self._made_by = os.getpid()
        try:
            held = self._engine.raw_connection()
        except (self._psycopg.Error, sa.exc.SQLAlchemyError) as error:
            raise self._failed(error) from None
        try:
            yield held.driver_connection
        finally:
            if getattr(held.driver_connection, "broken", False) or getattr(held.driver_connection, "closed", False):
                held.invalidate()
            else:
                held.close()

    def _rolled_back(self, connection: Any) -> None:  # noqa: ANN401 - psycopg is an extra
        """No transaction stays open, and a connection that cannot say so is given up."""
        try:
            connection.execute("ROLLBACK")
        except self._psycopg.Error:
            connection.close()

    def _broken(self, connection: Any, error: Exception) -> NoReturn:  # noqa: ANN401 - psycopg is an extra
        if getattr(error, "sqlstate", None) is None or str(error.sqlstate).startswith(("08", "57")):  # type: ignore[attr-defined]
            connection.close()
            self._engine.dispose(close=False)  # the server went away: so did its other connections
        raise self._failed(error) from None

    def _failed(self, error: Exception) -> LedgerError:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        return LedgerError(f"The book {self.url} cannot be used: {_postgres_words(getattr(cause, 'sqlstate', None))}")


def _postgres_words(state: str | None) -> str:
    """What to do, by the error's code; PostgreSQL's texts may name what was written."""
    if state is None or state.startswith(("08", "57")):
        return "the server cannot be reached, or stopped. Whether the last charge was written is unknown: try again with the same id."
    if state in {"55P03", "40001", "40P01"}:
        return f"other writers have held it for {WAIT_SECONDS:g} s. Try again with the same id."
    if state.startswith("53"):
        return "the server has no room left (disk, memory or connections). Make room, and try again with the same id."
    if state.startswith("28") or state in {"3D000", "42501"}:
        return "the server refused this user or database. Check the URL and the user's rights."
    if state == "25006":
        return "this server is read-only. Give the URL of the one that can be written."
    if state.startswith("23") or state in {"P0001", "42P01", "42703"}:
        return "what would be written contradicts it. Verify the book."
    return f"PostgreSQL failed (SQLSTATE {state})."


@lru_cache(maxsize=256)
def _percent(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


_ROWS = 500


def _together(sql: str, rows: Sequence[Sequence[object]]) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Many rows of one INSERT … VALUES as few statements; any other statement row by row."""
    head, found, tail = sql.partition(" VALUES ")
    if not found or len(rows) == 1:
        for row in rows:
            yield _percent(sql), tuple(row)
        return
    values, _, more = tail.partition(")")
    for start in range(0, len(rows), _ROWS):
        chunk = rows[start : start + _ROWS]
        yield _percent(f"{head} VALUES {', '.join([f'{values})'] * len(chunk))}{more}"), tuple(v for row in chunk for v in row)
