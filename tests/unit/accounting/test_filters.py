"""Privacy filters and odometers: what fits, what is refused, and that the rule is the theorem's."""

import copy
import json
import math
import pickle
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from dither import events as ev
from dither.accounting import filters as ft
from dither.accounting import rdp
from dither.accounting._book import divergence
from dither.accounting.loss import loss
from dither.core.errors import DecodeError, InputError, NotPriceableError, OverBudgetError, RefusedError, UnknownNameError

STEP = ev.Subsample(ev.Gaussian(1.1), ev.Poisson(0.01))
PURES, APPROX = [ev.PureDp(0.25), ev.PureDp(0.5), ev.PureDp(1.0)], ev.ApproxDp(0.5, 0.01)
OPENED = [
    ft.PureFilter.open(1.0),
    ft.ApproxFilter.open(1.0, 1e-6),
    ft.AdvancedFilter.open(1.0, 1e-6, side_delta=1e-7),
    ft.ZcdpFilter.open(0.5, side_delta=1e-9),
    ft.ZcdpFilter.for_epsilon(1.0, 1e-6),
    ft.RdpFilter.open(1.0, 1e-6),
    ft.RdpFilter.open(1.0, 1e-6, orders=[32.0], side_delta=1e-8),
    ft.PureOdometer.open(),
    ft.ZcdpOdometer.open(),
    ft.RenyiOdometer.open(1e-6),
]


