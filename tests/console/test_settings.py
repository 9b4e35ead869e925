"""Terminals in bulk, tags and maps: operators set them, viewers cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.axe import needed, no_violations
from tests.console.fleet import BEAM, DRIVER, Fleet
from tests.console.pages import PATIENCE_MS, go, live, sign_in
from tests.console.service import ControlService

pytestmark = pytest.mark.console

NASTY = "<img src=x onerror=alert(1)>"


def choose(page: Page, label: str, name: str, content: str) -> None:
    """Choose a file in a form."""
    file: Any = {"name": name, "mimeType": "text/plain", "buffer": content.encode()}
    page.get_by_label(label).set_input_files(file)


def test_a_file_is_looked_at_corrected_and_taken(
    service: ControlService, fleet: Fleet, page: Page, tmp_path: Path
) -> None:
    del fleet
    needed()
    sign_in(page, service)
    page.get_by_role("link", name="Settings").click()
    bad = f"node,beam,name,tags\n801,{BEAM},Coach,{NASTY}\n802,nowhere,Coach,\n803,{BEAM},,\n"
    choose(page, "Look at a CSV file", "fleet.csv", bad)
    flaws = page.get_by_role("region", name="Lines that are wrong")
    expect(flaws).to_contain_text("there is no beam nowhere", timeout=PATIENCE_MS)
    expect(flaws.get_by_role("row").nth(2)).to_contain_text("4")
    expect(page.get_by_text("1 to make, 0 to change, 0 as they are, 2 wrong.")).to_be_visible()
    expect(page.get_by_role("button", name="Make and change")).to_have_count(0)
    no_violations(page)

    good = f"node,beam,name,tags\n801,{BEAM},{NASTY},{NASTY}\n802,{BEAM},Coach 802,night\n"
    choose(page, "Look at a CSV file", "fleet.csv", good)
    expect(page.get_by_text("2 to make, 0 to change")).to_be_visible(timeout=PATIENCE_MS)
    no_violations(page)
    page.get_by_role("button", name="Make and change 2").click()
    expect(page.get_by_text("Done: 2 made")).to_be_visible(timeout=PATIENCE_MS)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all terminals").click()
    saved = tmp_path / "saved.csv"
    download.value.save_as(saved)
    assert f"801,{BEAM},{NASTY}" in saved.read_text()

    # Somebody else changes one of them between the preview and the import.
    choose(page, "Look at a CSV file", "fleet.csv", good.replace("Coach 802", "Coach 8"))
    expect(page.get_by_text("0 to make, 1 to change")).to_be_visible(timeout=PATIENCE_MS)
    service.call("PUT", "/v1/terminals/802", {"beam": BEAM, "name": "Theirs"})
    change = page.get_by_role("region", name="Terminals that would change")
    expect(change).to_contain_text('name: "Coach 802" → "Coach 8"')
    page.get_by_role("button", name="Make and change 1").click()
    expect(page.get_by_role("alert")).to_contain_text("look again", timeout=PATIENCE_MS)
    assert service.call("GET", "/v1/terminals/802")["name"] == "Theirs"
    assert page.locator("img").count() == 0


def test_terminals_are_tagged_and_found_by_their_tags(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    del fleet
    needed()
    sign_in(page, service, at=f"terminals/{DRIVER}")
    tags = page.get_by_role("region", name="Tags")
    tags.get_by_label("Tags, with").fill(f"north; {NASTY}")
    tags.get_by_role("button", name="Set").click()
    expect(tags.get_by_role("link", name=NASTY)).to_be_visible(timeout=PATIENCE_MS)
    no_violations(page)
    tags.get_by_role("link", name="north").click()
    choice = page.get_by_label("With the tag")
    expect(choice).to_have_value("north", timeout=PATIENCE_MS)
    rows = page.get_by_role("region", name="List of terminals").get_by_role("row")
    # With the row of headings.
    expect(rows).to_have_count(2, timeout=PATIENCE_MS)
    no_violations(page)
    choice.select_option("")
    expect(rows.nth(2)).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_label("Find").fill("onerror")
    expect(rows.filter(has_text=f"Bus {DRIVER}")).to_be_visible(timeout=PATIENCE_MS)
    assert page.locator("img").count() == 0
    go(page, f"terminals/{DRIVER}")
    tags.get_by_label("Tags, with").fill("x" * 33)
    tags.get_by_role("button", name="Set").click()
    expect(tags.get_by_role("alert")).not_to_be_empty(timeout=PATIENCE_MS)


def test_tags_that_another_operator_has_set_meanwhile_are_not_overwritten(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    del fleet
    path = f"/v1/terminals/{DRIVER}"
    service.call("PUT", path + "/tags", {"tags": ["day"]})
    sign_in(page, service, at=f"terminals/{DRIVER}")
    tags = page.get_by_role("region", name="Tags")
    expect(tags.get_by_role("link", name="day")).to_be_visible(timeout=PATIENCE_MS)
    field = tags.get_by_label("Tags, with")
    field.fill("day; mine")
    service.call("PUT", path + "/tags", {"tags": ["day", "theirs"]})
    expect(tags.get_by_role("link", name="theirs")).to_be_visible(timeout=PATIENCE_MS)
    # The typed text is still there; it is not set before the page shows what it would replace.
    expect(field).to_have_value("day; mine")
    tags.get_by_role("button", name="Set").click()
    told = tags.get_by_role("alert")
    expect(told).to_contain_text("somebody else was first", timeout=PATIENCE_MS)
    expect(told).to_contain_text("day; theirs")
    assert service.call("GET", path)["tags"] == ["day", "theirs"]
    field.fill("day; theirs; mine")
    tags.get_by_role("button", name="Set").click()
    expect(tags.get_by_role("link", name="mine")).to_be_visible(timeout=PATIENCE_MS)
    expect(told).to_be_empty()
    assert service.call("GET", path)["tags"] == ["day", "mine", "theirs"]
    # Once nothing typed is left to set, the field follows the tags that others set.
    service.call("PUT", path + "/tags", {"tags": []})
    expect(field).to_have_value("", timeout=PATIENCE_MS)


def tunnel(name: str) -> dict[str, Any]:
    """Return a road tunnel as GeoJSON."""
    line = {"type": "LineString", "coordinates": [[20.0, 10.0], [20.01, 10.0]]}
    return {"type": "Feature", "id": name, "geometry": line, "properties": {"name": name}}


def geojson(*names: str) -> str:
    """Return a map of tunnels."""
    return json.dumps({"type": "FeatureCollection", "features": [tunnel(one) for one in names]})


def test_a_map_is_replaced_and_removed(service: ControlService, page: Page) -> None:
    needed()
    page.on("dialog", lambda asked: asked.accept())
    sign_in(page, service, at="settings/maps")
    form = page.get_by_role("form", name="Replace a map")
    for names, said in ((("a", "b"), "0 of the former"), (("b",), "1 of the former")):
        form.get_by_label("Name").fill(NASTY)
        choose(page, "GeoJSON", "town.geojson", geojson(*names))
        form.get_by_role("button", name="Replace").click()
        expect(page.get_by_text(said)).to_be_visible(timeout=PATIENCE_MS)
    form.get_by_label("Name").fill("other")
    choose(page, "GeoJSON", "town.geojson", "{}")
    form.get_by_role("button", name="Replace").click()
    expect(page.get_by_role("alert")).to_contain_text("no GeoJSON", timeout=PATIENCE_MS)
    no_violations(page)
    page.get_by_role("button", name=f"Remove {NASTY}").click()
    expect(page.get_by_role("row", name=NASTY)).to_have_count(0, timeout=PATIENCE_MS)
    assert page.locator("img").count() == 0


def test_a_viewer_downloads_and_sees_and_is_offered_nothing_else(
    service: ControlService, page: Page
) -> None:
    needed()
    sign_in(page, service, service.viewer, at="settings")
    expect(page.get_by_role("button", name="Download all terminals")).to_be_visible(
        timeout=PATIENCE_MS
    )
    expect(page.locator("input[type=file]")).to_have_count(0)
    no_violations(page)
    go(page, "settings/maps")
    expect(page.get_by_role("heading", name="Maps")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("form")).to_have_count(0)
    expect(page.get_by_role("button", name="Remove")).to_have_count(0)
    no_violations(page)
    live(page)


def test_a_rollout_is_seen_paused_resumed_and_aborted(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    del fleet
    needed()
    change = {"classes": [{"name": "bulk", "weight": 5}]}
    rollout = {"name": NASTY, "beam": BEAM, "settings": change, "stages": [1]}
    made = service.call("POST", "/v1/rollouts", rollout)
    sign_in(page, service, at="settings/rollouts")
    section = page.get_by_role("region", name=NASTY, exact=True)
    expect(section).to_contain_text("running", timeout=PATIENCE_MS)
    # The service sends it to the first terminal within seconds.
    expect(section).to_contain_text("1 sent", timeout=PATIENCE_MS)
    expect(section).to_contain_text("stage 1 of 2")
    section.get_by_role("button", name=f"Terminals of {NASTY}").click()
    terminals = page.get_by_role("region", name=f"Terminals of {NASTY}")
    expect(terminals).to_contain_text("pending", timeout=PATIENCE_MS)
    no_violations(page)
    section.get_by_role("button", name=f"Pause {NASTY}").click()
    expect(section).to_contain_text("paused", timeout=PATIENCE_MS)
    section.get_by_role("button", name=f"Resume {NASTY}").click()
    expect(section).to_contain_text("running", timeout=PATIENCE_MS)
    page.on("dialog", lambda dialog: dialog.accept())
    section.get_by_role("button", name=f"Abort and restore: {NASTY}").click()
    expect(section).to_contain_text("aborted", timeout=PATIENCE_MS)
    expect(section.get_by_role("button", name=f"Pause {NASTY}")).to_have_count(0)
    assert service.call("GET", f"/v1/rollouts/{made['id']}")["counts"]["restored"] == 1


def test_a_rollout_that_somebody_else_has_paused_meanwhile_is_left_so(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    del fleet
    change = {"classes": [{"name": "bulk", "weight": 5}]}
    rollout = {"name": "crossed", "terminals": [DRIVER], "settings": change}
    made = service.call("POST", "/v1/rollouts", rollout)
    sign_in(page, service, at="settings/rollouts")
    section = page.get_by_role("region", name="crossed", exact=True)
    expect(section).to_contain_text("1 sent", timeout=PATIENCE_MS)
    # The page does not learn of the other's change before its own.
    page.route("**/v1/rollouts?*", lambda route: route.abort())
    path = f"/v1/rollouts/{made['id']}"
    service.call("PUT", f"{path}/state", {"state": "paused"})
    page.on("dialog", lambda dialog: dialog.accept())
    section.get_by_role("button", name="Abort and restore: crossed").click()
    expect(page.get_by_text("somebody else was first")).to_be_visible(timeout=PATIENCE_MS)
    assert service.call("GET", path)["state"] == "paused"
    service.call("PUT", f"{path}/state", {"state": "aborted"})


def test_a_viewer_sees_rollouts_and_changes_none(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    del fleet
    change = {"classes": [{"name": "bulk", "weight": 5}]}
    rollout = {"name": "heavier", "terminals": [DRIVER], "settings": change}
    service.call("POST", "/v1/rollouts", rollout)
    sign_in(page, service, service.viewer, at="settings/rollouts")
    section = page.get_by_role("region", name="heavier", exact=True)
    expect(section).to_contain_text("running", timeout=PATIENCE_MS)
    expect(section.get_by_role("button", name="Pause")).to_have_count(0)


def test_a_tenants_operator_pauses_the_rollouts_of_the_tenant(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    del fleet
    admin = service.token("administrator")
    service.call("PUT", "/v1/tenants/east", {"name": "East"}, token=admin)
    coach = {"beam": BEAM, "name": "Coach", "tenant": "east"}
    service.call("PUT", "/v1/terminals/930", coach)
    body = {"name": "east's", "role": "operator", "tenant": "east"}
    token = service.call("POST", "/v1/tokens", body, token=admin)["token"]
    change = {"classes": [{"name": "bulk", "weight": 5}]}
    rollout = {"name": "coaches", "terminals": [930], "settings": change}
    service.call("POST", "/v1/rollouts", rollout, token=token)
    sign_in(page, service, token, at="settings/rollouts")
    section = page.get_by_role("region", name="coaches", exact=True)
    section.get_by_role("button", name="Pause coaches").click(timeout=PATIENCE_MS)
    expect(section).to_contain_text("paused", timeout=PATIENCE_MS)
    page.on("dialog", lambda dialog: dialog.accept())
    section.get_by_role("button", name="Abort and restore: coaches").click()
    expect(section).to_contain_text("aborted", timeout=PATIENCE_MS)
