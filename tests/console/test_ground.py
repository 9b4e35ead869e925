"""The map's ground: tiles from the service, light and dark, removed with their map."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
import shapely
from playwright.sync_api import Page, expect
from underpass_control.tiles.encoding import TileContent, encoded
from underpass_control.tiles.grid import EXTENT, Tile, pieces, projected
from underpass_control.tiles.kinds import LAYERS
from underpass_control.tiles.sequence import to_text

from tests.console.pages import PATIENCE_MS, sign_in
from tests.console.service import ControlService
from tests.console.test_pages import near, until

pytestmark = pytest.mark.console

_ZOOM = 10
_WATER_LIGHT, _WATER_DARK = (188, 215, 238), (29, 58, 84)
_PATH = "/v1/maps/a%20%3Cb%3Emap%3C%2Fb%3E%20%26%20more"


def flood(service: ControlService) -> None:
    """Import a map whose ground is all water, with a town in it."""
    tiles = {
        one.tile
        for part in projected(shapely.box(-31.0, 45.0, -29.0, 47.0))
        for one in pieces(part, _ZOOM, _ZOOM, 1_000)
    }
    water = shapely.box(-64, -64, EXTENT + 64, EXTENT + 64)
    town = '{"class": "town", "name": "<i>Port</i> São João", "rank": 1}'
    content = encoded(
        [
            (LAYERS.index("water"), '{"class": "lake"}', water),
            (LAYERS.index("places"), town, shapely.Point(EXTENT / 2, EXTENT / 2)),
        ]
    )
    assert content is not None
    packed = gzip.compress(content)
    texts = b"".join(to_text(TileContent(Tile(*one), packed)) for one in sorted(tiles))
    headers = {
        "Authorization": f"Bearer {service.operator}",
        "Content-Type": "application/json-seq",
    }
    status, _, answer = service.request("PUT", f"{_PATH}/tiles", texts.decode(), headers)
    assert status == 200, answer


@pytest.fixture
def flooded(service: ControlService) -> Iterator[None]:
    """The map, while a test runs."""
    flood(service)
    yield
    headers = {"Authorization": f"Bearer {service.operator}"}
    service.request("DELETE", _PATH, None, headers)


@pytest.mark.usefixtures("fleet", "flooded")
def test_the_ground_is_drawn_in_both_themes_and_goes_with_its_map(
    service: ControlService, page: Page
) -> None:
    errors: list[str] = []
    page.on("console", lambda said: errors.append(f"{said.text} {said.location}"))
    sign_in(page, service, service.viewer)
    canvas = page.locator(".maplibregl-canvas")
    expect(canvas).to_be_visible(timeout=PATIENCE_MS)
    credit = page.get_by_role("link", name="OpenStreetMap contributors")
    expect(credit).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Light").or_(page.get_by_role("button", name="Dark")).click()
    theme = page.locator("html").get_attribute("data-theme")
    colours = (_WATER_LIGHT, _WATER_DARK)
    first, second = colours if theme == "light" else colours[::-1]
    until(lambda: near(canvas, first) > 50_000, page)
    page.get_by_role("button", name="Light").or_(page.get_by_role("button", name="Dark")).click()
    until(lambda: near(canvas, second) > 50_000, page)
    service.call("DELETE", _PATH)
    until(lambda: near(canvas, second) < 500, page)
    # The island's own ground is still there.
    expect(credit).to_be_visible()
    assert not [one for one in errors if "/tiles/" in one or "maplibre" in one.lower()]


@pytest.mark.usefixtures("fleet")
def test_tiles_that_come_later_are_shown_at_once_and_those_of_the_island_are_its_roads(
    service: ControlService, page: Page
) -> None:
    sign_in(page, service)
    canvas = page.locator(".maplibregl-canvas")
    expect(canvas).to_be_visible(timeout=PATIENCE_MS)
    expect(page.get_by_role("link", name="OpenStreetMap contributors")).to_be_visible(
        timeout=PATIENCE_MS
    )
    flood(service)
    until(lambda: near(canvas, _WATER_LIGHT) + near(canvas, _WATER_DARK) > 50_000, page)
    service.call("DELETE", _PATH)
    until(lambda: near(canvas, _WATER_LIGHT) + near(canvas, _WATER_DARK) < 500, page)
