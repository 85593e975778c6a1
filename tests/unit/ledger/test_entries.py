"""One text for each entry and each amount, and nothing else is read."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.accounting._exact import UNITS, rounded_up
from dither.core import events as ev
from dither.core.errors import DecodeError, InputError
from dither.core.plans import Charge
from dither.core.units import PrivacyUnit
from dither.ledger import entries

AT = "2026-11-19T06:00:00.000000Z"
BODY = {"n": 3, "prev": entries.GENESIS, "at": AT, "by": "ann", "kind": "void", "charge": "c1", "reason": "é\u2028"}


def test_an_entry_has_one_text_and_comes_back():
    text = entries.line(BODY)
    assert text.isascii()
    assert entries.parse(text) == BODY
    assert entries.hash_of(text) != entries.hash_of(text.replace("c1", "c2"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"kind":"void"}',
        entries.line(BODY) + " ",
        entries.line(BODY).replace(":3", ":3.0"),
        entries.line(BODY).replace("\\u00e9", "é"),
        entries.line(BODY).replace("\\u00e9", "\\u00E9"),
        json.dumps(BODY),
        entries.line(BODY).replace('"n":3', '"n":3,"n":3'),
        entries.line({**BODY, "kind": "voids"}),
        entries.line({**BODY, "more": 1}),
        entries.line({**BODY, "kind": ["void"]}),
        "[" * 20_000,
        '{"n":NaN}',
        '{"n":1e999}',
    ],
)
def test_any_other_text_is_refused(text: str):
    with pytest.raises(DecodeError):
        entries.parse(text)


@given(st.fractions(min_value=0, max_denominator=10**40) | st.integers(0, 10**310).map(Fraction))
def test_amounts_are_rounded_up_by_little_and_have_one_text(value: Fraction):
    whole = rounded_up(value)
    short = entries.shortened(whole)
    assert whole <= short <= whole + max(whole / 10**19, Fraction(1, 10**60))
    text = entries.amount_text(short)
    assert len(text) <= 27
    assert entries.amount(text) == short
    assert entries.in_units(short) == short * UNITS


@pytest.mark.parametrize(
    "text",
    ["", "1/0", "2/4", "-1", "01", "1e", "10e5", "1e-61", "1e5000", "0.5", "1/101", "1 ", "１", "1/3/3", None, 1, "9" * 300, "5e-1", "1e3"],
)
def test_other_texts_of_amounts_are_refused(text: object):
    with pytest.raises(DecodeError):
        entries.amount(text)


def test_a_long_amount_is_not_written_unless_rounded():
    with pytest.raises(DecodeError, match="round it up first"):
        entries.amount_text(Fraction(10**40 + 1, 3))


def charge(**more: object) -> Charge:
    given = {
        "id": "c1",
        "account": ("acme",),
        "unit": PrivacyUnit(dataset="events"),
        "event": ev.Repeat(ev.Gaussian(1.5), 3),
        "plan_digest": "d",
        "purpose": "p",
    }
    return Charge(**{**given, **more})  # type: ignore[arg-type]


def test_charges_come_back_and_every_field_counts():
    made = charge(blocks=("2026-01",))
    assert entries.charge_from_dict(entries.charge_to_dict(made)) == made
    others = [
        charge(),
        charge(id="c2"),
        charge(account=("acme", "ads")),
        charge(unit=PrivacyUnit(dataset="rows")),
        charge(event=ev.Repeat(ev.Gaussian(1.5), 4)),
        charge(plan_digest="e"),
        charge(purpose="q"),
        made,
    ]
    assert len({entries.charge_digest(c) for c in others}) == len(others)


@pytest.mark.parametrize("field", entries.CHARGE_FIELDS)
def test_a_charge_with_a_wrong_or_missing_field_is_refused(field: str):
    given = entries.charge_to_dict(charge())
    with pytest.raises(InputError):
        entries.charge_from_dict({**given, field: 7})
    with pytest.raises(DecodeError):
        entries.charge_from_dict({name: value for name, value in given.items() if name != field})
