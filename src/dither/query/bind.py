"""SQL text and public facts → ``Question``: what is measured about whom, and what is computed from it. Nothing is read.

>>> from dither.core.units import PrivacyUnit
>>> from dither.query.facts import Catalog, Column, Table
>>> events = Table(
...     name="events",
...     unit=PrivacyUnit(dataset="events", key="user_id"),
...     columns=(
...         Column(name="user_id", type="int"),
...         Column(name="city", type="text", values=("Delhi", "Pune")),
...         Column(name="amount", type="float", low=0, high=100),
...     ),
... )
>>> asked = ask("SELECT city, AVG(amount) AS mean FROM events GROUP BY city HAVING COUNT(*) > 100", Catalog.of(events))
>>> asked.question.groups[0].keys, [a.kind for a in asked.question.aggregates]
(('Delhi', 'Pune'), ['count', 'sum', 'rows'])
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from dither.core import checks
from dither.core.errors import InputError, UnknownNameError
from dither.query.bind_asking import Asking, Node
from dither.query.bind_outputs import Aggregates, Needs
from dither.query.bind_rows import Env, Scope, aliases_of, base, fresh, named_values, scope_of, unit_word, with_parts
from dither.query.bind_values import Values, bare, holds_aggregate
from dither.query.bind_within import Grouped, answer_below, group_nodes, rows_only, standing, subquery, unaliased
from dither.query.expr import Expr, call, col, columns_of
from dither.query.facts import Catalog, Type, Value
from dither.query.parse import Options, parse
from dither.query.question import Group, Order, Output, Question, Scan
from dither.query.refusals import cut
from dither.query.semantics import evaluate

KEYS_MAX: Final = 1_000_000
"""More public groups than this are not answered at once."""
WORK_MAX: Final = 2_000_000
ITEMS_MAX, GROUPS_MAX, AGGREGATES_MAX = 500, 32, 256
"""More columns of the answer, groups and aggregates than these are not answered at once."""
_MARK: Final = "\0"
"""Stands for a group in conditions; no column has this name."""
_NUMBERED: Final = re.compile(r"a\d+(_\d+)?", re.IGNORECASE)
_ALLOWED: Final = ("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "with_", "hint", "distinct")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and what the query itself says of its price."""

    question: Question
    options: Options


def ask(sql: str, catalog: Catalog, *, dialect: str = "duckdb") -> Asked:
    """The question that a text asks.

    Whatever is not one is refused with one sentence that names the fragment, the rule and what to write instead; the sentence depends on
    the text and the catalog alone.
    """
    checks.instance("catalog", catalog, Catalog, "a Catalog")
    parsed = parse(sql, dialect=dialect)
    asking = Asking(parsed.sql, dialect, catalog)
    try:
        question = _question(asking, parsed.tree, {})
    except RecursionError:
        raise InputError("The SQL nests too deep: expected fewer brackets and sub-queries. Use WITH to name its parts.") from None
    _check_option(asking, question, parsed.options)
    return Asked(question, parsed.options)


def _check_option(asking: Asking, question: Question, options: Options) -> None:
    """A query may name the unit, and only the right one."""
    named, rows = options.privacy_unit_column, question.rows
    if named is None:
        return
    while not isinstance(rows, Scan):
        rows = rows.rows
    allowed = {f.name.casefold() for f in base(rows.table, asking).fields if f.unit} | {(question.unit.key or "").casefold()}
    if named.casefold() not in allowed:
        raise asking.no("unit_option", exp.column(named), unit=question.unit.key or "one row", table=rows.table.name)


def _question(asking: Asking, select: exp.Select, env: Env) -> Question:
    """The one SELECT that is answered."""
    env = with_parts(asking, select, env, subquery)
    _check_clauses(asking, select)
    shown = _shown(asking, select, env)
    if shown is not None:
        return shown
    scope = scope_of(asking, select, env, subquery)
    assert scope.table.unit is not None
    items = _items(asking, select, scope)
    groups, stands = _groups(asking, select, scope, items)
    needs = Needs()
    _after(asking, select, scope, stands, Aggregates(asking, scope, needs), items)
    aggregates = Aggregates(asking, scope, needs)  # the second pass knows which quantiles and means the whole query asks for
    outputs, having, order = _after(asking, select, scope, stands, aggregates, items)
    for what, count, most in (
        ("columns", len(items), ITEMS_MAX),
        ("groupings", len(groups), GROUPS_MAX),
        ("aggregates", len(aggregates.made), AGGREGATES_MAX),
    ):
        if count > most:
            raise asking.no("too_many", select, what=what, count=count, expected=most)
    if not groups and not aggregates.made and not any(holds_aggregate(n) for _, n in items):
        raise asking.no("no_aggregate", select, table=scope.table.name)
    aggregates.hidden()
    return Question(
        rows=scope.rows,
        unit=scope.table.unit,
        groups=groups,
        aggregates=aggregates.all(),
        outputs=outputs,
        having=having,
        order=order,
        limit=_limit(asking, select),
        sql=asking.sql,
    )


