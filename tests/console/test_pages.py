"""The pages: the map, a beam, a terminal, the events; and their accessibility."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect
from underpass_control.instants import moment_of, rfc3339

from tests.console import axe
from tests.console.fleet import Fleet
from tests.console.pages import PATIENCE_MS, go, live, sign_in
from tests.console.service import ControlService, now_ms

_PAGES = (
    *("map/11", "beams", "beams/east", "beams/east?link=return", "beams/nowhere"),
    *("terminals", "terminals/11", "gateways", "gateways/1", "events", "alerts"),
    *("access/users", "access/tokens", "access/tenants", "access/changes", "account"),
    *("settings/terminals", "settings/enrolments"),
)
pytestmark = pytest.mark.console


@pytest.fixture
def console(service: ControlService, fleet: Fleet, page: Page) -> Iterator[Page]:
    """A page with the operator signed in."""
    del fleet
    sign_in(page, service)
    yield page


def pixels(of: Locator) -> np.ndarray[Any, np.dtype[np.int16]]:
    return np.asarray(Image.open(io.BytesIO(of.screenshot())).convert("RGB")).astype(np.int16)


def near(of: Locator, colour: tuple[int, int, int]) -> int:
    return int((np.abs(pixels(of) - np.array(colour)).max(axis=2) < 6).sum())


def until(happens: Callable[[], bool], page: Page) -> None:
    for _ in range(60):
        if happens():
            return
        page.wait_for_timeout(500)
    raise AssertionError("it has not happened within half a minute")


def add_van(service: ControlService, node: int) -> None:
    """Add a terminal to another beam, so that the fleet's shares stay as they are."""
    beam = {"name": "Vans", "forward_capacity_bps": 8_000_000, "return_capacity_bps": 2_000_000}
    service.call("PUT", "/v1/beams/vans", beam)
    van = {"beam": "vans", "name": f"Van {node}", "gateway": 1}
    service.call("PUT", f"/v1/terminals/{node}", van)


def test_the_map_shows_the_vehicle_with_the_blockage_ahead_of_it_counting_down(
    console: Page,
) -> None:
    canvas = console.locator(".maplibregl-canvas")
    expect(canvas).to_be_visible(timeout=PATIENCE_MS)
    label = console.locator(".countdown")
    counting = re.compile(r"^Bus 11: (in \d+:\d\d for|for) \d+ s")
    expect(label).to_have_text(counting, timeout=PATIENCE_MS)
    first = label.inner_text()
    until(lambda: label.inner_text() != first, console)
    assert label.evaluate("node => node.children.length") == 0
    # The covered road ahead is red; the vehicle is amber or, inside, red.
    until(lambda: near(canvas, (179, 38, 30)) > 200, console)
    before = pixels(canvas)
    until(lambda: bool((pixels(canvas) != before).any()), console)


