"""Two classes of pages on a terrestrial path that fits only one: with and without migration."""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.bench import OURS, Bench, Series, Settings, say
from tests.benchmarks.experiments.several_paths import (
    SATELLITE,
    TERRESTRIAL,
    both_hops,
    terrestrial_of,
)
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects import Access
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed import addresses, ports
from tests.testbed.client.route import DIRECT
from tests.testbed.topology import listens

_PAGE_BYTES = 100_000
# The loads of Bujari et al., bit/s.
_GOLD_BPS, _SILVER_BPS = 6_000_000, 12_000_000
# Both loads fall to these: together they fit the terrestrial path again, in every second.
_GOLD_LATER_BPS, _SILVER_LATER_BPS = 2_000_000, 1_000_000
# Silver starts after Gold; then both fall.
_SILVER_FROM_S, _FALLS_S, _ENDS_S = 12.0, 40.0, 65.0
_PATIENCE_S = 40.0
_SETTLED_S = 2.0
# After a later move there would be few pages, or none, until the load falls.
_MOVED_BY_S = 30.0
_POLLS_EACH_S = 0.25
_STAYS = "underpass-terrestrial"
# Each class alone on its proper path, as a reference: the same pages at the same times.
_GOLD_ALONE, _SILVER_ALONE = "underpass-gold-alone", "underpass-satellite"
# Foreign pages, over TCP of their own, share the terrestrial hop all the time.
_FOREIGN_BPS, _FOREIGN_PORT = 1_000_000, 13_900


@dataclass(frozen=True)
class Run:
    """The results of one run; all times are s since its beginning."""

    # When each page began, and how long it took; `_PATIENCE_S` if it never came.
    gold: list[tuple[float, float]]
    silver: list[tuple[float, float]]
    # When a class changed to another path, and to which.
    moves: list[tuple[float, str]]
    gold_moves: list[tuple[float, str]]
    # The round trip on the terrestrial hop, ms.
    rtt_ms: list[tuple[float, float]]
    last_byte_s: float | None = _ENDS_S

    def broken(self) -> int:
        """Return how many pages never came."""
        return sum(took >= _PATIENCE_S for _, took in (*self.gold, *self.silver))

    @property
    def settled_s(self) -> float:
        """Return from when on times count: shortly after Silver's move, or else its beginning.

        A move that comes too late is none.
        """
        moved = [at for at, path in self.moves if path == "satellite" and at < _MOVED_BY_S]
        return (moved[0] if moved else _SILVER_FROM_S) + _SETTLED_S


def run_offload(settings: Settings) -> Result:
    """Load the terrestrial path with Gold, Silver and foreign pages, with and without migration."""
    result = Result("offload")
    with both_hops(settings) as on:
        for name in (OURS, _STAYS, _GOLD_ALONE, _SILVER_ALONE):
            on.add(_subject(name))
        _relay_foreign_pages(on)
        ours = [subject for subject in on.subjects if isinstance(subject, Underpass)]
        done = on.in_turn([Series(subject, partial(_one, on, subject)) for subject in ours], 3)
        by_name = {subject.name: runs for subject, runs in zip(ours, done, strict=True)}
        alone = list(zip(by_name.pop(_GOLD_ALONE), by_name.pop(_SILVER_ALONE), strict=True))
        settled_s = _SILVER_FROM_S + _SETTLED_S
        for kind, pages in (
            ("Gold's median page alone on the terrestrial path", [run.gold for run, _ in alone]),
            ("Silver's median page alone on the satellite", [run.silver for _, run in alone]),
        ):
            medians = [round(1000 * _median_s(of_run, settled_s)) for of_run in pages]
            result.notes[f"{kind}, ms"] = medians
        for name, runs in by_name.items():
            add_records(result, name, runs, alone)
        on.describe(result)
    return result