def _shown(asking: Asking, select: exp.Select, env: Env) -> Question | None:
    """A SELECT over the answer of another: its WHERE, ORDER BY and LIMIT come after the aggregates, at no charge."""
    above = answer_below(asking, select, env)
    if above is None:
        return None
    alias, _, answer = above
    order = select.args.get("order")
    if any(select.args.get(k) for k in ("group", "having", "distinct")) or any(
        holds_aggregate(n) for n in (*select.expressions, *([order] if order is not None else []))
    ):
        raise answer.error
    inner = _question(asking, answer.select, answer.env)
    columns = {o.name.casefold(): o.expr for o in inner.outputs}
    aliases, active = aliases_of(select), set[str]()

    def column(node: exp.Column, *, first: bool = False) -> Expr:
        name = node.name.casefold()
        if node.table and node.table.casefold() != alias.casefold():
            raise UnknownNameError("table of the query", node.table, [alias])
        known = not node.table and name in aliases and name not in active
        if name in columns and not (first and known):
            return columns[name]
        if not known:
            raise UnknownNameError("column", node.name, [o.name for o in inner.outputs])
        active.add(name)
        made = values.bind(aliases[name])
        active.discard(name)
        return made

    values = Values(asking, column, clause="SELECT")
    outputs = _outputs_of(asking, select, inner, values)
    where = select.args.get("where")
    conditions = [c for c in (inner.having, None if where is None else values.condition(where.this)) if c is not None]
    by_name = Values(asking, lambda node: column(node, first=True), clause="ORDER BY")
    return replace(
        inner,
        outputs=outputs,
        having=None if not conditions else conditions[0] if len(conditions) == 1 else call("and", *conditions),
        order=_order(asking, select, by_name, outputs),
        limit=_limit(asking, select),
        sql=asking.sql,
    )


def _outputs_of(asking: Asking, select: exp.Select, inner: Question, values: Values) -> tuple[Output, ...]:
    """What a SELECT over an answer shows."""
    found: list[Output] = []
    for item in select.expressions:
        node = unaliased(item)
        if isinstance(node, exp.Star):
            asking.only(node)
            made = [(o.name, o.expr) for o in inner.outputs]
        else:
            made = [(item.alias_or_name if isinstance(item, exp.Alias | exp.Column) else asking.told(node).lower(), values.bind(node))]
        for name, expr in made:
            taken = {o.name.casefold() for o in found}
            short = cut(name) or "column"
            found.append(Output(name=short if short.casefold() not in taken else fresh(short.casefold(), taken), expr=expr))
    return tuple(found)


def _check_clauses(asking: Asking, select: exp.Select) -> None:
    """Clauses that are not spoken here, the dangerous ones with their own words."""
    for name, rule in (("qualify", "window"), ("windows", "window"), ("into", "statement"), ("sample", "sample"), ("laterals", "unnest")):
        part = select.args.get(name)
        if part:
            raise asking.no(rule, part[0] if isinstance(part, list) else part, unit="the unit")
    asking.only(select, *_ALLOWED)


def _items(asking: Asking, select: exp.Select, scope: Scope) -> list[tuple[str, Node]]:
    """What SELECT shows, each under a name of its own."""
    found: list[tuple[str, Node]] = []
    for item in select.expressions:
        inner = unaliased(item)
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            raise asking.no("raw_star", inner, table=scope.table.name)
        name = item.alias_or_name if isinstance(item, exp.Alias | exp.Column) else asking.told(inner).lower()
        taken = {n.casefold() for n, _ in found}
        short = cut(name) or "column"
        found.append((short if short.casefold() not in taken else fresh(short.casefold(), taken), inner))
    if not found:
        raise asking.no("raw_star", select, table=scope.table.name)
    return found


# ------------------------------------------------------------------------------------------------ groups


