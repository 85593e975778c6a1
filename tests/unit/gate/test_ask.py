"""SQL on the one path: what a project's facts and a request become, what is refused, and that blocks hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dither.core.errors import ConflictError, InputError, OverBudgetError, RefusedError, UnknownNameError
from dither.core.units import Neighbors, PrivacyUnit, Trust
from dither.gate import ask
from dither.gate.engines import Column, Facts, Request
from dither.gate.path import execute
from dither.gate.project import Project
from dither.ledger.blocks import Blocks, Every
from dither.ledger.book import Ledger

HUGE = 1e9
"""An ε at which answers are exact to the grid."""
ROWS = [
    ("ann", "Delhi", 10.0, "2026-01-05"),
    ("ann", "Pune", 20.0, "2026-02-05"),
    ("bob", "Delhi", 30.0, "2026-01-31"),
    ("bob", "Delhi", 1e9, "2026-02-01"),
    ("eve", "Mars", 5.0, "2026-01-09"),
    ("", "Delhi", 5.0, "2026-01-09"),
]


def facts(folder: Path, **more: Any) -> Facts:
    lines = ["user,city,amount,day", *(",".join(map(str, row)) for row in ROWS)]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    given: dict[str, Any] = {
        "name": "events",
        "source": "events.csv",
        "folder": folder,
        "unit": PrivacyUnit(dataset="events", key="user"),
        "columns": (
            Column(name="user", type="text"),
            Column(name="city", type="text", values=("Delhi", "Pune")),
            Column(name="amount", type="float", min=0, max=100),
            Column(name="day", type="date"),
        ),
    }
    return Facts(**{**given, **more})


def request(sql: str, **more: Any) -> Request:
    own = {key: more.pop(key) for key in ("blocks", "id") if key in more}
    options = {"sql": sql, "epsilon": HUGE / 1e6, **more}
    return Request.of("sql", dataset="events", account="acme", purpose="report", options=options, **own)


def exact(made: Facts, sql: str, **more: Any) -> list[tuple[Any, ...]]:
    """What a query answers where noise is next to nothing (rows per unit are declared, so that nothing is lost either)."""
    planned = ask.plan(request(sql, rows_per_unit=10, **more), made)
    return list(ask.SqlRelease.of(ask.run(planned, ask.open(made), None)).table.rows())  # type: ignore[arg-type]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite://") as ledger:
        ledger.add_dataset(facts(tmp_path).terms)
        ledger.grant("acme", "events", epsilon=2, delta=1e-5)
        yield ledger


def test_a_query_is_charged_and_stored_once(tmp_path: Path, book: Ledger):
    asked = request("SELECT city, COUNT(*) AS n FROM events GROUP BY city", epsilon=0.5, id="q1")
    made = facts(tmp_path)
    first = execute(book, asked, made)
    (tmp_path / "events.csv").unlink()
    again = execute(book, asked, made)
    assert first.value == again.value
    assert again.receipt is not None
    assert again.receipt.replayed
    assert first.receipt is not None
    assert 0.5 <= first.receipt.spent.epsilon < 0.52  # read off Rényi orders
    assert ask.SqlRelease.of(first).table["city"] == ("Delhi", "Pune")
    with pytest.raises(ConflictError):
        execute(book, request("SELECT COUNT(*) AS n FROM events", epsilon=0.5, id="q1"), facts(tmp_path))
    with pytest.raises(OverBudgetError):
        execute(book, request("SELECT COUNT(*) AS n FROM events", epsilon=1.9), facts(tmp_path))


def test_what_is_refused_costs_nothing(tmp_path: Path, book: Ledger):
    before = book.tail()[0]
    for sql in ("SELECT user FROM events", "SELECT user, COUNT(*) FROM events GROUP BY user", "SELECT * FROM events"):
        with pytest.raises(RefusedError):
            execute(book, request(sql), facts(tmp_path))
    with pytest.raises(InputError):
        execute(book, request("SELECT COUNT(* FROM events"), facts(tmp_path))
    with pytest.raises(UnknownNameError, match="amuont"):
        execute(book, request("SELECT SUM(amuont) FROM events"), facts(tmp_path))
    assert book.tail()[0] == before


def test_answers_are_those_of_plain_sql_where_noise_is_nothing(tmp_path: Path):
    found = exact(facts(tmp_path), "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM events GROUP BY city ORDER BY city")
    assert [(c, n) for c, n, _ in found] == [("Delhi", 3), ("Pune", 1)]  # Mars is no public key, and a row without a user is nobody's
    assert [s for _, _, s in found] == pytest.approx([140.0, 20.0], abs=8)  # 1e9 is held at 100
    assert exact(facts(tmp_path), "SELECT COUNT(DISTINCT user) AS people FROM events") == [(3,)]


def test_only_rows_of_the_charged_blocks_are_counted(tmp_path: Path):
    made = facts(tmp_path, blocks=Blocks(column="day", every=Every.MONTH), disjoint=False)
    count = "SELECT COUNT(*) AS n FROM events"
    assert exact(made, count, blocks=["2026-01"]) == [(3,)]
    assert exact(made, count, blocks=["2026-02"]) == [(2,)]
    assert exact(made, count, blocks=["2026-01", "2026-02"]) == [(5,)]
    assert exact(made, count, blocks=["2026-03"]) == [(0,)]
    nested = "SELECT COUNT(*) AS n FROM (SELECT user, COUNT(*) AS k FROM events GROUP BY user) WHERE k >= 2"
    assert exact(made, nested, blocks=["2026-01"]) == [(0,)]
    with pytest.raises(InputError, match="name the blocks"):
        exact(made, count)
    with pytest.raises(InputError, match="month such as"):
        exact(made, count, blocks=["January"])


def test_named_partitions_are_blocks_too(tmp_path: Path):
    made = facts(tmp_path, blocks=Blocks(column="city", partitions=("Delhi", "Pune")), disjoint=False)
    assert exact(made, "SELECT COUNT(*) AS n FROM events", blocks=["Pune"]) == [(1,)]


def test_units_that_reach_over_blocks_are_noised_as_if_replaced(tmp_path: Path):
    reaching = facts(tmp_path, blocks=Blocks(column="day", every=Every.MONTH), disjoint=False)
    apart = replace(reaching, disjoint=True)
    count = "SELECT COUNT(*) AS n FROM events"
    two = ["2026-01", "2026-02"]

    def neighbors(made: Facts, blocks: list[str]) -> Neighbors:
        return ask.plan(request(count, blocks=blocks), made).inner.goals[0].neighbors

    assert neighbors(reaching, two) is Neighbors.REPLACE
    assert neighbors(reaching, two[:1]) is Neighbors.ADD_REMOVE
    assert neighbors(apart, two) is Neighbors.ADD_REMOVE
    assert ask.plan(request(count, blocks=two), reaching).unit == reaching.unit


def test_the_digest_tells_apart_what_answers_differently(tmp_path: Path):
    made = facts(tmp_path, blocks=Blocks(column="day", every=Every.MONTH), disjoint=False)
    base: dict[str, Any] = {"sql": "SELECT SUM(amount) AS s FROM events", "blocks": ["2026-01"]}
    others = [
        (made, base),
        (made, {**base, "sql": "SELECT SUM(amount) AS s FROM events WHERE city = 'Pune'"}),
        (made, {**base, "blocks": ["2026-02"]}),
        (made, {**base, "epsilon": 0.5}),
        (made, {**base, "rows_per_unit": 3}),
        (replace(made, source="other.csv"), base),
        (replace(made, columns=(*made.columns[:2], Column(name="amount", type="float", min=0, max=50), made.columns[3])), base),
    ]
    assert len({ask.plan(request(**options), f).digest for f, options in others}) == len(others)


def test_the_price_is_said_once_or_alike(tmp_path: Path):
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.25, delta = 1e-7, privacy_unit_column = user) COUNT(*) AS n FROM events"
    planned = ask.plan(Request.of("sql", dataset="events", account="acme", purpose="p", options={"sql": clause}), facts(tmp_path))
    assert (planned.inner.epsilon, planned.inner.delta) == (0.25, 1e-7)
    with pytest.raises(InputError, match="not what the query's OPTIONS say"):
        ask.plan(request(clause, epsilon=1.0), facts(tmp_path))
    with pytest.raises(InputError, match="has no price"):
        ask.plan(request("SELECT COUNT(*) AS n FROM events", epsilon=None), facts(tmp_path))


@pytest.mark.parametrize(
    ("more", "match"),
    [({"unit": None}, "is public"), ({"trust": Trust.LOCAL}, "expected central"), ({"through": "users.user"}, "another table")],
    ids=["public", "local", "through"],
)
def test_datasets_that_are_not_asked_in_sql(tmp_path: Path, more: dict[str, Any], match: str):
    with pytest.raises(InputError, match=match):
        ask.plan(request("SELECT COUNT(*) AS n FROM events"), facts(tmp_path, **more))


PROJECT = """
ledger: sqlite:///book.db
datasets:
  events:
    source: events.csv
    unit: {key: user}
    columns:
      city: {type: text}
      amount: {type: float, min: 0, max: 100}
  places: {source: places.csv, public: true, key: city, columns: {city: {type: text}, country: {type: text, values: [India]}}}
