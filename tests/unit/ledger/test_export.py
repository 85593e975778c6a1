"""What a ledger exports is what it wrote; the book passes verification, the tables hold every charge, the records fit their schema."""

import csv
import json
import os
import random
import stat
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

import dither.ledger
from dither.core import events as ev
from dither.core.errors import DitherError, InputError, LedgerError, MissingExtraError, OverBudgetError, RefusedError, UnknownNameError
from dither.core.plans import Charge
from dither.core.units import Neighbors, PrivacyUnit, Trust
from dither.ledger import seal
from dither.ledger.book import Ledger
from dither.ledger.export import COLUMNS, cell, export, lines, records, rows
from dither.ledger.terms import Blocks, Dataset, Every
from dither.ledger.verify import verify, verify_file

EVENTS = PrivacyUnit(dataset="events", key="user_id")
ROWS = PrivacyUnit(dataset="rows", neighbors=Neighbors.REPLACE)
STEP = ev.Subsample(ev.Gaussian(8.0), ev.Poisson(0.01))


class Clock:
    """A minute passes at every look."""

    def __init__(self):
        self.now = datetime(2026, 11, 19, 6, tzinfo=UTC)

    def __call__(self):
        self.now += timedelta(minutes=1)
        return self.now


def charge(name, account, unit, event, blocks=(), purpose="weekly report"):
    return Charge(id=name, account=account, unit=unit, event=event, plan_digest="sha256:00", purpose=purpose, blocks=blocks)


def used(ledger):
    """Some of everything."""
    ledger.add_dataset(Dataset(name="events", unit=EVENTS, trust=Trust.DISTRIBUTED))
    ledger.add_dataset(Dataset(name="rows", unit=ROWS, blocks=Blocks(column="ts", every=Every.MONTH)))
    ledger.grant("acme", "events", epsilon=2, delta=1e-6)
    ledger.grant("acme/training", "events", epsilon=1, delta=1e-6)
    ledger.grant("acme/queries", "events", epsilon=1, delta=1e-6, alert_at=(0.01, 0.02, 0.9))
    ledger.grant("acme", "rows", epsilon=1, per="block")
    ledger.grant("other", "rows", epsilon=3, per="dataset", kind="approx", delta=1e-7)
    ledger.reserve(charge("c1", ("acme", "training"), EVENTS, ev.Repeat(STEP, 500)))
    ledger.reserve(charge("c2", ("acme", "queries"), EVENTS, ev.PureDp(0.1), purpose="=HYPERLINK(1)"))
    ledger.commit("c2", release='{"value":7}')
    ledger.reserve(charge("c3", ("acme",), ROWS, ev.Laplace(2.0), ("2026-01", "2026-02")))
    ledger.void("c3", "the source did not open")
    ledger.commit("c1", event=ev.Repeat(STEP, 200))
    ledger.move("acme/training", "acme/queries", "events", epsilon=0.25, delta=1e-7)
    with pytest.raises(OverBudgetError):
        ledger.reserve(charge("c4", ("acme",), ROWS, ev.PureDp(1.1), ("2026-02",)))
    with pytest.raises(RefusedError):
        ledger.grant("acme", "rows", epsilon=5, per="block")
    ledger.reserve(charge("c5", ("other",), ROWS, ev.ApproxDp(0.5, 1e-9), ("2026-02",)))
    ledger.reserve_up_to(charge("c6", ("acme",), ROWS, ev.Repeat(ev.PureDp(0.15), 100), ("2026-03",)))
    ledger.commit("c6")
    return ledger


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/book.db", clock=Clock(), anchor=tmp_path / "anchors", actor="ann") as opened:
        yield used(opened)


# ------------------------------------------------------------------------------------------------ the book


def test_what_the_ledger_wrote_passes(ledger, tmp_path):
    path = tmp_path / "book.jsonl"
    count = export(ledger, path)
    sealed = [ledger.sealed(name) for name in ("c1", "c2", "c3", "c5", "c6")]
    report = verify_file(path, public_key=ledger.public_key, anchors=tmp_path / "anchors", receipts=sealed)
    assert report.findings == ()
    assert report.ok
    assert report.signed
    assert (report.entries, report.charges, report.open_charges) == (count, 5, 1)
    assert report.head == ledger.tail()[1]
    assert report.book == ledger.book
    worst = {}
    for standing in ledger.standings():
        worst[standing.limit.id] = max(worst.get(standing.limit.id, 0.0), standing.share)
    assert {s.limit: s.share for s in report.limits} == pytest.approx(worst, rel=1e-12)
    assert "alert" in {json.loads(line)["kind"] for line in ledger.lines()}


