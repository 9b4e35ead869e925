"""Every link of the documentation within the repository leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.links import anchors, links

ROOT = Path(__file__).parents[2]


def _pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


PAGES = _pages()


@pytest.mark.skipif(not PAGES, reason="not a checkout of git: which pages there are is not known")
def test_the_pages_are_found() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "docs/README.md", "docs/operation.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(ROOT) or not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            broken.append(f"{link}: no such heading")
    assert not broken


def test_every_document_is_in_the_list_of_documents() -> None:
    listed = {link.partition("#")[0] for link in links((ROOT / "docs/README.md").read_text())}
    there = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert there - listed == set()


def test_the_site_has_every_page_and_no_link_that_leads_nowhere(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        name = "index" if page.stem == "README" else page.stem
        assert (tmp_path / f"{name}.html").exists(), page
    # What lies outside of the folder is there, too.
    assert (tmp_path / "repository/tests/benchmarks/results/REPORT.html").exists()
    # It works without a network.
    scripts = re.compile(r"<(?:script|link)[^>]+(?:src|href)=\"https?:")
    assert not scripts.search((tmp_path / "index.html").read_text())


def test_links_in_code_are_not_followed_and_others_are() -> None:
    page = "[a](x.md) `[b](y.md)` [c](https://example.org) [d](<z w.md>)\n```\n[e](q.md)\n```\n"
    assert links(page + '[f](r.md#part "title")\n[g]: s.md\n') == ["x.md", "r.md#part", "s.md"]


def test_anchors_are_those_of_the_headings() -> None:
    page = (
        "# One `two`, [three](x.md)\n```\n# no heading\n```\n## A modem's lock\n## A modem's lock\n"
    )
    assert anchors(page) == {"one-two-three", "a-modems-lock", "a-modems-lock-1"}
    assert anchors('<a id="habits"></a>**Habits.**') == {"habits"}