accounts:
  acme: {dataset: events, epsilon: 100, delta: 1e-5}
"""


def test_a_project_answers_sql_and_joins_what_is_public(tmp_path: Path):
    facts(tmp_path)
    (tmp_path / "places.csv").write_text("city,country\nDelhi,India\nPune,India\n")
    (tmp_path / "dither.yaml").write_text(PROJECT)
    with Project.load(tmp_path / "dither.yaml") as project:
        made = project.sql(
            "SELECT country, COUNT(*) AS n FROM events JOIN places USING (city) GROUP BY country",
            account="acme",
            purpose="report",
            epsilon=50,
            bounds={"rows_per_unit": 10},
        )
        assert made.table["country"] == ("India",)
        assert abs(made.table["n"][0] - 4) <= 3  # type: ignore[operator]
        assert made.guarantee.epsilon == 50
        assert "India" in str(made)
        assert made.to_arrow().num_rows == 1
        with pytest.raises(UnknownNameError, match="Unknown table 'nothing'"):
            project.sql("SELECT COUNT(*) FROM nothing", account="acme", purpose="report", epsilon=1)


def test_keys_alone_with_a_quantile_are_answered(tmp_path: Path):
    made = facts(tmp_path, columns=(Column(name="user", type="text"), Column(name="city", type="text"), *facts(tmp_path).columns[2:]))
    asked = request("SELECT city, MEDIAN(amount) AS middle FROM events GROUP BY city", rows_per_unit=3, delta=0.4)
    found = ask.SqlRelease.of(ask.run(ask.plan(asked, made), ask.open(made), None)).table  # type: ignore[arg-type]
    assert found.names == ("city", "middle")


def test_what_is_kept_for_one_set_of_public_keys_is_not_the_answer_for_another(tmp_path: Path):
    made = facts(tmp_path, source="many.csv")
    rows = [f"u{i},Delhi,1,2026-01-0{1 + i % 4}" for i in range(200)]
    (tmp_path / "many.csv").write_text("\n".join(["user,city,amount,day", *rows]) + "\n")
    days = "SELECT day, COUNT(*) AS n FROM events WHERE {} GROUP BY day ORDER BY day"
    for pair in (("01", "02"), ("03", "04")):
        chosen = ", ".join(f"DATE '2026-01-{day}'" for day in pair)
        assert [n for _, n in exact(made, days.format(f"day IN ({chosen})"))] == [50, 50]
    assert len(exact(made, "SELECT day, COUNT(*) AS n FROM events GROUP BY day", delta=1e-6)) == 4  # selected, for nothing is listed
    assert [n for _, n in exact(made, days.format("day IN (DATE '2026-01-04')"))] == [50]


@pytest.mark.parametrize("kind", ["float", "timestamp"])
def test_keys_that_take_two_people_for_one_are_refused(tmp_path: Path, kind: Any):
    made = facts(tmp_path, columns=(Column(name="user", type=kind), *facts(tmp_path).columns[1:]))
    with pytest.raises(InputError, match="declare it as text or int"):
        ask.plan(request("SELECT COUNT(*) AS n FROM events"), made)
