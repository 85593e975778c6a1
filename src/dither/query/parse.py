"""Text → one SELECT as sqlglot reads it, with GoogleSQL's differential privacy clause taken out, within bounds of size and depth.

The text is tokenized once and looked at before any parser runs: one statement, SELECT or WITH first, brackets no deeper than ``DEPTH_MAX``.
The clause is blanked out in place, so that every line and column told is the one of the text that was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from dither.core import checks
from dither.core.errors import InputError, MissingExtraError, UnknownNameError, shown
from dither.query.refusals import cut, refuse

try:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
    from sqlglot.parser import Parser
    from sqlglot.tokenizer_core import Token
    from sqlglot.tokenizer_core import TokenType as T
except ModuleNotFoundError as error:
    raise MissingExtraError("SQL", "sql") from error

DIALECTS: Final = ("duckdb", "postgres", "bigquery", "spark", "snowflake")
TEXT_MAX: Final = 100_000
TOKENS_MAX: Final = 20_000
DEPTH_MAX: Final = 32
"""How deep brackets, CASE and the tree may nest (the tree: four levels for each)."""
SQUARE_MAX: Final = 64
PREFIX_MAX: Final = 16
OPTIONS: Final = ("delta", "epsilon", "max_groups_contributed", "max_rows_per_group", "privacy_unit_column")
_BROKEN: Final = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, AssertionError, NotImplementedError, RecursionError)
"""What a parser may die of on text that is not SQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (…)`` says; None where it says nothing."""

    epsilon: float | None = None
    delta: float | None = None
    max_groups_contributed: int | None = None
    max_rows_per_group: int | None = None
    privacy_unit_column: str | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """One SELECT, and what its differential privacy clause says."""

    tree: exp.Select
    options: Options
    sql: str


def parse(sql: str, *, dialect: str = "duckdb") -> Parsed:
    """The one SELECT of a text.

    >>> parse("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6) COUNT(*) FROM t").options.delta
    1e-06
    """
    text = _text(sql)
    if dialect not in DIALECTS:
        raise UnknownNameError("dialect", dialect, DIALECTS)
    tokens = _tokens(text, dialect)
    options, blank = _clause(text, tokens)
    try:
        spoken = Dialect.get_or_raise(dialect)
        found = _parser(dialect)(dialect=spoken, error_level=ErrorLevel.IMMEDIATE).parse(spoken.tokenize(blank), blank)
    except ParseError as error:
        raise _unreadable(error) from None
    except RecursionError:
        raise _deep() from None
    except (SqlglotError, *_BROKEN):
        raise InputError("The SQL cannot be read: expected one SELECT. Check its commas, brackets and key words.") from None
    trees = [tree for tree in found if tree is not None]
    if len(trees) != 1:
        raise refuse("several" if trees else "statement", text)
    tree: object = trees[0]
    _check_tree(trees[0])
    while isinstance(tree, exp.Subquery) and not any(v for k, v in tree.args.items() if k != "this"):
        tree = tree.this
    if isinstance(tree, exp.SetOperation):
        raise refuse("set_operation", cut(text))
    if not isinstance(tree, exp.Select):
        raise refuse("statement", cut(text))
    return Parsed(tree, options, text)


def place(text: str, start: int) -> str:
    r"""Where a character is, in words.

    >>> place("SELECT\n  x", 9)
    'line 2, column 3'
    """
    before = text[:start]
    return f"line {before.count(chr(10)) + 1}, column {start - before.rfind(chr(10))}"


# ------------------------------------------------------------------------------------------------ before parsing


def _text(sql: object) -> str:
    """A text that is safe to take apart."""
    if not isinstance(sql, str):
        raise checks.refuse("sql", sql, "a text with one SELECT")
    if len(sql) > TEXT_MAX:
        raise InputError(f"The SQL has more than {TEXT_MAX} characters: expected a shorter query.")
    for index, char in enumerate(sql):
        if (char < " " and char not in "\t\n\r") or "\ud800" <= char <= "\udfff" or char == "\x7f":
            raise InputError(f"The SQL holds the control character {shown(char)} at {place(sql, index)}: expected text only. Take it out.")
    return sql


def _tokens(text: str, dialect: str) -> list[Token]:
    """The tokens of one statement that is neither too long nor too deep."""
    tokenizer = Dialect.get_or_raise(dialect).tokenizer()
    try:
        tokens = list(tokenizer.tokenize(text))
    except (SqlglotError, *_BROKEN):
        read = tokenizer.tokens
        start = read[-1].end + 1 if read else 0
        start += len(text[start:]) - len(text[start:].lstrip())
        raise InputError(
            f"The SQL cannot be read at {place(text, start)}, from {shown(text[start : start + 20])} on: expected each quote and comment"
            " to be closed."
        ) from None
    if len(tokens) > TOKENS_MAX:
        raise InputError(f"The SQL has more than {TOKENS_MAX} words and signs: expected a shorter query.")
    while tokens and tokens[-1].token_type is T.SEMICOLON:
        tokens.pop()
    for index, token in enumerate(tokens):
        if token.token_type is T.SEMICOLON:
            after = tokens[index + 1]
            raise refuse("several", text[after.start :], place(text, after.start))
    if not tokens:
        raise InputError("The SQL is empty: expected one SELECT.")
    if tokens[0].token_type not in {T.SELECT, T.WITH, T.L_PAREN, T.FROM}:
        raise refuse("statement", text[tokens[0].start :], place(text, tokens[0].start))
    _check_nesting(text, tokens)
    return tokens


def _check_nesting(text: str, tokens: Sequence[Token]) -> None:
    """Brackets, CASE and signs before a value nest a little only: a parser calls itself for each."""
    opening, closing = {T.L_PAREN, T.L_BRACKET, T.L_BRACE, T.CASE}, {T.R_PAREN, T.R_BRACKET, T.R_BRACE, T.END}
    prefix = {T.NOT, T.DASH, T.PLUS, T.TILDE, T.INTERVAL, T.SELECT, T.FROM, T.WITH, T.EXISTS, T.ANY, T.ALL, T.DISTINCT}
    depth = run = squares = 0
    for token in tokens:
        depth += (token.token_type in opening) - (token.token_type in closing)
        run = run + 1 if token.token_type in prefix else 0
        squares += token.token_type in {T.L_BRACKET, T.L_BRACE}
        if depth > DEPTH_MAX or run > PREFIX_MAX or squares > SQUARE_MAX:
            raise _deep(place(text, token.start))


@cache
def _parser(dialect: str) -> type[Parser]:
    """The dialect's parser; where it would take a statement that it does not know for a command, and log the text, it refuses."""
    spoken: type[Parser] = Dialect.get_or_raise(dialect).parser_class

    class Strict(spoken):  # type: ignore[valid-type, misc]  # the class is known when it runs
        def _warn_unsupported(self) -> None:
            raise refuse("statement", self.sql)

    return Strict


