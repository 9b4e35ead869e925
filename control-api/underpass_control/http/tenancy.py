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


async def check_tenant(
    database: Database, caller: Caller, tenancy: Tenancy, terminal: int | None
) -> None:
    """Make sure that a caller's tenant may ask what it asks.

    Args:
        database: where vehicles are; it is restricted to the tenant already.
        caller: who asks.
        tenancy: what the endpoint declares.
        terminal: the vehicle that the path or the query names, if any.

    Raises:
        Problem: 403, the endpoint is not for tenants, or no vehicle is named; 404, it is not one of
            the tenant's, whether or not there is one.
    """
    if caller.tenant is None:
        return
    if tenancy is Tenancy.WHOLE:
        detail = f"this concerns more than the tenant {caller.tenant}"
        raise Problem(HTTPStatus.FORBIDDEN, detail)
    if tenancy is not Tenancy.VEHICLE:
        return
    if terminal is None:
        raise Problem(HTTPStatus.FORBIDDEN, "name a vehicle of yours: ?terminal=")
    query = select(Terminal.node).where(Terminal.node == terminal)
    async with database.reading() as connection:
        if (await connection.execute(query)).first() is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}")
