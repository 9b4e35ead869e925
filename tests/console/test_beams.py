"""Beams: an operator makes and changes them, and the map shows their footprints."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, Position, Route, expect

from tests.console.axe import needed, no_violations, violations
from tests.console.fleet import BEAM
from tests.console.pages import PATIENCE_MS, sign_in
from tests.console.service import ControlService
from tests.console.test_settings import choose

pytestmark = [pytest.mark.console, pytest.mark.usefixtures("fleet")]

NASTY = "<img src=x onerror=alert(1)>"
# Around the fleet's island, and far beyond the map's first view.
WIDE = [[-60.0, 0.0], [0.0, 0.0], [0.0, 60.0], [-60.0, 60.0], [-60.0, 0.0]]


def test_a_page_that_is_shown_before_it_is_known_who_asks_goes_on_once_it_is(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service, at="settings/beams")
    waiting: list[Route] = []
    page.route("**/v1/session", lambda route: waiting.append(route))
    page.route("**/v1/beams?*", lambda route: route.abort())
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("not reached", timeout=PATIENCE_MS)
    for route in waiting:
        route.continue_()
    expect(page.get_by_role("form", name="Make a beam")).to_be_visible(timeout=PATIENCE_MS)
    page.unroute("**/v1/beams?*")
    table = page.get_by_role("region", name="All beams")
    expect(table).to_contain_text("East", timeout=PATIENCE_MS)


def test_a_beam_is_made_changed_and_removed(service: ControlService, page: Page) -> None:
    needed()
    sign_in(page, service, at="settings/beams")
    form = page.get_by_role("form", name="Make a beam")
    form.get_by_label("Id").fill("west")
    form.get_by_label("Name").fill(NASTY)
    form.get_by_label("Forward").fill("8.5")
    form.get_by_label("Return").fill("2")
    choose(page, "Footprint", "west.geojson", '{"type": "Point", "coordinates": [7, 46]}')
    form.get_by_role("button", name="Make").click()
    expect(form.get_by_role("alert")).to_contain_text("no single area")
    open_ring = {"type": "Polygon", "coordinates": [[*WIDE[:-1], [0.0, 0.0]]]}
    choose(page, "Footprint", "west.geojson", json.dumps(open_ring))
    form.get_by_role("button", name="Make").click()
    expect(page.get_by_text("a ring does not end where it begins").first).to_be_visible(
        timeout=PATIENCE_MS
    )
    area = {"type": "Polygon", "coordinates": [WIDE]}
    feature = {"type": "Feature", "properties": {}, "geometry": area}
    choose(page, "Footprint", "west.geojson", json.dumps(feature))
    form.get_by_role("button", name="Make").click()
    expect(page.get_by_text("west is made.")).to_be_visible(timeout=PATIENCE_MS)
    made = service.call("GET", "/v1/beams/west")
    assert (made["name"], made["forward_capacity_bps"]) == (NASTY, 8_500_000)
    assert made["footprint"] == area
    table = page.get_by_role("region", name="All beams")
    expect(table).to_contain_text("5 positions")
    no_violations(page)
    # Only its own button changes an existing beam: it cannot be made a second time.
    for label, value in {"Id": "west", "Name": "Again", "Forward": "1", "Return": "1"}.items():
        form.get_by_label(label).fill(value)
    form.get_by_role("button", name="Make").click()
    expect(form).to_contain_text("there is a beam west already")
    assert service.call("GET", "/v1/beams/west") == made

    page.get_by_role("button", name="Change west").click()
    form = page.get_by_role("form", name="Change the beam west")
    expect(form.get_by_label("Forward")).to_have_value("8.5", timeout=PATIENCE_MS)
    # The keyboard goes on in the form, and afterwards where it was.
    expect(form.get_by_label("Name")).to_be_focused()
    form.get_by_label("Return").fill("3")
    no_violations(page)
    # Somebody else changes it first.
    service.call("PUT", "/v1/beams/west", {**without_id(made), "name": "Theirs"})
    form.get_by_role("button", name="Change").click()
    expect(page.get_by_text("it has been changed since")).to_be_visible(timeout=PATIENCE_MS)
    assert service.call("GET", "/v1/beams/west")["name"] == "Theirs"
    page.get_by_role("button", name="Leave it").click()
    expect(page.get_by_role("button", name="Change west")).to_be_focused()
    page.get_by_role("button", name="Change west").click()
    expect(form.get_by_label("Name")).to_have_value("Theirs", timeout=PATIENCE_MS)
    form.get_by_label("Return").fill("3")
    form.get_by_label("without a footprint").check()
    form.get_by_role("button", name="Change").click()
    expect(page.get_by_text("west is changed.")).to_be_visible(timeout=PATIENCE_MS)
    changed = service.call("GET", "/v1/beams/west")
    assert changed["return_capacity_bps"] == 3_000_000
    assert "footprint" not in changed

    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=f"Remove {BEAM}").click()
    expect(page.get_by_text(f"{BEAM} still has terminals")).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Remove west").click()
    expect(page.get_by_role("button", name="Remove west")).to_have_count(0, timeout=PATIENCE_MS)
    expect(table).to_be_focused()
    assert page.locator("img").count() == 0


def test_a_footprint_is_on_the_map_and_leads_to_its_beam(
    service: ControlService, page: Page
) -> None:
    needed()
    beam = service.call("GET", f"/v1/beams/{BEAM}")
    area = {"type": "Polygon", "coordinates": [WIDE]}
    sign_in(page, service)
    canvas = page.locator(".maplibregl-canvas")
    canvas.wait_for(timeout=PATIENCE_MS)
    card = page.get_by_role("complementary", name="Selected beam")
    # Without a footprint there is nothing to choose.
    corner: Position = {"x": 40, "y": 500}
    canvas.click(position=corner)
    expect(card).to_have_count(0)
    service.call("PUT", f"/v1/beams/{BEAM}", {**without_id(beam), "footprint": area})
    for _ in range(60):
        canvas.click(position=corner)
        if card.count() > 0:
            break
        page.wait_for_timeout(500)
    expect(card).to_contain_text("8 Mbit/s", timeout=PATIENCE_MS)
    expect(card).to_contain_text("up")
    assert not violations(page)
    card.get_by_role("link", name="East").click()
    expect(page.get_by_role("heading", name="East", level=1)).to_be_visible(timeout=PATIENCE_MS)
    service.call("PUT", f"/v1/beams/{BEAM}", without_id(beam))


def test_a_viewer_sees_beams_and_no_form(service: ControlService, page: Page) -> None:
    sign_in(page, service, service.viewer, at="settings/beams")
    expect(page.get_by_role("region", name="All beams")).to_contain_text(
        "East", timeout=PATIENCE_MS
    )
    expect(page.get_by_role("form")).to_have_count(0)
    expect(page.get_by_role("button", name="Remove")).to_have_count(0)


def without_id(beam: dict[str, object]) -> dict[str, object]:
    """Return a beam in the form in which it is set."""
    return {name: value for name, value in beam.items() if name != "id"}
