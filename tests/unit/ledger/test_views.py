"""Views over a real book: what they say is what the book decides."""

import itertools
import json
import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from dither.core import events as ev
from dither.core.errors import InputError, NotPriceableError, OverBudgetError, UnknownNameError
from dither.core.plans import Charge
from dither.core.units import Neighbors, PrivacyUnit
from dither.ledger import overview, prices, views
from dither.ledger.book import Ledger
from dither.ledger.gauge import Gauge, added
from dither.ledger.terms import Blocks, Dataset, Every

START = datetime(2026, 8, 1, tzinfo=UTC)
UNIT = PrivacyUnit(dataset="events", key="user_id")
ROWS = PrivacyUnit(dataset="visits")
MONTHS = Blocks(column="ts", every=Every.MONTH)


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def on(self, **more):
        self.now += timedelta(**more)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(clock):
    with Ledger.open("sqlite://", clock=clock, actor="asha") as book:
        book.add_dataset(Dataset(name="events", unit=UNIT))
        book.add_dataset(Dataset(name="visits", unit=ROWS, blocks=MONTHS))
        yield book


ids = itertools.count()


def charge(book, account, event, *, unit=UNIT, purpose="report", blocks=(), settle="commit"):
    name = f"c{next(ids)}"
    given = Charge(
        id=name, account=tuple(account.split("/")), unit=unit, event=event, plan_digest="sha256:0", purpose=purpose, blocks=tuple(blocks)
    )
    book.reserve(given)
    if settle == "commit":
        book.commit(name)
    elif settle == "void":
        book.void(name, "the source did not open")
    return name


def total(prices):
    found = prices[0]
    for price in prices[1:]:
        found = added(found, price)
    return found


# ------------------------------------------------------------------------------------------------ history


@pytest.fixture
def busy(ledger, clock):
    """Some of everything."""
    ledger.grant("acme", "events", epsilon=10, delta=1e-6)
    ledger.split("acme", "events", {"ads": 0.6, "research": 0.4})
    ledger.grant("clinic", "visits", epsilon=1, per="block")
    for day in range(12):
        clock.on(days=1)
        charge(ledger, ("acme/ads", "acme/research", "acme")[day % 3], ev.Gaussian(20.0 + day % 2), purpose=("weekly", "study")[day % 2])
    charge(ledger, "clinic", ev.Laplace(4.0), unit=ROWS, blocks=["2026-01", "2026-02"])
    charge(ledger, "acme/ads", ev.Gaussian(30.0), settle="void")
    charge(ledger, "acme/ads", ev.Gaussian(30.0), settle="leave")
    with pytest.raises(OverBudgetError):
        charge(ledger, "acme/ads", ev.Gaussian(0.1))
    ledger.move("acme/ads", "acme/research", "events", epsilon=1)
    return ledger


def test_history_tells_all_in_order_and_a_charge_once(busy):
    rows = views.history(busy)
    assert [row.entry for row in rows] == sorted(row.entry for row in rows)
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    kinds = [row.kind for row in rows]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "open": 1,
        "dataset": 2,
        "account": 4,
        "limit": 4,
        "charge": 15,
        "refusal": 1,
        "move": 1,
    }
    assert [row.state for row in rows if row.kind == "charge"] == ["committed"] * 13 + ["voided", "reserved"]
    assert {row.by for row in rows} == {"asha"}


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1_000])
def test_however_it_is_read_it_says_the_same(busy, monkeypatch, chunk):
    whole, surveyed = views.history(busy), views.survey(busy)
    monkeypatch.setattr(views, "CHUNK", chunk)
    assert views.history(busy) == whole
    assert views.survey(busy) == surveyed
    for count in (1, 2, 5, len(whole), len(whole) + 9):
        assert views.history(busy, limit=count) == whole[-count:]


def test_history_by_account_goes_down_the_tree_part_by_part(busy):
    busy.add_account("acme/ad")
    rows = views.history(busy, account="acme/ad")
    assert [row.kind for row in rows] == ["account"], "acme/ads is another account"
    under = views.history(busy, account="acme")
    assert {row.account for row in under} == {"acme", "acme/ads", "acme/research", "acme/ad"}
    assert all(row.dataset == "visits" for row in views.history(busy, dataset="visits"))
    assert {row.purpose for row in views.history(busy, purpose="study")} == {"study"}
    assert len(views.history(busy, kinds=("refusal",))) == 1


