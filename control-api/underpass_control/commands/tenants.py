"""`underpass-control tenant`."""

from __future__ import annotations

from typing import Annotated

import typer

from underpass_control.client import path_of
from underpass_control.commands.tables import Column, Service, asking

tenants = typer.Typer(help="Tenants: whom vehicles belong to.", no_args_is_help=True)

TENANT = (Column("id", "id"), Column("name", "name"))

Tenant = Annotated[str, typer.Argument(help="Its id.")]


@asking(tenants, "list")
def list_tenants(service: Service) -> None:
    """Show all tenants.

    Example: underpass-control tenant list
    """
    service.show_all(path_of("tenants"), "tenants", TENANT, {})


@asking(tenants, "set", json=False)
def set_tenant(
    service: Service, tenant: Tenant, name: Annotated[str, typer.Option(help="For people.")]
) -> None:
    """Make a tenant, or give it another name.

    Example: underpass-control tenant set north --name "Northern Coaches"
    """
    service.ask("PUT", path_of("tenants", tenant), body={"name": name})


@asking(tenants, "delete", json=False)
def delete_tenant(service: Service, tenant: Tenant) -> None:
    """Delete a tenant to which nothing belongs.

    Example: underpass-control tenant delete north
    """
    service.ask("DELETE", path_of("tenants", tenant))
