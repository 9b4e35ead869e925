"""Clients that send requests but do not read the answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from underpass_control.demand import FLOOR_BPS
from underpass_control.http import sending

# More than the buffers of a connection take.
LARGE = bytes(range(256)) * 65_536
PATHS = ["/answer", "/file"]
_PEERS = web.AppKey("peers", list[web.Request])


@asynccontextmanager
async def served(file: Path) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        peers.append(request)
        return web.Response(body=LARGE, headers={"ETag": '"1"'}, content_type="text/plain")

    async def of_file(request: web.Request) -> web.StreamResponse:
        peers.append(request)
        return sending.File(file)

    peers: list[web.Request] = []
    application = web.Application(middlewares=[sending.sent])
    application.add_routes([web.get("/answer", answer), web.get("/file", of_file)])
    application[_PEERS] = peers
    async with TestClient(TestServer(application)) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    return path


@pytest.mark.parametrize("path", PATHS)
async def test_a_large_answer_comes_whole(path: str, file: Path) -> None:
    async with served(file) as client:
        for _ in range(2):
            async with client.get(path) as answer:
                assert answer.status == 200
                assert answer.content_length == len(LARGE)
                assert await answer.read() == LARGE
        async with client.head(path) as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        async with client.get("/answer") as answer:
            assert (answer.headers["ETag"], answer.content_type) == ('"1"', "text/plain")


@pytest.mark.parametrize("path", PATHS)
async def test_who_does_not_read_is_cut_off_and_takes_little_memory_meanwhile(
    path: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_WITHIN_S", 0.5)
    monkeypatch.setattr(sending, "_LEAST_BYTES_PER_S", 1e9)
    monkeypatch.setattr(sending, "_FILE_WITHIN_S", 0.5)
    loop = asyncio.get_running_loop()
    async with served(file) as client:
        with socket.socket() as peer:
            peer.setblocking(False)
            # Before it connects: the window is small.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            await loop.sock_connect(peer, (client.host, client.port))
            await loop.sock_sendall(peer, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            peers = client.app[_PEERS]
            async with asyncio.timeout(20):
                while not peers:
                    await asyncio.sleep(0.01)
                while (transport := peers[0].transport) is not None:
                    assert transport.get_write_buffer_size() < 1 << 18
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("size", [1 << 16, 1 << 20, 8 << 20])
def test_a_client_on_board_has_time_at_the_least_rate_and_behind_a_blockage(size: int) -> None:
    at_the_floor_s = 8 * size / FLOOR_BPS
    assert sending.limit_s(size) > at_the_floor_s + 90.0


async def test_who_goes_while_it_is_answered_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        begun.set()
        return web.Response(body=LARGE)

    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    application = web.Application(middlewares=[sending.sent])
    application.add_routes([web.get("/answer", answer)])
    # As in the real service: a test's server would cancel the handler.
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        with socket.socket() as peer:
            peer.setblocking(False)
            await loop.sock_connect(peer, runner.addresses[0])
            await loop.sock_sendall(peer, b"GET /answer HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(20):
                await begun.wait()
                await loop.sock_recv(peer, 1_000)
        async with asyncio.timeout(20):
            while runner.server is not None and runner.server.connections:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
    finally:
        await runner.cleanup()
    assert not caplog.records
