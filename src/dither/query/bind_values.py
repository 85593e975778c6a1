"""One expression of SQL → one expression of the total language: by allow-list, node by node, and every part of a node accounted for.

Whatever is not named here is refused: an operator that a newer parser knows, or a flag on one that is spoken here, cannot slip through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from dither.core.errors import InputError, UnknownNameError
from dither.query.bind_asking import Asking, Node
from dither.query.expr import Expr, call, lit
from dither.query.refusals import wrong


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SIMPLE: Final[Mapping[type[Node], tuple[str, tuple[str, ...]]]] = MappingProxyType(
    {
        exp.Mul: ("mul", ("this", "expression")),
        exp.SafeDivide: ("div", ("this", "expression")),
        exp.Mod: ("mod", ("this", "expression")),
        exp.Abs: ("abs", ("this",)),
        exp.Floor: ("floor", ("this",)),
        exp.Ceil: ("ceil", ("this",)),
        exp.Sign: ("sign", ("this",)),
        exp.Sqrt: ("sqrt", ("this",)),
        exp.Ln: ("ln", ("this",)),
        exp.Exp: ("exp", ("this",)),
        exp.Pow: ("power", ("this", "expression")),
        exp.Not: ("not", ("this",)),
        exp.Nullif: ("nullif", ("this", "expression")),
        exp.Lower: ("lower", ("this",)),
        exp.Upper: ("upper", ("this",)),
        exp.Length: ("length", ("this",)),
        exp.Trim: ("trim", ("this",)),
        exp.StartsWith: ("starts_with", ("this", "expression")),
        exp.EndsWith: ("ends_with", ("this", "expression")),
        exp.Contains: ("contains", ("this", "expression")),
        exp.Year: ("year", ("this",)),
        exp.Quarter: ("quarter", ("this",)),
        exp.Month: ("month", ("this",)),
        exp.Day: ("day", ("this",)),
        exp.DayOfMonth: ("day", ("this",)),
        exp.Hour: ("hour", ("this",)),
        exp.Minute: ("minute", ("this",)),
        exp.Round: ("round", ("this", "decimals")),
        exp.Substring: ("substr", ("this", "start", "length")),
    }
)
_COMPARE: Final[Mapping[type[Node], str]] = MappingProxyType(
    {exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge"}
)
_CALLED: Final = MappingProxyType({"clamp": "clamp", "dow": "dow", "weekday": "dow", "prefix": "starts_with", "suffix": "ends_with"})
"""Functions that the parser does not know by name."""
_PARTS: Final = ("year", "quarter", "month", "day", "dow", "hour", "minute")
_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {"BOOLEAN": "bool", "SMALLINT": "int", "INT": "int", "BIGINT": "int", "FLOAT": "float", "DOUBLE": "float"}
    | {"VARCHAR": "text", "TEXT": "text", "DATE": "date"}
    | dict.fromkeys(("TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPTZ", "TIMESTAMPLTZ", "DATETIME"), "timestamp")
)
KNOWN: Final = (
    "ABS, CEIL, CLAMP, COALESCE, CONCAT, CONTAINS, DATE_ADD, DATE_DIFF, DATE_PART, DATE_TRUNC, DAY, DAYOFWEEK, ENDS_WITH, EXP, EXTRACT,"
    " FLOOR, GREATEST, HOUR, IF, LEAST, LEFT, LENGTH, LN, LOG10, LOWER, MINUTE, MOD, MONTH, NULLIF, POWER, QUARTER, RIGHT, ROUND, SIGN,"
    " SQRT, STARTS_WITH, SUBSTR, TRIM, UPPER, YEAR; of aggregates AVG, CORR, COUNT, COUNT_IF, COVAR_POP, MAX, MEDIAN, MIN,"
    " QUANTILE_CONT, STDDEV, SUM, VARIANCE"
)
_CHANGING: Final = _words(
    "now today random rand uuid gen_random_uuid uuidv4 uuidv7 sysdate getdate version nextval currval setseed getenv current_setting"
    " txid_current get_current_time get_current_timestamp clock_timestamp statement_timestamp transaction_timestamp timeofday"
    " rowid"
)
_RAW: Final = (exp.ArrayAgg, exp.GroupConcat, exp.First, exp.Last, exp.AnyValue, exp.Mode, exp.ArgMax, exp.ArgMin)
_RAW_NAMES: Final = _words(
    "list listagg string_agg group_concat array_agg first last any_value arbitrary mode arg_max arg_min max_by min_by histogram map_agg"
    " json_agg json_object_agg json_group_array json_group_object array_concat_agg approx_top_k arg_max_null arg_min_null"
)
OTHER_AGGREGATES: Final = _words(
    "mean product every bool_and bool_or bit_and bit_or bit_xor entropy mad fsum kahan_sum favg geomean geometric_mean sumkahan"
    " skewness kurtosis kurtosis_pop regr_avgx regr_count sem wavg weighted_avg reservoir_quantile"
)
_DAY, _MOMENT = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


# ------------------------------------------------------------------------------------------------ shapes of nodes


def chain(node: Node, kind: type[exp.Binary]) -> Iterator[Node]:
    """The links of a chain of one connective, however long, brackets taken off."""
    stack = [node]
    while stack:
        link = bare(stack.pop())
        if isinstance(link, kind):
            stack += [link.args["expression"], link.this]
        else:
            yield link


def bare(node: Node) -> Node:
    """A node without brackets around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def is_aggregate(node: Node) -> bool:
    """Whether a node is an aggregate, of those that are spoken here or not."""
    if isinstance(node, exp.Anonymous):
        return _name(node) in _RAW_NAMES | OTHER_AGGREGATES
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls)


