"""`underpass-control ledger`: what terminals owe each other, and whether the books are right."""

from __future__ import annotations

from datetime import UTC, datetime
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
    fail,
    print_json,
    with_client,
)
from underpass_control.commands.database import DEFAULT_DATABASE, DatabaseOption, with_database
from underpass_control.instants import rfc3339
from underpass_control.settlement.check import Audit, audit
from underpass_control.storage.database import Database

app = typer.Typer(help="What terminals owe each other.", no_args_is_help=True)

BeamArgument = Annotated[str, typer.Argument(help="The beam's id.")]
LinkOption = Annotated[str | None, typer.Option(help="`forward` or `return`; without it, both.")]
TerminalOption = Annotated[int | None, typer.Option(min=1, help="Its ipn node number.")]
SinceOption = Annotated[datetime | None, typer.Option(help="From this time on (UTC).")]
UntilOption = Annotated[datetime | None, typer.Option(help="Before this time (UTC).")]

_BITS_PER_MBIT = 10**6


@app.command()
def show(
    beam: BeamArgument,
    link: LinkOption = None,
    terminal: TerminalOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    most: Annotated[int, typer.Option(min=1, help="Entries at most, the newest.")] = 50,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was lent, repaid and forgiven, the newest first.

    Example: underpass-control ledger show east --terminal 10
    """
    query = {
        "link": link,
        "terminal": terminal,
        "since": _utc(since),
        "until": _utc(until),
        "order": "newest",
    }

    async def run(client: Client) -> list[Any]:
        found: list[Any] = []
        async for entry in client.pages(path_of("beams", beam, "ledger"), "entries", query):
            found.append(entry)
            if len(found) == most:
                break
        return found

    entries = with_client(url, token, run)
    if as_json:
        print_json(entries)
        return
    table = Table("id", "link", "from", "to", "why", "moved Mbit", "terminals")
    for entry in entries:
        table.add_row(
            str(entry["id"]),
            entry["link"],
            entry["start"],
            entry["end"],
            entry.get("rule", entry["kind"])
            + (f": {entry['reason']}" if "reason" in entry else ""),
            _mbit(sum(max(0, posting["bits"]) for posting in entry["postings"])),
            _sides(entry["postings"]),
        )
    Console().print(table)


@app.command()
def balance(
    beam: BeamArgument,
    link: LinkOption = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who owes how much, and is owed, as far as it is settled.

    Example: underpass-control ledger balance east
    """

    async def run(client: Client) -> Any:
        path = path_of("beams", beam, "balances")
        return await client.ask("GET", path, query={"link": link})

    found = with_client(url, token, run)
    if as_json:
        print_json(found)
        return
    table = Table("link", "terminal", "owes Mbit", "is owed Mbit", "since")
    for one in found["links"]:
        for account in one["balances"]:
            bits = account["bits"]
            owes, owed = (_mbit(-bits), "") if bits < 0 else ("", _mbit(bits))
            table.add_row(one["link"], str(account["terminal"]), owes, owed, account["since"])
    Console().print(table)
    for one in found["links"]:
        until = one.get("settled_until")
        typer.echo(f"{one['link']}: " + (f"settled until {until}" if until else "never settled"))


@app.command()
def forgive(
    beam: BeamArgument,
    terminal: Annotated[int, typer.Argument(min=1, help="Who owes it, or is owed it.")],
    link: Annotated[str, typer.Option(help="`forward` or `return`.")],
    reason: Annotated[str, typer.Option(help="Why; it is kept with the entry.")],
    bits: Annotated[int | None, typer.Option(min=1, help="Without it, all.")] = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forgive what a terminal owes or is owed; the others bear it in proportion.

    Example: underpass-control ledger forgive east 10 --link return --reason "out of service"
    """
    body = {"terminal": terminal, "link": link, "reason": reason}
    if bits is not None:
        body["bits"] = bits

    async def run(client: Client) -> Any:
        return await client.ask("POST", path_of("beams", beam, "ledger", "forgive"), body=body)

    entry = with_client(url, token, run)
    if as_json:
        print_json(entry)
    else:
        typer.echo(f"entry {entry['id']}: {_sides(entry['postings'])}")


@app.command()
def check(database: DatabaseOption = DEFAULT_DATABASE, as_json: JsonOption = False) -> None:
    """Audit the ledger: every entry balances, and the balances are what the entries come to.

    Ends with status 1 if anything is wrong.
    """

    async def run(opened: Database) -> list[Audit]:
        async with opened.snapshot() as connection:
            return [one async for one in audit(connection)]

    found = with_database(database, run)
    if as_json:
        print_json([_audited(one) for one in found])
    else:
        _print_audits(found)
    faults = sum(len(one.faults) for one in found)
    if faults:
        fail(f"{faults} faults in the ledger")


def _print_audits(found: list[Audit]) -> None:
    table = Table("beam", "link", "entries", "postings", "open", "is owed Mbit", "faults")
    for one in found:
        owed = sum(bits for bits in one.balances.values() if bits > 0)
        counts = (one.entries, one.postings, len(one.balances))
        faults = "\n".join(one.faults) or "none"
        table.add_row(one.beam, one.link.value, *map(str, counts), _mbit(owed), faults)
    Console().print(table)


def _audited(one: Audit) -> dict[str, object]:
    return {
        "beam": one.beam,
        "link": one.link.value,
        "entries": one.entries,
        "postings": one.postings,
        "balances": [
            {"terminal": terminal, "bits": bits} for terminal, bits in sorted(one.balances.items())
        ],
        "faults": one.faults,
    }


def _sides(postings: list[dict[str, int]]) -> str:
    """Return the sides of an entry, in short: those of a large beam are counted."""
    sides = []
    for sign, verb in ((1, "gave"), (-1, "took")):
        side = [one["terminal"] for one in postings if one["bits"] * sign > 0]
        named = ", ".join(map(str, side)) if len(side) <= 4 else f"{len(side)} terminals"
        sides.append(f"{named} {verb}")
    return "; ".join(sides)


def _mbit(bits: int) -> str:
    return f"{bits / _BITS_PER_MBIT:.6f}"


def _utc(moment: datetime | None) -> str | None:
    # What is typed in has no zone.
    return None if moment is None else rfc3339(moment.replace(tzinfo=UTC))
