"""Pages and plots of the ledger: every line fits, whatever the terminal, the alphabet or the names."""

import io
import sys
import unicodedata
import warnings
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.app import ledger_pages as pages
from dither.app import ledger_plots as plots
from dither.app import plots as house
from dither.core import events as ev
from dither.core.errors import DitherError, MissingExtraError
from dither.core.plans import Charge
from dither.core.units import PrivacyUnit
from dither.ledger import overview, prices, views
from dither.ledger.alerts import forecast
from dither.ledger.book import Ledger
from dither.ledger.terms import Blocks, Dataset, Every
from dither.ledger.views import Part

START = datetime(2026, 8, 1, tzinfo=UTC)
TEXTS = st.text(max_size=60)
WIDTHS = st.integers(8, 120)
LOOKS = [
    pages.Look(),
    pages.Look(width=40),
    pages.Look(width=40, blocks=False, alphabet="ascii"),
    pages.Look(width=63),
    pages.Look(width=120),
]


# ------------------------------------------------------------------------------------------------ cells, cuts, lines


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("", 0),
        ("ads", 3),
        ("広告", 4),
        ("é", 1),
        ("e\u0301", 1),
        ("नमस्ते", 4),
        ("❤", 1),
        ("❤\ufe0f", 2),
        ("🎉", 2),
        ("ｱ", 1),
        ("Ａ", 2),
        ("a\u200db", 2),
    ],
)
def test_cells_of_a_terminal(words, count):
    assert pages.cells(words) == count


@given(TEXTS, st.integers(2, 40))
def test_a_cut_text_is_as_wide_as_asked(words, width):
    shown = pages.fit(pages.plain(words), width)
    assert pages.cells(shown) in {width, width - 1} or unicodedata.combining(shown[-1])
    if pages.cells(pages.plain(words)) <= width:
        assert shown.rstrip(" ") == pages.plain(words).rstrip(" ")


@given(TEXTS)
def test_nothing_that_is_shown_steers_a_terminal(words):
    assert all(letter.isprintable() for letter in pages.plain(words))
    assert all(letter.isprintable() for letter in pages.Look(alphabet="ascii").say(words))


@given(TEXTS, WIDTHS, st.sampled_from(["", "  ", "  ! "]))
def test_wrapped_lines_fit_and_lose_nothing(words, width, first):
    lines = pages.wrapped(words, width, first=first)
    wide = any(pages.cells(letter) > 1 for letter in words)
    assert all(pages.cells(line) <= width + wide for line in lines)
    assert lines[0].startswith(first.rstrip())
    told = "".join("".join(lines)[len(first.rstrip()) :].split())
    assert told == "".join(pages.plain(words).split())


@given(st.floats(0, 1.5), st.floats(0, 1.5), st.integers(4, 60), st.booleans())
def test_a_bar_is_never_full_before_the_limit_is_nor_empty_after_a_charge(share, reserved, width, blocks):
    drawn = pages.bar(share, reserved, width, pages.Look(blocks=blocks))
    full, half, free = "█▒░" if blocks else "#+."
    assert len(drawn) == width
    assert drawn == "".join(sorted(drawn, key=(full + half + free).index))
    assert (free not in drawn) == (share + reserved >= 1)
    assert (full in drawn) == (share > 0)


def test_a_bar_grows_with_what_is_spent():
    filled = [pages.bar(i / 200, 0, 30, pages.Look()).count("█") for i in range(201)]
    assert filled == sorted(filled)


def test_a_painted_bar_is_the_same_bar():
    drawn = pages.bar(0.97, 0, 20, pages.Look(paint=True))
    assert "\x1b[31m" in drawn
    assert pages.bar(0.1, 0, 20, pages.Look(paint=True)).startswith("\x1b[32m")


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=5), st.sampled_from(LOOKS))
def test_a_grid_fits(rows, how):
    for line in pages.grid(rows, ("account", "what", "of limit"), how, right=[2]):
        assert pages.cells(line) <= how.width
        assert line.isprintable()