def test_a_long_history_passes(tmp_path):
    with Ledger.open("sqlite://", clock=Clock()) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=EVENTS))
        ledger.grant("acme", "events", epsilon=50, delta=1e-6)
        ledger.grant("acme/ads", "events", epsilon=20, kind="pure")
        for i in range(700):
            ledger.reserve(charge(f"c{i}", ("acme", "ads"), EVENTS, ev.PureDp(0.01 + i % 7 / 1000)))
            if i % 5:
                ledger.commit(f"c{i}")
            elif i % 2:
                ledger.void(f"c{i}", "not started")
        report = verify(lines(ledger), public_key=ledger.public_key)
    assert report.findings == ()
    assert report.checkpoints == 1


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_done_with_a_ledger_the_replay_agrees(seed):
    """Two implementations of the rules, one answer: no finding, and the same share of every limit."""
    draw = random.Random(seed)
    units = [EVENTS, ROWS, PrivacyUnit(dataset="keys", key="id", neighbors=draw.choice(list(Neighbors)))]
    with Ledger.open("sqlite://", clock=Clock()) as ledger:
        ledger.add_dataset(Dataset(name="events", unit=EVENTS))
        ledger.add_dataset(Dataset(name="rows", unit=ROWS, blocks=Blocks(column="ts", every=Every.MONTH)))
        parts = Blocks(column="region", partitions=("a", "b", "c"))
        ledger.add_dataset(Dataset(name="keys", unit=units[2], blocks=parts, disjoint=draw.random() < 0.5))
        for unit in units:
            for kind in draw.sample([None, "pure", "zcdp", "advanced"], 2):
                delta = 0 if kind == "pure" else 1e-5
                per = draw.choice(["block", "dataset"]) if unit is not EVENTS else "dataset"
                with suppress(DitherError):
                    ledger.grant("acme", unit.dataset, epsilon=draw.choice([1, 3]), delta=delta, kind=kind, per=per)
            with suppress(DitherError):
                ledger.split("acme", unit.dataset, {"x": 0.5, "y": 0.3})
        for step in range(150):
            with suppress(DitherError):
                _do(ledger, draw, step, units)
        report = verify(lines(ledger), public_key=ledger.public_key, second_opinion=seed == 0)
        worst = {}
        for standing in ledger.standings():
            worst[standing.limit.id] = max(worst.get(standing.limit.id, 0.0), standing.share)
    assert report.findings == ()
    assert report.charges > 10
    assert {s.limit: s.share for s in report.limits} == pytest.approx(worst, rel=1e-12)


def _do(ledger, draw, step, units):
    """One thing at random."""
    unit, account = draw.choice(units), draw.choice([("acme",), ("acme", "x"), ("acme", "y")])
    what = draw.random()
    if what < 0.1:
        amount = draw.choice([Fraction(1, 20), 0.01])
        ledger.move("acme/x", "acme/y", unit.dataset, epsilon=amount, delta=draw.choice([0, 1e-7]))
    elif what < 0.2:
        ledger.grant("acme/x", unit.dataset, epsilon=draw.choice([0.5, 5]), alert_at=(0.3,))
    elif what < 0.25 and unit.dataset == "keys":
        old = ledger.terms().datasets["keys"]
        ledger.add_dataset(replace(old, blocks=Blocks(column="region", partitions=(*old.blocks.partitions, f"more {step}"))))
    else:
        many = ev.Repeat(ev.Gaussian(draw.choice([30.0, 60.0])), draw.choice([3, 9]))
        event = draw.choice([ev.PureDp(0.05), ev.Laplace(draw.choice([15.0, 40.0])), many, ev.ApproxDp(0.01, 1e-8), ev.Zcdp(0.001)])
        blocks = {"events": (), "rows": ("2026-01", "2026-02", "2026-03"), "keys": ("a", "b", "c")}[unit.dataset]
        made = charge(f"c{step}", account, unit, event, tuple(draw.sample(blocks, draw.randint(1, 3))) if blocks else ())
        if event is many and draw.random() < 0.5:
            event = ledger.reserve_up_to(made).event
        else:
            ledger.reserve(made)
        end = draw.random()
        if end < 0.2:
            ledger.void(f"c{step}", "not started")
        elif end < 0.5 and isinstance(event, ev.Repeat):
            ledger.commit(f"c{step}", event=ev.Repeat(event.event, draw.randint(1, event.count)))
        elif end < 0.9:
            ledger.commit(f"c{step}", release='{"value":1}')


def test_an_export_taken_while_others_write_is_whole(ledger):
    taken = lines(ledger)
    first = next(taken)
    for i in range(20):
        ledger.reserve(charge(f"later {i}", ("acme", "queries"), EVENTS, ev.PureDp(0.001)))
    assert verify([first, *taken], public_key=ledger.public_key).ok


