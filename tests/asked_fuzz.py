"""Random tables of hostile values and random SQL over them, for tests that look for two neighbouring tables that tell on somebody."""

import math
from datetime import date, datetime

from dither.core.units import PrivacyUnit
from dither.query.facts import Catalog, Column, Table, Through

CITIES = ("Delhi", "Pune", "Goa")
DAYS = (date(2024, 1, 1), date(2024, 1, 2), date(2024, 2, 29))
NUMBERS = (None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 99.999999, 100.0, 100.5, -7.25, 3.0, 0.5, 1e15, 2.0**53)
WHOLES = (None, 0, 1, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63), 10**18, 3, 5)
SMALLS = (None, 0, 1, 2, 3, 10, 11, -1, 2**63 - 1, -(2**63))
TEXTS = (
    None,
    "",
    " ",
    "a",
    "A",
    "a ",
    "é",
    "e\u0301",
    "ß",
    "İ",
    "😀",
    "a'b",
    'a"b',
    "x" * 5000,
    "NULL",
    "0",
    "-1",
    "1e400",
    "nan",
    "2024-02-30",
    "\u200b",
    "%",
)
MOMENTS = (
    None,
    *(
        datetime.fromisoformat(t)
        for t in ("2024-01-01 00:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2024-02-29 12:30:15.5")
    ),
    *(datetime.fromisoformat(t) for t in ("1969-12-31 23:59:59.999999", "2024-01-02 10:00:00", "1582-10-10 05:05:05")),
)
DATES = (None, date(1, 1, 1), date(9999, 12, 31), date(1900, 2, 28), *DAYS, *DAYS)
WORDS = ("what is no number", "12abc", "9" * 60, "--1", "2024-13-45", "infinity", "-inf", "1e999", "TRUE", "nil", "\t7 ", "0x1F")
"""What a column of texts holds where its declared type is another."""

POOLS = {
    "city": (*CITIES, *CITIES, "delhi", "Rome", None, ""),
    "free": TEXTS,
    "amount": NUMBERS,
    "raw": NUMBERS,
    "qty": SMALLS,
    "big": WHOLES,
}
POOLS |= {"ts": MOMENTS, "day": DATES, "vip": (None, True, False)}

_COLUMNS = (
    Column(name="city", type="text", values=CITIES),
    Column(name="free", type="text"),
    Column(name="amount", type="float", low=-10, high=100),
    Column(name="raw", type="float"),
    Column(name="qty", type="int", low=0, high=10),
    Column(name="big", type="int"),
    Column(name="ts", type="timestamp"),
    Column(name="day", type="date"),
    Column(name="vip", type="bool"),
)
CITY_TABLE = Table(
    name="cities",
    key="city",
    columns=(
        Column(name="city", type="text"),
        Column(name="region", type="text", values=("north", "south")),
        Column(name="pop", type="int"),
    ),
)
DAY_TABLE = Table(name="days", key="day", columns=(Column(name="day", type="date", values=DAYS), Column(name="holiday", type="bool")))
PUBLIC = {
    "cities": [
        {"city": "Delhi", "region": "north", "pop": 30},
        {"city": "Goa", "region": "elsewhere", "pop": None},
        {"city": "", "region": None, "pop": 1},
    ],
    "days": [{"day": DAYS[0], "holiday": True}, {"day": DAYS[2], "holiday": None}],
}


def table(kind, neighbors):
    """The private table. The unit is a key of ``ints`` or ``texts``, or each of ``rows``, or one that a key leads to (``owned``)."""
    key = None if kind == "rows" else "who"
    who = () if key is None or kind == "owned" else (Column(name="who", type="text" if kind == "texts" else "int"),)
    unit = PrivacyUnit(dataset="people" if kind == "owned" else "t", key=key, neighbors=neighbors)
    if kind == "owned":
        through = Through(column="card", table="people", key="card")
        return Table(name="t", unit=unit, through=through, columns=(Column(name="card", type="int"), *_COLUMNS))
    return Table(name="t", unit=unit, columns=(*who, *_COLUMNS))