@given(st.lists(st.tuples(st.text(max_size=12), TEXTS), max_size=5), st.sampled_from(LOOKS))
def test_facts_fit(pairs, how):
    wide = any(pages.cells(letter) > 1 for _, value in pairs for letter in value)
    assert all(pages.cells(line) <= how.width + wide for line in pages.facts(pairs, how))


@pytest.mark.parametrize(
    ("alphabet", "columns", "expected"),
    [("utf-8", "100", (100, True)), ("cp437", "20", (40, True)), ("ascii", "500", (120, False)), ("latin-1", "80", (80, False))],
)
def test_the_look_is_the_one_of_the_terminal(monkeypatch, alphabet, columns, expected):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=alphabet))
    how = pages.look()
    assert (how.width, how.blocks) == expected
    assert not how.paint
    how.say("ε ≤ 広告").encode(alphabet)


# ------------------------------------------------------------------------------------------------ whole pages

NAMES = [
    "ads",
    "広告部門のとても長い名前の付いた部署",
    "résumé",
    "weekly reports of the northern sales region, all of it",
    "x" * 64,
    "नमस्ते",
]


def busy_book(clock, folder):
    ledger = Ledger.open(f"sqlite:///{folder}/dither.db", clock=lambda: clock[0], actor="asha")
    unit, rows = PrivacyUnit(dataset="events", key="user_id"), PrivacyUnit(dataset="visits")
    ledger.add_dataset(Dataset(name="events", unit=unit))
    ledger.add_dataset(Dataset(name="visits", unit=rows, blocks=Blocks(column="ts", every=Every.MONTH)))
    ledger.add_dataset(Dataset(name="unused", unit=PrivacyUnit(dataset="unused")))
    ledger.grant("acme", "events", epsilon=10, delta=1e-6)
    for name in NAMES:
        ledger.grant(("acme", name), "events", epsilon=3, delta=1e-6)
    ledger.grant(("acme", NAMES[1], NAMES[3], *"abcdefghijklm"), "events", epsilon=1, delta=1e-6, kind="zcdp")
    ledger.add_account(("acme", "ads", "one below"))
    ledger.grant("clinic", "visits", epsilon=1, per="block")
    for i in range(30):
        clock[0] += timedelta(days=2)
        given = {"unit": unit, "event": ev.Gaussian(30.0), "blocks": (), "account": ("acme", NAMES[i % len(NAMES)])}
        if i % 5 == 4:
            given = {"unit": rows, "event": ev.Laplace(5.0), "blocks": (f"2026-0{i // 5 + 1}",), "account": ("clinic",)}
        charge = Charge(id=f"c{i}", plan_digest="sha256:0", purpose=f"{NAMES[i % 4]} report", **given)
        ledger.reserve(charge)
        if i < 29:
            ledger.commit(charge.id)
    too_much = Charge(id="no", account=("acme",), unit=unit, event=ev.Gaussian(0.1), plan_digest="sha256:0", purpose="one big question")
    with pytest.raises(DitherError):
        ledger.reserve(too_much)
    return ledger


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    clock = [START]
    with busy_book(clock, tmp_path_factory.mktemp("book")) as ledger:
        yield ledger, clock[0]


def fits(lines, how):
    for line in lines:
        assert pages.cells(line) <= how.width, line
        assert line.isprintable(), line
        if how.alphabet == "ascii":
            assert line.isascii(), line
    return "\n".join(lines)


@pytest.mark.parametrize("how", LOOKS, ids=lambda how: f"{how.width}{how.alphabet}")
def test_the_overview_fits_and_says_what_matters(book, how):
    ledger, now = book
    told = fits(pages.overview_page(overview.overview(ledger, views.survey(ledger), now=now), how), how)
    said = " ".join(told.replace("│", " ").replace("|", " ").replace("!", " ").split())
    epsilon, delta = ("ε", "δ") if how.alphabet != "ascii" else ("eps", "delta")
    assert f"of 10, {delta} 1e-06" in said
    assert "hides one user_id of events (present or absent); central trust" in said
    assert "more counts at" in said
    assert "blocks used" in said
    assert "No limit yet" in said
    assert "Last refused" in said
    assert "would overspend limit L1" in said
    assert "assumed not to share answers" in said
    assert "1 charge open" in said
    assert f"{epsilon} " in said


