"""Two tables that differ by one unit, and a query: what the analyst sees may not differ but by noise.

Random tables of hostile values, random SQL over the whole language. The mechanisms are made to answer by a script that knows nothing of
the rows, the same one for both tables. Then everything that is told must be the same to the last sign: columns, types, rows, groups,
texts, errors. And what the mechanisms were given may differ by at most what their noise covers: that is looked at exactly, in whole
numbers, for each look, each round of selection and each measure, trees of quantiles among them.
"""

import csv
from collections import Counter
from random import Random

import pytest

import asked_fuzz as fuzz
from asked_script import Script, covered, frame, scripting
from dither.accounting.loss import loss
from dither.core.errors import DitherError, InputError
from dither.core.units import Neighbors, PrivacyUnit
from dither.noise.weighted import GRID
from dither.query.answer import plan_question
from dither.query.bind import ask
from dither.query.bounding import Measure
from dither.query.duck import Counted, open_source
from dither.query.expr import col
from dither.query.facts import Catalog, Column, Table
from dither.query.operators import OPERATORS
from dither.query.question import JoinPublic, Scan
from dither.query.source import LINE_MAX

KINDS = ("ints", "texts", "rows", "owned")
PLACES = ("typed", "typed", "words", "csv")


@pytest.fixture
def scripted(monkeypatch):
    return scripting(monkeypatch)


# ------------------------------------------------------------------------------------------------ tables


def flat(kind, units):
    """The rows, each with its unit; in an order that tells nothing of who was left out."""
    name = {"rows": None, "owned": "card"}.get(kind, "who")
    return [({name: unit} if name else {}) | dict(row) for unit, rows in units.items() for row in rows]


def opened(kind, place, tables, rows, folder):
    """A source of these rows: ``rows`` by table."""
    made = []
    for table in tables:
        held = rows[table.name]
        names = [c.name for c in table.columns]
        if place == "typed" or table.public:
            made.append((table, frame({c.name: (c.type, [r.get(c.name) for r in held]) for c in table.columns})))
        elif place == "words":
            made.append((table, frame({n: ("text", [None if r.get(n) is None else str(r[n]) for r in held]) for n in names})))
        else:
            file = folder / f"{table.name}-{len(list(folder.iterdir()))}.csv"
            with file.open("w", newline="", encoding="utf-8") as out:
                writer = csv.writer(out, lineterminator="\n")
                writer.writerow(names)
                writer.writerows([["" if r.get(n) is None else r[n] for n in names] for r in held])
            made.append((table, str(file)))
    return open_source(*made, threads=2, memory_limit="1GB")


def worded(rows, random):
    """Rows as texts; a whole number that says whose a row is, in any of its spellings."""
    made = []
    for row in rows:
        held = {n: fuzz.told(v, random) for n, v in row.items() if n not in {"who", "card"}}
        for n in {"who", "card"} & {*row}:
            v = row[n]
            held[n] = random.choice((str(v), f" {v} ", f"{v:05d}", f"{v:+d}")) if isinstance(v, int) else v
        made.append(held)
    return made


def pairs(seed, folder):
    """A private table, its source, and the sources that differ by one unit."""
    random = Random(seed)
    kind = KINDS[seed % len(KINDS)]
    neighbors = random.choice((Neighbors.ADD_REMOVE, Neighbors.ADD_REMOVE, Neighbors.REPLACE))
    table = fuzz.table(kind, neighbors)
    place = random.choice(PLACES)
    units = fuzz.units(kind, random)
    if place != "typed":
        units = {
            u: worded([{"who": u} | r if kind in {"ints", "texts"} else {"card": u} | r if kind == "owned" else r for r in rows], random)
            for u, rows in units.items()
        }
    claims = [(random.randrange(4), card) for card in range(7) for _ in range(random.choice((0, 1, 1, 2)))] if kind == "owned" else []
    owners = {}
    for who, card in claims:
        owners[card] = min(who, owners.get(card, who))
    known = sorted({*owners.values()}) if kind == "owned" else [u for u in units if u is not None]

    def source(gone=None, instead=None):
        left = {
            u: list(r)
            for u, r in units.items()
            if not (u is not None and (owners.get(u) if kind == "owned" else u) == gone and gone is not None)
        }
        if instead is not None:
            left |= instead
        rows = {"t": flat(kind, left), "people": [{"who": w, "card": c} for w, c in claims if w != gone], **fuzz.PUBLIC}
        tables = [table, fuzz.CITY_TABLE, fuzz.DAY_TABLE]
        tables += [fuzz.people(table.unit)] if kind == "owned" else []
        return opened(kind, place, tables, rows, folder)

    heavy = max(known, key=lambda u: sum(len(r) for v, r in units.items() if (owners.get(v) if kind == "owned" else v) == u), default=None)
    gone = [heavy, *random.sample(known, min(2, len(known)))] if known else []
    others = []
    for unit in dict.fromkeys(gone):
        instead = None
        if neighbors is Neighbors.REPLACE:
            rows = fuzz.units(kind, random)
            more = [r for v in rows.values() for r in v][: random.choice((1, 5, 40))] if kind != "rows" else [fuzz.row(random)]
            key = next((c for c, o in owners.items() if o == unit), None) if kind == "owned" else unit
            if kind == "owned":  # the cards stay another's: rows are replaced, the claim is
                continue
            more = more if place == "typed" else worded([{"who": key} | r if kind != "rows" else r for r in more], random)
            instead = {key: more}
        others.append(source(unit, instead))
    return random, kind, table, source(), others


def plan_of(sql, table, random):
    """The plan of a text, or None where it is refused: by the text and the facts alone."""
    bounds = random.choice(({}, {}, {"rows_max": 3}, {"groups_max": 2, "rows_per_group_max": 2}))
    epsilon, delta = random.choice((0.1, 1, 3, 20)), random.choice((1e-9, 1e-6, 1e-6, 0.0))
    try:
        asked = ask(sql, fuzz.catalog(table))
        delta = delta or (1e-6 if any(g.keys is None for g in asked.question.groups) else 0.0)
        plan = plan_question(asked.question, epsilon=epsilon, delta=delta, **bounds)
    except DitherError:
        return None
    assert loss(plan.event).epsilon_upper(delta) <= epsilon
    return plan


def hold(seeds, queries, scripted, folder):
    """How many pairs were looked at."""
    count = 0
    for seed in seeds:
        random, kind, table, base, others = pairs(seed, folder)
        texts = fuzz.Texts(random, kind)
        asked = 0
        while asked < queries:
            sql = texts.query()
            plan = plan_of(sql, table, random)
            if plan is None:
                continue
            asked += 1
            script = Script(seed)
            told = scripted(plan, base, script)
            assert len(told) == 3, (seed, sql, told)
            assert loss(told[2]).epsilon_upper(plan.delta) <= plan.epsilon, (seed, sql)
            for other in others:
                again = Script(seed, script.chosen)
                assert scripted(plan, other, again) == told, (seed, sql)
                assert len(again.given) == len(script.given), (seed, sql)
                for mine, theirs in zip(script.given, again.given, strict=True):
                    try:
                        covered(mine, theirs, table.unit.neighbors)
                    except AssertionError as error:
                        raise AssertionError(seed, sql, mine, theirs) from error
                count += 1
        for source in (base, *others):
            source.close()
        for file in folder.iterdir():
            file.unlink()
    return count


@pytest.mark.parametrize("block", range(8))
def test_one_unit_more_or_less_is_told_by_noise_alone(block, scripted, tmp_path):
    assert hold(range(block * 5, block * 5 + 5), 6, scripted, tmp_path) >= 45


@pytest.mark.slow
@pytest.mark.parametrize("block", range(50))
def test_many_more_of_them(block, scripted, tmp_path):
    assert hold(range(1000 + block * 20, 1020 + block * 20), 10, scripted, tmp_path) >= 300


# ------------------------------------------------------------------------------------------------ where rows lie


def read(path):
    """The rows of a file of ``who`` and ``v``, as they are counted."""
    columns = (Column(name="who", type="text"), Column(name="v", type="text"))
    source = open_source((Table(name="t", columns=columns), path), threads=4)
    found = source._engine.rows(f"SELECT who, len(v) FROM {source._engine.relations['t'].sql}")
    source.close()
    return Counter(found)


BITS = (*b'a1,"\r\x00\x01\xff\t\\#\x0b\x1a ', "é".encode(), b'""', b"\xe2\x82", "\u2028".encode(), b"\xef\xbb\xbf", b"NULL", b"x" * 99)


@pytest.mark.parametrize("seed", range(40))
def test_a_line_of_csv_is_a_row_whatever_stands_around_it(seed, tmp_path):
    random = Random(seed)
    lines = [b"".join(b if isinstance(b, bytes) else bytes([b]) for b in random.choices(BITS, k=random.randrange(9))) for _ in range(30)]
    lines = [random.choice((line, b"7,b")) for line in lines]
    apart(lines, random.sample(range(30), 2), tmp_path)


