"""The budget book at the command line: from an empty folder to a proof, and one sentence for whatever goes wrong."""

import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import parquet

from dither.app import cli, ledger_cli
from dither.core import events as ev
from dither.core.plans import Charge
from dither.core.units import PrivacyUnit
from dither.ledger.book import Ledger
from dither.ledger.terms import Blocks, Dataset, Every

DITHER = Path(sys.executable).with_name("dither")
UNIT = PrivacyUnit(dataset="events", key="user_id")
START = datetime(2026, 8, 1, tzinfo=UTC)
LEDGER = ["open", "grant", "split", "move", "show", "history", "verify", "alerts", "export", "receipt", "prices", "datasets"]


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command line in a folder of its own: its status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(ledger_cli.VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def go(*arguments):
        status = cli.status([str(a) for a in arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return go


@pytest.fixture
def value(run):
    """The JSON of a command that ends well."""

    def go(*arguments):
        status, out, err = run(*arguments, "--json")
        assert status == 0, err
        return json.loads(out, parse_constant=pytest.fail)

    return go


@pytest.fixture
def project(run):
    assert run("init")[0] == 0
    return run


def charge(name, account, event, unit=UNIT, blocks=(), purpose="report"):
    return Charge(
        id=name, account=tuple(account.split("/")), unit=unit, event=event, plan_digest="sha256:0", purpose=purpose, blocks=tuple(blocks)
    )


@pytest.fixture
def book(run, tmp_path):
    """A book in this folder with two months of charges."""
    now = [START]
    with Ledger.open("sqlite:///dither.db", clock=lambda: now[0], actor="asha") as ledger:
        rows = PrivacyUnit(dataset="visits")
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
        ledger.add_dataset(Dataset(name="visits", unit=rows, blocks=Blocks(column="ts", every=Every.MONTH)))
        ledger.grant("acme", "events", epsilon=10, delta=1e-6)
        ledger.split("acme", "events", {"ads": 0.6, "research": 0.4})
        ledger.grant("clinic", "visits", epsilon=1, per="block")
        for i in range(20):
            now[0] += timedelta(days=3)
            account, purpose = ("acme/ads", "=weekly()") if i % 2 else ("acme/research", "drug study")
            ledger.reserve(charge(f"c{i}", account, ev.Gaussian(9.0), purpose=purpose))
            ledger.commit(f"c{i}")
        ledger.reserve(charge("b1", "clinic", ev.Laplace(1.25), rows, ["2026-01"]))
        ledger.commit("b1")
    return run


def one_sentence(err):
    lines = [line for line in err.splitlines() if not line.startswith("…")]
    assert len(lines) == 1, err
    assert lines[0].startswith("dither: ")
    assert "Traceback" not in err
    assert "fault of dither" not in err
    return lines[0]


def narrow(out, width=80):
    assert max(map(len, out.splitlines()), default=0) <= width, max(out.splitlines(), key=len)
    return " ".join(out.split())


# ------------------------------------------------------------------------------------------------ from nothing to a proof


def test_from_an_empty_folder_to_a_proof(project, value, tmp_path):
    run = project
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dither.yaml", "visits.csv"]
    status, out, _ = run("run")
    assert status == 0
    told = narrow(out)
    assert told.count("hiding one visitor of visits (present or absent); central trust") == 4
    assert told.count("95 % confidence") >= 3
    assert "receipt adults-1, entry 16" in told
    again = run("run", "dither.yaml", "--job", "adults")
    assert again[0] == 0
    assert "nothing was spent" in narrow(again[1])

    shown = value("ledger", "show")
    assert [limit["account"] for limit in shown["datasets"][0]["limits"]] == [["clinic"], ["clinic", "reports"], ["clinic", "research"]]
    assert "more counts at ±" in narrow(run("ledger", "show")[1])

    sealed = run("ledger", "receipt", "adults-1", "--json")[1]
    Path("adults.json").write_text(sealed)
    assert run("ledger", "export", "book.jsonl")[:2] == (0, "book.jsonl: jsonl, 17 entries\n")
    proof = ["ledger", "verify", "book.jsonl", "--public-key", "dither.db.pub", "--receipt", "adults.json"]
    assert run(*proof)[0] == 0
    key = json.loads(sealed)["public_key"]
    assert value("ledger", "verify", "book.jsonl", "--public-key", key)["ok"] is True

    text = Path("book.jsonl").read_text()
    Path("book.jsonl").write_text(text.replace("monthly report", "monthly reports", 1))
    status, out, err = run(*proof)
    assert status == 1
    assert "NOT what it should be" in out
    assert "is not what was written" in one_sentence(err)


def test_what_a_run_tells_as_json(project, value):
    told = value("run", "--job", "adults")["releases"]
    assert [release["job"] for release in told] == ["adults"]
    release = told[0]
    assert release["value"]["statistic"] == "count"
    assert release["accuracy"] == {"half_width": 20, "confidence": 0.95}
    assert 0 < release["cost"]["epsilon"] < 0.2
    assert release["cost"]["delta"] == 0
    assert (release["receipt"]["charge"], release["receipt"]["replayed"]) == ("adults-1", False)
    assert value("run", "--job", "adults")["releases"][0]["value"] == release["value"]


def test_a_job_over_budget_does_not_stop_the_others(project):
    run = project
    for _ in range(2):
        assert run("run", "--job", "visits by city")[0] == 0
    status, out, err = run("run", "--json")
    assert status == 4
    assert [release["job"] for release in json.loads(out)["releases"]] == ["stay by city", "mean stay", "adults"]
    assert json.loads(err)["error"]["code"] == "over_budget"
    assert "Job 'visits by city'" in json.loads(err)["error"]["message"]
    status, _, err = run("run", "--job", "visits by city")
    assert status == 4
    assert "would overspend" in one_sentence(err)


def test_a_project_is_not_written_over(project):
    status, _, err = project("init")
    assert status == 2
    assert "is there already" in one_sentence(err)


# ------------------------------------------------------------------------------------------------ limits


def test_open_grant_split_move(run, value):
    made = value("ledger", "open", "sqlite:///dither.db")
    assert (made["entries"], len(made["public_key"])) == (1, 64)
    assert "is open" in run("ledger", "open", "sqlite:///dither.db")[1]
    with Ledger.open("sqlite:///dither.db") as ledger:
        ledger.add_dataset(Dataset(name="events", unit=UNIT))
    status, _, err = run("ledger", "grant", "acme", "events", "--epsilon", "10")
    assert status == 2
    assert "add --new" in one_sentence(err)
    found = value("ledger", "grant", "acme", "events", "--epsilon", "10", "--delta", "1e-6", "--new", "--alert-at", "1/3", "--by", "asha")
    assert (found["limits"][0]["filter"]["epsilon"], found["limits"][0]["alert_at"]) == ("10", ["1/3"])
    assert found["limits"][0]["hides"] == str(UNIT)
    parts = value("ledger", "split", "acme", "events", "training=60%", "evaluation=0.2", "queries=1/5")
    assert [limit["epsilon"] for limit in parts["limits"]] == [6, 2, 2]
    moved = value("ledger", "move", "acme/training", "acme/queries", "events", "--epsilon", "0.5", "--delta", "1e-8")
    assert [limit["epsilon"] for limit in moved["limits"]] == [5.5, 2.5]
    page = narrow(run("ledger", "grant", "acme", "events", "--epsilon", "10", "--delta", "1e-6", "--alert-at", "1/3")[1])
    assert "L1: ε = 10 at δ = 1e-06, filter rdp" in page
    assert "33.3333 %" in page
    status, _, err = run("ledger", "grant", "acme", "events", "--epsilon", "11", "--delta", "1e-6")
    assert status == 3
    assert "never changed or refilled" in one_sentence(err)
    assert [row["by"] for row in value("ledger", "history", "--account", "acme")["rows"]][:1] == ["asha"]


def test_when_a_limit_holds(book, value):
    made = value("ledger", "grant", "acme/ads", "visits", "--epsilon", "1", "--starts", "2026-01-01", "--ends", "2026-12-31T18:00:00+05:30")
    assert [made["limits"][0][end] for end in ("starts", "ends")] == ["2026-01-01T00:00:00.000000Z", "2026-12-31T12:30:00.000000Z"]


def test_whose_limits_sum_above_what_is_over_them_is_told(book):
    _, out, _ = book("ledger", "grant", "acme/sales", "events", "--epsilon", "3", "--delta", "1e-6", "--new")
    assert "! On dataset 'events'" in out


# ------------------------------------------------------------------------------------------------ looking


@pytest.mark.parametrize("width", [40, 80, 120])
def test_pages_fit(book, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for typed in (["show"], ["history"], ["alerts"], ["datasets"], ["prices", "acme", "--dataset", "events"], ["receipt", "c3"]):
        status, out, err = book("ledger", *typed)
        assert (status, err) == (0, "")
        narrow(out, width)


def test_show_narrows_down(book, value):
    told = value("ledger", "show", "--account", "acme/ads", "--within", "20")
    limits = told["datasets"][0]["limits"]
    assert [limit["account"] for limit in limits] == [["acme"], ["acme", "ads"]]
    assert {limit["balances"][0]["room"]["within"] for limit in limits} == {20}
    assert len(told["datasets"]) == 1
    assert limits[0]["balances"][0]["forecast"]["date"] is not None


def test_looking_needs_no_key_and_writes_nothing(book):
    Path("dither.db.key").unlink()
    before = Path("dither.db").read_bytes()
    for typed in (["show"], ["history"], ["datasets"], ["prices", "acme", "--dataset", "events"], ["alerts"]):
        assert book("ledger", *typed)[0] == 0
    assert Path("dither.db").read_bytes() == before
    status, _, err = book("ledger", "grant", "acme", "visits", "--epsilon", "1")
    assert status == 1
    assert "key" in one_sentence(err)


def test_history_goes_to_files(book, value):
    status, out, err = book("ledger", "history", "--csv", "h.csv", "--parquet", "h.parquet", "--limit", "12")
    assert (status, err.count("12 rows written")) == (0, 2)
    assert "=weekly()" in out
    with Path("h.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert {row["purpose"] for row in rows} >= {"'=weekly()", "drug study"}, "a spreadsheet must not run what someone wrote as a purpose"
    table = parquet.read_table("h.parquet").to_pylist()
    assert [row["entry"] for row in table] == [int(row["entry"]) for row in rows]
    assert table[0]["at"].tzinfo is not None
    told = value("ledger", "history")
    assert [row["entry"] for row in told["rows"]][-12:] == [row["entry"] for row in table]
    assert sum(part["part"] for part in told["spent"] if part["dataset"] == "events") == pytest.approx(1)


def test_history_narrows_down(book, value):
    assert {row["purpose"] for row in value("ledger", "history", "--purpose", "drug study")["rows"]} == {"drug study"}
    assert {row["dataset"] for row in value("ledger", "history", "--dataset", "visits")["rows"]} == {"visits"}
    assert len(value("ledger", "history", "--limit", "3")["rows"]) == 3


def test_plots(book):
    assert book("ledger", "show", "--plot", "burn.png")[0] == 0
    assert book("ledger", "history", "--dataset", "events", "--plot", "who.png")[0] == 0
    for name in ("burn.png", "who.png"):
        assert Path(name).read_bytes().startswith(b"\x89PNG")
    status, _, err = book("ledger", "history", "--plot", "both.png")
    assert status == 2
    assert "--dataset" in one_sentence(err)


def test_alerts_are_told_once(book, value):
    rows = value("ledger", "alerts")["rows"]
    assert {row["kind"] for row in rows} == {"alert"}
    text = "ledger: sqlite:///dither.db\nalerts: [{file: told.jsonl}]\ndatasets: {other: {source: x.csv, unit: {row: true}}}\n"
    Path("dither.yaml").write_text(text)
    assert value("ledger", "alerts", "--deliver")["delivered"] == len(rows)
    assert value("ledger", "alerts", "--deliver")["delivered"] == 0
    assert len(Path("told.jsonl").read_text().splitlines()) == len(rows)


def test_prices_side_by_side(book, value):
    ways = {way["name"]: way["epsilon"] for way in value("ledger", "prices", "acme", "--dataset", "events")["ways"]}
    assert ways["tight, fixed beforehand"] < ways["Rényi (RDP)"] < ways["filter L1 (rdp)"] < ways["basic composition"]
    other = value("ledger", "prices", "clinic", "--dataset", "visits", "--block", "2026-01", "--delta", "1e-6")
    assert (other["delta"], other["charges"]) == (1e-6, 1)


@pytest.mark.parametrize("kind", ["csv", "parquet", "registry"])
def test_export(book, value, kind):
    made = value("ledger", "export", f"book.{kind}", "--format", kind)
    assert made["format"] == kind
    assert Path(f"book.{kind}").stat().st_size > 0


# ------------------------------------------------------------------------------------------------ finding the book


def test_the_book_is_found(book, value, monkeypatch):
    Path("elsewhere").mkdir()
    there = f"sqlite:///{Path.cwd()}/dither.db"
    monkeypatch.chdir("elsewhere")
    status, _, err = book("ledger", "show")
    assert status == 2
    assert "--ledger URL" in one_sentence(err)
    assert value("ledger", "show", "--ledger", there)["entries"] > 20
    monkeypatch.setenv(ledger_cli.VARIABLE, there)
    assert value("ledger", "show")["entries"] > 20
    Path("dither.yaml").write_text("ledger: sqlite:///other.db\ndatasets: {x: {source: x.csv, unit: {row: true}}}\n")
    monkeypatch.delenv(ledger_cli.VARIABLE)
    status, _, err = book("ledger", "show")
    assert status == 1
    assert "other.db" in one_sentence(err)


# ------------------------------------------------------------------------------------------------ what goes wrong

WRONG = [
    (2, ["ledger", "shwo"], "Did you mean show?"),
    (2, ["ledger", "grant", "acme", "events"], "--epsilon"),
    (2, ["ledger", "grant", "acme", "events", "--epsilon", "x"], "is not a number"),
    (2, ["ledger", "grant", "acme", "events", "--epsilon", "nan"], "epsilon=nan"),
    (2, ["ledger", "grant", "acme", "events", "--epsilon", "-1"], "expected a number > 0"),
    (2, ["ledger", "grant", "acme", "events", "--epsilon", "0"], "epsilon="),
    (2, ["ledger", "grant", "acme", "events", "--epsilon", "5e-324"], "subnormal"),
    (2, ["ledger", "grant", "acme", "events", "--epsilon", "1e400"], "epsilon=inf"),
    (2, ["ledger", "grant", "acme", "event", "--epsilon", "1"], "Unknown dataset 'event'"),
    (2, ["ledger", "grant", "acm", "events", "--epsilon", "1"], "add --new"),
    (2, ["ledger", "grant", "acme/аds", "events", "--epsilon", "1", "--new"], "looks like"),
    (2, ["ledger", "grant", "acme//ads", "events", "--epsilon", "1"], "names nothing"),
    (2, ["ledger", "grant", "acme", "events", "--epsilon", "1", "--filter", "gdp"], "Unknown filter 'gdp'"),
    (2, ["ledger", "grant", "acme", "events", "--epsilon", "1", "--starts", "tomorrow"], "is not a time"),
    (2, ["ledger", "grant", "acme", "events", "--epsilon", "1", "--starts", "2026-01-01T00:00"], "is not a time"),
    (3, ["ledger", "grant", "acme", "events", "--epsilon", "100"], "never changed or refilled"),
    (2, ["ledger", "split", "acme", "events", "ads"], "expected NAME=SHARE"),
    (2, ["ledger", "split", "acme", "events", "ads=60%", "x=60%"], "sum to at most 1"),
    (2, ["ledger", "split", "acme", "events", "x=10%", "x=10%"], "named twice"),
    (3, ["ledger", "move", "acme/ads", "clinic", "events", "--epsilon", "1"], "siblings"),
    (3, ["ledger", "move", "acme/ads", "acme/research", "events", "--epsilon", "5.9"], "move less"),
    (2, ["ledger", "show", "--account", "nobody"], "Unknown account 'nobody'"),
    (2, ["ledger", "show", "--dataset", "'; DROP TABLE entries; --"], "Unknown dataset"),
    (2, ["ledger", "show", "--within", "0"], "--within"),
    (2, ["ledger", "show", "--plot", "x.bmp"], "ends in .png"),
    (2, ["ledger", "history", "--limit", "0"], "--limit"),
    (2, ["ledger", "history", "--csv", "no/such/x.csv"], "There is no folder"),
    (2, ["ledger", "prices", "acme"], "--dataset"),
    (2, ["ledger", "prices", "acme", "--dataset", "visits"], "no limit"),
    (2, ["ledger", "prices", "clinic", "--dataset", "visits", "--block", "x"], "block='x'"),
    (2, ["ledger", "prices", "acme", "--dataset", "events", "--delta", "2"], "delta=2"),
    (2, ["ledger", "receipt", "nothing"], "Unknown charge 'nothing'"),
    (2, ["ledger", "export", "book.xml"], "--format"),
    (2, ["ledger", "export", "no/such/book.jsonl"], "There is no folder"),
    (2, ["ledger", "verify", "nowhere.jsonl"], "There is no file"),
    (1, ["ledger", "show", "--ledger", "sqlite:///nowhere.db"], "There is no book"),
    (2, ["ledger", "show", "--ledger", "mysql://x"], "expected sqlite"),
    (2, ["ledger", "open", "x\x1b[2J"], "printable"),
    (2, ["run", "nowhere.yaml"], "nowhere.yaml"),
]


@pytest.mark.parametrize(("status", "typed", "said"), WRONG, ids=[f"{typed[1][:6]}-{said}" for _, typed, said in WRONG])
@pytest.mark.parametrize("as_json", [False, True])
def test_errors_are_one_sentence_and_a_status(book, status, typed, said, as_json):
    found, out, err = book(*typed, *(["--json"] if as_json else []))
    assert (found, out) == (status, ""), err
    if as_json:
        told = json.loads(err)["error"]["message"]
    else:
        told = one_sentence(err)
        assert err.rstrip("\n").isprintable()
    assert said in told


def test_a_damaged_book_is_told_of(book):
    Path("dither.db").write_bytes(b"this is no database" * 100)
    for suffix in ("-wal", "-shm"):
        Path(f"dither.db{suffix}").unlink(missing_ok=True)
    for typed in (["show"], ["history"], ["grant", "acme", "events", "--epsilon", "1"]):
        status, _, err = book("ledger", *typed)
        assert status == 1
        assert "damaged" in one_sentence(err)


def test_a_project_that_is_wrong_is_told_by_its_place(project):
    text = Path("dither.yaml").read_text()
    Path("dither.yaml").write_text(text.replace("purpose: monthly report", "porpoise: monthly report", 1))
    status, _, err = project("run")
    assert status == 2
    assert "dither.yaml:" in err
    assert "porpoise" in err
    assert "Traceback" not in err


def test_a_run_on_a_source_that_is_not_there_costs_nothing(project, value):
    shutil.move("visits.csv", "elsewhere.csv")
    status, _, err = project("run", "--job", "adults")
    assert status in {1, 2}
    assert "visits.csv" in one_sentence(err)
    assert [limit["balances"][0]["share"] for limit in value("ledger", "show")["datasets"][0]["limits"]] == [0, 0, 0]


# ------------------------------------------------------------------------------------------------ as a process


@pytest.mark.parametrize("name", LEDGER)
def test_every_command_has_help_and_json(run, name):
    status, out, _ = run("ledger", name, "--help")
    assert status == 0
    assert "--json" in narrow(out)


def test_help_imports_nothing_heavy():
    names = ("numpy", "scipy", "matplotlib", "sqlalchemy", "alembic", "cryptography", "pydantic", "yaml")
    heavy = f"print([m for m in {names} if m in sys.modules])"
    for typed in (["ledger", "show", "--help"], ["run", "--help"], ["init", "--help"], []):
        code = f"import sys; from dither.app import cli; cli.status({typed!r}); {heavy}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]", typed


@pytest.mark.parametrize("alphabet", ["latin-1", "cp437", "ascii"])
def test_a_terminal_of_any_alphabet_is_answered(book, alphabet):
    environment = os.environ | {"PYTHONIOENCODING": alphabet, "COLUMNS": "80"}
    for typed in (["show"], ["history"], ["prices", "acme", "--dataset", "events"]):
        done = subprocess.run([DITHER, "ledger", *typed], capture_output=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == b""
        assert max(map(len, done.stdout.decode("utf-8" if alphabet == "ascii" else alphabet).splitlines())) <= 80


def test_a_long_reading_says_how_far_it_is(book, monkeypatch):
    monkeypatch.setattr(ledger_cli, "QUIET_SECONDS", -1.0)
    status, _, err = book("ledger", "show")
    assert status == 0
    assert "… reading the book: 0 of" in err


def test_a_book_is_held_against_its_own_lines(book, run, value, tmp_path):
    assert value("ledger", "verify")["ok"] is True
    assert run("ledger", "verify", "--public-key", "dither.db.pub")[0] == 2
    with sqlite3.connect(tmp_path / "dither.db") as rows:
        rows.execute("UPDATE balances SET spent = '1'")
    status, out, err = run("ledger", "verify")
    assert status == 1
    assert "is not what its entries come to" in " ".join(out.split())
    assert "is not what was written" in err
