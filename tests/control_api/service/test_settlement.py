"""Settlement over the database, in virtual time, with right and wrong predictions and faults."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from sqlalchemy import delete, insert, update
from underpass_control.planning import stored as plans
from underpass_control.planning.lease import FencedError
from underpass_control.settings import Settings
from underpass_control.settlement import evidence
from underpass_control.settlement.check import audit
from underpass_control.settlement.evidence import Records
from underpass_control.storage import ledger as stored
from underpass_control.storage import settled_usage, usage
from underpass_control.storage.database import Database
from underpass_control.storage.models import Beam, Terminal

from dama.ledger import Kind, Ledger, LedgerError, Rule
from dama.planner import Link, Plan
from dama.planner.text import read_plan
from tests.control_api.service.publishing import FENCE
from tests.control_api.service.settled_beam import (
    BEAM,
    BEAM_BPS,
    DRIVER,
    END_S,
    NODES,
    START_MS,
    Drive,
    SettledBeam,
)

FAIR_BITS = BEAM_BPS // len(NODES) * END_S
# Rates on the wire are whole bit/s, reports count whole bytes.
ROUNDING_BITS = 500
AS_EXPECTED = Drive(30, 50)


async def entries_of(database: Database, link: Link) -> list[stored.StoredEntry]:
    async with database.reading() as connection:
        return (await stored.page(connection, BEAM, link=link, limit=1000))[0]


async def balances_of(database: Database, link: Link) -> dict[int, int]:
    async with database.reading() as connection:
        ledger = await stored.ledger_of(connection, BEAM, link)
    return {int(name): bits for name, bits in ledger.balances().items()}


async def settled_until_s(database: Database, link: Link) -> int:
    async with database.reading() as connection:
        mark = await stored.mark_of(connection, BEAM, link)
    assert mark is not None
    return (mark.until_ms - START_MS) // 1000


async def faults(database: Database) -> list[str]:
    async with database.reading() as connection:
        return [fault async for one in audit(connection) for fault in one.faults]


async def assert_square(database: Database, beam: SettledBeam, unforeseen_s: int = 0) -> None:
    for link in Link:
        assert await settled_until_s(database, link) == END_S
        for node in NODES:
            lost = BEAM_BPS // len(NODES) * unforeseen_s if node == DRIVER else 0
            assert beam.sent_bits[node, link] >= FAIR_BITS - lost - ROUNDING_BITS
        balances = await balances_of(database, link)
        assert sum(balances.values()) == 0
        assert all(abs(bits) <= ROUNDING_BITS for bits in balances.values())
    assert await faults(database) == []


async def assert_lent_as_planned(database: Database, link: Link, lender: str) -> None:
    lent = [
        posting.bits
        for entry in await entries_of(database, link)
        for posting in entry.postings
        if entry.kind is Kind.SETTLED and posting.account == lender and posting.bits > 0
    ]
    # D_r of the paper: 2 Mbit/s for 20 s, from three lenders.
    assert sum(lent) == pytest.approx(40_000_000 / 3, abs=ROUNDING_BITS)


async def test_what_is_lent_and_repaid_as_planned_leaves_the_ledger_square(
    database: Database,
) -> None:
    beam = SettledBeam(database, AS_EXPECTED)
    await beam.run()
    await assert_square(database, beam)
    for link in Link:
        await assert_lent_as_planned(database, link, "12")


async def test_a_counter_that_leaps_stops_nobodys_settlement(database: Database) -> None:
    beam = SettledBeam(database, AS_EXPECTED)

    def leap(_now_s: int) -> None:
        beam._reports = [
            (comes_ms, replace(one, sent_bytes=2**63 - 1) if _leaps(one) else one)
            for comes_ms, one in beam._reports
        ]

    await beam.run(leap)
    for link in Link:
        assert await settled_until_s(database, link) == END_S
        assert sum((await balances_of(database, link)).values()) == 0
    assert await faults(database) == []


def _leaps(count: usage.Count) -> bool:
    is_later = count.time_ms > START_MS + 15_000
    return is_later and (count.terminal, count.link) == (12, Link.RETURN.value)


@pytest.mark.parametrize("fades_s", [0, 35], ids=["before", "while it is lent and repaid"])
async def test_a_fade_that_was_measured_changes_no_bit_of_what_is_lent(
    sqlite: Database, fades_s: int
) -> None:
    """Two lenders send a quarter of the bits with the same capacity, and plans account for it."""
    faded = {12: Fraction(1, 4), 13: Fraction(3, 7)}
    beam = SettledBeam(sqlite, AS_EXPECTED, efficiencies=faded, fades_s=fades_s)
    await beam.run()
    await assert_square(sqlite, beam)
    for link in Link:
        for lender in ("12", "13", "14"):
            await assert_lent_as_planned(sqlite, link, lender)


@pytest.mark.parametrize(
    ("entry_s", "exit_s", "unforeseen_s"),
    [(500, 500, 0), (25, 50, 5), (35, 50, 0), (30, 60, 10), (30, 40, 0)],
    ids=["never entered", "earlier", "later", "longer", "shorter"],
)
async def test_a_wrong_prediction_is_settled_against_what_was_sent(
    sqlite: Database, entry_s: int, exit_s: int, unforeseen_s: int
) -> None:
    beam = SettledBeam(sqlite, Drive(entry_s, exit_s))
    await beam.run()
    await assert_square(sqlite, beam, unforeseen_s)


async def test_without_a_blockage_nothing_is_entered(sqlite: Database) -> None:
    beam = SettledBeam(sqlite, Drive(500, 500, expected_s=None))
    await beam.run()
    for link in Link:
        assert await entries_of(sqlite, link) == []
        assert await settled_until_s(sqlite, link) == END_S


async def test_who_takes_over_settles_as_if_there_had_been_one(database: Database) -> None:
    beam = SettledBeam(database, AS_EXPECTED)

    def die(_now_s: int) -> None:
        beam.settler.close()
        beam.settler = beam.new_settler()

    await beam.run(after=die)
    await assert_square(database, beam)


async def test_a_crash_in_the_middle_of_a_settlement_leaves_nothing_of_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = settled_usage.keep

    async def crash(*_arguments: object) -> None:
        raise ZeroDivisionError

    beam = SettledBeam(database, AS_EXPECTED)
    await beam.begin(until_s=40)
    await beam.deliver(40)
    before = [await entries_of(database, link) for link in Link]
    monkeypatch.setattr(settled_usage, "keep", crash)
    with pytest.raises(ZeroDivisionError):
        await beam.settle(45)
    assert [await entries_of(database, link) for link in Link] == before
    monkeypatch.setattr(settled_usage, "keep", keep)
    assert await beam.settle(45) > 0
    assert await beam.settle(45) == 0
    after = await entries_of(database, Link.FORWARD)
    periods = [entry.from_ms for entry in after if entry.kind is Kind.SETTLED]
    assert len(set(periods)) == len(periods)
    assert await faults(database) == []


async def test_of_two_that_settle_at_once_each_period_is_entered_once(database: Database) -> None:
    beam = SettledBeam(database, Drive(35, 50))
    await beam.begin()
    for now_s in range(0, 30, 5):
        await beam.deliver(now_s)
        await beam.plan(now_s)
        await beam.send(now_s)
    await beam.deliver(30)
    settlers = [beam.new_settler() for _ in range(4)]
    now_ms = START_MS + 33_000
    while any(await asyncio.gather(*(one.settle_due(now_ms, FENCE) for one in settlers))):
        pass
    for link in Link:
        assert await settled_until_s(database, link) == 30
        starts = [entry.from_ms for entry in await entries_of(database, link)]
        assert len(starts) == len(set(starts)) == 2
    assert await faults(database) == []


async def test_who_has_lost_the_lease_settles_no_more(database: Database) -> None:
    beam = SettledBeam(database, AS_EXPECTED)
    await beam.begin()
    await beam.tick(0)
    await beam.tick(5)
    await beam.deliver(10)
    assert await beam.new_settler().settle_due(START_MS + 13_000, FENCE + 1) == 2
    with pytest.raises(FencedError, match="ku-1"):
        await beam.settler.settle_due(START_MS + 30_000, FENCE)
    assert await settled_until_s(database, Link.FORWARD) == 10


async def test_the_return_link_waits_for_the_reports_of_a_blocked_terminal(
    sqlite: Database,
) -> None:
    beam = SettledBeam(sqlite, AS_EXPECTED)
    await beam.begin(until_s=50)
    await beam.deliver(45)
    await beam.settle(48)
    assert await settled_until_s(sqlite, Link.FORWARD) == 40
    # The second of the entry is reported after the exit.
    assert await settled_until_s(sqlite, Link.RETURN) == 20
    await beam.deliver(51)
    await beam.settle(51)
    assert await settled_until_s(sqlite, Link.RETURN) == 40


@pytest.mark.parametrize(
    ("drive", "until_s"), [(AS_EXPECTED, 30), (Drive(35, 60, expected_s=(35, 60)), 40)]
)
async def test_after_the_bound_the_plan_is_taken_to_have_been_followed(
    sqlite: Database, drive: Drive, until_s: int
) -> None:
    beam = SettledBeam(sqlite, drive, Settings(settle_within_s=15.0))
    await beam.begin(until_s=until_s + 15)
    await beam.settle(until_s + 18)
    assert await settled_until_s(sqlite, Link.RETURN) == until_s
    balances = await balances_of(sqlite, Link.RETURN)
    # The last second before the entry is reported after the exit only.
    assert balances[DRIVER] == pytest.approx(-40_000_000, abs=ROUNDING_BITS)


async def test_nobody_waits_for_who_has_nothing_at_stake(sqlite: Database) -> None:
    beam = SettledBeam(sqlite, Drive(10, 100, expected_s=None))
    await beam.begin(until_s=30)
    await beam.deliver(30)
    await beam.settle(33)
    assert await settled_until_s(sqlite, Link.RETURN) == 30


async def test_who_leaves_the_beam_is_forgiven(database: Database) -> None:
    beam = SettledBeam(database, AS_EXPECTED)
    await beam.begin(until_s=30)
    await beam.deliver(30)
    async with database.transaction() as connection:
        await connection.execute(
            insert(Beam).values(
                id="ka-2",
                name="Ka",
                forward_capacity_bps=1,
                return_capacity_bps=1,
                one_way_delay_ms=0,
                revision=1,
            )
        )
        moved = update(Terminal).where(Terminal.node == DRIVER).values(beam_id="ka-2")
        await connection.execute(moved)
        await connection.execute(delete(Terminal).where(Terminal.node == 14))
    await beam.settle(33)
    for link in Link:
        left = [entry for entry in await entries_of(database, link) if entry.rule is Rule.LEFT]
        assert left
        balances = await balances_of(database, link)
        assert not {DRIVER, 14} & balances.keys()
        assert sum(balances.values()) == 0
    assert await faults(database) == []


async def test_debts_expire(sqlite: Database) -> None:
    # The debt arises from 10 to 30 s and is repaid from 50 s on.
    beam = SettledBeam(sqlite, Drive(50, 70, expected_s=(50, 70)), Settings(forgive_after_s=25))
    await beam.run()
    for link in Link:
        rules = {entry.rule for entry in await entries_of(sqlite, link)}
        assert Rule.EXPIRED in rules
    assert await faults(sqlite) == []


async def test_a_plan_that_begins_before_the_last_one_known_counts_from_its_begin(
    sqlite: Database,
) -> None:
    beam = SettledBeam(sqlite, AS_EXPECTED)
    await beam.begin()
    for now_s in (0, 5, 10, 15):
        await beam.plan(now_s)
    known = Records(BEAM)
    async with sqlite.reading() as connection:
        await known.unsettled(connection, Link.RETURN, START_MS, START_MS + 21_000)
    # A plan made a moment later, with a shorter way to its followers.
    await beam.plan(19, owed_bits={DRIVER: -60_000_000, 12: 60_000_000})
    async with sqlite.reading() as connection:
        period = (Link.RETURN, START_MS + 10_000, START_MS + 20_000)
        assert (await known.gather(connection, *period)).shares == (
            await Records(BEAM).gather(connection, *period)
        ).shares


async def test_what_plans_gave_many_is_what_they_gave_each(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    beam = SettledBeam(sqlite, AS_EXPECTED)
    await beam.begin()
    for now_s in (0, 5, 10, 15):
        await beam.plan(now_s)
    records, found = Records(BEAM), []
    async with sqlite.reading() as connection:
        period = (Link.RETURN, START_MS + 10_000, START_MS + 20_000)
        known = await records.gather(connection, *period)
        times = {one: [(known.start_ms, known.end_ms - 3_000)] for one in known.shares}
        times[DRIVER].append((known.end_ms - 1_000, known.end_ms))
        for most_lines in (0, 100):
            monkeypatch.setattr(evidence, "_MOST_LINES", most_lines)
            found.append(await records.planned_within(connection, Link.RETURN, known, times))
    together, each = found
    assert together.keys() == each.keys() == times.keys()
    assert all(bits > 0 for bits in each.values())
    # Each piece of a plan may round by a bit.
    assert all(abs(together[one] - each[one]) <= 4 for one in times)


async def test_plans_are_read_beside_the_event_loop_and_those_at_hand_not_at_all(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[threading.Thread] = []

    def read(document: Mapping[str, Any]) -> Plan:
        readers.append(threading.current_thread())
        return read_plan(document)

    beam = SettledBeam(sqlite, AS_EXPECTED)
    await beam.begin()
    for now_s in (0, 5, 10):
        await beam.plan(now_s)
    async with sqlite.reading() as connection:
        newest = await plans.current_plan(connection, BEAM, Link.RETURN)
        assert newest is not None
        until_ms = START_MS + 15_000
        monkeypatch.setattr(plans, "read_plan", read)
        given = await Records(BEAM).unsettled(connection, Link.RETURN, START_MS, until_ms)
        # Three plans were in force, each for five seconds.
        assert len(readers) == 3
        assert threading.main_thread() not in readers
        readers.clear()
        records = Records(BEAM)
        records.planned(Link.RETURN, newest.version, await newest.read())
        assert len(readers) == 1
        readers.clear()
        later_ms = START_MS + 10_000
        await records.unsettled(connection, Link.RETURN, later_ms, until_ms)
        assert not readers
        assert await records.unsettled(connection, Link.RETURN, START_MS, until_ms) == given
        assert len(readers) == 2


async def test_while_the_ledger_cannot_be_used_plans_do_not_gather_in_memory(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unusable(*_arguments: object) -> Ledger:
        raise LedgerError("lots of one terminal on both sides")

    beam = SettledBeam(sqlite, AS_EXPECTED)
    await beam.begin()
    await beam.plan(0)
    async with sqlite.reading() as connection:
        newest = await plans.current_plan(connection, BEAM, Link.RETURN)
        assert newest is not None
        made = weakref.ref(await newest.read())
        beam.settler.planned(Link.RETURN, newest.version, newest.made)
        del newest
        monkeypatch.setattr(stored, "ledger_of", unusable)
        assert await beam.settler.owed_bits(connection, Link.RETURN, START_MS) == {}
    gc.collect()
    assert made() is None


async def test_of_a_beam_that_is_deleted_meanwhile_nothing_is_settled(database: Database) -> None:
    beam = SettledBeam(database, AS_EXPECTED)
    await beam.begin()
    async with database.transaction() as connection:
        await connection.execute(delete(Terminal))
        await connection.execute(delete(Beam))
    assert await beam.settle(3_000) == 0


async def test_a_time_without_plans_is_settled_as_a_whole(sqlite: Database) -> None:
    beam = SettledBeam(sqlite, AS_EXPECTED)
    await beam.begin()
    assert await beam.settle(3_000) == 2 * 5
    assert await settled_until_s(sqlite, Link.FORWARD) == 2_990
