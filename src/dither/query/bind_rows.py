"""FROM, JOIN and WHERE → ``Rows``: one private table, or a sub-query over one, and what public tables add to its rows.

Every rule keeps one promise: the rows of a unit never depend on the rows of another unit. A join adds one row of a public table at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from sqlglot import exp

from dither.core.errors import DitherError, UnknownNameError
from dither.query.bind_asking import Asking, Node
from dither.query.bind_values import Values, chain, holds_aggregate
from dither.query.expr import Expr, call, col, columns_of
from dither.query.facts import Table, Value
from dither.query.question import Extend, Filter, JoinPublic, PerUnit, Rows, Scan

_FILES: Final = (".", "/", "\\", "*", ":")


@dataclass(frozen=True, slots=True)
class Field:
    """A column that a query can name, and what it tells of whose row it is."""

    name: str
    expr: Expr
    """A column of the rows."""
    unit: bool = False
    """It is the key of the unit itself: counting it distinct counts units."""
    leads: bool = False
    """Rows of one value belong to one unit: the unit's key, or a foreign key to a row of one unit."""
    derived: bool = False
    """It is such a column, or computed from one."""
    hidden: bool = False
    """It is named with its table only (the second of two that USING made one)."""


@dataclass(frozen=True, slots=True)
class Source:
    """One table-like thing of FROM under its alias; ``public``: the name of its columns' table, where that is a public one."""

    alias: str
    fields: tuple[Field, ...]
    public: Table | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A sub-query whose groups hold the rows of many: it can only be answered, and its answer shown (not aggregated again)."""

    select: exp.Select
    env: Mapping[str, Relation]
    error: DitherError
    """Why it is no relation."""


@dataclass(frozen=True, slots=True)
class Relation:
    """What a sub-query, a part of WITH, or a private table is: rows and the columns they are known by."""

    rows: Rows
    table: Table
    fields: tuple[Field, ...]
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """What FROM, JOIN and WHERE made."""

    rows: Rows
    table: Table
    sources: tuple[Source, ...]
    calendar: Table | None = None
    """The public table that stands first in FROM public LEFT JOIN private: its groups appear, empty or not."""
    conditions: tuple[Expr, ...] = ()
    """What WHERE asks, link by link."""
    domains: tuple[tuple[Expr, tuple[Value, ...]], ...] = ()
    """What can only have certain values, being joined to a public table's key that has them."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """All columns."""
        return tuple(f for source in self.sources for f in source.fields)

    @property
    def telling(self) -> frozenset[str]:
        """Columns of the rows that tell the unit."""
        return frozenset(str(f.expr.value) for f in self.fields if f.derived)


# ------------------------------------------------------------------------------------------------ names


def unit_word(table: Table) -> str:
    """What the unit of a table is called in it.

    >>> from dither.core.units import PrivacyUnit
    >>> unit_word(Table(name="events", columns=(), unit=PrivacyUnit(dataset="events", key="user_id")))
    'user_id'
    """
    if table.unit is None or table.unit.key is None:
        return "row"
    return table.unit.key if table.through is None else table.through.column


def names_of(rows: Rows) -> frozenset[str]:
    """The names of all columns that rows have."""
    match rows:
        case Scan(table=table):
            return frozenset(c.name for c in table.columns)
        case Filter(rows=inner):
            return names_of(inner)
        case Extend(rows=inner, columns=columns):
            return names_of(inner) | {name for name, _ in columns}
        case JoinPublic(rows=inner, table=table, alias=alias):
            return names_of(inner) | {f"{alias}.{c.name}" for c in table.columns}
        case PerUnit(keys=keys, columns=found):
            return frozenset(name for name, _ in keys) | {name for name, _, _ in found}


def fresh(name: str, taken: Iterable[str]) -> str:
    """A name that is not taken in any case (an engine may not tell cases apart), as near to the wanted one as can be.

    >>> fresh("n", {"N", "n_1"})
    'n_2'
    """
    folded = {t.casefold() for t in taken}
    found, count = name, 0
    while found.casefold() in folded:
        count += 1
        found = f"{name}_{count}"
    return found


