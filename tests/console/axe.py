"""Whether everybody can use what a page shows, as far as axe and the page's width can tell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from playwright.sync_api import Page

DESK_AND_PHONE = ((1280, 800), (375, 700))
_AXE = Path(__file__).parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"


def needed() -> None:
    """Skip the test where axe is not installed."""
    if not _AXE.exists():
        pytest.skip("axe-core is not there: make console")


def violations(page: Page) -> list[str]:
    """Return what axe finds wrong with the page as it is now."""
    page.evaluate(_AXE.read_text())
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in result["violations"]
    ]


def no_violations(page: Page, sizes: Iterable[tuple[int, int] | None] = (None,)) -> None:
    """Make sure that axe finds nothing, light and dark.

    With sizes of windows, in each of them; and that nothing is wider than it.
    """
    for size in sizes:
        if size is not None:
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), size
        for theme in ("Dark", "Light"):
            found = violations(page)
            assert not found, found
            page.get_by_role("button", name=theme, exact=True).click()
