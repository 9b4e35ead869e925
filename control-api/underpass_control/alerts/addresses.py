"""Where webhooks may go: to no address within the operator's own networks, unless allowed.

Who may set a webhook could otherwise have the service ask what only it can reach (server-side
request forgery). Names are looked up at each connection, and the address that was judged is the
one that is connected to, so that a name whose address changes gains nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

Networks = Sequence[IPv4Network | IPv6Network]


class AddressError(OSError):
    """A webhook's address is not allowed, or is none; the text says what to do."""


def check_url(url: str, allowed: Networks) -> URL:
    """Return a webhook's URL, parsed.

    Raises:
        AddressError: It is none for webhooks.
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
    """Make sure that an address may be connected to.

    Raises:
        AddressError: It may not.
    """
    address = ip_address(text.split("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in allowed if network.version == address.version):
        return
    if not address.is_global or address.is_multicast:
        raise AddressError(
            f"{address} is no public address: allow its network with --webhook-networks"
        )


class CheckedResolver(AbstractResolver):
    """Looks names up, and gives those addresses only that may be connected to."""

    def __init__(self, allowed: Networks) -> None:
        self._allowed = allowed
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        Raises:
            AddressError: One of them is not allowed: such a name is not to be trusted at all.
        """
        found = await self._resolver.resolve(host, port, family)
        for one in found:
            check_address(one["host"], self._allowed)
        return found

    async def close(self) -> None:
        """Close the resolver."""
        await self._resolver.close()


def _is_literal(host: str) -> bool:
    try:
        ip_address(host.split("%")[0])
    except ValueError:
        # Forms such as 127.1 or 0x7f000001, which connect() would take for addresses, are
        # looked up like names, and what comes of that is judged.
        return False
    return True
