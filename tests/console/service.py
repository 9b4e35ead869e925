"""The control service as a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.free_port import free_port
from tests.testbed.process import Process

_ROOT = Path(__file__).parents[2]
_COMMAND = (sys.executable, "-m", "underpass_control")


@dataclass(frozen=True)
class Prepared:
    """A database as a service begins with it, and tokens for the service's callers."""

    path: Path
    operator: str
    viewer: str
    gateway: str


def prepare(folder: Path, *, maps: tuple[Path, ...] = ()) -> Prepared:
    """Make a database with the schema and these maps."""
    path = folder / "prepared.db"
    environment = _environment(path)
    _run(environment, "migrate")
    operator, viewer, gateway = (
        _token(environment, role) for role in ("operator", "viewer", "gateway")
    )
    for one in maps:
        _run(environment, "obstruction", "import", str(one))
    return Prepared(path, operator, viewer, gateway)


class ControlService:
    """`underpass-control serve` on a port of the loopback, with tokens for its callers."""

    def __init__(self, folder: Path, prepared: Prepared) -> None:
        """Start it on a copy of a database."""
        self._folder = folder
        self.port = free_port()
        self._environment = _environment(folder / "control.db")
        self.operator = prepared.operator
        self.viewer = prepared.viewer
        self.gateway = prepared.gateway
        shutil.copy(prepared.path, folder / "control.db")
        self.start()

    @property
    def url(self) -> str:
        """Return the address of the console."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start it, or start it again after it has ended, on the same port."""
        command = [*_COMMAND, "serve", "--port", str(self.port), "--no-migrate"]
        self.process = Process("control", command, log_dir=self._folder, env=self._environment)
        self.process.wait_until(self.ready, timeout_s=60)

    def restart(self, **environment: str) -> None:
        """End it and start it again, with additions to its environment."""
        self.close()
        self._environment |= environment
        self.start()

    def token(self, role: str, node: int | None = None) -> str:
        """Make a token of a role."""
        return _token(self._environment, role, node)

    def cli(self, *arguments: str) -> str:
        """Run a command of `underpass-control` beside the service; return its output."""
        return _run(self._environment, *arguments)

    def call(self, method: str, path: str, body: object = None, token: str | None = None) -> Any:
        """Make a request, as the operator if no token is given; return the answer's JSON."""
        headers = {"Authorization": f"Bearer {token or self.operator}"}
        data = None if body is None else json.dumps(body)
        if data is not None:
            headers["Content-Type"] = "application/json"
        status, _, content = self.request(method, path, data, headers)
        assert status < 300, f"{method} {path}: {status} {content.decode()}"
        return json.loads(content) if content else None

    def request(
        self, method: str, path: str, data: str | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Make a request; return status, headers and body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, data, dict(headers))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def ready(self) -> bool:
        """Tell whether it can serve."""
        try:
            return self.request("GET", "/ready")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def close(self) -> None:
        """End it."""
        self.process.stop()


def _environment(database: Path) -> dict[str, str]:
    return {
        "UNDERPASS_DATABASE": f"sqlite:///{database}",
        "PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}",
        # The planner's matrices are small: more threads only wait for each other.
        "OPENBLAS_NUM_THREADS": "1",
    }


def _token(environment: Mapping[str, str], role: str, node: int | None = None) -> str:
    which = [] if node is None else ["--node", str(node)]
    return _run(environment, "token", "create", f"a {role}", "--role", role, *which).strip()


def _run(environment: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [*_COMMAND, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def now_ms() -> int:
    """Return the time, ms since the Unix epoch."""
    return time.time_ns() // 1_000_000
