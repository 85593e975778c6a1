import math
import pickle
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from dither import events as ev
from dither.core.errors import DecodeError, InputError, UnknownNameError
from dither.core.events import DEPTH_MAX, event_digest, is_event, walk

BAD_NOISE = [math.nan, math.inf, -math.inf, 0, 0.0, -1.0, 5e-324, 1e-9, 1e300, 10**400, "1", None, True, 1j, [1.0], np.nan]
BAD_COUNT = [0, -1, 1.0, math.nan, math.inf, "3", None, True, 10**13, 2.5, [1]]
BAD_PROBABILITY = [0, 0.0, -0.1, 1.1, math.nan, math.inf, "0.5", None, True, 1e-300, 5e-324]


@pytest.mark.parametrize("bad", BAD_NOISE)
@pytest.mark.parametrize(
    "make",
    [
        ev.Gaussian,
        ev.Laplace,
        ev.DiscreteLaplace,
        ev.DiscreteGaussian,
        lambda x: ev.TreeGaussian(x, 8),
        lambda x: ev.MatrixGaussian(x, (1.0,), 8),
    ],
)
def test_noise_that_cannot_be_priced_is_refused(make, bad):
    with pytest.raises(InputError, match="is not allowed: expected"):
        make(bad)


@pytest.mark.parametrize("bad", BAD_COUNT)
@pytest.mark.parametrize(
    "make",
    [
        lambda n: ev.Repeat(ev.Gaussian(1.0), n),
        lambda n: ev.DiscreteLaplace(1.0, n),
        lambda n: ev.TreeGaussian(1.0, n),
        lambda n: ev.FixedSize(n, 100),
        lambda n: ev.FixedSize(1, n),
        lambda n: ev.WithReplacement(n, 100),
        lambda n: ev.TruncatedPoisson(0.1, n, 100),
        lambda n: ev.Shuffled(n, 100),
        lambda n: ev.ShuffledReports(ev.PureDp(1.0), n),
    ],
)
def test_counts_that_are_no_counts_are_refused(make, bad):
    with pytest.raises(InputError, match="is not allowed: expected"):
        make(bad)


def test_a_count_of_ten_to_the_twelve_is_a_count():
    assert ev.Repeat(ev.Gaussian(1.0), 10**12).count == 10**12


@pytest.mark.parametrize("bad", BAD_PROBABILITY)
def test_probabilities_outside_zero_to_one_are_refused(bad):
    with pytest.raises(InputError, match="is not allowed: expected"):
        ev.Poisson(bad)
    with pytest.raises(InputError, match="is not allowed: expected"):
        ev.TruncatedPoisson(bad, 10, 100)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1e-9, "1", None, True, 1e9])
def test_epsilons_that_are_none_are_refused(bad):
    for make in (ev.PureDp, ev.Zcdp, ev.ExponentialMechanism, ev.RandomizedResponse, lambda e: ev.ApproxDp(e, 1e-6)):
        with pytest.raises(InputError, match="is not allowed: expected"):
            make(bad)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1e-9, 1.0, 2, "0", None, True])
def test_deltas_that_are_none_are_refused(bad):
    with pytest.raises(InputError, match="is not allowed: expected"):
        ev.ApproxDp(1.0, bad)


@pytest.mark.parametrize("bad", [(), [], None, "x", 3, (1,), (ev.Gaussian(1.0), None), (ev.Poisson(0.1),), ev.Gaussian(1.0)])
def test_compositions_hold_events_and_at_least_one(bad):
    for make in (ev.Sequence, ev.Parallel):
        with pytest.raises(InputError, match="is not allowed: expected"):
            make(bad)


