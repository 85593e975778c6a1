"""The error that is told beforehand is that of the answer: of every aggregate, with and without a look, with private keys."""

import pyarrow as pa
import pytest

from dither.core.units import PrivacyUnit
from dither.query.answer import answer, plan_question
from dither.query.bind import ask
from dither.query.duck import open_source
from dither.query.expected import TRIED, expected, units_for_key
from dither.query.facts import Catalog, Column, Table


def table(key="who"):
    columns = (
        Column(name="who", type="int"),
        Column(name="city", type="text", values=("Delhi", "Pune")),
        Column(name="town", type="text"),
        Column(name="age", type="int", low=0, high=100),
    )
    return Table(name="v", columns=columns, unit=PrivacyUnit(dataset="v", key=key))


def planned(sql, key="who", **more):
    return plan_question(ask(sql, Catalog.of(table(key))).question, epsilon=1, **more)


FRAME = pa.table(
    {
        "who": list(range(500)) * 2,
        "city": ["Delhi", "Pune"] * 500,
        "town": ["Delhi", "Pune"] * 500,
        "age": [i % 80 for i in range(1_000)],
    }
)


NUMBERS = ["COUNT(*)", "COUNT(age)", "SUM(age)", "COUNT(DISTINCT who)"]
FACTS = [("who", {"rows_max": 3}), (None, {}), ("who", {"rows_max": 3, "delta": 1e-6})]


@pytest.mark.parametrize(("key", "more", "number"), [(*f, n) for f in FACTS for n in NUMBERS if f[0] or "DISTINCT" not in n])
def test_it_is_the_half_width_of_the_answer(key, more, number):
    plan = planned(f"SELECT city, {number} AS n FROM v GROUP BY city", key, **more)
    told = expected(plan)[0]
    made = answer(plan, open_source((table(key), FRAME)))
    assert made.column("n").half_widths == pytest.approx([told.errors[0].half_width] * 2)
    assert (told.chosen, len(told.errors)) == (True, 1)
    assert told.what == number.replace("who", "unit")


def test_where_a_look_chooses_there_is_one_for_each_bound():
    told = expected(planned("SELECT SUM(age) AS s, MEDIAN(age) AS m, COUNT(DISTINCT who) AS u FROM v"))
    assert [(n.what, n.chosen, [e.rows for e in n.errors]) for n in told] == [
        ("SUM(age)", False, list(TRIED)),
        ("QUANTILES(age)", False, list(TRIED)),
        ("COUNT(DISTINCT unit)", True, [1]),
    ]
    for n in told[:2]:
        widths = [e.half_width for e in n.errors]
        assert widths == sorted(widths)
        assert [e.ranks for e in n.errors] == [n.what.startswith("QUANTILES")] * 3


def test_a_middle_that_was_taken_away_is_told():
    assert [n.what for n in expected(planned("SELECT AVG(age + 1) AS a FROM v", rows_max=2))] == ["COUNT(age + 1)", "SUM(age + 1 - 51)"]


def test_private_keys_need_people():
    few = units_for_key(planned("SELECT town, COUNT(*) AS n FROM v GROUP BY town", delta=1e-3))
    many = units_for_key(planned("SELECT town, COUNT(*) AS n FROM v GROUP BY town", delta=1e-9))
    assert few is not None
    assert many is not None
    assert 1 < few < many < 200
    assert units_for_key(planned("SELECT city, COUNT(*) AS n FROM v GROUP BY city")) is None