@pytest.mark.parametrize("how", LOOKS, ids=lambda how: f"{how.width}{how.alphabet}")
def test_history_who_and_prices_fit(book, how):
    ledger, _ = book
    told = fits(pages.history_page(views.history(ledger), how), how)
    assert "refused (over_budget)" in " ".join(told.split()) or how.width < 100
    for _, _, parts in views.spending(ledger, views.survey(ledger)):
        fits(pages.who_page(parts, "Who spent what", how), how)
    prices_told = fits(pages.prices_page(prices.prices(ledger, "acme", "events"), how), how)
    assert "tight, fixed" in " ".join(prices_told.split())
    assert fits(pages.history_page((), how), how)


def test_several_people_have_a_column(book):
    ledger, _ = book
    rows = views.history(ledger)
    assert pages.history_page(rows, pages.Look())[-1] == "All by asha."
    other = [*rows, views.Row(entry=99, at=START, by="ben with a very long name", kind="account", account="acme", what="account opened")]
    page = pages.history_page(other, pages.Look())
    assert "by" in page[0].split()
    assert "ben with a ve…" in page[-1]


def test_a_small_book_as_it_looks(tmp_path):
    clock = [START]
    with Ledger.open(f"sqlite:///{tmp_path}/dither.db", clock=lambda: clock[0], actor="asha") as ledger:
        unit = PrivacyUnit(dataset="events", key="user_id")
        ledger.add_dataset(Dataset(name="events", unit=unit))
        ledger.grant("acme", "events", epsilon=4)
        ledger.grant("acme/ads", "events", epsilon=2)
        ledger.reserve(Charge(id="a", account=("acme", "ads"), unit=unit, event=ev.PureDp(0.5), plan_digest="d", purpose="p"))
        made = overview.overview(ledger, views.survey(ledger), now=START)
    page = pages.overview_page(made, pages.Look(width=100))
    start = page.index("")
    assert page[start : start + 8] == [
        "",
        "events: hides one user_id of events (present or absent); central trust",
        "  █ spent  ▒ reserved  ░ free",
        "",
        "  acme    ▒▒▒░░░░░░░░░░░░░░░░░░░░░  12 %  ε 0.5 of 4, δ 0",
        "  │ L1 pure: about 11 more counts at ±10",
        "  └─ ads  ▒▒▒▒▒▒░░░░░░░░░░░░░░░░░░  25 %  ε 0.5 of 2, δ 0",
        "       L2 pure: about 10 more counts at ±20",
    ]