def holds_aggregate(node: Node) -> bool:
    """Whether there is an aggregate anywhere in it (not within a sub-query or a window, which are refused as such)."""
    apart = exp.Query | exp.Window
    return any(is_aggregate(n) for n in node.walk(prune=lambda n: isinstance(n, apart)) if not isinstance(n, apart))


def is_raw(node: Node) -> bool:
    """Whether it is an aggregate that gives back values as they stand in rows."""
    inner = node.this if isinstance(node, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup) else node
    if isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
        inner = inner.this
    return isinstance(inner, _RAW) or (isinstance(inner, exp.Anonymous) and _name(inner) in _RAW_NAMES)


def _name(node: exp.Anonymous) -> str:
    return str(node.this).lower() if isinstance(node.this, str) else str(node.name).lower()


# ------------------------------------------------------------------------------------------------ expressions


class Values:
    """Binds expressions. ``column`` says what a name stands for; ``special`` is asked first about every node."""

    def __init__(
        self,
        asking: Asking,
        column: Callable[[exp.Column], Expr],
        special: Callable[[Node], Expr | None] = lambda _: None,
        *,
        clause: str = "WHERE",
    ) -> None:
        self.asking = asking
        self.column = column
        self.special = special
        self.clause = clause

    def bind(self, node: Node) -> Expr:
        """The expression that a node stands for."""
        found = self.special(node)
        return self._bind(node) if found is None else found

    def made(self, node: Node, op: str, *args: Expr) -> Expr:
        """An operator applied; what its own check says is told with the fragment."""
        try:
            return call(op, *args)
        except UnknownNameError:
            raise
        except InputError as error:
            raise wrong(self.asking.told(node), self.asking.place(node), str(error)) from None

    def _bind(self, node: Node) -> Expr:
        self._refuse_outside(node)
        kind = type(node)
        if kind in _SIMPLE:
            op, names = _SIMPLE[kind]
            self.asking.only(node, *names, rule="modifier")
            return self.made(node, op, *(self.bind(node.args[n]) for n in names if node.args.get(n) is not None))
        if kind in _COMPARE:
            self.asking.only(node, "this", "expression")
            return self.made(node, _COMPARE[kind], *self._alike([node.this, node.expression]))
        rule = _RULES.get(kind)
        if rule is None:
            raise self.asking.no("function" if isinstance(node, exp.Func) else "expression", node, known=KNOWN)
        made: Expr = getattr(self, f"_{rule}")(node)
        return made

    def condition(self, node: Node) -> Expr:
        """The same for a condition."""
        found = self.bind(node)
        if found.type != "bool" and not found.is_null:
            raise self.asking.no("where_type", node, clause=self.clause, type=found.type)
        return found

    def _refuse_outside(self, node: Node) -> None:
        """What no expression may hold, whatever the rest of it."""
        no = self.asking.no
        name = type(node).__name__
        if isinstance(node, exp.Window):
            raise no("window", node, unit="the unit")
        if is_raw(node):
            raise no("raw_aggregate", node)
        if is_aggregate(node):
            raise no("aggregate_here", node, clause=self.clause)
        if isinstance(node, exp.Query | exp.Exists | exp.All | exp.Any) or (isinstance(node, exp.In) and node.args.get("query")):
            names = {t.name.casefold() for t in node.find_all(exp.Table)}
            public = names and all(n in self.asking.catalog.tables and self.asking.catalog[n].public for n in names)
            raise no("subquery_expression" if public else "other_people", node)
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            raise no("raw_star", node, table="events")
        if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise no("parameter", node)
        if name.startswith(("Regexp", "Similar", "Glob")) or (isinstance(node, exp.Anonymous) and _name(node).startswith("regexp")):
            raise no("regex", node)
        if name.startswith(("Current", "Local", "Rand", "Uuid")) or (isinstance(node, exp.Anonymous) and _name(node) in _CHANGING):
            raise no("not_repeatable", node)

    # -------------------------------------------------------------------------------------------- one rule for each kind of node

    def _paren(self, node: Node) -> Expr:
        self.asking.only(node, "this")
        return self.bind(node.this)

    def _column(self, node: Node) -> Expr:
        self.asking.only(node, "this", "table", "db", "catalog")
        if node.args.get("db"):
            raise self.asking.no("catalog", node, known=", ".join(sorted(t.name for t in self.asking.catalog.values())))
        assert isinstance(node, exp.Column)
        return self.column(node)

    def _literal(self, node: Node) -> Expr:
        text = str(node.this)
        if node.args.get("is_string"):
            try:
                return lit(text)
            except InputError as error:
                raise wrong("This text", self.asking.place(node), str(error)) from None
        if not _NUMBER.fullmatch(text) or len(text) > 400:
            raise self.asking.no("literal", node)
        try:
            return lit(int(text) if text.isdigit() else float(text))
        except InputError as error:
            raise wrong(text, self.asking.place(node), str(error)) from None

    def _null(self, _: Node) -> Expr:
        return lit(None)

    def _boolean(self, node: Node) -> Expr:
        return lit(bool(node.this))

    def _neg(self, node: Node) -> Expr:
        inner = self.bind(node.this)
        return negative(inner)

    def _connect(self, node: Node) -> Expr:
        kind = exp.And if isinstance(node, exp.And) else exp.Or
        return self.made(node, "and" if kind is exp.And else "or", *(self.bind(link) for link in chain(node, kind)))

    def _plus(self, node: Node) -> Expr:
        """Sums; and dates with days or an interval added or taken away."""
        self.asking.only(node, "this", "expression")
        less = isinstance(node, exp.Sub)
        left, right = bare(node.this), bare(node.expression)
        if isinstance(right, exp.Interval):
            return self._moved(self.bind(left), right, less=less)
        if isinstance(left, exp.Interval) and not less:
            return self._moved(self.bind(right), left, less=False)
        first, second = self.bind(left), self.bind(right)
        if first.type == "date" and second.type == "int" and not first.is_null:
            return self.made(node, "date_add", lit("day"), first, negative(second) if less else second)
        if less and first.type == second.type == "date":
            return self.made(node, "date_diff", lit("day"), second, first)
        return self.made(node, "sub" if less else "add", first, second)

    def _moved(self, moment: Expr, interval: exp.Interval, *, less: bool) -> Expr:
        self.asking.only(interval, "this", "unit")
        unit = interval.args.get("unit")
        amount = bare(interval.this) if interval.this is not None else None
        if not isinstance(unit, exp.Var) or amount is None:
            raise self.asking.no("literal", interval)
        if isinstance(amount, exp.Literal) and re.fullmatch(r"-?\d{1,9}", str(amount.this), re.ASCII):
            steps = lit(int(str(amount.this)))
        else:
            steps = self.bind(amount)
        return self.made(interval, "date_add", lit(_unit(unit)), moment, negative(steps) if less else steps)

    def _divide(self, node: Node) -> Expr:
        self.asking.only(node, "this", "expression")
        first, second = self.bind(node.this), self.bind(node.expression)
        if node.args.get("typed") and first.type == second.type == "int":
            raise self.asking.no("whole_division", node)
        return self.made(node, "div", first, second)

    def _between(self, node: Node) -> Expr:
        self.asking.only(node, "this", "low", "high")
        value, low, high = self._alike([node.this, node.args["low"], node.args["high"]])
        return self.made(node, "and", self.made(node, "ge", value, low), self.made(node, "le", value, high))

    def _in(self, node: Node) -> Expr:
        self.asking.only(node, "this", "expressions")
        first, *rest = self._alike([node.this, *node.expressions])
        if not rest:
            raise self.asking.no("expression", node)
        literals = [r for r in rest if r.op == "lit" and r.value is not None]
        if len(literals) == len(rest):
            return self.made(node, "in", first, *rest)
        return self.made(node, "or", *(self.made(node, "eq", first, r) for r in rest))

    def _is(self, node: Node) -> Expr:
        self.asking.only(node, "this", "expression")
        inner, told = self.bind(node.this), bare(node.expression)
        if isinstance(told, exp.Null):
            return self.made(node, "is_null", inner)
        if isinstance(told, exp.Boolean):
            return self.made(node, "coalesce", inner if told.this else self.made(node, "not", inner), lit(False))
        raise self.asking.no("expression", node)

    def _same(self, node: Node) -> Expr:
        """IS [NOT] DISTINCT FROM."""
        self.asking.only(node, "this", "expression")
        a, b = self._alike([node.this, node.expression])
        same = self.made(
            node,
            "or",
            self.made(node, "and", self.made(node, "is_null", a), self.made(node, "is_null", b)),
            self.made(node, "coalesce", self.made(node, "eq", a, b), lit(False)),
        )
        return same if isinstance(node, exp.NullSafeEQ) else self.made(node, "not", same)

    def _like(self, node: Node) -> Expr:
        self.asking.only(node, "this", "expression")
        if isinstance(node, exp.Escape):
            like = bare(node.this)
            if not isinstance(like, exp.Like):
                raise self.asking.no("expression", node)
            self.asking.only(like, "this", "expression")
            return self.made(node, "like", self.bind(like.this), self.bind(like.expression), self.bind(node.expression))
        value, pattern = self.bind(node.this), self.bind(node.expression)
        if isinstance(node, exp.ILike):
            if pattern.op != "lit" or not isinstance(pattern.value, str):
                raise self.asking.no("literal", node.expression)
            return self.made(node, "like", self.made(node, "lower", value), lit(pattern.value.lower()))
        return self.made(node, "like", value, pattern)

    def _if(self, node: Node) -> Expr:
        self.asking.only(node, "this", "true", "false")
        other = node.args.get("false")
        return self.made(node, "case", self.bind(node.this), self.bind(node.args["true"]), lit(None) if other is None else self.bind(other))

    def _case(self, node: Node) -> Expr:
        self.asking.only(node, "this", "ifs", "default")
        parts: list[Expr] = []
        for branch in node.args.get("ifs") or []:
            self.asking.only(branch, "this", "true")
            if node.this is not None:
                parts.append(self.made(node, "eq", *self._alike([node.this, branch.this])))
            else:
                parts.append(self.bind(branch.this))
            parts.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        return self.made(node, "case", *parts, lit(None) if default is None else self.bind(default))

    def _several(self, node: Node) -> Expr:
        self.asking.only(node, "this", "expressions")
        op = "coalesce" if isinstance(node, exp.Coalesce) else "greatest" if isinstance(node, exp.Greatest) else "least"
        return self.made(node, op, *self._alike([node.this, *node.expressions]))

    def _concat(self, node: Node) -> Expr:
        if isinstance(node, exp.DPipe):
            parts = [self._as_text(n, self.bind(n)) for n in chain(node, exp.DPipe)]
            return self.made(node, "concat", *parts)
        self.asking.only(node, "expressions")
        parts = [self._as_text(n, self.bind(n)) for n in node.expressions]
        if node.args.get("coalesce"):
            parts = [self.made(node, "coalesce", p, lit("")) if p.nullable else p for p in parts]
        return self.made(node, "concat", *parts)

    def _as_text(self, node: Node, value: Expr) -> Expr:
        return value if value.type == "text" else self.made(node, "cast_text", value)

    def _cut(self, node: Node) -> Expr:
        self.asking.only(node, "this", "expression")
        text, count = self.bind(node.this), self.bind(node.expression)
        if isinstance(node, exp.Left):
            return self.made(node, "substr", text, lit(1), count)
        return self.made(node, "substr", text, negative(count))

    def _log(self, node: Node) -> Expr:
        """LOG(x) is to the base 10 in these dialects (where it is not, the parser says LN); LOG(b, x) to the base b."""
        self.asking.only(node, "this", "expression")
        if node.args.get("expression") is None:
            return self.made(node, "log10", self.bind(node.this))
        base, value = self.bind(node.this), self.bind(node.expression)
        if base.op == "lit" and base.value == 10:
            return self.made(node, "log10", value)
        return self.made(node, "div", self.made(node, "ln", value), self.made(node, "ln", base))

    def _cast(self, node: Node) -> Expr:
        self.asking.only(node, "this", "to", rule="cast")
        to = node.args["to"]
        kind = _TYPES.get(to.this.name) if isinstance(to, exp.DataType) and isinstance(to.this, exp.DType) else None
        if kind is None or any(v for k, v in to.args.items() if k not in {"this", "nested"}) or to.args.get("nested"):
            raise self.asking.no("cast", node)
        value = self.bind(node.this)
        if value.op == "lit" and isinstance(value.value, str) and kind in {"date", "timestamp"}:
            return self._moment(value.value, kind, node)
        return self.made(node, f"cast_{kind}", value)

    def _part(self, node: Node) -> Expr:
        self.asking.only(node, "this", "expression")
        return self._part_of(_unit(node.this), node.expression, node)

    def _part_of(self, unit: str, moment: Node, node: Node) -> Expr:
        unit = {"dayofweek": "dow", "weekday": "dow"}.get(unit, unit) if self.asking.dialect in {"duckdb", "postgres"} else unit
        if unit not in _PARTS or (unit == "dow" and self.asking.dialect not in {"duckdb", "postgres", "snowflake"}):
            raise UnknownNameError("part of a date", unit, _PARTS) if unit not in _PARTS else self.asking.no("function", node, known=KNOWN)
        return self.made(node, unit, self.bind(moment))

    def _day_of_week(self, node: Node) -> Expr:
        """Sunday is 0 in DuckDB; other dialects count otherwise."""
        self.asking.only(node, "this")
        return self._part_of("dow" if self.asking.dialect == "duckdb" else "dayofweek", node.this, node)

    def _trunc(self, node: Node) -> Expr:
        self.asking.only(node, "this", "unit")
        return self.made(node, "date_trunc", lit(self._step(node.args["unit"])), self.bind(node.this))

    def _step(self, node: Node) -> str:
        """A unit of time. A week begins on Monday, which not every dialect means."""
        unit = _unit(node)
        if unit == "week" and self.asking.dialect not in {"duckdb", "postgres", "spark"}:
            raise self.asking.no("function", node, known=KNOWN)
        return unit

    def _diff(self, node: Node) -> Expr:
        self.asking.only(node, "this", "expression", "unit")
        unit = node.args.get("unit")
        later, earlier = self._alike([node.this, node.expression])
        return self.made(node, "date_diff", lit("day" if unit is None else self._step(unit)), earlier, later)

    def _date_add(self, node: Node) -> Expr:
        self.asking.only(node, "this", "expression", "unit")
        less = isinstance(node, exp.DateSub)
        amount, unit = bare(node.expression), node.args.get("unit")
        if isinstance(amount, exp.Interval) and unit is None:
            return self._moved(self.bind(node.this), amount, less=less)
        steps = self.bind(amount)
        return self.made(
            node, "date_add", lit("day" if unit is None else _unit(unit)), self.bind(node.this), negative(steps) if less else steps
        )

    def _anonymous(self, node: Node) -> Expr:
        assert isinstance(node, exp.Anonymous)
        self.asking.only(node, "this", "expressions")
        name, given = _name(node), node.expressions
        if name in {"date_part", "datepart"} and len(given) == 2 and isinstance(given[0], exp.Literal):
            return self._part_of(_unit(given[0]), given[1], node)
        if name in _CALLED:
            return self.made(node, _CALLED[name], *(self.bind(g) for g in given))
        raise self.asking.no("function", node, known=KNOWN)

    # -------------------------------------------------------------------------------------------- literals beside dates

    def _alike(self, nodes: Iterable[Node]) -> list[Expr]:
        """Values that are compared: a text beside a date or a timestamp is read as one."""
        nodes = list(nodes)
        found = [self.bind(n) for n in nodes]
        kinds = {f.type for f in found if f.type in {"date", "timestamp"} and not f.is_null}
        if not kinds:
            return found
        kind = "timestamp" if "timestamp" in kinds else "date"
        return [
            self._moment(f.value, kind, n) if f.op == "lit" and isinstance(f.value, str) else f for f, n in zip(found, nodes, strict=True)
        ]

    def _moment(self, text: str, kind: str, node: Node) -> Expr:
        """A date or a timestamp written as text."""
        try:
            if _DAY.fullmatch(text):
                day = date.fromisoformat(text)
                return lit(datetime(day.year, day.month, day.day)) if kind == "timestamp" else lit(day)  # noqa: DTZ001 - UTC
            if _MOMENT.fullmatch(text):
                moment = datetime.fromisoformat(text)
                return lit(moment)
        except ValueError:
            pass
        raise self.asking.no("moment", node)


