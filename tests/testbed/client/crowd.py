"""Many downloads at once, from one thread."""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass

from tests.testbed.client.route import bracketed, reset_when_closed
from tests.testbed.content import Verifier, block_body
from tests.testbed.namespace import Namespace

# Neighbouring clients have different content. There are only as many seeds as either end caches:
# making new content for every client would take longer than carrying it.
_SEEDS = 16


@dataclass
class _Member:
    sock: socket.socket
    verifier: Verifier
    size: int
    head: bytes = b""
    asked: bool = False

    def done(self) -> bool:
        return self.verifier.offset >= self.size


def crowd(
    namespace: Namespace,
    host: str,
    *,
    clients: int,
    size: int,
    deadline_s: float,
    port: int = 80,
    via: tuple[str, int] | None = None,
) -> list[float | None]:
    """Fetch `size` bytes by each of `clients` connections that all begin now.

    Return each one's time to its last byte, None if the deadline or an error came first; those
    connections are reset.
    `via` is an HTTP forward proxy or a plain relay to the origin that takes the same request.
    """
    for seed in range(_SEEDS):
        block_body(seed)
    start = time.monotonic()
    times: list[float | None] = [None] * clients
    with selectors.DefaultSelector() as selector:
        address = via or (host, port)
        with namespace.entered():
            for index in range(clients):
                sock = socket.socket(
                    socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM
                )
                sock.setblocking(False)
                sock.connect_ex(address)
                member = _Member(sock, Verifier(index % _SEEDS), size)
                selector.register(sock, selectors.EVENT_WRITE, (index, member))
        buffer = memoryview(bytearray(1 << 18))
        try:
            while selector.get_map() and (left := start + deadline_s - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    index, member = key.data
                    if not member.asked:
                        _ask(member, index, host, port)
                        selector.modify(member.sock, selectors.EVENT_READ, key.data)
                        continue
                    ended = _receive(member, buffer)
                    if member.done():
                        times[index] = time.monotonic() - start
                    if ended or member.done():
                        selector.unregister(member.sock)
                        member.sock.close()
        finally:
            for key in list(selector.get_map().values()):
                reset_when_closed(key.data[1].sock)
                key.data[1].sock.close()
    return times


def _ask(member: _Member, index: int, host: str, port: int) -> None:
    member.asked = True
    authority = f"{bracketed(host)}:{port}"
    target = f"http://{authority}/bytes/{member.size}?seed={index % _SEEDS}"
    try:
        member.sock.send(f"GET {target} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    except OSError:
        member.sock.shutdown(socket.SHUT_RDWR)


def _receive(member: _Member, buffer: memoryview) -> bool:
    """Receive the available bytes; return True at the end of the connection."""
    try:
        count = member.sock.recv_into(buffer)
    except OSError:
        return True
    data = buffer[:count]
    if not member.head.endswith(b"\r\n\r\n"):
        text = member.head + bytes(data)
        end = text.find(b"\r\n\r\n")
        if end < 0:
            member.head = text
            return count == 0
        data = data[end + 4 - len(member.head) :]
        member.head = text[: end + 4]
    member.verifier.feed(data)
    return count == 0
