"""A hub for many light terminals, which `swarm` emulates in one process."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping
from typing import Any

from tests.testbed import addresses, ports
from tests.testbed.loopback import Loopback
from tests.testbed.namespace import command
from tests.testbed.node import HUB_NODE, TCPCL_PORT, Node, merged, terminal_node
from tests.testbed.process import Process, ProcessError
from tests.testbed.programs import built

HUB = f"{addresses.HUB_SAT}:{TCPCL_PORT}"
# On a loopback interface, every address of its network is local.
_TERMINAL_NETWORK = "10.64.0.1/12"
_FIRST_TERMINAL = "10.64.1.0"
# A terminal has eight sessions, a beacon socket at its own end, and with streams the origin's
# connections.
_OPEN_FILES, _OPEN_FILES_STREAMING = 9, 20
_OF_A_PROCESS = 1_000


class SwarmHub:
    """A hub on the loopback, configured for many terminals, with certificates for all of them."""

    def __init__(
        self,
        bed: Loopback,
        terminals: int,
        *,
        hub: Mapping[str, object] | None = None,
    ) -> None:
        self.bed = bed
        self.pki = bed.dir / "pki-swarm"
        _allow_open_files(_OPEN_FILES * terminals + _OF_A_PROCESS)
        last = terminal_node(terminals)
        command([built("swarm"), "certificates", "--pki", str(self.pki), "--count", str(last)])
        config: dict[str, object] = {
            "node": {
                "number": HUB_NODE,
                "role": "hub",
                "state_dir": bed.dir / "state-swarm-hub",
                "drain_s": 2,
            },
            "tls": {"pki_dir": self.pki / "nodes" / str(HUB_NODE)},
            # The origin is on the hub's own address.
            "edge": {"dial": {"allow_networks": [addresses.WAN_NETWORK, f"{addresses.ORIGIN}/32"]}},
            "listener": [{"name": "beam", "listen": HUB}],
            "terminal": [
                {"node": terminal_node(index), "rtt_ms": 600} for index in range(terminals)
            ],
        }
        self.node = Node(bed, "swarm-hub", bed.hub, merged(config, hub or {}))
        self.node.process.wait_until(lambda: self.node.carries(0), timeout_s=60.0)

    def start(self, name: str, *arguments: str) -> Process:
        """Start `swarm` with the arguments common to all its commands."""
        argv = [built("swarm"), *arguments, "--hub", HUB, "--pki", str(self.pki)]
        return self.bed.start(name, argv, self.bed.hub)

    def terminals(self, count: int, *arguments: str, name: str = "swarm") -> Process:
        """Start light terminals; `outcome` reads their results."""
        pid = str(self.node.process.pid)
        return self.start(name, "terminals", "--count", str(count), "--hub-pid", pid, *arguments)

    def streams(self, count: int, *arguments: str, beam_bps: int) -> Process:
        """Start light terminals with paced streams, each at an address of its own."""
        _allow_open_files(_OPEN_FILES_STREAMING * count)
        self.bed.hub.ip("address", "add", _TERMINAL_NETWORK, "dev", "lo")
        pid = str(self.node.process.pid)
        fixed = [
            "--first-address",
            _FIRST_TERMINAL,
            "--origin",
            f"{addresses.ORIGIN}:{ports.PACED}",
        ]
        return self.start(
            "swarm-streams",
            *("streams", "--count", str(count), "--hub-pid", pid),
            *("--beam-bps", str(beam_bps), *fixed, *arguments),
        )


def _allow_open_files(needed: int) -> None:
    """Allow this process and its children to open so many files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, needed))
        except (OSError, ValueError) as error:
            raise ProcessError(f"{hard} open files are too few: {needed} are needed") from error


def outcome(process: Process, *, timeout_s: float) -> dict[str, Any]:
    """Wait for the end of light terminals; return their results."""
    deadline = time.monotonic() + timeout_s
    while process.running():
        if time.monotonic() > deadline:
            raise ProcessError(f"{process.name} is not over after {timeout_s} s")
        time.sleep(0.2)
    lines = process.log_path.read_text().splitlines()
    told = [line for line in lines if line.startswith("{")]
    if not told:
        raise ProcessError(f"{process.name} ended without a word:\n{process.log_tail()}")
    result: dict[str, Any] = json.loads(told[-1])
    return result
