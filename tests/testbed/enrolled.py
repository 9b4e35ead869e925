"""A fleet on the loopback: authority, control service over HTTPS, a hub, and a bare node.

The bare node becomes a terminal by `underpass enroll`; its state is then in its folder.
"""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import subprocess
import threading
import tomllib
from contextlib import suppress
from pathlib import Path

from tests.free_port import free_port
from tests.testbed.node import LocalApi
from tests.testbed.process import Process
from tests.testbed.programs import built
from tests.testbed.wrong_clock import clock_that_shows

HUB, TERMINAL = 1, 10
# A certificate of one day is due after two thirds, 16 hours.
_PAST_S = 20 * 3600
_HOST = "127.0.0.1"
_ROOT = Path(__file__).parents[2]
_PYTHON = str(_ROOT / ".venv" / "bin" / "python")
HELLO = b"the first bytes of an origin"
_HUB = """\
[node]
number = {node}
role = "hub"
state_dir = "{dir}/state"
[api]
socket = "{dir}/api.sock"
[tls]
pki_dir = "{dir}/state/pki"
[tcp]
congestion_control = ["cubic"]
[[listener]]
name = "beam"
listen = "127.0.0.1:{tcpcl}"
[edge.dial]
allow_networks = ["127.0.0.0/8"]
[enrolment]
url = "{url}"
interval_s = 5
[control]
url = "{url}"
token_file = "{dir}/token"
ca_file = "{dir}/state/pki/ca.crt"
terminals = true
"""
_TERMINAL = """\
[node]
number = ${node}
role = "terminal"
state_dir = "${dir}/state"
[api]
socket = "${dir}/api.sock"
[tls]
pki_dir = "${dir}/state/pki"
[tcp]
congestion_control = ["cubic"]
[enrolment]
${asks}
interval_s = 5
[[path]]
name = "satellite"
neighbour = 1
remote = "127.0.0.1:${tcpcl}"
[[outlet]]
node = 1
[edge]
client_networks = ["127.0.0.0/8"]
[[edge.listener]]
name = "socks"
protocol = "socks5"
address = "127.0.0.1:${socks}"
"""


class _Hello(socketserver.BaseRequestHandler):
    """Says hello, then echoes."""

    def handle(self) -> None:
        self.request.sendall(HELLO)
        while told := self.request.recv(1000):
            self.request.sendall(told)


