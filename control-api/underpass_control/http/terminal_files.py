"""Terminals as a CSV file: downloaded, previewed, and applied as a whole or not at all."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import Field
from sqlalchemy.exc import IntegrityError

from underpass_control.access.audit import Changed
from underpass_control.fleet.change import Fleet, TerminalChange, outcome_of
from underpass_control.fleet.text import FileError, Flaws, Line, read, written
from underpass_control.http import models
from underpass_control.http.at_once import AtOnce, InTurn
from underpass_control.http.endpoint import LARGEST, OPERATORS, READERS, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.http.registry import terminal_state
from underpass_control.http.tenancy import Tenancy
from underpass_control.storage import fleet
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database
from underpass_control.taking_turns import Turns
from underpass_control.validation import worded

# A file may have more lines than changes: each change is an event to all followers.
_MOST_CHANGES = 10_000
_MOST_SHOWN = 100
# A large one costs seconds of the processor.
_AT_ONCE = 2
# Downloads that may wait for the one that is made: it has all terminals in memory.
_MOST_WAITING = 32
_MEDIA_TYPE = "text/csv"
_BASIS = worded(r"^[0-9a-f]{64}$", "be the basis of a preview, as that has given it")


class FileQuery(models.Model):
    """What a preview was based on: if that has changed since, nothing is done."""

    basis: Annotated[str, Field(pattern=_BASIS)] | None = None


class LineFlaw(models.Model):
    """What is wrong with a line; the header is line 1."""

    line: int
    reason: str


class LineChange(models.Model):
    """A terminal that a line makes or changes: which of its columns, as they are and will be."""

    line: int
    node: int
    name: str
    kind: Literal["new", "changed"]
    columns: list[str]
    # Of a new terminal: nothing.
    before: dict[str, Any]
    after: dict[str, Any]


class FilePreview(models.Model):
    """What a file would change. Flaws and changes are named up to a hundred, and all counted."""

    new: int
    changed: int
    unchanged: int
    wrong: int
    flaws: list[LineFlaw]
    changes: list[LineChange]
    basis: str


class FileTaken(models.Model):
    """What a file has changed."""

    new: int
    changed: int
    unchanged: int


class TerminalFiles:
    """The endpoints of terminals in bulk."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._read = AtOnce(_AT_ONCE, "files of terminals")
        self._written = InTurn(1, _MOST_WAITING, "downloads of all terminals")

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        path = "/v1/terminals.csv"
        return [
            Endpoint(
                "GET",
                path,
                "All terminals with their tags, as CSV",
                self._download,
                READERS,
                tenancy=Tenancy.ROWS,
                media_type=_MEDIA_TYPE,
            ),
            Endpoint(
                "POST",
                path + "/preview",
                "What a CSV file would change, and what is wrong with it; nothing is changed",
                self._preview,
                OPERATORS,
                recorded=False,
                takes=_MEDIA_TYPE,
                most=LARGEST,
                answers=FilePreview,
            ),
            Endpoint(
                "PUT",
                path,
                "Make and change the terminals of a CSV file, all or none; others stay",
                self._take,
                OPERATORS,
                query=FileQuery,
                takes=_MEDIA_TYPE,
                most=LARGEST,
                answers=FileTaken,
                problems=[HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED],
            ),
        ]

    async def _download(self, call: Call) -> web.StreamResponse:
        async with self._written.one(call):
            async with self._database.reading() as connection:
                found = [one async for one in fleet.all_settings(connection)]
            text = await asyncio.to_thread(lambda: "".join(written(found)))
        return web.Response(
            text=text,
            content_type=_MEDIA_TYPE,
            headers={
                "Content-Disposition": 'attachment; filename="terminals.csv"',
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
            },
        )

    async def _preview(self, call: Call) -> FilePreview:
        flaws = Flaws()
        with self._read.one():
            lines = await _read(call, flaws)
            async with self._database.reading() as connection:
                known = await fleet.read_fleet(connection, [one.node for one in lines])
            outcome = await asyncio.to_thread(outcome_of, lines, known, flaws)
        return FilePreview(
            new=outcome.new,
            changed=len(outcome.changes) - outcome.new,
            unchanged=outcome.unchanged,
            wrong=flaws.count,
            flaws=_ordered(flaws),
            changes=[_shown(one) for one in outcome.changes[:_MOST_SHOWN]],
            basis=known.basis,
        )

    async def _take(self, call: Call) -> FileTaken:
        flaws = Flaws()
        try:
            with self._read.one():
                lines = await _read(call, flaws)
                return await self._put(call, lines, flaws)
        except IntegrityError as error:
            detail = "somebody else has changed beams or terminals meanwhile: look again"
            raise Problem(HTTPStatus.CONFLICT, detail) from error

    async def _put(self, call: Call, lines: list[Line], flaws: Flaws) -> FileTaken:
        async with self._changes.transaction() as (connection, publish):
            nodes = [one.node for one in lines]
            # A file that is refused in any case makes nobody wait.
            known = await fleet.read_fleet(connection, nodes, lock=not flaws.count)
            _check_basis(call, known)
            outcome = await asyncio.to_thread(outcome_of, lines, known, flaws)
            _refuse(flaws)
            changes = outcome.changes
            if len(changes) > _MOST_CHANGES:
                detail = f"the file changes {len(changes)} terminals: at most {_MOST_CHANGES} may "
                raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail + "be changed at once")
            rows = await fleet.put_changes(connection, changes, self._database.clock.now_ms())
            turns = Turns()
            for node, row in rows.items():
                state = terminal_state(row)
                publish({"kind": "terminal", "terminal": node, "action": "set", "state": state})
                await turns.pause()
            new = outcome.new
            taken = FileTaken(new=new, changed=len(changes) - new, unchanged=outcome.unchanged)
            whole = Changed("set", "/v1/terminals.csv", after=taken.model_dump())
            await call.record(connection, whole, *map(_changed, changes))
        return taken


