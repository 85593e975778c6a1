"""Plots of the ledger: how a limit was used up over time, and who spent what on which purpose.

The same style as ``plots``: Okabe and Ito's colours, dashes and markers that differ too, units on every axis.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dither.accounting import tables
from dither.app.ledger_pages import cells, fit, plain
from dither.app.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, YELLOW, _page, _titles
from dither.core.errors import MissingExtraError

if TYPE_CHECKING:
    from dither.ledger.alerts import Forecast

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW)
DASHES: tuple[Any, ...] = ("-", (0, (6, 1)), "-.", (0, (3, 1, 1, 1)), (0, (1, 0.7)))
LINES_MAX, BARS_MAX, PURPOSES_MAX = 6, 14, 6
_NAME = 26
_FONTS = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans Devanagari", "Hiragino Sans", "PingFang SC"),
    *("Arial Unicode MS", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic", "WenQuanYi Zen Hei", "Nirmala UI", "Lohit Devanagari"),
)
"""Tried in this order for each letter, those that are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One limit over time: when its share used rose to what; ``words`` say its ε, δ and filter."""

    name: str
    words: str
    points: Sequence[tuple[datetime, float]]
    starts: datetime
    forecast: Forecast | None = None


def burn_down(path: Path, lines: Sequence[Line], *, now: datetime, refusals: Sequence[datetime], hides: str) -> Path:
    """The share of each limit used over time, the limit as a line at 100 %, the forecast dashed, refusals marked below."""
    dates = _matplotlib("dates")
    chosen = sorted(lines, key=lambda line: -_last(line))[:LINES_MAX]
    with _fonts(), _page(path, 8.6, 4.8) as axes:
        axes.axhline(100, color=RED, linewidth=1.4)
        axes.annotate(
            "limit",
            (1.0, 100),
            xycoords=axes.get_yaxis_transform(),
            xytext=(4, 0),
            textcoords="offset points",
            color=RED,
            fontsize=9,
            va="center",
        )
        ahead = [end for line in chosen if (end := _ahead(line, now)) is not None]
        for i, line in enumerate(chosen):
            _draw(axes, line, now, COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)])
        if ahead:
            axes.axvline(now, color=GREY, linewidth=0.9, linestyle=":")
            axes.annotate(
                "now",
                (dates.date2num(now), 1.0),
                xycoords=axes.get_xaxis_transform(),
                xytext=(3, -9),
                textcoords="offset points",
                color=GREY,
                fontsize=8,
            )
        if refusals:
            look = {
                "transform": axes.get_xaxis_transform(),
                "color": RED,
                "linestyle": "none",
                "marker": "x",
                "markersize": 5,
                "clip_on": False,
            }
            axes.plot(list(refusals), [0.02] * len(refusals), label=f"refused ({len(refusals):,})", **look)
        highest = max([100.0, *(100 * _last(line) for line in chosen)])
        axes.set_ylim(0, 1.08 * highest)
        axes.set_ylabel("share of the limit used (%)")
        axes.set_xlabel("time (UTC)")
        locator = dates.AutoDateLocator(minticks=3, maxticks=7)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        left = min([line.starts for line in chosen] + list(refusals), default=now)
        right = max([now, *ahead])
        room = max((right - left) * 0.02, timedelta(minutes=10))
        axes.set_xlim(left - room, right + room)
        more = len(lines) - len(chosen)
        title = None if more <= 0 else f"the {len(chosen)} most used; {more:,} more"
        if lines or refusals:
            axes.legend(loc="upper left", bbox_to_anchor=(1.07, 1.0), alignment="left", title=title, labelspacing=0.9, handlelength=2.4)
        _titles(axes, "What is spent, over time", _under(f"Hides {hides}. Dashed: forecast."), lines=_under(hides).count("\n") + 1)
    return path


def _matplotlib(name: str) -> Any:  # noqa: ANN401 - matplotlib is untyped
    try:
        return importlib.import_module(f"matplotlib.{name}")
    except ImportError:
        raise MissingExtraError("A plot", "plot") from None


@cache
def _families() -> tuple[str, ...]:
    """The fonts that are there, of those that are tried."""
    there = {font.name for font in _matplotlib("font_manager").fontManager.ttflist}
    return tuple(name for name in _FONTS if name in there)


@cache
def _letters() -> frozenset[int]:
    """Every letter that one of these fonts can draw."""
    manager = _matplotlib("font_manager")
    found = [manager.get_font(manager.findfont(name)).get_charmap() for name in _families()]
    return frozenset(code for charmap in found for code in charmap)


@contextmanager
def _fonts() -> Iterator[None]:
    _matplotlib("dates")  # so that what is missing is told as the missing extra
    with importlib.import_module("matplotlib").rc_context({"font.family": list(_families())}):
        yield


def _drawable(words: str) -> str:
    """The words with a code for each letter that no font here can draw."""
    return "".join(c if ord(c) in _letters() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in plain(words))


def _literal(words: str) -> str:
    """The words with no sign in them that means anything to matplotlib."""
    shown = words.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown  # a legend leaves out what starts with _


def _last(line: Line) -> float:
    return line.points[-1][1] if line.points else 0.0


def _ahead(line: Line, now: datetime) -> datetime | None:
    """Where the forecast ends on the page: at its date, or at three times the past where that is nearer."""
    if line.forecast is None or line.forecast.date is None or line.forecast.date <= now or not line.points:
        return None
    return min(line.forecast.date, now + 2 * (now - line.starts))


def _draw(axes: Any, line: Line, now: datetime, colour: str, dash: Any) -> None:  # noqa: ANN401 - matplotlib is untyped
    times = [line.starts, *(at for at, _ in line.points), now]
    shares = [0.0, *(100 * share for _, share in line.points), 100 * _last(line)]
    label = f"{_short(line.name)}: {100 * _last(line):.3g} %\n{_literal(_drawable(line.words))}"
    axes.plot(times, shares, drawstyle="steps-post", color=colour, linestyle=dash, label=label)
    end = _ahead(line, now)
    if end is None or line.forecast is None or line.forecast.date is None:
        return
    gone = (end - now) / (line.forecast.date - now)
    reach = 100 * (_last(line) + gone * (1 - _last(line)))
    axes.plot([now, end], [100 * _last(line), reach], color=colour, linestyle=(0, (2, 2)), linewidth=1.2)
    if end == line.forecast.date:
        axes.plot([end], [100], marker="o", markersize=5, color=colour)


def _short(name: str) -> str:
    """A name that leaves room for the plot: its end tells more than its beginning."""
    shown = _drawable(name)
    if cells(shown) <= _NAME:
        return _literal(shown)
    kept = ""
    for letter in reversed(shown):
        if cells(letter + kept) > _NAME - 1:
            break
        kept = letter + kept
    return _literal(f"…{kept}")


def _under(words: str) -> str:
    return textwrap.fill(_literal(_drawable(words)), 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What one account spent on one purpose, as a part of all that was spent under one limit."""

    account: str
    purpose: str
    part: float
    charges: int


