"""Numbers and tables for people: bounds are rounded to the safe side, columns are aligned, lines fit 80 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

WIDTH = 80


def number(value: float, digits: int = 4) -> str:
    """``value`` to ``digits`` significant digits, nearest.

    >>> number(1.320635), number(1e-05), number(4_700.0), number(0.1)
    ('1.321', '1e-05', '4700', '0.1')
    """
    return _rounded(value, digits, ROUND_HALF_EVEN, zeros=False)


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
    return "100 %" if value >= 1 else f"{_rounded(100 * value, digits, ROUND_CEILING, zeros=False)} %"


def _rounded(value: float, digits: int, rounding: str, *, zeros: bool = True) -> str:
    """To significant digits, counted in the shortest decimal that names the float (1e-5 is 1e-05, not a hair above)."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    exact = Decimal(repr(float(value)))
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=rounding)
    place = rounded.adjusted()
    if not -4 <= place < 7:
        return f"{rounded.scaleb(-place).normalize():f}e{place:+03d}"
    text = f"{rounded:f}"
    if rounded == rounded.to_integral_value():
        return text.split(".", maxsplit=1)[0]
    return text if zeros and rounded != exact else text.rstrip("0")


def excludes_nothing(delta: float, population: int) -> bool:
    """Whether δ ≥ 1/population, in exact decimals: publishing one whole unit at random is then allowed.

    >>> excludes_nothing(1e-5, 100_000), excludes_nothing(1 / 49, 49), excludes_nothing(9.999e-6, 100_000)
    (True, True, False)
    """
    return Decimal(repr(float(delta))) * population >= Decimal(1) - Decimal("1e-12")


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
