"""Alerts in the console: rules are made, what fires is seen and acknowledged."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.console.axe import needed, violations
from tests.console.fleet import BEAM, DRIVER
from tests.console.pages import PATIENCE_MS, go, sign_in
from tests.console.service import ControlService

pytestmark = [pytest.mark.console, pytest.mark.usefixtures("fleet")]


def test_a_rule_is_made_and_what_fires_by_it_is_acknowledged(
    service: ControlService, page: Page
) -> None:
    needed()
    # Every node that has ever reported has been silent for more than a millisecond.
    sign_in(page, service, at="alerts")
    expect(page.get_by_text("Nothing is wrong by the rules.")).to_be_visible(timeout=PATIENCE_MS)
    form = page.get_by_role("form", name="Make a rule")
    form.get_by_label("Name").fill("<i>silent</i>")
    form.get_by_role("spinbutton", name="Limit").fill("0.001")
    form.get_by_role("button", name="Make").click()
    rule = page.get_by_role("button", name="Delete the rule <i>silent</i>")
    expect(rule).to_be_visible(timeout=PATIENCE_MS)
    table = page.get_by_role("region", name="What is wrong")
    expect(table).to_contain_text(f"Bus {DRIVER}", timeout=PATIENCE_MS)
    expect(table).to_contain_text("<i>silent</i>")
    page.get_by_role("searchbox", name="With").fill(f"bus {DRIVER}")
    expect(table.get_by_role("row")).to_have_count(2)
    where = table.get_by_role("link", name=f"Bus {DRIVER} on the map")
    expect(where).to_have_attribute("href", f"#/map/{DRIVER}")
    assert not violations(page)
    name = f"Acknowledge: nothing has come from terminal {DRIVER}"
    table.get_by_role("button", name=name).click()
    expect(table).to_contain_text("a operator", timeout=PATIENCE_MS)
    page.once("dialog", lambda asked: asked.accept())
    rule.click()
    expect(page.get_by_text("There are none: nothing fires.")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("Nothing is wrong by the rules.")).to_be_visible(timeout=PATIENCE_MS)
    assert service.call("GET", "/v1/alerts?firing=true")["alerts"] == []


def test_a_rule_about_software_or_certificates_has_its_own_fields(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service, at="alerts")
    form = page.get_by_role("form", name="Make a rule")
    form.get_by_label("Name").fill("old")
    form.get_by_label("Fires when").select_option("version")
    expect(form.get_by_role("spinbutton", name="Limit")).to_have_count(0)
    form.get_by_role("textbox", name="Version").fill("9.9")
    form.get_by_label("Resolved after, s").fill("0")
    form.get_by_role("button", name="Make").click()
    table = page.get_by_role("region", name="What is wrong")
    told = f"terminal {DRIVER} runs version 1.2.3, not 9.9"
    expect(table).to_contain_text(told, timeout=PATIENCE_MS)
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Delete the rule old").click()
    form.get_by_label("Name").fill("ends")
    form.get_by_label("Fires when").select_option("certificate")
    form.get_by_role("spinbutton", name="Limit, days").fill("31")
    form.get_by_label("Fires after, s").fill("600")
    form.get_by_role("button", name="Make").click()
    rule = page.get_by_role("button", name="Delete the rule ends")
    expect(rule).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("31 days, all beams; fires after 600 s")).to_be_visible()
    (made,) = service.call("GET", "/v1/alert-rules")["rules"]
    assert (made["limit_s"], made["for_s"], made["keep_firing_for_s"]) == (2_678_400, 600, 60)
    page.once("dialog", lambda asked: asked.accept())
    rule.click()
    expect(page.get_by_text("Nothing is wrong by the rules.")).to_be_visible(timeout=PATIENCE_MS)


def test_a_rule_is_changed_but_not_where_somebody_else_was_first(
    service: ControlService, page: Page
) -> None:
    needed()
    body = {"name": "night", "kind": "certificate", "limit_s": 864_000, "beam": BEAM}
    made = service.call("POST", "/v1/alert-rules", {**body, "keep_firing_for_s": 5})
    path = f"/v1/alert-rules/{made['id']}"
    sign_in(page, service, at="alerts")
    change = page.get_by_role("button", name="Change the rule night")
    change.click(timeout=PATIENCE_MS)
    form = page.get_by_role("form", name="Change the rule night")
    limit = form.get_by_role("spinbutton", name="Limit, days")
    expect(limit).to_have_value("10")
    expect(form.get_by_label("Resolved after, s")).to_have_value("5")
    expect(form.get_by_role("combobox")).to_have_value(BEAM)
    assert not violations(page)
    limit.fill("20")
    form.get_by_role("button", name="Change").click()
    expect(page.get_by_text("night is changed.")).to_be_visible(timeout=PATIENCE_MS)
    (one,) = service.call("GET", "/v1/alert-rules")["rules"]
    assert one == {**made, "limit_s": 1_728_000, "revision": 2}
    # The rule is changed elsewhere while it is open here: that change is not undone.
    expect(page.get_by_role("form", name="Make a rule")).to_be_visible()
    change.click()
    expect(limit).to_have_value("20")
    service.call("PUT", path, {**body, "limit_s": 432_000})
    form.get_by_label("Fires after, s").fill("60")
    form.get_by_role("button", name="Change").click()
    told = page.get_by_text("Nothing was done, since somebody else was first")
    expect(told).to_be_visible(timeout=PATIENCE_MS)
    # Chosen again, the form shows its present state.
    expect(page.get_by_text(f"5 days, beam {BEAM}")).to_be_visible(timeout=PATIENCE_MS)
    change.click()
    expect(limit).to_have_value("5")
    expect(form.get_by_label("Fires after, s")).to_have_value("0")
    form.get_by_role("button", name="Leave it").click()
    expect(page.get_by_role("form", name="Make a rule")).to_be_visible()
    # Nor can it be deleted in a state that the user has not seen.
    service.call("PUT", path, {**body, "limit_s": 1_036_800})
    delete = page.get_by_role("button", name="Delete the rule night")
    page.once("dialog", lambda asked: asked.accept())
    delete.click()
    expect(page.get_by_text(f"12 days, beam {BEAM}")).to_be_visible(timeout=PATIENCE_MS)
    expect(told).to_be_visible()
    page.once("dialog", lambda asked: asked.accept())
    delete.click()
    expect(change).to_have_count(0, timeout=PATIENCE_MS)


def test_a_webhook_is_refused_in_words_and_its_secret_shown_once(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service, at="alerts")
    form = page.get_by_role("form", name="Have a webhook or an address told")
    form.get_by_label("Name").fill("chat")
    form.get_by_label("URL").fill("http://127.0.0.1/hook")
    form.get_by_role("button", name="Add").click()
    expect(page.get_by_text("is no public address")).to_be_visible(timeout=PATIENCE_MS)
    form.get_by_label("URL").fill("https://example.com/hook")
    form.get_by_role("button", name="Add").click()
    expect(page.get_by_text("It is not shown again.")).to_be_visible(timeout=PATIENCE_MS)
    # A refused request does not take the secret off the screen.
    form.get_by_label("Name").fill("other chat")
    form.get_by_label("URL").fill("http://127.0.0.1/hook")
    form.get_by_role("button", name="Add").click()
    expect(page.get_by_text("is no public address")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("It is not shown again.")).to_be_visible()
    go(page, f"beams/{BEAM}")
    go(page, "alerts")
    stop = page.get_by_role("button", name="Tell chat no more")
    expect(stop).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_text("It is not shown again.")).to_have_count(0)
    page.once("dialog", lambda asked: asked.accept())
    stop.click()
    expect(stop).to_have_count(0, timeout=PATIENCE_MS)


def test_a_viewer_sees_alerts_and_neither_rules_nor_webhooks(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service, service.viewer, at="alerts")
    expect(page.get_by_role("heading", name="Alerts")).to_be_visible(timeout=PATIENCE_MS)
    assert service.call("POST", "/v1/alert-rules", {"name": "x", "kind": "debt", "limit_s": 1})
    expect(page.get_by_role("form")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
