"""Ten thousand vehicles on the console's map, in headless Chromium without a graphics card."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.async_api import Page

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.control_service import ControlService, control_service
from tests.benchmarks.moving_fleet import VEHICLES, missing, watched
from tests.benchmarks.records import Result, quantile, record

_WARM_S, _RUN_S = 10.0, 20.0
# After a run, wait so long for fixes that have not shown yet.
_SETTLE_S = 5.0
_HOUR_S, _EVERY_S = 3_600.0, 60.0
_HEAP = "performance.memory.usedJSHeapSize"
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
    """Count frames with a blank map, then with all vehicles moving on it."""
    result = Result("console")
    result.told["underpass"] = "positions as a gateway posts them"
    if result.left_out(missing()):
        return result
    runs = settings.runs or 3
    with (
        tempfile.TemporaryDirectory() as folder,
        control_service(f"sqlite:///{folder}/control.db") as service,
    ):
        asyncio.run(_measure(service, Path(folder) / "control.db", runs, result))
    result.notes["measured"] = (
        f"{VEHICLES:,} vehicles that are to report at 1 Hz, service and browser on this machine, "
        f"drawn in software; frames are callbacks of requestAnimationFrame over {_RUN_S:.0f} s"
    )
    return result


def run_hour(_settings: Settings) -> Result:
    """Let the console show all vehicles for an hour, and measure its memory."""
    result = Result("console-hour")
    result.told["underpass"] = "positions as a gateway posts them"
    if result.left_out(missing()):
        return result
    with (
        tempfile.TemporaryDirectory() as folder,
        control_service(f"sqlite:///{folder}/control.db") as service,
    ):
        asyncio.run(_measure_hour(service, Path(folder) / "control.db", result))
    return result


async def _measure(service: ControlService, database: Path, runs: int, result: Result) -> None:
    frames, heap, late, unseen = [], [], [], 0
    async with watched(service, database) as console:
        page, reporter = console.page, console.reporter
        blank = [await _frames(page) for _ in range(runs)]
        async with reporter.reporting():
            await asyncio.sleep(_WARM_S)
            for one in blank:
                began_s = time.time()
                frames.append(100 * await _frames(page) / one)
                heap.append(await page.evaluate(_HEAP) / 1e6)
                until_s = time.time()
                await asyncio.sleep(_SETTLE_S)
                seen = dict(await page.evaluate("fixesSeen.splice(0)"))
                delays, lost = _delays(reporter.accepted_s, seen, began_s, until_s)
                late.append(quantile(delays, 0.99))
                unseen += lost
        posted = reporter.per_second()
    for name, values in (("frames", frames), ("heap", heap), ("to-screen", late)):
        made = record(f"console.{name}", "underpass", values)
        result.records.append(made)
        say(f"{made.id}: {made.median:.3g} {made.unit}")
    result.notes["positions taken in per second meanwhile"] = round(posted)
    result.notes["fixes that were not seen within 5 s, or were overtaken by the next"] = unseen


def _delays(
    accepted_s: Mapping[int, float], seen_ms: Mapping[int, float], began_s: float, until_s: float
) -> tuple[Sequence[float], int]:
    """Return the times from a fix's acceptance to the screen, s, and how many never got there.

    A fix that never showed counts with the time for which the experiment waited for it.
    """
    delays, lost = [], 0
    for number, at_s in accepted_s.items():
        if not began_s <= at_s < until_s:
            continue
        if number in seen_ms:
            # The event may arrive before the answer.
            delays.append(max(0.0, seen_ms[number] / 1000 - at_s))
        else:
            delays.append(until_s + _SETTLE_S - at_s)
            lost += 1
    if not delays:
        raise RuntimeError("no position was accepted")
    return delays, lost


async def _measure_hour(service: ControlService, database: Path, result: Result) -> None:
    course: list[tuple[float, float]] = []
    async with watched(service, database) as console:
        page = console.page
        async with console.reporter.reporting():
            began = time.monotonic()
            while (since_s := time.monotonic() - began) < _HOUR_S:
                await asyncio.sleep(min(_EVERY_S, _HOUR_S - since_s))
                # Drop the page's notes of fixes, which serve another figure, from the heap.
                await page.evaluate("fixesSeen.splice(0).length")
                heap_mb = await page.evaluate(_HEAP) / 1e6
                course.append((time.monotonic() - began, heap_mb))
            posted = console.reporter.per_second()
    # Garbage comes and goes, so take the maximum of the last ten minutes.
    last = max(heap_mb for at_s, heap_mb in course if at_s > _HOUR_S - 600)
    made = record("console.hour.heap", "underpass", [last])
    result.records.append(made)
    result.curves["heap"] = {"heap": course}
    result.notes["positions taken in per second meanwhile"] = round(posted)
    say(f"{made.id}: {made.median:.3g} {made.unit}")


async def _frames(page: Page) -> float:
    frames: float = await page.evaluate(_FRAMES, _RUN_S)
    return frames
