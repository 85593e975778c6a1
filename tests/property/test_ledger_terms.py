"""Laws of what the book writes down: there and back is the same, and nothing has two texts."""

import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dither.core.encoding import canonical_json, parse_json
from dither.core.errors import InputError
from dither.core.units import Neighbors, PrivacyUnit, Trust
from dither.ledger import paths, terms
from dither.ledger.terms import Blocks, Dataset, Every, FilterSpec, Limit, Per

LETTERS = st.characters(categories=["L", "N", "P", "S"], exclude_characters="/")


def names(most):
    return st.text(LETTERS, min_size=1, max_size=most).filter(lambda n: accepted(lambda: paths.name("name", n, limit=most)))


def accepted(make):
    try:
        make()
    except InputError:
        return False
    return True


ACCOUNTS = st.lists(names(12).filter(lambda n: accepted(lambda: paths.part(n))), min_size=1, max_size=4).map(tuple)
MOMENTS = st.datetimes(datetime(1000, 1, 2), datetime(9998, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - the zone is beside it
SHARES = st.fractions(0, 1, max_denominator=1000).filter(bool)
EPSILONS = st.fractions(0, 1000).filter(bool) | st.floats(1e-9, 1000) | st.integers(1, 1000)
DELTAS = st.fractions(0, Fraction(99, 100), max_denominator=10**12).filter(bool) | st.floats(1e-12, 0.99)


@st.composite
def divisions(draw):
    if draw(st.booleans()):
        every = draw(st.sampled_from(Every))
        made = Blocks(column=draw(names(20)), every=every)
        return Blocks(column=made.column, every=every, start=made.holding(draw(MOMENTS)) if draw(st.booleans()) else None)
    return Blocks(column=draw(names(20)), partitions=tuple(draw(st.lists(names(20), min_size=1, max_size=6, unique=True))))


@st.composite
def datasets(draw):
    name, key = draw(names(20)), draw(st.none() | names(20))
    divided = draw(st.none() | divisions())
    return Dataset(
        name=name,
        unit=PrivacyUnit(dataset=name, key=key, neighbors=draw(st.sampled_from(Neighbors))),
        trust=draw(st.sampled_from(Trust)),
        blocks=divided,
        disjoint=draw(st.booleans()) if divided is not None and key is not None else None,
    )


@st.composite
def filters(draw):
    kind = draw(st.sampled_from(terms.KINDS))
    epsilon, delta = draw(EPSILONS), 0 if kind == "pure" else draw(DELTAS)
    more = {"orders": draw(st.lists(st.floats(1.01, 1e4), min_size=1, max_size=6))} if kind == "rdp" and draw(st.booleans()) else {}
    try:
        return FilterSpec.of(epsilon, delta, kind=kind, **more)
    except InputError:
        assume(False)  # an ε that no Rényi order reaches at this δ
        raise


@st.composite
def limits(draw):
    starts, ends = sorted(draw(st.lists(MOMENTS, min_size=2, max_size=2, unique=True)))
    return Limit(
        id=f"L{draw(st.integers(1, 10**18 - 1))}",
        account=draw(ACCOUNTS),
        dataset=draw(names(20)),
        filter=draw(filters()),
        per=draw(st.sampled_from(Per)),
        starts=draw(st.sampled_from([None, starts])),
        ends=draw(st.sampled_from([None, ends])),
        alert_at=tuple(draw(st.lists(SHARES, max_size=4))),
    )


FACTS = st.one_of(divisions(), datasets(), filters(), limits())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(FACTS)
def test_there_and_back_is_the_same(made):
    told = canonical_json(made.to_dict())
    again = type(made).from_dict(parse_json(told))
    assert again == made
    assert hash(again) == hash(made)
    assert canonical_json(again.to_dict()) == told


@given(made=FACTS, data=st.data())
def test_what_is_read_at_all_is_written_as_it_was_read(made, data):
    """A fact with two texts would be two facts to the hash chain, and one to the filter."""
    held = parse_json(canonical_json(made.to_dict()))
    holder = held
    while True:
        key = data.draw(st.sampled_from(sorted(holder)))
        if not (isinstance(holder[key], dict) and data.draw(st.booleans())):
            break
        holder = holder[key]
    near = [
        0,
        0.0,
        "0",
        "1",
        "2/2",
        "1/1",
        [],
        {},
        "",
        None,
        False,
        True,
        "month",
        "2026",
        "2026-01",
        "pure",
        "rdp",
        "2026-01-01T00:00:00.000000Z",
    ]
    holder[key] = data.draw(st.sampled_from(near) | JSON)
    try:
        again = type(made).from_dict(held)
    except InputError:
        return
    assert canonical_json(again.to_dict()) == canonical_json(held)


@given(JSON)
def test_other_json_is_refused(value):
    for kind in (Blocks, Dataset, FilterSpec, Limit):
        with pytest.raises(InputError):
            kind.from_dict(value)


@settings(max_examples=50)
@given(spec=filters(), neighbors=st.sampled_from(Neighbors))
def test_a_filter_that_was_agreed_can_be_opened_and_is_no_larger_than_said(spec, neighbors):
    book = spec.open(neighbors)
    assert book.neighbors is neighbors
    left = spec.delta - spec.side_delta
    match spec.kind:
        case "pure" | "approx":
            assert book.limit == (spec.epsilon, spec.delta)[: len(book.limit)]
        case "rdp":
            assert (book.epsilon <= spec.epsilon, book.delta <= spec.delta) == (True, True)
            assert set(book.orders) <= set(spec.orders)
        case "zcdp":
            assert book.epsilon(terms.below(spec.delta)) <= float(spec.epsilon) * (1 + 1e-12)
        case "advanced":  # the theorem's own formula, at the sum of squares that the book allows
            squares = float(book.limit[0])
            assert math.sqrt(2 * -math.log(left) * squares) + squares / 2 <= spec.epsilon
    if spec.kind not in {"pure", "approx"}:
        assert book.limit[-1] <= spec.side_delta


@given(made=limits(), seconds=st.integers(1, 10**6))
def test_a_limit_ends_after_it_starts(made, seconds):
    if made.starts is not None:
        with pytest.raises(InputError, match="a moment after starts"):
            Limit(**{**{f: getattr(made, f) for f in made.to_dict()}, "ends": made.starts - timedelta(seconds=seconds)})
