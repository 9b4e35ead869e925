"""Who may see the console, and where the token is stored."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.console.pages import PATIENCE_MS, live, sign_in
from tests.console.service import ControlService

pytestmark = pytest.mark.console


def test_without_a_good_token_nothing_is_shown_but_why(service: ControlService, page: Page) -> None:
    page.goto(service.url)
    field, button = page.get_by_label("Token"), page.get_by_role("button", name="Sign in")
    alert = page.get_by_role("alert")
    button.click()
    expect(alert).to_contain_text("Enter a name and a password, or a token")
    field.fill("not a token")
    button.click()
    expect(alert).to_contain_text("without spaces")
    field.fill("upc_unknown")
    button.click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    assert page.evaluate("Object.keys(sessionStorage).length + document.cookie.length") == 0


def test_who_asks_is_not_asked_again_with_a_token_that_was_refused(
    service: ControlService, page: Page
) -> None:
    asked: list[Route] = []
    page.route("**/v1/session", lambda route: asked.append(route))
    page.goto(service.url)
    page.get_by_label("Token").fill("upc_unknown")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    # The answer comes after the stream of events has already ended the console.
    asked.pop().continue_()
    page.wait_for_timeout(6_000)
    assert not asked


def test_a_viewer_sees_it_and_a_terminal_is_told_that_it_may_not(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service, service.viewer)
    page.get_by_role("button", name="Sign out").click()
    service.call("PUT", "/v1/beams/other", {"name": "Other", **_CAPACITIES})
    service.call("PUT", "/v1/terminals/77", {"beam": "other", "name": "Own"})
    page.get_by_label("Token").fill(service.token("terminal", node=77))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("viewer or an operator", timeout=PATIENCE_MS)


def test_a_browser_that_keeps_nothing_shows_it_all_the_same(
    service: ControlService, page: Page
) -> None:
    page.add_init_script(_NO_STORAGE)
    sign_in(page, service, service.viewer)
    html = page.locator("html")
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(html).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Light", exact=True).click()
    expect(html).to_have_attribute("data-theme", "light")


_NO_STORAGE = """
for (const name of ["localStorage", "sessionStorage"]) {
  const get = () => { throw new DOMException("off", "SecurityError"); };
  Object.defineProperty(globalThis, name, { get });
}
"""
_CAPACITIES = {"forward_capacity_bps": 1_000_000, "return_capacity_bps": 1_000_000}


def test_the_token_lives_in_its_tab_and_ends_with_signing_out(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service)
    page.reload()
    live(page)
    other = page.context.new_page()
    other.goto(service.url)
    expect(other.get_by_label("Token")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("JSON.stringify([sessionStorage, localStorage])").count("upc_") == 0


def test_a_link_with_the_token_signs_in_and_leaves_it_nowhere_in_the_address(
    service: ControlService, page: Page
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{service.url}#token={service.viewer}")
    live(page)
    assert "token" not in page.url
    page.get_by_role("link", name="Events").click()
    page.go_back()
    assert service.viewer not in page.url
    assert not [url for url in asked if service.viewer in url]


def test_a_token_that_is_revoked_ends_the_console_and_says_so(
    service: ControlService, page: Page
) -> None:
    token = service.token("viewer")
    sign_in(page, service, token)
    found = re.findall(r'"id":\s*(\d+)', service.cli("token", "list", "--json"))
    service.cli("token", "revoke", found[-1])
    expect(page.get_by_role("alert")).to_contain_text("revoked", timeout=PATIENCE_MS)
    assert page.evaluate("sessionStorage.length") == 0


def test_no_other_site_can_frame_it_and_nothing_comes_from_elsewhere(
    service: ControlService, browser: Browser
) -> None:
    _, headers, _ = service.request("GET", "/")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert re.search("script-src 'self'( 'sha256-[A-Za-z0-9+/]{43}=')*;", policy)
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{service.url}#token={service.viewer}")
    expect(page.locator(".maplibregl-canvas")).to_be_visible(timeout=PATIENCE_MS)
    context.close()
    local = (service.url, "data:", f"blob:{service.url}")
    assert not [url for url in asked if not url.startswith(local)]