def filled(book, event, most=10**6):
    """How many times the event fits, found by doubling and halving (the sum is linear), and the state after all of them."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if book.would(ev.Repeat(event, middle)).allowed else (low, middle - 1)
    return low


# ------------------------------------------------------------------------------------------------ exactness


def test_ten_times_a_tenth_is_one():
    book = ft.PureFilter.open(1.0)
    for _ in range(10):
        book = book.after(ev.PureDp(0.1))
    assert book.spent == (1,)
    assert book.remaining == (0,)
    assert book.events == 10
    decision = book.would(ev.PureDp(1e-12))
    assert not decision.allowed
    assert "ε" in decision.reason
    with pytest.raises(OverBudgetError, match="would overspend"):
        book.after(ev.PureDp(1e-12))
    assert book.would(ev.PureDp(0.0)).allowed


def test_noise_levels_are_exact_too():
    thirds = ft.PureFilter.open(1.0)
    for _ in range(3):
        thirds = thirds.after(ev.Laplace(3.0))
    assert thirds.remaining == (0,)
    book = ft.ZcdpFilter.open(1.0)
    for _ in range(18):
        book = book.after(ev.Gaussian(3.0))
    assert book.remaining[0] == 0
    with pytest.raises(OverBudgetError):
        book.after(ev.Gaussian(1e12))


def test_a_filter_is_never_changed():
    book = ft.PureFilter.open(1.0)
    after = book.after(ev.PureDp(0.5))
    assert book.spent == (0,)
    assert after.spent == (Fraction(1, 2),)
    with pytest.raises(AttributeError):
        book.spent = (Fraction(0),)
    refused = after.would(ev.PureDp(0.6))
    assert refused.price == (Fraction(6, 10),)
    assert after.spent == (Fraction(1, 2),)


@pytest.mark.parametrize(
    "event", [ev.PureDp(0.01), ev.Laplace(50.0), ev.RandomizedResponse(0.02, 5), ev.ExponentialMechanism(0.01), ev.DiscreteLaplace(70.0)]
)
@pytest.mark.parametrize("book", OPENED[:6])
def test_a_repeat_costs_what_its_runs_cost(book, event):
    one = book.price(event)
    assert book.price(ev.Repeat(event, 12)) == pytest.approx(tuple(12 * amount for amount in one), rel=1e-12)
    twelve = book
    for _ in range(12):
        twelve = twelve.after(event)
    assert [float(x) for x in twelve.spent] == pytest.approx([12 * float(x) for x in one], rel=1e-12)


# ------------------------------------------------------------------------------------------------ the rules


def test_approx_adds_both():
    book = ft.ApproxFilter.open(1.0, 3e-7)
    for _ in range(3):
        book = book.after(ev.ApproxDp(0.1, 1e-7))
    assert book.spent == (Fraction(3, 10), Fraction(3, 10**7))
    assert not book.would(ev.ApproxDp(0.1, 1e-30)).allowed
    assert book.would(ev.PureDp(0.7)).allowed
    assert not book.would(ev.PureDp(0.7000001)).allowed


def test_advanced_is_the_published_rule():
    for epsilon, delta in [(0.1, 1e-5), (1.0, 1e-6), (8.0, 1e-9)]:
        book = ft.AdvancedFilter.open(epsilon, delta)
        squares = float(book.limit[0])
        assert math.sqrt(2 * math.log(1 / delta) * squares) + squares / 2 == pytest.approx(epsilon, rel=1e-10)
        assert math.sqrt(2 * math.log(1 / delta) * squares) + squares / 2 <= epsilon
        k = filled(book, ev.PureDp(0.01))
        assert k == int(squares / 1e-4)
        assert loss(ev.Repeat(ev.PureDp(0.01), k)).epsilon(delta).upper <= epsilon


def test_zcdp_filter_converts_to_what_it_promises():
    book = ft.ZcdpFilter.for_epsilon(2.0, 1e-6, side_delta=1e-7)
    assert book.limit[1] == Fraction(1, 10**7)
    assert book.epsilon(1e-6) <= 2.0 * (1 + 1e-14)
    assert book.epsilon(1e-6) == pytest.approx(2.0, rel=1e-6)
    assert book.epsilon(1e-7) == math.inf
    k = filled(book, ev.Gaussian(100.0))
    assert loss(ev.Repeat(ev.Gaussian(100.0), k)).epsilon(9e-7).upper <= 2.0
    assert loss(ev.Repeat(ev.Gaussian(100.0), 2 * k)).epsilon(9e-7).upper > 2.0


@pytest.mark.parametrize("orders", [[10.0], ft.ORDERS])
def test_rdp_filter_never_lets_more_through_than_the_truth_allows(orders):
    book = ft.RdpFilter.open(2.0, 1e-6, orders=orders)
    k = filled(book, STEP)
    assert k > (1_000 if len(orders) == 1 else 500)  # ~1 000 runs would fit with all prices fixed beforehand
    assert loss(ev.Repeat(STEP, k)).epsilon(1e-6).upper <= 2.0
    assert not book.would(ev.Repeat(STEP, k + 1)).allowed


def test_several_orders_pay_for_the_choice():
    one = ft.RdpFilter.open(1.0, 1e-6, orders=[16.0])
    two = ft.RdpFilter.open(1.0, 1e-6, orders=[16.0, 64.0])
    gap = float(one.limit[0] - two.limit[0])
    assert gap == pytest.approx(math.log(2) / 15, rel=1e-9)
    assert rdp.epsilon_from_curve([16.0], [float(one.limit[0])], 1e-6).value == pytest.approx(1.0, rel=1e-10)
    assert rdp.epsilon_from_curve([16.0], [float(one.limit[0])], 1e-6).value <= 1.0


def test_an_order_that_is_used_up_stays_so_while_another_holds():
    book = ft.RdpFilter.open(3.0, 1e-6, orders=[8.0, 64.0])
    after = book.after(ev.Gaussian(4.0))
    assert after.spent[0] < after.limit[0]
    many = ft.RdpFilter.open(3.0, 1e-6, orders=[4.0, 64.0])
    dead = many.after(ev.Repeat(ev.PureDp(0.3), 8))
    assert dead.spent[0] < dead.limit[0] or dead.spent[1] < dead.limit[1]
    assert dead.remaining[-1] == 0


def test_events_with_a_delta_go_to_the_side_account():
    for book in (ft.ZcdpFilter.open(1.0, side_delta=2e-8), ft.RdpFilter.open(3.0, 1e-6, side_delta=2e-8)):
        two = book.after(ev.Sequence((ev.ApproxDp(0.1, 1e-8), ev.Gaussian(10.0)))).after(ev.ApproxDp(0.1, 1e-8))
        assert two.spent[-1] == Fraction(2, 10**8)
        assert not two.would(ev.ApproxDp(0.1, 1e-30)).allowed
        assert two.would(ev.Gaussian(10.0)).allowed


def test_what_a_theorem_does_not_cover_is_refused():
    with pytest.raises(NotPriceableError, match="ε at δ = 0"):
        ft.PureFilter.open(1.0).would(ev.Gaussian(1.0))
    with pytest.raises(NotPriceableError, match="of its own"):
        ft.ApproxFilter.open(1.0, 1e-6).would(ev.Gaussian(1.0))
    with pytest.raises(NotPriceableError, match="of its own"):
        ft.AdvancedFilter.open(1.0, 1e-6).would(ev.Sequence((ev.PureDp(0.1), ev.Gaussian(1.0))))
    with pytest.raises(NotPriceableError, match="ρ"):
        ft.ZcdpFilter.open(1.0).would(ev.NonPrivate())
    with pytest.raises(NotPriceableError, match="Rényi"):
        ft.RdpFilter.open(1.0, 1e-6).would(ev.NonPrivate())
    with pytest.raises(NotPriceableError):
        ft.PureOdometer.open().after(ev.Gaussian(1.0))
    with pytest.raises(NotPriceableError):
        ft.RenyiOdometer.open(1e-6).after(ev.NonPrivate())
    with pytest.raises(RefusedError, match="larger orders"):
        ft.RdpFilter.open(0.01, 1e-9, orders=[2.0])


def test_neighbours_and_groups_are_fixed_at_opening():
    plain, swap, pair = (ft.ZcdpFilter.open(1.0, **kw) for kw in ({}, {"neighbors": "replace"}, {"group": 2}))
    poisson = ev.Subsample(ev.Gaussian(2.0), ev.Poisson(0.5))
    assert swap.price(poisson)[0] > plain.price(poisson)[0]
    assert pair.price(ev.Gaussian(2.0))[0] == 4 * plain.price(ev.Gaussian(2.0))[0]
    assert ft.PureFilter.open(9.0, group=3).price(ev.Laplace(2.0)) == (Fraction(3, 2),)
    parts = ev.Parallel((ev.PureDp(1.0), ev.PureDp(0.5)))
    assert ft.PureFilter.open(9.0).price(parts) == (1,)
    assert float(ft.PureFilter.open(9.0, neighbors="replace").price(parts)[0]) >= 1.5


# ------------------------------------------------------------------------------------------------ odometers


def test_pure_odometer_reads_sums():
    book = ft.PureOdometer.open().after(ev.ApproxDp(0.5, 1e-9)).after(ev.Repeat(ev.Laplace(4.0), 3))
    assert book.reading == (Fraction(5, 4), Fraction(1, 10**9))


def test_zcdp_odometer_reads_what_the_filter_charges():
    book, filtered = ft.ZcdpOdometer.open(group=2), ft.ZcdpFilter.open(100.0, side_delta=0.5, group=2)
    for event in (ev.Gaussian(3.0), ev.Repeat(ev.Laplace(2.0), 5), ev.ApproxDp(0.1, 0.01), ev.Zcdp(0.2)):
        assert book.price(event) == filtered.price(event)
        book, filtered = book.after(event), filtered.after(event)
    assert book.reading == filtered.spent
    assert book.after(ev.Repeat(ev.ApproxDp(0.1, 0.3), 9)).reading[1] == 1
    with pytest.raises(NotPriceableError, match="Use a RenyiOdometer"):
        book.after(ev.NonPrivate())


def test_renyi_odometer_is_above_the_price_and_below_the_worst():
    book = ft.RenyiOdometer.open(1e-6)
    assert book.reading == (0.0, Fraction(1, 10**6))
    before = 0.0
    for k in range(1, 30):
        book = book.after(ev.Repeat(STEP, 100))
        now = book.reading[0]
        assert now >= before
        assert now >= loss(ev.Repeat(STEP, 100 * k)).epsilon(1e-6).lower
        before = now
    fixed = rdp.renyi_epsilon(ev.Repeat(STEP, 2_900), 1e-6).value
    assert before <= 1.5 * fixed + math.log(len(ft.ORDERS)) / 4
    one = ft.RenyiOdometer.open(1e-6, orders=[8.0]).after(ev.Gaussian(4.0))
    assert one.reading[0] == pytest.approx(0.25 + math.log(1e6) / 7, rel=1e-9)


def test_renyi_odometer_holds_along_the_whole_path():
    """Losses of adaptively chosen Gaussians cross the reading with probability at most δ (here 0.05; 0.2 % by chance above 0.06)."""
    rng = np.random.Generator(np.random.PCG64(7))
    delta, steps, runs = 0.05, 60, 20_000
    total, crossed = np.zeros(runs), np.zeros(runs, dtype=bool)
    divergence = np.zeros(runs)
    order = 4.0
    for _ in range(steps):
        noise = np.where(total > 0, 4.0, 8.0)  # less noise after a bad answer
        x = rng.standard_normal(runs) * noise + 1
        total += (2 * x - 1) / (2 * noise**2)
        divergence += order / (2 * noise**2)
        crossed |= total > divergence + math.log(1 / delta) / (order - 1)
    assert crossed.mean() <= delta
    assert crossed.mean() > 0.0001  # with half the noise written down, or none of it, this test would not be idle


# ------------------------------------------------------------------------------------------------ one budget per record


def test_individual_budgets():
    book = ft.IndividualFilter.open(0.5)
    asked = {"small": ev.Gaussian(4.0), "large": ev.Gaussian(1.0)}  # noise over the record's own norm
    assert book.active(asked) == {"small", "large"}
    book = book.after(asked)
    assert book.remaining("large") == 0
    assert book.remaining("small") == Fraction(15, 32)
    assert book.active(asked) == {"small"}
    for _ in range(15):
        book = book.after(asked)
    assert book.active(asked) == frozenset()
    assert book.after(asked) == book
    assert book.remaining("new") == Fraction(1, 2)
    assert ft.from_dict(json.loads(json.dumps(book.to_dict()))) == book
    with pytest.raises(NotPriceableError):
        book.active({"small": ev.NonPrivate()})
    with pytest.raises(InputError):
        book.active([ev.Gaussian(1.0)])


# ------------------------------------------------------------------------------------------------ text


@pytest.mark.parametrize("book", OPENED, ids=lambda b: b.kind)
def test_json_round_trip(book):
    assert ft.from_dict(json.loads(json.dumps(book.to_dict()))) == book
    after = book.after(ev.PureDp(0.001)).after(ev.Laplace(700.0))
    again = ft.from_dict(json.loads(json.dumps(after.to_dict())))
    assert again == after
    assert again.events == 2
    assert book.theorem
    assert len(book.currencies) == len(book.spent)


def test_every_class_names_its_theorem():
    kinds = [*ft._KINDS.values(), ft.IndividualFilter]
    assert len({k.kind for k in kinds}) == 9
    for kind in kinds:
        assert any(year in kind.theorem for year in ("2016", "2021", "2023"))


@pytest.mark.parametrize(
    "change",
    [
        {"filter": "gdp"},
        {"filter": 3},
        {"spent": ["-1"]},
        {"spent": ["1/0"]},
        {"spent": [1]},
        {"spent": ["1", "1"]},
        {"spent": []},
        {"spent": ["9" * 3000]},
        {"limit": "1"},
        {"events": -1},
        {"group": 0},
        {"neighbors": "edit"},
        {"more": 1},
    ],
)
def test_hostile_json(change):
    with pytest.raises((DecodeError, UnknownNameError, InputError)):
        ft.from_dict({**ft.PureFilter.open(1.0).to_dict(), **change})
    for value in (None, [], {}, "pure"):
        with pytest.raises(DecodeError):
            ft.from_dict(value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, "1", None, True, 1e9])
def test_limits_are_checked(bad):
    for make in (
        lambda: ft.PureFilter.open(bad),
        lambda: ft.ApproxFilter.open(bad, 1e-6),
        lambda: ft.ApproxFilter.open(1.0, bad),
        lambda: ft.AdvancedFilter.open(bad, 1e-6),
        lambda: ft.AdvancedFilter.open(1.0, bad),
        lambda: ft.ZcdpFilter.open(bad),
        lambda: ft.ZcdpFilter.for_epsilon(1.0, bad),
        lambda: ft.RdpFilter.open(1.0, 1e-6, orders=[bad]),
        lambda: ft.RenyiOdometer.open(bad),
        lambda: ft.IndividualFilter.open(bad),
    ):
        if bad == 1e9 and make is not None:
            with pytest.raises((InputError, RefusedError)):
                ft.PureFilter.open(bad)
            continue
        with pytest.raises(InputError):
            make()
    with pytest.raises(InputError, match="side_delta"):
        ft.AdvancedFilter.open(1.0, 1e-6, side_delta=1e-6)
    with pytest.raises(InputError, match="event"):
        ft.PureFilter.open(1.0).would("laplace")


# ------------------------------------------------------------------------------------------------ the best adversary


def worst_pair(event, stretch):
    """The pair that meets the event's (ε, δ) everywhere, ε and δ times ``stretch``."""
    epsilon, delta = stretch * event.epsilon, stretch * getattr(event, "delta", 0.0)
    yes = (1 - delta) / (1 + math.exp(-epsilon))
    no = (1 - delta) / (1 + math.exp(epsilon))
    return [(yes, no), (no, yes), (delta, 0.0), (0.0, delta)]


