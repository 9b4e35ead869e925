"""A bare node becomes one of the fleet, by one token, over HTTPS that the token vouches for.

Everything is on the loopback of this machine: the control service with its own certificate, a hub,
and a terminal that begins as an empty folder.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import socketserver
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from tests.testbed.node import LocalApi
from tests.testbed.process import Process
from tests.testbed.programs import built
from tests.testbed.wrong_clock import clock_that_shows
from tests.testbed.wrong_clock import missing as missing_clock

# Each test starts several programs of Python, which takes long on a busy machine.
pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

HUB, TERMINAL = 1, 10
# Two thirds of a certificate of one day are 16 hours.
_PAST_S = 20 * 3600
_HOST = "127.0.0.1"
_ROOT = Path(__file__).parents[2]
_PYTHON = str(_ROOT / ".venv" / "bin" / "python")
_HELLO = b"the first bytes of an origin"
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


def free_port() -> int:
    with socket.socket() as one:
        one.bind((_HOST, 0))
        port: int = one.getsockname()[1]
        return port


class _Hello(socketserver.BaseRequestHandler):
    """Says hello, then what it is told."""

    def handle(self) -> None:
        self.request.sendall(_HELLO)
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
        for process in reversed(self._running):
            process.stop()
        self._origin.shutdown()
        self._origin.server_close()

    def pki(self, verb: str, *arguments: str) -> str:
        return run(built("underpass"), "pki", verb, "--dir", str(self.authority), *arguments)

    def set_up(self) -> None:
        """Make authority, service and hub, as docs/enrolment.md has it."""
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
        """Return the service's `underpass`, whose clock is behind while there is a file `past`."""
        program, past = self.dir / "underpass", self.dir / "past"
        behind = " ".join(clock_that_shows(f"-{_PAST_S}"))
        program.write_text(
            f'#!/bin/sh\n[ -e {past} ] && exec {behind} {built("underpass")} "$@"\n'
            f'exec {built("underpass")} "$@"\n'
        )
        program.chmod(0o755)
        return program

    def control(self, *arguments: str, database: bool = False) -> str:
        where = ["--database", self._database]
        if not database:
            where = ["--url", self.url, "--token", self.token]
        return run(_PYTHON, "-m", "underpass_control", *arguments, *where, env=self._environment)

    def new_token(self, *, through_hub: bool = False) -> str:
        """Return a token of an enrolment that renews by its own way, or through the hub."""
        template = self.dir / "terminal.toml"
        asks = f"to = {HUB}" if through_hub else 'url = "${url}"'
        template.write_text(_TERMINAL.replace("${asks}", asks))
        given = {"dir": self.bare, "url": self.url, **self.ports}
        values = [text for name, value in given.items() for text in ("--set", f"{name}={value}")]
        arguments = (str(TERMINAL), "--configuration", str(template), *values)
        return self.control("enrolment", "create", *arguments).strip()

    def start_node(self, name: str, folder: Path) -> Process:
        node = self._start(name, [built("underpass"), "run", "--config", str(folder / "node.toml")])
        node.wait_until((folder / "api.sock").exists)
        return node

    def enroll(self, token: str, *options: str) -> subprocess.CompletedProcess[str]:
        config = ("--config", str(self.bare / "node.toml"))
        command = [built("underpass"), "enroll", self.url, "--token-file", "-", *config, *options]
        return subprocess.run(
            command, input=token, capture_output=True, text=True, timeout=90, check=False
        )

    def enrolling(self, token: str) -> subprocess.Popen[bytes]:
        """Return the command while it runs."""
        config = ("--config", str(self.bare / "node.toml"))
        command = [built("underpass"), "enroll", self.url, "--token", token, *config]
        null = subprocess.DEVNULL
        return subprocess.Popen(command, stdout=null, stderr=null)

    def connect(self) -> socket.socket:
        """Return a client's connection to the origin, by the terminal's SOCKS5."""
        client = socket.create_connection((_HOST, self.ports["socks"]), timeout=30)
        client.settimeout(30)
        client.sendall(b"\x05\x01\x00")
        assert read(client, 2) == b"\x05\x00"
        port = self._origin.server_address[1].to_bytes(2, "big")
        client.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(_HOST) + port)
        assert read(client, 10)[:2] == b"\x05\x00"
        return client

    def first_bytes(self) -> bytes:
        """Return what a client behind the terminal gets from the origin first."""
        with self.connect() as client:
            return read(client, len(_HELLO))

    def has_session(self) -> bool:
        """Tell whether the hub has a session with the terminal."""
        paths = LocalApi(self.hub_dir / "api.sock").get("/v1/status")["paths"]
        return any(one["carrying"] for path in paths for one in path["sessions"])

    @property
    def certificates(self) -> int:
        """How many certificates the authority has issued to the terminal."""
        issued = tomllib.loads((self.authority / "issued.toml").read_text())
        return [one["node"] for one in issued["certificate"]].count(TERMINAL)

    @property
    def left(self) -> list[str]:
        """What is in the bare node's folder, but for what sockets and runs leave."""
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
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
        return True
    return False


