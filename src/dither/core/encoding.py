"""Canonical JSON and digests: one text per value, so that equal things have equal digests everywhere."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from dither.core.errors import DecodeError, InputError, shown

TEXT_MAX = 64 * 1024 * 1024
DEPTH_MAX = 200


def canonical_json(value: object) -> str:
    """JSON with sorted keys, no spaces, ASCII only, shortest floats; NaN and ±∞ are refused.

    >>> canonical_json({"b": 1, "a": [0.1, True]})
    '{"a":[0.1,true],"b":1}'
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InputError(f"{shown(value)} cannot be written as JSON: expected null, booleans, finite numbers, text, lists, maps.") from None
    _check_keys(value)
    return text


def _check_keys(value: object) -> None:
    """Keys are text: JSON would write 1 and "1" alike, and two values would share one digest."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if not all(isinstance(key, str) for key in node):
                raise InputError(f"{shown(node)} cannot be written as JSON: expected text as keys.")
            waiting.extend(node.values())
        elif isinstance(node, list | tuple):
            waiting.extend(node)


def digest(value: object) -> str:
    """``sha256:…`` of the canonical JSON."""
    return f"sha256:{hashlib.sha256(canonical_json(value).encode('ascii')).hexdigest()}"


def parse_json(text: object) -> Any:  # noqa: ANN401 - JSON is whatever it is; callers check it
    """Strict JSON: no duplicate keys, no NaN or Infinity, bounded size and depth, every failure one DecodeError."""
    if not isinstance(text, str | bytes | bytearray):
        raise DecodeError(f"A {type(text).__name__} is not JSON text: expected str or bytes.")
    if len(text) > TEXT_MAX:
        raise DecodeError(f"The JSON text is too long: expected at most {TEXT_MAX} characters.")
    if not isinstance(text, str):
        try:
            text = bytes(text).decode("utf-8")
        except UnicodeDecodeError:
            raise DecodeError("The JSON text is not UTF-8: save it as UTF-8.") from None
    _check_depth(text)
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except DecodeError:
        raise
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DecodeError(f"The text is not valid JSON{where}.") from None


def _check_depth(text: str) -> None:
    depth, quoted, escaped = 0, False, False
    for letter in text:
        if quoted:
            if escaped:
                escaped = False
            elif letter == "\\":
                escaped = True
            elif letter == '"':
                quoted = False
        elif letter == '"':
            quoted = True
        elif letter in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise DecodeError(f"The JSON text is nested too deeply: expected at most {DEPTH_MAX} levels.")
        elif letter in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise DecodeError("A JSON object names a key twice: name each key once.")
    return made


def _no_constant(name: str) -> float:
    raise DecodeError(f"{name} is not allowed in JSON: expected a finite number.")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise DecodeError(f"{shown(digits)} is not allowed in JSON: expected a number that fits a float.")
    return number