def people(unit):
    """Who owns which card."""
    return Table(name="people", unit=unit, columns=(Column(name="who", type="int"), Column(name="card", type="int")))


def catalog(private):
    """All tables that a query may name."""
    owner = (people(private.unit),) if private.through is not None else ()
    return Catalog.of(private, *owner, CITY_TABLE, DAY_TABLE)


KEYS = {
    "ints": (0, 1, 2, 3, 2**63 - 1, -(2**63), 7),
    "texts": ("a", "A", "a ", "é", "e\u0301", "", "x" * 3000),
    "owned": (0, 1, 2, 3, 4, 5, 6),
}


def row(random):
    """One row without a unit."""
    return {
        name: random.uniform(-20, 120) if name in {"amount", "raw"} and random.random() < 0.5 else random.choice(pool)
        for name, pool in POOLS.items()
    }


def units(kind, random):
    """{unit: its rows}: some have one row, one has many; None is nobody."""
    if kind == "rows":
        return {n: [row(random)] for n in range(random.randint(2, 25))}
    keys = random.sample(KEYS[kind], random.randint(2, 6))
    found = {k: [row(random) for _ in range(random.choice((1, 1, 2, 4, 9)))] for k in keys}
    whale = random.choice(keys)
    same = row(random)
    found[whale] += [{**(same if random.random() < 0.6 else row(random))} for _ in range(random.choice((0, 20, 60)))]
    return found | {None: [row(random) for _ in range(random.randint(0, 2))]}


def told(value, random):
    """A value as a file of texts may hold it."""
    if value is None or random.random() < 0.08:
        return random.choice((None, None, "", *WORDS))
    return str(value).lower() if isinstance(value, bool | float) else str(value)


# ------------------------------------------------------------------------------------------------ SQL


