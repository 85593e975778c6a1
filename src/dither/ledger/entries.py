"""The lines of the book: one canonical JSON object each, chained by SHA-256, and the strict way back.

>>> body = {"n": 0, "prev": GENESIS, "at": "2026-11-19T06:00:00.000000Z", "by": "ann", "kind": "account", "account": ["acme"]}
>>> parse(line(body)) == body, hash_of(line(body))[:8]
(True, '0c384c8a')
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from hashlib import sha256
from typing import Any, Final, TypeAlias, cast

from dither.accounting._exact import UNITS
from dither.core import encoding, events
from dither.core.errors import DecodeError, shown
from dither.core.plans import Charge
from dither.ledger.blocks import members, texts
from dither.ledger.terms import unit_from_dict, unit_to_dict

Body: TypeAlias = dict[str, Any]
GENESIS: Final = "0" * 64
FORMAT: Final = 1
CHECKPOINT_EVERY: Final = 1024
LINE_MAX: Final = encoding.TEXT_MAX
UP_TO: Final = ":up_to"
"""Ends the digest of a charge that was asked for as far as there is room."""

_COMMON = ("n", "prev", "at", "by", "kind")
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "open": ("book", "format", "public_key", "versions"),
    "dataset": ("dataset",),
    "account": ("account",),
    "limit": ("limit",),
    "move": ("source", "target", "epsilon", "delta", "filters"),
    "reserve": ("charge", "digest", "holder", "prices"),
    "commit": ("charge", "event", "prices", "release", "recovered"),
    "void": ("charge", "reason"),
    "refusal": ("what", "charge", "account", "dataset", "purpose", "event", "code", "text"),
    "alert": ("limit", "block", "threshold", "share"),
    "checkpoint": ("count", "root", "peaks", "signature"),
}
"""The fields of each kind of entry, beside those that every entry has."""
TERMS: Final = frozenset({"open", "dataset", "account", "limit", "move"})
"""Kinds that change what was agreed."""
_EXACTLY = {kind: frozenset((*_COMMON, *own)) for kind, own in FIELDS.items()}
dump = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
"""Canonical JSON of what is known to be plain JSON with texts as keys; ``line`` checks that too."""


# ------------------------------------------------------------------------------------------------ lines


def line(body: Body) -> str:
    """The one text of an entry.

    >>> line({"b": 1, "a": 2})
    '{"a":2,"b":1}'
    """
    return encoding.canonical_json(body)


def hash_of(text: str) -> str:
    """The hash that the next entry carries as ``prev``.

    >>> hash_of("")[:8]
    'e3b0c442'
    """
    return sha256(text.encode("ascii")).hexdigest()


def parse(text: str) -> Body:
    """The entry that a line holds; DecodeError for anything but the very text that ``line`` would write.

    >>> parse('{"n": 0}')
    Traceback (most recent call last):
    dither.core.errors.DecodeError: This line is not canonical JSON, as the ledger writes it.
    """
    if len(text) > LINE_MAX:
        raise DecodeError(f"This line is too long: expected at most {LINE_MAX} characters.")
    try:
        body = json.loads(text)
        same = dump(body) == text  # so no key is doubled, no number written in another way, nothing is NaN
    except (ValueError, RecursionError):
        raise DecodeError("This line is not JSON as the ledger writes it.") from None
    if not same:
        raise DecodeError("This line is not canonical JSON, as the ledger writes it.")
    kind = body.get("kind") if isinstance(body, dict) else None
    if not isinstance(kind, str) or kind not in _EXACTLY:
        raise DecodeError(f"This line is no entry of a known kind: expected one of {', '.join(FIELDS)}.")
    if type(body.get("n")) is not int:
        raise DecodeError("The number of this entry is not a whole number.")
    if body.keys() != _EXACTLY[kind]:
        members(f"entry of kind '{kind}'", body, (*_COMMON, *FIELDS[kind]))
    return cast("Body", body)


# ------------------------------------------------------------------------------------------------ amounts

AMOUNT_MAX: Final = 26
"""A longer text of an amount gives way to 20 significant digits, rounded up."""
_DIGITS, _PLACES, _POWER_MAX = 20, 60, 400
_DECIMAL = re.compile(r"([1-9][0-9]{0,19})e(-?[1-9][0-9]{0,3})")
_FRACTION = re.compile(r"[0-9]{1,26}(/[1-9][0-9]{0,24})?")


def shortened(amount: Fraction) -> Fraction:
    """The amount, or where its text would be long the least decimal above it of 20 digits, and of 60 places at most.

    Either is a whole multiple of 1/UNITS (``dither.accounting``) if the amount was one, so that sums are exact.

    >>> shortened(Fraction(1, 3)), shortened(Fraction(1, 10**70)) == Fraction(1, 10**60)
    (Fraction(1, 3), True)
    """
    top, bottom = amount.numerator, amount.denominator
    if top.bit_length() + bottom.bit_length() < 100 and len(str(amount)) <= AMOUNT_MAX:
        return amount
    mantissa, power = _decimal(top, bottom)
    return Fraction(mantissa * 10**power) if power >= 0 else Fraction(mantissa, 10**-power)


def _decimal(top: int, bottom: int) -> tuple[int, int]:
    """(mantissa, power) of the least such decimal at or above top/bottom > 0, the mantissa as short as it can be."""
    # 10^size is at most one digit away from the amount: 30103/100000 is just above log10(2).
    size = (top.bit_length() - bottom.bit_length()) * 30103 // 100000
    power = max(size - _DIGITS - 1, -_PLACES)
    mantissa = _scaled(top, bottom, power)
    while mantissa >= 10**_DIGITS:
        power += 1
        mantissa = _scaled(top, bottom, power)
    while mantissa % 10 == 0:
        mantissa, power = mantissa // 10, power + 1
    return mantissa, power


def _scaled(top: int, bottom: int, power: int) -> int:
    """The least whole number at or above top/bottom/10^power."""
    if power < 0:
        top *= _ten(-power)
    else:
        bottom *= _ten(power)
    return -(-top // bottom)


def _ten(power: int) -> int:
    found: int = 10**power  # its type depends on the sign of the power
    return found


def amount_text(amount: Fraction) -> str:
    """The one text of an amount: a fraction, or where that is long a decimal (round it up with ``shortened`` first).

    >>> amount_text(Fraction(1, 98)), amount_text(shortened(Fraction(10**30 + 1, 3)))
    ('1/98', '33333333333333333334e10')
    """
    top, bottom = amount.numerator, amount.denominator
    if top.bit_length() + bottom.bit_length() < 100:
        plain = str(amount)
        if len(plain) <= AMOUNT_MAX:
            return plain
    mantissa, power = _decimal(top, bottom)
    if amount != (Fraction(mantissa * 10**power) if power >= 0 else Fraction(mantissa, 10**-power)):
        raise DecodeError("An amount with so long a text is a decimal of 20 digits: round it up first.")
    return f"{mantissa}e{power}"


def amount(text: object) -> Fraction:
    """The amount that a text says; DecodeError for any but its one text.

    >>> amount("1/98"), amount("33333333333333333334e10") == Fraction(33333333333333333334 * 10**10)
    (Fraction(1, 98), True)
    """
    if isinstance(text, str):
        decimal = _DECIMAL.fullmatch(text)
        if decimal is not None and int(decimal[2]) <= _POWER_MAX:
            power = int(decimal[2])
            found = Fraction(int(decimal[1]) * 10**power) if power >= 0 else Fraction(int(decimal[1]), 10**-power)
        elif _FRACTION.fullmatch(text) is not None:
            found = Fraction(text)
        else:
            raise _no_amount(text)
        if UNITS % found.denominator == 0 and amount_text(found) == text:
            return found
    raise _no_amount(text)


def _no_amount(text: object) -> DecodeError:
    return DecodeError(f"An amount is a text such as '1/98' or '3704e-20', a whole multiple of the ledger's unit: found {shown(text)}.")


def in_units(amount: Fraction) -> int:
    """The amount as a whole number of 1/UNITS.

    >>> in_units(Fraction(1, UNITS))
    1
    """
    return amount.numerator * (UNITS // amount.denominator)


# ------------------------------------------------------------------------------------------------ charges

CHARGE_FIELDS: Final = ("id", "account", "unit", "blocks", "event", "plan_digest", "purpose")


def charge_to_dict(charge: Charge) -> dict[str, object]:
    """A plain JSON value.

    >>> from dither.core.units import PrivacyUnit
    >>> unit = PrivacyUnit(dataset="events")
    >>> charge = Charge(id="c1", account=("acme",), unit=unit, event=events.PureDp(0.1), plan_digest="sha256:0", purpose="report")
    >>> charge_to_dict(charge)["account"]
    ['acme']
    """
    return {
        "id": charge.id,
        "account": list(charge.account),
        "unit": unit_to_dict(charge.unit),
        "blocks": list(charge.blocks),
        "event": events.to_dict(charge.event),
        "plan_digest": charge.plan_digest,
        "purpose": charge.purpose,
    }


def charge_from_dict(value: object) -> Charge:
    """The charge that a JSON value describes.

    >>> from dither.core.units import PrivacyUnit
    >>> charge = Charge(
    ...     id="c1", account=("acme",), unit=PrivacyUnit(dataset="events"), event=events.PureDp(0.1), plan_digest="d", purpose="report"
    ... )
    >>> charge_from_dict(charge_to_dict(charge)) == charge
    True
    """
    given = members("charge", value, CHARGE_FIELDS)
    return Charge(
        id=cast("str", given["id"]),
        account=texts("account", given["account"]),
        unit=unit_from_dict(given["unit"]),
        blocks=texts("blocks", given["blocks"]),
        event=events.from_dict(given["event"]),
        plan_digest=cast("str", given["plan_digest"]),
        purpose=cast("str", given["purpose"]),
    )


def charge_digest(charge: Charge) -> str:
    """What a retry under the same id must have in common with the first try: everything.

    >>> from dither.core.units import PrivacyUnit
    >>> unit = PrivacyUnit(dataset="events")
    >>> charge_digest(Charge(id="c", account=("a",), unit=unit, event=events.PureDp(1), plan_digest="d", purpose="p"))[:10]
    'sha256:182'
    """
    return digest_of(charge_to_dict(charge))


def digest_of(charge: Mapping[str, object]) -> str:
    """The digest of a charge that is a JSON value already.

    >>> digest_of({})[:10]
    'sha256:441'
    """
    return f"sha256:{sha256(dump(charge).encode('ascii')).hexdigest()}"
