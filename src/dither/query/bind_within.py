"""Sub-queries and GROUP BY: a sub-query is a plain view of its rows, or it groups by the unit and aggregates within each, exactly.

Aggregates within a unit cost nothing, for the rows of a unit are still its own. Anything in a sub-query that looks at the rows of several
units (groups of many, LIMIT, DISTINCT, windows) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from sqlglot import exp

from dither.core.errors import UnknownNameError
from dither.query.bind_asking import Asking, Node
from dither.query.bind_rows import (
    Answer,
    Env,
    Field,
    Relation,
    Scope,
    Source,
    aliases_of,
    find,
    fresh,
    named_values,
    names_of,
    resolver,
    scope_of,
    source_of,
    unit_word,
    unknown,
    with_parts,
)
from dither.query.bind_values import Values, bare, holds_aggregate, is_aggregate, is_raw
from dither.query.expr import Expr, call, col, columns_of, lit
from dither.query.question import Extend, Filter, PerUnit, PerUnitKind, Rows
from dither.query.refusals import cut

# ------------------------------------------------------------------------------------------------ groups


def group_nodes(asking: Asking, select: exp.Select, sources: Sequence[Source]) -> list[Node]:
    """What GROUP BY names, places and names of SELECT put in their stead."""
    group = select.args.get("group")
    if group is None:
        return []
    if any(group.args.get(k) for k in ("grouping_sets", "cube", "rollup", "totals")):
        raise asking.no("grouping_sets", group)
    asking.only(group, "expressions", "all")
    items = [unaliased(item) for item in select.expressions]
    if group.args.get("all"):
        return [item for item in items if not holds_aggregate(item) and next(item.find_all(exp.Column), None) is not None]
    aliases, found = aliases_of(select), []
    for node in group.expressions:
        inner = bare(node)
        if isinstance(inner, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
            raise asking.no("grouping_sets", node)
        place = inner.this if isinstance(inner, exp.Neg) else inner
        if isinstance(place, exp.Literal) and not place.args.get("is_string"):
            found.append(_at(asking, inner, items))
        elif (
            isinstance(inner, exp.Column) and not inner.table and find(asking, sources, inner) is None and inner.name.casefold() in aliases
        ):
            found.append(aliases[inner.name.casefold()])
        else:
            found.append(inner)
        if holds_aggregate(found[-1]):
            raise asking.no("ordinal_aggregate" if isinstance(inner, exp.Literal) else "aggregate_here", node, clause="GROUP BY")
    return found


def _at(asking: Asking, node: Node, items: Sequence[Node]) -> Node:
    """The item of SELECT at a place."""
    text = str(node.this)
    if not (isinstance(node, exp.Literal) and text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= len(items)):
        raise asking.no("ordinal", node, count=len(items))
    return items[int(text) - 1]


def unaliased(item: Node) -> Node:
    """An item of SELECT without its name."""
    return item.this if isinstance(item, exp.Alias) else item


def rows_only(asking: Asking, scope: Scope, node: Node) -> bool:
    """Whether it has names, all of columns of the rows."""
    if next(node.find_all(exp.Query, exp.Window), None) is not None:
        return False
    columns = list(node.find_all(exp.Column))
    return bool(columns) and all(not isinstance(c.this, exp.Star) and find(asking, scope.sources, c) is not None for c in columns)


class Grouped:
    """Expressions after GROUP BY: over the groups, and over aggregates that ``aggregate`` makes numbers of.

    A part that equals a group stands for it; a name of SELECT stands for what it names, where no column has that name.
    """

    def __init__(
        self,
        asking: Asking,
        scope: Scope,
        groups: Sequence[tuple[Expr, Expr]],
        aliases: Mapping[str, Node],
        aggregate: Callable[[Node], Expr],
        *,
        clause: str = "SELECT",
        ungrouped: str = "raw_column",
    ) -> None:
        self.asking, self.scope, self.groups, self.aliases, self.aggregate = asking, scope, groups, aliases, aggregate
        self.ungrouped = ungrouped
        self.aliases_first = clause == "ORDER BY"
        self.active: set[str] = set()
        self.plain = Values(asking, resolver(asking, scope.sources), clause=clause)
        self.values = Values(asking, self._column, self._special, clause=clause)
        self.shaped = any(expr.op != "col" for expr, _ in groups)

    def bind(self, node: Node) -> Expr:
        """The expression over groups and aggregates."""
        return self.values.bind(node)

    def _special(self, node: Node) -> Expr | None:
        if is_aggregate(node) and not is_raw(node):
            return self.aggregate(node)
        if not self.shaped or isinstance(node, exp.Column | exp.Literal | exp.Paren | exp.Boolean | exp.Null):
            return None
        if holds_aggregate(node) or not rows_only(self.asking, self.scope, node):
            return None
        made = self.plain.bind(node)
        return next((stands for expr, stands in self.groups if expr == made), None)

    def _column(self, node: exp.Column) -> Expr:
        name = "" if node.table else node.name.casefold()
        if self.aliases_first and name in self.aliases and name not in self.active:
            return self._alias(name)
        found = find(self.asking, self.scope.sources, node)
        if found is not None:
            for expr, stands in self.groups:
                if expr == found.expr:
                    return stands
        if name in self.aliases and name not in self.active:
            return self._alias(name)
        if found is None:
            raise unknown(self.scope.sources, node) if name not in self.active else self.asking.no("alias_loop", node)
        raise self.asking.no(self.ungrouped, node, column=node.name)

    def _alias(self, name: str) -> Expr:
        self.active.add(name)
        made = self.bind(self.aliases[name])
        self.active.discard(name)
        return made


# ------------------------------------------------------------------------------------------------ sub-queries

_ORDERED: Final = ("order", "limit", "offset", "distinct", "qualify", "windows", "sort", "cluster", "distribute")


def body(asking: Asking, node: Node) -> exp.Select:
    """The SELECT of a sub-query."""
    while isinstance(node, exp.Subquery):
        asking.only(node, "this")
        node = node.this
    if isinstance(node, exp.SetOperation):
        raise asking.no("set_operation", node)
    if not isinstance(node, exp.Select):
        raise asking.no("statement", node)
    return node


def subquery(asking: Asking, node: Node, env: Env) -> Relation:
    """What a sub-query is: a view of the rows, or one row for each unit."""
    select = body(asking, node)
    for name in _ORDERED:
        part = select.args.get(name)
        if part:
            raise asking.no("order_dependent", part[0] if isinstance(part, list) else part)
    if select.args.get("sample"):
        raise asking.no("sample", select)
    if select.args.get("into"):
        raise asking.no("statement", select.args["into"])
    asking.only(select, "expressions", "from_", "joins", "where", "group", "having", "with_", "hint", "laterals")
    if select.args.get("laterals"):
        raise asking.no("unnest", select.args["laterals"][0])
    inside = with_parts(asking, select, env, subquery)
    above = answer_below(asking, select, inside)
    if above is not None:
        _, below, answer = above
        return Relation(below.rows, below.table, (), Answer(select, env, answer.error))
    scope = scope_of(asking, select, inside, subquery)
    aggregated = select.args.get("group") or select.args.get("having") or any(holds_aggregate(i) for i in select.expressions)
    if scope.calendar is not None:
        error = asking.no("join_derived", select.args["from_"].this)
        if aggregated:
            return Relation(scope.rows, scope.table, (), Answer(select, env, error))
        raise error
    if aggregated:
        return _per_unit(asking, select, scope, env)
    return _view(asking, select, scope)


def answer_below(asking: Asking, select: exp.Select, env: Env) -> tuple[str, Relation, Answer] | None:
    """The sub-query that a SELECT reads, where that one's groups hold the rows of many; and its alias."""
    start = select.args.get("from_")
    if start is None or select.args.get("joins") or not isinstance(start.this, exp.Subquery | exp.Table):
        return None
    if isinstance(start.this, exp.Table) and start.this.name.casefold() not in env:
        return None
    asking.only(start, "this")
    alias, relation = source_of(asking, start.this, env, subquery)
    if not isinstance(relation, Relation) or relation.answer is None:
        return None
    return alias, relation, relation.answer