async def _read(call: Call, flaws: Flaws) -> list[Line]:
    try:
        return await asyncio.to_thread(read, call.content, flaws)
    except FileError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error


def _refuse(flaws: Flaws) -> None:
    """Refuse a file that has errors."""
    if flaws.count:
        errors: list[dict[str, object]] = [
            {"pointer": f"line {one.line}", "detail": one.reason} for one in _ordered(flaws)
        ]
        wrong = "1 line is" if flaws.count == 1 else f"{flaws.count} lines are"
        detail = f"{wrong} wrong: nothing has been changed"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=errors)


def _check_basis(call: Call, known: Fleet) -> None:
    basis = call.query(FileQuery).basis
    if basis is not None and basis != known.basis:
        detail = "terminals, beams or tenants have been changed since the preview: look again"
        raise Problem(HTTPStatus.PRECONDITION_FAILED, detail)


def _ordered(flaws: Flaws) -> list[LineFlaw]:
    named = sorted(flaws.named, key=lambda one: one.line)
    return [LineFlaw(line=one.line, reason=one.reason) for one in named]


def _shown(one: TerminalChange) -> LineChange:
    before = one.before or {}
    columns = [name for name, value in one.after.items() if before.get(name) != value]
    kind: Literal["new", "changed"] = "new" if one.before is None else "changed"
    return LineChange(
        line=one.line,
        node=one.node,
        name=one.after["name"],
        kind=kind,
        columns=columns,
        before={name: before[name] for name in columns if name in before},
        after={name: one.after[name] for name in columns},
    )


def _changed(one: TerminalChange) -> Changed:
    before = None if one.before is None else dict(one.before)
    target = f"/v1/terminals/{one.node}"
    return Changed("set", target, one.after["tenant"], before, dict(one.after))
