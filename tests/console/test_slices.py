"""Slices of functions: their chains and health, and operators' actions on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.axe import needed, no_violations
from tests.console.pages import PATIENCE_MS, sign_in
from tests.console.service import ControlService

pytestmark = pytest.mark.console

_GROUND = Path(__file__).parents[2] / "docker" / "slices" / "ground.json"


def report(service: ControlService, name: str, *, sick: str | None = None) -> None:
    """Report a running slice as its site's agent would; the function `sick` is not healthy."""
    agent = service.token("agent")
    slices = service.call("GET", "/v1/sites/default/slices", token=agent)["slices"]
    (one,) = [one for one in slices if one["name"] == name]
    if one["ending"]:
        said: dict[str, Any] = {"state": "ended"}
    else:
        containers = [
            {
                "name": f"{function['name']}.{replica}",
                "state": "running",
                "health": "unhealthy" if function["name"] == sick else "healthy",
            }
            for function in one["body"]["functions"]
            for replica in range(1, function["replicas"] + 1)
        ]
        said = {"state": "running", "containers": containers}
    reports = {"slices": [{"name": name, "revision": one["revision"], **said}]}
    service.call("POST", "/v1/sites/default/slices", reports, token=agent)


def set_file(page: Page, name: str, content: str) -> None:
    form = page.get_by_role("form", name="Set a slice")
    form.get_by_label("Name").fill(name)
    file: Any = {"name": "slice.json", "mimeType": "application/json", "buffer": content.encode()}
    form.get_by_label("JSON").set_input_files(file)
    form.get_by_role("button", name="Instantiate or configure").click()


def generation_of(service: ControlService, name: str) -> int:
    """Return how often a function of `ground` was made."""
    functions = service.call("GET", "/v1/slices/ground")["functions"]
    (generation,) = [one["generation"] for one in functions if one["name"] == name]
    return int(generation)


