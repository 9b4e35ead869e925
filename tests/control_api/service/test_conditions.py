"""If two operators change the same thing at once, the second gets an error (RFC 9110, § 13)."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from multidict import CIMultiDict
from underpass_control.access import users
from underpass_control.client import Client, RefusedError
from underpass_control.storage import portions, registry, slices

from tests.control_api.functions.examples import vehicle
from tests.control_api.service.api import FIRST, Api
from tests.control_api.service.two_tenants import PASSWORD

TERMINAL = f"/v1/terminals/{FIRST}"
BEAM = {"name": "Ku 1", "forward_capacity_bps": 1, "return_capacity_bps": 1}
VAN = {"beam": "ku-1", "name": "van"}
CAPACITY = {"forward": [{"from": "2026-01-01T00:00:00Z", "rate_bps": 5_000_000}]}
LINE = {"type": "LineString", "coordinates": [[7.5, 46.5], [7.6, 46.6]]}
ADA = {"role": "viewer", "password": PASSWORD}
# The resource, its change, and the path at which its ETag is read.
CHANGED: list[tuple[str, Any, str | None]] = [
    ("/v1/beams/ku-1", BEAM, "/v1/beams/ku-1"),
    ("/v1/beams/ku-1/capacity", CAPACITY, "/v1/beams/ku-1/capacity"),
    (TERMINAL, VAN, TERMINAL),
    (f"{TERMINAL}/tags", {"tags": ["a"]}, TERMINAL),
    (f"{TERMINAL}/route", LINE, f"{TERMINAL}/route"),
    ("/v1/users/ada", {"role": "operator"}, None),
]


def put(api: Api, path: str, body: Any, tag: str | None = None) -> Any:
    headers = {} if tag is None else {"If-Match": tag}
    return api.call("PUT", path, body, caller="administrator", headers=headers)


def settled(api: Api) -> None:
    assert put(api, "/v1/users/ada", ADA).status == 201
    assert put(api, f"{TERMINAL}/route", LINE).status == 200


def tag_of(api: Api, path: str | None) -> str:
    if path is not None:
        return api.get(path).headers["ETag"]
    (user,) = api.get("/v1/users", caller="administrator").json["users"]
    return f'"{user["revision"]}"'


@pytest.mark.parametrize(("path", "body", "read"), CHANGED)
def test_who_knows_how_it_was_before_is_told_and_changes_nothing(
    api: Api, path: str, body: Any, read: str | None
) -> None:
    settled(api)
    before = tag_of(api, read)
    first = put(api, path, body, before)
    assert first.status == 200, first.text
    after = tag_of(api, read)
    assert first.headers["ETag"] == after != before
    for stale in (before, '"0"', f"W/{after}", f'"0", W/{after}', ""):
        second = put(api, path, body, stale)
        assert (second.status, "ETag" in second.problem) == (412, True)
        assert tag_of(api, read) == after
    # One matching ETag of several is enough; without any, the last change wins, as usual.
    assert put(api, path, body, f'"0", {after}').status == 200
    assert put(api, path, body, "*").status == 200
    assert put(api, path, body).status == 200


def test_an_etag_without_quotes_is_refused_everywhere(api: Api) -> None:
    document = api.get("/openapi.json", caller=None).json
    asked = [
        (method.upper(), re.sub(r"\{\w+\}", "1", path))
        for path, operations in document["paths"].items()
        for method, one in operations.items()
        if any(given["name"] == "If-Match" for given in one.get("parameters", ()))
    ]
    assert ("PUT", "/v1/rollouts/1/state") in asked
    for method, path in asked:
        refused = api.call(method, path, caller="administrator", headers={"If-Match": "1"})
        assert (refused.status, 'If-Match: "1"' in refused.problem) == (400, True), path


@pytest.mark.parametrize("written", ["1", '1, "1"', '"1" "2"', '"1', "'1'", 'w/"1"', '*, "1"'])
def test_what_lists_no_etags_changes_nothing(api: Api, written: str) -> None:
    before = tag_of(api, TERMINAL)
    assert put(api, TERMINAL, VAN, written).status == 400
    assert tag_of(api, TERMINAL) == before


@pytest.mark.parametrize("lines", [['{}, "0"'], [', "0" ,, {},'], ['"a,b"', "{}"]])
async def test_an_etag_may_be_anywhere_in_a_list(api: Api, lines: list[str]) -> None:
    tag = (await api.ask("GET", TERMINAL)).headers["ETag"]
    headers = CIMultiDict(api.headers("operator"))
    for line in lines:
        headers.add("If-Match", line.format(tag))
    for status in (200, 412):
        async with api.client.put(TERMINAL, json=VAN, headers=headers) as answer:
            assert answer.status == status


def test_what_is_not_there_is_at_no_revision(api: Api) -> None:
    for path, body in (
        ("/v1/beams/new", BEAM),
        ("/v1/terminals/99", VAN),
        (f"{TERMINAL}/route", LINE),
        ("/v1/users/eve", ADA),
    ):
        assert [put(api, path, body, tag).status for tag in ("*", '"1"')] == [412, 412]
    assert api.get("/v1/beams/new").status == api.get("/v1/terminals/99").status == 404
    assert api.get("/v1/users", caller="administrator").json["users"] == []


def if_none(api: Api, path: str, body: Any, tag: str) -> int:
    headers = {"If-None-Match": tag}
    return api.call("PUT", path, body, caller="administrator", headers=headers).status


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/beams/new", BEAM),
        ("/v1/terminals/99", VAN),
        (f"{TERMINAL}/route", LINE),
        (f"{TERMINAL}/settings", {}),
        ("/v1/gateways/1/settings", {}),
        ("/v1/slices/one", vehicle()),
        ("/v1/users/eve", ADA),
    ],
)
def test_what_may_only_be_made_is_made_once(api: Api, path: str, body: Any) -> None:
    assert if_none(api, path, body, "no ETag") == 400
    assert if_none(api, path, body, "*") < 300
    assert if_none(api, path, body, "*") == 412
    tag = put(api, path, body).headers["ETag"]
    for known in (tag, f"W/{tag}", f'"0", {tag}'):
        assert if_none(api, path, body, known) == 412
    assert put(api, path, body, tag).status == 200
    assert if_none(api, path, body, '"0"') == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/beams/new", BEAM), ("/v1/terminals/99", VAN), (f"{TERMINAL}/settings", {})],
)
async def test_of_many_who_only_make_it_one_does(api: Api, path: str, body: Any) -> None:
    only = {"If-None-Match": "*"}
    asked = [api.ask("PUT", path, body, headers=only) for _ in range(8)]
    replies = sorted(await asyncio.gather(*asked), key=lambda reply: reply.status)
    assert replies[0].status < 300
    refused = [(reply.status, reply.problem) for reply in replies[1:]]
    assert refused == 7 * [(412, "it is there already")]


@pytest.mark.parametrize(
    ("path", "body", "module", "step"),
    [
        ("/v1/users/eve", ADA, users, "create_user"),
        ("/v1/slices/one", vehicle(), slices, "free_number"),
    ],
)
@pytest.mark.parametrize(
    ("headers", "refused"),
    [({"If-None-Match": "*"}, (412, "it is there already")), ({}, (409, "is taken"))],
)
async def test_of_two_who_have_found_a_name_free_the_second_is_told(
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: Any,
    module: Any,
    step: str,
    headers: dict[str, str],
    refused: tuple[int, str],
) -> None:
    take, both = getattr(module, step), asyncio.Barrier(2)

    async def together(*given: Any, **more: Any) -> Any:
        await both.wait()
        return await take(*given, **more)

    monkeypatch.setattr(module, step, together)
    of: dict[str, Any] = {"caller": "administrator", "headers": headers}
    asked = [api.ask("PUT", path, body, **of) for _ in range(2)]
    first, second = sorted(await asyncio.gather(*asked), key=lambda reply: reply.status)
    assert (first.status, second.status) == (201, refused[0])
    assert second.problem.endswith(refused[1])


async def test_the_client_does_not_overwrite_what_another_makes_meanwhile(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(str(api.client.make_url("")), api.tokens["operator"]) as client:
        ask = client._ask

        async def overtaken(method: str, path: str, **more: Any) -> Any:
            if method == "PUT":
                assert (await api.ask("PUT", path, BEAM)).status == 201
            return await ask(method, path, **more)

        monkeypatch.setattr(client, "_ask", overtaken)
        with pytest.raises(RefusedError) as refused:
            await client.change("/v1/beams/new", {**BEAM, "name": "lost"})
        monkeypatch.undo()
        assert refused.value.status == 412
        changed = await client.change("/v1/beams/new", {"forward_capacity_bps": 2})
    assert (changed["name"], changed["forward_capacity_bps"]) == (BEAM["name"], 2)


@pytest.mark.parametrize("path", ["/v1/beams/new", TERMINAL, f"{TERMINAL}/route", "/v1/users/ada"])
def test_what_has_been_changed_meanwhile_is_not_deleted(api: Api, path: str) -> None:
    settled(api)
    assert put(api, "/v1/beams/new", BEAM).status == 201
    read = None if path.startswith("/v1/users") else path
    tag = tag_of(api, read)
    bodies = {"/v1/beams/new": BEAM, TERMINAL: VAN, f"{TERMINAL}/route": LINE}
    assert put(api, path, bodies.get(path, {"role": "operator"})).status == 200

    def delete(shown: str) -> int:
        headers = {"If-Match": shown}
        return api.call("DELETE", path, caller="administrator", headers=headers).status

    assert delete(tag) == 412
    assert delete(tag_of(api, read)) == 204
    assert delete(tag) == 404


@pytest.mark.parametrize("path", ["/v1/beams/new", TERMINAL])
@pytest.mark.parametrize("knows", [True, False])
def test_what_is_being_deleted_is_not_given_up_half_way(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, knows: bool
) -> None:
    settled(api)
    assert put(api, "/v1/beams/new", BEAM).status == 201
    body = BEAM if path == "/v1/beams/new" else VAN
    tag = tag_of(api, path)
    others: list[int] = []

    async def meanwhile(*given: Any) -> int:
        gone = await portions.delete_all(*given)
        headers = {"If-Match": tag} if knows else {}
        reply = await api.ask("PUT", path, body, caller="administrator", headers=headers)
        others.append(reply.status)
        return gone

    monkeypatch.setattr("underpass_control.http.registry.delete_all", meanwhile)
    # Its reports are deleted in portions, and other work has its turn between these.
    shown = {"If-Match": tag}
    assert api.call("DELETE", path, caller="administrator", headers=shown).status == 204
    assert set(others) == {412 if knows else 200}
    assert api.get(path).status == 404


def test_what_is_made_anew_is_another(api: Api) -> None:
    settled(api)
    of_terminal, of_user = tag_of(api, TERMINAL), tag_of(api, None)
    for path, body, before in ((TERMINAL, VAN, of_terminal), ("/v1/users/ada", ADA, of_user)):
        assert api.call("DELETE", path, caller="administrator").status == 204
        assert put(api, path, body).status == 201
        assert put(api, path, body, before).status == 412
    assert api.get(TERMINAL, headers={"If-None-Match": of_terminal}).status == 200


def test_a_proxy_may_have_made_an_etag_weak(api: Api) -> None:
    tag = tag_of(api, TERMINAL)
    for known in (f"W/{tag}", f'"0",{tag}', "*"):
        assert api.get(TERMINAL, headers={"If-None-Match": known}).status == 304
    assert api.get(TERMINAL, headers={"If-None-Match": '"0"'}).status == 200


def test_of_two_who_set_a_user_at_once_one_gets_all_of_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(api)
    change, both = users.change_user, asyncio.Barrier(2)

    async def together(*given: Any, **more: Any) -> list[int]:
        # Both have read the user.
        await both.wait()
        return await change(*given, **more)

    monkeypatch.setattr(users, "change_user", together)
    asked = [{"role": "operator"}, {"role": "viewer", "tenant": "default"}]

    async def at_once(headers: dict[str, str]) -> list[int]:
        of: dict[str, Any] = {"caller": "administrator", "headers": headers}
        replies = [api.ask("PUT", "/v1/users/ada", body, **of) for body in asked]
        return sorted(reply.status for reply in await asyncio.gather(*replies))

    assert api.run(at_once({})) == [200, 200]
    (user,) = api.get("/v1/users", caller="administrator").json["users"]
    assert {name: user[name] for name in ("role", "tenant") if name in user} in asked
    monkeypatch.setattr(users, "change_user", change)
    assert put(api, "/v1/users/ada", {"role": "administrator"}).status == 200
    monkeypatch.setattr(users, "change_user", together)
    assert api.run(at_once({"If-Match": tag_of(api, None)})) == [200, 412]


def test_of_two_who_set_tags_at_once_the_second_is_told(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch, both = registry.touch, asyncio.Barrier(2)

    async def together(*given: Any, **more: Any) -> None:
        await both.wait()
        await touch(*given, **more)

    monkeypatch.setattr(registry, "touch", together)

    async def at_once(headers: dict[str, str]) -> list[int]:
        bodies = ({"tags": ["a", "b"]}, {"tags": ["b", "c"]})
        path = f"{TERMINAL}/tags"
        asked = [api.ask("PUT", path, body, headers=headers) for body in bodies]
        return sorted(reply.status for reply in await asyncio.gather(*asked))

    assert api.run(at_once({"If-Match": tag_of(api, TERMINAL)})) == [200, 412]
    assert api.run(at_once({})) == [200, 200]
    assert api.get(TERMINAL).json["tags"] in (["a", "b"], ["b", "c"])
