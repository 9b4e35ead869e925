"""`underpass-control settings`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from underpass_control.client import path_of
from underpass_control.commands.console import fail, print_json
from underpass_control.commands.tables import Column, Service, asking, named, print_table

node_settings = typer.Typer(
    help="What is set from afar of one terminal, or of a gateway itself.", no_args_is_help=True
)


def _value(value: Any) -> str:
    return "" if value is None else json.dumps(value)


SETTINGS = (
    *named("terminal", "gateway", "version", "set", "state"),
    Column("reason", "reported.reason"),
    Column("classes", "classes", json.dumps),
    Column("paths", "paths", json.dumps),
    Column("terminals", "terminals", lambda value: json.dumps(value) if value else ""),
)
CHANGE = (*named("key"), Column("before", "before", _value), Column("after", "after", _value))
# The size limit of a file of settings.
_MOST_BYTES = 1 << 20

Terminal = Annotated[int | None, typer.Option("--terminal", help="A terminal.")]
Gateway = Annotated[int | None, typer.Option("--gateway", help="A gateway: its own settings.")]
File = Annotated[
    Path,
    typer.Argument(
        exists=True,
        dir_okay=False,
        help="JSON with `classes`, `paths`, and of a gateway `terminals`: all that is set.",
    ),
]


@asking(node_settings, "show")
def show_settings(service: Service, terminal: Terminal = None, gateway: Gateway = None) -> None:
    """Show what is set of a node from afar, and what has become of it.

    Example: underpass-control settings show --gateway 1
    """
    service.show(_path(terminal, gateway), SETTINGS)


@asking(node_settings, "set")
def set_settings(
    service: Service, settings: File, terminal: Terminal = None, gateway: Gateway = None
) -> None:
    """Set all that is set of a node; what the file leaves out is as the node itself has it.

    Example: underpass-control settings set hub.json --gateway 1
    """
    path = _path(terminal, gateway)
    service.print(SETTINGS, service.ask("PUT", path, body=read_settings(settings)))


@asking(node_settings, "preview")
def preview_settings(
    service: Service, settings: File, terminal: Terminal = None, gateway: Gateway = None
) -> None:
    """Show what `set` would change, key by key; nothing is changed.

    Example: underpass-control settings preview hub.json --gateway 1
    """
    path = f"{_path(terminal, gateway)}/preview"
    found = service.ask("POST", path, body=read_settings(settings))
    if service.as_json:
        print_json(found)
    else:
        print_table(CHANGE, found["changes"])


def read_settings(path: Path) -> Any:
    """Return the JSON of a file of settings; if it has none, end with the reason."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            fail(f"{path} is larger than settings are")
        return json.loads(text)
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        fail(f"cannot read {path}: {error}")


def _path(terminal: int | None, gateway: int | None) -> str:
    if (terminal is None) == (gateway is None):
        fail("name a --terminal or a --gateway")
    if terminal is not None:
        return path_of("terminals", terminal, "settings")
    return path_of("gateways", gateway or 0, "settings")
