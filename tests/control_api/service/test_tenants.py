"""Tenants: making and deleting them, vehicles that move between them, and their events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.orm import aliased
from underpass_control.events import Cut, Events, Filter
from underpass_control.instants import moment_of, rfc3339
from underpass_control.roles import Role
from underpass_control.storage import fleet, registry, scope
from underpass_control.storage.models import (
    Alert,
    Base,
    Blockage,
    LedgerEntry,
    LinkUsage,
    Plan,
    PositionReport,
    PredictedBlockage,
    Terminal,
    Token,
)

from tests.control_api.service.api import FIRST, Api, Reply, now_ms
from tests.control_api.service.two_tenants import (
    NORTH,
    NORTHERN,
    PASSWORD,
    SOUTH,
    SOUTHERN,
    SOUTHERN_LONGITUDE,
    done,
    learned_place,
    settle,
)


def test_vehicles_belong_to_the_default_tenant_unless_another_is_named(api: Api) -> None:
    assert api.get(f"/v1/terminals/{FIRST}").json["tenant"] == "default"
    body = {"beam": "ku-1", "name": "x", "tenant": "nowhere"}
    refused = api.call("PUT", f"/v1/terminals/{FIRST}", body)
    assert (refused.status, refused.problem) == (409, "there is no tenant nowhere")


def test_a_tenant_to_which_something_belongs_stays(api: Api) -> None:
    settle(api)
    path = f"/v1/tenants/{SOUTH}"

    def delete() -> tuple[int, str]:
        answer = api.call("DELETE", path, caller="administrator")
        return answer.status, answer.text and answer.problem

    assert delete() == (409, f"{SOUTH} still has vehicles")
    done(api, "DELETE", f"/v1/terminals/{SOUTHERN}", None)
    assert delete() == (409, f"{SOUTH} still has users")
    done(api, "DELETE", f"/v1/users/chief-of-{SOUTH}", None, caller="administrator")
    assert delete() == (409, f"{SOUTH} still has tokens")
    refused = api.call("DELETE", "/v1/tenants/default", caller="administrator")
    assert refused.status == 409
    assert api.call("DELETE", "/v1/tenants/none", caller="administrator").status == 404
    done(api, "PUT", "/v1/tenants/east", {"name": "East"}, caller="administrator")
    assert api.call("DELETE", "/v1/tenants/east", caller="administrator").status == 204


def test_a_tenant_goes_with_what_is_left_of_its_tokens(api: Api) -> None:
    done(api, "PUT", "/v1/tenants/east", {"name": "East"}, caller="administrator")
    token = {"name": "of the east", "role": "viewer", "tenant": "east"}
    revoked = done(api, "POST", "/v1/tokens", token, caller="administrator")
    api.run(api.token(Role.VIEWER, created_ms=1, expires_ms=2, tenant="east"))
    refused = api.call("DELETE", "/v1/tenants/east", caller="administrator")
    assert (refused.status, refused.problem) == (409, "east still has tokens")
    done(api, "DELETE", f"/v1/tokens/{revoked['id']}", None, caller="administrator")
    done(api, "DELETE", "/v1/tenants/east", None, caller="administrator")
    assert "east" not in api.get("/v1/tokens?limit=1000", caller="administrator").text
    assert api.get("/v1/tenants", caller=revoked["token"]).status == 401


@pytest.mark.parametrize("by_file", [False, True])
def test_a_tenant_that_a_vehicle_comes_to_meanwhile_stays(
    api: Api, monkeypatch: pytest.MonkeyPatch, by_file: bool
) -> None:
    done(api, "PUT", "/v1/tenants/east", {"name": "East"}, caller="administrator")
    deletions: list[asyncio.Task[Reply]] = []
    module, name = (fleet, "put_changes") if by_file else (registry, "put")
    put = getattr(module, name)

    async def deleted_meanwhile(*given: Any, **named: Any) -> Any:
        deleting = api.ask("DELETE", "/v1/tenants/east", caller="administrator")
        deletions.append(asyncio.create_task(deleting))
        # The deletion has to wait for the change in progress; otherwise it is done by then.
        await asyncio.wait(deletions, timeout=0.5)
        return await put(*given, **named)

    monkeypatch.setattr(module, name, deleted_meanwhile)
    if by_file:
        content = f"node,tenant\n{FIRST},east\n"
        done(api, "PUT", "/v1/terminals.csv", content, content_type="text/csv")
    else:
        done(api, "PUT", f"/v1/terminals/{FIRST}", _of("east"))
    (deletion,) = deletions
    assert api.run(deletion).status == 409
    assert api.get(f"/v1/terminals/{FIRST}").json["tenant"] == "east"
    assert "east" in api.get("/v1/tenants").text


def test_what_a_tenants_administrator_makes_is_the_tenants(api: Api) -> None:
    settle(api)
    admin = api.run(api.token(Role.ADMINISTRATOR, tenant=NORTH))
    user = {"role": "viewer", "password": PASSWORD}
    assert done(api, "PUT", "/v1/users/bob", user, caller=admin)["tenant"] == NORTH
    token = {"name": "own", "role": "terminal", "node": NORTHERN}
    made = done(api, "POST", "/v1/tokens", token, caller=admin)
    assert made["tenant"] == NORTH
    assert api.get(f"/v1/terminals/{NORTHERN}", caller=made["token"]).status == 200
    done(api, "DELETE", f"/v1/tokens/{made['id']}", None, caller=admin)
    assert api.get(f"/v1/terminals/{NORTHERN}", caller=made["token"]).status == 401


def test_a_tenant_sees_what_it_may_of_a_beam(api: Api) -> None:
    settle(api)
    beam = {"name": "Ku 1", "forward_capacity_bps": 8_000_000, "return_capacity_bps": 2_000_000}
    done(api, "PUT", "/v1/beams/ku-1", {**beam, "opensand": "opensand://ncc:7000"})
    viewer = api.run(api.token(Role.VIEWER, tenant=NORTH))
    assert "opensand" in api.get("/v1/beams/ku-1").json
    for path in ("/v1/beams/ku-1", "/v1/beams"):
        assert "8000000" in api.get(path, caller=viewer).text
        assert "opensand" not in api.get(path, caller=viewer).text

    async def planned() -> dict[str, Any]:
        async with asyncio.timeout(20):
            while True:
                found = await api.ask("GET", "/v1/beams/ku-1/shares", caller=viewer)
                links = found.json["links"]
                if len(links) == 2 and all(one["others"]["terminals"] == 3 for one in links):
                    return {one["link"]: one for one in links}
                await asyncio.sleep(0.05)

    shares = api.run(planned())
    whole = {one["link"]: one for one in api.get("/v1/beams/ku-1/shares").json["links"]}
    for link, capacity in (("forward", 8_000_000), ("return", 2_000_000)):
        mine, others = shares[link]["own"], shares[link]["others"]
        assert mine["terminals"] == 1
        # Amounts are whole bits of a period that is a part of a plan.
        assert 0 < mine["rate_bps"] + others["rate_bps"] <= capacity + 2
        assert whole[link]["own"]["terminals"] == 4
        assert whole[link]["others"]["terminals"] == 0
    own = api.get(f"/v1/beams/ku-1/plans/return?terminal={NORTHERN}", caller=viewer).json
    assert [line["terminals"] for line in own["lines"]] == [[NORTHERN]]
    assert api.get("/v1/beams/ku-1/plans/return", caller=viewer).status == 403
    other = f"/v1/beams/ku-1/plans/return?terminal={SOUTHERN}"
    assert api.get(other, caller=viewer).status == 404


def test_a_tenant_is_told_what_maintenance_leaves_of_a_beam(api: Api) -> None:
    settle(api)
    until = rfc3339(moment_of(now_ms() + 600_000))
    away = {"kind": "maintenance", "beam": "ku-1", "until": until, "forward_bps": 3_000_000}
    assert api.call("POST", "/v1/interventions", away).status == 201
    viewer = api.run(api.token(Role.VIEWER, tenant=NORTH))
    shown = api.get("/v1/beams/ku-1/capacity", caller=viewer)
    assert shown.json == api.get("/v1/beams/ku-1/capacity").json
    assert shown.json["forward_now_bps"] == 3_000_000
    # They may not see what takes the rest.
    assert api.get("/v1/interventions", caller=viewer).json["interventions"] == []


def test_a_tenants_events_are_those_of_its_vehicles(api: Api) -> None:
    settle(api)
    viewer = api.run(api.token(Role.VIEWER, tenant=NORTH))

    def position(node: int, longitude: float) -> dict[str, Any]:
        at = rfc3339(moment_of(now_ms()))
        return {"terminal": node, "time": at, "longitude": longitude, "latitude": 1.0}

    async def follow() -> str:
        found = ""
        async with api.client.get("/v1/events", headers=api.headers(viewer)) as answer:
            assert answer.status == 200, await answer.text()
            both = [position(SOUTHERN, 66.6), position(NORTHERN, 11.1)]
            await api.ask("POST", "/v1/positions", {"positions": both})
            await api.ask("PUT", "/v1/beams/other", {**BEAM, "name": "other beam"})
            # The same place once more, as somebody else's export, and an obstruction of a map.
            away = {**learned_place("learned:1"), "properties": _LEARNED_MORE}
            drawn = {**learned_place("drawn"), "properties": {}}
            for one in (away, drawn):
                both_kinds = {"type": "FeatureCollection", "features": [one]}
                posted = await api.ask("POST", "/v1/obstructions", both_kinds)
                assert posted.status == 200, posted.text
            await api.ask("PUT", f"/v1/terminals/{SOUTHERN}", _of(SOUTH))
            # The vehicle comes, and goes again.
            await api.ask("PUT", f"/v1/terminals/{SOUTHERN}", _of(NORTH, "guest"))
            await api.ask("PUT", f"/v1/terminals/{SOUTHERN}", _of(SOUTH, "gone"))
            await api.ask("POST", "/v1/positions", {"positions": [position(SOUTHERN, 77.7)]})
            await api.ask("POST", "/v1/positions", {"positions": [position(NORTHERN, 22.2)]})
            async with asyncio.timeout(20):
                while "22.2" not in found:
                    found += (await answer.content.readany()).decode()
        return found

    told = api.run(follow())
    assert "11.1" in told
    hidden = ("66.6", "77.7", "other beam", SOUTH, "gone", "learned")
    assert not [mark for mark in hidden if mark in told]
    assert '"ids":["drawn"]' in told
    assert "guest" in told
    assert f'{{"terminal":{SOUTHERN},"action":"deleted"}}' in told


def test_a_tenant_sees_learned_places_without_what_was_met_there(api: Api) -> None:
    settle(api)
    viewer = api.run(api.token(Role.VIEWER, tenant=NORTH))
    (whole,) = api.get("/v1/obstructions").json["features"]
    (seen,) = api.get("/v1/obstructions", caller=viewer).json["features"]
    assert {"lost", "held"} <= whole["properties"].keys()
    assert seen["properties"].keys() == {"name", "kind", "layer", "certainty", "source", "roads"}
    assert seen["properties"]["certainty"] == 1.0
    # What predictions need is the same.
    assert seen["geometry"] == whole["geometry"]
    assert seen["properties"]["roads"] == whole["properties"]["roads"]


BEAM = {"forward_capacity_bps": 1, "return_capacity_bps": 1}
_LEARNED_MORE = {**learned_place("")["properties"], "held": 2}


def _of(tenant: str, name: str = "coach") -> dict[str, object]:
    return {"beam": "ku-1", "name": name, "tenant": tenant}


def _told(events: Events, kind: str, **data: Any) -> None:
    events.tell(json.dumps({"kind": kind, "event_id": str(id(data)), **data}))


@pytest.mark.parametrize("by_file", [False, True])
def test_a_tenant_sees_nothing_of_a_vehicle_from_before_it_was_its_own(
    api: Api, by_file: bool
) -> None:
    settle(api)
    track = f"/v1/terminals/{SOUTHERN}/positions"
    viewers = {one: api.run(api.token(Role.VIEWER, tenant=one)) for one in (NORTH, SOUTH)}

    def move(tenant: str) -> None:
        if by_file:
            content = f"node,tenant\n{SOUTHERN},{tenant}\n"
            done(api, "PUT", "/v1/terminals.csv", content, content_type="text/csv")
        else:
            done(api, "PUT", f"/v1/terminals/{SOUTHERN}", _of(tenant))

    def seen(caller: str) -> list[float]:
        found = api.get(track, caller=viewers.get(caller, caller)).json["positions"]
        assert api.get(track + "/newest", caller=viewers.get(caller, caller)).status == (
            200 if found else 404
        )
        return [one["longitude"] for one in found]

    assert seen(SOUTH) == [SOUTHERN_LONGITUDE]
    move(NORTH)
    assert seen(NORTH) == []
    at = rfc3339(moment_of(now_ms() + 1_000))
    done(api, "POST", track, {"time": at, "longitude": 66.6, "latitude": 1.0})
    # Giving it to its present tenant changes nothing.
    move(NORTH)
    assert seen(NORTH) == [66.6]
    assert seen("operator") == [SOUTHERN_LONGITUDE, 66.6]
    # Records from the first time with this tenant do not come back.
    move(SOUTH)
    assert SOUTHERN_LONGITUDE not in seen(SOUTH)


def test_a_plan_that_was_over_before_a_vehicle_came_is_not_for_its_tenant(api: Api) -> None:
    settle(api)
    viewer = api.run(api.token(Role.VIEWER, tenant=NORTH))
    plans = "/v1/beams/ku-1/plans/return"

    async def planned() -> int:
        async with asyncio.timeout(20):
            while (found := await api.ask("GET", f"{plans}?terminal={SOUTHERN}")).status != 200:
                await asyncio.sleep(0.05)
        return int(found.json["plan"])

    async def end(version: int) -> None:
        async with api.database.transaction() as connection:
            of_version = update(Plan).where(Plan.version == version, Plan.link == "return")
            await connection.execute(of_version.values(issued_ms=0, start_ms=0, end_ms=1))

    version = api.run(planned())
    done(api, "PUT", f"/v1/terminals/{SOUTHERN}", _of(NORTH))
    path = f"{plans}/{version}?terminal={SOUTHERN}"
    assert api.get(path, caller=viewer).status == 200
    api.run(end(version))
    assert api.get(path, caller=viewer).status == 404
    assert api.get(path).status == 200


def test_until_the_vehicles_are_known_no_tenant_follows() -> None:
    events = Events()
    with pytest.raises(Cut, match="try again"):
        events.follow(Filter(tenant="north"))
    events.know_tenants({1: "north"})
    follower = events.follow(Filter(tenant="north"))
    events.interrupt()
    with pytest.raises(Cut):
        follower.pending(1000)
    with pytest.raises(Cut, match="try again"):
        events.follow(Filter(tenant="north"))


def test_no_tenant_goes_on_from_before_its_vehicles_were_known() -> None:
    events = Events()

    def tell(name: str) -> None:
        text = {"kind": "positions", "event_id": name, "positions": [{"terminal": 1}]}
        events.tell(json.dumps(text))

    # As in a replica that has just started: a follower may know these events from another one.
    for name in ("first", "second"):
        tell(name)
    events.know_tenants({1: "north"})
    with pytest.raises(Cut, match="no longer here"):
        events.follow(Filter(tenant="north"), "first")
    assert events.follow(Filter(), "first").pending(1000).count(b"data:") == 1
    tell("third")
    follower = events.follow(Filter(tenant="north"), "second")
    assert follower.pending(1000).count(b"data:") == 1


def test_what_changes_while_the_vehicles_are_read_counts_more_than_what_was_read() -> None:
    events = Events()
    _told(events, "terminal", terminal=1, action="set", state={"tenant": "south"})
    _told(events, "terminal", terminal=2, action="deleted")
    events.know_tenants({1: "north", 2: "north", 3: "north"})
    north, south = (events.follow(Filter(tenant=one)) for one in ("north", "south"))
    _told(events, "positions", positions=[{"terminal": one} for one in (1, 2, 3, 4)])
    assert b'{"positions":[{"terminal":3}]}' in north.pending(1000)
    assert b'{"positions":[{"terminal":1}]}' in south.pending(1000)


def test_what_is_read_late_goes_to_whose_it_was_when_it_was_told() -> None:
    events = Events()
    events.know_tenants({1: "south", 2: "north"})
    north, south = (events.follow(Filter(tenant=one)) for one in ("north", "south"))
    _told(events, "positions", positions=[{"terminal": 1, "at": "before"}])
    _told(events, "terminal", terminal=1, action="set", state={"tenant": "south", "name": "x"})
    _told(events, "terminal", terminal=1, action="set", state={"tenant": "north", "name": "guest"})
    _told(events, "terminal", terminal=1, action="set", state={"tenant": "south", "name": "back"})
    told = north.pending(10_000)
    assert b"guest" in told
    assert b'{"terminal":1,"action":"deleted"}' in told
    assert b"before" not in told and b"south" not in told and b"back" not in told
    told = south.pending(10_000)
    assert b"before" in told and b"back" in told and b"guest" not in told


def test_who_follows_one_vehicle_of_a_tenant_is_told_that_it_is_gone() -> None:
    events = Events()
    events.know_tenants({1: "north", 2: "north", 3: "south"})
    one = events.follow(Filter(tenant="north", terminal=1))
    other, stranger = (events.follow(Filter(tenant="north", terminal=node)) for node in (2, 3))
    _told(events, "terminal", terminal=1, action="set", state={"tenant": "south", "name": "x"})
    _told(events, "terminal", terminal=2, action="deleted")
    _told(events, "terminal", terminal=3, action="deleted")
    for node, follower in ((1, one), (2, other)):
        told = follower.pending(10_000)
        assert told.count(b"data:") == 1
        assert f'{{"terminal":{node},"action":"deleted"}}'.encode() in told
    assert stranger.pending(10_000) == b""


@pytest.mark.parametrize("table", [Alert, Blockage, LinkUsage, PredictedBlockage])
def test_rows_of_a_tenant_are_found_by_its_vehicles(table: type[Base]) -> None:
    # Otherwise the rows of all tenants would be scanned.
    assert "terminal IN (SELECT" in str(scope.restricted(select(table.__table__), NORTH))


@pytest.fixture(scope="module")
def counted(unchanged: Api) -> Api:
    """The service with data of both tenants, for tests that only read it."""
    settle(unchanged)
    return unchanged


async def _within(api: Api, tenant: str | None, statement: Any) -> list[Any]:
    with scope.within(tenant):
        async with api.database.reading() as connection:
            return list((await connection.execute(statement)).all())


_LATER = aliased(PositionReport)


@pytest.mark.parametrize(
    "statement",
    [
        select(Terminal.node),
        select(Terminal.__table__),
        select(PositionReport.terminal),
        select(PositionReport.terminal).join(Terminal, Terminal.node == PositionReport.terminal),
        select(_LATER.terminal),
        select(select(Terminal.node).subquery()),
        select(select(Terminal.node).cte()),
        select(Terminal.node).where(Terminal.node.in_(select(PositionReport.terminal))),
        select(Terminal.node).union(select(PositionReport.terminal)),
        select(func.max(PositionReport.terminal)).group_by(PositionReport.terminal),
        select(PositionReport.terminal).where(
            ~select(_LATER.terminal)
            .where(
                _LATER.terminal == PositionReport.terminal,
                _LATER.time_ms > PositionReport.time_ms,
            )
            .exists()
        ),
    ],
)
def test_statements_of_all_shapes_see_a_tenants_rows_only(counted: Api, statement: Any) -> None:
    whole = {row[0] for row in counted.run(_within(counted, None, statement))}
    north = {row[0] for row in counted.run(_within(counted, NORTH, statement))}
    assert {NORTHERN, SOUTHERN} <= whole
    assert north == {NORTHERN}


def test_a_table_without_a_rule_and_sql_as_text_are_refused(counted: Api) -> None:
    for statement in (
        select(LedgerEntry.id),
        select(Terminal.node).where(select(LedgerEntry.id).exists()),
        text("SELECT node FROM terminal"),
    ):
        assert isinstance(counted.run(_within(counted, None, statement)), list)
        with pytest.raises(scope.ScopeError):
            counted.run(_within(counted, NORTH, statement))


def test_changes_within_a_tenant_are_its_rows_only(api: Api) -> None:
    settle(api)

    async def run() -> tuple[int, int]:
        with scope.within(NORTH):
            async with api.database.transaction() as connection:
                changed = await connection.execute(update(Token).values(name="changed"))
                gone = await connection.execute(delete(PositionReport))
                return changed.rowcount, gone.rowcount

    assert api.run(run()) == (1, 1)
    left = api.run(_within(api, None, select(PositionReport.terminal)))
    assert [row[0] for row in left] == [SOUTHERN]
