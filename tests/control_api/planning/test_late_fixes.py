"""Fixes that come faster than predictions can use them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.planning.knowledge import Knowledge, thinned
from underpass_control.prediction import Predictions
from underpass_control.storage.positions import Position, _told

from dama.prediction import Fix

START_MS = 1_800_000_000_000
NODES = range(1, 201)


def position(node: int, at_ms: int) -> Position:
    return Position(node, START_MS + at_ms, 7.5, 46.5, speed_mps=10.0, heading_deg=90.0)


def hear(knowledge: Knowledge, found: Sequence[Position]) -> None:
    for change in _told(found):
        knowledge.take("positions", json.loads(json.dumps(change)))


def fed(monkeypatch: pytest.MonkeyPatch, takes_s: float = 0.0) -> list[tuple[int, int]]:
    """Return the fixes that predictions get from now on: terminals, and times since the start."""
    found: list[tuple[int, int]] = []

    def feed(_: Predictions, terminal: int, fix: Fix) -> bool:
        found.append((terminal, fix.time_ms - START_MS))
        time.sleep(takes_s)
        return True

    monkeypatch.setattr(Predictions, "feed", feed)
    return found


def heard() -> Knowledge:
    knowledge = Knowledge("beam")
    knowledge.set_nodes(frozenset(NODES))
    return knowledge


def test_in_time_every_fix_is_predicted_with_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fed(monkeypatch)
    knowledge = heard()
    for second in range(4):
        hear(knowledge, [position(node, 1000 * second) for node in (1, 2)])
    assert asyncio.run(knowledge.feed(START_MS + 60_000)) == 0
    for node in (1, 2):
        assert [at for of, at in found if of == node] == [0, 1000, 2000, 3000]


def test_late_ones_are_passed_over_where_newer_ones_have_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = fed(monkeypatch)
    knowledge = heard()
    for second in range(10):
        hear(knowledge, [position(1, 1000 * second)])
    hear(knowledge, [position(2, 0)])
    assert asyncio.run(knowledge.feed(START_MS + 60_000, 3_000)) == 6
    assert found == [(1, 0), (1, 3000), (1, 6000), (1, 9000), (2, 0)]
    # Each is used only once.
    assert asyncio.run(knowledge.feed(START_MS + 60_000, 3_000)) == 0
    assert len(found) == 5


def test_one_that_no_vehicle_can_have_stands_for_no_fix_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = fed(monkeypatch)
    knowledge = heard()
    impossible = position(1, 9_500)._replace(heading_deg=999.0)
    hear(knowledge, [position(1, 1000 * second) for second in range(10)] + [impossible])
    assert asyncio.run(knowledge.feed(START_MS + 60_000, 3_000)) == 6
    assert found == [(1, 0), (1, 3000), (1, 6000), (1, 9000)]


def test_one_dated_ahead_waits_for_its_time_and_hides_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = fed(monkeypatch)
    knowledge = heard()
    hear(knowledge, [position(1, 50_000), position(1, 2_000)])
    hear(knowledge, [position(2, 3_000 + n) for n in range(1_000)])
    assert asyncio.run(knowledge.feed(START_MS)) == 0
    assert found == [(1, 2_000)]
    assert len(knowledge._waiting[2]) == 256
    hear(knowledge, [position(1, 3_000)])
    asyncio.run(knowledge.feed(START_MS + 2_000))
    assert found[:2] == [(1, 2_000), (1, 3_000)]
    asyncio.run(knowledge.feed(START_MS + 48_000))
    assert found[-1] == (1, 50_000)
    assert not knowledge._waiting


@given(
    st.lists(st.integers(0, 60_000), min_size=1, max_size=60, unique=True),
    st.integers(1, 20_000),
)
def test_what_is_left_has_the_newest_and_no_gap_that_was_not_there(
    times: list[int], apart_ms: int
) -> None:
    found = [Fix(START_MS + at, 7.5, 46.5) for at in times]
    left = [one.time_ms - START_MS for one in thinned(found, apart_ms)]
    assert left == sorted(left)
    assert left[-1] == max(times)
    for before, after in pairwise(left):
        between = [at for at in times if before < at < after]
        assert after - before >= apart_ms
        # Fixes that were left out between would have been too near.
        assert all(after - at < apart_ms for at in between)
    assert len(left) <= 1 + (max(times) - min(times)) // apart_ms


async def test_others_have_their_turn_while_many_are_predicted_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed(monkeypatch, takes_s=0.005)
    knowledge = heard()
    hear(knowledge, [position(node, 0) for node in NODES])

    # A second of work: others wait for not much more than a hundredth of it.
    turns = 0
    feeding = asyncio.create_task(knowledge.feed(START_MS + 60_000))
    while not feeding.done():
        turns += 1
        await asyncio.sleep(0)
    await feeding
    assert turns >= 50
