"""Death at any step: what was acknowledged is there, what was begun is charged, nothing is free, and the next one can open the book."""

import hashlib
import os
import random
import signal
import sys
import threading
import time
import traceback

import pytest
from child import RELEASE, TEAM, Child, charge, prepared, spends

from accountant import Audit
from dither import events as ev
from dither.core.errors import LedgerError, OverBudgetError, RefusedError, TamperError
from dither.core.plans import State
from dither.ledger.book import Ledger
from dither.ledger.verify import verify

OPS = 10
DIGEST = "sha256:" + hashlib.sha256(RELEASE.encode()).hexdigest()


class Witness:
    """What the dead acknowledged, held against the book after it was opened again. The book is audited as it grows."""

    def __init__(self, url, **more):
        self.url, self.more = url, more
        self.audit = Audit()
        self.kills = self.lived = 0
        self.ends = dict.fromkeys(("nothing begun", "taken, not acknowledged", "recovered", "settled, not acknowledged", "all settled"), 0)

    def look(self, child):
        """Open the book after the death of its holder; everything it heard must be so."""
        status = child.ended()
        assert status in {0, -signal.SIGKILL}
        self.kills += status != 0
        self.lived += status == 0
        with Ledger.open(self.url, **self.more) as ledger:
            self.audit.feed(ledger.lines(self.audit.count))
            assert ledger.open_charges() == ()
        return self.agrees(child.heard)

    def agrees(self, heard):
        audit, last = self.audit, {}
        for what, *told in heard:
            if what in {"open", "places"}:
                continue
            name = told[0]
            last[name] = what
            if what == "trying":
                continue
            if what == "refused":
                assert audit.refused[name] == 1
                assert name not in audit.charges
                continue
            assert name in audit.charges, f"{name} was {what} and is lost"
            if what == "committed":
                assert audit.states[name] == "committed"
                assert name not in audit.recovered
                assert audit.releases[name] == (DIGEST if int(name.split("-")[-1]) % 5 == 0 else None)
            if what == "voided":
                assert audit.states[name] == "voided"
        for name, what in last.items():
            self._settled(name, what)
        return last

    def _settled(self, name, what):
        """Nothing stays open; only a void that was asked for gives anything back."""
        state = self.audit.states.get(name)
        if state is None:
            assert what in {"trying", "refused"}
            self.ends["nothing begun"] += 1
        elif what == "voiding":
            assert state in {"committed", "voided"}
            self.ends["settled, not acknowledged" if state == "voided" else "recovered"] += 1
        elif what in {"trying", "reserved", "replayed"}:
            assert state == "committed"
            if name in self.audit.recovered:
                self.ends["recovered" if what != "trying" else "taken, not acknowledged"] += 1
            else:
                self.ends["settled, not acknowledged"] += 1
        else:
            self.ends["all settled"] += 1

    def close(self):
        """The whole book once more, from its first line, and by the verifier."""
        with Ledger.open(self.url, **self.more) as ledger:
            lines = list(ledger.lines())
            report = verify([*lines, ledger.trailer()], public_key=ledger.public_key)
            assert report.ok, str(report)
            whole = Audit(lines)
            assert whole.standing() == self.audit.standing()
            assert "reserved" not in whole.standing()
            spent = {(s.limit.id, s.block): s.spent.epsilon for s in ledger.standings()}
            assert spent == {place: pytest.approx(float(used[0]), rel=1e-12) for place, used in whole.spent.items()}


def lines_of_code(url):
    """How many lines of the book's code the script executes, and the first time it comes to each."""
    child = Child(spends, url, "count", OPS, 0)
    assert child.ended() == 0
    ((_, places),) = [told for told in child.heard if told[0] == "places"]
    first = {}
    for i, place in enumerate(places, 1):
        first.setdefault(place, i)
    return len(places), sorted(first.values())