def test_a_vehicle_that_moves_has_the_map_below_it_not_drawn_again(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    del fleet
    page.add_init_script(_COUNT_CLEARS)
    sign_in(page, service)
    expect(page.locator(".maplibregl-canvas")).to_be_visible(timeout=PATIENCE_MS)
    # At a high zoom the vehicle moves fast on the screen.
    go(page, "map/11")
    for _ in range(4):
        page.get_by_role("button", name="Zoom in").click()
        page.wait_for_timeout(700)
    page.evaluate("clears.splice(0)")

    def vehicles_alone() -> bool:
        clears = page.evaluate("clears")
        of_map = clears.count("maplibregl-canvas")
        return bool(len(clears) - of_map > max(20, 3 * of_map))

    until(vehicles_alone, page)


_COUNT_CLEARS = """(() => {
  const seen = globalThis.clears = [];
  const { clear } = WebGL2RenderingContext.prototype;
  WebGL2RenderingContext.prototype.clear = function (mask) {
    if (mask & this.COLOR_BUFFER_BIT) seen.push(this.canvas.className);
    clear.call(this, mask);
  };
})()"""


def test_a_vehicle_is_chosen_from_the_list_and_its_history_is_drawn(console: Page) -> None:
    canvas = console.locator(".maplibregl-canvas")
    expect(canvas).to_be_visible(timeout=PATIENCE_MS)
    console.get_by_role("link", name="Bus 11").first.click()
    card = console.get_by_label("Selected vehicle")
    expect(card).to_contain_text("km/h", timeout=PATIENCE_MS)
    until(lambda: near(canvas, (47, 115, 192)) + near(canvas, (59, 123, 196)) > 40, console)


def test_a_history_of_many_fixes_is_read_whole_once_and_then_what_is_new(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    del fleet
    add_van(service, 17)
    count, now = 2_400, now_ms()
    for first in range(0, count, 400):
        fixes = [
            {
                "terminal": 17,
                "time": rfc3339(moment_of(now - 1_000 * (count - one))),
                "longitude": 7.4 + one / 50_000,
                "latitude": 46.9,
            }
            for one in range(first, first + 400)
        ]
        service.call("POST", "/v1/positions", {"positions": fixes}, service.gateway)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    sign_in(page, service, at="map/17")

    def read() -> list[bool]:
        return ["cursor=" in url for url in asked if "/terminals/17/positions" in url]

    until(lambda: len(read()) >= 5, page)
    assert read()[:5] == [False, True, True, False, False]


def test_a_long_history_is_thinned_by_the_service(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    axe.needed()
    del fleet
    sign_in(page, service, at="map/11")
    card = page.get_by_label("Selected vehicle")
    spans = {"12 h": "apart_s=15&", "24 h": "apart_s=29&", "all that is kept": "[?]limit=1$"}
    for span, asked in spans.items():
        with page.expect_request(re.compile(f"/terminals/11/positions.*{asked}")):
            card.get_by_label("Its way of").select_option(label=span)
    expect(card.get_by_role("alert")).to_have_count(0)
    assert not axe.violations(page)


def test_a_beams_past_hours_are_shown_by_some_of_its_plans(console: Page) -> None:
    axe.needed()
    asked: list[str] = []
    console.on("request", lambda request: asked.append(request.url))
    go(console, "beams/east")
    over_time = console.get_by_role("region", name="Capacity over time")
    over_time.get_by_label("Shown").select_option(label="the last 2 h")
    chart = over_time.get_by_role("img", name=re.compile("^Capacity in the past"))
    expect(chart).to_be_visible(timeout=PATIENCE_MS)
    expect(over_time).to_contain_text("moments 2 min 0 s apart")
    assert len([url for url in asked if "/plans/forward?at=" in url]) <= 61
    fairness = console.get_by_label("In the last")
    fairness.select_option(label="2 h")
    expect(fairness).to_have_value("1")
    assert not axe.violations(console)
    over_time.get_by_label("Shown").select_option(label="now and what is planned")
    expect(over_time.get_by_role("img", name=re.compile("^Capacity over time"))).to_be_visible()


def test_a_beam_shows_who_lends_and_why_a_terminal_has_its_rate(console: Page) -> None:
    go(console, "beams/east")
    chart = console.locator("section[aria-label='Capacity over time'] canvas").first
    expect(chart).to_be_visible(timeout=PATIENCE_MS)
    # Bands of all four terminals.
    until(lambda: len(np.unique(pixels(chart).reshape(-1, 3), axis=0)) > 12, console)
    why = console.get_by_role("region", name="Why does a terminal have its rate?")
    choice = why.get_by_label("Terminal", exact=True)
    choice.select_option(label="Bus 11")
    expect(why).to_contain_text("Its rate is", timeout=PATIENCE_MS)
    expect(why).to_contain_text("its fair share would be 2 Mbit/s")
    choice.select_option(label="Bus 12")
    expect(why).to_contain_text(re.compile("lends|is repaid|max-min"), timeout=PATIENCE_MS)
    legend = why.get_by_text("Symbols of the paper")
    legend.focus()
    console.keyboard.press("Enter")
    symbols = why.locator("details dt")
    expect(symbols).to_have_text(["Tr", "Tt", "Du", "Db", "Dr"])
    expect(symbols.first).to_be_visible()


def test_a_beam_that_is_not_seen_reads_no_plans(console: Page) -> None:
    go(console, "beams/east")
    expect(console.get_by_text("The dashed line is now")).to_be_visible(timeout=PATIENCE_MS)
    console.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    # What was being read ends.
    console.wait_for_timeout(5_000)
    asked: list[str] = []
    console.on("request", lambda request: asked.append(request.url))
    console.wait_for_timeout(12_000)
    assert not [url for url in asked if "/v1/beams/east/" in url]
    with console.expect_request(lambda asked: "/v1/beams/east/plans" in asked.url):
        console.evaluate("delete document.hidden")


def test_what_if_plans_another_blockage_and_changes_nothing(
    console: Page, service: ControlService
) -> None:
    go(console, "beams/east")
    form = console.get_by_role("region", name="What if?")
    form.get_by_label("Terminal", exact=True).select_option(label="Bus 12")
    form.get_by_label("blocked in, s").fill("20")
    form.get_by_label("for, s", exact=True).fill("40")
    form.get_by_role("button").click()
    table = form.get_by_role("region", name="What each terminal would have")
    expect(table.get_by_role("row", name="Bus 12")).to_contain_text("bit", timeout=PATIENCE_MS)
    form.get_by_label("blocked in, s").fill("3599")
    form.get_by_label("for, s", exact=True).fill("3600")
    blockages = service.call("GET", "/v1/blockages?terminal=12")["blockages"]
    assert blockages == []


def test_a_blockage_is_dragged_and_planned_when_it_is_let_go(console: Page) -> None:
    go(console, "beams/east")
    form = console.get_by_role("region", name="What if?")
    form.get_by_label("Terminal", exact=True).select_option(label="Bus 12")
    bar = form.locator(".blockage-bar")
    # Wait until the page stops moving it.
    bar.locator(".blocked").hover()
    box, blocked = bar.bounding_box(), bar.locator(".blocked").bounding_box()
    assert box is not None
    assert blocked is not None
    console.mouse.down()
    # By a quarter of the line, which is two minutes long.
    console.mouse.move(blocked["x"] + blocked["width"] / 2 + box["width"] / 4, blocked["y"] + 5)
    console.mouse.up()
    expect(form.get_by_label("blocked in, s")).to_have_value("60")
    expect(form.get_by_label("for, s", exact=True)).to_have_value("30")
    table = form.get_by_role("region", name="What each terminal would have")
    expect(table.get_by_role("row", name="Bus 12")).to_contain_text("bit", timeout=PATIENCE_MS)
    slider = form.get_by_role("slider", name="Blocked until")
    slider.press("ArrowRight")
    expect(form.get_by_label("for, s", exact=True)).to_have_value("31")
    # The user may move it on before the answer comes: the service plans for the final place.
    asked: list[str] = []
    console.on(
        "request",
        lambda one: asked.append(one.post_data or "") if "/what-if" in one.url else None,
    )
    for _ in range(3):
        slider.press("ArrowRight")
    expect(form.get_by_label("for, s", exact=True)).to_have_value("34")
    until(lambda: bool(asked) and _blocked_s(asked[-1]) == pytest.approx(34, abs=0.01), console)


def _blocked_s(question: str) -> float:
    (blockage,) = json.loads(question)["blockages"]
    entry, exit_ = (datetime.fromisoformat(blockage[name]) for name in ("entry", "exit"))
    return (exit_ - entry).total_seconds()


def test_a_blockage_is_announced_for_a_terminal_and_withdrawn(
    console: Page, service: ControlService
) -> None:
    go(console, "terminals/13")
    blockages = console.get_by_role("region", name="Blockages", exact=True)
    form = blockages.get_by_role("form", name="Announce a blockage")
    form.get_by_label("Blocked in, s").fill("300")
    form.get_by_label("for, s", exact=True).fill("45")
    form.get_by_role("button", name="Announce").click()
    expect(blockages.get_by_role("status")).to_contain_text("Announced", timeout=PATIENCE_MS)
    row = blockages.get_by_role("row").filter(has_text="announced").first
    expect(row).to_contain_text("45.0 s", timeout=PATIENCE_MS)
    row.get_by_role("button").click()
    expect(blockages.get_by_role("status")).to_contain_text("Withdrawn", timeout=PATIENCE_MS)
    # No other test has a blockage of this terminal ahead.
    until(lambda: not _expected(service, 13), console)


def test_what_is_set_of_a_terminal_from_afar_is_shown(
    console: Page, service: ControlService
) -> None:
    go(console, "terminals/14")
    card = console.get_by_role("region", name=re.compile("^Set from afar"))
    expect(card).to_contain_text("as its own configuration has it", timeout=PATIENCE_MS)
    settings = {"classes": [{"name": "bulk", "weight": 5}]}
    service.call("PUT", "/v1/terminals/14/settings", settings)
    expect(card).to_contain_text("class bulk: weight: 5", timeout=PATIENCE_MS)
    expect(card).to_contain_text("waiting")


def _expected(service: ControlService, node: int) -> list[Any]:
    path = f"/v1/blockages?terminal={node}&state=predicted"
    found: list[Any] = service.call("GET", path)["blockages"]
    return found


def test_a_terminal_shows_both_directions_and_the_plan_in_force(console: Page) -> None:
    go(console, "terminals/11")
    forward = console.get_by_role("region", name="Forward: to the terminal")
    expect(forward).to_contain_text("400 kB in 3 streams", timeout=PATIENCE_MS)
    expect(forward).to_contain_text("652 ms, of which 40 ms in the link's queue")
    expect(forward).to_contain_text("0.5 % by the link itself")
    expect(forward).to_contain_text("7 bundles, 400 kB")
    classes = forward.get_by_role("region", name="Classes of the forward link")
    expect(classes.get_by_role("row", name="bulk")).to_contain_text("many")
    chart = forward.get_by_role("img", name="Rates, forward")
    expect(chart.locator("canvas")).to_be_visible()
    expect(forward).to_contain_text("Times are UTC.")
    until(lambda: near(chart, (10, 91, 181)) > 20, console)
    plan = console.get_by_role("region", name="Plan in force of the return link")
    expect(plan).to_contain_text("Its rate is", timeout=PATIENCE_MS)
    blockages = console.get_by_role("region", name="Blockages", exact=True)
    expect(blockages).to_contain_text("osm:way/1003", timeout=PATIENCE_MS)


def test_a_terminal_shows_its_software_and_certificate_and_its_last_words(
    console: Page, service: ControlService
) -> None:
    go(console, "terminals/12")
    itself = console.get_by_role("region", name="Software and certificate")
    expect(itself).to_contain_text("1.2.3", timeout=PATIENCE_MS)
    expect(itself).to_contain_text("29 days left")
    console.once("dialog", lambda asked: asked.accept())
    itself.get_by_role("button", name="Revoke its certificates").click()
    expect(itself.get_by_role("alert")).to_contain_text("no authority", timeout=PATIENCE_MS)
    heard = console.get_by_role("region", name="Heard")
    expect(heard).to_contain_text("400 kB in 3 streams", timeout=PATIENCE_MS)
    # The terminal is silent, though its gateway still reports about it.
    terminal = {"beam": "east", "name": "Van 15", "gateway": 1}
    service.call("PUT", "/v1/terminals/15", terminal)
    link = {"terminal": 15, "path": "ka", "direction": "return", "state": "up", "streams": 7}
    counts = {"offered_bytes": 9, "backlogged_bytes": 5_000, "sent_bytes": 4}
    made = {"kind": "status", "uptime_ms": 1, "incarnation": 1, "links": [{**link, **counts}]}
    post = {"version": 1, "node": 1, "sent_ms": 1, "reports": []}
    post["reports"] = [{"node": 15, "age_ms": 0, "report": made}]
    service.call("POST", "/v1/reports", post, service.gateway)
    go(console, "terminals/15")
    words = console.get_by_role("region", name="Last words before silence")
    expect(words).to_contain_text("5 kB in 7 streams", timeout=60_000)
    expect(words).to_contain_text("path ka")
    # Its last report, that its link was up, is out of date.
    expect(console.get_by_role("heading", name="Van 15")).to_contain_text("silent")
    itself = console.get_by_role("region", name="Software and certificate")
    expect(itself).to_contain_text("It has said nothing of itself yet.")
    # Its equipment may be lost all the same.
    expect(itself.get_by_role("button", name="Revoke its certificates")).to_be_visible()


def test_a_terminal_is_removed_once_that_is_confirmed(
    console: Page, service: ControlService
) -> None:
    add_van(service, 18)
    go(console, "terminals/18")
    button = console.get_by_role("button", name="Remove the terminal")
    console.once("dialog", lambda asked: asked.dismiss())
    button.click(timeout=PATIENCE_MS)
    assert service.call("GET", "/v1/terminals/18")["name"] == "Van 18"
    console.once("dialog", lambda asked: asked.accept())
    button.click()
    expect(console.get_by_text("There is no terminal 18 here")).to_be_visible(timeout=PATIENCE_MS)
    found = service.call("GET", "/v1/terminals?beam=vans")["terminals"]
    assert 18 not in [one["node"] for one in found]


def test_events_are_filtered_and_lead_to_the_map(console: Page, service: ControlService) -> None:
    go(console, "events")
    terminal = {"beam": "east", "name": "Ambulance 13", "weight": 2, "gateway": 1}
    service.call("PUT", "/v1/terminals/13", terminal)
    console.get_by_label("Kind").select_option("terminal")
    row = console.get_by_role("row", name="Ambulance 13")
    expect(row.first).to_contain_text("terminal", timeout=PATIENCE_MS)
    console.get_by_label("With").fill("nothing has this")
    expect(row).to_have_count(0)
    console.get_by_label("With").fill("ambulance")
    row.first.get_by_role("link", name="map").click()
    expect(console.get_by_label("Selected vehicle")).to_contain_text("Ambulance 13")


def test_events_have_the_blockages_of_before_the_console_was_opened(
    service: ControlService, fleet: Fleet, page: Page
) -> None:
    del fleet
    add_van(service, 16)
    now = now_ms()
    said = {
        "kind": "blockage",
        "path": "ka",
        "source": "probing",
        "direction": "return",
        "terminal": 16,
        "entry_ms": now - 60_000,
        "exit_ms": now - 48_000,
        "uptime_ms": 1,
        "incarnation": 1,
    }
    reports = [{"node": 16, "age_ms": 0, "report": said}]
    post = {"version": 1, "node": 1, "sent_ms": now, "reports": reports}
    service.call("POST", "/v1/reports", post, service.gateway)
    sign_in(page, service, at="events")
    page.get_by_label("With").fill("van 16")
    rows = page.get_by_role("region", name="List of events").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("free again after 12.0 s", timeout=PATIENCE_MS)
    expect(rows.nth(2)).to_contain_text("blocked (return link, by probing)")


def test_older_events_are_shown_on_demand(service: ControlService, page: Page) -> None:
    add_van(service, 19)
    sign_in(page, service, at="events")
    van = {"beam": "vans", "name": "Van 19", "gateway": 1}
    for count in range(302):
        service.call("PUT", "/v1/terminals/19", {**van, "weight": 2 - count % 2})
    page.get_by_label("Kind").select_option("terminal")
    page.get_by_label("With").fill("van 19")
    rows = page.get_by_role("region", name="List of events").locator("tbody tr")
    older = page.get_by_role("button", name="older")
    expect(older).to_be_visible(timeout=PATIENCE_MS)
    expect(rows).to_have_count(300)
    expect(older).to_have_text("Show 2 older", timeout=PATIENCE_MS)
    older.press("Enter")
    expect(rows).to_have_count(302)
    expect(older).to_have_count(0)
    expect(page.locator("#content")).to_be_focused()


def test_a_terminals_older_blockages_are_shown_on_demand(
    service: ControlService, page: Page
) -> None:
    add_van(service, 20)
    now = now_ms()
    reports = [
        {
            "node": 20,
            "age_ms": 0,
            "report": {
                "kind": "blockage",
                "path": "ka",
                "source": "probing",
                "direction": "return",
                "terminal": 20,
                "entry_ms": now - 60_000 * place,
                "exit_ms": now - 60_000 * place + 12_000,
                "uptime_ms": 1,
                "incarnation": 1,
            },
        }
        for place in range(1, 41)
    ]
    post = {"version": 1, "node": 1, "sent_ms": now, "reports": reports}
    service.call("POST", "/v1/reports", post, service.gateway)
    sign_in(page, service, at="terminals/20")
    rows = page.get_by_role("region", name="Blockages, the newest first").locator("tbody tr")
    expect(rows).to_have_count(30, timeout=PATIENCE_MS)
    older = page.get_by_role("button", name="older blockages")
    # While older ones cannot be read, nobody knows that there are none.
    page.route("**/v1/blockages?*limit=120", lambda route: route.abort())
    older.press("Enter")
    card = page.get_by_role("region", name="Blockages", exact=True)
    expect(card).to_contain_text("not reached", timeout=PATIENCE_MS)
    expect(card.get_by_role("button", name="reading…")).to_be_focused()
    expect(rows).to_have_count(30)
    page.unroute("**/v1/blockages?*limit=120")
    expect(rows).to_have_count(40, timeout=PATIENCE_MS)
    expect(older).to_have_text("No older blockages are shown here")
    expect(older).to_be_focused()


def test_everything_is_reached_by_the_keyboard(console: Page) -> None:
    go(console, "terminals")
    expect(console.get_by_role("link", name="Bus 11")).to_be_visible()
    console.keyboard.press("Tab")
    expect(console.get_by_role("link", name="To the content")).to_be_focused()
    console.keyboard.press("Enter")
    expect(console.locator("#content")).to_be_focused()
    reached = []
    # Other tests have added terminals that come before it.
    for _ in range(20):
        console.keyboard.press("Tab")
        reached.append(console.evaluate("document.activeElement.textContent.trim()"))
    assert "Bus 11" in reached


def test_the_keyboard_goes_on_in_the_page_that_a_link_leads_to(console: Page) -> None:
    go(console, "terminals")
    console.get_by_role("link", name="Bus 11").press("Enter")
    expect(console.get_by_role("heading", name="Bus 11")).to_be_visible(timeout=PATIENCE_MS)
    expect(console.locator("#content")).to_be_focused()


def test_an_obstruction_is_selected_by_the_keyboard(console: Page) -> None:
    axe.needed()
    go(console, "map/11")
    expect(console.get_by_label("Selected vehicle")).to_be_visible(timeout=PATIENCE_MS)
    shown = console.locator(".in-view")
    shown.locator("summary").press("Enter", timeout=PATIENCE_MS)
    # The map flies to the vehicle, and other obstructions come into view.
    console.wait_for_timeout(1500)
    shown.get_by_role("button").first.press("Enter")
    chosen = shown.get_by_role("button", pressed=True)
    expect(chosen).to_be_focused()
    title, _, kind = chosen.inner_text().rpartition(", ")
    card = console.get_by_label("Selected obstruction")
    expect(card.get_by_role("heading")).to_have_text(title)
    expect(card).to_contain_text(kind)
    expect(console.get_by_label("Selected vehicle")).to_have_count(0)
    expect(console.get_by_text(f"Selected: {title}", exact=True)).to_have_attribute(
        "role", "status"
    )
    axe.no_violations(console)
    # What is selected is left by its button, by pressing it again, and by Escape.
    card.get_by_role("button", name="Close").press("Enter")
    expect(card).to_have_count(0)
    expect(console.get_by_role("region", name="Map of the vehicles")).to_be_focused()
    first = shown.get_by_role("button").first
    first.press("Enter")
    expect(card).to_be_visible()
    first.press("Enter")
    expect(card).to_have_count(0)
    expect(first).to_be_focused()
    first.press("Enter")
    first.press("Escape")
    expect(card).to_have_count(0)


def test_a_list_in_another_order_leaves_the_keyboard_where_it_was(console: Page) -> None:
    go(console, "terminals")
    rows = console.get_by_role("region", name="List of terminals").locator("tbody tr")
    link = console.get_by_role("link", name="Bus 12", exact=True)
    link.focus()
    # As when the terminal's state has changed: its row is moved, which takes the focus from it.
    rows.filter(has=link).evaluate("row => row.parentElement.append(row)")
    expect(link).to_be_focused()
    # And as when another user has removed it.
    rows.filter(has=link).evaluate("row => row.querySelector('a').remove()")
    expect(console.get_by_role("region", name="List of terminals")).to_be_focused()


def test_the_row_of_the_chosen_vehicle_is_told_by_more_than_a_colour(console: Page) -> None:
    go(console, "map/11")
    chosen = console.locator("tr.selected a")
    expect(chosen).to_have_attribute("aria-current", "true", timeout=PATIENCE_MS)
    expect(console.locator("td a[aria-current], th a[aria-current]")).to_have_count(1)


def test_no_obstructions_are_listed_where_the_view_is_too_wide_to_read_them(console: Page) -> None:
    go(console, "map/11")
    shown = console.locator(".in-view")
    expect(shown).to_be_visible(timeout=PATIENCE_MS)
    zoom_out = console.get_by_role("button", name="Zoom out")
    # At the widest view the button is disabled, and a click on it an error.
    while shown.count():
        zoom_out.click()
        # The map moves, and then reads what is in view.
        console.wait_for_timeout(1500)
    expect(zoom_out).to_be_enabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (375, 700)], ids=["desk", "phone"])
def test_axe_finds_nothing_on_any_page(
    browser: Browser, service: ControlService, fleet: Fleet, scheme: Any, size: tuple[int, int]
) -> None:
    axe.needed()
    del fleet
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.goto(service.url)
    expect(page.get_by_label("Token")).to_be_visible()
    found = {"sign in": axe.violations(page)}
    page.goto(f"{service.url}#token={service.token('administrator')}")
    live(page)
    for where in _PAGES:
        go(page, where)
        page.wait_for_timeout(1500)
        found[where] = axe.violations(page)
        # Nothing is wider than the screen.
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), where
    context.close()
    assert {where: what for where, what in found.items() if what} == {}