@pytest.mark.parametrize("wrong", [{"account": "acme/sales"}, {"dataset": "event"}])
def test_a_name_that_does_not_exist_lists_those_that_do(busy, wrong):
    with pytest.raises(UnknownNameError, match="expected one of"):
        views.history(busy, **wrong)


def test_a_row_says_what_the_charge_took_of_its_nearest_limit(busy):
    row = next(row for row in views.history(busy, account="acme/ads") if row.kind == "charge")
    limit = busy.terms().limits[row.limit]
    gauge = Gauge.of(limit.filter, UNIT.neighbors)
    price = gauge.price(ev.Gaussian(20.0))
    assert limit.account == ("acme", "ads")
    assert row.share == gauge.share(price)
    assert (row.epsilon, row.delta) == gauge.spent_reading(price, 1)
    assert row.what == "Gaussian(20)"
    json.dumps(row.to_dict(), allow_nan=False)


def test_a_charge_that_ran_shorter_is_told_as_it_ran(ledger):
    ledger.grant("acme", "events", epsilon=1)
    name = charge(ledger, "acme", ev.Repeat(ev.PureDp(0.1), 8), settle="leave")
    ledger.commit(name, event=ev.Repeat(ev.PureDp(0.1), 3))
    (row,) = (row for row in views.history(ledger) if row.kind == "charge")
    assert (row.what, row.epsilon, row.state) == ("3 × PureDp(0.1)", 0.3, "committed")
    (part,) = views.spending(ledger, views.survey(ledger))[0][2]
    assert part.charges == 1
    assert views.survey(ledger).trails["L1", ""].steps[0][1] == ledger.standings()[0].amounts


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ev.Sequence((ev.PureDp(0.5), ev.Laplace(2.0))), "PureDp(0.5) + Laplace(2)"),
        (ev.Parallel((ev.PureDp(0.5), ev.PureDp(0.25))), "2 side by side: PureDp(0.5), PureDp(0.25)"),
        (ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.Shuffled(10, 1_000)), 100), "100 × Gaussian(1) on Shuffled(10, 1,000)"),
        (ev.NonPrivate(), "NonPrivate"),
        (ev.MatrixGaussian(1.0, (1.0, 0.5), 64), "MatrixGaussian(1, 64, 1, 1)"),
    ],
)
def test_events_in_words(event, words):
    assert views.event_words(event) == words


def test_a_long_event_is_cut():
    assert len(views.event_words(ev.Sequence(tuple(ev.Laplace(2.0 + i) for i in range(1_000))))) <= 200


# ------------------------------------------------------------------------------------------------ one reading


def test_what_the_lines_add_up_to_is_what_the_book_holds(busy):
    made = views.survey(busy)
    for standing in busy.standings():
        steps = made.trails.get((standing.limit.id, standing.block), views.Trail()).steps
        open_now = [c for c, _ in busy.open_charges() if c.account[: len(standing.limit.account)] == standing.limit.account]
        gauge = Gauge.of(standing.limit.filter, Neighbors.ADD_REMOVE)
        spent = total([gauge.zero, *(price for _, price in steps)])
        if standing.limit.dataset == "events":
            spent = total([spent, *(gauge.price(c.event) for c in open_now)])
        assert spent == standing.amounts


@pytest.mark.parametrize("last", [None, 1_000, 20, 9, 3, 1])
def test_shares_over_time_end_where_the_limit_stands(busy, last):
    made = views.survey(busy, last=last)
    whole = views.survey(busy)
    for standing in busy.standings():
        found = views.shares(made, standing, Neighbors.ADD_REMOVE)
        assert found == views.shares(whole, standing, Neighbors.ADD_REMOVE)[-len(found) or 10**9 :]
        values = [share for _, share in found]
        assert values == sorted(values)
        assert not values or values[-1] == standing.share
    assert made.whole is (last is None or last >= made.entries == busy.tail()[0] + 1)


def test_a_long_trail_is_merged_and_loses_nothing(monkeypatch):
    monkeypatch.setattr(views, "POINTS_MAX", 300)
    trail = views.Trail()
    for i in range(5_000):
        trail.add(START + timedelta(minutes=i), (i, 1))
    assert len(trail.steps) <= 301
    assert total([price for _, price in trail.steps]) == (sum(range(5_000)), 5_000)
    assert [price for _, price in trail.steps[-200:]] == [(i, 1) for i in range(4_800, 5_000)], "the newest are as they were"
    assert [at for at, _ in trail.steps] == sorted(at for at, _ in trail.steps)


