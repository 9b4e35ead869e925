"""Sign-in through an identity provider, in a browser, with npm's `oidc-provider`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.axe import needed, violations
from tests.console.pages import PATIENCE_MS, live
from tests.console.service import ControlService
from tests.control_api.oidc.real_provider import CLIENT_ID, SECRET, RealProvider

pytestmark = pytest.mark.console

_FILE = """
issuer = "{issuer}"
client_id = "{client}"
client_secret_file = "secret"
label = "Northern <b>Coaches</b>"
[[grants]]
claim = "groups"
value = "noc"
role = "operator"
"""


@pytest.fixture(scope="module")
def provider(
    service: ControlService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealProvider]:
    """The provider, and the service set to use it."""
    folder = tmp_path_factory.mktemp("provider")
    running = RealProvider(folder, service.url)
    running.set_accounts({"ada": {"preferred_username": "ada", "groups": ["noc"]}})
    (folder / "secret").write_text(SECRET)
    file = folder / "oidc.toml"
    file.write_text(_FILE.format(issuer=running.issuer, client=CLIENT_ID))
    service.restart(UNDERPASS_OIDC=str(file), UNDERPASS_PUBLIC_URL=service.url)
    yield running
    running.close()


@pytest.fixture
def freely(browser: Browser) -> Iterator[Page]:
    """A page that may go to the provider's page, whose own security policy is not checked."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def sign_in_there(page: Page, name: str) -> None:
    """Sign in at the provider's page."""
    page.get_by_placeholder("Enter any login").fill(name)
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()


def test_a_user_signs_in_by_the_provider_and_out_of_both(
    service: ControlService, provider: RealProvider, freely: Page
) -> None:
    needed()
    page = freely
    page.goto(service.url + "#/settings/maps")
    button = page.get_by_role("link", name="Sign in with Northern <b>Coaches</b>")
    expect(button).to_be_visible(timeout=PATIENCE_MS)
    assert not violations(page)
    button.click()
    sign_in_there(page, "ada")
    live(page)
    # The page that the user wanted before signing in.
    expect(page.get_by_role("heading", name="Maps")).to_be_visible(timeout=PATIENCE_MS)
    assert page.evaluate("document.cookie") == ""
    page.reload()
    live(page)
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{provider.issuer}/session/end**", timeout=PATIENCE_MS)
    page.get_by_role("button", name="Yes, sign me out").click()
    expect(button).to_be_visible(timeout=PATIENCE_MS)
    # The provider asks again.
    button.click()
    expect(page.get_by_placeholder("Enter any login")).to_be_visible(timeout=PATIENCE_MS)


def test_who_is_granted_nothing_is_told_so_and_comes_back_to_the_console(
    service: ControlService, provider: RealProvider, freely: Page
) -> None:
    needed()
    provider.set_accounts({"eve": {"preferred_username": "eve"}})
    page = freely
    page.goto(service.url)
    page.get_by_role("link", name="Sign in with").click()
    sign_in_there(page, "eve")
    expect(page.get_by_text("eve is granted nothing here")).to_be_visible(timeout=PATIENCE_MS)
    assert not violations(page)
    page.get_by_role("link", name="To the console").click()
    expect(page.get_by_role("link", name="Sign in with")).to_be_visible(timeout=PATIENCE_MS)


def test_the_page_still_takes_two_requests(
    service: ControlService, provider: RealProvider, freely: Page
) -> None:
    del provider
    asked: list[str] = []
    freely.on("request", lambda request: asked.append(request.url))
    freely.goto(service.url)
    expect(freely.get_by_role("link", name="Sign in with")).to_be_visible(timeout=PATIENCE_MS)
    assert len([url for url in asked if url.startswith("http")]) == 2, asked
