"""Two tenants' chains of functions on one emulated beam: networks, control service, agent."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from underpass_control.toml_text import toml_text

from tests.free_port import free_port
from tests.testbed import programs

_ROOT = Path(__file__).parents[2]
TENANTS = ("north", "south")
# The beam's rate, and the rates to which each tenant's hub and shaper keep.
BEAM_BPS, SHARE_BPS, RETURN_BPS = 8_000_000, 3_500_000, 800_000
_DELAY_MS = 100
ORIGIN = "10.35.0.10"
_USER = 10001


def subnet(kind: str, tenant: str) -> str:
    """Return the first three bytes of the /24 of a tenant's attachment."""
    return f"10.{32 + ('lan', 'modem', 'dish').index(kind)}.{TENANTS.index(tenant) + 1}"


def slices(tenant: str) -> dict[str, dict[str, Any]]:
    """Return the documentation's slices with this tenant's addresses and rates, by name."""
    read = [
        json.loads((_ROOT / "docker" / "slices" / f"{name}.json").read_text())
        for name in ("vehicle", "ground")
    ]
    vehicle, ground = copy.deepcopy(read)
    hub = f"{subnet('dish', tenant)}.10"
    for network in (*vehicle["networks"], *ground["networks"]):
        if network.get("attachment") in ("lan", "modem", "dish"):
            network["attachment"] += f"-{tenant}"
    proxy, shaper = (one["settings"] for one in vehicle["functions"])
    proxy["client_networks"] = [f"{subnet('lan', tenant)}.0/24"]
    rates = {"send_rate_bps": RETURN_BPS, "receive_rate_bps": SHARE_BPS, "rtt_ms": 2 * _DELAY_MS}
    shaper |= {"hub": f"{hub}:4556", **rates}
    vehicle["functions"][0]["networks"][0]["address"] = f"{subnet('lan', tenant)}.10"
    functions = {one["name"]: one for one in ground["functions"]}
    functions["hub"]["networks"][1]["address"] = hub
    functions["hub"]["settings"] |= {
        "terminals": [
            {
                "node": 5,
                "send_rate_bps": SHARE_BPS,
                "receive_rate_bps": RETURN_BPS,
                "behind": [10],
            }
        ],
        "rate_bps": SHARE_BPS,
        "rtt_ms": 2 * _DELAY_MS,
        # The origin of this test is on a private network.
        "allow_networks": ["10.35.0.0/24"],
    }
    functions["firewall"]["settings"]["allow"].append({"protocol": "tcp", "port": 8000})
    functions["nat"]["settings"] = {"to_private": ["10.35.0.0/24"]}
    return {
        f"{tenant}-{name}": {**body, "tenant": tenant}
        for name, body in (("vehicle", vehicle), ("ground", ground))
    }


