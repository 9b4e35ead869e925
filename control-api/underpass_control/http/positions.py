"""Positions: reported one by one or in batches; read as the newest, as track, or as GeoJSON."""

from __future__ import annotations

from http import HTTPStatus

from sqlalchemy.exc import IntegrityError

from dama.prediction.fix import CLOCK_TOLERANCE_MS
from underpass_control.http import models
from underpass_control.http.callers import party_of
from underpass_control.http.cursor import next_page, number_after
from underpass_control.http.endpoint import EVERYBODY, READERS, REPORTERS, Call, Endpoint, Most
from underpass_control.http.limits import Buckets
from underpass_control.http.problem import Problem
from underpass_control.http.reporting import admit, check_may_report
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import is_plausible, milliseconds, moment_of
from underpass_control.metrics import Metrics
from underpass_control.storage import positions as stored
from underpass_control.storage import registry
from underpass_control.storage.database import Database
from underpass_control.storage.models import Terminal

# Positions that a terminal may report with its own token: some hours of them at once, and per
# second.
_PER_S = 20.0
_BURST = 2 * models.MOST_BATCH
# A position has ten members, each behind a comma or a bracket, and perhaps on a line of its own.
_MOST_OF_BATCH = Most(8 << 20, 16 * models.MOST_BATCH)


class Positions:
    """The endpoints of positions."""

    def __init__(self, database: Database, writer: stored.PositionWriter, metrics: Metrics) -> None:
        self._database = database
        self._writer = writer
        self._metrics = metrics
        self._of_terminal = Buckets(_PER_S, _BURST)

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        of_terminal = "/v1/terminals/{terminal}/positions"
        busy = HTTPStatus.SERVICE_UNAVAILABLE
        return [
            Endpoint(
                "GET",
                "/v1/positions",
                "The newest position of each terminal, or of those of a beam or with a tag",
                self._newest_of_all,
                READERS,
                tenancy=Tenancy.ROWS,
                query=models.TerminalQuery,
                answers=models.NewestPositions,
            ),
            Endpoint(
                "POST",
                "/v1/positions",
                "Report positions, of any terminals",
                self._batch,
                REPORTERS,
                tenancy=Tenancy.ROWS,
                body=models.PositionBatch,
                most=_MOST_OF_BATCH,
                answers=models.Accepted,
                status=HTTPStatus.ACCEPTED,
                problems=[HTTPStatus.CONFLICT, busy],
            ),
            Endpoint(
                "POST",
                of_terminal,
                "Report a position",
                self._one,
                REPORTERS,
                tenancy=Tenancy.VEHICLE,
                body=models.PositionBody,
                answers=models.Accepted,
                status=HTTPStatus.ACCEPTED,
                problems=[busy],
            ),
            Endpoint(
                "GET",
                of_terminal,
                "A terminal's track, or part of it",
                self._track,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                query=models.PositionsQuery,
                answers=models.Track,
            ),
            Endpoint(
                "GET",
                of_terminal + "/newest",
                "A terminal's newest position",
                self._newest,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                answers=models.Position,
            ),
            Endpoint(
                "GET",
                of_terminal + ".geojson",
                "A terminal's track as GeoJSON points",
                self._geojson,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                query=models.PositionsQuery,
                answers=models.FeatureCollection,
                media_type="application/geo+json",
            ),
        ]

    async def _batch(self, call: Call) -> models.Accepted:
        now_ms = self._database.clock.now_ms()
        batch = call.body(models.PositionBatch).positions
        await self._store([_stored(p.terminal, p, now_ms) for p in batch], call)
        return models.Accepted(accepted=len(batch))

    async def _one(self, call: Call) -> models.Accepted:
        terminal = call.path_number("terminal")
        now_ms = self._database.clock.now_ms()
        try:
            await self._store([_stored(terminal, call.body(models.PositionBody), now_ms)], call)
        except Problem as problem:
            if problem.status is HTTPStatus.CONFLICT:
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}") from None
            raise
        return models.Accepted(accepted=1)

    async def _store(self, positions: list[stored.Position], call: Call) -> None:
        admit(self._of_terminal, call.known_caller, len(positions))
        latest: dict[int, int] = {}
        for one in positions:
            latest[one.terminal] = max(one.time_ms, latest.get(one.terminal, one.time_ms))
        await check_may_report(self._database, call.known_caller, latest)
        try:
            await self._writer.store(positions, party_of(call.known_caller))
            self._metrics.positions.inc(len(positions))
        except stored.BusyError as error:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers={"Retry-After": "1"}
            ) from error
        except IntegrityError as error:
            detail = "a terminal of the batch is not known; nothing was stored"
            raise Problem(HTTPStatus.CONFLICT, detail) from error

    async def _newest_of_all(self, call: Call) -> models.NewestPositions:
        query = call.query(models.TerminalQuery)
        async with self._database.reading() as connection:
            found = await stored.newest_of_all(
                connection,
                self._until_ms(),
                beam=query.beam,
                tag=query.tag,
                after=number_after(query.cursor),
                limit=query.limit,
            )
        last = next_page(found, query.limit, lambda one: one.terminal)
        return models.NewestPositions(positions=[_shown(one) for one in found], next=last)

    async def _track(self, call: Call) -> models.Track:
        query = call.query(models.PositionsQuery)
        found = await self._find(call, query)
        last = next_page(found, query.limit, lambda one: one.time_ms)
        return models.Track(positions=[_shown(position) for position in found], next=last)

    async def _newest(self, call: Call) -> models.Position:
        terminal = call.path_number("terminal")
        async with self._database.reading() as connection:
            found = await stored.newest(connection, terminal, self._until_ms())
        if found is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"terminal {terminal} has reported no position")
        return _shown(found)

    def _until_ms(self) -> int:
        """Return before when a newest position is: a clock that is ahead must hide no other."""
        return self._database.clock.now_ms() + CLOCK_TOLERANCE_MS

    async def _geojson(self, call: Call) -> models.FeatureCollection:
        query = call.query(models.PositionsQuery)
        found = await self._find(call, query)
        last = next_page(found, query.limit, lambda one: one.time_ms)
        return models.FeatureCollection(features=[_feature(one) for one in found], next=last)

    async def _find(self, call: Call, query: models.PositionsQuery) -> list[stored.Position]:
        terminal = call.path_number("terminal")
        since_ms = None if query.since is None else milliseconds(query.since)
        async with self._database.reading() as connection:
            if call.known_caller.tenant is not None:
                # Earlier positions are excluded in any case. Put like this, the index skips them,
                # which may be months of positions.
                own_ms = await registry.own_since_ms(connection, terminal) or 0
                since_ms = max(own_ms, since_ms or 0)
            found = await stored.track(
                connection,
                terminal,
                since_ms=since_ms,
                until_ms=None if query.until is None else milliseconds(query.until),
                after_ms=number_after(query.cursor),
                limit=query.limit,
                newest_first=query.order == "newest",
                apart_ms=None if query.apart_s is None else 1000 * query.apart_s,
            )
            if not found and await registry.get(connection, Terminal, terminal) is None:
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}")
        return found


