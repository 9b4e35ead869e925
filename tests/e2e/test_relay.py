"""A relay between terminal and hub."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import NEAR
from tests.testbed import addresses
from tests.testbed.client.transfer import download, upload
from tests.testbed.node import HUB_NODE, TCPCL_PORT, Node, Options, Pair, terminal_node
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_RELAY_NODE = 5
_RELAY_PORT = 4600
_RATE = NEAR.forward.rate_bps
_RTT_MS = round(NEAR.rtt_ms)
_RATES = {"send_rate_bps": _RATE, "receive_rate_bps": _RATE}
_TERMINAL_NODE = terminal_node(0)


def relay_config(testbed: Testbed, *, custody: bool) -> dict[str, object]:
    """Return the configuration of a relay between the terminal and the hub."""
    return {
        "node": {
            "number": _RELAY_NODE,
            "role": "relay",
            "state_dir": testbed.dir / "state-relay",
            "drain_s": 2,
        },
        "tls": {"plain": True},
        "listener": [{"name": "sat", "listen": f"{addresses.HUB_SAT}:{_RELAY_PORT}"}],
        "terminal": [{"node": _TERMINAL_NODE, "rtt_ms": _RTT_MS, **_RATES}],
        "path": [
            {
                "name": "hub",
                "neighbour": HUB_NODE,
                "remote": f"{addresses.HUB_SAT}:{TCPCL_PORT}",
                "rtt_ms": 1,
                **_RATES,
            }
        ],
        "route": [
            {"node": HUB_NODE, "via": HUB_NODE, "custody": custody},
            {"node": _TERMINAL_NODE, "via": _TERMINAL_NODE, "custody": custody},
        ],
    }


def relay_options() -> Options:
    """Return the options by which terminal and hub find the relay."""
    satellite = {
        "name": "satellite",
        "neighbour": _RELAY_NODE,
        "remote": f"{addresses.HUB_SAT}:{_RELAY_PORT}",
        "rtt_ms": _RTT_MS,
        **_RATES,
    }
    return Options(
        tls=False,
        terminal={"path": [satellite], "route": [{"node": HUB_NODE, "via": _RELAY_NODE}]},
        hub={
            "terminal": [{"node": _RELAY_NODE, "rtt_ms": 1, **_RATES}],
            "route": [{"node": _TERMINAL_NODE, "via": _RELAY_NODE}],
        },
    )


@pytest.mark.parametrize("custody", [True, False], ids=["custody", "no-custody"])
def test_transfers_pass_a_relay(custody: bool) -> None:
    with Testbed(NEAR) as testbed:
        relay = Node(testbed, "relay", testbed.hub, relay_config(testbed, custody=custody))
        pair = Pair(testbed, relay_options())
        relay.process.wait_until(lambda: relay.carries(2))
        for transfer in (download, upload):
            done = transfer(pair.client, addresses.ORIGIN, 3_000_000, route=pair.socks5())
            assert done.error is None
        # Held by the API, the relay shows which bundles are in custody and which it only stores.
        relay.api.block()
        with pair.socks5().connect(pair.client, addresses.ORIGIN, 7, timeout_s=20) as sock:
            sock.sendall(b"12345678")

            def from_terminal() -> list[dict[str, object]]:
                held = relay.api.get("/v1/custody")["held"]
                own = f"ipn:{_TERMINAL_NODE}."
                return [bundle for bundle in held if str(bundle["source"]).startswith(own)]

            relay.process.wait_until(lambda: bool(from_terminal()))
            assert all(bundle["custody"] == custody for bundle in from_terminal())
            relay.api.unblock()
            sock.settimeout(20)
            assert sock.recv(8) == b"12345678"
