"""The book beside a plain dict: any order of charges, settlements, retries, moves and clocks leaves both with the same balances."""

import itertools
import json
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from dither import events as ev
from dither.accounting import filters
from dither.accounting._exact import UNITS
from dither.core.errors import ConflictError, DitherError, InputError, NotPriceableError, OverBudgetError, RefusedError, UnknownNameError
from dither.core.plans import Charge, State
from dither.core.units import Neighbors, PrivacyUnit
from dither.ledger.blocks import Blocks, Every
from dither.ledger.book import Ledger
from dither.ledger.terms import Dataset, FilterSpec
from dither.ledger.verify import verify

START = datetime(2026, 11, 19, 6, tzinfo=UTC)
MONTHS = ("2026-01", "2026-02", "2026-03")
REGIONS = ("north", "south")
DATASETS = {
    d.name: d
    for d in (
        Dataset(name="plain", unit=PrivacyUnit(dataset="plain")),
        Dataset(name="months", unit=PrivacyUnit(dataset="months"), blocks=Blocks(column="ts", every=Every.MONTH)),
        Dataset(
            name="swapped",
            unit=PrivacyUnit(dataset="swapped", neighbors=Neighbors.REPLACE),
            blocks=Blocks(column="ts", every=Every.MONTH),
        ),
        Dataset(name="people", unit=PrivacyUnit(dataset="people", key="user"), blocks=Blocks(column="region", partitions=REGIONS)),
        Dataset(
            name="homes", unit=PrivacyUnit(dataset="homes", key="user"), blocks=Blocks(column="region", partitions=REGIONS), disjoint=True
        ),
    )
}
ACCOUNTS = [("acme",), ("acme", "ads"), ("acme", "ads", "ann"), ("acme", "sales"), ("acmex",)]
SPECS = [
    FilterSpec.of(1),
    FilterSpec.of(0.37),
    FilterSpec.of(1, 1e-6, kind="approx"),
    FilterSpec.of(2, 1e-6, kind="advanced", side_delta=1e-7),
    FilterSpec.of(1.5, 1e-6, kind="zcdp", side_delta=1e-7),
    FilterSpec.of(2, 1e-6),
    FilterSpec.of(0.5, 1e-6, orders=(8.0, 64.0)),
]
PURE = st.one_of(
    st.integers(1, 400).map(lambda n: ev.PureDp(n / 1000)),
    st.sampled_from([0.7, 3.0, 7.0, 11.1, 30.0, 99.0, 1e6]).map(ev.Laplace),
    st.tuples(st.integers(1, 60), st.integers(1, 30)).map(lambda p: ev.Repeat(ev.PureDp(p[0] / 1000), p[1])),
    st.integers(1, 100).map(lambda n: ev.Sequence((ev.PureDp(n / 1000), ev.RandomizedResponse(0.1)))),
)
EVENTS = st.one_of(
    PURE,
    PURE,
    st.integers(1, 60).map(lambda n: ev.ApproxDp(n / 1000, n * 1e-9)),
    st.sampled_from([3.0, 10.0, 33.3]).map(ev.Gaussian),
    st.integers(1, 50).map(lambda n: ev.Zcdp(n / 1000)),
    st.tuples(st.sampled_from([4.0, 20.0]), st.integers(1, 40)).map(
        lambda p: ev.Repeat(ev.Subsample(ev.Gaussian(p[0]), ev.Poisson(0.1)), p[1])
    ),
    st.just(ev.NonPrivate()),
)
WRONG_UNITS = [PrivacyUnit(dataset="plain", key="user"), PrivacyUnit(dataset="months", neighbors=Neighbors.REPLACE)]


# ------------------------------------------------------------------------------------------------ the model's arithmetic


