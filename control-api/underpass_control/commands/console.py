"""The common parts of verbs: options, and the output of results and failures."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress

from underpass_control.client import Client, LostError, RefusedError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
UrlOption = Annotated[
    str, typer.Option("--url", envvar="UNDERPASS_URL", help="The control service.")
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="UNDERPASS_TOKEN", help="A bearer token of it."),
]
DEFAULT_URL = "http://127.0.0.1:8470"
# The errors that end a verb.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

R = TypeVar("R")


def fail(text: str) -> NoReturn:
    """Say why, and end."""
    typer.echo(f"underpass-control: {text}", err=True)
    raise typer.Exit(1)


def warn(text: str) -> None:
    """Say on the error output what the user should know of a result."""
    typer.echo(f"underpass-control: warning: {text}", err=True)


def print_json(value: Any) -> None:
    """Print a value for programs."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def tell(value: Any, text: str, *, as_json: bool) -> None:
    """Print a result, for programs or for people."""
    if as_json:
        print_json(value)
    else:
        typer.echo(text)


def bars(*, quiet: bool = False) -> Progress:
    """Return progress bars, which are shown only on a terminal."""
    console = Console(stderr=True)
    return Progress(
        console=console,
        transient=True,
        # Output in the meantime is the result, which may go into a file.
        redirect_stdout=False,
        disable=quiet or not console.is_interactive,
    )


def with_client(url: str, token: str | None, run: Callable[[Client], Awaitable[R]]) -> R:
    """Ask a service; end with what it says if it refuses."""

    async def asked() -> R:
        async with Client(url, token) as client:
            return await run(client)

    return until_told(asked())


def until_told(work: Coroutine[Any, Any, R]) -> R:
    """Wait for something; end with what a service says if it refuses.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM has ended it.
    """

    async def running() -> R:
        task = asyncio.ensure_future(work)
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await asyncio.wait({task})
        if task.cancelled():
            raise KeyboardInterrupt
        return task.result()

    try:
        return asyncio.run(running())
    except (LostError, RefusedError) as error:
        fail(str(error))
