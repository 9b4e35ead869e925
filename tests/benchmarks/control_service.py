"""Processes of the control service, measured from outside."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp

from dama.prediction import Obstruction
from dama.prediction.geojson import to_feature
from tests.free_port import free_port
from tests.testbed.process import processor_s

_ROOT = Path(__file__).parents[2]
_COMMAND = (sys.executable, "-m", "underpass_control")
_IN_AN_IMPORT = 20
_IDLE_S, _IDLE_WITHIN_S = 3.0, 300.0
_END_WITHIN_S = 30.0
# Terminals that are registered concurrently.
_AT_ONCE = 20


@dataclass(frozen=True)
class ControlService:
    """Its address, its process, and tokens for its callers."""

    port: int
    pid: int
    operator: str
    gateway: str

    def session(self, token: str) -> aiohttp.ClientSession:
        """Return an HTTP session with a token."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return aiohttp.ClientSession(f"http://127.0.0.1:{self.port}", headers=headers)

    def processor_s(self) -> float:
        """Return the processor time that it has used so far, s."""
        return processor_s(self.pid)


@contextmanager
def control_service(url: str) -> Iterator[ControlService]:
    """Run the service on an empty database."""
    environment = _environment(url)
    subprocess.run([*_COMMAND, "migrate"], env=environment, check=True)

    def token(role: str) -> str:
        create = [*_COMMAND, "token", "create", role, "--role", role]
        made = subprocess.run(create, env=environment, check=True, capture_output=True, text=True)
        return made.stdout.strip()

    operator, gateway = token("operator"), token("gateway")
    with _serving(environment) as (port, pid):
        yield ControlService(port, pid, operator, gateway)


@contextmanager
def beside(service: ControlService, url: str) -> Iterator[ControlService]:
    """Run a further process of a service, over its database and with its tokens."""
    with _serving(_environment(url)) as (port, pid):
        yield replace(service, port=port, pid=pid)


def _environment(url: str) -> dict[str, str]:
    return os.environ | {
        "UNDERPASS_DATABASE": url,
        "PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}",
        # The planner's matrices are small: more threads only wait for each other.
        "OPENBLAS_NUM_THREADS": "1",
    }


@contextmanager
def _serving(environment: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """Run a process; yield its port and its id."""
    port = free_port()
    serve = [*_COMMAND, "serve", "--port", str(port), "--no-migrate"]
    with subprocess.Popen(serve, env=environment) as process:
        try:
            yield port, process.pid
        finally:
            process.terminate()
            try:
                process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()


async def until_ready(session: aiohttp.ClientSession) -> None:
    """Wait until the service answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with session.get("/ready") as answer:
                    if answer.ok:
                        return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


async def until_idle(service: ControlService, at_most: float = 0.1) -> None:
    """Wait until the service has read the map, which takes longer than its import.

    It takes no more than `at_most` of a core then.
    """
    async with asyncio.timeout(_IDLE_WITHIN_S):
        before_s = -math.inf
        while (now_s := service.processor_s()) - before_s > at_most * _IDLE_S:
            before_s = now_s
            await asyncio.sleep(_IDLE_S)


async def metrics_of(operator: aiohttp.ClientSession) -> str:
    """Return a process's metrics in Prometheus' text format."""
    async with operator.get("/metrics") as answer:
        answer.raise_for_status()
        return await answer.text()


async def put_obstructions(
    operator: aiohttp.ClientSession, obstructions: Sequence[Obstruction]
) -> None:
    """Set obstructions, some at a time."""
    features = list(map(to_feature, obstructions))
    for first in range(0, len(features), _IN_AN_IMPORT):
        some = features[first : first + _IN_AN_IMPORT]
        document = {"type": "FeatureCollection", "features": some}
        async with operator.post("/v1/obstructions", json=document) as answer:
            answer.raise_for_status()


async def put_beam(session: aiohttp.ClientSession, name: str, forward_bps: int) -> None:
    """Set a beam whose return capacity is a tenth of the forward one."""
    beam = {
        "name": name,
        "forward_capacity_bps": forward_bps,
        "return_capacity_bps": forward_bps // 10,
    }
    async with session.put(f"/v1/beams/{name}", json=beam) as answer:
        answer.raise_for_status()


async def put_terminals(
    session: aiohttp.ClientSession, beam: str, nodes: Sequence[int], gateway: int
) -> None:
    """Register terminals in a beam, at a gateway."""

    async def put(node: int) -> None:
        terminal = {"beam": beam, "name": str(node), "gateway": gateway}
        async with session.put(f"/v1/terminals/{node}", json=terminal) as answer:
            answer.raise_for_status()

    for first in range(0, len(nodes), _AT_ONCE):
        await asyncio.gather(*map(put, nodes[first : first + _AT_ONCE]))


async def put_full_beam(
    session: aiohttp.ClientSession, terminals: int, gateway: int, forward_bps: int
) -> None:
    """Set a beam named `beam` with so many terminals at a gateway, numbered from 1.

    It has no capacity until they are registered, so that none is planned for a part of them.
    """
    await put_beam(session, "beam", 0)
    await put_terminals(session, "beam", range(1, terminals + 1), gateway)
    await put_beam(session, "beam", forward_bps)
