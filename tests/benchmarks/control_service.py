"""One process of the control service, measured from outside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.free_port import free_port

_ROOT = Path(__file__).parents[2]
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
        values = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def control_service(url: str) -> Iterator[ControlService]:
    """Run the service on an empty database."""
    port = free_port()
    environment = os.environ | {
        "UNDERPASS_DATABASE": url,
        "PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}",
        # The planner's matrices are small: more threads only wait for each other.
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "underpass_control"]
    subprocess.run([*command, "migrate"], env=environment, check=True)

    def token(role: str) -> str:
        create = [*command, "token", "create", role, "--role", role]
        made = subprocess.run(create, env=environment, check=True, capture_output=True, text=True)
        return made.stdout.strip()

    operator, gateway = token("operator"), token("gateway")
    serve = [*command, "serve", "--port", str(port), "--no-migrate"]
    with subprocess.Popen(serve, env=environment) as process:
        try:
            yield ControlService(port, process.pid, operator, gateway)
        finally:
            process.terminate()


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
    session: aiohttp.ClientSession, beam: str, nodes: range, gateway: int
) -> None:
    """Register terminals at a gateway."""

    async def put(node: int) -> None:
        terminal = {"beam": beam, "name": str(node), "gateway": gateway}
        async with session.put(f"/v1/terminals/{node}", json=terminal) as answer:
            answer.raise_for_status()

    for first in range(nodes.start, nodes.stop, _AT_ONCE):
        await asyncio.gather(*map(put, range(first, min(first + _AT_ONCE, nodes.stop))))
