"""Interventions that operators set in the console, also two operators at once."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.axe import needed, violations
from tests.console.fleet import BEAM, DRIVER
from tests.console.pages import PATIENCE_MS, go, sign_in
from tests.console.service import ControlService

pytestmark = [pytest.mark.console, pytest.mark.usefixtures("fleet")]


def listed(service: ControlService) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.call("GET", "/v1/interventions")["interventions"]
    return found


def test_a_rate_is_set_told_to_others_changed_and_released(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service, at=f"beams/{BEAM}")
    card = page.locator("section", has=page.get_by_role("heading", name="Set by operators"))
    form = card.get_by_role("form", name="Set something for a time")
    form.get_by_label("What").select_option("rate")
    form.get_by_role("button", name="Set").click()
    expect(form.get_by_role("alert")).to_have_text("choose a terminal")
    form.get_by_label("Terminal", exact=True).select_option("12")
    form.get_by_label("forward").fill("1.5")
    form.get_by_label("note").fill("<b>live</b>")
    form.get_by_role("button", name="Set").click()
    table = card.get_by_role("table")
    expect(table).to_contain_text("Bus 12 has 1.5 Mbit/s forward", timeout=PATIENCE_MS)
    expect(table).to_contain_text("a operator")
    expect(table).to_contain_text("<b>live</b>")
    (one,) = listed(service)
    # Another operator changes it first.
    headers = {"If-Match": '"1"', "Content-Type": "application/json"}
    headers["Authorization"] = f"Bearer {service.operator}"
    path = f"/v1/interventions/{one['id']}"
    assert service.request("PUT", path, '{"forward_bps": 2500000}', headers)[0] == 200
    expect(table).to_contain_text("2.5 Mbit/s forward", timeout=PATIENCE_MS)
    card.get_by_role("button", name="Ten minutes more").click()
    until = one["until"]
    page.wait_for_timeout(500)
    for _ in range(60):
        (one,) = listed(service)
        if one["until"] > until:
            break
        page.wait_for_timeout(500)
    assert one["until"] > until
    page.once("dialog", lambda asked: asked.accept())
    card.get_by_role("button", name="Release").click()
    expect(card).to_contain_text("the planner decides alone", timeout=PATIENCE_MS)
    assert listed(service) == []


def test_a_foreseen_blockage_is_withdrawn_and_released(service: ControlService, page: Page) -> None:
    sign_in(page, service, at=f"terminals/{DRIVER}")
    page.get_by_role("button", name="Withdraw the blockage").first.click(timeout=PATIENCE_MS)
    expect(page.get_by_text("not predicted again for this passage")).to_be_visible()
    go(page, f"beams/{BEAM}")
    card = page.locator("section", has=page.get_by_role("heading", name="Set by operators"))
    expect(card).to_contain_text("is withdrawn", timeout=PATIENCE_MS)
    page.once("dialog", lambda asked: asked.accept())
    card.get_by_role("button", name="Release").click()
    expect(card).to_contain_text("the planner decides alone", timeout=PATIENCE_MS)


def test_a_viewer_sees_what_is_set_and_no_form(service: ControlService, page: Page) -> None:
    sign_in(page, service, service.viewer, at=f"beams/{BEAM}")
    expect(page.get_by_role("heading", name="Set by operators")).to_be_visible()
    expect(page.get_by_text("the planner decides alone")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("form", name="Set something for a time")).to_have_count(0)


def test_a_terminal_is_drained_from_its_page_and_put_back_in_service(
    service: ControlService, page: Page
) -> None:
    needed()
    sign_in(page, service, at="terminals/13")
    card = page.locator("section", has=page.get_by_role("heading", name="Drain"))
    expect(card).to_contain_text("It is in service.", timeout=PATIENCE_MS)
    form = card.get_by_role("form", name="Drain the terminal")
    form.get_by_label("Maintenance in").fill("10")
    form.get_by_label("note").fill("<b>new modem</b>")
    form.get_by_role("button", name="Drain").click()
    expect(card).to_contain_text("It drains", timeout=PATIENCE_MS)
    expect(card).to_contain_text("<b>new modem</b>")
    # The fleet's terminals are backlogged for ever.
    expect(card).to_contain_text("Still waiting: 400 kB to it")
    # That changes each second, and is not read out.
    expect(card).to_contain_text("7 bundles in custody from it")
    expect(card.get_by_role("status")).to_be_empty()
    # The form is gone: the keyboard goes on in the card.
    expect(card).to_be_focused()
    found = violations(page)
    assert not found, found
    (one,) = listed(service)
    assert (one["kind"], one["terminal"], one["state"]) == ("maintenance", 13, "ahead")
    page.once("dialog", lambda asked: asked.accept())
    card.get_by_role("button", name="Back in service").click()
    expect(card).to_contain_text("It is in service.", timeout=PATIENCE_MS)
    assert listed(service) == []
    # At once.
    form.get_by_label("Maintenance in").fill("0")
    form.get_by_role("button", name="Drain").click()
    expect(card).to_contain_text("It is in maintenance", timeout=PATIENCE_MS)
    page.once("dialog", lambda asked: asked.accept())
    card.get_by_role("button", name="Back in service").click()
    expect(card).to_contain_text("It is in service.", timeout=PATIENCE_MS)