def read(client: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = client.recv(size - len(got))
        if not more:
            break
        got += more
    return got


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A service and a hub that live through all tests of this file."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        fleet.set_up()
        yield fleet
    finally:
        fleet.close()


@pytest.fixture(autouse=True)
def _bare(fleet: Fleet) -> None:
    shutil.rmtree(fleet.bare, ignore_errors=True)
    fleet.bare.mkdir()


def test_one_command_makes_a_bare_node_a_terminal_whose_clients_reach_origins(
    fleet: Fleet,
) -> None:
    token = fleet.new_token()
    done = fleet.enroll(token)
    assert done.returncode == 0, done.stderr
    assert fleet.left == [
        "node.toml",
        "state",
        "state/pki",
        *(f"state/pki/{name}" for name in ("ca.crl", "ca.crt", "node.crt", "node.key")),
    ]
    assert (fleet.bare / "state/pki/node.key").stat().st_mode & 0o777 == 0o600
    key = (fleet.bare / "state/pki/node.key").read_text().splitlines()[1]
    log_and_database = (fleet.dir / "control.db", fleet.dir / "service.log")
    assert not any(key.encode() in one.read_bytes() for one in log_and_database)
    assert not list(fleet.authority.rglob(f"nodes/{TERMINAL}/node.key"))
    terminal = fleet.start_node("terminal", fleet.bare)
    assert fleet.first_bytes() == _HELLO
    terminal.stop()
    # The token has been used: another machine gets nothing by it.
    shutil.rmtree(fleet.bare)
    again = fleet.enroll(token)
    assert again.returncode != 0
    assert "another key" in again.stderr
    assert fleet.left == []


def test_a_service_without_the_tokens_fingerprint_is_not_shown_the_token(fleet: Fleet) -> None:
    token = fleet.new_token()
    # A character in the middle of the fingerprint.
    wrong = token[:20] + ("A" if token[20] != "A" else "B") + token[21:]
    done = fleet.enroll(wrong)
    assert done.returncode != 0
    assert "fingerprint" in done.stderr
    assert not (fleet.bare / "node.toml").exists()
    listed = fleet.control("enrolment", "list", "--json")
    assert "used" not in json.loads(listed)[-1]
    assert fleet.enroll(token).returncode == 0


def test_nothing_that_is_there_is_replaced_without_force(fleet: Fleet) -> None:
    (fleet.bare / "node.toml").write_text("mine\n")
    refused = fleet.enroll(fleet.new_token())
    assert refused.returncode != 0
    assert "--force" in refused.stderr
    assert fleet.left == ["node.toml"]
    assert (fleet.bare / "node.toml").read_text() == "mine\n"
    forced = fleet.enroll(fleet.new_token(), "--force")
    assert forced.returncode == 0, forced.stderr


def test_a_service_that_is_away_costs_another_try_and_no_token(fleet: Fleet) -> None:
    token = fleet.new_token()
    fleet.service.stop()
    away = fleet.enroll(token)
    assert away.returncode != 0
    assert not (fleet.bare / "node.toml").exists()
    fleet.start_service()
    done = fleet.enroll(token)
    assert done.returncode == 0, done.stderr


def test_a_node_that_was_cut_short_is_completed_by_the_same_command(fleet: Fleet) -> None:
    token = fleet.new_token()
    assert fleet.enroll(token).returncode == 0
    whole = fleet.left
    # As a kill leaves it before the configuration and the certificate are written: the key is
    # still the pending one.
    key = fleet.bare / "state/pki/node.key"
    (fleet.bare / "node.toml").unlink()
    (fleet.bare / "state/pki/node.crt").unlink()
    shutil.copy(key, fleet.bare / pending(token))
    done = fleet.enroll(token)
    assert done.returncode == 0, done.stderr
    assert fleet.left == whole


def test_wherever_it_is_killed_the_node_is_bare_or_whole_and_the_same_command_completes_it(
    fleet: Fleet,
) -> None:
    token = fleet.new_token()
    config = fleet.bare / "node.toml"
    for delay_s in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5):
        with fleet.enrolling(token) as running:
            with suppress(subprocess.TimeoutExpired):
                running.wait(delay_s)
            running.kill()
        if config.exists():
            run(built("underpass"), "check-config", "--config", str(config))
    if not config.exists() or list(fleet.bare.glob(".enrolment-*")):
        done = fleet.enroll(token)
        assert done.returncode == 0, done.stderr
    run(built("underpass"), "check-config", "--config", str(config))
    (own,) = [
        one
        for one in json.loads(fleet.control("enrolment", "list", "--json"))[-1:]
        if "used" in one
    ]
    assert own["node"] == TERMINAL


