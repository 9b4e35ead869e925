"""A thousand downloads through ten upgrades in place, of hub and terminal in turn.

Half of them are intercepted, and move from process to process. Half go through the HTTP proxy,
whose exchanges stay with their parser in the old process, over a bridge to the new one. The
origin serves each in small pieces at a steady pace, so a pause of the nodes shows as the time
between two pieces beyond that pace.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.benchmarks.bench import WIDE_WINDOWS, Settings, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.testbed import addresses, ports
from tests.testbed.client.patient import PatientCrowd
from tests.testbed.node import Node, Options, Pair, all_listeners
from tests.testbed.profile import PROFILE_G
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_PROFILE = PROFILE_G.with_loss(0.0)
_CLIENTS = 1000
_UPGRADES = 10
# Together 60 of the 140 Mbit/s; a stream's pieces are somewhat less than a round trip apart.
_RATE_BPS, _PIECE_BYTES = 60_000, 4096
_PACE_S = _PIECE_BYTES * 8 / _RATE_BPS
# The time until all run, that between two upgrades, and that after the last one.
_BEFORE_S, _BETWEEN_S, _AFTER_S = 20.0, 12.0, 120.0
# Each download runs through all upgrades, even if some take longer.
_SIZE = int((_BEFORE_S + _UPGRADES * (_BETWEEN_S + 6.0)) * _RATE_BPS / 8)


@dataclass
class _Course:
    """The downloads' results, and each upgrade's longest pause, s."""

    complete: int = 0
    wrong: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    # The longest wait for a piece without an upgrade, beyond the pace.
    undisturbed_s: float = 0.0
    pauses_s: list[tuple[str, float]] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)


def run(settings: Settings) -> Result:
    """Upgrade both ends in turn; count incomplete downloads, and time the pauses."""
    result = Result("upgrade")
    result.told["underpass"] = TOLD_PAIR
    if result.left_out(missing("underpass")):
        return result
    courses = [_one(settings.seed + number) for number in range(settings.runs or 3)]
    rtt_s = _PROFILE.rtt_s
    values = {
        "broken": [float(_CLIENTS - course.complete) for course in courses],
        "wrong": [float(course.wrong) for course in courses],
        "pause": [max(s for _, s in course.pauses_s) / rtt_s for course in courses],
    }
    for part, of_runs in values.items():
        made = record(f"upgrade.{part}", "underpass", of_runs)
        result.records.append(made)
        say(f"{made.id}: {made.median:.2f} {made.unit}")
    result.notes["errors, each run"] = [course.errors for course in courses]
    result.notes["pauses, RTT, each run"] = [
        [f"{name} {s / rtt_s:.2f}" for name, s in course.pauses_s] for course in courses
    ]
    result.notes["longest wait without an upgrade, RTT, each run"] = [
        round(course.undisturbed_s / rtt_s, 2) for course in courses
    ]
    result.notes["an upgrade takes, s, each run"] = [
        [round(s, 1) for s in course.took_s] for course in courses
    ]
    result.notes["measured"] = (
        f"{_CLIENTS} downloads of {_SIZE} bytes at {_RATE_BPS} bit/s each, in pieces of "
        f"{_PIECE_BYTES} bytes, on profile G without loss; custody on disk; half by "
        "interception, half by the HTTP proxy. A pause is the longest time between two arrivals "
        "at any client, less the origin's pace"
    )
    return result


def _one(seed: int) -> _Course:
    with Testbed(_PROFILE, sysctls=WIDE_WINDOWS, seed=seed) as testbed:
        disk = {"custody": {"durability": "disk"}}
        options = Options(terminal={"edge": all_listeners(0), **disk}, hub=disk)
        pair = Pair(testbed, options)
        proxy = pair.http_forward().proxy
        assert proxy
        crowd = PatientCrowd(
            pair.client,
            addresses.ORIGIN,
            clients=_CLIENTS,
            size=_SIZE,
            query=f"&rate_bps={_RATE_BPS}&piece_bytes={_PIECE_BYTES}",
            port=ports.HTTP,
            via=[proxy, (addresses.ORIGIN, ports.HTTP)],
        )
        try:
            return _watch(crowd, [("hub", pair.hub), ("terminal", pair.terminal)])
        finally:
            crowd.close()


def _watch(crowd: PatientCrowd, nodes: Sequence[tuple[str, Node]]) -> _Course:
    course = _Course()
    crowd.watch(_BEFORE_S)
    crowd.take_longest_gap()
    crowd.watch(_BETWEEN_S)
    course.undisturbed_s = crowd.take_longest_gap() - _PACE_S
    with ThreadPoolExecutor(1) as pool:
        for number in range(_UPGRADES):
            name, node = nodes[number % len(nodes)]
            begun = time.monotonic()
            upgrade = pool.submit(node.upgrade)
            while not upgrade.done():
                crowd.watch(0.1)
            upgrade.result()
            course.took_s.append(time.monotonic() - begun)
            crowd.watch(_BETWEEN_S)
            pause_s = crowd.take_longest_gap() - _PACE_S
            course.pauses_s.append((name, pause_s))
            say(f"upgrade of the {name}: {course.took_s[-1]:.1f} s, pause {pause_s:.2f} s")
    crowd.watch(_AFTER_S)
    course.complete, course.wrong = crowd.complete(), crowd.wrong()
    course.errors = crowd.errors()
    say(f"{course.complete} of {_CLIENTS} whole {course.errors or ''}")
    return course