def killed_at_lines(url, count):
    """Kill at ``count`` lines: first at every line of code there is, as far as the count goes, then evenly over the script."""
    prepared(url, epsilon=500)
    witness = Witness(url)
    whole, first = lines_of_code(url)
    draw = random.Random(20261119)
    chosen = first if count >= len(first) else draw.sample(first, count * 2 // 3)
    chosen = chosen + [1 + i * whole // (count - len(chosen)) for i in range(count - len(chosen))]
    for i, line in enumerate(sorted(chosen)):
        witness.look(Child(spends, url, f"k{i}", OPS, line))
    assert witness.kills >= 0.9 * count, "the script takes about as many lines every time"
    assert witness.ends["recovered"] > 0
    if count >= len(first):  # so the few lines between the commit and the answer were among them
        assert witness.ends["taken, not acknowledged"] > 0
        assert witness.ends["settled, not acknowledged"] > 0
    witness.close()
    sys.stdout.write(f"{witness.kills} kills at {len(first)} lines of code, {whole} executed: {witness.ends}\n")


def killed_at_times(url, count):
    """Kill at random moments, some within the database's own code, where no line of Python is."""
    prepared(url, epsilon=500)
    witness = Witness(url)
    draw = random.Random(7)
    for i in range(count):
        child = Child(spends, url, f"t{i}", 100_000)
        child.hear(until="open")
        time.sleep(draw.uniform(0.0, 0.12))
        child.kill()
        witness.look(child)
    assert witness.kills == count
    witness.close()
    sys.stdout.write(f"{witness.kills} kills at random moments: {witness.ends}\n")


def test_killed_at_lines_of_the_book(book_url):
    killed_at_lines(book_url, 40)


def test_killed_at_random_moments(book_url):
    killed_at_times(book_url, 20)


@pytest.mark.slow
def test_killed_at_every_line_of_the_book(book_url):
    killed_at_lines(book_url, 600)


@pytest.mark.slow
def test_killed_at_two_hundred_moments(book_url):
    killed_at_times(book_url, 200)


# ------------------------------------------------------------------------------------------------ holders, dead and alive


def held(pipe, url, names):
    """Reserve, and wait for the word."""
    with Ledger.open(url) as ledger:
        for name in names:
            ledger.reserve(charge(name, ev.PureDp(0.1)))
        pipe.send(("held",))
        while pipe.recv() != "end":
            for name in names:
                ledger.commit(name)
            pipe.send(("settled",))


def test_the_reservation_of_the_living_is_left_alone(book_url):
    prepared(book_url, epsilon=1)
    child = Child(held, book_url, ["a", "b"])
    child.hear(until="held")
    with Ledger.open(book_url) as ledger:
        assert ledger.recover() == 0
        assert ledger.state("a") is State.RESERVED
        assert ledger.state("b") is State.RESERVED
        child.say("settle")
        child.hear(until="settled")
        assert ledger.state("a") is State.COMMITTED
    child.say("end")
    assert child.ended() == 0
    with Ledger.open(book_url) as ledger:
        audit = Audit(ledger.lines())
    assert audit.recovered == set()


def test_the_reservation_of_the_dead_stays_charged(book_url):
    prepared(book_url, epsilon=1)
    child = Child(held, book_url, ["a", "b"])
    child.hear(until="held")
    with Ledger.open(book_url) as ledger:
        child.kill()
        assert child.ended() == -signal.SIGKILL
        assert ledger.state("a") is State.RESERVED
        assert ledger.recover() == 2
        assert ledger.recover() == 0
        assert ledger.state("a") is ledger.state("b") is State.COMMITTED
        assert ledger.balance("acme/ads").spent.epsilon == pytest.approx(0.2)
        assert ledger.stored("a") is None
        again = ledger.reserve(charge("a", ev.PureDp(0.1)))
        assert (again.replayed, again.state) == (True, State.COMMITTED)
        assert Audit(ledger.lines()).recovered == {"a", "b"}


def test_many_who_find_the_dead_recover_it_once(book_url):
    prepared(book_url, epsilon=10)
    child = Child(held, book_url, [f"c{i}" for i in range(20)])
    child.hear(until="held")
    child.kill()
    child.ended()
    finders = [Child(opened, book_url) for _ in range(6)]
    assert [finder.ended() for finder in finders] == [0] * 6
    with Ledger.open(book_url) as ledger:
        audit = Audit(ledger.lines())
    assert audit.kinds["commit"] == 20
    assert len(audit.recovered) == 20


def opened(pipe, url):
    Ledger.open(url).close()


def test_one_who_died_in_a_crowd_takes_nobody_along(book_url):
    """Six write, three of them are killed: the others never see an error, and every one's words hold."""
    prepared(book_url, epsilon=900)
    children = [Child(spends, book_url, f"p{i}", 30 if i % 2 else 100_000) for i in range(6)]
    for child in children:
        child.hear(until="open")
    time.sleep(0.3)
    for child in children[::2]:
        child.kill()
    assert [child.ended() for child in children] == [-signal.SIGKILL, 0] * 3
    witness = Witness(book_url)
    with Ledger.open(book_url) as ledger:
        witness.audit.feed(ledger.lines())
    for child in children:
        witness.agrees(child.heard)
    witness.close()


# ------------------------------------------------------------------------------------------------ the server dies


@pytest.mark.postgres
@pytest.mark.parametrize("how", ["kill", "quit", "backends", "cut off"])
def test_the_server_dies_while_many_write(postgres, how):
    """The server, or every connection, is ended while processes write: LedgerErrors, and all that was acknowledged is there."""
    url = postgres.database()
    prepared(url, epsilon=900)
    children = [Child(endures, url, f"p{i}") for i in range(4)]
    for child in children:
        child.hear(until="open")
    time.sleep(0.5)
    match how:
        case "kill":
            postgres.stop(signal.SIGKILL)
        case "quit":
            postgres.stop(signal.SIGQUIT)
        case "backends":
            postgres.kill_backends(how=signal.SIGKILL)
        case _:
            postgres.kill_backends(url.split("@/")[1].split("?")[0])
    postgres.start()
    for child in children:
        child.hear(until="again")
        child.say("end")
    assert [child.ended() for child in children] == [0] * 4
    failed = sum(what == "failed" for child in children for what, *_ in child.heard)
    assert failed > 0, "the death was felt"
    with Ledger.open(url) as ledger:
        audit = Audit(ledger.lines())
        report = verify([*ledger.lines(), ledger.trailer()], public_key=ledger.public_key)
        assert report.ok, str(report)
    for child in children:
        for what, *told in child.heard:
            if what in {"reserved", "committed"}:
                assert audit.states[told[0]] == "committed"
    assert audit.kinds["reserve"] == len(audit.charges)
    postgres.drop(url)


def endures(pipe, url, name):
    """Spend; after an error try again with the same id until it is answered: one charge each, whatever happened in between."""
    ledger = Ledger.open(url)
    pipe.send(("open",))
    failed = since = i = 0
    while since < 10:
        one = charge(f"{name}-{i}", ev.PureDp(0.001))
        for what, step in (("reserved", lambda one=one: ledger.reserve(one)), ("committed", lambda one=one: ledger.commit(one.id))):
            while True:
                try:
                    step()
                except TamperError:
                    raise
                except LedgerError:
                    pipe.send(("failed", one.id))
                    failed += 1
                    time.sleep(0.05)
                else:
                    pipe.send((what, one.id))
                    break
        i += 1
        since += bool(failed)
    pipe.send(("again",))
    pipe.recv()
    ledger.close()


@pytest.mark.postgres
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_connection_lost_at_the_commit_charges_once(postgres, postgres_url, moment):
    """The connection ends just before, or just after, the transaction is committed; the caller cannot know, and tries again."""
    prepared(postgres_url, epsilon=1)
    with Ledger.open(postgres_url) as ledger:
        finish, lost = cut_at_commit(postgres, postgres_url, moment)
        with finish, pytest.raises(LedgerError):
            ledger.reserve(charge("once", ev.PureDp(0.3)))
        assert lost == [moment]
        receipt = ledger.reserve(charge("once", ev.PureDp(0.3)))
        assert receipt.replayed == (moment == "after")
        ledger.commit("once")
        audit = Audit(ledger.lines())
        assert audit.kinds["reserve"] == audit.kinds["commit"] == 1
        assert ledger.balance("acme/ads").spent.epsilon == pytest.approx(0.3)


def cut_at_commit(postgres, url, moment):
    """End the ledger's connections around the next finish of a transaction."""
    from dither.ledger import store  # noqa: PLC0415

    lost = []
    whole = store._PostgresTurn.finish

    def finish(turn):
        database = url.split("@/")[1].split("?")[0]
        if moment == "after":
            whole(turn)
        postgres.kill_backends(database)
        lost.append(moment)
        if moment == "after":
            turn._connection.execute("SELECT 1")  # the answer never comes
        return whole(turn)

    patch = pytest.MonkeyPatch.context()

    class Patched:
        def __enter__(self):
            self.patch = patch.__enter__()
            self.patch.setattr(store._PostgresTurn, "finish", finish)

        def __exit__(self, *error):
            patch.__exit__(*error)

    return Patched(), lost


# ------------------------------------------------------------------------------------------------ forks and threads


def test_threads_that_share_a_ledger_spend_exactly_what_there_is(book_url):
    prepared(book_url, epsilon=1)
    granted, failures = [], []
    with Ledger.open(book_url) as ledger:

        def spend(name):
            try:
                granted.extend(one for one in (f"{name}-{i}" for i in range(12)) if takes(ledger, one))
            except BaseException as error:  # noqa: BLE001 - told below
                failures.append(error)

        threads = [threading.Thread(target=spend, args=(f"t{i}",)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        audit = Audit(ledger.lines(), known=[{"event": "PureDp", "epsilon": 0.03}])
    assert len(granted) == 33
    assert set(granted) == set(audit.charges)
    assert sum(audit.refused.values()) == 8 * 12 - 33


def forks(pipe, url):
    """A ledger that is open in a process which forks: parent and children go on with the same object."""
    ledger = Ledger.open(url)
    ledger.reserve(charge("parents", ev.PureDp(0.01)))
    children = [forked(lambda i=i: spend_after_fork(ledger, f"child{i}")) for i in range(4)]
    for i in range(10):
        ledger.reserve(charge(f"parent{i}", ev.PureDp(0.01)))
        ledger.commit(f"parent{i}")
    statuses = [os.waitpid(child, 0)[1] for child in children]
    recovered = ledger.recover()
    pipe.send(("ended", statuses, recovered, ledger.state("parents").value))
    ledger.void("parents", "no row was read")
    ledger.close()


def forked(work):
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the status tells
        traceback.print_exc()
        os._exit(1)


def spend_after_fork(ledger, name):
    for i in range(5):
        ledger.reserve(charge(f"{name}-{i}", ev.PureDp(0.01)))
        ledger.commit(f"{name}-{i}")
    with pytest.raises(RefusedError):
        ledger.void("parents", "a child cannot know what its parent read")
    ledger.reserve(charge(f"{name}-left", ev.PureDp(0.01)))


def test_a_ledger_goes_through_a_fork(book_url):
    prepared(book_url, epsilon=10)
    child = Child(forks, book_url)
    assert child.ended() == 0
    assert child.heard == [("ended", [0] * 4, 4, "reserved")]
    with Ledger.open(book_url) as ledger:
        audit = Audit(ledger.lines())
    assert audit.recovered == {f"child{i}-left" for i in range(4)}
    assert audit.standing() == {"committed": 4 * 6 + 10, "voided": 1}


def takes(ledger, name):
    try:
        ledger.reserve(charge(name, ev.PureDp(0.03), TEAM))
    except OverBudgetError:
        return False
    ledger.commit(name)
    return True
