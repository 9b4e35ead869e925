"""`python -m tests.console.pictures`: makes the pictures of slices and terminals for `docs`."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from tests.console.fleet import DRIVER, Fleet
from tests.console.pages import PATIENCE_MS, go, sign_in
from tests.console.service import ControlService, prepare
from tests.console.test_slices import report
from tests.drives.island import ISLAND_OSM

_ROOT = Path(__file__).parents[2]
_WIDTH, _HEIGHT = 1200, 760


def main() -> None:
    """Make them."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        service = ControlService(Path(folder), prepare(Path(folder), maps=(ISLAND_OSM,)))
        fleet = Fleet(service)
        fleet.start()
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), chromium_sandbox=os.geteuid() != 0
        )
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        try:
            sign_in(page, service)
            _terminal(page)
            _slices(page, service)
        finally:
            browser.close()
            fleet.close()
            service.close()


def _terminal(page: Page) -> None:
    go(page, f"terminals/{DRIVER}")
    forward = page.get_by_role("region", name="Forward: to the terminal")
    expect(forward).to_contain_text("Round trip", timeout=PATIENCE_MS)
    # Until the page's charts have something to show.
    page.wait_for_timeout(20_000)
    _save(page, "terminal")


def _slices(page: Page, service: ControlService) -> None:
    for name in ("ground", "vehicle"):
        path = _ROOT / "docker" / "slices" / f"{name}.json"
        service.call("PUT", f"/v1/slices/{name}", json.loads(path.read_text()))
        report(service, name, sick="nat" if name == "ground" else None)
    go(page, "settings/slices")
    expect(page.get_by_text("degraded")).to_be_visible(timeout=PATIENCE_MS)
    _save(page, "slices")


def _save(page: Page, name: str) -> None:
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.save(_ROOT / "docs" / "images" / f"console-{name}.webp", quality=80, method=6)


if __name__ == "__main__":
    main()
