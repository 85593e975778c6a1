"""Laws of filters, against a model that is a dict of fractions: never over the limit, nothing forgotten, no order."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dither import events as ev
from dither.accounting import filters as ft
from dither.core.errors import OverBudgetError

DECIMALS = st.integers(1, 400).map(lambda n: n / 1000)
COUNTS = st.integers(1, 5)


class Pure(RuleBasedStateMachine):
    """A pure filter beside a list of what was granted; the model multiplies and adds fractions itself."""

    def __init__(self):
        super().__init__()
        self.book = ft.PureFilter.open(1.0)
        self.model = {"spent": Fraction(0), "events": 0}
        self.log = []

    @rule(thousandths=st.integers(0, 400), count=COUNTS)
    def pure(self, thousandths, count):
        self.offer(ev.Repeat(ev.PureDp(thousandths / 1000), count), Fraction(thousandths, 1000) * count)

    @rule(scale=st.integers(2, 60), group=st.lists(st.integers(1, 200), min_size=1, max_size=4))
    def mixed(self, scale, group):
        event = ev.Sequence((ev.Laplace(scale), *(ev.RandomizedResponse(n / 1000, 3) for n in group)))
        self.offer(event, Fraction(1, scale) + sum(Fraction(n, 1000) for n in group))

    @rule(a=st.integers(0, 300), b=st.integers(0, 300))
    def parallel(self, a, b):
        self.offer(ev.Parallel((ev.PureDp(a / 1000), ev.PureDp(b / 1000))), Fraction(max(a, b), 1000))

    def offer(self, event, price):
        fits = self.model["spent"] + price <= 1
        before = self.book
        assert before.would(event) == before.would(event)
        assert before.would(event).allowed == fits
        if fits:
            self.book = before.after(event)
            self.model = {"spent": self.model["spent"] + price, "events": self.model["events"] + 1}
            self.log.append(event)
        else:
            with pytest.raises(OverBudgetError):
                before.after(event)
            assert self.book is before

    @rule()
    def reload(self):
        self.book = ft.from_dict(self.book.to_dict())

    @precondition(lambda self: len(self.log) > 1)
    @rule()
    def backwards(self):
        other = ft.PureFilter.open(1.0)
        for event in reversed(self.log):
            other = other.after(event)
        assert other == self.book

    @invariant()
    def agrees(self):
        assert self.book.spent == (self.model["spent"],)
        assert self.book.events == self.model["events"]
        assert self.book.spent[0] <= 1
        assert self.book.remaining[0] == 1 - self.model["spent"]


TestPure = Pure.TestCase
TestPure.settings = settings(deadline=None, derandomize=True, max_examples=40, stateful_step_count=25)

LEAVES = st.one_of(
    st.integers(2, 400).map(ev.Gaussian),
    st.integers(2, 400).map(ev.Laplace),
    st.integers(1, 50).map(lambda n: ev.PureDp(n / 1000)),
    st.integers(1, 50).map(lambda n: ev.Zcdp(n / 10_000)),
    st.integers(1, 30).map(lambda n: ev.ApproxDp(n / 1000, n * 1e-10)),
    st.integers(3, 50).map(lambda n: ev.Subsample(ev.Gaussian(n), ev.Poisson(1 / n))),
)
BOOKS = st.sampled_from(
    [
        ft.ZcdpFilter.open(0.3, side_delta=2e-8),
        ft.ZcdpFilter.for_epsilon(2.0, 1e-6, side_delta=2e-8),
        ft.RdpFilter.open(2.0, 1e-6, orders=[4.0, 16.0, 64.0], side_delta=2e-8),
        ft.RdpFilter.open(2.0, 1e-6, orders=[16.0], side_delta=2e-8),
    ]
)


def fits(book, spent):
    short = [a > b for a, b in zip(spent, book.limit, strict=True)]
    return not short[-1] and not (all(short[:-1]) if isinstance(book, ft.RdpFilter) else any(short))


@given(BOOKS, st.lists(LEAVES, min_size=1, max_size=12))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_only_what_fits_is_let_through_and_all_of_it_is_written_down(book, offered):
    model = [Fraction(0)] * len(book.limit)
    for event in offered:
        after = [a + b for a, b in zip(model, book.price(event), strict=True)]
        assert book.would(event).allowed == fits(book, after)
        if fits(book, after):
            book, model = book.after(event), after
        assert list(book.spent) == model
        assert fits(book, book.spent)


@given(BOOKS, st.lists(LEAVES, min_size=2, max_size=6), st.randoms(use_true_random=False))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_order_does_not_matter(book, events, shuffle):
    shuffled = list(events)
    shuffle.shuffle(shuffled)
    odometer = ft.RenyiOdometer.open(1e-6, orders=[4.0, 64.0])
    one, other = odometer, odometer
    for a, b in zip(events, shuffled, strict=True):
        one, other = one.after(a), other.after(b)
    assert one == other
    forwards = [book.price(e) for e in events]
    backwards = [book.price(e) for e in shuffled]
    assert sorted(forwards) == sorted(backwards)


@given(BOOKS, LEAVES, COUNTS)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_count_is_never_forgotten_and_less_noise_never_costs_less(book, event, count):
    one, many = book.price(event), book.price(ev.Repeat(event, count))
    for single, all_of_them in zip(one, many, strict=True):
        assert float(all_of_them) == pytest.approx(count * float(single), rel=1e-11)
    if isinstance(event, ev.Gaussian | ev.Laplace):
        halved = type(event)(event.noise_multiplier / 2)
        assert all(a > b for a, b in zip(book.price(halved)[:-1], one[:-1], strict=True))
