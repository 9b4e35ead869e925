"""Vehicles that move in a dense town; one process predicts and plans for them."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import aiohttp

from dama.prediction import Fix, Obstruction
from dama.prediction.geojson import to_feature
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.control_service import (
    ControlService,
    control_service,
    put_beam,
    put_terminals,
    until_ready,
)
from tests.benchmarks.records import Result, record
from tests.drives import field
from tests.drives.extract import Extract, read_extract
from tests.drives.kinds import FREE, drives_over

_TOWN = "moscow"
_VEHICLES = 2_000
# Distinct drives; several vehicles share one, at different times.
_DRIVES = 120
_GATEWAY = 100_000
_BEAM_BPS = 400_000_000
# Each post has the reports of so many vehicles; posts are spread evenly over the second.
_IN_A_POST = 100
_IN_AN_IMPORT = 20
_IDLE_S = 3.0
_WARM_S = 15.0
_RUN_S = 25.0
_BUCKET = r'^underpass_control_{}_seconds_bucket\{{le="([^"]+)"\}} (\S+)$'
_PLANS = re.compile(r'^underpass_control_plans_total\{link="forward",[^}]*\} (\S+)$', re.M)
# A map of a country has the same town, and others like it far away.
_ROADS = 100_000


def run(settings: Settings) -> Result:
    """Move vehicles on a map of the town, and on one of a country."""
    result = Result("moving-vehicles")
    result.told["underpass"] = "the map, and each position as a gateway posts it"
    if result.left_out(field.missing(field.EXTRACTS[_TOWN])):
        return result
    town = read_extract(field.FIELD / field.EXTRACTS[_TOWN])
    tracks = [made.drive.fixes for made in drives_over(town, _DRIVES, settings.seed, FREE)]
    for name, obstructions in (("town", list(town.obstructions)), ("country", country(town))):
        roads = len({road.id for one in obstructions for road in one.roads})
        result.notes[f"roads of the map, {name}"] = roads
        measured = _measure(tracks, obstructions, settings.runs or 5)
        for part, values in (
            ("processor", [one.processor for one in measured]),
            ("vehicles", [_VEHICLES / one.processor for one in measured]),
            ("delay", [one.delay_s for one in measured]),
            ("plan", [one.plan_s for one in measured]),
            ("plans", [one.plans_per_min for one in measured]),
        ):
            made = record(f"moving-vehicles.{name}.{part}", "underpass", values)
            result.records.append(made)
            say(f"{made.id}: {made.median:.3g} {made.unit}")
    result.notes["measured"] = (
        f"{_VEHICLES:,} vehicles of one beam at 1 Hz for {_RUN_S:.0f} s, on SQLite; the delay is "
        "the 99th percentile from a post to its answer, when the positions are on disk and told, "
        "and that from there to the predictions, or to the stored plan, added"
    )
    return result


@dataclass(frozen=True)
class _Measured:
    processor: float
    # From a fix to the predictions, and to the plan that they lead to.
    delay_s: float
    plan_s: float
    plans_per_min: float


def country(town: Extract) -> list[Obstruction]:
    """Return the town's obstructions, and so many far away that the map is a country's."""
    found = list(town.obstructions)
    # Neighbouring obstructions share roads.
    roads = len({road.id for one in found for road in one.roads})
    for copy in range(1, math.ceil(_ROADS / roads)):
        found += [_elsewhere(one, copy) for one in town.obstructions]
    return found


def _elsewhere(obstruction: Obstruction, copy: int) -> Obstruction:
    east, north = 0.2 * (copy % 20), 0.1 * (copy // 20)
    name = f"{copy}:"

    def road_id(given: str) -> str:
        return name + given

    return replace(
        obstruction,
        id=name + obstruction.id,
        roads=tuple(
            replace(
                road,
                id=road_id(road.id),
                line=tuple((lon + east, lat + north) for lon, lat in road.line),
                covered_by=road.covered_by and name + road.covered_by,
                onward=tuple(replace(one, road_id=road_id(one.road_id)) for one in road.onward),
            )
            for road in obstruction.roads
        ),
    )


def _measure(
    tracks: list[tuple[Fix, ...]], obstructions: list[Obstruction], runs: int
) -> list[_Measured]:
    with (
        tempfile.TemporaryDirectory() as folder,
        control_service(f"sqlite:///{folder}/control.db") as service,
    ):
        return asyncio.run(_runs(service, tracks, obstructions, runs))


async def _runs(
    service: ControlService,
    tracks: list[tuple[Fix, ...]],
    obstructions: list[Obstruction],
    runs: int,
) -> list[_Measured]:
    async with (
        service.session(service.operator) as operator,
        service.session(service.gateway) as gateway,
    ):
        await until_ready(operator)
        features = list(map(to_feature, obstructions))
        for first in range(0, len(features), _IN_AN_IMPORT):
            some = features[first : first + _IN_AN_IMPORT]
            document = {"type": "FeatureCollection", "features": some}
            async with operator.post("/v1/obstructions", json=document) as answer:
                answer.raise_for_status()
        await put_beam(operator, "beam", 0)
        await put_terminals(operator, "beam", range(1, _VEHICLES + 1), _GATEWAY)
        await put_beam(operator, "beam", _BEAM_BPS)
        await _until_idle(service)
        seconds = _seconds(tracks)
        await _post(gateway, seconds, _WARM_S)
        return [await _run(service, operator, gateway, seconds) for _ in range(runs)]


async def _run(
    service: ControlService,
    operator: aiohttp.ClientSession,
    gateway: aiohttp.ClientSession,
    seconds: Iterator[list[Fix]],
) -> _Measured:
    before, began_s, began = await _metrics(operator), service.processor_s(), time.monotonic()
    answered_s = await _post(gateway, seconds, _RUN_S)
    lasted_s = time.monotonic() - began
    taken = (service.processor_s() - began_s) / lasted_s
    after = await _metrics(operator)
    answered_s.sort()
    answer_s = answered_s[int(0.99 * len(answered_s))]
    return _Measured(
        taken,
        answer_s + p99_s(before, after, "positions_to_predictions"),
        answer_s + p99_s(before, after, "report_to_plan"),
        60 * (plans(after) - plans(before)) / lasted_s,
    )


async def _until_idle(service: ControlService) -> None:
    """Wait until the service has read the map, which takes longer than its import."""
    async with asyncio.timeout(300):
        before_s = -math.inf
        while (now_s := service.processor_s()) - before_s > 0.1 * _IDLE_S:
            before_s = now_s
            await asyncio.sleep(_IDLE_S)


def _seconds(tracks: list[tuple[Fix, ...]]) -> Iterator[list[Fix]]:
    """Yield endlessly where each vehicle is in the next second."""
    dice = random.Random(1)
    begun = [dice.randrange(600) for _ in range(_VEHICLES)]
    on = [tracks[number % len(tracks)] for number in range(_VEHICLES)]
    for second in itertools.count():
        yield [track[(first + second) % len(track)] for track, first in zip(on, begun, strict=True)]


async def _post(
    gateway: aiohttp.ClientSession, seconds: Iterator[list[Fix]], run_s: float
) -> list[float]:
    """Post positions as they come; return each post's time until the answer."""
    taken: list[float] = []
    posts: list[asyncio.Task[None]] = []
    began = time.monotonic()
    every_s = _IN_A_POST / _VEHICLES

    async def post(body: bytes) -> None:
        sent = time.monotonic()
        async with gateway.post("/v1/reports", data=body) as answer:
            answer.raise_for_status()
            refused = (await answer.json())["refused"]
            if refused:
                raise RuntimeError(f"the service refuses reports: {refused[0]}")
        taken.append(time.monotonic() - sent)

    number = 0
    fixes: list[Fix] = []
    while number * every_s < run_s:
        for first in range(0, _VEHICLES, _IN_A_POST):
            if first == 0:
                fixes = next(seconds)
            await asyncio.sleep(max(began + number * every_s - time.monotonic(), 0.0))
            body = _body(first + 1, fixes[first : first + _IN_A_POST])
            posts.append(asyncio.create_task(post(body)))
            number += 1
    await asyncio.gather(*posts)
    return taken


