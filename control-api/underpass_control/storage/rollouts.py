"""Rollouts: made and read, with the progress of their terminals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.rollouts.stages import (
    ENDED,
    FAILED,
    WAITS,
    Member,
    Progress,
    Standing,
    State,
    Terms,
)
from underpass_control.storage.changes import Change
from underpass_control.storage.models import Rollout, RolloutTerminal, Terminal, TerminalSettings
from underpass_control.storage.settings import ReportedState

# The most rows in one statement.
_AT_ONCE = 500
_ENDED = [state.value for state in ENDED]
_BY_REPORT: Mapping[ReportedState, Progress] = {
    "trial": Progress.TRIAL,
    "confirmed": Progress.CONFIRMED,
    "rolled-back": Progress.ROLLED_BACK,
    "refused": Progress.REFUSED,
}
# In these states, a terminal's report may change its progress.
_MAY_MOVE = frozenset({*WAITS, Progress.CONFIRMED})


async def add(
    connection: AsyncConnection, values: Mapping[str, Any], terminals: Sequence[int]
) -> int:
    """Make a rollout; return its number.

    Raises:
        IntegrityError: One of the terminals is in another rollout that has not ended.
    """
    made = insert(Rollout).values(**values, state=State.RUNNING.value).returning(Rollout.id)
    number: int = (await connection.execute(made)).scalar_one()
    rows = [
        {
            "rollout_id": number,
            "terminal": terminal,
            "place": place,
            "progress": Progress.PENDING.value,
            "is_open": True,
        }
        for place, terminal in enumerate(terminals)
    ]
    for start in range(0, len(rows), _AT_ONCE):
        await connection.execute(insert(RolloutTerminal), rows[start : start + _AT_ONCE])
    return number


async def count_open(connection: AsyncConnection, tenant: str | None) -> int:
    """Return how many rollouts of a tenant, or of the whole (None), have not ended."""
    query = select(func.count(Rollout.id)).where(
        Rollout.state.not_in(_ENDED), Rollout.tenant_id.is_not_distinct_from(tenant)
    )
    return (await connection.execute(query)).scalar_one()


async def taken(connection: AsyncConnection, terminals: Sequence[int]) -> tuple[int, int] | None:
    """Return a terminal of these that is in a rollout that has not ended, and that rollout."""
    for start in range(0, len(terminals), _AT_ONCE):
        query = (
            select(RolloutTerminal.terminal, RolloutTerminal.rollout_id)
            .where(
                RolloutTerminal.is_open,
                RolloutTerminal.terminal.in_(terminals[start : start + _AT_ONCE]),
            )
            .limit(1)
        )
        found = (await connection.execute(query)).one_or_none()
        if found is not None:
            return found.terminal, found.rollout_id
    return None


async def get(connection: AsyncConnection, number: int) -> Row[Any] | None:
    """Return a rollout."""
    query = select(Rollout.__table__).where(Rollout.id == number)
    return (await connection.execute(query)).one_or_none()


async def lock(connection: AsyncConnection, number: int) -> Row[Any] | None:
    """Return a rollout, locked against other changes until the transaction ends."""
    # On SQLite only a write locks.
    locked = update(Rollout).where(Rollout.id == number).values(revision=Rollout.revision)
    return (await connection.execute(locked.returning(*Rollout.__table__.columns))).one_or_none()


async def page(
    connection: AsyncConnection, *, before: int | None, limit: int
) -> Sequence[Row[Any]]:
    """Return rollouts, the newest first, below a number."""
    query = select(Rollout.__table__).order_by(Rollout.id.desc()).limit(limit)
    if before is not None:
        query = query.where(Rollout.id < before)
    return (await connection.execute(query)).all()


async def numbers(connection: AsyncConnection) -> Sequence[int]:
    """Return the rollouts that have not ended."""
    query = select(Rollout.id).where(Rollout.state.not_in(_ENDED)).order_by(Rollout.id)
    return (await connection.scalars(query)).all()


async def counts(connection: AsyncConnection, rollouts: Sequence[int]) -> dict[int, dict[str, int]]:
    """Return how many terminals have each progress, by rollout."""
    columns = (RolloutTerminal.rollout_id, RolloutTerminal.progress)
    query = select(*columns, func.count().label("count")).group_by(*columns)
    found: dict[int, dict[str, int]] = {number: {} for number in rollouts}
    rows = await connection.execute(query.where(RolloutTerminal.rollout_id.in_(rollouts)))
    for number, progress, count in rows:
        found[number][progress] = count
    return found


async def page_of_terminals(
    connection: AsyncConnection, number: int, *, after: int | None, limit: int
) -> Sequence[Row[Any]]:
    """Return the terminals of a rollout after a place, in their order."""
    query = (
        select(RolloutTerminal.__table__)
        .where(RolloutTerminal.rollout_id == number)
        .order_by(RolloutTerminal.place)
        .limit(limit)
    )
    if after is not None:
        query = query.where(RolloutTerminal.place > after)
    return (await connection.execute(query)).all()


async def moved(connection: AsyncConnection, rollout: Row[Any], *, limit: int) -> list[Member]:
    """Return the first terminals whose stored progress is no longer what `member_of` finds."""
    table, settings = RolloutTerminal, TerminalSettings
    progress, is_set = table.progress, settings.version == table.version
    is_back_on_trial = and_(
        progress == Progress.CONFIRMED.value, settings.reported_state == Progress.TRIAL.value
    )
    query = _of_terminals(
        rollout,
        table.progress,
        table.version,
        table.sent_ms,
        table.confirmed_ms,
        table.reason,
        settings.version.label("set_version"),
        settings.reported_version,
        settings.reported_state,
        settings.reported_ms,
        settings.reason.label("reported_reason"),
    ).where(
        or_(
            and_(_in(Progress.PENDING, *_MAY_MOVE), ~_is_of_its_tenant(rollout)),
            and_(_in(*WAITS), or_(settings.version.is_(None), ~is_set)),
            and_(
                _in(*_MAY_MOVE),
                is_set,
                settings.reported_version == table.version,
                settings.reported_state != progress,
                ~is_back_on_trial,
            ),
        )
    )
    rows = (await connection.execute(query.limit(limit))).all()
    found = [(row.progress, member_of(row, rollout)) for row in rows]
    # `member_of` decides: a row that it leaves as it is would be found for ever.
    return [member for before, member in found if member.progress.value != before]


async def standing(
    connection: AsyncConnection, rollout: Row[Any], now_ms: int, *, limit: int
) -> Standing:
    """Return where a rollout's terminals stand by their stored progress.

    `limit` is the most of the pending ones that are named.
    """
    table = RolloutTerminal
    waits, confirmed, failed = _in(*WAITS), _in(Progress.CONFIRMED), _in(*FAILED)
    of_it = table.rollout_id == rollout.id

    def count(those: ColumnElement[bool]) -> ColumnElement[int]:
        return func.count(case((those, 1)))

    counted = select(
        func.count().label("total"),
        count(waits).label("waits"),
        count(and_(waits, table.sent_ms > now_ms - rollout.wait_ms)).label("holds_up"),
        count(confirmed).label("confirmed"),
        func.max(case((confirmed, table.confirmed_ms))).label("confirmed_ms"),
        count(failed).label("failed"),
    ).where(of_it)
    counts = (await connection.execute(counted)).one()
    pending = select(table.terminal).where(of_it, _in(Progress.PENDING)).order_by(table.place)
    last_failed = None
    if counts.failed:
        columns = (table.terminal, table.progress, table.reason)
        last = select(*columns).where(of_it, failed).order_by(table.place.desc()).limit(1)
        one = (await connection.execute(last)).one()
        last_failed = Member(one.terminal, Progress(one.progress), reason=one.reason)
    return Standing(
        total=counts.total,
        pending=(await connection.scalars(pending.limit(limit))).all(),
        waits=counts.waits,
        holds_up=counts.holds_up,
        confirmed=counts.confirmed,
        confirmed_ms=counts.confirmed_ms or 0,
        failed=counts.failed,
        last_failed=last_failed,
    )


async def to_set(
    connection: AsyncConnection, rollout: Row[Any], terminals: Sequence[int]
) -> Sequence[Row[Any]]:
    """Return those of some pending terminals that may be set, with their present settings."""
    query = _of_terminals(rollout, TerminalSettings.document.label("set_document")).where(
        RolloutTerminal.terminal.in_(terminals),
        _in(Progress.PENDING),
        _is_of_its_tenant(rollout),
    )
    found: Sequence[Row[Any]] = (await connection.execute(query)).all()
    return found


async def to_restore(
    connection: AsyncConnection, rollout: Row[Any], *, limit: int
) -> Sequence[Row[Any]]:
    """Return terminals that have the rollout's settings, and may be given their former ones."""
    table, settings = RolloutTerminal, TerminalSettings
    query = _of_terminals(rollout, table.before, settings.document.label("set_document")).where(
        settings.version == table.version,
        ~_in(Progress.RESTORED),
        _is_of_its_tenant(rollout),
    )
    found: Sequence[Row[Any]] = (await connection.execute(query.limit(limit))).all()
    return found


