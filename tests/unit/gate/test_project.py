"""A project: a file, its ledger, and what is asked of it."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from dither.core.errors import ConflictError, InputError, OverBudgetError, RefusedError, UnknownNameError
from dither.core.plans import State
from dither.gate import measure
from dither.gate.path import RunError
from dither.gate.project import Project
from dither.ledger.book import Ledger

TEXT = """\
datasets:
  visits:
    source: visits.csv
    unit: {key: visitor}
    columns:
      city: {type: text, values: [Delhi, Pune]}
      age: {type: int, min: 0, max: 100}
  monthly:
    source: monthly.csv
    unit: {row: true}
    blocks: {column: day, every: month}
    columns: {day: {type: date}}
accounts:
  clinic/research: {dataset: visits, epsilon: 1}
  clinic:
    - {dataset: visits, epsilon: 2, split: {reports: 25 %}}
    - {dataset: monthly, epsilon: 0.5, per: block}
jobs:
  cities:
    {dataset: visits, account: clinic/reports, purpose: report,
     options: {statistic: histogram, column: city, rows_per_unit: 2, epsilon: 0.25}}
  once:
    {dataset: visits, account: clinic/research, purpose: report, id: once-1, options: {statistic: count, rows_per_unit: 1, epsilon: 0.5}}
  broken:
    {dataset: visits, account: clinic, purpose: report, options: {statistic: sum, column: city, rows_per_unit: 1, epsilon: 0.5}}
