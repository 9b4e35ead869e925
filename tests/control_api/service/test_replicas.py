"""Several processes over one PostgreSQL: one plans each beam, and another soon takes over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import text
from typer.testing import CliRunner
from underpass_control.cli import app
from underpass_control.planning import lease
from underpass_control.storage.database import Database

from tests.control_api import postgresql
from tests.control_api.service.conftest import with_database
from tests.free_port import free_port

ROOT = Path(__file__).parents[3]
BEAM = "/v1/beams/ku-1"
T = TypeVar("T")


class Replica:
    """A process of the service."""

    def __init__(self, url: str, token: str) -> None:
        self._port = free_port()
        self._token = token
        command = [sys.executable, "-m", "underpass_control", "serve", "--no-migrate"]
        command += ["--port", str(self._port), "--database", url]
        path = {"PYTHONPATH": f"{ROOT / 'control-api'}:{ROOT}"}
        self.process = subprocess.Popen(
            command, env=os.environ | path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Make a request, and return the answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    def plans(self) -> bool:
        """Tell whether this process plans the beam."""
        lease = self.ask(f"{BEAM}/lease")
        return f":{self.process.pid}:" in lease.get("holder", "")

    def newest(self) -> int:
        """Return the version of the newest plan."""
        version: int = self.ask(f"{BEAM}/plans/forward")["plan"]
        return version

    def send(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)


def until(claim: Callable[[], T], within_s: float = 60) -> T:
    """Wait until something is there and true."""
    end = time.monotonic() + within_s
    while True:
        try:
            if found := claim():
                return found
        except (OSError, urllib.error.HTTPError):
            pass
        assert time.monotonic() < end, "it never was"
        time.sleep(0.05)


@contextmanager
def replicas(
    server: postgresql.Server, name: str, count: int
) -> Iterator[tuple[str, list[Replica]]]:
    """Run some processes over a database of their own, with a beam in it."""
    server.sql(f"CREATE DATABASE {name} TEMPLATE template_migrated")
    url = server.url(name)
    arguments = ["token", "create", "tests", "--role", "operator", "--json", "--database", url]
    token = json.loads(CliRunner().invoke(app, arguments).stdout)["token"]
    with ExitStack() as stack:
        running = [Replica(url, token) for _ in range(count)]
        for one in running:
            stack.callback(_end, one.process)
        first = running[0]
        until(lambda: first.ask("/ready"))
        beam = {"name": "Ku 1", "forward_capacity_bps": 8_000_000, "return_capacity_bps": 2_000_000}
        first.ask(BEAM, "PUT", beam)
        first.ask("/v1/terminals/11", "PUT", {"beam": "ku-1", "name": "van"})
        for one in running:
            until(partial(one.ask, "/ready"))
        until(first.newest)
        yield url, running


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def change(replica: Replica, rate_bps: int) -> None:
    """Change the beam, so that a plan with this rate has to follow."""
    beam = {"name": "Ku 1", "forward_capacity_bps": rate_bps, "return_capacity_bps": 2_000_000}
    replica.ask(BEAM, "PUT", beam)


def carries(replica: Replica, rate_bps: int) -> bool:
    """Tell whether the newest plan has this capacity."""
    found = replica.ask(f"{BEAM}/plans/forward")["capacity"][0]["rate_bps"]
    return bool(found == rate_bps)


@pytest.mark.usefixtures("migrated_postgres")
def test_when_the_one_that_plans_is_killed_another_does_within_five_seconds(
    postgres: postgresql.Server,
) -> None:
    with replicas(postgres, "killed", 2) as (_, running):
        (holder,) = [one for one in running if one.plans()]
        (other,) = [one for one in running if one is not holder]
        change(other, 6_000_000)
        until(lambda: carries(other, 6_000_000), 10)
        holder.send(signal.SIGKILL)
        before = other.newest()
        # Five seconds by the settings; this machine may be busy.
        assert lease.LASTS_MS / 1000 + 2 * lease.RETRY_S <= 4
        until(lambda: other.newest() > before and other.plans(), 10)
        change(other, 5_000_000)
        until(lambda: carries(other, 5_000_000), 10)


@pytest.mark.usefixtures("migrated_postgres")
def test_one_that_ends_in_order_gives_the_beam_up_at_once(postgres: postgresql.Server) -> None:
    with replicas(postgres, "ended", 2) as (_, running):
        (holder,) = [one for one in running if one.plans()]
        (other,) = [one for one in running if one is not holder]
        holder.send(signal.SIGTERM)
        assert holder.process.wait(30) == 0
        # The process gave the lease up before it ended; the lease did not run out.
        until(other.plans, 2.5)


@pytest.mark.usefixtures("migrated_postgres")
def test_one_that_was_paused_writes_no_plan_under_its_old_lease(
    postgres: postgresql.Server,
) -> None:
    with replicas(postgres, "paused", 2) as (url, running):
        (holder,) = [one for one in running if one.plans()]
        (other,) = [one for one in running if one is not holder]
        holder.send(signal.SIGSTOP)
        until(other.plans, 10)
        # When the paused one wakes, this change waits for it, and it would plan.
        change(other, 6_000_000)
        until(lambda: carries(other, 6_000_000), 10)
        holder.send(signal.SIGCONT)
        until(lambda: holder.ask("/health"))
        change(holder, 5_000_000)
        until(lambda: carries(holder, 5_000_000), 10)
        assert other.plans()
        assert with_database(url, fences) == sorted(with_database(url, fences))


async def fences(database: Database) -> list[int]:
    """Return the fences under which plans were stored, in order of versions."""
    query = "SELECT fence FROM plan WHERE link = 'forward' ORDER BY version"
    async with database.reading() as connection:
        return list(await connection.scalars(text(query)))