def test_reading_a_long_book_tells_how_far_it_is(busy, monkeypatch):
    monkeypatch.setattr(views, "CHUNK", 10)
    told = []
    views.survey(busy, tell=lambda done, count: told.append((done, count)))
    count = busy.tail()[0] + 1
    assert told == [(done, count) for done in range(0, count, 10)]


# ------------------------------------------------------------------------------------------------ who spent what


def test_who_spent_what_on_which_purpose(ledger):
    ledger.grant("acme", "events", epsilon=1)
    charge(ledger, "acme/ads" if ledger.add_account("acme/ads") else "", ev.PureDp(0.25), purpose="weekly")
    charge(ledger, "acme/ads", ev.PureDp(0.05), purpose="weekly")
    charge(ledger, "acme", ev.PureDp(0.1), purpose="study")
    charge(ledger, "acme", ev.PureDp(0.3), purpose="never ran", settle="void")
    ((limit, dataset, parts),) = views.spending(ledger, views.survey(ledger))
    assert (limit.id, dataset.name) == ("L1", "events")
    assert [(p.account, p.purpose, p.charges, p.people, p.currency) for p in parts] == [
        ("acme/ads", "weekly", 2, ("asha",), "ε"),
        ("acme", "study", 1, ("asha",), "ε"),
    ]
    assert [p.part for p in parts] == [0.75, 0.25]
    ((_, _, weekly),) = views.spending(ledger, views.survey(ledger), purpose="weekly")
    assert [p.part for p in weekly] == [0.75], "a part of all, not of what is shown"
    assert views.spending(ledger, views.survey(ledger), dataset="visits") == []


def test_spending_is_told_by_the_limit_nearest_to_who_asks(busy):
    made = views.survey(busy)
    assert [limit.account for limit, _, _ in views.spending(busy, made)] == [("acme",), ("clinic",)]
    ((limit, _, parts),) = views.spending(busy, made, account="acme/research")
    assert limit.account == ("acme", "research")
    assert sum(p.part for p in parts) == pytest.approx(1)
    for _, _, all_parts in views.spending(busy, made):
        assert sum(p.part for p in all_parts) == pytest.approx(1)


# ------------------------------------------------------------------------------------------------ what is left


def tails(event, within):
    """P(|X| > within), summed from the law itself."""
    reach = 60 * within + 200
    if isinstance(event, ev.DiscreteLaplace):
        mass = {k: math.exp(-abs(k) / event.noise_scale) for k in range(-reach, reach + 1)}
    else:
        mass = {k: math.exp(-(k**2) / (2 * event.noise_std**2)) for k in range(-reach, reach + 1)}
    return 1 - math.fsum(m for k, m in mass.items() if abs(k) <= within) / math.fsum(mass.values())


@pytest.mark.parametrize("within", [1, 2, 5, 20, 100])
def test_a_count_is_as_close_as_is_said(within):
    for event in overview.count_events(within):
        assert tails(event, within) <= 0.05
        assert tails(event, within) >= (1e-4 if within < 5 else 0.03), "not much closer either, or less would be left than there is"


LIMITS = [
    {"epsilon": 1},
    {"epsilon": 1, "delta": 1e-6, "kind": "approx"},
    {"epsilon": 2, "delta": 1e-6, "kind": "advanced"},
    {"epsilon": 1, "delta": 1e-6, "kind": "zcdp"},
    {"epsilon": 1, "delta": 1e-6, "kind": "rdp"},
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.get("kind", "pure"))
def test_as_many_counts_fit_as_is_said_and_not_one_more(ledger, limit):
    ledger.grant("acme", "events", **limit)
    ledger.grant("acme/ads", "events", epsilon=0.9, delta=limit.get("delta", 0), kind=limit.get("kind"))
    charge(ledger, "acme", ev.Laplace(15.0))
    (sheet,) = overview.overview(ledger, views.survey(ledger), now=START, account="acme/ads", dataset="events", within=40).sheets
    room = sheet.nodes[-1].limits[0].lines[0].room
    assert 2 <= room.counts <= 200
    fitted = []
    for event in overview.count_events(room.within):
        with Ledger.open("sqlite://") as fresh:
            fresh.add_dataset(Dataset(name="events", unit=UNIT))
            fresh.grant("acme", "events", **limit)
            fresh.grant("acme/ads", "events", epsilon=0.9, delta=limit.get("delta", 0), kind=limit.get("kind"))
            charge(fresh, "acme", ev.Laplace(15.0))
            count = 0
            with suppress(OverBudgetError, NotPriceableError):
                while count <= room.counts:
                    charge(fresh, "acme/ads", event)
                    count += 1
            fitted.append(count)
    assert max(fitted) == room.counts


