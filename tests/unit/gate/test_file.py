"""dither.yaml: what it says becomes facts, limits and requests; what is wrong is told by file, line and column."""

import json
import re
import string
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.core.errors import InputError
from dither.core.units import Neighbors, PrivacyUnit, Trust
from dither.gate import file, marked
from dither.ledger.alerts import Command, File, Log, Webhook
from dither.ledger.book import Ledger
from dither.ledger.terms import Blocks, Every, FilterSpec, Per

WHOLE = """\
ledger: {url: sqlite:///books/dither.db, key: keys/book.key, anchor: /safe/anchor}
alerts:
  - log
  - {file: alerts.jsonl}
  - {webhook: "https://example.org/hook", headers: {Authorization: x}}
  - {command: [notify, --loud]}
datasets:
  events:
    source: events.parquet
    unit: {key: user_id}
    neighbors: replace
    trust: central
    blocks: {column: ts, every: month, start: 2026-01, disjoint: true}
    columns:
      city: {type: text, values: [Delhi, NO]}
      amount: {type: float, min: 0, max: 100}
      qty: {type: int, values: [1, 2]}
  years: {source: y.csv, unit: {row: true}, blocks: {column: y, every: year, start: 2020}}
  regions: {source: r.csv, unit: {key: who, through: people.id}, blocks: {column: region, partitions: [north, 7]}}
  cities: {source: cities.csv, public: true, key: city}
accounts:
  acme:
    - {dataset: events, epsilon: 10, delta: 1e-6, alert_at: [0.5, 0.8]}
    - {dataset: events, per: block, epsilon: 0.1, filter: pure, starts: 2026-01-01, ends: "2026-06-01T00:00:00+02:00"}
    - {dataset: years, epsilon: 1, delta: 1e-5, filter: zcdp, side_delta: 1e-7}
  acme/ads: {dataset: events, epsilon: 4, delta: 1e-7, filter: rdp, orders: [8, 16], split: {training: 60 %, evaluation: 1/5, queries: 0.2}}
  acme/ads/alice:
  other/team: {}
jobs:
  weekly:
    engine: measure
    dataset: events
    account: acme/ads
    purpose: weekly report
    blocks: {first: 2026-11, last: 2027-01}
    id: weekly-2026-47
    options: {statistic: count, epsilon: 0.5, rows_per_unit: 3}
  of a year: {dataset: years, account: acme, purpose: report, blocks: 2026, options: {statistic: count, epsilon: 0.5}}
"""


def read(text, folder=Path("/data")):
    return file.read(text, "dither.yaml", folder)


def refused(text):
    with pytest.raises(InputError) as caught:
        read(text)
    return str(caught.value)


ROW = "datasets: {t: {source: x, unit: {row: true}, "
SMALL = """\
datasets:
  t: {source: t.csv, unit: {row: true}, columns: {n: {type: int}}}
accounts:
  a: {epsilon: 1}
"""


# ------------------------------------------------------------------------------------------------ what it says


def test_the_ledger_lies_beside_the_file():
    found = read(WHOLE)
    assert found.url == "sqlite:////data/books/dither.db"
    assert found.key == Path("/data/keys/book.key")
    assert found.anchor == Path("/safe/anchor")
    assert read(SMALL).url == "sqlite:////data/dither.db"
    assert read(f"ledger: sqlite:////abs.db\n{SMALL}").url == "sqlite:////abs.db"
    assert read(f"ledger: postgresql+psycopg://h/d\n{SMALL}").url == "postgresql+psycopg://h/d"


@pytest.mark.parametrize("name", ["50%20off", "a?b", "100%", "x#y", "%2e%2e"])
def test_the_ledger_lies_beside_the_file_whatever_its_folder_is_called(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    with Ledger.open(read(SMALL, folder).url):
        pass
    assert {p.name for p in folder.iterdir()} >= {"dither.db", "dither.db.key"}
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///x.db?mode=memory", "sqlite:///file:x?uri=true", "sqlite+pysqlite:///x.db"],
)
def test_a_book_that_forgets_or_moves_is_refused(url):
    told = refused(f'ledger: "{url}"\n{SMALL}')
    assert f"dither.yaml:1:9: url='{url}' is not allowed: expected sqlite:///<file>" in told


def test_channels():
    hook = Webhook("https://example.org/hook", {"Authorization": "x"})
    assert read(WHOLE).channels == (Log(), File(Path("/data/alerts.jsonl")), hook, Command(("notify", "--loud")))
    assert read(f"alerts: log\n{SMALL}").channels == (Log(),)


