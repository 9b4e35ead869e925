"""The stored ledger: entries, which never change, and the open lots that result from them.

Old entries are deleted, oldest first. Their result is kept as the opening lots, from which the
later entries continue. So balances and audit stay exact, to the bit.

A transaction that writes the ledger of a beam's link first changes its row in `settled` (`advance`,
`hold`). So writers take turns, and entries are in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, literal, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.ledger import Entry, Kind, Ledger, Lot, Posting, Rule
from dama.planner import Link
from underpass_control.instants import moment_of, rfc3339
from underpass_control.storage.bulk import BulkInsert
from underpass_control.storage.changes import Publish
from underpass_control.storage.membership import portions_of
from underpass_control.storage.models import (
    Beam,
    LedgerEntry,
    LedgerLot,
    LedgerOpening,
    LedgerPosting,
    Settled,
)

_POSTINGS = BulkInsert(LedgerPosting, ("entry_id", "terminal", "bits"))
_LOTS = BulkInsert(LedgerLot, ("beam_id", "link", "terminal", "since_ms", "bits"))
_OPENING = BulkInsert(LedgerOpening, ("beam_id", "link", "terminal", "since_ms", "bits"))
# Entries that are deleted per reading of the opening lots.
_PRUNED_AT_ONCE = 100
# Postings in a page of entries: a beam of 10,000 terminals has as many in one entry.
_MOST_POSTINGS = 20_000


class PruneError(RuntimeError):
    """Old entries could not be deleted this time; the text says why."""


@dataclass(frozen=True)
class Mark:
    """How far a link of a beam is settled.

    Attributes:
        until_ms: all periods before are settled.
        fence: the highest fence of a lease under which it was.
        revision: of its ledger; rises with every change.
    """

    beam: str
    link: Link
    until_ms: int
    fence: int
    revision: int


@dataclass(frozen=True)
class Authorship:
    """Who forgave by hand, and why."""

    made_by: str
    reason: str


@dataclass(frozen=True)
class StoredEntry:
    """An entry as it stands in the database, whether or not it is right."""

    id: int
    link: Link
    from_ms: int
    to_ms: int
    kind: Kind
    rule: Rule | None
    postings: tuple[Posting, ...]
    authorship: Authorship | None

    @property
    def place(self) -> tuple[int, int]:
        """Its place among the entries of a beam, in order of time."""
        return self.from_ms, self.id

    def entry(self) -> Entry:
        """Return it as an entry of `dama.ledger`.

        Raises:
            LedgerError: It does not balance.
        """
        return Entry(self.from_ms, self.to_ms, self.kind, self.postings, self.rule)


async def mark_of(connection: AsyncConnection, beam: str, link: Link) -> Mark | None:
    """Return how far a link is settled; None before the first settlement."""
    found = await connection.execute(select(Settled.__table__).where(_of(Settled, beam, link)))
    row = found.one_or_none()
    return None if row is None else Mark(beam, link, row.until_ms, row.fence, row.revision)


async def begin(
    connection: AsyncConnection, beam: str, link: Link, until_ms: int, fence: int
) -> None:
    """Have settlement of a link begin with a time, unless it has begun or the beam is gone."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    row = {"link": link.value, "until_ms": until_ms, "fence": fence, "revision": 0}
    values = (literal(value, Settled.__table__.c[name].type) for name, value in row.items())
    of_beam = select(Beam.id, *values).where(Beam.id == beam)
    statement = dialect.insert(Settled).from_select(["beam_id", *row], of_beam)
    await connection.execute(statement.on_conflict_do_nothing())


async def advance(connection: AsyncConnection, mark: Mark, until_ms: int, fence: int) -> bool:
    """Settle up to a time, if the ledger still matches the mark and no higher fence is known.

    Return whether that was so; otherwise nothing may be written.
    """
    result = await connection.execute(
        update(Settled)
        .where(
            _of(Settled, mark.beam, mark.link),
            Settled.revision == mark.revision,
            Settled.fence <= fence,
        )
        .values(until_ms=until_ms, fence=fence, revision=Settled.revision + 1)
    )
    return result.rowcount > 0


async def hold(connection: AsyncConnection, beam: str, link: Link) -> bool:
    """Keep all others from writing a link's ledger until the transaction ends.

    Return whether there is one.
    """
    result = await connection.execute(
        update(Settled).where(_of(Settled, beam, link)).values(revision=Settled.revision + 1)
    )
    return result.rowcount > 0


async def lots_of(connection: AsyncConnection, beam: str, link: Link) -> dict[str, tuple[Lot, ...]]:
    """Return the open lots of each terminal, oldest first."""
    return await _lots(connection, LedgerLot, beam, link)


async def opening_of(
    connection: AsyncConnection, beam: str, link: Link
) -> dict[str, tuple[Lot, ...]]:
    """Return the opening lots of each terminal, left by deleted entries, oldest first."""
    return await _lots(connection, LedgerOpening, beam, link)


