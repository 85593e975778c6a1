"""Account names: tuples of parts, compared part by part, and what keeps one name from passing for another.

>>> account("acme/ads"), text(("acme", "ads"))
(('acme', 'ads'), 'acme/ads')
"""

from __future__ import annotations

import unicodedata
from typing import TypeAlias

from dither.core import checks
from dither.core.errors import InputError

Account: TypeAlias = tuple[str, ...]

PARTS_MAX = 16
PART_MAX = 64

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x16FE4, 0x1D159),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
"""Letters and marks that show nothing (fillers, joiners, variation selectors) though their category says otherwise."""
_SLASHES = frozenset("/⁄∕⧸╱⟋⫽")

_CAPITALS = (
    "ΑA ΒB ΕE ΖZ ΗH ΙI ΚK ΜM ΝN ΟO ΡP ΤT ΥY ΧX ϹC ϺM "  # Greek
    "АA ВB ЕE ЅS ІI ЈJ КK МM НH ОO РP СC ТT УY ХX ҮY ԌG ԚQ ԜW ӀI "  # Cyrillic
    "ՏS ՍU ՕO ԼL "  # Armenian
    "ᎪA ᏴB ᏟC ᎠD ᎬE ᏀG ᎻH ᎫJ ᏦK ᏞL ᎷM ᏢP ᎡR ᏚS ᎢT ᏙV ᏔW ᏃZ"  # Cherokee
)
"""Capitals that look Latin; read before case is folded too, for Ν looks like N and ν like v."""
_SMALL = (
    "αa βb γy εe ηn ιi κk νv οo ρp τt υu χx ωw ϲc ϳj σo "  # Greek
    "аa әe вb гr еe эe зɜ іi кk мm нh оo пn рp сc тt уy хx ьb ѕs јj һh ԁd ԛq ԝw ӏi ѵv үy ԍg "  # Cyrillic
    "ցg զq հh յj ոn սu օo ռn լi "  # Armenian
    "ıi ɩi ɪi ǀi |i !i 1i li ɑa ʋv ʏy ɴn ʀr ʜh ʟi ᴀa ᴄc ᴅd ᴇe ᴊj ᴋk ᴍm ᴏo ᴘp ᴛt ᴜu ᴠv ᴡw ᴢz ɡg "  # Latin
    "0o øo 3ɜ ʼ' ’' ‘' `' ´' ′' ‐- ‑- ‒- –- —- ―- −- ⁃- ˗-"  # digits and signs
)
_LOOKS = str.maketrans({pair[0]: pair[1] for pair in _CAPITALS.split()})
_LOOKS_SMALL = str.maketrans({pair[0]: pair[1].lower() for pair in (_CAPITALS + _SMALL).split()})


def account(value: object) -> Account:
    """The account of that name, checked: ``"acme/ads"`` or ``("acme", "ads")``.

    >>> account(("acme", "ads", "weekly reports"))
    ('acme', 'ads', 'weekly reports')
    """
    expected = "a name such as 'acme/ads', or a tuple of its parts"
    if not isinstance(value, str | tuple | list):
        raise checks.refuse("account", value, expected)
    if isinstance(value, str) and len(value) > PARTS_MAX * (PART_MAX + 1):
        raise checks.refuse("account", value, f"at most {PARTS_MAX} parts of {PART_MAX} characters")
    parts = tuple(value.split("/")) if isinstance(value, str) else tuple(value)
    if not 1 <= len(parts) <= PARTS_MAX:
        raise checks.refuse("account", value, f"from 1 to {PARTS_MAX} parts")
    return tuple(part(p) for p in parts)


def part(value: object) -> str:
    """One part of an account name, checked.

    >>> part("ads")
    'ads'
    """
    found = name("account", value, limit=PART_MAX)
    if found in {".", ".."}:
        raise checks.refuse("account", found, "a name, not '.' or '..'")
    if not _SLASHES.isdisjoint(unicodedata.normalize("NFKC", found)):
        raise checks.refuse("account", found, "parts without '/' or what looks like it", "Write levels as 'acme/ads'.")
    return found


def name(label: str, value: object, *, limit: int) -> str:
    """A text that shows all it holds: NFC, nothing invisible, no spaces but plain ones inside.

    >>> name("partition", "Île-de-France", limit=64)
    'Île-de-France'
    """
    expected = f"a name of 1 to {limit} visible characters"
    if not isinstance(value, str):
        raise checks.refuse(label, value, expected)
    if not value or len(value) > limit:
        raise checks.refuse(label, value, expected, "" if value else "An empty name, or '/' at an end or doubled, names nothing.")
    plain = value.isascii() and value.isprintable()  # the common case: nothing can hide
    hidden = None if plain else next((c for c in value if not _visible(c)), None)
    if hidden is not None:
        told = f"U+{ord(hidden):04X} ({unicodedata.name(hidden, 'unnamed').lower()})"
        raise InputError(f"{label} holds {told}, which cannot be seen: expected {expected}. Take it out.")
    if value[0] == " " or value[-1] == " ":
        raise checks.refuse(label, value, "no space at either end")
    if unicodedata.category(value[0]).startswith("M"):
        raise checks.refuse(label, value, "a first character that stands by itself, not a mark on what is before it")
    if not unicodedata.is_normalized("NFC", value):
        raise checks.refuse(
            label, value, "text in Unicode form NFC", "Letters and accents are to be one character: unicodedata.normalize('NFC', …)."
        )
    return value


def _visible(letter: str) -> bool:
    kind = unicodedata.category(letter)
    return kind not in _HIDDEN and (kind != "Zs" or letter == " ") and letter not in _BLANK


def skeleton(value: str) -> str:
    """What a part looks like: two parts with one skeleton can be taken for each other.

    Compatibility forms and case are folded; Greek, Cyrillic and Armenian letters become the Latin ones they resemble;
    0 and o, and 1, l, i and I, are one; rn is m, vv is w. A difference of two such names is too small for a human eye.

    >>> skeleton("Acme") == skeleton("асme") == skeleton("ACME"), skeleton("ads") == skeleton("ad")
    (True, False)
    """
    apart = _decomposed(value).translate(_LOOKS)
    plain = _decomposed(apart.casefold()).replace("i\u0307", "i").translate(_LOOKS_SMALL)
    return " ".join(plain.split()).replace("rn", "m").replace("vv", "w")


def _decomposed(value: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFKC", value))


def alike(one: str, other: str) -> bool:
    """Whether two different parts could be taken for each other.

    >>> alike("ads", "adѕ"), alike("ads", "ads"), alike("ads", "sales")
    (True, False, False)
    """
    return one != other and (skeleton(one) == skeleton(other) or _folded(one) == _folded(other))


def _folded(value: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold())


def text(given: Account) -> str:
    """The name as people write it.

    >>> text(("acme", "ads"))
    'acme/ads'
    """
    return "/".join(given)


def lineage(given: Account) -> tuple[Account, ...]:
    """The account and all above it, root first.

    >>> lineage(("acme", "ads"))
    (('acme',), ('acme', 'ads'))
    """
    return tuple(given[:depth] for depth in range(1, len(given) + 1))
