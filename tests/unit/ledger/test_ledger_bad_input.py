"""Bad input to the book: one clear error, and nothing written."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dither import events as ev
from dither.core.errors import (
    ConflictError,
    DecodeError,
    DitherError,
    InputError,
    LedgerError,
    NotPriceableError,
    OverBudgetError,
    RefusedError,
    UnknownNameError,
)
from dither.core.events import from_dict
from dither.core.plans import Charge, State
from dither.core.units import PrivacyUnit
from dither.ledger import entries
from dither.ledger.blocks import Blocks, Every
from dither.ledger.book import Ledger
from dither.ledger.terms import Dataset

UNIT = PrivacyUnit(dataset="events")
MONTHLY = PrivacyUnit(dataset="monthly")
SQL = "x'); DROP TABLE entries; --"
DEEP = "[" * 10_000 + "]" * 10_000
NUL, LONG, HALF = "a\0b", "a" * 1_000_000, "a\ud800"


def charge(**given):
    usual = {"id": "c", "account": ("acme",), "unit": UNIT, "event": ev.PureDp(0.1), "plan_digest": "d", "purpose": "report"}
    return Charge(**{**usual, **given})


def opened(url, **more):
    ledger = Ledger.open(url, **more)
    ledger.add_dataset(Dataset(name="events", unit=UNIT))
    ledger.add_dataset(Dataset(name="monthly", unit=MONTHLY, blocks=Blocks(column="ts", every=Every.MONTH, start="2026-01")))
    for account in ("acme", "acme/ads", "acme/sales", "bare"):
        ledger.add_account(account)
    ledger.grant("acme", "events", epsilon=10)
    ledger.grant("acme/ads", "events", epsilon=2)
    ledger.grant("acme/sales", "events", epsilon=2)
    ledger.grant("acme", "monthly", epsilon=1, per="block")
    ledger.reserve(charge(id="held"))
    ledger.reserve(charge(id="done"))
    ledger.commit("done", release='{"value":1}')
    ledger.reserve(charge(id="gone"))
    ledger.void("gone", "no row was read")
    return ledger


@pytest.fixture(scope="module")
def book():
    with opened("sqlite://") as ledger:
        yield ledger


NUMBERS = {
    "zero": 0,
    "negative": -1,
    "negative zero": -0.0,
    "nan": math.nan,
    "inf": math.inf,
    "minus inf": -math.inf,
    "subnormal": 5e-324,
    "large subnormal": 2.2e-308,
    "over": 1e308,
    "just over": math.nextafter(1000.0, math.inf),
    "huge": 10**400,
    "long fraction": Fraction(1, 3**5000),
    "bool": True,
    "numpy bool": np.bool_(True),
    "numpy nan": np.float64("nan"),
    "numpy float32 inf": np.float32("inf"),
    "numpy array": np.array([1.0]),
    "numpy scalar array": np.array(1.0),
    "numpy duration": np.timedelta64(1, "s"),
    "text": "1",
    "bytes": b"1",
    "none": None,
    "complex": 1j,
    "decimal": Decimal(1),
    "list": [1.0],
}
DELTAS = {name: value for name, value in NUMBERS.items() if name not in {"zero", "negative zero"}} | {"one": 1, "above": 1.5}
PLACES = {
    "empty": "",
    "slash": "/",
    "slash first": "/acme",
    "slash last": "acme/",
    "doubled": "acme//ads",
    "dot": "acme/.",
    "dots": "acme/../other",
    "space first": " acme",
    "space last": "acme ",
    "newline": "acme\n",
    "nul": NUL,
    "half": HALF,
    "long": LONG,
    "zero width": "ac\u200bme",
    "right to left": "acme\u202eads",
    "filler": "acme\u3164",
    "no-break": "ac\u00a0me",
    "fraction slash": "acme⁄ads",
    "fullwidth slash": "acme／ads",
    "slash in a part": ("acme/ads",),
    "decomposed": "caf\u0065\u0301",
    "look-alike Cyrillic": "аcme",
    "look-alike capital": "ACME",
    "look-alike digit": "acrne",
    "look-alike child": "acme/аds",
    "look-alike child of capitals": "acme/ADS",
    "look-alike parent": "Acme/new",
    "seventeen parts": "/".join("abcdefghijklmnopq"),
    "no parts": (),
    "number": 7,
    "none": None,
    "bytes": b"acme",
    "list of numbers": [1, 2],
}
NAMES = {"empty": "", "nul": NUL, "half": HALF, "long": LONG, "newline": "a\nb", "none": None, "number": 7, "bytes": b"x", "list": ["x"]}

CASES = {
    **{f"epsilon: {n}": (lambda b, v=v: b.grant("acme/ads", "monthly", epsilon=v), InputError) for n, v in NUMBERS.items()},
    **{f"delta: {n}": (lambda b, v=v: b.grant("acme/ads", "monthly", epsilon=1, delta=v), InputError) for n, v in DELTAS.items()},
    **{f"share: {n}": (lambda b, v=v: b.split("acme", "events", {"a": v}), InputError) for n, v in NUMBERS.items()},
    **{f"moved: {n}": (lambda b, v=v: b.move("acme/ads", "acme/sales", "events", epsilon=v), DitherError) for n, v in NUMBERS.items()},
    **{
        f"alert: {n}": (lambda b, v=v: b.grant("acme/ads", "monthly", epsilon=1, alert_at=(v,)), InputError)
        for n, v in NUMBERS.items()
        if n != "bool"
    },
    "alert above 1": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, alert_at=(1.5,)), InputError),
    "alerts as a number": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, alert_at=0.5), InputError),
    "pure with delta": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, delta=1e-6, kind="pure"), InputError),
    "rdp without delta": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, kind="rdp"), InputError),
    "rdp with too little": (lambda b: b.grant("acme/ads", "monthly", epsilon=1e-9, delta=1e-9, kind="rdp"), InputError),
    "side of all": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, delta=1e-6, side_delta=1e-6), InputError),
    "kind": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, kind=SQL), UnknownNameError),
    "per": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, per="row"), UnknownNameError),
    "orders": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, delta=1e-6, orders=(0.5,)), InputError),
    "orders nan": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, delta=1e-6, orders=(math.nan,)), InputError),
    "naive start": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, starts=datetime(2026, 1, 1)), InputError),  # noqa: DTZ001
    "text start": (lambda b: b.grant("acme/ads", "monthly", epsilon=1, starts="2026-01-01"), InputError),
    "ends first": (
        lambda b: b.grant("acme/ads", "monthly", epsilon=1, starts=datetime(2027, 1, 1, tzinfo=UTC), ends=datetime(2026, 1, 1, tzinfo=UTC)),
        InputError,
    ),
    "grant: no dataset": (lambda b: b.grant("acme", "nothing", epsilon=1), UnknownNameError),
    **{f"account: {n}": (lambda b, v=v: b.add_account(v), InputError) for n, v in PLACES.items()},
    **{f"grant to: {n}": (lambda b, v=v: b.grant(v, "monthly", epsilon=1), InputError) for n, v in PLACES.items()},
    **{f"balance of: {n}": (lambda b, v=v: b.balance(v, "events"), InputError) for n, v in PLACES.items()},
    **{f"dataset: {n}": (lambda b, v=v: b.grant("acme", v, epsilon=1), InputError) for n, v in NAMES.items()},
    **{f"commit: {n}": (lambda b, v=v: b.commit(v), InputError) for n, v in NAMES.items()},
    **{f"void: {n}": (lambda b, v=v: b.void(v, "reason"), InputError) for n, v in NAMES.items()},
    **{f"reason: {n}": (lambda b, v=v: b.void("held", v), InputError) for n, v in NAMES.items()},
    **{f"receipt: {n}": (lambda b, v=v: b.receipt(v), InputError) for n, v in NAMES.items()},
    **{f"state: {n}": (lambda b, v=v: b.state(v), InputError) for n, v in NAMES.items()},
    **{f"stored: {n}": (lambda b, v=v: b.stored(v), InputError) for n, v in NAMES.items()},
    **{f"sealed: {n}": (lambda b, v=v: b.sealed(v), InputError) for n, v in NAMES.items()},
    **{f"id: {n}": (lambda b, v=v: b.reserve(charge(id=v)), InputError) for n, v in NAMES.items()},
    **{f"purpose: {n}": (lambda b, v=v: b.reserve(charge(purpose=v)), InputError) for n, v in NAMES.items()},
    **{f"plan digest: {n}": (lambda b, v=v: b.reserve(charge(plan_digest=v)), InputError) for n, v in NAMES.items()},
    **{f"part: {n}": (lambda b, v=v: b.reserve(charge(account=("acme", v))), InputError) for n, v in NAMES.items()},
    "commit: unknown": (lambda b: b.commit("nothing"), UnknownNameError),
    "commit: voided": (lambda b: b.commit("gone"), ConflictError),
    "void: unknown": (lambda b: b.void("nothing", "reason"), UnknownNameError),
    "void: committed": (lambda b: b.void("done", "reason"), ConflictError),
    "receipt: unknown": (lambda b: b.receipt("nothing"), UnknownNameError),
    "reserve: a dict": (lambda b: b.reserve({"id": "c"}), InputError),
    "reserve: none": (lambda b: b.reserve(None), InputError),
    "reserve: other event under an id": (lambda b: b.reserve(charge(id="held", event=ev.PureDp(0.2))), ConflictError),
    "reserve: other purpose under an id": (lambda b: b.reserve(charge(id="done", purpose="another")), ConflictError),
    "reserve: unknown account": (lambda b: b.reserve(charge(account=("nobody",))), UnknownNameError),
    "reserve: beginning of a name": (lambda b: b.reserve(charge(account=("acme", "ad"))), UnknownNameError),
    "reserve: a name and more": (lambda b: b.reserve(charge(account=("acme", "adsx"))), UnknownNameError),
    "reserve: name in one part": (lambda b: b.reserve(charge(account=("acme/ads",))), InputError),
    "reserve: look-alike": (lambda b: b.reserve(charge(account=("acme", "аds"))), InputError),
    "reserve: unknown dataset": (lambda b: b.reserve(charge(unit=PrivacyUnit(dataset="nothing"))), UnknownNameError),
    "reserve: another key": (lambda b: b.reserve(charge(unit=PrivacyUnit(dataset="events", key="user"))), InputError),
    "reserve: other neighbours": (lambda b: b.reserve(charge(unit=PrivacyUnit(dataset="events", neighbors="replace"))), InputError),
    "reserve: blocks of none": (lambda b: b.reserve(charge(blocks=("2026-01",))), InputError),
    "reserve: no blocks": (lambda b: b.reserve(charge(unit=MONTHLY)), InputError),
    "reserve: a block that is none": (lambda b: b.reserve(charge(unit=MONTHLY, blocks=("2026-13",))), InputError),
    "reserve: SQL as a block": (lambda b: b.reserve(charge(unit=MONTHLY, blocks=(SQL,))), InputError),
    "reserve: a block before the first": (lambda b: b.reserve(charge(unit=MONTHLY, blocks=("2025-12",))), InputError),
    "reserve: a block twice": (lambda b: b.reserve(charge(unit=MONTHLY, blocks=("2026-01", "2026-01"))), InputError),
    "reserve: one bad block of three": (lambda b: b.reserve(charge(unit=MONTHLY, blocks=("2026-01", "2026-02", "x"))), InputError),
    "commit: event as JSON": (lambda b: b.commit("held", event={"event": "PureDp", "epsilon": 0.01}), InputError),
    "commit: more than was reserved": (lambda b: b.commit("held", event=ev.PureDp(0.2)), InputError),
    "commit: another kind of event": (lambda b: b.commit("held", event=ev.Laplace(100.0)), InputError),
    "commit: no privacy": (lambda b: b.commit("held", event=ev.NonPrivate()), DitherError),
    "release: not JSON": (lambda b: b.commit("held", release="{"), InputError),
    "release: not canonical": (lambda b: b.commit("held", release='{ "value": 1}'), InputError),
    "release: NaN": (lambda b: b.commit("held", release='{"value":NaN}'), InputError),
    "release: a map": (lambda b: b.commit("held", release={"value": 1}), InputError),
    "release: bytes": (lambda b: b.commit("held", release=b'{"value":1}'), InputError),
    "release: deep": (lambda b: b.commit("held", release=DEEP), InputError),
    "release: half a letter": (lambda b: b.commit("held", release='"\ud800"'), InputError),
    "release: NUL": (lambda b: b.commit("held", release='"\0"'), InputError),
    "split: above 1": (lambda b: b.split("acme", "events", {"a": 0.6, "b": 0.6}), DitherError),
    "split: just above 1": (lambda b: b.split("acme", "events", {"a": 0.6, "b": Fraction(2, 5) + Fraction(1, 10**30)}), DitherError),
    "split: none": (lambda b: b.split("acme", "events", {}), InputError),
    "split: a list": (lambda b: b.split("acme", "events", [0.5]), InputError),
    "split: names with a slash": (lambda b: b.split("acme", "events", {"a/b": 0.5}), InputError),
    "split: look-alikes among themselves": (lambda b: b.split("acme", "events", {"team": 0.1, "tеam": 0.1}), InputError),
    "move: to itself": (lambda b: b.move("acme/ads", "acme/ads", "events", epsilon=1), DitherError),
    "move: to its parent": (lambda b: b.move("acme/ads", "acme", "events", epsilon=1), DitherError),
    "move: between roots": (lambda b: b.move("acme", "bare", "events", epsilon=1), DitherError),
    "move: where there is no limit": (lambda b: b.move("acme/ads", "acme/sales", "monthly", epsilon=1), DitherError),
    "move: unknown": (lambda b: b.move("acme/ads", "acme/nobody", "events", epsilon=1), DitherError),
    "dataset again: other unit": (
        lambda b: b.add_dataset(Dataset(name="events", unit=PrivacyUnit(dataset="events", key="user"))),
        DitherError,
    ),
    "dataset: a dict": (lambda b: b.add_dataset({"name": "events"}), InputError),
    "lines: negative": (lambda b: list(b.lines(-1)), InputError),
    "lines: text": (lambda b: list(b.lines("0")), InputError),
}


def checked(book, call, expected):
    before = book.tail()
    with pytest.raises(expected) as caught:
        call(book)
    error = caught.value
    assert len(str(error)) < 1_000
    new = [json.loads(line)["kind"] for line in book.lines(before[0] + 1)]
    if isinstance(error, InputError):
        assert (new, book.tail()) == ([], before), error
    else:
        assert isinstance(error, RefusedError | OverBudgetError), error
        assert new == ["refusal"], error
    assert book.state("held") is State.RESERVED


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_and_nothing_is_written(book, name):
    checked(book, *CASES[name])


@pytest.mark.postgres
def test_the_same_in_postgresql(postgres_url, tmp_path):
    with opened(postgres_url, key=tmp_path / "book.key") as book:
        for call, expected in CASES.values():
            checked(book, call, expected)
        assert book.commit("held").state is State.COMMITTED


# ------------------------------------------------------------------------------------------------ names


def test_a_name_is_compared_part_by_part(book_url):
    with Ledger.open(book_url) as book:
        book.add_dataset(Dataset(name="events", unit=UNIT))
        for account in ("acme", "acme/ad", "acme/ads", "acme/ads x", "acmex", "acmex/ads"):
            book.add_account(account)
            book.grant(account, "events", epsilon=10)
        for i, account in enumerate([("acme", "ad"), ("acme", "ads"), ("acme", "ads x"), ("acmex",), ("acmex", "ads")]):
            book.reserve(charge(id=f"c{i}", account=account, event=ev.PureDp(2.0**i / 4)))
        spent = {"/".join(s.limit.account): s.spent.epsilon for s in book.standings()}
        assert spent == {"acme": 1.75, "acme/ad": 0.25, "acme/ads": 0.5, "acme/ads x": 1, "acmex": 6, "acmex/ads": 4}
        assert [s.limit.account for s in book.standings(account="acme/ad")] == [("acme", "ad")]


def test_sql_in_every_name_is_a_name(book_url):
    words = [SQL, "a'b", 'a"b', "a;b", "a%b", "a%sb", "a?b", ":a", "a\\b", "a--b", "{a}", "$1", "NULL"]
    unit = PrivacyUnit(dataset=SQL)
    with Ledger.open(book_url, actor=SQL) as book:
        book.add_dataset(Dataset(name=SQL, unit=unit, blocks=Blocks(column=SQL, partitions=tuple(words))))
        book.add_account("top")
        book.grant("top", SQL, epsilon=100)
        for i, word in enumerate(words):
            book.add_account(("top", word))
            book.grant(("top", word), SQL, epsilon=10)
            made = charge(id=word, account=("top", word), unit=unit, purpose=word, plan_digest=word, blocks=(words[i - 1], word))
            assert book.reserve(made).charge_id == word
            release = json.dumps({"value": word}, separators=(",", ":"))
            assert book.commit(word, release=release).state is State.COMMITTED
            assert book.stored(word) == release
            with pytest.raises(UnknownNameError):
                book.void(word + word, word)
        assert {a[-1] for a in book.terms().accounts} == {"top", *words}
        bodies = [entries.parse(line) for line in book.lines()]
        assert {b["charge"]["id"] for b in bodies if b["kind"] == "reserve"} == set(words)
        assert {b["by"] for b in bodies} == {SQL}
    with Ledger.open(book_url) as book:
        assert all(book.state(word) is State.COMMITTED for word in words)


@pytest.mark.parametrize("word", ["é", "名前", "🂡", "ß", "a" * 64])
def test_any_script_is_a_name(book, word):
    assert book.add_account(("acme", word)) == ("acme", word)
    assert book.add_account(f"acme/{word}") == ("acme", word)


@pytest.mark.parametrize("number", [np.float64(0.25), np.float32(0.25), np.int64(1), Fraction(1, 4), 1, 0.1])
def test_numbers_of_any_library_mean_what_they_say(number):
    with opened("sqlite://") as book:
        found = book.grant("acme/ads", "monthly", epsilon=number, per="block").filter.epsilon
        assert found == (Fraction("0.1") if number == 0.1 else Fraction(number.item() if isinstance(number, np.generic) else number))


# ------------------------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        f'{{"n":0,"prev":"{entries.GENESIS}","at":"","by":"","kind":"void","charge":{DEEP},"reason":""}}',
        "",
        "null",
        "[]",
        "1e999",
        "NaN",
        '{"kind":"reserve"}',
        '{"kind":["reserve"]}',
        '{"a":1,"a":2}',
        "\ufeff{}",
        "{}\n{}",
        '"\\ud800"',
    ],
)
def test_a_line_that_is_none_is_a_decode_error(text):
    with pytest.raises(DecodeError):
        entries.parse(text)


def nested(depth):
    made = {"event": "PureDp", "epsilon": 0.1}
    for _ in range(depth):
        made = {"event": "Repeat", "of": made, "count": 1}
    return made


FOREIGN = [
    {"event": "PureDp", "epsilon": 0.1, "admin": True},
    {"event": "PureDp", "epsilon": 0.1, "free": 1},
    {"event": "PureDp", "epsilon": 0.1, "__class__": "x"},
    {"event": "PureDp"},
    {"event": "os.system", "epsilon": 0.1},
    {"event": "PureDp", "epsilon": True},
    {"event": "PureDp", "epsilon": "0.1"},
    {"event": "PureDp", "epsilon": -0.1},
    {"event": "Repeat", "of": {"event": "PureDp", "epsilon": 0.1}, "count": 0},
    {"event": "Repeat", "of": {"event": "PureDp", "epsilon": 0.1}, "count": 1.5},
    {"event": "Sequence", "of": []},
    {"event": "Sequence", "of": {"event": "PureDp", "epsilon": 0.1}},
    nested(100),
    nested(10_000),
    [],
    None,
    "PureDp",
]


@pytest.mark.parametrize("event", FOREIGN, ids=range(len(FOREIGN)))
def test_foreign_events_are_refused_wherever_they_come_from(book, event):
    before = book.tail()
    with pytest.raises(InputError):
        from_dict(event)
    made = {**entries.charge_to_dict(charge(id="foreign")), "event": event}
    with pytest.raises(InputError):
        entries.charge_from_dict(made)
    with pytest.raises(InputError):
        charge(id="foreign", event=event)
    assert book.tail() == before


@pytest.mark.parametrize("more", [{"admin": True}, {"events": []}, {"Id": "c"}])
def test_foreign_keys_of_charges_are_refused(more):
    with pytest.raises(DecodeError):
        entries.charge_from_dict({**entries.charge_to_dict(charge()), **more})


@pytest.mark.parametrize("event", [ev.NonPrivate(), ev.Gaussian(1.0), ev.ApproxDp(0.1, 1e-9), ev.Zcdp(0.1)])
def test_what_has_no_price_under_a_limit_is_refused_and_told(book, event):
    before = book.tail()
    with pytest.raises(NotPriceableError):
        book.reserve(charge(id=f"no {type(event).__name__}", event=event))
    told = [entries.parse(line) for line in book.lines(before[0] + 1)]
    assert [(b["kind"], b["code"]) for b in told] == [("refusal", "not_priceable")]
    assert book.state(f"no {type(event).__name__}") is None


# ------------------------------------------------------------------------------------------------ places


@pytest.mark.parametrize(
    "url",
    ["", None, 7, b"sqlite://", "mysql://host/db", "book.db", "sqlite", LONG, "sqlite:///a\0b", "sqlite:///book.db?mode=ro", "://"],
    ids=lambda u: repr(u)[:30],
)
def test_a_url_that_is_none_is_refused(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        Ledger.open(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["missing/book.db", ".", "text.db", "half.db"])
def test_a_place_that_cannot_hold_a_book_is_a_ledger_error(place, tmp_path):
    (tmp_path / "text.db").write_text("this is no database at all " * 400)
    (tmp_path / "half.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(LedgerError):
        Ledger.open(f"sqlite:///{tmp_path}/{place}")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.suffix == ".db"} == before


def test_no_password_is_told(tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError) as caught:
        Ledger.open(f"postgresql+psycopg://someone:hunter2@/nothing?host={tmp_path}")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "hunter2" not in repr(caught.value.__traceback__)


def test_a_book_of_something_else_is_refused(tmp_path):
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
    connection.close()
    with pytest.raises(LedgerError):
        Ledger.open(f"sqlite:///{tmp_path}/other.db")
