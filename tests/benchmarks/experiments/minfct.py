"""Many users' contents over a terrestrial path and a satellite, each by the path that is faster.

After Bouttier et al., *Improving content delivery with size-aware routing in hybrid satellite /
terrestrial networks*. The paper's 25 ms and 300 ms are taken as one-way delays, its *d*. Its MPTCP
is OLIA, which Linux lacks: Linux's own scheduler and coupling stand in for it.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from tests.benchmarks.bench import OURS, WIDE_WINDOWS, Bench, Series, Settings, say
from tests.benchmarks.experiments.users import (
    By,
    UsersRun,
    by_http1,
    by_http2,
    run_users,
    satellite_by_size,
    sizes_by_path,
)
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access, Subject
from tests.benchmarks.subjects.split import SplitProxy, Way
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed import ports
from tests.testbed.profile import Link, symmetric
from tests.testbed.topology import Testbed, listens

_TERRESTRIAL = symmetric("terrestrial", Link(rate_bps=2_000_000, delay_ms=25.0, queue_ms=40.0))
_SATELLITE = symmetric("satellite", Link(rate_bps=8_000_000, delay_ms=300.0, queue_ms=160.0))
_USERS = (1, 5, 12, 30, 80, 200)
# These numbers of users have targets, and one more run than the others.
_OF_RECORD, _CROWD = 30, 200
# From so many users on no other subject may be better.
_NEVER_WORSE_FROM = 5
_RUNS = 3
_SPLIT: Sequence[Way] = ("satellite", "terrestrial", "mptcp")
_PINNED = {"underpass-satellite": "satellite", "underpass-terrestrial": "terrestrial"}

# By number of users and subject.
_Runs = dict[int, dict[str, list[UsersRun]]]


def run_minfct(settings: Settings) -> Result:
    """Have each number of users fetch contents through each subject, and time the contents."""
    result = Result("minfct")
    runs = _measured(settings, result, _USERS, by_http1, ports.HTTP)
    _add_comparisons(result, runs)
    return result


def run_minfct_tls(settings: Settings) -> Result:
    """Do the same by HTTP/2 over TLS, where proxies see no length and connections stay open."""
    result = Result("minfct-tls")
    _measured(settings, result, [_OF_RECORD], by_http2, ports.HTTPS)
    return result


def _measured(settings: Settings, result: Result, users: Sequence[int], by: By, port: int) -> _Runs:
    runs: _Runs = {}
    with Testbed(
        _SATELLITE, terrestrial=_TERRESTRIAL, sysctls=WIDE_WINDOWS, seed=settings.seed
    ) as testbed:
        if port == ports.HTTPS:
            program = [sys.executable, "-m", "tests.testbed.origin.http2", str(port)]
            origin = testbed.start("origin-http2", program, testbed.origin)
            origin.wait_until(lambda: listens(testbed.origin, port))
        on = Bench(testbed, settings)
        for subject in subjects_of_minfct():
            on.add(subject)
        for count in users:
            wanted = settings.runs or _RUNS
            if count not in (_OF_RECORD, _CROWD):
                wanted = max(1, wanted - 1)
            on.settings = dataclasses.replace(settings, runs=wanted)
            series = [
                Series(each, partial(_one, on, count, by, each, port)) for each in on.subjects
            ]
            done = on.in_turn(series, wanted)
            names = [subject.name for subject in on.subjects]
            runs[count] = dict(zip(names, done, strict=True))
            for name, of_subject in runs[count].items():
                _note(result, name, count, of_subject)
        on.describe(result)
    return runs


def subjects_of_minfct() -> list[Subject]:
    """Make the subjects to compare, ours first."""
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


def _one(
    on: Bench, users: int, by: By, subject: Subject, port: int, _: Access, seed: int, _s: float
) -> UsersRun:
    ours = subject if isinstance(subject, Underpass) else None
    return run_users(on, users, by, ours, subject.access(port), seed)


def _note(result: Result, name: str, users: int, runs: Sequence[UsersRun]) -> None:
    times = [time for run in runs for time in run.times()]
    if not times:
        return
    means = _means_ms(runs)
    share = [run.carried["satellite"] / max(1, sum(run.carried.values())) for run in runs]
    occupancy = {
        path: statistics.fmean(run.occupancy[path] for run in runs) for path in runs[0].occupancy
    }
    flows = [flow for run in runs for flow in run.flows]
    sizes = {path: statistics.fmean(of) for path, of in sizes_by_path(flows).items()}
    broken = sum(run.broken() for run in runs)
    say(
        f"{result.experiment}  {users} users  {name}: mean {statistics.fmean(means):.0f} ms, "
        f"median {1000 * quantile(times, 0.5):.0f} ms, p95 {1000 * quantile(times, 0.95):.0f} ms, "
        f"{len(times)} contents, {broken} broken; {100 * statistics.fmean(share):.0f} % by "
        f"satellite; occupied {100 * occupancy['satellite']:.0f} % and "
        f"{100 * occupancy['terrestrial']:.0f} %"
    )
    curves = {
        "mean completion time, ms over users": statistics.fmean(means),
        "by satellite, % of bytes over users": 100 * statistics.fmean(share),
        "satellite occupied, % over users": 100 * occupancy["satellite"],
        "terrestrial occupied, % over users": 100 * occupancy["terrestrial"],
        **{f"mean flow by {path}, kB over users": size / 1000 for path, size in sizes.items()},
    }
    for title, value in curves.items():
        line = result.curves.setdefault(title, {}).setdefault(name, [])
        line.append((float(users), round(value, 2)))
    if users == _OF_RECORD:
        figure = result.experiment
        result.records.append(record(f"{figure}.mean", name, means))
        result.records.append(record(f"{figure}.broken", name, [float(broken)]))
        if len(sizes) > 1:
            title = f"flows by satellite, % over their size in kB, {users} users"
            result.curves.setdefault(title, {})[name] = satellite_by_size(flows)


def _means_ms(runs: Sequence[UsersRun]) -> list[float]:
    return [1000 * statistics.fmean(run.times()) for run in runs if run.times()]


def _add_comparisons(result: Result, runs: _Runs) -> None:
    """Add how far ours is below the others, comparing runs of the same seeds."""
    others = {
        "below-mptcp": (_OF_RECORD, OURS, "split-mptcp"),
        "below-satellite": (_OF_RECORD, OURS, "split-satellite"),
        "below-terrestrial": (_OF_RECORD, OURS, "split-terrestrial"),
        "pinned-below-satellite": (_OF_RECORD, "underpass-satellite", "split-satellite"),
        "crowd-below-satellite": (_CROWD, OURS, "split-satellite"),
    }
    for figure, (users, name, other) in others.items():
        of_users = runs.get(users, {})
        pairs = zip(
            _means_ms(of_users.get(name, [])), _means_ms(of_users.get(other, [])), strict=False
        )
        below = [100 * (1 - ours / theirs) for ours, theirs in pairs]
        if below:
            result.records.append(record(f"minfct.{figure}", name, below))
    worst = [
        (100 * statistics.fmean(_means_ms(of_users[OURS])) / theirs, users, name)
        for users, of_users in runs.items()
        if users >= _NEVER_WORSE_FROM and _means_ms(of_users.get(OURS, []))
        for name, of_subject in of_users.items()
        if name != OURS and (theirs := statistics.fmean(_means_ms(of_subject) or [1e9]))
    ]
    if worst:
        percent, users, name = max(worst)
        result.notes["what comes nearest to ours"] = f"{name} at {users} users: {percent:.0f} %"
        result.records.append(record("minfct.of-the-best", OURS, [percent]))
