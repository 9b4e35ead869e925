"""The control service of the test bed, in a namespace behind the hub."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.control_api import postgresql
from tests.testbed import addresses
from tests.testbed.namespace import command, join
from tests.testbed.node import HUB_NODE, terminal_node
from tests.testbed.process import Process
from tests.testbed.topology import Testbed

PORT = 8470
URL = f"http://{addresses.CONTROL}:{PORT}"
BEAM = "beam"
# The part of a terminal's configuration by which it reports to the service through the hub.
REPORTS: dict[str, object] = {"reports": {"to": HUB_NODE}}
_ROOT = Path(__file__).parents[2]
_ENVIRONMENT = {"PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}"}


class ControlError(RuntimeError):
    """The service answered with a problem, whose text this is."""


class Control:
    """`underpass-control serve`, with tokens for its callers, ready for nodes.

    Its database is a file of SQLite, or with `durable_postgresql` a PostgreSQL of its own.
    """

    def __init__(
        self,
        testbed: Testbed,
        *,
        durable_postgresql: bool = False,
        maps: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Import these maps and start it, with additions to its environment."""
        self._testbed = testbed
        self._more_environment = dict(environment or {})
        self.namespace = testbed.namespace("control")
        join(testbed.hub, "control", self.namespace, "eth0")
        testbed.hub.ip("address", "add", f"{addresses.HUB_CONTROL}/24", "dev", "control")
        self.namespace.ip("address", "add", f"{addresses.CONTROL}/24", "dev", "eth0")
        self.postgresql: postgresql.Server | None = None
        if durable_postgresql:
            # A program starts in the namespace of the thread that starts it.
            with self.namespace.entered():
                self.postgresql = testbed.keep(postgresql.server(durable=True))
                self.postgresql.sql("CREATE DATABASE control")
            self.database = self.postgresql.url("control")
        else:
            self.database = f"sqlite:///{testbed.dir / 'control.db'}"
        self.cli("migrate")
        self.operator = self.token("operations", "operator")
        self.gateway_token_file = testbed.dir / "gateway.token"
        self.gateway_token_file.write_text(self.token("the hub", "gateway", node=HUB_NODE))
        for path in maps:
            self.cli("obstruction", "import", str(path))
        self.start()

    def start(self) -> None:
        """Start the service, also again after it has ended."""
        self.process: Process = self._testbed.start(
            "control",
            [
                *(*_program(), "serve", "--database", self.database),
                *("--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104
            ],
            self.namespace,
            env=self._environment(),
        )
        self.process.wait_until(self.ready, timeout_s=60)

    def cli(self, *arguments: str) -> str:
        """Run a command of `underpass-control` beside the service; return its output."""
        setting = [f"{key}={value}" for key, value in self._environment().items()]
        return command(self.namespace.argv("env", *setting, *_program(), *arguments))

    def token(self, name: str, role: str, node: int | None = None) -> str:
        """Make a token."""
        which = [] if node is None else ["--node", str(node)]
        return self.cli("token", "create", name, "--role", role, *which).strip()

    def register(self) -> None:
        """Register the beam and its terminals, all on the same terms."""
        profile = self._testbed.profile
        body = {
            "name": "the test bed's",
            "forward_capacity_bps": profile.forward.rate_bps,
            "return_capacity_bps": profile.return_.rate_bps,
            "one_way_delay_ms": round(profile.forward.delay_ms),
        }
        self.call("PUT", f"/v1/beams/{BEAM}", body)
        for terminal in self._testbed.terminals:
            body = {"beam": BEAM, "name": terminal.name}
            self.call("PUT", f"/v1/terminals/{terminal_node(terminal.index)}", body)

    @property
    def hub_config(self) -> dict[str, object]:
        """Return the part of a hub's configuration that connects it to this service."""
        return {
            "control": {"url": URL, "token_file": self.gateway_token_file},
            "beam": {"rate_bps": self._testbed.profile.forward.rate_bps},
        }

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make a request as the operator and return the answer's JSON."""
        connection = http.client.HTTPConnection(addresses.CONTROL, PORT, timeout=60)
        connection.sock = self.namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.sock.settimeout(60)
        try:
            connection.sock.connect((addresses.CONTROL, PORT))
            headers = {"Authorization": f"Bearer {self.operator}"}
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise ControlError(f"{method} {path}: {answer.status} {content}")
        return json.loads(content) if content else None

    def get(self, path: str) -> Any:
        """Read a resource as the operator."""
        return self.call("GET", path)

    def plan_lines(self, link: str, version: int) -> dict[int, list[dict[str, Any]]]:
        """Return every terminal's segments in a plan, with all amounts."""
        path = f"/v1/beams/{BEAM}/plans/{link}/{version}"
        nodes = [node for line in self.get(path)["lines"] for node in line["terminals"]]
        return {node: self.get(f"{path}?terminal={node}")["lines"][0]["segments"] for node in nodes}

    def balances(self, link: str) -> dict[int, int]:
        """Return what each terminal is owed, bits of capacity; below 0 it owes."""
        [found] = self.get(f"/v1/beams/{BEAM}/balances?link={link}")["links"]
        return {one["terminal"]: one["bits"] for one in found["balances"]}

    def ready(self) -> bool:
        """Tell whether it can serve."""
        try:
            self.get("/ready")
        except (OSError, http.client.HTTPException, ControlError):
            return False
        return True

    def _environment(self) -> dict[str, str]:
        return {
            **_ENVIRONMENT,
            **self._more_environment,
            "UNDERPASS_DATABASE": self.database,
            # The planner's matrices are small: more threads only wait for each other.
            "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1"),
        }


def _program() -> list[str]:
    return [sys.executable, "-m", "underpass_control"]
