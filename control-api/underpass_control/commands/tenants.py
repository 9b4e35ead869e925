"""`underpass-control tenant`."""

from __future__ import annotations

from typing import Annotated

import typer

from underpass_control.client import path_of
from underpass_control.commands.console import DEFAULT_URL, JsonOption, TokenOption, UrlOption
from underpass_control.commands.tables import Column, Service

tenants = typer.Typer(help="Tenants: whom vehicles belong to.", no_args_is_help=True)

TENANT = (Column("id", "id"), Column("name", "name"))

Tenant = Annotated[str, typer.Argument(help="Its id.")]


@tenants.command("list")
def list_tenants(
    url: UrlOption = DEFAULT_URL, token: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Show all tenants.

    Example: underpass-control tenant list
    """
    Service(url, token, as_json).show_all(path_of("tenants"), "tenants", TENANT, {})


@tenants.command("set")
def set_tenant(
    tenant: Tenant,
    name: Annotated[str, typer.Option(help="For people.")],
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
) -> None:
    """Make a tenant, or give it another name.

    Example: underpass-control tenant set north --name "Northern Coaches"
    """
    service = Service(url, token, as_json=False)
    service.ask("PUT", path_of("tenants", tenant), body={"name": name})


@tenants.command("delete")
def delete_tenant(tenant: Tenant, url: UrlOption = DEFAULT_URL, token: TokenOption = None) -> None:
    """Delete a tenant to which nothing belongs.

    Example: underpass-control tenant delete north
    """
    Service(url, token, as_json=False).ask("DELETE", path_of("tenants", tenant))