def _of_terminals(rollout: Row[Any], *columns: Any) -> Select[Any]:
    """Return a query of a rollout's terminals in their order, beside their present settings."""
    settings = TerminalSettings
    return (
        select(RolloutTerminal.terminal, Terminal.tenant_id, *columns)
        .select_from(RolloutTerminal)
        .join(Terminal, Terminal.node == RolloutTerminal.terminal)
        .outerjoin(settings, settings.terminal == RolloutTerminal.terminal)
        .where(RolloutTerminal.rollout_id == rollout.id)
        .order_by(RolloutTerminal.place)
    )


def _in(*progress: Progress) -> ColumnElement[bool]:
    return RolloutTerminal.progress.in_([one.value for one in progress])


def _is_of_its_tenant(rollout: Row[Any]) -> ColumnElement[bool]:
    return true() if rollout.tenant_id is None else Terminal.tenant_id == rollout.tenant_id


def member_of(row: Row[Any], rollout: Row[Any]) -> Member:
    """Return a terminal's progress, according to its present settings and their report."""
    progress = Progress(row.progress)
    sent_ms, confirmed_ms, reason = row.sent_ms, row.confirmed_ms, row.reason
    if progress in (Progress.PENDING, *_MAY_MOVE) and rollout.tenant_id not in (
        None,
        row.tenant_id,
    ):
        progress, reason = Progress.REPLACED, "it is another tenant's now"
    elif progress in _MAY_MOVE and row.set_version != row.version:
        if progress is not Progress.CONFIRMED:
            progress, reason = Progress.REPLACED, "something else has been set of it"
    elif progress in _MAY_MOVE and row.reported_version == row.version:
        said = _BY_REPORT[row.reported_state]
        # A late report does not put confirmed settings on trial again.
        if not (progress is Progress.CONFIRMED and said is Progress.TRIAL):
            progress, reason = said, row.reported_reason
        if progress is Progress.CONFIRMED and confirmed_ms is None:
            confirmed_ms = row.reported_ms
    return Member(row.terminal, progress, sent_ms, confirmed_ms, reason)