def _relay_foreign_pages(on: Bench) -> None:
    """Have the hub's host relay foreign connections to its terrestrial address to the origin."""
    origin = [addresses.ORIGIN, str(ports.HTTP)]
    program = [sys.executable, "-m", "tests.testbed.split_proxy", str(_FOREIGN_PORT), *origin]
    relay = on.testbed.start("foreign", program, on.testbed.hub)
    relay.wait_until(lambda: listens(on.testbed.hub, _FOREIGN_PORT))


def _subject(name: str) -> Underpass:
    both = ["terrestrial", "satellite"]

    def classes(satellite: str) -> list[dict[str, object]]:
        paths = [satellite if path == "satellite" else path for path in both]
        policy = {
            OURS: {"policy": "migrate", "paths": paths},
            _STAYS: {"policy": "pinned", "paths": paths[:1]},
            _GOLD_ALONE: {"policy": "pinned", "paths": paths[:1]},
            _SILVER_ALONE: {"policy": "pinned", "paths": paths[1:]},
        }[name]
        return [
            {"name": "signalling", "priority": 0},
            {"name": "interactive", "priority": 1, **policy},
            {"name": "normal", "priority": 2, **policy},
            {"name": "bulk", "priority": 2},
        ]

    # Gold goes through the HTTP proxy, Silver through SOCKS.
    rules = [{"listeners": ["http"], "class": "interactive"}]
    return Underpass(
        name,
        None,
        told="nothing",
        paths=("satellite", "terrestrial"),
        terminal={"class": classes("satellite"), "edge": {"rule": rules}},
        hub={"class": classes("beam")},
    )


def _one(on: Bench, subject: Underpass, access: Access, seed: int, _: float) -> Run:
    hop, terminal = terrestrial_of(on), on.testbed.terminal.name
    hop.reset_statistics()
    began, asked = time.monotonic(), loads(seed, subject.name)
    by_socks = dataclasses.replace(access, route=subject.pair.socks5())
    by_itself = Access(on.testbed.terminal.node, DIRECT, addresses.HUB_TERRESTRIAL, _FOREIGN_PORT)
    # A page that had to wait for a worker would begin late, together with others.
    workers = sum(map(len, asked))
    with ThreadPoolExecutor(1) as watch, ThreadPoolExecutor(workers) as pool:
        moves = watch.submit(_watch, subject, began, _ends_s(subject.name))
        pages = [
            [pool.submit(_page, by, began, at) for at in starts]
            for by, starts in zip((access, by_socks, by_itself), asked, strict=True)
        ]
        times = [[page.result() for page in of_class] for of_class in pages]
        moved = moves.result()
    queue = hop.queue_ms(terminal, "forward")
    rtt_ms = [(at - began, 1000 * TERRESTRIAL.rtt_s + waited) for at, waited in queue]
    return Run(times[0], times[1], moved["normal"], moved["interactive"], rtt_ms)


def _ends_s(name: str) -> float:
    """Return when a run is over: a class alone is only measured until the load falls."""
    return _FALLS_S if name in (_GOLD_ALONE, _SILVER_ALONE) else _ENDS_S


def loads(seed: int, name: str) -> tuple[list[float], list[float], list[float]]:
    """Return when pages of Gold, of Silver and foreign ones are requested.

    Runs of the same seed have the same pages: by chance alone, the pages of six seconds may take
    half, or three times, as long as those of the next six.
    """
    dice = random.Random(seed)
    gold = _arrivals(dice, [(0.0, _FALLS_S, _GOLD_BPS), (_FALLS_S, _ENDS_S, _GOLD_LATER_BPS)])
    silver = _arrivals(
        dice, [(_SILVER_FROM_S, _FALLS_S, _SILVER_BPS), (_FALLS_S, _ENDS_S, _SILVER_LATER_BPS)]
    )
    foreign = _arrivals(dice, [(0.0, _ENDS_S, _FOREIGN_BPS)])
    ends_s = _ends_s(name)
    return (
        [at for at in gold if at < ends_s and name != _SILVER_ALONE],
        [at for at in silver if at < ends_s and name != _GOLD_ALONE],
        [at for at in foreign if at < ends_s],
    )


