"""Small messages sent and awaited back, timed each."""

from __future__ import annotations

import socket
import time

from tests.testbed.client.route import receive_exactly


def echo_times(
    sock: socket.socket, *, count: int, interval_s: float, size: int = 64, timeout_s: float = 30.0
) -> list[float]:
    """Send `count` messages of `size` bytes, one each `interval_s` or as soon as one is back.

    Return the seconds until each came back, whole and unchanged.
    """
    sock.settimeout(timeout_s)
    times = []
    for number in range(count):
        message = number.to_bytes(8, "big") * (size // 8)
        sent = time.monotonic()
        sock.sendall(message)
        if receive_exactly(sock, len(message)) != message:
            raise AssertionError(f"echo {number} came back changed")
        times.append(time.monotonic() - sent)
        time.sleep(max(0.0, sent + interval_s - time.monotonic()))
    return times