def best_adversary(book, epsilon, menu, depth, stretch=1.0):
    """The largest Σ(P − e^ε Q)₊ over all analysts who choose from ``menu`` by what they saw, and may stop at any time."""
    known = {}

    def value(book, depth, ratio):
        key = (book.spent, depth, round(ratio, 12) if math.isfinite(ratio) else ratio)
        if key not in known:
            best = max(1 - math.exp(epsilon) * ratio, 0.0)
            for event in menu if depth else ():
                if book.would(event).allowed:
                    after = book.after(event)
                    best = max(best, sum(p * value(after, depth - 1, ratio * q / p) for p, q in worst_pair(event, stretch) if p))
            known[key] = best
        return known[key]

    return value(book, depth, 1.0)


@pytest.mark.parametrize(
    ("book", "epsilon", "delta", "menu"),
    [
        (ft.PureFilter.open(2.0), 2.0, 0.0, PURES),
        (ft.ApproxFilter.open(2.0, 0.02), 2.0, 0.02, [*PURES, APPROX]),
        (ft.AdvancedFilter.open(3.0, 0.07, side_delta=0.02), 3.0, 0.07, [*PURES, APPROX]),
        (ft.ZcdpFilter.for_epsilon(2.5, 0.05), 2.5, 0.05, PURES),
        (ft.ZcdpFilter.for_epsilon(2.5, 0.07, side_delta=0.02), 2.5, 0.07, [*PURES, APPROX]),
        (ft.RdpFilter.open(2.5, 0.05, orders=[3.0]), 2.5, 0.05, PURES),
        (ft.RdpFilter.open(2.5, 0.07, orders=[2.0, 3.0, 6.0], side_delta=0.02), 2.5, 0.07, [*PURES, APPROX]),
    ],
    ids=["pure", "approx", "advanced", "zcdp", "zcdp-side", "rdp", "rdp-many"],
)
def test_no_adaptive_analyst_beats_a_filter_and_one_with_half_prices_does(book, epsilon, delta, menu):
    assert best_adversary(book, epsilon, menu, 10) <= delta + 1e-12
    assert best_adversary(book, epsilon, menu, 10, stretch=2.0) > delta + 0.05