def _view(asking: Asking, select: exp.Select, scope: Scope) -> Relation:
    """A sub-query without aggregates: the same rows, other columns."""
    chosen: list[tuple[str, Field | Node]] = []
    for item in select.expressions:
        inner = unaliased(item)
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            chosen += [(f.name, f) for f in _star(asking, inner, scope)]
            continue
        found = find(asking, scope.sources, inner) if isinstance(inner, exp.Column) and not inner.args.get("db") else None
        chosen.append((cut(item.alias_or_name or asking.told(inner)), found or inner))
    values = named_values(asking, scope.sources, aliases_of(select), "SELECT")
    taken, columns, fields = set(names_of(scope.rows)), [], []
    for name, what in chosen:
        if isinstance(what, Field):
            fields.append(replace(what, name=name, hidden=False))
            continue
        expr = values.bind(what)
        derived = bool(columns_of(expr) & scope.telling)
        if expr.op != "col":
            inside = fresh(name, taken)
            taken.add(inside)
            columns.append((inside, expr))
            expr = standing(inside, expr)
        fields.append(Field(name, expr, derived=derived))
    _distinct_names(asking, select, [f.name for f in fields])
    rows = Extend(rows=scope.rows, columns=tuple(columns)) if columns else scope.rows
    return Relation(rows, scope.table, tuple(fields))


