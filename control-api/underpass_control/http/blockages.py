"""Blockages, expected and observed, and the announcements of terminals."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from pydantic import Field, field_validator
from sqlalchemy.exc import IntegrityError

from dama.prediction import Announcement, AnnouncementError
from underpass_control.http import models
from underpass_control.http.cursor import next_page, numbers_after
from underpass_control.http.endpoint import EVERYBODY, REPORTERS, Call, Endpoint
from underpass_control.http.limits import Buckets
from underpass_control.http.problem import Problem
from underpass_control.http.reporting import admit, check_may_report
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import is_plausible, milliseconds, moment_of
from underpass_control.roles import Role
from underpass_control.storage import announcements, history, registry
from underpass_control.storage.announcements import Announced
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database
from underpass_control.storage.history import EXPECTED, OBSERVED, Place, Wanted
from underpass_control.storage.models import Terminal

_STATES = (*EXPECTED, OBSERVED)
# Announcements that a terminal may make with its own token: at once, and per second.
_BURST = 100
_PER_S = 1.0


class BlockageQuery(models.TrackQuery):
    """Which blockages: by entry, and with some states (with commas between)."""

    beam: models.BeamId | None = None
    terminal: models.NodeNumber | None = None
    state: Annotated[str, Field(max_length=100)] | None = None

    @field_validator("state")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and not set(value.split(",")) <= set(_STATES):
            raise ValueError(f"states are {', '.join(_STATES)}")
        return value


class Blockages:
    """The endpoints of blockages and announcements."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._of_terminal = Buckets(_PER_S, _BURST)

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        of_terminal = "/v1/terminals/{terminal}/announcements"
        return [
            Endpoint(
                "GET",
                "/v1/blockages",
                "Blockages that are expected, were expected, or were observed, by their entries",
                self._page,
                EVERYBODY,
                tenancy=Tenancy.ROWS,
                query=BlockageQuery,
                answers=models.BlockageList,
            ),
            Endpoint(
                "GET",
                of_terminal,
                "What a terminal has announced, the latest first",
                self._announcements,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                query=models.Page,
                answers=models.AnnouncementList,
            ),
            Endpoint(
                "POST",
                of_terminal,
                "Announce a blockage that a terminal will enter, or, with confidence 0, will not",
                self._announce,
                REPORTERS,
                tenancy=Tenancy.VEHICLE,
                body=models.AnnouncementBody,
                answers=models.Accepted,
                status=HTTPStatus.ACCEPTED,
            ),
        ]

    async def _page(self, call: Call) -> models.BlockageList:
        query = call.query(BlockageQuery)
        caller = call.known_caller
        terminal = query.terminal
        if caller.role is Role.TERMINAL:
            terminal = caller.node
        wanted = Wanted(
            states=_STATES if query.state is None else query.state.split(","),
            terminal=terminal,
            beam=query.beam,
            since_ms=None if query.since is None else milliseconds(query.since),
            until_ms=None if query.until is None else milliseconds(query.until),
            newest_first=query.order == "newest",
        )
        async with self._database.reading() as connection:
            found = await history.page(
                connection, wanted, after=_place(query.cursor), limit=query.limit
            )
        last = next_page(found, query.limit, lambda one: _text_of(one[0]))
        shown = [models.Blockage.model_validate(one) for _, one in found]
        return models.BlockageList(blockages=shown, next=last)

    async def _announcements(self, call: Call) -> models.AnnouncementList:
        terminal = call.path_number("terminal")
        query = call.query(models.Page)
        after = numbers_after(query.cursor, 2)
        async with self._database.reading() as connection:
            found = await announcements.page(
                connection,
                terminal,
                after=None if after is None else (after[0], after[1]),
                limit=query.limit,
            )
            if not found and await registry.get(connection, Terminal, terminal) is None:
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}")
        last = next_page(
            found, query.limit, lambda one: f"{one[1].announcement.announced_ms}:{one[0]}"
        )
        shown = [models.Announcement.model_validate(announcements.shown(one)) for _, one in found]
        return models.AnnouncementList(announcements=shown, next=last)

    async def _announce(self, call: Call) -> models.Accepted:
        terminal = call.path_number("terminal")
        admit(self._of_terminal, call.known_caller)
        now_ms = self._database.clock.now_ms()
        said = _announced(terminal, call.body(models.AnnouncementBody), now_ms)
        announced = {terminal: said.announcement.announced_ms}
        await check_may_report(self._database, call.known_caller, announced)
        try:
            async with self._changes.transaction() as (connection, publish):
                await announcements.put(connection, [said])
                for change in announcements.changes_of([said]):
                    publish(change)
        except IntegrityError as error:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}") from error
        return models.Accepted(accepted=1)


def _announced(terminal: int, body: models.AnnouncementBody, now_ms: int) -> Announced:
    announced_ms = now_ms if body.announced is None else milliseconds(body.announced)
    if not is_plausible(announced_ms, now_ms):
        detail = f"{moment_of(announced_ms)} cannot be the time of what is announced now"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    try:
        announcement = Announcement(
            announced_ms,
            milliseconds(body.entry),
            body.duration_ms,
            body.confidence,
            body.obstruction,
        )
    except AnnouncementError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
    return Announced(terminal, announcement, now_ms)


def _place(cursor: str | None) -> Place | None:
    numbers = numbers_after(cursor, 3)
    return None if numbers is None else Place(numbers[0], bool(numbers[1]), numbers[2])


def _text_of(place: Place) -> str:
    return f"{place.entry_ms}:{int(place.is_observed)}:{place.id}"
