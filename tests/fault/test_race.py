"""Races for what is left: never over the limit, exactly as many grants as fit, and none of the anomalies of weak isolation."""

import json
import random
import threading
from fractions import Fraction

import pytest
from child import OTHER, TEAM, TOP, UNIT, Child, charge, prepared, races

from accountant import Audit
from dither import events as ev
from dither.core.errors import OverBudgetError, RefusedError
from dither.core.plans import State
from dither.ledger.book import Ledger
from dither.ledger.terms import Dataset
from dither.ledger.verify import verify

PROCESSES = 16


# ------------------------------------------------------------------------------------------------ many processes


def raced(url, plans, voids=0.0):
    """Run one process for each plan at once; (children, audit of the book they left)."""
    children = [Child(races, url, f"p{i}", plan, voids) for i, plan in enumerate(plans)]
    for child in children:
        child.hear(until="ready")
    for child in children:
        child.say("go")
    assert [child.ended() for child in children] == [0] * len(children)
    prices = {price for plan in plans for _, price, _ in plan}
    with Ledger.open(url) as ledger:
        lines = list(ledger.lines())
        audit = Audit(lines, known=[{"event": "PureDp", "epsilon": price} for price in prices])
        report = verify([*lines, ledger.trailer()], public_key=ledger.public_key)
        assert report.ok, str(report)
        spent = {(s.limit.id, s.block): s.spent.epsilon for s in ledger.standings() if s.events}
        assert spent == {place: pytest.approx(float(used[0]), rel=1e-12) for place, used in audit.spent.items() if any(used)}
    return children, audit


def told(children, *whats):
    return [name for child in children for what, name, *_ in (m for m in child.heard if len(m) > 1) if what in whats]


def for_one_limit(url, attempts):
    """All charges alike, one nearly empty limit: the number of grants is known beforehand."""
    prepared(url, epsilon=1)
    with Ledger.open(url) as ledger:
        ledger.reserve(charge("before", ev.PureDp(0.95)))
        ledger.commit("before")
    each = attempts // PROCESSES
    plans = [[(f"p{p}-{i}", 0.003, TEAM) for i in range(each)] for p in range(PROCESSES)]
    children, audit = raced(url, plans)
    granted, refused = told(children, "granted"), told(children, "refused")
    assert len(granted) == len(set(granted)) == 16  # 0.05 / 0.003
    assert set(granted) == set(told(children, "committed")) == set(audit.charges) - {"before"}
    assert len(refused) == each * PROCESSES - 16
    assert set(audit.refused) == set(refused), "every refusal is an entry"
    assert audit.kinds["refusal"] == len(refused)