# ------------------------------------------------------------------------------------------------ corners


@pytest.mark.parametrize("tiny", [1e-200, 1e-300])
def test_limits_below_the_unit_of_amounts_are_not_rounded_up(tiny):
    """A price is rounded up to 10⁻¹⁴² or so; were a limit rounded as well, that price would pass for a smaller δ."""
    assert ft.PureFilter.open(tiny).limit == (Fraction(repr(tiny)),)
    assert not ft.PureFilter.open(tiny).would(ev.PureDp(1e-150)).allowed
    for book in (ft.ApproxFilter.open(1.0, tiny), ft.ZcdpFilter.open(1.0, side_delta=tiny)):
        assert not book.would(ev.ApproxDp(0.1, 1e-150)).allowed
        assert book.would(ev.PureDp(0.1)).allowed
    assert ft.RenyiOdometer.open(tiny, orders=[8.0]).after(ev.PureDp(0.0)).reading[0] >= -math.log(tiny) / 7


def test_a_price_beyond_all_floats_is_told():
    event = ev.PureDp(1000.0)
    for _ in range(40):
        event = ev.Repeat(event, 10**12)
    for book in OPENED[:2]:
        decision = book.would(event)
        assert not decision.allowed
        assert "1e+300" in decision.reason
    assert ft.PureOdometer.open().after(event).reading[0] == 1000 * Fraction(10) ** 480
    assert ft.RenyiOdometer.open(1e-6).after(ev.PureDp(1000.0)).reading[0] < math.inf


