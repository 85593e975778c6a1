"""Every code block of the README and the guides runs, top to bottom, one namespace a page; every link leads somewhere."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in PAGES if BLOCK.search(p.read_text())], ids=name)
def test_the_code_of_the_page_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "__page__"}
    text = path.read_text()
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 1
        code = compile("\n" * line + block.group(1), name(path), "exec")
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code, space)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_the_links_of_the_page_lead_somewhere(path):
    targets = [m.group(1) for m in LINK.finditer(path.read_text()) if "://" not in m.group(1) and not m.group(1).startswith("mailto:")]
    assert [t for t in targets if not (path.parent / t).exists()] == []


def test_every_page_can_be_reached_from_the_index():
    index = (ROOT / "docs/index.md").read_text()
    pages = [p.relative_to(ROOT / "docs") for p in PAGES if p.name not in {"README.md", "index.md"}]
    assert [str(p) for p in pages if f"({p})" not in index] == []
