"""SQL at the command line: answers with their intervals, prices before they are paid, one sentence for whatever goes wrong."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import dither
from dither.app import cli, ledger_cli, sql_cli
from dither.core.errors import InputError, RefusedError, UnknownNameError
from dither.gate import quick

DITHER = Path(sys.executable).with_name("dither")
BY_CITY = "SELECT city, COUNT(*) AS n, AVG(minutes) AS stay FROM visits GROUP BY city ORDER BY city"
PAID = ["--account", "clinic/reports", "--purpose", "weekly report", "--epsilon", "0.5"]
ALONE = ["--data", "visits=visits.csv", "--unit", "visitor", "--epsilon", "1"]


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command line in a folder with the starter project: its status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(ledger_cli.VARIABLE, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.status(["init"]) == 0
    Path("dither.yaml").write_text(Path("dither.yaml").read_text().replace("alerts: [log]", "alerts: []"))
    capsys.readouterr()

    def go(*arguments):
        status = cli.status([str(a) for a in arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return go


def page(out, width=80):
    assert max(map(len, out.splitlines()), default=0) <= width, max(out.splitlines(), key=len)
    return " ".join(out.split())


def sentence(err):
    lines = [line for line in err.splitlines() if not line.startswith("…")]
    assert len(lines) == 1, err
    assert lines[0].startswith("dither: ")
    assert "Traceback" not in err
    assert "fault of dither" not in err
    return lines[0]


def entries(run):
    return json.loads(run("ledger", "history", "--json")[1])["rows"] if Path("dither.db").exists() else []


# ------------------------------------------------------------------------------------------------ answers


def test_a_query_is_answered_and_paid(run):
    status, out, err = run("sql", BY_CITY, *PAID, "--id", "w1")
    assert (status, err) == (0, "")
    told = page(out)
    assert "city | n | stay" in told
    assert out.count(" ± ") >= 4, "of counts; a mean has none where its noisy count is nothing"
    assert "holds with 95 % confidence" in told
    assert "cost ε ≤ 0.5 at δ = 0, hiding one visitor of visits (present or absent); central trust" in told
    assert "left room for one more release of ε = 0.7; δ left 0 (limit L3 of clinic/reports)" in told
    assert "receipt w1, entry" in told
    again = run("sql", BY_CITY, *PAID, "--id", "w1")
    assert again[1].splitlines()[:6] == out.splitlines()[:6]
    assert "nothing was spent" in page(again[1])


def test_json_has_everything(run):
    status, out, _ = run("sql", BY_CITY, *PAID, "--json")
    assert status == 0
    told = json.loads(out, parse_constant=pytest.fail)
    city, n, stay = told["value"]["columns"]
    assert city["values"] == ["Chennai", "Delhi", "Kolkata", "Pune"]
    assert [len(c["half_widths"]) for c in (n, stay)] == [4, 4]
    assert told["cost"] == {"epsilon": 0.5, "delta": 0, "unit": "one visitor of visits (present or absent)", "trust": "central"}
    assert told["receipt"]["state"] == "committed"
    assert told["account"] == ["clinic", "reports"]


def test_the_query_comes_from_a_file_or_stdin(run, monkeypatch):
    Path("stay.sql").write_text(f"-- every week\n{BY_CITY}\n", encoding="utf-8-sig")
    assert run("sql", "@stay.sql", *PAID)[0] == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BY_CITY.encode())))
    assert run("sql", "-", *PAID)[0] == 0


def test_tables_go_to_files(run):
    status, _, err = run("sql", BY_CITY, *PAID, "--csv", "o.csv", "--parquet", "o.parquet", "--plot", "o.png", "--plot-column", "stay")
    assert status == 0
    assert err.count("4 rows written") == 2
    assert "plot written to o.png" in err
    with Path("o.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = parquet.read_table("o.parquet").to_pylist()
    assert list(rows[0]) == list(table[0]) == ["city", "n", "n ±", "stay", "stay ±"]
    assert [float(row["n"]) for row in rows] == [row["n"] for row in table]
    assert Path("o.png").read_bytes().startswith(b"\x89PNG")


def test_an_answer_without_groups_is_told_and_drawn(run):
    asked = "SELECT day, COUNT(*) AS n FROM visits GROUP BY day"
    files = ["--csv", "o.csv", "--parquet", "o.parquet", "--plot", "o.png"]
    status, out, _ = run("sql", asked, *ALONE[:4], "--epsilon", "0.01", "--delta", "1e-12", *files)
    assert status == 0
    assert "(no group is shown)" in out
    assert Path("o.csv").read_text(encoding="utf-8").startswith("day,n")
    assert all(Path(name).stat().st_size for name in ("o.parquet", "o.png"))


def test_a_spreadsheet_runs_no_formula_of_a_key(run):
    Path("visits.csv").write_text("visitor,city\n" + "".join(f"{i},=1+1\n" for i in range(500)))
    status, out, _ = run("sql", "SELECT city, COUNT(*) AS n FROM visits GROUP BY city", *ALONE, "--delta", "1e-6", "--csv", "o.csv")
    assert status == 0
    assert "=1+1" in out
    assert Path("o.csv").read_text(encoding="utf-8").splitlines()[1].startswith("'=1+1,")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_pages_fit(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for more in ([], ["--explain"]):
        status, out, _ = run("sql", BY_CITY, *PAID, *more)
        assert status == 0
        page(out, width)


def test_the_price_may_stand_in_the_query(run):
    status, out, _ = run("sql", f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.25) {BY_CITY[7:]}", *PAID[:4])
    assert status == 0
    assert "ε ≤ 0.25 at δ = 0" in page(out)


# ------------------------------------------------------------------------------------------------ before it is paid


def test_explain_reads_and_charges_nothing(run):
    Path("visits.csv").unlink()
    status, out, err = run("sql", BY_CITY.replace("AVG(minutes)", "MEDIAN(minutes)"), "--epsilon", "1", "--explain")
    assert (status, err) == (0, "")
    told = page(out)
    assert "no row was read, nothing was charged" in told
    assert "city (4 public keys)" in told
    assert "private look" in told
    assert "± at 1 ± at 10 ± at 100" in told
    assert "ranks" in told
    assert not [row for row in entries(run) if row["kind"] == "charge"]


def test_explain_tells_the_error_that_the_answer_then_has(run):
    asked = ["sql", "SELECT city, COUNT(*) AS n FROM visits GROUP BY city", *PAID, "--rows-per-unit", "3"]
    before = json.loads(run(*asked, "--explain", "--json")[1])
    assert before["fits"] is True
    assert before["bounds"] == {"look_epsilon": 0, "rows_per_unit": 3, "groups_per_unit": None, "rows_per_group": None}
    after = json.loads(run(*asked, "--json")[1])
    assert after["value"]["columns"][1]["half_widths"][0] == pytest.approx(before["numbers"][0]["errors"][0]["half_width"])
    assert before["price"] == after["cost"]
    assert before["plan_digest"] == after["plan_digest"]


def test_explain_says_what_would_not_fit(run):
    status, out, _ = run("sql", BY_CITY, *PAID[:4], "--epsilon", "2", "--explain")
    assert status == 0
    assert "it does NOT fit" in page(out)
    assert "it fits" in page(run("sql", BY_CITY, *PAID, "--explain")[1])


def test_explain_of_private_keys_says_how_many_people_a_group_needs(run):
    told = page(run("sql", "SELECT day, COUNT(*) AS n FROM visits GROUP BY day", "--epsilon", "1", "--delta", "1e-6", "--explain")[1])
    assert "day (private keys)" in told
    assert "× visitor" in told


# ------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(
    ("status", "asked", "words"),
    [
        (3, "SELECT * FROM visits", "it would show raw rows"),
        (3, "SELECT age FROM visits", "it is one person's value"),
        (3, "SELECT visitor, COUNT(*) FROM visits GROUP BY visitor", "hold the rows of one visitor"),
        (2, "SELECT AVG(x) FROM visits", "Unknown column 'x': expected one of age"),
        (2, "SELECT COUNT(*) FROM visit", "Unknown table 'visit': expected one of visits"),
        (2, "SELECT day, COUNT(*) FROM visits GROUP BY day", "GROUP BY day needs a delta"),
        (2, "SELECT COUNT(* FROM visits", "cannot be read at line 1, column 16"),
        (3, "DROP TABLE visits", "only one SELECT"),
        (3, "SELECT COUNT(*) FROM visits; DROP TABLE visits", "only one statement"),
        (3, "SELECT COUNT(*) FROM 'visits.csv'", "never a file"),
        (3, "SELECT COUNT(*) FROM read_csv('visits.csv')", "a table function may read anything"),
        (3, "SELECT COUNT(*) FROM visits a JOIN visits b ON a.visitor = b.visitor", "two private tables"),
        (3, "SELECT SUM(age * minutes * 1e300) FROM visits", "how large one value can be"),
        (3, "SELECT COUNT(*) FROM (SELECT * FROM visits LIMIT 10)", "on the rows of others"),
        (3, "SELECT COUNT(*) FROM visits WHERE RANDOM() < 0.5", "changes from one run to the next"),
        (2, "", "The query is empty"),
        (2, "stay.sql", "write @stay.sql"),
        (2, "@stay.sql", "could not be read"),
    ],
)
def test_what_is_refused_is_one_sentence_and_free(run, status, asked, words):
    ended, out, err = run("sql", asked, *PAID)
    assert (ended, out) == (status, "")
    assert words in sentence(err)
    assert not [row for row in entries(run) if row["kind"] == "charge"]


@pytest.mark.parametrize(
    ("status", "flags", "words"),
    [
        (2, [], "--account is needed"),
        (2, PAID[:2], "--purpose is needed"),
        (2, PAID[:4], "has no price"),
        (2, [*PAID[:4], "--epsilon", "nan"], "--epsilon=nan is not allowed"),
        (2, [*PAID, "--delta", "2"], "--delta=2.0 is not allowed"),
        (2, [*PAID, "--rows-per-unit", "0"], "--rows-per-unit=0 is not allowed"),
        (2, [*PAID, "--block", "2026-01"], "is not divided into blocks"),
        (2, [*PAID, "--account", "clinics"], "Unknown account 'clinics'"),
        (2, [*PAID, "--project", "no.yaml"], "There is no no.yaml"),
        (2, [*PAID, "--csv", "nowhere/o.csv"], "There is no folder 'nowhere'"),
        (2, [*PAID, "--plot", "o.gif"], "expected a file that ends in .png"),
        (2, [*PAID, "--plot", "o.png", "--plot-column", "city"], "expected one of n, stay"),
        (2, [*PAID, "--plot-column", "n"], "needs --plot"),
        (2, [*PAID, "--explain", "--csv", "o.csv"], "--explain has no table to write"),
        (2, [*PAID, "--unit", "visitor"], "--unit needs --data"),
        (4, [*PAID, "--epsilon", "30"], "would overspend limit L1"),
        (2, ALONE[:2], "--data needs one of --unit COLUMN"),
        (2, [*ALONE, "--unit-row"], "--data needs one of --unit COLUMN"),
        (2, [*ALONE, "--account", "clinic"], "--account needs a project"),
        (2, [*ALONE, "--data", "visits"], "expected NAME=FILE"),
        (2, [*ALONE, "--data", "visits=again.csv"], "names 'visits' twice"),
        (2, [*ALONE[:2], "--unit", "person", "--epsilon", "1"], "has no column 'person'"),
        (2, ["--data", "visits=no.csv", *ALONE[2:]], "names no file"),
        (2, [*ALONE, "--column", "age:int:0"], "expected NAME:TYPE"),
        (2, [*ALONE, "--column", "age:int:a:b"], "has 'a' for a number"),
        (2, [*ALONE, "--column", "town:text"], "Unknown column 'town'"),
        (2, [*ALONE, "--column", "age:whole"], "Unknown type of column 'whole'"),
    ],
)
def test_what_is_typed_wrong_is_one_sentence_and_free(run, status, flags, words):
    ended, out, err = run("sql", BY_CITY, *flags)
    assert (ended, out) == (status, "")
    assert words in sentence(err)
    assert not [row for row in entries(run) if row["kind"] == "charge"]


def test_a_refusal_is_json_where_json_is_asked_for(run):
    status, out, err = run("sql", BY_CITY, *PAID[:4], "--epsilon", "30", "--json")
    assert (status, out) == (4, "")
    assert json.loads(err)["error"]["code"] == "over_budget"


def test_a_source_that_is_gone_costs_nothing(run):
    Path("visits.csv").unlink()
    status, _, err = run("sql", BY_CITY, *PAID)
    assert status == 2
    assert "names no file" in sentence(err)
    assert {row["state"] for row in entries(run) if row["kind"] == "charge"} == {"voided"}


@pytest.mark.slow
def test_ctrl_c_leaves_the_charge_in_the_book(run):
    """Pressed once it is reserved: whether or not rows are being read by then, what is told is what the book says."""
    rows = pa.table({"visitor": list(range(400_000)) * 5, "minutes": [float(i % 240) for i in range(2_000_000)]})
    parquet.write_table(rows, "many.parquet")
    Path("dither.yaml").write_text(
        "ledger: sqlite:///dither.db\ndatasets:\n  visits:\n    source: many.parquet\n    unit: {key: visitor}\n"
        "    columns: {minutes: {type: float, min: 0, max: 240}}\naccounts:\n  clinic: {dataset: visits, epsilon: 4}\n"
    )
    asked = "SELECT " + ", ".join(f"QUANTILE_CONT(CLAMP(minutes, 0, {n}), 0.5) AS m{n}" for n in range(100, 140)) + " FROM visits"
    flags = ["--account", "clinic", "--purpose", "p", "--epsilon", "1", "--id", "long"]
    running = subprocess.Popen([DITHER, "sql", asked, *flags], stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "80"})
    ends = time.monotonic() + 120
    while time.monotonic() < ends and running.poll() is None and not _reserved():
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    [state] = [row["state"] for row in entries(run) if row["kind"] == "charge"]
    assert state in ("committed", "voided")
    assert ("charge long stays spent" if state == "committed" else "charge long was given back") in sentence(err)


def _reserved():
    try:
        with dither.Ledger.open("sqlite:///dither.db", readonly=True, create=False) as ledger:
            return bool(ledger.open_charges())
    except dither.errors.DitherError:
        return False


def test_a_run_that_fails_is_spent_and_not_called_stopped(run, monkeypatch):
    def broken(*_):
        raise ValueError("a private value")

    monkeypatch.setattr("dither.gate.ask.run", broken)
    status, _, err = run("sql", BY_CITY, *PAID)
    assert status == 1
    assert "is spent" in sentence(err)
    assert "private value" not in err


def test_an_interrupt_says_what_became_of_the_charge(run, monkeypatch):
    def stopped(*_, **__):
        signal.raise_signal(signal.SIGINT)

    for name, words in (("run", "stays spent"), ("open", "was given back")):
        with monkeypatch.context() as patched:
            patched.setattr(f"dither.gate.ask.{name}", stopped)
            status, _, err = run("sql", BY_CITY, *PAID)
            assert status == sql_cli.STOPPED
            assert words in sentence(err)
    with monkeypatch.context() as patched:
        patched.setattr("dither.gate.path._reserve", stopped)
        assert "Stopped before anything was charged" in sentence(run("sql", BY_CITY, *PAID)[2])
    with monkeypatch.context() as patched:
        patched.setattr("dither.gate.ask.run", stopped)
        assert "no book is kept" in sentence(run("sql", "SELECT COUNT(*) AS n FROM visits", *ALONE)[2])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ------------------------------------------------------------------------------------------------ without a project


def test_a_file_is_asked_without_a_project(run):
    Path("dither.yaml").unlink()
    asked = "SELECT city, AVG(minutes) AS stay, COUNT(*) AS n FROM visits GROUP BY city"
    known = ["--column", "minutes:float:0:240", "--column", "city:text:Delhi,Pune"]
    status, out, err = run("sql", asked, *ALONE, *known)
    assert (status, err) == (0, "")
    told = page(out)
    assert "No book is kept" in told
    assert "left" not in told.split("cost")[1]
    assert "Chennai" not in out
    assert not Path("dither.db").exists()
    explained = json.loads(run("sql", asked, *ALONE, *known, "--explain", "--json")[1])
    assert (explained["groups"], explained["fits"]) == ([{"name": "city", "keys": 2}], None)
    public = ["--public", "towns.city=towns.csv", "--delta", "1e-6"]
    Path("towns.csv").write_text("city,zone\nDelhi,north\nPune,west\n")
    joined = "SELECT zone, COUNT(*) AS n FROM visits JOIN towns ON visits.city = towns.city GROUP BY zone"
    status, out, _ = run("sql", joined, *ALONE, *public)
    assert status == 0
    assert "north" in out


def test_python_asks_frames_and_paths(tmp_path):
    visits = pa.table({"who": [i // 2 for i in range(2_000)], "age": [i % 90 for i in range(2_000)]})
    parquet.write_table(visits, tmp_path / "visits.parquet")
    for data in (visits, tmp_path / "visits.parquet", str(tmp_path / "visits.parquet")):
        asked = "SELECT COUNT(*) AS n, AVG(CLAMP(age, 0, 100)) AS age FROM visits"
        release = dither.sql(asked, data={"visits": data}, unit="WHO", epsilon=1000, bounds={"rows_per_unit": 2})
        assert abs(release.table["n"][0] - 2_000) <= 1
        assert abs(release.table["age"][0] - 44.1) < 0.5
        assert release.unit.key == "who"
        assert release.receipt.state.value == "committed"
        assert (release.guarantee.epsilon, release.guarantee.delta) == (1000, 0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1234567, 0.0), (1.0, 1e-6), (1 / 3, 1.23e-7), (7.7, 1e-9)])
def test_what_is_asked_for_always_fits_its_own_ledger(epsilon, delta):
    visits = pa.table({"who": ["a", "b"] * 50, "age": [1.0, 2.0] * 50, "city": ["x"] * 100})
    asked = "SELECT city, SUM(CLAMP(age, 0, 9)) AS s, COUNT(*) AS n, MEDIAN(CLAMP(age, 0, 9)) AS m FROM v GROUP BY city"
    columns = None if delta else {"city": {"values": ["x", "y"]}}
    release = dither.sql(asked, data={"v": visits}, unit="who", epsilon=epsilon, delta=delta, columns=columns)
    assert (release.guarantee.epsilon, release.guarantee.delta) == (epsilon, delta)


def test_rows_are_people_only_where_it_is_said():
    visits = pa.table({"age": [1, 2, 3]})
    release = dither.sql("SELECT COUNT(*) AS n FROM v", data={"v": visits}, unit=None, epsilon=1000)
    assert str(release.unit) == "one row of v (present or absent)"
    with pytest.raises(TypeError):
        dither.sql("SELECT COUNT(*) AS n FROM v", data={"v": visits}, epsilon=1)


def test_only_schemas_are_read_beforehand(monkeypatch):
    visits = pa.table({"who": [1], "city": ["Delhi"], "age": pa.array([3], pa.int64()), "odd": [[1, 2]]})
    monkeypatch.setattr("dither.query.source.Engine.rows", lambda *_: pytest.fail("rows were read"))
    monkeypatch.setattr("dither.query.source.Engine.arrays", lambda *_: pytest.fail("rows were read"))
    found = quick.question("SELECT city, COUNT(*) AS n FROM v GROUP BY city", data={"v": visits}, unit="who", epsilon=1, delta=1e-6)
    assert [(c.name, c.type, c.min, c.max, c.values) for c in found.facts.columns] == [
        ("who", "int", None, None, ()),
        ("city", "text", None, None, ()),
        ("age", "int", None, None, ()),
    ]
    assert found.plan().event is not None


@pytest.mark.parametrize(
    ("error", "sql", "more", "words"),
    [
        (RefusedError, "SELECT AVG(age) FROM v", {}, "how large one value can be"),
        (InputError, "SELECT city, COUNT(*) FROM v GROUP BY city", {}, "GROUP BY city needs a delta"),
        (InputError, "SELECT COUNT(*) FROM v", {"unit": "person"}, "has no column 'person'"),
        (InputError, "SELECT COUNT(*) FROM v", {"data": {}}, "data is empty"),
        (InputError, "SELECT COUNT(*) FROM v", {"data": {"v": 3}}, "expected a path"),
        (InputError, "SELECT COUNT(*) FROM v", {"data": "v.csv"}, "expected a map"),
        (InputError, "SELECT COUNT(*) FROM v", {"epsilon": None}, "has no price"),
        (InputError, "SELECT COUNT(*) FROM v", {"epsilon": float("nan")}, "epsilon=nan is not allowed"),
        (UnknownNameError, "SELECT COUNT(*) FROM v", {"neighbors": "both"}, "both"),
        (UnknownNameError, "SELECT COUNT(*) FROM v", {"columns": {"town": {}}}, "Unknown column 'town'"),
        (UnknownNameError, "SELECT COUNT(*) FROM v", {"columns": {"age": {"low": 0}}}, "Unknown fact of column age 'low'"),
        (InputError, "SELECT COUNT(*) FROM v", {"columns": {"age": 3}}, "expected a map"),
        (InputError, "SELECT COUNT(*) FROM v", {"columns": {"city": {"values": "Delhi"}}}, "a list of public values"),
        (InputError, "SELECT COUNT(*) FROM v", {"public": {"v": 3}}, "named twice"),
        (InputError, "SELECT COUNT(*) FROM c", {}, "Unknown table 'c'"),
    ],
)
def test_what_cannot_be_known_is_refused(error, sql, more, words):
    visits = pa.table({"who": [1, 2], "city": ["Delhi", "Pune"], "age": [3, 4]})
    given = {"data": {"v": visits}, "unit": "who", "epsilon": 1, **more}
    with pytest.raises(error, match=words):
        dither.sql(sql, **given)
