"""`underpass-control fairness`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from underpass_control.client import Client, path_of
from underpass_control.commands.console import (
    DEFAULT_URL,
    JsonOption,
    TokenOption,
    UrlOption,
    print_json,
    with_client,
)
from underpass_control.instants import rfc3339

_BITS_PER_MBIT = 10**6
_MS_PER_S = 1000


def fairness(
    beam: Annotated[str, typer.Argument(help="The beam's id.")],
    minutes: Annotated[float, typer.Option(min=0.1, help="Until now, or until --until.")] = 10,
    until: Annotated[datetime | None, typer.Option(help="The range's end (UTC).")] = None,
    link: Annotated[
        str | None, typer.Option(help="`forward` or `return`; without it, both.")
    ] = None,
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

    async def run(client: Client) -> Any:
        return await client.ask("GET", path_of("beams", beam, "fairness"), query=query)

    found = with_client(url, token, run)
    if as_json:
        print_json(found)
        return
    for one in found["links"]:
        table = Table(
            *("terminal", "weight", "Mbit/s", "sent Mbit", "plan gave", "fair share", "blocked s"),
            title=f"{one['link']} link, {found['since']} to {found['until']}",
        )
        for part in one["terminals"]:
            amounts = ("throughput_bps", "sent_bits", "planned_bits", "fair_bits")
            table.add_row(
                str(part["terminal"]),
                str(part["weight"]),
                *(f"{part[name] / _BITS_PER_MBIT:.3f}" for name in amounts),
                f"{part['blocked_ms'] / _MS_PER_S:.0f}",
            )
        Console().print(table)
        if "jain" in one:
            typer.echo(f"Jain's index {one['jain']:.6f}, by weight {one['jain_by_weight']:.6f}")