"""
ASK = {"dataset": "visits", "account": "clinic/research", "purpose": "a test", "rows_per_unit": 1}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "dither.yaml").write_text(TEXT)
    (tmp_path / "visits.csv").write_text("visitor,city,age\n" + "".join(f"v{i},{('Delhi', 'Pune')[i % 2]},{i}\n" for i in range(50)))
    (tmp_path / "monthly.csv").write_text("day\n2026-01-01\n2026-02-01\n2026-02-02\n")
    return tmp_path


@pytest.fixture
def project(folder):
    with Project.load(folder / "dither.yaml") as made:
        yield made


def change(folder, old, new):
    path = folder / "dither.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


# ------------------------------------------------------------------------------------------------ loading


def test_loading_declares_what_the_file_says(project, folder):
    terms = project.ledger.terms()
    assert set(terms.datasets) == {"visits", "monthly"}
    assert terms.accounts == {("clinic",), ("clinic", "research"), ("clinic", "reports")}
    found = {("/".join(t.account), t.dataset, t.per): (float(t.filter.epsilon), t.filter.kind) for t in terms.limits.values()}
    assert found == {
        ("clinic", "visits", "dataset"): (2, "pure"),
        ("clinic", "monthly", "block"): (0.5, "pure"),
        ("clinic/research", "visits", "dataset"): (1, "pure"),
        ("clinic/reports", "visits", "dataset"): (0.5, "pure"),
    }
    assert (folder / "dither.db").exists()
    assert project.names == ("cities", "once", "broken")
    assert list(project.jobs) == ["cities", "once", "broken"]
    assert set(project.datasets) == {"visits", "monthly"}
    assert project.accounts[0] == ("clinic",)


def test_loading_again_writes_nothing(folder):
    with Project.load(folder / "dither.yaml") as project:
        before = project.ledger.tail()
    with Project.load(str(folder / "dither.yaml")) as project:
        assert project.ledger.tail() == before


def test_loading_again_writes_nothing_where_an_account_has_two_limits_and_a_split(folder):
    change(
        folder,
        "{dataset: monthly, epsilon: 0.5, per: block}",
        """{dataset: monthly, epsilon: 3, split: {x: 0.5}}
    - {dataset: monthly, epsilon: 0.5, per: block}""",
    )
    with Project.load(folder / "dither.yaml") as project:
        before = project.ledger.tail()
        found = {(t.per.value, float(t.filter.epsilon)) for t in project.ledger.terms().limits.values() if t.account == ("clinic", "x")}
    assert found == {("dataset", 1.5), ("block", 0.25)}
    with Project.load(folder / "dither.yaml") as project:
        assert project.ledger.tail() == before


def test_the_book_is_beside_the_file_wherever_one_stands(folder, tmp_path_factory, monkeypatch):
    with Project.load(folder / "dither.yaml") as project:
        project.run_job("once")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with Project.load(os.path.relpath(folder / "dither.yaml")) as project:
        assert project.run_job("once").receipt.replayed
    monkeypatch.chdir(folder)
    with Project.load() as project:
        assert project.run_job("once").receipt.replayed


def test_a_wider_limit_is_refused_at_its_place(folder):
    Project.load(folder / "dither.yaml").close()
    change(folder, "{dataset: visits, epsilon: 1}", "{dataset: visits, epsilon: 1.5}")
    with pytest.raises(RefusedError, match=r"dither\.yaml:14:47: Account 'clinic/research' has limit L\d on dataset 'visits' already"):
        Project.load(folder / "dither.yaml")
    with Ledger.open(f"sqlite:///{folder / 'dither.db'}") as ledger:
        assert [float(t.filter.epsilon) for t in ledger.terms().limits.values() if t.account == ("clinic", "research")] == [1.0]
        assert any(json.loads(line)["kind"] == "refusal" for line in ledger.lines())


@pytest.mark.parametrize(
    ("old", "new", "kind", "told"),
    [
        ("{key: visitor}", "{row: true}", ConflictError, r"dither\.yaml:3:5: Dataset 'visits' was declared in another way"),
        ("every: month", "every: day", ConflictError, r"Dataset 'monthly' was declared in another way"),
        ("reports: 25 %", "reports: 26 %", RefusedError, r"dither\.yaml:16:44: Account 'clinic/reports' has limit"),
        ("clinic/research: {d", "сlinic/x: {}\n  clinic/research: {d", InputError, r"dither\.yaml:14:3: .*looks like"),
        ("source: visits.csv", "sauce: visits.csv", InputError, r"dither\.yaml:3:5: "),
        ("datasets:", "ledger: oracle://x/y\ndatasets:", InputError, r"dither\.yaml:1:9: "),
    ],
)
def test_what_the_ledger_will_not_have_is_told_at_its_place(folder, old, new, kind, told):
    Project.load(folder / "dither.yaml").close()
    change(folder, old, new)
    with pytest.raises(kind, match=told) as caught:
        Project.load(folder / "dither.yaml")
    assert str(caught.value).count("dither.yaml:") == str(caught.value).count("\n") + 1


def test_a_clock_and_an_actor_reach_the_book(folder):
    at = datetime(2026, 11, 19, 6, tzinfo=UTC)
    with Project.load(folder / "dither.yaml", actor="alice", clock=lambda: at) as project:
        body = json.loads(next(iter(project.ledger.lines())))
    assert (body["by"], body["at"]) == ("alice", "2026-11-19T06:00:00.000000Z")


# ------------------------------------------------------------------------------------------------ asking


def test_a_job_is_answered_and_charged_at_every_level(project):
    made = project.run_job("cities")
    assert [e["value"] for e in made.value["estimates"]] == ["Delhi", "Pune"]
    assert made.receipt.state is State.COMMITTED
    found = {"/".join(s.limit.account): s.share for s in project.ledger.standings(dataset="visits")}
    assert found == pytest.approx({"clinic": 0.125, "clinic/research": 0, "clinic/reports": 0.5})


def test_a_job_with_an_id_is_paid_once(project, folder):
    first = project.run_job("once")
    (folder / "visits.csv").unlink()
    again = project.run_job("once")
    assert (again.value, again.receipt.replayed, again.receipt.charge_id) == (first.value, True, "once-1")
    assert project.ledger.balance("clinic/research").share == pytest.approx(0.5)


def test_what_is_wrong_with_a_job_is_told_at_its_place(project):
    with pytest.raises(InputError, match=r"dither\.yaml:25:5: The column 'city' is declared as text"):
        project.run_job("broken")
    with pytest.raises(UnknownNameError, match="Unknown job 'weekly': expected one of broken, cities, once"):
        project.run_job("weekly")


def test_measuring_from_python(project):
    made = project.measure("count", epsilon=0.25, id="m1", where={"age": {"min": 18}}, **ASK)
    assert made.value["statistic"] == "count"
    assert project.measure("count", epsilon=0.25, id="m1", where={"age": {"min": 18}}, **ASK).receipt.replayed
    with pytest.raises(ConflictError):
        project.measure("count", epsilon=0.25, id="m1", where={"age": {"min": 19}}, **ASK)
    assert project.measure("count", accuracy=30, **ASK).accuracy.half_width <= 30
    with pytest.raises(OverBudgetError):
        project.measure("count", epsilon=0.75, **ASK)
    with pytest.raises(UnknownNameError, match="Unknown dataset 'visit'"):
        project.measure("count", epsilon=0.1, **(ASK | {"dataset": "visit"}))
    with pytest.raises(UnknownNameError, match="Unknown account"):
        project.measure("count", epsilon=0.1, **(ASK | {"account": "nobody"}))
    with pytest.raises(InputError, match="purpose='' is not allowed"):
        project.measure("count", epsilon=0.1, **(ASK | {"purpose": ""}))
    with pytest.raises(TypeError, match="purpose"):
        project.measure("count", epsilon=0.1, dataset="visits", account="clinic")


def test_a_plan_is_free(project):
    before = project.ledger.tail()
    assert "costs ε = 0.25" in project.plan(project.job("cities")).explain()
    assert project.ledger.tail() == before


def test_blocks_have_budgets_of_their_own(project):
    ask = {"dataset": "monthly", "account": "clinic", "purpose": "a test", "epsilon": 0.5}
    project.measure("count", blocks=["2026-01"], **ask)
    project.measure("count", blocks=["2026-02"], **ask)
    with pytest.raises(OverBudgetError):
        project.measure("count", blocks=["2026-02", "2026-03"], **ask)
    project.measure("count", blocks=["2026-03"], **ask)
    with pytest.raises(InputError, match="divided into blocks"):
        project.measure("count", **ask)


def test_a_source_that_is_gone_costs_nothing_and_can_be_asked_again(project, folder):
    kept = (folder / "visits.csv").read_bytes()
    (folder / "visits.csv").unlink()
    with pytest.raises(InputError, match=r"The source 'visits\.csv' is not there"):
        project.run_job("once")
    assert project.ledger.balance("clinic/research").share == 0
    (folder / "visits.csv").write_bytes(kept)
    assert project.run_job("once").receipt.charge_id == "once-1~2"
    assert project.run_job("once").receipt.replayed


def test_threads_share_a_project_and_never_overspend(project):
    def one(_):
        try:
            return project.measure("count", epsilon=0.125, **ASK).receipt.charge_id
        except OverBudgetError:
            return None

    with ThreadPoolExecutor(8) as pool:
        found = [name for name in pool.map(one, range(24)) if name is not None]
    assert len(found) == len(set(found)) == 8
    assert project.ledger.balance("clinic/research").share == 1


# ------------------------------------------------------------------------------------------------ the end of a process

DYING = """
import os, sys
from dither.gate import engines, measure
from dither.gate.project import Project