def who_spent(path: Path, bars: Sequence[Bar], *, words: str, hides: str) -> Path:
    """A bar for each account, its purposes stacked; the length is the part of what was spent."""
    totals: dict[str, float] = {}
    purposes: dict[str, float] = {}
    for bar in bars:
        totals[bar.account] = totals.get(bar.account, 0.0) + bar.part
        purposes[bar.purpose] = purposes.get(bar.purpose, 0.0) + bar.part
    accounts = sorted(totals, key=lambda name: -totals[name])
    named = sorted(purposes, key=lambda name: -purposes[name])
    kept_accounts, kept = accounts[:BARS_MAX], named[:PURPOSES_MAX]
    rows = [*kept_accounts, *([f"{len(accounts) - BARS_MAX:,} others"] if len(accounts) > BARS_MAX else [])]
    others = "other purposes"
    legend = [*kept, *([others] if len(named) > PURPOSES_MAX else [])]
    parts = {(row, purpose): 0.0 for row in rows for purpose in legend}
    for bar in bars:
        row = bar.account if bar.account in kept_accounts else rows[-1]
        parts[row, bar.purpose if bar.purpose in kept else others] += 100 * bar.part
    with _fonts(), _page(path, 8.6, 1.9 + 0.36 * len(rows)) as axes:
        left = dict.fromkeys(rows, 0.0)
        for i, purpose in enumerate(legend):
            colour = GREY if purpose == others else COLOURS[i % len(COLOURS)]
            widths = [parts[row, purpose] for row in rows]
            axes.barh(
                rows,
                widths,
                left=[left[row] for row in rows],
                color=colour,
                label=_literal(fit(_drawable(purpose), 34).rstrip()),
                height=0.66,
            )
            left = {row: left[row] + width for row, width in zip(rows, widths, strict=True)}
        for i, row in enumerate(rows):
            look = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
            axes.annotate(f"{tables.number(left[row], 3)} %", (left[row], i), **look)
        axes.set_yticks(range(len(rows)), [_short(row) for row in rows])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1.12 * max([*left.values(), 1.0]))
        axes.set_xlabel(f"part of all that was spent (%), {words}")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), alignment="left", title="purpose")
        _titles(axes, "Who spent what, on which purpose", _under(f"Hides {hides}."), lines=_under(hides).count("\n") + 1)
    return path
