"""The arithmetic of a limit, beside the filters of the accounting room, which are the proof."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither.accounting import filters
from dither.accounting._exact import UNITS
from dither.core import events as ev
from dither.core.errors import NotPriceableError
from dither.core.units import Neighbors
from dither.ledger.gauge import Gauge, added, in_floats, taken
from dither.ledger.terms import FilterSpec

KINDS = ["pure", "approx", "advanced", "zcdp", "rdp"]
NEIGHBORS = [Neighbors.ADD_REMOVE, Neighbors.REPLACE]


def spec(kind: str, epsilon: float = 1.0) -> FilterSpec:
    return FilterSpec.of(epsilon, 0 if kind == "pure" else 1e-6, kind=kind)


def events() -> st.SearchStrategy[ev.Event]:
    small = st.floats(1e-4, 0.3)
    leaves = st.one_of(
        st.builds(ev.PureDp, small),
        st.builds(ev.Laplace, st.floats(3.0, 200.0)),
        st.builds(ev.RandomizedResponse, epsilon=small, values=st.integers(2, 9)),
        st.builds(ev.ExponentialMechanism, small),
        st.builds(ev.ApproxDp, small, st.floats(1e-12, 1e-8)),
        st.builds(ev.Gaussian, st.floats(5.0, 500.0)),
        st.builds(ev.Zcdp, st.floats(1e-8, 1e-3)),
    )
    return st.one_of(leaves, st.builds(ev.Repeat, leaves, st.integers(1, 7)), st.builds(lambda a, b: ev.Sequence((a, b)), leaves, leaves))


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), neighbors=st.sampled_from(NEIGHBORS), run=st.lists(events(), min_size=1, max_size=25))
def test_a_gauge_decides_as_its_filter_does(kind: str, neighbors: Neighbors, run: list[ev.Event]):
    """Prices here are rounded up to 20 digits, so near a limit the gauge may refuse what the filter just admits, never the reverse."""
    gauge, book = Gauge.of(spec(kind), neighbors), spec(kind).open(neighbors)
    spent = gauge.zero
    for event in run:
        try:
            price = gauge.price(event)
        except NotPriceableError:
            with pytest.raises(NotPriceableError):
                _kept_price(book, event)
            continue
        if gauge.fits(added(spent, price)):
            spent = added(spent, price)
            book = book.after(event)  # raises where the filter would not
        else:
            loose = tuple(int(a * Fraction(10**15 + 1, 10**15)) + 1 for a in gauge.limits)
            over = added(spent, price)
            assert not book.would(event).allowed or not all(a <= b for a, b in zip(over, loose, strict=True)) or kind == "rdp"


def _kept_price(book: filters.Book, event: ev.Event) -> None:
    book.price(event)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_what_remains_still_fits_and_hardly_more_does(kind: str, neighbors: Neighbors):
    gauge = Gauge.of(spec(kind, 2.0), neighbors)
    spent = gauge.price(ev.Repeat(ev.PureDp(0.01), 7))
    epsilon, _ = gauge.remaining(spent)
    assert epsilon > 0.1
    assert gauge.fits(added(spent, gauge.price(ev.PureDp(epsilon))))
    assert not gauge.fits(added(spent, gauge.price(ev.PureDp(epsilon * 1.2 + 1e-9))))


@pytest.mark.parametrize("kind", KINDS)
def test_the_reading_is_the_limit_that_would_have_done(kind: str):
    """A filter opened with the reading as its limit lets the same charges through; one of 2 % less does not."""
    gauge = Gauge.of(spec(kind), Neighbors.ADD_REMOVE)
    run = [ev.PureDp(0.01), ev.Laplace(30.0)] * 5
    spent = gauge.zero
    for event in run:
        spent = added(spent, gauge.price(event))
    epsilon, delta = gauge.spent_reading(spent, len(run))
    assert delta <= 1e-6

    def fits(most: float) -> bool:
        book = FilterSpec.of(most, 0 if kind == "pure" else 1e-6, kind=kind).open(Neighbors.ADD_REMOVE)
        for event in run:
            if not book.would(event).allowed:
                return False
            book = book.after(event)
        return True

    assert fits(epsilon * (1 + 1e-9))
    assert not fits(epsilon * 0.98)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_spent_reads_as_nothing(kind: str):
    gauge = Gauge.of(spec(kind), Neighbors.ADD_REMOVE)
    assert gauge.spent_reading(gauge.zero, 0) == (0.0, 0.0)
    assert gauge.share(gauge.zero) == 0
    assert gauge.fits(gauge.zero)


def test_an_order_that_cannot_hold_is_kept_and_never_holds():
    small = FilterSpec.of(0.5, 1e-6, orders=(1.5, 2.0, 64.0, 256.0))
    gauge = Gauge.of(small, Neighbors.ADD_REMOVE)
    assert gauge.limits[:2] == (-1, -1)
    price = gauge.price(ev.PureDp(0.1))
    assert price[0] > 0
    assert gauge.share(price) < 1
    assert gauge.fits(price)


def test_an_unbounded_order_is_lost_for_good():
    gauge = Gauge.of(FilterSpec.of(3, 1e-6), Neighbors.ADD_REMOVE)
    side = gauge.price(ev.ApproxDp(0.1, 1e-7))
    assert side[-1] == UNITS // 10**7
    assert gauge.fits(side)


def test_a_threshold_is_passed_exactly():
    gauge = Gauge.of(FilterSpec.of(1), Neighbors.ADD_REMOVE)
    at = (UNITS * 19 // 20,)
    assert gauge.passed(at, Fraction(19, 20))
    assert not gauge.passed((at[0] - 1,), Fraction(19, 20))
    assert not gauge.passed((0,), Fraction(1, 10**9))
    both = Gauge.of(FilterSpec.of(1, 1e-6, kind="approx"), Neighbors.ADD_REMOVE)
    assert both.passed((0, UNITS // 10**6), Fraction(1))


@given(st.integers(0, 10**500))
def test_floats_are_rounded_to_the_side_that_is_asked_for(amount: int):
    low, high = in_floats(amount, up=False), in_floats(amount, up=True)
    assert low <= high
    assert Fraction(repr(low)) * UNITS <= amount
    if high < float("inf"):
        assert Fraction(repr(high)) * UNITS >= amount


def test_sums_are_exact_in_any_order():
    gauge = Gauge.of(FilterSpec.of(1), Neighbors.ADD_REMOVE)
    third = gauge.price(ev.Laplace(3.0))
    assert added(added(third, third), third) == (UNITS,)
    assert taken(added(third, third), third) == third
