"""Every rule that a query can break, in one table: why it is refused and what to write instead.

A text is made from the query and the public facts alone, so it is the same whatever the data. ``RefusedError``: a rule of privacy
(or of this room: one SELECT, no files); ``InputError``: SQL that is wrong, or that is not spoken here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dither.core.errors import DitherError, InputError, RefusedError


@dataclass(frozen=True, slots=True)
class Rule:
    """Why something is refused and what to write instead; both may hold ``{words}``."""

    why: str
    instead: str
    error: type[DitherError] = RefusedError


def _private() -> dict[str, Rule]:
    """What would tell about one person."""
    return {
        "raw_column": Rule(
            "it is one person's value, and only aggregates over many people leave",
            "Aggregate it, such as COUNT(*) or AVG({column}), or name it in GROUP BY",
        ),
        "raw_star": Rule("it would show raw rows", "Name aggregates, such as SELECT city, COUNT(*) FROM {table} GROUP BY city"),
        "raw_aggregate": Rule(
            "it returns values as they stand in rows",
            "Use COUNT, SUM, AVG, VARIANCE, STDDEV, MEDIAN or QUANTILE_CONT(x, 0.9), or GROUP BY the value and count",
        ),
        "group_by_unit": Rule(
            "each group would hold the rows of one {unit}",
            "Group by what many of them share; to aggregate within each of them first, write it in a sub-query:"
            " SELECT AVG(n) FROM (SELECT {unit}, COUNT(*) AS n FROM {table} GROUP BY {unit})",
        ),
        "unbounded": Rule(
            "nothing says how large one value can be, so no amount of noise hides it",
            "Declare min and max of the columns in it, or write CLAMP({fragment}, 0, 100) with limits that are public",
        ),
        "private_join": Rule(
            "rows of two private tables cannot be joined, nor a table with itself",
            "A join works between one private table (or a sub-query over one) and public tables, on the public table's unique key",
        ),
        "many_in_subquery": Rule(
            "a sub-query may aggregate within one {unit} only, and its groups hold the rows of many",
            "Add {unit} to its GROUP BY, or ask it as a query of its own",
        ),
        "other_people": Rule(
            "whether one person's row counts would depend on the rows of others",
            "Write the condition with columns of the same row, or ask for the number in a query of its own and write it as a literal",
        ),
        "order_dependent": Rule(
            "which of one person's rows are left would depend on the rows of others",
            "Leave it out of the sub-query; ORDER BY and LIMIT may stand in the outermost SELECT",
        ),
        "window": Rule(
            "a window looks across the rows of several people",
            "Aggregate with GROUP BY, or within each person in a sub-query that groups by {unit}",
        ),
        "public_only": Rule(
            "it reads no table with anybody to protect, so no privacy is to be spent on it",
            "Ask it in the database itself, or name a private table: {known}",
            InputError,
        ),
        "no_unit": Rule(
            "rows are the unit of {table}, so no column says whose they are",
            "Write COUNT(*), or GROUP BY what is wanted in one SELECT without a sub-query",
        ),
        "unit_option": Rule(
            "the unit of {table} is {unit}, and a query cannot change whom it protects",
            "Write privacy_unit_column = {unit}, or leave it out",
        ),
    }


def _outside() -> dict[str, Rule]:
    """What reaches outside of one SELECT over the tables of the project."""
    return {
        "statement": Rule("only one SELECT (or WITH … SELECT) is answered", "Write the SELECT by itself"),
        "several": Rule(
            "only one statement is answered at a time, so that each has its own price", "Ask them one by one, without ';' between"
        ),
        "file": Rule("only tables of the project are read, never a file or an address", "Name one of: {known}"),
        "table_function": Rule("only tables of the project are read, and a table function may read anything", "Name one of: {known}"),
        "catalog": Rule("names with a schema or catalog before them reach beyond the project's tables", "Name one of: {known}"),
        "set_operation": Rule(
            "UNION, INTERSECT and EXCEPT set rows of different queries together", "Ask each SELECT by itself, or use CASE or IN"
        ),
        "sample": Rule(
            "a sample drawn by the engine is not drawn with known chances, so it cannot be priced", "Leave it out: dither reads all rows"
        ),
        "not_repeatable": Rule(
            "its value changes from one run to the next, or tells about the machine",
            "Write the value as a literal, such as DATE '2024-01-31'",
        ),
        "regex": Rule(
            "the time that a pattern takes can depend on one row",
            "Use LIKE, starts_with, ends_with or contains",
        ),
        "parameter": Rule("a placeholder has no value here", "Write the value itself", InputError),
        "unnest": Rule("it makes many rows of one", "Read the table as it is", RefusedError),
    }


def _grammar() -> dict[str, Rule]:
    """SQL that is wrong, or not spoken here."""
    return {
        "clause": Rule(
            "this clause is not spoken here", "A query has SELECT, FROM, JOIN, WHERE, GROUP BY, HAVING, ORDER BY and LIMIT", InputError
        ),
        "expression": Rule(
            "this kind of expression is not spoken here",
            "Use columns, literals, arithmetic, comparisons, CASE, IN, BETWEEN, LIKE, CAST and the listed functions",
            InputError,
        ),
        "function": Rule("no such function is spoken here", "Use one of: {known}", InputError),
        "arguments": Rule("{function} takes {expected}", "Write it as {function}({example})", InputError),
        "modifier": Rule("this addition to {function} is not spoken here", "Write {function} without it", InputError),
        "literal": Rule(
            "this kind of literal is not spoken here", "Write a number, a 'text', TRUE, FALSE, NULL, DATE '…' or TIMESTAMP '…'", InputError
        ),
        "cast": Rule("no such type is spoken here", "Cast to BOOLEAN, BIGINT, DOUBLE, VARCHAR, DATE or TIMESTAMP", InputError),
        "subquery_expression": Rule(
            "sub-queries stand in FROM only",
            "JOIN the public table on its key, or write the value as a literal",
            InputError,
        ),
        "nested_aggregate": Rule(
            "an aggregate cannot stand inside an aggregate",
            "Aggregate within each {unit} in a sub-query first:"
            " SELECT AVG(n) FROM (SELECT {unit}, COUNT(*) AS n FROM {table} GROUP BY {unit})",
            InputError,
        ),
        "aggregate_here": Rule(
            "an aggregate cannot stand in {clause}, which is decided row by row", "Move it to HAVING, SELECT or ORDER BY", InputError
        ),
        "alias_in_where": Rule(
            "it is the name of an aggregate, and WHERE is decided row by row before there are any",
            "Move the condition to HAVING",
            InputError,
        ),
    }


def _shape() -> dict[str, Rule]:
    """GROUP BY, ORDER BY and what SELECT counts as distinct."""
    return {
        "distinct_aggregate": Rule(
            "only the people themselves can be counted as distinct",
            "Write COUNT(DISTINCT {unit}), or GROUP BY {fragment} and count the groups that come",
            InputError,
        ),
        "distinct_filter": Rule("FILTER does not go with COUNT(DISTINCT …)", "Put the condition into WHERE", InputError),
        "distinct": Rule("DISTINCT does not go with aggregates here", "Leave it out: each group is one row already", InputError),
        "not_grouped": Rule(
            "it is neither grouped by nor aggregated in its sub-query",
            "Add {column} to GROUP BY, or aggregate it",
            InputError,
        ),
        "no_aggregate": Rule(
            "it would give one line for each row, which tells how many rows there are",
            "Aggregate, such as SELECT COUNT(*) FROM {table}",
        ),
        "constant_group": Rule("it is the same for every row", "Leave it out of GROUP BY", InputError),
        "ordinal": Rule("it is not the place of a column in SELECT", "Write a number from 1 to {count}", InputError),
        "ordinal_aggregate": Rule(
            "the column at that place is an aggregate, which cannot be grouped by", "Group by a column or an expression", InputError
        ),
        "grouping_sets": Rule(
            "ROLLUP, CUBE and GROUPING SETS are not spoken here", "Ask for each grouping in a query of its own", InputError
        ),
        "whole_division": Rule(
            "this dialect divides whole numbers without a rest, which is not spoken here",
            "Write CAST(x AS DOUBLE PRECISION) / y, or FLOOR around it",
            InputError,
        ),
        "moment": Rule(
            "it stands beside a date or a timestamp and is none",
            "Write it as '2024-01-31' or '2024-01-31 12:00:00'",
            InputError,
        ),
        "where_type": Rule(
            "{clause} needs a condition, and this is {type}", "Compare it with something, such as {fragment} = …", InputError
        ),
        "limit": Rule("LIMIT takes a whole number, written out", "Write LIMIT 10", InputError),
        "quantile_level": Rule("a quantile's level is a literal from 0 to 1", "Write QUANTILE_CONT(x, 0.9)", InputError),
    }


def _names() -> dict[str, Rule]:
    """Names, WITH, sub-queries and joins."""
    return {
        "ambiguous": Rule("several tables have a column of that name", "Write which: {known}", InputError),
        "alias_twice": Rule("two tables of the query have that name", "Give one another alias, such as {fragment} AS other", InputError),
        "cte_twice": Rule("two parts of WITH have that name", "Rename one", InputError),
        "column_names": Rule("it names {count} columns where there are {expected}", "Name each column once", InputError),
        "recursive": Rule("a query that calls itself may run for ever", "Write it without RECURSIVE", InputError),
        "join_kind": Rule(
            "this kind of join is not spoken here", "Write JOIN … ON or LEFT JOIN … ON, with a public table on its key", InputError
        ),
        "join_on": Rule(
            "a public table is joined on its unique key alone, so that a row meets one row at most",
            "Write ON {key} = a column of the private table",
            InputError,
        ),
        "join_no_key": Rule("no column of the public table {table} is known to be unique", "Declare its key in the project", InputError),
        "join_derived": Rule(
            "a join takes a public table by its name", "JOIN the table itself, and put conditions on it into WHERE", InputError
        ),
        "join_types": Rule("the two sides cannot be equal: one is {left}, the other {right}", "Cast one of them", InputError),
        "calendar_keys": Rule(
            "the values of {column} are not declared, so nothing says which groups there are",
            "Declare values of {column}, or write the private table first: FROM private LEFT JOIN {table}",
            InputError,
        ),
        "calendar_count": Rule(
            "after FROM public LEFT JOIN private it counts the public table's own row too, where nobody is",
            "Count a column of the private table, such as COUNT({column})",
            InputError,
        ),
        "no_from": Rule("a query without FROM reads nothing", "Add FROM and a table: {known}", InputError),
        "alias_loop": Rule("aliases of SELECT cannot be defined by each other here", "Write the expression out", InputError),
        "per_unit_aggregate": Rule(
            "within one {unit} there are COUNT(*), COUNT, COUNT(DISTINCT x), SUM, AVG, MIN and MAX",
            "Use one of these in the sub-query",
            InputError,
        ),
        "per_unit_distinct": Rule(
            "a sub-query counts the distinct values of one expression only", "Count the others in a query of their own", InputError
        ),
        "subquery_name": Rule("two columns of the sub-query have that name", "Give one another alias", InputError),
        "too_many": Rule("it has {count} {what}, and at most {expected} are answered at once", "Ask for less in one query", InputError),
    }


RULES: Mapping[str, Rule] = MappingProxyType(_private() | _outside() | _grammar() | _shape() | _names())
"""Every rule, by name."""

FRAGMENT_MAX = 80


def cut(text: str) -> str:
    r"""A fragment of the query as one printable line of at most 80 characters.

    >>> cut("a  +\n b")
    'a + b'
    """
    line = " ".join(text[: 4 * FRAGMENT_MAX].split())
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if len(line) <= FRAGMENT_MAX else f"{line[: FRAGMENT_MAX - 1]}…"


def refuse(rule: str, fragment: str, place: str = "", **words: object) -> DitherError:
    """The error for a fragment that breaks a rule (return it, so that the caller's ``raise`` shows where).

    >>> str(refuse("several", "DROP TABLE events", "line 1, column 10"))
    "DROP TABLE events (line 1, column 10) is refused: only one statement is answered at a time, so that each has its own price. \
Ask them one by one, without ';' between."
    """
    found = RULES[rule]
    short = cut(fragment)
    given = {"fragment": short} | {k: cut(v) if isinstance(v, str) and k != "known" else v for k, v in words.items()}
    where = f" ({place})" if place else ""
    verb = "refused" if issubclass(found.error, RefusedError) else "not allowed"
    return found.error(f"{short}{where} is {verb}: {found.why.format_map(given)}. {found.instead.format_map(given)}.")


def wrong(fragment: str, place: str, text: str) -> InputError:
    """The error for a fragment whose operands do not fit; the text is the operator's own.

    >>> str(wrong("LOWER(n)", "line 1, column 8", "lower takes text: n is an int."))
    'LOWER(n) (line 1, column 8) is not allowed: lower takes text: n is an int.'
    """
    where = f" ({place})" if place else ""
    return InputError(f"{cut(fragment)}{where} is not allowed: {text}")
