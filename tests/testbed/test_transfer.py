from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from tests.testbed.client.transfer import upload
from tests.testbed.namespace import Namespace


class Here:
    """The namespace that the test is in."""

    def socket(self, family: int, kind: int) -> socket.socket:
        return socket.socket(family, kind)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


@pytest.mark.parametrize("reset", [False, True])
def test_an_upload_whose_time_is_over_ends_with_a_reset_where_it_is_asked_for(
    server: socket.socket, reset: bool
) -> None:
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(
            upload,
            cast("Namespace", Here()),
            "127.0.0.1",
            100_000_000,
            port=server.getsockname()[1],
            deadline_s=0.2,
            reset=reset,
        )
        sock, _ = server.accept()
        with sock:
            sock.settimeout(10)
            # Nobody reads, so most bytes wait at one end or the other.
            sent = sending.result()
            assert (sent.error or "").startswith("TimeoutError")
            if reset:
                with pytest.raises(ConnectionResetError):
                    _received(sock)
            else:
                assert _received(sock) > sent.bytes


def _received(sock: socket.socket) -> int:
    """Return how many bytes come until the connection's end, including the request's head."""
    count = 0
    while piece := sock.recv(1 << 20):
        count += len(piece)
    return count
