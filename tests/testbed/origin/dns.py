"""A small DNS server over UDP (RFC 1035): a few names, an error for others, or silence."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from typing import cast

from tests.testbed import addresses

_A = 1
_AAAA = 28
_NXDOMAIN = 3
# Response, authoritative, recursion available.
_ANSWER_FLAGS = 0x8480
_RECURSION_DESIRED = 0x0100
_TTL_S = 60
# An answer's name, as a pointer to the question behind the 12 octets of the header.
_QUESTION_NAME = b"\xc0\x0c"

# The known names; a name under `SILENT` is never answered.
ZONE = {
    "origin.test": [addresses.ORIGIN, addresses.ORIGIN6],
    "ipv4.origin.test": [addresses.ORIGIN],
    "ipv6.origin.test": [addresses.ORIGIN6],
}
SILENT = "silent.test"


class Dns(asyncio.DatagramProtocol):
    """Answers from `ZONE`."""

    _transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # Python 3.11's own transport is no subclass of `DatagramTransport`.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer a query, unless its name is silent."""
        answer = reply(data)
        if answer:
            self._transport.sendto(answer, addr)


def reply(query: bytes) -> bytes | None:
    """Return the answer to a query with one question; None for silence."""
    try:
        number, flags = struct.unpack_from(">HH", query)
        name, end = _name(query, 12)
        kind = struct.unpack_from(">H", query, end)[0]
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if name == SILENT or name.endswith(f".{SILENT}"):
        return None
    known = ZONE.get(name)
    of_kind = [
        address
        for address in map(ipaddress.ip_address, known or [])
        if kind == (_A if address.version == 4 else _AAAA)
    ]
    flags = _ANSWER_FLAGS | (flags & _RECURSION_DESIRED) | (0 if known else _NXDOMAIN)
    header = struct.pack(">6H", number, flags, 1, len(of_kind), 0, 0)
    records = b"".join(
        _QUESTION_NAME + struct.pack(">HHIH", kind, 1, _TTL_S, len(address.packed)) + address.packed
        for address in of_kind
    )
    return header + query[12 : end + 4] + records


def _name(message: bytes, start: int) -> tuple[str, int]:
    """Return the name at `start` without its final dot, and where it ends."""
    labels = []
    while length := message[start]:
        labels.append(message[start + 1 : start + 1 + length].decode("ascii").lower())
        start += 1 + length
    return ".".join(labels), start + 1
