"""Numbers and tables for people: bounds are rounded to the safe side, columns are aligned, lines fit 80 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

WIDTH = 80


def number(value: float, digits: int = 4) -> str:
    """``value`` to ``digits`` significant digits, nearest.

    >>> number(1.320635), number(1e-05), number(4_700.0)
    ('1.321', '1e-05', '4700')
    """
    return _rounded(value, digits, ROUND_HALF_EVEN)


def up(value: float, digits: int = 4) -> str:
    """``value`` rounded up: what is printed is never below what is true (an upper bound, a noise level).

    >>> up(1.320635), up(0.93044328, 5)
    ('1.321', '0.93045')
    """
    return _rounded(value, digits, ROUND_CEILING)


def down(value: float, digits: int = 4) -> str:
    """``value`` rounded down: what is printed is never above what is true (a lower bound, a number of steps).

    >>> down(1.320635)
    '1.320'
    """
    return _rounded(value, digits, ROUND_FLOOR)


def percent(value: float, digits: int = 3) -> str:
    """A probability as a percentage, rounded up, never above 100 %.

    >>> percent(0.26894), percent(1.0), percent(0.999999)
    ('26.9 %', '100 %', '100 %')
    """
    if value >= 1:
        return "100 %"
    return f"{_plain(_round_to(Decimal(value) * 100, digits, ROUND_CEILING))} %"


def _rounded(value: float, digits: int, rounding: str) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    return _plain(_round_to(Decimal(value), digits, rounding))


def _round_to(exact: Decimal, digits: int, rounding: str) -> Decimal:
    if exact == 0:
        return exact
    return exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=rounding)


def _plain(shown: Decimal) -> str:
    """Short text of a rounded decimal: no exponent where plain digits do, zeros kept only after a decimal point that is needed."""
    if shown == 0:
        return "0"
    place = shown.adjusted()
    if -4 <= place < 7:
        text = f"{shown:f}"
        whole = shown == shown.to_integral_value()
        return text.split(".", maxsplit=1)[0] if whole else text
    mantissa = shown.scaleb(-place)
    return f"{mantissa.normalize():f}e{place:+03d}"


def table(rows: Iterable[Sequence[str]], headings: Sequence[str], *, left: Iterable[int] = (0,), indent: int = 2) -> str:
    """Aligned columns under headings and a rule; the columns in ``left`` to the left, the others to the right.

    >>> print(table([("now", "1.1"), ("twice", "0.9")], ("plan", "noise")))
      plan   noise
      ────────────
      now      1.1
      twice    0.9
    """
    body = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(row[i]) for row in body) for i in range(len(headings))]
    lefts = set(left)

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(w) if i in lefts else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        return f"{' ' * indent}{'  '.join(cells)}".rstrip()

    rule = " " * indent + "─" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([line(body[0]), rule, *(line(row) for row in body[1:])])


def paragraph(text: str, *, indent: int = 2, bullet: str = "") -> str:
    """``text`` wrapped to the page, with an optional bullet before its first line.

    >>> print(paragraph("short", bullet="! "))
      ! short
    """
    start = " " * indent + bullet
    return textwrap.fill(
        text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False, break_on_hyphens=False
    )


def facts(pairs: Iterable[tuple[str, str]], *, indent: int = 2) -> str:
    """Name and value, one pair a line, values aligned and wrapped under themselves.

    >>> print(facts([("unit", "one row"), ("trust model", "central")]))
      unit         one row
      trust model  central
    """
    given = list(pairs)
    width = max(len(name) for name, _ in given)
    lines = []
    for name, value in given:
        start = f"{' ' * indent}{name.ljust(width)}  "
        lines.append(
            textwrap.fill(
                value, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False, break_on_hyphens=False
            )
        )
    return "\n".join(lines)
