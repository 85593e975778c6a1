"""YAML that knows where each value stands: a small, safe part of YAML, read with bounds, every failure one sentence.

Maps, lists, texts and plain numbers, with anchors and aliases. Not read: tags, merge keys, several documents, maps with
other keys than text, and YAML 1.1's surprises (``no`` as false, ``12:30`` as a number, dates): only ``true`` and
``false`` are booleans, as in YAML 1.2. A number is the one that is written, or refused. Size, depth and what aliases unfold
to are bounded before anything is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import yaml

from dither.core.errors import InputError, shown

BYTES_MAX = 256 * 1024
DEPTH_MAX = 24
NODES_MAX = 20_000
"""Values, counted as if every alias were written out."""
NUMBER_MAX = 60

Place: TypeAlias = tuple[int, int]
Loc: TypeAlias = Sequence[str | int]

_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_ZERO = re.compile(r"[-+.0]*[1-9]")
_SPECIAL = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    word: truth for truth in (True, False) for word in (str(truth), str(truth).lower(), str(truth).upper())
}


@dataclass(slots=True)
class _Node:
    """One value of the text, with its place; ``keys`` are the places of a map's keys."""

    place: Place
    value: Any
    keys: dict[str, Place] = field(default_factory=dict)
    size: int = 1
    depth: int = 1
    pending: str | None = None


@dataclass(frozen=True, slots=True)
class Marked:
    """The value of a YAML text, and where everything in it stands."""

    name: str
    value: Any
    root: _Node

    def refuse(self, loc: Loc, sentence: str, *, key: str | None = None) -> InputError:
        """The error for what stands at ``loc`` (or for its key ``key``): ``file:line:column: sentence``."""
        line, column = self.place(loc, key)
        return InputError(f"{self.name}:{line}:{column}: {sentence}")

    def place(self, loc: Loc, key: str | None = None) -> Place:
        r"""Where the innermost part of ``loc`` that exists stands; with ``key``, that key of it.

        >>> read("a:\n  b: 1\n", "x.yaml").place(["a", "b"])
        (2, 6)
        """
        node = self.root
        for part in loc:
            inner = _inside(node, part)
            if inner is None:
                break
            node = inner
        return node.place if key is None else node.keys.get(key, node.place)


def _inside(node: _Node, part: str | int) -> _Node | None:
    """The member a pydantic location means; a lone map that stands for a list of one is its own first member."""
    if isinstance(node.value, dict):
        return node if part == 0 else node.value.get(part)
    if isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
        found: _Node = node.value[part]
        return found
    return None


def load(path: Path, *, name: str | None = None) -> Marked:
    """The YAML of a file."""
    shown_name = name if name is not None else str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:  # ValueError: a path that holds the character NUL
        why = error.strerror if isinstance(error, OSError) else "that is no path"
        raise InputError(f"{shown_name} could not be read: {why or 'no more is known'}.") from None
    return read(raw, shown_name)


def read(text: str | bytes, name: str) -> Marked:
    r"""The YAML of a text; ``name`` is how errors call it.

    >>> read("epsilon: 1e-6\ncities: [Delhi, NO]", "x.yaml").value
    {'epsilon': 1e-06, 'cities': ['Delhi', 'NO']}
    >>> read("a: 1\na: 2", "x.yaml")
    Traceback (most recent call last):
    dither.core.errors.InputError: x.yaml:2:1: The key 'a' is there twice, first in line 1: name each key once.
    """
    if len(text) > BYTES_MAX:
        raise InputError(f"{name}:1:1: The file is too long: expected at most {BYTES_MAX // 1024} KiB.")
    root = _Reader(name).root(text if isinstance(text, str) else _decoded(text, name))
    return Marked(name, _plain(root), root)


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise InputError(f"{name}:{line}:{column}: The file is not UTF-8: save it as UTF-8.") from None


