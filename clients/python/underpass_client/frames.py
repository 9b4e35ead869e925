"""Frames: the lengths of a JSON head and of a payload, then both."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

_LENGTHS = struct.Struct(">II")


def encode(head: dict[str, object], payload: bytes = b"") -> bytes:
    """Return the frame."""
    text = json.dumps(head).encode()
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


async def read(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    """Return the next frame's head and payload; raise `asyncio.IncompleteReadError` at the end."""
    head_bytes, payload_bytes = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    head = json.loads(await reader.readexactly(head_bytes))
    return head, await reader.readexactly(payload_bytes)
