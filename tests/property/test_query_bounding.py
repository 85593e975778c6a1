"""Whatever a unit holds, scaling keeps it within its bound: one unit more or less moves the totals by C, one replaced by 2C or √2·C."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dither.accounting.loss import loss
from dither.core.units import Neighbors
from dither.query.bounding import ROW, Bounded, Goal, Measure, bounding, look_plan, norms_of, scaled

VALUES = st.integers(-(2**60), 2**60) | st.integers(-20, 20)
UNIT = st.dictionaries(st.integers(0, 5), VALUES, max_size=6)
LIMIT = st.integers(1, 2**62) | st.integers(1, 100)


def bounded_totals(units, norm, limit):
    """Group totals after scaling each unit, in exact integers."""
    cells = [(u, g, v) for u, held in enumerate(units) for g, v in held.items()]
    if not cells:
        return [0] * 6
    unit = np.array([c[0] for c in cells])
    value = np.array([c[2] for c in cells], dtype=object)
    norms = norms_of(value, unit, len(units), norm)
    kept = scaled(value, np.array([norms[u] for u in unit.tolist()], dtype=object), limit).tolist()
    return [sum(v for v, c in zip(kept, cells, strict=True) if c[1] == g) for g in range(6)]


def moved(first, second, norm):
    """The norm of the change: of L2 its square."""
    changes = [a - b for a, b in zip(first, second, strict=True)]
    return sum(map(abs, changes)) if norm == "l1" else sum(c * c for c in changes)


@given(st.lists(UNIT, max_size=4), UNIT, LIMIT, st.sampled_from(["l1", "l2"]))
def test_one_unit_more_moves_the_totals_by_the_bound_at_most(others, unit, limit, norm):
    change = moved(bounded_totals([*others, unit], norm, limit), bounded_totals(others, norm, limit), norm)
    assert change <= (limit if norm == "l1" else limit**2)


@given(st.lists(UNIT, max_size=3), UNIT, UNIT, LIMIT, st.sampled_from(["l1", "l2"]), st.booleans())
def test_one_unit_replaced_moves_the_totals_by_the_sensitivity_at_most(others, unit, other, limit, norm, signed):
    if not signed:
        unit, other = ({g: abs(v) for g, v in held.items()} for held in (unit, other))
    measure = Measure(name="s", kind="sum", low=-1 if signed else 0, high=1)
    plan = Bounded(
        measure=measure, norm=norm, limit=limit, noise_multiplier=1.0, neighbors=Neighbors.REPLACE, lost=0, lost_error=0, error=None
    )
    change = moved(bounded_totals([*others, unit], norm, limit), bounded_totals([*others, other], norm, limit), norm)
    reach = Fraction(plan.sensitivity)
    assert change <= (reach if norm == "l1" else reach**2)


@given(UNIT, LIMIT, st.sampled_from(["l1", "l2"]))
def test_scaling_keeps_signs_never_enlarges_and_leaves_small_units_alone(unit, limit, norm):
    totals = bounded_totals([unit], norm, limit)
    size = norms_of(np.array(list(unit.values()), dtype=object), np.zeros(len(unit), int), 1, norm)[0]
    for group, value in unit.items():
        assert totals[group] * value >= 0
        assert abs(totals[group]) <= abs(value)
        if size <= limit:
            assert totals[group] == value
        else:
            assert abs(totals[group]) > abs(value) * limit / size * (1 - 1e-12) - 1


@given(
    st.floats(1e-6, 100),
    st.just(0.0) | st.floats(1e-15, 1e-3),
    st.sampled_from(["add_remove", "replace"]),
    st.sampled_from([1, 2, 30, None]),
    st.lists(st.integers(-500, 10**6), min_size=50, max_size=50),
    st.sampled_from([("rows",), ("units",), ("rows", "units"), ("pair", "units")]),
)
def test_every_plan_is_within_its_budget(epsilon, delta, neighbors, groups, counts, kinds):
    if groups is None and not delta:
        delta = 1e-9
    measures = tuple(Measure(name=k, kind=k) for k in kinds)
    goal = Goal(measures=measures, epsilon=epsilon, delta=delta, neighbors=neighbors, groups=groups)
    look = look_plan(goal)
    made = bounding(goal, () if look is None else look.profiles(tuple(tuple(counts[: len(i.edges)]) for i in look.items)))
    assert loss(made.event).epsilon_upper(delta) <= epsilon
    for chosen in made.measures:
        assert chosen.limit >= 1
        assert 0 <= chosen.lost <= 1
        assert 0 <= chosen.lost_error <= 1
        assert chosen.limit <= ROW * 2**24
    if made.selection:
        assert made.for_groups(5).event == made.event
