"""The addresses of the test bed; every instance has the same, in its own namespaces.

The origin lies in the networks set aside for benchmarks and documentation (RFC 2544, RFC 3849).
"""

from __future__ import annotations

HUB_SAT = "10.100.0.1"
HUB_SAT6 = "fd00:100::1"
HUB_TERRESTRIAL = "10.101.0.1"
HUB_TERRESTRIAL6 = "fd00:101::1"
HUB_WAN = "198.18.0.1"
HUB_WAN6 = "2001:db8:18::1"
ORIGIN = "198.18.0.2"
ORIGIN6 = "2001:db8:18::2"
ROUTER_WAN = "198.18.0.3"
ROUTER_WAN6 = "2001:db8:18::3"
ROUTER_GROUND = "198.18.2.1"
ROUTER_GROUND6 = "2001:db8:1802::1"
GROUND = "198.18.2.2"
GROUND6 = "2001:db8:1802::2"
HUB_CONTROL = "198.18.3.1"
CONTROL = "198.18.3.2"
GROUND_NETWORK = "198.18.2.0/24"
WAN_NETWORK = "198.18.0.0/24"
WAN_NETWORK6 = "2001:db8:18::/64"
CLIENT_NETWORKS = "10.1.0.0/16"
CLIENT_NETWORKS6 = "fd00:1::/32"


def terminal_sat(index: int) -> str:
    """Return terminal `index`'s address on the satellite hop."""
    return f"10.100.0.{10 + index}"


def terminal_sat6(index: int) -> str:
    """Return terminal `index`'s IPv6 address on the satellite hop."""
    return f"fd00:100::{10 + index}"


def terminal_terrestrial(index: int) -> str:
    """Return terminal `index`'s address on the terrestrial path."""
    return f"10.101.0.{10 + index}"


def terminal_terrestrial6(index: int) -> str:
    """Return terminal `index`'s IPv6 address on the terrestrial path."""
    return f"fd00:101::{10 + index}"


def terminal_lan(index: int) -> str:
    """Return terminal `index`'s address towards its clients."""
    return f"10.1.{index}.1"


def terminal_lan6(index: int) -> str:
    """Return terminal `index`'s IPv6 address towards its clients."""
    return f"fd00:1:{index}::1"


def client(index: int) -> str:
    """Return the address of terminal `index`'s client."""
    return f"10.1.{index}.2"


def client6(index: int) -> str:
    """Return the IPv6 address of terminal `index`'s client."""
    return f"fd00:1:{index}::2"


def client_network(index: int) -> str:
    """Return the network of terminal `index`'s clients."""
    return f"10.1.{index}.0/24"


def client_network6(index: int) -> str:
    """Return the IPv6 network of terminal `index`'s clients."""
    return f"fd00:1:{index}::/64"
