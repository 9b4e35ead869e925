"""Beams and terminals."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from underpass_control.roles import Role

from tests.control_api.service.api import FIRST, SECOND, Api

BEAM = {"name": "Ka", "forward_capacity_bps": 40_000_000, "return_capacity_bps": 4_000_000}


def test_a_beam_is_set_read_changed_and_deleted(api: Api) -> None:
    made = api.call("PUT", "/v1/beams/ka-2", BEAM)
    assert made.status == 201
    assert made.json == {
        "id": "ka-2",
        "one_way_delay_ms": 300,
        "fair_share": "symbols",
        **BEAM,
    }
    assert api.get("/v1/beams/ka-2").json == made.json
    assert api.call("PUT", "/v1/beams/ka-2", {**BEAM, "fair_share": "luck"}).status == 422
    changed = {**BEAM, "name": "Ka 2", "fair_share": "bits"}
    assert api.call("PUT", "/v1/beams/ka-2", changed).status == 200
    assert api.get("/v1/beams/ka-2").json["fair_share"] == "bits"
    assert api.get("/v1/beams/ka-2").json["name"] == "Ka 2"
    assert api.call("DELETE", "/v1/beams/ka-2").status == 204
    assert "no beam ka-2" in api.get("/v1/beams/ka-2").problem
    assert api.call("DELETE", "/v1/beams/ka-2").status == 404


def test_a_beam_has_a_satellite_until_it_is_taken_away(api: Api) -> None:
    made = api.call("PUT", "/v1/beams/ka-2", {**BEAM, "satellite": "astra-19.2"})
    assert (made.status, made.json["satellite"]) == (201, "astra-19.2")
    assert api.get("/v1/beams/ka-2").json["satellite"] == "astra-19.2"
    for name in ("", "a b", "x" * 33, "é"):
        assert api.call("PUT", "/v1/beams/ka-2", {**BEAM, "satellite": name}).status == 422
    assert "satellite" not in api.call("PUT", "/v1/beams/ka-2", BEAM).json


SQUARE = [[7.0, 46.0], [8.0, 46.0], [8.0, 47.0], [7.0, 46.0]]
HOLE = [[7.4, 46.2], [7.5, 46.2], [7.5, 46.3], [7.4, 46.2]]


@pytest.mark.parametrize(
    "footprint",
    [
        {"type": "Polygon", "coordinates": [SQUARE, HOLE]},
        {"type": "MultiPolygon", "coordinates": [[SQUARE], [HOLE]]},
    ],
)
def test_a_footprint_is_kept_until_it_is_taken_away(api: Api, footprint: dict[str, Any]) -> None:
    assert "footprint" not in api.call("PUT", "/v1/beams/ka-2", BEAM).json
    made = api.call("PUT", "/v1/beams/ka-2", {**BEAM, "footprint": footprint})
    assert made.json["footprint"] == footprint
    listed = {one["id"]: one for one in api.get("/v1/beams").json["beams"]}
    assert listed["ka-2"]["footprint"] == footprint
    assert "footprint" not in api.call("PUT", "/v1/beams/ka-2", BEAM).json
    assert "footprint" not in api.get("/v1/beams/ka-2").json


def test_a_footprint_as_large_as_may_be_is_no_event_of_that_size(api: Api) -> None:
    ring = [[7.123456789012345 + i / 1e6, 46.123456789012345] for i in range(999)]
    footprint = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    made = api.call("PUT", "/v1/beams/ka-2", {**BEAM, "footprint": footprint})
    assert (made.status, made.json["footprint"]) == (201, footprint)


@pytest.mark.parametrize(
    ("footprint", "why"),
    [
        ({"type": "Polygon", "coordinates": [[*SQUARE[:-1], [7.0, 46.5]]]}, "does not end where"),
        ({"type": "Polygon", "coordinates": [SQUARE[:2]]}, "at least 4"),
        ({"type": "Polygon", "coordinates": [[[200, 0], *SQUARE[1:-1], [200, 0]]]}, "180"),
        ({"type": "Polygon", "coordinates": [[*SQUARE] * 250 + SQUARE[-1:]]}, "at most 1000"),
        ({"type": "MultiPolygon", "coordinates": [[[*SQUARE] * 99]] * 3}, "may have 1000"),
        ({"type": "Point", "coordinates": [7, 46]}, "Polygon"),
        ({"type": "Polygon", "coordinates": [SQUARE], "more": 1}, "unknown"),
    ],
)
def test_a_footprint_that_is_no_area_is_refused(
    api: Api, footprint: dict[str, Any], why: str
) -> None:
    refused = api.call("PUT", "/v1/beams/ka-2", {**BEAM, "footprint": footprint})
    assert refused.status == 422
    assert why in refused.text


def test_a_beam_with_terminals_stays(api: Api) -> None:
    refused = api.call("DELETE", "/v1/beams/ku-1")
    assert (refused.status, refused.problem) == (409, "ku-1 still has terminals")
    for node in (FIRST, SECOND):
        assert api.call("DELETE", f"/v1/terminals/{node}").status == 204
    assert api.call("DELETE", "/v1/beams/ku-1").status == 204


def test_the_tokens_of_a_terminal_are_not_those_of_the_next_one_with_its_number(api: Api) -> None:
    gateway = api.run(api.token(Role.GATEWAY, FIRST))
    vehicle = f"/v1/terminals/{FIRST}"
    assert api.get(vehicle, caller="first").status == 200
    assert api.call("DELETE", vehicle).status == 204
    body = {"beam": "ku-1", "name": "another vehicle"}
    assert api.call("PUT", vehicle, body).status == 201
    # It is noticed within a second.
    within = time.monotonic() + 10
    while api.get(vehicle, caller="first").status != 401:
        assert time.monotonic() < within
        time.sleep(0.1)
    for path, other in ((f"/v1/terminals/{SECOND}", "second"), ("/v1/beams", gateway)):
        assert api.get(path, caller=other).status != 401
    fresh = api.run(api.token(Role.TERMINAL, FIRST))
    assert api.get(vehicle, caller=fresh).status == 200


def test_a_terminal_needs_a_beam(api: Api) -> None:
    refused = api.call("PUT", "/v1/terminals/13", {"beam": "nowhere", "name": "lost"})
    assert (refused.status, refused.problem) == (409, "there is no beam nowhere")


def test_pages_hold_all_terminals_once(api: Api) -> None:
    for node in range(20, 27):
        body = {"beam": "ku-1", "name": f"vehicle {node}"}
        assert api.call("PUT", f"/v1/terminals/{node}", body).status == 201
    pages = api.pages("/v1/terminals?limit=4&beam=ku-1")
    nodes = [terminal["node"] for page in pages for terminal in page["terminals"]]
    assert nodes == [FIRST, SECOND, *range(20, 27)]
    assert api.get("/v1/terminals?beam=other").json == {"terminals": []}


@pytest.mark.parametrize(
    "cursor",
    ["x", "%00", "bnVsbA", "MQ", "InUwMDAwIg", "eyJhIjoxfQ", "Ilx1MDAwMCI", "9" * 200, "W" * 200],
)
def test_a_foreign_cursor_is_refused(unchanged: Api, cursor: str) -> None:
    for path in ("/v1/beams", f"/v1/terminals/{FIRST}/positions"):
        answer = unchanged.get(f"{path}?cursor={cursor}")
        assert answer.status in (200, 400)
    # A number is not a cursor of beams, and a text not one of tracks.
    assert unchanged.get("/v1/beams?cursor=MQ").status == 400
    assert unchanged.get(f"/v1/terminals/{FIRST}/positions?cursor=ImEi").status == 400


def test_an_etag_saves_the_answer_while_nothing_changes(api: Api) -> None:
    first = api.get("/v1/beams/ku-1")
    tag = {"If-None-Match": first.headers["ETag"]}
    same = api.get("/v1/beams/ku-1", headers=tag)
    assert (same.status, same.text) == (304, "")
    api.call("PUT", "/v1/beams/ku-1", BEAM)
    assert api.get("/v1/beams/ku-1", headers=tag).status == 200


def test_a_change_based_on_an_old_state_is_refused(api: Api) -> None:
    tag = {"If-Match": api.get("/v1/beams/ku-1").headers["ETag"]}
    assert api.call("PUT", "/v1/beams/ku-1", BEAM, headers=tag).status == 200
    stale = api.call("PUT", "/v1/beams/ku-1", {**BEAM, "name": "lost"}, headers=tag)
    assert stale.status == 412
    assert "ETag" in stale.problem
    assert api.get("/v1/beams/ku-1").json["name"] == "Ka"
    assert api.call("PUT", "/v1/beams/new", BEAM, headers=tag).status == 412


async def test_of_many_changes_based_on_one_state_one_holds(api: Api) -> None:
    tag = {"If-Match": (await api.ask("GET", "/v1/beams/ku-1")).headers["ETag"]}

    async def change(number: int) -> int:
        body = {**BEAM, "name": f"change {number}"}
        return (await api.ask("PUT", "/v1/beams/ku-1", body, headers=tag)).status

    statuses = await asyncio.gather(*(change(number) for number in range(8)))
    assert sorted(statuses) == [200] + 7 * [412]


async def test_a_beam_that_many_make_at_once_is_made_once(api: Api) -> None:
    asked = (api.ask("PUT", "/v1/beams/ka-2", BEAM) for _ in range(8))
    assert sorted(reply.status for reply in await asyncio.gather(*asked)) == 7 * [200] + [201]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"forward_capacity_bps": -1}, "/forward_capacity_bps"),
        ({"forward_capacity_bps": "8000000"}, "/forward_capacity_bps"),
        ({"forward_capacity_bps": 1.5}, "/forward_capacity_bps"),
        ({"forward_capacity_bps": 10**30}, "/forward_capacity_bps"),
        ({"name": ""}, "/name"),
        ({"name": "a\0b"}, "/name"),
        ({"name": None}, "/name"),
        ({"naem": "Ka"}, "/naem"),
    ],
)
def test_a_wrong_member_is_named(unchanged: Api, change: dict[str, object], pointer: str) -> None:
    refused = unchanged.call("PUT", "/v1/beams/ka-2", {**BEAM, **change})
    assert refused.status == 422
    assert refused.problem
    (error,) = refused.json["errors"]
    assert error["pointer"] == pointer
    assert error["detail"].startswith(("must ", "is unknown: there are name, "))


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        ("{", "application/json", 400),
        ("", "application/json", 400),
        ("[" * 100_000, "application/json", 400),
        ("[]", "application/json", 422),
        ("name=Ka", "application/x-www-form-urlencoded", 415),
        (b"\xff\xfe", "application/json", 400),
        ('{"name": "\\ud800"}', "application/json", 400),
        (b" " * (9 << 20), "application/json", 413),
        ("[" + "0," * 200_000 + "0]", "application/json", 413),
    ],
)
def test_what_is_no_beam_is_refused(
    unchanged: Api, body: str | bytes, content_type: str, status: int
) -> None:
    refused = unchanged.call("PUT", "/v1/beams/ka-2", body, content_type=content_type)
    assert refused.status == status
    assert refused.problem


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/terminals/0", 422),
        ("/v1/terminals/4294967295", 422),
        ("/v1/terminals/x", 404),
        ("/v1/terminals/%D9%A1", 404),
        (f"/v1/terminals/{10**30}", 404),
    ],
)
def test_a_terminal_is_a_node_number(unchanged: Api, path: str, status: int) -> None:
    assert unchanged.call("PUT", path, {"beam": "ku-1", "name": "x"}).status == status


def test_bounds_of_a_rate_are_in_order(api: Api) -> None:
    body = {"beam": "ku-1", "name": "x", "return_minimum_bps": 2, "return_maximum_bps": 1}
    assert "return_maximum_bps" in api.call("PUT", "/v1/terminals/13", body).problem


@pytest.mark.parametrize(
    "name", ["'; DROP TABLE beam; --", '" OR 1=1', "%00", "ku-1'--", "\\x27", "%F0%9F%9B%B0"]
)
def test_sql_in_strings_is_only_text(api: Api, name: str) -> None:
    assert api.get(f"/v1/beams/{name}").status == 404
    assert api.call("PUT", f"/v1/beams/{name}", BEAM).status in (404, 422)
    assert api.get("/v1/terminals", headers={"If-None-Match": name}).status == 200
    if "%" not in name:
        assert api.call("PUT", "/v1/beams/ka-2", {**BEAM, "name": name}).status == 201
        assert api.get("/v1/beams/ka-2").json["name"] == name
    assert api.get("/v1/beams/ku-1").status == 200


def test_paths_and_methods_that_are_none_get_problem_documents(api: Api) -> None:
    assert api.get("/v1/nothing").problem == "Not Found"
    wrong = api.call("POST", "/v1/beams/ku-1", BEAM)
    assert wrong.status == 405
    assert "PUT" in wrong.headers["Allow"]
    assert "given more than once" in api.get("/v1/beams?limit=1&limit=2").problem
    assert api.get("/v1/beams?limit=0").status == 400
    assert api.get("/v1/beams?colour=red").status == 400
