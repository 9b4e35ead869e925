"""Small messages sent at a steady pace; the time of each echo is measured."""

from __future__ import annotations

import socket
import threading
import time

from tests.testbed.client.route import receive_exactly


def echo_times(
    sock: socket.socket, *, count: int, interval_s: float, size: int = 64, timeout_s: float = 30.0
) -> list[float]:
    """Send `count` messages of `size` bytes, one each `interval_s`, without waiting for echoes.

    Return the seconds until each came back, complete and unchanged.
    """
    sock.settimeout(timeout_s)
    sent: list[float] = []

    def send() -> None:
        start = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, start + number * interval_s - time.monotonic()))
            sent.append(time.monotonic())
            sock.sendall(_message(number, size))

    sender = threading.Thread(target=send, name="echo")
    sender.start()
    times = []
    try:
        for number in range(count):
            if receive_exactly(sock, size) != _message(number, size):
                raise AssertionError(f"echo {number} came back changed")
            times.append(time.monotonic() - sent[number])
    finally:
        sender.join()
    return times


def _message(number: int, size: int) -> bytes:
    return number.to_bytes(8, "big") * (size // 8)
