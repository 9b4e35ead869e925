"""Vehicles that move, and the posts by which their gateway tells where they are."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import aiohttp

from dama.prediction import Fix

# Each post has the reports of so many vehicles; posts are spread evenly over the second.
IN_A_POST = 100


class Fleet:
    """The vehicles of a gateway, each on one of some tracks since a time of its own.

    Their terminals are numbered from `first` on.
    """

    def __init__(
        self, gateway: int, first: int, vehicles: int, tracks: Sequence[tuple[Fix, ...]]
    ) -> None:
        self.gateway = gateway
        self.first = first
        self.vehicles = vehicles
        self.seconds = _seconds(tracks, vehicles)

    @property
    def nodes(self) -> range:
        """The numbers of the vehicles' terminals."""
        return range(self.first, self.first + self.vehicles)


@dataclass
class Posted:
    """What came of a run's posts."""

    # The time from each post to its answer, s.
    answered_s: list[float] = field(default_factory=list)
    # Fixes that were answered as stored.
    stored: int = 0
    # Fixes that were not posted since too many posts had no answer, or that a busy service refused.
    left_out: int = 0


def _seconds(tracks: Sequence[tuple[Fix, ...]], vehicles: int) -> Iterator[list[Fix]]:
    """Yield endlessly where each vehicle is in the next second."""
    dice = random.Random(1)
    begun = [dice.randrange(600) for _ in range(vehicles)]
    on = [tracks[number % len(tracks)] for number in range(vehicles)]
    for second in itertools.count():
        yield [track[(first + second) % len(track)] for track, first in zip(on, begun, strict=True)]


async def post_moving(
    gateway: aiohttp.ClientSession,
    fleet: Fleet,
    run_s: float,
    *,
    vehicles: int | None = None,
    most_open: int | None = None,
) -> Posted:
    """Post positions as they come, of all vehicles or of the first ones.

    With `most_open`, a post is left out while so many have no answer, and a busy service may
    refuse. Without, every post has to be taken.

    Raises:
        RuntimeError: The service refuses reports.
    """
    posted = Posted()
    count = fleet.vehicles if vehicles is None else vehicles
    posts: set[asyncio.Task[None]] = set()
    began = time.monotonic()
    every_s = IN_A_POST / count

    async def post(body: bytes, fixes: int) -> None:
        sent = time.monotonic()
        async with gateway.post("/v1/reports", data=body) as answer:
            if most_open is not None and answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
                posted.left_out += fixes
                return
            answer.raise_for_status()
            refused = (await answer.json())["refused"]
            if refused:
                raise RuntimeError(f"the service refuses reports: {refused[0]}")
        posted.answered_s.append(time.monotonic() - sent)
        posted.stored += fixes

    number = 0
    try:
        while number * every_s < run_s:
            second = next(fleet.seconds)
            for first in range(0, count, IN_A_POST):
                await asyncio.sleep(max(began + number * every_s - time.monotonic(), 0.0))
                number += 1
                some = second[first : min(first + IN_A_POST, count)]
                if most_open is not None and sum(not one.done() for one in posts) >= most_open:
                    posted.left_out += len(some)
                    continue
                body = _body(fleet.gateway, fleet.first + first, some)
                posts.add(asyncio.create_task(post(body, len(some))))
        await asyncio.gather(*posts)
    finally:
        for one in posts:
            one.cancel()
    return posted


def _body(gateway: int, first: int, fixes: Sequence[Fix]) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    reports = [
        {
            "node": first + number,
            "age_ms": 0,
            "report": {
                "kind": "position",
                "longitude": fix.lon,
                "latitude": fix.lat,
                "speed_mps": fix.speed_mps,
                "heading_deg": fix.heading_deg,
                "accuracy_m": fix.accuracy_m,
                "gnss_time_ms": now_ms,
                "node_time_ms": now_ms,
                "synchronised": True,
                "uptime_ms": now_ms,
                "incarnation": 1,
            },
        }
        for number, fix in enumerate(fixes)
    ]
    post = {"version": 1, "node": gateway, "sent_ms": now_ms, "reports": reports}
    return json.dumps(post).encode()
