"""The ledger: what is charged, to whom, in which order it answers, and that nothing is forgotten."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from dither.core import events as ev
from dither.core.errors import (
    ConflictError,
    DitherError,
    InputError,
    LedgerError,
    NotPriceableError,
    OverBudgetError,
    RefusedError,
    TamperError,
    UnknownNameError,
)
from dither.core.plans import Charge, State
from dither.core.units import Neighbors, PrivacyUnit, Trust
from dither.ledger import holders
from dither.ledger.alerts import File
from dither.ledger.blocks import Blocks, Every
from dither.ledger.book import Ledger
from dither.ledger.entries import parse
from dither.ledger.seal import check_receipt
from dither.ledger.terms import Dataset

UNIT = PrivacyUnit(dataset="events", key="user_id")
ROWS = PrivacyUnit(dataset="rows")
MONTHS = Blocks(column="ts", every=Every.MONTH)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("sqlite://", actor="ann") as made:
        made.add_dataset(Dataset(name="events", unit=UNIT))
        made.grant("acme", "events", epsilon=1)
        yield made


def charge(name: str, epsilon: float = 0.25, account: str = "acme", **more: object) -> Charge:
    given = {"unit": UNIT, "event": ev.PureDp(epsilon), "plan_digest": "sha256:0", "purpose": "weekly report", **more}
    return Charge(id=name, account=tuple(account.split("/")), **given)  # type: ignore[arg-type]


def _fits(ledger: Ledger, asked: Charge) -> bool:
    try:
        ledger.reserve(asked)
    except OverBudgetError:
        return False
    return True


def kinds(ledger: Ledger) -> list[str]:
    return [parse(line)["kind"] for line in ledger.lines()]


# ------------------------------------------------------------------------------------------------ two phases


def test_a_charge_is_reserved_then_committed(ledger: Ledger):
    first = ledger.reserve(charge("c1"))
    assert (first.state, first.remaining.epsilon, first.spent.epsilon, first.replayed) == (State.RESERVED, 0.75, 0.25, False)
    done = ledger.commit("c1")
    assert (done.state, done.remaining.epsilon, done.entry) == (State.COMMITTED, 0.75, first.entry + 1)
    assert done.remaining.unit == UNIT
    assert done.remaining.trust is Trust.CENTRAL
    assert ledger.state("c1") is State.COMMITTED
    assert kinds(ledger) == ["open", "dataset", "account", "limit", "reserve", "commit"]


def test_a_retry_gives_the_stored_receipt_and_spends_nothing(ledger: Ledger):
    first = ledger.reserve(charge("c1"))
    again = ledger.reserve(charge("c1"))
    assert (again.entry, again.head, again.at, again.remaining, again.replayed) == (
        first.entry,
        first.head,
        first.at,
        first.remaining,
        True,
    )
    done = ledger.commit("c1")
    assert ledger.commit("c1").entry == done.entry
    assert ledger.reserve(charge("c1")).state is State.COMMITTED
    assert kinds(ledger)[4:] == ["reserve", "commit"]


@pytest.mark.parametrize(
    "other",
    [charge("c1", 0.5), charge("c1", purpose="another"), charge("c1", plan_digest="sha256:1"), charge("c1", account="acme/ads")],
    ids=["event", "purpose", "plan", "account"],
)
def test_the_same_id_for_another_charge_is_a_conflict(ledger: Ledger, other: Charge):
    ledger.reserve(charge("c1"))
    with pytest.raises(ConflictError, match="stands for another charge"):
        ledger.reserve(other)
    assert kinds(ledger)[-1] == "reserve"


def test_void_gives_back_and_is_final(ledger: Ledger):
    ledger.reserve(charge("c1"))
    back = ledger.void("c1", "the source could not be opened")
    assert (back.state, back.remaining.epsilon, back.spent.epsilon) == (State.VOIDED, 1.0, 0.0)
    assert ledger.void("c1", "again").replayed
    with pytest.raises(ConflictError, match="was voided"):
        ledger.commit("c1")
    assert ledger.reserve(charge("c1")).state is State.VOIDED


def test_what_is_committed_is_never_given_back(ledger: Ledger):
    ledger.reserve(charge("c1"))
    ledger.commit("c1")
    with pytest.raises(ConflictError, match="never given back"):
        ledger.void("c1", "please")


def test_only_the_process_that_reserved_may_void(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/book.db"
    with Ledger.open(url) as mine:
        mine.add_dataset(Dataset(name="events", unit=UNIT))
        mine.grant("acme", "events", epsilon=1)
        mine._holder = holders.here().replace(f"|{os.getpid()}|", "|1|").rpartition("|")[0] + f"|{holders._started(1)}"
        mine.reserve(charge("c1"))
        with Ledger.open(url) as other, pytest.raises(RefusedError, match="another process"):
            other.void("c1", "not mine")
        assert mine.void("c1", "mine").state is State.VOIDED


def test_unknown_charges_are_named_as_such(ledger: Ledger):
    for call in (ledger.commit, ledger.receipt, ledger.stored, ledger.sealed, lambda name: ledger.void(name, "x")):
        with pytest.raises(UnknownNameError, match="Unknown charge 'c9'"):
            call("c9")
    assert ledger.state("c9") is None


# ------------------------------------------------------------------------------------------------ over budget, in order


def test_the_limit_is_reached_exactly_and_never_passed(ledger: Ledger):
    for i in range(10):
        ledger.reserve(charge(f"c{i}", 0.1))
    assert ledger.balance("acme").remaining.epsilon == 0
    with pytest.raises(OverBudgetError, match="it costs ε = 1e-09, and ε = 0 is left"):
        ledger.reserve(charge("more", 1e-9))
    refusal = parse(list(ledger.lines())[-1])
    assert (refusal["kind"], refusal["charge"], refusal["code"], refusal["purpose"]) == ("refusal", "more", "over_budget", "weekly report")
    assert ledger.state("more") is None


def test_a_refused_charge_may_be_asked_again_once_there_is_room(ledger: Ledger):
    ledger.reserve(charge("c1", 0.9))
    with pytest.raises(OverBudgetError):
        ledger.reserve(charge("c2", 0.2))
    ledger.void("c1", "nothing was read")
    assert ledger.reserve(charge("c2", 0.2)).remaining.epsilon == 0.8


def test_a_charge_counts_at_every_level(ledger: Ledger):
    ledger.grant("acme/ads", "events", epsilon=0.6)
    ledger.grant("acme/ads/ann", "events", epsilon=0.5)
    ledger.reserve(charge("c1", 0.4, "acme/ads/ann"))
    assert [s.spent.epsilon for s in ledger.standings()] == [0.4, 0.4, 0.4]
    ledger.reserve(charge("c2", 0.2, "acme/ads"))
    with pytest.raises(OverBudgetError, match="limit L2 of account 'acme/ads'"):
        ledger.reserve(charge("c3", 0.1, "acme/ads/ann"))
    assert ledger.reserve(charge("c4", 0.4)).remaining.epsilon == 0
    with pytest.raises(OverBudgetError, match="limit L1 of account 'acme'"):  # the root is named first
        ledger.reserve(charge("c5", 0.1, "acme/ads/ann"))


def test_names_are_compared_part_by_part(ledger: Ledger):
    ledger.grant("acme/ads", "events", epsilon=1)
    ledger.add_account("acme/ad")
    ledger.reserve(charge("c1", 0.5, "acme/ads"))
    ledger.reserve(charge("c2", 0.25, "acme/ad"))
    assert ledger.balance("acme/ads", "events").spent.epsilon == 0.5
    with pytest.raises(InputError, match="looks like 'acme/ads'"):
        ledger.add_account("acme/аds")  # a Cyrillic а
    ledger.add_account("acme/Straße")
    with pytest.raises(InputError, match="looks like"):
        ledger.add_account("acme/Strasse")


def test_answers_come_in_their_order(ledger: Ledger):
    ledger.add_dataset(Dataset(name="rows", unit=ROWS, blocks=MONTHS))
    ledger.grant("late", "rows", epsilon=1, starts=datetime(2999, 1, 1, tzinfo=UTC))
    ledger.add_account("poor")
    other = PrivacyUnit(dataset="nothing")
    before = ledger.tail()[0]
    blocked = {"unit": ROWS, "blocks": ("2026-01",)}
    with pytest.raises(UnknownNameError, match="Unknown dataset 'nothing': expected one of events, rows"):
        ledger.reserve(charge("c", account="nobody", unit=other))
    with pytest.raises(UnknownNameError, match="Unknown account 'nobody'"):
        ledger.reserve(charge("c", account="nobody", unit=PrivacyUnit(dataset="events")))
    with pytest.raises(InputError, match="expected the unit of dataset 'events': one user_id"):
        ledger.reserve(charge("c", unit=PrivacyUnit(dataset="events"), blocks=("2026-01",)))
    with pytest.raises(InputError, match="is not divided into blocks"):
        ledger.reserve(charge("c", account="poor", blocks=("2026-01",)))
    with pytest.raises(InputError, match="is divided by ts"):
        ledger.reserve(charge("c", account="poor", unit=ROWS))
    assert ledger.tail()[0] == before  # wrong input writes nothing
    with pytest.raises(RefusedError, match="'poor' has no limit on dataset 'rows'"):
        ledger.reserve(charge("c", account="poor", **blocked))
    with pytest.raises(RefusedError, match="starts at 2999"):
        ledger.reserve(charge("c", account="late", event=ev.NonPrivate(), **blocked))
    with pytest.raises(NotPriceableError):
        ledger.reserve(charge("c", event=ev.NonPrivate()))
    with pytest.raises(NotPriceableError):  # before the budget is looked at
        ledger.reserve(charge("c", event=ev.Sequence((ev.PureDp(100.0), ev.Gaussian(1.0)))))
    assert kinds(ledger)[-4:] == ["refusal"] * 4


# ------------------------------------------------------------------------------------------------ kinds of filters


def test_mixed_events_share_one_account(ledger: Ledger):
    ledger.grant("team", "events", epsilon=8, delta=1e-6)
    step = ev.Subsample(ev.Gaussian(1.1), ev.Poisson(0.01))
    mixed = (
        ev.Laplace(2.0),
        ev.Gaussian(4.0),
        ev.Repeat(step, 200),
        ev.RandomizedResponse(epsilon=0.5, values=4),
        ev.ExponentialMechanism(0.3),
        ev.ApproxDp(0.2, 1e-8),
    )
    for i, event in enumerate(mixed):
        ledger.reserve(charge(f"m{i}", account="team", event=event))
    told = ledger.receipt("m5")
    assert 0 < told.spent.epsilon < 8
    assert told.spent.delta <= 1e-6


@pytest.mark.parametrize("kind", ["pure", "approx", "advanced", "zcdp", "rdp"])
def test_each_kind_of_filter_admits_until_it_is_full(kind: str):
    with Ledger.open("sqlite://") as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.grant("acme", "events", epsilon=1, delta=0 if kind == "pure" else 1e-6, kind=kind)
        count = sum(_fits(ledger, charge(f"c{i}", 0.02)) for i in range(200))
        least = {"pure": 50, "approx": 50, "advanced": 87, "zcdp": 87, "rdp": 55}[kind]
        assert least <= count < 200
        assert ledger.balance("acme").spent.epsilon <= 1 + 1e-9


# ------------------------------------------------------------------------------------------------ less than reserved


def test_a_run_that_stops_early_is_charged_for_what_ran(ledger: Ledger):
    step = ev.PureDp(0.01)
    ledger.reserve(charge("c1", event=ev.Repeat(step, 50)))
    done = ledger.commit("c1", event=ev.Repeat(step, 20))
    assert done.spent.epsilon == 0.2
    body = parse(list(ledger.lines())[-1])
    assert body["event"]["count"] == 20
    assert body["prices"] == {"L1": ["1/5"]}


@pytest.mark.parametrize("event", [ev.PureDp(0.02), ev.Repeat(ev.PureDp(0.01), 51), ev.Repeat(ev.PureDp(0.001), 5)])
def test_only_the_beginning_of_what_was_reserved_may_be_charged_instead(ledger: Ledger, event: ev.Event):
    ledger.reserve(charge("c1", event=ev.Repeat(ev.PureDp(0.01), 50)))
    with pytest.raises(InputError, match="not the beginning"):
        ledger.commit("c1", event=event)
    assert ledger.state("c1") is State.RESERVED


def test_as_many_steps_as_fit_are_reserved(ledger: Ledger):
    ledger.reserve(charge("c0", 0.3))
    asked = charge("c1", event=ev.Repeat(ev.PureDp(0.01), 1_000))
    found = ledger.reserve_up_to(asked)
    assert found.event == ev.Repeat(ev.PureDp(0.01), 70)
    assert ledger.reserve_up_to(asked).receipt.replayed
    assert ledger.reserve_up_to(asked).event == found.event
    with pytest.raises(ConflictError):
        ledger.reserve(asked)  # the whole of it was never reserved
    with pytest.raises(OverBudgetError):
        ledger.reserve_up_to(charge("c2", event=ev.Repeat(ev.PureDp(0.01), 5)))
    spread = ev.Repeat(ev.DiscreteLaplace(noise_scale=90.0, sensitivity=1), 4, spread=True)  # one release that moves four counts
    for event in (ev.PureDp(0.1), spread):
        with pytest.raises(InputError, match="a Repeat of steps"):
            ledger.reserve_up_to(charge("c3", event=event))
    ledger.void("c1", "nothing was read")
    ledger.reserve(charge("c4", event=spread))
    with pytest.raises(InputError, match="not the beginning"):
        ledger.commit("c4", event=ev.Repeat(spread.event, 2, spread=True))


# ------------------------------------------------------------------------------------------------ blocks


def months(unit: PrivacyUnit, per: str, disjoint: bool | None = None) -> Ledger:
    ledger = Ledger.open("sqlite://")
    ledger.add_dataset(Dataset(name="rows", unit=unit, blocks=MONTHS, disjoint=disjoint))
    ledger.grant("acme", "rows", epsilon=1, per=per)
    return ledger


@pytest.mark.parametrize("per", ["block", "dataset"])
def test_disjoint_blocks_compose_in_parallel(per: str):
    with months(ROWS, per) as ledger:
        ledger.reserve(charge("c1", 1, unit=ROWS, blocks=("2026-01", "2026-02")))
        ledger.reserve(charge("c2", 0.5, unit=ROWS, blocks=("2026-03",)))
        with pytest.raises(OverBudgetError, match=r"\(block 2026-02\)"):
            ledger.reserve(charge("c3", 0.1, unit=ROWS, blocks=("2026-03", "2026-02")))
        assert [(s.block, s.spent.epsilon) for s in ledger.standings()] == [("2026-01", 1.0), ("2026-02", 1.0), ("2026-03", 0.5)]
        assert ledger.reserve(charge("c4", 1, unit=ROWS, blocks=("2031-07",))).remaining.epsilon == 0  # new data, new budget


@pytest.mark.parametrize(
    ("unit", "disjoint"),
    [(PrivacyUnit(dataset="rows", neighbors=Neighbors.REPLACE), None), (PrivacyUnit(dataset="rows", key="user_id"), None)],
    ids=["replace", "a key over blocks"],
)
def test_where_units_reach_over_blocks_a_limit_on_the_dataset_adds_up(unit: PrivacyUnit, disjoint: bool | None):
    with months(unit, "dataset", disjoint) as ledger:
        ledger.reserve(charge("c1", 0.6, unit=unit, blocks=("2026-01",)))
        with pytest.raises(OverBudgetError):
            ledger.reserve(charge("c2", 0.6, unit=unit, blocks=("2026-02",)))
        assert [s.block for s in ledger.standings()] == [""]
    with months(unit, "block", disjoint) as ledger:
        ledger.reserve(charge("c1", 0.6, unit=unit, blocks=("2026-01",)))
        ledger.reserve(charge("c2", 0.6, unit=unit, blocks=("2026-02",)))


def test_a_charge_over_many_blocks_is_all_or_nothing():
    with months(ROWS, "block") as ledger:
        ledger.reserve(charge("c1", 0.9, unit=ROWS, blocks=("2026-06",)))
        year = tuple(f"2026-{m:02}" for m in range(1, 13))
        with pytest.raises(OverBudgetError, match="2026-06"):
            ledger.reserve(charge("c2", 0.2, unit=ROWS, blocks=year))
        assert len(ledger.standings()) == 1


def test_a_thousand_blocks_in_one_charge():
    with months(ROWS, "block") as ledger:
        many = MONTHS.names("1990-01", "2080-12")
        ledger.reserve(charge("c1", 0.5, unit=ROWS, blocks=many))
        ledger.void("c1", "nothing was read")
        assert {s.spent.epsilon for s in ledger.standings()} == {0.0}
        assert len(ledger.standings()) == len(many)


def test_partitions_may_grow_and_nothing_else_may_change(ledger: Ledger):
    def parts(*names: str) -> Dataset:
        return Dataset(name="parts", unit=PrivacyUnit(dataset="parts"), blocks=Blocks(column="region", partitions=names))

    ledger.add_dataset(parts("north", "south"))
    ledger.add_dataset(parts("north", "south", "west"))
    for wrong in (parts("south", "north", "west"), parts("north"), Dataset(name="parts", unit=PrivacyUnit(dataset="parts"))):
        with pytest.raises(ConflictError, match="declared in another way"):
            ledger.add_dataset(wrong)


# ------------------------------------------------------------------------------------------------ limits


def test_a_limit_starts_and_ends_and_the_clock_never_goes_back():
    clock = Clock()
    with Ledger.open("sqlite://", clock=clock) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.grant("acme", "events", epsilon=1, starts=clock.now + timedelta(days=1), ends=clock.now + timedelta(days=2))
        with pytest.raises(RefusedError, match="starts at"):
            ledger.reserve(charge("c1"))
        clock.now += timedelta(days=1)
        ledger.reserve(charge("c1"))
        clock.now += timedelta(days=1)
        with pytest.raises(RefusedError, match="ended at"):
            ledger.reserve(charge("c2"))
        clock.now -= timedelta(days=1)
        with pytest.raises(RefusedError, match="ended at"):
            ledger.reserve(charge("c2"))
        times = [parse(line)["at"] for line in ledger.lines()]
        assert times == sorted(times)


def test_a_new_period_refills_nothing(ledger: Ledger):
    assert ledger.grant("acme", "events", epsilon=1).id == "L1"
    for again in (
        {"epsilon": 2},
        {"epsilon": 1, "starts": datetime(2027, 1, 1, tzinfo=UTC)},
        {"epsilon": 0.5},
        {"epsilon": 1, "delta": 1e-6},
    ):
        with pytest.raises(RefusedError, match="never changed or refilled"):
            ledger.grant("acme", "events", **again)
    assert kinds(ledger)[-4:] == ["refusal"] * 4


def test_splits_by_share_in_one_line(ledger: Ledger):
    made = ledger.split("acme", "events", {"training": 0.6, "evaluation": 0.2, "queries": 0.2})
    assert [(limit.account[-1], limit.filter.epsilon) for limit in made] == [
        ("training", Fraction(3, 5)),
        ("evaluation", Fraction(1, 5)),
        ("queries", Fraction(1, 5)),
    ]
    assert ledger.split("acme", "events", {"training": 0.6, "evaluation": 0.2, "queries": 0.2}) == made
    with pytest.raises(InputError, match="sum to at most 1"):
        ledger.split("acme", "events", {"a": 0.6, "b": 0.6})
    with pytest.raises(RefusedError):
        ledger.split("acme", "events", {"training": 0.5})
    with pytest.raises(InputError, match="no limit of its own"):
        ledger.split("acme/training/x", "events", {"a": 1}) if ledger.add_account("acme/training/x") else None


@pytest.mark.parametrize(
    ("kind", "spent", "too_much", "moved", "second", "later"),
    [("pure", 1, 1.5, 0.5, 0.9, 2.1), ("rdp", 1, 1.5, 0.5, 0.9, 2.1), ("zcdp", 0.3, 0.9, 0.2, 0.3, 0.35)],
)
def test_unspent_budget_moves_between_siblings_only(kind: str, spent: float, too_much: float, moved: float, second: float, later: float):
    delta = 0 if kind == "pure" else 1e-6
    with Ledger.open("sqlite://") as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.grant("acme", "events", epsilon=4, delta=delta, kind=kind)
        ledger.grant("acme/a", "events", epsilon=2, delta=delta / 2, kind=kind)
        ledger.grant("acme/b", "events", epsilon=2, delta=delta / 2, kind=kind)
        ledger.reserve(charge("c1", spent, "acme/a"))
        with pytest.raises(RefusedError, match="has spent more than would be left"):
            ledger.move("acme/a", "acme/b", "events", epsilon=too_much)
        source, target = ledger.move("acme/a", "acme/b", "events", epsilon=moved)
        step = Fraction(str(moved))
        assert (source.filter.epsilon, target.filter.epsilon) == (2 - step, 2 + step)
        with pytest.raises(OverBudgetError):
            ledger.reserve(charge("c2", second, "acme/a"))
        ledger.reserve(charge("c3", later, "acme/b"))
        for pair in (("acme/a", "acme"), ("acme/a", "acme/a"), ("acme", "acme/a")):
            with pytest.raises(RefusedError, match="siblings"):
                ledger.move(*pair, "events", epsilon=0.1)
        assert ledger.grant("acme/a", "events", epsilon=2, delta=delta / 2, kind=kind).filter == source.filter


def test_budget_moves_only_where_a_limit_above_holds_both():
    with Ledger.open("sqlite://") as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.grant("acme/a", "events", epsilon=2)
        ledger.grant("acme/b", "events", epsilon=2)
        with pytest.raises(RefusedError, match="no promise would hold"):
            ledger.move("acme/a", "acme/b", "events", epsilon=1)
        assert kinds(ledger)[-1] == "refusal"


def test_collusion_is_told_where_siblings_sum_above_their_parent(ledger: Ledger):
    assert ledger.notes() == ()
    ledger.grant("acme/a", "events", epsilon=0.7)
    ledger.grant("acme/b", "events", epsilon=0.7)
    (note,) = ledger.notes()
    assert "'acme/a', 'acme/b' sum to ε = 1.4, above the ε = 1 of 'acme'" in note
    ledger.grant("other", "events", epsilon=3)
    assert any("nothing stands above 'acme', 'other'" in note and "ε = 4" in note for note in ledger.notes())


# ------------------------------------------------------------------------------------------------ alerts


def test_every_threshold_is_told_of_once(tmp_path: Path):
    told = tmp_path / "told"
    with Ledger.open("sqlite://", channels=[File(told)]) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.grant("acme", "events", epsilon=1)
        for i in range(9):
            ledger.reserve(charge(f"c{i}", 0.1))
        ledger.void("c8", "nothing was read")
        ledger.reserve(charge("d1", 0.2))
        with pytest.raises(OverBudgetError):
            ledger.reserve(charge("d2", 0.2))
        alerts = [body for line in ledger.lines() if (body := parse(line))["kind"] == "alert"]
        assert [(a["threshold"], a["share"]) for a in alerts] == [("1/2", "0.5000"), ("4/5", "0.8000"), ("19/20", "1.0000")]
        if ledger._telling is not None:
            ledger._telling.join()
        ledger.deliver_pending()
        assert ledger.deliver_pending() == 0
    messages = [json.loads(line) for line in told.read_text().splitlines()]
    assert sorted({m["kind"] for m in messages}) == ["alert", "refusal"]
    assert len({m["entry"] for m in messages}) == 4
    assert "has passed 50 % of ε = 1 (pure): 50 % is used" in messages[0]["text"]


# ------------------------------------------------------------------------------------------------ releases, seals, opening


def test_a_release_is_kept_with_its_charge(ledger: Ledger):
    ledger.reserve(charge("c1"))
    with pytest.raises(InputError, match="canonical JSON"):
        ledger.commit("c1", release='{"b": 1}')
    ledger.commit("c1", release='{"value":7}')
    assert ledger.stored("c1") == '{"value":7}'
    with pytest.raises(ConflictError, match="another release"):
        ledger.commit("c1", release='{"value":8}')
    ledger.reserve(charge("c2"))
    assert ledger.stored("c2") is None


def test_a_receipt_is_signed_and_says_what_the_book_says(ledger: Ledger):
    ledger.reserve(charge("c1"))
    assert ledger.public_key is not None
    held = check_receipt(ledger.sealed("c1"), ledger.public_key)
    assert (held.charge, held.state, held.purpose, held.spent.epsilon) == ("c1", State.RESERVED, "weekly report", 0.25)
    with pytest.raises(TamperError):
        check_receipt(ledger.sealed("c1").replace("weekly", "yearly"), ledger.public_key)


def test_a_book_is_opened_again_as_it_was(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/book.db"
    with Ledger.open(url) as first:
        first.add_dataset(Dataset(name="events", unit=UNIT))
        first.grant("acme", "events", epsilon=1)
        first.reserve(charge("c1", 0.75))
        head = first.tail()
    with Ledger.open(url) as second:
        assert second.tail() == head
        assert second.state("c1") is State.RESERVED  # this very process holds it
        with pytest.raises(OverBudgetError):
            second.reserve(charge("c2", 0.5))
    with Ledger.open(url, readonly=True) as third:
        assert third.standings()[0].spent.epsilon == 0.75
        assert third.standings()[0].reserved == 0.75
    (tmp_path / "book.db.key").unlink()
    with pytest.raises(LedgerError, match=r"signing key .* is missing"):
        Ledger.open(url)
    assert not (tmp_path / "book.db.key").exists()


@pytest.mark.parametrize("url", ["", "mysql://x/y", "nonsense", "sqlite:///x.db?mode=ro", 7])
def test_urls_that_are_none_are_one_clear_error(url: object):
    with pytest.raises(InputError):
        Ledger.open(url)  # type: ignore[arg-type]


def test_a_book_that_is_not_there_is_not_made_for_a_reader(tmp_path: Path):
    with pytest.raises(LedgerError, match="There is no book"):
        Ledger.open(f"sqlite:///{tmp_path}/none.db", readonly=True)
    with pytest.raises(LedgerError, match="folder"):
        Ledger.open(f"sqlite:///{tmp_path}/none/none.db")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_replaced_while_open_is_noticed(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/book.db"
    with Ledger.open(url) as ledger:
        ledger.add_account("acme")
        (tmp_path / "book.db").rename(tmp_path / "away.db")
        with pytest.raises(TamperError, match="removed or replaced"):
            ledger.add_account("other")


def test_a_book_put_back_to_an_older_state_is_noticed(tmp_path: Path):
    url, anchor = f"sqlite:///{tmp_path}/book.db", tmp_path / "anchors"
    with Ledger.open(url, anchor=anchor) as ledger:
        ledger.add_account("acme")
    older = (tmp_path / "book.db").read_bytes()
    with Ledger.open(url, anchor=anchor) as ledger:
        ledger.add_account("acme/ads")
    (tmp_path / "book.db").write_bytes(older)
    with pytest.raises(TamperError, match="put back to an older"):
        Ledger.open(url, anchor=anchor)


def test_a_closed_ledger_says_so(ledger: Ledger):
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="is closed"):
        ledger.add_account("acme")


# ------------------------------------------------------------------------------------------------ many at once


def test_threads_share_transactions_and_never_overspend(tmp_path: Path):
    outcomes: list[bool] = []
    with Ledger.open(f"sqlite:///{tmp_path}/book.db") as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.grant("acme", "events", epsilon=1)

        def work(k: int) -> None:
            for i in range(10):
                try:
                    ledger.reserve(charge(f"t{k}-{i}", 0.01))
                except OverBudgetError:
                    outcomes.append(False)
                else:
                    outcomes.append(True)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(outcomes) == 100
        assert len(outcomes) == 160
        assert kinds(ledger).count("refusal") == 60


def test_a_job_that_fails_leaves_the_others_of_its_transaction_alone(ledger: Ledger):
    with pytest.raises(DitherError):
        ledger.reserve(charge("c1", 7))
    assert ledger.reserve(charge("c2", 0.5)).remaining.epsilon == 0.5


def test_a_split_that_is_refused_leaves_nothing(ledger: Ledger):
    before = ledger.tail()[0]
    with pytest.raises(InputError, match="looks like"):
        ledger.split("acme", "events", {"team": 0.1, "t\u0435am": 0.1})
    for wrong in ([0.5], {"a": 0}, {"a": 1.5}, {}, {"a": "1/2"}):
        with pytest.raises(InputError):
            ledger.split("acme", "events", wrong)  # type: ignore[arg-type]
    for alerts in (0.5, [0], [2], "x"):
        with pytest.raises(InputError):
            ledger.split("acme", "events", {"a": 0.5}, alert_at=alerts)  # type: ignore[arg-type]
        with pytest.raises(InputError):
            ledger.grant("acme/b", "events", epsilon=0.5, alert_at=alerts)  # type: ignore[arg-type]
    assert ledger.tail()[0] == before


def test_checkpoints_come_every_1024_entries():
    with Ledger.open("sqlite://") as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.grant("acme", "events", epsilon=1, alert_at=())
        for i in range(1030):
            ledger.reserve(charge(f"c{i}", 0.0005))
            ledger.commit(f"c{i}")
        assert [n for n, kind in enumerate(kinds(ledger)) if kind == "checkpoint"] == [1024, 2048]


def test_an_interrupted_decision_leaves_no_one_waiting(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    """The one who decides is interrupted while others wait: they get an error, and the next one is served."""
    entered, answers = threading.Event(), []
    true_write = ledger.store.write

    def interrupted(work: object) -> object:
        entered.set()
        while len(ledger._waiting) < 3:
            pass
        monkeypatch.setattr(ledger.store, "write", true_write)
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger.store, "write", interrupted)

    def work(name: str) -> None:
        try:
            answers.append(ledger.reserve(charge(name, 0.1)).state)
        except (KeyboardInterrupt, LedgerError) as error:
            answers.append(type(error))

    threads = [threading.Thread(target=work, args=("first",))]
    threads[0].start()
    entered.wait()
    threads += [threading.Thread(target=work, args=(f"c{i}",)) for i in range(3)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(map(str, answers)) == sorted(map(str, [KeyboardInterrupt, *[State.RESERVED] * 3]))
    assert ledger._leader is None
    assert ledger.state("first") is None
