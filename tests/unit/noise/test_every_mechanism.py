"""What holds for every mechanism of the room: a predictable source makes its event NonPrivate, a secure one leaves it as stated."""

import array
import collections
import importlib
import inspect
import pkgutil
import warnings

import numpy as np
import pytest

from dither import noise
from dither.core.errors import DitherError
from dither.core.events import NonPrivate
from dither.noise import linear, robust, stream, vote
from dither.noise.rng import SecureRng, UnsafeSeededRng

ROWS = [float(i) for i in range(40)]
SCORES = [3.0, 1.0, 2.5]
COUNTS = {"a": 60, "b": 3, "c": 55}


class Announced:
    """Somebody else's source, secure or not by its own word."""

    def __init__(self, private):
        self.private = private
        self.bytes, self.bits, self.below = (getattr(SecureRng(), name) for name in ("bytes", "bits", "below"))


def one_answer(session, *given):
    """The session's event beside an answer of it."""
    ask = next(getattr(session, name) for name in ("push", "answer", "ask") if hasattr(session, name))
    return noise.Noisy(ask(*given), session.event)


MEASURED = {
    "AboveThreshold": [(noise.AboveThreshold(epsilon=1.0), SCORES), (noise.AboveThreshold(epsilon=1.0, value_epsilon=1.0), SCORES)],
    "DiscreteGaussianMechanism": [(noise.DiscreteGaussianMechanism(noise_std=3.0), x) for x in (7, [1, 2])],
    "DiscreteLaplaceMechanism": [(noise.DiscreteLaplaceMechanism(noise_scale=3.0), x) for x in (7, [1, 2])],
    "EnsembleVote": [
        (noise.EnsembleVote(models=4, classes=2, noise_scale=2.0, answers=3, noise=law, screening=screening), [0, 1, 1, 1])
        for law in ("gaussian", "laplace", "exponential")
        for screening in (None, *(vote.Screening(threshold=bar, noise_std=3.0, queries=4) for bar in (2.0, 1e6)))
    ],
    "ExponentialSelection": [(noise.ExponentialSelection(epsilon=1.0), SCORES)],
    "GaussianMechanism": [(noise.GaussianMechanism(noise_multiplier=2.0), x) for x in (0.5, 7, [0.1, 0.2], [])],
    "KaryResponseMechanism": [(noise.KaryResponseMechanism(epsilon=1.0, values=4), x) for x in (2, [0, 3])],
    "LaplaceMechanism": [(noise.LaplaceMechanism(noise_multiplier=2.0), x) for x in (0.5, 7, [0.1, 0.2], [])],
    "LinearQueries": [
        (noise.LinearQueries(workload=linear.prefix_workload(4), law=law, noise_multiplier=1.0), [1, 2, 3, 4])
        for law in ("gaussian", "laplace")
    ],
    "MatrixCounter": [
        (noise.MatrixCounter(noise_multiplier=1.0, steps=4, coefficients=stream.square_root_coefficients(4)), [1.0, 0.0, 1.0])
    ],
    "OptimalPartitionSelection": [(noise.OptimalPartitionSelection(epsilon_each=1.0, delta_each=1e-6), COUNTS)],
    "PermuteAndFlip": [(noise.PermuteAndFlip(epsilon=1.0), SCORES)],
    "ProposeTestRelease": [
        (noise.ProposeTestRelease(epsilon=2.0, delta=1e-6, statistic=robust.median_statistic(0, 50), bound=bound), rows)
        for bound in (0.0, 5.0)
        for rows in (ROWS, [20.0] * 90)
    ],
    "Quantile": [(noise.Quantile(quantile=0.5, lower=0, upper=50, epsilon=1.0), ROWS)],
    "Quantiles": [(noise.Quantiles(quantiles=(0.2, 0.5), lower=0, upper=50, epsilon=1.0), ROWS)],
    "RandomizedResponseMechanism": [(noise.RandomizedResponseMechanism(epsilon=1.0), x) for x in (True, [True, False])],
    "ReportNoisyMax": [(noise.ReportNoisyMax(epsilon=1.0, noise=law), SCORES) for law in ("gumbel", "exponential", "laplace")],
    "SampleAndAggregate": [
        (noise.SampleAndAggregate(function=np.mean, blocks=5, lower=0, upper=50, epsilon=1.0, aggregate="mean"), ROWS),
        (noise.SampleAndAggregate(function=np.mean, blocks=5, lower=0, upper=50, epsilon=1.0, delta=1e-6, aggregate="median"), ROWS),
    ],
    "SmoothSensitivityMedian": [
        (noise.SmoothSensitivityMedian(epsilon=1.0, lower=0, upper=50, delta=delta), ROWS) for delta in (0.0, 1e-6)
    ],
    "StableHistogram": [(noise.StableHistogram(noise=law, noise_scale=2.0, threshold=30), COUNTS) for law in ("laplace", "gaussian")],
    "TopK": [(noise.TopK(epsilon=1.0, count=2), SCORES)],
    "TreeCounter": [
        (noise.TreeCounter(noise_multiplier=1.0, steps=4, noise=law), [1, 0, 1]) for law in ("gaussian", "laplace", "discrete_laplace")
    ],
    "WeightedSelection": [(noise.WeightedSelection(noise_multiplier=2.0, threshold=9 * 2**20), {"a": 60 * 2**20, "b": 3 * 2**20})],
}
SESSIONS = {
    "AboveThreshold": (lambda m, rng: m.start(rng), 2.0),
    "EnsembleVote": (lambda m, rng: m.open(rng), [0, 1, 1, 1]),
    "MatrixCounter": (lambda m, rng: m.open(rng), 1.0),
    "TreeCounter": (lambda m, rng: m.open(rng), 1),
}
WAYS = [
    *((name, "measure", i) for name, cases in MEASURED.items() for i in range(len(cases))),
    *((name, "measure_integers", i) for name in ("LaplaceMechanism", "GaussianMechanism") for i in (1,)),
    *((name, "session", i) for name in SESSIONS for i in range(len(MEASURED[name]))),
]


