"""Where webhooks may go: to no address within the operator's own networks, unless allowed.

Otherwise a user who may set a webhook could make the service send requests to hosts that only it
can reach (server-side request forgery). Names are looked up at each connection, and the connection
goes to the address that was checked, so a name that changes its address gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

# All public addresses (IANA's registry of IPv6). The rest is reserved, even if the library calls it
# global, as it does site-local and IPv4-compatible addresses.
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# RFC 6052.
_NAT64 = IPv6Network("64:ff9b::/96")
# Addresses where cloud providers give a host its credentials, the same as in
# `gateway/edge/src/dial/policy.rs`. Some of them are public, and the networks of the others may be
# allowed for the sake of other hosts.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        *("100.100.100.200", "100.100.2.136", "100.100.2.138", "168.63.129.16", "169.254.0.23"),
        *("169.254.42.42", "169.254.169.123", "169.254.169.249", "169.254.169.253"),
        *("169.254.169.254", "169.254.170.2", "169.254.170.23", "192.0.0.192", "fd00:42::42"),
        *("fd00:c1::a9fe:a9fe", "fd00:ec2::23", "fd00:ec2::254", "fd20:ce::254"),
    )
)

# As many as webhooks, each of which is sent one message at a time.
_LOOKED_UP_AT_ONCE = 20

Networks = Sequence[IPv4Network | IPv6Network]


class AddressError(OSError):
    """A webhook's address is not allowed, or is malformed; the text says what to do."""


def check_url(url: str, allowed: Networks) -> URL:
    """Return a webhook's URL, parsed.

    Raises:
        AddressError: It is not a URL for webhooks.
    """
    try:
        parsed = URL(url)
    except ValueError as error:
        raise AddressError(f"it is no URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise AddressError("a webhook's URL begins with https://HOST or http://HOST")
    if parsed.user is not None or parsed.password is not None:
        raise AddressError("a webhook's URL has no user or password: its messages are signed")
    if parsed.fragment:
        raise AddressError("a webhook's URL has no fragment")
    if _is_literal(parsed.host):
        check_address(parsed.host, allowed)
    return parsed


def check_address(text: str, allowed: Networks) -> None:
    """Check that the service may connect to an address.

    Raises:
        AddressError: It may not.
    """
    address = ip_address(text.split("%")[0])
    if isinstance(address, IPv6Address):
        address = _embedded(address) or address
    if address in _METADATA:
        if not any(address in one and one.num_addresses == 1 for one in allowed):
            raise AddressError(
                f"{address} tells a host its credentials: allow the very address, with no network"
                " around it, with --webhook-networks"
            )
        return
    if any(address in network for network in allowed):
        return
    is_unicast = isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST
    if not (is_unicast and address.is_global) or address.is_multicast:
        raise AddressError(
            f"{address} is no public address: allow its network with --webhook-networks"
        )


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to, if it does."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


class CheckedResolver(AbstractResolver):
    """Looks names up, and returns only addresses to which the service may connect.

    It has its own threads: otherwise a name server that does not answer would block everything else
    that the service does in threads.
    """

    def __init__(self, allowed: Networks) -> None:
        self._allowed = allowed
        self._threads = ThreadPoolExecutor(_LOOKED_UP_AT_ONCE, thread_name_prefix="names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        Raises:
            AddressError: One of them is not allowed, so the whole name is refused.
        """
        kind, flags = socket.SOCK_STREAM, socket.AI_ADDRCONFIG
        look_up = partial(socket.getaddrinfo, host, port, family, kind, flags=flags)
        infos = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        found = [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=of,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for of, _, protocol, _, address in infos
        ]
        for one in found:
            check_address(one["host"], self._allowed)
        return found

    async def close(self) -> None:
        """Stop looking up names."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_literal(host: str) -> bool:
    try:
        ip_address(host.split("%")[0])
    except ValueError:
        # Forms such as 127.1 or 0x7f000001, which connect() would take for addresses, are
        # looked up like names, and the result is checked.
        return False
    return True
