"""`underpass-control ledger`: what terminals owe each other, and whether the books are right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from underpass_control.client import path_of
from underpass_control.commands.console import JsonOption, bars, fail, print_json
from underpass_control.commands.database import DEFAULT_DATABASE, DatabaseOption, with_database
from underpass_control.commands.positions import Moment, instant
from underpass_control.commands.tables import Column, Service, asking, named, print_table

if TYPE_CHECKING:
    from underpass_control.settlement.check import Audit
    from underpass_control.storage.database import Database

ledger = typer.Typer(help="What terminals owe each other.", no_args_is_help=True)

Beam = Annotated[str, typer.Argument(help="Its id.")]
Link = Annotated[str | None, typer.Option(help="`forward` or `return`; without it, both.")]

_BITS_PER_MBIT = 10**6
# The most terminals named in a cell; the others are counted.
_MOST_NAMED = 4


def mbit(bits: Any) -> str:
    """Show bits as Mbit, to the bit."""
    return "" if bits is None else f"{bits / _BITS_PER_MBIT:,.6f}"


def _named(postings: Any) -> str:
    first = [f"{one['terminal']} {one['bits'] / _BITS_PER_MBIT:+,.6f}" for one in postings]
    more = [f"and {len(first) - _MOST_NAMED} more"] if len(first) > _MOST_NAMED else []
    return ", ".join(first[:_MOST_NAMED] + more)


ENTRY = (
    *named("id", "link"),
    Column("from", "start"),
    Column("to", "end"),
    *named("kind", "rule", "reason"),
    Column("by", "made_by"),
    Column("is owed more, Mbit", "postings", _named),
)
BALANCE = (
    Column("link", "link"),
    Column("settled until", "settled_until"),
    Column("terminal", "terminal"),
    Column("owes Mbit", "owes", mbit),
    Column("is owed Mbit", "is_owed", mbit),
    Column("since", "since"),
)
AUDIT = (
    *named("beam", "link", "entries", "postings"),
    Column("terminals with a balance", "balances", lambda balances: str(len(balances))),
    Column("faults", "faults", lambda faults: "; ".join(faults) or "none"),
)


@asking(ledger, "show")
def show_ledger(
    service: Service,
    beam: Beam,
    link: Link = None,
    terminal: Annotated[int | None, typer.Option(min=1, help="Its ipn node number.")] = None,
    since: Moment = None,
    until: Moment = None,
    most: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
) -> None:
    """Show what was lent, repaid and forgiven, the newest first.

    Example: underpass-control ledger show east --terminal 10
    """
    query = {
        "link": link,
        "terminal": terminal,
        "since": instant(since),
        "until": instant(until),
        "order": "newest",
    }
    path = path_of("beams", beam, "ledger")
    service.show_all(path, "entries", ENTRY, query, most)


@asking(ledger, "balance")
def show_balance(service: Service, beam: Beam, link: Link = None) -> None:
    """Show who owes how much, and who is owed, as far as it is settled.

    Example: underpass-control ledger balance east
    """
    path = path_of("beams", beam, "balances")
    found = service.ask("GET", path, query={"link": link})
    if service.as_json:
        print_json(found)
    else:
        print_table(BALANCE, _accounts(found["links"]))


def _accounts(links: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for one in links:
        of_link = {"link": one["link"], "settled_until": one.get("settled_until")}
        for account in one["balances"] or [{}]:
            bits = account.get("bits")
            side = {} if bits is None else {"owes" if bits < 0 else "is_owed": abs(bits)}
            yield of_link | account | side


@asking(ledger, "forgive")
def forgive(
    service: Service,
    beam: Beam,
    terminal: Annotated[int, typer.Argument(min=1, help="Who owes it, or is owed it.")],
    link: Annotated[str, typer.Option(help="`forward` or `return`.")],
    reason: Annotated[str, typer.Option(help="Why; it is kept with the entry.")],
    bits: Annotated[int | None, typer.Option(min=1, help="Without it, all.")] = None,
) -> None:
    """Forgive what a terminal owes or is owed; the other side bears it in proportion.

    Example: underpass-control ledger forgive east 10 --link return --reason "out of service"
    """
    body = {"terminal": terminal, "link": link, "reason": reason}
    if bits is not None:
        body["bits"] = bits
    service.print(
        ENTRY, service.ask("POST", path_of("beams", beam, "ledger", "forgive"), body=body)
    )


@ledger.command("check")
def check_ledger(database: DatabaseOption = DEFAULT_DATABASE, as_json: JsonOption = False) -> None:
    """Audit the ledger: every entry balances, and balances are what the entries come to.

    It reads the database itself, all entries from the first, and ends with status 1 if anything
    is wrong. A service may go on meanwhile.

    Example: underpass-control ledger check --database sqlite:////var/lib/underpass/control.db
    """

    from underpass_control.settlement.check import audit
    from underpass_control.storage import ledger as stored

    async def run(opened: Database) -> list[Audit]:
        with bars() as bar:
            async with opened.reading() as connection:
                task = bar.add_task("entries", total=await stored.count(connection))
                through = audit(connection, lambda more: bar.advance(task, more))
                return [one async for one in through]

    found = with_database(database, run)
    shown = [_audited(one) for one in found]
    if as_json:
        print_json(shown)
    else:
        print_table(AUDIT, shown)
    if any(one.faults for one in found):
        fail("the ledger is not right")


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