def find(asking: Asking, sources: Sequence[Source], node: exp.Column) -> Field | None:
    """The column that a name stands for, in any case; None where there is none of that name."""
    name, table = node.name.casefold(), (node.table or "").casefold()
    if table and all(s.alias.casefold() != table for s in sources):
        raise UnknownNameError("table of the query", node.table, [s.alias for s in sources])
    found = [
        (s, f)
        for s in sources
        if not table or s.alias.casefold() == table
        for f in s.fields
        if f.name.casefold() == name and (table or not f.hidden)
    ]
    if len(found) > 1:
        raise asking.no("ambiguous", node, known=" or ".join(f"{s.alias}.{f.name}" for s, f in found))
    return found[0][1] if found else None


def unknown(sources: Sequence[Source], node: exp.Column) -> UnknownNameError:
    """The error for a name that stands for nothing: it lists those that there are."""
    return UnknownNameError("column", node.name, sorted({f.name for s in sources for f in s.fields}) or ["(no columns)"])


def resolver(asking: Asking, sources: Sequence[Source]) -> Callable[[exp.Column], Expr]:
    """What a plain expression's names stand for."""

    def column(node: exp.Column) -> Expr:
        found = find(asking, sources, node)
        if found is None:
            raise unknown(sources, node)
        return found.expr

    return column


# ------------------------------------------------------------------------------------------------ tables


def base(table: Table, asking: Asking) -> Relation:
    """A private table's rows."""
    fields = []
    for c in table.columns:
        key = table.unit.key if table.unit is not None else None
        unit = leads = False
        if table.through is not None:
            leads = c.name.casefold() == table.through.column.casefold()
            owner = asking.catalog.tables.get(table.through.table.casefold())
            unit = (
                leads and key is not None and table.through.key.casefold() == key.casefold() and owner is not None and owner.through is None
            )
        elif key is not None:
            unit = leads = c.name.casefold() == key.casefold()
        fields.append(Field(c.name, col(c.name, c.type, c.low, c.high, c.values), unit=unit, leads=leads, derived=leads))
    return Relation(Scan(table=table, alias=table.name), table, tuple(fields))


Env: TypeAlias = Mapping[str, Relation]
Nested: TypeAlias = Callable[[Asking, Node, Env], Relation]
"""How a sub-query becomes a relation (``bind_within.subquery``)."""


def _known(asking: Asking, env: Env) -> str:
    return ", ".join(sorted({t.name for t in asking.catalog.values()} | set(env))) or "(no tables)"


def source_of(asking: Asking, node: Node, env: Env, nested: Nested) -> tuple[str, Relation | Table]:
    """One thing of FROM: its alias, and a private relation or a public table."""
    if isinstance(node, exp.Subquery):
        asking.only(node, "this", "alias")
        inner = node.this
        if not isinstance(inner, exp.Query):
            raise asking.no("join_kind", node)
        relation = asking.bound.get(id(node)) or nested(asking, inner, env)
        asking.bound[id(node)] = relation
        return node.alias or "", _renamed(asking, node, relation)
    if not isinstance(node, exp.Table):
        rule = "unnest" if isinstance(node, exp.Unnest | exp.Lateral | exp.Values) else "table_function"
        raise asking.no(rule, node, known=_known(asking, env))
    if node.args.get("sample"):
        raise asking.no("sample", node)
    if not isinstance(node.this, exp.Identifier):
        raise asking.no("table_function", node, known=_known(asking, env))
    name = node.name
    if node.args.get("db") or node.args.get("catalog"):
        raise asking.no("catalog", node, known=_known(asking, env))
    asking.only(node, "this", "alias")
    alias = node.alias or name
    local = env.get(name.casefold())
    if local is not None:
        return alias, _renamed(asking, node, local)
    if name.casefold() not in asking.catalog.tables:
        if any(mark in name for mark in _FILES):
            raise asking.no("file", node, known=_known(asking, env))
        raise UnknownNameError("table", name, _known(asking, env).split(", "))
    table = asking.catalog[name]
    if table.public:
        if _alias_columns(node):
            raise asking.no("clause", node)
        return alias, table
    return alias, _renamed(asking, node, base(table, asking))


def _alias_columns(node: Node) -> list[exp.Identifier]:
    alias = node.args.get("alias")
    return list(alias.args.get("columns") or []) if isinstance(alias, exp.TableAlias) else []


def _renamed(asking: Asking, node: Node, relation: Relation) -> Relation:
    """The relation with the column names that its alias lists: ``AS t(a, b)``."""
    listed = _alias_columns(node)
    if not listed:
        return relation
    names = [i.name for i in listed]
    if len(names) != len(relation.fields) or len({n.casefold() for n in names}) != len(names):
        raise asking.no("column_names", node, count=len(names), expected=len(relation.fields))
    return replace(relation, fields=tuple(replace(f, name=n) for f, n in zip(relation.fields, names, strict=True)))


