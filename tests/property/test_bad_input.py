"""Bad input: every public constructor of core, and every door of accounting, against values that nobody should give.

Each gives an object or one error of the house; never another exception, never a long text.
"""

import math
from dataclasses import fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import dither
from dither import accounting, errors
from dither import events as ev
from dither.accounting import filters as ft
from dither.core import encoding, plans, units


class Nasty:
    __hash__ = None

    def __repr__(self):
        raise RuntimeError

    def __eq__(self, other):
        raise RuntimeError


UNIT = units.PrivacyUnit(dataset="data")
GAUSSIAN = ev.Gaussian(1.0)
SPENT = units.Guarantee(1.0, 0.0, UNIT)
NUMBERS = [math.nan, math.inf, -math.inf, 0, -0.0, -1, -1.5, 5e-324, 1e-310, 1e308, 10**12, 10**13, 10**400, 1.5, True]
NUMBERS += [1j, Decimal(1), Fraction(1, 3), Fraction(10**400), Fraction(1, 10**400), np.float64(1), np.float64("nan"), np.int64(3)]
OTHERS = [None, "", "1", "\x00", "\ud800", "x" * 10**6, b"1", [], [1], (), {}, {1: 2}, set(), object(), Nasty(), [Nasty()], float]
OTHERS += [np.array([1.0, 2.0]), np.array([]), np.array(1.0), GAUSSIAN, ev.Poisson(0.1), datetime(2026, 1, 1, tzinfo=UTC), range(3)]
OTHERS += [iter([1]), [[0] * 10**5] * 10]
BAD = NUMBERS + OTHERS

OBJECTS = [
    UNIT,
    SPENT,
    units.Bound(1.0, 2.0),
    plans.Accuracy(half_width=1.0, confidence=0.9),
    plans.Charge(id="a", account=("acme",), unit=UNIT, event=GAUSSIAN, plan_digest="sha256:0", purpose="weekly"),
    plans.Receipt(
        charge_id="a",
        state=plans.State.RESERVED,
        entry=1,
        spent=SPENT,
        remaining=SPENT,
        head="h",
        at=datetime(2026, 1, 1, tzinfo=UTC),
    ),
    plans.Release(value=1.0, event=GAUSSIAN, unit=UNIT, plan_digest="sha256:0"),
    GAUSSIAN,
    ev.Laplace(1.0),
    ev.DiscreteLaplace(2.0),
    ev.DiscreteGaussian(2.0),
    ev.RandomizedResponse(1.0),
    ev.PureDp(1.0),
    ev.ApproxDp(1.0, 1e-6),
    ev.Zcdp(0.1),
    ev.ExponentialMechanism(1.0),
    ev.TreeGaussian(1.0, 8),
    ev.MatrixGaussian(1.0, (1.0,), 8),
    ev.Poisson(0.1),
    ev.TruncatedPoisson(0.1, 10, 100),
    ev.FixedSize(3, 10),
    ev.WithReplacement(3, 10),
    ev.Shuffled(3, 10),
    ev.PoissonRuns(3.0),
    ev.NegativeBinomialRuns(1.0, 0.1),
    ev.Subsample(GAUSSIAN, ev.Poisson(0.1)),
    ev.Repeat(GAUSSIAN, 3),
    ev.Repeat(ev.DiscreteLaplace(2.0), 3, spread=True),
    ev.Sequence((GAUSSIAN,)),
    ev.Parallel((GAUSSIAN,)),
    ev.SelectBest(GAUSSIAN, ev.PoissonRuns(3.0)),
    ev.ShuffledReports(ev.PureDp(1.0), 10),
    ft.PureFilter.open(1.0),
    ft.ApproxFilter.open(1.0, 1e-6),
    ft.RdpFilter.open(3.0, 1e-6, orders=[8.0]),
    ft.RenyiOdometer.open(1e-6, orders=[8.0]),
    ft.IndividualFilter.open(1.0),
]
SCHEDULE = {"population": 1_000, "epochs": 1, "batch": 100, "epsilon": 2.0, "delta": 1e-6, "unit": None}
TOLD = accounting.explain(SPENT)
DOORS = {
    "neighbors": units.neighbors,
    "trust": units.trust,
    "canonical_json": encoding.canonical_json,
    "digest": encoding.digest,
    "parse_json": encoding.parse_json,
    "from_dict": ev.from_dict,
    "from_json": ev.from_json,
    "to_dict": ev.to_dict,
    "loss": dither.loss,
    "loss neighbors": lambda bad: dither.loss(GAUSSIAN, neighbors=bad),
    "loss group": lambda bad: dither.loss(GAUSSIAN, group=bad),
    "epsilon": lambda bad: dither.epsilon(GAUSSIAN, bad),
    "delta": lambda bad: dither.delta(GAUSSIAN, bad),
    "compare": lambda bad: accounting.compare(bad, 1e-6),
    "compare delta": lambda bad: accounting.compare(ev.PureDp(0.1), bad),
    "compare neighbors": lambda bad: accounting.compare(ev.PureDp(0.1), 1e-6, neighbors=bad),
    "compare group": lambda bad: accounting.compare(ev.PureDp(0.1), 1e-6, group=bad),
    "explain": lambda bad: accounting.explain(bad, delta=1e-6),
    "explain delta": lambda bad: accounting.explain(GAUSSIAN, delta=bad),
    "explain prior": lambda bad: accounting.explain(SPENT, prior=bad),
    "explain priors": lambda bad: accounting.explain(SPENT, prior=[bad]),
    "explain population": lambda bad: accounting.explain(SPENT, population=bad),
    "explain group": lambda bad: accounting.explain(SPENT, group=bad),
    "explain groups": lambda bad: accounting.explain(SPENT, group=[bad]),
    "explain unit": lambda bad: accounting.explain(ev.PureDp(1.0), unit=bad),
    "explain trust": lambda bad: accounting.explain(ev.PureDp(1.0), trust=bad),
    "curve": TOLD.curve,
    "curve lowest": lambda bad: TOLD.curve(3, lowest=bad),
    "nearest": TOLD.nearest,
    "to_text": lambda bad: TOLD.to_text(nearest=bad),
    "plan sampling": lambda bad: accounting.plan_training(**SCHEDULE, sampling=bad),
    "plan trust": lambda bad: accounting.plan_training(**SCHEDULE, trust=bad),
    "calibrate epsilon": lambda bad: dither.calibrate(ev.Laplace, epsilon=bad, delta=0.0),
    "calibrate low": lambda bad: dither.calibrate(ev.Laplace, epsilon=1.0, delta=0.0, low=bad),
    "filter": ft.from_dict,
    "filter event": ft.PureFilter.open(1.0).would,
    "records": ft.IndividualFilter.open(1.0).active,
    "record": ft.IndividualFilter.open(1.0).remaining,
    "record event": lambda bad: ft.IndividualFilter.open(1.0).after({"a": bad}),
    "individual": ft.IndividualFilter.open,
    "pure": ft.PureFilter.open,
    "approx": lambda bad: ft.ApproxFilter.open(1.0, bad),
    "advanced": lambda bad: ft.AdvancedFilter.open(bad, 1e-6),
    "advanced side": lambda bad: ft.AdvancedFilter.open(1.0, 1e-6, side_delta=bad),
    "zcdp": lambda bad: ft.ZcdpFilter.for_epsilon(bad, 1e-6),
    "zcdp epsilon": ft.ZcdpFilter.open(1.0).epsilon,
    "rdp": lambda bad: ft.RdpFilter.open(bad, 1e-6),
    "rdp delta": lambda bad: ft.RdpFilter.open(1.0, bad),
    "rdp orders": lambda bad: ft.RdpFilter.open(1.0, 1e-6, orders=bad),
    "odometer": ft.RenyiOdometer.open,
} | {
    f"plan {name}": (lambda bad, name=name: accounting.plan_training(**{**SCHEDULE, name: bad})) for name in ("population", "batch", "unit")
}


