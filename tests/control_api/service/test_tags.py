"""Tags of terminals: set by operators of the whole and of a tenant, and used in queries."""

from __future__ import annotations

import pytest
from underpass_control.roles import Role

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_positions import position, report
from tests.control_api.service.two_tenants import NORTH, NORTHERN, SOUTHERN, settle

NASTY = "<img src=x onerror=alert(1)>"


def put(api: Api, node: int, *tags: str, caller: str = "operator") -> int:
    path = f"/v1/terminals/{node}/tags"
    return api.call("PUT", path, {"tags": list(tags)}, caller=caller).status


def with_tag(api: Api, tag: str, caller: str = "viewer") -> list[int]:
    found = api.run(
        api.ask("GET", "/v1/terminals?tag=" + tag.replace("#", "%23"), caller=caller)
    ).json
    return [one["node"] for one in found["terminals"]]


def test_terminals_are_found_by_their_tags(api: Api) -> None:
    assert put(api, FIRST, "north", "Night buses", NASTY) == 200
    assert put(api, SECOND, "north") == 200
    assert with_tag(api, "north") == [FIRST, SECOND]
    assert with_tag(api, "night buses") == []
    assert with_tag(api, NASTY) == [FIRST]
    shown = api.get(f"/v1/terminals/{FIRST}")
    assert shown.json["tags"] == sorted(["north", "Night buses", NASTY])
    counts = {one["tag"]: one["terminals"] for one in api.get("/v1/tags").json["tags"]}
    assert counts == {"north": 2, "Night buses": 1, NASTY: 1}
    first, rest = api.get("/v1/tags?limit=1").json, api.get("/v1/tags?limit=3").json
    assert first["tags"][0] == rest["tags"][0]
    assert len(api.get(f"/v1/tags?cursor={first['next']}").json["tags"]) == 2


def test_newest_positions_are_found_by_tags_as_terminals_are(api: Api) -> None:
    assert put(api, FIRST, "north") == 200
    given = (position(now_ms() - 500, terminal=node) for node in (FIRST, SECOND))
    assert report(api, *given).status == 202

    def found(query: str) -> list[int]:
        positions = api.get(f"/v1/positions?{query}").json["positions"]
        return [one["terminal"] for one in positions]

    assert found("") == [FIRST, SECOND]
    assert found("tag=north") == found("tag=north&beam=ku-1") == [FIRST]
    assert found("tag=south") == found("tag=north&beam=other") == []


@pytest.mark.parametrize("tag", ["\u0436" * 32, "\U0001f468\u200d\U0001f469", "a\u00a0b"])
def test_pages_go_on_behind_a_tag_of_any_characters(api: Api, tag: str) -> None:
    assert put(api, FIRST, tag, "north") == 200
    pages = api.pages("/v1/tags?limit=1")
    assert {one["tag"] for page in pages for one in page["tags"]} == {tag, "north"}


def test_setting_a_terminal_keeps_its_tags_and_setting_tags_its_settings(api: Api) -> None:
    path = f"/v1/terminals/{FIRST}"
    before = api.get(path)
    assert put(api, FIRST, "a") == 200
    after = api.get(path)
    assert after.headers["ETag"] != before.headers["ETag"]
    assert {**after.json, "tags": []} == before.json
    assert api.call("PUT", path, {"beam": "ku-1", "name": "renamed"}).json["tags"] == ["a"]
    assert put(api, FIRST) == 200
    assert api.get(path).json["tags"] == []
    assert api.call("DELETE", path).status == 204
    assert api.get("/v1/tags").json["tags"] == []


@pytest.mark.parametrize(
    "tags",
    [
        [""], [" a"], ["a "], ["a;b"], ["a,b"], ["a\x00"], ["x" * 33], [1],
        [f"tag {n}" for n in range(11)],
    ],
)  # fmt: skip
def test_what_is_no_tag_is_refused_and_nothing_is_changed(
    unchanged: Api, tags: list[object]
) -> None:
    assert put(unchanged, FIRST, "a") == 200
    answer = unchanged.call("PUT", f"/v1/terminals/{FIRST}/tags", {"tags": tags})
    assert answer.status == 422
    assert unchanged.get(f"/v1/terminals/{FIRST}").json["tags"] == ["a"]
    assert put(unchanged, 99, "a") == 404


def test_the_longest_tags_fit_the_event_that_tells_of_them(api: Api) -> None:
    path = f"/v1/terminals/{FIRST}"
    assert api.call("PUT", path, {"beam": "ku-1", "name": "\U0001f68c" * 200}).status == 200
    longest = [f"{n}" + "\U0001f68c" * 31 for n in range(10)]
    assert put(api, FIRST, *longest) == 200
    assert api.get(path).json["tags"] == longest


def test_a_tenants_operator_sets_tags_of_its_own_vehicles_and_sees_no_others(api: Api) -> None:
    settle(api)
    assert put(api, SOUTHERN, "secret of the south") == 200
    operator = api.run(api.token(Role.OPERATOR, tenant=NORTH))
    assert put(api, NORTHERN, "mine", caller=operator) == 200
    assert put(api, SOUTHERN, "mine", caller=operator) == 404
    assert with_tag(api, "mine", caller=operator) == [NORTHERN]
    assert with_tag(api, "secret of the south", caller=operator) == []
    tags = api.get("/v1/tags", caller=operator).json["tags"]
    assert tags == [{"tag": "mine", "terminals": 1}]
    viewer = api.run(api.token(Role.VIEWER, tenant=NORTH))
    assert put(api, NORTHERN, "theirs", caller=viewer) == 403
