"""`underpass-control beam`, `terminal`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from underpass_control.client import path_of
from underpass_control.commands.console import fail, tell
from underpass_control.commands.tables import Column, Service, asking, millions, named

beams = typer.Typer(help="Beams: pools of capacity.", no_args_is_help=True)
terminals = typer.Typer(help="Terminals, by their ipn node numbers.", no_args_is_help=True)

BEAM = (
    *named("id", "name"),
    Column("forward Mbit/s", "forward_capacity_bps", millions),
    Column("return Mbit/s", "return_capacity_bps", millions),
    Column("one-way delay ms", "one_way_delay_ms"),
    Column("fair share of", "fair_share"),
    Column("NCC of the return link", "opensand"),
    Column("satellite", "satellite"),
)
TERMINAL = (
    *named("node", "beam", "name", "weight"),
    Column("forward min Mbit/s", "forward_minimum_bps", millions),
    Column("max", "forward_maximum_bps", millions),
    Column("return min Mbit/s", "return_minimum_bps", millions),
    Column("max", "return_maximum_bps", millions),
    *named("tenant", "gateway"),
    Column("heard by", "heard_by"),
    Column("id at the NCC", "opensand_id"),
)
_UNITS = {"k": 10**3, "M": 10**6, "G": 10**9}


def _rate(text: str) -> int:
    scale = _UNITS.get(text[-1:], 1)
    try:
        number = float(text[:-1]) * scale if scale > 1 else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no rate: 8000000 or 8M") from None
    if not 0 <= number < float("inf"):
        raise typer.BadParameter(f"{text!r} is no rate")
    return round(number)


Beam = Annotated[str, typer.Argument(help="Its id.")]
Node = Annotated[int, typer.Argument(min=1, help="Its ipn node number.")]
Name = Annotated[str | None, typer.Option(help="For people.")]
Rate = Annotated[int | None, typer.Option(parser=_rate, metavar="BPS", help="bit/s, or as 8M.")]
Clear = Annotated[
    list[str] | None, typer.Option(help="A member to take away, as forward_maximum_bps.")
]


@asking(beams, "list")
def list_beams(service: Service) -> None:
    """Show all beams.

    Example: underpass-control beam list
    """
    service.show_all(path_of("beams"), "beams", BEAM)


@asking(beams, "show")
def show_beam(service: Service, beam: Beam) -> None:
    """Show a beam.

    Example: underpass-control beam show east
    """
    service.show(path_of("beams", beam), BEAM)


@asking(beams, "set")
def set_beam(
    service: Service,
    beam: Beam,
    name: Name = None,
    forward_capacity: Rate = None,
    return_capacity: Rate = None,
    one_way_delay_ms: Annotated[int | None, typer.Option(min=0)] = None,
    fair_share: Annotated[
        str | None,
        typer.Option(help="What terminals in a fade have their fair share of: symbols or bits."),
    ] = None,
    opensand: Annotated[
        str | None, typer.Option(help="The NCC of the return link: opensand://HOST[:PORT].")
    ] = None,
    satellite: Annotated[
        str | None,
        typer.Option(help="The one that its terminals use: shadows of others do not count."),
    ] = None,
    footprint: Annotated[
        Path | None,
        typer.Option(help="Where it is received: a file with a (Multi)Polygon of GeoJSON."),
    ] = None,
    clear: Clear = None,
) -> None:
    """Make a beam, or change what is named of one.

    Example: underpass-control beam set east --name "East" --forward-capacity 8M
    --return-capacity 2M
    """
    changes = _changes(
        clear,
        name=name,
        forward_capacity_bps=forward_capacity,
        return_capacity_bps=return_capacity,
        one_way_delay_ms=one_way_delay_ms,
        fair_share=fair_share,
        opensand=opensand,
        satellite=satellite,
        footprint=None if footprint is None else _area(footprint),
    )
    service.set(path_of("beams", beam), BEAM, changes)


@asking(beams, "delete", json=False)
def delete_beam(service: Service, beam: Beam) -> None:
    """Delete a beam that has no terminals.

    Example: underpass-control beam delete east
    """
    service.ask("DELETE", path_of("beams", beam))


@asking(terminals, "list")
def list_terminals(
    service: Service,
    beam: Annotated[str | None, typer.Option(help="Those of a beam.")] = None,
    tag: Annotated[str | None, typer.Option(help="Those with a tag.")] = None,
) -> None:
    """Show all terminals.

    Example: underpass-control terminal list --beam east
    """
    query = {"beam": beam, "tag": tag}
    service.show_all(path_of("terminals"), "terminals", TERMINAL, query)


@asking(terminals, "show")
def show_terminal(service: Service, node: Node) -> None:
    """Show a terminal.

    Example: underpass-control terminal show 10
    """
    service.show(path_of("terminals", node), TERMINAL)


@asking(terminals, "set")
def set_terminal(
    service: Service,
    node: Node,
    beam: Annotated[str | None, typer.Option(help="The beam that it is in.")] = None,
    name: Name = None,
    weight: Annotated[int | None, typer.Option(min=1, help="Its share's weight.")] = None,
    forward_minimum: Rate = None,
    forward_maximum: Rate = None,
    return_minimum: Rate = None,
    return_maximum: Rate = None,
    gateway: Annotated[
        int | None, typer.Option(min=1, help="The hub that serves it; else it is learnt.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose vehicle it is.")] = None,
    opensand_id: Annotated[
        int | None, typer.Option(min=0, help="The satellite terminal that it is to the NCC.")
    ] = None,
    clear: Clear = None,
) -> None:
    """Make a terminal, or change what is named of one.

    Example: underpass-control terminal set 10 --beam east --name "Bus 10" --forward-minimum 500k
    """
    changes = _changes(
        clear,
        beam=beam,
        name=name,
        weight=weight,
        forward_minimum_bps=forward_minimum,
        forward_maximum_bps=forward_maximum,
        return_minimum_bps=return_minimum,
        return_maximum_bps=return_maximum,
        gateway=gateway,
        tenant=tenant,
        opensand_id=opensand_id,
    )
    service.set(path_of("terminals", node), TERMINAL, changes)


@asking(terminals, "route")
def set_route(
    service: Service,
    node: Node,
    path: Annotated[Path, typer.Argument(help="GPX (its route, else its track) or GeoJSON.")],
) -> None:
    """Set the line that a terminal will drive, in place of what was known of it.

    Example: underpass-control terminal route 10 line-7.gpx
    """
    # Lines need geometry, which takes a third of a second to import.
    from underpass_control.tracks.lines import LineError, read_line

    try:
        line = read_line(path)
    except LineError as error:
        fail(str(error))
    body = {"type": "LineString", "coordinates": [list(place) for place in line]}
    service.ask("PUT", path_of("terminals", node, "route"), body=body)
    tell({"places": len(line)}, f"{len(line)} places", as_json=service.as_json)


@asking(terminals, "forget-route", json=False)
def forget_route(service: Service, node: Node) -> None:
    """Forget the line that a terminal will drive.

    Example: underpass-control terminal forget-route 10
    """
    service.ask("DELETE", path_of("terminals", node, "route"))


@asking(terminals, "delete", json=False)
def delete_terminal(service: Service, node: Node) -> None:
    """Delete a terminal with all that it has reported.

    Example: underpass-control terminal delete 10
    """
    service.ask("DELETE", path_of("terminals", node))


def _area(path: Path) -> Any:
    """Return the geometry in a file, also from a feature or a collection of one feature."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except ValueError as error:
        fail(f"{path}: no JSON: {error}")
    features = document.get("features") if isinstance(document, dict) else None
    if isinstance(features, list) and len(features) == 1:
        (document,) = features
    if isinstance(document, dict) and document.get("type") == "Feature":
        document = document.get("geometry")
    if not isinstance(document, dict) or document.get("type") not in ("Polygon", "MultiPolygon"):
        fail(f"{path}: no Polygon or MultiPolygon of GeoJSON, nor one feature with such an area")
    return document


def _changes(clear: list[str] | None, **given: Any) -> dict[str, Any]:
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name in clear or ():
        if name not in given:
            fail(f"there is no member {name}; there are {', '.join(sorted(given))}")
        changes[name] = None
    return changes