def test_datasets():
    found = read(WHOLE).datasets
    events = found["events"]
    assert events.unit == PrivacyUnit(dataset="events", key="user_id", neighbors=Neighbors.REPLACE)
    assert (events.trust, events.disjoint) == (Trust.CENTRAL, True)
    assert events.blocks == Blocks(column="ts", every=Every.MONTH, start="2026-01")
    assert [(c.name, c.type, c.min, c.max, c.values) for c in events.columns] == [
        ("city", "text", None, None, ("Delhi", "NO")),
        ("amount", "float", 0, 100, ()),
        ("qty", "int", None, None, (1, 2)),
    ]
    assert events.path == Path("/data/events.parquet")
    assert found["years"].blocks.start == "2020"
    assert found["regions"].blocks.partitions == ("north", "7")
    assert found["regions"].through == "people.id"
    assert (found["cities"].unit, found["cities"].key) == (None, "city")


def test_accounts_come_parents_first():
    parts = {("acme", "ads", p) for p in ("training", "evaluation", "queries", "alice")}
    found = read(WHOLE).accounts
    assert set(found) == {("acme",), ("acme", "ads"), ("other",), ("other", "team"), *parts}
    assert all(found.index(a[:-1]) < found.index(a) for a in found if len(a) > 1)


def test_limits():
    whole, each, years, ads = (terms.limit for terms in read(WHOLE).limits)
    assert (whole.filter, whole.per, whole.alert_at) == (FilterSpec.of(10, 1e-6), Per.DATASET, (Fraction(1, 2), Fraction(4, 5)))
    assert (each.filter, each.per) == (FilterSpec.of(0.1), Per.BLOCK)
    assert (each.starts, each.ends) == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 5, 31, 22, tzinfo=UTC))
    assert each.alert_at == (Fraction(1, 2), Fraction(4, 5), Fraction(19, 20))
    assert years.filter == FilterSpec.of(1, 1e-5, kind="zcdp", side_delta=1e-7)
    assert ads.filter == FilterSpec.of(4, 1e-7, orders=[8, 16])
    assert read(WHOLE).limits[3].split == {"training": Fraction(3, 5), "evaluation": Fraction(1, 5), "queries": Fraction(1, 5)}


def test_jobs():
    found = read(WHOLE).jobs
    weekly = found["weekly"]
    assert (weekly.engine, weekly.dataset, weekly.account, weekly.purpose) == ("measure", "events", ("acme", "ads"), "weekly report")
    assert weekly.blocks == ("2026-11", "2026-12", "2027-01")
    assert (weekly.id, weekly.name, weekly.fields["statistic"]) == ("weekly-2026-47", "weekly", "count")
    assert found["of a year"].blocks == ("2026",)


def test_what_is_one_need_not_be_named():
    job = "{account: a, purpose: p, options: {statistic: count, epsilon: 1}}"
    found = read(f"{SMALL}jobs:\n  - {job}\n  - {job[:-1]}, name: second}}\n")
    assert list(found.jobs) == ["job-1", "second"]
    assert found.jobs["job-1"].dataset == found.limits[0].limit.dataset == "t"


