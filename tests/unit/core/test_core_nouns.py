import math
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest

from dither import events as ev
from dither.core import checks, errors
from dither.core.encoding import DEPTH_MAX, TEXT_MAX, canonical_json, digest, parse_json
from dither.core.errors import DecodeError, DitherError, InputError, UnknownNameError, shown
from dither.core.plans import Accuracy, Charge, Receipt, Release, State
from dither.core.units import Bound, Guarantee, Neighbors, PrivacyUnit, Trust, neighbors

UNIT = PrivacyUnit(dataset="events", key="user_id")


def all_errors():
    found, waiting = [], [DitherError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return [k for k in found if k.__module__ == "dither.core.errors"]


def test_the_tree_of_errors_is_small_and_every_code_is_its_own():
    kinds = all_errors()
    assert len(kinds) <= 15
    assert len({k.code for k in kinds}) == len(kinds)
    assert {k.exit_status for k in kinds} == {1, 2, 3, 4}
    assert all(k.__name__ in errors.__doc__ for k in kinds)


def test_shown_never_fails_and_stays_short():
    class Nasty:
        def __repr__(self):
            raise RuntimeError

    assert shown(Nasty()) == "<Nasty>"
    assert len(shown("x" * 10_000)) <= 60


def test_of_what_may_hold_data_only_the_kind_is_shown():
    assert shown(np.array([17.25, 18.5])) == "<ndarray>"
    assert shown([np.array([17.25])]) == "[<ndarray>]"
    assert shown(datetime(2026, 1, 1, tzinfo=UTC)) == "<datetime>"
    assert shown(Fraction(1, 3)) == "1/3"
    assert shown(ev.Gaussian(1.0)) == "Gaussian(noise_multiplier=1.0)"
    assert shown(float) == "<class 'float'>"


def test_missing_extra_says_what_to_type():
    assert "pip install 'dither[plot]'" in str(errors.MissingExtraError("A plot", "plot"))


@pytest.mark.parametrize("bad", ["", "a\nb", "\x00", 3, None, "x" * 2_000])
def test_texts_are_printable_and_short(bad):
    with pytest.raises(InputError, match="is not allowed"):
        PrivacyUnit(dataset=bad)


def test_units_and_guarantees_read_as_sentences():
    assert str(UNIT) == "one user_id of events (present or absent)"
    assert str(PrivacyUnit(dataset="t", neighbors=Neighbors.REPLACE)) == "one row of t (replaced by another)"
    text = str(Guarantee(1.5, 1e-6, UNIT, Trust.LOCAL))
    assert text == "ε = 1.5 at δ = 1e-06, hiding one user_id of events (present or absent), local trust"


def test_neighbors_are_named():
    assert neighbors("replace") is Neighbors.REPLACE
    assert neighbors(Neighbors.ADD_REMOVE) is Neighbors.ADD_REMOVE
    with pytest.raises(UnknownNameError, match="add_remove, replace"):
        neighbors("swap")
    with pytest.raises(UnknownNameError):
        PrivacyUnit(dataset="t", neighbors=["replace"])


@pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0), (math.nan, 0), (1, -1), (1, 2), (1, math.nan)])
def test_guarantees_are_possible(epsilon, delta):
    with pytest.raises(InputError):
        Guarantee(epsilon, delta, UNIT)


def test_bounds_have_two_sides_in_order():
    assert Bound(1.0, 3.0).width == 2.0
    assert Bound(math.inf, math.inf).width == 0.0
    for low, high in ((2.0, 1.0), (math.nan, 1.0), (1.0, math.nan)):
        with pytest.raises(InputError):
            Bound(low, high)


def test_charges_check_themselves():
    good = {"id": "a1", "account": ["acme", "ads"], "unit": UNIT, "event": ev.Gaussian(1.0), "plan_digest": "sha256:0", "purpose": "weekly"}
    charge = Charge(**good)
    assert charge.account == ("acme", "ads")
    for field, bad in [
        ("id", ""),
        ("account", ()),
        ("account", "acme/ads"),
        ("account", ("a", "")),
        ("unit", "user"),
        ("event", 1.0),
        ("purpose", ""),
        ("purpose", "a\x1b[2J"),
        ("blocks", ("",)),
        ("plan_digest", None),
    ]:
        with pytest.raises(InputError):
            Charge(**{**good, field: bad})


def test_releases_carry_what_they_cost():
    spent = Guarantee(1.0, 1e-6, UNIT)
    receipt = Receipt(
        charge_id="a", state=State.COMMITTED, entry=1, spent=spent, remaining=spent, head="h", at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    release = Release(
        value=3.2, event=ev.Laplace(1.0), unit=UNIT, plan_digest="d", accuracy=Accuracy(half_width=2.0, confidence=0.95), receipt=receipt
    )
    assert str(release.accuracy) == "±2 with 95 % confidence"
    assert release.receipt is receipt
    for half, confidence in ((-1.0, 0.9), (math.nan, 0.9), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)):
        with pytest.raises(InputError):
            Accuracy(half_width=half, confidence=confidence)


def test_canonical_json_has_one_text_per_value():
    assert canonical_json({"é": [1, 2.5, None], "a": True}) == '{"a":true,"\\u00e9":[1,2.5,null]}'
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    for bad in (math.nan, math.inf, {1, 2}, object(), {"a": b"x"}, {(1, 2): 3}):
        with pytest.raises(InputError, match="cannot be written as JSON"):
            canonical_json(bad)


@pytest.mark.parametrize(
    "bad", ["{", '{"a":1,"a":2}', "NaN", "-Infinity", "1e999", "[1,]", "'a'", b"\xff", 7, "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)]
)
def test_json_is_read_strictly(bad):
    with pytest.raises(DecodeError):
        parse_json(bad)


def test_brackets_inside_text_are_not_depth():
    assert parse_json('"' + "[" * 1_000 + '\\"["') == "[" * 1_000 + '"['
    assert parse_json("[" * DEPTH_MAX + "]" * DEPTH_MAX)


def test_checks_refuse_what_is_no_number():
    for bad in (True, "1", None, 1j, [1], b"1"):
        with pytest.raises(InputError):
            checks.real("x", bad)
    with pytest.raises(InputError, match="subnormal"):
        checks.positive("x", 5e-324)
    assert checks.delta(0) == 0.0
    with pytest.raises(InputError, match="no finite ε at δ = 0"):
        checks.delta(0, zero=False)
    assert checks.epsilon(0) == 0.0
    with pytest.raises(InputError):
        checks.epsilon(0, zero=False)


def test_texts_too_long_are_refused_before_they_are_read():
    for text in ("x" * (TEXT_MAX + 1), b"x" * (TEXT_MAX + 1)):
        with pytest.raises(DecodeError, match="too long"):
            parse_json(text)


LONG = {
    "text": "x" * 10**7,
    "lists": [[1] * 10**6] * 9,
    "map": {str(i): i for i in range(10**5)},
    "number": 10**5_000,
    "deep": {1: {2: [4] * 10**6}},
}


@pytest.mark.parametrize("name", LONG)
def test_only_the_beginning_of_a_long_value_is_shown(name):
    assert len(shown(LONG[name])) <= 60