class Texts:
    """Random SQL: every operator, every aggregate, every clause."""

    def __init__(self, random, kind):
        self.random, self.kind = random, kind
        self.unit = {"rows": None, "owned": "card"}.get(kind, "who")

    def pick(self, *made):
        found = self.random.choice(made)
        return found() if callable(found) else found

    def number(self, depth=2):
        if depth == 0 or self.random.random() < 0.3:
            return self.pick(
                "amount", "raw", "qty", "big", "amount", "qty", "0", "1", "2.5", "-3", "1e300", "9007199254740993", "NULL", "LENGTH(free)"
            )
        n, m = (lambda: self.number(depth - 1)), (lambda: self.number(depth - 1))
        return self.pick(
            *(lambda op=op: f"({n()} {op} {m()})" for op in ("+", "-", "*", "/", "%")),
            *(lambda f=f: f"{f}({n()})" for f in ("ABS", "FLOOR", "CEIL", "ROUND", "SIGN", "SQRT", "LN", "LOG10", "EXP", "-")),
            *(lambda f=f: f"{f}({n()}, {m()})" for f in ("POWER", "GREATEST", "LEAST", "COALESCE", "NULLIF", "MOD")),
            lambda: f"CLAMP({n()}, 0, 9)",
            lambda: f"CASE WHEN {self.condition(depth - 1)} THEN {n()} ELSE {m()} END",
            lambda: f"CAST({self.text(depth - 1)} AS {self.pick('BIGINT', 'DOUBLE')})",
            lambda: f"CAST({n()} AS BIGINT)",
            lambda: f"{self.pick('YEAR', 'QUARTER', 'MONTH', 'DAY')}({self.pick('ts', 'day')})",
            lambda: f"EXTRACT({self.pick('hour', 'minute', 'dow')} FROM ts)",
            lambda: f"DATE_DIFF('{self.pick('day', 'month', 'year')}', day, {self.moment(depth - 1)})",
            lambda: f"ROUND({n()}, 2)",
        )

    def moment(self, depth=1):
        if depth == 0:
            return "day"
        return self.pick(
            "day",
            "DATE '2024-02-29'",
            lambda: f"CAST({self.text(0)} AS DATE)",
            lambda: f"CAST(day + {self.number(0)} AS DATE)",
            "CAST(ts AS DATE)",
        )

    def text(self, depth=1):
        if depth == 0:
            return self.pick("city", "free", "'a'", "''", "free")
        t = self.text
        return self.pick(
            *(lambda f=f: f"{f}({t(depth - 1)})" for f in ("LOWER", "UPPER", "TRIM")),
            lambda: f"SUBSTR({t(depth - 1)}, {self.number(0)}, 2)",
            lambda: f"({t(depth - 1)} || {t(depth - 1)})",
            lambda: f"CAST({self.number(1)} AS VARCHAR)",
            lambda: f"CASE WHEN {self.condition(0)} THEN 'x' WHEN {self.condition(0)} THEN 'y' END",
            lambda: f"LEFT({t(depth - 1)}, 1)",
            lambda: t(0),
        )

    def condition(self, depth=2):
        if depth <= 0 or self.random.random() < 0.2:
            return self.pick(
                "vip", "city = 'Pune'", "amount > 5", "qty IN (1, 2, 3)", "free IS NULL", "free LIKE '%a%'", "day >= '2024-01-02'", "TRUE"
            )
        n, c = (lambda: self.number(depth - 1)), (lambda: self.condition(depth - 1))
        return self.pick(
            *(lambda op=op: f"{n()} {op} {n()}" for op in ("=", "<>", "<", "<=", ">", ">=")),
            lambda: f"({c()} AND {c()})",
            lambda: f"({c()} OR {c()})",
            lambda: f"NOT ({c()})",
            lambda: f"{n()} BETWEEN 0 AND {n()}",
            lambda: f"{n()} IS NOT NULL",
            lambda: f"{self.text()} = {self.text()}",
            lambda: f"{self.pick('STARTS_WITH', 'ENDS_WITH', 'CONTAINS')}({self.text()}, 'a')",
            lambda: f"1 / ({n()} - 7) < 2",
            lambda: f"{self.moment()} < {self.moment()}",
            lambda: f"CAST({self.text()} AS TIMESTAMP) <= ts",
            lambda: f"CAST({self.text()} AS BOOLEAN)",
            lambda: f"{self.text()} LIKE '{self.pick('_a%', 'a_', '%_')}'",
        )

    def value(self):
        """A number with a range."""
        return self.pick(
            "amount",
            "qty",
            "amount",
            lambda: f"CLAMP({self.number(2)}, {self.pick(0, -5, -1000)}, {self.pick(1, 50, 1e6)})",
            "qty * amount",
        )

    def aggregate(self, unit=None):
        v = self.value
        made = [
            "COUNT(*)",
            "COUNT(*)",
            lambda: f"COUNT({self.pick('amount', 'free', 'raw', 'NULLIF(city, free)')})",
            *(lambda f=f: f"{f}({v()})" for f in ("SUM", "SUM", "AVG", "AVG", "VARIANCE", "STDDEV_POP", "MEDIAN", "MIN", "MAX")),
            lambda: f"QUANTILE_CONT({v()}, {self.pick(0, 0.25, 0.9, 1)})",
            lambda: f"CORR({v()}, qty)",
            lambda: f"SUM({v()}) FILTER (WHERE {self.condition(1)})",
            lambda: f"COUNT_IF({self.condition(1)})",
        ]
        return self.pick(*made, *([f"COUNT(DISTINCT {unit})"] * 2 if unit else ()))

    def group(self):
        """A key that is public, or one that is not."""
        return self.pick(
            *("city", "city", "vip", "free", "qty", "MONTH(ts)", "raw", "day", "DATE_TRUNC('month', ts)"),
            lambda: f"CASE WHEN {self.condition(1)} THEN 'x' WHEN {self.condition(0)} THEN 'y' ELSE 'z' END",
            lambda: f"({self.condition(1)})",
            lambda: self.text(1),
            lambda: f"FLOOR({self.number(1)})",
        )

    def query(self):
        """One query, and whether it may need δ: its keys may be private."""
        if self.unit is not None and self.random.random() < 0.3:
            return self.nested()
        source, more = "t", ()
        joined = self.random.random()
        if joined < 0.1:
            return "SELECT d.day, COUNT(t.vip), SUM(t.amount) FROM days AS d LEFT JOIN t ON t.day = d.day GROUP BY d.day"
        if joined < 0.25:
            source, more = f"t {self.pick('', 'LEFT ')}JOIN cities AS c ON t.city = c.city", ("region", "region", "pop")
        groups = [self.pick(*more, self.group) for _ in range(self.random.choice((0, 1, 1, 1, 2)))]
        if source != "t":
            groups = ["t.city" if g == "city" else g for g in groups]
            groups = [g for g in groups if "city" not in g or g == "t.city"]
        made = [self.aggregate(self.unit if self.kind in {"ints", "texts"} else None) for _ in range(self.random.randint(1, 3))]
        if source != "t":
            made = [m for m in made if "city" not in m] or ["COUNT(*)"]
        told = ", ".join([*(f"{g} AS g{n}" for n, g in enumerate(groups)), *(f"{m} AS m{n}" for n, m in enumerate(made))])
        sql = f"SELECT {told} FROM {source}"
        if self.random.random() < 0.5:
            condition = self.condition()
            if source == "t" or "city" not in condition:
                sql += f" WHERE {condition}"
        if groups:
            sql += f" GROUP BY {', '.join(map(str, range(1, len(groups) + 1)))}"
        if self.random.random() < 0.3:
            sql += f" HAVING {self.pick('COUNT(*) > 3', 'm0 > 0', '1 / (COUNT(*) - 2) < 5', 'SQRT(m0 - 9) IS NULL')}"
        if self.random.random() < 0.3:
            sql += f" ORDER BY {self.pick('m0', 'm0 DESC NULLS FIRST', '1')}"
        return sql + (f" LIMIT {self.pick(0, 1, 3)}" if self.random.random() < 0.2 else "")

    def nested(self):
        """Aggregates within each unit, then over all of them."""
        unit, key = self.unit, self.pick("", "", "city", "qty", "vip")
        inner = [
            self.pick(
                "COUNT(*)", lambda: f"{self.pick('SUM', 'MIN', 'MAX', 'AVG')}({self.number(1)})", "COUNT(DISTINCT city)", "COUNT(raw)"
            )
            for _ in range(2)
        ]
        shown = [unit, *([key] if key else []), *(f"{m} AS x{n}" for n, m in enumerate(inner))]
        by = [unit, *([key] if key else [])]
        where = f" WHERE {self.condition()}" if self.random.random() < 0.4 else ""
        having = f" HAVING {self.pick('COUNT(*) > 1', 'x0 IS NOT NULL')}" if self.random.random() < 0.3 else ""
        outer = self.pick("COUNT(*)", "AVG(CLAMP(x0, 0, 50))", "SUM(CLAMP(x1, -3, 3))", "MEDIAN(CLAMP(x0, 0, 9))", "COUNT(x1)")
        group = self.pick("", "LEAST(x0, 2)", key, "x1")
        told = ", ".join([*([f"{group} AS g0"] if group else []), f"{outer} AS m0", "COUNT(*) AS m1"])
        sql = f"WITH w AS (SELECT {', '.join(shown)} FROM t{where} GROUP BY {', '.join(by)}{having}) SELECT {told} FROM w"
        return sql + (" GROUP BY 1" if group else "")
