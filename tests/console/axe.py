"""Whether everybody can use what a page shows, as far as axe can tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

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
