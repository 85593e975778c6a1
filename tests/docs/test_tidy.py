"""The rules of the house, as tests: sizes, names, docstrings, proofs, and what must never be written."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import dither

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TEXTS = sorted(
    p
    for folder in ("src", "tests", "docs", "benchmarks", "tools", "examples", ".ci")
    for p in (ROOT / folder).rglob("*")
    if p.is_file() and "__pycache__" not in p.parts and p.suffix in {".py", ".md", ".toml", ".json", ".yaml", ".csv", ""}
) + [ROOT / n for n in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "constraints.txt")]
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}
LINES_MAX, FUNCTION_MAX, DEPTH_MAX = 600, 70, 2


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_files_are_small_or_say_why(path):
    lines = path.read_text().count("\n")
    first = (ast.get_docstring(tree(path)) or "").split("\n")[0]
    assert first or path.stat().st_size == 0, "a module starts with a docstring"
    assert lines <= LINES_MAX or "long because" in first, f"{lines} lines: split it, or say 'long because …' in its first line"
    assert not BANNED_NAMES & set(path.relative_to(ROOT / "src").with_suffix("").parts)


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return (node.end_lineno - body[0].lineno + 1) if body else 0


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_are_short(path):
    functions = [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [(f.name, code_lines(f)) for f in functions if code_lines(f) > FUNCTION_MAX]
    assert not long


def test_inheritance_is_shallow():
    parents = {
        c.name: [b.id for b in c.bases if isinstance(b, ast.Name)]
        for path in SOURCES
        if path.name != "errors.py"
        for c in ast.walk(tree(path))
        if isinstance(c, ast.ClassDef)
    }

    def depth(kind: str) -> int:
        return 1 + max((depth(p) for p in parents[kind] if p in parents), default=0)

    assert {k: depth(k) for k in parents if depth(k) > DEPTH_MAX} == {}


def mechanisms() -> list[tuple[Path, ast.ClassDef]]:
    found = []
    for path in sorted((ROOT / "src/dither/noise").glob("*.py")):
        for c in tree(path).body:
            methods = {f.name for f in c.body if isinstance(f, ast.FunctionDef)} if isinstance(c, ast.ClassDef) else set()
            if "measure" in methods and not c.name.startswith("_"):
                found.append((path, c))
    return found


def test_there_are_mechanisms_to_check():
    assert len(mechanisms()) >= 20


@pytest.mark.parametrize(("path", "kind"), mechanisms(), ids=lambda x: getattr(x, "name", None))
def test_every_mechanism_states_and_proves_its_guarantee(path, kind):
    text = ast.get_docstring(kind) or ""
    for section in ("Guarantee:", "Edge cases:", "Reference:"):
        assert section in text, f"{kind.name} has no {section} in its docstring"
    assert ">>>" in text, f"{kind.name} has no doctest"
    proof = ROOT / "docs/proofs" / f"{path.stem.lstrip('_')}.md"
    assert proof.exists(), f"{kind.name} has no proof note: write {name(proof)}"
    assert re.search(rf"^##+ .*\b{kind.name}\b", proof.read_text(), re.MULTILINE), f"{name(proof)} has no heading for {kind.name}"


def public(path: Path) -> list[ast.FunctionDef | ast.ClassDef]:
    found = [n for n in tree(path).body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]
    return [n for n in found if "overload" not in [getattr(d, "id", "") for d in n.decorator_list]]


@pytest.mark.parametrize("path", [p for p in SOURCES if not p.name.startswith("_")], ids=name)
def test_public_names_are_documented(path):
    assert [n.name for n in public(path) if not ast.get_docstring(n)] == []


# Spelled in pieces, so that this file does not break its own rule.
PLACES = ["/" + "work/", "/" + "tmp/brief", "/" + "root/", "/" + "opt/pypi", "files." + "pythonhosted", "pypi" + ".org/simple"]
PEOPLE = [r"\bthis s" + "ession\b", r"\bhelper-" + r"\d", r"\bthe integr" + "ator\b", r"\bsub-?" + "agent"]


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_nothing_speaks_of_where_it_was_made(path):
    text = path.read_text(errors="replace")
    assert [p for p in PLACES if p in text] == []
    assert [p for p in PEOPLE if re.search(p, text, re.IGNORECASE)] == []
    assert not re.search(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b", text)


def test_randomness_lives_in_noise_only():
    banned = re.compile(r"\b(np|numpy)\.random\b|^import (random|secrets)\b|^from (random|secrets)\b|os\.urandom", re.MULTILINE)
    outside = [p for p in SOURCES if "noise" not in p.relative_to(ROOT / "src/dither").parts]
    assert [name(p) for p in outside if banned.search(p.read_text())] == []


def test_no_error_is_swallowed_below_app():
    below = [p for p in SOURCES if "app" not in p.relative_to(ROOT / "src/dither").parts and p.name != "errors.py"]
    bad = [
        name(p)
        for p in below
        for n in ast.walk(tree(p))
        if isinstance(n, ast.ExceptHandler)
        and (n.type is None or (isinstance(n.type, ast.Name) and n.type.id in {"Exception", "BaseException"}))
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(n))
        and "robust" not in p.name
    ]
    assert bad == []


def test_the_public_names_of_the_package_are_one_list():
    assert sorted(dither.__all__) == sorted([*dither._HOMES, "__version__"])
    assert dither.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for public_name in dither.__all__:
        assert getattr(dither, public_name) is not None


def test_importing_dither_is_light():
    code = "import sys, dither; print([m for m in ('numpy', 'scipy', 'cryptography', 'click', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_versions_are_pinned_for_what_is_installed():
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [d for extra in project["optional-dependencies"].values() for d in extra]
    names = {re.split(r"[\[<>=~! ]", d)[0].lower() for d in wanted} - {"dither"}
    assert names - {p.lower() for p in pins} == set()
