"""A simulated NCC, which reads requests as OpenSAND's does, 200 bytes at a time."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field

from tests.free_port import free_port

_READ_BYTES = 200
_BITS = 0xFFFF
_LINE = re.compile(rb"(\d+):(\d+):(\d+):(\d+):(\d+)")


@dataclass
class Terminal:
    """The NCC's figures of a satellite terminal, in kbit/s."""

    cra_kbps: int = 128
    rbdc_max_kbps: int = 512


@dataclass
class Ncc:
    """An NCC with one client at a time; terminals that are not logged on are ignored."""

    terminals: dict[int, Terminal]
    # The constant rates given: (ms since the Unix epoch, terminal id, kbit/s).
    applied: list[tuple[int, int, int]] = field(default_factory=list)
    broken: list[bytes] = field(default_factory=list)
    connections: int = 0
    # A restart uses the same port.
    port: int = field(default_factory=free_port)
    is_busy: bool = False
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """End, as in a crash."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_busy:
            writer.close()
            return
        self.is_busy = True
        self.connections += 1
        self._writers.append(writer)
        try:
            while piece := await reader.read(_READ_BYTES):
                if not self._take(piece):
                    break
        except OSError:
            pass
        finally:
            self.is_busy = False
            writer.close()

    def _take(self, piece: bytes) -> bool:
        """Apply the lines of a piece; return False if none can be read."""
        types = set()
        for line in piece.rstrip(b"\n").split(b"\n"):
            found = _LINE.fullmatch(line)
            if not found or not piece.endswith(b"\n"):
                self.broken.append(line)
                continue
            kind, st_id, cra, _, rbdc_max = map(int, found.groups())
            types.add(kind)
            terminal = self.terminals.get(st_id)
            # Lines of another type than the piece's first are skipped.
            if terminal is None or len(types) > 1:
                continue
            terminal.cra_kbps = (cra & _BITS) or terminal.cra_kbps
            terminal.rbdc_max_kbps = (rbdc_max & _BITS) or terminal.rbdc_max_kbps
            self.applied.append((time.time_ns() // 1_000_000, st_id, terminal.cra_kbps))
        return bool(types)