def _check_tree(tree: exp.Expr) -> None:
    """The tree is no deeper than what walks over it can stand (chains of AND and of OR are flat), and no node lacks a part."""
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > 4 * DEPTH_MAX:
            raise _deep()
        for name, needed in node.arg_types.items():
            if needed and node.args.get(name) in (None, []):
                lacking = type(node).__name__.upper()
                raise InputError(f"The SQL cannot be read: {lacking} lacks a part. Check its arguments, commas, brackets and key words.")
        for child in node.iter_expressions():
            flat = isinstance(node, exp.And | exp.Or) and type(child) is type(node)
            stack.append((child, depth + (not flat)))


def _deep(where: str = "") -> InputError:
    at = f" at {where}" if where else ""
    return InputError(
        f"The SQL nests too deep{at}: expected at most {DEPTH_MAX} brackets or CASEs within each other. Use WITH to name its parts."
    )


def _unreadable(error: Exception) -> InputError:
    """The parser's complaint as one sentence of our own."""
    told = getattr(error, "errors", None) or [{}]
    first = told[0]
    line, end, near = first.get("line"), first.get("col"), str(first.get("highlight") or "")
    what = str(first.get("description") or "")
    hint = f"{what.replace('Expecting', 'expected')} there" if what.startswith("Expecting") and len(what) < 40 else "expected one SELECT"
    if not isinstance(line, int) or not isinstance(end, int):
        return InputError(f"The SQL cannot be read: {hint}. Check its commas, brackets and key words.")
    column = max(1, end - len(near) + 1)
    at = f", near {shown(cut(near))}" if near else ""
    return InputError(f"The SQL cannot be read at line {line}, column {column}{at}: {hint}. Check its commas, brackets and key words.")


