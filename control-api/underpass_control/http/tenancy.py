"""What an endpoint shows to a caller that belongs to a tenant: declared beside its path."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

from sqlalchemy import select

from underpass_control.access.caller import Caller
from underpass_control.http.problem import Problem
from underpass_control.storage.database import Database
from underpass_control.storage.models import Terminal


class Tenancy(StrEnum):
    """What a tenant's caller may ask an endpoint for."""

    # Nothing: it is for callers of the whole system.
    WHOLE = "whole"
    # The vehicle that the path or the query names, if it is the tenant's.
    VEHICLE = "vehicle"
    # Rows of the tenant; `storage.scope` leaves out all others.
    ROWS = "rows"
    # What is the same for everybody.
    SHARED = "shared"


def check_tenancy(caller: Caller, tenancy: Tenancy) -> None:
    """Make sure that an endpoint is for a caller's tenant at all.

    Raises:
        Problem: 403, it is for callers of the whole system.
    """
    if caller.tenant is not None and tenancy is Tenancy.WHOLE:
        detail = f"this concerns more than the tenant {caller.tenant}"
        raise Problem(HTTPStatus.FORBIDDEN, detail)


async def check_vehicle(
    database: Database, caller: Caller, tenancy: Tenancy, terminal: int | None
) -> None:
    """Make sure that the vehicle that is asked for is the caller's: a terminal's, a tenant's.

    Args:
        database: where vehicles are; it is restricted to the tenant already.
        caller: who asks.
        tenancy: what the endpoint declares.
        terminal: the vehicle that the path or the query names, if any.

    Raises:
        Problem: 403, no vehicle is named, or a terminal asks for another; 404, it is not one of
            the tenant's, whether or not there is one.
    """
    if terminal is not None and not caller.may_read(terminal):
        raise Problem(HTTPStatus.FORBIDDEN, "a terminal sees and reports its own data only")
    if caller.tenant is None or tenancy is not Tenancy.VEHICLE:
        return
    if terminal is None:
        raise Problem(HTTPStatus.FORBIDDEN, "name a vehicle of yours: ?terminal=")
    query = select(Terminal.node).where(Terminal.node == terminal)
    async with database.reading() as connection:
        if (await connection.execute(query)).first() is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}")
