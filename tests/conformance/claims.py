"""What the pages on conformance claim, and the tests that the tree has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_RUST = re.compile(
    r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async\s+)?fn\s+([a-z0-9_]+)\("
)
_PYTHON = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
_NAMED = re.compile(r"`((?:[a-z0-9_]+::)+(?:[a-z0-9_]+|\*))`")
_FOLDERS = ("gateway", "convergence-layers", "tests")
VERDICTS = ("held", "in part", "no")


@dataclass(frozen=True)
class Claim:
    """A row of a table: what is asked, the verdict, and what is said of it."""

    asked: str
    verdict: str
    said: str

    @property
    def tests(self) -> list[str]:
        """The tests that it names, as `file::function`."""
        return named(self.said)

    @property
    def words(self) -> str:
        """What it says beside the names of tests."""
        return _NAMED.sub("", self.said).strip(" ,;.:()")


def named(text: str) -> list[str]:
    """Return the tests that a text names; `tests::` within a file counts as the file."""
    names = (each.replace("::tests::", "::") for each in _NAMED.findall(text))
    return list(names)


def claims(page: str) -> Iterator[Claim]:
    """Return the rows of all tables that have a column *held*."""
    columns: list[str] = []
    for line in page.splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not columns:
            columns = cells
        elif "held" in columns and not set(line) <= set("|- "):
            at = columns.index("held")
            yield Claim(cells[at - 1], cells[at], "|".join(cells[at + 1 :]))


def known_tests() -> dict[str, set[str]]:
    """Return the test functions of each file's name, without its ending.

    Those of a Rust module's `tests.rs` are the module's.
    """
    found: dict[str, set[str]] = {}
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            pattern = {".rs": _RUST, ".py": _PYTHON}.get(path.suffix)
            if pattern is None or "target" in path.parts:
                continue
            text = path.read_text(encoding="utf-8")
            functions = set(pattern.findall(text))
            if path.suffix == ".rs" and "proptest!" in text:
                functions |= set(re.findall(r"#\[test\]\s*fn\s+([a-z0-9_]+)\(", text))
            name = path.parent.name if path.name == "tests.rs" else path.stem
            found.setdefault(name, set()).update(functions)
    return found


def exists(name: str, known: dict[str, set[str]]) -> bool:
    """Whether a test is there; `file::*` is any of the file."""
    *folders, function = name.split("::")
    functions = known.get(folders[-1], set())
    return bool(functions) if function == "*" else function in functions
