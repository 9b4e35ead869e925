"""A terminal and its hub on the loopback, with the terminal's local API over TCP."""

from __future__ import annotations

import http.client
import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.free_port import free_port
from tests.testbed.process import Process
from tests.testbed.programs import built

# A user may choose such a name; a page must show it as text.
HTML = '<img src=x onerror="document.title=0">'
_HUB = """
[node]
number = 1
role = "hub"
state_dir = "{at}/hub"
[api]
socket = "{at}/hub.sock"
[tls]
plain = true
[[listener]]
name = "sat"
listen = "127.0.0.1:{hop}"
[edge.dial]
allow_networks = ["127.0.0.0/8"]
[[terminal]]
node = 10
"""
_TERMINAL = """
[node]
number = 10
role = "terminal"
state_dir = "{at}/terminal"
[api]
socket = "{at}/terminal.sock"
listen = "127.0.0.1:{api}"
[[api.token]]
name = "technician"
role = "read"
file = "{at}/read.token"
[[api.token]]
name = "crew"
role = "operate"
file = "{at}/operate.token"
[[api.token]]
name = "prometheus"
role = "metrics"
file = "{at}/metrics.token"
[tls]
plain = true
[[path]]
name = '{html}'
neighbour = 1
remote = "127.0.0.1:{hop}"
send_rate_bps = 20_000_000
[[outlet]]
node = 1
[edge]
client_networks = ["127.0.0.0/8"]
[[edge.listener]]
name = "http"
protocol = "http"
address = "127.0.0.1:{proxy}"
"""


class TerminalNode:
    """A terminal on the loopback, and the hub at the other end of its path."""

    def __init__(self, folder: Path) -> None:
        """Start both."""
        self._folder = folder
        self._ports = {name: free_port() for name in ("hop", "api", "proxy")}
        self.tokens = {}
        for role in ("read", "operate", "metrics"):
            self.tokens[role] = f"{role}-{os.urandom(12).hex()}"
            (folder / f"{role}.token").write_text(self.tokens[role])
        self.hub = self._start("hub", _HUB)
        self.terminal = self._start("terminal", _TERMINAL)
        self.terminal.wait_until(lambda: self._up() is True, timeout_s=60)

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://127.0.0.1:{self._ports['api']}/"

    def start_again(self) -> None:
        """Start the terminal again after it has ended, with the same addresses."""
        self.terminal = self._start("terminal", _TERMINAL)
        self.terminal.wait_until(lambda: self._up() is not None, timeout_s=60)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make a request to the terminal as its crew; return the answer's JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self._ports["api"], timeout=20)
        headers = {"Authorization": f"Bearer {self.tokens['operate']}"}
        try:
            headers["Content-Type"] = "application/json"
            connection.request(method, path, json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status < 300, f"{method} {path}: {answer.status} {content!r}"
            return json.loads(content)
        finally:
            connection.close()

    def fetch(self, port: int, path: str) -> bytes:
        """Fetch from an origin on the loopback, through the terminal and the hub."""
        connection = http.client.HTTPConnection("127.0.0.1", self._ports["proxy"], timeout=30)
        try:
            connection.request("GET", f"http://127.0.0.1:{port}{path}")
            return connection.getresponse().read()
        finally:
            connection.close()

    def silence_hub(self) -> None:
        """Stop the hub, as if nothing came through."""
        os.kill(self.hub.pid, signal.SIGSTOP)

    def wake_hub(self) -> None:
        """Let it continue."""
        os.kill(self.hub.pid, signal.SIGCONT)

    def close(self) -> None:
        """End both nodes."""
        self.wake_hub()
        self.terminal.stop()
        self.hub.stop()

    def _up(self) -> bool | None:
        try:
            return bool(self.call("GET", "/v1/paths")[0]["up"])
        except OSError:
            return None

    def _start(self, name: str, template: str) -> Process:
        file = self._folder / f"{name}.toml"
        file.write_text(template.format(at=self._folder, html=HTML, **self._ports))
        command = [str(built("underpass")), "run", "--config", str(file)]
        return Process(name, command, log_dir=self._folder)