async def ledger_of(connection: AsyncConnection, beam: str, link: Link) -> Ledger:
    """Return the ledger of a link of a beam, as its entries have left it.

    Raises:
        LedgerError: The stored ledger is impossible: `underpass-control ledger check` says more.
    """
    return Ledger(await lots_of(connection, beam, link))


async def write(
    connection: AsyncConnection,
    publish: Publish,
    beam: str,
    link: Link,
    entries: Sequence[Entry],
    ledger: Ledger,
    authorship: Authorship | None = None,
) -> list[StoredEntry]:
    """Store entries, and the lots of a ledger to which they have been applied."""
    changed = {posting.account for entry in entries for posting in entry.postings}
    made: list[StoredEntry] = []
    for entry in entries:
        row = _row(beam, link, entry, authorship)
        statement = insert(LedgerEntry).values(row).returning(LedgerEntry.__table__)
        stored = await connection.execute(statement)
        made.append(_stored(stored.one(), entry.postings))
        publish(_told(beam, made[-1]))
    postings = [
        (one.id, int(posting.account), posting.bits) for one in made for posting in one.postings
    ]
    await _POSTINGS.execute(connection, postings)
    if changed:
        await _replace_lots(connection, beam, link, changed, ledger.lots())
    return made


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete the first entries, those that ended before a time; keep their opening lots.

    Returns:
        How many rows: entries and postings. At least `limit` if there may be more.

    Raises:
        LedgerError: An entry is wrong. It and those behind it stay, for whoever looks into it.
        PruneError: Another process deletes, too; this one does not.
    """
    deleted = 0
    for beam, link in await books(connection):
        while deleted < limit and (rows := await _prune_some(connection, beam, link, before_ms)):
            deleted += rows
    return deleted


async def _prune_some(connection: AsyncConnection, beam: str, link: Link, before_ms: int) -> int:
    """Delete the first entries of a link, some at a time; return how many rows."""
    first = await replay(connection, beam, link, 0, _PRUNED_AT_ONCE)
    old = list(takewhile(lambda one: one.to_ms < before_ms, first))
    if not old:
        return 0
    ids = [one.id for one in old]
    of_entries = LedgerPosting.entry_id.in_(ids)
    await connection.execute(delete(LedgerPosting).where(of_entries))
    gone = await connection.execute(delete(LedgerEntry).where(LedgerEntry.id.in_(ids)))
    if gone.rowcount != len(ids):
        raise PruneError(f"another process deletes entries of {beam}, {link.value}")
    # Read after the deletion: an earlier deleting process has ended, and its result is visible.
    ledger = Ledger(await opening_of(connection, beam, link))
    for one in old:
        ledger.apply(one.entry())
    await connection.execute(delete(LedgerOpening).where(_of(LedgerOpening, beam, link)))
    rows = [
        (beam, link.value, int(name), lot.since_ms, lot.bits)
        for name, account in ledger.lots().items()
        for lot in account
    ]
    await _OPENING.execute(connection, rows)
    return len(ids) + sum(len(one.postings) for one in old)


async def _lots(
    connection: AsyncConnection,
    table: type[LedgerLot] | type[LedgerOpening],
    beam: str,
    link: Link,
) -> dict[str, tuple[Lot, ...]]:
    query = select(table.terminal, table.since_ms, table.bits)
    query = query.where(_of(table, beam, link)).order_by("terminal", "since_ms")
    lots: dict[str, list[Lot]] = {}
    for terminal, since_ms, bits in await connection.execute(query):
        lots.setdefault(str(terminal), []).append(Lot(since_ms, bits))
    return {name: tuple(account) for name, account in lots.items()}


async def _replace_lots(
    connection: AsyncConnection,
    beam: str,
    link: Link,
    accounts: Iterable[str],
    lots: Mapping[str, Sequence[Lot]],
) -> None:
    names = list(accounts)
    for some in portions_of(names):
        of_some = LedgerLot.terminal.in_([int(name) for name in some])
        await connection.execute(delete(LedgerLot).where(_of(LedgerLot, beam, link), of_some))
    rows = [
        (beam, link.value, int(name), lot.since_ms, lot.bits)
        for name in names
        for lot in lots.get(name, ())
    ]
    await _LOTS.execute(connection, rows)


async def page(
    connection: AsyncConnection,
    beam: str,
    *,
    limit: int,
    link: Link | None = None,
    terminal: int | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    after: tuple[int, int] | None = None,
    newest_first: bool = False,
) -> tuple[list[StoredEntry], bool]:
    """Return entries of a beam that begin from `since_ms` to before `until_ms`, in order of time.

    With them, whether there may be more behind the last one. `after` is the place of the last one
    of the page before; `terminal` is one of those with a posting.
    """
    where: list[ColumnElement[bool]] = [LedgerEntry.beam_id == beam]
    if link is not None:
        where.append(LedgerEntry.link == link.value)
    if terminal is not None:
        of_terminal = select(LedgerPosting.entry_id).where(LedgerPosting.terminal == terminal)
        where.append(LedgerEntry.id.in_(of_terminal))
    if since_ms is not None:
        where.append(LedgerEntry.from_ms >= since_ms)
    if until_ms is not None:
        where.append(LedgerEntry.from_ms < until_ms)
    place = tuple_(LedgerEntry.from_ms, LedgerEntry.id)
    if after is not None:
        where.append(place < after if newest_first else place > after)
    order = [LedgerEntry.from_ms, LedgerEntry.id]
    query = select(LedgerEntry.__table__).where(*where).limit(limit)
    rows = await connection.execute(
        query.order_by(*(o.desc() if newest_first else o for o in order))
    )
    found = rows.all()
    whole = await _within_bounds(connection, [row.id for row in found])
    entries = await _with_postings(connection, found[:whole])
    return entries, len(found) == limit or whole < len(found)


async def replay(
    connection: AsyncConnection, beam: str, link: Link, after_id: int, limit: int
) -> list[StoredEntry]:
    """Return the entries of a link behind an id, in the order in which they were made."""
    query = select(LedgerEntry.__table__).where(
        LedgerEntry.beam_id == beam, LedgerEntry.link == link.value, LedgerEntry.id > after_id
    )
    rows = await connection.execute(query.order_by(LedgerEntry.id).limit(limit))
    return await _with_postings(connection, rows.all())


async def books(connection: AsyncConnection) -> list[tuple[str, Link]]:
    """Return all beams and links that have entries or opening lots."""
    of_entries = select(LedgerEntry.beam_id, LedgerEntry.link)
    of_lots = select(LedgerLot.beam_id, LedgerLot.link)
    of_opening = select(LedgerOpening.beam_id, LedgerOpening.link)
    rows = await connection.execute(of_entries.union(of_lots, of_opening))
    return sorted((beam, Link(link)) for beam, link in rows)


async def count(connection: AsyncConnection) -> int:
    """Return how many entries there are, of all beams and links."""
    query = select(func.count()).select_from(LedgerEntry)
    return (await connection.execute(query)).scalar_one()


async def _within_bounds(connection: AsyncConnection, ids: Sequence[int]) -> int:
    """Return how many of these entries, in this order, have postings enough for one page."""
    query = select(LedgerPosting.entry_id, func.count()).where(LedgerPosting.entry_id.in_(ids))
    counts = dict((await connection.execute(query.group_by(LedgerPosting.entry_id))).all())
    total = 0
    for place, number in enumerate(ids):
        total += counts.get(number, 0)
        if place and total > _MOST_POSTINGS:
            return place
    return len(ids)


async def _with_postings(connection: AsyncConnection, rows: Sequence[Any]) -> list[StoredEntry]:
    query = select(LedgerPosting.__table__).where(
        LedgerPosting.entry_id.in_([row.id for row in rows])
    )
    postings: dict[int, list[Posting]] = {row.id: [] for row in rows}
    for number, terminal, bits in await connection.execute(query.order_by("terminal")):
        postings[number].append(Posting(str(terminal), bits))
    return [_stored(row, postings[row.id]) for row in rows]


def _of(
    table: type[Settled] | type[LedgerLot] | type[LedgerOpening], beam: str, link: Link
) -> ColumnElement[bool]:
    return (table.beam_id == beam) & (table.link == link.value)


def _row(
    beam: str, link: Link, entry: Entry, authorship: Authorship | None
) -> dict[str, str | int | None]:
    return {
        "beam_id": beam,
        "link": link.value,
        "from_ms": entry.from_ms,
        "to_ms": entry.to_ms,
        "kind": entry.kind.value,
        "rule": None if entry.rule is None else entry.rule.value,
        "reason": None if authorship is None else authorship.reason,
        "made_by": None if authorship is None else authorship.made_by,
    }


def _stored(row: Any, postings: Sequence[Posting]) -> StoredEntry:
    return StoredEntry(
        id=row.id,
        link=Link(row.link),
        from_ms=row.from_ms,
        to_ms=row.to_ms,
        kind=Kind(row.kind),
        rule=None if row.rule is None else Rule(row.rule),
        postings=tuple(postings),
        authorship=None if row.reason is None else Authorship(row.made_by, row.reason),
    )


def _told(beam: str, one: StoredEntry) -> dict[str, object]:
    told: dict[str, object] = {
        "kind": "ledger",
        "beam": beam,
        "link": one.link.value,
        "entry": one.id,
        "start": rfc3339(moment_of(one.from_ms)),
        "end": rfc3339(moment_of(one.to_ms)),
        "entry_kind": one.kind.value,
        "moved_bits": sum(max(0, posting.bits) for posting in one.postings),
    }
    if one.rule is not None:
        told["rule"] = one.rule.value
    return told
