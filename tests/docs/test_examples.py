"""Rust's documentation has no example: `make test` would not run it."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^\s*//[/!]\s*```(.*)$", re.MULTILINE)


def _examples(text: str) -> list[str]:
    """Return the kinds of the blocks that rustdoc would compile: of two fences the first has it."""
    kinds = _FENCE.findall(text)[::2]
    return [kind for kind in kinds if kind.strip() != "text"]


def test_what_rustdoc_would_compile_is_found() -> None:
    text = "/// ```text\n/// a\n/// ```\n//! ```\n//! b();\n//! ```\n"
    assert _examples(text) == [""]


def test_no_documentation_of_rust_has_an_example_that_is_not_run() -> None:
    for folder in ("gateway", "convergence-layers", "tests"):
        for path in (_ROOT / folder).rglob("*.rs"):
            if "target" not in path.parts:
                assert not _examples(path.read_text(encoding="utf-8")), path