def test_an_empty_book_says_what_to_do(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/dither.db") as ledger:
        made = overview.overview(ledger, views.survey(ledger), now=START)
    assert "dither.yaml" in fits(pages.overview_page(made, pages.Look(width=120)), pages.Look(width=120))


# ------------------------------------------------------------------------------------------------ plots


def line(name, rate, count=60, ahead=True):
    points = [(START + timedelta(days=1.5 * i), min(1.0, rate * (i + 1))) for i in range(count)]
    found = forecast(points, now=points[-1][0]) if ahead and points else None
    return plots.Line(name=name, words="ε = 10 at δ = 1e-06 (rdp)", points=points, starts=START, forecast=found)


@pytest.fixture
def as_text(monkeypatch):
    """Letters stay letters in an SVG, so that they can be read."""
    monkeypatch.setitem(house._STYLE, "svg.fonttype", "none")


def drawn(path):
    assert path.exists()
    assert list(path.parent.iterdir()) == [path], "nothing is left beside it"
    return path.read_text() if path.suffix == ".svg" else ""


HIDES = "one user_id of events (present or absent); central trust"


def test_burn_down_names_limits_forecasts_and_refusals(tmp_path, as_text):
    lines = [line("acme", 0.007), line("acme/ads", 0.0155), *[line(f"acme/{i}", 0.0001 * i, ahead=False) for i in range(9)]]
    path = plots.burn_down(tmp_path / "p.svg", lines, now=START + timedelta(days=90), refusals=[START + timedelta(days=80)], hides=HIDES)
    told = drawn(path)
    for said in (
        "acme/ads: 93 %",
        "ε = 10 at δ = 1e-06 (rdp)",
        "refused (1)",
        "the 6 most used; 5 more",
        "share of the limit used (%)",
        HIDES,
    ):
        assert said in told


@pytest.mark.parametrize(
    "lines",
    [[], [line("unspent", 0.1, count=0)], [line("one", 0.1, count=1, ahead=False)], [line("all of it", 1.0)], [line("over", 0.5, count=3)]],
    ids=["none", "unspent", "one", "full", "over"],
)
def test_a_plot_of_little_is_a_plot(tmp_path, lines):
    now = START if not lines else START + timedelta(days=100)
    assert drawn(plots.burn_down(tmp_path / "p.png", lines, now=now, refusals=[], hides=HIDES)) == ""


HOSTILE = ["_hidden", "$x^2$ costs $5", "広告\u202e", "a\nb", "\\frac", "n" * 200, "{}%s", "\U0001f389"]


def test_names_of_any_kind_are_drawn_as_they_are(tmp_path, as_text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lines = [line(name, 0.01 + 0.0001 * i) for i, name in enumerate(HOSTILE)]
        told = drawn(plots.burn_down(tmp_path / "p.svg", lines, now=START + timedelta(days=90), refusals=[], hides=HOSTILE[2]))
        bars = [plots.Bar(account=name, purpose=other, part=0.01, charges=1) for name in HOSTILE for other in HOSTILE]
        (tmp_path / "p.svg").unlink()
        told += drawn(plots.who_spent(tmp_path / "p.svg", bars, words="by ε", hides=HIDES))
    assert "$x^2$ costs $5" in told
    assert "_hidden" in told
    assert "other purposes" in told


def test_letters_without_a_font_are_told_by_their_codes(monkeypatch):
    monkeypatch.setattr(plots, "_letters", lambda: frozenset(range(128)))
    assert plots._drawable("acme/広") == "acme/\\u5e83"
    assert plots._drawable("\U0001f389") == "\\U0001f389"


def test_many_accounts_and_purposes_are_gathered(tmp_path, as_text):
    bars = [plots.Bar(account=f"acme/{i:02}", purpose=f"purpose {i % 9}", part=1 / 30, charges=1) for i in range(30)]
    told = drawn(plots.who_spent(tmp_path / "p.svg", bars, words="by ε under L1", hides=HIDES))
    assert "16 others" in told
    assert "other purposes" in told
    assert "by ε under L1" in told


def test_parts_of_a_book_can_be_drawn(tmp_path, book):
    ledger, _ = book
    for limit, _, parts in views.spending(ledger, views.survey(ledger)):
        assert all(isinstance(part, Part) for part in parts)
        bars = [plots.Bar(account=p.account, purpose=p.purpose, part=p.part, charges=p.charges) for p in parts]
        plots.who_spent(tmp_path / f"{limit.id}.pdf", bars, words="by ε", hides=HIDES)
        assert (tmp_path / f"{limit.id}.pdf").stat().st_size > 5_000


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    def gone(name):
        raise ImportError(name)

    monkeypatch.setattr(plots.importlib, "import_module", gone)
    with pytest.raises(MissingExtraError, match="plot"):
        plots.burn_down(tmp_path / "p.png", [], now=START, refusals=[], hides=HIDES)
    assert list(tmp_path.iterdir()) == []