def _body(first: int, fixes: list[Fix]) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    reports = [
        {
            "node": first + number,
            "age_ms": 0,
            "report": {
                "kind": "position",
                "longitude": fix.lon,
                "latitude": fix.lat,
                "speed_mps": fix.speed_mps,
                "heading_deg": fix.heading_deg,
                "accuracy_m": fix.accuracy_m,
                "gnss_time_ms": now_ms,
                "node_time_ms": now_ms,
                "synchronised": True,
                "uptime_ms": now_ms,
                "incarnation": 1,
            },
        }
        for number, fix in enumerate(fixes)
    ]
    post = {"version": 1, "node": _GATEWAY, "sent_ms": now_ms, "reports": reports}
    return json.dumps(post).encode()


async def _metrics(operator: aiohttp.ClientSession) -> str:
    async with operator.get("/metrics") as answer:
        return await answer.text()


def plans(metrics: str) -> float:
    """Return how many plans of a forward link the metrics count."""
    return sum(map(float, _PLANS.findall(metrics)))


def p99_s(before: str, after: str, name: str) -> float:
    """Return the 99th percentile of a histogram's times between two readings of the metrics, s.

    It is the upper bound of its bucket. If there was none, or that bucket has no bound, it is the
    time of a run.
    """
    earlier, later = (
        {float(le): float(count) for le, count in re.findall(_BUCKET.format(name), text, re.M)}
        for text in (before, after)
    )
    counts = [(le, count - earlier.get(le, 0.0)) for le, count in sorted(later.items())]
    total = counts[-1][1] if counts else 0.0
    found = [le for le, count in counts if count >= 0.99 * total]
    return min(found[0], _RUN_S) if total else _RUN_S
