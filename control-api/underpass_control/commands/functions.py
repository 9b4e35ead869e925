"""`underpass-control functions-agent`, and `underpass-control slice`."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from underpass_control.client import Client, LostError, RefusedError, path_of
from underpass_control.commands.console import (
    DEFAULT_URL,
    TokenOption,
    UrlOption,
    fail,
    print_json,
    until_told,
)
from underpass_control.commands.tables import Column, Service, asking, named

if TYPE_CHECKING:
    from underpass_control.functions.agent import Agent
    from underpass_control.functions.sites import SiteFile

slices = typer.Typer(help="Slices: chains of functions in containers.", no_args_is_help=True)

# The pause after a refusal by the service, which somebody has to resolve first; and the longest
# pause that the service may ask for.
_REFUSED_S = 30.0

SLICE = named("name", "tenant", "site", "state", "detail")
CONTAINER = (Column("container", "name"), Column("state", "state"), Column("health", "health"))

Slice = Annotated[str, typer.Argument(help="Its name.")]
Function = Annotated[str, typer.Argument(help="A function of it, by its name there.")]
SiteOption = Annotated[
    Path, typer.Option("--site", help="What the site is, a TOML file (docs/functions.md).")
]


def functions_agent(
    site: SiteOption,
    folder: Annotated[
        Path, typer.Option(help="Where projects are kept; on the engine's own host.")
    ] = Path("/var/lib/underpass-slices"),
    every_seconds: Annotated[float, typer.Option(min=0.5, max=3600)] = 5.0,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
) -> None:
    """Have this host's Docker run the slices of a site, until it is ended.

    It ends if the service refuses it from the start. One that has been let in once looks after
    its slices as it was told last, whatever the service answers, and asks again.

    Example: underpass-control functions-agent --site /etc/underpass/site.toml
    """
    import time

    from underpass_control import logs
    from underpass_control.functions.agent import Agent
    from underpass_control.functions.descriptors import DescriptorError, installed
    from underpass_control.functions.engine import Engine

    file = _site(site)
    try:
        catalogue = installed()
    except DescriptorError as error:
        fail(str(error))
    logs.configure(logs.Format.CONSOLE)
    agent = Agent(Engine(), catalogue, file, folder.resolve(), time.monotonic)
    try:
        until_told(_run(agent, path_of("sites", file.site, "slices"), url, token, every_seconds))
    except KeyboardInterrupt:
        # Running containers go on: they belong to the engine.
        return


async def _run(agent: Agent, path: str, url: str, token: str | None, every_s: float) -> None:
    import asyncio

    import structlog

    log = structlog.get_logger()
    # The service's last answer: slices are maintained even while the service is away.
    given: list[Any] = []
    was_let_in = False
    # The service's last refusal; empty once it accepts the agent.
    refused = ""
    async with Client(url, token) as client:
        while True:
            wait_s = every_s
            try:
                given = _slices_of(await client.ask("GET", path))
                was_let_in = True
                reports = await agent.bring(given)
                await client.ask("POST", path, body={"slices": reports})
            except LostError as error:
                log.warning("the control service is away", error=str(error))
                # Slices are maintained in the meantime, however long the pause.
                wait_s = max(every_s, min(error.again_s, _REFUSED_S))
                await agent.bring(given)
            except RefusedError as error:
                if not was_let_in:
                    # A user who starts it with a wrong token or URL sees that at once.
                    raise
                if str(error) != refused:
                    refused = str(error)
                    log.warning(
                        "the control service refuses this agent", status=error.status, error=refused
                    )
                wait_s = max(every_s, _REFUSED_S)
                await agent.bring(given)
            else:
                if refused:
                    refused = ""
                    log.info("the control service lets this agent in again")
            await asyncio.sleep(wait_s)


def _slices_of(answer: Any) -> list[Any]:
    """Return how the slices are to be.

    Raises:
        RefusedError: The answer is not that of a control service.
    """
    found = answer.get("slices") if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise RefusedError(HTTPStatus.OK, "what answers there is no control service")
    return found


@asking(slices, "list")
def list_slices(service: Service) -> None:
    """Show all slices.

    Example: underpass-control slice list
    """
    service.show_all(path_of("slices"), "slices", SLICE)


@asking(slices, "show")
def show_slice(service: Service, name: Slice) -> None:
    """Show a slice and its containers.

    Example: underpass-control slice show north-1
    """
    from underpass_control.commands.tables import print_table

    found = service.ask("GET", path_of("slices", name))
    service.print(SLICE, found)
    if not service.as_json:
        print_table(CONTAINER, found["containers"])


@asking(slices, "set")
def set_slice(
    service: Service,
    name: Slice,
    file: Annotated[Path, typer.Argument(help="What it is, JSON (docs/functions.md).")],
) -> None:
    """Instantiate a slice, or configure it anew.

    Example: underpass-control slice set north-1 vehicle.json
    """
    try:
        body = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        fail(f"{file}: {error}")
    service.print(SLICE, service.ask("PUT", path_of("slices", name), body=body))


@asking(slices, "scale", json=False)
def scale_slice(
    service: Service,
    name: Slice,
    function: Function,
    replicas: Annotated[int, typer.Argument(min=1)],
) -> None:
    """Have so many containers of a function run side by side.

    Example: underpass-control slice scale north-1 dns 2
    """
    path = path_of("slices", name, "functions", function, "replicas")
    service.ask("PUT", path, body={"replicas": replicas})


@asking(slices, "heal", json=False)
def heal_slice(service: Service, name: Slice, function: Function) -> None:
    """Make the containers of a function anew; their volumes stay.

    Example: underpass-control slice heal north-1 shaper
    """
    path = path_of("slices", name, "functions", function, "heal")
    service.ask("POST", path)


@asking(slices, "terminate", json=False)
def terminate_slice(service: Service, name: Slice) -> None:
    """End a slice, with all that its functions keep.

    Example: underpass-control slice terminate north-1
    """
    service.ask("DELETE", path_of("slices", name))


@asking(slices, "manifests", json=False)
def show_manifests(service: Service, name: Slice, site: SiteOption) -> None:
    """Print a slice as manifests of Kubernetes, for `kubectl apply -f -`.

    Example: underpass-control slice manifests north-1 --site site.toml
    """
    from underpass_control.functions.descriptors import installed
    from underpass_control.functions.kubernetes import manifests
    from underpass_control.functions.slices import Desired, SliceError

    found = service.ask("GET", path_of("slices", name))
    members: dict[str, Any] = {n: found[n] for n in ("name", "tenant", "number", "revision")}
    members["body"] = {n: found[n] for n in ("site", "networks", "functions")}
    try:
        made = manifests(Desired.model_validate(members), installed(), _site(site).place)
    except SliceError as error:
        fail(str(error))
    print_json({"apiVersion": "v1", "kind": "List", "items": made})


def _site(path: Path) -> SiteFile:
    from underpass_control.functions.sites import SiteError, read

    try:
        return read(path)
    except SiteError as error:
        fail(str(error))
