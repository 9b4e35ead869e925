"""A node's own page in a browser, with a real terminal and its hub."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.console import axe
from tests.console.node import HTML, TerminalNode
from tests.console.pages import PATIENCE_MS

pytestmark = pytest.mark.console


@pytest.fixture(scope="module")
def node(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TerminalNode]:
    """A terminal whose path has a hostile name."""
    del browser
    running = TerminalNode(tmp_path_factory.mktemp("node"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def origin() -> Iterator[int]:
    """Yield the port of an origin that serves 200 kB."""

    class Origin(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(bytes(200_000))

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def sign_in(page: Page, node: TerminalNode, role: str = "read") -> None:
    page.goto(node.url)
    page.get_by_label("Token").fill(node.tokens[role])
    page.get_by_role("button", name="Sign in").click()


def link(page: Page) -> Locator:
    return page.get_by_role("article").first


def test_links_are_shown_to_who_may_read_and_a_name_is_no_markup(
    page: Page, node: TerminalNode
) -> None:
    sign_in(page, node)
    expect(link(page)).to_contain_text("up", timeout=PATIENCE_MS)
    expect(link(page)).to_contain_text("20.0 Mbit/s")
    expect(link(page).get_by_role("heading")).to_have_text(HTML)
    expect(page).to_have_title("ipn:10.0 · Underpass")
    assert page.locator("img").count() == 0
    # The log quotes the name too.
    expect(page.locator("#log")).to_contain_text("onerror", timeout=PATIENCE_MS)
    assert page.locator("#log").evaluate("node => node.children.length") == 0


def test_only_a_token_that_may_read_opens_it_and_signing_out_forgets_it(
    page: Page, node: TerminalNode
) -> None:
    page.goto(node.url)
    for token, told in [
        ("not-a-token-of-this-node", "not known"),
        (node.tokens["metrics"], "needs the role read"),
    ]:
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text(told, timeout=PATIENCE_MS)
        expect(page.get_by_role("article")).to_have_count(0)
    sign_in(page, node)
    expect(link(page)).to_be_visible(timeout=PATIENCE_MS)
    # The token lives as long as the tab.
    page.reload()
    expect(link(page)).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_focused()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("sessionStorage.length + localStorage.length") == 0


def test_a_blockage_is_shown_with_its_expected_end_by_the_nodes_clock(
    browser: Browser, node: TerminalNode
) -> None:
    # This browser's clock is a day off.
    context = browser.new_context()
    page = context.new_page()
    page.clock.install(time=datetime.now(UTC) + timedelta(days=1))
    sign_in(page, node)
    expect(link(page)).to_contain_text("up", timeout=PATIENCE_MS)
    now = datetime.now(UTC)
    blockage = {"entry": now.isoformat(), "exit": (now + timedelta(seconds=90)).isoformat()}
    node.silence_hub()
    try:
        path = f"/v1/paths/{quote(HTML, safe='')}/blockages"
        node.call("PUT", path, {"blockages": [blockage]})
        expect(link(page)).to_contain_text("blocked", timeout=PATIENCE_MS)
        expect(link(page)).to_contain_text("plan, for")
        counting = re.compile(r"ends in (1 min )?\d+ s")
        expect(link(page)).to_contain_text(counting, timeout=PATIENCE_MS)
    finally:
        node.wake_hub()
        node.call("PUT", path, {"blockages": []})
    expect(link(page)).to_contain_text("up", timeout=PATIENCE_MS)
    context.close()


def test_clients_throughput_of_the_last_minutes_is_drawn(
    page: Page, node: TerminalNode, origin: int
) -> None:
    sign_in(page, node)
    caption = page.locator("figcaption")
    received = re.compile(r"received in streams \d+\.\d [kM]bit/s")
    for _ in range(15):
        assert len(node.fetch(origin, "/")) == 200_000
        page.wait_for_timeout(1000)
        if received.search(caption.inner_text()):
            break
    expect(caption).to_contain_text(received)
    curve = page.locator("polyline.received")
    points = curve.get_attribute("points") or ""
    heights = {point.split(",")[1] for point in points.split()}
    assert len(heights) > 1, points
    # The curve also shows on a page that is opened later.
    page.reload()
    expect(page.locator("polyline.received")).to_have_count(1, timeout=PATIENCE_MS)


def test_the_log_is_searched(page: Page, node: TerminalNode) -> None:
    sign_in(page, node)
    log = page.locator("#log")
    expect(log).to_contain_text("local API on TCP", timeout=PATIENCE_MS)
    page.get_by_label("With").fill("API on tcp")
    expect(log).to_have_text(re.compile(r"^[^\n]*local API on TCP[^\n]*$"))
    page.get_by_label("With").fill("nothing has this")
    expect(log).to_have_text("")


def test_a_node_that_goes_is_told_and_comes_back(page: Page, node: TerminalNode) -> None:
    sign_in(page, node)
    expect(link(page)).to_be_visible(timeout=PATIENCE_MS)
    node.terminal.stop()
    state = page.locator("#state")
    expect(state).to_contain_text("does not answer", timeout=PATIENCE_MS)
    # A screen reader reads it out once.
    told = state.inner_text()
    page.wait_for_timeout(7_000)
    expect(state).to_have_text(told)
    expect(link(page)).to_be_visible()
    node.start_again()
    expect(state).to_have_text("", timeout=PATIENCE_MS)
    expect(link(page)).to_contain_text("up", timeout=PATIENCE_MS)


def test_everything_is_reached_by_the_keyboard(page: Page, node: TerminalNode) -> None:
    page.goto(node.url)
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(node.tokens["read"])
    page.keyboard.press("Enter")
    expect(link(page)).to_be_visible(timeout=PATIENCE_MS)
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert {"sign-out", "with", "log"} <= set(reached), reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (375, 700)], ids=["desk", "phone"])
def test_axe_finds_nothing(
    browser: Browser, node: TerminalNode, scheme: Any, size: tuple[int, int]
) -> None:
    axe.needed()
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.goto(node.url)
    expect(page.get_by_label("Token")).to_be_visible()
    found = axe.violations(page)
    sign_in(page, node)
    expect(link(page)).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator("polyline")).to_have_count(2, timeout=PATIENCE_MS)
    found += axe.violations(page)
    # Nothing is wider than the screen.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert found == []
