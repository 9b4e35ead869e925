"""A real Prometheus that scrapes a hub, its terminal and the control service of the test bed."""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import shutil
import socket
from typing import Any
from urllib.parse import urlencode

from tests.packaging import watched
from tests.testbed import addresses
from tests.testbed.control import Control
from tests.testbed.namespace import Namespace
from tests.testbed.topology import Testbed

HUB = "127.0.0.1:8471"
TERMINAL = f"{addresses.terminal_sat(0)}:8471"
_PORT = 9090
_PROGRAM = shutil.which("prometheus")


def missing() -> str | None:
    """Return what to install if there is no Prometheus, else None."""
    return None if _PROGRAM else "prometheus is not installed (Debian package prometheus)"


class Access:
    """A node's token that only Prometheus uses."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(32)

    def api(self, listen: str) -> dict[str, object]:
        """Return the configuration that a node needs for the token, without TLS in the test bed."""
        told = hashlib.sha256(self.token.encode()).hexdigest()
        return {
            "listen": listen,
            "plain": True,
            "token": [{"name": "prometheus", "role": "metrics", "sha256": told}],
        }


class Prometheus:
    """A Prometheus in the hub's namespace, with the packages' rules."""

    def __init__(self, testbed: Testbed, access: Access, control: Control, service: str) -> None:
        """Start it; `service` is the control service's address and port."""
        assert _PROGRAM is not None
        self._namespace: Namespace = testbed.hub
        config = testbed.dir / "prometheus.yml"
        jobs = (
            ("underpass", [HUB, TERMINAL], access.token),
            ("underpass-control", [service], control.token("prometheus", "viewer")),
        )
        # JSON is valid YAML.
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
                    "rule_files": [str(watched.RULES)],
                    "scrape_configs": [
                        {
                            "job_name": name,
                            "authorization": {"credentials": token},
                            "static_configs": [{"targets": targets}],
                        }
                        for name, targets, token in jobs
                    ],
                }
            )
        )
        argv = [
            _PROGRAM,
            f"--config.file={config}",
            f"--storage.tsdb.path={testbed.dir / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{_PORT}",
        ]
        self.process = testbed.start("prometheus", argv, testbed.hub)
        self.process.wait_until(self._scrapes)

    def ask(self, path: str, **parameters: str) -> Any:
        """Make a request to its HTTP API; return the answer's data."""
        connection = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=60)
        connection.sock = self._namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.sock.settimeout(60)
        try:
            connection.sock.connect(("127.0.0.1", _PORT))
            connection.request("GET", f"/api/v1/{path}?{urlencode(parameters)}")
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert answer["status"] == "success", (path, parameters, answer)
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return an expression's present value: samples with their labels."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def series(self, selector: str) -> list[dict[str, str]]:
        """Return the labels of all series that match a selector so far."""
        found: list[dict[str, str]] = self.ask("series", **{"match[]": selector})
        return found

    def families(self) -> set[str]:
        """Return the metrics that the targets describe, including those without a series."""
        return {one["metric"] for one in self.ask("targets/metadata")}

    def _scrapes(self) -> bool:
        try:
            up = self.query("up")
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return [one["value"][1] for one in up] == ["1"] * 3