def test_a_file_and_its_text_say_the_same(tmp_path):
    (tmp_path / "dither.yaml").write_text(WHOLE)
    found = file.load(tmp_path / "dither.yaml")
    assert found == file.read(WHOLE, "dither.yaml", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/link.yaml").symlink_to(tmp_path / "dither.yaml")
    assert file.load(tmp_path / "elsewhere/link.yaml").url == found.url
    with pytest.raises(InputError, match=r"none\.yaml could not be read: No such file"):
        file.load(tmp_path / "none.yaml")


# ------------------------------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "dither.yaml:1:1: The file is empty"),
        ("- 1", "dither.yaml:1:1: the file=[1] is not allowed: expected a map (key: value)."),
        ("datasets: []", "dither.yaml:1:11: datasets=[] is not allowed: expected a map (key: value)."),
        ("a: 1\ndatasets: {}", "dither.yaml:1:1: Unknown key 'a': expected one of accounts, alerts, datasets, jobs, ledger."),
        ("datasets:\n  t:\n    source: x\n    unit: {row: true}\n    neigbors: replace", "5:5: Unknown key 'neigbors'"),
        ("datasets:\n  t:\n    source: x\n    unit: {row: true}\n    neigbors: replace", "did you mean 'neighbors'?"),
        ("datasets: {t: {source: x}}", "1:15: The key 'unit' is missing here: say what is hidden"),
        ("datasets: {t: {source: 7, unit: {row: true}}}", "1:24: source=7 is not allowed: expected a text. Put it in quotes."),
        ("datasets: {t: {source: x, unit: {}}}", "1:33: A unit is a row or a key"),
        ("datasets: {t: {source: x, unit: {row: false}}}", "row=False is not allowed"),
        ("datasets: {t: {source: x, unit: {row: true, key: a}}}", "A unit is a row or a key"),
        ("datasets: {t: {source: x, unit: {row: true, through: a}}}", "Only a key is found through another table"),
        ("datasets: {t: {source: x, public: true, unit: {row: true}}}", "1:41: A public dataset hides nothing"),
        ("datasets: {t: {source: x, key: k, unit: {row: true}}}", "1:27: Only a public dataset has a key"),
        (ROW + "neighbors: both}}", "neighbors='both' is not allowed: expected one of add_remove, replace."),
        (ROW + "blocks: {column: a}}}", "1:54: Blocks are divided by time or into partitions"),
        (ROW + "blocks: {column: a, every: day, disjoint: false}}}", "disjoint=False is not allowed"),
        (ROW + "columns: {a: {type: number}}}}", "type='number' is not allowed: expected one of text,"),
        (ROW + "columns: {a: {type: text, min: 1}}}}", "A column of type text has no min and max"),
        (ROW + "columns: {a: {type: int, min: 2, max: 1}}}}", "min=2.0 is not allowed"),
        (ROW + "columns: {a: {type: text, values: [x, 7]}}}}", "1:84: values=7 is not allowed: expected a text."),
        (ROW + "columns: {a: {type: int, values: [1, 1]}}}}", "twice"),
        (ROW + "columns: {a: {type: date, values: [x]}}}}", "no list of values"),
        (SMALL + "  b: {epsilon: ten}", "5:16: epsilon='ten' is not allowed: expected a number."),
        (SMALL + "  b: {epsilon: 0}", "5:16: epsilon=0.0 is not allowed: expected a number > 0"),
        (SMALL + "  b: {epsilon: true}", "epsilon=True is not allowed"),
        (SMALL + "  b: {epsilon: 1, delta: 1}", "5:26: delta=1.0 is not allowed"),
        (SMALL + "  b: {epsilon: 1, delta: 1e-6, filter: pure}", "delta=1e-06 is not allowed: expected 0, for a pure limit"),
        (SMALL + "  b: {epsilon: 1, filter: renyi}", "filter='renyi' is not allowed: expected one of pure, approx, advanced, zcdp, rdp."),
        (SMALL + "  b: {delta: 1e-6}", "5:6: The key 'epsilon' is missing here"),
        (SMALL + "  b: {dataset: u, epsilon: 1}", "5:16: Unknown dataset 'u': expected one of t."),
        (SMALL + "  b: {epsilon: 1, per: block}", "5:19: The dataset 't' has no blocks"),
        (SMALL + "  b: [{epsilon: 1}, {epsilon: 2}]", "5:21: This account has two limits on 't'"),
        (SMALL + "  b/: {epsilon: 1}", "5:3: account='' is not allowed"),
        (SMALL + "  b: {epsilon: 1, starts: 2026-1-1}", "5:27: starts='2026-1-1' is not allowed: expected a date such as"),
        (SMALL + '  b: {epsilon: 1, ends: "2026-01-01T00:00"}', "or a time with its zone"),
        (SMALL + "  b: {epsilon: 1, alert_at: [2]}", "5:29: alert_at="),
        (SMALL + "  b: {epsilon: 1, starts: 2026-02-01, ends: 2026-01-01}", "5:45: ends='2026-01-01T00:00:00.000000Z' is not allowed"),
        (SMALL + "  b: {epsilon: 1, split: {x: 60 %, y: 2/5, z: 1e-9}}", "5:26: The shares add up to more than 1"),
        (SMALL + "  b: {epsilon: 1, split: {x: 0}}", "share=0 is not allowed: expected a share > 0 and at most 1"),
        (SMALL + "  b: {epsilon: 1, split: {x: most}}", "5:30: share='most' is not allowed"),
        (SMALL + "  b: {epsilon: 1, split: {x/y: 0.1}}", "account='x/y' is not allowed: expected parts without '/'"),
        (SMALL + "alerts: [mail]", "5:10: alerts='mail' is not allowed"),
        (SMALL + "alerts: [{}]", "5:10: An alert goes one way"),
        (SMALL + "alerts: [{webhook: example.org}]", "This webhook is not allowed"),
        (SMALL + "alerts: [{file: x, headers: {a: b}}]", "Only a webhook has headers"),
        (SMALL + "jobs: {j: {account: a}}", "5:11: The key 'purpose' is missing here"),
        (SMALL + "jobs: {j: {account: b, purpose: p}}", "5:21: Unknown account 'b': expected one of a."),
        (SMALL + "jobs: {j: {account: a, purpose: p, engine: sequel}}", "5:44: Unknown engine 'sequel'"),
        (SMALL + "jobs: {j: {account: a, purpose: p, blocks: [x]}}", "has no blocks: take 'blocks' out"),
        (SMALL + "jobs: {j: {account: a, purpose: ''}}", "5:33: purpose='' is not allowed"),
        (
            SMALL + "jobs:\n- {account: a, purpose: p, name: n, options: {statistic: count}}\n"
            "- {account: a, purpose: p, options: {statistc: count}}",
            "7:38: Unknown key 'statistc'",
        ),
        (SMALL + "jobs:\n- {account: a, purpose: p, name: n}\n- {account: a, purpose: p, name: n}", "Two jobs are called 'n'"),
        (
            SMALL + "jobs: {j: {account: a, purpose: p, options: {statistic: count, epsilon: x}}}",
            "epsilon='x' is not allowed: expected a number.",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text, told):
    found = refused(text)
    assert told in found
    assert all(line.startswith(("dither.yaml:", "(and")) for line in found.split("\n"))


def test_several_mistakes_are_told_at_once_in_the_order_of_the_file():
    found = refused(f"{SMALL}  b: {{epsilon: x}}\n  c: {{epsilom: 1}}\njobs: {{j: {{}}}}\nalerts: 3").split("\n")
    assert [line.split(":")[1] for line in found] == ["5", "6", "7", "7", "8"]
    many = "".join(f"  b{i}: {{epsilon: x}}\n" for i in range(9))
    assert refused(SMALL + many).split("\n")[-1] == "(and 4 more)"


def test_one_source_has_one_budget():
    for second in ("a.csv", "./x/../a.csv", "/data/a.csv"):
        for kind in ("unit: {row: true}", "public: true"):
            told = refused(f"datasets:\n  t: {{source: a.csv, unit: {{row: true}}}}\n  u: {{source: {second}, {kind}}}")
            assert "dither.yaml:3:15: The datasets 't' and 'u' have one source" in told


def test_a_folder_and_a_file_in_it_are_one_source():
    for first, second in (("data", "data/2026.csv"), ("data/2026.csv", "./data/"), (".", "x/y.csv")):
        told = refused(f"datasets:\n  t: {{source: {first}, unit: {{row: true}}}}\n  u: {{source: {second}, unit: {{row: true}}}}")
        assert "dither.yaml:3:15: The datasets 't' and 'u' have one source" in told
    assert set(read(SMALL.replace("t.csv", "data/a.csv") + "  b: {epsilon: 1}").datasets) == {"t"}


def test_a_source_that_leads_to_itself_is_told_with_its_place(tmp_path):
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    with pytest.raises(InputError, match=r"dither\.yaml:2:15: The source 'loop\.csv' cannot be followed"):
        read(SMALL.replace("t.csv", "loop.csv"), tmp_path)


def test_one_id_is_of_one_job():
    job = "{account: a, purpose: p, id: x-1, options: {statistic: count, epsilon: 0.1}}"
    told = refused(f"{SMALL}jobs:\n  one: {job}\n  two: {job}")
    assert "dither.yaml:7:37: Two jobs have the id 'x-1', 'one' and 'two'" in told


def test_a_split_does_not_meet_another_limit_of_the_same_child():
    head = "datasets:\n  t: {source: t.csv, unit: {row: true}, blocks: {column: d, every: day}}\naccounts:\n"
    told = refused(f"{head}  a/b: {{epsilon: 4}}\n  a: {{epsilon: 10, split: {{b: 0.5}}}}")
    assert "dither.yaml:5:28: The account 'a/b' has a limit on 't' of its own: take it out there, or out of this split." in told
    told = refused(f"{head}  a:\n    - {{epsilon: 10, split: {{b: 0.5}}}}\n    - {{epsilon: 1, per: block, split: {{b: 0.4}}}}")
    assert "dither.yaml:6:39: The limits of 'a' on 't' are split in two ways: a split divides them all, so name it once." in told
    once = f"{head}  a:\n    - {{epsilon: 10, split: {{b: 0.5}}}}\n    - {{epsilon: 1, per: block}}"
    assert [t.split for t in read(once).limits] == [{"b": Fraction(1, 2)}, {}]


@pytest.mark.parametrize(
    "text",
    [
        "alerts: [{webhook: 'https://h/x', headers: {Authorization: [hunter2]}}]",
        "alerts: [{webhook: 'https://h/x', headers: {Authorization: 4711}}]",
        "alerts: [{webhook: 'https://h/x', headers: [hunter2]}]",
        "alerts: [{webhook: {a: hunter2}}]",
        "ledger: ['postgresql://u:hunter2@h/d']",
        "ledger: {url: ['postgresql://u:hunter2@h/d']}",
    ],
)
def test_what_may_hold_a_password_is_not_told(text):
    told = refused(f"{text}\n{SMALL}")
    assert "hunter2" not in told
    assert "4711" not in told
    assert "is not allowed: expected" in told


def test_blocks_of_jobs_are_checked():
    def job(blocks):
        return WHOLE.replace("{first: 2026-11, last: 2027-01}", blocks)

    assert read(job("[2026-01, 2026-05]")).jobs["weekly"].blocks == ("2026-01", "2026-05")
    for blocks, told in (
        ("2025-12", "expected a block from '2026-01' on"),
        ("[2026-13]", "expected the name of a month"),
        ("{first: 2026-02, last: 2026-01}", "expected the earlier block first"),
        ("{first: 2026-02}", "The key 'last' is missing here"),
        ("[]", "at least one"),
    ):
        assert told in refused(job(blocks))
    assert "divided into blocks: name at least one" in refused(job("null"))


# ------------------------------------------------------------------------------------------------ schema


def test_the_schema_knows_every_key_and_nothing_else():
    made = file.schema()
    json.dumps(made)
    assert made["additionalProperties"] is False
    assert {"datasets", "accounts", "jobs", "alerts", "ledger"} == set(made["properties"])
    assert all(d["additionalProperties"] is False for d in made["$defs"].values())
    for engine in made["$defs"]["JobFields"]["allOf"]:
        assert "rows_per_unit" in engine["then"]["properties"]["options"]["properties"]


# ------------------------------------------------------------------------------------------------ anything

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(string.printable, max_size=8)
)
KEYS = st.sampled_from(
    [
        "ledger",
        "alerts",
        "datasets",
        "accounts",
        "jobs",
        "source",
        "unit",
        "key",
        "row",
        "blocks",
        "column",
        "every",
        "columns",
        "type",
        "min",
        "values",
        "epsilon",
        "delta",
        "split",
        "filter",
        "a",
        "a/b",
        "purpose",
        "account",
        "options",
        "statistic",
        "first",
        "last",
        "webhook",
        "command",
        "public",
    ]
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_whatever_is_in_it_there_is_one_kind_of_error(made):
    """JSON is YAML: whatever parses is read or refused with a place."""
    told = ""
    try:
        read(json.dumps(made))
    except InputError as error:
        told = str(error)
    assert not told or all(line.startswith(("dither.yaml:", "(and ")) for line in told.split("\n"))
    assert told.count("dither.yaml:") <= told.count("\n") + 1


@given(st.data())
def test_a_value_changed_for_another_is_read_or_refused(data):
    made = json.loads(json.dumps(marked.read(WHOLE, "x").value))
    place = made
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = data.draw(VALUES)
            break
        place = place[key]
    told = ""
    try:
        read(json.dumps(made))
    except InputError as error:
        told = str(error)
    assert not told or all(line.startswith(("dither.yaml:", "(and ")) for line in told.split("\n"))
    assert told.count("dither.yaml:") <= told.count("\n") + 1


def test_the_pieces_of_the_guide_make_a_file():
    page = (Path(__file__).parents[3] / "docs/guide/project-file.md").read_text()
    found = read("\n".join(re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)))
    assert set(found.jobs) == {"stay"}
    assert found.jobs["stay"].blocks == ("2026-01", "2026-02", "2026-03")
    assert len(found.limits) == 4
    assert len(found.channels) == 4