def test_a_subclass_is_not_an_event():
    class Cheaper(ev.Gaussian):
        pass

    assert not is_event(Cheaper(1.0))
    with pytest.raises(InputError):
        ev.Repeat(Cheaper(1.0), 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ev.FixedSize(11, 10), "at most population=10"),
        (lambda: ev.Shuffled(11, 10), "at most population=10"),
        (lambda: ev.TreeGaussian(1.0, 10, participations=6, min_separation=2), "at most 5"),
        (lambda: ev.MatrixGaussian(1.0, (1.0, 0.5, 0.1), 2), "at most steps=2"),
        (lambda: ev.MatrixGaussian(1.0, (0.0, 0.5), 4), "first coefficient > 0"),
        (lambda: ev.MatrixGaussian(1.0, (), 4), "non-empty"),
        (lambda: ev.MatrixGaussian(1.0, (1.0, math.nan), 4), "a number from"),
        (lambda: ev.Subsample(ev.Gaussian(1.0), 0.1), "Poisson"),
        (lambda: ev.SelectBest(ev.Gaussian(1.0), 10), "PoissonRuns"),
        (lambda: ev.NegativeBinomialRuns(-1.0, 0.5), "> -1"),
        (lambda: ev.NegativeBinomialRuns(1.0, 1.0), "below 1"),
        (lambda: ev.PoissonRuns(0), "> 0"),
        (lambda: ev.DiscreteGaussian(1.0, 10_000), "sensitivity=10000"),
    ],
)
def test_errors_say_what_is_allowed(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_equal_events_are_equal_however_the_numbers_were_given():
    made = {ev.Gaussian(1), ev.Gaussian(1.0), ev.Gaussian(np.float64(1.0)), ev.Gaussian(Fraction(1)), ev.Gaussian(np.float32(1))}
    assert len(made) == 1
    assert ev.ApproxDp(-0.0, 0) == ev.ApproxDp(0, 0.0)
    assert event_digest(ev.ApproxDp(-0.0, 0)) == event_digest(ev.ApproxDp(0, 0.0))
    assert ev.Sequence([ev.Gaussian(1.0)]) == ev.Sequence((ev.Gaussian(1.0),))
    assert ev.Repeat(ev.Gaussian(1.0), 2) != ev.Repeat(ev.Laplace(1.0), 2)


def test_events_are_frozen():
    with pytest.raises(AttributeError):
        ev.Gaussian(1.0).noise_multiplier = 2.0


def test_hashes_survive_the_trip_to_another_process():
    event = ev.Repeat(ev.Sequence((ev.Gaussian(1.5), ev.Subsample(ev.Laplace(2.0), ev.Poisson(0.5)))), 7)
    code = (
        "import pickle,sys; from dither import events as ev;"
        "e = pickle.loads(sys.stdin.buffer.read());"
        "m = ev.Repeat(ev.Sequence((ev.Gaussian(1.5), ev.Subsample(ev.Laplace(2.0), ev.Poisson(0.5)))), 7);"
        "assert e == m and hash(e) == hash(m) and e in {m}"
    )
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(event), check=True)


def test_too_deep_and_too_many_are_refused_at_construction():
    event = ev.Gaussian(1.0)
    for _ in range(DEPTH_MAX - 1):
        event = ev.Repeat(event, 1)
    with pytest.raises(InputError, match="levels deep"):
        ev.Repeat(event, 1)
    doubled = ev.Gaussian(1.0)
    for _ in range(18):
        doubled = ev.Sequence((doubled, doubled))
    with pytest.raises(InputError, match="parts: expected at most"):
        ev.Sequence((doubled, doubled))


def test_walk_meets_every_event_outermost_first():
    inner = ev.Subsample(ev.Gaussian(1.0), ev.Poisson(0.1))
    event = ev.Sequence((ev.Repeat(inner, 3), ev.Parallel((ev.PureDp(1.0), ev.NonPrivate()))))
    assert [type(e).__name__ for e in walk(event)] == ["Sequence", "Repeat", "Subsample", "Gaussian", "Parallel", "PureDp", "NonPrivate"]