def test_a_book_of_an_older_day_is_found_by_the_anchor(ledger, tmp_path):
    path = tmp_path / "book.jsonl"
    export(ledger, path)
    ledger.commit("c5")
    report = verify_file(path, public_key=ledger.public_key, anchors=tmp_path / "anchors")
    assert {f.kind for f in report.findings} == {"anchor"}
    receipt = ledger.sealed("c5")
    assert {f.kind for f in verify_file(path, public_key=ledger.public_key, receipts=[receipt]).findings} == {"receipt"}


def test_a_file_is_replaced_whole_or_not_at_all(ledger, tmp_path, monkeypatch):
    path = tmp_path / "book.jsonl"
    path.write_text("before")
    trailer = ledger.trailer

    def broken(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(InputError, match="No space left"):
        export(ledger, path)
    monkeypatch.undo()
    assert path.read_text() == "before"
    assert not [p for p in tmp_path.iterdir() if "draft" in p.name]
    old = os.umask(0o027)
    try:
        export(ledger, path)
    finally:
        os.umask(old)
    assert path.read_text().splitlines()[-1] == trailer()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(InputError, match="folder that exists"):
        export(ledger, tmp_path / "nowhere" / "book.jsonl")
    with pytest.raises(UnknownNameError, match="format"):
        export(ledger, path, "xml")


def test_a_signed_book_is_not_exported_without_its_key(ledger, tmp_path):
    with Ledger.open(ledger.url, readonly=True) as reader:
        with pytest.raises(LedgerError, match="without its signing key"):
            export(reader, tmp_path / "book.jsonl")
        assert not (tmp_path / "book.jsonl").exists()
        assert export(reader, tmp_path / "book.csv", "csv") == 5


def test_nothing_is_written_through_a_link_left_in_the_way(ledger, tmp_path):
    (tmp_path / "kept").write_text("kept")
    path = tmp_path / "book.jsonl"
    path.symlink_to(tmp_path / "kept")
    export(ledger, path)
    assert (tmp_path / "kept").read_text() == "kept"
    assert not path.is_symlink()


# ------------------------------------------------------------------------------------------------ tables


def test_every_charge_is_one_row(ledger):
    found = {row.id: row for row in rows(ledger.lines())}
    assert list(found) == ["c1", "c2", "c3", "c5", "c6"]
    assert {name: row.state for name, row in found.items()} == {
        "c1": "committed",
        "c2": "committed",
        "c3": "voided",
        "c5": "reserved",
        "c6": "committed",
    }
    assert ev.from_json(found["c1"].event) == ev.Repeat(STEP, 200)
    assert found["c1"].event_type == "Repeat"
    assert found["c1"].limit == "L2"
    assert json.loads(found["c2"].prices).keys() == {"L1", "L3"}
    assert found["c2"].epsilon == pytest.approx(0.1, rel=1e-3)
    assert found["c2"].release.startswith("sha256:")
    assert found["c3"].reason == "the source did not open"
    assert found["c3"].blocks == ("2026-01", "2026-02")
    assert (found["c3"].epsilon, found["c3"].delta) == (0.5, 0.0)
    assert found["c5"].settled_at is None
    assert found["c6"].event == ev.to_json(ev.Repeat(ev.PureDp(0.15), 6))
    assert found["c1"].settled_at > found["c2"].reserved_at
    assert found["c1"].trust == "distributed"
    assert list(rows(lines(ledger))) == list(found.values())


def test_a_csv_file_holds_the_rows_and_no_formula(ledger, tmp_path):
    path = tmp_path / "book.csv"
    assert export(ledger, path, "csv") == 5
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["id"] for row in found] == ["c1", "c2", "c3", "c5", "c6"]
    assert tuple(found[0]) == COLUMNS
    assert found[1]["purpose"] == "'=HYPERLINK(1)"
    assert found[0]["recovered"] == "false"
    assert json.loads(found[2]["blocks"]) == ["2026-01", "2026-02"]
    assert found[3]["settled_at"] == ""
    assert float(found[1]["epsilon"]) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", " =1", "＝1", "\u00a0=1"])
def test_a_cell_is_never_a_formula(text):
    assert cell(text) == f"'{text}"