def _arrivals(dice: random.Random, spans: Sequence[tuple[float, float, int]]) -> list[float]:
    """Return random times of requests, at each span's mean rate."""
    arrivals = []
    for begin_s, end_s, bps in spans:
        at = begin_s
        while (at := at + dice.expovariate(bps / (8 * _PAGE_BYTES))) < end_s:
            arrivals.append(at)
    return arrivals


def _page(by: Access, began: float, at_s: float) -> tuple[float, float]:
    time.sleep(max(0.0, began + at_s - time.monotonic()))
    done = by.download(_PAGE_BYTES, 1, _PATIENCE_S)
    return at_s, _PATIENCE_S if done.last_byte_s is None else done.last_byte_s


def _watch(subject: Underpass, began: float, until_s: float) -> dict[str, list[tuple[float, str]]]:
    """Return when the hub moved each class to another path, and to which."""
    seen: dict[str, list[tuple[float, str]]] = {"normal": [], "interactive": []}
    satellite = subject.pair.hub_path("satellite")
    while (at := time.monotonic() - began) < until_s:
        views = subject.pair.hub.api.get("/v1/migrations")
        for view in views:
            path = "satellite" if view["path"] == satellite else "terrestrial"
            of_class = seen.setdefault(view["class"], [])
            before = of_class[-1][1] if of_class else "terrestrial"
            if path != before:
                of_class.append((at, path))
        time.sleep(_POLLS_EACH_S)
    return seen


def _median_s(pages: Sequence[tuple[float, float]], from_s: float) -> float:
    """Return the median time of the pages from a time on, until the load falls."""
    return quantile([took for at, took in pages if from_s <= at < _FALLS_S], 0.5)


def add_records(
    result: Result, name: str, runs: Sequence[Run], alone: Sequence[tuple[Run, Run]]
) -> None:
    """Compare each class's pages with the same pages, of as many runs, of the class alone."""
    values: dict[str, list[float]] = {"rtt": [], "gold": [], "silver": [], "broken": []}
    for run, (gold_alone, silver_alone) in zip(runs, alone, strict=True):
        settled_s = run.settled_s
        rtt = [ms for at, ms in run.rtt_ms if settled_s <= at < _FALLS_S]
        gold_s = _median_s(run.gold, settled_s)
        moved_s = settled_s - _SETTLED_S + 2 * SATELLITE.rtt_s
        silver_s = _median_s(run.silver, moved_s)
        values["rtt"].append(quantile(rtt, 0.95))
        values["gold"].append(100 * gold_s / _median_s(gold_alone.gold, settled_s))
        values["silver"].append(100 * silver_s / _median_s(silver_alone.silver, moved_s))
        values["broken"].append(run.broken())
        for kind, moves in (("Silver", run.moves), ("Gold", run.gold_moves)):
            say(f"offload  {name}: {kind} moved {[(round(at, 1), path) for at, path in moves]}")
    for figure, of_runs in values.items():
        made = record(f"offload.{figure}", name, of_runs)
        result.records.append(made)
        say(f"offload.{figure}  {name}: {made.median:.4g}")
    curves = result.curves.setdefault("round trip on the terrestrial hop, ms over s", {})
    first = runs[0].rtt_ms
    # The maximum of each quarter second.
    curves[name] = [
        (round(first[place][0], 2), max(ms for _, ms in first[place : place + 25]))
        for place in range(0, len(first), 25)
    ]
    if name == OURS:
        there = [at - _SILVER_FROM_S for run in runs for at, to in run.moves if to == "satellite"]
        back = [at - _FALLS_S for run in runs for at, to in run.moves if to == "terrestrial"]
        result.notes["Silver moves, s behind its beginning"] = [round(at, 1) for at in there]
        result.notes["Silver comes back, s behind the fall"] = [round(at, 1) for at in back]
        left = [
            at - _SILVER_FROM_S for run in runs for at, to in run.gold_moves if to == "satellite"
        ]
        result.notes["Gold moves, too, s behind Silver's beginning"] = [round(at, 1) for at in left]
