"""`underpass-control replay`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from underpass_control.commands.console import (
    DEFAULT_URL,
    JsonOption,
    TokenOption,
    fail,
    tell,
    until_told,
)

if TYPE_CHECKING:
    from underpass_control.replay.player import Played


def replay(
    path: Annotated[Path, typer.Argument(help="An NMEA 0183 log, a GPX file, or gpsd's reports.")],
    to: Annotated[
        str,
        typer.Option(
            envvar="UNDERPASS_URL",
            help="The control service (http://…), or a reader of NMEA: udp://HOST:PORT,"
            " tcp-listen://HOST:PORT, pty:PATH.",
        ),
    ] = DEFAULT_URL,
    terminal: Annotated[
        int | None, typer.Option(min=1, help="Whose positions they are, at the control service.")
    ] = None,
    token: TokenOption = None,
    speed: Annotated[float, typer.Option(help="How many times faster it is driven.")] = 1.0,
    again: Annotated[bool, typer.Option("--loop", help="Begin anew at the end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Drive a recorded track as if it were now: the first fix has the present time.

    What a service that is away cannot take is reported once it is back, with its own time.

    Example: underpass-control replay drive.gpx --terminal 10 --speed 2
    """
    # Fixes need geometry, which takes a third of a second to import.
    from underpass_control.replay.player import Played, play
    from underpass_control.replay.recording import RecordingError, read_recording
    from underpass_control.replay.targets import TargetError, target_of
    from underpass_control.replay.timeline import Timeline

    try:
        recording = read_recording(path)
        timeline = Timeline(recording.fixes, speed)
        target = target_of(to, token=token, terminal=terminal)
    except (RecordingError, TargetError, ValueError) as error:
        fail(str(error))
    played = Played()
    try:
        with suppress(KeyboardInterrupt), _bar(path.name, len(timeline), quiet=as_json) as show:
            until_told(play(timeline, target, played, again=again, tell=show))
    except TargetError as error:
        fail(str(error))
    left_out = recording.rejected + timeline.left_out
    said = f"{played.sent} of {played.fixes} fixes sent"
    if left_out:
        said += f"; {left_out} of the recording cannot be, or fall back in time, and are left out"
    if recording.spoilt:
        said += f"; {recording.spoilt} lines cannot be read"
    found = {"left_out": left_out, "unreadable_lines": recording.spoilt}
    tell(played.summary() | found, said, as_json=as_json)
    if played.trouble:
        fail(played.trouble)


@contextmanager
def _bar(name: str, total: int, *, quiet: bool) -> Iterator[Callable[[Played], None]]:
    """Show how far it is, and what stands in the way."""
    title = TextColumn("{task.description}", markup=False)
    columns = (title, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    trouble = TextColumn("{task.fields[trouble]}", style="yellow", markup=False)
    console = Console(stderr=True)
    with Progress(*columns, trouble, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task(name, total=total, trouble="")

        def tell(played: Played) -> None:
            progress.update(task, completed=played.place, trouble=played.trouble or "")

        yield tell
