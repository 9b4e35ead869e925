"""The cost of the console's first load: bytes, and requests that wait for each other."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Worker, expect

from tests.console.fleet import Fleet
from tests.console.pages import PATIENCE_MS, live
from tests.console.service import ControlService

# The hop has a round trip of 600 ms: TCP and TLS 1.3 take one each, and so does the page.
_MOST_BYTES = 200_000
# What a sender may send before the first acknowledgement: ten segments (RFC 6928).
_FIRST_FLIGHT_BYTES = 10 * 1440
_MOST_MAP_BYTES = 500_000
pytestmark = pytest.mark.console


class Traffic:
    """What a page loads, counted as on the network."""

    def __init__(self, page: Page) -> None:
        self._of: dict[str, str] = {}
        self.bytes: dict[str, int] = {}
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.requestWillBeSent", self._asked)
        session.on("Network.loadingFinished", self._loaded)

    def _asked(self, event: dict[str, Any]) -> None:
        self._of[event["requestId"]] = event["request"]["url"]

    def _loaded(self, event: dict[str, Any]) -> None:
        url = self._of[event["requestId"]]
        if not url.startswith(("data:", "blob:")):
            self.bytes[url] = int(event["encodedDataLength"])


def test_the_form_is_there_with_the_page_alone_and_all_else_is_two_requests_of_one_flight(
    service: ControlService, browser: Browser
) -> None:
    context = browser.new_context()
    page = context.new_page()
    held: list[Any] = []
    page.route("**/assets/index*.js", lambda route: held.append(route))
    traffic = Traffic(page)
    page.goto(service.url, wait_until="commit")
    page.get_by_label("Token").fill(service.viewer)
    page.get_by_role("button", name="Sign in").click()
    assert [url for url in traffic.bytes if "/assets/" in url] == []
    # A user who sends the form before the script is loaded is signed in once it is.
    for _ in range(100):
        if held:
            break
        page.wait_for_timeout(100)
    (route,) = held
    before = dict(traffic.bytes)
    route.continue_()
    live(page)
    context.close()
    assert list(before) == [service.url], before
    script = next(size for url, size in traffic.bytes.items() if "/assets/index" in url)
    assert max(before[service.url], script) <= _FIRST_FLIGHT_BYTES, traffic.bytes


@pytest.mark.usefixtures("fleet")
def test_the_list_is_usable_without_the_map_and_the_map_comes_after_it(
    service: ControlService, browser: Browser, fleet: Fleet
) -> None:
    del fleet
    context = browser.new_context()
    page = context.new_page()
    held: list[Any] = []
    page.route("**/assets/map-view*.js", lambda route: held.append(route))
    workers: list[Worker] = []
    page.on("worker", lambda worker: workers.append(worker))
    traffic = Traffic(page)
    page.goto(f"{service.url}#token={service.viewer}")
    # The map's script does not come: the list shows all the same.
    expect(page.get_by_role("row", name="Bus 11")).to_contain_text("bit/s", timeout=PATIENCE_MS)
    before = dict(traffic.bytes)
    assert sum(size for url, size in before.items() if "map" not in url) <= _MOST_BYTES
    for route in held:
        route.continue_()
    expect(page.locator(".maplibregl-canvas")).to_be_visible(timeout=PATIENCE_MS)
    page.wait_for_timeout(3000)
    context.close()
    of_map = {url: size for url, size in traffic.bytes.items() if "map" in url}
    # The page's debugging session does not see what a worker loads.
    (worker,) = [worker.url for worker in workers if "/assets/" in worker.url][:1]
    path = "/" + worker.removeprefix(service.url)
    _, headers, content = service.request("GET", path, None, {"Accept-Encoding": "br"})
    assert headers["Content-Encoding"] == "br"
    of_map[worker] = len(content)
    assert len(of_map) >= 3, of_map
    assert sum(of_map.values()) <= _MOST_MAP_BYTES, of_map


def test_what_has_been_loaded_once_is_not_loaded_again(
    service: ControlService, browser: Browser
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(service.url)
    expect(page.get_by_label("Token")).to_be_visible()
    traffic = Traffic(page)
    page.goto(service.url + "?again")
    expect(page.get_by_label("Token")).to_be_visible()
    page.wait_for_timeout(500)
    context.close()
    assert sum(size for url, size in traffic.bytes.items() if "/assets/" in url) == 0