@pytest.mark.skipif(missing_clock() is not None, reason=missing_clock() or "")
def test_a_node_renews_its_certificate_in_time_and_its_streams_live_on(fleet: Fleet) -> None:
    past = fleet.dir / "past"
    past.touch()
    try:
        assert fleet.enroll(fleet.new_token()).returncode == 0
    finally:
        past.unlink()
    certificate = fleet.bare / "state/pki/node.crt"
    before, key = certificate.read_text(), (fleet.bare / "state/pki/node.key").read_text()
    # While the service is away, the node goes on by what it has.
    fleet.service.stop()
    terminal = fleet.start_node("terminal", fleet.bare)
    with fleet.connect() as client:
        assert read(client, len(_HELLO)) == _HELLO
        told_before = terminal.log_path.read_text().count("certificates read again")
        fleet.start_service()
        terminal.wait_until(
            lambda: terminal.log_path.read_text().count("certificates read again") > told_before
        )
        assert certificate.read_text() != before
        assert (fleet.bare / "state/pki/node.key").read_text() == key
        client.sendall(b"still there")
        assert read(client, 11) == b"still there"
    terminal.stop()


@pytest.mark.skipif(missing_clock() is not None, reason=missing_clock() or "")
def test_through_the_hop_a_renewal_survives_blockage_and_killed_service_and_is_no_second_one(
    fleet: Fleet,
) -> None:
    past = fleet.dir / "past"
    past.touch()
    try:
        assert fleet.enroll(fleet.new_token(through_hub=True)).returncode == 0
    finally:
        past.unlink()
    certificate = fleet.bare / "state/pki/node.crt"
    before, issued = certificate.read_text(), fleet.certificates
    fleet.service.kill()
    terminal = fleet.start_node("terminal", fleet.bare)
    api = LocalApi(fleet.bare / "api.sock")
    assert fleet.first_bytes() == _HELLO
    api.request("POST", "/v1/link/block")
    # Questions of three intervals wait for the end of the blockage, then for the service.
    time.sleep(15)
    api.request("POST", "/v1/link/unblock")
    time.sleep(6)
    assert certificate.read_text() == before
    fleet.start_service()
    terminal.wait_until(lambda: certificate.read_text() != before)
    assert fleet.certificates == issued + 1
    folder = fleet.authority / "nodes" / str(TERMINAL)
    assert certificate.read_text() == (folder / "node.crt").read_text()
    # Another interval asks for nothing more; and its clients are served by the new one.
    time.sleep(6)
    assert fleet.certificates == issued + 1
    assert fleet.first_bytes() == _HELLO
    terminal.stop()


def test_through_the_hop_a_revocation_reaches_the_terminal(fleet: Fleet) -> None:
    assert fleet.enroll(fleet.new_token(through_hub=True)).returncode == 0
    terminal = fleet.start_node("terminal", fleet.bare)
    assert fleet.first_bytes() == _HELLO
    fleet.pki("issue", "--node", "77")
    fleet.control("enrolment", "revoke-certificates", "77")
    issued, own = fleet.authority / "ca.crl", fleet.bare / "state/pki/ca.crl"
    terminal.wait_until(lambda: own.read_text() == issued.read_text())
    terminal.stop()


def test_a_new_terminal_reaches_the_hubs_list_by_itself_and_leaves_it_again(
    fleet: Fleet,
) -> None:
    listed = fleet.hub_dir / "state" / "terminals.toml"

    def names() -> list[str]:
        paths = LocalApi(fleet.hub_dir / "api.sock").get("/v1/status")["paths"]
        return [path["name"] for path in paths]

    before = names()
    fleet.control("terminal", "set", "11", "--beam", "east", "--name", "New", "--gateway", str(HUB))
    fleet.hub.wait_until(lambda: len(names()) > len(before))
    # The one that is written by hand is there once.
    assert "node = 11" in listed.read_text()
    assert len(names()) == len(before) + 1
    fleet.control("terminal", "delete", "11")
    fleet.hub.wait_until(lambda: names() == before)


def test_a_revoked_terminal_loses_its_sessions_and_is_enrolled_again_by_another_key(
    fleet: Fleet,
) -> None:
    assert fleet.enroll(fleet.new_token()).returncode == 0
    terminal = fleet.start_node("terminal", fleet.bare)
    assert fleet.first_bytes() == _HELLO
    assert fleet.has_session()
    fleet.control("enrolment", "revoke-certificates", str(TERMINAL))
    fleet.hub.wait_until(lambda: not fleet.has_session())
    terminal.stop()
    done = fleet.enroll(fleet.new_token(), "--force")
    assert done.returncode == 0, done.stderr
    terminal = fleet.start_node("terminal", fleet.bare)
    assert fleet.first_bytes() == _HELLO
    terminal.stop()


def pending(token: str) -> str:
    return f".enrolment-{sha256(token.encode()).hexdigest()[:16]}.key"