def cut(amount: Fraction) -> Fraction:
    """An amount as the book may write it: in full if that is short, else rounded up to 20 digits and at most 60 places."""
    if len(str(amount)) <= 26:
        return amount
    power = next(p for p in itertools.count(-60) if -(-amount // Fraction(10) ** p) < 10**20)
    return -(-amount // Fraction(10) ** power) * Fraction(10) ** power


@cache
def price(spec: FilterSpec, neighbors: Neighbors, event: ev.Event) -> tuple[Fraction, ...]:
    opened = spec.open(neighbors)
    if spec.kind == "rdp":
        opened = filters.RenyiOdometer.open(float(spec.delta), orders=spec.orders, neighbors=neighbors)
    return tuple(map(cut, opened.price(event)))


@cache
def most(spec: FilterSpec, neighbors: Neighbors) -> tuple[Fraction | None, ...]:
    opened = spec.open(neighbors)
    if spec.kind != "rdp":
        return opened.limit
    held = dict(zip(opened.orders, opened.limit, strict=False))
    return (*(held.get(a) for a in spec.orders), opened.limit[-1])


def fits(spec: FilterSpec, neighbors: Neighbors, spent: tuple[Fraction, ...]) -> bool:
    held = [limit is not None and used <= limit for used, limit in zip(spent, most(spec, neighbors), strict=True)]
    return (any(held[:-1]) and held[-1]) if spec.kind == "rdp" else all(held)


def share(spec: FilterSpec, neighbors: Neighbors, spent: tuple[Fraction, ...]) -> float:
    parts = []
    for used, limit in zip(spent, most(spec, neighbors), strict=True):
        parts.append(None if limit is None else float(used / limit) if limit else float("inf") if used else 0.0)
    if spec.kind == "rdp":
        return max(min(p for p in parts[:-1] if p is not None), parts[-1])
    return max(parts)


def plus(one, other, sign=1):
    return tuple(a + sign * b for a, b in zip(one, other, strict=True))


# ------------------------------------------------------------------------------------------------ the machine


class Book(RuleBasedStateMachine):
    """Every rule asks the model first what must come, then the book."""

    def __init__(self, url="sqlite://"):
        super().__init__()
        self.url, self.folder = url, None
        if url == "file":
            self.folder = tempfile.TemporaryDirectory()
            self.url = f"sqlite:///{self.folder.name}/book.db"
        self.now = self.last = START
        self.ledger = Ledger.open(self.url, clock=lambda: self.now, actor="machine")
        self.limits, self.spent, self.counts, self.charges, self.moved = {}, {}, {}, {}, set()
        self.alerts, self.peaks = set(), {}
        self.names = (f"c{i}" for i in itertools.count())
        self.kinds = dict.fromkeys(("reserve", "commit", "void", "refusal", "limit", "move"), 0)
        self.read = 0

    @initialize(
        specs=st.lists(st.sampled_from(SPECS), min_size=4, max_size=4),
        ends=st.sampled_from([None, None, START + timedelta(hours=1), START + timedelta(hours=2)]),
    )
    def begin(self, specs, ends):
        """Every dataset can be charged from the start: at the root, and two of them below it too."""
        for dataset in DATASETS.values():
            self.ledger.add_dataset(dataset)
        for account in ACCOUNTS:
            self.ledger.add_account(account)
        for dataset, spec in zip(DATASETS, itertools.cycle(specs)):
            self.granted(("acme",), dataset, {"spec": spec, "per": "dataset", "starts": None, "ends": None})
        for dataset in ("plain", "months"):
            for account in (("acme", "ads"), ("acme", "sales")):
                self.granted(account, dataset, {"spec": specs[0], "per": "dataset", "starts": None, "ends": ends})

    def granted(self, account, dataset, terms):
        limit = self.expect(None, lambda: self.grants(account, dataset, terms))
        assert (limit.filter, limit.account, limit.dataset) == (terms["spec"], account, dataset)
        self.limits[limit.id] = {"account": account, "dataset": dataset, **terms, "granted": terms}
        self.kinds["limit"] += 1

    def grants(self, account, dataset, terms):
        spec = terms["spec"]
        return self.ledger.grant(
            account,
            dataset,
            epsilon=spec.epsilon,
            delta=spec.delta,
            kind=spec.kind,
            side_delta=spec.side_delta,
            orders=spec.orders or None,
            per=terms["per"],
            starts=terms["starts"],
            ends=terms["ends"],
        )

    def teardown(self):
        try:
            for call in (lambda: self.ledger.commit("nothing"), lambda: self.ledger.void("nothing", "reason")):
                self.expect(UnknownNameError, call)
            report = verify([*self.ledger.lines(), self.ledger.trailer()], public_key=self.ledger.public_key)
            assert report.ok, str(report)
        finally:
            self.ledger.close()
            if self.folder is not None:
                self.folder.cleanup()

    def expect(self, error, call):
        """What was foretold happens; what is no rule's refusal writes nothing."""
        before = self.ledger.tail()[:2]
        if error is None:
            found = call()
            self.last = max(self.last, self.now)
            return found
        with pytest.raises(error) as caught:
            call()
        assert type(caught.value) is error
        if issubclass(error, InputError):
            assert self.ledger.tail()[:2] == before
        else:
            self.kinds["refusal"] += 1
            self.last = max(self.last, self.now)
        return None

    # -------------------------------------------------------------------------------------------- terms

    @rule(account=st.sampled_from(ACCOUNTS), dataset=st.sampled_from(list(DATASETS)), spec=st.sampled_from(SPECS), data=st.data())
    def grant(self, account, dataset, spec, data):
        divided = DATASETS[dataset].blocks is not None
        per = data.draw(st.sampled_from(["block", "dataset"])) if divided else "dataset"
        starts = data.draw(st.sampled_from([None, None, START, START + timedelta(hours=1)]))
        ends = data.draw(st.sampled_from([None, *(START + timedelta(hours=h) for h in (2, 3, 5))]))
        held = [n for n, x in self.limits.items() if (x["account"], x["dataset"], x["per"]) == (account, dataset, per)]
        terms = {"spec": spec, "per": per, "starts": starts, "ends": ends}
        if not held:
            self.granted(account, dataset, terms)
        elif self.limits[held[0]]["granted"] == terms:
            assert self.grants(account, dataset, terms).id == held[0]
        else:
            self.refused_terms(lambda: self.grants(account, dataset, terms))

    def refused_terms(self, call):
        """Other terms where there is a limit: refused, and told; never another limit."""
        before = self.ledger.terms().limits
        with pytest.raises(DitherError) as caught:
            call()
        assert isinstance(caught.value, RefusedError | ConflictError)
        if isinstance(caught.value, RefusedError):
            self.kinds["refusal"] += 1
            self.last = max(self.last, self.now)
        assert self.ledger.terms().limits == before

    @precondition(lambda self: len(self.limits) > 1)
    @rule(data=st.data(), thousandths=st.integers(1, 600), delta=st.sampled_from([0, 0, 1e-8]))
    def move(self, data, thousandths, delta):
        source = data.draw(st.sampled_from(sorted(self.limits)))
        near = [n for n in sorted(self.limits) if n != source and self.beside(n, source)]
        target = data.draw(st.sampled_from(near or sorted(self.limits)))
        one, other = self.limits[source], self.limits[target]
        amount, extra = Fraction(thousandths, 1000), Fraction(str(delta))
        before = self.ledger.terms().limits
        try:
            found = self.ledger.move(one["account"], other["account"], one["dataset"], epsilon=amount, delta=extra)
        except RefusedError:
            self.kinds["refusal"] += 1
            self.last = max(self.last, self.now)
        except (OverBudgetError, InputError) as error:
            if isinstance(error, OverBudgetError):
                self.kinds["refusal"] += 1
                self.last = max(self.last, self.now)
        else:
            assert source != target
            assert one["account"][:-1] == other["account"][:-1] != ()
            assert one["dataset"] in {x["dataset"] for x in self.limits.values() if x["account"] == one["account"][:-1]}
            names = [limit.id for limit in found]
            assert [self.limits[name]["account"] for name in names] == [one["account"], other["account"]]
            assert {self.limits[name]["dataset"] for name in names} == {one["dataset"]}
            for name, sign in zip(names, (-1, 1), strict=True):
                spec, now = self.limits[name]["spec"], self.ledger.terms().limits[name].filter
                assert (now.epsilon, now.delta) == (spec.epsilon + sign * amount, spec.delta + sign * extra)
                assert (now.kind, now.orders) == (spec.kind, spec.orders)
                self.limits[name]["spec"] = now
                self.moved.add(name)
            self.kinds["move"] += 1
            self.last = max(self.last, self.now)
            return
        assert self.ledger.terms().limits == before

    def beside(self, name, other):
        one, two = self.limits[name], self.limits[other]
        return one["dataset"] == two["dataset"] and one["account"][:-1] == two["account"][:-1]

    # -------------------------------------------------------------------------------------------- charges

    def neighbors(self, name):
        return DATASETS[self.limits[name]["dataset"]].unit.neighbors

    def places(self, charge):
        """The limits and blocks that a charge meets, in the order in which they are asked."""
        dataset = DATASETS[charge.unit.dataset]
        parallel = dataset.blocks is not None and dataset.disjoint and dataset.unit.neighbors is Neighbors.ADD_REMOVE
        found = []
        for name, limit in sorted(self.limits.items(), key=lambda x: (len(x[1]["account"]), int(x[0][1:]))):
            if limit["dataset"] == dataset.name and limit["account"] == charge.account[: len(limit["account"])]:
                each = dataset.blocks is not None and (parallel or limit["per"] == "block")
                found += [(name, block) for block in (sorted(charge.blocks) if each else [""])]
        return found

    def foretold(self, charge, event=None):
        """(error or None, prices of each limit)."""
        dataset = DATASETS[charge.unit.dataset]
        if charge.unit != dataset.unit:
            return InputError, {}
        if bool(charge.blocks) != (dataset.blocks is not None):
            return InputError, {}
        places, now = self.places(charge), max(self.now, self.last)
        if not places:
            return RefusedError, {}
        for name, _ in places:
            limit = self.limits[name]
            if (limit["starts"] and now < limit["starts"]) or (limit["ends"] and now >= limit["ends"]):
                return RefusedError, {}
        try:
            prices = {name: price(self.limits[name]["spec"], self.neighbors(name), event or charge.event) for name, _ in places}
        except NotPriceableError:
            return NotPriceableError, {}
        for name, block in places:
            after = plus(self.spent.get((name, block), (Fraction(0),) * len(prices[name])), prices[name])
            if not fits(self.limits[name]["spec"], self.neighbors(name), after):
                return OverBudgetError, prices
        return None, prices

    def taken(self, charge, prices):
        self.charges[charge.id] = {"charge": charge, "state": State.RESERVED, "prices": prices, "places": self.places(charge)}
        for place in self.charges[charge.id]["places"]:
            self.spent[place] = plus(self.spent.get(place, (Fraction(0),) * len(prices[place[0]])), prices[place[0]])
            self.counts[place] = self.counts.get(place, 0) + 1
        self.kinds["reserve"] += 1

    def drawn(self, data, event):
        """A charge that some limit meets."""
        limit = self.limits[data.draw(st.sampled_from(sorted(self.limits)))]
        dataset = DATASETS[limit["dataset"]]
        below = [a for a in ACCOUNTS if a[: len(limit["account"])] == limit["account"]]
        known = () if dataset.blocks is None else dataset.blocks.partitions or MONTHS
        blocks = data.draw(st.lists(st.sampled_from(known), unique=True, min_size=1, max_size=len(known))) if known else []
        return Charge(
            id=next(self.names),
            account=data.draw(st.sampled_from(below)),
            unit=dataset.unit,
            event=event,
            plan_digest="d",
            purpose="test",
            blocks=tuple(blocks),
        )

    @rule(data=st.data(), event=EVENTS, wrong=st.sampled_from(["unit", "blocks", "account"]))
    def wrong(self, data, event, wrong):
        charge = self.drawn(data, event)
        match wrong:
            case "unit":
                charge = replace(charge, unit=data.draw(st.sampled_from(WRONG_UNITS)))
            case "blocks":
                charge = replace(charge, blocks=() if charge.blocks else ("2026-01",))
            case _:
                charge = replace(charge, account=("acmex",))
        error, _ = self.foretold(charge)
        if error is not None:
            self.expect(error, lambda: self.ledger.reserve(charge))

    @rule(data=st.data(), event=EVENTS)
    def reserve(self, data, event):
        self.reserved(self.drawn(data, event))

    @rule(data=st.data(), event=EVENTS)
    def reserve_more(self, data, event):
        self.reserved(self.drawn(data, event))

    @rule(data=st.data(), events=st.lists(EVENTS, min_size=3, max_size=8))
    def reserve_many(self, data, events):
        for event in events:
            self.reserved(self.drawn(data, event))

    def reserved(self, charge):
        error, prices = self.foretold(charge)
        receipt = self.expect(error, lambda: self.ledger.reserve(charge))
        if error is None:
            self.taken(charge, prices)
            assert (receipt.state, receipt.charge_id, receipt.replayed) == (State.RESERVED, charge.id, False)
        else:
            assert self.ledger.state(charge.id) is None

    @rule(data=st.data(), part=st.integers(1, 60), count=st.integers(1, 40))
    def reserve_up_to(self, data, part, count):
        charge = self.drawn(data, ev.Repeat(ev.PureDp(part / 1000), count))
        largest = next((k for k in range(count, 0, -1) if self.foretold(charge, ev.Repeat(charge.event.event, k))[0] is None), 0)
        error = None if largest else self.foretold(charge, ev.Repeat(charge.event.event, 1))[0]
        found = self.expect(error, lambda: self.ledger.reserve_up_to(charge))
        if largest:
            event = ev.Repeat(charge.event.event, largest)
            assert found.event == event
            prices = self.foretold(charge, event)[1]
            self.taken(replace(charge, event=event), prices)
            self.charges[charge.id]["asked"] = charge

    def some(self, data, *states):
        names = sorted(n for n, c in self.charges.items() if c["state"] in states) if states else sorted(self.charges)
        return data.draw(st.sampled_from(names)) if names else None

    @precondition(lambda self: self.charges)
    @rule(data=st.data())
    def retry(self, data):
        held = self.charges[self.some(data)]
        before = self.ledger.tail()[:2]
        if "asked" in held:
            found = self.ledger.reserve_up_to(held["asked"])
            receipt = found.receipt
            assert found.event == held["charge"].event
        else:
            receipt = self.ledger.reserve(held["charge"])
        assert (receipt.replayed, receipt.state) == (True, held["state"])
        assert self.ledger.tail()[:2] == before

    @precondition(lambda self: self.charges)
    @rule(data=st.data())
    def conflict(self, data):
        other = replace(self.charges[self.some(data)]["charge"], event=ev.PureDp(0.0123))
        self.expect(ConflictError, lambda: self.ledger.reserve(other))

    @precondition(lambda self: self.charges)
    @rule(data=st.data())
    def commit(self, data):
        name = self.some(data)
        held = self.charges[name]
        if held["state"] is State.VOIDED:
            self.expect(ConflictError, lambda: self.ledger.commit(name))
        elif held["state"] is State.COMMITTED:
            before = self.ledger.tail()[:2]
            assert self.ledger.commit(name).replayed
            assert self.ledger.tail()[:2] == before
        else:
            self.expect(None, lambda: self.ledger.commit(name, release=json.dumps({"id": name}, separators=(",", ":"))))
            held["state"] = State.COMMITTED
            self.kinds["commit"] += 1
            assert self.ledger.stored(name) == json.dumps({"id": name}, separators=(",", ":"))

    @precondition(
        lambda self: any(c["state"] is State.RESERVED and isinstance(c["charge"].event, ev.Repeat) for c in self.charges.values())
    )
    @rule(data=st.data())
    def commit_less(self, data):
        names = sorted(n for n, c in self.charges.items() if c["state"] is State.RESERVED and isinstance(c["charge"].event, ev.Repeat))
        held = self.charges[data.draw(st.sampled_from(names))]
        whole = held["charge"].event
        count = data.draw(st.integers(1, whole.count + 1))
        event = ev.Repeat(whole.event, count)
        if count > whole.count:
            self.expect(InputError, lambda: self.ledger.commit(held["charge"].id, event=event))
            return
        self.expect(None, lambda: self.ledger.commit(held["charge"].id, event=event))
        paid = {name: price(self.limits[name]["spec"], self.neighbors(name), event) for name in held["prices"]}
        for place in held["places"]:
            self.spent[place] = plus(plus(self.spent[place], held["prices"][place[0]], -1), paid[place[0]])
        held.update(state=State.COMMITTED, prices=paid)
        self.kinds["commit"] += 1

    @precondition(lambda self: self.charges)
    @rule(data=st.data())
    def void(self, data):
        name = self.some(data)
        held = self.charges[name]
        if held["state"] is State.COMMITTED:
            self.expect(ConflictError, lambda: self.ledger.void(name, "no row was read"))
        elif held["state"] is State.VOIDED:
            before = self.ledger.tail()[:2]
            assert self.ledger.void(name, "no row was read").replayed
            assert self.ledger.tail()[:2] == before
        else:
            self.expect(None, lambda: self.ledger.void(name, "no row was read"))
            for place in held["places"]:
                self.spent[place] = plus(self.spent[place], held["prices"][place[0]], -1)
                self.counts[place] -= 1
            held["state"] = State.VOIDED
            self.kinds["void"] += 1

    # -------------------------------------------------------------------------------------------- time and life

    @rule(minutes=st.integers(-200, 200))
    def clock(self, minutes):
        self.now += timedelta(minutes=minutes)

    @precondition(lambda self: self.url != "sqlite://")
    @rule()
    def reopen(self):
        self.ledger.close()
        self.ledger = Ledger.open(self.url, clock=lambda: self.now, actor="machine")

    # -------------------------------------------------------------------------------------------- what always holds

    @invariant()
    def balances_are_those_of_the_model(self):
        found = {}
        for standing in self.ledger.standings():
            if standing.events or standing.share:
                found[standing.limit.id, standing.block] = standing
        held = {place: spent for place, spent in self.spent.items() if any(spent)}
        assert {p for p, s in found.items() if s.share > 0} == set(held)
        for (name, block), spent in held.items():
            spec = self.limits[name]["spec"]
            assert fits(spec, self.neighbors(name), spent)
            standing = found[name, block]
            assert standing.limit.filter == spec
            assert tuple(Fraction(a, UNITS) for a in standing.amounts) == spent
            assert standing.events == self.counts[name, block]
            assert standing.share == pytest.approx(share(spec, self.neighbors(name), spent), rel=1e-9)
            if spec.kind in {"pure", "approx"}:
                assert Fraction(repr(standing.spent.epsilon)) >= spent[0]
                assert Fraction(repr(standing.remaining.epsilon)) <= spec.epsilon - spent[0]
                assert standing.spent.epsilon == pytest.approx(float(spent[0]), rel=1e-12)
        opened = {c.id for c, _ in self.ledger.open_charges()}
        assert opened == {n for n, c in self.charges.items() if c["state"] is State.RESERVED}

    @invariant()
    def lines_say_the_same(self):
        lines = [json.loads(line) for line in self.ledger.lines(self.read)]
        self.read += len(lines)
        for body in lines:
            if body["kind"] in self.kinds:
                self.kinds[body["kind"]] -= 1
            if body["kind"] == "reserve":
                assert {n: list(map(text_to_amount, p)) for n, p in body["prices"].items()} == {
                    n: list(p) for n, p in self.charges[body["charge"]["id"]]["prices"].items()
                }
            if body["kind"] == "alert":
                told = (body["limit"], body["block"], float(Fraction(body["threshold"])))
                assert told not in self.alerts, "a threshold is told once"
                self.alerts.add(told)
        assert all(left == 0 for left in self.kinds.values()), self.kinds
        for (name, block), spent in self.spent.items():
            self.peaks[name, block] = max(self.peaks.get((name, block), 0.0), share(self.limits[name]["spec"], self.neighbors(name), spent))
        for name, block in self.spent:
            if name not in self.moved:
                peak, told = self.peaks[name, block], {t for n, b, t in self.alerts if (n, b) == (name, block)}
                assert {t for t in (0.5, 0.8, 0.95) if peak > t + 1e-9} <= told <= {t for t in (0.5, 0.8, 0.95) if peak >= t - 1e-9}


def text_to_amount(text):
    digits, _, power = text.partition("e")
    return Fraction(digits) * Fraction(10) ** int(power or 0)


def test_in_memory():
    run_state_machine_as_test(Book, settings=settings(deadline=None, derandomize=True, max_examples=60, stateful_step_count=40))


@pytest.mark.slow
def test_in_memory_at_length():
    run_state_machine_as_test(Book, settings=settings(deadline=None, derandomize=True, max_examples=400, stateful_step_count=80))


def test_in_a_file_that_is_closed_and_opened():
    run_state_machine_as_test(
        lambda: Book("file"), settings=settings(deadline=None, derandomize=True, max_examples=12, stateful_step_count=30)
    )


@pytest.mark.postgres
def test_in_postgresql(postgres):
    urls = []

    def made():
        urls.append(postgres.database())
        return Book(urls[-1])

    run_state_machine_as_test(made, settings=settings(deadline=None, derandomize=True, max_examples=8, stateful_step_count=30))
    for url in urls:
        postgres.drop(url)
