"""Reads the evidence of a period: plans in force, usage, observed blockages, terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link, Plan
from dama.planner.request import MOST_BITS
from underpass_control.planning.delays import MOST_AHEAD_MS
from underpass_control.planning.stored import StoredPlan, plans_in_force
from underpass_control.settlement.period import (
    PERIOD_MS,
    Evidence,
    Interval,
    Report,
    Share,
    efficiencies_of,
    shares_of,
    together,
)
from underpass_control.storage import usage
from underpass_control.storage.blockages import OF_BEAM, SAME_LINK
from underpass_control.storage.models import Blockage, LinkState, Terminal
from underpass_control.usage import Usage

# A plan starts at most this long after its issue, by the signalling delay. If the delay shrinks,
# the next plan may start before this one.
_MAY_BEGIN_MS = MOST_AHEAD_MS
_BY_PLAN = "plan"
# For more terminals than this, the amounts of all together take less time than single lines.
_MOST_LINES = 8


@dataclass(frozen=True)
class _Part:
    """A part of the time in which a plan was in force."""

    from_ms: int
    to_ms: int
    plan: Plan


@dataclass(frozen=True)
class _Given:
    """The amounts that plans gave in a period, and the efficiencies that they used, except 1."""

    shares: dict[int, Share]
    efficiencies: dict[int, Fraction]


class Records:
    """Reads the evidence of a beam's periods, for the holder of its lease.

    No other process plans the beam meanwhile, so the amounts of a past period do not change and are
    computed once.
    """

    def __init__(self, beam: str) -> None:
        self._beam = beam
        # The amounts of past periods that are not settled, by their start.
        self._over: dict[Link, dict[int, _Given]] = {link: {} for link in Link}
        # Plans by version, from the first one in force at the last request: plans of the present
        # period are needed often.
        self._plans: dict[Link, dict[int, Plan]] = {link: {} for link in Link}

    def planned(self, link: Link, version: int, plan: Plan) -> None:
        """Take a plan that has been stored; it need not be read."""
        self._plans[link][version] = plan

    def forget(self, link: Link) -> None:
        """Forget a link's plans while nothing can be settled: they are not needed."""
        self._plans[link].clear()

    async def gather(
        self, connection: AsyncConnection, link: Link, start_ms: int, due_ms: int
    ) -> Evidence:
        """Return the evidence of the first period from `start_ms` on.

        If no plan was in force at all, nothing can be entered, and the time up to `due_ms` is one
        period.
        """
        end_ms = start_ms + PERIOD_MS
        given = await self._given_over(connection, link, start_ms)
        reports: dict[int, Report] = {}
        if given.shares:
            buckets = await usage.usage(connection, self._beam, link, start_ms, end_ms)
            reports = _reports(buckets, given.efficiencies)
        elif not await plans_in_force(connection, self._beam, link, start_ms, due_ms):
            end_ms = due_ms
        of_beam = select(Terminal.node).where(Terminal.beam_id == self._beam)
        return Evidence(
            start_ms=start_ms,
            end_ms=end_ms,
            shares=given.shares,
            reports=reports,
            blocked=await _blocked(connection, self._beam, start_ms, end_ms),
            heard_ms=await _heard_ms(connection, self._beam, link),
            members=set(await connection.scalars(of_beam)),
        )

    async def planned_within(
        self,
        connection: AsyncConnection,
        link: Link,
        known: Evidence,
        times: Mapping[int, Sequence[Interval]],
    ) -> dict[int, int]:
        """Return the bits that plans gave some terminals, each in some times of a period."""
        if not times:
            return {}
        pieces = await plans_in_force(connection, self._beam, link, known.start_ms, known.end_ms)
        # Most of them share the same times: a node that is away has many terminals.
        alike: dict[Interval, list[int]] = {}
        for terminal, intervals in times.items():
            for interval in intervals:
                alike.setdefault(interval, []).append(terminal)
        given = dict.fromkeys(times, 0)
        for piece in pieces:
            for (from_ms, to_ms), terminals in alike.items():
                begin, end = max(from_ms, piece.from_ms), min(to_ms, piece.to_ms)
                if begin < end:
                    plan = await self._made(link, piece.plan)
                    amounts = _given_to(plan, terminals, begin, end)
                    for terminal, bits in amounts.items():
                        given[terminal] += bits
        return given

    async def unsettled(
        self, connection: AsyncConnection, link: Link, since_ms: int, until_ms: int
    ) -> dict[int, Share]:
        """Return the amounts of plans in a time that begins where settlement ends."""
        over = self._over[link]
        for start_ms in [start_ms for start_ms in over if start_ms < since_ms]:
            del over[start_ms]
        parts = []
        while since_ms in over:
            parts.append(over[since_ms].shares)
            since_ms += PERIOD_MS
        fresh = await self._given(connection, link, since_ms, until_ms)
        for start_ms, given in fresh.items():
            parts.append(given.shares)
            if start_ms + PERIOD_MS <= until_ms - _MAY_BEGIN_MS:
                over[start_ms] = given
        return together(parts)

    async def _given_over(self, connection: AsyncConnection, link: Link, start_ms: int) -> _Given:
        over = self._over[link]
        if start_ms not in over:
            over |= await self._given(connection, link, start_ms, start_ms + PERIOD_MS)
        return over[start_ms]

    async def _given(
        self, connection: AsyncConnection, link: Link, since_ms: int, until_ms: int
    ) -> dict[int, _Given]:
        """Return the amounts of plans by the start of each period; the last may be a part."""
        pieces = await plans_in_force(connection, self._beam, link, since_ms, until_ms)
        parts = [_Part(one.from_ms, one.to_ms, await self._made(link, one.plan)) for one in pieces]
        known = self._plans[link]
        for version in [one for one in known if pieces and one < pieces[0].plan.version]:
            del known[version]
        within = {
            start_ms: _within(parts, start_ms, min(start_ms + PERIOD_MS, until_ms))
            for start_ms in range(since_ms, until_ms, PERIOD_MS)
        }
        return {
            start_ms: _Given(shares_of(of_period), efficiencies_of(of_period))
            for start_ms, of_period in within.items()
        }

    async def _made(self, link: Link, plan: StoredPlan) -> Plan:
        known = self._plans[link]
        if plan.version not in known:
            known[plan.version] = await plan.read()
        return known[plan.version]


