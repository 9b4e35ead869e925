"""Answers of the service, as tables for people or unchanged for programs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate

import typer
from rich.console import Console
from rich.table import Table

from underpass_control.client import Client
from underpass_control.commands.console import (
    DEFAULT_URL,
    JsonOption,
    TokenOption,
    UrlOption,
    print_json,
    with_client,
)

_MILLION = 10**6


def plain(value: Any) -> str:
    """Show a value as it is, but what would change how all is shown as its code.

    Others choose what some of it is: a client where its stream leads, a vehicle what it reports.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    shown = "" if value is None else str(value)
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown
    )


def millions(value: Any) -> str:
    """Show a rate, or an amount, in millions of its unit: to the last one where it has to be."""
    return "" if value is None else f"{value / _MILLION:,.6f}".rstrip("0").rstrip(".")


def percent(value: Any) -> str:
    """Show a part of one."""
    return "" if value is None else f"{100 * value:.0f} %"


def seconds(value: Any) -> str:
    """Show a time in milliseconds as whole seconds."""
    return "" if value is None else f"{value // 1000:,}"


@dataclass(frozen=True)
class Column:
    """A member of an entry, by its path (`state.name`), and how it is headed and shown."""

    title: str
    member: str
    show: Callable[[Any], str] = plain

    def of(self, entry: Mapping[str, Any]) -> str:
        """Return the cell."""
        value: Any = entry
        for name in self.member.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return self.show(value)


def named(*members: str) -> list[Column]:
    """Return columns with the members' names as headings and unchanged values."""
    return [Column(member, member) for member in members]


def print_table(columns: Sequence[Column], entries: Iterable[Mapping[str, Any]]) -> None:
    """Print entries, a row each; columns in which nobody has anything are left out."""
    rows = [[column.of(entry) for column in columns] for entry in entries]
    used = [n for n in range(len(columns)) if not rows or any(row[n] for row in rows)]
    table = Table()
    for n in used:
        numeric = columns[n].show is not plain
        table.add_column(columns[n].title, justify="right" if numeric else "left", no_wrap=numeric)
    for row in rows:
        table.add_row(*(row[n] for n in used))
    _print(table)


def print_entry(columns: Sequence[Column], entry: Mapping[str, Any]) -> None:
    """Print one entry, a line for each column."""
    table = Table(show_header=False)
    for column in columns:
        if cell := column.of(entry):
            table.add_row(column.title, cell)
    _print(table)


def _print(table: Table) -> None:
    # Brackets and colons in a name are part of it.
    Console(markup=False, emoji=False).print(table)


@dataclass(frozen=True)
class Service:
    """The service that a verb asks, and how its answers are printed."""

    url: str
    token: str | None
    as_json: bool

    def show_all(
        self,
        path: str,
        member: str,
        columns: Sequence[Column],
        query: Mapping[str, str | int | None] | None = None,
        most: int | None = None,
    ) -> None:
        """Print a list: all its pages, or the first entries of it."""

        async def run(client: Client) -> list[Any]:
            entries = client.pages(path, member, query)
            return [one async for one in _first(entries, most)]

        found = with_client(self.url, self.token, run)
        if self.as_json:
            print_json(found)
        else:
            print_table(columns, found)

    def show(self, path: str, columns: Sequence[Column]) -> None:
        """Print one entry."""
        self.print(columns, self.ask("GET", path))

    def set(self, path: str, columns: Sequence[Column], changes: Mapping[str, Any]) -> None:
        """Change an entry, or make it, and print what it is then."""
        self.print(columns, with_client(self.url, self.token, lambda c: c.change(path, changes)))

    def ask(self, method: str, path: str, **asked: Any) -> Any:
        """Make a request."""
        return with_client(self.url, self.token, lambda client: client.ask(method, path, **asked))

    def print(self, columns: Sequence[Column], entry: Mapping[str, Any]) -> None:
        """Print an answer."""
        if self.as_json:
            print_json(entry)
        else:
            print_entry(columns, entry)


Verb = Callable[Concatenate[Service, ...], None]


def asking(
    group: typer.Typer, name: str, *, json: bool = True
) -> Callable[[Verb], Callable[..., None]]:
    """Make a verb of the group that asks the service: with --url, --token and, if so, --json."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter("url", keyword, default=DEFAULT_URL, annotation=UrlOption),
        inspect.Parameter("token", keyword, default=None, annotation=TokenOption),
    ]
    if json:
        options.append(inspect.Parameter("as_json", keyword, default=False, annotation=JsonOption))

    def made(verb: Verb) -> Callable[..., None]:
        @functools.wraps(verb)
        def run(*, url: str, token: str | None, as_json: bool = False, **own: Any) -> None:
            verb(Service(url, token, as_json), **own)

        signature = inspect.signature(verb, eval_str=True)
        _, *own = signature.parameters.values()
        # Typer reads a verb's options from this.
        run.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        group.command(name)(run)
        return run

    return made


async def _first(entries: AsyncIterator[Any], most: int | None) -> AsyncIterator[Any]:
    count = 0
    async for entry in entries:
        if count == most:
            return
        count += 1
        yield entry