def test_what_is_told_when_nothing_fits_is_short_and_rounded_to_the_safe_side():
    told = ft.RdpFilter.open(1.0, 1e-6).would(ev.Gaussian(0.1)).reason
    assert len(told) < 300
    assert "and" in told
    close = ft.PureFilter.open(1.0).after(ev.PureDp(0.9)).would(ev.PureDp(0.10000000001)).reason
    assert "it costs 0.100001, 0.1 is left" in close


@pytest.mark.parametrize(
    "change",
    [
        {"spent": (0.5,)},
        {"spent": (0,)},
        {"spent": [Fraction(0)]},
        {"spent": (Fraction(-1),)},
        {"spent": ()},
        {"limit": (1.0,)},
        {"limit": (Fraction(1), Fraction(1))},
        {"events": -1},
        {"events": 0.0},
        {"neighbors": "replace"},
        {"group": 0},
    ],
)
def test_a_state_is_exact_or_it_is_not_made(change):
    with pytest.raises(InputError):
        replace(ft.PureFilter.open(1.0), **change)


@pytest.mark.parametrize(
    ("book", "change"),
    [
        (ft.RdpFilter.open(3.0, 1e-6, orders=[8.0, 16.0]), {"orders": (16.0, 8.0)}),
        (ft.RdpFilter.open(3.0, 1e-6, orders=[8.0, 16.0]), {"orders": (8.0,)}),
        (ft.RdpFilter.open(3.0, 1e-6, orders=[8.0, 16.0]), {"orders": [8.0, 16.0]}),
        (ft.RdpFilter.open(3.0, 1e-6, orders=[8.0, 16.0]), {"epsilon": 3.0}),
        (ft.RenyiOdometer.open(1e-6, orders=[8.0]), {"delta": 1e-6}),
        (ft.RenyiOdometer.open(1e-6, orders=[8.0]), {"limit": (Fraction(1),)}),
        (ft.IndividualFilter.open(1.0), {"limit": 1.0}),
        (ft.IndividualFilter.open(1.0), {"spent": {"a": 0.5}}),
        (ft.IndividualFilter.open(1.0), {"spent": {1: Fraction(1)}}),
    ],
)
def test_orders_and_records_are_checked_too(book, change):
    with pytest.raises(InputError):
        replace(book, **change)


