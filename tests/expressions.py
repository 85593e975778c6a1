"""Random typed expressions over a table of hostile rows, for tests that hold every engine to the oracle."""

import itertools
from datetime import date, datetime
from random import Random

from dither.core.errors import InputError
from dither.query.expr import call, col, lit
from dither.query.operators import UNITS

FLOATS = (
    *(None, float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 0.3, 1e15, 1e16, 123456.789),
    *(1e308, -1e308, 1.7976931348623157e308, -1.7976931348623157e308, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-300, -1e-300, 1e-160),
    *(
        2.0**53,
        2.0**53 + 2,
        -(2.0**53),
        2.0**63,
        -(2.0**63),
        9.3e18,
        0.49999999999999994,
        4503599627370495.5,
        3.0,
        1e200,
        709.9,
        -745.2,
        7e-17,
    ),
)
WHOLES = (None, 0, 1, -1, 2, 7, 100, -100, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**62, 10**18, 2**31, -(2**31), 4_000_000)
SMALLS = (None, 0, 1, -1, 2, 5, 100, 101, -101, 2**63 - 1, -(2**63))
TEXTS = (
    *(
        None,
        "",
        " ",
        "a",
        "A",
        "abc",
        "ABC",
        "a%c",
        "a_c",
        "a\\c",
        "a'c",
        'a"c',
        "Ärger",
        "ſtraße",
        "İstanbul",
        "ΑΣΣ",
        "ᾳ",
        "日本語",
        "😀a",
        "e\u0301",
    ),
    *(
        "0",
        "-0",
        "1",
        " 12 ",
        "+5",
        "0012",
        "1e3",
        "1.5",
        ".5",
        "5.",
        ".",
        "1e400",
        "-1e400",
        "1e-400",
        "3e-324",
        "2e-324",
        "1e999",
        "-",
        "1_000",
    ),
    *(
        "9007199254740992",
        "9007199254740993",
        "-9007199254740992",
        "99999999999999999",
        "9" * 50,
        "0" * 30 + "7",
        "0x10",
        "nan",
        "inf",
        "Infinity",
    ),
    *(
        "true",
        "TRUE",
        " t ",
        "yes",
        "off",
        "F",
        "tru",
        "null",
        "NULL",
        "2024-02-29",
        "2023-02-29",
        "0001-01-01",
        "0000-01-01",
        "9999-12-31",
        "1900-02-29",
    ),
    *(
        "2024-13-01",
        "2024-00-10",
        "2024-01-32",
        "2016-12-31 23:59:60",
        "2016-12-31T23:59:59Z",
        "2024-01-01 24:00:00",
        "2024-01-01 10:30",
        " 2000-02-29 ",
    ),
    *(
        "9999-12-31 23:59:59.999999",
        "2024-01-01 10:30:05.1234567",
        "2024-01-01 10:30:05.12",
        "infinity",
        "10000-01-01",
        "2024-1-1",
        "٣",
        "1\n",
        "\t5",
    ),
    *("x" * 70_000, "ä" * 66_000, "\u200b", "ab\nab", "%", "_", "\\", "a  ", "City 1"),
)
DATES = (
    None,
    *(date(*p) for p in ((1, 1, 1), (1, 12, 31), (9999, 12, 31), (9999, 1, 1), (1970, 1, 1), (1969, 12, 31), (2000, 2, 29), (1900, 2, 28))),
)
DATES += tuple(date(*p) for p in ((2024, 1, 31), (2024, 3, 31), (2023, 12, 31), (2024, 2, 29), (2016, 12, 31), (2021, 1, 3), (2021, 1, 4)))
TIMESTAMPS = (
    None,
    *(
        datetime.fromisoformat(text)
        for text in (
            "0001-01-01 00:00:00",
            "0001-01-01 00:00:00.000001",
            "9999-12-31 23:59:59.999999",
            "1969-12-31 23:59:59.999999",
            "1970-01-01 00:00:00",
            "2016-12-31 23:59:59",
            "2024-02-29 12:30:15.500000",
            "2024-01-31 00:00:00.000001",
            "2000-10-01 23:00:00",
            "1582-10-10 05:05:05",
            "2024-12-30 00:00:00",
        )
    ),
)
POOLS = {
    "x": FLOATS,
    "y": FLOATS,
    "z": FLOATS,
    "w": FLOATS,
    "i": WHOLES,
    "l": WHOLES,
    "j": SMALLS,
    "k": SMALLS,
    "b": (None, True, False),
    "c": (True, False, None),
    "s": TEXTS,
    "t": TEXTS,
    "g": TEXTS,
    "d": DATES,
    "e": DATES,
    "u": TIMESTAMPS,
    "v": TIMESTAMPS,
}
COLUMNS = {
    c.value: c
    for c in (
        *(col("x", "float"), col("y", "float"), col("z", "float", low=-2.5, high=1e6), col("w", "float", low=0)),
        *(col("i", "int"), col("l", "int"), col("j", "int", low=-100, high=100), col("k", "int", low=0, high=5)),
        *(col("b", "bool"), col("c", "bool"), col("s", "text"), col("t", "text"), col("g", "text", values=("a", "abc", "", "Ärger"))),
        *(col("d", "date"), col("e", "date"), col("u", "timestamp"), col("v", "timestamp")),
    )
}
TYPES = ("bool", "int", "float", "text", "date", "timestamp")
ROWS = 150