def terms_of(row: Row[Any]) -> Terms:
    """Return the terms with which a rollout was made."""
    return Terms(tuple(row.sizes), row.hold_ms, row.wait_ms, row.most_failures)


async def put_members(
    connection: AsyncConnection, number: int, members: Iterable[Mapping[str, Any]]
) -> None:
    """Store terminals' progress; all have `terminal` and the same columns to change."""
    rows = [{f"new_{name}": value for name, value in one.items()} for one in members]
    if not rows:
        return
    names = [name for name in rows[0] if name != "new_terminal"]
    changed = (
        update(RolloutTerminal)
        .where(
            RolloutTerminal.rollout_id == number,
            RolloutTerminal.terminal == bindparam("new_terminal"),
        )
        .values({name.removeprefix("new_"): bindparam(name) for name in names})
    )
    await connection.execute(changed, rows)


async def change(
    connection: AsyncConnection, number: int, now_ms: int, *, state: State, **values: Any
) -> Row[Any]:
    """Change a locked rollout; if it ends, its terminals are free for others.

    Its revision rises with a change of its state only: terminals' progress does not stand in the
    way of an operator who pauses it.
    """
    is_other = Rollout.state != state.value
    revision = case((is_other, Rollout.revision + 1), else_=Rollout.revision)
    changed = (
        update(Rollout)
        .where(Rollout.id == number)
        .values(**values, state=state.value, changed_ms=now_ms, revision=revision)
        .returning(*Rollout.__table__.columns)
    )
    row: Row[Any] = (await connection.execute(changed)).one()
    if row.state in _ENDED:
        free = update(RolloutTerminal).where(RolloutTerminal.rollout_id == number)
        await connection.execute(free.values(is_open=False))
    return row


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` rollouts that ended before a time; return how many."""
    old = and_(Rollout.state.in_(_ENDED), Rollout.changed_ms < before_ms)
    some = select(Rollout.id).where(old).limit(limit)
    return (await connection.execute(delete(Rollout).where(Rollout.id.in_(some)))).rowcount


def change_of(row: Row[Any], action: str) -> Change:
    """Return the change that announces a rollout's state."""
    return {
        "kind": "rollout",
        "rollout": row.id,
        "state": row.state,
        "stage": row.stage + 1,
        "action": action,
    }
