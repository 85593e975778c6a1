"""The planner: what it chooses, that it never costs more than was asked, and that it does as well as a search on the true numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dither.accounting.loss import loss
from dither.core.errors import InputError, UnknownNameError
from dither.core.events import ApproxDp, Gaussian, Laplace, Sequence
from dither.noise.rng import UnsafeSeededRng
from dither.query.bounding import REACH, ROW, Goal, Look, Measure, Profile, bounding, look_plan, reserve

ROWS = Measure(name="n", kind="rows")
UNITS = Measure(name="u", kind="units")
SUM = Measure(name="s", kind="sum", low=-300, high=REACH)
PAIR = Measure(name="p", kind="pair", low=-REACH, high=REACH)


def goal(*measures, **changes):
    given = {"measures": measures or (ROWS,), "epsilon": 1.0, "delta": 1e-6, "groups": 100}
    return Goal(**(given | changes))


def people(count=50_000, cities=100, seed=4, home=0.6):
    """Rows of a unit in each group: few units with many rows, most rows at home; as (unit, group, rows)."""
    draw = np.random.default_rng(seed)
    rows = np.ceil(draw.lognormal(1.5, 1.3, count)).astype(int)
    unit = np.repeat(np.arange(count), rows)
    where = np.where(draw.random(unit.size) < home, draw.integers(0, cities, count)[unit], draw.integers(0, cities, unit.size))
    cells, n = np.unique(unit * cities + where, return_counts=True)
    return cells // cities, cells % cities, n


def looked(look: Look, cells, *, exact=False, seed=1):
    """The profiles of a look at these cells."""
    unit, _, n = cells
    counts = []
    for item in look.items:
        value = (n if item.measure.kind in ("rows", "pair") else np.ones_like(n)).astype(float) * item.measure.row
        size = np.bincount(unit, value) if item.norm == "l1" else np.sqrt(np.bincount(unit, value**2))
        found = np.bincount(np.minimum(np.searchsorted(item.edges, size), len(item.edges) - 1), minlength=len(item.edges))
        counts.append(tuple((found if exact else look.mechanism.measure(found, UnsafeSeededRng(seed)).value).tolist()))
    made = look.profiles(tuple(counts))
    return tuple(replace(p, noise_scale=0.0) for p in made) if exact else made


CELLS = people()


def truth(cells, measure, norm, limit):
    """(share lost, totals after bounding, true totals) in rows."""
    unit, where, n = cells
    value = (np.ones_like(n) if measure.kind == "units" else n).astype(float)
    size = np.bincount(unit, value) if norm == "l1" else np.sqrt(np.bincount(unit, value**2))
    kept = value * np.minimum(1, limit / measure.row / size)[unit]
    return 1 - kept.sum() / value.sum(), np.bincount(where, kept), np.bincount(where, value)


# ------------------------------------------------------------------------------------------------ the price

BUDGETS = [(1e-6, 0.0), (1e-6, 1e-9), (1e-3, 1e-6), (1.0, 0.0), (1.0, 1e-6), (1.0, 1e-12), (10.0, 1e-6), (100.0, 1e-5)]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("measures", [(ROWS,), (PAIR, UNITS), (ROWS, UNITS, SUM), (ROWS, UNITS, SUM, PAIR)], ids=lambda m: str(len(m)))
@pytest.mark.parametrize("groups", [1, 100, None])
def test_no_plan_costs_more_than_was_asked(epsilon, delta, neighbors, measures, groups):
    delta = delta if groups is not None else max(delta, 1e-9)  # private keys need one
    for facts in ({}, {"rows_max": 40, "groups_max": 5}):
        asked = goal(*measures, epsilon=epsilon, delta=delta, neighbors=neighbors, groups=groups, **facts)
        look = look_plan(asked)
        profiles = () if look is None else looked(look, CELLS) if SUM not in measures else blank(look)
        made = bounding(asked, profiles)
        assert loss(made.event).epsilon_upper(delta) <= epsilon
        assert loss(reserve(asked)).epsilon_upper(delta) <= epsilon
        assert made.reserve == reserve(asked)
        assert all(m.limit >= 1 and m.mechanism.noise_multiplier == m.noise_multiplier for m in made.measures)
        assert [m.measure for m in made.measures] == list(measures)


def blank(look):
    return look.profiles(tuple(tuple(5000 if k < 12 else 0 for k in range(len(i.edges))) for i in look.items))


def test_nearly_all_of_the_budget_is_used():
    """Half the noise would not be within it."""
    for asked in (goal(rows_max=40), goal(ROWS, UNITS, rows_max=40), goal(groups=None, rows_max=40), goal(groups=None)):
        look = look_plan(asked)
        made = bounding(asked, () if look is None else looked(look, CELLS))
        assert loss(made.event).epsilon_upper(1e-6) > 0.95
        less = [Laplace(m.noise_multiplier / 2) if m.norm == "l1" else Gaussian(m.noise_multiplier / 2) for m in made.measures]
        halved = Sequence((*(s.event for s in made.selection), *less))
        assert loss(halved).epsilon_upper(1e-6) > 1.05


def test_what_is_reserved_is_known_before_the_look():
    assert reserve(goal(rows_max=40)) == ApproxDp(1.0, 1e-6)
    asked = goal()
    look = look_plan(asked)
    assert reserve(asked).events[0] == look.event
    assert loss(look.event).epsilon_upper(0.0) <= look.epsilon == 0.05
    rest = reserve(asked).events[1]
    made = bounding(asked, looked(look, CELLS))
    assert loss(Sequence(made.event.events[1:])).epsilon_upper(1e-6) <= rest.epsilon


def test_the_look_is_one_unit_in_one_bin_of_each_histogram():
    added, replaced = look_plan(goal()), look_plan(goal(neighbors="replace"))
    assert (added.mechanism.changes, replaced.mechanism.changes) == (1, 2)
    assert replaced.mechanism.noise_scale == pytest.approx(2 * added.mechanism.noise_scale)
    assert len(added.event.events) == len(added.items) == 2


# ------------------------------------------------------------------------------------------------ what is chosen


@pytest.mark.parametrize("measure", [ROWS, UNITS, PAIR], ids=lambda m: m.kind)
@pytest.mark.parametrize("exact", [True, False])
def test_the_bound_is_about_the_best_there_is(measure, exact):
    asked = goal(measure)
    made = bounding(asked, looked(look_plan(asked), CELLS, exact=exact)).measures[0]

    def error(norm, limit):
        lost, _, true = truth(CELLS, measure, norm, limit)
        multiplier = 1 / 0.95 if norm == "l1" else 4.43
        middle = (0.6931 if norm == "l1" else 0.6745) * multiplier * limit / measure.row
        return math.hypot(lost, middle / (np.median(true) / measure.columns))

    best = min(error(n, measure.row * 2 ** (k / 4)) for n in ("l1", "l2") for k in range(60))
    assert error(made.norm, made.limit) <= best * 1.25
    assert made.error == pytest.approx(error(made.norm, made.limit), rel=0.6)  # groups are taken to be uneven


def test_what_is_told_to_be_lost_is_what_is_lost():
    inside = 0
    for seed in range(40):
        cells = people(count=[50_000, 8_000][seed % 2], seed=seed)
        asked = goal((ROWS, UNITS)[seed // 2 % 2])
        made = bounding(asked, looked(look_plan(asked), cells, seed=seed)).measures[0]
        inside += abs(truth(cells, made.measure, made.norm, made.limit)[0] - made.lost) <= made.lost_error
    assert inside >= 35


def test_rows_in_one_place_want_laplace_noise_and_units_in_many_places_gaussian():
    asked = goal(UNITS)
    spread, settled = people(home=0.0, count=20_000), people(home=1.0, count=20_000)
    assert bounding(asked, looked(look_plan(asked), spread, exact=True)).measures[0].law == "gaussian"
    assert bounding(asked, looked(look_plan(asked), settled, exact=True)).measures[0].law == "laplace"
    assert bounding(goal(ROWS, rows_max=100)).measures[0].law == "laplace"
    assert bounding(goal(UNITS, groups_max=50)).measures[0].law == "gaussian"
    assert bounding(goal(UNITS, groups_max=5)).measures[0].law == "laplace"


def test_one_heavy_unit_does_not_decide():
    """A unit of a million rows is not seen by the look; a thousand of them are."""
    asked = goal(groups=1)
    look = look_plan(asked)
    plain = bounding(asked, looked(look, CELLS)).measures[0].limit
    edges = look.items[0].edges
    for count, moved in ((1, False), (1000, True)):
        profile = looked(look, CELLS)[0]
        there = next(k for k, e in enumerate(edges) if e >= ROW * 10**6)
        counts = tuple(c + count * (k == there) for k, c in enumerate(profile.counts))
        limit = bounding(asked, (replace(profile, counts=counts),)).measures[0].limit
        assert (limit > 100 * plain) == moved


def test_declared_facts_are_the_bound():
    both = {"rows_max": 60, "groups_max": 5, "rows_per_group_max": 10}
    assert goal(**both).most(ROWS, "l1") == 50 * ROW
    assert goal(**both).most(ROWS, "l2") == math.ceil(ROW * math.sqrt(500))
    assert goal(**both).most(UNITS, "l1") == 5 * ROW
    assert goal(**both).most(UNITS, "l2") == math.ceil(ROW * math.sqrt(5))
    assert goal(rows_max=60).most(PAIR, "l2") == 60 * 2 * REACH
    assert goal(groups=3).most(UNITS, "l1") == 3 * ROW
    assert goal(groups=None).most(UNITS, "l1") is None is goal(groups_max=3).most(ROWS, "l1")
    chosen = bounding(goal(**both)).measures[0]
    assert (chosen.limit, chosen.law, chosen.lost) == (50 * ROW, "laplace", 0.0)
    assert look_plan(goal(**both)) is None is look_plan(goal(UNITS, groups=1))


def test_sensitivity_of_two_vectors():
    added, replaced = (bounding(goal(rows_max=50, delta=0.0, neighbors=n)).measures[0] for n in ("add_remove", "replace"))
    assert (added.sensitivity, replaced.sensitivity) == (50 * ROW, 100 * ROW)
    wide = replace(replaced, norm="l2")
    assert wide.sensitivity == pytest.approx(50 * ROW * math.sqrt(2))
    assert replace(wide, measure=SUM).sensitivity == 100 * ROW  # −v and v
    assert replace(wide, measure=Measure(name="s", kind="sum", low=-5, high=0)).sensitivity < 71 * ROW
    assert replaced.half_width == pytest.approx(replaced.noise_multiplier * replaced.sensitivity * math.log(20), rel=1e-6)
    assert replaced.noise_std == pytest.approx(replaced.noise_multiplier * replaced.sensitivity * math.sqrt(2))


# ------------------------------------------------------------------------------------------------ what moves what


def test_more_budget_less_error():
    found = []
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0):
        asked = goal(epsilon=epsilon)
        found.append(bounding(asked, looked(look_plan(goal(epsilon=1.0)), CELLS, exact=True)).measures[0])
    errors, limits = [m.error for m in found], [m.limit for m in found]
    assert errors == sorted(errors, reverse=True)
    assert limits == sorted(limits)


def test_more_groups_smaller_bounds():
    found = [bounding(goal(groups=g), looked(look_plan(goal()), CELLS, exact=True)).measures[0] for g in (2, 10, 100, 1000, 10_000)]
    limits = [m.limit for m in found if m.norm == found[0].norm]
    assert limits == sorted(limits, reverse=True)
    assert [m.error for m in found] == sorted(m.error for m in found)


def test_a_larger_fact_is_more_noise():
    stds = [bounding(goal(rows_max=r)).measures[0].noise_std for r in (1, 5, 50, 5000)]
    assert stds == sorted(stds)


def test_the_number_of_keys_moves_bounds_but_neither_noise_nor_price():
    asked = goal(ROWS, UNITS, groups=None)
    made = bounding(asked, looked(look_plan(asked), CELLS))
    few, many = made.for_groups(3), made.for_groups(50_000)
    assert few.event == many.event == made.event
    assert [m.noise_multiplier for m in few.measures] == [m.noise_multiplier for m in many.measures]
    assert all(f.limit > m.limit for f, m in zip(few.measures, many.measures, strict=True))
    assert made.for_groups(0).measures == made.for_groups(1).measures


def test_private_keys_are_found_in_rounds_that_cost_what_is_theirs():
    asked = goal(groups=None, rows_max=20)
    made = bounding(asked)
    assert [s.keys_max for s in made.selection] == [20, 20, 20]
    assert sum(s.delta for s in made.selection) <= 5e-7
    assert made.selection[0].threshold > made.selection[1].threshold > made.selection[2].threshold
    only = bounding(Goal(measures=(), epsilon=1.0, delta=1e-6, groups=None))
    assert only.measures == ()
    assert only.selection[2].threshold < made.selection[2].threshold
    assert loss(only.event).epsilon_upper(1e-6) <= 1.0
    assert bounding(replace(asked, neighbors="replace")).selection[0].noise_multiplier > made.selection[0].noise_multiplier * 1.4


# ------------------------------------------------------------------------------------------------ edges


@pytest.mark.parametrize("counts", ["none", "noise", "negative"])
def test_a_look_that_shows_nothing_still_makes_a_plan(counts):
    for measure in (ROWS, UNITS, SUM, PAIR):
        for groups in (1, 7, None):
            asked = goal(measure, groups=groups)
            look = look_plan(asked)
            if look is None:
                continue
            value = {"none": 0, "noise": int(look.mechanism.noise_scale), "negative": -1000}[counts]
            made = bounding(asked, look.profiles(tuple((value,) * len(i.edges) for i in look.items))).measures[0]
            assert measure.row <= made.limit <= 8 * measure.row
            assert made.lost_error == 1.0
            assert made.error is None


def test_huge_ranges_and_tiny_budgets_stay_within_what_can_be_drawn():
    wide = Measure(name="w", kind="sum", low=-(2**40), high=2**40)
    made = bounding(goal(wide, epsilon=1e-6, delta=0.0, rows_max=10**12)).measures[0]
    assert type(made.mechanism.measure_integers(17, UnsafeSeededRng(1)).value) is int
    assert made.noise_multiplier * made.sensitivity < 2**54
    asked = goal(wide, epsilon=1e-6)
    made = bounding(asked, blank(look_plan(asked))).measures[0]
    assert type(made.mechanism.measure_integers(17, UnsafeSeededRng(1)).value) is int


def test_facts_so_small_that_a_look_has_few_bins():
    asked = goal(UNITS, groups=2)
    look = look_plan(asked)
    assert [len(i.edges) for i in look.items] == [3, 2]
    assert bounding(asked, looked(look, people(cities=2))).measures[0].limit <= 2 * ROW


def test_a_profile_that_is_public_is_believed_as_it_is():
    edges = tuple(ROW * 2**k for k in range(12))
    known = Profile(measure="n", norm="l1", edges=edges, counts=(0, 0, 0, 100_000, *(0,) * 8))
    made = bounding(goal(delta=0.0), (known,)).measures[0]
    assert made.limit <= 8 * ROW
    assert made.lost < 0.05


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(InputError, match="delta"):
        goal(groups=None, delta=0.0)
    with pytest.raises(InputError, match="look"):
        bounding(goal())
    with pytest.raises(InputError, match="name"):
        goal(ROWS, ROWS)
    with pytest.raises(InputError, match="Nothing"):
        Goal(measures=(), epsilon=1.0, delta=1e-6)
    with pytest.raises(UnknownNameError):
        Measure(name="x", kind="mean")
    for low, high in ((0, 0), (3, 2), (0, 2**41), (0.5, 1)):
        with pytest.raises(InputError):
            Measure(name="x", kind="sum", low=low, high=high)
    for change in ({"epsilon": 0.0}, {"epsilon": -1}, {"delta": 1.0}, {"groups": 0}, {"rows_max": 0}, {"neighbors": "friends"}):
        with pytest.raises(InputError):
            goal(**change)
    with pytest.raises(InputError):
        Measure(name="x", kind="rows", high=5)
