"""Fixtures: a browser, and the console of a service with a fleet."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import underpass_control
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.console.fleet import Fleet
from tests.console.pages import PATIENCE_MS
from tests.console.service import ControlService, Prepared, prepare
from tests.drives.island import ISLAND_OSM

_BUILT = Path(underpass_control.__file__).parent / "console" / "index.html"
# Software rendering: the machine may have no graphics card.
_ARGUMENTS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]

# Playwright's own limit is five seconds.
expect.set_options(timeout=PATIENCE_MS)


# Module scope, no longer: while it exists, asyncio has a loop running in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Debian's package chromium is missing")
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work for root.
        sandboxed = os.geteuid() != 0
        running = playwright.chromium.launch(
            executable_path=chromium, chromium_sandbox=sandboxed, args=_ARGUMENTS
        )
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose test fails on any script error or breach of the content security policy."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("console", lambda said: wrong.append(said.text) if "Policy" in said.text else None)
    yield made
    context.close()
    assert not wrong, wrong


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A database with a map, to be copied: each command that fills it imports its libraries.

    The first of pytest's processes that needs it makes it for all.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "prepared"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = folder / "made.json"
        if not made.exists():
            made.write_text(json.dumps(asdict(prepare(folder, maps=(ISLAND_OSM,))), default=str))
        values = json.loads(made.read_text())
    return Prepared(**{**values, "path": Path(values["path"])})


@pytest.fixture(scope="module")
def service(
    request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlService]:
    """The service, on a map of its own."""
    del browser
    if not _BUILT.exists():
        pytest.skip("the console has not been built: make console")
    prepared: Prepared = request.getfixturevalue("prepared")
    running = ControlService(tmp_path_factory.mktemp("console"), prepared)
    yield running
    running.close()


@pytest.fixture(scope="module")
def fleet(service: ControlService) -> Iterator[Fleet]:
    """A fleet that reports to it."""
    running = Fleet(service)
    running.start()
    yield running
    running.close()
