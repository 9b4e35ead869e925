"""`underpass-control fairness`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from underpass_control.client import path_of
from underpass_control.commands.console import (
    DEFAULT_URL,
    JsonOption,
    TokenOption,
    UrlOption,
    print_json,
)
from underpass_control.commands.ledger import Beam, Link, mbit
from underpass_control.commands.positions import Moment
from underpass_control.commands.tables import Column, Service, millions, named, print_table
from underpass_control.instants import rfc3339

_MS_PER_S = 1000

PART = (
    *named("link", "terminal", "weight"),
    Column("Mbit/s", "throughput_bps", millions),
    Column("sent Mbit", "sent_bits", mbit),
    Column("plan gave", "planned_bits", mbit),
    Column("fair share", "fair_bits", mbit),
    Column("blocked s", "blocked_ms", lambda ms: f"{ms / _MS_PER_S:.0f}"),
)
INDEX = (
    Column("link", "link"),
    Column("Jain's index", "jain"),
    Column("by weight", "jain_by_weight"),
)


def fairness(
    beam: Beam,
    minutes: Annotated[float, typer.Option(min=0.1, help="Until now, or until --until.")] = 10,
    until: Moment = None,
    link: Link = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each terminal sent, beside what the plans gave it, and Jain's index.

    Example: underpass-control fairness east --minutes 5 --link forward
    """
    end = datetime.now(UTC) if until is None else until.replace(tzinfo=UTC)
    query = {
        "since": rfc3339(end - timedelta(minutes=minutes)),
        "until": rfc3339(end),
        "link": link,
    }
    path = path_of("beams", beam, "fairness")
    found: Any = Service(url, token, as_json).ask("GET", path, query=query)
    if as_json:
        print_json(found)
        return
    typer.echo(f"{found['since']} to {found['until']}")
    parts = ({"link": one["link"], **part} for one in found["links"] for part in one["terminals"])
    print_table(PART, parts)
    print_table(INDEX, found["links"])
