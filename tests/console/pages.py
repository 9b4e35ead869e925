"""How a user moves through the console."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.console.service import ControlService

# How long to wait for a page on a busy machine.
PATIENCE_MS = 60_000


def sign_in(
    page: Page, service: ControlService, token: str | None = None, url: str = "", at: str = ""
) -> None:
    """Open the console, enter a token, the operator's if none is given, and go to a page."""
    page.goto(url or service.url)
    page.get_by_label("Token").fill(token or service.operator)
    page.get_by_role("button", name="Sign in").click()
    live(page)
    if at:
        go(page, at)


def live(page: Page) -> None:
    """Wait until the page is live."""
    expect(page.locator(".connection .badge")).to_have_text("live", timeout=PATIENCE_MS)


def go(page: Page, where: str) -> None:
    """Go to a page by its address."""
    page.evaluate(f"location.hash = '#/{where}'")