def test_any_real_number_opens_a_filter():
    for one in (np.float64(1.0), np.int64(1), Fraction(1), 1):
        assert ft.RdpFilter.open(one, 1e-6) == ft.RdpFilter.open(1.0, 1e-6)
        assert ft.ZcdpFilter.for_epsilon(one, 1e-6) == ft.ZcdpFilter.for_epsilon(1.0, 1e-6)
        assert ft.AdvancedFilter.open(one, 1e-6) == ft.AdvancedFilter.open(1.0, 1e-6)
    for bad in (b"8", "8", np.array(8.0), 8.0, [], [8.0] * 2 + ["9"]):
        with pytest.raises(InputError):
            ft.RdpFilter.open(1.0, 1e-6, orders=bad)
    assert ft.RdpFilter.open(1.0, 1e-6, orders=np.array([8.0, 16.0])).orders[-1] == 16.0


def test_records_are_named_by_text_and_their_state_is_read_only():
    book = ft.IndividualFilter.open(1.0)
    for bad in (1, None, b"a"):
        with pytest.raises(InputError, match="text as the name"):
            book.after({bad: ev.Gaussian(1.0)})
        with pytest.raises(InputError, match="text as the name"):
            book.remaining(bad)
    with pytest.raises(InputError, match="record to event"):
        book.active({"a": [1]})
    given = {"a": Fraction(1, 2)}
    held = ft.IndividualFilter(limit=Fraction(1), spent=given)
    given["a"] = Fraction(0)
    assert held.remaining("a") == Fraction(1, 2)
    with pytest.raises(TypeError):
        held.spent["a"] = Fraction(0)
    assert pickle.loads(pickle.dumps(held)) == held == copy.deepcopy(held)


