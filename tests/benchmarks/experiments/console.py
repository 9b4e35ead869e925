"""Ten thousand vehicles on the console's map, in headless Chromium without a graphics card."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path

import aiohttp
import underpass_control
from playwright.async_api import Page, async_playwright
from underpass_control.instants import moment_of, rfc3339

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.control_service import (
    ControlService,
    control_service,
    put_beam,
    until_ready,
)
from tests.benchmarks.records import Result, record

_VEHICLES = 10_000
_GATEWAY = 100_000
_IN_A_POST = 500
_WARM_S, _RUN_S = 10.0, 20.0
# Vehicles on circles of this radius around the town's middle, at 20 m/s.
_AROUND, _RADIUS_M, _SPEED_MPS = (7.44, 46.95), 15_000.0, 20.0
_METRES_PER_DEGREE = 111_320.0
_ARGUMENTS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
_ARGUMENTS += ["--enable-precise-memory-info"]
_FRAMES = """seconds => new Promise(done => {
  let frames = 0;
  const began = performance.now();
  const frame = now => {
    frames += 1;
    if (now - began < 1000 * seconds) requestAnimationFrame(frame);
    else done(1000 * frames / (now - began));
  };
  requestAnimationFrame(frame);
})"""


def run(settings: Settings) -> Result:
    """Count frames with the map blank, and with all vehicles moving on it, in one run."""
    result = Result("console")
    result.told["underpass"] = "positions as a gateway posts them"
    if result.left_out(_missing()):
        return result
    runs = settings.runs or 3
    with (
        tempfile.TemporaryDirectory() as folder,
        control_service(f"sqlite:///{folder}/control.db") as service,
    ):
        database = Path(folder) / "control.db"
        parts, heap_bytes, posted = asyncio.run(_measure(service, database, runs))
    for name, values in (("frames", parts), ("heap", heap_bytes)):
        made = record(f"console.{name}", "underpass", values)
        result.records.append(made)
        say(f"{made.id}: {made.median:.3g} {made.unit}")
    result.notes["positions taken in per second meanwhile"] = round(posted)
    result.notes["measured"] = (
        f"{_VEHICLES:,} vehicles that are to report at 1 Hz, service and browser on this machine, "
        f"drawn in software; frames are callbacks of requestAnimationFrame over {_RUN_S:.0f} s"
    )
    return result


def _missing() -> str | None:
    if shutil.which("chromium") is None:
        return "Debian's package chromium is missing"
    built = Path(underpass_control.__file__).parent / "console" / "index.html"
    return None if built.exists() else "the console has not been built: make console"


async def _measure(
    service: ControlService, database: Path, runs: int
) -> tuple[list[float], list[float], float]:
    async with (
        service.session(service.operator) as operator,
        service.session(service.gateway) as gateway,
        async_playwright() as playwright,
    ):
        await until_ready(operator)
        await put_beam(operator, "beam", 0)
        _register(database)
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            chromium_sandbox=os.geteuid() != 0,
            args=_ARGUMENTS,
        )
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        page = await context.new_page()
        await page.goto(f"http://127.0.0.1:{service.port}/#token={service.operator}")
        await page.locator(".maplibregl-canvas").wait_for(timeout=60_000)
        await page.get_by_text(f"{_VEHICLES} terminals").wait_for(timeout=60_000)
        blank = [await _frames(page) for _ in range(runs)]
        reporter = _Reporter(gateway)
        reporting = asyncio.create_task(reporter.run())
        await asyncio.sleep(_WARM_S)
        parts, heap = [], []
        for one in blank:
            parts.append(100 * await _frames(page) / one)
            heap.append(await page.evaluate("performance.memory.usedJSHeapSize") / 1e6)
        if reporting.done():
            reporting.result()
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        await browser.close()
        return parts, heap, reporter.per_second()


def _register(database: Path) -> None:
    """Store the terminals at once: over REST each is a reason to plan, which takes minutes."""
    row = "INSERT INTO terminal (node, beam_id, name, weight, forward_minimum_bps, "
    row += "return_minimum_bps, gateway, revision) VALUES (?, 'beam', ?, 1, 0, 0, ?, 1)"
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        nodes = range(1, _VEHICLES + 1)
        connection.executemany(row, [(node, f"vehicle {node}", _GATEWAY) for node in nodes])


async def _frames(page: Page) -> float:
    frames: float = await page.evaluate(_FRAMES, _RUN_S)
    return frames


class _Reporter:
    """Posts where all vehicles are, each second if the service takes them so fast."""

    def __init__(self, gateway: aiohttp.ClientSession) -> None:
        self._gateway = gateway
        self._began_s = time.monotonic()
        self._count = 0

    def per_second(self) -> float:
        """Return how many positions were taken in a second."""
        return self._count / (time.monotonic() - self._began_s)

    async def run(self) -> None:
        """Report until cancelled."""
        due_s = time.monotonic()
        while True:
            for first in range(1, _VEHICLES + 1, _IN_A_POST):
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                due_s = max(due_s + _IN_A_POST / _VEHICLES, time.monotonic() - 1.0)
                now_s = time.time()
                nodes = range(first, first + _IN_A_POST)
                body = {"positions": [_position(node, now_s) for node in nodes]}
                async with self._gateway.post("/v1/positions", json=body) as answer:
                    answer.raise_for_status()
                self._count += _IN_A_POST


def _position(node: int, now_s: float) -> dict[str, object]:
    """Return where a vehicle is on its circle."""
    radius_m = _RADIUS_M * math.sqrt(node / _VEHICLES)
    angle = node * 2.399963 + now_s * _SPEED_MPS / radius_m
    east_m, north_m = radius_m * math.cos(angle), radius_m * math.sin(angle)
    scale = math.cos(math.radians(_AROUND[1]))
    return {
        "terminal": node,
        "time": rfc3339(moment_of(round(1000 * now_s))),
        "longitude": _AROUND[0] + east_m / _METRES_PER_DEGREE / scale,
        "latitude": _AROUND[1] + north_m / _METRES_PER_DEGREE,
        "speed_mps": _SPEED_MPS,
        "heading_deg": math.degrees(-angle) % 360.0,
    }
