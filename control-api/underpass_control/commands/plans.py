"""`underpass-control plan`."""

from __future__ import annotations

import json
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from underpass_control.client import path_of
from underpass_control.commands.console import (
    fail,
    print_json,
)
from underpass_control.commands.positions import instant
from underpass_control.commands.tables import (
    Column,
    Service,
    asking,
    millions,
    named,
    print_entry,
    print_table,
)

plans = typer.Typer(help="Who gets what of a beam, and when.", no_args_is_help=True)


class LinkName(StrEnum):
    """A direction."""

    FORWARD = "forward"
    RETURN = "return"


Beam = Annotated[str, typer.Argument(help="The beam's id.")]
Link = Annotated[LinkName, typer.Argument(help="forward (hub to terminal) or return.")]
Terminal = Annotated[int | None, typer.Option(min=1, help="Of one terminal, with all amounts.")]

HEAD = (
    *named("plan", "issued"),
    Column("from", "start"),
    Column("until", "end"),
    Column("why", "reason"),
)
SEGMENT = (
    Column("terminals", "terminals"),
    Column("guaranteed Mbit/s", "guaranteed_bps", millions),
    Column("efficiency", "efficiency"),
    Column("from", "start"),
    Column("until", "end"),
    Column("Mbit/s", "rate_bps", millions),
    Column("state", "state"),
    Column("Mbit", "bits", millions),
    Column("fair", "fair_bits", millions),
    Column("borrowed", "borrowed_bits", millions),
    Column("lent", "lent_bits", millions),
    Column("got back", "repaid_bits", millions),
    Column("gave back", "repaying_bits", millions),
)
TOTAL = (
    Column("terminal", "terminal"),
    Column("Mbit", "bits", millions),
    Column("fair", "fair_bits", millions),
)


@asking(plans, "list")
def list_plans(
    service: Service,
    beam: Beam,
    link: Link,
    most: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
) -> None:
    """Show a link's plans, the newest first.

    Example: underpass-control plan list east forward
    """
    path, query = path_of("beams", beam, "plans"), {"link": link.value}
    service.show_all(path, "plans", HEAD, query, most)


@asking(plans, "show")
def show_plan(
    service: Service,
    beam: Beam,
    link: Link,
    version: Annotated[int | None, typer.Option(min=1, help="Of this version.")] = None,
    at: Annotated[datetime | None, typer.Option(help="That which holds then (UTC).")] = None,
    terminal: Terminal = None,
) -> None:
    """Show the newest plan of a link, or that of a version or a time.

    Example: underpass-control plan show east forward --terminal 10
    """
    if version is not None and at is not None:
        fail("name a version or a time, not both")
    parts = ("beams", beam, "plans", link.value, *(() if version is None else (version,)))
    query = {"terminal": terminal, "at": instant(at)}
    _print(service.ask("GET", path_of(*parts), query=query), as_json=service.as_json)


@asking(plans, "acknowledged")
def show_acknowledged(
    service: Service,
    beam: Beam,
    link: Link,
    version: Annotated[int, typer.Argument(min=1, help="Of this version.")],
) -> None:
    """Show which nodes have taken a plan over, and when.

    Example: underpass-control plan acknowledged east forward 1795230000
    """
    path = path_of("beams", beam, "plans", link.value, version, "acknowledgements")
    columns = (Column("node", "node"), Column("since", "applied"))
    service.show_all(path, "acknowledgements", columns)


@asking(plans, "holder")
def show_holder(service: Service, beam: Beam) -> None:
    """Show which process plans a beam.

    Example: underpass-control plan holder east
    """
    names = ("beam", "holder", "fence", "left_ms")
    columns = tuple(Column(name, name) for name in names)
    service.show(path_of("beams", beam, "lease"), columns)


@asking(plans, "what-if")
def ask_what_if(
    service: Service,
    beam: Beam,
    path: Annotated[Path, typer.Argument(help="What is different: JSON, as the API takes it.")],
) -> None:
    """Show the plan that would be made if something were different, without effect.

    Example: underpass-control plan what-if east question.json
    """
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    found = service.ask("POST", path_of("beams", beam, "what-if"), body=body)
    _print(found, as_json=service.as_json)
    if not service.as_json:
        print_table(TOTAL, found["totals"])


def _print(plan: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    print_entry(HEAD, plan)
    rows = []
    for line in plan["lines"]:
        terms = {name: line[name] for name in ("terminals", "guaranteed_bps", "efficiency")}
        for number, segment in enumerate(line["segments"]):
            rows.append({**(terms if number == 0 else {}), **segment})
    print_table(SEGMENT, rows)
