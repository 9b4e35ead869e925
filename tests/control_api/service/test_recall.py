"""What a beam's new planner reads of the last minutes, if its terminals are many."""

from __future__ import annotations

from collections import defaultdict

import pytest
from underpass_control import takeover
from underpass_control.storage import positions, routes
from underpass_control.storage.positions import Position

from dama.prediction.places import Line
from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_expectations import drive, recalled
from tests.dama.prediction.test_laws import eastwards


def ages(api: Api, at_ms: int, most: int) -> dict[int, list[int]]:
    """Return by terminal how old the positions are that are read, in seconds."""

    async def run() -> list[Position]:
        async with api.database.reading() as connection:
            return await positions.recent(
                connection,
                "ku-1",
                since_ms=at_ms - 100_000,
                until_ms=at_ms + 1,
                within_ms=40_000,
                most=most,
            )

    found: dict[int, list[int]] = defaultdict(list)
    for one in api.run(run()):
        found[one.terminal].append((at_ms - one.time_ms) // 1_000)
    return found


def test_of_many_terminals_fewer_positions_of_each_are_read(api: Api) -> None:
    at = now_ms()

    async def store() -> None:
        async with api.database.transaction() as connection:
            await positions._INSERT.execute(
                connection,
                [
                    Position(terminal, at - 1_000 * second, 7.0, 46.0, received_ms=at)
                    for terminal in (FIRST, SECOND)
                    # The other one has been silent for a while.
                    for second in range(0 if terminal == FIRST else 50, 120)
                ],
            )

    api.run(store())
    for most, apart_s in ((100, 1), (82, 1), (20, 4), (2, 20), (0, 20)):
        first = list(range(40, -1, -apart_s))
        assert ages(api, at, most) == {FIRST: first, SECOND: [50 + age for age in first]}


def test_a_planner_of_many_terminals_expects_what_one_of_few_does(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = now_ms()
    drive(api, eastwards(-400.0, 20.0, seconds=45), at)
    (whole,) = recalled(api, at)[0].blockages_of(FIRST, at)
    monkeypatch.setattr(takeover, "_MOST_FIXES", 5)
    (few,) = recalled(api, at)[0].blockages_of(FIRST, at)
    assert few.obstruction_id == whole.obstruction_id
    assert few.entry_ms == pytest.approx(whole.entry_ms, abs=500)
    assert few.exit_ms == pytest.approx(whole.exit_ms, abs=500)
    assert few.confidence == pytest.approx(whole.confidence, abs=0.05)


def test_routes_are_read_a_few_at_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {one: ((7.0, 46.0), (7.0 + one / 100, 46.0)) for one in (FIRST, SECOND)}

    async def run(among: set[int] | None) -> list[dict[int, Line]]:
        async with api.database.reading() as connection:
            return [
                await routes.of_beam(connection, "ku-1", among),
                await routes.of_terminals(connection, among or {FIRST, SECOND, 4_711}),
            ]

    async def store() -> None:
        async with api.database.transaction() as connection:
            for terminal, line in lines.items():
                await routes.put(connection, terminal, line)

    api.run(store())
    monkeypatch.setattr(routes, "_AT_ONCE", 1)
    assert api.run(run(None)) == [lines, lines]
    assert api.run(run({SECOND})) == 2 * [{SECOND: lines[SECOND]}]
