"""Plays many scripts at a time between a client's namespace and the origin's."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from tests.e2e.tcp_semantics.ends import Actor
from tests.e2e.tcp_semantics.script import Meet, Script, Seen
from tests.testbed import addresses
from tests.testbed.client.route import DIRECT, Route
from tests.testbed.namespace import Namespace

_FIRST_PORT = 20_000
_CLIENT_SEED, _ORIGIN_SEED = 1, 2
_CONNECT_S = 20.0
_VANISH_S = 5.0
_CONNECTORS = 16


@dataclass(frozen=True)
class Play:
    """One script to play: from where, by which way, and how long after the common start."""

    script: Script
    client: Namespace
    route: Route = DIRECT
    after_s: float = 0.0
    # Whether the origin may never have the connection.
    may_vanish: bool = False


class Stage:
    """A context manager with the origin's listeners, one for each script played at a time."""

    def __init__(self, origin: Namespace, places: int) -> None:
        self._listeners: list[socket.socket] = []
        with origin.entered():
            for place in range(places):
                sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                self._listeners.append(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((addresses.ORIGIN, _FIRST_PORT + place))
                sock.listen(16)
                sock.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._listeners:
            sock.close()

    def play(self, plays: Sequence[Play], *, within_s: float) -> list[tuple[Seen, Seen]]:
        """Play all at once; return the observations of each client and origin, in the same order.

        An end that has not finished in time is `hung`, and aborted. A connection that may vanish
        counts as vanished if it has not arrived 5 s after its client ended.
        """
        return asyncio.run(self._play(plays, within_s))

    async def _play(self, plays: Sequence[Play], within_s: float) -> list[tuple[Seen, Seen]]:
        for listener in self._listeners:
            # A connection that came too late for an earlier script.
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
        ops = [
            op
            for play in plays
            for end in (play.script.client, play.script.origin)
            for op in end.ops
        ]
        self._meeting = asyncio.Barrier(max(1, sum(isinstance(op, Meet) for op in ops)))
        deadline_s = asyncio.get_running_loop().time() + within_s
        with ThreadPoolExecutor(_CONNECTORS) as pool:
            return await asyncio.gather(
                *(self._one(pool, play, place, deadline_s) for place, play in enumerate(plays))
            )

    async def _one(
        self, pool: ThreadPoolExecutor, play: Play, place: int, deadline_s: float
    ) -> tuple[Seen, Seen]:
        accepted = asyncio.Event()
        origin = asyncio.create_task(self._origin(play.script, place, accepted, deadline_s))
        client = await self._client(pool, play, place, deadline_s)
        if play.may_vanish:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(accepted.wait(), _VANISH_S)
            if not accepted.is_set():
                origin.cancel()
                return client, Seen(0, "none", wrote_all=True)
        return client, await origin

    async def _client(
        self, pool: ThreadPoolExecutor, play: Play, place: int, deadline_s: float
    ) -> Seen:
        await asyncio.sleep(play.after_s)
        actor = Actor(
            play.script.client,
            sends_seed=_CLIENT_SEED,
            receives_seed=_ORIGIN_SEED,
            meeting=self._meeting,
        )
        route = play.route
        address: tuple[str, int] = (addresses.ORIGIN, _FIRST_PORT + place)
        if play.script.eager and (proxy := route.proxy):
            actor.opening, actor.opened = route.opening(*address), route.opened
            route, address = DIRECT, proxy

        def connect() -> socket.socket:
            return route.connect(play.client, *address, timeout_s=_CONNECT_S)

        sock = await asyncio.get_running_loop().run_in_executor(pool, connect)
        return await actor.act(sock, deadline_s)

    async def _origin(
        self, script: Script, place: int, accepted: asyncio.Event, deadline_s: float
    ) -> Seen:
        try:
            async with asyncio.timeout_at(deadline_s):
                sock, _ = await asyncio.get_running_loop().sock_accept(self._listeners[place])
        except TimeoutError:
            return Seen(0, "none", wrote_all=True)
        accepted.set()
        actor = Actor(
            script.origin,
            sends_seed=_ORIGIN_SEED,
            receives_seed=_CLIENT_SEED,
            meeting=self._meeting,
        )
        return await actor.act(sock, deadline_s)
