"""The planner alone: a beam of many terminals with many overlapping blockages, on one core."""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import time
from concurrent.futures import ProcessPoolExecutor

from dama.planner import Blockage, CapacityStep, Link, Request, Terminal, plan
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record

_BLOCKAGES = 100
_HORIZON_MS = 600_000
_BEAM_BPS = 100_000_000
_SIZES = (1_000, 10_000)


def run(settings: Settings) -> Result:
    """Plan beams of both sizes in turns, a new one each time, and measure the processor time."""
    result = Result("planner")
    result.told["underpass"] = "the beam as it is"
    # The linear algebra would use all cores; the number must be set before a process starts.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        taken = process.submit(_taken_ms, settings.runs or 30, settings.seed).result()
    for size, values in taken.items():
        result.records.append(record(f"planner.{size}", "underpass", values))
        say(f"planner  {size} terminals: {statistics.median(values):.0f} ms")
    few, many = (statistics.median(taken[size]) for size in _SIZES)
    result.records.append(record("planner.ratio", "underpass", [many / few]))
    result.notes["measured"] = "processor time of a process with one thread"
    return result


def _taken_ms(runs: int, seed: int) -> dict[int, list[float]]:
    taken: dict[int, list[float]] = {size: [] for size in _SIZES}
    # The first plan of a process also loads parts of numpy.
    plan(_beam(_SIZES[0], seed))
    for number in range(runs):
        for size in _SIZES:
            request = _beam(size, seed + number)
            began = time.process_time()
            plan(request)
            taken[size].append(1000 * (time.process_time() - began))
    return taken


def _beam(size: int, seed: int) -> Request:
    """Draw a beam whose blockages overlap each other, with weights, guarantees and weather."""
    draw = random.Random(seed)
    terminals = tuple(
        Terminal(f"t{number}", draw.choice((1, 1, 2)), draw.choice((0, _BEAM_BPS // size // 5)))
        for number in range(size)
    )
    blockages = []
    for terminal in draw.sample(terminals, _BLOCKAGES):
        entry = draw.randrange(60_000, _HORIZON_MS - 60_000)
        leave = entry + draw.randrange(5_000, 60_000)
        blockages.append(Blockage(terminal.id, entry, leave, draw.choice((1.0, 1.0, 0.8))))
    weather = (CapacityStep(0, _BEAM_BPS), CapacityStep(_HORIZON_MS // 3, _BEAM_BPS * 9 // 10))
    return Request(
        beam="beam",
        link=Link.FORWARD,
        now_ms=0,
        end_ms=_HORIZON_MS,
        capacity=weather,
        terminals=terminals,
        blockages=tuple(blockages),
        signalling_delay_ms=500,
        one_way_delay_ms=250,
    )
