"""YAML read with bounds: each value with its place, each failure one sentence with line and column."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dither.core.errors import InputError
from dither.gate import marked
from dither.gate.marked import BYTES_MAX, load, read


def value(text):
    return read(text, "x.yaml").value


def refused(text):
    with pytest.raises(InputError) as told:
        read(text, "x.yaml")
    found = re.fullmatch(r"x\.yaml:([0-9]+):([0-9]+): (.*[.])", str(told.value))
    assert found, str(told.value)
    assert len(found[3]) < 300
    assert found[3].isprintable()
    return (int(found[1]), int(found[2])), found[3]


# ------------------------------------------------------------------------------------------------ what is said


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1", {"a": 1}),
        ("a: [1, 2.5, x, 'y', \"z\", null, true]", {"a": [1, 2.5, "x", "y", "z", None, True]}),
        ("a:\n  - b: c\n    d: {}\n  - []", {"a": [{"b": "c", "d": {}}, []]}),
        ("- 1\n- 2", [1, 2]),
        ("just a text", "just a text"),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("a: &x {b: 1}\nc: *x\nd: [*x, *x]", {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, {"b": 1}]}),
        ("&k a: 1\nb: *k", {"a": 1, "b": "a"}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("'': 1", {"": 1}),
        ("%YAML 1.1\n---\na: 1\n...\n", {"a": 1}),
        ("\ufeffa: 1", {"a": 1}),
        (b"\xef\xbb\xbfa: \xc3\xa9", {"a": "é"}),
        ("# note\na: 1 # note\n", {"a": 1}),
        ("a: 市場 🚀", {"a": "市場 🚀"}),
    ],
    ids=range(15),
)
def test_maps_lists_and_texts_are_read(text, found):
    assert value(text) == found


@pytest.mark.parametrize(
    ("written", "found"),
    [
        *(("1", 1), ("-1", -1), ("+1", 1), ("0", 0), ("007", 7), ("9" * 60, int("9" * 60))),
        *(
            ("1.5", 1.5),
            ("1.", 1.0),
            (".5", 0.5),
            ("-.5", -0.5),
            ("+1.5", 1.5),
            ("1e-6", 1e-6),
            ("1E6", 1e6),
            ("0e999999999", 0.0),
            ("0.000", 0.0),
        ),
        *(
            ("0.30000000000000004", 0.30000000000000004),
            ("1.7976931348623157e308", 1.7976931348623157e308),
            ("2.2250738585072014e-308", 2.2250738585072014e-308),
        ),
        *(("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None)),
        *(
            (text, text)
            for text in (
                "no",
                "yes",
                "on",
                "off",
                "y",
                "n",
                "12:30",
                "1:2:3",
                "2026-11-19",
                "0x10",
                "0o7",
                "0b1",
                "1_000",
                "1e",
                "e1",
                ".",
                "--1",
            )
        ),
        *((text, text) for text in ("tRue", "nuLL", "1.2.3", "1 000", "NaN", "inf", "Infinity", "١")),
        *((f"'{text}'", text) for text in ("1", "true", "null", "~", ".inf", "1e400", "9" * 99)),
    ],
)
def test_plain_texts_mean_what_they_say(written, found):
    assert value(f"a: {written}") == {"a": found}
    assert type(value(f"a: {written}")["a"]) is type(found)


@pytest.mark.parametrize(
    "number", [".inf", "-.inf", "+.INF", ".nan", ".NaN", "1e400", "-1e400", "1e-400", "0.000001e-330", "9" * 61, "0." + "1" * 60]
)
def test_a_number_that_is_none_is_refused(number):
    assert refused(f"a: {number}")[0] == (1, 4)


@pytest.mark.parametrize(
    "number", ["0.09999999999999999999", "0.1000000000000000055", "3.14159265358979323846", "4.9e-324", "9007199254740993.0"]
)
def test_a_number_is_never_rounded_in_silence(number):
    """0.09999999999999999999 read as 0.1 would be a limit that is larger than what is written."""
    place, told = refused(f"a: {number}")
    assert place == (1, 4)
    assert "more digits than a float holds" in told


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
def test_every_float_is_read_from_its_own_text(number):
    assert value(f"a: {number!r}") == {"a": number}


SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6).filter(lambda k: k != "<<"), inner, max_size=4),
    max_leaves=20,
)


@given(TREES.filter(lambda tree: isinstance(tree, dict | list)))
def test_json_is_yaml(tree):
    text = json.dumps(tree, indent=1)
    if "\\ud" in text:  # JSON writes what is beyond U+FFFF in two halves, which are no characters of YAML
        text = json.dumps(tree, indent=1, ensure_ascii=False)
    if re.search(r"[^\t\n -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\x7f", text):
        with pytest.raises(InputError):
            value(text)
    elif not re.search("[\x85\u2028\u2029\ufeff]", text):  # which YAML folds as ends of lines
        assert value(text) == tree


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.lists(st.integers(0, 999), max_size=3) | st.integers(0, 999), min_size=1
    )
)
def test_every_value_knows_its_place(tree):
    text = json.dumps(tree, indent=2)
    lines, found = text.split("\n"), read(text, "x.yaml")

    def at(place):
        return lines[place[0] - 1][place[1] - 1 :]

    for key, inner in tree.items():
        assert at(found.place([], key)).startswith(f'"{key}":')
        if isinstance(inner, list):
            assert at(found.place([key])).startswith("[")
            for i, number in enumerate(inner):
                assert at(found.place([key, i])).rstrip(",") == str(number)
        else:
            assert at(found.place([key])).rstrip(",") == str(inner)


def test_a_place_that_does_not_exist_is_the_nearest_that_does():
    found = read("a:\n  b: [1, {c: 2}]\n", "x.yaml")
    assert found.place([]) == (1, 1)
    assert found.place(["a"]) == (2, 3)
    assert found.place(["a", "b", 1, "c"]) == (2, 14)
    assert found.place(["a", "b", 1], "c") == (2, 11)
    for loc in (["a", "b", 7], ["a", "b", 7, "x"], ["a", "b", "x"]):
        assert found.place(loc) == found.place(["a", "b"])
    assert found.place(["a", "x"]) == found.place(["a"], "x") == (2, 3)
    assert found.place(["a", 0, "b"]) == found.place(["a", "b"])  # a lone map stands for a list of one
    assert str(found.refuse(["a", "b", 0], "No.")) == "x.yaml:2:7: No."


def test_an_alias_stands_where_it_stands():
    found = read("a: &x\n  b: 1\nc: *x\n", "x.yaml")
    assert found.place(["a"]) == (1, 4)  # its anchor is a part of it
    assert found.place(["c"]) == (3, 4)
    assert found.place(["c", "b"]) == (2, 6)


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("", (1, 1), "empty"),
        ("# nothing", (1, 1), "empty"),
        ("a: 1\na: 2", (2, 1), "'a' is there twice, first in line 1"),
        ("a: 1\n'a': 2", (2, 1), "twice"),
        ("a: {b: 1, b: 2}", (1, 11), "twice"),
        ("a: &x {b: 1}\nc: {<<: *x}", (2, 5), "Merge keys"),
        ("a: !!str 1", (1, 4), "tag"),
        ("a: !!python/object/apply:os.system [echo]", (1, 4), "tag"),
        ("a: ! 1", (1, 4), "tag"),
        ("- 1\n--- \n- 2", (2, 1), "second document"),
        ("1: a", (1, 1), "key '1' is not a text"),
        ("true: a", (1, 1), "key 'true' is not a text"),
        ("~: a", (1, 1), "not a text"),
        ("[a]: 1", (1, 1), "cannot be a key"),
        ("{a: 1}: 1", (1, 1), "cannot be a key"),
        ("a: &x b\n*x : 1", (2, 1), "alias cannot be a key"),
        ("a: *x", (1, 4), "*x has no anchor"),
        ("a: &x [*x]", (1, 8), "no anchor"),
        ("a: [", (1, 5), "not YAML"),
        ("a:\n\tb: 1", (2, 1), "not YAML"),
        ("a: 'b", (1, 6), "not YAML"),
        ("a: b: c", (1, 5), "not YAML"),
        ("a: \0", (1, 4), "control character"),
        ("a:\n  \x1b[31m", (2, 3), "control character"),
        ("a: \ud800", (1, 4), "control character"),
        ('a: "\\ud800"', (1, 4), "Half a character"),
        ('"\\udfff": 1', (1, 1), "Half a character"),
        ('a: "\\U00110000"', (1, 1), "no YAML"),
        ('a: "\\UFFFFFFFF"', (1, 1), "no YAML"),
        (f"%YAML {'9' * 5_000}.1\n---\na: 1", (1, 1), "no YAML"),
        ("%YAML 2.0\n---\na: 1", (1, 1), "incompatible"),
        (b"a: 1\nbc: \xff", (2, 5), "not UTF-8"),
        ("a: 1".encode("utf-16"), (1, 1), "not UTF-8"),
    ],
    ids=range(33),
)
def test_what_is_refused_says_where_and_why(text, place, told):
    found = refused(text)
    assert found[0] == place
    assert told in found[1]


def filled(unit):
    return (unit * (BYTES_MAX // len(unit) + 1))[:BYTES_MAX]


LETTERS = "abcdefghij"
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in pairwise(LETTERS))
BOMBS = [
    *("[" * 10_000, "{a: " * 10_000, filled("- "), filled("? "), "".join(f"{' ' * i}a:\n" for i in range(700))),
    LAUGHS,
    "\n".join(["a0: &a0 [1]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 2_000))]),
    "a: &a {x: 1, y: 2}\n" + "".join(f"k{i}: *a\n" for i in range(15_000)),
    "[" + "1," * 100_000 + "]",
    *(filled(unit) for unit in (",", ": ", "! ", "&a ", "*a ", "%a\n", "\t", "\r", " ", "---\n", "...\n", '"\\x4')),
    "a" * (BYTES_MAX + 1),
    b"a" * (BYTES_MAX + 1),
]


@pytest.mark.parametrize("text", BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_goes_off_outside(text):
    """Each of them would, without bounds, take all memory, all the stack, or time that grows with the square of its length."""
    refused(text)


def test_the_largest_that_is_allowed_is_read():
    assert len(value(filled("a ").strip())) == BYTES_MAX - 1
    assert len(value("[" + "1," * (marked.NODES_MAX - 1) + "]")) == marked.NODES_MAX - 1
    deep = value("[" * marked.DEPTH_MAX + "]" * marked.DEPTH_MAX)
    for _ in range(marked.DEPTH_MAX - 1):
        (deep,) = deep
    assert deep == []
    assert refused("[" * (marked.DEPTH_MAX + 1) + "]" * (marked.DEPTH_MAX + 1))[0] == (1, marked.DEPTH_MAX + 1)


@given(st.text(st.sampled_from("ab:-[]{},&*!|>'\"%@`#?~ \n\t01.e\\x<\0é\ud800\u2028"), max_size=40) | st.binary(max_size=40))
def test_any_text_is_read_or_refused_in_one_sentence(text):
    try:
        found = read(text, "x.yaml").value
    except InputError as error:
        told = str(error)
    else:
        told = "x.yaml:1:1: Fine."
        json.dumps(found, allow_nan=False).encode()
    assert re.match(r"x\.yaml:[0-9]+:[0-9]+: .*[.]\Z", told, re.DOTALL)


# ------------------------------------------------------------------------------------------------ files


def test_a_file_is_called_by_its_name(tmp_path):
    path = tmp_path / "dither.yaml"
    path.write_text("a: [1")
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}:1:6: "):
        load(path)
    with pytest.raises(InputError, match=r"^dither\.yaml:1:6: "):
        load(path, name="dither.yaml")
    path.write_bytes(b"a: 1")
    assert load(path).value == {"a": 1}


@pytest.mark.parametrize("place", ["none", ".", "a\0b"], ids=["none", "folder", "nul"])
def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path, place):
    with pytest.raises(InputError, match=r"^it could not be read: .+\.$"):
        load(tmp_path / place, name="it")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
def test_a_file_without_end_is_read_no_further_than_allowed():
    with pytest.raises(InputError, match="too long"):
        load(Path("/dev/zero"))
