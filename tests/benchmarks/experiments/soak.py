"""Twenty minutes of 24 clients through loss and blockages: nothing fails, nothing grows."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.soak.course import PROFILE, Course, Plan, blocked_s, soak, start_pair
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.testbed.client.closed_loop import Mix
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_DURATION_S, _DRAIN_S = 1200.0, 600.0
_MIX = Mix(browsers=18, senders=6, largest=16_000_000)
# The memory of the fifth minute is compared with that of the last.
_FIFTH_MINUTE_S = (240.0, 300.0)
_MOST_TOLD = 20
_AT_ONCE = 3


def run(settings: Settings) -> Result:
    """Run the soak, by default once; of more runs, three in parallel."""
    result = Result("soak")
    result.told["underpass"] = TOLD_PAIR
    if result.left_out(missing("underpass")):
        return result
    # In parallel, each on its own test bed: a hop of 40 Mbit/s leaves the machine room.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        seeds = [settings.seed + number for number in range(settings.runs or 1)]
        courses = list(pool.map(_course, seeds))
    result.samples["small exchanges, s"] = [course.small for course in courses]
    nodes = list(courses[0].samples[0].resident)
    values = {
        "soak.failed": [float(len(course.failed)) for course in courses],
        "soak.small": [1000 * (quantile(c.small, 0.95) - PROFILE.rtt_s) for c in courses],
        **{
            f"soak.memory.{role}": [_growth_percent(course, node) for course in courses]
            for role, node in zip(("terminal", "hub"), nodes, strict=True)
        },
    }
    for figure, of_runs in values.items():
        result.records.append(record(figure, "underpass", of_runs))
        say(f"{figure}: {of_runs}")
    for node in nodes:
        curve = [(s.at_s, s.resident[node] / 1e6) for s in courses[0].samples[::10]]
        result.curves.setdefault("resident memory, MB over s", {})[node] = curve
    for number, course in enumerate(courses):
        result.notes[f"run {number}"] = _told(course)
        for each in course.failed[:_MOST_TOLD]:
            say(f"failed: {each}")
    return result


def _course(seed: int) -> Course:
    with Testbed(PROFILE, seed=seed) as testbed:
        return soak(start_pair(testbed), Plan(_DURATION_S, _DRAIN_S, _MIX, seed=seed))


def _growth_percent(course: Course, node: str) -> float:
    fifth = course.memory(node, *_FIFTH_MINUTE_S)
    last = course.memory(node, _DURATION_S - 60.0, _DURATION_S)
    return 100 * (last - fifth) / fifth


def _told(course: Course) -> str:
    kinds = Counter(each.kind for each in course.exchanges)
    done = [each for each in course.exchanges if not each.error]
    bytes_ = {kind: sum(each.size for each in done if each.kind == kind) for kind in kinds}
    given_up = sum(each.given_up for each in course.exchanges)
    small_ms = 1000 * (quantile(course.small, 0.5) - PROFILE.rtt_s)
    return (
        f"{kinds['download']} downloads ({bytes_['download'] / 1e6:.0f} MB), {kinds['upload']} "
        f"uploads ({bytes_['upload'] / 1e6:.0f} MB), of them {given_up} given up by their client; "
        f"{len(course.small)} small ones counted, their median {small_ms:.0f} ms beyond the RTT; "
        f"blocked for {blocked_s(course.blockages):.0f} s; "
        f"failed: {[str(each) for each in course.failed[:_MOST_TOLD]]}"
    )
