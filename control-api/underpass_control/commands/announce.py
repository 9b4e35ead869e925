"""`underpass-control announce`."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer

from underpass_control import logs
from underpass_control.client import Client, RefusedError
from underpass_control.commands.console import TokenOption, fail, until_told
from underpass_control.commands.maps import read_map

_GPSD_PORT = 2947


def announce(
    map_file: Annotated[
        Path | None, typer.Option("--map", help="An OpenStreetMap extract, or GeoJSON.")
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(help="Or: the control service whose map is used, as http://HOST:PORT."),
    ] = None,
    token: TokenOption = None,
    terminal: Annotated[
        int | None,
        typer.Option(
            min=1, help="This terminal's node number: with --control, its route counts, too."
        ),
    ] = None,
    satellite: Annotated[
        str | None,
        typer.Option(help="The one that the terminal uses: the map's shadows of others are none."),
    ] = None,
    node: Annotated[
        str,
        typer.Option(
            envvar="UNDERPASS_NODE", help="The node's local API: unix:PATH or http://HOST:PORT."
        ),
    ] = "unix:/run/underpass/api.sock",
    node_token: Annotated[
        str | None, typer.Option(envvar="UNDERPASS_NODE_TOKEN", help="Its token, over TCP.")
    ] = None,
    gpsd: Annotated[
        str | None,
        typer.Option(help="HOST[:PORT] of a gpsd; without it, the node tells the positions."),
    ] = None,
    log_format: Annotated[
        logs.Format, typer.Option(envvar="UNDERPASS_LOG_FORMAT", help="For people or programs.")
    ] = logs.Format.CONSOLE,
) -> None:
    """On board: predict this terminal's blockages, and have its node report them.

    Example: underpass-control announce --map tunnels.geojson --gpsd 127.0.0.1
    """
    # Geometry takes half a second to import, which help need not wait for.
    from dama.prediction import ObstructionMap
    from underpass_control.announcing import positions
    from underpass_control.announcing.announcer import Announcer
    from underpass_control.announcing.map_of_control import MapOfControl
    from underpass_control.announcing.route_of_control import RouteOfControl
    from underpass_control.announcing.station import announce as announce_for_ever

    if (map_file is None) == (control is None):
        fail("name one map: --map FILE or --control URL")
    if terminal is not None and control is None:
        fail("the route of a terminal is read with --control URL")
    drawn = read_map(map_file, corrected=True) if map_file else []
    announcer = Announcer(ObstructionMap(one for one in drawn if one.counts_for(satellite)))
    address = None if gpsd is None else _address(gpsd)
    logs.configure(log_format)

    async def run() -> None:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Client(node, node_token))
            renewed, route = None, None
            if control is not None:
                service = await stack.enter_async_context(Client(control, token))
                renewed = MapOfControl(service, satellite)
                route = None if terminal is None else RouteOfControl(service, terminal)
            fixes = positions.from_gpsd(*address) if address else positions.from_node(api)
            try:
                await announce_for_ever(announcer, fixes, api, renewed, route)
            except* RefusedError as refused:
                raise refused.exceptions[0] from None

    with suppress(KeyboardInterrupt):
        until_told(run())


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
    if port and not (port.isdecimal() and int(port) < 65_536):
        fail(f"{text}: {port} is no port")
    return host.strip("[]"), int(port or _GPSD_PORT)