HOSTILE = [
    "",
    "null",
    "[]",
    "{}",
    "3",
    '"Gaussian"',
    '{"event":"os.system","noise_multiplier":1}',
    '{"event":"__import__"}',
    '{"event":["Gaussian"]}',
    '{"event":{"event":"Gaussian"}}',
    '{"event":"Poisson","probability":0.1}',
    '{"event":"Gaussian"}',
    '{"event":"Gaussian","noise_multiplier":1,"module":"os"}',
    '{"event":"Gaussian","noise_multiplier":NaN}',
    '{"event":"Gaussian","noise_multiplier":Infinity}',
    '{"event":"Gaussian","noise_multiplier":1e999}',
    '{"event":"Gaussian","noise_multiplier":"1"}',
    '{"event":"Gaussian","noise_multiplier":true}',
    '{"event":"Gaussian","noise_multiplier":1,"noise_multiplier":100}',
    '{"event":"Gaussian","noise_multiplier":' + "9" * 5000 + "}",
    '{"event":"Gaussian","noise_multiplier":[1]}',
    '{"event":"Repeat","of":{"event":"Gaussian","noise_multiplier":1},"count":1e3}',
    '{"event":"Repeat","of":[{"event":"Gaussian","noise_multiplier":1}],"count":2}',
    '{"event":"Repeat","count":2}',
    '{"event":"Sequence","of":{"event":"Gaussian","noise_multiplier":1}}',
    '{"event":"Sequence","of":[]}',
    '{"event":"Subsample","of":{"event":"Gaussian","noise_multiplier":1},"sampler":{"sampler":"Gaussian"}}',
    '{"event":"Subsample","of":{"event":"Gaussian","noise_multiplier":1},"sampler":0.1}',
    '{"event":"Gaussian","noise_multiplier":1',
    "[" * 100_000,
    '{"event":"Repeat","count":1,"of":' * 5_000,
    '{"event":"Sequence","of":[' * 150 + '{"event":"NonPrivate"}' + "]}" * 150,
    b"\xff\xfe",
    None,
    12,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_json_gets_one_house_error(text):
    with pytest.raises(InputError) as caught:
        ev.from_json(text)
    assert len(str(caught.value)) < 600


def test_unknown_names_list_what_exists():
    with pytest.raises(UnknownNameError, match=r"Gaussian.*Laplace"):
        ev.from_json('{"event":"Gausian","noise_multiplier":1}')
    with pytest.raises(UnknownNameError, match="noise_multiplier"):
        ev.from_json('{"event":"Gaussian","sigma":1}')
    with pytest.raises(DecodeError, match="needs the field 'noise_multiplier'"):
        ev.from_json('{"event":"Gaussian"}')


def test_a_share_for_one_unit_is_marked_and_others_are_written_as_before():
    share = ev.ApproxDp(0.0, 1e-6, one_unit=True)
    assert repr(share) == "ApproxDp(epsilon=0.0, delta=1e-06, one_unit=True)"
    assert ev.to_dict(share) == {"event": "ApproxDp", "epsilon": 0.0, "delta": 1e-6, "one_unit": True}
    assert ev.from_json(ev.to_json(share)) == share != ev.ApproxDp(0.0, 1e-6)
    assert ev.to_json(ev.ApproxDp(1.0, 1e-6)) == '{"delta":1e-06,"epsilon":1.0,"event":"ApproxDp"}'  # its digest is what it was
    assert ev.from_json('{"delta":1e-06,"epsilon":1.0,"event":"ApproxDp","one_unit":false}') == ev.ApproxDp(1.0, 1e-6)
    assert event_digest(share) != event_digest(ev.ApproxDp(0.0, 1e-6))


@pytest.mark.parametrize("bad", [1, 0, None, "true", 1.0])
def test_one_unit_is_true_or_false(bad):
    with pytest.raises(InputError, match="one_unit"):
        ev.ApproxDp(0.0, 1e-6, one_unit=bad)
    with pytest.raises(InputError, match="one_unit"):
        ev.ApproxDp(0.5, 0.0, one_unit=True)


def test_counts_that_may_be_shared_out_are_marked_and_others_are_written_as_before():
    counts = ev.Repeat(ev.DiscreteLaplace(2.0), 3, spread=True)
    assert repr(counts) == "Repeat(event=DiscreteLaplace(noise_scale=2.0, sensitivity=1), count=3, spread=True)"
    assert ev.from_json(ev.to_json(counts)) == counts != ev.Repeat(ev.DiscreteLaplace(2.0), 3)
    assert '"spread":true' in ev.to_json(counts)
    plain = '{"count":3,"event":"Repeat","of":{"event":"DiscreteLaplace","noise_scale":2.0,"sensitivity":1}}'
    assert ev.to_json(ev.Repeat(ev.DiscreteLaplace(2.0), 3)) == plain  # its digest is what it was
    assert ev.from_json(plain.replace('"event":"Repeat"', '"event":"Repeat","spread":false')) == ev.Repeat(ev.DiscreteLaplace(2.0), 3)
    assert event_digest(counts) != event_digest(ev.Repeat(ev.DiscreteLaplace(2.0), 3))
    assert repr(ev.Repeat(ev.PureDp(1.0), 2)) == "Repeat(event=PureDp(epsilon=1.0), count=2)"


@pytest.mark.parametrize("bad", [1, 0, None, "true", 1.0])
def test_spread_is_true_or_false_and_of_integers_with_noise(bad):
    with pytest.raises(InputError, match="spread"):
        ev.Repeat(ev.DiscreteLaplace(2.0), 3, spread=bad)
    for other in (
        ev.Gaussian(1.0),
        ev.PureDp(1.0),
        ev.Repeat(ev.DiscreteLaplace(2.0), 3),
        ev.Subsample(ev.DiscreteLaplace(2.0), ev.Poisson(0.5)),
    ):
        with pytest.raises(InputError, match="spread"):
            ev.Repeat(other, 3, spread=True)