def _stored(terminal: int, body: models.PositionBody, now_ms: int) -> stored.Position:
    time_ms = milliseconds(body.time)
    if not is_plausible(time_ms, now_ms):
        detail = f"{body.time.isoformat()} cannot be the time of a position reported now"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    gnss_ms = None if body.gnss_time is None else milliseconds(body.gnss_time)
    node_ms = None if body.node_time is None else milliseconds(body.node_time)
    apart = gnss_ms is not None and node_ms is not None and abs(gnss_ms - node_ms)
    return stored.Position(
        terminal=terminal,
        time_ms=time_ms,
        longitude=body.longitude,
        latitude=body.latitude,
        speed_mps=body.speed_mps,
        heading_deg=body.heading_deg,
        altitude_m=body.altitude_m,
        accuracy_m=body.accuracy_m,
        gnss_time_ms=gnss_ms,
        node_time_ms=node_ms,
        received_ms=now_ms,
        clocks_differ=apart > CLOCK_TOLERANCE_MS,
    )


def _shown(position: stored.Position) -> models.Position:
    def moment(ms: int | None) -> models.Instant | None:
        return None if ms is None else moment_of(ms)

    return models.Position(
        terminal=position.terminal,
        time=moment_of(position.time_ms),
        longitude=position.longitude,
        latitude=position.latitude,
        speed_mps=position.speed_mps,
        heading_deg=position.heading_deg,
        altitude_m=position.altitude_m,
        accuracy_m=position.accuracy_m,
        gnss_time=moment(position.gnss_time_ms),
        node_time=moment(position.node_time_ms),
        received=moment_of(position.received_ms),
        clocks_differ=position.clocks_differ,
    )


def _feature(position: stored.Position) -> models.Feature:
    place = [position.longitude, position.latitude]
    if position.altitude_m is not None:
        place.append(position.altitude_m)
    shown = _shown(position).model_dump(
        mode="json", exclude={"longitude", "latitude", "altitude_m"}, exclude_none=True
    )
    return models.Feature(geometry={"type": "Point", "coordinates": place}, properties=shown)