# ------------------------------------------------------------------------------------------------ GoogleSQL's clause


def _clause(text: str, tokens: Sequence[Token]) -> tuple[Options, str]:
    """What the differential privacy clause of the outermost SELECT says, and the text with blanks in its place."""
    depth, options, blank = 0, None, text
    for index, token in enumerate(tokens[:-2]):
        depth += (token.token_type is T.L_PAREN) - (token.token_type is T.R_PAREN)
        after = tokens[index + 1 : index + 3]
        if token.token_type is not T.SELECT or after[0].token_type is not T.WITH or not _is(after[1], "DIFFERENTIAL_PRIVACY"):
            continue
        if depth or options is not None:
            raise InputError(
                f"WITH DIFFERENTIAL_PRIVACY at {place(text, after[0].start)} is not allowed: expected once, in the outermost SELECT."
            )
        last, options = index + 2, Options()
        if index + 3 < len(tokens) and _is(tokens[index + 3], "OPTIONS"):
            last, options = _options(text, tokens, index + 4)
        start, end = after[0].start, tokens[last].end + 1
        blank = text[:start] + "".join(c if c == "\n" else " " for c in text[start:end]) + text[end:]
    return options or Options(), blank


def _is(token: Token, word: str) -> bool:
    return token.text.upper() == word


def _options(text: str, tokens: Sequence[Token], index: int) -> tuple[int, Options]:
    """``(name = value, …)`` from token ``index`` on: where it ends, and what it says."""

    def bad(token: Token) -> InputError:
        return InputError(
            f"OPTIONS cannot be read at {place(text, token.start)}, near {shown(token.text)}: expected (epsilon = 1, delta = 1e-6, …)."
        )

    given: dict[str, float | int | str] = {}
    tail = tokens[-1]
    if index >= len(tokens) or tokens[index].token_type is not T.L_PAREN:
        raise bad(tokens[min(index, len(tokens) - 1)])
    at = index + 1
    while at < len(tokens) and tokens[at].token_type is not T.R_PAREN:
        name = tokens[at].text.lower()
        if name not in OPTIONS:
            raise UnknownNameError("option", tokens[at].text, OPTIONS)
        if name in given:
            raise InputError(f"The option {name} is given twice at {place(text, tokens[at].start)}: expected once.")
        if at + 2 >= len(tokens) or tokens[at + 1].token_type is not T.EQ:
            raise bad(tokens[min(at + 1, len(tokens) - 1)])
        end = at + 2
        while end < len(tokens) and tokens[end].token_type not in {T.COMMA, T.R_PAREN}:
            end += 1
        if end == len(tokens) or end == at + 2:
            raise bad(tail)
        given[name] = _option(name, tokens[at + 2 : end], bad)
        at = end + (tokens[end].token_type is T.COMMA)
    if at >= len(tokens):
        raise bad(tail)
    return at, Options(**given)  # type: ignore[arg-type]  # each is checked by its name


def _option(name: str, value: Sequence[Token], bad: object) -> float | int | str:
    """The value of one option, checked."""
    assert callable(bad)
    if name == "privacy_unit_column":
        if len(value) > 3 or any(t.token_type in {T.NUMBER, T.DASH} for t in value):
            raise bad(value[0])
        return value[-1].text
    if len(value) != 1 or value[0].token_type is not T.NUMBER:
        raise bad(value[0])
    written = value[0].text
    if name.startswith("max_"):
        if not (written.isascii() and written.isdigit() and len(written) < 19):
            raise checks.refuse(name, written, "a whole number > 0")
        return checks.count(name, int(written))
    try:
        number = float(written)
    except ValueError:
        raise bad(value[0]) from None
    return checks.epsilon(number, name, zero=False) if name == "epsilon" else checks.delta(number, name)