@pytest.mark.parametrize("size", [LINE_MAX + more for more in (-40, -1, 0, 1, 40, LINE_MAX - 1, LINE_MAX, LINE_MAX + 1, 2 * LINE_MAX)])
@pytest.mark.parametrize("start", [b"7,", b"y"])
def test_a_long_line_of_csv_is_a_row_whatever_stands_around_it(size, start, tmp_path):
    for at in (0, 1, 59):
        lines = [b"%d,b" % n for n in range(60)]
        lines[at] = start + b"y" * (size - len(start))
        apart(lines, {0, at}, tmp_path)


def apart(lines, gone, folder):
    """Taking a line away takes away what the line is by itself."""

    def told(some):
        (folder / "t.csv").write_bytes(b"\n".join([b"who,v", *some, b""]))
        return read(str(folder / "t.csv"))

    whole = told(lines)
    for at in gone:
        assert whole == told([*lines[:at], *lines[at + 1 :]]) + told([lines[at]])


def test_texts_of_a_duckdb_file_are_told_apart_byte_for_byte(tmp_path):
    import duckdb  # noqa: PLC0415 - heavy

    with duckdb.connect(str(tmp_path / "t.db")) as made:
        made.execute("CREATE TABLE t (who VARCHAR COLLATE NOCASE, city VARCHAR COLLATE NOCASE.NOACCENT)")
        made.executemany("INSERT INTO t VALUES (?, ?)", [("a", "Pune"), ("A", "pune"), ("b", "PUNE"), ("b", "José"), ("c", "Jose")])
        made.execute("CREATE TABLE p (city VARCHAR, z INTEGER)")
        made.executemany("INSERT INTO p VALUES (?, ?)", [("Pune", 1), ("pune", 2), ("PUNE", 3)])
    columns = (Column(name="who", type="text"), Column(name="city", type="text"))
    table = Table(name="t", columns=columns, unit=PrivacyUnit(dataset="t", key="who"))
    public = Table(name="p", columns=(Column(name="city", type="text"), Column(name="z", type="int")), key="city")
    source = open_source((table, f"duckdb:///{tmp_path}/t.db#t"), (public, f"duckdb:///{tmp_path}/t.db#p"))

    def cells(sql):
        question = ask(sql, Catalog.of(table, public)).question
        found = source.cells(
            question.rows, question.unit, question.groups, [s.counted for s in plan_question(question, epsilon=1, delta=1e-6).slots]
        )
        return sorted(source._engine.rows(f"SELECT * FROM {found.source}"))

    assert cells("SELECT COUNT(*) FROM t") == [("A", 1), ("a", 1), ("b", 2), ("c", 1)]
    assert cells("SELECT city, COUNT(*) FROM t GROUP BY city") == sorted(
        [("a", "Pune", 1), ("A", "pune", 1), ("b", "PUNE", 1), ("b", "José", 1), ("c", "Jose", 1)]
    )
    assert cells("SELECT COUNT(*) FROM t JOIN p ON t.city = p.city") == [("A", 1), ("a", 1), ("b", 1)]
    source.close()


