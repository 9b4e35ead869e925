"""What an endpoint shows to callers of a tenant, declared beside its path."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

from sqlalchemy import select

from underpass_control.access.caller import Caller
from underpass_control.http.problem import Problem
from underpass_control.storage.database import Database
from underpass_control.storage.models import Terminal


class Tenancy(StrEnum):
    """What an endpoint gives a tenant's caller."""

    # Nothing: only callers of the whole system may use it.
    WHOLE = "whole"
    # The vehicle that the path or the query names, if it belongs to the tenant.
    VEHICLE = "vehicle"
    # The tenant's rows; `storage.scope` leaves out all others.
    ROWS = "rows"
    # The same for all callers.
    SHARED = "shared"


def check_tenancy(caller: Caller, tenancy: Tenancy) -> None:
    """Check that an endpoint is open to a caller's tenant at all.

    Raises:
        Problem: 403, it is for callers of the whole system.
    """
    if caller.tenant is not None and tenancy is Tenancy.WHOLE:
        detail = f"this concerns more than the tenant {caller.tenant}"
        raise Problem(HTTPStatus.FORBIDDEN, detail)


async def check_vehicle(
    database: Database, caller: Caller, tenancy: Tenancy, terminal: int | None
) -> None:
    """Check that the requested vehicle is the caller's: the terminal itself, or the tenant's.

    Args:
        database: where vehicles are; it is already restricted to the tenant.
        caller: the one that asks.
        tenancy: as the endpoint declares it.
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