def test_the_limit_that_ends_it_is_named(ledger):
    ledger.grant("acme", "events", epsilon=1)
    ledger.grant("acme/ads", "events", epsilon=3)
    made = overview.overview(ledger, views.survey(ledger), now=START, dataset="events")
    top, below = made.sheets[0].nodes
    assert top.limits[0].lines[0].room.held_by == "L1"
    assert below.limits[0].lines[0].room.held_by == "L1"
    assert below.limits[0].lines[0].room.counts == top.limits[0].lines[0].room.counts


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (0, "no more counts, not even at ±5"),
        (1, "about 1 more count at ±5"),
        (12, "about 12 more counts at ±5"),
        (1_299, "about 1,200 more counts at ±5"),
        (10**6, "more than 1,000,000 counts at ±5"),
    ],
)
def test_room_in_plain_words(counts, words):
    assert str(overview.Room(counts=counts, within=5)) == words


def test_how_close_a_count_is_adapts_to_what_is_left(ledger):
    ledger.grant("acme", "events", epsilon=100)
    ledger.grant("acme/ads", "events", epsilon=0.01)
    top, below = overview.overview(ledger, views.survey(ledger), now=START, dataset="events").sheets[0].nodes
    rooms = [node.limits[0].lines[0].room for node in (top, below)]
    assert rooms[0].within == 1
    assert rooms[1].within >= 1_000
    assert all(room.counts >= overview.ENOUGH for room in rooms)


# ------------------------------------------------------------------------------------------------ overview


def test_the_tree_is_in_order_and_says_who_follows(ledger):
    for account in ("acme", "acme/ads", "acme/ads/weekly", "acme/research", "beta"):
        ledger.grant(account, "events", epsilon=1)
    ledger.add_account("acme/ads/daily")
    ledger.add_account("acme/sales")
    nodes = overview.overview(ledger, views.survey(ledger), now=START, dataset="events").sheets[0].nodes
    assert [("/".join(n.account), n.ties, n.unlimited) for n in nodes] == [
        ("acme", (), 1),
        ("acme/ads", (True,), 1),
        ("acme/ads/weekly", (True, False), 0),
        ("acme/research", (False,), 0),
        ("beta", (), 0),
    ]


def test_one_account_brings_those_above_it_and_no_other_dataset(busy):
    made = overview.overview(busy, views.survey(busy), now=START, account="acme/ads")
    assert [sheet.dataset.name for sheet in made.sheets] == ["events"]
    assert [node.account for node in made.sheets[0].nodes] == [("acme",), ("acme", "ads")]
    assert [row.account for row in made.refusals] == ["acme/ads"]
    assert overview.overview(busy, views.survey(busy), now=START, account="clinic").refusals == ()


def test_many_blocks_are_folded(ledger):
    ledger.grant("clinic", "visits", epsilon=1, per="block")
    for month in range(1, 10):
        charge(ledger, "clinic", ev.PureDp(month / 10), unit=ROWS, blocks=[f"2026-{month:02}"])
    (held,) = overview.overview(ledger, views.survey(ledger), now=START, dataset="visits").sheets[0].nodes[0].limits
    assert [line.standing.block for line in held.lines] == ["2026-09", "2026-08", "2026-07"]
    assert (held.fold.blocks, held.fold.least, held.fold.median, held.fold.most) == (9, 0.1, 0.5, 0.9)
    assert "one row of one month of visits" in held.hides


def test_few_blocks_are_told_one_by_one(ledger):
    ledger.grant("clinic", "visits", epsilon=1, per="block")
    for month in range(1, 5):
        charge(ledger, "clinic", ev.PureDp(0.1), unit=ROWS, blocks=[f"2026-{month:02}"])
    (held,) = overview.overview(ledger, views.survey(ledger), now=START, dataset="visits").sheets[0].nodes[0].limits
    assert len(held.lines) == 4
    assert held.fold is None


@pytest.mark.parametrize(
    ("days", "said"), [(0, "not before 2026-08-02 00:00"), (1, ""), (2, "ended 2026-08-03 00:00"), (99, "ended 2026-08-03 00:00")]
)
def test_a_limit_that_is_closed_says_so_and_promises_nothing(ledger, days, said):
    ledger.grant("acme", "events", epsilon=1, starts=START + timedelta(days=1), ends=START + timedelta(days=2))
    found = overview.overview(ledger, views.survey(ledger), now=START + timedelta(days=days), dataset="events")
    held = found.sheets[0].nodes[0].limits[0]
    assert held.active == said
    assert (held.lines[0].room is None) is bool(said)


