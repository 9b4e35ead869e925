"""Downloads that only count, so that the client's own cost does not limit the measurement."""

from __future__ import annotations

import selectors
import socket
import time

from tests.testbed.client.route import Route, bracketed, receive_head
from tests.testbed.namespace import Namespace

_CHUNK_BYTES = 4 << 20


def drain_bps(
    namespace: Namespace,
    host: str,
    port: int,
    *,
    route: Route,
    streams: int,
    size: int,
    deadline_s: float,
) -> float:
    """Download `size` bytes on each of `streams` connections at once; return the total bit/s.

    The kernel discards the bytes (`MSG_TRUNC`); their number must be right.
    """
    buffer = bytearray(_CHUNK_BYTES)
    received = 0
    with selectors.DefaultSelector() as selector:
        socks = [route.connect(namespace, host, port, timeout_s=deadline_s) for _ in range(streams)]
        start = time.monotonic()
        try:
            for sock in socks:
                authority = f"{bracketed(host)}:{port}"
                sock.sendall(f"GET /bytes/{size} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
            for sock in socks:
                receive_head(sock)
                sock.setblocking(False)
                selector.register(sock, selectors.EVENT_READ, sock)
            left = dict.fromkeys(socks, size)
            while left:
                for key, _ in selector.select(start + deadline_s - time.monotonic()):
                    sock = key.data
                    count = sock.recv_into(buffer, 0, socket.MSG_TRUNC)
                    if count == 0:
                        raise ConnectionError(f"a stream ended {left[sock]} bytes too early")
                    received += count
                    left[sock] -= count
                    if left[sock] == 0:
                        selector.unregister(sock)
                        del left[sock]
                if time.monotonic() > start + deadline_s:
                    raise TimeoutError(f"{received} of {streams * size} bytes in {deadline_s} s")
            return received * 8 / (time.monotonic() - start)
        finally:
            for sock in socks:
                sock.close()