def for_two_levels(url, attempts):
    """Prices of all sizes, two teams under one top, every id tried by two processes, some charges voided."""
    prepared(url, epsilon=3, top=4)
    with Ledger.open(url) as ledger:
        ledger.grant("acme/sales", "events", epsilon=2)
        ledger.reserve(charge("before", ev.PureDp(2.5)))
    draw = random.Random(16)
    each = attempts // PROCESSES
    pairs = [
        [(f"q{p}-{i}", draw.choice([0.001, 0.003, 0.007, 0.02, 0.05]), draw.choice([TOP, TEAM, OTHER])) for i in range(each)]
        for p in range(PROCESSES // 2)
    ]
    children, audit = raced(url, [pair for pair in pairs for _ in range(2)], voids=0.3)
    granted = told(children, "granted")
    assert len(granted) == len(set(granted)), "two tried each id, one was granted"
    assert set(granted) == set(audit.charges) - {"before"}
    assert set(told(children, "replayed")) <= set(granted)
    assert {n for n, state in audit.states.items() if state == "voided"} == set(told(children, "voided"))
    assert sum(audit.refused.values()) == len(told(children, "refused"))
    entries = {name: {m[2] for c in children for m in c.heard if m[:2] in {("granted", name), ("replayed", name)}} for name in granted}
    assert all(audit.states[name] in {"committed", "voided"} for name in granted)
    assert all(1 <= len(numbers) <= 2 for numbers in entries.values())  # a receipt names its reservation, or its settlement


def test_sixteen_processes_for_one_nearly_empty_limit(book_url):
    for_one_limit(book_url, 800)


def test_sixteen_processes_for_two_levels(book_url):
    for_two_levels(book_url, 800)


@pytest.mark.slow
def test_ten_thousand_attempts_for_one_limit(book_url):
    for_one_limit(book_url, 10_000)


@pytest.mark.slow
def test_ten_thousand_attempts_for_two_levels(book_url):
    for_two_levels(book_url, 10_000)


# ------------------------------------------------------------------------------------------------ two connections, every schedule


class Paused:
    """Stops a ledger's next transaction before its n-th step (a question, or the end of the work), until told to go on."""

    def __init__(self, ledger, step):
        self.step, self.steps = step, 0
        self.reached, self.go = threading.Event(), threading.Event()
        self._whole = ledger.store.write
        ledger.store.write = self.write

    def write(self, work):
        return self._whole(lambda turn: self._worked(turn, work))

    def _worked(self, turn, work):
        self.steps = 0
        asked = turn.ask

        def ask(*queries):
            self.at()
            return asked(*queries)

        turn.ask = ask
        result = work(turn)
        self.at()
        return result

    def at(self):
        if self.steps == self.step:
            self.reached.set()
            assert self.go.wait(30)
        self.steps += 1


class Slow(threading.Thread):
    """One call in a thread; its answer, or its error."""

    def __init__(self, call):
        super().__init__()
        self.call, self.answer, self.error = call, None, None
        self.start()

    def run(self):
        try:
            self.answer = self.call()
        except Exception as error:  # noqa: BLE001 - told by the test
            self.error = error


def schedules(url, one, other, after):
    """Run ``other`` on a second connection while ``one`` stands still before its first, second, … step, until it has no more."""
    step = 0
    while True:
        with Ledger.open(url) as first, Ledger.open(url) as second:
            pause = Paused(first, step)
            held = Slow(lambda first=first, step=step: one(first, step))
            while not pause.reached.wait(0.01) and held.is_alive():
                pass
            between = Slow(lambda second=second, step=step: other(second, step))
            between.join(0.15)  # it has its answer, or waits for its turn
            pause.go.set()
            held.join(30)
            between.join(30)
            assert not held.is_alive()
            assert not between.is_alive()
            after(second, step, held, between)
            if not pause.reached.is_set():
                return step
        step += 1


def errors(*calls):
    return sorted(type(c.error).__name__ for c in calls if c.error is not None)


def test_no_write_skew(book_url):
    """Two charges of different teams, each within its team's limit and each within the top's when it looks; both are not."""
    with Ledger.open(book_url) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        for account in ("acme", "acme/ads", "acme/sales"):
            ledger.add_account(account)
            ledger.grant(account, "events", epsilon=100 if account == "acme" else 1000)
    left = [Fraction(100)]

    def one(ledger, step):
        return ledger.reserve(charge(f"one{step}", ev.PureDp(float(left[0]) * 0.6), TEAM))

    def other(ledger, step):
        return ledger.reserve(charge(f"other{step}", ev.PureDp(float(left[0]) * 0.6), OTHER))

    def after(ledger, step, *calls):
        assert errors(*calls) == ["OverBudgetError"]
        left[0] = Fraction(100) - Audit(ledger.lines()).spent["L1", ""][0]
        assert left[0] > 0

    assert schedules(book_url, one, other, after) >= 2


def test_no_lost_update(book_url):
    """Two charges on one balance, both of which fit: both are in it."""
    prepared(book_url, epsilon=900)

    def take(name):
        return lambda ledger, step: ledger.reserve(charge(f"{name}{step}", ev.PureDp(1.0)))

    def after(ledger, step, *calls):
        assert errors(*calls) == []
        assert ledger.balance("acme/ads").spent.epsilon == 2 * (step + 1)
        assert Audit(ledger.lines()).spent["L1", ""][0] == 2 * (step + 1)

    assert schedules(book_url, take("one"), take("other"), after) >= 2


def test_no_double_settlement(book_url):
    """A commit and a void of one charge, which another thread of the same holder reserved: one of them wins, whole."""
    prepared(book_url, epsilon=900)
    states = []
    with Ledger.open(book_url) as keeper:
        for i in range(12):
            keeper.reserve(charge(f"c{i}", ev.PureDp(1.0)))

        def after(ledger, step, *calls):
            assert errors(*calls) == ["ConflictError"]
            states.append(ledger.state(f"c{step}"))
            audit = Audit(ledger.lines())
            assert audit.states[f"c{step}"] == states[-1].value
            assert audit.spent["L1", ""][0] == 12 - states.count(State.VOIDED)

        assert schedules(book_url, lambda b, i: b.commit(f"c{i}"), lambda b, i: b.void(f"c{i}", "unread"), after) >= 1


def test_no_phantom(book_url):
    """A limit that is granted while a charge is on its way: either the charge counts in it, or it came before the limit did."""
    with Ledger.open(book_url) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.add_account("acme")
        ledger.grant("acme", "events", epsilon=900)
        for i in range(12):
            ledger.add_account(f"acme/t{i}")

    def one(ledger, step):
        return ledger.reserve(charge(f"one{step}", ev.PureDp(0.5), ("acme", f"t{step}")))

    def other(ledger, step):
        return ledger.grant(f"acme/t{step}", "events", epsilon=0.25)

    def after(ledger, step, *calls):
        audit = Audit(ledger.lines())  # its own rule: whatever limit stands at the entry of the reservation is met, and holds
        if calls[0].error is None:
            assert f"one{step}" in audit.charges
        else:
            assert errors(calls[0]) == ["OverBudgetError"]
        if calls[1].error is not None:
            assert isinstance(calls[1].error, RefusedError)

    assert schedules(book_url, one, other, after) >= 2


def test_one_reads_what_one_wrote_and_others_read_what_was_acknowledged(book_url):
    prepared(book_url, epsilon=100)
    with Ledger.open(book_url) as one, Ledger.open(book_url) as other:
        for i in range(40):
            here, there = (one, other) if i % 2 else (other, one)
            receipt = here.reserve(charge(f"c{i}", ev.PureDp(0.5)))
            for ledger in (here, there):
                assert ledger.state(f"c{i}") is State.RESERVED
                assert ledger.balance("acme/ads").spent.epsilon == pytest.approx(0.5 * (i + 1))
                assert ledger.tail()[0] >= receipt.entry
                assert ledger.receipt(f"c{i}").entry == receipt.entry
            here.commit(f"c{i}", release=json.dumps({"i": i}, separators=(",", ":")))
            assert there.stored(f"c{i}") == json.dumps({"i": i}, separators=(",", ":"))


def test_a_snapshot_is_of_one_moment(book_url):
    """Two limits that every charge meets alike are read alike, whatever is written meanwhile."""
    prepared(book_url, epsilon=900)
    child = Child(races, book_url, "writer", [(f"w{i}", 0.5, TEAM) for i in range(150)])
    child.hear(until="ready")
    child.say("go")
    seen = set()
    with Ledger.open(book_url) as ledger:
        while child.speaks():
            spent = {s.spent.epsilon for s in ledger.standings(dataset="events")}
            assert len(spent) == 1
            seen |= spent
    assert child.ended() == 0
    assert len(seen) > 1


def test_a_ledger_refuses_once_the_last_bit_is_spent(book_url):
    prepared(book_url, epsilon=0.1)
    with Ledger.open(book_url) as ledger:
        for i in range(10):
            ledger.reserve(charge(f"c{i}", ev.PureDp(0.01)))
        with pytest.raises(OverBudgetError):
            ledger.reserve(charge("more", ev.PureDp(1e-300)))