class Fleet:
    """Authority, control service and hub."""

    def __init__(self, folder: Path) -> None:
        self.dir = folder
        self.authority = folder / "authority"
        self.ports = {name: free_port() for name in ("https", "tcpcl", "socks")}
        self.url = f"https://{_HOST}:{self.ports['https']}"
        self.hub_dir, self.bare = folder / "hub", folder / "bare"
        self.hub_dir.mkdir()
        self._running: list[Process] = []
        self._origin = socketserver.ThreadingTCPServer((_HOST, 0), _Hello)
        self._origin.daemon_threads = True
        threading.Thread(target=self._origin.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop all programs."""
        for process in reversed(self._running):
            process.stop()
        self._origin.shutdown()
        self._origin.server_close()

    def pki(self, verb: str, *arguments: str) -> str:
        """Run a command of the authority's operator; return its output."""
        return run(built("underpass"), "pki", verb, "--dir", str(self.authority), *arguments)

    def set_up(self) -> None:
        """Make authority, service and hub as in docs/enrolment.md."""
        self.pki("init")
        self.pki("issue-server", "--name", _HOST)
        self.pki("issue", "--node", str(HUB))
        self.control("migrate", database=True)
        self.token = self.control("token", "create", "ops", "--role", "operator", database=True)
        self.token = self.token.strip()
        self.start_service()
        self.control("beam", "set", "east", "--name", "East", "--forward-capacity", "50M",
                     "--return-capacity", "10M")  # fmt: skip
        self.control("terminal", "set", str(TERMINAL), "--beam", "east", "--name", "Bus",
                     "--gateway", str(HUB))  # fmt: skip
        shutil.copytree(self.authority / "nodes" / str(HUB), self.hub_dir / "state" / "pki")
        gateway = ("token", "create", "hub", "--role", "gateway", "--node", str(HUB))
        (self.hub_dir / "token").write_text(self.control(*gateway, database=True))
        tcpcl = self.ports["tcpcl"]
        config = _HUB.format(node=HUB, dir=self.hub_dir, tcpcl=tcpcl, url=self.url)
        (self.hub_dir / "node.toml").write_text(config)
        (self.hub_dir / "conf.d").mkdir()
        fragment = self.hub_dir / "conf.d" / "terminals.toml"
        self.control("enrolment", "terminals", str(HUB), "--output", str(fragment))
        self.hub = self.start_node("hub", self.hub_dir)

    def start_service(self) -> None:
        """Start the control service, and wait until it listens."""
        tls = self.authority / "servers" / _HOST
        argv = [
            *(_PYTHON, "-m", "underpass_control", "serve", "--database", self._database),
            *("--host", _HOST, "--port", str(self.ports["https"])),
            *("--tls-certificate", str(tls / "tls.crt"), "--tls-key", str(tls / "tls.key")),
            *("--authority", str(self.authority), "--underpass", str(self._program())),
            *("--certificate-days", "1"),
        ]
        self.service = self._start("service", argv)
        self.service.wait_until(lambda: answers(self.ports["https"]))

    def _program(self) -> Path:
        """Return the service's `underpass`, whose clock is behind while a file `past` exists."""
        program, past = self.dir / "underpass", self.dir / "past"
        behind = " ".join(clock_that_shows(f"-{_PAST_S}"))
        program.write_text(
            f'#!/bin/sh\n[ -e {past} ] && exec {behind} {built("underpass")} "$@"\n'
            f'exec {built("underpass")} "$@"\n'
        )
        program.chmod(0o755)
        return program

    def control(self, *arguments: str, database: bool = False) -> str:
        """Run a command of the service's operator; return its output."""
        where = ["--database", self._database]
        if not database:
            where = ["--url", self.url, "--token", self.token]
        return run(_PYTHON, "-m", "underpass_control", *arguments, *where, env=self._environment)

    def new_token(self, *, through_hub: bool = False) -> str:
        """Return a token for an enrolment that renews directly, or through the hub."""
        asks = f"to = {HUB}" if through_hub else 'url = "${url}"'
        return self.token_for(_TERMINAL.replace("${asks}", asks))

    def token_for(self, configuration: str) -> str:
        """Return a token for a terminal's configuration, given as a template.

        `${url}`, `${dir}` (of the bare node) and the ports of the fleet are filled in.
        """
        template = self.dir / "terminal.toml"
        template.write_text(configuration)
        given = {"dir": self.bare, "url": self.url, **self.ports}
        values = [text for name, value in given.items() for text in ("--set", f"{name}={value}")]
        arguments = (str(TERMINAL), "--configuration", str(template), *values)
        return self.control("enrolment", "create", *arguments).strip()

    def enroll_for_renewal(self) -> None:
        """Enrol the bare node with a certificate that is due for renewal through the hub."""
        past = self.dir / "past"
        past.touch()
        try:
            done = self.enroll(self.new_token(through_hub=True))
        finally:
            past.unlink()
        if done.returncode != 0:
            raise RuntimeError(done.stderr)

    def start_node(self, name: str, folder: Path) -> Process:
        """Start the node of a folder, and wait until it answers."""
        node = self._start(name, [built("underpass"), "run", "--config", str(folder / "node.toml")])
        node.wait_until((folder / "api.sock").exists)
        return node

    def enroll(self, token: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Enrol the bare node, and return the command's result."""
        config = ("--config", str(self.bare / "node.toml"))
        command = [built("underpass"), "enroll", self.url, "--token-file", "-", *config, *options]
        return subprocess.run(
            command, input=token, capture_output=True, text=True, timeout=90, check=False
        )

    def enrolling(self, token: str) -> subprocess.Popen[bytes]:
        """Return the running command."""
        config = ("--config", str(self.bare / "node.toml"))
        command = [built("underpass"), "enroll", self.url, "--token", token, *config]
        null = subprocess.DEVNULL
        return subprocess.Popen(command, stdout=null, stderr=null)

    def connect(self) -> socket.socket:
        """Return a client's connection to the origin, through the terminal's SOCKS5."""
        client = socket.create_connection((_HOST, self.ports["socks"]), timeout=30)
        client.settimeout(30)
        client.sendall(b"\x05\x01\x00")
        assert read(client, 2) == b"\x05\x00"
        port = self._origin.server_address[1].to_bytes(2, "big")
        client.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(_HOST) + port)
        assert read(client, 10)[:2] == b"\x05\x00"
        return client

    def first_bytes(self) -> bytes:
        """Return a terminal's client's first bytes from the origin."""
        with self.connect() as client:
            return read(client, len(HELLO))

    def has_session(self) -> bool:
        """Tell whether the hub has a session with the terminal."""
        paths = LocalApi(self.hub_dir / "api.sock").get("/v1/status")["paths"]
        return any(one["carrying"] for path in paths for one in path["sessions"])

    def hold(self, verb: str) -> None:
        """Block or unblock the hop in both directions."""
        for folder in (self.bare, self.hub_dir):
            LocalApi(folder / "api.sock").request("POST", f"/v1/link/{verb}")

    @property
    def certificates(self) -> int:
        """Return how many certificates the authority has issued to the terminal."""
        issued = tomllib.loads((self.authority / "issued.toml").read_text())
        return [one["node"] for one in issued["certificate"]].count(TERMINAL)

    @property
    def left(self) -> list[str]:
        """Return the paths of all that is in the bare node's folder."""
        return sorted(str(one.relative_to(self.bare)) for one in self.bare.rglob("*"))

    @property
    def _database(self) -> str:
        return f"sqlite:///{self.dir / 'control.db'}"

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}",
            "SSL_CERT_FILE": str(self.authority / "ca.crt"),
        }

    def _start(self, name: str, argv: list[str]) -> Process:
        process = Process(name, argv, log_dir=self.dir, env=self._environment)
        self._running.append(process)
        return process


def run(*command: str, env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def answers(port: int) -> bool:
    """Tell whether a program listens on a port."""
    with suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
        return True
    return False


def read(client: socket.socket, size: int) -> bytes:
    """Read `size` bytes, fewer if the connection ends before."""
    got = b""
    while len(got) < size:
        more = client.recv(size - len(got))
        if not more:
            break
        got += more
    return got
