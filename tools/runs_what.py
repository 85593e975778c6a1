"""Which tests run which functions of the package: one run of the whole suite, with every call noted.

    python tools/runs_what.py        makes .mutants/runs-what.json (a few minutes); tools/mutants.py reads it

The mutation run asks it which tests could notice a change of a function, the quickest first. It is a matter of time only: a
mutant that those tests let live is tried on all tests of its module before it counts as a survivor.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / ".mutants" / "runs-what.json"
SOURCE = str(ROOT / "src" / "dither") + os.sep
TESTS = ("src/dither/noise", "src/dither/accounting", "tests/unit", "tests/property", "tests/reference", "tests/statistical")


def plain(qualified: str) -> str:
    """The name of the innermost named function, as it stands in the source: no <locals>, no <genexpr>."""
    return ".".join(part for part in qualified.split(".") if not part.startswith("<"))


class Notes:
    """A plugin that writes down, for each test, its seconds and the functions that it called."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()
        self.tests: list[tuple[str, float]] = []
        self.functions: dict[str, list[int]] = {}

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        del event, argument
        code = frame.f_code
        if code.co_filename.startswith(SOURCE):
            self.seen.add((code.co_filename, code.co_qualname))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.seen = set()
        began = time.perf_counter()
        threading.settrace(self.note)
        sys.settrace(self.note)
        yield
        lost = sys.gettrace() != self.note  # a test that traces for itself: it may have called anything in the modules it was seen in
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # None is how tracing ends
        self.tests.append((item.nodeid, round(time.perf_counter() - began, 3)))
        modules = {file[len(SOURCE) :] for file, _ in self.seen}
        names = {f"{file[len(SOURCE) :]} {plain(name)}" for file, name in self.seen} | ({f"{m} *" for m in modules} if lost else set())
        for name in names:
            self.functions.setdefault(name, []).append(len(self.tests) - 1)


def main() -> int:
    notes = Notes()
    os.chdir(ROOT)
    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", *TESTS], plugins=[notes])
    MAP.parent.mkdir(exist_ok=True)
    MAP.write_text(json.dumps({"tests": notes.tests, "functions": notes.functions}))
    print(f"{len(notes.tests)} tests, {len(notes.functions)} functions → {MAP.relative_to(ROOT)}")
    return 0


class Chosen:
    """A plugin that keeps the tests it was given, in their order."""

    def __init__(self, names: list[str]) -> None:
        self.order = {name: i for i, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])


class Outcomes:
    """A plugin that writes which tests passed, in how many seconds, and which did not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passed: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        if report.when == "call" and report.passed:
            self.passed[report.nodeid] = round(report.duration, 3)

    def pytest_sessionfinish(self) -> None:
        good = {name: seconds for name, seconds in self.passed.items() if name not in self.failed}
        self.path.write_text(json.dumps({"passed": good, "failed": sorted(self.failed)}))


def quickest(module: str, function: str, found: dict[str, Any], own: list[str], seconds: float) -> list[str]:
    """Tests that call the function (else any of the module): the module's own files first, the quickest of each first."""
    names = {f"{module} {function}", f"{module} *"}
    numbers = {
        n for key, tests in found["functions"].items() if (key in names if function else key.startswith(f"{module} ")) for n in tests
    }
    rows = sorted((found["tests"][n][0].split("::")[0] not in own, found["tests"][n][1], found["tests"][n][0]) for n in numbers)
    chosen, spent = [], 0.0
    for _, each, name in rows:
        if spent + each > seconds:
            break
        chosen.append(name)
        spent += each
    return chosen


if __name__ == "__main__":
    sys.exit(main())
