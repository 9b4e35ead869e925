"""Two processes of the control service that plan a beam each, against one that plans both.

Vehicles move in a dense town at 1 Hz on two beams; each beam's gateway posts to the process that
has the beam's lease. At a load that all of them keep up with, the processor time per fix shows how
many vehicles the processes would serve if each had a core. How many they do serve where more is
offered also depends on the machine: here database and senders share its cores with them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp

from dama.prediction import Fix, Obstruction
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.control_service import (
    ControlService,
    beside,
    control_service,
    metrics_of,
    put_beam,
    put_obstructions,
    put_terminals,
    until_idle,
    until_ready,
)
from tests.benchmarks.experiments.moving_vehicles import TOWN, p99_s, tracks_over
from tests.benchmarks.moving_posts import Fleet, Posted, post_moving
from tests.benchmarks.records import Result, record
from tests.control_api import postgresql
from tests.drives import field
from tests.drives.extract import read_extract

_RUNS = 5
# Vehicles of each beam: so many post where all keep up, and all where more is offered.
_KEPT_UP, _OFFERED = 1_000, 1_500
_BEAM_BPS = 200_000_000
_GATEWAY = 100_000
# A gateway has so many posts without an answer at most, and leaves later ones out.
_MOST_OPEN = 20
_WARM_S, _RUN_S, _OFFERED_S = 15.0, 25.0, 15.0
# The part of a core that a process takes at most once it has read the map and what it took over.
_AT_REST = 0.5
# Before each run, until nothing waits of what was offered in the one before.
_BETWEEN_S = 5.0
# How often a new beam is made for the process that has none, and how soon one of them takes it.
_TRIES, _TAKEN_S = 40, 10.0
_PASSED_OVER = re.compile(r"^underpass_control_positions_passed_over_total (\S+)$", re.M)


class LeaseError(RuntimeError):
    """A beam is not planned by the process that should plan it; the text says by which."""


@dataclass(frozen=True)
class Load:
    """What a process did in a run: its processor time, s, and the fixes that it took in."""

    processor_s: float
    fixes: int


@dataclass(frozen=True)
class Measured:
    """What some processes did in a run that they kept up with, and beyond.

    `delay_s` is the longest 99th percentile, of a process, from a post to what is predicted by it;
    `most_per_s` how many fixes per second were predicted with where more were offered.
    """

    loads: tuple[Load, ...]
    delay_s: float
    most_per_s: float

    @property
    def cost_us(self) -> float:
        """The processor time of all processes per fix, µs."""
        return 1e6 * sum(one.processor_s for one in self.loads) / self._fixes

    @property
    def served_per_s(self) -> float:
        """How many vehicles would be served at 1 Hz if the busiest process had all of a core."""
        return self._fixes / max(one.processor_s for one in self.loads)

    @property
    def _fixes(self) -> int:
        return sum(one.fixes for one in self.loads)


def run(settings: Settings) -> Result:
    """Measure two processes, then end one of them and measure the other."""
    result = Result("two-processes")
    result.told["underpass"] = "the map, and each position as a gateway posts it"
    absent = field.missing(field.EXTRACTS[TOWN]) or postgresql.missing()
    if result.left_out(absent):
        return result
    town = read_extract(field.FIELD / field.EXTRACTS[TOWN])
    tracks = tracks_over(town, settings.seed)
    with postgresql.server(durable=True) as server:
        server.sql("CREATE DATABASE control")
        url = server.url("control")
        with control_service(url) as service:
            one, two = asyncio.run(
                _measure(service, url, tracks, town.obstructions, settings.runs or _RUNS)
            )
    for part, values in compared(one, two).items():
        made = record(f"two-processes.{part}", "underpass", values)
        result.records.append(made)
        say(f"{made.id}: {made.median:.4g} {made.unit}")
    for name, runs in (("one", one), ("two", two)):
        result.notes[f"{name}: processor s of each process, each run"] = [
            [round(load.processor_s, 2) for load in run.loads] for run in runs
        ]
        result.notes[f"{name}: from a fix to what is predicted by it, p99, s"] = [
            round(run.delay_s, 3) for run in runs
        ]
    result.notes["measured"] = (
        f"two beams of {_KEPT_UP:,} vehicles at 1 Hz for {_RUN_S:.0f} s, and of {_OFFERED:,} each "
        f"for {_OFFERED_S:.0f} s, over one PostgreSQL; the same terminals first by two processes, "
        "then by the one that was left, over a database that has grown by the runs of the two. "
        "Database and senders run on the same cores, and their processor time counts in none of "
        "the figures"
    )
    return result


def compared(one: Sequence[Measured], two: Sequence[Measured]) -> dict[str, list[float]]:
    """Return the values of each figure."""
    pairs = list(zip(one, two, strict=True))
    return {
        "scale": [both.served_per_s / alone.served_per_s for alone, both in pairs],
        "cost.one": [run.cost_us for run in one],
        "cost.two": [run.cost_us for run in two],
        "most.one": [run.most_per_s for run in one],
        "most.two": [run.most_per_s for run in two],
        "most-scale": [both.most_per_s / alone.most_per_s for alone, both in pairs],
    }


@dataclass(frozen=True)
class _Process:
    """A process, with sessions of its callers."""

    service: ControlService
    operator: aiohttp.ClientSession
    gateway: aiohttp.ClientSession


@dataclass(frozen=True)
class _Beam:
    """A beam, its vehicles, and the process that plans it."""

    name: str
    fleet: Fleet
    by: _Process


@asynccontextmanager
async def _process(service: ControlService) -> AsyncIterator[_Process]:
    async with (
        service.session(service.operator) as operator,
        service.session(service.gateway) as gateway,
    ):
        await until_ready(operator)
        yield _Process(service, operator, gateway)


async def _measure(
    service: ControlService,
    url: str,
    tracks: Sequence[tuple[Fix, ...]],
    obstructions: Sequence[Obstruction],
    runs: int,
) -> tuple[list[Measured], list[Measured]]:
    """Return the runs by one process and those by two."""
    fleets = [Fleet(_GATEWAY + n, 1 + n * _OFFERED, _OFFERED, tracks) for n in range(2)]
    async with _process(service) as first:
        await put_obstructions(first.operator, obstructions)
        await put_beam(first.operator, "first", 0)
        await _until_planned("first", first)
        # The context of the second process is left before the first is measured alone.
        async with AsyncExitStack() as stack:
            started = stack.enter_context(beside(service, url))
            second = await stack.enter_async_context(_process(started))
            name = await _beam_of(second)
            beams = [_Beam("first", fleets[0], first), _Beam(name, fleets[1], second)]
            for beam in beams:
                await put_terminals(
                    beam.by.operator, beam.name, beam.fleet.nodes, beam.fleet.gateway
                )
                await put_beam(beam.by.operator, beam.name, _BEAM_BPS)
            two = await _runs(beams, runs)
        await _until_planned(name, first)
        one = await _runs([_Beam(beam.name, beam.fleet, first) for beam in beams], runs)
    return one, two


async def _beam_of(process: _Process) -> str:
    """Make a beam that this process plans; of two, either may take a new one.

    Raises:
        LeaseError: The other one takes every beam.
    """
    for number in range(_TRIES):
        name = f"second-{number}"
        await put_beam(process.operator, name, 0)
        if await _holder(name, process.operator) == process.service.pid:
            return name
        async with process.operator.delete(f"/v1/beams/{name}") as answer:
            # One that is just being planned stays, empty and without capacity.
            if answer.status != HTTPStatus.CONFLICT:
                answer.raise_for_status()
    raise LeaseError(f"of {_TRIES} new beams the other process plans every one")


async def _holder(beam: str, operator: aiohttp.ClientSession) -> int:
    """Return the process that plans a beam, by its id."""
    async with asyncio.timeout(_TAKEN_S):
        while True:
            async with operator.get(f"/v1/beams/{beam}/lease") as answer:
                answer.raise_for_status()
                holder = (await answer.json()).get("holder")
            if holder is not None:
                # Host, process and a random number.
                return int(holder.split(":")[-2])
            await asyncio.sleep(0.05)


async def _until_planned(beam: str, by: _Process) -> None:
    async with asyncio.timeout(_TAKEN_S):
        while await _holder(beam, by.operator) != by.service.pid:
            await asyncio.sleep(0.05)


async def _runs(beams: Sequence[_Beam], runs: int) -> list[Measured]:
    processes = list({beam.by.service.pid: beam.by for beam in beams}.values())
    await _rest(processes)
    await _post(beams, _WARM_S)
    return [await _run(beams, processes) for _ in range(runs)]


async def _rest(processes: Sequence[_Process]) -> None:
    for process in processes:
        # Plans of thousands of terminals that stand still take a part of it, too.
        await until_idle(process.service, _AT_REST)


async def _run(beams: Sequence[_Beam], processes: Sequence[_Process]) -> Measured:
    await _post(beams, _BETWEEN_S)
    before = [await metrics_of(one.operator) for one in processes]
    began_s = [one.service.processor_s() for one in processes]
    posted = await _post(beams, _RUN_S)
    taken_s = [
        one.service.processor_s() - begin for one, begin in zip(processes, began_s, strict=True)
    ]
    after = [await metrics_of(one.operator) for one in processes]
    loads, delays_s = [], []
    for process, processor_s, early, late in zip(processes, taken_s, before, after, strict=True):
        own = [by_beam for beam, by_beam in zip(beams, posted, strict=True) if beam.by is process]
        # An answer may come after the run's end: its fixes are of the run, too.
        loads.append(Load(processor_s, sum(by_beam.stored for by_beam in own)))
        answers_s = sorted(answer_s for by_beam in own for answer_s in by_beam.answered_s)
        answer_s = answers_s[int(0.99 * len(answers_s))]
        delays_s.append(answer_s + p99_s(early, late, "positions_to_predictions"))
    most_per_s = await _most_per_s(beams, processes)
    for beam in beams:
        holder = await _holder(beam.name, beam.by.operator)
        if holder != beam.by.service.pid:
            raise LeaseError(
                f"beam {beam.name} has gone from process {beam.by.service.pid} to {holder}: the "
                "machine was too busy for its lease to be renewed"
            )
    return Measured(tuple(loads), max(delays_s), most_per_s)


async def _post(beams: Sequence[_Beam], run_s: float) -> list[Posted]:
    return await asyncio.gather(
        *(post_moving(beam.by.gateway, beam.fleet, run_s, vehicles=_KEPT_UP) for beam in beams)
    )


async def _most_per_s(beams: Sequence[_Beam], processes: Sequence[_Process]) -> float:
    """Offer more fixes than are kept up with; return how many were predicted with per second."""
    # What is left of the run before is passed over before this one, and what is left of this one
    # after it.
    await _rest(processes)
    before = [passed_over(await metrics_of(one.operator)) for one in processes]
    began = time.monotonic()
    posted = await asyncio.gather(
        *(
            post_moving(beam.by.gateway, beam.fleet, _OFFERED_S, most_open=_MOST_OPEN)
            for beam in beams
        )
    )
    lasted_s = time.monotonic() - began
    await _rest(processes)
    after = [passed_over(await metrics_of(one.operator)) for one in processes]
    return (sum(by_beam.stored for by_beam in posted) - (sum(after) - sum(before))) / lasted_s


def passed_over(metrics: str) -> float:
    """Return how many positions a process's metrics count as stored and not predicted with."""
    return sum(map(float, _PASSED_OVER.findall(metrics)))