def test_parquet_has_the_same_rows_with_types(ledger, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "book.parquet"
    assert export(ledger, path, "parquet") == 5
    table = parquet.read_table(path)
    assert table.column_names == list(COLUMNS)
    held = table.to_pylist()
    for row, want in zip(held, rows(ledger.lines()), strict=True):
        assert {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()} == {n: getattr(want, n) for n in COLUMNS}


def test_parquet_needs_its_packages(ledger, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"dither\[parquet\]"):
        export(ledger, tmp_path / "book.parquet", "parquet")
    assert not (tmp_path / "book.parquet").exists()


def test_an_event_without_an_epsilon_has_an_infinite_one():
    with Ledger.open("sqlite://") as ledger:
        ledger.add_dataset(Dataset(name="events", unit=EVENTS))
        ledger.grant("acme", "events", epsilon=1, delta=1e-6)
        ledger.grant("acme/ads", "events", epsilon=1, delta=1e-6, side_delta=0)
        ledger.reserve(charge("c1", ("acme",), EVENTS, ev.ApproxDp(0.1, 2e-7)))
        (row,) = rows(ledger.lines())
    assert 0 < row.epsilon <= 0.1
    assert cell(float("inf")) == "infinite"


# ------------------------------------------------------------------------------------------------ the registry

SCHEMA = json.loads((Path(dither.ledger.__file__).parent / "registry.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}


def wrong(value, schema, where="record"):
    """All places at which a value does not fit; as much of JSON Schema draft 7 as the registry's schema uses."""
    known = {"$comment", "type", "enum", "properties", "required", "additionalProperties", "items", "minItems", "format"}
    assert schema.keys() <= known
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[k]) and not isinstance(value, bool) for k in kinds):
        yield f"{where} is no {kinds}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r}"
    if schema.get("format") == "date":
        datetime.strptime(value, "%Y-%m-%d")  # noqa: DTZ007 - a date
    if isinstance(value, dict) and "properties" in schema:
        yield from (f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, inner in value.items():
            if name in schema["properties"]:
                yield from wrong(inner, schema["properties"][name], f"{where}.{name}")
            elif schema.get("additionalProperties") is False:
                yield f"{where}.{name} is unknown"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{where} is too short"
        for i, inner in enumerate(value):
            yield from wrong(inner, schema.get("items", {}), f"{where}[{i}]")


def test_the_check_of_records_finds_what_is_wrong(ledger):
    good = records(ledger)[0]
    assert list(wrong({**good, "tier": 4}, SCHEMA)) == ["record.tier is 4"]
    assert list(wrong({**good, "more": 1}, SCHEMA)) == ["record.more is unknown"]
    assert list(wrong({**good, "tier": True}, SCHEMA))
    assert list(wrong({k: v for k, v in good.items() if k != "status"}, SCHEMA)) == ["record.status is missing"]


def test_records_fit_the_schema_of_the_registry(ledger, tmp_path):
    path = tmp_path / "registry.json"
    assert export(ledger, path, "registry") == 2
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [list(wrong(record, SCHEMA)) for record in found] == [[], []]
    events, by_rows = (record["deployment"] for record in found)
    assert events["privacy_loss"]["privacy_parameters"] == {"epsilon": 2.0, "delta": 1e-6}
    assert events["privacy_loss"]["privacy_unit"] == "one user_id"
    assert events["deployment_model"]["model_name"] == "Federated"
    assert events["dp_variant"]["variant_name"] == "Renyi DP"
    assert events["implementation"]["mechanisms"] == "Gaussian (1), PureDp (1)"
    assert by_rows["dp_variant"]["variant_name"] == "Custom"
    assert by_rows["privacy_loss"]["privacy_parameters"] == {"epsilon": 4.0, "delta": 1e-7}
    assert by_rows["basic"]["data_curators"] == ["acme", "other"]
    assert "Laplace" not in by_rows["implementation"]["mechanisms"]  # it was voided
    assert ledger.book in events["administrative"]["sources"]


def test_a_book_with_nothing_in_it_is_exported(tmp_path):
    with Ledger.open("sqlite://") as ledger:
        ledger.add_dataset(Dataset(name="Ümlaut & co", unit=PrivacyUnit(dataset="Ümlaut & co")))
        ledger.grant("acme", "Ümlaut & co", epsilon=1)
        for kind in ("jsonl", "csv", "registry"):
            export(ledger, tmp_path / kind, kind)
        assert verify_file(tmp_path / "jsonl", public_key=ledger.public_key).ok
        (record,) = records(ledger)
    assert list(wrong(record, SCHEMA)) == []
    assert record["url_slug"].startswith("umlaut-co-")


def test_the_public_key_may_be_read_from_its_file(ledger, tmp_path):
    export(ledger, tmp_path / "book.jsonl")
    key = seal.read_public_key(tmp_path / "book.db.pub")
    assert verify_file(tmp_path / "book.jsonl", public_key=key).signed