def _given_to(plan: Plan, terminals: Sequence[int], from_ms: int, to_ms: int) -> dict[int, int]:
    """Return the bits that a plan gives some terminals in a time; 0 for those not in it."""
    if len(terminals) > _MOST_LINES:
        amounts = plan.amounts(from_ms, to_ms)
        return {one: amounts[str(one)][0] for one in terminals if str(one) in amounts}
    named = set(plan.terminals())
    return {
        one: plan.line(str(one)).amounts(from_ms, to_ms)[0]
        for one in terminals
        if str(one) in named
    }


def _within(parts: Sequence[_Part], start_ms: int, end_ms: int) -> list[_Part]:
    """Return the parts, cut to a time."""
    cut = (_Part(max(part.from_ms, start_ms), min(part.to_ms, end_ms), part.plan) for part in parts)
    return [part for part in cut if part.from_ms < part.to_ms]


def _reports(
    buckets: Mapping[int, list[Usage]], efficiencies: Mapping[int, Fraction]
) -> dict[int, Report]:
    return {
        terminal: Report(
            sent_bits=_capacity_of(bucket, efficiencies.get(terminal, Fraction(1))),
            blocked=bucket.blocked_ms > 0,
            complete=bucket.complete,
        )
        for terminal, (bucket,) in buckets.items()
    }


def _capacity_of(bucket: Usage, planned: Fraction) -> int:
    """Return the capacity used for sending, in whole bits, rounded down.

    It is computed with the reported efficiency; without one, with that of the plans, so that a
    terminal that sends what the plans gave it has used the capacity that they gave it. An amount
    above any beam's capacity is a counter's fault; it is cut, so that it can be stored and the
    other terminals can be settled.
    """
    efficiency = planned if bucket.efficiency is None else bucket.efficiency
    return min(int(bucket.sent_bits / efficiency), MOST_BITS)


async def _blocked(
    connection: AsyncConnection, beam: str, start_ms: int, end_ms: int
) -> dict[int, list[Interval]]:
    """Return when terminals were observed to be blocked, by either end."""
    query = (
        select(Blockage.terminal, Blockage.entry_ms, func.coalesce(Blockage.exit_ms, end_ms))
        .join(Terminal, Terminal.node == Blockage.terminal)
        .outerjoin(LinkState, SAME_LINK)
        .where(
            Terminal.beam_id == beam,
            OF_BEAM,
            # A node that only follows a plan makes no observation.
            Blockage.source != _BY_PLAN,
            Blockage.entry_ms < end_ms,
            Blockage.exit_ms.is_(None) | (Blockage.exit_ms > start_ms),
        )
        .order_by(Blockage.terminal, Blockage.entry_ms)
    )
    blocked: dict[int, list[Interval]] = {}
    for terminal, entry_ms, exit_ms in await connection.execute(query):
        known = blocked.setdefault(terminal, [])
        known.append((max(entry_ms, start_ms), min(exit_ms, end_ms)))
    return blocked


async def _heard_ms(connection: AsyncConnection, beam: str, link: Link) -> dict[int, int]:
    query = (
        select(LinkState.terminal, LinkState.time_ms)
        .join(Terminal, Terminal.node == LinkState.terminal)
        .where(Terminal.beam_id == beam, LinkState.link == link.value)
    )
    return dict((await connection.execute(query)).all())
