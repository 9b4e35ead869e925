"""The console starts rollouts, and says in words what cannot be rolled out."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.axe import DESK_AND_PHONE, needed, no_violations
from tests.console.fleet import BEAM, DRIVER
from tests.console.pages import PATIENCE_MS, sign_in
from tests.console.service import ControlService
from tests.console.test_settings import NASTY, choose

pytestmark = [pytest.mark.console, pytest.mark.usefixtures("fleet")]


def test_a_change_of_a_class_is_rolled_out_in_stages(service: ControlService, page: Page) -> None:
    needed()
    sign_in(page, service, at="settings/rollouts")
    form = page.get_by_role("form", name="Begin a rollout")
    form.get_by_label("Name").fill(NASTY)
    form.get_by_role("textbox", name="Class").fill("bulk")
    # Without a change, nothing is sent.
    form.get_by_role("button", name="Roll out").click()
    expect(page.get_by_text("nothing of bulk is changed")).to_be_visible(timeout=PATIENCE_MS)
    form.get_by_label("Weight").fill("5")
    form.get_by_label("Terminals of each stage").fill("1, 2")
    form.get_by_label("Each holds for, s").fill("60")
    form.get_by_role("button", name="Roll out").click()
    # It begins only once what it changes was seen.
    look = page.get_by_role("region", name=f"What {NASTY} would change")
    row = look.get_by_role("row", name="class.bulk.weight")
    expect(row).to_contain_text("as the node has it", timeout=PATIENCE_MS)
    expect(row).to_contain_text("5")
    expect(look).to_be_focused()
    no_violations(page)
    # What is typed anew was not seen.
    form.get_by_label("Weight").fill("6")
    expect(look).to_have_count(0)
    form.get_by_label("Weight").fill("5")
    form.get_by_role("button", name="Roll out").click()
    expect(row).to_be_visible(timeout=PATIENCE_MS)
    form.get_by_label("Which terminals").select_option(label="those with the numbers")
    expect(look).to_have_count(0)
    expect(form.get_by_role("textbox", name="Numbers")).to_be_visible()
    form.get_by_label("Which terminals").select_option(label="all of a beam")
    form.get_by_role("button", name="Roll out").click()
    look.get_by_role("button", name="Leave it").click()
    expect(look).to_have_count(0)
    assert service.call("GET", "/v1/rollouts")["rollouts"] == []
    form.get_by_role("button", name="Roll out").click()
    look.get_by_role("button", name="Begin").click()
    section = page.get_by_role("region", name=NASTY, exact=True)
    expect(section).to_contain_text("stage 1 of 3", timeout=PATIENCE_MS)
    no_violations(page)
    (made,) = service.call("GET", "/v1/rollouts")["rollouts"]
    assert made["settings"] == {"classes": [{"name": "bulk", "weight": 5}], "paths": []}
    assert (made["stages"], made["hold_s"], made["wait_s"]) == ([1, 2], 60, 3_600)
    assert sum(made["counts"].values()) == len(service.call("GET", "/v1/terminals")["terminals"])
    # Another rollout for the same terminals is refused, and the page names the one in the way.
    form.get_by_label("Name").fill("second")
    form.get_by_label("Which terminals").select_option(label="those with the numbers")
    form.get_by_role("textbox", name="Numbers").fill(str(DRIVER))
    form.get_by_label("What changes").select_option(label="a path")
    form.get_by_role("textbox", name="Path").fill("satellite")
    form.get_by_label("Sends at most, Mbit/s").fill("2")
    form.get_by_role("button", name="Roll out").click()
    page.get_by_role("button", name="Begin second").click(timeout=PATIENCE_MS)
    told = f"terminal {DRIVER} is in rollout {made['id']}, not ended yet"
    expect(page.get_by_text(told)).to_be_visible(timeout=PATIENCE_MS)
    page.once("dialog", lambda dialog: dialog.accept())
    section.get_by_role("button", name=f"Abort and restore: {NASTY}").click()
    expect(section).to_contain_text("aborted", timeout=PATIENCE_MS)
    form.get_by_role("button", name="Roll out").click()
    page.get_by_role("button", name="Begin second").click(timeout=PATIENCE_MS)
    expect(page.get_by_role("region", name="second", exact=True)).to_be_visible(timeout=PATIENCE_MS)


def test_the_settings_of_a_file_are_rolled_out(service: ControlService, page: Page) -> None:
    beam = {**service.call("GET", f"/v1/beams/{BEAM}"), "name": "Coaches"}
    del beam["id"]
    service.call("PUT", "/v1/beams/coaches", beam)
    service.call("PUT", "/v1/terminals/931", {"beam": "coaches", "name": "Coach"})
    sign_in(page, service, at="settings/rollouts")
    form = page.get_by_role("form", name="Begin a rollout")
    form.get_by_label("Name").fill("from a file")
    form.get_by_label("Which terminals").select_option(label="those with the numbers")
    form.get_by_role("textbox", name="Numbers").fill("931")
    form.get_by_label("What changes").select_option(label="what a JSON file has")
    settings = {"classes": [{"name": "bulk", "weight": 7}], "paths": []}
    for content, told in (
        ("{", "the file is no JSON"),
        ('{"klasses": []}', "/klasses"),
    ):
        choose(page, "Settings, JSON", "bulk.json", content)
        form.get_by_role("button", name="Roll out").click()
        expect(page.get_by_text(told)).to_be_visible(timeout=PATIENCE_MS)
    choose(page, "Settings, JSON", "bulk.json", json.dumps(settings))
    form.get_by_role("button", name="Roll out").click()
    held: list[Route] = []
    page.route("**/v1/rollouts", lambda route: held.append(route))
    with page.expect_request("**/v1/rollouts"):
        page.get_by_role("button", name="Begin from a file").click(timeout=PATIENCE_MS)
    # What is typed before the answer comes is of the next one, and stays.
    form.get_by_label("Name").fill("the next")
    (begun,) = held
    begun.continue_()
    expect(page.get_by_text("from a file has begun.")).to_be_visible(timeout=PATIENCE_MS)
    expect(form.get_by_label("Name")).to_have_value("the next")
    made = service.call("GET", "/v1/rollouts")["rollouts"][0]
    assert (made["name"], made["settings"]) == ("from a file", settings)


def test_a_viewer_begins_no_rollout(service: ControlService, page: Page) -> None:
    sign_in(page, service, service.viewer, at="settings/rollouts")
    expect(page.get_by_text("One change for many terminals")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("form")).to_have_count(0)


def test_a_checkbox_stands_beside_its_text(service: ControlService, page: Page) -> None:
    sign_in(page, service, at="settings/rollouts")
    box = page.get_by_role("checkbox", name="and take away what else was set from afar")
    expect(box).to_be_visible(timeout=PATIENCE_MS)
    for width, height in DESK_AND_PHONE:
        page.set_viewport_size({"width": width, "height": height})
        apart, off, size = box.evaluate(_BESIDE_TEXT)
        assert 0 <= apart <= 12, (width, apart)
        assert off <= 2, (width, off)
        assert size <= 24, (width, size)


# How far the text is from the box, how far their middles are apart, and the box's height, in px.
_BESIDE_TEXT = """box => {
  const words = document.createRange();
  words.selectNodeContents(box.closest("label"));
  words.setStartAfter(box);
  const [of, text] = [box.getBoundingClientRect(), words.getBoundingClientRect()];
  const off = Math.abs(of.top + of.bottom - text.top - text.bottom) / 2;
  return [text.left - of.right, off, of.height];
}"""
