"""Remote settings of terminals and gateways: who sets them, versions, and outcomes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from underpass_control.storage import settings

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.sse import Stream
from tests.control_api.service.test_plan_stream import HUB, OTHER_HUB, serve
from tests.control_api.service.test_reports import entry, envelope, link, status

_PATH = f"/v1/terminals/{FIRST}/settings"
_OF_HUB = f"/v1/gateways/{HUB}/settings"
_HUB_BODY = {
    "classes": [{"name": "bulk", "policy": "migrate", "paths": ["lte", "beam"]}],
    "terminals": [
        {"node": FIRST, "weight": 3, "path": [{"listener": "lte", "direction": "receive"}]}
    ],
}
_BODY = {
    "classes": [
        {
            "name": "bulk",
            "policy": "migrate",
            "paths": ["lte", "satellite"],
            "migrate": {"after_s": 3.0},
        }
    ],
    "paths": [{"name": "satellite", "on_demand": {"idle_s": 30.0}}],
}


async def _put(api: Api, body: Any) -> tuple[int, dict[str, Any]]:
    reply = await api.ask("PUT", _PATH, body)
    return reply.status, reply.json


async def _shown(api: Api) -> dict[str, Any]:
    shown: dict[str, Any] = (await api.ask("GET", _PATH)).json
    return shown


async def _settings(api: Api, gateway: int, count: int) -> list[dict[str, Any]]:
    """Return the first settings that a gateway is sent."""
    found: list[dict[str, Any]] = []
    path = f"/v1/gateways/{gateway}/plans"
    async with api.client.get(path, headers=api.headers("gateway")) as response:
        stream = Stream(response)
        while len(found) < count:
            kind, document = await stream.next()
            if kind == "settings":
                found.append(document)
    return found


async def _report(api: Api, node: int, **report: Any) -> dict[str, Any]:
    said = {"kind": "settings", "uptime_ms": 5_000, "incarnation": 7, **report}
    post = {
        "version": 1,
        "node": HUB,
        "sent_ms": now_ms(),
        "reports": [{"node": node, "age_ms": 10, "report": said}],
    }
    reply = await api.ask("POST", "/v1/reports", post, caller="gateway")
    assert reply.status == 200, reply.text
    answer: dict[str, Any] = reply.json
    return answer


async def test_each_change_has_a_higher_version_and_is_written_down(api: Api) -> None:
    assert (await api.ask("GET", _PATH)).status == 404
    status, first = await _put(api, _BODY)
    assert (status, first["state"]) == (200, "waiting")
    assert first["classes"] == _BODY["classes"]
    status, second = await _put(api, {})
    assert second["version"] > first["version"]
    assert (second["classes"], second["paths"]) == ([], [])
    listed = (await api.ask("GET", "/v1/settings")).json
    assert [one["terminal"] for one in listed["settings"]] == [FIRST]
    changes = (await api.ask("GET", f"/v1/audit?target={_PATH}", caller="administrator")).json
    assert [one["action"] for one in changes["entries"]] == ["set", "set"]
    assert changes["entries"][1]["after"]["class"][0]["name"] == "bulk"


async def test_whoever_has_not_seen_the_last_change_is_told(api: Api) -> None:
    tag = (await api.ask("PUT", _PATH, _BODY)).headers["ETag"]
    seen = {"If-Match": tag}
    assert (await api.ask("PUT", _PATH, {}, headers=seen)).status == 200
    assert (await api.ask("PUT", _PATH, _BODY, headers=seen)).status == 412


async def test_a_preview_names_each_key_with_its_values_and_changes_nothing(api: Api) -> None:
    preview = _PATH + "/preview"
    first = await api.ask("POST", preview, {"classes": [{"name": "bulk", "weight": 5}]})
    assert first.json == {"changes": [{"key": "class.bulk.weight", "after": 5}]}
    assert (await api.ask("GET", _PATH)).status == 404
    _, made = await _put(api, _BODY)
    body = {
        "classes": [
            {"name": "normal", "weight": 2},
            {**_BODY["classes"][0], "migrate": {"after_s": 4.0}},
        ]
    }
    seen = await api.ask("POST", preview, body)
    assert seen.json == {
        "version": made["version"],
        "changes": [
            {"key": "class.bulk.migrate.after_s", "before": 3.0, "after": 4.0},
            {"key": "class.normal.weight", "after": 2},
            {"key": "path.satellite.on_demand.idle_s", "before": 30.0},
        ],
    }
    assert (await _shown(api))["version"] == made["version"]
    same = await api.ask("POST", preview, _BODY)
    assert same.json["changes"] == []
    shown = {"If-Match": seen.headers["ETag"]}
    assert (await api.ask("PUT", _PATH, body, headers=shown)).status == 200
    # What has been previewed is no longer all that it would change.
    assert (await api.ask("PUT", _PATH, body, headers=shown)).status == 412
    assert (await api.ask("POST", "/v1/terminals/99/settings/preview", {})).status == 404
    assert (await api.ask("POST", preview, body, caller="viewer")).status == 403


async def test_a_preview_shows_what_a_rollout_would_change_of_what_is_set(api: Api) -> None:
    preview = _PATH + "/preview?merged=true"
    body = {"classes": [{"name": "bulk", "weight": 5}]}
    assert (await api.ask("POST", preview, body)).json == {
        "changes": [{"key": "class.bulk.weight", "after": 5}]
    }
    _, made = await _put(api, _BODY)
    # All else that is set stays, of the same class, too.
    assert (await api.ask("POST", preview, body)).json == {
        "version": made["version"],
        "changes": [{"key": "class.bulk.weight", "after": 5}],
    }
    assert (await _shown(api))["version"] == made["version"]


async def test_a_preview_says_which_paths_the_terminal_has_not_reported(api: Api) -> None:
    preview = _PATH + "/preview"
    body = {
        "classes": [{"name": "gold", "weight": 5}],
        "paths": [
            {"name": "satellite", "rtt_ms": 600},
            {"name": "lte", "rtt_ms": 70},
            {"name": "5g", "rtt_ms": 30},
            {"name": "further", "neighbour": HUB, "remote": "192.0.2.1:4556"},
        ],
    }

    async def unreported(*paths: str, **members: Any) -> Any:
        made = status(*(link(path=path, **members) for path in paths))
        post = envelope(entry(made), node=HUB)
        assert (await api.ask("POST", "/v1/reports", post, caller="gateway")).json["accepted"] == 1
        return (await api.ask("POST", preview, body)).json.get("unreported_paths")

    # What is not known is not said: of a terminal that has reported nothing, or by an earlier
    # version, and of the other paths of one that has more, or longer names, than are kept.
    assert "unreported_paths" not in (await api.ask("POST", preview, body)).json
    assert await unreported("satellite") is None
    figures = {"queue_ms": 0, "loss": 0, "stored_bundles": 0, "stored_bytes": 0, "classes": []}
    many = [f"path-{n}" for n in range(12)]
    assert await unreported("satellite", *many, figures=figures) is None
    # Of so long names fewer are kept: in a change each of these characters takes twelve bytes.
    long = [f"{n}" + 30 * "\N{ROCKET}" for n in range(6)]
    assert await unreported("satellite", *long, "lte", "5g", figures=figures) is None
    assert await unreported("satellite", "lte", figures=figures) == ["5g"]
    assert await unreported("satellite", figures=figures) == ["lte", "5g"]
    assert await unreported("satellite", "lte", "5g", figures=figures) is None


async def test_a_preview_of_a_gateway_names_terminals_and_their_paths(api: Api) -> None:
    assert (await api.ask("PUT", _OF_HUB, _HUB_BODY)).status == 200
    body = {
        **_HUB_BODY,
        "terminals": [{"node": FIRST, "path": [{"listener": "lte", "direction": "both"}]}],
    }
    seen = (await api.ask("POST", _OF_HUB + "/preview", body)).json
    path = f"terminal.{FIRST}.path.lte.direction"
    assert seen["changes"] == [
        {"key": path, "before": "receive", "after": "both"},
        {"key": f"terminal.{FIRST}.weight", "before": 3},
    ]


async def test_who_has_seen_that_nothing_is_set_sets_it_only_as_the_first(api: Api) -> None:
    for path, body in ((_PATH, _BODY), (_OF_HUB, _HUB_BODY)):
        seen = {"If-Match": (await api.ask("POST", path + "/preview", body)).headers["ETag"]}
        # Nothing is no version of it.
        assert (await api.ask("PUT", path, body, headers={"If-Match": "*"})).status == 412
        assert (await api.ask("PUT", path, body, headers={"If-Match": '"1"'})).status == 412
        assert (await api.ask("PUT", path, body, headers=seen)).status == 200
        assert (await api.ask("PUT", path, {}, headers=seen)).status == 412
        assert (await api.ask("GET", path)).json["classes"] == body["classes"]
    unknown = await api.ask("PUT", "/v1/terminals/99/settings", {}, headers=seen)
    assert unknown.status == 404


@pytest.mark.parametrize("is_first", [False, True])
async def test_of_two_who_have_seen_the_same_one_is_told(
    api: Api, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    before = "/preview" if is_first else ""
    answer = await api.ask("POST" if is_first else "PUT", _PATH + before, _BODY)
    seen = {"If-Match": answer.headers["ETag"]}
    get = settings.get

    async def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(settings, "get", get)
        found = await get(*arguments, **options)
        assert (await api.ask("PUT", _PATH, {}, headers=seen)).status == 200
        return found

    monkeypatch.setattr(settings, "get", overtaken)
    assert (await api.ask("PUT", _PATH, _BODY, headers=seen)).status == 412
    assert (await api.ask("GET", _PATH)).json["classes"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"classes": [{"name": "bulk", "priority": 0}]},
        {"classes": [{"name": "bulk"}, {"name": "bulk"}]},
        {"classes": [{"name": "bulk", "policy": "best"}]},
        {"classes": [{"name": "bulk", "migrate": {"loss": 2.0}}]},
        {"paths": [{"name": "b", "neighbour": 1}]},
        {"paths": [{"name": "b", "neighbour": 1, "remote": "hub.example:4556"}]},
        {"paths": [{"name": "b", "neighbour": 1, "remote": "2001:db8::1:4556"}]},
        {"paths": [{"name": "b", "plain": True}]},
        {"paths": [{"name": "b", "on_demand": {"raise": ["/bin/sh"]}}]},
        {"paths": [{"name": f"p{n}"} for n in range(33)]},
        {"provider": {"may_set": ["path"]}},
    ],
)
async def test_what_no_node_takes_is_refused_here(unchanged: Api, body: dict[str, Any]) -> None:
    status, _ = await _put(unchanged, body)
    assert status == 422
    assert (await unchanged.ask("GET", _PATH)).status == 404


async def test_how_a_class_is_coded_is_set(api: Api) -> None:
    classes = [{"name": "bulk", "coded": "tail"}]
    status, _ = await _put(api, {"classes": classes})
    assert status == 200
    assert (await _shown(api))["classes"] == classes


async def test_a_gateway_is_sent_what_is_set_of_its_terminals_and_no_others(api: Api) -> None:
    await serve(api, HUB, FIRST)
    await serve(api, OTHER_HUB, SECOND)
    _, made = await _put(api, _BODY)
    other = await api.ask("PUT", f"/v1/terminals/{SECOND}/settings", {})
    assert other.status == 200
    [sent] = await _settings(api, HUB, 1)
    assert sent == {
        "version": 1,
        "settings": made["version"],
        "node": FIRST,
        "class": _BODY["classes"],
        "path": _BODY["paths"],
    }
    following = asyncio.create_task(_settings(api, HUB, 2))
    await asyncio.sleep(0.3)
    _, later = await _put(api, {})
    assert [one["settings"] for one in await following] == [made["version"], later["version"]]


async def test_what_becomes_of_it_is_shown_and_an_old_word_changes_nothing(api: Api) -> None:
    await serve(api, HUB, FIRST, SECOND)
    _, made = await _put(api, _BODY)
    version = made["version"]
    await _report(api, FIRST, settings=version, applied=False, reason="there is no class")
    shown = await _shown(api)
    assert (shown["state"], shown["reported"]["reason"]) == ("refused", "there is no class")
    await _report(api, FIRST, settings=version, applied=True)
    await _report(api, FIRST, settings=version - 1, applied=False, reason="old")
    shown = await _shown(api)
    assert shown["state"] == "applied"
    assert "reason" not in shown["reported"] or shown["reported"]["reason"] is None
    _, later = await _put(api, {})
    assert later["state"] == "waiting"
    # Reports of settings that were not set here, and of a terminal without settings.
    await _report(api, FIRST, settings=later["version"] + 1_000, applied=True)
    await _report(api, SECOND, settings=1, applied=True)
    assert (await _shown(api))["state"] == "waiting"


async def test_of_many_settings_only_those_that_were_not_sent_are_read_again(api: Api) -> None:
    await serve(api, HUB, FIRST, SECOND)
    assert (await api.ask("PUT", f"/v1/terminals/{SECOND}/settings", {})).status == 200
    assert (await api.ask("PUT", _OF_HUB, {})).status == 200
    _, first = await _put(api, _BODY)
    all_of_them = {(FIRST, False), (SECOND, False), (HUB, True)}

    async def read(sent: dict[settings.Whose, int]) -> list[settings.Outgoing]:
        async with api.database.reading() as connection:
            whose, found = await settings.of_gateway(connection, HUB, sent)
        assert whose == all_of_them
        sent |= {(one.node, one.is_own): one.version for one in found}
        return found

    sent: dict[settings.Whose, int] = {}
    found = await read(sent)
    assert {(one.node, one.is_own) for one in found} == all_of_them
    assert sent[FIRST, False] == first["version"]
    assert await read(sent) == []
    _, later = await _put(api, {})
    [one] = await read(sent)
    assert (one.node, one.version) == (FIRST, later["version"])


async def test_a_gateway_speaks_for_its_own_terminals_only(api: Api) -> None:
    await serve(api, OTHER_HUB, FIRST)
    _, made = await _put(api, _BODY)
    answer = await _report(api, FIRST, settings=made["version"], applied=True)
    # The terminal is at another gateway.
    assert (answer["accepted"], len(answer["refused"])) == (0, 1)
    stranger = await _report(api, 4_000, settings=1, applied=True)
    assert len(stranger["refused"]) == 1


@pytest.mark.parametrize("caller", ["viewer", "gateway", "first"])
async def test_only_operators_set_anything(api: Api, caller: str) -> None:
    assert (await api.ask("PUT", _PATH, _BODY, caller=caller)).status == 403


async def test_a_gateway_is_sent_its_own_settings_and_says_what_becomes_of_them(api: Api) -> None:
    assert (await api.ask("GET", _OF_HUB)).status == 404
    made = await api.ask("PUT", _OF_HUB, _HUB_BODY)
    assert (made.status, made.json["state"], made.json["gateway"]) == (200, "waiting", HUB)
    assert made.json["terminals"] == _HUB_BODY["terminals"]
    version = made.json["version"]
    # Another gateway gets nothing of it.
    await serve(api, HUB, FIRST)
    await serve(api, OTHER_HUB, SECOND)
    assert (await api.ask("PUT", f"/v1/terminals/{SECOND}/settings", {})).status == 200
    [sent] = await _settings(api, HUB, 1)
    assert sent == {
        "version": 1,
        "settings": version,
        "node": HUB,
        "class": _HUB_BODY["classes"],
        "path": [],
        "terminal": _HUB_BODY["terminals"],
    }
    following = asyncio.create_task(_settings(api, HUB, 2))
    await asyncio.sleep(0.3)
    later = (await api.ask("PUT", _OF_HUB, {}, headers={"If-Match": f'"{version}"'})).json
    assert [one["settings"] for one in await following] == [version, later["version"]]
    assert (await api.ask("PUT", _OF_HUB, {}, headers={"If-Match": '"1"'})).status == 412
    for state in ("trial", "rolled-back"):
        applied = state == "trial"
        said = {} if applied else {"reason": "only 0 of 1 terminals were heard"}
        await _report(api, HUB, settings=later["version"], applied=applied, state=state, **said)
        assert (await api.ask("GET", _OF_HUB)).json["state"] == state
    changes = (await api.ask("GET", f"/v1/audit?target={_OF_HUB}", caller="administrator")).json
    assert changes["entries"][1]["after"]["terminal"][0]["node"] == FIRST


@pytest.mark.parametrize(
    "body",
    [
        {"terminals": [{"weight": 2}]},
        {"terminals": [{"node": 10}, {"node": 10}]},
        {"terminals": [{"node": 10, "networks": ["10.0.0.0/8"]}]},
        {"terminals": [{"node": 10, "path": [{"listener": "a"}, {"listener": "a"}]}]},
        {"terminals": [{"node": 10, "on_demand": {"within_s": 3.0}}]},
        {"terminals": [{"node": n} for n in range(10, 511)]},
        {"listeners": []},
    ],
)
async def test_what_no_gateway_takes_is_refused_here(unchanged: Api, body: dict[str, Any]) -> None:
    assert (await unchanged.ask("PUT", _OF_HUB, body)).status == 422
    assert (await unchanged.ask("POST", _OF_HUB + "/preview", body)).status == 422
    assert (await unchanged.ask("GET", _OF_HUB)).status == 404
    no_node = "/v1/gateways/0/settings"
    assert (await unchanged.ask("PUT", no_node, {})).status == 404
    assert (await unchanged.ask("POST", no_node + "/preview", {})).status == 404
    # Nor can a terminal have terminals.
    assert (await unchanged.ask("PUT", _PATH, _HUB_BODY)).status == 422