@pytest.mark.parametrize("kind", ["int", "float", "text", "date", "timestamp"])
@pytest.mark.parametrize(
    ("physical", "values"),
    [
        ("DOUBLE", ("1.2", "1.4")),
        ("FLOAT", ("1e30", "2e30")),
        ("DECIMAL(10, 2)", ("1.2", "1.4")),
        ("BIGINT", ("9007199254740992", "9007199254740993")),
        ("HUGEINT", ("170141183460469231731687303715884105727", "170141183460469231731687303715884105726")),
        ("TIMESTAMP", ("'2024-01-01 10:00:00'", "'2024-01-01 11:00:00'")),
        ("TIMESTAMP_NS", ("'2024-01-01 10:00:00.000000001'", "'2024-01-01 10:00:00.000000002'")),
        ("UUID", ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12'")),
    ],
)
def test_two_units_are_not_taken_for_one_whatever_type_is_declared(kind, physical, values, tmp_path):
    import duckdb  # noqa: PLC0415 - heavy

    with duckdb.connect(str(tmp_path / "t.db")) as made:
        made.execute(f"CREATE TABLE t (who {physical})")
        made.execute(f"INSERT INTO t VALUES ({values[0]}), ({values[1]}), ({values[1]}), (NULL)")
    table = Table(name="t", columns=(Column(name="who", type=kind),), unit=PrivacyUnit(dataset="t", key="who"))
    source = open_source((table, f"duckdb:///{tmp_path}/t.db#t"))
    cells = source.cells(Scan(table=table, alias="t"), table.unit, (), [Counted(measure=Measure(name="n", kind="rows"))])
    assert sorted(n for _, n in source._engine.rows(f"SELECT * FROM {cells.source}")) == [1, 2]
    source.close()


def test_keys_that_a_join_takes_for_one_are_refused():
    table = Table(name="t", columns=(Column(name="x", type="float"),), unit=PrivacyUnit(dataset="t"))
    public = Table(name="p", columns=(Column(name="k", type="int"),), key="k")
    joined = JoinPublic(rows=Scan(table=table, alias="t"), table=public, alias="p", on=col("x", "float"), key="k", keep=False)
    rows = frame({"x": ("float", [2.0**53])})
    source = open_source((table, rows), (public, frame({"k": ("int", [2**53, 2**53 + 1])})))
    count = Counted(measure=Measure(name="n", kind="rows"))
    with pytest.raises(InputError, match="twice"):
        source.cells(joined, table.unit, (), [count])


def test_quantiles_alone_under_private_keys(scripted):
    table = fuzz.table("ints", Neighbors.ADD_REMOVE)
    rows = [{"who": n, "free": "a", "amount": 3.0} for n in range(50)]
    plan = plan_of("SELECT free, MEDIAN(amount) FROM t GROUP BY free", table, Random(3))
    source = opened("ints", "typed", [table], {"t": rows}, None)
    told = scripted(plan, source, Script(1))
    assert len(told) == 3
    source.close()


def test_a_condition_that_leaves_no_public_key_gives_no_rows(scripted):
    table = fuzz.table("ints", Neighbors.ADD_REMOVE)
    plan = plan_question(
        ask("SELECT city, COUNT(*), MAX(amount) FROM t WHERE city = 'no city' GROUP BY 1", fuzz.catalog(table)).question,
        epsilon=1,
        rows_max=3,
    )
    source = opened("ints", "typed", [table], {"t": [{"who": 1, "city": "Goa"}]}, None)
    told = scripted(plan, source, Script(1))
    assert len(told) == 3
    assert [column["values"] for column in told[1]["columns"]] == [[], [], []]
    source.close()


@pytest.mark.parametrize("seed", range(4))
def test_later_rounds_have_the_same_weights_by_either_way(seed):
    random = Random(seed)
    table = Table(
        name="t", columns=(Column(name="who", type="int"), Column(name="k", type="int")), unit=PrivacyUnit(dataset="t", key="who")
    )
    pairs = [(random.randrange(9), random.choice((None, *range(40)))) for _ in range(300)]
    rows = frame({"who": ("int", [u for u, _ in pairs]), "k": ("int", [k for _, k in pairs])})
    source = open_source((table, rows))
    question = ask("SELECT k, COUNT(*) FROM t GROUP BY k", Catalog.of(table)).question
    for sure in (1, 3 * GRID // 2, 10**9):
        cells = source.cells(question.rows, question.unit, question.groups, [Counted(measure=Measure(name=f"n{sure}", kind="rows"))])
        cells.known.clear()
        first = cells.weights([0], 4)
        heavy = {k for k, w in first.items() if w >= sure}
        before = {*heavy, *random.sample(sorted(first, key=repr), 3)}
        quick = cells.weights([0], 4, before, sure)
        cells.known.clear()
        assert cells.weights([0], 4, before) == quick
        assert all(k not in before and w > 0 for k, w in quick.items())


def test_the_random_queries_hold_every_operator_and_aggregate():
    seen, waiting = set(), []
    for seed in range(600):
        kind, random = KINDS[seed % len(KINDS)], Random(seed)
        try:
            question = ask(fuzz.Texts(random, kind).query(), fuzz.catalog(fuzz.table(kind, "add_remove"))).question
        except DitherError:
            continue
        seen |= {a.kind for a in question.aggregates}
        waiting += [g.expr for g in question.groups] + [a.arg for a in question.aggregates if a.arg is not None]
        waiting += [o.expr for o in question.outputs]
        rows = question.rows
        while not isinstance(rows, Scan):
            seen.add(type(rows).__name__)
            held = {"Filter": "condition", "JoinPublic": "on"}.get(type(rows).__name__)
            waiting += [getattr(rows, held)] if held else [e for *_, e in rows.columns if e is not None]
            rows = rows.rows
    while waiting:
        expr = waiting.pop()
        seen.add(expr.op)
        waiting += expr.args
    wanted = {*OPERATORS, "rows", "count", "sum", "units", "quantiles", "Filter", "JoinPublic", "PerUnit"}
    assert not wanted - seen
