"""The plots: what each accountant says, the best attack, noise against ε, what doubling buys, tables of answers, noise as drawn.

Colours are Okabe and Ito's, which people of any colour vision can tell apart; lines differ in dash and marker too.
matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dither
from dither.core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from dither.accounting.compare import Comparison
    from dither.accounting.explain import Explanation
    from dither.accounting.plan import TrainingPlan
    from dither.query.result import Answer

KINDS = (".png", ".svg", ".pdf")
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B8A800", "#6E6E6E"
_CYCLE = (ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY)
_DASHES = ("--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
_MARKS = ("s", "^", "D", "v", "P", "X", "*")

_STYLE = {
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.title_fontsize": 9,
    "svg.hashsalt": "dither",
}


def target(path: Path) -> Path:
    """A path that can be drawn to: its ending is known, its folder exists, and it is no folder itself."""
    if path.suffix.lower() not in KINDS:
        raise InputError(f"--plot {str(path)!r} is not allowed: expected a file that ends in {', '.join(KINDS)}.")
    if not path.parent.is_dir():
        raise InputError(f"--plot {str(path)!r} is not allowed: there is no folder {str(path.parent)!r}. Make it first.")
    if path.is_dir():
        raise InputError(f"--plot {str(path)!r} is not allowed: it is a folder. Name a file in it.")
    return path


def comparison(path: Path, counts: Sequence[int], runs: Sequence[Comparison], *, delta: float, hides: str) -> Path:
    """ε against the number of steps, one line for each way of accounting; the tight one in front."""
    names = list(dict.fromkeys(row.name for run in runs for row in run.rows))
    lines: dict[str, list[float]] = {name: [] for name in names}
    for run in runs:
        found = {row.name: row.epsilon for row in run.rows}
        for name in names:
            value = found.get(name)
            lines[name].append(value if value is not None and math.isfinite(value) and value > 0 else math.nan)
    lines = {name: values for name, values in lines.items() if not all(math.isnan(v) for v in values)}
    order = sorted(lines, key=lambda name: -_last(lines[name]))
    tight = next((name for name in order if "tight" in name.lower() or "dither" in name.lower()), None)
    with _page(path, 7.6, 4.6) as axes:
        for i, name in enumerate(name for name in order if name != tight):
            look: dict[str, Any] = {"color": _CYCLE[i % 7], "linestyle": _DASHES[i % 7], "marker": _MARKS[i % 7]}
            axes.plot(counts, lines[name], markersize=3.5, label=name, **look)
        if tight is not None:
            axes.plot(counts, lines[tight], color=BLUE, linewidth=3, label=tight, zorder=5)
        handles = {handle.get_label(): handle for handle in axes.get_lines()}
        loose = {row.name for run in runs for row in run.rows if row.kind != "upper bound"}
        said = dither.accounting.tables.number
        labels = [f"{name}{' (can under-report)' if name in loose else ''}: {said(_last(lines[name]), 3)}" for name in order]
        legend = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "alignment": "left", "title": f"ε after {counts[-1]:,} steps"}
        axes.legend([handles[name] for name in order], labels, **legend)
        axes.set(xscale="log", yscale="log", xlabel="steps", ylabel=f"ε at δ = {delta:g}")
        _plain_ticks(axes.xaxis, few=True)
        _plain_ticks(axes.yaxis, few=True)
        _titles(axes, "The same run, by different accounting", f"Hides {hides}.")
    return path


def _last(values: Sequence[float]) -> float:
    return next((v for v in reversed(values) if not math.isnan(v)), 0.0)


def trade_off(path: Path, told: Explanation) -> Path:
    """The best possible attack: true against false positive rate, with the (ε, δ) line and 0.1, 1 and 10 % marked."""
    curve, guarantee = told.curve(), told.guarantee
    rates, both = curve.false_positive_rates, f"ε = {guarantee.epsilon:.3g}, δ = {guarantee.delta:g}"
    with _page(path, 6.4, 5.4) as axes:
        axes.fill_between(rates, rates, curve.true_positive_rates, color=BLUE, alpha=0.10, linewidth=0)
        if told.event is not None:
            axes.plot(rates, curve.by_line, color=ORANGE, linestyle="--", label=f"all that {both} says")
        exact = "best possible attack on this event" if told.event is not None else f"best possible attack at {both}"
        axes.plot(rates, curve.true_positive_rates, color=BLUE, linewidth=2.6, label=exact)
        axes.plot(rates, rates, color=GREY, linestyle=":", label="guessing")
        for attack in told.attacks:
            point = (attack.false_positive_rate, attack.true_positive_rate)
            axes.plot(*point, marker="o", color=BLUE, markersize=6)
            axes.annotate(dither.accounting.tables.percent(point[1]), point, xytext=(9, -11), color=BLUE, **_LABEL)
        axes.set(xscale="log", yscale="log", xlim=(rates[0], 1), ylim=(rates[0], 1.25))
        axes.set_xlabel("false positive rate (wrongly accused)")
        axes.set_ylabel("true positive rate (found)")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.legend(loc="lower right")
        _titles(axes, "How well the best attack could recognise one unit", f"Hides {guarantee.unit}; {guarantee.trust} trust.")
    return path


def calibration(
    path: Path,
    targets: Sequence[float],
    values: Sequence[float],
    *,
    name: str,
    delta: float,
    chosen: tuple[float, float],
    hides: str,
) -> Path:
    """The calibrated parameter against the target ε."""
    label = name.replace("_", " ")
    with _page(path, 6.4, 4.2) as axes:
        axes.plot(targets, values, color=BLUE, marker="o", markersize=4)
        axes.plot(*chosen, marker="o", markersize=9, color=RED, linestyle="none")
        rising = values[-1] > values[0]
        aside = (12, -14) if rising else (10, 10)  # off the line, whichever way it goes
        shown = (
            chosen[1]
            if isinstance(chosen[1], int)
            else (dither.accounting.tables.down if rising else dither.accounting.tables.up)(chosen[1], 5)
        )
        axes.annotate(f"ε = {chosen[0]:g}: {shown}", chosen, xytext=aside, color=RED, **_LABEL)
        axes.set(xscale="log", yscale="log", xlabel=f"target ε at δ = {delta:g}", ylabel=label)
        _titles(axes, f"The {label} that meets ε", f"Hides {hides}.")
        _plain_ticks(axes.xaxis)
        _plain_ticks(axes.yaxis)
    return path


def plan(path: Path, made: TrainingPlan) -> Path:
    """What doubling buys: noise over signal of every option, as bars."""
    base, options = made.options[0], list(reversed(made.options))
    values = [option.noise_to_signal for option in options]
    with _page(path, 7.0, 3.4) as axes:
        axes.axvline(base.noise_to_signal, color=GREY, linestyle=":", linewidth=1.2)
        bars = axes.barh([o.name for o in options], values, color=[BLUE if o is base else SKY for o in options], height=0.62)
        for bar, option, value in zip(bars, options, values, strict=True):
            change = "" if option is base else f"  {100 * (value / base.noise_to_signal - 1):+.0f} %".replace("-", "−")
            axes.annotate(f"{value:.3g}{change}", (value, bar.get_y() + bar.get_height() / 2), xytext=(5, 0), va="center", **_LABEL)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1.28 * max(values))
        axes.set_xlabel("noise / signal (std per coordinate of the mean gradient, in clipping norms)")
        target = made.target
        subtitle = f"Noise that meets ε = {target.epsilon:g} (ε ×2: twice that) at δ = {target.delta:g}; less is better.\n"
        _titles(axes, "What doubling buys", f"{subtitle}Hides {target.unit}; {target.trust} trust.", lines=2)
    return path


BARS_MAX = 40
_LABEL_MAX = 28


def answer(path: Path, table: Answer, column: str, *, hides: str) -> Path:
    """One number of a table over its groups: bars with their intervals, in the order of the answer, the first ``BARS_MAX``."""
    shown = table.column(column)
    numbers = [float(v) if isinstance(v, int | float) else math.nan for v in shown.values[:BARS_MAX]]
    widths = [0.0 if w is None else w for w in (shown.half_widths or [0.0] * len(numbers))[:BARS_MAX]]
    groups = [c for c in table.columns if c.half_widths is None and c.name != column]
    labels = [_cut(" · ".join(_key(c.values[n]) for c in groups)) for n in range(len(numbers))]
    with _page(path, 7.0, max(2.2, 1.5 + 0.32 * len(numbers))) as axes:
        places = list(range(len(numbers)))
        error = {"ecolor": RED, "elinewidth": 1.6, "capsize": 3.5}
        axes.barh(places, numbers, xerr=widths, height=0.66, color=SKY, error_kw=error)
        axes.set_yticks(places, labels)
        axes.set_ylim(max(len(numbers), 1) - 0.4, -0.6)
        if not numbers:
            axes.annotate("no group is shown", (0, 0), ha="center", va="center", color=GREY)
            axes.set_xlim(-1, 1)
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}".replace("-", "−") if abs(value) < 1e7 else f"{value:.3g}")
        axes.set_xlabel(f"{_cut(column)} (lines: {100 * table.confidence:g} % intervals of the noise)")
        cut = f", the first {len(numbers)} of {len(table)}" if len(table) > len(numbers) else ""
        by = f" by {', '.join(_cut(c.name) for c in groups)}" if groups else ""
        price = "" if table.price is None else f"ε = {table.price[0]:g}, δ = {table.price[1]:g}. "
        _titles(axes, f"{_cut(column)}{by}{cut}", f"{price}Hides {hides}.")
    return path


def _key(value: object) -> str:
    return "NULL" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _cut(label: str) -> str:
    """A label on one short line; what a plot would take for mathematics is not."""
    line = " ".join("".join(c if c.isprintable() else " " for c in label).split()).replace("$", r"\$")
    return line if len(line) <= _LABEL_MAX else f"{line[: _LABEL_MAX - 1]}…"


def drawn(path: Path, samples: Sequence[int], *, scale: float, title: str) -> Path:
    """Whole-number noise as drawn beside the law it is priced by (discrete Gaussian of ``scale``)."""
    width = max(1, round(scale / 8))  # whole numbers in a bar, so that no bar holds more of them than another
    reach = width * math.ceil(4 * scale / width)
    edges = [x - 0.5 for x in range(-reach, reach + width + 1, width)]
    with _page(path, 6.4, 4.0) as axes:
        axes.hist(samples, bins=edges, density=True, color=SKY, label=f"{len(samples):,} draws")
        grid = [scale * (i / 50 - 4) for i in range(401)]
        density = [math.exp(-0.5 * (x / scale) ** 2) / (scale * math.sqrt(2 * math.pi)) for x in grid]
        axes.plot(grid, density, color=BLUE, label=f"its law: ∝ exp(−k²/(2·{scale:g}²))")
        axes.set(xlabel="noise", ylabel="probability")
        axes.set_title(title)
        axes.legend(loc="upper right")
    return path


_LABEL: dict[str, Any] = {
    "textcoords": "offset points",
    "fontsize": 9,
    "bbox": {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
}


def _titles(axes: Any, title: str, subtitle: str, *, lines: int = 1) -> None:  # noqa: ANN401 - matplotlib is untyped
    axes.set_title(title, pad=10 + 14 * lines)
    look = {"xytext": (0, 7), "textcoords": "offset points", "fontsize": 9, "color": GREY, "annotation_clip": False}
    axes.annotate(subtitle, (0.0, 1.0), xycoords="axes fraction", va="bottom", **look)


def _plain_ticks(axis: Any, *, few: bool = False) -> None:  # noqa: ANN401 - matplotlib is untyped
    """A few round numbers of every decade, written out; more of them where there are few decades, or ``few`` at any rate."""
    ticker = importlib.import_module("matplotlib.ticker")
    low, high = axis.get_view_interval()
    wide = high / low * (100 if few else 1)
    axis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if wide < 30 else (1, 2, 5) if wide < 3e4 else (1,)))
    axis.set_major_formatter(lambda value, _: f"{value:,g}" if 1e-4 <= value < 1e7 else f"{value:g}")
    axis.set_minor_formatter(ticker.NullFormatter())


@contextmanager
def _page(path: Path, width: float, height: float) -> Iterator[Any]:
    """Axes in the house style; the file is put in place whole when the block ends well, and left as it was when it does not."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise MissingExtraError("A plot", "plot") from None
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
        half = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            yield axes
            figure.savefig(half, format=path.suffix[1:].lower())
            half.replace(path)
        finally:
            pyplot.close(figure)
            half.unlink(missing_ok=True)
