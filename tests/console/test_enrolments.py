"""Enrolments and tenants: authorised users set them, and others are told that they may not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.axe import DESK_AND_PHONE, needed, no_violations
from tests.console.pages import PATIENCE_MS, go, sign_in
from tests.console.service import ControlService
from tests.testbed import programs

pytestmark = pytest.mark.console

NASTY = "<img src=x onerror=alert(1)>"
TEMPLATE = """\
[node]
number = ${node}
role = "terminal"
[tls]
pki_dir = "/var/lib/underpass/pki"
[[proxy]]
listen = "[::]:${port}"
"""


def test_who_may_not_enrol_is_told_who_may(service: ControlService, page: Page) -> None:
    needed()
    sign_in(page, service, service.viewer)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    go(page, "settings/enrolments")
    told = page.get_by_text("Nodes are enrolled by operators of the whole.")
    expect(told).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("form")).to_have_count(0)
    go(page, "access/tenants")
    told = page.get_by_text("are for administrators.")
    expect(told).to_be_visible(timeout=PATIENCE_MS)
    no_violations(page, DESK_AND_PHONE)
    # The page does not send a request that would be refused.
    assert not [url for url in asked if "/v1/enrolments" in url or "/v1/tenants" in url]


def test_a_service_without_an_authority_says_so(service: ControlService, page: Page) -> None:
    needed()
    sign_in(page, service, at="settings/enrolments")
    form = page.get_by_role("form", name="Let a node be enrolled")
    form.get_by_label("Node", exact=True).fill("4001")
    configuration = form.get_by_label("Configuration, TOML")
    configuration.fill("costs = 5 $")
    form.get_by_role("button", name="Make a token").click()
    expect(configuration).to_have_attribute("aria-invalid", "true", timeout=PATIENCE_MS)
    expect(form).to_contain_text("$$ stands for a $")
    # The typed text is still there.
    expect(form.get_by_label("Node", exact=True)).to_have_value("4001")
    no_violations(page, DESK_AND_PHONE)
    configuration.fill(TEMPLATE)
    form.get_by_label("${port}").fill("1080")
    form.get_by_role("button", name="Make a token").click()
    expect(page.get_by_role("alert").first).to_contain_text("no authority", timeout=PATIENCE_MS)
    expect(configuration).to_have_value(TEMPLATE)
    expect(page.get_by_text("There are none.")).to_be_visible()
    # Nor does it revoke certificates of a node that has no page, such as a gateway.
    lost = page.get_by_role("region", name="Lost equipment")
    lost.get_by_label("Lost node").fill("1")
    page.once("dialog", lambda asked: asked.accept())
    lost.get_by_role("button", name="Revoke its certificates").click()
    expect(lost.get_by_role("alert")).to_contain_text("no authority", timeout=PATIENCE_MS)
    expect(lost.get_by_label("Lost node")).to_have_value("1")


def test_a_token_is_shown_once_with_its_command_and_withdrawn(
    service: ControlService, page: Page, tmp_path: Path
) -> None:
    needed()
    if why := programs.missing("underpass"):
        pytest.skip(why)
    program, authority = programs.built("underpass"), tmp_path / "authority"
    subprocess.run([program, "pki", "init", "--dir", str(authority)], check=True)
    service.restart(UNDERPASS_AUTHORITY=str(authority), UNDERPASS_PROGRAM=program)
    sign_in(page, service, at="settings/enrolments")
    form = page.get_by_role("form", name="Let a node be enrolled")
    # It becomes a plain number, however it is typed.
    form.get_by_label("Node", exact=True).fill("04001")
    form.get_by_label("Configuration, TOML").fill("number = 3")
    form.get_by_role("button", name="Make a token").click()
    expect(form).to_contain_text("node.number is None", timeout=PATIENCE_MS)
    form.get_by_label("Configuration, TOML").fill(TEMPLATE)
    form.get_by_label("${port}").fill("1080")
    form.get_by_role("button", name="Make a token").click()
    made = page.get_by_text("To be typed at node 4001")
    expect(made).to_contain_text("underpass enroll", timeout=PATIENCE_MS)
    # This page came over plain HTTP from the loopback: no node may send its token there.
    expect(made.locator("code")).to_contain_text("https://ADDRESS --token upe_")
    token = made.locator("code").inner_text().split()[-1]
    no_violations(page, DESK_AND_PHONE)
    # A refused request does not take the token off the screen.
    form.get_by_label("Node", exact=True).fill("4002")
    form.get_by_label("Configuration, TOML").fill("number = 3")
    form.get_by_role("button", name="Make a token").click()
    expect(form).to_contain_text("node.number is None", timeout=PATIENCE_MS)
    expect(made.locator("code")).to_contain_text(token)
    table = page.get_by_role("region", name="Enrolments")
    expect(table.get_by_role("row").nth(1)).to_contain_text("waiting")
    go(page, "settings/beams")
    go(page, "settings/enrolments")
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Withdraw the token of node 4001").click(timeout=PATIENCE_MS)
    expect(table.get_by_role("row").nth(1)).to_contain_text("withdrawn", timeout=PATIENCE_MS)
    assert token not in page.content()
    (one,) = service.call("GET", "/v1/enrolments?node=4001")["enrolments"]
    assert one["revoked"]
    page.get_by_label("Of node", exact=True).fill("4001e0")
    page.get_by_label("Of node", exact=True).press("Enter")
    expect(page.get_by_label("Of node", exact=True)).to_have_value("4001", timeout=PATIENCE_MS)
    expect(table.get_by_role("row")).to_have_count(2, timeout=PATIENCE_MS)
    page.get_by_label("Of node", exact=True).fill("4002")
    page.get_by_label("Of node", exact=True).press("Enter")
    expect(page.get_by_text("There are none.")).to_be_visible(timeout=PATIENCE_MS)


def test_tenants_are_made_renamed_and_removed_by_administrators(
    service: ControlService, page: Page
) -> None:
    needed()
    sign_in(page, service, service.token("administrator"), at="access/tenants")
    form = page.get_by_role("form", name="Make a tenant")
    for tenant, name in (("west", NASTY), ("west", "again")):
        form.get_by_label("Id", exact=True).fill(tenant)
        form.get_by_label("Name", exact=True).fill(name)
        form.get_by_role("button", name="Make").click()
        expect(page.get_by_role("row", name=NASTY)).to_be_visible(timeout=PATIENCE_MS)
    # An existing tenant cannot be renamed by making it a second time.
    expect(form.get_by_label("Id", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(form).to_contain_text("there is a tenant west already")
    no_violations(page, DESK_AND_PHONE)
    page.get_by_role("button", name=f"Rename {NASTY}").click()
    renaming = page.get_by_role("form", name="Rename the tenant west")
    renaming.get_by_label("Name", exact=True).fill("West Coaches")
    renaming.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("row", name="West Coaches")).to_be_visible(timeout=PATIENCE_MS)

    beam = {"name": "W", "forward_capacity_bps": 10**6, "return_capacity_bps": 10**6}
    service.call("PUT", "/v1/beams/west", beam)
    service.call("PUT", "/v1/terminals/4010", {"beam": "west", "name": "Coach", "tenant": "west"})
    page.on("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Remove West Coaches").click()
    expect(page.get_by_role("alert")).to_contain_text("still has vehicles", timeout=PATIENCE_MS)
    service.call("DELETE", "/v1/terminals/4010")
    page.get_by_role("button", name="Rename West Coaches").click()
    expect(renaming).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Remove West Coaches").click()
    expect(page.get_by_role("row", name="West Coaches")).to_have_count(0, timeout=PATIENCE_MS)
    # A removed tenant cannot be renamed: the service would make it again.
    expect(form).to_be_visible()
    expect(renaming).to_have_count(0)
    assert page.locator("img").count() == 0


def test_a_tenants_administrator_sees_the_own_tenant_alone(
    service: ControlService, page: Page
) -> None:
    admin = service.token("administrator")
    for tenant in ("mine", "theirs"):
        service.call("PUT", f"/v1/tenants/{tenant}", {"name": f"of {tenant}"}, token=admin)
    body = {"name": "mine", "role": "administrator", "tenant": "mine"}
    sign_in(
        page,
        service,
        service.call("POST", "/v1/tokens", body, token=admin)["token"],
        at="access/tenants",
    )
    expect(page.get_by_role("row", name="of mine")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("by administrators of the whole")).to_be_visible()
    expect(page.get_by_role("row", name="of theirs")).to_have_count(0)
    expect(page.get_by_role("form")).to_have_count(0)
    expect(page.get_by_role("button", name="Remove")).to_have_count(0)
