"""Accessibility checks of a page, by axe and by the page's width."""

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
    """Return what axe finds wrong with the page in its present state."""
    page.evaluate(_AXE.read_text())
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in result["violations"]
    ]


def no_violations(page: Page, sizes: Iterable[tuple[int, int] | None] = (None,)) -> None:
    """Assert that axe finds nothing, in light and dark.

    With window sizes, check in each of them, and also that nothing is wider than the window.
    """
    for size in sizes:
        if size is not None:
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), size
        for theme in ("Dark", "Light"):
            found = violations(page)
            assert not found, found
            page.get_by_role("button", name=theme, exact=True).click()
