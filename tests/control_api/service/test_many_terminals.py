"""Terminals of one beam, more than a statement has parameters for."""

from __future__ import annotations

from underpass_control.storage import habits, routes
from underpass_control.storage import ledger as stored

from dama.ledger import Entry, Kind, Posting
from dama.planner import Link
from dama.prediction.habits import Habits
from tests.control_api.service.api import FIRST, Api
from tests.control_api.service.test_ledger import START_MS

# SQLite takes 32,766 parameters, asyncpg 32,767.
MANY = range(1, 40_001)


def test_routes_and_habits_of_many_terminals_are_read_and_stored(api: Api) -> None:
    line = ((7.5, 46.5), (7.6, 46.5))

    async def run() -> object:
        async with api.database.transaction() as connection:
            await routes.put(connection, FIRST, line)
            await habits.put(connection, dict.fromkeys(MANY, Habits()))
            return await routes.of_terminals(connection, MANY)

    assert api.run(run()) == {FIRST: line}


def test_what_many_terminals_lend_one_is_entered(api: Api) -> None:
    borrower, *lenders = MANY
    sides = [Posting(str(borrower), -len(lenders)), *(Posting(str(one), 1) for one in lenders)]
    entry = Entry(START_MS, START_MS + 10_000, Kind.SETTLED, tuple(sides))

    async def run() -> dict[str, int]:
        async with api.changes.transaction() as (connection, publish):
            await stored.begin(connection, "ku-1", Link.FORWARD, START_MS, 1)
            ledger = await stored.ledger_of(connection, "ku-1", Link.FORWARD)
            ledger.apply(entry)
            await stored.write(connection, publish, "ku-1", Link.FORWARD, [entry], ledger)
            return (await stored.ledger_of(connection, "ku-1", Link.FORWARD)).balances()

    assert api.run(run()) == {one.account: one.bits for one in sides}
