"""How a hundred open consoles slow down reports and plans."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
from underpass_control.instants import moment_of, rfc3339

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.control_service import (
    ControlService,
    control_service,
    put_full_beam,
    until_ready,
)
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.reporting_links import BEAM_BPS, GATEWAY, TERMINALS, report_links

_CONSOLES = 100
_WARM_S, _RUN_S = 10.0, 30.0
# A console reads these when it is opened, and each time that it has missed events.
_READ = ("beams", "terminals", "links", "positions", "blockages", "maps", "obstructions")
_ANNOUNCE_EVERY_S = 2.0
_PLAN_WITHIN_S = 20.0


@dataclass
class _Times:
    """The times until reports were answered, and until plans were announced by an event, s."""

    reports: list[float] = field(default_factory=list)
    plans: list[float] = field(default_factory=list)


def run(settings: Settings) -> Result:
    """Measure without consoles and with a hundred, in turns, and compare the medians."""
    result = Result("console-hundred")
    result.told["underpass"] = "nothing"
    with (
        tempfile.TemporaryDirectory() as folder,
        control_service(f"sqlite:///{folder}/control.db") as service,
    ):
        turns, told = asyncio.run(_measure(service, settings.runs or 5))
    for name in ("reports", "plans"):
        more = [
            100 * (_median(getattr(with_, name)) / _median(getattr(without, name)) - 1)
            for without, with_ in turns
        ]
        made = record(f"console.hundred.{name}", "underpass", more)
        result.records.append(made)
        without_ms = [round(1000 * _median(getattr(one, name)), 1) for one, _ in turns]
        result.notes[f"{name} without consoles, median of each run, ms"] = without_ms
        say(f"{made.id}: {made.median:.3g} {made.unit}")
    result.notes["events that each console was told in a second"] = round(told)
    result.notes["measured"] = (
        f"{_CONSOLES} clients on this machine that read and follow what an open console does, "
        f"with no browser around them, beside {TERMINALS:,} terminals whose links are reported "
        "each second; plans are those that an announced blockage brings, from the post of the "
        f"announcement to the event of a plan; {_RUN_S:.0f} s each"
    )
    return result


def _median(values: list[float]) -> float:
    if not values:
        raise RuntimeError("nothing was measured in a run")
    return quantile(values, 0.5)


async def _measure(service: ControlService, runs: int) -> tuple[list[tuple[_Times, _Times]], float]:
    """Return each run's times without and with consoles, and one console's events per second."""
    async with (
        service.session(service.operator) as operator,
        service.session(service.gateway) as gateway,
    ):
        await until_ready(operator)
        await put_full_beam(operator, TERMINALS, GATEWAY, BEAM_BPS)
        times = _Times()
        beside = asyncio.create_task(
            report_links(gateway, lambda took_s: times.reports.append(took_s))
        )
        turns, told = [], []
        try:
            await asyncio.sleep(_WARM_S)
            for number in range(runs):
                pair = []
                for consoles in (0, _CONSOLES):
                    async with _open(service, consoles) as counts:
                        await asyncio.sleep(_WARM_S)
                        before = sum(counts)
                        times.reports.clear()
                        plans = await _plans(service, operator, _RUN_S, number)
                        pair.append(_Times(list(times.reports), plans))
                        if consoles:
                            told.append((sum(counts) - before) / consoles / _RUN_S)
                turns.append((pair[0], pair[1]))
            if beside.done():
                beside.result()
        finally:
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
        return turns, quantile(told, 0.5)


@contextlib.asynccontextmanager
async def _open(service: ControlService, count: int) -> AsyncIterator[list[int]]:
    """Open so many consoles, and count the events that each receives."""
    counts = [0] * count
    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        for number in range(count):
            session = await stack.enter_async_context(service.session(service.operator))
            tasks.append(asyncio.create_task(_console(session, counts, number)))
        try:
            yield counts
            for one in tasks:
                if one.done():
                    one.result()
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _console(session: aiohttp.ClientSession, counts: list[int], number: int) -> None:
    """Act as a console: follow all events, and read the state."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with session.get("/v1/events", timeout=timeout) as events:
        events.raise_for_status()
        for name in _READ:
            cursor: str | None = ""
            while cursor is not None:
                query = {"limit": "1000", **({"cursor": cursor} if cursor else {})}
                async with session.get(f"/v1/{name}", params=query) as answer:
                    answer.raise_for_status()
                    cursor = (await answer.json()).get("next")
        async for line in events.content:
            counts[number] += line.startswith(b"data:")
    raise RuntimeError("the stream of a console has ended")


async def _plans(
    service: ControlService, operator: aiohttp.ClientSession, for_s: float, run_number: int
) -> list[float]:
    """Announce blockages; return the time until a plan included each, s."""
    found = []
    ends_s = time.monotonic() + for_s
    async with service.session(service.operator) as follower:
        timeout = aiohttp.ClientTimeout(total=None)
        query = {"kinds": "plans"}
        async with follower.get("/v1/events", params=query, timeout=timeout) as events:
            events.raise_for_status()
            number = 0
            while time.monotonic() < ends_s:
                terminal = 1 + (37 * number + 500 * run_number) % TERMINALS
                began_s = time.monotonic()
                await _announce(operator, terminal, confidence=1.0)
                async with asyncio.timeout(_PLAN_WITHIN_S):
                    async for line in events.content:
                        # Plans for changed demand come, too; the reason tells this one apart.
                        if line.startswith(b"data:") and _is_of_blockage(line):
                            break
                found.append(time.monotonic() - began_s)
                await _announce(operator, terminal, confidence=0.0)
                number += 1
                await asyncio.sleep(_ANNOUNCE_EVERY_S)
    return found


def _is_of_blockage(line: bytes) -> bool:
    reason: str = json.loads(line.removeprefix(b"data:")).get("reason", "")
    return "blockage" in reason or "announce" in reason


async def _announce(operator: aiohttp.ClientSession, terminal: int, *, confidence: float) -> None:
    entry = rfc3339(moment_of(time.time_ns() // 1_000_000 + 60_000))
    body = {"entry": entry, "duration_ms": 20_000, "confidence": confidence}
    path = f"/v1/terminals/{terminal}/announcements"
    async with operator.post(path, json=body) as answer:
        answer.raise_for_status()
