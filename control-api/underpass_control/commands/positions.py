"""`underpass-control position`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from underpass_control.client import path_of
from underpass_control.commands.tables import Column, Service, asking, named
from underpass_control.instants import rfc3339

positions = typer.Typer(help="Where terminals are, and were.", no_args_is_help=True)

POSITION = (
    *named("time", "longitude", "latitude"),
    Column("m/s", "speed_mps"),
    Column("heading", "heading_deg"),
    Column("altitude m", "altitude_m"),
    Column("error m", "accuracy_m"),
    Column("received", "received"),
    Column("clocks differ", "clocks_differ"),
)

Node = Annotated[int, typer.Argument(min=1, help="The terminal's ipn node number.")]
Moment = Annotated[datetime | None, typer.Option(help="UTC.")]


@asking(positions, "show")
def show_position(service: Service, node: Node) -> None:
    """Show a terminal's newest position.

    Example: underpass-control position show 10
    """
    path = path_of("terminals", node, "positions", "newest")
    service.show(path, POSITION)


@asking(positions, "list")
def list_positions(
    service: Service,
    node: Node,
    since: Moment = None,
    until: Moment = None,
    most: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
) -> None:
    """Show a terminal's track, the newest first.

    Example: underpass-control position list 10 --since 2030-05-01T12:00:00 --most 100
    """
    query = {"since": instant(since), "until": instant(until), "order": "newest"}
    path = path_of("terminals", node, "positions")
    service.show_all(path, "positions", POSITION, query, most)


def instant(moment: datetime | None) -> str | None:
    """Return a moment as the API takes it; one without a zone is UTC."""
    if moment is None:
        return None
    return rfc3339(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
