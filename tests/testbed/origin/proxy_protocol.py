"""The receiving side of the PROXY protocol, version 2 (HAProxy's specification, section 2.2)."""

from __future__ import annotations

import asyncio
import socket

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


async def read_source(reader: asyncio.StreamReader) -> str:
    """Read the header and return its source address and port."""
    head = await reader.readexactly(16)
    if head[:12] != _SIGNATURE or head[12] >> 4 != 2:
        raise ConnectionError(f"no PROXY v2 header but {head.hex()}")
    address = await reader.readexactly(int.from_bytes(head[14:16], "big"))
    if head[12] & 0xF == 0:
        return "local"
    if head[13] == 0x11:
        return f"{socket.inet_ntop(socket.AF_INET, address[:4])} {int.from_bytes(address[8:10])}"
    if head[13] == 0x21:
        return f"{socket.inet_ntop(socket.AF_INET6, address[:16])} {int.from_bytes(address[32:34])}"
    raise ConnectionError(f"address family and protocol 0x{head[13]:02x} are not TCP")
