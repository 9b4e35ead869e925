"""Ten thousand vehicles on circles that report at 1 Hz, and the console in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import underpass_control
from playwright.async_api import Page, async_playwright
from underpass_control.instants import moment_of, rfc3339

from tests.benchmarks.control_service import ControlService, put_beam, until_ready

VEHICLES = 10_000
_GATEWAY = 100_000
_IN_A_POST = 500
# Vehicles on circles of this radius around the town's middle, at 20 m/s.
_AROUND, _RADIUS_M, _SPEED_MPS = (7.44, 46.95), 15_000.0, 20.0
_METRES_PER_DEGREE = 111_320.0
# Chromium's arguments to draw WebGL in software.
SOFTWARE_GL = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
# Headings are whole degrees, except for the last vehicle of each post: its heading is unique to
# the post, 1/200° and so many hundredths.
_NUMBERS = 36_000
# Notes when such a heading has been uploaded to the graphics card and its frame is done. Each
# vehicle has 13 numbers there, of which the eleventh is the heading (`console/src/map/motion.ts`).
_WATCH = """(() => {
  const seen = globalThis.fixesSeen = [];
  const known = new Set();
  const look = (data, from, length) => {
    if (!(data instanceof Float32Array) || data.length % 13 !== 0) return;
    const fresh = [];
    for (let at = from + 10; at < from + length; at += 13) {
      const half = Math.round(200 * data[at]);
      if (half % 2 !== 1 || Math.abs(200 * data[at] - half) > 0.02) continue;
      const number = (half - 1) / 2;
      if (known.has(number)) continue;
      known.add(number);
      known.delete((number + 18000) % 36000);
      fresh.push(number);
    }
    if (fresh.length === 0) return;
    requestAnimationFrame(() => {
      const now = performance.timeOrigin + performance.now();
      for (const number of fresh) seen.push([number, now]);
    });
  };
  const { bufferData, bufferSubData } = WebGL2RenderingContext.prototype;
  WebGL2RenderingContext.prototype.bufferData = function (...given) {
    bufferData.apply(this, given);
    if (given[1] instanceof Float32Array) look(given[1], 0, given[1].length);
  };
  WebGL2RenderingContext.prototype.bufferSubData = function (...given) {
    bufferSubData.apply(this, given);
    if (given.length === 5) look(given[2], given[3], given[4]);
  };
})()"""


def missing() -> str | None:
    """Return why the console cannot be measured, or None."""
    if shutil.which("chromium") is None:
        return "Debian's package chromium is missing"
    built = Path(underpass_control.__file__).parent / "console" / "index.html"
    return None if built.exists() else "the console has not been built: make console"


@dataclass
class Watched:
    """A console with the fleet on its map, before any vehicle has reported."""

    page: Page
    reporter: Reporter


@contextlib.asynccontextmanager
async def watched(service: ControlService, database: Path) -> AsyncIterator[Watched]:
    """Register the fleet, and open the console with its map."""
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
            args=[*SOFTWARE_GL, "--enable-precise-memory-info"],
        )
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        page = await context.new_page()
        await page.add_init_script(_WATCH)
        await page.goto(f"http://127.0.0.1:{service.port}/#token={service.operator}")
        await page.locator(".maplibregl-canvas").wait_for(timeout=60_000)
        await page.get_by_text(f"{VEHICLES} terminals").wait_for(timeout=60_000)
        yield Watched(page, Reporter(gateway))
        await browser.close()


def _register(database: Path) -> None:
    """Store all terminals directly: over REST each would trigger a plan, which takes minutes."""
    row = "INSERT INTO terminal (node, beam_id, name, weight, forward_minimum_bps, "
    row += "return_minimum_bps, gateway, revision) VALUES (?, 'beam', ?, 1, 0, 0, ?, 1)"
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        nodes = range(1, VEHICLES + 1)
        connection.executemany(row, [(node, f"vehicle {node}", _GATEWAY) for node in nodes])


@dataclass
class Reporter:
    """Posts all vehicles' positions, each second if the service can keep up."""

    gateway: aiohttp.ClientSession
    # When each post was answered as stored, s since the epoch, by its number.
    accepted_s: dict[int, float] = field(default_factory=dict)
    count: int = 0
    _posts: int = 0
    _began_s: float = field(default_factory=time.monotonic)

    def per_second(self) -> float:
        """Return how many positions were accepted per second."""
        return self.count / (time.monotonic() - self._began_s)

    @contextlib.asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """Report while the context lasts."""
        self._began_s = time.monotonic()
        task = asyncio.create_task(self._run())
        try:
            yield
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        due_s = time.monotonic()
        while True:
            for first in range(1, VEHICLES + 1, _IN_A_POST):
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                due_s = max(due_s + _IN_A_POST / VEHICLES, time.monotonic() - 1.0)
                await self._post(range(first, first + _IN_A_POST))

    async def _post(self, nodes: range) -> None:
        number = self._posts % _NUMBERS
        now_s = time.time()
        positions = [position_of(node, now_s) for node in nodes]
        positions[-1]["heading_deg"] = (2 * number + 1) / 200
        async with self.gateway.post("/v1/positions", json={"positions": positions}) as answer:
            answer.raise_for_status()
        self.accepted_s[number] = time.time()
        self._posts += 1
        self.count += len(nodes)


def position_of(node: int, now_s: float) -> dict[str, object]:
    """Return where a vehicle is on its circle."""
    radius_m = _RADIUS_M * math.sqrt(node / VEHICLES)
    angle = node * 2.399963 + now_s * _SPEED_MPS / radius_m
    east_m, north_m = radius_m * math.cos(angle), radius_m * math.sin(angle)
    scale = math.cos(math.radians(_AROUND[1]))
    return {
        "terminal": node,
        "time": rfc3339(moment_of(round(1000 * now_s))),
        "longitude": _AROUND[0] + east_m / _METRES_PER_DEGREE / scale,
        "latitude": _AROUND[1] + north_m / _METRES_PER_DEGREE,
        "speed_mps": _SPEED_MPS,
        "heading_deg": float(round(math.degrees(-angle)) % 360),
    }