def ask(door, bad):
    try:
        door(bad)
    except errors.DitherError as error:
        if len(str(error)) >= 700:
            raise AssertionError(len(str(error))) from error


@pytest.mark.parametrize("made", OBJECTS, ids=lambda made: type(made).__name__)
def test_a_constructor_makes_an_object_or_one_error(made):
    public = [f.name for f in fields(made) if f.init]
    for name in public:
        for bad in BAD:
            ask(lambda value, name=name: type(made)(**({n: getattr(made, n) for n in public} | {name: value})), bad)


@pytest.mark.parametrize("name", DOORS)
def test_a_door_opens_or_gives_one_error(name):
    for bad in BAD:
        ask(DOORS[name], bad)


@pytest.mark.parametrize("book", [b for b in OBJECTS if hasattr(b, "theorem")], ids=lambda b: b.kind)
def test_a_filter_from_json_is_whole_or_one_error(book):
    value = book.to_dict()
    for name in value:
        for bad in BAD:
            ask(ft.from_dict, {**value, name: bad})
            ask(ft.from_dict, {**value, name: [bad]})
        ask(ft.from_dict, {n: v for n, v in value.items() if n != name})


def test_numbers_become_floats_that_keep_their_side():
    third = units.Bound(Fraction(1, 3), Fraction(1, 3))
    assert Fraction(third.lower) < Fraction(1, 3) < Fraction(third.upper)
    assert type(units.Guarantee(np.float64(1), 0, UNIT).epsilon) is float
    assert Fraction(units.Guarantee(Fraction(1, 3), 0, UNIT).epsilon) > Fraction(1, 3)
    assert units.Guarantee(math.inf, 0, UNIT, "local").trust is units.Trust.LOCAL


def test_two_values_never_share_a_digest_by_their_keys():
    for twin in ({1: 2}, {True: 2}, {None: 2}, [{"a": {1.5: 0}}]):
        with pytest.raises(errors.InputError, match="text as keys"):
            encoding.digest(twin)
    loop = []
    loop.append(loop)
    with pytest.raises(errors.InputError):
        encoding.canonical_json(loop)


def test_a_sampler_is_one_of_the_classes_themselves():
    class Rarer(ev.Poisson):
        pass

    class Fewer(ev.PoissonRuns):
        pass

    with pytest.raises(errors.InputError, match="expected Poisson"):
        ev.Subsample(GAUSSIAN, Rarer(0.1))
    with pytest.raises(errors.InputError, match="expected PoissonRuns"):
        ev.SelectBest(GAUSSIAN, Fewer(3.0))


def test_blocks_are_not_taken_letter_by_letter():
    charge = OBJECTS[4]
    with pytest.raises(errors.InputError, match="blocks"):
        replace(charge, blocks="2026-01")
    assert replace(charge, blocks=["2026-01"]).blocks == ("2026-01",)