# ------------------------------------------------------------------------------------------------ FROM and JOIN


def with_parts(asking: Asking, select: exp.Select, env: Env, nested: Nested) -> Env:
    """The parts of WITH, each seeing those before it."""
    given = select.args.get("with_")
    if given is None:
        return env
    if given.args.get("recursive"):
        raise asking.no("recursive", given)
    asking.only(given, "expressions")
    made, own = dict(env), set[str]()
    for part in given.expressions:
        asking.only(part, "this", "alias", "materialized")
        name = part.alias
        if name.casefold() in own:
            raise asking.no("cte_twice", part.args["alias"])
        own.add(name.casefold())
        if not isinstance(part.this, exp.Query):
            raise asking.no("statement", part.this)
        made[name.casefold()] = _renamed(asking, part, nested(asking, part.this, made))
    return made


def scope_of(asking: Asking, select: exp.Select, env: Env, nested: Nested) -> Scope:
    """FROM, JOIN and WHERE of one SELECT."""
    start = select.args.get("from_")
    if start is None:
        raise asking.no("no_from", select, known=asking.private)
    asking.only(start, "this")
    joins = list(select.args.get("joins") or [])
    alias, first = source_of(asking, start.this, env, nested)
    others = [(join, *source_of(asking, join.this, env, nested)) for join in joins]
    for found in (first, *(o[2] for o in others)):
        if isinstance(found, Relation) and found.answer is not None:
            raise found.answer.error
    private = [isinstance(first, Relation), *(isinstance(o[2], Relation) for o in others)]
    if sum(private) == 0:
        raise asking.no("public_only", start.this, known=asking.private)
    if sum(private) > 1:
        raise asking.no("private_join", joins[max(at for at, is_one in enumerate(private) if is_one) - 1].this)
    seen: set[str] = set()
    for node, name in [(start.this, alias), *((j.this, n) for j, n, _ in others)]:
        if name and name.casefold() in seen:
            raise asking.no("alias_twice", node)
        seen.add(name.casefold())
    if isinstance(first, Relation):
        scope = Scope(first.rows, first.table, (Source(alias, first.fields),))
    else:
        if not others or not isinstance(others[0][2], Relation):
            raise asking.no("join_kind", start.this)
        join, name, relation = others.pop(0)
        assert isinstance(relation, Relation)
        scope = Scope(relation.rows, relation.table, (Source(name, relation.fields),))
        scope = _join(asking, scope, join, alias, first, calendar=_side(asking, join) == "LEFT")
    for join, name, table in others:
        assert isinstance(table, Table)
        scope = _join(asking, scope, join, name, table)
    where = select.args.get("where")
    return scope if where is None else where_of(asking, scope, where.this, aliases_of(select))


def _side(asking: Asking, join: exp.Join) -> str:
    """LEFT or nothing: no other join is spoken."""
    side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    if join.args.get("method") or side not in {"", "LEFT"} or kind not in {"", "INNER", "OUTER"}:
        raise asking.no("join_kind", join)
    asking.only(join, "this", "on", "using", "side", "kind")
    return side


def _join(asking: Asking, scope: Scope, join: exp.Join, alias: str, table: Table, *, calendar: bool = False) -> Scope:
    """One public table joined on its key."""
    left = _side(asking, join) == "LEFT"
    if table.key is None:
        raise asking.no("join_no_key", join.this, table=table.name)
    taken, inside = {n.casefold() for n in names_of(scope.rows)}, alias
    while any(f"{inside}.{c.name}".casefold() in taken for c in table.columns):
        inside = f"{inside}_"
    key = table.column(table.key)
    fields = []
    for c in table.columns:
        expr = col(f"{inside}.{c.name}", c.type, c.low, c.high, c.values)
        fields.append(Field(c.name, expr))
    key_expr = next(f.expr for f in fields if f.name == key.name)
    source = Source(alias, tuple(fields), table)
    on, rest = _on(asking, scope, source, join, key_expr)
    if rest and left and not calendar:
        raise asking.no("join_on", join.args["on"], key=f"{alias}.{key.name}")
    if columns_of(on) & scope.telling:
        source = replace(source, fields=tuple(replace(f, derived=f.expr == key_expr) for f in fields))
    if join.args.get("using"):  # SQL makes one column of the two: the private one, or the calendar's
        source = replace(source, fields=tuple(replace(f, hidden=f.name == key.name and not calendar) for f in source.fields))
    rows: Rows = JoinPublic(rows=scope.rows, table=table, alias=inside, on=on, key=key.name, keep=left and not calendar)
    for condition in rest:
        rows = Filter(rows=rows, condition=condition)
    sources = scope.sources
    if join.args.get("using") and calendar:
        name = join.args["using"][0].name.casefold()
        sources = tuple(
            replace(s, fields=tuple(replace(f, hidden=f.hidden or f.name.casefold() == name) for f in s.fields)) for s in sources
        )
    domains = scope.domains if key.values is None or (left and not calendar) else (*scope.domains, (on, key_expr.values or ()))
    return replace(scope, rows=rows, sources=(*sources, source), calendar=table if calendar else scope.calendar, domains=domains)