def run(name, way, i, rng):
    mechanism, given = MEASURED[name][i]
    if way == "session":
        start, given = SESSIONS[name]
        return one_answer(start(mechanism, rng), given)
    return getattr(mechanism, way)(given, rng)


def takes_a_source(owner):
    """Public methods that are given an rng."""
    methods = {n: m for n, m in vars(owner).items() if callable(m) and not n.startswith("_")}
    return {n for n, m in methods.items() if "rng" in inspect.signature(m).parameters}


def test_the_table_above_has_every_class_and_method_that_draws_noise():
    """Whatever class of the room has a public method that takes an rng is run here, exported or not."""
    found = {}
    for module in pkgutil.iter_modules(noise.__path__):
        home = importlib.import_module(f"dither.noise.{module.name}")
        for name, kind in vars(home).items():
            if inspect.isclass(kind) and kind.__module__ == home.__name__ and not name.startswith("_") and takes_a_source(kind):
                found[name] = takes_a_source(kind)
    named = {"measure": "measure", "measure_integers": "measure_integers", "open": "session", "start": "session"}
    missing = {(n, named.get(m, m)) for n, ms in found.items() for m in ms} - {(n, w) for n, w, _ in WAYS}
    assert not missing
    assert set(MEASURED) <= set(noise.__all__)


@pytest.mark.parametrize(("name", "way", "i"), WAYS, ids=str)
def test_a_predictable_source_makes_every_event_non_private(name, way, i):
    for rng in (UnsafeSeededRng(1), Announced(private=False)):
        assert run(name, way, i, rng).event == NonPrivate()


@pytest.mark.parametrize(("name", "way", "i"), WAYS, ids=str)
def test_a_secure_source_leaves_the_event_as_the_mechanism_states_it(name, way, i):
    mechanism, _ = MEASURED[name][i]
    for rng in (None, SecureRng(), Announced(private=True)):
        event = run(name, way, i, rng).event
        assert event != NonPrivate()
        if not (name == "EnsembleVote" and way == "measure"):  # that is priced as one answer of the session's many
            assert way == "measure_integers" or event == mechanism.event


