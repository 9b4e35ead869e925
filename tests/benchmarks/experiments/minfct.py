"""Many users' objects by a terrestrial path and a satellite: the path that completes each first.

After Bouttier et al., *Improving content delivery with size-aware routing in hybrid satellite /
terrestrial networks*. The paper's 25 ms and 300 ms are taken as one-way delays, its *d*; OLIA, its
MPTCP, is not in Linux, whose own scheduler and coupling stand in its place.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.bench import OURS, WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.experiments.several_paths import terrestrial_of
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access, Subject
from tests.benchmarks.subjects.split import SplitProxy, Way
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.profile import Link, symmetric
from tests.testbed.topology import Testbed

_TERRESTRIAL = symmetric("terrestrial", Link(rate_bps=2_000_000, delay_ms=25.0, queue_ms=40.0))
_SATELLITE = symmetric("satellite", Link(rate_bps=8_000_000, delay_ms=300.0, queue_ms=160.0))
USERS = (1, 5, 30, 200)
# A record is of so many users.
_OF_RECORD = 30
_THINK_S = 1.0
# Objects that begin in the first seconds meet estimates that know nothing.
_SETTLED_S, _RUN_S = 10.0, 30.0
_PATIENCE_S = 120.0
_SEGMENT_BYTES = 1448
# A content is 7 segments and as many more as this law says.
_ZIPF, _MOST_SEGMENTS = 1.8, 10_000
_SPLIT: Sequence[Way] = ("satellite", "terrestrial", "mptcp")
_PINNED = {"underpass-satellite": "satellite", "underpass-terrestrial": "terrestrial"}


@dataclass(frozen=True)
class _Object:
    """One download; times are s since the run's beginning."""

    size: int
    began_s: float
    took_s: float
    complete: bool


@dataclass(frozen=True)
class _Run:
    """What one run of so many users gave."""

    objects: list[_Object]
    # By path: IP bytes to the terminal, and the part of the rate that these were.
    carried: dict[str, int]
    occupancy: dict[str, float]
    last_byte_s: float | None = _RUN_S

    def times(self) -> list[float]:
        return [each.took_s for each in self.objects if each.began_s >= _SETTLED_S]

    def broken(self) -> int:
        return sum(not each.complete for each in self.objects)


def run_minfct(settings: Settings, users: Sequence[int] = USERS) -> Result:
    """Have so many users fetch objects by each subject, and take what an object takes."""
    result = Result("minfct")
    with Testbed(
        _SATELLITE, terrestrial=_TERRESTRIAL, sysctls=WIDE_WINDOWS, seed=settings.seed
    ) as testbed:
        on = Bench(testbed, settings)
        for subject in subjects_of_minfct():
            on.add(subject)
        for count in users:
            series = [Series(each, partial(_one, on, count)) for each in on.subjects]
            done = on.in_turn(series, 3)
            for subject, runs in zip(on.subjects, done, strict=True):
                _note(result, subject, count, runs)
        result.notes |= on.notes()
        result.told |= on.told()
    return result


def subjects_of_minfct() -> list[Subject]:
    """Make what is compared, ours first."""
    made: list[Subject] = [
        _underpass(OURS, {"policy": "minfct"}),
        _underpass("underpass-new-connection", {"policy": "minfct", "estimate": "new-connection"}),
        _underpass("underpass-bonded", {"policy": "bonded"}),
        *(_underpass(name, {"policy": "pinned"}, path) for name, path in _PINNED.items()),
    ]
    return [*made, *(SplitProxy(way) for way in _SPLIT)]


def _underpass(name: str, policy: Mapping[str, object], path: str | None = None) -> Underpass:
    def classes(satellite: str) -> list[dict[str, object]]:
        by = satellite if path == "satellite" else path
        normal = {**policy, **({"paths": [by]} if by else {})}
        return [
            {"name": "signalling", "priority": 0},
            {"name": "interactive", "priority": 1},
            {"name": "normal", "priority": 2, **normal},
            {"name": "bulk", "priority": 2},
        ]

    return Underpass(
        name,
        None,
        told="nothing",
        paths=("satellite", "terrestrial"),
        terminal={"class": classes("satellite")},
        hub={"class": classes("beam")},
    )


