"""`underpass-control rollout`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from underpass_control.client import path_of
from underpass_control.commands.console import (
    fail,
)
from underpass_control.commands.settings import read_settings
from underpass_control.commands.tables import Column, Service, asking, named

rollouts = typer.Typer(
    help="Rollouts: one change of settings for many terminals, in stages.", no_args_is_help=True
)

ROLLOUT = (
    *named("id", "name", "state", "stage", "stages"),
    Column("pending", "counts.pending"),
    Column("sent", "counts.sent"),
    Column("on trial", "counts.trial"),
    Column("confirmed", "counts.confirmed"),
    Column("refused", "counts.refused"),
    Column("rolled back", "counts.rolled_back"),
    *named("reason", "changed"),
)
TERMINAL = named("terminal", "progress", "late", "stage", "sent", "confirmed", "reason")

Number = Annotated[int, typer.Argument(help="Its id in the list.")]


@asking(rollouts, "create")
def create_rollout(
    service: Service,
    name: Annotated[str, typer.Argument(help="What it is called.")],
    settings: Annotated[
        Path,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="JSON with `classes` and `paths`: what is set.",
        ),
    ],
    terminals: Annotated[
        list[int] | None,
        typer.Option("--terminal", help="A terminal; the first ones are tried first."),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="The terminals that have it.")] = None,
    beam: Annotated[str | None, typer.Option(help="The terminals of it.")] = None,
    stages: Annotated[
        str, typer.Option(help="Terminals of each stage before the last, which has the rest.")
    ] = "1,10",
    hold_s: Annotated[
        float, typer.Option("--hold-seconds", min=0, help="A stage has to have held so long.")
    ] = 300,
    wait_s: Annotated[
        float,
        typer.Option("--wait-seconds", min=1, help="Go on without those silent for so long."),
    ] = 3_600,
    most_failures: Annotated[
        int, typer.Option(min=0, help="Stop when more terminals do not take it.")
    ] = 0,
    whole: Annotated[
        bool, typer.Option("--whole", help="It is all that is set: what else was is taken away.")
    ] = False,
) -> None:
    """Change the settings of many terminals in stages; it begins at once.

    Example: underpass-control rollout create "lte first" --settings lte.json --tag bus
    """
    body: dict[str, Any] = {
        "name": name,
        "settings": read_settings(settings),
        "stages": _stages(stages),
        "hold_s": hold_s,
        "wait_s": wait_s,
        "most_failures": most_failures,
        "whole": whole,
    }
    chosen = {"terminals": terminals or None, "tag": tag, "beam": beam}
    body |= {member: value for member, value in chosen.items() if value is not None}
    service.print(ROLLOUT, service.ask("POST", path_of("rollouts"), body=body))


@asking(rollouts, "list")
def list_rollouts(
    service: Service, most: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20
) -> None:
    """Show rollouts, the newest first.

    Example: underpass-control rollout list
    """
    service.show_all(path_of("rollouts"), "rollouts", ROLLOUT, most=most)


@asking(rollouts, "show")
def show_rollout(service: Service, rollout: Number) -> None:
    """Show how far a rollout is.

    Example: underpass-control rollout show 3
    """
    service.show(path_of("rollouts", rollout), ROLLOUT)


@asking(rollouts, "terminals")
def show_terminals(service: Service, rollout: Number) -> None:
    """Show how far each terminal of a rollout is, in the order in which they are tried.

    Example: underpass-control rollout terminals 3
    """
    path = path_of("rollouts", rollout, "terminals")
    service.show_all(path, "terminals", TERMINAL)


@asking(rollouts, "pause")
def pause_rollout(service: Service, rollout: Number) -> None:
    """Have a rollout change no more terminals for now.

    Example: underpass-control rollout pause 3
    """
    _set_state(service, rollout, {"state": "paused"})


@asking(rollouts, "resume")
def resume_rollout(service: Service, rollout: Number) -> None:
    """Have a rollout go on that was paused or has stopped; failures so far are accepted.

    Example: underpass-control rollout resume 3
    """
    _set_state(service, rollout, {"state": "running"})


@asking(rollouts, "abort")
def abort_rollout(
    service: Service,
    rollout: Number,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore/--keep", help="Set again what was set of changed terminals before."
        ),
    ],
) -> None:
    """End a rollout for good.

    Example: underpass-control rollout abort 3 --restore
    """
    _set_state(service, rollout, {"state": "aborted", "restore": restore})


def _set_state(service: Service, rollout: int, body: dict[str, Any]) -> None:
    path = path_of("rollouts", rollout, "state")
    service.print(ROLLOUT, service.ask("PUT", path, body=body))


def _stages(text: str) -> list[int]:
    parts = [one.strip() for one in text.split(",") if one.strip()]
    if not all(one.isascii() and one.isdigit() for one in parts):
        fail(f"--stages {text}: must be numbers with commas between")
    return [int(one) for one in parts]
