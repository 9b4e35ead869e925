"""Plays one end of a script on a socket, and records its observations."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Callable

from tests.e2e.tcp_semantics.script import (
    Await,
    End,
    Meet,
    Op,
    Pause,
    ReadEnd,
    Seen,
    Send,
    SendUntilReset,
)
from tests.testbed.content import ContentError, Verifier, pieces

_ABORT = struct.pack("ii", 1, 0)
_RESETS = {errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN}
_UNTIL_RESET_BYTES, _UNTIL_RESET_S = 1000, 0.02


class Actor:
    """One end at work: it writes and reads at the same time, then leaves."""

    def __init__(
        self, end: End, *, sends_seed: int, receives_seed: int, meeting: asyncio.Barrier
    ) -> None:
        self._end = end
        self._meeting = meeting
        self._sends_seed = sends_seed
        self._verifier = Verifier(receives_seed)
        self._sent = 0
        self._seen_end: ReadEnd = "open"
        self._write_failed = False
        self._wrong: str | None = None
        self._progress = asyncio.Event()
        # The request to a proxy before all other bytes, and whether its answers are complete.
        self.opening = b""
        self.opened: Callable[[bytes], bool] | None = None

    async def act(self, sock: socket.socket, deadline_s: float) -> Seen:
        """Play the end on a connection, and close it; times are the event loop's."""
        sock.setblocking(False)
        # Otherwise the last bytes before a reset would be bytes that the kernel never sent.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reading = asyncio.create_task(self._read(sock))
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._write(sock)
                if self._end.leaves:
                    # A proxy's own bytes do not count as the other end's.
                    await self._until(lambda: self.opened is None or self._seen_end != "open")
                else:
                    await reading
        except TimeoutError:
            self._seen_end = "hung"
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        if self._end.ending == "abort" or self._seen_end == "hung":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        sock.close()
        return Seen(
            self._verifier.offset,
            self._seen_end,
            wrote_all=not self._write_failed,
            wrong=self._wrong,
        )

    async def _write(self, sock: socket.socket) -> None:
        try:
            for op in self._end.ops:
                await self._do(sock, op)
        except OSError as error:
            self._write_failed = True
            self._note(error)
        if self.opening and not self._write_failed:
            # It sends no data, but the proxy needs its request all the same.
            await self._send(sock, b"")

    async def _do(self, sock: socket.socket, op: Op) -> None:
        if isinstance(op, Send):
            begin, self._sent = self._sent, self._sent + op.size
            for piece in pieces(self._sends_seed, self._sent, begin):
                await self._send(sock, piece)
        elif isinstance(op, SendUntilReset):
            while True:
                begin, self._sent = self._sent, self._sent + _UNTIL_RESET_BYTES
                for piece in pieces(self._sends_seed, self._sent, begin):
                    await self._send(sock, piece)
                await asyncio.sleep(_UNTIL_RESET_S)
        elif isinstance(op, Pause):
            await asyncio.sleep(op.ms / 1000)
        elif isinstance(op, Meet):
            await self._meeting.wait()
        elif isinstance(op, Await):
            if self.opening:
                await self._send(sock, b"")
            size = op.size
            await self._until(
                lambda: (
                    self._seen_end != "open" or (size is not None and self._verifier.offset >= size)
                )
            )
        else:
            if self.opening:
                await self._send(sock, b"")
            sock.shutdown(socket.SHUT_WR)

    async def _send(self, sock: socket.socket, data: bytes) -> None:
        opening, self.opening = self.opening, b""
        await asyncio.get_running_loop().sock_sendall(sock, opening + data)

    async def _read(self, sock: socket.socket) -> None:
        loop, pace = asyncio.get_running_loop(), self._end.pace
        try:
            answers = b""
            while self.opened and not self.opened(answers):
                byte = await loop.sock_recv(sock, 1)
                if not byte:
                    raise ConnectionResetError(errno.ECONNRESET, "the proxy ended")
                answers += byte
            self.opened = None
            self._progress.set()
            await asyncio.sleep(pace.after_ms / 1000)
            while (left := self._left()) > 0:
                data = await loop.sock_recv(sock, min(pace.piece, left))
                if not data:
                    # After a write has reported a reset, the reader sees only an end; record the
                    # reset first.
                    for _ in range(3):
                        await asyncio.sleep(0)
                    self._seen_end = "reset" if self._write_failed else "eof"
                    break
                self._verifier.feed(data)
                self._progress.set()
                if pace.pause_ms:
                    await asyncio.sleep(pace.pause_ms / 1000)
        except OSError as error:
            self._seen_end = "reset"
            self._note(error)
        except ContentError as error:
            self._wrong = str(error)
        self._progress.set()

    def _left(self) -> int:
        if self._end.limit is None:
            return self._end.pace.piece
        return self._end.limit - self._verifier.offset

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._progress.clear()
            await self._progress.wait()

    def _note(self, error: OSError) -> None:
        if error.errno not in _RESETS:
            self._wrong = f"{type(error).__name__}: {error}"
