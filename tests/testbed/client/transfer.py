"""One download or upload, timed from the first packet of its connection."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.testbed.client.route import DIRECT, Route, bracketed, receive_head, reset_when_closed
from tests.testbed.content import Verifier, pieces
from tests.testbed.namespace import Namespace

# With closer points, the curve of 1 GB would be larger than its report.
_CURVE_STEP_S = 0.02


@dataclass
class Transfer:
    """The result of a transfer; all times count from the beginning of its connection."""

    size: int
    bytes: int = 0
    connected_s: float | None = None
    first_byte_s: float | None = None
    last_byte_s: float | None = None
    error: str | None = None
    # Pairs: a time, and the bytes until then.
    curve: list[tuple[float, int]] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Tell whether every byte came, and correctly."""
        return self.last_byte_s is not None

    def bytes_at(self, seconds: float) -> int:
        """Return how many bytes had come at a time."""
        return next((count for at, count in reversed(self.curve) if at <= seconds), 0)


class _Clock:
    def __init__(self, deadline_s: float, stop: threading.Event | None = None) -> None:
        self._start = time.monotonic()
        self._deadline_s = deadline_s
        self._stop = stop

    def now(self) -> float:
        return time.monotonic() - self._start

    def left(self) -> float:
        """Return the time left; raise if there is none, or if the run is to stop."""
        left = self._deadline_s - self.now()
        if left <= 0 or (self._stop and self._stop.is_set()):
            raise TimeoutError("the run's time is over")
        return left


def download(
    namespace: Namespace,
    host: str,
    size: int,
    *,
    port: int = 80,
    route: Route = DIRECT,
    seed: int = 1,
    deadline_s: float = 60.0,
    query: str = "",
    stop: threading.Event | None = None,
    half_close: bool = False,
    reset: bool = False,
) -> Transfer:
    """Fetch `size` bytes of the seed's content on a new connection and check them.

    A broken or late transfer is returned with its bytes and the reason; wrong bytes raise.
    `stop` ends it when the next bytes come. With `half_close`, the client's direction ends after
    the request, and the origin's must end in order after the answer. With `reset`, a broken or
    late transfer resets its connection, so that none of it goes on afterwards.
    """
    transfer, clock = Transfer(size), _Clock(deadline_s, stop)
    try:
        with _connection(namespace, host, port, route, clock, reset=reset) as sock:
            transfer.connected_s = clock.now()
            target = route.target(host, port, f"/bytes/{size}?seed={seed}{query}")
            sock.sendall(_head("GET", target, host, port))
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            _receive(sock, transfer, clock, seed)
            if half_close:
                _await_end(sock, clock)
            transfer.last_byte_s = clock.now()
            transfer.curve.append((transfer.last_byte_s, transfer.bytes))
    except OSError as error:
        transfer.error = f"{type(error).__name__}: {error}"
    return transfer


def upload(
    namespace: Namespace,
    host: str,
    size: int,
    *,
    port: int = 80,
    route: Route = DIRECT,
    seed: int = 1,
    deadline_s: float = 60.0,
    query: str = "",
    half_close: bool = False,
    reset: bool = False,
) -> Transfer:
    """Send `size` bytes; the origin's answer counts as the time of the last byte.

    The origin's hash must match the bytes sent. With `half_close`, the client's direction ends
    after its last byte, and the origin's must end in order after the answer. With `reset`, a
    broken or late upload resets its connection, which drops bytes that are not sent yet.
    """
    transfer, clock = Transfer(size), _Clock(deadline_s)
    digest = hashlib.sha256()
    try:
        with _connection(namespace, host, port, route, clock, reset=reset) as sock:
            transfer.connected_s = clock.now()
            target = route.target(host, port, f"/sink?seed={seed}{query}")
            sock.sendall(_head("POST", target, host, port, f"Content-Length: {size}\r\n"))
            for piece in pieces(seed, size):
                digest.update(piece)
                _send(sock, piece, transfer, clock)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            sock.settimeout(clock.left())
            head = receive_head(sock)
            transfer.first_byte_s = clock.now()
            if not head.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(f"answer: {head[:200]!r}")
            answer = json.loads(_receive_body(sock, head))
            if answer["sha256"] != digest.hexdigest():
                raise AssertionError(f"the origin got other bytes: {answer}")
            if half_close:
                _await_end(sock, clock)
            transfer.last_byte_s = clock.now()
    except OSError as error:
        transfer.error = f"{type(error).__name__}: {error}"
    return transfer


@contextmanager
def _connection(
    namespace: Namespace, host: str, port: int, route: Route, clock: _Clock, *, reset: bool
) -> Iterator[socket.socket]:
    with route.connect(namespace, host, port, timeout_s=clock.left()) as sock:
        try:
            yield sock
        except OSError:
            if reset:
                reset_when_closed(sock)
            raise


def request(
    namespace: Namespace,
    host: str,
    path: str,
    *,
    port: int = 80,
    route: Route = DIRECT,
    timeout_s: float = 30.0,
    fields: str = "",
) -> tuple[int, bytes]:
    """Fetch a small page; return its status and body. `fields` are added to the request."""
    with route.connect(namespace, host, port, timeout_s=timeout_s) as sock:
        sock.sendall(_head("GET", route.target(host, port, path), host, port, fields))
        head = receive_head(sock)
        return int(head.split(b" ")[1]), _receive_body(sock, head)


def _head(method: str, target: str, host: str, port: int, extra: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: {bracketed(host)}:{port}\r\n{extra}\r\n".encode()


def _receive(sock: socket.socket, transfer: Transfer, clock: _Clock, seed: int) -> None:
    head, verifier, buffer = b"", Verifier(seed), memoryview(bytearray(1 << 20))
    while transfer.bytes < transfer.size:
        sock.settimeout(clock.left())
        count = sock.recv_into(buffer)
        now = clock.now()
        if count == 0:
            raise ConnectionError(f"ended after {transfer.bytes} of {transfer.size} bytes")
        if transfer.first_byte_s is None:
            transfer.first_byte_s = now
        data = buffer[:count]
        if not head.endswith(b"\r\n\r\n"):
            all_of_it = head + bytes(data)
            end = all_of_it.find(b"\r\n\r\n")
            if end < 0:
                head = all_of_it
                continue
            data = data[end + 4 - len(head) :]
            head = all_of_it[: end + 4]
            if not head.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(f"answer: {all_of_it[:200]!r}")
        verifier.feed(data)
        transfer.bytes += len(data)
        _note(transfer, now)


def _await_end(sock: socket.socket, clock: _Clock) -> None:
    sock.settimeout(clock.left())
    if sock.recv(1):
        raise ConnectionError("more came than was asked for")


def _send(sock: socket.socket, piece: bytes, transfer: Transfer, clock: _Clock) -> None:
    view = memoryview(piece)
    while view:
        sock.settimeout(clock.left())
        count = sock.send(view[: 64 << 10])
        view = view[count:]
        transfer.bytes += count
        _note(transfer, clock.now())


def _note(transfer: Transfer, now: float) -> None:
    if not transfer.curve or now - transfer.curve[-1][0] >= _CURVE_STEP_S:
        transfer.curve.append((now, transfer.bytes))


def _receive_body(sock: socket.socket, head: bytes) -> bytes:
    """Receive a body to its known length, or to the end of the connection."""
    body, length = b"", None
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while length is None or len(body) < length:
        piece = sock.recv(1 << 16)
        if not piece:
            break
        body += piece
    return body