class _Reader:
    """Takes the events of PyYAML's parser one by one; depth and size are checked before the next is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.anchors: dict[str, _Node] = {}
        self.open: list[tuple[_Node, str | None]] = []
        self.found: _Node | None = None
        self.last: Place = (1, 1)

    def refuse(self, place: Place, sentence: str) -> NoReturn:
        raise InputError(f"{self.name}:{place[0]}:{place[1]}: {sentence}")

    def root(self, text: str) -> _Node:
        documents = 0
        try:
            for event in yaml.parse(text, Loader=yaml.SafeLoader):
                self.last = _place(event.start_mark)
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        self.refuse(_place(event.start_mark), "A second document starts here: expected one.")
                elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                    self.take(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = " ".join((error.problem or error.context or "a mistake").split())
            self.refuse(_place(mark) if mark is not None else (1, 1), f"This is not YAML: {what}.")
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            column = error.position - text.rfind("\n", 0, error.position)
            self.refuse((line, column), "A control character is not allowed here: remove it.")
        except InputError:
            raise
        except (ValueError, OverflowError):  # of PyYAML itself, at \\U00110000 or a version number of 5,000 digits
            self.refuse(self.last, "After this stands what is no YAML: expected characters and numbers that exist.")
        if self.found is None:
            self.refuse((1, 1), "The file is empty: expected a map (key: value).")
        return self.found

    def take(self, event: yaml.Event) -> None:
        place = _place(event.start_mark)
        if isinstance(event, yaml.CollectionEndEvent):
            node, anchor = self.open.pop()
            if anchor is not None:
                self.anchors[anchor] = node
            self.put(node)
        elif isinstance(event, yaml.AliasEvent):
            known = self.anchors.get(str(event.anchor))
            if known is None:
                self.refuse(place, f"The alias *{_short(event.anchor)} has no anchor before it: write &{_short(event.anchor)} first.")
            self.put(_Node(place, known.value, known.keys, known.size, known.depth))
        else:
            self.new(event, place)

    def new(self, event: Any, place: Place) -> None:  # noqa: ANN401 - one of three event classes without a shared type
        if event.tag is not None:
            self.refuse(place, f"The tag {shown(event.tag)} is not allowed: expected plain maps, lists, texts and numbers.")
        if isinstance(event, yaml.ScalarEvent):
            if not _encodes(event.value):
                self.refuse(place, "Half a character (\\ud800 to \\udfff) is not allowed: write the whole one.")
            node = _Node(place, event.value if event.style is not None else self.scalar(event.value, place))
            if event.anchor is not None:
                self.anchors[event.anchor] = node
            if self.open and isinstance(self.open[-1][0].value, dict) and self.open[-1][0].pending is None:
                self.key(event, place)
                return
            self.put(node)
            return
        if len(self.open) >= DEPTH_MAX:
            self.refuse(place, f"This is nested too deeply: expected at most {DEPTH_MAX} levels.")
        self.needs_value(place)
        self.open.append((_Node(place, {} if isinstance(event, yaml.MappingStartEvent) else []), event.anchor))

    def needs_value(self, place: Place) -> None:
        """A map or list may not stand where a key is expected."""
        if self.open and isinstance(self.open[-1][0].value, dict) and self.open[-1][0].pending is None:
            self.refuse(place, "A map or list cannot be a key: expected a text.")

    def key(self, event: yaml.ScalarEvent, place: Place) -> None:
        node, name = self.open[-1][0], str(event.value)
        if name == "<<":
            self.refuse(place, "Merge keys (<<) are not read: write the keys out.")
        if event.style is None and not isinstance(self.scalar(name, place), str):
            self.refuse(place, f"The key {shown(name)} is not a text: put it in quotes.")
        if name in node.keys:
            self.refuse(place, f"The key {shown(name)} is there twice, first in line {node.keys[name][0]}: name each key once.")
        node.keys[name] = place
        node.pending = name

    def put(self, node: _Node) -> None:
        """A finished value, into the map or list that is open."""
        if not self.open:
            self.found = node
            return
        parent = self.open[-1][0]
        if isinstance(parent.value, dict):
            if parent.pending is None:
                self.refuse(node.place, "An alias cannot be a key: expected a text.")
            parent.value[parent.pending] = node
            parent.pending = None
        else:
            parent.value.append(node)
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)
        if parent.size > NODES_MAX or len(self.open) + node.depth > DEPTH_MAX + 1:
            self.refuse(
                node.place, f"With its aliases written out this is too large: expected at most {NODES_MAX:_} values in {DEPTH_MAX} levels."
            )

    def scalar(self, text: str, place: Place) -> object:
        """What a plain (unquoted) text means."""
        if text in _WORDS:
            return _WORDS[text]
        if _SPECIAL.match(text):
            self.refuse(place, f"{text} is not allowed: expected a finite number.")
        number = _FLOAT.match(text)
        if number and len(text) > NUMBER_MAX:
            self.refuse(place, f"This number has {len(text)} digits: expected at most {NUMBER_MAX}, or a text in quotes.")
        if _INTEGER.match(text):
            return int(text)
        if number:
            value = float(text)
            if math.isinf(value) or (value == 0 and _NOT_ZERO.match(text)):
                self.refuse(place, f"{shown(text)} is not allowed: expected a number that fits a float.")
            if value and Fraction(text) != Fraction(repr(value)):
                self.refuse(place, f"{text} has more digits than a float holds: write {value!r}, or fewer digits.")
            return value
        return text


def _place(mark: Any) -> Place:  # noqa: ANN401 - yaml.Mark has no stub for its fields in every version
    return int(mark.line) + 1, int(mark.column) + 1


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(name: object) -> str:
    return str(name)[:40]


def _plain(node: _Node) -> Any:  # noqa: ANN401 - what YAML can say
    """The value without its places; the depth was bounded while reading."""
    if isinstance(node.value, dict):
        return {key: _plain(inner) for key, inner in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(inner) for inner in node.value]
    return node.value