def _groups(
    asking: Asking, select: exp.Select, scope: Scope, items: Sequence[tuple[str, Node]]
) -> tuple[tuple[Group, ...], list[tuple[Expr, Expr]]]:
    """The groups, and the column that stands for each in what follows."""
    nodes = group_nodes(asking, select, scope.sources)
    distinct = select.args.get("distinct")
    if distinct is not None:
        asking.only(distinct)
        if nodes or any(holds_aggregate(n) for _, n in items):
            raise asking.no("distinct", select)
        nodes = [n for _, n in items]
    names = {id(n): name for name, n in items}
    plain = named_values(asking, scope.sources, aliases_of(select), "GROUP BY")
    found: list[Group] = []
    stands: list[tuple[Expr, Expr]] = []
    for node in nodes:
        expr = plain.bind(node)
        if any(expr == known for known, _ in stands):
            continue
        if not columns_of(expr):
            raise asking.no("constant_group", node)
        if columns_of(expr) & scope.telling:
            raise asking.no("group_by_unit", node, unit=unit_word(scope.table), table=scope.table.name)
        wanted = (
            node.name
            if isinstance(node, exp.Column)
            else names.get(id(node)) or _named(asking, scope, items, plain, expr) or cut(asking.told(node)).lower()
        )
        taken = {g.name for g in found}
        name = fresh(f"{wanted}_" if _NUMBERED.fullmatch(wanted) else wanted, taken)
        keys = keys_of(asking, scope, node, expr)
        found.append(Group(name=name, expr=expr, keys=keys))
        stands.append((expr, _standing(name, expr, keys)))
    count = math.prod(len(g.keys) for g in found if g.keys is not None)
    if count > KEYS_MAX:
        raise asking.no("too_many", select.args.get("group") or select, what="public groups", count=count, expected=KEYS_MAX)
    return tuple(found), stands


def _named(asking: Asking, scope: Scope, items: Sequence[tuple[str, Node]], plain: Values, expr: Expr) -> str | None:
    """The name that SELECT gives to the same expression."""
    for name, node in items:
        if not holds_aggregate(node) and rows_only(asking, scope, node) and plain.bind(node) == expr:
            return name
    return None


def _standing(name: str, expr: Expr, keys: tuple[Value, ...] | None) -> Expr:
    """A group's column after grouping."""
    numbers = expr.type in {"int", "float"}
    values = keys if keys is not None and expr.type != "bool" else None
    nullable = expr.nullable if keys is None else None in keys
    return col(name, expr.type, expr.low if numbers else None, expr.high if numbers else None, values, nullable=nullable)


def keys_of(asking: Asking, scope: Scope, node: Node, expr: Expr) -> tuple[Value, ...] | None:
    """The public keys of a group: all values it can have where WHERE holds; None where they are not known.

    They come from the declared (or listed) values of the one column in it, from a list of the expression's own values in WHERE, or from the
    expression, such as CASE or MONTH. Then NULL is among them if it can be; declared values are complete.
    """
    columns = columns_of(expr)
    if len(columns) == 1:
        (name,) = columns
        column = _find(expr, name)
        about = [c for c in scope.conditions if columns_of(c) == columns]
        domain = _domain(column, about)
        if domain is None:
            domain = next((values for on, values in scope.domains if on == column), None)
        if domain is not None:
            kept = _kept(asking, node, domain, about, column)
            return tuple(dict.fromkeys(evaluate(expr, {name: v}) for v in kept))
    mark = standing(_MARK, expr)
    joined = next((values for on, values in scope.domains if on == expr), None)
    about = [c for c in (_seen(c, expr, mark) for c in scope.conditions) if columns_of(c) == {_MARK}]
    domain = _listed(mark, about) if joined is None else joined
    if domain is None and expr.values is not None:
        domain = (*expr.values, None) if expr.nullable else expr.values
    if domain is not None:
        return _kept(asking, node, domain, about, mark)
    if scope.calendar is not None and columns & _columns_of_table(scope):
        raise asking.no("calendar_keys", node, column=asking.told(node), table=scope.calendar.name)
    return None


def _kept(asking: Asking, node: Node, domain: tuple[Value, ...], about: Sequence[Expr], column: Expr) -> tuple[Value, ...]:
    """The values for which all conditions hold."""
    work = len(domain) * sum(c.size for c in about if _alternatives(column, c) is None)
    if work > WORK_MAX:
        raise asking.no("too_many", node, what="values and conditions", count=work, expected=WORK_MAX)
    tests = [_test(c, column) for c in about]
    return tuple(v for v in domain if all(test(v) for test in tests))


def _test(condition: Expr, column: Expr) -> Callable[[Value], bool]:
    """Whether a condition on one column holds for a value; a long list is looked up, not walked."""
    listed = _alternatives(column, condition)
    if listed is not None:
        known = frozenset(listed)
        return lambda value: value in known
    name = str(column.value)
    return lambda value: evaluate(condition, {name: value}) is True


def _domain(column: Expr, about: Sequence[Expr]) -> tuple[Value, ...] | None:
    """All values of a column: as declared, as WHERE lists them, or the two truths."""
    if column.values is not None:
        return column.values
    if column.type == "bool":
        return (False, True, None) if column.nullable else (False, True)
    return _listed(column, about)


def _seen(condition: Expr, expr: Expr, mark: Expr) -> Expr:
    """The condition with a column in place of an expression."""
    if condition == expr:
        return mark
    if not condition.args:
        return condition
    args = tuple(_seen(a, expr, mark) for a in condition.args)
    return condition if args == condition.args else call(condition.op, *args)


def _columns_of_table(scope: Scope) -> frozenset[str]:
    return frozenset(str(f.expr.value) for s in scope.sources if s.public is scope.calendar for f in s.fields)


def _find(expr: Expr, name: str) -> Expr:
    """The column of that name in an expression."""
    stack = [expr]
    while stack:
        e = stack.pop()
        if e.op == "col" and e.value == name:
            return e
        stack.extend(e.args)
    raise AssertionError(name)


def _listed(column: Expr, conditions: Sequence[Expr]) -> tuple[Value, ...] | None:
    """The values that WHERE lists for a column: ``c IN (…)``, ``c = …``, or several of these with OR."""
    for condition in conditions:
        found = _alternatives(column, condition)
        if found is not None:
            return tuple(dict.fromkeys(found))
    return None


def _alternatives(column: Expr, condition: Expr) -> list[Value] | None:
    if condition.op == "or":
        parts = [_alternatives(column, a) for a in condition.args]
        return None if any(p is None for p in parts) else [v for p in parts for v in p or []]
    if condition.op == "in" and condition.args[0] == column:
        return _values(column.type, condition.args[1:])
    if condition.op == "eq" and column in condition.args:
        other = [a for a in condition.args if a != column]
        return _values(column.type, other) if len(other) == 1 else None
    return None


def _values(kind: Type, literals: Sequence[Expr]) -> list[Value] | None:
    """Literals of the column's own type: another type would be compared by rules of its own."""
    if any(e.op != "lit" or (e.type != kind and e.value is not None) for e in literals):
        return None
    return [e.value for e in literals if e.value is not None]


# ------------------------------------------------------------------------------------------------ after the aggregates


def _after(
    asking: Asking,
    select: exp.Select,
    scope: Scope,
    stands: Sequence[tuple[Expr, Expr]],
    aggregates: Aggregates,
    items: Sequence[tuple[str, Node]],
) -> tuple[tuple[Output, ...], Expr | None, tuple[Order, ...]]:
    """SELECT, HAVING and ORDER BY: all that is computed from the aggregates."""
    aliases = aliases_of(select)

    def grouped(clause: str, known: dict[str, Node]) -> Grouped:
        return Grouped(asking, scope, stands, known, aggregates.bind, clause=clause)

    outputs = []
    for name, node in items:
        own = {k: v for k, v in aliases.items() if v is not node}
        outputs.append(Output(name=name, expr=grouped("SELECT", own).bind(node)))
    having = select.args.get("having")
    condition = None if having is None else grouped("HAVING", aliases).values.condition(having.this)
    return tuple(outputs), condition, _order(asking, select, grouped("ORDER BY", aliases), outputs)


def _order(asking: Asking, select: exp.Select, grouped: Grouped | Values, outputs: Sequence[Output]) -> tuple[Order, ...]:
    """By what the answer is sorted: a place, a name of SELECT, or an expression."""
    order = select.args.get("order")
    if order is None:
        return ()
    asking.only(order, "expressions")
    found = []
    for item in order.expressions:
        asking.only(item, "this", "desc", "nulls_first")
        node = bare(item.this)
        if isinstance(node, exp.Literal) and not node.args.get("is_string"):
            text = str(node.this)
            if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= len(outputs)):
                raise asking.no("ordinal", node, count=len(outputs))
            expr = outputs[int(text) - 1].expr
        else:
            expr = grouped.bind(node)
        found.append(Order(expr=expr, descending=bool(item.args.get("desc")), nulls_first=bool(item.args.get("nulls_first"))))
    return tuple(found)


def _limit(asking: Asking, select: exp.Select) -> int | None:
    limit = select.args.get("limit")
    if limit is None:
        return None
    if isinstance(limit, exp.Fetch):
        asking.only(limit, "direction", "count", "limit_options")
        count = limit.args.get("count")
    else:
        asking.only(limit, "expression", "limit_options")
        count = limit.expression
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
        raise asking.no("limit", limit)
    text = str(count.this) if isinstance(count, exp.Literal) and not count.args.get("is_string") else ""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise asking.no("limit", limit)
    return int(text)