# ------------------------------------------------------------------------------------------------ to the last digit


def exact(fraction):
    return mp.mpf(fraction.numerator) / fraction.denominator


def targets():
    rng = np.random.Generator(np.random.PCG64(11))
    for _ in range(150):
        yield float(10 ** rng.uniform(-2, 2.9)), float(10 ** rng.uniform(-25, -0.01)), float(1 + 10 ** rng.uniform(-1, 4))


def test_no_limit_is_above_its_theorem_by_a_single_digit():
    """Each limit put into its theorem, with 60 digits: without the guards against rounding a good part would be above."""
    with mp.workdps(60):
        for epsilon, delta, order in targets():
            e, d, a = mp.mpf(repr(epsilon)), mp.mpf(repr(delta)), mp.mpf(order)
            squares = exact(ft.AdvancedFilter.open(epsilon, delta).limit[0])
            told = mp.sqrt(2 * mp.log(1 / d) * squares) + squares / 2
            assert told <= e
            assert told > e * (1 - mp.mpf("1e-12"))
            limit = mp.mpf(ft._order_limit(order, epsilon, delta))
            told = limit + mp.log1p(-1 / a) - (mp.log(mp.mpf(delta)) + mp.log(a)) / (a - 1)
            assert told <= mp.mpf(epsilon)
            assert told > epsilon - mp.mpf("1e-12") * (1 + epsilon + abs(mp.log(d)) / (a - 1))
            rho = ft.ZcdpFilter.for_epsilon(epsilon, delta).limit[0]
            x = mp.mpf(rdp.epsilon_of_zcdp(float(rho), delta).order)
            apart = mp.sqrt(exact(rho) * x / 2)  # total variation (Pinsker): where δ is above it, ε is 0
            assert apart <= d or exact(rho) * x + mp.log1p(-1 / x) - mp.log(d * x) / (x - 1) <= e + mp.mpf("1e-15")


def test_no_reading_and_no_divergence_is_below_what_it_stands_for():
    with mp.workdps(60):
        for epsilon, delta, order in targets():
            book = ft.RenyiOdometer.open(delta, orders=[order]).after(ev.Gaussian(10.0))
            told = exact(book.spent[0]) + mp.log(1 / mp.mpf(repr(delta))) / (mp.mpf(order) - 1)
            assert mp.mpf(book.reading[0]) >= told
            assert mp.mpf(book.reading[0]) <= told * (1 + mp.mpf("1e-13"))
            assert divergence(epsilon, Fraction(0)) > Fraction(epsilon)
    computed = rdp.curve(STEP, [8.0, 16.0])
    for book in (ft.RdpFilter.open(3.0, 1e-6, orders=[8.0, 16.0]), ft.RenyiOdometer.open(1e-6, orders=[8.0, 16.0])):
        for price, value in zip(book.price(STEP), computed.tolist(), strict=False):
            assert Fraction(value) < price < Fraction(value) * (1 + Fraction(1, 10**11))


def test_readings_end_at_one_and_at_infinity():
    half = ev.ApproxDp(0.1, 0.6)
    assert ft.PureOdometer.open().after(half).after(half).reading == (Fraction(1, 5), Fraction(1))
    book = ft.RenyiOdometer.open(1e-6, orders=[8.0])
    assert book.after(half).after(half).reading[1] == 1
    assert book.after(ev.Repeat(ev.Gaussian(1.0), 100)).reading[0] > 400
    assert replace(book, spent=(Fraction(10) ** 400, Fraction(0)), events=1).reading[0] == math.inf


@pytest.mark.parametrize("text", ["1e5", "1e999999999", "1_0", " 1", "+1", "-1", "0.5", "١", "1/", "/", "", "1/2/3"])
def test_an_amount_is_a_whole_number_or_a_fraction(text):
    with pytest.raises(DecodeError, match="An amount is text"):
        ft.from_dict({**ft.PureFilter.open(1.0).to_dict(), "spent": [text]})


def test_limits_may_be_fractions():
    assert ft.PureFilter.open(Fraction(1, 3)).limit == (Fraction(1, 3),)
    for bad in (Fraction(-1), Fraction(1001)):
        with pytest.raises(InputError, match="a number from 0 to 1000"):
            ft.PureFilter.open(bad)
