"""The one tree of errors. Each class has a stable ``code`` and the exit status the command line ends with.

    DitherError
    ├── InputError              what was given is not allowed               exit 2
    │   ├── UnknownNameError    a name that does not exist                  exit 2
    │   ├── DecodeError         text that is not what it claims to be       exit 2
    │   ├── MissingExtraError   a feature whose extra is not installed      exit 2
    │   └── ConflictError       an id already stands for something else     exit 2
    ├── RefusedError            a rule of privacy forbids it                exit 3
    │   ├── SensitivityError    no finite sensitivity can be stated         exit 3
    │   └── NotPriceableError   no valid bound is known for this            exit 3
    ├── OverBudgetError         it would spend more than is left            exit 4
    ├── LedgerError             the book cannot be used; nothing may run    exit 1
    │   └── TamperError         the book is not what was written            exit 1
    ├── RunError                it failed after rows were read: spent       exit 1
    └── EntropyError            the system gave no randomness               exit 1

Text: what was given → what is allowed → what to do. No message holds a private value or a row count.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from enum import Enum
from fractions import Fraction
from numbers import Number
from typing import ClassVar


class DitherError(Exception):
    """Root of every error that dither raises on purpose."""

    code: ClassVar[str] = "dither"
    exit_status: ClassVar[int] = 1


class InputError(DitherError, ValueError):
    """What was given is not allowed; the text says what is."""

    code = "input"
    exit_status = 2


class UnknownNameError(InputError):
    """A name that does not exist; the text lists those that do."""

    code = "unknown_name"

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(f"Unknown {kind} {shown(name)}: expected one of {', '.join(self.known)}.")


class DecodeError(InputError):
    """Text (JSON, mostly) that is not what it claims to be."""

    code = "decode"


class MissingExtraError(InputError):
    """A feature whose optional packages are not installed."""

    code = "missing_extra"

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs packages that are not installed: run  pip install 'dither[{extra}]'.")


class ConflictError(InputError):
    """An id that already stands for something else, or whose charge is settled in another way."""

    code = "conflict"


class RefusedError(DitherError):
    """A rule of privacy forbids it, whatever the data."""

    code = "refused"
    exit_status = 3


class SensitivityError(RefusedError):
    """No finite sensitivity can be stated, so no noise is enough."""

    code = "sensitivity"


class NotPriceableError(RefusedError):
    """No valid bound on the privacy loss is known for what was asked."""

    code = "not_priceable"


class OverBudgetError(DitherError):
    """It would spend more than what is left."""

    code = "over_budget"
    exit_status = 4


class LedgerError(DitherError):
    """The budget book cannot be used: without a receipt nothing may run, and what is unknown counts as spent."""

    code = "ledger"


class TamperError(LedgerError):
    """The budget book, or something signed from it, is not what was written."""

    code = "tamper"


class RunError(DitherError):
    """A run that failed after rows were read: it is spent, and there is no release."""

    code = "run"


class EntropyError(DitherError):
    """The operating system gave no randomness; nothing can be released."""

    code = "entropy"


class _Short(reprlib.Repr):
    """What is long inside (texts, lists, maps) is cut before it is written, not after."""

    def repr_instance(self, x: object, level: int) -> str:  # noqa: ARG002 - the name and the level are reprlib's
        """Numbers, names and our own nouns as they say themselves; of anything else (an array, a table) only what it is."""
        told = isinstance(x, Number | Enum | type) or type(x).__module__.startswith("dither.")
        return repr(x) if told else f"<{type(x).__name__}>"


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxfrozenset = _SHORT.maxdict = 12


def shown(value: object, limit: int = 60) -> str:
    """A short, safe text of a *public* argument, for an error message; of a long one only the beginning is looked at."""
    try:
        text = f"{value.numerator}/{value.denominator}".removesuffix("/1") if type(value) is Fraction else _SHORT.repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the error being told
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
