"""Position reports taken in by one process of the control service."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from underpass_control.instants import moment_of, rfc3339

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.control_api import postgresql

_ROOT = Path(__file__).parents[3]
_TERMINALS = 1_000
_BATCH = 100
_SENDERS = 16
_RUN_S = 10.0


def run(settings: Settings) -> Result:
    """Send batches for ten seconds a run, all new, and count what was answered as stored."""
    result = Result("position-reports")
    with tempfile.TemporaryDirectory() as folder:
        _measure(result, "sqlite", f"sqlite:///{folder}/control.db", settings)
    reason = postgresql.missing()
    if reason:
        say(f"PostgreSQL is left out: {reason}")
        result.notes["left out"] = reason
        return result
    with postgresql.server(durable=True) as server:
        server.sql("CREATE DATABASE control")
        _measure(result, "postgresql", server.url("control"), settings)
    result.notes["measured"] = (
        f"{_SENDERS} senders and, beside it, the database on this machine; a report counts once "
        "its transaction is on disk and answered"
    )
    return result


def _measure(result: Result, database: str, url: str, settings: Settings) -> None:
    with _service(url) as (port, token):
        values = asyncio.run(_runs(port, token, settings.runs or 5))
    made = record(f"position-reports.{database}", "underpass", values)
    result.records.append(made)
    say(f"{made.id}: {made.median:.0f} {made.unit}")


@contextmanager
def _service(url: str) -> Iterator[tuple[int, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "UNDERPASS_DATABASE": url,
        "PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}",
    }
    command = [sys.executable, "-m", "underpass_control"]
    subprocess.run([*command, "migrate"], env=environment, check=True)
    create = [*command, "token", "create", "benchmark", "--role", "operator"]
    token = subprocess.run(create, env=environment, check=True, capture_output=True, text=True)
    serve = [*command, "serve", "--port", str(port), "--no-migrate"]
    with subprocess.Popen(serve, env=environment) as process:
        try:
            yield port, token.stdout.strip()
        finally:
            process.terminate()


async def _runs(port: int, token: str, runs: int) -> list[float]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    base = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession(base, headers=headers) as session:
        await _ready(session)
        beam = {"name": "beam", "forward_capacity_bps": 0, "return_capacity_bps": 0}
        async with session.put("/v1/beams/beam", json=beam) as answer:
            answer.raise_for_status()
        for node in range(1, _TERMINALS + 1):
            terminal = {"beam": "beam", "name": str(node)}
            async with session.put(f"/v1/terminals/{node}", json=terminal) as answer:
                answer.raise_for_status()
        start_ms = time.time_ns() // 1_000_000 - 86_400_000
        bodies = _bodies(start_ms)
        await _rate(session, bodies, 1.0)
        return [await _rate(session, bodies, _RUN_S) for _ in range(runs)]


async def _ready(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with session.get("/ready") as answer:
                    if answer.ok:
                        return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


def _bodies(start_ms: int) -> Iterator[bytes]:
    """Yield batches without end: each second, a report of each terminal."""
    number = 0
    while True:
        positions = []
        for _ in range(_BATCH):
            second, terminal = divmod(number, _TERMINALS)
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
