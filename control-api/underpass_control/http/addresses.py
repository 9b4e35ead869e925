"""The client of a request, as far as addresses tell."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# A host with an IPv6 address usually has a whole network of this size.
_IPV6_PREFIX = 64


def client_address(peer: str | None, forwarded: str, trusted: Sequence[Network]) -> str:
    """Return the address that a request is counted for: an IPv4 address, or a /64 of IPv6.

    Args:
        peer: the other end of the connection, if it is known.
        forwarded: `X-Forwarded-For`, to which each proxy adds its client's address.
        trusted: the proxies whose header counts; any other's is ignored.
    """
    address = _address(peer or "")
    hops = forwarded.split(",")
    while address is not None and hops and any(address in one for one in trusted):
        before = _address(hops.pop().strip())
        if before is None:
            break
        address = before
    if address is None:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
    return str(address)


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
