"""`underpass-control node`, `link`, `stream`, `blockage`: what nodes are, what links do, where
clients go, what cuts links."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from underpass_control.client import path_of
from underpass_control.commands.console import print_json, tell
from underpass_control.commands.positions import instant
from underpass_control.commands.tables import (
    Column,
    Service,
    asking,
    millions,
    named,
    percent,
    print_table,
    seconds,
)

nodes = typer.Typer(help="What nodes say of themselves.", no_args_is_help=True)
links = typer.Typer(help="What the links of terminals do.", no_args_is_help=True)
streams = typer.Typer(
    help="Streams: proxied TCP connections and HTTP exchanges of terminals.", no_args_is_help=True
)
blockages = typer.Typer(help="Blockages expected and observed.", no_args_is_help=True)

NODE = (
    *named("node", "role", "version"),
    Column("certificate ends", "certificate_end"),
    Column("said", "reported"),
)
LINK = (
    *named("terminal", "link", "state"),
    Column("Mbit/s", "rate_bps", millions),
    Column("plan", "plan"),
    Column("sent MB", "sent_bytes", millions),
    Column("waiting MB", "backlogged_bytes", millions),
    *named("streams", "efficiency"),
    Column("told", "efficiency_told"),
    Column("measured Mbit/s", "capacity_bps", millions),
    Column("by", "capacity_reason"),
    Column("gateway", "gateway"),
    Column("clock ahead ms", "clock_offset_ms"),
    Column("said", "time"),
)
CARRIED = (
    *named("time", "link"),
    Column("measured Mbit/s", "capacity_bps", millions),
    Column("by", "capacity_reason"),
    Column("told efficiency", "efficiency"),
    Column("path", "path"),
)
STREAM = (
    Column("to", "target"),
    *named("class", "paths", "state"),
    Column("forward MB", "forward_bytes", millions),
    Column("return MB", "return_bytes", millions),
    Column("waiting MB", "waiting_bytes", millions),
    Column("unread MB", "unread_bytes", millions),
    Column("open for s", "age_ms", seconds),
    *named("id", "epoch"),
)
BLOCKAGE = (
    *named("terminal", "state", "entry", "exit", "source"),
    Column("sure", "confidence", percent),
    *named("obstruction", "link"),
    Column("entry late ms", "entry_error_ms"),
    Column("exit late ms", "exit_error_ms"),
)

Beam = Annotated[str | None, typer.Option(help="Of a beam's terminals.")]
Terminal = Annotated[int | None, typer.Option(min=1, help="Of one terminal.")]
Moment = Annotated[datetime | None, typer.Option(help="By entry, UTC.")]


@asking(nodes, "list")
def list_nodes(service: Service) -> None:
    """Show which software nodes run, and when their certificates end, as they said last.

    Example: underpass-control node list
    """
    service.show_all(path_of("nodes"), "nodes", NODE)


@asking(links, "list")
def list_links(service: Service, beam: Beam = None, terminal: Terminal = None) -> None:
    """Show what links do, as the nodes that send on them said last.

    Example: underpass-control link list --beam east
    """
    query = {"beam": beam, "terminal": terminal}
    service.show_all(path_of("links"), "links", LINK, query)


@asking(links, "show")
def show_links(
    service: Service,
    terminal: Annotated[int, typer.Argument(min=1, help="The terminal's ipn node number.")],
) -> None:
    """Show both directions of a terminal's link.

    Example: underpass-control link show 10
    """
    query = {"terminal": terminal}
    service.show_all(path_of("links"), "links", LINK, query)


@asking(links, "carried")
def list_carried(
    service: Service,
    terminal: Annotated[int, typer.Argument(min=1, help="The terminal's ipn node number.")],
    link: Annotated[str | None, typer.Option(help="forward or return; both without it.")] = None,
    since: Annotated[datetime | None, typer.Option(help="UTC.")] = None,
    until: Annotated[datetime | None, typer.Option(help="UTC.")] = None,
    most: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 60,
) -> None:
    """Show what a terminal's links were measured, or told, to carry, the newest first.

    Example: underpass-control link carried 10 --link return
    """
    query = {
        "link": link,
        "since": instant(since),
        "until": instant(until),
        "order": "newest",
    }
    service.show_all(path_of("terminals", terminal, "carried"), "carried", CARRIED, query, most)


@asking(streams, "list")
def list_streams(
    service: Service,
    terminal: Annotated[int, typer.Argument(min=1, help="The terminal's ipn node number.")],
    most: Annotated[int, typer.Option(min=1, max=200, help="The largest so many.")] = 100,
) -> None:
    """Ask a terminal's gateway which streams the terminal has open, the largest first.

    Example: underpass-control stream list 10 --most 20
    """
    found = service.ask("GET", path_of("terminals", terminal, "streams"), query={"limit": most})
    if service.as_json:
        print_json(found)
        return
    shown = found["streams"]
    if shown:
        print_table(STREAM, shown)
    typer.echo(
        f"{len(shown)} of {found['open']} open, as gateway {found['gateway']} says"
        f" at {found['time']}"
    )


@asking(blockages, "list")
def list_blockages(
    service: Service,
    beam: Beam = None,
    terminal: Terminal = None,
    state: Annotated[
        str | None,
        typer.Option(help="predicted, passed, withdrawn, observed; several with commas."),
    ] = None,
    since: Moment = None,
    until: Moment = None,
    most: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
) -> None:
    """Show blockages that are expected, were, and were observed, the latest entry first.

    Example: underpass-control blockage list --terminal 10 --state predicted,observed
    """
    query = {
        "beam": beam,
        "terminal": terminal,
        "state": state,
        "since": instant(since),
        "until": instant(until),
        "order": "newest",
    }
    service.show_all(path_of("blockages"), "blockages", BLOCKAGE, query, most)


@asking(blockages, "announce")
def announce_blockage(
    service: Service,
    terminal: Annotated[int, typer.Argument(min=1, help="The terminal's ipn node number.")],
    entry: Annotated[datetime, typer.Argument(help="When it comes, UTC.")],
    duration_s: Annotated[float, typer.Argument(min=0.001, max=3600, help="How long it lasts, s.")],
    confidence: Annotated[
        float, typer.Option(min=0, max=1, help="How sure; 0 takes back what was said.")
    ] = 1.0,
    obstruction: Annotated[str | None, typer.Option(help="The id of what causes it.")] = None,
) -> None:
    """Announce a blockage on a terminal's behalf, as it does itself when it sees one coming.

    Example: underpass-control blockage announce 10 2030-05-01T12:00:00 35 --confidence 0.9
    """
    body = {
        "entry": instant(entry),
        "duration_ms": round(1000 * duration_s),
        "confidence": confidence,
        **({"obstruction": obstruction} if obstruction else {}),
    }
    path = path_of("terminals", terminal, "announcements")
    answer = service.ask("POST", path, body=body)
    tell(answer, "announced", as_json=service.as_json)
