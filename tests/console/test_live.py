"""The console follows a moving fleet, and recovers from every break."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Request, expect

from tests.console.cutting_proxy import CuttingProxy
from tests.console.fleet import HOSTILE, NAMES, Fleet
from tests.console.pages import PATIENCE_MS, go, live, sign_in
from tests.console.service import ControlService, now_ms

# The clock of a browser that is hours off.
_HOURS_OFF = """
const Real = Date;
globalThis.Date = class extends Real {
  constructor(...given) { given.length ? super(...given) : super(Real.now() - 5 * 3600e3); }
  static now() { return Real.now() - 5 * 3600e3; }
};
"""
pytestmark = [pytest.mark.console, pytest.mark.usefixtures("fleet")]


def seconds_of_day(text: str) -> int:
    hours, minutes, seconds = map(int, text.removesuffix(" UTC").split(":"))
    return 3600 * hours + 60 * minutes + seconds


def test_terminals_and_what_they_carry_are_shown_as_it_changes(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service, at="terminals")
    row = page.get_by_role("row", name="Bus 12")
    expect(row).to_contain_text("bit/s", timeout=PATIENCE_MS)
    expect(row.locator(".badge")).to_have_text("up")
    service.call("PUT", "/v1/terminals/12", {"beam": "east", "name": "Renamed 12", "gateway": 1})
    expect(page.get_by_role("link", name="Renamed 12")).to_be_visible(timeout=PATIENCE_MS)
    service.call("PUT", "/v1/terminals/12", {"beam": "east", "name": NAMES[12], "gateway": 1})
    expect(page.get_by_role("link", name=NAMES[12])).to_be_visible(timeout=PATIENCE_MS)


def test_a_name_with_html_in_it_is_text_on_every_page(service: ControlService, page: Page) -> None:
    sign_in(page, service)
    for where in ("map", "terminals", "terminals/14", "beams/east", "events"):
        go(page, where)
        if where != "events":
            expect(page.get_by_text(HOSTILE).first).to_be_visible(timeout=PATIENCE_MS)
    go(page, "map/14")
    expect(page.get_by_label("Selected vehicle")).to_contain_text(HOSTILE, timeout=PATIENCE_MS)
    assert page.evaluate("window.harmed") is None
    assert page.locator("img").count() == 0


def test_times_are_the_services_whatever_the_browsers_clock_says(
    service: ControlService, page: Page
) -> None:
    page.add_init_script(_HOURS_OFF)
    sign_in(page, service)
    assert abs(page.evaluate("Date.now()") - now_ms()) > 4 * 3_600_000
    shown = page.locator(".connection time").inner_text()
    assert abs(seconds_of_day(shown) - now_ms() // 1000 % 86_400) % 86_400 <= 3
    # The log of the last hour's blockages uses the service's clock, too.
    go(page, "terminals/11")
    age = re.compile(r"Last report\s*-?[0-9]\.\d s ago")
    expect(page.get_by_label("Forward: to the terminal")).to_contain_text(
        age, timeout=PATIENCE_MS, use_inner_text=True
    )


def test_a_stream_that_is_cut_is_resumed_where_it_was(service: ControlService, page: Page) -> None:
    with CuttingProxy(service.port) as proxy:
        asked: list[Request] = []
        page.on("request", lambda request: asked.append(request))
        sign_in(page, service, url=proxy.url, at="terminals")
        expect(page.get_by_role("row", name="Bus 12")).to_contain_text("bit/s", timeout=PATIENCE_MS)
        del asked[:]
        proxy.cut()
        expect(page.locator(".connection .badge")).to_contain_text("not live")
        live(page)
        streams = [one for one in asked if one.url.endswith("/v1/events")]
        assert streams[-1].headers["last-event-id"]
        # No event was missed, so the state is not read again.
        assert not [one for one in asked if "/v1/terminals" in one.url or "/v1/beams?" in one.url]


def test_a_service_that_was_killed_is_found_again_and_read_anew(
    service: ControlService, page: Page, fleet: Fleet
) -> None:
    sign_in(page, service, at="terminals")
    expect(page.get_by_role("link", name=NAMES[12])).to_be_visible(timeout=PATIENCE_MS)
    service.process.kill()
    status = page.locator(".connection").get_by_role("status")
    expect(status).to_contain_text("not live", timeout=PATIENCE_MS)
    # The last known state stays on the page.
    expect(page.get_by_role("link", name=NAMES[12])).to_be_visible()
    # A screen reader reads out the new status once, not every second.
    expect(status).to_have_text("not live: the service is not reached", timeout=PATIENCE_MS)
    page.wait_for_timeout(2000)
    expect(status).to_have_text("not live: the service is not reached")
    expect(page).to_have_title("Terminals · Underpass")
    with page.expect_request(lambda asked: "/v1/terminals?" in asked.url, timeout=PATIENCE_MS):
        service.start()
        live(page)
    row = page.get_by_role("row", name="Bus 12")
    expect(row).to_contain_text("bit/s", timeout=PATIENCE_MS)
    assert fleet.drive.fixes


def test_a_log_that_could_not_be_loaded_is_not_shown_as_empty(
    service: ControlService, page: Page
) -> None:
    page.route("**/assets/event-log*.js", lambda route: route.abort())
    sign_in(page, service, at="events")
    told = page.get_by_role("alert")
    expect(told).to_contain_text("The log of events could not be loaded", timeout=PATIENCE_MS)
    expect(page.get_by_text("0 since this console was opened")).to_have_count(0)


def test_pages_that_were_not_seen_yet_are_there_when_the_service_is_not(
    service: ControlService, page: Page, fleet: Fleet
) -> None:
    assert fleet.drive.fixes
    with page.expect_response(lambda answer: "beams-page" in answer.url) as loaded:
        sign_in(page, service)
    # Wait until the page's script is loaded with its imports.
    page.evaluate("url => import(url).then(() => null)", loaded.value.url)
    service.process.kill()
    expect(page.locator(".connection .badge")).to_contain_text("not live", timeout=PATIENCE_MS)
    go(page, "beams")
    expect(page.get_by_role("heading", name="Beams")).to_be_visible()
    service.start()
    live(page)
