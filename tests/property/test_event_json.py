"""Events survive JSON, whatever their shape."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither import events as ev
from dither.core.errors import InputError
from dither.core.events import event_digest

noise = st.floats(1e-3, 1e12)
epsilons = st.floats(0, 1_000)
leaves = st.one_of(
    st.builds(ev.Gaussian, noise),
    st.builds(ev.Laplace, noise),
    st.builds(ev.DiscreteLaplace, st.floats(1.0, 1e6), st.integers(1, 100)),
    st.builds(ev.DiscreteGaussian, st.floats(1.0, 1e6), st.integers(1, 100)),
    st.builds(ev.RandomizedResponse, epsilons, st.integers(2, 10**6)),
    st.builds(ev.PureDp, epsilons),
    st.builds(ev.ApproxDp, epsilons, st.floats(0, 1, exclude_max=True)),
    st.builds(ev.Zcdp, epsilons),
    st.builds(ev.ExponentialMechanism, epsilons),
    st.builds(ev.TreeGaussian, noise, st.integers(8, 1000), st.integers(1, 2), st.integers(1, 4)),
    st.builds(ev.MatrixGaussian, noise, st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.integers(8, 1000)),
    st.just(ev.NonPrivate()),
)
probabilities = st.floats(1e-12, 1)
samplers = st.one_of(
    st.builds(ev.Poisson, probabilities),
    st.builds(ev.TruncatedPoisson, probabilities, st.integers(1, 10**6), st.integers(1, 10**6)),
    st.builds(ev.FixedSize, st.integers(1, 100), st.integers(100, 10**9)),
    st.builds(ev.WithReplacement, st.integers(1, 100), st.integers(1, 10**9)),
    st.builds(ev.Shuffled, st.integers(1, 100), st.integers(100, 10**9)),
)
runs = st.one_of(
    st.builds(ev.PoissonRuns, st.floats(0.1, 1e6)), st.builds(ev.NegativeBinomialRuns, st.floats(-0.9, 10), st.floats(1e-6, 0.9))
)


def grow(inner: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(
        st.builds(ev.Repeat, inner, st.integers(1, 10**12)),
        st.builds(ev.Repeat, st.just(ev.DiscreteLaplace(2.0)), st.integers(1, 10**12), st.booleans()),
        st.builds(ev.Sequence, st.lists(inner, min_size=1, max_size=4)),
        st.builds(ev.Parallel, st.lists(inner, min_size=1, max_size=4)),
        st.builds(ev.Subsample, inner, samplers),
        st.builds(ev.SelectBest, inner, runs),
        st.builds(ev.ShuffledReports, inner, st.integers(1, 10**9)),
    )


events = st.recursive(leaves, grow, max_leaves=8)


@given(events)
def test_events_survive_json(event):
    text = ev.to_json(event)
    back = ev.from_json(text)
    assert back == event
    assert hash(back) == hash(event)
    assert ev.to_json(back) == text
    assert event_digest(back) == event_digest(event)


@given(events)
def test_the_json_is_strict_and_plain(event):
    value = json.loads(ev.to_json(event))
    assert ev.from_dict(value) == event
    assert json.dumps(value, sort_keys=True, separators=(",", ":")) == ev.to_json(event)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_any_other_value_is_one_house_error(value):
    with pytest.raises(InputError):
        ev.from_dict(value)