def _on(asking: Asking, scope: Scope, source: Source, join: exp.Join, key: Expr) -> tuple[Expr, list[Expr]]:
    """What the key equals, and the other conditions of ON."""
    told = f"{source.alias}.{next(f.name for f in source.fields if f.expr == key)}"
    using = join.args.get("using") or []
    mine = frozenset(str(f.expr.value) for f in source.fields)
    if using:
        name = using[0].name
        public = next((f for f in source.fields if f.name.casefold() == name.casefold()), None)
        other = find(asking, scope.sources, exp.column(name))
        if len(using) != 1 or public is None or public.expr != key:
            raise asking.no("join_on", join, key=told)
        if other is None:
            raise unknown(scope.sources, exp.column(name))
        return _same_type(asking, join, other.expr, key), []
    on = join.args.get("on")
    if on is None:
        raise asking.no("join_on", join, key=told)
    values = Values(asking, resolver(asking, (*scope.sources, source)), clause="ON")
    found: Expr | None = None
    rest: list[Expr] = []
    for link in chain(on, exp.And):
        if found is None and isinstance(link, exp.EQ):
            sides = [values.bind(link.this), values.bind(link.expression)]
            for one, two in (sides, sides[::-1]):
                if one == key and not columns_of(two) & mine and columns_of(two):
                    found = _same_type(asking, link, two, key)
                    break
            else:
                rest.append(values.condition(link))
            continue
        rest.append(values.condition(link))
    if found is None:
        raise asking.no("join_on", on, key=told)
    return found, rest


def _same_type(asking: Asking, node: Node, on: Expr, key: Expr) -> Expr:
    """Types must be equal, or the join would cast one of the sides."""
    if on.type == key.type:
        return on
    if (on.type, key.type) in {("int", "float"), ("date", "timestamp")}:
        return call(f"cast_{key.type}", on)
    raise asking.no("join_types", node, left=on.type, right=key.type)


def where_of(asking: Asking, scope: Scope, condition: Node, aliases: Mapping[str, Node]) -> Scope:
    """The rows for which a condition holds. Names of SELECT may stand in it, unless they are aggregates."""
    values = named_values(asking, scope.sources, aliases, "WHERE", refuse="alias_in_where")
    links = [values.condition(link) for link in chain(condition, exp.And)]
    made = links[0] if len(links) == 1 else call("and", *links)
    return replace(scope, rows=Filter(rows=scope.rows, condition=made), conditions=tuple(links))


def named_values(
    asking: Asking, sources: Sequence[Source], aliases: Mapping[str, Node], clause: str, *, refuse: str = "aggregate_here"
) -> Values:
    """Binds plain expressions in which names of SELECT may stand, where no column has that name."""
    active: set[str] = set()

    def column(node: exp.Column) -> Expr:
        found = find(asking, sources, node)
        if found is not None:
            return found.expr
        name = node.name.casefold()
        if node.table or name not in aliases:
            raise unknown(sources, node)
        if name in active:
            raise asking.no("alias_loop", node)
        if holds_aggregate(aliases[name]):
            raise asking.no(refuse, node, clause=clause)
        active.add(name)
        made = values.bind(aliases[name])
        active.discard(name)
        return made

    values = Values(asking, column, clause=clause)
    return values


def aliases_of(select: exp.Select) -> dict[str, Node]:
    """What SELECT gives names to; the first of a name counts."""
    found: dict[str, Node] = {}
    for item in select.expressions:
        if isinstance(item, exp.Alias):
            found.setdefault(item.alias.casefold(), item.this)
    return found