@dataclass
class Chains:
    """The running system."""

    folder: Path
    environment: Mapping[str, str]
    port: int
    token: str = ""

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program, which must succeed unless `check` is false."""
        done = subprocess.run(
            command,
            cwd=_ROOT,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def docker(self, *arguments: str) -> str:
        """Run docker; return what it prints."""
        return self.run("docker", *arguments).stdout.strip()

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make a request to the control service as an operator of the whole system."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from error
        return json.loads(text) if text else None

    def state(self, name: str) -> str:
        """Return a slice's state, with the reason if it is not running."""
        found = self.call("GET", f"/v1/slices/{name}")
        unwell = [one for one in found["containers"] if one["health"] != "healthy"]
        return str(found["state"]) + (f": {found.get('detail')} {unwell}" if unwell else "")

    def container(self, slice_name: str, service: str) -> str:
        """Return the id of a slice's container."""
        labels = {"project": f"underpass-slice-{slice_name}", "service": service}
        filters = [f"label=com.docker.compose.{n}={value}" for n, value in labels.items()]
        return self.docker("ps", "-q", *(part for one in filters for part in ("--filter", one)))

    def namespace(self, container: str) -> str:
        """Return the network namespace of a container."""
        return f"/proc/{self.docker('inspect', '-f', '{{.State.Pid}}', container)}/ns/net"

    def client(self, tenant: str, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a Python program on a tenant's LAN."""
        command = ["docker", "run", "--rm", "--init", "--network", f"lan-{tenant}"]
        return subprocess.Popen(
            [*command, "--entrypoint", "python3", "underpass-control", "-c", program, *arguments],
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def satlink(self, *arguments: str) -> Any:
        """Make a request to the emulated beam."""
        socket = str(self.folder / "satlink.sock")
        told = self.run(programs.built("satlink"), "ctl", "--socket", socket, *arguments)
        return json.loads(told.stdout)


def until(holds: Callable[[], bool], what: Callable[[], object], within_s: float = 300) -> None:
    """Wait for a condition that may take minutes on a slow machine; `what` describes a failure."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, f"it has not come about: {what()}"
        time.sleep(1)


@contextmanager
def running(folder: Path, environment: Mapping[str, str]) -> Iterator[Chains]:
    """Bring both tenants' chains up, on one beam."""
    python = f"{_ROOT / 'control-api'}:{_ROOT}"
    chains = Chains(folder, {**environment, "PYTHONPATH": python}, free_port())
    with ExitStack() as stack:
        _networks(chains, stack)
        _certificates(chains)
        _control(chains, stack)
        for tenant in TENANTS:
            for name, body in slices(tenant).items():
                chains.call("PUT", f"/v1/slices/{name}", body)
                stack.callback(_terminated, chains, name)
        names = [name for tenant in TENANTS for name in slices(tenant)]
        until(
            lambda: all(chains.state(name) == "running" for name in names),
            lambda: {name: chains.state(name) for name in names},
        )
        _beam(chains, stack)
        yield chains


def _terminated(chains: Chains, name: str) -> None:
    chains.call("DELETE", f"/v1/slices/{name}")
    until(
        lambda: name not in [one["name"] for one in chains.call("GET", "/v1/slices")["slices"]],
        lambda: chains.state(name),
    )
    label = f"label=com.docker.compose.project=underpass-slice-{name}"
    assert chains.docker("ps", "-aq", "--filter", label) == ""
    assert chains.docker("volume", "ls", "-q", "--filter", label) == ""
    assert chains.docker("network", "ls", "-q", "--filter", label) == ""


def _networks(chains: Chains, stack: ExitStack) -> None:
    """Make the operator's part of a host: attachments, the dish's router, an origin."""

    def network(name: str, block: str) -> None:
        chains.docker("network", "create", "--subnet", f"{block}.0/24", name)
        stack.callback(chains.docker, "network", "rm", name)

    network("internet", "10.35.0")
    for tenant in TENANTS:
        for kind in ("lan", "modem", "dish"):
            network(f"{kind}-{tenant}", subnet(kind, tenant))
    origin = ["run", "-d", "--network", "internet", "--ip", ORIGIN, "--entrypoint", "python3"]
    serve = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        size = int(self.path[1:])\n"
        "        self.send_response(200)\n"
        "        self.send_header('Content-Length', str(size))\n"
        "        self.end_headers()\n"
        "        while size > 0:\n"
        "            size -= self.wfile.write(bytes(min(size, 65536)))\n"
        "h.ThreadingHTTPServer(('', 8000), H).serve_forever()\n"
    )
    made = chains.docker(*origin, "underpass-control", "-c", serve)
    stack.callback(chains.docker, "rm", "-f", made)
    # The dish's router lets a terminal reach only its own tenant's hub.
    rules = [
        "add table ip r",
        "add chain ip r f { type filter hook forward priority 0; policy drop; }",
    ]
    rules += ["add rule ip r f ct state established,related accept"]
    rules += ["add chain ip r p { type nat hook postrouting priority 100; }"]
    rules += ["add rule ip r p ip saddr 100.65.0.0/24 masquerade"]
    for place, tenant in enumerate(TENANTS):
        route = f"ip saddr 100.65.0.1{place} ip daddr {subnet('dish', tenant)}.0/24"
        rules.append(f"add rule ip r f {route} accept")
    script = "".join(f"nft '{rule}' && " for rule in rules) + "exec sleep infinity"
    options = ["--cap-add", "NET_ADMIN", "--sysctl", "net.ipv4.ip_forward=1", "--name", "dish"]
    options += ["--network", f"dish-{TENANTS[0]}", "--init"]
    chains.docker("run", "-d", *options, "underpass-netfilter", "sh", "-c", script)
    stack.callback(chains.docker, "rm", "-f", "dish")
    chains.docker("network", "connect", f"dish-{TENANTS[1]}", "dish")


def _certificates(chains: Chains) -> None:
    """Make an authority for each tenant."""
    underpass = programs.built("underpass")
    for tenant in TENANTS:
        pki = chains.folder / "pki" / tenant
        chains.run(underpass, "pki", "init", "--dir", str(pki))
        for node in (1, 5, 10):
            chains.run(underpass, "pki", "issue", "--dir", str(pki), "--node", str(node))
        chains.run("chown", "-R", f"{_USER}:{_USER}", str(pki / "nodes"))


def _control(chains: Chains, stack: ExitStack) -> None:
    """Start the control service, and the agent beside the engine."""
    program = [sys.executable, "-m", "underpass_control"]
    database = ["--database", f"sqlite:///{chains.folder / 'control.db'}"]
    chains.run(*program, "migrate", *database)

    def token(role: str) -> str:
        made = chains.run(*program, "token", "create", role, "--role", role, *database)
        return made.stdout.strip()

    chains.token = token("administrator")
    _started(chains, stack, "control", *program, "serve", *database, "--port", str(chains.port))
    until(lambda: _answers(chains), lambda: (chains.folder / "control.log").read_text()[-2_000:])
    # Each tenant has its part of the beam.
    most: dict[str, dict[str, int]] = {
        "lan": {},
        "modem": {"tenant_send_bps": RETURN_BPS, "tenant_receive_bps": SHARE_BPS},
        "dish": {"tenant_send_bps": SHARE_BPS, "tenant_receive_bps": RETURN_BPS},
    }
    attachments: list[dict[str, object]] = [
        {"name": f"{kind}-{tenant}", "network": f"{kind}-{tenant}", "tenants": [tenant], **bounds}
        for tenant in TENANTS
        for kind, bounds in most.items()
    ]
    everybodys: dict[str, object] = {"name": "internet", "network": "internet"}
    everybodys |= {"tenants": list(TENANTS), "gateway": "10.35.0.1"}
    site = chains.folder / "site.toml"
    document: dict[str, object] = {
        "cpus": 32,
        "memory_mb": 16384,
        "certificates": chains.folder / "pki",
        "attachment": [*attachments, everybodys],
    }
    site.write_text(toml_text(document))
    for tenant in TENANTS:
        chains.call("PUT", f"/v1/tenants/{tenant}", {"name": tenant})
    agent = [*program, "functions-agent", "--site", str(site), "--every-seconds", "1"]
    agent += ["--folder", str(chains.folder / "projects"), "--token", token("agent")]
    agent += ["--url", f"http://127.0.0.1:{chains.port}"]
    _started(chains, stack, "agent", *agent)


def _answers(chains: Chains) -> bool:
    try:
        chains.call("GET", "/v1/slices")
    except OSError:
        return False
    return True


def _started(chains: Chains, stack: ExitStack, name: str, *command: str) -> None:
    log = stack.enter_context((chains.folder / f"{name}.log").open("wb"))
    process = subprocess.Popen(
        command, cwd=_ROOT, env=dict(chains.environment), stdout=log, stderr=log
    )

    def end() -> None:
        process.terminate()
        process.wait(timeout=30)

    stack.callback(end)


def _beam(chains: Chains, stack: ExitStack) -> None:
    """Put the beam between the dish's router and both shapers."""
    links: dict[str, object] = {link: {"delay_ms": _DELAY_MS} for link in ("forward", "return")}
    terminals: list[dict[str, object]] = [
        {
            "name": tenant,
            "netns": chains.namespace(chains.container(f"{tenant}-vehicle", "shaper.1")),
            "device": "sat0",
            "addresses": [f"100.65.0.1{place}/24"],
            "routes": [f"{subnet('dish', tenant)}.0/24"],
            **links,
        }
        for place, tenant in enumerate(TENANTS)
    ]
    config: dict[str, object] = {
        "socket": chains.folder / "satlink.sock",
        "seed": 1,
        "beam": {
            "forward": {"capacity_bps": BEAM_BPS},
            "return": {"capacity_bps": 2 * RETURN_BPS},
        },
        "hub": {
            "netns": chains.namespace("dish"),
            "device": "sat0",
            "addresses": ["100.65.0.1/24"],
            "routes": [],
        },
        "terminal": terminals,
    }
    path = chains.folder / "satlink.toml"
    path.write_text(toml_text(config))
    _started(chains, stack, "satlink", programs.built("satlink"), "run", "--config", str(path))
    until(
        (chains.folder / "satlink.sock").exists,
        lambda: (chains.folder / "satlink.log").read_text()[-2_000:],
    )


def may_run() -> str | None:
    """Return why the beam cannot be made here; None if it can."""
    if os.geteuid() != 0:
        return "only root makes the emulated beam"
    return programs.missing("underpass", "satlink")
