"""The traces that are made: each a formula, with a seed where it has chance."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from tests.traces.modcods import MODCODS, best
from tests.traces.trace import Step, Trace

# 32APSK 4/5 fills profile G.
_SYMBOLS_PER_S = 140e6 / MODCODS[-1].efficiency


def geo_fade() -> Trace:
    """Rain on a GEO carrier: from 32APSK 4/5 to QPSK 1/4 and back, 8 : 1.

    The fade's course is half a cosine each way, so that its slope grows to 0.5 dB/s and falls
    again; modulation and code follow without delay.
    """
    depth_db = MODCODS[-1].threshold_db - MODCODS[1].threshold_db
    clear_s, fall_s, deep_s, step_s = 7.0, math.pi * depth_db / 2 / 0.5, 5.5, 0.01

    def es_n0_db(time_s: float) -> float:
        into = min(time_s - clear_s, clear_s + 2 * fall_s + deep_s - time_s)
        part = min(1.0, max(0.0, into / fall_s))
        return MODCODS[-1].threshold_db - depth_db * (1 - math.cos(math.pi * part)) / 2

    forward: list[Step] = []
    for place in range(round(120 / step_s)):
        time_s = round(place * step_s, 3)
        # A deci-millidecibel for the rounding of the cosine at its ends.
        rate_bps = round(_SYMBOLS_PER_S * best(es_n0_db(time_s) + 1e-4).efficiency)
        if not forward or forward[-1].rate_bps != rate_bps:
            forward.append(Step(time_s, rate_bps, 300.0, 0.0005))
    source = (
        "tests/traces/made.py, geo_fade: Es/N0 in dB = 13.64 - 15.99 (1 - cos(pi u)) / 2, u rising "
        f"from 0 to 1 in {fall_s:.2f} s from {clear_s:g} s on (slope at most 0.5 dB/s), {deep_s:g} "
        "s at 1, and back; the most efficient MODCOD of EN 302 307-1 table 13 and EN 302 307-2 "
        f"table 20a without margin; {_SYMBOLS_PER_S / 1e6:.3f} MBd, all of it IP; the return link "
        "does not fade"
    )
    return Trace("geo-fade", source, 120.0, forward, [Step(0.0, 20_000_000, 300.0, 0.0005)])


def leo() -> Trace:
    """A LEO service that gives a terminal another satellite each 15 s."""
    seed, slot_s, slots, handover_s, handover_loss = 20, 15.0, 20, 1.0, 0.06
    chance = random.Random(seed)
    forward: list[Step] = []
    return_: list[Step] = []
    for slot in range(slots):
        rate_bps = round((10 + 60 * chance.random()) * 1e6)
        delay_ms = round((25 + 35 * chance.random()) / 2, 2)
        loss = round(0.005 * 6 ** chance.random(), 5)
        for after_s, of_step in ((0.0, handover_loss), (handover_s, loss)):
            at_s = slot * slot_s + after_s
            forward.append(Step(at_s, rate_bps, delay_ms, of_step))
            return_.append(Step(at_s, rate_bps // 5, delay_ms, of_step))
    source = (
        f"tests/traces/made.py, leo, seed {seed}: each {slot_s:g} s (the period of Starlink's "
        "reconfigurations: Mohan et al., A Multifaceted Look at Starlink Performance, WWW 2024) a "
        "rate uniform in 10 to 70 Mbit/s, a round trip uniform in 25 to 60 ms and a loss "
        f"log-uniform in 0.5 to 3 %, {100 * handover_loss:g} % in the first {handover_s:g} s; the "
        "return link has a fifth of the rate"
    )
    return Trace("leo", source, slot_s * slots, forward, return_)


def mmwave() -> Trace:
    """A millimetre-wave link whose line of sight comes and goes."""
    seed, duration_s, clear_mean_s = 28, 60.0, 3.0
    chance = random.Random(seed)
    blockages: list[tuple[float, float]] = []
    time_s = 2.0
    while True:
        time_s = round(time_s - clear_mean_s * math.log(1 - chance.random()), 3)
        length_s = round(0.1 + 0.9 * chance.random(), 3)
        if time_s + length_s > duration_s - 1:
            break
        blockages.append((time_s, length_s))
        # Far enough apart that data flows between two of them.
        time_s = round(time_s + length_s + 0.5, 3)
    steps = [Step(0.0, 1_000_000_000, 10.0)]
    source = (
        f"tests/traces/made.py, mmwave, seed {seed}: 1 Gbit/s and 20 ms; from 2 s on clear for 0.5 "
        f"s and an exponential time of mean {clear_mean_s:g} s, then blocked for a time uniform in "
        "0.1 to 1 s"
    )
    return Trace("mmwave", source, duration_s, steps, steps, blockages)


MADE: dict[str, Callable[[], Trace]] = {"geo-fade": geo_fade, "leo": leo, "mmwave": mmwave}
