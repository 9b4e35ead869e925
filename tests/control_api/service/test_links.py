"""Link states, blockages, announcements and routes, as they are read and set."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from underpass_control.instants import milliseconds_of

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_events import following
from tests.control_api.service.test_expectations import expected, keep, observed
from tests.control_api.service.test_positions import moment
from tests.control_api.service.test_reports import HUB, entry, envelope, link, report, status, taken

ANNOUNCED = f"/v1/terminals/{FIRST}/announcements"
ROUTE = f"/v1/terminals/{FIRST}/route"
LINE = {"type": "LineString", "coordinates": [[7.5, 46.5], [7.6, 46.5], [7.6, 46.6]]}


def all_links(api: Api) -> None:
    taken(
        api,
        entry(status(link(plan_version=4, rate_bps=10**6))),
        entry(status(link(SECOND)), SECOND),
        entry(status(link(FIRST, "forward"), link(SECOND, "forward")), HUB),
    )


def pages(api: Api, path: str, name: str) -> list[Any]:
    return [one for page in api.pages(path) for one in page[name]]


def test_links_are_read_by_beam_and_terminal_and_in_pages(api: Api) -> None:
    all_links(api)
    found = pages(api, "/v1/links?limit=3", "links")
    assert [(one["terminal"], one["link"]) for one in found] == [
        (FIRST, "forward"),
        (FIRST, "return"),
        (SECOND, "forward"),
        (SECOND, "return"),
    ]
    assert (found[1]["plan"], found[1]["rate_bps"], found[1]["gateway"]) == (4, 10**6, HUB)
    assert "plan" not in found[0]
    assert len(api.get(f"/v1/links?terminal={SECOND}").json["links"]) == 2
    assert len(api.get("/v1/links?beam=ku-1").json["links"]) == 4
    assert api.get("/v1/links?beam=other").json == {"links": []}
    assert api.get("/v1/links?cursor=IngiOg").status == 400


def test_a_terminal_reads_its_own_links_only(api: Api) -> None:
    all_links(api)
    own = api.get(f"/v1/terminals/{FIRST}/links", caller="first").json["links"]
    assert [one["link"] for one in own] == ["forward", "return"]
    assert api.get(f"/v1/terminals/{SECOND}/links", caller="first").status == 403
    assert api.get("/v1/links", caller="first").status == 403
    assert api.get("/v1/terminals/99/links").status == 404


def test_blockages_are_read_by_time_state_and_terminal(api: Api) -> None:
    at = now_ms() - 100_000
    keep(api, at, expected(at + 10_000), expected(at + 50_000, name="valley"))
    keep(api, at + 15_000, expected(at + 50_000, name="valley"))
    keep(api, at + 40_000)
    others: dict[str, Any] = {"terminal": SECOND, "direction": "forward"}
    by_hub = {**observed(at + 20_000, **others), "node": HUB}
    taken(api, observed(at + 10_000, at + 30_000), observed(at + 90_000), by_hub)

    def entries(query: str, caller: str = "viewer") -> list[tuple[int, str, int]]:
        found = api.get(f"/v1/blockages?{query}", caller=caller).json["blockages"]
        return [
            (one["terminal"], one["state"], milliseconds_of(one["entry"]) - at) for one in found
        ]

    everything = [
        (FIRST, "passed", 10_000),
        (FIRST, "observed", 10_000),
        (SECOND, "observed", 20_000),
        (FIRST, "withdrawn", 50_000),
        (FIRST, "observed", 90_000),
    ]
    assert entries("") == everything
    assert entries(f"terminal={FIRST}") == [one for one in everything if one[0] == FIRST]
    assert entries(f"terminal={FIRST}", "first") == entries("", "first")
    assert entries("state=observed") == [everything[1], everything[2], everything[4]]
    assert entries(f"terminal={FIRST}&state=passed,withdrawn") == [everything[0], everything[3]]
    since, until = moment(at + 50_000), moment(at + 90_000)
    assert entries(f"terminal={FIRST}&since={since}&until={until}") == [everything[3]]
    assert entries(f"terminal={FIRST}&order=newest") == entries(f"terminal={FIRST}")[::-1]
    assert entries("beam=other") == []
    assert api.get(f"/v1/blockages?terminal={SECOND}", caller="first").status == 403
    assert "states are" in api.get("/v1/blockages?state=lost").text


def by_hub(entry_ms: int, exit_ms: int | None = None, **members: object) -> dict[str, object]:
    return {**observed(entry_ms, exit_ms, direction="forward", **members), "node": HUB}


def is_up(api: Api, time_ms: int) -> None:
    made = status(link(FIRST, "forward"), time_ms=time_ms, synchronised=True)
    taken(api, entry(made, HUB))


def since(api: Api, at: int) -> list[tuple[int, int | None, str]]:
    found = api.get(f"/v1/blockages?terminal={FIRST}&state=observed").json["blockages"]
    return [
        (
            milliseconds_of(one["entry"]) - at,
            milliseconds_of(one["exit"]) - at if "exit" in one else None,
            one["source"],
        )
        for one in found
    ]


def test_a_blockage_in_which_a_hub_is_started_anew_is_one(api: Api) -> None:
    at = now_ms() - 100_000
    taken(api, by_hub(at, source="probing"))
    for again_ms in (20_000, 40_000):
        taken(api, by_hub(at + again_ms, source="plan", unheard=True))
    assert since(api, at) == [(0, None, "probing")]
    is_up(api, at + 60_500)
    assert since(api, at) == [(0, 60_500, "probing")]
    # The hub's report of the end is more exact, and changes nothing when it is repeated.
    for _ in range(2):
        taken(api, by_hub(at + 40_000, at + 60_000, source="plan", unheard=True))
        taken(api, by_hub(at + 40_000, source="plan", unheard=True))
        assert since(api, at) == [(0, 60_000, "probing")]


def test_blockages_of_one_post_are_joined_too(api: Api) -> None:
    at = now_ms() - 100_000
    again = [by_hub(at + n, source="plan", unheard=True) for n in (20_000, 40_000)]
    taken(api, by_hub(at), *again)
    assert since(api, at) == [(0, None, "modem")]
    later = by_hub(at + 80_000, unheard=True)
    taken(api, again[0], by_hub(at, 60_000 + at), again[1], later)
    assert since(api, at) == [(0, 60_000, "modem"), (80_000, None, "modem")]


def test_blockages_are_not_joined_if_the_link_was_up_in_between(api: Api) -> None:
    at = now_ms() - 100_000
    taken(api, by_hub(at))
    is_up(api, at + 10_000)
    taken(api, by_hub(at + 20_000, unheard=True), by_hub(at + 21_000, path="lte", unheard=True))
    apart = [(0, 10_000, "modem"), (20_000, None, "modem"), (21_000, None, "modem")]
    assert since(api, at) == apart
    # Nor if the node has heard its peer, or has a clock that was set back.
    taken(api, by_hub(at + 30_000), by_hub(at - 10_000, unheard=True))
    assert since(api, at) == [(-10_000, None, "modem"), *apart, (30_000, None, "modem")]


@pytest.mark.parametrize("order", ["time", "newest"])
def test_pages_of_blockages_hold_each_once(api: Api, order: str) -> None:
    at = now_ms() - 100_000
    ahead = [expected(at + 1_000 * n, name=f"ridge {n % 2}-{n}") for n in range(1, 5)]
    keep(api, at, *ahead)
    taken(api, *(observed(at + 1_000 * n, at + 1_000 * n + 500) for n in range(1, 6)))
    whole = api.get(f"/v1/blockages?order={order}").json["blockages"]
    assert len(whole) == 9
    assert pages(api, f"/v1/blockages?limit=2&order={order}", "blockages") == whole


def test_an_announcement_comes_back_as_it_was_given(api: Api) -> None:
    at = now_ms()
    body = {
        "announced": moment(at - 1_000),
        "entry": moment(at + 60_000),
        "duration_ms": 30_000,
        "confidence": 0.75,
        "obstruction": "ridge",
    }
    for _ in range(2):
        assert api.call("POST", ANNOUNCED, body, caller="first").status == 202
    (found,) = api.get(ANNOUNCED, caller="first").json["announcements"]
    received = found.pop("received")
    assert found == {**body, "terminal": FIRST}
    assert received >= moment(at)
    latest = {"entry": moment(at + 50_000), "duration_ms": 1, "confidence": 0}
    assert api.call("POST", ANNOUNCED, latest).status == 202
    assert pages(api, ANNOUNCED + "?limit=1", "announcements")[1]["obstruction"] == "ridge"


def test_a_terminal_announces_and_reads_its_own_only(api: Api) -> None:
    body = {"entry": moment(now_ms()), "duration_ms": 1, "confidence": 1}
    assert api.call("POST", ANNOUNCED, body, caller="second").status == 403
    assert api.call("POST", ANNOUNCED, body, caller="viewer").status == 403
    assert api.get(ANNOUNCED, caller="second").status == 403
    assert api.call("POST", "/v1/terminals/99/announcements", body).status == 404
    assert api.get("/v1/terminals/99/announcements").status == 404
    assert api.get(ANNOUNCED).json == {"announcements": []}


@pytest.mark.parametrize(
    "members",
    [
        {"confidence": 1.1},
        {"duration_ms": 0},
        {"duration_ms": 3_600_001},
        {"entry": "2200-01-01T00:00:00Z"},
        {"announced": "2200-01-01T00:00:00Z"},
        {"obstruction": "a\0b"},
    ],
)
def test_impossible_announcements_are_refused(unchanged: Api, members: dict[str, object]) -> None:
    body = {"entry": moment(now_ms()), "duration_ms": 1_000, "confidence": 0.5, **members}
    assert unchanged.call("POST", ANNOUNCED, body).status == 422
    made = report(
        "announcement",
        announced_ms=now_ms(),
        entry_ms=now_ms() + 3_700_000,
        duration_ms=1_000,
        confidence=0.5,
    )
    (refused,) = unchanged.call("POST", "/v1/reports", envelope(entry(made))).json["refused"]
    assert "hour" in refused["detail"]
    assert unchanged.get(ANNOUNCED).json == {"announcements": []}


def test_a_route_is_set_read_and_forgotten(api: Api) -> None:
    assert api.get(ROUTE).status == 404
    assert api.call("PUT", ROUTE, LINE, caller="first").json == LINE
    read = api.get(ROUTE)
    assert (read.json, read.headers["Content-Type"].split(";")[0]) == (LINE, "application/geo+json")
    tag = {"If-None-Match": read.headers["ETag"]}
    assert api.get(ROUTE, headers=tag).status == 304
    shorter = {**LINE, "coordinates": LINE["coordinates"][:2]}
    assert api.call("PUT", ROUTE, shorter).status == 200
    assert api.get(ROUTE, headers=tag).json == shorter
    assert api.call("DELETE", ROUTE, caller="first").status == 204
    assert api.call("DELETE", ROUTE).status == 404
    for method in ("PUT", "DELETE"):
        assert api.call(method, ROUTE, LINE, caller="second").status == 403
        assert api.call(method, ROUTE, LINE, caller="viewer").status == 403
    assert api.get(ROUTE, caller="second").status == 403
    assert api.call("PUT", "/v1/terminals/99/route", LINE).status == 404


def test_the_longest_route_is_taken_however_it_is_written(api: Api) -> None:
    places = [[number / 7_000, 46 + number / 7_000, 1_000 / 3] for number in range(10_000)]
    line = json.dumps({"type": "LineString", "coordinates": places}, indent=4)
    assert len(line) > 1 << 20
    set_anew = api.call("PUT", ROUTE, line)
    assert (set_anew.status, len(set_anew.json["coordinates"])) == (200, 10_000)


@pytest.mark.parametrize(
    "coordinates",
    [[[7.5, 46.5]], [[7.5, 46.5]] * 2, [[7.5, 95], [7.6, 46]], [[1], [2]], [[1, 2]] * 10_001],
)
def test_what_is_no_line_is_no_route(unchanged: Api, coordinates: list[list[float]]) -> None:
    body = {"type": "LineString", "coordinates": coordinates}
    assert unchanged.call("PUT", ROUTE, body).status == 422


def test_an_operator_names_the_gateway_and_what_is_heard_stays(api: Api) -> None:
    taken(api, entry(status()))
    path = f"/v1/terminals/{FIRST}"
    body = {"beam": "ku-1", "name": "van", "gateway": 3}
    changed = api.call("PUT", path, body).json
    assert (changed["gateway"], changed["heard_by"]) == (3, HUB)
    del body["gateway"]
    assert "gateway" not in api.call("PUT", path, body).json
    assert api.get(path).json["heard_by"] == HUB


async def test_what_is_reported_is_told(api: Api) -> None:
    at = now_ms()
    said = report(
        "announcement", announced_ms=at, entry_ms=at + 9_000, duration_ms=1_000, confidence=1
    )
    body = envelope(
        entry(status(link(FIRST, "forward"), link(SECOND, "forward")), HUB),
        entry(status()),
        entry(said),
        observed(at - 5_000),
    )

    found: dict[str, Any] = {}
    async with (
        following(api, "kinds=links,announcements,blockages,terminal") as stream,
        following(api, "kinds=links", caller="second") as second,
    ):
        asked = asyncio.create_task(api.ask("POST", "/v1/reports", body, caller="gateway"))
        while len(found) < 4:
            kind, data = await stream.next()
            found[kind] = data
        assert (await asked).status == 200
        kind, data = await second.next()
        assert [one["terminal"] for one in data["links"]] == [SECOND]
    assert {(one["terminal"], one["link"]) for one in found["links"]["links"]} == {
        (FIRST, "forward"),
        (FIRST, "return"),
        (SECOND, "forward"),
    }
    assert found["announcements"]["announcements"][0]["entry"] == moment(at + 9_000)
    assert found["blockages"]["blockages"][0]["entry"] == moment(at - 5_000)
    assert found["terminal"]["state"]["heard_by"] == HUB