def rows(seed=7):
    """Every hostile value at least once, in random company."""
    random = Random(seed)
    picked = {}
    for name, pool in POOLS.items():
        found = list(itertools.islice(itertools.cycle(pool), ROWS))
        random.shuffle(found)
        picked[name] = found
    return [dict(zip(picked, values, strict=True)) for values in zip(*picked.values(), strict=True)]


class Maker:
    """Makes expressions; ``random`` may be Hypothesis's, so that a failure shrinks."""

    def __init__(self, random, columns=COLUMNS):
        self.random, self.columns = random, columns

    def pick(self, options):
        return options[self.random.randrange(len(options))]

    def make(self, kind, depth):
        """An expression of that type (a number of either kind where a float is asked for)."""
        while True:
            try:
                if depth <= 0 or self.random.randrange(10) == 0:
                    return self.leaf(kind)
                return getattr(self, kind)(depth - 1)
            except InputError:
                continue

    def leaf(self, kind):
        if self.random.randrange(3) == 0:
            pool = {"bool": POOLS["b"], "int": WHOLES, "float": FLOATS, "text": TEXTS, "date": DATES, "timestamp": TIMESTAMPS}[kind]
            value = self.pick(pool)
            if isinstance(value, float) and not abs(value) < float("inf"):
                value = 2.0
            return lit(None if value is None else value[:50] if isinstance(value, str) else value, kind)
        return self.pick([c for c in self.columns.values() if c.type == kind])

    def number(self, depth):
        return self.make(self.pick(("int", "float")), depth)

    def any(self, depth):
        return self.make(self.pick(TYPES), depth)

    def choice(self, kind, depth):
        n = self.random.randrange(4)
        if n == 0:
            return call("coalesce", self.make(kind, depth), self.make(kind, depth))
        if n == 1:
            return call("nullif", self.make(kind, depth), self.make(kind, depth))
        if n == 2 and kind != "bool":
            return call(self.pick(("least", "greatest")), self.make(kind, depth), self.make(kind, depth), self.make(kind, depth))
        return call(
            "case", self.make("bool", depth), self.make(kind, depth), self.make("bool", depth), self.make(kind, depth), self.leaf(kind)
        )

    def bool(self, depth):
        n = self.random.randrange(9)
        if n == 0:
            return call(self.pick(("and", "or")), self.make("bool", depth), self.make("bool", depth), self.make("bool", depth))
        if n == 1:
            return call("not", self.make("bool", depth))
        if n == 2:
            return call("is_null", self.any(depth))
        if n == 3:
            return call("cast_bool", self.make(self.pick(("int", "float", "text", "bool")), depth))
        if n == 4:
            return call(
                self.pick(("starts_with", "ends_with", "contains")),
                self.make("text", depth),
                lit(self.pick(("", "a", "Ä", "%", "'", "\\", "bc"))),
            )
        if n == 5:
            pattern = self.pick(("abc", "a%", "%c", "%b%", "a%c", "a_c", "_", "%", "", "a\\_c", "%\\%", "__%", "_%_", "%%", "a_%_c"))
            return call("like", self.make("text", depth), lit(pattern), lit("\\"))
        if n == 6:
            kind = self.pick(TYPES)
            items = [e for e in (self.leaf(kind) for _ in range(6)) if e.op == "lit" and not e.is_null]
            return call("in", self.make(kind, depth), *items)
        if n == 7:
            return self.choice("bool", depth)
        op = self.pick(("eq", "ne", "lt", "le", "gt", "ge"))
        kind = self.pick(TYPES)
        if kind in {"int", "float"}:
            return call(op, self.number(depth), self.number(depth))
        return call(op, self.make(kind, depth), self.make(kind, depth))

    def int(self, depth):
        n = self.random.randrange(10)
        if n < 3:
            found = call(self.pick(("add", "sub", "mul", "mod")), self.make("int", depth), self.make("int", depth))
        elif n == 3:
            found = call(self.pick(("neg", "abs", "floor", "ceil", "round", "sign")), self.number(depth))
        elif n == 4:
            found = call("length", self.make("text", depth))
        elif n == 5:
            found = call(
                self.pick(("year", "quarter", "month", "day", "dow", "hour", "minute")), self.make(self.pick(("date", "timestamp")), depth)
            )
        elif n == 6:
            kind = self.pick(("date", "timestamp"))
            found = call("date_diff", lit(self.pick(tuple(UNITS))), self.make(kind, depth), self.make(kind, depth))
        elif n == 7:
            found = call("cast_int", self.make(self.pick(("int", "float", "text", "bool")), depth))
        elif n == 8:
            low = self.pick((-5, 0, 2))
            found = call("clamp", self.make("int", depth), lit(low), lit(low + self.pick((0, 5, 2**40))))
        else:
            found = self.choice("int", depth)
        return found if found.type == "int" else call("cast_int", found)

    def float(self, depth):
        n = self.random.randrange(8)
        if n < 4:
            found = call(self.pick(("add", "sub", "mul", "div", "mul", "div")), self.number(depth), self.number(depth))
        elif n == 4:
            found = call(self.pick(("neg", "abs", "floor", "ceil", "round", "sqrt")), self.make("float", depth))
        elif n == 5:
            found = call("cast_float", self.make(self.pick(("int", "float", "text", "bool")), depth))
        elif n == 6:
            found = call("round", self.number(depth), lit(self.pick((1, 2, 6, -1, -3, 15, -15))))
        else:
            found = self.pick((self.choice("float", depth), call("clamp", self.number(depth), lit(-0.5), lit(self.pick((0.5, 1e300))))))
        return found if found.type == "float" else call("cast_float", found)

    def text(self, depth):
        n = self.random.randrange(6)
        if n == 0:
            return call(self.pick(("lower", "upper", "trim")), self.make("text", depth))
        if n == 1:
            start = self.pick((1, 2, 3, -1, -2, 60_000, -60_000))
            return call("substr", self.make("text", depth), lit(start), *self.pick(((), (lit(0),), (lit(2),), (lit(60_000),))))
        if n == 2:
            return call("concat", self.make("text", depth), self.make("text", depth))
        if n < 5:
            return call("cast_text", self.any(depth))
        return self.choice("text", depth)

    def time(self, kind, depth):
        n = self.random.randrange(4)
        if n == 0:
            return call("date_trunc", lit(self.pick(tuple(UNITS))), self.make(kind, depth))
        if n == 1:
            units = tuple(UNITS) if kind == "timestamp" else ("year", "quarter", "month", "week", "day")
            return call("date_add", lit(self.pick(units)), self.make(kind, depth), self.make("int", depth))
        if n == 2:
            return call(f"cast_{kind}", self.make(self.pick(("text", "date", "timestamp")), depth))
        return self.choice(kind, depth)

    def date(self, depth):
        return self.time("date", depth)

    def timestamp(self, depth):
        return self.time("timestamp", depth)

    def rounded(self, depth):
        """A function that engines compute to the last few places only, where nothing above can blow the difference up."""
        inner = self.number(depth)
        n = self.random.randrange(6)
        if n < 3:
            found = call(("exp", "ln", "log10")[n], inner)
        elif n == 3:
            found = call("power", lit(self.pick((0.5, 2, 10.0))), self.pick([c for c in self.columns.values() if c.type == "float"]))
        else:
            found = call("power", inner, lit(self.pick((0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 10, 64, -64, 0.001))))
        return self.pick((found, call("neg", found), call("abs", found), call("coalesce", found, self.leaf("float"))))