def _unit(node: Node) -> str:
    """The unit of time that a word or a text names, without its plural s."""
    return str(node.name).lower().rstrip("s")


def negative(value: Expr) -> Expr:
    """The number with its sign changed; a literal stays one.

    >>> negative(lit(3)).value
    -3
    """
    if value.op == "lit" and isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return lit(-value.value)
    return call("neg", value)


_RULES: Final[Mapping[type[Node], str]] = MappingProxyType(
    {
        exp.Paren: "paren",
        exp.Column: "column",
        exp.Literal: "literal",
        exp.Null: "null",
        exp.Boolean: "boolean",
        exp.Neg: "neg",
        exp.And: "connect",
        exp.Or: "connect",
        exp.Add: "plus",
        exp.Sub: "plus",
        exp.Div: "divide",
        exp.Between: "between",
        exp.In: "in",
        exp.Is: "is",
        exp.NullSafeEQ: "same",
        exp.NullSafeNEQ: "same",
        exp.Like: "like",
        exp.ILike: "like",
        exp.Escape: "like",
        exp.If: "if",
        exp.Case: "case",
        exp.Coalesce: "several",
        exp.Greatest: "several",
        exp.Least: "several",
        exp.Concat: "concat",
        exp.DPipe: "concat",
        exp.Left: "cut",
        exp.Right: "cut",
        exp.Log: "log",
        exp.Cast: "cast",
        exp.TryCast: "cast",
        exp.Extract: "part",
        exp.DayOfWeek: "day_of_week",
        exp.DateTrunc: "trunc",
        exp.TimestampTrunc: "trunc",
        exp.DateDiff: "diff",
        exp.DateAdd: "date_add",
        exp.DateSub: "date_add",
        exp.Anonymous: "anonymous",
    }
)
