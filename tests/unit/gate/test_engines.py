"""Requests that are one thing however they are made, and engines found by their names: real ones, registered here."""

import importlib
import math
import sys
import threading
import types
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither import events as ev
from dither.core.encoding import canonical_json
from dither.core.errors import InputError, UnknownNameError
from dither.core.plans import Release
from dither.core.units import PrivacyUnit, Trust
from dither.gate import engines
from dither.gate.engines import Column, Facts, Request
from dither.ledger.terms import Blocks, Dataset, Every

UNIT = PrivacyUnit(dataset="events", key="user_id")


def request(**more):
    return Request.of("count", **{"dataset": "events", "account": "acme/ads", "purpose": "weekly report", **more})


# ------------------------------------------------------------------------------------------------ a small real engine


class Plan:
    """How many rows, at ε = 1."""

    def __init__(self, unit):
        self.unit, self.event, self.digest = unit, ev.DiscreteLaplace(1.0), "sha256:count"

    def explain(self):
        return "counts rows"


class Count:
    """Counts the lines of a file; its noise is drawn by whoever hands it a source of randomness."""

    @staticmethod
    def plan(asked, dataset):
        return Plan(dataset.unit)

    @staticmethod
    def open(dataset):
        return dataset.path.open()

    @staticmethod
    def run(plan, data, rng):
        with data:
            value = sum(1 for _ in data) + rng()
        return Release(value=value, event=plan.event, unit=plan.unit, plan_digest=plan.digest)


@pytest.fixture
def names(monkeypatch):
    """A registry of its own for each test."""
    monkeypatch.setattr(engines, "_REGISTERED", dict(engines._REGISTERED))
    return engines._REGISTERED


def test_an_engine_is_three_functions(names, tmp_path):
    engines.register("count", Count)
    (tmp_path / "events.csv").write_text("a\nb\nc\n")
    found = engines.engine("count")
    facts = Facts(name="events", source="events.csv", folder=tmp_path, unit=UNIT)
    made = found.run(found.plan(request(), facts), found.open(facts), lambda: 2)
    assert (made.value, made.unit) == (5, UNIT)
    assert "count" in engines.engine_names()
    assert engines.early("count")


def test_a_name_is_taken_once(names):
    engines.register("count", Count)
    engines.register("count", Count)
    with pytest.raises(InputError, match="there already"):
        engines.register("count", types.SimpleNamespace(plan=len, open=len, run=len))
    engines.register("later", "acme.later")
    engines.register("later", "acme.later")
    for other in ("acme.other", Count):
        with pytest.raises(InputError, match="there already"):
            engines.register("later", other)
    assert engines._REGISTERED["count"] is Count


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (None, r"no function plan\(\)"),
        (object(), r"no function plan\(\)"),
        (types.SimpleNamespace(plan=len, open=len), r"no function run\(\)"),
        (types.SimpleNamespace(plan=len, open="x", run=len), r"no function open\(\)"),
        ("", "dotted name"),
        (".acme", "dotted name"),
        ("..", "dotted name"),
        ("acme engine", "dotted name"),
        ("os; import sys", "dotted name"),
        ("a\0b", "dotted name"),
    ],
    ids=range(10),
)
def test_what_is_no_engine_is_not_registered(names, module, told):
    before = dict(names)
    with pytest.raises(InputError, match=told):
        engines.register("new", module)
    assert before == engines._REGISTERED


@pytest.mark.parametrize("name", ["", None, 7, "a\0b", "x" * 101, ["count"]], ids=range(6))
def test_a_name_of_an_engine_is_a_text(names, name):
    with pytest.raises(InputError):
        engines.register(name, Count)
    with pytest.raises(UnknownNameError, match="Unknown engine"):
        engines.engine(name)
    assert not engines.early(name)


def test_unknown_engines_list_the_known(names):
    engines.register("count", Count)
    with pytest.raises(UnknownNameError, match=r"Unknown engine 'cuont': expected one of .*count"):
        engines.engine("cuont")
    assert engines.nearest("cuont", engines.engine_names()) == "did you mean 'count'?"
    assert engines.nearest("zzz", engines.engine_names()) == ""
    assert engines.nearest(None, []) == ""
    assert engines.nearest("x" * 10**6, ["x" * 10**5] * 100) == ""


def test_an_engine_that_cannot_be_imported_is_told(names, tmp_path, monkeypatch):
    (tmp_path / "acme_broken.py").write_text("import no_such_package_at_all\n")
    (tmp_path / "acme_short.py").write_text("def plan(): ...\n")
    (tmp_path / "acme_whole.py").write_text("def plan(): ...\ndef open(): ...\ndef run(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("none", "broken", "short", "whole"):
        engines.register(name, f"acme_{name}")
    assert "acme_whole" not in sys.modules  # imported when it is asked for, not before
    with pytest.raises(InputError, match="there is no module 'acme_none'"):
        engines.engine("none")
    with pytest.raises(InputError, match="or it lacks a package"):
        engines.engine("broken")
    with pytest.raises(InputError, match=r"'short' has no function open\(\)"):
        engines.engine("short")
    assert engines.engine("whole").__name__ == "acme_whole"
    for name in ("short", "whole"):
        monkeypatch.delitem(sys.modules, f"acme_{name}")


def installed(folder, **points):
    """A package as pip lays it out, with entry points."""
    info = folder / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dither.engines]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()))