@pytest.mark.parametrize(("name", "way", "i"), WAYS, ids=str)
def test_all_noise_is_drawn_from_the_source_that_was_given(name, way, i):
    first, second = (run(name, way, i, UnsafeSeededRng(7)).value for _ in range(2))
    assert repr(first) == repr(second)


SIGNALLING = [
    np.array([bits], word).view(kind)
    for bits, word, kind in (
        (0x7C01, np.uint16, np.float16),
        (0x7F800001, np.uint32, np.float32),
        (0x7FF0000000000001, np.uint64, np.float64),
    )
]
SMALL_AND_LARGE = [np.array([x]) for x in (np.nan, np.inf, 5e-324, -1e-310, -1.7e308, 2.0**960)]
ON_ONE_ROW = [
    noise.LaplaceMechanism(noise_multiplier=1.0),
    noise.LaplaceMechanism(noise_multiplier=1.0, bounds=(-1.0, 1.0)),
    noise.GaussianMechanism(noise_multiplier=1.0, sensitivity=2.0**900),
    noise.GaussianMechanism(noise_multiplier=1.0, sensitivity=2.0**-800, bounds=(-(2.0**900), 2.0**900)),
    *(noise.SmoothSensitivityMedian(epsilon=1.0, lower=low, upper=high) for low, high in ((0, 1e-99), (-1e100, 1e100))),
    noise.ProposeTestRelease(epsilon=1.0, delta=1e-6, statistic=robust.median_statistic(0, 1e100), bound=1e90),
    noise.SampleAndAggregate(function=sum, blocks=2, lower=0, upper=1e100, epsilon=1.0),
    *(noise.TreeCounter(noise_multiplier=1.0, steps=2, sensitivity=size) for size in (1e-100, 1.0, 1e100)),
    *(noise.MatrixCounter(noise_multiplier=1.0, steps=2, coefficients=(1.0, 0.5), sensitivity=size) for size in (1e-100, 1e100)),
]
GRIDS = [noise.GridSum(lower=0.0, upper=1.0), noise.GridSum(lower=-(2.0**900), upper=2.0**900, step=2.0**850)]


@pytest.mark.parametrize(
    "value", [*SIGNALLING, *SMALL_AND_LARGE, *(list(x) for x in SIGNALLING), *(x.tolist() for x in SMALL_AND_LARGE)], ids=str
)
def test_no_number_is_betrayed_by_a_warning_or_a_floating_point_error(value):
    """Signalling NaN, numbers that underflow: also where the caller has numpy raise on all of these. (Selection has its own test.)"""
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        for mechanism in ON_ONE_ROW:
            mechanism.measure(value)
        for grid in GRIDS:
            grid.total(value)
        for mechanism in (noise.DiscreteLaplaceMechanism(noise_scale=1.0), noise.RandomizedResponseMechanism(epsilon=1.0)):
            with pytest.raises(DitherError):
                mechanism.measure(value)


class Held:
    """Something that numpy can read as numbers."""

    def __array__(self, dtype=None, copy=None):
        return np.ones(2, dtype)


def nested(depth):
    made = [1.0]
    for _ in range(depth):
        made = [made]
    return made


LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "value",
    [
        *(range(3), array.array("d", [1, 2]), collections.deque([1, 2]), memoryview(b"ab"), {1, 2}, iter([1]), Held(), np.ma.array([1.0])),
        *(nested(40), nested(100), LOOP),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(("name", "way", "i"), [w for w in WAYS if w[0] != "SampleAndAggregate"], ids=str)
def test_what_is_no_number_list_or_array_is_an_error_of_the_house(name, way, i, value):
    mechanism, _ = MEASURED[name][i]
    run = (lambda: one_answer(SESSIONS[name][0](mechanism, None), value)) if way == "session" else lambda: getattr(mechanism, way)(value)
    with pytest.raises(DitherError):
        run()
