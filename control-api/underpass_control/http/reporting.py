"""Who may report of which terminals, at the endpoints of single kinds of reports."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from underpass_control.access import Caller
from underpass_control.http.problem import Problem
from underpass_control.roles import Role
from underpass_control.storage import attachments
from underpass_control.storage.database import Database


async def check_may_report(database: Database, caller: Caller, said: Mapping[int, int]) -> None:
    """Make sure that a caller may report of some terminals.

    A terminal reports of itself; the token of a gateway, of the terminals that are at it.

    Args:
        database: where terminals are.
        caller: who reports.
        said: by terminal, when the latest of what is reported of it was so.

    Raises:
        Problem: It may not.
    """
    if not all(map(caller.may_report_for, said)):
        raise Problem(HTTPStatus.FORBIDDEN, "a terminal reports of itself only")
    if caller.role is not Role.GATEWAY or caller.node is None:
        return
    async with database.reading() as connection:
        found = await attachments.of_terminals(connection, said)
    for terminal, attachment in found.items():
        if not attachment.allows(caller.node, said[terminal]):
            detail = f"terminal {terminal} is at gateway {attachment.serving}, not {caller.node}"
            raise Problem(HTTPStatus.FORBIDDEN, detail)