def test_a_slice_is_instantiated_scaled_healed_configured_and_terminated(
    service: ControlService, page: Page, tmp_path: Path
) -> None:
    needed()
    sign_in(page, service, at="settings/slices")
    expect(page.get_by_text("There are none.")).to_be_visible(timeout=PATIENCE_MS)
    set_file(page, "ground", "{")
    expect(page.get_by_role("alert")).to_have_text("The file is no JSON.", timeout=PATIENCE_MS)
    set_file(page, "ground", '{"networks": [{"name": "<b>"}], "functions": []}')
    expect(page.get_by_role("alert")).to_contain_text("networks", timeout=PATIENCE_MS)
    set_file(page, "ground", _GROUND.read_text())
    card = page.get_by_role("region", name="ground", exact=False).first
    expect(card).to_contain_text("waiting", timeout=PATIENCE_MS)
    expect(card.get_by_role("row", name="firewall")).to_contain_text("exit → between")
    report(service, "ground", sick="nat")
    expect(card).to_contain_text("degraded", timeout=PATIENCE_MS)
    expect(card.get_by_role("row", name="nat")).to_contain_text("nat.1: unhealthy")
    no_violations(page)

    heal = card.get_by_role("button", name="Heal nat")
    # Playwright dismisses what is asked, and nothing is healed.
    heal.click()
    assert generation_of(service, "nat") == 1
    page.once("dialog", lambda dialog: dialog.accept())
    heal.click()
    expect(card).to_contain_text("waiting", timeout=PATIENCE_MS)
    assert generation_of(service, "nat") == 2
    # The page offers as many replicas as the kind allows, and no scaling if it allows only one.
    expect(card.get_by_label("Replicas of nat")).to_have_count(0)
    card.get_by_label("Replicas of names").select_option("3")
    card.get_by_role("form", name="Scale names").get_by_role("button").click()
    while [
        one["replicas"]
        for one in service.call("GET", "/v1/slices/ground")["functions"]
        if one["name"] == "names"
    ] != [3]:
        page.wait_for_timeout(100)
    report(service, "ground")
    expect(card).to_contain_text("running", timeout=PATIENCE_MS)
    expect(card.get_by_role("row", name="names")).to_contain_text("names.3: healthy")

    # A downloaded file can set the slice again.
    with page.expect_download() as download:
        card.get_by_role("button", name="Download ground").click()
    saved = tmp_path / "ground.json"
    download.value.save_as(saved)
    body = json.loads(saved.read_text())
    (names,) = [one for one in body["functions"] if one["name"] == "names"]
    assert names["replicas"] == 3
    names["replicas"] = 1
    set_file(page, "ground", json.dumps(body))
    changes = page.get_by_role("region", name="Changed lines of ground")
    expect(changes.locator("del")).to_have_text('- "replicas": 3,', timeout=PATIENCE_MS)
    expect(changes.locator("ins")).to_have_text('+ "replicas": 1,')
    no_violations(page)
    # Nothing is set before the operator has seen what it changes.
    assert service.call("GET", "/v1/slices/ground")["functions"][1]["replicas"] == 3
    page.get_by_role("button", name="Leave it").click()
    expect(changes).to_have_count(0)
    set_file(page, "ground", json.dumps(body))
    page.get_by_role("button", name="Set ground anew").click(timeout=PATIENCE_MS)
    expect(card.get_by_label("Replicas of names")).to_have_value("1", timeout=PATIENCE_MS)
    # A downloaded file does not undo what somebody else has changed since.
    with page.expect_download():
        card.get_by_role("button", name="Download ground").click()
    service.call("PUT", "/v1/slices/ground/functions/names/replicas", {"replicas": 2})
    expect(card.get_by_label("Replicas of names")).to_have_value("2", timeout=PATIENCE_MS)
    set_file(page, "ground", json.dumps(body))
    page.get_by_role("button", name="Set ground anew").click(timeout=PATIENCE_MS)
    told = page.get_by_role("alert")
    expect(told).to_contain_text("somebody else was first", timeout=PATIENCE_MS)
    expect(card.get_by_label("Replicas of names")).to_have_value("2")

    page.on("dialog", lambda dialog: dialog.accept())
    card.get_by_role("button", name="Terminate ground").click()
    expect(card).to_contain_text("ending", timeout=PATIENCE_MS)
    expect(card.get_by_role("button", name="Heal nat")).to_have_count(0)
    report(service, "ground")
    expect(page.get_by_text("There are none.")).to_be_visible(timeout=PATIENCE_MS)


def test_a_viewer_sees_slices_and_a_tenants_operator_its_own(
    service: ControlService, page: Page
) -> None:
    needed()
    administrator = service.token("administrator")
    for tenant in ("north", "south"):
        body = {"name": tenant.title()}
        service.call("PUT", f"/v1/tenants/{tenant}", body, token=administrator)
        slice_ = json.loads(_GROUND.read_text()) | {"tenant": tenant}
        service.call("PUT", f"/v1/slices/of-{tenant}", slice_)
    sign_in(page, service, service.viewer, at="settings/slices")
    expect(page.get_by_role("heading", name="of-north")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("heading", name="of-south")).to_be_visible()
    expect(page.get_by_role("button", name="Heal")).to_have_count(0)
    expect(page.get_by_role("form")).to_have_count(0)
    page.get_by_text("Kinds of functions").click()
    expect(page.get_by_role("region", name="Kinds of functions")).to_contain_text("lets through")
    no_violations(page)
    page.get_by_role("button", name="Sign out").click()

    made = service.call(
        "POST",
        "/v1/tokens",
        {"name": "north's", "role": "operator", "tenant": "north"},
        token=administrator,
    )
    sign_in(page, service, made["token"], at="settings/slices")
    expect(page.get_by_role("heading", name="of-north")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("heading", name="of-south")).to_have_count(0)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Heal nat").click()
    expect(page.get_by_role("region", name="of-north").first).to_contain_text(
        "waiting", timeout=PATIENCE_MS
    )
