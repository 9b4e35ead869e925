"""The targets of a replay: the control service's REST API, or a reader of NMEA."""

from __future__ import annotations

import asyncio
import os
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from dama.prediction import Fix
from underpass_control.client import Client
from underpass_control.instants import moment_of, rfc3339
from underpass_control.replay.sentences import sentences
from underpass_control.replay.timeline import Moment

# A reader with this much unread data is not reading.
_MOST_UNREAD = 65_536


class TargetError(Exception):
    """The URL names no target, or the target cannot be opened."""


class Target(Protocol):
    """Receives the moments of a replay."""

    async def open(self) -> None:
        """Get ready; return once a reader is there for the beginning.

        Raises:
            TargetError: It cannot be opened.
        """

    async def send(self, moments: Sequence[Moment]) -> None:
        """Send.

        Raises:
            client.LostError: Sending failed, but may succeed later.
            client.RefusedError: The moments were refused for good.
        """

    async def close(self) -> None:
        """Close the target."""


def target_of(url: str, *, token: str | None, terminal: int | None) -> Target:
    """Return the target of a URL.

    Raises:
        TargetError: The URL names no target, or something is missing.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise TargetError(f"{url}: {error}") from error
    if parts.scheme in ("http", "https") and host:
        if terminal is None:
            raise TargetError("to report to the control service, name the terminal: --terminal")
        return Rest(Client(url, token), terminal)
    if parts.scheme == "udp" and host and port:
        return Udp(host, port)
    if parts.scheme == "tcp-listen" and host and port is not None:
        return TcpListen(host, port)
    if parts.scheme == "pty" and parts.path and not host:
        return Pty(Path(parts.path))
    forms = "http(s)://HOST:PORT, udp://HOST:PORT, tcp-listen://HOST:PORT or pty:PATH"
    raise TargetError(f"{url!r} is none of {forms}")


class Rest:
    """Reports the positions of a terminal to the control service, in batches."""

    def __init__(self, client: Client, terminal: int) -> None:
        self._client = client
        self._terminal = terminal

    async def open(self) -> None:
        """Connect with the first report."""
        await self._client.__aenter__()

    async def send(self, moments: Sequence[Moment]) -> None:
        """Report the fixes."""
        positions = [_position(self._terminal, one.fix) for one in moments if one.fix is not None]
        if positions:
            await self._client.ask("POST", "/v1/positions", body={"positions": positions})

    async def close(self) -> None:
        """Disconnect."""
        await self._client.__aexit__(None, None, None)


def _position(terminal: int, fix: Fix) -> dict[str, object]:
    time = rfc3339(moment_of(fix.time_ms))
    position = {
        "terminal": terminal,
        "time": time,
        "gnss_time": time,
        "longitude": fix.lon,
        "latitude": fix.lat,
        "speed_mps": fix.speed_mps,
        "heading_deg": fix.heading_deg,
        "accuracy_m": fix.accuracy_m,
    }
    return {name: value for name, value in position.items() if value is not None}


class Udp:
    """Sends a datagram for each moment."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port

    async def open(self) -> None:
        """Bind a socket."""
        loop = asyncio.get_running_loop()
        try:
            self._transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=self._address
            )
        except OSError as error:
            raise TargetError(f"{self._address[0]}: {error}") from error

    async def send(self, moments: Sequence[Moment]) -> None:
        """Send, even if there is no reader, as a receiver does."""
        for moment in moments:
            self._transport.sendto(sentences(moment))

    async def close(self) -> None:
        """Close the socket."""
        self._transport.close()


class TcpListen:
    """Sends to all clients that connect; the replay begins with the first of them."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._readers: set[asyncio.StreamWriter] = set()
        self._first = asyncio.Event()

    async def open(self) -> None:
        """Listen until a client connects."""
        try:
            self._server = await asyncio.start_server(self._accept, *self._address)
        except OSError as error:
            raise TargetError(f"{self._address[0]}:{self._address[1]}: {error}") from error
        await self._first.wait()

    async def send(self, moments: Sequence[Moment]) -> None:
        """Send; a client that does not read is disconnected, and may connect again."""
        said = b"".join(map(sentences, moments))
        for reader in list(self._readers):
            reader.write(said)
            if reader.transport.get_write_buffer_size() > _MOST_UNREAD:
                reader.transport.abort()

    async def close(self) -> None:
        """Stop listening, and disconnect all clients."""
        self._server.close()
        for reader in list(self._readers):
            reader.close()
            with suppress(OSError):
                await reader.wait_closed()

    async def _accept(self, incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        self._readers.add(outgoing)
        self._first.set()
        try:
            # Its input is ignored; only its end matters.
            while await incoming.read(_MOST_UNREAD):
                pass
        except OSError:
            pass
        finally:
            self._readers.discard(outgoing)
            outgoing.close()


class Pty:
    """A pseudo-terminal for a reader of serial ports, which opens it by a symbolic link."""

    def __init__(self, link: Path) -> None:
        self._link = link

    async def open(self) -> None:
        """Make the pseudo-terminal and the link."""
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs, termios.TCSANOW)
        os.set_blocking(self._ours, False)
        try:
            if self._link.is_symlink():
                # Left by a replay that was killed.
                self._link.unlink()
            self._link.symlink_to(os.ttyname(self._theirs))
        except OSError as error:
            raise TargetError(f"{self._link}: {error.strerror}") from error

    async def send(self, moments: Sequence[Moment]) -> None:
        """Write as much as fits, even if there is no reader, as a receiver does."""
        with suppress(BlockingIOError):
            os.write(self._ours, b"".join(map(sentences, moments)))

    async def close(self) -> None:
        """Remove the link and the pseudo-terminal."""
        self._link.unlink(missing_ok=True)
        os.close(self._ours)
        os.close(self._theirs)
