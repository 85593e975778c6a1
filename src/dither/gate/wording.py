"""What pydantic found, as the house says it: what was given → what is allowed → what to do."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dither.core.errors import shown
from dither.gate.engines import nearest

_EXPECTED = {
    "string_type": "a text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a map (key: value)",
    "model_type": "a map (key: value)",
    "finite_number": "a finite number",
}


_SECRET = {"ledger", "webhook", "headers"}
"""Keys under which a password may stand: what is given there is not told."""


class Strict(BaseModel):
    """A map of known keys, each of the type it says: nothing is converted, nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def sentences(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[tuple[str | int, ...], str | None, str]]:
    """(location, key or None, sentence) for each thing that is wrong; with a key, the key itself is meant.

    >>> class Point(Strict):
    ...     across: float
    >>> try:
    ...     Point.model_validate({"acros": 1, "across": "x"})
    ... except ValidationError as error:
    ...     for _, _, sentence in sentences(error, Point):
    ...         print(sentence)
    across='x' is not allowed: expected a number.
    Unknown key 'acros': expected one of across; did you mean 'across'?
    """
    for found in error.errors(include_url=False):
        loc, kind, given = found["loc"], found["type"], found["input"]
        key = str(loc[-1]) if loc else ""
        if kind == "extra_forbidden":
            known = _keys(model, loc[:-1])
            asked = nearest(key, known)
            told = f"; {asked}" if asked else "."
            yield loc[:-1], key, f"Unknown key {shown(key)}: expected one of {', '.join(known)}{told}"
        elif kind == "missing":
            yield loc[:-1], None, f"The key '{key}' is missing here: add it."
        elif kind == "value_error":
            yield loc, None, str(found["ctx"]["error"])
        else:
            told = f"<{type(given).__name__}>" if _SECRET & {str(part) for part in loc} else shown(given)
            yield loc, None, f"{_name(loc)}={told} is not allowed: expected {_expected(found)}.{_advice(kind, given)}"


def _name(loc: tuple[str | int, ...]) -> str:
    names = [part for part in loc if isinstance(part, str)]
    return names[-1] if names else "the file"


def _expected(found: Mapping[str, Any]) -> str:
    if found["type"] == "literal_error":
        return f"one of {found['ctx']['expected'].replace(chr(39), '').replace(' or ', ', ')}"
    known = _EXPECTED.get(found["type"])
    return known if known is not None else str(found["msg"]).removeprefix("Input should be ").removesuffix(".").lower()


def _advice(kind: str, given: object) -> str:
    return " Put it in quotes." if kind == "string_type" and isinstance(given, bool | int | float) else ""


def _keys(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    """The keys that are known at a place of the model."""
    kind: Any = model
    for part in loc:
        if _is_model(kind):
            known = kind.model_fields.get(part)
            kind = _bare(known.annotation) if known is not None else None
        else:
            inner = typing.get_args(kind)
            kind = _bare(inner[-1]) if inner else None
    return sorted(kind.model_fields) if _is_model(kind) else []


def _is_model(kind: Any) -> bool:  # noqa: ANN401 - any annotation
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _bare(kind: Any) -> Any:  # noqa: ANN401 - any annotation
    """An annotation without ``| None`` and without what is attached to it."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(k for k in typing.get_args(kind) if k is not type(None))
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind
