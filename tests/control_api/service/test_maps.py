"""Maps, replaced by source: obstructions no longer on a map go, those of other maps stay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from underpass_control.cli import app
from underpass_control.http import maps
from underpass_control.http.sequences import Pace

from tests.control_api.service.api import Api, Reply
from tests.control_api.service.test_expectations import LOSS, PLACE, learn
from tests.control_api.service.test_tags import NASTY


def tunnel(name: str, longitude: float = 7.0) -> dict[str, Any]:
    line = [[longitude, 46.0], [longitude + 0.01, 46.0]]
    return {
        "type": "Feature",
        "id": name,
        "geometry": {"type": "LineString", "coordinates": line},
        "properties": {"name": name},
    }


def put(api: Api, source: str, *features: Any, kind: str = "application/geo+json-seq") -> Reply:
    text = "".join(one if isinstance(one, str) else f"{json.dumps(one)}\n" for one in features)
    return api.call("PUT", f"/v1/maps/{source}", text, content_type=kind)


def ids(api: Api) -> list[str]:
    return [one["id"] for one in api.get("/v1/obstructions").json["features"]]


def counts(api: Api) -> dict[str, int]:
    return {one["source"]: one["obstructions"] for one in api.get("/v1/maps").json["maps"]}


def test_what_is_no_longer_on_a_map_goes_and_others_stay(api: Api) -> None:
    assert put(api, "other", tunnel("c")).json == {"obstructions": 1, "removed": 0}
    assert put(api, "town", tunnel("a"), tunnel("b")).json == {"obstructions": 2, "removed": 0}
    assert put(api, "town", tunnel("b", 8.0), tunnel("d")).json == {"obstructions": 2, "removed": 1}
    assert ids(api) == ["b", "c", "d"]
    assert counts(api) == {"other": 1, "town": 2}
    (moved,) = api.get("/v1/obstructions?bbox=7.9,45,8.1,47").json["features"]
    assert moved["id"] == "b"
    assert api.call("DELETE", "/v1/maps/town").status == 204
    assert (ids(api), api.call("DELETE", "/v1/maps/town").status) == (["c"], 404)
    entries = api.get("/v1/audit?target=/v1/maps/town", caller="administrator").json["entries"]
    assert [one["action"] for one in entries] == ["delete", "set", "set"]
    assert entries[1]["after"] == {"obstructions": 2, "removed": 1}


def test_a_sequence_with_record_separators_and_a_last_line_without_end(api: Api) -> None:
    content = "\x1e" + json.dumps(tunnel("a")) + "\r\n\n\x1e" + json.dumps(tunnel(NASTY))
    assert put(api, "a%20map%20%3Cb%3E", content).status == 200
    assert counts(api) == {"a map <b>": 2}


BAD = [
    ("", "no feature"),
    ("[]\n", "feature 2: it is no GeoJSON feature"),
    ("{\n", "feature 2"),
    ('{"type": "FeatureCollection", "features": []}\n', "a line of its own"),
    ("[" * 100_000 + "\n", "feature 2"),
    (json.dumps(tunnel("a")) + "\n", "another one has its id"),
    (json.dumps(tunnel("x" * 200)) + "\n", "more than 128 characters"),
    (json.dumps({**tunnel("b"), "geometry": {"type": "Point"}}) + "\n", "feature 2"),
    ('{"type": "Feature", "x": "' + "x" * (1 << 20) + '"}\n', "feature 2 has more than"),
    ("x" * (3 << 20), "feature 2 has more than"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_bad_feature_leaves_the_map_as_it_was(unchanged: Api, bad: str, reason: str) -> None:
    assert put(unchanged, "town", tunnel("old")).status == 200
    refused = put(unchanged, "town", *([tunnel("a")] if bad else []), bad)
    assert (refused.status, reason in refused.problem) == (422, True), refused.text
    assert len(refused.text) < 600
    assert ids(unchanged) == ["old"]


def test_a_map_that_is_too_large_is_refused_before_it_is_kept(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "_MOST_BYTES", 4_000_000)
    line = json.dumps(tunnel("a")).encode() + b" " * 100_000 + b"\n"

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield line.replace(b'"a"', b'"%d"' % len(sent))
            sent.append(1)

    sent: list[int] = []

    async def ask() -> int:
        headers = {**api.headers("operator"), "Content-Type": "application/geo+json-seq"}
        async with api.client.put("/v1/maps/town", data=endless(), headers=headers) as answer:
            return answer.status

    # The answer may be lost: a client that is still sending finds the connection closed.
    with suppress(ConnectionError):
        assert api.run(ask()) == 413
    assert len(sent) < 1000
    assert ids(api) == []
    monkeypatch.setattr(maps, "_MOST_FEATURES", 2)
    refused = put(api, "town", *(tunnel(f"{n}") for n in range(3)))
    assert (refused.status, "more than 2 features" in refused.problem) == (422, True)


def test_who_sends_nothing_more_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "_PACE", Pace(0.2, 1.0, 10.0))

    async def silent() -> AsyncIterator[bytes]:
        yield json.dumps(tunnel("a")).encode() + b"\n"
        await asyncio.sleep(20)

    async def ask() -> int:
        headers = {**api.headers("operator"), "Content-Type": "application/geo+json-seq"}
        async with api.client.put("/v1/maps/town", data=silent(), headers=headers) as answer:
            return answer.status

    assert api.run(ask()) == 408
    assert ids(api) == []


@pytest.mark.parametrize("pace", [Pace(1.0, 1_000.0, 60.0), Pace(1.0, 1.0, 1.0)])
def test_who_sends_ever_more_but_slowly_is_refused(
    api: Api, monkeypatch: pytest.MonkeyPatch, pace: Pace
) -> None:
    monkeypatch.setattr(maps, "_PACE", pace)

    async def dripping() -> AsyncIterator[bytes]:
        yield json.dumps(tunnel("a")).encode() + b"\n"
        for _ in range(100):
            await asyncio.sleep(0.1)
            yield b"\n"

    async def ask() -> int:
        headers = {**api.headers("operator"), "Content-Type": "application/geo+json-seq"}
        async with api.client.put("/v1/maps/town", data=dripping(), headers=headers) as answer:
            return answer.status

    assert api.run(ask()) == 408
    assert ids(api) == []


def test_of_two_who_replace_a_map_at_once_one_has_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert put(api, "town", tunnel("old"), tunnel("common")).status == 200
    portions, begun = maps._portions, asyncio.Event()
    count = 0

    async def together(file: Any) -> AsyncIterator[Any]:
        nonlocal count
        count += 1
        if count == 2:
            begun.set()
        # The second may have to wait until the first is done.
        with suppress(TimeoutError):
            await asyncio.wait_for(begun.wait(), 0.5)
        async for some in portions(file):
            yield some

    monkeypatch.setattr(maps, "_portions", together)
    asked = [{"a", "common"}, {"b", "common"}]

    async def at_once() -> list[int]:
        bodies = ["".join(f"{json.dumps(tunnel(one))}\n" for one in some) for some in asked]
        kind = "application/geo+json-seq"
        replies = [api.ask("PUT", "/v1/maps/town", body, content_type=kind) for body in bodies]
        return [reply.status for reply in await asyncio.gather(*replies)]

    assert api.run(at_once()) == [200, 200]
    assert set(ids(api)) in asked


def test_learned_places_are_no_map_and_other_kinds_of_body_are_refused(api: Api) -> None:
    for answer in (put(api, "learned", tunnel("a")), api.call("DELETE", "/v1/maps/learned")):
        assert (answer.status, "learned" in answer.problem) == (409, True)
    assert put(api, "x" * 65, tunnel("a")).status == 404
    assert put(api, "town", tunnel("a"), kind="application/json").status == 415


def test_no_map_takes_over_a_learned_place(api: Api) -> None:
    learn(api, LOSS)
    (place,) = api.get("/v1/obstructions").json["features"]
    assert put(api, "town", tunnel("old")).status == 200
    counts = {"lost", "held"}
    of_place = {name: one for name, one in place["properties"].items() if name not in counts}
    bare = [tunnel("new"), {**place, "properties": of_place}]
    collection = {"type": "FeatureCollection", "features": bare}
    for refused in (
        put(api, "town", tunnel("new"), place),
        api.call("POST", "/v1/obstructions", collection),
    ):
        assert refused.status == 422
        assert f"'{PLACE.id}' is a learned place" in refused.problem
    assert learn(api) == ([PLACE.id, "old"], {PLACE.id: PLACE})


def test_a_map_is_imported_in_place_of_the_one_before(url: str, tmp_path: Path) -> None:
    path = tmp_path / "town.geojson"

    def imported(*features: dict[str, Any]) -> dict[str, int]:
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        command = ["obstruction", "import", str(path), "--json", "--database", url]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        told: dict[str, int] = json.loads(done.stdout)
        return told

    assert imported(tunnel("a"), tunnel("b")) == {"imported": 2, "removed": 0}
    assert imported(tunnel("b"), tunnel("c")) == {"imported": 2, "removed": 1}
    assert imported(tunnel("b"), tunnel("c")) == {"imported": 2, "removed": 0}
