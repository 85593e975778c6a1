"""The answer as a table: told, given away in every form, and one JSON value and back."""

import csv
import io
import json
import unicodedata
from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.core.errors import DecodeError, InputError, UnknownNameError
from dither.core.events import Gaussian, Laplace, Sequence
from dither.query.result import Answer, Lost, ResultColumn

SEEN = datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - in UTC, without saying so
ANSWER = Answer(
    columns=(
        ResultColumn(name="city", type="text", values=("Delhi", None, '新德里, "x"\n')),
        ResultColumn(name="day", type="date", values=(date(2026, 1, 1), None, date(1, 1, 1))),
        ResultColumn(name="seen", type="timestamp", values=(SEEN, None, SEEN)),
        ResultColumn(name="new", type="bool", values=(True, False, None)),
        ResultColumn(name="n", type="int", values=(12345, -4, 0), half_widths=(118.0, 118.0, 118.0)),
        ResultColumn(name="mean", type="float", values=(48.359, None, 1e-9), half_widths=(0.5, None, 0.25)),
    ),
    event=Sequence((Laplace(2.0), Gaussian(4.5))),
    lost=(Lost(aggregate="COUNT(*)", share=0.017), Lost(aggregate="SUM(x)", share=None), Lost(aggregate="MAX(x)", share=0.0)),
    price=(1.0, 1e-6),
    notes=("Groups of too few units are left out.",),
)


def test_it_is_one_json_value_and_back():
    text = ANSWER.to_json()
    assert Answer.from_json(text) == ANSWER
    assert Answer.from_plain(json.loads(text)) == ANSWER
    assert Answer.from_json(text).to_json() == text


VALUES = {
    "bool": st.booleans(),
    "int": st.integers(-(2**62), 2**62),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "text": st.text(max_size=9),
    "date": st.dates(),
    "timestamp": st.datetimes(),
}


@given(st.data())
def test_any_answer_comes_back_and_is_told_within_the_width(data):
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    size = data.draw(st.integers(0, 4))
    columns = []
    for n, kind in enumerate(kinds):
        values = tuple(data.draw(st.lists(st.none() | VALUES[kind], min_size=size, max_size=size)))
        widths = None
        if kind in ("int", "float") and data.draw(st.booleans()):
            widths = tuple(data.draw(st.lists(st.none() | st.floats(0, 1e30), min_size=size, max_size=size)))
        columns.append(ResultColumn(name=f"c{n}", type=kind, values=values, half_widths=widths))
    answer = Answer(columns=tuple(columns), event=Laplace(1.0))
    assert Answer.from_json(answer.to_json()) == answer
    for line in answer.text(width=60).splitlines():
        wide = sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
        assert wide <= 60 or line.startswith("(Not shown")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"more": 1},
        {"columns": []},
        {"columns": [{"name": "n", "type": "int", "values": ["1"]}]},
        {"columns": [{"name": "n", "type": "int", "values": [True]}]},
        {"columns": [{"name": "n", "type": "money", "values": [1]}]},
        {"columns": [{"name": "n", "type": "date", "values": ["soon"]}]},
        {"columns": [{"name": "n", "type": "int", "values": [1], "half_widths": [1, 2]}]},
        {"columns": [{"name": "n", "type": "int", "values": [1], "widths": [1]}]},
        {"event": {"Laplace": "cheap"}},
        {"confidence": 2},
        {"price": ["a", 0]},
        {"lost": [{}]},
        {"notes": [3]},
    ],
    ids=str,
)
def test_what_is_not_an_answer_is_refused(change):
    with pytest.raises(DecodeError, match="The value is not an answer"):
        Answer.from_plain({**ANSWER.plain(), **change})


def test_other_values_are_refused():
    for value in (None, 3, [], {}, "x"):
        with pytest.raises(DecodeError):
            Answer.from_plain(value)
    with pytest.raises(InputError, match="differ in length"):
        Answer(columns=(), event=Laplace(1.0))
    with pytest.raises(InputError, match="another number of intervals"):
        Answer(columns=(ResultColumn(name="n", type="int", values=(1,), half_widths=()),), event=Laplace(1.0))


def test_it_is_a_table_to_look_up_in():
    assert len(ANSWER) == 3
    assert ANSWER["n"] == (12345, -4, 0)
    assert ANSWER.names == ("city", "day", "seen", "new", "n", "mean")
    assert next(ANSWER.rows()) == ("Delhi", date(2026, 1, 1), SEEN, True, 12345, 48.359)
    assert ANSWER.interval("n", 1) == (-122.0, 114.0)
    assert ANSWER.interval("mean", 1) is None
    assert ANSWER.interval("city", 0) is None
    with pytest.raises(UnknownNameError, match="city, day"):
        ANSWER.column("town")


def test_it_is_told_in_eighty_letters():
    told = str(ANSWER)
    assert max(map(len, told.splitlines())) <= 80
    assert "12,345 ± 118" in told
    assert "48.36 ± 0.50" in told
    assert "NULL" in told
    assert "Lost to bounding, about: COUNT(*): 1.7 %; SUM(x): not known." in told
    assert "Price: ε = 1, δ = 1e-06." in told
    many = Answer(columns=tuple(ResultColumn(name=f"column {n}", type="int", values=(n,) * 50) for n in range(30)), event=Laplace(1.0))
    assert "(Not shown: column" in many.text()
    assert "(The first 40 of 50 rows.)" in many.text()
    long = Answer(columns=(ResultColumn(name="t", type="text", values=("x" * 500, "\x1b[31m")),), event=Laplace(1.0))
    assert max(map(len, str(long).splitlines())) == 80
    assert "\x1b" not in str(long)


def test_it_goes_into_csv(tmp_path):
    text = ANSWER.to_csv(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes().decode() == text
    found = list(csv.reader(io.StringIO(text)))
    assert found[0] == ["city", "day", "seen", "new", "n", "n ±", "mean", "mean ±"]
    assert found[3] == ['新德里, "x"\n', "0001-01-01", SEEN.isoformat(), "", "0", "118.0", "1e-09", "0.25"]


def test_it_goes_into_arrow():
    pa = pytest.importorskip("pyarrow")
    made = ANSWER.to_arrow()
    assert made.column_names == ["city", "day", "seen", "new", "n", "n ±", "mean", "mean ±"]
    assert [str(t) for t in made.schema.types] == ["string", "date32[day]", "timestamp[us]", "bool", "int64", "double", "double", "double"]
    assert made.to_pylist()[0] == {
        "city": "Delhi",
        "day": date(2026, 1, 1),
        "seen": SEEN,
        "new": True,
        "n": 12345,
        "n ±": 118.0,
        "mean": 48.359,
        "mean ±": 0.5,
    }
    empty = Answer(columns=tuple(ResultColumn(name=c.name, type=c.type, values=()) for c in ANSWER.columns), event=Laplace(1.0))
    assert empty.to_arrow().schema.types == [made.schema.field(c.name).type for c in ANSWER.columns]
    assert pa.Table is type(made)


def test_it_goes_into_frames():
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    assert ANSWER.to_pandas()["n"].tolist() == [12345, -4, 0]
    assert ANSWER.to_polars()["mean ±"].to_list() == [0.5, None, 0.25]


def test_names_that_would_meet_are_kept_apart():
    clash = Answer(
        columns=(
            ResultColumn(name="n", type="int", values=(1,), half_widths=(2.0,)),
            ResultColumn(name="n ±", type="int", values=(3,)),
        ),
        event=Laplace(1.0),
    )
    assert clash.to_csv() == "n,n ±±,n ±\n1,2.0,3\n"
