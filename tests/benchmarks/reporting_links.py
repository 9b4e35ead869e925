"""A beam of 1,000 terminals whose gateway reports on their links each second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import aiohttp

TERMINALS = 1_000
GATEWAY = 100_000
BEAM_BPS = 400_000_000
# How many terminals have a backlog at once, and for how long.
ACTIVE, ACTIVE_S = 50, 5.0
_LINKS_IN_A_STATUS = 250
_BACKLOG_BYTES = 1_000_000


async def report_links(
    gateway: aiohttp.ClientSession, answered: Callable[[float], None] = lambda _: None
) -> None:
    """Post reports on all terminals' links each second, as their gateway would.

    `answered` gets the time until each answer, s.
    """
    began_s = time.monotonic()
    sent = dict.fromkeys(range(1, TERMINALS + 1), 0)
    while True:
        since_s = time.monotonic() - began_s
        first = round(since_s / ACTIVE_S) * ACTIVE % TERMINALS
        links = []
        for node in sent:
            active = first < node <= first + ACTIVE
            sent[node] += BEAM_BPS // 8 // ACTIVE if active else 100
            links.append(
                {
                    "terminal": node,
                    "path": "beam",
                    "direction": "forward",
                    "state": "up",
                    "offered_bytes": sent[node] + _BACKLOG_BYTES,
                    "backlogged_bytes": _BACKLOG_BYTES if active else 0,
                    "sent_bytes": sent[node],
                    "streams": int(active),
                }
            )
        now_ms = time.time_ns() // 1_000_000
        reports = [
            {
                "node": GATEWAY,
                "age_ms": 0,
                "report": {
                    "kind": "status",
                    "time_ms": now_ms,
                    "clock_offset_ms": 0,
                    "synchronised": True,
                    "links": links[place : place + _LINKS_IN_A_STATUS],
                    # Unique among reports of one kind.
                    "uptime_ms": round(1000 * since_s) + place // _LINKS_IN_A_STATUS,
                    "incarnation": 1,
                },
            }
            for place in range(0, TERMINALS, _LINKS_IN_A_STATUS)
        ]
        post = {"version": 1, "node": GATEWAY, "sent_ms": now_ms, "reports": reports}
        asked_s = time.monotonic()
        async with gateway.post("/v1/reports", json=post) as answer:
            answer.raise_for_status()
            refused = (await answer.json())["refused"]
            answered(time.monotonic() - asked_s)
            if refused:
                raise RuntimeError(f"the service refuses reports: {refused[0]}")
        await asyncio.sleep(max(0.0, began_s + since_s + 1.0 - time.monotonic()))