def test_the_forecast_is_of_the_very_balance(ledger, clock):
    ledger.grant("acme", "events", epsilon=4)
    for _ in range(40):
        clock.on(days=1)
        charge(ledger, "acme", ev.PureDp(0.04))
    (line,) = overview.overview(ledger, views.survey(ledger), now=clock.now, dataset="events").sheets[0].nodes[0].limits[0].lines
    assert line.standing.share == pytest.approx(0.4)
    assert line.forecast.date == clock.now + timedelta(days=60)


def test_an_overview_is_json(busy):
    told = json.loads(json.dumps(overview.overview(busy, views.survey(busy), now=START).to_dict(), allow_nan=False))
    assert [sheet["dataset"] for sheet in told["datasets"]] == ["events", "visits"]
    limit = told["datasets"][0]["limits"][0]
    assert (limit["account"], limit["epsilon"], limit["delta"]) == (["acme"], 10, 1e-6)
    assert limit["balances"][0]["room"]["confidence"] == 0.95
    assert told["datasets"][0]["unit"]["text"] == str(UNIT)
    assert told["open_charges"] == 1


# ------------------------------------------------------------------------------------------------ prices side by side


def test_the_reading_is_the_one_of_the_limit(busy):
    made = prices.prices(busy, "acme", "events")
    standing = busy.balance("acme", "events")
    assert made.ways[0].name == "filter L1 (rdp)"
    assert (made.ways[0].epsilon, made.ways[0].delta) == (standing.spent.epsilon, standing.spent.delta)
    assert made.charges == standing.events == 13
    by_name = {way.name: way for way in made.ways}
    tight = by_name["tight, fixed beforehand"]
    assert not tight.adaptive
    assert 0 < tight.epsilon < by_name["Rényi (RDP)"].epsilon < by_name["filter L1 (rdp)"].epsilon
    assert all(way.adaptive is ("filter" in way.name or "odometer" in way.name) for way in made.ways)
    json.dumps(made.to_dict(), allow_nan=False)


def test_an_account_without_a_limit_is_read_by_the_one_above(ledger):
    ledger.grant("acme", "events", epsilon=2)
    ledger.add_account("acme/ads")
    charge(ledger, "acme", ev.PureDp(0.5))
    charge(ledger, "acme/ads", ev.PureDp(0.25))
    charge(ledger, "acme/ads", ev.PureDp(0.25), settle="void")
    made = prices.prices(ledger, "acme/ads", "events")
    assert (made.limit.id, made.charges) == ("L1", 1)
    assert {way.name: way.epsilon for way in made.ways}["filter L1 (pure)"] == 0.25
    assert {way.name: way.epsilon for way in made.ways}["basic composition"] == 0.25


def test_a_block_has_prices_of_its_own(ledger):
    ledger.grant("clinic", "visits", epsilon=1, per="block")
    charge(ledger, "clinic", ev.PureDp(0.5), unit=ROWS, blocks=["2026-01", "2026-02"])
    charge(ledger, "clinic", ev.PureDp(0.125), unit=ROWS, blocks=["2026-01"])
    assert [prices.prices(ledger, "clinic", "visits", block=b).ways[0].epsilon for b in ("2026-01", "2026-02")] == [0.625, 0.5]
    assert prices.prices(ledger, "clinic", "visits").block == "2026-01"
    with pytest.raises(InputError, match="month"):
        prices.prices(ledger, "clinic", "visits", block="north")
    ledger.grant("acme", "events", epsilon=1)
    with pytest.raises(InputError, match="not divided"):
        prices.prices(ledger, "acme", "events", block="2026-01")


def test_nothing_charged_has_a_price_too(ledger):
    ledger.grant("acme", "events", epsilon=1)
    made = prices.prices(ledger, "acme", "events")
    assert (made.charges, [way.epsilon for way in made.ways]) == (0, [0.0])
    ledger.add_account("beta")
    with pytest.raises(InputError, match="no limit"):
        prices.prices(ledger, "beta", "events")


def test_streams_of_shuffled_batches_are_not_joined():
    stream = ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.Shuffled(10, 100)), 10)
    text = json.dumps(ev.to_dict(stream))
    assert prices.composed({text: 2}) == ev.Sequence((stream, stream))
    plain = json.dumps(ev.to_dict(ev.PureDp(0.5)))
    assert prices.composed({plain: 3, text: 1}) == ev.Sequence((ev.Repeat(ev.PureDp(0.5), 3), stream))
