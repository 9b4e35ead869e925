"""The control service, then its database, is down for a minute: what is lost, and who notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from itertools import pairwise

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, part_of, record
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.control_api import postgresql
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download
from tests.testbed.control import REPORTS, Control, ControlError
from tests.testbed.following import Follower
from tests.testbed.narration import ms
from tests.testbed.node import Options, Pair, terminal_node
from tests.testbed.profile import PAPER_BEAM
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_TERMINALS = 2
_AWAY_S = 60.0
_BEFORE_S = 60.0
_CAUGHT_UP_WITHIN_S = 60.0
_POSITION_MS = 1_000
_MOST_S = 600.0
_ENDLESS = 1_000_000_000_000
# A vehicle that stands still reports all the same.
_POSITIONS = {
    "source": "fixed",
    "longitude": -30.0,
    "latitude": 46.0,
    "interval_ms": _POSITION_MS,
}


@dataclass(frozen=True)
class _Loss:
    """The results of one outage."""

    missing: int
    plans_missed: int
    caught_up_s: float
    goodput_percent: float


def run(settings: Settings) -> Result:
    """Stop the service, then its database, for a minute each."""
    result = Result("control-loss")
    result.told["underpass"] = TOLD_PAIR
    if result.left_out(missing("underpass") or postgresql.missing()):
        return result
    for name in ("service", "database"):
        losses = [_loss(name, settings.seed + run) for run in range(settings.runs or 1)]
        for part, values in (
            ("missing", [float(loss.missing) for loss in losses]),
            ("plans", [float(loss.plans_missed) for loss in losses]),
            ("caught-up", [loss.caught_up_s for loss in losses]),
            ("goodput", [loss.goodput_percent for loss in losses]),
        ):
            made = record(f"control-loss.{name}.{part}", "underpass", values)
            result.records.append(made)
            say(f"{made.id}: {made.median:.4g} {made.unit}")
    result.notes["measured"] = (
        f"{_TERMINALS} terminals with a download and a position each second; away for "
        f"{_AWAY_S:.0f} s by SIGKILL; goodput of that minute against the one before"
    )
    return result


def _loss(which: str, seed: int) -> _Loss:
    with Testbed(PAPER_BEAM, terminals=_TERMINALS, shared=True, seed=seed) as testbed:
        control = Control(testbed, durable_postgresql=True)
        control.register()
        options = Options(terminal={**REPORTS, "positions": _POSITIONS}, hub=control.hub_config)
        pair = Pair(testbed, options)
        with _downloads(pair) as flows:
            _until(partial(_caught_up, control), "no positions come")
            began = time.monotonic()
            since_ms = time.time_ns() // 1_000_000
            time.sleep(_BEFORE_S)
            with _away(control, which):
                time.sleep(_AWAY_S)
            caught_up_s = _until(partial(_caught_up, control), "the service is not up to date")
            followed = _follows(control, pair)
        early = began - flows.began_s
        before, during = (
            sum(flow.bytes_at(late) - flow.bytes_at(late - _BEFORE_S) for flow in flows.ended)
            for late in (early + _BEFORE_S, early + _BEFORE_S + _AWAY_S)
        )
        return _Loss(
            missing=sum(_gaps(control, terminal_node(n), since_ms) for n in range(_TERMINALS)),
            plans_missed=2 - followed,
            caught_up_s=caught_up_s,
            goodput_percent=100 * part_of(during, before),
        )


def _follows(control: Control, pair: Pair[Testbed]) -> int:
    """Return for how many links the nodes apply a new plan, made for a blockage ahead."""
    with Follower(control, ("plans", "acknowledgements")) as follower:
        pair.terminal.api.announce(in_s=60.0, duration_s=20.0, confidence=1.0)
        made: dict[str, int] = {}
        followed: set[str] = set()
        while len(followed) < 2 and (event := follower.next(10.0)):
            link, version = event.data["link"], event.data["plan"]
            if event.kind == "plans":
                made.setdefault(link, version)
            elif version >= made.get(link, version + 1):
                followed.add(link)
    return len(followed)


@contextmanager
def _away(control: Control, which: str) -> Iterator[None]:
    """Kill the service or its database, as a crash would, and start it again at the end."""
    if which == "service":
        control.process.kill()
        yield
        control.start()
        return
    assert control.postgresql is not None
    control.postgresql.stop()
    yield
    # A program starts in the namespace of the thread that starts it.
    with control.namespace.entered():
        control.postgresql.start()


@dataclass
class _Flows:
    """Downloads that run until the end."""

    began_s: float
    ended: list[Transfer] = field(default_factory=list)


@contextmanager
def _downloads(pair: Pair[Testbed]) -> Iterator[_Flows]:
    """Keep every client busy; each one's result is available afterwards."""
    flows, stop = _Flows(time.monotonic()), threading.Event()

    def flow(index: int) -> None:
        client, route = pair.testbed.terminals[index].client, pair.http_forward(index)
        flows.ended.append(
            download(client, addresses.ORIGIN, _ENDLESS, route=route, deadline_s=_MOST_S, stop=stop)
        )

    threads = [threading.Thread(target=flow, args=(index,)) for index in range(_TERMINALS)]
    for thread in threads:
        thread.start()
    try:
        yield flows
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _until(holds: Callable[[], bool], otherwise: str) -> float:
    """Wait until `holds` is true; return how long it took, s."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > _CAUGHT_UP_WITHIN_S:
            raise TimeoutError(otherwise)
        time.sleep(0.2)
    return time.monotonic() - began


def _caught_up(control: Control) -> bool:
    """Tell whether the newest position of each terminal is current."""
    for index in range(_TERMINALS):
        try:
            newest = control.get(f"/v1/terminals/{terminal_node(index)}/positions/newest")
        except (OSError, HTTPException, ControlError):
            return False
        if time.time() * 1000 - ms(newest["time"]) > 3 * _POSITION_MS:
            return False
    return True


def _gaps(control: Control, terminal: int, since_ms: int) -> int:
    """Return how many of a terminal's positions are missing between a time and now."""
    page = control.get(f"/v1/terminals/{terminal}/positions?limit=1000")
    times = [ms(one["time"]) for one in page["positions"] if ms(one["time"]) >= since_ms]
    # A fix comes each second, give or take some milliseconds.
    return sum(round((b - a) / _POSITION_MS) - 1 for a, b in pairwise(times))
