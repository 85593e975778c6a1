"""Break `noise` and `accounting` on purpose, one small change at a time, and see whether a test notices.

    python tools/mutants.py                              every mutant (hours; results are kept in .mutants/)
    python tools/mutants.py --module noise/vote.py       one module (repeat the flag for several)
    python tools/mutants.py --sample 200 --seed 7        200 of all, chosen by the seed
    python tools/mutants.py --list                       what would be tried
    python tools/mutants.py --json results.json          the whole table
    python tools/mutants.py --kind weaken                only what surely weakens: noise halved, count dropped, sign, sides …
    python tools/runs_what.py                            first, once: notes which tests run which functions, so that a mutant dies soon

A mutant is *killed* when a covering test fails, hangs or crashes; *equivalent* when tools/mutants-equivalent.toml names it
with a reason (no guarantee depends on it); else it *survived*, and this ends with status 1. Every mutant is made in a copy
of the tree under a temporary folder. Which tests cover a module, fastest first, is in tools/mutants-tests.toml; a module
that is not there gets the test files that import it. A survivor is tried again once its module or its tests change; what
was killed counts as long as the definition that it is in stays as it is (--fresh tries all again).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from runs_what import MAP, Chosen, Outcomes, quickest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "dither"
ROOMS = ("noise", "accounting")
CACHE = ROOT / ".mutants" / "results.jsonl"
EQUIVALENT = ROOT / "tools" / "mutants-equivalent.toml"
COVERS = ROOT / "tools" / "mutants-tests.toml"
COPIED = ("src", "tests", "tools", "docs", "pyproject.toml", "README.md", "Makefile")
TIMEOUT_BASE, TIMEOUT_TIMES = 15.0, 6.0
ELSEWHERE_SECONDS = 20.0
WEAKEN = {
    "halve a noise",
    "drop a term",
    "drop a power",
    "flip a sign",
    "swap sides",
    "swap arguments",
    "other bound",
    "other of a pair",
    "remove a clip",
}
HEAVY = (
    "cryptography.hazmat.primitives.ciphers",
    "hypothesis",
    "mpmath",
    "numpy",
    "pytest",
    "scipy.integrate",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
)
KILLED, SURVIVED, ALLOWED = "killed", "survived", "equivalent"

SAMPLERS = {"discrete_laplace", "discrete_gaussian", "rounded_laplace", "rounded_gaussian", "laplace", "gaussian"}
TWINS = {
    pair[i]: pair[1 - i]
    for pair in (
        ("max", "min"),
        ("maximum", "minimum"),
        ("amax", "amin"),
        ("floor", "ceil"),
        ("up", "down"),
        ("upper", "lower"),
        ("any", "all"),
        ("argmax", "argmin"),
        ("nanmax", "nanmin"),
    )
    for i in (0, 1)
}
COMPARES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
BINARIES = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMMUTES = {"max", "min", "maximum", "minimum", "isinstance", "hypot", "add", "logaddexp", "zip", "getattr", "setattr"}
TOLD = {"refuse", "InputError", "RefusedError", "UnknownNameError", "shown", "TypeVar", "lru_cache", "field"}


# ------------------------------------------------------------------------------------------------ making mutants


@dataclass(frozen=True)
class Mutant:
    """One change: in ``module``, the text from ``start`` to ``end`` (byte offsets) becomes ``after``."""

    module: str
    function: str
    operator: str
    line: int
    text: str
    before: str
    after: str
    nth: int
    start: int
    end: int

    @property
    def name(self) -> str:
        """What identifies it as long as its line stays as it is, wherever that line moves."""
        return f"{self.module} · {self.function} · {self.text} · {self.before} → {self.after} · {self.nth}"


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST | str]]:
    """(operator, new node or text) for one node."""
    match node:
        case ast.Constant(value=bool(value)):
            yield "flip a truth", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "double a constant", ast.Constant(2 * value if value else 1)
            if value > 1:
                yield "halve a constant", ast.Constant(value // 2)
        case ast.Constant(value=float(value)):
            yield "double a constant", ast.Constant(2 * value if value else 1.0)
            if value:
                yield "halve a constant", ast.Constant(value / 2)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARES:
            yield "edge of a comparison", ast.Compare(left, [COMPARES[type(op)]()], [right])
            if not isinstance(op, ast.Eq | ast.NotEq):
                yield "turn a comparison", ast.Compare(right, [op], [left])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARIES:
            yield "other arithmetic", ast.BinOp(left, BINARIES[type(op)](), right)
            yield "drop a term", left
            if isinstance(op, ast.Sub | ast.Div):
                yield "swap sides", ast.BinOp(right, op, left)
            elif isinstance(op, ast.Mult | ast.Add):
                yield "drop a term", right
        case ast.BinOp(left=left, op=ast.Pow()):
            yield "drop a power", left
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield "flip a sign", operand
        case ast.BoolOp(op=op, values=values):
            yield "and or", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "swap arms", ast.IfExp(test, orelse, body)
        case ast.Call():
            yield from call_changes(node)
        case ast.Attribute(value=value, attr=name) if name in ("upper", "lower"):
            yield "other bound", ast.Attribute(value, TWINS[name])
        case ast.Attribute(value=ast.Name("math" | "np") as home, attr="inf"):
            yield "flip a sign", ast.UnaryOp(ast.USub(), ast.Attribute(home, "inf"))
        case ast.Raise():
            yield "remove a check", "pass"
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in BINARIES:
            yield "other arithmetic", ast.AugAssign(target, BINARIES[type(op)](), value)
            yield "drop a term", "pass"


def call_changes(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    """Changes of a call: another function of the pair, arguments swapped, a clip or an absolute value removed, noise halved."""
    name = called(node)
    given = node.args
    if name in TWINS:
        func = ast.Name(TWINS[name]) if isinstance(node.func, ast.Name) else ast.Attribute(node.func.value, TWINS[name])
        yield "other of a pair", ast.Call(func, given, node.keywords)
    if name in ("max", "min", "maximum", "minimum") and len(given) == 2:
        yield "remove a clip", given[0]
        yield "remove a clip", given[1]
    elif name in ("clip", "abs", "floor", "ceil", "rint", "up", "down", "sqrt_up", "nextafter", "sqrt") and given:
        yield "remove a clip", given[0]
    elif len(given) == 2 and name not in COMMUTES and not any(isinstance(a, ast.Starred) for a in given):
        yield "swap arguments", ast.Call(node.func, [given[1], given[0]], node.keywords)
    if name in SAMPLERS and given:
        halved = ast.BinOp(given[0], ast.Div(), ast.Constant(2))
        yield "halve a noise", ast.Call(node.func, [halved, *given[1:]], node.keywords)


def called(node: ast.AST) -> str:
    """The last name of what is called."""
    func = node.func if isinstance(node, ast.Call) else node
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def sites(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """(function, node) of all code that runs: no docstrings, annotations, decorators, nor the words of an error."""
    if isinstance(node, ast.Raise):
        yield function, node
        return
    if isinstance(node, ast.Call) and called(node) in TOLD:
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
        inner: list[ast.AST] = list(node.body)
        if isinstance(node, ast.FunctionDef):
            inner = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d] + inner
    elif isinstance(node, ast.AnnAssign):
        inner = [node.value] if node.value else []
    else:
        inner = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.JoinedStr | ast.Import | ast.ImportFrom)]
    if isinstance(node, ast.expr | ast.AugAssign):
        yield function, node
    for child in inner:
        yield from sites(child, function)


def mutants(module: str, source: str) -> list[Mutant]:
    """All mutants of one module that still compile and say something else."""
    lines = source.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line.encode()))
    raw = source.encode()
    found: list[Mutant] = []
    seen: Counter[tuple[str, ...]] = Counter()
    for function, node in sites(ast.parse(source)):
        start = begins[node.lineno - 1] + node.col_offset
        end = begins[node.end_lineno - 1] + node.end_col_offset
        before = raw[start:end].decode()
        for operator, made in changes(node):
            after = made if isinstance(made, str) else ast.unparse(ast.fix_missing_locations(made))
            if ast.unparse(node) == after:
                continue
            text = lines[node.lineno - 1].strip()
            key = (function, text, before, after)
            found.append(Mutant(module, function, operator, node.lineno, text, " ".join(before.split()), after, seen[key], start, end))
            seen[key] += 1
    return [m for m in found if compiles(apply(m, source))]


def apply(mutant: Mutant, source: str) -> str:
    """The module with that one change; expressions are put in brackets, so that nothing else changes."""
    raw = source.encode()
    after = mutant.after if is_statement(mutant) else f"({mutant.after})"
    return (raw[: mutant.start] + after.encode() + raw[mutant.end :]).decode()


def is_statement(mutant: Mutant) -> bool:
    with contextlib.suppress(SyntaxError):
        return not isinstance(ast.parse(mutant.after).body[0], ast.Expr)
    return False


def compiles(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


# ------------------------------------------------------------------------------------------------ which tests


def covering(module: str) -> list[str]:
    """Test files of a module, fastest first, and its own doctests before them."""
    given = tomllib.loads(COVERS.read_text()) if COVERS.exists() else {}
    own = f"src/dither/{module}"
    if module in given:
        return [own, *(t for t in given[module]["tests"] if (ROOT / t).exists())]
    room, stem = module.split("/", maxsplit=1)[0], Path(module).stem
    order = ("unit", "property", "reference", "statistical")
    found = [path for kind in order for path in sorted((ROOT / "tests" / kind).rglob("test_*.py")) if imports(path, room, stem)]
    return [own, *(str(path.relative_to(ROOT)) for path in found)]


def imports(path: Path, room: str, stem: str) -> bool:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == f"dither.{room}" and any(a.name == stem for a in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == f"dither.{room}.{stem}":
            return True
        if isinstance(node, ast.Import) and any(a.name == f"dither.{room}.{stem}" for a in node.names):
            return True
    return False


def fingerprint(module: str, tests: list[str]) -> str:
    """Of the module and its tests as they are now."""
    digest = hashlib.sha256()
    for path in (f"src/dither/{module}", *tests):
        digest.update(path.encode() + b"\0" + (ROOT / path).read_bytes())
    return digest.hexdigest()[:20]


def definitions(source: str) -> dict[str, str]:
    """A hash of each function and class of a module."""
    return {
        node.name: hashlib.sha256((ast.get_source_segment(source, node) or "").encode()).hexdigest()[:20]
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


class Results:
    """What came out, on disk: kills by definition, survivors by module and tests."""

    def __init__(self, sources: dict[str, str], *, fresh: bool) -> None:
        self._parts = {module: definitions(source) for module, source in sources.items()}
        self._keys = {module: fingerprint(module, covering(module)) for module in sources}
        rows = [json.loads(line) for line in CACHE.read_text().splitlines()] if CACHE.exists() else []
        self._kept = {key: how for key, how in rows if not fresh or key.split(" ")[1] not in sources}

    def _key(self, mutant: Mutant, how: str) -> str:
        part = self._keys[mutant.module] if how == SURVIVED else self._parts[mutant.module].get(mutant.function.split(".")[0], "-")
        return f"{part} {mutant.name}"

    def get(self, mutant: Mutant) -> str:
        """killed, survived or untried."""
        return next((how for how in (KILLED, SURVIVED) if self._kept.get(self._key(mutant, how)) == how), "untried")

    def put(self, mutant: Mutant, how: str) -> None:
        """Write it down at once."""
        row = self._key(mutant, how), how
        self._kept[row[0]] = how
        CACHE.parent.mkdir(exist_ok=True)
        with CACHE.open("a") as book:  # lines only ever added: several runs may write side by side
            book.write(json.dumps(row, ensure_ascii=False) + "\n")


# ------------------------------------------------------------------------------------------------ running


class Tree:
    """A copy of the tree in which modules are broken, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            there = ROOT / name
            if there.is_dir():
                shutil.copytree(there, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            elif there.exists():
                shutil.copy(there, folder / name)

    def outcome(self, module: str, source: str, tests: list[str], timeout: float) -> str:
        """passed, failed or hung: the tests run in a fork of this process, which has the heavy packages loaded."""
        path = self.folder / "src" / "dither" / module
        whole = path.read_text()
        path.write_text(source)
        try:
            return self._wait(self.start(tests, "-x"), timeout)
        finally:
            path.write_text(whole)

    def start(self, tests: list[str], *flags: str, plugins: tuple[object, ...] = ()) -> int:
        """A fork that runs the tests named (files, or single tests in this order)."""
        child = os.fork()
        if child:
            return child
        try:
            os.setpgid(0, 0)
            if not os.environ.get("MUTANTS_SHOW"):
                sink = os.open(os.devnull, os.O_RDWR)
                os.dup2(sink, 1)
                os.dup2(sink, 2)
            os.chdir(self.folder)
            sys.path.insert(0, str(self.folder / "src"))
            os.environ["PYTHONPATH"] = str(self.folder / "src")
            pytest = importlib.import_module("pytest")
            quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-m", "not slow"]
            singles = [t for t in tests if "::" in t]
            files = dict.fromkeys(t.split("::")[0] for t in tests)
            kept = [Chosen(singles)] if singles else []
            os._exit(int(pytest.main([*quiet, *flags, *files], plugins=[*kept, *plugins])))
        except BaseException as error:  # noqa: BLE001 - this is a fork: nothing may return into the parent's code
            print(f"the tests did not run: {error!r}", file=sys.stderr, flush=True)
        os._exit(3)

    @staticmethod
    def _wait(child: int, timeout: float) -> str:
        ending = time.monotonic() + timeout
        while time.monotonic() < ending:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hung"


def preload() -> None:
    """Import what every test needs, so that a fork starts at once; the package itself is not among it."""
    for name in HEAVY:
        importlib.import_module(name)
    assert "dither" not in sys.modules
    sys.dont_write_bytecode = True


def run(chosen: list[Mutant], sources: dict[str, str], results: Results, options: argparse.Namespace) -> None:
    """Try every mutant that has no result yet, until time is up; results go to the cache as they come."""
    ending = time.monotonic() + 60 * options.minutes
    open_ones = [m for m in chosen if results.get(m) == "untried"]
    if not open_ones:
        return
    preload()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        trees = [Tree(Path(folder) / str(i)) for i in range(options.jobs)]
        known = json.loads(MAP.read_text()) if MAP.exists() else {"tests": [], "functions": {}}
        good = baseline({m.module for m in open_ones}, known, trees[0])
        tests = {where: ordered(*where, known, good) for where in {(m.module, m.function) for m in open_ones}}
        waiting: SimpleQueue[Mutant] = SimpleQueue()
        for mutant in open_ones:
            if tests[mutant.module, mutant.function]:
                waiting.put(mutant)
        lock = threading.Lock()

        def work(tree: Tree) -> None:
            while time.monotonic() < ending:
                try:
                    mutant = waiting.get_nowait()
                except Empty:
                    return
                broken = apply(mutant, sources[mutant.module])
                names = tests[mutant.module, mutant.function]
                limit = TIMEOUT_BASE + TIMEOUT_TIMES * sum(good[name] for name in names)
                how = tree.outcome(mutant.module, broken, names, limit)
                with lock:
                    results.put(mutant, SURVIVED if how == "passed" else KILLED)
                    print(f"\r{waiting.qsize()} to go  ", end="", file=sys.stderr, flush=True)

        for future in [pool.submit(work, tree) for tree in trees]:
            future.result()
        print(file=sys.stderr)


def baseline(modules: set[str], known: dict[str, Any], tree: Tree) -> dict[str, float]:
    """Seconds of each test that passes as things stand, of those that may be asked; one that fails would kill every mutant."""
    files = {file for module in modules for file in covering(module)}
    for module in modules:
        files |= {name.split("::")[0] for name in quickest(module, "", known, [], float("inf"))}
    found = tree.folder / "baseline.json"
    child = tree.start(sorted(file for file in files if (tree.folder / file).exists()), plugins=(Outcomes(found),))
    os.waitpid(child, 0)
    good: dict[str, float] = json.loads(found.read_text())["passed"]
    failed: list[str] = json.loads(found.read_text())["failed"]
    if failed:
        print(f"left out, for they fail without any mutant: {', '.join(failed)}", file=sys.stderr)
    return good


def ordered(module: str, function: str, known: dict[str, Any], good: dict[str, float]) -> list[str]:
    """The tests to try on a mutant: those that call the function, then the rest of the module's own files, the quickest first."""
    own = covering(module)
    first = [name for name in quickest(module, function, known, own, ELSEWHERE_SECONDS) if name in good]
    rest = sorted((seconds, name) for name, seconds in good.items() if name.split("::")[0] in own)
    return list(dict.fromkeys([*first, *(name for _, name in rest)]))


# ------------------------------------------------------------------------------------------------ telling


def allowed(mutant: Mutant, rules: list[dict[str, str]]) -> str:
    """The reason why this mutant weakens nothing, or ''. A rule names a module, and a function, a line, a change or several."""
    for rule in rules:
        if rule["module"] != mutant.module or not rule.get("reason"):
            continue
        if rule.get("function", mutant.function) != mutant.function or rule.get("text", mutant.text) not in mutant.text:
            continue
        if rule.get("before", mutant.before) == mutant.before and rule.get("after", mutant.after) == mutant.after:
            return rule["reason"]
    return ""


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--module", action="append", help="such as noise/vote.py; repeat for several")
    parser.add_argument("--kind", choices=["all", "weaken"], default="all", help="which changes")
    parser.add_argument("--function", help="only where the name of the function holds this")
    parser.add_argument("--sample", type=int, help="try only so many, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the whole table here")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so long; go on with the same command")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="forget earlier results of the chosen modules")
    parser.add_argument("--list", action="store_true", help="show the mutants, try none")
    return parser.parse_args(given)


def choose(options: argparse.Namespace) -> tuple[list[Mutant], dict[str, str]]:
    every = [str(p.relative_to(SOURCE)) for room in ROOMS for p in sorted((SOURCE / room).rglob("*.py")) if p.name != "__init__.py"]
    modules = options.module or every
    for unknown in set(modules) - set(every):
        raise SystemExit(f"Unknown module {unknown}: expected one of {', '.join(every)}")
    sources = {module: (SOURCE / module).read_text() for module in modules}
    found = [m for module in modules for m in mutants(module, sources[module])]
    found = [m for m in found if (options.function or "") in m.function and (options.kind == "all" or m.operator in WEAKEN)]
    if options.sample:
        found.sort(key=lambda m: hashlib.sha256(f"{options.seed} {m.name}".encode()).digest())
        found = sorted(found[: options.sample], key=lambda m: (m.module, m.start, m.after))
    return found, sources


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    chosen, sources = choose(options)
    if options.list:
        for m in chosen:
            print(f"{m.module}:{m.line} {m.function}: {m.before} → {m.after}   [{m.operator}]")
        return 0
    rules = tomllib.loads(EQUIVALENT.read_text()).get("mutant", []) if EQUIVALENT.exists() else []
    reasons = {m: allowed(m, rules) for m in chosen}
    kept = Results(sources, fresh=options.fresh)
    run([m for m in chosen if not reasons[m]], sources, kept, options)
    results = [(m, ALLOWED if reasons[m] else kept.get(m)) for m in chosen]
    told(results)
    if options.json:
        rows = [{**asdict(m), "result": result, "reason": reasons[m]} for m, result in results]
        options.json.write_text(json.dumps(rows, ensure_ascii=False, indent=1))
    return 0 if all(result in (KILLED, ALLOWED) for _, result in results) else 1


def told(results: list[tuple[Mutant, str]]) -> None:
    kinds = (KILLED, SURVIVED, ALLOWED, "untried")
    print(f"{'module':32}" + "".join(f"{k:>12}" for k in kinds))
    for module in dict.fromkeys(m.module for m, _ in results):
        counts = Counter(result for m, result in results if m.module == module)
        print(f"{module:32}" + "".join(f"{counts[k]:12}" for k in kinds))
    for m, result in results:
        if result == SURVIVED:
            print(f"survived  {m.module}:{m.line} in {m.function}: {m.before}  →  {m.after}   [{m.operator}]")


if __name__ == "__main__":
    sys.exit(main())
