"""Vehicles that move in a dense town; one process predicts and plans for them."""

from __future__ import annotations

import asyncio
import math
import re
import tempfile
import time
from dataclasses import dataclass, replace

import aiohttp

from dama.prediction import Fix, Obstruction
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.control_service import (
    ControlService,
    control_service,
    metrics_of,
    put_full_beam,
    put_obstructions,
    until_idle,
    until_ready,
)
from tests.benchmarks.moving_posts import Fleet, post_moving
from tests.benchmarks.records import Result, record
from tests.drives import field
from tests.drives.extract import Extract, read_extract
from tests.drives.kinds import FREE, drives_over

TOWN = "moscow"
_VEHICLES = 2_000
# Distinct drives; several vehicles share one, at different times.
_DRIVES = 120
_GATEWAY = 100_000
_BEAM_BPS = 400_000_000
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
    if result.left_out(field.missing(field.EXTRACTS[TOWN])):
        return result
    town = read_extract(field.FIELD / field.EXTRACTS[TOWN])
    tracks = tracks_over(town, settings.seed)
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


def tracks_over(town: Extract, seed: int) -> list[tuple[Fix, ...]]:
    """Return the fixes of free drives over a town's roads."""
    return [made.drive.fixes for made in drives_over(town, _DRIVES, seed, FREE)]


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
        await put_obstructions(operator, obstructions)
        fleet = Fleet(_GATEWAY, 1, _VEHICLES, tracks)
        await put_full_beam(operator, _VEHICLES, _GATEWAY, _BEAM_BPS)
        await until_idle(service)
        await post_moving(gateway, fleet, _WARM_S)
        return [await _run(service, operator, gateway, fleet) for _ in range(runs)]


async def _run(
    service: ControlService,
    operator: aiohttp.ClientSession,
    gateway: aiohttp.ClientSession,
    fleet: Fleet,
) -> _Measured:
    before, began_s, began = await metrics_of(operator), service.processor_s(), time.monotonic()
    answered_s = (await post_moving(gateway, fleet, _RUN_S)).answered_s
    lasted_s = time.monotonic() - began
    taken = (service.processor_s() - began_s) / lasted_s
    after = await metrics_of(operator)
    answered_s.sort()
    answer_s = answered_s[int(0.99 * len(answered_s))]
    return _Measured(
        taken,
        answer_s + p99_s(before, after, "positions_to_predictions"),
        answer_s + p99_s(before, after, "report_to_plan"),
        60 * (plans(after) - plans(before)) / lasted_s,
    )


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
