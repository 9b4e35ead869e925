"""Users: signing in by name and password, and the pages of an administrator."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from tests.console.axe import needed, violations
from tests.console.pages import PATIENCE_MS, go, live
from tests.console.service import ControlService

pytestmark = pytest.mark.console

PASSWORD = "a long enough password"  # noqa: S105 - a test's
NEW_PASSWORD = "another long password"  # noqa: S105 - a test's
NASTY = "<img src=x onerror=alert(1)>"


def add_user(service: ControlService, name: str, role: str) -> None:
    """Make a user, or replace it."""
    body = {"role": role, "password": PASSWORD}
    service.call("PUT", f"/v1/users/{name}", body, token=service.token("administrator"))


def sign_in_as(page: Page, service: ControlService, name: str, password: str = PASSWORD) -> None:
    """Open the console and enter a name and a password."""
    page.goto(service.url)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_a_user_stays_signed_in_in_all_tabs_until_signing_out(
    service: ControlService, page: Page
) -> None:
    add_user(service, "vera", "viewer")
    sign_in_as(page, service, "vera", "a wrong password")
    expect(page.get_by_role("alert")).to_contain_text("no user of that name", timeout=PATIENCE_MS)
    expect(page.get_by_label("Password")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Token")).to_have_attribute("aria-invalid", "false")
    sign_in_as(page, service, "vera")
    live(page)
    (cookie,) = page.context.cookies(service.url + "v1/session")
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/v1")
    assert page.evaluate("document.cookie") == ""
    page.reload()
    live(page)
    other = page.context.new_page()
    other.goto(service.url)
    live(other)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible(timeout=PATIENCE_MS)
    expect(other.get_by_role("alert")).to_contain_text("sign in again", timeout=PATIENCE_MS)
    page.reload()
    expect(page.get_by_label("Password")).to_be_visible(timeout=PATIENCE_MS)


def test_a_user_who_is_removed_sees_nothing_any_more(service: ControlService, page: Page) -> None:
    add_user(service, "otto", "operator")
    sign_in_as(page, service, "otto")
    live(page)
    expect(page.get_by_role("link", name="Access")).to_have_count(0)
    service.cli("user", "remove", "otto")
    expect(page.get_by_role("alert")).to_contain_text("sign in again", timeout=PATIENCE_MS)


def test_a_user_changes_the_own_password_and_stays_signed_in_here(
    service: ControlService, browser: Browser, page: Page
) -> None:
    needed()
    add_user(service, "paul", "operator")
    sign_in_as(page, service, "paul")
    live(page)
    elsewhere = browser.new_context().new_page()
    sign_in_as(elsewhere, service, "paul")
    live(elsewhere)
    tab = page.context.new_page()
    tab.goto(service.url)
    live(tab)

    page.get_by_role("link", name="Account of paul").click()
    form = page.get_by_role("form", name="Change your password")
    present, new, again = (
        form.get_by_label(label, exact=True)
        for label in ("Present password", "New password", "New password again")
    )
    change = form.get_by_role("button", name="Change")
    flaw = form.get_by_role("alert")
    present.fill("not the present one")
    new.fill(NEW_PASSWORD)
    again.fill(NEW_PASSWORD + "x")
    change.click()
    expect(flaw).to_contain_text("not the same twice")
    again.fill(NEW_PASSWORD)
    change.click()
    expect(flaw).to_contain_text("the present password is another", timeout=PATIENCE_MS)
    # On a phone, too.
    page.set_viewport_size({"width": 320, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not violations(page)
    present.fill(PASSWORD)
    present.press("Enter")
    expect(form.get_by_role("status")).to_contain_text("is changed", timeout=PATIENCE_MS)
    expect(present).to_have_value("")
    assert not violations(page)

    expect(elsewhere.get_by_role("alert")).to_contain_text("sign in again", timeout=PATIENCE_MS)
    elsewhere.context.close()
    # The browser's other tabs have the new session, too: requests that change something succeed.
    for number, one in enumerate((tab, page)):
        live(one)
        go(one, "settings/beams")
        form = one.get_by_role("form", name="Make a beam")
        made = {"Id": f"paul-{number}", "Name": "Paul's", "Forward": "2", "Return": "1"}
        for label, value in made.items():
            form.get_by_label(label).fill(value)
        form.get_by_role("button", name="Make").click()
        expect(one.get_by_text(f"paul-{number} is made.")).to_be_visible(timeout=PATIENCE_MS)
    page.reload()
    live(page)
    tab.get_by_role("button", name="Sign out").click()
    expect(tab.get_by_label("Password")).to_be_visible(timeout=PATIENCE_MS)
    sign_in_as(tab, service, "paul")
    expect(tab.get_by_role("alert")).to_contain_text("no user of that name", timeout=PATIENCE_MS)
    sign_in_as(tab, service, "paul", NEW_PASSWORD)
    live(tab)


def test_a_user_signs_out_everywhere(service: ControlService, browser: Browser, page: Page) -> None:
    add_user(service, "olga", "viewer")
    elsewhere = browser.new_context().new_page()
    for one in (page, elsewhere):
        sign_in_as(one, service, "olga")
        live(one)
    go(page, "account")
    page.get_by_role("button", name="Sign out everywhere").click()
    for one in (page, elsewhere):
        why = one.locator("#sign-in").get_by_role("alert")
        expect(why).to_contain_text("sign in again", timeout=PATIENCE_MS)
    # An administrator can also sign a user out.
    add_user(service, "ada", "administrator")
    sign_in_as(elsewhere, service, "olga")
    live(elsewhere)
    sign_in_as(page, service, "ada")
    live(page)
    go(page, "access/users")
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="End all sessions of olga").click(timeout=PATIENCE_MS)
    why = elsewhere.locator("#sign-in").get_by_role("alert")
    expect(why).to_contain_text("sign in again", timeout=PATIENCE_MS)
    elsewhere.context.close()


def test_another_user_of_the_browser_sees_nothing_of_the_one_before(
    service: ControlService, page: Page
) -> None:
    add_user(service, "anna", "operator")
    add_user(service, "vito", "viewer")
    sign_in_as(page, service, "anna")
    live(page)
    # As another tab would: the whole browser shares the cookie.
    other = page.context.new_page()
    sign = "fetch('v1/session', {method: 'POST', headers: {'Content-Type': 'application/json'}, "
    sign += f"body: JSON.stringify({{name: 'vito', password: '{PASSWORD}'}})}})"
    other.goto(service.url)
    other.evaluate(sign)
    expect(page.get_by_role("link", name="Account of vito")).to_be_visible(timeout=PATIENCE_MS)
    live(page)


def test_an_administrator_has_users_and_tokens_and_sees_who_changed_what(
    service: ControlService, page: Page
) -> None:
    add_user(service, "ada", "administrator")
    sign_in_as(page, service, "ada")
    live(page)
    page.get_by_role("link", name="Access").click()
    form = page.get_by_role("form", name="Set a user")
    form.get_by_label("Name").fill("bob")
    form.get_by_label("Password").fill("short")
    form.get_by_role("button", name="Set").click()
    # The browser says what is wrong; nothing is sent.
    expect(page.get_by_role("row", name="bob")).to_have_count(0)
    form.get_by_label("Password").fill(PASSWORD)
    form.get_by_role("button", name="Set").click()
    expect(page.get_by_role("row", name="bob")).to_contain_text("viewer", timeout=PATIENCE_MS)
    # The form shows an existing user's data, so that a new password changes nothing else.
    form.get_by_label("Name").fill("ada")
    expect(form.get_by_label("Role")).to_have_value("administrator")
    # Her data does not stay in the form for the next user.
    form.get_by_label("Name").fill("adam")
    expect(form.get_by_label("Role")).to_have_value("viewer")
    # Another administrator makes a user who is not in this list yet.
    add_user(service, "carol", "operator")
    form.get_by_label("Name").fill("carol")
    form.get_by_label("Password").fill(NEW_PASSWORD)
    form.get_by_role("button", name="Set").click()
    expect(page.get_by_role("alert")).to_contain_text("user carol already", timeout=PATIENCE_MS)
    expect(page.get_by_role("row", name="carol")).to_contain_text("operator", timeout=PATIENCE_MS)
    form.get_by_label("Name").fill("Not A Name")
    form.get_by_role("button", name="Set").click()
    expect(page.get_by_role("alert")).to_contain_text("a user's name", timeout=PATIENCE_MS)
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Remove bob").click()
    expect(page.get_by_role("row", name="bob")).to_have_count(0, timeout=PATIENCE_MS)

    page.get_by_role("link", name="Tokens").click()
    form = page.get_by_role("form", name="Make a token")
    form.get_by_label("For", exact=True).fill(NASTY)
    form.get_by_role("button", name="Make").click()
    made = page.locator("p[role=status] code")
    expect(made).to_contain_text("upc_", timeout=PATIENCE_MS)
    token = made.inner_text()
    # A refused request does not take the token off the screen.
    form.get_by_label("For", exact=True).fill("bus 11")
    form.get_by_label("Role").select_option("terminal")
    form.get_by_role("button", name="Make").click()
    expect(page.get_by_role("alert")).to_contain_text("needs its node", timeout=PATIENCE_MS)
    expect(made).to_have_text(token)
    assert service.request("GET", "/v1/beams", None, {"Authorization": f"Bearer {token}"})[0] == 200
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name=f"Revoke {NASTY}").click()
    expect(page.get_by_role("row", name=NASTY)).to_contain_text("revoked", timeout=PATIENCE_MS)
    assert service.request("GET", "/v1/beams", None, {"Authorization": f"Bearer {token}"})[0] == 401

    page.get_by_role("link", name="Changes").click()
    for done in ("set /v1/users/bob", "delete /v1/users/bob", "revoke /v1/tokens/"):
        row = page.get_by_role("row").filter(has_text=done).first
        expect(row).to_contain_text("ada (user)", timeout=PATIENCE_MS)
    # Text that is typed but not sent yet stays while the list is read again.
    field = page.get_by_label("Of what begins with")
    field.press_sequentially("/v1/users/bob")
    add_user(service, "dora", "viewer")
    row = page.get_by_role("row").filter(has_text="/v1/users/dora")
    expect(row.first).to_be_visible(timeout=PATIENCE_MS)
    expect(field).to_have_value("/v1/users/bob")
    field.press("Enter")
    expect(row).to_have_count(0, timeout=PATIENCE_MS)
    expect(page.get_by_role("row").filter(has_text="/v1/users/bob").first).to_be_visible()
    assert token not in page.content()
    assert page.locator("img").count() == 0


def test_a_user_whom_somebody_else_has_changed_is_shown_anew_before_being_set(
    service: ControlService, page: Page
) -> None:
    for name, role in (("ada", "administrator"), ("erik", "viewer"), ("fred", "viewer")):
        add_user(service, name, role)
    sign_in_as(page, service, "ada")
    live(page)
    go(page, "access/users")
    expect(page.get_by_role("row", name="erik")).to_be_visible(timeout=PATIENCE_MS)
    form = page.get_by_role("form", name="Set a user")
    form.get_by_label("Name").fill("erik")
    expect(form.get_by_label("Role")).to_have_value("viewer")
    # Somebody else makes him an operator, and this page then reads the list again.
    add_user(service, "erik", "operator")
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Remove fred").click()
    expect(page.get_by_role("row", name="erik")).to_contain_text("operator", timeout=PATIENCE_MS)
    form.get_by_label("Password").fill(NEW_PASSWORD)
    form.get_by_role("button", name="Set").click()
    flaw = page.get_by_role("alert")
    expect(flaw).to_contain_text("somebody else was first", timeout=PATIENCE_MS)
    # Now the page shows his role, and may change it.
    expect(form.get_by_label("Role")).to_have_value("operator", timeout=PATIENCE_MS)
    form.get_by_role("button", name="Set").click()
    expect(form.get_by_label("Name")).to_have_value("", timeout=PATIENCE_MS)
    expect(page.get_by_role("row", name="erik")).to_contain_text("operator")


def test_what_is_typed_while_a_form_is_sent_stays(service: ControlService, page: Page) -> None:
    add_user(service, "ada", "administrator")
    sign_in_as(page, service, "ada")
    live(page)
    go(page, "access/users")
    expect(page.get_by_role("row", name="ada")).to_be_visible(timeout=PATIENCE_MS)
    # As it is over a satellite hop.
    page.evaluate(
        "const sent = window.fetch; window.fetch = (...asked) =>"
        " new Promise((done) => setTimeout(done, 1000)).then(() => sent(...asked));"
    )
    form = page.get_by_role("form", name="Set a user")
    form.get_by_label("Name").fill("gina")
    form.get_by_label("Password").fill(PASSWORD)
    form.get_by_role("button", name="Set").click()
    form.get_by_label("Name").fill("hugo")
    expect(page.get_by_role("row", name="gina")).to_be_visible(timeout=PATIENCE_MS)
    expect(form.get_by_role("button", name="Set")).to_have_attribute("aria-disabled", "false")
    expect(form.get_by_label("Name")).to_have_value("hugo")


def test_a_tenants_user_stays_its_own_while_the_tenants_cannot_be_read(
    service: ControlService, page: Page
) -> None:
    admin = service.token("administrator")
    service.call("PUT", "/v1/tenants/east", {"name": "East"}, token=admin)
    user = {"role": "viewer", "tenant": "east", "password": PASSWORD}
    service.call("PUT", "/v1/users/edna", user, token=admin)
    add_user(service, "ada", "administrator")
    sign_in_as(page, service, "ada")
    live(page)
    page.route("**/v1/tenants?*", lambda route: route.abort())
    go(page, "access/users")
    expect(page.get_by_role("row", name="edna")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("alert")).to_contain_text("not reached", timeout=PATIENCE_MS)
    form = page.get_by_role("form", name="Set a user")
    expect(form.get_by_label("Name")).to_be_disabled()
    page.unroute("**/v1/tenants?*")
    expect(form.get_by_label("Name")).to_be_enabled(timeout=PATIENCE_MS)
    form.get_by_label("Name").fill("edna")
    expect(form.get_by_label("Tenant")).to_have_value("east")


def test_a_tenants_user_sees_its_own_vehicles_only(service: ControlService, page: Page) -> None:
    admin = service.token("administrator")
    beam = {"name": "Shared", "forward_capacity_bps": 10**6, "return_capacity_bps": 10**6}
    service.call("PUT", "/v1/beams/shared", beam)
    for number, tenant in ((901, "north"), (902, "south")):
        service.call("PUT", f"/v1/tenants/{tenant}", {"name": tenant}, token=admin)
        vehicle = {"beam": "shared", "name": f"coach of the {tenant}", "tenant": tenant}
        service.call("PUT", f"/v1/terminals/{number}", vehicle)
    user = {"role": "viewer", "tenant": "north", "password": PASSWORD}
    service.call("PUT", "/v1/users/nora", user, token=admin)
    sign_in_as(page, service, "nora")
    live(page)
    expect(page.get_by_text("coach of the north").first).to_be_visible(timeout=PATIENCE_MS)
    assert "coach of the south" not in page.content()
    service.call("PUT", "/v1/terminals/902", {**vehicle, "name": "another name"})
    service.call("PUT", "/v1/terminals/901", {**vehicle, "name": "renamed", "tenant": "north"})
    expect(page.get_by_text("renamed").first).to_be_visible(timeout=PATIENCE_MS)
    assert "another name" not in page.content()
    # Its pages have what it may see, and ask for nothing else.
    refused: list[str] = []

    def answered(response: Response) -> None:
        if response.status == 403:
            refused.append(response.url)

    page.on("response", answered)
    with page.expect_response(lambda one: one.url.endswith("/v1/beams/shared/shares")) as shares:
        go(page, "beams/shared")
    assert shares.value.status == 200
    told = page.get_by_role("region", name="Shares: what the plan gives now")
    plan = told.get_by_text("There is no plan yet").or_(told.get_by_text("All others"))
    expect(plan).to_be_visible(timeout=PATIENCE_MS)
    for name in ("Debts", "Fairness", "What if?"):
        expect(page.get_by_role("heading", name=name)).to_have_count(0)
    expect(page.get_by_role("heading", name="Its terminals")).to_be_visible()
    assert refused == []


def test_a_tenants_operator_announces_blockages_of_its_vehicles(
    service: ControlService, page: Page
) -> None:
    admin = service.token("administrator")
    beam = {"name": "Shared", "forward_capacity_bps": 10**6, "return_capacity_bps": 10**6}
    service.call("PUT", "/v1/beams/shared", beam)
    service.call("PUT", "/v1/tenants/north", {"name": "north"}, token=admin)
    vehicle = {"beam": "shared", "name": "coach of the north", "tenant": "north"}
    service.call("PUT", "/v1/terminals/901", vehicle)
    user = {"role": "operator", "tenant": "north", "password": PASSWORD}
    service.call("PUT", "/v1/users/olga", user, token=admin)
    sign_in_as(page, service, "olga")
    live(page)
    go(page, "terminals/901")
    blockages = page.get_by_role("region", name="Blockages", exact=True)
    blockages.get_by_role("button", name="Announce").click(timeout=PATIENCE_MS)
    expect(blockages.get_by_text("Announced: it is planned for")).to_be_visible(timeout=PATIENCE_MS)
    # Withdrawing is an intervention, which is for operators of the whole.
    expect(blockages.get_by_role("button", name="Withdraw")).to_have_count(0)
