from __future__ import annotations

import asyncio
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.testbed.client.http2 import Http2Connection
from tests.testbed.content import ContentError
from tests.testbed.origin import http2


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of a running origin."""
    told: queue.Queue[tuple[int, Callable[[], object]]] = queue.Queue()

    async def run() -> None:
        ending, loop = asyncio.Event(), asyncio.get_running_loop()
        server = await http2.serve(0)
        end = partial(loop.call_soon_threadsafe, ending.set)
        told.put((server.sockets[0].getsockname()[1], end))
        await ending.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    number, end = told.get(timeout=10)
    yield number
    end()
    thread.join()


def _connected(port: int) -> Http2Connection:
    plain = socket.create_connection(("127.0.0.1", port), timeout=5.0)
    return Http2Connection(plain, "large.origin.test")


def test_contents_come_whole_one_after_the_other(port: int) -> None:
    with _connected(port) as connection:
        for size in (0, 1, 1448 * 10_007):
            transfer = connection.download(size, 3, 20.0)
            assert transfer.complete, transfer.error
            assert transfer.bytes == size


def test_one_that_is_late_says_so(port: int) -> None:
    with _connected(port) as connection:
        transfer = connection.download(100_000_000, 3, 0.01)
        assert not transfer.complete
        assert transfer.error is not None
        assert transfer.error.startswith("TimeoutError")


def test_other_bytes_are_noticed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "pieces", lambda _, size: iter([bytes(size)]))
    with _connected(port) as connection, pytest.raises(ContentError):
        connection.download(1000, 3, 5.0)
