"""Requests to the NCC over TCP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from underpass_control.clock import Clock
from underpass_control.opensand.allocation import Allocation, Profile, Stretch, Version
from underpass_control.opensand.ncc import Ncc
from underpass_control.opensand.request import Request

from tests.control_api.opensand import ncc as peer


def plan(number: int, start_ms: int, rates: dict[int, list[int]], step_ms: int) -> Version:
    """Make a plan of rates (kbit/s), each for so long."""
    profiles = {
        st_id: Profile(
            [
                Stretch(start_ms + n * step_ms, start_ms + (n + 1) * step_ms, 1000 * rate)
                for n, rate in enumerate(steps)
            ],
            64_000,
        )
        for st_id, steps in rates.items()
    }
    return Version(number, start_ms, profiles)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_a_plan_of_many_terminals_is_followed_at_its_boundaries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("underpass_control.opensand.ncc._PAUSE_S", 0.002)
    ncc = peer.Ncc({n: peer.Terminal() for n in range(40)})
    sent: list[Request] = []
    allocation = Allocation()

    await ncc.start()
    start_ms = now_ms() + 200
    allocation.follow(plan(1, start_ms, {n: [100 + n, 0, 200 + n] for n in range(40)}, 300))
    client = Ncc(f"opensand://127.0.0.1:{ncc.port}", allocation, sent.extend, Clock(), lambda: True)
    task = asyncio.create_task(client.run())
    await until(lambda: len(ncc.applied) >= 120)
    task.cancel()
    await ncc.stop()
    assert ncc.broken == []
    by_terminal = {
        n: [(at - start_ms, rate) for at, st_id, rate in ncc.applied if st_id == n]
        for n in range(40)
    }
    for n, got in by_terminal.items():
        assert [rate for _, rate in got] == [100 + n, 1, 200 + n]
        assert all(at >= due for (at, _), due in zip(got, (0, 300, 600), strict=True))
    assert {one.rbdc_max_kbps for one in ncc.terminals.values()} == {1}
    assert sum(one.rounding_bps for one in sent if one.planned_bps == 0) == 40_000


async def test_an_ncc_that_was_away_is_told_what_holds_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("underpass_control.opensand.ncc._AGAIN_S", 0.02)
    ncc = peer.Ncc({1: peer.Terminal(), 2: peer.Terminal()})
    states: list[bool] = []
    await ncc.start()
    allocation = Allocation()
    allocation.follow(plan(1, now_ms(), {1: [500], 2: [500]}, 60_000))
    url = f"opensand://127.0.0.1:{ncc.port}"
    client = Ncc(url, allocation, lambda _: None, Clock(), lambda: True, states.append)
    task = asyncio.create_task(client.run())
    await until(lambda: len(ncc.applied) == 2)
    await ncc.stop()
    allocation.follow(plan(2, now_ms(), {1: [300], 2: [700]}, 60_000))
    client.changed()
    await ncc.start()
    await until(lambda: len(ncc.applied) >= 4)
    allocation.follow(plan(3, now_ms(), {1: [300], 2: [600]}, 60_000))
    client.changed()
    await until(lambda: len(ncc.applied) >= 5)
    task.cancel()
    await asyncio.wait({task})
    await ncc.stop()
    assert {n: one.cra_kbps for n, one in ncc.terminals.items()} == {1: 300, 2: 600}
    assert states == [True, False, True, False]


async def test_who_may_not_hold_the_lease_any_more_tells_nothing() -> None:
    ncc = peer.Ncc({1: peer.Terminal()})
    asked = 0

    def may_tell() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    await ncc.start()
    allocation = Allocation()
    allocation.follow(plan(1, now_ms(), {1: [500]}, 60_000))
    url = f"opensand://127.0.0.1:{ncc.port}"
    client = Ncc(url, allocation, lambda _: None, Clock(), may_tell)
    task = asyncio.create_task(client.run())
    await until(lambda: asked == 2)
    assert ncc.applied == []
    await until(lambda: len(ncc.applied) == 1)
    task.cancel()
    await ncc.stop()