def standing(name: str, expr: Expr) -> Expr:
    """A column that holds an expression's values: of its type and range."""
    numbers = expr.type in {"int", "float"}
    values = expr.values if expr.type != "bool" else None
    return col(name, expr.type, expr.low if numbers else None, expr.high if numbers else None, values, nullable=expr.nullable)


def _star(asking: Asking, node: Node, scope: Scope) -> list[Field]:
    star = node if isinstance(node, exp.Star) else node.this
    asking.only(star)
    if isinstance(node, exp.Column):
        found = [s for s in scope.sources if s.alias.casefold() == node.table.casefold()]
        if not found:
            raise UnknownNameError("table of the query", node.table, [s.alias for s in scope.sources])
        return list(found[0].fields)
    return [f for f in scope.fields if not f.hidden]


def _distinct_names(asking: Asking, select: exp.Select, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise asking.no("subquery_name", next((i for i in select.expressions if i.alias_or_name.casefold() == name.casefold()), select))
        seen.add(name.casefold())


class _Within:
    """Collects the aggregates of a sub-query that groups by the unit."""

    def __init__(self, asking: Asking, scope: Scope, keys: Sequence[tuple[str, Expr]]) -> None:
        self.asking, self.scope, self.keys = asking, scope, keys
        self.plain = Values(asking, resolver(asking, scope.sources), clause="an aggregate")
        self.wanted: list[tuple[str, str, Expr | None, Expr]] = []
        """name, kind, argument, and the column that stands for it"""
        self.distinct: Expr | None = None
        self.taken = {name for name, _ in keys}

    def aggregate(self, node: Node) -> Expr:
        """The column that stands for an aggregate."""
        kind, arg = self._read(node)
        for _, known, told, stands in self.wanted:
            if (known, told) == (kind, arg):
                return stands
        name = fresh({"rows": "n"}.get(kind, kind), self.taken)
        self.taken.add(name)
        stands = self._stands(name, kind, arg)
        self.wanted.append((name, kind, arg, stands))
        return stands

    def _read(self, node: Node) -> tuple[str, Expr | None]:
        asking, condition = self.asking, None
        if isinstance(node, exp.Filter):
            asking.only(node, "this", "expression")
            condition, node = self.plain.condition(node.expression.this), node.this
        kinds: dict[type[Node], str] = {
            exp.Sum: "sum",
            exp.Min: "min",
            exp.Max: "max",
            exp.Avg: "avg",
            exp.Count: "count",
            exp.CountIf: "count",
        }
        kind = kinds.get(type(node))
        if kind is None:
            raise asking.no("per_unit_aggregate", node, unit=unit_word(self.scope.table))
        asking.only(node, "this", rule="modifier")
        if kind == "count" and (node.this is None or isinstance(node.this, exp.Star)):
            return ("rows", None) if condition is None else ("count", call("case", condition, lit(1), lit(None)))
        if holds_aggregate(node.this):
            raise asking.no("nested_aggregate", node, unit=unit_word(self.scope.table), table=self.scope.table.name)
        if isinstance(node.this, exp.Distinct):
            asking.only(node.this, "expressions")
            if kind != "count" or len(node.this.expressions) != 1 or condition is not None:
                raise asking.no("per_unit_aggregate", node, unit=unit_word(self.scope.table))
            arg = self.plain.bind(node.this.expressions[0])
            if self.distinct not in (None, arg):
                raise asking.no("per_unit_distinct", node)
            self.distinct = arg
            return "distinct", arg
        arg = self.plain.bind(node.this)
        if isinstance(node, exp.CountIf):
            arg = call("case", self.plain.condition(node.this), lit(1), lit(None))
        if kind in {"sum", "avg"}:
            arg = as_number(asking, node, arg)
        return kind, arg if condition is None else call("case", condition, arg, lit(None))

    def _stands(self, name: str, kind: str, arg: Expr | None) -> Expr:
        if kind in {"rows", "count", "distinct"}:
            return col(name, "int", 1 if kind == "rows" else 0, nullable=False)
        assert arg is not None
        if kind == "sum":
            low = 0.0 if arg.low is not None and arg.low >= 0 else None
            return col(name, "float", low, 0.0 if arg.high is not None and arg.high <= 0 else None)
        if kind == "avg":
            return col(name, "float", arg.low, arg.high)
        return standing(name, replace(arg, nullable=True))

    def rows(self) -> Rows:
        """The rows, one for each unit and value of the keys."""
        keys = tuple(self.keys)
        ranges = tuple((s.low, s.high) for *_, s in self.wanted)
        if self.distinct is None:
            columns = tuple((n, cast("PerUnitKind", k), a) for n, k, a, _ in self.wanted)
            return PerUnit(rows=self.scope.rows, keys=keys, columns=columns, ranges=ranges)
        value = fresh("value", self.taken)
        first = PerUnit(
            rows=self.scope.rows,
            keys=(*keys, (value, self.distinct)),
            columns=tuple((n, cast("PerUnitKind", k), a) for n, k, a, _ in self.wanted if k != "distinct"),
            ranges=tuple((s.low, s.high) for _, k, _, s in self.wanted if k != "distinct"),
        )
        again: dict[str, PerUnitKind] = {"rows": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}
        held = standing(value, self.distinct)
        columns = tuple(
            (n, "count" if k == "distinct" else again[k], replace(held, nullable=True) if k == "distinct" else s)
            for n, k, _, s in self.wanted
        )
        return PerUnit(rows=first, keys=tuple((n, standing(n, e)) for n, e in keys), columns=columns, ranges=ranges)


def as_number(asking: Asking, node: Node, arg: Expr) -> Expr:
    """The argument of a sum or a mean: a number, or a condition as 0 and 1."""
    if arg.type == "bool" and not arg.is_null:
        return call("cast_int", arg)
    if arg.type not in {"int", "float"}:
        raise asking.no(
            "arguments",
            node,
            function=type(node).__name__.upper(),
            expected=f"numbers, and this is {arg.type}",
            example="DATE_DIFF('day', DATE '2024-01-01', x)" if arg.type in {"date", "timestamp"} else "CAST(x AS DOUBLE)",
        )
    return arg


def _per_unit(asking: Asking, select: exp.Select, scope: Scope, env: Env) -> Relation:
    """A sub-query that groups by the unit: exact aggregates within each, which cost nothing."""
    table, words = scope.table, {"unit": unit_word(scope.table), "table": scope.table.name}
    if table.unit is None or table.unit.key is None:
        return Relation(scope.rows, table, (), Answer(select, env, asking.no("no_unit", select, **words)))
    plain = named_values(asking, scope.sources, aliases_of(select), "GROUP BY")
    leading = {str(f.expr.value): f for f in scope.fields if f.leads}
    exprs = [(n, plain.bind(n)) for n in group_nodes(asking, select, scope.sources)]
    if not any(e.op == "col" and str(e.value) in leading for _, e in exprs):
        return Relation(scope.rows, table, (), Answer(select, env, asking.no("many_in_subquery", select, **words)))
    keys: list[tuple[str, Expr]] = []
    for node, expr in exprs:
        name = fresh(node.name if isinstance(node, exp.Column) else "key", {n for n, _ in keys})
        if all(e != expr for _, e in keys):
            keys.append((name, expr))
    within = _Within(asking, scope, keys)
    stands = [(e, standing(n, e)) for n, e in keys]
    telling = {n for n, e in keys if columns_of(e) & scope.telling}
    grouped = Grouped(asking, scope, stands, aliases_of(select), within.aggregate, ungrouped="not_grouped")
    items = [(cut(i.alias_or_name or asking.told(unaliased(i))), unaliased(i)) for i in select.expressions]
    bound = [(name, grouped.bind(node)) for name, node in items]
    having = select.args.get("having")
    condition = None if having is None else grouped.values.condition(having.this)
    if within.distinct is not None and any(k == "avg" for _, k, *_ in within.wanted):
        raise asking.no("per_unit_distinct", select)
    telling |= {n for n, k, a, _ in within.wanted if a is not None and columns_of(a) & scope.telling and k not in {"count", "distinct"}}
    rows = within.rows()
    if condition is not None:
        rows = Filter(rows=rows, condition=condition)
    return _columns(asking, select, replace(scope, rows=rows), bound, dict(keys), leading, telling)


def _columns(
    asking: Asking,
    select: exp.Select,
    scope: Scope,
    bound: Sequence[tuple[str, Expr]],
    keys: Mapping[str, Expr],
    leading: Mapping[str, Field],
    telling: set[str],
) -> Relation:
    """The columns of a sub-query that groups by the unit."""
    taken, columns, fields = set(names_of(scope.rows)), [], []
    for name, expr in bound:
        derived = bool(columns_of(expr) & telling)
        if expr.op == "col":
            key = keys.get(str(expr.value))
            origin = leading.get(str(key.value)) if key is not None and key.op == "col" else None
            fields.append(Field(name, expr, unit=origin is not None and origin.unit, leads=origin is not None, derived=derived))
            continue
        inside = fresh(name, taken)
        taken.add(inside)
        columns.append((inside, expr))
        fields.append(Field(name, standing(inside, expr), derived=derived))
    _distinct_names(asking, select, [f.name for f in fields])
    rows = Extend(rows=scope.rows, columns=tuple(columns)) if columns else scope.rows
    return Relation(rows, scope.table, tuple(fields))