def size_of(dice: random.Random, *, weights: list[float]) -> int:
    """Draw the size of a content, bytes."""
    more = dice.choices(range(1, _MOST_SEGMENTS + 1), cum_weights=weights)[0]
    return _SEGMENT_BYTES * (7 + more)


def zipf_weights() -> list[float]:
    """Return the sums of the weights of 1 to the most segments."""
    total, sums = 0.0, []
    for rank in range(1, _MOST_SEGMENTS + 1):
        total += rank**-_ZIPF
        sums.append(total)
    return sums


def _one(on: Bench, users: int, access: Access, seed: int, _: float) -> _Run:
    hops = {"satellite": on.testbed.satlink, "terrestrial": terrestrial_of(on)}
    for hop in hops.values():
        hop.reset_statistics()
    weights, began = zipf_weights(), time.monotonic()
    objects: list[_Object] = []
    noted = threading.Lock()

    def browse(number: int) -> None:
        dice = random.Random(f"{seed}-{number}")
        while True:
            time.sleep(dice.expovariate(1 / _THINK_S))
            at = time.monotonic() - began
            if at >= _RUN_S:
                return
            size = size_of(dice, weights=weights)
            done = access.download(size, seed, _PATIENCE_S)
            took = _PATIENCE_S if done.last_byte_s is None else done.last_byte_s
            with noted:
                objects.append(_Object(size, at, took, done.complete))

    with ThreadPoolExecutor(users) as pool:
        list(pool.map(browse, range(users)))
    lasted = time.monotonic() - began
    terminal = on.testbed.terminal.name
    carried = {
        name: int(hop.statistics()["terminals"][terminal]["forward"]["bytes_sent"])
        for name, hop in hops.items()
    }
    rates = {"satellite": _SATELLITE, "terrestrial": _TERRESTRIAL}
    occupancy = {
        name: 8 * count / (lasted * (rates[name].forward.rate_bps or 1))
        for name, count in carried.items()
    }
    return _Run(objects, carried, occupancy)


def _note(result: Result, subject: Subject, users: int, runs: Sequence[_Run]) -> None:
    times = [time for run in runs for time in run.times()]
    if not times:
        return
    means = [1000 * statistics.fmean(run.times()) for run in runs if run.times()]
    share = [run.carried["satellite"] / max(1, sum(run.carried.values())) for run in runs]
    occupancy = {
        path: statistics.fmean(run.occupancy[path] for run in runs) for path in runs[0].occupancy
    }
    broken = sum(run.broken() for run in runs)
    say(
        f"minfct  {users} users  {subject.name}: mean {statistics.fmean(means):.0f} ms, "
        f"median {1000 * quantile(times, 0.5):.0f} ms, p95 {1000 * quantile(times, 0.95):.0f} ms, "
        f"{len(times)} objects, {broken} broken; {100 * statistics.fmean(share):.0f} % by "
        f"satellite; occupied {100 * occupancy['satellite']:.0f} % and "
        f"{100 * occupancy['terrestrial']:.0f} %"
    )
    curves = {
        "mean completion time, ms over users": statistics.fmean(means),
        "by satellite, % of bytes over users": 100 * statistics.fmean(share),
        "satellite occupied, % over users": 100 * occupancy["satellite"],
        "terrestrial occupied, % over users": 100 * occupancy["terrestrial"],
    }
    for title, value in curves.items():
        line = result.curves.setdefault(title, {}).setdefault(subject.name, [])
        line.append((float(users), round(value, 2)))
    if users == _OF_RECORD:
        result.records.append(record("minfct.mean", subject.name, means))
        result.records.append(record("minfct.broken", subject.name, [float(broken)]))
