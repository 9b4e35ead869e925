"""The ledger of debts, its balances, forgiving by operators, and how fair a beam was."""

from __future__ import annotations

from http import HTTPStatus

from sqlalchemy.ext.asyncio import AsyncConnection

from dama.ledger import LedgerError
from dama.planner import Link
from underpass_control.access.audit import Changed
from underpass_control.http import ledger_models as models
from underpass_control.http.at_once import InTurn
from underpass_control.http.cursor import cursor_of, numbers_after
from underpass_control.http.endpoint import OPERATORS, READERS, Call, Endpoint
from underpass_control.http.plans import known_beam
from underpass_control.http.problem import Problem
from underpass_control.instants import milliseconds, moment_of
from underpass_control.settlement import fairness
from underpass_control.settlement.forgiving import forgive
from underpass_control.settlement.period import PERIOD_MS
from underpass_control.storage import ledger as stored
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database

# Questions of fairness that are answered at a time, and those that may wait: one reads up to
# `fairness.MOST_CELLS` records of each link.
_AT_ONCE, _MOST_WAITING = 2, 1_024


class LedgerOfBeam:
    """The endpoints of a beam's ledger."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._turns = InTurn(_AT_ONCE, _MOST_WAITING, "questions of fairness")

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        beam = "/v1/beams/{beam}"
        return [
            Endpoint(
                "GET",
                beam + "/ledger",
                "What was lent, repaid and forgiven",
                self._entries,
                READERS,
                query=models.LedgerQuery,
                answers=models.LedgerPage,
            ),
            Endpoint(
                "GET",
                beam + "/balances",
                "Who owes how much, as far as it is settled",
                self._balances,
                READERS,
                query=models.LinkQuery,
                answers=models.BeamBalances,
            ),
            Endpoint(
                "POST",
                beam + "/ledger/forgive",
                "Forgive what a terminal owes or is owed",
                self._forgive,
                OPERATORS,
                body=models.ForgiveBody,
                answers=models.LedgerEntry,
                status=HTTPStatus.CREATED,
                problems=[HTTPStatus.CONFLICT],
            ),
            Endpoint(
                "GET",
                beam + "/fairness",
                "What each terminal sent, what the plans gave it, and Jain's index",
                self._fairness,
                READERS,
                query=models.FairnessQuery,
                answers=models.BeamFairness,
                problems=[HTTPStatus.UNPROCESSABLE_ENTITY],
            ),
        ]

    async def _entries(self, call: Call) -> models.LedgerPage:
        query = call.query(models.LedgerQuery)
        async with self._database.reading() as connection:
            beam = await known_beam(connection, call)
            found, more = await stored.page(
                connection,
                beam,
                limit=query.limit,
                link=None if query.link is None else Link(query.link),
                terminal=query.terminal,
                since_ms=None if query.since is None else milliseconds(query.since),
                until_ms=None if query.until is None else milliseconds(query.until),
                after=_place_after(query.cursor),
                newest_first=query.order == "newest",
            )
        last = cursor_of("{}:{}".format(*found[-1].place)) if more else None
        return models.LedgerPage(entries=[_shown(one) for one in found], next=last)

    async def _balances(self, call: Call) -> models.BeamBalances:
        async with self._database.reading() as connection:
            beam = await known_beam(connection, call)
            links = [
                await _link_balances(connection, beam, link)
                for link in _links(call.query(models.LinkQuery).link)
            ]
        return models.BeamBalances(beam=beam, links=links)

    async def _forgive(self, call: Call) -> models.LedgerEntry:
        body = call.body(models.ForgiveBody)
        authorship = stored.Authorship(call.known_caller.name, body.reason)
        try:
            async with self._changes.transaction() as (connection, publish):
                made = await forgive(
                    connection,
                    publish,
                    await known_beam(connection, call),
                    Link(body.link),
                    body.terminal,
                    body.bits,
                    authorship,
                    self._database.clock.now_ms(),
                )
                state = _shown(made).model_dump(mode="json", exclude_none=True)
                target = f"/v1/beams/{call.path['beam']}/ledger"
                await call.record(connection, Changed("forgive", target, after=state))
        except LedgerError as error:
            raise Problem(HTTPStatus.CONFLICT, str(error)) from error
        return _shown(made)

    async def _fairness(self, call: Call) -> models.BeamFairness:
        query = call.query(models.FairnessQuery)
        now_ms = self._database.clock.now_ms()
        until_ms = now_ms if query.until is None else min(milliseconds(query.until), now_ms)
        # Whole periods that touch the range; the last one has the reports that have come by now.
        since_ms = milliseconds(query.since) // PERIOD_MS * PERIOD_MS
        until_ms = -(-until_ms // PERIOD_MS) * PERIOD_MS
        if until_ms <= since_ms:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "the range lies in the future")
        async with self._turns.one(call), self._database.reading() as connection:
            beam = await known_beam(connection, call)
            weights = await fairness.weights_of(connection, beam)
            try:
                links = [
                    _link_fairness(
                        link,
                        await fairness.parts(connection, beam, link, weights, since_ms, until_ms),
                        until_ms - since_ms,
                    )
                    for link in _links(query.link)
                ]
            except fairness.TooMuchError as error:
                raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        return models.BeamFairness(
            beam=beam, since=moment_of(since_ms), until=moment_of(until_ms), links=links
        )


def _links(name: str | None) -> list[Link]:
    return list(Link) if name is None else [Link(name)]


def _place_after(cursor: str | None) -> tuple[int, int] | None:
    numbers = numbers_after(cursor, 2)
    return None if numbers is None else (numbers[0], numbers[1])


async def _link_balances(connection: AsyncConnection, beam: str, link: Link) -> models.LinkBalances:
    mark = await stored.mark_of(connection, beam, link)
    lots = await stored.lots_of(connection, beam, link)
    return models.LinkBalances(
        link=link.value,
        settled_until=None if mark is None else moment_of(mark.until_ms),
        balances=[
            models.Balance(
                terminal=int(name),
                bits=sum(lot.bits for lot in account),
                since=moment_of(account[0].since_ms),
            )
            for name, account in lots.items()
        ],
    )


def _link_fairness(link: Link, parts: list[fairness.Part], lasting_ms: int) -> models.LinkFairness:
    return models.LinkFairness(
        link=link.value,
        jain=fairness.jain_of(parts),
        jain_by_weight=fairness.jain_by_weight(parts),
        terminals=[
            models.TerminalShare(
                terminal=part.terminal,
                weight=part.weight,
                throughput_bps=part.sent_bits * 1000 // lasting_ms,
                sent_bits=part.sent_bits,
                offered_bits=part.offered_bits,
                planned_bits=part.share.planned_bits,
                fair_bits=part.share.fair_bits,
                blocked_ms=part.blocked_ms,
            )
            for part in parts
        ],
    )


def _shown(one: stored.StoredEntry) -> models.LedgerEntry:
    return models.LedgerEntry(
        id=one.id,
        link=one.link.value,
        start=moment_of(one.from_ms),
        end=moment_of(one.to_ms),
        kind=one.kind.value,
        rule=None if one.rule is None else one.rule.value,
        reason=None if one.authorship is None else one.authorship.reason,
        made_by=None if one.authorship is None else one.authorship.made_by,
        postings=[
            models.Posting(terminal=int(posting.account), bits=posting.bits)
            for posting in one.postings
        ],
    )
