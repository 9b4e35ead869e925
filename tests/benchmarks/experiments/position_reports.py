"""The rate of position reports that one process of the control service takes in."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator

import aiohttp
from underpass_control.instants import moment_of, rfc3339

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.control_service import (
    ControlService,
    control_service,
    put_full_beam,
    until_ready,
)
from tests.benchmarks.records import Result, record
from tests.benchmarks.reporting_links import (
    ACTIVE,
    ACTIVE_S,
    BEAM_BPS,
    GATEWAY,
    TERMINALS,
    report_links,
)
from tests.control_api import postgresql

_BATCH = 100
_SENDERS = 16
_RUN_S = 10.0
# Until the service plans.
_WARM_S = 6.0


def run(settings: Settings) -> Result:
    """Send batches of new reports for ten seconds per run, and count those answered as stored.

    The service is as busy as with all terminals active: each second it takes in reports of all
    their links, and plans both links of their beam by them.
    """
    result = Result("position-reports")
    result.told["underpass"] = "nothing"
    with tempfile.TemporaryDirectory() as folder:
        _measure(result, "sqlite", f"sqlite:///{folder}/control.db", settings)
    if result.left_out(postgresql.missing()):
        return result
    with postgresql.server(durable=True) as server:
        server.sql("CREATE DATABASE control")
        _measure(result, "postgresql", server.url("control"), settings)
    result.notes["measured"] = (
        f"{_SENDERS} senders and, beside it, the database on this machine; a report counts once "
        f"its transaction is on disk and answered. Each second comes the status of the links of "
        f"{TERMINALS:,} terminals too, of which another {ACTIVE} have a backlog each "
        f"{ACTIVE_S:.0f} s, and their beam is planned by that"
    )
    return result


def _measure(result: Result, database: str, url: str, settings: Settings) -> None:
    with control_service(url) as service:
        values, plans = asyncio.run(_runs(service, settings.runs or 5))
    if not plans:
        raise RuntimeError("the service planned nothing meanwhile, so it was not busy")
    result.notes[f"plans made meanwhile, {database}"] = plans
    made = record(f"position-reports.{database}", "underpass", values)
    result.records.append(made)
    say(f"{made.id}: {made.median:.0f} {made.unit}")


async def _runs(service: ControlService, runs: int) -> tuple[list[float], int]:
    """Return the rates, and how many plans were made meanwhile."""
    async with (
        service.session(service.operator) as session,
        service.session(service.gateway) as gateway,
    ):
        await until_ready(session)
        await put_full_beam(session, TERMINALS, GATEWAY, BEAM_BPS)
        start_ms = time.time_ns() // 1_000_000 - 86_400_000
        bodies = _bodies(start_ms)
        beside = asyncio.create_task(report_links(gateway))
        try:
            await _rate(session, bodies, _WARM_S)
            before = await _newest_plan(session)
            rates = [await _rate(session, bodies, _RUN_S) for _ in range(runs)]
            plans = await _newest_plan(session) - before
            if beside.done():
                beside.result()
        finally:
            beside.cancel()
        return rates, plans


async def _newest_plan(session: aiohttp.ClientSession) -> int:
    async with session.get("/v1/beams/beam/plans/forward") as answer:
        answer.raise_for_status()
        return int((await answer.json())["plan"])


def _bodies(start_ms: int) -> Iterator[bytes]:
    """Yield batches endlessly: each second, a report of each terminal."""
    number = 0
    while True:
        positions = []
        for _ in range(_BATCH):
            second, terminal = divmod(number, TERMINALS)
            moment = rfc3339(moment_of(start_ms + 100 * second))
            place = {"longitude": 7.5 + 1e-5 * second, "latitude": 46.5, "speed_mps": 25.0}
            positions.append({"terminal": terminal + 1, "time": moment, "heading_deg": 90, **place})
            number += 1
        yield json.dumps({"positions": positions}).encode()


async def _rate(session: aiohttp.ClientSession, bodies: Iterator[bytes], run_s: float) -> float:
    stored = 0
    began = time.monotonic()

    async def send() -> None:
        nonlocal stored
        while time.monotonic() - began < run_s:
            async with session.post("/v1/positions", data=next(bodies)) as answer:
                answer.raise_for_status()
                stored += (await answer.json())["accepted"]

    await asyncio.gather(*(send() for _ in range(_SENDERS)))
    return stored / (time.monotonic() - began)