class Dying:
    plan, open = staticmethod(measure.plan), staticmethod(measure.open)
    def run(plan, data, rng):
        next(data.batches(["age"]))
        os._exit(9)

engines.register("dying", Dying)
project = Project.load(sys.argv[1])
asked = {"dataset": "visits", "account": "clinic/research", "purpose": "a test", "id": "d1"}
project.run(project.request("dying", **asked, statistic="count", rows_per_unit=1, epsilon=0.5))
"""


def test_a_process_that_dies_in_a_run_has_spent_it(folder):
    done = subprocess.run([sys.executable, "-c", DYING, str(folder / "dither.yaml")], check=False)
    assert done.returncode == 9
    with Project.load(folder / "dither.yaml") as project:
        assert project.ledger.state("d1") is State.COMMITTED
        assert project.ledger.balance("clinic/research").share == pytest.approx(0.5)
        with pytest.raises(RunError, match="is spent and has no release"):
            project.measure("count", epsilon=0.5, id="d1", **ASK)


def test_a_run_that_fails_says_so_and_no_more(project, monkeypatch):
    def broken(plan, data, rng):
        data.close()
        raise ValueError("44")

    monkeypatch.setattr(measure, "run", broken)
    with pytest.raises(RunError) as caught:
        project.run_job("once")
    assert "44" not in str(caught.value)
