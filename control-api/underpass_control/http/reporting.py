"""Which callers may report of which terminals, and how much, at endpoints of single kinds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from http import HTTPStatus

from sqlalchemy import select

from underpass_control.access.caller import Caller
from underpass_control.http import limits
from underpass_control.http.limits import Buckets
from underpass_control.http.problem import Problem
from underpass_control.roles import Role
from underpass_control.storage import attachments
from underpass_control.storage.database import Database
from underpass_control.storage.membership import portions_of
from underpass_control.storage.models import Terminal


def admit(buckets: Buckets, caller: Caller, count: int = 1) -> None:
    """Count a terminal's own reports, so that a stolen one fills neither queue nor disk.

    Other callers report for many terminals and are not counted.

    Raises:
        Problem: 429, that is more than any vehicle has to report.
    """
    if caller.role is Role.TERMINAL:
        limits.admit(buckets, caller.node, count)


async def check_may_report(database: Database, caller: Caller, said: Mapping[int, int]) -> None:
    """Check that a caller may report of some terminals.

    A terminal may report of itself; a gateway's token, of the terminals that are at it.

    Args:
        database: where terminals are.
        caller: the one that reports.
        said: by terminal, the time of its latest report.

    Raises:
        Problem: It may not.
    """
    if not all(map(caller.may_report_for, said)):
        raise Problem(HTTPStatus.FORBIDDEN, "a terminal reports of itself only")
    if caller.tenant is not None:
        await _check_own(database, said)
    if caller.role is not Role.GATEWAY or caller.node is None:
        return
    async with database.reading() as connection:
        found = await attachments.of_terminals(connection, said)
    for terminal, attachment in found.items():
        if not attachment.allows(caller.node, said[terminal]):
            detail = f"terminal {terminal} is at gateway {attachment.serving}, not {caller.node}"
            raise Problem(HTTPStatus.FORBIDDEN, detail)


async def _check_own(database: Database, terminals: Collection[int]) -> None:
    """Check that terminals belong to the tenant to which the database is restricted."""
    missing = set(terminals)
    async with database.reading() as connection:
        for some in portions_of(terminals):
            query = select(Terminal.node).where(Terminal.node.in_(some))
            missing -= set(await connection.scalars(query))
    if missing:
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {min(missing)}")