def test_an_installed_package_adds_engines(names, tmp_path, monkeypatch):
    (tmp_path / "acme_engine.py").write_text("def plan(): ...\ndef open(): ...\ndef run(): ...\n")
    installed(tmp_path, acme="acme_engine", gone="acme_gone", lost="acme_engine:none", count="acme_gone")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    engines.register("count", Count)
    assert {"acme", "gone", "lost", "count"} <= set(engines.engine_names())
    assert engines.engine("acme").__name__ == "acme_engine"
    assert engines.engine("count") is Count  # what is registered here comes first
    assert not engines.early("acme")
    for name in ("gone", "lost"):
        with pytest.raises(InputError, match="reinstall the package"):
            engines.engine(name)
    monkeypatch.delitem(sys.modules, "acme_engine")


def test_many_who_register_at_once_get_one_engine(names):
    refused, start = [], threading.Barrier(8)

    def work():
        mine = types.SimpleNamespace(plan=len, open=len, run=len, by=threading.get_ident())
        start.wait()
        try:
            engines.register("raced", mine)
        except InputError:
            refused.append(mine)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    assert engines.engine("raced") not in refused


# ------------------------------------------------------------------------------------------------ requests


def test_a_request_is_one_thing_however_it_is_made():
    made = request(options={"statistic": "count", "epsilon": 0.1})
    assert made.fields == {"statistic": "count", "epsilon": 0.1}
    spelled = Request(
        engine="count",
        dataset="events",
        account=["acme", "ads"],
        purpose="weekly report",
        options='{ "statistic" : "count",\n "epsilon": 1e-1 }',
        name="weekly",
    )
    assert spelled == made
    assert (spelled.options, hash(spelled)) == (made.options, hash(made))
    assert request(blocks=["a", "b"]).blocks == request(blocks=("a", "b")).blocks == ("a", "b")
    with pytest.raises(FrozenInstanceError):
        made.engine = "other"


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    )
)
def test_the_fields_of_a_request_come_back_as_they_were(options):
    made = request(options=options)
    assert made.fields == options
    assert made.options == canonical_json(options)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"dataset": d} for d in ("", None, 7, "a\nb")),
        *({"account": a} for a in ("", "acme/", None, 7, ("acme", ""), "аcme\u200b", ())),
        *({"purpose": p} for p in ("", None, "x" * 801, "a\nb", 7)),
        *({"blocks": b} for b in ("2026-11", None, 7, ["a", "a"], [7], [""], {"a"}, ["a\nb"])),
        *({"options": o} for o in ([], "x", 7, {1: 2}, {"a": math.nan}, {"a": {1}}, {"a": object()})),
        *({"id": i} for i in ("", 7, "x" * 201, "a\nb")),
        *({"name": n} for n in (None, 7, "a\nb")),
    ],
    ids=range(38),
)
def test_a_request_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError):
        request(**wrong)


@pytest.mark.parametrize(
    "options", ["", "[]", "7", "null", "{", '{"a":1,"a":2}', '{"a":NaN}', '{"a":1e999}', '{"a":' * 10_000, None, 7, {}], ids=range(12)
)
def test_options_are_the_text_of_one_map(options):
    with pytest.raises(InputError):
        Request(engine="count", dataset="events", account=("acme",), purpose="p", options=options)


def test_the_name_of_an_engine_is_a_text_too():
    for wrong in ("", None, "x" * 101, "a\nb"):
        with pytest.raises(InputError):
            Request.of(wrong, dataset="events", account="acme", purpose="p")


# ------------------------------------------------------------------------------------------------ public facts


def test_facts_tell_the_ledger_its_terms():
    months = Blocks(column="ts", every=Every.MONTH)
    facts = Facts(name="events", source="events.csv", folder=Path("/data"), unit=UNIT, trust=Trust.LOCAL, blocks=months, disjoint=True)
    assert facts.terms == Dataset(name="events", unit=UNIT, trust="local", blocks=months, disjoint=True)
    assert facts.path == Path("/data/events.csv")
    assert facts.one_unit == "one user_id"
    assert Facts(name="events", source="x", unit=PrivacyUnit(dataset="events")).one_unit == "one row"
    assert facts == Facts(**{**{f: getattr(facts, f) for f in ("name", "source", "unit", "trust", "blocks", "disjoint")}, "folder": Path()})


def test_a_public_dataset_has_no_account():
    with pytest.raises(InputError, match="is public"):
        _ = Facts(name="cities", source="cities.csv").terms


def test_columns_are_found_by_name():
    facts = Facts(
        name="events", source="x", unit=UNIT, columns=(Column(name="city", type="text"), Column(name="age", type="int", min=0, max=120))
    )
    assert facts.column("age").max == 120
    with pytest.raises(UnknownNameError, match=r"column of events 'agee': expected one of age, city"):
        facts.column("agee")
    with pytest.raises(UnknownNameError, match="no columns are declared"):
        Facts(name="events", source="x", unit=UNIT).column("age")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"name": n} for n in ("", None, 7, "a\nb")),
        *({"type": t} for t in ("number", "", None, ["int"])),
        *({"min": m} for m in (math.nan, -math.inf, "0", True, 1 + 0j)),
        *({"max": m} for m in (math.nan, math.inf, "0", False)),
        {"min": 1, "max": 0},
        {"values": ["a"]},
        {"values": "abc"},
        {"values": None},
    ],
    ids=range(21),
)
def test_a_column_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError):
        Column(**{"name": "age", "type": "int", **wrong})
