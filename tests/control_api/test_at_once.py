"""Expensive work is done for a few callers at a time; others are told to try again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from underpass_control.http.at_once import AtOnce, InTurn
from underpass_control.http.problem import Problem


def call_of(party: str) -> Any:
    """Return a call of a tenant's caller whose client waits for the answer."""
    caller, request = SimpleNamespace(tenant=party), SimpleNamespace(transport=object())
    return SimpleNamespace(known_caller=caller, request=request)


def test_so_many_are_let_in_and_each_leaves_room_whatever_it_ends_by() -> None:
    few = AtOnce(2, "maps")
    with few.one():
        with pytest.raises(RuntimeError), few.one():
            with pytest.raises(Problem, match="2 maps"), few.one():
                pytest.fail("it was let in")
            raise RuntimeError
        with few.one():
            pass
    assert few.is_idle


def test_a_party_has_no_more_than_there_is_room_left_for() -> None:
    few = AtOnce(5, "questions")
    with few.one("one"), few.one("one"), few.one("one"):
        with pytest.raises(Problem, match="3 questions of yours") as refused, few.one("one"):
            pytest.fail("it was let in")
        assert refused.value.status == 429
        with few.one("other"), few.one("third"):
            with pytest.raises(Problem, match="5 questions") as refused, few.one("fourth"):
                pytest.fail("it was let in")
            assert refused.value.status == 503
        with few.one("other"), pytest.raises(Problem), few.one("one"):
            pytest.fail("it was let in")
    with few.one("one"), few.one("one"), few.one("one"):
        pass


async def test_so_many_work_in_the_order_in_which_they_came_and_no_party_has_all() -> None:
    turns, began, goes_on = InTurn(1, 4, "plans"), list[str](), asyncio.Event()

    async def work(party: str) -> None:
        async with turns.one(call_of(party)):
            began.append(party)
            await goes_on.wait()

    async with asyncio.TaskGroup() as group:
        for party in ("one", "one", "other"):
            group.create_task(work(party))
        for _ in range(5):
            await asyncio.sleep(0)
        assert began == ["one"]
        with pytest.raises(Problem, match="2 plans of yours"):
            await work("one")
        group.create_task(work("third"))
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="4 plans"):
            await work("fourth")
        goes_on.set()
    assert began == ["one", "one", "other", "third"]
    async with turns.one(call_of("one")):
        pass


async def test_who_asks_often_has_one_turn_while_others_wait_for_theirs() -> None:
    turns, began = InTurn(1, 64, "plans"), list[str]()

    async def work(party: str) -> None:
        async with turns.one(call_of(party)):
            began.append(party)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for party in [*(["one"] * 10), "other", "other", "third"]:
            group.create_task(work(party))
    # The second waits already when the others come.
    assert began == ["one", "one", "other", "third", "one", "other", *(["one"] * 7)]


async def test_who_goes_away_leaves_its_place_whether_it_waits_or_works() -> None:
    turns, began = InTurn(1, 2, "plans"), list[str]()

    async def work(party: str) -> None:
        async with turns.one(call_of(party)):
            began.append(party)
            await asyncio.Event().wait()

    async def begun(*parties: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(work(party)) for party in parties]
        await asyncio.sleep(0)
        # All of them were admitted.
        assert not any(task.done() for task in tasks)
        return tasks

    async def gone(*tasks: asyncio.Task[None]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    works, waits = await begun("one", "other")
    await gone(waits)
    [next_one] = await begun("third")
    assert began == ["one"]
    await gone(works)
    assert began == ["one", "third"]
    await gone(next_one)
    await gone(*await begun("one", "other"))
    assert began == ["one", "third", "one"]


async def test_nothing_is_done_for_a_client_that_did_not_wait() -> None:
    turns, began, call = InTurn(1, 2, "plans"), list[str](), call_of("other")

    async def work() -> None:
        async with turns.one(call):
            began.append("other")

    async with turns.one(call_of("one")):
        waits = asyncio.create_task(work())
        await asyncio.sleep(0)
        call.request.transport = None
    with pytest.raises(Problem, match="gone away"):
        await waits
    assert began == []
    # Its place is free.
    async with turns.one(call_of("third")):
        pass
